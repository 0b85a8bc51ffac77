# Times with a hazard that is constant within intervals of time. The response of a row is split at the cut points, so that the solver has
# a row for each interval in which someone was at risk: a "piece". What users see is by observation: `pieces` of a fit says which of them
# a piece belongs to.

#' Survival with a piecewise constant hazard
#'
#' A survival regression whose baseline hazard is constant within intervals of time: a Bayesian version of the Cox model when there are many
#' intervals. Coefficients are log hazard ratios, as in [survival::coxph()]. The response is `Surv(time, status)` with
#' censoring on the right, or `Surv(start, stop, status)` with delayed entry or covariates that change with time.
#'
#' @section The baseline:
#' Two variables on the right of the formula describe the baseline: `interval` is the factor of intervals, and the time variable
#' is the middle of the interval. The formula may have
#' * neither of them: each interval has its own log hazard, as if `interval` were the first term.
#' * `s(time)`: a smooth log hazard. With many cut points that is a Cox-like model whose baseline is estimated too.
#' * `time`: a log hazard that is linear in time, as in a Gompertz model.
#' * `interval * x` or `s(time, by = x)`: hazards that are not proportional.
#'
#' Group-level terms such as `(1 | g)` are frailties: normal on the scale of the log hazard. Offsets are added to the log hazard.
#'
#' @section Predictions:
#' `newdata` has the time at which a prediction is made in the variable of the formula. `predict()` has the types
#' * `"link"`, the log hazard at that time, and `"response"`, the hazard;
#' * `"cumhaz"`, the cumulative hazard from the entry (0 where `newdata` has none) to that time;
#' * `"survival"`, the probability to survive that long, given survival to the entry.
#'
#' `posterior_linpred()` and `posterior_epred()` have draws of the first two, `posterior_survival()` of the last one.
#' `posterior_predict()` gives new times, which are not censored; of the times in `newdata` it uses only the entry. After the
#' last cut point the hazard is constant, so times far beyond the data are extrapolated. `log_lik()`, `loo()` and `kfold()` have
#' one number for each observation. `residuals()` compare the number of events, 0 or 1, with the cumulative hazard, its expected
#' number: those of type `"response"` are martingale residuals.
#'
#' @param cuts increasing positive numbers: where the hazard may change. By default up to nine quantiles of the times of events, so that
#'   there are ten intervals with about as many events each.
#' @param object a fit by [elvi()] with this family.
#' @param newdata,draws,re.form,allow_new_levels,offset,seed see [predict.elvi_glm()].
#' @param ... nothing: unknown names are errors.
#' @return `piecewise_exponential()`: a `family` object for [elvi()]. `posterior_survival()`: draws of survival probabilities, a matrix with
#'   one row per draw.
#' @seealso [families] for [weibull()] and [lognormal()] times, also with censoring on the left or in intervals.
#' @examples
#' if (requireNamespace("survival", quietly = TRUE)) {
#'   lung <- survival::lung
#'   fit <- elvi(survival::Surv(time, status) ~ sex + age, data = lung,
#'               family = piecewise_exponential(cuts = c(180, 360)))
#'   fit
#'   new <- data.frame(sex = 1:2, age = 60, time = 365)
#'   predict(fit, new, type = "survival", interval = "credible")
#' }
#' @export
piecewise_exponential <- function(cuts = NULL) {
  if (!is.null(cuts)) {
    if (!is.numeric(cuts) || !length(cuts) || any(!is.finite(cuts)) || any(cuts <= 0) || is.unsorted(cuts, strictly = TRUE)) {
      bad_argument("cuts", "increasing positive numbers", describe(cuts))
    }
    cuts <- as.double(cuts)
  }
  new_family("piecewise_exponential", "log", cuts = cuts)
}

# ---- from observations to pieces -----------------------------------------------------------------------------------------

# What build_problem() reads in place of the formula, data and call that it was given, and `pieces`, what the fit has to know.
split_times <- function(formula, family, data, call, env) {
  if (!is.data.frame(data)) {
    bad_argument("data", "a data frame for piecewise_exponential()", if (is.null(data)) "missing" else describe(data))
  }
  times <- read_times(formula, data)
  known <- observed_times(formula, data)
  used <- chosen_observations(data, call, env, known)
  known <- known[used$which, , drop = FALSE]
  formula <- with_baseline(formula, times, data)
  complete <- stats::complete.cases(used$data[intersect(all.vars(formula), names(data))])
  layout <- time_layout(family$cuts, known[complete, ])
  split <- split_at(known$entry, known$exit, layout)
  check_at_risk(split, layout)
  expanded <- piece_columns(used$data, split, layout, times$name)
  event <- known$event[split$of] & split$last
  expanded$.piece <- survival_object(split$to - split$from, event)
  for (name in intersect(c("weights", "frequency", "offset"), names(call))) call[[name]] <- as.name(paste0(".", name))
  call$subset <- NULL
  call[c("object", "data")] <- list(replace_response(formula, quote(.piece)), expanded)
  family$cuts <- layout$cuts
  list(formula = call$object, data = expanded, call = call, family = family,
       pieces = c(layout, times, list(of = split$of, data = used$data, exit = known$exit, event = known$event)))
}

