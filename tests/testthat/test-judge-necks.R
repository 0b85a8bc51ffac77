# a normal parameter that is the logarithm of the scale of d - 1 others
neck <- function(d, s) {
  model_density(function(x) x[1]^2 / (2 * s^2) + sum(x[-1]^2) * exp(-2 * x[1]) / 2 + (d - 1) * x[1],
                function(x) c(x[1] / s^2 - sum(x[-1]^2) * exp(-2 * x[1]) + d - 1, x[-1] * exp(-2 * x[1])), dim = d,
                names = c("scale", paste0("z", 2:d)))
}

test_that("the marginal density along a funnel is found from one place of it", {
  target <- guarded_target(neck(6, 0.8))
  mu <- c(0.5, numeric(5))
  root <- diag(c(0.3, rep(1.5, 5)))
  expect_identical(scale_parameters(target, mu, root, logical(6)), 1L)
  found <- neck_along(target, mu, root, 1L, "scale")
  expect_equal(c(found$mean, found$sd), c(0, 0.8), tolerance = 0.01)
  expect_equal(sum(found$weights), 1)
  # each part follows the change of scale: its density and that of the target differ along the neck only
  part <- found$parts[[which.min(abs(vapply(found$parts, function(p) p$mu[1], 0) + 1))]]
  x <- rbind(part$mu[1] + 0.3, c(0.2, 0.5), 0, 0, 0, 0)
  by_part <- diff(log_density_of(part, x, function(r) -r^2 / 2))
  expect_equal(by_part, -diff(target$evaluate(x)$value), tolerance = 1e-6)
})

test_that("parameters that set no scale are not followed", {
  t <- log_gamma(12)
  target <- guarded_target(model_density(t$value, t$gradient, dim = 12))
  expect_length(scale_parameters(target, t$mean, diag(t$sd), logical(12)), 0)
  expect_length(scale_parameters(target, t$mean[1], diag(1), TRUE), 0)
})

test_that("a neck that has no draws is found, and corrects the fit", {
  t <- normal_groups(8, 2)   # sd of log_tau 0.68 with all of its tail; the approximation has 0.4
  set.seed(1)
  fit <- suppressMessages(elvi(model_density(t$value, t$gradient, dim = t$dim, names = t$names), tol = 0.1))
  expect_false(is.null(fit$verdict$proposal))
  m <- posterior_moments(fit$posterior)
  expect_lt(max(abs(m$mean[1:3] - t$mean) / t$sd), 0.1)
  expect_lt(max(abs(log(m$sd[1:3] / t$sd))), 0.15)
})

test_that("a profile that disagrees is a problem where nothing corrects it", {
  v <- list(mean = c(a = 0, b = 0), covariance = diag(2))
  profiles <- list(list(name = "a", parameter = 1L, mean = 0, sd = 1.1), list(name = "b", parameter = 2L, mean = -0.2, sd = 2))
  by <- necks_disagree(profiles, v)
  expect_identical(by[c("name", "ratio")], list(name = "b", ratio = 2))
  expect_true(is_beyond(by))
  expect_false(is_beyond(necks_disagree(profiles[1], v)))
  expect_null(necks_disagree(list(), v))
  expect_false(is_beyond(NULL))
})
