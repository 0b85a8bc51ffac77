# Targets that are functions with parameters to integrate over by quadrature: standard deviations of many effects, above all. A gaussian
# of effects and the logarithm of their standard deviation together is wrong however good the optimiser. So given these
# hyperparameters theta the others get the best gaussian, and theta the rules that regressions have (rule.R). The log evidence at theta
#
#   l(theta) = entropy - E f(theta, mu + R z)
#
# is a lower bound, by draws z that are the same at every theta (stratified_draws()), so that it is smooth; its gradient is that of f in
# theta, because the gaussian is where its own gradient vanishes.

integrated_setup <- function(model, hyper, curvature) {
  keep <- !seq_len(model$dim) %in% hyper
  held <- list2env(list(theta = numeric(length(hyper)), evaluations = 0), parent = emptyenv())
  whole <- function(u) {
    x <- matrix(0, model$dim, ncol(u))
    x[keep, ] <- u
    x[!keep, ] <- held$theta
    x
  }
  inner <- model
  inner$dim <- as.double(sum(keep))
  inner$names <- model$names[keep]
  inner["both"] <- list(NULL)
  inner$value <- function(u) model$value(whole(u))
  inner$gradient <- function(u) as.double(matrix(model$gradient(whole(u)), model$dim)[keep, ])
  at <- inner_curvature(model, inner, keep, curvature, whole)
  inner[c("hessian", "sparse_hessian")] <- list(NULL)
  layout <- list(length = length(hyper), names = model$names[!keep])
  list(model = model, inner = inner, held = held, keep = keep, whole = whole, curvature = at, layout = layout,
       precision = precision_layout(at$row, at$column, inner$dim), law = law_of(base_gaussian(), inner$dim),
       plan = list(dim = inner$dim, quadratic = FALSE, cost = 1e8),
       z = stratified_draws(inner$dim, integrated_draws), conditional = "density")
}

# By the Hessian where there is one, else by differences of the gradient in the effects alone, which often need one colour.
inner_curvature <- function(model, inner, keep, curvature, whole) {
  within <- curvature_within(curvature, keep)
  differenced <- differenced_curvature(inner, within, curvature$source)
  if (is.null(model$sparse_hessian %||% model$hessian) || differenced$cost <= cheap_colours) return(differenced)
  c(within[c("row", "column")], list(cost = curvature$cost, source = curvature$source,
                                     at = function(u, unit = NULL) curvature$at(whole(u))[within$inner, , drop = FALSE]))
}

# n draws in dim dimensions, the same in every call: each coordinate has the same n values, which have the first five moments of a normal
# distribution, in an order of its own; draws come in opposite pairs.
stratified_draws <- function(dim, n) {
  half <- n / 2
  v <- stats::qnorm(0.5 + (seq_len(half) - 0.5) / n)
  kurtosis <- function(p) mean(v^(4 * p)) / mean(v^(2 * p))^2 - 3
  p <- stats::uniroot(kurtosis, c(0.5, 3), tol = 1e-12)$root
  v <- v^p / sqrt(mean(v^(2 * p)))
  z <- with_key(c(20261118, 7), vapply(seq_len(dim), function(j) sample(v) * sample(c(-1, 1), half, replace = TRUE), numeric(half)))
  z <- matrix(z, half)
  rbind(z, -z) |> t()
}

# ---- the best gaussian given theta ---------------------------------------------------------------------------------

# What f, its gradients and its curvature are in the mean over the draws of (mu, A)
integrated_moments <- function(setup, mu, A) {
  x <- setup$whole(mu + root_times(A, setup$z))
  setup$held$evaluations <- setup$held$evaluations + ncol(x)
  f <- or_null(suppressWarnings(setup$model$value(x)))
  g <- or_null(suppressWarnings(matrix(setup$model$gradient(x), setup$model$dim)))
  if (is.null(f) || is.null(g) || !all(is.finite(f)) || !all(is.finite(g))) return(NULL)
  g <- rowMeans(g)
  list(F = mean(f) - root_log_det(A), g = g[setup$keep], slope = -g[!setup$keep])
}

