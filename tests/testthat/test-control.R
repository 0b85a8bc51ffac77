test_that("the defaults are the documented ones", {
  control <- elvi_control(progress = FALSE)
  expect_s3_class(control, "elvi_control")
  expect_identical(
    control[c("coordinates", "scale", "update", "tail", "smoothness_safety", "scale_max", "mu_radius", "iterations")],
    list(coordinates = "whitened", scale = "symmetric", update = "project", tail = 0.5, smoothness_safety = 2,
         scale_max = Inf, mu_radius = Inf, iterations = Inf))
  for (name in c("trace_draws", "estimator", "average", "precondition", "smoothness", "scale_min", "mu_centre", "block")) {
    expect_true(name %in% names(control))
    expect_null(control[[name]])
  }
})

test_that("what is set is kept", {
  control <- elvi_control("raw", "triangular", "path", average = "tail", tail = 0.25, precondition = c(Sigma = 0.1, mu = 1),
                          smoothness = 3L, scale_min = 0.1, scale_max = 4, mu_centre = 1:3, mu_radius = 2,
                          iterations = 7, trace_draws = 0, block = 16, progress = TRUE)
  expect_identical(control$precondition, c(mu = 1, Sigma = 0.1))
  expect_identical(control$smoothness, 3)
  expect_identical(control$mu_centre, c(1, 2, 3))
  expect_identical(unclass(control)[c("scale", "estimator", "average", "tail", "scale_min", "scale_max", "mu_radius",
                                      "iterations", "trace_draws", "block", "progress")],
                   list(scale = "triangular", estimator = "path", average = "tail", tail = 0.25, scale_min = 0.1,
                        scale_max = 4, mu_radius = 2, iterations = 7, trace_draws = 0, block = 16, progress = TRUE))
  expect_identical(elvi_control(precondition = list(mu = 0.5, Sigma = 1))$precondition, c(mu = 0.5, Sigma = 1))
})

test_that("the ends of a tail average are the last iterate and the mean of all", {
  model <- engine_quadratic(3)
  run <- function(tail) {
    set.seed(71)
    elvi(model, schedule = schedule_custom(0.1, 2, iterations = 10),
         control = raw_control(average = "tail", tail = tail, trace_draws = 0))
  }
  none <- run(0)
  expect_identical(none$state$average_mu, none$state$mu)
  all <- run(1)
  replay <- engine_replay(all)
  expect_equal(all$state$average_mu, Reduce(`+`, replay$mus[-1]) / 10, tolerance = 1e-12)
})

test_that("progress is shown only for runs of more than two seconds, and only when asked for", {
  skip_on_cran()
  slow <- 0
  model <- model_density(function(x) colSums(x^2), function(x) { Sys.sleep(slow); 2 * x }, dim = 2, smoothness = 2)
  run <- function(iterations, progress) {
    capture.output(type = "message", elvi(
      model, schedule = schedule_custom(0.1, 1, iterations = iterations),
      control = raw_control(progress = progress, trace_draws = 0)))
  }
  expect_identical(run(20, TRUE), character())
  slow <- 0.04
  shown <- run(65, TRUE)
  expect_match(paste(shown, collapse = ""), "elvi: +[0-9]+% \\([0-9]+ of 65 iterations\\)")
})

test_that("settings print", {
  expect_snapshot({
    elvi_control(progress = FALSE)
    elvi_control("raw", "triangular", update = "prox", precondition = c(mu = 1, Sigma = 0.1), mu_centre = 1:3, mu_radius = 2,
                 progress = FALSE)
  })
})

test_that("elvi_control() refuses bad arguments by name", {
  messages <- c(
    refusal(elvi_control(smothness = 10), "smothness"),
    refusal(elvi_control(Scale = "diagonal"), "Scale"),
    refusal(elvi_control(preconditioner = c(mu = 1, Sigma = 1)), "preconditioner"),
    refusal(elvi_control(zzz = 1), "zzz"),
    refusal(elvi_control("scaled"), "coordinates"),
    refusal(elvi_control(smoothness_safety = 0.5), "smoothness_safety"),
    refusal(elvi_control(scale = "full"), "scale"),
    refusal(elvi_control(scale = c("diagonal", "symmetric")), "scale"),
    refusal(elvi_control(estimator = NA), "estimator"),
    refusal(elvi_control(update = 1), "update"),
    refusal(elvi_control(average = "mean"), "average"),
    refusal(elvi_control(tail = 1.1), "tail"),
    refusal(elvi_control(tail = -0.1), "tail"),
    refusal(elvi_control(tail = NaN), "tail"),
    refusal(elvi_control(precondition = 0.5), "precondition"),
    refusal(elvi_control(precondition = c(mu = 1, sigma = 1)), "precondition"),
    refusal(elvi_control(precondition = c(mu = 0, Sigma = 1)), "precondition"),
    refusal(elvi_control(precondition = c(mu = 1, Sigma = 1.5)), "precondition"),
    refusal(elvi_control(precondition = c(mu = -0.1, Sigma = 1)), "precondition"),
    refusal(elvi_control(precondition = c(mu = NaN, Sigma = 1)), "precondition"),
    refusal(elvi_control(smoothness = 0), "smoothness"),
    refusal(elvi_control(smoothness = Inf), "smoothness"),
    refusal(elvi_control(scale_min = 0), "scale_min"),
    refusal(elvi_control(scale_max = -1), "scale_max"),
    refusal(elvi_control(scale_max = NaN), "scale_max"),
    refusal(elvi_control(mu_centre = "origin"), "mu_centre"),
    refusal(elvi_control(mu_centre = c(0, NA)), "mu_centre"),
    refusal(elvi_control(mu_radius = 0), "mu_radius"),
    refusal(elvi_control(iterations = 0), "iterations"),
    refusal(elvi_control(iterations = 2.5), "iterations"),
    refusal(elvi_control(trace_draws = -1), "trace_draws"),
    refusal(elvi_control(trace_draws = 1e7), "trace_draws"),
    refusal(elvi_control(block = 0), "block"),
    refusal(elvi_control(progress = NA), "progress"),
    refusal(elvi_control(update = "prox"), "update"),
    refusal(elvi_control(scale = "triangular", estimator = "path", update = "prox"), "estimator"),
    refusal(elvi_control(scale = "diagonal", update = "prox", scale_max = 3), "update"),
    refusal(elvi_control(scale = "diagonal", update = "prox", scale_min = 0.1), "update"),
    refusal(raw_fit(engine_quadratic(2), scale_min = 2, scale_max = 1), "scale_max"))
  expect_snapshot(writeLines(messages))
})

test_that("a fixed weight is for the estimator that has one", {
  error <- expect_error(elvi_control(fixed_weight = 0.2), "`fixed_weight` is not used", class = "elvi_error_argument")
  expect_identical(error$argument, "fixed_weight")
  expect_identical(elvi_control(estimator = "fixed", fixed_weight = 0.2)$fixed_weight, 0.2)
})

test_that("without arguments the settings are those that were made when the package was installed", {
  expect_identical(elvi_control(), elvi_control(tail = 0.5))
  expect_true(is_default(elvi_control(progress = TRUE)))
  expect_false(is_default(elvi_control(nodes = 5)))
})
