#' Priors
#'
#' Independent priors for the coefficients of a model, and priors for its auxiliary parameter (such as the residual standard deviation
#' `sigma`) and for standard deviations of groups. The names are those of 'rstanarm'.
#'
#' A single prior is used for every coefficient. Vectors give one number per coefficient, and `c()` combines different priors:
#' `c(normal(0, 10), student_t(3, 0, 2.5))` is for two coefficients.
#'
#' * `normal()`: log-concave, so a model that is log-concave in its coefficients
#'   stays so, and a proper one has an optimum.
#' * `student_t()` and its case `cauchy()`, of one degree of freedom: heavy tails, which shrink a large coefficient less. They are not
#'   log-concave: a model with one is treated as non-convex, and its optimum need not be the only one.
#' * `flat()`: improper. A posterior, and hence an optimum, need not exist then:
#'   separable binary data are the usual case, which [elvi()] detects.
#' * `exponential()`: for an auxiliary parameter only.
#' * `laplace()`: not supported, with an error that says so. Its log density has a kink, so it has no gradient there.
#'   `student_t(3, 0, scale)` has heavy tails too, and a smooth peak.
#'
#' Priors of package 'rstanarm' and of elvi can be used in both packages, so it does not matter which one was attached last.
#'
#' Priors of an auxiliary parameter are priors of `sigma` or `phi` itself, truncated to positive values: `normal(0, s)` is
#' half-normal, `cauchy(0, s)` half-Cauchy, `flat()` flat in `sigma`. The model's parameter is the logarithm; its density
#' includes the Jacobian.
#' @section Intercept and slopes:
#' In a formula, `prior` is for the slopes and `prior_intercept` for the intercept *when all predictors are at their means*, as
#' in 'rstanarm': predictors are centred for the computation, and results are reported for the original ones.
#'
#' Autoscaling divides the prior scale of a slope by the standard deviation of its predictor. For `gaussian()` and [robust()] it
#' multiplies by that of the response, the prior of the intercept is shifted by the mean of the response, and the rate of an exponential
#' `prior_aux` is divided by its standard deviation. For positive responses with a log link (`Gamma()`, `inverse.gaussian()`,
#' [weibull()], `"exponential"`) the prior of the intercept is shifted by the logarithm of the mean response, where censored times count
#' as in an exponential model, and offsets are taken out. So results do not depend on the unit of the response.
#'
#' @section Defaults and units:
#' The defaults of [elvi()] do not depend on units. If a predictor, the column of a random slope, the variable
#' of a smooth or a response with a unit is multiplied by 1000, results change their units and nothing else.
#' * Slopes: `normal(0, 2.5)` for a predictor divided by its standard deviation. With `gaussian()` and [robust()] the scale is
#'   multiplied by the standard deviation of the response, here and below.
#' * Standard deviations of group-level and smooth terms: `exponential(1)`. The mean of that of a slope is divided by
#'   the standard deviation of the slope's column; smooths are scaled first, see [group_terms].
#' * Auxiliary parameters: see [families].
#'
#' A prior that you give is not rescaled, unless you set `autoscale = TRUE`.
#'
#' @param df degrees of freedom: one positive number, or one per coefficient.
#'   `Inf` is normal.
#' @param location centre of the prior: one number, or one per coefficient.
#' @param scale standard deviation of a normal prior, scale of a student one: one
#'   positive number, or one per coefficient. `Inf` makes the prior of that
#'   coefficient flat.
#' @param precision for [model_glm()]: the inverse of the covariance matrix of all coefficients, symmetric and positive
#'   definite, dense or sparse (package 'Matrix'), instead of `scale`. Random walks, autoregressions and Gaussian
#'   Markov random fields are sparse ones. Only the exact solver takes such a prior, with `dispersion` known.
#' @param rate inverse of the mean, a positive number.
#' @param autoscale rescale the prior to the data of a formula, as its argument `autoscale` does?
#' @return An object of class `elvi_prior` for [model_glm()]. `laplace()` is always an error.
#' @examples
#' normal(0, 2.5)
#' normal(0, c(10, 2.5, 2.5))
#' c(normal(0, 10), student_t(3, 0, c(1, 2.5)))
#' flat()
#' exponential(2)
#' # a prior for each slope, and one for the intercept
#' elvi(case ~ age + parity, data = infert, family = binomial(), prior = normal(0, c(0.1, 1)),
#'      prior_intercept = student_t(3, 0, 2.5))
#' @name priors
NULL

