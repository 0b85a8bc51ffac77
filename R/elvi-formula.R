#' Fit a regression from a formula
#'
#' One line of R: a Bayesian generalised linear model from a formula and a data
#' frame, fitted by the exact solver where the model has an exact objective and
#' by the stochastic algorithm elsewhere, tuned by nobody.
#'
#' @section Priors:
#' `prior` is for the slopes, `prior_intercept` for the intercept *when all
#' predictors are at their means*, as in 'rstanarm': predictors are centred
#' for the computation and results are reported for the original ones.
#' Autoscaling, as 'rstanarm' documents it, divides the prior scale of a slope by
#' the standard deviation of its predictor and, for `gaussian()` and [robust()],
#' multiplies by that of the response; the prior of their intercept is also
#' shifted by the mean of the response, and the rate of an exponential
#' `prior_aux` is divided by its standard deviation. For positive responses with a log link (`Gamma()`,
#' `inverse.gaussian()`, [weibull()] and `"exponential"`) the prior of the intercept is shifted by the logarithm of the mean
#' response, so that it does not matter in which unit the response is measured; censored times count as in an
#' exponential model, and offsets are taken out. [prior_summary()] shows what
#' was used. With a flat prior an optimum need not exist: a warning says so, and
#' separable data are refused.
#'
#' @section Families:
#' `binomial()` (links logit, probit, cloglog), `poisson()`, `"exponential"` times, and `gaussian()` and `Gamma(link = "log")` with
#' a known `dispersion` have an exact objective. `gaussian()` with unknown
#' residual standard deviation (the default), [neg_binomial_2()], `Gamma(link = "log")` and [weibull()] have one more parameter,
#' `sigma`, `phi` or `shape`,
#' which is integrated over (see [group_terms]): exact given it, quadrature over it. With [robust()], [Beta()] and
#' `inverse.gaussian()`, with student priors,
#' and with `method = "mpsgd"` or an argument that only that has, it is fitted on the log scale as `log_sigma` or
#' `log_phi`, last. See [families].
#'
#' @section Group-level and smooth terms:
#' `(1 | g)`, `(x | g)` and their kin, and `s(x)`: see [group_terms].
#'
#' @param object a formula, or an object that [stats::as.formula()] understands.
#' @param data data frame, list or environment with the variables, or a source of
#'   [data larger than memory][rows_elsewhere]: files, a database, a [cluster][rows_cluster()].
#' @param family response distribution and link.
#' @param prior,prior_intercept,prior_aux priors, see [normal()]. `prior_aux` is
#'   for the auxiliary parameter itself, not for its logarithm. `NULL` is a default that does not depend on units: see
#'   [families].
#' @param prior_sd,prior_cor priors of the standard deviations and correlations of [group-level and smooth terms][group_terms].
#' @param autoscale rescale the priors to the data? By default those you leave at
#'   their defaults are rescaled and those you give are taken as they are.
#' @param dispersion residual variance of the gaussian family, when it is known.
#' @param weights,subset,na.action,offset,contrasts as in [stats::glm()]. Weights of
#'   `gaussian()` are precisions, so the variance of a response is `sigma^2 / weight`;
#'   those of `binomial()` are the trials of a proportion; those of other families
#'   say how often a row counts, which is what those of 'rstanarm' are meant to do in every family (but its version
#'   2.21.3 does not look at them with `gaussian()`): `frequency` here.
#' @param frequency how often each row counts, for every family: 2 is the row given twice.
#' @param base,method,schedule,budget,tol,start,control as in [elvi()]; `method = "nested"` integrates over the auxiliary parameter, see
#'   [group_terms].
#' @param ... nothing: unknown names are errors.
#' @return An object of class `elvi_fit`, see [elvi()], that also knows its
#'   formula, terms and data, so that `predict(newdata = )` and `update()` work.
#' @seealso [`methods`][elvi_fit]
#' @examples
#' fit <- elvi(case ~ education + age + parity + induced + spontaneous,
#'             data = infert, family = binomial())
#' fit
#' @export
elvi.formula <- function(object, data, family = stats::gaussian(),
                         prior = normal(0, 2.5), prior_intercept = normal(0, 2.5),
                         prior_aux = NULL, prior_sd = exponential(1), prior_cor = lkj(1),
                         autoscale = NULL, dispersion = NULL,
                         weights, subset, na.action, offset, contrasts = NULL, frequency,
                         base = base_gaussian(), method = c("auto", "exact", "mpsgd", "nested"),
                         schedule = NULL, budget = NULL, tol = NULL, start = NULL,
                         control = elvi_control(), ...) {
  check_dots(list(...), names(formals()), "elvi()")
  call <- match.call()
  asks <- function(given) is.list(given) && isTRUE(given$autoscale)
  autoscale <- if (!is.null(autoscale)) c(sd = check_flag(autoscale, "autoscale"))[rep("sd", 4L)] else {
    c(slopes = missing(prior) || asks(prior), intercept = missing(prior_intercept) || asks(prior_intercept),
      aux = is.null(prior_aux) || asks(prior_aux), sd = missing(prior_sd))
  }
  method <- check_choice(method, "method", c("auto", "exact", "mpsgd", "nested"))
  if (!missing(data)) check_data(data)
  if (!missing(na.action)) check_na_action(na.action)
  elsewhere <- !missing(data) && is_source(data)
  structured <- structured_formula(object, if (!missing(data) && !elsewhere) data)
  if (elsewhere) check_for_source(structured, method, family, dispersion)
  priors <- list(prior = as_prior(prior, "prior"), prior_intercept = as_prior(prior_intercept, "prior_intercept"),
                 prior_aux = as_prior(prior_aux, "prior_aux"), prior_sd = prior_sd, prior_cor = prior_cor)
  asked <- list(formula = object, call = call, env = parent.frame(), family = family, priors = priors, autoscale = autoscale,
                dispersion = dispersion, contrasts = contrasts, base = base, control = control)
  unused <- list(schedule = schedule, budget = budget, tol = tol, start = start)
  would_nest <- method == "auto" && prefers_nested(family, dispersion, priors, unused, control)
  if (!is.null(structured) || method == "nested" || (would_nest && (!elsewhere || needs_no_rows(family, dispersion)))) {
    check_nested_arguments(structured, method, unused, missing(prior_sd), missing(prior_cor))
    if (elsewhere) return(showing_passes(control, nested_source_regression(data, asked)))
    return(nested_regression(structured, asked))
  }
  check_no_structure(missing(prior_sd), missing(prior_cor))
  family <- check_family(family)
  design <- if (elsewhere) showing_passes(control, source_design(data, object, call, parent.frame(), contrasts, family))
            else framed_rows(asked)
  design$dispersion <- dispersion
  if (!design$intercept && !missing(prior_intercept)) {
    bad_argument("prior_intercept", "left out: the formula has no intercept", format(prior_intercept))
  }
  priors <- formula_priors(design, family, priors$prior, priors$prior_intercept, priors$prior_aux, autoscale)
  if (is.null(priors$aux) && !is.null(prior_aux)) {
    bad_argument("prior_aux", "left out: this model has no auxiliary parameter", describe(prior_aux))
  }
  given <- c(design[c("X", "y", "weights", "frequency", "offset", "rows")], list(shift = if (design$intercept) design$centre))
  model <- glm_target(given, family, priors$joint,
                      if (is.null(family_record(family)$dispersion)) dispersion %||% 1 else dispersion, priors$aux)
  model$intercept_shift <- intercept_shift(design, model$dim)
  # left to itself, a stochastic run stops when it is close enough
  if (is.null(budget) && is.null(schedule) && !has_exact(model)) tol <- tol %||% 0.01
  if (would_nest) say_not_nested(model)
  warn_if_flat(priors$joint)
  fit <- elvi.elvi_model(model, base = base, method = method, schedule = schedule, budget = budget,
                         tol = tol, start = start, control = control)
  frame <- design$model_frame
  as_regression(fit, call, design, list(family = family, frame = frame, priors = priors, na.action = attr(frame, "na.action"),
                                        dispersion = model$dispersion, groups = list(), smooths = list()))
}

