# Sparse factors, selected inverses, and optima with a sparse design.

random_pattern <- function(q, border, density) {
  Z <- Matrix::rsparsematrix(3 * q, q, density)
  entries <- list(row = seq_len(q), column = seq_len(q), source = seq_len(q))
  list(Z = Z, filled = factor_pattern(Matrix::crossprod(abs(Z)), entries, seq_len(q), border))
}

# the full matrix of values on a pattern, lower triangle mirrored
full_matrix <- function(pattern, values) {
  d <- pattern$dim
  M <- matrix(0, d, d)
  head <- pattern$head
  if (head) {
    column <- rep(seq_len(head), diff(pattern$start))
    M[cbind(pattern$row + 1L, column)] <- values[seq_along(pattern$row)]
  }
  if (head < d) {
    t <- d - head
    block <- matrix(values[length(pattern$row) + seq_len(t^2)], t)
    block[upper.tri(block)] <- 0
    M[head + seq_len(t), head + seq_len(t)] <- block
  }
  M
}

test_that("factor and selected inverse agree with solve() on random patterns", {
  skip_on_cran()
  set.seed(1)
  for (case in list(c(1, 0, 1), c(1, 2, 1), c(8, 0, 0.05), c(30, 0, 0.03), c(30, 3, 0.03), c(40, 5, 0.2), c(60, 1, 0.01))) {
    q <- case[1]
    at <- random_pattern(q, case[2], case[3])
    pattern <- at$filled$pattern
    W <- cbind(as.matrix(at$Z)[, at$filled$perm, drop = FALSE], matrix(rnorm(3 * q * case[2]), 3 * q, case[2]))
    P <- crossprod(W) + diag(runif(ncol(W)) + 0.1, ncol(W))
    inside <- full_matrix(pattern, rep(1, length(pattern$row) + (pattern$dim - pattern$head)^2)) > 0
    values <- numeric(length(pattern$row) + (pattern$dim - pattern$head)^2)
    where <- which(inside, arr.ind = TRUE)
    place <- .Call(elvi_r_pattern_places, pattern, where[, 1] - 1L, where[, 2] - 1L) + 1L
    expect_identical(anyDuplicated(place), 0L)
    expect_true(all(P[lower.tri(P) & !inside] == 0))   # the pattern has room for everything
    values[place] <- P[where]
    out <- .Call(elvi_r_sparse_inverse, pattern, values)
    expect_identical(out$status, 0L)
    L <- full_matrix(pattern, out$factor)
    expect_equal(L %*% t(L), P, tolerance = 1e-12, ignore_attr = TRUE)
    expect_equal(full_matrix(pattern, out$inverse)[inside], solve(P)[inside], tolerance = 1e-9)
  }
  values[place[where[, 1] == 1 & where[, 2] == 1]] <- -1
  expect_gt(.Call(elvi_r_sparse_inverse, pattern, values)$status, 0L)
})

