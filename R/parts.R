# Mixtures of bent student laws, fitted to weighted points (the columns of x) by expectation maximisation: what R/adapt.R
# proposes draws from.
#
# A part is x = mu + curve q(t) + root y with y_1 = t = z_1 and y_k = s_k(t) z_k for k > 1, z of a spherical law;
# q(t) = (1, t, t^2 - 1), the curve does not move t itself, and log s_k is a quadratic in t. So a part can be a
# funnel (scales that grow along t), a banana (a curve that turns) or, with neither, an ellipse.

# Parts that the weighted points fall into, and a wide one for what they may have missed. `frame`, the approximation, is
# what their shape is compared with: few points tell little of many covariances.
mixture_to <- function(x, w, frame, most = most_parts) {
  number <- max(1L, min(most, floor(1 / sum(w^2) / (10 * nrow(x)))))
  picked <- rle(systematic(w, 2000 + 20 * nrow(x)))   # a heavy one more than once
  w <- picked$lengths / sum(picked$lengths)
  z <- forwardsolve(frame$root, x[, picked$values, drop = FALSE] - frame$mu)
  wide <- ellipse_under(z, w)
  if (is.null(wide)) return(NULL)
  bend <- bent_direction(z, w, wide, t(frame$root))
  inner <- parts_of(z, w, number, bend)
  if (is.null(inner)) return(NULL)
  wide$root <- wide_by(nrow(x)) * wide$root
  list(weights = c(0.9 * inner$weights, 0.1), parts = lapply(c(inner$parts, list(wide)), seen_from, frame = frame))
}

# a part in the coordinates that the frame's are made of
seen_from <- function(part, frame) {
  part$mu <- frame$mu + drop(frame$root %*% part$mu)
  part$root <- frame$root %*% part$root
  if (!is.null(part$curve)) part$curve <- frame$root %*% part$curve
  part
}

most_parts <- 6L

# As far as leaves a twentieth of the draws where the others are: in few dimensions that is far.
wide_by <- function(dim) min(4, max(1.5, 20^(1 / dim)))

# indices, each about n times its weight
systematic <- function(w, n) pmin(findInterval((seq_len(n) - 0.5) / n, cumsum(w)) + 1L, length(w))

definite_root <- function(V) tryCatch(t(chol(V)), error = function(e) NULL)

# Expectation maximisation from slices across the direction of the bend.
parts_of <- function(z, w, number, bend, steps = 4L) {
  slice <- findInterval(drop(crossprod(bend, z)), slice_bounds(drop(crossprod(bend, z)), w, number)) + 1L
  share <- outer(slice, seq_len(number), "==") + 0
  for (step in seq_len(steps)) {
    weights <- drop(crossprod(share, w))
    alive <- weights * ncol(z) > 2
    last <- step == steps || sum(alive) == 1L
    parts <- lapply(which(alive), function(k) part_under(z, w * share[, k], bend, fine = last))
    if (any(vapply(parts, is.null, NA))) return(NULL)
    weights <- weights[alive] / sum(weights[alive])
    if (last) break
    share <- shares_of(log_densities(weights, parts, z))
  }
  list(weights = weights, parts = parts)
}

slice_bounds <- function(t, w, number) {
  if (number == 1L) return(Inf)
  weighted_quantile(t, w, seq_len(number - 1L) / number)
}

shares_of <- function(log_share) {
  share <- exp(log_share - row_max(log_share))
  share / rowSums(share)
}

row_max <- function(m) m[cbind(seq_len(nrow(m)), max.col(m, "first"))]

# ---- one part -----------------------------------------------------------------------------------

# Mean and a root of the covariance, of which is kept what the points can tell.
ellipse_under <- function(z, w) {
  moments <- moments_under(z, w, NULL)
  root <- definite_root(told_covariance(moments$covariance, 1 / sum(w^2)))
  if (!is.null(root)) list(mu = moments$mean, root = root)
}

# Eigenvalues that differ by no more than those of n draws of a round law do (Marchenko and Pastur) are taken for equal.
told_covariance <- function(V, n) {
  d <- nrow(V)
  e <- eigen(V, symmetric = TRUE)
  values <- pmax(e$values, 1e-8 * mean(e$values))
  alike <- n < 2 * d | abs(sqrt(values / stats::median(values)) - 1) <= sqrt(d / n)
  values[alike] <- mean(values[alike])
  tcrossprod(e$vectors * rep(sqrt(values), each = d))
}

