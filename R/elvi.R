#' Bayesian regression without sampling
#'
#' @description `elvi()` fits a Bayesian regression from a formula, as [stats::glm()], 'lme4', 'mgcv' and 'brms' write it. It
#' approximates the posterior by deterministic variational inference and numerical integration, usually within a second or two.
#' The same call always gives the same answer. `print()` shows the estimates, whether the fit has converged, and how far it may
#' be from the exact posterior.
#'
#' `fit <- elvi(breaks ~ tension + (1 | wool), data = warpbreaks, family = poisson())`
#'
#' `elvi()` also fits densities of your own, such as Stan programs and TMB objects: see [elvi_model].
#'
#' @param object a formula, or an object that [stats::as.formula()] understands. For a model from a `model_*()` function, or a fit to
#'   continue, see [elvi_model].
#' @param data data frame, list or environment with the variables, or a source of [data larger than memory][rows_elsewhere]: files, a
#'   database, a [cluster][rows_cluster()].
#' @param family response distribution and link, see [families].
#' @param prior,prior_intercept,prior_aux priors of the slopes, of the intercept when all predictors are at their means, and of the
#'   family's auxiliary parameter (such as `sigma`). See [priors]. The default, also that of `prior_aux = NULL`, does not depend on units.
#' @param prior_sd,prior_cor priors of the standard deviations and correlations of [group-level and smooth terms][group_terms].
#' @param autoscale rescale the priors to the data? By default the default priors are rescaled, and priors that you give are not.
#' @param dispersion residual variance of the gaussian family, or `1 / shape` of the Gamma family, if it is known.
#' @param weights,subset,na.action,offset,contrasts as in [stats::glm()]. For `gaussian()` weights are precisions: the variance of a
#'   response is `sigma^2 / weight`. For `binomial()` they are the trials of a proportion. For other families they say how often a row
#'   counts.
#' @param frequency how often each row counts, for every family: 2 is the same as giving the row twice.
#' @param ziformula,dispformula one-sided formulas for the probability of excess zeros and for the dispersion, see [second_formulas].
#' @param knots knots of smooth terms, as in `mgcv::gam()`: a list named by variables. For a cyclic smooth, `s(month, bs = "cc")`, two
#'   numbers are the ends of the period: `knots = list(month = c(0.5, 12.5))`.
#' @param base variational base, see [bases]. The default suits nearly all models.
#' @param method `"auto"` chooses. `"exact"` is the deterministic solver of [elvi_optimum()], for models without hyperparameters;
#'   `"nested"` integrates over hyperparameters by quadrature, see [group_terms]; `"mpsgd"` is the stochastic algorithm of [elvi_model].
#' @param schedule,budget,start settings of the stochastic algorithm, see [elvi_model].
#' @param tol for the exact and nested methods, the largest gap to the optimum in nats, 1e-9 by default. For the stochastic algorithm see
#'   [elvi_model].
#' @param control further settings, see [elvi_control()].
#' @param correct correct the gaussian approximation to the posterior? See [correction].
#' @param prior_only leave the likelihood out? The fit is then the prior. See the section below.
#' @param ... not used: unknown names are errors.
#' @return An object of class `elvi_fit`. It has the methods of [elvi_fit], such as `summary()`, `coef()` and `confint()`, those of
#'   [predict.elvi_glm] and [plots][plot.elvi_fit]. `fit$mu` and `fit$Sigma` are the mean and the symmetric scale of the gaussian
#'   approximation; its covariance is `Sigma %*% Sigma`. For its other parts see [elvi_model].
#'
#' @section Formulas:
#' * Predictors, factors, interactions and offsets are written as for `glm()`.
#' * Groups: `(1 | g)`, `(x | g)`, as in 'lme4'. Smooths: `s(x)`, `te(x, z)`, as in 'mgcv'. See [group_terms].
#' * Time series, maps, relatives and Gaussian processes: `ar1(time)`, `bym2(area, graph)`, `hsgp(x)`. See [latent_terms].
#' * Two predictors, as in zero-inflated models: see [second_formulas].
#'
#' @section Priors:
#' Slopes and the intercept have `normal(0, 2.5)` priors by default, on standardised predictors. As in 'rstanarm', the prior of a slope is
#' divided by the standard deviation of its predictor, and for responses with a unit multiplied by that of the response. [priors]
#' has the details, and [prior_summary()] shows what was used. With a flat prior a posterior need not exist: a warning says so, and
#' separable data are an error.
#'
#' @section The prior alone:
#' With `prior_only = TRUE` the responses do not count, and every method shows the prior. [posterior_predict()][predict.elvi_glm] then
#' simulates responses that the prior expects, which is the quickest way to judge a prior. Flat priors are an error. Hyperparameters and
#' scales of student priors are represented by 1,000 points of their priors. [posterior_vs_prior()] compares a posterior with its prior.
#'
#' @section How the fit is found:
#' For most families the log likelihood is concave, and the best gaussian approximation is found with a certificate: an upper bound on how
#' far it is from the optimum. Unknown dispersions, standard deviations and correlations are integrated over by quadrature. Where the
#' posterior is skewed, the marginals are then corrected, see [correction]. [families] lists what is certified. Student priors, and
#' arguments that only the stochastic algorithm has, select `method = "mpsgd"`.
#' @seealso [elvi_fit] for the methods of a fit; [pareto_k()], [loo()][cross_validation] and [calibrate()] to judge it;
#'   `vignette("elvi")`.
#' @examples
#' fit <- elvi(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' fit
#' confint(fit)
#' predict(fit, infert[1:3, ], type = "response", se.fit = TRUE)
#'
#' # the prior alone
#' prior <- elvi(case ~ age + parity + spontaneous, data = infert, family = binomial(),
#'               prior_only = TRUE)
#' range(posterior_epred(prior, draws = 200))
#' \donttest{
#' # groups and smooths
#' if (requireNamespace("reformulas", quietly = TRUE)) {
#'   elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson())
#' }
#' if (requireNamespace("mgcv", quietly = TRUE)) {
#'   elvi(dist ~ s(speed), data = cars)
#' }
#' }
#' @order 1
#' @export
elvi <- function(object, ...) {
  if (missing(object) && "formula" %in% ...names()) {   # as users of glm() write it
    call <- sys.call()
    names(call)[names(call) == "formula"] <- "object"
    return(eval(call, parent.frame()))
  }
  UseMethod("elvi")
}

