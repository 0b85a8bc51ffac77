# From a fit that is set up to one that has run: the way into C and back.

# What C calls a status that it returned: "ok", "stopped" by an interrupt, or what went wrong.
status_name <- function(status) .Call(elvi_r_status_names)[status + 1L]

# Runs fit until `iterations` are done in all, or its schedule ends, or, with a
# tolerance, the estimated gap is below it. An interrupt that C has not seen, because
# it fell between two calls, is the same to the user as one that it has.
run <- function(journal, law, iterations) {
  fit <- tryCatch({
    fit <- attempt_run(journal$fit, law, iterations, journal)
    close_journal(journal, fit)
    fit
  }, interrupt = function(condition) {
    # noted as ended: only the closing was interrupted
    fit <- if (has_ended(journal$fit)) journal$fit else mark_interrupted(journal$fit)
    close_journal(journal, fit)
    fit
  })
  tryCatch(judge_and_report(fit), interrupt = function(condition) report_unjudged(fit))
}

# The run is complete; judging it takes the remaining time.
report_unjudged <- function(fit) {
  elvi_warn("Interrupted while the fit was checked: the fit is that of the run (", fit$result$status,
            "), without a verdict. pareto_k() and elbo() judge it.", class = "elvi_warning_interrupted")
  if (needs_check(fit) && isTRUE(fit$result$converged)) fit$result$converged <- NA
  fit
}

attempt_run <- function(fit, law, iterations, journal) {
  attempt <- function(fit) {
    if (is.null(fit$given$tol)) advance(fit, law, iterations, journal)
    else run_to_tolerance(fit, law, iterations, journal)
  }
  tryCatch(
    if (may_shorten(fit) && !has_ended(fit)) with_shorter_steps(fit, law, attempt) else attempt(fit),
    elvi_error_nonfinite = function(e) back_from_explosion(fit, e),
    elvi_error_singular = function(e) back_from_explosion(fit, e))
}

# A user-supplied density must not end a run without a fit: where its steps gave non-finite values, the start
# is returned, with a warning.
back_from_explosion <- function(fit, error) {
  if (!is_guarded(fit)) stop(error)
  elvi_warn("The run diverged. ", conditionMessage(error), " The start is returned.", class = "elvi_warning_diverged")
  fit <- choose_iterate(back_to_start(fit), "start", NA_real_)
  fit$result$status <- "diverged"
  fit
}

# What ended may be given more to spend; what did not is still the same run.
has_ended <- function(fit) isTRUE(fit$result$status %in% c("finished", "diverged"))

# The tuned schedule's step suits most targets; for the others, quarter it until
# the run improves on its start. The steps of another schedule are the user's choice: they are quartered only if a run on a
# user-supplied density, whose steepness is unknown, explodes.
with_shorter_steps <- function(fit, law, attempt) {
  failed <- if (is_retried(fit)) gets_nowhere else has_diverged
  while (fit$plan$shorten < most_shortened) {
    out <- tryCatch(attempt(fit), elvi_error_nonfinite = identity, elvi_error_singular = identity)
    if (!inherits(out, "error") && (out$result$status == "interrupted" || !failed(out) || is_paused(out))) return(out)
    fit <- back_to_start(plan_again(fit, law, 4 * fit$plan$shorten))
  }
  attempt(fit)
}

# The first iterations of a run may well be above its start.
is_paused <- function(fit) fit$result$status == "paused" && !has_diverged(fit)

is_retried <- function(fit) schedule_record(fit$given$schedule)$retried

may_shorten <- function(fit) is_retried(fit) || is_guarded(fit)

warn_of_shorter <- function(fit) {
  if (is_retried(fit) || !isTRUE(fit$plan$shorten > 1)) return(invisible())
  elvi_warn("The run diverged with the steps of its schedule, and was repeated with steps ", fit$plan$shorten,
            " times shorter.", class = "elvi_warning_shortened", data = list(shorten = fit$plan$shorten))
}

