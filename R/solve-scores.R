# The rule of normal scores, for three or more hyperparameters. Each quadrature point gives the log evidence and its gradient.
#
# 1. Coordinates. Along each hyperparameter the log evidence is evaluated as far out as it counts, the others following the ridge.
#    In the normal scores v of the density so found the posterior is near normal, however long its tails: that of a
#    log sd which may be zero falls off like exp(theta) only. Terms with correlations begin with coordinates of their own
#    (solve-coordinates.R).
# 2. Points. Those of step 1, quasi-random points of a normal distribution of v, and some in the right tail of sds which have much of
#    their variance there.
# 3. Surrogate. A polynomial is fitted to values and gradients of the log density, less that of a normal distribution. It is cheap, so
#    its moments come from thousands of points (solve-surrogate.R).
# 4. Weights. Each point stands for the mass of the surrogate that is nearest to it; then weights are tilted to the surrogate's moments.
#
# The error: the same where each fourth of the points counts by half, and with moments corrected by importance sampling, which does not
# trust the surrogate (score_weights).

score_nodes <- function(setup, around, control, say) {
  setup$coordinates <- level_coordinates(setup, around$mode)
  around <- around_in(setup, around)
  profile <- profile_coordinates(setup, around, control$tol)
  number <- score_number(setup, length(setdiff(long_tails(profile$maps), unlist(lapply(setup$coordinates, `[[`, "at")))))
  design <- list(proposals = list(), counts = integer())
  main <- curvature_proposal(profile)
  sample <- surrogate_sample(setup$layout$length)
  found <- profile$found
  known <- length(found)
  for (target in number$rounds) {
    solved <- length(found) - known
    added <- score_proposals(profile$maps, main, target - solved)
    new <- do.call(rbind, Map(proposed_scores, added$proposals, added$counts, MoreArgs = list(skip = solved)))
    design <- Map(c, design, added)
    found <- c(found, solve_scores(setup, profile$maps, new, around, control$tol))
    if (!is.null(say)) say(sprintf("quadrature points: %d solved", length(found)))
    points <- scored_points(profile$maps, found)
    points$part <- c(rep(-1L, known), fourths(design$counts))
    shape <- score_surrogate(points, main, sample, rich = target >= number$first)
    main <- moment_proposal(shape$v, shape$weight)
    if (target < number$first) next
    rule <- score_weights(setup, profile$maps, points, shape, design)
    few <- few_points(rule)
    if (isTRUE(max(few, score_error(setup, points, found, rule)) < number$enough)) break
  }
  keep <- which(rule$log_weight > max(rule$log_weight) - 18)
  found <- out_of_coordinates(setup$coordinates, found[keep])
  value <- vapply(found, function(f) f$value, 0)
  list(z = points$v[keep, , drop = FALSE], found = found, log_rule = rule$log_weight[keep] - value,
       log_coarse = rule$log_coarse[keep, , drop = FALSE] - value, noise = few,
       evaluations = profile$evaluations + nrow(points$v) - known)
}

# An error that weights on a few points have whatever else says: of so few nothing can be left out.
few_points <- function(rule, enough = 20) {
  effective <- 1 / sum(normalised(rule$log_weight)^2)
  if (effective < enough) 1 / sqrt(effective) else 0
}

# How many points: at first half of those that usually do, to see where the density is; more while the error is large, and
# as the time that each takes allows. `long`: how many hyperparameters have a
# long tail, those of terms with correlations aside.
score_number <- function(setup, long = 0L) {
  H <- setup$layout$length
  first <- 20 + 14 * H + if (H > 4L) 16 * long else 0
  most <- max(first, min(8 * first, 4e10 / solve_cost(setup$plan)))
  rounds <- first * c(0.5, 1, 1.6, 2.6, 4.1, 6.6)
  list(first = first, rounds = 2 * ceiling(rounds[rounds <= most] / 2), enough = 0.045)
}

# ---- coordinates ---------------------------------------------------------------------------------------------------

