# ---- the noise at the optimum of a regression, computed ---------------------------------------
#
# f is a sum of losses l_i of one predictor each, rows of the data and rows of a normal prior, so with x = mu + S z one gradient is
#   g = sum_i phi_i(a_i'z) v_i,   a_i = S v_i / s_i, s_i = |S v_i|, phi_i(t) = l_i'(eta_i + s_i t),
# v_i the row in the coordinates of the run. For u uniform on the sphere and unit vectors a, b Funk and Hecke's theorem says
#   E f(a'u) h(b'u) = sum_k f_k h_k C_k(a'b),
# f_k the coefficients of f in the orthonormal Gegenbauer polynomials p_k and C_k = p_k / p_k(1). So, given R = |z|,
#   E|g|^2 = sum_k phi_k' (V V' o C_k(A A')) phi_k.
# g'z has the parts b_i = v_i - beta_i a_i, beta_i = v_i'a_i, that are orthogonal to a_i. They are derivatives: with Phi_i' = phi_i,
# phi_i(a_i'z) b_i'z is that of Phi_i(a_i'z) as a_i turns towards b_i. With P = A B', Q = B B', x = beta o (t phi) and y = Phi
#   E(g'z)^2 = sum_k x_k' C_k x_k + 2 x_k' (C_k' o P) y_k + y_k' (C_k'' o P o P' + C_k' o Q) y_k.
# Both are sums over degrees of squared norms: the remainder after some degrees is positive and is bounded by its own norm, row by row.
# vignette("theory") has the proofs.

# E|g|^2, E|g|^2 |z|^2 and E(g'z)^2 at theta of a run, each at most 0.2 % too large; NULL where there is no formula, or too many rows.
gradient_moments <- function(problem, theta, most_rows = 2500) {
  if (!has_moments(problem, most_rows)) return(NULL)
  rows <- noise_rows(problem, theta)
  radius <- resolving_radii(rows, problem$law)
  if (is.null(radius)) return(NULL)
  for (degrees in c(24L, 64L, 160L)) {
    terms <- harmonic_terms(rows, radius, problem$dim, degrees)
    out <- add_harmonics(rows, terms, radius)
    if (all(out$tail <= 1e-3 * out$sum)) return(out$sum * (1 + 1e-4) + out$tail)   # 1e-4: see resolving_radii()
  }
  NULL
}

has_moments <- function(problem, most_rows) {
  model <- problem$model
  is_regression(model) && !is_chunked(model$rows) && has_exact(model) && !has_student_prior(model) &&
    is.null(problem$work$mu_root) && model$rows$n + model$dim <= most_rows
}

# ---- rows ----------------------------------------------------------------------------------------

# v (rows), eta, and slope(eta) for a matrix with a row for each
noise_rows <- function(problem, theta) {
  model <- problem$model
  prior <- prior_rows(model)
  U <- rbind(vapply(seq_len(model$dim), function(j) predictor_of(model$rows, as.double(seq_len(model$dim) == j)),
                    numeric(model$rows$n)), prior)
  V <- coordinates_of(problem$work)$gradient_to_work(problem$work, t(U))
  SV <- root_crossprod(theta$scale, V)
  s <- sqrt(colSums(SV^2))
  used <- s > 0
  n <- model$rows$n
  alone <- rows_alone(model)
  x <- points_to_user(problem$work, matrix(theta$mu))
  eta <- drop(U %*% x)
  centre <- drop(prior %*% model$blocks$coefficients$centre)
  slope <- function(eta) rbind(target_at(alone, eta[seq_len(n), , drop = FALSE])$gradient, eta[-seq_len(n), , drop = FALSE] - centre)
  rows <- list(v = t(V)[used, , drop = FALSE], a = t(SV)[used, , drop = FALSE] / s[used], s = s[used],
               slope = function(t) slope(eta + s * fill_used_rows(t, used))[used, , drop = FALSE])
  if (weight_in(problem) > 0) join_weight_rows(rows, weight_in(problem), theta) else rows
}

