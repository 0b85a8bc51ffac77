# Nodes of the quadrature over hyperparameters: a lattice for few of them, importance sampling or a composite design for
# many. See nested.R.

# Nodes in coordinates of the axes, with the log weight of the grid and whether they are
# in the next smaller one, each with its solution.

# How far below its maximum the log density ends, by the number of hyperparameters. What is left out makes sds too small, on the natural
# scale of a standard deviation more than in its logarithm: a fall of 7 took 1.1 % of them for Dyestuff, one of 7.5 took 3 % of some
# with four hyperparameters.
lattice_fall <- c(9, 8.5, 10, 11, 11)

# the mode as one of the points
found_at <- function(mode) mode[names(mode) %in% c("theta", "value", "slope", "solution", "precision")]

# A few hyperparameters: the trapezoid rule on a lattice, which converges faster than any
# power for densities that fall off, however skewed. From the mode outwards, as long as
# the gradient there says that a neighbour has not fallen by `fall`. Every other point, as
# on a chess board, is the next smaller grid.
lattice_nodes <- function(setup, mode, axes, drift, step, tol, most = 1e5, say = NULL) {
  H <- length(mode$theta)
  if (H == 1L) return(line_nodes(setup, mode, axes, drift, step, tol, most, say))
  fall <- lattice_fall[H]
  move <- axes$vectors %*% diag(axes$sd * step, H)   # a step along each axis
  place <- matrix(0L, 1L, H)
  found <- list(found_at(mode))
  open <- 1L
  moves <- rbind(diag(1L, H), -diag(1L, H))
  while (length(open) && nrow(place) < most) {
    top <- max(vapply(found, function(f) f$value, 0))
    ahead <- lapply(open, function(i) {
      gain <- drop(crossprod(move, found[[i]]$slope))
      guess <- found[[i]]$value + c(gain, -gain) - step^2 / 2
      alive <- is.finite(guess) & guess > top - fall
      list(place = (moves + rep(place[i, ], each = 2L * H))[alive, , drop = FALSE], parent = rep(i, sum(alive)))
    })
    next_place <- do.call(rbind, lapply(ahead, function(a) a$place))
    parent <- unlist(lapply(ahead, function(a) a$parent))
    if (!length(parent)) break
    digits <- (2 * max(abs(next_place), abs(place)) + 1)^(seq_len(H) - 1)   # one number for each place
    key <- drop(next_place %*% digits)
    new <- !duplicated(key) & !key %in% drop(place %*% digits)
    next_place <- next_place[new, , drop = FALSE]
    parent <- parent[new]
    if (!length(parent)) break
    thetas <- lapply(seq_along(parent), function(i) mode$theta + drop(move %*% next_place[i, ]))
    open <- nrow(place) + seq_along(parent)
    from <- Map(start_near, found[parent], thetas, MoreArgs = list(drift = drift))
    found <- c(found, evidence_at(setup, thetas, from, tol))
    place <- rbind(place, next_place)
    if (!is.null(say)) say(sprintf("quadrature points: %d solved", nrow(place)))
  }
  cell <- sum(log(axes$sd)) + H * log(step)
  list(z = step * place, found = found, log_rule = rep(cell, nrow(place)), step = step, move = move, fall = fall,
       log_coarse = ifelse(rowSums(place) %% 2 == 0, cell + log(2), -Inf), evaluations = nrow(place) - 1L)
}

# The same for one hyperparameter. Where a solution costs less than the R code around it, all points that a normal density would
# have are solved at once, and those that the gradients do not need are dropped again.
line_nodes <- function(setup, mode, axes, drift, step, tol, most, say, fall = lattice_fall[1L]) {
  move <- drop(axes$vectors) * axes$sd * step
  place <- 0L
  found <- list(found_at(mode))
  reach <- if (solve_cost(setup$plan) < 1e6) ceiling(sqrt(2 * fall) / step) else 1
  open <- as.integer(rbind(seq_len(reach), -seq_len(reach)))
  while (length(open) && length(place) < most) {
    thetas <- lapply(open, function(k) mode$theta + k * move)
    near <- vapply(open, function(k) which.min(abs(place - k)), 1L)
    found <- c(found, evidence_at(setup, thetas, Map(start_near, found[near], thetas, MoreArgs = list(drift = drift)), tol))
    place <- c(place, open)
    ends <- line_ends(place, found, move, step, fall)
    open <- setdiff(ends, place)
    if (!is.null(say)) say(sprintf("quadrature points: %d solved", length(place)))
  }
  kept <- which(place >= ends[2L] & place <= ends[1L])
  kept <- kept[order(abs(place[kept]), -place[kept])]
  cell <- log(axes$sd) + log(step)
  list(z = matrix(step * place[kept]), found = found[kept], log_rule = rep(cell, length(kept)), step = step,
       move = as.matrix(move), fall = fall, log_coarse = ifelse(place[kept] %% 2 == 0, cell + log(2), -Inf),
       evaluations = length(place) - 1L)
}

