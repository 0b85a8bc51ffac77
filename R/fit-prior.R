#' Posterior against prior
#'
#' `posterior_vs_prior()` shows medians and intervals of the parameters under the posterior and under the prior, side by side, as the
#' function of the same name in package 'rstanarm' does. The prior is that of the fit, see [prior_summary()]. No model is fitted again.
#'
#' `log_prior()` is the log density of the prior at the draws of the fit, by the argument of [elvi()] that it belongs to. With package
#' 'priorsense', `priorsense::powerscale_sensitivity()` and its plots accept a fit. They use [log_prior()] and
#' [log_lik()][predict.elvi_glm] to measure how much the posterior depends on prior and likelihood. `prior_selection = "prior"`, for
#' example, selects the prior of the slopes.
#'
#' Densities in `log_prior()` are those of standard deviations, correlations and dispersion themselves, not of their logarithms. Effects
#' of
#' groups and smooths do not count: their distribution given a standard deviation is a part of the model.
#'
#' @param object a fit by [elvi()] from a formula. For `posterior_vs_prior()` with proper priors.
#' @param pars optional names or numbers of parameters, as in [summary()][elvi_fit]. By default all but the effects of groups and smooths.
#' @param prob probability of the intervals.
#' @param plot draw it, with package 'ggplot2'? Otherwise the numbers are returned.
#' @param draws,ndraws number of draws, under either name: the first ones of the fit, as in [as.matrix()][as.matrix.elvi_fit].
#' @param seed optional number that selects another sequence of draws.
#' @param ... nothing: unknown names are errors.
#' @return `posterior_vs_prior()`: a plot of package 'ggplot2', or with `plot = FALSE` its data frame with `parameter`, `vs` (`"Prior"` or
#'   `"Posterior"`), `mean`, `sd`, `median`, `lower` and `upper`. `log_prior()`: a matrix with one row per draw and one column for each
#'   of `prior_intercept`, `prior`, `prior_sd` (with correlations) and `prior_aux` that the model has.
#' @seealso `elvi(prior_only = TRUE)` in [elvi()].
#' @examples
#' fit <- elvi(am ~ wt, data = mtcars, family = binomial())
#' posterior_vs_prior(fit, plot = FALSE)
#' head(log_prior(fit, draws = 10))
#' \donttest{
#' if (requireNamespace("ggplot2", quietly = TRUE)) posterior_vs_prior(fit)
#' if (requireNamespace("priorsense", quietly = TRUE)) priorsense::powerscale_sensitivity(fit)
#' }
#' @export
posterior_vs_prior <- function(object, ...) UseMethod("posterior_vs_prior")

#' @export
posterior_vs_prior.default <- function(object, ...) {
  ours <- !has_package("rstanarm") || !inherits(object, "stanreg")
  if (ours) not_a_regression(object)
  getExportedValue("rstanarm", "posterior_vs_prior")(object, ...)
}

#' @rdname posterior_vs_prior
#' @export
#' @rawNamespace S3method(rstanarm::posterior_vs_prior, elvi_glm)
posterior_vs_prior.elvi_glm <- function(object, pars = NULL, prob = 0.9, plot = TRUE, ...) {
  check_dots(list(...), names(formals()), "posterior_vs_prior()")
  refuse_prior(object, "object", "its posterior is compared with its prior")
  prob <- check_number(prob, "prob", 0, 1, open = TRUE)
  plot <- check_flag(plot, "plot")
  if (plot) need_package("ggplot2", "posterior_vs_prior()")
  which <- if (is.null(pars)) shown_parameters(object, NULL, "pars") else check_parameters(object, pars, "pars")
  refuse_flat_priors(object$priors, coefficient_names(object), dispersion_name_of(object), "object")
  prior <- prior_of_fit(object)
  names <- object$posterior$shown[which]
  table <- rbind(comparison_rows(prior, match(names, prior$shown), "Prior", prob),
                 comparison_rows(object$posterior, which, "Posterior", prob))
  table$parameter <- factor(table$parameter, unique(names))
  table$vs <- factor(table$vs, c("Prior", "Posterior"))
  if (plot) comparison_plot(table, prob) else table
}

comparison_rows <- function(posterior, which, vs, prob) {
  moments <- posterior_moments(posterior)
  q <- posterior_quantiles(posterior, which, c((1 - prob) / 2, 0.5, (1 + prob) / 2))
  data.frame(parameter = posterior$shown[which], vs = vs, mean = unname(moments$mean[which]), sd = unname(moments$sd[which]),
             median = q[, 2L], lower = q[, 1L], upper = q[, 3L])
}

