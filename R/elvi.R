#' Fit an elliptic variational approximation
#'
#' `elvi(y ~ x, data, family)` fits a regression from a formula: see [elvi.formula()]. This page is about models of your
#' own, and about what all fits have in common.
#'
#' Minimises `F(mu, Sigma) = E f(mu + Sigma z) - log|Sigma|` over the location
#' `mu` and the scale `Sigma`, where `f` is the target and `z` the base: by the
#' exact solver of [elvi_optimum()] where the model has an exact objective, else,
#' or when a schedule, a budget, a start or a setting of a run is given, by
#' minibatch projected stochastic gradient descent. `F` is the negative evidence
#' lower bound (ELBO) up to the entropy of the base, a constant.
#'
#' On a model, `elvi()` starts anew. On a fit it continues a run: one that was
#' interrupted or stopped by `elvi_control(iterations = )` goes on to the end of
#' its schedule, exactly as if it had not stopped; a run with a schedule that
#' has no horizon of its own ([schedule_decay()], [schedule_growing()]) can be
#' given a larger `budget`.
#'
#' Samples come from a keyed generator whose key is drawn from R's, so
#' [set.seed()] makes a fit reproducible. A run can be interrupted at any time:
#' the fit so far is returned with a warning. With a `checkpoint` in
#' [elvi_control()] it survives the end of its session too.
#'
#' A fit is never worse than its start: the two are compared, exactly where the
#' model has an exact objective (see [elvi_optimum()]), and the better one is
#' returned; elsewhere on common draws, and the start is returned if it is better
#' by more than two standard errors. `kept` says which. An interrupted fit is
#' compared by its trace alone, at no cost.
#'
#' @section When a run fails:
#' A gradient that is not finite stops the run of a regression or a quadratic with an error of class
#' `elvi_error_nonfinite`. For a target that is a function, a draw where it throws an error, of whatever class, or is not
#' finite is a rejected point: a gaussian stands in for the target there (the one that whitens the run; in raw coordinates
#' the one at the mode), which is counted and said, with what the target said first. Only one that fails everywhere is an
#' error. Where the steps of its schedule lead to numbers that are none, or to an objective that rises, they are
#' made shorter, by a factor of up to 64, and if that does not help the start is returned, with a warning.
#'
#' In raw coordinates with a smoothness that was given, in [model_density()] or [elvi_control()], a run is the algorithm to the
#' letter. Such a target is said to be defined everywhere, so a failure refutes what was said of it and ends the run: an
#' error of your function reaches you as it is, and a gradient that is not finite is an error with the iteration and the
#' point.
#'
#' A run whose objective is clearly worse at its end than at its start comes back with a warning of class
#' `elvi_warning_diverged`: the step is usually too long because the smoothness
#' is too small.
#'
#' @section The search for a start:
#' A posterior of any shape need not have a mode: that of a hierarchical model grows without
#' bound as a group's standard deviation goes to 0. So for a target that is only a function the
#' run starts from a gaussian that is found as follows. From the origin and from `starts - 1`
#' points drawn uniformly from (-2, 2), in opposite pairs, a quasi-Newton method goes downhill. Laplace approximations
#' at points along these paths are judged by their objective on draws, and the best of different
#' places are improved by natural gradient steps, each in coordinates whitened by the approximation
#' so far, and once more from a wider start, which leads out of a funnel's neck; what has come to the place of another
#' is left there. Four more paths begin ten standard deviations away from the best one. The best one is
#' where the run begins, and what whitens it; with a `tol` it is whitened anew, by the fit so far,
#' whenever the budget doubles, and theorems hold within the last of these stages. `fit$search`
#' has the account: `evaluations`, points `outside` the domain, the `first_error` of the target,
#' and the `rivals` that other starts came to.
#'
#' A point where the target throws an error or is not finite is a rejected point. In the run the
#' gaussian that whitens it stands in for the target there, which is counted and said. An interrupt in the
#' search returns the best start so far as a fit, which `elvi(fit)` takes up.
#'
#' Such a fit has a `$verdict`, which is printed with it: [pareto_k()] of blocks of 10,000 draws, by how much
#' importance weights change means and standard deviations, and whether other starts ended as high
#' elsewhere (less than `log(100)` nats behind, more than two standard deviations away), with an R-hat over starts. There
#' is a warning of class `elvi_warning_verdict` if k-hat is at or above its limit or the weights leave fewer than 400
#' draws; if they move a mean by 0.3 standard deviations or change one by a factor of 1.5; if
#' other starts ended elsewhere; if the target fails at one draw in a hundred (where it is `Inf` it has no mass, and that is no
#' failure). What it cannot see: a mode that no start has come to, and the neck of a funnel that the approximation has no draws
#' in. What such a fit shows of the posterior, in tables, plots and draws, is corrected by these weights, see [elvi_fit].
#'
#' Where no start is searched, as for a convex target, the weights of up to 40,000 draws are the only check, and what they
#' do not confirm has not converged. Then they correct nothing, and other starts are not compared.
#'
#' Where that speaks against the approximation, or its weights leave less than a fifth of the draws, and there are at most 150
#' parameters, a mixture is adapted to the target in up to 15 rounds of 5,000 draws, which begin with the approximation and what
#' other starts ended in, and each fit the mixture to the weighted draws of the last ones (population Monte Carlo); the three best rounds
#' together are what is used. Its parts are student laws, bent along one direction as funnels and bananas are. Its moments are a second
#' opinion, with the same limits. Where something speaks against the approximation, the mixture takes its place in the verdict and
#' in what the fit shows if its own weights have a k-hat of at most 0.7, for each variance too, and leave a fifth of
#' the draws, and if the variance of the exponential of a parameter that is a logarithm rests on at least 400 of
#' them: a message of class `elvi_message_adapted` and print() say so, and why. Where nothing but other starts told of another place,
#' there may be more of them, and the warning stays. So does a warning of weights that leave less than a fifth of the
#' draws, if the mixture does not have more. `fit$mu`, `fit$Sigma`, [elbo()] and draws with
#' `resample = FALSE` are the approximation's. Without it, in more than 150 parameters and for a stack, a k-hat between its limit and 1 is
#' excused where the weights leave more than half of the draws.
#'
#' With `combine = "stack"` the result is a mixture of the gaussians that starts ended in at different places:
#' [coef()], [vcov()], draws, [elbo()], [pareto_k()] and the verdict are those of the mixture. `$stack` has its weights and parts.
#'
#' @section Many parameters:
#' A user-supplied density of more than 400 parameters is fitted by natural gradient steps on the pattern of its Hessian, unless a
#' `schedule`, `starts`, a base or a setting of a run is given; `method = "natural"` does so for fewer parameters too. At the best
#' gaussian the precision is the mean of the Hessian, so that a precision with its zeros loses nothing, and its sparse factor is all that
#' is kept. The pattern comes from a `hessian` that returns sparse matrices, from `sparsity`, or from a difference of gradients for
#' each parameter; the values from the Hessian or from few differences. Without zeros the precision is a full matrix for up to 1,000
#' parameters, and the scale low rank plus diagonal beyond.
#'
#' A gaussian of many effects and the logarithm of their standard deviation together is wrong however well it is fitted. Parameters that
#' change the curvature of most others, at most six, are therefore integrated over by quadrature, with the best gaussian of the others at
#' each point (`hyper` of [model_density()] names them, or none). Its log evidence is by draws that are the same at every point, and
#' corrected by importance weights.
#'
#' Importance weights are of no use in many dimensions. The verdict comes from 32 short chains of Hamiltonian Monte Carlo that begin in
#' draws of the approximation: if they move a mean by 0.3 standard deviations or change one by a factor of 1.5, or have not settled, that
#' is a problem; where they differ by more than their noise, but not by twice these limits, their points take the place of the
#' approximation. With hyperparameters they check the gaussian at the best of them. They do not see a mode that the search has not come
#' to, and only one place is searched.
#'
#' @section Polish:
#' Where importance weights leave less than a fifth of the draws or change moments by more than a verdict allows, and no mixture was
#' found that does better, `polish = TRUE` runs 16 chains of Hamiltonian Monte Carlo from the corrected draws. They use coordinates
#' whitened by the
#' covariance of these draws and then of their own, 200 iterations to adapt and 250 that are kept. What they visit takes the
#' place of the weighted draws in all methods; `fit$polish` has the account. The largest split R-hat is printed, with a warning of
#' class `elvi_warning_polish` above 1.05. An R-hat near 1 is necessary, not sufficient: short chains that start where the
#' approximation is may all miss the same part of the target. Weights that are good, also those of an adapted mixture, are better than short
#' chains, and then none are run.
#'
#' @param object a model (see [model_glm()], [model_quadratic()],
#'   [model_density()]) or a fit to continue.
#' @param base the variational base, see [bases].
#' @param method `"mpsgd"`, the stochastic algorithm; `"exact"`, the deterministic
#'   solver of [elvi_optimum()], for models with an exact objective ([model_glm()]
#'   without an auxiliary parameter, [model_quadratic()]). `"auto"` takes the exact
#'   one where there is one and its `dim` x `dim` matrices fit in memory (with more than
#'   2,000 sparse columns it makes none), unless
#'   `schedule`, `budget`, `start`, `starts` or one of these settings is given in `control`:
#'   `estimator`, `update`, `average`, `precondition`, `smoothness`, `scale_min`,
#'   `scale_max`, `mu_centre`, `mu_radius`, `iterations`, `checkpoint`, `rows_per_step`, `backtrack`.
#'   `"natural"`: see the section on many parameters.
#' @param tol stop when the estimated gap to the optimum plus two standard errors
#'   is below this many nats; say so, loudly, when the budget ends first. The gap
#'   is estimated from the gradient at the returned approximation over fresh
#'   batches, after every doubling of the evaluations. `NULL` spends the whole
#'   budget. For the exact method: the certificate to reach, 1e-9 by default.
#' @param schedule step and batch sizes, see [schedules].
#' @param budget gradient evaluations to spend: for a model, short for
#'   `schedule_tuned(budget)`, 5000 by default or 100,000 with a `tol`; for a fit,
#'   the new total.
#' @param start optional list with `mu` and `Sigma` (for a diagonal scale also a
#'   vector), in the model's coordinates. The default is the Laplace
#'   approximation at the mode; with `coordinates = "raw"` it is `mu = 0`, `Sigma
#'   = I / sqrt(L)`. Where a start is searched, `mu` without `Sigma` is the first point of the search.
#' @param starts for a target that is only a function ([model_density()], [model_stan()]) and not
#'   known to be convex: the number of points from which a start is searched, 6 by default. See
#'   the section on the search.
#' @param combine `"best"` returns the best of several starts; `"stack"` the mixture of those that ended at different
#'   places, with weights in proportion to `exp(ELBO)`, see the section on the search.
#' @param control see [elvi_control()].
#' @param correct show the posterior itself where the best gaussian differs from it? See [elvi.formula()].
#' @param polish for a user-supplied density: run short chains of Hamiltonian Monte Carlo where importance weights are too thin? See the
#'   section on it.
#' @param iterations for a fit: stop after this many iterations in all.
#' @param ... nothing: unknown names are errors.
#' @return An object of class `elvi_fit`. It has four parts by lifetime: `given` (the
#'   call and its arguments), `plan` (what was decided before the run),
#'   `state` (where the run is) and `result`; a fit of a formula also `regression`.
#'   `$` finds a field in any of them, and computes what follows from the result.
#'   Among others there are
#'   * `posterior`: what all methods read.
#'   * `mu`, `sd`, `Sigma`: means, standard deviations and symmetric scale of the approximation;
#'     `Sigma %*% Sigma` is its covariance. For a fit that integrates over hyperparameters these are of the mixture, hyperparameters
#'     included. `scale`, of the other fits, is the scale as it was
#'     parametrised, a lower triangular matrix for `scale = "triangular"`.
#'   * `method`: `"exact"`, `"mpsgd"`, `"nested"`, `"natural"` or `"integrated"`.
#'   * `kept`: `"average"` (or last iterate), `"start"` or, of the exact solver,
#'     `"optimum"`, which is then there too.
#'
#'   and of a stochastic run
#'   * `last`: `mu` and `scale` of the last iterate.
#'   * `smoothness`, `smoothness_source`: `L` in the coordinates of the run.
#'   * `trace`: a data frame with iteration, gradient evaluations, batch, step,
#'     an estimate of the objective at the iterate and its standard error (on
#'     the same draws throughout), the norm of the estimated gradient mapping,
#'     the number of clipped eigenvalues, and CPU seconds. Evaluations and steps are those
#'     made: with the checks of `elvi_control(backtrack = )`, and as these have shortened them.
#'   * `plan`: steps, batches, iterations and preconditioner in numbers.
#'   * `seed`, `rng_kind`: the key of the draws and R's generator it came from.
#'   * `status`: `"finished"`, `"paused"`, `"interrupted"` or `"diverged"`.
#' @seealso [objective()], [elbo()], [`elvi_fit methods`][elvi_fit]
#' @examples
#' elvi(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' # a model of one's own, another base, and the stochastic algorithm
#' X <- scale(as.matrix(infert[, c("age", "parity", "induced", "spontaneous")]))
#' model <- model_glm(cbind(1, X), infert$case, prior = normal(0, 2.5))
#' set.seed(1)
#' fit <- elvi(model, base = base_laplace(), schedule = schedule_fixed(5000, "case2"))
#' fit
#' coef(fit)
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
  bad_argument("object", "a formula, a model from a model_*() function, or a fit", describe(object))
}

