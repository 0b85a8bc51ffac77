# Families whose response depends on two linear predictors: that of the mean, and that of a second parameter - zero inflation, a hurdle,
# a dispersion - which has a formula of its own. A record is one of family.R whose entry `second` is not NULL; the loss and its
# expectations are under the same name in src/joint_*.c. `dispersion` of its functions is a list: `second`, the second parameter
# itself, and `hyper`, the family's own parameter where it has one beside that.

# of the entry `second`
second_entries <- c(
  "component",  # what 'glmmTMB' calls the part of the model: its formula is the argument <component>formula, its coefficients <component>_x
  "parameter",  # its name in words
  "link",       # from the parameter to its predictor
  "mean",       # function(mu, dispersion): the expected response
  "level",      # function(y): where the default prior of the predictor's intercept is centred
  "smooth",     # how much wider than those of hermite_levels() may spreads be for the same error?
  "precision",  # is a weight the precision of its row? Then the parameter is a standard deviation
  "check")      # function(y): stops where the responses say nothing of the parameter

#' @rdname families
#' @export
zero_inflated_poisson <- function() new_family("zero_inflated_poisson", "log")

#' @rdname families
#' @export
zero_inflated_negbinomial <- function() new_family("zero_inflated_negbinomial", "log")

#' @rdname families
#' @export
hurdle_poisson <- function() new_family("hurdle_poisson", "log")

#' @rdname families
#' @export
hurdle_negbinomial <- function() new_family("hurdle_negbinomial", "log")

# ---- counts with too many zeros ------------------------------------------------------------------------

# P(0) of a count of mean mu
poisson_zero <- function(mu, phi) exp(-mu)
negbinomial_zero <- function(mu, phi) exp(-phi * log1p(mu / phi))

poisson_count <- list(
  zero = poisson_zero, log_density = function(y, mu, phi) stats::dpois(y, mu, log = TRUE),
  draws = function(n, mu, phi) stats::rpois(n, mu), quantile = function(p, mu, phi) stats::qpois(p, mu),
  variance = function(mu, phi) mu, row_constant = function(y, weight) -weight * lgamma(y + 1))

negbinomial_count <- list(
  zero = negbinomial_zero, log_density = function(y, mu, phi) stats::dnbinom(y, size = phi, mu = mu, log = TRUE),
  draws = function(n, mu, phi) stats::rnbinom(n, size = phi, mu = mu),
  quantile = function(p, mu, phi) stats::qnbinom(p, size = phi, mu = mu),
  variance = function(mu, phi) mu + mu^2 / phi, row_constant = function(y, weight) ifelse(y > 0, -weight * log(y), 0))

# a zero with probability dispersion$second, else a count
inflated_response <- function(count) {
  list(
    draws = function(mu, dispersion, trials, family) {
      n <- length(mu)
      inflated <- stats::runif(n) < dispersion$second
      ifelse(inflated, 0, count$draws(n, mu, dispersion$hyper))
    },
    log_lik = function(y, mu, dispersion, trials, family) {
      zi <- dispersion$second
      ifelse(y == 0, log(zi + (1 - zi) * count$zero(mu, dispersion$hyper)), log1p(-zi) + count$log_density(y, mu, dispersion$hyper))
    },
    variance = function(mu, dispersion, family) {
      zi <- dispersion$second
      (1 - zi) * (count$variance(mu, dispersion$hyper) + zi * mu^2)
    },
    mean = function(mu, dispersion) (1 - dispersion$second) * mu)
}

# a zero with probability dispersion$second, else a count that is not zero
hurdle_response <- function(count) {
  positive_mean <- function(mu, phi) mu / (1 - count$zero(mu, phi))
  list(
    draws = function(mu, dispersion, trials, family) {
      n <- length(mu)
      zero <- stats::runif(n) < dispersion$second
      below <- count$zero(mu, dispersion$hyper)
      positive <- pmax(1, count$quantile(below + stats::runif(n) * (1 - below), mu, dispersion$hyper))
      ifelse(zero, 0, positive)
    },
    log_lik = function(y, mu, dispersion, trials, family) {
      hu <- dispersion$second
      ifelse(y == 0, log(hu), log1p(-hu) + count$log_density(y, mu, dispersion$hyper) - log1p(-count$zero(mu, dispersion$hyper)))
    },
    variance = function(mu, dispersion, family) {
      hu <- dispersion$second
      seen <- 1 - count$zero(mu, dispersion$hyper)
      square <- (count$variance(mu, dispersion$hyper) + mu^2) / seen   # of the counts that are not zero
      (1 - hu) * square - ((1 - hu) * mu / seen)^2
    },
    mean = function(mu, dispersion) (1 - dispersion$second) * positive_mean(mu, dispersion$hyper))
}

