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
  if (p) x[, seq_len(p)] <- tcrossprod(x[, seq_len(p), drop = FALSE], as_reported(fit))
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

# Hyperparameters of draws that have the given nodes. The rule is a law on a few points; here it is filled in.
draw_theta <- function(fit, node) {
  axes <- hyper_axes(fit$nested$hyper)
  z <- if (is_composite(fit$nested$hyper$z)) between_design(fit, axes, node) else between_lattice(fit, axes, node)
  theta <- t(axes$centre + axes$root %*% t(z))
  dimnames(theta) <- NULL
  theta
}

# Coordinates in which the hyperparameters are near independent, those of the rule.
hyper_axes <- function(hyper) {
  root <- eigen(hyper$hessian, symmetric = TRUE)$vectors
  list(centre = hyper$mode, root = root, z = t(crossprod(root, t(hyper$theta) - hyper$mode)))
}

# A central composite design has points on one axis or off all of them; a lattice has others too.
is_composite <- function(z) ncol(z) > 2L && all(rowSums(z != 0) %in% c(0L, 1L, ncol(z)))

# Nodes on a lattice, axis by axis: each value of a node's coordinate stands for an interval of the mass that the nodes
# have along that axis, and quantiles are interpolated in normal scores. Mean and sd along each axis remain the rule's.
between_lattice <- function(fit, axes, node) {
  u <- stats::pnorm(normal_draws(fit, length(node), ncol(axes$z), 1))
  z <- vapply(seq_len(ncol(axes$z)), function(j) smooth_axis(axes$z[, j], fit$nested$hyper$weight, node, u[, j]),
              numeric(length(node)))
  matrix(z, length(node))
}

# Few nodes, far apart: drawn towards their mean and spread out again by normal draws, such that means and covariances
# in the design's coordinates remain those of the rule (West, 1993), then stretched on each side of each axis as
# the design was.
between_design <- function(fit, axes, node, shrink = sqrt(0.5)) {
  weight <- fit$nested$hyper$weight
  z <- fit$nested$hyper$z
  H <- ncol(z)
  mean <- colSums(weight * z)
  away <- sweep(z, 2L, mean)
  C <- eigen(crossprod(sqrt(weight) * away), symmetric = TRUE)
  root <- C$vectors %*% diag(sqrt(pmax(C$values, 0)), H)
  noise <- normal_draws(fit, length(node), H, 1) %*% t(root)
  drawn <- rep(mean, each = length(node)) + shrink * away[node, , drop = FALSE] + sqrt(1 - shrink^2) * noise
  wide <- side_scales(z, axes$z)
  out <- drawn * rep(wide[, 1L], each = length(node))
  left <- drawn < 0
  out[left] <- (drawn * rep(wide[, 2L], each = length(node)))[left]
  for (j in seq_len(H)) {   # the rule's mean and sd along the axis
    m <- sum(weight * axes$z[, j])
    s <- sqrt(sum(weight * (axes$z[, j] - m)^2))
    out[, j] <- m + (out[, j] - mean(out[, j])) * if (length(node) > 100L) s / stats::sd(out[, j]) else 1
  }
  out
}

# how far a unit of the design's coordinate reaches, on the right and the left of each axis
side_scales <- function(z, reached) {
  t(vapply(seq_len(ncol(z)), function(j) {
    vapply(c(1, -1), function(side) {
      at <- which(sign(z[, j]) == side)
      if (length(at)) stats::median(reached[at, j] / z[at, j]) else 1
    }, 0)
  }, c(0, 0)))
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

# n x H standard normal numbers, part `part` of the fit's stream: 0 is the draws' own
normal_draws <- function(fit, n, H, part) t(draw_base(law_of(base_gaussian(), H), fit$seed, n, iteration = part))

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

# The marginal of a coefficient or an effect, by components: see marginal_at().
nested_marginal <- function(fit, j) {
  if (j > nrow(fit$node_mu)) {
    bad_argument("parameter", "a coefficient or an effect: confint() and plot(, \"sds\") show standard deviations and correlations",
                 describe(names(fit$mu)[j]))
  }
  used <- fit$nested$hyper$weight > 0
  list(mean = fit$node_mu[j, used], sd = fit$node_sd[j, used], weight = fit$nested$hyper$weight[used],
       law = law_of(fit$base, nrow(fit$node_mu)))
}
