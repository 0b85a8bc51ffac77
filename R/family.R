# What R must know of a family, one record for each family and link; src/likelihood_*.c have a record of
# the same name with its loss. A record that lacks an entry stops the package from loading: nothing is
# assumed of a family that it does not say itself.

#' Response distributions
#'
#' The argument `family` of [elvi()] takes the families of package 'stats' and those of this page.
#'
#' | response | families |
#' |---|---|
#' | real numbers | `gaussian()`; with outliers `robust()` (known degrees of freedom) and `student()` (estimated ones) |
#' | counts | `poisson()`; overdispersed `neg_binomial_2()`, with variance `mu + mu^2 / phi` |
#' | counts with many zeros | `zero_inflated_poisson()`, `zero_inflated_negbinomial()`, `hurdle_poisson()`, `hurdle_negbinomial()` |
#' | counts without zeros | `truncated_poisson()`, `truncated_negbinomial()` |
#' | successes | `binomial()`; overdispersed `beta_binomial()` |
#' | classes | [cumulative()] and [sratio()] (ordered), [categorical()] (unordered) |
#' | positive numbers | `Gamma(link = "log")`, `inverse.gaussian(link = "log")`, `lognormal()` |
#' | times, some censored | `weibull()`, `lognormal()`, `"exponential"` |
#' | proportions between 0 and 1 | `Beta()`, with variance `mu (1 - mu) / (1 + phi)` |
#'
#' @section All families:
#' The last column says what is certified. If the log likelihood is concave in the predictor, the solver of [elvi_optimum()]
#' finds the best approximation and certifies it. "Given `shape`" means that [elvi()] does so at several values of that
#' parameter and integrates over it numerically (from a formula, with `normal()` or `flat()` priors; see [group_terms]).
#' "Stationary point" means that the log likelihood is not concave, and nothing certifies that the approximation is the best
#' one. Importance sampling checks it, see [pareto_k()].
#'
#' | family | links | parameter | exact and certified |
#' |---|---|---|---|
#' | `binomial()` | logit, probit, cloglog | | yes |
#' | `binomial("cauchit")` | cauchit | | a stationary point: not concave where `y` is far from its probability |
#' | `poisson()` | log | | yes |
#' | `gaussian()` | identity | `sigma`, or a known `dispersion` (`sigma^2`) | given `sigma` |
#' | `gaussian("log")` | log | `sigma` | given `sigma`, a stationary point: not concave where `mu < y / 2` |
#' | `Gamma(link = "log")` | log | `shape` (variance `mu^2 / shape`), or a known `dispersion` (`1 / shape`; 1 is exponential) | given `shape` |
#' | `Gamma()` | inverse | `shape` | given `shape`; see below |
#' | `inverse.gaussian(link = "log")` | log | `lambda` (variance `mu^3 / lambda`) | given `lambda`, a stationary point: not concave where `mu > 2 y` |
#' | `neg_binomial_2()` | log | `phi` | given `phi` |
#' | `robust()` | identity | `sigma` | given `sigma`, a stationary point |
#' | `student()` | identity | `sigma`, `df` | given both, a stationary point |
#' | `truncated_poisson()` | log | | yes |
#' | `truncated_negbinomial()` | log | `phi` | given `phi`, a stationary point: not concave where `phi` is small |
#' | `beta_binomial()` | logit | `phi` | given `phi`, a stationary point: not concave where `mu` is far from the share of successes |
#' | `lognormal()` | log | `sigma`, of the logarithm | given `sigma` |
#' | `"exponential"` | log | | yes |
#' | `weibull()` | log | `shape` | given `shape` |
#' | [piecewise_exponential()] | log, of the hazard | | yes |
#' | `Beta()` | logit | `phi` | given `phi`, a stationary point: not concave where `mu` is far from `y` |
#' | [cumulative()] | logit, probit, cloglog | distances between cut points | given the distances |
#' | [sratio()], [cratio()] | logit, probit, cloglog | thresholds | given the thresholds |
#' | [acat()] | logit | thresholds | given the thresholds |
#' | [categorical()], [multinomial()] | logit, a predictor for each class but the first | | yes, up to the error that print() estimates |
#'
#' Links that bound the linear predictor (`"log"` of `binomial()`, `"identity"` and `"sqrt"` of `poisson()`, `"identity"` of
#' `Gamma()`) are not supported: a gaussian approximation has mass at every value of the predictor, and the posterior often lies
#' at the bound. The inverse link of `Gamma()`, its default in R, is an exception, because its likelihood falls steeply at the
#' bound. For means above five times the largest response the log likelihood is continued as a parabola, and no mean is larger
#' than that. For `gaussian("log")`, `weights` say how often a row counts.
#'
#' These families have a second formula, see [second_formulas].
#'
#' | family | links | second parameter | further parameter |
#' |---|---|---|---|
#' | `zero_inflated_poisson()` | log | `zi`, probability of an extra zero (logit): `ziformula` | |
#' | `zero_inflated_negbinomial()` | log | `zi` (logit): `ziformula` | `phi` |
#' | `hurdle_poisson()` | log | `hu`, probability of a zero (logit): `ziformula` | |
#' | `hurdle_negbinomial()` | log | `hu` (logit): `ziformula` | `phi` |
#' | `gaussian()` with `dispformula` | identity | `sigma` (log) | |
#' | `Gamma(link = "log")` with `dispformula` | log | `shape` (log) | |
#' | `neg_binomial_2()` with `dispformula` | log | `phi` (log) | |
#' | `Beta()` with `dispformula` | logit | `phi` (log) | |
#' | `beta_binomial()` with `dispformula` | logit | `phi` (log) | |
#' | `lognormal()` with `dispformula` | log | `sigma` (log) | |
#' | `student()` with `dispformula` | identity | `sigma` (log) | `df` |
#'
#' Their log likelihoods are not concave: the solver finds a stationary point, which importance sampling checks. It also corrects the
#' marginals of coefficients; effects of groups are those of the gaussian approximations.
#'
#' Parameters are positive, have the prior `prior_aux`, and are listed with the coefficients in every table.
#'
#' @section Default priors of the parameters:
#' A default prior does not depend on the unit of the response. That of `sigma` is exponential, and its mean is the
#' standard deviation of the response. The other parameters have an `exponential(1)` prior on a scale
#' without units that is near the coefficient of variation:
#'
#' | family | parameter | `exponential(1)` prior of |
#' |---|---|---|
#' | `Gamma(link = "log")` | `shape` | `1 / sqrt(shape)`, the coefficient of variation |
#' | `inverse.gaussian(link = "log")` | `lambda` | `sqrt(mean(y) / lambda)`, that of an average response |
#' | `neg_binomial_2()` | `phi` | `1 / sqrt(phi)`, the overdispersion |
#' | `weibull()` | `shape` | `1 / shape`, the scale of [survival::survreg()] |
#' | `Beta()`, `beta_binomial()`, `truncated_negbinomial()` | `phi` | `1 / sqrt(phi)` |
#'
#' `sigma` of `lognormal()`, which has no unit, has an `exponential(1)` prior; thresholds of [sratio()], [cratio()] and [acat()] have a
#' `normal(0, 5)` prior.
#'
#' `df` of `student()` has a `gamma(2, 0.1)` prior, as in 'brms'; `prior_aux` is that of its `sigma`, and not used where `sigma` has a
#' formula.
#'
#' Counts without overdispersion do not bound `phi` from above. Its posterior then has no finite mean: use its quantiles, or give a
#' `prior_aux`.
#'
#' A `prior_aux` that you give is a prior of the parameter itself: `prior_aux = exponential(1)` of a Gamma regression says
#' that `shape` is about 1, as in 'rstanarm'. [prior_summary()] shows what was used.
#'
#' @section Overdispersed proportions, and counts without zeros:
#' The response of `beta_binomial()` is `cbind(successes, failures)`, as for `binomial()`. The variance of a proportion of `n` trials is
#' `mu (1 - mu) / n` times `1 + (n - 1) / (1 + phi)`; Pearson residuals leave the last factor out. `exp(eta)` of
#' `truncated_negbinomial()` is the
#' mean of all counts, zeros included. `predict(type = "response")`, `fitted()` and `posterior_epred()` give the mean of the observed
#' counts, `predict(type = "conditional")` that of all counts.
#'
#' @section Times, and censoring:
#' For `weibull()`, `lognormal()` and `"exponential"` (a Weibull distribution of shape 1) the response is a vector of positive
#' times, or [survival::Surv()]`(time, status)`, with times censored on the right. From a formula and data in memory `weibull()`
#' and `lognormal()` also take `Surv(time, status, type = "left")` and `Surv(from, to, type = "interval2")`: times censored on
#' the left or in intervals. print() then calls the family `interval_weibull` or `interval_lognormal`; residuals and
#' `pp_check()` are not available, and `log_lik()` has the log probability of an interval. The mean is `exp(eta)`, as in 'brms':
#' a positive coefficient means longer times. Coefficients are those of [survival::survreg()], up to the intercept, which there
#' is larger by `-lgamma(1 + 1 / shape)`, and for `lognormal()` smaller by `sigma^2 / 2`; times `-shape` they are log hazard
#' ratios. New responses (`posterior_predict()`, `simulate()`) are not censored; `residuals()` treats a censored time as an
#' event, and its deviance residual is positive; `log_lik()` has the log probability of a later time. `method = "mpsgd"` and
#' student priors need [base_uniform()], because the shape is an exponent: under a gaussian distribution of its logarithm and
#' the coefficients, the log likelihood has no expectation.
#'
#' @param df degrees of freedom of the errors, known.
#' @return A `family` object for [elvi()] and, if it has one predictor, [model_glm()].
#' @examples
#' X <- model.matrix(~ speed, data = cars)
#' model_glm(X, cars$dist, family = robust(df = 4), prior = normal(0, 100),
#'           prior_aux = exponential(0.1))
#' model_glm(X, cars$dist, family = neg_binomial_2())
#' set.seed(1)
#' elvi(dist ~ speed, data = cars, family = robust(df = 4))
#' \donttest{
#' elvi(dist ~ speed, data = cars, family = Gamma(link = "log"))
#' # times, some censored
#' if (requireNamespace("survival", quietly = TRUE)) {
#'   elvi(survival::Surv(time, status) ~ sex + age, data = survival::lung, family = weibull())
#'   # times between two visits
#'   d <- data.frame(from = c(NA, 1, 2, 2, 3, 4), to = c(1, 2, 3, 4, NA, NA), x = c(0, 0, 0, 1, 1, 1))
#'   elvi(survival::Surv(from, to, type = "interval2") ~ x, data = d, family = weibull())
#' }
#' }
#' # counts with many zeros
#' d <- data.frame(y = c(0, 0, 3, 0, 1, 0, 0, 4, 2, 0, 0, 5), x = rep(0:1, 6))
#' elvi(y ~ x, data = d, family = zero_inflated_poisson())
#' @name families
NULL

