# print() and summary(): one layout for every fit. What was fitted, the estimates, then how it was solved and how good it is.

#' @rdname elvi_fit
#' @export
print.elvi_fit <- function(x, digits = max(3L, getOption("digits") - 4L), ...) {
  check_digits(digits)
  writeLines(c(fit_heading(x), ""))
  print_estimates(x, digits)
  writeLines(c("", folded(closing_lines(x, posterior_error(x)))))
  invisible(x)
}

# how it was solved, the error against the posterior, k-hat, and warnings about the fit
closing_lines <- function(x, error) {
  c(solver_account(x)$lines, error_line(error), shown_k_line(error), uncorrected_words(x$posterior), verdict_lines(x))
}

fit_heading <- function(x) {
  if (is.null(x$regression)) return(description(x$given$model))
  c(sprintf("%s regression (%s link), %s observations", x$family$family, x$family$link, format_count(stats::nobs(x))),
    deparse_one(x$formula), second_heading(x))
}

# the formula of a second parameter
second_heading <- function(x) {
  if (is.null(x$second)) return(NULL)
  second <- family_record(x$family)$second
  paste0(second$parameter, " (", second$link, " link) ", deparse_one(x$second$formula))
}

print_estimates <- function(x, digits, most = 10L) {
  groups <- length(x$groups) > 0L
  which <- if (groups) x$posterior$coefficients else shown_parameters(x, NULL, "parm")
  cat(if (is_prior(x)) "Prior" else "Posterior", " mean and standard deviation", estimates_of(x), ":\n", sep = "")
  d <- posterior_dim(x$posterior)
  if (is.null(x$regression) && any(which > d)) which <- c(which[which > d], which[which <= d])   # hyperparameters first
  shown <- if (is.null(x$regression)) utils::head(which, most) else which
  if (length(shown)) print_table(posterior_table(x, shown), digits)
  if (length(shown) < length(which)) cat("... and", length(which) - length(shown), "more\n")
  if (groups) print_hyper(x, digits)
}

# what the estimates describe, if not the result of a solver
estimates_of <- function(x) {
  if (!is.null(x$polish)) return(" (of Hamiltonian Monte Carlo chains; $mu and $Sigma are the approximation's)")
  if (is_by_chains(x$verdict)) return(if (x$verdict$correct) " (of chains from the approximation, which is $mu and $sd)" else "")
  if (!is.null(verdict_points(x))) return(" (corrected by importance weights; $mu and $Sigma are the approximation's)")
  of_stack <- stack_words(x)
  if (!is.null(of_stack)) return(of_stack)
  if (x$method == "exact" && x$status == "interrupted") return(" (at the best point so far)")
  if (x$method != "mpsgd") return("")
  if (x$kept == "start") return(" (of the start, which the run did not improve)")
  switch(x$control$average, theorem = " (weighted average of the iterates)", tail = " (average of the last iterates)",
         last = " (last iterate)")
}

# standard deviations and correlations of terms, and the dispersion: mean and sd of each
print_hyper <- function(x, digits) {
  moments <- posterior_moments(x$posterior)
  tables <- lapply(x$groups, function(term) {
    names <- sd_names(term)
    data.frame(term_record(term)$heading(term), mean = moments$mean[names], sd = moments$sd[names])
  })
  table <- do.call(rbind, tables)
  table[c("mean", "sd")] <- as.data.frame(aligned_by_sd(as.matrix(table[c("mean", "sd")]), digits))
  table$term[duplicated(table$term)] <- ""
  rownames(table) <- NULL
  cat("\nStandard deviations of latent terms (", if (is_prior(x)) "prior" else "posterior", " mean, and its sd):\n", sep = "")
  names(table) <- c("term", "coefficient", "levels", "mean", "sd")
  if (all(table$levels == "")) table$levels <- NULL
  print(table, digits = digits, row.names = FALSE, right = FALSE)
  others <- unlist(lapply(x$groups, function(term) setdiff(natural_names(term), sd_names(term))))
  if (length(others)) {
    cat(if (all(startsWith(others, "cor("))) "Correlations" else "Other hyperparameters", ":\n", sep = "")
    print_table(cbind(mean = moments$mean[others], sd = moments$sd[others]), digits)
  }
  for (name in family_parameter_names(x)) {
    shown <- trimws(aligned_by_sd(cbind(mean = moments$mean[[name]], sd = moments$sd[[name]]), digits))
    cat(name, ": ", shown[1L], " (sd ", shown[2L], ")\n", sep = "")
  }
}

