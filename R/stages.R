# Stages: natural gradient steps, each in coordinates whitened by the approximation so far.
#
# An approximation is x = mu + A z. In its own coordinates its precision is I, the mean
# gradient is g = E A'grad f, and the mean Hessian I + G with G = E sym((A'grad f - z) z')
# by Stein's identity: at the optimum of the gaussian family g = 0 and G = 0. A natural
# gradient step of size rho goes to the precision I + rho G and the mean
# -rho (I + rho G)^-1 g. The residuals A'grad f - z vanish where the target is gaussian, so
# a small batch tells the whole curvature there; their regression on z does at once what the
# mean of r z' does in the limit.

# One batch at an approximation: antithetic draws, objective with its standard error, and
# the two halves of the batch's g and G.
look_at <- function(target, at, key, size, iteration) {
  d <- length(at$mu)
  half <- ceiling(size / 2)
  z <- draw_base(law_of(base_gaussian(), d), key, half, iteration = iteration)
  z <- cbind(z, -z)
  out <- target$evaluate(at$mu + at$A %*% z)
  ok <- out$ok & out$ok[c(half + seq_len(half), seq_len(half))]   # pairs stay together
  look <- list(size = 2 * half, outside = sum(!out$ok))
  n <- sum(ok)
  if (n < min(2 * half, 8) / 2) return(c(look, list(F = Inf, se = Inf)))
  all_e <- out$value - colSums(z^2) / 2
  z <- z[, ok, drop = FALSE]
  e <- all_e[ok]
  pairs <- (e[seq_len(n / 2)] + e[n / 2 + seq_len(n / 2)]) / 2
  r <- crossprod(at$A, out$gradient[, ok, drop = FALSE]) - z
  c(look, list(F = mean(e) + d / 2 - log_abs_det(at$A), se = stats::sd(pairs) / sqrt(n / 2),
               z = z, r = r, spread = stats::sd(e), iteration = iteration, e = ifelse(ok, all_e, NA) - log_abs_det(at$A)))
}

log_abs_det <- function(A) as.double(determinant(A)$modulus)

# g and G of some draws.
moments_of <- function(z, r) {
  n <- ncol(z)
  d <- nrow(z)
  g <- rowMeans(r)
  # a ridge leaves directions alone that the draws have not seen
  S <- tcrossprod(z) / n
  G <- tcrossprod(r - g, z) / n
  ridge <- 0.1 * d / n
  G <- t(solve(S + diag(ridge, d), t(G)))
  list(g = g, G = (G + t(G)) / 2)
}

# The step, with factors on variances in [1/grow, grow] and moves of at most `reach` sds.
natural_move <- function(at, g, G, rho, trust = c(1, 1), grow = c(2, 10), reach = 1) {
  e <- eigen(trust[2L] * G, symmetric = TRUE)
  precision <- pmin(pmax(1 + rho * e$values, 1 / grow[1L]), grow[2L])
  move <- drop(crossprod(e$vectors, g)) / pmax(1 + rho * e$values, precision)
  move <- -rho * trust[1L] * move
  size <- sqrt(sum(move^2))
  longest <- reach * sqrt(length(move))
  if (size > longest) move <- move * longest / size
  move <- pmin(pmax(move, -2 * reach), 2 * reach)
  list(mu = at$mu + drop(at$A %*% (e$vectors %*% move)),
       A = at$A %*% tcrossprod(e$vectors * rep(1 / sqrt(precision), each = length(g)), e$vectors))
}

# The affine map that took `from` to `to`, done again: along a funnel or a valley many small
# steps of the same kind are one large one.
leap_of <- function(from, to) {
  M <- t(solve(t(from$A), t(to$A)))
  list(M = M, from = from$mu, to = to$mu)
}

do_leap <- function(leap, at) {
  list(mu = leap$to + drop(leap$M %*% (at$mu - leap$from)), A = leap$M %*% at$A)
}

# the map twice: x -> to + M (to - from) + M^2 (x - from)
twice <- function(leap) {
  list(M = leap$M %*% leap$M, from = leap$from, to = leap$to + drop(leap$M %*% (leap$to - leap$from)))
}

