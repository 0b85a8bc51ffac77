curved_data <- function(n = 60) withr_seed(4, {
  d <- data.frame(x = rnorm(n), g = factor(rep_len(1:6, n)))
  d$y <- exp(0.8 + 0.4 * d$x + rnorm(6, 0, 0.2)[d$g]) + rnorm(n, 0, 0.5)
  d
})

test_that("the loss of a normal response around exp(eta) is minus its log density", {
  for (y in c(-0.5, 2)) for (sigma in c(0.5, 2)) {
    expect_row_loss("normal_log", sigma, y, function(eta) dnorm(y, exp(eta), sigma, log = TRUE) + log(2 * pi) / 2, c(-0.5, 0.9), c(0, 0.4))
  }
})

test_that("a gaussian regression with log link has the posterior of a grid, whatever its unit", {
  skip_without_parser()
  d <- curved_data()
  expect_evidence_slope(elvi_problem(y ~ x + (1 | g), d, family = gaussian("log"), weights = rep_len(1:2, 60)))
  fit <- elvi(y ~ 1, d, family = gaussian("log"), prior_intercept = normal(0, 2), prior_aux = exponential(1), autoscale = FALSE)
  expect_grid_posterior(summary(fit)$table, expand.grid(b = seq(0.3, 1.6, length.out = 81), a = seq(-0.5, 0.9, length.out = 61)),
    function(v) sum(dnorm(d$y, exp(v[1]), exp(v[2]), log = TRUE)) + dnorm(v[1], 0, 2, log = TRUE) - exp(v[2]) + v[2],
    function(v) c(v[1], exp(v[2])))
  fit <- elvi(y ~ x, d[d$y > 0, ], family = gaussian("log"))
  big <- elvi(1000 * y ~ x, d[d$y > 0, ], family = gaussian("log"))
  expect_equal(coef(big), coef(fit) + c(log(1000), 0), tolerance = 1e-3)
  expect_equal(sigma(big), 1000 * sigma(fit), tolerance = 1e-3)
  refusal(elvi(-exp(y) ~ x, d, family = gaussian("log")), "-exp(y)")
})

test_that("links that bound the predictor are refused with what to use", {
  for (family in list(binomial("log"), poisson("identity"), poisson("sqrt"), Gamma("identity"), inverse.gaussian(), gaussian("inverse"))) {
    refusal(elvi(am ~ wt, mtcars, family = family), "family")
  }
  expect_error(check_family(Gamma("identity")), "Use Gamma\\(link = \"log\"\\)")
})