most_shortened <- 64

# The numbers of the schedule for another budget, or for steps that are `shorten` times shorter.
plan_again <- function(fit, law, shorten = fit$plan$shorten) {
  numbers <- plan_schedule(fit$given$schedule, fit$given$model$dim, law$kurtosis, fit$plan$smoothness,
                           fit$given$control, shorten)
  fit$plan[names(numbers)] <- numbers
  fit
}

# A run that has done nothing yet. Everything has its place from the beginning, so that a
# run in pieces makes the same list as one in a single piece.
back_to_start <- function(fit) {
  fit$state <- initial_state(fit$plan$start, fit$given$control, fit$plan$smoothness)
  fit$result <- no_result
  fit
}

initial_state <- function(start, control, L) {
  list(mu = start$mu, scale = start$scale, average_mu = start$mu, average_scale = start$scale,
       k = 0, evals = 0, alpha = 1, weight = 0, memory = fixed_weight(control, L), shorten = 1, steepest = 1, checks = 0,
       outside = 0, looked = 0, first_error = NULL, stage = NULL)
}

# What an estimator remembers before its first batch: nothing, or the weight that it is given
fixed_weight <- function(control, L) {
  if (!has_fixed_weight(control)) return(numeric())
  if (is.na(L)) {
    refuse_argument("estimator", "`estimator` = ", describe(control$estimator), " needs a smoothness L: its weight is in units of L. Give ",
                    "elvi_control() a `smoothness`, or use another estimator.")
  }
  relative_weight(control) * L
}

no_result <- list(trace = NULL, cpu = 0, status = NULL, kept = NULL, theta = NULL, lost = NULL, remaining = NULL,
                  converged = NULL, verdict = NULL, stack = NULL)

# More than a nat above its start: not the noise of a run that began at the optimum.
gets_nowhere <- function(fit) {
  has_diverged(fit) || (fit$result$kept == "start" && !isTRUE(fit$result$lost <= 1))
}

# On to `iterations`, or to the end of the stage or of the schedule. A run is finished
# once it has been judged: a checkpoint of one that only has no iterations left is not.
advance <- function(fit, law, iterations, journal) {
  fit <- iterate(fit, law, iterations, journal)
  if (fit$result$status == "interrupted") return(mark_interrupted(fit))
  fit <- choose_better_iterate(fit, law)
  if (fit$state$k >= fit$plan$iterations) fit$result$status <- "finished"
  fit
}

# The same without a look at what has been reached: only the state and $status go on.
iterate <- function(fit, law, iterations, journal) {
  repeat {
    fit <- run_slice(fit, law, iterations, journal)
    journal_write(journal, fit)
    if (fit$result$status == "interrupted" || fit$state$k >= min(iterations, horizon_of(fit))) return(fit)
  }
}

# where the averages and the trace end
horizon_of <- function(fit) fit$state$stage$end %||% fit$plan$iterations

# One call into C, until the journal is due for an entry.
run_slice <- function(fit, law, iterations, journal) {
  settings <- run_settings(fit, iterations)
  settings$pause_after <- if (subsamples(fit)) 0 else journal_due_in(journal)   # other rows in each iteration
  account <- new_account()
  out <- .Call(elvi_r_run, iteration_model(run_model(fit, account), fit, law), law, settings, fit$state)
  fit$state$outside <- fit$state$outside + account$outside
  fit$state$looked <- fit$state$looked + account$evaluations
  fit$state["first_error"] <- list(fit$state$first_error %||% account$first_error)
  fit$state[names(out$state)] <- out$state
  fit$result$cpu <- out$cpu
  fit$result$trace <- join_traces(fit$result$trace, list2DF(out$trace))
  check_status(out$status, fit)
  fit$result$status <- if (status_name(out$status) == "stopped") "interrupted" else "paused"
  if (out$limited) stop_at_time_limit(journal, fit)
  fit
}

