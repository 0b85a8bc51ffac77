# Corrected coefficients of a posterior. In the whitened coordinates y of a component, x = m_k + S_k y with S_k the lower triangular
# root of the coefficients' covariance, the gaussian has mean 0 and covariance I. `margins` says what the posterior has there:
#
#   each        for some components: delta, covariance (mean and covariance of y), shape (functions x scores: standardised
#               quantiles of each y at `margin_scores`) and own (the same for each coefficient); k is the component
#   of          for each component, which of `each` it has: the one with the nearest hyperparameters
#   roots       S_k, in user coordinates
#   moved       how far means (in sds) and sds (as factors) of coefficients are from the gaussian's, at most
#
# Found by profiles (solve-profile.R). Other parameters follow the coefficients by their regression on them.

has_margins <- function(posterior) !is.null(posterior$margins)

# Is the posterior another than its gaussian components? Effects of groups have their own corrections: posterior-effects.R.
is_reshaped <- function(posterior) has_margins(posterior) || has_effects(posterior)

# S_k, user coordinates
coefficient_root <- function(posterior, k) {
  rows <- root_rows(root_at(posterior$roots, k), unit_rows(posterior, posterior$coefficients))
  V <- tcrossprod(rows)
  R <- or_null(chol(V))
  if (is.null(R) || any(diag(R) < 1e-4 * sqrt(diag(V)))) R <- qr.R(qr(t(rows), tol = 0))   # squares would lose a direction
  t(R * sign(diag(R)))
}

# A posterior with margins of its coefficients where the gaussian is not as good. `cumulants` says why; NULL where nothing was looked at.
# needed: whatever the cumulants, because effects are not gaussian, with which the coefficients' variances grow.
with_margins <- function(posterior, target_at, needed = FALSE) {
  which <- posterior$coefficients
  if (!length(which) || !posterior_law(posterior)$independent) return(posterior)
  if (length(which) > most_examined) return(left_gaussian(posterior, paste("more than", most_examined, "coefficients")))
  best <- which.max(posterior$weight)
  target_at <- once_each(target_at)
  S_at <- once_each(function(k) coefficient_root(posterior, k))
  functions_at <- once_each(function(k) white_functions(posterior, S_at(k)))
  target <- target_at(best)
  cumulants <- margin_cumulants(posterior, target_at, functions_at)
  posterior$cumulants <- lapply(cumulants, function(x) max(abs(x)))
  if (anyNA(posterior$cumulants)) {
    posterior["cumulants"] <- list(NULL)
    return(left_gaussian(posterior, "the cumulants of the coefficients cannot be computed"))
  }
  if (!needed && !needs_profile(cumulants)) return(posterior)
  if (length(which) > most_corrected) return(left_gaussian(posterior, paste("more than", most_corrected, "coefficients")))
  most <- most_margin_rows %/% (2 * length(which) * rows_of_profile(target))
  chosen <- main_components(posterior, min(max(most, 1), most_margin_components))
  each <- lapply(chosen, function(k) {
    margins <- find_margins(target_at(k), functions_at(k), settings_for(cumulants))
    if (!is.null(margins)) c(list(k = k), margins)
  })
  found <- lengths(each) > 0L
  if (!found[1L]) return(left_gaussian(posterior, "the profiles of the coefficients cannot be found"))
  posterior$margins <- list(each = each[found], of = nearest_of(posterior, chosen[found]), plan = target$plan, setting = target$setting,
                            roots = lapply(seq_along(posterior$weight), S_at), moved = most_moved(each[found]))
  posterior
}

# Margins of a posterior of one component whose target can be evaluated, before they are found: `each` is still to come.
begin_margins <- function(posterior, target, model) {
  posterior$margins <- list(of = 1L, plan = target$plan, setting = target$setting, roots = list(coefficient_root(posterior, 1L)),
                            model = model)
  posterior
}

