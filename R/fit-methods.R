#' What to do with a fit
#'
#' `coef()` is the posterior mean, `vcov()` the posterior covariance
#' `Sigma %*% Sigma` of the approximation, `simulate()` draws from it (of a fit from a
#' formula, responses: see [simulate.elvi_glm()]).
#' `update()` and [elvi()] continue a run.
#'
#' A fit of a target that is only a function ([model_density()], [model_stan()]) whose start was searched has importance
#' weights, those of its verdict. Whatever shows its posterior - `coef()`, `vcov()`, `print()`, `summary()`, `confint()`,
#' `tidy()`, `plot()`, `simulate()`, [as.matrix()][as.matrix.elvi_fit] and all formats of draws - shows the approximation as
#' these weights correct it, and says so; the verdict is about that. `fit$mu`, `fit$Sigma`, [q_density()], [objective()] and
#' [elbo()] are about the approximation itself, and so are draws with `resample = FALSE`, which come with a warning where the
#' two differ by more than 0.3 standard deviations or a factor of 1.5. The weights are not used where k-hat is 1 or more, as
#' they have no mean there, unless they leave more than half of the draws: then everything shows the approximation itself.
#'
#' A regression with an unknown dispersion is fitted in its logarithm, and `fit$mu` and `fit$Sigma` have that as their last
#' parameter. Whatever tabulates, draws or plots shows `sigma` or `phi` itself; `coef()` and `vcov()` have the
#' coefficients only, and `sigma()` is the posterior mean of the residual standard deviation, 1 for families that have none.
#'
#' @param object,x an `elvi_fit`.
#' @param nsim number of draws.
#' @param seed optional seed; when given, R's generator is left as it was. Without
#'   one, draws are new in every call; [as.matrix()][as.matrix.elvi_fit] gives those of the fit.
#' @param complete for the generics' sake: no coefficient is ever left out, so it
#'   makes no difference.
#' @param digits number of significant digits.
#' @param ... passed on, or nothing.
#' @return `simulate()`: a matrix with one draw per row. `summary()`: an object
#'   with the table of posterior means and standard deviations and the account of
#'   the run, objective and ELBO, the gap to the optimum of its family in nats for
#'   models with an exact objective (see [elvi_optimum()]), and [pareto_k()]. The others as their generics say.
#' @examples
#' model <- model_quadratic(diag(c(1, 4)), m = c(a = 1, b = -1))
#' set.seed(1)
#' fit <- elvi(model, budget = 20000)
#' summary(fit)
#' vcov(fit)
#' simulate(fit, nsim = 3, seed = 1)
#' @name elvi_fit
NULL

#' @rdname elvi_fit
#' @export
print.elvi_fit <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  check_digits(digits)
  cat("elvi fit: ", x$base$kind, " base, ", x$control$scale, " scale\n", sep = "")
  print(x$model)
  cat(c(run_account(x), stack_line(x), verdict_lines(x)), sep = "\n")
  cat("\nPosterior mean and standard deviation (",
      if (is_corrected(x)) paste0(corrected_label, "; $mu and $Sigma are the approximation's") else
      if (!is.null(x$stack)) "of the mixture" else
      if (x$kept == "start") "the start, which the run did not improve" else
      if (x$kept == "optimum") { if (x$status == "interrupted") "at the best point so far" else "at the optimum" } else
      switch(x$control$average, theorem = "weighted average of the iterates",
             tail = "average of the last iterates", last = "last iterate"), "):\n", sep = "")
  table <- t(natural_table(x))
  shown <- min(ncol(table), 10L)
  print(table[, seq_len(shown), drop = FALSE], digits = digits)
  if (shown < ncol(table)) cat("... and", ncol(table) - shown, "more\n")
  invisible(x)
}

# two or three lines that say what was run and how it ended
run_account <- function(x) if (x$method == "exact") exact_account(x) else mpsgd_account(x)

exact_account <- function(x) {
  c(sprintf("Exact solver: %s after %s evaluations of the gradient",
            if (x$status == "interrupted") "INTERRUPTED" else if (x$converged) "converged" else "NOT CONVERGED",
            format_count(x$optimum$evaluations)),
    sprintf("Objective F = %s, %s", format(x$optimum$objective, digits = 8), distance_words(x$optimum)))
}