#' @export
elvi.default <- function(object, ...) {
  refuse_brms_formula(object)
  bad_argument("object", "a formula, a model from a model_*() function, or a fit", describe(object))
}

#' Fit a model object or a density of your own
#'
#' `elvi()` approximates the posterior of a model that a `model_*()` function has made: a regression from matrices ([model_glm()]), R
#' functions ([model_density()]), a Stan program ([model_stan()]), a TMB object ([model_tmb()]) or a C function ([model_native()]). Called
#' on a fit, it continues the run.
#'
#' The approximation is `x = mu + Sigma z` with a location `mu`, a scale matrix `Sigma` and a [base][bases] `z`. `elvi()` minimises
#' `F(mu, Sigma) = E f(mu + Sigma z) - log|Sigma|`, where `f` is minus the log density. Up to a constant `F` is the negative evidence lower
#' bound (ELBO). Models with an exact objective, regressions and quadratics, are solved by [elvi_optimum()]. For other models, or if you
#' give a schedule, a budget or a start, `elvi()` runs minibatch projected stochastic gradient descent.
#'
#' @param object a model, see [model_glm()], [model_density()], [model_stan()], [model_tmb()], [model_native()] and [model_quadratic()]; or
#'   a fit to continue.
#' @param base variational base, see [bases].
#' @param method `"mpsgd"` is the stochastic algorithm. `"exact"` is the deterministic solver of [elvi_optimum()], for models
#'   with an exact objective: [model_glm()] without an auxiliary parameter, and [model_quadratic()]. `"auto"` takes the exact
#'   one where it exists and its `dim` x `dim` matrices fit in memory (with more than 2,000 sparse columns it needs none),
#'   unless `schedule`, `budget`, `start`, `starts` or one of these settings is given in `control`: `estimator`, `update`,
#'   `average`, `precondition`, `smoothness`, `scale_min`, `scale_max`, `mu_centre`, `mu_radius`, `iterations`, `checkpoint`,
#'   `rows_per_step`, `backtrack`. `"natural"` takes natural gradient steps, see the section on many parameters of [verdict];
#'   `"auto"` takes it for user-supplied densities of more than 400 parameters. `"laplace"` is the gaussian at the highest mode
#'   that the search for a start finds, with the curvature there. `"pathfinder"` is the best gaussian along the paths to the
#'   modes. Both get the same verdict.
#' @param tol stop when the estimated gap to the optimum plus two standard errors is below this many nats; a warning says if the budget
#'   ends first. The gap is estimated from the gradient over fresh batches, whenever the number of evaluations has doubled. `NULL` spends
#'   the whole budget. For the exact method: the certificate to reach, 1e-9 by default.
#' @param schedule step and batch sizes, see [schedules].
#' @param budget number of gradient evaluations. For a model it is short for `schedule_tuned(budget)`, 5000 by default, or 100,000 with a
#'   `tol`. For a fit it is the new total.
#' @param start optional list with `mu` and `Sigma` (for a diagonal scale also a vector), in the coordinates of the model. The default is
#'   the Laplace approximation at the mode; with `coordinates = "raw"` it is `mu = 0`, `Sigma = I / sqrt(L)`. Where a start is
#'   searched, `mu` without `Sigma` is the first point of the [search][start_search].
#' @param starts for user-supplied densities that are not known to be convex: the number of points from which a start is searched, 6 by
#'   default. See [start_search].
#' @param combine `"best"` returns the best of several starts; `"stack"` the mixture of those that ended at different places, with weights
#'   in proportion to `exp(ELBO)`. See [start_search].
#' @param control see [elvi_control()].
#' @param correct correct the gaussian approximation to the posterior? See [correction].
#' @param polish for a user-supplied density: run short chains of Hamiltonian Monte Carlo where importance sampling is not enough? See
#'   [verdict].
#' @param iterations for a fit: stop after this many iterations in all.
#' @param ... not used: unknown names are errors.
#' @return An object of class `elvi_fit`. It has four parts: `given` (the call and its arguments), `plan` (what was decided
#'   before the run), `state` (where the run is) and `result`; a fit of a formula also `regression`. `$` finds a field in any of
#'   these parts, and computes fields that follow from the result. Among others there are
#'   * `posterior`: what all methods read.
#'   * `mu`, `sd`, `Sigma`: means, standard deviations and symmetric scale of the approximation; `Sigma %*% Sigma` is its covariance. For a
#'     fit that integrates over hyperparameters these are of the mixture, hyperparameters included. `scale`, of the other fits, is the
#'     scale as it was parametrised, a lower triangular matrix for `scale = "triangular"`.
#'   * `method`: `"exact"`, `"mpsgd"` or `"nested"`.
#'   * `kept`: `"average"` (or last iterate), `"start"` or, of the exact solver, `"optimum"`.
#'
#'   and of a stochastic run
#'   * `last`: `mu` and `scale` of the last iterate.
#'   * `smoothness`, `smoothness_source`: `L` in the coordinates of the run.
#'   * `trace`: a data frame with iteration, gradient evaluations, batch, step, an estimate of the objective at the iterate and its
#'     standard error (on the same draws throughout), the norm of the estimated gradient mapping, the number of clipped eigenvalues, and
#'     CPU seconds. Evaluations include the checks of `elvi_control(backtrack = )`; steps are those that were taken.
#'   * `plan`: steps, batches, iterations and preconditioner in numbers.
#'   * `seed`, `rng_kind`: the key of the draws and R's generator it came from.
#'   * `status`: `"finished"`, `"paused"`, `"interrupted"` or `"diverged"`.
#'
#' @section Continuing a run:
#' A run that was interrupted, or stopped by `elvi_control(iterations = )`, continues to the end of its schedule with the same result as if
#' it had not stopped. A schedule without a horizon ([schedule_decay()], [schedule_growing()]) can be given a larger `budget`. With a
#' `checkpoint` in [elvi_control()] a run survives the end of its session.
#'
#' @section Reproducibility:
#' Draws come from a keyed generator whose key is drawn from R's, so [set.seed()] makes a fit reproducible.
#'
#' @section The better of start and end:
#' A stochastic run may end worse than it began. elvi compares start and end, and returns the better one: by the exact objective
#' where the model has one, otherwise on common draws, where the start must be better by more than two standard errors. `kept`
#' names the one that was returned. An interrupted fit is compared by its trace alone.
#'
#' @section When a run fails:
#' * Regressions and quadratics: a non-finite gradient stops the run with an error of class `elvi_error_nonfinite`.
#' * User-supplied densities: a draw where the function throws an error or is not finite is rejected. At such a draw the target
#'   is replaced by the gaussian that whitens the run. The fit reports the number of rejected draws and the first error. If the
#'   function fails everywhere, the run ends with an error.
#' * If the steps of the schedule produce non-finite values or the objective rises, they are shortened by a factor of up to 64. If that
#'   does not help, the start is returned with a warning.
#' * In raw coordinates with a `smoothness` that you gave, the run is the algorithm of the paper to the letter. Supplying `smoothness`
#'   asserts that the target is finite everywhere, so a failure stops the run. An error of your function reaches you
#'   unchanged; a non-finite gradient is reported with the iteration and the point.
#' * A run that ends clearly worse than it began gives a warning of class `elvi_warning_diverged`. Usually the step is too long because
#'   the smoothness is too small.
#' @seealso [start_search], [verdict], [objective()], [elbo()], [elvi_fit]; `vignette("any-model")`.
#' @examples
#' # your own design matrix, another base, and the stochastic algorithm
#' X <- scale(as.matrix(infert[, c("age", "parity", "induced", "spontaneous")]))
#' model <- model_glm(cbind(1, X), infert$case, prior = normal(0, 2.5))
#' set.seed(1)
#' fit <- elvi(model, base = base_laplace(), schedule = schedule_fixed(5000, "case2"))
#' fit
#' coef(fit)
#' @name elvi_model
#' @export
elvi.elvi_model <- function(object, base = base_gaussian(), schedule = NULL, budget = NULL,
                            start = NULL, control = elvi_control(), tol = NULL,
                            method = c("auto", "mpsgd", "exact", "natural", "laplace", "pathfinder"), starts = NULL,
                            combine = c("best", "stack"), correct = TRUE, polish = FALSE, ...) {
  check_dots(list(...), names(formals()), "elvi()")
  method <- check_method(method, c("auto", "mpsgd", "exact", "natural", "laplace", "pathfinder"))
  fit <- function() {
    solve_problem(list(target = object, call = call), base, method,
                  list(schedule = schedule, budget = budget, tol = tol, start = start, starts = starts, combine = combine), control,
                  correct)
  }
  call <- match.call()
  if (check_flag(polish, "polish")) with_polish(fit()) else fit()
}

