# cs(x | g): group-level effects with a standard deviation for each coefficient and one correlation of all of them, compound symmetry
# as in 'glmmTMB'. With k coefficients the correlation is between -1 / (k - 1) and 1; its place in that interval, t, has a beta prior,
# which is what lkj(eta) says of such matrices: uniform for eta = 1.

compound_kind <- function() {
  own <- list(
    calls = "cs",
    variables = function(call) group_kind$variables(read_bar(call)[[1L]]),
    make = function(x, frame, counting, contrasts) lapply(read_bar(x), compound_term, frame, contrasts, counting),
    precision = function(term, theta) {
      at <- compound_covariance(term, theta)
      list(value = covariance_part(term, at$inverse), inverse = covariance_part(term, at$D), log_det = -levels_of_term(term) * at$log_det,
           slope = function(S) compound_slope(term, at, S))
    },
    log_prior = function(term, theta) {
      k <- length(term$coefs)
      sd <- log_prior_positive(term$prior_sd, theta[seq_len(k)])
      shape <- c(term$prior_cor %||% 1, 1 + (k - 1) * ((term$prior_cor %||% 1) - 1))
      z <- theta[k + 1L]
      value <- shape[1L] * stats::plogis(z, log.p = TRUE) + shape[2L] * stats::plogis(-z, log.p = TRUE) - lbeta(shape[1L], shape[2L])
      list(value = sum(sd$value) + value, slope = c(sd$slope, shape[1L] * stats::plogis(-z) - shape[2L] * stats::plogis(z)))
    },
    theta_names = function(term) c(paste0("log sd(", term$label, ": ", term$coefs, ")"), paste0("logit cor(", term$label, ")")),
    start = function(term, Z, unit) {
      k <- length(term$coefs)
      c(by_level_precision$start(term, Z, unit)[seq_len(k)], -log(k - 1))   # uncorrelated
    },
    curvature = function(term) levels_of_term(term) * rep(c(2, 1), c(length(term$coefs), 1L)),
    natural = function(term, theta) {
      k <- length(term$coefs)
      columns <- c(lapply(seq_len(k), function(j) exp(theta[, j])), list(compound_correlation(theta[, k + 1L], k)))
      stats::setNames(columns, natural_names(term))
    },
    tidy_names = function(term) c(paste0("sd__", term$coefs), "cor__cs"))
  c(own, group_kind[setdiff(names(group_kind), names(own))])
}

compound_term <- function(bar, frame, contrasts, counting) {
  term <- group_term(bar, frame, contrasts, counting)
  if (length(term$coefs) < 2L) refuse_term(str2lang(bar$written), "one coefficient has no correlations: (1 | g) is the same")
  term$kind <- "compound"
  term$one_cor <- paste0("cor(", term$label, ")")
  term
}

compound_correlation <- function(z, k) (k * stats::plogis(z) - 1) / (k - 1)

# covariance of the coefficients of a level, its inverse and log determinant
compound_covariance <- function(term, theta) {
  k <- length(term$coefs)
  sd <- exp(theta[seq_len(k)])
  z <- theta[k + 1L]
  rest <- k / (k - 1) * stats::plogis(-z)   # 1 - rho, without cancellation
  total <- k * stats::plogis(z)             # 1 + (k - 1) rho
  rho <- 1 - rest
  R <- rest * diag(k) + rho
  inverse <- (diag(k) - rho / total) / rest
  list(sd = sd, D = R * tcrossprod(sd), inverse = inverse / tcrossprod(sd), log_det = 2 * sum(log(sd)) + (k - 1) * log(rest) + log(total),
       by_z = k / (k - 1) * stats::plogis(z) * stats::plogis(-z))
}

# derivative of log|Q| / 2 - tr(Q S) / 2
compound_slope <- function(term, at, S) {
  G <- covariance_gradient(term, at, S)
  c(2 * rowSums(G * at$D), at$by_z * sum(G * tcrossprod(at$sd) * (1 - diag(length(at$sd)))))
}
