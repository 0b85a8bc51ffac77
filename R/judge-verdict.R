# How good a fit to a user-supplied density is, whose optimum is unknown: Pareto k-hat from enough
# draws, how far their importance weights move means and standard deviations, and where other
# starts ended.

# A run that has ended, with the posterior that users see: the stack of several starts, if requested; the verdict; the
# importance-weighted points that correct the posterior; and `converged` only where the verdict confirms it.
judge <- function(fit) {
  fit$result["stack"] <- list(stack_of(fit))
  fit$result["verdict"] <- list(NULL)
  fit$result$posterior <- run_posterior(fit)
  fit$result$verdict <- verdict_on(fit)
  fit$result$posterior <- with_points(fit$result$posterior, verdict_points(fit))
  if (isTRUE(fit$result$converged)) fit$result$converged <- is_confirmed(fit)
  fit
}

report_judgement <- function(fit) {
  inform_of_adapting(fit)
  warn_of_verdict(fit)
}

# NULL where the exact objective tells, and for a run that is not at its end. `log_ratios` are kept: draws of the fit
# are corrected by them (R/posterior-points.R).
verdict_on <- function(fit) {
  if (!isTRUE(fit$result$status %in% c("finished", "diverged"))) return(NULL)
  if (is.null(fit$plan$search)) return(if (is_checked(fit)) verdict_without_search(fit))
  v <- confirmed_by_chains(fit, verdict_of_weights(fit))
  # An adapted mixture begins with the ends of all starts, and its weights measure each of them. If the weights found no problem at one
  # place, and only other starts found another place, there may be more of them.
  told <- !is.null(v$proposal) && v$alone$objects
  c(v, list(edges = edges_of(fit), uncovered = if (is.null(v$proposal)) share_outside(fit, fit_key(fit)) %||% 0 else 0,
            spread = spread_of_starts(fit), elsewhere = if (!told) ends_elsewhere(fit),
            loose = loose_logarithms(fit)))
}

# The gap of a density that is not known to be convex is that to an optimum nearby, so it takes more to call a fit good.
needs_check <- function(fit) {
  identical(fit$given$method, "mpsgd") && is_user_density(fit$given$model) && !isTRUE(fit$given$model$convex)
}

# In raw coordinates a run without a tolerance is the algorithm to the letter, and claims nothing.
is_checked <- function(fit) needs_check(fit) && (!is.null(fit$plan$work) || !is.null(fit$given$tol))

# Where no start was searched, as in more than 400 parameters: weights judge the approximation but do not correct it, so
# that nothing dim x dim is made.
verdict_without_search <- function(fit) {
  dim <- fit$given$model$dim
  block <- draws_to_check(dim)
  drawn <- verdict_draws(fit, block = block, most = max(1, min(k_blocks, check_numbers_all %/% (block * dim))))
  c(judged_weights(fit, drawn, covariance = FALSE),
    list(edges = edges_of(fit), uncovered = share_outside(fit, fit_key(fit)) %||% 0, spread = NULL, elsewhere = NULL,
         loose = loose_logarithms(fit)))
}

draws_to_check <- function(dim) max(fewest_k_draws, min(k_block, check_numbers %/% dim))

# Only the weights can tell a fit without a search from one at the wrong place: what they do not confirm has not converged.
is_confirmed <- function(fit) {
  !is.null(fit$plan$search) || is.null(fit$result$verdict) || !length(objections(fit))
}

# Those of the approximation or, where these are no good and others are better, those of a mixture adapted to the target
# (R/judge-mixture.R): then `alone` has the results for the approximation without it. Thin weights are a problem by themselves:
# those of a funnel may hardly move a moment, as there is no draw where they would be large.
verdict_of_weights <- function(fit) {
  drawn <- verdict_draws(fit)
  alone <- judged_weights(fit, drawn)
  if (!may_adapt(fit, alone)) return(alone)
  alone$excused <- FALSE
  objects <- weights_object(alone)
  thin <- alone$thin <- alone$ess < fewest_adapted * alone$draws
  profiles <- necks_of(fit)
  missed <- necks_disagree(profiles, alone)
  if (!objects && !thin && !is_beyond(missed, unseen_share) && is.null(ends_elsewhere(fit))) return(alone)
  if (is_beyond(missed)) alone$missed <- missed
  adapted <- adapt_proposal(fit, drawn$x, drawn$log_ratios, most_rounds, profiles)
  if (is.null(adapted) || adapted$ess < min(fewest_adapted, alone$ess / alone$draws)) return(alone)
  alone <- second_opinion(alone, adapted$moments)
  if (adapted$ess < fewest_adapted) return(alone)
  alone$thin <- FALSE   # more draws have looked; where they disagree, that is an objection
  drawn <- verdict_draws(fit, adapted$proposal)
  v <- judged_weights(fit, drawn, against = adapted$moments)
  if (misses_part(v) || v$k > k_usable || v$ess < fewest_adapted * v$draws || spread_unknown(fit, drawn, v$mean)) return(alone)
  said <- c("k", "k_se", "ess", "draws", "shift", "shifted", "ratio", "rescaled", "missed")
  c(v, list(proposal = adapted$proposal,
            alone = c(alone[said], list(objects = objects, thin = thin, elsewhere = ends_elsewhere(fit)))))
}