# minibatch projected stochastic gradient descent, from the start that is given or searched
solve_stochastic <- function(problem, base, run, control) {
  object <- problem$target
  start <- run$start
  tol <- run$tol
  # left to itself, the run of a regression stops when it is close enough
  if (!is.null(problem$regression) && is.null(run$budget) && is.null(run$schedule) && !has_exact(object)) tol <- tol %||% 0.01
  schedule <- run$schedule %||% default_schedule(control, run$budget %||% if (is.null(tol)) 5000 else 1e5)
  check_class(schedule, "schedule", "elvi_schedule", "a schedule_*() function")

  law <- law_of(base, object$dim)
  check_expectation(object, law)
  check_rows_per_step(object, control)
  check_size(scale_of(control$scale)$size(object$dim), "scale", control$scale)
  seed <- draw_key()
  found <- search_start(object, control, start, run$starts, tol, seed)
  combine <- check_combine(run$combine %||% "best", found, base, control)
  work <- whitened_model(object, control$coordinates, control$scale, found)
  if (!frame_of(control)$affine) check_existence(object)
  smoothness <- run_smoothness(object, work, law, control)
  if (needs_numbers(schedule)) schedule <- compute_schedule(schedule, object, base, start, control)
  plan <- plan_schedule(schedule, object$dim, law$kurtosis, smoothness$L, control)
  control <- resolve_control(control, schedule, law, plan, smoothness$source)
  feasible <- feasible_set(control, work, smoothness$L)
  start <- first_iterate(start, found, work, control$scale, feasible, smoothness$L)
  given <- c(list(call = problem$call, method = "mpsgd", model = object, base = base, schedule = schedule, tol = tol,
                  combine = combine), split_control(control))
  plan <- c(plan, list(smoothness = smoothness$L, smoothness_source = smoothness$source, feasible = feasible,
                       work = coordinates_of(work)$without_inner(work),
                       stand_in = coordinates_of(work)$fallback(work, smoothness), start = start,
                       seed = seed, rng_kind = RNGkind(),
                       search = found, anchor = anchor_of(object, work, control, start)))
  fit <- new_fit(given, plan, initial_state(start, control, smoothness$L), no_result, problem$regression)
  if (isTRUE(found$interrupted)) return(judge_and_report(mark_interrupted(fit)))
  compare_gradient(object, work, control$scale, start)   # after the key: a user's function may draw
  journal <- open_journal(fit, law)
  if (has_ended(journal$fit)) judge_and_report(journal$fit) else run(journal, law, control$iterations)
}

