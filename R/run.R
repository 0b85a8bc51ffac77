# From a fit that is set up to one that has run: the way into C and back.

status_ok <- 0L
status_stopped <- 1L
status_no_expectation <- 5L

# Runs fit until `iterations` are done in all, or its schedule ends, or, with a
# tolerance, the estimated gap is below it.
run <- function(fit, bound, iterations) {
  attempt <- function(fit) {
    if (is.null(fit$tol)) advance(fit, bound, iterations) else run_to_tolerance(fit, bound, iterations)
  }
  if (fit$schedule$kind != "tuned" || fit$state$k > 0) return(conclude(attempt(fit)))
  conclude(with_shorter_steps(fit, bound, attempt))
}

# The tuned schedule's step suits most targets; for the others, quarter it until
# the run improves on its start.
with_shorter_steps <- function(fit, bound, attempt, tries = 3L) {
  for (try in seq_len(tries)) {
    out <- tryCatch(attempt(fit), elvi_error_nonfinite = identity, elvi_error_singular = identity)
    if (!inherits(out, "error") && (out$status == "interrupted" || !gets_nowhere(out))) return(out)
    fit$schedule$shorten <- 4^try
    fit$plan <- plan_schedule(fit$schedule, fit$model$dim, bound$kurtosis, fit$smoothness, fit$control)
  }
  attempt(fit)
}

# More than a nat above its start: not the noise of a run that began at the optimum.
gets_nowhere <- function(fit) {
  has_diverged(fit) || (fit$kept == "start" && !isTRUE(fit$lost <= 1))
}

# One call into C.
advance <- function(fit, bound, iterations) {
  settings <- run_settings(fit, iterations)
  out <- .Call(elvi_r_run, fit$work %||% fit$model, bound, settings, fit$state)
  fit$state <- out$state
  fit$cpu <- out$cpu
  fit$trace <- join_traces(fit$trace, as.data.frame(out$trace))
  check_status(out$status, fit)
  fit$status <- if (out$status == status_stopped) {
    "interrupted"
  } else if (fit$state$k < fit$plan$iterations) {
    "paused"
  } else {
    "finished"
  }
  keep_better(fit, bound)
}

# What the user is told at the end of a run.
conclude <- function(fit) {
  fit <- check_divergence(name_parameters(fit))
  if (is.nan(fit$lost) && fit$model$kind == "density") {
    elvi_warn("`value` is not finite at draws of the approximation: the run cannot be compared with its start, ",
              "which is returned. `$last` has the last iterate.", class = "elvi_warning_nonfinite")
  } else if (fit$kept == "start" && fit$status == "finished") {
    elvi_inform("The run did not improve on its start, which is returned. ",
                "A larger budget, or shorter steps, may.", class = "elvi_message_start_kept")
  }
  if (fit$status == "interrupted") {
    elvi_warn("Interrupted after ", format_count(fit$state$k), " of ", format_count(fit$plan$iterations),
              " iterations: this is the fit so far. elvi(fit) goes on from here.",
              class = "elvi_warning_interrupted")
  } else if (isFALSE(fit$converged)) {
    elvi_warn("NOT CONVERGED: the budget of ", format_count(fit$schedule$budget),
              " gradient evaluations ended with an estimated gap of ",
              format(fit$remaining$estimate, digits = 2), " nats (standard error ",
              format(fit$remaining$se, digits = 2), "), above `tol` = ", format(fit$tol),
              ". elvi(fit, budget = ) goes on from here.", class = "elvi_warning_not_converged")
  }
  fit
}

