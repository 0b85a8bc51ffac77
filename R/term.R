# Latent terms: effects with a gaussian prior whose sparse precision Q(theta) depends on a few hyperparameters theta. A kind of term is a
# record of functions, and everything else asks the record: to add a kind is to add one record.
#
# A term is a list with `label`, `kind`, `levels` and `coefs` (effects are those of each level, of which there are as many as `coefs`,
# levels outside), `unit` of each coefficient's prior, `columns` (its place in Z) and, once it is part of a problem, the priors
# `prior_sd` and `prior_cor`; and whatever its own record needs.

term_entries <- c(
  "calls",         # functions in a formula that make such a term; character() for (x | g)
  "groupings",     # functions that make one behind a bar, as gr() in (x | gr(g, cov = A))
  "variables",     # function(call): expressions of the variables that it needs in the model frame
  "make",          # function(x, frame, counting, contrasts): a list of terms, from a bar, a smooth or a call. counting: rows that count
  "columns",       # function(term, frame, smooths): its sparse columns at the rows of a frame
  "free",          # function(term, frame): named columns that join those of the coefficients, or NULL
  "by_level",      # are its effects those of the levels of a factor? Then ranef(), ngrps() and VarCorr() have them
  "unseen",        # function(term, frame, allowed): rows whose effects the data did not have, see design-newdata.R; or NULL
  "dense",         # function(term, filled): are its columns treated as dense? filled: share of rows in which each is not 0
  "entries",       # function(term): list(row, column, source), the lower triangle of Q; entries of one source are equal
  "constraints",   # function(term): orthonormal columns of linear functions of the effects that are 0, eigenvectors of Q; or NULL
  "rank",          # function(term): of Q, less than its columns where Q is singular and the data must do the rest
  "blocked",       # function(term): has the inverse of Q the same pattern, and the same sources?
  "precision",     # function(term, theta): list(value, inverse, log_det, slope), see below
  "log_prior",     # function(term, theta): list(value, slope)
  "theta_names",   # function(term): of the hyperparameters on the scale without bounds
  "start",         # function(term, Z, unit): theta to begin with. unit: of the residuals, or 1
  "curvature",     # function(term): of -log p(theta | effects), roughly
  "natural",       # function(term, theta): from rows of theta to a list of columns, named
  "natural_names", # function(term): of these columns, standard deviations first
  "sd_names",      # function(term): those that are standard deviations, one for each of `coefs`
  "tidy_names",    # function(term): of all of them as 'broom.mixed' has them
  "effect_names",  # function(term): of the effects
  "grid",          # function(term, frame, n, n_2d): a frame of places to show the effects at, for plots and tables; or NULL
  "heading")       # function(term): its cells in the table of standard deviations
# precision(): `value` of each source in Q, `inverse` in Q^-1 (NULL where it is not blocked), `log_det` of Q (of a singular one, the
# product of the eigenvalues that are not 0, up to a constant), and slope(S), the derivative in theta of log|Q| / 2 - tr(Q S) / 2,
# where S has sums over the entries of each source. With constraints, log_det is that of Q on the effects that satisfy them, and `slack`
# has
# the inverse of Q's eigenvalue for each of them.

term_record <- function(term) term_kinds[[term$kind]]

has_levels <- function(terms) vapply(terms, function(term) term_record(term)$by_level, NA)

# called when the package is loaded
check_term_kinds <- function(kinds = term_kinds) {
  for (name in names(kinds)) {
    odd <- c(setdiff(term_entries, names(kinds[[name]])), setdiff(names(kinds[[name]]), term_entries))
    if (length(odd)) stop("the kind of term \"", name, "\" lacks, or should not have: ", toString(odd), ", see R/term.R")
  }
  calls <- unlist(lapply(kinds, function(kind) c(kind$calls, kind$groupings)))
  if (anyDuplicated(calls)) stop("two kinds of terms are written ", calls[duplicated(calls)][1L], "(), see R/term.R")
}

# functions in a formula that make latent terms, and the kind of each
latent_calls <- function() {
  calls <- lapply(term_kinds, `[[`, "calls")
  stats::setNames(rep(names(calls), lengths(calls)), unlist(calls))
}