check_some_zeros <- function(y) {
  if (all(y == 0)) {
    bad_argument("y", "counts of which some are positive", "all zeros")
  }
  if (all(y > 0)) {
    elvi_abort("`y` has no zeros, so that their probability cannot be estimated. Use a family for counts without excess zeros, such as ",
               "poisson() or neg_binomial_2().", class = "elvi_error_argument", data = list(argument = "y"))
  }
}

# near the responses: of zeros the mean is unknown, so they pull little
inflated_start <- function(y, weight, dispersion) {
  seen <- y > 0
  mean <- sum(weight * y) / max(sum(weight[seen]), 1e-8)
  zero <- (sum(weight[!seen]) + 0.5) / (sum(weight) + 1)
  list(eta = as.double(rbind(ifelse(seen, log(y + 0.5), log(mean + 0.5) - 1), stats::qlogis(zero / 2))),
       c = as.double(rbind(weight * ifelse(seen, pmin(y + 0.5, 100), 0.2), 0, 0.2 * weight)))
}

# phi of the negative binomial: what the loss lacks are gamma functions of counts and phi
inflated_phi_hyper <- function() {
  positive_hyper("phi",
    part = function(a, problem, solved) {
      seen <- problem$y > 0
      y <- problem$y[seen]
      w <- (problem$weight * problem$frequency)[seen]
      phi <- exp(a)
      list(value = -sum(w * lbeta(phi, y)),   # and log y is in the row's constant
           slope = if (!is.null(solved)) phi * sum(w * (digamma(y + phi) - digamma(phi))) - solved$slope)
    },
    start = function(unit, problem) 0,
    curvature = function(count) 1)
}

inflated_record <- function(name, count, response, parameter, make, dispersion, smooth) {
  phi <- !is.null(dispersion)
  joint_record(
    family = name, link = "log", make = make, response = function(y) list(y = count_response(y)),
    draws = response$draws, log_lik = response$log_lik, variance = response$variance, row_constant = count$row_constant,
    conditional = list(likelihood = name, start = inflated_start, dispersion = if (phi) "own" else "none",
                       hyper = if (phi) inflated_phi_hyper()),
    dispersion = dispersion,
    second = list(component = "zi", parameter = parameter, link = "logit", mean = response$mean, level = function(y) 0, smooth = smooth,
                  precision = FALSE, check = check_some_zeros))
}

# ---- dispersions with a formula -----------------------------------------------------------------------------

# A family with a dispersion, which is the second parameter; everything else of it stays. `hyper`: a further parameter of its own, which
# `both` joins with the dispersion for the functions of the family.
scale_record <- function(name, base, row_constant, start, level = function(y) 0, hyper = NULL, smooth = 1.6,
                         adapt = base$adapt, both = function(dispersion) dispersion$second) {
  joint_record(
    family = base$family, link = base$link, make = base$make, response = base$response, adapt = adapt, trials = base$trials,
    draws = function(mu, dispersion, trials, family) base$draws(mu, both(dispersion), trials, family),
    log_lik = function(y, mu, dispersion, trials, family) base$log_lik(y, mu, both(dispersion), trials, family),
    variance = function(mu, dispersion, family) base$variance(mu, both(dispersion), family) * base_variance(base, dispersion$second),
    deviance = function(y, mu, dispersion, ...) base$deviance(y, mu, both(dispersion), ...), display_response = base$display_response,
    row_constant = row_constant, autoscale = base$autoscale, positive = base$positive,
    conditional = list(likelihood = name, start = start, dispersion = if (is.null(hyper)) "none" else "own", hyper = hyper),
    dispersion = NULL,
    second = list(component = "disp", parameter = c(base$dispersion$natural, base$conditional$hyper$names)[1L],
                  link = "log", mean = function(mu, dispersion) mu, level = level, smooth = smooth,
                  precision = isTRUE(base$dispersion$precision),
                  check = function(y) invisible()))
}

