# Where importance weights say that no gaussian follows the target, draws that correct the fit are taken from a mixture of
# student distributions that is adapted to the target in a few rounds: population Monte Carlo (Cappe et al. 2008). Each round draws from
# the mixture so far, weighs, and fits the next one to the weighted draws. The weights of the best ones are judged as those of
# the gaussian are, and correct what the fit shows; the gaussian remains the approximation.

may_adapt <- function(fit, v) {
  !is.null(sole_component(uncorrected(fit$posterior))) && fit$given$model$dim <= widest_adapted && is.finite(max(v$log_ratios))
}

weights_object <- function(v) misses_part(v) || !isTRUE(v$shift <= most_shift && v$ratio <= most_ratio)

# The mixtures of the best rounds, the moments that the weights of the best have and the share of draws they leave; NULL
# after too few rounds. It starts from draws of the approximation, of the ends of other starts that are as good, and of profiles along
# parameters that set the scale of others.
adapt_proposal <- function(fit, x, log_ratios, most, profiles = NULL) {
  ends <- distinct(close_ends(fit$plan$search))
  ends <- join_mixtures(if (length(ends) > 1L) mixture_of_ends(ends), if (length(profiles)) mixture_of_necks(profiles))
  at <- model_theta(fit)
  frame <- list(mu = at$mu, root = lower_root(root_matrix(at$scale)))
  rounds <- min(most, rounds_to_adapt(fit, ncol(x), draws_to_adapt(nrow(x))))
  found <- list()
  pool <- list(list(x = x, log_ratios = log_ratios))
  for (round in seq_len(rounds)) {
    proposal <- if (round == 1L && !is.null(ends)) ends else with_ends(mixture_to_pool(pool, frame), ends)
    if (is.null(proposal)) break
    drawn <- keyed_ratios(fit, draws_to_adapt(nrow(x)), proposal, streams[["adapt"]] + round)
    if (!is.finite(max(drawn$log_ratios))) break
    pool <- c(utils::tail(pool, rounds_pooled - 1L), list(drawn))
    moments <- moments_under(drawn$x, truncated_weights(drawn$log_ratios), NULL)
    found[[round]] <- list(ess = share_left(drawn$log_ratios), k = k_of_spread(drawn, moments$mean), proposal = proposal,
                           moments = moments)
    if (is_settled(found) || gets_nowhere_near(share_of(found))) break
  }
  if (length(found) > rounds_to_settle) best_together(found)
}

# The best rounds as one proposal: what one of them has missed, another has not.
best_together <- function(found, most = rounds_together) {
  best <- found[utils::head(order(share_of(found) - (k_of_round(found) > k_usable), decreasing = TRUE), most)]
  together <- best[[1L]]
  together$proposal <- list(weights = unlist(lapply(best, function(round) round$proposal$weights)) / length(best),
                            parts = unlist(lapply(best, function(round) round$proposal$parts), recursive = FALSE))
  together
}

is_settled <- function(found) {
  length(found) > rounds_to_settle && sum(share_of(found) > settled_share & k_of_round(found) < k_usable) >= rounds_together
}

# Far from the required accuracy, and no better in the last three rounds.
gets_nowhere_near <- function(share) {
  n <- length(share)
  n > stalled_rounds && max(share) < fewest_adapted && max(share[(n - 2L):n]) < stalled_growth * max(share[seq_len(n - 3L)])
}

k_of_round <- function(found) vapply(found, function(round) round$k, 0)

share_of <- function(found) vapply(found, function(round) round$ess, 0)

# so many that the time of the fit is at most doubled, except for targets that were fitted at once
rounds_to_adapt <- function(fit, judged, draws) {
  spent <- fit$plan$search$account$evaluations + (fit$state$evals %||% 0) + judged
  max(fewest_rounds, spent %/% draws)
}

# k-hat of what the variances are the means of: weights may be good for means, and tails too heavy for these.
k_of_spread <- function(drawn, mean) {
  max(apply(drawn$x - mean, 1L, function(a) pareto_shape(drawn$log_ratios + 2 * log(abs(a)))))
}