# `entry` and `exit`, expressions of times (entry NULL: 0), and the name of the variable that the latter is, or NULL
read_times <- function(formula, data) {
  response <- if (length(formula) == 3L) formula[[2L]]
  is_call <- call_name(response) == "Surv" || (is.call(response) && deparse_one(response[[1L]]) == "survival::Surv")
  if (!is_call) {
    bad_argument("object", "a formula with Surv(time, status) or Surv(start, stop, status) on its left for piecewise_exponential()",
                 deparse_one(formula))
  }
  need_package("survival", "piecewise_exponential()")
  given <- as.list(match.call(getExportedValue("survival", "Surv"), response))[-1L]
  whole <- !is.null(given$time2) && !is.null(given$event)
  exit <- if (whole) given$time2 else given$time
  list(entry_by = if (whole) given$time, exit_by = exit, name = if (is.name(exit)) as.character(exit))
}

# entry, exit and event of each row of the data; NA where the response is
observed_times <- function(formula, data) {
  y <- blame_argument(eval(formula[[2L]], data, environment(formula)), "object", "the response cannot be read")
  type <- attr(y, "type")
  if (!type %in% c("right", "counting")) {
    bad_argument("y", "Surv(time, status) or Surv(start, stop, status)", paste0("Surv(type = \"", type, "\")"),
                 "weibull() and lognormal() take other censoring")
  }
  y <- unclass(y)
  counting <- type == "counting"
  out <- data.frame(entry = if (counting) y[, "start"] else 0, exit = y[, if (counting) "stop" else "time"], event = y[, "status"] == 1)
  if (nrow(out) != nrow(data)) {
    refuse_argument("object", sprintf("`object`: the formula gives %d times, and `data` has %d rows.", nrow(out), nrow(data)))
  }
  bad <- which(out$entry < 0 | out$exit <= out$entry)
  if (length(bad)) {
    refuse_argument("y", sprintf("`y`: each time must be after its entry, and entries at least 0. Row %d is from %g to %g.", bad[1L],
                                 out$entry[bad[1L]], out$exit[bad[1L]]))
  }
  out
}

# rows that `subset` keeps, with arguments of the call as columns beside those of the data
chosen_observations <- function(data, call, env, known) {
  subset <- if (!is.null(call$subset)) blame_argument(eval(call$subset, data, env), "subset", "it cannot be read")
  which <- seq_len(nrow(data))
  if (!is.null(subset)) which <- if (is.logical(subset)) which(rep_len(subset, nrow(data))) else which[subset]
  for (name in intersect(c("weights", "frequency", "offset"), names(call))) {
    value <- blame_argument(eval(call[[name]], data, env), name, "it cannot be read")
    if (!is.null(value) && length(value) != nrow(data)) bad_argument(name, paste("of length", nrow(data)), length(value))
    data[[paste0(".", name)]] <- value
  }
  list(which = which, data = data[which, , drop = FALSE])
}

# cut points, with names and middles of the intervals between them
time_layout <- function(cuts, known) {
  seen <- known[stats::complete.cases(known), ]
  if (!any(seen$event)) refuse_no_events()
  last <- max(seen$exit)
  if (is.null(cuts)) {
    events <- seen$exit[seen$event]
    cuts <- unique(stats::quantile(events, seq_len(9) / 10, names = FALSE, type = 1))
    cuts <- cuts[cuts < max(events)]
  }
  if (length(cuts) && cuts[length(cuts)] >= last) {
    bad_argument("cuts", sprintf("below the last time, %g", last), describe(max(cuts)), "nobody is at risk after it")
  }
  ends <- c(0, cuts, Inf)
  inner <- c(0, cuts, last)
  K <- length(cuts) + 1L
  label <- format(ends[-(K + 1L)], trim = TRUE, digits = 4)
  list(cuts = cuts, middle = (inner[-1L] + inner[-(K + 1L)]) / 2, names = sprintf("(%s,%s]", label, c(label[-1L], "Inf")))
}

