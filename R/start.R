# Where a run starts when the target is only a function: gaussians along quasi-Newton
# paths from several points, judged by their objective. A hierarchical posterior has no
# mode (its density grows without bound as a group's sd goes to 0), so the end of a path
# is a candidate like any other point of it.

# Starting points as Stan has them, uniform in (-2, 2), and the origin; keyed.
starting_points <- function(dim, starts, key) {
  if (starts < 2) return(matrix(0, dim, 1L))
  cbind(0, matrix(4 * keyed_uniform(key, dim * (starts - 1)) - 2, dim))
}

# uniform numbers from the keyed generator, through the normal law
keyed_uniform <- function(key, n) {
  law <- law_of(base_gaussian(), n)
  stats::pnorm(drop(draw_base(law, key, 1L)))
}

# Down from x with the BFGS inverse Hessian, every step guarded: it must lower f enough and
# must not leave the domain. Returns the points with their inverse Hessians' roots so far.
descend_path <- function(target, x, max_steps = 150L, visit = function(point) TRUE) {
  d <- length(x)
  at <- function(x) {
    out <- target$evaluate(matrix(x))
    list(x = x, value = out$value, gradient = drop(out$gradient), ok = out$ok)
  }
  now <- at(x)
  if (!now$ok) return(NULL)
  H <- NULL
  for (k in seq_len(max_steps)) {
    step <- -if (is.null(H)) now$gradient / max(1, sqrt(sum(now$gradient^2))) else drop(H %*% now$gradient)
    slope <- sum(step * now$gradient)
    if (!isTRUE(slope < 0)) {
      H <- NULL
      next_step <- -now$gradient / max(1, sqrt(sum(now$gradient^2)))
      if (sum(next_step * now$gradient) == 0) break
      step <- next_step
      slope <- sum(step * now$gradient)
    }
    new <- line_search(at, now, step, slope)
    if (is.null(new)) {
      if (is.null(H)) break
      H <- NULL   # once more, along the gradient
      next
    }
    H <- update_inverse_hessian(H, new$x - now$x, new$gradient - now$gradient)
    gain <- now$value - new$value
    now <- new
    if (!visit(list(k = k, x = now$x, value = now$value, gradient = now$gradient, H = H))) break
    if (!is.null(H)) {
      decrement <- sum(now$gradient * (H %*% now$gradient))
      if (decrement < 1e-6 && gain < 1e-6) break
    }
  }
  now
}

# Weak Wolfe conditions by bisection; NULL when no step is good enough.
line_search <- function(at, now, step, slope, tries = 25L) {
  lower <- 0
  upper <- Inf
  size <- 1
  best <- NULL
  for (k in seq_len(tries)) {
    new <- at(now$x + size * step)
    if (!new$ok || new$value > now$value + 1e-4 * size * slope) {
      upper <- size
    } else {
      best <- new
      if (sum(new$gradient * step) >= 0.9 * slope) return(new)
      lower <- size
    }
    size <- if (is.finite(upper)) (lower + upper) / 2 else 2 * size
    if (is.finite(upper) && upper - lower < 1e-10 * upper) break
  }
  best
}

# BFGS in its inverse form; the first is scaled as Shanno and Phua do. A pair without
# positive curvature is left out.
update_inverse_hessian <- function(H, s, y) {
  sy <- sum(s * y)
  if (!isTRUE(sy > 1e-10 * sqrt(sum(s^2) * sum(y^2)))) return(H)
  if (is.null(H)) H <- diag(sy / sum(y^2), length(s))
  Hy <- drop(H %*% y)
  H + tcrossprod(s) * ((sy + sum(y * Hy)) / sy^2) - (tcrossprod(Hy, s) + tcrossprod(s, Hy)) / sy
}
