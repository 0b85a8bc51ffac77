# Polish of a fit whose importance weights are thin: 16 short chains of Hamiltonian Monte Carlo from the corrected draws, in coordinates
# whitened by their covariance. What they visit are points of equal weight that take the place of the importance-weighted ones
# (posterior-points.R), so that every method shows them.

polish_chains <- 16L
polish_settings <- list(warmup = 100, iterations = 250, first = 100, most_steps = 64, length = pi / 2, accept = 0.85)
most_rhat <- 1.05

# elvi(polish = TRUE): `fit` is an expression that makes the fit. Its warnings are raised only if the chains do not correct it.
with_polish <- function(fit) {
  held <- NULL
  fit <- withCallingHandlers(fit, elvi_warning_verdict = function(w) {
    held <<- w
    tryInvokeRestart("muffleWarning")
  })
  fit <- polish_fit(fit)
  if (!is.null(held) && (is.null(fit$polish) || fit$polish$rhat > most_rhat)) warning(held)
  fit
}

polish_fit <- function(fit) {
  check_polish(fit)
  if (!fit$status %in% "finished" || !needs_polish(fit$verdict)) return(fit)
  start <- polish_start(fit)
  fit$result$polish <- polish_from(fit$given$model, start, derived_key(fit$plan$seed, "polish"))
  fit$result["posterior"] <- list(NULL)
  if (fit$polish$rhat > most_rhat) {
    elvi_warn("The largest R-hat of the ", polish_chains, " chains that polish the fit is ", format(fit$polish$rhat, digits = 3),
              ", above ", most_rhat, ": they have not mixed, and their draws are not those of the posterior.",
              class = "elvi_warning_polish")
  }
  fit
}

check_polish <- function(fit) {
  if (is_user_density(fit$given$model) && identical(fit$given$method, "mpsgd")) return(invisible())
  unused_argument("polish", "it is for user-supplied densities (model_density(), model_stan(), model_native())")
}

# Weights with an effective sample size below a fifth of the draws, or that contradict the estimates shown. Good weights are better than
# short chains.
needs_polish <- function(v) is.null(v) || weights_object(v) || v$ess < fewest_adapted * v$draws

# ---- chains ------------------------------------------------------------------------------------------------

# Where chains begin, and the mean and covariance that whiten them: of the importance-weighted points.
polish_start <- function(fit) {
  posterior <- fit$posterior
  key <- derived_key(fit$plan$seed, "polish")
  points <- weighted_points(posterior)
  if (is.null(points)) {
    drawn <- draws_with_ratios(fit, k_block, key)
    points <- list(x = drawn$x, w = truncated_weights(drawn$log_ratios))
  }
  moments <- moments_under(points$x, points$w, posterior$names)
  at <- with_key(key, sample.int(ncol(points$x), polish_chains, replace = sum(points$w > 0) < polish_chains, prob = points$w))
  list(x = points$x[, at, drop = FALSE], mean = unname(moments$mean), root = chain_root(moments$covariance))
}

# lower triangular; few distinct points have a singular covariance
chain_root <- function(V) {
  ridge <- 0
  repeat {
    root <- or_null(t(chol(V + diag(ridge * diag(V), nrow(V)))))
    if (!is.null(root)) return(unname(root))
    ridge <- max(10 * ridge, 1e-8)
  }
}

# Twice: the points of the first chains whiten the second ones, which are kept.
polish_from <- function(model, start, key, settings = polish_settings) {
  target <- target_for_chains(model)
  first <- run_chains(target, start, key_for(key, list("first")), settings, settings$first)
  moments <- moments_under(first$x, rep(1 / ncol(first$x), ncol(first$x)), NULL)
  start <- list(x = first$end, mean = moments$mean, root = chain_root(moments$covariance), step = first$step)
  second <- run_chains(target, start, key_for(key, list("second")), settings, settings$iterations)
  n <- ncol(second$x)
  list(x = second$x, moments = moments_under(second$x, rep(1 / n, n), model$names), rhat = split_rhat(second$x, polish_chains),
       accept = second$accept, divergent = second$divergent, step = second$step, chains = polish_chains,
       iterations = settings$iterations, evaluations = first$evaluations + second$evaluations)
}

run_chains <- function(target, start, key, settings, iterations) {
  w <- forwardsolve(start$root, start$x - start$mean)
  settings <- c(settings[c("warmup", "most_steps", "length", "accept")],
                list(iterations = iterations, step = start$step %||% (0.5 / length(start$mean)^0.25), key = key,
                     centre = as.double(start$mean), root = as.double(start$root)))
  out <- .Call(elvi_r_hmc, target, settings, matrix(w, length(start$mean)), threads())
  check_status(out$status)
  d <- length(start$mean)
  list(x = matrix(out$x, d), end = start$mean + start$root %*% matrix(out$w, d), step = out$step, accept = out$accept,
       divergent = out$divergent, evaluations = out$evaluations)
}

# An R function that fails at a point has no mass there.
target_for_chains <- function(model) {
  if (!is_function_of_r(model)) return(model)
  own <- model[c("value", "gradient")]
  account <- new_account()
  model$value <- finite_or_inf(own$value)
  model$gradient <- function(x) {
    out <- call_guarded(own$gradient, x, model$dim, account)
    as.double(ifelse(is.finite(out), out, 0))
  }
  model
}

# The largest R-hat over the parameters: each chain is cut in two (Gelman and others, Bayesian Data Analysis, 2013, section 11.4).
# Points are columns, chains change fastest.
split_rhat <- function(x, chains) {
  n <- ncol(x) %/% chains
  half <- n %/% 2L
  one <- function(v) {
    v <- matrix(v, chains)
    parts <- cbind(t(v[, seq_len(half), drop = FALSE]), t(v[, n - half + seq_len(half), drop = FALSE]))
    within <- mean(apply(parts, 2L, stats::var))
    between <- stats::var(colMeans(parts))
    sqrt((half - 1) / half + between / within)
  }
  max(apply(x, 1L, one))
}

# ---- in words ----------------------------------------------------------------------------------------------

# the points that replace those of the verdict
polished_points <- function(fit) {
  polish <- fit$result$polish
  if (!is.null(polish)) list(x = polish$x, draws = ncol(polish$x), moments = polish$moments)
}

polish_line <- function(polish) {
  if (is.null(polish)) return(NULL)
  sprintf(paste("Polished by %d Hamiltonian Monte Carlo chains of %s iterations (%s evaluations, acceptance %.2f%s): largest R-hat %s.",
                "A value near 1 is necessary, not sufficient: chains that miss a part of the target do not show it"),
          polish$chains, format_count(polish$iterations), format_count(polish$evaluations), polish$accept,
          if (polish$divergent > 0) sprintf(", %s divergent", format_count(polish$divergent)) else "",
          format(polish$rhat, digits = 4))
}
