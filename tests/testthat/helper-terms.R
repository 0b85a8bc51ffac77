# Latent terms against dense algebra that shares nothing with the solver but the entries of Q.

term_matrix <- function(term, theta) {
  record <- term_record(term)
  entries <- record$entries(term)
  value <- record$precision(term, theta)$value
  Q <- matrix(0, length(term$columns), length(term$columns))
  Q[cbind(entries$row, entries$column)] <- value[entries$source]
  Q[cbind(entries$column, entries$row)] <- value[entries$source]
  Q
}

# the covariance of effects whose constraints hold
term_dense_covariance <- function(term, theta) {
  a <- term_record(term)$constraints(term)
  Q <- term_matrix(term, theta)
  if (is.null(a) || !ncol(a)) return(solve(Q, tol = 0))
  rest <- qr.Q(qr(a), complete = TRUE)[, -seq_len(ncol(a)), drop = FALSE]
  rest %*% solve(crossprod(rest, Q %*% rest), t(rest))
}

differences <- function(f, x, h = 1e-5) {
  vapply(seq_along(x), function(j) (f(replace(x, j, x[j] + h)) - f(replace(x, j, x[j] - h))) / (2 * h), 0)
}

# log determinant, derivatives, constraints and priors of a record belong together
expect_record <- function(term, theta) {
  record <- term_record(term)
  at <- record$precision(term, theta)
  entries <- record$entries(term)
  expect_true(all(entries$row >= entries$column))
  expect_length(theta, length(record$theta_names(term)))
  expect_length(at$value, max(entries$source))
  a <- record$constraints(term)
  k <- if (is.null(a)) 0L else ncol(a)
  whole <- diag(length(term$columns))
  rest <- if (k) qr.Q(qr(a), complete = TRUE)[, -seq_len(k), drop = FALSE] else whole
  log_det <- function(theta) as.double(determinant(crossprod(rest, term_matrix(term, theta) %*% rest))$modulus)
  expect_equal(at$log_det, log_det(theta), tolerance = 1e-6)
  if (k) {
    expect_equal(crossprod(a), diag(k))
    expect_equal(term_matrix(term, theta) %*% a, t(t(a) / at$slack), tolerance = 1e-6)
  }
  set.seed(1)
  S <- tcrossprod(rest %*% matrix(rnorm(ncol(rest)^2), ncol(rest)))
  moment <- as.double(rowsum(S[cbind(entries$row, entries$column)], factor(entries$source, seq_len(max(entries$source)))))
  moment[is.na(moment)] <- 0
  criterion <- function(theta) log_det(theta) / 2 - sum(term_matrix(term, theta) * S) / 2
  expect_equal(at$slope(moment), differences(criterion, theta), tolerance = 1e-5)
  expect_equal(record$log_prior(term, theta)$slope, differences(function(theta) record$log_prior(term, theta)$value, theta), tolerance = 1e-6)
  natural <- record$natural(term, rbind(theta, theta))
  expect_named(natural, record$natural_names(term))
  expect_length(record$tidy_names(term), length(natural))
  expect_length(record$effect_names(term), length(term$columns))
  expect_length(record$start(term, Matrix::Matrix(1, 3, length(term$columns), sparse = TRUE), 1), length(theta))
  expect_length(record$curvature(term), length(theta))
}

