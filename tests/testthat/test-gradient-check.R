quartic <- function(gradient, dim = 3) {
  model_density(function(x) sum(x^2) / 2 + sum(x^4) / 4, gradient, dim = dim)
}
right <- function(x) x + x^3

test_that("a right gradient is left alone, in every coordinates and scale", {
  for (coordinates in c("raw", "whitened")) for (scale in c("symmetric", "triangular", "diagonal")) {
    control <- elvi_control(coordinates, scale, smoothness = 10)
    expect_no_warning(elvi(quartic(right), schedule = schedule_custom(0.01, 1, 3), control = control),
                      class = "elvi_warning_gradient")
  }
  # as large as values get, and as small
  for (size in c(1e-12, 1e12)) {
    model <- model_density(function(x) sum((size * x - 1)^2) / 2 + 1e6, function(x) size * (size * x - 1), dim = 2)
    expect_no_warning(elvi(model, budget = 100), class = "elvi_warning_gradient")
  }
})

test_that("a gradient that is not that of the value is found", {
  wrong <- list(doubled = function(x) 2 * right(x), negative_term = function(x) x - x^3,
                one_entry = function(x) right(x) * c(1, 1, 1.1), forgotten = function(x) x,
                permuted = function(x) rev(right(x)), shifted = function(x) right(x) + 0.5)
  for (name in names(wrong)) {
    w <- tryCatch(elvi(quartic(wrong[[name]]), start = list(mu = c(0.3, -0.5, 1), Sigma = diag(3)),
                       schedule = schedule_custom(0.01, 1, 3), control = elvi_control("raw", smoothness = 10)),
                  elvi_warning_gradient = identity)
    expect_s3_class(w, "elvi_warning_gradient")
    # what it reports is the derivative along its direction, in closed form
    expect_equal(w$by_value, sum(right(w$x) * w$direction), tolerance = 1e-5, info = name)
    expect_equal(w$by_gradient, sum(wrong[[name]](w$x) * w$direction), tolerance = 1e-12, info = name)
  }
  expect_snapshot(writeLines(conditionMessage(w)))
})

test_that("at the default start, a mode of the wrong gradient too, the check still sees it", {
  doubled <- quartic(function(x) 2 * right(x))
  expect_warning(elvi(doubled, budget = 100), class = "elvi_warning_gradient")
})

test_that("the check takes nothing from R's generator, and does not come again", {
  model <- quartic(function(x) 2 * right(x))
  run <- function(model) {
    set.seed(1)
    suppressWarnings(elvi(model, schedule = schedule_growing(200), control = elvi_control(iterations = 3)),
                     "elvi_warning_gradient")
  }
  paused <- run(model)
  unchecked <- model
  unchecked$own_gradient <- FALSE
  expect_identical(run(unchecked)$mu, paused$mu)
  expect_no_warning(elvi(paused), class = "elvi_warning_gradient")
})

test_that("a gradient that elvi derives itself is not compared", {
  skip_if_not_installed("numDeriv")
  expect_warning(model <- model_density(function(x) sum(x^2), dim = 2), class = "elvi_warning_slow_gradient")
  expect_false(model$own_gradient)
  expect_no_warning(elvi(model, budget = 50), class = "elvi_warning_gradient")
})

test_that("where the values there are not finite the check has no opinion", {
  walled <- model_density(function(x) if (all(x > -0.1)) sum(x^2) / 2 else Inf, function(x) 2 * x, dim = 2)
  # the run itself has one, at its end
  expect_warning(expect_no_warning(elvi(walled, schedule = schedule_custom(1e-6, 1, 1),
                                        start = list(mu = c(0, 0), Sigma = diag(2)),
                                        control = elvi_control("raw", smoothness = 1)),
                                   class = "elvi_warning_gradient"), class = "elvi_warning_nonfinite")
})
