# A posterior that is corrected by importance weights: the points that a verdict has looked at, and their weights. They are made
# again from their key when they are needed. `points` has proposal (a mixture adapted to the target, or NULL for the posterior's own
# components), key, draws, log_ratios and moments (mean and covariance under the weights). Those of chains (judge-polish.R) are kept
# themselves, in `x`, and have equal weights.

with_points <- function(posterior, points) {
  posterior["points"] <- list(points)
  posterior
}

# in columns, in the coordinates of the solver, with weights that add to 1; NULL where there are none
weighted_points <- function(posterior) {
  points <- posterior$points
  if (is.null(points)) return(NULL)
  if (!is.null(points$x)) return(list(x = points$x, w = rep(1 / points$draws, points$draws)))   # of chains
  block <- function(i) propose_points(posterior, k_block, points$proposal, verdict_iteration(i), points$key)$x
  list(x = do.call(cbind, lapply(seq_len(points$draws / k_block), block)), w = truncated_weights(points$log_ratios))
}

# draws of the posterior's components, or of another proposal, with their log density
propose_points <- function(posterior, n, proposal, iteration, key) {
  if (is.null(proposal)) posterior_propose(posterior, n, key, iteration) else adapted_points(proposal, n, key, iteration)
}

# How many points are looked at for each draw, of those that users resample and of others.
proposals_per_draw <- function(posterior, resample = NULL) if (isTRUE(resample) || (is.null(resample) && is_corrected(posterior))) 10 else 1

# The first n of the sequence of draws with the given key that the weights pick, as posterior_draws() has them; NULL without points.
points_draws <- function(posterior, n, key) {
  points <- weighted_points(posterior)
  if (is.null(points)) return(NULL)
  u <- with_key(key, stats::runif(n))
  keep <- findInterval(u, cumsum(points$w), rightmost.closed = TRUE) + 1L
  list(x = in_user_rows(posterior, points$x[, pmin(keep, ncol(points$x)), drop = FALSE]), hyper = NULL)
}

# one row for each of the parameters `which`, one column for each p
points_quantiles <- function(posterior, which, p) {
  points <- weighted_points(posterior)
  x <- uncentre_points(posterior, points$x)
  out <- vapply(which, function(j) weighted_quantile(x[j, ], points$w, p), numeric(length(p)))
  t(matrix(out, length(p)))
}

# P(f(x) <= value), half where they are equal, for functions f whose values are the rows of f(x), x in user coordinates
points_probability <- function(posterior, f, value) {
  points <- weighted_points(posterior)
  at <- f(uncentre_points(posterior, points$x))
  drop((at < value) %*% points$w + (at == value) %*% points$w / 2)
}

# the name of the correction, in words
points_words <- function(posterior) {
  if (!is_corrected(posterior)) NULL else if (is.null(posterior$points$x)) "corrected by importance weights" else "corrected by chains"
}

# Points of many parameters have no covariance among their moments, but variances.
points_variance <- function(posterior, j = NULL) {
  moments <- posterior$points$moments
  variance <- moments$variance %||% diag(moments$covariance)
  if (is.null(j)) variance else variance[[j]]
}

points_covariance <- function(posterior, which) {
  moments <- posterior$points$moments
  if (!is.null(moments$covariance)) return(moments$covariance[which, which, drop = FALSE])
  check_size(length(which)^2, "object", "a covariance matrix")
  x <- posterior$points$x[which, , drop = FALSE]
  V <- stats::cov(t(x))
  dimnames(V) <- list(posterior$names[which], posterior$names[which])
  V
}

points_curve <- function(posterior, j) {
  points <- weighted_points(posterior)
  # the rule of thumb for as many draws as the weights leave
  width <- 1.06 * sqrt(points_variance(posterior, j)) * sum(points$w^2)^0.2
  curve <- stats::density(uncentre_points(posterior, points$x)[j, ], bw = width, weights = points$w, n = 128L)
  data.frame(x = curve$x, density = curve$y)
}

# Moments under weights that add to 1, of points that are the columns of x.
moments_under <- function(x, w, names) {
  mean <- drop(x %*% w)
  away <- x - mean
  list(mean = stats::setNames(mean, names),
       covariance = matrix(away %*% (w * t(away)), length(mean), dimnames = list(names, names)))
}

# between the points, so that equal weights give the usual quantiles
weighted_quantile <- function(x, w, p) {
  order <- order(x)
  w <- w[order]
  stats::approx(cumsum(w) - w / 2, x[order], p, rule = 2, ties = "ordered")$y
}

# the iteration number of a block of these points
verdict_iteration <- function(block) streams[["verdict"]] + block - 1

# Importance weights, the largest truncated as by Ionides (2008), so that a single draw cannot decide. They add to 1.
truncated_weights <- function(log_ratios) {
  w <- exp(log_ratios - max(log_ratios))
  w <- pmin(w, mean(w) * sqrt(length(w)))
  w / sum(w)
}
