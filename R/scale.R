# Everything R does to a scale. One record per kind in `scale_kinds`, looked up by name, says what depends on the
# kind; src/scale_<kind>.c is its other half. To add one, add a record: what it lacks is an error when the package is
# loaded. To R a scale is a root of a covariance (root.R) that C can take: an array of numbers with d rows, such as a d x d matrix
# or a vector of length d (a diagonal), which comes back from C in the same shape and of the same class.

# ---- the kinds ----------------------------------------------------------------------------------------------------

# What a record has. `S` is a scale of its kind.
#   size(dim)               numbers that make one
#   full                    is there one for every covariance?
#   prox                    has -log|S| a proximal step?
#   aligned                 is <B S, gradient of log|S|> = tr B, for the gradient B S of a mean in S?
#   theory                  do the theorems cover it?
#   exact                   has the exact solver a fixed point for it?
#   floor                   its bound from below in units of 1/sqrt(L), where no optimum of the theorems' scales is smaller
#   ceiling                 is it projected on scales of at most `scale_max`?
#   caveat                  a sentence about the theorems' constants for it, if they differ
#   log_det(S)
#   outer(g, z)             the mean of g z' over the columns of both, as far as such a scale can go there
#   check(S, dim, name)     a user's S, a matrix or a vector (a diagonal), as one of this kind, or an error
#   of_symmetric(S, name)   the scale whose distribution is that of a symmetric positive definite matrix
#   symmetric(S)            the symmetric matrix with the same distribution, unnamed
#   reported                kind that it becomes when a linear map mixes parameters, and
#   of_root(R)              a root R as one of that kind
#   frame                   kind of A in whitened coordinates x = m + A w, and of the scale in the exact solver, and
#   of_frame(S)             a scale of that kind as one of this
#   to_user(A, S), to_work(A, S)   the distribution of w in x, and back; A of kind `frame`
#   local_gradient(S, g, with_entropy, hessian)   see remaining_gap()
# What a kind has that the theorems cover:
#   symmetrised             is the gradient in S the symmetric part of g z'?
#   outer_norm2(g, z)       for each column the squared norm of what of g z' is a gradient in S
#   entropy_norm2(S)        the squared norm of the gradient of log|S|
# And what a kind has that serves as a frame:
#   inverse_root(P)         one with S S' = P^-1, P a precision_part(B); NULL if there is none
#   precision_part(B)       what B can have in it of a precision
#   solve(S, v)             S^-1 v
#   left(S, H)              what such a frame leaves of a Hessian H, or of its diagonal: list(hessian, root), its lower triangular root
#                           where steps of mu are to be taken in it; NULL where nothing but I is left
#   whiten(S, mu, P), unwhiten(S, x)   (S^-1 mu, S' P S) as a vector, and back to a list
#   whitened_gradient(at, S)       list(mu, scale) where the scale is I
#   gradient(at, S, whitened)      of F in the scale, and
#   dual(Q, G)              its squared norm in Q^-1
#   local(S)                free entries of T in S T: identity, scale(entries), gradient(at)

parts_of_scales <- c("size", "full", "prox", "aligned", "theory", "exact", "floor", "ceiling", "caveat", "log_det", "outer", "check",
                     "of_symmetric", "symmetric", "reported", "of_root", "frame", "of_frame", "to_user", "to_work", "local_gradient")
parts_of_theory <- c("symmetrised", "outer_norm2", "entropy_norm2")
parts_of_frames <- c("inverse_root", "precision_part", "solve", "left", "whiten", "unwhiten", "whitened_gradient", "gradient", "dual",
                     "local")

check_scale_matrix <- function(S, dim, name) {
  if (!is.matrix(S)) S <- diag(check_vector(S, name, dim), dim)
  S <- unname(check_matrix(S, name, dim, dim))
  storage.mode(S) <- "double"
  S
}

not_diagonal <- function(S) any(S[row(S) != col(S)] != 0)