# The tuned steps are for whitened coordinates; majorant ones are for the theorems.
default_schedule <- function(control, budget) {
  coordinates <- frame_of(control)
  if (coordinates$affine && !coordinates$tuned) schedule_certified(budget) else schedule_tuned(budget)
}

# Arguments and settings that only the stochastic method has a use for, of those that were
# given: the exact solver has no constraints, steps or iterations.
stochastic_settings <- function(run, control) {
  arguments <- given_values(run[c("schedule", "budget", "start", "starts")])
  mine <- c("estimator", "update", "average", "precondition", "smoothness", "scale_min", "scale_max",
            "mu_centre", "mu_radius", "iterations", "checkpoint", "rows_per_step", "backtrack")
  changed <- if (is_default(control)) character() else Filter(function(name) !identical(control[[name]], default_control[[name]]), mine)
  list(arguments = arguments, control = unclass(control)[changed])
}

# "auto" is exact where the model allows it, no argument needs what only the stochastic
# method has, and the solver's matrices fit in memory.
choose_method <- function(method, model, stochastic, scale) {
  asked <- lengths(stochastic) > 0L
  if (method == "auto") {
    say_if_checkpoint_decides(model, stochastic, scale)
    exact <- has_exact(model) && scale_of(scale)$exact && fits_in_memory(exact_size(model, scale))
    if (exact && is_regression(model) && identical(names(stochastic$control), "rows_per_step") && !asked[["arguments"]]) {
      say_all_rows("the exact solver")
      asked[] <- FALSE
    }
    method <- if (exact && !any(asked)) "exact" else "mpsgd"
  }
  if (method == "exact" && !scale_of(scale)$exact) {
    bad_argument("method", "\"mpsgd\"", "\"exact\"", sprintf("the exact solver has no scale of kind \"%s\"", scale))
  }
  if (method == "mpsgd") check_independent_prior(model)
  if (method == "exact" && asked[["arguments"]]) {
    unused_argument(names(stochastic$arguments)[1L], "the exact solver does not need it. Use method = \"mpsgd\" for a stochastic run")
  }
  if (method == "exact" && asked[["control"]]) {
    unused_argument(names(stochastic$control)[1L], "the exact solver does not need it. Use method = \"mpsgd\" for a stochastic run")
  }
  method
}

