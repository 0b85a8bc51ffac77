# Rows of a fit's design, for its own data or for new ones: list(X, Z, offset, new, second, lines). `lines` has such rows for each
# predictor of classes. Z is NULL without group-level and smooth
# terms. X and Z have all columns, those of the mean filled; `second` is the same for a second parameter, NULL without. `new` has,
# for each term, the rows whose effects the data did not have: list(term, rows, labels, level, columns, variance, draws).
# `labels` are the new levels or places, `level` which of them each row has. Given a row of hyperparameters by name, columns() is what their
# means add to the columns of these rows (NULL where there is nothing); given a matrix of them, variance() has the variances around
# the means, rows x hyperparameters, and draws() has draws, hyperparameters x rows.
prediction_rows <- function(object, newdata, re.form = NULL, allow_new_levels = FALSE, offset = NULL) {
  keep <- kept_terms(object, re.form)
  if (is.null(newdata)) check_in_memory(object) else newdata <- located(object, check_newdata(newdata))
  if (!is.null(newdata) && !nrow(newdata)) return(no_rows(object))   # which splines and polynomials cannot take
  frame <- if (is.null(newdata)) object$frame else new_frame(object, newdata, keep)
  X <- stats::model.matrix(stats::delete.response(object$terms), frame, contrasts.arg = object$contrasts)
  parts_of_smooths <- columns_of_smooths(object$smooths, frame)
  X <- add_free_columns(X, object$smooths, parts_of_smooths, object$groups[in_line(object$groups, 1L)], frame)
  names <- coefficient_names(object)
  rownames(X) <- rownames(frame)
  first <- keep & in_line(object$groups, 1L)
  offset <- row_offset(object, frame, newdata, offset)
  if (has_shared(object)) {
    lines <- lapply(seq_along(object$shared$classes), function(l) {
      mine <- keep & in_line(object$groups, l)
      list(X = within_columns(X, class_columns(object$shared, l), names), Z = latent_columns(object$groups, frame, parts_of_smooths, mine),
           offset = offset, new = unseen_levels(object$groups[mine], frame, allow_new_levels))
    })
    return(c(lines[[1L]], list(lines = lines)))
  }
  list(X = within_columns(X, setdiff(seq_along(names), object$second$columns), names),
       Z = latent_columns(object$groups, frame, parts_of_smooths, first), offset = offset,
       new = unseen_levels(object$groups[first], frame, allow_new_levels),
       second = if (!is.null(object$second)) second_rows(object, frame, keep, allow_new_levels))
}

# all columns of a row of the design, in the order of the posterior's parameters
design_columns <- function(rows) if (is.null(rows$Z)) rows$X else cbind(methods::as(rows$X, "CsparseMatrix"), rows$Z)

coefficient_names <- function(object) object$posterior$names[object$posterior$coefficients]

check_newdata <- function(newdata) {
  if (!is.data.frame(newdata) && !is_plain_list(newdata)) bad_argument("newdata", "a data frame", describe(newdata))
  if (is.data.frame(newdata)) newdata
  else blame_argument(as.data.frame(newdata, optional = TRUE), "newdata", "it is not a data frame")
}

no_rows <- function(object) {
  names <- coefficient_names(object)
  list(X = matrix(0, 0L, length(names), dimnames = list(NULL, names)),
       Z = if (length(object$groups)) empty_columns(0L, posterior_dim(object$posterior) - length(names)),
       offset = numeric(), new = list(), second = if (!is.null(object$second)) no_rows(without_second(object)),
       lines = if (has_shared(object)) rep(list(no_rows(without_shared(object))), length(object$shared$classes)))
}

empty_columns <- function(rows, columns) {
  if (!isNamespaceLoaded("Matrix")) loadNamespace("Matrix")   # package methods would attach it, with a message
  made <- no_columns
  attr(made, "Dim") <- as.integer(c(rows, columns))   # slots are attributes; `@<-` would check them
  attr(made, "p") <- integer(columns + 1)
  made
}

# made once: Matrix takes a millisecond to make and check one
no_columns <- Matrix::sparseMatrix(i = integer(), j = integer(), x = numeric(), dims = c(0L, 0L))