# By more than a standard error, as it is the largest of many.
spread_unknown <- function(fit, drawn, mean) {
  k <- k_of_spread(drawn, mean)
  !isTRUE(k - k_error(k, k_block) <= k_usable) || !tells_exponentials(drawn, which(are_logarithms(fit)))
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
  list(weights = c((1 - ends_share) * proposal$weights, ends_share * ends$weights), parts = c(proposal$parts, ends$parts))
}

join_mixtures <- function(a, b) {
  if (is.null(a) || is.null(b)) return(a %||% b)
  list(weights = c(a$weights, b$weights) / 2, parts = c(a$parts, b$parts))
}

mixture_of_ends <- function(ends) {
  list(weights = rep(1 / length(ends), length(ends)),
       parts = lapply(ends, function(end) list(mu = end$mu, root = lower_root(end$A))))
}

adapted_line <- function(v) {
  if (is.null(v$proposal)) return(NULL)
  elsewhere <- v$alone$elsewhere
  why <- c(if (v$alone$objects) sprintf(
             "The approximation alone misses part of the target (k-hat %s, effective sample size %s of %s draws)",
             format(v$alone$k, digits = 2), format_count(round(v$alone$ess)), format_count(v$alone$draws)),
           if (!v$alone$objects && isTRUE(v$alone$thin)) sprintf(
             "The effective sample size of the approximation alone is %s of %s draws, too few to confirm it",
             format_count(round(v$alone$ess)), format_count(v$alone$draws)),
           if (!is.null(elsewhere)) sprintf("%d other start(s) ended at a different place, %s standard deviations away and %s nats below",
                                            elsewhere$number, format(elsewhere$distance, digits = 2),
                                            format(max(0, elsewhere$behind), digits = 2)))
  sprintf("%s: the results are corrected by draws from a mixture of %d student distributions adapted to the target",
          paste(why, collapse = ", and "), length(v$proposal$weights))
}

inform_of_adapting <- function(fit) {
  said <- adapted_line(fit$result$verdict)
  if (!is.null(said)) elvi_inform(said, ". `$mu` and `$Sigma` of the fit still describe the approximation.", class = "elvi_message_adapted")
}

# The last rounds together, each counting as many draws as its weights leave: ratios of one target to normalised proposals
# are on one scale.
mixture_to_pool <- function(pool, frame) {
  x <- joined(pool)
  log_ratios <- unlist(lapply(pool, function(drawn) drawn$log_ratios + log(share_left(drawn$log_ratios))))
  mixture_to(x, tempered_weights(log_ratios, enough_to_adapt(x)), frame)
}

share_left <- function(log_ratios) 1 / sum(truncated_weights(log_ratios)^2) / length(log_ratios)

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

# ---- mixtures of bent student distributions --------------------------------------------------------------------

# Fitted to weighted points (the columns of x) by expectation maximisation. A part is x = mu + curve q(t) + root y with
# y_1 = t = z_1 and y_k = s_k(t) z_k for k > 1, z of a spherical distribution; q(t) = (1, t, t^2 - 1), the
# curve does not move t itself, and log s_k is a quadratic in t. So a part can be a
# funnel (scales that grow along t), a banana (a curve that turns) or, with neither, an ellipse.

# Parts that the weighted points fall into, and a wide one for what they may have missed. `frame`, the approximation, is
# what their shape is compared with: few points tell little of many covariances.
mixture_to <- function(x, w, frame, most = most_parts) {
  number <- max(1L, min(most, floor(1 / sum(w^2) / (points_per_part * nrow(x)))))
  picked <- rle(systematic(w, fitted_points(nrow(x))))   # a heavy one more than once
  w <- picked$lengths / sum(picked$lengths)
  z <- forwardsolve(frame$root, x[, picked$values, drop = FALSE] - frame$mu)
  wide <- ellipse_under(z, w)
  if (is.null(wide)) return(NULL)
  bend <- bent_direction(z, w, wide, t(frame$root))
  inner <- parts_of(z, w, number, bend)
  if (is.null(inner)) return(NULL)
  wide$root <- wide_by(nrow(x)) * wide$root
  list(weights = c((1 - wide_share) * inner$weights, wide_share), parts = lapply(c(inner$parts, list(wide)), seen_from, frame = frame))
}

