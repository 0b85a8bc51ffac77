# ---- bounds ------------------------------------------------------------------------

# What a theorem bounds: the gap, or else the gradient mapping; and is it about steps without end, and the sum of
# step^2/N over them?
theorems <- list(
  "finite horizon" = list(gap = TRUE, sums = FALSE),
  dynamic = list(gap = TRUE, sums = TRUE),
  "non-convex" = list(gap = FALSE, sums = FALSE))

theorem_of <- function(guarantee) theorems[[guarantee$kind]]

# All bounds below follow from the recursion of the theorems' proofs: with
# D_k = E|theta_k - theta*|^2_{Lambda^-1}, gap_k = E F(theta_k) - F*,
#   2 step_k gap_k <= (1 + a q_k) D_k - D_{k+1} + b q_k,   q_k = step_k^2 / batch_k.
# It needs F convex and smooth with constant 1/step_k, and grad F(theta*) = 0:
# <grad F, theta - theta*> >= gap + step |grad F|^2 / 2. On Theta_L it holds
# although -log|Sigma| is smooth there only, because its eigenvalues' -log can be
# continued below 1/sqrt(L) by a parabola, to a function that is L-smooth
# everywhere; and because theta* minimises F without the constraint. (With a
# minimiser on the boundary and grad F(theta*) != 0 the theorem as printed is
# false: F(theta) = theta on [0, 1], theta_0 = 1, step 10, K = 1, batches of 6 and more.)
#
# Single gradients need neither: E|g|^2 <= a D + b has no part in |grad F|^2 that would
# have to be paid for, <grad F, theta - theta*> >= gap is convexity, and theta* may be
# any point of the set. With batches N > 1 and grad F(theta*) = s != 0, |grad F|^2 <=
# |grad F - s|^2 / c + |s|^2 / (1 - c), c = step L (N - 1)/N < 1, and <grad F, theta -
# theta*> >= gap + |grad F - s|^2 / (2 L): the recursion holds with b + (N - 1)/(1 - c) |s|^2
# in place of b (effective_b()).
#
# The average has weights step_k u_k, u_k = prod_{i <= k} 1/(1 + w q_i), with w
# the a of the weights. For w >= a that is the theorem for (w, b). The presets
# round N and K after setting w, which may leave w < a; then
#   sum_k u_k ((1 + a q_k) D_k - D_{k+1}) <= D_0 + (a - w) sum_k u_k q_k D_k
# and D_k <= (D_0 + b/a) prod_{i < k} (1 + a q_i) - b/a. About a point that is `below`
# above the minimum gap_k may be as low as -below, and 2 step_k below joins b q_k there.

# Constant step and batch. `bound` is the theorem's, step/(2N) (a D + b) +
# D/(2 step K); `sharper` keeps the geometric sum that the theorem rounds up.
finite_horizon_bound <- function(a, b, D, step, N, K, w = a, below = 0) {
  q <- step^2 / N
  log_w <- log1p(w * q)
  done <- -expm1(-K * log_w)   # 1 - tau^K
  excess <- 0
  if (w < a) {
    # the average of the bounds on D_k, weighted like the iterates
    log_ratio <- log1p(a * q) - log_w
    mean_growth <- expm1(K * log_ratio) / ((a - w) * q) * if (w > 0) w * q / done else 1 / K
    most <- (b + 2 * below * N / step) / a
    excess <- (a - w) * ((D + most) * mean_growth - most)
  }
  list(bound = step / (2 * N) * (w * D + b + excess) + D / (2 * step * K),
       sharper = step / (2 * N) * ((if (w > 0) w / done else 1 / (K * q)) * D + b + excess))
}

# What a run averages: all iterates from the start on with weights made from w, or the last `terms` of them alike, after `skipped`
# steps. The latter starts the recursion anew there, from D_k <= (D_0 + b/a) (1 + a q)^k - b/a.
average_of <- function(plan, control, w = plan$bg_a) {
  K <- plan_iterations(plan, control)
  if (control$average != "tail") return(list(w = w, skipped = 0, terms = K))
  terms <- max(1, floor(control$tail * K))
  list(w = 0, skipped = K - terms + 1, terms = terms)
}

average_bound <- function(a, b, D, step, N, average, below = 0) {
  q <- step^2 / N
  k <- average$skipped
  if (k > 0) {
    growth <- k * log1p(a * q)
    D <- D * exp(growth) + (b * q + 2 * below * step) * (if (a > 0) expm1(growth) / (a * q) else k)
  }
  finite_horizon_bound(a, b, D, step, N, average$terms, average$w, below)
}

