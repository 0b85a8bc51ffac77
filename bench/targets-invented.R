# Targets with known means and standard deviations, for targets.R. Each entry of `invented` is a function that returns a list
#
#   value, gradient   minus the log density and its gradient at one point
#   dim, names        as for model_density()
#   mean, sd          what is known: of the first length(mean) parameters
#   constrain         if there is one
#
# Moments are closed forms, or sums over grids fine enough that a finer one changes them by less than a thousandth of an sd.

# ---- independent pieces ----------------------------------------------------------------------------------------

# mean and sd of a density in one dimension, by a grid
moments_1d <- function(minus_log, from, to, n = 2e5) {
  x <- seq(from, to, length.out = n)
  f <- minus_log(x)
  w <- exp(min(f) - f)
  w <- w / sum(w)
  m <- sum(w * x)
  c(m, sqrt(sum(w * (x - m)^2)))
}

gaussian <- function(P, m) {
  V <- solve(as.matrix(P))
  list(value = function(x) sum((x - m) * as.vector(P %*% (x - m))) / 2, gradient = function(x) as.vector(P %*% (x - m)),
       dim = length(m), mean = m, sd = sqrt(diag(V)))
}

# eigenvalues spread over `condition`, directions at random
ill_conditioned <- function(d, condition) {
  set.seed(d)
  Q <- qr.Q(qr(matrix(rnorm(d^2), d)))
  gaussian(Q %*% (10^seq(0, log10(condition), length.out = d) * t(Q)), rnorm(d))
}

# diagonal plus k strong directions: no zeros in the precision, no use to look for any
factors <- function(d, k = 3) {
  set.seed(d)
  D <- exp(rnorm(d))
  B <- matrix(rnorm(d * k), d)
  m <- rnorm(d)
  inner <- solve(diag(k) + crossprod(B / D, B))
  list(value = function(x) {
    x <- x - m
    (sum(x^2 / D) - sum(crossprod(B, x / D) * (inner %*% crossprod(B, x / D)))) / 2
  }, gradient = function(x) {
    x <- x - m
    as.vector((x - B %*% (inner %*% crossprod(B, x / D))) / D)
  }, dim = d, mean = m, sd = sqrt(D + rowSums(B^2)))
}

# a target seen through a reflection, so that every parameter depends on every other
reflected <- function(t) {
  d <- t$dim
  u <- sin(seq_len(d))
  u <- u / sqrt(sum(u^2))
  turn <- function(x) x - 2 * u * sum(u * x)
  list(value = function(x) t$value(turn(x)), gradient = function(x) turn(t$gradient(turn(x))), dim = d, mean = turn(t$mean),
       sd = sqrt(t$sd^2 * (1 - 4 * u^2) + 4 * u^2 * sum(u^2 * t$sd^2)))
}

autoregression <- function(d, rho = 0.999) {
  s <- 1 / (1 - rho^2)
  list(value = function(x) (x[1]^2 * (1 - rho^2) + sum((x[-1] - rho * x[-d])^2)) / 2, gradient = function(x) {
    e <- x[-1] - rho * x[-d]
    c(x[1] * (1 - rho^2), e) - c(rho * e, 0)
  }, dim = d, mean = numeric(d), sd = rep(sqrt(s), d))
}

# ---- tails and edges ---------------------------------------------------------------------------------------------

student <- function(d, df) {
  list(value = function(x) (df + 1) / 2 * sum(log1p(x^2 / df)), gradient = function(x) (df + 1) * x / (df + x^2), dim = d,
       mean = numeric(d), sd = rep(sqrt(df / (df - 2)), d))
}

joint_student <- function(d, df) {
  list(value = function(x) (df + d) / 2 * log1p(sum(x^2) / df), gradient = function(x) (df + d) * x / (df + sum(x^2)), dim = d,
       mean = numeric(d), sd = rep(sqrt(df / (df - 2)), d))
}

double_exponential <- function(d) {
  list(value = function(x) sum(abs(x)), gradient = sign, dim = d, mean = numeric(d), sd = rep(sqrt(2), d))
}

