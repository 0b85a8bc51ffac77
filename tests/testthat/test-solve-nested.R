# Group-level terms: conditional optima against the dense solver, the evidence against
# closed forms and differences, answers against figures found by other means.

base_list <- list(base_gaussian(), base_laplace(), base_uniform(), base_power(3))

test_that("conditional optima are those of the dense solver, for every family and base", {
  skip_on_cran()
  theta <- c(-0.3, -0.8, 0.4, -0.6)
  for (family in every(list(binomial(), binomial("probit"), binomial("cloglog"), poisson(), gaussian()), 3)) for (base in base_list) {
    problem <- small_problem(family)
    setup <- nested_setup(problem, base)
    found <- evidence_at(setup, list(theta), tol = 1e-11)[[1]]
    best <- dense_conditional(problem, theta, base)
    label <- paste(family$link, base$kind)
    s <- found$solution
    expect_equal(s$objective, best$objective, tolerance = 1e-10, info = label)
    expect_equal(original_order(setup$plan, s$mu), unname(best$mu), tolerance = 1e-5, info = label)
    expect_equal(original_order(setup$plan, s$variance), unname(diag(best$covariance)), tolerance = 1e-5, info = label)
    expect_lt(s$certificate, 1e-11)
    expect_true(s$rigorous)
    # wherever it stops, the certificate bounds what is left
    rough <- evidence_at(setup, list(theta), tol = 0.3)[[1]]$solution
    expect_gte(rough$certificate, (rough$objective - best$objective) * (1 - 1e-6) - 1e-8)
  }
})

test_that("the gradient of the evidence is that of its differences", {
  skip_on_cran()
  skip_if_not_installed("numDeriv")
  sigma <- list(name = "sigma", prior = exponential(1))
  phi <- list(name = "phi", prior = exponential(0.5))
  cases <- list(list(binomial(), NULL), list(poisson(), NULL), list(gaussian(), sigma), list(neg_binomial_2(), phi))
  for (case in cases) for (correlated in c(TRUE, FALSE)) {
    problem <- small_problem(case[[1]], correlated, case[[2]])
    setup <- nested_setup(problem, base_gaussian())
    theta <- c(-0.3, -0.8, if (correlated) 0.4, -0.6, if (!is.null(case[[2]])) 0.3)
    at <- evidence_at(setup, list(theta), tol = 1e-12)[[1]]
    by_difference <- numDeriv::grad(function(t) evidence_at(setup, list(t), tol = 1e-12)[[1]]$value, theta)
    expect_equal(at$slope, by_difference, tolerance = 1e-6, info = paste(case[[1]]$family, correlated))
  }
})

test_that("a negative binomial given phi is its own likelihood", {
  problem <- small_problem(neg_binomial_2(), FALSE, list(name = "phi", prior = exponential(1)))
  setup <- nested_setup(problem, base_gaussian())
  theta <- c(-12, -12, -12, log(2.5))   # no groups to speak of
  at <- evidence_at(setup, list(theta), tol = 1e-10)[[1]]
  # the evidence of a model with two coefficients, by brute force
  f <- function(b) sum(dnbinom(problem$y, mu = exp(drop(problem$X %*% b) + 0.1), size = 2.5, log = TRUE)) +
    sum(dnorm(b, 0, 2.5, log = TRUE))
  mode <- optim(c(0, 0), function(b) -f(b), hessian = TRUE, method = "BFGS", control = list(reltol = 1e-12))
  root <- t(chol(solve(mode$hessian)))
  z <- as.matrix(expand.grid(seq(-6, 6, 0.5), seq(-6, 6, 0.5)))
  values <- apply(z, 1, function(v) f(mode$par + root %*% v))
  evidence <- max(values) + log(sum(exp(values - max(values))) * 0.25) + sum(log(diag(root)))
  bound <- at$value - hyper_prior(setup$problem, setup$layout, theta)$value
  expect_lte(bound, evidence + 1e-6)
  expect_gt(bound, evidence - 0.05)
})

