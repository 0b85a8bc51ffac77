# One-dimensional quadrature against the marginal of z_1, for every base.
#
# For a GLM the objective is a sum of integrals E l(eta_i + s_i z_1), see
# docs/internals.Rmd. A rule is a list of levels; each has nodes z > 0 and weights w
# with E g(z_1) = sum w (g(z) + g(-z)), and a limit: the largest spread s it is
# trusted for. Small spreads take a Gauss rule of a few nodes, large ones a fine
# composite rule that resolves l's bend at -eta/s.

# Marginal density of z_1 at z > 0.
marginal_density <- function(law, z) {
  d <- law$dim
  if (d == 1) return(exp(law$log_constant + law$log_phi(z)))
  if (is.null(law$marginal)) marginal_by_integration(law, z) else law$marginal$density(z)
}

# p_1(z) = C area(S^{d-2}) int_0^inf r^{d-2} phi(sqrt(z^2 + r^2)) dr. In t = log r
# the integrand is smooth and decays at both ends, so the trapezoid rule
# converges faster than any power of its step; a density of bounded support gets
# Gauss-Legendre on the chord instead.
marginal_by_integration <- function(law, z) {
  d <- law$dim
  log_factor <- law$log_constant + log_sphere_area(d - 1)
  edge <- support_edge(law)
  if (is.finite(edge)) {
    gl <- gauss_legendre(200L)
    return(vapply(z, function(zi) {
      if (zi >= edge) return(0)
      chord <- sqrt(edge^2 - zi^2)
      r <- chord * (gl$x + 1) / 2
      chord / 2 * sum(gl$w * exp(log_factor + (d - 2) * log(r) + law$log_phi(sqrt(zi^2 + r^2))))
    }, 0))
  }
  h <- min(0.1, 0.25 / sqrt(d))
  t <- seq(-40, 12, by = h)
  r <- exp(t)
  # where the integrand of the widest chord (z = 0) still matters
  at_zero <- (d - 1) * t + law$log_phi(r)
  keep <- t > min(t[at_zero > max(at_zero) - 45]) - 1 & t < max(t[at_zero > max(at_zero) - 45]) + 3
  r2 <- r[keep]^2
  lead <- (d - 1) * t[keep] + log_factor
  vapply(z, function(zi) h * sum(exp(lead + law$log_phi(sqrt(zi^2 + r2)))), 0)
}

legendre_rule <- function(n) {
  k <- seq_len(n - 1L)
  off <- k / sqrt(4 * k^2 - 1)
  J <- matrix(0, n, n)
  J[cbind(k, k + 1L)] <- J[cbind(k + 1L, k)] <- off
  e <- eigen(J, symmetric = TRUE)
  list(x = rev(e$values), w = rev(2 * e$vectors[1L, ]^2))
}

# those in use are made when the package is installed
legendre_rules <- lapply(c("16" = 16L, "40" = 40L, "200" = 200L), legendre_rule)
gauss_legendre <- function(n) legendre_rules[[as.character(n)]] %||% legendre_rule(n)

# Composite Gauss-Legendre on (0, reach): graded towards 0, where marginals in
# low dimension have a kink in some derivative; at most `width` wide in the bulk;
# growing by `growth` per panel in heavy tails, and doubling beyond 1e4, where they
# are power laws.
composite_rule <- function(law, width, growth, grade) {
  edge <- support_edge(law)
  reach <- if (is.finite(edge)) edge else marginal_reach(law)
  breaks <- c(0, width * 2^(-rev(seq_len(grade))), seq(width, max(2 * width, min(reach, 16)), by = width))
  while ((last <- utils::tail(breaks, 1L)) < reach) {
    breaks <- c(breaks, last * if (last < 1e4) growth else 2)
  }
  if (is.finite(edge)) {   # a power-law end at the edge: grade towards it too
    breaks <- sort(unique(c(breaks, edge - width * 2^(-seq_len(grade + 10L)))))
  }
  breaks <- c(breaks[breaks >= 0 & breaks < reach], reach)
  gl <- gauss_legendre(16L)
  half <- diff(breaks) / 2
  z <- as.double(outer(gl$x + 1, half) + rep(breaks[-length(breaks)], each = 16L))
  w <- as.double(outer(gl$w, half)) * marginal_density(law, z)
  keep <- if (is.null(law$tilt)) w * pmax(1, z^2) > 1e-30 * max(w) else w > 0
  rule <- list(z = z[keep], w = w[keep] / (2 * sum(w[keep])))   # the last rounding away
  if (reach < 0.99 * farthest) return(rule)
  # What is left of E z^2 = 1 lies further out still: one node carries it. There
  # the probit loss is quadratic, and the others no longer matter.
  rest <- max(0, 1 - 2 * sum(rule$w * rule$z^2))
  list(z = c(rule$z, reach), w = c(rule$w, rest / (2 * reach^2)))
}