half_normal <- function(d) {
  list(value = function(x) if (any(x < 0)) Inf else sum(x^2) / 2, gradient = function(x) x, dim = d, mean = rep(sqrt(2 / pi), d),
       sd = rep(sqrt(1 - 2 / pi), d))
}

half_exponential <- function(d) {
  list(value = function(x) if (any(x < 0)) Inf else sum(x), gradient = function(x) rep(1, d), dim = d, mean = rep(1, d), sd = rep(1, d))
}

box <- function(d) {
  list(value = function(x) if (any(abs(x) > 1)) Inf else 0, gradient = function(x) numeric(d), dim = d, mean = numeric(d),
       sd = rep(1 / sqrt(3), d))
}

# an edge that is far out: two sds below the mean
distant_edge <- function(d) {
  m <- 2 + dnorm(2) / pnorm(2)
  list(value = function(x) if (any(x < 0)) Inf else sum((x - 2)^2) / 2, gradient = function(x) x - 2, dim = d, mean = rep(m, d),
       sd = rep(sqrt(1 - 2 * dnorm(2) / pnorm(2) - (dnorm(2) / pnorm(2))^2), d))
}

skew_normal <- function(d, a = 5) {
  delta <- a / sqrt(1 + a^2)
  list(value = function(x) sum(x^2 / 2 - pnorm(a * x, log.p = TRUE)),
       gradient = function(x) x - a * exp(dnorm(a * x, log = TRUE) - pnorm(a * x, log.p = TRUE)), dim = d,
       mean = rep(delta * sqrt(2 / pi), d), sd = rep(sqrt(1 - 2 * delta^2 / pi), d))
}

# ---- several modes --------------------------------------------------------------------------------------------------

# normal laws of one sd each, at `at` in the first coordinate, with the same centre 0 in the others
normal_mixture <- function(d, weight, at, sd = rep(1, length(weight))) {
  log_parts <- function(x) log(weight) - d * log(sd) - ((x[1] - at)^2 + sum(x[-1]^2)) / (2 * sd^2)
  m <- sum(weight * at)
  list(value = function(x) {
    l <- log_parts(x)
    -max(l) - log(sum(exp(l - max(l))))
  }, gradient = function(x) {
    l <- log_parts(x)
    w <- exp(l - max(l)) / sum(exp(l - max(l)))
    c(sum(w * (x[1] - at) / sd^2), x[-1] * sum(w / sd^2))
  }, dim = d, mean = c(m, numeric(d - 1)), sd = sqrt(c(sum(weight * (sd^2 + at^2)) - m^2, rep(sum(weight * sd^2), d - 1))))
}

# a spike within a slab, in each coordinate by itself
slab_and_spike <- function(d, share = 0.5, spike = 0.1) {
  parts <- function(x) cbind((1 - share) * dnorm(x), share * dnorm(x, 0, spike))
  list(value = function(x) -sum(log(rowSums(parts(x)))), gradient = function(x) {
    p <- parts(x)
    x * (p[, 1] + p[, 2] / spike^2) / rowSums(p)
  }, dim = d, mean = numeric(d), sd = rep(sqrt(1 - share + share * spike^2), d))
}

ring <- function(radius = 3, s = 0.3) {
  z <- moments_1d(function(r) (r - radius)^2 / (2 * s^2) - log(r), 1e-6, radius + 10 * s)
  list(value = function(x) (sqrt(sum(x^2)) - radius)^2 / (2 * s^2),
       gradient = function(x) x * (1 - radius / max(sqrt(sum(x^2)), 1e-300)) / s^2, dim = 2, mean = c(0, 0),
       sd = rep(sqrt((z[1]^2 + z[2]^2) / 2), 2))
}

# ---- bananas and funnels -------------------------------------------------------------------------------------------------

banana <- function(d, b, pairs = 1) {
  i <- 2 * seq_len(pairs) - 1
  r <- function(x) x[i + 1] - b * (x[i]^2 - 1)
  list(value = function(x) {
    x[i + 1] <- r(x)
    sum(x^2) / 2
  }, gradient = function(x) {
    e <- r(x)
    x[i + 1] <- e
    x[i] <- x[i] - 2 * b * x[i] * e
    x
  }, dim = d, mean = numeric(d), sd = replace(rep(1, d), i + 1, sqrt(1 + 2 * b^2)))
}

