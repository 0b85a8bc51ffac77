#' Packages that work with a fit
#'
#' Fits by [elvi()] work with many packages for post-estimation and display. The methods are registered when such a package is loaded;
#' none of them is needed to use elvi.
#'
#' | package | what works |
#' |---|---|
#' | 'emmeans' | `emmeans()`, `emtrends()`, contrasts, with `type = "response"`; medians and HPD intervals of 4000 draws, or with `frequentist = TRUE` posterior means and standard deviations |
#' | 'marginaleffects' | `predictions()`, `comparisons()`, `slopes()` and their averages, from draws of expected responses |
#' | 'insight', 'parameters', 'bayestestR', 'performance' | a fit is a Bayesian model whose `get_parameters()` are draws; `model_parameters()`, `describe_posterior()`, `hdi()`, `eti()` and `p_direction()`, `model_performance()`, `r2()`, `r2_bayes()`, `check_predictions()`; with groups `icc()`, `r2_nakagawa()` and `get_variance()` |
#' | 'modelsummary', 'broom.mixed' | tables, by `tidy()` and `glance()` |
#' | 'posterior', 'bayesplot', 'tidybayes', 'ggdist' | draws: `as_draws()`, `tidy_draws()`, `add_epred_draws()` ... |
#' | 'loo' | `loo()`, `waic()`, `kfold()`, and comparisons of them |
#' | 'ggeffects', 'effects', 'multcomp' | `ggpredict()`; `Effect()` and `allEffects()` for families of `glm()` without smooths; `glht()` |
#' | 'sjPlot' | `tab_model()`, `plot_model()` |
#' | 'bridgesampling' | `bridge_sampler()` returns the [evidence()] |
#' | 'knitr' | `kable(summary(fit))` |
#'
#' There is no `logLik()` and no `AIC()`: an [elbo()] is not a maximised likelihood. `insight::find_algorithm()` returns
#' `"variational"`. Functions about the chains of a sampler report that there are none. `performance::check_model()` checks the
#' same formula fitted by `lm()`, `glm()` or 'lme4', as it does for fits of 'rstanarm'. `compare_parameters()` and
#' `compare_performance()` accept only a fixed list of classes: call `model_parameters()` and `model_performance()` on each fit
#' instead.
#'
#' @seealso [predictive] and [predict.elvi_glm()] for the generics of 'rstantools'.
#' @name other_packages
NULL

# ---- emmeans ------------------------------------------------------------------------------

#' @exportS3Method emmeans::recover_data
recover_data.elvi_glm <- function(object, data = NULL, component = "cond", ...) {
  if (has_component(object, component)) object <- as_component(object)
  if (is.null(data) && !is.null(object$pieces)) data <- new_pieces(object, object$pieces$data)$data   # with `interval`
  call <- as.list(object$call)
  # emmeans reads the formula from the first argument
  call <- as.call(c(call[1L], list(formula = grid_formula(object)), call[-1L][names(call)[-1L] != "object"]))
  emmeans::recover_data(call, grid_terms(object), object$na.action, data = data, frame = object$frame, ...)
}

# The formula of a fit for emmeans, which takes a function on its left-hand side for a transformation and undoes it beside
# the link. Neither Surv() nor what says which responses are successes is one.
grid_formula <- function(object) {
  formula <- object$formula
  response <- formula[[2L]]
  if (family_record(object$family)$trials || (has_classes(object) && is.call(response))) {
    formula[[2L]] <- quote(response)
  } else if (call_name(response) == "Surv") {
    formula[[2L]] <- as.list(response)[["time"]] %||% response[[2L]]
  }
  formula
}

# Terms of the predictors that a grid is laid over: not those of groups, which are averaged over.
grid_terms <- function(object) {
  fixed <- stats::delete.response(object$terms)
  smooth <- unlist(lapply(object$smooths, function(smooth) c(smooth$variables, smooth$by)))
  if (!length(smooth)) return(fixed)
  offsets <- vapply(as.list(attr(fixed, "variables"))[1L + attr(fixed, "offset")], deparse_one, "")
  stats::terms(stats::reformulate(c(union(attr(fixed, "term.labels"), smooth), offsets), env = environment(object$formula)))
}

