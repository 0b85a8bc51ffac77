# The rule of normal scores, for three or more hyperparameters. Each quadrature point gives the log evidence and its gradient.
#
# 1. Coordinates. Along each hyperparameter the log evidence is evaluated as far out as it counts, the others following the ridge.
#    In the normal scores v of the density so found the posterior is near normal, however long its tails: that of a
#    log sd which may be zero falls off like exp(theta) only.
# 2. Points. Quasi-random points of a normal distribution of v, and some in the right tail of sds which have much of their variance there.
# 3. Weights. Importance weights, tilted such that identities between the density and its gradient hold (stein_features).
#
# The same without each fourth of the points in turn gives four coarser rules, whose spread is that of the answer (rule_error).

score_nodes <- function(setup, around, control, say) {
  number <- score_number(setup)
  profile <- profile_coordinates(setup, around, control$tol)
  main <- curvature_proposal(profile)
  proposals <- list()
  counts <- c()
  v <- NULL
  found <- list()
  target <- number$first
  repeat {
    added <- score_proposals(profile$maps, main, target - length(found))
    new <- do.call(rbind, Map(proposed_scores, added$proposals, added$counts, MoreArgs = list(skip = length(found))))
    proposals <- c(proposals, added$proposals)
    counts <- c(counts, added$counts)
    found <- c(found, solve_scores(setup, profile$maps, new, around, control$tol))
    if (!is.null(say)) say(sprintf("quadrature points: %d solved", length(found)))
    points <- scored_points(profile$maps, found)
    rule <- score_weights(points, proposals, counts, main)
    settled <- effective_number(rule) > 100 && max(score_error(setup, points, rule)) < number$enough
    if (settled || 1.6 * length(found) > number$most) break
    main <- moment_proposal(points$v, normalised(rule$log_weight))
    target <- 2 * ceiling(0.8 * length(found))
  }
  list(z = points$v, found = found, log_rule = rule$log_weight - points$value, log_coarse = rule$log_coarse - points$value,
       evaluations = profile$evaluations + length(found))
}