# the pieces of times from entry to exit: `of`, the observation; `interval`; from and to; is it the last one?
split_at <- function(entry, exit, layout) {
  first <- findInterval(entry, layout$cuts) + 1L
  last <- findInterval(exit, layout$cuts, left.open = TRUE) + 1L
  unknown <- is.na(entry) | is.na(exit)
  first[unknown] <- last[unknown] <- 1L
  count <- last - first + 1L
  of <- rep(seq_along(exit), count)
  interval <- sequence(count, first)
  list(of = of, interval = interval, from = pmax(entry[of], c(0, layout$cuts)[interval]),
       to = pmin(exit[of], c(layout$cuts, Inf)[interval]), last = interval == last[of])
}

# data of pieces: the variable of the time is the middle of the interval
piece_columns <- function(data, split, layout, name) {
  out <- data[split$of, , drop = FALSE]
  rownames(out) <- NULL
  out$interval <- factor(layout$names[split$interval], layout$names)
  if (!is.null(name)) out[[name]] <- layout$middle[split$interval]
  out
}

check_at_risk <- function(split, layout) {
  empty <- setdiff(seq_along(layout$names), split$interval)
  if (length(empty)) {
    refuse_argument("cuts", "Nobody is at risk in the interval ", layout$names[empty[1L]], " of `cuts`.")
  }
}

survival_object <- function(time, event) getExportedValue("survival", "Surv")(time, as.double(event))

replace_response <- function(formula, response) {
  formula[[2L]] <- response
  formula
}

# `interval` comes first where the formula says nothing of the baseline
with_baseline <- function(formula, times, data) {
  right <- formula[[3L]]
  if ("." %in% all.names(right)) {
    formula <- stats::formula(stats::terms(formula, data = data))
    right <- formula[[3L]]
  }
  if ("interval" %in% names(data) && "interval" %in% all.vars(right)) {
    refuse_argument("data", "Rename the column `interval` of `data`: piecewise_exponential() uses this name for the factor of intervals.")
  }
  own <- all.vars(times$exit_by)
  if (is.null(times$name) && length(intersect(own, all.vars(right)))) {
    refuse_argument("object", "`object`: the time ", deparse_one(times$exit_by), " is computed from variables that are predictors too. ",
                    "Compute it first, as a column of `data`.")
  }
  if (length(intersect(c("interval", times$name), all.vars(right)))) return(formula)
  formula[[3L]] <- call("+", quote(interval), right)
  formula
}

# After the frame has dropped rows with missing values: the observations that are left.
settle_pieces <- function(pieces, frame) {
  of <- pieces$of[as.integer(rownames(frame))]
  left <- unique(of)
  pieces$of <- match(of, left)
  for (name in c("exit", "event")) pieces[[name]] <- pieces[[name]][left]
  pieces$data <- pieces$data[left, , drop = FALSE]
  pieces
}

# ---- new data ----------------------------------------------------------------------------------------------------------

# New observations at the intervals of their times; unchanged if they have no times, as in a grid over `interval`.
located <- function(object, newdata) {
  pieces <- object$pieces
  if (is.null(pieces) || !nrow(newdata)) return(newdata)
  exit <- new_times(object, newdata, "exit_by")
  if (is.null(exit)) return(newdata)
  interval <- findInterval(exit, pieces$cuts, left.open = TRUE) + 1L
  at <- list(of = seq_len(nrow(newdata)), interval = interval)
  out <- piece_columns(newdata, at, pieces, pieces$name)
  rownames(out) <- rownames(newdata)
  out
}

# NULL where the data lack its variables
new_times <- function(object, newdata, which) {
  by <- object$pieces[[which]]
  if (is.null(by) || !all(all.vars(by) %in% names(newdata))) return(NULL)
  time <- blame_argument(as.double(eval(by, newdata, environment(object$formula))), "newdata", "its times cannot be read")
  if (any(time < 0, na.rm = TRUE)) refuse_argument("newdata", "`newdata` has a negative time: ", describe(time[which(time < 0)[1L]]), ".")
  time
}

# pieces of new observations, up to their times or, with `exit` = Inf, up to any
new_pieces <- function(object, newdata, exit = new_times(object, newdata, "exit_by")) {
  if (is.null(exit)) {
    refuse_argument("newdata", "`newdata` needs the time of each row: `",
                    paste(all.vars(object$pieces$exit_by), collapse = "`, `"), "`.")
  }
  entry <- new_times(object, newdata, "entry_by") %||% numeric(nrow(newdata))
  late <- which(exit < entry)
  if (length(late)) {
    refuse_argument("newdata", sprintf("The time %g of `newdata` is before its entry at %g.", exit[late[1L]], entry[late[1L]]))
  }
  split <- split_at(entry, rep_len(exit, nrow(newdata)), object$pieces)
  list(split = split, data = piece_columns(newdata, split, object$pieces, object$pieces$name), names = rownames(newdata))
}

