# Coordinates of the hyperparameters for the rule of normal scores (solve-scores.R), for terms with correlations.
#
# 1. In `distance ~ age + (age | Subject)` at ages 8 to 14 the intercept is that at age 0. The data say much about the sd of the level at
#    age 11, but little about that of the intercept without the slope's and their correlation: the posterior of these three is a
#    thin curve. So the coordinates of the covariance D of a term's coefficients are the log sds and partial correlations of R D R',
#    the covariance of linear combinations of the coefficients that the data tell apart.
# 2. Where an sd is near zero the data say nothing about its correlations, and their posterior is as wide as the prior: a funnel. So
#    partial correlations are divided by the sd that is expected given the sds.

# One list for each term with correlations, NULL without any: `at`, its places in theta; the number of coefficients, k, and of levels;
# `combined`: is R more than the identity? `to` and `from`, maps from the lower triangle of D to that of R D R' and back; `error`, the
# sds with which the data of a level show the combinations. `mode` of the evidence, with its solution.
level_coordinates <- function(setup, mode) {
  parts <- lapply(seq_along(setup$layout$terms), function(t) {
    term <- setup$problem$terms[[t]]
    if (!pairs_of(term) || !is_independent_term(term)) return(NULL)
    slot <- setup$layout$terms[[t]]
    seen <- level_estimates(term, setup, mode, slot)
    if (is.null(seen)) return(NULL)
    k <- length(term$coefs)
    # combinations take time, and at lower correlations they gain nothing
    root <- if (max(abs(stats::cov2cor(seen$total)[lower.tri(seen$total)])) > 0.5) chol(solve(seen$total)) else diag(k)
    root <- root / rep(seen$unit, each = k)
    R <- root / diag(root)
    list(at = slot$theta, k = k, levels = levels_of_term(term), combined = any(R[upper.tri(R)] != 0), to = covariance_map(R),
         from = covariance_map(backsolve(R, diag(k))), error = sqrt(rowSums((R %*% (seen$error * tcrossprod(seen$unit))) * R)))
  })
  parts <- parts[lengths(parts) > 0]
  if (length(parts)) parts
}

# Estimates of a level's coefficients by its own data have a covariance E about the coefficients, on average: `error`, by their
# covariance V given all data, V^-1 = D^-1 + E^-1; and D + E all in all: `total`. Both are of coefficients in units of their sds,
# `unit`, as one may be 1e9 times another. NULL where rounding would decide.
level_estimates <- function(term, setup, mode, slot) {
  k <- length(term$coefs)
  mu <- matrix(original_order(setup$plan, mode$solution$mu)[ncol(setup$problem$X) + term$columns], k)
  S <- diag(k)
  S[lower.tri(S, diag = TRUE)] <- mode$solution$moment[slot$source]
  S[upper.tri(S)] <- t(S)[upper.tri(S)]
  D <- term_covariance(term, mode$theta[slot$theta])$D
  unit <- sqrt(diag(D))
  D <- D / tcrossprod(unit)
  precision <- or_null(solve((S - tcrossprod(mu)) / ncol(mu) / tcrossprod(unit)) - solve(D))
  if (is.null(precision)) return(NULL)
  e <- eigen((precision + t(precision)) / 2, symmetric = TRUE)
  error <- e$vectors %*% (t(e$vectors) / pmax(e$values, 1e-4))
  if (rcond(D + error) < 1e-10) return(NULL)
  list(error = error, total = D + error, unit = unit)
}

# of the lower triangle of a symmetric matrix D to that of R D R'
covariance_map <- function(R) {
  k <- nrow(R)
  low <- which(lower.tri(diag(k), diag = TRUE), arr.ind = TRUE)
  apply(low, 1L, function(at) {
    D <- matrix(0, k, k)
    D[at[1L], at[2L]] <- D[at[2L], at[1L]] <- 1
    (R %*% D %*% t(R))[low]
  })
}

# ---- there and back, for hyperparameters in rows ------------------------------------------------------------------------

