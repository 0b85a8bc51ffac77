# Corrected effects of groups. At a component the gaussian is x = mu + L^-T z, with L the factor of its precision in the order of the
# plan: an effect's z_j is its residual given the coefficients and the effects after it. Moving z_j moves few rows, so its density
# given the gaussian of all the rest is cheap (elvi_nested_residuals() in src/nested.c), at every quadrature point that matters.
# `effects` of a posterior describes them:
#
#   at       places in the order of the plan of the effects that are not gaussian
#   of       for each component, which of `each` it has
#   each     for some components: k, delta and scale (mean and sd of z at `at`), shape (their standardised quantiles) and
#            growth (for all parameters, the factor of their variance)
#
# Big groups have gaussian effects, by their cumulants, and are not among them.

has_effects <- function(posterior) !is.null(posterior$effects)

# a posterior with these, or none; means are then counted from the optimum
with_effects <- function(posterior, effects) {
  posterior["effects"] <- list(effects)
  if (is_reshaped(posterior)) posterior$location <- uncorrected_location(posterior)
  posterior
}

effects_at <- function(posterior, k) posterior$effects$each[[posterior$effects$of[k]]]

# ---- finding them ---------------------------------------------------------------------------------------

effect_settings <- list(most = 7L, width = 1.2, third = 0.04, fourth = 0.15)

# Above so many expectations of a row per component, as few components as there is time for are looked at.
most_effect_rows <- 5e6

find_effects <- function(posterior, plan, rule) {
  # columns of L^-T do not satisfy constraints, and the densities in C are of rows with one predictor
  if (plan$dim == plan$dense || plan$constraints || !is.null(plan$joint)) return(NULL)
  counts <- main_components(posterior, max(1, most_effect_rows %/% (plan$rows * (2 * effect_settings$most + 4))))
  found <- .Call(elvi_r_nested_residuals, plan, rule, posterior$roots$settings[counts], rows_of_columns(plan), effect_settings, threads())
  if (any(vapply(found, function(f) status_name(f$status) != "ok", NA))) return(NULL)
  at <- which(Reduce(`|`, lapply(found, function(f) f$scale != 1)))
  if (!length(at)) return(NULL)
  list(at = at, of = nearest_of(posterior, counts), each = Map(function(f, k) {
    list(k = k, delta = f$delta[at], scale = f$scale[at], shape = residual_shapes(f, at),
         growth = 1 + original_order(plan, f$change) / posterior$roots$sd[, k]^2)
  }, found, counts))
}

residual_shapes <- function(found, at) {
  shape <- normal_shapes(length(at))
  bent <- which(found$scale[at] != 1)
  t <- (seq_len(nrow(found$value)) - effect_settings$most - 1L) * effect_settings$width
  if (!length(bent)) return(shape)
  value <- t(found$value[, at[bent], drop = FALSE])
  value[value <= row_max(value) - 40] <- -Inf
  shape[bent, ] <- (score_quantiles(t, value) - found$delta[at[bent]]) / found$scale[at[bent]]
  shape
}

# which rows have an entry in each sparse column, from 0
rows_of_columns <- function(plan) {
  row <- rep(seq_len(plan$rows) - 1L, diff(plan$start))[order(plan$column)]
  list(start = as.integer(c(0L, cumsum(tabulate(plan$column + 1L, plan$dim - plan$dense)))), row = row)
}

# Components that stand for all: at most so many, by weight and by the distance of their hyperparameters from those chosen before.
main_components <- function(posterior, most, least = 0.01) {
  weight <- posterior$weight
  chosen <- which.max(weight)
  theta <- hyper_distances(posterior)
  near <- component_distance(theta, chosen)
  while (length(chosen) < most) {
    gain <- weight * near
    best <- which.max(gain)
    if (!isTRUE(gain[best] > least * max(weight) * 0.05)) break
    chosen <- c(chosen, best)
    near <- pmin(near, component_distance(theta, best))
  }
  chosen
}

# for each component, the place in `chosen` of the one whose hyperparameters are nearest
nearest_of <- function(posterior, chosen) {
  theta <- hyper_distances(posterior)
  each <- matrix(vapply(chosen, function(k) component_distance(theta, k), numeric(nrow(theta))), nrow(theta))
  # on a lattice many are equally near up to rounding, which differs between BLAS libraries
  nearest <- each[cbind(seq_len(nrow(each)), max.col(-each, "first"))]
  max.col((each <= nearest * (1 + 1e-9)) + 0, "first")
}

# hyperparameters in units of their standard deviations, a row for each component
hyper_distances <- function(posterior) {
  theta <- posterior$hyper$theta %||% matrix(0, length(posterior$weight), 1L)
  mean <- drop(posterior$weight %*% theta)
  sd <- sqrt(drop(posterior$weight %*% (theta - rep(mean, each = nrow(theta)))^2))
  theta / rep(pmax(sd, 1e-8), each = nrow(theta))
}

component_distance <- function(theta, k) rowSums((theta - rep(theta[k, ], each = nrow(theta)))^2)

# ---- what verbs of the posterior ask ---------------------------------------------------------------------

# z at component k that has `value` at the effects, and 0 elsewhere
effect_columns <- function(posterior, value) {
  z <- matrix(0, posterior_dim(posterior), NCOL(value))
  z[posterior$effects$at, ] <- value
  z
}

# what they add to means and variances (d x K) of all parameters, whose standard deviations are sd
effect_moments <- function(posterior, sd) {
  mean <- variance <- sd * 0
  for (k in seq_along(posterior$weight)) {
    one <- effects_at(posterior, k)
    mean[, k] <- uncentre_points(posterior, root_times(root_at(posterior$roots, k), effect_columns(posterior, one$delta)))
    variance[, k] <- sd[, k]^2 * (one$growth - 1)
  }
  list(mean = mean, variance = variance)
}

# to means and variances of linear functions whose root_rows() are A
effect_linear <- function(posterior, k, A) {
  one <- effects_at(posterior, k)
  A <- A[, posterior$effects$at, drop = FALSE]
  list(mean = drop(A %*% one$delta), variance = drop(A^2 %*% (one$scale^2 - 1)))
}

effect_covariance <- function(posterior, k, A) {
  A <- A[, posterior$effects$at, drop = FALSE]
  A %*% ((effects_at(posterior, k)$scale^2 - 1) * t(A))
}

# standard normal z of the effects, given the columns of all z at component k, with their own margins
moved_effects <- function(posterior, z, k) {
  one <- effects_at(posterior, k)
  old <- z[posterior$effects$at, , drop = FALSE]
  list(z = one$delta + one$scale * value_at_score(one$shape, old), log_slope = colSums(log(slope_at_score(one$shape, old))))
}
