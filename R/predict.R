#' Predictions from a regression
#'
#' `predict()` gives posterior means, and standard deviations with `se.fit`, of
#' the linear predictor or of the expected response. The linear predictor of a
#' row is `eta + s z` with `z` the marginal of the base, so both are
#' one-dimensional integrals and need no draws. So do credible intervals; those of new
#' responses (`interval = "prediction"`) are quantiles of 4000 draws. `fitted()` is
#' `predict(type = "response")` at the data, `residuals()` the difference to the
#' response (for counts of successes: to the proportion), or what [stats::residuals.glm()]
#' has by the same name, at the posterior means.
#'
#' `posterior_linpred()`, `posterior_epred()` and `posterior_predict()` give draws
#' of the linear predictor, of the expected response and of new responses: a
#' matrix with one row per draw. `log_lik()` gives the log likelihood of each
#' observation at each draw, with all its constants. The same row of two of these
#' matrices belongs to the same draw. The noise of new responses depends on the fit
#' and on the rows they are for: the same call gives the same responses, other rows get
#' noise of their own, and R's generator is left as it was.
#'
#' @param object a fit by [elvi()] from a formula.
#' @param newdata optional data frame. Without it, the data of the fit.
#' @param type `"link"` for the linear predictor, `"response"` for the expected
#'   response.
#'   For `residuals()`: `"response"`, `"pearson"`, `"deviance"` or `"working"`, as in [stats::residuals.glm()]; a `phi`
#'   that they depend on is at its posterior mean.
#' @param se.fit also return posterior standard deviations?
#' @param interval `"credible"` adds credible intervals of what `type` says (`"confidence"`, as [stats::predict.lm()]
#'   calls it, is the same), `"prediction"` intervals for new responses.
#' @param level probability of the interval.
#' @param offset optional offset for the new data, when the fit was given one
#'   outside its formula.
#' @param draws,ndraws number of draws, under either name. They are the first ones of
#'   the fit, the same in every call, see [as.matrix()][as.matrix.elvi_fit].
#' @param seed optional number: draws other than those of the fit.
#' @param trials number of trials for each row of `newdata`, for binomial fits of
#'   counts; 1 by default, those of the data without `newdata`.
#' @param ... nothing: unknown names are errors.
#' @return `predict()`: a named vector, with `interval` a matrix with columns `fit`, `lwr` and
#'   `upr`, or with `se.fit` a list with `fit` and `se.fit`. The others as above.
#' @examples
#' fit <- elvi(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' predict(fit, newdata = infert[1:3, ], type = "response", se.fit = TRUE)
#' dim(posterior_predict(fit, draws = 100))
#' @name predict.elvi_glm
NULL

#' @rdname predict.elvi_glm
#' @export
predict.elvi_glm <- function(object, newdata = NULL, type = c("link", "response"), se.fit = FALSE,
                             offset = NULL, interval = c("none", "credible", "prediction"), level = 0.95, ...) {
  check_dots(list(...), names(formals()), "predict()", passed_by_frameworks$predict)
  type <- check_choice(type, "type", c("link", "response"))
  se.fit <- check_flag(se.fit, "se.fit")
  interval <- check_interval(interval, type, object$family)
  level <- check_number(level, "level", 0, 1, open = TRUE)
  if (is.null(newdata) && is_elsewhere(object$given$model)) {
    return(predict_elsewhere(object, "predict.elvi_glm", interval, list(type = type, se.fit = se.fit, offset = offset)))
  }
  design <- prediction_design(object, newdata, offset)
  at <- linear_predictor(object, design)
  out <- if (type == "link") at else response_moments(object, at)
  named <- function(x) restore_rows(object, newdata, stats::setNames(x, rownames(design$X)))
  fit <- named(out$mean)
  if (interval != "none") {
    p <- c((1 - level) / 2, (1 + level) / 2)
    limits <- if (interval == "prediction") predictive_quantiles(object, p, newdata = newdata, offset = offset)
              else on_scale(object, type, at$mean + outer(at$sd, marginal_quantile(law_of(object$base, object$model$dim), p)))
    fit <- cbind(fit = fit, lwr = named(limits[, 1L]), upr = named(limits[, 2L]))
  }
  if (se.fit) list(fit = fit, se.fit = named(out$sd)) else fit
}

check_interval <- function(interval, type, family) {
  if (identical(interval, "confidence")) return("credible")
  interval <- check_choice(interval, "interval", c("none", "credible", "prediction"))
  if (interval == "prediction" && type == "link" && !link_of(family)$straight) {
    bad_argument("type", "\"response\" for intervals of new responses", "\"link\"")
  }
  interval
}