# a part in the coordinates that the frame's are made of
seen_from <- function(part, frame) {
  part$mu <- frame$mu + drop(frame$root %*% part$mu)
  part$root <- frame$root %*% part$root
  if (!is.null(part$curve)) part$curve <- frame$root %*% part$curve
  part
}

# indices, each about n times its weight
systematic <- function(w, n) pmin(findInterval((seq_len(n) - 0.5) / n, cumsum(w)) + 1L, length(w))

definite_root <- function(V) or_null(t(chol(V)))

# Expectation maximisation from slices across the direction of the bend.
parts_of <- function(z, w, number, bend, steps = mixture_steps) {
  slice <- findInterval(drop(crossprod(bend, z)), slice_bounds(drop(crossprod(bend, z)), w, number)) + 1L
  share <- outer(slice, seq_len(number), "==") + 0
  for (step in seq_len(steps)) {
    weights <- drop(crossprod(share, w))
    alive <- weights * ncol(z) > 2
    last <- step == steps || sum(alive) == 1L
    parts <- lapply(which(alive), function(k) part_under(z, w * share[, k], bend, fine = last))
    if (any(vapply(parts, is.null, NA))) return(NULL)
    weights <- weights[alive] / sum(weights[alive])
    if (last) break
    share <- shares_of(log_densities(weights, parts, z))
  }
  list(weights = weights, parts = parts)
}

slice_bounds <- function(t, w, number) {
  if (number == 1L) return(Inf)
  weighted_quantile(t, w, seq_len(number - 1L) / number)
}

shares_of <- function(log_share) {
  share <- exp(log_share - row_max(log_share))
  share / rowSums(share)
}

# ---- one part -----------------------------------------------------------------------------------

# Mean and a root of the covariance, as far as the points determine it.
ellipse_under <- function(z, w) {
  moments <- moments_under(z, w, NULL)
  root <- definite_root(shrink_covariance(moments$covariance, 1 / sum(w^2)))
  if (!is.null(root)) list(mu = moments$mean, root = root)
}

# Eigenvalues count as equal if they differ by no more than those of n draws of a round distribution (Marchenko and Pastur).
shrink_covariance <- function(V, n) {
  d <- nrow(V)
  e <- eigen(V, symmetric = TRUE)
  values <- pmax(e$values, 1e-8 * mean(e$values))
  alike <- n < 2 * d | abs(sqrt(values / stats::median(values)) - 1) <= sqrt(d / n)
  values[alike] <- mean(values[alike])
  tcrossprod(e$vectors * rep(sqrt(values), each = d))
}

# Bent along the unit vector `bend` as far as the points tell; `fine`: with scales for each direction. Covariances are those
# of what the bend leaves. Points that are others' count for nothing.
part_under <- function(z, share, bend, fine = TRUE) {
  own <- share > 1e-3 * max(share)
  z <- z[, own, drop = FALSE]
  w <- share[own] / sum(share[own])
  if (nrow(z) == 1L || 1 / sum(w^2) < fewest_to_bend) return(ellipse_under(z, w))
  turn <- turned_to(bend)
  y <- turn %*% z
  along <- moments_under(y[1L, , drop = FALSE], w, NULL)
  sd <- sqrt(drop(along$covariance))
  t <- (y[1L, ] - along$mean) / sd
  bent <- bend_under(t, y[-1L, , drop = FALSE], w, fine)
  if (is.null(bent)) return(NULL)
  d <- nrow(z)
  root <- matrix(0, d, d)
  root[1L, 1L] <- sd
  root[-1L, -1L] <- bent$root
  list(mu = along$mean * turn[1L, ], root = turn %*% root, curve = turn %*% rbind(0, t(bent$mean)), scale = bent$scale,
       range = bent$range)
}

