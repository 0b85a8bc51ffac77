# Steps of the exact solver where the loss is far from quadratic. A factor level whose responses are all 0 has a loss like exp(t) in its
# coefficient: Newton steps for the mean move it by one unit at a time, and means and precisions chase each other. Along a few directions
# the third derivative is summed in the same pass, the loss is taken for an exponential with these derivatives, and its optimum,
# mean and variance together, is the step.

most_skewed <- 16L

# An entry of the precision changes by more than this from one step to the next: plain steps will be slow.
slow_change <- 0.1

# Third derivatives, in units of the standard deviation, below which plain steps are fast enough
least_skewness <- 0.3

# Can the model's steps be improved so? Its prior is then the quadratic part of f.
may_be_skewed <- function(model, kind) {
  is_regression(model) && scale_of(kind)$full && all_proper(model) && !has_student_prior(model) &&
    !family_record(model)$constant_curvature
}

# Directions in which one coefficient moves and the others follow, orthonormal in `precision`: of those coefficients that the prior
# decides most. NULL where rounding leaves no definite precision.
skewed_directions <- function(model, precision) {
  root <- or_null(chol(precision))
  if (is.null(root)) return(NULL)
  V <- chol2inv(root)
  share <- prior_precision_of(model) * diag(V)
  some <- utils::head(order(-share), min(most_skewed, length(share)))
  t(backsolve(chol(V[some, some, drop = FALSE]), t(V[, some, drop = FALSE]), transpose = TRUE))
}

prior_precision_of <- function(model) rep_len(model$blocks$coefficients$precision, model$dim)

# Does the covariance change so much at this point that plain steps will be slow?
changes_slowly <- function(point) {
  R <- or_null(chol(point$B))
  is.null(R) || max(abs(diag(chol2inv(R)) / root_sd(point$scale)^2 - 1)) > slow_change
}

# Third derivatives along the directions that suit the point itself: an evaluation of its own
look_along <- function(oracle, model, point) {
  point$directions <- skewed_directions(model, point$B)
  point$third <- oracle(point$kind, point$mu, point$scale, point$directions)$third
  point
}

# The plain step of approach_optimum(), corrected along the point's directions.
next_target <- function(model, point) {
  plain <- list(mu = point$mu - newton_step(point$B, point$g_mu), precision = point$B)
  if (!length(point$third)) return(plain)
  size <- sqrt(colSums(point$directions * (point$B %*% point$directions)))
  R <- point$directions / rep(size, each = nrow(point$directions))
  slope <- drop(crossprod(R, point$g_mu))
  dual <- point$B %*% R
  likelihood <- 1 - colSums(prior_precision_of(model) * R^2)   # the share of the precision that is not the prior's
  along <- list(slope = slope, second = likelihood, third = point$third / size^3,
                variance = if (is.null(point$scale)) numeric(length(slope)) else colSums(root_crossprod(point$scale, dual)^2))
  use <- which(likelihood > 1e-10 & abs(along$third) > least_skewness * likelihood)
  if (!length(use)) return(plain)
  best <- exponential_optimum(lapply(along, `[`, use))
  if (any(!is.finite(unlist(best)))) return(plain)
  dual <- dual[, use, drop = FALSE]
  list(mu = plain$mu + drop(R[, use, drop = FALSE] %*% (best$step + slope[use])),
       precision = plain$precision + dual %*% ((1 / best$variance - 1) * t(dual)))
}

# The gaussian (mean `step`, `variance`) that is best along each of some directions, for a loss whose average slope and curvature change
# like exponentials: slope + second (e - 1) / theta + a t = 0 and variance (second e + a) = 1, a = 1 - second the prior's part. By
# bisection in the logarithm of the variance, which is below 1 / a.
exponential_optimum <- function(along) {
  theta <- along$third / along$second
  a <- pmax(1 - along$second, 1e-12)
  move_at <- function(variance) {
    shift <- theta^2 * (variance - along$variance) / 2
    total <- along$second - theta * along$slope + a * shift
    # a z + second exp(z) = total, by Newton steps from the right, which never pass the root
    z <- log(pmax(total / along$second, 1))
    for (k in 1:40) z <- z - (a * z + along$second * exp(z) - total) / (a + along$second * exp(z))
    list(exponent = z, step = (z - shift) / theta)
  }
  excess <- function(variance) log(variance) + log(along$second * exp(pmin(move_at(variance)$exponent, 700)) + a)
  low <- rep(-30, length(a))
  high <- -log(a)
  for (k in 1:50) {
    middle <- (low + high) / 2
    above <- excess(exp(middle)) > 0
    high <- ifelse(above, middle, high)
    low <- ifelse(above, low, middle)
  }
  variance <- exp((low + high) / 2)
  list(step = move_at(variance)$step, variance = variance)
}
