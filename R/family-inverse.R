# Gamma responses with the inverse link. A predictor that is not positive has no mean, and a gaussian approximation gives weight to every
# predictor: below a floor, where the mean is five times the largest response, the loss is continued by a parabola. The floor is `levels`
# of the family object, which the loss has behind the shape.

floored_inverse <- function(family, y, declared) {
  floor <- if (is.numeric(y) && length(y) && all(y > 0)) 1 / (5 * max(y)) else 0   # else the response is refused later
  family$levels <- floor
  family$linkinv <- function(eta) 1 / pmax(eta, floor)
  family$mu.eta <- function(eta) -1 / pmax(eta, floor)^2
  family$valideta <- function(eta) TRUE
  family
}

inverse_shape_hyper <- function(floor) {
  out <- positive_hyper("shape", part = gamma_part(function(solved) solved$slope[1L]),
    start = function(unit, problem) 0, curvature = function(count) count / 2,
    default_prior = function() {
      default_aux_prior(list(dispersion = list(relative = relative_scale(-1 / 2, function(unit) "1 / sqrt(shape)"))))
    })
  out$loss <- function(theta) c(exp(theta), floor)
  out
}

# -log t, with its parabola below a small t that no node of a coarse rule is to reach
log_loss <- local({
  low <- 0.05
  list(l = function(t) ifelse(t > low, -log(pmax(t, low)), (t / low / 2 - 2) * t / low + 1.5 - log(low)),
       slope = function(t) ifelse(t > low, -1 / pmax(t, low), (t / low - 2) / low), eta = 1)
})

inverse_records <- function() {
  gamma <- numeric_records$gamma
  record <- number_records(list(gamma))[[1L]]
  record[c("link", "make", "adapt", "exponential", "needs_fine_quadrature")] <-
    list("inverse", function() stats::Gamma("inverse"), floored_inverse, FALSE, TRUE)
  record$draws <- function(mu, dispersion, trials, family) gamma$draws(mu, c(dispersion), trials, family)
  record$log_lik <- function(y, mu, dispersion, trials, family) gamma$log_lik(y, mu, c(dispersion), trials, family)
  record$constant <- as_summed
  record$calibration <- list(log_loss)
  record$conditional <- list(likelihood = "gamma_inverse", dispersion = "own", hyper = inverse_shape_hyper,
                             start = function(y, weight, dispersion) {
                               mu <- (y + stats::weighted.mean(y, weight)) / 2
                               list(eta = 1 / mu, c = weight * dispersion[1L] * mu^2)
                             })
  record["dispersion"] <- list(NULL)
  list(gamma_inverse = record)
}