#' @rdname families
#' @export
neg_binomial_2 <- function() new_family("neg_binomial_2", "log")

#' @rdname families
#' @export
robust <- function(df = 4) new_family("robust", "identity", df = check_positive(df, "df"))

#' @rdname families
#' @export
weibull <- function() new_family("weibull", "log")

#' @rdname families
#' @export
Beta <- function() new_family("beta", "logit")

new_family <- function(family, link, ...) {
  parts <- stats::make.link(link)
  structure(list(family = family, link = link, linkfun = parts$linkfun, linkinv = parts$linkinv,
                 mu.eta = parts$mu.eta, valideta = parts$valideta, ...), class = "family")
}

# ---- responses -------------------------------------------------------------------
# y as proportion, count or response, and the number of trials behind each if not 1

count_response <- function(y, name = "y") {
  if (!is.numeric(y) || is.factor(y) || !is.null(dim(y)) || any(y < 0) ||
        any(!is.finite(y)) || any(y != floor(y))) {
    bad_argument(name, "counts (non-negative whole numbers)", describe(first_bad(y, function(v)
      v < 0 | !is.finite(v) | v != floor(v))))
  }
  as.double(y)
}

first_bad <- function(y, test) {
  if (!is.numeric(y) || is.factor(y) || !is.null(dim(y))) return(y)
  y[test(y)][1L]
}

positive_response <- function(y) {
  y <- check_vector(y, "y")
  if (any(y <= 0)) bad_argument("y", "positive numbers", describe(y[y <= 0][1L]))
  y
}

# strictly between 0 and 1
share_response <- function(y) {
  y <- check_vector(y, "y")
  outside <- y <= 0 | y >= 1
  if (any(outside)) bad_argument("y", "numbers between 0 and 1, both excluded", describe(y[outside][1L]))
  y
}

# Times of events, and minus those of responses that are only known to be later.
time_response <- function(y) {
  if (!inherits(y, "Surv")) return(positive_response(y))
  if (!identical(attr(y, "type"), "right")) {
    bad_argument("y", paste("times, or survival::Surv(time, status) with censoring on the right. From a formula, weibull() and lognormal()",
                            "take left and interval censoring too, and piecewise_exponential() takes Surv(start, stop, status)"),
                 paste0("Surv(type = \"", attr(y, "type"), "\")"))
  }
  y <- unclass(y)
  ifelse(y[, "status"] == 1, 1, -1) * positive_response(as.double(y[, "time"]))
}

# A shape or a sigma of times needs some events.
check_some_events <- function(family, y) {
  record <- family_record(family)
  if (is.null(record$conditional$hyper) || !length(y) || !all(y < 0) || !all(record$display_response(y)$censored)) return(invisible())
  refuse_no_events()
}

refuse_no_events <- function() bad_argument("y", "times of which some are events", "all censored")

