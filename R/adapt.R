# Where importance weights say that no gaussian follows the target, draws that correct the fit are taken from a mixture of
# student laws that is adapted to the target in a few rounds: population Monte Carlo (Cappe et al. 2008). Each round draws from
# the mixture so far, weighs, and fits the next one to the weighted draws. The weights of the last one are judged as those of
# the gaussian are, and correct what the fit shows; the gaussian remains the approximation.

widest_adapted <- 60      # parameters; beyond, the covariances of several parts would need more draws
most_parts <- 8L
adapted_df <- 7           # tails heavier than those of the target's parts keep weights bounded
most_rounds <- 15L
rounds_of_opinion <- 6L   # where nothing but a second opinion is asked for
draws_to_adapt <- function(dim) max(5000, 40 * dim)

# Weights that leave few draws may object to the approximation, or not see what it misses.
asks_for_adapting <- function(fit, v) {
  is.null(fit$result$stack) && fit$given$model$dim <= widest_adapted && is.finite(max(v$log_ratios)) &&
    (v$ess < fewest_adapted * v$draws || weights_object(v))
}

weights_object <- function(v) misses_part(v) || v$shift > most_shift || v$ratio > most_ratio

# The best mixture of the last rounds, as the first ones have not been everywhere, and the moments that its weights have; NULL
# where there is none. It starts from draws of the approximation and of what other starts ended in, if these are as good.
adapt_proposal <- function(fit, x, log_ratios, most) {
  ends <- distinct(close_ends(fit$plan$search))
  from <- if (length(ends) > 1L) mixture_of_ends(ends)
  rounds <- min(most, rounds_to_adapt(fit, ncol(x), draws_to_adapt(nrow(x))))
  found <- list()
  for (round in seq_len(rounds)) {
    proposal <- from %||% mixture_to(x, log_ratios)
    from <- NULL
    if (is.null(proposal)) break
    drawn <- keyed_ratios(fit, draws_to_adapt(nrow(x)), proposal, 2^44 + round)
    x <- drawn$x
    log_ratios <- drawn$log_ratios
    if (!is.finite(max(log_ratios))) break
    w <- truncated_weights(log_ratios)
    found[[round]] <- list(ess = 1 / sum(w^2) / length(w), proposal = proposal, moments = moments_under(x, w, NULL))
    if (round > 3L && found[[round]]$ess > 0.5 || round > 5L && all(share_of(found) < 0.05)) break
  }
  last <- utils::tail(found, 4L)
  if (length(found) > 3L) last[[which.max(share_of(last))]]
}

share_of <- function(found) vapply(found, function(round) round$ess, 0)

# so many that what it took to fit is at most doubled
rounds_to_adapt <- function(fit, judged, draws) {
  spent <- fit$plan$search$account$evaluations + fit$state$evals + judged
  max(4, spent %/% draws)
}

# The share of effective draws from which on a mixture is said to follow its target: with less it may still be on its way.
fewest_adapted <- 0.2

# k-hat of what the variances are the means of: weights may be good for means, and tails too heavy for these.
k_of_spread <- function(drawn, mean) {
  max(vapply(seq_along(mean), function(j) pareto_shape(drawn$log_ratios + 2 * log(abs(drawn$x[j, ] - mean[j]))), 0))
}

mixture_of_ends <- function(ends) {
  list(weights = rep(1 / length(ends), length(ends)),
       parts = lapply(ends, function(end) list(mu = end$mu, root = lower_root(end$A))))
}

adapted_line <- function(v) {
  if (is.null(v$proposal)) return(NULL)
  sprintf(paste("The approximation alone misses part of the target (k-hat %s, its weights leave %s of %s draws): what is shown is",
                "corrected by draws from a mixture of %d student laws adapted to the target"),
          format(v$alone$k, digits = 2), format_count(round(v$alone$ess)), format_count(v$alone$draws), length(v$proposal$weights))
}

inform_of_adapting <- function(fit) {
  said <- adapted_line(fit$result$verdict)
  if (!is.null(said)) elvi_inform(said, "; $mu and $Sigma are the approximation's.", class = "elvi_message_adapted")
}

# ---- a mixture to weighted draws --------------------------------------------------------------

