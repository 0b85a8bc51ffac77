# Successes of several trials, whose probability varies between rows by more than the predictor says.

#' @rdname families
#' @export
beta_binomial <- function() new_family("beta_binomial", "logit")

# A row has one number, so that of trials and that of successes are packed in it; src/likelihood_beta.c takes them apart.
trial_unit <- 2^26

packed_trials <- function(successes, trials) trials * trial_unit + successes

unpacked_trials <- function(y) {
  n <- floor(y / trial_unit)
  list(k = y - n * trial_unit, n = n)
}

beta_binomial_response <- function(y) {
  if (!is.matrix(y)) {
    if (is.numeric(y) && any(y %% 1 != 0)) {
      bad_argument("y", "successes and failures, cbind(k, n - k)", describe(y[y %% 1 != 0][1L]),
                   "a proportion does not say how many trials there were")
    }
    seen <- binomial_response(y)
    return(list(y = packed_trials(seen$y, 1)))
  }
  seen <- binomial_response(y)
  if (any(seen$trials >= trial_unit)) bad_argument("y", sprintf("at most %.0f trials in a row", trial_unit - 1), describe(max(seen$trials)))
  list(y = packed_trials(round(seen$y * seen$trials), seen$trials))
}

# of the data that are fitted; new data may have single trials
refuse_single_trials <- function(family, y, declared) {
  if (!is.matrix(y) || all(rowSums(y) < 2)) {
    elvi_abort("`y` has a single trial in each row, which says nothing about how much the probability of success varies. ",
               "Use binomial(), or give counts: cbind(successes, failures).", class = "elvi_error_argument", data = list(argument = "y"))
  }
  family
}

beta_binomial_log_lik <- function(k, n, mu, phi) {
  a <- mu * phi
  b <- (1 - mu) * phi
  ifelse(n > 0, lchoose(n, k) + lbeta(a + k, b + n - k) - lbeta(a, b), 0)
}

# phi has no mean where counts vary no more than binomial ones
beta_binomial_hyper <- function() {
  positive_hyper("phi",
    part = function(a, problem, solved) list(value = 0, slope = if (!is.null(solved)) -solved$slope),
    start = function(unit, problem) 1, curvature = function(count) count / 4, default_prior = root_phi_prior)
}

root_phi_prior <- function() {
  default_aux_prior(list(dispersion = list(relative = relative_scale(-1 / 2, function(unit) "1 / sqrt(phi)"))))
}

beta_binomial_records <- function() {
  list(beta_binomial = list(
    family = "beta_binomial", link = "logit", make = beta_binomial, adapt = refuse_single_trials,
    response = beta_binomial_response, trials = TRUE, classes = NULL,
    draws = function(mu, dispersion, trials, family) {
      phi <- c(dispersion)
      stats::rbinom(length(mu), trials, stats::rbeta(length(mu), mu * phi, (1 - mu) * phi))
    },
    log_lik = function(y, mu, dispersion, trials, family) beta_binomial_log_lik(round(y * trials), trials, mu, c(dispersion)),
    row_constant = function(y, weight) {
      seen <- unpacked_trials(y)
      weight * lchoose(seen$n, seen$k)
    },
    constant = as_summed,
    # of a share of one trial: what several add is left out, as glm() leaves a dispersion out
    variance = function(mu, dispersion, family) mu * (1 - mu),
    deviance = no_deviance,
    display_response = function(y) {
      seen <- unpacked_trials(y)
      uncensored(seen$k / pmax(seen$n, 1))
    },
    convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, needs_fine_quadrature = TRUE, calibration = list(softplus_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = FALSE,
    conditional = list(likelihood = "beta_binomial", dispersion = "own", hyper = beta_binomial_hyper(),
                       start = function(y, weight, dispersion) {
                         seen <- unpacked_trials(y)
                         p <- (seen$k + 0.5) / (seen$n + 1)
                         phi <- dispersion[1L]
                         list(eta = stats::qlogis(p), c = weight * p * (1 - p) * pmax(seen$n * (1 + phi) / (seen$n + phi), 0.01))
                       }),
    dispersion = NULL))
}
