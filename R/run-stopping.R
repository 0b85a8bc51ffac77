# A stopping rule with a meaning: the estimated gap of the returned approximation
# to the optimum, in nats, with its standard error. Never a relative change of the
# objective, which says how slow a run is, not how far it has to go.

# Runs in stages that double, and looks after each. A run that is stopped in a
# stage takes it with it, and goes on to the same end.
run_to_tolerance <- function(fit, law, iterations, journal) {
  # a search has used up what is quick to gain: the rest takes an average over more
  first <- if (is.null(fit$plan$search)) 1000 else 5000
  look <- max(first, 2 * (fit$state$evals - fit$state$checks))   # of the schedule's own
  repeat {
    if (is.null(fit$state$stage)) fit <- begin_stage(whiten_anew(fit, law), look)
    look <- 2 * fit$state$stage$look
    fit <- advance(fit, law, iterations, journal)
    if (fit$result$status == "interrupted" || has_diverged(fit)) return(fit)
    fit$result$remaining <- remaining_gap(fit, law)
    if (fit$state$k < fit$state$stage$end) {   # paused
      fit$result$converged <- NA
      return(fit)
    }
    fit$state["stage"] <- list(NULL)
    fit$result$remaining$gain <- last_gain(fit, law)
    fit$result$converged <- has_reached(fit$result$remaining, fit$given$tol) && !still_gains(fit)
    # a tuned run that gets nowhere is soon tried with shorter steps
    hopeless <- schedule_record(fit$given$schedule)$retried && fit$plan$shorten < most_shortened &&
      gets_nowhere(fit) && fit$state$evals > 4000
    if (fit$result$converged || hopeless || is_mostly_outside(fit$result$remaining)) {
      fit$result$status <- "finished"
      return(fit)
    }
    if (fit$state$k >= fit$plan$iterations) return(fit)
  }
}

# A gap is not known if it is not finite, or if the target was replaced by a gaussian at more than half of the points.
has_reached <- function(gap, tol) isTRUE(gap$estimate + 2 * gap$se < tol) && !is_mostly_outside(gap)

# more iterations would only follow the stand-in
is_mostly_outside <- function(gap) isTRUE(gap$outside > 0.5)

begin_stage <- function(fit, look) {
  end <- fit$plan$iterations
  # only schedules without a horizon of their own can be cut into stages
  if (schedule_record(fit$given$schedule)$open) {
    end <- min(end, max(fit$state$k + 1, .Call(elvi_r_horizon, fit$plan, look)))
    # an average of the latest stage only: older iterates are further away
    if (fit$given$control$average == "tail") fit$state$weight <- 0
  }
  fit$state$stage <- list(end = end, look = look)
  fit
}

# At the optimum the Hessian of F, in coordinates where the scale is I, is close to
# 1 in mu and 2 in a symmetric scale, so F - F* is about |g_mu|^2/2 + |G|^2/4. From
# independent batches b the squared norm of the mean gradient is estimated without
# bias by the mean of the products g_b'g_c, b != c; its standard error is that of
# a jackknife over the batches.
remaining_gap <- function(fit, law, batches = 16L) {
  kind <- fit$given$control$scale
  size <- max(16, ceiling(fit$state$evals / (4 * batches)))
  settings <- run_settings(fit, Inf)
  settings$block <- min(size, 128)
  account <- new_account()
  work <- run_model(fit, account)
  g <- vapply(seq_len(batches), function(b) {
    state <- list(mu = fit$result$theta$mu, scale = fit$result$theta$scale, average_mu = fit$result$theta$mu,
                  average_scale = fit$result$theta$scale, k = streams[["gap"]] + fit$state$k * batches + b,
                  evals = 0, alpha = 1, weight = 0, memory = fit$state$memory,   # draws the run never sees
                  shorten = 1, steepest = 1, checks = 0)
    out <- .Call(elvi_r_gradient, work, law, settings, state, size)
    check_status(out$status, fit)
    # where the scale is I, each entry divided by the root of twice its curvature: the
    # squared norm is then the gap
    scale_of(kind)$local_gradient(fit$result$theta$scale, out, with_entropy = !update_of(fit$given$control)$entropy,
                                  hessian = fit$plan$work$hessian)
  }, numeric(length(fit$result$theta$mu) + length(fit$result$theta$scale)))
  pairwise <- function(g) {
    m <- ncol(g)
    (sum(rowSums(g)^2) - sum(g^2)) / (m * (m - 1))
  }
  without <- vapply(seq_len(batches), function(b) pairwise(g[, -b, drop = FALSE]), 0)
  list(estimate = max(0, pairwise(g)),
       se = sqrt((batches - 1) / batches * sum((without - mean(without))^2)),
       evaluations = batches * size, outside = account$outside / max(1, account$evaluations))
}

# ---- stages of a run -------------------------------------------------------------------

# The same run in coordinates whitened by what it has returned so far, where these differ.
whiten_anew <- function(fit, law) {
  kind <- fit$given$control$scale
  if (is.null(fit$plan$search) || !scale_of(scale_of(kind)$frame)$full || fit$state$k == 0) return(fit)
  now <- fit$result$theta
  fit$state$before <- model_theta(fit)[c("mu", "scale")]
  if (sqrt(sum(now$mu^2)) < 0.1 && max(abs(root_matrix(now$scale) - diag(length(now$mu)))) < 0.1) return(fit)
  at <- model_theta(fit)
  from <- model_theta(fit, fit$plan$start)
  work <- found_frame(fit$given$model, kind, list(mu = at$mu, A = at$scale, objective = fit$plan$search$objective))
  smoothness <- run_smoothness(fit$given$model, work, law, fit$given$control)
  fit$plan$smoothness <- smoothness$L
  fit$plan$smoothness_source <- smoothness$source
  fit$plan$feasible <- feasible_set(fit$given$control, work, smoothness$L)
  fit$plan$work <- coordinates_of(work)$without_inner(work)
  fit$plan$start <- to_work(work, kind, from$mu, from$scale)
  theta <- to_work(work, kind, at$mu, at$scale)
  begun <- initial_state(theta, fit$given$control, smoothness$L)
  goes_on <- c("before", "k", "evals", "checks", "outside", "looked", "first_error")   # a new L has had no checks yet
  begun[goes_on] <- fit$state[goes_on]
  fit$state <- begun
  fit
}

# A small gap is a local statement. By how much did the objective fall in the last stage, on draws that no stage
# has seen? NULL where that is not known.
last_gain <- function(fit, law) {
  if (is.null(fit$plan$search)) return(NULL)
  loss <- comparison_loss(fit, law)
  if (is.null(loss)) return(NULL)
  before <- fit$state$before
  before <- if (is.null(before)) fit$plan$start else to_work(run_model(fit), fit$given$control$scale, before$mu, before$scale)
  gain <- loss(before) - loss(fit$result$theta)
  list(estimate = mean(gain), se = stats::sd(gain) / sqrt(length(gain)))
}

# by more than the tolerance, which a gap below it would not allow
still_gains <- function(fit) {
  gain <- fit$result$remaining$gain
  isTRUE(gain$estimate - 2 * gain$se > fit$given$tol)
}
