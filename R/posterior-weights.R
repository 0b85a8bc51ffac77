# What draws of the corrected posterior say at quadrature points: their evidences, which weights of draws of the gaussians do not
# get right where the gaussian is far from the posterior, and what the profiles have missed. Such draws are nearly those of the posterior,
# so that a few hundred are enough.

# Losses of rows that a fit spends on it, and draws at each point.
most_weighing_rows <- 4e5
fewest_weighing_draws <- 200L
most_weighing_draws <- 1000L

# a share of effective draws below which weights are not trusted
least_effective <- 0.2

# list(nested, posterior): weights of the quadrature points by draws of the corrected posterior, where it has draws that are good enough.
reweigh_nested <- function(nested, posterior) {
  same <- list(nested = nested, posterior = posterior)
  if (is.null(profiled_target(posterior))) return(same)
  weight <- posterior$weight
  counts <- which(weight > 0.003 * max(weight))
  draws <- 2L * (min(most_weighing_draws, most_weighing_rows %/% (posterior$roots$plan$rows * length(counts))) %/% 2)
  if (draws < fewest_weighing_draws) return(same)
  points <- paired_points(posterior, draws)
  found <- lapply(counts, function(k) corrected_ratios_at(posterior, k, points))
  ratios <- lapply(found, `[[`, "log_ratios")
  main <- ratios[weight[counts] > 0.03 * max(weight)]
  shares <- vapply(main, effective_draws, 0) / draws
  if (!isTRUE(min(shares) > least_effective)) return(same)
  posterior$weighted <- draws_are_cheap(posterior)
  nested <- new_weights(nested, ratios, found[[1L]]$log_own, counts)
  posterior$weight <- nested$hyper$weight
  best <- found[[match(which.max(weight), counts)]]
  posterior <- weigh_effects(posterior)
  if (!is_off(best) || !has_margins(posterior)) return(list(nested = nested, posterior = posterior))
  k <- which.max(posterior$weight)
  list(nested = nested, posterior = mend_margins(posterior, function(p) corrected_ratios_at(p, k, points)))
}

# Margins to which weighted points object: by profiles with points, and where these are not enough, by many weighted points.
# sample_of: the log ratios of a few points of a posterior.
mend_margins <- function(posterior, sample_of) {
  posterior <- point_margins(posterior)
  pointed <- vapply(posterior$margins$each, function(one) isTRUE(one$pointed), NA)
  if (all(pointed) && !is_off(sample_of(posterior))) posterior else refine_margins(posterior)
}

# The same draws in every fit: what a regression shows does not depend on the seed.
weighing_key <- c(20261118, 27)

# Standard normal points, some of them spread out further, the same at every component and in pairs on either side of the middle:
# list(z, log_q), their log density. Points spread evenly fill a few dimensions better than draws do; in many dimensions they would not
# be even, nor as good as draws.
paired_points <- function(posterior, number, share = 0.1) {
  d <- posterior_dim(posterior)
  z <- if (d <= most_even_unknowns) stats::qnorm(t(even_uniform(number %/% 2L, d)))
       else draw_base(posterior_law(posterior), weighing_key, number %/% 2L)
  points <- widened(z, share = share)
  list(z = cbind(points$z, -points$z), log_q = c(points$log_q, points$log_q))
}

most_even_unknowns <- 16L

# Standard normal points as proposals for component draws: further out, some of them, where the posterior is another than its components.
spread_points <- function(posterior, z) if (is_reshaped(posterior)) widened(z) else unweighted(z)

# A share of standard normal points is taken further out, so that none has a large weight where the target's tails are heavier.
widened <- function(z, number = seq_len(ncol(z)), share = 0.1) {
  d <- nrow(z)
  wide <- 1 + 1.8 / sqrt(d)
  far <- (number * sqrt(2)) %% 1 < share   # not the golden ratio, by which draw_components() chooses
  z[, far] <- wide * z[, far]
  r2 <- colSums(z^2)
  list(z = z, log_q = -r2 / 2 + log1p(share * (exp(r2 / 2 * (1 - wide^-2)) / wide^d - 1)))
}

