# Regressions with a sparse design W = [X Z] and a sparse prior precision A: the
# optimum over all scales, in memory proportional to rows and factor (src/nested.c).
#
# A plan is what does not depend on the hyperparameters: the order of the unknowns,
# the pattern of the factor of A + W' diag(c) W, and where each row's products go in
# it. Dense columns come last, where they fill nothing in.

# X: dense rows x p, Z: dgCMatrix; `dense` says which columns of Z are to be treated as
# dense ones. `entries`: lower triangle of A in the order of [X Z], from 1, each with
# the number of the source that gives its value. `block`: rows that share a level, or NULL.
sparse_plan <- function(X, Z, dense, entries, blocked, centre, response, block = NULL) {
  rows <- length(response$y)
  p <- ncol(X)
  by_block <- if (is.null(block)) seq_len(rows) else order(block)
  block <- if (is.null(block)) rep(1L, rows) else as.integer(block)[by_block]
  Zs <- Z[by_block, !dense, drop = FALSE]
  border <- rbind(t(X[by_block, , drop = FALSE]), as.matrix(Matrix::t(Z[by_block, dense, drop = FALSE])))
  sparse_columns <- p + which(!dense)
  filled <- factor_pattern(Zs, entries, sparse_columns, nrow(border))
  order <- c(sparse_columns[filled$perm], seq_len(p), p + which(dense))
  place_of <- integer(length(order))
  place_of[order] <- seq_along(order) - 1L
  Zr <- Matrix::t(Zs)[filled$perm, , drop = FALSE]
  Zr <- methods::as(methods::as(Zr, "generalMatrix"), "CsparseMatrix")
  low <- pmin(place_of[entries$row], place_of[entries$column])
  high <- pmax(place_of[entries$row], place_of[entries$column])
  pattern <- filled$pattern
  list(pattern = pattern, rows = rows, dense = nrow(border), X = as.double(border),
       start = Zr@p, column = Zr@i, entry = Zr@x,
       pair = .Call(elvi_r_pattern_pairs, pattern, Zr@p, Zr@i),
       a_row = high, a_column = low, a_source = entries$source - 1L,
       a_place = .Call(elvi_r_pattern_places, pattern, high, low),
       sources = max(0L, entries$source), blocked = blocked, centre = as.double(centre[order]),
       record = response$record, likelihood = family_records[[response$record]]$conditional$likelihood,
       error_df = Inf, dispersion = response$dispersion,
       y = as.double(response$y[by_block]), weight = as.double(response$weight[by_block]),
       offset = as.double(response$offset[by_block]),
       block_start = as.integer(c(0L, which(diff(block) != 0), rows)),
       order = order, by_block = by_block, dim = length(order))
}

# A permutation that keeps the factor sparse, from package 'Matrix', and the pattern of
# the factor with `border` dense rows below. Values do not matter: dominant diagonal.
factor_pattern <- function(Zs, entries, columns, border) {
  q <- ncol(Zs)
  if (!q) return(list(perm = integer(), pattern = trailing_block(0L, integer(), 0L, border)))
  at <- match(entries$row, columns)
  to <- match(entries$column, columns)
  among <- !is.na(at) & !is.na(to)
  A <- Matrix::sparseMatrix(i = pmax(at[among], to[among]), j = pmin(at[among], to[among]), x = 1, dims = c(q, q))
  Zs@x <- rep(1, length(Zs@x))
  S <- methods::as(Matrix::crossprod(Zs), "generalMatrix") + A + Matrix::t(A) + Matrix::Diagonal(q)
  S <- methods::as(S, "CsparseMatrix")
  S@x <- rep(1e-3 / max(1, diff(S@p)), length(S@x))
  L <- Matrix::Cholesky(Matrix::forceSymmetric(S + Matrix::Diagonal(q), "L"), perm = TRUE, LDL = FALSE, super = FALSE)
  perm <- L@perm + 1L
  L <- methods::as(L, "CsparseMatrix")
  list(perm = perm, pattern = trailing_block(L@p, L@i, q, border))
}

# Columns from `head` on are stored as a dense triangle: those where more than three
# quarters of it are filled, and the border. The others get the rows of the border appended.
trailing_block <- function(start, row, q, border) {
  count <- diff(start)
  below <- rev(seq_len(q))
  filled <- rev(cumsum(rev(as.double(count)))) / rev(cumsum(as.double(rev(below))))
  head <- if (any(filled > 0.75)) min(which(filled > 0.75)) - 1L else q
  keep <- seq_len(start[head + 1L])
  ends <- cumsum(count[seq_len(head)])
  if (border && head) {
    room <- count[seq_len(head)] + border
    out <- integer(sum(room))
    last <- rep(cumsum(room), each = border) - rep(rev(seq_len(border)) - 1L, head)
    out[last] <- rep(q + seq_len(border) - 1L, head)
    out[-last] <- row[keep]
    pattern <- list(start = as.integer(c(0, cumsum(room))), row = out)
  } else {
    pattern <- list(start = as.integer(c(0, ends)), row = row[keep])
  }
  tail <- q + border - head
  if (length(pattern$row) + tail^2 > 2^31 - 1) {
    elvi_abort("The factor of this model has ", format(length(pattern$row) + tail^2, digits = 3),
               " entries, more than 2^31.", class = "elvi_error_argument", data = list(argument = "formula"))
  }
  c(pattern, list(dim = q + border, head = head))
}

