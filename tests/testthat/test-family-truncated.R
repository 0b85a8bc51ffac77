truncated_data <- function(n = 150) withr_seed(8, {
  d <- data.frame(x = rnorm(n))
  d$y <- truncated_poisson_draws(exp(0.2 + 0.5 * d$x))
  d
})

test_that("the loss of a truncated count is minus its log density, and its expectation that of integrate()", {
  loss <- function(eta, y) -dpois(y, exp(eta), log = TRUE) + log(-expm1(-exp(eta))) - lgamma(y + 1)
  for (y in c(1, 4)) for (eta in c(-3, 0.7)) for (s in c(0, 0.6)) {
    of <- function(eta) if (s == 0) loss(eta, y) else integrate(function(z) loss(eta + s * z, y) * dnorm(z), -9, 9, rel.tol = 1e-11)$value
    at <- .Call(elvi_r_expect_rows, list(likelihood = "truncated_poisson", error_df = 4), gaussian_rule("truncated_poisson"), 1,
                list(y = y, weight = 2, eta = eta, s = s))
    expect_equal(at$sum, 2 * of(eta), tolerance = 1e-9)
    expect_equal(at$slope, (of(eta + 1e-3) - of(eta - 1e-3)) / 1e-3, tolerance = 1e-5)
    expect_equal(at$curve, 2 * (of(eta + 1e-3) - 2 * of(eta) + of(eta - 1e-3)) / 1e-6, tolerance = 1e-3)
  }
})

test_that("means of truncated counts and their link are inverses, and draws have them", {
  mu <- c(1.001, 1.3, 2, 5, 50, 500)
  expect_equal(truncated_mean(exp(truncated_link(mu))), mu, tolerance = 1e-9)
  family <- truncated_poisson()
  expect_equal(family$mu.eta(0.3), (family$linkinv(0.3001) - family$linkinv(0.2999)) / 2e-4, tolerance = 1e-6)
  y <- withr_seed(1, truncated_poisson_draws(rep(0.8, 2e4)))
  expect_true(all(y >= 1))
  expect_lt(abs(mean(y) - truncated_mean(0.8)), 4 * sd(y) / sqrt(2e4))
  expect_equal(mean(y == 2), dpois(2, 0.8) / -expm1(-0.8), tolerance = 0.05)
})

test_that("a truncated regression is the posterior of its density; zeros are refused", {
  skip_on_cran()
  d <- truncated_data()
  fit <- elvi(y ~ x, d, family = truncated_poisson(), prior = normal(0, 2), prior_intercept = normal(0, 3), autoscale = FALSE)
  expect_identical(c(fit$method, fit$optimum$certificate_kind), c("exact", "rigorous"))
  grid <- expand.grid(b = seq(-0.5, 0.8, length.out = 81), c = seq(0.1, 0.9, length.out = 81))
  log_p <- mapply(function(b, c) {
    m <- exp(b + c * (d$x - mean(d$x)))
    sum(dpois(d$y, m, log = TRUE) - log(-expm1(-m)))
  }, grid$b, grid$c) + dnorm(grid$b, 0, 3, log = TRUE) + dnorm(grid$c, 0, 2, log = TRUE)
  p <- exp(log_p - max(log_p))
  p <- p / sum(p)
  mean <- sum(p * grid$c)
  sd <- sqrt(sum(p * (grid$c - mean)^2))
  expect_lt(abs(coef(fit)[["x"]] - mean) / sd, 0.05)
  expect_equal(fit$sd[["x"]], sd, tolerance = 0.03)
  new <- posterior_predict(fit, draws = 2000)
  expect_true(all(new >= 1))
  expect_equal(mean(new), mean(fitted(fit)), tolerance = 0.02)
  d$y[3] <- 0
  refusal(elvi(y ~ x, d, family = truncated_poisson()), "y")
})

test_that("a truncated negative binomial count has its density, and its posterior is that of a grid", {
  skip_without_parser()
  log_p <- function(y, rate, phi) dnbinom(y, size = phi, mu = rate, log = TRUE) - log1p(-dnbinom(0, size = phi, mu = rate))
  for (phi in c(0.3, 5)) for (y in c(1, 4)) {
    constant <- lgamma(y + phi) - lgamma(phi) - lgamma(y + 1)
    expect_row_loss("truncated_negbinomial", phi, y, function(eta) log_p(y, exp(eta), phi) - constant, c(-2, 0.7))
  }
  expect_equal(truncated_negbin_mean(1.3, 0.8), sum((1:2000) * exp(log_p(1:2000, 1.3, 0.8))), tolerance = 1e-8)
  expect_equal(truncated_negbin_variance(1.3, 0.8),
               sum((1:2000)^2 * exp(log_p(1:2000, 1.3, 0.8))) - truncated_negbin_mean(1.3, 0.8)^2, tolerance = 1e-8)
  d <- withr_seed(2, data.frame(y = truncated_negbin_draws(rep(2, 80), 1.5), x = rnorm(80), g = factor(rep_len(1:8, 80))))
  expect_true(all(d$y >= 1))
  expect_evidence_slope(elvi_problem(y ~ x + (1 | g), d, family = truncated_negbinomial()))
  fit <- elvi(y ~ 1, d, family = truncated_negbinomial(), prior_intercept = normal(0, 2), prior_aux = exponential(1), autoscale = FALSE)
  expect_grid_posterior(summary(fit)$table, expand.grid(b = seq(-3, 2.2, length.out = 91), a = seq(-4, 3, length.out = 91)),
    function(v) sum(log_p(d$y, exp(v[1]), exp(v[2]))) + dnorm(v[1], 0, 2, log = TRUE) - exp(v[2]) + v[2],
    function(v) c(v[1], exp(v[2])))
  # the expected response is that of the counts that are seen
  expect_equal(mean(posterior_predict(fit, draws = 4000)), fitted(fit)[[1]], tolerance = 0.03)
  expect_equal(mean(posterior_epred(fit, draws = 4000)[, 1]), fitted(fit)[[1]], tolerance = 0.02)
  refusal(elvi(y - 1 ~ 1, d, family = truncated_negbinomial()), "y - 1")
})
