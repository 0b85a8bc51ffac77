# The minimiser of f and its Hessian there: where whitening and the solver start.

# With `diagonal` only the diagonal of the Hessian is returned, a vector, and nothing d x d is made where the
# model is wide.
find_mode <- function(model, diagonal = FALSE) UseMethod("find_mode")

#' @export
find_mode.elvi_model_quadratic <- function(model, diagonal = FALSE) {
  list(x = model$m, hessian = if (diagonal) diag(model$A) else model$A, evaluations = 0)
}

#' @export
find_mode.elvi_model_glm <- function(model, diagonal = FALSE) {
  if (diagonal && is_wide(model)) return(wide_mode(model))
  diagonal_if(diagonal, newton_mode(model))
}

#' @export
find_mode.elvi_model_dispersed <- function(model, diagonal = FALSE) {
  if (diagonal && is_wide(model)) return(wide_mode(model, dispersion_record(model)$start(model)$x))
  diagonal_if(diagonal, dispersed_mode(model))
}

#' @export
find_mode.elvi_model <- function(model, diagonal = FALSE) {
  if (diagonal && is_wide(model)) return(wide_mode(model))
  diagonal_if(diagonal, gradient_mode(model))
}

diagonal_if <- function(diagonal, mode) {
  if (diagonal) mode$hessian <- diag(mode$hessian)
  mode
}

# A point near the mode, where the exact solver may as well take over. Under a flat
# prior there may be no mode, which only the whole search shows. With `by_products` the Hessian
# is what products.R makes of it.
near_mode <- function(model, by_products = FALSE) UseMethod("near_mode")

#' @export
near_mode.elvi_model <- function(model, by_products = FALSE) find_mode(model)

#' @export
near_mode.elvi_model_glm <- function(model, by_products = FALSE) {
  if (!all_proper(model)) return(newton_mode(model, by_products = by_products))
  few <- may_be_skewed(model, "symmetric") && !by_products
  newton_mode(model, if (few) 6L else 100L, 0.1, 0.1, by_products, unsettled = few)
}

overflow_advice <- " Numbers so large overflow: rescale predictors, response, offset or weights."

# Damped Newton. With a flat prior the minimum may be at infinity: there the
# steps do not shrink, and their direction shows it.
newton_mode <- function(model, max_steps = 100L, decrement_below = 1e-10, reach_below = 1e-3, by_products = FALSE,
                        unsettled = FALSE) {
  at <- point_oracle(model, by_products)
  x <- centre_of_prior(model)
  now <- at(x)
  evaluations <- 1
  if (any(x != 0)) {   # at the centre of the prior exp() may overflow, or be slow to leave
    origin <- at(numeric(model$dim))
    evaluations <- evaluations + 1
    if (is.finite(origin$value) && !isTRUE(now$value <= origin$value)) {
      x <- numeric(model$dim)
      now <- origin
    }
  }
  before <- Inf
  exponential <- family_record(model)$exponential
  for (k in seq_len(max_steps)) {
    if (!is.finite(now$value) || any(!is.finite(diagonal_of(now$B)))) nonfinite_mode(x, overflow_advice)
    step <- newton_step(now$B, now$g_mu)
    decrement <- sum(step * now$g_mu)
    # with large responses rounding stops the decrement before 1e-10 does
    stalls <- decrement < 1e-12 * abs(now$value) && decrement > before / 4
    settles <- decrement < decrement_below
    # which is another pass over the rows
    reach <- if (isTRUE(stalls || settles) || exponential || k > 20L) pass_of(model, "extent", list(x = step)) else 1
    if (!is.finite(decrement) || !is.finite(reach)) nonfinite_mode(x, overflow_advice)
    if ((settles && reach < reach_below) || (stalls && reach < 1e-6 * pass_of(model, "extent", list(x = x)))) {
      return(list(x = x, hessian = now$B, evaluations = evaluations))
    }
    before <- decrement
    if (reach > 0.3 && k > 20L) refuse_if_recession(model, -step)
    # under exp() a longer move than this says nothing
    size <- if (exponential) min(1, 10 / reach) else 1
    repeat {
      new <- at(x - size * step)
      evaluations <- evaluations + 1
      if (is.finite(new$value) && new$value <= now$value - 1e-4 * size * decrement + 1e-12 * abs(now$value)) break
      size <- size / 2
      if (size < 1e-10) return(list(x = x, hessian = now$B, evaluations = evaluations))
    }
    x <- x - size * step
    now <- new
  }
  if (unsettled) return(list(x = x, hessian = now$B, evaluations = evaluations, settled = FALSE))
  refuse_if_recession(model, -step)
  elvi_abort("The mode was not found in ", max_steps, " Newton steps: f may have no minimum. ",
             "Give a proper prior such as normal(0, 2.5).",
             class = "elvi_error_no_optimum")
}