# Quantiles of the expected response are those of the predictor, seen through the link: all links rise.
on_scale <- function(object, type, eta) if (type == "link") eta else expected_response(object, eta)

# two columns; rows with missing predictors have none
predictive_quantiles <- function(object, p, draws = 4000, ...) {
  y <- suppressWarnings(posterior_predict(object, draws = draws, ...))   # NA means that NAs are produced
  at <- which(!is.na(colSums(y)))
  out <- matrix(NA_real_, ncol(y), length(p))
  if (length(at)) out[at, ] <- t(apply(y[, at, drop = FALSE], 2L, stats::quantile, p, names = FALSE))
  out
}

# design matrix and offset of new data, or of the data themselves
prediction_design <- function(object, newdata, offset = NULL) {
  if (is.null(newdata)) {
    check_in_memory(object)
    given <- stats::model.offset(object$frame)
    X <- stats::model.matrix(object$terms, object$frame, object$contrasts)
    return(list(X = X, offset = given %||% numeric(nrow(X))))
  }
  if (!is.data.frame(newdata) && !is_plain_list(newdata)) {
    bad_argument("newdata", "a data frame", describe(newdata))
  }
  if (is.data.frame(newdata) && !nrow(newdata)) {   # which splines and polynomials cannot take
    if (is_elsewhere(object$given$model)) X <- matrix(0, 0L, object$given$model$rows$dim)
    else X <- prediction_design(object, NULL)$X[0L, , drop = FALSE]
    return(list(X = X, offset = numeric()))
  }
  terms <- stats::delete.response(object$terms)
  frame <- reading(stats::model.frame(terms, newdata, na.action = stats::na.pass, xlev = object$xlevels),
                   "newdata", "the variables of the formula cannot be read from it")
  classes <- attr(terms, "dataClasses")
  if (!is.null(classes)) {
    reading(stats::.checkMFClasses(classes, frame), "newdata", "a variable is not of the type it was fitted with")
  }
  X <- stats::model.matrix(terms, frame, contrasts.arg = object$contrasts)
  within <- stats::model.offset(frame)
  outside <- object$call$offset
  if (!is.null(offset)) {
    outside <- check_vector(offset, "offset", nrow(X))
  } else if (!is.null(outside)) {
    outside <- tryCatch(eval(outside, newdata, environment(object$formula)), error = function(e) NULL)
    if (is.null(outside) || length(outside) != nrow(X)) {
      bad_argument("offset", "given for `newdata`: the fit had one outside its formula", "NULL")
    }
  }
  list(X = X, offset = (within %||% 0) + (outside %||% 0) + numeric(nrow(X)))
}

# mean and standard deviation of the linear predictor in each row
linear_predictor <- function(object, design) {
  p <- seq_len(ncol(design$X))
  list(mean = drop(design$X %*% object$mu[p]) + design$offset,
       sd = linear_sd(object, design$X))
}

# mean and standard deviation of the expected response, by quadrature
response_moments <- function(object, at, block = 2000L) {
  if (link_of(object$family)$straight) return(at)
  law <- law_of(object$base, object$model$dim)
  check_response_mean(object, law, at)
  rule <- composite_rule(law, width = 0.5, growth = 1.5, grade = 8L)
  nodes <- c(rule$z, -rule$z)
  weights <- c(rule$w, rule$w)
  n <- length(at$mean)
  mean <- sd <- rep(NA_real_, n)
  for (rows in split(seq_len(n), (seq_len(n) - 1L) %/% block)) {
    g <- object$family$linkinv(at$mean[rows] + outer(at$sd[rows], nodes))
    dim(g) <- c(length(rows), length(nodes))
    mean[rows] <- g %*% weights
    sd[rows] <- sqrt(pmax(0, (g - mean[rows])^2 %*% weights))
  }
  list(mean = mean, sd = sd)
}

# exp() of a heavy-tailed predictor has no mean
check_response_mean <- function(object, law, at) {
  if (link_of(object$family)$exponential && exponential_limit(law) <= 2 * max(at$sd, 0, na.rm = TRUE)) {
    elvi_abort("`type` = \"response\": the expected response has no finite mean or variance under a ",
               law$kind, " base. Use type = \"link\", or a gaussian or uniform base.",
               class = c("elvi_error_no_expectation", "elvi_error_argument"), data = list(argument = "type"))
  }
}

# put NA where na.exclude dropped rows
restore_rows <- function(object, newdata, x) {
  if (is.null(newdata)) stats::napredict(object$na.action, x) else x
}

#' @rdname predict.elvi_glm
#' @export
fitted.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "fitted()")
  predict.elvi_glm(object, type = "response")
}

