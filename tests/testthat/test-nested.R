# Group-level terms: conditional optima against the dense solver, the evidence against
# closed forms and differences, answers against figures found by other means.

base_list <- list(base_gaussian(), base_laplace(), base_uniform(), base_power(3))

small_problem <- function(family, correlated = TRUE, dispersion = NULL) {
  set.seed(7)
  n <- 48
  g <- rep(1:6, each = 8)
  h <- rep(1:4, 12)
  x <- rnorm(n)
  eta <- 0.3 + 0.5 * x + rnorm(6, 0, 0.6)[g] + rnorm(4, 0, 0.4)[h]
  y <- switch(family$family, binomial = rbinom(n, 1, plogis(eta)), poisson = rpois(n, exp(eta)),
              gaussian = rnorm(n, eta), neg_binomial_2 = rnbinom(n, mu = exp(eta), size = 2))
  nested_problem(cbind(1, x), y, family, offset = 0.1, dispersion = dispersion,
                 terms = list(group_term("g", g, cbind(x = x), correlated = correlated), group_term("h", h)))
}

test_that("hyperparameters: names, natural scale, correlations", {
  problem <- small_problem(binomial())
  layout <- elvi:::hyper_layout(problem)
  expect_identical(layout$length, 4L)
  expect_identical(elvi:::hyper_layout(problem)$names,
                   c("log sd(g: (Intercept))", "log sd(g: x)", "z cor(g: (Intercept), x)", "log sd(h: (Intercept))"))
  at <- elvi:::hyper_natural(problem, c(0, log(2), 0.5, -1))
  expect_equal(unname(at$terms[[1]]$sd), c(1, 2))
  expect_equal(at$terms[[1]]$cor[2, 1], tanh(0.5))
  expect_equal(unname(at$terms[[1]]$cov), matrix(c(1, 2 * tanh(0.5), 2 * tanh(0.5), 4), 2))
  set.seed(1)
  y <- rnorm(6)
  R <- tcrossprod(elvi:::correlation_factor(y, 4)$L)
  expect_equal(diag(R), rep(1, 4))
  expect_gt(min(eigen(R)$values), 0)
})

test_that("densities of hyperparameters are normalised, with the right derivatives", {
  for (prior in list(exponential(2), normal(0, 1.5), student_t(3, 0, 2), cauchy(0, 1), normal(1, 2))) {
    mass <- integrate(function(a) exp(elvi:::log_prior_positive(prior, a)$value), -40, 30, subdivisions = 1000, rel.tol = 1e-9)
    expect_equal(mass$value, 1, tolerance = 1e-6)
    slope <- (elvi:::log_prior_positive(prior, 0.3 + 1e-6)$value - elvi:::log_prior_positive(prior, 0.3 - 1e-6)$value) / 2e-6
    expect_equal(elvi:::log_prior_positive(prior, 0.3)$slope, slope, tolerance = 1e-7)
  }
  scales <- elvi:::log_prior_positive(normal(0, c(1, 10)), c(0, 0))$value
  expect_equal(scales, dnorm(1, 0, c(1, 10), log = TRUE) + log(2))
  # LKJ(eta) of a 2 x 2 matrix is a beta law; in three dimensions det(R)^(eta - 1) up to a constant
  mass <- integrate(function(y) exp(vapply(y, function(v) elvi:::log_prior_correlation(v, 2, 1.7)$value, 0)), -30, 30)
  expect_equal(mass$value, 1, tolerance = 1e-7)
  density <- function(y, eta) {   # of R, from that of y
    entries <- function(y) tcrossprod(elvi:::correlation_factor(y, 3)$L)[lower.tri(diag(3))]
    jacobian <- det(numDeriv::jacobian(entries, y))
    sum(elvi:::log_prior_correlation(y, 3, eta)$value) - log(abs(jacobian)) -
      (eta - 1) * log(det(tcrossprod(elvi:::correlation_factor(y, 3)$L)))
  }
  skip_if_not_installed("numDeriv")
  expect_equal(density(c(0.2, -0.4, 0.7), 1), density(c(-1, 0.3, 0.1), 1), tolerance = 1e-6)
  expect_equal(density(c(0.2, -0.4, 0.7), 2.5), density(c(-1, 0.3, 0.1), 2.5), tolerance = 1e-6)
})

