# How far the means and standard deviations that a fit shows are from those of the posterior itself. A certificate is about the best
# approximation; this is about the posterior, and an estimate. It is a list with
#
#   mean       of means, in standard deviations: the largest over the parameters; NA where it is not known
#   sd         of standard deviations, relative
#   k          Pareto k-hat of the importance weights of what is shown; -Inf where none are needed, NA where there are none
#   ess, draws effective and actual number of weighted draws
#   basis      in words, what the estimate rests on
#   why        where it is not known, why
#
# NULL for the prior.

posterior_error <- function(fit) {
  if (is_prior(fit)) return(NULL)
  if (!is.null(fit$result$polish)) return(chains_error(fit$result$polish, fit$result$verdict))
  if (is_by_chains(fit$result$verdict)) return(chain_error(fit$result$verdict, fit$nested$change))
  if (!is.null(verdict_points(fit))) return(points_error(fit$result$verdict))
  if (!is.null(fit$nested)) return(nested_error(fit))
  plain_error(fit)
}

new_error <- function(mean = NA_real_, sd = NA_real_, k = NA_real_, ess = NA_real_, draws = 0L, basis = NULL, why = NULL) {
  list(mean = mean, sd = sd, k = k, ess = ess, draws = draws, basis = basis, why = why)
}

# So many values of a regression's predictors, and of its losses, take some hundredths of a second.
most_error_products <- 4e7
most_error_rows <- 2e6
fewest_error_draws <- 200L
most_error_draws <- 4000L

# draws that are affordable for n rows and d parameters; 0 where not even a few are
error_draws <- function(n, d) {
  draws <- min(most_error_draws, most_error_products %/% (n * d), most_error_rows %/% n)
  if (draws < fewest_error_draws) 0L else as.integer(draws)
}

# ---- importance-weighted points ------------------------------------------------------------------------------

points_error <- function(v) {
  new_error(1 / sqrt(v$ess), 1 / sqrt(2 * v$ess), v$k, v$ess, v$draws, "Monte Carlo error of importance weights")
}

# Of the approximation: what the chains move it by. Of the chains: their Monte Carlo error.
chain_error <- function(v, change = NULL) {
  if (!is.null(v$given)) {
    return(new_error(v$shift + change$mean, v$ratio - 1 + change$sd, NULL, draws = v$draws,
                     basis = paste("quadrature, and", v$chains, "chains given the best", v$given, "with their noise")))
  }
  basis <- paste("Monte Carlo error of", v$chains, "chains")
  if (v$correct) return(new_error(v$noise, v$noise / sqrt(2), NULL, draws = v$draws, basis = basis))
  new_error(v$shift, v$ratio - 1, NULL, draws = v$draws, basis = paste(v$chains, "chains, their noise included"))
}

# by the spread of the chains' own means and standard deviations
chains_error <- function(polish, v) {
  x <- t(polish$x)
  chain <- rep_len(seq_len(polish$chains), nrow(x))
  means <- rowsum(x, chain) / as.vector(table(chain))
  sds <- sqrt(rowsum((x - means[chain, ])^2, chain) / (as.vector(table(chain)) - 1))
  sd <- apply(x, 2L, stats::sd)
  of_mean <- function(m) apply(m, 2L, stats::sd) / (sd * sqrt(polish$chains))
  new_error(max(of_mean(means)), max(of_mean(sds)), v$k %||% NA_real_, NA_real_, nrow(x), paste("spread of", polish$chains, "chains"))
}

# ---- one component -----------------------------------------------------------------------------------------

plain_error <- function(fit) {
  if (!fit$status %in% "finished") return(new_error(why = "the run has not finished"))
  if (!is.null(fit$result$verdict)) {
    return(new_error(k = fit$result$verdict$k, why = "importance weights are of no use"))
  }
  if (is_user_density(fit$model)) return(new_error(why = "the fit was not checked"))
  if (is_out_of_memory(fit)) return(new_error(why = "pareto_k() takes a pass over the data"))
  draws <- error_draws(max(1L, length(fit$model$rows$y)), fit$model$dim)
  if (!draws) return(cumulants_error(fit$posterior))
  weights_error(list(error_sample(fit, draws)), 1)
}

# The same for every fit, so that print() says the same of the same fit whatever the state of R's generator.
error_key <- c(2654435769, 1640531527)

