#' Minibatch projected stochastic gradient descent
#'
#' `mpsgd()` minimises a function `F` over a product of closed convex sets, from noisy gradients that you compute. It is the algorithm
#' behind [elvi()] for problems of your own.
#'
#' @section The iteration:
#' `theta[k+1] = P(theta[k] - step[k] * lambda * g(theta[k], batch[k]))`
#'
#' with `g(theta, n)` the mean of `n` unbiased gradient estimates and `P` the
#' projection onto the set. [elvi()] runs it for variational inference, in C; `mpsgd()` runs it for a problem given as R functions.
#'
#' On a starting point, `mpsgd()` starts a run. On the result of one it continues it: a run that was interrupted or stopped by
#' `iterations` continues to the end of its schedule, and a run with [schedule_decay()] or [schedule_growing()] can be given a
#' larger `budget`.
#'
#' `gradient` draws from R's generator, or from another one. A run that is stopped by `iterations` and continued before anything else
#' draws random numbers is identical to one that was not stopped. An interrupt drops the current iteration, but not the random numbers it
#' has used.
#'
#' @section What is guaranteed:
#' The bounds below need three assumptions:
#' * The set is a product with one factor for each block of `start`, as it is when each block has its own projection.
#' * `F` is smooth on the set with constant `L`, and has a minimiser `theta*` there with gradient 0. If the minimiser is on the
#'   boundary and its gradient is not 0, the bounds can fail. With batches of 1 neither smoothness nor a gradient of 0 is
#'   needed.
#' * The noise grows at most quadratically with the distance from `theta*`, in the metric of `lambda`:
#'
#' `E |g|^2 <= a |theta - theta*|^2 + b`
#'
#' [mpsgd_guarantee()] computes the bounds below from the constants of your problem. The condition is for a single gradient
#' estimate (BG of Labarrière, Molinari, Villa and Rosasco, 2026): `|g|^2` is the sum over the blocks of the squared norm times
#' `lambda`, and `|theta - theta*|^2` is the sum of the squared norms divided by `lambda`.
#'
#' * **Convex `F`, steps at most `1/L`.** With constant step and batch and `K`
#'   iterations, the expected gap of the average `"theorem"` is at most
#'   `step/(2 batch) (a D + b) + D/(2 step K)`, `D = |theta[0] - theta*|^2`. With
#'   steps and batches that vary it is at most `(D + b/a)` over
#'   `2 sum_k step[k] exp(-a sum_{i <= k} step[i]^2/batch[i])`; it goes to 0
#'   when the steps add up to infinity and the sum of `step^2/batch` is finite,
#'   as for [schedule_decay()] and [schedule_growing()].
#' * **`F` not convex, steps below `1/L`, iterates that stay bounded.** The
#'   theory bounds the smallest expected squared gradient mapping. The bound goes
#'   to 0 only when the batches grow: shorter steps alone are not enough. Use
#'   [schedule_growing()], or [schedule_decay()] with `growth > 0`, and read the
#'   last iterate and `trace$gradient_map`: an average of iterates means little
#'   without convexity.
#'
#' The average `"theorem"` weights `theta[k]` by `step[k] * alpha[k+1]`, where
#' `alpha[k] = prod_{i < k} 1/(1 + a step[i]^2/batch[i])`: with constant step and batch by `tau^(k+1)`,
#' `tau = 1/(1 + a step^2/batch)`. A start outside the set is allowed, and counts in this average with its weight, so the
#' average may then lie outside too. All later iterates lie in the set.
#'
#' @section Steps that are checked:
#' With a `value` and `backtrack = n` no smoothness constant is needed. Before each step, twice the step along a gradient `p` is
#' tried on `n` new draws, and the steps are halved until `F` lies below its tangent plus `|theta' - theta|^2 / (4 step)` there
#' (within two standard errors). They stay halved, but every tenth iteration tries a step twice as long. The steps of the
#' schedule are then upper bounds. The step is chosen before its gradient is drawn, so the step and the noise are independent,
#' as the proofs need. For convex `F` with a minimum inside the set, every bound holds with a factor of 2 and the steps that
#' were taken, provided that the checks, which use draws and only the iterates, are right. If `F` is smooth with constant `L`
#' the steps are never halved below `1/(4L)`. The proof is in the maintainer's guide, `docs/internals.Rmd` of the sources.
#'
#' @param start where to start: a numeric vector or matrix, or a named list of
#'   them, the blocks of `theta`. Or the result of `mpsgd()`, to continue it.
#' @param gradient function of `theta`, in the shape of `start`, and `n`,
#'   returning the mean of `n` stochastic gradients at `theta`, in the same
#'   shape.
#' @param project projection onto the set, a function of one block that returns
#'   the nearest point of the set, see [projections]. When `start` is a list: a
#'   list of such functions, named as the blocks; a block without one is
#'   unconstrained.
#' @param schedule step and batch sizes: [schedule_custom()], or
#'   [schedule_decay()] or [schedule_growing()] with a `step`.
#' @param lambda preconditioner, a number in (0, 1] that multiplies the steps.
#'   When `start` is a list: a vector of them, named as the blocks; 1 for a block
#'   that is left out.
#' @param average the point to return: `"theorem"` (the weighted average of
#'   the convergence theorems, which needs `a`), `"tail"` (mean of the last part
#'   of the iterates) or `"last"`.
#' @param a the constant of the noise condition, not negative; 0 if the noise is
#'   bounded.
#' @param tail fraction of the iterations in the tail average.
#' @param objective optional function of `theta` returning `F`, or an estimate
#'   of it, for the trace.
#' @param value function of `theta` and `n`, returning the mean of `n` stochastic values of `F`
#'   (`Inf` outside its domain), for `backtrack`. It should draw the same numbers from R's
#'   generator as `gradient` does: it is called with the generator in the same state.
#' @param backtrack number of new draws to check each step with, at least 16; 0 for steps that
#'   are not checked. They are not part of the schedule's budget; a check costs as many draws of
#'   gradients twice, and of values twice.
#' @param iterations stop after this many iterations in all, even if the
#'   schedule has more.
#' @param checkpoint,checkpoint_every name of a file that keeps the state of the run, and the seconds between two states, as in
#'   [elvi_control()]: the same call resumes from the file, with R's generator as it was, with the same result, provided that
#'   `gradient` depends on `theta`, `n` and R's generator alone. Before the first step your functions are called once more, to
#'   identify them. A run that is continued by `mpsgd()` on a result writes no file.
#' @param budget new total of gradient evaluations. A tail average is then that
#'   of a longer run if its tail starts after the iterations already done;
#'   otherwise it also has the earlier iterates that were already in it.
#' @param ... not used: unknown names are errors.
#' @return An object of class `elvi_mpsgd`, a plain list with, among others,
#'   * `theta`: the average, in the shape of `start`;
#'   * `last`: the last iterate;
#'   * `trace`: a data frame with iteration, gradient evaluations, batch, step,
#'     `gradient_map` (the norm, in the metric of `lambda`, of
#'     `(theta[k] - theta[k+1])/(step lambda)`: the gradient mapping with the
#'     noise of its batch; without an active constraint the norm of the
#'     gradient estimate) and the objective at the iterate (`NA` without
#'     `objective`). It has the start, every iteration below 100, every 10th
#'     below 1000 and so on, and the last;
#'   * `shortened`: the factor by which checked steps are shorter than the schedule's at the end;
#'   * `plan`: steps, batches, iterations and preconditioner in numbers;
#'   * `status`: `"finished"`, `"paused"` or `"interrupted"`.
#'
#' An error in one of your functions reaches you unchanged. A gradient that is
#' not finite stops the run with an error of class `elvi_error_nonfinite`. An
#' interrupt returns the run so far, with a warning of class
#' `elvi_warning_interrupted`.
#' @seealso [mpsgd_guarantee()], [projections], [schedules]
#' @examples
#' # least squares with coefficients that are known not to be negative, a few rows at a time
#' X <- scale(cbind(light = -mtcars$wt, weak = -mtcars$hp, slow = mtcars$qsec, high = mtcars$drat))
#' y <- mtcars$mpg - mean(mtcars$mpg)
#' gradient <- function(theta, n) {
#'   rows <- sample(nrow(X), n, replace = TRUE)
#'   crossprod(X[rows, , drop = FALSE], X[rows, , drop = FALSE] %*% theta - y[rows]) / n
#' }
#' set.seed(1)
#' run <- mpsgd(c(light = 0, weak = 0, slow = 0, high = 0), gradient,
#'              project = project_box(0, Inf),
#'              schedule = schedule_growing(20000, step = 0.2, batch = 2),
#'              average = "tail",
#'              objective = function(theta) mean((X %*% theta - y)^2) / 2)
#' run
#' qr.solve(X, y)   # inside the box, so its gradient is 0, which the theorems need
#'
#' # twice the budget, from where it stopped
#' mpsgd(run, budget = 40000)$theta
#'
#' # two blocks: a mean in a ball and a matrix of second moments, from a stream
#' gradient <- function(theta, n) {
#'   x <- matrix(rnorm(2 * n), 2) * c(1, 3) + c(1, 2)
#'   list(mean = theta$mean - rowMeans(x), moment = theta$moment - tcrossprod(x) / n)
#' }
#' mpsgd(list(mean = c(0, 0), moment = diag(2)), gradient,
#'       project = list(mean = project_ball(0, 2), moment = project_psd()),
#'       schedule = schedule_decay(5000, step = 1, batch = 10),
#'       lambda = c(moment = 0.5), average = "tail")
#' @export
mpsgd <- function(start, ...) UseMethod("mpsgd")

