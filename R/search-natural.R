# Stages: natural gradient steps, each in coordinates whitened by the approximation so far.
#
# An approximation is x = mu + A z. In its own coordinates its precision is I, the mean
# gradient is g = E A'grad f, and the mean Hessian I + G with G = E sym((A'grad f - z) z')
# by Stein's identity: at the optimum of the gaussian family g = 0 and G = 0. A natural
# gradient step goes to the precision I + G and the mean -(I + G)^-1 g. The residuals
# r = A'grad f - z vanish where the target is gaussian, so a small batch tells the whole
# curvature there; their regression on z does at once what the mean of r z' does in the limit.

# ---- one batch -------------------------------------------------------------------------

# Antithetic draws at an approximation: the objective F with its standard error, and the
# residuals. `e` has the objective draw by draw, on draws that depend on key, iteration and
# size alone. Pairs with a draw outside the domain are left out, and counted.
evaluate_gaussian <- function(target, mu, A, key, size, iteration) {
  d <- length(mu)
  half <- ceiling(size / 2)
  z <- draw_base(law_of(base_gaussian(), d), key, half, iteration = iteration)
  z <- cbind(z, -z)
  out <- target$evaluate(mu + root_times(A, z))
  pair_ok <- out$ok[seq_len(half)] & out$ok[half + seq_len(half)]
  ok <- c(pair_ok, pair_ok)
  look <- list(size = 2 * half, outside = sum(!out$ok), iteration = iteration, F = Inf, se = Inf)
  n <- sum(pair_ok)
  volume <- log_volume(A)
  # more than half of the draws are outside the domain, or A is singular: F stays infinite
  if (n < max(2, half / 2) || !is.finite(volume)) return(look)
  e <- ifelse(ok, out$value - colSums(z^2) / 2 + d / 2 - volume, NA)
  look$e <- (e[seq_len(half)] + e[half + seq_len(half)]) / 2
  look$z <- z[, ok, drop = FALSE]
  look$r <- root_crossprod(A, out$gradient[, ok, drop = FALSE]) - look$z
  # each pair outside counts as one of the worst
  lost <- (half - n) / half * (max(look$e, na.rm = TRUE) - mean(look$e, na.rm = TRUE) + outside_nats)
  look$F <- mean(look$e, na.rm = TRUE) + lost
  look$se <- stats::sd(look$e, na.rm = TRUE) / sqrt(n)
  look
}

# g and G of a batch. A ridge leaves directions alone that the draws have not seen.
moments_of <- function(look) {
  n <- ncol(look$z)
  d <- nrow(look$z)
  g <- rowMeans(look$r)
  seen <- tcrossprod(look$z) / n + diag(moment_ridge * d / n, d)
  G <- t(solve(seen, tcrossprod(look$z, look$r - g) / n))
  list(g = g, G = (G + t(G)) / 2)
}

# The estimated gap to the optimum, |g|^2/2 + |G|^2/4, without bias: products of independent
# parts of the batch. `trust` is the share of signal in the batch's g and G.
gap_of <- function(look, parts = gap_parts) {
  d <- nrow(look$z)
  n <- ncol(look$z) / 2
  parts <- min(parts, n)
  index <- rep(rep_len(seq_len(parts), n), 2)
  by_part <- vapply(seq_len(parts), function(p) {
    k <- which(index == p)
    g <- rowMeans(look$r[, k, drop = FALSE])
    G <- tcrossprod(look$r[, k, drop = FALSE], look$z[, k, drop = FALSE]) / length(k)
    c(g / sqrt(2), (G + t(G)) / 4)
  }, numeric(d * (d + 1)))
  of <- function(products) {
    pairs <- products[upper.tri(products)]
    list(estimate = mean(pairs), se = stats::sd(pairs) / sqrt(parts),
         trust = if (isTRUE(mean(products) > 0)) min(1, max(least_trust, mean(pairs) / mean(products))) else least_trust)
  }
  mu <- of(crossprod(by_part[seq_len(d), , drop = FALSE]))
  scale <- of(crossprod(by_part[-seq_len(d), , drop = FALSE]))
  list(estimate = mu$estimate + scale$estimate, se = sqrt(mu$se^2 + scale$se^2),
       trust = c(mu$trust, scale$trust))
}

# ---- one step --------------------------------------------------------------------------

# A damped natural gradient step: variances grow at most twofold and shrink at most tenfold, and
# the mean moves by one sd in the mean over the directions and two in any.
natural_move <- function(mu, A, moments, rho, trust) {
  e <- eigen(trust[2L] * moments$G, symmetric = TRUE)
  precision <- pmin(pmax(1 + rho * e$values, least_precision), most_precision)
  move <- -rho * trust[1L] * drop(crossprod(e$vectors, moments$g)) / pmax(1 + rho * e$values, precision)
  longest <- sqrt(length(move))
  move <- pmin(pmax(move * min(1, longest / sqrt(sum(move^2))), -longest_sds), longest_sds)
  list(mu = mu + drop(A %*% (e$vectors %*% move)),
       A = A %*% tcrossprod(e$vectors * rep(1 / sqrt(precision), each = length(mu)), e$vectors))
}

# The affine map that took `from` to `to`, to be done again: along a valley many small steps of
# the same kind are one large one.
leap_of <- function(from, to) {
  M <- or_else(t(solve(t(from$A), t(to$A), tol = 0)), to$A * NA)
  list(M = M, from = from$mu, to = to$mu)
}

do_leap <- function(leap, at) {
  list(mu = leap$to + drop(leap$M %*% (at$mu - leap$from)), A = leap$M %*% at$A)
}