centre_of_prior <- function(model) {
  block <- model$blocks$coefficients
  ifelse(block$precision > 0, block$centre, 0)
}

# f, gradient and Hessian at a point: the exact oracle with scale 0
point_oracle <- function(model, by_products = FALSE) {
  law <- law_of(base_gaussian(), model$dim)
  rule <- model_quadrature(model, law)
  zero <- numeric(model$dim)
  look <- if (by_products) exact_products_at else exact_at
  function(x, directions = NULL) look(model, rule, law, "diagonal", x, zero, directions)
}

newton_step <- function(H, g) UseMethod("newton_step")

#' @export
newton_step.default <- function(H, g) {
  R <- or_null(chol(H))
  if (is.null(R)) {   # nearly singular: as much ridge as rounding asks for
    R <- or_null(chol(H + diag(1e-10 * max(diag(H), 1e-300), nrow(H))))
  }
  if (is.null(R)) downhill_step(H, g) else drop(backsolve(R, forwardsolve(t(R), g)))
}

# The step for an indefinite H: absolute eigenvalues, in units of its diagonal.
downhill_step <- function(H, g) {
  unit <- 1 / sqrt(pmax(abs(diag(H)), 1e-300))
  e <- eigen(unit * H * rep(unit, each = length(unit)), symmetric = TRUE)
  curvature <- pmax(abs(e$values), 1e-6 * max(abs(e$values)))
  drop(unit * (e$vectors %*% (crossprod(e$vectors, unit * g) / curvature)))
}

# Along `direction`, does f never increase? Then it has no minimum.
refuse_if_recession <- function(model, direction) {
  flat <- flat_coefficients(model)
  if (!any(flat)) return(invisible())
  if (!falls_along(model, ifelse(flat, direction, 0))) return(invisible())
  elvi_abort("No optimum exists: ", family_record(model)$separable,
             " can be separated and the prior is flat, so the coefficients diverge. ",
             "Give a proper prior such as normal(0, 2.5).",
             class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "prior"))
}

# L-BFGS for a user's functions, then a Hessian by central differences of the
# gradient, all points in one block.
gradient_mode <- function(model) {
  gradient <- function(x) matrix(guarded_gradients(model, x), model$dim)
  start <- model$around$x %||% numeric(model$dim)
  descent <- rejecting(model)
  found <- scaled_minimum(descent$value, descent$gradient, start, model$around$unit %||% rep(1, model$dim))
  refuse_if_falling(model, found$par, found$par)
  if (any(!is.finite(gradient(matrix(found$par))))) nonfinite_mode(found$par)
  # a gradient by differences has fewer digits, and bears longer moves
  unit <- if (is.null(model$around)) pmax(1, abs(found$par)) else 100 * model$around$unit
  hessian <- guarded_hessian(model$hessian, found$par) %||% difference_hessian(gradient, found$par, unit)
  if (all(is.finite(hessian))) {
    lowest <- eigen(hessian, symmetric = TRUE)
    if (lowest$values[model$dim] < 0) refuse_if_falling(model, found$par, lowest$vectors[, model$dim])
  }
  polished <- polish(gradient, found$par, hessian)
  list(x = polished$x, hessian = hessian, evaluations = found$counts[["gradient"]] + polished$evaluations)
}