# A control variate -b x of the gradient, as rows e_k with losses -b x_k^2 / 2
join_weight_rows <- function(rows, b, theta) {
  S <- as_full_matrix(theta$scale, length(theta$mu))
  s <- sqrt(rowSums(S^2))
  n <- length(rows$s)
  list(v = rbind(rows$v, diag(length(s))), a = rbind(rows$a, S / s), s = c(rows$s, s), slope = function(t) {
    rbind(rows$slope(t[seq_len(n), , drop = FALSE]), -b * (theta$mu + s * t[-seq_len(n), , drop = FALSE]))
  })
}

fill_used_rows <- function(t, used) {
  out <- matrix(0, length(used), ncol(t))
  out[used, ] <- t
  out
}

# A normal prior as rows q_k with losses (q_k'(x - centre))^2 / 2
prior_rows <- function(model) {
  if (is_linked(model)) return(as.matrix(chol(as.matrix(model$prior$precision))))
  precision <- model$blocks$coefficients$precision
  diag(sqrt(precision), length(precision))[precision > 0, , drop = FALSE]
}

# The same rows with a parameter of its own for each, so that the gradient is the slope of each loss
rows_alone <- function(model) {
  n <- as.integer(model$rows$n)
  X <- c(.Call(elvi_r_by_rows, n, 0:n, seq_len(n) - 1L, rep(1, n)), list(dim = c(n, n), names = NULL))
  rows <- model$rows
  model$rows <- new_rows(X, NULL, rows$y, rows$weight, rows$offset, rows$count, rows$constant)
  block <- model$blocks$coefficients
  flat <- list(centre = numeric(n), precision = numeric(n), df = rep(Inf, n), rate = numeric(n))
  model$blocks$coefficients <- utils::modifyList(block, flat)
  model$dim <- as.double(n)
  class(model) <- setdiff(class(model), "elvi_model_linked")
  model
}

# ---- rules -----------------------------------------------------------------------------------------

# Nodes r and weights w for the radius of a base: the trapezoidal rule in log R, or where the base is bounded Gauss's in R^2. Each level
# has twice the nodes of the one before. NULL where the tails reach too far.
radial_rule <- function(law, level) {
  edge <- support_edge(law)
  fine <- fine_radii(law, edge)
  if (is.null(fine)) return(NULL)
  if (is.finite(edge)) {
    rule <- gauss_rules(list(z = exp(fine$t), w = fine$w), 4L * 2L^level)[[1L]]
    return(if (!is.null(rule)) data.frame(r = rule$z, w = rule$w))
  }
  sd <- sqrt(sum(fine$w * fine$t^2) - sum(fine$w * fine$t)^2)
  t <- seq(fine$t[1L], fine$t[length(fine$t)], by = 1.6 * sd / 2^level)
  log_w <- law$dim * t + law$log_phi(exp(t))
  w <- exp(log_w - max(log_w))
  data.frame(r = exp(t), w = w / sum(w))
}

# log R and its weights, where R^4 has mass
fine_radii <- function(law, edge) {
  d <- law$dim
  t <- log(d) / 2 + seq(-40 / sqrt(d + 1) - 3, if (is.finite(edge)) log(edge) - log(d) / 2 else 12, length.out = 20001L)
  log_w <- d * t + law$log_phi(exp(t))
  log_w[is.nan(log_w)] <- -Inf
  w <- exp(log_w - max(log_w))
  if (is.finite(edge)) w[length(w)] <- w[length(w)] / 2
  heavy <- w * exp(4 * (t - log(d) / 2))
  if (!is.finite(edge) && heavy[length(heavy)] * length(heavy) > 1e-9 * sum(heavy)) return(NULL)
  used <- pmax(heavy, w) > 1e-18 * max(heavy)
  list(t = t[used], w = w[used] / sum(w[used]))
}