end_margins <- function(posterior, each) {
  posterior$margins$each <- each
  posterior$margins$moved <- most_moved(each)
  posterior
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

# a function of a component's number that computes each value once
once_each <- function(f) {
  force(f)
  known <- list()
  function(k) {
    name <- as.character(k)
    if (is.null(known[[name]])) known[[name]] <<- f(k)
    known[[name]]
  }
}

# print() says why coefficients that may need a correction have none.
left_gaussian <- function(posterior, why) {
  posterior$gaussian_because <- why
  posterior
}

# Cumulants of the coefficients at the components that stand for all: a coefficient can be gaussian at the best one and not at others.
margin_cumulants <- function(posterior, target_at, functions_at) {
  most <- most_margin_rows %/% (4 * length(posterior$coefficients) * target_at(which.max(posterior$weight))$plan$rows)
  each <- lapply(main_components(posterior, min(max(most, 1), most_margin_components)), function(k) {
    at <- functions_at(k)
    profile_cumulants(target_at(k), cbind(at$white, at$unit))
  })
  list(third = unlist(lapply(each, `[[`, "third")), fourth = unlist(lapply(each, `[[`, "fourth")))
}

# Functions, in columns, of the parameters at the component whose root is S: the coefficients (unit), and others that are uncorrelated and
# have variance 1. solve() would refuse the root of an intercept that is far from the data.
white_functions <- function(posterior, S) {
  unit <- t(unit_rows(posterior, posterior$coefficients))
  list(unit = unit, white = unit %*% t(forwardsolve(S, diag(nrow(S)))), S = S)
}

# at one component, with points or without; NULL where they cannot be found
find_margins <- function(target, at, settings, points = NULL) {
  p <- ncol(at$unit)
  cumulants <- profile_cumulants(target, cbind(at$white, at$unit))
  some <- function(which) lapply(cumulants, `[`, which)
  along <- lean_profiles(target, at$white, TRUE, settings, points, some(seq_len(p)))
  if (is.null(along)) return(NULL)
  white <- profile_shapes(along)
  tame <- is.null(points) && is_tame(target)
  asked <- if (tame) asks_for_own(cumulants, at$S) else seq_len(p) > 1L
  own <- if (any(asked)) lean_profiles(target, at$unit[, asked, drop = FALSE], FALSE, settings, points, some(p + which(asked)))
  if (any(asked) && is.null(own)) return(NULL)
  # the first of the white functions is the first coefficient, in units of its sd: S is lower triangular
  shapes <- profile_shapes(list(settings = settings, value = rbind(along$value[1L, ], own$value)))
  finer <- if (max(white$rough, shapes$rough) > most_rough) finer_settings(settings)
  if (!is.null(finer)) return(find_margins(target, at, finer, points))
  known <- c(1L, which(asked))
  y <- agree_with_own(profile_moments(along, at$white), shapes, at$S, known)
  if (is.null(y)) return(NULL)
  U <- at$S / sqrt(rowSums(at$S^2))
  shown <- list(mean = drop(U %*% y$delta), sd = sqrt(rowSums((U %*% y$covariance) * U)), shape = white$shape)
  mild <- tame & is_mild(some(p + seq_len(p)))
  if (any(mild)) shown$shape[mild, ] <- cumulant_shapes(cumulants$third[p + which(mild)], cumulants$fourth[p + which(mild)])
  shown$shape[known, ] <- shapes$shape
  list(delta = y$delta, covariance = y$covariance, shape = white$shape, own = shown$shape, mean = max(abs(shown$mean)),
       sd = range(shown$sd), pointed = !is.null(points))
}

# Which coefficients, but for the first, need a profile of their own? Not those that hardly differ from their white function, nor those
# that are so mild that their cumulants are enough.
asks_for_own <- function(cumulants, S) {
  p <- nrow(S)
  white <- seq_len(p)
  near <- diag(S) > 0.9 * sqrt(rowSums(S^2)) & abs(cumulants$third[p + white] - cumulants$third[white]) < 0.03 &
    abs(cumulants$fourth[p + white] - cumulants$fourth[white]) < 0.1
  !(near | is_mild(lapply(cumulants, `[`, p + white))) & white > 1L
}

is_mild <- function(cumulants) abs(cumulants$third) < 0.1 & abs(cumulants$fourth) < 0.1

# Margins with bounds that points have corrected, where that can be done.
point_margins <- function(posterior) {
  margins <- posterior$margins
  points <- profile_points(target_of(posterior)$plan)
  if (is.null(points)) return(posterior)
  for (r in seq_along(margins$each)) {
    k <- margins$each[[r]]$k
    target <- target_of(posterior, k)
    at <- white_functions(posterior, margins$roots[[k]])
    found <- find_margins(target, at, settings_for(profile_cumulants(target, cbind(at$white, at$unit))), points)
    if (!is.null(found)) margins$each[[r]] <- c(list(k = k), found)
  }
  margins$moved <- most_moved(margins$each)
  posterior$margins <- margins
  posterior
}

most_moved <- function(each) {
  list(mean = max(vapply(each, `[[`, 0, "mean")), sd = range(unlist(lapply(each, `[[`, "sd"))))
}

# those of component k
margin_at <- function(posterior, k) posterior$margins$each[[posterior$margins$of[k]]]

# Components at which coefficients are profiled: at most, and as long as so many expectations of a row are enough.
most_margin_components <- 5
most_margin_rows <- 4e5

# Above this the profiles of all coefficients would take longer than a sampler, and above the other even their cumulants.
most_corrected <- 100L
most_examined <- 400L

# Mean and covariance of y, moved as little as possible such that the mean and the variance of each coefficient are those of its own
# profile, which is the more accurate one for it, where it has one: `own` is of the coefficients `known`. A ridge keeps coefficients
# that are nearly collinear from moving others.
agree_with_own <- function(moments, own, S, known, ridge = 0.02) {
  U <- (S / sqrt(rowSums(S^2)))[known, , drop = FALSE]   # rows: directions of the coefficients in y, of length 1
  G <- tcrossprod(U)
  I <- diag(ridge, nrow(G))
  delta <- moments$delta + drop(crossprod(U, solve(G + I, own$mean - drop(U %*% moments$delta))))
  lack <- own$sd^2 - rowSums((U %*% moments$covariance) * U)
  C <- moments$covariance + crossprod(U, solve(G^2 + I, lack) * U)
  if (min(eigen(C, symmetric = TRUE, only.values = TRUE)$values) < 0.05) return(NULL)
  list(delta = delta, covariance = C)
}

# ---- what verbs of the posterior ask -----------------------------------------------------------------

# Loadings H of the rows w of W (user coordinates) on y at component k: by the gaussian's regression on the coefficients, E w'x moves by
# H delta, and its variance by H (C - I) H'.
margin_loadings <- function(posterior, k, A) {
  root <- root_at(posterior$roots, k)
  own <- root_rows(root, unit_rows(posterior, posterior$coefficients))
  A %*% t(forwardsolve(posterior$margins$roots[[k]], own))
}

# of all parameters at component k, d x p
all_loadings <- function(posterior, k) {
  root <- root_at(posterior$roots, k)
  own <- root_rows(root, unit_rows(posterior, posterior$coefficients))
  uncentre_points(posterior, root_times(root, t(forwardsolve(posterior$margins$roots[[k]], own))))
}

# What corrections add to means (d x K) and variances of all parameters, whose standard deviations are sd.
moved_moments <- function(posterior, sd) {
  none <- list(mean = 0, variance = 0)
  Map(`+`, if (has_margins(posterior)) margin_moments(posterior) else none,
      if (has_effects(posterior)) effect_moments(posterior, sd) else none)
}

# of the coefficients, and of other parameters by their regression on them
margin_moments <- function(posterior) {
  each <- lapply(seq_along(posterior$weight), function(k) {
    H <- all_loadings(posterior, k)
    margins <- margin_at(posterior, k)
    list(mean = drop(H %*% margins$delta), variance = rowSums((H %*% (margins$covariance - diag(ncol(H)))) * H))
  })
  columns <- function(field) matrix(vapply(each, `[[`, numeric(posterior_dim(posterior)), field), posterior_dim(posterior))
  list(mean = columns("mean"), variance = columns("variance"))
}

# to the covariance of linear functions at component k, whose root_rows() are A
moved_covariance <- function(posterior, k, A) {
  out <- if (has_effects(posterior)) effect_covariance(posterior, k, A) else 0
  if (!has_margins(posterior)) return(out)
  H <- margin_loadings(posterior, k, A)
  out + H %*% (margin_at(posterior, k)$covariance - diag(ncol(H))) %*% t(H)
}

# to their means and variances
moved_linear <- function(posterior, k, A) {
  out <- if (has_effects(posterior)) effect_linear(posterior, k, A) else list(mean = 0, variance = 0)
  if (!has_margins(posterior)) return(out)
  H <- margin_loadings(posterior, k, A)
  margins <- margin_at(posterior, k)
  list(mean = out$mean + drop(H %*% margins$delta),
       variance = out$variance + rowSums((H %*% (margins$covariance - diag(ncol(H)))) * H))
}

# ---- shapes: standardised quantiles at `margin_scores` -------------------------------------------------------

# `shapes` of several parameters or linear functions: `each` is a list of matrices with a row for each of them, and `of` says which one
# each component has.
new_shapes <- function(each, of) list(each = each, of = of)

some_shapes <- function(shapes, which) {
  if (!is.null(shapes)) new_shapes(lapply(shapes$each, function(s) s[which, , drop = FALSE]), shapes$of)
}

normal_shapes <- function(n) matrix(rep(margin_scores, each = n), n)

# Scores of values, which have a row for each function and a column for each component: a function, because its tables are made once.
# Those of one component have no table: its quantiles are those of the shape itself, and scores their inverse.
scores_of_components <- function(shapes) {
  if (length(shapes$of) == 1L) {
    shape <- shapes$each[[shapes$of]]
    return(function(x) {
      x[] <- vapply(seq_len(nrow(shape)), function(i) exact_scores(shape[i, ], x[i]), 0)
      x
    })
  }
  tables <- lapply(shapes$each, score_table)
  function(x) {
    for (k in seq_len(ncol(x))) x[, k] <- score_in_table(tables[[shapes$of[k]]], x[, k, drop = FALSE])
    x
  }
}

# Density, distribution and quantile function of parameter j, whose components have the means and sds `at`
margin_marginal <- function(posterior, j, at) {
  shapes <- margin_shapes(posterior, j)
  weight <- posterior$weight
  # the derivative of a table's straight lines has steps, so that densities have a spline
  splines <- lapply(shapes$each, function(s) stats::splinefun(s[1L, ], margin_scores, method = "monoH.FC"))
  # of one component the quantile function is that of the shape itself, and this is its inverse
  tables <- if (length(weight) > 1L) lapply(shapes$each, score_table)
  score <- function(v, r) if (is.null(tables)) exact_scores(shapes$each[[r]][1L, ], v) else drop(score_in_table(tables[[r]], matrix(v, 1L)))
  mixed <- function(x, f) {
    Reduce(`+`, lapply(seq_along(weight), function(k) weight[k] * f((x - at$mean[k]) / at$sd[k], at$sd[k], shapes$of[k])))
  }
  list(
    density = function(x) mixed(x, function(v, sd, r) stats::dnorm(splines[[r]](v)) * splines[[r]](v, deriv = 1) / sd),
    probability = function(x) mixed(x, function(v, sd, r) stats::pnorm(score(v, r))),
    quantile = function(p) {
      out <- ifelse(p > 0, Inf, -Inf)
      inside <- p > 0 & p < 1
      law <- posterior_law(posterior)
      if (any(inside)) out[inside] <- drop(mixture_quantiles(t(at$mean), t(at$sd), weight, law, p[inside], shapes))
      out
    })
}

# Density of the approximation, where the posterior is corrected by profiles. Hyperparameters have none.
gaussian_density <- function(posterior, j, x) {
  if (!is_reshaped(posterior) || j > posterior_dim(posterior)) return(NA_real_)
  posterior_marginal(uncorrected(posterior), j)$density(x)
}

# Those of the parameters `which`: of coefficients as they are known, of others by their profiles. NULL where all is gaussian.
margin_shapes <- function(posterior, which) {
  if (!is_reshaped(posterior)) return(NULL)
  at <- match(which, posterior$coefficients)
  others <- which(is.na(at) & which != posterior$logged)
  shapes <- if (has_effects(posterior) && length(others)) row_shapes(posterior, parameter_rows(posterior, which[others]))
  of <- cbind(posterior$margins$of %||% 1L, shapes$of %||% 1L, seq_along(posterior$weight))[, 1:2, drop = FALSE]
  pairs <- unique(of)
  each <- lapply(seq_len(nrow(pairs)), function(r) {
    shape <- normal_shapes(length(which))
    if (has_margins(posterior)) shape[!is.na(at), ] <- posterior$margins$each[[pairs[r, 1L]]]$own[at[!is.na(at)], ]
    if (!is.null(shapes)) shape[others, ] <- shapes$each[[pairs[r, 2L]]]
    shape
  })
  new_shapes(each, match(paste(of[, 1L], of[, 2L]), paste(pairs[, 1L], pairs[, 2L])))
}

# rows of user coordinates that are parameters
parameter_rows <- function(posterior, which) {
  W <- matrix(0, length(which), posterior_dim(posterior))
  W[cbind(seq_along(which), which)] <- 1
  W
}

# Above so many expectations of a row, profiles of linear functions take longer than people wait.
most_profile_rows <- 2e6

# The same for linear functions, the rows of W in user coordinates: profiles of those whose cumulants require one, at as many components
# as there is time for; without any, by the cumulants.
row_shapes <- function(posterior, W) {
  if (!is_reshaped(posterior) || !nrow(W)) return(NULL)
  W <- as.matrix(W)
  if (ncol(W) < posterior_dim(posterior)) W <- cbind(W, matrix(0, nrow(W), posterior_dim(posterior) - ncol(W)))
  key <- apply(W, 1L, paste, collapse = " ")
  first <- which(!duplicated(key))
  a <- t(centre_rows(posterior, W[first, , drop = FALSE]))
  bent <- bent_functions(profile_cumulants(target_of(posterior), a))
  cost <- max(1, length(bent)) * rows_of_profile(target_of(posterior)) * expectation_cost(posterior)
  chosen <- main_components(posterior, if (has_two_lines(posterior)) 1 else max(1, most_profile_rows %/% cost), least = 0.05)
  each <- lapply(chosen, function(k) {
    shape <- refined_shapes(posterior, k, a, length(chosen)) %||%
      function_shapes(target_of(posterior, k), a, cost <= 3 * most_profile_rows, points_at(posterior, k))
    shape[match(key, key[first]), , drop = FALSE]
  })
  new_shapes(each, nearest_of(posterior, chosen))
}

# An expectation over two predictors takes as long as about six over one: shapes are those at the best component then.
has_two_lines <- function(posterior) isTRUE(target_of(posterior)$plan$lines > 1L)
expectation_cost <- function(posterior) if (has_two_lines(posterior)) 6 else 1

bent_functions <- function(cumulants) which(abs(cumulants$third) > 0.04 | abs(cumulants$fourth) > 0.15)

rows_of_profile <- function(target) 2 * profile_settings$most * target$plan$rows

# those by which the margins at component k were found
points_at <- function(posterior, k) {
  if (has_margins(posterior) && isTRUE(margin_at(posterior, k)$pointed)) profile_points(target_of(posterior, k)$plan)
}

# of the columns of a at one component
function_shapes <- function(target, a, profiled, points = NULL) {
  cumulants <- profile_cumulants(target, a)
  shape <- normal_shapes(ncol(a))
  bent <- bent_functions(cumulants)
  if (!length(bent)) return(shape)
  # each by itself, so that what a row gets does not depend on the rows beside it
  for (some in split(bent, abs(cumulants$third[bent]) > steep_skewness)) {
    settings <- settings_for(lapply(cumulants, `[`, some))
    found <- if (profiled) shapes_along(target, a[, some, drop = FALSE], settings, points)
    shape[some, ] <- found %||% cumulant_shapes(cumulants$third[some], cumulants$fourth[some])
  }
  shape
}

# by their profiles; NULL where these have failed
shapes_along <- function(target, a, settings, points = NULL) {
  found <- (if (!is.null(points)) profiles(target, a, FALSE, settings, points)) %||% profiles(target, a, FALSE, settings)
  if (is.null(found)) return(NULL)
  shapes <- profile_shapes(found)
  rough <- which(shapes$rough > most_rough)
  closer <- finer_settings(settings)
  if (!length(rough) || is.null(closer)) return(shapes$shape)
  finer <- shapes_along(target, a[, rough, drop = FALSE], closer, points)
  if (!is.null(finer)) shapes$shape[rough, ] <- finer
  shapes$shape
}

# those of rows that may have missing values, normal there
complete_shapes <- function(posterior, W) {
  if (!is_reshaped(posterior)) return(NULL)
  there <- is.finite(Matrix::rowSums(W))
  found <- if (any(there)) row_shapes(posterior, W[there, , drop = FALSE])
  if (is.null(found)) return(NULL)
  new_shapes(lapply(found$each, function(s) {
    shape <- normal_shapes(nrow(W))
    shape[there, ] <- s
    shape
  }), found$of)
}

# The expansion of Cornish and Fisher, for more rows than there is time for. Cumulants are kept where it is monotone.
cumulant_shapes <- function(third, fourth) {
  z <- rep(margin_scores, each = length(third))
  third <- pmin(pmax(third, -0.6), 0.6)
  fourth <- pmin(pmax(fourth, 0), 1)
  out <- matrix(z + third * (z^2 - 1) / 6 + fourth * (z^3 - 3 * z) / 24 - third^2 * (2 * z^3 - 5 * z) / 36, length(third))
  w <- stats::dnorm(margin_scores) / sum(stats::dnorm(margin_scores))
  out <- out - drop(out %*% w)
  out / sqrt(drop(out^2 %*% w))
}

# What profiles at the best component need, where the posterior has been corrected by profiles; NULL for others.
profiled_target <- function(posterior) if (is_reshaped(posterior) && !is_corrected(posterior)) target_of(posterior)

# arguments of a profile at component k
target_of <- function(posterior, k = which.max(posterior$weight)) {
  roots <- posterior$roots
  at <- if (is.null(roots$plan)) posterior$margins else list(plan = roots$plan, setting = roots$settings[[k]])
  profile_target(at$plan, lean_rule(at$plan, posterior_law(posterior)), at$setting)
}

plan_rule <- function(plan, law) record_rule(family_records[[plan$record]], law, plan$lines)

# that of corrections
lean_rule <- function(plan, law) record_rule(family_records[[plan$record]], law, plan$lines, lean = TRUE)

# ---- standardised quantiles as functions ------------------------------------------------------------------

# Rows of `table` at x, a matrix with as many rows: linear between the columns, which stand for low, low + step, ..., and beyond.
look_up <- function(table, x, low, step) {
  place <- (x - low) / step
  left <- interval_at(place, ncol(table))
  at <- left * nrow(table) + seq_len(nrow(table))   # column by column
  value <- table[at]
  array(value + (place - left) * (table[at + nrow(table)] - value), dim(x))
}

# The intervals that places are in, from 0, or nearest to, between so many columns. In doubles first: places far out are no integers.
interval_at <- function(place, columns) {
  place[place < 0] <- 0
  place[place > columns - 2] <- columns - 2
  as.integer(place)
}

# values at standard normal scores, and back
value_at_score <- function(shape, z) look_up(shape, z, margin_scores[1L], margin_scores[2L] - margin_scores[1L])

score_at_value <- function(shape, x) score_in_table(score_table(shape), x)

score_table <- function(shape) {
  grid <- seq(-8, 8, by = 0.125)
  t(apply(shape, 1L, exact_scores, grid))
}

# the scores of values x, by straight lines through the quantiles q, also beyond them
exact_scores <- function(q, x) {
  inside <- stats::approx(q, margin_scores, x, ties = "ordered")$y
  n <- length(q)
  low <- x < q[1L]
  high <- x > q[n]
  inside[low] <- margin_scores[1L] + (x[low] - q[1L]) * 0.25 / max(q[2L] - q[1L], 1e-8)
  inside[high] <- margin_scores[n] + (x[high] - q[n]) * 0.25 / max(q[n] - q[n - 1L], 1e-8)
  inside
}

score_in_table <- function(table, x) look_up(table, x, -8, 0.125)

# ---- draws -------------------------------------------------------------------------------------------------

# Standard normal points z, in columns, of the given components as those of the corrected posterior: list(z, log_slope), where
# log_slope is the log determinant of the map, up to a constant of the component. Whitened coordinates of the coefficients get their
# own margins, their correlations stay, other parameters follow the coefficients; effects of groups get theirs.
corrected_points <- function(posterior, z, component) {
  log_slope <- numeric(ncol(z))
  for (k in unique(component)) {
    at <- which(component == k)
    old <- z[, at, drop = FALSE]
    if (has_effects(posterior)) {
      moved <- moved_effects(posterior, old, k)
      z[posterior$effects$at, at] <- moved$z
      log_slope[at] <- moved$log_slope
    }
    if (has_margins(posterior)) {
      moved <- moved_coefficients(posterior, old, k)
      z[, at] <- z[, at, drop = FALSE] + moved$by
      log_slope[at] <- log_slope[at] + moved$log_slope
    }
  }
  list(z = z, log_slope = log_slope)
}

moved_coefficients <- function(posterior, z, k) {
  margins <- margin_at(posterior, k)
  H <- white_coordinates(posterior, k)
  y <- crossprod(H, z)
  list(by = H %*% (shaped_coordinates(margins, y) - y), log_slope = colSums(log(slope_at_score(margins$shape, copula_scores(margins, y)))))
}

# the columns by which z has the whitened coordinates y of the coefficients
white_coordinates <- function(posterior, k) {
  t(forwardsolve(posterior$margins$roots[[k]], root_rows(root_at(posterior$roots, k), unit_rows(posterior, posterior$coefficients))))
}

copula_scores <- function(margins, y) t(chol(stats::cov2cor(margins$covariance))) %*% y

# standard normal y with these margins
shaped_coordinates <- function(margins, y) {
  margins$delta + sqrt(diag(margins$covariance)) * value_at_score(margins$shape, copula_scores(margins, y))
}

slope_at_score <- function(shape, z) {
  step <- margin_scores[2L] - margin_scores[1L]
  left <- interval_at((z - margin_scores[1L]) / step, ncol(shape))
  at <- left * nrow(shape) + seq_len(nrow(shape))
  array((shape[at + nrow(shape)] - shape[at]) / step, dim(z))
}

# Can the target itself be evaluated at draws? Then they are exact except for their start.
has_target <- function(posterior) !is.null(posterior$margins$model)

with_target <- function(posterior, model) {
  if (has_margins(posterior)) posterior$margins$model <- model
  posterior
}

# log density, up to a constant, at points that are the rows of x, in user coordinates
target_density <- function(posterior, x) -target_values(posterior$margins$model, centre_points(posterior, t(x)))

# Draws of the corrected posterior, one per row, with their log importance ratios; NULL where the target cannot be evaluated.
corrected_sample <- function(posterior, n, key) {
  if (!has_target(posterior)) return(NULL)
  drawn <- component_draws(posterior, n, key)$x
  list(x = drawn, log_ratios = target_density(posterior, drawn) - attr(drawn, "log_q"))
}

# What the "log_q" of component_draws() leaves out: x = m + S (delta + D Q(L y)), y standard normal, in user coordinates.
proposal_constant <- function(posterior) {
  margins <- margin_at(posterior, 1L)
  sds <- sqrt(diag(margins$covariance))
  L <- chol(stats::cov2cor(margins$covariance))
  centring <- sum(log(abs(1 + posterior$shift$by[cbind(seq_along(posterior$shift$at), posterior$shift$at)])))
  -length(sds) / 2 * log(2 * pi) - sum(log(diag(posterior$margins$roots[[1L]]))) - sum(log(sds)) - sum(log(diag(L))) + centring
}

# n draws of the posterior: those of component_draws() are proposals of an independence sampler (Metropolis, Hastings), which
# accepts nearly all of them. Draw i depends on proposals up to i only, so that a shorter call gives the first rows of a longer one.
metropolis_draws <- function(posterior, proposals, key, warmup) {
  log_w <- target_density(posterior, proposals) - attr(proposals, "log_q")
  u <- log(with_key(key, stats::runif(length(log_w))))
  kept <- integer(length(log_w))
  at <- which.max(log_w[seq_len(warmup)] > stats::median(log_w[seq_len(warmup)]))
  for (i in seq_along(log_w)) {
    if (isTRUE(u[i] < log_w[i] - log_w[at])) at <- i
    kept[i] <- at
  }
  list(x = proposals[kept[-seq_len(warmup)], , drop = FALSE], log_w = log_w)
}

# ---- in words ----------------------------------------------------------------------------------------------

# why coefficients that may need a correction have none
uncorrected_words <- function(posterior) {
  if (!is.null(posterior$gaussian_because)) sprintf("Coefficients are those of the best gaussian: %s", posterior$gaussian_because)
}

# how the posterior that is shown differs from the best gaussian, which a certificate is about
correction_words <- function(posterior) {
  if (has_margins(posterior)) {
    moved <- posterior$margins$moved
    return(sprintf("Corrected from the best gaussian: means by up to %s sd, sds by up to %s %%",
                   format(moved$mean, digits = 2), format(100 * max(abs(moved$sd - 1)), digits = 2)))
  }
  left <- left_cumulants(posterior)
  if (!is.null(left) && is.null(posterior$gaussian_because)) {
    sprintf("No correction of the best gaussian is needed: skewness at most %s, excess kurtosis at most %s",
            format(left$third, digits = 1), format(left$fourth, digits = 1))
  }
}

# the largest cumulants of coefficients that are not corrected; NULL where they are, or nothing was looked at
left_cumulants <- function(posterior) if (!has_margins(posterior)) posterior$cumulants

approximation_words <- function(posterior) {
  if (!is_reshaped(posterior)) sprintf("The results are those of the best %s itself", posterior$base$kind)
}
