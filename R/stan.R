#' Stan models as targets
#'
#' The log density of any Stan model on its unconstrained scale, with the gradient
#' that Stan computes, as a target for [elvi()]. [constrain_draws()] maps draws of
#' the fit back to the model's own parameters.
#'
#' The parameters of the fit have the names that Stan gives them, but they live
#' on the unconstrained scale: `sigma` of a model with `real<lower=0> sigma` is a
#' logarithm here. 'rstanarm' reports transforms of its models' parameters under
#' other names: `alpha`, `beta` and `aux` of [constrain_draws()] are usually what
#' it calls the intercept, the coefficients and `sigma`.
#'
#' 'rstan' has the log density and its gradient as R functions of one point, and
#' registers nothing that C code of another package could call: so a Stan model is run
#' like a [model_density()], at two calls of R per draw, not like a [model_native()].
#'
#' Where Stan throws an exception, as a solver of differential equations does that takes too many steps,
#' is outside the domain; see the section on the search in [elvi()], which is also for posteriors without
#' a mode.
#'
#' The fit keeps the Stan object inside, whose compiled code does not survive
#' `saveRDS()`: coefficients, covariances and draws can be had in another
#' session; the objective, a longer run and constrained draws cannot.
#'
#' @param object a `stanfit` object of 'rstan' (from `sampling()`; with `chains =
#'   0` if no draws are wanted) or a fit by 'rstanarm' or, with the backend 'rstan', 'brms', made in
#'   this session.
#' @param smoothness,convex,growth as in [model_density()], if you know them.
#' @return An object of class `elvi_model`.
#' @examples
#' \donttest{
#' if (requireNamespace("rstanarm", quietly = TRUE)) {
#'   nuts <- rstanarm::stan_glm(mpg ~ wt, data = mtcars, chains = 1, iter = 500,
#'                              refresh = 0, seed = 1)
#'   set.seed(1)
#'   fit <- elvi(model_stan(nuts), tol = 0.05)
#'   colMeans(constrain_draws(fit)[, c("alpha[1]", "beta[1]", "aux")])
#'   colMeans(as.matrix(nuts))
#' }
#' }
#' @export
model_stan <- function(object, smoothness = NULL, convex = NA, growth = NA) {
  object <- stanfit_of(object)
  need_package("rstan", "model_stan()")
  dim <- tryCatch(rstan::get_num_upars(object), error = function(e) elvi_abort(
    "`object` must have its compiled model behind it: make it in this session, by sampling.",
    class = "elvi_error_argument", data = list(argument = "object")))
  model <- model_density(
    value = function(x) -rstan::log_prob(object, x, adjust_transform = TRUE),
    gradient = function(x) -rstan::grad_log_prob(object, x, adjust_transform = TRUE),
    dim = dim, smoothness = smoothness, convex = convex, growth = growth,
    names = unconstrained_names(object, dim), vectorized = FALSE)
  model$both <- function(x) {
    apply(x, 2L, function(x) {
      g <- rstan::grad_log_prob(object, x, adjust_transform = TRUE)
      -c(attr(g, "log_prob"), g)
    })
  }
  model$own_gradient <- FALSE
  model$stanfit <- object
  model
}

# the stanfit behind the fits of packages that use 'rstan'
stanfit_of <- function(object) {
  if (inherits(object, "stanreg")) object <- object$stanfit
  if (inherits(object, "brmsfit")) {
    if (identical(object$backend, "cmdstanr")) {
      bad_argument("object", "a brmsfit made with backend = \"rstan\"", "one made with backend = \"cmdstanr\"")
    }
    object <- object$fit
  }
  if (inherits(object, "CmdStanFit")) {
    bad_argument("object", paste("a fit whose model 'rstan' can evaluate; one by 'cmdstanr' with model methods is a",
                                 "target as model_density(function(x) -fit$log_prob(x), function(x)",
                                 "-fit$grad_log_prob(x), dim, vectorized = FALSE)"), "one by 'cmdstanr'")
  }
  if (!inherits(object, "stanfit")) {
    bad_argument("object", "a stanfit object of 'rstan' or a fit by 'rstanarm' or 'brms'", describe(object))
  }
  object
}

# Stan knows the names but rstan has no function to ask for them, so be ready not
# to get any. "beta.2" is printed as "beta[2]" and "Omega.1.2" as "Omega[1,2]".
unconstrained_names <- function(object, dim) {
  names <- tryCatch(object@.MISC$stan_fit_instance$unconstrained_param_names(FALSE, FALSE),
                    error = function(e) NULL)
  if (length(names) != dim) return(paste0("u", seq_len(dim)))
  indexed <- sub("\\.(.*)$", "[\\1]", names)
  gsub(".", ",", indexed, fixed = TRUE)
}

#' Draws in the parameters of a Stan model
#'
#' @param fit a fit of a [model_stan()].
#' @param draws number of draws.
#' @param resample importance resample? See [as.matrix.elvi_fit()].
#' @return A matrix with one row per draw and one column per parameter,
#'   transformed parameter and generated quantity of the model, with Stan's names.
#' @seealso [model_stan()]
#' @export
constrain_draws <- function(fit, draws = 1000, resample = FALSE) {
  check_class(fit, "fit", "elvi_fit", "elvi()")
  stanfit <- fit$model$stanfit
  if (is.null(stanfit)) bad_argument("fit", "a fit of a model_stan()", "another")
  need_package("rstan", "constrain_draws()")
  x <- as.matrix.elvi_fit(fit, draws = draws, resample = resample)
  at_draw <- function(i) flat_parameters(rstan::constrain_pars(stanfit, x[i, ]))
  do.call(rbind, lapply(seq_len(nrow(x)), at_draw))
}

# a named list of arrays as a vector with Stan's names: "sigma", "beta[2]", "Omega[1,2]"
flat_parameters <- function(parameters) {
  labelled <- function(value, name) {
    value <- if (is.null(dim(value)) && length(value) == 1L) value else as.array(value)
    index <- if (is.array(value)) arrayInd(seq_along(value), dim(value))
    label <- if (is.null(index)) name else sprintf("%s[%s]", name, apply(index, 1L, paste, collapse = ","))
    stats::setNames(as.double(value), label)
  }
  parameters <- parameters[lengths(parameters) > 0]
  unlist(unname(Map(labelled, parameters, names(parameters))))
}
