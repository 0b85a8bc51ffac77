test_that("points that are taken further out have the density of a mixture", {
  z <- matrix(rnorm(12), 3)
  points <- widened(z, 1:4, share = 0.5)
  wide <- 1 + 1.8 / sqrt(3)
  far <- (1:4 * sqrt(2)) %% 1 < 0.5
  expect_equal(points$z, z * rep(ifelse(far, wide, 1), each = 3))
  mixed <- log(0.5 * exp(colSums(dnorm(points$z, log = TRUE))) + 0.5 * exp(colSums(dnorm(points$z, 0, wide, log = TRUE))))
  expect_equal(points$log_q - points$log_q[1], mixed - mixed[1])
})

test_that("points that are taken further out are spread over the components", {
  component <- draw_components(rep(0.1, 10), 4000, c(5, 6))
  far <- (1:4000 * sqrt(2)) %% 1 < 0.1
  expect_lt(max(abs(tapply(far, component, mean) - 0.1)), 0.02)
})

test_that("evidences of quadrature points by corrected draws are the exact ones", {
  # exponential times, two of six seen: given the shape a grid has the integral over both coefficients
  data <- data.frame(x = c(0, 0, 0, 1, 1, 1), time = c(1, 3, 3, 0.4, 3, 3), status = c(1, 0, 0, 1, 0, 0))
  fit <- elvi(survival::Surv(time, status) ~ x, data = data, family = weibull(), prior_aux = exponential(1))
  expect_gt(fit$nested$weighed, 0)
  prior <- fit$priors$joint
  grid <- expand.grid(a = seq(-6, 16, by = 0.08), b = seq(-11, 11, by = 0.08))
  log_p <- function(theta) {
    k <- exp(theta)
    total <- dnorm(grid$a, prior$location[1], prior$scale[1], log = TRUE) + dnorm(grid$b, 0, prior$scale[2], log = TRUE)
    for (i in 1:6) {
      u <- log(data$time[i]) - (grid$a + grid$b * (data$x[i] - 0.5)) + lgamma(1 + 1 / k)
      total <- total - exp(k * u) + data$status[i] * (theta + k * u - log(data$time[i]))
    }
    log_sum(total) + 2 * log(0.08) + dexp(k, 1, log = TRUE) + theta
  }
  theta <- fit$posterior$hyper$theta[, 1]
  truth <- vapply(theta, log_p, 0)
  expect_lt(max(abs(fit$posterior$weight - normalised(truth))), 0.004)
  z <- fit$posterior$hyper$z[, 1]
  expect_equal(evidence(fit)$logml, log_sum(truth) + log(diff(sort(theta))[1]), tolerance = 0.001)
})

test_that("weighted draws mend margins that profiles miss", {
  set.seed(8)
  data <- data.frame(x = seq(-1, 1, length.out = 10))
  data$y <- data$x + c(0.4, -1.2, 0.1, 0.3, -0.2, 0.5, -0.1, 2, -0.9, 0.6)
  fit <- elvi(y ~ x, data = data, dispformula = ~ x)
  posterior <- fit$posterior
  expect_true(is_weighted(posterior))
  # the table's moments are those of the draws, which have the target itself
  draws <- as.matrix(fit, draws = 20000)
  table <- summary(fit)$table
  expect_lt(max(abs(colMeans(draws) - table[, "mean"]) / table[, "sd"]), 0.05)
  expect_lt(max(abs(apply(draws, 2, sd) / table[, "sd"] - 1)), 0.05)
})

