test_that("a Laplace approximation is at the mode with the curvature there", {
  shape <- seq(2, 6, length.out = 5)
  model <- model_density(function(x) sum(exp(x) - shape * x), function(x) exp(x) - shape, dim = 5)
  set.seed(1)
  fit <- suppressMessages(elvi(model, method = "laplace"))
  expect_identical(fit$method, "laplace")
  expect_true(fit$converged)
  expect_equal(fit$mu, log(shape), tolerance = 1e-4, ignore_attr = TRUE)
  expect_equal(unname(fit$sd), 1 / sqrt(shape), tolerance = 1e-3)
  expect_equal(unname(coef(fit)), digamma(shape), tolerance = 0.05)   # corrected by the verdict's weights
  expect_output(print(fit), "Laplace approximation")
  expect_output(print(summary(fit)), "gradient evaluations")
})

test_that("beyond 400 parameters it has the Hessian's pattern, and so has the best gaussian along a path", {
  t <- walk(450)
  model <- model_density(t$value, t$gradient, dim = 450)
  for (method in c("laplace", "pathfinder")) {
    set.seed(1)
    fit <- elvi(model, method = method)
    expect_true(fit$converged)
    expect_lt(max(abs(fit$mu - t$mean) / t$sd), 0.01)
    expect_lt(max(abs(log(fit$sd / t$sd))), 0.01)
  }
})

test_that("a density without a mode has no Laplace approximation, which is said", {
  t <- normal_groups(8, 2)
  model <- model_density(t$value, t$gradient, dim = t$dim, names = t$names)
  set.seed(1)
  said <- character()
  fit <- withCallingHandlers(elvi(model, method = "laplace"), warning = function(w) {
    said <<- c(said, conditionMessage(w))
    invokeRestart("muffleWarning")
  }, message = function(m) invokeRestart("muffleMessage"))
  expect_false(fit$converged)
  expect_match(said[1], "No mode was found")
  set.seed(1)
  expect_true(is.finite(suppressMessages(suppressWarnings(elvi(model, method = "pathfinder")))$search$objective))
})

test_that("what these methods have no use for is refused", {
  model <- model_density(function(x) sum(x^2) / 2, function(x) x, dim = 2)
  expect_error(elvi(model, method = "laplace", budget = 100), "budget", class = "elvi_error_argument")
  expect_error(elvi(model, method = "pathfinder", base = base_laplace()), "base", class = "elvi_error_argument")
  expect_error(elvi(model_glm(cbind(1, 1:5), c(0, 1, 0, 1, 1)), method = "laplace"), "method", class = "elvi_error_argument")
})