# a funnel's mouth and neck, and d - 1 normal parameters of that scale
funnel <- function(d, s = 0.5) {
  list(dim = d, value = function(x) x[1]^2 / (2 * s^2) + sum(x[-1]^2) * exp(-2 * x[1]) / 2 + (d - 1) * x[1],
       gradient = function(x) c(x[1] / s^2 - sum(x[-1]^2) * exp(-2 * x[1]) + d - 1, x[-1] * exp(-2 * x[1])),
       names = c("log_scale", paste0("z[", seq_len(d - 1), "]")), mean = numeric(d), sd = c(s, rep(exp(s^2), d - 1)))
}

# the same with scale * z in place of the parameters: independent normal laws
straight_funnel <- function(d, s) {
  P <- rep(c(1 / s^2, 1), c(1, d - 1))
  list(value = function(x) sum(P * x^2) / 2, gradient = function(x) P * x, dim = d,
       names = c("log_scale", paste0("z[", seq_len(d - 1), "]")), mean = numeric(d), sd = 1 / sqrt(P))
}

# J groups of m normal observations, effects as tau times standard normal ones
noncentred_groups <- function(J, m = 4, ...) {
  t <- normal_groups(J, m, ...)
  list(value = function(x) t$value(c(x[1:3], exp(x[2]) * x[-(1:3)])) - J * x[2], gradient = function(x) {
    v <- exp(x[2]) * x[-(1:3)]
    g <- t$gradient(c(x[1:3], v))
    c(g[1], g[2] + sum(g[-(1:3)] * v) - J, g[3], g[-(1:3)] * exp(x[2]))
  }, dim = t$dim, names = t$names, mean = t$mean, sd = t$sd)
}

# ---- regressions ------------------------------------------------------------------------------------------------------------

# a mean and the logarithm of an sd from few observations
few_normal <- function(n) {
  y <- qnorm((seq_len(n) - 0.5) / n)
  v <- function(m, s) sum((y - m)^2) * exp(-2 * s) / 2 + n * s + m^2 / 200 + exp(s) - s
  s <- seq(-4, 6, length.out = 4001)
  V <- 1 / (n * exp(-2 * s) + 1 / 100)
  m <- V * sum(y) * exp(-2 * s)
  f <- sum(y^2) * exp(-2 * s) / 2 - m^2 / (2 * V) + n * s + exp(s) - s - log(V) / 2
  w <- exp(min(f) - f)
  w <- w / sum(w)
  mean <- c(sum(w * m), sum(w * s))
  list(value = function(x) v(x[1], x[2]), gradient = function(x) {
    c(-sum(y - x[1]) * exp(-2 * x[2]) + x[1] / 100, -sum((y - x[1])^2) * exp(-2 * x[2]) + n + exp(x[2]) - 1)
  }, dim = 2, names = c("mu", "log_sigma"), mean = mean, sd = sqrt(c(sum(w * (V + m^2)), sum(w * s^2)) - mean^2))
}

