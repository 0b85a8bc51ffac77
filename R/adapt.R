# Where importance weights say that no gaussian follows the target, draws that correct the fit are taken from a mixture of
# student laws that is adapted to the target in a few rounds: population Monte Carlo (Cappe et al. 2008). Each round draws from
# the mixture so far, weighs, and fits the next one to the weighted draws. The weights of the last one are judged as those of
# the gaussian are, and correct what the fit shows; the gaussian remains the approximation.

widest_adapted <- 150     # parameters; beyond, the covariances of several parts would need more draws
# Tails heavier than those of the target's parts keep weights bounded; in many dimensions lighter ones spread the radius
# of a draw as far.
adapted_df <- function(dim) max(7, dim / 2)
most_rounds <- 15L
rounds_of_opinion <- 4L   # where nothing but a second opinion is asked for
draws_to_adapt <- function(dim) max(5000, 40 * dim)

may_adapt <- function(fit, v) {
  is.null(fit$result$stack) && fit$given$model$dim <= widest_adapted && is.finite(max(v$log_ratios))
}

weights_object <- function(v) misses_part(v) || !isTRUE(v$shift <= most_shift && v$ratio <= most_ratio)

# The best mixture of the last rounds, as the first ones have not been everywhere, and the moments that its weights have; NULL
# where there is none. It starts from draws of the approximation and of what other starts ended in, if these are as good.
adapt_proposal <- function(fit, x, log_ratios, most) {
  ends <- distinct(close_ends(fit$plan$search))
  ends <- if (length(ends) > 1L) mixture_of_ends(ends)
  at <- model_theta(fit)
  frame <- list(mu = at$mu, root = lower_root(root_matrix(at$scale)))
  rounds <- min(most, rounds_to_adapt(fit, ncol(x), draws_to_adapt(nrow(x))))
  found <- list()
  pool <- list(list(x = x, log_ratios = log_ratios))
  for (round in seq_len(rounds)) {
    proposal <- if (round == 1L && !is.null(ends)) ends else with_ends(mixture_to_pool(pool, frame), ends)
    if (is.null(proposal)) break
    drawn <- keyed_ratios(fit, draws_to_adapt(nrow(x)), proposal, 2^44 + round)
    if (!is.finite(max(drawn$log_ratios))) break
    pool <- c(utils::tail(pool, 3L), list(drawn))
    w <- truncated_weights(drawn$log_ratios)
    moments <- moments_under(drawn$x, w, NULL)
    found[[round]] <- list(ess = 1 / sum(w^2) / length(w), k = k_of_spread(drawn, moments$mean), proposal = proposal,
                           moments = moments)
    if (is_settled(found) || gets_nowhere_near(share_of(found))) break
  }
  if (length(found) > 3L) best_together(found)
}

rounds_together <- 3L

# The best rounds as one proposal: what one of them has missed, another has not.
best_together <- function(found, most = rounds_together) {
  best <- found[utils::head(order(share_of(found) - (k_of_round(found) > 0.7), decreasing = TRUE), most)]
  together <- best[[1L]]
  together$proposal <- list(weights = unlist(lapply(best, function(round) round$proposal$weights)) / length(best),
                            parts = unlist(lapply(best, function(round) round$proposal$parts), recursive = FALSE))
  together
}

is_settled <- function(found) length(found) > 3L && sum(share_of(found) > 0.4 & k_of_round(found) < 0.7) >= rounds_together

# Not near what is asked for, and no better in the last three rounds.
gets_nowhere_near <- function(share) {
  n <- length(share)
  n > 5L && max(share) < fewest_adapted && max(share[(n - 2L):n]) < 1.1 * max(share[seq_len(n - 3L)])
}

k_of_round <- function(found) vapply(found, function(round) round$k, 0)

share_of <- function(found) vapply(found, function(round) round$ess, 0)

# so many that what it took to fit is at most doubled, but for targets that were fitted at once
rounds_to_adapt <- function(fit, judged, draws) {
  spent <- fit$plan$search$account$evaluations + fit$state$evals + judged
  max(8, spent %/% draws)
}

