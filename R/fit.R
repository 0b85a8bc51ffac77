# A fit is a list of parts by lifetime:
#   given       the call, its arguments and, in `control`, what was left to elvi to decide; in `conduct` how the run is
#               stopped, watched and saved, which may change when it goes on
#   plan        what is made of them before the run: numbers of the schedule, smoothness, coordinates, start, seed
#   state       where the run is: iterate, average, counts, the stage of a run to a tolerance; all it needs to go on
#   result      what it has to show: theta, which one that is, how the run ended, trace and CPU seconds
#   regression  for a fit of a formula, what the formula gave
# A checkpoint saves plan, state and result. An exact fit has no state, and of a plan only the seed of its draws. Users see
# one flat object: `$` finds a field wherever it lives, and computes what follows from theta.

new_fit <- function(given, plan = NULL, state = NULL, result) {
  structure(list(given = given, plan = plan, state = state, result = result), class = "elvi_fit")
}

fit_fields <- list(
  given = c("call", "method", "model", "base", "schedule", "tol", "combine", "control", "conduct"),
  plan = c("smoothness", "smoothness_source", "feasible", "start", "seed", "rng_kind", "search"),
  state = "stage",
  result = c("trace", "cpu", "status", "kept", "theta", "lost", "remaining", "converged", "optimum", "verdict", "stack"),
  regression = c("formula", "terms", "xlevels", "contrasts", "offset_given", "family", "frame", "priors",
                 "na.action", "dropped"))

part_of_field <- local({
  parts <- rep(names(fit_fields), lengths(fit_fields))
  stats::setNames(parts, unlist(fit_fields))
})

# the settings as elvi_control() has them; the returned approximation and the last iterate, in the user's coordinates and names
fit_computed <- list(
  control = function(fit) join_control(fit$given$control, fit$given$conduct),
  mu = function(fit) reported_location(fit),
  scale = function(fit) reported_theta(fit)$scale,
  Sigma = function(fit) reported_root(fit),
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
    elvi_abort("`", name, "` of a fit is computed from what the run has returned: it cannot be set.",
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
  fields <- c("mu", "Sigma", "scale", "last", unlist(fit_fields[names(x)], use.names = FALSE), names(x))
  grep(pattern, fields, value = TRUE)
}

# The model that the run sees: the user's own, or that in other coordinates. The plan has
# it without the user's, which is given.
run_model <- function(fit, account = new_account()) {
  work <- fit$plan$work
  if (is.null(work)) return(standing_in(fit$given$model, fit$plan$stand_in, account))
  work$inner <- standing_in(fit$given$model, work, account)
  work
}

# mu and scale of the returned approximation in the coordinates of the model
model_theta <- function(fit, theta = fit$result$theta) {
  to_user(run_model(fit), fit$given$control$scale, theta$mu, theta$scale)
}

# and in those of the user
reported_theta <- function(fit, theta = NULL) {
  if (is.null(theta) && !is.null(fit$result$stack)) return(stacked_theta(fit))
  theta <- theta %||% fit$result$theta
  model <- fit$given$model
  at <- reported_law(model, fit$given$control$scale, model_theta(fit, theta))
  list(mu = stats::setNames(at$mu, model$names), scale = name_scale(at$scale, model$names))
}

reported_root <- function(fit) {
  model <- fit$given$model
  symmetric_scale(reported_kind(model, fit$given$control$scale), reported_theta(fit)$scale, model$names)
}

# The location alone, and a root of the covariance of no particular kind, need no
# decomposition.
reported_location <- function(fit) {
  if (!is.null(fit$result$stack)) return(stacked_theta(fit)$mu)
  mu <- drop(points_to_user(run_model(fit), fit$result$theta$mu))
  model <- fit$given$model
  stats::setNames(drop(reported_points(model, matrix(mu))), model$names)
}

reported_factor <- function(fit) {
  if (!is.null(fit$result$stack)) return(stacked_theta(fit)$scale)
  model <- fit$given$model
  root <- model_factor(fit)
  if (!is.null(model$reported)) root <- reported_points(model, root_matrix(root))
  name_scale(root, model$names)
}

# the same of the model's own parameters
model_factor <- function(fit) root_to_user(run_model(fit), fit$result$theta$scale)

# Of what is reported, and of X times the coefficients that are. A diagonal root stays one: what a formula's intercept
# takes up from the centred predictors goes into the rows that it is multiplied by.
approximation_sd <- function(fit) {
  model <- fit$given$model
  if (is.null(model$reported)) return(root_sd(reported_factor(fit)))
  root <- model_factor(fit)
  sd <- root_sd(root)
  sd[1L] <- sqrt(sum(root_crossprod(root, model$reported + (seq_along(sd) == 1L))^2))
  stats::setNames(sd, model$names)
}

linear_sd <- function(fit, X) {
  p <- seq_len(ncol(X))
  reported <- fit$given$model$reported
  if (is.null(reported)) return(predictor_sd(reported_factor(fit), X, p))
  predictor_sd(model_factor(fit), X + outer(X[, 1L], reported[p]), p)
}

# ---- what a model's parameters are to its user -----------------------------------------

# A formula's model has centred predictors. `model$reported` is what its first coefficient,
# the intercept, lacks to be that of the predictors themselves: sum(reported * x). Points are
# the columns of x.
reported_points <- function(model, x) {
  if (!is.null(model$reported)) x[1L, ] <- x[1L, ] + drop(model$reported %*% x)
  x
}

reported_kind <- function(model, kind) if (is.null(model$reported)) kind else scale_of(kind)$reported

# Or would a diagonal scale have to become a square matrix?
stays_its_kind <- function(fit) {
  kind <- fit$given$control$scale
  identical(reported_kind(fit$given$model, kind), kind)
}

# A law with location mu and the given scale, seen so; its scale is of the kind above.
reported_law <- function(model, kind, theta) {
  if (is.null(model$reported)) return(theta)
  list(mu = drop(reported_points(model, matrix(theta$mu))),
       scale = scale_of(kind)$of_root(reported_points(model, root_matrix(theta$scale))))
}
