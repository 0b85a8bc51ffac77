# The curvature of a target that is a function, on the pattern of its Hessian: what natural gradient steps in many dimensions need.
#
# A curvature is a list with
#   row, column   entries of the Hessian on and below the diagonal, every diagonal one among them, from 1
#   at(x, unit)   their values at the columns of x, entries x points; NA where the target fails. `unit`: sizes of small moves
#   cost          gradients that the values at a point take, at least 1
#   source        in words, where the pattern comes from

# The pattern as given or, with `detect`, as found; NULL where there is none, or the factor would be too large.
curvature_of <- function(model, detect = TRUE) {
  known <- known_curvature(model)
  if (!is.null(known)) return(known)
  found <- if (!is.null(model$sparsity)) list(pattern = model$sparsity, source = "given by `sparsity`")
           else if (detect) detected_sparsity(model)
  if (is.null(found)) return(if (model$dim <= widest_full) differenced_curvature(model, full_entries(model$dim), "a full matrix"))
  differenced_curvature(model, found$pattern, found$source)
}

full_entries <- function(dim) {
  low <- which(lower.tri(diag(dim), diag = TRUE), arr.ind = TRUE)
  list(row = low[, 1L], column = low[, 2L])
}

# ---- from a Hessian -----------------------------------------------------------------------------------------

# Of a function that returns sparse matrices of package 'Matrix' with the same pattern everywhere, or dense ones.
known_curvature <- function(model) {
  hessian <- model$sparse_hessian %||% model$hessian
  if (is.null(hessian)) return(NULL)
  probe <- or_null(hessian(probe_points(model$dim)[, 1L])) %||% or_null(hessian(numeric(model$dim)))
  if (is.null(probe)) return(NULL)
  if (!methods::is(probe, "sparseMatrix")) {
    if (model$dim > widest_full) return(NULL)
    entries <- full_entries(model$dim)
    read <- function(H) as.matrix(H)[cbind(entries$row, entries$column)]
  } else {
    first <- lower_triangle(probe)
    entries <- with_diagonal(first@i + 1L, first@j + 1L, model$dim)
    take <- match(paste(entries$row, entries$column), paste(first@i + 1L, first@j + 1L))
    read <- function(H) {
      H <- lower_triangle(H)
      if (length(H@x) != length(take) && !identical(H@i, first@i) || !identical(H@j, first@j)) {
        return(as.matrix(methods::as(H, "CsparseMatrix")[cbind(entries$row, entries$column)]))
      }
      out <- H@x[take]
      replace(out, is.na(take), 0)
    }
  }
  at <- function(x, unit = NULL) {
    matrix(vapply(seq_len(ncol(x)), function(j) {
      H <- or_null(hessian(x[, j]))
      if (is.null(H)) rep(NA_real_, length(entries$row)) else as.double(read(H))
    }, numeric(length(entries$row))), length(entries$row))
  }
  c(entries, list(at = at, cost = 4, source = "the Hessian's"))
}

lower_triangle <- function(H) methods::as(methods::as(Matrix::tril(H), "generalMatrix"), "TsparseMatrix")

# entries in a fixed order, the diagonal complete
with_diagonal <- function(row, column, dim) {
  entry <- unique(rbind(cbind(row, column), cbind(seq_len(dim), seq_len(dim))))
  entry <- entry[order(entry[, 2L], entry[, 1L]), , drop = FALSE]
  list(row = entry[, 1L], column = entry[, 2L])
}

# A user's `sparsity`: a symmetric matrix of package 'Matrix' or a dense one, entries that are not 0
check_sparsity <- function(sparsity, dim) {
  if (is.null(sparsity)) return(NULL)
  shape <- dim(sparsity)
  if (!identical(as.double(shape), c(dim, dim))) {
    bad_argument("sparsity", sprintf("a %g x %g matrix whose entries are not 0 where the Hessian's may not be", dim, dim),
                 describe(sparsity))
  }
  entries <- methods::as(methods::as(methods::as(sparsity, "dMatrix"), "generalMatrix"), "TsparseMatrix")
  kept <- entries@x != 0
  with_diagonal(pmax(entries@i, entries@j)[kept] + 1L, pmin(entries@i, entries@j)[kept] + 1L, dim)
}

# ---- from gradients -----------------------------------------------------------------------------------------