# v' Q^-1 v, Q a matrix or its diagonal
dual_norm2 <- function(Q, v) UseMethod("dual_norm2")

#' @export
dual_norm2.default <- function(Q, v) if (is.matrix(Q)) sum(v * solve(Q, v, tol = 0)) else sum(v^2 / Q)

mean_outer <- function(g, z) tcrossprod(g, z) / ncol(z)

# log|S| by its Cholesky factor, or, where rounding makes S indefinite, by another triangular factor
log_det_symmetric <- function(S) {
  R <- or_null(chol(S))
  if (is.null(R)) log_abs_det(S) else 2 * sum(log(diag(R)))
}

scale_symmetric <- list(
  size = function(dim) dim^2, full = TRUE, prox = FALSE, aligned = TRUE, theory = TRUE, exact = TRUE, floor = 1, ceiling = TRUE,
  caveat = character(),
  log_det = log_det_symmetric,
  outer = mean_outer, symmetrised = TRUE,
  outer_norm2 = function(g, z) (colSums(g^2) * colSums(z^2) + colSums(g * z)^2) / 2,
  entropy_norm2 = function(S) sum(chol2inv(chol(S))^2),
  check = function(S, dim, name) {
    S <- check_scale_matrix(S, dim, name)
    if (!isSymmetric(S)) bad_argument(name, "symmetric")
    if (is.null(or_null(chol(S)))) {
      bad_argument(name, "positive definite")
    }
    S
  },
  of_symmetric = function(S, name) S,
  symmetric = identity, reported = "symmetric", of_root = symmetric_root,
  frame = "triangular", of_frame = symmetric_root,
  to_user = function(A, S) symmetric_root(A %*% S),
  to_work = function(A, S) symmetric_root(forwardsolve(A, S)),
  local_gradient = function(S, g, with_entropy, hessian) {
    W <- crossprod(S, g$scale)
    if (with_entropy) diag(W) <- diag(W) - 1
    c(crossprod(S, g$mu) / sqrt(2), (W + t(W)) / 4)
  })

scale_triangular <- list(
  size = function(dim) dim^2, full = TRUE, prox = TRUE, aligned = FALSE, theory = TRUE, exact = TRUE, floor = 1, ceiling = TRUE,
  caveat = "D is measured in the triangular parametrisation.",
  log_det = function(S) sum(log(diag(S))),
  outer = mean_outer, symmetrised = FALSE,
  outer_norm2 = function(g, z) colSums(g^2 * matrix(apply(z^2, 2L, cumsum), nrow(z))),   # the lower triangle
  entropy_norm2 = function(S) sum(1 / diag(S)^2),
  check = function(S, dim, name) {
    S <- check_scale_matrix(S, dim, name)
    if (any(S[upper.tri(S)] != 0)) bad_argument(name, "lower triangular")
    if (any(diag(S) <= 0)) bad_argument(name, "of positive diagonal", describe(min(diag(S))))
    S
  },
  of_symmetric = function(S, name) t(chol(S %*% S)),
  symmetric = function(S) if (is_symmetric_enough(S)) S else symmetric_root(S),
  reported = "triangular", of_root = lower_root,
  frame = "triangular", of_frame = identity,
  to_user = function(A, S) A %*% S,
  to_work = function(A, S) {
    moved <- forwardsolve(A, S)
    moved[upper.tri(moved)] <- 0
    moved
  },
  local_gradient = function(S, g, with_entropy, hessian) {
    if (with_entropy) diag(g$scale) <- diag(g$scale) - 1 / diag(S)
    W <- crossprod(S, g$scale)
    W[upper.tri(W)] <- 0
    c(crossprod(S, g$mu) / sqrt(2), W / ifelse(row(W) == col(W), 2, sqrt(2)))
  },
  inverse_root = root_of_inverse,
  precision_part = identity,
  solve = function(S, v) forwardsolve(S, v),
  left = function(S, H) NULL,
  whiten = function(S, mu, P) c(forwardsolve(S, mu), congruent(S, P)),
  unwhiten = function(S, x) {
    d <- nrow(S)
    half <- backsolve(S, matrix(x[-seq_len(d)], d), upper.tri = FALSE, transpose = TRUE)
    P <- backsolve(S, t(half), upper.tri = FALSE, transpose = TRUE)
    list(mu = drop(S %*% x[seq_len(d)]), precision = (P + t(P)) / 2)
  },
  whitened_gradient = function(at, S) {
    W <- congruent(S, at$B)
    diag(W) <- diag(W) - 1
    list(mu = crossprod(S, at$g_mu), scale = W)
  },
  gradient = function(at, S, whitened) {
    G <- backsolve(t(S), whitened$scale)   # S^-T (S'BS - I)
    G[upper.tri(G)] <- 0
    G
  },
  dual = dual_norm2,
  local = function(S) {
    d <- nrow(S)
    low <- lower.tri(S, diag = TRUE)
    list(identity = diag(d)[low],
         scale = function(entries) {
           factor <- matrix(0, d, d)
           factor[low] <- entries
           S %*% factor
         },
         gradient = function(at) {
           G <- crossprod(S, at$B %*% at$scale)
           diag(G) <- diag(G) - diag(S) / diag(at$scale)
           G[low]
         })
  })

