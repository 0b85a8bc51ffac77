# moments and 95 % limits of a density on a grid
grid_moments <- function(x, log_density) {
  w <- exp(log_density - max(log_density))
  w <- w / sum(w)
  mean <- sum(w * x)
  c(mean, sqrt(sum(w * (x - mean)^2)), stats::approx(cumsum(w) - w / 2, x, c(0.025, 0.975), ties = "ordered")$y)
}

table_row <- function(fit, j) unname(summary(fit)$table[j, c("mean", "sd", "2.5 %", "97.5 %")])

test_that("the profile of a single coefficient is its posterior", {
  cases <- list(list(y = c(0, 0, 0, 1, 0), family = binomial(), loss = function(b, y) -log(dbinom(y, 1, plogis(b)))),
                list(y = c(0, 0, 1, 0), family = poisson(), loss = function(b, y) -dpois(y, exp(b), log = TRUE)),
                list(y = c(1, 1, 1), family = binomial("probit"), loss = function(b, y) -pnorm((2 * y - 1) * b, log.p = TRUE)))
  for (case in cases) {
    fit <- elvi(y ~ 1, data = data.frame(y = case$y), family = case$family, prior_intercept = normal(0, 3)) |> suppressWarnings()
    x <- seq(-16, 16, length.out = 20001)
    truth <- grid_moments(x, dnorm(x, 0, 3, log = TRUE) - Reduce(`+`, lapply(case$y, function(y) case$loss(x, y))))
    expect_lt(max(abs(table_row(fit, 1) - truth)) / truth[2], 0.02)
    expect_gt(max(abs(table_row(as_gaussian(fit), 1) - truth)) / truth[2], 0.1)
  }
})

test_that("means, sds, limits, covariances and draws are those of the posterior in two dimensions", {
  d <- data.frame(x = c(-1, -0.6, -0.2, 0.3, 0.7, 1.4), y = c(0, 0, 1, 0, 1, 1))
  set.seed(1)
  fit <- elvi(y ~ x, data = d, family = binomial(), prior = normal(0, 3), prior_intercept = normal(0, 3))
  grid <- expand.grid(a = seq(-9, 9, length.out = 401), b = seq(-8, 14, length.out = 401))
  f <- dnorm(grid$a, 0, 3, log = TRUE) + dnorm(grid$b, 0, 3, log = TRUE)
  for (i in 1:6) f <- f + dbinom(d$y[i], 1, plogis(grid$a + grid$b * (d$x[i] - mean(d$x))), log = TRUE)
  w <- exp(f - max(f))
  w <- w / sum(w)
  x <- cbind(grid$a - mean(d$x) * grid$b, grid$b)
  mean <- colSums(w * x)
  V <- crossprod(sqrt(w) * sweep(x, 2, mean))
  sd <- sqrt(diag(V))
  limits <- t(apply(x, 2, function(v) stats::approx(cumsum(w[order(v)]), sort(v), c(0.025, 0.975), ties = "ordered")$y))
  expect_lt(max(abs(coef(fit) - mean) / sd), 0.02)
  expect_equal(unname(sqrt(diag(vcov(fit)))), sd, tolerance = 0.01)
  expect_equal(unname(vcov(fit)) / outer(sd, sd), V / outer(sd, sd), tolerance = 0.02)
  expect_lt(max(abs(confint(fit) - limits) / sd), 0.03)
  draws <- as.matrix(fit, draws = 2e4)
  expect_lt(max(abs(colMeans(draws) - mean) / sd), 0.04)
  expect_equal(unname(apply(draws, 2, sd)), sd, tolerance = 0.03)
  expect_lt(max(abs(t(apply(draws, 2, quantile, c(0.025, 0.975))) - limits) / sd), 0.1)
  # predictors: linear functions of the coefficients
  at <- predict(fit, se.fit = TRUE, interval = "credible")
  eta <- cbind(1, d$x) %*% t(x)
  expect_equal(unname(at$fit[, "fit"]), drop(cbind(1, d$x) %*% coef(fit)))
  expect_equal(unname(at$se.fit), sqrt(rowSums((cbind(1, d$x) %*% V) * cbind(1, d$x))), tolerance = 0.02)
  lower <- apply(eta, 1, function(v) stats::approx(cumsum(w[order(v)]), sort(v), 0.025, ties = "ordered")$y)
  expect_lt(max(abs(at$fit[, "lwr"] - lower) / at$se.fit), 0.05)
  response <- predict(fit, type = "response")
  expect_equal(unname(response), drop(plogis(eta) %*% w), tolerance = 0.01)
})

