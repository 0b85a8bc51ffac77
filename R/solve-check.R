# What draws at the nodes say of the conditional approximations: k-hat, and corrections of weights and means. See nested.R.

# Importance ratios of the conditional optima, from the same draws at every node, so that
# their noise cancels: k-hat, and log p(y, theta) less its lower bound. Rows fall in
# blocks that depend on each other hardly at all, for a gaussian base: each block's
# expectation is estimated by itself, which many blocks do not make harder.
node_ratios <- function(setup, grid, values, control) {
  K <- length(values)
  none <- list(correction = numeric(K), k_hat = rep(-Inf, K), draws = 0L, corrected = FALSE, shift = rep(list(0), K), noise = 0,
               error = 0)
  if (is_quadratic(setup$plan) && setup$law$independent) return(none)
  if (is_quadratic(setup$plan) || isTRUE(control$draws == 0)) {
    none$k_hat[] <- NA_real_
    return(none)
  }
  weight <- normalised(values + grid$log_rule)
  best <- which.max(weight)
  draws <- control$draws %||% enough_draws(setup, grid$found[[best]], control, nodes = max(12, sum(weight > 0.03 * max(weight))))
  # points that hardly count get a smooth function of the others' corrections, unless their own are cheap
  few <- setup$plan$rows * draws * sum(weight > 0.003 * max(weight)) <= most_check_rows
  counts <- which(weight > (if (few) 0.003 else 0.03) * max(weight))
  checked <- check_by_draws(setup, grid$found[counts], draws, control, shift = separate_blocks(setup))
  k_hat <- rep(NA_real_, K)
  main <- weight[counts] > 0.03 * max(weight)
  k_hat[counts[main]] <- node_k(checked)[main]
  usable <- separate_blocks(setup) || max(k_hat, na.rm = TRUE) < 0.7
  if (!isTRUE(control$correct) || !usable) {
    return(replace(none, c("k_hat", "draws"), list(k_hat, draws)))
  }
  correction <- rep(NA_real_, K)
  correction[counts] <- corrections(setup, checked, match(best, counts))
  correction[-counts] <- smooth_correction(grid$z, counts, correction[counts])
  shift <- none$shift
  if (separate_blocks(setup)) {
    shift[counts] <- lapply(checked$out, `[[`, "shift")
    shift[-counts] <- list(Reduce(`+`, Map(`*`, shift[counts], weight[counts] / sum(weight[counts]))))
  }
  corrected <- normalised(values + grid$log_rule + correction)[counts]
  list(correction = correction, k_hat = k_hat, draws = draws, corrected = TRUE, shift = shift,
       noise = correction_noise(setup, checked, grid$found[counts], corrected), error = correction_error(setup, checked, corrected))
}

# What the draws leave unsettled in the means of the hyperparameters, in units of their sd: a standard error to first order
# in the correction of each node. The nodes have the same draws, so most of the noise of one is that of all, and cancels.
correction_noise <- function(setup, checked, found, weight) {
  if (length(found) < 2L || checked$draws < 2L) return(0)
  weight <- weight / sum(weight)
  theta <- matrix(unlist(lapply(found, function(f) f$theta)), nrow = length(found), byrow = TRUE)
  off <- sweep(theta, 2L, drop(weight %*% theta))
  sd <- sqrt(drop(weight %*% off^2))
  moved <- correction_parts(setup, checked) %*% (weight * off)
  max(0, apply(moved, 2L, stats::sd)[sd > 0] / sd[sd > 0]) / sqrt(checked$draws)
}

# Monte Carlo standard error of the corrected log evidence, to first order
correction_error <- function(setup, checked, weight) {
  if (checked$draws < 2L) return(NA_real_)
  stats::sd(correction_parts(setup, checked) %*% (weight / sum(weight))) / sqrt(checked$draws)
}

# of each draw in the correction, whose mean it is, almost: draws x nodes
correction_parts <- function(setup, checked) {
  part <- vapply(checked$out, function(o) {
    if (separate_blocks(setup)) o$bend else checked$draws * normalised(o$total + checked$extra)
  }, numeric(checked$draws))
  matrix(part, checked$draws)
}

# So many losses of rows take a few hundredths of a second.
most_check_rows <- 1e6

# By the noise of the correction at one node, though much of it is common to all of them, which have the same draws: the ratios
# of single groups can have heavy tails, of which a hundred draws see little, at large standard deviations above all. Where there is
# something to correct, and rows are few, draws are many. No more than fit in 160 MB.
enough_draws <- function(setup, found, control, noise = 0.05, first = 100L, nodes = 12) {
  spread <- stats::var(check_by_draws(setup, list(found), first, control)$out[[1L]]$bend)
  cheap <- if (spread > 1e-3) most_check_rows %/% (nodes * setup$plan$rows) else 0
  min(max(ceiling(spread / noise^2), 200, cheap), 2000, max(200, floor(2e7 / setup$plan$dim)))
}

check_by_draws <- function(setup, found, draws, control, shift = FALSE) {
  z <- draw_base(setup$law, control$seed_key %||% c(20261117, 17), draws)
  out <- .Call(elvi_r_nested_check, setup$plan, setup$rule, lapply(found, conditional_setting, setup), z, shift, threads())
  radius <- sqrt(colSums(z^2))
  extra <- -radius^2 / 2 - setup$law$log_phi(radius)
  list(out = out, extra = extra - mean(extra), draws = draws)
}

separate_blocks <- function(setup) setup$law$independent && length(setup$plan$block_start) > 2L

node_k <- function(checked) vapply(checked$out, function(o) pareto_shape(o$total + checked$extra), 0)

# log p(y, theta) less its lower bound, at each of the nodes. What blocks have in common counts where the draws can tell.
corrections <- function(setup, checked, best = 1L) {
  separate <- separate_blocks(setup)
  coupled <- separate && mean(checked$out[[best]]$total^2) * sqrt(2 / checked$draws) < 0.1
  vapply(checked$out, function(o) {
    if (!separate) return(log_sum(o$total + checked$extra) - log(checked$draws))
    o$level + if (coupled) (mean(o$total^2) - o$spread) / 2 else 0
  }, 0)
}

# k-hat from new draws at the components that count
component_shapes <- function(posterior, problem, draws, key) {
  weight <- posterior$weight
  k_hat <- rep(NA_real_, length(weight))
  counts <- which(weight > 0.03 * max(weight))
  law <- posterior_law(posterior)
  z <- draw_base(law, key, draws)
  plan <- posterior$roots$plan
  rule <- conditional_rule(problem, law)
  out <- .Call(elvi_r_nested_check, plan, rule, posterior$roots$settings[counts], z, FALSE, threads())
  radius <- sqrt(colSums(z^2))
  k_hat[counts] <- vapply(out, function(o) pareto_shape(o$total - radius^2 / 2 - law$log_phi(radius)), 0)
  k_hat
}

# At nodes that hardly count: the correction is a smooth function of theta, and a quadratic
# through the others is good enough.
smooth_correction <- function(z, known, correction) {
  H <- ncol(z)
  terms <- cbind(1, z, if (length(known) > 3L * (1 + 2 * H)) z^2)
  fit <- if (length(known) > ncol(terms)) stats::lm.fit(terms[known, , drop = FALSE], correction)$coefficients
  if (is.null(fit) || anyNA(fit)) return(rep(mean(correction), nrow(z) - length(known)))
  out <- drop(terms[-known, , drop = FALSE] %*% fit)
  width <- diff(range(correction))   # no further than that beyond what was seen
  pmin(pmax(out, min(correction) - width), max(correction) + width)
}
