logistic_value <- function(x) sum((x - 1:3)^2 * c(1, 2, 4)) / 2 + log(exp(x[1] + x[2]) + exp(-x[1] - x[2]))
logistic_gradient <- function(x) c(1, 2, 4) * (x - 1:3) + c(1, 1, 0) * tanh(x[1] + x[2])
logistic_hessian <- function(x) diag(c(1, 2, 4)) + outer(c(1, 1, 0), c(1, 1, 0)) / cosh(x[1] + x[2])^2

test_that("without a gradient RTMB differentiates", {
  skip_if_not_installed("RTMB")
  expect_silent(model <- model_density(logistic_value, dim = 3))
  expect_identical(model$derivatives, "tape")
  x <- matrix(c(0, 0, 0, 1, -2, 0.5), 3)
  expect_equal(model$gradient(x), c(logistic_gradient(x[, 1]), logistic_gradient(x[, 2])), tolerance = 1e-10)
  expect_equal(model$hessian(x[, 2]), logistic_hessian(x[, 2]), tolerance = 1e-10)
  expect_output(print(model), "automatic, by package 'RTMB'")
  # the fit is that of the gradient by hand
  set.seed(1)
  fit <- elvi(model, budget = 1000)
  set.seed(1)
  by_hand <- elvi(model_density(logistic_value, logistic_gradient, 3, hessian = logistic_hessian), budget = 1000)
  expect_equal(fit$mu, by_hand$mu, tolerance = 1e-6)
})

test_that("functions of blocks are taped too", {
  skip_if_not_installed("RTMB")
  model <- model_density(function(x) x[1, ]^2 / 8 + (x[2, ] - 0.3 * x[1, ]^2)^2 / 2, dim = 2, vectorized = TRUE)
  expect_identical(model$derivatives, "tape")
  x <- cbind(c(1, 2), c(-1, 0.5))
  expect_equal(matrix(model$gradient(x), 2),
               rbind(x[1, ] / 4 - 0.6 * x[1, ] * (x[2, ] - 0.3 * x[1, ]^2), x[2, ] - 0.3 * x[1, ]^2))
})

test_that("what cannot be taped is differentiated numerically, and the warning says why", {
  skip_if_not_installed("RTMB")
  branches <- function(x) if (x[1] > 0) sum(x^2) else 2 * sum(x^2)
  expect_warning(model <- model_density(branches, dim = 2), "'RTMB'", class = "elvi_warning_slow_gradient")
  expect_identical(model$derivatives, "differences")
  expect_error(model_density(branches, dim = 2, derivatives = "tape"), "RTMB", class = "elvi_error_argument")
  # as.double() drops what the tape remembers, so the tape has constants
  constant <- function(x) sum(as.double(unclass(x))^2)
  expect_warning(model <- model_density(constant, dim = 2), class = "elvi_warning_slow_gradient")
  expect_equal(model$gradient(matrix(c(1, 2))), c(2, 4), tolerance = 1e-7)
})

test_that("a tape is made again in another session", {
  skip_if_not_installed("RTMB")
  skip_on_cran()
  model <- unserialize(serialize(model_density(logistic_value, dim = 3), NULL))
  expect_equal(model$gradient(matrix(c(1, 2, 3))), logistic_gradient(c(1, 2, 3)), tolerance = 1e-10)
})

test_that("a Hessian is used in place of differences, and checked", {
  calls <- 0
  counted <- function(x) {
    calls <<- calls + 1
    logistic_hessian(x)
  }
  model <- model_density(logistic_value, logistic_gradient, 3, hessian = counted)
  target <- guarded_target(model)
  x <- c(0.5, 1, 2)
  point <- list(x = x, gradient = logistic_gradient(x))
  before <- calls
  A <- laplace_root(target, point)
  expect_identical(calls, before + 1)
  expect_identical(target$account$evaluations, 0)
  expect_equal(solve(tcrossprod(A)), logistic_hessian(x), tolerance = 1e-10)
  # one that fails is replaced by differences
  failing <- guarded_target(model_density(logistic_value, logistic_gradient, 3, hessian = function(x) stop("none")))
  expect_equal(laplace_root(failing, point) %*% t(laplace_root(failing, point)), solve(logistic_hessian(x)), tolerance = 1e-4)
  sparse <- model_density(logistic_value, logistic_gradient, 3, hessian = function(x) Matrix::Matrix(logistic_hessian(x), sparse = TRUE))
  expect_equal(sparse$hessian(x), logistic_hessian(x))
  expect_error(model_density(logistic_value, logistic_gradient, 3, hessian = function(x) 1), "3 x 3", class = "elvi_error_argument")
  expect_error(model_density(logistic_value, logistic_gradient, 3, hessian = function(x) matrix(1:9 + 0, 3)), "symmetric",
               class = "elvi_error_argument")
})