# the map twice: x -> to + M (to - from) + M^2 (x - from)
compose_leap <- function(leap) {
  list(M = leap$M %*% leap$M, from = leap$from, to = leap$to + drop(leap$M %*% (leap$to - leap$from)))
}

# ---- many of them ----------------------------------------------------------------------

# From (mu, A) towards the best gaussian, until the estimated gap is below `tol` or `budget`
# points are spent. A step is kept when a fresh batch does not show that it is worse; else it
# is half as long the next time, from a batch twice as large. `best` is the best objective of the others.
natural_gradient_descent <- function(target, at, key, budget, tol, best = Inf) {
  iteration <- at$iteration %||% 0
  size <- first_batch(length(at$mu))
  spent <- 0
  look <- function(at, like = NULL) {
    if (is.null(like)) iteration <<- iteration + 1
    seen <- evaluate_gaussian(target, at$mu, at$A, key, like$size %||% size, like$iteration %||% iteration)
    spent <<- spent + seen$size
    c(at[c("mu", "A")], seen)
  }
  larger <- function() min(2 * size, largest_batch, max(size, (budget - spent) / batches_left))
  now <- look(at)
  while (!is.finite(now$F) && spent < budget / 4) now <- look(list(mu = at$mu, A = (at$A <- at$A / 2)))
  if (!is.finite(now$F)) return(c(now, list(spent = spent)))
  anchor <- now
  progress <- now$F
  rho <- first_step_size
  rejected <- 0
  kept <- 0
  gap <- gap_of(now)
  while (spent < budget * (if (still_improving(progress, best)) overtime else 1) && rejected < most_rejected &&
           !isTRUE(gap$estimate + 2 * gap$se < tol)) {
    moments <- moments_of(now)
    if (!all(is.finite(gap$trust[2L] * moments$G))) break   # overflow
    new <- look(natural_move(now$mu, now$A, moments, rho, gap$trust))
    if (is_no_worse(new, now)) {
      if (!is_better(new, now)) size <- larger()   # the difference is noise
      now <- new
      rho <- min(1, step_growth * rho)
      rejected <- 0
      kept <- kept + 1
    } else {
      rho <- rho / 2
      rejected <- rejected + 1
      size <- larger()
      again <- look(now)
      if (is.finite(again$F)) now <- again
    }
    if (kept == steps_before_leap) {
      now <- leap_on(now, leap_of(anchor, now), look)
      anchor <- now
      kept <- 0
    }
    progress <- c(progress, now$F)
    gap <- gap_of(now)
  }
  list(mu = now$mu, A = now$A, F = now$F, se = now$se, gap = gap, iteration = iteration, spent = spent,
       progress = progress)
}

# Did the last steps gain enough, also compared with the distance to the best objective of others?
still_improving <- function(progress, best = Inf) {
  n <- length(progress)
  behind <- progress[n] - best
  n > progress_steps &&
    isTRUE(behind < hopeless_nats && progress[n - progress_steps] - progress[n] > max(progress_nats, behind / catch_up_rounds))
}

# As far as doubling leaps go, each compared on the draws of the last.
leap_on <- function(now, leap, look) {
  repeat {
    if (!all(is.finite(leap$M))) return(now)
    far <- look(do_leap(leap, now), like = now)
    if (!is_better_on_same_draws(far, now)) return(now)
    now <- far
    leap <- compose_leap(leap)
  }
}

# A new batch with a much larger standard error does not count as an improvement.
is_no_worse <- function(new, old) {
  isTRUE(new$F + 2 * max(0, new$se - old$se) < old$F + 2 * old$se + no_worse_nats)
}

# Where the target grows exponentially, the objective of an approximation that is too wide is a number as large as its
# standard error, which then means nothing.
is_too_noisy <- function(new, old) !isTRUE(new$se <= max(1, noisy_factor * old$se))

is_better <- function(new, old) isTRUE(new$F + 2 * sqrt(new$se^2 + old$se^2) < old$F)

is_better_on_same_draws <- function(new, old) {
  if (!is.finite(new$F) || new$outside > old$outside) return(FALSE)
  delta <- (new$e - old$e)[!is.na(new$e) & !is.na(old$e)]
  isTRUE(mean(delta) + 2 * stats::sd(delta) / sqrt(length(delta)) < 0)
}

# A funnel's neck holds an approximation for hundreds of steps, each a small part of its own
# width, and the estimated gap there is small. From eight times as wide the mouth is nearer, and
# what the data determine is narrow again after a few steps. Done again while it leads elsewhere
# and no worse, up to the gap that each of these rough ends still has, unless that has gained nothing twice.
escape_funnel <- function(target, now, key, budget, tol, most = funnel_rounds) {
  rough <- search_tol(tol, length(now$mu))
  spent <- 0
  in_vain <- 0
  for (k in seq_len(most)) {
    wide <- list(mu = now$mu, A = funnel_widening * now$A, iteration = now$iteration)
    new <- natural_gradient_descent(target, wide, key, budget / funnel_parts, rough)
    spent <- spent + new$spent
    now$iteration <- new$iteration %||% now$iteration
    if (!is.finite(new$F)) break
    elsewhere <- distance_between(new, now) > funnel_moved_sds
    better <- is_better(new, now)
    no_worse <- better || !is_too_noisy(new, now) &&
      isTRUE(new$F - min(max(0, new$gap$estimate), 2 * rough) - 2 * sqrt(new$se^2 + now$se^2) < now$F)
    in_vain <- if (better) 0 else in_vain + 1
    if (better || elsewhere && no_worse) now <- new
    if (!elsewhere || !no_worse || in_vain == funnel_in_vain || spent > funnel_budgets * budget) break
  }
  end <- natural_gradient_descent(target, now, key, budget, final_tol(tol))
  if (is_no_worse(end, now)) end else now
}
