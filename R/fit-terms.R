# A linear predictor in its parts: terms of the model matrix, smooths, latent terms. For predict(type = "terms"), smooth_estimates() and
# plots of smooths.

# Each part: label, `coefficients` and latent `terms` that it is made of, and `smooth`, NULL for parts that are not smooths.
predictor_parts <- function(object) c(parametric_parts(object), latent_parts(object))

latent_parts <- function(object) {
  names <- coefficient_names(object)
  first <- object$groups[in_line(object$groups, 1L)]
  of_smooth <- vapply(first, function(term) term$smooth %||% "", "")
  smooths <- lapply(object$smooths, function(smooth) {
    list(label = smooth$label, coefficients = match(free_names(smooth), names), terms = first[of_smooth == smooth$label], smooth = smooth)
  })
  latent <- lapply(first[of_smooth == ""], function(term) {
    list(label = part_label(term), coefficients = match(colnames(term_free(term, object$frame)), names), terms = list(term))
  })
  c(smooths, latent)
}

parametric_parts <- function(object) {
  terms <- stats::delete.response(object$terms)
  assign <- attr(stats::model.matrix(terms, object$frame, contrasts.arg = object$contrasts), "assign")
  labels <- attr(terms, "term.labels")
  lapply(seq_along(labels), function(i) list(label = labels[i], coefficients = which(assign == i), terms = list()))
}

# (1 + x | g), or the label that a latent term has
part_label <- function(term) {
  if (has_levels(list(term))) paste0("(", deparse_one(term$slopes[[2L]]), " | ", term$label, ")") else term$label
}

# ---- predict(type = "terms") ------------------------------------------------------------------------------------

# Terms of the model matrix are centred at the means of the data, as those of lm() are, where there is an intercept.
predict_terms <- function(object, newdata, rows, se.fit) {
  check_in_memory(object)
  parts <- predictor_parts(object)
  means <- numeric(ncol(rows$X))
  parametric <- unlist(lapply(parts, function(part) if (!length(part$terms) && is.null(part$smooth)) part$coefficients))
  intercept <- attr(object$terms, "intercept") == 1
  if (intercept && length(parametric)) {
    X <- stats::model.matrix(stats::delete.response(object$terms), object$frame, contrasts.arg = object$contrasts)
    means[parametric] <- colMeans(X[, parametric, drop = FALSE])
  }
  weight <- object$posterior$weight
  at <- lapply(parts, function(part) mix_moments(linear_predictor(object, rows_of_part(rows, part, means)), weight))
  table <- function(field) {
    values <- matrix(vapply(at, `[[`, numeric(nrow(rows$X)), field), nrow(rows$X), length(parts))
    dimnames(values) <- list(rownames(rows$X), vapply(parts, `[[`, "", "label"))
    if (is.null(newdata)) stats::naresid(object$na.action, values) else values
  }
  at_means <- if (intercept) replace(means, 1L, 1) else means
  centre <- sum(at_means * posterior_moments(object$posterior)$mean[seq_along(means)])
  fit <- structure(table("mean"), constant = if (intercept) centre else 0)
  if (se.fit) list(fit = fit, se.fit = table("sd")) else fit
}

# rows of a design with nothing but one part in them
rows_of_part <- function(rows, part, means) {
  X <- matrix(0, nrow(rows$X), ncol(rows$X), dimnames = dimnames(rows$X))
  own <- part$coefficients
  X[, own] <- rows$X[, own, drop = FALSE] - rep(means[own], each = nrow(X))
  labels <- vapply(part$terms, `[[`, "", "label")
  Z <- rows$Z
  if (!is.null(Z)) {
    kept <- seq_len(ncol(Z)) %in% unlist(lapply(part$terms, `[[`, "columns"))
    Z <- Z %*% Matrix::Diagonal(x = as.double(kept))
  }
  list(X = X, Z = Z, offset = numeric(nrow(X)), new = Filter(function(new) new$term$label %in% labels, rows$new))
}

# ---- smooths at a grid ------------------------------------------------------------------------------------------

