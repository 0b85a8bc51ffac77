# The smoothness L that a run uses, and where it came from.

# In the coordinates of `work`. `given` is the user's L of f itself.
run_smoothness <- function(model, work, law, control) {
  stretch <- if (work$kind == "affine") largest_stretch(work$A) else 1
  if (!is.null(control$smoothness)) {
    return(list(L = control$smoothness * stretch^2, source = "given in elvi_control()"))
  }
  if (model$kind == "glm" && !is.na(model$smoothness)) {
    L <- if (work$kind == "affine") .Call(elvi_r_curvature_max, work, curvature_bound(model$likelihood))
         else model$smoothness
    return(list(L = L, source = "computed"))
  }
  if (!is.na(model$smoothness)) {
    L <- if (work$kind == "affine" && model$kind == "quadratic") {
      max(eigen(congruent(work$A, model$A), symmetric = TRUE, only.values = TRUE)$values)
    } else {
      model$smoothness * stretch^2
    }
    return(list(L = L, source = model$smoothness_source))
  }
  estimated_smoothness(model, work, law, control)
}

# largest second derivative of the loss in the linear predictor
curvature_bound <- function(likelihood) {
  switch(likelihood, logit = 0.25, probit = 1, normal = 1, NA_real_)
}

estimated_smoothness <- function(model, work, law, control, points = 15L) {
  laplace <- if (work$kind == "affine") work else work_model(model, "whitened", if (model$dim > widest_hessian) control$scale else "symmetric")
  z <- draw_base(law, c(0, 0), points)   # a fixed key: R's generator is not touched
  w <- cbind(0, z)
  x <- if (work$kind == "affine") w else
    laplace$m + root_times(laplace$A, w)
  found <- largest_curvature(work, x)
  list(L = found * control$smoothness_safety,
       source = sprintf("estimated at %d points, safety factor %g", ncol(x), control$smoothness_safety))
}

# Power iteration on Hessian products by differences of the gradient, at all
# columns of x at once.
largest_curvature <- function(model, x, steps = 12L, h = 1e-4) {
  d <- nrow(x)
  gradient <- function(x) target_at(model, x)$gradient
  v <- matrix(1 + 0.5 * sin(seq_len(d * ncol(x))), d)
  size <- 0
  for (k in seq_len(steps)) {
    v <- v / rep(pmax(sqrt(colSums(v^2)), 1e-300), each = d)
    v <- (gradient(x + h * v) - gradient(x - h * v)) / (2 * h)
    size <- sqrt(colSums(v^2))
  }
  found <- max(size)
  if (!is.finite(found) || found <= 0) {
    elvi_abort("`smoothness` is needed: it could not be estimated because the gradient is not finite ",
               "or constant near the mode. Give elvi_control() a `smoothness`.",
               class = c("elvi_error_smoothness", "elvi_error_argument"),
               data = list(argument = "smoothness"))
  }
  found
}
