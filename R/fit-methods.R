#' Methods of a fit
#'
#' The usual methods of R's model objects. `coef()` is the posterior mean and `vcov()` the posterior covariance of the coefficients.
#' `confint()` and `posterior_interval()` give *credible* intervals: quantiles of the marginal posteriors. `tidy()`, `glance()` and
#' `augment()` are those of 'broom' and 'broom.mixed'.
#'
#' `simulate()` draws from the posterior; of a fit from a formula it draws responses, see [simulate.elvi_glm()]. `update()` fits a
#' changed formula or continues a run.
#'
#' @section Groups, smooths and second formulas:
#' The posterior of a fit that integrates over hyperparameters is a mixture over quadrature points, so means, standard deviations and
#' intervals include the uncertainty about standard deviations, correlations and dispersion. `coef()` of a fit with
#' group-level terms has the coefficients of each group, as in 'lme4'; [fixef()] has those that the groups share.
#' Coefficients of a [second formula][second_formulas] follow those of the first under names such as `zi_x` and `disp_x`; `tidy()` then
#' has a column `component`, as in 'broom.mixed'.
#'
#' @section User-supplied densities:
#' A fit of a [model_density()] or [model_stan()] whose start was searched has importance weights, those of its [verdict]. `coef()`,
#' `vcov()`, `print()`, `summary()`, `confint()`, `tidy()`, `plot()`, `simulate()` and all formats of draws are corrected by these
#' weights, and say so. `fit$mu`, `fit$Sigma`, [q_density()], [objective()] and [elbo()] describe the approximation itself, as do draws
#' with `resample = FALSE`, which warn if the two differ by more than 0.3 standard deviations or a factor of 1.5. Where k-hat is 1 or
#' more the weights have no mean and are not used, unless the effective sample size is above half of the draws.
#'
#' @section Dispersion:
#' `sigma()` is the posterior mean of the residual standard deviation, 1 for families that have none. Tables, draws and plots show
#' `sigma` or `phi` itself; `coef()` and `vcov()` have the coefficients only. A stochastic run fits the logarithm, which is the last
#' parameter of `fit$mu` and `fit$Sigma`.
#'
#' @section Comparing models:
#'
#' Compare models of the same data by [evidence()], which is `glance()$log_evidence` too, or by `loo()`.
#' The evidence lower bound is never returned as a `logLik()`, since it is not a maximised likelihood.
#'
#' @param object,x,formula a fit; for the methods that need data, one from a
#'   formula.
#' @param parm,pars parameters, by name or number. By default all but the effects of groups and smooths.
#' @param level,prob,conf.level probability of the interval.
#' @param effects which rows of `tidy()`: `"fixed"` for coefficients, `"ran_pars"` for standard deviations, correlations and
#'   dispersion, `"ran_vals"` for the effects of groups, or several.
#' @param conf.int add credible intervals?
#' @param part coefficients of one part of a model with a [second formula][second_formulas]: `"cond"`, `"zi"` or `"disp"`. Without it,
#'   those of all parts.
#' @param exponentiate estimates and intervals of `exp()` of the coefficients (standard errors stay, as in broom)?
#' @param type.predict for `augment()`: predictions of the response or of the linear predictor.
#' @param data,newdata data frame to add predictions to; that of the fit by
#'   default.
#' @param nsim number of draws.
#' @param seed optional seed; with it R's generator does not change. Without one, draws of `simulate()` are new in every call;
#'   [as.matrix()][as.matrix.elvi_fit] gives those of the fit.
#' @param draws number of draws.
#' @param type for `pp_check()`: which of bayesplot's `ppc_` plots. They show draws of new responses; `"error_binned"` shows
#'   draws of expected responses, for binomial fits of proportions.
#' @param formula. changes to the formula, see [stats::update.formula()].
#' @param evaluate evaluate the new call, or return it?
#' @param complete not used: no coefficient is ever left out.
#' @param digits significant digits of standard deviations; means and quantiles get as many decimals.
#' @param ... passed on where it says so. Arguments that other packages pass to every model are ignored, other names are errors.
#' @return `simulate()`: a matrix with one draw per row. `summary()`: an object with the table of posterior means, standard
#'   deviations and quantiles, objective and ELBO, the gap to the optimum of its family in nats for models with an exact
#'   objective (see [elvi_optimum()]), the estimated `error` against the posterior, and [pareto_k()]. `tidy()`: a data frame
#'   with columns `effect`, `group`, `term`, `estimate` and `std.error` for every fit (`level` too with `"ran_vals"`).
#'   `glance()`: a row with the [elbo()] and the corrected [log evidence][evidence()] (`NA` where it is not cheap), each with
#'   its standard error, `method`, `base`, `converged`, `certificate` (nats above the optimum, at most; `NA` for a stochastic
#'   run), `points` and `quadrature_error` of the quadrature over hyperparameters, `evaluations` of the gradient and `nobs`. The
#'   other methods return what their generics say.
#' @examples
#' fit <- elvi(case ~ age + parity, data = infert, family = binomial())
#' summary(fit)
#' confint(fit)
#' update(fit, . ~ . + spontaneous)
#' # your own density
#' model <- model_quadratic(diag(c(1, 4)), m = c(a = 1, b = -1))
#' set.seed(1)
#' fit <- elvi(model, budget = 20000)
#' vcov(fit)
#' simulate(fit, nsim = 3, seed = 1)
#' @name elvi_fit
#' @aliases elvi_glm
NULL