test_that("conditional optima are those of the dense solver, for every family and base", {
  skip_on_cran()
  theta <- c(-0.3, -0.8, 0.4, -0.6)
  for (family in list(binomial(), binomial("probit"), binomial("cloglog"), poisson(), gaussian())) for (base in base_list) {
    problem <- small_problem(family)
    setup <- elvi:::nested_setup(problem, base)
    found <- elvi:::evidence_at(setup, list(theta), tol = 1e-11)[[1]]
    best <- dense_conditional(problem, theta, base)
    label <- paste(family$link, base$kind)
    s <- found$solution
    expect_equal(s$objective, best$objective, tolerance = 1e-10, info = label)
    expect_equal(elvi:::original_order(setup$plan, s$mu), unname(best$mu), tolerance = 1e-5, info = label)
    expect_equal(elvi:::original_order(setup$plan, s$variance), unname(diag(best$covariance)), tolerance = 1e-5, info = label)
    expect_lt(s$certificate, 1e-11)
    expect_true(s$rigorous)
    # wherever it stops, the certificate bounds what is left
    rough <- elvi:::evidence_at(setup, list(theta), tol = 0.3)[[1]]$solution
    expect_gte(rough$certificate, (rough$objective - best$objective) * (1 - 1e-6) - 1e-8)
  }
})

test_that("the gradient of the evidence is that of its differences", {
  skip_if_not_installed("numDeriv")
  sigma <- list(name = "sigma", prior = exponential(1))
  phi <- list(name = "phi", prior = exponential(0.5))
  cases <- list(list(binomial(), NULL), list(poisson(), NULL), list(gaussian(), sigma), list(neg_binomial_2(), phi))
  for (case in cases) for (correlated in c(TRUE, FALSE)) {
    problem <- small_problem(case[[1]], correlated, case[[2]])
    setup <- elvi:::nested_setup(problem, base_gaussian())
    theta <- c(-0.3, -0.8, if (correlated) 0.4, -0.6, if (!is.null(case[[2]])) 0.3)
    at <- elvi:::evidence_at(setup, list(theta), tol = 1e-12)[[1]]
    by_difference <- numDeriv::grad(function(t) elvi:::evidence_at(setup, list(t), tol = 1e-12)[[1]]$value, theta)
    expect_equal(at$slope, by_difference, tolerance = 1e-6, info = paste(case[[1]]$family, correlated))
  }
})

test_that("a negative binomial given phi is its own likelihood", {
  problem <- small_problem(neg_binomial_2(), FALSE, list(name = "phi", prior = exponential(1)))
  setup <- elvi:::nested_setup(problem, base_gaussian())
  theta <- c(-12, -12, -12, log(2.5))   # no groups to speak of
  at <- elvi:::evidence_at(setup, list(theta), tol = 1e-10)[[1]]
  # the evidence of a model with two coefficients, by brute force
  f <- function(b) sum(dnbinom(problem$y, mu = exp(drop(problem$X %*% b) + 0.1), size = 2.5, log = TRUE)) +
    sum(dnorm(b, 0, 2.5, log = TRUE))
  mode <- optim(c(0, 0), function(b) -f(b), hessian = TRUE, method = "BFGS", control = list(reltol = 1e-12))
  root <- t(chol(solve(mode$hessian)))
  z <- as.matrix(expand.grid(seq(-6, 6, 0.5), seq(-6, 6, 0.5)))
  values <- apply(z, 1, function(v) f(mode$par + root %*% v))
  evidence <- max(values) + log(sum(exp(values - max(values))) * 0.25) + sum(log(diag(root)))
  bound <- at$value - elvi:::hyper_prior(setup$problem, setup$layout, theta)$value
  expect_lte(bound, evidence + 1e-6)
  expect_gt(bound, evidence - 0.05)
})

