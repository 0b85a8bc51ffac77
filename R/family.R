# What R must know of a family, one record for each family and link; src/likelihood.c has a record of
# the same name with its loss. A record that lacks an entry stops the package from loading: nothing is
# assumed of a family that it does not say itself.

#' Families beyond those of stats
#'
#' `neg_binomial_2()` is the negative binomial with mean `mu` and variance `mu +
#' mu^2 / phi`, `robust()` a regression with student errors, which outlying
#' responses do not pull. Both leave a parameter to estimate, see [model_glm()].
#'
#' @section All families:
#' What is exact: for families with an exact objective the solver of [elvi_optimum()] finds the best approximation
#' and certifies it. The others are fitted by stochastic gradients, checked by [pareto_k()].
#'
#' | family | links | parameter | exact |
#' |---|---|---|---|
#' | `binomial()` | logit, probit, cloglog | | yes |
#' | `poisson()` | log | | yes |
#' | `gaussian()` | identity | `sigma`, or a known `dispersion` (`sigma^2`) | with known `dispersion` |
#' | `Gamma(link = "log")` | log | `shape` (variance `mu^2 / shape`), or a known `dispersion` (`1 / shape`; 1 is exponential) | with known `dispersion` |
#' | `inverse.gaussian(link = "log")` | log | `lambda` (variance `mu^3 / lambda`) | no: its loss is not convex |
#' | `neg_binomial_2()` | log | `phi` | no |
#' | `robust()` | identity | `sigma` | no: its loss is not convex |
#'
#' Parameters are positive, have the prior `prior_aux`, and stand beside the coefficients in every table.
#'
#' @param df degrees of freedom of the errors, known.
#' @return A `family` object for [model_glm()].
#' @examples
#' X <- model.matrix(~ speed, data = cars)
#' model_glm(X, cars$dist, family = robust(df = 4), prior = normal(0, 100),
#'           prior_aux = exponential(0.1))
#' model_glm(X, cars$dist, family = neg_binomial_2())
#' set.seed(1)
#' elvi(dist ~ speed, data = cars, family = robust(df = 4))
#' elvi(dist ~ speed, data = cars, family = Gamma(link = "log"))
#' @name families
NULL

#' @rdname families
#' @export
neg_binomial_2 <- function() new_family("neg_binomial_2", "log")

#' @rdname families
#' @export
robust <- function(df = 4) new_family("robust", "identity", df = check_positive(df, "df"))

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
      bad_argument("y", "a factor with two levels", sprintf("one with %d", nlevels(y)))
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

# ---- losses to calibrate a quadrature with ------------------------------------------
# l and l', up to signs and linear terms (C has its own), and at which predictors

# phi(t) / Phi(t)
mills <- function(t) .Call(elvi_r_mills, as.double(t))

usual_predictors <- c(0, 0.5, 1, 2, 4)
softplus_loss <- list(l = function(t) pmax(t, 0) + log1p(exp(-abs(t))), slope = stats::plogis, eta = usual_predictors)
miss_loss <- list(l = function(t) -stats::pnorm(t, log.p = TRUE), slope = function(t) -mills(t), eta = usual_predictors,
                  in_C = TRUE)
exponential_loss <- list(l = exp, slope = exp, eta = usual_predictors)
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
  "response",         # function(y): list(y, trials), checked; trials NULL where there are none
  "trials",           # may new responses be counts out of several trials?
  "draws",            # function(mu, dispersion, trials, family): responses around their means
  "log_lik",          # function(y, mu, dispersion, trials, family)
  "variance",         # function(mu, dispersion, family): of a response of weight 1, up to glm()'s dispersion
  "deviance",         # function(y, mu, dispersion, family): that of a response of weight 1, as glm() has it
  "convex",           # is the loss convex in the predictor? Then it has an expectation in C
  "curvature_bound",  # the largest second derivative of the loss in the predictor; NA: unbounded
  "bound_attained",   # function(rows): is that known to be attained?
  "constant_curvature",  # is it the same everywhere?
  "exponential",      # does the loss have an exponential, whose expectation need not exist?
  "bends",            # does the loss have a bend, which a quadrature must resolve?
  "calibration",      # losses to integrate: the first always, the others where exp() has no closed form
  "never_up",         # function(move, y, small): along such a move of the predictors, can the loss only fall?
  "separable",        # what is separable then; NA: nothing is
  "autoscale",        # are priors rescaled by the spread of the response?
  "conditional",      # given its dispersion, as the sparse solver sees it, see conditional_entries; NULL: not convex
  "dispersion")       # the parameter beside the predictor, see dispersion_entries

