# Smooths with several penalties on the same coefficients, te(), ti() and s(bs = "ad"): one standard deviation for each penalty. With
# penalties S_1, ..., S_m the precision is sum_p S_p / sd_p^2. Penalties that share axes make it diagonal there: those of tensor products
# do, and those of an adaptive smooth of one variable.

tensor_kind <- function() structured_kind(
  calls = character(), variables = function(call) NULL,   # such terms come from smooths, see smooth_terms()
  make = function(x, frame, counting, contrasts) smooth_terms(x),
  columns = function(term, frame, smooths) methods::as(smooths[[term$smooth]]$penalised[[1L]], "dMatrix"),
  dense = function(term, filled) TRUE,
  entries = function(term) {
    r <- length(term$columns)
    places <- if (is_diagonal(term)) cbind(seq_len(r), seq_len(r)) else which(lower.tri(diag(r), diag = TRUE), arr.ind = TRUE)
    list(row = places[, 1L], column = places[, 2L], source = seq_len(nrow(places)))
  },
  blocked = is_diagonal,
  precision = function(term, theta) if (is_diagonal(term)) diagonal_precision(term, theta) else dense_precision(term, theta),
  log_prior = function(term, theta) {
    each <- log_prior_positive(term$prior_sd, theta)
    list(value = sum(each$value), slope = each$slope)
  },
  theta_names = function(term) paste0("log sd(", penalty_labels(term), ")"),
  start = function(term, Z, unit) rep(log(0.5 * unit), count_penalties(term)),
  curvature = function(term) 2 * length(term$columns) * rep(1 / count_penalties(term), count_penalties(term)),
  natural = function(term, theta) stats::setNames(lapply(seq_len(ncol(theta)), function(j) exp(theta[, j])), sd_names(term)),
  sd_names = function(term) paste0("smooth_sd[", penalty_labels(term), "]"),
  tidy_names = function(term) paste0("sd__", seq_len(count_penalties(term))),
  effect_names = function(term) paste0(term$label, ".", term$levels),
  heading = function(term) list(term = "", coefficient = penalty_labels(term), levels = ""))

is_diagonal <- function(term) is.matrix(term$penalties)
count_penalties <- function(term) if (is_diagonal(term)) ncol(term$penalties) else length(term$penalties)
penalty_labels <- function(term) paste0(term$label, if (count_penalties(term) > 1L) seq_len(count_penalties(term)))

# penalties: one column for each, with its diagonal
diagonal_precision <- function(term, theta) {
  each <- t(t(term$penalties) * exp(-2 * theta))
  value <- rowSums(each)
  list(value = value, inverse = 1 / value, log_det = sum(log(value)), slope = function(S) colSums(each * S) - colSums(each / value))
}

# penalties: a list of matrices
dense_precision <- function(term, theta) {
  each <- Map(`*`, term$penalties, exp(-2 * theta))
  Q <- Reduce(`+`, each)
  root <- chol(Q)
  inverse <- chol2inv(root)
  low <- lower.tri(Q, diag = TRUE)
  twice <- ifelse(row(Q) == col(Q), 1, 2)[low]
  list(value = Q[low], inverse = NULL, log_det = 2 * sum(log(diag(root))),
       slope = function(S) vapply(each, function(M) sum(twice * M[low] * S) - sum(M * inverse), 0))
}

# ---- from mgcv's smooth -----------------------------------------------------------------------------------------

# What mgcv::smooth2random() returns for other smooths: `trans.U` turns the columns of the basis to those that no penalty touches
# (pen.ind 0) and the others (pen.ind 1). Among these the sum of the penalties, each of norm 1, is the identity.
several_penalties <- function(smooth) {
  S <- lapply(smooth$S, function(M) M / norm(M, "F"))
  whole <- eigen(Reduce(`+`, S), symmetric = TRUE)
  kept <- whole$values > 1e-9 * whole$values[1L]   # mgcv counts the rank with a tolerance too
  axes <- t(t(whole$vectors[, kept, drop = FALSE]) / sqrt(whole$values[kept]))
  S <- lapply(S, function(M) symmetric(crossprod(axes, M %*% axes)))
  shared <- shared_axes(S)
  if (!is.null(shared)) {
    axes <- axes %*% shared
    S <- vapply(S, function(M) pmax(diag(crossprod(shared, M %*% shared)), 0), numeric(ncol(axes)))
    S[S < 1e-7] <- 0   # what a penalty does not touch
  }
  r <- ncol(axes)
  free <- sum(!kept)
  list(trans.U = cbind(whole$vectors[, !kept, drop = FALSE], axes), trans.D = rep(1, free + r), rind = free + seq_len(r),
       pen.ind = rep(0:1, c(free, r)), rand = list(smooth$X %*% axes), fixed = FALSE, penalties = S)
}

symmetric <- function(M) (M + t(M)) / 2

# Orthonormal axes along which all matrices are diagonal, or NULL: those of a combination with unlike weights, if there are any. Two
# matrices whose sum is the identity always share theirs.
shared_axes <- function(S) {
  weights <- sqrt(2) ^ seq_along(S) + 1 / seq_along(S)
  V <- eigen(Reduce(`+`, Map(`*`, S, weights)), symmetric = TRUE)$vectors
  off <- vapply(S, function(M) {
    D <- crossprod(V, M %*% V)
    max(abs(D - diag(diag(D), nrow(D))))
  }, 0)
  if (max(off) < 1e-7) V
}

# Each penalty is scaled such that, were it the only one, the part of the smooth that it touches would have variance 1 on average over
# the rows Z, given a standard deviation of 1. See smooth_scaling().
scaled_penalties <- function(penalties, Z) {
  used <- Z[rowSums(Z^2) > 0, , drop = FALSE]
  if (is.matrix(penalties)) {
    square <- colMeans(used^2)
    size <- apply(penalties, 2L, function(d) sum(square[d > 0] / d[d > 0]))
    return(t(t(penalties) * size))
  }
  lapply(penalties, function(M) {
    e <- eigen(M, symmetric = TRUE)
    kept <- e$values > 1e-7 * e$values[1L]
    M * sum(colMeans((used %*% e$vectors[, kept, drop = FALSE])^2) / e$values[kept])
  })
}
