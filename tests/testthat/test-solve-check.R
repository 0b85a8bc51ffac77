# two coefficients and one sd of groups: data, fit, and its posterior means and sds
one_intercept <- function(J, rows, sd, response, family) {
  g <- rep(seq_len(J), each = rows)
  X <- cbind(1, x = rnorm(rows * J))
  y <- response(rnorm(J, 0, sd)[g], X[, "x"])
  fit <- nested_fit(nested_problem(X, y, family, terms = list(group_term("g", g))))
  at <- node_moments(fit)
  hyper <- nested_hyper_moments(fit)
  list(X = X, y = y, g = g, fit = fit, mean = c(at$mean[1:2], hyper$mean), sd = c(at$sd[1:2], hyper$sd))
}

test_that("draws and variances of a node are those of its optimum", {
  skip_on_cran()
  problem <- small_problem(poisson())
  fit <- nested_fit(problem, base_laplace(), control = list(nodes = 1))
  expect_length(fit$nodes, 1L)
  node <- fit$nodes[[1]]
  best <- dense_conditional(problem, node$theta, base_laplace())
  V <- cbind(problem$X, problem$Z)
  roots <- new_sparse_roots(fit$setup$plan, list(node$setting), matrix(node$sd), -node$log_det / 2)
  root <- root_at(roots, 1)
  expect_equal(rowSums(root_rows(root, V)^2), unname(rowSums((as.matrix(V) %*% best$covariance) * as.matrix(V))),
               tolerance = 1e-4)
  d <- ncol(V)
  R <- root_times(root, diag(d))
  expect_equal(tcrossprod(R), best$covariance, tolerance = 1e-4, ignore_attr = TRUE)
  expect_equal(root_log_det(root), as.double(determinant(best$covariance)$modulus) / 2, tolerance = 1e-4)
  expect_equal(root_solve(root, R), diag(d), tolerance = 1e-8)
})

# log p(y) of a random intercept and its moments by brute force: Gauss-Legendre for each
# group, a lattice over coefficients and log sd
random_intercept_reference <- function(X, y, g, centre, spread, theta) {
  gl <- gauss_legendre(40)
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

# mode of the same for counts, each group integrated by 25 nodes, and sds by its curvature
random_intercept_mode <- function(X, y, g, start, scale) {
  gl <- gauss_legendre(25)
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

test_that("binary data with four rows a group: corrected weights are right", {
  skip_on_cran()
  set.seed(3)
  at <- one_intercept(150, 4, 1.5, function(u, x) rbinom(length(x), 1, plogis(-0.3 + 0.7 * x + u)), binomial())
  reference <- random_intercept_reference(at$X, at$y, at$g, at$mean[1:2], 1.02 * at$sd[1:2], seq(-0.7, 1.3, by = 0.1))
  expect_lt(max(abs(at$mean - reference$mean) / reference$sd), 0.06)
  expect_lt(max(abs(at$sd / reference$sd - 1)), 0.03)
  raw <- moments_of_theta(at$fit$setup, at$fit$hyper$theta, normalised(at$fit$hyper$log_weight))
  expect_gt(abs(raw$mean - reference$mean[3]) / reference$sd[3], 0.1)   # there was something to correct
  expect_true(at$fit$corrected)
})

test_that("many groups of few rows: nodes lie where the corrected law is, and means are right", {
  skip_on_cran()
  set.seed(1)
  at <- one_intercept(2000, 2, 0.5, function(u, x) rpois(length(x), exp(0.2 + 0.3 * x + u)), poisson())
  mean <- c(at$mean[1:2], log(at$mean[3]))
  sd <- c(at$sd[1:2], at$sd[3] / at$mean[3])
  reference <- random_intercept_mode(at$X, at$y, at$g, mean, sd)
  expect_lt(max(abs(mean - reference$mode) / reference$sd), 0.025)   # a bias grows with the root of the number of groups
  expect_lt(max(abs(sd / reference$sd - 1)), 0.025)
  expect_lt(max(unlist(at$fit$change)), 0.02)
  expect_false(is.null(at$fit$setup$lean))   # there was something to lean
})

test_that("100,000 levels", {
  skip_on_cran()
  set.seed(6)
  J <- 1e5
  g <- rep(seq_len(J), each = 2)
  y <- rbinom(2 * J, 1, plogis(-1 + rnorm(J)[g]))
  problem <- nested_problem(matrix(1, 2 * J, 1), y, terms = list(group_term("g", g)))
  setup <- nested_setup(problem, base_gaussian())
  at <- evidence_at(setup, list(0))[[1]]
  expect_lt(at$solution$certificate, 1e-6)
  expect_lt(length(setup$plan$pattern$row), 3 * J)
})
