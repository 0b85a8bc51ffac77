walk_data <- function(seed = 1, n = 25) {
  set.seed(seed)
  x <- sort(runif(n))
  d <- data.frame(x = rep(x, 2), g = rep(c("a", "b"), each = n), z = rnorm(2 * n))
  d$y <- sin(6 * d$x) + 0.3 * d$z + rnorm(2 * n, 0, 0.5)
  d$count <- rpois(2 * n, exp(0.5 + sin(6 * d$x)))
  d
}

test_that("walks have the structure, the null space and the scale they should have", {
  d <- walk_data()
  for (order in 1:2) {
    formula <- stats::as.formula(paste0("y ~ rw", order, "(x | g)"))
    term <- elvi_problem(formula, d, dispersion = 1)$terms[[1L]]
    expect_identical(ncol(term$structure$constraint), 2L * order)
    expect_record(term, 0.3)
    K <- term_dense_covariance(term, 0)
    expect_equal(exp(mean(log(diag(K)[1:25]))), 1, tolerance = 1e-6)
  }
  # equal steps: first differences are independent, with equal variances
  term <- elvi_problem(y ~ rw1(t), transform(d, t = rep(1:25, 2)), dispersion = 1)$terms[[1L]]
  steps <- diff(diag(25)) %*% term_dense_covariance(term, 0) %*% t(diff(diag(25)))
  expect_equal(steps, steps[1, 1] * diag(24), tolerance = 1e-6)
  # a walk of order 1 on uneven steps: variances in proportion to their length
  term <- elvi_problem(y ~ rw1(x), d, dispersion = 1)$terms[[1L]]
  steps <- diag(diff(diag(25)) %*% term_dense_covariance(term, 0) %*% t(diff(diag(25))))
  expect_equal(steps / diff(term$values), rep(steps[1] / diff(term$values)[1], 24), tolerance = 1e-5)
})

test_that("given hyperparameters, walks are the closed form, alone and together", {
  d <- walk_data()
  expect_closed_form(y ~ z + rw1(x), d, -0.2)
  expect_closed_form(y ~ z + rw2(x), d, -0.2)
  expect_closed_form(y ~ z + rw1(x | g), d, -0.2)
  # two terms that are free of the intercept only by their constraints
  expect_closed_form(y ~ rw1(x) + rw2(t), transform(d, t = c(1:30, 21:40)), c(-0.2, -0.5), tolerance = 1e-7)
  expect_closed_form(y ~ rw1(x) + (1 | g), d, c(-0.4, -0.2))
  expect_dense_optimum(count ~ z + rw1(x), d, poisson(), -0.3)
  expect_dense_optimum(count ~ rw2(x) + (1 | g), d, poisson(), c(-0.8, -0.3))
})

test_that("walks add to 0, in means and in draws, and do not depend on units", {
  d <- walk_data()
  fit <- elvi(count ~ z + rw1(x), d, family = poisson())
  walk <- grep("^rw1", fit$posterior$names)
  expect_lt(abs(sum(fit$mu[walk])), 1e-6)
  expect_lt(max(abs(rowSums(posterior_draws(fit$posterior, 20)$x[, walk]))), 1e-6)
  again <- elvi(count ~ z + rw1(x), transform(d, x = 1000 * x - 7), family = poisson())
  expect_equal(unname(again$mu), unname(fit$mu), tolerance = 1e-5)
  expect_output(print(fit), "rw1(x)", fixed = TRUE)
})

test_that("a walk of order 2 is what smoothing by second differences gives", {
  d <- walk_data()
  closed <- expect_closed_form(y ~ rw2(x), d, -0.2)
  term <- closed$setup$problem$terms[[1L]]
  D <- matrix(0, 23, 25)
  h <- diff(term$values)
  for (i in 1:23) D[i, i + 0:2] <- c(1 / h[i], -1 / h[i] - 1 / h[i + 1], 1 / h[i + 1]) / sqrt((h[i] + h[i + 1]) / 2)
  Q <- crossprod(D)
  expect_equal(term_matrix(term, 0), Q * term_matrix(term, 0)[1, 1] / Q[1, 1], tolerance = 1e-5)
})

test_that("walks interpolate with the variance of a bridge, and go on beyond their values", {
  d <- walk_data()
  fit <- elvi(y ~ rw1(x), d)
  x <- sort(unique(d$x))
  between <- predict(fit, data.frame(x = c(x[3], mean(x[3:4]), x[4])))
  expect_equal(between[[2]], mean(between[c(1, 3)]))
  # the walk with the new places among its values, on which there are no data
  more <- c(x[1] - 0.1, mean(x[3:4]), x[3] + 0.2 * (x[4] - x[3]), x[25] + c(0.1, 0.3))
  setup <- nested_setup(fit$problem, base_gaussian())
  term <- fit$problem$terms[[1L]]
  rows <- prediction_rows(fit, data.frame(x = more))
  hyper <- fit$posterior$hyper$values[1L, , drop = FALSE]
  wide <- walk_structure(sort(c(x, more)), 1L)
  Q <- matrix(0, 30, 30)
  Q[cbind(wide$row, wide$column)] <- Q[cbind(wide$column, wide$row)] <- wide$value
  at <- match(more, sort(c(x, more)))
  unit <- (term_matrix(term, 0)[1, 2] * (x[2] - x[1])) / (Q[at[1] + 1L, at[1] + 2L] * (x[2] - x[1]))
  expected <- diag(solve(Q[at, at])) / unit * hyper[[1L, "sd[rw1(x)]"]]^2
  expect_equal(drop(rows$new[[1L]]$variance(hyper)), expected, tolerance = 1e-4)
  expect_equal(as.matrix(rows$Z), -solve(Q[at, at], Q[at, -at]), tolerance = 1e-4, ignore_attr = TRUE)
  drawn <- posterior_linpred(fit, data.frame(x = more), draws = 2000)
  expect_equal(apply(drawn, 2, sd), predict(fit, data.frame(x = more), se.fit = TRUE)$se.fit, tolerance = 0.1)
  expect_error(elvi(y ~ rw1(x), d[1:2, ]), class = "elvi_error_term")
  expect_error(elvi(y ~ rw1(g), transform(d, g = g)), class = "elvi_error_term")
})