# ---- numbers of different units in one column -----------------------------------------------------------

print_table <- function(table, digits) print(aligned_by_sd(table, digits), quote = FALSE, right = TRUE)

# Each row to as many decimals as its standard deviation has with so many significant digits, the decimal points below each other:
# coefficients of age and of income are both readable, and none is shown to digits that mean nothing.
aligned_by_sd <- function(table, digits) {
  decimals <- decimals_of(table[, "sd"], digits)
  text <- array("", dim(table), list(rownames(table), colnames(table)))
  for (row in seq_len(nrow(table))) text[row, ] <- fixed_or_short(table[row, ], decimals[row], digits)
  apply_columns(text, align_points)
}

# NA where fixed notation would be long: for tiny and huge sds, and those that are not finite
decimals_of <- function(sd, digits) {
  decimals <- digits - 1 - floor(log10(signif(sd, digits)))
  ifelse(is.finite(decimals) & decimals <= digits + 4 & decimals > -8, pmax(decimals, 0), NA)
}

fixed_or_short <- function(values, decimals, digits) {
  if (is.na(decimals) || any(abs(values[is.finite(values)]) >= 1e10)) return(formatC(values, digits = digits + 1L, format = "g"))
  formatC(round(values, decimals) + 0, digits = decimals, format = "f")   # no -0.00
}

align_points <- function(text) {
  after <- nchar(sub("^[^.,]*", "", text))
  paste0(text, strrep(" ", max(after) - after))
}

apply_columns <- function(text, f) {
  for (column in seq_len(ncol(text))) text[, column] <- f(text[, column])
  text
}

# ---- summary ------------------------------------------------------------------------------------------

#' @rdname elvi_fit
#' @export
summary.elvi_fit <- function(object, ...) {
  check_dots(list(...), names(formals()), "summary()")
  structure(list(fit = object, table = posterior_table(object, shown_parameters(object, NULL, "parm"), c(0.025, 0.5, 0.975)),
                 ngrps = if (!is.null(object$regression)) ngrps.elvi_glm(object),
                 objective = if (is.null(object$nested)) objective(object), elbo = if (!is_prior(object)) elbo(object),
                 evidence = cheap_evidence(object),
                 gap = exact_gap(object), error = posterior_error(object),
                 pareto_k = k_of_verdict(object) %||% pareto_k(object)),
            class = "summary.elvi_fit")
}

#' @export
print.summary.elvi_fit <- function(x, digits = max(3L, getOption("digits") - 4L), ...) {
  check_digits(digits)
  fit <- x$fit
  writeLines(c(fit_heading(fit), if (length(x$ngrps)) paste("groups:", toString(paste(names(x$ngrps), format_count(x$ngrps)))),
               solver_account(fit)$details, ""))
  cat(if (is_prior(fit)) "Prior" else "Posterior", estimates_of(fit), ":\n", sep = "")
  print_table(x$table, digits)
  writeLines(c("", folded(c(closing_lines(fit, x$error), solver_account(fit)$more))))
  if (!is.null(x$objective)) print(x$objective)
  if (!is.null(x$evidence)) print(x$evidence) else if (!is.null(x$elbo)) print(x$elbo)
  if (!is.null(x$gap) && fit$method != "exact") {   # whose first line says so
    cat("Gap to the optimum of its family: ", format(max(x$gap$gap, 0), digits = 3),
        " nats (F* = ", format(x$gap$optimum$objective, digits = 10), ", known to ",
        format(x$gap$optimum$certificate, digits = 1), " nats, ", x$gap$optimum$certificate_kind, ")\n", sep = "")
  }
  invisible(x)
}

#' @export
coef.summary.elvi_fit <- function(object, ...) {
  object$table[names(fixed_means(object$fit$posterior)), , drop = FALSE]
}

# kable(summary(fit)) makes a data frame of what it is given
#' @export
as.data.frame.summary.elvi_fit <- function(x, row.names = NULL, optional = FALSE, ...) {
  as.data.frame(x$table, row.names = row.names, optional = optional)
}

# without hyperparameters there is one point, and nothing to say of it
nested_words <- function(converged, points, H) {
  if (points == 1L) return(if (converged) "Converged:" else "NOT CONVERGED:")
  sprintf("%s %d quadrature points (%d hyperparameter%s),", if (converged) "Converged at all" else "NOT CONVERGED at some of", points, H,
          if (H == 1L) "" else "s")
}

