#' Stan models as targets
#'
#' `model_stan()` makes a model for [elvi()] from a Stan program: its log density on the unconstrained scale, with the gradient that Stan
#' computes. [constrain_draws()] maps draws of the fit back to the parameters of the program.
#'
#' The parameters of the fit have the names that Stan gives them, but they are on the unconstrained scale: `sigma` of a model with
#' `real<lower=0> sigma` is a
#' logarithm here. 'rstanarm' reports transforms of its models' parameters under
#' other names: `alpha`, `beta` and `aux` of [constrain_draws()] are usually what
#' it calls the intercept, the coefficients and `sigma`.
#'
#' 'rstan' and 'cmdstanr' offer the log density and its gradient as R functions of one point. So a Stan model costs one call of R per
#' draw, like a [model_density()].
#'
#' Points where Stan throws an exception are outside the domain, for example where a solver of differential equations takes too many
#' steps. See [start_search], also about posteriors without a mode.
#'
#' The fit keeps the Stan object inside, whose compiled code does not survive
#' `saveRDS()`: coefficients, covariances and draws are available in another session; the objective, a longer run and constrained draws
#' are not.
#'
#' @param object a `stanfit` object of 'rstan' (from `sampling()`; with `chains =
#'   0` if no draws are wanted), a fit by 'rstanarm' or, with the backend 'rstan', 'brms', or a fit
#'   by 'cmdstanr' after its `$init_model_methods()`, or a `StanModel` of 'bridgestan'; made in this session.
#' @param smoothness,convex,growth as in [model_density()], if you know them.
#' @return An object of class `elvi_model`.
#' @examples
#' # loading 'rstanarm' takes seconds: vignette("any-model") shows what comes out
#' if (interactive() && requireNamespace("rstanarm", quietly = TRUE)) {
#'   nuts <- rstanarm::stan_glm(mpg ~ wt, data = mtcars, chains = 1, iter = 500,
#'                              refresh = 0, seed = 1)
#'   set.seed(1)
#'   fit <- elvi(model_stan(nuts), tol = 0.05)
#'   colMeans(constrain_draws(fit)[, c("alpha[1]", "beta[1]", "aux")])
#'   colMeans(as.matrix(nuts))
#' }
#' @export
model_stan <- function(object, smoothness = NULL, convex = NA, growth = NA) {
  object <- stan_object(object)
  stan <- if (inherits(object, "CmdStanFit")) methods_of_cmdstan(object)
          else if (inherits(object, "StanModel")) methods_of_bridgestan(object) else methods_of_rstan(object)
  dim <- stan$dim
  each <- function(f, x, n_out) vapply(seq_len(ncol(x)), function(j) f(x[, j]), numeric(n_out))
  both <- function(x) -each(stan$value_and_gradient, stan$alive(x), dim + 1)
  model <- model_density(
    value = function(x) -each(stan$value, stan$alive(x), 1),
    gradient = function(x) both(x)[-1L, ],
    dim = dim, smoothness = smoothness, convex = convex, growth = growth, names = stan$names, vectorized = TRUE)
  model$both <- both
  model$own_gradient <- FALSE
  model$constrain <- function(x) constrain_stan(stan, x)
  model$stan_parameters <- stan$parameters
  model$logarithms <- NULL   # `constrain` shows which they are
  model$stanfit <- object
  model
}

# What is behind the fits of packages that use Stan: a stanfit, or one by 'cmdstanr'.
stan_object <- function(object) {
  if (inherits(object, "stanreg")) object <- object$stanfit
  if (inherits(object, "brmsfit")) {
    if (identical(object$backend, "cmdstanr")) {
      bad_argument("object", "a brmsfit made with backend = \"rstan\"", "with backend = \"cmdstanr\"",
                   "the latter keeps draws, but not the compiled model")
    }
    object <- object$fit
  }
  if (inherits(object, c("stanmodel", "CmdStanModel"))) {
    bad_argument("object", "a Stan model with its data, as sampling(model, data = , chains = 0) makes of it",
                 "a program without data")
  }
  if (!inherits(object, c("stanfit", "CmdStanFit", "StanModel"))) {
    bad_argument("object", "a stanfit object of 'rstan', a fit by 'rstanarm', 'brms' or 'cmdstanr', or a StanModel of 'bridgestan'",
                 describe(object))
  }
  object
}

# ---- what elvi asks of a Stan model --------------------------------------------------------
# `value` and `value_and_gradient` of log p at one point, `constrain`, its parameters there by name, `parameters`, the same as a list
# of arrays, `alive`, which returns what it is given or stops where the compiled code is gone.