mpsgd_account <- function(x) {
  last <- x$trace[nrow(x$trace), ]
  c(sprintf("%s: %s of %s iterations, %s gradient evaluations, %.2f s CPU",
            switch(x$status, finished = "Run finished", paused = "Run paused",
                   interrupted = "Run INTERRUPTED", diverged = "Run DIVERGED"),
            format_count(x$state$k), format_count(x$plan$iterations),
            format_count(x$state$evals), x$cpu),
    sprintf("Smoothness L = %s in %s coordinates (%s)", format(x$smoothness, digits = 5),
            x$control$coordinates, x$smoothness_source),
    checks_account(x),
    if (isTRUE(is.finite(last$objective))) sprintf(
      "Objective F at the last iterate: %s (Monte Carlo, standard error %s; started at %s)",
      format(last$objective, digits = 6), format(last$se, digits = 2),
      format(x$trace$objective[1L], digits = 6)),
    if (!is.null(x$remaining)) sprintf(
      "%s: estimated gap to %s %s nats (standard error %s), tol = %s",
      if (isTRUE(x$converged)) "Converged" else if (is.na(x$converged)) "Not there yet" else "NOT CONVERGED",
      if (isTRUE(x$model$convex)) "the optimum" else "a local optimum (the target may have better ones)",
      format(x$remaining$estimate, digits = 2), format(x$remaining$se, digits = 2), format(x$tol)),
    neighbourhood_line(x),
    outside_line(x))
}

# A gap from gradients is that of a quadratic with its optimum a Newton step away; how far that can be trusted is shown by
# what the run has gained of late.
neighbourhood_line <- function(x) {
  gap <- x$remaining
  if (is.null(gap$gain)) return(NULL)
  sprintf("That gap is to an optimum within %s standard deviations of the fit; the last stage gained %s nats (standard error %s)",
          format(sqrt(2 * (gap$estimate + 2 * gap$se)), digits = 1), format(gap$gain$estimate, digits = 2),
          format(gap$gain$se, digits = 1))
}

checks_account <- function(x) {
  if (!isTRUE(x$control$backtrack > 0)) return(NULL)
  sprintf("Steps checked on %s fresh draws each (%s of the evaluations), now divided by %s, at most by %s",
          x$control$backtrack, format_count(x$state$checks), format_count(x$state$shorten), format_count(x$state$steepest))
}

#' @rdname elvi_fit
#' @export
summary.elvi_fit <- function(object, ...) {
  check_dots(list(...), names(formals()), "summary()")
  structure(list(fit = object,
                 table = natural_table(object),
                 objective = objective(object), elbo = elbo(object), gap = exact_gap(object),
                 pareto_k = k_of_verdict(object) %||% pareto_k(object)),
            class = "summary.elvi_fit")
}

#' @export
print.summary.elvi_fit <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  check_digits(digits)
  fit <- x$fit
  cat("elvi fit: ", fit$base$kind, " base, ", fit$control$scale, " scale",
      if (fit$method == "mpsgd") paste0(", ", fit$control$estimator, " gradient"), "\n", sep = "")
  print(fit$model)
  if (fit$method == "mpsgd") print(fit$schedule)
  cat(c(run_account(fit), stack_line(fit), verdict_lines(fit)), "", sep = "\n")
  if (is_corrected(fit)) cat("Posterior, ", corrected_label, " ($mu and $Sigma are the approximation's):\n", sep = "")
  print(x$table, digits = digits)
  cat("\nOf the returned approximation:\n")
  print(x$objective)
  print(x$elbo)
  if (!is.null(x$gap)) {
    cat("Gap to the optimum of its family: ", format(max(x$gap$gap, 0), digits = 3),
        " nats (F* = ", format(x$gap$optimum$objective, digits = 10), ", known to ",
        format(x$gap$optimum$certificate, digits = 1), " nats, ", x$gap$optimum$certificate_kind, ")\n", sep = "")
  }
  if (is.null(fit$verdict)) print(x$pareto_k)   # else it is among the lines of the verdict
  invisible(x)
}

#' @rdname elvi_fit
#' @export
coef.elvi_fit <- function(object, complete = TRUE, ...) {
  check_dots(list(...), names(formals()), "coef()")
  check_flag(complete, "complete")
  posterior_mean(object)[coefficient_places(object)]
}

#' @rdname elvi_fit
#' @export
vcov.elvi_fit <- function(object, complete = TRUE, ...) {
  check_dots(list(...), names(formals()), "vcov()")
  check_flag(complete, "complete")
  which <- coefficient_places(object)
  posterior_covariance(object)[which, which, drop = FALSE]
}

#' @rdname elvi_fit
#' @export
sigma.elvi_fit <- function(object, ...) {
  check_dots(list(...), names(formals()), "sigma()")
  model <- object$model
  if (!is_regression(model) || !isTRUE(dispersion_record(model)$residual)) return(1)
  if (is_dispersed(model)) natural_table(object)[["sigma", "mean"]] else sqrt(model$dispersion)
}

#' @rdname elvi_fit
#' @export
simulate.elvi_fit <- function(object, nsim = 1, seed = NULL, ...) {
  check_dots(list(...), names(formals()), "simulate()")
  nsim <- check_draws(nsim, object$model$dim, "nsim")
  key <- if (is.null(seed)) draw_key() else key_of_seed(seed)
  if (is_corrected(object)) corrected_draws(object, nsim, key) else natural_draws(object, keyed_draws(object, nsim, key))
}

#' @rdname elvi_fit
#' @export
update.elvi_fit <- function(object, ...) elvi(object, ...)