# Points along each hyperparameter on either side of the mode, until the log evidence has fallen by `fall`; then the map of each
# hyperparameter to normal scores, by the density that they show. The others follow the ridge: one sd near zero lets others grow.
profile_coordinates <- function(setup, around, tol, fall = 4.5, rounds = 4L) {
  mode <- around$mode
  H <- length(mode$theta)
  ridge <- ridge_of(around$hessian)
  sides <- data.frame(j = rep(seq_len(H), 2L), sign = rep(c(1, -1), each = H))
  near <- rep(list(mode), 2L * H)
  reach <- 1.5 * ridge$sd[sides$j]
  kept <- rep(list(list()), H)
  open <- seq_len(2L * H)
  evaluations <- 0L
  for (round in seq_len(rounds)) {
    x <- lapply(open, function(s) ridge_point(ridge, mode, near[[s]], sides$j[s], sides$sign[s] * reach[s]))
    found <- evidence_in(setup, x, near[open], around$drift, tol)
    evaluations <- evaluations + length(found)
    fell <- mode$value - vapply(found, function(f) f$value, 0)
    for (i in which(is.finite(fell))) {
      j <- sides$j[open[i]]
      kept[[j]] <- c(kept[[j]], list(found[[i]]))
      near[[open[i]]] <- found[[i]]
    }
    # too far to interpolate: a nearer one
    by <- ifelse(!is.finite(fell) | fell > 10, 0.5, pmin(pmax(sqrt(6 / pmax(fell, 0.1)), 1.4), 2.5))
    again <- !is.finite(fell) | fell < fall | (fell > 10 & round == 1L)
    reach[open] <- reach[open] * by
    near[open[by < 1]] <- list(mode)
    open <- open[again]
    if (!length(open)) break
  }
  maps <- lapply(seq_len(H), function(j) {
    at <- c(list(mode), kept[[j]])
    gain <- vapply(at, function(f) min(sum(ridge_step(ridge, f$slope, j) * f$slope) / 2, 1), 0)
    score_map(vapply(at, function(f) f$theta[[j]], 0), vapply(at, function(f) f$value, 0) + gain,
              vapply(at, function(f) f$slope[[j]], 0))
  })
  mode <- mode[intersect(c("theta", "value", "slope", "solution", "own"), names(mode))]
  list(maps = maps, found = c(list(mode), unlist(kept, recursive = FALSE)), evaluations = evaluations, correlation = ridge$correlation)
}

# By the curvature at the mode, without flat or rising directions
ridge_of <- function(hessian) {
  e <- eigen(hessian, symmetric = TRUE)
  value <- pmax(e$values, 0.5)
  covariance <- e$vectors %*% (t(e$vectors) / value)
  sd <- sqrt(diag(covariance))
  list(sd = sd, along = covariance %*% diag(1 / sd^2, length(sd)), correlation = covariance / outer(sd, sd),
       hessian = e$vectors %*% (t(e$vectors) * value))
}

# Hyperparameter j at so far from the mode, the others where they are expected to be best, by the last point on that side
ridge_point <- function(ridge, mode, near, j, by) {
  if (near$theta[[j]] == mode$theta[[j]]) return(mode$theta + ridge$along[, j] * by)
  theta <- near$theta + ridge_step(ridge, near$slope, j)
  replace(theta, j, mode$theta[[j]] + by)
}

# a Newton step in all hyperparameters but one, of at most 1.5 conditional sds each
ridge_step <- function(ridge, slope, j) {
  step <- numeric(length(slope))
  if (length(slope) == 1L) return(step)
  step[-j] <- solve(ridge$hessian[-j, -j, drop = FALSE], slope[-j])
  most <- 1.5 / sqrt(diag(ridge$hessian))
  step * min(1, most / pmax(abs(step), 1e-300))
}

# theta as a function of its normal score under the density whose logarithm has the given values and slopes, cubic in between and
# quadratic beyond them, which is linear where its curvature goes to zero, as that of a log sd does on the left but not on the right.
score_map <- function(theta, value, slope, points = 801L, deep = 20) {
  at <- order(theta)
  n <- length(at)
  theta <- theta[at]
  value <- value[at] - max(value)
  slope <- slope[at]
  slope[1L] <- max(slope[1L], 0.3)
  slope[n] <- min(slope[n], -0.3)
  bend <- end_curvature(theta, slope)
  spline <- stats::splinefunH(theta, value, slope)
  beyond <- function(x) list(left = pmax(theta[1L] - x, 0), right = pmax(x - theta[n], 0))
  log_shape <- function(x) {
    by <- beyond(x)
    spline(x) - bend[1L] * by$left^2 / 2 - bend[2L] * by$right^2 / 2
  }
  slope_at <- function(x) {
    by <- beyond(x)
    spline(x, deriv = 1L) + bend[1L] * by$left - bend[2L] * by$right
  }
  left <- pmax(0, deep + value[c(1L, n)])   # to fall, beyond the ends
  reach <- 2 * left / (abs(slope[c(1L, n)]) + sqrt(slope[c(1L, n)]^2 + 2 * bend * left))
  ends <- c(theta[1L] - reach[1L], theta[n] + reach[2L])
  x <- seq(ends[1L], ends[2L], length.out = points)
  p <- exp(log_shape(x))
  cell <- (p[-1L] + p[-points]) / 2 * (x[2L] - x[1L])
  total <- sum(cell)
  below <- c(0, cumsum(cell)) / total
  above <- c(rev(cumsum(rev(cell))), 0) / total
  v <- stats::qnorm(pmin(below, above)) * ifelse(below < 0.5, 1, -1)
  use <- is.finite(v) & abs(v) < 6
  list(theta = stats::splinefun(v[use], x[use], method = "monoH.FC"), score = stats::splinefun(x[use], v[use], method = "monoH.FC"),
       log_density = function(theta) log_shape(theta) - log(total), slope = slope_at)
}

