#' Fits in the hands of other packages
#'
#' Methods for generics of other packages, registered when those are loaded; none of them is needed to use elvi.
#'
#' | package | what works |
#' |---|---|
#' | 'emmeans' | `emmeans()`, `emtrends()`, contrasts, with `type = "response"`; medians and HPD intervals of 4000 draws, or with `frequentist = TRUE` posterior means and standard deviations |
#' | 'marginaleffects' | `predictions()`, `comparisons()`, `slopes()` and their averages, from draws of expected responses |
#' | 'insight', 'parameters', 'bayestestR', 'performance' | a fit is a Bayesian model whose `get_parameters()` are draws; `model_parameters()`, `describe_posterior()`, `hdi()` and its kin, `model_performance()`, `r2_bayes()`, `check_predictions()` |
#' | 'modelsummary', 'broom.mixed' | through `tidy()`, `glance()` and the above |
#' | 'posterior', 'bayesplot', 'tidybayes', 'ggdist' | draws: `as_draws()`, `tidy_draws()`, `add_epred_draws()` ... |
#' | 'loo' | `loo()`, `waic()`, `kfold()`, and comparisons of them |
#' | 'knitr' | `kable(summary(fit))` |
#'
#' There is no `logLik()`, hence no `AIC()`: an [elbo()] is not one. `insight::find_algorithm()` says `"variational"`, and
#' what asks there for chains of a sampler says that there are none.
#'
#' @seealso [predictive] and [predict.elvi_glm()] for the generics of 'rstantools'.
#' @name other_packages
NULL

# ---- emmeans ------------------------------------------------------------------------------

#' @exportS3Method emmeans::recover_data
recover_data.elvi_glm <- function(object, data = NULL, ...) {
  call <- object$call
  names(call)[names(call) == "object"] <- "formula"
  emmeans::recover_data(call, grid_terms(object), object$na.action, data = data, frame = object$frame, ...)
}

# Terms of the predictors that a grid is laid over: not those of groups, which are averaged over.
grid_terms <- function(object) {
  fixed <- stats::delete.response(object$terms)
  smooth <- unlist(lapply(object$smooths, function(smooth) c(smooth$variables, smooth$by)))
  if (!length(smooth)) return(fixed)
  stats::terms(stats::reformulate(union(attr(fixed, "term.labels"), smooth), env = environment(object$formula)))
}

#' @exportS3Method emmeans::emm_basis
emm_basis.elvi_glm <- function(object, trms, xlev, grid, ...) {
  frame <- stats::model.frame(trms, grid, na.action = stats::na.pass, xlev = xlev)
  X <- stats::model.matrix(trms, frame, contrasts.arg = object$contrasts)
  draws <- fit_draws(object, 4000)[, seq_len(ncol(X)), drop = FALSE]
  grid_basis(object, X, draws, coef.elvi_fit(object), vcov.elvi_fit(object))
}

#' @exportS3Method emmeans::emm_basis
emm_basis.elvi_nested <- function(object, trms, xlev, grid, ...) {
  rows <- nested_rows(object, grid, re.form = NA)
  smooth <- as.integer(unlist(lapply(object$groups[!has_levels(object$groups)], `[[`, "columns")))
  X <- cbind(rows$X, as.matrix(rows$Z[, smooth, drop = FALSE]))
  keep <- c(seq_len(ncol(rows$X)), ncol(rows$X) + smooth)
  draws <- nested_draws(object, 4000)$x[, keep, drop = FALSE]
  covariance <- if (length(smooth)) stats::cov(draws) else vcov.elvi_nested(object)
  grid_basis(object, X, draws, object$mu[keep], covariance)
}

grid_basis <- function(object, X, draws, estimate, covariance) {
  list(X = X, bhat = unname(estimate), nbasis = matrix(NA), V = unname(covariance), dffun = function(k, dfargs) Inf,
       dfargs = list(), misc = emmeans::.std.link.labels(object$family, list()), post.beta = draws)
}

# ---- marginaleffects ------------------------------------------------------------------------

#' @exportS3Method marginaleffects::get_coef
get_coef.elvi_glm <- function(model, ...) stats::coef(model)

