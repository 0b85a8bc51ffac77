# Counts whose zeros are not observed.

#' @rdname families
#' @export
truncated_poisson <- function() {
  family <- new_family("truncated_poisson", "log")
  # the mean of the counts that are seen; that of all of them is exp(eta)
  family$linkinv <- function(eta) truncated_mean(exp(eta))
  family$linkfun <- function(mu) truncated_link(mu)
  family$mu.eta <- function(eta) {
    m <- exp(eta)
    mean <- truncated_mean(m)
    mean * (1 + m - mean)
  }
  family
}

# m / (1 - e^-m)
truncated_mean <- function(m) ifelse(m < 1e-8, 1 + m / 2, m / -expm1(-m))

# its inverse, on the scale of logarithms: Newton's method
truncated_link <- function(mu) {
  eta <- log(pmax(mu - 1, 1e-8) * ifelse(mu < 2, 1.6, 1))
  for (step in 1:60) {
    m <- exp(eta)
    mean <- truncated_mean(m)
    eta <- eta - pmax(pmin((mean - mu) / pmax(mean * (1 + m - mean), 1e-300), 1), -1)
  }
  eta
}

positive_counts <- function(y, family = "truncated_poisson()", other = "poisson()") {
  y <- count_response(y)
  if (any(y == 0)) {
    elvi_abort("`y` has zeros, which ", family, " excludes. Use ", other, ", or a hurdle or zero-inflated family.",
               class = "elvi_error_argument", data = list(argument = "y"))
  }
  y
}

# by inversion: a uniform number above P(0)
truncated_poisson_draws <- function(rate) {
  none <- exp(-rate)
  u <- none + (1 - none) * stats::runif(length(rate))
  pmax(stats::qpois(pmin(u, 1 - 1e-16), rate), 1)
}

truncated_records <- function() {
  rate <- function(mu) exp(truncated_link(mu))
  log_lik <- function(y, rate) stats::dpois(y, rate, log = TRUE) - log(-expm1(-rate))
  list(truncated_poisson = list(
    family = "truncated_poisson", link = "log", make = truncated_poisson, adapt = as_given,
    response = function(y) list(y = positive_counts(y)), trials = FALSE, classes = NULL,
    draws = function(mu, dispersion, trials, family) truncated_poisson_draws(rate(mu)),
    log_lik = function(y, mu, dispersion, trials, family) log_lik(y, rate(mu)),
    row_constant = function(y, weight) -weight * lgamma(y + 1), constant = as_summed,
    variance = function(mu, dispersion, family) mu * (1 + rate(mu) - mu),
    deviance = function(y, mu, dispersion, family) {
      best <- ifelse(y > 1, log_lik(y, exp(truncated_link(pmax(y, 1.5)))), 0)   # a 1 is sure in the limit of no others
      2 * pmax(best - log_lik(y, rate(mu)), 0)
    },
    display_response = uncensored, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, needs_fine_quadrature = TRUE, calibration = list(hit_loss, exponential_loss),
    is_recession = function(move, y, small) all(move < small) && all(abs(move[y > 1]) < small),
    separable = "the counts", autoscale = FALSE, positive = FALSE,
    conditional = list(likelihood = "truncated_poisson", dispersion = "none", hyper = NULL,
                       start = function(y, weight, dispersion) list(eta = log(y), c = weight * y)),
    dispersion = NULL),
    truncated_negbinomial = truncated_negbin_record())
}

# ---- negative binomial ---------------------------------------------------------------------------------

#' @rdname families
#' @export
truncated_negbinomial <- function() new_family("truncated_negbinomial", "log")

# mean and variance of the counts that are seen, given the rate of all of them
truncated_negbin_mean <- function(rate, phi) rate / -expm1(-phi * log1p(rate / phi))

truncated_negbin_variance <- function(rate, phi) {
  mean <- truncated_negbin_mean(rate, phi)
  mean * (1 + rate + rate / phi - mean)
}

truncated_negbin_log_lik <- function(y, rate, phi) {
  stats::dnbinom(y, size = phi, mu = rate, log = TRUE) - log(-expm1(-phi * log1p(rate / phi)))
}

truncated_negbin_draws <- function(rate, phi) {
  none <- exp(-phi * log1p(rate / phi))
  u <- none + (1 - none) * stats::runif(length(rate))
  pmax(stats::qnbinom(pmin(u, 1 - 1e-16), size = phi, mu = rate), 1)
}

truncated_negbin_record <- function() {
  hyper <- inflated_phi_hyper()
  hyper$default_prior <- root_phi_prior
  list(
    family = "truncated_negbinomial", link = "log", make = truncated_negbinomial, adapt = as_given,
    response = function(y) list(y = positive_counts(y, "truncated_negbinomial()", "neg_binomial_2()")), trials = FALSE, classes = NULL,
    mean = function(mu, dispersion) truncated_negbin_mean(mu, c(dispersion)),
    draws = function(mu, dispersion, trials, family) truncated_negbin_draws(mu, c(dispersion)),
    log_lik = function(y, mu, dispersion, trials, family) truncated_negbin_log_lik(y, mu, c(dispersion)),
    row_constant = function(y, weight) -weight * log(y), constant = as_summed,
    variance = function(mu, dispersion, family) truncated_negbin_variance(mu, dispersion), deviance = no_deviance,
    display_response = uncensored, convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, needs_fine_quadrature = TRUE, calibration = list(softplus_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = FALSE,
    conditional = list(likelihood = "truncated_negbinomial", dispersion = "own", hyper = hyper,
                       start = function(y, weight, dispersion) {
                         list(eta = log(y), c = weight * y * dispersion[1L] / (y + dispersion[1L]))
                       }),
    dispersion = NULL)
}
