# Corrected coefficients of a posterior. In the whitened coordinates y of a component, x = m_k + S_k y with S_k the lower triangular
# root of the coefficients' covariance, the gaussian has mean 0 and covariance I; `margins` says what the posterior has there:
#
#   delta, covariance   mean and covariance of y
#   shape               functions x scores: standardised quantiles of each y at `margin_scores`
#   own                 the same for each coefficient
#   roots               S_k, in user coordinates
#   moved               how far means (in sds) and sds (as factors) of coefficients are from the gaussian's
#
# Found at the component of most weight (solve-profile.R) and taken for all of them. Other parameters follow the coefficients by
# their regression on them.

has_margins <- function(posterior) !is.null(posterior$margins)

# S_k, user coordinates
coefficient_roots <- function(posterior, which = posterior$coefficients) {
  W <- unit_rows(posterior, which)
  lapply(seq_along(posterior$weight), function(k) t(chol(tcrossprod(root_rows(root_at(posterior$roots, k), W)))))
}

# A posterior with margins of its coefficients where the gaussian is not as good. `cumulants` says why; NULL where nothing was looked at.
with_margins <- function(posterior, target_at) {
  which <- posterior$coefficients
  if (!length(which) || length(which) > most_corrected || !posterior_law(posterior)$independent) return(posterior)
  best <- which.max(posterior$weight)
  target <- target_at(best)
  unit <- t(unit_rows(posterior, which))
  S <- t(chol(tcrossprod(root_rows(root_at(posterior$roots, best), t(unit)))))
  white <- unit %*% t(solve(S))   # columns: functions that are uncorrelated, of variance 1
  cumulants <- profile_cumulants(target, cbind(white, unit))
  posterior$cumulants <- lapply(cumulants, function(x) max(abs(x)))
  if (needs_profile(cumulants)) posterior["margins"] <- list(find_margins(posterior, target, white, unit, S))
  posterior
}

# NULL where they cannot be found
find_margins <- function(posterior, target, white, unit, S) {
  along <- profiles(target, white)
  own <- profiles(target, unit, means = FALSE)
  if (is.null(along) || is.null(own)) return(NULL)
  moments <- profile_moments(along, white)
  shapes <- profile_shapes(own)
  y <- agree_with_own(moments, shapes, S)
  if (is.null(y)) return(NULL)
  list(plan = target$plan, setting = target$setting, delta = y$delta, covariance = y$covariance, shape = profile_shapes(along)$shape,
       own = shapes$shape, roots = coefficient_roots(posterior), moved = list(mean = max(abs(shapes$mean)), sd = range(shapes$sd)))
}

# Above this the profiles of all coefficients would take longer than a sampler.
most_corrected <- 100L

# Mean and covariance of y, moved as little as possible such that the mean and the variance of each coefficient are those of its own
# profile, which is the more accurate one for it. A ridge keeps coefficients that are nearly collinear from moving others.
agree_with_own <- function(moments, own, S, ridge = 0.02) {
  U <- S / sqrt(rowSums(S^2))   # rows: directions of the coefficients in y, of length 1
  G <- tcrossprod(U)
  I <- diag(ridge, nrow(G))
  delta <- moments$delta + drop(crossprod(U, solve(G + I, own$mean - drop(U %*% moments$delta))))
  lack <- own$sd^2 - rowSums((U %*% moments$covariance) * U)
  C <- moments$covariance + crossprod(U, solve(G^2 + I, lack) * U)
  if (min(eigen(C, symmetric = TRUE, only.values = TRUE)$values) < 0.05) return(NULL)
  list(delta = delta, covariance = C)
}

# ---- what verbs of the posterior ask -----------------------------------------------------------------

# Loadings H of the rows w of W (user coordinates) on y at component k: by the gaussian's regression on the coefficients, E w'x moves by
# H delta, and its variance by H (C - I) H'.
margin_loadings <- function(posterior, k, A) {
  root <- root_at(posterior$roots, k)
  own <- root_rows(root, unit_rows(posterior, posterior$coefficients))
  A %*% t(own) %*% t(solve(posterior$margins$roots[[k]]))
}

# of all parameters at component k, d x p
all_loadings <- function(posterior, k) {
  root <- root_at(posterior$roots, k)
  own <- root_rows(root, unit_rows(posterior, posterior$coefficients))
  uncentre_points(posterior, root_times(root, t(own))) %*% t(solve(posterior$margins$roots[[k]]))
}

# what the correction adds to means (d x K) and variances of all parameters
margin_moments <- function(posterior) {
  margins <- posterior$margins
  change <- margins$covariance - diag(length(margins$delta))
  each <- lapply(seq_along(posterior$weight), function(k) {
    H <- all_loadings(posterior, k)
    list(mean = drop(H %*% margins$delta), variance = rowSums((H %*% change) * H))
  })
  columns <- function(field) vapply(each, `[[`, numeric(posterior_dim(posterior)), field)
  list(mean = matrix(columns("mean"), posterior_dim(posterior)), variance = matrix(columns("variance"), posterior_dim(posterior)))
}

