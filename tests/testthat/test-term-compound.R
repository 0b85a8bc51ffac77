compound_data <- function() {
  set.seed(5)
  d <- expand.grid(f = factor(c("a", "b", "c")), g = factor(1:12), r = 1:2)
  u <- outer(rnorm(12), c(1, 0.7, 0.5)) + rnorm(36, 0, 0.3)
  d$y <- u[cbind(d$g, d$f)] + rnorm(nrow(d), 0, 0.4)
  d
}

test_that("compound symmetry has one correlation, and its record belongs together", {
  skip_without_parser()
  d <- compound_data()
  term <- elvi_problem(y ~ f + cs(0 + f | g), d, dispersion = 1)$terms[[1L]]
  theta <- c(0.2, -0.3, 0.5, 0.4)
  expect_record(term, theta)
  expect_record(utils::modifyList(term, list(prior_cor = 3)), theta)
  rho <- (3 * plogis(0.4) - 1) / 2
  sd <- exp(theta[1:3])
  expect_equal(solve(term_matrix(term, theta)[1:3, 1:3]), tcrossprod(sd) * (rho + (1 - rho) * diag(3)))
  # the prior of the correlation is a density, and lkj(eta) up to its constant
  for (eta in c(1, 3)) {
    term$prior_cor <- eta
    density <- Vectorize(function(z) exp(term_record(term)$log_prior(term, c(0, 0, 0, z))$value))
    total <- integrate(density, -40, 40, rel.tol = 1e-9)$value
    expect_equal(total, exp(3 * log_prior_positive(prior_of_one(term$prior_sd, 1L), 0)$value), tolerance = 1e-6)
  }
  z <- c(-1, 1)
  r <- (3 * plogis(z) - 1) / 2
  log_lkj <- 2 * vapply(r, function(r) log(det(r + (1 - r) * diag(3))), 0) + log(plogis(z) * plogis(-z))
  mine <- vapply(z, function(z) term_record(term)$log_prior(term, c(0, 0, 0, z))$value, 0)
  expect_equal(diff(mine), diff(log_lkj))
})

test_that("given hyperparameters, compound symmetry is the closed form", {
  skip_without_parser()
  expect_closed_form(y ~ f + cs(0 + f | g), compound_data(), c(0.2, -0.3, 0.1, 0.4))
})

test_that("compound symmetry of two coefficients is an unstructured covariance", {
  skip_without_parser()
  d <- subset(compound_data(), f != "c")
  d$f <- droplevels(d$f)
  theta <- function(z) c(0.1, -0.2, z)
  one <- elvi_problem(y ~ cs(0 + f | g), d, dispersion = 1)$terms[[1L]]
  two <- elvi_problem(y ~ (0 + f | g), d, dispersion = 1)$terms[[1L]]
  expect_equal(term_matrix(one, theta(0.6)), term_matrix(two, theta(0.3)))
  expect_equal(term_record(one)$log_prior(one, theta(0.6))$value + log(2), term_record(two)$log_prior(two, theta(0.3))$value)
})

test_that("a fit with compound symmetry is shown, drawn and predicted", {
  skip_on_cran()
  skip_without_parser()
  d <- compound_data()
  fit <- suppressWarnings(elvi(y ~ f + cs(0 + f | g), d))
  expect_output(print(fit), "cor(g)", fixed = TRUE)
  R <- attr(VarCorr(fit)$g, "correlation")
  expect_equal(R[2, 1], R[3, 2], tolerance = 1e-8)
  expect_equal(R[2, 1], unname(fit$mu[["cor(g)"]]), tolerance = 1e-8)
  expect_identical(dim(ranef(fit)$g), c(12L, 3L))
  new <- predict(fit, data.frame(f = "a", g = "new"), se.fit = TRUE, allow_new_levels = TRUE)
  expect_gt(new$se.fit, predict(fit, d[1L, ], se.fit = TRUE)$se.fit)
  expect_snapshot_error(elvi_problem(y ~ cs(1 | g), d), class = "elvi_error_term")
})
