#' Fit a regression from a formula
#'
#' One line of R: a Bayesian generalised linear model from a formula and a data
#' frame, fitted by the exact solver where the model has an exact objective and
#' by the stochastic algorithm elsewhere, tuned by nobody.
#'
#' @section Priors:
#' `prior` is for the slopes, `prior_intercept` for the intercept *when all
#' predictors are at their means*, as in 'rstanarm': predictors are centred
#' for the computation and results are reported for the original ones.
#' Autoscaling, as 'rstanarm' documents it, divides the prior scale of a slope by
#' the standard deviation of its predictor and, for `gaussian()` and [robust()],
#' multiplies by that of the response; the prior of their intercept is also
#' shifted by the mean of the response, and the rate of an exponential
#' `prior_aux` is divided by its standard deviation. For positive responses with a log link (`Gamma()`,
#' `inverse.gaussian()`, [weibull()] and `"exponential"`) the prior of the intercept is shifted by the logarithm of the mean
#' response, so that it does not matter in which unit the response is measured; censored times count as in an
#' exponential model, and offsets are taken out. [prior_summary()] shows what
#' was used. With a flat prior an optimum need not exist: a warning says so, and
#' separable data are refused.
#'
#' @section From the best gaussian to the posterior:
#' The solver finds the best gaussian, and certifies it. Where data are thin, for example in a cell with few events, the posterior is
#' skewed and the best gaussian is too narrow. elvi then computes the marginal of each coefficient by the profile of the
#' evidence lower bound: for each of about ten values of the coefficient it takes the best gaussian of all the others. Estimates,
#' intervals, predictions and draws show the corrected posterior, and `print()` says by how much it was moved. Nothing is corrected,
#' and no time is spent, where the third and fourth cumulants of the posterior are small. `correct = FALSE` gives the
#' gaussian, whose means and scale are `fit$mu` and `fit$Sigma` in any case. The correction needs a gaussian `base`, normal or flat priors,
#' a family with an exact objective given its dispersion, and data in memory.
#'
#' @section The prior alone:
#' With `prior_only = TRUE` the responses do not count, and what the fit shows is the prior, as it would be used for these data.
#' [posterior_predict()][predict.elvi_glm] then simulates responses that the prior expects, which is the quickest way to see whether it
#' makes sense. Normal priors given hyperparameters need no approximation; standard deviations, correlations, the
#' dispersion and the scales of
#' student priors are 1,000 points of their priors. Flat priors have no draws and are refused. [posterior_vs_prior()] compares a
#' posterior with its prior.
#'
#' @section Families:
#' `binomial()` (links logit, probit, cloglog), `poisson()`, `"exponential"` times, and `gaussian()` and `Gamma(link = "log")` with
#' a known `dispersion` have an exact objective. `gaussian()` with unknown
#' residual standard deviation (the default), [neg_binomial_2()], `Gamma(link = "log")` and [weibull()] have one more parameter,
#' `sigma`, `phi` or `shape`,
#' which is integrated over (see [group_terms]): exact given it, quadrature over it. With [robust()], [Beta()] and
#' `inverse.gaussian()`, with student priors,
#' and with `method = "mpsgd"` or an argument that only that has, it is fitted on the log scale as `log_sigma` or
#' `log_phi`, last. See [families].
#'
#' @section Second formulas:
#' Some families have a second parameter with a linear predictor of its own. `ziformula` is for the probability of a zero of
#' [zero-inflated and hurdle families][families] (logit link, `~ 1` by default), `dispformula` for the dispersion of `gaussian()` (`sigma`),
#' `Gamma(link = "log")` (`shape`), [neg_binomial_2()] and [Beta()] (`phi`), all with a log link. The names are those of
#' 'glmmTMB'. Both take
#' what the first formula takes: factors, group-level and smooth terms, offsets.
#'
#' Coefficients are named `zi_x` and `disp_x`. A prior holds for both parts;
#' `prior = list(cond = normal(0, 1), zi = normal(0, 2))` gives each
#' its own, and so for `prior_intercept`. In a list for `prior_sd` the groups of a second formula are called `zi_g` and
#' `disp_g`. The default prior
#' of the intercept of `disp` for `gaussian()` is centred at the logarithm of the standard deviation of the response.
#'
#' Such models are fitted by `method = "nested"` with a gaussian base. `predict()` has more types: `"conditional"` is the mean without
#' excess zeros, `"zprob"` and `"zlink"` are the probability of a zero and its predictor, `"disp"` is the dispersion.
#'
#' @section Group-level and smooth terms:
#' `(1 | g)`, `(x | g)` and their kin, and `s(x)`: see [group_terms].
#'
#' @param object a formula, or an object that [stats::as.formula()] understands.
#' @param data data frame, list or environment with the variables, or a source of
#'   [data larger than memory][rows_elsewhere]: files, a database, a [cluster][rows_cluster()].
#' @param family response distribution and link.
#' @param prior,prior_intercept,prior_aux priors, see [normal()]. `prior_aux` is
#'   for the auxiliary parameter itself, not for its logarithm. `NULL` is a default that does not depend on units: see
#'   [families].
#' @param prior_sd,prior_cor priors of the standard deviations and correlations of [group-level and smooth terms][group_terms].
#' @param autoscale rescale the priors to the data? By default those you leave at
#'   their defaults are rescaled and those you give are taken as they are.
#' @param dispersion residual variance of the gaussian family, when it is known.
#' @param weights,subset,na.action,offset,contrasts as in [stats::glm()]. Weights of
#'   `gaussian()` are precisions, so the variance of a response is `sigma^2 / weight`;
#'   those of `binomial()` are the trials of a proportion; those of other families
#'   say how often a row counts, which is what those of 'rstanarm' are meant to do in every family (but its version
#'   2.21.3 does not look at them with `gaussian()`): `frequency` here.
#' @param frequency how often each row counts, for every family: 2 is the row given twice.
#' @param ziformula,dispformula formulas without a response for a second parameter, see the section on second formulas: the
#'   probability of excess zeros, or the dispersion.
#' @param knots knots of smooth terms, as in `mgcv::gam()`: a list with the names of their variables. For a cyclic smooth,
#'   `s(month, bs = "cc")`, two numbers are the ends of the period: `knots = list(month = c(0.5, 12.5))`.
#' @param base,method,schedule,budget,tol,start,control as in [elvi()]; `method = "nested"` integrates over the auxiliary parameter, see
#'   [group_terms].
#' @param correct show the posterior itself where the best gaussian differs from it? See the section on the correction.
#' @param prior_only leave the likelihood out? The fit is then the prior, and every method shows it: draws, predictions, `pp_check()`,
#'   plots. See the section on it.
#' @param ... nothing: unknown names are errors.
#' @return An object of class `elvi_fit`, see [elvi()], that also knows its
#'   formula, terms and data, so that `predict(newdata = )` and `update()` work.
#' @seealso [`methods`][elvi_fit]
#' @examples
#' fit <- elvi(case ~ education + age + parity + induced + spontaneous,
#'             data = infert, family = binomial())
#' fit
#' @export
elvi.formula <- function(object, data, family = stats::gaussian(),
                         prior = normal(0, 2.5), prior_intercept = normal(0, 2.5),
                         prior_aux = NULL, prior_sd = exponential(1), prior_cor = lkj(1),
                         autoscale = NULL, dispersion = NULL,
                         weights, subset, na.action, offset, contrasts = NULL, frequency, ziformula = NULL, dispformula = NULL,
                         knots = NULL, base = base_gaussian(), method = c("auto", "exact", "mpsgd", "nested"),
                         schedule = NULL, budget = NULL, tol = NULL, start = NULL,
                         control = elvi_control(), correct = TRUE, prior_only = FALSE, ...) {
  check_dots(list(...), names(formals()), "elvi()")
  method <- check_choice(method, "method", c("auto", "exact", "mpsgd", "nested"))
  problem <- showing_passes(control, build_problem(object, match.call(), parent.frame(), environment()))
  solve_problem(problem, base, method, list(schedule = schedule, budget = budget, tol = tol, start = start), control, correct, prior_only)
}

#' @export
elvi.character <- function(object, ...) {
  if (length(object) != 1L) elvi.default(object)
  formula <- tryCatch(stats::as.formula(object, env = parent.frame()), error = function(e) NULL)
  if (is.null(formula)) elvi.default(object)
  call <- match.call()   # as the user wrote it, for update()
  call[[1L]] <- quote(elvi)
  call$object <- formula
  eval(call, parent.frame())
}