# to the covariance of linear functions at component k, whose root_rows() are A
margin_covariance <- function(posterior, k, A) {
  if (!has_margins(posterior)) return(0)
  H <- margin_loadings(posterior, k, A)
  H %*% (posterior$margins$covariance - diag(ncol(H))) %*% t(H)
}

# to their means and variances
margin_linear <- function(posterior, k, A) {
  if (!has_margins(posterior)) return(list(mean = 0, variance = 0))
  H <- margin_loadings(posterior, k, A)
  list(mean = drop(H %*% posterior$margins$delta),
       variance = rowSums((H %*% (posterior$margins$covariance - diag(ncol(H)))) * H))
}

# Density, distribution and quantile function of parameter j, whose components have the means and sds `at`
margin_marginal <- function(posterior, j, at) {
  shape <- margin_shapes(posterior, j)
  weight <- posterior$weight
  mixed <- function(x, f) {
    drop(matrix(f((rep(x, length(weight)) - rep(at$mean, each = length(x))) / rep(at$sd, each = length(x)),
                  rep(at$sd, each = length(x))), length(x)) %*% weight)
  }
  score <- function(v) drop(score_at_value(shape[rep(1L, length(v)), , drop = FALSE], matrix(v)))
  list(
    density = function(x) mixed(x, function(v, sd) {
      h <- 0.01
      (stats::pnorm(score(v + h)) - stats::pnorm(score(v - h))) / (2 * h * sd)
    }),
    probability = function(x) mixed(x, function(v, sd) stats::pnorm(score(v))),
    quantile = function(p) {
      out <- ifelse(p > 0, Inf, -Inf)
      inside <- p > 0 & p < 1
      law <- posterior_law(posterior)
      if (any(inside)) out[inside] <- drop(mixture_quantiles(t(at$mean), t(at$sd), weight, law, p[inside], shape))
      out
    })
}

normal_shapes <- function(n) matrix(rep(margin_scores, each = n), n)

# Standardised quantiles of the parameters `which` at `margin_scores`, one row each: those of coefficients, normal for others. NULL
# without margins.
margin_shapes <- function(posterior, which) {
  if (!has_margins(posterior)) return(NULL)
  at <- match(which, posterior$coefficients)
  shape <- normal_shapes(length(which))
  shape[!is.na(at), ] <- posterior$margins$own[at[!is.na(at)], ]
  shape
}

# The same for linear functions, the rows of W in user coordinates: profiles of those whose cumulants ask for one.
row_shapes <- function(posterior, W, most = 300L) {
  if (!has_margins(posterior) || !nrow(W)) return(NULL)
  W <- as.matrix(W)
  if (ncol(W) < posterior_dim(posterior)) W <- cbind(W, matrix(0, nrow(W), posterior_dim(posterior) - ncol(W)))
  key <- apply(W, 1L, paste, collapse = " ")
  first <- which(!duplicated(key))
  target <- margin_target(posterior)
  a <- t(centre_rows(posterior, W[first, , drop = FALSE]))
  cumulants <- profile_cumulants(target, a)
  shape <- normal_shapes(length(first))
  bent <- which(abs(cumulants$third) > 0.04 | abs(cumulants$fourth) > 0.15)
  if (length(bent) > most) {
    shape[bent, ] <- cumulant_shapes(cumulants$third[bent], cumulants$fourth[bent])
  } else if (length(bent)) {
    found <- profiles(target, a[, bent, drop = FALSE], means = FALSE)
    if (!is.null(found)) shape[bent, ] <- profile_shapes(found)$shape
  }
  shape[match(key, key[first]), , drop = FALSE]
}

# those of rows that may have missing values, normal there
complete_shapes <- function(posterior, W) {
  if (!has_margins(posterior)) return(NULL)
  there <- is.finite(Matrix::rowSums(W))
  shape <- normal_shapes(nrow(W))
  if (any(there)) shape[there, ] <- row_shapes(posterior, W[there, , drop = FALSE])
  shape
}

# The expansion of Cornish and Fisher, for more rows than there is time for. Cumulants are kept where it is monotone.
cumulant_shapes <- function(third, fourth) {
  z <- rep(margin_scores, each = length(third))
  third <- pmin(pmax(third, -0.6), 0.6)
  fourth <- pmin(pmax(fourth, 0), 1)
  out <- matrix(z + third * (z^2 - 1) / 6 + fourth * (z^3 - 3 * z) / 24 - third^2 * (2 * z^3 - 5 * z) / 36, length(third))
  w <- stats::dnorm(margin_scores) / sum(stats::dnorm(margin_scores))
  out <- out - drop(out %*% w)
  out / sqrt(drop(out^2 %*% w))
}