# How fast the slope falls beyond either end: as between the last two points, or less where it has been falling ever less
end_curvature <- function(theta, slope) {
  by <- -diff(slope) / diff(theta)
  n <- length(by)
  at <- function(last, before) min(max(2 * last - before, 0), max(last, 0))
  if (n < 2L) c(0, 0) else c(at(by[1L], by[2L]), at(by[n], by[n - 1L]))
}

each_map <- function(maps, what, x) {
  out <- vapply(seq_along(maps), function(j) maps[[j]][[what]](x[, j]), numeric(nrow(x)))
  matrix(out, nrow(x))
}

# Solved points in scores v: the log density there and its gradient
scored_points <- function(maps, found) {
  theta <- matrix(unlist(lapply(found, function(f) f$theta)), length(found), byrow = TRUE)
  slope <- matrix(unlist(lapply(found, function(f) f$slope)), length(found), byrow = TRUE)
  value <- vapply(found, function(f) f$value, 0)
  v <- each_map(maps, "score", theta)
  log_density <- each_map(maps, "log_density", theta)
  stretch <- exp(stats::dnorm(v, log = TRUE) - log_density)   # d theta / d v
  list(theta = theta, v = v, value = value, log_density = value + rowSums(stats::dnorm(v, log = TRUE) - log_density),
       slope = (slope - each_map(maps, "slope", theta)) * stretch - v, usable = is.finite(value) & is.finite(rowSums(slope)))
}

solve_scores <- function(setup, maps, v, around, tol) {
  theta <- each_map(maps, "theta", v)
  evidence_in(setup, lapply(seq_len(nrow(theta)), function(i) theta[i, ]), rep(list(around$mode), nrow(theta)), around$drift, tol)
}

# ---- proposals -----------------------------------------------------------------------------------------------------

# Normal distributions of the scores: v = centre + root z, root symmetric, so that no sign or order of axes matters. Wider than the
# density, as its tails may be.
curvature_proposal <- function(profile, wide = 1.1) {
  list(centre = numeric(ncol(profile$correlation)), root = wide * covariance_root(profile$correlation), wide = wide)
}

moment_proposal <- function(v, weight, wide = 1.1) {
  centre <- drop(weight %*% v)
  list(centre = centre, root = wide * covariance_root(crossprod(sqrt(weight) * sweep(v, 2L, centre))), wide = wide)
}

covariance_root <- function(V, least = 0.02) {
  e <- eigen(V, symmetric = TRUE)
  e$vectors %*% (sqrt(pmax(e$values, least)) * t(e$vectors))
}

# The main one, and one for each long right tail: n points in all, in pairs
score_proposals <- function(maps, main, n, share = 0.2) {
  long <- long_tails(maps)
  each <- if (length(long)) 2 * round(share * n / length(long) / 2) else 0
  each <- max(each, 2)
  list(proposals = c(list(main), lapply(long, tail_proposal, main = main)),
       counts = c(2 * ceiling((n - each * length(long)) / 2), rep(each, length(long))))
}

# hyperparameters much of whose variance is in their right tail, as that of sds which may be zero
long_tails <- function(maps) which(vapply(maps, tail_share, 0) > 0.04)

# how much of the mean of exp(theta)^2 is beyond scores of 2.5, which few points of the main proposal reach
tail_share <- function(map) {
  v <- seq(-6, 6, by = 0.1)
  part <- exp(2 * map$theta(v) + stats::dnorm(v, log = TRUE))
  sum(part[v > 2.5]) / sum(part)
}