# The error of setTimeLimit() is passed on to the caller, with the run so far.
stop_at_time_limit <- function(journal, fit) {
  fit <- mark_interrupted(fit)
  close_journal(journal, fit)
  elvi_abort("reached elapsed time limit, or that of CPU time, of setTimeLimit(), after ", format_count(fit$state$k), " of ",
             format_count(fit$plan$iterations), " iterations. ",
             if (is.null(journal$file)) "The error's `fit` is the run so far; elvi_control(checkpoint = ) keeps it on disk."
             else paste0("The same call resumes from the checkpoint (", journal$file, ")."),
             class = "elvi_error_time_limit", data = list(fit = fit))
}

# The fit so far. Its user wants it now: instead of evaluating the target once more,
# compare with the start by what the trace has.
mark_interrupted <- function(fit) {
  fit$result$status <- "interrupted"
  rows <- c(1L, NROW(fit$result$trace))
  noise <- sqrt(sum(fit$result$trace$se[rows]^2))
  worse <- NROW(fit$result$trace) > 1L && isTRUE(diff(fit$result$trace$objective[rows]) > 2 * noise)
  choose_iterate(fit, if (worse) "start" else "average", NA_real_)
}

# The end of a run: its verdict, and messages and warnings.
judge_and_report <- function(fit) {
  fit <- judge(check_divergence(fit))
  if (is.nan(fit$result$lost) && is_user_density(fit$given$model)) {
    elvi_warn("`value` is not finite at draws of the approximation: the run cannot be compared with its start, ",
              "which is returned. `$last` has the last iterate.", class = "elvi_warning_nonfinite")
  } else if (fit$result$kept == "start" && fit$result$status == "finished") {
    elvi_inform("The run did not improve on its start, which is returned. ",
                "A larger budget or shorter steps may help.", class = "elvi_message_start_kept")
  }
  if (fit$result$status == "interrupted") {
    elvi_warn("Interrupted after ", format_count(fit$state$k), " of ", format_count(fit$plan$iterations),
              " iterations: this is the fit so far. elvi(fit) resumes the run.",
              class = "elvi_warning_interrupted")
  } else if (isFALSE(fit$result$converged)) {
    elvi_warn("Not converged: ", why_not_converged(fit), class = "elvi_warning_not_converged")
  }
  warn_of_shorter(fit)
  warn_of_outside(fit)
  report_judgement(fit)
  fit
}

why_not_converged <- function(fit) {
  gap <- fit$result$remaining
  if (is_mostly_outside(gap)) return(sprintf("the target fails at %.0f%% of the draws of the fit, so the gap is not known.",
                                                100 * gap$outside))
  if (!is_confirmed(fit)) return(paste0("the estimated gap is below `tol` = ", format(fit$given$tol),
                                        ", but that is to an optimum nearby, and importance weights do not confirm the fit."))
  if (!is.finite(gap$estimate + gap$se)) return("the gap could not be estimated, because the gradient overflows at draws of the fit.")
  paste0("the budget of ", format_count(fit$given$schedule$budget), " gradient evaluations ended with an estimated gap of ",
         format(gap$estimate, digits = 2), " nats (standard error ", format(gap$se, digits = 2), "), above `tol` = ",
         format(fit$given$tol), ". elvi(fit, budget = ) resumes the run.")
}