farthest <- 1e12

# where z^2 p_1(z), tilted for poisson, has fallen below 1e-18 of its bulk
marginal_reach <- function(law) {
  z <- reach_grid()
  tail_end(z, log(marginal_density(law, z)), law$tilt %||% 0)
}

reach_grid <- function() exp(seq(log(1), log(farthest), length.out = 700L))

tail_end <- function(z, log_density, tilt) {
  tail <- 3 * log(z) + log_density + tilt * z
  z[max(which(tail > max(tail) + log(1e-18)))]
}

# exp(s z) moves the mass outwards. The widest spread, below `limit`, whose mass lies where densities are
# numbers above 0.
widest_tilt <- function(law, limit) {
  z <- reach_grid()
  log_density <- log(marginal_density(law, z))
  last <- z[max(which(log_density > log(1e-300)))]
  fits <- function(s) tail_end(z, log_density, s) < last
  tilts <- min(limit, 64) * seq(0.98, 0.02, by = -0.02)
  tilts[which(vapply(tilts, fits, NA))[1L]]
}

# Gauss rules in z^2 of a discrete measure, of n nodes (2n in z) for each n of `sizes`: Lanczos with full
# reorthogonalisation, then the eigenvalues of the leading n x n part of the Jacobi matrix. NULL for what the measure
# has too few nodes for.
gauss_rules <- function(fine, sizes) {
  y <- fine$z^2
  mass <- sum(fine$w)
  most <- max(sizes)
  Q <- matrix(0, length(y), most)
  alpha <- beta <- numeric(most)
  q <- sqrt(fine$w / mass)
  for (k in seq_len(most)) {
    Q[, k] <- q
    u <- y * q
    alpha[k] <- sum(q * u)
    done <- Q[, seq_len(k), drop = FALSE]
    for (pass in 1:2) u <- u - done %*% crossprod(done, u)
    beta[k] <- sqrt(sum(u^2))
    if (beta[k] < 1e-14 * max(y)) break
    q <- as.double(u) / beta[k]
  }
  lapply(sizes, function(n) if (n <= k) rule_of_jacobi(alpha[seq_len(n)], beta[seq_len(n - 1L)], mass))
}

rule_of_jacobi <- function(alpha, beta, mass) {
  J <- diag(alpha, length(alpha))
  k <- seq_along(beta)
  J[cbind(k, k + 1L)] <- J[cbind(k + 1L, k)] <- beta
  e <- eigen(J, symmetric = TRUE)
  list(z = sqrt(pmax(e$values, 0)), w = mass * e$vectors[1L, ]^2)
}

# The losses that a rule is for: those of a likelihood, or that of student priors, in units of their own.
losses_of <- function(what) if (what == "tail") list(tail_loss) else family_records[[what]]$calibration

# of the likelihoods that share a rule
first_of_same_losses <- function(what) if (what == "tail") what else rule_sharers[[what]]

# Every fit asks, so they are found when the package is installed.
rule_sharers <- local({
  asked <- lapply(family_records, function(record) list(record$calibration, record$exponential))
  vapply(asked, function(one) names(asked)[vapply(asked, identical, NA, one)][1L], "")
})

# E l, E l' and E[l' z] / s under a rule, at each eta
loss_integrals <- function(rule, loss, eta, s) {
  n <- length(rule$z)
  right <- outer(s * rule$z, eta, `+`)
  left <- outer(-s * rule$z, eta, `+`)
  up <- loss$slope(right)
  down <- loss$slope(left)
  total <- function(x) drop(rule$w %*% matrix(x, n))
  rbind(total(loss$l(right) + loss$l(left)), total(up + down), total(rule$z * (up - down)) / s)
}

