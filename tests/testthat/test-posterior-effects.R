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
               replace(profile_settings, "steps", 0L), NULL, FALSE, 1L)
  for (j in sparse) {
    middle <- profile_settings$most + 1L
    used <- seq.int(-min(old[[j]]$below, 7), min(old[[j]]$above, 7))
    profile <- old[[j]]$value[middle + used]
    expect_equal(found$value[8 + used, j] - found$value[8, j], profile - old[[j]]$value[middle], tolerance = 1e-7)
  }
  expect_equal(original_order(plan, found$change), drop(root^2 %*% (found$scale^2 - 1)))
})

test_that("effects of small groups are corrected, and tables, predictions and draws agree", {
  set.seed(1)   # of the draws, whose standard deviations have long-tailed noise
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
  # halfway but for rounding, in either direction
  for (off in c(-1e-12, 1e-12)) {
    posterior$hyper$theta[4] <- 4 + off
    expect_identical(nearest_of(posterior, c(3L, 5L))[4], 1L)
  }
})

# The posterior of y ~ 1 + (1 | g) on a grid of the intercept, log sd and standardised effects: a table of mean, sd, 2.5 and 97.5 %
# limits of the
# intercept and of the effect of each group.
grid_posterior <- function(y, g, log_loss, prior_scale, b, log_sd = seq(-5, 2.5, length.out = 51), z = seq(-6, 6, length.out = 121)) {
  sums <- function(x, p) {
    o <- order(x)
    mean <- sum(x * p)
    c(mean, sqrt(sum(x^2 * p) - mean^2), approx(cumsum(p[o]) - p[o] / 2, x[o], c(0.025, 0.975), ties = "ordered")$y)
  }
  rows <- split(y, g)
  key <- vapply(rows, function(r) paste(sort(r), collapse = " "), "")
  grid <- expand.grid(b = b, l = log_sd)
  u <- outer(exp(grid$l), z)
  effects <- lapply(rows[!duplicated(key)], function(r) {
    exp(Reduce(`+`, lapply(r, log_loss, grid$b + u)) + rep(dnorm(z, log = TRUE), each = nrow(grid)))
  })
  log_p <- dnorm(grid$b, 0, prior_scale, log = TRUE) + dexp(exp(grid$l), 1, log = TRUE) + grid$l
  of <- match(key, unique(key))
  for (i in of) log_p <- log_p + log(rowSums(effects[[i]]))
  w <- exp(log_p - max(log_p))
  w <- w / sum(w)
  t(cbind(sums(b, rowSums(matrix(w, length(b)))), vapply(effects, function(e) sums(u, e * (w / rowSums(e))), numeric(4))[, of]))
}

test_that("coefficient and effects of small groups are those of brute force", {
  g <- factor(rep(1:12, each = 2))
  binary <- c(1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0)
  counts <- c(0, 1, 0, 0, 0, 1, 3, 1, 0, 0, 0, 1, 5, 2, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0)
  check <- function(y, family, log_loss, b) {
    fit <- elvi(y ~ 1 + (1 | g), data = data.frame(y = y, g = g), family = family, prior_sd = exponential(1))
    truth <- grid_posterior(y, g, log_loss, fit$priors$joint$scale[1], b)
    moments <- posterior_moments(fit$posterior)
    expect_lt(max(abs(moments$mean[1:13] - truth[, 1]) / truth[, 2]), 0.02)
    expect_lt(max(abs(moments$sd[1:13] / truth[, 2] - 1)), 0.015)
    expect_lt(max(abs(posterior_quantiles(fit$posterior, 1:13, c(0.025, 0.975)) - truth[, 3:4]) / truth[, 2]), 0.05)
  }
  check(binary, binomial(), function(y, eta) plogis((2 * y - 1) * eta, log.p = TRUE), seq(-5, 6, length.out = 45))
  check(counts, poisson(), function(y, eta) y * eta - exp(eta), seq(-5, 3, length.out = 45))
})