test_that("the gaussian evidence is exact, and the answer that of a finer rule", {
  skip_on_cran()
  skip_if_not_installed("lme4")
  problem <- sleep_problem()
  setup <- elvi:::nested_setup(problem, base_gaussian())
  theta <- c(log(25), log(6), 0.2, log(25))
  D <- elvi:::hyper_natural(problem, theta)$terms[[1]]$cov
  V <- as.matrix(problem$Z %*% kronecker(diag(18), D) %*% Matrix::t(problem$Z)) + 25^2 * diag(180) +
    100^2 * tcrossprod(problem$X)
  exact <- -as.double(determinant(V)$modulus) / 2 - sum(problem$y * solve(V, problem$y)) / 2 - 90 * log(2 * pi) +
    elvi:::hyper_prior(problem, setup$layout, theta)$value
  at <- elvi:::evidence_at(setup, list(theta))[[1]]
  expect_equal(at$value, exact, tolerance = 1e-12)
  W <- cbind(problem$X, as.matrix(problem$Z))
  A <- rbind(cbind(diag(1e-4, 2), matrix(0, 2, 36)), cbind(matrix(0, 36, 2), kronecker(diag(18), solve(D))))
  covariance <- solve(A + crossprod(W) / 625)
  expect_equal(elvi:::original_order(setup$plan, at$solution$mu), unname(drop(covariance %*% crossprod(W, problem$y) / 625)),
               tolerance = 1e-8)
  expect_equal(elvi:::original_order(setup$plan, at$solution$variance), unname(diag(covariance)), tolerance = 1e-10)
  fit <- elvi:::nested_fit(problem)
  expect_true(fit$converged)
  expect_false(fit$corrected)   # there is nothing to correct
  expect_lt(fit$change$mean, 0.01)
  finer <- elvi:::nested_fit(problem, control = list(nodes = 8))
  expect_gt(length(finer$nodes), 2 * length(fit$nodes))
  expect_equal(elvi:::hyper_moments(fit)$mean, elvi:::hyper_moments(finer)$mean, tolerance = 5e-3)
  expect_equal(elvi:::hyper_moments(fit)$sd, elvi:::hyper_moments(finer)$sd, tolerance = 2e-2)
  expect_equal(elvi:::node_moments(fit)$sd, elvi:::node_moments(finer)$sd, tolerance = 1e-2)
  # a composite design of 25 nodes is not far from that
  coarse <- elvi:::nested_fit(problem, control = list(nodes = 3))
  expect_length(coarse$nodes, 25L)
  expect_lt(max(abs(elvi:::hyper_moments(coarse)$mean - elvi:::hyper_moments(finer)$mean) / elvi:::hyper_moments(finer)$sd), 0.05)
})

test_that("the composite design integrates what it should", {
  for (H in 3:10) {
    corners <- elvi:::fraction_corners(H)
    expect_identical(ncol(corners), as.integer(H))
    quads <- utils::combn(H, 4 - (H < 4))
    expect_true(all(apply(quads, 2, function(j) sum(apply(corners[, j], 1, prod))) == 0))
    pairs <- utils::combn(H, 2)
    expect_true(all(apply(pairs, 2, function(j) sum(apply(corners[, j], 1, prod))) == 0))
  }
})

points_of <- function(theta) lapply(seq_len(ncol(theta)), function(i) theta[, i])

# a density of theta that is known, as evidence_at() would return it
known_density <- function(log_p, slope) {
  function(setup, thetas, from = NULL, tol = 1e-7) {
    lapply(thetas, function(theta) list(theta = theta, value = log_p(theta), slope = slope(theta), solution = list()))
  }
}