#' @exportS3Method marginaleffects::get_coef
get_coef.elvi_nested <- function(model, ...) fixef.elvi_nested(model)

# draws say how uncertain results are
#' @exportS3Method marginaleffects::get_vcov
get_vcov.elvi_glm <- function(model, ...) NULL

#' @exportS3Method marginaleffects::get_predict
get_predict.elvi_glm <- function(model, newdata = NULL, type = "response", ...) {
  type <- check_choice(type %||% "response", "type", c("response", "link", "prediction"))
  draw <- switch(type, response = posterior_epred, link = posterior_linpred, prediction = posterior_predict)
  meant <- list(...)
  meant <- meant[names(meant) %in% c(names(formals(posterior_predict.elvi_nested)), "re_formula")]
  draws <- do.call(draw, c(list(model, newdata = as.data.frame(newdata)), meant))
  out <- data.frame(rowid = newdata[["rowid"]] %||% seq_len(ncol(draws)), estimate = apply(draws, 2L, stats::median))
  structure(out, posterior_draws = t(unname(draws)))
}

# marginaleffects takes only classes that it knows or that an option names
admit_to_marginaleffects <- function() {
  options(marginaleffects_model_classes = union(getOption("marginaleffects_model_classes"), c("elvi_glm", "elvi_nested")))
}

# ---- insight and those that build on it ------------------------------------------------------

#' @exportS3Method insight::model_info
model_info.elvi_glm <- function(x, ...) {
  info <- insight::model_info(family_stand_in(x), ...)
  info$is_bayesian <- TRUE
  info$is_mixed <- length(group_terms_of(x)) > 0L
  info$n_grouplevels <- if (info$is_mixed) as.list(ngrps.elvi_nested(x))
  info
}

# what the default method asks a model for
family_stand_in <- function(x) {
  structure(list(family = x$family, formula = x$formula, call = x$call, terms = x$terms, model = x$frame,
                 y = observed_response(x)), class = c("glm", "lm"))
}

#' @exportS3Method insight::find_algorithm
find_algorithm.elvi_fit <- function(x, ...) list(algorithm = "variational", optimizer = x$method)

#' @exportS3Method insight::find_parameters
find_parameters.elvi_fit <- function(x, effects = "all", component = "all", flatten = FALSE, parameters = NULL, ...) {
  names <- lapply(parameter_groups(x), function(names) {
    if (is.null(parameters)) names else grep(paste(parameters, collapse = "|"), names, value = TRUE, perl = TRUE)
  })
  random <- c("random", "smooth_terms")
  names <- switch(effects[1L], fixed = names[setdiff(names(names), random)], random = names[names(names) == "random"], names)
  component <- if (component[1L] %in% names(names)) component[1L] else "all"
  if (component != "all") names <- names[component]
  names <- Filter(length, names)
  if (flatten) unlist(names, use.names = FALSE) else names
}

# names of the columns of draws, by what they are; effects of levels are not among them
parameter_groups <- function(x) UseMethod("parameter_groups")

#' @export
parameter_groups.elvi_fit <- function(x) {
  all <- natural_names(x)
  extra <- setdiff(all, names(stats::coef(x)))
  list(conditional = setdiff(all, extra), sigma = intersect(extra, "sigma"), auxiliary = setdiff(extra, "sigma"))
}

#' @export
parameter_groups.elvi_nested <- function(x) {
  all <- colnames(as.matrix(x, draws = 1))
  list(conditional = names(fixef.elvi_nested(x)), random = grep("^Sigma\\[", all, value = TRUE),
       smooth_terms = grep("^smooth_sd\\[", all, value = TRUE), sigma = intersect("sigma", all),
       auxiliary = intersect(c("phi", "shape"), all))
}

#' @exportS3Method insight::get_parameters
get_parameters.elvi_fit <- function(x, effects = "all", component = "all", parameters = NULL, ...) {
  names <- find_parameters.elvi_fit(x, effects, component, flatten = TRUE, parameters = parameters)
  as.data.frame(as.matrix(x, draws = 4000))[names]
}