#' @rdname predict.elvi_glm
#' @export
residuals.elvi_glm <- function(object, type = c("response", "pearson", "deviance", "working"), ...) {
  check_dots(list(...), names(formals()), "residuals()")
  type <- check_choice(type, "type", c("response", "pearson", "deviance", "working"))
  if (is_elsewhere(object$given$model)) return(at_chunks(object, "residuals.elvi_glm", list(type = type))[[1L]])
  seen <- seen_response(object)
  y <- seen$y
  mu <- stats::fitted(without_gaps(object))
  record <- record_of(object$family)
  out <- switch(type,
    response = y - mu,
    pearson = (y - mu) * sqrt(glm_weights(object) / record$variance(mu, mean_dispersion(object), object$family)),
    deviance = ifelse(seen$censored, 1, sign(y - mu)) *
      sqrt(glm_weights(object) * pmax(0, record$deviance(observed_response(object), mu, mean_dispersion(object), object$family))),
    working = (y - mu) / object$family$mu.eta(object$family$linkfun(mu)))
  stats::naresid(object$na.action, stats::setNames(out, rownames(object$frame)))
}

# without the rows that na.exclude would put back
without_gaps <- function(object) {
  object$na.action <- NULL
  object
}

# proportions, counts or numbers; times of events, and minus those of censored ones
observed_response <- function(object) object$problem$y %||% object$model$rows$y

# the same as people read them
seen_response <- function(object) record_of(object$family)$seen(observed_response(object))

# what glm() calls prior weights
glm_weights <- function(object) response_trials(object) * (row_counts(object) %||% 1) * (precisions(object) %||% 1)

# posterior mean of sigma or phi, or as it is known
mean_dispersion <- function(object) UseMethod("mean_dispersion")

#' @export
mean_dispersion.elvi_glm <- function(object) {
  name <- record_of(object$family)$dispersion$natural
  if (is.null(name)) return(1)
  if (is_dispersed(object$model)) natural_table(object)[[name, "mean"]] else known_dispersion(object$model)
}

# ---- draws ----------------------------------------------------------------------

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_linpred, elvi_glm)
posterior_linpred.elvi_glm <- function(object, newdata = NULL, draws = 1000, offset = NULL, seed = NULL, ...,
                                       ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "posterior_linpred()", passed_by_frameworks$draws)
  design <- prediction_design(object, newdata, offset)
  linpred_draws(object, design, fit_draws(object, check_row_draws(ndraws %||% draws, object, design), seed))
}

# one number per draw for every row of the design and for every parameter
check_row_draws <- function(draws, object, design) {
  check_draws(draws, max(nrow(design$X), object$model$dim))
}

linpred_draws <- function(object, design, x) {
  p <- seq_len(ncol(design$X))
  eta <- tcrossprod(x[, p, drop = FALSE], design$X)
  eta + rep(design$offset, each = nrow(eta))
}

# in the shape of eta; the links of stats refuse an empty one
expected_response <- function(object, eta) {
  if (length(eta)) eta[] <- object$family$linkinv(eta)
  eta
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_epred, elvi_glm)
posterior_epred.elvi_glm <- function(object, newdata = NULL, draws = 1000, offset = NULL, seed = NULL, ...,
                                     ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "posterior_epred()", passed_by_frameworks$draws)
  expected_response(object, posterior_linpred.elvi_glm(object, newdata, draws, offset, seed, ndraws = ndraws))
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_predict, elvi_glm)
posterior_predict.elvi_glm <- function(object, newdata = NULL, draws = 1000, offset = NULL,
                                       trials = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "posterior_predict()", passed_by_frameworks$draws)
  design <- prediction_design(object, newdata, offset)
  x <- fit_draws(object, check_row_draws(ndraws %||% draws, object, design), seed)
  mu <- expected_response(object, linpred_draws(object, design, x))
  n <- ncol(mu)
  if (record_of(object$family)$trials) {
    trials <- if (is.null(trials)) {
      if (is.null(newdata)) response_trials(object) else rep(1, n)
    } else {
      count_response(trials, "trials")
    }
    if (!length(trials) %in% c(1L, n)) bad_argument("trials", sprintf("of length 1 or %d", n), describe(trials))
  } else if (!is.null(trials)) {
    bad_argument("trials", "left out: it is for binomial fits", describe(trials))
  }
  trials <- rep(rep_len(trials %||% 1, n), each = nrow(mu))
  value <- with_key(noise_key(object, design, seed),
                    record_of(object$family)$draws(mu, dispersion_draws(object, x, if (is.null(newdata)) precisions(object)),
                                                   trials, object$family))
  matrix(value, nrow(mu), dimnames = list(NULL, colnames(mu)))
}

