# Models in two parts: formulas, priors, methods; the solver with two predictors per row.

parts_data <- function(n = 150) {
  withr_seed(31, {
    d <- data.frame(x = rnorm(n, 3), z = rnorm(n, -2), g = factor(sample(8, n, TRUE)), e = runif(n, 0.5, 2))
    mu <- exp(-1 + 0.6 * d$x + rnorm(8, 0, 0.4)[d$g])
    d$count <- ifelse(runif(n) < plogis(1 + 0.9 * d$z), 0, rpois(n, mu))
    d$y <- 1 + 0.5 * d$x + rnorm(n) * exp(1 + 0.5 * d$z)
    d
  })
}

test_that("the evidence has the gradient that it says, in the hyperparameters of both parts and of the family", {
  skip_if_not_installed("reformulas")
  problem <- elvi_problem(count ~ x + (1 | g), parts_data(), family = zero_inflated_negbinomial(), ziformula = ~ z + (1 | g))
  setup <- nested_setup(conditional_problem(problem), base_gaussian())
  expect_equal(setup$layout$names, c("log sd(g: (Intercept))", "log sd(g: zi_(Intercept))", "log phi"))
  theta <- c(-0.8, -0.5, 1)
  at <- evidence_at(setup, list(theta), tol = 1e-12)[[1]]
  h <- 1e-3
  slope <- vapply(1:3, function(j) {
    values <- vapply(c(1, -1), function(side) {
      evidence_at(setup, list(theta + side * h * (1:3 == j)), list(at$solution), tol = 1e-12)[[1]]$value
    }, 0)
    (values[1] - values[2]) / (2 * h)
  }, 0)
  expect_equal(unname(at$slope), slope, tolerance = 1e-4)
})

test_that("the solver finds the optimum of a dense second implementation", {
  d <- parts_data(80)
  problem <- conditional_problem(elvi_problem(count ~ x, d, family = zero_inflated_poisson(), ziformula = ~ z))
  setup <- nested_setup(problem, base_gaussian())
  found <- evidence_at(setup, list(numeric()), tol = 1e-12)[[1]]$solution
  X <- as.matrix(problem$X) - rep(problem$shift, each = 80)
  W1 <- X * rep(problem$line == 1, each = 80)
  W2 <- X * rep(problem$line == 2, each = 80)
  A <- diag(problem$prior$precision)
  F <- function(par) {   # mu, and a triangular root of the covariance
    mu <- par[1:4]
    L <- matrix(0, 4, 4)
    L[lower.tri(L, diag = TRUE)] <- par[-(1:4)]
    S <- tcrossprod(L)
    V <- rbind(rowSums((W1 %*% S) * W1), rowSums((W1 %*% S) * W2), rowSums((W2 %*% S) * W2))
    loss <- .Call(elvi_r_joint_expect, "zero_inflated_poisson", setup$rule, 1,
                  list(y = problem$y, weight = rep(1, 80), eta = rbind(drop(W1 %*% mu), drop(W2 %*% mu)), V = V))$sum
    loss + sum((mu - problem$prior$centre) * (A %*% (mu - problem$prior$centre))) / 2 + sum(A * S) / 2 - sum(log(abs(diag(L))))
  }
  S <- root_matrix(root_at(nested_posterior(nested_fit(problem), problem, c(1, 2))$roots, 1L))
  start <- c(original_order(setup$plan, found$mu), t(chol(tcrossprod(S)))[lower.tri(S, diag = TRUE)])
  expect_equal(F(start), found$objective, tolerance = 1e-9)
  slope <- vapply(seq_along(start), function(j) (F(start + 1e-5 * (seq_along(start) == j)) - F(start - 1e-5 * (seq_along(start) == j))) / 2e-5, 0)
  expect_lt(max(abs(slope)), 1e-3)   # stationary in means and root
})

# Draws of a fit's conditional gaussian, weighted by the posterior itself: both moments of all coefficients.
weighted_moments <- function(fit, log_lik, draws = 20000) {
  posterior <- uncorrected(fit$posterior)
  proposed <- posterior_propose(posterior, draws, c(5, 6))
  joint <- fit$priors$joint
  log_prior <- colSums(dnorm(proposed$x, joint$location, joint$scale, log = TRUE))
  x <- uncentre_points(posterior, proposed$x)
  weight <- normalised(log_lik(t(x)) + log_prior - proposed$log_q)
  mean <- drop(x %*% weight)
  list(mean = mean, sd = sqrt(drop((x - mean)^2 %*% weight)), ess = 1 / sum(weight^2))
}