test_that("the gaussian evidence is exact, and the answer that of a finer rule", {
  skip_on_cran()
  skip_if_not_installed("lme4")
  problem <- sleep_problem()
  setup <- nested_setup(problem, base_gaussian())
  theta <- c(log(25), log(6), 0.2, log(25))
  D <- hyper_natural(problem, theta)$terms[[1]]$cov
  V <- as.matrix(problem$Z %*% kronecker(diag(18), D) %*% Matrix::t(problem$Z)) + 25^2 * diag(180) +
    100^2 * tcrossprod(problem$X)
  exact <- -as.double(determinant(V)$modulus) / 2 - sum(problem$y * solve(V, problem$y)) / 2 - 90 * log(2 * pi) +
    hyper_prior(problem, setup$layout, theta)$value
  at <- evidence_at(setup, list(theta))[[1]]
  expect_equal(at$value, exact, tolerance = 1e-12)
  W <- cbind(problem$X, as.matrix(problem$Z))
  A <- rbind(cbind(diag(1e-4, 2), matrix(0, 2, 36)), cbind(matrix(0, 36, 2), kronecker(diag(18), solve(D))))
  covariance <- solve(A + crossprod(W) / 625)
  expect_equal(original_order(setup$plan, at$solution$mu), unname(drop(covariance %*% crossprod(W, problem$y) / 625)),
               tolerance = 1e-8)
  expect_equal(original_order(setup$plan, at$solution$variance), unname(diag(covariance)), tolerance = 1e-10)
  fit <- nested_fit(problem)
  expect_true(fit$converged)
  expect_false(fit$corrected)   # there is nothing to correct
  expect_lt(max(unlist(fit$change)), 0.04)   # what the rule of scores ends at
  finer <- nested_fit(problem, control = list(nodes = 8))
  expect_gt(length(finer$nodes), 2 * length(fit$nodes))
  expect_equal(nested_hyper_moments(fit)$mean, nested_hyper_moments(finer)$mean, tolerance = 5e-3)
  expect_equal(nested_hyper_moments(fit)$sd, nested_hyper_moments(finer)$sd, tolerance = 2e-2)
  expect_equal(node_moments(fit)$sd, node_moments(finer)$sd, tolerance = 1e-2)
  # a composite design of 25 nodes is not far from that
  coarse <- nested_fit(problem, control = list(nodes = 3))
  expect_length(coarse$nodes, 25L)
  expect_lt(max(abs(nested_hyper_moments(coarse)$mean - nested_hyper_moments(finer)$mean) / nested_hyper_moments(finer)$sd), 0.05)
})

test_that("cbpp: the figures of 8,000 NUTS draws", {
  skip_on_cran()
  skip_if_not_installed("lme4")
  fit <- nested_fit(cbpp_problem())
  at <- node_moments(fit)
  nuts <- list(mean = c(-1.414, -0.973, -1.115, -1.561), sd = c(0.255, 0.308, 0.326, 0.422))
  expect_lt(max(abs(at$mean[1:4] - nuts$mean) / nuts$sd), 0.1)
  expect_lt(max(abs(at$sd[1:4] / nuts$sd - 1)), 0.05)
  hyper <- nested_hyper_moments(fit)
  expect_lt(abs(hyper$mean - 0.722) / 0.212, 0.1)
  expect_lt(abs(hyper$sd / 0.212 - 1), 0.05)
  expect_true(fit$converged)
  expect_true(all(vapply(fit$nodes, function(n) n$certificate, 0) < 1e-6))
  expect_true(all(vapply(fit$nodes, function(n) n$certificate_kind, "") == "rigorous"))
  expect_gte(fit$draws, 200)
  expect_equal(sum(fit$hyper$weight), 1)
  expect_gt(fit$evidence$corrected, fit$evidence$log)
})

test_that("a variance at zero is no failure", {
  set.seed(1)
  g <- rep(1:30, each = 5)
  x <- rnorm(150)
  y <- 1 + x + rnorm(150) - ave(rnorm(150), g)
  y <- y - ave(y - 1 - x, g)   # groups differ less than by chance
  problem <- nested_problem(cbind(1, x), y, gaussian(), prior_scale = 10, terms = list(group_term("g", g)),
                            dispersion = list(name = "sigma", prior = exponential(1)))
  fit <- nested_fit(problem)
  expect_true(fit$converged)
  hyper <- nested_hyper_moments(fit)
  expect_lt(hyper$mean[1], 0.25)
  expect_lt(fit$change$mean, 0.05)
  expect_true(all(is.finite(unlist(node_moments(fit)))))
})

test_that("no groups: the nested answer of a regression with unknown dispersion", {
  set.seed(2)
  X <- cbind(1, rnorm(40))
  y <- drop(X %*% c(1, 2)) + rnorm(40, 0, 1.5)
  problem <- nested_problem(X, y, gaussian(), prior_scale = 1e3, dispersion = list(name = "sigma", prior = cauchy(0, 1e3)))
  fit <- nested_fit(problem)
  at <- node_moments(fit)
  # with vague priors, student t around least squares, and an inverse gamma variance
  lm <- lm.fit(X, y)
  rss <- sum(lm$residuals^2)
  expect_equal(at$mean, unname(lm$coefficients), tolerance = 1e-4)
  nu <- 38 - 1   # a flat prior of sigma, not of log sigma
  sds <- sqrt(diag(solve(crossprod(X))) * rss / nu) * sqrt(nu / (nu - 2))
  expect_equal(at$sd, unname(sds), tolerance = 0.01)
  counts <- rnbinom(60, mu = 4, size = 2)
  nb <- nested_fit(nested_problem(matrix(1, 60, 1), counts, neg_binomial_2(),
                                  dispersion = list(name = "phi", prior = exponential(0.5))))
  expect_true(nb$converged)
  expect_equal(node_moments(nb)$mean, log(mean(counts)), tolerance = 0.05)
  # and nothing to integrate over: one node
  one <- nested_fit(nested_problem(matrix(1, 60, 1), counts, poisson()))
  expect_length(one$nodes, 1L)
  best <- elvi_optimum(model_glm(matrix(1, 60, 1), counts, poisson()))
  expect_equal(one$nodes[[1]]$mu, unname(best$mu), tolerance = 1e-6)
})

