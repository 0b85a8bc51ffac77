#' How well does the approximation fit the target?
#'
#' `pareto_k()` measures how close an approximation is to the posterior. Below 0.5 the approximation is good, and importance sampling can
#' correct the rest. Up to a limit of about 0.7 it can be used with care. Above the limit the approximation misses part of the posterior;
#' another base or scale may help.
#'
#' k-hat is the estimated Pareto shape of the importance ratios `p(x)/q(x)` of target to approximation, from draws of the approximation.
#'
#' The limit is `1 - 1 / log10(n)` for `n` draws, and 0.7 from 2,200 on, where more draws do not help against the bias of
#' weights with such a tail. k-hat is an estimate, with the standard error of a Pareto shape. Without `draws`, up to four blocks of draws
#' are taken, until k-hat, the mean over the blocks, is more than two standard errors away from the limits between verdicts. Otherwise it
#' is reported as not settled. The verdict also depends on the effective sample size of the weights.
#'
#' If the log ratios of all draws are nearly constant (standard deviation at most 0.02, none further than 0.5 from their mean), there is
#' nothing to correct, and a Pareto shape of such small differences has no meaning. k-hat is then reported as 0.
#'
#' @section What is judged:
#' Where a fit shows a corrected posterior (see [correction]), k-hat is that of the corrected posterior, from the draws that `print()`
#' uses. `gaussian = TRUE` gives that of the best gaussian. With hyperparameters it is the largest over the quadrature points with most
#' weight.
#'
#' Where the [verdict] of a user-supplied density has adapted a mixture to the target, k-hat is that of the mixture, whose draws the fit
#' shows; printing also shows the k-hat of the approximation.
#'
#' @section What it cannot see:
#' k-hat depends only on places where the approximation has draws. It cannot detect another mode: for that, compare several starts
#' (`starts` of [elvi_model], and the R-hat over starts that such a fit prints). Nor does it depend on what is outside the support of a
#' uniform base; that share of the target is estimated by draws from a wider distribution, and reported.
#'
#' @param object an `elvi_fit`.
#' @param draws number of draws; `NULL` takes them until the verdict is settled.
#' @param seed optional number that selects another sequence of draws.
#' @param gaussian logical: judge the best gaussian, also where the fit shows a corrected posterior?
#' @param ... nothing: unknown names are errors.
#' @return An object of class `elvi_pareto_k`: a list with `k`, its standard error `se`, `limit`, `settled`, `draws`,
#'   `ess` (effective sample size of the importance weights), `outside` (the share of the target outside the support),
#'   `starts` (R-hat over starts, where some were compared) and `log_ratios`.
#' @references Yao, Vehtari, Simpson and Gelman (2018), *Yes, but did it work?
#'   Evaluating variational inference*. Zhang and Stephens (2009) for the
#'   estimator of the Pareto shape. Vehtari, Simpson, Gelman, Yao and Gabry (2024), *Pareto smoothed importance
#'   sampling*, for the limit.
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
pareto_k.elvi_fit <- function(object, draws = NULL, seed = NULL, gaussian = FALSE, ...) {
  check_dots(list(...), names(formals()), "pareto_k()")
  gaussian <- check_flag(gaussian, "gaussian")
  if (!is.null(draws)) draws <- check_draws(draws, posterior_dim(object$posterior), lower = 100)
  shown <- if (!gaussian) shown_pareto_k(object, draws, seed)
  if (!is.null(shown)) return(shown)
  key <- fit_key(object, seed)
  if (!is.null(object$nested)) return(nested_pareto_k(object, draws, key))
  drawn <- k_until_stable(function(i, n) draws_with_ratios(object, n, key, iteration = i - 1)$log_ratios,
                          block = draws %||% first_draws(object$model), most = if (is.null(draws)) k_blocks else 1L,
                          extra = k_good)
  new_pareto_k(drawn$log_ratios, drawn, outside = share_outside(object, key),
               starts = object$verdict$spread, one_mode = isTRUE(object$model$convex), adapted = adapted_line(object$verdict))
}

# Of the corrected posterior, as in print(); NULL if it has no draws.
shown_pareto_k <- function(object, draws, seed) {
  samples <- shown_samples(object, draws, if (!is.null(seed)) fit_key(object, seed))
  if (is.null(samples)) return(NULL)
  each <- vapply(samples, function(s) pareto_shape(s$log_ratios), 0)
  out <- new_pareto_k(samples[[which.max(each)]]$log_ratios, one_mode = TRUE)
  out$conditional <- each
  out$corrected <- TRUE
  out
}