# A density falls in the end, in every direction, so f rises.
refuse_if_falling <- function(model, x, direction) {
  if (all(direction == 0) || !all(is.finite(direction))) return(invisible())
  direction <- direction / max(abs(direction))   # its square may overflow
  far <- 10^(0:5) * max(1, abs(x))
  for (sign in c(1, -1)) {
    values <- guarded_values(model, cbind(x, x + outer(sign * direction / sqrt(sum(direction^2)), far)))
    values[which(values == -Inf)] <- -.Machine$double.xmax
    if (!anyNA(values) && all(diff(values) < 0 | values[-1L] == -.Machine$double.xmax)) {
      elvi_abort("The target decreases without bound, so no optimum exists: `value` must be -log density. ",
                 "Was the log density given, without the minus?",
                 class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "value"))
    }
  }
}

nonfinite_mode <- function(x, advice = NULL) {
  elvi_abort("The gradient is not finite at the point where the search for the mode ended: x = (",
             toString(format(utils::head(x, 5), digits = 3)), if (length(x) > 5) ", ...", ").", advice,
             class = "elvi_error_nonfinite", data = list(x = x))
}

# `unit`: moves of x that change f by about as much, one per coordinate
difference_hessian <- function(gradient, x, unit) {
  d <- length(x)
  h <- 1e-4 * unit
  moves <- diag(h, d)
  g <- gradient(cbind(x + moves, x - moves))
  H <- (g[, seq_len(d), drop = FALSE] - g[, d + seq_len(d), drop = FALSE]) /
    rep(2 * h, each = d)
  (H + t(H)) / 2
}

# Newton steps with a fixed Hessian, from where they are small to where rounding
# stops them: each gains as many digits as the Hessian has.
polish <- function(gradient, x, hessian, rounds = 5L) {
  evaluations <- 0
  if (any(!is.finite(hessian)) || is.null(root_of_inverse(hessian))) return(list(x = x, evaluations = 0))
  at <- function(x) {
    evaluations <<- evaluations + 1
    g <- drop(gradient(matrix(x)))
    step <- newton_step(hessian, g)
    list(x = x, step = step, decrement = sum(step * g))
  }
  now <- at(x)
  while (evaluations <= rounds && isTRUE(now$decrement < 1e-4) && now$decrement > 1e-20) {
    new <- at(now$x - now$step)
    if (!isTRUE(new$decrement < now$decrement)) break
    now <- new
  }
  list(x = now$x, evaluations = evaluations)
}

# Damped Newton for a regression with an unknown dispersion, from the fit of a
# simpler one.
dispersed_mode <- function(model, max_steps = 100L) {
  gradient <- function(x) target_at(model, x)$gradient
  last <- model$dispersion_at
  start <- dispersion_record(model)$start(model)
  x <- start$x
  evaluations <- start$evaluations
  reach <- pass_of(model, "reach")
  for (k in seq_len(max_steps)) {
    at <- target_at(model, matrix(x))
    g <- drop(at$gradient)
    if (!is.finite(at$value) || any(!is.finite(g))) nonfinite_mode(x)
    unit <- dispersion_record(model)$unit(exp(x[last]))
    H <- difference_hessian(gradient, x, c(ifelse(reach > 0, unit / reach, 1), 1))
    if (!all(is.finite(H))) nonfinite_mode(x, overflow_advice)
    step <- newton_step(H, g)
    decrement <- sum(step * g)
    if (!is.finite(decrement)) nonfinite_mode(x, overflow_advice)
    evaluations <- evaluations + 1 + 2 * model$dim
    if (decrement < 1e-6) {
      if (is.null(root_of_inverse(H))) no_dispersed_mode(model)   # f has only levelled off
      polished <- polish(gradient, x, H)
      return(list(x = polished$x, hessian = H, evaluations = evaluations + polished$evaluations))
    }
    if (abs(x[last] - start$x[last]) > 30) break
    size <- min(1, 2 / abs(step[last]))   # beyond a factor e^2 no model of f is good
    repeat {
      new <- target_values(model, matrix(x - size * step))
      evaluations <- evaluations + 1
      if (is.finite(new) && new <= at$value - 1e-4 * size * decrement) break
      size <- size / 2
      if (size < 1e-10) no_dispersed_mode(model)
    }
    x <- x - size * step
  }
  no_dispersed_mode(model)
}