to_coordinates <- function(parts, theta) {
  for (part in parts) {
    if (part$combined) {
      theta[, part$at] <- covariance_coordinates(covariance_rows(theta[, part$at, drop = FALSE], part$k) %*% t(part$to), part$k)
    }
    y <- part$at[-seq_len(part$k)]
    theta[, y] <- theta[, y] / expected_spread(part, theta[, part$at[seq_len(part$k)], drop = FALSE])
  }
  theta
}

# theta, and in a last column log |d theta / d x| up to a constant
from_coordinates <- function(parts, x) {
  volume <- numeric(nrow(x))
  for (part in parts) {
    y <- part$at[-seq_len(part$k)]
    spread <- expected_spread(part, x[, part$at[seq_len(part$k)], drop = FALSE])
    x[, y] <- x[, y] * spread
    volume <- volume + rowSums(log(spread))
    if (!part$combined) next
    own <- x[, part$at, drop = FALSE]
    theta <- covariance_coordinates(covariance_rows(own, part$k) %*% t(part$from), part$k)
    volume <- volume + covariance_volume(own, part$k) - covariance_volume(theta, part$k)
    x[, part$at] <- theta
  }
  unname(cbind(x, volume))
}

# The expected sds of partial correlations given log sds (rows), in the order of theta. The information about one is that of the prior
# and that of as many levels, in which both combinations are seen with error.
expected_spread <- function(part, log_sd) {
  seen <- 1 / (1 + exp(2 * (rep(log(part$error), each = nrow(log_sd)) - log_sd)))
  pair <- which(lower.tri(diag(part$k)), arr.ind = TRUE)
  prior <- 2 * partial_shape(part$k)
  information <- part$levels * seen[, pair[, 1L], drop = FALSE] * seen[, pair[, 2L], drop = FALSE]
  1 / sqrt(information + rep(prior, each = nrow(log_sd)))
}

# of the beta distributions of partial correlations in uniform correlation matrices, as in log_prior_correlation()
partial_shape <- function(k) {
  column <- rep(seq_len(k - 1L), rev(seq_len(k - 1L)))
  1 + (k - 1 - column) / 2
}

# log |d D / d x| of D by log sds and partial correlations, up to a constant
covariance_volume <- function(x, k) {
  y <- x[, -seq_len(k), drop = FALSE]
  log_cosh <- abs(y) + log1p(exp(-2 * abs(y)))
  (k + 1) * rowSums(x[, seq_len(k), drop = FALSE]) - 2 * drop(log_cosh %*% partial_shape(k))
}

# lower triangles of covariances, from log sds and partial correlations
covariance_rows <- function(x, k) {
  sd <- exp(x[, seq_len(k), drop = FALSE])
  low <- which(lower.tri(diag(k), diag = TRUE), arr.ind = TRUE)
  out <- sd[, low[, 1L], drop = FALSE] * sd[, low[, 2L], drop = FALSE]
  off <- low[, 1L] != low[, 2L]
  term <- list(coefs = seq_len(k), correlated = TRUE)
  out[, off] <- out[, off, drop = FALSE] * unlist(correlation_columns(term, x[, -seq_len(k), drop = FALSE]))
  out
}

covariance_coordinates <- function(D, k) {
  place <- matrix(0L, k, k)
  place[lower.tri(place, diag = TRUE)] <- seq_len(ncol(D))
  sd <- sqrt(pmax(D[, diag(place), drop = FALSE], 1e-300))
  L <- array(0, c(nrow(D), k, k))   # factors of the correlation matrices
  left <- matrix(1, nrow(D), k)     # the share of each row's squared length not yet taken
  partial <- NULL
  for (j in seq_len(k)) {
    L[, j, j] <- sqrt(left[, j])
    for (i in seq_len(k)[-seq_len(j)]) {
      before <- rowSums(matrix(L[, i, seq_len(j - 1L)] * L[, j, seq_len(j - 1L)], nrow(D)))
      w <- (D[, place[i, j]] / (sd[, i] * sd[, j]) - before) / (L[, j, j] * sqrt(left[, i]))
      w <- pmin(pmax(w, -largest_correlation), largest_correlation)
      L[, i, j] <- w * sqrt(left[, i])
      left[, i] <- left[, i] * (1 - w^2)
      partial <- cbind(partial, atanh(w))
    }
  }
  cbind(log(sd), partial)
}