test_that("contrasts of nearly collinear coefficients are right too", {
  y <- unlist(lapply(c(1, 3, 30), function(k) tabulate(rep_len(1:10, k), 10)))
  d <- data.frame(y = y, cell = factor(rep(1:3, each = 10)))
  fit <- elvi(y ~ cell, data = d, family = poisson(), prior = normal(0, 5), prior_intercept = normal(0, 5))
  # a cell of 30 events: the logarithm of a gamma variable, but for the prior
  at <- predict(fit, data.frame(cell = "3"), se.fit = TRUE, interval = "credible")
  expect_equal(at$se.fit[[1]], sqrt(trigamma(30)), tolerance = 0.03)
  expect_lt(max(abs(at$fit[1, c("lwr", "upr")] - log(qgamma(c(0.025, 0.975), 30, 10)))) / sqrt(trigamma(30)), 0.1)
})

test_that("nothing is corrected where nothing needs to be, or where it is not wanted", {
  set.seed(3)
  n <- 20000
  d <- data.frame(x = rnorm(n), y = rbinom(n, 1, 0.5))
  many <- elvi(y ~ x, data = d, family = binomial())
  expect_null(many$posterior$margins)
  expect_lt(many$posterior$cumulants$third, 0.04)
  expect_output(print(summary(many)), "No correction of the best gaussian is needed")
  few <- elvi(am ~ wt, data = mtcars, family = binomial())
  expect_output(print(summary(few)), "Corrected from the best gaussian")
  plain <- elvi(am ~ wt, data = mtcars, family = binomial(), correct = FALSE)
  expect_identical(coef(plain), plain$mu)
  expect_equal(few$mu, plain$mu)
  expect_null(elvi(mpg ~ wt, data = mtcars)$posterior$margins)   # exactly gaussian given sigma
  expect_null(elvi(am ~ wt, data = mtcars, family = binomial(), base = base_laplace())$posterior$margins)
  expect_error(elvi(am ~ wt, data = mtcars, family = binomial(), correct = NA), class = "elvi_error_argument")
})

test_that("groups of two binary rows: sds of coefficients are those of integrating the effects out", {
  skip_on_cran()
  d <- data.frame(g = factor(rep(1:10, each = 2)), x = sin(1:20 * 1.7), y = as.double(cos(1:20 * 2.3) > 0.2))
  fit <- elvi(y ~ x + (1 | g), data = d, family = binomial(), prior_sd = exponential(1))
  expect_gt(fit$posterior$margins$moved$sd[2], 1)
  draws <- as.matrix(fit, draws = 4000)
  expect_equal(unname(apply(draws[, 1:2], 2, sd)), unname(sqrt(diag(vcov(fit)))), tolerance = 0.06)
  expect_lt(max(abs(colMeans(draws[, 1:2]) - fixef(fit)) / sqrt(diag(vcov(fit)))), 0.06)
})

