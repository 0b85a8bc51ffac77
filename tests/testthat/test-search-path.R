test_that("the path goes downhill to the mode, and knows the curvature of a quadratic", {
  d <- 40
  h <- seq(0.5, 20, length.out = d)
  W <- matrix(sin(1:(2 * d)), d) * 2
  A <- diag(h) + tcrossprod(W)
  model <- model_density(function(x) sum(x * (A %*% x)) / 2 - sum(x), function(x) drop(A %*% x) - 1, dim = d)
  path <- quasi_newton_path(guarded_target(model), numeric(d))
  f <- vapply(path$points, function(p) p$value, 0)
  expect_true(all(diff(f) <= 0))
  end <- path$points[[length(f)]]
  expect_equal(end$x, solve(A, rep(1, d)), tolerance = 1e-3)
  # the inverse curvature along the last moves satisfies the secant equation
  last <- path$pairs[[length(path$pairs)]]
  expect_equal(two_loops(last$y, path$pairs), last$s, tolerance = 1e-8)
  known <- path_lowrank(path, length(f), d)
  expect_true(all(known$sd > 0) && all(is.finite(known$variance)))
  expect_lt(median(abs(log(known$sd * sqrt(diag(A))))), 1)
})
