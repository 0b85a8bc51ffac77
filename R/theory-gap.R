# ---- noise bounded by the gap ----------------------------------------------------------
#
# For a convex, L-smooth f and an optimum theta* with grad F(theta*) = 0, in the coordinates of the run,
#   E|grad f(x) - grad f(x*)|^2 <= 2 L (F(theta) - F*),   x = mu + S z, x* = mu* + S* z,
# because f is co-coercive and -log|S| convex. vignette("theory") has the proof and what follows from it: with r^2 any
# number, c0 = E(R^2 - r^2)_+, c1 = E R^2 (R^2 - r^2)_+ / d, and s2 the variance of one gradient at theta*,
#   Var_Lambda(g) <= p (2 A gap + a' D) + q s2,   p = 1 + t, q = 1 + 1/t for every t > 0,
#   A = L (lambda_mu + lambda_Sigma r^2),  a' = L^2 max(lambda_mu lambda_Sigma c0, lambda_Sigma^2 c1),
# so that the recursion of theory-bounds.R holds for (1 - p step A / N) gap_k with a = p a', b = q s2.
#
# With a fixed control variate of weight b, grad f(x) - b x, A and a' are multiplied by 1 - 2b/L, a' gets
# b^2 max(lambda_mu (lambda_mu + lambda_Sigma d), lambda_Sigma (lambda_mu + lambda_Sigma v)), v = E R^4 / d, and s2 is that of this
# gradient.

# All that these bounds depend on besides the run: numbers, so that a guarantee can keep them.
# `floor` bounds the scale from below: F is smooth with L + 1/floor^2 on the set.
gap_constants <- function(problem, start, floor) {
  if (!is.null(gap_obstacle(problem, start))) return(NULL)
  reach <- radial_reach(problem$law)
  list(L = problem$L, weight = weight_in(problem), lip = problem$L + 1 / floor^2, distance2 = block_distance2(start, problem),
       reach = reach, s2 = optimum_noise(problem, reach),
       # the constants of the noise by distance
       blocks = c(problem[c("dim", "kurtosis", "L", "aligned", "unbounded", "spread")], list(floor = floor)))
}

# b of a fixed control variate, in a problem or in constants made of it
weight_in <- function(x) x$weight %||% 0

# Why there are none, or NULL
gap_obstacle <- function(problem, start) {
  if (!isTRUE(problem$model$convex)) return("the target is not known to be convex")
  if (problem$unbounded || is.na(problem$L)) return("the target has no known smoothness")
  if (!is.finite(problem$kurtosis)) return("the kurtosis of the base is infinite")
  if (!scale_of(problem$kind)$theory) return("no theorem covers this scale")
  if (is.null(start) || problem$spread$kind == "unknown") return("the optimum is not known")
  if (weight_in(problem) > 0) weight_obstacle(problem)
}

weight_obstacle <- function(problem) {
  if (!is.null(problem$work$mu_root)) return("no theorem covers a fixed control variate in the coordinates of a whitened mean field")
  if (is.null(problem$optimum)) "the noise of a gradient with a fixed control variate is bounded only where the optimum is known"
}

# |mu0 - mu*|^2 and |Sigma0 - Sigma*|^2, or upper bounds by way of (m, 0)
block_distance2 <- function(start, problem) {
  best <- problem$optimum
  if (!is.null(best)) {
    return(c(mu = mu_norm2(problem$work, start$mu - best$mu), Sigma = sum((start$scale - best$scale)^2)))
  }
  far <- sqrt(problem$spread$total)
  (sqrt(c(mu = mu_norm2(problem$work, start$mu - problem$m), Sigma = sum(start$scale^2))) + far)^2
}

# ---- the radius --------------------------------------------------------------------------