#' @rdname mpsgd
#' @export
mpsgd.default <- function(start, gradient, project = NULL, schedule, lambda = NULL,
                          average = c("theorem", "tail", "last"), a = NULL, tail = 0.5,
                          objective = NULL, value = NULL, backtrack = 0, iterations = Inf,
                          checkpoint = NULL, checkpoint_every = 60, ...) {
  check_dots(list(...), names(formals()), "mpsgd()")
  if (!is.null(checkpoint)) check_file_name(checkpoint, "checkpoint")
  check_positive(checkpoint_every, "checkpoint_every", infinite = TRUE)
  blocks <- check_blocks(start)
  if (missing(gradient)) bad_argument("gradient", "a function of theta and n", "missing")
  if (missing(schedule)) bad_argument("schedule", "made by a schedule_*() function", "missing")
  fit <- structure(
    list(theta = NULL, last = NULL, trace = NULL, plan = NULL, status = "paused",
         schedule = schedule, gradient = check_gradient(gradient),
         project = check_project(project, blocks),
         objective = if (!is.null(objective)) check_function(objective, "objective"),
         value = if (!is.null(value)) check_function(value, "value"),
         backtrack = check_checks(backtrack, value), shortened = 1,
         average = check_choice(average, "average", c("theorem", "tail", "last")),
         tail = check_number(tail, "tail", 0, 1),
         state = list(theta = blocks, average = blocks, k = 0, evals = 0, alpha = 1, weight = 0, shorten = 1)),
    class = "elvi_mpsgd")
  if (!is.null(a)) a <- check_number(a, "a", 0)
  if (fit$average == "theorem" && is.null(a)) {
    refuse_argument("a", "`a` is missing: it is the noise constant in the weights of average = \"theorem\". average = \"tail\" needs none.")
  }
  fit$plan <- plan_mpsgd(schedule, check_lambda(lambda, blocks), a)
  iterations <- check_count(iterations, "iterations", infinite = TRUE)
  run_mpsgd(open_mpsgd_journal(fit, checkpoint, checkpoint_every), iterations)
}

