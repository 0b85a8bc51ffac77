# From the best gaussian to the posterior: the density of a linear function a'x along its range, by the best gaussian of the
# rest at each of a few values (elvi_nested_profile() in src/nested.c). For regressions whose loss has an expectation in C.

# Nodes 1.2 standard deviations apart until the log density has fallen by `drop`. One Newton step a node is enough, because each
# starts from its neighbour.
profile_settings <- list(most = 12L, steps = 1L, width = 1.2, drop = 8, gain = 1e-3)

# A density with a steep edge, such as that of a cell without events, needs nodes closer together and more steps at each:
# test-solve-profile.R compares its limits with a grid.
steep_settings <- list(most = 24L, steps = 3L, width = 0.6, drop = 12, gain = 1e-3)

# third cumulants above it are those of such a density
steep_skewness <- 1

# and so are means and sds, in sds, that depend so much on how the nodes are joined
most_rough <- 0.01

settings_for <- function(cumulants) if (any(abs(cumulants$third) > steep_skewness)) steep_settings else profile_settings

# What a profile needs: the sparse plan, its quadrature rule, and hyperparameters and optimum of one component.
profile_target <- function(plan, rule, setting) list(plan = plan, rule = rule, setting = setting)

# Profiles of the linear functions in the columns of `a`, in the order of the parameters: list(settings, at, sd, value, mean), where value
# has a row for each function and a column for each node, -Inf for those that were not needed, and mean[, node, function] is
# that of all parameters there. NULL if one has failed.
profiles <- function(target, a, means = TRUE, settings = profile_settings) {
  found <- .Call(elvi_r_nested_profile, target$plan, target$rule, list(target$setting), unname(a[target$plan$order, , drop = FALSE]),
                 settings, means, threads())
  if (any(vapply(found, function(f) status_name(f$status) != "ok" || f$below < 2L || f$above < 2L, NA))) return(NULL)
  middle <- settings$most + 1L
  value <- t(vapply(found, function(f) {
    used <- seq.int(middle - f$below, middle + f$above)
    replace(rep(-Inf, length(f$value)), used, f$value[used])
  }, numeric(2L * middle - 1L)))
  list(settings = settings, at = vapply(found, `[[`, 0, "at"), sd = vapply(found, `[[`, 0, "sd"), value = value,
       mean = if (means) lapply(found, function(f) original_order(target$plan, f$mean)))
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
  rule <- plan_rule(plan, posterior_law(posterior))
  effects <- if (posterior_law(posterior)$independent) find_effects(posterior, plan, rule)
  moved <- with_margins(posterior, function(k) profile_target(plan, rule, posterior$roots$settings[[k]]), !is.null(effects))
  moved["effects"] <- list(effects)
  if (is_reshaped(moved)) moved$location <- uncorrected_location(moved)
  moved
}

# The means from which corrections are counted: those of the optimum. What draws have moved coefficients by, see node_ratios(), remains
# where these are not corrected.
uncorrected_location <- function(posterior) {
  plan <- posterior$roots$plan
  optimum <- vapply(posterior$roots$settings, function(s) original_order(plan, s$mu), numeric(plan$dim))
  optimum <- matrix(optimum, plan$dim)
  if (has_margins(posterior) || !length(posterior$coefficients)) return(optimum)
  which <- posterior$coefficients
  for (k in seq_along(posterior$weight)) {
    root <- root_at(posterior$roots, k)
    W <- parameter_rows(posterior, which)
    own <- root_rows(root, W)
    by <- solve(tcrossprod(own), (posterior$location - optimum)[which, k])
    optimum[, k] <- optimum[, k] + root_times(root, t(own) %*% by)
  }
  optimum
}

# That of an exact optimum: normal priors, a scale of any covariance, and few enough rows.
correct_exact <- function(posterior, model, optimum) {
  if (!is_profiled(model, optimum)) return(posterior)
  if (design_size(model) > most_profiled) return(left_gaussian(posterior, "the design has more than a million numbers"))
  model <- in_memory(model)
  if (is.null(model)) return(posterior)
  target <- NULL   # made once, when it is asked for
  target_at <- function(k) target <<- target %||% factored_target(optimum) %||% exact_target(model, optimum)
  posterior <- with_margins(posterior, target_at)
  if (!has_margins(posterior)) return(posterior)
  posterior$margins$model <- model
  refine_plain(posterior)
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
  if (!is.null(at)) profile_target(at$plan, plan_rule(at$plan, law_of(optimum$base, optimum$dim)), at$setting)
}

# A dense regression as the sparse solver has it, at its optimum.
exact_target <- function(model, optimum) {
  X <- centred_design(model$rows)
  at <- rows_plan(model, X, matrix(0, nrow(X), 0L), law_of(optimum$base, model$dim))
  at$setting["eta"] <- list(NULL)
  at$setting$mu <- unname(optimum$mu)[at$plan$order]
  at$setting$c <- expected_curvature(at$plan, at$rule, optimum, X)
  profile_target(at$plan, at$rule, at$setting)
}

# c of the rows at an optimum
expected_curvature <- function(plan, rule, optimum, X) {
  eta <- drop(X %*% optimum$mu) + plan$offset
  s <- sqrt(rowSums((X %*% root_matrix(optimum$scale))^2))
  .Call(elvi_r_expect_rows, plan, rule, 1, list(y = plan$y, weight = plan$weight, eta = unname(eta), s = unname(s)))$curve
}