test_that("a fit without hyperparameters gets points where its profiles miss the posterior, and so are its predictors", {
  # flat tails of a cauchit link: a grid has the posterior of both coefficients
  d <- data.frame(x = c(0.8, -1.7, -0.3, 0.5, -0.5, -1.5, -0.5, -0.9, -0.3, -2, 0.7, 0.9, 0.5, 0.8),
                  y = c(0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0))
  fit <- elvi(y ~ x, data = d, family = binomial("cauchit"), prior = normal(0, 2.5), prior_intercept = normal(0, 2.5))
  expect_true(fit$posterior$margins$each[[1]]$pointed)
  grid <- expand.grid(a = seq(-12, 8, by = 0.05), b = seq(-12, 12, by = 0.05))
  loss <- dnorm(grid$a, 0, 2.5, log = TRUE) + dnorm(grid$b, 0, 2.5, log = TRUE)
  for (i in seq_len(nrow(d))) {
    eta <- grid$a + grid$b * (d$x[i] - mean(d$x))
    loss <- loss + pcauchy((2 * d$y[i] - 1) * eta, log.p = TRUE)
  }
  w <- normalised(loss)
  at <- predict(fit, data.frame(x = c(-1.3, 0, 1.4)), se.fit = TRUE, interval = "credible")
  for (i in 1:3) {
    eta <- grid$a + grid$b * (c(-1.3, 0, 1.4)[i] - mean(d$x))
    mean <- sum(w * eta)
    sd <- sqrt(sum(w * (eta - mean)^2))
    o <- order(eta)
    limits <- approx(cumsum(w[o]), eta[o], c(0.025, 0.975), ties = "ordered")$y
    expect_lt(abs(at$fit[i, "fit"] - mean) / sd, 0.02)
    expect_equal(at$se.fit[[i]], sd, tolerance = 0.02)
    expect_lt(max(abs(at$fit[i, c("lwr", "upr")] - limits)) / sd, 0.05)
  }
})

test_that("many weighted points mend what points of profiles do not", {
  set.seed(102)
  d <- data.frame(x = rnorm(12))
  d$y <- rnorm(12, d$x, exp(0.5 * d$x))
  fit <- elvi(y ~ x, data = d, family = gaussian(), dispformula = ~ x)
  expect_true(fit$posterior$margins$each[[1]]$refined)
  # of the posterior, by importance sampling with 100,000 effective draws (bench/thin.R, seed 102): the gaussian has 0.56 to 0.63 of its sds
  ratio <- sqrt(diag(vcov(update(fit, correct = FALSE))) / diag(vcov(fit)))
  expect_true(all(ratio > 0.53 & ratio < 0.66))
})

test_that("shapes by weights are those of the distribution that they make", {
  x <- matrix(qnorm(ppoints(20000)), 1)
  w <- drop(dnorm(x, 0.5) / dnorm(x))
  shape <- weighted_shapes(x - 0.5, w / sum(w))
  inside <- abs(margin_scores) <= 2.5
  expect_equal(shape[1, inside], margin_scores[inside], tolerance = 0.01)
})

test_that("tilted shapes are those of the tilted distribution", {
  # a standard normal tilted by (1 + x)^2 / 2, whose moments are known: mean 1, E x^2 = 2
  n <- 20000
  x <- matrix(qnorm(ppoints(n)), 1)
  by <- (1 + x)^2 / sum((1 + x)^2) - 1 / n
  shape <- tilted_shapes(normal_shapes(1), 0, 1, x, drop(by), x)
  below <- function(q) integrate(function(t) dnorm(t) * (1 + t)^2 / 2, -8, q)$value
  at <- shape[1, match(c(-2, 0, 2), margin_scores)] * 1 + 1
  expect_equal(vapply(at, below, 0), pnorm(c(-2, 0, 2)), tolerance = 0.02)
})

test_that("a function that is 0 has limits where margins are refined", {
  d <- data.frame(x = c(4.3, 0.9, 0.8, 0.6, 0.7, 0.4, 0.1, 0.5, 0.8, 2.7, 0.3), y = c(1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0))
  fit <- elvi(y ~ 0 + x, data = d, family = binomial("cauchit"), prior = normal(0, 10))
  expect_true(fit$posterior$margins$each[[1]]$refined)
  limits <- predict(fit, data.frame(x = c(0, 1)), interval = "credible")
  expect_equal(unname(limits[1, ]), numeric(3))
  expect_equal(unname(limits[2, -1]), unname(confint(fit)[1, ]), tolerance = 0.02)
  expect_equal(unname(predict(fit, data.frame(x = 0), interval = "credible")[1, ]), numeric(3))
})