# draws of what a fit without hyperparameters shows, one per row, with their log ratios
error_sample <- function(fit, n, key = NULL) {
  posterior <- fit$posterior
  key <- key %||% error_key
  own <- corrected_sample(posterior, n, key)
  if (!is.null(own)) return(own)
  drawn <- draws_with_ratios(fit, n, key)
  list(x = in_user_rows(posterior, drawn$x), log_ratios = drawn$log_ratios)
}

# Samples of components of the given weights: what importance weights move means and standard deviations of the mixture by. The
# same draws with and without weights have most of their noise in common.
weights_error <- function(samples, weight) {
  k <- max(vapply(samples, function(s) pareto_shape(s$log_ratios), 0))
  ess <- sum(vapply(samples, function(s) effective_draws(s$log_ratios), 0))
  draws <- sum(vapply(samples, function(s) length(s$log_ratios), 0L))
  # a few draws of large weight in the tails, among others that are nearly equal, hardly move moments
  if (!isTRUE(k < k_usable || ess > 0.9 * draws)) {
    return(new_error(k = k, ess = ess, draws = draws, why = "importance weights are too uneven"))
  }
  moved <- moved_by_weights(samples, weight)
  new_error(moved$mean, moved$sd, k, ess, draws, "importance weights")
}

moved_by_weights <- function(samples, weight) {
  own_mean <- function(s) if (is.null(s$log_own)) colMeans(s$x) else drop(normalised(s$log_own) %*% s$x)
  centre <- Reduce(`+`, Map(function(s, w) w * own_mean(s), samples, weight))
  each <- Map(function(s, w) {
    x <- t(s$x) - centre
    own <- if (is.null(s$log_own)) rep(1 / ncol(x), ncol(x)) else normalised(s$log_own)
    by <- normalised(s$log_ratios) - own
    variance <- drop(x^2 %*% own)
    list(first = w * drop(x %*% by), second = w * drop(x^2 %*% by), variance = w * variance,
         noise = w^2 * drop(x^2 %*% by^2), noise2 = w^2 * drop((x^2 - variance)^2 %*% by^2))
  }, samples, weight)
  total <- function(field) Reduce(`+`, lapply(each, `[[`, field))
  V <- pmax(total("variance"), .Machine$double.xmin)
  list(mean = max(sqrt((total("first")^2 + total("noise")) / V)),
       sd = max(sqrt(((total("second") - total("first")^2)^2 + total("noise2")) / V^2)) / 2)
}

# ---- many rows ------------------------------------------------------------------------------------------------

# Weights would need passes over very many rows. A coefficient's third and fourth cumulants say how far its best gaussian is from a
# density in one dimension that has them.
cumulants_error <- function(posterior) {
  cumulants <- left_cumulants(posterior)
  if (is.null(cumulants)) return(new_error(why = "many rows: use pareto_k()"))
  off <- gaussian_error(cumulants$third, cumulants$fourth)
  new_error(off$mean, off$sd, basis = "third and fourth cumulants")
}

# of the best gaussian of the density exp(-x^2 / 2 + third x^3 / 6 + fourth x^4 / 24), which hardly needs its tails
gaussian_error <- function(third, fourth, reach = 5) {
  m <- 0
  v <- 1
  for (step in seq_len(50L)) {
    m <- third * (m^2 + v) / 2 + fourth * (m^3 + 3 * m * v) / 6
    v <- 1 / (1 - third * m - fourth * (m^2 + v) / 2)
  }
  x <- seq(-reach, reach, by = 0.05)
  w <- normalised(-x^2 / 2 + third * x^3 / 6 + fourth * x^4 / 24)
  mean <- sum(w * x)
  sd <- sqrt(sum(w * x^2) - mean^2)
  list(mean = abs(m - mean) / sd, sd = abs(sqrt(v) / sd - 1))
}

# ---- quadrature over hyperparameters ----------------------------------------------------------------------------

most_error_components <- 3

# The error of the rule, and that of what is shown given the hyperparameters, at the points that count most.
nested_error <- function(fit) {
  nested <- fit$nested
  posterior <- fit$posterior
  rule <- list(mean = nested$change$mean + nested$noise, sd = nested$change$sd)
  words <- quadrature_words(posterior)
  plan <- posterior$roots$plan
  if (is_quadratic(plan) && posterior_law(posterior)$independent) {
    return(new_error(rule$mean, rule$sd, -Inf, basis = words %||% "exact"))
  }
  if (isTRUE(plan$summed)) return(c(new_error(why = "corrections need the rows in memory"), list(elsewhere = TRUE)))
  at <- error_components(posterior)
  chosen <- at$chosen
  draws <- at$draws
  if (!draws) return(with_rule_error(cumulants_error(posterior), rule, words))
  of <- nearest_of(posterior, chosen)
  weight <- as.vector(tapply(posterior$weight, factor(of, seq_along(chosen)), sum))
  with_rule_error(weights_error(lapply(chosen, function(k) conditional_sample(posterior, k, draws)), weight), rule, words)
}