# The last place on either side that the point before it requires, solved or not.
line_ends <- function(place, found, move, step, fall) {
  value <- vapply(found, `[[`, 0, "value")
  gain <- vapply(found, `[[`, 0, "slope") * move
  vapply(c(1L, -1L), function(side) {
    alive <- place[which(value + side * gain - step^2 / 2 > max(value) - fall)]   # NA where there is no solution
    k <- 0L
    while (k %in% alive) k <- k + side
    k
  }, 0L)
}

# Twice as many nodes: the centres of the lattice's cells join it.
refine_lattice <- function(setup, grid, drift, tol) {
  H <- ncol(grid$z)
  top <- max(vapply(grid$found, function(f) f$value, 0))
  corners <- as.matrix(expand.grid(rep(list(c(-0.5, 0.5)), H)))
  ahead <- lapply(seq_along(grid$found), function(i) {
    guess <- grid$found[[i]]$value + drop(corners %*% crossprod(grid$move, grid$found[[i]]$slope))
    alive <- is.finite(guess) & guess > top - grid$fall
    list(place = (rep(grid$z[i, ], each = nrow(corners)) / grid$step + corners)[alive, , drop = FALSE],
         parent = rep(i, sum(alive)))
  })
  place <- do.call(rbind, lapply(ahead, function(a) a$place))
  parent <- unlist(lapply(ahead, function(a) a$parent))
  new <- !duplicated(round(2 * place))
  place <- place[new, , drop = FALSE]
  parent <- parent[new]
  origin <- grid$found[[1L]]$theta
  thetas <- lapply(seq_along(parent), function(i) origin + drop(grid$move %*% place[i, ]))
  found <- evidence_at(setup, thetas, Map(start_near, grid$found[parent], thetas, MoreArgs = list(drift = drift)), tol)
  half <- if (H == 1L) 0.5 else 1
  list(z = rbind(grid$z, grid$step * place), found = c(grid$found, found), step = grid$step * half,
       move = grid$move * half, fall = grid$fall,
       log_rule = rep(grid$log_rule[1L] - log(2), length(grid$found) + length(found)),
       log_coarse = c(grid$log_rule, rep(-Inf, length(found))),
       evaluations = grid$evaluations + length(found))
}

# Rules whose changes are the lattice's error: the coarser grid, and the same one without its outermost points, which hold more than
# is left out beyond them.
truncated_too <- function(grid) {
  value <- vapply(grid$found, function(f) f$value, 0)
  grid$log_coarse <- cbind(grid$log_coarse, ifelse(value > max(value) - grid$fall + 1, grid$log_rule, -Inf))
  grid
}

# More nodes as long as they change the answer, which in one dimension can go on, and in five has many already
settled_lattice <- function(setup, mode, axes, drift, step, tol, enough = 0.02, say = NULL) {
  grid <- lattice_nodes(setup, mode, axes, drift, step, tol, say = say)
  for (again in seq_len(c(3L, 1L, 1L, 1L, 0L)[length(mode$theta)])) {
    if (!isTRUE(grid_change(setup, grid) >= enough)) break
    grid <- refine_lattice(setup, grid, drift, tol)
    if (!is.null(say)) say(sprintf("quadrature points: %d solved, after refinement", length(grid$found)))
  }
  grid
}

# How far the hyperparameters' means move from the next smaller grid, in their sds, or
# their sds, relative
grid_change <- function(setup, grid) {
  values <- vapply(grid$found, function(f) f$value, 0)
  theta <- do.call(rbind, lapply(grid$found, function(f) f$theta))
  here <- moments_of_theta(setup, theta, normalised(values + grid$log_rule))
  there <- moments_of_theta(setup, theta, normalised(values + grid$log_coarse))
  max(abs(here$mean - there$mean) / here$sd, abs(there$sd / here$sd - 1))
}