# the same behind a bar
grouping_calls <- function() {
  calls <- lapply(term_kinds, `[[`, "groupings")
  stats::setNames(rep(names(calls), lengths(calls)), unlist(calls))
}

sd_names <- function(term) term_record(term)$sd_names(term)
natural_names <- function(term) term_record(term)$natural_names(term)
effect_names <- function(terms) unlist(lapply(terms, function(term) term_record(term)$effect_names(term)))

# ---- groups and smooths ----------------------------------------------------------------------------------

# Effects of each level have a covariance D of their own: with k coefficients, k standard deviations and, where they are
# correlated, as many partial correlations as there are pairs.
pairs_of <- function(term) {
  k <- length(term$coefs)
  if (isTRUE(term$correlated) && k > 1L) (k * (k - 1L)) %/% 2L else 0L
}

levels_of_term <- function(term) length(term$columns) / length(term$coefs)

# lower triangle of D: all of it, or the diagonal
covariance_part <- function(term, M) if (pairs_of(term)) M[lower.tri(M, diag = TRUE)] else diag(M)

by_level_precision <- list(
  grid = function(term, frame, n, n_2d) NULL,
  entries = function(term) {
    k <- length(term$coefs)
    full <- if (pairs_of(term)) which(lower.tri(diag(k), diag = TRUE), arr.ind = TRUE) else cbind(seq_len(k), seq_len(k))
    columns <- matrix(seq_along(term$columns), k)
    list(row = as.integer(columns[full[, 1L], ]), column = as.integer(columns[full[, 2L], ]),
         source = rep(seq_len(nrow(full)), levels_of_term(term)))
  },
  free = function(term, frame) NULL,
  constraints = function(term) NULL,
  rank = function(term) length(term$columns),
  blocked = function(term) TRUE,
  precision = function(term, theta) {
    J <- levels_of_term(term)
    if (pairs_of(term) == 1L) return(pair_precision(J, theta))
    at <- term_covariance(term, theta)
    list(value = covariance_part(term, at$inverse), inverse = covariance_part(term, at$D),
         log_det = -2 * J * (sum(log(at$sd)) + sum(log(diag(at$L)))), slope = function(S) covariance_slope(term, at, S))
  },
  log_prior = function(term, theta) {
    k <- length(term$coefs)
    sd <- log_prior_positive(term$prior_sd, theta[seq_len(k)])
    cor <- if (pairs_of(term)) log_prior_correlation(theta[-seq_len(k)], k, term$prior_cor %||% 1)
    list(value = sum(sd$value) + sum(cor$value), slope = c(sd$slope, cor$slope))
  },
  # half a unit of the predictor, or of the residuals
  start = function(term, Z, unit) {
    square <- rowSums(matrix(Matrix::colSums(Z^2), length(term$coefs))) / max(1, nrow(Z))
    c(log(0.5 * unit / sqrt(ifelse(square > 0, square, 1))), numeric(pairs_of(term)))
  },
  curvature = function(term) levels_of_term(term) * rep(c(2, 1), c(length(term$coefs), pairs_of(term))),
  natural = function(term, theta) {
    k <- length(term$coefs)
    columns <- c(lapply(seq_len(k), function(j) exp(theta[, j])),
                 if (pairs_of(term)) correlation_columns(term, theta[, -seq_len(k), drop = FALSE]))
    stats::setNames(columns, natural_names(term))
  })

# Are the levels of a term independent, with a covariance by standard deviations and an lkj() matrix of correlations?
is_independent_term <- function(term) identical(term_record(term)$precision, by_level_precision$precision)

# rows and columns of the correlations of a term, in order
correlated_pairs <- function(term) {
  if (!pairs_of(term)) return(matrix(0L, 0L, 2L))
  unname(which(lower.tri(diag(length(term$coefs))), arr.ind = TRUE))
}

