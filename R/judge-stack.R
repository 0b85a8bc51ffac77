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

# NULL where it was not asked for, or has one part. The first part is the fit itself.
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

# F such that the ELBO is, as for a single gaussian, the entropy of the base less F
stacked_objective <- function(fit, draws) {
  draws <- check_draws(draws, fit$model$dim, lower = 2)
  law <- law_of(fit$base, fit$model$dim)
  ratios <- draws_with_ratios(fit, draws)$log_ratios
  new_estimate("objective F", law$entropy - mean(ratios), stats::sd(ratios) / sqrt(draws), draws, law)
}

stack_line <- function(fit) {
  stack <- fit$result$stack
  if (is.null(stack)) return(NULL)
  sprintf("Stack of %d starts that ended at different places, weights %s", length(stack$weights),
          toString(format(stack$weights, digits = 2)))
}
