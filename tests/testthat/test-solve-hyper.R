test_that("hyperparameters: names, natural scale, correlations", {
  skip_on_cran()
  problem <- small_problem(binomial())
  layout <- hyper_layout(problem)
  expect_identical(layout$length, 4L)
  expect_identical(hyper_layout(problem)$names,
                   c("log sd(g: (Intercept))", "log sd(g: x)", "z cor(g: (Intercept), x)", "log sd(h: (Intercept))"))
  at <- hyper_natural(problem, c(0, log(2), 0.5, -1))
  expect_equal(unname(at$terms[[1]]$sd), c(1, 2))
  expect_equal(at$terms[[1]]$cor[2, 1], tanh(0.5))
  expect_equal(unname(at$terms[[1]]$cov), matrix(c(1, 2 * tanh(0.5), 2 * tanh(0.5), 4), 2))
  set.seed(1)
  y <- rnorm(6)
  R <- tcrossprod(correlation_factor(y, 4)$L)
  expect_equal(diag(R), rep(1, 4))
  expect_gt(min(eigen(R)$values), 0)
})

test_that("densities of hyperparameters are normalised, with the right derivatives", {
  for (prior in list(exponential(2), normal(0, 1.5), student_t(3, 0, 2), cauchy(0, 1), normal(1, 2))) {
    mass <- integrate(function(a) exp(log_prior_positive(prior, a)$value), -40, 30, subdivisions = 1000, rel.tol = 1e-9)
    expect_equal(mass$value, 1, tolerance = 1e-6)
    slope <- (log_prior_positive(prior, 0.3 + 1e-6)$value - log_prior_positive(prior, 0.3 - 1e-6)$value) / 2e-6
    expect_equal(log_prior_positive(prior, 0.3)$slope, slope, tolerance = 1e-7)
  }
  scales <- log_prior_positive(normal(0, c(1, 10)), c(0, 0))$value
  expect_equal(scales, dnorm(1, 0, c(1, 10), log = TRUE) + log(2))
  # LKJ(eta) of a 2 x 2 matrix is a beta law; in three dimensions det(R)^(eta - 1) up to a constant
  mass <- integrate(function(y) exp(vapply(y, function(v) log_prior_correlation(v, 2, 1.7)$value, 0)), -30, 30)
  expect_equal(mass$value, 1, tolerance = 1e-7)
  density <- function(y, eta) {   # of R, from that of y
    entries <- function(y) tcrossprod(correlation_factor(y, 3)$L)[lower.tri(diag(3))]
    jacobian <- det(numDeriv::jacobian(entries, y))
    sum(log_prior_correlation(y, 3, eta)$value) - log(abs(jacobian)) -
      (eta - 1) * log(det(tcrossprod(correlation_factor(y, 3)$L)))
  }
  skip_if_not_installed("numDeriv")
  expect_equal(density(c(0.2, -0.4, 0.7), 1), density(c(-1, 0.3, 0.1), 1), tolerance = 1e-6)
  expect_equal(density(c(0.2, -0.4, 0.7), 2.5), density(c(-1, 0.3, 0.1), 2.5), tolerance = 1e-6)
})

test_that("hyperparameters of the family come last, with names and priors of their own", {
  problem <- small_problem(gaussian(), dispersion = list(name = "sigma", prior = exponential(2)))
  layout <- hyper_layout(problem)
  expect_identical(layout$family, 5L)
  expect_identical(layout$names[5L], "log sigma")
  theta <- c(0.1, -0.2, 0.3, -0.4, 0.5)
  gradient <- vapply(1:5, function(j) {
    at <- function(h) hyper_prior(problem, layout, replace(theta, j, theta[j] + h))$value
    (at(1e-5) - at(-1e-5)) / 2e-5
  }, 0)
  expect_equal(hyper_prior(problem, layout, theta)$slope, gradient, tolerance = 1e-7)
  natural <- natural_columns(problem$terms, layout, rbind(theta))
  expect_identical(colnames(natural)[5L], "sigma")
  expect_equal(natural[1L, "sigma"], exp(0.5), ignore_attr = TRUE)
  none <- hyper_layout(small_problem(poisson()))
  expect_identical(none$family, integer())
})

test_that("a record whose hyperparameters differ in length is refused", {
  records <- family_records["normal"]
  records$normal$conditional$hyper$curvature <- function(count) c(0, 0)
  expect_error(check_family_records(records), "differ in length")
})

test_that("priors at many points are those of each", {
  no_terms <- function(family, hyper) {
    problem <- list(X = cbind(1, 1:9), Z = empty_columns(9L, 0L), y = (1:9)^2, family = family, prior = list(centre = 0, precision = 1),
                    terms = list(), hyper = hyper)
    nested_setup(problem, base_gaussian())
  }
  for (prior in list(exponential(0.3), student_t(3, 0, 2), normal(1, 2), flat())) {
    setup <- no_terms(gaussian(), list(sigma = prior))
    thetas <- list(-1, 0.2, 3)
    expect_equal(hyper_priors_at(setup$problem, setup$layout, thetas),
                 lapply(thetas, function(theta) hyper_prior(setup$problem, setup$layout, theta)), tolerance = 1e-14)
  }
})
