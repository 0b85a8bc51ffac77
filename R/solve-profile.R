# From the best gaussian to the posterior: the density of a linear function a'x along its range, by the best gaussian of the
# rest at each of a few values (elvi_nested_profile() in src/nested.c). For regressions whose loss has an expectation in C.

# Nodes 1.2 standard deviations apart until the log density has fallen by `drop`. Most need no whole step, because each
# starts where those before it lead.
profile_settings <- list(most = 12L, steps = 12L, width = 1.2, drop = 8, gain = 1e-3)

# A density with a steep edge, such as that of a cell without events, needs nodes closer together and more steps at each:
# test-solve-profile.R compares its limits with a grid.
steep_settings <- list(most = 24L, steps = 12L, width = 0.6, drop = 12, gain = 1e-4)

# Where that is not enough, as for a level of many rows whose counts are all 0, below which the density hardly changes and above which
# it ends at once, closer still.
closest_width <- 0.15

finer_settings <- function(settings) {
  if (settings$width > steep_settings$width) return(steep_settings)
  if (settings$width <= closest_width) return(NULL)
  replace(settings, c("most", "width"), list(2L * settings$most, settings$width / 2))
}

# third cumulants above it are those of such a density
steep_skewness <- 1

# and so are means and sds, in sds, that depend so much on how the nodes are joined
most_rough <- 0.01

settings_for <- function(cumulants) if (any(abs(cumulants$third) > steep_skewness)) steep_settings else profile_settings

# What a profile needs: the sparse plan, its quadrature rule, and hyperparameters and optimum of one component.
profile_target <- function(plan, rule, setting) list(plan = plan, rule = rule, setting = setting)

# Profiles of the linear functions in the columns of `a`, in the order of the parameters: list(settings, at, sd, value, mean), where value
# has a row for each function and a column for each node, -Inf for those that were not needed, and mean[, node, function] is
# that of all parameters there. NULL if one has failed. `points`, see profile_points(), correct the lower bounds; NULL where they are too
# uneven for that.
profiles <- function(target, a, means = TRUE, settings = profile_settings, points = NULL) {
  found <- .Call(elvi_r_nested_profile, target$plan, target$rule, list(target$setting), unname(a[target$plan$order, , drop = FALSE]),
                 settings, points, means, threads())
  if (any(vapply(found, function(f) status_name(f$status) != "ok" || f$below < 2L || f$above < 2L, NA))) return(NULL)
  middle <- settings$most + 1L
  if (!is.null(points) && min(vapply(found, least_effective_node, 0)) < least_effective_share) return(NULL)
  value <- t(vapply(found, function(f) {
    used <- seq.int(middle - f$below, middle + f$above)
    replace(rep(-Inf, length(f$value)), used, f$value[used])
  }, numeric(2L * middle - 1L)))
  list(settings = settings, at = vapply(found, `[[`, 0, "at"), sd = vapply(found, `[[`, 0, "sd"), value = value,
       mean = if (means) lapply(found, function(f) original_order(target$plan, f$mean)))
}

# ---- where few nodes are enough ------------------------------------------------------------------------

# A density whose third and fourth cumulants are small is nearly the exponential of a polynomial of the fourth degree: five nodes say
# which.
few_settings <- list(most = 2L, steps = 12L, width = 1.6, drop = Inf, gain = 1e-3)
few_reach <- 4.8   # sds on either side of the optimum for which the polynomial stands
is_smooth <- function(cumulants) abs(cumulants$third) < 0.3 & abs(cumulants$fourth) < 0.25

# Do cumulants say what densities do in their tails? Those of losses that are not convex may be long.
is_tame <- function(target) isTRUE(family_records[[target$plan$record]]$convex) && !isTRUE(target$plan$lines > 1L)

# As profiles(), whose `cumulants` are those of the columns of a.
lean_profiles <- function(target, a, means, settings, points, cumulants) {
  smooth <- is_smooth(cumulants) & is.null(points) & is_tame(target)
  found <- if (any(smooth)) profiles(target, a[, smooth, drop = FALSE], means, few_settings, points)
  if (is.null(found)) return(profiles(target, a, means, settings, points))
  found <- filled_in(found, settings)
  good <- apply(found$value[, is_filled(settings), drop = FALSE], 1L, is_bell)
  smooth[smooth] <- good
  rest <- if (!all(smooth)) profiles(target, a[, !smooth, drop = FALSE], means, settings, points)
  if (is.null(rest) && !all(smooth)) return(NULL)
  value <- matrix(0, ncol(a), ncol(found$value))
  value[smooth, ] <- found$value[good, ]
  if (!is.null(rest)) value[!smooth, ] <- rest$value
  together <- function(field) {
    out <- vector("list", ncol(a))
    out[smooth] <- as.list(found[[field]])[good]
    if (!is.null(rest)) out[!smooth] <- as.list(rest[[field]])
    out
  }
  list(settings = settings, at = unlist(together("at")), sd = unlist(together("sd")), value = value, mean = if (means) together("mean"))
}