# the fit's own observations, or new ones
observations <- function(object, newdata) if (is.null(newdata)) object$pieces$data else check_newdata(newdata)

# the offset given for observations, for each of their pieces
piece_offset <- function(offset, of) if (is.null(offset)) NULL else offset[of]

# sums of the columns of pieces for each observation
by_observation <- function(x, of, names = NULL) {
  if (is.null(of)) return(x)
  out <- t(rowsum(t(x), of))
  dimnames(out) <- list(NULL, names)
  out
}

# which rows of the design belong to these observations
rows_of_observations <- function(object, which) if (is.null(object$pieces)) which else base::which(object$pieces$of %in% which)

# ---- methods where an observation is not a row ----------------------------------------------------------------------------

#' @rdname piecewise_exponential
#' @export
posterior_survival <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE, offset = NULL, seed = NULL,
                               ...) {
  check_dots(list(...), names(formals()), "posterior_survival()")
  check_class(object, "object", "elvi_pieces", "elvi() with family piecewise_exponential()")
  exp(-cumulative_hazard(object, newdata, draws = draws, re.form = re.form, allow_new_levels = allow_new_levels, offset = offset,
                         seed = seed))
}

# draws x observations
cumulative_hazard <- function(object, newdata, ..., offset = NULL) {
  new <- new_pieces(object, observations(object, newdata))
  of <- new$split$of
  hazard <- posterior_epred.elvi_glm(object, new$data, offset = piece_offset(offset, of), ...)
  by_observation(hazard * rep(new$split$to - new$split$from, each = nrow(hazard)), of, new$names)
}

#' @export
predict.elvi_pieces <- function(object, newdata = NULL, type = c("link", "response", "survival", "cumhaz", "terms"), se.fit = FALSE,
                                re.form = NULL, allow_new_levels = FALSE, offset = NULL, interval = c("none", "credible", "prediction"),
                                level = 0.95, ...) {
  type <- check_choice(type, "type", c("link", "response", "survival", "cumhaz", "terms"))
  newdata <- observations(object, newdata)
  if (!type %in% c("survival", "cumhaz")) {
    return(predict.elvi_glm(object, newdata, type, se.fit, re.form, allow_new_levels, offset, interval, level, ...))
  }
  re.form <- check_re_form(re.form, list(...), names(formals()), "predict()", passed_by_frameworks$predict)
  interval <- check_interval(interval, type, object$family)
  if (interval == "prediction") bad_argument("type", "\"response\" for intervals of new times", describe(type))
  level <- check_number(level, "level", 0, 1, open = TRUE)
  drawn <- cumulative_hazard(object, newdata, draws = 4000, re.form = re.form, allow_new_levels = allow_new_levels, offset = offset)
  if (type == "survival") drawn <- exp(-drawn)
  fit <- colMeans(drawn)
  if (interval == "credible") {
    limits <- apply(drawn, 2L, stats::quantile, c((1 - level) / 2, (1 + level) / 2), names = FALSE)
    fit <- cbind(fit = fit, lwr = limits[1L, ], upr = limits[2L, ])
  }
  if (check_flag(se.fit, "se.fit")) list(fit = fit, se.fit = apply(drawn, 2L, stats::sd)) else fit
}

#' @export
#' @rawNamespace S3method(rstantools::posterior_linpred, elvi_pieces)
posterior_linpred.elvi_pieces <- function(object, newdata = NULL, ...) {
  posterior_linpred.elvi_glm(object, observations(object, newdata), ...)
}

#' @export
#' @rawNamespace S3method(rstantools::posterior_epred, elvi_pieces)
posterior_epred.elvi_pieces <- function(object, newdata = NULL, ...) {
  posterior_epred.elvi_glm(object, observations(object, newdata), ...)
}

