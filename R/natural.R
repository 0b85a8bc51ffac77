# Parameters as tables show them. A dispersion is fitted by its logarithm, which is what `fit$mu` and `fit$Sigma` are about;
# summaries, intervals, draws and plots have sigma or phi itself, and coef() has coefficients only.

# where the logarithm is among the parameters; 0 for none
dispersion_place <- function(fit) if (is_dispersed(fit$model)) fit$model$dispersion_at else 0L

natural_names <- function(fit) UseMethod("natural_names")

#' @export
natural_names.elvi_fit <- function(fit) {
  names <- names(fit$mu)
  at <- dispersion_place(fit)
  if (at) names[at] <- dispersion_record(fit$model)$natural
  names
}

# mean and standard deviation of each parameter
natural_table <- function(fit) {
  table <- cbind(mean = posterior_mean(fit), sd = posterior_sd(fit))
  at <- dispersion_place(fit)
  if (at) table[at, ] <- exponential_moments(law_of(fit$base, fit$model$dim), table[at, 1L], table[at, 2L])
  rownames(table) <- natural_names(fit)
  table
}

# mean and standard deviation of exp(mean + sd z), infinite under tails that are too heavy for them
exponential_moments <- function(law, mean, sd) {
  limit <- exponential_limit(law)
  if (limit <= sd) return(c(Inf, Inf))
  rule <- composite_rule(law, width = 0.5, growth = 1.5, grade = 8L)
  weights <- c(rule$w, rule$w)
  values <- exp(sd * c(rule$z, -rule$z))
  average <- sum(weights * values)
  exp(mean) * c(average, if (limit <= 2 * sd) Inf else sqrt(sum(weights * (values - average)^2)))
}

# of limits that have a row for each of the parameters `which`
natural_limits <- function(fit, which, limits) {
  logged <- which == dispersion_place(fit)
  limits[logged, ] <- exp(limits[logged, ])
  limits
}

# of draws that have a column for each parameter
natural_draws <- function(fit, x) {
  at <- dispersion_place(fit)
  if (at) x[, at] <- exp(x[, at])
  colnames(x) <- natural_names(fit)
  x
}

# positions of the coefficients
coefficient_places <- function(fit) setdiff(seq_along(fit$mu), dispersion_place(fit))