test_that("means and sds are those of importance sampling, for zero inflation and for a scale", {
  skip_on_cran()
  d <- parts_data()
  X <- cbind(1, d$x)
  Z <- cbind(1, d$z)
  fits <- list(elvi(count ~ x, d, family = zero_inflated_poisson(), ziformula = ~ z), elvi(y ~ x, d, dispformula = ~ z))
  log_liks <- list(
    function(x) {
      eta <- tcrossprod(x[, 1:2], X)
      zi <- plogis(tcrossprod(x[, 3:4], Z))
      y <- matrix(rep(d$count, each = nrow(x)), nrow(x))
      rowSums(ifelse(y == 0, log(zi + (1 - zi) * exp(-exp(eta))), log1p(-zi) + dpois(y, exp(eta), log = TRUE)))
    },
    function(x) rowSums(matrix(dnorm(rep(d$y, each = nrow(x)), tcrossprod(x[, 1:2], X), exp(tcrossprod(x[, 3:4], Z)), log = TRUE), nrow(x))))
  for (i in 1:2) {
    truth <- weighted_moments(fits[[i]], log_liks[[i]])
    expect_gt(truth$ess, 5000)
    expect_lt(max(abs(fixef(fits[[i]]) - truth$mean) / truth$sd), 0.05)
    expect_lt(max(abs(sqrt(diag(vcov(fits[[i]]))) / truth$sd - 1)), 0.04)
  }
})

test_that("phi of beta_binomial() and sigma of lognormal() and student() have formulas", {
  skip_on_cran()
  d <- withr_seed(33, {
    d <- data.frame(x = rnorm(80), z = rnorm(80))
    phi <- exp(1 + 0.5 * d$z)
    d$hits <- rbinom(80, 8, rbeta(80, phi * plogis(d$x), phi * plogis(-d$x)))
    d$size <- exp(rnorm(80, 0.5 * d$x, 1 / phi))
    d
  })
  X <- cbind(1, d$x)
  Z <- cbind(1, d$z)
  at_draws <- function(x, log_density) {
    eta <- tcrossprod(x[, 1:2], X)
    second <- exp(tcrossprod(x[, 3:4], Z))
    rowSums(vapply(seq_len(80), function(i) log_density(i, eta[, i], second[, i]), numeric(nrow(x))))
  }
  fits <- list(elvi(cbind(hits, 8 - hits) ~ x, d, family = beta_binomial(), dispformula = ~ z),
               elvi(size ~ x, d, family = lognormal(), dispformula = ~ z))
  densities <- list(
    function(i, eta, phi) {
      lbeta(d$hits[i] + phi * plogis(eta), 8 - d$hits[i] + phi * plogis(-eta)) - lbeta(phi * plogis(eta), phi * plogis(-eta))
    },
    function(i, eta, sigma) dlnorm(d$size[i], eta - sigma^2 / 2, sigma, log = TRUE))
  for (i in 1:2) {
    truth <- weighted_moments(fits[[i]], function(x) at_draws(x, densities[[i]]))
    expect_gt(truth$ess, 3000)
    expect_lt(max(abs(fixef(fits[[i]]) - truth$mean) / truth$sd), 0.06)
    expect_lt(max(abs(sqrt(diag(vcov(fits[[i]]))) / truth$sd - 1)), 0.05)
  }
  expect_equal(residuals(fits[[1]]), d$hits / 8 - fitted(fits[[1]]), ignore_attr = TRUE)
  expect_true(all(posterior_predict(fits[[1]], draws = 5) %in% 0:8))
  heavy <- elvi(size ~ x, d, family = student(), dispformula = ~ z)
  expect_true("df" %in% rownames(summary(heavy)$table))
  expect_true(all(predict(heavy, d[1:3, ], type = "disp") > 0))
  expect_error(elvi(size ~ x, d, family = student(), dispformula = ~ z, prior_aux = exponential(1)), "prior_aux.*df",
               class = "elvi_error_argument")
})

test_that("residuals of a model in two parts are those of its records", {
  d <- parts_data()
  fit <- elvi(count ~ x, d, family = zero_inflated_poisson(), ziformula = ~ z)
  expect_equal(residuals(fit), d$count - fitted(fit), ignore_attr = TRUE)
  variance <- family_record(fit$family)$variance(predict(fit, type = "conditional"), list(second = predict(fit, type = "zprob")), fit$family)
  expect_equal(residuals(fit, "pearson"), (d$count - fitted(fit)) / sqrt(variance), tolerance = 0.01, ignore_attr = TRUE)
})

