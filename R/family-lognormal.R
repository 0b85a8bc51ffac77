# Positive numbers whose logarithms are normal; times with this distribution may be censored.

#' @rdname families
#' @export
lognormal <- function() new_family("lognormal", "log")

# u for a distribution of mean mu: standard normal
lognormal_u <- function(y, mu, sigma) (log(abs(y)) - log(mu)) / sigma + sigma / 2

lognormal_log_lik <- function(y, mu, sigma) {
  u <- lognormal_u(y, mu, sigma)
  ifelse(y > 0, stats::dnorm(u, log = TRUE) - log(sigma) - log(abs(y)), stats::pnorm(u, lower.tail = FALSE, log.p = TRUE))
}

lognormal_hyper <- function() {
  positive_hyper("sigma",
    part = function(a, problem, solved) list(value = 0, slope = if (!is.null(solved)) -solved$slope),
    start = function(unit, problem) log(positive_sd(log(abs(problem$y)))),
    curvature = function(count) 2 * count)
}

lognormal_records <- function() {
  list(lognormal = list(
    family = "lognormal", link = "log", make = lognormal, adapt = with_intervals,
    response = function(y) list(y = time_response(y)), trials = FALSE, classes = NULL,
    draws = function(mu, dispersion, trials, family) {
      sigma <- c(dispersion)
      stats::rlnorm(length(mu), log(mu) - sigma^2 / 2, sigma)
    },
    log_lik = function(y, mu, dispersion, trials, family) lognormal_log_lik(y, mu, c(dispersion)),
    row_constant = function(y, weight) ifelse(y > 0, -weight * (log(abs(y)) + log(2 * pi) / 2), 0), constant = as_summed,
    variance = function(mu, dispersion, family) mu^2 * expm1(dispersion^2),
    deviance = function(y, mu, dispersion, family) {
      u <- lognormal_u(y, mu, dispersion)
      ifelse(y > 0, u^2, -2 * stats::pnorm(u, lower.tail = FALSE, log.p = TRUE))
    },
    display_response = as_times, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, needs_fine_quadrature = TRUE, calibration = list(miss_loss),
    is_recession = function(move, y, small) all(move > -small) && all(abs(move[y > 0]) < small),
    separable = NA, autoscale = FALSE, positive = TRUE,
    conditional = list(likelihood = "lognormal", dispersion = "own", hyper = lognormal_hyper(),
                       start = function(y, weight, dispersion) {
                         list(eta = log(abs(y)) + dispersion[1L]^2 / 2, c = weight / dispersion[1L]^2)
                       }),
    dispersion = NULL))
}
