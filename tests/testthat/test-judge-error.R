# moments of exp(log_density) on a grid
grid_moments <- function(x, log_density) {
  w <- exp(log_density - max(log_density))
  w <- w / sum(w)
  mean <- sum(w * x)
  list(mean = mean, sd = sqrt(sum(w * x^2) - mean^2))
}

test_that("the error of the best gaussian is estimated as brute force has it", {
  data <- data.frame(y = c(0, 1, 0, 2, 1, 0))
  fit <- function(...) withr_seed(1, elvi(y ~ 1, data = data, family = poisson(), prior_intercept = normal(0, 2), ...))
  x <- seq(-12, 6, length.out = 20001)
  truth <- grid_moments(x, dnorm(x, 0, 2, log = TRUE) + 4 * x - 6 * exp(x))
  gaussian <- fit(correct = FALSE)
  error <- posterior_error(gaussian)
  off <- abs(sqrt(vcov(gaussian)[1]) / truth$sd - 1)
  expect_gt(off, 0.04)
  expect_equal(error$sd, off, tolerance = 0.4)
  error <- posterior_error(fit())
  expect_lt(error$mean, 0.02)
  expect_lt(error$sd, 0.02)
  expect_lt(abs(sqrt(vcov(fit())[1]) / truth$sd - 1), 0.01)
})

test_that("with groups the error is that of what is shown given the hyperparameters, and of the quadrature", {
  data <- data.frame(g = factor(rep(1:10, each = 2)), y = c(0, 1, 0, 0, 0, 1, 3, 1, 0, 0, 0, 1, 5, 2, 0, 0, 0, 0, 0, 1))
  fit <- withr_seed(1, elvi(y ~ 1 + (1 | g), data = data, family = poisson(), prior_sd = exponential(1)))
  corrected <- posterior_error(fit)
  gaussian <- posterior_error(as_gaussian(fit))
  expect_gt(corrected$ess / corrected$draws, 0.8)
  expect_lt(corrected$sd, 0.05)
  expect_true(is.na(gaussian$sd) || gaussian$sd > 2 * corrected$sd)
  exact <- elvi(mpg ~ wt, data = mtcars)
  expect_identical(posterior_error(exact)[c("mean", "sd", "k")], list(mean = exact$nested$change$mean, sd = exact$nested$change$sd, k = -Inf))
})

test_that("draws at a quadrature point have the log ratios of the posterior given its hyperparameters", {
  data <- data.frame(g = factor(rep(1:4, each = 2)), x = c(1, -1, 2, 0, -2, 1, 0, 1), y = c(0, 1, 0, 2, 0, 1, 3, 1))
  fit <- elvi(y ~ x + (1 | g), data = data, family = poisson(), prior_sd = exponential(1))
  posterior <- fit$posterior
  k <- which.max(posterior$weight)
  found <- conditional_sample(posterior, k, 50L)
  z <- widened(draw_base(posterior_law(posterior), key_for(error_key, list(k)), 50L))$z
  normal <- function(scale) exp(colSums(dnorm(z, 0, scale, log = TRUE)))
  log_q <- log(0.9 * normal(1) + 0.1 * normal(1 + 1.8 / sqrt(6))) - corrected_points(posterior, z, rep(k, 50L))$log_slope
  b <- found$x[, 1:2]
  u <- found$x[, 3:6]
  centred <- b[, 1] + b[, 2] * mean(data$x)
  prior <- fit$priors$joint
  log_p <- dnorm(centred, 0, prior$scale[1], log = TRUE) + dnorm(b[, 2], 0, prior$scale[2], log = TRUE) +
    rowSums(dnorm(u, 0, posterior$hyper$values[k, 1], log = TRUE))
  eta <- b %*% rbind(1, data$x) + u[, data$g]
  log_p <- log_p + rowSums(matrix(dpois(rep(data$y, each = 50), exp(eta), log = TRUE), 50))
  # the check takes the gradient at the optimum for 0, which it is to a tolerance
  expect_lt(diff(range(found$log_ratios - (log_p - log_q))), 0.005)
})

test_that("cumulants give the error of the best gaussian", {
  # to second order the gaussian's variance lacks half of third^2
  expect_equal(gaussian_error(0.02, 0)$sd, 0.02^2 / 4, tolerance = 0.05)
  expect_lt(gaussian_error(0.02, 0)$mean, 1e-4)
})

test_that("every fit says its error against the posterior and k-hat in at most three lines", {
  many <- withr_seed(3, data.frame(x = rnorm(30000), y = rbinom(30000, 1, 0.5)))
  fits <- list(elvi(mpg ~ wt, data = mtcars), elvi(am ~ wt, data = mtcars, family = binomial()),
               elvi(am ~ wt, data = mtcars, family = binomial(), correct = FALSE),
               elvi(y ~ x, data = many, family = binomial()),
               elvi(mpg ~ wt + (1 | cyl), data = mtcars), withr_seed(1, elvi(mpg ~ wt, data = mtcars, family = robust())))
  for (fit in fits) {
    lines <- closing_lines(fit, posterior_error(fit))
    expect_lte(length(lines), 3L)
    expect_match(lines[2L], "rror against the posterior: (means [^ ]+ sd, sds [^ ]+ %|not known) \\(")
    expect_match(lines[3L], "^Pareto k-hat: ")
  }
  expect_match(error_line(posterior_error(fits[[4L]])), "third and fourth cumulants")
})