# J groups of k of 5 successes, their logits normal: mean and log sd by a grid, effects summed out by Gauss-Hermite
logistic_groups <- function(J, trials = 5, centred = TRUE) {
  set.seed(J)
  k <- rbinom(J, trials, plogis(-0.5 + rnorm(J)))
  rule <- eigen(local({
    A <- matrix(0, 40, 40)
    A[cbind(1:39, 2:40)] <- sqrt(1:39)
    A + t(A)
  }))
  z <- rule$values
  p <- rule$vectors[1, ]^2
  count <- table(factor(k, 0:trials))
  minus_log <- function(m, s) {
    eta <- m + exp(s) * z
    each <- vapply(0:trials, function(j) log(sum(p * exp(j * eta - trials * log1p(exp(eta))))), 0)
    -sum(count * each) + m^2 / 50 + exp(s) - s
  }
  at <- optim(c(0, 0), function(x) minus_log(x[1], x[2]), hessian = TRUE)
  V <- solve(at$hessian)
  grid <- expand.grid(m = at$par[1] + seq(-7, 7, length.out = 71) * sqrt(V[1]),
                      s = at$par[2] + seq(-9, 7, length.out = 81) * sqrt(V[4]))
  f <- mapply(minus_log, grid$m, grid$s)
  w <- exp(min(f) - f)
  w <- w / sum(w)
  mean <- c(sum(w * grid$m), sum(w * grid$s))
  sd <- sqrt(c(sum(w * grid$m^2), sum(w * grid$s^2)) - mean^2)
  names <- c("mu", "log_tau", paste0("u[", seq_len(J), "]"))
  raw <- function(x) {
    u <- x[-(1:2)]
    eta <- x[1] + exp(x[2]) * u
    sum(trials * log1p(exp(eta)) - k * eta) + sum(u^2) / 2 + x[1]^2 / 50 + exp(x[2]) - x[2]
  }
  raw_gradient <- function(x) {
    u <- x[-(1:2)]
    eta <- x[1] + exp(x[2]) * u
    r <- trials * plogis(eta) - k
    c(sum(r) + x[1] / 25, sum(r * u) * exp(x[2]) + exp(x[2]) - 1, r * exp(x[2]) + u)
  }
  if (!centred) return(list(value = raw, gradient = raw_gradient, dim = J + 2, names = names, mean = mean, sd = sd))
  list(value = function(x) {
    v <- x[-(1:2)]
    sum(trials * log1p(exp(x[1] + v)) - k * (x[1] + v)) + sum(v^2) * exp(-2 * x[2]) / 2 + J * x[2] + x[1]^2 / 50 + exp(x[2]) - x[2]
  }, gradient = function(x) {
    v <- x[-(1:2)]
    r <- trials * plogis(x[1] + v) - k
    c(sum(r) + x[1] / 25, -sum(v^2) * exp(-2 * x[2]) + J + exp(x[2]) - 1, r + v * exp(-2 * x[2]))
  }, dim = J + 2, names = names, mean = mean, sd = sd)
}

# log odds and logarithms of beta and gamma laws: what constrained parameters are on the unconstrained scale
constrained_scales <- function() {
  shape <- c(0.5, 1, 3, 20)
  a <- c(0.7, 2, 5)
  b <- c(0.7, 8, 1)
  list(value = function(x) sum(exp(x[1:4]) - shape * x[1:4]) + sum((a + b) * log1p(exp(x[5:7])) - a * x[5:7]),
       gradient = function(x) c(exp(x[1:4]) - shape, (a + b) * plogis(x[5:7]) - a), dim = 7,
       mean = c(digamma(shape), digamma(a) - digamma(b)), sd = sqrt(c(trigamma(shape), trigamma(a) + trigamma(b))))
}

# coefficients with half Cauchy scales of their own, one observation of sd 1 each: mean and sd of coefficients by grids
horseshoe <- function(d) {
  y <- c(rep(c(4, -3), length.out = d %/% 10), numeric(d - d %/% 10))
  # given log scale s: y ~ N(0, 1 + e^2s), b | y ~ N(y r, r), r = e^2s / (1 + e^2s)
  s <- seq(-25, 12, length.out = 20001)
  each <- vapply(unique(y), function(y) {
    r <- plogis(2 * s)
    f <- log1p(exp(2 * s)) / 2 + y^2 / (2 * (1 + exp(2 * s))) + log1p(exp(2 * s)) - s
    w <- exp(min(f) - f)
    w <- w / sum(w)
    m <- sum(w * y * r)
    c(m, sqrt(sum(w * (r + y^2 * r^2)) - m^2))
  }, c(0, 0))[, match(y, unique(y))]
  list(value = function(x) {
    b <- x[1:d]
    s <- x[-(1:d)]
    sum((b - y)^2) / 2 + sum(b^2 * exp(-2 * s)) / 2 + sum(s) + sum(log1p(exp(2 * s)) - s)
  }, gradient = function(x) {
    b <- x[1:d]
    s <- x[-(1:d)]
    c(b - y + b * exp(-2 * s), -b^2 * exp(-2 * s) + 2 * plogis(2 * s))
  }, dim = 2 * d, names = c(paste0("b[", 1:d, "]"), paste0("log_lambda[", 1:d, "]")), mean = each[1, ], sd = each[2, ])
}

