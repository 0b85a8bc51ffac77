# Of R/scale.R and src/scale_*.c. That the loop is right with every kind is in test-elvi.R,
# that projections are in test-run-loop.R, that units do not matter in test-scales.R.

kinds <- c("symmetric", "triangular", "diagonal")

some_scale <- function(kind, d = 4) {
  M <- diag(seq(0.5, 2, length.out = d), d)
  M[lower.tri(M)] <- 0.3 * cos(seq_len(d * (d - 1) / 2))
  switch(kind, symmetric = (M + t(M)) / 2, triangular = M, diagonal = diag(M))
}

full <- function(S) if (is.matrix(S)) S else diag(S, length(S))

test_that("a record that lacks something is refused when the package is loaded", {
  kinds <- scale_kinds
  expect_silent(check_scale_kinds(kinds))
  kinds$symmetric$to_user <- NULL
  expect_error(check_scale_kinds(kinds), "\"symmetric\" lacks to_user")
  kinds <- scale_kinds
  kinds$triangular$solve <- NULL   # a frame of another kind needs more
  expect_error(check_scale_kinds(kinds), "\"triangular\" lacks solve")
})

test_that("log_det, roots, covariances and predictors are those of the full matrix", {
  X <- matrix(sin(1:12), 3)
  z <- matrix(cos(1:8), 4)
  for (kind in kinds) {
    S <- some_scale(kind)
    V <- tcrossprod(full(S))
    expect_equal(log_det(kind, S), log(det(full(S))), label = kind)
    expect_equal(root_times(S, z), full(S) %*% z)
    expect_equal(root_sd(S), sqrt(diag(V)))
    expect_equal(tcrossprod(root_matrix(S)), V)
    expect_equal(tcrossprod(root_rows(S, X)), X %*% V %*% t(X))
    expect_equal(root_solve(S, root_times(S, z)), z)
    expect_equal(root_log_det(S), log(det(full(S))), label = kind)
    expect_equal(congruent(S, V), t(full(S)) %*% V %*% full(S))
    expect_equal(root_solve_transposed(S, t(full(S)) %*% z), z)
    expect_equal(largest_singular_value(S), max(svd(full(S))$d))
    expect_equal(smallest_singular_value(S), min(svd(full(S))$d))
    root <- symmetric_scale(kind, S, letters[1:4])
    expect_true(isSymmetric(root))
    expect_equal(unname(root %*% root), V)
    expect_equal(scale_of(kind)$of_symmetric(if (kind == "diagonal") full(S) else symmetric_root(full(S)), "S"), S)
  }
})

test_that("other coordinates keep the law, and there and back is where one was", {
  for (kind in kinds) {
    S <- some_scale(kind)
    frame <- scale_of(kind)$frame
    A <- if (frame == "diagonal") c(2, 1, 0.5, 3) else t(chol(crossprod(matrix(sin(1:16), 4)) + diag(4)))
    work <- new_model("affine", dim = 4, m = 1:4 / 3, A = A, scale = frame)
    mu <- c(0.3, -1, 2, 0)
    user <- to_user(work, kind, mu, S)
    expect_equal(user$mu, drop(work$m + full(A) %*% mu))
    expect_equal(tcrossprod(full(user$scale)), full(A) %*% tcrossprod(full(S)) %*% t(full(A)))
    expect_silent(check_start_scale(user$scale, 4, kind))
    back <- to_work(work, kind, user$mu, user$scale)
    expect_equal(back$mu, mu)
    expect_equal(back$scale, S)
  }
})

test_that("what the exact solver does to a scale is what the full matrices say", {
  B <- crossprod(matrix(cos(1:20), 5)) + diag(4)
  at <- list(g_mu = c(1, -2, 0.5, 3), B = B)
  P <- crossprod(matrix(sin(2:21), 5)) + diag(4)
  for (kind in c("triangular", "diagonal")) {
    record <- scale_of(kind)
    S <- some_scale(kind)
    part <- record$precision_part(P)
    root <- record$inverse_root(part)
    expect_equal(tcrossprod(full(root)), solve(full(part)))
    x <- record$whiten(S, at$g_mu, part)
    expect_equal(x[1:4], drop(solve(full(S), at$g_mu)))
    there <- record$unwhiten(S, x)
    expect_equal(there$mu, at$g_mu)
    expect_equal(there$precision, part)
    expect_equal(record$solve(S, at$g_mu), drop(solve(full(S), at$g_mu)))
    # the gradient of tr(S'BS)/2 - log|S|, by differences
    entries <- if (kind == "diagonal") seq_along(S) else which(lower.tri(S, diag = TRUE))
    F <- function(v) {
      S[entries] <- v
      sum(full(S) * (B %*% full(S))) / 2 - log(det(full(S)))
    }
    G <- record$gradient(at, S, record$whitened_gradient(at, S))
    expect_equal(G[entries], fd_gradient(F, S[entries]), tolerance = 1e-7)
    local <- record$local(S)
    expect_equal(local$scale(local$identity), S)
    expect_equal(local$gradient(c(at, list(scale = S))),
                 fd_gradient(function(v) F(local$scale(v)[entries]), local$identity), tolerance = 1e-7)
  }
})

test_that("a mean field of dimension 20,000, or 100,000, needs no square matrix", {
  skip_on_cran()
  d <- if (long_tests()) 1e5 else 2e4   # the square of either does not fit
  sd <- rep(c(0.5, 1, 2), length.out = d)
  model <- model_density(function(x) colSums((x / sd)^2) / 2, function(x) x / sd^2, dim = d, smoothness = 4)
  set.seed(1)
  fit <- elvi(model, base_uniform(), schedule_custom(0.2, 4, iterations = 30), start = list(mu = rep(1, d), Sigma = rep(1, d)),
              control = elvi_control(coordinates = "raw", scale = "diagonal", trace_draws = 2))
  expect_lt(object.size(unclass(fit)$state), 40 * d * 8)
  V <- posterior_covariance(fit$posterior, c(7, 2))   # of plots of pairs
  expect_equal(V, diag(fit$scale[c(7, 2)]^2), ignore_attr = TRUE)
  expect_identical(rownames(V), names(coef(fit))[c(7, 2)])
  promise <- guarantee(model, schedule = schedule_fixed(40),
                       control = elvi_control(coordinates = "raw", scale = "diagonal", estimator = "reparam"))
  expect_identical(promise$optimum_kind, "unknown")
  expect_length(coef(fit), d)
  expect_lt(max(abs(fit$sd / sd - 1)), 0.25)
  expect_output(print(fit), paste("and", d - 10, "more"))
  expect_identical(dim(confint(fit)), c(as.integer(d), 2L))
  expect_identical(dim(simulate(fit, 3)), c(3L, as.integer(d)))
  expect_equal(q_quantile(fit, 7, 0.5), coef(fit)[[7]])
})

test_that("log|S| of a symmetric scale is right for denormal numbers, and where rounding makes it indefinite", {
  log_det <- scale_of("symmetric")$log_det
  S <- rbind(c(2, 0.5), c(0.5, 1))
  expect_equal(log_det(S), log(1.75))
  expect_equal(log_det(diag(1e-310, 3)), 3 * log(1e-310))
  expect_true(is.finite(log_det(rbind(c(1, 1), c(1, 1 - 1e-16)) + diag(c(0, -1e-15)))))
})