# The lattice's step, in standard deviations: that of a tenth of a percent for a normal
# density on the chess board. NULL where there would be too many nodes for the size of the
# problem.
lattice_step <- function(setup, nodes) {
  H <- setup$layout$length
  if (!is.null(nodes)) return(if (nodes > 3 && H <= 4L) 7 / (nodes - 1))
  if (H > 5L) return(NULL)
  step <- c(0.75, 1, 1.2, 1.4, 1.7)[H]
  number <- c(10, 41, 127, 329, 1500)[H]
  if (H <= 2L || number * solve_cost(setup$plan) < 3e9) step
}

# operations of a conditional optimum, roughly
solve_cost <- function(plan) {
  if (!is.null(plan$cost)) return(plan$cost)
  if (isTRUE(plan$summed) && !is_quadratic(plan)) return(Inf)   # passes over rows that are not in memory
  tail <- plan$pattern$dim - plan$pattern$head
  entries <- length(plan$entry) / max(plan$rows, 1) + plan$dense
  pass <- plan$rows * (entries^2 * 2 + if (is_quadratic(plan)) 10 else 400) +
    sum(as.double(diff(plan$pattern$start))^2) * 2 + tail^3
  pass * if (is_quadratic(plan)) 1 else 8
}

# More of them: importance sampling from a quasi-random set, in pairs on either side of the middle, calibrated by the exact
# gradients at the nodes. The first nodes are placed by the mode and its curvature, the next as many by mean and
# covariance of those before, and again until the last half hardly changes the answer; without it the rule is the next
# smaller one.
sampled_nodes <- function(setup, mode, axes, drift, width, tol, number, enough = 0.035, say = NULL) {
  H <- length(mode$theta)
  proposals <- list()
  counts <- c()
  found <- list()
  log_rule <- NULL
  repeat {
    proposals <- c(proposals, list(if (length(found)) next_proposal(theta, weight) else first_proposal(mode, axes, width)))
    counts <- c(counts, ceiling(max(number$first, length(found)) / 2) * 2)
    new <- length(found) / 2 + seq_len(counts[length(counts)] / 2)
    points <- proposed_points(proposals[[length(counts)]], quasi_random(max(new), H)[new, , drop = FALSE])
    thetas <- lapply(seq_len(ncol(points)), function(i) points[, i])
    for (part in split(seq_along(thetas), (seq_along(thetas) - 1L) %/% 20L)) {   # so that there is something to say
      found <- c(found, evidence_at(setup, thetas[part], lapply(thetas[part], start_near, near = mode, drift = drift), tol))
      if (!is.null(say)) say(sprintf("quadrature points: %d of %d solved", length(found), sum(counts)))
    }
    values <- vapply(found, function(f) f$value, 0)
    theta <- vapply(found, function(f) f$theta, numeric(H))
    last_rule <- log_rule
    log_rule <- calibrated_rule(values, -mixed_density(proposals, counts, theta), found, mode, axes)
    weight <- normalised(ifelse(is.finite(values), values + log_rule, -Inf))
    log_coarse <- if (is.null(last_rule)) first_half(values, -mixed_density(proposals, counts, theta), found, mode, axes)
                  else c(last_rule, rep(-Inf, counts[length(counts)]))
    grid <- list(z = scaled_away(theta, mode, axes, width), found = found, log_rule = log_rule, log_coarse = log_coarse,
                 evaluations = length(found))
    grid$noise <- sqrt(sum(weight^2))   # of a mean in sds, had the nodes been drawn at random and not calibrated
    settled <- length(counts) > 1L && grid$noise < enough && isTRUE(grid_change(setup, grid) < enough)
    if (settled || 2 * length(found) > number$most) return(counting_nodes(grid, values))
  }
}

# a student distribution with its own scale on each side of each axis: tails of a standard deviation near 0 fall off no
# faster than exponentially in its logarithm
tail_df <- 6
tail_unit <- sqrt((tail_df - 2) / tail_df)

first_proposal <- function(mode, axes, width) {
  list(centre = mode$theta, vectors = axes$vectors, right = axes$sd * width[, 1L], left = axes$sd * width[, 2L])
}

