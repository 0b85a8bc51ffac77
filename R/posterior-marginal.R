#' Marginal distributions of the approximation
#'
#' `q_density()`, `q_probability()` and `q_quantile()` are the density, distribution and quantile functions of one parameter of
#' a fit. They give tail probabilities and quantiles without Monte Carlo error.
#'
#' Each parameter of the approximation is `mu_j + s_j z` with `z` the marginal of the base and `s_j` its standard deviation, or a mixture
#' of such variables over quadrature points. A `sigma` or `phi` that was fitted by its logarithm is `exp()` of such a variable. Standard
#' deviations, correlations and dispersions that a fit integrates over are represented by 10,000 draws.
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
  at$density(check_vector(x, "x", infinite = TRUE))
}

#' @rdname q_density
#' @export
q_probability <- function(object, parameter, x) {
  at <- marginal_at(object, parameter)
  at$probability(check_vector(x, "x", infinite = TRUE))
}

#' @rdname q_density
#' @export
q_quantile <- function(object, parameter, p) {
  at <- marginal_at(object, parameter)
  at$quantile(check_probabilities(p, "p"))
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
  posterior_marginal(without_points(fit$posterior), j)
}

# positions of parameters given by name or number; NULL for all
check_parameters <- function(fit, which, name) {
  labels <- fit$posterior$shown
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