#' @rdname elvi
#' @export
elvi.elvi_model <- function(object, base = base_gaussian(), schedule = NULL, budget = NULL,
                            start = NULL, control = elvi_control(), tol = NULL,
                            method = c("auto", "mpsgd", "exact", "natural"), starts = NULL, combine = c("best", "stack"),
                            correct = TRUE, polish = FALSE, ...) {
  check_dots(list(...), names(formals()), "elvi()")
  method <- check_choice(method, "method", c("auto", "mpsgd", "exact", "natural"))
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
  fit <- new_fit(given, plan, initial_state(start), no_result, problem$regression)
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
# given: the exact solver knows no constraints, steps or iterations.
stochastic_settings <- function(run, control) {
  arguments <- given_values(run[c("schedule", "budget", "start", "starts")])
  default <- elvi_control()
  mine <- c("estimator", "update", "average", "precondition", "smoothness", "scale_min", "scale_max",
            "mu_centre", "mu_radius", "iterations", "checkpoint", "rows_per_step", "backtrack")
  changed <- Filter(function(name) !identical(control[[name]], default[[name]]), mine)
  list(arguments = arguments, control = unclass(control)[changed])
}

# "auto" is exact where the model allows it, no one has asked for what only the stochastic
# method has, and the solver's matrices fit in memory.
choose_method <- function(method, model, stochastic, scale) {
  asked <- lengths(stochastic) > 0L
  if (method == "auto") {
    fits <- fits_in_memory(exact_size(model, scale))
    method <- if (has_exact(model) && scale_of(scale)$exact && !any(asked) && fits) "exact" else "mpsgd"
  }
  if (method == "exact" && !scale_of(scale)$exact) {
    bad_argument("method", sprintf("\"mpsgd\" with a scale of kind \"%s\": the exact solver has no such scales", scale), "\"exact\"")
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

#' @rdname elvi
#' @export
elvi.elvi_fit <- function(object, budget = NULL, iterations = Inf, ...) {
  check_dots(list(...), names(formals()), "elvi() on a fit")
  fit <- object
  if (fit$given$method != "mpsgd") {
    bad_argument("object", paste0("a fit by method = \"mpsgd\": a fit by method = \"", fit$given$method, "\" has nothing to continue"),
                 "this one")
  }
  iterations <- check_count(iterations, "iterations", infinite = TRUE)
  law <- law_of(fit$given$base, fit$given$model$dim)
  if (!is.null(budget)) {
    fit$given$schedule <- extend_budget(fit$given$schedule, budget, fit$state$evals - fit$state$checks)
    fit <- plan_again(fit, law)
    fit$state["stage"] <- list(NULL)
  }
  if (fit$state$k >= fit$plan$iterations && fit$result$status != "interrupted") {
    elvi_inform("The run is complete: nothing is left of its budget of ",
                format_count(fit$given$schedule$budget), " gradient evaluations.")
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