# Effects of groups are averaged over, smooths are part of the grid.
#' @exportS3Method emmeans::emm_basis
emm_basis.elvi_glm <- function(object, trms, xlev, grid, component = "cond", mode = NULL, ...) {
  if (has_classes(object) && class_mode(object, mode) == "prob") return(class_basis(object, grid, posterior_epred))
  if (has_shared(object)) return(class_basis(object, grid, posterior_linpred))
  posterior <- object$posterior
  second <- has_component(object, component)
  smooth <- as.integer(unlist(lapply(object$groups[!has_levels(object$groups)], function(term) effect_positions(object, term))))
  keep <- c(posterior$coefficients, smooth)
  # emmeans adds its own offset, which may be a mean
  rows <- prediction_rows(object, part_grid(object, grid), re.form = NA, offset = numeric(nrow(grid)))
  X <- as.matrix(design_columns(if (second) rows$second else rows)[, keep, drop = FALSE])
  draws <- posterior_draws(posterior, 4000)$x[, keep, drop = FALSE]
  mean <- mix_moments(component_moments(posterior), posterior$weight)$mean[keep]
  grid_basis(object, X, draws, mean, posterior_covariance(posterior, keep), if (second) second_labels(object) else grid_labels(object))
}

# what is averaged of a response in classes, as 'emmeans' calls it: probabilities, or predictors
class_mode <- function(object, mode) check_choice(mode %||% if (has_shared(object)) "prob" else "latent", "mode", c("prob", "latent"))

# Every row of the grid with every class is a parameter of its own, known by draws. Classes come last, as 'emmeans' has them.
class_basis <- function(object, grid, quantity) {
  draws <- quantity(object, grid, draws = 4000, re.form = NA, offset = numeric(nrow(grid)))
  classes <- dimnames(draws)[[3L]]
  draws <- matrix(draws, nrow(draws))
  response <- object$formula[[2L]]
  heading <- if (length(classes) == length(class_names(object$family))) "prob" else "predictor"
  labels <- list(postGridHook = function(object, ...) name_estimates(object, heading),
                 ylevs = stats::setNames(list(classes), if (is.name(response)) as.character(response) else "y.level"))
  grid_basis(object, diag(ncol(draws)), draws, colMeans(draws), stats::cov(draws), labels)
}

# the heading of the estimates, which ref_grid() sets itself
name_estimates <- function(grid, heading) {
  grid@misc$estName <- heading
  grid
}

# Does `component`, as 'glmmTMB' calls it, ask for the second part?
has_component <- function(object, component) {
  check_choice(component, "component", c("cond", object$second$component)) != "cond"
}

# the second part in place of the first, for the grid
as_component <- function(object) {
  object$regression[c("terms", "smooths")] <- object$second[c("terms", "smooths")]
  object$regression$formula <- stats::formula(object$second$terms)
  object
}

# Variables of the other part do not matter: any value of the data will do.
part_grid <- function(object, grid) {
  if (is.null(object$second)) return(grid)
  for (name in setdiff(names(object$frame), names(grid))) if (is.null(dim(object$frame[[name]]))) grid[[name]] <- object$frame[[name]][1L]
  for (name in setdiff(all.vars(object$second$formula), names(grid))) grid[[name]] <- 1
  grid
}

second_labels <- function(object) {
  second <- family_record(object$family)$second
  list(tran = second$link, inv.lbl = if (second$link == "logit") "prob" else second$parameter)
}

grid_basis <- function(object, X, draws, estimate, covariance, labels = grid_labels(object)) {
  list(X = X, bhat = unname(estimate), nbasis = matrix(NA), V = unname(covariance), dffun = function(k, dfargs) Inf,
       dfargs = list(), misc = labels, post.beta = draws)
}