integrated_curvature <- function(setup, mu, A) {
  setup$held$evaluations <- setup$held$evaluations + ncol(setup$z) * setup$curvature$cost
  H <- setup$curvature$at(mu + root_times(A, setup$z), root_sd(A))
  if (all(is.finite(H))) rowMeans(H)
}

solve_integrated_point <- function(setup, theta, from, tol = 1e-4, most = 25L) {
  setup$held$theta <- theta
  mu <- from$mu %||% (setup$model$start %||% numeric(setup$model$dim))[setup$keep]
  A <- from$root
  if (is.null(A)) {
    H <- or_null(drop(setup$curvature$at(matrix(mu), pmax(1, abs(mu)))))
    A <- if (!is.null(H) && all(is.finite(H))) repaired_root(setup$precision, H)
  }
  failed <- list(failed = TRUE, value = -Inf)
  if (is.null(A)) return(failed)
  now <- integrated_moments(setup, mu, A)
  narrow <- 0
  while (is.null(now) && narrow < 12) {   # too wide for the target
    narrow <- narrow + 1
    A <- precision_root(setup$precision, 4 * A$values)
    now <- integrated_moments(setup, mu, A)
  }
  if (is.null(now)) return(failed)
  rho <- 1
  gap <- Inf
  iterations <- 0L
  for (iterations in seq_len(most)) {
    H <- integrated_curvature(setup, mu, A)
    if (is.null(H)) return(failed)
    target <- list(curvature = setup$curvature)
    move <- wide_move(target, mu, A, list(g = root_crossprod(A, now$g), H = H), rho)
    if (is.null(move)) return(failed)
    gap <- sum(root_crossprod(A, now$g)^2) / 2 + sum(log(move$A$sd / A$sd)^2)
    if (gap < tol) break
    new <- integrated_moments(setup, move$mu, move$A)
    if (is.null(new) || new$F > now$F + 0.01 + 1e-9 * abs(now$F)) {
      rho <- rho / 2
      if (rho < 1e-3) break
      next
    }
    rho <- min(1, 1.5 * rho)
    mu <- move$mu
    A <- move$A
    now <- new
  }
  list(failed = !is.finite(now$F), mu = mu, root = A, c = numeric(), variance = A$sd^2, certificate = gap, iterations = iterations,
       value = setup$inner$dim / 2 * (1 + log(2 * pi)) - now$F, slope = now$slope)
}

# ---- functions of a setup that the rules call -----------------------------------------------------------------------------------

density_evidence <- function(setup, thetas, from, tol) {
  lapply(seq_along(thetas), function(i) {
    s <- solve_integrated_point(setup, thetas[[i]], from[[i]])
    if (s$failed && !is.null(from[[i]])) s <- solve_integrated_point(setup, thetas[[i]], NULL)
    if (s$failed) return(list(theta = thetas[[i]], value = -Inf, slope = rep(NA_real_, length(thetas[[i]])), solution = s))
    list(theta = thetas[[i]], value = s$value, slope = s$slope, solution = s)
  })
}

density_start <- function(setup) {
  start <- setup$model$start
  if (is.null(start)) numeric(setup$layout$length) else start[!setup$keep]
}

# ---- the fit -----------------------------------------------------------------------------------------------------------

