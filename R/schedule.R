#' Schedules: step and batch sizes
#'
#' A schedule sets the step sizes and batch sizes of the stochastic algorithm, for a budget of gradient evaluations. The default,
#' `schedule_tuned()`, suits most problems.
#'
#' @section Schedules of the theory:
#'
#' `schedule_fixed()` has the finite-horizon settings of the theory, constant in
#' `k`, with `d` the dimension, `kappa` the kurtosis of the base, `L` the
#' smoothness of the target and `E` the budget:
#'
#' | preset | step | batch | iterations | preconditioner of Sigma |
#' |---|---|---|---|---|
#' | `"case1"` | `1/(2L)` | `sqrt((d + kappa) E)` | `sqrt(E / (d + kappa))` | 1 |
#' | `"case2"` | `1/(2L)` | `sqrt(E)` | `sqrt(E)` | `1/(2(d - 1 + kappa))` |
#' | `"psgd"` | `1/(2L sqrt((d - 1 + kappa) E))` | 1 | `E` | 1 |
#' | `"psgd_scaled"` | `1/(2L sqrt(E))` | 1 | `E` | `1/(2(d - 1 + kappa))` |
#'
#' The number of iterations is rounded to the nearest whole number of at least
#' 1, and the batch is the largest that keeps the total within the budget; the
#' fit's `$plan` says what was used.
#'
#' `schedule_decay()` lets the step decay, `step (k + 1)^-(1/2 + epsilon)`, with
#' batches `ceil(batch (k + 1)^growth)`: with `growth = 0` the first asymptotic
#' strategy of the theory, with `epsilon = 0` and `growth > 0` the second.
#' `schedule_growing()` is the third: constant steps, batches
#' `ceil(batch (k + 1)^(1 + nu))`. All three satisfy the condition of the
#' asymptotic theorem, that the sum of `step_k^2 / batch_k` is finite. Their
#' budget can be extended later by [elvi()] on the fit.
#'
#' @section Other schedules:
#' `schedule_tuned()`, the default of [elvi()], is for whitened coordinates: steps of 0.2, batches `N (k + 1)` with
#' `N = ceil(0.06 (d + min(kappa, 9)))`. The step was chosen by experiments. It is longer than `1/(2L)`, so no theorem covers
#' it. If a run ends more than a nat above its start, it is repeated with steps a quarter as long, up to three times. With the
#' control gradient and the tail average it ends far closer to the optimum than the settings that theorems cover.
#'
#' `schedule_certified()` has the constant step, batch, number of iterations and
#' preconditioner for which the smallest bound of [guarantee()] is smallest, and the weights of the average that belong to it.
#' They depend on the model, so they are computed when a run or a guarantee starts; `guarantee(...)$schedule` has them. It
#' uses the plain gradient (`estimator = "reparam"`), which the theorems are about, and is meant for
#' `elvi_control(coordinates = "majorant")`. It needs a convex target with a known smoothness and a known optimum. Models with an exact
#' objective have one; for others give `optimum` or `alpha` to [guarantee()] and run the schedule that it returns.
#'
#' `schedule_custom()` takes numbers, vectors or functions of the iteration `k = 0, 1, ...`.
#'
#' @param budget number of gradient evaluations to spend, at most.
#' @param preset which finite-horizon setting.
#' @param step first step size; for `schedule_custom()` also a vector or a
#'   function of `k`. The default is `1/(2L)`.
#' @param batch first batch size; for `schedule_custom()` also a vector or a
#'   function of `k`.
#' @param epsilon,growth exponents of the decaying schedule, not negative, not
#'   both zero; `epsilon < 1/2`.
#' @param nu positive excess of the growing schedule's exponent.
#' @param iterations number of iterations of a custom schedule; may be left out
#'   when a vector gives it.
#' @return An object of class `elvi_schedule`.
#' @examples
#' schedule_fixed(5000, "case2")
#' schedule_growing(5000, batch = 4, nu = 0.5)
#' schedule_custom(step = function(k) 0.1 / sqrt(k + 1), batch = 10, iterations = 100)
#' @name schedules
NULL

new_schedule <- function(kind, ...) structure(list(kind = kind, ...), class = "elvi_schedule")

#' @rdname schedules
#' @export
schedule_fixed <- function(budget = 5000, preset = c("case2", "case1", "psgd", "psgd_scaled")) {
  new_schedule("fixed", budget = check_budget(budget),
               preset = check_choice(preset, "preset", c("case2", "case1", "psgd", "psgd_scaled")))
}