# The moments under the weights of a mixture that leave more draws may differ from those of the verdict, which then is less
# sure than it seemed.
second_opinion <- function(v, moments) {
  sd <- sqrt(diag(moments$covariance))
  shift <- abs(moments$mean - v$mean) / sd
  ratio <- exp(abs(log(sqrt(diag(v$covariance)) / sd)))
  names <- names(v$mean)
  if (isTRUE(max(shift) > v$shift)) v[c("shift", "shifted")] <- list(max(shift), names[which.max(shift)])
  if (isTRUE(max(ratio) > v$ratio)) v[c("ratio", "rescaled")] <- list(max(ratio), names[which.max(ratio)])
  v
}

judged_weights <- function(fit, drawn, against = NULL, covariance = TRUE) {
  names <- fit$given$model$names
  moved <- weighted_moments(drawn$x, drawn$log_ratios, names, against, covariance)
  c(drawn[c("k", "k_se", "limit", "stable", "draws", "log_ratios", "outside")],
    moved[c("mean", if (covariance) "covariance", "ess")],
    list(excused = moved$ess > nearly_equal * drawn$draws && isTRUE(drawn$k < k_useless),
         shift = max(moved$shift), shifted = names[which.max(moved$shift)],
         ratio = max(moved$ratio), rescaled = names[which.max(moved$ratio)]))
}

# ---- draws that no part of the run has seen -----------------------------------------------

