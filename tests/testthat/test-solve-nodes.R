test_that("the composite design integrates what it should", {
  for (H in 3:10) {
    corners <- fraction_corners(H)
    expect_identical(ncol(corners), as.integer(H))
    quads <- utils::combn(H, 4 - (H < 4))
    expect_true(all(apply(quads, 2, function(j) sum(apply(corners[, j], 1, prod))) == 0))
    pairs <- utils::combn(H, 2)
    expect_true(all(apply(pairs, 2, function(j) sum(apply(corners[, j], 1, prod))) == 0))
  }
})

points_of <- function(theta) lapply(seq_len(ncol(theta)), function(i) theta[, i])

# a density of theta that is known, as evidence_at() would return it
known_density <- function(log_p, slope) {
  function(setup, thetas, from = NULL, tol = 1e-7) {
    lapply(thetas, function(theta) list(theta = theta, value = log_p(theta), slope = slope(theta), solution = list()))
  }
}

test_that("many hyperparameters: calibrated weights are exact for a normal density, and right for others", {
  skip_on_cran()
  set.seed(1)
  H <- 6
  R <- matrix(rnorm(H^2), H) / 2 + diag(H)
  Q <- crossprod(R)
  at <- quasi_random(100, H)
  expect_equal(colMeans(at), rep(0.5, H), tolerance = 0.05)
  axes <- list(vectors = eigen(Q)$vectors, sd = 1.5 / sqrt(eigen(Q)$values))   # too wide
  mode <- list(theta = rep(1, H))
  proposal <- first_proposal(mode, axes, matrix(1, H, 2))
  theta <- proposed_points(proposal, at)
  found <- known_density(function(x) -sum((x - 1) * (Q %*% (x - 1))) / 2, function(x) drop(-Q %*% (x - 1)))(NULL, points_of(theta))
  values <- vapply(found, function(f) f$value, 0)
  log_rule <- calibrated_rule(values, -mixed_density(list(proposal), 200, theta), found, mode, axes)
  w <- normalised(values + log_rule)
  expect_equal(drop(theta %*% w), rep(1, H), tolerance = 1e-6)
  expect_equal(unname((theta - 1) %*% (w * t(theta - 1))), solve(Q), tolerance = 1e-6)
  # independent exponential variables by their logarithms: far from normal, of known moments
  found <- known_density(function(x) sum(x - exp(x)), function(x) 1 - exp(x))
  mode <- list(theta = numeric(H))
  axes <- list(vectors = diag(H), sd = rep(1, H))
  proposal <- first_proposal(mode, axes, cbind(rep(0.8, H), 1.3))
  theta <- proposed_points(proposal, quasi_random(1000, H))
  found <- found(NULL, points_of(theta))
  values <- vapply(found, function(f) f$value, 0)
  log_density <- mixed_density(list(proposal), ncol(theta), theta)
  w <- normalised(values + calibrated_rule(values, -log_density, found, mode, axes))
  expect_lt(max(abs(drop(exp(theta) %*% w) - 1)), 0.02)
  expect_lt(max(abs(drop(theta %*% w) - digamma(1))), 0.05)
  expect_lt(max(abs(drop(exp(theta)^2 %*% w) - 2)), 0.15)
  expect_lt(abs(log(sum(exp(values - log_density)))), 0.1)   # the constant
  # and the next proposal has their moments
  moved <- next_proposal(theta, w)
  expect_equal(moved$centre, rep(digamma(1), H), tolerance = 0.1)
})

test_that("seven hyperparameters: the answer hardly moves, and agrees with a finer one", {
  skip_on_cran()
  set.seed(1)
  g <- rep(1:20, each = 8)
  x <- matrix(rnorm(320), 160, dimnames = list(NULL, c("a", "b")))
  u <- matrix(rnorm(60), 20) %*% diag(c(0.8, 0.5, 0.4))
  y <- 0.3 + rowSums(cbind(1, x) * u[g, ]) + rnorm(160)
  problem <- nested_problem(cbind(1, x), y, gaussian(), terms = list(group_term("g", g, x, correlated = TRUE)),
                            dispersion = list(name = "sigma", prior = exponential(1)))
  fit <- nested_fit(problem)
  expect_length(fit$hyper$mode, 7L)
  expect_lt(max(unlist(fit$change)), 0.08)
  # 14,000 points: sds by fewer differ by up to 6 % between BLAS libraries, whose last digits decide how they are spread
  finer <- nested_fit(problem, control = list(nodes = 400))
  here <- nested_hyper_moments(fit)
  there <- nested_hyper_moments(finer)
  # two rules with errors of their own, which they report
  expect_lt(max(abs(here$mean - there$mean) / there$sd), 2 * (fit$change$mean + finer$change$mean))
  expect_lt(max(abs(here$sd / there$sd - 1)), 0.1)
  expect_identical(finer$hyper$rule, "sampled")
  expect_gte(finer$change$mean, 1 / sqrt(length(finer$nodes)))   # never less than the noise of so many nodes
})