# Bent along the unit vector `bend` as far as the points tell; `fine`: with scales for each direction. Covariances are those
# of what the bend leaves. Points that are others' count for nothing.
part_under <- function(z, share, bend, fine = TRUE) {
  own <- share > 1e-3 * max(share)
  z <- z[, own, drop = FALSE]
  w <- share[own] / sum(share[own])
  if (nrow(z) == 1L || 1 / sum(w^2) < 100) return(ellipse_under(z, w))
  turn <- turned_to(bend)
  y <- turn %*% z
  along <- moments_under(y[1L, , drop = FALSE], w, NULL)
  sd <- sqrt(drop(along$covariance))
  t <- (y[1L, ] - along$mean) / sd
  bent <- bend_under(t, y[-1L, , drop = FALSE], w, fine)
  if (is.null(bent)) return(NULL)
  d <- nrow(z)
  root <- matrix(0, d, d)
  root[1L, 1L] <- sd
  root[-1L, -1L] <- bent$root
  list(mu = along$mean * turn[1L, ], root = turn %*% root, curve = turn %*% rbind(0, t(bent$mean)), scale = bent$scale,
       range = bent$range)
}

# a reflection that takes the unit vector u to the first axis
turned_to <- function(u) {
  v <- u - c(1, numeric(length(u) - 1L))
  size <- sum(v^2)
  if (size < 1e-20) diag(length(u)) else diag(length(u)) - 2 * tcrossprod(v) / size
}

# Quadratics in t: for the means of the rows of y; for the logarithm of the scale of what is left; and once more for
# its directions in which that changes more or less than in the others.
bend_under <- function(t, y, w, fine) {
  n <- 1 / sum(w^2)
  range <- weighted_quantile(t, w, c(0.005, 0.995))
  range <- range + c(-0.25, 0.25) * diff(range)   # some way on, as arms go on
  terms <- bend_terms(t, range)
  mean <- told_coefficients(terms, y, w, n)
  r <- y - crossprod(mean, terms)
  common <- log_spread(terms, colMeans(r^2), w, n * nrow(r))
  r <- r * rep(exp(-drop(common %*% terms)), each = nrow(r))
  root <- definite_root(told_covariance(r %*% (w * t(r)), n))
  if (is.null(root)) return(NULL)
  scale <- matrix(common, 3L, nrow(y))
  if (!fine) return(list(root = root, mean = mean, scale = scale, range = range))
  r <- forwardsolve(root, r)
  slope <- eigen(r %*% (w * t * t(r)), symmetric = TRUE)
  size <- crossprod(slope$vectors, r)^2
  for (k in which(abs(slope$values) > 2 * sqrt(nrow(y) / n))) scale[, k] <- scale[, k] + log_spread(terms, size[k, ], w, n)
  list(root = root %*% slope$vectors, mean = mean, scale = scale, range = range)
}

# beyond the range they are constant
bend_terms <- function(t, range) {
  t <- pmin(pmax(t, range[1L]), range[2L])
  rbind(1, t, t^2 - 1)
}

# Least squares; what is not three standard errors from 0 is 0.
told_coefficients <- function(terms, y, w, n) {
  inverse <- solve(terms %*% (w * t(terms)))
  coefficients <- inverse %*% (terms %*% (w * t(y)))
  left <- drop((y - crossprod(coefficients, terms))^2 %*% w)
  coefficients[abs(coefficients) < 3 * sqrt(outer(diag(inverse), left) / n)] <- 0
  coefficients
}

# Newton steps for the likelihood of normal variables with squares `size` and log sd c'terms; a slope or a curvature of
# less than three standard errors is none.
log_spread <- function(terms, size, w, n) {
  fitted <- function(use) {
    c <- c(log(sum(w * size)) / 2, 0, 0)
    for (step in 1:8) {
      ratio <- size * exp(-2 * drop(c %*% terms))
      H <- 2 * terms[use, , drop = FALSE] %*% (w * ratio * t(terms[use, , drop = FALSE]))
      move <- tryCatch(drop(solve(H, terms[use, , drop = FALSE] %*% (w * (ratio - 1)))), error = function(e) 0)
      c[use] <- c[use] + pmin(pmax(move, -0.5), 0.5)
      if (max(abs(move)) < 1e-3) break
    }
    list(c = c, told = abs(c[use]) > 3 * tryCatch(sqrt(diag(solve(H)) / n), error = function(e) Inf))
  }
  full <- fitted(1:3)
  use <- c(1L, (2:3)[full$told[2:3]])
  if (length(use) == 3L) full$c else fitted(use)$c
}

