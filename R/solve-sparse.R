# Regressions with a sparse design W = [X Z] and a sparse prior precision A: the
# optimum over all scales, in memory proportional to rows and factor (src/nested.c).
#
# A plan is what does not depend on the hyperparameters: the order of the unknowns,
# the pattern of the factor of A + W' diag(c) W, and where each row's products go in
# it. Dense columns come last, where they fill nothing in.

# X: dense rows x p, Z: dgCMatrix; `dense` says which columns of Z are to be treated as
# dense ones. `entries`: lower triangle of A in the order of [X Z], from 1, each with
# the number of the source that gives its value, and `constraint`, columns of linear functions that are 0, or NULL.
# `block`: rows that share a level, or NULL.
# `meet`: of rows that are not in memory, which columns of Z have an entry in the same row
sparse_plan <- function(X, Z, dense, entries, blocked, centre, response, block = NULL, meet = NULL) {
  rows <- NROW(response$y)
  p <- ncol(X)
  by_block <- if (is.null(block)) seq_len(rows) else order(block)
  block_start <- if (is.null(block)) c(0L, rows) else as.integer(c(0L, which(diff(as.integer(block)[by_block]) != 0), rows))
  border <- t(if (is.null(block)) X else X[by_block, , drop = FALSE])
  if (any(dense)) border <- rbind(border, as.matrix(Matrix::t(Z[by_block, dense, drop = FALSE])))
  sparse_columns <- p + which(!dense)
  filled <- if (length(sparse_columns)) factored_rows(Z[by_block, !dense, drop = FALSE], entries, sparse_columns, nrow(border),
                                                      if (!is.null(meet)) meet[!dense, !dense, drop = FALSE])
            else dense_rows_only(rows, nrow(border))
  order <- c(sparse_columns[filled$perm], seq_len(p), p + which(dense))
  place_of <- integer(length(order))
  place_of[order] <- seq_along(order) - 1L
  low <- pmin.int(place_of[entries$row], place_of[entries$column])
  high <- pmax.int(place_of[entries$row], place_of[entries$column])
  pattern <- filled$pattern
  list(pattern = pattern, rows = rows, dense = nrow(border), X = as.double(border),
       start = filled$start, column = filled$column, entry = filled$entry,
       pair = .Call(elvi_r_pattern_pairs, pattern, filled$start, filled$column),
       a_row = high, a_column = low, a_source = entries$source - 1L,
       a_place = .Call(elvi_r_pattern_places, pattern, high, low),
       sources = max(0L, entries$source), constraints = NCOL(entries$constraint) * !is.null(entries$constraint),
       constraint = if (!is.null(entries$constraint)) as.double(entries$constraint[order, ]), blocked = blocked,
       centre = as.double(centre[order]),
       record = response$record, likelihood = family_records[[response$record]]$conditional$likelihood,
       error_df = as.double(response$error_df %||% Inf), dispersion = response$dispersion,
       y = as.double(t(response_rows(response$y, by_block))), weight = as.double(response$weight[by_block]),
       offset = as.double(if (is.matrix(response$offset)) t(response$offset[by_block, ]) else response$offset[by_block]),
       line = if (!is.null(response$line)) response$line[order] - 1L,
       joint = if (!is.null(response$line)) family_records[[response$record]]$conditional$likelihood,
       lines = if (!is.null(response$line)) ncol(response$offset),
       block_start = block_start,
       order = order, by_block = by_block, dim = length(order))
}

# Rows without a sparse column: nothing here needs package 'Matrix', whose methods take longer than a small fit.
dense_rows_only <- function(rows, border) {
  list(perm = integer(), pattern = list(start = 0L, row = integer(), dim = border, head = 0L),
       start = integer(rows + 1L), column = integer(), entry = numeric())
}

