# The rows of a regression: a source of (X, y, weight, offset) that knows neither likelihood nor prior. The
# matrix X is dense, or sparse and then kept by rows. Its columns count as X_j - shift_j, so that centring
# neither copies a dense matrix nor fills a sparse one. All arithmetic with it is in src/rows*.c.

# `count` is how many observations they are to a scale parameter, see check_rows().
new_rows <- function(X, shift, y, weight, offset, count = sum(weight)) {
  structure(list(source = if (is_sparse(X)) "sparse" else "dense", X = X, shift = shift, y = y, weight = weight,
                 offset = offset, count = count, dim = as.double(design_dim(X)[2L])), class = "elvi_rows")
}

# The rows that a user gave, `given` with X (checked), y, weights, frequency, offset and shift, for a family.
# Trials count as weights. A precision, which is what a weight of a gaussian row is, changes the spread of its
# response, but one row stays one observation.
check_rows <- function(given, record) {
  n <- design_dim(given$X)[1L]
  response <- check_response(given$y, record, n)
  weight <- check_weights(given$weights, n)
  if (is_proportion(response, record)) check_proportions(response$y, given$weights)
  if (!is.null(response$trials)) weight <- weight * response$trials
  frequency <- check_weights(given$frequency, n, "frequency")
  count <- if (isTRUE(record$dispersion$precision)) sum(frequency[weight > 0]) else sum(weight * frequency)
  weight <- weight * frequency
  if (all(weight == 0)) bad_argument("y", "at least one row that counts", "none (weights or trials are 0)")
  offset <- if (is.null(given$offset)) numeric(n) else check_vector(given$offset, "offset", n)
  check_magnitude(response$y, "y")
  check_magnitude(offset, "offset")
  new_rows(given$X, given$shift, response$y, weight, offset, count)
}

check_weights <- function(weights, n, name = "weights") {
  if (is.null(weights)) return(rep(1, n))
  weights <- check_vector(weights, name, n)
  if (any(weights < 0)) bad_argument(name, "non-negative", describe(weights[weights < 0][1L]))
  if (all(weights == 0)) bad_argument(name, "positive somewhere", "0 everywhere")
  weights
}

is_proportion <- function(response, record) record$trials && is.null(response$trials) && any(response$y %% 1 != 0)

# A proportion is one of so many trials as its weight says; glm() only warns.
check_proportions <- function(y, trials) {
  if (is.null(trials)) {
    bad_argument("weights", "the numbers of trials: the response has proportions", "left out")
  }
  successes <- y * trials
  odd <- which(abs(successes - round(successes)) > 1e-3)
  if (length(odd)) {
    bad_argument("y", "proportions of the numbers of trials in `weights`",
                 sprintf("%s of %s in row %d", format(y[odd[1L]]), format(trials[odd[1L]]), odd[1L]))
  }
}

check_design <- function(X) {
  if (inherits(X, "sparseMatrix")) return(sparse_rows(X))
  X <- check_matrix(X, "X")
  check_design_size(dim(X))
  check_magnitude(X, "X")
  if (is.double(X)) X else structure(as.double(X), dim = dim(X), dimnames = dimnames(X))
}

# C steps through the rows in chunks, with an int that must not pass 2^31.
check_design_size <- function(size) {
  wrong <- function(expected) bad_argument("X", expected, sprintf("a %d x %d matrix", size[1L], size[2L]))
  if (any(size == 0L)) wrong("of at least one row and one column")
  if (size[1L] > 2e9) wrong("of at most 2e9 rows")
}

# A matrix of package 'Matrix' by rows, as C reads it. Slots are attributes, so a
# dgCMatrix can be read without 'Matrix'.
sparse_rows <- function(X) {
  if (!inherits(X, "dgCMatrix")) {
    need_package("Matrix", "A sparse `X` that is not a dgCMatrix")
    X <- Reduce(methods::as, c("dMatrix", "generalMatrix", "CsparseMatrix"), X)
  }
  size <- attr(X, "Dim")
  check_design_size(size)
  entry <- attr(X, "x")
  row <- attr(X, "i")
  start <- attr(X, "p")
  sound <- is.integer(row) && is.integer(start) && is.double(entry) && length(entry) == length(row) &&
    length(start) == size[2L] + 1L && isTRUE(start[1L] == 0L) && isFALSE(is.unsorted(start)) &&
    start[length(start)] == length(row) && (!length(row) || isTRUE(min(row) >= 0L && max(row) < size[1L]))
  if (!sound) bad_argument("X", "a valid sparse matrix", "one whose slots contradict each other")
  if (!is.finite(sum(entry)) && any(bad <- !is.finite(entry))) {
    at <- which(bad)[1L]
    bad_argument("X", "free of missing and non-finite values",
                 sprintf("%s in row %d of column %d", format(entry[at]), row[at] + 1L,
                         findInterval(at - 1L, start)))
  }
  if (length(entry)) check_magnitude(entry, "X")
  out <- .Call(elvi_r_by_rows, size[1L], start, row, entry)
  same <- diff(out$column) == 0L   # as the entry before it
  ends <- out$start[out$start > 0L & out$start < length(row)]
  same[ends] <- FALSE              # which is in another row
  if (any(same)) bad_argument("X", "a valid sparse matrix", "one with two entries in one place")
  c(out, list(dim = size, names = attr(X, "Dimnames")[[2L]]))
}

is_sparse <- function(X) is.list(X)

design_dim <- function(X) if (is_sparse(X)) X$dim else dim(X)

column_names <- function(X) fill_names(if (is_sparse(X)) X$names else colnames(X), design_dim(X)[2L])

# x1, x2, ... where there is no name
fill_names <- function(given, n) {
  generic <- paste0("x", seq_len(n))
  given <- given %||% generic
  ifelse(is.na(given) | !nzchar(given), generic, given)
}

# ---- passes over the rows of a model ---------------------------------------------------

# X x, without the offset
predictor_at <- function(model, x) .Call(elvi_r_predictor, model, x)

# the largest |X_i x|
extent_along <- function(model, x) .Call(elvi_r_extent, model, x)

# X'X over the rows that count
used_gram <- function(model) .Call(elvi_r_gram, model)

# the diagonal of X' diag(weight) X
column_squares <- function(model, weight) .Call(elvi_r_squares, model, weight)

# the largest |X_ij| of each column over the rows that count, or a bound of it
column_reach <- function(model) .Call(elvi_r_reach, model)