binomial_response <- function(y) {
  if (is.matrix(y)) {
    shaped <- is.numeric(y) && ncol(y) == 2L
    bad <- if (shaped) !is.finite(y) | y < 0 | y != floor(y)
    if (!shaped || any(bad)) {
      bad_argument("y", "a two-column matrix of counts (successes, failures)",
                   if (shaped) paste("one with", describe(y[bad][1L])) else describe(y))
    }
    trials <- y[, 1L] + y[, 2L]
    return(list(y = as.double(y[, 1L] / pmax(trials, 1)), trials = as.double(trials)))
  }
  if (is.factor(y)) {
    if (nlevels(y) != 2L) {
      refuse_argument("y", sprintf("`y` must be a factor with two levels, not one with %d.", nlevels(y)),
                      if (nlevels(y) > 2L) " cumulative() is for ordered classes, categorical() for others.")
    }
    y <- y == levels(y)[2L]
  }
  if (is.logical(y)) y <- as.double(y)
  if (!is.numeric(y) || !is.null(dim(y)) || !all(y >= 0 & y <= 1)) {
    bad_argument("y", paste("0/1, logical, a factor with two levels, a two-column matrix of counts,",
                            "or proportions with their trials as `weights`"),
                 describe(first_bad(y, function(v) !(v >= 0 & v <= 1))))
  }
  list(y = as.double(y))
}

# Michael, Schucany and Haas (1976): the smaller root of a chi-squared variable, or the larger one.
inverse_gaussian_draws <- function(mu, lambda) {
  n <- length(mu)
  chi <- stats::rnorm(n)^2
  half <- mu * chi / (2 * lambda)
  small <- mu / (1 + half + sqrt(half * (2 + half)))   # without cancellation
  ifelse(stats::runif(n) * (mu + small) <= mu, small, mu^2 / small)
}

# The deviance needs the predictor that fits a response best: where phi pulls neither way.
beta_deviance <- function(y, mu, phi) {
  log_density <- function(mu) stats::dbeta(y, mu * phi, (1 - mu) * phi, log = TRUE)
  low <- rep(-50, length(y))
  high <- rep(50, length(y))
  for (halving in 1:60) {
    middle <- (low + high) / 2
    m <- stats::plogis(middle)
    up <- digamma(pmax(m * phi, 1e-300)) - digamma(pmax((1 - m) * phi, 1e-300)) < stats::qlogis(y)
    low <- ifelse(up, middle, low)
    high <- ifelse(up, high, middle)
  }
  2 * (log_density(stats::plogis(low)) - log_density(mu))
}

# u of a Weibull distribution of mean mu: the time passes e^u in units of the cumulated hazard
weibull_u <- function(y, mu, shape) shape * (log(abs(y)) + lgamma(1 + 1 / shape) - log(mu))

weibull_log_lik <- function(y, mu, shape) {
  u <- weibull_u(y, mu, shape)
  ifelse(y > 0, log(shape) + u - log(abs(y)), 0) - exp(u)
}

weibull_deviance <- function(y, mu, shape) {
  u <- weibull_u(y, mu, shape)
  2 * (exp(u) - ifelse(y > 0, u + 1, 0))
}

# ---- losses to calibrate a quadrature with ------------------------------------------
# l and l', up to signs and linear terms (C has its own), and at which predictors

# phi(t) / Phi(t)
mills <- function(t) .Call(elvi_r_mills, as.double(t))

usual_predictors <- c(0, 0.5, 1, 2, 4)
softplus_loss <- list(l = function(t) pmax(t, 0) + log1p(exp(-abs(t))), slope = stats::plogis, eta = usual_predictors)
miss_loss <- list(l = function(t) -stats::pnorm(t, log.p = TRUE), slope = function(t) -mills(t), eta = usual_predictors,
                  in_C = TRUE)
exponential_loss <- list(l = exp, slope = exp, eta = usual_predictors)
tail_loss <- list(l = function(t) log1p(t^2), slope = function(t) 2 * t / (1 + t^2), eta = usual_predictors)   # of student laws
arctan_loss <- list(l = function(t) -stats::pcauchy(t, log.p = TRUE), slope = function(t) -stats::dcauchy(t) / stats::pcauchy(t),
                    eta = c(-4, -2, -1, -0.5, 0, 0.5, 1, 2, 4))
hit_loss <- list(
  l = function(t) {
    out <- -t
    low <- which(t >= -37 & t < 0)
    high <- which(t >= 0)
    out[low] <- -log(-expm1(-exp(t[low])))
    out[high] <- -log1p(-exp(-exp(t[high])))
    out
  },
  slope = function(t) {
    out <- -(t < 6.5)
    bent <- which(t >= -37 & t < 6.5)
    out[bent] <- -exp(t[bent]) / expm1(exp(t[bent]))
    out
  },
  eta = c(-4, -2, -1, -0.5, 0, 0.5, 1, 2, 4))

# ---- records -------------------------------------------------------------------------

# What each entry is. `dispersion` may be NULL; the others may not.
family_entries <- c(
  "family",           # names of the family object that this is for
  "link",
  "make",             # function() of that family object
  "adapt",            # function(family, y, declared): the family object as this response makes it, with the names of its classes if
                      # it has any; declared: levels of the factor that it comes from
  "response",         # function(y): list(y, trials), checked; trials NULL where there are none
  "trials",           # may new responses be counts out of several trials?
  "classes",          # function(eta, parameters, family): probabilities of classes; NULL: the response is a number
  "mean",             # function(mu, dispersion): the expected response where that is not mu, the inverse of the link; else NULL
  "draws",            # function(mu, dispersion, trials, family): responses around their means
  "log_lik",          # function(y, mu, dispersion, trials, family)
  "row_constant",     # function(y, weight): of each row, log likelihood plus loss in C, without terms of the dispersion
  "constant",         # function(total, count, dispersion, family): of all rows, from the sum of row constants and from
                      # `count` of check_rows(); with those of the dispersion where it is known, NULL: it is a parameter
  "variance",         # function(mu, dispersion, family): of a response of weight 1, up to glm()'s dispersion
  "deviance",         # function(y, mu, dispersion, family): that of a response of weight 1, as glm() has it
  "display_response", # function(y): list(y, censored), responses as people read them, and which are only known to be larger
  "convex",           # is the loss convex in the predictor? Then it has an expectation in C
  "curvature_bound",  # the largest second derivative of the loss in the predictor; NA: unbounded
  "bound_attained",   # function(rows): is that known to be attained?
  "constant_curvature",  # is it the same everywhere?
  "exponential",      # does the loss have an exponential, whose expectation need not exist?
  "needs_fine_quadrature",  # does the loss have a bend, which a quadrature must resolve?
  "calibration",      # losses to integrate: the first always, the others where exp() has no closed form
  "is_recession",     # function(move, y, small): along such a move of the predictors, can the loss only fall?
  "separable",        # what is separable then; NA: nothing is
  "autoscale",        # are priors rescaled by the spread of the response?
  "positive",         # are responses positive numbers with a unit, and the predictor a logarithm? Then the intercept's prior moves with it;
                      # -1 where the predictor is minus that
  "pieces",           # function(formula, family, data, call, env) that splits observations into rows, see split_times() in
                      # family-piecewise.R; NULL: an observation is a row
  "conditional",      # given its dispersion, as the sparse solver sees it, see conditional_entries; NULL: it cannot solve it
  "dispersion",       # the parameter beside the predictor, see dispersion_entries
  "second")           # further predictors: of a second parameter, see second_entries in family-joint.R, or of classes, see
                      # shared_entries in family-class.R; NULL: there are none