#' @rdname priors
#' @export
normal <- function(location = 0, scale = 2.5, autoscale = FALSE, precision = NULL) {
  if (is.null(precision)) return(new_prior("normal", location, scale, Inf, autoscale))
  if (!missing(scale)) unused_argument("scale", "`precision` is given")
  if (check_flag(autoscale, "autoscale")) bad_argument("autoscale", "FALSE when `precision` is given", "TRUE")
  precision <- check_precision(precision)
  prior <- new_prior("normal", location, 1 / sqrt(Matrix::diag(precision)), Inf)
  prior$precision <- precision
  prior
}

# a sparse symmetric positive definite matrix
check_precision <- function(Q) {
  need_package("Matrix", "A matrix as prior precision")
  loadNamespace("Matrix")   # its methods, not only its functions
  if (is.matrix(Q)) Q <- check_matrix(Q, "precision")
  else if (!inherits(Q, "Matrix")) bad_argument("precision", "a matrix, dense or of package 'Matrix'", describe(Q))
  if (nrow(Q) != ncol(Q) || !nrow(Q)) bad_argument("precision", "a square matrix", sprintf("a %d x %d one", nrow(Q), ncol(Q)))
  if (!all(is.finite(range(Q)))) refuse_argument("precision", "`precision` has missing or non-finite entries.")
  dimnames(Q) <- list(NULL, NULL)
  if (!Matrix::isSymmetric(Q)) bad_argument("precision", "symmetric")
  Q <- Matrix::forceSymmetric(methods::as(methods::as(Q, "dMatrix"), "CsparseMatrix"), "L")
  definite <- tryCatch(or_else({
    Matrix::Cholesky(Q, LDL = FALSE)
    TRUE
  }, FALSE), warning = function(w) FALSE)
  if (!definite) bad_argument("precision", "positive definite")
  Q
}

#' @rdname priors
#' @export
student_t <- function(df = 3, location = 0, scale = 2.5, autoscale = FALSE) {
  new_prior("student_t", location, scale, df, autoscale)
}

#' @rdname priors
#' @export
cauchy <- function(location = 0, scale = 2.5, autoscale = FALSE) student_t(1, location, scale, autoscale)

#' @rdname priors
#' @export
flat <- function() new_prior("flat", 0, Inf, Inf)

#' @rdname priors
#' @export
exponential <- function(rate = 1, autoscale = FALSE) {
  rate <- check_positive(rate, "rate")
  structure(list(name = "exponential", rate = rate, dist = "exponential", df = NA, location = NA, scale = 1 / rate,
                 autoscale = check_flag(autoscale, "autoscale")), class = "elvi_prior")
}

#' @rdname priors
#' @export
laplace <- function(location = 0, scale = 1) {
  elvi_abort("`prior`: laplace() is not available: its density has a kink at the location, where f has ",
             "no gradient and no smoothness constant. Use student_t(3, location, scale), which has ",
             "heavy tails and a round peak, or normal(location, scale).",
             class = "elvi_error_argument", data = list(argument = "prior"))
}

# A prior in elvi's form: `name`, `location`, `scale` and `df`. Package 'rstanarm' reads `dist` and `autoscale`.
new_prior <- function(name, location, scale, df, autoscale = FALSE) {
  location <- check_vector(location, "location")
  scale <- check_vector(scale, "scale", infinite = TRUE)
  df <- check_vector(df, "df", infinite = TRUE)
  if (!length(location)) bad_argument("location", "at least one number", describe(location))
  if (!length(scale) || any(scale <= 0)) {
    bad_argument("scale", "positive", describe(if (length(scale)) scale[scale <= 0][1L] else scale))
  }
  lost <- is.finite(scale) & (1 / scale^2 == 0 | is.infinite(1 / scale^2))
  if (any(lost)) {
    bad_argument("scale", "within about 1e-154 and 1e154, so that 1 / scale^2 is a number (`Inf` is flat)",
                 describe(scale[lost][1L]))
  }
  if (!length(df) || any(df <= 0)) {
    bad_argument("df", "positive", describe(if (length(df)) df[df <= 0][1L] else df))
  }
  if (any(df < 1e-100)) bad_argument("df", "at least 1e-100, so that it can be divided by", describe(df[df < 1e-100][1L]))
  structure(list(name = name, location = location, scale = scale, df = df, dist = if (name == "student_t") "t" else name,
                 autoscale = check_flag(autoscale, "autoscale")), class = "elvi_prior")
}

