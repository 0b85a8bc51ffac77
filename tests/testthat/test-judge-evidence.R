# log p(y, b) of a regression with normal priors and centred predictors, for log_integral()
regression_density <- function(fit, log_lik) {
  X <- model.matrix(fit)
  if (ncol(X) > 1) X[, -1] <- scale(X[, -1], scale = FALSE)
  joint <- fit$priors$joint
  function(b) log_lik(drop(X %*% b)) + sum(dnorm(b, joint$location, joint$scale, log = TRUE))
}

close_to <- function(found, truth) expect_lt(abs(found$logml - truth), 0.01 + 3 * found$se)

test_that("the log evidence of binary regressions is that of brute force", {
  for (formula in list(am ~ 1, am ~ wt)) {
    fit <- elvi(formula, data = mtcars, family = binomial())
    density <- regression_density(fit, function(eta) sum(dbinom(mtcars$am, 1, plogis(eta), log = TRUE)))
    truth <- log_integral(density, length(fixef(fit)), reach = 12)
    found <- evidence(fit)
    expect_equal(truth, if (length(fixef(fit)) == 1) -23.57 else -13.06, tolerance = 0.001)
    close_to(found, truth)
    expect_lt(found$bound, truth)
    expect_equal(found$bound, elbo(fit)$estimate)
    expect_true(found$reliable)
    expect_identical(evidence(fit), found)
    expect_false(identical(evidence(fit, seed = 3)$logml, found$logml))
  }
})

test_that("the log evidence of counts with few events is that of brute force", {
  data <- data.frame(y = c(0, 1, 0, 2, 5, 9, 14, 3), x = rep(0:1, each = 4), t = c(1, 2, 1, 3, 1, 2, 3, 1))
  fit <- elvi(y ~ x + offset(log(t)), data = data, family = poisson(), prior = normal(0, 2), prior_intercept = normal(0, 3))
  density <- regression_density(fit, function(eta) sum(dpois(data$y, data$t * exp(eta), log = TRUE)))
  close_to(evidence(fit), log_integral(density, 2, reach = 12))
})

test_that("the log evidence of gaussian data is the closed form given sigma, and its integral over sigma", {
  data <- data.frame(y = mtcars$mpg, x = mtcars$wt - mean(mtcars$wt))
  X <- cbind(1, data$x)
  given <- function(sigma) {
    V <- X %*% diag(c(10, 4)^2) %*% t(X) + diag(sigma^2, 32)
    L <- chol(V)
    -16 * log(2 * pi) - sum(log(diag(L))) - sum(backsolve(L, data$y - 20, transpose = TRUE)^2) / 2
  }
  known <- elvi(y ~ x, data = data, dispersion = 9, prior = normal(0, 4), prior_intercept = normal(20, 10))
  found <- evidence(known)
  expect_equal(found$logml, given(3), tolerance = 1e-6)
  expect_lt(found$se, 1e-4)
  unknown <- elvi(y ~ x, data = data, prior = normal(0, 4), prior_intercept = normal(20, 10), prior_aux = exponential(0.2))
  truth <- log_integral(function(s) given(exp(s)) + dexp(exp(s), 0.2, log = TRUE) + s, 1, start = 1)
  found <- evidence(unknown)
  expect_lt(abs(found$logml - truth), 0.002)
  expect_lt(found$quadrature_error, 0.02)
})

test_that("the log evidence with herds is that of brute force", {
  skip_if_not_installed("lme4")
  cbpp <- lme4::cbpp
  fit <- elvi(cbind(incidence, size - incidence) ~ 1 + (1 | herd), data = cbpp, family = binomial(),
              prior_intercept = normal(0, 2), prior_sd = exponential(1))
  nodes <- seq(-8, 8, length.out = 81)
  # herds are independent given the intercept and their standard deviation
  joint <- function(theta) {
    eta <- theta[1] + exp(theta[2]) * nodes
    log_p <- cbpp$incidence * rep(plogis(eta, log.p = TRUE), each = 56) +
      (cbpp$size - cbpp$incidence) * rep(plogis(-eta, log.p = TRUE), each = 56)
    each <- rowsum(matrix(log_p, 56), cbpp$herd)
    top <- apply(each, 1, max)
    sum(top + log(exp(each - top) %*% (dnorm(nodes) * (nodes[2] - nodes[1])))) + sum(lchoose(cbpp$size, cbpp$incidence)) +
      dnorm(theta[1], 0, 2, log = TRUE) + dexp(exp(theta[2]), log = TRUE) + theta[2]
  }
  truth <- log_integral(joint, 2, start = c(-2, -0.3), points = 61)
  found <- evidence(fit)
  close_to(found, truth)
  expect_lt(found$bound, truth)
  expect_true(found$se > 0 && found$se < 0.05)
})

