lab <- load_experiments()

test_that("what a pass costs is measured, and what it sends does not grow with the rows", {
  skip_on_cran()
  x <- example_experiment("passes", rows = 2000, dims = c(3, 6), rounds = 1)
  expect_identical(x$data$dim, c(3, 6))
  expect_true(all(x$data$seconds >= 0))
  more <- example_experiment("passes", rows = 4000, dims = c(3, 6), rounds = 1)
  expect_identical(more$data$returned, x$data$returned)
  # the base's functions are sent too, which R may have compiled in the meantime
  expect_true(all(abs(more$data$sent - x$data$sent) < 10000))
  expect_true(all(x$data$returned - 8 * (x$data$dim^2 + x$data$dim) < 500))
  skip_if_not_installed("ggplot2")
  expect_s3_class(lab$draw_passes(x), "ggplot")
})
