quartic <- function(gradient, dim = 3) {
  model_density(function(x) sum(x^2) / 2 + sum(x^4) / 4, gradient, dim = dim)
}
right <- function(x) x + x^3

test_that("a right gradient is left alone, in every coordinates and scale", {
  skip_on_cran()
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
  skip_on_cran()
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
  expect_warning(model <- model_density(function(x) sum(x^2), dim = 2, derivatives = "differences"), class = "elvi_warning_slow_gradient")
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

test_that("gradients by differences know neither the constant of f nor its scales", {
  skip_on_cran()
  scales <- c(100, 0.03, 1)
  centre <- c(1000, 0.5, -2)
  # Three different curvatures: with equal ones the search ends at the mode or beside it as rounding has it, and the runs
  # from there have other draws, which no comparison of gradients is about.
  curvature <- c(1, 2, 4)
  bowl <- function(constant) function(x) constant + sum(curvature * ((x - centre) / scales)^2) / 2 + log(cosh((x[3] + 2) / 2))
  fitted <- lapply(c(0, -1e6, if (long_tests()) 1000), function(constant) {
    suppressWarnings(model <- model_density(bowl(constant), dim = 3))
    x <- centre + scales * c(0.7, -1, 0.4)
    truth <- curvature * (x - centre) / scales^2 + c(0, 0, tanh((x[3] + 2) / 2) / 2)
    expect_equal(model$gradient(matrix(x)) * scales, truth * scales, tolerance = 1e-6)
    mode <- find_mode(model)
    expect_lt(max(abs(mode$x - centre) / scales), 1e-3)
    expect_equal(mode$hessian * outer(scales, scales), diag(c(1, 2, 4.25)), tolerance = 1e-3)
    set.seed(1)
    elvi(model, budget = 2000)
  })
  sds <- sqrt(diag(vcov(fitted[[1]])))
  for (fit in fitted[-1]) {
    expect_lt(max(abs(coef(fit) - coef(fitted[[1]])) / sds), 0.01)
    expect_equal(vcov(fit), vcov(fitted[[1]]), tolerance = 0.01)
  }
  expect_lt(max(abs(coef(fitted[[2]]) - centre) / scales), 0.1)
})

test_that("a log density without its minus is recognised", {
  skip_on_cran()
  log_density <- list(
    function(x) -sum(x^2) / 2, wide = function(x) sum(dnorm(x, c(1, 2), 3, log = TRUE)), function(x) sum(dlogis(x, log = TRUE)),
    heavy = function(x) sum(dt(x - 5, 3, log = TRUE)), function(x) sum(dt(x, 3, log = TRUE)),
    # not concave, and so steep on its way down that the search ends where numbers do
    steep = function(x) sum(dnorm(mtcars$mpg, x[1], exp(x[2]), log = TRUE)),
    function(x) sum(dbinom(mtcars$am, 1, plogis(x[1] + x[2] * mtcars$wt), log = TRUE)) + sum(dnorm(x, 0, 5, log = TRUE)),
    function(x) sum(dpois(mtcars$carb, exp(x[1] + x[2] * mtcars$wt), log = TRUE)) + sum(dnorm(x, 0, 5, log = TRUE)))
  # a search that runs off takes a second or two
  for (value in if (long_tests()) log_density else log_density["steep"]) {
    model <- suppressWarnings(model_density(value, dim = 2))
    expect_error(elvi(model, budget = 100), "without the minus", class = "elvi_error_no_optimum")
  }
  own <- model_density(function(x) -sum((x - 1)^2), function(x) -2 * (x - 1), dim = 2)
  expect_error(elvi(own, budget = 100), "without the minus", class = "elvi_error_no_optimum")
})
