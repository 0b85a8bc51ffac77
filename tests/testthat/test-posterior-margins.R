test_that("standardised quantiles and their scores are inverse to each other", {
  shape <- rbind(margin_scores, sinh(margin_scores / 3) * 3, margin_scores + 0.05 * (margin_scores^2 - 1))
  z <- matrix(c(-5, -2, -0.3, 0, 1.1, 3, -4.5, 0.2, 2, 4.2, -1, 1), 3)
  expect_equal(score_at_value(shape, value_at_score(shape, z)), z, tolerance = 0.02)
  expect_equal(value_at_score(shape[1, , drop = FALSE], z[1, , drop = FALSE]), z[1, , drop = FALSE])
})

test_that("the slope of a shape is that of the map that draws go through", {
  shape <- rbind(margin_scores + 0.05 * (margin_scores^2 - 1), 1.2 * margin_scores)
  z <- matrix(c(-3.9, -1.1, 0.1, 2.6), 2)
  h <- 1e-6
  expect_equal(slope_at_score(shape, z), (value_at_score(shape, z + h) - value_at_score(shape, z - h)) / (2 * h), tolerance = 1e-6)
})

test_that("the expansion by cumulants is standardised and has the skewness asked for", {
  shape <- cumulant_shapes(c(0, 0.3, -0.5), c(0, 0.1, 0.2))
  w <- dnorm(margin_scores) / sum(dnorm(margin_scores))
  expect_equal(drop(shape %*% w), numeric(3), tolerance = 1e-10)
  expect_equal(drop(shape^2 %*% w), rep(1, 3))
  expect_equal(drop(shape^3 %*% w), c(0, 0.3, -0.5), tolerance = 0.1)
})

test_that("a shorter call of draws gives the first rows of a longer one, after saving too", {
  set.seed(2)
  fit <- elvi(am ~ wt, data = mtcars, family = binomial())
  x <- as.matrix(fit, draws = 300)
  expect_identical(as.matrix(fit, draws = 7), x[1:7, ])
  expect_lt(mean(duplicated(x)), 0.2)
  file <- tempfile(fileext = ".rds")
  saveRDS(fit, file)
  expect_identical(as.matrix(readRDS(file), draws = 7), x[1:7, ])
})

test_that("quantiles, marginals and curves of corrected coefficients agree", {
  fit <- elvi(count ~ spray, data = subset(InsectSprays, spray %in% c("A", "C")), family = poisson())
  p <- c(0.025, 0.3, 0.975)
  expect_equal(q_quantile(fit, 2, p), unname(posterior_quantiles(fit$posterior, 2, p)[1, ]), tolerance = 1e-6)
  expect_equal(q_probability(fit, 2, q_quantile(fit, 2, p)), p, tolerance = 2e-3)
  curve <- posterior_curve(fit$posterior, 2)
  expect_equal(sum(diff(curve$x) * (head(curve$density, -1) + tail(curve$density, -1)) / 2), 1, tolerance = 0.01)
})

test_that("chunks have the corrected posterior of memory", {
  d <- mtcars[c("am", "wt")]
  source <- rows_files(list(1:9, 10:32), function(i) d[i, ])
  inside <- elvi(am ~ wt, data = d, family = binomial())
  outside <- elvi(am ~ wt, data = source, family = binomial())
  expect_equal(coef(outside), coef(inside), tolerance = 1e-8)
  expect_equal(vcov(outside), vcov(inside), tolerance = 1e-8)
  expect_equal(confint(outside), confint(inside), tolerance = 1e-8)
})

test_that("tables go on in straight lines however far", {
  table <- rbind(c(1, 2, 4), c(0, 3, 3.5))
  x <- rbind(c(-1e12, 0.5, NA, 1e12), c(-1e12, -1, 2.5, 1e12))
  expected <- rbind(c(1 - 1e12, 1.5, NA, 2e12), c(-3e12, -3, 3.75, 2.5 + 0.5e12))
  expect_no_warning(expect_equal(look_up(table, x, 0, 1), expected))
  expect_equal(slope_at_score(matrix(2 * margin_scores, 1L), matrix(c(-1e12, 0.3, 1e12), 1L)), matrix(2, 1L, 3L))
  # components a million times as wide as others
  one <- data.frame(x = -0.00032, y = 0.9469151, o = 0.4184314)
  fit <- suppressWarnings(elvi(y ~ x + offset(o), data = one, family = weibull()))
  limits <- predict(fit, one, interval = "credible", offset = one$o)
  expect_true(limits[2] < limits[1] && limits[1] < limits[3])
})

test_that("components at which rows fix the coefficients do not end a fit", {
  # with as many coefficients as rows, a large shape or a small sigma leaves some combinations 1e8 times as uncertain as others
  d <- data.frame(x = c(910, -610), z = 0:1, y = c(0.2, 0.5))
  fit <- suppressMessages(suppressWarnings(elvi(y ~ x + z, data = d, family = Gamma("log"), weights = 2:1)))
  expect_true(all(is.finite(confint(fit))))
  d <- data.frame(x = c(-2e-4, 3e-4), y = c(-0.7, -0.76))
  fit <- suppressMessages(suppressWarnings(elvi(y ~ x, data = d, family = student(), weights = 1:2)))
  expect_true(all(is.finite(confint(fit))))
})

test_that("a predictor far from 0, such as a time in seconds, is corrected too", {
  set.seed(1)
  d <- data.frame(x = rnorm(30), g = gl(6, 5))
  d$y <- rbinom(30, 1, 0.2)
  for (formula in list(y ~ x, y ~ x + (1 | g))) {
    near <- elvi(formula, d, binomial())
    for (far in c(1e8, 1.7e9)) {
      moved <- elvi(formula, transform(d, x = x + far), binomial())
      expect_true(is_reshaped(moved$posterior))
      expect_lt(max(abs(confint(moved)["x", ] - confint(near)["x", ])) / sqrt(vcov(near)["x", "x"]), 0.001)
      expect_equal(predict(moved, type = "response"), predict(near, type = "response"), tolerance = 0.01)
    }
  }
})