#' @rdname schedules
#' @export
schedule_decay <- function(budget = 5000, step = NULL, batch = 1, epsilon = 0.1, growth = 0) {
  epsilon <- check_number(epsilon, "epsilon", 0)
  growth <- check_number(growth, "growth", 0)
  if (epsilon >= 0.5) bad_argument("epsilon", "below 1/2 (the steps must add up to infinity)", describe(epsilon))
  if (epsilon == 0 && growth == 0) {
    bad_argument("epsilon", "positive when `growth` is 0 (the sum of step^2 / batch must be finite)",
                 describe(epsilon))
  }
  new_schedule("power", name = "decay", budget = check_budget(budget),
               step = check_step(step), step_power = 0.5 + epsilon,
               batch = check_count(batch, "batch"), batch_power = growth)
}

#' @rdname schedules
#' @export
schedule_growing <- function(budget = 5000, step = NULL, batch = 1, nu = 0.1) {
  new_schedule("power", name = "growing", budget = check_budget(budget),
               step = check_step(step), step_power = 0,
               batch = check_count(batch, "batch"),
               batch_power = 1 + check_positive(nu, "nu"))
}

#' @rdname schedules
#' @export
schedule_tuned <- function(budget = 5000) {
  new_schedule("tuned", budget = check_budget(budget))
}

#' @rdname schedules
#' @export
schedule_certified <- function(budget = 5000) {
  new_schedule("certified", budget = check_budget(budget), numbers = NULL)
}

# A schedule with numbers that were computed for its model
certified_schedule <- function(budget, numbers) new_schedule("certified", budget = budget, numbers = numbers)

# more would take longer to plan than anyone waits
check_budget <- function(budget) {
  budget <- check_count(budget, "budget")
  if (budget > 1e10) bad_argument("budget", "at most 1e10", describe(budget))
  budget
}

check_step <- function(step) if (is.null(step)) NULL else check_positive(step, "step")

#' @rdname schedules
#' @export
schedule_custom <- function(step, batch = 1, iterations = NULL) {
  if (missing(step)) bad_argument("step", "a number, a vector or a function of k", "missing")
  lengths <- c(if (is.numeric(step) && length(step) > 1L) length(step),
               if (is.numeric(batch) && length(batch) > 1L) length(batch))
  if (is.null(iterations)) {
    if (!length(lengths)) {
      bad_argument("iterations", "given when neither `step` nor `batch` is a vector", "NULL")
    }
    iterations <- min(lengths)
  }
  iterations <- check_count(iterations, "iterations")
  if (iterations > 1e8) bad_argument("iterations", "at most 1e8", describe(iterations))
  step <- tabulate_over_k(step, "step", iterations)
  batch <- tabulate_over_k(batch, "batch", iterations)
  if (any(step <= 0)) bad_argument("step", "positive", describe(step[step <= 0][1L]))
  odd <- batch < 1 | batch != floor(batch)
  if (any(odd)) bad_argument("batch", "whole numbers of at least 1", describe(batch[odd][1L]))
  if (any(batch > 1e10)) bad_argument("batch", "at most 1e10", describe(max(batch)))
  new_schedule("custom", budget = sum(batch), step = step, batch = batch)
}

tabulate_over_k <- function(x, name, n) {
  if (is.function(x)) {
    # for all k at once if it can, else one by one
    value <- tryCatch(or_null(x(seq_len(n) - 1)), warning = function(w) NULL)
    if (length(value) != n) value <- vapply(seq_len(n) - 1, function(k) {
      v <- x(k)
      if (!is_number(v)) bad_argument(name, "a function of k that returns one number", describe(v))
      as.double(v)
    }, 0)
    x <- value
  }
  x <- check_vector(x, name)
  if (length(x) == 1L) return(rep(x, n))
  if (length(x) < n) {
    bad_argument(name, sprintf("of length 1 or at least %g, the number of iterations", n),
                 paste("of length", length(x)))
  }
  x[seq_len(n)]
}

#' @export
print.elvi_schedule <- function(x, ...) {
  cat(schedule_record(x)$words(x),
    ", budget ", format_count(x$budget), " gradient evaluations\n", sep = "")
  invisible(x)
}

# ---- a record for each kind ---------------------------------------------------