# A gaussian response given hyperparameters: evidence, means and standard deviations are those of a normal distribution.
expect_closed_form <- function(formula, data, theta, sigma = 0.5, tolerance = 1e-8, ...) {
  problem <- conditional_problem(elvi_problem(formula, data, dispersion = sigma^2, ...))
  setup <- nested_setup(problem, base_gaussian())
  at <- evidence_at(setup, list(theta), tol = 1e-12)[[1L]]
  node <- conditional_node(at, setup)
  X <- setup$problem$X
  Z <- as.matrix(setup$problem$Z)
  K <- matrix(0, ncol(Z), ncol(Z))
  layout <- setup$layout
  for (t in seq_along(problem$terms)) {
    term <- problem$terms[[t]]
    K[term$columns, term$columns] <- term_dense_covariance(term, theta[layout$terms[[t]]$theta])
  }
  prior <- problem$prior
  W <- cbind(X, Z)
  V <- rbind(cbind(diag(1 / prior$precision, ncol(X)), matrix(0, ncol(X), ncol(Z))), cbind(matrix(0, ncol(Z), ncol(X)), K))
  S <- W %*% V %*% t(W) + diag(sigma^2 / (problem$weight * sigma^2), nrow(W))
  off <- problem$y - problem$offset - drop(X %*% prior$centre)
  root <- chol(S)
  z <- backsolve(root, off, transpose = TRUE)
  gain <- V %*% t(W) %*% chol2inv(root)
  mean <- c(prior$centre, numeric(ncol(Z))) + drop(gain %*% off)
  sd <- sqrt(pmax(diag(V - gain %*% W %*% V), 0))
  value <- -sum(z^2) / 2 - sum(log(diag(root))) - length(z) / 2 * log(2 * pi)
  log_prior <- hyper_prior(setup$problem, layout, theta)$value
  expect_equal(node$mu, mean, tolerance = tolerance)
  expect_equal(node$sd, sd, tolerance = tolerance)
  expect_equal(at$value, value + log_prior, tolerance = tolerance)
  slope <- differences(function(theta) evidence_at(setup, list(theta), tol = 1e-12)[[1L]]$value, theta, 1e-4)
  expect_equal(at$slope, slope, tolerance = 1e-5)
  # with sigma as the last hyperparameter
  free <- nested_setup(conditional_problem(elvi_problem(formula, data, ...)), base_gaussian())
  theta <- c(theta, log(sigma))
  value <- function(theta) evidence_at(free, list(theta), tol = 1e-12)[[1L]]$value
  expect_equal(evidence_at(free, list(theta), tol = 1e-12)[[1L]]$slope, differences(value, theta, 1e-4), tolerance = 1e-5)
  invisible(list(setup = setup, node = node))
}

# Any response given hyperparameters: the same optimum as elvi_optimum() finds among all dense scales, in a basis of the effects
# that satisfy
# the constraints.
expect_dense_optimum <- function(formula, data, family, theta) {
  problem <- conditional_problem(elvi_problem(formula, data, family = family))
  setup <- nested_setup(problem, base_gaussian())
  at <- evidence_at(setup, list(theta), tol = 1e-9)[[1L]]
  node <- conditional_node(at, setup)
  expect_identical(node$certificate_kind, "rigorous")
  expect_lt(node$certificate, 1e-6)
  X <- setup$problem$X
  Z <- as.matrix(setup$problem$Z)
  root <- matrix(0, ncol(Z), 0L)
  layout <- setup$layout
  for (t in seq_along(problem$terms)) {
    term <- problem$terms[[t]]
    e <- eigen(term_dense_covariance(term, theta[layout$terms[[t]]$theta]), symmetric = TRUE)
    used <- e$values > 1e-10 * e$values[1L]
    own <- matrix(0, ncol(Z), sum(used))
    own[term$columns, ] <- e$vectors[, used] %*% diag(sqrt(e$values[used]), sum(used))
    root <- cbind(root, own)
  }
  scale <- 1 / sqrt(problem$prior$precision)
  model <- suppressMessages(model_glm(cbind(X %*% diag(scale, ncol(X)), Z %*% root), problem$y, family, prior = normal(0, 1),
                                      offset = problem$offset + drop(X %*% problem$prior$centre)))
  best <- elvi_optimum(model, tol = 1e-10)
  p <- seq_len(ncol(X))
  expect_equal(node$mu, c(problem$prior$centre + scale * best$mu[p], drop(root %*% best$mu[-p])), tolerance = 1e-4, ignore_attr = TRUE)
  V <- vcov(best)
  expect_equal(node$sd[-p], sqrt(diag(root %*% V[-p, -p] %*% t(root))), tolerance = 1e-4, ignore_attr = TRUE)
  expect_equal(at$value - hyper_prior(setup$problem, layout, theta)$value, as.double(best$elbo), tolerance = 1e-6)
}
