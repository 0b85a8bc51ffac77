# Student errors whose degrees of freedom are estimated too: two hyperparameters. With known ones it is robust(), in family.R.

#' @rdname families
#' @export
student <- function() new_family("student", "identity")

# degrees of freedom have a gamma(2, 0.1) prior, as in 'brms': their mean is 20
df_prior <- list(shape = 2, rate = 0.1)

log_df_prior <- function(theta) {
  list(value = df_prior$shape * (log(df_prior$rate) + theta) - lgamma(df_prior$shape) - df_prior$rate * exp(theta),
       slope = df_prior$shape - df_prior$rate * exp(theta))
}

# log of the density of student errors of scale 1 at 0, and its derivative in log df
student_level <- function(df) {
  list(value = stats::dt(0, df, log = TRUE), slope = df * (digamma((df + 1) / 2) - digamma(df / 2) - 1 / df) / 2)
}

student_hyper <- list(
  names = c("sigma", "df"), theta_names = c("log sigma", "log df"), natural = exp,
  log_prior = function(priors, theta) {
    sigma <- log_prior_positive(priors[[1L]], theta[1L])
    df <- log_df_prior(theta[2L])
    list(value = sigma$value + df$value, slope = c(sigma$slope, df$slope))
  },
  part = function(theta, problem, solved) {
    total <- sum(problem$weight * problem$frequency)
    level <- student_level(exp(theta[2L]))
    list(value = total * level$value, slope = if (!is.null(solved)) c(0, total * level$slope) - solved$slope)
  },
  loss = exp,
  start = function(unit, problem) log(c(unit * 0.7, 6)),
  curvature = function(count) c(count, pmax(count / 20, 1)),
  moment_scale = function(values, priors) values,
  default_prior = function() exponential(1), with_unit = TRUE)

# parameters of a draw, or at their means: a row, or one for each row of mu
student_parameters <- function(parameters, mu) {
  parameters <- matrix(parameters, ncol = 2L)
  at <- if (nrow(parameters) == 1L) 1L else rep_len(seq_len(nrow(parameters)), length(mu))
  list(sigma = parameters[at, 1L], df = parameters[at, 2L])
}

student_records <- function() {
  list(student = list(
    family = "student", link = "identity", make = student, adapt = as_given,
    response = function(y) list(y = check_vector(y, "y")), trials = FALSE, classes = NULL,
    draws = function(mu, dispersion, trials, family) {
      at <- student_parameters(dispersion, mu)
      mu + at$sigma * stats::rt(length(mu), rep_len(at$df, length(mu)))
    },
    log_lik = function(y, mu, dispersion, trials, family) {
      at <- student_parameters(dispersion, mu)
      stats::dt((y - mu) / at$sigma, at$df, log = TRUE) - log(at$sigma)
    },
    row_constant = function(y, weight) numeric(length(y)), constant = as_summed,
    variance = function(mu, dispersion, family) rep(1, length(mu)),
    deviance = function(y, mu, dispersion, family) {
      at <- student_parameters(dispersion, mu)
      (at$df + 1) * log1p(((y - mu) / at$sigma)^2 / at$df)
    },
    display_response = uncensored, convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, needs_fine_quadrature = TRUE, calibration = list(tail_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = TRUE, positive = FALSE,
    conditional = list(likelihood = "student", dispersion = "own", hyper = student_hyper,
                       start = function(y, weight, dispersion) list(eta = y, c = weight / dispersion[1L]^2)),
    dispersion = NULL))
}