# Steps with some of the rows pay only where nothing better can be had.
say_all_rows <- function(by) {
  elvi_inform("`rows_per_step` is not used: ", by, " takes fewer passes over the rows than a stochastic run does. ",
              "Use method = \"mpsgd\" for such a run.", class = "elvi_message_all_rows")
}

say_if_checkpoint_decides <- function(model, stochastic, scale) {
  alone <- identical(names(stochastic$control), "checkpoint") && !length(stochastic$arguments)
  if (!alone || !has_exact(model) || !scale_of(scale)$exact) return(invisible())
  elvi_inform("`checkpoint` keeps the state of a stochastic run, so method = \"mpsgd\" is used. Without it the exact solver would be.",
              class = "elvi_message_checkpoint_method")
}

# The optimum itself as a fit.
solve_exact <- function(problem, base, run, control, correct) {
  model <- problem$target
  tol <- run$tol %||% 1e-9
  check_has_exact(model)
  check_size(exact_size(model, control$scale), "method", "exact")
  optimum <- solve_optimum(model, base, law_of(base, model$dim), control$scale, tol, 200, control$progress)
  fit <- new_fit(c(list(call = problem$call, method = "exact", model = model, base = base, tol = tol), split_control(control)),
          plan = list(seed = draw_key(), rng_kind = RNGkind()),   # of its draws
          result = list(status = if (optimum$interrupted) "interrupted" else if (optimum$converged) "finished" else "not converged",
                        kept = "optimum",
                        theta = list(mu = unname(optimum$mu), scale = name_scale(optimum$scale, NULL)),
                        converged = optimum$converged, optimum = optimum), regression = problem$regression)
  posterior <- run_posterior(fit)
  fit$result$posterior <- if (correct) correct_exact(posterior, model, optimum) else posterior
  fit
}

