# Responses in ordered classes 1, ..., K that are reached one after the other, or compared with their neighbours. The first threshold is 0,
# because eta has an intercept; the others, any numbers, are the family's hyperparameters. See family-ordinal.R for cumulative().

#' @rdname cumulative
#' @export
sratio <- function(link = c("logit", "probit", "cloglog")) new_family("sratio", check_ordinal_link(link))

#' @rdname cumulative
#' @export
cratio <- function(link = c("logit", "probit", "cloglog")) new_family("cratio", check_ordinal_link(link))

#' @rdname cumulative
#' @export
acat <- function() new_family("acat", "logit")

# ---- probabilities -----------------------------------------------------------------------------

# log of the probability to stop at each threshold, and to go on: eta's dimensions x thresholds
step_logs <- function(eta, cuts, family) {
  eta <- as.matrix(eta)
  cuts <- cbind(0, cuts)
  log_g <- ordinal_log_tails[[family$link]]
  stops <- goes <- array(0, c(dim(eta), ncol(cuts)))
  for (j in seq_len(ncol(cuts))) {
    t <- c(eta - cuts[, j])
    rises <- family$family == "cratio"   # F(t) to go on; sratio() has F(-t) to stop
    stops[, , j] <- if (rises) log_g(t, FALSE) else log_g(-t, TRUE)
    goes[, , j] <- if (rises) log_g(t, TRUE) else log_g(-t, FALSE)
  }
  list(stops = stops, goes = goes)
}

# log probabilities of the classes: eta's dimensions x K
step_class_logs <- function(eta, cuts, family) {
  eta <- as.matrix(eta)
  at <- step_logs(eta, cuts, family)
  m <- dim(at$stops)[3L]
  out <- array(0, c(dim(eta), m + 1L))
  reached <- 0
  for (k in seq_len(m + 1L)) {
    out[, , k] <- reached + if (k <= m) at$stops[, , k] else 0
    if (k <= m) reached <- reached + at$goes[, , k]
  }
  out
}

adjacent_class_logs <- function(eta, cuts, family) {
  eta <- as.matrix(eta)
  cuts <- cbind(0, cuts)
  out <- array(0, c(dim(eta), ncol(cuts) + 1L))
  for (k in seq_len(ncol(cuts))) out[, , k + 1L] <- out[, , k] + c(eta - cuts[, k])
  most <- apply(out, 1:2, max)
  out <- out - c(most)
  out - c(log(apply(exp(out), 1:2, sum)))
}

class_logs <- list(sratio = step_class_logs, cratio = step_class_logs, acat = adjacent_class_logs)

sequence_probabilities <- function(eta, cuts, family) {
  eta <- as.matrix(eta)
  out <- exp(class_logs[[family$family]](eta, cuts, family))
  dimnames(out) <- list(NULL, colnames(eta), class_names(family))
  out
}

sequence_log_lik <- function(y, eta, cuts, family) {
  eta <- as.matrix(eta)
  logs <- class_logs[[family$family]](eta, cuts, family)
  matrix(logs[cbind(c(row(eta)), c(col(eta)), rep_len(y, length(eta)))], nrow(eta))
}

sequence_draws <- function(eta, cuts, family) {
  eta <- as.matrix(eta)
  p <- exp(class_logs[[family$family]](eta, cuts, family))
  u <- stats::runif(length(eta))
  below <- 0
  y <- rep(1, length(eta))
  for (k in seq_len(dim(p)[3L] - 1L)) {
    below <- below + c(p[, , k])
    y <- y + (u > below)
  }
  matrix(y, nrow(eta))
}

# ---- hyperparameters -----------------------------------------------------------------------------

# Thresholds without an order, so they may have any sign.
threshold_hyper <- function(levels) {
  m <- length(levels) - 2L
  names <- sprintf("cut[%d]", 1L + seq_len(m))
  list(
    names = names, theta_names = names, natural = identity,
    log_prior = independent_log_priors(log_prior_real),
    part = function(theta, problem, solved) list(value = 0, slope = if (!is.null(solved)) -solved$slope),
    loss = exp,
    start = function(unit, problem) {
      counts <- tapply(problem$weight * problem$frequency, factor(problem$y, seq_along(levels)), sum)
      start <- threshold_starts[[problem$family$family]](unname(counts), stats::make.link(problem$family$link))
      start[-1L] - start[1L]
    },
    curvature = function(count) rep(count / 10, m),
    moment_scale = function(values, priors) values,
    default_prior = function() normal(0, 5), with_unit = FALSE)
}

# thresholds of a model without predictors, from the numbers of responses in the classes
stop_shares <- function(counts) (counts + 0.5) / (rev(cumsum(rev(counts))) + 1)
threshold_starts <- list(
  sratio = function(counts, link) link$linkfun(stop_shares(counts)[-length(counts)]),
  cratio = function(counts, link) -link$linkfun(1 - stop_shares(counts)[-length(counts)]),
  acat = function(counts, link) -diff(log(counts + 0.5)))

log_prior_real <- function(prior, x) {
  if (has_rate(prior) || any(is.infinite(prior$scale))) {
    bad_argument("prior_aux", "normal(), student_t() or cauchy()", format(prior),
                 "thresholds of sratio(), cratio() and acat() may be negative")
  }
  z <- (x - prior$location) / prior$scale
  if (is.infinite(prior$df)) return(list(value = stats::dnorm(z, log = TRUE) - log(prior$scale), slope = -z / prior$scale))
  list(value = stats::dt(z, prior$df, log = TRUE) - log(prior$scale),
       slope = -(prior$df + 1) * z / (prior$df + z^2) / prior$scale)
}

# ---- records -----------------------------------------------------------------------------------------

# between the thresholds around a class
threshold_start <- function(curvature) function(y, weight, dispersion) {
  cuts <- c(0, log(dispersion))
  last <- length(cuts)
  list(eta = ifelse(y > last, cuts[last] + 1, cuts[pmin(y, last)] + ifelse(y > 1, 0, -1)), c = weight * curvature)
}

step_record <- function(family, link, exponential, calibration, curvature) {
  record <- cumulative_record(link, exponential, calibration, curvature)
  name <- paste0(family, "_", link)
  record[c("family", "make", "classes")] <- list(family, function() new_family(family, link), sequence_probabilities)
  record$draws <- function(mu, dispersion, trials, family) sequence_draws(mu, dispersion, family)
  record$log_lik <- function(y, mu, dispersion, trials, family) sequence_log_lik(y, mu, dispersion, family)
  record$conditional <- list(likelihood = name, dispersion = "own", hyper = threshold_hyper, start = threshold_start(curvature))
  record
}

step_records <- function() {
  both <- function(family) {
    out <- list(step_record(family, "logit", FALSE, list(softplus_loss), 0.25), step_record(family, "probit", FALSE, list(miss_loss), 0.6),
                step_record(family, "cloglog", TRUE, list(hit_loss, exponential_loss), 0.5))
    stats::setNames(out, paste0(family, c("_logit", "_probit", "_cloglog")))
  }
  c(both("sratio"), both("cratio"), list(acat_logit = step_record("acat", "logit", FALSE, list(softplus_loss), 0.5)))
}
