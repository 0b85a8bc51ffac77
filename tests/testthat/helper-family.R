# rules for the expectation of a family's loss: none, for spreads of 0, and that of the gaussian base
point_rule <- list(levels = list(), prior_levels = list(), mgf = "none", mgf_rate = 0, limit = Inf)
gaussian_rule <- function(name) cached_quadrature(law_of(base_gaussian(), 2), name)

# The expected loss of a row in C, its slope and curve, against integrate() and differences of minus a log density.
expect_row_loss <- function(name, hyper, y, density, etas, spreads = c(0, 0.6)) {
  for (eta in etas) for (s in spreads) {
    of <- function(eta) {
      if (s == 0) return(-density(eta))
      integrate(function(z) -density(eta + s * z) * dnorm(z), -9, 9, rel.tol = 1e-10, subdivisions = 500L)$value
    }
    at <- .Call(elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), hyper,
                list(y = y, weight = 2, eta = eta, s = s))
    expect_equal(at$sum, 2 * of(eta), tolerance = 1e-8)
    h <- 1e-3
    slope <- (8 * (of(eta + h) - of(eta - h)) - (of(eta + 2 * h) - of(eta - 2 * h))) / (12 * h)
    expect_equal(at$slope, 2 * slope, tolerance = 1e-5)
    expect_equal(at$curve, 2 * (of(eta + 1e-3) - 2 * of(eta) + of(eta - 1e-3)) / 1e-6, tolerance = 2e-3)
  }
}

# The slope of the log evidence in all hyperparameters, against differences.
expect_evidence_slope <- function(problem, step = 0.1) {
  setup <- nested_setup(conditional_problem(problem), base_gaussian())
  theta <- start_theta(setup) + step
  value <- function(theta) evidence_at(setup, list(theta), tol = 1e-12)[[1L]]
  expect_equal(value(theta)$slope, unname(fd_gradient(function(t) value(t)$value, theta)), tolerance = 1e-5)
}

# A table of posterior means and sds against a grid over all parameters: log_p of a row of the grid, and what is shown of it.
expect_grid_posterior <- function(table, grid, log_p, shown, mean_off = 0.05, sd_off = 0.05) {
  at <- apply(grid, 1L, log_p)
  p <- exp(at - max(at))
  p <- p / sum(p)
  values <- t(apply(grid, 1L, shown))
  mean <- colSums(p * values)
  sd <- sqrt(colSums(p * (values - rep(mean, each = nrow(values)))^2))
  expect_lt(max(abs(table[, "mean"] - mean) / sd), mean_off)
  expect_lt(max(abs(table[, "sd"] / sd - 1)), sd_off)
}
