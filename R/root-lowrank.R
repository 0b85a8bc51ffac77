# A root that is low rank plus diagonal: R = diag(a) (I + V V') with a > 0 and k columns in V, stored as the d x (1 + k) matrix
# (a, V). R R' = D (I + V (2 I + V'V) V') D, so these are the roots of the covariances D^2 + W W' with W of k columns, each of them,
# and a diagonal matrix times one is one again. All verbs but root_matrix() and the singular values cost O(d k) or O(d k^2).

lowrank_root <- function(a, V) structure(cbind(a, V, deparse.level = 0), class = "elvi_lowrank_root")

# of the covariance diag(sd^2) + W W': with D^-1 W = Q s P' it is (I + V V')^2 = I + Q s^2 Q' for V = Q sqrt(sqrt(1 + s^2) - 1)
lowrank_root_of <- function(sd, W) {
  s <- svd(W / sd, nv = 0)
  lowrank_root(sd, s$u * rep(s$d / sqrt(1 + sqrt(1 + s$d^2)), each = length(sd)))
}

lowrank_parts <- function(root) {
  root <- unclass(root)
  list(a = root[, 1L], V = root[, -1L, drop = FALSE])
}

#' @export
root_times.elvi_lowrank_root <- function(root, z) {
  r <- lowrank_parts(root)
  r$a * (z + r$V %*% crossprod(r$V, z))
}

#' @export
root_crossprod.elvi_lowrank_root <- function(root, u) {
  r <- lowrank_parts(root)
  u <- r$a * u
  u + r$V %*% crossprod(r$V, u)
}

#' @export
root_rows.elvi_lowrank_root <- function(root, W) t(root_crossprod(root, t(as.matrix(W))))

# (I + V V')^-1 x, by Woodbury's identity
lowrank_solve <- function(V, x) x - V %*% solve(diag(ncol(V)) + crossprod(V), crossprod(V, x))

#' @export
root_solve.elvi_lowrank_root <- function(root, x) {
  r <- lowrank_parts(root)
  lowrank_solve(r$V, x / r$a)
}

#' @export
root_solve_transposed.elvi_lowrank_root <- function(root, u) {
  r <- lowrank_parts(root)
  lowrank_solve(r$V, u) / r$a
}

#' @export
root_sd.elvi_lowrank_root <- function(root) {
  r <- lowrank_parts(root)
  r$a * sqrt(1 + rowSums(r$V * (r$V %*% (2 * diag(ncol(r$V)) + crossprod(r$V)))))
}

# by the determinant lemma
#' @export
root_log_det.elvi_lowrank_root <- function(root) {
  r <- lowrank_parts(root)
  sum(log(r$a)) + 2 * sum(log(diag(chol(diag(ncol(r$V)) + crossprod(r$V)))))
}

#' @export
root_matrix.elvi_lowrank_root <- function(root) {
  r <- lowrank_parts(root)
  unname(r$a * (diag(length(r$a)) + tcrossprod(r$V)))
}

#' @export
name_scale.elvi_lowrank_root <- function(scale, labels) {
  dimnames(scale) <- list(labels, NULL)
  scale
}

#' @export
largest_singular_value.elvi_lowrank_root <- function(root) largest_singular_value(root_matrix(root))

#' @export
smallest_singular_value.elvi_lowrank_root <- function(root) smallest_singular_value(root_matrix(root))

# of the same shape if A is a diagonal
#' @export
moved_root.elvi_lowrank_root <- function(root, A) {
  if (length(A) != nrow(root)) return(root_times(A, root_matrix(root)))
  root[, 1L] <- A * root[, 1L]
  root
}

# V V' is all of V that counts, and moving to other units leaves it alone
#' @export
canonical_root.elvi_lowrank_root <- function(root) root
