# The rows of a regression: (X, y, weight, offset), which know neither likelihood nor prior. The layout of the
# matrix X is dense, or sparse and then kept by rows. Its columns count as X_j - shift_j, so that centring
# neither copies a dense matrix nor fills a sparse one. All arithmetic with it is in src/rows*.c.

# `count` is how many observations they are to a scale parameter, see check_rows(); `constant` the sum of their row
# constants, see R/family.R, NA for rows that do not need it.
new_rows <- function(X, shift, y, weight, offset, count = sum(weight), constant = NA_real_) {
  size <- as.double(design_dim(X))
  list(layout = if (is_sparse(X)) "sparse" else "dense", X = X, shift = shift, y = y, weight = weight, offset = offset,
       count = count, constant = constant, n = size[1L], dim = size[2L])
}

# The rows that a user gave, `given` with X (checked), y, weights, frequency, offset and shift, for a family.
# Trials count as weights. A precision, which is what a weight of a gaussian row is, changes the spread of its
# response, but one row stays one observation.
check_rows <- function(given, record, family = NULL) {
  rows <- read_rows(given, record, whole = TRUE, family)
  check_counting(rows$weight)
  rows
}

check_counting <- function(weight) {
  if (all(weight == 0)) refuse_argument("y", "No row of `y` counts: all weights or trials are 0.")
}

# Without `whole` they are some of the rows, which support fewer tasks.
read_rows <- function(given, record, whole = FALSE, family = NULL) {
  n <- design_dim(given$X)[1L]
  response <- check_response(given$y, record, n, whole, family)
  weight <- check_weights(given$weights, n, whole = whole)
  if (is_proportion(response, record)) check_proportions(response$y, given$weights)
  if (!is.null(response$trials)) weight <- weight * response$trials
  frequency <- check_weights(given$frequency, n, "frequency", whole)
  count <- row_count(record, weight, frequency)
  constant <- sum_of_constants(record, response$y, weight, frequency)
  weight <- weight * frequency
  offset <- if (is.null(given$offset)) numeric(n) else check_vector(given$offset, "offset", n)
  check_magnitude(response$y, "y")
  check_magnitude(offset, "offset")
  new_rows(given$X, given$shift, response$y, weight, offset, count, constant)
}

row_count <- function(record, weight, frequency) {
  if (isTRUE(record$dispersion$precision)) sum(frequency[weight > 0]) else sum(weight * frequency)
}

# Weight and frequency apart: they are not the same to a precision or to a number of trials.
sum_of_constants <- function(record, y, weight, frequency) {
  used <- weight > 0 & frequency > 0
  sum(frequency[used] * record$row_constant(response_rows(y, used), weight[used]))
}

# the constant of the likelihood of these responses
likelihood_constant <- function(family, y, weight, frequency, dispersion) {
  record <- family_record(family)
  record$constant(sum_of_constants(record, y, weight, frequency), row_count(record, weight, frequency), dispersion, family)
}

check_weights <- function(weights, n, name = "weights", whole = TRUE) {
  if (is.null(weights)) return(rep(1, n))
  weights <- check_vector(weights, name, n)
  if (any(weights < 0)) bad_argument(name, "non-negative", describe(weights[weights < 0][1L]))
  if (whole && all(weights == 0)) refuse_argument(name, "All `", name, "` are 0, so no row counts.")
  weights
}

is_proportion <- function(response, record) record$trials && is.null(response$trials) && any(response$y %% 1 != 0)

# A proportion is one of so many trials as its weight says; glm() only warns.
check_proportions <- function(y, trials) {
  if (is.null(trials)) {
    refuse_argument("weights", "`weights` is missing: the response has proportions, and `weights` gives their numbers of trials.")
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
  if (inherits(X, "Matrix")) X <- as.matrix(X)   # dense, under a class of package Matrix
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
    refuse_missing("X", entry[at], sprintf("in row %d of column %d", row[at] + 1L, findInterval(at - 1L, start)))
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

has_sparse_rows <- function(rows) identical(rows$layout, "sparse")

has_dense_rows <- function(rows) identical(rows$layout, "dense")

design_dim <- function(X) if (is_sparse(X)) X$dim else dim(X)

column_names <- function(X) fill_names(if (is_sparse(X)) X$names else colnames(X), design_dim(X)[2L])

# x1, x2, ... where there is no name
fill_names <- function(given, n) {
  generic <- paste0("x", seq_len(n))
  given <- given %||% generic
  ifelse(is.na(given) | !nzchar(given), generic, given)
}

# Those of data larger than memory come from the survey.
row_labels <- function(rows) rows$labels %||% column_names(rows$X)

# ---- what is computed from rows in memory ----------------------------------------------

# X x, without the offset
predictor_of <- function(rows, x) .Call(elvi_r_predictor, rows, x)

# X' diag(weight) X v
cross_times <- function(rows, weight, v) .Call(elvi_r_cross_times, rows, weight, v)

residuals_at <- function(rows, x) rows$y - rows$offset - predictor_of(rows, x)

# The variance of the responses around their mean, without offsets.
response_variance <- function(rows) {
  y <- rows$y - rows$offset
  sum(rows$weight * (y - sum(rows$weight * y) / sum(rows$weight))^2) / rows$count
}

# The weights of student errors, given the residuals of an earlier fit: one step of the EM algorithm.
student_weights <- function(rows, earlier) {
  (earlier$df + 1) / (earlier$df + residuals_at(rows, earlier$x)^2 / earlier$variance)
}

# Rows whose weights are divided by a variance, and multiplied by the student weights of an `earlier` fit.
reweighed <- function(rows, variance = 1, earlier = NULL) {
  if (is_chunked(rows)) return(reweighed_in_chunks(rows, variance, earlier))
  if (variance != 1) rows$weight <- rows$weight / variance
  if (!is.null(earlier)) rows$weight <- rows$weight * student_weights(rows, earlier)
  rows
}