# ---- how it was solved -------------------------------------------------------------------------------------

# What each solver has to say of its work: certificate (nats above the optimum, at most), quadrature_error, evaluations of the
# gradient; `lines` of print(), and `details` of summary().
solver_account <- function(fit) solver_accounts[[fit$method]](fit)

solver_accounts <- list(
  exact = function(x) {
    optimum <- x$optimum
    list(certificate = optimum$certificate, quadrature_error = 0, evaluations = optimum$evaluations,
         lines = sprintf("%s: %s",
                         if (x$status == "interrupted") "INTERRUPTED" else if (x$converged) "Converged" else "NOT CONVERGED",
                         distance_words(optimum, paste("best", x$base$kind))),
         more = c(if (x$converged) correction_words(x$posterior), approximation_words(x$posterior)),
         details = sprintf("%s base, %s scale, exact solver, %s evaluations of the gradient", x$base$kind, x$control$scale,
                           format_count(optimum$evaluations)))
  },
  nested = function(x) {
    nested <- x$nested
    H <- length(shown_hyper_names(x$posterior))
    list(certificate = max(nested$certificates), quadrature_error = max(unlist(nested$change)), evaluations = nested$evaluations,
         lines = c(paste(nested_words(x$converged, length(nested$certificates), H), gap_words(nested),
                         format(max(nested$certificates), digits = 1), "nats"),
                   cubature_line(nested$cubature)),
         more = c(if (length(nested$certificates) > 1L && !is_quadratic(x$posterior$roots$plan)) {
                    sprintf("Quadrature error: means within %s sd, sds within %s %% (%s)", format(nested$change$mean, digits = 2),
                            format(100 * nested$change$sd, digits = 2), rule_words(x$posterior))
                  },
                  if (x$converged) correction_words(x$posterior),
                  if (!is_quadratic(x$posterior$roots$plan)) paste("Of the gaussians:", k_line(nested))),
         details = sprintf("%s base, quadrature over hyperparameters (%s)", x$base$kind, rule_name(x$posterior)))
  },
  prior = function(x) {
    points <- length(x$posterior$weight)
    list(certificate = 0, quadrature_error = 0, evaluations = points,
         lines = c("This is the prior: prior_only = TRUE leaves the likelihood out",
                   if (points > 1L) paste(format_count(points), "points represent hyperparameters and scales of student priors"),
                   infinite_line(x$priors$joint)),
         details = "no data, no solver")
  },
  integrated = function(x) {
    nested <- x$nested
    list(certificate = max(nested$certificates), quadrature_error = max(unlist(nested$change)), evaluations = nested$evaluations,
         lines = c(sprintf(paste("%s at %s quadrature points over %s: the best gaussian of the other parameters at each,",
                                 "estimated gap at most %s nats"),
                           if (x$converged) "Converged" else "NOT CONVERGED", format_count(length(x$posterior$weight)),
                           x$verdict$given, format(max(nested$certificates), digits = 1)),
                   sprintf("Quadrature error: means within %s sd, sds within %s %% (%s)", format(nested$change$mean, digits = 2),
                           format(100 * nested$change$sd, digits = 2), rule_words(x$posterior)),
                   if (nested$corrected) "Weights of the points are corrected by importance weights"),
         details = c(sprintf("Quadrature (%s), %s evaluations of the target", rule_name(x$posterior), format_count(nested$evaluations)),
                     x$plan$pattern$words))
  },
  laplace = function(x) uncertified_account(x, "Laplace approximation: the highest mode found, with the curvature there"),
  pathfinder = function(x) uncertified_account(x, "Pathfinder: the best of the gaussians along quasi-Newton paths"),
  natural = function(x) uncertified_account(x, gap_line(x), "Best gaussian by natural gradient steps, "),
  mpsgd = function(x) {
    list(certificate = NA_real_, quadrature_error = 0, evaluations = x$state$evals,
         lines = c(run_line(x), gap_line(x), outside_line(x), stack_line(x)),
         more = c(checks_line(x), objective_line(x), neighbourhood_line(x)),
         details = c(sprintf("%s base, %s scale, %s gradient", x$base$kind, x$control$scale, x$control$estimator),
                     utils::capture.output(print(x$schedule)),
                     sprintf("Smoothness L = %s in %s coordinates (%s)", format(x$smoothness, digits = 5), x$control$coordinates,
                             x$smoothness_source)))
  })

