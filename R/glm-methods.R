#' Methods for fits and regressions
#'
#' What statisticians do with a model object. Intervals are *credible* intervals:
#' quantiles of the marginals of the approximation, not confidence intervals.
#' `tidy()`, `glance()` and `augment()` are those of 'generics' and 'broom',
#' `loo()` is approximate leave-one-out cross-validation with draws of the
#' approximation (package 'loo'), `pp_check()` a posterior predictive check
#' (package 'bayesplot').
#'
#' The evidence lower bound is never returned as a `logLik()`: it is not one. See
#' [elbo()].
#'
#' @param object,x,formula a fit; for the methods that need data, one from a
#'   formula.
#' @param parm,pars parameters, by name or number; all by default.
#' @param level,prob,conf.level probability of the interval.
#' @param conf.int add credible intervals?
#' @param exponentiate estimates and intervals of `exp()` of the coefficients (standard errors stay, as in broom)?
#' @param type.predict for `augment()`: predictions of the response or of the linear predictor.
#' @param data,newdata data frame to add predictions to; that of the fit by
#'   default.
#' @param draws number of draws.
#' @param seed optional number: draws other than those of the fit, see
#'   [as.matrix()][as.matrix.elvi_fit].
#' @param type for `pp_check()`: which of bayesplot's `ppc_` plots.
#' @param formula. changes to the formula, see [stats::update.formula()].
#' @param evaluate evaluate the new call, or return it?
#' @param ... passed on where it says so. What other packages pass as a matter of course is ignored, other
#'   names are errors.
#' @return As their generics say.
#' @examples
#' fit <- elvi(case ~ age + parity, data = infert, family = binomial())
#' confint(fit)
#' nobs(fit)
#' update(fit, . ~ . + spontaneous)
#' @name elvi_glm
NULL

#' @rdname elvi_glm
#' @export
confint.elvi_fit <- function(object, parm = NULL, level = 0.95, ...) {
  check_dots(list(...), names(formals()), "confint()")
  level <- check_number(level, "level", 0, 1, open = TRUE)
  credible_intervals(object, check_parameters(object, parm, "parm"), level)
}

credible_intervals <- function(fit, which, level) {
  p <- c((1 - level) / 2, (1 + level) / 2)
  out <- if (is_corrected(fit)) corrected_quantiles(fit, which, p) else {
    z <- marginal_quantile(law_of(fit$base, fit$model$dim), p)
    natural_limits(fit, which, fit$mu[which] + outer(approximation_sd(fit)[which], z))
  }
  dimnames(out) <- list(natural_names(fit)[which], paste(format(100 * p, trim = TRUE, digits = 3), "%"))
  out
}

#' @rdname elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_interval, elvi_fit)
posterior_interval.elvi_fit <- function(object, prob = 0.9, pars = NULL, ...) {
  check_dots(list(...), names(formals()), "posterior_interval()")
  prob <- check_number(prob, "prob", 0, 1, open = TRUE)
  credible_intervals(object, check_parameters(object, pars, "pars"), prob)
}

#' @rdname elvi_glm
#' @export
nobs.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "nobs()", passed_by_frameworks$nobs)
  if (is_elsewhere(object$given$model)) object$given$model$rows$n else nrow(object$frame)
}

#' @rdname elvi_glm
#' @export
formula.elvi_glm <- function(x, ...) {
  check_dots(list(...), names(formals()), "formula()", passed_by_frameworks$formula)
  x$formula
}

#' @rdname elvi_glm
#' @export
terms.elvi_glm <- function(x, ...) {
  check_dots(given_values(list(...)), names(formals()), "terms()")   # data = NULL is none
  x$terms
}

#' @rdname elvi_glm
#' @export
model.frame.elvi_glm <- function(formula, ...) {
  check_dots(given_values(list(...)), names(formals()), "model.frame()")   # data = NULL is none
  check_in_memory(formula)
  formula$frame
}

#' @rdname elvi_glm
#' @export
model.matrix.elvi_glm <- function(object, ...) {
  check_dots(given_values(list(...)), names(formals()), "model.matrix()")   # data = NULL is none
  prediction_design(object, NULL)$X
}

#' @rdname elvi_glm
#' @export
family.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "family()", passed_by_frameworks$family)
  object$family
}

#' @rdname elvi_glm
#' @export
update.elvi_glm <- function(object, formula., ..., evaluate = TRUE) {
  call <- object$call
  if (!missing(formula.)) {
    if (!inherits(formula., "formula") && (!is.character(formula.) || length(formula.) != 1L)) {
      bad_argument("formula.", "a formula", describe(formula.))
    }
    call$object <- reading(stats::update.formula(object$formula, formula.), "formula.", "it cannot be read")
  }
  changes <- match.call(expand.dots = FALSE)$...
  unnamed <- if (is.null(names(changes))) changes else changes[!nzchar(names(changes))]
  check_dots(unname(unnamed), character(), "update()")
  for (name in names(changes)) call[[name]] <- changes[[name]]
  if (!check_flag(evaluate, "evaluate")) return(call)
  call[[1L]] <- quote(elvi::elvi)   # which need not be attached
  eval(call, parent.frame())
}

#' @rdname prior_summary
#' @export
#' @rawNamespace S3method(rstantools::prior_summary, elvi_glm)
prior_summary.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "prior_summary()")
  structure(list(priors = object$priors, coefficients = names(object$mu),
                 dispersion = if (is_dispersed(object$model)) dispersion_record(object$model)$natural,
                 intercept = attr(object$terms, "intercept") == 1), class = "elvi_prior_summary")
}