# An exponential number is the cumulative hazard at the time.
#' @export
#' @rawNamespace S3method(rstantools::posterior_predict, elvi_pieces)
posterior_predict.elvi_pieces <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE, offset = NULL,
                                          trials = NULL, seed = NULL, ..., ndraws = NULL) {
  re.form <- check_re_form(re.form, list(...), names(formals()), "posterior_predict()")
  if (!is.null(trials)) unused_argument("trials", "it is for binomial fits")
  data <- observations(object, newdata)
  new <- new_pieces(object, data, Inf)
  of <- new$split$of
  hazard <- posterior_epred.elvi_glm(object, new$data, ndraws %||% draws, re.form, allow_new_levels, piece_offset(offset, of), seed)
  key <- noise_key(fit_key(object, seed), prediction_rows(object, new$data, re.form, allow_new_levels, piece_offset(offset, of)))
  passed <- with_key(key, matrix(stats::rexp(nrow(hazard) * nrow(data)), nrow(hazard)))
  columns <- split(seq_along(of), of)
  times <- vapply(seq_along(columns), function(i) {
    at <- columns[[i]]
    times_at(hazard[, at, drop = FALSE], new$split$from[at], passed[, i])
  }, numeric(nrow(hazard)))
  matrix(times, nrow(hazard), dimnames = list(NULL, new$names))
}

# times at which hazards, draws x intervals, have these integrals from the first beginning on
times_at <- function(hazard, from, passed) {
  m <- ncol(hazard)
  before <- matrix(0, nrow(hazard), m)   # integral up to the beginning of each interval
  for (j in seq_len(m - 1L)) before[, j + 1L] <- before[, j] + hazard[, j] * (from[j + 1L] - from[j])
  j <- rowSums(before <= passed)
  at <- cbind(seq_along(passed), j)
  from[j] + (passed - before[at]) / hazard[at]
}

#' @export
#' @rawNamespace S3method(rstantools::log_lik, elvi_pieces)
log_lik.elvi_pieces <- function(object, newdata = NULL, ..., offset = NULL) {
  if (is.null(newdata)) return(log_lik.elvi_glm(object, NULL, ..., offset = offset))
  data <- check_newdata(newdata)
  known <- observed_times(object$formula, data)
  new <- new_pieces(object, data, known$exit)
  of <- new$split$of
  new$data$.piece <- survival_object(new$split$to - new$split$from, known$event[of] & new$split$last)
  by_observation(log_lik.elvi_glm(object, new$data, ..., offset = piece_offset(offset, of)), of, rownames(data))
}

#' @export
residuals.elvi_pieces <- function(object, type = c("response", "pearson", "deviance", "working"), ...) {
  check_dots(list(...), names(formals()), "residuals()")
  type <- check_choice(type, "type", c("response", "pearson", "deviance", "working"))
  new <- new_pieces(object, object$pieces$data)
  hazard <- predict.elvi_glm(object, new$data, "response")
  H <- drop(by_observation(t(hazard * (new$split$to - new$split$from)), new$split$of))
  d <- as.double(object$pieces$event)
  out <- switch(type, response = d - H, pearson = (d - H) / sqrt(H), working = d / H - 1,
                deviance = sign(d - H) * sqrt(2 * (ifelse(d > 0, -log(H), 0) - (d - H))))
  stats::setNames(out, new$names)
}

#' @export
nobs.elvi_pieces <- function(object, ...) {
  check_dots(list(...), names(formals()), "nobs()", passed_by_frameworks$nobs)
  nrow(object$pieces$data)
}

# ---- the record ------------------------------------------------------------------------------------------------------------

# Responses are exposures, negative where a piece ends without an event. The predictor is the log hazard.
piecewise_records <- function() {
  list(piecewise_exponential = list(
    family = "piecewise_exponential", link = "log", make = piecewise_exponential, adapt = as_given, pieces = split_times,
    response = function(y) list(y = time_response(y)), trials = FALSE, classes = NULL,
    draws = function(mu, dispersion, trials, family) stats::rexp(length(mu), mu),
    log_lik = function(y, mu, dispersion, trials, family) ifelse(y > 0, log(mu), 0) - abs(y) * mu,
    row_constant = function(y, weight) numeric(length(y)), constant = as_summed,
    variance = function(mu, dispersion, family) mu, deviance = no_deviance,
    display_response = as_times, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, needs_fine_quadrature = FALSE, calibration = list(exponential_loss),
    is_recession = function(move, y, small) all(move < small) && all(abs(move[y > 0]) < small),
    separable = "times without events", autoscale = FALSE, positive = -1,
    conditional = list(likelihood = "piecewise_exponential", dispersion = "none", hyper = NULL,
                       start = function(y, weight, dispersion) {
                         rate <- (sum(weight[y > 0]) + 0.5) / sum(weight * abs(y))
                         list(eta = rep(log(rate), length(y)), c = weight * rate * abs(y))
                       }),
    dispersion = NULL))
}