# The functions of 'rstan' look up a method in each call, which takes several times as long as a small model: the
# methods are kept, and asked once for each block whether what they point to is still there.
methods_of_rstan <- function(object) {
  need_package("rstan", "model_stan()")
  alive <- function(x) {
    or_else(rstan::get_num_upars(object), elvi_abort(
      "`object` has no compiled model. Make it in this session, by sampling.",
      class = "elvi_error_argument", data = list(argument = "object")))
    x
  }
  alive(NULL)
  kept <- function(name, public) {
    or_null(eval(call("$", object@.MISC$stan_fit_instance, name))) %||% public
  }
  gradient <- kept("grad_log_prob", function(x, adjust) rstan::grad_log_prob(object, x, adjust_transform = adjust))
  value <- kept("log_prob", function(x, adjust, gradient) rstan::log_prob(object, x, adjust_transform = adjust))
  flat <- kept("constrain_pars", function(x) unlist(rstan::constrain_pars(object, x), use.names = FALSE))
  dim <- rstan::get_num_upars(object)
  list(dim = dim, names = unconstrained_names(object, dim), alive = alive,
       value = function(x) value(x, TRUE, FALSE),
       value_and_gradient = function(x) {
         g <- gradient(x, TRUE)
         c(attr(g, "log_prob"), g)
       },
       constrain = function(x, names) {
         if (is.null(names)) flat_parameters(rstan::constrain_pars(object, x)) else stats::setNames(flat(x), names)
       },
       parameters = function(x) rstan::constrain_pars(object, unname(x)))
}

methods_of_cmdstan <- function(object) {
  dim <- tryCatch(length(cmdstan_point(object)), error = function(e) bad_argument(
    "object", "a fit by 'cmdstanr' with model methods", paste0("one with the error \"", conditionMessage(e), "\""),
    "call its $init_model_methods() first"))
  names <- names(cmdstan_point(object))
  list(dim = dim, names = names %||% paste0("u", seq_len(dim)), alive = identity,
       value = function(x) object$log_prob(x),
       value_and_gradient = function(x) {
         g <- object$grad_log_prob(x)
         c(attr(g, "log_prob") %||% object$log_prob(x), g)
       },
       constrain = function(x, names) flat_parameters(object$constrain_variables(x)),
       parameters = function(x) {
         object$constrain_variables(unname(x), transformed_parameters = FALSE, generated_quantities = FALSE)
       })
}

# A model of 'bridgestan' has its data. Generated quantities need a generator of random numbers, which older versions do not have.
methods_of_bridgestan <- function(object) {
  bracketed <- function(names) gsub(".", ",", sub("\\.(.*)$", "[\\1]", names), fixed = TRUE)
  rng <- if (is.function(object$new_rng)) object$new_rng(1L)
  generated <- !is.null(rng)
  all_names <- bracketed(object$param_names(include_tp = TRUE, include_gq = generated))
  own_names <- bracketed(object$param_names())
  list(dim = object$param_unc_num(), names = bracketed(object$param_unc_names()), alive = identity,
       value = function(x) object$log_density(x, propto = FALSE, jacobian = TRUE),
       value_and_gradient = function(x) {
         at <- object$log_density_gradient(x, propto = FALSE, jacobian = TRUE)
         c(at$val, at$gradient)
       },
       constrain = function(x, names) {
         value <- if (generated) object$param_constrain(x, include_tp = TRUE, include_gq = TRUE, rng = rng)
                  else object$param_constrain(x, include_tp = TRUE)
         stats::setNames(value, all_names)
       },
       parameters = function(x) arrays_of(stats::setNames(object$param_constrain(unname(x)), own_names)))
}

# a vector with names such as "sigma", "beta[2]", "Omega[1,2]" as a named list of arrays, the first index changing fastest
arrays_of <- function(flat) {
  of <- sub("\\[.*", "", names(flat))
  lapply(split(flat, factor(of, unique(of))), function(x) {
    if (!any(grepl("[", names(x), fixed = TRUE))) return(unname(x))
    index <- do.call(rbind, lapply(strsplit(sub(".*\\[(.*)\\]", "\\1", names(x)), ","), as.integer))
    out <- array(NA_real_, apply(index, 2L, max))
    out[index] <- x
    out
  })
}

# one of its draws on the unconstrained scale, in whatever format that comes
cmdstan_point <- function(object) {
  draws <- object$draws()
  one <- if (is.null(dim(draws))) draws else posterior::subset_draws(posterior::as_draws_matrix(draws), draw = 1)
  point <- object$unconstrain_draws(draws = one)
  names <- if (inherits(point, "draws")) posterior::variables(point)
  stats::setNames(as.double(unlist(point, use.names = FALSE)), names)
}

# Stan knows the names but rstan has no function to ask for them, so be ready not
# to get any. "beta.2" is printed as "beta[2]" and "Omega.1.2" as "Omega[1,2]".
unconstrained_names <- function(object, dim) {
  names <- or_null(object@.MISC$stan_fit_instance$unconstrained_param_names(FALSE, FALSE))
  if (length(names) != dim) return(paste0("u", seq_len(dim)))
  indexed <- sub("\\.(.*)$", "[\\1]", names)
  gsub(".", ",", indexed, fixed = TRUE)
}

