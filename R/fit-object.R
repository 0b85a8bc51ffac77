# A fit is a list of parts by lifetime:
#   given       the call, its arguments and, in `control`, what was left to elvi to decide; in `conduct` how the run is
#               stopped, watched and saved, which may change when it goes on
#   plan        what is made of them before the run: numbers of the schedule, smoothness, coordinates, start, seed
#   state       where the run is: iterate, average, counts, the stage of a run to a tolerance; all it needs to go on
#   result      theta, which iterate it is, how the run ended, trace and CPU seconds
#   regression  for a fit of a formula, what the formula gave
# A checkpoint saves plan, state and result. An exact fit has no state, and of a plan only the seed of its draws. Users see
# one flat object: `$` finds a field wherever it lives, and computes what follows from theta.

new_fit <- function(given, plan = NULL, state = NULL, result, regression = NULL) {
  parts <- list(given = without_samples(given), plan = plan, state = state, result = result)
  if (is.null(regression)) structure(parts, class = "elvi_fit")
  else structure(c(parts, list(regression = regression)), class = c(if (!is.null(regression$pieces)) "elvi_pieces", "elvi_glm", "elvi_fit"))
}

fit_fields <- list(
  given = c("call", "method", "model", "problem", "base", "schedule", "tol", "combine", "control", "conduct"),
  plan = c("smoothness", "smoothness_source", "feasible", "start", "seed", "rng_kind", "search"),
  state = "stage",
  result = c("trace", "cpu", "status", "kept", "theta", "lost", "remaining", "converged", "optimum", "nested", "posterior",
             "verdict", "stack", "polish", "account"),
  regression = c("formula", "terms", "xlevels", "contrasts", "offset_given", "family", "frame", "priors",
                 "na.action", "dropped", "dispersion", "groups", "smooths", "second", "shared", "pieces"))

part_of_field <- local({
  parts <- rep(names(fit_fields), lengths(fit_fields))
  stats::setNames(parts, unlist(fit_fields))
})

# What follows from the parts: the settings as elvi_control() has them, the posterior, the approximation without correction by
# importance weights (in the user's coordinates and names), and the last iterate of a run.
fit_computed <- list(
  control = function(fit) join_control(fit$given$control, fit$given$conduct),
  posterior = function(fit) fit$result$posterior %||% run_posterior(fit),
  mu = function(fit) approximation_moments(fit)$mean,
  sd = function(fit) approximation_moments(fit)$sd,
  scale = function(fit) if (!is.null(fit$result$theta)) reported_theta(fit)$scale,
  Sigma = function(fit) approximation_root(fit),
  hyper = function(fit) component_hyper(fit$posterior),
  last = function(fit) if (!is.null(fit$state)) reported_theta(fit, fit$state[c("mu", "scale")]),
  work = function(fit) if (!is.null(fit$plan$work)) run_model(fit))

field_of <- function(fit, name) {
  if (name %in% names(fit_computed)) return(fit_computed[[name]](fit))
  if (name %in% names(part_of_field)) return(.subset2(fit, part_of_field[[name]])[[name]])
  .subset2(fit, name)   # a part, or what its user has put there
}

set_field <- function(fit, name, value) {
  if (name == "control") {
    check_class(value, "control", "elvi_control", "elvi_control()")
    open <- names(value)[vapply(value, is.null, NA)]   # stays as the run has settled it
    value[open] <- unclass(field_of(fit, "control"))[open]
    fit$given[c("control", "conduct")] <- split_control(value)
    return(fit)
  }
  if (name %in% names(fit_computed)) {
    elvi_abort("`", name, "` of a fit is computed from the result of the run and cannot be set.",
               class = "elvi_error_argument", data = list(argument = name))
  }
  parts <- unclass(fit)
  if (name %in% names(part_of_field)) parts[[part_of_field[[name]]]][[name]] <- value
  else if (name %in% names(fit_fields)) parts[name] <- list(value)
  else parts[[name]] <- value
  structure(parts, class = class(fit))
}

#' @export
`$.elvi_fit` <- function(x, name) field_of(x, name)

#' @export
`[[.elvi_fit` <- function(x, i, ...) if (is.character(i) && length(i) == 1L) field_of(x, i) else unclass(x)[[i]]