# log densities that fall on either side, faster and faster
is_bell <- function(value) {
  value[1L] < max(value) - 5 && value[length(value)] < max(value) - 5 && all(diff(value, differences = 2L) < 0)
}

# the nodes of `settings`, by the polynomials through the five
filled_in <- function(found, settings) {
  from <- profile_nodes(few_settings)
  at <- which(is_filled(settings))
  B <- t(outer(profile_nodes(settings)[at], 0:4, `^`) %*% solve(outer(from, 0:4, `^`)))
  value <- matrix(-Inf, nrow(found$value), 2L * settings$most + 1L)
  value[, at] <- found$value %*% B
  mean <- lapply(found$mean, function(m) {
    out <- matrix(0, nrow(m), ncol(value))
    out[, at] <- m %*% B
    out
  })
  list(at = found$at, sd = found$sd, value = value, mean = if (!is.null(found$mean)) mean)
}

is_filled <- function(settings) abs(profile_nodes(settings)) < few_reach + settings$width / 2

# ---- points that correct the bounds ---------------------------------------------------------------

# A profile is a lower bound at each node, as far from the density as the rest is from a gaussian there. In few dimensions points of
# that gaussian, the same at all nodes, say how far.
most_pointed <- 6L
least_effective_share <- 0.1

profile_points <- function(plan) {
  if (plan$dim > most_pointed || plan$dim < 2L || plan$constraints) return(NULL)
  share <- 0.25
  wide <- 1 + 1.8 / sqrt(plan$dim)
  z <- stats::qnorm(t(even_uniform(32L * 2^min(plan$dim, 4L), plan$dim)))
  far <- (seq_len(ncol(z)) * sqrt(2)) %% 1 < share
  z[, far] <- wide * z[, far]
  list(z = cbind(z, -z), share = share, wide = wide)
}

# the smallest share of effective points at a node that has mass
least_effective_node <- function(found) {
  used <- found$value > max(found$value) - 4
  min(found$effective[used])
}

# in standard deviations from the optimum
profile_nodes <- function(settings) (seq_len(2L * settings$most + 1L) - settings$most - 1L) * settings$width

# weights of the nodes: the rule of equal steps is accurate far beyond what is needed for densities as smooth as these
profile_weights <- function(value) {
  w <- exp(value - row_max(value))
  w / rowSums(w)
}

# Mean and covariance of all functions, in units of the gaussian's standard deviations: from the density of each function, and
# the conditional means of the others along it. `a` must be uncorrelated under the gaussian with variance 1, so that
# the relative error is small in every direction.
profile_moments <- function(found, a) {
  w <- profile_weights(found$value)
  t <- profile_nodes(found$settings)
  delta <- drop(w %*% t)
  C <- vapply(seq_along(delta), function(j) {
    used <- is.finite(found$value[j, ])
    others <- crossprod(a, found$mean[[j]][, used, drop = FALSE])
    drop(others %*% (w[j, used] * (t[used] - delta[j])))
  }, delta)
  C <- matrix(C, length(delta))
  list(delta = delta, covariance = (C + t(C)) / 2, asymmetry = max(abs(C - t(C))))
}

# Where the standard normal scores of `margin_scores` are in each density, standardised: mean 0 and standard deviation 1. `rough` is by how
# much means and sds by the nodes alone differ from those of the spline through them: both are accurate where nodes are enough.
profile_shapes <- function(found) {
  w <- profile_weights(found$value)
  t <- profile_nodes(found$settings)
  mean <- drop(w %*% t)
  sd <- sqrt(drop(w %*% t^2) - mean^2)
  off <- vapply(seq_along(mean), function(j) spline_departure(t, found$value[j, ], mean[j], sd[j]), 0)
  list(mean = mean, sd = sd, shape = (score_quantiles(t, found$value) - mean) / sd, rough = off / sd)
}

margin_scores <- seq(-4, 4, by = 0.25)

# of the densities whose logarithms are the splines through the rows of `value` at t, equal steps; -Inf at their ends for nodes that they
# do not have (src/score_quantiles.c)
score_quantiles <- function(t, value) t(.Call(elvi_r_score_quantiles, t(value), t[1L], t[2L] - t[1L], margin_scores))

# How far mean and sd of the density whose logarithm is the spline through `value` are from those of the nodes alone.
spline_departure <- function(t, value, mean, sd, fine = 20L) {
  used <- is.finite(value)
  t <- t[used]
  x <- seq(t[1L], t[length(t)], length.out = fine * (length(t) - 1L) + 1L)
  density <- exp(stats::spline(t, value[used], xout = x)$y - max(value[used]))
  share <- density / sum(density)
  m <- sum(share * x)
  max(abs(m - mean), abs(sqrt(sum(share * (x - m)^2)) - sd))
}