# From `at` towards the best gaussian, until the estimated gap is below `tol` or `budget`
# points are spent. A step is kept when the objective on a fresh batch is not clearly worse;
# else it is tried again half as long, with a batch twice as large.
improve <- function(target, at, key, budget, tol = 0.05, size = NULL, iteration = 0, verbose = FALSE) {
  d <- length(at$mu)
  size <- size %||% 2 * ceiling(max(16, d + 10) / 2)
  spent <- 0
  rho <- 0.5
  look <- function(at, like = NULL) {
    if (is.null(like)) iteration <<- iteration + 1
    out <- look_at(target, at, key, like$look$size %||% size, like$look$iteration %||% iteration)
    spent <<- spent + out$size
    list(at = at, look = out)
  }
  not_worse <- function(new, old) {
    doubt <- max(0, new$look$se - old$look$se)   # a batch of unheard-of noise is no progress
    isTRUE(new$look$F + 2 * doubt < old$look$F + 2 * old$look$se + 0.01)
  }
  better <- function(new, old) {
    isTRUE(new$look$F + 2 * sqrt(new$look$se^2 + old$look$se^2) < old$look$F)
  }
  # on the same draws
  clearly_better <- function(new, old) {
    if (!is.finite(new$look$F)) return(FALSE)
    delta <- new$look$e - old$look$e
    half <- length(delta) / 2
    delta <- delta[seq_len(half)] + delta[half + seq_len(half)]
    if (mean(is.na(delta)) > 0.1) return(FALSE)
    delta <- delta[!is.na(delta)] / 2
    isTRUE(mean(delta) + 2 * stats::sd(delta) / sqrt(length(delta)) < 0)
  }
  now <- look(at)
  while (!is.finite(now$look$F) && spent < budget / 2) {
    at$A <- at$A / 2
    now <- look(at)
  }
  history <- now$look$F
  anchor <- now
  since <- 0
  fails <- 0
  while (spent < budget) {
    m <- moments_of(now$look$z, now$look$r)
    gap <- gap_of(now$look$z, now$look$r)
    if (verbose) cat(sprintf("  F %.3f se %.3f  n %d rho %.3f gap %.3f +- %.3f  out %d spread %.2f trust %.2f %.2f\n",
        now$look$F, now$look$se, size, rho, gap$estimate, gap$se, now$look$outside, now$look$spread, gap$trust[1], gap$trust[2]))
    if (since >= 3) {
      leap <- leap_of(anchor$at, now$at)
      repeat {
        far <- look(do_leap(leap, now$at), like = now)
        if (verbose) cat(sprintf("  leap F %.3f se %.3f\n", far$look$F, far$look$se))
        if (!clearly_better(far, now)) break
        now <- far
        leap <- twice(leap)
      }
      anchor <- now
      since <- 0
      m <- moments_of(now$look$z, now$look$r)
      gap <- gap_of(now$look$z, now$look$r)
    }
    if (gap$estimate + 2 * gap$se < tol) break
    new <- look(natural_move(now$at, m$g, m$G, rho, gap$trust))
    if (not_worse(new, now)) {
      # no clear progress: the noise of the batch is what is left
      if (!better(new, now)) size <- min(2 * size, 4096)
      now <- new
      since <- since + 1
      rho <- min(1, 1.5 * rho)
      history <- c(history, new$look$F)
      fails <- 0
    } else {
      rho <- rho / 2
      fails <- fails + 1
      size <- min(2 * size, 4096)
      if (verbose) cat(sprintf("  reject F %.3f se %.3f\n", new$look$F, new$look$se))
      if (fails > 8) break
      now <- look(now$at)
    }
  }
  list(at = now$at, F = now$look$F, se = now$look$se, spent = spent, iteration = iteration, history = history, size = size)
}

# The estimated decrease to the optimum, |g|^2/2 + |G|^2/4, without bias: products of
# independent parts of the batch.
gap_of <- function(z, r, parts = 8L) {
  n <- ncol(z) / 2
  d <- nrow(z)
  parts <- min(parts, n)
  index <- rep(rep_len(seq_len(parts), n), 2)
  v <- vapply(seq_len(parts), function(p) {
    k <- index == p
    g <- rowMeans(r[, k, drop = FALSE])
    G <- tcrossprod(r[, k, drop = FALSE] , z[, k, drop = FALSE]) / sum(k)
    c(g / sqrt(2), (G + t(G)) / 4)
  }, numeric(d * (d + 1)))
  of <- function(rows) {
    products <- crossprod(v[rows, , drop = FALSE])
    pairs <- products[upper.tri(products)]
    # the share of signal in the squared norm of the mean
    list(estimate = mean(pairs), se = stats::sd(pairs) / sqrt(parts), total = mean(products))
  }
  mu <- of(seq_len(d))
  scale <- of(-seq_len(d))
  trust <- function(x) min(1, max(0.05, x$estimate / x$total))
  list(estimate = mu$estimate + scale$estimate, se = sqrt(mu$se^2 + scale$se^2), trust = c(trust(mu), trust(scale)))
}

# A funnel's neck holds an approximation for hundreds of steps: the mouth is far in units of
# its own width. From four times as wide it is near, and what the data determine is narrow
# again after a few steps. Kept when that ends clearly better.
widen <- function(target, now, key, budget, tol, factor = 4, verbose = FALSE) {
  d <- length(now$at$mu)
  wide <- list(mu = now$at$mu, A = factor * now$at$A)
  new <- improve(target, wide, key, budget, tol, iteration = now$iteration)
  if (verbose) cat(sprintf("  widened: F %.3f se %.3f against %.3f se %.3f, spent %d\n", new$F, new$se, now$F, now$se, new$spent))
  kept <- isTRUE(new$F + 2 * sqrt(new$se^2 + now$se^2) + 0.05 < now$F)
  best <- if (kept) new else now
  best$iteration <- new$iteration
  best$spent <- now$spent + new$spent
  best$gained <- if (kept) now$F - new$F else 0
  best
}

search_from <- function(target, at, key, budget = 20000, tol = 0.1, verbose = FALSE) {
  d <- length(at$mu)
  now <- improve(target, at, key, budget / 4, max(tol, 0.02 * d))
  if (verbose) cat(sprintf("  first: F %.3f se %.3f spent %d\n", now$F, now$se, now$spent))
  for (k in 1:5) {
    now <- widen(target, now, key, min(budget - now$spent, budget / 4), max(tol, 0.02 * d), verbose = verbose)
    if (!now$gained || now$spent > budget) break
  }
  now
}
