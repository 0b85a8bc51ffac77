# One corrected fit, one posterior: whatever shows it shows the same numbers.
corrected_kinds <- function() {
  data <- withr_seed(5, data.frame(g = factor(rep(1:8, each = 3)), f = factor(rep(c("a", "b", "c"), 8)), x = rnorm(24)))
  data$y <- withr_seed(6, rpois(24, exp(0.2 + 0.4 * data$x)))
  withr_seed(7, list(plain = elvi(am ~ wt, data = mtcars, family = binomial()),
                     cells = elvi(y ~ f + x, data = data, family = poisson()),
                     groups = elvi(y ~ f + x + (1 | g), data = data, family = poisson()),
                     dispersed = elvi(y ~ f + x, data = data, family = neg_binomial_2())))
}

test_that("tables, intervals, predictions and draws of a corrected fit agree", {
  for (fit in corrected_kinds()) {
    expect_true(is_reshaped(fit$posterior))
    b <- fixef(fit)
    V <- vcov(fit)[names(b), names(b)]
    table <- summary(fit)$table[names(b), ]
    expect_equal(table[, "mean"], b)
    expect_equal(table[, "sd"], sqrt(diag(V)))
    limits <- confint(fit)[names(b), ]
    expect_equal(unname(table[, c("2.5 %", "97.5 %")]), unname(limits))
    # linear functions of the coefficients; groups that are not in the data have an effect of their own
    row <- model.matrix(fit)[c(1, 9, 20), ]
    at <- posterior_linear(fit$posterior, cbind(row, matrix(0, 3, posterior_dim(fit$posterior) - ncol(row))))
    at <- mix_moments(at, fit$posterior$weight)
    expect_equal(unname(at$mean), unname(drop(row %*% b)))
    expect_equal(unname(at$sd), unname(sqrt(rowSums((row %*% V) * row))))
    draws <- as.matrix(fit, draws = 4000)[, names(b)]
    expect_lt(max(abs(colMeans(draws) - b) / sqrt(diag(V))), 0.08)
    expect_lt(max(abs(apply(draws, 2, sd) / sqrt(diag(V)) - 1)), 0.08)
    expect_lt(max(abs(t(apply(draws, 2, quantile, c(0.025, 0.975))) - limits) / sqrt(diag(V))), 0.25)
    if (has_package("generics")) {
      tidied <- as.data.frame(generics::tidy(fit, conf.int = TRUE, effects = "fixed"))
      tidied <- tidied[match(names(b), tidied$term), ]
      expect_equal(tidied$estimate, unname(b))
      expect_equal(tidied$std.error, unname(sqrt(diag(V))))
      expect_equal(cbind(tidied$conf.low, tidied$conf.high), unname(limits))
    }
  }
})

test_that("emmeans and marginaleffects show the corrected posterior", {
  skip_if_not_installed("emmeans")
  skip_if_not_installed("coda")   # which emmeans needs for posteriors
  fit <- corrected_kinds()$cells
  means <- as.data.frame(emmeans::emmeans(fit, "f", at = list(x = 0)))
  W <- cbind(1, c(0, 1, 0), c(0, 0, 1), 0)
  sd <- sqrt(rowSums((W %*% vcov(fit)) * W))
  expect_lt(max(abs(means[[2L]] - drop(W %*% coef(fit))) / sd), 0.15)   # emmeans shows medians of draws
  skip_if_not_installed("marginaleffects")
  slopes <- marginaleffects::predictions(fit, newdata = data.frame(f = c("a", "b", "c"), x = 0), type = "link")
  expect_lt(max(abs(slopes$estimate - drop(W %*% coef(fit))) / sd), 0.15)
})