# The account of nested_fit() with these corrections of the evidences at `counts`. `own` are the log ratios of the corrected posterior
# itself, whose integral is known to be 1: where it is good, the two sums have most of their noise in common.
new_weights <- function(nested, ratios, own, counts) {
  hyper <- nested$hyper
  draws <- length(ratios[[1L]])
  correction <- numeric(length(hyper$weight))
  correction[counts] <- vapply(ratios, log_sum, 0) - log_sum(own)
  correction[-counts] <- smooth_correction(hyper$z, counts, correction[counts])
  change <- correction - hyper$correction
  hyper$coarse_weight <- lapply(hyper$coarse_weight, function(w) normalised(log(w) + change))
  hyper$weight <- normalised(hyper$log_weight + correction)
  hyper$correction <- correction
  nested$hyper <- hyper
  weight <- hyper$weight[counts] / sum(hyper$weight[counts])
  parts <- matrix(vapply(ratios, function(r) draws * (normalised(r) - normalised(own)), numeric(draws)), draws)
  nested$evidence$corrected <- log_sum(hyper$log_weight + correction)
  nested$evidence$se <- stats::sd(parts %*% weight) / sqrt(draws)
  nested$evidence$rests_on <- paste0("a lower bound at each node; corrected by ", draws, " draws at each")
  nested$noise <- if (length(counts) > 1L) weighing_noise(hyper$theta[counts, , drop = FALSE], weight, parts) else 0
  nested$corrected <- TRUE
  nested$weighed <- draws
  rule_noise <- nested$rule_noise
  nested$change <- node_change(nested)
  nested$change$mean <- max(nested$change$mean, rule_noise)
  nested
}

# What the draws leave unsettled in the means of the hyperparameters, in their standard deviations. Pairs of draws count as one.
weighing_noise <- function(theta, weight, parts) {
  off <- theta - rep(drop(weight %*% theta), each = nrow(theta))
  sd <- sqrt(drop(weight %*% off^2))
  half <- nrow(parts) / 2
  moved <- parts %*% (weight * off)
  moved <- (moved[seq_len(half), , drop = FALSE] + moved[half + seq_len(half), , drop = FALSE]) / 2
  max(0, apply(moved, 2L, stats::sd)[sd > 0] / sd[sd > 0]) / sqrt(half)
}

# ---- draws at a component -----------------------------------------------------------------------------

# Points of log density log_q, in columns of z, as those of the corrected posterior at component k: list(z, log_ratios, log_own), log ratios
# of the posterior given its hyperparameters, in units in which the lower bound of its evidence is 0, and of the corrected posterior.
corrected_ratios_at <- function(posterior, k, points) {
  moved <- corrected_points(posterior, points$z, rep(k, ncol(points$z)))
  log_q <- points$log_q - moved$log_slope - slope_constant(posterior, k)
  list(z = moved$z, log_ratios = conditional_density(posterior, k, moved$z) - log_q,
       log_own = -colSums(points$z^2) / 2 - points$log_q)
}

# Log density of the posterior given its hyperparameters at points z of component k, in units in which the lower bound of its evidence
# is 0 and the standard normal density is exp(-|z|^2 / 2); without hyperparameters up to a constant.
conditional_density <- function(posterior, k, z) {
  if (has_target(posterior)) return(-target_values(posterior$margins$model, component_points(posterior, z, rep(k, ncol(z)))))
  target <- target_of(posterior, k)
  # with too many effects for the step from the optimum, the optimum itself
  z <- z + (offset_of_location(posterior, k, original_order(target$plan, target$setting$mu)) %||% 0)
  found <- .Call(elvi_r_nested_check, target$plan, target$rule, list(target$setting), z, FALSE, threads())[[1L]]
  found$total - colSums(z^2) / 2
}

# what the "log_slope" of corrected_points() leaves out
slope_constant <- function(posterior, k) {
  out <- if (has_effects(posterior)) sum(log(effects_at(posterior, k)$scale)) else 0
  if (!has_margins(posterior)) return(out)
  C <- margin_at(posterior, k)$covariance
  out + sum(log(diag(C))) / 2 + sum(log(diag(chol(stats::cov2cor(C)))))
}

# ---- what the profiles have missed ----------------------------------------------------------------------

# Losses of rows that this may take at a component, and draws.
most_refining_rows <- 1e6
most_refining_draws <- 40960L

# Of points spread evenly so many are taken for one dimension, twice as many for two, up to 16 times as many.
points_in_one_dimension <- 2048L

