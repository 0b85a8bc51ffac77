# A root of the covariance P^-1 of a precision P on a sparse pattern, kept as the Cholesky factor L of P in an order that keeps it
# sparse: R = O' L^-T with O the permutation. A layout is what does not depend on the values of P; a full matrix is a pattern too.

# `row`, `column`: entries of P on and below the diagonal, every diagonal one among them, from 1
precision_layout <- function(row, column, dim) {
  full <- list(perm = seq_len(dim), pattern = list(start = 0L, row = integer(), dim = dim, head = 0L))
  filled <- if (length(row) == dim * (dim + 1) / 2) full else ordered_pattern(row, column, dim)
  place_of <- integer(dim)
  place_of[filled$perm] <- seq_len(dim) - 1L
  pattern <- filled$pattern
  pattern$dim <- as.integer(pattern$dim)
  high <- pmax(place_of[row], place_of[column])
  low <- pmin(place_of[row], place_of[column])
  diagonal <- seq_len(dim) - 1L
  list(dim = dim, row = row, column = column, order = filled$perm, pattern = pattern,
       size = length(pattern$row) + (pattern$dim - pattern$head)^2,
       place = .Call(elvi_r_pattern_places, pattern, high, low) + 1L,
       diagonal = .Call(elvi_r_pattern_places, pattern, diagonal, diagonal)[place_of + 1L] + 1L)
}

# the pattern of the factor, in an order of package 'Matrix'
ordered_pattern <- function(row, column, dim) {
  S <- Matrix::sparseMatrix(i = row, j = column, x = ifelse(row == column, 1, 0), dims = c(dim, dim), symmetric = TRUE)
  S@x[S@x == 0] <- 1e-3 / dim
  L <- Matrix::Cholesky(S, perm = TRUE, LDL = FALSE, super = FALSE)
  perm <- L@perm + 1L
  L <- methods::as(L, "CsparseMatrix")
  list(perm = perm, pattern = trailing_block(L@p, L@i, dim, 0L))
}

# numbers in the factor of a pattern
layout_entries <- function(layout) length(layout$pattern$row) + (layout$pattern$dim - layout$pattern$head)^2 / 2

# NULL where the matrix of these entries is not positive definite
precision_root <- function(layout, values, names = NULL) {
  if (!all(is.finite(values))) return(NULL)
  all <- numeric(layout$size)
  all[layout$place] <- values
  out <- .Call(elvi_r_sparse_inverse, layout$pattern, all)
  if (out$status != 0L) return(NULL)
  structure(list(layout = layout, values = values, factor = out$factor, sd = sqrt(out$inverse[layout$diagonal]),
                 log_det = -sum(log(out$factor[layout$diagonal])), names = names), class = c("elvi_precision_root", "elvi_factor_root"))
}

# what the factor does to the columns of x, in its own order
# `what`: 0 its inverse, 1 its transposed inverse, 2 itself, 3 its transpose
apply_factor <- function(root, x, what) {
  x <- as.matrix(x)
  storage.mode(x) <- "double"
  .Call(elvi_r_sparse_apply, root$layout$pattern, root$factor, x, what)
}

in_factor_order <- function(root, x) as.matrix(x)[root$layout$order, , drop = FALSE]

from_factor_order <- function(root, x) {
  x[root$layout$order, ] <- x
  x
}

#' @export
root_times.elvi_precision_root <- function(root, z) from_factor_order(root, apply_factor(root, z, 1L))

#' @export
root_crossprod.elvi_precision_root <- function(root, u) apply_factor(root, in_factor_order(root, u), 0L)

#' @export
root_solve.elvi_precision_root <- function(root, x) apply_factor(root, in_factor_order(root, x), 3L)

#' @export
root_solve_transposed.elvi_precision_root <- function(root, u) from_factor_order(root, apply_factor(root, u, 2L))

#' @export
root_rows.elvi_precision_root <- function(root, W) t(root_crossprod(root, as.matrix(Matrix::t(W))))

#' @export
objective_at.elvi_precision_root <- function(scale, model, law, kind, mu, method, draws) {
  check_choice(method %||% "monte_carlo", "method", "monte_carlo")
  objective_by_draws(scale, model, law, mu, draws)
}

#' @export
dim.elvi_precision_root <- function(x) c(x$layout$dim, x$layout$dim)

# ---- roots that are kept as the factor of the inverse: these, and those of conditional posteriors (solve-sparse.R) ----------

#' @export
root_sd.elvi_factor_root <- function(root) if (is.null(root$names)) root$sd else stats::setNames(root$sd, root$names)

#' @export
root_log_det.elvi_factor_root <- function(root) root$log_det

#' @export
root_matrix.elvi_factor_root <- function(root) {
  check_size(prod(dim(root)), "object", root)
  root_times(root, diag(dim(root)[1L]))
}

#' @export
name_scale.elvi_factor_root <- function(scale, labels) {
  scale["names"] <- list(labels)
  scale
}

#' @export
print.elvi_factor_root <- function(x, ...) {
  entries <- if (is.null(x$layout)) factor_entries(x$plan$pattern) else layout_entries(x$layout)
  cat(sprintf("a root of a covariance in dimension %s, as the factor of its inverse with %s entries\n", format_count(dim(x)[1L]),
              format_count(entries)))
  invisible(x)
}

# F of a target under a root that C does not know, from draws
objective_by_draws <- function(root, model, law, mu, draws, values = guarded_values, chunk = 100L) {
  key <- draw_key()
  f <- unlist(lapply(split(seq_len(draws), (seq_len(draws) - 1L) %/% chunk), function(which) {
    z <- draw_base(law, key, length(which), iteration = which[1L])
    values(model, mu + root_times(root, z))
  }))
  new_estimate("objective F", mean(f) - root_log_det(root), stats::sd(f) / sqrt(draws), draws, law)
}