# Which components of the gradient change with each parameter, by a difference for each at one point. NULL if most do.
detected_sparsity <- function(model) {
  d <- model$dim
  if (d > widest_detected) return(NULL)
  x <- with_key(c(20261118, 30), stats::runif(d, -0.5, 0.5))
  at <- guarded_gradients(model, matrix(x))
  if (!all(is.finite(at))) {
    x <- x / 10
    at <- guarded_gradients(model, matrix(x))
    if (!all(is.finite(at))) return(NULL)
  }
  changed <- function(j) {
    moved <- matrix(x, d, length(j))
    moved[cbind(j, seq_along(j))] <- x[j] + 0.05
    g <- guarded_gradients(model, moved)
    which(!(abs(g - drop(at)) <= 1e-9 * (abs(drop(at)) + 1e-3)), arr.ind = TRUE)
  }
  some <- unique(round(seq(1, d, length.out = 40L)))
  if (nrow(changed(some)) > 0.3 * d * length(some)) return(NULL)
  blocks <- split(seq_len(d), (seq_len(d) - 1L) %/% max(1L, min(500L, check_numbers %/% d)))
  entries <- do.call(rbind, lapply(blocks, function(j) {
    found <- changed(j)
    cbind(found[, 1L], j[found[, 2L]])
  }))
  list(pattern = with_diagonal(pmax(entries[, 1L], entries[, 2L]), pmin(entries[, 1L], entries[, 2L]), d),
       source = sprintf("found by %s differences of the gradient", format_count(d)))
}

# Values by differences of the gradient: parameters that no component of the gradient has in common move together (Curtis, Powell and
# Reid, 1974). Rows that nearly all parameters are in would forbid that; their entries are taken from their own columns.
differenced_curvature <- function(model, entries, source) {
  d <- model$dim
  colour <- column_colours(entries, d)
  layout_ok <- length(entries$row) <= most_pattern_entries
  if (!layout_ok) return(NULL)
  by_row <- colour$hub[entries$row] & !colour$hub[entries$column]
  of_row <- ifelse(by_row, entries$column, entries$row)
  of_column <- ifelse(by_row, entries$row, entries$column)
  colours <- max(colour$colour)
  pick <- cbind(of_row, colour$colour[of_column])
  at <- function(x, unit, gradient = NULL) {
    n <- ncol(x)
    gradient <- gradient %||% guarded_gradients(model, x)
    h <- 1e-4 * unit
    out <- matrix(NA_real_, nrow(pick), n)
    each <- max(1L, check_numbers %/% d)
    for (j in seq_len(n)) {
      moved <- matrix(0, d, colours)
      for (part in split(seq_len(colours), (seq_len(colours) - 1L) %/% each)) {
        y <- matrix(x[, j], d, length(part))
        mine <- which(colour$colour %in% part)
        y[cbind(mine, match(colour$colour[mine], part))] <- x[mine, j] + h[mine]
        moved[, part] <- guarded_gradients(model, y) - gradient[, j]
      }
      out[, j] <- moved[pick] / h[of_column]
    }
    out
  }
  c(entries, list(at = at, cost = colours + 1, source = source))
}

# A colour for each column, such that columns of one colour have no row in common but rows of hubs; hubs have colours of their own.
column_colours <- function(entries, d) {
  degree <- tabulate(c(entries$row, entries$column[entries$row != entries$column]), d)
  hub <- degree > max(min(20, d / 2), 5 * stats::median(degree))
  colour <- integer(d)
  inner <- !hub[entries$row] & !hub[entries$column]
  if (sum(inner) == d - sum(hub)) {
    colour[!hub] <- 1L
  } else {
    place <- cumsum(!hub)
    A <- Matrix::sparseMatrix(i = place[entries$row[inner]], j = place[entries$column[inner]], x = 1, dims = rep(sum(!hub), 2L),
                              symmetric = TRUE)
    C <- methods::as(methods::as(Matrix::crossprod(A), "generalMatrix"), "CsparseMatrix")
    mine <- integer(sum(!hub))
    for (j in seq_along(mine)) {
      used <- mine[C@i[C@p[j] + seq_len(C@p[j + 1L] - C@p[j])] + 1L]
      mine[j] <- which(!seq_len(length(used) + 1L) %in% used)[1L]
    }
    colour[!hub] <- mine
  }
  colour[hub] <- max(colour) + seq_len(sum(hub))
  list(colour = colour, hub = hub)
}

# The curvature of some of the parameters, the others held: `full(u)` makes whole points of points u.
curvature_within <- function(curvature, keep) {
  place <- match(seq_along(keep), which(keep))
  inner <- which(keep[curvature$row] & keep[curvature$column])
  list(row = place[curvature$row[inner]], column = place[curvature$column[inner]], inner = inner)
}
