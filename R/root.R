# Roots R of a covariance R R'. A root is a matrix (symmetric or triangular, or any other dense one), a vector (the diagonal of
# a diagonal root) or an object with methods for the verbs below: low rank plus diagonal (root-lowrank.R), the sparse factor of a
# precision (root-precision.R; solve-sparse.R for one that comes from rows). Nothing
# outside of its methods asks which. To add a shape of root, write these methods:
#
#   root_times(root, z)      R z for the columns of z
#   root_rows(root, W)       a matrix whose rows w have |w|^2 = w' R R' w for the rows of W, and the same inner products
#   root_solve(root, x)      z with R z = x, for the columns of x
#   root_solve_transposed(root, u)   v with R'v = u, likewise
#   root_sd(root)            standard deviations of R z
#   root_log_det(root)       log |det R|
#   root_matrix(root)        R as a matrix
#   name_scale(root, labels) the same root with names of the coordinates

root_times <- function(root, z) UseMethod("root_times")

#' @export
root_times.matrix <- function(root, z) root %*% z

#' @export
root_times.numeric <- function(root, z) root * z

root_rows <- function(root, W) UseMethod("root_rows")

# Variances of the linear functions in the rows of W, for some of several roots: rows x components
roots_variances <- function(roots, W, components) UseMethod("roots_variances")

#' @export
roots_variances.default <- function(roots, W, components) {
  out <- matrix(0, nrow(W), length(components))
  for (rows in split(seq_len(nrow(W)), (seq_len(nrow(W)) - 1L) %/% 256L)) {
    for (i in seq_along(components)) out[rows, i] <- rowSums(root_rows(root_at(roots, components[i]), W[rows, , drop = FALSE])^2)
  }
  out
}

#' @export
root_rows.matrix <- function(root, W) as.matrix(W %*% root)

#' @export
root_rows.numeric <- function(root, W) as.matrix(W) * rep(root, each = nrow(W))

root_solve <- function(root, x) UseMethod("root_solve")

#' @export
root_solve.matrix <- function(root, x) {
  if (all(root[upper.tri(root)] == 0)) forwardsolve(root, x) else solve(root, x, tol = 0)
}

#' @export
root_solve.numeric <- function(root, x) x / root

root_solve_transposed <- function(root, u) UseMethod("root_solve_transposed")

#' @export
root_solve_transposed.matrix <- function(root, u) {
  if (all(root[upper.tri(root)] == 0)) backsolve(root, u, upper.tri = FALSE, transpose = TRUE) else solve(t(root), u, tol = 0)
}

#' @export
root_solve_transposed.numeric <- function(root, u) u / root

root_sd <- function(root) UseMethod("root_sd")

#' @export
root_sd.matrix <- function(root) sqrt(rowSums(root^2))

#' @export
root_sd.numeric <- function(root) abs(root)

root_log_det <- function(root) UseMethod("root_log_det")

# by the triangular factor of a QR decomposition: determinants of very small scales underflow in some libraries
#' @export
root_log_det.matrix <- function(root) {
  triangular <- if (all(root[upper.tri(root)] == 0)) root else qr.R(qr(root, LAPACK = FALSE, tol = 0))
  sum(log(abs(diag(triangular))))
}

#' @export
root_log_det.numeric <- function(root) sum(log(abs(root)))

# the same where it may be singular or overflow: -Inf, NaN
log_volume <- function(root) UseMethod("log_volume")

#' @export
log_volume.default <- function(root) root_log_det(root)

#' @export
log_volume.matrix <- function(root) log_abs_det(root)

root_matrix <- function(root) UseMethod("root_matrix")

#' @export
root_matrix.matrix <- function(root) root

#' @export
root_matrix.numeric <- function(root) diag(root, length(root))

name_scale <- function(scale, labels) UseMethod("name_scale")

#' @export
name_scale.matrix <- function(scale, labels) {
  dimnames(scale) <- list(labels, labels)
  scale
}

#' @export
name_scale.numeric <- function(scale, labels) {
  names(scale) <- labels
  scale
}

# plan and setting of the sparse solver that the root comes from; NULL for a root that comes from elsewhere
root_plan <- function(root) UseMethod("root_plan")

#' @export
root_plan.default <- function(root) NULL

# ---- roots in the coordinates of a run: matrices and diagonals ------------------------------------------------

# R' u
root_crossprod <- function(root, u) UseMethod("root_crossprod")

#' @export
root_crossprod.matrix <- function(root, u) crossprod(root, u)

#' @export
root_crossprod.numeric <- function(root, u) root * u

# R' M R for a symmetric M
congruent <- function(root, M) root_crossprod(root, t(root_crossprod(root, M)))

# the sum of g z' over the columns of both, or of its diagonal for a root that is one
root_outer <- function(root, g, z) UseMethod("root_outer")

#' @export
root_outer.matrix <- function(root, g, z) tcrossprod(g, z)

#' @export
root_outer.numeric <- function(root, g, z) rowSums(g * z)

# A R as a root, A a root too
moved_root <- function(root, A) UseMethod("moved_root")

#' @export
moved_root.default <- function(root, A) root_times(A, root)

# the largest and the smallest factor by which a root changes lengths
largest_singular_value <- function(root) UseMethod("largest_singular_value")

#' @export
largest_singular_value.matrix <- function(root) norm(root, "2")

#' @export
largest_singular_value.numeric <- function(root) max(root)

smallest_singular_value <- function(root) UseMethod("smallest_singular_value")

#' @export
smallest_singular_value.matrix <- function(root) min(svd(root, 0, 0)$d)

#' @export
smallest_singular_value.numeric <- function(root) min(root)

# The symmetric S with S S = R R', and the lower triangular one: the same distribution of x
# for every base. From R itself, not from R R', which would lose the small scales.
symmetric_root <- function(R) {
  s <- svd(R, nv = 0)
  root <- s$u %*% (s$d * t(s$u))
  (root + t(root)) / 2
}

lower_root <- function(R) {
  L <- t(qr.R(qr(t(R), LAPACK = FALSE)))
  L * rep(ifelse(diag(L) < 0, -1, 1), each = nrow(L))
}

# One of all roots of a covariance, so that draws do not depend on the coordinates in which it was found.
canonical_root <- function(root) UseMethod("canonical_root")

#' @export
canonical_root.matrix <- function(root) lower_root(root)

#' @export
canonical_root.numeric <- function(root) abs(root)

# lower triangular C with C C' = precision^-1; NULL if there is none
root_of_inverse <- function(precision) UseMethod("root_of_inverse")

#' @export
root_of_inverse.default <- function(precision) {
  R <- or_null(chol(precision))
  if (is.null(R)) return(NULL)
  or_null(t(chol(chol2inv(R))))
}
