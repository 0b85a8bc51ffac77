# Chains that polish a fit: against distributions whose moments are known, and a second implementation of R-hat.

correlated <- function() {
  P <- solve(matrix(c(2, 1.2, 1.2, 1), 2))
  model_density(function(x) colSums(x * (P %*% x)) / 2, function(x) P %*% x, dim = 2, names = c("a", "b"), vectorized = TRUE)
}

chains_of <- function(model, start, key = c(1, 2), settings = polish_settings) polish_from(model, start, key, settings)

test_that("chains leave a normal distribution as it is, also badly whitened", {
  start <- list(x = matrix(with_seed(1, rnorm(2 * polish_chains)), 2), mean = c(0.5, 0), root = diag(c(0.4, 2)))
  out <- chains_of(correlated(), start)
  expect_equal(unname(out$moments$covariance), matrix(c(2, 1.2, 1.2, 1), 2), tolerance = 0.08)
  expect_lt(max(abs(out$moments$mean)), 0.08)
  expect_lt(out$rhat, 1.02)
  expect_equal(out$accept, polish_settings$accept, tolerance = 0.1)
  expect_identical(out$divergent, 0)
  # every second iteration, so that points are nearly independent
  kept <- out$x[1, rep(c(TRUE, FALSE), each = polish_chains)]
  expect_gt(suppressWarnings(ks.test(kept, pnorm, 0, sqrt(2))$p.value), 0.01)
})

test_that("the same key gives the same chains, another one others", {
  start <- list(x = matrix(with_seed(1, rnorm(2 * polish_chains)), 2), mean = c(0, 0), root = diag(2))
  few <- within(polish_settings, iterations <- 10)
  expect_identical(chains_of(correlated(), start, settings = few), chains_of(correlated(), start, settings = few))
  expect_false(identical(chains_of(correlated(), start, settings = few)$x, chains_of(correlated(), start, c(1, 3), few)$x))
})

test_that("points where the target fails are never visited", {
  # a gamma distribution, not a number for half of the line
  value <- function(x) ifelse(x > 0, drop(x) - 2 * log(abs(x)), NaN)
  gradient <- function(x) ifelse(x > 0, 1 - 2 / x, NaN)
  model <- model_density(value, gradient, dim = 1, names = "rate", vectorized = TRUE)
  start <- list(x = matrix(with_seed(1, rgamma(polish_chains, 3)), 1), mean = 3, root = matrix(1.7))
  out <- chains_of(model, start)
  expect_gt(min(out$x), 0)
  expect_equal(mean(out$x), 3, tolerance = 0.05)
  expect_equal(sd(out$x), sqrt(3), tolerance = 0.08)
})

test_that("R-hat is the usual one of halved chains", {
  x <- matrix(with_seed(3, rnorm(4 * 100 * 2)), 2)
  x[1, ] <- x[1, ] + rep(c(0, 0, 0, 1), 100)   # one chain elsewhere
  skip_if_not_installed("posterior")
  of <- function(j) posterior::rhat_basic(t(matrix(x[j, ], 4)))
  expect_equal(split_rhat(x, 4L), max(of(1), of(2)), tolerance = 1e-10)
})

test_that("a singular covariance has a root", {
  V <- tcrossprod(c(1, 2))
  expect_equal(tcrossprod(chain_root(V)), V, tolerance = 1e-4)
  expect_equal(tcrossprod(chain_root(diag(c(2, 3)))), diag(c(2, 3)))
})

funnel <- function(d, sd) {
  model_density(
    function(x) x[1, ]^2 / (2 * sd^2) + colSums(x[-1, , drop = FALSE]^2) * exp(-x[1, ]) / 2 + (d - 1) * x[1, ] / 2,
    function(x) {
      away <- x[-1, , drop = FALSE]
      rbind(x[1, ] / sd^2 - colSums(away^2) * exp(-x[1, ]) / 2 + (d - 1) / 2, away * rep(exp(-x[1, ]), each = d - 1))
    }, dim = d, names = c("v", paste0("x", seq_len(d - 1))), vectorized = TRUE)
}

test_that("a funnel that weights cannot mend is polished, and every method shows it", {
  skip_on_cran()
  set.seed(1)
  fit <- suppressWarnings(suppressMessages(elvi(funnel(20, 2), tol = 0.1, polish = TRUE)))
  expect_false(is.null(fit$polish))
  factor <- function(sd) max(sd / 2, 2 / sd)
  expect_lt(factor(sqrt(vcov(fit)[1, 1])), 1.3)
  expect_gt(factor(fit$sd[["v"]]), 1.5)   # of the approximation
  expect_equal(unname(coef(fit)), unname(rowMeans(fit$polish$x)))
  expect_equal(summary(fit)$table["v", "50 %"], median(fit$polish$x[1, ]), tolerance = 1e-3)
  expect_true(all(as.matrix(fit, draws = 20)[, "v"] %in% fit$polish$x[1, ]))
  expect_output(print(fit), "necessary, not sufficient")
  expect_output(print(fit), "Hamiltonian Monte Carlo chains")
})

test_that("good weights are left alone, and other models refused", {
  set.seed(1)
  fit <- elvi(correlated(), budget = 500, polish = TRUE)
  expect_null(fit$polish)
  expect_error(elvi(model_quadratic(diag(2)), polish = TRUE), "`polish`", class = "elvi_error_argument")
  expect_error(elvi(correlated(), polish = 1), "`polish`", class = "elvi_error_argument")
})