run_settings <- function(fit, iterations) {
  control <- fit$control
  plan <- fit$plan
  if (control$average == "theorem" && !is.finite(plan$bg_a)) {
    elvi_abort("`average` = \"theorem\" needs the noise constant of the theorem, which ",
               if (is.na(plan$bg_a)) "is unknown without the smoothness L"
               else "is infinite for a base of infinite kurtosis",
               ". Use elvi_control(average = \"tail\").",
               class = "elvi_error_argument", data = list(argument = "average"))
  }
  largest <- max(plan_at(plan, c(0, plan$iterations - 1))$batch, plan$batch_table)
  # an R function is called once per block, so its blocks are longer
  block <- control$block %||% min(if (fit$model$kind == "density") 1024 else 256, max(1, 2^26 %/% fit$model$dim))
  block <- max(1, min(block, max(largest, control$trace_draws)))
  check_size(3 * block * fit$model$dim, "block", block)   # draws, points and gradients
  list(schedule = plan,
       iterations = min(iterations, plan$iterations), horizon = plan$iterations,
       fresh = is.null(fit$trace) || !nrow(fit$trace),
       seed = fit$seed, scale = control$scale, estimator = control$estimator,
       update = control$update, lambda_mu = plan$lambda[["mu"]],
       lambda_scale = plan$lambda[["Sigma"]],
       scale_min = fit$feasible$scale_min, scale_max = fit$feasible$scale_max,
       mu_centre = fit$feasible$mu_centre, mu_radius = fit$feasible$mu_radius,
       average = control$average, bg_a = if (is.finite(plan$bg_a)) plan$bg_a else 0,
       tail_start = plan$iterations - floor(control$tail * plan$iterations) + 1,
       trace_draws = control$trace_draws,
       block = block,
       progress = control$progress, cpu = fit$cpu)
}

# 12,345 and 1,000,000, not 1e+06
format_count <- function(n) format(n, big.mark = ",", scientific = FALSE)

# Which iterations have a row in the trace, whatever the horizon (src/trace.c).
on_trace_grid <- function(k) k %% 10^pmax(0, floor(log10(pmax(k, 1))) - 1) == 0

# A row for the end of a shorter run is not in the trace of a longer one.
join_traces <- function(old, new) {
  if (is.null(old)) return(new)
  out <- rbind(old[on_trace_grid(old$iteration), ], new)
  rownames(out) <- NULL
  out
}

check_status <- function(status, fit = NULL) {
  if (status == status_ok || status == status_stopped) return(invisible())
  where <- if (is.null(fit)) "" else paste0(" in iteration ", format_count(fit$state$k + 1))
  at <- if (is.null(fit)) "" else
    paste0(" The iterate there: mu = (", toString(format(utils::head(fit$state$mu, 5), digits = 3)),
           if (length(fit$state$mu) > 5) ", ...", ").")
  advice <- paste0(" The steps may be too long: a larger `smoothness` in elvi_control() shortens them.",
                   if (identical(fit$model$kind, "density")) " Or `gradient` is not finite near there by itself.")
  switch(as.character(status),
    "2" = elvi_abort("The gradient is not finite", where, ".", at, advice,
                     class = "elvi_error_nonfinite",
                     data = list(iteration = fit$state$k + 1, mu = fit$state$mu, scale = fit$state$scale)),
    "3" = elvi_abort("The scale is no longer positive definite", where, ".", at, advice,
                     class = "elvi_error_singular",
                     data = list(iteration = fit$state$k + 1, mu = fit$state$mu, scale = fit$state$scale)),
    elvi_abort("The eigenvalue decomposition did not converge", where, ".",
               class = "elvi_error_lapack"))
}

# $theta, in the coordinates of the run: the average the user asked for, or the
# start if that is better. Compared exactly where possible, else on common draws,
# where better means by more than their noise.
keep_better <- function(fit, bound) {
  average <- list(mu = fit$state$average_mu, scale = fit$state$average_scale)
  judge <- judge_of(fit, bound)
  fit$kept <- "average"
  fit$theta <- average
  lost <- if (!is.null(judge)) judge(average) - judge(fit$start) else 0
  noise <- if (length(lost) > 1L && all(is.finite(lost))) stats::sd(lost) / sqrt(length(lost)) else 0
  fit$lost <- mean(lost)   # nats by which the run is worse than its start
  if (!isTRUE(fit$lost <= 2 * noise)) {
    fit$kept <- "start"
    fit$theta <- fit$start
  }
  fit
}

