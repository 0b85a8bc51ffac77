natural_fits <- function() {
  if (is.null(formula_store$natural)) {
    formula_store$natural <- withr_seed(3, list(
      gaussian = elvi(mpg ~ wt, data = mtcars, method = "mpsgd", tol = 0.05),
      uniform = elvi(mpg ~ wt, data = mtcars, base = base_uniform(), method = "mpsgd", tol = 0.05),
      model = elvi(model_glm(cbind(one = 1, wt = mtcars$wt), mtcars$mpg, family = gaussian(), dispersion = NULL,
                             prior = normal(0, 30)), tol = 0.05)))
  }
  formula_store$natural
}

test_that("tables have sigma itself, coef() and vcov() coefficients only", {
  for (fit in natural_fits()) {
    expect_identical(names(fit$mu)[3], "log_sigma")
    coefficients <- names(fit$mu)[1:2]
    expect_identical(coef(fit), fit$mu[1:2])
    expect_identical(dimnames(vcov(fit)), list(coefficients, coefficients))
    expect_equal(vcov(fit), (fit$Sigma %*% fit$Sigma)[1:2, 1:2])
    names <- c(coefficients, "sigma")
    expect_identical(rownames(summary(fit)$table), names)
    expect_identical(rownames(confint(fit)), names)
    expect_identical(rownames(posterior_interval(fit)), names)
    expect_identical(colnames(as.matrix(fit, draws = 3)), names)
    expect_true(any(grepl("sigma", capture.output(print(fit)))))
    refusal(confint(fit, "log_sigma"), "parm")
  }
})

test_that("sigma is the exponential of what was fitted: moments, quantiles, density, draws", {
  skip_on_cran()
  for (fit in natural_fits()) {
    law <- law_of(fit$base, 3)
    m <- fit$mu[["log_sigma"]]
    s <- sqrt((fit$Sigma %*% fit$Sigma)[3, 3])
    expected <- function(g) {
      edge <- min(support_edge(law), 12)
      integrate(function(z) g(exp(m + s * z)) * marginal_density(law, pmax(abs(z), 1e-12)), -edge, edge,
                rel.tol = 1e-9)$value
    }
    table <- summary(fit)$table
    expect_equal(table["sigma", "mean"], expected(identity), tolerance = 1e-6)
    expect_equal(table["sigma", "sd"], sqrt(expected(function(x) (x - table["sigma", "mean"])^2)), tolerance = 1e-5)
    expect_equal(sigma(fit), table[["sigma", "mean"]])
    expect_equal(unname(confint(fit)["sigma", ]), exp(m + s * marginal_quantile(law, c(0.025, 0.975))))
    expect_equal(q_quantile(fit, "sigma", c(0.1, 0.9)), exp(m + s * marginal_quantile(law, c(0.1, 0.9))))
    expect_equal(q_probability(fit, "sigma", q_quantile(fit, "sigma", c(0.1, 0.9))), c(0.1, 0.9), tolerance = 1e-7)
    expect_equal(q_probability(fit, "sigma", c(-1, 0, Inf)), c(0, 0, 1))
    h <- 1e-4
    expect_equal(q_density(fit, "sigma", 2.9), diff(q_probability(fit, "sigma", 2.9 + c(-h, h))) / (2 * h), tolerance = 1e-5)
    drawn <- as.matrix(fit, draws = 20)[, "sigma"]
    expect_equal(log(drawn), posterior_draws(fit$posterior, 20)$x[, "log_sigma"])
  }
  gaussian <- natural_fits()$gaussian
  s <- sqrt((gaussian$Sigma %*% gaussian$Sigma)[3, 3])
  expect_equal(sigma(gaussian), exp(gaussian$mu[["log_sigma"]] + s^2 / 2), tolerance = 1e-10)
})

test_that("a tail too heavy for exp() has no mean, and is said to have none", {
  law <- law_of(base_student(5), 3)
  expect_identical(exponential_moments(law, 0, 0.1), c(Inf, Inf))
  law <- law_of(base_laplace(), 3)   # exp(s z) has a mean for s below 2
  expect_identical(exponential_moments(law, 0, 3), c(Inf, Inf))
  expect_identical(is.finite(exponential_moments(law, 0, 1.5)), c(TRUE, FALSE))
})

test_that("exponentiate leaves sigma as it is", {
  skip_if_not_installed("generics")
  fit <- natural_fits()$gaussian
  plain <- generics::tidy(fit, conf.int = TRUE)
  exponential <- generics::tidy(fit, conf.int = TRUE, exponentiate = TRUE)
  expect_equal(exponential$estimate, c(exp(plain$estimate[1:2]), plain$estimate[3]))
  expect_equal(exponential$conf.high[3], plain$conf.high[3])
})

test_that("the residual standard deviation is known, estimated, or 1", {
  expect_identical(sigma(elvi(mpg ~ wt, data = mtcars, dispersion = 4)), 2)
  expect_identical(sigma(nasty("exclude")), 1)
  expect_identical(sigma(elvi(model_quadratic(diag(2)), method = "exact")), 1)
})