no_dispersed_mode <- function(model) {
  elvi_abort("No mode was found: ", dispersion_record(model)$lost, class = "elvi_error_no_optimum")
}

# The regression of known dispersion inside a model with an unknown one, with another likelihood and other weights.
inner_glm <- function(model, likelihood, variance = 1, earlier = NULL) {
  model$likelihood <- likelihood
  model$dim <- model$dim - 1
  model$dispersion_at <- 0
  model$blocks$dispersion <- NULL
  model$tally <- no_tally
  model$rows <- reweighed(model$rows, variance, earlier)
  readable_model(structure(model, class = c("elvi_model_glm", "elvi_model")))
}

inner_mode <- function(inner) if (is_wide(inner)) wide_mode(inner) else newton_mode(inner)

# (coefficients, log sigma) by least squares; for student errors weighted anew by the residuals of the round before
scale_start <- function(model, rounds) {
  total <- pass_of(model, "spread")
  now <- if (total > 0) total else 1
  earlier <- NULL
  evaluations <- 0
  for (round in seq_len(rounds)) {
    inner <- inner_glm(model, "normal", now, earlier)
    found <- inner_mode(inner)
    evaluations <- evaluations + found$evaluations
    now <- now * pass_of(inner, "squares", list(x = found$x)) / model$rows$count
    if (now <= 1e-24 * total) no_dispersed_mode(model)
    if (is.finite(model$error_df)) earlier <- list(x = found$x, variance = now, df = model$error_df)
  }
  list(x = c(found$x, log(now) / 2), evaluations = evaluations)
}

# (coefficients, log phi) from the poisson fit and the moments of its residuals
count_start <- function(model) {
  inner <- inner_glm(model, "poisson")
  found <- inner_mode(inner)
  sums <- pass_of(inner, "excess", list(x = found$x))
  list(x = c(found$x, -log(min(max(sums[1L] / sums[2L], 1e-3), 1e2))), evaluations = found$evaluations)
}

# (coefficients, log precision) from the fit of exponential responses, in which the mean is the same, and the mean of
# `unit` deviations around it
positive_start <- function(model, unit) {
  found <- inner_mode(inner_glm(model, "gamma"))
  rows <- model$rows
  mu <- exp(predictor_of(rows, found$x) + rows$offset)
  spread <- sum(rows$weight * unit(rows$y, mu)) / sum(rows$weight)
  list(x = c(found$x, -log(max(spread, 1e-12))), evaluations = found$evaluations)
}

# (coefficients, log phi) of shares from least squares of their logits and the moments around those
share_start <- function(model) {
  rows <- model$rows
  logits <- stats::qlogis(rows$y)
  centre <- sum(rows$weight * logits) / sum(rows$weight)
  level <- max(sum(rows$weight * (logits - centre)^2) / sum(rows$weight), 1e-12)
  model$rows$y <- logits
  found <- inner_mode(inner_glm(model, "normal", level))
  mu <- stats::plogis(predictor_of(rows, found$x) + rows$offset)
  spread <- sum(rows$weight * (rows$y - mu)^2 / (mu * (1 - mu))) / sum(rows$weight)
  list(x = c(found$x, log(max(1 / min(max(spread, 1e-12), 1e6) - 1, 1e-2))), evaluations = found$evaluations)
}

# ---- wide models ----------------------------------------------------------------------------