correlation_columns <- function(term, y) {
  if (pairs_of(term) == 1L) return(list(tanh(y[, 1L])))
  k <- length(term$coefs)
  pairs <- correlated_pairs(term)
  w <- tanh(y)
  rows <- lapply(seq_len(k), function(i) {   # of the factors, one column for each entry
    before <- w[, which(pairs[, 1L] == i), drop = FALSE]
    left <- rep(1, nrow(y))
    for (j in seq_len(i - 1L)) {
      at <- before[, j]
      before[, j] <- at * left
      left <- left * sqrt(1 - at^2)
    }
    cbind(before, left)
  })
  lapply(seq_len(nrow(pairs)), function(r) {
    both <- seq_len(pairs[r, 2L])
    rowSums(rows[[pairs[r, 1L]]][, both, drop = FALSE] * rows[[pairs[r, 2L]]][, both, drop = FALSE])
  })
}

# `one_cor`: the name of a correlation that all pairs share
cor_name <- function(term, i, j) term$one_cor %||% sprintf("cor(%s:%s,%s)", term$label, term$coefs[i], term$coefs[j])

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
term_covariance <- function(term, theta) {
  k <- length(term$coefs)
  sd <- exp(theta[seq_len(k)])
  if (k == 1L) return(list(sd = sd, D = as.matrix(sd^2), inverse = as.matrix(1 / sd^2), L = as.matrix(1)))
  if (!pairs_of(term)) return(list(sd = sd, D = diag(sd^2, k), inverse = diag(1 / sd^2, k), L = diag(k)))
  factor <- correlation_factor(theta[-seq_len(k)], k)
  root <- forwardsolve(factor$L, diag(1 / sd, k))   # (diag(sd) L)^-1
  list(sd = sd, D = tcrossprod(sd * factor$L), inverse = crossprod(root), L = factor$L, factor = factor)
}

# The precision of J levels with two correlated coefficients, which is the most common and is needed at every quadrature point, in
# formulas: theta has the logarithms of the standard deviations and y of the correlation tanh(y).
pair_precision <- function(J, theta) {
  sd <- exp(theta[1:2])
  r <- tanh(theta[[3L]])
  rest <- 1 / cosh(theta[[3L]])^2   # 1 - r^2
  square <- sd^2
  both <- sd[1L] * sd[2L]
  slope <- function(S) {
    at <- S[c(1L, 3L)] / square
    cross <- S[2L] / both
    c((at - r * cross) / rest - J, J * r + cross - r * (at[1L] + at[2L] - 2 * r * cross) / rest)
  }
  list(value = c(1 / square[1L], -r / both, 1 / square[2L]) / rest, inverse = c(square[1L], r * both, square[2L]),
       log_det = -J * (2 * (theta[[1L]] + theta[[2L]]) + log(rest)), slope = slope)
}

# derivative of log|Q| / 2 - tr(Q S) / 2
covariance_slope <- function(term, at, S) {
  k <- length(at$sd)
  if (!pairs_of(term)) return(S / at$sd^2 - levels_of_term(term))
  G <- covariance_gradient(term, at, S)
  c(2 * rowSums(G * at$D), correlation_chain(at$factor, 2 * (at$sd * G * rep(at$sd, each = k)) %*% at$L, k))
}

# the same in the entries of D, for a full D
covariance_gradient <- function(term, at, S) {
  full <- diag(length(at$sd))
  full[lower.tri(full, diag = TRUE)] <- S
  full[upper.tri(full)] <- t(full)[upper.tri(full)]
  (at$inverse %*% full %*% at$inverse - levels_of_term(term) * at$inverse) / 2
}

# Partial correlations of an LKJ matrix are independent, and symmetric beta on (-1, 1).
log_prior_correlation <- function(y, k, eta) {
  column <- rep(seq_len(k - 1L), rev(seq_len(k - 1L)))   # of the lower triangle
  shape <- eta + (k - 1 - column) / 2
  log_cosh <- abs(y) + log1p(exp(-2 * abs(y))) - log(2)
  list(value = -2 * shape * log_cosh - (2 * shape - 1) * log(2) - lbeta(shape, shape), slope = -2 * shape * tanh(y))
}

