# A limited-memory quasi-Newton path in many dimensions, and gaussians along it: Laplace approximations where curvature is known,
# else its estimate from the path, low rank plus diagonal (as in Zhang, Carpenter, Gelman and Vehtari, 2022, Pathfinder).

# points: list(x, value, gradient) of each step; pairs: moves s and changes of gradients y
quasi_newton_path <- function(target, x, most = descent_steps, memory = path_memory) {
  at <- function(x) {
    out <- target$evaluate(matrix(x))
    list(x = x, value = if (out$ok) out$value else Inf, gradient = drop(out$gradient))
  }
  now <- at(x)
  points <- list(now)
  pairs <- list()
  step <- 1 / sqrt(sum(now$gradient^2))
  for (k in seq_len(most)) {
    direction <- -two_loops(now$gradient, pairs)
    slope <- sum(direction * now$gradient)
    if (!is.finite(slope) || slope >= 0 || -slope < 1e-10 * (1 + abs(now$value))) break
    size <- if (length(pairs)) 1 else min(1, step)
    repeat {
      new <- at(now$x + size * direction)
      if (is.finite(new$value) && new$value <= now$value + 1e-4 * size * slope) break
      size <- size * if (is.finite(new$value)) min(max(-slope * size / (2 * (new$value - now$value - slope * size)), 0.1), 0.5) else 0.25
      if (size < 1e-10) break
    }
    if (size < 1e-10) break
    s <- new$x - now$x
    y <- new$gradient - now$gradient
    if (sum(s * y) > 1e-10 * sqrt(sum(s^2) * sum(y^2))) {
      pairs <- utils::tail(c(pairs, list(list(s = s, y = y, at = length(points) + 1L))), 60L)
    }
    gained <- now$value - new$value
    now <- new
    points <- c(points, list(now))
    if (gained < 1e-9 * (1 + abs(now$value))) break
  }
  list(points = points, pairs = pairs)
}

# the inverse of the limited-memory approximation of the Hessian, times g
two_loops <- function(g, pairs, memory = path_memory) {
  pairs <- utils::tail(pairs, memory)
  m <- length(pairs)
  a <- numeric(m)
  for (i in rev(seq_len(m))) {
    p <- pairs[[i]]
    a[i] <- sum(p$s * g) / sum(p$s * p$y)
    g <- g - a[i] * p$y
  }
  if (m) g <- g * sum(pairs[[m]]$s * pairs[[m]]$y) / sum(pairs[[m]]$y^2)
  for (i in seq_len(m)) {
    p <- pairs[[i]]
    g <- g + p$s * (a[i] - sum(p$y * g) / sum(p$s * p$y))
  }
  g
}

# The estimate of the covariance at the i-th point of the path: a diagonal that follows the secant equations, and the directions of its
# last moves, in which s'H s is known.
path_lowrank <- function(path, i, dim, memory = path_memory) {
  pairs <- utils::tail(Filter(function(p) p$at <= i, path$pairs), memory)
  if (!length(pairs)) return(NULL)
  alpha <- rep(sum(pairs[[1L]]$s * pairs[[1L]]$y) / sum(pairs[[1L]]$y^2), dim)
  for (p in Filter(function(p) p$at <= i, path$pairs)) {
    # inverse curvature of each parameter, from the secant equation: Zhang and others (2022), the update of Gilbert and Lemarechal
    a <- sum(p$y^2 * alpha)
    b <- sum(p$s * p$y)
    c <- sum(p$s^2 / alpha)
    new <- 1 / (a / (b * alpha) + p$y^2 / b - a * p$s^2 / (b * c * alpha^2))
    if (all(is.finite(new)) && all(new > 0)) alpha <- new
  }
  sd <- sqrt(alpha)
  # W'W on the span of the moves, whitened by the diagonal: covariance there by the inverse of the projected curvature
  S <- vapply(pairs, function(p) p$s / sd, numeric(dim))
  Y <- vapply(pairs, function(p) p$y * sd, numeric(dim))
  Q <- qr.Q(qr(S))
  onto <- qr.coef(qr(S), Q)
  onto[is.na(onto)] <- 0
  C <- crossprod(Q, Y %*% onto)
  e <- eigen((C + t(C)) / 2, symmetric = TRUE)
  variance <- 1 / pmin(pmax(e$values, 1e-4), 1e4)
  list(sd = sd, directions = Q %*% e$vectors, variance = variance)
}
