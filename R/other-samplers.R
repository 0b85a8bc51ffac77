# What samplers of other packages take from a fit: first points of their chains, and a metric.

#' Starting values and a metric for samplers
#'
#' Hamiltonian Monte Carlo warms up faster if it starts in the posterior and knows its scales. `init_values()` gives a starting point for
#' each chain and `inverse_metric()` the covariance of the posterior, in the form that 'rstan', 'cmdstanr' and 'adnuts' take.
#'
#' The starting points are draws of the fit: those that `as.matrix(fit, draws = chains)` shows, corrected by importance weights where
#' the fit is. For a [model_stan()] each is a named list of the program's parameters on their own scale, so that the result is what
#' `rstan::sampling(init = )` and the `$sample(init = )` of 'cmdstanr' take. For other models each is a named vector on the
#' scale of the target, as `init` of `adnuts::sample_nuts()` takes it.
#'
#' The metric is on the unconstrained scale in which samplers move: `inv_metric` of 'cmdstanr' (a matrix with `metric =
#' "dense_e"`, a vector with `"diag_e"`) and `metric` of 'adnuts'.
#'
#' @param fit a fit by [elvi()] of a user-supplied density, or of a formula without group-level or smooth terms.
#' @param chains number of chains.
#' @param type `"dense"` for the covariance matrix, `"diagonal"` for the variances.
#' @param seed optional number that selects another sequence of draws.
#' @return `init_values()`: a list with an entry for each chain. `inverse_metric()`: a matrix or a vector.
#' @seealso [model_stan()], [model_density()], [constrain_draws()]
#' @examples
#' banana <- model_density(
#'   value = function(x) x[1]^2 / 2 + (x[2] - 0.2 * x[1]^2)^2 / 2,
#'   gradient = function(x) c(x[1] - 0.4 * x[1] * (x[2] - 0.2 * x[1]^2), x[2] - 0.2 * x[1]^2),
#'   dim = 2)
#' set.seed(1)
#' fit <- elvi(banana)
#' init_values(fit, chains = 2)
#' inverse_metric(fit)
#' @export
init_values <- function(fit, chains = 4, seed = NULL) {
  check_sampler_fit(fit)
  chains <- check_count(chains, "chains")
  points <- target_draws(fit, posterior_draws(fit$posterior, chains, fit_key(fit, seed)))
  parameters <- fit$given$model$stan_parameters %||% identity
  lapply(seq_len(chains), function(i) parameters(points[i, ]))
}

#' @rdname init_values
#' @export
inverse_metric <- function(fit, type = c("dense", "diagonal")) {
  check_sampler_fit(fit)
  type <- check_choice(type, "type", c("dense", "diagonal"))
  names <- fit$given$model$names   # parameters that were integrated over come last in a posterior
  if (type == "dense") return(posterior_covariance(fit$posterior)[names, names, drop = FALSE])
  posterior_moments(fit$posterior)$sd[names]^2
}

# Regressions with hyperparameters, on another scale than a sampler's, or with several predictors are not of one target.
check_sampler_fit <- function(fit) {
  check_class(fit, "fit", "elvi_fit", "elvi()")
  if (is.null(fit$given$model)) {
    bad_argument("fit", "a fit of one target", "a regression with several parts, or with hyperparameters")
  }
}