#' @rdname mpsgd
#' @export
mpsgd.elvi_mpsgd <- function(start, budget = NULL, iterations = Inf, ...) {
  check_dots(list(...), names(formals()), "mpsgd() on a run")
  fit <- start
  iterations <- check_count(iterations, "iterations", infinite = TRUE)
  if (!is.null(budget)) {
    fit$schedule <- extend_budget(fit$schedule, budget, fit$state$evals)
    fit$plan <- plan_mpsgd(fit$schedule, fit$plan$lambda, fit$plan$bg_a)
  }
  if (fit$state$k >= fit$plan$iterations) {
    elvi_inform("The run is complete: its budget of ",
                format(fit$schedule$budget), " gradient evaluations is spent.")
    return(fit)
  }
  run_mpsgd(new_journal(fit), iterations)
}

# The plan of elvi(), with this problem's blocks and constant.
plan_mpsgd <- function(schedule, lambda, a) {
  check_class(schedule, "schedule", "elvi_schedule", "a schedule_*() function")
  if (!schedule_record(schedule)$own_steps) {
    bad_argument("schedule", paste("one with steps of its own, such as schedule_custom() (a preset",
                                   "needs L and kappa of an elliptic problem)"),
                 paste0("schedule_", schedule$kind, "()"))
  }
  if (is.null(schedule$step)) {
    bad_argument("schedule", "one with a `step` of its own (the default needs the smoothness of a model)",
                 paste0("schedule_", schedule$name, "() without it"))
  }
  plan <- plan_schedule(schedule, dim = 1, kappa = 3, L = NA_real_)
  plan$lambda <- lambda
  plan$bg_a <- a %||% NA_real_
  plan
}