# emmeans knows families by their names, and takes the negative binomial one for binomial
grid_labels <- function(object) {
  misc <- emmeans::.std.link.labels(object$family, list())
  if (identical(misc$inv.lbl, "prob") && !family_record(object$family)$trials) misc$inv.lbl <- "response"
  misc
}

# ---- effects and multcomp -------------------------------------------------------------------

# 'effects' evaluates glm() with the formula, and puts these coefficients into it.
#' @exportS3Method effects::effSources
effSources.elvi_glm <- function(mod) {
  if (!mod$family$family %in% c("gaussian", "binomial", "poisson", "Gamma", "inverse.gaussian") || length(mod$smooths)) {
    refuse_argument("mod", "Effect() needs a family of glm() and no smooth terms. Use plot(fit, \"effects\"), emmeans or ggeffects.")
  }
  fixed <- names(fixef.elvi_fit(mod))
  list(formula = find_formula.elvi_glm(mod)$conditional, coefficients = fixef.elvi_fit(mod), vcov = stats::vcov(mod)[fixed, fixed])
}

#' @exportS3Method multcomp::modelparm
modelparm.elvi_glm <- function(model, coef. = NULL, vcov. = NULL, df = NULL, ...) {
  fixed <- names(fixef.elvi_fit(model))
  structure(list(coef = fixef.elvi_fit(model), vcov = stats::vcov(model)[fixed, fixed, drop = FALSE], df = df %||% 0,
                 estimable = rep(TRUE, length(fixed))), class = "modelparm")
}

# ---- marginaleffects ------------------------------------------------------------------------

#' @exportS3Method marginaleffects::get_coef
get_coef.elvi_glm <- function(model, ...) fixef.elvi_fit(model)

# draws say how uncertain results are
#' @exportS3Method marginaleffects::get_vcov
get_vcov.elvi_glm <- function(model, ...) NULL

#' @exportS3Method marginaleffects::get_predict
get_predict.elvi_glm <- function(model, newdata = NULL, type = "response", ...) {
  type <- check_choice(type %||% "response", "type", c("response", "link", "prediction"))
  draw <- switch(type, response = posterior_epred, link = posterior_linpred, prediction = posterior_predict)
  meant <- list(...)
  meant <- meant[names(meant) %in% c(names(formals(posterior_predict.elvi_glm)), "re_formula")]
  draws <- do.call(draw, c(list(model, newdata = as.data.frame(newdata)), meant))
  if (length(dim(draws)) == 3L) return(predictions_by_class(draws, newdata[["rowid"]] %||% seq_len(ncol(draws))))
  out <- data.frame(rowid = newdata[["rowid"]] %||% seq_len(ncol(draws)), estimate = apply(draws, 2L, stats::median))
  structure(out, posterior_draws = t(unname(draws)))
}

# draws x rows x classes: all rows of the first class come first
predictions_by_class <- function(draws, rowid) {
  classes <- dimnames(draws)[[3L]]
  flat <- matrix(draws, nrow(draws))
  out <- data.frame(rowid = rep(rowid, length(classes)), group = rep(classes, each = dim(draws)[2L]),
                    estimate = apply(flat, 2L, stats::median))
  structure(out, posterior_draws = t(flat))
}

# marginaleffects takes only classes that it knows or that an option names
admit_to_marginaleffects <- function() {
  options(marginaleffects_model_classes = union(getOption("marginaleffects_model_classes"), "elvi_glm"))
}

# ---- insight and those that build on it ------------------------------------------------------

#' @exportS3Method insight::model_info
model_info.elvi_glm <- function(x, ...) {
  info <- insight::model_info(family_stand_in(x), ...)
  info$is_bayesian <- TRUE
  info$is_mixed <- length(group_terms_of(x)) > 0L
  info$n_grouplevels <- if (info$is_mixed) as.list(ngrps.elvi_glm(x))
  info
}

# fields that the default method needs
family_stand_in <- function(x) {
  structure(list(family = x$family, formula = x$formula, call = x$call, terms = x$terms, model = x$frame,
                 y = observed_response(x)), class = c("glm", "lm"))
}