# The direction to bend along: of the axes of the parameters, as a group's log sd is one, and the one in which the spread
# changes most, that along which quadratics explain most of means and scales. `axes` has the parameters' in columns.
bent_direction <- function(z, w, wide, axes) {
  if (nrow(z) == 1L) return(1)
  z <- forwardsolve(wide$root, z - wide$mu)
  size <- colSums(z^2)
  candidates <- cbind(drop(z %*% (w * (size - sum(w * size)))), crossprod(wide$root, axes))
  candidates <- candidates / rep(sqrt(colSums(candidates^2)), each = nrow(z))
  gain <- apply(candidates, 2L, function(u) explained(drop(crossprod(u, z)), z, size, w, 1 / sum(w^2)))
  along <- backsolve(t(wide$root), candidates[, which.max(gain)])   # t is linear in z, not a point of it
  along / sqrt(sum(along^2))
}

# Nats, about: of the means by t^2, and of the overall scale by t and t^2.
explained <- function(t, z, size, w, n) {
  terms <- rbind(t^2 - sum(w * t^2))
  share <- drop(z %*% (w * drop(terms)))^2 / sum(w * terms^2)
  share <- pmin(share, 0.99) * (share > 9 / n)
  rest <- (size - t^2) / max(1, nrow(z) - 1)
  scale <- stats::lm.wfit(cbind(1, t, t^2), log(pmax(rest, 1e-10)), w)
  spread <- sum(w * (scale$fitted.values - sum(w * scale$fitted.values))^2)
  sum(-log1p(-share)) / 2 + (nrow(z) - 1) * spread / 4
}

# ---- density and draws ------------------------------------------------------------------------------

# One column for each part, up to a constant.
log_densities <- function(weights, parts, x, log_phi = function(r) -r^2 / 2) {
  each <- vapply(seq_along(parts), function(k) log(weights[k]) + log_density_of(parts[[k]], x, log_phi), numeric(ncol(x)))
  matrix(each, ncol(x))
}

log_density_of <- function(part, x, log_phi) {
  inverse <- solve(part$root, diag(nrow(x)))
  away <- x - part$mu
  volume <- log_abs_det(part$root)
  if (is.null(part$curve)) return(log_phi(sqrt(colSums((inverse %*% away)^2))) - volume)
  t <- drop(inverse[1L, ] %*% away)
  terms <- bend_terms(t, part$range)
  y <- inverse %*% away - (inverse %*% part$curve) %*% terms
  if (all(part$scale == part$scale[, 1L])) {   # one scale for all directions
    log_s <- drop(part$scale[, 1L] %*% terms)
    size <- t^2 + (colSums(y^2) - y[1L, ]^2) * exp(-2 * log_s)
    return(log_phi(sqrt(size)) - volume - (nrow(x) - 1) * log_s)
  }
  log_s <- crossprod(part$scale, terms)
  size <- t^2 + colSums((y[-1L, , drop = FALSE] * exp(-log_s))^2)
  log_phi(sqrt(size)) - volume - colSums(log_s)
}

# z of a spherical law, in columns, as points of a part
points_of <- function(part, z) {
  if (is.null(part$curve)) return(part$mu + part$root %*% z)
  terms <- bend_terms(z[1L, ], part$range)
  z[-1L, ] <- exp(crossprod(part$scale, terms)) * z[-1L, , drop = FALSE]
  part$mu + part$curve %*% terms + part$root %*% z
}

# n draws of a mixture whose parts have the spherical `law`, and their log density: which part each belongs to is decided by another
# keyed number.
mixture_points <- function(mixture, law, n, key, iteration) {
  x <- draw_base(law, key, n, iteration = iteration)
  part <- keyed_parts(mixture$weights, n, key, iteration)
  for (j in unique(part)) x[, part == j] <- points_of(mixture$parts[[j]], x[, part == j, drop = FALSE])
  list(x = x, log_q = mixture_log_density(mixture, law, x))
}

mixture_log_density <- function(mixture, law, x) {
  each <- log_densities(mixture$weights, mixture$parts, x, law$log_phi)
  top <- row_max(each)
  law$log_constant + top + log(rowSums(exp(each - top)))
}

keyed_parts <- function(weights, n, key, iteration) {
  u <- stats::pnorm(drop(draw_base(law_of(base_gaussian(), 1), key, n, iteration = iteration + 2^43)))
  pmin(findInterval(u, cumsum(weights), rightmost.closed = TRUE) + 1L, length(weights))
}