run_settings <- function(fit, iterations) {
  control <- fit$given$control
  plan <- fit$plan
  if (control$average == "theorem" && !is.finite(plan$bg_a)) {
    elvi_abort("`average` = \"theorem\" needs the noise constant of the theorem, which ",
               if (is.na(plan$bg_a)) "is unknown without the smoothness L"
               else "is infinite for a base of infinite kurtosis",
               ". Use elvi_control(average = \"tail\").",
               class = "elvi_error_argument", data = list(argument = "average"))
  }
  horizon <- horizon_of(fit)
  largest <- max(plan_at(plan, c(0, horizon - 1))$batch, plan$batch_table)
  block <- control$block %||% min(longest_block(fit$given$model), max(1, 2^26 %/% fit$given$model$dim))
  block <- max(1, min(block, max(largest, traced_draws(fit))))
  check_size(3 * block * fit$given$model$dim, "block", block)   # draws, points and gradients
  list(schedule = plan,
       iterations = min(iterations, horizon), horizon = horizon,
       fresh = is.null(fit$result$trace) || !nrow(fit$result$trace),
       seed = fit$plan$seed, scale = control$scale, estimator = control$estimator,
       update = control$update, lambda_mu = plan$lambda[["mu"]],
       mu_root = fit$plan$work$mu_root,
       lambda_scale = plan$lambda[["Sigma"]],
       scale_min = fit$plan$feasible$scale_min, scale_max = fit$plan$feasible$scale_max,
       mu_centre = fit$plan$feasible$mu_centre, mu_radius = fit$plan$feasible$mu_radius,
       longest = longest_move(fit),
       average = control$average, bg_a = if (is.finite(plan$bg_a)) plan$bg_a else 0,
       tail_start = horizon - floor(control$tail * horizon) + 1,
       trace_draws = traced_draws(fit),
       block = block, progress = fit$given$conduct$progress, pause_after = Inf, cpu = fit$result$cpu,
       threads = threads(),
       check_draws = control$backtrack %||% 0, check_step = check_step_of(fit), check_floor = is.null(control$scale_min),
       check_divides = steps_from_L(fit$given$schedule))
}

traced_draws <- function(fit) fit$given$control$trace_draws %||% if (is.null(fit$plan$search)) 100 else 25

# Checks are of the L that bounds the scale from below, too, and so of no step shorter than 1/(2L).
check_step_of <- function(fit) if (isTRUE(fit$plan$smoothness > 0)) 1 / (2 * fit$plan$smoothness) else 0

# In norms of the scale. Theorems are about unchanged steps, but a step to a point far from all others is limited: there the
# steepness of a user-supplied density is unknown, unless a smoothness was given in raw coordinates.
longest_move <- function(fit) min(fit$plan$longest %||% Inf, if (is_guarded(fit)) 100 else Inf)

# 12,345 and 1,000,000, not 1e+06
format_count <- function(n) format(n, big.mark = ",", scientific = FALSE)

# Which iterations have a row in the trace, whatever the horizon (src/trace.c).
on_trace_grid <- function(k) k %% 10^pmax(0, floor(log10(pmax(k, 1))) - 1) == 0

# A row for the end of a shorter run is not in the trace of a longer one.
join_traces <- function(old, new) {
  if (is.null(old)) return(new)
  if (!nrow(new)) return(old)
  kept <- on_trace_grid(old$iteration)
  list2DF(Map(function(before, after) c(before[kept], after), old, new[names(old)]))   # rbind() takes its time
}

check_status <- function(status, fit = NULL) {
  if (status_name(status) %in% c("ok", "stopped")) return(invisible())
  where <- if (is.null(fit)) "" else paste0(" in iteration ", format_count(fit$state$k + 1))
  at <- if (is.null(fit)) "" else
    paste0(" The iterate there: mu = (", toString(format(utils::head(fit$state$mu, 5), digits = 3)),
           if (length(fit$state$mu) > 5) ", ...", ").")
  advice <- paste0(" The steps may be too long: a larger `smoothness` in elvi_control() shortens them.",
                   if (is_user_density(fit$given$model)) " Or `gradient` is not finite near there by itself.")
  here <- list(iteration = fit$state$k + 1, mu = fit$state$mu, scale = fit$state$scale)
  switch(status_name(status),
    no_step = elvi_abort(
      "No step passes its check", where, ", however short: the target's value may not be what its gradient is ",
      "the gradient of.", at, class = c("elvi_error_backtrack", "elvi_error_nonfinite"), data = here),
    target_failed = elvi_abort(
      "The C function of the target reported a failure", where, ".", at,
      class = "elvi_error_target", data = here[c("iteration", "mu")]),
    nonfinite_gradient = elvi_abort("The gradient is not finite", where, ".", at, advice, class = "elvi_error_nonfinite",
                                    data = here),
    singular_scale = elvi_abort("The scale is no longer positive definite", where, ".", at, advice,
                                " A bound by guarantee() assumes exact arithmetic, and does not exclude this.",
                                class = "elvi_error_singular", data = here),
    elvi_abort("The eigenvalue decomposition did not converge", where, ".", class = "elvi_error_lapack"))
}