# the components at which draws are made, and how many at each
error_components <- function(posterior) {
  plan <- posterior$roots$plan
  chosen <- main_components(posterior, most_error_components, least = 0.2)
  draws <- error_draws(plan$rows * length(chosen), max(1, plan$dense))
  if (draws < 2L * fewest_error_draws && length(chosen) > 1L) {
    chosen <- chosen[1L]
    draws <- error_draws(plan$rows, max(1, plan$dense))
  }
  list(chosen = chosen, draws = draws)
}

# Draws with log ratios of the corrected posterior that a fit shows, those of its error without `draws` and `key`;
# NULL where it shows its gaussians, or rows are too many.
shown_samples <- function(fit, draws = NULL, key = NULL) {
  posterior <- fit$posterior
  if (is.null(profiled_target(posterior))) return(NULL)
  if (is.null(fit$nested)) {
    draws <- draws %||% error_draws(max(1L, length(fit$model$rows$y)), fit$model$dim)
    own <- if (draws) corrected_sample(posterior, draws, key %||% error_key)
    return(if (!is.null(own)) list(own))
  }
  if (isTRUE(posterior$roots$plan$summed)) return(NULL)
  at <- error_components(posterior)
  draws <- draws %||% at$draws
  if (!draws) return(NULL)
  lapply(at$chosen, function(k) conditional_sample(posterior, k, draws, if (!is.null(key)) key_for(key, list(k))))
}

with_rule_error <- function(error, rule, words) {
  error$mean <- error$mean + rule$mean
  error$sd <- error$sd + rule$sd
  if (!is.null(error$basis)) error$basis <- paste(c(error$basis, words), collapse = "; ")
  error
}

# Draws of what is shown at component k, with the log ratios of the posterior given its hyperparameters.
conditional_sample <- function(posterior, k, n, key = NULL) {
  z <- draw_base(posterior_law(posterior), key %||% key_for(error_key, list(k)), n)
  drawn <- corrected_ratios_at(posterior, k, spread_points(posterior, z))
  target <- target_of(posterior, k)
  optimum <- original_order(target$plan, target$setting$mu)
  if (is.null(offset_of_location(posterior, k, optimum))) posterior$location[, k] <- optimum
  c(list(x = in_user_rows(posterior, component_points(posterior, drawn$z, rep(k, n)))), drawn[c("log_ratios", "log_own")])
}

# What draws have moved the location from the optimum by, in whitened coordinates; NULL where there are too many for that.
offset_of_location <- function(posterior, k, optimum, most = 300L) {
  by <- posterior$location[, k] - optimum
  if (all(by == 0)) return(0)
  if (length(by) <= most) drop(root_solve(root_at(posterior$roots, k), matrix(by)))
}

# ---- in words --------------------------------------------------------------------------------------------------------

error_line <- function(error) {
  if (is.null(error)) return(NULL)
  if (is.na(error$mean)) return(sprintf("Error against the posterior: not known (%s)", error$why))
  sprintf("Estimated error against the posterior: means %s sd, sds %s %% (%s)", format(error$mean, digits = 1),
          format(100 * error$sd, digits = 1), error$basis)
}

shown_k_line <- function(error) {
  if (is.null(error$k)) return(NULL)
  k <- error$k
  if (is.na(k)) return(paste0("Pareto k-hat: not computed", if (is.null(error$elsewhere)) "; pareto_k() does"))
  if (k == -Inf) return("Pareto k-hat: not needed (exact given the hyperparameters)")
  if (k == 0) return("Pareto k-hat: not needed (importance weights are nearly constant)")
  sprintf("Pareto k-hat: %s (%s)%s", format(k, digits = 2),
          if (k < k_good) "good" else if (k < k_usable) "fair" else if (is.na(error$mean)) "poor" else "poor in the tails",
          if (is.na(error$ess)) "" else sprintf(", %s of %s draws effective", format_count(round(error$ess)), format_count(error$draws)))
}