# The same prior when package 'rstanarm' has made it, a list with `dist`, `df`, `location`, `scale` and `autoscale`.
as_prior <- function(prior, name) {
  if (inherits(prior, "elvi_prior") || !is_plain_list(prior) || !is.character(prior$dist)) return(prior)
  or_default <- function(x, default) if (is.null(x) || anyNA(x)) default else x
  location <- or_default(prior$location, 0)
  scale <- or_default(prior$scale, 2.5)
  autoscale <- isTRUE(prior$autoscale)
  switch(prior$dist[1L],
         normal = normal(location, scale, autoscale),
         t = student_t(prior$df, location, scale, autoscale),
         cauchy = cauchy(location, scale, autoscale),
         exponential = exponential(1 / scale, autoscale),
         bad_argument(name, "made by normal(), student_t(), cauchy(), flat() or exponential()", paste0(prior$dist[1L], "()")))
}

#' @export
c.elvi_prior <- function(...) {
  parts <- list(...)
  for (part in parts) check_coefficient_prior(part)
  sizes <- vapply(parts, function(p) max(length(p$location), length(p$scale), length(p$df)), 0L)
  joined <- function(field) {
    unlist(lapply(seq_along(parts), function(i) recycle_prior(parts[[i]][[field]], sizes[i])), use.names = FALSE)
  }
  structure(list(name = "mixed", location = joined("location"), scale = joined("scale"),
                 df = joined("df"), dist = "t", autoscale = FALSE), class = "elvi_prior")
}

check_coefficient_prior <- function(prior, name = "prior", linked = FALSE) {
  check_class(prior, name, "elvi_prior", "normal(), student_t(), cauchy() or flat()")
  if (!linked && !is.null(prior$precision)) {
    bad_argument(name, "a prior of independent coefficients", format(prior), "a matrix as `precision` is for model_glm()")
  }
  if (has_rate(prior)) {
    bad_argument(name, "made by normal(), student_t(), cauchy() or flat()",
                 paste0(prior$name, "(), which is for the auxiliary parameter (`prior_aux`)"))
  }
  prior
}

recycle_prior <- function(v, dim, name = "value") {
  if (!length(v) %in% c(1L, dim)) {
    bad_argument("prior", sprintf("of length 1 or %d (one %s per coefficient)", dim, name),
                 paste("of length", length(v)))
  }
  rep_len(v, dim)
}

# ---- blocks -------------------------------------------------------------------------
# The parameters of a model come in named blocks, each a run of x with a prior, as src/prior.c reads
# them. `first` is where the block begins; its length is that of centre, precision (0: flat), df (Inf: normal)
# and rate. With `of_exp` the prior is that of e^(exponent x), times an exponential one with `rate`.

coefficient_block <- function(prior, dim) {
  if (!is.null(prior$precision) && nrow(prior$precision) != dim) {
    bad_argument("prior", sprintf("of a precision with a row for each of %d coefficients", dim), format(prior))
  }
  precision <- 1 / recycle_prior(prior$scale, dim, "scale")^2
  df <- recycle_prior(prior$df, dim, "df")
  list(first = 1, of_exp = FALSE, centre = recycle_prior(prior$location, dim, "location"),
       precision = precision, df = ifelse(precision > 0, df, Inf), rate = numeric(dim))
}

# of the logarithm of a positive parameter, number `first` of x
dispersion_block <- function(prior, first) {
  check_class(prior, "prior_aux", "elvi_prior", "exponential(), normal(), student_t(), cauchy() or flat()")
  if (has_rate(prior)) {
    exponent <- exponent_of(prior)
    return(list(first = first, of_exp = TRUE, exponent = exponent, centre = 0, precision = 0, df = Inf,
                rate = prior$rate * (prior$unit %||% 1)^-exponent))
  }
  if (any(lengths(prior[c("location", "scale", "df")]) != 1L)) {
    bad_argument("prior_aux", "a prior of one parameter", "one of several")
  }
  block <- coefficient_block(prior, 1L)
  block[c("first", "of_exp", "exponent")] <- list(first, TRUE, 1)
  block
}