# with group-level terms apart, as 'insight' has them for mixed models
#' @exportS3Method insight::find_formula
find_formula.elvi_glm <- function(x, verbose = TRUE, ...) {
  terms <- group_terms_of(x)[in_line(group_terms_of(x), 1L)]
  if (!length(terms)) return(structure(list(conditional = x$formula), class = c("insight_formula", "list")))
  env <- environment(x$formula)
  bars <- lapply(terms, function(term) {
    factors <- lapply(term$group, as.name)
    bar <- call("|", term$slopes[[2L]], Reduce(function(a, b) call(":", a, b), factors))
    stats::as.formula(call("~", bar), env)
  })
  shared <- stats::formula(x$terms)
  for (smooth in structured_formula(x$formula)$smooths) shared[[3L]] <- call("+", shared[[3L]], smooth)
  structure(list(conditional = stats::as.formula(as.call(as.list(shared)), env), random = if (length(bars) == 1L) bars[[1L]] else bars),
            class = c("insight_formula", "list"))
}

# The variances of Nakagawa, Johnson and Schielzeth (2017), at posterior means, which icc() and r2_nakagawa() of 'performance' are
# made of. `approximation` is about families with a log link, as in newer versions of 'insight'.
#' @exportS3Method insight::get_variance
get_variance.elvi_glm <- function(x, component = "all", verbose = TRUE, approximation = "lognormal", ...) {
  first <- in_line(group_terms_of(x), 1L)
  terms <- group_terms_of(x)[first]
  if (!length(terms)) {
    if (isTRUE(verbose)) insight::format_warning("The model has no group-level terms.")
    return(NULL)
  }
  distribution <- distribution_variance(x, approximation)
  if (is.na(distribution)) {
    if (isTRUE(verbose)) {
      insight::format_warning("Responses in classes without a latent variable, and those with a cauchit link, have no residual variance.")
    }
    return(NULL)
  }
  V <- unclass(VarCorr.elvi_glm(x))[first]
  shares <- vapply(seq_along(terms), function(i) mean_term_variance(x, terms[[i]], V[[i]]), 0)
  # a level for each row spreads responses as a dispersion does, unless these have a variance of their own
  by_row <- vapply(terms, function(term) length(term$levels) == nrow(x$frame), NA) & !link_of(x$family)$straight
  dispersion <- sum(shares[by_row])
  labels <- names(V)
  intercept <- vapply(V, function(v) rownames(v)[1L] == "(Intercept)", NA)
  slopes <- lapply(V, function(v) diag(v)[rownames(v) != "(Intercept)"])
  correlations <- lapply(V[intercept], function(v) if (attr(v, "correlated")) attr(v, "correlation")[-1L, 1L])
  out <- list(var.fixed = stats::var(shared_predictor(x)), var.random = sum(shares[!by_row]),
              var.residual = distribution + dispersion, var.distribution = distribution, var.dispersion = dispersion,
              var.intercept = stats::setNames(vapply(V[intercept], function(v) v[1L, 1L], 0), labels[intercept]),
              var.slope = unlist(slopes), cor.slope_intercept = unlist(correlations))
  component <- component[1L]
  kept <- switch(component, all = names(out), intercept = "var.intercept", slope = "var.slope", rho01 = "cor.slope_intercept",
                 paste0("var.", component))
  Filter(length, out[names(out) %in% kept])
}

# the variance that a term gives a row, averaged over the rows (Johnson 2014)
mean_term_variance <- function(x, term, V) {
  M <- slope_matrix(term$slopes, x$frame, term$contrasts)
  mean(rowSums((M %*% V) * M))
}

# the linear predictor without groups and without offset
shared_predictor <- function(x) {
  unname(stats::predict(without_gaps(x), type = "link", re.form = NA)) - (stats::model.offset(x$frame) %||% 0)
}