# The share of effective draws from which on a mixture is said to follow its target: with less it may still be on its way.
fewest_adapted <- 0.2

# k-hat of what the variances are the means of: weights may be good for means, and tails too heavy for these.
k_of_spread <- function(drawn, mean) {
  max(apply(drawn$x - mean, 1L, function(a) pareto_shape(drawn$log_ratios + 2 * log(abs(a)))))
}

# By more than a standard error, as it is the largest of many.
spread_unknown <- function(fit, drawn, mean) {
  k <- k_of_spread(drawn, mean)
  !isTRUE(k - k_error(k, k_block) <= 0.7) || !tells_exponentials(drawn, which(are_logarithms(fit)))
}

# A parameter that is a logarithm is looked at by its exponential too, whose variance may rest on a few draws at the end of a
# neck, with more of it beyond.
tells_exponentials <- function(drawn, logarithms) all(draws_of_variance(drawn, logarithms) >= fewest_effective)

# The effective number of draws that the variance of exp(x_j) rests on.
draws_of_variance <- function(drawn, logarithm) {
  w <- truncated_weights(drawn$log_ratios)
  vapply(logarithm, function(j) {
    natural <- exp(drawn$x[j, ] - max(drawn$x[j, ]))
    h <- w * (natural - sum(w * natural))^2
    sum(h)^2 / sum(h^2)
  }, 0)
}

# A place that a start ended in keeps a share, so that no round forgets it.
with_ends <- function(proposal, ends) {
  if (is.null(proposal) || is.null(ends)) return(proposal)
  list(weights = c(0.9 * proposal$weights, 0.1 * ends$weights), parts = c(proposal$parts, ends$parts))
}

mixture_of_ends <- function(ends) {
  list(weights = rep(1 / length(ends), length(ends)),
       parts = lapply(ends, function(end) list(mu = end$mu, root = lower_root(end$A))))
}

adapted_line <- function(v) {
  if (is.null(v$proposal)) return(NULL)
  elsewhere <- v$alone$elsewhere
  why <- c(if (v$alone$objects) sprintf("The approximation alone misses part of the target (k-hat %s, its weights leave %s of %s draws)",
                                        format(v$alone$k, digits = 2), format_count(round(v$alone$ess)), format_count(v$alone$draws)),
           if (!is.null(elsewhere)) sprintf("%d other start(s) ended elsewhere, %s standard deviations away and %s nats behind",
                                            elsewhere$number, format(elsewhere$distance, digits = 2),
                                            format(max(0, elsewhere$behind), digits = 2)))
  sprintf("%s: what is shown is corrected by draws from a mixture of %d student laws adapted to the target",
          paste(why, collapse = ", and "), length(v$proposal$weights))
}

inform_of_adapting <- function(fit) {
  said <- adapted_line(fit$result$verdict)
  if (!is.null(said)) elvi_inform(said, "; $mu and $Sigma are the approximation's.", class = "elvi_message_adapted")
}

# The last rounds together, each counting as many draws as its weights leave: ratios of one target to normalised proposals
# are on one scale.
mixture_to_pool <- function(pool, frame) {
  x <- joined(pool)
  log_ratios <- unlist(lapply(pool, function(drawn) drawn$log_ratios + log(share_left(drawn$log_ratios))))
  mixture_to(x, tempered_weights(log_ratios, enough_to_adapt(x)), frame)
}

share_left <- function(log_ratios) 1 / sum(truncated_weights(log_ratios)^2) / length(log_ratios)

# effective draws that a mixture is fitted to
enough_to_adapt <- function(x) min(ncol(x) / 4, max(1000, 20 * nrow(x)))

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

# ---- its draws -----------------------------------------------------------------------------------

adapted_points <- function(proposal, n, key, iteration) {
  d <- length(proposal$parts[[1L]]$mu)
  mixture_points(proposal, law_of(base_student(adapted_df(d)), d), n, key, iteration)
}
