# Units are the user's business: very large and very small ones must not change an
# answer. (Of R/run-coordinates.R and R/run-loop.R through the formula interface.)

test_that("standard deviations and predictions do not depend on units", {
  set.seed(4)
  n <- 60
  pop <- round(runif(n, 1e8, 1.4e9))
  x2 <- rnorm(n)
  d <- data.frame(y = rbinom(n, 1, plogis((pop - 7e8) / 3e8 + x2)), pop, popb = pop / 1e9, x2)
  for (scale in c("symmetric", "triangular")) {
    control <- elvi_control(scale = scale)
    large <- elvi(y ~ pop + x2, d, family = binomial(), control = control)
    small <- elvi(y ~ popb + x2, d, family = binomial(), control = control)
    expect_equal(unname(confint(large) * c(1, 1e9, 1)), unname(confint(small)), tolerance = 1e-4)
    expect_equal(predict(large, se.fit = TRUE)$se.fit, predict(small, se.fit = TRUE)$se.fit, tolerance = 1e-4)
  }
})

test_that("an unknown sigma follows the units of the response", {
  skip_on_cran()
  set.seed(1)
  plain <- elvi(mpg ~ wt, mtcars)
  for (unit in c(1e8, 1e-8)) {
    set.seed(1)
    other <- elvi(mpg ~ wt, transform(mtcars, mpg = mpg * unit))
    ratio <- c(sqrt(diag(vcov(other))) / sqrt(diag(vcov(plain))), sigma(other) / sigma(plain)) / unit
    expect_equal(unname(ratio), c(1, 1, 1), tolerance = 0.05)
  }
})

test_that("roots of a covariance keep its small scales", {
  R <- matrix(c(1e8, 3, 0, 2), 2)
  for (root in list(symmetric_root(R), lower_root(R))) {
    expect_equal(tcrossprod(root)[2, 2], 13, tolerance = 1e-6)
    expect_equal(tcrossprod(root)[1, 2], 3e8)
  }
  expect_equal(lower_root(R)[1, 2], 0)
})

test_that("extreme bases and schedules are right or refused", {
  set.seed(1)
  z <- base_draws(base_power(1000), 1e4, 1)
  expect_false(any(z == 0))
  expect_equal(mean(z^2), 1, tolerance = 0.05)
  expect_error(base_power(0.005), "shape", class = "elvi_error_argument")
  expect_error(schedule_growing(1e13), "budget", class = "elvi_error_argument")
  expect_error(schedule_custom(0.1, batch = c(1, 1e300)), "batch", class = "elvi_error_argument")
  fit <- suppressMessages(elvi(model_quadratic(diag(2)), schedule = schedule_growing(500, nu = 100)))
  expect_identical(fit$plan$iterations, 1)   # the second batch is beyond any budget
})

test_that("the exact solver refuses settings it would not use", {
  for (control in list(elvi_control("raw", scale_max = 0.1), elvi_control(iterations = 3), elvi_control(smoothness = 2))) {
    expect_error(elvi(am ~ wt, mtcars, family = binomial(), method = "exact", control = control), "exact", class = "elvi_error_argument")
  }
  expect_error(residuals(elvi(am ~ wt, mtcars, family = binomial()), type = "partial"), class = "elvi_error_argument")
})

test_that("a certificate is not called rigorous where quadrature cannot resolve the bend", {
  x <- c(-2, -1, -0.5, 0.3, 1, 2)
  y <- c(0, 0, 0, 1, 1, 1)
  wide <- suppressWarnings(elvi_optimum(model_glm(cbind(1, x), y, prior = normal(0, 1e4))))
  expect_identical(wide$certificate_kind, "estimated")
  expect_identical(elvi_optimum(model_glm(cbind(1, x), y, prior = normal(0, 2.5)))$certificate_kind, "rigorous")
})

test_that("a tuned run that gets nowhere is tried again with shorter steps", {
  skip_on_cran()
  # f is steep where the mode does not show it: exp() of a coordinate
  model <- model_density(function(x) sum(x^2) / 2 + sum(exp(3 * x)) / 100,
                         function(x) x + 3 * exp(3 * x) / 100, dim = 5, convex = TRUE)
  fit <- function() {
    set.seed(1)
    suppressWarnings(elvi(model, base_gaussian(), tol = 0.01, control = elvi_control(estimator = "path")))
  }
  # with a longest step it need not be
  guarded <- fit()
  plan <- plan_tuned
  free <- with_swapped("plan_tuned", function(...) utils::modifyList(plan(...), list(longest = Inf)), fit())
  expect_gt(free$plan$shorten, 1)
  for (run in list(guarded, free)) {
    expect_identical(run$kept, "average")
    expect_lt(run$lost, 0)
  }
})