conditional_entries <- c(
  "likelihood",       # its name in C: a negative binomial of known phi is a logistic regression
  "start",            # function(y, weight, dispersion): list(eta, c), predictors and curvatures near the responses
  "dispersion",       # which of the kinds in nested_dispersion.c an unknown dispersion is
  "hyper")            # the family's own hyperparameters, see hyperparameter_entries; NULL: there are none

# A vector `theta` of any length, on a scale without bounds. A problem has a prior for each of its natural counterparts.
hyperparameter_entries <- c(
  "names",            # of the parameters themselves
  "theta_names",      # on the scale without bounds
  "natural",          # function(theta): from rows of theta to rows of parameters
  "log_prior",        # function(priors, theta): list(value, slope), log density of theta from the priors of the parameters
  "part",             # function(theta, problem, solved): what they add to the log likelihood, and the derivative in theta
  "loss",             # function(theta): the positive numbers that the loss in C has of them, the dispersion first
  "start",            # function(unit, problem): where to start from, given that of the residuals
  "curvature",        # function(count): of a full data fit, roughly
  "moment_scale",     # function(values, priors): parameters, by columns, on a scale on which they have moments
  "default_prior",    # function(): the prior of each where the record has no `dispersion`, whose default it would be
  "with_unit")        # has the first that of the response? Then that prior is rescaled by its spread

dispersion_entries <- c(
  "natural",          # its name; the model has its logarithm
  "may_be_known",     # through the argument `dispersion`?
  "known",            # function(dispersion): it itself, if so
  "residual",         # is it the standard deviation of what the predictor leaves, which sigma() reports?
  "counted",          # are distinct responses counted for its terms, as they are few? Data larger than memory do so in their survey
  "precision",        # does a weight divide its square, as those of glm() do? Else rows count as often as it says
  "exponential",      # how many exponentials of its logarithm the loss has, one in the other: 0, 1 or 2
  "tally",            # function(rows) of what needs terms of the dispersion alone, see elvi_family in src/family.h
  "unit",             # function(dispersion): moves of a predictor that change the loss by about 1
  "start",            # function(model): list(x, evaluations), from where Newton's method finds the mode
  "tail",             # function(rows, flat): a, if the likelihood bounds it from above as dispersion^-a
  "unbounded",        # function(rows, flat): what leaves it unbounded, in words
  "relative",         # of which power of it, free of units, is the default prior? See relative_scale(); NULL: of it itself
  "lost")             # why there may be no mode, in words

# (dispersion / unit)^exponent is near the coefficient of variation. The unit is the mean response if `by_level`, else 1.
# `words` says so, given the unit as text.
relative_scale <- function(exponent, words, by_level = FALSE) list(exponent = exponent, words = words, by_level = by_level)

# What predictions and default priors must know of a link: is the expected response the predictor itself, is it an exponential of it, does
# it fall where the predictor rises? Of positive responses whose mean has the given logarithm: the predictor, and the size of its changes.
link_entries <- c("straight", "exponential", "falls", "at_mean")
new_link <- function(straight = FALSE, exponential = FALSE, falls = FALSE, at_mean = function(log_mean) list(level = log_mean, size = 1)) {
  list(straight = straight, exponential = exponential, falls = falls, at_mean = at_mean)
}
link_records <- list(
  identity = new_link(straight = TRUE), log = new_link(exponential = TRUE), logit = new_link(), probit = new_link(), cloglog = new_link(),
  cauchit = new_link(), inverse = new_link(falls = TRUE, at_mean = function(log_mean) list(level = exp(-log_mean), size = exp(-log_mean))))

link_of <- function(family) link_records[[family$link]]

no_bound <- function(rows) FALSE

uncensored <- function(y) list(y = y, censored = rep(FALSE, length(y)))
as_times <- function(y) list(y = abs(y), censored = y < 0)

# c from the inverse of the link and its derivative at the proportions, shrunk
binomial_conditional <- function(link, eta, curvature) {
  list(likelihood = link,
       start = function(y, weight, dispersion) {
         p <- (weight * y + 0.5) / (weight + 1)
         list(eta = eta(p), c = weight * curvature(p))
       },
       dispersion = "none", hyper = NULL)
}

# ---- constants of the likelihood -------------------------------------------------------

as_summed <- function(total, count, dispersion, family) total

# Binomial coefficients of trials, the weights. They need not be whole: a row of 0 or 1 has none, whatever its weight.
binomial_row_constant <- function(y, weight) {
  out <- numeric(length(y))
  several <- which(y > 0 & y < 1)
  n <- weight[several]
  k <- n * y[several]
  near <- abs(k - round(k)) < 1e-3   # as check_proportions() has it
  k[near] <- round(k[near])
  out[several] <- -log1p(n) - lbeta(n - k + 1, k + 1)
  out
}

# of times, those that are not censored
time_row_constant <- function(y, weight) ifelse(y > 0, -weight * log(abs(y)), 0)

# The loss is shape times the loss for shape 1, which the row constants belong to.
gamma_constant <- function(total, count, dispersion, family) {
  if (is.null(dispersion)) return(total)
  shape <- 1 / dispersion
  (1 - shape) * total + count * (shape * log(shape) - lgamma(shape))
}

# ---- dispersions as hyperparameters ----------------------------------------------------

# element by element, so that one call does for many points
first_log_prior <- function(priors, theta) log_prior_positive(priors[[1L]], theta)

# one positive parameter, by its logarithm
positive_hyper <- function(name, part, start, curvature, default_prior = function() exponential(1), with_unit = FALSE) {
  list(names = name, theta_names = paste("log", name), natural = exp,
       log_prior = first_log_prior,
       part = part, loss = exp, start = start, curvature = curvature,
       # that of its prior: phi of counts that vary like poisson ones has no mean
       moment_scale = function(values, priors) values^exponent_of(priors[[1L]]),
       default_prior = default_prior, with_unit = with_unit)
}

sigma_hyper <- positive_hyper("sigma",
  part = function(a, problem, solved) {
    n <- problem$count   # weights are precisions
    list(value = -n * a, slope = if (!is.null(solved)) 2 * solved$loss - n)
  },
  start = function(unit, problem) log(unit),
  curvature = function(count) 2 * count)

