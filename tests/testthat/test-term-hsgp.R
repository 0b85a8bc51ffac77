field_data <- function() {
  set.seed(1)
  d <- data.frame(x = runif(60, 2, 7), z = runif(60, -1, 2))
  d$y <- sin(d$x) + 0.5 * d$z^2 + rnorm(60, 0, 0.3)
  d$count <- rpois(60, exp(0.5 + 0.5 * sin(d$x)))
  d
}

test_that("the basis has the squared exponential covariance, in one dimension and in two", {
  d <- field_data()
  line <- elvi_problem(y ~ hsgp(x, k = 40), d, dispersion = 1)
  term <- line$terms[[1L]]
  expect_record(term, c(-0.2, -0.7))
  K <- line$Z %*% term_dense_covariance(term, c(log(0.8), log(0.4))) %*% Matrix::t(line$Z)
  length <- 0.4 * diff(range(d$x)) / 2
  expect_equal(as.matrix(K), 0.64 * exp(-outer(d$x, d$x, `-`)^2 / (2 * length^2)), tolerance = 5e-3, ignore_attr = TRUE)
  plane <- elvi_problem(y ~ hsgp(x, z, k = 20), d, dispersion = 1)
  term <- plane$terms[[1L]]
  expect_record(term, c(-0.2, -0.7))
  K <- plane$Z %*% term_dense_covariance(term, c(log(0.8), log(0.4))) %*% Matrix::t(plane$Z)
  far <- outer(d$x, d$x, `-`)^2 + outer(d$z, d$z, `-`)^2
  expect_equal(as.matrix(K), 0.64 * exp(-far / (2 * length^2)), tolerance = 0.03, ignore_attr = TRUE)
})

test_that("given hyperparameters, a field is the closed form", {
  d <- field_data()
  expect_closed_form(y ~ hsgp(x), d, c(-0.3, -0.8))
  expect_closed_form(y ~ hsgp(x, z, k = 6), d, c(-0.3, -0.8))
  expect_dense_optimum(count ~ hsgp(x, k = 12), d, poisson(), c(-0.3, -0.8))
})

test_that("a field is shown and predicted within its box, in any unit", {
  d <- field_data()
  fit <- suppressWarnings(elvi(count ~ hsgp(x), d, family = poisson()))
  expect_output(print(fit), "length[hsgp(x)]", fixed = TRUE)
  expect_length(predict(fit, data.frame(x = c(1.5, 5))), 2L)
  expect_error(predict(fit, data.frame(x = 100)), "box")
  again <- suppressWarnings(elvi(count ~ hsgp(x), transform(d, x = 10 * x), family = poisson()))
  expect_equal(posterior_moments(again$posterior)$mean[["length[hsgp(x)]"]], 10 * posterior_moments(fit$posterior)$mean[["length[hsgp(x)]"]],
               tolerance = 1e-4)
  expect_error(elvi(y ~ hsgp(x, m = 3), d), "no argument")
})
