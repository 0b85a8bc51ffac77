#' Objective and evidence lower bound
#'
#' `elbo()` is the evidence lower bound, a lower bound of the log evidence (the log marginal likelihood) of the model, with all
#' normalising constants of prior and likelihood. It can compare fits of different models to the same data.
#' `objective()` evaluates `F(mu, Sigma) = E f(mu + Sigma z) - log|Sigma|`, the quantity a fit minimises. It leaves out these constants,
#' so use it to compare approximations of one model, not models.
#'
#' @section Comparing models:
#' The difference of two ELBOs estimates the log Bayes factor of the two models. Its error is the difference of their gaps, each the
#' Kullback-Leibler divergence of the approximation from the posterior; [pareto_k()] shows whether a gap may be large. The responses must
#' be the same in both, not transformed, and the rows too. Like any evidence it depends on the priors,
#' also where the posterior hardly does. [loo()][cross_validation] compares models by their predictions instead.
#'
#' A flat prior has no normalising constant, and the evidence is then defined only up to a factor. elvi counts it as density 1, and
#' printing an ELBO says so. Models that do not have the same flat priors cannot be compared by evidence.
#'
#' The target of [model_density()], [model_stan()], [model_native()] and [model_quadratic()] is taken as given: the ELBO is a
#' lower bound of the log of the integral of `exp(-f)`. That is the log evidence if `f` has all constants of `-log p(y, x)`.
#'
#' @section How they are computed:
#' The ELBO is `C - F - E log p(z)` with `p` the density of the base and `C` the constants that `f` leaves out.
#'
#' For generalised linear models and quadratics both are computed without
#' Monte Carlo: the linear predictor of observation `i` is `eta_i + s_i z_1`, so
#' `E f` is a sum of one-dimensional integrals, which are done by quadrature to
#' about ten digits. For other models, or with `method = "monte_carlo"`, they are
#' estimated and come with a standard error.
#'
#' @param object an `elvi_fit`, or a list with `mu` and `Sigma` (a symmetric
#'   matrix, or a vector for a diagonal one), for example an [elvi_optimum()].
#' @param model,base the model and the base, when `object` is a list.
#' @param method `"exact"` or `"monte_carlo"`; the default is exact where the
#'   model allows it.
#' @param draws number of Monte Carlo draws. New ones are made on each call from
#'   R's generator.
#' @param ... passed on; unknown names are errors.
#' @return A list of class `elvi_estimate` with `estimate`, `se` (its standard
#'   error, 0 when exact), `method`, `draws` and `what`; for `elbo()` also `flat`, the number of parameters with a flat prior.
#' @examples
#' model <- model_glm(cbind(1, infert$age), infert$case)
#' set.seed(1)
#' fit <- elvi(model)
#' objective(fit)
#' objective(fit, method = "monte_carlo", draws = 1e4)
#' elbo(fit)
#' objective(list(mu = c(0, 0), Sigma = c(1, 0.1)), model, base_gaussian())
#' @export
objective <- function(object, ...) UseMethod("objective")

#' @rdname objective
#' @export
elbo <- function(object, ...) UseMethod("elbo")

#' @rdname objective
#' @export
objective.elvi_fit <- function(object, method = NULL, draws = 1000, ...) {
  check_dots(list(...), names(formals()), "objective()")
  if (!is.null(object$nested)) {
    bad_argument("object", "a fit without hyperparameters (see elbo() for others)", "a nested fit")
  }
  if (is.null(sole_component(uncorrected(object$posterior)))) return(stacked_objective(object, draws))
  at <- model_theta(object)
  estimate_objective(object$model, object$base, object$control$scale, at$mu, at$scale, method, draws)
}

#' @rdname objective
#' @export
objective.default <- function(object, model, base = base_gaussian(), method = NULL,
                              draws = 1000, ...) {
  check_dots(list(...), names(formals()), "objective()")
  if (!is.list(object) || is.null(object$mu) || is.null(object$Sigma)) {
    bad_argument("object", "a fit, or a list with `mu` and `Sigma`", describe(object))
  }
  if (missing(model)) refuse_argument("model", "`model` is missing: `object` is not a fit, so the target is not known.")
  check_class(model, "model", "elvi_model", "a model_*() function")
  check_class(base, "base", "elvi_base", "a base_*() function")
  kind <- given_kind(object$Sigma)
  mu <- check_vector(object$mu, "object$mu", model$dim)
  scale <- check_start_scale(object$Sigma, model$dim, kind, "object$Sigma")
  estimate_objective(model, base, kind, mu, scale, method, draws)
}