# the design of a formula whose data are in memory, and their frame
framed_rows <- function(asked) {
  frame <- formula_frame(asked$call, asked$env)
  check_contrasts(asked$contrasts, frame)
  c(formula_design(frame, asked$contrasts), list(model_frame = frame))
}

warn_if_flat <- function(prior) {
  flat <- sum(is.infinite(prior$scale))
  if (!flat) return(invisible())
  elvi_warn("The prior is flat for ", flat, " coefficient(s): a posterior, and an ",
            "optimum, need not exist then. Where none is found the fit is refused.",
            class = "elvi_warning_flat_prior")
}

as_regression <- function(fit, call, design, more) {
  call[[1L]] <- quote(elvi)   # not the method, which is not exported
  fit$given$call <- call
  fit$regression <- c(list(formula = stats::formula(design$terms)),
                      design[c("terms", "xlevels", "contrasts", "offset_given")], more,
                      design$rows["dropped"])
  structure(fit, class = c("elvi_glm", "elvi_fit"))
}

#' @export
elvi.character <- function(object, ...) {
  if (length(object) != 1L) elvi.default(object)
  formula <- tryCatch(stats::as.formula(object, env = parent.frame()), error = function(e) NULL)
  if (is.null(formula)) elvi.default(object)
  call <- match.call()   # as the user wrote it, for update()
  call[[1L]] <- quote(elvi)
  call$object <- formula
  eval(call, parent.frame())
}