# A function of theta that says how good it is, exactly or once per draw; NULL when
# draws are switched off.
judge_of <- function(fit, bound) {
  kind <- fit$control$scale
  work <- fit$work %||% fit$model
  if (has_exact(fit$model)) {
    oracle <- exact_oracle(fit$model, bound)
    return(function(theta) {
      user <- to_user(work, kind, theta$mu, theta$scale)
      oracle(kind, user$mu, user$scale)$objective
    })
  }
  draws <- fit$control$trace_draws
  if (draws < 1) return(NULL)
  fresh <- (fit$seed + 1) %% 2^32   # draws that the run has not seen
  function(theta) {
    .Call(elvi_r_values, work, bound, kind, theta$mu, theta$scale, fresh, draws) -
      log_det(kind, theta$scale)
  }
}

# $mu, $Sigma, $scale, $last in the user's coordinates and names. A formula's
# model has centred predictors: `report` maps its coefficients to the user's.
name_parameters <- function(fit) {
  labels <- fit$model$names
  kind <- fit$control$scale
  named <- function(theta) {
    user <- to_user(fit$work %||% fit$model, kind, theta$mu, theta$scale)
    if (!is.null(fit$report)) user <- apply_report(fit$report, kind, user)
    list(mu = stats::setNames(user$mu, labels), scale = name_scale(user$scale, labels))
  }
  kept <- named(fit$theta)
  fit$mu <- kept$mu
  fit$scale <- kept$scale
  fit$Sigma <- symmetric_scale(fit$scale, if (is.null(fit$report)) kind else "report", labels)
  if (!is.null(fit$state)) fit$last <- named(fit$state[c("mu", "scale")])
  fit
}

# x = report w for a law of w with location mu and the given scale
apply_report <- function(report, kind, theta) {
  root <- report %*% (if (is.matrix(theta$scale)) theta$scale else diag(theta$scale, length(theta$scale)))
  list(mu = drop(report %*% theta$mu),
       scale = if (kind == "triangular") lower_root(root) else symmetric_root(root))
}

# mu and scale of the returned approximation in the coordinates of fit$model
model_parameters <- function(fit) {
  to_user(fit$work %||% fit$model, fit$control$scale, fit$theta$mu, fit$theta$scale)
}

name_scale <- function(scale, labels) {
  if (is.matrix(scale)) dimnames(scale) <- list(labels, labels) else names(scale) <- labels
  scale
}

symmetric_scale <- function(scale, kind, labels) {
  root <- switch(kind, symmetric = scale, diagonal = diag(scale, length(scale)),
                 if (isSymmetric(unname(scale))) scale else symmetric_root(scale))
  structure(root, dimnames = list(labels, labels))
}

# Objective at the end against objective at the start, on the same draws: a run
# that ends worse by far more than its noise has diverged.
has_diverged <- function(fit) {
  first <- fit$trace$objective[1L]
  last <- fit$trace$objective[nrow(fit$trace)]
  if (is.na(first) || !is.finite(first)) return(FALSE)
  noise <- sqrt(sum(fit$trace$se[c(1L, nrow(fit$trace))]^2))
  # F moves by the dimension, in nats, when every scale is off by a factor e
  # (one draw has no noise: only a value that is not finite can be told then)
  !is.finite(last) || isTRUE(last > first + 4 * noise + fit$model$dim)
}

check_divergence <- function(fit) {
  if (!has_diverged(fit)) return(fit)
  if (fit$status != "interrupted") fit$status <- "diverged"
  ends <- format(fit$trace$objective[c(1L, nrow(fit$trace))], digits = 5)
  elvi_warn("The run diverged: the objective rose from ", ends[1L], " to ", ends[2L],
            ". The steps are too long for this model",
            if (!is.null(fit$control$smoothness)) paste0(
              ", because `smoothness` = ", format(fit$control$smoothness, digits = 4), " is too small",
              if (isTRUE(fit$model$smoothness > fit$control$smoothness))
                paste0(" (the model's own is ", format(fit$model$smoothness, digits = 4), ")")),
            ".", if (fit$kept == "start") " The start is returned.",
            class = "elvi_warning_diverged")
  fit
}