#' @rdname elvi_model
#' @export
elvi.elvi_fit <- function(object, budget = NULL, iterations = Inf, ...) {
  check_dots(list(...), names(formals()), "elvi() on a fit")
  fit <- object
  if (fit$given$method != "mpsgd") {
    bad_argument("object", "a fit by method = \"mpsgd\"", paste0("one by method = \"", fit$given$method, "\""),
                 "only stochastic runs can be continued")
  }
  iterations <- check_count(iterations, "iterations", infinite = TRUE)
  law <- law_of(fit$given$base, fit$given$model$dim)
  if (!is.null(budget)) {
    fit$given$schedule <- extend_budget(fit$given$schedule, budget, fit$state$evals - fit$state$checks)
    fit <- plan_again(fit, law)
    fit$state["stage"] <- list(NULL)
  }
  if (fit$state$k >= fit$plan$iterations && fit$result$status != "interrupted") {
    elvi_inform("The run is complete: its budget of ",
                format_count(fit$given$schedule$budget), " gradient evaluations is spent.")
    return(fit)
  }
  if (is.null(fit$regression)) fit$given$call <- match.call()   # update() needs the call with the formula
  fit$result["posterior"] <- list(NULL)   # it is of the run so far
  fit$result$polish <- NULL
  run(open_journal(fit, law, takes_up = FALSE), law, iterations)
}

# Refuse a target whose expectation under the base is infinite.
check_expectation <- function(model, law) {
  if (grows_exponentially(model) && exponential_limit(law) <= 0) {
    no_expectation(model$family, law, if (is_dispersed(model)) "posterior" else "likelihood")
  }
  if (grows_beyond_exponentials(model) && !is.finite(support_edge(law))) no_joint_expectation(model, law)
}

# Settings that were left to elvi, now that base and schedule are known.
resolve_control <- function(control, schedule, law, plan, smoothness_source) {
  control$estimator <- control$estimator %||% if (is_computed(schedule)) "reparam" else default_estimator(control$update)
  if (!law$path && !estimators[[control$estimator]]$any_base) {
    bad_argument("estimator", paste0("\"control\" or \"reparam\" with the ", law$kind,
                 " base, whose density jumps at its edge (the path gradient would be biased)"), describe(control$estimator))
  }
  if (is.null(control$average)) {
    control$average <- if (schedule_record(schedule)$horizon && is.finite(plan$bg_a)) "theorem" else "tail"
  }
  control$backtrack <- control$backtrack %||% default_backtrack(control, schedule, plan, smoothness_source)
  control
}