# A continued fit is still that of its formula: update() and predict() need the call.
#' @export
elvi.elvi_glm <- function(object, ...) {
  fit <- NextMethod()
  fit$given$call <- object$given$call
  fit
}

# The model frame, by the conventions of glm().
formula_frame <- function(call, env) {
  keep <- match(c("object", "data", "subset", "weights", "frequency", "na.action", "offset"), names(call), 0L)
  call <- call[c(1L, keep)]
  names(call)[names(call) == "object"] <- "formula"
  call$drop.unused.levels <- TRUE
  call[[1L]] <- quote(stats::model.frame)
  frame <- reading_frame(eval(call, env))
  if (!nrow(frame)) {
    bad_argument("data", "data with at least one complete row", "data without (after `subset` and `na.action`)")
  }
  if (is.null(stats::model.response(frame))) {
    bad_argument("object", "a formula with a response on its left", "a one-sided formula")
  }
  check_response_apart(attr(frame, "terms"))
  for (name in names(frame)) refuse_integer64(frame[[name]], paste0("data$", name))
  frame
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
  if (!is.data.frame(data) && !is.environment(data) && !is_plain_list(data) && !is_source(data)) {
    bad_argument("data", "a data frame, a list, an environment or a source made by rows_chunked() and the like", describe(data))
  }
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
        !isTRUE(tryCatch(is.function(match.fun(na.action)), error = function(e) FALSE))) {
    bad_argument("na.action", "a function such as na.omit, or its name", describe(na.action))
  }
}

# Errors of model.frame() name the argument that they are about, if it has a name
# in the frame, else the formula.
reading_frame <- function(expr) {
  tryCatch(expr, error = function(e) {
    if (is_time_limit(e)) stop(e)
    about <- c("weights", "frequency", "offset", "subset")
    named <- about[vapply(about, function(a) grepl(paste0("(", a, ")"), conditionMessage(e), fixed = TRUE), NA)]
    blame_argument(stop(e), c(named, "object")[1L], "the variables of the formula cannot be read")
  })
}

