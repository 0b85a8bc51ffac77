# f throws for x1 > 1 and is not finite for x2 > 1
picky <- function() {
  outside <- function(x) if (x[1] > 1) stop("x1 is too large") else x[2] > 1
  model_density(function(x) if (outside(x)) NaN else sum(x^2) / 2, function(x) if (outside(x)) x * Inf else x, dim = 2,
                vectorized = FALSE)
}

test_that("a point that fails is marked, its neighbours are evaluated", {
  target <- guarded_target(picky())
  x <- cbind(c(0, 0), c(2, 0), c(0.5, -1), c(0, 3), c(3, 3))
  at <- target$evaluate(x)
  expect_equal(at$ok, c(TRUE, FALSE, TRUE, FALSE, FALSE))
  expect_equal(at$value[at$ok], c(0, 0.625))
  expect_equal(at$gradient[, at$ok], x[, at$ok])
  expect_equal(target$account$evaluations, 5)
  expect_equal(target$account$outside, 3)
  expect_match(target$account$first_error, "x1 is too large")
})

test_that("an answer of the wrong shape is no failure of a point", {
  model <- picky()
  model$value <- function(x) bad_argument("value", "a number", "two")
  expect_error(guarded_target(model)$evaluate(matrix(0, 2, 3)), class = "elvi_error_argument")
})

test_that("outside the domain stands the gaussian of the frame, ten nats up", {
  model <- picky()
  found <- list(mu = c(0.1, -0.2), A = rbind(c(2, 0), c(1, 0.5)), objective = 3)
  frame <- found_frame(model, "symmetric", found)
  account <- new_account()
  safe <- with_gaussian_fallback(model, frame, account)
  x <- cbind(c(0, 0), c(2, 0))
  w <- solve(found$A, x[, 2] - found$mu)
  level <- 3 + log(det(found$A)) - 1
  expect_equal(safe$value(x), c(0, level + 10 + sum(w^2) / 2))
  expect_equal(matrix(safe$gradient(x), 2), cbind(c(0, 0), solve(t(found$A), w)))
  expect_equal(account$outside, 2)
})

test_that("on the way from a mode a target that fails in part of its domain is guarded too, for every estimator", {
  skip_on_cran()
  # too wide for a search; throws in a tail
  value <- function(x) if (x[1] > 2.5) stop("too far") else sum(x^2) / 2 + log(cosh(x[1]))
  gradient <- function(x) if (x[1] > 2.5) stop("too far") else x + c(tanh(x[1]), numeric(length(x) - 1))
  model <- model_density(value, gradient, dim = widest_search + 1, vectorized = FALSE)
  for (estimator in every(c("control", "path", "reparam"), 3)) {
    set.seed(1)
    fit <- suppressMessages(suppressWarnings(elvi(
      model, budget = 600, control = elvi_control(scale = "diagonal", estimator = estimator))))
    expect_equal(fit$status, "finished")
    expect_lt(max(abs(fit$mu)), 1)
  }
})

test_that("in raw coordinates a failure is a rejected point too, unless a smoothness says that there is none", {
  skip_on_cran()
  failing <- function(how, ...) {
    guard <- function(x, inside) if (x[1] > 2) how(inside) else inside
    model_density(function(x) guard(x, sum(x^2) / 2), function(x) guard(x, x), dim = 2, vectorized = FALSE, ...)
  }
  throws <- function(inside) stop("too far")
  is_none <- function(inside) inside * NaN
  raw <- function(model, estimator = "control") {
    set.seed(1)
    elvi(model, schedule = schedule_custom(0.2, 20, 100), control = elvi_control("raw", estimator = estimator))
  }
  for (estimator in c("control", "path", "reparam")) {
    expect_warning(fit <- raw(failing(throws), estimator), "points were outside the model's domain: too far",
                   class = "elvi_warning_outside")
    expect_gt(fit$state$outside, 10)
    expect_identical(fit$state$first_error, "too far")
    expect_lt(max(abs(fit$mu)), 0.1)
    expect_warning(fit <- raw(failing(is_none), estimator), class = "elvi_warning_outside")
    expect_lt(max(abs(fit$Sigma - diag(2))), 0.1)
  }
  expect_error(raw(failing(throws, smoothness = 1)), "^too far$", class = "simpleError")
  expect_error(raw(failing(is_none, smoothness = 1)), "iteration 1", class = "elvi_error_nonfinite")
})

test_that("steps have a longest length where the target is guarded, and are to the letter elsewhere", {
  model <- function(...) model_density(function(x) sum(x^2) / 2, function(x) x, dim = 2, vectorized = FALSE, ...)
  longest <- function(model, coordinates) {
    set.seed(1)
    longest_move(suppressMessages(elvi(model, schedule = schedule_custom(0.2, 2, 2), control = elvi_control(coordinates))))
  }
  expect_identical(longest(model(smoothness = 1), "raw"), Inf)
  expect_identical(longest(model(), "raw"), 100)
  expect_identical(longest(model(smoothness = 1), "whitened"), 100)
})

test_that("no step is longer than the scale, however steep the target, for every estimator", {
  skip_on_cran()
  steep <- model_density(function(x) sum(exp(4 * abs(x)) / 4), function(x) sign(x) * exp(4 * abs(x)), dim = 3, convex = TRUE,
                         vectorized = FALSE)
  for (estimator in c("control", "path", "reparam")) {
    set.seed(1)
    fit <- suppressMessages(suppressWarnings(elvi(
      steep, budget = 3000, start = list(mu = c(3, -3, 3), Sigma = diag(0.5, 3)), control = elvi_control(estimator = estimator))))
    expect_true(all(is.finite(c(fit$mu, fit$Sigma))))
    expect_lt(max(abs(fit$mu)), 3)
    expect_true(all(fit$trace$step <= 0.2, na.rm = TRUE))
  }
})
