test_that("stratified draws have the moments of a normal distribution", {
  z <- stratified_draws(5, 16)
  expect_equal(rowMeans(z), numeric(5))
  expect_equal(rowMeans(z^2), rep(1, 5))
  expect_equal(rowMeans(z^4), rep(3, 5), tolerance = 1e-6)
})

test_that("the gradient of the log evidence is nearly that of its values", {
  t <- normal_groups(10)
  model <- model_density(t$value, t$gradient, dim = t$dim, hyper = 2:3)
  setup <- integrated_setup(model, 2:3, curvature_of(model))
  at <- function(theta) evidence_at(setup, list(theta))[[1]]
  here <- at(c(-0.2, 0.1))
  slope <- vapply(1:2, function(j) (at(c(-0.2, 0.1) + 1e-3 * (1:2 == j))$value - at(c(-0.2, 0.1) - 1e-3 * (1:2 == j))$value) / 2e-3, 0)
  expect_equal(here$slope, slope, tolerance = 0.1)
})

test_that("standard deviations of many groups are integrated over", {
  t <- normal_groups(420)
  model <- model_density(t$value, t$gradient, dim = t$dim, names = t$names)
  expect_identical(integrated_over(model, curvature_of(model)), 2:3)
  set.seed(1)
  fit <- elvi(model)
  m <- posterior_moments(fit$posterior)
  own <- t$names[1:3]
  expect_lt(max(abs(m$mean[own] - t$mean) / t$sd), 0.05)
  expect_lt(max(abs(log(m$sd[own] / t$sd))), 0.03)
  expect_true(fit$converged)
  expect_output(print(fit), "quadrature points over log_tau, log_sigma")
  expect_setequal(colnames(as.matrix(fit, draws = 3)), t$names)
})

test_that("effects with skewed distributions: within the error that print() says, and a tenth of a standard deviation", {
  skip_unless_long()   # 78 quadrature points
  set.seed(8)
  y <- c(0, 0, 1, 0, 3, 0, 1, 5)
  J <- length(y)
  value <- function(x) sum(exp(x[1] + x[-(1:2)]) - y * (x[1] + x[-(1:2)])) + sum(x[-(1:2)]^2) * exp(-2 * x[2]) / 2 + J * x[2] + x[1]^2 / 8 +
    exp(x[2]) - x[2]
  gradient <- function(x) {
    e <- exp(x[1] + x[-(1:2)]) - y
    c(sum(e) + x[1] / 4, -sum(x[-(1:2)]^2) * exp(-2 * x[2]) + J + exp(x[2]) - 1, e + x[-(1:2)] * exp(-2 * x[2]))
  }
  model <- model_density(value, gradient, dim = J + 2, names = c("b", "log_tau", paste0("u[", 1:J, "]")), hyper = 1:2)
  fit <- suppressWarnings(elvi(model))
  # the integral over effects one by one, on a grid of both hyperparameters
  grid <- expand.grid(b = seq(-5, 4, 0.15), t = seq(-6, 2, 0.15))
  u <- seq(-8, 8, length.out = 401)
  log_marginal <- function(b, t) {
    each <- outer(y, u * exp(t), function(y, u) y * (b + u) - exp(b + u))
    sum(log(exp(each) %*% dnorm(u))) - b^2 / 8 - exp(t) + t
  }
  moments <- function(f) {
    l <- mapply(f, grid$b, grid$t)
    w <- exp(l - max(l)) / sum(exp(l - max(l)))
    mean <- colSums(w * grid)
    list(mean = mean, sd = sqrt(colSums(w * grid^2) - mean^2))
  }
  truth <- moments(log_marginal)
  m <- posterior_moments(fit$posterior)
  mine <- lapply(m, function(v) v[c("b", "log_tau")])
  off <- function(at) max(abs(at$mean - truth$mean) / truth$sd)
  expect_lt(off(mine), 0.1)
  expect_lt(max(abs(log(mine$sd / truth$sd))), 0.1)
  said <- posterior_error(fit)
  expect_lt(off(mine), said$mean)
})
