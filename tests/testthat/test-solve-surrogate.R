test_that("terms of the polynomial: number, values and derivatives", {
  powers <- rbind(simple_powers(4L), product_powers(4L))
  expect_identical(anyDuplicated(powers), 0L)
  degree <- rowSums(powers)
  expect_equal(as.vector(table(degree)), c(4, 10, 20, 4 + 6 + 12))   # all of degree 1 to 3
  set.seed(1)
  z <- matrix(rnorm(20), 5)
  rows <- surrogate_rows(z, powers)
  expect_identical(dim(rows), c(25L, nrow(powers) + 1L))
  for (j in 1:4) {
    by <- 1e-5 * (col(z) == j)
    slope <- (surrogate_features(z + by, powers) - surrogate_features(z - by, powers)) / 2e-5
    expect_equal(rows[5 * j + 1:5, -1L], slope, tolerance = 1e-7)
  }
  wide <- surrogate_features(matrix(1e6, 1L, 4L), powers)
  expect_lt(max(abs(wide)), 100)   # bounded, however far out
})

test_that("Hermite's polynomials have variance 1, and each the derivative of the one before", {
  t <- qnorm(ppoints(20000))
  h <- hermite_basis(matrix(t))
  expect_equal(crossprod(h[, 1:4]) / length(t), diag(4), tolerance = 0.02, ignore_attr = TRUE)
  t <- cbind(c(-1, 0.3, 2), c(0.5, 0, 3))
  expect_equal(hermite_slopes(hermite_basis(t)), (hermite_basis(t + 1e-6) - hermite_basis(t - 1e-6))[, -1L] / 2e-6, tolerance = 1e-6)
})

test_that("a term is the product of the polynomials that its powers name", {
  z <- cbind(c(0.3, -1), c(2, 0.1), c(-0.4, 0.7))
  flat <- 3 * tanh(z / 3)
  second <- (flat[, 2]^2 - 1) / sqrt(2)
  got <- surrogate_features(z, rbind(c(0, 2, 0), c(1, 2, 0), c(1, 1, 1), c(3, 0, 0)))
  expect_equal(got, cbind(second, flat[, 1] * second, flat[, 1] * flat[, 2] * flat[, 3], (flat[, 1]^3 - 3 * flat[, 1]) / sqrt(6)),
               ignore_attr = TRUE)
})

test_that("the nearest point is found, the first of equals", {
  set.seed(5)
  z <- matrix(rnorm(600), 300)
  points <- matrix(rnorm(14), 7)
  away <- vapply(1:7, function(j) rowSums(sweep(z, 2L, points[j, ])^2), numeric(300))
  expect_identical(.Call(elvi_r_nearest, z, points), apply(away, 1L, which.min))
  expect_identical(.Call(elvi_r_nearest, z, points[c(1, 1), ]), rep(1L, 300))
})

known_density <- function(log_p, slope, v, part) {
  list(v = v, log_density = apply(v, 1L, log_p), slope = t(apply(v, 1L, slope)), usable = rep(TRUE, nrow(v)), part = part)
}

test_that("the surrogate of a density that is a polynomial's is that density", {
  set.seed(3)
  v <- matrix(rnorm(180, sd = 1.3), 60)
  flat <- function(x) 3 * tanh(x / 3)
  log_p <- function(x) -sum(x^2) / 2 + 5 + 0.2 * flat(x[1]) * flat(x[2])^2 - 0.3 * flat(x[3])
  slope <- function(x) {
    by <- 1 - tanh(x / 3)^2
    -x + c(0.2 * flat(x[2])^2 * by[1], 0.4 * flat(x[1]) * flat(x[2]) * by[2], -0.3 * by[3])
  }
  points <- known_density(log_p, slope, v, rep_len(0:3, 60))
  sample <- surrogate_sample(3L)
  shape <- fitted_surrogate(points, list(centre = numeric(3), root = diag(3)), sample, rich = TRUE)
  at <- matrix(c(0, 1, -2, 0.5, 3, 1), 2, byrow = TRUE)
  expect_equal(surrogate_at(shape, at) - rowSums(at^2) / 2 + shape$top, apply(at, 1L, log_p), tolerance = 0.005)
  # a second opinion on moments and mass: the trapezoid rule
  grid <- as.matrix(expand.grid(rep(list(seq(-6, 6, by = 0.3)), 3)))
  p <- exp(apply(grid, 1L, log_p))
  expect_equal(shape$log_total, log(sum(p) * 0.3^3), tolerance = 0.002)
  expect_equal(drop(shape$weight %*% shape$v), drop(p %*% grid) / sum(p), tolerance = 0.02, ignore_attr = TRUE)
  # a fourth of the points by half: nothing changes where the polynomial fits
  expect_equal(refit_shape(shape, 2L)$log_total, shape$log_total, tolerance = 0.001)
})

test_that("the reference moves to where the density is", {
  set.seed(4)
  Q <- matrix(c(4, 1, 0, 1, 2, 0.5, 0, 0.5, 1), 3)
  m <- c(1, -1, 0.5)
  v <- matrix(rnorm(300), 100)
  points <- known_density(function(x) -sum((x - m) * (Q %*% (x - m))) / 2, function(x) drop(-Q %*% (x - m)), v, rep_len(0:3, 100))
  shape <- score_surrogate(points, list(centre = numeric(3), root = 1.1 * diag(3), wide = 1.1), surrogate_sample(3L), TRUE)
  got <- moment_proposal(shape$v, shape$weight, wide = 1)
  expect_equal(got$centre, m, tolerance = 0.03)
  expect_equal(got$root %*% got$root, solve(Q), tolerance = 0.05)
  expect_equal(shape$log_total, 1.5 * log(2 * pi) - log(det(Q)) / 2, tolerance = 0.01)
})
