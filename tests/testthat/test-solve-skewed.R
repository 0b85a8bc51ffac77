# Steps where the loss is far from quadratic: factor levels whose responses are all 0.

zero_levels <- function(family, sd, levels) {
  set.seed(1)
  g <- factor(sample(10, 2000, TRUE))
  x <- rnorm(2000)
  eta <- -1 + 0.3 * x
  y <- if (family$family == "poisson") rpois(2000, exp(eta)) else rbinom(2000, 1, family$linkinv(eta))
  y[as.integer(g) <= levels + 1 & g != 1] <- 0
  model_glm(model.matrix(~ g + x), y, family, normal(0, sd))
}

test_that("levels of zeros take few evaluations", {
  # 39 to 91 before steps knew of the third derivative; without such levels it is 8 to 12
  for (case in list(list(poisson(), 10, 1, 22), list(poisson(), 100, 1, 30), list(binomial(), 10, 1, 24), list(binomial("cloglog"), 10, 3, 24))) {
    found <- elvi_optimum(zero_levels(case[[1]], case[[2]], case[[3]]))
    expect_true(found$converged)
    expect_lt(found$evaluations, case[[4]])
  }
})

test_that("the optimum along one direction solves its two equations", {
  along <- list(slope = c(0.3, -2), second = c(0.9, 0.2), third = c(2, -0.5), variance = c(0, 1.5))
  found <- exponential_optimum(along)
  theta <- along$third / along$second
  e <- exp(theta * found$step + theta^2 * (found$variance - along$variance) / 2)
  expect_equal(along$slope + along$second * (e - 1) / theta + (1 - along$second) * found$step, c(0, 0), tolerance = 1e-8)
  expect_equal(found$variance * (along$second * e + 1 - along$second), c(1, 1), tolerance = 1e-8)
})

test_that("third derivatives along directions are those of the objective", {
  model <- zero_levels(binomial(), 10, 1)
  law <- law_of(base_gaussian(), model$dim)
  rule <- model_quadrature(model, law)
  mu <- seq(-0.5, 0.5, length.out = model$dim)
  directions <- cbind(diag(model$dim)[, 2], sin(seq_len(model$dim)))
  curve_at <- function(mu, r) {
    B <- exact_at(model, rule, law, "triangular", mu, diag(0.3, model$dim))$B
    sum(r * (B %*% r))
  }
  found <- exact_at(model, rule, law, "triangular", mu, diag(0.3, model$dim), directions)$third
  by_difference <- apply(directions, 2, function(r) (curve_at(mu + 1e-3 * r, r) - curve_at(mu - 1e-3 * r, r)) / 2e-3)
  expect_equal(found, by_difference, tolerance = 1e-3)
})