# c0 and c1 for a choice of r^2. A bounded base has r = its edge, where both vanish; elsewhere r^2 goes from d, where little is
# cut off the noise by the gap, to where nothing is left beyond.
radial_reach <- function(law, points = 40L) {
  d <- law$dim
  edge <- support_edge(law)
  if (is.finite(edge)) return(data.frame(r2 = edge^2, c0 = 0, c1 = 0))
  r2 <- d * (1 + exp(seq(log(0.01), log(400), length.out = points)))
  beyond <- lapply(0:2, function(k) moment_beyond(law, r2, k))
  data.frame(r2 = r2, c0 = pmax(beyond[[2L]] - r2 * beyond[[1L]], 0), c1 = pmax(beyond[[3L]] - r2 * beyond[[2L]], 0) / d)
}

# E R^(2k) 1(R^2 > r2) for increasing r2: integrals over log R, between neighbours and beyond the last
moment_beyond <- function(law, r2, k) {
  d <- law$dim
  constant <- log_sphere_area(d) + law$log_constant
  weight <- function(t) {
    w <- exp(constant + (d + 2 * k) * t + law$log_phi(exp(t)))
    ifelse(is.nan(w), 0, w)
  }
  cuts <- log(r2) / 2
  mass <- mapply(function(from, to) stats::integrate(weight, from, to, rel.tol = 1e-9, abs.tol = 0, stop.on.error = FALSE)$value,
                 cuts, c(cuts[-1L], Inf))
  rev(cumsum(rev(mass)))
}

# ---- the noise at the optimum ----------------------------------------------------------------

# Variance of one gradient at theta*, in blocks: `upper`, which is certain, and `estimate` with its standard error `se` from
# fresh draws, where theta* is known. `how` says where `upper` is from: "closed form" (a quadratic), "computed" (a regression whose
# optimum is certified: theory-moments.R) or "bounded": E|grad f(x*)|^2 <= L E<grad f(x*), x* - m> = L d by
# co-coercivity and stationarity; with the objective known also 2 L (E f(x*) - f(m)). vignette("theory") proves them.
optimum_noise <- function(problem, reach, draws = 4096L) {
  exact <- quadratic_noise(problem$model, problem)
  none <- c(mu = NA_real_, Sigma = NA_real_)
  result <- function(upper, how, estimate = none, se = none, draws = 0) {
    list(upper = upper, how = how, estimate = estimate, se = se, draws = draws)
  }
  if (!is.null(exact)) return(result(exact, "closed form", exact, 0 * exact))
  upper <- upper_noise(problem, reach)
  best <- problem$optimum
  if (is.null(best)) return(result(if (weight_in(problem) > 0) none else upper, "bounded"))
  computed <- computed_noise(problem, best, reach)
  if (!is.null(computed) && isTRUE(best$certified)) return(result(pmin(upper, computed), "computed"))
  if (!is.null(computed)) return(result(upper, "bounded", computed, 0 * computed))
  found <- estimated_noise(problem, best, draws)
  result(upper, "bounded", found$estimate, found$se, draws)
}

# By the moments of theory-moments.R at a point whose gap is at most its certificate. With delta = grad f(x) - grad f(x*),
# E|delta|^2 <= 2 L gap and, as in the lemma on the variance, E|delta|^2 |z|^2 <= 2 L r^2 gap + L^2 max(c0, c1) |theta - theta*|^2, the last
# at most 2 gap / alpha, where f is known to be strongly convex; norms of random vectors obey the triangle inequality.
computed_noise <- function(problem, best, reach) {
  moments <- gradient_moments(problem, best)
  if (is.null(moments)) return(NULL)
  gap <- max(best$certificate, 0)
  L <- problem$L
  far2 <- if (gap > 0) 2 * gap / least_curvature(problem) else 0
  beyond <- pmax(reach$c0, reach$c1)   # 0 for a bounded base, whatever the distance
  moved <- c(mu = sqrt(2 * L * gap), Sigma = sqrt(min(2 * L * reach$r2 * gap + ifelse(beyond > 0, L^2 * beyond * far2, 0))))
  if (weight_in(problem) > 0) moved <- moved + weight_in(problem) * sqrt(far2 * c(1, max(problem$dim, fourth_moment(problem))))
  outer2 <- if (scale_of(problem$kind)$symmetrised) (moments[["g2_z2"]] + moments[["gz2"]]) / 2 else moments[["g2_z2"]]
  # means are those at the optimum up to the gradient of F, at most sqrt(2 Lip gap) long
  mean <- pmax(sqrt(mean_norm2(problem, best)) - sqrt(4 * L * gap), 0)
  (sqrt(pmax(c(mu = moments[["g2"]], Sigma = outer2) - mean^2, 0)) + moved)^2
}