# beyond it rounding decides
largest_correlation <- 1 - 1e-12

# d theta / d x and, last, that of the volume, by differences, all at once: for each coordinate a matrix with the changes in each row
coordinate_slopes <- function(parts, x, h = 1e-6) {
  n <- nrow(x)
  moving <- unlist(lapply(parts, `[[`, "at"))
  around <- x[rep(seq_len(n), length(moving)), , drop = FALSE]
  at <- cbind(seq_len(nrow(around)), rep(moving, each = n))
  around[at] <- around[at] + h
  here <- from_coordinates(parts, x)
  change <- (from_coordinates(parts, around) - here[rep(seq_len(n), length(moving)), , drop = FALSE]) / h
  lapply(seq_len(ncol(x)), function(j) {
    block <- match(j, moving)
    if (!is.na(block)) return(change[(block - 1L) * n + seq_len(n), , drop = FALSE])
    matrix(rep(seq_len(ncol(x) + 1L) == j, each = n) + 0, n)
  })
}

# ---- the evidence in these coordinates -----------------------------------------------------------------------------------

# Solved points with theta, value and slope in the coordinates x, as a density of these; `own` has those of theta.
in_coordinates <- function(parts, found, x, volume) {
  if (is.null(parts)) return(found)
  by <- cbind(matrix(unlist(lapply(found, `[[`, "slope")), length(found), byrow = TRUE), 1)
  slope <- vapply(coordinate_slopes(parts, x), function(change) rowSums(change * by), numeric(nrow(x)))
  slope <- matrix(slope, nrow(x))
  lapply(seq_along(found), function(i) {
    f <- found[[i]]
    own <- f[c("theta", "value", "slope")]
    f$theta <- x[i, ]
    f$value <- f$value + volume[i]
    f$slope <- slope[i, ]
    c(f, list(own = own))
  })
}

out_of_coordinates <- function(parts, found) {
  if (is.null(parts)) return(found)
  lapply(found, function(f) {
    f[c("theta", "value", "slope")] <- f$own
    f$own <- NULL
    f
  })
}

# evidence_at() places x, a list, in these coordinates, started from solved points near them
evidence_in <- function(setup, x, near, drift, tol) {
  parts <- setup$coordinates
  x <- matrix(unlist(x), length(x), byrow = TRUE)
  theta <- if (is.null(parts)) x else from_coordinates(parts, x)
  thetas <- lapply(seq_len(nrow(x)), function(i) theta[i, seq_len(ncol(x))])
  from <- Map(start_near, out_of_coordinates(parts, near), thetas, MoreArgs = list(drift = drift))
  in_coordinates(parts, evidence_at(setup, thetas, from, tol), x, theta[, ncol(theta)])
}

# the mode and the curvature there, for a rule that works in these coordinates
around_in <- function(setup, around) {
  parts <- setup$coordinates
  if (is.null(parts)) return(around)
  x <- to_coordinates(parts, matrix(around$mode$theta, 1L))
  volume <- from_coordinates(parts, x)[, length(x) + 1L]
  around$mode <- in_coordinates(parts, list(found_at(around$mode)), x, volume)[[1L]]
  J <- vapply(coordinate_slopes(parts, x), function(change) change[seq_along(x)], as.vector(x))
  around$hessian <- crossprod(J, around$hessian %*% J)
  around
}

# natural hyperparameters at rows of x
shown_in <- function(setup, x) {
  if (is.null(setup$coordinates)) return(shown_hyper(setup, x))
  shown_hyper(setup, from_coordinates(setup$coordinates, x)[, seq_len(ncol(x)), drop = FALSE])
}