# ---- the algorithm -----------------------------------------------------------

# Runs fit until `iterations` are done in all, or its schedule ends. `state`
# changes by whole iterations, so an interrupt finds a consistent one.
run_mpsgd <- function(journal, iterations) {
  fit <- journal$fit
  fit$random <- NULL
  state <- fit$state
  interrupted <- FALSE
  tryCatch({
    if (is.null(fit$trace) && is.null(state$rows)) state <- record(fit, state)
    while (state$k < min(iterations, fit$plan$iterations)) {
      state <- mpsgd_step(fit, state)
      if (!is.null(journal$file)) journal_write(journal, with_random_state(fit, state))
    }
  }, interrupt = function(condition) interrupted <<- TRUE)
  close_journal(journal, journal$fit)   # a whole iteration with the numbers it has drawn

  if (length(state$rows)) fit$trace <- join_traces(fit$trace, as.data.frame(do.call(rbind, state$rows)))
  state$rows <- NULL
  fit$state <- state
  fit$theta <- in_shape(state$average)
  fit$last <- in_shape(state$theta)
  fit$shortened <- state$shorten
  fit$status <- if (state$k < fit$plan$iterations) "paused" else "finished"
  if (interrupted) {
    fit$status <- "interrupted"
    elvi_warn("Interrupted after ", state$k, " of ", fit$plan$iterations,
              " iterations: this is the run so far. mpsgd(run) resumes it.",
              class = "elvi_warning_interrupted")
  }
  fit
}

# The stored state must be one that such a run can reach.
refuse_unsound_mpsgd <- function(file, progress, fit) {
  if (!same_shape(progress$state, fit$state) || !is.integer(progress$random)) {
    bad_checkpoint(file, "a checkpoint", "one whose numbers have other types or lengths than this run's")
  }
  numbers <- unlist(Filter(is.numeric, progress$state))
  if (!all_in(numbers) || !all_in(progress$state$k, 0, fit$plan$iterations, whole = TRUE)) refuse_values(file)
}

# The state of the run and of R's generator, for a checkpoint.
with_random_state <- function(fit, state) {
  fit$state <- state
  fit$random <- random_state()
  fit
}

open_mpsgd_journal <- function(fit, file, every) {
  if (is.null(file)) return(new_journal(fit))
  journal <- new_journal(with_random_state(fit, fit$state), file, every,
                         progress = function(fit) fit[c("state", "random")])
  journal$fingerprint <- mpsgd_fingerprint(journal$fit)
  begin_journal(journal, function(stored, journal, fit) {
    refuse_difference(journal$file, mpsgd_difference(stored$fingerprint, journal$fingerprint, fit))
    refuse_unsound_mpsgd(journal$file, stored$progress, fit)
    fit[c("state", "random")] <- stored$progress
    say_resuming(journal$file, fit)
    fit
  })
  set_random_state(journal$fit$random)
  journal
}

# What decides a run. The user's functions are known by what they do in its first step.
mpsgd_fingerprint <- function(fit) {
  list(exact = exact_fingerprint(algorithm = "mpsgd", start = fit$state$theta, schedule = unclass(fit$schedule),
                                 lambda = fit$plan$lambda, a = fit$plan$bg_a, average = fit$average,
                                 tail = fit$tail, objective = is.null(fit$objective), backtrack = fit$backtrack,
                                 project = vapply(fit$project, is.null, NA)),
       random = fit$random, first = first_step(fit, fit$random))
}

first_step <- function(fit, random) {
  before <- random_state()
  on.exit(set_random_state(before))
  set_random_state(random)
  state <- mpsgd_step(fit, fit$state)
  far <- function(by) {   # where a constraint that is not active yet may be
    or_null(project_blocks(fit, state, lapply(state$theta, `*`, by)))
  }
  list(step = state[c("theta", "rows")], far = list(far(10), far(-10)))
}