# E R^4 / d
fourth_moment <- function(problem) problem$kurtosis * (problem$dim + 2) / 3

# Squared lengths of the means of a gradient of f at the optimum: 0, and the entropy's gradient; and of what a control variate takes away
mean_norm2 <- function(problem, best) {
  b <- weight_in(problem)
  entropy <- scale_of(problem$kind)$entropy_norm2(best$scale)
  c(mu = b^2 * sum(best$mu^2), Sigma = max(entropy - 2 * b * problem$dim + b^2 * sum(best$scale^2), 0))
}

# A lower bound of the curvature of f in the coordinates of the run
least_curvature <- function(problem) {
  known_alpha(problem$model) * coordinates_of(problem$work)$smallest_stretch(problem$work)^2
}

upper_noise <- function(problem, reach) {
  d <- problem$dim
  L <- problem$L
  best <- problem$optimum
  mu <- L * min(d, 2 * mean_excess(problem), na.rm = TRUE)
  spread <- problem$spread
  tail <- if (is.na(spread$mu)) pmax(reach$c0, reach$c1) * spread$total else reach$c0 * spread$mu + reach$c1 * spread$Sigma
  mean2 <- if (is.null(best)) 0 else scale_of(problem$kind)$entropy_norm2(best$scale)
  plain <- c(mu = mu, Sigma = max(min(mu * reach$r2 + L^2 * tail) - mean2, 0))
  if (weight_in(problem) == 0 || is.null(best)) return(plain)
  (sqrt(plain) + weight_in(problem) * sqrt(affine_noise(best$mu, best$scale, problem)))^2
}

# Variance of (u + B z, its product with z as the scale keeps it), in blocks: E|B z|^2 |z|^2 = v |B|^2 and, B symmetric,
# E(z'Bz)^2 = kappa/3 ((tr B)^2 + 2 |B|^2). For a scale that is not symmetric an upper bound.
affine_noise <- function(u, B, problem) {
  d <- problem$dim
  B <- as_full_matrix(B, d)
  size2 <- sum(B^2)
  if (!scale_of(problem$kind)$symmetrised) return(c(mu = size2, Sigma = d * sum(u^2) + fourth_moment(problem) * size2))
  kappa <- problem$kurtosis
  second <- ((d + 1) * sum(u^2) + fourth_moment(problem) * size2 + kappa / 3 * (sum(diag(B))^2 + 2 * size2)) / 2
  c(mu = size2, Sigma = second - size2)
}

as_full_matrix <- function(B, d) if (is.matrix(B)) B else diag(B, d)

# E f(x*) - f(m), where the objective is known
mean_excess <- function(problem) {
  if (is.na(problem$objective) || is.null(problem$optimum) || is.null(problem$m) || is.null(problem$work)) return(NA_real_)
  best <- to_user(problem$work, problem$kind, problem$optimum$mu, problem$optimum$scale)
  m <- points_to_user(problem$work, problem$m)
  problem$objective + log_det(problem$kind, best$scale) - target_at(problem$model, matrix(m))$value
}

# The mean of the gradient in mu is 0 and that of grad f z' the gradient of log|Sigma|: only second moments are estimated.
estimated_noise <- function(problem, best, draws, key = c(0, 1)) {
  record <- scale_of(problem$kind)
  of_block <- lapply(split(seq_len(draws), ceiling(seq_len(draws) / 512)), function(rows) {
    z <- draw_base(problem$law, key, length(rows), first = rows[1L] - 1)   # a fixed key: R's generator is not touched
    x <- best$mu + root_times(best$scale, z)
    g <- target_at(problem$work, x)$gradient - weight_in(problem) * x
    rbind(mu = colSums(mu_gradient(problem$work, g)^2), Sigma = record$outer_norm2(g, z))
  })
  each <- do.call(cbind, of_block)
  list(estimate = pmax(rowMeans(each) - mean_norm2(problem, best), 0),
       se = apply(each, 1L, stats::sd) / sqrt(draws))
}