test_that("columns, names and priors of the parts are where they belong", {
  skip_if_not_installed("reformulas")
  problem <- elvi_problem(count ~ x + (1 | g), parts_data(), family = poisson(), ziformula = ~ z + offset(log(e)) + (z | g),
                          prior = list(cond = normal(0, 1), zi = normal(0, 2)), autoscale = FALSE)
  expect_equal(problem$family$family, "zero_inflated_poisson")   # as 'glmmTMB' has it
  expect_equal(colnames(problem$rows$X), c("(Intercept)", "x", "zi_(Intercept)", "zi_z"))
  expect_equal(problem$priors$joint$scale, c(2.5, 1, 2.5, 2))
  expect_equal(drop(problem$lines$offset), log(parts_data()$e))
  expect_equal(unlist(lapply(problem$terms, `[[`, "line")), c(1L, 2L))
  expect_equal(problem$terms[[2]]$coefs, c("zi_(Intercept)", "zi_z"))
  expect_equal(range(problem$terms[[2]]$columns), c(9, 24))
  expect_equal(conditional_problem(problem)$line, rep(c(1, 2, 1, 2), c(2, 2, 8, 16)))
})

test_that("a smooth and a factor in the second formula are predicted as the fit has them", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  d <- parts_data()
  fit <- suppressWarnings(elvi(y ~ x, d, dispformula = ~ s(z) + g, control = elvi_control(nodes = 3)))
  expect_true(all(c("disp_s(z).fx1", "disp_g2") %in% names(fixef(fit))))
  expect_equal(predict(fit, d[7:1, ], type = "disp"), predict(fit, type = "disp")[7:1])
  expect_equal(posterior_predict(fit, d[1:3, ], draws = 4)[, 1], posterior_predict(fit, d[1:3, ], draws = 4)[, 1])
})

test_that("predictions of each type are the same function of the draws", {
  fit <- elvi(count ~ x, parts_data(), family = zero_inflated_poisson(), ziformula = ~ z)
  new <- parts_data()[1:5, ]
  rows <- prediction_rows(fit, new)
  drawn <- posterior_draws(fit$posterior, 4000)
  mu <- exp(tcrossprod(drawn$x, rows$X))
  zi <- plogis(tcrossprod(drawn$x, rows$second$X))
  close <- function(type, draws) expect_equal(predict(fit, new, type = type), colMeans(draws), tolerance = 0.02, ignore_attr = TRUE)
  close("conditional", mu)
  close("zprob", zi)
  close("response", mu * (1 - zi))
  expect_equal(unname(posterior_epred(fit, new, draws = 4000)), unname(mu * (1 - zi)))
  expect_equal(predict(fit, new, type = "response", se.fit = TRUE)$se.fit, apply(mu * (1 - zi), 2, sd), tolerance = 0.05, ignore_attr = TRUE)
  direct <- family_record(fit$family)$log_lik(rep(new$count, each = 4000), mu, list(second = zi), 1, fit$family)
  expect_equal(as.double(log_lik(fit, new, draws = 4000)), as.double(direct))
  expect_equal(coef(fit, part = "zi"), stats::setNames(coef(fit)[3:4], c("(Intercept)", "z")))
})

test_that("precision weights of a gaussian model scale its second parameter", {
  d <- parts_data()
  w <- rep(c(1, 4), length.out = nrow(d))
  weighted <- elvi(y ~ x, d, dispformula = ~ z, weights = w, autoscale = FALSE)
  by_offset <- elvi(y ~ x, d, dispformula = ~ z + offset(-log(w) / 2), autoscale = FALSE)
  expect_equal(coef(weighted), coef(by_offset), tolerance = 1e-6)
  expect_equal(weighted$nested$evidence$log, by_offset$nested$evidence$log, tolerance = 1e-8)
})

test_that("the fit is that of 'glmmTMB', up to priors", {
  skip_on_cran()
  skip_if_not_installed("glmmTMB")
  d <- withr_seed(32, {
    d <- data.frame(x = rnorm(1000), z = rnorm(1000))
    mu <- exp(0.5 + 0.5 * d$x)
    zero <- runif(1000) < plogis(-0.5 + 0.7 * d$z)
    d$zip <- ifelse(zero, 0, rpois(1000, mu))
    d$hurdle <- ifelse(zero, 0, stats::qpois(runif(1000, exp(-mu), 1), mu))
    d$size <- rgamma(1000, exp(0.5 + 0.4 * d$z), scale = mu / exp(0.5 + 0.4 * d$z))
    d
  })
  near <- function(fit, peer) {
    s <- summary(peer)$coefficients
    peers <- rbind(s$cond, s$zi, s$disp)
    expect_lt(max(abs(fixef(fit) - peers[, 1]) / peers[, 2]), 0.15)
    expect_lt(max(abs(sqrt(diag(vcov(fit))) / peers[, 2] - 1)), 0.05)
  }
  near(elvi(zip ~ x, d, family = zero_inflated_poisson(), ziformula = ~ z), glmmTMB::glmmTMB(zip ~ x, d, family = poisson, ziformula = ~ z))
  if (!long_tests()) return()
  near(elvi(hurdle ~ x, d, family = hurdle_poisson(), ziformula = ~ z),
       glmmTMB::glmmTMB(hurdle ~ x, d, family = glmmTMB::truncated_poisson, ziformula = ~ z))
  near(elvi(size ~ x, d, family = Gamma("log"), dispformula = ~ z),
       glmmTMB::glmmTMB(size ~ x, d, family = Gamma("log"), dispformula = ~ z))
})