test_that("a cell without events has the quantiles of its posterior, steep edge and long tail", {
  d <- data.frame(cell = factor(rep(1:3, each = 8)), y = c(rep(0, 8), rep(c(2, 3), 8)))
  fit <- elvi(y ~ 0 + cell, d, family = poisson(), prior = normal(0, 6), autoscale = FALSE)
  b <- seq(-40, 2, by = 1e-3)
  p <- exp(-8 * exp(b) - b^2 / 72)
  p <- p / sum(p)
  mean <- sum(p * b)
  sd <- sqrt(sum(p * (b - mean)^2))
  limits <- stats::approx(cumsum(p), b, c(0.025, 0.975), ties = "ordered")$y
  expect_lt(abs(coef(fit)[["cell1"]] - mean) / sd, 0.01)
  expect_lt(abs(sqrt(vcov(fit)["cell1", "cell1"]) / sd - 1), 0.005)
  expect_lt(max(abs(confint(fit)["cell1", ] - limits)) / sd, 0.02)
})

test_that("a level of many rows without events has the limits of its posterior", {
  set.seed(1)
  d <- data.frame(x = rnorm(3000), k = factor(sample(c("a", "b", "rare"), 3000, TRUE, c(0.6, 0.39, 0.01))))
  d$y <- rpois(3000, exp(d$x / 2)) * (d$k != "rare")
  fit <- elvi(y ~ x + k, d, family = poisson(), prior = normal(0, 25), prior_intercept = normal(0, 25), autoscale = FALSE)
  # the other coefficients are known so well that the level's posterior is that given their means
  rate <- sum(exp(coef(fit)[["(Intercept)"]] + coef(fit)[["x"]] * d$x[d$k == "rare"]))
  b <- seq(-250, 5, by = 1e-3)
  p <- exp(-rate * exp(b) - b^2 / 1250)
  p <- p / sum(p)
  mean <- sum(p * b)
  sd <- sqrt(sum(p * (b - mean)^2))
  limits <- stats::approx(cumsum(p), b, c(0.025, 0.975), ties = "ordered")$y
  expect_lt(abs(coef(fit)[["krare"]] - mean) / sd, 0.02)
  expect_lt(abs(sqrt(vcov(fit)["krare", "krare"]) / sd - 1), 0.02)
  expect_lt(max(abs(confint(fit)["krare", ] - limits)) / sd, 0.04)
})

# the same with R's own splines
plain_quantiles <- function(t, value, fine = 20) {
  x <- seq(t[1], t[length(t)], length.out = fine * (length(t) - 1) + 1)
  density <- exp(stats::spline(t, value, xout = x)$y - max(value))
  mass <- (density[-1] + density[-length(density)]) / 2
  below <- cumsum(c(0, mass))
  above <- rev(cumsum(c(0, rev(mass))))
  inside <- below > 0 & above > 0
  score <- ifelse(below < above, 1, -1) * stats::qnorm(pmin(below, above) / max(below))
  stats::splinefun(score[inside], x[inside], method = "monoH.FC")(margin_scores)
}

test_that("quantiles at normal scores are those of R's splines, and of a normal density its own", {
  t <- seq(-6, 6, by = 1.2)
  value <- rbind(-t^2 / 2, dgamma(t + 7, 5, log = TRUE), log(0.7 * dnorm(t, -1) + 0.3 * dnorm(t, 2, 0.7)), replace(-t^2, abs(t) > 5, -Inf))
  found <- score_quantiles(t, value)
  expect_identical(dim(found), c(4L, length(margin_scores)))
  for (i in 1:4) {
    used <- is.finite(value[i, ])
    expect_equal(found[i, ], plain_quantiles(t[used], value[i, used]), tolerance = 1e-10)
  }
  middle <- abs(margin_scores) <= 3
  expect_lt(max(abs(found[1, middle] - margin_scores[middle])), 0.005)
  for (n in 2:4) expect_equal(score_quantiles(t[1:n], -t(t[1:n] + 5)^2)[1, ], plain_quantiles(t[1:n], -(t[1:n] + 5)^2), tolerance = 1e-10)
  expect_error(score_quantiles(t[1:2], cbind(-Inf, 0)), "without quantiles")
})

