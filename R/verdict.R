# What speaks for a fit and what against it, for targets whose optimum nobody knows: enough
# draws for k-hat, what their importance weights do to means and standard deviations, and where
# other starts ended.

# NULL where the exact objective tells, and for a run that is not at its end. `log_ratios` are kept: draws of the fit
# are corrected by them (R/corrected.R).
verdict_on <- function(fit) {
  if (is.null(fit$plan$search) || !isTRUE(fit$result$status %in% c("finished", "diverged"))) return(NULL)
  v <- verdict_of_weights(fit)
  # an adapted mixture began with all ends, and weights have told what each is worth; but where these were content with one
  # place, and only other starts told of another, there may be more of them
  told <- !is.null(v$proposal) && v$alone$objects
  c(v, list(uncovered = if (is.null(v$proposal)) share_outside(fit, fit_key(fit)) %||% 0 else 0,
            spread = spread_of_starts(fit), elsewhere = if (!told) ends_elsewhere(fit),
            loose = loose_logarithms(fit)))
}

# Those of the approximation or, where these are no good and others are better, those of a mixture adapted to the target
# (R/adapt.R): then `alone` is what there is to say of the approximation without it.
verdict_of_weights <- function(fit) {
  drawn <- verdict_draws(fit)
  alone <- judged_weights(fit, drawn)
  if (!may_adapt(fit, alone)) return(alone)
  alone$excused <- FALSE
  objects <- weights_object(alone)
  doubted <- objects || !is.null(ends_elsewhere(fit))
  if (!doubted && alone$ess > fewest_adapted * alone$draws) return(alone)
  adapted <- adapt_proposal(fit, drawn$x, drawn$log_ratios, if (doubted) most_rounds else rounds_of_opinion)
  if (is.null(adapted) || adapted$ess < min(fewest_adapted, alone$ess / alone$draws)) return(alone)
  alone <- second_opinion(alone, adapted$moments)
  if (!doubted || adapted$ess < fewest_adapted) return(alone)
  drawn <- verdict_draws(fit, adapted$proposal)
  v <- judged_weights(fit, drawn, against = adapted$moments)
  if (misses_part(v) || v$k > 0.7 || v$ess < fewest_adapted * v$draws || spread_unknown(fit, drawn, v$mean)) return(alone)
  said <- c("k", "k_se", "ess", "draws", "shift", "shifted", "ratio", "rescaled")
  c(v, list(proposal = adapted$proposal,
            alone = c(alone[said], list(objects = objects, elsewhere = ends_elsewhere(fit)))))
}

# The moments under the weights of a mixture that leave more draws may differ from those of the verdict, which then is less
# sure than it seemed.
second_opinion <- function(v, moments) {
  sd <- sqrt(diag(moments$covariance))
  shift <- abs(moments$mean - v$mean) / sd
  ratio <- exp(abs(log(sqrt(diag(v$covariance)) / sd)))
  names <- names(v$mean)
  if (max(shift) > v$shift) v[c("shift", "shifted")] <- list(max(shift), names[which.max(shift)])
  if (max(ratio) > v$ratio) v[c("ratio", "rescaled")] <- list(max(ratio), names[which.max(ratio)])
  v
}

judged_weights <- function(fit, drawn, against = NULL) {
  names <- fit$given$model$names
  moved <- weighted_moments(drawn$x, drawn$log_ratios, names, against)
  c(drawn[c("k", "k_se", "limit", "stable", "draws", "log_ratios", "outside")],
    moved[c("mean", "covariance", "ess")],
    list(excused = moved$ess > drawn$draws / 2 && isTRUE(drawn$k < 1),
         shift = max(moved$shift), shifted = names[which.max(moved$shift)],
         ratio = max(moved$ratio), rescaled = names[which.max(moved$ratio)]))
}

# ---- draws that no part of the run has seen -----------------------------------------------

verdict_draws <- function(fit, proposal = NULL) {
  parts <- list()
  logarithms <- if (!is.null(proposal)) which(are_logarithms(fit))
  drawn <- k_until_stable(function(i, n) {
    parts[[i]] <<- keyed_ratios(fit, n, proposal, verdict_iteration(i))
    parts[[i]]$log_ratios
  }, enough = function(log_ratios, below) are_enough(joined(parts), log_ratios, below),
  too_few = function(log_ratios) !tells_exponentials(list(x = joined(parts), log_ratios = log_ratios), logarithms))
  drawn$x <- joined(parts)
  drawn$outside <- sum(vapply(parts, function(part) part$outside, 0))
  drawn
}

joined <- function(parts) do.call(cbind, lapply(parts, function(part) part$x))