# a reflection that takes the unit vector u to the first axis
turned_to <- function(u) {
  v <- u - c(1, numeric(length(u) - 1L))
  size <- sum(v^2)
  if (size < 1e-20) diag(length(u)) else diag(length(u)) - 2 * tcrossprod(v) / size
}

# Quadratics in t: for the means of the rows of y; for the logarithm of the residual scale; and once more for
# its directions in which that changes more or less than in the others.
bend_under <- function(t, y, w, fine) {
  n <- 1 / sum(w^2)
  range <- weighted_quantile(t, w, c(bend_tail, 1 - bend_tail))
  range <- range + c(-bend_margin, bend_margin) * diff(range)
  terms <- bend_terms(t, range)
  mean <- significant_coefficients(terms, y, w, n)
  r <- y - crossprod(mean, terms)
  common <- log_spread(terms, colMeans(r^2), w, n * nrow(r))
  r <- r * rep(exp(-drop(common %*% terms)), each = nrow(r))
  root <- definite_root(shrink_covariance(r %*% (w * t(r)), n))
  if (is.null(root)) return(NULL)
  scale <- matrix(common, 3L, nrow(y))
  if (!fine) return(list(root = root, mean = mean, scale = scale, range = range))
  r <- forwardsolve(root, r)
  slope <- eigen(r %*% (w * t * t(r)), symmetric = TRUE)
  size <- crossprod(slope$vectors, r)^2
  for (k in which(abs(slope$values) > 2 * sqrt(nrow(y) / n))) scale[, k] <- scale[, k] + log_spread(terms, size[k, ], w, n)
  list(root = root %*% slope$vectors, mean = mean, scale = scale, range = range)
}

# beyond the range they are constant
bend_terms <- function(t, range) {
  t <- pmin(pmax(t, range[1L]), range[2L])
  rbind(1, t, t^2 - 1)
}

# Least squares; coefficients that are not significant are set to 0.
significant_coefficients <- function(terms, y, w, n) {
  inverse <- solve(terms %*% (w * t(terms)))
  coefficients <- inverse %*% (terms %*% (w * t(y)))
  left <- drop((y - crossprod(coefficients, terms))^2 %*% w)
  coefficients[abs(coefficients) < significant_errors * sqrt(outer(diag(inverse), left) / n)] <- 0
  coefficients
}

# Newton steps for the likelihood of normal variables with squares `size` and log sd c'terms; a slope or a curvature of
# less than three standard errors does not count.
log_spread <- function(terms, size, w, n) {
  fitted <- function(use) {
    c <- c(log(sum(w * size)) / 2, 0, 0)
    for (step in 1:8) {
      ratio <- size * exp(-2 * drop(c %*% terms))
      H <- 2 * terms[use, , drop = FALSE] %*% (w * ratio * t(terms[use, , drop = FALSE]))
      move <- or_else(drop(solve(H, terms[use, , drop = FALSE] %*% (w * (ratio - 1)))), 0)
      c[use] <- c[use] + pmin(pmax(move, -spread_step), spread_step)
      if (max(abs(move)) < 1e-3) break
    }
    list(c = c, significant = abs(c[use]) > significant_errors * or_else(sqrt(diag(solve(H)) / n), Inf))
  }
  full <- fitted(1:3)
  use <- c(1L, (2:3)[full$significant[2:3]])
  if (length(use) == 3L) full$c else fitted(use)$c
}