# ---- estimates and intervals ------------------------------------------------------------------------

#' @rdname elvi_fit
#' @export
coef.elvi_fit <- function(object, complete = TRUE, part = NULL, ...) {
  check_dots(list(...), names(formals()), "coef()")
  check_flag(complete, "complete")
  if (!is.null(part)) return(part_coefficients(object, part))
  if (length(group_terms_of(object))) group_coefficients(object) else fixed_means(object$posterior)
}

# shared coefficients of one part, under the names that its formula has for them
part_coefficients <- function(object, part) {
  if (has_shared(object)) return(class_coefficients(object, part))
  part <- check_choice(part, "part", c("cond", object$second$component))
  all <- fixed_means(object$posterior)
  if (part == "cond") return(all[setdiff(seq_along(all), object$second$columns)])
  out <- all[object$second$columns]
  stats::setNames(out, without_prefix(names(out), part))
}

class_coefficients <- function(object, part) {
  part <- check_choice(part, "part", object$shared$classes)
  out <- fixed_means(object$posterior)[class_columns(object$shared, match(part, object$shared$classes))]
  stats::setNames(out, sub(class_prefix(part), "", names(out), fixed = TRUE))
}

without_prefix <- function(names, component) sub(paste0("^", component, "_"), "", names)

#' @rdname elvi_fit
#' @export
vcov.elvi_fit <- function(object, complete = TRUE, ...) {
  check_dots(list(...), names(formals()), "vcov()")
  check_flag(complete, "complete")
  which <- object$posterior$coefficients
  check_size(length(which)^2, "object", object)
  posterior_covariance(object$posterior, which)
}

#' @rdname elvi_fit
#' @export
sigma.elvi_fit <- function(object, ...) {
  check_dots(list(...), names(formals()), "sigma()")
  family <- object$family %||% object$given$model$family   # of a model_glm()
  if (is.null(family) || !(is_nested_only(family) || isTRUE(family_record(family)$dispersion$residual))) return(1)
  if ("sigma" %in% object$posterior$shown) return(posterior_moments(object$posterior)$mean[["sigma"]])
  sqrt(object$dispersion %||% object$given$model$dispersion %||% 1)
}

#' @rdname elvi_fit
#' @export
confint.elvi_fit <- function(object, parm = NULL, level = 0.95, ...) {
  check_dots(list(...), names(formals()), "confint()")
  level <- check_number(level, "level", 0, 1, open = TRUE)
  credible_intervals(object, shown_parameters(object, parm, "parm"), level)
}

#' @rdname elvi_fit
#' @export
#' @rawNamespace S3method(rstantools::posterior_interval, elvi_fit)
posterior_interval.elvi_fit <- function(object, prob = 0.9, pars = NULL, ...) {
  check_dots(list(...), names(formals()), "posterior_interval()")
  prob <- check_number(prob, "prob", 0, 1, open = TRUE)
  credible_intervals(object, shown_parameters(object, pars, "pars"), prob)
}

credible_intervals <- function(fit, which, level) {
  p <- c((1 - level) / 2, (1 + level) / 2)
  out <- posterior_quantiles(fit$posterior, which, p)
  dimnames(out) <- list(fit$posterior$shown[which], percent_names(p))
  out
}

percent_names <- function(p) paste(vapply(100 * p, format, "", digits = 3), "%")

# places of parameters given by name or number; by default everything but the effects
shown_parameters <- function(fit, which, name) {
  if (!is.null(which)) return(check_parameters(fit, which, name))
  setdiff(seq_along(fit$posterior$shown), effect_places(fit))
}

effect_places <- function(fit) effect_places_of(fit, fit$groups)