# $theta, in the coordinates of the run: the average that the user chose, or the
# start if that is better. Compared exactly where possible, else on common draws,
# where better means by more than their noise.
choose_better_iterate <- function(fit, law) {
  loss <- comparison_loss(fit, law)
  lost <- if (!is.null(loss)) loss(run_average(fit)) - loss(fit$plan$start) else 0
  noise <- if (length(lost) > 1L && all(is.finite(lost))) stats::sd(lost) / sqrt(length(lost)) else 0
  choose_iterate(fit, if (isTRUE(mean(lost) <= 2 * noise)) "average" else "start", mean(lost))
}

run_average <- function(fit) list(mu = fit$state$average_mu, scale = fit$state$average_scale)

# `lost`: nats by which the run is worse than its start
choose_iterate <- function(fit, kept, lost) {
  fit$result$kept <- kept
  fit$result$theta <- if (kept == "start") fit$plan$start else run_average(fit)
  fit$result$lost <- lost
  fit
}

# A function of theta that says how good it is, exactly or once per draw; NULL when
# draws are switched off.
comparison_loss <- function(fit, law) {
  kind <- fit$given$control$scale
  work <- run_model(fit)
  if (affords_exact(fit$given$model, kind)) {
    oracle <- exact_oracle(fit$given$model, law)
    return(function(theta) {
      user <- to_user(work, kind, theta$mu, theta$scale)
      oracle(kind, user$mu, user$scale)$objective
    })
  }
  draws <- fit$given$control$trace_draws %||% 100
  if (draws < 1) return(NULL)
  fresh <- derived_key(fit$plan$seed, "compare")   # draws that the run has not seen
  function(theta) {
    .Call(elvi_r_values, work, law, kind, theta$mu, theta$scale, fresh, draws, threads()) -
      log_det(kind, theta$scale)
  }
}

# Objective at the end against objective at the start, on the same draws: a run
# that ends worse by far more than its noise has diverged.
has_diverged <- function(fit) {
  if (!NROW(fit$result$trace)) return(FALSE)   # interrupted before its first row
  first <- fit$result$trace$objective[1L]
  last <- fit$result$trace$objective[nrow(fit$result$trace)]
  if (is.na(first) || !is.finite(first)) return(FALSE)
  noise <- sqrt(sum(fit$result$trace$se[c(1L, nrow(fit$result$trace))]^2))
  # F moves by the dimension, in nats, when every scale is off by a factor e
  # (one draw has no standard error: only non-finite values are detected then)
  !is.finite(last) || isTRUE(last > first + 4 * noise + fit$given$model$dim)
}

check_divergence <- function(fit) {
  if (!has_diverged(fit)) return(fit)
  if (fit$result$status != "interrupted") fit$result$status <- "diverged"
  ends <- format(fit$result$trace$objective[c(1L, nrow(fit$result$trace))], digits = 5)
  elvi_warn("The run diverged: the objective rose from ", ends[1L], " to ", ends[2L],
            ". The steps are too long for this model",
            if (!is.null(fit$given$control$smoothness)) paste0(
              ", because `smoothness` = ", format(fit$given$control$smoothness, digits = 4), " is too small",
              if (isTRUE(fit$given$model$smoothness > fit$given$control$smoothness))
                paste0(" (the model's own is ", format(fit$given$model$smoothness, digits = 4), ")")),
            ".", if (fit$result$kept == "start") " The start is returned.",
            class = "elvi_warning_diverged")
  fit
}