conditional_entries <- c(
  "likelihood",       # its name in C: a negative binomial of known phi is a logistic regression
  "start",            # function(y, weight, dispersion): list(eta, c), predictors and curvatures near the responses
  "constant",         # function(y, weight): log likelihood minus what C sums, where no dispersion is in it
  "hyper")            # an unknown dispersion as a hyperparameter, see hyperparameter_entries; NULL: there is none

hyperparameter_entries <- c(
  "part",             # function(a, problem, solved): what it adds to the log likelihood, and the derivative in a, its logarithm
  "start",            # function(unit): where to start from, given that of the residuals
  "curvature")        # function(count): of a full data fit, roughly

dispersion_entries <- c(
  "natural",          # its name; the model has its logarithm
  "may_be_known",     # through the argument `dispersion`?
  "known",            # function(dispersion): it itself, if so
  "precision",        # does a weight divide its square, as those of glm() do? Else rows count as often as it says
  "exponential",      # does the loss grow exponentially in its logarithm?
  "tally",            # function(rows) of what needs terms of the dispersion alone, see elvi_family in elvi.h
  "unit",             # function(dispersion): moves of a predictor that change the loss by about 1
  "start",            # function(model): list(x, evaluations), from where Newton's method finds the mode
  "tail",             # function(rows, flat): a, if the likelihood bounds it from above as dispersion^-a
  "unbounded",        # function(rows, flat): what leaves it unbounded, in words
  "lost")             # why there may be no mode, in words

no_bound <- function(rows) FALSE

# c from the inverse of the link and its derivative at the proportions, shrunk
binomial_conditional <- function(link, eta, curvature) {
  list(likelihood = link,
       start = function(y, weight, dispersion) {
         p <- (weight * y + 0.5) / (weight + 1)
         list(eta = eta(p), c = weight * curvature(p))
       },
       # weights are trials: whole ones, or else what they stand for is not known
       hyper = NULL,
       constant = function(y, weight) {
         if (all(abs(weight - round(weight)) < 1e-9)) sum(lchoose(round(weight), round(weight * y))) else 0
       })
}

sigma_hyper <- list(
  part = function(a, problem, solved) {
    n <- problem$count   # weights are precisions
    list(value = -n * a, slope = if (!is.null(solved)) 2 * solved$loss - n)
  },
  start = function(unit) log(unit),
  curvature = function(count) 2 * count)

phi_hyper <- list(
  part = function(a, problem, solved) {
    y <- problem$y
    w <- problem$weight * problem$frequency
    phi <- exp(a)
    list(value = sum(w * (lgamma(y + phi) - lgamma(phi))),
         slope = if (!is.null(solved)) {
           phi * (sum(w * (digamma(y + phi) - digamma(phi))) - solved$level) + solved$slope
         })
  },
  start = function(unit) 0,
  curvature = function(count) 1)

count_constant <- function(y, weight) -sum(weight * lgamma(y + 1))

