# The matrix B = P + X' diag(c) X of exact_oracle() where d is too large for it: its diagonal, its products with vectors,
# and what can be done with these. P is diagonal and not negative unless a prior is a student one.

new_products <- function(own, squares, times) {
  structure(list(diagonal = own + squares, least = own, times = function(v) own * v + times(v)), class = "elvi_products")
}

# as exact_at(), for rows in memory
exact_products_at <- function(model, rule, law, kind, mu, scale, directions = NULL) {
  out <- .Call(elvi_r_exact_parts, model, rule, kind, mu, scale, threads())
  curve <- out$curve
  out$B <- new_products(out$own, out$squares, function(v) cross_times(model$rows, curve, v))
  out
}

diagonal_of <- function(B) UseMethod("diagonal_of")

#' @export
diagonal_of.matrix <- function(B) diag(B)

# of a diagonal matrix that is nothing but its diagonal
#' @export
diagonal_of.numeric <- function(B) B

#' @export
diagonal_of.elvi_products <- function(B) B$diagonal

# x with B x nearly v, by conjugate gradients in units in which the diagonal is 1. Where B is not
# definite the last point before that showed.
conjugate_gradients <- function(B, v, reduction, most = 1000L) {
  weight <- 1 / pmax(abs(B$diagonal), 1e-300)
  x <- numeric(length(v))
  r <- v
  z <- p <- weight * r
  size <- first <- sum(r * z)
  for (k in seq_len(most)) {
    if (!isTRUE(size > reduction^2 * first)) break
    Bp <- B$times(p)
    bend <- sum(p * Bp)
    if (!isTRUE(bend > 0)) break
    x <- x + size / bend * p
    r <- r - size / bend * Bp
    z <- weight * r
    before <- size
    size <- sum(r * z)
    p <- z + size / before * p
  }
  if (k == 1L) weight * v else x
}

# So exact that the solver's steps, which are extrapolated from several, are those that it makes with the matrix.
#' @export
newton_step.elvi_products <- function(H, g) conjugate_gradients(H, g, 1e-7)

# A diagonal root: in its units the diagonal is 1.
#' @export
root_of_inverse.elvi_products <- function(precision) if (all(precision$diagonal > 0)) 1 / sqrt(precision$diagonal)

# An upper bound of v' Q^-1 v: for x and r = v - Q x it is x'v + x'r + r' Q^-1 r, and Q is at least P.
#' @export
dual_norm2.elvi_products <- function(Q, v) {
  x <- conjugate_gradients(Q, v, 1e-3)
  r <- v - Q$times(x)
  sum(x * v) + sum(x * r) + sum(r^2 / Q$least)
}

# Is a B that is the same everywhere a bound of the Hessian that dual_norm2() can use?
bounds_itself <- function(B) !is.list(B) || all(B$least > 0)