estimate_objective <- function(model, base, kind, mu, scale, method, draws) {
  draws <- check_draws(draws, 1, lower = 2)
  objective_at(scale, model, law_of(base, model$dim), kind, mu, method, draws)
}

objective_at <- function(scale, model, law, kind, mu, method, draws) UseMethod("objective_at")

#' @export
objective_at.default <- function(scale, model, law, kind, mu, method, draws) {
  default <- if (affords_exact(model, kind)) "exact" else "monte_carlo"
  method <- check_choice(method %||% default, "method", c("exact", "monte_carlo"))
  if (method == "exact") {
    if (!has_exact(model)) {
      bad_argument("method", "\"monte_carlo\"", "\"exact\"", "this model has no exact objective")
    }
    check_size(exact_size(model, kind), "method", method)
    value <- exact_oracle(model, law)(kind, unname(mu), unname(scale))$objective
    return(new_estimate("objective F", value, 0, NA, law))
  }
  f <- .Call(elvi_r_values, model, law, kind, unname(mu), unname(scale), draw_key(), draws, threads())
  new_estimate("objective F", mean(f) - log_det(kind, scale), stats::sd(f) / sqrt(draws), draws, law)
}

#' @rdname objective
#' @export
elbo.elvi_fit <- function(object, ...) {
  if (is.null(object$nested)) return(elbo_of(objective(object, ...), object$model))
  check_dots(list(...), "object", "elbo()")
  evidence <- object$nested$evidence
  structure(list(what = "Log evidence", estimate = evidence$log, se = 0, method = "exact", draws = NA,
                 entropy = posterior_law(object$posterior)$entropy, flat = evidence$flat, corrected = evidence$corrected),
            class = "elvi_estimate")
}

#' @rdname objective
#' @export
elbo.default <- function(object, model, ...) elbo_of(objective(object, model, ...), model)

# Only here do the constants enter: F is without them.
elbo_of <- function(value, model) {
  value$what <- "ELBO"
  value$estimate <- value$entropy - value$estimate + model_constant(model)
  value$flat <- flat_in_model(model)
  value$corrected <- NA_real_
  value
}

evidence_line <- function(x) {
  if (x$corrected == x$estimate) return(paste0("Log evidence: ", format(x$estimate, digits = 8), " (up to the quadrature error)"))
  paste0("Log evidence: ", format(x$corrected, digits = 8), " (importance-corrected; lower bound ", format(x$estimate, digits = 8), ")")
}

# of an ELBO, for print()
flat_line <- function(flat) {
  if (flat == 0) return(NULL)
  sprintf("%d parameter%s a flat prior, which counts as density 1: compare only with models that have the same flat priors.", flat,
          if (flat == 1) " has" else "s have")
}

new_estimate <- function(what, estimate, se, draws, law) {
  structure(list(what = what, estimate = estimate, se = se,
                 method = if (is.na(draws)) "exact" else "monte_carlo", draws = draws,
                 entropy = law$entropy), class = "elvi_estimate")
}

#' @export
print.elvi_estimate <- function(x, ...) {
  if (isTRUE(is.finite(x$corrected))) {   # of a mixture over quadrature points
    cat(evidence_line(x), "\n", sep = "")
    writeLines(as.character(flat_line(x$flat)))
    return(invisible(x))
  }
  cat(x$what, ": ", format(x$estimate, digits = if (x$method == "exact") 10 else 7),
      if (x$method == "exact") " (exact)" else
        sprintf(" (Monte Carlo, standard error %s, %s draws)", format(x$se, digits = 2),
                format_count(x$draws)), "\n", sep = "")
  writeLines(as.character(flat_line(x$flat %||% 0)))
  invisible(x)
}

# Is the optimum soon found, to compare a fit with?
affords_optimum <- function(fit) {
  kind <- fit$control$scale
  affords_exact(fit$model, kind) && (!is.null(fit$optimum) || !exact_by_products(fit$model, kind))
}

# F at the fit, the certified optimum and what lies between; NULL when the model
# has no exact objective, or none that is cheap.
exact_gap <- function(fit) {
  if (is.null(fit$given$model)) return(NULL)
  if (!affords_optimum(fit)) return(NULL)
  optimum <- fit$optimum %||% solve_optimum(fit$model, fit$base, law_of(fit$base, fit$model$dim),
                           fit$control$scale, 1e-9, 200)
  at <- objective(fit, method = "exact")$estimate
  list(objective = at, optimum = optimum, gap = at - optimum$objective)
}