# the loss has all of it: a -log likelihood, up to constants
robust_hyper <- positive_hyper("sigma",
  part = function(a, problem, solved) list(value = 0, slope = if (!is.null(solved)) -solved$slope),
  start = function(unit, problem) log(unit),
  curvature = function(count) count)

# phi log(1 - y) of each response beside that
beta_hyper <- positive_hyper("phi",
  part = function(a, problem, solved) {
    logs <- exp(a) * sum(problem$weight * problem$frequency * log1p(-problem$y))
    list(value = logs, slope = if (!is.null(solved)) logs - solved$slope)
  },
  start = function(unit, problem) 1,
  curvature = function(count) count / 2)

# (log lambda - lambda / y) / 2 of each response beside the loss, which is lambda times what it is for 1
inverse_gaussian_hyper <- positive_hyper("lambda",
  part = function(a, problem, solved) {
    w <- problem$weight * problem$frequency
    inverse <- exp(a) * sum(w / problem$y)
    list(value = (sum(w) * a - inverse) / 2, slope = if (!is.null(solved)) (sum(w) - inverse) / 2 - solved$loss)
  },
  start = function(unit, problem) -log(mean(1 / problem$y)),   # lambda has the unit of the response
  curvature = function(count) count / 2)

phi_hyper <- positive_hyper("phi",
  part = function(a, problem, solved) {
    y <- problem$y
    w <- problem$weight * problem$frequency
    phi <- exp(a)
    seen <- y > 0
    list(value = -sum(w[seen] * lbeta(phi, y[seen])),   # and log y is in the row's constant
         slope = if (!is.null(solved)) {
           phi * (sum(w * (digamma(y + phi) - digamma(phi))) - solved$level) + solved$slope
         })
  },
  start = function(unit, problem) 0,
  curvature = function(count) 1)

shape_hyper <- positive_hyper("shape",
  part = function(a, problem, solved) {
    events <- sum((problem$weight * problem$frequency)[problem$y > 0])
    list(value = events * a, slope = if (!is.null(solved)) events - solved$slope)
  },
  start = function(unit, problem) 0,
  curvature = function(count) count)

# k (log k + log y) - log Gamma(k) of each response, which has k (eta + y e^-eta), or what another link has, beside that: `slope_of` says
# the solver's bound on its derivative in log k
gamma_part <- function(slope_of) {
  function(a, problem, solved) {
    w <- problem$weight * problem$frequency
    k <- exp(a)
    total <- sum(w)
    logs <- sum(w * log(problem$y))
    list(value = total * (k * a - lgamma(k)) + k * logs,
         slope = if (!is.null(solved)) k * (total * (a + 1 - digamma(k)) + logs) - slope_of(solved))
  }
}

gamma_hyper <- positive_hyper("shape", part = gamma_part(function(solved) solved$loss),
  start = function(unit, problem) 0,
  curvature = function(count) count / 2)

binomial_record <- function(link, ..., convex = TRUE) {
  c(list(
    family = "binomial", link = link, make = function() stats::binomial(link),
    response = binomial_response, trials = TRUE,
    draws = function(mu, dispersion, trials, family) stats::rbinom(length(mu), trials, mu),
    log_lik = function(y, mu, dispersion, trials, family) stats::dbinom(round(y * trials), trials, mu, log = TRUE),
    row_constant = binomial_row_constant, constant = as_summed,
    variance = function(mu, dispersion, family) mu * (1 - mu),
    deviance = function(y, mu, dispersion, family) stats::binomial()$dev.resids(y, mu, rep(1, length(y))),
    display_response = uncensored, convex = convex, constant_curvature = FALSE, needs_fine_quadrature = TRUE,
    is_recession = function(move, y, small) {
      all(ifelse(y == 1, move > -small, ifelse(y == 0, move < small, abs(move) < small)))
    },
    separable = "the two classes", autoscale = FALSE, positive = FALSE, dispersion = NULL), list(...))
}

sigma_record <- function(...) {
  c(list(
    natural = "sigma", known = sqrt, unit = identity, residual = TRUE, counted = FALSE, relative = NULL,
    # As sigma grows every flat coefficient may spread with it: the posterior falls off like
    # sigma^(flat - n), and the prior must do the rest.
    tail = function(rows, flat) rows$count - flat,
    unbounded = function(rows, flat) {
      sprintf("%g observations and %d coefficients of flat prior leave sigma unbounded", rows$count, flat)
    },
    lost = paste("the coefficients may fit the responses perfectly, and sigma then runs off to 0.",
                 "Use fewer coefficients, or gaussian() with a known `dispersion`.")), list(...))
}

# A precision of positive responses, which grows without bound only where the coefficients fit all of them.
positive_record <- function(..., exponential = 1, unit = function(dispersion) 1 / sqrt(dispersion)) {
  c(list(
    precision = FALSE, exponential = exponential, unit = unit, residual = FALSE, counted = FALSE,
    tail = function(rows, flat) if (rows$count > flat) Inf else 0,
    unbounded = function(rows, flat) {
      sprintf("%g observations and %d coefficients of flat prior leave the dispersion unbounded", rows$count, flat)
    },
    lost = paste("the coefficients may fit the responses perfectly, and their dispersion then runs off to 0.",
                 "Use fewer coefficients.")), list(...))
}

# one number in place of a response for each row
mean_tally <- function(rows, of) {
  refuse_chunked(rows)
  used <- rows$weight > 0
  total <- sum(rows$weight[used])
  list(y = sum(rows$weight[used] * of(rows$y[used])) / total, weight = total)
}

# Times until something happens, of mean e^eta. `shape` of what the record's functions are given as dispersion
time_record <- function(family, make, shape, ...) {
  c(list(
    family = family, link = "log", make = make,
    response = function(y) list(y = time_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) {
      stats::rweibull(length(mu), shape(dispersion), mu / gamma(1 + 1 / shape(dispersion)))
    },
    log_lik = function(y, mu, dispersion, trials, family) weibull_log_lik(y, mu, shape(dispersion)),
    row_constant = time_row_constant, constant = as_summed,
    deviance = function(y, mu, dispersion, family) weibull_deviance(y, mu, shape(dispersion)), display_response = as_times,
    convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, needs_fine_quadrature = FALSE, calibration = list(exponential_loss),
    # later than a censored time is later still
    is_recession = function(move, y, small) all(move > -small) && all(abs(move[y > 0]) < small),
    separable = "censored times", autoscale = FALSE, positive = TRUE), list(...))
}

time_conditional <- function(likelihood, dispersion, hyper) {
  list(likelihood = likelihood, dispersion = dispersion, hyper = hyper,
       start = function(y, weight, dispersion) {
         list(eta = log(abs(y)) + lgamma(1 + 1 / dispersion), c = weight * dispersion^2)
       })
}

as_given <- function(family, y, declared) family

