# Normal errors around exp(eta).

curved_hyper <- function() {
  positive_hyper("sigma",
    part = function(a, problem, solved) list(value = 0, slope = if (!is.null(solved)) -solved$slope),
    start = function(unit, problem) log(positive_sd(problem$y) / 2),
    curvature = function(count) 2 * count, with_unit = TRUE)
}

# The predictor is a logarithm, so a response has to say where to start.
curved_start <- function(y, weight, dispersion) {
  level <- max(mean(y), stats::sd(y) / 10, 1e-8)
  mu <- pmax(y, level / 4)
  list(eta = log(mu), c = weight * mu^2 / dispersion[1L]^2)
}

refuse_negative_level <- function(family, y, declared) {
  if (is.numeric(y) && !all(y <= 0)) return(family)
  refuse_argument("y", "`y` has no positive values, and with the log link means are positive.")
}

curved_records <- function() {
  list(normal_log = list(
    family = "gaussian", link = "log", make = function() stats::gaussian("log"), adapt = refuse_negative_level,
    response = function(y) list(y = check_vector(y, "y")), trials = FALSE, classes = NULL,
    draws = function(mu, dispersion, trials, family) stats::rnorm(length(mu), mu, c(dispersion)),
    log_lik = function(y, mu, dispersion, trials, family) stats::dnorm(y, mu, c(dispersion), log = TRUE),
    row_constant = function(y, weight) rep(-log(2 * pi) / 2, length(y)) * weight, constant = as_summed,
    variance = function(mu, dispersion, family) rep(1, length(mu)),
    deviance = function(y, mu, dispersion, family) (y - mu)^2,
    display_response = uncensored, convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, needs_fine_quadrature = FALSE, calibration = list(exponential_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = TRUE,
    conditional = list(likelihood = "normal_log", dispersion = "own", hyper = curved_hyper(), start = curved_start),
    dispersion = NULL))
}