# ---- is it needed? ---------------------------------------------------------------------------------

# Third and fourth standardised cumulants of linear functions (columns of a) to first order, from how the expected curvature of each
# row changes with its predictor. Zero for a posterior that is gaussian.
profile_cumulants <- function(target, a) {
  out <- .Call(elvi_r_nested_cumulants, target$plan, target$rule, target$setting, unname(a[target$plan$order, , drop = FALSE]))
  if (is.null(out)) return(list(third = Inf, fourth = Inf))
  out
}

# A third cumulant of 0.04 moves a limit of a 95 % interval by 0.02 standard deviations, a fourth of 0.15 by 0.01.
needs_profile <- function(cumulants) any(abs(cumulants$third) > 0.04 | abs(cumulants$fourth) > 0.15)

# ---- of what is solved --------------------------------------------------------------------------------------

# The posterior of a fit by quadrature over hyperparameters, with margins where they are needed.
correct_nested <- function(posterior) {
  plan <- posterior$roots$plan
  if (is_quadratic(plan) || isTRUE(plan$summed)) return(posterior)
  rule <- lean_rule(plan, posterior_law(posterior))
  effects <- if (posterior_law(posterior)$independent) find_effects(posterior, plan, rule)
  moved <- with_margins(posterior, function(k) profile_target(plan, rule, posterior$roots$settings[[k]]), !is.null(effects))
  with_effects(moved, effects)
}

# That of an exact optimum: a scale of any covariance, and few enough rows.
correct_exact <- function(posterior, model, optimum) {
  if (is_regression(model) && has_student_prior(model)) return(correct_student(posterior, model, optimum))
  if (!is_profiled(model, optimum)) return(posterior)
  if (design_size(model) > most_profiled) return(left_gaussian(posterior, "the design has more than a million numbers"))
  model <- in_memory(model)
  if (is.null(model)) return(posterior)
  target <- NULL   # made once, when it is asked for
  target_at <- function(k) target <<- target %||% factored_target(optimum) %||% exact_target(model, optimum)
  refine_plain(with_target(with_margins(posterior, target_at), model))
}

# Above so many numbers in the design the profiles would take many times as long as the fit.
most_profiled <- 1e6

is_profiled <- function(model, optimum) {
  if (!is_regression(model)) return(FALSE)
  record <- family_records[[model$likelihood]]
  known <- is_chunked(model$rows) || has_dense_rows(model$rows) || !is.null(root_plan(optimum$scale))
  known && optimum$converged && !has_student_prior(model) && scale_of(optimum$kind)$full && !is.null(record$conditional) &&
    !record$constant_curvature
}

design_size <- function(model) as.double(model$rows$n %||% length(model$rows$y)) * model$dim

# A regression with its rows in memory, in one pass where they are not; NULL for sparse rows.
in_memory <- function(model) {
  if (!is_chunked(model$rows)) return(model)
  rows <- pass_over_rows(model$rows, "collect", list(dense = !is.null(model$rows$recipe$builder)))
  if (!is.matrix(rows$X)) return(NULL)
  shift <- model$rows$recipe$centre
  rows <- new_rows(rows$X, shift, rows$y, rows$weight, rows$offset, model$rows$count, model$rows$constant)
  rows_target(rows, model$family, model$prior, model$dispersion, NULL, shift)
}

# that of an optimum whose scale is kept as a sparse factor, which knows its plan; NULL for others
factored_target <- function(optimum) {
  at <- root_plan(optimum$scale)
  if (!is.null(at)) profile_target(at$plan, lean_rule(at$plan, law_of(optimum$base, optimum$dim)), at$setting)
}

# A dense regression in the form of the sparse solver, at its optimum.
exact_target <- function(model, optimum) {
  X <- centred_design(model$rows)
  at <- rows_plan(model, X, matrix(0, nrow(X), 0L), law_of(optimum$base, model$dim))
  at$setting["eta"] <- list(NULL)
  at$setting$mu <- unname(optimum$mu)[at$plan$order]
  at$setting$c <- expected_curvature(at$plan, at$rule, optimum, X)
  profile_target(at$plan, lean_rule(at$plan, law_of(optimum$base, model$dim)), at$setting)
}

# c of the rows at an optimum
expected_curvature <- function(plan, rule, optimum, X) {
  eta <- drop(X %*% optimum$mu) + plan$offset
  s <- sqrt(rowSums((X %*% root_matrix(optimum$scale))^2))
  .Call(elvi_r_expect_rows, plan, rule, 1, list(y = plan$y, weight = plan$weight, eta = unname(eta), s = unname(s)))$curve
}