#' @exportS3Method insight::clean_parameters
clean_parameters.elvi_fit <- function(x, ...) {
  groups <- Filter(length, parameter_groups(x))
  parameter <- unlist(groups, use.names = FALSE)
  kind <- rep(names(groups), lengths(groups))
  structure(data.frame(Parameter = parameter, Effects = ifelse(kind == "random", "random", "fixed"),
                       Component = ifelse(kind == "random", "conditional", kind), Group = "",
                       Cleaned_Parameter = parameter), class = c("clean_parameters", "data.frame"))
}

#' @exportS3Method insight::get_priors
get_priors.elvi_glm <- function(x, ...) {
  joint <- stats::setNames(prior_table(x$priors$joint), c("Distribution", "df", "Location", "Scale"))
  data.frame(Parameter = colnames(stats::model.matrix(x))[seq_len(nrow(joint))], joint)
}

#' @exportS3Method insight::get_df
get_df.elvi_glm <- function(x, type = "residual", ...) {
  switch(tolower(type)[1L], residual = stats::df.residual(x), model = ncol(stats::model.matrix(x)), Inf)
}

#' @exportS3Method insight::find_statistic
find_statistic.elvi_fit <- function(x, ...) NULL

# A method of bayestestR for draws.
on_draws <- function(generic) {
  force(generic)
  function(x, effects = "all", component = "all", parameters = NULL, ...) {
    draws <- get_parameters.elvi_fit(x, effects, component, parameters)
    getExportedValue("bayestestR", generic)(draws, ...)
  }
}

#' @exportS3Method bayestestR::hdi
hdi.elvi_fit <- on_draws("hdi")

#' @exportS3Method bayestestR::eti
eti.elvi_fit <- on_draws("eti")

#' @exportS3Method bayestestR::ci
ci.elvi_fit <- on_draws("ci")

#' @exportS3Method bayestestR::p_direction
p_direction.elvi_fit <- on_draws("p_direction")

#' @exportS3Method bayestestR::point_estimate
point_estimate.elvi_fit <- on_draws("point_estimate")

#' @exportS3Method bayestestR::map_estimate
map_estimate.elvi_fit <- on_draws("map_estimate")

#' @exportS3Method bayestestR::p_map
p_map.elvi_fit <- on_draws("p_map")

#' @exportS3Method bayestestR::estimate_density
estimate_density.elvi_fit <- on_draws("estimate_density")

# A method of bayestestR for draws and a region of practical equivalence, whose default is that of the model.
on_draws_with_rope <- function(generic, argument, default) {
  force(generic)
  force(argument)
  force(default)
  function(x, effects = "all", component = "all", parameters = NULL, ...) {
    arguments <- list(...)
    if (is.null(arguments[[argument]]) || identical(arguments[[argument]], "default")) {
      arguments[[argument]] <- default(bayestestR::rope_range(x))
    }
    draws <- get_parameters.elvi_fit(x, effects, component, parameters)
    do.call(getExportedValue("bayestestR", generic), c(list(draws), arguments))
  }
}

#' @exportS3Method bayestestR::rope
rope.elvi_fit <- on_draws_with_rope("rope", "range", identity)

#' @exportS3Method bayestestR::equivalence_test
equivalence_test.elvi_fit <- on_draws_with_rope("equivalence_test", "range", identity)

#' @exportS3Method bayestestR::p_significance
p_significance.elvi_fit <- on_draws_with_rope("p_significance", "threshold", max)

#' @exportS3Method bayestestR::describe_posterior
describe_posterior.elvi_fit <- local({
  describe <- on_draws_with_rope("describe_posterior", "rope_range", identity)
  function(posterior, ...) describe(posterior, ...)
})

# draws are independent
#' @exportS3Method bayestestR::effective_sample
effective_sample.elvi_fit <- function(model, effects = "all", component = "all", parameters = NULL, ...) {
  draws <- get_parameters.elvi_fit(model, effects, component, parameters)
  data.frame(Parameter = names(draws), ESS = nrow(draws))
}