# of a target of which only values and gradients are known
uncertified_account <- function(x, line, how = NULL) {
  list(certificate = NA_real_, quadrature_error = 0, evaluations = x$account$evaluations, lines = c(line, outside_line(x)),
       details = c(paste0(how, format_count(x$account$evaluations), " gradient evaluations"), x$plan$pattern$words))
}

# of the expectations over the predictors of classes
cubature_line <- function(error) {
  if (is.null(error)) return(NULL)
  sprintf("Error of the expected log likelihood: means within %s sd, sds within %s %% (estimated by a finer rule)",
          format(error$mean, digits = 2), format(100 * error$sd, digits = 2))
}

# Where the log likelihood is not concave in the predictor nothing bounds the gap to the best approximation.
gap_words <- function(nested) {
  if (!any(nested$certificate_kind == "stationary")) return("optimality gap at most")
  "each a stationary point (the log likelihood is not concave), estimated gap at most"
}

run_line <- function(x) {
  sprintf("%s: %s of %s iterations, %s gradient evaluations, %.2f s CPU",
          switch(x$status, finished = "Run finished", paused = "Run paused",
                 interrupted = "Run INTERRUPTED", diverged = "Run DIVERGED"),
          format_count(x$state$k), format_count(x$plan$iterations),
          format_count(x$state$evals), x$cpu)
}

objective_line <- function(x) {
  last <- x$trace[nrow(x$trace), ]
  if (isTRUE(is.finite(last$objective))) sprintf(
    "Objective F at the last iterate: %s (Monte Carlo, standard error %s; started at %s)",
    format(last$objective, digits = 6), format(last$se, digits = 2),
    format(x$trace$objective[1L], digits = 6))
}

gap_line <- function(x) {
  if (!is.null(x$remaining)) sprintf(
    "%s: estimated gap to %s %s nats (standard error %s), tol = %s",
    convergence_word(x),
    if (isTRUE(x$model$convex)) "the optimum" else "a local optimum (the target may have better ones)",
    format(x$remaining$estimate, digits = 2), format(x$remaining$se, digits = 2), format(x$tol))
}

# A fit prints "Converged" only if it was checked.
convergence_word <- function(x) {
  if (isFALSE(x$converged)) return("NOT CONVERGED")
  if (needs_check(x) && is.null(x$verdict) && x$status %in% c("finished", "diverged")) return("NOT CHECKED")
  if (isTRUE(x$converged)) "Converged" else "Not yet converged"
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

checks_line <- function(x) {
  if (!isTRUE(x$control$backtrack > 0)) return(NULL)
  sprintf("Steps checked on %s fresh draws each (%s of the evaluations), now divided by %s, at most by %s",
          x$control$backtrack, format_count(x$state$checks), format_count(x$state$shorten), format_count(x$state$steepest))
}

# k-hat is about all coefficients and effects of a quadrature point at once, and grows with their number however close each of them
# is; the correction needs less: each group's own ratios.
k_line <- function(nested) {
  k <- worst_k(nested)
  if (is.na(k)) return("Pareto k-hat: not computed, no draws were made")
  if (k == -Inf) return("Pareto k-hat: not needed (the conditional posteriors are exactly Gaussian)")
  if (k == 0) return("Pareto k-hat: not needed (log ratios are nearly constant at all quadrature points)")
  says <- if (k < k_good) "good" else if (k < k_usable) "fair"
          else if (nested$corrected) "too many effects to reweight at once" else k_verdict(k)
  sprintf("Pareto k-hat: %s at the worst of %d quadrature points, %s draws each (%s); weights %s",
          format(k, digits = 2), sum(!is.na(nested$k_hat)), format_count(nested$draws), says,
          if (!is.null(nested$weighed)) sprintf("by %s draws of the corrected posterior at each", format_count(nested$weighed))
          else if (nested$corrected) "corrected group by group" else "not corrected")
}

# points that hardly count are not looked at
worst_k <- function(nested) if (all(is.na(nested$k_hat))) NA_real_ else max(nested$k_hat, na.rm = TRUE)

# lines no longer than the console
folded <- function(lines) strwrap(lines, getOption("width"), exdent = 2L)