# Of the conditional posteriors at the quadrature points: `k` is the worst of `conditional`. There is no joint weight of all points.
nested_pareto_k <- function(object, draws, key) {
  nested <- object$nested
  plan <- object$posterior$roots$plan
  summed <- isTRUE(plan$summed) && !is_quadratic(plan)   # nothing is drawn of data larger than memory
  if (summed && !is.null(draws)) check_in_memory(object)
  if (!is.null(draws) && !is.na(worst_k(nested)) && worst_k(nested) > -Inf) {
    nested$k_hat <- component_shapes(object$posterior, object$problem, draws, key)
    nested$draws <- draws
  }
  k <- worst_k(nested)
  structure(list(k = k, se = if (is.finite(k)) k_error(k, nested$draws) else 0, limit = k_usable, settled = NA, draws = nested$draws,
                 ess = NA_real_, outside = NULL, starts = NULL, one_mode = TRUE, adapted = NULL, log_ratios = NULL,
                 conditional = nested$k_hat, corrected = nested$corrected, line = k_line(nested)), class = "elvi_pareto_k")
}

# What the verdict has looked at already; NULL for a fit without one.
k_of_verdict <- function(fit) {
  v <- fit$result$verdict
  if (!is.null(v$log_ratios)) new_pareto_k(v$log_ratios, list(k = v$k, k_se = v$k_se, limit = v$limit, stable = v$stable),
                                outside = v$uncovered, starts = v$spread, adapted = adapted_line(v))
}

# fewer where a value takes a pass over very many rows, or a draw has very many parameters
first_draws <- function(model) {
  if (is_wide(model)) return(max(fewest_k_draws, min(wide_k_draws, check_numbers_all %/% model$dim)))
  max(wide_k_draws, min(k_block, k_row_values %/% max(1, length(model$rows$y))))
}

# Draws of q in model coordinates, one per column, with log p(x) (up to the
# constants that f leaves out), log q(x) and their difference. q is the density from which the draws of the
# fit are proposed. NULL if there is no target, as for regressions with several predictors, or no density of draws.
draws_with_ratios <- function(fit, n, key = draw_key(), iteration = 0) {
  drawn <- if (!is.null(fit$given$model)) propose_points(uncorrected(fit$posterior), n, fit$result$verdict$proposal, iteration, key)
  if (is.null(drawn)) return(NULL)
  f <- guarded_values(fit$model, drawn$x)
  drawn$log_p <- ifelse(is.finite(f), -f, -Inf)
  drawn$log_ratios <- drawn$log_p - drawn$log_q
  drawn
}

# ---- k-hat and what it rests on ------------------------------------------------------------

# The limit above which the approximation misses part of the target, for estimates from n draws (Vehtari et al. 2024).
k_limit <- function(n) pmin(k_usable, 1 - 1 / log10(n))

# the asymptotic standard error of a Pareto shape estimated from the tail
k_error <- function(k, n) if (is.finite(k)) (1 + max(k, 0)) / sqrt(min(0.2 * n, 3 * sqrt(n))) else 0

# The mean of k-hat over blocks of log ratios, draw(i, n) the i-th of them, taken until it is more than two standard
# errors away from its limit, and from `extra`, or until they are `enough` where it is so many below its limit; on while
# they are `too_few` for something else.
k_until_stable <- function(draw, block = k_block, most = k_blocks, extra = NULL, enough = function(log_ratios, below) FALSE,
                           too_few = function(log_ratios) FALSE) {
  log_ratios <- numeric()
  k <- numeric()
  for (i in seq_len(most)) {
    new <- draw(i, block)
    log_ratios <- c(log_ratios, new)
    k <- c(k, pareto_shape(new))
    se <- k_error(mean(k), block) / sqrt(i)
    stable <- all(abs(mean(k) - c(k_limit(i * block), extra)) > 2 * se)
    if ((stable || enough(log_ratios, (k_limit(i * block) - mean(k)) / se)) && !too_few(log_ratios)) break
  }
  list(k = mean(k), k_se = se, limit = k_limit(length(log_ratios)), stable = stable, draws = length(log_ratios),
       log_ratios = log_ratios)
}

new_pareto_k <- function(log_ratios, drawn = NULL, outside = 0, starts = NULL, one_mode = FALSE, adapted = NULL) {
  n <- length(log_ratios)
  drawn <- drawn %||% k_until_stable(function(i, n) log_ratios, n, 1L, extra = k_good)
  structure(list(k = drawn$k, se = drawn$k_se, limit = drawn$limit, settled = drawn$stable, draws = n,
                 ess = effective_draws(log_ratios), outside = outside, starts = starts, one_mode = one_mode,
                 adapted = adapted, log_ratios = log_ratios, conditional = drawn$k, corrected = FALSE, line = NULL),
            class = "elvi_pareto_k")
}

# 0 where the target has no density at any draw
effective_draws <- function(log_ratios) {
  if (!is.finite(max(log_ratios))) return(0)
  weights <- exp(log_ratios - max(log_ratios))
  sum(weights)^2 / sum(weights^2)
}

