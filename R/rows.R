# The rows of a regression: a source of (X, y, weight, offset) that knows neither likelihood nor prior. The
# matrix X is dense, or sparse and then kept by rows. Its columns count as X_j - shift_j, so that centring
# neither copies a dense matrix nor fills a sparse one. All arithmetic with it is in src/rows*.c.

# `count` is how many observations they are to a scale parameter, see check_rows(); `constant` the sum of their row
# constants, see R/family.R, NA of rows that nobody asks for it.
new_rows <- function(X, shift, y, weight, offset, count = sum(weight), constant = NA_real_) {
  structure(list(source = if (is_sparse(X)) "sparse" else "dense", X = X, shift = shift, y = y, weight = weight,
                 offset = offset, count = count, constant = constant, dim = as.double(design_dim(X)[2L])), class = "elvi_rows")
}

# The rows that a user gave, `given` with X (checked), y, weights, frequency, offset and shift, for a family.
# Trials count as weights. A precision, which is what a weight of a gaussian row is, changes the spread of its
# response, but one row stays one observation.
check_rows <- function(given, record) {
  rows <- read_rows(given, record, whole = TRUE)
  check_counting(rows$weight)
  rows
}

check_counting <- function(weight) {
  if (all(weight == 0)) bad_argument("y", "at least one row that counts", "none (weights or trials are 0)")
}

# Without `whole` they are some of the rows, of which less can be asked.
read_rows <- function(given, record, whole = FALSE) {
  n <- design_dim(given$X)[1L]
  response <- check_response(given$y, record, n, whole)
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
  sum(frequency[used] * record$row_constant(y[used], weight[used]))
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
  if (whole && all(weights == 0)) bad_argument(name, "positive somewhere", "0 everywhere")
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

has_sparse_rows <- function(rows) identical(rows$source, "sparse")

design_dim <- function(X) if (is_sparse(X)) X$dim else dim(X)

column_names <- function(X) fill_names(if (is_sparse(X)) X$names else colnames(X), design_dim(X)[2L])

# x1, x2, ... where there is no name
fill_names <- function(given, n) {
  generic <- paste0("x", seq_len(n))
  given <- given %||% generic
  ifelse(is.na(given) | !nzchar(given), generic, given)
}

# observations and coefficients
rows_size <- function(rows) UseMethod("rows_size")

#' @export
rows_size.elvi_rows <- function(rows) design_dim(rows$X)

row_labels <- function(rows) UseMethod("row_labels")

#' @export
row_labels.elvi_rows <- function(rows) column_names(rows$X)

# the class that a model of such rows has beside its own
row_kinds <- function(rows) UseMethod("row_kinds")

#' @export
row_kinds.elvi_rows <- function(rows) NULL

# for a regression: those that lack something, where the frame does not have them
rows_left_out <- function(rows) UseMethod("rows_left_out")

#' @export
rows_left_out.default <- function(rows) NULL

# is each response at hand?
check_each_response <- function(rows) UseMethod("check_each_response")

#' @export
check_each_response.default <- function(rows) invisible()

# must the rows of a model be read again by whoever needs them?
is_elsewhere <- function(model) UseMethod("is_elsewhere")

#' @export
is_elsewhere.default <- function(model) FALSE

# ---- passes over the rows of a model ---------------------------------------------------

# X x, without the offset
predictor_at <- function(model, x) .Call(elvi_r_predictor, model, x)

# the largest |X_i x|
extent_along <- function(model, x) UseMethod("extent_along")

#' @export
extent_along.elvi_model_glm <- function(model, x) .Call(elvi_r_extent, model, x)

# X'X over the rows that count
used_gram <- function(model) UseMethod("used_gram")

#' @export
used_gram.elvi_model_glm <- function(model) .Call(elvi_r_gram, model)

# that of some columns, of which there are few
gram_of_columns <- function(model, columns) UseMethod("gram_of_columns")

#' @export
gram_of_columns.elvi_model_glm <- function(model, columns) {
  used <- as.double(model$rows$weight > 0)
  unit <- numeric(model$rows$dim)
  products <- vapply(columns, function(j) cross_times(model, used, replace(unit, j, 1))[columns], numeric(length(columns)))
  matrix(products, length(columns))
}

# the diagonal of X' diag(weight) X
column_squares <- function(model, weight) .Call(elvi_r_squares, model, weight)

# X' diag(weight) X v
cross_times <- function(model, weight, v) .Call(elvi_r_cross_times, model, weight, v)

# the largest |X_ij| of each column over the rows that count, or a bound of it
column_reach <- function(model) UseMethod("column_reach")

#' @export
column_reach.elvi_model_glm <- function(model) .Call(elvi_r_reach, model)

# The largest eigenvalue of the curvature `bound` X' diag(weight) X + that of the prior; in the coordinates of
# `work`, if it is whitened, by Lanczos steps.
curvature_max <- function(model, bound, work = model) UseMethod("curvature_max")

#' @export
curvature_max.elvi_model_glm <- function(model, bound, work = model) .Call(elvi_r_curvature_max, work, bound)

# E f, its gradient in mu and the matrix B at one point, by the quadrature rule of a law: see exact_oracle()
exact_at <- function(model, rule, law, kind, mu, scale) UseMethod("exact_at")

#' @export
exact_at.elvi_model_glm <- function(model, rule, law, kind, mu, scale) {
  .Call(elvi_r_exact, model, rule, kind, mu, scale, threads())
}

# the diagonal of the Hessian of the likelihood at x
likelihood_diagonal <- function(model, x, law, dispersion) UseMethod("likelihood_diagonal")

#' @export
likelihood_diagonal.elvi_model_glm <- function(model, x, law, dispersion) {
  rows <- model$rows
  at <- .Call(elvi_r_expect_rows, model, model_quadrature(model, law), dispersion,
              list(y = rows$y, weight = rows$weight, eta = predictor_at(model, x) + rows$offset,
                   s = numeric(length(rows$y))))
  column_squares(model, at$curve)
}

# can the loss of no row that counts rise along a direction that moves some of them?
falls_along <- function(model, direction) UseMethod("falls_along")

#' @export
falls_along.elvi_model_glm <- function(model, direction) {
  rows <- model$rows
  move <- predictor_at(model, direction)[rows$weight > 0]
  small <- 1e-6 * max(abs(move))
  small > 0 && family_record(model)$is_recession(move, rows$y[rows$weight > 0], small)
}
