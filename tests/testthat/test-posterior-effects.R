pairs_data <- function() {
  withr_seed(4, {
    data <- data.frame(g = factor(rep(1:10, each = 2)), x = rnorm(20))
    data$y <- rbinom(20, 1, plogis(0.3 + data$x + rnorm(10, 0, 1.5)[data$g]))
  })
  data
}

test_that("without coefficients, effects are those of one-dimensional integrals at every quadrature point", {
  data <- data.frame(g = factor(rep(1:6, each = 2)), y = c(0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 3, 1))
  fit <- elvi(y ~ 0 + (1 | g), data = data, family = poisson(), prior_sd = exponential(1))
  at <- component_moments(fit$posterior)
  u <- seq(-14, 8, length.out = 4001)
  for (k in vapply(fit$posterior$effects$each, `[[`, 0, "k")[1:3]) {
    sd <- fit$posterior$hyper$values[k, 1]
    for (g in 1:6) {
      w <- exp(dnorm(u, 0, sd, log = TRUE) + rowSums(outer(u, data$y[data$g == g], function(u, y) dpois(y, exp(u), log = TRUE))))
      w <- w / sum(w)
      mean <- sum(w * u)
      truth <- sqrt(sum(w * (u - mean)^2))
      expect_lt(abs(at$mean[g, k] - mean) / truth, 0.005)
      expect_equal(at$sd[g, k], truth, tolerance = 0.005)
    }
  }
})

test_that("the density of an effect given the others is its profile without a step", {
  data <- withr_seed(2, data.frame(g = factor(rep(1:7, each = 4)), x = rnorm(28), y = rpois(28, 0.7)))
  posterior <- elvi(y ~ x + (x | g), data = data, family = poisson())$posterior
  plan <- posterior$roots$plan
  k <- which.max(posterior$weight)
  target <- target_of(posterior, k)
  found <- .Call(elvi_r_nested_residuals, plan, target$rule, posterior$roots$settings[k], rows_of_columns(plan),
                 replace(effect_settings, c("third", "fourth"), -1), 1L)[[1L]]
  root <- root_matrix(root_at(posterior$roots, k))   # columns: what each z moves, parameters in their own order
  sparse <- seq_len(plan$dim - plan$dense)
  a <- solve(tcrossprod(root), root[, sparse])
  old <- .Call(elvi_r_nested_profile, plan, target$rule, list(target$setting), unname(a[plan$order, ]),
               replace(profile_settings, "steps", 0L), FALSE, 1L)
  for (j in sparse) {
    middle <- profile_settings$most + 1L
    used <- seq.int(-min(old[[j]]$below, 7), min(old[[j]]$above, 7))
    profile <- old[[j]]$value[middle + used]
    expect_equal(found$value[8 + used, j] - found$value[8, j], profile - old[[j]]$value[middle], tolerance = 1e-7)
  }
  expect_equal(original_order(plan, found$change), drop(root^2 %*% (found$scale^2 - 1)))
})

test_that("effects of small groups are corrected, and tables, predictions and draws agree", {
  fit <- elvi(y ~ x + (1 | g), data = pairs_data(), family = binomial(), prior_sd = exponential(1))
  expect_true(has_effects(fit$posterior))
  gaussian <- as_gaussian(fit)
  expect_gt(max(attr(ranef(fit)$g, "sd")[, 1] / attr(ranef(gaussian)$g, "sd")[, 1]), 1.02)
  draws <- as.matrix(fit, draws = 8000)
  b <- grep("^b\\[", colnames(draws))
  sd <- attr(ranef(fit)$g, "sd")[, 1]
  expect_lt(max(abs(colMeans(draws[, b]) - ranef(fit)$g[, 1]) / sd), 0.05)
  expect_equal(unname(apply(draws[, b], 2, stats::sd)), sd, tolerance = 0.05)
  limits <- posterior_quantiles(fit$posterior, b, c(0.025, 0.975))
  expect_lt(max(abs(t(apply(draws[, b], 2, quantile, c(0.025, 0.975))) - limits) / sd), 0.2)
  at <- predict(fit, se.fit = TRUE, interval = "credible")
  eta <- posterior_linpred(fit, draws = 8000)
  expect_lt(max(abs(colMeans(eta) - at$fit[, "fit"]) / at$se.fit), 0.05)
  expect_equal(apply(eta, 2, stats::sd), at$se.fit, tolerance = 0.05)
  expect_identical(as.matrix(fit, draws = 7), draws[1:7, ])
  V <- posterior_covariance(fit$posterior)
  expect_equal(unname(sqrt(diag(V)))[b], sd, tolerance = 1e-3)
  # linear functions of everything
  expect_equal(unname(at$fit[, "fit"]), unname(drop(cbind(1, pairs_data()$x) %*% fixef(fit))) + ranef(fit)$g[pairs_data()$g, 1])
})

test_that("effects of big groups are not corrected", {
  data <- withr_seed(1, data.frame(g = factor(rep(1:5, each = 400)), y = rpois(2000, 3)))
  fit <- elvi(y ~ (1 | g), data = data, family = poisson())
  expect_null(fit$posterior$effects)
  expect_null(elvi(mpg ~ wt + (1 | cyl), data = mtcars)$posterior$effects)
})

test_that("few components stand for many, and every component has the nearest", {
  posterior <- list(weight = c(0.01, 0.2, 0.5, 0.25, 0.04), hyper = list(theta = matrix(1:5)))
  expect_identical(main_components(posterior, 1), 3L)
  expect_setequal(main_components(posterior, 3), 2:4)
  expect_identical(nearest_of(posterior, c(3L, 5L)), c(1L, 1L, 1L, 1L, 2L))
  expect_setequal(main_components(posterior, 10), 1:5)
})
