# Necks that no draw has seen. Along a parameter that sets the scale of others, such as the logarithm of a group's sd, a density may go
# on where an approximation has no draws: its importance weights are then good, and it is wrong. So the few parameters of which this
# may be true are followed beyond the approximation: at each of some values t the others get their conditional mode and curvature, and
# exp(-f) |H|^(-1/2) is the marginal density of t by Laplace's method. Nothing is decided by that: the conditional gaussians are
# components of the mixture whose weights are judged (judge-mixture.R), and if there is none, a marginal that disagrees is a problem.

# list(name, mean, sd, weights, parts) for each parameter that was followed; `moments`: the mean and covariance that the weights give
necks_of <- function(fit) {
  model <- fit$given$model
  at <- model_theta(fit)
  root <- root_matrix(at$scale)
  target <- guarded_target(model)
  chosen <- scale_parameters(target, at$mu, root, are_logarithms(fit))
  Filter(Negate(is.null), lapply(chosen, function(j) neck_along(target, at$mu, root, j, model$names[j])))
}

# Which parameters change the curvature of the target most: logarithms first, then others, by the change of its trace in whitened
# coordinates along the approximation's own regression on the parameter.
scale_parameters <- function(target, mu, root, logarithms, most = most_necks) {
  d <- length(mu)
  if (d < 2L) return(integer())
  sd <- sqrt(rowSums(root^2))
  along <- root %*% t(root / sd)   # the mean of all parameters where the j-th is one sd up
  probes <- root %*% matrix(rep_len(c(1, 1, -1, 1, -1, -1, 1), 2L * d), d)   # two directions with entries of 1 and -1
  step <- 1e-4
  trace_at <- function(side) {
    x <- mu + side * neck_reach * along
    g <- lapply(list(0, probes[, 1L], probes[, 2L]), function(v) target$evaluate(x + step * v)$gradient)
    pmax(colSums(probes[, 1L] * (g[[2L]] - g[[1L]])) + colSums(probes[, 2L] * (g[[3L]] - g[[1L]])), 1e-3 * step * d) / step
  }
  change <- abs(log(trace_at(1) / trace_at(-1)))
  change[!is.finite(change)] <- 0
  found <- which(change > least_scale_change | logarithms)
  utils::head(found[order(-change[found])], most)
}

# From the mean in both directions, until the marginal density is negligible.
neck_along <- function(target, mu, root, j, name) {
  sd <- sqrt(sum(root[j, ]^2))
  first <- conditional_mode(target, mu, j, mu[j])
  reach <- neck_others * sqrt(rowSums(root^2))
  if (is.null(first) || max(abs(first$x - mu) / reach) > 1) return(NULL)
  side <- function(sign) {
    nodes <- list(first)
    h <- sign * neck_step * sd
    for (k in seq_len(neck_nodes)) {
      last <- nodes[[length(nodes)]]
      slope <- if (length(nodes) > 1L) (last$x - nodes[[length(nodes) - 1L]]$x) / (last$x[j] - nodes[[length(nodes) - 1L]]$x[j])
               else root %*% root[j, ] / sd^2
      new <- conditional_mode(target, last$x + h * slope, j, last$x[j] + h)
      if (is.null(new)) break
      if (max(abs(new$x - mu)[-j] / reach[-j]) > 1) return(NULL)   # the others run into a neck of their own
      nodes <- c(nodes, list(new))
      top <- max(vapply(nodes, function(node) node$log, 0))
      if (new$log < top - neck_nats) break
      h <- neck_growth * h
    }
    nodes[-1L]
  }
  below <- side(-1)
  above <- side(1)
  if (is.null(below) || is.null(above)) return(NULL)
  nodes <- c(rev(below), list(first), above)
  if (length(nodes) < 5L) return(NULL)
  t <- vapply(nodes, function(node) node$x[j], 0)
  l <- vapply(nodes, function(node) node$log, 0)
  # the marginal density by an interpolant of its logarithm
  fine <- seq(t[1L], t[length(t)], length.out = 400L)
  w <- normalised(stats::spline(t, l, xout = fine, method = "natural")$y)
  mean <- sum(w * fine)
  parts <- neck_components(nodes, t, j)
  if (any(vapply(parts, is.null, NA))) return(NULL)
  list(name = name, parameter = j, mean = mean, sd = sqrt(sum(w * (fine - mean)^2)), weights = neck_weights(t, l),
       parts = parts)
}

# in part by the marginal density and in part by its root, as tails decide of variances
neck_weights <- function(t, l) {
  width <- (c(diff(t), 0) + c(0, diff(t))) / 2
  0.6 * normalised(l + log(width)) + 0.4 * normalised(l / 2 + log(width))
}