mpsgd_difference <- function(stored, now, fit) {
  found <- first_difference(stored$exact, now$exact)
  if (!is.null(found)) return(found)
  if (about_same(stored$first, first_step(fit, stored$random))) return(NULL)
  list(what = "gradient", how = ", project or objective (their values are others)")
}

mpsgd_step <- function(fit, state) {
  at <- plan_at(fit$plan, state$k)
  if (fit$backtrack > 0) state$shorten <- backtracked(fit, state, at$step)
  at$step <- at$step / state$shorten
  g <- gradient_at(fit, state, at$batch)
  moved <- Map(function(x, g, lambda) x - at$step * lambda * g, state$theta, g, fit$plan$lambda)
  following <- project_blocks(fit, state, moved)
  distance2 <- mapply(function(x, y, lambda) sum((x - y)^2) / lambda,
                      state$theta, following, fit$plan$lambda)

  if (fit$average == "theorem") {   # weighs the iterates that gradients were taken at
    state$alpha <- state$alpha / (1 + fit$plan$bg_a * at$step^2 / at$batch)
    state <- fold_in(state, at$step * state$alpha)
  }
  state$theta <- following
  state$k <- state$k + 1
  state$evals <- state$evals + at$batch
  if (fit$average != "theorem") {
    if (fit$average == "last" || state$k <= tail_start(fit)) state$weight <- 0   # start anew
    state <- fold_in(state, 1)
  }
  record(fit, state, at, map = sqrt(sum(distance2)) / at$step)
}

# The factor to divide steps by, doubled until the check passes, and tried halved in every tenth
# iteration. Before the gradient of the step is drawn: the step must not depend on it.
backtracked <- function(fit, state, step) {
  shorten <- if (state$k %% 10 == 0) max(1, state$shorten / 2) else state$shorten
  while (bends_up(fit, state, step / shorten)) {
    shorten <- 2 * shorten
    if (shorten > 2^60) {
      elvi_abort("No step passes the check in iteration ", state$k + 1, ": `value` may not be what `gradient` is the ",
                 "gradient of.", class = "elvi_error_nonfinite",
                 data = list(iteration = state$k + 1, theta = in_shape(state$theta)))
    }
  }
  shorten
}

# Is F(theta - 2 step Lambda p) above F(theta) - 2 step <grad F, p> + step |p|^2, in the metric of
# Lambda and by more than noise? p is a gradient on draws of its own, so that the others, in eight
# batches, know nothing of it. With p = grad F the negation is the descent of docs/internals.Rmd.
bends_up <- function(fit, state, step, batches = 8L) {
  lambda <- fit$plan$lambda
  p <- gradient_at(fit, state, fit$backtrack)
  ahead <- state
  ahead$theta <- Map(function(x, p, lambda) { x[] <- x - 2 * step * lambda * p; x }, state$theta, p, lambda)
  inner <- function(g) sum(mapply(function(g, p, lambda) lambda * sum(g * p), g, p, lambda))
  n <- fit$backtrack %/% batches
  excess <- vapply(seq_len(batches), function(i) {
    before <- random_state()
    here <- value_at(fit, state, n)
    set_random_state(before)
    there <- value_at(fit, ahead, n)
    set_random_state(before)
    there - here + 2 * step * inner(gradient_at(fit, state, n)) - step * inner(p)
  }, 0)
  !all(is.finite(excess)) || mean(excess) > 2 * stats::sd(excess) / sqrt(batches)
}

value_at <- function(fit, state, n) {
  value <- fit$value(in_shape(state$theta), n)
  if (!is.numeric(value) || length(value) != 1L) {
    bad_argument("value", "a function of theta and n that returns one number", describe(value))
  }
  as.double(value)
}

check_checks <- function(n, value) {
  n <- check_backtrack(n)
  if (n > 0 && is.null(value)) refuse_argument("value", "`value` is missing: `backtrack` compares it before and after a step.")
  n
}

# the first iterate of the tail average: floor(tail * K) iterates end at K
tail_start <- function(fit) {
  K <- fit$plan$iterations
  K - floor(fit$tail * K) + 1
}

# state$average, a running weighted mean, takes in state$theta
fold_in <- function(state, weight) {
  state$weight <- state$weight + weight
  by <- weight / state$weight
  # m + 1 * (x - m) is not x after rounding
  state$average <- if (by == 1) state$theta else
    Map(function(m, x) m + by * (x - m), state$average, state$theta)
  state
}