# degrees of freedom of errors whose sigma has a formula; their prior is that of student(), and not for `prior_aux` to say
df_hyper <- function() {
  hyper <- positive_hyper("df",
    part = function(a, problem, solved) {
      total <- sum(problem$weight * problem$frequency)
      level <- student_level(exp(a))
      list(value = total * level$value, slope = if (!is.null(solved)) total * level$slope - solved$slope)
    },
    start = function(unit, problem) log(6), curvature = function(count) pmax(count / 20, 1))
  hyper$log_prior <- function(priors, theta) log_df_prior(theta)
  hyper$moment_scale <- function(values, priors) values
  hyper$default_prior <- function() NULL
  hyper
}

refuse_scale_intervals <- function(family, y, declared) {
  if (has_intervals(y)) {
    refuse_argument("y", "`y`: `dispformula` does not support times that are censored on the left or in intervals. Leave it out.")
  }
  family
}

# the factor that glm() calls dispersion, which `variance` of a record leaves out
base_variance <- function(base, second) {
  if (isTRUE(base$dispersion$residual) || identical(base$family, "student")) second^2 else 1
}

# predictors eta of the mean with curvatures c, and a dispersion around `level`
both_start <- function(eta, c, level, curvature) {
  list(eta = as.double(rbind(eta, level)), c = as.double(rbind(c, 0, curvature)))
}

joint_record <- function(..., deviance = no_deviance, autoscale = FALSE, positive = FALSE, adapt = as_given, trials = FALSE,
                         display_response = uncensored) {
  c(list(...), list(
    adapt = adapt, classes = NULL, mean = NULL, trials = trials, constant = as_summed, deviance = deviance,
    display_response = display_response, convex = FALSE,
    curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE, exponential = TRUE, needs_fine_quadrature = TRUE,
    calibration = list(), is_recession = function(move, y, small) FALSE, separable = NA, autoscale = autoscale, positive = positive))
}

no_deviance <- function(y, mu, dispersion, family) {
  bad_argument("type", "\"response\" or \"pearson\"", "\"deviance\"", paste0(family$family, "() has no deviance residuals"))
}

# A function, because family.R, whose records they build on, is loaded later.
joint_records <- function(records) {
  phi <- records$neg_binomial_2$dispersion
  counts <- list(
    zero_inflated_poisson = inflated_record("zero_inflated_poisson", poisson_count, inflated_response(poisson_count), "zi",
                                            zero_inflated_poisson, NULL, smooth = 0.8),
    zero_inflated_negbinomial = inflated_record("zero_inflated_negbinomial", negbinomial_count, inflated_response(negbinomial_count),
                                                "zi", zero_inflated_negbinomial, phi, smooth = 1.6),
    hurdle_poisson = inflated_record("hurdle_poisson", poisson_count, hurdle_response(poisson_count), "hu", hurdle_poisson, NULL,
                                     smooth = 1.6),
    hurdle_negbinomial = inflated_record("hurdle_negbinomial", negbinomial_count, hurdle_response(negbinomial_count), "hu",
                                         hurdle_negbinomial, phi, smooth = 1.6))
  scales <- list(
    normal_scale = scale_record(
      "normal_scale", records$normal, row_constant = function(y, weight) rep(-log(2 * pi) / 2, length(y)),
      level = function(y) log(positive_sd(y)),
      start = function(y, weight, dispersion) both_start(y, weight / positive_sd(y)^2, log(positive_sd(y)), 2 * weight)),
    neg_binomial_2_scale = scale_record(
      "neg_binomial_2_scale", records$neg_binomial_2, row_constant = function(y, weight) -weight * lgamma(y + 1),
      start = function(y, weight, dispersion) {
        m <- y + 0.5
        both_start(log(m), weight * m / (1 + m), 0, weight / 2)
      }),
    gamma_scale = scale_record(
      "gamma_scale", records$gamma, row_constant = function(y, weight) -weight * log(y),
      start = function(y, weight, dispersion) both_start(log(y), weight, 0, weight / 2)),
    beta_scale = scale_record(
      "beta_scale", records$beta, row_constant = function(y, weight) -weight * (log(y) + log1p(-y)),
      start = function(y, weight, dispersion) both_start(stats::qlogis(y), weight * 2 * y * (1 - y), 1, weight / 2)),
    lognormal_scale = scale_record(
      "lognormal_scale", records$lognormal, row_constant = records$lognormal$row_constant, smooth = 0.8, adapt = refuse_scale_intervals,
      start = function(y, weight, dispersion) {
        logs <- log(abs(y))
        both_start(logs, weight / positive_sd(logs)^2, log(positive_sd(logs)), 2 * weight)
      }),
    student_scale = scale_record(
      "student_scale", records$student, row_constant = function(y, weight) numeric(length(y)),
      level = function(y) log(positive_sd(y)), hyper = df_hyper(), smooth = 0.8,
      both = function(dispersion) cbind(c(dispersion$second), rep_len(c(dispersion$hyper), length(dispersion$second))),
      start = function(y, weight, dispersion) both_start(y, weight / positive_sd(y)^2, log(positive_sd(y) * 0.7), weight)),
    beta_binomial_scale = scale_record(
      "beta_binomial_scale", records$beta_binomial, row_constant = records$beta_binomial$row_constant,
      start = function(y, weight, dispersion) {
        first <- records$beta_binomial$conditional$start(y, weight, 2)
        both_start(first$eta, first$c, log(2), weight / 4)
      }))
  c(counts, scales)
}

