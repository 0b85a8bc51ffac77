test_that("the loss of a cauchit response is minus its log probability, also in the tails", {
  for (y in c(0, 1)) {
    expect_row_loss("cauchit", numeric(), y, function(eta) pcauchy(eta, lower.tail = y == 1, log.p = TRUE), c(-8, -0.5, 2), c(0, 0.8))
  }
})

test_that("a cauchit regression is a stationary point whose marginals are those of a grid", {
  fit <- elvi(am ~ wt, mtcars, family = binomial("cauchit"), prior = normal(0, 2), prior_intercept = normal(0, 2))
  expect_output(print(fit), "stationary")
  x <- mtcars$wt - mean(mtcars$wt)
  expect_grid_posterior(summary(fit)$table, as.matrix(expand.grid(seq(-6, 6, length.out = 121), seq(-10, 2, length.out = 121))), function(b) {
    sum(pcauchy((2 * mtcars$am - 1) * (b[1] + b[2] * x), log.p = TRUE)) + sum(dnorm(b, 0, 2, log = TRUE))
  }, function(b) c(b[1] - b[2] * mean(mtcars$wt), b[2]), sd_off = 0.05)
  p <- predict(fit, data.frame(wt = c(2, 4)), type = "response")
  expect_true(all(p > 0 & p < 1) && p[1] > p[2])
  expect_error(elvi(am ~ wt, mtcars, family = binomial("cauchit"), method = "mpsgd"), "auto", class = "elvi_error_argument")
})