# a gradient in mu, in units of its curvature: that of the frame's Hessian, or of its diagonal, or else the scale's
local_mu <- function(S, g, hessian) {
  if (is.null(hessian)) root_crossprod(S, g)
  else if (is.matrix(hessian)) forwardsolve(t(chol(hessian)), g) else g / sqrt(hessian)
}

scale_diagonal <- list(
  size = function(dim) dim, full = FALSE, prox = TRUE, aligned = TRUE, theory = TRUE, exact = TRUE, floor = 1, ceiling = TRUE,
  caveat = "The constants are those of a symmetric scale; D is measured in the diagonal parametrisation.",
  log_det = function(S) sum(log(S)),
  outer = function(g, z) rowMeans(g * z), symmetrised = FALSE,
  outer_norm2 = function(g, z) colSums((g * z)^2),
  entropy_norm2 = function(S) sum(1 / S^2),
  check = function(S, dim, name) {
    if (is.matrix(S)) {
      if (not_diagonal(S)) bad_argument(name, "diagonal")
      S <- diag(S)
    }
    S <- check_vector(S, name, dim)
    if (any(S <= 0)) bad_argument(name, "positive", describe(S[S <= 0][1L]))
    S
  },
  of_symmetric = function(S, name) {
    if (not_diagonal(S)) bad_argument(name, "diagonal, like the scale of the run")
    diag(S)
  },
  symmetric = function(S) diag(S, length(S)),
  reported = "symmetric", of_root = symmetric_root,
  frame = "diagonal", of_frame = identity,   # a mean field must stay one: only rescale
  to_user = function(A, S) A * S,
  to_work = function(A, S) S / A,
  # a mean field's scale does not show the curvature in mu; the Hessian at the mode, or its diagonal, does
  local_gradient = function(S, g, with_entropy, hessian) {
    if (with_entropy) g$scale <- g$scale - 1 / S
    c(local_mu(S, g$mu, hessian) / sqrt(2), S * g$scale / 2)
  },
  inverse_root = function(P) if (all(P > 0)) 1 / sqrt(P),
  precision_part = function(B) diagonal_of(B),
  solve = function(S, v) v / S,
  left = function(S, H) {
    if (!is.matrix(H)) return(list(hessian = rep(1, length(S))))
    hessian <- congruent(S, H)
    list(hessian = hessian, root = t(chol(hessian)))
  },
  whiten = function(S, mu, P) c(mu / S, P * S^2),
  unwhiten = function(S, x) {
    first <- seq_along(S)
    list(mu = S * x[first], precision = x[-first] / S^2)
  },
  whitened_gradient = function(at, S) list(mu = S * at$g_mu, scale = S^2 * diagonal_of(at$B) - 1),
  gradient = function(at, S, whitened) diagonal_of(at$B) * S - 1 / S,
  dual = function(Q, G) sum(G^2 / diagonal_of(Q)),
  local = function(S) {
    list(identity = rep(1, length(S)),
         scale = function(entries) S * entries,
         gradient = function(at) S * diagonal_of(at$B) * at$scale - S / at$scale)
  })

