# From a formula and data in memory to a design: a frame, its columns, and what goes with them. Predictions use the same builder,
# see design-newdata.R.

# The model frame, by the conventions of glm().
formula_frame <- function(call, env) {
  keep <- match(c("object", "data", "subset", "weights", "frequency", "na.action", "offset"), names(call), 0L)
  call <- call[c(1L, keep)]
  names(call)[names(call) == "object"] <- "formula"
  call$drop.unused.levels <- TRUE
  call[[1L]] <- quote(stats::model.frame)
  frame <- tryCatch(reading_frame(eval(call, env)), elvi_error_argument = function(e) {
    formula <- or_null(stats::as.formula(eval(call$formula, env)))
    if (!is.null(formula)) refuse_unknown_variables(formula, eval(call$data, env), "data")
    stop(e)
  })
  if (!nrow(frame)) {
    refuse_argument("data", "`data` has no complete rows after `subset` and `na.action`.")
  }
  if (is.null(stats::model.response(frame))) {
    bad_argument("object", "a formula with a response on its left", "a one-sided formula")
  }
  check_response_apart(attr(frame, "terms"))
  for (name in names(frame)) if (inherits(.subset2(frame, name), "integer64")) refuse_integer64(frame[[name]], paste0("data$", name))
  frame
}

# R's own message says only that an object was not found.
refuse_unknown_variables <- function(formula, data, where) {
  there <- function(name) exists(name, envir = environment(formula))
  unknown <- Filter(Negate(there), setdiff(all.vars(formula), c(names(data), ".")))
  if (!length(unknown)) return(invisible())
  if (is.null(names(data))) refuse_argument(where, "There is no variable `", unknown[1L], "`. Is `", where, "` missing?")
  refuse_argument(where, "`", unknown[1L], "` is not a column of `", where, "`, and there is no variable of that name.",
                  nearest_name(unknown[1L], names(data)))
}

# The response as a term of its own: model.matrix() would drop the column and keep the term. Its variable in another form
# is allowed, as in lm().
check_response_apart <- function(terms) {
  at <- attr(terms, "response")
  if (at == 0) return(invisible())
  variables <- as.list(attr(terms, "variables"))[-1L]
  response <- variables[[at]]
  factors <- attr(terms, "factors")
  if (length(factors) && any(factors[at, ] > 0)) {
    elvi_abort("`", deparse1(response), "` is the response and also a term of the formula. Remove it from the right-hand side.",
               class = "elvi_error_argument", data = list(argument = "object"))
  }
  twice <- intersect(all.vars(response), unlist(lapply(variables[-at], all.vars)))
  if (length(twice) && length(all.vars(response)) == 1L) {
    elvi_inform("`", twice, "` is on both sides of the formula: it is a predictor of itself, and predict() needs it in `newdata`.",
                class = "elvi_message_response")
  }
}

check_data <- function(data) {
  data <- as_source_of_rows(data)
  if (!is.data.frame(data) && !is.environment(data) && !is_plain_list(data) && !is_source(data)) {
    bad_argument("data", "a data frame, a list, an environment, a lazy table or a source such as rows_chunked() makes", describe(data))
  }
  data
}

check_contrasts <- function(contrasts, frame) {
  if (is.null(contrasts)) return(invisible())
  if (!is_plain_list(contrasts) || is.null(names(contrasts))) {
    bad_argument("contrasts", "a list with the names of factors of the formula", describe(contrasts))
  }
  absent <- setdiff(names(contrasts), names(frame))
  if (length(absent)) {
    bad_argument("contrasts", paste0("named as variables of the formula (", toString(names(frame)), ")"),
                 describe(absent[1L]))
  }
}

# A name beyond 10,000 bytes is never looked up: up to version 4.2, at least, R refuses
# it too, but marks the string such that its own count of memory is wrong ever after, and
# every allocation then collects garbage.
check_na_action <- function(na.action) {
  if (is.null(na.action) || is.function(na.action)) return(invisible())
  if (!is.character(na.action) || length(na.action) != 1L || nchar(na.action, "bytes") > 1e4 ||
        !isTRUE(or_else(is.function(match.fun(na.action)), FALSE))) {
    bad_argument("na.action", "a function such as na.omit, or its name", describe(na.action))
  }
}

# terms of 'brms', 'INLA' and 'glmmTMB', and what they are called here
terms_of_others <- c(gp = "Use hsgp(x)", f = "See ?latent_terms for time series, maps and smooths", ar = "Use ar1(time)",
                     arma = "Use ar1(time)", ma = "Use ar1(time)", car = "Use bym2() or icar()", ou = "Use ar1(time)",
                     me = "Errors in predictors are not supported", mi = "Impute missing predictors before",
                     mmc = "Use mm()", cosy = "Use (1 | g)", unstr = "Use (0 + factor(time) | g)", rr = "Use (x | g)")

refuse_foreign_function <- function(message) {
  name <- sub(".*could not find function \"([^\"]*)\".*", "\\1", message)
  if (name == message || !name %in% names(terms_of_others)) return(invisible())
  refuse_argument("object", "elvi has no term ", name, "(). ", terms_of_others[[name]], ".")
}

