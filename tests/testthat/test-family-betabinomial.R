bb_data <- function(n = 40) withr_seed(6, {
  d <- data.frame(x = rnorm(n), g = factor(rep_len(1:8, n)), n = rep_len(c(3, 12, 40), n))
  p <- rbeta(n, 5 * plogis(0.3 + 0.7 * d$x), 5 * plogis(-0.3 - 0.7 * d$x))
  d$k <- rbinom(n, d$n, p)
  d
})
bb_log <- function(k, n, eta, phi) {
  a <- phi * plogis(eta)
  b <- phi * plogis(-eta)
  lbeta(a + k, b + n - k) - lbeta(a, b)
}

test_that("the loss of a beta-binomial count is minus its log density, for small and large phi", {
  for (phi in c(0.2, 4, 3e4)) for (k in c(0, 3, 7)) {
    expect_row_loss("beta_binomial", phi, packed_trials(k, 7), function(eta) bb_log(k, 7, eta, phi), c(-2, 0.8))
  }
  # as phi grows it is a binomial one
  at <- .Call(elvi_r_expect_rows, list(likelihood = "beta_binomial", error_df = 4), point_rule, 1e12,
              list(y = packed_trials(3, 7), weight = 1, eta = 0.4, s = 0))
  expect_equal(at$sum, -3 * plogis(0.4, log.p = TRUE) - 4 * plogis(-0.4, log.p = TRUE), tolerance = 1e-6)
  seen <- unpacked_trials(packed_trials(c(0, 3, 2^26 - 1), c(0, 7, 2^26 - 1)))
  expect_identical(seen, list(k = c(0, 3, 2^26 - 1), n = c(0, 7, 2^26 - 1)))
})

test_that("the posterior of a beta-binomial regression is that of a grid, and the methods read counts and shares", {
  skip_without_parser()
  d <- bb_data()
  expect_evidence_slope(elvi_problem(cbind(k, n - k) ~ x + (1 | g), d, family = beta_binomial()))
  fit <- elvi(cbind(k, n - k) ~ 1, d, family = beta_binomial(), prior_intercept = normal(0, 2),
              prior_aux = exponential(0.3), autoscale = FALSE)
  expect_grid_posterior(summary(fit)$table, expand.grid(b = seq(-1.4, 1.8, length.out = 81), a = seq(-1, 4, length.out = 101)),
    function(v) sum(bb_log(d$k, d$n, v[1], exp(v[2]))) + dnorm(v[1], 0, 2, log = TRUE) + dexp(exp(v[2]), 0.3, log = TRUE) + v[2],
    function(v) c(v[1], exp(v[2])))
  draws <- as.matrix(fit, draws = 3)
  expect_equal(unname(log_lik(fit, draws = 3)[2, ]), lchoose(d$n, d$k) + bb_log(d$k, d$n, draws[2, 1], draws[2, "phi"]))
  expect_equal(unname(log_lik(fit, newdata = d[1:3, ], draws = 3)), unname(log_lik(fit, draws = 3)[, 1:3]))
  expect_equal(unname(residuals(fit)), d$k / d$n - unname(fitted(fit)))
  expect_true(all(posterior_predict(fit, draws = 50) <= rep(d$n, each = 50)))
  expect_length(bayes_R2(fit, draws = 20), 20L)
})

test_that("responses that say nothing about phi are refused", {
  d <- bb_data()
  refusal(elvi(as.integer(k > 2) ~ x, d, family = beta_binomial()), "as.integer(k > 2)")
  refusal(elvi(k / n ~ x, d, family = beta_binomial()), "k/n")
  refusal(elvi(cbind(k, -1) ~ x, d, family = beta_binomial()), "cbind(k, -1)")
})
