# Moments of the hyperparameters by importance sampling of the evidence itself, from a wide distribution about those of a fit: no
# coordinates, surrogate or tilted weights.
reference_by_sampling <- function(setup, theta, weight, n = 4000L) {
  proposal <- next_proposal(t(theta), weight)
  proposal[c("left", "right")] <- lapply(proposal[c("left", "right")], `*`, 1.25)
  points <- proposed_points(proposal, quasi_random(n / 2, ncol(theta)))
  found <- evidence_at(setup, lapply(seq_len(n), function(i) points[, i]))
  log_weight <- vapply(found, `[[`, 0, "value") - mixed_density(list(proposal), n, points)
  hyper_moments(list(values = shown_hyper(setup, t(points))), normalised(ifelse(is.finite(log_weight), log_weight, -Inf)))
}

# maps for a term of k coefficients, and log sds and partial correlations in rows
some_parts <- function(k) {
  R <- diag(k)
  R[upper.tri(R)] <- seq(2, -1, length.out = k * (k - 1) / 2)
  list(list(at = 1 + seq_len(k * (k + 1) / 2), k = k, levels = 10, combined = TRUE, to = covariance_map(R), from = covariance_map(solve(R)),
            error = seq(0.5, 1, length.out = k)))
}

some_theta <- function(k, n = 5) {
  set.seed(k)
  matrix(rnorm(n * (2 + k * (k + 1) / 2), 0, 0.7), n)
}

test_that("coordinates of a covariance are those of other combinations of the coefficients, and the way back is the inverse", {
  for (k in 2:4) {
    theta <- some_theta(k)
    parts <- some_parts(k)
    x <- to_coordinates(parts, theta)
    expect_equal(from_coordinates(parts, x)[, seq_len(ncol(x))], theta, tolerance = 1e-9)
    expect_identical(x[, -parts[[1L]]$at], theta[, -parts[[1L]]$at])
    term <- list(coefs = seq_len(k), correlated = TRUE)
    D <- term_covariance(term, theta[1L, parts[[1L]]$at])$D
    R <- diag(k)
    R[upper.tri(R)] <- seq(2, -1, length.out = k * (k - 1) / 2)
    expect_equal(exp(2 * x[1L, 1 + seq_len(k)]), diag(R %*% D %*% t(R)), tolerance = 1e-10)
  }
})

test_that("the volume is the Jacobian's determinant up to a constant, and its slope is of the whole", {
  for (k in 2:3) {
    parts <- some_parts(k)
    x <- to_coordinates(parts, some_theta(k))
    H <- ncol(x)
    change <- coordinate_slopes(parts, x)
    jacobian <- function(i) vapply(change, function(by) by[i, seq_len(H)], numeric(H))
    log_det <- vapply(seq_len(nrow(x)), function(i) as.numeric(determinant(jacobian(i))$modulus), 0)
    volume <- from_coordinates(parts, x)[, H + 1L]
    expect_equal(diff(volume), diff(log_det), tolerance = 1e-5)
    shift <- from_coordinates(parts, x + 1e-3 * rep(seq_len(H) == 3L, each = nrow(x)))[, H + 1L]
    expect_equal(change[[3L]][, H + 1L], (shift - volume) / 1e-3, tolerance = 0.01)
  }
})

test_that("an uncentred slope costs no accuracy", {
  skip_on_cran()
  skip_if_not_installed("nlme")
  d <- as.data.frame(nlme::Orthodont)
  fit <- suppressWarnings(elvi(distance ~ age + (age | Subject), d))
  setup <- nested_setup(fit$problem, base_gaussian())
  hyper <- hyper_moments(list(values = shown_hyper(setup, fit$posterior$hyper$theta)), fit$posterior$weight)
  grid <- reference_by_sampling(setup, fit$posterior$hyper$theta, fit$posterior$weight)
  expect_lt(max(abs(hyper$mean - grid$mean) / grid$sd), 0.2)
  expect_lt(max(abs(hyper$sd / grid$sd - 1)), 0.15)
  expect_lt(fit$nested$change$sd, 0.3)
})

test_that("a polynomial that grows where there are no points is cut", {
  z <- matrix(c(0, 3, -6, 0), 2)
  expect_true(all(surrogate_limit(z) - rowSums(z^2) / 2 <= 0.5))
  shape <- list(powers = simple_powers(2L), coefficients = c(0, 50, rep(0, nrow(simple_powers(2L)) - 1)))
  expect_equal(surrogate_at(shape, z), pmin(50 * flat_scores(z)[, 1L], surrogate_limit(z)))
})

test_that("the unit of a slope does not matter, however large", {
  d <- data.frame(g = rep(1:15, each = 8), x = rep(3:10, 15))
  d$y <- 2 + 0.3 * d$x + sin(7 * d$g) + 0.3 * cos(5 * d$g) * (d$x - 3) + 0.5 * sin(11 * seq_len(120))
  fit <- elvi(y ~ x + (x | g), data = d)
  expect_identical(fit$posterior$hyper$rule, "scores")
  sds <- as.data.frame(VarCorr(fit))$sdcor
  for (unit in c(1e-9, 1e9)) {
    other <- elvi(y ~ x + (x | g), data = transform(d, x = unit * x))
    expect_equal(as.data.frame(VarCorr(other))$sdcor * ifelse(seq_along(sds) == 2, unit, 1), sds, tolerance = 0.001)
  }
})
