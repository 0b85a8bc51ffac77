# Draws of a nested fit: a mixture of the nodes' laws. Draw i is a function of the fit's own seed and of i, so the
# rows of two calls belong together, and a shorter call gives the first rows of a longer one.

# list(x: draws x (coefficients and effects), hyper: draws x hyperparameters, theta), in the user's coordinates
nested_draws <- function(fit, n) {
  d <- nrow(fit$node_mu)
  node <- draw_nodes(fit, n)
  z <- draw_base(law_of(fit$base, d), fit$seed, n)
  x <- matrix(0, n, d)
  for (k in unique(node)) x[node == k, ] <- t(node_draws(fit$nested, k, z[, node == k, drop = FALSE]))
  p <- ncol(fit$problem$X)
  if (p) x[, seq_len(p)] <- tcrossprod(x[, seq_len(p), drop = FALSE], report_fixed(fit))
  colnames(x) <- rownames(fit$node_mu)
  theta <- draw_theta(fit, node)
  list(x = x, theta = theta, hyper = natural_hyper(fit, theta), node = node)
}

# Multiples of the golden ratio fill (0, 1) evenly, however many there are: every node gets its share.
draw_nodes <- function(fit, n) {
  u <- (fit$seed[1L] / 2^32 + seq_len(n) * (sqrt(5) - 1) / 2) %% 1
  upper <- cumsum(fit$nested$hyper$weight)
  pmin(findInterval(u, upper / upper[length(upper)]) + 1L, length(upper))
}

# Hyperparameters of draws that have the given nodes. The rule is a law on a few points; between them it is filled in
# axis by axis: each value of a node's coordinate stands for an interval of the mass that the nodes have along that
# axis, and quantiles are interpolated in normal scores. Mean and standard deviation along each axis remain the rule's.
draw_theta <- function(fit, node) {
  hyper <- fit$nested$hyper
  axes <- hyper_axes(hyper)
  u <- uniform_draws(fit, length(node), ncol(axes$z))
  z <- vapply(seq_len(ncol(axes$z)), function(j) smooth_axis(axes$z[, j], hyper$weight, node, u[, j]), numeric(length(node)))
  theta <- t(axes$centre + axes$root %*% t(matrix(z, length(node))))
  dimnames(theta) <- NULL
  theta
}

# Coordinates in which the hyperparameters are near independent, those of the rule.
hyper_axes <- function(hyper) {
  root <- eigen(hyper$hessian, symmetric = TRUE)$vectors
  list(centre = hyper$mode, root = root, z = t(crossprod(root, t(hyper$theta) - hyper$mode)))
}

smooth_axis <- function(z, weight, node, u) {
  value <- round(z, 8)
  used <- weight > 1e-10
  levels <- sort(unique(value[used]))
  mass <- vapply(levels, function(v) sum(weight[used & value == v]), 0)
  mass <- mass / sum(mass)
  if (length(levels) < 2L) return(rep(levels, length(node)))
  upper <- cumsum(mass)
  score <- stats::qnorm(upper - mass / 2)
  quantile <- stats::splinefun(score, levels, method = "monoH.FC")   # linear beyond the ends
  grid <- stats::qnorm(stats::ppoints(2001L))
  filled <- quantile(grid)
  mean <- sum(mass * levels)
  sd <- sqrt(sum(mass * (levels - mean)^2))
  at <- match(value[node], levels)
  at[is.na(at)] <- findInterval(value[node][is.na(at)], levels, all.inside = TRUE)
  inside <- upper[at] - mass[at] * (1 - u)
  mean + sd / stats::sd(filled) * (quantile(stats::qnorm(inside)) - mean(filled))
}

# n x H numbers in (0, 1), another part of the fit's stream than the draws themselves
uniform_draws <- function(fit, n, H) {
  t(stats::pnorm(draw_base(law_of(base_gaussian(), H), fit$seed, n, iteration = 1)))
}

# Standard normal numbers for the effects of new levels, another part again.
new_level_draws <- function(fit, n, count) {
  t(draw_base(law_of(base_gaussian(), count), fit$seed, n, iteration = 2))
}

# Many draws of the hyperparameters alone, for their quantiles and densities.
hyper_sample <- function(fit, n = 10000L) natural_hyper(fit, draw_theta(fit, draw_nodes(fit, n)))

# Covariance matrices of a term's coefficients, k x k x draws, from named columns of natural hyperparameters.
covariance_draws <- function(term, hyper) {
  k <- length(term$coefs)
  sd <- hyper[, sd_names(term), drop = FALSE]
  V <- array(0, c(k, k, nrow(hyper)))
  for (i in seq_len(k)) {
    V[i, i, ] <- sd[, i]^2
    for (j in seq_len(i - 1L)) if (term$correlated) {
      V[i, j, ] <- V[j, i, ] <- sd[, i] * sd[, j] * hyper[, cor_name(term, i, j)]
    }
  }
  V
}

# Quantiles of a mixture, one row of node means and sds per parameter, by bisection of all at once.
mixture_quantiles <- function(mu, sd, weight, law, p) {
  edge <- abs(marginal_quantile(law, min(p, 1 - p))) + 1e-3
  out <- matrix(0, nrow(mu), length(p))
  for (j in seq_along(p)) {
    low <- apply(mu - edge * sd, 1L, min)
    high <- apply(mu + edge * sd, 1L, max)
    for (step in seq_len(60L)) {
      middle <- (low + high) / 2
      below <- drop(matrix(marginal_probability(law, (middle - mu) / sd), nrow(mu)) %*% weight) < p[j]
      low[below] <- middle[below]
      high[!below] <- middle[!below]
    }
    out[, j] <- (low + high) / 2
  }
  out
}