gradient_at <- function(fit, state, n) {
  g <- conform(fit$gradient(in_shape(state$theta), n), state$theta, "gradient")
  if (!all_finite(g)) {
    elvi_abort("The gradient is not finite in iteration ", state$k + 1, ". The iterate there starts with ",
               toString(format(utils::head(unlist(state$theta), 5), digits = 3)),
               ". The steps of `schedule` may be too long.",
               class = "elvi_error_nonfinite",
               data = list(iteration = state$k + 1, theta = in_shape(state$theta)))
  }
  g
}

project_blocks <- function(fit, state, moved) {
  out <- moved
  for (b in which(lengths(fit$project) > 0L)) {
    value <- conform_block(fit$project[[b]](moved[[b]]), moved[[b]], "project", names(moved)[b])
    out[[b]][] <- value
  }
  if (!all_finite(out)) {
    if (all_finite(moved)) bad_argument("project", "a function that returns finite numbers", "NaN or Inf")
    elvi_abort("The iterate is not finite after iteration ", state$k + 1,
               ". The steps of `schedule` are too long.", class = "elvi_error_nonfinite",
               data = list(iteration = state$k + 1, theta = in_shape(state$theta)))
  }
  out
}

record <- function(fit, state, at = list(batch = NA, step = NA), map = NA_real_) {
  if (!on_trace_grid(state$k) && state$k != fit$plan$iterations) return(state)
  value <- NA_real_
  if (!is.null(fit$objective)) {
    value <- fit$objective(in_shape(state$theta))
    if (!is.numeric(value) || length(value) != 1L) {
      bad_argument("objective", "a function of theta that returns one number", describe(value))
    }
  }
  row <- c(iteration = state$k, evals = state$evals, batch = at$batch, step = at$step,
           gradient_map = map, objective = as.double(value))
  state$rows <- c(state$rows, list(row))
  state
}

# ---- blocks ------------------------------------------------------------------

# Inside, theta is always a list of blocks; one without names is a `start` that
# was not a list. The user's functions see what the user gave.
in_shape <- function(blocks) if (is.null(names(blocks))) blocks[[1L]] else blocks

all_finite <- function(blocks) all(vapply(blocks, function(x) all(is.finite(x)), NA))

check_blocks <- function(start) {
  if (!is.list(start)) return(list(check_block(start, "start")))
  labels <- names(start)
  if (is.data.frame(start) || !length(start) || is.null(labels) || anyNA(labels) ||
        !all(nzchar(labels)) || anyDuplicated(labels)) {
    bad_argument("start", "a numeric vector or matrix, or a list of them with a name for each",
                 if (is.data.frame(start)) describe(start) else "a list with missing or repeated names")
  }
  Map(check_block, start, paste0("start$", labels))
}

check_block <- function(x, name) {
  if (!is.numeric(x) || is.object(x) || !length(x)) {
    bad_argument(name, "a numeric vector or matrix that is not empty", describe(x))
  }
  if (!all(is.finite(x))) {
    refuse_missing(name, x[!is.finite(x)][1L], sprintf("at position %d", which(!is.finite(x))[1L]))
  }
  storage.mode(x) <- "double"
  x
}

check_gradient <- function(gradient) {
  check_function(gradient, "gradient")
  signature <- args(gradient)   # NULL for some primitives
  known <- if (!is.null(signature)) names(formals(signature))
  if (!is.null(signature) && length(known) < 2L && !"..." %in% known) {
    bad_argument("gradient", "a function of two arguments, theta and the batch size n",
                 paste("a function of", length(known)))
  }
  gradient
}

# a list with a function, or NULL, for each block
check_project <- function(project, blocks) {
  labels <- names(blocks)
  if (is.null(labels)) {
    if (!is.null(project)) check_function(project, "project")
    return(list(project))
  }
  if (!is.null(project) && (!is.list(project) || is.null(names(project)))) {
    bad_argument("project", "a list of functions with the names of the blocks of `start`", describe(project))
  }
  check_block_names(names(project), labels, "project")
  for (b in names(project)) {
    if (!is.null(project[[b]])) check_function(project[[b]], paste0("project$", b))
  }
  stats::setNames(lapply(labels, function(b) project[[b]]), labels)
}