#' Draws on the scale of the model's parameters
#'
#' `constrain_draws()` maps draws of a fit from the unconstrained scale to the parameters of the model: those of a Stan program, or those
#' that the argument `constrain` of [model_density()] returns.
#'
#' @param fit a fit of a [model_stan()], or of a [model_density()] or [model_native()] with `constrain`.
#' @param draws number of draws.
#' @param resample importance resample? `NULL` decides by the verdict of the fit. See [as.matrix.elvi_fit()], which has the same rows.
#'   With `FALSE` there is a warning if importance weights change means or standard deviations by much.
#' @return A matrix with one row per draw and one column per parameter,
#'   transformed parameter and generated quantity of a Stan model, with Stan's names; or one column for each entry of what
#'   `constrain` returns.
#' @seealso [model_stan()], [model_density()]
#' @examples
#' # a mean and the logarithm of a standard deviation
#' y <- c(2.1, 3.4, 1.7, 4.0, 2.8)
#' model <- model_density(
#'   value = function(x) 5 * x[2] + sum((y - x[1])^2) / (2 * exp(2 * x[2])) + sum(x^2) / 50,
#'   gradient = function(x) {
#'     r <- y - x[1]
#'     c(-sum(r) / exp(2 * x[2]), 5 - sum(r^2) / exp(2 * x[2])) + x / 25
#'   },
#'   dim = 2, names = c("mu", "log_sigma"),
#'   constrain = function(x) c(mu = x[1], sigma = exp(x[2])))
#' set.seed(1)
#' fit <- elvi(model)
#' colMeans(constrain_draws(fit, draws = 1000))
#' @export
constrain_draws <- function(fit, draws = 1000, resample = NULL) {
  check_class(fit, "fit", "elvi_fit", "elvi()")
  constrain <- fit$model$constrain
  if (is.null(constrain)) bad_argument("fit", "a fit of a model_stan(), or of a model with `constrain`", "another")
  if (!isFALSE(resample)) {
    x <- as.matrix.elvi_fit(fit, draws = draws, resample = resample)
    return(constrain(t(x[, in_order_of(fit$model, x), drop = FALSE])))
  }
  # the two may agree on the unconstrained scale and differ here
  draws <- check_draws(draws, fit$model$dim)
  own <- function(drawn) constrain(t(target_draws(fit, drawn)))
  plain <- own(posterior_draws(uncorrected(fit$posterior), draws))
  corrected <- if (draws >= 100) corrected_draws(fit$posterior, draws)
  if (!is.null(corrected)) warn_of_plain(plain, own(corrected))
  plain
}

# The columns of x in the parameters of a Stan model, one row each.
constrain_stan <- function(stan, x) {
  stan$alive(NULL)
  names <- names(stan$constrain(x[, 1L], NULL))
  out <- vapply(seq_len(ncol(x)), function(j) stan$constrain(x[, j], names), stats::setNames(numeric(length(names)), names))
  if (is.matrix(out)) t(out) else matrix(out, dimnames = list(NULL, names))
}

#' Leave-one-out cross-validation of a Stan model
#'
#' `loo()` takes a fit of a [model_stan()] whose program has the log likelihood of each observation as `log_lik`, in its transformed
#' parameters or generated quantities; or of a [model_density()] whose `constrain` returns entries `log_lik[1]`, `log_lik[2]`, ...
#'
#' @param x a fit of a [model_stan()], or of a model with `constrain`.
#' @param draws number of draws.
#' @param seed optional number that selects another sequence of draws.
#' @param ... passed to `loo::loo_approximate_posterior()`.
#' @return An object of class `loo`.
#' @seealso [pareto_k()], which judges the fit as a whole
#' @examples
#' if (requireNamespace("loo", quietly = TRUE)) {
#'   y <- c(2.1, 3.4, 1.7, 4.0, 2.8)
#'   model <- model_density(   # a mean with a normal(0, 5) prior, and a known standard deviation of 1
#'     value = function(x) sum((y - x)^2) / 2 + x^2 / 50,
#'     gradient = function(x) sum(x - y) + x / 25,
#'     dim = 1, names = "mu",
#'     constrain = function(x) {
#'       log_lik <- dnorm(y, x[1], log = TRUE)
#'       c(mu = x[1], setNames(log_lik, paste0("log_lik[", seq_along(y), "]")))
#'     })
#'   set.seed(1)
#'   fit <- elvi(model)
#'   print(loo::loo(fit))
#' }
#' @exportS3Method loo::loo
loo.elvi_fit <- function(x, draws = 2000, seed = NULL, ...) {
  need_package("loo", "loo()")
  if (is.null(x$model$constrain)) {
    refuse_argument("x", "`x`: loo() needs the log likelihood of each observation. A model_stan() has the `log_lik` of its program, and a ",
                    "model_density() gives it as `log_lik` of its `constrain`.")
  }
  draws <- check_draws(draws, x$model$dim, lower = 2)
  drawn <- draws_with_ratios(x, draws, fit_key(x, seed))
  all <- x$model$constrain(drawn$x)
  pointwise <- all[, sub("\\[.*", "", colnames(all)) == "log_lik", drop = FALSE]
  if (!ncol(pointwise)) bad_argument("x", "a fit of a Stan program, or of a `constrain`, that returns `log_lik`", "one without")
  loo::loo_approximate_posterior(pointwise, log_p = drawn$log_p, log_g = drawn$log_q, ...)
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
