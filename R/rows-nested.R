# A gaussian regression is known by a triangular factor of [X y], weighted, and by a few numbers: with an unknown dispersion that
# is all that the nested answer needs, in memory and from data larger than memory.

# The factor of a matrix, by LAPACK, in as few rows as it has columns; factors of parts can be put on top of each other.
triangle <- function(M) {
  if (nrow(M) <= ncol(M)) return(unname(M))
  factor <- qr(M, LAPACK = TRUE)
  R <- qr.R(factor)
  R[, factor$pivot] <- R
  dimnames(R) <- NULL
  R
}

# rows of weight 1 that the solver takes in place of all others
triangle_rows <- function(R) {
  p <- ncol(R) - 1L
  list(X = R[, seq_len(p), drop = FALSE], y = R[, p + 1L])
}

# of a problem in memory, by blocks of rows that the processor's cache holds; NULL where it needs its rows
problem_triangle <- function(problem, block = 4096) {
  if (ncol(problem$Z) || !family_record(problem$family)$constant_curvature) return(NULL)
  root <- rep_len(sqrt((problem$weight %||% 1) * (problem$frequency %||% 1)), nrow(problem$X))
  triangle_rows(dense_triangle(root, problem$X, problem$y - (problem$offset %||% 0), problem$shift, block))
}

dense_triangle <- function(root, X, response, shift = NULL, block = 4096) {
  n <- length(response)
  R <- NULL
  for (first in block * (seq_len(ceiling(n / block)) - 1) + 1) {
    i <- first:min(n, first + block - 1)
    part <- if (n <= block) as.matrix(X) else as.matrix(X[i, , drop = FALSE])
    if (!is.null(shift)) part <- part - rep(shift, each = length(i))
    part <- root[i] * cbind(part, response[i])
    R <- triangle(if (is.null(R)) part else rbind(R, part))
  }
  R
}

# the same of the rows of a chunk
chunk_triangle <- function(rows) {
  if (is_sparse(rows$X)) return(list(R = sparse_triangle(rows)))
  X <- if (is.null(rows$shift)) rows$X else rows$X - rep(rows$shift, each = nrow(rows$X))
  list(R = triangle(sqrt(rows$weight) * cbind(X, rows$y - rows$offset)))
}

join_triangles <- function(a, b) list(R = triangle(rbind(a$R, b$R)))

# some rows at a time, as a dense matrix
sparse_triangle <- function(rows, block = 4096) {
  R <- NULL
  for (first in seq(1, rows$n, by = block)) {
    part <- part_of_rows(rows, first:min(rows$n, first + block - 1))
    part$X <- dense_design(part$X)
    R <- triangle(rbind(R, chunk_triangle(part)$R))
  }
  R
}

# of rows that are not in memory, in one pass
source_triangle <- function(rows) {
  few <- triangle_rows(pass_over_rows(rows, "triangle")$R)
  colnames(few$X) <- row_labels(rows)
  few
}
