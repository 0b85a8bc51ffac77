# The smoothness L a run uses, and where it came from.

A <- matrix(c(5, 1, 0.3, 1, 2, -0.2, 0.3, -0.2, 0.7), 3)
m <- c(1, -1, 2)
largest <- max(eigen(A)$values)
as_density <- function(...) {
  model_density(function(x) colSums((x - m) * (A %*% (x - m))) / 2, function(x) A %*% (x - m), dim = 3, vectorized = TRUE, ...)
}
smoothness_of <- function(model, ..., base = base_gaussian()) {
  control <- elvi_control(...)
  work <- whitened_model(model, control$coordinates, control$scale)
  run_smoothness(model, work, law_of(base, model$dim), control)
}

test_that("on a quadratic given as functions the estimate is the largest eigenvalue times the safety", {
  for (safety in c(1, 2, 3.5)) {
    raw <- smoothness_of(as_density(), coordinates = "raw", smoothness_safety = safety)
    expect_equal(raw$L, safety * largest, tolerance = 1e-5)
    expect_match(raw$source, "estimated", fixed = TRUE)
    expect_match(raw$source, sprintf("safety factor %g", safety), fixed = TRUE)
    # whitened, its curvature is 1 everywhere
    expect_equal(smoothness_of(as_density(), smoothness_safety = safety)$L, safety, tolerance = 1e-5)
  }
  # eigenvalues close together are told apart more slowly, and never overestimated
  D <- diag(diag(A)^-0.5)
  B <- D %*% A %*% D
  close <- model_density(function(x) sum(x * (B %*% x)) / 2, function(x) drop(B %*% x), dim = nrow(B))
  ratio <- smoothness_of(close, coordinates = "raw", smoothness_safety = 1)$L / max(eigen(B)$values)
  expect_lte(ratio, 1 + 1e-6)
  expect_gt(ratio, 0.99)
  # a mean field's mu is whitened all the way too
  expect_equal(smoothness_of(as_density(), scale = "diagonal", smoothness_safety = 1)$L, 1, tolerance = 1e-5)
})

test_that("the label tells how many points were used, and summary() shows it", {
  set.seed(1)
  fit <- suppressMessages(elvi(as_density(), budget = 200))
  expect_identical(fit$smoothness_source, "estimated at 16 points, safety factor 2")
  expect_output(print(summary(fit)), "estimated at 16 points, safety factor 2", fixed = TRUE)
  expect_equal(fit$feasible$scale_min, 1 / sqrt(fit$smoothness))
})

test_that("an estimate does not touch R's generator", {
  set.seed(1)
  before <- .Random.seed
  smoothness_of(as_density(), coordinates = "raw")
  expect_identical(.Random.seed, before)
})

test_that("the estimate looks at draws from the Laplace approximation, not at the mode alone", {
  # curvature 1 + 3 x^2 of x^2/2 + x^4/4: 1 at the mode, more at every draw
  quartic <- model_density(function(x) x^2 / 2 + x^4 / 4, function(x) x + x^3, dim = 1)
  estimate <- smoothness_of(quartic, coordinates = "raw", smoothness_safety = 1)$L
  z <- draw_base(law_of(base_gaussian(), 1), c(0, 0), 15)
  expect_equal(estimate, 1 + 3 * max(z^2), tolerance = 1e-4)
})

test_that("poisson models, which have none, run on an estimate in both coordinates", {
  data <- busy_glm("poisson", n = 40)
  expect_true(is.na(data$model$smoothness))
  best <- elvi_optimum(data$model)
  for (coordinates in c("whitened", "raw")) {
    set.seed(2)
    fit <- suppressMessages(elvi(data$model, schedule = schedule_fixed(10000, "case2"),
                                 control = elvi_control(coordinates = coordinates, average = "last")))
    expect_match(fit$smoothness_source, "estimated", fixed = TRUE)
    # it covers the curvature at the mode
    work <- if (is.null(fit$work)) fit$model else fit$work
    mode <- find_mode(data$model)
    H <- if (coordinates == "raw") mode$hessian else diag(3)
    expect_gte(fit$smoothness, 2 * max(eigen(H)$values) * (1 - 1e-4))
    expect_identical(fit$status, "finished")
    start <- to_user(work, "symmetric", fit$start$mu, fit$start$scale)
    before <- objective(list(mu = start$mu, Sigma = start$scale), data$model)$estimate
    after <- objective(fit)$estimate
    expect_lt(after - best$objective, 0.5 * (before - best$objective) + 0.01)
  }
})

