# Responses in ordered classes 1, ..., K: P(y <= k) = G(cut[k] - eta). The first cut point is 0, because eta has an intercept; the
# distances of the others from the one before are the family's hyperparameters. family.R assembles the records.

#' Regression of ordered classes
#'
#' `cumulative()`, `sratio()`, `cratio()` and `acat()` fit responses in ordered classes, such as grades or stages of a disease.
#'
#' `cumulative()` is the model of [MASS::polr()], of `ordinal::clm()` and of `cumulative()` in 'brms': a latent variable with mean `eta`
#' falls between cut points, `P(y <= k) = G(cut[k] - eta)` with `G` the inverse of the link. A positive coefficient makes higher
#' classes more likely. The response is an ordered factor, or whole numbers from 1 on.
#'
#' The linear predictor keeps its intercept, and the first cut point is 0. The others are hyperparameters `cut[2]`, `cut[3]`, ...
#' `cutpoints()` returns them as other packages do, without an intercept in the predictor: `1|2` is minus the intercept,
#' `2|3` is `cut[2]` minus the intercept, and so on, with the names of the classes.
#'
#' `sratio()` and `cratio()` are for classes that are reached one after the other, such as stages of a disease or grades of a school.
#' `P(y = k | y >= k)` is `G(cut[k] - eta)` for `sratio()` and `1 - G(eta - cut[k])` for `cratio()`: the same with the logit and
#' probit links. `acat()` compares neighbours: the log odds of class `k + 1` against `k` are `eta - cut[k]`. Their thresholds need not be
#' in
#' order. They have the prior `prior_aux`: `normal(0, 5)` each by default.
#'
#' Given the distances between neighbouring cut points, or the thresholds, the log likelihood is concave, and the approximation is
#' certified. [elvi()]
#' integrates over the distances, which have the prior `prior_aux`: `exponential(1)` each by default.
#'
#' `predict(type = "response")` is a matrix of class probabilities, `posterior_epred()` an array draws x rows x classes,
#' `posterior_predict()` a matrix of class numbers with the attribute `levels`. Residuals and R2 do not exist.
#'
#' @param link `"logit"`, `"probit"` or `"cloglog"`.
#' @param object a fit with `family = cumulative()`, `sratio()`, `cratio()` or `acat()`.
#' @param draws number of draws.
#' @param summary return a table of means, standard deviations and quantiles? Otherwise the draws, one row each.
#' @return `cumulative()`, `sratio()`, `cratio()` and `acat()`: a `family` object. `cutpoints()`: a matrix.
#' @seealso [families]
#' @examples
#' fit <- elvi(factor(gear, ordered = TRUE) ~ wt, data = mtcars, family = cumulative())
#' fit
#' cutpoints(fit)
#' predict(fit, mtcars[1:3, ], type = "response")
#' elvi(factor(gear, ordered = TRUE) ~ wt, data = mtcars, family = sratio())
#' @name cumulative
NULL

#' @rdname cumulative
#' @export
cumulative <- function(link = c("logit", "probit", "cloglog")) new_family("cumulative", check_ordinal_link(link))

check_ordinal_link <- function(link) {
  if (is.function(link)) bad_argument("link", "\"logit\", \"probit\" or \"cloglog\"", "a function")
  check_choice(link, "link", c("logit", "probit", "cloglog"))
}

#' @rdname cumulative
#' @export
cutpoints <- function(object, draws = 4000, summary = TRUE) {
  check_class(object, "object", "elvi_glm", "elvi() from a formula")
  classes <- class_names(object$family)
  if (is.null(classes) || !length(family_parameter_names(object))) {
    bad_argument("object", "a fit with family = cumulative(), sratio(), cratio() or acat()",
                 paste0("one with ", object$family$family, "()"))
  }
  drawn <- posterior_draws(object$posterior, check_draws(draws, posterior_dim(object$posterior)))
  out <- cbind(0, family_parameters(object, drawn)) - drawn$x[, 1L]
  colnames(out) <- paste(classes[-length(classes)], classes[-1L], sep = "|")
  if (!check_flag(summary, "summary")) return(out)
  t(apply(out, 2L, function(x) c(mean = mean(x), sd = stats::sd(x), stats::quantile(x, c(0.025, 0.5, 0.975)))))
}

