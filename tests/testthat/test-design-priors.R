test_that("priors left at their defaults are rescaled, those given are not", {
  d <- group_data()
  default <- elvi_problem(y ~ x, d)$priors
  expect_equal(default$joint$scale, 2.5 * sd(d$y) / c(1, sd(d$x)))
  expect_equal(default$joint$location, c(mean(d$y), 0))
  expect_equal(default$aux$rate, 1 / sd(d$y))
  given <- elvi_problem(y ~ x, d, prior = normal(0, 2.5))$priors
  expect_equal(given$joint$scale, c(2.5 * sd(d$y), 2.5))
  asked <- elvi_problem(y ~ x, d, prior = normal(0, 2.5, autoscale = TRUE))$priors
  expect_equal(asked$joint$scale, default$joint$scale)
  never <- elvi_problem(y ~ x, d, autoscale = FALSE)$priors
  expect_equal(never$joint$scale, c(2.5, 2.5))
  expect_identical(never$aux$rate, 1)
  expect_null(elvi_problem(y ~ x, d, dispersion = 1)$priors$aux)
  expect_error(elvi_problem(y ~ x, d, dispersion = 1, prior_aux = exponential(1)), class = "elvi_error_argument")
  expect_error(elvi_problem(y ~ x, d, autoscale = 2), class = "elvi_error_argument")
})