test_that("many hyperparameters: calibrated weights are exact for a normal density, and right for others", {
  set.seed(1)
  H <- 6
  R <- matrix(rnorm(H^2), H) / 2 + diag(H)
  Q <- crossprod(R)
  at <- elvi:::quasi_random(100, H)
  expect_equal(colMeans(at), rep(0.5, H), tolerance = 0.05)
  axes <- list(vectors = eigen(Q)$vectors, sd = 1.5 / sqrt(eigen(Q)$values))   # too wide
  mode <- list(theta = rep(1, H))
  proposal <- elvi:::first_proposal(mode, axes, matrix(1, H, 2))
  theta <- elvi:::proposed_points(proposal, at)
  found <- known_density(function(x) -sum((x - 1) * (Q %*% (x - 1))) / 2, function(x) drop(-Q %*% (x - 1)))(NULL, points_of(theta))
  values <- vapply(found, function(f) f$value, 0)
  log_rule <- elvi:::calibrated_rule(values, -elvi:::mixed_density(list(proposal), 200, theta), found, mode, axes)
  w <- elvi:::normalised(values + log_rule)
  expect_equal(drop(theta %*% w), rep(1, H), tolerance = 1e-6)
  expect_equal(unname((theta - 1) %*% (w * t(theta - 1))), solve(Q), tolerance = 1e-6)
  # independent exponential variables by their logarithms: far from normal, of known moments
  found <- known_density(function(x) sum(x - exp(x)), function(x) 1 - exp(x))
  mode <- list(theta = numeric(H))
  axes <- list(vectors = diag(H), sd = rep(1, H))
  proposal <- elvi:::first_proposal(mode, axes, cbind(rep(0.8, H), 1.3))
  theta <- elvi:::proposed_points(proposal, elvi:::quasi_random(1000, H))
  found <- found(NULL, points_of(theta))
  values <- vapply(found, function(f) f$value, 0)
  log_density <- elvi:::mixed_density(list(proposal), ncol(theta), theta)
  w <- elvi:::normalised(values + elvi:::calibrated_rule(values, -log_density, found, mode, axes))
  expect_lt(max(abs(drop(exp(theta) %*% w) - 1)), 0.02)
  expect_lt(max(abs(drop(theta %*% w) - digamma(1))), 0.05)
  expect_lt(max(abs(drop(exp(theta)^2 %*% w) - 2)), 0.15)
  expect_lt(abs(log(sum(exp(values - log_density)))), 0.1)   # the constant
  # and the next proposal has their moments
  moved <- elvi:::next_proposal(theta, w)
  expect_equal(moved$centre, rep(digamma(1), H), tolerance = 0.1)
})

test_that("seven hyperparameters: the answer hardly moves, and agrees with a finer one", {
  skip_on_cran()
  set.seed(1)
  g <- rep(1:20, each = 8)
  x <- matrix(rnorm(320), 160, dimnames = list(NULL, c("a", "b")))
  u <- matrix(rnorm(60), 20) %*% diag(c(0.8, 0.5, 0.4))
  y <- 0.3 + rowSums(cbind(1, x) * u[g, ]) + rnorm(160)
  problem <- nested_problem(cbind(1, x), y, gaussian(), terms = list(group_term("g", g, x, correlated = TRUE)),
                            dispersion = list(name = "sigma", prior = exponential(1)))
  fit <- elvi:::nested_fit(problem)
  expect_length(fit$hyper$mode, 7L)
  expect_lt(max(unlist(fit$change)), 0.08)
  finer <- elvi:::nested_fit(problem, control = list(nodes = 100))
  here <- elvi:::hyper_moments(fit)
  there <- elvi:::hyper_moments(finer)
  expect_lt(max(abs(here$mean - there$mean) / there$sd), 0.08)
  expect_lt(max(abs(here$sd / there$sd - 1)), 0.08)
  expect_gte(fit$change$mean, 1 / sqrt(length(fit$nodes)))   # never less than the noise of so many nodes
})

test_that("cbpp: the figures of 8,000 NUTS draws", {
  skip_if_not_installed("lme4")
  fit <- elvi:::nested_fit(cbpp_problem())
  at <- elvi:::node_moments(fit)
  nuts <- list(mean = c(-1.414, -0.973, -1.115, -1.561), sd = c(0.255, 0.308, 0.326, 0.422))
  expect_lt(max(abs(at$mean[1:4] - nuts$mean) / nuts$sd), 0.1)
  expect_lt(max(abs(at$sd[1:4] / nuts$sd - 1)), 0.05)
  hyper <- elvi:::hyper_moments(fit)
  expect_lt(abs(hyper$mean - 0.722) / 0.212, 0.1)
  expect_lt(abs(hyper$sd / 0.212 - 1), 0.05)
  expect_true(fit$converged)
  expect_true(all(vapply(fit$nodes, function(n) n$certificate, 0) < 1e-6))
  expect_true(all(vapply(fit$nodes, function(n) n$certificate_kind, "") == "rigorous"))
  expect_identical(fit$draws, 200)
  expect_equal(sum(fit$hyper$weight), 1)
  expect_gt(fit$evidence$corrected, fit$evidence$log)
})