# plan: what of the plan it decides, see plan_schedule(); words: for print(); exponent, rate: see schedule_rate();
# open: no horizon of its own, so that it can be spent more on or cut into stages; horizon: constant steps made for one;
# listed: by hand, iteration by iteration; own_steps: for any problem; needs_L: of its model, for its steps; retried: with
# shorter steps where it gets nowhere; computed: its numbers belong to one model, base and budget
schedule_records <- list(
  fixed = list(
    plan = function(schedule, dim, kappa, L, control, shorten) plan_fixed(schedule, dim, kappa, L),
    words = function(x) sprintf("finite horizon, preset \"%s\"", x$preset),
    exponent = function(x) -1 / 2,
    rate = "finite horizon: a new budget has its own step, batch and number of iterations",
    open = FALSE, horizon = TRUE, listed = FALSE, own_steps = FALSE,
    needs_L = function(x) TRUE, retried = FALSE),
  power = list(
    plan = function(schedule, dim, kappa, L, control, shorten) {
      list(step0 = schedule$step %||% default_step(L), step_power = schedule$step_power, batch0 = schedule$batch,
           batch_power = schedule$batch_power)
    },
    words = function(x) {
      sprintf("%s: step_k = %s%s, batch_k = ceil(%g (k+1)^%g)", x$name,
              if (is.null(x$step)) "1/(2L)" else format(x$step),
              if (x$step_power > 0) sprintf(" (k+1)^-%g", x$step_power) else "", x$batch, x$batch_power)
    },
    # steps add up to K^(1 - step_power), batches to K^(1 + batch_power)
    exponent = function(x) -(1 - x$step_power) / (1 + x$batch_power),
    rate = "the steps add up to infinity and the sum of step^2/batch is finite",
    open = TRUE, horizon = FALSE, listed = FALSE, own_steps = TRUE,
    needs_L = function(x) is.null(x$step), retried = FALSE),
  tuned = list(
    plan = function(schedule, dim, kappa, L, control, shorten) plan_tuned(schedule, dim, kappa, control, shorten),
    words = function(x) "tuned for whitened coordinates",
    exponent = function(x) NA_real_,
    rate = "no theorem covers this schedule",
    open = TRUE, horizon = FALSE, listed = FALSE, own_steps = FALSE,
    needs_L = function(x) FALSE, retried = TRUE),
  certified = list(
    plan = function(schedule, dim, kappa, L, control, shorten) plan_certified(schedule),
    words = function(x) {
      if (is.null(x$numbers)) return("certified: step, batch, iterations and preconditioner of the smallest bound")
      sprintf("certified: steps of %s, batches of %s, %s iterations, preconditioner of Sigma %s", format(x$numbers$step, digits = 4),
              format_count(x$numbers$N), format_count(x$numbers$K), format(x$numbers$lambda[["Sigma"]], digits = 3))
    },
    exponent = function(x) -1 / 2,
    rate = "finite horizon: a new budget has its own step, batch and number of iterations",
    open = FALSE, horizon = TRUE, listed = FALSE, own_steps = FALSE,
    needs_L = function(x) TRUE, retried = FALSE, computed = TRUE),
  custom = list(
    plan = function(schedule, dim, kappa, L, control, shorten) {
      list(step_table = schedule$step, batch_table = schedule$batch)
    },
    words = function(x) sprintf("custom, %d iterations", length(x$step)),
    exponent = function(x) NA_real_,
    rate = "a schedule of finite length has no rate",
    open = FALSE, horizon = FALSE, listed = TRUE, own_steps = TRUE,
    needs_L = function(x) FALSE, retried = FALSE))

schedule_record <- function(schedule) schedule_records[[schedule$kind]]

is_computed <- function(schedule) isTRUE(schedule_record(schedule)$computed)

steps_from_L <- function(schedule) schedule_record(schedule)$needs_L(schedule)

# ---- from a schedule to a plan ------------------------------------------------

# The numbers the loop runs on. `L` may be NA when the schedule brings its own
# steps; without a precondition in `control` the preset decides. `shorten`: see
# with_shorter_steps().
plan_schedule <- function(schedule, dim, kappa, L, control = elvi_control(), shorten = 1) {
  plan <- schedule_record(schedule)$plan(schedule, dim, kappa, L, control, shorten)
  full <- list(step0 = 0, step_power = 0, batch0 = 1, batch_power = 0, step_table = NULL,
               batch_table = NULL, lambda = c(mu = 1, Sigma = 1), shorten = shorten,
               longest = Inf)   # theorems are about steps as they are
  full[names(plan)] <- plan
  plan <- full
  if (!schedule_record(schedule)$retried) plan[c("step0", "step_table")] <- list(plan$step0 / shorten, shorter(plan$step_table, shorten))
  plan$lambda <- control$precondition %||% plan$lambda
  plan$iterations <- plan$iterations %||% .Call(elvi_r_horizon, plan, schedule$budget)
  if (plan$iterations < 1) {
    bad_argument("budget", "at least the first batch", describe(schedule$budget))
  }
  plan$bg_a <- plan$bg_a %||% bg_a(dim, kappa, L, plan$lambda, control$scale)
  plan
}