# The direction to bend along: of the axes of the parameters, as a group's log sd is one, and the one in which the spread
# changes most, that along which quadratics explain most of means and scales. `axes` has the parameters' in columns.
bent_direction <- function(z, w, wide, axes) {
  if (nrow(z) == 1L) return(1)
  z <- forwardsolve(wide$root, z - wide$mu)
  size <- colSums(z^2)
  candidates <- cbind(drop(z %*% (w * (size - sum(w * size)))), crossprod(wide$root, axes))
  candidates <- candidates / rep(sqrt(colSums(candidates^2)), each = nrow(z))
  gain <- apply(candidates, 2L, function(u) explained(drop(crossprod(u, z)), z, size, w, 1 / sum(w^2)))
  along <- backsolve(t(wide$root), candidates[, which.max(gain)])   # t is linear in z, not a point of it
  along / sqrt(sum(along^2))
}

# Nats, about: of the means by t^2, and of the overall scale by t and t^2.
explained <- function(t, z, size, w, n) {
  terms <- rbind(t^2 - sum(w * t^2))
  share <- drop(z %*% (w * drop(terms)))^2 / sum(w * terms^2)
  share <- pmin(share, most_explained) * (share > significant_errors^2 / n)
  rest <- (size - t^2) / max(1, nrow(z) - 1)
  scale <- stats::lm.wfit(cbind(1, t, t^2), log(pmax(rest, 1e-10)), w)
  spread <- sum(w * (scale$fitted.values - sum(w * scale$fitted.values))^2)
  sum(-log1p(-share)) / 2 + (nrow(z) - 1) * spread / 4
}

# ---- density and draws ------------------------------------------------------------------------------

# One column for each part, up to a constant.
log_densities <- function(weights, parts, x, log_phi = function(r) -r^2 / 2) {
  each <- vapply(seq_along(parts), function(k) log(weights[k]) + log_density_of(parts[[k]], x, log_phi), numeric(ncol(x)))
  matrix(each, ncol(x))
}

# Rows of size 1 are inverted: units of parameters may differ by any factor.
inverse_of_root <- function(root) {
  size <- apply(abs(root), 1L, max)
  solve(root / size, tol = 0) / rep(size, each = nrow(root))
}

log_density_of <- function(part, x, log_phi) {
  inverse <- inverse_of_root(part$root)
  away <- x - part$mu
  volume <- log_abs_det(part$root)
  if (is.null(part$curve)) return(log_phi(sqrt(colSums((inverse %*% away)^2))) - volume)
  t <- drop(inverse[1L, ] %*% away)
  terms <- bend_terms(t, part$range)
  y <- inverse %*% away - (inverse %*% part$curve) %*% terms
  if (all(part$scale == part$scale[, 1L])) {   # one scale for all directions
    log_s <- drop(part$scale[, 1L] %*% terms)
    size <- t^2 + (colSums(y^2) - y[1L, ]^2) * exp(-2 * log_s)
    return(log_phi(sqrt(size)) - volume - (nrow(x) - 1) * log_s)
  }
  log_s <- crossprod(part$scale, terms)
  size <- t^2 + colSums((y[-1L, , drop = FALSE] * exp(-log_s))^2)
  log_phi(sqrt(size)) - volume - colSums(log_s)
}

# z of a spherical distribution, in columns, as points of a part
points_of <- function(part, z) {
  if (is.null(part$curve)) return(part$mu + part$root %*% z)
  terms <- bend_terms(z[1L, ], part$range)
  z[-1L, ] <- exp(crossprod(part$scale, terms)) * z[-1L, , drop = FALSE]
  part$mu + part$curve %*% terms + part$root %*% z
}

# n draws of a mixture whose parts have the spherical `law`, and their log density: which part each belongs to is decided by another
# keyed number.
mixture_points <- function(mixture, law, n, key, iteration) {
  x <- draw_base(law, key, n, iteration = iteration)
  part <- keyed_parts(mixture$weights, n, key, iteration)
  for (j in unique(part)) x[, part == j] <- points_of(mixture$parts[[j]], x[, part == j, drop = FALSE])
  list(x = x, log_q = mixture_log_density(mixture, law, x))
}

mixture_log_density <- function(mixture, law, x) {
  each <- log_densities(mixture$weights, mixture$parts, x, law$log_phi)
  top <- row_max(each)
  law$log_constant + top + log(rowSums(exp(each - top)))
}