# Errors of model.frame() name the argument that they are about, if it has a name
# in the frame, else the formula.
reading_frame <- function(expr) {
  tryCatch(expr, error = function(e) {
    if (is_time_limit(e)) stop(e)
    about <- c("weights", "frequency", "offset", "subset")
    named <- about[vapply(about, function(a) grepl(paste0("(", a, ")"), conditionMessage(e), fixed = TRUE), NA)]
    refuse_foreign_function(conditionMessage(e))
    blame_argument(stop(e), c(named, "object")[1L], "the variables of the formula cannot be read")
  })
}

# The design of a formula in memory. `parts` is what structured_formula() returns: NULL for a formula without latent terms.
formula_design <- function(parts, call, env, contrasts, knots = NULL) {
  specs <- smooth_specs(parts$smooths, environment(parts$fixed))
  knots <- check_knots(knots, specs)
  if (!is.null(parts)) call$object <- frame_formula(parts, smooth_variables(specs))
  frame <- formula_frame(call, env)
  check_contrasts(contrasts, frame)
  frame_design(parts, specs, frame, contrasts, knots)
}

# X as the user means it, what to subtract for the computation, the columns Z of latent terms (NULL without), and what goes with them.
frame_design <- function(parts, specs, frame, contrasts, knots = NULL) {
  terms <- attr(frame, "terms")
  if (!is.null(parts)) {
    terms <- subset_terms(stats::terms(parts$fixed), frame)
    contrasts_of_X <- contrasts[names(contrasts) %in% all_variable_names(terms)]
  } else {
    contrasts_of_X <- contrasts
  }
  refuse_single_levels(terms, frame)
  X <- stats::model.matrix(terms, frame, if (length(contrasts_of_X)) contrasts_of_X)
  if (is.null(parts) && !ncol(X)) bad_argument("object", "a formula with at least one coefficient", "an empty one")
  if (ncol(X)) check_magnitude(check_matrix(X, "data"), "data")   # before centring turns Inf into NaN
  counting <- rows_that_count(frame)
  smooths <- latent <- parts_of_smooths <- list()
  if (!is.null(parts)) {
    smooths <- set_up_smooths(specs, frame, counting, knots)
    parts_of_smooths <- columns_of_smooths(smooths, frame)
    latent <- latent_terms(parts, smooths, frame, counting, contrasts)
  }
  whole <- add_free_columns(X, smooths, parts_of_smooths, latent, frame)
  intercept <- attr(terms, "intercept") == 1
  offset <- blame_argument(stats::model.offset(frame), "offset", "it cannot be used")
  list(terms = terms, frame = frame, X = whole, y = stats::model.response(frame, "any"), intercept = intercept,
       centre = design_centre(whole, intercept, counting), spread = design_spread(whole, frame, counting),
       weights = stats::model.weights(frame), frequency = frame[["(frequency)"]], offset = offset, offset_given = !is.null(offset),
       xlevels = stats::.getXlevels(terms, frame), contrasts = attr(X, "contrasts"), constant = constant_columns(X),
       Z = latent_columns(latent, frame, parts_of_smooths), latent = latent, smooths = smooths)
}

# Those of a formula, in the order of their columns in Z.
latent_terms <- function(parts, smooths, frame, counting, contrasts) {
  make <- function(kind, x) term_kinds[[kind]]$make(x, frame, counting, contrasts)
  latent <- number_columns(do.call(c, c(lapply(parts$bars, make, kind = "group"), lapply(smooths, make, kind = "smooth"),
                                        lapply(parts$others, function(other) {
                                          make_terms_by(other$kind, other$call, frame, counting, contrasts)
                                        }))))
  check_distinct(latent)
  latent
}

# Factors with a single level have no contrasts.
refuse_single_levels <- function(terms, frame) {
  names <- rownames(attr(terms, "factors"))
  for (name in names[seq_along(names) != attr(terms, "response")]) {
    x <- if (name %in% names(frame)) .subset2(frame, name)
    levels <- if (is.factor(x)) levels(x) else if (is.character(x)) unique(x)
    if (length(levels) != 1L) next
    elvi_abort("`", name, "` has the single level ", describe(levels), " in these data, so it has no effect to estimate. ",
               "Remove it from the formula.", class = "elvi_error_argument", data = list(argument = "object"))
  }
}

# what penalties and constraints leave free joins the coefficients
add_free_columns <- function(X, smooths, parts, latent, frame) {
  if (!length(latent) && !length(smooths)) return(X)
  if (length(smooths)) {
    free <- do.call(cbind, lapply(parts, `[[`, "free"))
    colnames(free) <- unlist(lapply(smooths, free_names))
    X <- cbind(X, free)
  }
  free <- do.call(cbind, lapply(latent, term_free, frame = frame))
  if (is.null(free)) X else cbind(X, free)   # cbind() drops the attributes of model.matrix()
}

