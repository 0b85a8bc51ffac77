# A stopping rule with a meaning: the estimated gap of the returned approximation
# to the optimum, in nats, with its standard error. Never a relative change of the
# objective, which says how slow a run is, not how far it has to go.

# Runs in stretches that double, and looks after each.
run_to_tolerance <- function(fit, bound, iterations) {
  last <- min(iterations, fit$plan$iterations)
  planned <- fit$plan$iterations
  # only schedules without a horizon of their own can be cut into stretches
  extendable <- fit$schedule$kind %in% c("power", "tuned")
  look <- max(1000, 2 * fit$state$evals)
  repeat {
    # an average of the latest stretch only: older iterates are further away
    if (extendable && fit$control$average == "tail") fit$state$weight <- 0
    stop_at <- if (extendable) min(last, max(fit$state$k + 1, .Call(elvi_r_horizon, fit$plan, look))) else last
    fit$plan$iterations <- if (extendable) stop_at else planned
    fit <- advance(fit, bound, stop_at)
    fit$plan$iterations <- planned
    if (fit$status == "interrupted" || has_diverged(fit)) return(fit)
    # a tuned run that gets nowhere is soon tried with shorter steps
    hopeless <- fit$schedule$kind == "tuned" && (fit$schedule$shorten %||% 1) < 64 &&
      gets_nowhere(fit) && fit$state$evals > 4000
    fit$status <- if (fit$state$k < planned) "paused" else "finished"
    fit$remaining <- remaining_gap(fit, bound)
    fit$converged <- fit$remaining$estimate + 2 * fit$remaining$se < fit$tol
    if (fit$converged || hopeless) {
      fit$status <- "finished"
      return(fit)
    }
    if (fit$state$k >= last) {
      if (fit$state$k < planned) fit$converged <- NA   # paused, not ended
      return(fit)
    }
    look <- 2 * look
  }
}

# At the optimum the Hessian of F, in coordinates where the scale is I, is close to
# 1 in mu and 2 in a symmetric scale, so F - F* is about |g_mu|^2/2 + |G|^2/4. From
# independent batches b the squared norm of the mean gradient is estimated without
# bias by the mean of the products g_b'g_c, b != c; its standard error is that of
# a jackknife over the batches.
remaining_gap <- function(fit, bound, batches = 16L) {
  kind <- fit$control$scale
  size <- max(16, ceiling(fit$state$evals / (4 * batches)))
  settings <- run_settings(fit, Inf)
  settings$block <- min(size, 128)
  g <- vapply(seq_len(batches), function(b) {
    state <- list(mu = fit$theta$mu, scale = fit$theta$scale, average_mu = fit$theta$mu,
                  average_scale = fit$theta$scale, k = 2^40 + fit$state$k * batches + b,
                  evals = 0, alpha = 1, weight = 0)   # draws the run never sees
    out <- .Call(elvi_r_gradient, fit$work %||% fit$model, bound, settings, state, size)
    check_status(out$status, fit)
    local_gradient(kind, fit$theta$scale, out, with_entropy = fit$control$update == "prox",
                   hessian = fit$work$hessian)
  }, numeric(length(fit$theta$mu) + length(fit$theta$scale)))
  pairwise <- function(g) {
    m <- ncol(g)
    (sum(rowSums(g)^2) - sum(g^2)) / (m * (m - 1))
  }
  without <- vapply(seq_len(batches), function(b) pairwise(g[, -b, drop = FALSE]), 0)
  list(estimate = max(0, pairwise(g)),
       se = sqrt((batches - 1) / batches * sum((without - mean(without))^2)),
       evaluations = batches * size)
}

# The gradient at theta where the scale is I, each entry divided by the root of
# twice its curvature: the squared norm is then the gap. A mean field's scale does
# not show the curvature in mu; the Hessian at the mode does.
local_gradient <- function(kind, scale, g, with_entropy, hessian) {
  if (kind == "diagonal") {
    if (with_entropy) g$scale <- g$scale - 1 / scale
    mu <- if (is.null(hessian)) scale * g$mu else forwardsolve(t(chol(hessian)), g$mu)
    return(c(mu / sqrt(2), scale * g$scale / 2))
  }
  if (with_entropy) diag(g$scale) <- diag(g$scale) - 1 / diag(scale)   # prox: triangular
  W <- crossprod(scale, g$scale)
  if (kind == "symmetric") return(c(crossprod(scale, g$mu) / sqrt(2), (W + t(W)) / 4))
  W[upper.tri(W)] <- 0
  c(crossprod(scale, g$mu) / sqrt(2), W / ifelse(row(W) == col(W), 2, sqrt(2)))
}
