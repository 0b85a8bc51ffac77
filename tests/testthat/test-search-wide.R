test_that("natural gradient steps end at the best gaussian of log-gamma targets", {
  t <- log_gamma(60)
  model <- model_density(t$value, t$gradient, dim = t$dim)
  found <- search_wide(model, curvature_of(model), c(1, 2), 0.02, 1e5)
  shape <- seq(1, 4, length.out = 60)
  # E exp(x) = shape and precision = E exp(x): in closed form
  expect_true(found$reached)
  expect_lt(max(abs(found$mu - log(shape) + 1 / (2 * shape)) * sqrt(shape)), 0.1)
  expect_lt(max(abs(log(found$A$sd * sqrt(shape)))), 0.1)
})

test_that("a low rank root finds the mean and the scales of a quadratic", {
  d <- 60
  h <- seq(0.5, 20, length.out = d)
  model <- model_density(function(x) sum(h * (x - 1)^2) / 2, function(x) h * (x - 1), dim = d)
  found <- search_wide(model, NULL, c(1, 2), 0.05, 1e5)
  expect_s3_class(found$A, "elvi_lowrank_root")
  expect_lt(max(abs(found$mu - 1) * sqrt(h)), 0.1)
  expect_lt(max(abs(log(root_sd(found$A) * sqrt(h)))), 0.2)
})

test_that("a step that would lose positive definiteness is shortened", {
  layout <- precision_layout(1:2, 1:2, 2)
  A <- precision_root(layout, c(1, 1))
  move <- wide_move(list(), c(0, 0), A, list(g = c(0, 0), H = c(-1, 1)), 1)
  expect_lt(move$rho, 1)
  expect_gt(move$A$values[1], 0.29)
})

test_that("a second mode of many parameters is found and said", {
  at <- c(-4, 4)
  parts <- function(x) log(c(0.6, 0.4)) - (x[1] - at)^2 / 2
  model <- model_density(function(x) sum(x[-1]^2) / 2 - max(parts(x)) - log(sum(exp(parts(x) - max(parts(x))))), function(x) {
    w <- exp(parts(x) - max(parts(x)))
    c(sum(w / sum(w) * (x[1] - at)), x[-1])
  }, dim = 420)
  set.seed(1)
  expect_warning(fit <- elvi(model), "different place", class = "elvi_warning_verdict")
  expect_false(fit$converged)
  expect_gt(fit$verdict$elsewhere$number, 0)
})
