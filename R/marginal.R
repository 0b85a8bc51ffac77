#' Marginal distributions of the approximation
#'
#' The approximation is a known distribution: each parameter is `mu_j + s_j z`
#' with `z` the marginal of the base and `s_j` its standard deviation. These are
#' its density, distribution and quantile functions, exact up to quadrature. A `sigma` or `phi` is `exp()` of
#' such a variable.
#'
#' @param object an `elvi_fit`.
#' @param parameter name or number of one parameter.
#' @param x points, in the units of the parameter.
#' @param p probabilities.
#' @return A numeric vector as long as `x` or `p`.
#' @examples
#' model <- model_glm(cbind(intercept = 1, age = scale(infert$age)[, 1]), infert$case)
#' fit <- elvi(model, base_laplace(), method = "exact")
#' q_quantile(fit, "age", c(0.025, 0.5, 0.975))
#' 1 - q_probability(fit, "age", 0)
#' q_density(fit, "age", 0)
#' @export
q_density <- function(object, parameter, x) {
  at <- marginal_at(object, parameter)
  x <- check_vector(x, "x", infinite = TRUE)
  over_components(at, function(mean, sd) {
    z <- abs(at$scale(x) - mean) / sd
    out <- numeric(length(z))
    finite <- is.finite(z)
    out[finite] <- marginal_density(at$law, pmax(z[finite], 1e-12)) / sd * at$slope(x[finite])
    out
  })
}

#' @rdname q_density
#' @export
q_probability <- function(object, parameter, x) {
  at <- marginal_at(object, parameter)
  x <- check_vector(x, "x", infinite = TRUE)
  over_components(at, function(mean, sd) marginal_probability(at$law, (at$scale(x) - mean) / sd))
}

#' @rdname q_density
#' @export
q_quantile <- function(object, parameter, p) {
  at <- marginal_at(object, parameter)
  p <- check_probabilities(p, "p")
  if (length(at$weight) == 1L) return(at$unscale(at$mean + at$sd * marginal_quantile(at$law, p)))
  reach <- support_edge(at$law) * at$sd
  out <- ifelse(p > 0, max(at$mean + reach), min(at$mean - reach))
  inside <- p > 0 & p < 1
  if (any(inside)) out[inside] <- mixture_quantiles(t(at$mean), t(at$sd), at$weight, at$law, p[inside])
  out
}

check_probabilities <- function(p, name) {
  p <- check_vector(p, name)
  if (any(p < 0 | p > 1)) bad_argument(name, "between 0 and 1", describe(p[p < 0 | p > 1][1L]))
  p
}

marginal_at <- function(fit, parameter) {
  check_class(fit, "object", "elvi_fit", "elvi()")
  j <- check_parameters(fit, parameter, "parameter")
  if (length(j) != 1L) bad_argument("parameter", "the name or number of one parameter", describe(parameter))
  marginal_of(fit, j)
}

marginal_of <- function(fit, j) UseMethod("marginal_of")

#' @export
marginal_of.elvi_fit <- function(fit, j) {
  c(list(mean = fit$mu[[j]], sd = approximation_sd(fit)[[j]], weight = 1, law = law_of(fit$base, fit$model$dim)),
    if (j == dispersion_place(fit)) log_scale else own_scale)
}

# The scale on which a marginal is that of the base: to it, back, and the derivative of the way to it.
own_scale <- list(scale = identity, unscale = identity, slope = function(x) 1)
log_scale <- list(scale = function(x) log(pmax(x, 0)), unscale = exp, slope = function(x) 1 / x)

# A marginal is a mixture of one component, or of one for each node of a nested fit.
over_components <- function(at, f) {
  Reduce(`+`, Map(function(mean, sd, weight) weight * f(mean, sd), at$mean, at$sd, at$weight))
}

# positions of parameters given by name or number; NULL for all
check_parameters <- function(fit, which, name) {
  labels <- natural_names(fit)
  if (is.null(which)) return(seq_along(labels))
  j <- if (is.character(which)) match(which, labels) else if (is.numeric(which)) match(which, seq_along(labels))
  if (is.null(j) || anyNA(j) || !length(j)) {
    unknown <- if (length(j) && anyNA(j)) describe(which[is.na(j)][1L]) else describe(which)
    bad_argument(name, paste0("among the parameters (", toString(utils::head(labels, 8)),
                              if (length(labels) > 8) ", ...", ")"), unknown)
  }
  j
}

# P(z_1 <= z) and its inverse for a base in its dimension
marginal_probability <- function(law, z) {
  upper <- (if (is.null(law$marginal)) tail_function(law) else law$marginal$upper)(abs(z))
  upper[z > 0] <- 1 - upper[z > 0]
  upper
}

marginal_quantile <- function(law, p) {
  tail <- pmin(p, 1 - p)
  z <- if (is.null(law$marginal)) tabulated_quantile(law, tail) else law$marginal$quantile(tail)
  low <- !(p > 0.5)
  z[low] <- -z[low]
  z
}

# upper tail P(z_1 > z), z >= 0, as a function of z: whole panels are summed once,
# the panel that z cuts is done by Gauss-Legendre
tail_function <- function(law) {
  edge <- support_edge(law)
  reach <- if (is.finite(edge)) edge else marginal_reach(law)
  gl <- gauss_legendre(40L)
  # unit panels, and growing ones far out: heavy tails reach far
  breaks <- c(0, 2^(-8:-1), 1:16)
  while (breaks[length(breaks)] < reach) breaks <- c(breaks, 1.2 * breaks[length(breaks)])
  breaks <- c(breaks[breaks < reach], reach)
  panel <- function(a, b) {
    x <- (a + b) / 2 + (b - a) / 2 * gl$x
    (b - a) / 2 * sum(gl$w * marginal_density(law, x))
  }
  masses <- mapply(panel, breaks[-length(breaks)], breaks[-1L])
  beyond <- c(rev(cumsum(rev(masses))), 0)
  function(z) vapply(z, function(v) {
    if (v >= reach) return(0)
    i <- findInterval(v, breaks)
    (panel(v, breaks[i + 1L]) + beyond[i + 1L]) / (2 * beyond[1L])
  }, 0)
}

tabulated_quantile <- function(law, tail) {
  upper <- tail_function(law)
  vapply(tail, function(q) {
    if (q >= 0.5) return(0)
    if (q <= 0) return(support_edge(law))
    top <- 2
    while (upper(top) > q) top <- 2 * top
    # 0 beyond the support has no logarithm
    stats::uniroot(function(z) log(pmax(upper(z), 1e-300)) - log(q), c(0, top), tol = 1e-10)$root
  }, 0)
}
