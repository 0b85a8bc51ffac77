# A gradient that is not that of `value` makes a fit of something else. One central
# difference at the start of a run finds most such mistakes; it costs two values
# and a gradient, and takes nothing from R's generator.

compare_gradient <- function(model, work, kind, start) {
  if (!isTRUE(model$own_gradient)) return(invisible())
  at <- to_user(work, kind, start$mu, start$scale)
  move <- function(direction) drop(root_times(at$scale, direction))
  # one standard deviation away from the start, which is often a mode, where the
  # gradient is 0 and twice the gradient as well
  x <- at$mu + move(fixed_direction(model$dim, 1))
  v <- move(fixed_direction(model$dim, sqrt(2)))
  h <- 1e-3
  values <- guarded_values(model, cbind(x + h * v, x - h * v, deparse.level = 0))
  gradient <- guarded_gradients(model, matrix(x))
  if (any(!is.finite(values)) || any(!is.finite(gradient))) return(invisible())   # the run says so, if it matters
  by_value <- (values[1L] - values[2L]) / (2 * h)
  by_gradient <- sum(gradient * v)
  rounding <- 1e-12 * max(abs(values)) / h
  tolerance <- 0.01 * max(abs(by_value), abs(by_gradient)) + 1e-4 * sqrt(sum(gradient^2) * sum(v^2)) + rounding
  if (!isTRUE(abs(by_value - by_gradient) > tolerance)) return(invisible())   # nor where numbers end
  elvi_warn("`gradient` does not agree with `value`: near the start the derivative along a direction is ",
            format(by_value, digits = 4), " by a central difference of `value` and ", format(by_gradient, digits = 4),
            " by `gradient`. The run follows `gradient`; the objective is that of `value`.",
            class = "elvi_warning_gradient",
            data = list(x = x, direction = v, by_value = by_value, by_gradient = by_gradient))
}

# a unit vector without a pattern, the same in every session
fixed_direction <- function(dim, turn) {
  v <- cos(turn * (seq_len(dim)^2 + seq_len(dim)))
  v / sqrt(sum(v^2))
}