# Checked are steps made from an L that is an estimate. Single gradients need no smoothness, and would cost a
# fiftieth of their checks.
default_backtrack <- function(control, schedule, plan, smoothness_source) {
  doubtful <- steps_from_L(schedule) && is_estimate(smoothness_source) && is.null(control$rows_per_step) &&
    !is.null(plan$iterations) && !single_gradients(plan)
  if (doubtful) fewest_check_draws else 0
}

fewest_check_draws <- 16

# What P_Theta projects onto, in the coordinates of the run.
feasible_set <- function(control, work, L) {
  whitened <- is_whitened(work)
  asked <- !is.null(control$scale_min) || is.finite(control$scale_max) ||
    is.finite(control$mu_radius) || !is.null(control$mu_centre)
  if (asked && whitened) {
    elvi_abort("`scale_min`, `scale_max`, `mu_centre` and `mu_radius` describe a set in the model's ",
               "own coordinates: use them with elvi_control(coordinates = \"raw\").",
               class = "elvi_error_argument", data = list(argument = "coordinates"))
  }
  lower <- if (update_of(control)$floor) control$scale_min %||% (scale_of(control$scale)$floor / sqrt(L)) else 0
  if (lower > control$scale_max) {
    bad_argument("scale_max", sprintf("at least the lower bound %g of the scale", lower),
                 describe(control$scale_max))
  }
  centre <- control$mu_centre %||% numeric(work$dim)
  list(scale_min = lower, scale_max = control$scale_max,
       mu_centre = check_vector(centre, "mu_centre", work$dim), mu_radius = control$mu_radius)
}

# The start in the coordinates of the run. The default is the Laplace
# approximation in whitened coordinates, (0, I / sqrt(L)) in raw ones.
# A point without a scale is where a search begins, if there was one: the run begins with what that has found.
first_iterate <- function(start, found, work, kind, feasible, L) {
  given <- check_start(start, work, kind, feasible, L)
  if (is.null(found) || is.null(start$mu) || !is.null(start$Sigma)) return(given)
  check_start(NULL, work, kind, feasible, L)
}

check_start <- function(start, work, kind, feasible, L) {
  dim <- work$dim
  if (is.null(start)) start <- list()
  unknown <- setdiff(names(start), c("mu", "Sigma"))
  if (!is_plain_list(start) || length(unknown) || (length(start) && is.null(names(start)))) {
    bad_argument("start", "a list with `mu` and `Sigma`",
                 if (is.list(start) && length(unknown)) paste("one with", encodeString(unknown[1L], quote = "`"))
                 else describe(start))
  }
  start_scale <- check_start_scale(coordinates_of(work)$start_scale(work, feasible, L), dim, kind)
  if (!length(start)) return(list(mu = feasible$mu_centre, scale = start_scale))
  origin <- to_user(work, kind, feasible$mu_centre, start_scale)
  mu <- if (is.null(start$mu)) origin$mu else check_vector(start$mu, "start$mu", dim)
  scale <- if (is.null(start$Sigma)) origin$scale else check_start_scale(start$Sigma, dim, kind)
  if (sqrt(sum((mu - feasible$mu_centre)^2)) > feasible$mu_radius * (1 + 1e-12)) {
    bad_argument("start$mu", sprintf("within %g of `mu_centre`", feasible$mu_radius), "a point outside")
  }
  moved <- to_work(work, kind, mu, scale)
  clipped <- project_scale(kind, moved$scale, feasible$scale_min, feasible$scale_max)
  if (clipped$clipped > 0 && max(abs(clipped$scale - moved$scale)) > 1e-8 * max(abs(moved$scale))) {
    bad_argument("start$Sigma", sprintf("at least %g%s in %s coordinates (see elvi_control())",
                                        feasible$scale_min,
                                        if (is.finite(feasible$scale_max)) paste(" and at most", format(feasible$scale_max)) else "",
                                        if (is_whitened(work)) "whitened" else "the model's"),
                 "a matrix outside")
  }
  moved
}