test_that("odd shapes: one row a group, one column, no fixed effects, constant slopes", {
  skip_on_cran()
  set.seed(4)
  y <- rpois(40, 3)
  fit <- nested_fit(nested_problem(matrix(1, 40, 1), y, poisson(), terms = list(group_term("row", 1:40))))
  expect_true(fit$converged)
  none <- nested_fit(nested_problem(matrix(0, 40, 0), y, poisson(), terms = list(group_term("g", rep(1:8, 5)))))
  expect_true(none$converged)
  single <- nested_fit(nested_problem(matrix(0, 40, 0), y, poisson(), terms = list(group_term("g", rep(1, 40)))))
  expect_true(single$converged)
  expect_length(single$nodes[[1]]$mu, 1L)
  constant <- nested_problem(matrix(1, 40, 1), y, poisson(),
                             terms = list(group_term("g", rep(1:8, 5), cbind(k = rep(1, 40)))))
  expect_true(nested_fit(constant)$converged)
})

test_that("flat fixed effects: an estimated certificate, and a refusal where nothing is identified", {
  problem <- small_problem(binomial())
  problem$prior$precision[] <- 0
  fit <- nested_fit(problem, control = list(nodes = 1))
  expect_identical(fit$nodes[[1]]$certificate_kind, "estimated")
  expect_false(fit$evidence$proper)
  problem$X <- cbind(problem$X, problem$X[, 2])
  problem$prior <- list(centre = numeric(3), precision = numeric(3))
  expect_error(nested_fit(problem), class = "elvi_error_no_optimum")
})

test_that("bases whose expectation does not exist are refused", {
  expect_error(nested_fit(small_problem(poisson()), base_student(5)), class = "elvi_error_no_expectation")
})

test_that("results do not depend on the number of threads", {
  skip_on_cran()
  problem <- small_problem(binomial())
  withr_threads <- function(n) {
    old <- options(elvi.threads = n)
    on.exit(options(old))
    nested_fit(problem)
  }
  one <- withr_threads(1)
  two <- withr_threads(2)
  expect_identical(one$hyper, two$hyper)
  expect_identical(one$k_hat, two$k_hat)
})

test_that("progress is shown of long runs only, once a second", {
  now <- 0
  say <- patient_voice(clock = function() now)
  expect_silent(say("early"))
  now <- 2.1
  expect_message(say("mode"), "elvi: mode")
  now <- 2.5
  expect_silent(say("too soon"))
  now <- 3.2
  expect_message(say("nodes"), "elvi: nodes")
})

test_that("an interrupt ends it", {
  skip_on_cran()
  set.seed(6)
  J <- 2e4
  g <- rep(seq_len(J), each = 4)
  problem <- nested_problem(matrix(1, 4 * J, 1), rbinom(4 * J, 1, 0.4), terms = list(group_term("g", g)))
  start <- proc.time()[["elapsed"]]
  setTimeLimit(elapsed = 1, transient = TRUE)
  on.exit(setTimeLimit(elapsed = Inf))
  expect_error(nested_fit(problem))
  setTimeLimit(elapsed = Inf)
  expect_lt(proc.time()[["elapsed"]] - start, 20)
})

test_that("a gaussian response with dense columns is solved from few rows, with the same evidence and answers", {
  skip_on_cran()
  set.seed(5)
  x <- runif(200)
  Z <- Matrix::Matrix(outer(x, 1:6, function(x, k) sin(k * pi * x)), sparse = TRUE)
  term <- list(Z = Z, term = list(label = "s(x)", kind = "group", columns = 1:6, levels = as.character(1:6), coefs = "(Intercept)",
                                  correlated = FALSE, prior_sd = exponential(1), prior_cor = 1))
  problem <- nested_problem(cbind(1, x), sin(4 * x) + rnorm(200, sd = 0.3), gaussian(), list(term), offset = x^2,
                            weight = rep(c(0.5, 1, 2, 0), 50), dispersion = list(name = "sigma", prior = exponential(1)))
  few <- nested_setup(problem, base_gaussian())
  expect_equal(few$plan$rows, 9)
  all <- few
  rows <- problem[c("X", "Z", "y", "offset", "weight")]
  all$plan <- sparse_plan(rows$X, methods::as(rows$Z, "CsparseMatrix"), rep(TRUE, 6), hyper_entries(few$problem, few$layout), TRUE,
                          numeric(8), c(rows[c("y", "weight", "offset")], few$plan[c("record", "dispersion")]))
  theta <- list(c(-0.5, -1), c(0.3, -0.8))
  here <- evidence_at(few, theta)
  there <- evidence_at(all, theta)
  for (k in 1:2) {
    expect_equal(here[[k]]$value, there[[k]]$value, tolerance = 1e-10)
    expect_equal(here[[k]]$slope, there[[k]]$slope, tolerance = 1e-8)
    expect_equal(here[[k]]$solution$mu, there[[k]]$solution$mu, tolerance = 1e-8)
    expect_equal(here[[k]]$solution$variance, there[[k]]$solution$variance, tolerance = 1e-8)
  }
})