check_lambda <- function(lambda, blocks) {
  labels <- names(blocks)
  out <- stats::setNames(rep(1, length(blocks)), labels)
  if (is.null(lambda)) return(out)
  if (is.list(lambda)) lambda <- unlist(lambda)
  if (is.null(labels)) {
    if (!is_number(lambda)) bad_argument("lambda", "a number in (0, 1]", describe(lambda))
  } else {
    if (!is.numeric(lambda) || is.null(names(lambda))) {
      bad_argument("lambda", "a numeric vector with the names of the blocks of `start`", describe(lambda))
    }
    check_block_names(names(lambda), labels, "lambda")
  }
  outside <- is.na(lambda) | lambda <= 0 | lambda > 1
  if (any(outside)) bad_argument("lambda", "in (0, 1]", describe(unname(lambda[outside][1L])))
  if (is.null(labels)) return(as.double(lambda))
  out[names(lambda)] <- lambda
  out
}

check_block_names <- function(given, labels, name) {
  unknown <- setdiff(given, labels)
  if (length(unknown)) {
    bad_argument(name, paste0("named as the blocks of `start` (", toString(labels), ")"),
                 encodeString(unknown[1L], quote = "\""))
  }
  if (anyDuplicated(given)) {
    bad_argument(name, "given once for each block", paste("twice for", given[duplicated(given)][1L]))
  }
}

# What a user's function returned, as plain numbers block by block.
conform <- function(value, like, name) {
  labels <- names(like)
  if (is.null(labels)) return(list(conform_block(value, like[[1L]], name, NULL)))
  if (!is.list(value) || length(value) != length(like) || !setequal(names(value), labels)) {
    got <- if (is.list(value)) paste0("a list with (", toString(names(value)), ")") else describe(value)
    bad_argument(name, paste0("a function that returns a list with (", toString(labels), ")"), got)
  }
  Map(function(v, x, label) conform_block(v, x, name, label), value[labels], like, labels)
}

conform_block <- function(value, like, name, label) {
  # A %*% x is a matrix of one column where x is a vector: that is the same shape
  same <- if (is.null(dim(like))) {
    length(value) == length(like) && (is.null(dim(value)) || NCOL(value) == 1L)
  } else {
    identical(dim(value), dim(like))
  }
  if (!is.numeric(value) || is.factor(value) || !same) {
    shape <- if (is.matrix(like)) sprintf("a %d x %d numeric matrix", nrow(like), ncol(like)) else
      sprintf("a numeric vector of length %d", length(like))
    bad_argument(name, paste0("a function that returns ", shape,
                              if (!is.null(label)) paste0(" for block `", label, "`")), describe(value))
  }
  as.double(value)
}

# ---- print -------------------------------------------------------------------

#' @export
print.elvi_mpsgd <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  check_digits(digits)
  cat("Minibatch projected SGD\n")
  print(x$schedule)
  cat(sprintf("Run %s: %s of %s iterations, %s gradient evaluations\n",
              if (x$status == "interrupted") "INTERRUPTED" else x$status,
              format(x$state$k, big.mark = ","), format(x$plan$iterations, big.mark = ","),
              format(x$state$evals, big.mark = ",")))
  if (x$backtrack > 0) {
    cat("Steps checked on ", format_count(x$backtrack), " draws each, and divided by ", format_count(x$shortened), "\n", sep = "")
  }
  if (x$state$k > 0) {
    row <- x$trace[nrow(x$trace), ]
    cat("At iteration ", format(row$iteration, big.mark = ","), ": gradient mapping ",
        format(row$gradient_map, digits = digits),
        if (!is.na(row$objective)) c(", objective ", format(row$objective, digits = digits),
                                     " (started at ", format(x$trace$objective[1L], digits = digits), ")"),
        "\n", sep = "")
  }
  cat("\n", switch(x$average, theorem = "Weighted average of the iterates",
                   tail = "Average of the last iterates", last = "Last iterate"), ":\n", sep = "")
  for (b in seq_along(x$state$average)) {
    if (is.list(x$theta)) cat("$", names(x$theta)[b], "\n", sep = "")
    print_corner(x$state$average[[b]], digits)
  }
  invisible(x)
}

# at most ten rows and columns
print_corner <- function(block, digits, most = 10L) {
  if (is.matrix(block)) {
    shown <- block[seq_len(min(most, nrow(block))), seq_len(min(most, ncol(block))), drop = FALSE]
  } else {
    shown <- utils::head(block, most)
  }
  print(shown, digits = digits)
  if (length(shown) < length(block)) cat("... and", length(block) - length(shown), "more\n")
}