# ---- responses -----------------------------------------------------------------------------

# the names of the classes that a response has
ordinal_levels <- function(y) {
  if (is.ordered(y)) return(levels(y))
  if (is.factor(y) || is.character(y)) {
    bad_argument("y", "an ordered factor, factor(y, levels = ..., ordered = TRUE), or whole numbers from 1 on", describe(y))
  }
  bad <- !is.numeric(y) || any(!is.finite(y)) || any(y < 1) || any(y != floor(y))
  if (bad) {
    odd <- first_bad(y, function(v) !is.finite(v) | v < 1 | v != floor(v))
    bad_argument("y", "an ordered factor, or whole numbers from 1 on", describe(odd))
  }
  as.character(seq_len(max(y)))
}

# every class must occur, or its cut points are known by their priors alone
check_classes <- function(y, classes, numbers = FALSE) {
  if (length(classes) < 3L) {
    bad_argument("y", "an ordered response of at least three classes; binomial() is for two", paste("one of", length(classes)))
  }
  absent <- setdiff(seq_along(classes), y)
  if (length(absent)) {
    refuse_argument("y", "`y`: the class ", describe(classes[absent[1L]]), " never occurs. ",
                    if (numbers) "factor(..., ordered = TRUE) keeps only the numbers that occur as classes."
                    else "Drop it with droplevels(), or join it with a neighbour.")
  }
}

# The family with the classes of this response.
with_classes <- function(family, y, declared) {
  family$levels <- ordinal_levels(y)
  codes <- if (is.factor(y)) as.integer(y) else y
  if (is.factor(y) && length(setdiff(declared, levels(y)))) {
    check_classes(match(levels(y), declared), declared)
  }
  check_classes(codes[!is.na(codes)], family$levels, numbers = !is.factor(y))
  family
}

class_names <- function(family) family$levels

# ---- probabilities -----------------------------------------------------------------------------

# P(y <= k | eta), k = 1, ..., K - 1; the last index is k. `cuts` has a row for each of the first index of eta, or one.
cumulative_probabilities <- function(eta, cuts, family) {
  eta <- as.matrix(eta)
  cuts <- cbind(0, cuts)
  inverse <- stats::make.link(family$link)$linkinv
  out <- array(0, c(dim(eta), ncol(cuts)))
  for (k in seq_len(ncol(cuts))) out[, , k] <- inverse(c(cuts[, k] - eta))
  out
}

# first index of eta x second x K
class_probabilities <- function(eta, cuts, family) {
  eta <- as.matrix(eta)
  below <- cumulative_probabilities(eta, cuts, family)
  K <- dim(below)[3L] + 1L
  out <- array(0, c(dim(eta), K), list(NULL, colnames(eta), class_names(family)))
  for (k in seq_len(K)) out[, , k] <- (if (k < K) below[, , k] else 1) - if (k > 1L) below[, , k - 1L] else 0
  out
}

# of the classes y, without a difference of probabilities near 1
ordinal_log_lik <- function(y, eta, cuts, family) {
  n <- nrow(eta)
  cuts <- cbind(-Inf, 0, cuts, Inf)
  y <- matrix(rep_len(y, length(eta)), n)
  end <- function(k) matrix(if (nrow(cuts) == 1L) cuts[1L, k] else cuts[cbind(c(row(eta)), c(k))], n) - eta
  lower <- end(y)
  upper <- end(y + 1)
  log_difference(upper, lower, ordinal_log_tails[[family$link]])
}

# log G (tail = TRUE) and log(1 - G) of each link
ordinal_log_tails <- list(
  logit = function(x, tail) stats::plogis(x, lower.tail = tail, log.p = TRUE),
  probit = function(x, tail) stats::pnorm(x, lower.tail = tail, log.p = TRUE),
  cloglog = function(x, tail) if (tail) log(-expm1(-exp(x))) else -exp(x))