# A response that is a number, of a family that does not depend on it.
number_records <- function(records) {
  lapply(records, function(record) c(record, if (is.null(record$adapt)) list(adapt = as_given), list(classes = NULL)))
}

numeric_records <- list(
  logit = binomial_record(
    "logit", curvature_bound = 0.25, bound_attained = function(rows) all(rows$offset == 0), exponential = FALSE,
    calibration = list(softplus_loss),
    conditional = binomial_conditional("logit", stats::qlogis, function(p) p * (1 - p))),

  probit = binomial_record(
    "probit", curvature_bound = 1, bound_attained = no_bound, exponential = FALSE, calibration = list(miss_loss),
    conditional = binomial_conditional("probit", stats::qnorm, function(p) stats::dnorm(stats::qnorm(p))^2 / (p * (1 - p)))),

  cloglog = binomial_record(
    "cloglog", curvature_bound = NA_real_, bound_attained = no_bound, exponential = TRUE,
    calibration = list(hit_loss, exponential_loss),
    conditional = binomial_conditional("cloglog", function(p) log(-log1p(-p)), function(p) (1 - p) / p * log1p(-p)^2)),

  cauchit = binomial_record(
    "cauchit", convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, exponential = FALSE,
    calibration = list(arctan_loss),
    conditional = binomial_conditional("cauchit", stats::qcauchy, function(p) stats::dcauchy(stats::qcauchy(p))^2 / (p * (1 - p)))),

  poisson = list(
    family = "poisson", link = "log", make = stats::poisson,
    response = function(y) list(y = count_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rpois(length(mu), mu),
    log_lik = function(y, mu, dispersion, trials, family) stats::dpois(y, mu, log = TRUE),
    row_constant = function(y, weight) -weight * lgamma(y + 1), constant = as_summed,
    variance = function(mu, dispersion, family) mu,
    deviance = function(y, mu, dispersion, family) stats::poisson()$dev.resids(y, mu, rep(1, length(y))),
    display_response = uncensored, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, needs_fine_quadrature = FALSE, calibration = list(exponential_loss),
    is_recession = function(move, y, small) all(move < small) && all(abs(move[y > 0]) < small),
    separable = "the counts", autoscale = FALSE, positive = FALSE,
    conditional = list(likelihood = "poisson", dispersion = "none", hyper = NULL,
                       start = function(y, weight, dispersion) list(eta = log(y + 0.5), c = weight * (y + 0.5))),
    dispersion = NULL),

  normal = list(
    family = "gaussian", link = "identity", make = stats::gaussian,
    response = function(y) list(y = check_vector(y, "y")), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rnorm(length(mu), mu, dispersion),
    log_lik = function(y, mu, dispersion, trials, family) stats::dnorm(y, mu, dispersion, log = TRUE),
    row_constant = function(y, weight) log(weight / (2 * pi)) / 2,   # weights are precisions
    constant = function(total, count, dispersion, family) total - count * log(dispersion %||% 1) / 2,
    variance = function(mu, dispersion, family) rep(1, length(mu)),
    deviance = function(y, mu, dispersion, family) (y - mu)^2,
    display_response = uncensored, convex = TRUE, curvature_bound = 1, bound_attained = function(rows) TRUE, constant_curvature = TRUE,
    exponential = FALSE, needs_fine_quadrature = FALSE, calibration = list(),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = TRUE, positive = FALSE,
    conditional = list(likelihood = "normal", start = function(y, weight, dispersion) list(eta = y, c = weight),
                       dispersion = "sigma", hyper = sigma_hyper),
    dispersion = sigma_record(may_be_known = TRUE, precision = TRUE, exponential = 1,
                              tally = function(rows) list(y = 0, weight = rows$count - sum(rows$weight)),
                              start = function(model) scale_start(model, 3L))),

  neg_binomial_2 = list(
    family = "neg_binomial_2", link = "log", make = neg_binomial_2,
    response = function(y) list(y = count_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rnbinom(length(mu), size = dispersion, mu = mu),
    log_lik = function(y, mu, dispersion, trials, family) stats::dnbinom(y, size = dispersion, mu = mu, log = TRUE),
    row_constant = function(y, weight) ifelse(y > 0, -weight * log(y), 0), constant = as_summed,
    variance = function(mu, dispersion, family) mu + mu^2 / dispersion,
    deviance = function(y, mu, dispersion, family) {
      2 * (y * log(pmax(y, 1) / mu) - (y + dispersion) * log((y + dispersion) / (mu + dispersion)))
    },
    display_response = uncensored, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, needs_fine_quadrature = TRUE, calibration = list(softplus_loss),
    is_recession = function(move, y, small) all(move < small) && all(abs(move[y > 0]) < small),
    separable = "the counts", autoscale = FALSE, positive = FALSE,
    conditional = list(likelihood = "logit", dispersion = "phi", hyper = phi_hyper,
                       start = function(y, weight, dispersion) {
      m <- y + 0.5
      list(eta = log(m), c = weight * m * dispersion / (m + dispersion))
    }),
    dispersion = list(
      natural = "phi", may_be_known = FALSE, known = NULL, residual = FALSE, counted = TRUE, precision = FALSE, exponential = 1,
      tally = function(rows) tally_of(rows, rows$y > 0),
      unit = function(dispersion) 1, start = function(model) count_start(model),
      relative = relative_scale(-1 / 2, function(unit) "1 / sqrt(phi)"),
      # as phi grows the likelihood tends to the poisson one and does nothing
      tail = function(rows, flat) 0,
      unbounded = function(rows, flat) "the likelihood does not bound phi from above",
      lost = "f may have no minimum. Give proper priors such as normal(0, 2.5) and `prior_aux` = exponential(1).")),

  robust = list(
    family = "robust", link = "identity", make = robust,
    response = function(y) list(y = check_vector(y, "y")), trials = FALSE,
    draws = function(mu, dispersion, trials, family) mu + dispersion * stats::rt(length(mu), family$df),
    log_lik = function(y, mu, dispersion, trials, family) {
      stats::dt((y - mu) / dispersion, family$df, log = TRUE) - log(dispersion)
    },
    row_constant = function(y, weight) numeric(length(y)),
    constant = function(total, count, dispersion, family) total + count * stats::dt(0, family$df, log = TRUE),
    variance = function(mu, dispersion, family) rep(1, length(mu)),
    deviance = function(y, mu, dispersion, family) (family$df + 1) * log1p(((y - mu) / dispersion)^2 / family$df),
    display_response = uncensored, convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, needs_fine_quadrature = TRUE, calibration = list(tail_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = TRUE, positive = FALSE,
    conditional = list(likelihood = "robust", dispersion = "own", hyper = robust_hyper,
                       start = function(y, weight, dispersion) list(eta = y, c = weight / dispersion[1L]^2)),
    dispersion = sigma_record(
      may_be_known = FALSE, precision = FALSE, exponential = 0, tally = function(rows) no_tally,
      start = function(model) scale_start(model, 10L))),   # the EM algorithm

  gamma = list(
    family = "Gamma", link = "log", make = function() stats::Gamma("log"),
    response = function(y) list(y = positive_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rgamma(length(mu), dispersion, scale = mu / dispersion),
    log_lik = function(y, mu, dispersion, trials, family) stats::dgamma(y, dispersion, scale = mu / dispersion, log = TRUE),
    row_constant = function(y, weight) -weight * log(y), constant = gamma_constant,
    variance = function(mu, dispersion, family) mu^2,
    deviance = function(y, mu, dispersion, family) stats::Gamma()$dev.resids(y, mu, rep(1, length(y))),
    display_response = uncensored, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, needs_fine_quadrature = FALSE, calibration = list(exponential_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = TRUE,
    conditional = list(likelihood = "gamma", dispersion = "factor", hyper = gamma_hyper,
                       start = function(y, weight, dispersion) list(eta = log(y), c = weight * dispersion)),
    dispersion = positive_record(
      natural = "shape", may_be_known = TRUE, known = function(dispersion) 1 / dispersion,
      tally = function(rows) mean_tally(rows, log), relative = relative_scale(-1 / 2, function(unit) "1 / sqrt(shape)"),
      start = function(model) positive_start(model, function(y, mu) ((y - mu) / mu)^2))),

  inverse_gaussian = list(
    family = "inverse.gaussian", link = "log", make = function() stats::inverse.gaussian("log"),
    response = function(y) list(y = positive_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) inverse_gaussian_draws(mu, dispersion),
    log_lik = function(y, mu, dispersion, trials, family) {
      (log(dispersion) - log(2 * pi * y^3) - dispersion * (y - mu)^2 / (mu^2 * y)) / 2
    },
    row_constant = function(y, weight) -weight * (log(2 * pi) + 3 * log(y)) / 2, constant = as_summed,
    variance = function(mu, dispersion, family) mu^3,
    deviance = function(y, mu, dispersion, family) stats::inverse.gaussian()$dev.resids(y, mu, rep(1, length(y))),
    display_response = uncensored, convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, needs_fine_quadrature = FALSE, calibration = list(exponential_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = TRUE,
    conditional = list(likelihood = "inverse_gaussian", dispersion = "factor", hyper = inverse_gaussian_hyper,
                       start = function(y, weight, dispersion) list(eta = log(y), c = weight * dispersion[1L] / y)),
    dispersion = positive_record(
      natural = "lambda", may_be_known = FALSE, known = NULL,
      tally = function(rows) mean_tally(rows, function(y) 1 / y),
      relative = relative_scale(-1 / 2, function(unit) sprintf("sqrt(%s / lambda)", unit), by_level = TRUE),
      start = function(model) positive_start(model, function(y, mu) (y - mu)^2 / (mu^2 * y)))),

  exponential = time_record(
    "exponential", function() new_family("exponential", "log"), function(dispersion) 1,
    variance = function(mu, dispersion, family) mu^2, dispersion = NULL,
    conditional = time_conditional("exponential", "none", NULL)),

  weibull = time_record(
    "weibull", weibull, identity, adapt = with_intervals,
    variance = function(mu, dispersion, family) mu^2 * expm1(lgamma(1 + 2 / dispersion) - 2 * lgamma(1 + 1 / dispersion)),
    conditional = time_conditional("weibull", "own", shape_hyper),
    dispersion = positive_record(
      natural = "shape", may_be_known = FALSE, known = NULL, exponential = 2, unit = function(dispersion) 1 / dispersion,
      relative = relative_scale(-1, function(unit) "1 / shape"),
      tally = function(rows) list(y = 0, weight = mean_tally(rows, function(y) y > 0)$y * mean_tally(rows, abs)$weight),
      start = function(model) {
        found <- inner_mode(inner_glm(model, "exponential"))
        list(x = c(found$x, 0), evaluations = found$evaluations)
      })),

  beta = list(
    family = "beta", link = "logit", make = Beta,
    response = function(y) list(y = share_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rbeta(length(mu), mu * dispersion, (1 - mu) * dispersion),
    log_lik = function(y, mu, dispersion, trials, family) {
      stats::dbeta(y, mu * dispersion, (1 - mu) * dispersion, log = TRUE)
    },
    row_constant = function(y, weight) -weight * (log(y) + log1p(-y)), constant = as_summed,
    variance = function(mu, dispersion, family) mu * (1 - mu) / (1 + dispersion),
    deviance = function(y, mu, dispersion, family) beta_deviance(y, mu, dispersion),
    display_response = uncensored, convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, needs_fine_quadrature = TRUE, calibration = list(softplus_loss),
    is_recession = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, positive = FALSE,
    conditional = list(likelihood = "beta", dispersion = "own", hyper = beta_hyper,
                       start = function(y, weight, dispersion) {
                         list(eta = stats::qlogis(y), c = weight * dispersion[1L] * y * (1 - y))
                       }),
    dispersion = positive_record(
      natural = "phi", may_be_known = FALSE, known = NULL, relative = relative_scale(-1 / 2, function(unit) "1 / sqrt(phi)"),
      tally = function(rows) mean_tally(rows, function(y) log1p(-y)), start = function(model) share_start(model))))

# of records with one predictor; nearly all have a link to the mean
with_defaults <- function(record) c(record, if (is.null(record$mean)) list(mean = NULL), list(second = NULL))

one_predictor_records <- lapply(c(number_records(numeric_records), ordinal_records(), student_records(), truncated_records(),
                                  lognormal_records(), beta_binomial_records(), step_records(), curved_records(),
                                  interval_records(numeric_records$weibull, lognormal_records()$lognormal), piecewise_records(),
                                  inverse_records()),
                                with_defaults)
family_records <- lapply(c(one_predictor_records, joint_records(one_predictor_records), class_records()), function(record) {
  c(record, if (!"pieces" %in% names(record)) list(pieces = NULL))
})

# The family's hyperparameters; their number may depend on that of the classes.
hyper_record <- function(record, classes = NULL) {
  hyper <- record$conditional$hyper
  if (is.function(hyper)) hyper(classes) else hyper
}

# Are its hyperparameters no dispersion of a stochastic run, so that only quadrature over them can fit it?
is_nested_only <- function(family) {
  record <- family_record(family)
  is.null(record$dispersion) && !is.null(record$conditional$hyper)
}

# Without a parameter to integrate over, but with a loss that is not convex: the nested solver finds its stationary point, and the search
# for the mode of a stochastic run, Newton's method, does not.
lacks_mode_search <- function(family) {
  record <- family_record(family)
  !record$convex && is.null(record$dispersion) && !is_joint(record)
}

# Stops unless every record has every entry and no other.
check_family_records <- function(records) {
  complain <- function(name, has, wants) {
    odd <- c(setdiff(wants, has), setdiff(has, wants))
    if (length(odd)) stop("the family record `", name, "` lacks, or should not have: ", toString(odd), call. = FALSE)
  }
  for (name in names(records)) {
    record <- records[[name]]
    complain(name, names(record), family_entries)
    complain(paste0(name, "$link"), names(link_of(record)), link_entries)
    if (!is.null(record$conditional)) {
      complain(paste0(name, "$conditional"), names(record$conditional), conditional_entries)
      hyper <- hyper_record(record, c("1", "2", "3"))
      if (!is.null(hyper)) {
        complain(paste0(name, "$conditional$hyper"), names(hyper), hyperparameter_entries)
        lengths <- lengths(list(hyper$names, hyper$theta_names, hyper$curvature(1)))
        if (length(unique(lengths)) > 1L) stop("the hyperparameters of `", name, "` differ in length", call. = FALSE)
      }
    }
    if (!is.null(record$dispersion)) complain(paste0(name, "$dispersion"), names(record$dispersion), dispersion_entries)
    if (is_joint(record)) complain(paste0(name, "$second"), names(record$second), if (is_shared(record)) shared_entries else second_entries)
  }
  invisible(records)
}

check_family_records(family_records)

# Run when the package is loaded: each record has its other half in src/likelihood_*.c, with all that its way of being
# integrated over a dispersion needs.
check_family_twins <- function(names = base::names(Filter(Negate(is_joint), family_records)), records = family_records) {
  dispersions <- vapply(names, function(name) records[[name]]$conditional$dispersion %||% NA_character_, "")
  alone <- names[!.Call(elvi_r_has_family, names, dispersions)]
  if (length(alone)) stop("families whose record in src/likelihood_*.c is missing or not whole: ", toString(alone), call. = FALSE)
}

# ---- finding one ---------------------------------------------------------------------

# the name of the record of a family object, which is that of its likelihood in C
likelihood_of <- function(family) {
  name <- family_table[[family$family]][family_key(family$link, family$component)]
  if (length(name) == 1L && !is.na(name)) name[[1L]] else character()
}

# What tells the records of a family apart: its link, and whether its dispersion has a formula. A fit asks a dozen times, so there is
# a table.
family_key <- function(link, component) if (identical(component, "disp")) paste(link, component) else link
family_table <- local({
  keys <- vapply(family_records, function(r) family_key(r$link, r$second$component), "")
  split(stats::setNames(names(keys), keys), vapply(family_records, function(r) r$family, ""))
})

# the record of a model or of a family object
family_record <- function(x) {
  family_records[[if (inherits(x, "family")) likelihood_of(x) else x$likelihood]]
}

known_families <- function() family_names
family_names <- vapply(family_records, function(r) r$family, "")
# what a user can ask for: weibull() and lognormal() become interval_*() by themselves, where the response has intervals
public_families <- function() unique(grep("^interval_", known_families(), value = TRUE, invert = TRUE))

check_family <- function(family) {
  if (is.function(family)) family <- family()
  if (inherits(family, "family") && !inherits(family, "brmsfamily") && length(likelihood_of(family))) return(family)
  # the prior of that name, which is what exponential() makes, says as much
  if (inherits(family, "elvi_prior") && is_exponential(family) && family$rate == 1) family <- "exponential"
  family <- translated_family(family)
  if (is.character(family) && length(family) == 1L && family %in% known_families()) {
    family <- family_records[[match(family, known_families())]]$make()
  }
  if (!inherits(family, "family") || !family$family %in% known_families()) {
    refuse_misspelt_family(family)
    bad_argument("family", paste("a family, or the name of one:", join_or(paste0("\"", public_families(), "\""))),
                 if (inherits(family, "family")) paste0(family$family, "()") else describe(family))
  }
  refuse_bounded_link(family)
  links <- unique(vapply(family_records[known_families() == family$family], function(r) r$link, ""))
  if (!family$link %in% links) {
    bad_argument("family", paste0(family$family, "() with link ", join_or(paste0("\"", links, "\""))),
                 paste0("link \"", family$link, "\""))
  }
  family
}

refuse_misspelt_family <- function(family) {
  near <- if (is.character(family) && length(family) == 1L && !is.na(family)) nearest_name(family, public_families())
  if (is.null(near)) return(invisible())
  elvi_abort("`family`: elvi has no family ", describe(family), ".", near, class = "elvi_error_argument", data = list(argument = "family"))
}

# "a, b or c"
join_or <- function(x) sub(", ([^,]*)$", " or \\1", toString(x))

# NULL when the family has a dispersion to estimate
check_dispersion <- function(dispersion, family) {
  unknown <- family_record(family)$dispersion
  if (is_nested_only(family) && (is.null(dispersion) || identical(dispersion, 1))) return(NULL)
  if (is.null(dispersion) && !is.null(unknown)) return(NULL)
  if (!is.null(unknown) && !unknown$may_be_known) {
    if (identical(dispersion, 1)) return(NULL)   # the default
    unused_argument("dispersion", paste0(unknown$natural, " of the ", family$family, " family is always estimated"))
  }
  dispersion <- check_positive(dispersion, "dispersion")
  if (is.null(unknown) && dispersion != 1) {
    bad_argument("dispersion", paste("1 for the", family$family, "family"), describe(dispersion))
  }
  dispersion
}

# n responses; all of them, if `whole`
check_response <- function(y, record, n, whole = TRUE, family = NULL) {
  if (NROW(y) != n) {
    bad_argument("y", sprintf("of length %.0f, the number of rows of `X`", n),
                 paste("of length", NROW(y)))
  }
  if (anyNA(y)) {
    refuse_missing("y", NA, sprintf("at position %.0f", which(is.na(y))[1L]))
  }
  if (!is.null(record$classes) && !is.numeric(y) && !is.null(family)) y <- factor(as.character(y), class_names(family), ordered = TRUE)
  if (has_intervals(y) && !is.null(family$levels)) y <- interval_numbers(y, family)
  if (inherits(y, "Surv")) refuse_times(record)
  if (is.factor(y) && is.null(record$classes) && !record$trials) {
    refuse_argument("y", "`y` must be numeric for this family, not a factor. binomial() is for two classes, ",
                    "cumulative() for ordered ones, categorical() for others.")
  }
  out <- record$response(y)
  if (whole) warn_if_constant(out$y, n)
  out
}

# of families whose responses are never censored
refuse_times <- function(record) {
  if (!identical(record$display_response, uncensored)) return(invisible())
  bad_argument("family", "weibull(), lognormal(), \"exponential\" or piecewise_exponential() for a response of survival::Surv()",
               paste0(record$family, "()"))
}

# n responses, with the extremes in `y`
warn_if_constant <- function(y, n) {
  if (n > 1 && all(y == y[1L])) {
    elvi_warn("`y` is constant: its ", n, " values are all ", format(y[1L]),
              " and say nothing about the slopes.", class = "elvi_warning_constant_response")
  }
}