test_that("draws and variances of a node are those of its optimum", {
  problem <- small_problem(poisson())
  fit <- elvi:::nested_fit(problem, base_laplace(), control = list(nodes = 1))
  expect_length(fit$nodes, 1L)
  node <- fit$nodes[[1]]
  best <- dense_conditional(problem, node$theta, base_laplace())
  V <- cbind(problem$X, problem$Z)
  expect_equal(elvi:::node_variance(fit, 1, V, chunk = 7L), unname(rowSums((as.matrix(V) %*% best$covariance) * as.matrix(V))),
               tolerance = 1e-4)
  d <- ncol(V)
  x <- elvi:::node_draws(fit, 1, cbind(diag(d), 0))
  expect_equal(x[, d + 1], node$mu)
  root <- x[, seq_len(d)] - node$mu
  expect_equal(tcrossprod(root), best$covariance, tolerance = 1e-4, ignore_attr = TRUE)
})

# log p(y) of a random intercept and its moments by brute force: Gauss-Legendre for each
# group, a lattice over coefficients and log sd
random_intercept_reference <- function(X, y, g, centre, spread, theta) {
  gl <- elvi:::gauss_legendre(40)
  z <- gl$x * 6
  log_w <- log(gl$w * 6 * dnorm(z))
  log_p <- function(b, a) {
    t <- outer(drop(X %*% b), exp(a) * z, "+")
    by_group <- rowsum(y * t - (pmax(t, 0) + log1p(exp(-abs(t)))), g) + rep(log_w, each = max(g))
    top <- apply(by_group, 1, max)
    sum(top + log(rowSums(exp(by_group - top)))) + sum(dnorm(b, 0, 2.5, log = TRUE)) - exp(a) + a
  }
  steps <- as.matrix(expand.grid(-4:4, -4:4))
  steps <- steps[rowSums(steps^2) < 14, ]
  points <- do.call(rbind, lapply(theta, function(a) cbind(centre[1] + spread[1] * steps[, 1], centre[2] + spread[2] * steps[, 2], a)))
  value <- apply(points, 1, function(p) log_p(p[1:2], p[3]))
  w <- exp(value - max(value)) / sum(exp(value - max(value)))
  natural <- cbind(points[, 1:2], exp(points[, 3]))
  mean <- colSums(w * natural)
  list(mean = mean, sd = sqrt(colSums(w * natural^2) - mean^2))
}

test_that("binary data with four rows a group: corrected weights are right", {
  skip_on_cran()
  set.seed(3)
  J <- 150
  g <- rep(seq_len(J), each = 4)
  x <- rnorm(4 * J)
  y <- rbinom(4 * J, 1, plogis(-0.3 + 0.7 * x + 1.5 * rnorm(J)[g]))
  fit <- elvi:::nested_fit(nested_problem(cbind(1, x), y, terms = list(group_term("g", g))))
  at <- elvi:::node_moments(fit)
  hyper <- elvi:::hyper_moments(fit)
  reference <- random_intercept_reference(cbind(1, x), y, g, at$mean[1:2], 1.02 * at$sd[1:2], seq(-0.7, 1.3, by = 0.1))
  mean <- c(at$mean[1:2], hyper$mean)
  sd <- c(at$sd[1:2], hyper$sd)
  expect_lt(max(abs(mean - reference$mean) / reference$sd), 0.06)
  expect_lt(max(abs(sd / reference$sd - 1)), 0.03)
  raw <- elvi:::hyper_moments(fit, elvi:::normalised(fit$hyper$log_weight))
  expect_gt(abs(raw$mean - reference$mean[3]) / reference$sd[3], 0.1)   # there was something to correct
  expect_true(fit$corrected)
})