#' Smooths at a grid of values
#'
#' `smooth_estimates()` gives posterior means and standard deviations of each smooth of a fit on a grid of its variables, in the
#' shape of `gratia::smooth_estimates()`. Smooths are those of 'mgcv' and the [latent terms][latent_terms] that are not effects
#' of groups.
#'
#' @param object a fit by [elvi()] from a formula.
#' @param select labels of smooths, all of them by default.
#' @param n number of values along a smooth of one variable.
#' @param n_2d number of values along each variable of a smooth of two variables. Smooths of more variables are left out.
#' @param ... nothing: unknown names are errors.
#' @return A data frame with the label of the smooth (`.smooth`), its type (`.type`), the variable of `by = ` (`.by`), posterior mean
#'   (`.estimate`) and standard deviation (`.se`) of the smooth, and a column for each variable, `NA` where a smooth does not have it.
#' @seealso [`predict(type = "terms")`][predict.elvi_glm] for the rows of the data or of new data,
#' [`plot(fit, "smooths")`][plot.elvi_fit]
#' @examples
#' nile <- data.frame(year = 1871:1970, flow = as.numeric(Nile))
#' fit <- elvi(flow ~ rw1(year), data = nile)
#' head(smooth_estimates(fit))
#' @export
smooth_estimates <- function(object, ...) UseMethod("smooth_estimates")

#' @export
smooth_estimates.default <- function(object, ...) not_a_regression(object)

#' @rdname smooth_estimates
#' @export
#' @rawNamespace S3method(gratia::smooth_estimates, elvi_glm)
smooth_estimates.elvi_glm <- function(object, select = NULL, n = 100, n_2d = 40, ...) {
  check_dots(list(...), names(formals()), "smooth_estimates()")
  check_in_memory(object)
  surfaces <- smooth_surfaces(object, select, "select", check_count(n, "n"), check_count(n_2d, "n_2d"))
  tables <- lapply(surfaces, function(surface) {
    moments <- mix_moments(surface$at, object$posterior$weight)
    part <- surface$part
    cbind(data.frame(.smooth = part$label, .type = smooth_type(part), .by = part_by(part)$variable %||% NA_character_,
                     .estimate = moments$mean, .se = moments$sd), surface$grid)
  })
  columns <- unique(unlist(lapply(tables, names)))
  tables <- lapply(tables, function(table) {
    table[setdiff(columns, names(table))] <- NA
    table[columns]
  })
  do.call(rbind, c(list(data.frame(.smooth = character(), .type = character(), .by = character(), .estimate = numeric(), .se = numeric())),
                   tables))
}

# For each smooth that can be shown at a grid: its part, the grid of its variables, and means and standard deviations at each component.
smooth_surfaces <- function(object, select, argument, n = 100L, n_2d = 40L) {
  parts <- smooth_parts(object)
  labels <- vapply(parts, `[[`, "", "label")
  if (!is.null(select) && (!is.character(select) || !all(select %in% labels))) {
    odd <- if (is.character(select)) setdiff(select, labels)[1L] else select
    bad_argument(argument, paste0("among the smooths (", toString(labels), ")"), describe(odd))
  }
  if (!is.null(select)) parts <- parts[labels %in% select]
  surfaces <- lapply(parts, function(part) {
    frame <- smooth_grid(part, object$frame, n, n_2d)
    if (is.null(frame)) return(NULL)
    by <- part_by(part)
    grid <- frame[unique(c(part_variables(part), by$variable))]
    list(part = part, grid = grid, at = linear_predictor(object, rows_at_grid(object, part, frame)))
  })
  Filter(Negate(is.null), surfaces)
}

# none where the fit is not from a formula
smooth_parts <- function(object) {
  if (!length(object$groups)) return(list())
  Filter(function(part) !is.null(part$smooth) || !has_levels(part$terms), latent_parts(object))
}

part_variables <- function(part) {
  term <- if (is.null(part$smooth)) part$terms[[1L]]
  if (is.null(term)) part$smooth$variables else c(term$variable, term$variable_names, term$by)
}

# variable and level of by = f; the level is NULL where `by` is a number
part_by <- function(part) {
  if (is.null(part$smooth)) part$terms[[1L]]$only
  else if (!is.null(part$smooth$by)) list(variable = part$smooth$by, level = part$smooth$by_level)
}

