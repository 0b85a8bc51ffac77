# What speaks for a fit and what against it, for targets whose optimum nobody knows: enough
# draws for k-hat, what their importance weights do to means and standard deviations, and where
# other starts ended.

# NULL where the exact objective tells, and for a run that is not at its end.
verdict_on <- function(fit, most = 10000) {
  if (is.null(fit$plan$search) || !isTRUE(fit$result$status %in% c("finished", "diverged"))) return(NULL)
  n <- most
  drawn <- keyed_ratios(fit, n)
  k <- new_pareto_k(drawn$log_ratios)
  moved <- weighted_moments(drawn$x, drawn$log_ratios)
  names <- fit$given$model$names
  list(k = k$k, k_se = k_error(k$k, n), draws = n, ess = moved$ess,
       shift = moved$shift[which.max(moved$shift)], shifted = names[which.max(moved$shift)],
       ratio = moved$ratio[which.max(moved$ratio)], rescaled = names[which.max(moved$ratio)],
       outside = drawn$outside, elsewhere = ends_elsewhere(fit))
}

# log p / q at draws of the returned approximation that no part of the run has seen; -Inf
# outside the domain
keyed_ratios <- function(fit, n) {
  model <- fit$given$model
  law <- law_of(fit$given$base, model$dim)
  z <- draw_base(law, fit$plan$seed, n, iteration = 2^42)
  at <- model_parameters(fit)
  x <- at$mu + root_times(at$scale, z)
  f <- call_guarded(function(x) target_values(model, x), x, 1, new_account())
  log_p <- ifelse(is.finite(f), -f, -Inf)
  log_q <- law$log_constant + law$log_phi(sqrt(colSums(z^2))) - log_det(fit$given$control$scale, at$scale)
  list(x = x, log_ratios = drop(log_p) - log_q, outside = sum(!is.finite(f)))
}

target_values <- function(model, x) if (is_function_of_r(model)) model$value(x) else target_at(model, x)$value

# the asymptotic standard error of a Pareto shape estimated from the tail
k_error <- function(k, n) if (is.finite(k)) (1 + max(k, 0)) / sqrt(min(0.2 * n, 3 * sqrt(n))) else NA_real_

# By how many of the new sds the weights move each mean, and by what factor each sd; truncated
# as by Ionides (2008), so that a single draw cannot do it.
weighted_moments <- function(x, log_ratios) {
  w <- exp(log_ratios - max(log_ratios))
  w <- pmin(w, mean(w) * sqrt(length(w)))
  w <- w / sum(w)
  plain <- list(mean = rowMeans(x), sd = sqrt(rowMeans((x - rowMeans(x))^2)))
  mean <- drop(x %*% w)
  sd <- sqrt(drop((x - mean)^2 %*% w))
  list(shift = abs(mean - plain$mean) / sd, ratio = pmax(sd / plain$sd, plain$sd / sd), ess = 1 / sum(w^2))
}

# Other starts whose end is as good within the few nats that make a posterior share, but at
# another place: how far away, in sds, and how many nats behind.
ends_elsewhere <- function(fit) {
  best <- fit$plan$search
  far <- Filter(function(rival) rival$F < best$objective + 3 && distance_between(rival, best) > 2.5, best$rivals)
  if (!length(far)) return(NULL)
  list(number = length(far), distance = distance_between(far[[1L]], best), behind = far[[1L]]$F - best$objective)
}

# Sentences, one for each thing that speaks against the fit; none if nothing does.
objections <- function(fit) {
  v <- fit$result$verdict
  if (is.null(v)) return(character())
  share <- v$ess / v$draws
  c(if (v$k >= 0.7 && share < 0.2 || share < 0.06) {
      sprintf(paste("Pareto k-hat is %s (standard error %s) and importance weights leave %s of %s draws: the",
                    "approximation misses part of the target."), format(v$k, digits = 2), format(v$k_se, digits = 1),
              format_count(round(v$ess)), format_count(v$draws))
    },
    if (v$shift > 0.3) sprintf("Importance weights move the mean of `%s` by %s standard deviations.", v$shifted,
                               format(v$shift, digits = 2)),
    if (v$ratio > 1.45) sprintf(paste("Importance weights change the standard deviation of `%s` by a factor of %s: if",
                                      "others depend on it as on the logarithm of a group's sd, the target is a",
                                      "funnel, which no gaussian follows; a non-centred parametrisation may help."),
                                v$rescaled, format(v$ratio, digits = 3)),
    if (!is.null(v$elsewhere)) sprintf(paste("%d other start(s) ended elsewhere, %s standard deviations away and %s",
                                             "nats behind: there may be more than one mode, or a long funnel."),
                                       v$elsewhere$number, format(v$elsewhere$distance, digits = 2),
                                       format(max(0, v$elsewhere$behind), digits = 2)),
    if (v$outside > 0.01 * v$draws) sprintf("%s of %s draws are outside the model's domain.",
                                            format_count(v$outside), format_count(v$draws)))
}

warn_of_verdict <- function(fit) {
  said <- objections(fit)
  if (length(said)) elvi_warn(paste(said, collapse = " "), class = "elvi_warning_verdict",
                              data = list(verdict = fit$result$verdict))
}

# The lines of print() about it.
verdict_lines <- function(fit) {
  v <- fit$result$verdict
  if (is.null(v)) return(NULL)
  search <- fit$plan$search$account
  outside <- search$outside + fit$state$outside
  against <- objections(fit)
  c(sprintf("Pareto k-hat %s (standard error %s, %s draws)", format(v$k, digits = 2), format(v$k_se, digits = 1),
            format_count(v$draws)),
    if (outside > 0) sprintf("%s of %s points were outside the model's domain%s", format_count(outside),
                             format_count(search$evaluations + fit$state$evals),
                             if (is.null(search$first_error)) "" else paste0(": ", search$first_error)),
    if (length(against)) paste("NOT GOOD:", against)
    else if (isTRUE(fit$result$converged)) "Verdict: good, nothing speaks against it"
    else "Verdict: nothing speaks against it, but it was not run to a tolerance")
}