effect_places_of <- function(fit, terms) {
  columns <- as.integer(unlist(lapply(terms, `[[`, "columns")))
  if (length(columns)) length(fit$posterior$coefficients) + columns else integer()
}

# mean, sd and quantiles of parameters, one row each
posterior_table <- function(fit, which, p = NULL) {
  moments <- posterior_moments(fit$posterior)
  table <- cbind(mean = moments$mean[which], sd = moments$sd[which])
  if (is.null(p)) return(table)
  quantiles <- posterior_quantiles(fit$posterior, which, p)
  colnames(quantiles) <- percent_names(p)
  cbind(table, quantiles)
}

# ---- broom ------------------------------------------------------------------------------------------

#' @rdname elvi_fit
#' @exportS3Method generics::tidy
tidy.elvi_fit <- function(x, effects = c("fixed", "ran_pars"), conf.int = FALSE, conf.level = 0.95, exponentiate = FALSE, ...) {
  check_dots(given_values(list(...)), names(formals()), "tidy()", passed_by_frameworks$tidy)
  rows <- tidy_rows(x, check_effects(effects))
  conf.int <- check_flag(conf.int, "conf.int")
  conf.level <- check_number(conf.level, "conf.level", 0, 1, open = TRUE)
  moments <- posterior_moments(x$posterior)
  at <- rows$at
  rows$at <- NULL
  if (!"ran_vals" %in% effects) rows$level <- NULL
  out <- cbind(rows, estimate = unname(moments$mean[at]), std.error = unname(moments$sd[at]))
  if (conf.int) {
    limits <- credible_intervals(x, at, conf.level)
    out$conf.low <- unname(limits[, 1L])
    out$conf.high <- unname(limits[, 2L])
  }
  scaled <- intersect(c("estimate", "conf.low", "conf.high"), names(out))   # not the errors, as broom has it
  if (check_flag(exponentiate, "exponentiate")) out[out$effect == "fixed", scaled] <- exp(out[out$effect == "fixed", scaled])
  as_tibble_if_there(out)
}

check_effects <- function(effects) {
  kinds <- c("fixed", "ran_pars", "ran_vals")
  if (!is.character(effects) || !length(effects) || !all(effects %in% kinds)) {
    bad_argument("effects", "some of \"fixed\", \"ran_pars\" and \"ran_vals\"",
                 describe(if (is.character(effects)) setdiff(effects, kinds)[1L] else effects))
  }
  intersect(kinds, effects)
}

# the kind of each row, and its place among the parameters
tidy_rows <- function(x, effects) {
  shown <- x$posterior$shown
  row <- function(effect, at, term = shown[at], group = NA_character_, level = NA_character_) {
    data.frame(effect = rep(effect, length(at)), group = rep_len(group, length(at)), level = rep_len(level, length(at)),
               term = term, at = at)
  }
  coefficients <- x$posterior$coefficients
  rest <- setdiff(seq_along(shown), c(coefficients, effect_places(x)))
  parts <- list(fixed = row("fixed", coefficients), ran_pars = tidy_hyper(x, row("ran_pars", rest)),
                ran_vals = do.call(rbind, lapply(group_terms_of(x), function(term) {
                  k <- length(term$coefs)
                  row("ran_vals", effect_positions(x, term), rep(term$coefs, length(term$levels)), term$label,
                      rep(term$levels, each = k))
                })))
  out <- do.call(rbind, parts[effects])
  rownames(out) <- NULL
  if (has_shared(x)) with_y_levels(x, out) else if (is.null(x$second)) out else with_components(x, out)
}

# the part of the model of each row, as in 'broom.mixed', and the term's name there
with_components <- function(x, rows) {
  own <- x$second$component
  second <- effect_places_of(x, Filter(function(term) term$line == 2L, x$groups))
  prefix <- paste0("(^|__|\\.)", own, "_")
  mine <- rows$at %in% c(x$second$columns, second) | (rows$effect != "fixed" & grepl(prefix, rows$term)) |
    grepl(paste0("^", own, "_"), rows$group)
  rows$term[mine] <- gsub(prefix, "\\1", rows$term[mine])
  cbind(rows["effect"], component = ifelse(mine, own, "cond"), rows[setdiff(names(rows), "effect")])
}

# names of standard deviations and correlations as in broom.mixed, and the factor that they belong to
tidy_hyper <- function(x, rows) {
  for (spec in x$groups) {
    at <- match(natural_names(spec), rows$term)
    rows$group[at] <- spec$label
    rows$term[at] <- term_record(spec)$tidy_names(spec)
  }
  dispersion <- is.na(rows$group)
  rows$group[dispersion] <- "Residual"
  if (length(x$groups)) rows$term[dispersion & rows$term == "sigma"] <- "sd__Observation"
  rows
}