#' @export
`[.elvi_fit` <- function(x, i) {
  if (is.character(i)) stats::setNames(lapply(i, field_of, fit = x), i) else unclass(x)[i]
}

#' @export
`$<-.elvi_fit` <- function(x, name, value) set_field(x, name, value)

#' @export
`[[<-.elvi_fit` <- function(x, i, value) {
  if (is.character(i) && length(i) == 1L) return(set_field(x, i, value))
  parts <- unclass(x)
  parts[[i]] <- value
  structure(parts, class = class(x))
}

# What `$` answers, for completion at the prompt; names() are those of the parts.
#' @rawNamespace S3method(utils::.DollarNames, elvi_fit)
.DollarNames.elvi_fit <- function(x, pattern = "") {
  fields <- c("mu", "sd", "Sigma", "scale", "last", "posterior", "hyper", unlist(fit_fields[names(x)], use.names = FALSE), names(x))
  grep(pattern, fields, value = TRUE)
}

# The model that the run sees: the user's own, or that in other coordinates. The plan has
# it without the user's, which is given.
run_model <- function(fit, account = new_account()) {
  work <- fit$plan$work
  if (is.null(work)) return(with_gaussian_fallback(fit$given$model, fit$plan$stand_in, account))
  work$inner <- with_gaussian_fallback(fit$given$model, work, account)
  work
}

# mu and scale of the returned approximation in the coordinates of the model
model_theta <- function(fit, theta = fit$result$theta) {
  to_user(run_model(fit), fit$given$control$scale, theta$mu, theta$scale)
}

# and in those of the user
reported_theta <- function(fit, theta = fit$result$theta) {
  model <- fit$given$model
  at <- uncentred_theta(model, fit$given$control$scale, model_theta(fit, theta))
  list(mu = stats::setNames(at$mu, model$names), scale = name_scale(at$scale, model$names))
}

# The posterior of a model's run or optimum: one component, or those of a stack.
run_posterior <- function(fit) {
  model <- fit$given$model
  found <- run_components(fit)
  logged <- if (is_dispersed(model)) model$dispersion_at else 0L
  shown <- model$names
  if (logged) shown[logged] <- dispersion_record(model)$natural
  new_posterior(fit$given$base, found$location, found$roots, found$weight, model$names, shown, model$intercept_shift, logged,
                setdiff(seq_len(model$dim), logged), points = polished_points(fit) %||% verdict_points(fit),
                key = derived_key(fit$plan$seed, "posterior"))
}

# mean and standard deviation of the approximation in user coordinates, and of hyperparameters
approximation_moments <- function(fit) {
  posterior <- uncorrected(fit$posterior)
  posterior$shown[seq_along(posterior$names)] <- posterior$names
  posterior$logged <- 0L
  posterior_moments(posterior)
}

# the symmetric root of its covariance
approximation_root <- function(fit) {
  posterior <- uncorrected(fit$posterior)
  run <- !is.null(fit$result$theta) && is.null(posterior$shift) && !is.null(sole_component(posterior))
  if (run) symmetric_scale(fit$given$control$scale, model_theta(fit)$scale, posterior$names) else posterior_root(posterior)
}

# ---- predictors are centred -----------------------------------------------------------

# A formula's model has centred predictors. Its `intercept_shift` is what the first coefficient lacks to be
# the intercept of the predictors themselves: sum(shift * x). A scale that this mixes is of another kind, if a diagonal.
uncentred_theta <- function(model, kind, theta) {
  shift <- model$intercept_shift
  if (is.null(shift)) return(theta)
  uncentre <- function(x) {
    x[1L, ] <- x[1L, ] + drop(shift %*% x)
    x
  }
  list(mu = drop(uncentre(matrix(theta$mu))), scale = scale_of(kind)$of_root(uncentre(root_matrix(theta$scale))))
}

# ---- data that are not in memory ------------------------------------------------------------

# the rows of a fit whose data are out of memory, else NULL
source_rows <- function(fit) fit$given$problem$source %||% if (is_chunked(fit$given$model$rows)) fit$given$model$rows

is_out_of_memory <- function(fit) !is.null(source_rows(fit))