test_that("a smoothness given by the user is used, and mapped to whitened coordinates", {
  models <- list(density = as_density(), known = as_density(smoothness = 7), quadratic = model_quadratic(A, m),
                 glm = busy_glm("logit")$model)
  for (name in names(models)) {
    raw <- smoothness_of(models[[name]], coordinates = "raw", smoothness = 11)
    expect_identical(raw, list(L = 11, source = "given in elvi_control()"), info = name)
    for (kind in c("symmetric", "diagonal")) {
      work <- whitened_model(models[[name]], "whitened", kind)
      # of the coordinates in which mu is whitened, for a mean field by the metric of its steps
      root <- if (kind == "diagonal") work$A * solve(t(work$mu_root)) else as_root(work$A)
      stretch <- norm(root, "2")
      whitened <- smoothness_of(models[[name]], scale = kind, smoothness = 11)
      expect_equal(whitened$L, 11 * stretch^2, tolerance = 1e-12, info = name)
      expect_identical(whitened$source, "given in elvi_control()")
    }
  }
  set.seed(1)
  fit <- suppressMessages(elvi(models$density, schedule = schedule_fixed(100, "case2"),
                               control = elvi_control(coordinates = "raw", smoothness = 11)))
  expect_equal(fit$plan$step0, 1 / 22)
})

test_that("a model's own smoothness comes next", {
  expect_identical(smoothness_of(as_density(smoothness = 7), coordinates = "raw"), list(L = 7, source = "given"))
  work <- whitened_model(as_density(smoothness = 7), "whitened", "symmetric")
  # a bound: 7 |A|^2 >= the curvature 1
  expect_equal(smoothness_of(as_density(smoothness = 7))$L, 7 * norm(work$A, "2")^2, tolerance = 1e-6)
  expect_gte(smoothness_of(as_density(smoothness = 7))$L, 1)
  expect_equal(smoothness_of(model_quadratic(A, m), coordinates = "raw")$L, largest, tolerance = 1e-12)
  expect_equal(smoothness_of(model_quadratic(A, m))$L, 1, tolerance = 1e-12)
  expect_equal(smoothness_of(model_quadratic(A, m), scale = "diagonal")$L, 1, tolerance = 1e-12)
})

test_that("what cannot be estimated is asked for", {
  flat_target <- model_density(function(x) 0, function(x) c(0, 0), dim = 2)
  e <- expect_error(suppressMessages(elvi(flat_target, budget = 100)), class = "elvi_error_smoothness")
  expect_identical(e$argument, "smoothness")
  expect_match(conditionMessage(e), "elvi_control() a `smoothness`", fixed = TRUE)
})

test_that("settings of the smoothness are checked", {
  expect_snapshot({
    cat(refusal(elvi_control(smoothness_safety = 0.9), "smoothness_safety"))
    cat(refusal(elvi_control(smoothness_safety = NA), "smoothness_safety"))
    cat(refusal(elvi_control(smoothness = 0), "smoothness"))
    cat(refusal(elvi_control(smoothness = c(1, 2)), "smoothness"))
  })
})

test_that("in the coordinates of a gaussian that was found the largest curvature is at least the mean one", {
  # f is nearly linear about its gaussian: the logarithm of a gamma variable of shape 0.01
  model <- model_density(function(x) exp(x) - 0.01 * x, function(x) exp(x) - 0.01, dim = 1)
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(model, tol = 0.1, budget = 2000)))
  expect_gte(fit$smoothness, 1)
  expect_error(largest_curvature(model_density(function(x) x, function(x) x^0, dim = 1), matrix(0)), class = "elvi_error_smoothness")
})