columns_of_smooths <- function(smooths, frame) {
  stats::setNames(lapply(smooths, smooth_columns, frame), vapply(smooths, `[[`, "", "label"))
}

# Z: the columns of latent terms, side by side; those of terms that are not kept are empty
latent_columns <- function(latent, frame, parts_of_smooths, keep = rep(TRUE, length(latent))) {
  if (!length(latent)) return(NULL)
  sparse_columns(Map(function(term, kept) {
    if (kept) term_columns(term, frame, parts_of_smooths) else empty_columns(nrow(frame), length(term$columns))
  }, latent, keep), nrow(frame))
}

# The columns of a term that add up to 1 in every row, as those of a factor do in a formula without an intercept.
constant_columns <- function(X) {
  for (columns in split(seq_len(ncol(X)), attr(X, "assign"))) {
    if (length(columns) < 2L) next
    part <- X[, columns, drop = FALSE]
    if (all(part == 0 | part == 1) && all(rowSums(part) == 1)) return(columns)
  }
  integer()
}

# Rows with no weight or no trials add nothing, to means and scales either. TRUE where all rows count: nothing is copied.
rows_that_count <- function(frame) {
  y <- stats::model.response(frame, "any")
  trials <- if (is.matrix(y) && is.numeric(y)) rowSums(y)
  nothing <- Reduce(function(a, x) if (is.null(x)) a else a | x %in% 0,
                    list(stats::model.weights(frame), frame[["(frequency)"]], trials), FALSE)
  if (any(nothing) && !all(nothing)) !nothing else TRUE
}

design_centre <- function(X, intercept, counting) {
  centre <- numeric(ncol(X))
  if (intercept) centre[-1L] <- colMeans(if (isTRUE(counting)) X else X[counting, , drop = FALSE])[-1L]
  centre
}

# What autoscaled priors need from the data: standard deviations of some columns, mean and standard deviation of a numeric
# response, and the mean of weights that are precisions.
design_spread <- function(X, frame, counting) {
  y <- stats::model.response(frame, "any")
  weights <- check_weights(stats::model.weights(frame), nrow(frame))
  list(columns = function(j) vapply(j, function(j) column_scale(X[counting, j]), 0),
       response = if (is.numeric(y) && !is.matrix(y)) list(mean = mean(y[counting]), sd = stats::sd(y[counting])),
       positive = positive_level(y, stats::model.offset(frame), counting),
       precision = mean(weights[weights > 0]))
}

# The standard deviation of a column; of one that is constant, its size, so that its unit does not matter either.
column_scale <- function(x) {
  size <- max(abs(x))
  off <- x - sum(x) / length(x)
  sd <- sqrt(sum(off^2) / (length(x) - 1))   # stats::sd() takes longer than the rest of this
  if (isTRUE(sd > 1e-12 * size)) sd else if (size > 0) size else 1
}

# Of positive responses: their mean, and what a model of nothing but an intercept says that the mean is without offsets, given
# that only times of events are complete. NULL for responses that are not positive.
positive_level <- function(y, offset, counting) {
  if (has_intervals(y)) y <- interval_middle(interval_ends(y)) * ifelse(is.infinite(interval_ends(y)[, "to"]), -1, 1)
  else if (inherits(y, "Surv") && "time" %in% colnames(y)) y <- ifelse(y[, "status"] == 1, 1, -1) * y[, "time"]
  else if (!is.numeric(y) || is.matrix(y) || !all(y > 0)) return(NULL)
  y <- y[counting]
  offset <- if (is.null(offset) || length(offset) == 1L) 0 else offset[counting]
  positive_sums(c(sum(abs(y)), sum(abs(y) * exp(-offset)), sum(y > 0), length(y)))
}

# from sums of responses, of those without offsets, and numbers of events and rows
positive_sums <- function(sums) {
  base <- log(sums[2L] / max(sums[3L], 1))
  list(mean = sums[1L] / sums[4L], log_base = if (is.finite(base)) base else 0)
}

sparse_columns <- function(columns, n) {
  none <- Matrix::sparseMatrix(i = integer(), j = integer(), dims = c(n, 0L))
  Z <- if (length(columns)) do.call(cbind, columns) else none
  methods::as(methods::as(methods::as(Z, "dMatrix"), "generalMatrix"), "CsparseMatrix")
}

# the place of each term's columns in Z
number_columns <- function(terms) {
  last <- 0L
  for (i in seq_along(terms)) {
    size <- length(terms[[i]]$levels) * length(terms[[i]]$coefs)
    terms[[i]]$columns <- last + seq_len(size)
    last <- last + size
  }
  terms
}

# The same coefficient of the same factor twice has two standard deviations that nothing tells apart.
check_distinct <- function(latent) {
  keys <- unlist(lapply(latent, function(term) paste0("(", term$coefs, " | ", term$label, ")")))
  twice <- keys[duplicated(keys)]
  if (length(twice)) {
    elvi_abort("`object`: the group-level term `", twice[1L], "` occurs twice.",
               class = c("elvi_error_term", "elvi_error_argument"),
               data = list(argument = "object", term = twice[1L]))
  }
}