# The first rule that agrees with the next finer one to 1e-5 in sum_i |v_i|^2 phi_i^2 (1, R^2), of which the moments are made
resolving_radii <- function(rows, law) {
  v2 <- rowSums(rows$v^2)
  last <- list(sums = Inf)
  for (level in 1:7) {
    radius <- radial_rule(law, level)
    if (is.null(radius) || nrow(radius) * length(v2) > 4e5) return(NULL)
    square <- drop(v2 %*% harmonic_terms(rows, radius, law$dim, 0L)$phi2)
    sums <- c(sum(radius$w * square), sum(radius$w * radius$r^2 * square))
    if (all(abs(sums / last$sums - 1) < 1e-5)) return(last$radius)
    last <- list(sums = sums, radius = radius)
  }
  NULL
}

# The first coordinate of a point on the sphere: nodes, weights, orthonormal polynomials p (a column for each degree) and their
# derivatives. In one dimension the sphere is -1 and 1, and has two.
sphere_rule <- function(dim, degrees) {
  if (dim == 1) return(list(t = c(-1, 1), w = c(0.5, 0.5), p = cbind(1, c(-1, 1)), slope = cbind(0, c(1, 1)), size = c(1, 1)))
  n <- degrees + 40L
  k <- seq_len(n - 1L)
  beta <- sqrt(k * (k + dim - 3) / ((2 * k + dim - 4) * (2 * k + dim - 2)))
  beta[1L] <- sqrt(1 / dim)
  J <- diag(0, n)
  J[cbind(k, k + 1L)] <- J[cbind(k + 1L, k)] <- beta
  e <- eigen(J, symmetric = TRUE)
  t <- e$values
  p <- slope <- matrix(0, n, degrees + 1L)
  p[, 1L] <- 1
  for (j in seq_len(degrees)) {
    before <- if (j > 1L) beta[j - 1L] else 0
    earlier <- max(j - 1L, 1L)
    p[, j + 1L] <- (t * p[, j] - before * p[, earlier]) / beta[j]
    slope[, j + 1L] <- (p[, j] + t * slope[, j] - before * slope[, earlier]) / beta[j]
  }
  list(t = t, w = e$vectors[1L, ]^2, p = p, slope = slope)
}

# ---- sums ---------------------------------------------------------------------------------------------

# Coefficients of phi, t phi and Phi: arrays (row, radius, degree), and the norms that they add up to
harmonic_terms <- function(rows, radius, dim, degrees) {
  rule <- sphere_rule(dim, degrees)
  degree <- seq_len(ncol(rule$p)) - 1
  weighted <- rule$w * rule$p
  # Phi_k by parts: p_k is an eigenfunction of the sphere's Laplacian
  by_parts <- rule$w * (1 - rule$t^2) * rule$slope * rep(ifelse(degree > 0, 1 / (degree * (degree + dim - 2)), 0), each = length(rule$t))
  n <- length(rows$s)
  empty <- array(0, c(n, nrow(radius), length(degree)))
  out <- list(phi = empty, t_phi = empty, Phi = empty, phi2 = matrix(0, n, nrow(radius)), t_phi2 = matrix(0, n, nrow(radius)))
  if (dim == 1) by_parts[] <- rule$w * rule$p * 0   # nothing is orthogonal to a line
  for (i in seq_len(nrow(radius))) {
    t <- radius$r[i] * rule$t
    phi <- rows$slope(matrix(t, n, length(t), byrow = TRUE))
    t_phi <- phi * rep(t, each = n)
    out$phi[, i, ] <- phi %*% weighted
    out$t_phi[, i, ] <- t_phi %*% weighted
    out$Phi[, i, ] <- radius$r[i] * phi %*% by_parts
    out$phi2[, i] <- phi^2 %*% rule$w
    out$t_phi2[, i] <- t_phi^2 %*% rule$w
  }
  c(out, list(dim = dim))
}