invented <- list(
  "log-gamma 20" = function() log_gamma(20),
  "log-gamma 200" = function() log_gamma(200),
  "log-gamma 1000" = function() log_gamma(1000),
  "log-gamma 600, reflected" = function() reflected(log_gamma(600)),
  "walk 2000" = function() walk(2000),
  "walk 5000" = function() walk(5000),
  "autoregression 1000" = function() autoregression(1000),
  "gaussian 50, condition 1e8" = function() ill_conditioned(50, 1e8),
  "gaussian 600, condition 1e4" = function() ill_conditioned(600, 1e4),
  "factors 100" = function() factors(100),
  "factors 2000" = function() factors(2000),
  "funnel 2" = function() funnel(2, 0.7),
  "funnel 10" = function() funnel(10),
  "funnel 50" = function() funnel(50),
  "funnel 10, strong" = function() funnel(10, 1.5),
  "funnel 500" = function() funnel(500),
  "funnel 500, strong" = function() funnel(500, 1.5),
  "groups 50" = function() normal_groups(50),
  "groups 500" = function() normal_groups(500),
  "groups 5000" = function() normal_groups(5000),
  "groups 50, non-centred" = function() noncentred_groups(50),
  "groups 500, non-centred" = function() noncentred_groups(500),
  "groups 5000, non-centred" = function() noncentred_groups(5000),
  "groups 8 of 2" = function() normal_groups(8, 2),
  "groups 8 of 2, non-centred" = function() noncentred_groups(8, 2),
  "logistic groups 100" = function() logistic_groups(100),
  "logistic groups 1000" = function() logistic_groups(1000),
  "logistic groups 1000, non-centred" = function() logistic_groups(1000, centred = FALSE),
  "slab and spike 1" = function() slab_and_spike(1),
  "slab and spike 5" = function() slab_and_spike(5),
  "slab and spike 2, joint" = function() normal_mixture(2, c(0.7, 0.3), c(0, 0), c(1, 0.1)),
  "mixture 2, unequal" = function() normal_mixture(2, c(0.8, 0.2), c(0, 6)),
  "mixture 10, unequal" = function() normal_mixture(10, c(0.7, 0.3), c(-3, 3)),
  "mixture 2, widths" = function() normal_mixture(2, c(0.5, 0.5), c(-2, 2), c(1, 0.3)),
  "mixture 500" = function() normal_mixture(500, c(0.6, 0.4), c(-4, 4)),
  "mixture 2, three" = function() normal_mixture(2, c(0.5, 0.3, 0.2), c(0, 5, -5)),
  "half normal 1" = function() half_normal(1),
  "half normal 10" = function() half_normal(10),
  "half exponential 5" = function() half_exponential(5),
  "box 3" = function() box(3),
  "distant edge 5" = function() distant_edge(5),
  "half normal 500" = function() half_normal(500),
  "banana 2" = function() banana(2, 0.5),
  "banana 2, strong" = function() banana(2, 2),
  "banana 20" = function() banana(20, 0.4, 10),
  "student 5, df 4" = function() student(5, 4),
  "student 50, df 5" = function() student(50, 5),
  "student 500, df 5" = function() student(500, 5),
  "joint student 10, df 5" = function() joint_student(10, 5),
  "double exponential 20" = function() double_exponential(20),
  "skew normal 20" = function() skew_normal(20),
  "skew normal 800" = function() skew_normal(800),
  "ring" = function() ring(),
  "normal, n = 3" = function() few_normal(3),
  "normal, n = 10" = function() few_normal(10),
  "constrained scales" = constrained_scales,
  "horseshoe 10" = function() horseshoe(10),
  "horseshoe 250" = function() horseshoe(250))