# Parts that the weighted draws fall into, and a wide one for what they may have missed.
mixture_to <- function(x, log_ratios) {
  d <- nrow(x)
  w <- tempered_weights(log_ratios, min(length(log_ratios) / 4, max(1000, 20 * d)))
  all <- moments_under(x, w, NULL)
  root <- definite_root(all$covariance)
  if (is.null(root)) return(NULL)
  number <- max(1L, min(most_parts, floor(1 / sum(w^2) / (5 * d))))
  picked <- rle(systematic(w, 2000 + 10 * d))   # a heavy one more than once
  z <- forwardsolve(root, x[, picked$values, drop = FALSE] - all$mean)
  inner <- parts_of(z, picked$lengths / sum(picked$lengths), number)
  if (is.null(inner)) return(NULL)
  back <- lapply(inner$parts, function(part) list(mu = all$mean + drop(root %*% part$mu), root = root %*% part$root))
  list(weights = c(0.9 * inner$weights, 0.1), parts = c(back, list(list(mu = all$mean, root = 1.5 * root))))
}

# Weights with an exponent of at most 1, as large as leaves `enough` effective draws: a few heavy ones say little of a shape.
tempered_weights <- function(log_ratios, enough) {
  at <- function(t) {
    w <- exp(t * (log_ratios - max(log_ratios)))
    w[log_ratios == -Inf] <- 0
    w / sum(w)
  }
  if (1 / sum(at(1)^2) >= enough) return(at(1))
  low <- 0
  high <- 1
  for (k in 1:20) {
    middle <- (low + high) / 2
    if (1 / sum(at(middle)^2) >= enough) low <- middle else high <- middle
  }
  at(low)
}

# indices, each about n times its weight
systematic <- function(w, n) pmin(findInterval((seq_len(n) - 0.5) / n, cumsum(w)) + 1L, length(w))

definite_root <- function(V) tryCatch(t(chol(V)), error = function(e) NULL)

# Expectation maximisation for gaussians, from slices across the direction in which the spread changes most: along a funnel.
parts_of <- function(z, w, number, steps = 12L) {
  size <- colSums(z^2)
  along <- drop(z %*% (w * (size - sum(w * size))))
  slice <- rank(drop(crossprod(along, z)), ties.method = "first")
  share <- outer(ceiling(slice * number / ncol(z)), seq_len(number), "==") + 0
  for (step in seq_len(steps)) {
    weights <- drop(crossprod(share, w))
    alive <- weights * ncol(z) > 2
    parts <- lapply(which(alive), function(k) part_under(z, w * share[, k]))
    if (any(vapply(parts, is.null, NA))) return(NULL)
    weights <- weights[alive] / sum(weights[alive])
    log_share <- vapply(seq_along(parts), function(k) log(weights[k]) + log_density_of(parts[[k]], z), numeric(ncol(z)))
    share <- exp(log_share - apply(log_share, 1L, max))
    share <- share / rowSums(share)
  }
  list(weights = weights, parts = parts)
}

# Mean and a root of the covariance, drawn towards a round one as far as the draws are few.
part_under <- function(z, share) {
  d <- nrow(z)
  w <- share / sum(share)
  moments <- moments_under(z, w, NULL)
  few <- min(1, (d + 2) * sum(w^2))
  V <- (1 - few) * moments$covariance + diag(few * mean(diag(moments$covariance)) + 1e-8, d)
  root <- definite_root(V)
  if (!is.null(root)) list(mu = moments$mean, root = root)
}

# up to a constant
log_density_of <- function(part, z, log_phi = function(r) -r^2 / 2) {
  log_phi(sqrt(colSums(forwardsolve(part$root, z - part$mu)^2))) - sum(log(diag(part$root)))
}

# ---- its draws -----------------------------------------------------------------------------------

adapted_points <- function(proposal, n, key, iteration) {
  d <- length(proposal$parts[[1L]]$mu)
  law <- law_of(base_student(adapted_df), d)
  x <- draw_base(law, key, n, iteration = iteration)
  part <- keyed_parts(proposal$weights, n, key, iteration)
  for (j in unique(part)) x[, part == j] <- proposal$parts[[j]]$mu + proposal$parts[[j]]$root %*% x[, part == j, drop = FALSE]
  each <- vapply(seq_along(proposal$parts), function(j) {
    log(proposal$weights[j]) + log_density_of(proposal$parts[[j]], x, law$log_phi)
  }, numeric(n))
  top <- apply(each, 1L, max)
  list(x = x, log_q = law$log_constant + top + log(rowSums(exp(each - top))))
}