# L-BFGS from gradients alone, in units in which the curvature at the start is 1, renewed where it has moved.
wide_mode <- function(model, start = default_point(model), rounds = 3L) {
  x <- start
  evaluations <- 0
  for (round in seq_len(rounds)) {
    unit <- 1 / sqrt(safe_curvature(hessian_diagonal(model, x)))
    at <- remembering(function(w) target_at(model, matrix(x + unit * w)))
    found <- stats::optim(numeric(model$dim), function(w) if (is.finite(v <- at(w)$value)) v else 1e300,
                          function(w) unit * at(w)$gradient, method = "L-BFGS-B",
                          control = list(maxit = 1000, factr = 10, lmm = 20))
    x <- x + unit * found$par
    evaluations <- evaluations + found$counts[["gradient"]]
    if (sum(found$par^2) < 1e-4 * model$dim) break
  }
  if (any(!is.finite(at(found$par)$gradient))) nonfinite_mode(x, overflow_advice)
  list(x = x, hessian = hessian_diagonal(model, x), evaluations = evaluations)
}

safe_curvature <- function(h) {
  h <- abs(h)
  ifelse(is.finite(h) & h > 0, h, if (any(is.finite(h) & h > 0)) max(h[is.finite(h)]) else 1)
}

# f and its last point are kept: optim() calls for value and gradient one after the other
remembering <- function(f) {
  last <- NULL
  function(w) {
    if (is.null(last) || !identical(last$w, w)) last <<- list(w = w, at = f(w))
    last$at
  }
}

default_point <- function(model) UseMethod("default_point")

#' @export
default_point.elvi_model <- function(model) numeric(model$dim)

#' @export
default_point.elvi_model_glm <- function(model) centre_of_prior(model)

# The diagonal of the Hessian of f at x, without the rest of it.
hessian_diagonal <- function(model, x) UseMethod("hessian_diagonal")

#' @export
hessian_diagonal.elvi_model <- function(model, x) {
  gradient <- function(x) matrix(target_at(model, x)$gradient, model$dim)
  if (is_wide(model)) probed_diagonal(gradient, x) else diag(difference_hessian(gradient, x, pmax(1, abs(x))))
}

#' @export
hessian_diagonal.elvi_model_quadratic <- function(model, x) diag(model$A)

# one pass over the rows
#' @export
hessian_diagonal.elvi_model_glm <- function(model, x) {
  last <- model$dispersion_at
  b <- x[block_entries(model$blocks$coefficients)]
  likelihood <- pass_of(model, "diagonal", list(x = b, law = law_of(base_gaussian(), model$dim),
                                                dispersion = if (last > 0) exp(x[last]) else 1))
  out <- numeric(model$dim)
  for (block in model$blocks) out[block_entries(block)] <- block_curvature(block, x)
  out[seq_along(likelihood)] <- out[seq_along(likelihood)] + likelihood
  if (last > 0) {
    e <- replace(numeric(model$dim), last, 1e-4)
    g <- target_at(model, cbind(x + e, x - e))$gradient[last, ]
    out[last] <- (g[1L] - g[2L]) / 2e-4
  }
  out
}

# The estimator of Bekas, Kokiopoulou and Saad: the mean of v * Hv over vectors v of signs. Columns of a
# Hadamard matrix are such that entries less than `probes` apart do not disturb each other.
probed_diagonal <- function(gradient, x, probes = 32L, h = 1e-4) {
  hadamard <- 1
  while (NROW(hadamard) < probes) hadamard <- rbind(cbind(hadamard, hadamard), cbind(hadamard, -hadamard))
  signs <- hadamard[(seq_along(x) - 1L) %% probes + 1L, , drop = FALSE]
  total <- 0
  for (k in seq_len(probes)) {
    v <- signs[, k]
    g <- gradient(cbind(x + h * v, x - h * v))
    total <- total + v * (g[, 1L] - g[, 2L]) / (2 * h)
  }
  total / probes
}