# X as the user means it, what to subtract for the computation, and what goes with them.
formula_design <- function(frame, contrasts) {
  terms <- attr(frame, "terms")
  X <- stats::model.matrix(terms, frame, contrasts)
  if (!ncol(X)) bad_argument("object", "a formula with at least one coefficient", "an empty one")
  check_matrix(X, "data")   # before centring turns Inf into NaN
  check_magnitude(X, "data")
  intercept <- attr(terms, "intercept") == 1
  weights <- stats::model.weights(frame)
  offset <- blame_argument(stats::model.offset(frame), "offset", "it cannot be used")
  list(terms = terms, X = X, y = stats::model.response(frame, "any"), intercept = intercept,
       centre = design_centre(X, intercept, rows_that_count(frame)), spread = design_spread(X, frame),
       weights = weights, frequency = frame[["(frequency)"]],
       offset = offset, offset_given = !is.null(offset),
       xlevels = stats::.getXlevels(terms, frame), contrasts = attr(X, "contrasts"), constant = constant_columns(X))
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

# What autoscaled priors ask of the data: standard deviations of some columns, mean and standard deviation of a numeric
# response, and the mean of weights that are precisions.
design_spread <- function(X, frame) {
  y <- stats::model.response(frame, "any")
  weights <- check_weights(stats::model.weights(frame), nrow(frame))
  counting <- rows_that_count(frame)
  list(columns = function(j) vapply(j, function(j) column_scale(X[counting, j]), 0),
       response = if (is.numeric(y) && !is.matrix(y)) list(mean = mean(y[counting]), sd = stats::sd(y[counting])),
       positive = positive_level(y, stats::model.offset(frame), counting),
       precision = mean(weights[weights > 0]))
}

# The standard deviation of a column; of one that is constant, its size, so that its unit does not matter either.
column_scale <- function(x) {
  size <- max(abs(x))
  sd <- stats::sd(x)
  if (isTRUE(sd > 1e-12 * size)) sd else if (size > 0) size else 1
}

# Of positive responses: their mean, and what a model of nothing but an intercept says that the mean is without offsets, given
# that only times of events are complete. NULL for responses that are not positive.
positive_level <- function(y, offset, counting) {
  if (inherits(y, "Surv") && "time" %in% colnames(y)) y <- ifelse(y[, "status"] == 1, 1, -1) * y[, "time"]
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

# Of the original predictors' coefficients only the intercept is another than of the
# centred ones: it moves by -centre'beta. See uncentre_points().
intercept_shift <- function(design, dim) {
  if (design$intercept) c(-design$centre, numeric(dim - length(design$centre)))
}

# The priors as given and as used, on the coefficients of the centred predictors.
formula_priors <- function(design, family, prior, prior_intercept, prior_aux, autoscale) {
  check_coefficient_prior(prior)
  check_coefficient_prior(prior_intercept, "prior_intercept")
  record <- family_record(family)
  data <- design$spread
  y <- if (record$autoscale) data$response
  spread <- if (is.null(y) || !isTRUE(y$sd > 0)) 1 else y$sd
  slopes <- setdiff(seq_along(design$centre), if (design$intercept) 1L)
  used <- if (length(slopes)) prior_of_length(prior, length(slopes))
  level <- if (record$positive) data$positive
  if (length(slopes) && autoscale[[1L]]) {
    sds <- data$columns(slopes)
    used$scale <- used$scale * spread / ifelse(is.finite(sds) & sds > 0, sds, 1)
    if (!design$intercept) used$location[design$constant] <- used$location[design$constant] + (level$log_base %||% 0)
  }
  intercept <- if (design$intercept) prior_of_length(prior_intercept, 1L, "prior_intercept")
  if (design$intercept && autoscale[[2L]]) {
    intercept$scale <- intercept$scale * spread
    if (!is.null(y)) intercept$location <- intercept$location + y$mean
    intercept$location <- intercept$location + (level$log_base %||% 0)
  }
  has_aux <- !is.null(record$dispersion) && !(record$dispersion$may_be_known && !is.null(design$dispersion))
  if (is.null(prior_aux)) prior_aux <- default_aux_prior(record, if (autoscale[[3L]]) level$mean %||% 1 else 1)
  if (has_aux && autoscale[[3L]] && is_exponential(prior_aux) && !is.null(y)) {
    # sigma is that of a response of weight 1
    precision <- if (record$dispersion$precision) data$precision else 1
    prior_aux <- exponential(prior_aux$rate / spread / sqrt(precision))
  }
  list(prior = prior, prior_intercept = if (design$intercept) prior_intercept,
       joint = do.call(c, Filter(Negate(is.null), list(intercept, used))),
       aux = if (has_aux) prior_aux)
}

prior_of_length <- function(prior, n, name = "prior") {
  if (any(!lengths(prior[c("location", "scale", "df")]) %in% c(1L, n))) {
    bad_argument(name, if (n == 1L) "of length 1" else sprintf("of length 1 or %d", n),
                 paste("of length", max(lengths(prior[c("location", "scale", "df")]))))
  }
  prior[c("location", "scale", "df")] <- lapply(prior[c("location", "scale", "df")], rep_len, n)
  prior
}