# Covariance matrices of a term's coefficients, k x k x rows, from named columns of natural hyperparameters.
covariance_draws <- function(term, hyper) {
  k <- length(term$coefs)
  sd <- hyper[, sd_names(term), drop = FALSE]
  V <- array(0, c(k, k, nrow(hyper)))
  for (i in seq_len(k)) V[i, i, ] <- sd[, i]^2
  pairs <- correlated_pairs(term)
  for (r in seq_len(nrow(pairs))) {
    i <- pairs[r, 1L]
    j <- pairs[r, 2L]
    V[i, j, ] <- V[j, i, ] <- sd[, i] * sd[, j] * hyper[, cor_name(term, i, j)]
  }
  V
}

group_kind <- c(by_level_precision, list(
  calls = character(), groupings = character(),
  variables = function(bar) c(list(bar$slopes), interaction_parts(bar$group)),
  make = function(x, frame, counting, contrasts) list(group_term(x, frame, contrasts, counting)),
  columns = function(term, frame, smooths) {
    group_columns(term, slope_matrix(term$slopes, frame, term$contrasts), level_index(term, frame))
  },
  by_level = TRUE,
  unseen = function(term, frame, allowed) new_levels(term, frame, which(is.na(level_index(term, frame))), allowed),
  dense = function(term, filled) mean(filled) > 0.5,   # of groups that hold much of the data each
  theta_names = function(term) {
    pairs <- correlated_pairs(term)
    c(paste0("log sd(", term$label, ": ", term$coefs, ")"),
      if (nrow(pairs)) paste0("z cor(", term$label, ": ", term$coefs[pairs[, 2L]], ", ", term$coefs[pairs[, 1L]], ")"))
  },
  natural_names = function(term) {
    pairs <- correlated_pairs(term)
    c(sd_names(term), if (nrow(pairs)) cor_name(term, pairs[, 1L], pairs[, 2L]))
  },
  sd_names = function(term) paste0("sd(", term$label, ":", term$coefs, ")"),
  tidy_names = function(term) {
    pairs <- correlated_pairs(term)
    c(paste0("sd__", term$coefs), if (nrow(pairs)) paste0("cor__", term$coefs[pairs[, 2L]], ".", term$coefs[pairs[, 1L]]))
  },
  # as in rstanarm: b[(Intercept) g:1], columns in order
  effect_names = function(term) {
    paste0("b[", rep(term$coefs, length(term$levels)), " ", term$label, ":",
           rep(gsub(" ", "_", term$levels, fixed = TRUE), each = length(term$coefs)), "]")
  },
  heading = function(term) {
    list(term = term$label, coefficient = term$coefs, levels = c(format_count(length(term$levels)), rep("", length(term$coefs) - 1L)))
  }))

# the penalised parts of a smooth: one coefficient per column, all with the same standard deviation
smooth_kind <- c(by_level_precision, list(
  calls = smooth_functions, groupings = character(),
  variables = function(call) NULL,   # mgcv's own reading of the call says, see smooth_variables()
  make = function(x, frame, counting, contrasts) smooth_terms(x),
  columns = function(term, frame, smooths) methods::as(smooths[[term$smooth]]$penalised[[term$part]], "dMatrix"),
  by_level = FALSE, unseen = function(term, frame, allowed) NULL, dense = function(term, filled) TRUE,
  theta_names = function(term) paste0("log sd(", term$label, ")"),
  natural_names = function(term) sd_names(term),
  sd_names = function(term) paste0("smooth_sd[", term$label, "]"),
  tidy_names = function(term) "sd__s",
  effect_names = function(term) paste0(term$label, ".", term$levels),
  heading = function(term) list(term = "", coefficient = term$label, levels = "")))

term_kinds <- list(group = group_kind, smooth = smooth_kind, tensor = tensor_kind(), compound = compound_kind(),
                   related = related_kind(), members = members_kind(), ar1 = ar1_kind(),
                   rw1 = walk_kind(1L), rw2 = walk_kind(2L), icar = icar_kind(), bym2 = bym2_kind(), hsgp = hsgp_kind(),
                   spde = spde_kind())