# which terms `re.form` keeps; smooths always stay
kept_terms <- function(object, re.form) {
  by_level <- has_levels(object$groups)
  if (is.null(re.form)) return(rep(TRUE, length(by_level)))
  if (length(re.form) == 1L && is.atomic(re.form) && is.na(re.form)) return(!by_level)
  if (!inherits(re.form, "formula") || length(re.form) != 2L) {
    bad_argument("re.form", "NULL, NA or a one-sided formula such as ~ (1 | g)", describe(re.form))
  }
  if (identical(re.form[[2L]], 0)) return(!by_level)
  asked <- structured_formula(re.form)$bars
  key <- function(label, slopes) paste(label, deparse_one(slopes))
  asked <- vapply(asked, function(bar) key(bar$label, bar$slopes), "")
  mine <- character(length(by_level))
  mine[by_level] <- vapply(object$groups[by_level], function(term) key(term$label, term$slopes[[2L]]), "")
  unknown <- setdiff(asked, mine)
  if (!length(asked) || length(unknown)) {
    bad_argument("re.form", "a formula with group-level terms of the fit, as written there", deparse_one(re.form))
  }
  !by_level | mine %in% asked
}

# The model frame of new data. Grouping factors may have any values; all other factors those of the fit.
new_frame <- function(object, newdata, keep) {
  terms <- stats::delete.response(attr(object$frame, "terms") %||% object$terms)
  grouping <- unlist(lapply(object$groups, function(term) c(term$group, term$open)))   # the terms say what is unknown to them
  absent <- unlist(lapply(object$groups[!keep], `[[`, "group"))
  for (name in setdiff(absent, names(newdata))) newdata[[name]] <- rep(NA_character_, nrow(newdata))
  free <- setdiff(grouping, c(all_variable_names(stats::delete.response(object$terms)),
                              if (!is.null(object$second)) all_variable_names(object$second$terms)))
  levels <- if (length(object$groups) || !is.null(object$second)) stats::.getXlevels(terms, object$frame) else object$xlevels
  frame <- tryCatch(
    blame_argument(stats::model.frame(terms, newdata, na.action = stats::na.pass, xlev = levels[setdiff(names(levels), free)]),
                   "newdata", "the variables of the formula cannot be read from it"),
    elvi_error_argument = function(e) {
      refuse_unknown_variables(terms, newdata, "newdata")
      stop(e)
    })
  classes <- attr(terms, "dataClasses")
  if (!is.null(classes)) {
    blame_argument(stats::.checkMFClasses(classes[setdiff(names(classes), free)], frame), "newdata",
            "a variable is not of the type it was fitted with")
  }
  frame
}

# for each term, the rows whose effects the data did not have
unseen_levels <- function(terms, frame, allowed) {
  new <- lapply(terms, term_unseen, frame = frame, allowed = allowed)
  new[lengths(new) > 0L]
}

refuse_new_level <- function(factor, level, ...) {
  refuse_argument("newdata", "`newdata` has a level of `", factor, "` that the fit has not seen: ", describe(level), ".", ...)
}

# effects of new levels of a grouping factor come from the population
new_levels <- function(term, frame, rows, allowed) {
  if (!length(rows)) return(NULL)
  labels <- do.call(paste, c(lapply(term$group, function(name) as.character(frame[[name]])[rows]), sep = ":"))
  if (!check_flag(allowed, "allow_new_levels")) {
    refuse_new_level(term$label, labels[1L], " Use allow_new_levels = TRUE to predict for it.")
  }
  new <- list(term = term, rows = rows, labels = unique(labels), level = match(labels, unique(labels)),
              M = slope_matrix(term$slopes, frame, term$contrasts)[rows, , drop = FALSE])
  c(new, list(variance = function(hyper) level_variances(new, hyper), draws = function(hyper, key) new_level_draws(new, hyper, key)))
}

level_variances <- function(new, hyper) {
  V <- covariance_draws(new$term, hyper)
  each <- vapply(seq_len(nrow(hyper)), function(k) rowSums((new$M %*% matrix(V[, , k], ncol(new$M))) * new$M), numeric(length(new$rows)))
  matrix(each, length(new$rows))
}

# That of the formula, and one outside of it: given now, or looked up in the new data as in the old ones.
row_offset <- function(object, frame, newdata, offset) {
  n <- nrow(frame)
  if (is.null(newdata)) return(stats::model.offset(object$frame) %||% numeric(n))
  within <- stats::model.offset(frame)
  outside <- object$call$offset
  if (!is.null(offset)) {
    outside <- check_vector(offset, "offset", n)
  } else if (!is.null(outside)) {
    outside <- or_null(eval(outside, newdata, environment(object$formula)))
    if (is.null(outside) || length(outside) != n) {
      refuse_argument("offset", "`offset` is missing: the fit had an offset outside its formula. Give the offset of `newdata`.")
    }
  }
  (within %||% 0) + (outside %||% 0) + numeric(n)
}