# Two different new observations have independent noise, so it depends on their rows too.
noise_key <- function(object, design, seed) {
  rows <- unlist(digest(list(design$X, design$offset)))
  rows[!is.finite(rows)] <- 0
  turn <- sum(rows * sqrt(seq_along(rows) + 1)) %% 1
  (fit_key(object, seed) + floor(2^32 * turn)) %% 2^32
}

# sigma or phi at each draw, or as it is known: recycled down the draws, or one per draw and row that has a precision
dispersion_draws <- function(object, x, precision = NULL) {
  model <- object$model
  out <- if (is_dispersed(model)) exp(x[, model$dispersion_at]) else known_dispersion(model)
  spread_by_precision(out, nrow(x), precision)
}

# sigma or shape that goes with a given dispersion; families without one ask for none
known_dispersion <- function(model) {
  dispersion <- dispersion_record(model)
  if (is.null(dispersion)) 1 else dispersion$known(model$dispersion)
}

spread_by_precision <- function(sigma, draws, precision) {
  if (is.null(precision)) sigma else rep_len(sigma, draws) / rep(sqrt(precision), each = draws)
}

# of the data's responses, if their weights are that; a row of weight 0 has no law, and gets that of the others
precisions <- function(object) {
  weights <- stats::model.weights(object$frame)
  if (!isTRUE(record_of(object$family)$dispersion$precision) || is.null(weights)) return(NULL)
  ifelse(weights > 0, weights, 1)
}

# number of trials behind each response of the data
response_trials <- function(object) {
  y <- stats::model.response(object$frame, "any")
  if (!record_of(object$family)$trials) return(rep(1, NROW(y)))
  if (is.matrix(y)) return(unname(rowSums(y)))
  if (is.numeric(y) && any(y %% 1 != 0)) stats::model.weights(object$frame) else rep(1, NROW(y))
}

# how often each row counts in the likelihood beyond its trials or its precision
row_counts <- function(object) {
  weights <- stats::model.weights(object$frame)
  y <- stats::model.response(object$frame, "any")
  if (!is.null(weights)) {
    if (isTRUE(record_of(object$family)$dispersion$precision)) weights <- as.double(weights > 0)
    else if (record_of(object$family)$trials && is.numeric(y) && !is.matrix(y) && any(y %% 1 != 0)) weights <- NULL
  }
  frequency <- object$frame[["(frequency)"]]
  if (is.null(weights) && is.null(frequency)) NULL else (weights %||% 1) * (frequency %||% 1)
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::log_lik, elvi_glm)
log_lik.elvi_glm <- function(object, newdata = NULL, draws = 1000, offset = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "log_lik()", passed_by_frameworks$draws)
  if (is.null(newdata) && is_elsewhere(object$given$model)) {
    return(log_lik_at(object, fit_draws(object, check_draws(ndraws %||% draws, max(nobs.elvi_glm(object), object$model$dim)), seed)))
  }
  design <- prediction_design(object, newdata, offset)
  x <- fit_draws(object, check_row_draws(ndraws %||% draws, object, design), seed)
  log_lik_at(object, x, observed_rows(object, newdata, design))
}

# Log likelihood of rows, those of the data by default, at draws of the parameters.
log_lik_at <- function(object, x, rows = observed_rows(object)) {
  if (missing(rows) && is_elsewhere(object$given$model)) return(at_chunks(object, "log_lik_at", list(x = x))[[1L]])
  mu <- expected_response(object, linpred_draws(object, rows$design, x))
  n <- nrow(mu)
  value <- record_of(object$family)$log_lik(rep(rows$y, each = n), mu, dispersion_draws(object, x, rows$precision),
                                            rep(rows$trials, each = n), object$family)
  if (!is.null(rows$counts)) value <- value * rep(rows$counts, each = n)
  matrix(value, n, dimnames = list(NULL, rownames(rows$design$X)))
}

# Responses and what is known of them beside their predictors. New ones need the response in `newdata`; weights and
# frequencies of the fit are looked up there too.
observed_rows <- function(object, newdata = NULL, design = prediction_design(object, newdata)) {
  y <- observed_response(object)
  if (!is.null(newdata)) {
    seen <- object
    seen$frame <- response_frame(object, newdata)
    y <- check_response(stats::model.response(seen$frame, "any"), record_of(object$family), nrow(design$X), whole = FALSE)$y
    object <- seen
  }
  list(design = design, y = y, trials = response_trials(object), precision = precisions(object), counts = row_counts(object))
}

response_frame <- function(object, newdata) {
  call <- c(list(quote(stats::model.frame), stats::update(object$terms, . ~ 1), data = newdata, na.action = stats::na.pass),
            Filter(Negate(is.null), as.list(object$call)[c("weights", "frequency")]))
  reading(eval(as.call(call), environment(object$formula)), "newdata", "the response cannot be read from it")
}