# The variance of a response given its mean, on the scale of the linear predictor: that of the latent variable where a threshold
# decides, else by the delta method or by what `approximation` says of logarithms. NA where there is none.
distribution_variance <- function(x, approximation) {
  family <- x$family
  record <- family_record(family)
  if (!is.null(record$classes)) return(if (has_latent_variable(family)) latent_variance(family$link) else NA_real_)
  if (record$trials) return(latent_variance(family$link) + overdispersion(x))
  at <- typical_response(x)
  if (link_of(family)$straight) return(at$variance)
  if (!link_of(family)$exponential) return(at$variance / family$mu.eta(family$linkfun(at$mean))^2)
  squared_cv <- at$variance / at$mean^2
  switch(approximation[1L], delta = squared_cv, trigamma = trigamma(1 / squared_cv), log1p(squared_cv))
}

latent_variance <- function(link) switch(link, logit = pi^2 / 3, probit = 1, cloglog = pi^2 / 6, NA_real_)

# by how much the probabilities of counts of successes vary on the logit scale where they have a phi, by the delta method
overdispersion <- function(x) {
  if (!length(family_parameter_names(x))) return(0)
  mu <- mean(observed_response(x))
  1 / ((1 + mean_dispersion(x)) * mu * (1 - mu))
}

# mean and variance of a response in the middle of the data
typical_response <- function(x) {
  record <- family_record(x$family)
  dispersion <- mean_dispersion(x)
  # censored times are no responses, and rates of truncated counts no means
  at_data <- function(type) unname(stats::predict(without_gaps(x), type = type))
  if (is.null(x$second)) {
    mu <- if (is.null(record$mean) && is.null(dim(x$frame[[1L]]))) mean(observed_response(x)) else mean(at_data("conditional"))
    return(list(mean = if (is.null(record$mean)) mu else record$mean(mu, dispersion), variance = mean_variance(x, mu, dispersion)))
  }
  second <- at_data(if (x$second$component == "disp") "disp" else "zprob")
  mu <- rep(mean(at_data("conditional")), length(second))
  dispersion <- list(second = second, hyper = dispersion)
  list(mean = mean(record$second$mean(mu, dispersion)), variance = mean(mean_variance(x, mu, dispersion)))
}

# Records have the variance up to glm()'s dispersion: it does not depend on their own dispersion then.
mean_variance <- function(x, mu, dispersion) {
  record <- family_record(x$family)
  of <- function(dispersion) record$variance(mu, dispersion, x$family)
  doubled <- if (is.list(dispersion)) lapply(dispersion, `*`, 2) else 2 * dispersion
  name <- c(record$second$parameter, record$dispersion$natural, family_parameter_names(x))
  if (!length(name) || !identical(of(doubled), of(dispersion))) return(of(dispersion))
  own <- if (is.list(dispersion)) dispersion$second else dispersion[1L]
  if (name[1L] != "sigma") return(of(dispersion) / own)
  df <- c(x$family$df, dispersion[-1L], Inf)[[1L]]   # of student errors
  of(dispersion) * own^2 * if (df > 2 && df < Inf) df / (df - 2) else if (df > 2) 1 else Inf
}