test_that("a variance at zero is no failure", {
  set.seed(1)
  g <- rep(1:30, each = 5)
  x <- rnorm(150)
  y <- 1 + x + rnorm(150) - ave(rnorm(150), g)
  y <- y - ave(y - 1 - x, g)   # groups differ less than by chance
  problem <- nested_problem(cbind(1, x), y, gaussian(), prior_scale = 10, terms = list(group_term("g", g)),
                            dispersion = list(name = "sigma", prior = exponential(1)))
  fit <- elvi:::nested_fit(problem)
  expect_true(fit$converged)
  hyper <- elvi:::hyper_moments(fit)
  expect_lt(hyper$mean[1], 0.25)
  expect_lt(fit$change$mean, 0.05)
  expect_true(all(is.finite(unlist(elvi:::node_moments(fit)))))
})

test_that("no groups: the nested answer of a regression with unknown dispersion", {
  set.seed(2)
  X <- cbind(1, rnorm(40))
  y <- drop(X %*% c(1, 2)) + rnorm(40, 0, 1.5)
  problem <- nested_problem(X, y, gaussian(), prior_scale = 1e3, dispersion = list(name = "sigma", prior = cauchy(0, 1e3)))
  fit <- elvi:::nested_fit(problem)
  at <- elvi:::node_moments(fit)
  # with vague priors, student t around least squares, and an inverse gamma variance
  lm <- lm.fit(X, y)
  rss <- sum(lm$residuals^2)
  expect_equal(at$mean, unname(lm$coefficients), tolerance = 1e-4)
  nu <- 38 - 1   # a flat prior of sigma, not of log sigma
  sds <- sqrt(diag(solve(crossprod(X))) * rss / nu) * sqrt(nu / (nu - 2))
  expect_equal(at$sd, unname(sds), tolerance = 0.01)
  counts <- rnbinom(60, mu = 4, size = 2)
  nb <- elvi:::nested_fit(nested_problem(matrix(1, 60, 1), counts, neg_binomial_2(),
                                         dispersion = list(name = "phi", prior = exponential(0.5))))
  expect_true(nb$converged)
  expect_equal(elvi:::node_moments(nb)$mean, log(mean(counts)), tolerance = 0.05)
  # and nothing to integrate over: one node
  one <- elvi:::nested_fit(nested_problem(matrix(1, 60, 1), counts, poisson()))
  expect_length(one$nodes, 1L)
  best <- elvi_optimum(model_glm(matrix(1, 60, 1), counts, poisson()))
  expect_equal(one$nodes[[1]]$mu, unname(best$mu), tolerance = 1e-6)
})

test_that("odd shapes: one row a group, one column, no fixed effects, constant slopes", {
  set.seed(4)
  y <- rpois(40, 3)
  fit <- elvi:::nested_fit(nested_problem(matrix(1, 40, 1), y, poisson(), terms = list(group_term("row", 1:40))))
  expect_true(fit$converged)
  none <- elvi:::nested_fit(nested_problem(matrix(0, 40, 0), y, poisson(), terms = list(group_term("g", rep(1:8, 5)))))
  expect_true(none$converged)
  single <- elvi:::nested_fit(nested_problem(matrix(0, 40, 0), y, poisson(), terms = list(group_term("g", rep(1, 40)))))
  expect_true(single$converged)
  expect_length(single$nodes[[1]]$mu, 1L)
  constant <- nested_problem(matrix(1, 40, 1), y, poisson(),
                             terms = list(group_term("g", rep(1:8, 5), cbind(k = rep(1, 40)))))
  expect_true(elvi:::nested_fit(constant)$converged)
})

test_that("flat fixed effects: an estimated certificate, and a refusal where nothing is identified", {
  problem <- small_problem(binomial())
  problem$prior$precision[] <- 0
  fit <- elvi:::nested_fit(problem, control = list(nodes = 1))
  expect_identical(fit$nodes[[1]]$certificate_kind, "estimated")
  expect_false(fit$evidence$proper)
  problem$X <- cbind(problem$X, problem$X[, 2])
  problem$prior <- list(centre = numeric(3), precision = numeric(3))
  expect_error(elvi:::nested_fit(problem), class = "elvi_error_no_optimum")
})