# a gradient in mu in the metric of a run's mu
mu_gradient <- function(work, g) if (is.null(work$mu_root)) g else forwardsolve(work$mu_root, g)

# f = (x - m)'A(x - m)/2 in closed form: a gradient at the optimum is A Sigma* z, and A Sigma* = Sigma*^-1 is symmetric.
quadratic_noise <- function(model, problem) UseMethod("quadratic_noise")

#' @export
quadratic_noise.elvi_model <- function(model, problem) NULL

#' @export
quadratic_noise.elvi_model_quadratic <- function(model, problem) {
  best <- problem$optimum
  if (is.null(best) || !scale_of(problem$kind)$symmetrised) return(NULL)
  B <- coordinates_of(problem$work)$hessian_to_work(problem$work, model$A) %*% best$scale
  affine_noise(-weight_in(problem) * best$mu, B - weight_in(problem) * best$scale, problem)
}

# The s2 of a metric: `certain` or else the estimate with `errors` standard errors added; NA where there is none.
noise_level <- function(constants, lambda, certain, errors = 4) {
  s2 <- constants$s2
  if (certain) sum(lambda * s2$upper) else sum(lambda * pmin(s2$estimate + errors * s2$se, s2$upper))
}

# Is there nothing better to be had by draws?
noise_is_exact <- function(constants) constants$s2$how != "bounded"

# ---- bounds -----------------------------------------------------------------------------------

# A and a' of a metric, for each r^2 whose share of the noise, A times the `noisiest` step / N, is below 1. A list of columns:
# bounds are minimised over thousands of these, and data frames would take most of the time.
gap_noise <- function(constants, lambda, noisiest) {
  reach <- constants$reach
  L <- constants$L
  left <- 1 - 2 * weight_in(constants) / L   # by a fixed control variate
  A <- left * L * (lambda[["mu"]] + lambda[["Sigma"]] * reach$r2)
  a <- left * L^2 * pmax(lambda[["mu"]] * lambda[["Sigma"]] * reach$c0, lambda[["Sigma"]]^2 * reach$c1) + weight_noise(constants, lambda)
  share <- noisiest * A
  if (left < 1) share <- pmax(share, 1e-6)   # a control variate can take all of A away: too large a share is safe
  bounded <- share < 1
  list(r2 = reach$r2[bounded], A = A[bounded], a = a[bounded], share = share[bounded])
}

# With the t that is best where a' = 0; and smaller ones with a control variate, whose a' counts and grows with t
with_weights <- function(noise, constants, start, level) {
  noise$t <- best_weight(start, level, noise$share)
  if (weight_in(constants) == 0) return(noise)
  smaller <- c(1, 0.3, 0.1, 0.03, 0.01, 0.003)
  factor <- rep(smaller, each = length(noise$t))
  noise <- lapply(noise, rep, times = length(smaller))
  noise$t <- noise$t * factor
  noise
}

# What a fixed control variate adds to a'
weight_noise <- function(constants, lambda) {
  if (weight_in(constants) == 0) return(0)
  mu <- lambda[["mu"]]
  Sigma <- lambda[["Sigma"]]
  weight_in(constants)^2 * max(mu * (mu + Sigma * constants$blocks$dim), Sigma * (mu + Sigma * fourth_moment(constants$blocks)))
}

# The t that makes (start + level (1 + 1/t)) / (1 - (1 + t) share) smallest, share < 1: the positive root of
# share (start + level) t^2 + 2 share level t - level (1 - share) = 0.
best_weight <- function(start, level, share) {
  ((sqrt((share * level)^2 + share * level * (start + level) * (1 - share)) - share * level) / (share * (start + level)))
}