solve_integrated <- function(problem, base, run, control, hyper, curvature) {
  model <- problem$target
  seed <- draw_key()
  setup <- integrated_setup(model, hyper, curvature)
  tol <- 1e-6
  mode <- evidence_mode(setup, tol)
  if (!is.finite(mode$value)) no_conditional(setup, mode$theta)
  laid <- lay_nodes(setup, mode, list(nodes = control$nodes, tol = tol, draws = 0, correct = FALSE), NULL)
  grid <- laid$grid
  solved <- which(vapply(grid$found, function(f) is.finite(f$value), NA))
  found <- grid$found[solved]
  values <- vapply(found, function(f) f$value, 0)
  theta <- matrix(unlist(lapply(found, function(f) f$theta)), length(found), byrow = TRUE, dimnames = list(NULL, setup$layout$names))
  log_weight <- values + grid$log_rule[solved]
  corrected <- evidence_correction(setup, found, normalised(log_weight), theta)
  weight <- normalised(log_weight + corrected$by)
  coarse <- as.matrix(grid$log_coarse)[solved, , drop = FALSE]
  moments <- function(weight) integrated_point_moments(found, theta, weight)
  change <- rule_error(moments(weight), apply(values + coarse + corrected$by, 2L, function(l) moments(normalised(l)), simplify = FALSE),
                       error_scale(laid$rule))
  used <- weight > 1e-6 * max(weight)
  found <- found[used]
  hyper <- list(values = theta[used, , drop = FALSE], theta = theta[used, , drop = FALSE], mode = laid$mode$theta, hessian = laid$hessian,
                z = grid$z[solved, , drop = FALSE][used, , drop = FALSE], rule = laid$rule, show = function(theta) {
                  colnames(theta) <- setup$layout$names
                  theta
                })
  environment(hyper$show) <- list2env(list(setup = list(layout = setup$layout)), parent = topenv())
  posterior <- new_posterior(base, matrix(vapply(found, function(f) f$solution$mu, numeric(setup$inner$dim)), setup$inner$dim),
                             lapply(found, function(f) f$solution$root), normalised((log_weight + corrected$by)[used]), setup$inner$names,
                             hyper = hyper, key = derived_key(seed, "posterior"))
  total <- log_sum(log_weight)
  certificates <- vapply(found, function(f) f$solution$certificate, 0)
  nested <- list(evidence = list(log = total, corrected = log_sum(log_weight + corrected$by), se = NA_real_, flat = 0, proper = TRUE,
                                 quadrature_error = evidence_error(log_weight, values + coarse, error_scale(laid$rule)),
                                 rests_on = "a lower bound at each quadrature point"),
                 k_hat = rep(NA_real_, length(found)), draws = 0L, corrected = corrected$used, noise = 0, change = change,
                 evaluations = setup$held$evaluations, certificates = certificates, certificate_kind = rep("stationary", length(found)))
  fit <- new_fit(c(list(call = problem$call, method = "integrated", model = model, base = base), split_control(control)),
                 plan = list(seed = seed, rng_kind = RNGkind(), pattern = pattern_account(curvature, found[[1L]]$solution$root)),
                 result = list(status = "finished", kept = "optimum", cpu = 0, nested = nested,
                               converged = sum(posterior$weight * certificates) < 0.01,
                               posterior = posterior))
  fit$result$verdict <- conditional_verdict(setup, laid$mode, seed)
  fit$result$converged <- fit$result$converged && max(unlist(change)) < 0.1 && !length(objections(fit))
  warn_integrated(fit)
  fit
}

integrated_point_moments <- function(found, theta, weight) {
  mean <- 0
  square <- 0
  for (k in which(weight > 0)) {
    s <- found[[k]]$solution
    mean <- mean + weight[k] * s$mu
    square <- square + weight[k] * (s$variance + s$mu^2)
  }
  Map(c, hyper_moments(list(values = theta), weight), list(mean, sqrt(pmax(square - mean^2, 1e-300))))
}

