# What a fit shows of the posterior. Mostly that is the approximation itself. Where the verdict has importance weights that
# are of use it is the approximation as they correct it, in tables, intervals, plots and draws alike: `fit$mu` and
# `fit$Sigma` remain those of the approximation, and so does all that is about its objective.

is_corrected <- function(fit) {
  v <- fit$result$verdict
  !is.null(v) && (isTRUE(v$k < 1) || isTRUE(v$ess > v$draws / 2))
}

# ---- moments ------------------------------------------------------------------------------------

posterior_mean <- function(fit) if (is_corrected(fit)) fit$result$verdict$mean else fit$mu

# of all parameters, a logarithm of a dispersion included
posterior_covariance <- function(fit) {
  if (is_corrected(fit)) fit$result$verdict$covariance else root_covariance(reported_factor(fit))
}

# of parameters `which` alone: for them a diagonal scale is not made a matrix
posterior_covariance_of <- function(fit, which) {
  root <- model_factor(fit)
  if (is_corrected(fit) || !is.numeric(root) || is.matrix(root)) return(posterior_covariance(fit)[which, which, drop = FALSE])
  model <- fit$given$model
  unit <- matrix(0, length(which), length(root), dimnames = list(model$names[which], NULL))
  unit[cbind(seq_along(which), which)] <- 1
  if (!is.null(model$reported)) unit <- unit + outer(unit[, 1L], model$reported)
  tcrossprod(unit * rep(root, each = length(which)))
}

posterior_sd <- function(fit) if (is_corrected(fit)) sqrt(diag(posterior_covariance(fit))) else approximation_sd(fit)

# Moments under weights that add to 1, of points that are the columns of x.
moments_under <- function(x, w, names) {
  mean <- drop(x %*% w)
  away <- x - mean
  list(mean = stats::setNames(mean, names),
       covariance = matrix(away %*% (w * t(away)), length(mean), dimnames = list(names, names)))
}

# ---- the draws behind them ------------------------------------------------------------------------

# The points that the verdict has looked at, in columns, made again from their key, and their weights.
weighted_points <- function(fit) {
  v <- fit$result$verdict
  block <- function(i) proposal_points(fit, k_block, v$proposal, verdict_iteration(i))$x
  list(x = do.call(cbind, lapply(seq_len(v$draws / k_block), block)),
       w = truncated_weights(v$log_ratios))
}

# The first n of the sequence of draws with the given key that the weights pick.
corrected_draws <- function(fit, n, key) {
  points <- weighted_points(fit)
  u <- with_key(key, stats::runif(n))
  keep <- findInterval(u, cumsum(points$w), rightmost.closed = TRUE) + 1L
  in_rows(fit, points$x[, pmin(keep, ncol(points$x)), drop = FALSE])
}

# One row for each of the parameters `which`, one column for each p.
corrected_quantiles <- function(fit, which, p) {
  points <- weighted_points(fit)
  out <- vapply(which, function(j) weighted_quantile(points$x[j, ], points$w, p), numeric(length(p)))
  t(matrix(out, length(p)))
}

# between the points, so that equal weights give the usual quantiles
weighted_quantile <- function(x, w, p) {
  order <- order(x)
  w <- w[order]
  stats::approx(cumsum(w) - w / 2, x[order], p, rule = 2, ties = "ordered")$y
}

# ---- in words -----------------------------------------------------------------------------------

corrected_label <- "corrected by importance weights"

# Draws of the approximation itself were asked for: what is shown differs from what tables show, and where it differs by more
# than a verdict allows, that is said. `plain` and `corrected` have a draw in each row.
warn_of_plain <- function(plain, corrected) {
  sd <- apply(corrected, 2L, stats::sd)
  moves <- sd > 1e-8 * pmax(1, abs(colMeans(corrected)))   # not a constant
  shift <- (abs(colMeans(plain) - colMeans(corrected)) / sd)[moves]
  ratio <- (apply(plain, 2L, stats::sd) / sd)[moves]
  ratio <- pmax(ratio, 1 / ratio)
  if (!length(shift) || !isTRUE(max(shift) > most_shift || max(ratio) > most_ratio)) return(invisible())
  worst <- if (max(ratio) / most_ratio > max(shift) / most_shift) which.max(ratio) else which.max(shift)
  elvi_warn("Draws of the approximation itself, as asked for by resample = FALSE, differ from those that importance weights ",
            "correct: the mean of `", names(shift)[worst], "` by ", format(shift[[worst]], digits = 2),
            " standard deviations, its standard deviation by a factor of ", format(ratio[[worst]], digits = 3), ".",
            class = "elvi_warning_uncorrected")
}
