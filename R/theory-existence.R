#' Does an optimum exist?
#'
#' A posterior does not always have a best approximation: with separable data and flat priors, for example, it does not.
#' `existence()` says whether one exists, and why. Formally, it asks whether `F(mu, Sigma) = E f(mu + Sigma z) - log|Sigma|` has
#' a minimiser.
#'
#' * If `f(x) >= c |x|^r - c'` for some exponent `r` and `E f` is finite somewhere, a minimiser exists, for every base. The
#'   paper asks for a log-concave base when the exponent is below 2; in an elliptic family that is not needed, because by
#'   symmetry `E |mu + Sigma z|^r >= (|mu|^r + sigma_max(Sigma)^r E|z_1|^r) / 4`.
#' * `E f` is finite for every `mu` and `Sigma` if `f` is smooth with some
#'   constant `L`, or if the base has bounded support. The paper does not ask for
#'   it, but without it `F` is infinite everywhere: poisson regression with a
#'   student base.
#' * With a flat prior, `f` of a generalised linear model grows at least linearly if it has a mode with a positive definite
#'   Hessian, because it is convex. Without a mode (separable data) `F` goes to minus infinity.
#'
#' If `f` is `L`-smooth, every minimiser lies in `Theta_L`: the singular values
#' of `Sigma` are at least `1/sqrt(L)`.
#'
#' @param model a model from [model_glm()], [model_quadratic()] or
#'   [model_density()]; for a density only what you supplied about `f` is known.
#' @param base the variational base, see [bases].
#' @return A list of class `elvi_existence` with `exists` (`TRUE`, `FALSE`, or
#'   `NA` when it is not known), `why`, in full and `brief`, `growth` (the exponent `r`, or `NA`) and
#'   `theta_L`: the lower bound `1/sqrt(L)` of the scale at an optimum,
#'   `NA` without a known `L`.
#' @seealso [guarantee()]
#' @examples
#' X <- cbind(1, c(-2, -1, 1, 2))
#' existence(model_glm(X, c(0, 0, 1, 1), prior = normal(0, 2.5)))
#' existence(model_glm(X, c(0, 0, 1, 1), prior = flat()))    # separable
#' existence(model_glm(X, c(0, 1, 0, 1), prior = flat()), base_student(3))
#' @export
existence <- function(model, base = base_gaussian()) {
  check_class(model, "model", "elvi_model", "a model_*() function")
  check_class(base, "base", "elvi_base", "a base_*() function")
  found <- judge_existence(model, law_of(base, model$dim))
  L <- model$smoothness
  structure(c(found, list(theta_L = if (isTRUE(found$exists)) 1 / sqrt(L) else NA_real_,
                          smoothness = L, smoothness_source = model$smoothness_source,
                          base = base, dim = model$dim)),
            class = "elvi_existence")
}

# Why every base will do. Let f(x) >= c |x|^r - c', r > 0, and E f be finite
# somewhere. z and -z have the same distribution and max(|x + y|, |x - y|)^2 >= |x|^2 +
# |y|^2, so E|mu + S z|^r >= E (|mu|^2 + |S z|^2)^(r/2) / 2 >= (|mu|^r + E|S z|^r) / 4.
# With v the leading right singular vector |S z| >= s |v'z|, s = sigma_max(S),
# and v'z is distributed as z_1. Hence F >= c (|mu|^r + s^r E|z_1|^r) / 4 - c' -
# log|S|, -log|S| >= -d log s: on a sublevel set mu and s are bounded, and then
# sigma_min(S) is bounded away from 0. F is lower semicontinuous (Fatou), so the
# set is compact and the minimum attained.
judge_existence <- function(model, law) {
  refused <- tryCatch(check_expectation(model, law), elvi_error_no_expectation = identity)
  if (inherits(refused, "error")) {
    return(finding(FALSE, "E f is infinite", paste("E f is infinite for every mu and Sigma: the tails of a", law$kind,
                                                   "base are too heavy for the", model$family$family, "likelihood's exp()")))
  }
  r <- model$growth
  if (is.na(r)) return(judge_growth(model))
  growth <- if (r >= 2) "quadratic growth" else sprintf("growth |x|^%g", r)
  if (is_user_density(model) && is.na(model$smoothness) && !is.finite(support_edge(law))) {
    return(finding(NA, paste0(growth, ", but E f may be infinite"),
                   sprintf(paste("The target f has %s, but E f may be infinite: f has no known smoothness and the",
                                 "%s base has unbounded support"), growth, law$kind), r))
  }
  finding(TRUE, growth, sprintf("The target f has %s, which is enough for every standardized base", growth), r)
}

finding <- function(exists, brief, why, growth = NA_real_) {
  list(exists = exists, brief = brief, why = why, growth = growth)
}

# of a model whose exponent r is not known
judge_growth <- function(model) UseMethod("judge_growth")

#' @export
judge_growth.elvi_model <- function(model) {
  finding(NA, "the growth of f is not known", "The growth of f is not known: give model_density() a `growth`")
}

#' @export
judge_growth.elvi_model_glm <- function(model) {
  if (model$convex) return(judge_flat_prior(model))
  finding(NA, "f is not convex", "The target f is not convex and a student prior grows only logarithmically")
}

#' @export
judge_growth.elvi_model_dispersed <- function(model) {
  finding(NA, "f is not convex", paste("The target f is not convex in", dispersion_name(model)))
}

# A convex f with a minimiser of positive definite Hessian has bounded level
# sets, so it grows at least linearly.
judge_flat_prior <- function(model) {
  mode <- tryCatch(find_mode(model), elvi_error_no_optimum = identity)
  if (inherits(mode, "elvi_error_no_optimum")) {
    recession <- inherits(mode, "elvi_error_argument")   # shown, not only suspected
    why <- conditionMessage(mode)
    if (!recession) return(finding(NA, "no mode was found", why))
    return(finding(FALSE, "separable data and a flat prior",
                   sub("^No optimum exists: (.)", "\\U\\1", why, perl = TRUE)))
  }
  if (is.null(or_null(chol(mode$hessian)))) {
    return(finding(NA, "the Hessian at the mode is singular",
                   "The Hessian at the mode is singular to working precision and the prior is flat"))
  }
  finding(TRUE, "convex with a mode, so linear growth",
          paste("The prior is flat, but f is convex and has a mode with a positive definite Hessian,",
                "so it grows at least linearly, which is enough for every base"), 1)
}

#' @export
print.elvi_existence <- function(x, ...) {
  cat("Does F have a minimiser (", x$base$kind, " base, dimension ", x$dim, ")? ",
      if (is.na(x$exists)) "not known" else if (x$exists) "yes" else "no", "\n", sep = "")
  lines <- c(paste0(x$why, if (!endsWith(x$why, ".")) "."), if (!is.na(x$theta_L)) sprintf(
    "Its smoothness is L = %s (%s), so at every minimiser the singular values of Sigma are at least 1/sqrt(L) = %s.",
    format(x$smoothness, digits = 4), x$smoothness_source, format(x$theta_L, digits = 4)))
  cat(strwrap(lines, indent = 2, exdent = 2, width = 80), sep = "\n")
  invisible(x)
}