factored_rows <- function(Zs, entries, columns, border, meet = NULL) {
  if (is.null(meet)) {
    ones <- Zs
    ones@x <- rep(1, length(Zs@x))
    meet <- Matrix::crossprod(ones)
  }
  filled <- factor_pattern(meet, entries, columns, border)
  Zr <- Matrix::t(Zs)[filled$perm, , drop = FALSE]
  Zr <- methods::as(methods::as(Zr, "generalMatrix"), "CsparseMatrix")
  c(filled, list(start = Zr@p, column = Zr@i, entry = Zr@x))
}

# A permutation that keeps the factor sparse, from package 'Matrix', and the pattern of
# the factor with `border` dense rows below. Values do not matter: dominant diagonal.
factor_pattern <- function(meet, entries, columns, border) {
  q <- ncol(meet)
  at <- match(entries$row, columns)
  to <- match(entries$column, columns)
  among <- !is.na(at) & !is.na(to)
  meet <- methods::as(meet, "CsparseMatrix")
  i <- c(meet@i + 1L, at[among], seq_len(q))
  j <- c(rep(seq_len(q), diff(meet@p)), to[among], seq_len(q))
  place <- sort(unique((pmin(i, j) - 1) * q + pmax(i, j) - 1), method = "radix")   # in the lower triangle, by columns
  row <- as.integer(place %% q)
  column <- as.integer(place %/% q)
  x <- rep(1e-3 / max(tabulate(c(row, column) + 1L, q)), length(place))
  x[row == column] <- 1
  S <- methods::new("dsCMatrix", i = row, p = c(0L, cumsum(tabulate(column + 1L, q))), x = x, Dim = c(q, q), uplo = "L")
  L <- Matrix::Cholesky(S, perm = TRUE, LDL = FALSE, super = FALSE)
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
start_of <- function(plan, hyper = numeric()) {
  family_records[[plan$record]]$conditional$start(plan$y, plan$weight, if (length(hyper)) hyper else 1)
}

# Is f quadratic given the hyperparameters, so that its optimum takes one factorisation?
is_quadratic <- function(plan) plan$quadratic %||% family_records[[plan$record]]$constant_curvature

# Else what is found is a stationary point, and nothing certifies that it is the best.
is_convex <- function(plan) family_records[[plan$record]]$convex

# Conditional optima at several settings, in parallel. A setting has A, definite, inverse,
# hyper, and mu, eta, c to start from.
solve_settings <- function(plan, rule, settings, tol, most = 200L, lanes = threads()) {
  solved <- .Call(elvi_r_nested_solve, plan, rule, settings, tol, most, lanes)
  status <- status_name(vapply(solved, `[[`, 0L, "status"))
  if (any(status == "stopped")) elvi_abort("Interrupted before there was a fit.", class = "elvi_error_interrupted")
  for (k in seq_along(solved)) solved[[k]]$failed <- status[k] != "ok"
  solved
}

# ---- regressions with many sparse columns ------------------------------------------------------

# Has a model an optimum whose scale is kept as a sparse factor? With a matrix as prior precision always; with a
# wide sparse design where nothing needs more: every prior normal, columns as they are, a scale of any covariance.
is_factored <- function(model, scale) {
  if (is_linked(model)) return(TRUE)
  is_regression(model) && !is_dispersed(model) && has_sparse_rows(model$rows) && is_wide(model) &&
    scale_of(scale)$full && all_proper(model) && !has_student_prior(model) && !any(model$rows$shift != 0)
}

# The exact optimum of such a model: its scale is known by its inverse square P, kept as a sparse factor.
sparse_optimum <- function(model, base = base_gaussian(), tol = 1e-9, max_evaluations = 200, scale = "symmetric") {
  if (has_student_prior(model)) bad_argument("prior", "normal() or flat() for the sparse solver", "a student prior")
  if (any(model$rows$shift != 0)) bad_argument("X", "not shifted for the sparse solver", "one with centred columns")
  if (!scale_of(scale)$full) {
    bad_argument("scale", "\"symmetric\" or \"triangular\" with a matrix as prior precision", describe(scale))
  }
  loadNamespace("Matrix")   # its methods, not only its functions
  law <- law_of(base, model$dim)
  solved <- solve_by_rows(model, matrix(0, length(model$rows$y), 0L), sparse_design(model$rows$X), law, tol, max_evaluations)
  found <- solved$found
  if (found$failed) {
    elvi_abort("No optimum was found: the precision is not positive definite, or E f is infinite.",
               class = "elvi_error_no_optimum")
  }
  plan <- solved$plan
  setting <- solved$setting
  setting[c("mu", "c")] <- found[c("mu", "c")]
  root <- new_sparse_root(plan, setting, found, model$names)
  warn_unconverged(structure(list(
    mu = stats::setNames(original_order(plan, found$mu), model$names), Sigma = NULL,
    objective = found$objective, elbo = law$entropy - found$objective + model_constant(model), flat = flat_in_model(model),
    certificate = found$certificate,
    certificate_kind = if (found$rigorous && found$widest <= 50) "rigorous" else "estimated",
    gradient_norm = sqrt(2 * found$estimate), evaluations = found$evaluations, converged = found$certificate <= tol,
    interrupted = FALSE, base = base, kind = scale, dim = model$dim, scale = root), class = "elvi_optimum"))
}

# A regression as src/nested.c takes it: plan, rule, and a setting to start from. X: the dense columns of the design; Z: the others.
rows_plan <- function(model, X, Z, law) {
  rows <- model$rows
  prior <- model$blocks$coefficients
  entries <- precision_entries(model$prior$precision %||% prior$precision, model$dim)
  plan <- sparse_plan(X, Z, if (ncol(Z)) dense_columns(Z) else logical(), entries, !is_linked(model), prior$centre,
                      list(y = rows$y, weight = rows$weight, offset = rows$offset,
                           record = model$likelihood, dispersion = "none"))
  rule <- plan_rule(plan, law)
  if (rule$limit <= 0) no_expectation(model$family, law)
  definite <- all(entries$value[entries$row == entries$column] > 0)
  setting <- c(list(A = entries$value, definite = definite, inverse = if (definite) 1 / entries$value,
                    hyper = numeric(), mu = NULL), start_of(plan))
  list(plan = plan, rule = rule, setting = setting)
}

# The optimum as (mu, c), one number per row.
solve_by_rows <- function(model, X, Z, law, tol, max_evaluations) {
  at <- rows_plan(model, X, Z, law)
  c(at, list(found = solve_settings(at$plan, at$rule, list(at$setting), tol, as.integer(max_evaluations))[[1L]]))
}

# the design with its columns centred, as a dense matrix
centred_design <- function(rows) {
  X <- dense_design(rows$X)
  if (is.null(rows$shift)) X else X - rep(rows$shift, each = nrow(X))
}

# ---- roots of covariances, kept as factors --------------------------------------------------------

# R = P^-1/2 with P on a sparse pattern: what scale.R calls a root, for as many dimensions as the factor has room for.
new_sparse_root <- function(plan, setting, found, names) {
  structure(list(plan = plan, setting = setting, sd = sqrt(original_order(plan, found$variance)),
                 log_det = -found$log_det / 2, objective = found$objective, names = names),
            class = c("elvi_sparse_root", "elvi_factor_root"))
}

# R z for the columns of z
#' @export
root_times.elvi_sparse_root <- function(root, z) {
  plan <- root$plan
  root$setting$mu <- numeric(plan$dim)
  original_order(plan, .Call(elvi_r_nested_draws, plan, root$setting, as.matrix(z), FALSE))
}

#' @export
root_rows.elvi_sparse_root <- function(root, W) {
  v <- W[, root$plan$order, drop = FALSE]
  v <- if (is.matrix(v)) t(v) else as.matrix(Matrix::t(v))   # the first needs no method of package 'Matrix'
  storage.mode(v) <- "double"
  t(.Call(elvi_r_nested_draws, root$plan, root$setting, unname(v), TRUE))
}

#' @export
root_solve.elvi_sparse_root <- function(root, x) root_solve(root_matrix(root), x)

#' @export
root_plan.elvi_sparse_root <- function(root) root[c("plan", "setting")]

# Roots of all conditional posteriors of a fit: they share a plan.
new_sparse_roots <- function(plan, settings, sd, log_det) {
  structure(list(plan = plan, settings = settings, sd = sd, log_det = log_det), class = "elvi_sparse_roots")
}

#' @export
root_at.elvi_sparse_roots <- function(roots, k) {
  structure(list(plan = roots$plan, setting = roots$settings[[k]], sd = roots$sd[, k], log_det = roots$log_det[k]),
            class = c("elvi_sparse_root", "elvi_factor_root"))
}

# Variances of linear functions from the entries of P^-1 that the factor's pattern has, which are those of the rows of the data and of
# rows like them; others by a solution for each.
#' @export
roots_variances.elvi_sparse_roots <- function(roots, W, components) {
  plan <- roots$plan
  rows <- rows_for_plan(plan, W)
  variance <- vapply(components, function(k) .Call(elvi_r_nested_variances, plan, roots$settings[[k]], rows), numeric(nrow(W)))
  variance <- matrix(variance, nrow(W))
  others <- which(is.nan(rowSums(variance)))
  for (part in split(others, (seq_along(others) - 1L) %/% 256L)) {
    some <- W[part, , drop = FALSE]
    variance[part, ] <- vapply(components, function(k) rowSums(root_rows(root_at(roots, k), some)^2), numeric(length(part)))
  }
  variance
}

# rows of a design as those of a plan are stored
rows_for_plan <- function(plan, W) {
  if (plan$dense == plan$dim) {   # nothing here needs package 'Matrix', which takes long to load
    return(list(X = as.double(t(as.matrix(W)[, plan$order, drop = FALSE])), start = integer(nrow(W) + 1L), column = integer(),
                entry = numeric()))
  }
  by_row <- Matrix::t(sparse_columns(list(W), nrow(W))[, plan$order, drop = FALSE])
  sparse <- seq_len(plan$dim - plan$dense)
  inner <- methods::as(by_row[sparse, , drop = FALSE], "CsparseMatrix")
  list(X = as.double(as.matrix(by_row[plan$dim - plan$dense + seq_len(plan$dense), , drop = FALSE])),
       start = inner@p, column = inner@i, entry = as.double(inner@x))
}

#' @export
dim.elvi_sparse_root <- function(x) c(x$plan$dim, x$plan$dim)

factor_entries <- function(pattern) {
  tail <- pattern$dim - pattern$head
  length(pattern$row) + tail * (tail + 1) / 2
}

# F of a fit whose scale is such a root: exact at the optimum, which is the only place it comes from; or from draws.
#' @export
objective_at.elvi_sparse_root <- function(scale, model, law, kind, mu, method, draws) {
  method <- check_choice(method %||% "exact", "method", c("exact", "monte_carlo"))
  if (method == "exact") return(new_estimate("objective F", scale$objective, 0, NA, law))
  objective_by_draws(scale, model, law, mu, draws, target_values)
}

sparse_design <- function(X) {
  if (!is_sparse(X)) return(methods::as(methods::as(X, "CsparseMatrix"), "generalMatrix"))
  Matrix::sparseMatrix(i = rep(seq_along(X$start[-1L]), diff(X$start)), j = X$column + 1L, x = X$entry, dims = X$dim)
}

dense_design <- function(X) {
  if (is.matrix(X)) return(X)
  out <- .Call(elvi_r_dense_from_sparse, X, X$dim[2L])
  if (!is.null(X$names)) dimnames(out) <- list(NULL, X$names)
  out
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
