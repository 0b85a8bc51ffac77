# A stack: the mixture of gaussians that several starts ended in, weighted by their ELBO. Where these do not overlap that
# is the best mixture of them, as the ELBO of each is the logarithm of the mass it stands for.

check_combine <- function(combine, found, base, control) {
  combine <- check_choice(combine, "combine", c("best", "stack"))
  if (combine == "stack" && is.null(found)) {
    bad_argument("combine", "\"best\"", "\"stack\"", paste("several starts are compared only for user-supplied densities that",
                                                        "are not declared convex, in whitened coordinates"))
  }
  if (combine == "stack" && !law_of(base, 2L)$independent) {   # of spherical laws only the gaussian is
    bad_argument("combine", paste("\"best\" with the", base$kind, "base"), "\"stack\"", "the search ends in gaussians")
  }
  if (combine == "stack" && !scale_of(control$scale)$full) {
    bad_argument("combine", paste0("\"best\" with scale = \"", control$scale, "\""), "\"stack\"", "the search ends in full scales")
  }
  combine
}

# NULL if it was not requested, or has one part. The first part is the fit itself.
stack_of <- function(fit) {
  if (!identical(fit$given$combine, "stack")) return(NULL)
  ends <- distinct(close_ends(fit$plan$search))
  if (length(ends) < 2L) return(NULL)
  at <- model_theta(fit)
  ends[[1L]][c("mu", "A")] <- list(at$mu, root_matrix(at$scale))
  objectives <- vapply(ends, function(end) end$F, 0)
  relative <- exp(min(objectives) - objectives)
  list(weights = relative / sum(relative),
       parts = lapply(ends, function(end) list(mu = end$mu, root = lower_root(end$A))))
}

# Ends of other starts at another place: how many, how far away in sds, how many nats behind. NULL for a stack, which has them in it.
ends_elsewhere <- function(fit) {
  if (!is.null(fit$result$stack)) return(NULL)
  ends <- close_ends(fit$plan$search)
  far <- Filter(function(end) distance_between(end, ends[[1L]]) > distinct_sds, ends[-1L])
  if (!length(far)) return(NULL)
  list(number = length(far), distance = distance_between(far[[1L]], ends[[1L]]), behind = far[[1L]]$F - ends[[1L]]$F)
}

# location, roots and weights of what a run has ended in: one component, or those of a stack
run_components <- function(fit) {
  model <- fit$given$model
  stack <- fit$result$stack
  if (!is.null(stack)) {
    return(list(location = matrix(vapply(stack$parts, function(part) part$mu, numeric(model$dim)), model$dim),
                roots = lapply(stack$parts, function(part) part$root), weight = stack$weights))
  }
  work <- run_model(fit)
  root <- coordinates_of(work)$root_to_user(work, fit$result$theta$scale)
  list(location = matrix(points_to_user(work, fit$result$theta$mu)), roots = list(if (is_whitened(work)) canonical_root(root) else root),
       weight = 1)
}

# F such that the ELBO is, as for a single gaussian, the entropy of the base less F
stacked_objective <- function(fit, draws) {
  draws <- check_draws(draws, fit$model$dim, lower = 2)
  law <- law_of(fit$base, fit$model$dim)
  ratios <- draws_with_ratios(fit, draws)$log_ratios
  new_estimate("objective F", law$entropy - mean(ratios), stats::sd(ratios) / sqrt(draws), draws, law)
}

# what the estimates of a stack describe
stack_words <- function(fit) if (!is.null(fit$result$stack)) " (of the mixture)"

stack_line <- function(fit) {
  stack <- fit$result$stack
  if (is.null(stack)) return(NULL)
  sprintf("Stack of %d starts that ended at different places, weights %s", length(stack$weights),
          toString(format(stack$weights, digits = 2)))
}