binomial_record <- function(link, ...) {
  c(list(
    family = "binomial", link = link, make = function() stats::binomial(link),
    response = binomial_response, trials = TRUE,
    draws = function(mu, dispersion, trials, family) stats::rbinom(length(mu), trials, mu),
    log_lik = function(y, mu, dispersion, trials, family) stats::dbinom(round(y * trials), trials, mu, log = TRUE),
    variance = function(mu, dispersion, family) mu * (1 - mu),
    deviance = function(y, mu, dispersion, family) stats::binomial()$dev.resids(y, mu, rep(1, length(y))),
    convex = TRUE, constant_curvature = FALSE, bends = TRUE,
    never_up = function(move, y, small) {
      all(ifelse(y == 1, move > -small, ifelse(y == 0, move < small, abs(move) < small)))
    },
    separable = "the two classes", autoscale = FALSE, dispersion = NULL), list(...))
}

sigma_record <- function(...) {
  c(list(
    natural = "sigma", known = sqrt, unit = identity,
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
positive_record <- function(...) {
  c(list(
    precision = FALSE, exponential = TRUE, unit = function(dispersion) 1 / sqrt(dispersion),
    tail = function(rows, flat) if (rows$count > flat) Inf else 0,
    unbounded = function(rows, flat) {
      sprintf("%g observations and %d coefficients of flat prior leave the dispersion unbounded", rows$count, flat)
    },
    lost = paste("the coefficients may fit the responses perfectly, and their dispersion then runs off to 0.",
                 "Use fewer coefficients.")), list(...))
}

# one number in place of a response for each row
mean_tally <- function(rows, of) {
  if (is_elsewhere_rows(rows)) {
    bad_argument("data", "rows in memory for a family of positive responses whose dispersion is not given", "rows elsewhere")
  }
  used <- rows$weight > 0
  total <- sum(rows$weight[used])
  list(y = sum(rows$weight[used] * of(rows$y[used])) / total, weight = total)
}

family_records <- list(
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

  poisson = list(
    family = "poisson", link = "log", make = stats::poisson,
    response = function(y) list(y = count_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rpois(length(mu), mu),
    log_lik = function(y, mu, dispersion, trials, family) stats::dpois(y, mu, log = TRUE),
    variance = function(mu, dispersion, family) mu,
    deviance = function(y, mu, dispersion, family) stats::poisson()$dev.resids(y, mu, rep(1, length(y))),
    convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, bends = FALSE, calibration = list(exponential_loss),
    never_up = function(move, y, small) all(move < small) && all(abs(move[y > 0]) < small),
    separable = "the counts", autoscale = FALSE,
    conditional = list(likelihood = "poisson", constant = count_constant, hyper = NULL,
                       start = function(y, weight, dispersion) list(eta = log(y + 0.5), c = weight * (y + 0.5))),
    dispersion = NULL),

  normal = list(
    family = "gaussian", link = "identity", make = stats::gaussian,
    response = function(y) list(y = check_vector(y, "y")), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rnorm(length(mu), mu, dispersion),
    log_lik = function(y, mu, dispersion, trials, family) stats::dnorm(y, mu, dispersion, log = TRUE),
    variance = function(mu, dispersion, family) rep(1, length(mu)),
    deviance = function(y, mu, dispersion, family) (y - mu)^2,
    convex = TRUE, curvature_bound = 1, bound_attained = function(rows) TRUE, constant_curvature = TRUE,
    exponential = FALSE, bends = FALSE, calibration = list(),
    never_up = function(move, y, small) FALSE, separable = NA, autoscale = TRUE,
    conditional = list(likelihood = "normal", start = function(y, weight, dispersion) list(eta = y, c = weight),
                       constant = function(y, weight) sum(log(weight[weight > 0] / (2 * pi))) / 2,
                       hyper = sigma_hyper),
    dispersion = sigma_record(may_be_known = TRUE, precision = TRUE, exponential = TRUE,
                              tally = function(rows) list(y = 0, weight = rows$count - sum(rows$weight)),
                              start = function(model) scale_start(model, passes = 3L, function(r2) 1))),

  neg_binomial_2 = list(
    family = "neg_binomial_2", link = "log", make = neg_binomial_2,
    response = function(y) list(y = count_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rnbinom(length(mu), size = dispersion, mu = mu),
    log_lik = function(y, mu, dispersion, trials, family) stats::dnbinom(y, size = dispersion, mu = mu, log = TRUE),
    variance = function(mu, dispersion, family) mu + mu^2 / dispersion,
    deviance = function(y, mu, dispersion, family) {
      2 * (y * log(pmax(y, 1) / mu) - (y + dispersion) * log((y + dispersion) / (mu + dispersion)))
    },
    convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, bends = TRUE, calibration = list(softplus_loss),
    never_up = function(move, y, small) all(move < small) && all(abs(move[y > 0]) < small),
    separable = "the counts", autoscale = FALSE,
    conditional = list(likelihood = "logit", constant = count_constant, hyper = phi_hyper, start = function(y, weight, dispersion) {
      m <- y + 0.5
      list(eta = log(m), c = weight * m * dispersion / (m + dispersion))
    }),
    dispersion = list(
      natural = "phi", may_be_known = FALSE, known = NULL, precision = FALSE, exponential = TRUE,
      tally = function(rows) tally_of(rows, rows$y > 0),
      unit = function(dispersion) 1, start = function(model) count_start(model),
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
    variance = function(mu, dispersion, family) rep(1, length(mu)),
    deviance = function(y, mu, dispersion, family) (family$df + 1) * log1p(((y - mu) / dispersion)^2 / family$df),
    convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = FALSE, bends = TRUE, calibration = list(),
    never_up = function(move, y, small) FALSE, separable = NA, autoscale = TRUE, conditional = NULL,
    dispersion = sigma_record(
      may_be_known = FALSE, precision = FALSE, exponential = FALSE, tally = function(rows) no_tally,
      start = function(model) scale_start(model, passes = 10L, function(r2) {   # the EM algorithm
        (model$error_df + 1) / (model$error_df + r2)
      }))),

  gamma = list(
    family = "Gamma", link = "log", make = function() stats::Gamma("log"),
    response = function(y) list(y = positive_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) stats::rgamma(length(mu), dispersion, scale = mu / dispersion),
    log_lik = function(y, mu, dispersion, trials, family) stats::dgamma(y, dispersion, scale = mu / dispersion, log = TRUE),
    variance = function(mu, dispersion, family) mu^2,
    deviance = function(y, mu, dispersion, family) stats::Gamma()$dev.resids(y, mu, rep(1, length(y))),
    convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, bends = FALSE, calibration = list(exponential_loss),
    never_up = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, conditional = NULL,
    dispersion = positive_record(
      natural = "shape", may_be_known = TRUE, known = function(dispersion) 1 / dispersion,
      tally = function(rows) mean_tally(rows, log),
      start = function(model) positive_start(model, function(y, mu) ((y - mu) / mu)^2))),

  inverse_gaussian = list(
    family = "inverse.gaussian", link = "log", make = function() stats::inverse.gaussian("log"),
    response = function(y) list(y = positive_response(y)), trials = FALSE,
    draws = function(mu, dispersion, trials, family) inverse_gaussian_draws(mu, dispersion),
    log_lik = function(y, mu, dispersion, trials, family) {
      (log(dispersion) - log(2 * pi * y^3) - dispersion * (y - mu)^2 / (mu^2 * y)) / 2
    },
    variance = function(mu, dispersion, family) mu^3,
    deviance = function(y, mu, dispersion, family) stats::inverse.gaussian()$dev.resids(y, mu, rep(1, length(y))),
    convex = FALSE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
    exponential = TRUE, bends = FALSE, calibration = list(),
    never_up = function(move, y, small) FALSE, separable = NA, autoscale = FALSE, conditional = NULL,
    dispersion = positive_record(
      natural = "lambda", may_be_known = FALSE, known = NULL,
      tally = function(rows) mean_tally(rows, function(y) 1 / y),
      start = function(model) positive_start(model, function(y, mu) (y - mu)^2 / (mu^2 * y)))))

# Stops unless every record has every entry and no other.
check_family_records <- function(records) {
  complain <- function(name, has, wants) {
    odd <- c(setdiff(wants, has), setdiff(has, wants))
    if (length(odd)) stop("the family record `", name, "` lacks, or should not have: ", toString(odd), call. = FALSE)
  }
  for (name in names(records)) {
    record <- records[[name]]
    complain(name, names(record), family_entries)
    if (!is.null(record$conditional)) {
      complain(paste0(name, "$conditional"), names(record$conditional), conditional_entries)
      hyper <- record$conditional$hyper
      if (!is.null(hyper)) complain(paste0(name, "$conditional$hyper"), names(hyper), hyperparameter_entries)
    }
    if (!is.null(record$dispersion)) complain(paste0(name, "$dispersion"), names(record$dispersion), dispersion_entries)
  }
  invisible(records)
}

check_family_records(family_records)

# Run when the package is loaded: each record has its other half in src/likelihood.c.
check_family_twins <- function(names = base::names(family_records)) {
  alone <- names[!.Call(elvi_r_has_family, names)]
  if (length(alone)) stop("families whose record in src/likelihood.c is missing or not whole: ", toString(alone), call. = FALSE)
}

# ---- finding one ---------------------------------------------------------------------

# the name of the record of a family object, which is that of its likelihood in C
likelihood_of <- function(family) {
  matches <- vapply(family_records, function(r) r$family == family$family && r$link == family$link, NA)
  names(family_records)[matches]
}

# the record of a model or of a family object
record_of <- function(x) {
  family_records[[if (inherits(x, "family")) likelihood_of(x) else x$likelihood]]
}

known_families <- function() vapply(family_records, function(r) r$family, "")

check_family <- function(family) {
  if (is.character(family) && length(family) == 1L && family %in% known_families()) {
    family <- family_records[[match(family, known_families())]]$make()
  }
  if (is.function(family)) family <- family()
  if (!inherits(family, "family") || !family$family %in% known_families()) {
    bad_argument("family", or(paste0(unique(known_families()), "()")),
                 if (inherits(family, "family")) paste0(family$family, "()") else describe(family))
  }
  links <- vapply(family_records[known_families() == family$family], function(r) r$link, "")
  if (!family$link %in% links) {
    bad_argument("family", paste0(family$family, "() with link ", or(paste0("\"", links, "\""))),
                 paste0("link \"", family$link, "\""))
  }
  family
}

# "a, b or c"
or <- function(x) sub(", ([^,]*)$", " or \\1", toString(x))

# NULL when the family has a dispersion to estimate
check_dispersion <- function(dispersion, family) {
  unknown <- record_of(family)$dispersion
  if (is.null(dispersion) && !is.null(unknown)) return(NULL)
  if (!is.null(unknown) && !unknown$may_be_known) {
    if (identical(dispersion, 1)) return(NULL)   # the default
    bad_argument("dispersion", paste0("left out: ", unknown$natural, " of the ", family$family,
                                      " family is always estimated"), describe(dispersion))
  }
  dispersion <- check_positive(dispersion, "dispersion")
  if (is.null(unknown) && dispersion != 1) {
    bad_argument("dispersion", paste("1 for the", family$family, "family"), describe(dispersion))
  }
  dispersion
}

# n responses; all of them, if `whole`
check_response <- function(y, record, n, whole = TRUE) {
  if (NROW(y) != n) {
    bad_argument("y", sprintf("of length %d, the number of rows of `X`", n),
                 paste("of length", NROW(y)))
  }
  if (anyNA(y)) {
    bad_argument("y", "free of missing values",
                 sprintf("NA at position %d", which(is.na(y))[1L]))
  }
  out <- record$response(y)
  if (whole) warn_if_constant(out$y, n)
  out
}

# n responses, with the extremes in `y`
warn_if_constant <- function(y, n) {
  if (n > 1 && all(y == y[1L])) {
    elvi_warn("`y` is constant: its ", n, " values are all ", format(y[1L]),
              " and say nothing about the slopes.", class = "elvi_warning_constant_response")
  }
}
