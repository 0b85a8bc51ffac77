# Times of which some are censored on the left or in an interval. A row needs two numbers then, so the solver has the distinct
# intervals in a table, `levels` of the family object, and a response is the number of its interval. weibull() and lognormal() become
# these families when the response has intervals.

# ---- responses -----------------------------------------------------------------------------------------

# beginning and end of each time: equal where it is seen, 0 or Inf where it is unbounded
interval_ends <- function(y) {
  type <- attr(y, "type")
  y <- unclass(y)
  if (type == "interval") {
    from <- ifelse(y[, "status"] == 2, 0, y[, "time1"])
    to <- ifelse(y[, "status"] == 3, y[, "time2"], ifelse(y[, "status"] == 0, Inf, y[, "time1"]))
  } else {
    seen <- y[, "status"] == 1
    from <- ifelse(seen | type == "right", y[, "time"], 0)
    to <- ifelse(seen | type == "left", y[, "time"], Inf)
  }
  cbind(from = as.double(from), to = as.double(to))
}

has_intervals <- function(y) inherits(y, "Surv") && attr(y, "type") %in% c("left", "interval")

check_ends <- function(ends) {
  bad <- !(ends[, "to"] > 0) | ends[, "from"] < 0 | (ends[, "from"] == 0 & is.infinite(ends[, "to"]))
  bad <- bad | ends[, "from"] > ends[, "to"]
  if (any(bad)) {
    bad_argument("y", "intervals of positive times", sprintf("one from %g to %g", ends[bad, "from"][1L], ends[bad, "to"][1L]))
  }
  ends
}

# The family for a response with intervals, with their table; the unchanged family for other responses.
with_intervals <- function(family, y, declared) {
  if (!has_intervals(y)) return(family)
  ends <- unique(check_ends(interval_ends(y)))
  if (all(ends[, "to"] == Inf)) refuse_no_events()
  new_family(paste0("interval_", sub("^interval_", "", family$family)), "log", levels = ends)
}

# the number of each response's interval in the family's table
interval_numbers <- function(y, family) {
  key <- function(ends) paste(format(ends[, 1L], digits = 17), format(ends[, 2L], digits = 17))
  at <- match(key(interval_ends(y)), key(family$levels))
  if (anyNA(at)) {
    odd <- interval_ends(y)[is.na(at), , drop = FALSE][1L, ]
    refuse_argument("newdata", sprintf("`newdata` has an interval that the fit has not seen: from %g to %g.", odd[1L], odd[2L]))
  }
  as.double(at)
}

# one number for each interval, to start from: its middle on the scale of logarithms, or the end that is known
interval_middle <- function(ends) {
  open <- ends[, 1L] == 0 | is.infinite(ends[, 2L])
  known <- ifelse(ends[, 1L] == 0, ends[, 2L], ends[, 1L])
  ifelse(open, known, sqrt(pmax(ends[, 1L] * ends[, 2L], 0)))   # check_ends() refuses negative ones later
}

no_display <- function(y) {
  elvi_abort("`object`: residuals, R2, calibrate() and plots of the responses need each response as a number. Times that are ",
             "censored on the left or in intervals are not. Use log_lik() or posterior_predict().", class = "elvi_error_argument",
             data = list(argument = "object"))
}

# ---- log likelihoods ---------------------------------------------------------------------------------------

# log density where both ends agree, else the log probability of the interval, from the functions of a distribution
interval_log_lik <- function(y, family, density, tail) {
  from <- family$levels[y, 1L]
  to <- family$levels[y, 2L]
  ifelse(from == to, density(from), {
    big <- ifelse(from > 0, tail(from), 0)
    big + log(-expm1(pmin(ifelse(is.finite(to), tail(to), -Inf) - big, 0)))
  })
}

interval_weibull_log_lik <- function(y, mu, shape, family) {
  scale <- mu / gamma(1 + 1 / shape)
  interval_log_lik(y, family, function(t) stats::dweibull(t, shape, scale, log = TRUE),
                   function(t) stats::pweibull(t, shape, scale, lower.tail = FALSE, log.p = TRUE))
}

interval_lognormal_log_lik <- function(y, mu, sigma, family) {
  centre <- log(mu) - sigma^2 / 2
  interval_log_lik(y, family, function(t) stats::dlnorm(t, centre, sigma, log = TRUE),
                   function(t) stats::plnorm(t, centre, sigma, lower.tail = FALSE, log.p = TRUE))
}

# ---- records -----------------------------------------------------------------------------------------------------

# The parameter of the distribution; the loss has the table in addition.
interval_hyper <- function(name, start, curvature, default_prior) function(levels) {
  ends <- as.double(t(if (is.matrix(levels)) levels else cbind(1, 2)))
  out <- positive_hyper(name, part = function(a, problem, solved) list(value = 0, slope = if (!is.null(solved)) -solved$slope[1L]),
                        start = function(unit, problem) start(interval_middle(levels)[problem$y]), curvature = curvature,
                        default_prior = default_prior)
  out$loss <- function(theta) c(exp(theta), ends)
  out
}

inverse_shape_prior <- function() {
  default_aux_prior(list(dispersion = list(relative = relative_scale(-1, function(unit) "1 / shape"))))
}

# the middles of the intervals of a table as the loss has it
loss_middles <- function(y, dispersion) interval_middle(matrix(dispersion[-1L], ncol = 2L, byrow = TRUE))[y]

interval_record <- function(base, log_lik, hyper, start, calibration, exponential) {
  name <- paste0("interval_", base$family)
  list(
    family = name, link = "log", make = function() new_family(name, "log"), adapt = with_intervals,
    response = function(y) list(y = as.double(y)), trials = FALSE, classes = NULL,
    draws = function(mu, dispersion, trials, family) base$draws(c(mu), c(dispersion), trials, family),
    log_lik = function(y, mu, dispersion, trials, family) log_lik(y, mu, c(dispersion), family),
    row_constant = function(y, weight) numeric(length(y)), constant = as_summed,
    variance = base$variance, deviance = no_deviance, display_response = no_display, convex = TRUE, curvature_bound = NA_real_,
    bound_attained = no_bound, constant_curvature = FALSE, exponential = exponential, needs_fine_quadrature = TRUE,
    calibration = calibration, is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = TRUE,
    conditional = list(likelihood = name, dispersion = "own", hyper = hyper, start = start), dispersion = NULL)
}

interval_records <- function(weibull, lognormal) {
  list(
    interval_weibull = interval_record(
      weibull, interval_weibull_log_lik,
      interval_hyper("shape", function(middle) 0, function(count) count, inverse_shape_prior),
      function(y, weight, dispersion) {
        k <- dispersion[1L]
        list(eta = log(loss_middles(y, dispersion)) + lgamma(1 + 1 / k), c = weight * k^2)
      }, list(hit_loss, exponential_loss), exponential = TRUE),
    interval_lognormal = interval_record(
      lognormal, interval_lognormal_log_lik,
      interval_hyper("sigma", function(middle) log(positive_sd(log(middle))), function(count) 2 * count, function() exponential(1)),
      function(y, weight, dispersion) {
        sigma <- dispersion[1L]
        list(eta = log(loss_middles(y, dispersion)) + sigma^2 / 2, c = weight / sigma^2)
      }, list(miss_loss), exponential = FALSE))
}