# log p / q at draws of the returned approximation, or of another proposal; -Inf outside the domain. A target that says +Inf
# there says that it has no mass; one that throws, or says no number, may have.
keyed_ratios <- function(fit, n, proposal, iteration) {
  model <- fit$given$model
  drawn <- proposal_points(fit, n, proposal, iteration)
  f <- guarded_values(model, drawn$x)
  list(x = drawn$x, log_ratios = ifelse(is.finite(f), -f, -Inf) - drawn$log_q, outside = sum(is.na(f) | f == -Inf))
}

proposal_points <- function(fit, n, proposal, iteration, key = fit$plan$seed) {
  if (is.null(proposal)) points_and_density(fit, n, key, iteration) else adapted_points(proposal, n, key, iteration)
}

verdict_iteration <- function(block) 2^42 + block - 1

# ---- what the weights say ----------------------------------------------------------------------

# Importance weights, the largest truncated as by Ionides (2008), so that a single draw cannot decide. They add to 1.
truncated_weights <- function(log_ratios) {
  w <- exp(log_ratios - max(log_ratios))
  w <- pmin(w, mean(w) * sqrt(length(w)))
  w / sum(w)
}

# By how many of the new sds the weights move each mean, and by what factor each sd: from those of the draws, or from the
# moments `against` that other draws have.
weighted_moments <- function(x, log_ratios, names = rownames(x), against = NULL) {
  w <- truncated_weights(log_ratios)
  plain <- if (is.null(against)) list(mean = rowMeans(x), sd = sqrt(rowMeans((x - rowMeans(x))^2)))
           else list(mean = against$mean, sd = sqrt(diag(against$covariance)))
  under <- moments_under(x, w, names)
  sd <- sqrt(diag(under$covariance))
  c(under, list(shift = abs(under$mean - plain$mean) / sd, ratio = pmax(sd / plain$sd, plain$sd / sd), ess = 1 / sum(w^2)))
}

# the parameters that are declared in the program, of all that it reports
own_parameters <- function(model, x) {
  all <- constrained(model$stan, x)
  all[, sub("\\[.*", "", colnames(all)) %in% sub("\\[.*", "", model$names), drop = FALSE]
}

# Positive parameters, as sds of groups, that the data do not keep away from 0: one sd of their logarithm is more than a
# factor e. Those of a Stan model are known by what they are there, those of a function by a name as log_tau.
loose_logarithms <- function(fit) {
  fit$given$model$names[are_logarithms(fit) & root_sd(model_theta(fit)$scale) > 1]
}

are_logarithms <- function(fit) {
  model <- fit$given$model
  if (is.null(model$stan)) return(grepl("^log[_(. ]", model$names))
  mu <- model_theta(fit)$mu
  x <- cbind(mu, mu + 0.5)
  own <- or_null(own_parameters(model, x))
  # declared parameters come in the order of the unconstrained ones; a simplex has one more
  if (NROW(t(own)) != model$dim) return(logical(model$dim))
  rowSums(abs(log(abs(t(own))) - x) > 1e-6) == 0
}

# ---- other starts -------------------------------------------------------------------------------

# Ends of starts whose share in a mixture weighted by the ELBO is at least a hundredth, the best one first.
close_ends <- function(search) {
  best <- list(mu = search$mu, A = search$A, F = search$objective, se = search$se)
  near <- Filter(function(rival) isTRUE(rival$F - 2 * sqrt(rival$se^2 + best$se^2) < best$F + close_rival), search$rivals)
  c(list(best), near)
}

# R-hat over starts: the spread of their means against their own, the largest over the parameters; 1 for a single one.
spread_of_starts <- function(fit) {
  ends <- close_ends(fit$plan$search)
  if (length(ends) < 2L) return(1)
  mu <- vapply(ends, function(end) end$mu, fit$plan$search$mu)
  within <- rowMeans(matrix(vapply(ends, function(end) rowSums(end$A^2), fit$plan$search$mu), nrow(end_matrix(mu))))
  sqrt(max(1 + apply(end_matrix(mu), 1L, stats::var) / within))
}

end_matrix <- function(mu) if (is.matrix(mu)) mu else matrix(mu, 1L)

# Those at another place: how many, how far away in sds, how many nats behind. A stack has them in it.
ends_elsewhere <- function(fit) {
  if (!is.null(fit$result$stack)) return(NULL)
  ends <- close_ends(fit$plan$search)
  far <- Filter(function(end) distance_between(end, ends[[1L]]) > apart, ends[-1L])
  if (!length(far)) return(NULL)
  list(number = length(far), distance = distance_between(far[[1L]], ends[[1L]]), behind = far[[1L]]$F - ends[[1L]]$F)
}