test_that("what cannot be fitted is refused with what to do", {
  d <- parts_data()
  zip <- function(...) elvi(..., data = d, family = zero_inflated_poisson())
  d$zeros <- 0
  d$ones <- 1
  expect_error(suppressWarnings(zip(zeros ~ x)), "all zeros", class = "elvi_error_argument")
  expect_error(suppressWarnings(zip(ones ~ x)), "no zeros.*poisson", class = "elvi_error_argument")
  expect_error(zip(count ~ x, ziformula = ~ absent), "`ziformula`.*absent", class = "elvi_error_argument")
  expect_error(zip(count ~ x, ziformula = count ~ z), "without a response", class = "elvi_error_argument")
  expect_error(zip(count ~ x, ziformula = ~ .), "name its variables", class = "elvi_error_argument")
  expect_error(zip(count ~ x, dispformula = ~ z), "dispformula", class = "elvi_error_argument")
  expect_error(elvi(y ~ x, d, ziformula = ~ z), "zero_inflated_poisson", class = "elvi_error_argument")
  expect_error(elvi(count ~ x, d, family = poisson(), dispformula = ~ z), "dispersion that can have a formula", class = "elvi_error_argument")
  expect_error(zip(count ~ x, method = "mpsgd"), "method", class = "elvi_error_argument")
  expect_error(zip(count ~ x, base = base_laplace()), "base", class = "elvi_error_argument")
  expect_error(zip(count ~ x, prior = list(mean = normal())), "cond, zi", class = "elvi_error_argument")
  expect_error(zip(count ~ x, prior_sd = exponential(1)), "prior_sd", class = "elvi_error_argument")
  expect_error(predict(elvi(count ~ x, d, family = poisson()), type = "zprob"), "excess zeros", class = "elvi_error_argument")
  expect_identical(coef(elvi(y ~ x, d, dispformula = ~ 1)), coef(elvi(y ~ x, d)))   # the default, as in 'glmmTMB'
})

test_that("the expected response is averaged over phi too, whose mean is asked for once at most", {
  skip_on_cran()
  d <- withr_seed(5, data.frame(x = rnorm(40), y = ifelse(runif(40) < 0.3, 0, 1 + rnbinom(40, size = 0.7, mu = 2))))
  fit <- suppressWarnings(elvi(y ~ x, d, family = hurdle_negbinomial(), correct = FALSE))
  found <- predict(fit, d[1:4, ], type = "response", se.fit = TRUE)
  drawn <- posterior_epred(fit, d[1:4, ], draws = 2e4)
  expect_lt(max(abs(found$fit - colMeans(drawn)) / apply(drawn, 2, sd)), 0.03)
  options(elvi.test_calls = 0)
  on.exit(options(elvi.test_calls = NULL))
  suppressMessages(trace("posterior_moments", quote(options(elvi.test_calls = getOption("elvi.test_calls") + 1)), print = FALSE,
                         where = asNamespace("elvi")))
  on.exit(suppressMessages(untrace("posterior_moments", where = asNamespace("elvi"))), add = TRUE)
  predict(fit, d[1:4, ], type = "response")
  expect_lte(getOption("elvi.test_calls"), 1)   # there were 400, one for each point of the rule
})

test_that("a mean that fits perfectly leaves nothing for a formula of sigma", {
  d <- data.frame(x = 1:20, z = rep(0:1, 10))
  for (y in list(rep(3, 20), 1 + 2 * d$x)) for (family in list(gaussian(), student())) {
    expect_error(suppressWarnings(elvi(y ~ x, d, family = family, dispformula = ~ z)), "fit the responses perfectly",
                 class = "elvi_error_no_optimum")
  }
  expect_error(elvi(x ~ z, d, dispformula = x ~ z), "not x ~ z", class = "elvi_error_argument")
})