# in the order of [X Z] again
original_order <- function(plan, x) {
  out <- x
  if (is.matrix(x)) out[plan$order, ] <- x else out[plan$order] <- x
  out
}

# Predictors and weights to start from, as glm() does: those of the data, a little
# shrunk.
start_of <- function(plan, dispersion = 1) {
  y <- plan$y
  w <- plan$weight
  family_records[[plan$record]]$conditional$start(y, w, dispersion)
}

# Is f quadratic given the hyperparameters, so that its optimum takes one factorisation?
is_quadratic <- function(plan) family_records[[plan$record]]$constant_curvature

# Conditional optima at several settings, in parallel. A setting has A, definite, inverse,
# dispersion, and mu, eta, c to start from.
solve_settings <- function(plan, rule, settings, tol, most = 200L) {
  solved <- .Call(elvi_r_nested_solve, plan, rule, settings, tol, most, threads())
  lapply(solved, function(s) {
    if (s$status == 1L) elvi_abort("Interrupted before there was a fit.", class = "elvi_error_interrupted")
    s$failed <- s$status != status_ok
    s
  })
}

# The exact optimum of a model_glm() with a sparse design, whose scale is known by its
# inverse square P, kept as a sparse factor. `precision`: sparse positive definite, or
# NULL for the model's own.
sparse_optimum <- function(model, base = base_gaussian(), tol = 1e-9, max_evaluations = 200, precision = NULL) {
  if (any(is.finite(model$blocks$coefficients$df))) {
    bad_argument("prior", "normal() or flat() for the sparse solver", "a student prior")
  }
  if (!is.null(model$rows$shift) && any(model$rows$shift != 0)) {
    bad_argument("X", "not shifted for the sparse solver", "one with centred columns")
  }
  loadNamespace("Matrix")   # its methods, not only its functions
  d <- model$dim
  rows <- model$rows
  prior <- model$blocks$coefficients
  Z <- sparse_design(rows$X)
  entries <- precision_entries(precision %||% prior$precision, d)
  plan <- sparse_plan(matrix(0, length(rows$y), 0L), Z, dense_columns(Z), entries, is.null(precision), prior$centre,
                      list(y = rows$y, weight = rows$weight, offset = rows$offset,
                           record = model$likelihood, dispersion = "none"))
  law <- law_of(base, d)
  rule <- cached_quadrature(law, model$likelihood)
  if (rule$limit <= 0) no_expectation(model, law)
  rule$prior_levels <- list()
  definite <- all(entries$value[entries$row == entries$column] > 0)
  setting <- c(list(A = entries$value, definite = definite, inverse = if (definite) 1 / entries$value,
                    dispersion = 1, mu = NULL), start_of(plan))
  found <- solve_settings(plan, rule, list(setting), tol, as.integer(max_evaluations))[[1L]]
  if (found$failed) {
    elvi_abort("No optimum was found: the precision is not positive definite, or E f is infinite.",
               class = "elvi_error_no_optimum")
  }
  setting[c("mu", "c")] <- found[c("mu", "c")]
  structure(list(
    mu = stats::setNames(original_order(plan, found$mu), model$names),
    sd = stats::setNames(sqrt(original_order(plan, found$variance)), model$names),
    objective = found$objective, elbo = law$entropy - found$objective, log_det = found$log_det,
    certificate = found$certificate,
    certificate_kind = if (found$rigorous && found$widest <= 50) "rigorous" else "estimated",
    evaluations = found$iterations + 1L, converged = found$certificate <= tol,
    base = base, dim = d, plan = plan, setting = setting), class = "elvi_sparse_optimum")
}

sparse_design <- function(X) {
  if (!is_sparse(X)) return(methods::as(methods::as(X, "CsparseMatrix"), "generalMatrix"))
  Matrix::sparseMatrix(i = rep(seq_along(X$start[-1L]), diff(X$start)), j = X$column + 1L, x = X$entry, dims = X$dim)
}

dense_columns <- function(Z) diff(Z@p) > 0.3 * nrow(Z) & nrow(Z) > 10

# the lower triangle of a precision matrix, or of a diagonal one, by entries
precision_entries <- function(precision, d) {
  if (!is.null(dim(precision))) {
    Q <- methods::as(methods::as(Matrix::tril(precision), "generalMatrix"), "TsparseMatrix")
    return(list(row = Q@i + 1L, column = Q@j + 1L, source = seq_along(Q@x), value = Q@x))
  }
  list(row = seq_len(d), column = seq_len(d), source = seq_len(d), value = as.double(precision))
}
