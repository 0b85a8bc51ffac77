#' How well a regression predicts
#'
#' Explained variance, predictive intervals and simulated responses of a regression.
#'
#' * `bayes_R2()`: draws of the explained share of variance, `var(mu) / (var(mu) + var(y - mu))` over rows for each
#'   draw of the expected responses `mu` (Gelman, Goodrich, Gabry and Vehtari 2019), as in 'rstantools'. Successes out of
#'   several trials count as such, not as proportions.
#' * `predictive_interval()`: quantiles of new responses.
#' * `simulate()`: responses, as [stats::simulate()] of a `glm` has them, each column with parameters of another draw.
#' * `deviance()`: the sum of squares of [deviance residuals][residuals.elvi_glm], that is, the deviance at the posterior means of the
#'   expected responses, not the posterior mean of the deviance. `df.residual()`: the number of rows that count minus the number of
#'   coefficients, as for [stats::glm()].
#'
#' @param object a fit by [elvi()] from a formula.
#' @param draws,ndraws number of draws, under either name.
#' @param prob probability of the interval.
#' @param newdata,offset,trials,seed see [predict.elvi_glm()]. `simulate()` without `seed` gives new responses in every call; with one,
#'   R's generator does not change.
#' @param nsim number of columns.
#' @param ... for `bayes_R2()` and `simulate()` the `re.form` of a fit with [groups][group_terms]; otherwise not used: unknown names are
#'   errors.
#' @return `bayes_R2()`: a vector of draws. `predictive_interval()`: a matrix with a row for each row of the data. `simulate()`: a
#'   data frame with a column for each simulation, of the type of the response, and the attribute `"seed"`.
#' @seealso [cross_validation]
#' @examples
#' fit <- elvi(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' mean(bayes_R2(fit))
#' head(simulate(fit, nsim = 2, seed = 1))
#' @name predictive
NULL

#' @rdname predictive
#' @export
#' @rawNamespace S3method(rstantools::predictive_interval, elvi_glm)
predictive_interval.elvi_glm <- function(object, prob = 0.9, newdata = NULL, draws = 4000, offset = NULL, trials = NULL,
                                         seed = NULL, ...) {
  check_dots(list(...), names(formals()), "predictive_interval()")
  prob <- check_number(prob, "prob", 0, 1, open = TRUE)
  y <- posterior_predict(object, newdata = newdata, draws = draws, offset = offset, trials = trials, seed = seed)
  p <- c((1 - prob) / 2, (1 + prob) / 2)
  out <- t(apply(y, 2L, stats::quantile, p, names = FALSE))
  matrix(out, ncol(y), 2L, dimnames = list(colnames(y), paste0(format(100 * p, trim = TRUE, digits = 3), "%")))
}

#' @rdname predictive
#' @export
#' @rawNamespace S3method(rstantools::bayes_R2, elvi_glm)
bayes_R2.elvi_glm <- function(object, draws = 1000, seed = NULL, ..., ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "bayes_R2()", passed_by_frameworks$draws)
  if (!is.null(object$pieces) || any(displayed_response(object)$censored)) {
    refuse_argument("object", "`object`: bayes_R2() is not available for censored responses: their residuals are not known.")
  }
  refuse_classes(object, "residuals and R2")
  mu <- posterior_epred(object, draws = ndraws %||% draws, seed = seed, ...)
  trials <- response_trials(object)
  residual <- rep(observed_response(object) * trials, each = nrow(mu)) - mu * rep(trials, each = nrow(mu))
  explained <- row_variances(mu * rep(trials, each = nrow(mu)))
  explained / (explained + row_variances(residual))
}

row_variances <- function(x) rowSums((x - rowMeans(x))^2) / (ncol(x) - 1)

#' @rdname predictive
#' @export
deviance.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "deviance()")
  sum(stats::residuals(without_gaps(object), type = "deviance")^2)
}

#' @rdname predictive
#' @export
df.residual.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "df.residual()")
  sum(glm_weights(object) > 0) - ncol(stats::model.matrix(object))
}

#' @rdname predictive
#' @export
simulate.elvi_glm <- function(object, nsim = 1, seed = NULL, ...) {
  check_dots(given_values(list(...)), names(formals()), "simulate()", passed_by_frameworks$draws)
  nsim <- check_draws(nsim, nobs.elvi_glm(object), "nsim")
  if (is.null(seed)) seed <- stats::runif(1L, 0, 2^31 - 1)
  y <- posterior_predict(object, draws = nsim, seed = seed, ...)
  out <- lapply(seq_len(nsim), function(i) as_response(object, y[i, ]))
  out <- structure(out, names = paste0("sim_", seq_len(nsim)), row.names = colnames(y), class = "data.frame")
  structure(out, seed = seed)
}

# numbers of successes or other responses, in the type that the data have
as_response <- function(object, y) {
  given <- stats::model.response(object$frame, "any")
  if (is.factor(given)) return(factor(levels(given)[y + 1], levels(given)))
  if (is.logical(given)) return(y == 1)
  if (!family_record(object$family)$trials) return(unname(y))
  trials <- response_trials(object)
  if (is.matrix(given)) return(structure(cbind(y, trials - y), dimnames = list(NULL, colnames(given))))
  unname(ifelse(trials > 0, y / trials, 0))
}