test_that("a sparse optimum is the dense one, for every family and base", {
  skip_on_cran()
  set.seed(2)
  n <- 60
  X <- cbind(1, matrix(rnorm(n * 2), n), Matrix::rsparsematrix(n, 12, 0.1))
  dense <- as.matrix(X)
  eta <- drop(dense %*% c(-0.5, 0.5, -0.3, rnorm(12, 0, 0.5)))
  cases <- list(list(binomial(), rbinom(n, 1, plogis(eta))), list(binomial("probit"), rbinom(n, 1, pnorm(eta))),
                list(binomial("cloglog"), rbinom(n, 1, 1 - exp(-exp(eta)))), list(poisson(), rpois(n, exp(eta))),
                list(gaussian(), rnorm(n, eta)))
  bases <- list(base_gaussian(), base_laplace(), base_uniform(), base_student(6), base_power(3))
  for (case in cases) for (base in bases) {
    # every base with one family, every family with one base and where there is no expectation
    if (!long_tests() && case[[1]]$link != "logit" && base$kind %in% c("laplace", "uniform", "power")) next
    model <- model_glm(dense, case[[2]], case[[1]], prior = normal(0.1, 2), offset = rep(0.2, n))
    label <- paste(case[[1]]$link, base$kind)
    if (case[[1]]$link %in% c("log", "cloglog") && base$kind == "student") {
      expect_error(sparse_optimum(model, base), class = "elvi_error_no_expectation")
      next
    }
    best <- elvi_optimum(model, base, tol = 1e-11)
    found <- sparse_optimum(model, base, tol = 1e-11)
    expect_true(found$converged, info = label)
    expect_identical(found$certificate_kind, "rigorous", info = label)
    expect_equal(found$objective, best$objective, tolerance = 1e-11, info = label)
    expect_equal(unname(found$mu), unname(best$mu), tolerance = 1e-5, info = label)
    expect_equal(unname(root_sd(found$scale)), unname(sqrt(diag(vcov(best)))), tolerance = 1e-5, info = label)
    # a certificate is a bound wherever the solver stops
    early <- suppressWarnings(sparse_optimum(model, base, tol = 1e-12, max_evaluations = 2))
    expect_gte(early$certificate, (early$objective - best$objective) * (1 - 1e-6) - 1e-9)
  }
})

test_that("a prior precision may be any sparse positive definite matrix", {
  set.seed(3)
  n <- 80
  d <- 15
  X <- Matrix::rsparsematrix(n, d, 0.2)
  y <- rbinom(n, 1, 0.4)
  Q <- Matrix::bandSparse(d, k = 0:1, diagonals = list(rep(2.1, d), rep(-1, d - 1)), symmetric = TRUE)
  found <- elvi_optimum(model_glm(X, y, prior = normal(0, precision = Q)), tol = 1e-11)
  root <- solve(chol(as.matrix(Q)))
  best <- elvi_optimum(model_glm(as.matrix(X) %*% root, y, prior = normal(0, 1)), tol = 1e-11)
  expect_equal(unname(found$mu), unname(drop(root %*% best$mu)), tolerance = 1e-5)
  expect_equal(found$objective, best$objective + sum(log(diag(chol(as.matrix(Q))))), tolerance = 1e-11)
  expect_true(found$converged)
})

test_that("flat priors have an estimated certificate, and refusals are by name", {
  set.seed(4)
  X <- cbind(1, rnorm(50))
  y <- rbinom(50, 1, 0.5)
  model <- model_glm(X, y, prior = flat())
  found <- sparse_optimum(model)
  expect_identical(found$certificate_kind, "estimated")
  expect_equal(found$objective, elvi_optimum(model)$objective, tolerance = 1e-9)
  expect_error(sparse_optimum(model_glm(X, y, prior = student_t())), class = "elvi_error_argument")
})

linked_example <- function() {
  set.seed(3)
  X <- as.matrix(Matrix::rsparsematrix(120, 12, 0.2))
  Q <- Matrix::bandSparse(12, k = 0:1, diagonals = list(rep(2.1, 12), rep(-1, 11)), symmetric = TRUE)
  list(X = X, y = rbinom(120, 1, 0.4), Q = Q, model = model_glm(X, rbinom(120, 1, 0.4), prior = normal(0.2, precision = Q)))
}