test_that("the evidence of a user-supplied density is the log of its integral", {
  model <- model_density(value = function(x) sum(exp(x) - 3 * x) + sum(lgamma(4)), gradient = function(x) exp(x) - 3, dim = 2)
  fit <- suppressMessages(suppressWarnings(withr_seed(1, elvi(model, tol = 0.01))))
  found <- evidence(fit)
  close_to(found, 2 * lgamma(3) - lgamma(4))
  expect_identical(found$constants, "as given")
  expect_output(print(found), "as it was given")
  run <- withr_seed(2, elvi(am ~ wt, data = mtcars, family = binomial(), method = "mpsgd", tol = 0.02))
  close_to(evidence(run), -13.06)
})

test_that("Bayes factors and model probabilities are those of the evidences", {
  weight <- elvi(am ~ wt, data = mtcars, family = binomial())
  none <- elvi(am ~ 1, data = mtcars, family = binomial())
  bf <- bayes_factor(weight, none)
  expect_identical(names(bf), c("bf", "log", "se"))
  expect_s3_class(bf, "bf_bridge")
  expect_lt(abs(log(bf$bf) - 10.51), 0.02)
  expect_equal(bayes_factor(weight, none, log = TRUE)$bf, log(bf$bf))
  expect_equal(bayes_factor(evidence(weight), none)$bf, bf$bf)
  expect_equal(bayes_factor(none, weight)$bf, 1 / bf$bf)
  expect_output(print(bf), "Bayes factor in favour of weight over none: .*logarithm 10.5")
  p <- post_prob(weight, none, prior_prob = c(0.1, 0.9))
  expect_equal(p, c(weight = bf$bf / (bf$bf + 9), none = 9 / (bf$bf + 9)))
  expect_identical(names(post_prob(none, evidence(weight), model_names = c("a", "b"))), c("a", "b"))
  # an object of 'bridgesampling' has its log evidence in `logml`
  sampled <- structure(list(logml = -23.57), class = "bridge")
  expect_lt(abs(bayes_factor(weight, sampled, log = TRUE)$bf - 10.51), 0.02)
})

test_that("what cannot be compared is refused by name", {
  weight <- elvi(am ~ wt, data = mtcars, family = binomial())
  fewer <- elvi(am ~ 1, data = mtcars[-1, ], family = binomial())
  other <- elvi(vs ~ 1, data = mtcars, family = binomial())
  suppressWarnings(flat <- elvi(am ~ wt, data = mtcars, family = binomial(), prior = flat()))
  expect_error(bayes_factor(weight, fewer), "different responses", class = "elvi_error_argument")
  expect_error(bayes_factor(weight, other), "different responses", class = "elvi_error_argument")
  expect_error(bayes_factor(weight, flat), "`x2` has 1 parameter.s. with a flat prior", class = "elvi_error_argument")
  expect_error(post_prob(flat, weight), "`flat`", class = "elvi_error_argument")
  expect_error(bayes_factor(weight, 3), class = "elvi_error_argument")
  expect_error(bayes_factor(weight), class = "elvi_error_argument")
  expect_error(bayes_factor(weight, weight, log = 2), class = "elvi_error_argument")
  expect_error(post_prob(weight, weight, prior_prob = c(0.5, 0.6)), class = "elvi_error_argument")
  expect_error(evidence(1), class = "elvi_error_argument")
  expect_error(evidence(weight, drawz = 3), class = "elvi_error_argument")
  # rows in another order, and rows that do not count, make no difference
  turned <- elvi(am ~ wt, data = mtcars[32:1, ], family = binomial())
  expect_lt(abs(bayes_factor(weight, turned, log = TRUE)$bf), 0.02)
  padded <- elvi(am ~ wt, data = rbind(mtcars, mtcars[1, ]), family = binomial(), frequency = rep(1:0, c(32, 1)))
  expect_lt(abs(bayes_factor(weight, padded, log = TRUE)$bf), 0.02)
})