# by the moments of weighted points, the columns of theta
next_proposal <- function(theta, weight) {
  mean <- drop(theta %*% weight)
  away <- theta - mean
  axes <- eigen(away %*% (weight * t(away)), symmetric = TRUE)
  along <- crossprod(axes$vectors, away)
  side <- function(sign) {
    there <- (sign * along > 0) * rep(weight, each = nrow(along))
    sqrt(pmax(rowSums(there * along^2) / pmax(rowSums(there), 1e-300), 0.1 * axes$values))
  }
  list(centre = mean, vectors = axes$vectors, right = side(1), left = side(-1))
}

proposed_points <- function(proposal, u) {
  z <- t(stats::qt(u, tail_df) * tail_unit)
  z <- cbind(z, -z)[, order(rep(seq_len(ncol(z)), 2L)), drop = FALSE]
  proposal$centre + proposal$vectors %*% (z * ifelse(z > 0, proposal$right, proposal$left))
}

# log density of points drawn `counts` times from each of the proposals
mixed_density <- function(proposals, counts, theta) {
  parts <- vapply(seq_along(proposals), function(k) {
    along <- crossprod(proposals[[k]]$vectors, theta - proposals[[k]]$centre)
    scale <- ifelse(along > 0, proposals[[k]]$right, proposals[[k]]$left) * tail_unit
    log(counts[k]) + colSums(stats::dt(along / scale, tail_df, log = TRUE) - log(scale))
  }, numeric(ncol(theta)))
  parts <- matrix(parts, ncol(theta))
  top <- apply(parts, 1L, max)
  top + log(rowSums(exp(parts - top)))
}

first_half <- function(values, log_rule, found, mode, axes) {
  half <- seq_along(values) <= length(values) / 2
  ifelse(half, replace(log_rule, half, calibrated_rule(values[half], log_rule[half], found[half], mode, axes)), -Inf)
}

# in units of the axes' sides, one row per point
scaled_away <- function(theta, mode, axes, width) {
  z <- crossprod(axes$vectors, theta - mode$theta) / axes$sd
  t(z / ifelse(z > 0, width[, 1L], width[, 2L]))
}

# nodes without weight say nothing and cost as much as others later
counting_nodes <- function(grid, values) {
  weight <- pmax(normalised(values + grid$log_rule), normalised(values + grid$log_coarse))
  keep <- weight > 1e-5 * max(weight)
  for (name in c("log_rule", "log_coarse")) grid[[name]] <- grid[[name]][keep]
  grid$z <- grid$z[keep, , drop = FALSE]
  grid$found <- grid$found[keep]
  grid
}

# Points that fill the cube evenly: multiples of powers of a root of x^(H + 1) = x + 1, the golden ratio for H = 1
# (Roberts, 2018)
quasi_random <- function(n, H) {
  root <- stats::uniroot(function(x) x^(H + 1) - x - 1, c(1, 2), tol = 1e-14)$root
  outer(seq_len(n), root^-seq_len(H), function(i, a) (0.5 + i * a) %% 1)
}

# Under the density of theta the gradient g of its logarithm has mean 0, and (theta - mode) g' has mean -I. Weights are
# tilted, as little as can be, such that they have these moments: for a normal density that makes its mean
# and covariance exact, wherever the nodes are.
calibrated_rule <- function(values, log_rule, found, mode, axes) {
  usable <- is.finite(values)
  H <- length(mode$theta)
  by <- axes$vectors %*% diag(axes$sd, H)
  weight <- normalised(ifelse(usable, values + log_rule, -Inf))
  away <- vapply(found, function(f) drop(solve(by, f$theta - mode$theta)), numeric(H))
  slope <- vapply(found, function(f) if (is.finite(f$value)) drop(crossprod(by, f$slope)) else numeric(H), numeric(H))
  away <- matrix(away, H)
  slope <- matrix(slope, H)
  low <- which(lower.tri(diag(H), diag = TRUE), arr.ind = TRUE)
  second <- away[low[, 1L], , drop = FALSE] * slope[low[, 2L], , drop = FALSE] +
    away[low[, 2L], , drop = FALSE] * slope[low[, 1L], , drop = FALSE] + 2 * (low[, 1L] == low[, 2L])
  for (h in list(rbind(slope, second), slope)) {
    if (sum(usable) < 2 * nrow(h)) next
    tilt <- tilted(weight, t(h))
    if (!is.null(tilt)) return(log_rule + tilt)
  }
  log_rule
}