# The default method does not know a fit for a model, and drops it.
#' @exportS3Method insight::get_predicted
get_predicted.elvi_glm <- function(x, data = NULL, predict = "expectation", ci = NULL, include_random = TRUE, verbose = TRUE, ...) {
  predict <- check_choice(predict, "predict", c("expectation", "link", "prediction", "response"))
  type <- if (predict == "link") "link" else "response"
  level <- if (is.null(ci)) 0.95 else ci
  groups <- if (identical(include_random, TRUE) || identical(include_random, "default")) NULL else
    if (inherits(include_random, "formula")) include_random else NA
  at <- stats::predict(x, newdata = data, type = type, se.fit = TRUE, level = level, re.form = groups,
                       interval = if (predict == "prediction") "prediction" else "credible")
  fit <- at$fit
  limits <- data.frame(SE = unname(at$se.fit), CI_low = unname(fit[, "lwr"]), CI_high = unname(fit[, "upr"]))
  structure(unname(fit[, "fit"]), class = c("get_predicted", "numeric"), data = data %||% x$frame, predict = predict, ci = ci,
            ci_data = if (!is.null(ci)) limits)
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
parameter_groups <- function(x) {
  all <- colnames(as.matrix(x, draws = 1))
  known <- list(conditional = names(fixed_means(x$posterior)), random = grep("^Sigma\\[", all, value = TRUE),
                smooth_terms = grep("^smooth_sd\\[", all, value = TRUE), sigma = intersect("sigma", all))
  known$conditional <- intersect(known$conditional, all)
  known$auxiliary <- intersect(c("phi", "shape", "lambda"), all)
  known
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
  meant <- list(...)
  draws <- as.matrix(get_parameters.elvi_fit(model, effects, component))
  if (identical(tolower(meant$ci_method), "wald")) return(wald_table(draws, meant$ci %||% 0.95))
  need_package("posterior", "model_parameters()")
  meant <- meant[names(meant) %in% c("centrality", "dispersion", "ci", "ci_method", "test", "rope_range", "rope_ci", "exponentiate",
                                     "keep", "drop", "verbose")]   # not what is about chains or standard errors
  do.call(parameters::model_parameters, c(list(posterior::as_draws(draws)), meant))
}

# 'sjPlot' asks every model for the columns of a Wald test. Limits are those of the draws, p is two-sided from the probability of direction.
wald_table <- function(draws, ci) {
  limits <- apply(draws, 2L, stats::quantile, c((1 - ci) / 2, (1 + ci) / 2), names = FALSE)
  positive <- colMeans(draws > 0)
  mean <- colMeans(draws)
  sd <- apply(draws, 2L, stats::sd)
  out <- data.frame(Parameter = colnames(draws), Coefficient = mean, SE = sd, CI = ci, CI_low = limits[1L, ], CI_high = limits[2L, ],
                    z = mean / sd, df_error = Inf, p = 2 * pmin(positive, 1 - positive), row.names = NULL)
  structure(out, pretty_names = stats::setNames(colnames(draws), colnames(draws)), ci = ci, class = c("parameters_model", "data.frame"))
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

#' @exportS3Method performance::r2
r2.elvi_glm <- function(model, ...) performance::r2_bayes(model, ...)

# with groups, and without them if there are any
#' @exportS3Method performance::r2_posterior
r2_posterior.elvi_glm <- function(model, ...) {
  named <- function(R2, label) stats::setNames(R2, rep(label, length(R2)))
  R2 <- bayes_R2.elvi_glm(model, draws = 4000)
  if (!length(group_terms_of(model))) return(list(R2_Bayes = named(R2, "R2")))
  list(R2_Bayes = named(R2, "Conditional R2"),
       R2_Bayes_marginal = named(bayes_R2.elvi_glm(model, draws = 4000, re.form = NA), "Marginal R2"))
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

# Diagnostics of residuals are those of the same formula fitted by lm(), glm() or lme4, as for fits of 'rstanarm'.
#' @exportS3Method performance::check_model
check_model.elvi_glm <- function(x, ...) performance::check_model(bayestestR::bayesian_as_frequentist(x), ...)

# The default method takes classes only that 'insight' has on its list.
#' @exportS3Method performance::check_predictions
check_predictions.elvi_glm <- function(model, iterations = 50, check_range = FALSE, re_formula = NULL, bandwidth = "nrd",
                                       type = "density", ...) {
  y <- observed_response(model)
  simulated <- posterior_predict(model, draws = iterations, re_formula = re_formula)
  simulated <- if (family_record(model$family)$trials) t(simulated) / pmax(response_trials(model), 1) else t(simulated)
  colnames(simulated) <- paste0("sim_", seq_len(ncol(simulated)))
  structure(data.frame(simulated, y = y, row.names = NULL), check_range = check_range,
            response_name = deparse_one(model$formula[[2L]]), bandwidth = bandwidth, type = type,
            model_info = model_info.elvi_glm(model),
            class = c("performance_pp_check", "see_performance_pp_check", "data.frame"))
}