# For each rule the largest spread for which it agrees with the fine one, relative, over a range of eta.
# 0 when it never does.
calibrated_limits <- function(rules, fine, loss, spreads, enough = 1e-12) {
  limits <- numeric(length(rules))
  alive <- seq_along(rules)
  for (s in spreads) {
    eta <- c(loss$eta * max(1, s), 10, 30)
    truth <- loss_integrals(fine, loss, eta, s)
    good <- vapply(alive, function(i) {
      off <- abs(loss_integrals(rules[[i]], loss, eta, s) - truth) / pmax(abs(truth), 1e-2)
      all(is.finite(off)) && max(off) <= enough
    }, NA)
    alive <- alive[good]
    limits[alive] <- s
    if (!length(alive)) break
  }
  limits
}

# Half the nodes of the Gauss rules that are tried, and the relative error that a rule may have: of an optimum, whose certificate rests on
# it, and of what corrects one, where 1e-7 nats are nothing.
fine_rules <- list(sizes = c(2L, 4L, 8L, 16L, 32L), enough = 1e-12)
lean_rules <- list(sizes = c(3L, 5L, 8L, 16L, 32L), enough = 1e-7)

# The rule of a base in its dimension for a likelihood or "tail", as C reads it.
quadrature_rule <- function(law, what, tried = fine_rules) {
  losses <- losses_of(what)
  if (!length(losses)) {
    return(list(levels = list(), prior_levels = list(), mgf = "none", mgf_rate = 0, limit = Inf))
  }
  exponential <- isTRUE(family_records[[what]]$exponential)
  mgf <- if (exponential) law$mgf else "none"
  closed <- mgf != "none"
  limit <- if (exponential) exponential_limit(law) else Inf   # of the spreads for which E f exists
  if (limit <= 0) return(list(limit = 0))
  tilted <- exponential && !closed
  unbounded <- tilted && !is.finite(support_edge(law))
  if (tilted) law$tilt <- if (unbounded) widest_tilt(law, limit) else 4
  fine <- composite_rule(law, width = 0.125, growth = 1.125, grade = 20L)
  candidates <- c(gauss_rules(fine, tried$sizes),
                  list(composite_rule(law, width = 2, growth = 1.25, grade = 2L),
                       composite_rule(law, width = 0.5, growth = 1.2, grade = 8L)))
  candidates <- Filter(Negate(is.null), candidates)
  spreads <- 0.01 * 2^(0:24 / 2)
  if (closed) losses <- losses[1L]
  if (unbounded) {   # trusted as far as a rule of half the width agrees
    finer <- composite_rule(law, width = 0.0625, growth = 1.0625, grade = 20L)
    tilts <- law$tilt * seq(0.02, 1, by = 0.02)
    limit <- min(vapply(losses, function(loss) calibrated_limits(list(fine), finer, loss, tilts, enough = 1e-10), 0))
  }
  limits <- do.call(pmin, lapply(losses, function(loss) calibrated_limits(candidates, fine, loss, spreads[spreads < limit], tried$enough)))
  levels <- Map(function(rule, limit) c(rule, limit = limit), candidates, limits)
  # The fine rule's panels resolve spreads up to about 50, when the bend of l is
  # as narrow as a panel; beyond that it is the best there is.
  levels <- c(levels, list(c(fine, limit = Inf)))
  best <- cummax(c(0, vapply(levels, function(r) r$limit, 0)))
  levels <- levels[diff(best) > 0]   # drop levels that a cheaper one covers
  variance <- 2 * sum(fine$w * fine$z^2)
  if (abs(variance - 1) > 1e-5) {
    elvi_abort("`base`: the quadrature for this ", law$kind, " base in dimension ", law$dim,
               " is not accurate (it gives a variance of ", format(variance, digits = 6), " instead of 1). ",
               "Use method = \"mpsgd\", or a base that is less extreme.",
               class = c("elvi_error_quadrature", "elvi_error_argument"), data = list(argument = "base"))
  }
  list(levels = levels, prior_levels = list(), mgf = mgf, mgf_rate = law$par[1L], limit = limit)
}

# the rule of a family for the losses of its rows, which may have so many predictors
record_rule <- function(record, law, lines = NULL, lean = FALSE) {
  if (is_shared(record)) return(class_rule(lines))
  if (is_joint(record)) return(joint_rule(record, lean))
  rule <- cached_quadrature(law, record$conditional$likelihood, lean)
  rule$prior_levels <- list()
  rule
}
