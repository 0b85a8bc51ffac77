lognormal_data <- function(n = 60) withr_seed(5, {
  d <- data.frame(x = rnorm(n), g = factor(rep_len(1:6, n)), seen = rep_len(c(1, 1, 1, 0), n))
  d$y <- rlnorm(n, 1 + 0.4 * d$x + rnorm(6, 0, 0.3)[d$g], 0.5)
  d
})

test_that("the loss of a lognormal time, seen or censored, is minus its log density or log probability", {
  for (sigma in c(0.4, 1.5)) {
    expect_row_loss("lognormal", sigma, 3, function(eta) dlnorm(3, eta - sigma^2 / 2, sigma, log = TRUE) + log(3) + log(2 * pi) / 2,
                    c(-0.5, 1.2))
    expect_row_loss("lognormal", sigma, -3, function(eta) plnorm(3, eta - sigma^2 / 2, sigma, lower.tail = FALSE, log.p = TRUE),
                    c(-0.5, 1.2))
  }
})

test_that("the evidence of sigma has its slope, and exp(eta) is the mean", {
  skip_without_parser()
  d <- lognormal_data()
  skip_if_not_installed("survival")
  expect_evidence_slope(elvi_problem(survival::Surv(y, seen) ~ x + (1 | g), d, family = lognormal(), weights = rep_len(1:2, 60)))
  y <- withr_seed(1, family_records$lognormal$draws(rep(3, 2e4), 0.6, 1, NULL))
  expect_lt(abs(mean(y) - 3), 4 * sd(y) / sqrt(2e4))
  expect_equal(family_records$lognormal$variance(3, 0.6, NULL), var(y), tolerance = 0.1)
})

test_that("without censoring it is a gaussian regression of the logarithms", {
  d <- lognormal_data()
  fit <- elvi(y ~ x, d, family = lognormal(), prior = normal(0, 2), prior_intercept = flat(), prior_aux = exponential(1), autoscale = FALSE)
  logs <- elvi(log(y) ~ x, d, prior = normal(0, 2), prior_intercept = flat(), prior_aux = exponential(1), autoscale = FALSE)
  expect_equal(summary(fit)$table[c("x", "sigma"), ], summary(logs)$table[c("x", "sigma"), ], tolerance = 1e-3)
  expect_equal(elbo(fit)$estimate + sum(log(d$y)), elbo(logs)$estimate, tolerance = 1e-3)
  draws <- as.matrix(fit, draws = 5)
  mean <- draws[, 1] + outer(draws[, 2], d$x)
  expect_equal(unname(log_lik(fit, draws = 5)), unname(t(vapply(1:5, function(i) {
    dlnorm(d$y, mean[i, ] - draws[i, "sigma"]^2 / 2, draws[i, "sigma"], log = TRUE)
  }, d$y))))
  expect_equal(sigma(fit), summary(fit)$table["sigma", "mean"])
  refusal(elvi(y ~ x, transform(d, y = -y), family = lognormal()), "y")
})