test_that("an estimate that weights cannot give is marked", {
  fit <- elvi(am ~ wt, data = mtcars, family = binomial())
  found <- evidence(fit)
  found$reliable <- FALSE
  found$k <- 1.2
  expect_output(print(found), "not reliable .Pareto k-hat 1.2.")
  expect_warning(bayes_factor(found, fit), class = "elvi_warning_evidence")
})

test_that("summary() and glance() have the log evidence", {
  fit <- elvi(am ~ wt, data = mtcars, family = binomial())
  expect_output(print(summary(fit)), "Log evidence: -13.0[67] .importance-corrected; Monte Carlo error 0.0.*; lower\\s+bound -13.1")
  expect_equal(generics::glance(fit)$log_evidence, evidence(fit)$logml)
})

test_that("with one coefficient the evidence of each family is a one-dimensional integral", {
  binary <- c(0, 1, 1, 0, 1, 1)
  counts <- c(0, 2, 1, 0)
  times <- c(0.5, 1.2, 0.3, 2)
  check <- function(y, family, log_lik) {
    fit <- elvi(y ~ 1, data = data.frame(y = y), family = family, prior_intercept = normal(0.3, 1.5))
    truth <- log(integrate(function(b) {
      vapply(b, function(b) exp(sum(log_lik(y, b)) + dnorm(b, 0.3, 1.5, log = TRUE)), 0)
    }, -15, 15, rel.tol = 1e-9, subdivisions = 500)$value)
    found <- evidence(fit)
    expect_lt(abs(found$logml - truth), 4 * found$se + 1e-3)
    expect_lte(found$bound, truth + 1e-8)
  }
  check(binary, binomial(), function(y, b) dbinom(y, 1, plogis(b), log = TRUE))
  check(binary, binomial("probit"), function(y, b) dbinom(y, 1, pnorm(b), log = TRUE))
  check(binary, binomial("cloglog"), function(y, b) dbinom(y, 1, -expm1(-exp(b)), log = TRUE))
  check(counts, poisson(), function(y, b) dpois(y, exp(b), log = TRUE))
  check(times, "exponential", function(y, b) dexp(y, exp(-b), log = TRUE))
})

test_that("with a dispersion the evidence of each family is a two-dimensional integral", {
  check <- function(y, family, log_lik) {
    fit <- elvi(y ~ 1, data = data.frame(y = y), family = family, prior_intercept = normal(0.3, 1.5), prior_aux = exponential(0.5))
    b <- seq(-9, 9, length.out = 361)
    log_a <- seq(-9, 6, length.out = 301)
    log_p <- outer(dnorm(b, 0.3, 1.5, log = TRUE), dexp(exp(log_a), 0.5, log = TRUE) + log_a, `+`)
    for (v in y) log_p <- log_p + outer(b, exp(log_a), function(b, a) log_lik(v, b, a))
    truth <- log(sum(exp(log_p))) + log(diff(b[1:2]) * diff(log_a[1:2]))
    found <- evidence(fit)
    expect_lt(abs(found$logml - truth), 4 * found$se + 3 * found$quadrature_error + 0.02)
  }
  y <- c(0.5, 1.2, 0.3, 2, 0.9)
  check(y, gaussian(), function(y, b, a) dnorm(y, b, a, log = TRUE))
  check(y, Gamma("log"), function(y, b, a) dgamma(y, a, a / exp(b), log = TRUE))
  check(c(0, 2, 1, 0, 7), neg_binomial_2(), function(y, b, a) dnbinom(y, size = a, mu = exp(b), log = TRUE))
})

test_that("bridgesampling takes fits and evidences", {
  skip_if_not_installed("bridgesampling")
  weight <- elvi(am ~ wt, data = mtcars, family = binomial())
  none <- elvi(am ~ 1, data = mtcars, family = binomial())
  own <- bayes_factor(weight, none, log = TRUE)$bf
  expect_equal(bridgesampling::bayes_factor(weight, none, log = TRUE)$bf, own)
  expect_equal(bridgesampling::bf(weight, none, log = TRUE)$bf, own)
  expect_equal(bridgesampling::logml(bridgesampling::bridge_sampler(weight)), evidence(weight)$logml)
  expect_equal(unname(bridgesampling::post_prob(weight, none)), unname(post_prob(weight, none)))
  expect_equal(unname(bridgesampling::post_prob(evidence(weight), evidence(none))), unname(post_prob(weight, none)))
})
