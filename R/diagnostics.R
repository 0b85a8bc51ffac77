#' How well does the approximation fit the target?
#'
#' Pareto k-hat of the importance ratios `p(x)/q(x)` of target to approximation,
#' from draws of the approximation. A k-hat below 0.5 means the approximation is
#' close enough for importance sampling to correct what is left, up to 0.7 that
#' it may be used with care, above 0.7 that it misses part of the target: being
#' at the optimum of the family does not help then, another base or scale may.
#'
#' @param object an `elvi_fit`.
#' @param draws number of draws.
#' @param ... nothing: unknown names are errors.
#' @return An object of class `elvi_pareto_k`: a list with `k`, `draws`, `ess`
#'   (effective sample size of the importance weights) and `log_ratios`.
#' @references Yao, Vehtari, Simpson and Gelman (2018), *Yes, but did it work?
#'   Evaluating variational inference*. Zhang and Stephens (2009) for the
#'   estimator of the Pareto shape.
#' @examples
#' model <- model_glm(cbind(1, scale(infert$age)), infert$case)
#' set.seed(1)
#' fit <- elvi(model)
#' pareto_k(fit)
#' @export
pareto_k <- function(object, ...) UseMethod("pareto_k")

#' @export
pareto_k.default <- not_a_fit

#' @rdname pareto_k
#' @export
pareto_k.elvi_fit <- function(object, draws = 2000, ...) {
  check_dots(list(...), names(formals()), "pareto_k()")
  draws <- check_draws(draws, object$model$dim, lower = 100)
  # many parameters: a few draws at a time, of which only the ratios stay
  parts <- if (is_wide(object$model)) tabulate((seq_len(draws) - 1L) %/% 100L + 1L) else draws
  new_pareto_k(unlist(lapply(parts, function(n) draws_with_ratios(object, n)$log_ratios)))
}

# Draws of q in model coordinates, one per column, with log p(x) (up to the
# constants that f leaves out), log q(x) and their difference.
draws_with_ratios <- function(fit, n, key = draw_key()) {
  law <- law_of(fit$base, fit$model$dim)
  z <- draw_base(law, key, n)
  at <- model_parameters(fit)
  x <- at$mu + root_times(at$scale, z)
  log_p <- -target_at(fit$model, x)$value
  log_q <- law$log_constant + law$log_phi(sqrt(colSums(z^2))) - log_det(fit$control$scale, at$scale)
  list(x = x, log_p = log_p, log_q = log_q, log_ratios = log_p - log_q)
}

new_pareto_k <- function(log_ratios) {
  weights <- exp(log_ratios - max(log_ratios))
  structure(list(k = pareto_shape(log_ratios), draws = length(log_ratios),
                 ess = sum(weights)^2 / sum(weights^2), log_ratios = log_ratios),
            class = "elvi_pareto_k")
}

# Shape of the generalised Pareto law fitted to the largest importance ratios.
pareto_shape <- function(log_ratios) {
  n <- length(log_ratios)
  tail <- ceiling(min(0.2 * n, 3 * sqrt(n)))
  sorted <- sort(log_ratios, decreasing = TRUE)
  if (!all(is.finite(sorted[seq_len(tail + 1L)]))) return(Inf)
  # all ratios alike, up to rounding: nothing to correct
  if (sorted[1L] - sorted[tail + 1L] < 1e-8) return(-Inf)
  ratios <- exp(sorted - sorted[1L])
  x <- rev(ratios[seq_len(tail)] - ratios[tail + 1L])
  shape <- zhang_stephens(x)
  # the weak prior of Vehtari et al.: ten observations of shape 0.5
  (tail * shape + 5) / (tail + 10)
}

# Zhang and Stephens (2009): the posterior mean of a profile likelihood. x sorted.
zhang_stephens <- function(x) {
  n <- length(x)
  m <- 30 + floor(sqrt(n))
  quartile <- x[max(1, floor(n / 4 + 0.5))]
  if (quartile <= 0) quartile <- min(x[x > 0])
  theta <- 1 / x[n] + (1 - sqrt(m / (seq_len(m) - 0.5))) / (3 * quartile)
  profile <- vapply(theta, function(b) {
    k <- mean(log1p(-b * x))
    n * (log(-b / k) - k - 1)
  }, 0)
  weight <- exp(profile - max(profile))
  b <- sum(theta * weight) / sum(weight)
  mean(log1p(-b * x))
}

#' @export
print.elvi_pareto_k <- function(x, ...) {
  cat("Pareto k-hat: ", format(x$k, digits = 2), " (", k_verdict(x$k), "; ",
      format(x$draws, big.mark = ","), " draws, effective sample size ",
      format(round(x$ess), big.mark = ","), ")\n", sep = "")
  invisible(x)
}

k_verdict <- function(k) {
  if (k < 0.5) {
    "good: close to the target"
  } else if (k < 0.7) {
    "fair: importance sampling can correct it"
  } else {
    "poor: the family misses part of the target"
  }
}