# The share of points that are further out, where moments are sought.
refining_share <- 0.25

# Noise of means and sds, in sds, at which no more points are drawn.
enough_refined <- 0.01

# Do weights move means by more than 0.02 standard deviations or standard deviations by more than 2 %, beyond the noise?
is_off <- function(sample) {
  n <- length(sample$log_ratios)
  w <- normalised(sample$log_ratios)
  v <- normalised(sample$log_own)
  moved <- drop(sample$z %*% (w - v))
  wider <- drop(sample$z^2 %*% (w - v)) / 2
  noise <- sqrt(sum((w - v)^2)) * if (nrow(sample$z) > most_refined) 2.5 else 1   # points spread evenly have less
  max(abs(moved), abs(wider)) > 0.02 + noise
}

# The posterior of a regression without hyperparameters and of few coefficients, looked at by a few points and refined where they
# object. In more dimensions that takes too many points for what it mends.
most_refined <- 6L

refine_plain <- function(posterior) {
  if (!has_margins(posterior) || posterior_dim(posterior) > most_refined) return(posterior)
  rows <- target_of(posterior)$plan$rows
  number <- 2L * as.integer(min(most_weighing_draws, most_weighing_rows %/% (2 * rows)))
  if (number < 2L * fewest_weighing_draws) return(posterior)
  points <- paired_points(posterior, number, refining_share)
  sample_of <- function(p) corrected_ratios_at(p, 1L, points)
  if (is_off(sample_of(posterior))) mend_margins(posterior, sample_of) else posterior
}

# Margins of the coefficients whose moments and shapes are those of weighted points. The corrected posterior's own, which are known, are
# control variates.
refine_margins <- function(posterior) {
  if (!has_margins(posterior)) return(posterior)
  d <- posterior_dim(posterior)
  most <- if (d > most_even_unknowns) most_refining_draws else min(most_refining_draws, points_in_one_dimension * 2^min(d, 4L))
  most <- 2L * as.integer(min(most, most_refining_rows %/% target_of(posterior)$plan$rows) %/% 2)
  if (most < 4L * fewest_weighing_draws) return(posterior)
  numbers <- 2L * (most %/% c(32L, 8L, 2L))
  points <- lapply(numbers[numbers >= 2L * fewest_weighing_draws], function(n) paired_points(posterior, n, refining_share))
  margins <- posterior$margins
  for (r in seq_along(margins$each)) {
    for (some in points) {   # each better for those before
      posterior$margins <- margins
      found <- refined_margin(posterior, margins$each[[r]]$k, some)
      if (!is.null(found$delta)) margins$each[[r]] <- found[names(found) != "noise"]
      if (isTRUE(found$noise < enough_refined)) break
    }
  }
  margins$moved <- most_moved(margins$each)
  posterior$margins <- margins
  posterior
}

# at component k; only the noise where that is too large
refined_margin <- function(posterior, k, points) {
  own <- margin_at(posterior, k)
  found <- corrected_ratios_at(posterior, k, points)
  if (effective_draws(found$log_ratios) < least_effective * ncol(points$z)) return(NULL)
  by <- normalised(found$log_ratios) - normalised(found$log_own)
  y <- crossprod(white_coordinates(posterior, k), found$z)
  there <- shaped_coordinates(own, stats::qnorm(t(even_uniform(8192L, nrow(y)))))   # cheap, without the target
  delta <- rowMeans(there) + drop(y %*% by)
  C <- tcrossprod(there) / ncol(there) + y %*% (by * t(y)) - tcrossprod(delta)
  noise <- sqrt(max(rowSums((y - delta)^4 * rep(by^2, each = nrow(y))))) / 2
  if (nrow(points$z) <= most_even_unknowns) noise <- max(noise / 2, even_noise(y, found, delta))
  moved <- max(abs(delta - own$delta), abs(C - own$covariance) / 2)
  if (noise > 0.6 * moved || min(eigen(C, symmetric = TRUE, only.values = TRUE)$values) < 0.05) return(list(noise = noise))
  shape <- tilted_shapes(own$shape, own$delta, sqrt(diag(own$covariance)), y, by, there)
  c(margin_of_points(posterior, k, y, normalised(found$log_ratios), delta, C, shape), list(noise = noise))
}