# hyperparameter j far to the right, the others as they are expected to be there
tail_proposal <- function(j, main, far = 2.6, narrow = 0.7) {
  V <- main$root %*% main$root
  along <- V[, j] / sqrt(V[j, j])
  list(centre = main$centre + far * along / 1.1, root = covariance_root(V - (1 - narrow^2) * tcrossprod(along)))
}

# quasi-random, in pairs on either side of the centre
proposed_scores <- function(proposal, n, skip) {
  index <- skip / 2 + seq_len(n / 2)
  z <- stats::qnorm(quasi_random(max(index), length(proposal$centre))[index, , drop = FALSE])
  rep(proposal$centre, each = n) + rbind(z, -z) %*% proposal$root
}

proposal_density <- function(proposal, v) {
  z <- sweep(v, 2L, proposal$centre) %*% solve(proposal$root)
  rowSums(stats::dnorm(z, log = TRUE)) - as.numeric(determinant(proposal$root)$modulus)
}

# of points drawn `counts` times from each
mixture_density <- function(proposals, counts, v) {
  parts <- vapply(seq_along(proposals), function(k) log(counts[k]) + proposal_density(proposals[[k]], v), numeric(nrow(v)))
  apply(matrix(parts, nrow(v)), 1L, log_sum)
}

# ---- weights -------------------------------------------------------------------------------------------------------

# Log weights of all points; and in columns what they would be if each fourth of the points drawn counted by half, in the surrogate and
# in the weights; part of the way to moments corrected by importance sampling; and to those by half of the surrogate's sample. By half,
# so that points in the tails, which have few neighbours, are never missed. The rule's error_scale makes up for that, such that
# the last two count in full.
score_weights <- function(setup, maps, points, shape, design) {
  z <- score_z(points$v, shape$reference)
  shown <- shown_in(setup, each_map(maps, "theta", shape$v))
  unit <- hyper_moments(list(values = shown), shape$weight)
  features <- list(sample = moment_features(shape$z, shown, unit), nodes = moment_features(z, shown_in(setup, points$theta), unit))
  cell <- if (ncol(z) > 11L) importance_mass(points, design) else cell_mass(shape, z, points$usable)
  moments <- sample_moments(shape, features$sample)
  moments$sd <- sqrt(pmax(drop(shape$weight %*% features$sample^2) - moments$mean^2, 1e-12 * (1 + moments$mean^2)))
  full <- tilted_weights(cell, features$nodes, moments)
  without <- lapply(0:3, function(out) {
    there <- sample_moments(refit_shape(shape, out), features$sample)
    moments[names(there)] <- there
    tilted_weights(cell * ifelse(points$part == out, 0.5, 1), features$nodes, moments, full$lambda)$log_weight
  })
  share <- 1 / sqrt(error_scale("scores"))
  others <- lapply(list(corrected_moments(shape, points, z, design, features$nodes, moments, share),
                        half_sample_moments(shape, features$sample, moments, share)),
                   function(there) tilted_weights(cell, features$nodes, there, full$lambda)$log_weight)
  list(log_weight = full$log_weight, log_coarse = do.call(cbind, c(without, others)))
}

# pairs of each proposal, dealt out into four parts
fourths <- function(counts) unlist(Map(function(m, skip) (rep(seq_len(m / 2), 2L) + skip) %% 4L, counts, seq_along(counts)))

# Functions of the points whose moments the weights have, the most wanted first. Coordinates, bounded so that no point far out
# decides; hyperparameters on their natural scale, in units of their sd from the mean; and squares of both.
moment_features <- function(z, shown, unit) {
  flat <- flat_scores(z)
  shown <- t((t(shown) - unit$mean) / pmax(unit$sd, 1e-300))
  pair <- which(lower.tri(diag(ncol(z))), arr.ind = TRUE)
  unname(cbind(flat, shown, flat^2, shown^2, flat[, pair[, 1L]] * flat[, pair[, 2L]], flat^3))
}

sample_moments <- function(fit, features) list(mean = drop(fit$weight %*% features), log_total = fit$log_total)

# By half of the surrogate's sample: the difference is at least one standard error of all of it.
half_sample_moments <- function(shape, features, moments, share) {
  weight <- shape$weight * shape$half
  moments$mean <- moments$mean + share * (drop(weight %*% features) / sum(weight) - moments$mean)
  moments$log_total <- moments$log_total + share * log(2 * sum(weight))
  moments
}