test_that("bases whose expectation does not exist are refused", {
  expect_error(elvi:::nested_fit(small_problem(poisson()), base_student(5)), class = "elvi_error_no_expectation")
})

test_that("results do not depend on the number of threads", {
  skip_on_cran()
  problem <- small_problem(binomial())
  withr_threads <- function(n) {
    old <- options(elvi.threads = n)
    on.exit(options(old))
    elvi:::nested_fit(problem)
  }
  one <- withr_threads(1)
  two <- withr_threads(2)
  expect_identical(one$hyper, two$hyper)
  expect_identical(one$k_hat, two$k_hat)
})

# mode of the same for counts, each group integrated by 25 nodes, and sds by its curvature
random_intercept_mode <- function(X, y, g, start, scale) {
  gl <- elvi:::gauss_legendre(25)
  z <- gl$x * 5.5
  log_w <- log(gl$w * 5.5 * dnorm(z))
  log_p <- function(p) {
    t <- drop(X %*% p[1:2])
    by_group <- vapply(exp(p[3]) * z, function(u) rowsum(y * (t + u) - exp(t + u), g)[, 1], numeric(max(g))) +
      rep(log_w, each = max(g))
    top <- do.call(pmax, as.data.frame(by_group))
    sum(top + log(rowSums(exp(by_group - top)))) + sum(dnorm(p[1:2], 0, 2.5, log = TRUE)) - exp(p[3]) + p[3]
  }
  found <- optim(start, log_p, method = "BFGS", hessian = TRUE, control = list(fnscale = -1, parscale = scale, reltol = 1e-12))
  list(mode = found$par, sd = sqrt(diag(solve(-found$hessian))))
}

test_that("many groups of few rows: nodes lie where the corrected law is, and means are right", {
  skip_on_cran()
  set.seed(1)
  J <- 1e4
  g <- rep(seq_len(J), each = 2)
  x <- rnorm(2 * J)
  y <- rpois(2 * J, exp(0.2 + 0.3 * x + rnorm(J, 0, 0.5)[g]))
  fit <- elvi:::nested_fit(nested_problem(cbind(1, x), y, poisson(), terms = list(group_term("g", g))))
  at <- elvi:::node_moments(fit)
  hyper <- elvi:::hyper_moments(fit)
  reference <- random_intercept_mode(cbind(1, x), y, g, c(at$mean[1:2], log(hyper$mean)), c(at$sd[1:2], hyper$sd / hyper$mean))
  expect_lt(max(abs(c(at$mean[1:2], log(hyper$mean)) - reference$mode) / reference$sd), 0.05)
  expect_lt(max(abs(c(at$sd[1:2], hyper$sd / hyper$mean) / reference$sd - 1)), 0.05)
  expect_lt(max(unlist(fit$change)), 0.02)
  expect_false(is.null(fit$setup$lean))   # there was something to lean
})

test_that("100,000 levels", {
  skip_on_cran()
  set.seed(6)
  J <- 1e5
  g <- rep(seq_len(J), each = 2)
  y <- rbinom(2 * J, 1, plogis(-1 + rnorm(J)[g]))
  problem <- nested_problem(matrix(1, 2 * J, 1), y, terms = list(group_term("g", g)))
  setup <- elvi:::nested_setup(problem, base_gaussian())
  at <- elvi:::evidence_at(setup, list(0))[[1]]
  expect_lt(at$solution$certificate, 1e-6)
  expect_lt(length(setup$plan$pattern$row), 3 * J)
})

test_that("progress is shown of long runs only, once a second", {
  now <- 0
  say <- elvi:::patient_voice(clock = function() now)
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
  setTimeLimit(elapsed = 3, transient = TRUE)
  on.exit(setTimeLimit(elapsed = Inf))
  expect_error(elvi:::nested_fit(problem))
  setTimeLimit(elapsed = Inf)
  expect_lt(proc.time()[["elapsed"]] - start, 20)
})