#' @exportS3Method bayestestR::describe_prior
describe_prior.elvi_glm <- function(model, ...) {
  priors <- get_priors.elvi_glm(model)
  names(priors) <- c("Parameter", "Prior_Distribution", "Prior_df", "Prior_Location", "Prior_Scale")
  priors
}

#' @exportS3Method parameters::model_parameters
model_parameters.elvi_fit <- function(model, effects = "all", component = "all", ...) {
  need_package("posterior", "model_parameters()")
  draws <- as.matrix(get_parameters.elvi_fit(model, effects, component))
  meant <- list(...)
  meant <- meant[names(meant) %in% c("centrality", "dispersion", "ci", "ci_method", "test", "rope_range", "rope_ci", "exponentiate",
                                     "keep", "drop", "verbose")]   # not what is about chains or standard errors
  do.call(parameters::model_parameters, c(list(posterior::as_draws(draws)), meant))
}

#' @exportS3Method parameters::standard_error
standard_error.elvi_fit <- function(model, ...) {
  draws <- get_parameters.elvi_fit(model)
  data.frame(Parameter = names(draws), SE = vapply(draws, stats::sd, 0), row.names = NULL)
}

# two-sided, from the probability of direction
#' @exportS3Method parameters::p_value
p_value.elvi_fit <- function(model, ...) {
  positive <- colMeans(get_parameters.elvi_fit(model) > 0)
  data.frame(Parameter = names(positive), p = unname(2 * pmin(positive, 1 - positive)))
}

#' @exportS3Method performance::r2_posterior
r2_posterior.elvi_glm <- function(model, ...) {
  R2 <- bayes_R2.elvi_glm(model, draws = 4000)
  list(R2_Bayes = stats::setNames(R2, rep("R2", length(R2))))
}

#' @exportS3Method performance::model_performance
model_performance.elvi_glm <- function(model, ...) {
  need_package("loo", "model_performance()")
  crossed <- suppressWarnings(loo::loo(model))$estimates
  out <- data.frame(ELPD = crossed["elpd_loo", 1L], ELPD_SE = crossed["elpd_loo", 2L], LOOIC = crossed["looic", 1L],
                    LOOIC_SE = crossed["looic", 2L],
                    WAIC = suppressWarnings(loo::waic(model))$estimates["waic", 1L],
                    R2 = stats::median(bayes_R2.elvi_glm(model)),
                    RMSE = sqrt(mean(stats::residuals(without_gaps(model))^2)), Sigma = stats::sigma(model))
  structure(out, class = c("performance_model", "data.frame"))
}

# The default method takes classes only that 'insight' has on its list.
#' @exportS3Method performance::check_predictions
check_predictions.elvi_glm <- function(model, iterations = 50, check_range = FALSE, re_formula = NULL, bandwidth = "nrd",
                                       type = "density", ...) {
  y <- observed_response(model)
  simulated <- posterior_predict(model, draws = iterations, re_formula = re_formula)
  simulated <- if (record_of(model$family)$trials) t(simulated) / pmax(response_trials(model), 1) else t(simulated)
  colnames(simulated) <- paste0("sim_", seq_len(ncol(simulated)))
  structure(data.frame(simulated, y = y, row.names = NULL), check_range = check_range,
            response_name = deparse_one(model$formula[[2L]]), bandwidth = bandwidth, type = type,
            model_info = model_info.elvi_glm(model),
            class = c("performance_pp_check", "see_performance_pp_check", "data.frame"))
}

# ---- knitr ----------------------------------------------------------------------------------

#' @export
coef.summary.elvi_fit <- function(object, ...) {
  object$table[names(stats::coef(object$fit)), , drop = FALSE]
}

#' @export
coef.summary.elvi_nested <- function(object, ...) object$table[names(fixef.elvi_nested(object$fit)), , drop = FALSE]

# kable(summary(fit)) makes a data frame of what it is given
#' @export
as.data.frame.summary.elvi_fit <- function(x, row.names = NULL, optional = FALSE, ...) {
  as.data.frame(x$table, row.names = row.names, optional = optional)
}

#' @export
as.data.frame.summary.elvi_nested <- as.data.frame.summary.elvi_fit
