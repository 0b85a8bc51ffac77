# a funnel or a banana as one part
bent <- function(scale = matrix(0, 3, 2), curve = matrix(0, 3, 3)) {
  list(mu = c(1, -1, 0), root = rbind(c(2, 0, 0), c(0.5, 1, 0), c(-1, 0.3, 0.7)), curve = curve, scale = scale, range = c(-3, 3))
}

funnel_draws <- function(n, d, sd = 1) {
  v <- rnorm(n, 0, sd)
  rbind(v, matrix(rnorm((d - 1) * n), d - 1) * rep(exp(v / 2), each = d - 1))
}

test_that("the density of a bent part is that of its points", {
  set.seed(1)
  part <- bent(scale = cbind(c(0.2, 0.5, -0.1), c(-1, 0.3, 0)), curve = cbind(c(0, 0.4, 0.5), 0, c(0, 1, -0.5)))
  z <- matrix(rnorm(3 * 200), 3)
  x <- points_of(part, z)
  at <- log_density_of(part, x, function(r) -r^2 / 2)
  # change of variables, the Jacobian by differences
  jacobian <- function(z) {
    columns <- vapply(1:3, function(k) {
      h <- 1e-5 * (1:3 == k)
      drop(points_of(part, matrix(z + h)) - points_of(part, matrix(z - h))) / 2e-5
    }, numeric(3))
    log(abs(det(columns)))
  }
  inner <- which(abs(z[1, ]) < 2.9)   # no corner
  expect_equal(at[inner], (-colSums(z^2) / 2 - apply(z, 2, jacobian))[inner], tolerance = 1e-6)
})

test_that("an ellipse is a part without a bend", {
  part <- list(mu = c(1, 2), root = rbind(c(2, 0), c(1, 0.5)))
  x <- cbind(c(0, 0), c(3, 1))
  V <- tcrossprod(part$root)
  gaussian <- apply(x - part$mu, 2, function(a) -sum(a * solve(V, a)) / 2) - log(det(V)) / 2
  expect_equal(log_density_of(part, x, function(r) -r^2 / 2), gaussian)
})

test_that("one part is a funnel that no ellipse follows, in few dimensions and in many", {
  set.seed(1)
  for (d in c(5, 40)) {
    x <- funnel_draws(2000, d)
    mixture <- mixture_to(x, rep(1 / 2000, 2000), list(mu = numeric(d), root = diag(d)), most = 1L)
    expect_length(mixture$weights, 2)
    fresh <- funnel_draws(4000, d)
    log_p <- -fresh[1, ]^2 / 2 - colSums(fresh[-1, ]^2) * exp(-fresh[1, ]) / 2 - (d - 1) * fresh[1, ] / 2
    log_q <- log_density_of(mixture$parts[[1]], fresh, function(r) -r^2 / 2)
    # Kullback's divergence from the truth to the part: an ellipse is d / 8 nats or more away
    expect_lt(mean(log_p - log_q), 0.1 + d / 100)
    ellipse <- ellipse_under(x, rep(1 / 2000, 2000))
    expect_gt(mean(log_p - log_density_of(ellipse, fresh, function(r) -r^2 / 2)), d / 8)
  }
})

test_that("one part is a banana", {
  set.seed(2)
  x1 <- rnorm(3000)
  x <- rbind(x1, x1^2 + rnorm(3000))
  mixture <- mixture_to(x, rep(1 / 3000, 3000), list(mu = c(0, 1), root = diag(2)), most = 1L)
  part <- mixture$parts[[1]]
  log_p <- -x[1, ]^2 / 2 - (x[2, ] - x[1, ]^2)^2 / 2
  expect_lt(mean(log_p - log_density_of(part, x, function(r) -r^2 / 2)), 0.02)
})

test_that("parts are found again", {
  set.seed(1)
  z <- cbind(matrix(rnorm(2000, -3), 2), matrix(rnorm(1000, 3, 0.5), 2))
  found <- parts_of(z, rep(1 / 1500, 1500), 2L, c(1, 1) / sqrt(2), steps = 30L)
  order <- order(vapply(found$parts, function(part) part$mu[1], 0))
  expect_equal(found$weights[order], c(2, 1) / 3, tolerance = 0.01)
  centre <- vapply(found$parts[order], function(part) rowMeans(points_of(part, matrix(rnorm(20000), 2))), numeric(2))
  expect_equal(centre, cbind(c(-3, -3), c(3, 3)), tolerance = 0.03)
})

test_that("covariances that so few draws cannot tell are round, others are kept", {
  set.seed(1)
  z <- matrix(rnorm(30 * 300), 30)
  told <- told_covariance(tcrossprod(z) / 300, 300)
  expect_equal(told, diag(mean(z^2), 30), tolerance = 0.02)
  z[1, ] <- 5 * z[1, ]
  expect_equal(told_covariance(tcrossprod(z) / 300, 300)[1, 1], 25, tolerance = 0.2)
  expect_equal(told_covariance(diag(c(1, 3)), 3), diag(2, 2))
})

test_that("a direction is turned to the first axis by a reflection", {
  u <- c(1, 2, -2) / 3
  turn <- turned_to(u)
  expect_equal(drop(turn %*% u), c(1, 0, 0))
  expect_equal(crossprod(turn), diag(3))
  expect_identical(turned_to(c(1, 0)), diag(2))
})

test_that("a funnel is bent along its axis, a banana along its chord", {
  set.seed(1)
  wide <- list(mu = numeric(6), root = diag(6))
  w <- rep(1 / 4000, 4000)
  x <- funnel_draws(4000, 6)
  expect_gt(abs(bent_direction(x, w, wide, diag(6))[1]), 0.98)
  x <- matrix(rnorm(6 * 4000), 6)
  x[2, ] <- x[3, ]^2 - 1 + x[2, ]
  expect_gt(abs(bent_direction(x, w, wide, diag(6))[3]), 0.98)
})

test_that("log scales are found by likelihood, and only what is told", {
  set.seed(1)
  t <- rnorm(4000)
  terms <- bend_terms(t, c(-5, 5))
  size <- (exp(0.3 + 0.5 * t) * rnorm(4000))^2
  w <- rep(1 / 4000, 4000)
  expect_equal(log_spread(terms, size, w, 4000), c(0.3, 0.5, 0), tolerance = 0.1)
  expect_identical(log_spread(terms, rnorm(4000)^2, w, 4000)[2:3], c(0, 0))
})

test_that("points are picked as often as they weigh", {
  expect_identical(systematic(c(0.5, 0.25, 0, 0.25), 8), rep(c(1L, 2L, 4L), c(4, 2, 2)))
  expect_identical(row_max(rbind(c(1, 3), c(5, 2))), c(3, 5))
})

test_that("the wide part is wider in fewer dimensions", {
  expect_identical(wide_by(1), 4)
  expect_equal(wide_by(5), 20^0.2)
  expect_identical(wide_by(50), 1.5)
})