block_entries <- function(block) block$first - 1 + seq_along(block$centre)

# second derivatives of -log prior
block_curvature <- function(block, x) {
  at <- x[block_entries(block)]
  if (block$of_exp) at <- block$exponent * at
  off <- (if (block$of_exp) exp(at) else at) - block$centre
  q <- ifelse(is.infinite(block$df), 0, block$precision * off^2 / block$df)
  second <- (1 + 1 / block$df) * block$precision * (1 - q) / (1 + q)^2
  if (!block$of_exp) return(second)
  first <- (1 + 1 / block$df) * block$precision * off / (1 + q) + block$rate
  block$exponent^2 * (second * exp(2 * at) + first * exp(at))
}

# log of the density minus the part that C computes: the normalising constants. A flat prior counts as a density of 1.
block_constant <- function(block) {
  proper <- block$precision > 0
  df <- block$df[proper]
  precision <- block$precision[proper]
  positive <- if (block$of_exp) stats::pt(block$centre[proper] * sqrt(precision), df, log.p = TRUE) else 0
  rate <- block$rate[block$rate > 0]
  power <- if (block$of_exp) abs(block$exponent) else 1
  sum(stats::dt(0, df, log = TRUE) + log(precision) / 2 - positive) + sum(log(power * rate))
}

# of normal priors with a matrix as precision
precision_constant <- function(Q) {
  as.double(Matrix::determinant(Q, logarithm = TRUE)$modulus) / 2 - nrow(Q) / 2 * log(2 * pi)
}

# how many parameters of a block have a flat prior
flat_in_block <- function(block) as.double(sum(block$precision == 0 & block$rate == 0))

flat_coefficients <- function(model) model$blocks$coefficients$precision == 0

is_student <- function(block) is.finite(block$df)

has_student_prior <- function(model) any(is_student(model$blocks$coefficients))

# the largest second derivatives of -log prior: of a student one, at its centre
steepest_prior <- function(block) (1 + 1 / block$df) * block$precision

# Has a prior of coefficients a logarithm that is concave? A flat one has, whatever its degrees of freedom.
is_concave <- function(prior) !any(is.finite(prior$df) & is.finite(prior$scale))

all_proper <- function(model) !any(flat_coefficients(model))

# a, if the prior of a positive parameter falls off as parameter^-a
prior_tail <- function(block) {
  if (block$exponent < 0) 1 - block$exponent
  else if (block$rate > 0) Inf
  else if (block$precision > 0) block$df + 1
  else 0
}

# ---- positive parameters ------------------------------------------------------------
# A dispersion or a standard deviation has an exponential prior, or the positive half of one that is made for coefficients.

is_exponential <- function(prior) prior$name == "exponential"

# is it a distribution of positive numbers that needs no truncation?
has_rate <- function(prior) !is.null(prior$rate)

# The default prior of a dispersion must not depend on units. It is exponential(1) of (dispersion / unit)^exponent, which is
# near the coefficient of variation: see `relative` in the records of family.R. `level`: the mean response.
default_aux_prior <- function(record, level = 1) {
  prior <- exponential(1)
  relative <- record$dispersion$relative
  if (is.null(relative)) return(prior)
  prior$exponent <- relative$exponent
  prior$unit <- if (relative$by_level && isTRUE(level > 0) && is.finite(level)) level else 1
  prior$of <- relative$words(format(prior$unit, digits = 4))
  prior
}

# the power of the parameter that the prior is on
exponent_of <- function(prior) prior$exponent %||% 1

check_sd_prior <- function(prior) {
  check_class(prior, "prior_sd", "elvi_prior", "exponential(), normal(), student_t() or cauchy()")
  if (has_rate(prior)) return(prior)
  if (any(is.infinite(prior$scale))) {
    bad_argument("prior_sd", "a proper prior", "flat()", "few groups cannot bound a standard deviation from above")
  }
  if (any(lengths(prior[c("location", "scale", "df")]) != 1L)) {
    bad_argument("prior_sd", "a prior of one parameter, used for every standard deviation", "one of several")
  }
  if (prior$location != 0) {
    bad_argument("prior_sd", "centred at 0, of which the positive half is used",
                 paste("one centred at", format(prior$location)))
  }
  prior
}