scale_kinds <- list(symmetric = scale_symmetric, triangular = scale_triangular, diagonal = scale_diagonal)

# called when the package is loaded
check_scale_kinds <- function(kinds = scale_kinds) {
  frames <- unique(vapply(kinds, function(record) record$frame %||% "", ""))
  for (name in union(names(kinds), frames)) {
    needed <- c(parts_of_scales, if (isTRUE(kinds[[name]]$theory)) parts_of_theory, if (name %in% frames) parts_of_frames)
    lacks <- setdiff(needed, names(kinds[[name]]))
    if (length(lacks)) stop("the scale \"", name, "\" lacks ", toString(lacks), ", see R/scale.R")
  }
}

scale_of <- function(kind) scale_kinds[[kind]]

# ---- by name ------------------------------------------------------------------------------------------------------

log_det <- function(kind, scale) if (is.numeric(scale)) scale_of(kind)$log_det(scale) else root_log_det(scale)

# as isSymmetric() has it, for a square matrix of numbers
is_symmetric_enough <- function(S) sum(abs(S - t(S))) <= 100 * .Machine$double.eps * sum(abs(S))

# The symmetric matrix that has the distribution of a scale of this kind
symmetric_scale <- function(kind, scale, labels) {
  S <- if (is.numeric(scale)) scale_of(kind)$symmetric(scale) else symmetric_root(root_matrix(scale))
  structure(S, dimnames = list(labels, labels))
}

# the kind of a `Sigma` that a user gives without saying
given_kind <- function(Sigma) if (is.matrix(Sigma)) "symmetric" else "diagonal"

# a user's Sigma, a number, a diagonal or a matrix, as a matrix; NULL if it is none of the right size
given_matrix <- function(S, dim) {
  S <- root_matrix(if (length(S) == 1L) rep(as.double(S), dim) else S)
  if (identical(dim(S), c(as.integer(dim), as.integer(dim)))) unname(S)
}

# a user's symmetric Sigma, or a diagonal, as a scale of the kind with the same distribution
scale_of_symmetric <- function(S, dim, kind, name) {
  record <- scale_of(kind)
  if (!is.matrix(S) && !record$full) return(record$check(S, dim, name))
  S <- check_scale_matrix(S, dim, name)
  if (!isSymmetric(S) || is.null(or_null(chol(S)))) {
    bad_argument(name, "symmetric and positive definite")
  }
  record$of_symmetric(S, name)
}

check_start_scale <- function(S, dim, kind, name = "start$Sigma") {
  if (is_number(S) && (dim > 1 || !is.matrix(S))) S <- rep(as.double(S), dim)
  scale_of(kind)$check(S, dim, name)
}

project_scale <- function(kind, scale, lower, upper) {
  out <- .Call(elvi_r_project, kind, scale, lower, upper)
  check_status(out$status)
  out
}

# By the triangular factor of a QR decomposition, of rows of size 1: determinant() is wrong for denormal numbers with some
# BLAS libraries.
log_abs_det <- function(A) {
  size <- apply(abs(A), 1L, max)
  if (!all(is.finite(size))) return(NaN)
  if (any(size == 0)) return(-Inf)
  sum(log(size)) + sum(log(abs(diag(qr(A / size, tol = 0, LAPACK = FALSE)$qr))))
}
