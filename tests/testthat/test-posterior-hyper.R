test_that("draws are those of the fit's own seed, and shorter calls are the beginning of longer ones", {
  skip_on_cran()
  fit <- nested_example("slopes")
  all <- as.matrix(fit, draws = 300)
  set.seed(99)
  before <- runif(1)
  set.seed(99)
  expect_identical(as.matrix(fit, draws = 300), all)
  expect_identical(runif(1), before)
  few <- as.matrix(fit, draws = 150)
  coefficients <- colnames(few)[seq_len(ncol(fit$problem$X) + ncol(fit$problem$Z))]
  expect_identical(few[, coefficients], all[1:150, coefficients])
  expect_false(identical(simulate(fit, 3, seed = 1), simulate(fit, 3, seed = 2)))
  expect_identical(simulate(fit, 3, seed = 1), simulate(fit, 3, seed = 1))
})

test_that("draws have the moments of the mixture", {
  skip_on_cran()
  for (which in c("binary", "slopes", "trials", "smooth")) {
    fit <- nested_example(which)
    drawn <- posterior_draws(fit$posterior, 6000)
    x <- cbind(drawn$x, drawn$hyper)
    expect_identical(colnames(x), names(fit$mu))
    z <- (colMeans(x) - fit$mu) / fit$sd * sqrt(6000)
    expect_lt(max(abs(z)), 5)
    expect_lt(max(abs(log(apply(x, 2L, sd) / fit$sd))), 0.08)
  }
})

test_that("a normal law of the hyperparameters is drawn as one, from a lattice and from a design", {
  fake <- function(z, weight, rule) list(weight = weight, hyper = list(
    mode = numeric(ncol(z)), hessian = diag(rev(seq_len(ncol(z)))), theta = z, z = z, rule = rule))
  grid <- as.matrix(expand.grid(seq(-4, 4, 0.75), seq(-4, 4, 0.75)))
  weight <- exp(-rowSums(grid^2) / 2)
  lattice <- fake(unname(grid), weight / sum(weight), "lattice")
  H <- 4
  corners <- as.matrix(expand.grid(rep(list(c(-1, 1)), H)))
  z <- unname(rbind(numeric(H), sqrt(H + 2) * diag(H), -sqrt(H + 2) * diag(H), sqrt((H + 2) / H) * corners))
  design <- fake(z, c(2 / (H + 2), rep(1 / (H + 2)^2, 2 * H), rep((H / (H + 2))^2 / 16, 16)), "composite")
  for (fit in list(lattice, design)) {
    theta <- draw_theta(fit$hyper, fit$weight, draw_components(fit$weight, 20000, c(7, 8)), c(7, 8))
    expect_lt(max(abs(colMeans(theta))), 0.03)
    expect_lt(max(abs(cov(theta) - diag(ncol(theta)))), 0.05)
    p <- c(0.025, 0.25, 0.5, 0.75, 0.975)
    expect_lt(max(abs(apply(theta, 2L, quantile, p) - qnorm(p))), 0.12)
  }
})

test_that("quantiles of a mixture invert its distribution function", {
  law <- law_of(base_gaussian(), 3)
  mu <- rbind(c(-1, 0, 3), c(0, 0, 0))
  sd <- rbind(c(0.5, 1, 2), c(1, 1, 1))
  weight <- c(0.2, 0.5, 0.3)
  q <- mixture_quantiles(mu, sd, weight, law, c(0.01, 0.3, 0.99))
  for (j in 1:3) expect_equal(sum(weight * pnorm(q[1L, j], mu[1L, ], sd[1L, ])), c(0.01, 0.3, 0.99)[j], tolerance = 1e-8)
  expect_equal(q[2L, ], qnorm(c(0.01, 0.3, 0.99)), tolerance = 1e-8)
})

test_that("names are those of rstanarm", {
  skip_on_cran()
  expect_identical(tail(colnames(as.matrix(nested_example("slopes"), 2)), 4),
                   c("sigma", "Sigma[g:(Intercept),(Intercept)]", "Sigma[g:x,(Intercept)]", "Sigma[g:x,x]"))
  expect_true(all(c("(Intercept)", "x", "b[(Intercept) g:a]", "b[x g:h]") %in% colnames(as.matrix(nested_example("slopes"), 2))))
  expect_identical(grep("Sigma", colnames(as.matrix(nested_example("apart"), 2)), value = TRUE),
                   c("Sigma[g:(Intercept),(Intercept)]", "Sigma[g:x,x]"))
  expect_true(all(c("s(t).fx1", "s(t).1", "smooth_sd[s(t)]") %in% colnames(as.matrix(nested_example("smooth"), 2))))
  skip_if_not_installed("posterior")
  expect_identical(posterior::variables(posterior::as_draws_df(nested_example("binary"), draws = 10)),
                   colnames(as.matrix(nested_example("binary"), 10)))
})

test_that("marginals are those of the mixture", {
  fit <- nested_example("binary")
  p <- c(0.1, 0.5, 0.9)
  q <- q_quantile(fit, "x", p)
  expect_equal(q_probability(fit, "x", q), p, tolerance = 1e-8)
  expect_equal(q[c(1, 3)], unname(confint(fit, "x", level = 0.8)[1, ]), tolerance = 1e-8)
  # densities of corrected margins are splines, probabilities straight lines between points
  expect_equal(integrate(function(x) q_density(fit, "x", x), -4, q[1])$value, 0.1, tolerance = 1e-4)
  expect_identical(q_quantile(fit, "x", c(0, 1)), c(-Inf, Inf))
  # those of hyperparameters are known by many values
  sd <- "sd(g:(Intercept))"
  expect_equal(q_quantile(fit, sd, c(0.025, 0.975)), unname(confint(fit, sd)[1, ]))
  expect_equal(q_probability(fit, sd, q_quantile(fit, sd, 0.3)), 0.3, tolerance = 1e-3)
  expect_equal(integrate(function(x) q_density(fit, sd, x), 0, 10, subdivisions = 500)$value, 1, tolerance = 0.02)
})

test_that("limits of hyperparameters are the same on every platform, and those of the density", {
  posterior <- other <- nested_example("binary")$posterior
  other$key <- rev(posterior$key)   # as the last digits of another BLAS change it
  expect_identical(hyper_quantiles(other, 1L, c(0.025, 0.975)), hyper_quantiles(posterior, 1L, c(0.025, 0.975)))
  # sigma of a regression with flat priors: its limits are those of a chi square, with an almost flat prior on sigma
  d <- data.frame(x = sin(1:30), y = cos((1:30)^2))
  fit <- suppressMessages(elvi(y ~ x, d, prior = flat(), prior_intercept = flat(), prior_aux = exponential(1e-6)))
  s <- sum(resid(lm(y ~ x, d))^2)
  exact <- sqrt(s / qchisq(c(0.975, 0.025), 27))   # the prior of sigma, not of log(sigma), is flat: 30 - 2 - 1
  expect_lt(max(abs(confint(fit, "sigma") - exact)) / summary(fit)$table["sigma", "sd"], 0.02)
})