#' @rdname elvi_fit
#' @exportS3Method generics::glance
glance.elvi_fit <- function(x, ...) {
  check_dots(given_values(list(...)), names(formals()), "glance()", passed_by_frameworks$glance)
  value <- elbo(x)
  evidence <- cheap_evidence(x)
  account <- solver_account(x)
  as_tibble_if_there(data.frame(
    elbo = value$estimate, elbo.se = value$se, log_evidence = evidence$logml %||% NA_real_,
    log_evidence.se = evidence$se %||% NA_real_, method = x$method, base = x$base$kind, converged = x$converged %||% NA,
    certificate = account$certificate, points = length(x$posterior$weight), quadrature_error = account$quadrature_error,
    evaluations = account$evaluations, nobs = if (is.null(x$regression)) NA_integer_ else nobs.elvi_glm(x)))
}

#' @rdname elvi_fit
#' @exportS3Method generics::augment
augment.elvi_glm <- function(x, data = NULL, newdata = NULL, type.predict = c("response", "link"), ...) {
  check_dots(list(...), names(formals()), "augment()", passed_by_frameworks$augment)
  if (is.null(newdata)) check_in_memory(x)
  # the frame lacks the rows that na.exclude would put back
  if (is.null(newdata) && is.null(data)) x$na.action <- NULL
  at <- stats::predict(x, newdata = newdata, se.fit = TRUE,
                       type = check_choice(type.predict, "type.predict", c("response", "link")))
  out <- if (is.null(newdata)) blame_argument(as.data.frame(data %||% x$pieces$data %||% x$frame), "data", "it is no data frame")
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
  if (has_package("tibble")) tibble::as_tibble(x) else x
}

# ---- the regression -----------------------------------------------------------------------------------

#' @rdname elvi_fit
#' @export
nobs.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "nobs()", passed_by_frameworks$nobs)
  if (is_out_of_memory(object)) source_rows(object)$n else nrow(object$frame)
}

#' @rdname elvi_fit
#' @export
formula.elvi_glm <- function(x, ...) {
  check_dots(list(...), names(formals()), "formula()", passed_by_frameworks$formula)
  x$formula
}

#' @rdname elvi_fit
#' @export
terms.elvi_glm <- function(x, ...) {
  check_dots(given_values(list(...)), names(formals()), "terms()")   # data = NULL is none
  x$terms
}

#' @rdname elvi_fit
#' @export
model.frame.elvi_glm <- function(formula, ...) {
  check_dots(given_values(list(...)), names(formals()), "model.frame()")   # data = NULL is none
  check_in_memory(formula)
  formula$frame
}

#' @rdname elvi_fit
#' @export
model.matrix.elvi_glm <- function(object, ...) {
  check_dots(given_values(list(...)), names(formals()), "model.matrix()")   # data = NULL is none
  prediction_rows(object, NULL)$X
}

#' @rdname elvi_fit
#' @export
family.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "family()", passed_by_frameworks$family)
  object$family
}

#' @rdname elvi_fit
#' @export
simulate.elvi_fit <- function(object, nsim = 1, seed = NULL, ...) {
  check_dots(list(...), names(formals()), "simulate()")
  nsim <- check_draws(nsim, length(object$posterior$shown), "nsim")
  key <- if (is.null(seed)) draw_key() else key_of_seed(seed)
  matrix_of_draws(object, posterior_draws(object$posterior, nsim, key))
}

#' @rdname elvi_fit
#' @export
update.elvi_fit <- function(object, ...) elvi(object, ...)