#' @export
print.elvi_prior_summary <- function(x, ...) {
  joint <- x$priors$joint
  p <- length(joint$location)
  cat("Priors used", if (x$intercept) " (the intercept's is for predictors at their means)", ":\n", sep = "")
  print(data.frame(prior_table(joint), row.names = x$coefficients[seq_len(p)]), digits = 4)
  if (!is.null(x$priors$aux)) cat(x$dispersion, ": ", format(x$priors$aux), "\n", sep = "")
  invisible(x)
}

# logLik() of a fit that has none: AIC(), BIC() and step() end here
no_likelihood <- function() {
  elvi_abort("A fit by elvi() has no maximised likelihood, and so no logLik(), AIC() or BIC(): compare fits by loo() or kfold(), ",
             "or by elbo() of the same data.", class = "elvi_error_argument",
             data = list(argument = "object"))
}

#' @rawNamespace S3method(stats::logLik, elvi_fit)
logLik.elvi_fit <- function(object, ...) no_likelihood()

#' @rawNamespace S3method(stats::extractAIC, elvi_fit)
extractAIC.elvi_fit <- function(fit, ...) no_likelihood()

# ---- broom ------------------------------------------------------------------------

#' @rdname elvi_glm
#' @exportS3Method generics::tidy
tidy.elvi_fit <- function(x, conf.int = FALSE, conf.level = 0.95, exponentiate = FALSE, ...) {
  check_dots(given_values(list(...)), names(formals()), "tidy()", passed_by_frameworks$tidy)
  table <- natural_table(x)
  out <- data.frame(term = rownames(table), estimate = unname(table[, "mean"]), std.error = unname(table[, "sd"]))
  if (check_flag(conf.int, "conf.int")) {
    limits <- confint.elvi_fit(x, level = conf.level)
    out$conf.low <- unname(limits[, 1L])
    out$conf.high <- unname(limits[, 2L])
  }
  scaled <- intersect(c("estimate", "conf.low", "conf.high"), names(out))   # not the errors, as broom has it
  coefficients <- coefficient_places(x)
  if (check_flag(exponentiate, "exponentiate")) out[coefficients, scaled] <- exp(out[coefficients, scaled])
  as_tibble_if_there(out)
}

#' @rdname elvi_glm
#' @exportS3Method generics::glance
glance.elvi_fit <- function(x, ...) {
  check_dots(given_values(list(...)), names(formals()), "glance()", passed_by_frameworks$glance)
  value <- elbo(x)
  as_tibble_if_there(data.frame(
    elbo = value$estimate, elbo.se = value$se, method = x$method, base = x$base$kind,
    scale = x$control$scale, converged = x$converged %||% NA,
    evaluations = if (x$method == "exact") x$optimum$evaluations else x$state$evals,
    nobs = rows_seen(x)))
}

# NA of a fit that is no regression
rows_seen <- function(x) UseMethod("rows_seen")

#' @export
rows_seen.elvi_fit <- function(x) NA_integer_

#' @export
rows_seen.elvi_glm <- function(x) nobs.elvi_glm(x)

#' @rdname elvi_glm
#' @exportS3Method generics::augment
augment.elvi_glm <- function(x, data = NULL, newdata = NULL, type.predict = c("response", "link"), ...) {
  check_dots(list(...), names(formals()), "augment()", passed_by_frameworks$augment)
  if (is.null(newdata)) check_in_memory(x)
  # the frame lacks the rows that na.exclude would put back
  if (is.null(newdata) && is.null(data)) x$na.action <- NULL
  at <- stats::predict(x, newdata = newdata, se.fit = TRUE,
                       type = check_choice(type.predict, "type.predict", c("response", "link")))
  out <- if (is.null(newdata)) reading(as.data.frame(data %||% x$frame), "data", "it is no data frame")
         else as.data.frame(newdata)
  if (nrow(out) != length(at$fit)) {
    bad_argument("data", sprintf("of %d rows, as the fit has", length(at$fit)), describe(out))
  }
  out$.fitted <- unname(at$fit)
  out$.se.fit <- unname(at$se.fit)
  if (is.null(newdata)) out$.resid <- unname(stats::residuals(x))
  as_tibble_if_there(out)
}

as_tibble_if_there <- function(x) {
  if (requireNamespace("tibble", quietly = TRUE)) tibble::as_tibble(x) else x
}

# ---- loo and bayesplot ---------------------------------------------------------------

#' @rdname elvi_glm
#' @exportS3Method loo::loo
loo.elvi_glm <- function(x, draws = 2000, seed = NULL, ...) {
  need_package("loo", "loo()")
  draws <- check_draws(draws, max(nobs.elvi_glm(x), x$model$dim), lower = 2)
  drawn <- draws_with_ratios(x, draws, fit_key(x, seed))
  coefficients <- t(reported_points(x$given$model, drawn$x))
  loo::loo_approximate_posterior(log_lik_at(x, coefficients), log_p = drawn$log_p, log_g = drawn$log_q, ...)
}

#' @rdname elvi_glm
#' @exportS3Method bayesplot::pp_check
pp_check.elvi_glm <- function(object, type = "dens_overlay", draws = 50, seed = NULL, ...) {
  need_package("bayesplot", "pp_check()")
  check_in_memory(object)
  plot <- tryCatch(getExportedValue("bayesplot", paste0("ppc_", type)), error = function(e) NULL)
  if (is.null(plot)) bad_argument("type", "the name of one of bayesplot's ppc_ plots", describe(type))
  plot(seen_response(object)$y * response_trials(object), posterior_predict.elvi_glm(object, draws = draws, seed = seed), ...)
}
