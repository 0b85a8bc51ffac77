# Hyperparameters: for each term its log standard deviations and unconstrained
# correlations, then log sigma or log phi. See vignette("internals").

# Where everything is in theta.
hyper_layout <- function(problem) {
  at <- 0L
  names <- character()
  terms <- lapply(problem$terms, function(term) {
    k <- length(term$coefs)
    pairs <- if (isTRUE(term$correlated) && k > 1L) (k * (k - 1L)) %/% 2L else 0L
    out <- list(sd = at + seq_len(k), cor = at + k + seq_len(pairs), k = k, J = length(term$columns) / k,
                pairs = pairs)
    at <<- at + k + pairs
    pair <- which(lower.tri(diag(k)), arr.ind = TRUE)
    names <<- c(names, term_record(term)$log_sd_names(term),
                if (pairs) paste0("z cor(", term$label, ": ", term$coefs[pair[, 2L]], ", ", term$coefs[pair[, 1L]],
                                  ")"))
    out
  })
  dispersion <- if (!is.null(problem$dispersion)) at + 1L
  list(terms = terms, dispersion = dispersion, length = at + length(dispersion),
       names = c(names, if (length(dispersion)) paste("log", problem$dispersion$name)))
}

# The Cholesky factor of a correlation matrix from partial correlations tanh(y), row by
# row: y holds them by columns of the lower triangle. Given the earlier ones, each
# is free in (-1, 1).
correlation_factor <- function(y, k) {
  w <- matrix(0, k, k)
  w[lower.tri(w)] <- tanh(y)
  L <- diag(k)
  for (i in seq_len(k)[-1L]) {
    left <- cumprod(c(1, sqrt(1 - w[i, seq_len(i - 1L)]^2)))
    L[i, seq_len(i)] <- c(w[i, seq_len(i - 1L)], 1) * left
  }
  list(L = L, w = w)
}

# sum(M * dL) for each y, M any matrix: the chain rule through correlation_factor()
correlation_chain <- function(factor, M, k) {
  out <- matrix(0, k, k)
  L <- factor$L
  w <- factor$w
  for (i in seq_len(k)[-1L]) for (j in seq_len(i - 1L)) {
    left <- prod(sqrt(1 - w[i, seq_len(j - 1L)]^2))
    after <- (j + 1L):i
    out[i, j] <- M[i, j] * (1 - w[i, j]^2) * left - w[i, j] * sum(M[i, after] * L[i, after])
  }
  out[lower.tri(out)]
}

# Covariance D of the coefficients of a level, its inverse, and what derivatives need.
term_covariance <- function(slot, theta) {
  sd <- exp(theta[slot$sd])
  if (slot$k == 1L) return(list(sd = sd, D = as.matrix(sd^2), inverse = as.matrix(1 / sd^2), L = as.matrix(1)))
  if (!slot$pairs) return(list(sd = sd, D = diag(sd^2, slot$k), inverse = diag(1 / sd^2, slot$k), L = diag(slot$k)))
  factor <- correlation_factor(theta[slot$cor], slot$k)
  root <- forwardsolve(factor$L, diag(1 / sd, slot$k))   # (diag(sd) L)^-1
  list(sd = sd, D = tcrossprod(sd * factor$L), inverse = crossprod(root), L = factor$L, w = factor$w,
       factor = factor)
}

# Partial correlations of an LKJ matrix are independent, and symmetric beta on (-1, 1).
log_prior_correlation <- function(y, k, eta) {
  column <- col(diag(k))[lower.tri(diag(k))]
  shape <- eta + (k - 1 - column) / 2
  log_cosh <- abs(y) + log1p(exp(-2 * abs(y))) - log(2)
  list(value = -2 * shape * log_cosh - (2 * shape - 1) * log(2) - lbeta(shape, shape), slope = -2 * shape * tanh(y))
}