#' @rdname elvi_fit
#' @export
update.elvi_glm <- function(object, formula., ..., evaluate = TRUE) {
  call <- object$call
  if (!missing(formula.)) {
    if (!inherits(formula., "formula") && (!is.character(formula.) || length(formula.) != 1L)) {
      bad_argument("formula.", "a formula", describe(formula.))
    }
    call$object <- blame_argument(stats::update.formula(object$formula, formula.), "formula.", "it cannot be read")
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
  labels <- vapply(object$groups, `[[`, "", "label")
  correlated <- any(vapply(object$groups, function(term) pairs_of(term) > 0L, NA))
  structure(list(priors = object$priors, coefficients = coefficient_names(object), dispersion = aux_names(object),
                 intercept = attr(object$terms, "intercept") == 1, sd = stats::setNames(as.list(object$priors$sd), labels),
                 coefs = lapply(object$groups, `[[`, "coefs"), cor = if (correlated) object$priors$cor), class = "elvi_prior_summary")
}

# what `prior_aux` is the prior of
aux_names <- function(object) {
  if (has_classes(object) && !has_shared(object)) "distance to the next cut point" else family_parameter_names(object)[1L]
}

# The prior of each standard deviation of a term, by name: those of slopes differ by the units of their columns.
priors_by_coefficient <- function(prior, coefs, label) {
  each <- lapply(seq_along(coefs), prior_of_one, prior = prior)
  alike <- length(unique(vapply(each, `[[`, 0, "scale"))) == 1L
  if (alike) stats::setNames(each[1L], label) else stats::setNames(each, paste0(coefs, " by ", label))
}

#' @export
print.elvi_prior_summary <- function(x, ...) {
  joint <- x$priors$joint
  p <- length(joint$location)
  if (p) {
    cat("Priors used", if (x$intercept) " (the intercept's is for predictors at their means)", ":\n", sep = "")
    print(data.frame(prior_table(joint), row.names = x$coefficients[seq_len(p)]), digits = 4)
  }
  if (!is.null(x$priors$aux)) cat(x$dispersion, ": ", format(x$priors$aux), "\n", sep = "")
  sds <- unlist(unname(Map(priors_by_coefficient, x$sd, x$coefs, names(x$sd))), recursive = FALSE)
  texts <- vapply(sds, format, "", digits = 4)
  half <- !vapply(sds, has_rate, NA)
  texts[half] <- paste("positive half of", texts[half])
  for (text in unique(texts)) cat("sd of ", toString(names(sds)[texts == text]), ": ", text, "\n", sep = "")
  if (!is.null(x$cor)) cat("correlations: ", format(x$cor), "\n", sep = "")
  invisible(x)
}

# logLik() of a fit that has none: AIC(), BIC() and step() end here
no_likelihood <- function() {
  elvi_abort("A fit by elvi() has no maximised likelihood, and so no logLik(), AIC() or BIC(): compare models of the same data ",
             "by evidence(), bayes_factor() or loo().", class = "elvi_error_argument",
             data = list(argument = "object"))
}

#' @rawNamespace S3method(stats::logLik, elvi_fit)
logLik.elvi_fit <- function(object, ...) no_likelihood()

#' @rawNamespace S3method(stats::extractAIC, elvi_fit)
extractAIC.elvi_fit <- function(fit, ...) no_likelihood()

# ---- what belongs to least squares and maximum likelihood ------------------------------------------------

# leverage and deletion diagnostics have a Bayesian counterpart
no_influence <- function(verb) {
  function(model, ...) {
    refuse_argument("model", verb, "() is for fits by least squares or maximum likelihood. The influence of each row on a posterior is ",
                    "the Pareto k of loo(): loo::pareto_k_influence_values(loo::loo(fit)).")
  }
}

#' @rawNamespace S3method(stats::hatvalues, elvi_fit)
hatvalues.elvi_fit <- no_influence("hatvalues")

#' @rawNamespace S3method(stats::cooks.distance, elvi_fit)
cooks.distance.elvi_fit <- no_influence("cooks.distance")

#' @rawNamespace S3method(stats::influence, elvi_fit)
influence.elvi_fit <- no_influence("influence")

#' @rawNamespace S3method(stats::rstandard, elvi_fit)
rstandard.elvi_fit <- no_influence("rstandard")

#' @rawNamespace S3method(stats::rstudent, elvi_fit)
rstudent.elvi_fit <- no_influence("rstudent")

# ---- bayesplot ------------------------------------------------------------------------------------------

#' @rdname elvi_fit
#' @exportS3Method bayesplot::pp_check
pp_check.elvi_glm <- function(object, type = "dens_overlay", draws = 50, seed = NULL, ...) {
  need_package("bayesplot", "pp_check()")
  check_in_memory(object)
  plot <- or_null(getExportedValue("bayesplot", paste0("ppc_", type)))
  if (is.null(plot)) bad_argument("type", "the name of one of bayesplot's ppc_ plots", describe(type))
  y <- displayed_response(object)$y
  if (type == "error_binned" && has_classes(object)) {
    bad_argument("type", "a plot such as \"bars\"", describe(type), "responses in classes have no expected response")
  }
  # bins are of predictions, which for successes are proportions
  if (type == "error_binned") return(plot(y, posterior_epred(object, draws = draws, seed = seed), ...))
  if (family_record(object$family)$trials) y <- y * response_trials(object)
  plot(y, posterior_predict(object, draws = draws, seed = seed), ...)
}