positive_sd <- function(y) {
  sd <- stats::sd(y)
  if (isTRUE(sd > 0)) sd else 1
}

is_joint <- function(record) !is.null(record$second)

# Run when the package is loaded: each record has its other half in src/joint_*.c.
check_joint_twins <- function(records = family_records) {
  joint <- vapply(Filter(is_joint, records), function(record) record$conditional$likelihood, "")
  alone <- names(joint)[!.Call(elvi_r_has_joint, unname(joint))]
  if (length(alone)) stop("families whose record in src/joint_*.c is missing or not whole: ", toString(alone), call. = FALSE)
}

# ---- quadrature ---------------------------------------------------------------------------------------------

# Gauss-Hermite rules for one predictor, half of their nodes; a product of two for both, chosen by the standard deviation of the
# predictor. What tests/testthat/test-family-joint.R integrates is right to its tolerances; the loss of a zero among large poisson counts,
# with a wide predictor, is integrated less accurately than the others.
hermite_levels <- function(nodes = c(4L, 6L, 8L, 10L, 16L, 26L, 40L), limits = c(0.04, 0.1, 0.17, 0.25, 0.45, 0.8, 1.5)) {
  Map(function(n, limit) {
    k <- seq_len(n - 1L)
    J <- matrix(0, n, n)
    J[cbind(k, k + 1L)] <- J[cbind(k + 1L, k)] <- sqrt(k)
    e <- eigen(J, symmetric = TRUE)
    half <- which(e$values > 0)
    list(z = rev(e$values[half]), w = rev(e$vectors[1L, half]^2), limit = limit)
  }, nodes, limits)
}

# Equal steps, for wide predictors: where a loss bends within a small part of the spread, many close nodes do better than Gauss's.
equal_level <- function(step = 0.15, reach = 8.4) {
  z <- seq(step / 2, reach, by = step)
  w <- stats::dnorm(z)
  list(z = z, w = w / (2 * sum(w)), limit = Inf)
}

hermite_rules <- c(hermite_levels(), list(equal_level()))
# with fewer nodes, for corrections, which need fewer digits
lean_hermite_rules <- lapply(hermite_levels(c(4L, 8L, 12L, 20L, 32L, 64L), c(0.1, 0.25, 0.45, 0.8, 1.5, Inf)), function(level) {
  used <- level$w > 1e-11
  list(z = level$z[used], w = level$w[used], limit = level$limit)
})

# as C reads it
joint_rule <- function(record, lean = FALSE) {
  rules <- if (lean) lean_hermite_rules else hermite_rules
  levels <- lapply(rules, function(level) replace(level, "limit", level$limit * record$second$smooth))
  list(levels = levels, prior_levels = list(), mgf = "gaussian", mgf_rate = 0, limit = Inf)
}