margin_target <- function(posterior) {
  margins <- posterior$margins
  profile_target(margins$plan, plan_rule(margins$plan, posterior_law(posterior)), margins$setting)
}

plan_rule <- function(plan, law) {
  rule <- cached_quadrature(law, plan$likelihood)
  rule$prior_levels <- list()
  rule
}

# ---- standardised quantiles as functions ------------------------------------------------------------------

# Rows of `table` at x, a matrix with as many rows: linear between the columns, which stand for low, low + step, ..., and beyond.
look_up <- function(table, x, low, step) {
  place <- (x - low) / step
  left <- pmin(pmax(floor(place), 0), ncol(table) - 2)
  row <- rep_len(seq_len(nrow(table)), length(x))
  at <- table[cbind(row, c(left) + 1)]
  array(at + (c(place) - c(left)) * (table[cbind(row, c(left) + 2)] - at), dim(x))
}

# values at standard normal scores, and back
value_at_score <- function(shape, z) look_up(shape, z, margin_scores[1L], margin_scores[2L] - margin_scores[1L])

score_at_value <- function(shape, x) {
  grid <- seq(-8, 8, by = 0.125)
  table <- t(apply(shape, 1L, function(q) {
    inside <- stats::approx(q, margin_scores, grid, ties = "ordered")$y
    n <- length(q)
    low <- grid < q[1L]
    high <- grid > q[n]
    inside[low] <- margin_scores[1L] + (grid[low] - q[1L]) * 0.25 / max(q[2L] - q[1L], 1e-8)
    inside[high] <- margin_scores[n] + (grid[high] - q[n]) * 0.25 / max(q[n] - q[n - 1L], 1e-8)
    inside
  }))
  look_up(table, x, grid[1L], 0.125)
}

# ---- draws -------------------------------------------------------------------------------------------------

# Draws x, one per row in user coordinates, of the gaussian components as those of the corrected posterior: each whitened
# coordinate gets its own margin, their correlations stay, other parameters follow the coefficients. The attribute "log_q" is
# the log density of the draws of a posterior of one component, up to a constant.
correct_draws <- function(posterior, x, component) {
  margins <- posterior$margins
  which <- posterior$coefficients
  sd <- sqrt(diag(margins$covariance))
  L <- t(chol(stats::cov2cor(margins$covariance)))
  mean <- uncentre_points(posterior, posterior$location)
  log_q <- NULL
  for (k in unique(component)) {
    at <- component == k
    S <- margins$roots[[k]]
    y <- forwardsolve(S, t(x[at, which, drop = FALSE]) - mean[which, k])
    z <- L %*% y
    moved <- margins$delta + sd * value_at_score(margins$shape, z)
    if (length(which) == ncol(x)) x[at, ] <- t(mean[, k] + S %*% moved)
    else x[at, ] <- x[at, ] + t(all_loadings(posterior, k) %*% (moved - y))
    if (length(posterior$weight) == 1L) log_q <- -colSums(y^2) / 2 - colSums(log(slope_at_score(margins$shape, z)))
  }
  structure(x, log_q = log_q)
}

slope_at_score <- function(shape, z) {
  step <- margin_scores[2L] - margin_scores[1L]
  left <- pmin(pmax(floor((z - margin_scores[1L]) / step), 0), ncol(shape) - 2)
  row <- rep_len(seq_len(nrow(shape)), length(z))
  array((shape[cbind(row, c(left) + 2)] - shape[cbind(row, c(left) + 1)]) / step, dim(z))
}

# Can the target itself be asked at draws? Then they are exact but for their start.
has_target <- function(posterior) !is.null(posterior$margins$model)

# n draws of the posterior: those of correct_draws() are proposals of an independence sampler (Metropolis, Hastings), which
# accepts nearly all of them. Draw i depends on proposals up to i only, so that a shorter call gives the first rows of a longer one.
metropolis_draws <- function(posterior, proposals, key, warmup) {
  log_w <- -target_values(posterior$margins$model, centre_points(posterior, t(proposals))) - attr(proposals, "log_q")
  u <- log(with_key(key, stats::runif(length(log_w))))
  kept <- integer(length(log_w))
  at <- which.max(log_w[seq_len(warmup)] > stats::median(log_w[seq_len(warmup)]))
  for (i in seq_along(log_w)) {
    if (isTRUE(u[i] < log_w[i] - log_w[at])) at <- i
    kept[i] <- at
  }
  list(x = proposals[kept[-seq_len(warmup)], , drop = FALSE], log_w = log_w)
}