comparison_plot <- function(table, prob) {
  ggplot2::ggplot(table, ggplot2::aes(x = .data$vs, y = .data$median, ymin = .data$lower, ymax = .data$upper, colour = .data$vs)) +
    ggplot2::geom_hline(yintercept = 0, colour = "grey80") +
    ggplot2::geom_pointrange() +
    ggplot2::scale_colour_manual(values = c(Prior = "grey50", Posterior = plot_blue), guide = "none") +
    ggplot2::facet_wrap(ggplot2::vars(.data$parameter), scales = "free_y",
                        labeller = ggplot2::as_labeller(wrapped_names(levels(table$parameter), 22L))) +
    ggplot2::labs(x = NULL, y = NULL, caption = sprintf("Medians and %g %% intervals", 100 * prob)) +
    ggplot2::theme_minimal()
}

# The prior that a fit has used, in the form of a posterior
prior_of_fit <- function(fit) {
  posterior <- fit$posterior
  prior_posterior(list(family = fit$family, dispersion = fit$dispersion, priors = fit$priors, terms = fit$groups,
                       names = coefficient_names(fit), y = response_rows(observed_response(fit), 1L), lines = lines_of_fit(fit, 0),
                       intercept_shift = narrower_shift(posterior$shift, posterior$coefficients)), posterior$key)
}

# ---- its density at draws ---------------------------------------------------------------------------------

#' @rdname posterior_vs_prior
#' @export
log_prior <- function(object, ...) UseMethod("log_prior")

#' @export
log_prior.default <- function(object, ...) not_a_regression(object)

#' @rdname posterior_vs_prior
#' @export
log_prior.elvi_glm <- function(object, draws = 1000, seed = NULL, ..., ndraws = NULL) {
  check_dots(list(...), names(formals()), "log_prior()")
  posterior <- object$posterior
  draws <- check_draws(ndraws %||% draws, length(posterior$shown))
  key <- fit_key(object, seed)
  drawn <- posterior_draws(posterior, draws, key)
  hyper <- hyper_log_priors(posterior, draws, key, object$priors$aux)
  logged <- if (posterior$logged) list(prior_aux = positive_log_density(object$priors$aux, exp(drawn$x[, posterior$logged]))$value)
  do.call(cbind, c(coefficient_log_densities(object, drawn$x), hyper, logged))
}

# The intercept's prior is for centred predictors.
coefficient_log_densities <- function(object, x) {
  posterior <- object$posterior
  joint <- object$priors$joint
  p <- length(posterior$coefficients)
  if (!p) return(NULL)
  at <- t(centre_points(posterior, t(x)))[, posterior$coefficients, drop = FALSE]
  n <- nrow(at)
  each <- function(field) rep(rep_len(joint[[field]], p), each = n)
  value <- stats::dt((at - each("location")) / each("scale"), each("df"), log = TRUE) - log(each("scale"))
  value <- matrix(ifelse(is.infinite(each("scale")), 0, value), n)   # a flat prior counts as a density of 1
  first <- !is.null(object$priors$prior_intercept)
  Filter(Negate(is.null), list(prior_intercept = if (first) value[, 1L],
                               prior = if (p > first) rowSums(value[, seq(1 + first, p), drop = FALSE])))
}

# ---- package 'priorsense' ---------------------------------------------------------------------------------

priorsense_draws <- 4000L

#' @rawNamespace S3method(priorsense::log_prior_draws, elvi_glm)
log_prior_draws.elvi_glm <- function(x, joint = FALSE, log_prior_name = "lprior", ...) {
  parts <- log_prior.elvi_glm(x, draws = priorsense_draws)
  all <- matrix(rowSums(parts), dimnames = list(NULL, log_prior_name))
  colnames(parts) <- paste0(log_prior_name, "_", colnames(parts))   # so that `prior_selection` finds them
  posterior::as_draws_matrix(if (isTRUE(joint)) all else cbind(all, parts))
}

#' @rawNamespace S3method(priorsense::log_lik_draws, elvi_glm)
log_lik_draws.elvi_glm <- function(x, joint = FALSE, log_lik_name = "log_lik", ...) {
  value <- log_lik.elvi_glm(x, draws = priorsense_draws)
  if (isTRUE(joint)) value <- matrix(rowSums(value), dimnames = list(NULL, log_lik_name))
  else colnames(value) <- paste0(log_lik_name, "[", seq_len(ncol(value)), "]")
  posterior::as_draws_matrix(value)
}

#' @rawNamespace S3method(priorsense::create_priorsense_data, elvi_glm)
create_priorsense_data.elvi_glm <- function(x, ...) {
  refuse_prior(x, "x", "its posterior is compared with others of stronger and weaker priors")
  need_package("priorsense", "Sensitivity to the prior")
  draws <- posterior::as_draws_matrix(as.matrix(x, draws = priorsense_draws))
  getExportedValue("priorsense", "create_priorsense_data")(draws, fit = x, log_prior = log_prior_draws.elvi_glm(x),
                                                           log_lik = log_lik_draws.elvi_glm(x), ...)
}