# What the log evidence is above its lower bound: the logarithm of the mean importance weight, by draws that are the same at every
# point. Where effects are so many that this rests on few draws, the first cumulants of the log weights, which add up over effects that
# depend on each other hardly at all. Smoothed over theta, as what matters is how it changes.
evidence_correction <- function(setup, found, weight, theta, pairs = 100L) {
  none <- list(by = numeric(length(found)), used = FALSE)
  counts <- which(weight > 1e-3 * max(weight))
  z <- draw_base(setup$law, c(20261118, 11), pairs)
  z <- cbind(z, -z)
  each <- vapply(counts, function(k) {
    s <- found[[k]]$solution
    setup$held$theta <- found[[k]]$theta
    f <- guarded_values(setup$inner, s$mu + root_times(s$root, z))
    log_w <- colSums(z^2) / 2 - f
    if (!all(is.finite(log_w))) return(c(NA_real_, NA_real_))
    v <- stats::var(log_w)
    off <- log_w - mean(log_w)
    c(if (v < 1) log(mean(exp(off))) else v / 2 + mean(off^3) / 6, v)
  }, c(0, 0))
  setup$held$evaluations <- setup$held$evaluations + ncol(z) * length(counts)
  if (anyNA(each[1L, ])) return(none)
  # more than a fifth of the effects' number: the cumulants say nothing
  if (max(each[2L, ]) > max(1, setup$inner$dim / 5)) return(none)
  axes <- sweep(theta, 2L, drop(weight %*% theta))
  unit <- pmax(sqrt(drop(weight %*% axes^2)), 1e-8)
  terms <- cbind(1, t(t(axes) / unit))
  if (length(counts) > 2L * (1 + 2 * ncol(theta))) terms <- cbind(terms, t(t(axes) / unit)^2)
  if (length(counts) <= ncol(terms)) return(none)
  fit <- stats::lm.wfit(terms[counts, , drop = FALSE], each[1L, ], weight[counts])$coefficients
  fit[is.na(fit)] <- 0
  list(by = pmin(pmax(drop(terms %*% fit), min(each[1L, ])), max(each[1L, ])), used = TRUE)
}

# Chains in the effects given the best theta
conditional_verdict <- function(setup, mode, key) {
  setup$held$theta <- mode$theta
  s <- mode$solution
  v <- chain_verdict(setup$inner, s$mu, s$root, key, warmup = 8L, kept = 24L)
  v[c("x", "moments")] <- NULL
  v$correct <- FALSE
  v$given <- toString(setup$layout$names)
  v
}

warn_integrated <- function(fit, most = 0.1) {
  moved <- max(unlist(fit$nested$change))
  if (isTRUE(moved > most)) {
    elvi_warn("The quadrature over ", fit$result$verdict$given, " may be off by ", format(moved, digits = 2), " sd (",
              rule_words(fit$posterior), "). A larger elvi_control(nodes = ) may help.", class = "elvi_warning_quadrature",
              data = list(change = fit$nested$change))
  }
  warn_of_verdict(fit)
}

# ---- which parameters ------------------------------------------------------------------------------------------------------

# Those that the user names; else parameters that many others depend on and that change the curvature of these, also after they have
# moved to their new place: the logarithm of a standard deviation does, the mean of all groups does not.
integrated_over <- function(model, curvature, most = 6L, by = 1) {
  if (!is.null(model$hyper)) return(model$hyper)
  if (is.null(curvature)) return(integer())
  d <- model$dim
  off <- curvature$row != curvature$column
  degree <- tabulate(c(curvature$row[off], curvature$column[off]), d)
  hubs <- which(degree > max(20, 0.1 * d))
  if (length(model$random)) hubs <- setdiff(seq_len(d), model$random)
  if (!length(hubs) || length(hubs) > 40L) return(integer())
  diagonal <- which(curvature$row == curvature$column & !curvature$row %in% hubs)
  others <- curvature$row[diagonal]
  x <- model$start %||% numeric(d)
  moved <- function(by) {
    points <- matrix(x, d, length(hubs))
    points[cbind(hubs, seq_along(hubs))] <- x[hubs] + by
    for (step in 1:3) {
      h <- pmax(abs(curvature$at(points, rep(1, d))[diagonal, , drop = FALSE]), 1e-8)
      g <- guarded_gradients(model, points)[others, , drop = FALSE]
      points[others, ] <- points[others, ] - pmin(pmax(g / h, -1), 1)
    }
    abs(curvature$at(points, rep(1, d))[diagonal, , drop = FALSE])
  }
  change <- abs(apply(log(moved(by) / moved(-by)), 2L, stats::median, na.rm = TRUE))
  change[!is.finite(change)] <- 0
  chosen <- hubs[change > most_curvature_change]
  if (length(chosen) <= most) chosen else integer()
}