# Margins at component k whose whitened coordinates have this mean, covariance and shape, and whose coefficients have the shapes of the
# points y with weights w.
margin_of_points <- function(posterior, k, y, w, delta, C, shape) {
  U <- posterior$margins$roots[[k]]
  U <- U / sqrt(rowSums(U^2))
  shown <- list(mean = drop(U %*% delta), sd = sqrt(rowSums((U %*% C) * U)))
  list(k = k, delta = delta, covariance = C, shape = shape, own = weighted_shapes((U %*% y - shown$mean) / shown$sd, w),
       mean = max(abs(shown$mean)), sd = range(shown$sd), refined = TRUE)
}

# That of moments of points spread evenly: by the difference between those of two halves, which are spread evenly too.
even_noise <- function(y, found, delta) {
  n <- ncol(y)
  first <- (seq_len(n) - 1) %% (n / 2) < n / 4
  of <- function(use) {
    by <- normalised(found$log_ratios[use]) - normalised(found$log_own[use])
    x <- y[, use, drop = FALSE] - delta
    c(x %*% by, x^2 %*% by / 2)
  }
  max(abs(of(first) - of(!first))) / 2
}

# Shapes of linear functions, the columns of a, at components whose margins are refined: those of weighted points, because the functions'
# own profiles are no better than those of the coefficients were. NULL where they are not refined, functions are too many or points
# too few.
shaping_points <- 24576L
most_shaped <- 500L

refined_shapes <- function(posterior, k, a, components) {
  if (!has_margins(posterior) || !isTRUE(margin_at(posterior, k)$refined) || ncol(a) * components > most_shaped) return(NULL)
  number <- 2L * as.integer(min(shaping_points, most_refining_rows %/% target_of(posterior)$plan$rows) %/% 2)
  if (number < 4L * fewest_weighing_draws) return(NULL)
  found <- corrected_ratios_at(posterior, k, paired_points(posterior, number, refining_share))
  w <- normalised(found$log_ratios)
  if (1 / sum(w^2) < least_effective * number) return(NULL)
  x <- root_rows(root_at(posterior$roots, k), t(a)) %*% found$z
  mean <- drop(x %*% w)
  sd <- sqrt(drop((x - mean)^2 %*% w))
  shape <- normal_shapes(nrow(x))   # of a function that is 0, as that of a row of zeros, too
  moves <- which(sd > 0)
  if (length(moves)) shape[moves, ] <- weighted_shapes((x[moves, , drop = FALSE] - mean[moves]) / sd[moves], w)
  shape
}

# Effects of groups in models of two predictors, whose densities no quadrature has: at most so many unknowns, whose moments are those of
# so many draws. Nothing where few draws count.
most_weighed_unknowns <- 100L
most_effect_draws <- 4096L

weigh_effects <- function(posterior) {
  plan <- posterior$roots$plan
  given <- has_effects(posterior) || is.null(plan$joint) || plan$dim == plan$dense || plan$constraints
  draws <- 2L * (min(most_effect_draws, most_refining_rows %/% (3 * plan$rows)) %/% 2)
  if (given || plan$dim > most_weighed_unknowns || draws < 4L * fewest_weighing_draws) return(posterior)
  at <- seq_len(plan$dim - plan$dense)
  points <- paired_points(posterior, draws)
  chosen <- main_components(posterior, 3L)
  each <- lapply(chosen, function(k) weighed_effects(posterior, k, points, at))
  if (any(lengths(each) == 0L)) return(posterior)
  posterior$effects <- list(at = at, of = nearest_of(posterior, chosen), each = each)
  posterior
}

# at component k
weighed_effects <- function(posterior, k, points, at) {
  found <- corrected_ratios_at(posterior, k, points)
  if (effective_draws(found$log_ratios) < least_effective * ncol(points$z)) return(NULL)
  by <- normalised(found$log_ratios) - normalised(found$log_own)
  z <- found$z[at, , drop = FALSE]
  delta <- drop(z %*% by)
  scale <- sqrt(pmax(1 + drop(z^2 %*% by) - delta^2, 0.25))
  root <- root_rows(root_at(posterior$roots, k), diag(posterior_dim(posterior)))
  there <- matrix(stats::qnorm(stats::ppoints(512L)), length(at), 512L, byrow = TRUE)
  list(k = k, delta = delta, scale = scale, shape = tilted_shapes(normal_shapes(length(at)), 0, 1, z, by, there),
       growth = 1 + drop(root[, at, drop = FALSE]^2 %*% (scale^2 - 1)) / rowSums(root^2))
}

