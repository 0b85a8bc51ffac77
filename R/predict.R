#' Predictions from a regression
#'
#' `predict()` gives posterior means, and standard deviations with `se.fit`, of
#' the linear predictor or of the expected response. The linear predictor of a
#' row is `eta + s z` with `z` the marginal of the base, so both are
#' one-dimensional integrals and need no draws. `fitted()` is
#' `predict(type = "response")` at the data, `residuals()` the difference to the
#' response (for counts of successes: to the proportion).
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
#' @param se.fit also return posterior standard deviations?
#' @param offset optional offset for the new data, when the fit was given one
#'   outside its formula.
#' @param draws,ndraws number of draws, under either name. They are the first ones of
#'   the fit, the same in every call, see [as.matrix()][as.matrix.elvi_fit].
#' @param seed optional number: draws other than those of the fit.
#' @param trials number of trials for each row of `newdata`, for binomial fits of
#'   counts; 1 by default, those of the data without `newdata`.
#' @param ... nothing: unknown names are errors.
#' @return `predict()`: a named vector, or with `se.fit` a list with `fit` and
#'   `se.fit`. The others as above.
#' @examples
#' fit <- elvi(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' predict(fit, newdata = infert[1:3, ], type = "response", se.fit = TRUE)
#' dim(posterior_predict(fit, draws = 100))
#' @name predict.elvi_glm
NULL

#' @rdname predict.elvi_glm
#' @export
predict.elvi_glm <- function(object, newdata = NULL, type = c("link", "response"), se.fit = FALSE,
                             offset = NULL, ...) {
  check_dots(list(...), names(formals()), "predict()", passed_by_frameworks$predict)
  type <- check_choice(type, "type", c("link", "response"))
  se.fit <- check_flag(se.fit, "se.fit")
  if (is.null(newdata) && is_elsewhere(object$given$model)) {
    out <- at_chunks(object, "predict.elvi_glm", list(type = type, se.fit = se.fit, offset = offset))
    return(if (se.fit) out else out[[1L]])
  }
  design <- prediction_design(object, newdata, offset)
  at <- linear_predictor(object, design)
  out <- if (type == "link") at else response_moments(object, at)
  rows <- rownames(design$X)
  mean <- restore_rows(object, newdata, stats::setNames(out$mean, rows))
  if (!se.fit) return(mean)
  list(fit = mean, se.fit = restore_rows(object, newdata, stats::setNames(out$sd, rows)))
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
  if (object$family$link == "identity") return(at)
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
  if (object$family$link == "log" && exponential_limit(law) <= 2 * max(at$sd, 0, na.rm = TRUE)) {
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
residuals.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "residuals()")
  if (is_elsewhere(object$given$model)) return(at_chunks(object, "residuals.elvi_glm")[[1L]])
  response <- stats::naresid(object$na.action, stats::setNames(object$model$rows$y, rownames(object$frame)))
  response - fitted.elvi_glm(object)
}

# ---- draws ----------------------------------------------------------------------

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_linpred, elvi_glm)
posterior_linpred.elvi_glm <- function(object, newdata = NULL, draws = 1000, offset = NULL, seed = NULL, ...,
                                       ndraws = NULL) {
  check_dots(list(...), names(formals()), "posterior_linpred()")
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
  check_dots(list(...), names(formals()), "posterior_epred()")
  expected_response(object, posterior_linpred.elvi_glm(object, newdata, draws, offset, seed, ndraws = ndraws))
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_predict, elvi_glm)
posterior_predict.elvi_glm <- function(object, newdata = NULL, draws = 1000, offset = NULL,
                                       trials = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(list(...), names(formals()), "posterior_predict()")
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
  out <- if (is_dispersed(model)) exp(x[, model$dispersion_at]) else sqrt(model$dispersion)
  spread_by_precision(out, nrow(x), precision)
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
log_lik.elvi_glm <- function(object, draws = 1000, seed = NULL, ..., ndraws = NULL) {
  check_dots(list(...), names(formals()), "log_lik()")
  draws <- check_draws(ndraws %||% draws, max(nobs.elvi_glm(object), object$model$dim))
  log_lik_at(object, fit_draws(object, draws, seed))
}

log_lik_at <- function(object, x) {
  if (is_elsewhere(object$given$model)) return(at_chunks(object, "log_lik_at", list(x = x))[[1L]])
  design <- prediction_design(object, NULL)
  mu <- expected_response(object, linpred_draws(object, design, x))
  n <- nrow(mu)
  y <- rep(object$model$rows$y, each = n)
  trials <- rep(response_trials(object), each = n)
  value <- record_of(object$family)$log_lik(y, mu, dispersion_draws(object, x, precisions(object)), trials, object$family)
  counts <- row_counts(object)
  if (!is.null(counts)) value <- value * rep(counts, each = n)
  matrix(value, n, dimnames = list(NULL, rownames(object$frame)))
}