# The smallest bound over r^2 and t for a run with constant steps and batches, or with `sums` over those that vary; NULL where
# there is none. `average` says what is averaged, see average_of().
gap_bound <- function(constants, lambda, run, average, certain) {
  s2 <- noise_level(constants, lambda, certain)
  if (is.na(s2) || is.na(average$w) || run$longest * constants$lip > 1 + 1e-12) return(NULL)
  noise <- gap_noise(constants, lambda, run$noisiest)
  if (!length(noise$share)) return(NULL)
  D <- sum(constants$distance2 / lambda)
  start <- recursion_bound(0, 0, D, run, average)
  noise <- with_weights(noise, constants, start, recursion_bound(0, s2, D, run, average) - start)
  noise$a <- (1 + noise$t) * noise$a
  noise$value <- mapply(function(a, t) recursion_bound(a, (1 + 1 / t) * s2, D, run, average), noise$a, noise$t) /
    (1 - (1 + noise$t) * noise$share)
  smallest_row(noise, s2, D)
}

smallest_row <- function(noise, s2, D) {
  i <- which.min(noise$value)
  if (!length(i) || !is.finite(noise$value[i])) return(NULL)
  list(value = noise$value[i], t = noise$t[i], r2 = noise$r2[i], A = noise$A[i], a = noise$a[i], s2 = s2, D = D)
}

# The bound of the recursion 2 step gap_k <= (1 + a q_k) D_k - D_{k+1} + b q_k
recursion_bound <- function(a, b, D, run, average) {
  if (is.null(run$sums)) return(average_bound(a, b, D, run$step, run$batch, average)$sharper)
  if (a > average$w) return(NA_real_)   # the weights fall too slowly for this r^2; another one is found
  (D + b * run$sums$noise) / (2 * run$sums$steps)
}

# ---- the smallest bound over everything -------------------------------------------------------------------

# lambda_Sigma, step, batch, iterations and the weights of the average for which the bound of a budget is smallest. Where a' = 0
# step and batch count by h = step / N only; the longest step has the fewest iterations, so the fewest projections.
minimise_gap_bound <- function(constants, E, certain) {
  if (is.na(noise_level(constants, c(mu = 1, Sigma = 1), certain))) return(NULL)
  relaxed <- function(log_lambda) best_ratio(constants, metric_of(log_lambda), E, certain)$value
  log_lambda <- least_on_grid(relaxed, seq(-2 * log(constants$blocks$dim + 9), 0, length.out = 15L), tol = 1e-4)
  round_gap_bound(constants, metric_of(log_lambda), E, certain)
}

# minimiser of a function below 0: the best of equally spaced values, or a better one next to it
least_on_grid <- function(f, tried, tol) {
  value <- vapply(tried, f, 0)
  from <- tried[which.min(value)]
  inner <- stats::optimize(f, pmin(from + c(-1, 1) * diff(tried[1:2]), 0), tol = tol)
  if (inner$objective < min(value)) inner$minimum else from
}

metric_of <- function(log_lambda) c(mu = 1, Sigma = exp(max(min(log_lambda, 0), log(1e-100))))

# the value that optimize() uses for infinite ones
no_bound_value <- 1e100

# The same in a given metric
split_gap_bound <- function(constants, lambda, E, certain) {
  if (!is.na(noise_level(constants, lambda, certain))) round_gap_bound(constants, lambda, E, certain)
}

# h = step / N from all of the budget in one batch to the longest step with one gradient
best_ratio <- function(constants, lambda, E, certain) {
  relaxed <- function(log_h) relaxed_gap_bound(constants, lambda, exp(log_h), E, certain)
  longest <- -log(constants$lip)
  if (E < 2) return(list(h = exp(longest), value = relaxed(longest)))
  tried <- longest - seq(0, log(E), length.out = 20L)
  value <- vapply(tried, relaxed, 0)
  from <- tried[which.min(value)]
  near <- pmax(pmin(from + c(-1, 1) * log(E) / 19, longest), longest - log(E))
  best <- stats::optimize(relaxed, near, tol = 1e-5)
  if (best$objective < min(value)) list(h = exp(best$minimum), value = best$objective) else list(h = exp(from), value = min(value))
}