shorter <- function(steps, by) if (!is.null(steps)) steps / by

default_step <- function(L) {
  if (is.na(L)) {
    elvi_abort("`step` is needed: its default is 1/(2L) and this model has no known smoothness L. ",
               "Give the schedule a `step`, or elvi_control() a `smoothness`.",
               class = c("elvi_error_smoothness", "elvi_error_argument"), data = list(argument = "step"))
  }
  1 / (2 * L)
}

# Steps of 0.2 suit whitened coordinates, where the curvature is about 1; first
# batches in proportion to the noise, d + kappa, keep the early steps stable; and
# batches that grow with k use a gradient's vanishing noise to the end.
plan_tuned <- function(schedule, dim, kappa, control, shorten) {
  if (!frame_of(control)$tuned) {
    bad_argument("schedule", sprintf("one with steps for %s coordinates; schedule_tuned() is for whitened ones", control$coordinates),
                 "schedule_tuned()")
  }
  first <- ceiling(0.06 * (dim + min(kappa, 9)))
  # and no step is longer than the norm of the scale, which only one that is about to explode would be
  list(step0 = 0.2 / shorten, batch0 = min(first, schedule$budget), batch_power = 1, longest = 1)
}

plan_certified <- function(schedule) {
  numbers <- schedule$numbers
  if (is.null(numbers)) stop("schedule_certified() was not computed for a model")   # guarantee() does
  list(step0 = numbers$step, batch0 = numbers$N, iterations = numbers$K, lambda = numbers$lambda, bg_a = numbers$weights)
}

plan_fixed <- function(schedule, dim, kappa, L) {
  if (!is.finite(kappa)) {
    elvi_abort("`schedule` preset \"", schedule$preset, "\" needs a base with finite kurtosis. ",
               "Use a student base with df > 4, or schedule_custom() with ",
               "elvi_control(average = \"tail\").",
               class = c("elvi_error_kurtosis", "elvi_error_argument"), data = list(argument = "schedule"))
  }
  if (is.na(L)) {
    elvi_abort("`schedule` preset \"", schedule$preset, "\" needs the smoothness L of the model, ",
               "which is not known. Give elvi_control() a `smoothness`, or use a schedule with a ",
               "`step` of its own.",
               class = c("elvi_error_smoothness", "elvi_error_argument"), data = list(argument = "schedule"))
  }
  E <- schedule$budget
  noise <- dim - 1 + kappa
  shrunk <- c(mu = 1, Sigma = 1 / (2 * noise))
  plain <- c(mu = 1, Sigma = 1)
  # K rounded, then the largest N with N K <= E
  split <- function(K, lambda) {
    K <- min(max(1, round(K)), E)
    N <- floor(E / K)
    step <- 1 / (2 * L)
    # a such that the averaging factor 1/(1 + a step^2 / N) is K / (K + 1)
    list(step0 = step, batch0 = N, iterations = K, lambda = lambda, bg_a = N / (K * step^2))
  }
  single <- function(step, lambda) list(step0 = step, batch0 = 1, iterations = E, lambda = lambda)
  switch(schedule$preset,
         case1 = split(sqrt(E / (dim + kappa)), plain),
         case2 = split(sqrt(E), shrunk),
         psgd = c(single(1 / (2 * L * sqrt(noise * E)), plain),
                  list(bg_a = 4 * (dim + kappa) * L^2)),
         psgd_scaled = c(single(1 / (2 * L * sqrt(E)), shrunk), list(bg_a = 4 * L^2)))
}

# a of the noise bound E|g|^2 <= a |theta - theta*|^2 + b in the metric of lambda:
# the block formula for a convex f, see moment_blocks() in bg.R
bg_a <- function(dim, kappa, L, lambda, kind = "symmetric") {
  metric_a(2 * moment_blocks(dim, kappa, L, aligned = is_aligned(kind))$slope, lambda)
}

# step and batch at iterations k (from 0)
plan_at <- function(plan, k) .Call(elvi_r_schedule, plan, as.double(k))

# A schedule without a horizon of its own, with more to spend.
extend_budget <- function(schedule, budget, spent) {
  budget <- check_budget(budget)
  if (!schedule_record(schedule)$open) {
    unused_argument("budget", "the schedule was made for a budget of its own. Start a new run, or use schedule_growing()")
  }
  if (budget < spent) {
    bad_argument("budget", sprintf("at least %g, what the run has spent", spent), describe(budget))
  }
  schedule$budget <- budget
  schedule
}