# the prior of `by` times the parameter
scaled_prior <- function(prior, by) {
  if (has_rate(prior)) prior$rate <- prior$rate / by
  prior$scale <- prior$scale * by
  prior
}

# number j of a prior of several parameters, or of one that is for all of them
prior_of_one <- function(prior, j) {
  fields <- intersect(c("rate", "scale"), names(prior))
  prior[fields] <- lapply(prior[fields], function(v) if (length(v) > 1L) v[j] else v)
  prior
}

# log density at s >= 0, normalised unless it is flat, and its derivative
positive_log_density <- function(prior, s) {
  if (!is.null(prior$exponent) && prior$exponent != 1) return(power_log_density(prior, s))
  n <- length(s)
  if (is_exponential(prior)) {
    rate <- rep_len(prior$rate, n)
    return(list(value = log(rate) - rate * s, slope = -rate))
  }
  centre <- rep_len(prior$location, n)
  scale <- rep_len(prior$scale, n)
  df <- rep_len(prior$df, n)
  off <- (s - centre) / scale
  half <- log(ifelse(is.infinite(df), stats::pnorm(centre / scale), stats::pt(centre / scale, df)))
  value <- ifelse(is.infinite(df), stats::dnorm(off, log = TRUE), stats::dt(off, df, log = TRUE)) - log(scale) - half
  slope <- -ifelse(is.infinite(df), off, (df + 1) * off / (df + off^2)) / scale
  flat <- is.infinite(scale)
  list(value = ifelse(flat, 0, value), slope = ifelse(flat, 0, slope))
}

# the same of a parameter whose power has the prior, with the Jacobian
power_log_density <- function(prior, s) {
  exponent <- exponent_of(prior)
  power <- (s / prior$unit)^exponent
  value <- log(prior$rate) - prior$rate * power + log(abs(exponent)) + exponent * log(s / prior$unit) - log(s)
  value[power == Inf] <- -Inf
  list(value = value, slope = (exponent - 1 - prior$rate * exponent * power) / s)
}

# the same of its logarithm a
log_prior_positive <- function(prior, a) {
  s <- exp(a)
  at <- positive_log_density(prior, s)
  list(value = at$value + a, slope = at$slope * s + 1)
}

# NA where it is flat
positive_density <- function(prior, x) {
  if (any(is.infinite(prior$scale))) rep(NA_real_, length(x)) else exp(positive_log_density(prior, x)$value)
}

prior_kinds <- function(prior) {
  ifelse(is.infinite(prior$scale), "flat", ifelse(is.infinite(prior$df), "normal", "student_t"))
}

# one row for each coefficient
prior_table <- function(prior) {
  data.frame(prior = prior_kinds(prior), df = ifelse(is.infinite(prior$df), NA, prior$df), location = prior$location,
             scale = prior$scale)
}

#' @export
print.elvi_prior <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}

#' @export
format.elvi_prior <- function(x, ...) {
  show <- function(v) {
    if (length(unique(v)) == 1L && length(v) > 4L) v <- v[1L]
    if (length(v) == 1L) return(format(v, ...))
    if (length(v) > 8L) return(sprintf("%d numbers from %s to %s", length(v), format(min(v), ...), format(max(v), ...)))
    paste0("c(", toString(format(v, ...)), ")")
  }
  if (x$name == "flat") return("flat prior")
  if (x$name == "exponential") return(paste0("exponential prior, rate ", show(x$rate), if (!is.null(x$of)) paste(", of", x$of)))
  if (!is.null(x$precision)) {
    return(sprintf("normal prior, location %s, precision a %d x %d matrix", show(x$location), nrow(x$precision), ncol(x$precision)))
  }
  if (x$name == "mixed" && length(x$location) > 4L) {
    kinds <- table(prior_kinds(x))
    return(paste0("priors, one per coefficient: ", paste(kinds, names(kinds), collapse = ", ")))
  }
  normal <- all(is.infinite(x$df))
  paste0(if (normal) "normal" else x$name, " prior, ", if (!normal) paste0("df ", show(x$df), ", "),
         "location ", show(x$location), ", scale ", show(x$scale))
}