# log p(theta) and its gradient
hyper_prior <- function(problem, layout, theta) {
  value <- 0
  slope <- numeric(layout$length)
  for (t in seq_along(layout$terms)) {
    slot <- layout$terms[[t]]
    part <- log_prior_positive(problem$terms[[t]]$prior_sd, theta[slot$sd])
    value <- value + sum(part$value)
    slope[slot$sd] <- part$slope
    if (slot$pairs) {
      part <- log_prior_correlation(theta[slot$cor], slot$k, problem$terms[[t]]$prior_cor %||% 1)
      value <- value + sum(part$value)
      slope[slot$cor] <- part$slope
    }
  }
  if (length(layout$dispersion)) {
    part <- log_prior_positive(problem$dispersion$prior, theta[layout$dispersion])
    value <- value + part$value
    slope[layout$dispersion] <- part$slope
  }
  list(value = value, slope = slope)
}

# Entries of A and their sources: one per fixed coefficient, then for each term its
# inverse covariance, or the diagonal of that.
hyper_entries <- function(problem, layout) {
  p <- ncol(problem$X)
  row <- column <- source <- list(seq_len(p))
  at <- p
  for (t in seq_along(layout$terms)) {
    slot <- layout$terms[[t]]
    full <- if (slot$pairs) which(lower.tri(diag(slot$k), diag = TRUE), arr.ind = TRUE)
            else cbind(seq_len(slot$k), seq_len(slot$k))
    columns <- matrix(p + problem$terms[[t]]$columns, slot$k)
    row <- c(row, list(as.integer(columns[full[, 1L], ])))
    column <- c(column, list(as.integer(columns[full[, 2L], ])))
    source <- c(source, list(rep(at + seq_len(nrow(full)), slot$J)))
    at <- at + nrow(full)
  }
  list(row = unlist(row), column = unlist(column), source = as.integer(unlist(source)))
}

source_part <- function(slot, M) if (slot$pairs) M[lower.tri(M, diag = TRUE)] else diag(M)

# The values of the sources, those of the inverse, and log|A| of the part that depends
# on theta.
hyper_precision <- function(problem, layout, theta) {
  at <- lapply(layout$terms, term_covariance, theta)
  log_det <- -sum(unlist(Map(function(slot, c) slot$J * 2 * (sum(log(c$sd)) + sum(log(diag(c$L)))), layout$terms, at)))
  definite <- all(problem$prior$precision > 0)
  list(A = as.double(c(problem$prior$precision,
                       unlist(Map(function(s, c) source_part(s, c$inverse), layout$terms, at)))),
       inverse = if (definite) as.double(c(1 / problem$prior$precision,
                                           unlist(Map(function(s, c) source_part(s, c$D), layout$terms, at)))),
       definite = definite, log_det = log_det, at = at)
}

# Derivative of log|A| / 2 - tr(A S) / 2 in theta, S the moments by source.
hyper_chain <- function(problem, layout, precision, moment) {
  out <- numeric(layout$length)
  at <- ncol(problem$X)
  for (t in seq_along(layout$terms)) {
    slot <- layout$terms[[t]]
    c <- precision$at[[t]]
    if (!slot$pairs) {
      out[slot$sd] <- moment[at + seq_len(slot$k)] / c$sd^2 - slot$J
      at <- at + slot$k
      next
    }
    S <- diag(slot$k)
    S[lower.tri(S, diag = TRUE)] <- moment[at + seq_len(slot$k + slot$pairs)]
    S[upper.tri(S)] <- t(S)[upper.tri(S)]
    at <- at + slot$k + slot$pairs
    G <- (c$inverse %*% S %*% c$inverse - slot$J * c$inverse) / 2
    out[slot$sd] <- 2 * rowSums(G * c$D)
    out[slot$cor] <- correlation_chain(c$factor, 2 * (c$sd * G * rep(c$sd, each = slot$k)) %*% c$L, slot$k)
  }
  out
}