# a frame with the rows at which a part is shown, or NULL
smooth_grid <- function(part, frame, n, n_2d) {
  by <- part_by(part)
  own <- if (is.null(by$level)) seq_len(nrow(frame)) else which(as.character(frame[[by$variable]]) == by$level)
  own <- rows_of_frame(frame, own)
  out <- if (is.null(part$smooth)) term_record(part$terms[[1L]])$grid(part$terms[[1L]], own, n, n_2d)
         else variables_grid(part$smooth$variables, own, n, n_2d)
  if (!is.null(out) && !is.null(by) && is.null(by$level)) out[[by$variable]] <- 1
  out
}

# all combinations of values along numbers, at most two, and of levels
variables_grid <- function(variables, frame, n, n_2d) {
  numbers <- vapply(variables, function(name) is.numeric(frame[[name]]) && is.null(dim(frame[[name]])), NA)
  if (sum(numbers) > 2L) return(NULL)
  length <- if (sum(numbers) == 2L) n_2d else n
  values <- lapply(variables, function(name) {
    x <- frame[[name]]
    if (is.numeric(x)) seq(min(x), max(x), length.out = length) else factor(levels(as.factor(x)), levels(as.factor(x)))
  })
  repeat_frame(frame, expand.grid(stats::setNames(values, variables), KEEP.OUT.ATTRS = FALSE))
}

# the first row of a frame, or the given ones, with other values
repeat_frame <- function(frame, values, rows = rep(1L, nrow(values))) {
  out <- rows_of_frame(frame, rows)
  for (name in names(values)) out[[name]] <- values[[name]]
  rownames(out) <- NULL
  out
}

# numbers as the variable has them: a factor's codes, dates
as_variable <- function(x, value) {
  if (is.factor(x)) return(factor(levels(x)[round(value)], levels(x)))
  if (inherits(x, c("Date", "POSIXct"))) attributes(value) <- attributes(x)[c("class", "tzone")]
  value
}

# each series of a term at its own values; other variables are those of a row of the series
series_grid <- function(term, frame, value) {
  chain <- chain_of(term, frame)
  there <- term$chain %in% chain
  values <- data.frame(as_variable(frame[[term$variable]], value[there]))
  names(values) <- term$variable
  repeat_frame(frame, values, match(term$chain[there], chain))
}

rows_at_grid <- function(object, part, frame) {
  names <- coefficient_names(object)
  X <- matrix(0, nrow(frame), length(names), dimnames = list(NULL, names))
  columns <- if (!is.null(part$smooth)) smooth_columns(part$smooth, frame)
  free <- if (is.null(columns)) term_free(part$terms[[1L]], frame) else columns$free
  if (length(part$coefficients)) X[, part$coefficients] <- free
  total <- posterior_dim(object$posterior) - length(names)
  Z <- Reduce(`+`, lapply(part$terms, function(term) {
    own <- if (is.null(columns)) term_columns(term, frame) else methods::as(columns$penalised[[term$part]], "CsparseMatrix")
    own %*% Matrix::sparseMatrix(i = seq_along(term$columns), j = term$columns, x = 1, dims = c(length(term$columns), total))
  }))
  list(X = X, Z = methods::as(methods::as(Z, "generalMatrix"), "CsparseMatrix"), offset = numeric(nrow(frame)),
       new = if (is.null(part$smooth)) unseen_levels(part$terms, frame, FALSE) else list())
}

# as 'gratia' calls the smooths of 'mgcv'
smooth_type <- function(part) {
  if (is.null(part$smooth)) return(toupper(part$terms[[1L]]$kind))
  known <- c(tprs.smooth = "TPRS", ts.smooth = "TPRS (shrink)", cr.smooth = "CRS", cs.smooth = "CRS (shrink)", cyclic.smooth = "Cyclic CRS",
             pspline.smooth = "P spline", cpspline.smooth = "Cyclic P spline", gp.smooth = "GP", random.effect = "Random effect",
             mrf.smooth = "MRF", fs.interaction = "Factor smooth", tensor.smooth = "Tensor product", t2.smooth = "Tensor product (T2)")
  class <- class(part$smooth$smooth)[1L]
  if (class == "tensor.smooth" && isTRUE(part$smooth$smooth$inter)) return("Tensor product int.")
  if (class %in% names(known)) known[[class]] else class
}