# ---- in words -----------------------------------------------------------------------------------

# A mean is right within this many sds, an sd within this factor.
most_shift <- 0.3
most_ratio <- 1.5

# Sentences, one for each thing that speaks against the fit; none if nothing does.
objections <- function(fit) {
  v <- fit$result$verdict
  if (is.null(v)) return(character())
  c(if (misses_part(v)) {
      sprintf(paste("Pareto k-hat is %s (standard error %s; at most %s for so many draws) and importance weights leave",
                    "%s of %s draws: the approximation misses part of the target."), format(v$k, digits = 2),
              format(v$k_se, digits = 1), format(v$limit, digits = 2), format_count(round(v$ess)),
              format_count(v$draws))
    },
    if (!isTRUE(v$shift <= most_shift)) sprintf("Importance weights move the mean of `%s` by %s standard deviations.", v$shifted,
                                      format(v$shift, digits = 2)),
    if (!isTRUE(v$ratio <= most_ratio)) sprintf(
      paste("Importance weights change the standard deviation of `%s` by a factor of %s: if others depend on it as on",
            "the logarithm of a group's sd, the target is a funnel, which no gaussian follows; a non-centred",
            "parametrisation may help."), v$rescaled, format(v$ratio, digits = 3)),
    if (!is.null(v$elsewhere)) sprintf(
      paste("%s, but %d other start(s) ended elsewhere, %s standard deviations away and %s nats behind (R-hat over starts",
            "%s): there may be more than one mode, or a long funnel. combine = \"stack\" mixes them."),
      if (isTRUE(fit$result$converged)) "Converged" else "It ended here", v$elsewhere$number,
      format(v$elsewhere$distance, digits = 2), format(max(0, v$elsewhere$behind), digits = 2),
      format(v$spread, digits = 3)),
    if (isTRUE(v$uncovered > 0.01)) sprintf(
      "The support of the base is bounded and leaves out about %.0f%% of the target, which k-hat cannot see.", 100 * v$uncovered),
    if (v$outside > 0.01 * v$draws) sprintf("%s of %s draws are outside the model's domain.",
                                            format_count(v$outside), format_count(v$draws)))
}

# Where no mixture can be adapted, to see what a few heavy draws stand for, a k-hat between its limit and 1 is excused if the
# weights leave more than half of the draws.
misses_part <- function(v) v$k >= v$limit && !v$excused || v$ess < fewest_effective

# Weights that are nearly equal; or that leave many draws and hardly move a moment, at a k-hat half a standard error below its limit.
are_enough <- function(x, log_ratios, below) {
  share <- share_left(log_ratios)
  if (share > 0.5) return(TRUE)
  if (share < fewest_adapted || below < 0.5) return(FALSE)
  moved <- weighted_moments(x, log_ratios)
  max(moved$shift) < most_shift / 3 && max(moved$ratio) < 1.2
}

# as many as R-hat and quantiles are said to need (Vehtari et al. 2021)
fewest_effective <- 400

warn_of_verdict <- function(fit) {
  said <- objections(fit)
  if (length(said)) elvi_warn(paste(said, collapse = " "), class = "elvi_warning_verdict",
                              data = list(verdict = fit$result$verdict))
}

# The lines of print() about it.
verdict_lines <- function(fit) {
  v <- fit$result$verdict
  if (is.null(v)) return(NULL)
  against <- objections(fit)
  c(sprintf("Pareto k-hat %s (standard error %s, %s draws, effective sample size %s%s)", format(v$k, digits = 2),
            format(v$k_se, digits = 1), format_count(v$draws), format_count(round(v$ess)),
            if (v$k >= v$limit && !misses_part(v)) ": a few draws of large weight, the others nearly equal"
            else if (v$stable) "" else sprintf("; more draws may take it across its limit %s", format(v$limit, digits = 2))),
    if (length(fit$plan$search$rivals)) sprintf("R-hat over starts %s", format(v$spread, digits = 3)),
    adapted_line(v),
    if (length(v$loose)) sprintf(
      paste("%s may go to 0: one standard deviation of the logarithm is more than a factor e. A prior that avoids 0, or a",
            "non-centred parametrisation, may help."), paste0("`", utils::head(v$loose, 3), "`", collapse = ", ")),
    if (!is_corrected(fit)) "Importance weights are of no use here: what is shown is the approximation itself",
    if (length(against)) paste("NOT GOOD:", against)
    else if (isTRUE(fit$result$converged)) paste0("Verdict: good", if (!is.null(v$proposal)) " as corrected",
                                                  ", nothing speaks against it")
    else "Verdict: nothing speaks against it, but it was not run to a tolerance")
}
