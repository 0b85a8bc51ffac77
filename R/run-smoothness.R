# The smoothness L that a run uses, and where it came from.

# In the coordinates of `work`. A user's L is that of f itself.
run_smoothness <- function(model, work, law, control) {
  work <- full_frame(work)   # no mean field can be steeper: each of its scales has A_j^2 H_jj = 1
  if (!is.null(control$smoothness)) {
    return(list(L = control$smoothness * coordinates_of(work)$largest_stretch(work)^2, source = "given in elvi_control()"))
  }
  if (is.na(model$smoothness)) return(estimated_smoothness(model, work, law, control))
  list(L = coordinates_of(work)$smoothness(model, work), source = model$smoothness_source)
}

# The model's own L in the coordinates of `work`: where it is known better than by how much these widen f's.
whitened_smoothness <- function(model, work) UseMethod("whitened_smoothness")

#' @export
whitened_smoothness.elvi_model <- function(model, work) model$smoothness * coordinates_of(work)$largest_stretch(work)^2

#' @export
whitened_smoothness.elvi_model_glm <- function(model, work) curvature_max(model, family_record(model)$curvature_bound, work)

#' @export
whitened_smoothness.elvi_model_quadratic <- function(model, work) {
  max(eigen(congruent(work$A, model$A), symmetric = TRUE, only.values = TRUE)$values)
}

# Where an L came from, in the words of estimated_smoothness().
is_estimate <- function(source) grepl("^estimated", source)

# Is the model's own L, a bound, known to be attained?
smoothness_attained <- function(model) UseMethod("smoothness_attained")

#' @export
smoothness_attained.elvi_model <- function(model) FALSE

#' @export
smoothness_attained.elvi_model_quadratic <- function(model) TRUE

# the bound is the curvature itself where all predictors are 0 together
#' @export
smoothness_attained.elvi_model_glm <- function(model) family_record(model)$bound_attained(model$rows)

estimated_smoothness <- function(model, work, law, control, points = 15L) {
  z <- draw_base(law, c(0, 0), points)   # a fixed key: R's generator is not touched
  near <- coordinates_of(work)$near_points(work, cbind(0, z), control)
  found <- largest_curvature(near$target, near$x, least = work$mean_curvature)
  list(L = found * control$smoothness_safety,
       source = sprintf("estimated at %d points, safety factor %g", ncol(near$x), control$smoothness_safety),
       laplace = near$laplace[c("m", "A", "level")])
}

# Power iteration on Hessian products by differences of the gradient, at all
# columns of x at once. What is known to be the mean of a curvature is the `least` that the largest can be.
largest_curvature <- function(model, x, steps = 12L, h = 1e-4, least = NULL) {
  d <- nrow(x)
  gradient <- function(x) target_at(model, x)$gradient
  v <- matrix(1 + 0.5 * sin(seq_len(d * ncol(x))), d)
  size <- 0
  for (k in seq_len(steps)) {
    v <- v / rep(pmax(sqrt(colSums(v^2)), 1e-300), each = d)
    v <- (gradient(x + h * v) - gradient(x - h * v)) / (2 * h)
    size <- sqrt(colSums(v^2))
  }
  found <- max(size, least)
  if (!is.finite(found) || found <= 0) {
    elvi_abort("`smoothness` is needed: it could not be estimated because the gradient is not finite ",
               "or constant near the mode. Give elvi_control() a `smoothness`.",
               class = c("elvi_error_smoothness", "elvi_error_argument"),
               data = list(argument = "smoothness"))
  }
  found
}
