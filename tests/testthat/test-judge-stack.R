two_places <- function() two_normals(c(0.7, 0.3), c(3, -3), c(1, 0.5))

stacked <- function() {
  set.seed(1)
  expect_no_warning(elvi(two_places(), tol = 0.01, combine = "stack"))
}

test_that("a stack has the weights, moments and draws of the mixture", {
  skip_on_cran()
  fit <- stacked()
  expect_equal(sort(fit$stack$weights), c(0.3, 0.7), tolerance = 0.03)
  expect_equal(unname(coef(fit)), rep(0.7 * 3 - 0.3 * 3, 2), tolerance = 0.1)
  V <- 0.7 * diag(2) + 0.3 * diag(0.25, 2) + 0.7 * 0.3 * 36
  expect_equal(unname(vcov(fit)), V, tolerance = 0.03)
  expect_equal(unname(fit$Sigma %*% fit$Sigma), V, tolerance = 0.03)
  x <- as.matrix(fit, draws = 5000)
  expect_equal(mean(x[, 1] > 0), 0.7, tolerance = 0.04)
  expect_identical(as.matrix(fit, draws = 5), x[1:5, ])
  expect_equal(mean(as.matrix(fit, draws = 5000, resample = FALSE)[, 1] > 0), 0.7, tolerance = 0.04)
  # the target's log constant is log(2 pi), and the mixture is the target
  set.seed(2)
  expect_equal(elbo(fit)$estimate, log(2 * pi), tolerance = 0.02)
  expect_lt(pareto_k(fit)$k, 0.7)
  expect_output(print(fit), "Stack of 2 starts")
  expect_output(print(summary(fit)), "Log evidence")
})

test_that("without the stack, the other place is an objection though k-hat is content", {
  skip_on_cran()
  set.seed(1)
  expect_warning(fit <- elvi(two_places(), tol = 0.01), "ended at a different place", class = "elvi_warning_verdict")
  expect_lt(fit$verdict$k, 0.5)
  expect_gt(fit$verdict$spread, 2)
  expect_output(print(pareto_k(fit)), "R-hat over starts")
})

test_that("its density integrates to 1", {
  stack <- list(weights = c(0.2, 0.8), parts = list(list(mu = -1, root = matrix(0.5)), list(mu = 2, root = matrix(1.5))))
  expect_equal(integrate(function(x) exp(mixture_log_density(stack, law_of(base_gaussian(), 1), rbind(x))), -30, 30)$value, 1, tolerance = 1e-6)
})

test_that("without other places there is nothing to stack, and what cannot be stacked is refused", {
  skip_on_cran()
  set.seed(1)
  fit <- elvi(model_density(function(x) sum(x^2), function(x) 2 * x, dim = 2), tol = 0.05, combine = "stack")
  expect_null(fit$stack)
  expect_error(elvi(model_quadratic(diag(2)), combine = "stack", method = "mpsgd"), "combine", class = "elvi_error_argument")
  expect_error(elvi(two_places(), base_laplace(), combine = "stack"), "combine", class = "elvi_error_argument")
  expect_error(elvi(two_places(), combine = "stack", control = elvi_control(scale = "diagonal")), "combine",
               class = "elvi_error_argument")
  expect_error(elvi(two_places(), combine = "mix"), "combine", class = "elvi_error_argument")
})