# Any steps and batches. `bound` is the theorem's, (D + b/a) over 2 sum_k step_k
# exp(-a sum_{i <= k} q_i), for every horizon k = 1, ..., K. b may vary with k.
dynamic_bounds <- function(a, b, D, step, batch, w = a, below = 0) {
  q <- step^2 / batch
  u <- exp(-cumsum(log1p(w * q)))
  total <- cumsum(step * u)
  excess <- 0
  if (w < a) {
    growth <- exp(c(0, cumsum(log1p(a * q))[-length(q)]))
    most <- max(b + 2 * below * batch / step) / a
    excess <- (a - w) * cumsum(u * q * ((D + most) * growth - most))
  }
  sharper <- (D + cumsum(b * u * q) + excess) / (2 * total)
  as_stated <- w >= a && w > 0 && length(b) == 1L
  list(bound = if (as_stated) (D + b / w) / (2 * cumsum(step * exp(-w * cumsum(q)))) else sharper,
       sharper = sharper)
}

# min_k E|G|^2_Lambda on a compact set: thm:non_convex1 with second moments at
# most `moment` there.
nonconvex_bound <- function(gap0, moment, lip, step, batch) {
  4 * (gap0 + moment * sum(step / batch)) / sum(step * (1 - step * lip))
}

is_constant <- function(plan) {
  if (is.null(plan$step_table)) return(plan$step_power == 0 && plan$batch_power == 0)
  length(unique(plan$step_table)) == 1L && length(unique(plan$batch_table)) == 1L
}

plan_iterations <- function(plan, control) min(plan$iterations, control$iterations)

# g$slope is |grad F(theta*)|^2_Lambda; g$lip the smoothness of F
effective_b <- function(g, step, batch) {
  if (isTRUE(g$slope == 0)) return(g$b)
  b <- rep(g$b, length(batch))
  many <- batch > 1
  share <- (step * g$lip * (batch - 1) / batch)[many]
  b[many] <- g$b + ifelse(share < 1, (batch[many] - 1) / (1 - share) * g$slope, Inf)
  b
}

# Single gradients, or grad F(theta*) = 0
needs_no_slope <- function(g) g$single || isTRUE(g$slope == 0)

# Are all batches single gradients?
single_gradients <- function(plan) {
  if (is.null(plan$batch_table)) plan$batch0 == 1 && plan$batch_power == 0 else all(plan$batch_table == 1)
}

# The values of the bounds for a plan, whether or not their assumptions hold: `distance`, the theorem's, and `sharper`, the
# same one step earlier in its proof; `gap` and `estimated`, with noise bounded by the gap (theory-gap.R) and the noise at the optimum
# bounded or estimated. The weights of the average are made from w; those of the best iterate are the proof's own.
evaluate_bounds <- function(g, plan, w = plan$bg_a) {
  K <- plan_iterations(plan, g$control)
  if (!is_constant(plan)) check_size(8 * K, "budget", K)   # sums over all iterations
  values <- c(distance = NA_real_, sharper = NA_real_, gap = NA_real_, estimated = NA_real_)
  at <- plan_at(plan, if (is_constant(plan)) 0 else seq_len(K) - 1)
  if (!theorem_of(g)$gap) {
    if (is_constant(plan)) at <- lapply(at, rep, K)
    if (!is.finite(g$gap0) || !is.finite(g$moment) || any(at$step * g$lip >= 1)) return(values)
    values[["distance"]] <- nonconvex_bound(g$gap0, g$moment, g$lip, at$step, at$batch)
    return(values)
  }
  average <- average_of(plan, g$control, w)
  if (all(is.finite(c(g$a, g$b, g$D, w))) && !has_fixed_weight(g$control)) {
    by_distance <- if (is_constant(plan)) {
      average_bound(g$a, effective_b(g, at$step, at$batch), g$D, at$step, at$batch, average, g$shift)
    } else if (average$skipped == 0) {
      lapply(dynamic_bounds(g$a, effective_b(g, at$step, at$batch), g$D, at$step, at$batch, w, g$shift), function(v) v[K])
    }
    if (!is.null(by_distance)) values[c("distance", "sharper")] <- unlist(by_distance[c("bound", "sharper")]) + g$shift
  }
  values[c("gap", "estimated")] <- gap_values(g, at, average)
  values
}

# The bounds with noise by gap need grad F(theta*) = 0 and steps as they are.
gap_values <- function(g, at, average) {
  none <- c(NA_real_, NA_real_)
  if (is.null(g$constants) || g$shift > 0 || !isTRUE(g$slope == 0) || g$checked) return(none)
  varies <- length(at$step) > 1L
  if (varies && average$skipped > 0) return(none)
  run <- list(step = at$step[1L], batch = at$batch[1L], longest = max(at$step), noisiest = max(at$step / at$batch),
              sums = if (varies) weighted_sums(at$step, at$batch, average$w))
  value <- function(certain) gap_bound(g$constants, g$lambda, run, average, certain)$value %||% NA_real_
  c(value(TRUE), if (noise_is_exact(g$constants)) NA_real_ else value(FALSE))
}

weighted_sums <- function(step, batch, w) {
  q <- step^2 / batch
  u <- exp(-cumsum(log1p(w * q)))
  list(steps = sum(step * u), noise = sum(u * q))
}

# Which of the values is the smallest, by name; NA where there is none
smallest_bound <- function(values) if (all(is.na(values))) NA_character_ else names(values)[which.min(values)]