test_that("points turn the bounds of a profile into the density", {
  d <- data.frame(x = c(-1, -0.6, 0.1, 0.3, 0.7, 1.4), y = c(0, 0, 0, 0, 1, 1))
  fit <- elvi(y ~ x, data = d, family = binomial(), prior = normal(0, 5), prior_intercept = normal(0, 5))
  target <- target_of(fit$posterior)
  a <- white_functions(fit$posterior, fit$posterior$margins$roots[[1]])$white
  bound <- profiles(target, a)
  corrected <- profiles(target, a, points = profile_points(target$plan))
  # the density of the first of these functions, the intercept of the centred design, by a grid
  t <- bound$at[1] + bound$sd[1] * profile_nodes(profile_settings)
  at <- target$setting$mu[order(target$plan$order)]
  used <- which(is.finite(bound$value[1, ]))
  b <- seq(-30, 60, length.out = 4001)
  x <- d$x - mean(d$x)
  direction <- qr.solve(rbind(t(a)), diag(2))   # columns: moves of each function alone
  truth <- vapply(used, function(k) {
    value <- vapply(b, function(u) {
      beta <- at + direction[, 1] * (t[k] - bound$at[1]) + direction[, 2] * u
      sum(plogis((2 * d$y - 1) * (beta[1] + beta[2] * x), log.p = TRUE)) + sum(dnorm(beta, 0, 5, log = TRUE))
    }, 0)
    max(value) + log(sum(exp(value - max(value))))
  }, 0)
  off <- function(found) {
    gap <- found$value[1, used] - truth
    diff(range((gap - mean(gap))[truth > max(truth) - 4]))
  }
  expect_lt(off(corrected), 0.02)
  expect_gt(off(bound), 1.5 * off(corrected))
})

test_that("five nodes of a smooth density say what all of them do", {
  set.seed(2)
  d <- as.data.frame(matrix(rnorm(120 * 4), 120))
  d$y <- rpois(120, exp(-1 + 0.3 * d$V1))
  fit <- elvi(y ~ ., data = d, family = poisson())
  target <- target_of(fit$posterior)
  a <- white_functions(fit$posterior, fit$posterior$margins$roots[[1]])$white
  cumulants <- profile_cumulants(target, a)
  expect_true(all(is_smooth(cumulants)))
  lean <- lean_profiles(target, a, TRUE, profile_settings, NULL, cumulants)
  full <- profiles(target, a, settings = replace(profile_settings, "gain", 1e-8))
  expect_equal(profile_shapes(lean)$shape, profile_shapes(full)$shape, tolerance = 1e-3)
  expect_lt(max(abs(profile_moments(lean, a)$covariance - profile_moments(full, a)$covariance)), 0.003)
})

test_that("a profile that ends at its first node below begins above with that node", {
  d <- data.frame(x = c(-1, -0.6, -0.2, 0.3, 0.7, 1.4), y = c(0, 0, 1, 0, 1, 1))
  fit <- elvi(y ~ x, data = d, family = binomial(), prior = normal(0, 3), prior_intercept = normal(0, 3))
  target <- profiled_target(fit$posterior)
  nodes <- function(drop) {
    settings <- utils::modifyList(profile_settings, list(drop = drop))
    .Call(elvi_r_nested_profile, target$plan, target$rule, list(target$setting), diag(2), settings, NULL, TRUE, 1L)
  }
  long <- nodes(8)
  short <- nodes(0.1)
  middle <- profile_settings$most + 1L
  for (j in 1:2) {
    expect_identical(c(short[[j]]$below, short[[j]]$above), c(1L, 1L))
    # the same nodes lead to it
    expect_identical(short[[j]]$value[middle + -1:1], long[[j]]$value[middle + -1:1])
    expect_identical(short[[j]]$mean[, middle + 1L], long[[j]]$mean[, middle + 1L])
  }
})