# The share of the target outside a bounded support, by draws of a student distribution about the approximation. NULL for bases
# that are everywhere.
share_outside <- function(fit, key, n = max(fewest_k_draws, min(4000, draws_to_check(fit$model$dim)))) {
  law <- law_of(fit$base, fit$model$dim)
  if (is.finite(law$log_phi(1e6))) return(NULL)
  wide <- law_of(base_student(5), fit$model$dim)
  z <- draw_base(wide, key, n, iteration = streams[["support"]])
  at <- model_theta(fit)
  r <- sqrt(colSums(z^2))
  log_w <- -guarded_values(fit$model, at$mu + root_times(at$scale, z)) - wide$log_phi(r)
  if (!any(is.finite(log_w))) return(NA_real_)
  w <- exp(log_w - max(log_w[is.finite(log_w)]))
  sum(w[is.finite(w) & law$log_phi(r) == -Inf]) / sum(w[is.finite(w)])
}

# Shape of the generalised Pareto distribution fitted to the largest importance ratios.
pareto_shape <- function(log_ratios) {
  n <- length(log_ratios)
  tail <- ceiling(min(0.2 * n, 3 * sqrt(n)))
  sorted <- sort(log_ratios, decreasing = TRUE)
  if (!all(is.finite(sorted[seq_len(tail + 1L)]))) return(Inf)
  # all ratios alike, up to rounding: nothing to correct
  if (sorted[1L] - sorted[tail + 1L] < 1e-8) return(-Inf)
  if (nearly_constant(log_ratios)) return(0)
  ratios <- exp(sorted - sorted[1L])
  x <- rev(ratios[seq_len(tail)] - ratios[tail + 1L])
  shape <- zhang_stephens(x)
  if (is.nan(shape)) return(Inf)
  # the weak prior of Vehtari et al.: ten observations of shape 0.5
  (tail * shape + 5) / (tail + 10)
}

# Weights that hardly differ leave nothing to correct, and a shape fitted to such differences can be anything.
nearly_constant <- function(log_ratios) {
  if (length(log_ratios) < 2L) return(FALSE)
  away <- abs(log_ratios - mean(log_ratios))
  isTRUE(max(away) <= 0.5 && mean(away^2) <= 0.02^2)
}

# Zhang and Stephens (2009): the posterior mean of a profile likelihood. x sorted.
zhang_stephens <- function(x) {
  n <- length(x)
  m <- 30 + floor(sqrt(n))
  quartile <- x[max(1, floor(n / 4 + 0.5))]
  if (quartile <= 0) quartile <- min(x[x > 0])
  theta <- 1 / x[n] + (1 - sqrt(m / (seq_len(m) - 0.5))) / (3 * quartile)
  k <- colMeans(log1p(-outer(x, theta)))
  profile <- n * (log(-theta / k) - k - 1)
  weight <- exp(profile - max(profile))
  b <- sum(theta * weight) / sum(weight)
  mean(log1p(-b * x))
}

#' @export
print.elvi_pareto_k <- function(x, ...) {
  if (!is.null(x$line)) {
    writeLines(folded(x$line))
    return(invisible(x))
  }
  if (nearly_constant(x$log_ratios)) {
    cat("Pareto k-hat: not needed (log ratios within ", format(max(abs(x$log_ratios - mean(x$log_ratios))), digits = 1),
        " of a constant, sd ", format(stats::sd(x$log_ratios), digits = 1), "), ", format_count(x$draws), " draws\n", sep = "")
  } else cat("Pareto k-hat: ", format(x$k, digits = 2), if (is.finite(x$k)) sprintf(" (standard error %s)", format(x$se, digits = 1)),
      ", ", format_count(x$draws), " draws, effective sample size ", format_count(round(x$ess)), "\n", sep = "")
  cat(judged_k(x), "\n", sep = "")
  if (!is.null(x$adapted)) writeLines(strwrap(paste0(x$adapted, ".")))
  if (!is.null(x$starts)) cat("R-hat over starts: ", format(x$starts, digits = 3), "\n", sep = "")
  else if (!x$one_mode) cat("It cannot detect a mode that the approximation never reaches: compare several starts.\n")
  invisible(x)
}

judged_k <- function(x) {
  if (isTRUE(x$outside > most_missing)) return(sprintf(
    "poor: the support of its base is bounded and excludes about %.0f%% of the target, which k-hat cannot detect",
    100 * x$outside))
  if (x$ess < min(fewest_effective, x$draws / 10)) return(sprintf(
    "poor: importance weights leave %s draws, too few to correct it", format_count(round(x$ess))))
  paste0(k_verdict(x$k, x$limit), if (!x$settled) " (not settled: within two standard errors of another verdict)")
}

k_verdict <- function(k, limit = k_usable) {
  if (k < k_good) {
    "good: close to the target"
  } else if (k < limit) {
    "fair: importance sampling can correct it"
  } else {
    "poor: the family misses part of the target"
  }
}
