# independent parameters whose exponentials have gamma distributions
log_gamma <- function(d, shape = seq(1, 4, length.out = d)) {
  list(value = function(x) sum(exp(x) - shape * x), gradient = function(x) exp(x) - shape, dim = d, mean = digamma(shape),
       sd = sqrt(trigamma(shape)))
}

# a random walk with normal innovations, seen with noise: its precision is tridiagonal
walk <- function(d, y = sin(seq_len(d) / 5)) {
  P <- Matrix::bandSparse(d, k = 0:1, diagonals = list(c(rep(9, d - 1), 5), rep(-4, d - 1)), symmetric = TRUE)
  b <- y
  list(P = P, value = function(x) sum(x * as.vector(P %*% x)) / 2 - sum(b * x), gradient = function(x) as.vector(P %*% x) - b, dim = d,
       mean = as.vector(Matrix::solve(P, b)), sd = sqrt(Matrix::diag(Matrix::solve(P))))
}

# J groups of m normal observations with unknown mean, sd of groups and residual sd; the first three moments by a grid
normal_groups <- function(J, m = 4, tau = 0.7, seed = 4) {
  set.seed(seed)
  g <- rep(seq_len(J), each = m)
  n <- J * m
  y <- rnorm(n, 0.5 + rnorm(J, 0, tau)[g], 1)
  M <- as.vector(rowsum(y, g)) / m
  W <- sum((y - M[g])^2)
  value <- function(x) {
    v <- x[-(1:3)]
    sum((y - x[1] - v[g])^2) * exp(-2 * x[3]) / 2 + n * x[3] + x[1]^2 / 50 + exp(x[2]) - x[2] + exp(x[3]) - x[3] +
      sum(v^2) * exp(-2 * x[2]) / 2 + J * x[2]
  }
  gradient <- function(x) {
    v <- x[-(1:3)]
    r <- y - x[1] - v[g]
    R <- as.vector(rowsum(r, g)) * exp(-2 * x[3])
    c(-sum(R) + x[1] / 25, exp(x[2]) - 1 - sum(v^2) * exp(-2 * x[2]) + J, -sum(r^2) * exp(-2 * x[3]) + n + exp(x[3]) - 1,
      -R + v * exp(-2 * x[2]))
  }
  # log density of (log tau, log sigma) and the mean and variance of mu given them
  at <- function(t, s) {
    V <- exp(2 * t) + exp(2 * s) / m
    v <- 1 / (J / V + 1 / 25)
    mu <- v * sum(M) / V
    c(-(n - J) * s - W / (2 * exp(2 * s)) - J / 2 * log(V) - sum(M^2) / (2 * V) + mu^2 / (2 * v) + log(v) / 2 - exp(t) + t - exp(s) + s,
      mu, v)
  }
  sd_t <- 1.3 / sqrt(J)
  grid <- expand.grid(t = log(tau) + seq(-12, 10, length.out = 121) * sd_t, s = seq(-8, 8, length.out = 41) / sqrt(2 * (n - J)))
  found <- mapply(at, grid$t, grid$s)
  w <- exp(found[1, ] - max(found[1, ]))
  w <- w / sum(w)
  mean <- c(sum(w * found[2, ]), sum(w * grid$t), sum(w * grid$s))
  square <- c(sum(w * (found[3, ] + found[2, ]^2)), sum(w * grid$t^2), sum(w * grid$s^2))
  list(value = value, gradient = gradient, dim = J + 3, names = c("mu", "log_tau", "log_sigma", paste0("u[", seq_len(J), "]")),
       mean = mean, sd = sqrt(square - mean^2))
}