# how many points: enough for the moments that calibrate them, and no more than the time that each takes allows
score_number <- function(setup) {
  H <- setup$layout$length
  first <- 40 + 20 * H
  list(first = first, most = max(first, min(8 * first, 4e10 / solve_cost(setup$plan))), enough = 0.04)
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
    thetas <- lapply(open, function(s) ridge_point(ridge, mode, near[[s]], sides$j[s], sides$sign[s] * reach[s]))
    found <- evidence_at(setup, thetas, Map(start_near, near[open], thetas, MoreArgs = list(drift = around$drift)), tol)
    evaluations <- evaluations + length(found)
    fell <- mode$value - vapply(found, function(f) f$value, 0)
    for (i in which(is.finite(fell))) {
      j <- sides$j[open[i]]
      kept[[j]] <- c(kept[[j]], list(found[[i]]))
      near[[open[i]]] <- found[[i]]
    }
    # too far to say what is between: one nearer
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
  list(maps = maps, found = c(list(mode[c("theta", "value", "slope", "solution")]), unlist(kept, recursive = FALSE)),
       evaluations = evaluations, correlation = ridge$correlation)
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
# linear beyond them.
score_map <- function(theta, value, slope, points = 801L, deep = 20) {
  at <- order(theta)
  n <- length(at)
  theta <- theta[at]
  value <- value[at] - max(value)
  slope <- slope[at]
  slope[1L] <- max(slope[1L], 0.3)
  slope[n] <- min(slope[n], -0.3)
  log_shape <- stats::splinefunH(theta, value, slope)
  ends <- c(theta[1L] - max(0, deep + value[1L]) / slope[1L], theta[n] - max(0, deep + value[n]) / slope[n])
  x <- seq(ends[1L], ends[2L], length.out = points)
  p <- exp(log_shape(x))
  cell <- (p[-1L] + p[-points]) / 2 * (x[2L] - x[1L])
  total <- sum(cell)
  below <- c(0, cumsum(cell)) / total
  above <- c(rev(cumsum(rev(cell))), 0) / total
  v <- ifelse(below < 0.5, stats::qnorm(pmin(below, 1)), stats::qnorm(pmin(above, 1), lower.tail = FALSE))
  use <- is.finite(v) & abs(v) < 6
  list(theta = stats::splinefun(v[use], x[use], method = "monoH.FC"), score = stats::splinefun(x[use], v[use], method = "monoH.FC"),
       log_density = function(theta) log_shape(theta) - log(total), slope = function(theta) log_shape(theta, deriv = 1L))
}

each_map <- function(maps, what, x) {
  out <- vapply(seq_along(maps), function(j) maps[[j]][[what]](x[, j]), numeric(nrow(x)))
  matrix(out, nrow(x))
}

# Solved points in scores: v, the log density there and its gradient, both less those of a standard normal distribution.
scored_points <- function(maps, found) {
  theta <- matrix(unlist(lapply(found, function(f) f$theta)), length(found), byrow = TRUE)
  slope <- matrix(unlist(lapply(found, function(f) f$slope)), length(found), byrow = TRUE)
  value <- vapply(found, function(f) f$value, 0)
  v <- each_map(maps, "score", theta)
  log_density <- each_map(maps, "log_density", theta)
  stretch <- exp(stats::dnorm(v, log = TRUE) - log_density)   # d theta / d v
  list(theta = theta, v = v, value = value, excess = value - rowSums(log_density),
       slope = (slope - each_map(maps, "slope", theta)) * stretch)
}

solve_scores <- function(setup, maps, v, around, tol) {
  theta <- each_map(maps, "theta", v)
  thetas <- lapply(seq_len(nrow(theta)), function(i) theta[i, ])
  evidence_at(setup, thetas, lapply(thetas, start_near, near = around$mode, drift = around$drift), tol)
}

# ---- proposals -----------------------------------------------------------------------------------------------------

# Normal distributions of the scores: v = centre + root z, root symmetric, so that no sign or order of axes matters. Wider than the
# density, as its tails may be.
curvature_proposal <- function(profile, wide = 1.1) {
  list(centre = numeric(ncol(profile$correlation)), root = wide * covariance_root(profile$correlation))
}

moment_proposal <- function(v, weight, wide = 1.1) {
  centre <- drop(weight %*% v)
  list(centre = centre, root = wide * covariance_root(crossprod(sqrt(weight) * sweep(v, 2L, centre))))
}

covariance_root <- function(V, least = 0.02) {
  e <- eigen(V, symmetric = TRUE)
  e$vectors %*% (sqrt(pmax(e$values, least)) * t(e$vectors))
}

# The main one, and one for each long right tail: n points in all, in pairs
score_proposals <- function(maps, main, n, share = 0.35) {
  long <- which(vapply(maps, tail_share, 0) > 0.04)
  each <- if (length(long)) 2 * round(share * n / length(long) / 2) else 0
  each <- max(each, 2)
  list(proposals = c(list(main), lapply(long, tail_proposal, main = main)),
       counts = c(2 * ceiling((n - each * length(long)) / 2), rep(each, length(long))))
}

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

# Log weights of all points, and without each fourth of them in turn, -Inf for these
score_weights <- function(points, proposals, counts, main) {
  n <- length(points$value)
  log_weight <- points$excess + rowSums(stats::dnorm(points$v, log = TRUE)) - mixture_density(proposals, counts, points$v)
  log_weight[!is.finite(points$value)] <- -Inf
  z <- sweep(points$v, 2L, main$centre) %*% solve(main$root)
  slope <- (points$slope - points$v) %*% main$root
  part <- unlist(lapply(counts, function(m) (rep(seq_len(m / 2), 2L) - 1L) %% 4L))   # pairs of each proposal, dealt out
  one <- function(used) {
    log_weight <- ifelse(used, log_weight - log(mean(used)), -Inf)
    total <- log_sum(log_weight)
    tilted <- log_weight + stein_tilt(normalised(log_weight), z, slope)
    tilted - log_sum(tilted) + total
  }
  list(log_weight = one(rep(TRUE, n)), log_coarse = vapply(0:3, function(out) one(part != out), numeric(n)))
}

# Tilts until Stein's identities hold: E[div f + f' slope] = 0 for the density whose logarithm has that slope, whatever f. For a normal
# density those of degree 1 and 2 make means and covariances exact. As many as there are points for.
stein_tilt <- function(weight, z, slope) {
  used <- which(weight > 0)
  features <- stein_features(z[used, , drop = FALSE], slope[used, , drop = FALSE], 1 / sum(weight^2) / 1.5)
  scale <- sqrt(drop(weight[used] %*% features^2))
  out <- numeric(length(weight))
  out[used] <- matching_tilt(weight[used], features / rep(scale, each = length(used)))
  out
}

stein_features <- function(z, slope, most) {
  H <- ncol(z)
  flat <- 3 * tanh(z / 3)   # bounded, so that no point far out decides
  by <- 1 - (flat / 3)^2    # its derivative
  out <- cbind(slope, flat * slope + by)
  higher <- cbind(flat^2 * slope + 2 * flat * by, flat^3 * slope + 3 * flat^2 * by)
  pair <- which(lower.tri(diag(H)), arr.ind = TRUE)
  mixed <- flat[, pair[, 1L], drop = FALSE] * slope[, pair[, 2L], drop = FALSE] +
    flat[, pair[, 2L], drop = FALSE] * slope[, pair[, 1L], drop = FALSE]
  if (ncol(out) + ncol(higher) <= most) out <- cbind(out, higher)
  if (ncol(out) + ncol(mixed) <= most) out <- cbind(out, mixed)
  out
}

# Logarithms of factors of the weights, exponential so that weights stay positive, by which the columns of h get mean 0, or nearly:
# `loose` lets them miss what would need a strong tilt.
matching_tilt <- function(weight, h, loose = 0.5 / length(weight), steps = 60L) {
  base <- log(weight)
  objective <- function(lambda) log_sum(base + drop(h %*% lambda)) + loose * sum(lambda^2) / 2
  lambda <- numeric(ncol(h))
  value <- objective(lambda)
  for (step in seq_len(steps)) {
    w <- normalised(base + drop(h %*% lambda))
    mean <- drop(w %*% h)
    gradient <- mean + loose * lambda
    curvature <- crossprod(sqrt(w) * h) - tcrossprod(mean) + diag(loose, ncol(h))
    move <- drop(chol2inv(chol(curvature)) %*% gradient)
    gain <- sum(move * gradient)
    if (gain < 1e-7) break
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
  drop(h %*% lambda)
}

# of points; with few of them the error is not known well either
effective_number <- function(rule) 1 / sum(normalised(rule$log_weight)^2)

# error of means and sds of the hyperparameters
score_error <- function(setup, points, rule) {
  shown <- list(values = shown_hyper(setup, points$theta))
  unlist(rule_error(hyper_moments(shown, normalised(rule$log_weight)),
                    apply(rule$log_coarse, 2L, function(w) hyper_moments(shown, normalised(w)), simplify = FALSE)))
}