verdict_draws <- function(fit, proposal = NULL, block = k_block, most = k_blocks) {
  parts <- list()
  logarithms <- if (!is.null(proposal)) which(are_logarithms(fit))
  drawn <- k_until_stable(function(i, n) {
    parts[[i]] <<- keyed_ratios(fit, n, proposal, verdict_iteration(i))
    parts[[i]]$log_ratios
  }, block, most, enough = function(log_ratios, below) are_enough(joined(parts), log_ratios, below),
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
  drawn <- propose_points(uncorrected(fit$posterior), n, proposal, iteration, fit$plan$seed)
  f <- guarded_values(model, drawn$x)
  list(x = drawn$x, log_ratios = ifelse(is.finite(f), -f, -Inf) - drawn$log_q, outside = sum(is.na(f) | f == -Inf))
}

# What a verdict leaves to correct the posterior by, if its weights are of use: see posterior-points.R.
verdict_points <- function(fit) {
  v <- fit$result$verdict
  if (is.null(v$covariance) || !(isTRUE(v$k < k_useless) || isTRUE(v$ess > nearly_equal * v$draws))) return(NULL)
  list(proposal = v$proposal, key = fit$plan$seed, draws = v$draws, log_ratios = v$log_ratios,
       moments = v[c("mean", "covariance")])
}

# ---- what the weights say ----------------------------------------------------------------------

# By how many of the new sds the weights move each mean, and by what factor each sd: from those of the draws, or from the
# moments `against` that other draws have.
weighted_moments <- function(x, log_ratios, names = rownames(x), against = NULL, covariance = nrow(x) <= widest_search) {
  w <- truncated_weights(log_ratios)
  plain <- if (is.null(against)) list(mean = rowMeans(x), sd = sqrt(rowMeans((x - rowMeans(x))^2)))
           else list(mean = against$mean, sd = sqrt(diag(against$covariance)))
  under <- if (covariance) moments_under(x, w, names) else list(mean = stats::setNames(drop(x %*% w), names))
  sd <- sqrt(if (covariance) diag(under$covariance) else drop((x - under$mean)^2 %*% w))
  c(under, list(shift = abs(under$mean - plain$mean) / sd, ratio = pmax(sd / plain$sd, plain$sd / sd),
                ess = if (anyNA(w)) 0 else 1 / sum(w^2)))
}

# of all that `constrain` returns, the parameters that have the names of the unconstrained ones, whatever their indices
own_parameters <- function(model, x) {
  all <- model$constrain(x)
  all[, sub("\\[.*", "", colnames(all)) %in% sub("\\[.*", "", model$names), drop = FALSE]
}

# Logarithms of positive parameters, such as sds of groups, that the data do not keep away from 0: one standard deviation of
# the logarithm is more than a factor e.
loose_logarithms <- function(fit) {
  fit$given$model$names[are_logarithms(fit) & root_sd(model_theta(fit)$scale) > loose_log_sd]
}

# As the model says or, if it does not, as `constrain` shows: a parameter is a logarithm if that of the same name which
# `constrain` returns is its exponential.
are_logarithms <- function(fit) {
  model <- fit$given$model
  if (!is.null(model$logarithms)) return(model$logarithms)
  if (is.null(model$constrain)) return(logical(model$dim))
  mu <- model_theta(fit)$mu
  x <- cbind(mu, mu + 0.5)
  own <- or_null(own_parameters(model, x))
  # declared parameters come in the order of the unconstrained ones; a simplex has one more
  if (NROW(t(own)) != model$dim) return(logical(model$dim))
  unname(rowSums(abs(log(abs(t(own))) - x) > 1e-6) == 0)
}

# ---- a second opinion where weights are thin --------------------------------------------------------------------

# In tens of dimensions weights leave few draws of an approximation that is good, and no mixture of few parts follows many skewed or
# heavy-tailed margins. Weights that say no more than that, and move no moment far, are believed if short chains from the approximation
# (judge-chains.R) come to the same means and standard deviations. Where a parameter sets the scale of others, or starts disagree, they are
# not asked: chains that begin in the approximation do not find a neck or a mode either.
confirmed_by_chains <- function(fit, v) {
  if (!is.null(v$proposal) || !is.null(v$missed) || fit$given$model$dim < fewest_confirmed) return(v)
  if (!misses_part(v) && !isTRUE(v$thin)) return(v)
  fine <- isTRUE(v$k < k_useless && v$ess > fewest_effective && v$shift <= most_shift && v$ratio <= most_ratio)
  if (!fine || is.null(sole_component(uncorrected(fit$posterior))) || !is.null(ends_elsewhere(fit)) ||
        spread_of_starts(fit) > most_spread) return(v)
  at <- model_theta(fit)
  if (length(scale_parameters(guarded_target(fit$given$model), at$mu, root_matrix(at$scale), are_logarithms(fit)))) return(v)
  chains <- or_null(chain_verdict(fit$given$model, at$mu, at$scale, fit$plan$seed))
  settled <- !is.null(chains) && isTRUE(chains$accept > 0.4 && chains$drift <= max(most_drift, 10 * chains$noise))
  if (!settled || chains$divergent > 0) return(v)
  sd <- sqrt(chains$moments$variance)
  shift <- max(abs(chains$moments$mean - v$mean) / sd)
  ratio <- max(exp(abs(log(sd / sqrt(diag(v$covariance))))))
  if (!isTRUE(shift <= most_shift && ratio <= most_ratio)) return(v)
  v$confirmed <- TRUE
  v$second_look <- list(number = chains$chains, iterations = chains$iterations, shift = shift, ratio = ratio)
  v
}

confirmed_line <- function(v) {
  sprintf(paste("Importance weights leave %s of %s draws. %d chains of %d Hamiltonian Monte Carlo iterations from the approximation",
                "agree with them: means within %s sd, sds within a factor of %s, their noise included"), format_count(round(v$ess)),
          format_count(v$draws), v$second_look$number, v$second_look$iterations, format(v$second_look$shift, digits = 2),
          format(v$second_look$ratio, digits = 3))
}

# ---- edges of the support --------------------------------------------------------------------------------------

# Where the target is Inf beyond a value of a single parameter, the others at their means, and the approximation has draws there: the
# parameter, the side and about where, by bisection.
edges_of <- function(fit, most = 3L) {
  model <- fit$given$model
  d <- model$dim
  if (!is_function_of_r(model) || d > widest_inward) return(NULL)   # it takes 2 d points of d numbers
  at <- model_theta(fit)
  sd <- root_sd(at$scale)
  has_mass <- function(x) guarded_values(model, x) != Inf
  j <- rep(seq_len(d), 2L)
  side <- rep(c(-1, 1), each = d)
  if (!isTRUE(has_mass(matrix(at$mu)))) return(NULL)
  moved <- function(by) {
    x <- matrix(at$mu, d, length(by))
    x[cbind(j, seq_along(j))] <- at$mu[j] + side * by * sd[j]
    x
  }
  out <- has_mass(moved(rep(edge_reach, 2L * d)))
  found <- utils::head(which(!out & !is.na(out)), most)
  if (!length(found)) return(NULL)
  j <- j[found]
  side <- side[found]
  low <- numeric(length(found))
  high <- rep(edge_reach, length(found))
  for (step in 1:12) {
    inside <- has_mass(moved((low + high) / 2)) %in% TRUE
    middle <- (low + high) / 2
    low <- ifelse(inside, middle, low)
    high <- ifelse(inside, high, middle)
  }
  place <- at$mu[j] + side * high * sd[j]
  place[abs(place) < 0.01 * sd[j]] <- 0
  sprintf("`%s` %s %s", model$names[j], ifelse(side < 0, "below", "above"), vapply(place, format, "", digits = 2))
}

edges_line <- function(edges) {
  sprintf(paste("The support has an edge: the density is 0 for %s. A gaussian reaches beyond it. A parameter without an edge, such as the",
                "logarithm of a positive one, fits better"), paste(edges, collapse = ", "))
}

# ---- other starts -------------------------------------------------------------------------------

# Ends of starts whose share in a mixture weighted by the ELBO is at least a hundredth, the best one first.
close_ends <- function(search) {
  best <- list(mu = search$mu, A = search$A, F = search$objective, se = search$se)
  near <- Filter(function(rival) isTRUE(rival$F - 2 * sqrt(rival$se^2 + best$se^2) < best$F + rival_nats), search$rivals)
  c(list(best), near)
}

# R-hat over starts: the spread of their means against their own, the largest over the parameters; 1 for a single one.
spread_of_starts <- function(fit) {
  ends <- close_ends(fit$plan$search)
  if (length(ends) < 2L) return(1)
  mu <- vapply(ends, function(end) end$mu, fit$plan$search$mu)
  within <- rowMeans(matrix(vapply(ends, function(end) root_sd(end$A)^2, fit$plan$search$mu), nrow(end_matrix(mu))))
  sqrt(max(1 + apply(end_matrix(mu), 1L, stats::var) / within))
}

end_matrix <- function(mu) if (is.matrix(mu)) mu else matrix(mu, 1L)

# ---- in words -----------------------------------------------------------------------------------

# One sentence for each problem of the fit; none if there is no problem.
objections <- function(fit) {
  v <- fit$result$verdict
  if (is.null(v)) character() else as.character(verdict_objections(v, fit))
}

# of a verdict by importance weights, or by chains (judge-chains.R)
verdict_objections <- function(v, fit) UseMethod("verdict_objections")

#' @export
verdict_objections.default <- function(v, fit) {
  c(if (misses_part(v)) {
      sprintf(paste("Pareto k-hat is %s (standard error %s; at most %s for so many draws) and the effective sample size",
                    "is %s of %s draws: the approximation misses part of the target."), format(v$k, digits = 2),
              format(v$k_se, digits = 1), format(v$limit, digits = 2), format_count(round(v$ess)),
              format_count(v$draws))
    },
    if (isTRUE(v$thin) && !isTRUE(v$confirmed) && !misses_part(v)) {
      sprintf(paste("The effective sample size of the importance weights is %s of %s draws, less than a fifth, and no",
                    "mixture fits the target:",
                    "the weights cannot confirm the approximation."), format_count(round(v$ess)), format_count(v$draws))
    },
    if (!isTRUE(v$shift <= most_shift)) sprintf("Importance weights move the mean of `%s` by %s standard deviations.", v$shifted,
                                      format(v$shift, digits = 2)),
    if (!isTRUE(v$ratio <= most_ratio)) sprintf(
      paste("Importance weights change the standard deviation of `%s` by a factor of %s: if others depend on it as on",
            "the logarithm of a group's sd, the target is a funnel, which no gaussian fits; a non-centred",
            "parametrisation may help."), v$rescaled, format(v$ratio, digits = 3)),
    if (!is.null(v$missed)) sprintf(
      paste("Along `%s` the target goes on where the approximation has no draws: the marginal density by Laplace's method differs in",
            "the mean by %s standard deviations and in the standard deviation by a factor of %s."), v$missed$name,
      format(v$missed$shift, digits = 2), format(v$missed$ratio, digits = 3)),
    if (!is.null(v$elsewhere)) sprintf(
      paste("%s, but %d other start(s) ended at a different place, %s standard deviations away and %s nats below (R-hat over starts",
            "%s): there may be more than one mode, or a long funnel. combine = \"stack\" mixes them."),
      if (isTRUE(fit$result$converged)) "Converged" else "It ended here", v$elsewhere$number,
      format(v$elsewhere$distance, digits = 2), format(max(0, v$elsewhere$behind), digits = 2),
      format(v$spread, digits = 3)),
    if (isTRUE(v$uncovered > most_missing)) sprintf(
      "The support of the base is bounded and excludes about %.0f%% of the target, which k-hat cannot detect.", 100 * v$uncovered),
    if (v$outside > most_missing * v$draws) sprintf("%s of %s draws are outside the model's domain.",
                                            format_count(v$outside), format_count(v$draws)),
    if (length(v$edges) && (misses_part(v) || isTRUE(v$thin) || !isTRUE(v$shift <= most_shift && v$ratio <= most_ratio))) {
      paste0(edges_line(v$edges), ".")
    })
}

# Where no mixture can be adapted, to see what a few heavy draws stand for, a k-hat between its limit and 1 is excused if the
# weights leave more than half of the draws.
misses_part <- function(v) {
  !isTRUE(v$confirmed) && (v$k >= v$limit && !v$excused || v$ess < min(fewest_effective, fewest_adapted * v$draws))
}

# Weights that are nearly equal; or that leave many draws and hardly move a moment, at a k-hat half a standard error below its limit.
are_enough <- function(x, log_ratios, below) {
  share <- share_left(log_ratios)
  if (share > nearly_equal) return(TRUE)
  if (share < fewest_adapted || below < clear_errors) return(FALSE)
  moved <- weighted_moments(x, log_ratios)
  max(moved$shift) < clear_shift && max(moved$ratio) < clear_ratio
}

warn_of_verdict <- function(fit) {
  said <- objections(fit)
  if (length(said)) elvi_warn(paste(said, collapse = " "), class = "elvi_warning_verdict",
                              data = list(verdict = fit$result$verdict))
}

# The lines of print() about it.
verdict_lines <- function(fit) {
  v <- fit$result$verdict
  if (!is.null(v)) verdict_account(v, fit)
}

verdict_account <- function(v, fit) UseMethod("verdict_account")

#' @export
verdict_account.default <- function(v, fit) {
  against <- objections(fit)
  c(if (isTRUE(v$confirmed)) confirmed_line(v)
    else if (v$k >= v$limit && !misses_part(v)) "A few draws have large weights, the others are nearly equal"
    else if (!v$stable) sprintf("k-hat is near its limit %s: more draws may change the verdict", format(v$limit, digits = 2)),
    if (length(fit$plan$search$rivals)) sprintf("R-hat over starts %s", format(v$spread, digits = 3)),
    adapted_line(v),
    if (length(v$loose)) loose_line(v$loose),
    if (length(v$edges) && !length(against)) edges_line(v$edges),
    if (is.null(fit$plan$search)) "Checked by importance weights only: no other starts were tried, so another mode would not be detected"
    else if (is.null(polished_points(fit)) && is.null(verdict_points(fit))) {
      "Importance weights are too uneven to correct this fit: the results are those of the approximation itself"
    },
    polish_line(fit$result$polish),
    if (length(against)) paste(if (is.null(fit$result$polish)) "Problem:" else "Before polishing:", against)
    else if (isTRUE(fit$result$converged)) paste0("Verdict: good", if (!is.null(v$proposal)) " after importance correction",
                                                  "; no problems found")
    else if (is.null(fit$given$tol)) "Verdict: no problems found. Whether the run has converged is not known: no `tol` was asked for"
    else "Verdict: no problems found, but the run did not converge to `tol`")
}

loose_line <- function(names) {
  sprintf(paste("%s may be near 0: the standard deviation of the logarithm is above 1. A prior that avoids 0, or a",
                "non-centred parametrisation, may help."), paste0("`", utils::head(names, 3), "`", collapse = ", "))
}