test_that("a fit with a matrix as prior precision is that of whitened coefficients", {
  skip_on_cran()
  at <- linked_example()
  model <- model_glm(at$X, at$y, prior = normal(0.2, precision = at$Q))
  fit <- elvi(model, correct = FALSE)
  R <- solve(chol(as.matrix(at$Q)))
  white <- elvi(model_glm(at$X %*% R, at$y, prior = normal(0, 1), offset = drop(at$X %*% rep(0.2, 12))), correct = FALSE)
  expect_identical(fit$method, "exact")
  expect_equal(unname(coef(fit)), 0.2 + drop(R %*% coef(white)), tolerance = 1e-5)
  expect_equal(unname(vcov(fit)), unname(R %*% vcov(white) %*% t(R)), tolerance = 1e-4)
  expect_equal(fit$Sigma %*% fit$Sigma, vcov(fit), tolerance = 1e-8)
  # f has the whole precision in it, and its gradient too
  x <- matrix(rnorm(24), 12)
  value <- function(x) target_at(model, matrix(x, 12))$value
  expect_equal(diff(value(x)), diff(target_at(white$model, solve(R, x - 0.2))$value), tolerance = 1e-10)
  h <- 1e-5
  slope <- vapply(1:12, function(j) (value(x[, 1] + h * (1:12 == j)) - value(x[, 1] - h * (1:12 == j))) / (2 * h), 0)
  expect_equal(target_at(model, x)$gradient[, 1], slope, tolerance = 1e-6)
  expect_lt(pareto_k(fit)$k, 0.7)
  by_draws <- objective(fit, method = "monte_carlo", draws = 2000)
  expect_lt(abs(by_draws$estimate - objective(fit)$estimate), 5 * by_draws$se)
})

test_that("what cannot be had with a matrix as prior precision is refused by name", {
  at <- linked_example()
  expect_error(elvi(at$model, method = "mpsgd"), class = "elvi_error_argument")
  expect_error(elvi(at$model, control = elvi_control(scale = "diagonal")), class = "elvi_error_argument")
  expect_error(normal(0, precision = -at$Q), "positive definite")
  expect_error(normal(0, precision = matrix(1:4, 2)), "symmetric")
  expect_error(normal(0, 1, precision = at$Q), "not used")
  expect_error(model_glm(at$X[, 1:3], at$y, prior = normal(0, precision = at$Q)), class = "elvi_error_argument")
  expect_error(model_glm(at$X, at$y + 0.5, gaussian(), dispersion = NULL, prior = normal(0, precision = at$Q)), class = "elvi_error_argument")
  expect_error(elvi(y ~ X, at, prior = normal(0, precision = at$Q), family = binomial()), class = "elvi_error_argument")
})

test_that("20,000 sparse columns fit in memory proportional to the factor", {
  skip_on_cran()
  set.seed(5)
  d <- 20000
  n <- 40000
  # a tree rather than a random graph: fill stays small
  X <- Matrix::sparseMatrix(i = rep(seq_len(n), 2), j = c(a <- sample.int(d, n, TRUE), pmax(1, a %/% 2)), x = rnorm(2 * n), dims = c(n, d))
  y <- rbinom(n, 1, 0.5)
  model <- model_glm(X, y, prior = normal(0, 1))
  gc(reset = TRUE)
  before <- sum(gc()[, 2])
  fit <- elvi(model, tol = 1e-6)
  expect_lt(sum(gc()[, 6]) - before, 400)   # MB; a d x d matrix has 3,200
  expect_identical(fit$method, "exact")
  expect_true(fit$converged)
  expect_lt(factor_entries(fit$scale$plan$pattern), 20 * d)
  expect_identical(dim(as.matrix(fit, draws = 2)), c(2L, 20000L))
  expect_error(vcov(fit), class = "elvi_error_argument")
  expect_snapshot(print(fit$scale))
})

test_that("variances of rows by entries of the inverse are those by solutions", {
  skip_without_parser()
  d <- group_data()
  fit <- suppressWarnings(elvi(y ~ x + (1 | g) + (1 | f) + rw1(t), d))
  posterior <- fit$posterior
  W <- centre_rows(posterior, design_columns(prediction_rows(fit, d)))
  mixed <- W[1:5, ] + W[nrow(W) - 0:4, ]   # pairs that no row of the data has
  both <- rbind(W, mixed)
  here <- roots_variances(posterior$roots, both, 1:2)
  there <- vapply(1:2, function(k) rowSums(root_rows(root_at(posterior$roots, k), both)^2), numeric(nrow(both)))
  expect_equal(here, there, tolerance = 1e-10)
})