# log(G(upper) - G(lower)) from log G (tail = TRUE) and log(1 - G), by the smaller tail
log_difference <- function(upper, lower, log_g) {
  left <- lower + upper < 0
  left[is.na(left)] <- TRUE
  big <- ifelse(left, log_g(upper, TRUE), log_g(lower, FALSE))
  small <- ifelse(left, log_g(lower, TRUE), log_g(upper, FALSE))
  big + log1p(-exp(pmin(small - big, 0)))
}

ordinal_draws <- function(eta, cuts, family) {
  below <- cumulative_probabilities(eta, cuts, family)
  u <- matrix(stats::runif(length(eta)), nrow(eta))
  1 + apply(below < c(u), 1:2, sum)
}

# ---- hyperparameters -----------------------------------------------------------------------------

# The log prior of a record whose hyperparameters have one each, with its slope.
independent_log_priors <- function(log_prior) function(priors, theta) {
  each <- Map(log_prior, priors, theta)   # found when it is asked for: records are made before R/prior.R is read
  list(value = sum(vapply(each, `[[`, 0, "value")), slope = unname(vapply(each, `[[`, 0, "slope")))
}

# Logarithms of distances between cut points; shown are the cut points themselves, sums of distances.
distance_hyper <- function(levels) {
  m <- length(levels) - 2L
  list(
    names = sprintf("cut[%d]", 1L + seq_len(m)), theta_names = sprintf("log(cut[%d] - cut[%d])", 1L + seq_len(m), seq_len(m)),
    natural = function(theta) {
      theta <- exp(as.matrix(theta))
      for (j in seq_len(m - 1L)) theta[, j + 1L] <- theta[, j + 1L] + theta[, j]
      theta
    },
    log_prior = independent_log_priors(log_prior_positive),
    part = function(theta, problem, solved) list(value = 0, slope = if (!is.null(solved)) -solved$slope),
    loss = exp,
    start = function(unit, problem) {
      share <- cumsum(tapply(problem$weight * problem$frequency, factor(problem$y, seq_along(levels)), sum))
      cuts <- stats::make.link(problem$family$link)$linkfun(unname((share + 0.5) / (share[length(share)] + 1)))
      log(pmax(diff(cuts[seq_len(m + 1L)]), 0.05))
    },
    curvature = function(count) rep(count / 10, m),
    moment_scale = function(values, priors) values,
    default_prior = function() exponential(1), with_unit = FALSE)
}

# ---- records -----------------------------------------------------------------------------------------

ordinal_start <- function(curvature) function(y, weight, dispersion) {
  cuts <- c(0, cumsum(dispersion))
  cuts <- c(cuts[1L] - 1, cuts, cuts[length(cuts)] + 1)
  list(eta = (cuts[y] + cuts[y + 1]) / 2, c = weight * curvature)
}

no_residual <- function(mu, dispersion, family) rep(NA_real_, length(mu))

cumulative_record <- function(link, exponential, calibration, curvature) {
  name <- paste0("cumulative_", link)
  list(
    family = "cumulative", link = link, make = function() cumulative(link), adapt = with_classes,
    response = function(y) list(y = if (is.factor(y)) as.double(as.integer(y)) else as.double(y)), trials = FALSE,
    classes = class_probabilities,
    draws = function(mu, dispersion, trials, family) ordinal_draws(mu, dispersion, family),
    log_lik = function(y, mu, dispersion, trials, family) ordinal_log_lik(y, mu, dispersion, family),
    row_constant = function(y, weight) numeric(length(y)), constant = as_summed, variance = no_residual,
    deviance = function(y, mu, dispersion, family) rep(NA_real_, length(y)),
    display_response = uncensored, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = exponential, needs_fine_quadrature = TRUE, calibration = calibration,
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = FALSE,
    conditional = list(likelihood = name, dispersion = "own", hyper = distance_hyper, start = ordinal_start(curvature)),
    dispersion = NULL)
}

# Do thresholds of one latent variable decide on the class?
has_latent_variable <- function(family) identical(family_record(family)$classes, class_probabilities)

ordinal_records <- function() {
  list(cumulative_logit = cumulative_record("logit", FALSE, list(softplus_loss), 0.25),
       cumulative_probit = cumulative_record("probit", FALSE, list(miss_loss), 0.6),
       cumulative_cloglog = cumulative_record("cloglog", TRUE, list(hit_loss, exponential_loss), 0.5))
}