# Moments of the density itself, by importance sampling of its difference from the surrogate: whatever the surrogate, they have no
# bias. `share`: how much of that difference.
corrected_moments <- function(shape, points, z, design, features, moments, share) {
  drawn <- points$usable & points$part >= 0
  proposed <- mixture_density(design$proposals, design$counts, points$v[drawn, , drop = FALSE])
  at <- z[drawn, , drop = FALSE]
  off <- exp(points$log_density[drawn] - shape$top) - exp(surrogate_at(shape, at) - rowSums(at^2) / 2)
  by <- share * off * exp(-proposed - shape$log_scale - shape$log_mass)
  total <- 1 + sum(by)
  if (!isTRUE(total > 0.1)) return(moments)
  moments$mean <- (moments$mean + drop(by %*% features[drawn, , drop = FALSE])) / total
  moments$log_total <- moments$log_total + log(total)
  moments
}

# The surrogate's mass that is nearest to each point
cell_mass <- function(shape, z, usable) {
  spread <- surrogate_spread(shape)
  mine <- which(usable)
  share <- rowsum(spread$weight, mine[.Call(elvi_r_nearest, spread$z, z[mine, , drop = FALSE])])
  replace(numeric(length(usable)), as.integer(rownames(share)), share / sum(share))
}

# In many dimensions a few points in the middle are the nearest to nearly everything, so there the weights begin as those of importance
# sampling.
importance_mass <- function(points, design) {
  drawn <- points$usable & points$part >= 0
  log_weight <- ifelse(drawn, points$log_density - mixture_density(design$proposals, design$counts, points$v), -Inf)
  normalised(log_weight)
}

# In logarithms, tilted to the moments: to as many of them as there are points for. They sum to the total of the density.
tilted_weights <- function(weight, features, moments, start = NULL) {
  full <- which(weight > 0)
  weight <- weight / sum(weight)
  columns <- seq_len(min(ncol(features), floor(length(full) / 1.5)))
  h <- t((t(features[full, columns, drop = FALSE]) - moments$mean[columns]) / moments$sd[columns])
  lambda <- matching_tilt(weight[full], h, start)
  out <- rep(-Inf, length(weight))
  out[full] <- log(weight[full]) + drop(h %*% lambda)
  list(log_weight = out - log_sum(out) + moments$log_total, lambda = lambda)
}

# lambda such that under weights times exp(h lambda), which are positive, the columns of h have mean 0, or nearly: `loose` lets them
# miss what would need a strong tilt.
matching_tilt <- function(weight, h, start = NULL, loose = 0.02 / length(weight), steps = 60L) {
  base <- log(weight)
  objective <- function(lambda) log_sum(base + drop(h %*% lambda)) + loose * sum(lambda^2) / 2
  lambda <- start %||% numeric(ncol(h))
  value <- objective(lambda)
  for (step in seq_len(steps)) {
    w <- normalised(base + drop(h %*% lambda))
    mean <- drop(w %*% h)
    gradient <- mean + loose * lambda
    curvature <- crossprod(sqrt(w) * h) - tcrossprod(mean) + diag(loose, ncol(h))
    move <- solve_symmetric(curvature, gradient)
    gain <- sum(move * gradient)
    if (gain < 1e-6) break
    size <- 1
    repeat {
      new <- objective(lambda - size * move)
      if (isTRUE(new <= value - 1e-4 * size * gain) || size < 1e-4) break
      size <- size / 2
    }
    if (size < 1e-4) break
    lambda <- lambda - size * move
    value <- new
  }
  lambda
}

solve_symmetric <- function(A, b) {
  R <- chol(A)
  drop(backsolve(R, backsolve(R, b, transpose = TRUE)))
}

# error of means and sds of the hyperparameters and of the coefficients, or of some of them where there are many
score_error <- function(setup, points, found, rule, most = 2000L) {
  shown <- shown_in(setup, points$theta)
  used <- which(points$usable)
  some <- unique(round(seq(1, length(found[[1L]]$solution$mu), length.out = most)))
  of <- function(field) matrix(unlist(lapply(found[used], function(f) f$solution[[field]][some])), length(used), byrow = TRUE)
  mu <- of("mu")
  square <- of("variance") + mu^2
  moments <- function(log_weight) {
    weight <- normalised(log_weight)
    mean <- drop(weight[used] %*% mu)
    Map(c, hyper_moments(list(values = shown), weight), list(mean, sqrt(pmax(drop(weight[used] %*% square) - mean^2, 0))))
  }
  unlist(rule_error(moments(rule$log_weight), apply(rule$log_coarse, 2L, moments, simplify = FALSE), error_scale("scores")))
}
