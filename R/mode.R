# The minimiser of f and its Hessian there: where whitening and the solver start.

find_mode <- function(model) {
  switch(model$kind,
         quadratic = list(x = model$m, hessian = model$A, evaluations = 0),
         glm = glm_mode(model), aux = aux_mode(model), density_mode(model))
}

# A point near the mode, where the exact solver may as well take over. Under a flat
# prior there may be no mode, which only the whole search shows.
near_mode <- function(model) {
  if (model$kind != "glm" || any(model$precision == 0)) return(find_mode(model))
  glm_mode(model, decrement_below = 0.1, reach_below = 0.1)
}

overflow_advice <- " Numbers so large overflow: rescale predictors, response, offset or weights."

# Damped Newton. With a flat prior the minimum may be at infinity: there the
# steps do not shrink, and their direction shows it.
glm_mode <- function(model, max_steps = 100L, decrement_below = 1e-10, reach_below = 1e-3) {
  at <- point_oracle(model)
  x <- ifelse(model$precision > 0, model$centre, 0)
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
  for (k in seq_len(max_steps)) {
    if (!is.finite(now$value) || any(!is.finite(now$B))) nonfinite_mode(x, overflow_advice)
    step <- newton_step(now$B, now$g_mu)
    decrement <- sum(step * now$g_mu)
    reach <- stretch_along(model, step)
    if (!is.finite(decrement) || !is.finite(reach)) nonfinite_mode(x, overflow_advice)
    # with large responses rounding stops the decrement before 1e-10 does
    stalled <- decrement < 1e-12 * abs(now$value) && decrement > before / 4 &&
      reach < 1e-6 * stretch_along(model, x)
    if ((decrement < decrement_below && reach < reach_below) || stalled) {
      return(list(x = x, hessian = now$B, evaluations = evaluations))
    }
    before <- decrement
    if (reach > 0.3 && k > 20L) refuse_if_recession(model, -step)
    # under exp() a longer move than this says nothing
    size <- if (has_exponential(model$likelihood)) min(1, 10 / reach) else 1
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
  refuse_if_recession(model, -step)
  elvi_abort("The mode was not found in ", max_steps, " Newton steps: f may have no minimum. ",
             "Give a proper prior such as normal(0, 2.5).",
             class = "elvi_error_no_optimum")
}

# f, gradient and Hessian at a point: the exact oracle with scale 0
point_oracle <- function(model) {
  rule <- model_rule(model, law_of(base_gaussian(), model$dim))
  zero <- numeric(model$dim)
  function(x) .Call(elvi_r_exact, model, rule, "diagonal", x, zero, threads())
}

newton_step <- function(H, g) {
  R <- tryCatch(chol(H), error = function(e) NULL)
  if (is.null(R)) {   # nearly singular: as much ridge as rounding asks for
    R <- tryCatch(chol(H + diag(1e-10 * max(diag(H), 1e-300), nrow(H))), error = function(e) NULL)
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
  if (!any(model$precision == 0)) return(invisible())
  direction[model$precision > 0] <- 0
  move <- predictor_at(model, direction)[model$weight > 0]
  y <- model$y[model$weight > 0]
  small <- 1e-6 * max(abs(move))
  if (small == 0) return(invisible())
  never_up <- switch(model$likelihood,
    poisson = all(move < small) && all(abs(move[y > 0]) < small),
    normal = FALSE,
    all(ifelse(y == 1, move > -small, ifelse(y == 0, move < small, abs(move) < small))))
  if (!never_up) return(invisible())
  elvi_abort("No optimum exists: ",
             if (model$likelihood == "poisson") "the counts" else "the two classes",
             " can be separated and the prior is flat, so the coefficients run off to infinity. ",
             "Give a proper prior such as normal(0, 2.5).",
             class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "prior"))
}

# L-BFGS for a user's functions, then a Hessian by central differences of the
# gradient, all points in one block.
density_mode <- function(model) {
  value <- function(x) {
    v <- model$value(matrix(x))
    if (is.finite(v)) v else 1e300
  }
  gradient <- function(x) matrix(model$gradient(x), model$dim)
  found <- stats::optim(numeric(model$dim), value, function(x) gradient(matrix(x)), method = "L-BFGS-B",
                        control = list(maxit = 1000, factr = 10))
  if (any(!is.finite(gradient(matrix(found$par))))) nonfinite_mode(found$par)
  hessian <- difference_hessian(gradient, found$par, pmax(1, abs(found$par)))
  polished <- polish(gradient, found$par, hessian)
  list(x = polished$x, hessian = hessian, evaluations = found$counts[["gradient"]] + polished$evaluations)
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

# Damped Newton for a regression with an auxiliary parameter, from the fit of a
# simpler one.
aux_mode <- function(model, max_steps = 100L) {
  gradient <- function(x) target_at(model, x)$gradient
  last <- model$dim
  start <- if (model$likelihood == "neg_binomial_2") count_start(model) else scale_start(model)
  x <- start$x
  evaluations <- start$evaluations
  reach <- .Call(elvi_r_reach, model)
  for (k in seq_len(max_steps)) {
    at <- target_at(model, matrix(x))
    g <- drop(at$gradient)
    if (!is.finite(at$value) || any(!is.finite(g))) nonfinite_mode(x)
    error_sd <- if (model$aux$name == "log_sigma") exp(x[last]) else 1
    H <- difference_hessian(gradient, x, c(ifelse(reach > 0, error_sd / reach, 1), 1))
    step <- newton_step(H, g)
    decrement <- sum(step * g)
    evaluations <- evaluations + 1 + 2 * last
    if (decrement < 1e-6) {
      if (is.null(root_of_inverse(H))) no_aux_mode(model)   # f has only levelled off
      polished <- polish(gradient, x, H)
      return(list(x = polished$x, hessian = H, evaluations = evaluations + polished$evaluations))
    }
    if (x[last] < start$x[last] - 30) break
    size <- min(1, 2 / abs(step[last]))   # beyond a factor e^2 no model of f is good
    repeat {
      new <- target_at(model, matrix(x - size * step))$value
      evaluations <- evaluations + 1
      if (is.finite(new) && new <= at$value - 1e-4 * size * decrement) break
      size <- size / 2
      if (size < 1e-10) no_aux_mode(model)
    }
    x <- x - size * step
  }
  no_aux_mode(model)
}

no_aux_mode <- function(model) {
  elvi_abort("No mode was found: ", if (model$aux$name == "log_sigma") {
    paste("the coefficients may fit the responses perfectly, and sigma then runs off to 0.",
          "Use fewer coefficients, or gaussian() with a known `dispersion`.")
  } else {
    "f may have no minimum. Give proper priors such as normal(0, 2.5) and `prior_aux` = exponential(1)."
  }, class = "elvi_error_no_optimum")
}

# the regression of known dispersion or size inside a model with an unknown one
inner_glm <- function(model, likelihood, weight = model$weight) {
  model$kind <- "glm"
  model$likelihood <- likelihood
  model$dim <- model$dim - 1
  model$weight <- weight
  model
}

# (coefficients, log sigma) by least squares, or for student errors by reweighted
# ones, which is the EM algorithm
scale_start <- function(model) {
  w <- model$weight
  y <- model$y - model$offset
  variance <- function(r, u = 1) sum(w * u * r^2) / sum(w)
  total <- variance(y - sum(w * y) / sum(w))
  now <- if (total > 0) total else 1
  u <- rep(1, length(y))
  evaluations <- 0
  for (pass in seq_len(if (model$likelihood == "robust") 10L else 3L)) {
    found <- glm_mode(inner_glm(model, "normal", w * u / now))
    evaluations <- evaluations + found$evaluations
    r <- y - predictor_at(model, found$x)
    now <- variance(r, u)
    if (now <= 1e-24 * total) no_aux_mode(model)
    if (model$likelihood == "robust") u <- (model$aux$df + 1) / (model$aux$df + r^2 / now)
  }
  list(x = c(found$x, log(now) / 2), evaluations = evaluations)
}

# (coefficients, log phi) from the poisson fit and the moments of its residuals
count_start <- function(model) {
  found <- glm_mode(inner_glm(model, "poisson"))
  mu <- exp(predictor_at(model, found$x) + model$offset)
  w <- model$weight
  excess <- sum(w * ((model$y - mu)^2 - mu)) / sum(w * mu^2)
  list(x = c(found$x, -log(min(max(excess, 1e-3), 1e2))), evaluations = found$evaluations)
}
