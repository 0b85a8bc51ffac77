gaussian_target <- function(V, m, names = NULL) {
  P <- solve(V)
  model_density(value = function(x) sum((x - m) * (P %*% (x - m))) / 2, gradient = function(x) drop(P %*% (x - m)),
                dim = length(m), names = names)
}

test_that("starting points are draws of the fit and the metric its covariance", {
  V <- matrix(c(4, 1, 1, 1), 2)
  set.seed(4)
  fit <- elvi(gaussian_target(V, c(3, -1), c("a", "b")))
  start <- init_values(fit, chains = 3)
  expect_length(start, 3)
  expect_named(start[[1]], c("a", "b"))
  expect_equal(do.call(rbind, start), unclass(as.matrix(fit, draws = 3)), ignore_attr = TRUE)
  expect_false(identical(init_values(fit, 2, seed = 9), init_values(fit, 2)))
  metric <- inverse_metric(fit)
  expect_equal(metric, V, tolerance = 0.05, ignore_attr = TRUE)
  expect_equal(inverse_metric(fit, "diagonal"), diag(metric))
})

test_that("a Stan model starts from lists of its own parameters", {
  skip_on_cran()
  skip_if_not_installed("rstanarm")
  run <- suppressWarnings(rstanarm::stan_glm(mpg ~ wt, data = mtcars, chains = 1, iter = 200, refresh = 0, seed = 3))
  set.seed(2)
  fit <- suppressWarnings(elvi(model_stan(run)))
  start <- init_values(fit, 2)
  x <- as.matrix(fit, draws = 2)
  # back on the unconstrained scale they are the draws
  expect_equal(rstan::unconstrain_pars(run$stanfit, start[[2]]), unname(x[2, ]), tolerance = 1e-6)
})

test_that("other fits are refused", {
  expect_error(init_values(3), class = "elvi_error_argument")
  fit <- elvi(mpg ~ wt, mtcars)
  expect_error(inverse_metric(fit), "hyperparameters", class = "elvi_error_argument")
})

test_that("parameters of a density that were integrated over are among the starting points", {
  t <- normal_groups(6, 3)
  model <- model_density(t$value, t$gradient, dim = t$dim, names = t$names, hyper = "log_tau")
  set.seed(1)
  fit <- suppressWarnings(elvi(model))
  expect_identical(fit$method, "integrated")
  expect_named(init_values(fit, 2)[[2]], t$names)
  metric <- inverse_metric(fit)
  expect_identical(rownames(metric), t$names)
  expect_equal(inverse_metric(fit, "diagonal"), diag(metric), tolerance = 1e-6)
})