# log w' / w for weights w' = w exp(h lambda) / sum of mean 0 in the columns of h; NULL where there are none nearby
tilted <- function(weight, h, most = 3, steps = 50L) {
  lambda <- numeric(ncol(h))
  for (step in seq_len(steps)) {
    tilt <- drop(h %*% lambda)
    top <- max(tilt[weight > 0])
    w <- weight * exp(tilt - top)
    total <- sum(w)
    w <- w / total
    mean <- colSums(w * h)
    covariance <- crossprod(sqrt(w) * sweep(h, 2L, mean))
    if (max(abs(mean) / sqrt(pmax(diag(covariance), 1e-300))) < 1e-8) {
      spread <- sqrt(sum(w * (tilt - sum(w * tilt))^2))
      return(if (spread < most) tilt - top - log(total))
    }
    move <- or_null(solve(covariance + diag(1e-10 * max(diag(covariance)), ncol(h)), mean))
    if (is.null(move)) return(NULL)
    by <- min(1, 2 / max(abs(h[weight > 0, , drop = FALSE] %*% move)))
    lambda <- lambda - by * move
  }
  NULL
}

# how many nodes: some for each moment that calibrates them; no more than the time that each takes allows
sampled_number <- function(setup, nodes) {
  H <- setup$layout$length
  moments <- H + H * (H + 1) / 2
  if (!is.null(nodes)) return(list(first = nodes * moments / 8, most = nodes * moments))
  most <- min(3500, max(8 * moments, 4e10 / solve_cost(setup$plan)))
  list(first = min(10 * moments, most / 2), most = most)
}

# Few nodes, if these are requested: a central composite design that integrates polynomials of degree 5 against
# a normal density, all weights positive; without its corners, degree 3. On each side of
# each axis the density has its own standard deviation.
composite_nodes <- function(setup, mode, axes, drift, width, tol, say = NULL) {
  H <- length(mode$theta)
  corners <- fraction_corners(H)
  far <- sqrt(H + 2)
  z <- rbind(numeric(H), far * diag(H), -far * diag(H), sqrt((H + 2) / H) * corners)
  m <- nrow(corners)
  weight <- c(2 / (H + 2), rep(1 / (H + 2)^2, 2L * H), rep((H / (H + 2))^2 / m, m))
  small <- c(2 / (H + 2), rep(1 / (2 * (H + 2)), 2L * H), numeric(m))
  if (!m) weight <- small   # too many directions for corners
  wide <- t(apply(z, 1L, function(zi) ifelse(zi > 0, width[, 1L], ifelse(zi < 0, width[, 2L], rowMeans(width)))))
  wide <- matrix(wide, nrow(z)) * rep(axes$sd, each = nrow(z))
  thetas <- lapply(seq_len(nrow(z))[-1L], function(i) mode$theta + drop(axes$vectors %*% (wide[i, ] * z[i, ])))
  found <- c(list(found_at(mode)),
             evidence_at(setup, thetas, lapply(thetas, start_near, near = mode, drift = drift), tol))
  normal <- H / 2 * log(2 * pi) + rowSums(z^2) / 2 + rowSums(log(wide))
  list(z = z, found = found, log_rule = log(weight) + normal, log_coarse = log(small) + normal,
       evaluations = length(thetas))
}

# corners of a cube, or a fraction of them that keeps all products of four directions apart
fraction_corners <- function(H) {
  words <- switch(as.character(H), "5" = list(1:4), "6" = list(1:5), "7" = list(1:6),
                  "8" = list(1:4, c(1, 2, 5, 6)), "9" = list(c(1, 3, 4, 6, 7), c(2, 3, 5, 6, 7)),
                  "10" = list(c(1, 2, 3, 7), c(2, 3, 4, 5), c(1, 3, 4, 6)), list())
  if (H > 10L) return(matrix(0, 0L, H))
  free <- H - length(words)
  basic <- as.matrix(expand.grid(rep(list(c(-1, 1)), free)))
  extra <- vapply(words, function(word) apply(basic[, word, drop = FALSE], 1L, prod), numeric(nrow(basic)))
  unname(cbind(basic, extra))
}
