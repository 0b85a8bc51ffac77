# The second moments of a gradient of a regression, by harmonics, against dense grids, closed forms and draws.

inputs <- function(model, base, ...) theorem_inputs(model, base, elvi_control(...), NULL, NULL)

noisy_logistic <- function(d, n = 25, ...) {
  model_glm(matrix(rnorm(n * d), n), rbinom(n, 1, 0.5), prior = normal(0.3, 1.5), ...)
}

# f's gradient g at mu + S z for columns of z: |g|^2, |g|^2 |z|^2, (g'z)^2
moments_of <- function(problem, theta, z) {
  g <- target_at(problem$work, theta$mu + root_times(theta$scale, z))$gradient
  rbind(g2 = colSums(g^2), g2_z2 = colSums(g^2) * colSums(z^2), gz2 = colSums(g * z)^2)
}

test_that("moments of a gradient are those of a dense grid, in every coordinates", {
  set.seed(1)
  axis <- seq(-8, 8, by = 0.2)
  z <- t(as.matrix(expand.grid(axis, axis)))
  w <- exp(-colSums(z^2) / 2)
  for (i in 1:3) {
    problem <- inputs(noisy_logistic(2), base_gaussian(), coordinates = c("raw", "whitened", "majorant")[i],
                      scale = c("symmetric", "triangular", "symmetric")[i])
    grid <- drop(moments_of(problem, problem$optimum, z) %*% w) / sum(w)
    # an upper bound, at most 0.2 % too large
    ratio <- gradient_moments(problem, problem$optimum) / grid
    expect_gt(min(ratio), 1)
    expect_lt(max(ratio), 1.002)
  }
})

test_that("they are the means over draws for every base, also away from the optimum", {
  set.seed(2)
  for (base in list(base_laplace(), base_uniform(), base_student(9), base_power(4))) for (d in if (long_tests()) c(1, 4) else 4) {
    problem <- inputs(noisy_logistic(d, weights = runif(25), offset = rnorm(25)), base)
    theta <- problem$optimum
    theta$mu <- theta$mu + 0.5
    each <- moments_of(problem, theta, draw_base(problem$law, c(9, d), 20000))
    off <- (gradient_moments(problem, theta) / 1.001 - rowMeans(each)) / (apply(each, 1, sd) / sqrt(20000))
    expect_lt(max(abs(off)), 4.5)
  }
})

test_that("for gaussian responses and matrix priors they are the closed form of a quadratic", {
  set.seed(3)
  X <- matrix(rnorm(60), 20)
  Q <- crossprod(matrix(rnorm(9), 3)) + diag(3)
  y <- rnorm(20)
  A <- crossprod(X) / 2 + Q
  best <- with(eigen(A), vectors %*% (t(vectors) / sqrt(values)))
  problem <- list(model = model_glm(X, y, gaussian(), prior = normal(precision = Q), dispersion = 2), dim = 3,
                  law = law_of(base_laplace(), 3), kurtosis = law_of(base_laplace(), 3)$kurtosis, kind = "symmetric")
  problem$work <- problem$model
  problem$optimum <- list(mu = solve(A, crossprod(X, y) / 2), scale = best)
  found <- gradient_moments(problem, problem$optimum)
  B <- A %*% best
  kappa <- problem$kurtosis
  closed <- c(sum(B^2), kappa * 5 / 3 * sum(B^2), kappa / 3 * (sum(diag(B))^2 + 2 * sum(B^2)))
  expect_equal(unname(found), closed, tolerance = 2e-4)
})

test_that("where the optimum is certified the noise there is computed, and no bound rests on draws", {
  set.seed(4)
  model <- noisy_logistic(3)
  control <- elvi_control(coordinates = "majorant", estimator = "reparam")
  g <- guarantee(model, base_laplace(), schedule_certified(500), control = control)
  expect_identical(g$constants$s2$how, "computed")
  expect_true(is.na(g$bounds[["estimated"]]))
  problem <- inputs(model, base_laplace(), coordinates = "majorant")
  by_draws <- estimated_noise(problem, problem$optimum, 20000L)
  expect_lt(max(abs(g$constants$s2$upper / 1.001 - by_draws$estimate) / by_draws$se), 4.5)
  expect_true(all(g$constants$s2$upper <= upper_noise(problem, radial_reach(problem$law))))
  expect_output(print(g), "noise at the optimum is computed by quadrature")
  # a flat prior has no certificate, so neither has the noise
  flat <- guarantee(model_glm(model$rows$X, model$rows$y, prior = flat()), base_laplace(), schedule_fixed(500), control = control)
  expect_identical(flat$constants$s2$how, "bounded")
})

test_that("too many rows and tails that reach too far are left to the other bounds", {
  set.seed(5)
  problem <- inputs(noisy_logistic(2), base_gaussian())
  expect_null(gradient_moments(problem, problem$optimum, most_rows = 26))
  heavy <- inputs(noisy_logistic(2), base_student(4.3))
  expect_null(gradient_moments(heavy, heavy$optimum))
})

test_that("what is not known of the optimum is paid for: nothing where it is exact, all where no strong convexity is known", {
  set.seed(6)
  X <- matrix(rnorm(60), 20)
  flat_gaussian <- model_glm(X, rnorm(20), gaussian(), prior = flat(), dispersion = 2)
  expect_equal(known_alpha(flat_gaussian), min(eigen(crossprod(X) / 2)$values), tolerance = 1e-8)
  expect_identical(known_alpha(model_glm(X, rbinom(20, 1, 0.5), prior = flat())), 0)
  for (base in list(base_laplace(), base_uniform())) {
    noise <- function(model, certificate) {
      problem <- inputs(model, base, coordinates = "raw")
      best <- problem$optimum
      best$certificate <- certificate
      computed_noise(problem, best, radial_reach(problem$law))
    }
    exact <- noise(flat_gaussian, 0)
    expect_gt(noise(flat_gaussian, 1e-3)[["Sigma"]], exact[["Sigma"]])
    expect_lt(noise(flat_gaussian, 1e-3)[["Sigma"]], 2 * exact[["Sigma"]])
    # without strong convexity the optimum may be anywhere, and draws of an unbounded base far out
    far <- noise(model_glm(X, rbinom(20, 1, 0.5), prior = flat()), 1e-3)[["Sigma"]]
    expect_identical(is.finite(far), base$kind == "uniform")
  }
})