# Shapes of standardised variables, the rows of x, by weights of their draws: their distribution functions at a few places, joined in
# normal scores, and straight beyond the scores that enough draws have.
weighted_shapes <- function(x, w, fewest = 20) {
  reach <- min(max(stats::qnorm(1 - fewest * sum(w^2)), 2), 3.25)
  inside <- margin_scores[abs(margin_scores) <= reach]
  t(apply(x, 1L, function(v) {
    o <- order(v)
    below <- cumsum(w[o]) - w[o] / 2
    places <- unique(findInterval(seq(-7, 7, by = 0.1), v[o], all.inside = TRUE))
    score <- stats::qnorm(pmin(pmax(below[places], 1e-12), 1 - 1e-12))
    use <- c(TRUE, diff(score) > 0) & abs(score) < reach + 0.5
    at <- stats::approx(score[use], v[o][places][use], inside, rule = 2, ties = "ordered")$y
    stats::splinefun(inside, at, method = "monoH.FC")(margin_scores)
  }))
}

# Shapes of variables, the rows of x, whose distribution has changed by the signed weights `by` of its draws from that of the rows of
# `there`, which is close to `shape` with the given mean and sd: density ratios are polynomials of normal scores (Gram and Charlier).
tilted_shapes <- function(shape, mean, sd, x, by, there, degree = 4L) {
  score <- score_at_value(shape, (x - mean) / sd)
  before <- score_at_value(shape, (there - mean) / sd)
  H <- hermite_values(score, degree)
  H0 <- hermite_values(before, degree)
  grid <- seq(-6, 6, by = 0.02)
  P <- vapply(hermite_values(matrix(pmin(pmax(grid, -3), 3), 1L), degree), drop, grid)
  t(vapply(seq_len(nrow(shape)), function(j) {
    c <- vapply(seq_len(degree), function(m) (sum(H[[m]][j, ] * by) + mean(H0[[m]][j, ])) / factorial(m), 0)
    density <- stats::dnorm(grid) * pmax(1 + drop(P %*% c), 0.15)
    below <- (cumsum(density) - density / 2) / sum(density)
    s <- stats::approx(stats::qnorm(pmin(pmax(below, 1e-16), 1 - 1e-16)), grid, margin_scores, rule = 2, ties = "ordered")$y
    value <- drop(value_at_score(shape[j, , drop = FALSE], matrix(s, 1L)))
    w <- stats::dnorm(margin_scores) / sum(stats::dnorm(margin_scores))
    value <- value - sum(w * value)
    value / sqrt(sum(w * value^2))
  }, margin_scores))
}

# of degrees 1, ..., degree at the elements of x
hermite_values <- function(x, degree) {
  out <- list(x, x^2 - 1)
  for (m in seq_len(degree)[-(1:2)]) out[[m]] <- x * out[[m - 1L]] - (m - 1) * out[[m - 2L]]
  out
}

# ---- draws of what a fit shows ------------------------------------------------------------------------------

# Above so many rows, draws of a fit are not compared with the target.
most_compared_rows <- 2500L

draws_are_cheap <- function(posterior) posterior$roots$plan$rows <= most_compared_rows

# Do draws have the target as their stationary distribution at each quadrature point?
is_weighted <- function(posterior) isTRUE(posterior$weighted) && is_reshaped(posterior)

# As metropolis_draws(), at each component by itself.
component_metropolis <- function(posterior, drawn, key) {
  log_w <- numeric(length(drawn$component))
  for (k in unique(drawn$component)) {
    at <- which(drawn$component == k)
    log_w[at] <- conditional_density(posterior, k, drawn$z[, at, drop = FALSE])
  }
  log_w <- log_w - attr(drawn$x, "log_q")
  u <- log(with_key(key_for(key, list("accept")), stats::runif(length(log_w))))
  kept <- seq_along(log_w)
  last <- integer(length(posterior$weight))
  for (i in seq_along(log_w)) {
    k <- drawn$component[i]
    if (last[k] && !isTRUE(u[i] < log_w[i] - log_w[last[k]])) kept[i] <- last[k] else last[k] <- i
  }
  drawn$x[kept, , drop = FALSE]
}