# The three moments, and bounds on what the degrees that were left out would add
add_harmonics <- function(rows, terms, radius) {
  d <- terms$dim
  beta <- rowSums(rows$v * rows$a)
  b <- rows$v - beta * rows$a
  b2 <- pmax(rowSums(b^2), 0)
  by_radius <- 0
  for (block in split(seq_along(beta), ceiling(seq_along(beta) / 200))) {
    by_radius <- by_radius + add_block(rows, b, beta, terms, block)
  }
  w <- radius$w
  r2 <- radius$r^2
  sums <- c(g2 = sum(w * by_radius[, 1L]), g2_z2 = sum(w * r2 * by_radius[, 1L]), gz2 = sum(w * by_radius[, 2L]))
  # |sum_i phi_i v_i|^2 <= (largest eigenvalue of V V') sum_i phi_i^2 for the part of phi in the degrees left out
  left <- pmax(terms$phi2 - rowSums(terms$phi^2, dims = 2L), 0)
  steepest <- largest_singular_value(rows$v)^2
  # and |sum_i h_i| <= sum_i |h_i|, h_i = phi_i v_i'z
  whole <- beta^2 * terms$t_phi2 + b2 * (rep(r2, each = length(beta)) * terms$phi2 - terms$t_phi2) / max(d - 1, 1)
  part <- own_norms(terms, beta, b2)
  lost <- colSums(sqrt(pmax(whole - part, 0)))^2
  tail <- c(g2 = steepest * sum(left %*% w), g2_z2 = steepest * sum(left %*% (w * r2)), gz2 = sum(w * lost))
  list(sum = sums, tail = tail + 1e-12 * sums)
}

# sum_k of the squared norms of h_i: C_k(1) = 1, C_k'(1) = k (k + d - 2) / (d - 1), a_i'b_i = 0
own_norms <- function(terms, beta, b2) {
  k <- seq_len(dim(terms$phi)[3L]) - 1
  slope <- k * (k + terms$dim - 2) / max(terms$dim - 1, 1)
  beta^2 * rowSums(terms$t_phi^2, dims = 2L) +
    b2 * rowSums(terms$Phi^2 * rep(slope, each = prod(dim(terms$phi)[1:2])), dims = 2L)
}

# The rows `block` of all quadratic forms; C_k, C_k' and C_k'' by their recurrences. For each radius E|g|^2 and E(g'z)^2.
add_block <- function(rows, b, beta, terms, block) {
  d <- terms$dim
  rho <- pmax(pmin(tcrossprod(rows$a[block, , drop = FALSE], rows$a), 1), -1)
  G <- tcrossprod(rows$v[block, , drop = FALSE], rows$v)
  P <- tcrossprod(rows$a[block, , drop = FALSE], b)
  PP <- P * tcrossprod(b[block, , drop = FALSE], rows$a)
  Q <- tcrossprod(b[block, , drop = FALSE], b)
  now <- list(matrix(1, nrow(rho), ncol(rho)), 0, 0)
  before <- list(0, 0, 0)
  form <- function(left, M, right) colSums(left[block, , drop = FALSE] * (M %*% right))
  total <- 0
  for (k in seq_len(dim(terms$phi)[3L]) - 1) {
    phi <- matrix(terms$phi[, , k + 1], length(beta))
    x <- beta * matrix(terms$t_phi[, , k + 1], length(beta))
    y <- matrix(terms$Phi[, , k + 1], length(beta))
    gz <- form(x, now[[1L]], x)
    if (k > 0) gz <- gz + 2 * form(x, now[[2L]] * P, y) + form(y, now[[3L]] * PP + now[[2L]] * Q, y)
    total <- total + cbind(form(phi, G * now[[1L]], phi), gz)
    up <- if (k == 0) list(rho, 1 + 0 * rho, 0 * rho) else {
      m <- (2 * k + d - 2) / (k + d - 2)
      lower <- k / (k + d - 2)
      list(m * rho * now[[1L]] - lower * before[[1L]], m * (now[[1L]] + rho * now[[2L]]) - lower * before[[2L]],
           m * (2 * now[[2L]] + rho * now[[3L]]) - lower * before[[3L]])
    }
    before <- now
    now <- up
  }
  total
}