# About each conditional mode, as wide along t as the nodes are apart, and bent (judge-mixture.R): the mean follows the modes, and scales
# change along t as those of the neighbours differ.
neck_components <- function(nodes, t, j) {
  d <- length(nodes[[1L]]$x)
  x <- vapply(nodes, function(node) node$x, numeric(d))
  lapply(seq_along(nodes), function(k) {
    near <- c(max(1L, k - 1L), min(length(nodes), k + 1L))
    width <- 0.7 * max(abs(t[near] - t[k]))
    span <- diff(t[near])
    slope <- (x[, near[2L]] - x[, near[1L]]) / span
    inner <- diff(near) == 2L
    bend <- if (inner) width^2 * ((x[, near[2L]] - x[, k]) / (t[near[2L]] - t[k]) - (x[, k] - x[, near[1L]]) / (t[k] - t[near[1L]])) / span
            else numeric(d)
    own <- nodes[[k]]$root
    seen <- lapply(near, function(i) or_null(tcrossprod(solve(own, nodes[[i]]$root, tol = 0))))
    if (any(vapply(seen, is.null, NA))) return(NULL)
    e <- eigen(if (k == length(nodes)) seen[[1L]] else seen[[2L]], symmetric = TRUE)
    size <- vapply(seen, function(V) log(colSums(e$vectors * (V %*% e$vectors))) / 2, numeric(d - 1L))
    size <- matrix(size, d - 1L)
    root <- matrix(0, d, d)
    root[, 1L] <- width * slope
    root[-j, -1L] <- own %*% e$vectors
    list(mu = x[, k], root = root, curve = cbind(bend, 0, bend, deparse.level = 0),
         scale = rbind(0, (size[, 2L] - size[, 1L]) * width / span, 0), range = c(-2, 2))
  })
}

# The mode of the others given x_j = t, by Newton's method with absolute eigenvalues, and log exp(-f) |H|^(-1/2) there.
conditional_mode <- function(target, x, j, t, steps = 6L) {
  x[j] <- t
  now <- point_at(target, x)
  if (is.null(now)) return(NULL)
  for (k in seq_len(steps)) {
    H <- guarded_hessian(target$hessian, now$x) %||% path_hessian(target, now)
    if (is.null(H)) return(NULL)
    H <- H[-j, -j, drop = FALSE]
    unit <- 1 / sqrt(pmax(abs(diag(H)), 1e-300))
    e <- eigen(unit * H * rep(unit, each = length(unit)), symmetric = TRUE)
    if (!all(is.finite(e$values))) return(NULL)
    values <- pmax(abs(e$values), flattest_curvature * max(abs(e$values)))
    root <- unit * e$vectors * rep(1 / sqrt(values), each = length(unit))
    move <- -drop(root %*% crossprod(root, now$gradient[-j]))
    gain <- -sum(move * now$gradient[-j]) / 2
    if (gain < 0.01) break
    new <- NULL
    for (size in 0.5^(0:6)) {
      y <- now$x
      y[-j] <- y[-j] + size * move
      new <- point_at(target, y)
      if (!is.null(new) && new$value < now$value) break
      new <- NULL
    }
    if (is.null(new)) break
    now <- new
  }
  list(x = now$x, log = -now$value + sum(log(unit)) - sum(log(values)) / 2, root = root)
}

point_at <- function(target, x) {
  out <- target$evaluate(matrix(x))
  if (out$ok) list(x = as.double(x), value = out$value, gradient = drop(out$gradient))
}

# ---- what a profile says of moments ----------------------------------------------------------------------------

# By how much the profiles disagree with a verdict's moments: list(name, shift, ratio) of the one that does most, NULL without any.
necks_disagree <- function(profiles, v) {
  if (!length(profiles)) return(NULL)
  each <- vapply(profiles, function(p) {
    sd <- sqrt(v$covariance[p$parameter, p$parameter])
    c(abs(p$mean - v$mean[[p$parameter]]) / p$sd, exp(abs(log(p$sd / sd))))
  }, c(0, 0))
  worst <- which.max(pmax(each[1L, ] / most_shift, log(each[2L, ]) / log(most_ratio)))
  list(name = profiles[[worst]]$name, shift = each[1L, worst], ratio = each[2L, worst])
}

is_beyond <- function(by, share = 1) !is.null(by) && !isTRUE(by$shift <= share * most_shift && log(by$ratio) <= share * log(most_ratio))

mixture_of_necks <- function(profiles) {
  list(weights = unlist(lapply(profiles, function(p) p$weights)) / length(profiles),
       parts = unlist(lapply(profiles, function(p) p$parts), recursive = FALSE))
}
