# a banana: x2 given x1 is normal about 0.3 x1^2
banana <- function() {
  model_density(function(x) x[1]^2 / 8 + (x[2] - 0.3 * x[1]^2)^2 / 2,
                function(x) c(x[1] / 4 - 0.6 * x[1] * (x[2] - 0.3 * x[1]^2), x[2] - 0.3 * x[1]^2),
                dim = 2, names = c("a", "b"), vectorized = FALSE)
}

fitted_banana <- function() {
  set.seed(1)
  suppressWarnings(elvi(banana(), tol = 0.1))
}

test_that("tables, intervals and draws of a fit with importance weights show the same posterior", {
  skip_on_cran()
  fit <- fitted_banana()
  expect_true(is_corrected(fit$posterior))
  points <- weighted_points(fit$posterior)
  expect_equal(unname(coef(fit)), drop(points$x %*% points$w))
  expect_equal(unname(vcov(fit)), unname(stats::cov.wt(t(points$x), points$w, method = "ML")$cov))
  expect_equal(summary(fit)$table[, "mean"], coef(fit))
  expect_equal(summary(fit)$table[, "sd"], sqrt(diag(vcov(fit))))
  x <- as.matrix(fit, draws = 20000)
  for (draws in list(x, as.matrix(fit, draws = 20000, seed = 3), simulate(fit, 20000, seed = 4))) {
    expect_lt(max(abs(colMeans(draws) - coef(fit)) / sqrt(diag(vcov(fit)))), 0.05)
    expect_equal(apply(draws, 2, sd), sqrt(diag(vcov(fit))), tolerance = 0.05)
    expect_equal(unname(t(apply(draws, 2, quantile, c(0.05, 0.95)))), unname(confint(fit, level = 0.9)), tolerance = 0.1)
  }
  # of which the approximation's own mean is another number
  expect_gt(abs(coef(fit)[["b"]] - fit$mu[["b"]]), 0.1)
  expect_output(print(fit), "corrected by importance weights")
  expect_output(print(summary(fit)), "corrected by importance weights")
})

test_that("draws of the approximation itself come with a warning where they differ", {
  skip_on_cran()
  fit <- fitted_banana()
  expect_warning(plain <- as.matrix(fit, draws = 2000, resample = FALSE), class = "elvi_warning_uncorrected")
  expect_no_warning(warn_of_plain(plain, plain))
  expect_warning(warn_of_plain(plain, plain * 2), "factor of 2", class = "elvi_warning_uncorrected")
  expect_warning(warn_of_plain(plain, plain + 3), class = "elvi_warning_uncorrected")
})

test_that("equal weights give the usual quantiles", {
  x <- c(3, 1, 2, 5, 4)
  expect_equal(weighted_quantile(x, rep(0.2, 5), c(0.1, 0.5, 0.9)), c(1, 3, 5))
  expect_equal(weighted_quantile(c(0, 1), c(0.25, 0.75), 0.5), 0.75)
})

test_that("covariances of some parameters are those of all, with each kind of scale and centred predictors", {
  set.seed(1)
  for (kind in c("symmetric", "diagonal")) {
    fit <- elvi(case ~ age + parity, infert, family = binomial(), prior = normal(0, 2.5), budget = 100,
                control = elvi_control(scale = kind))
    for (which in list(c(3, 1), 2L)) {
      expect_equal(posterior_covariance(fit$posterior, which), vcov(fit)[which, which, drop = FALSE], tolerance = 1e-12)
    }
    expect_output(print(fit$work), "in whitened coordinates")
  }
})