# The bound for h = step / N with real N and K, N K = E
relaxed_gap_bound <- function(constants, lambda, h, E, certain) {
  step <- min(h, 1 / constants$lip)
  found <- if (E * h >= step * (1 - 1e-9)) own_gap_bound(constants, lambda, step, step / h, E * h / step, certain)
  found$value %||% no_bound_value
}

# The same with whole N and K: those near the real ones, each with the step that is best for it
round_gap_bound <- function(constants, lambda, E, certain) {
  best <- best_ratio(constants, lambda, E, certain)
  if (best$value >= no_bound_value) return(NULL)
  h <- best$h
  longest <- 1 / constants$lip
  centre <- min(max(longest / h, 1), E)
  batches <- unique(pmin(E, pmax(1, c(floor(centre) + (-2:3), round(centre * c(0.8, 0.9, 1.1, 1.25))))))
  tried <- lapply(batches, function(N) {
    K <- floor(E / N)
    value <- function(log_step) own_gap_bound(constants, lambda, exp(log_step), N, K, certain)$value %||% no_bound_value
    inner <- stats::optimize(value, log(longest) + c(-6, 0), tol = 1e-6)
    # at the longest step itself, which optimize() does not try
    step <- if (value(log(longest)) <= inner$objective) longest else exp(inner$minimum)
    found <- own_gap_bound(constants, lambda, step, N, K, certain)
    if (!is.null(found)) c(list(lambda = lambda, step = step, N = N, K = K, weights = found$a), found)
  })
  smallest_value(tried)
}

smallest_value <- function(found) {
  found <- Filter(Negate(is.null), found)
  if (length(found)) found[[which.min(vapply(found, `[[`, 0, "value"))]]
}

# For constant steps, with the weights that the proof has for this r^2 and t: w = a
own_gap_bound <- function(constants, lambda, step, N, K, certain) {
  s2 <- noise_level(constants, lambda, certain)
  D <- sum(constants$distance2 / lambda)
  noise <- gap_noise(constants, lambda, step / N)
  if (!length(noise$share)) return(NULL)
  noise <- with_weights(noise, constants, D / (2 * step * K), step * s2 / (2 * N))
  noise$a <- (1 + noise$t) * noise$a
  x <- noise$a * step^2 / N
  decay <- ifelse(x * K > 1e-9, x / -expm1(-K * log1p(x)), (1 + x * (K + 1) / 2) / K)
  noise$value <- (D * decay / (2 * step) + (1 + 1 / noise$t) * step * s2 / (2 * N)) / (1 - (1 + noise$t) * noise$share)
  smallest_row(noise, s2, D)
}

# The theorem's own bound, with noise bounded by the distance, over lambda_Sigma, N and K
minimise_distance_bound <- function(constants, E) {
  if (weight_in(constants) > 0) return(NULL)   # its constants are for the plain gradient
  at <- function(lambda) {
    noise <- noise_constants(constants$blocks, lambda, constants$blocks$floor)
    list(a = noise$a, b = noise$b, D = sum(constants$distance2 / lambda), lambda = lambda, lip = constants$lip,
         gamma = 1 / constants$lip)
  }
  ideal <- function(log_lambda) with(at(metric_of(log_lambda)), sqrt((a * D^2 + b * D) / E))
  if (!is.finite(ideal(0))) return(NULL)
  g <- at(metric_of(least_on_grid(ideal, seq(-3 * log(constants$blocks$dim + 9), 0, length.out = 25L), tol = 1e-6)))
  best <- distance_split(g, E)
  list(lambda = g$lambda, step = best$gamma, N = best$N, K = best$K, weights = g$a, value = best$value)
}

# What schedule_certified() runs: the smallest of all
minimise_bound <- function(constants, E) {
  found <- list(distance = minimise_distance_bound(constants, E), gap = minimise_gap_bound(constants, E, TRUE),
                estimated = if (!noise_is_exact(constants)) minimise_gap_bound(constants, E, FALSE))
  found <- lapply(stats::setNames(nm = names(found)), function(name) if (!is.null(found[[name]])) c(found[[name]], list(by = name)))
  smallest_value(found)
}
