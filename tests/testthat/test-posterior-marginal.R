# a fit for every base of helper-oracle.R: location, scale and base are all that counts
marginal_fit <- function(base, d = 3) {
  A <- diag(d) + 0.5
  suppressMessages(elvi(model_quadratic(A, m = seq_len(d)), base, method = "exact"))
}

# P(z_1 <= z) from the law p of the radius: z_1 = R u_1, and u_1^2 ~ Beta(1/2, (d - 1)/2)
oracle_marginal <- function(law, d) {
  r <- seq(0, 1, length.out = 4001)
  grid <- if (is.finite(law$end)) r * law$end else (r / (1 - r + 1e-4))
  mass <- diff(c(law$p(grid), 1))
  at <- c((grid[-1] + grid[-length(grid)]) / 2, grid[length(grid)])
  function(z) vapply(z, function(v) {
    if (d == 1) return(0.5 + sign(v) * law$p(abs(v)) / 2)
    0.5 + sign(v) / 2 * sum(mass * pbeta(pmin(1, (v / at)^2), 0.5, (d - 1) / 2))
  }, 0)
}

test_that("density, distribution and quantile functions belong together, for all bases", {
  skip_on_cran()
  d <- 3
  # without radial_shells: the quadrature of quadrature.R is rough where a density jumps inside
  laws <- oracle_bases(d)[c("gaussian", "laplace", "uniform", "student5", "student3", "power0.7", "power3",
                            "radial_logistic", "radial_student3", "radial_beta")]
  # those of tables take most of the time
  if (!long_tests()) laws <- laws[setdiff(names(laws), c("radial_student3", "radial_beta"))]
  for (name in names(laws)) {
    fit <- marginal_fit(laws[[name]]$base, d)
    s <- sqrt(vcov(fit)[2, 2])
    m <- coef(fit)[[2]]
    reach <- s * min(laws[[name]]$end, 30)
    middle <- m + reach * (seq_len(1000) - 500.5) / 500
    expect_equal(sum(q_density(fit, 2, middle)) * reach / 500, 1, tolerance = 2e-3, label = name)
    p <- c(0.001, 0.025, 0.2, 0.5, 0.7, 0.99)
    x <- q_quantile(fit, "x2", p)
    expect_equal(q_probability(fit, "x2", x), p, tolerance = 1e-6, label = name)
    expect_equal(q_quantile(fit, 2, 0.5), m, label = name)
    # symmetric
    expect_equal(q_quantile(fit, 2, 1 - p), 2 * m - x, tolerance = 1e-6, label = name)
    expect_equal(q_density(fit, 2, m + 0.3), q_density(fit, 2, m - 0.3), label = name)
    # the derivative of the probability is the density
    at <- m + s * c(-1.1, 0.3, 0.9)
    expect_equal((q_probability(fit, 2, at + 1e-4) - q_probability(fit, 2, at - 1e-4)) / 2e-4, q_density(fit, 2, at),
                 tolerance = 1e-4, label = name)
    # the law of the base, without the code of the package
    expect_equal(q_probability(fit, 2, m + s * c(-2, -0.5, 0.1, 1)), oracle_marginal(laws[[name]], d)(c(-2, -0.5, 0.1, 1)),
                 tolerance = 2e-3, label = name)
    expect_identical(q_probability(fit, 2, c(-Inf, Inf)), c(0, 1))
    expect_identical(q_density(fit, 2, c(-Inf, Inf)), c(0, 0))
    ends <- q_quantile(fit, 2, 0:1)
    expect_equal(ends, m + c(-1, 1) * s * laws[[name]]$end, tolerance = 1e-6, label = name)
  }
})

test_that("the marginals are those of the draws", {
  skip_on_cran()
  for (base in list(base_gaussian(), base_laplace(), base_uniform(), base_student(5), base_power(0.7), base_power(3))) {
    fit <- marginal_fit(base, 3)
    set.seed(1)
    x <- simulate(fit, 2e4)[, 3]
    # a tenth of the draws between any two deciles
    counts <- tabulate(findInterval(x, q_quantile(fit, 3, 1:9 / 10)) + 1L, 10)
    expect_gt(chisq.test(counts)$p.value, 1e-3, label = base$kind)
    limits <- confint(fit, 3, level = 0.8)
    expect_lt(abs(mean(x > limits[1] & x < limits[2]) - 0.8), 4 * sqrt(0.16 / 2e4), label = base$kind)
  }
})

test_that("gaussian, student and one-dimensional marginals are those of R", {
  fit <- marginal_fit(base_gaussian(), 2)
  s <- sqrt(vcov(fit)[1, 1])
  x <- c(-3, 0, 0.7, 5)
  expect_equal(q_density(fit, 1, x), dnorm(x, 1, s), tolerance = 1e-10)
  expect_equal(q_probability(fit, 1, x), pnorm(x, 1, s), tolerance = 1e-12)
  expect_equal(q_quantile(fit, 1, c(0.1, 0.9)), qnorm(c(0.1, 0.9), 1, s), tolerance = 1e-12)
  # far tails keep their digits
  expect_equal(q_probability(fit, 1, 1 - 12 * s), pnorm(-12), tolerance = 1e-10)
  fit <- marginal_fit(base_student(5), 2)
  u <- s / sqrt(5 / 3)
  expect_equal(q_density(fit, 1, x), dt((x - 1) / u, 5) / u, tolerance = 1e-8)
  expect_equal(q_probability(fit, 1, x), pt((x - 1) / u, 5), tolerance = 1e-10)
  one <- elvi(model_quadratic(matrix(4), m = 1), base_laplace(), method = "exact")
  b <- 0.5 / sqrt(2)
  expect_equal(q_density(one, 1, c(0, 2)), exp(-1 / b) / (2 * b) * c(1, 1), tolerance = 1e-8)
  expect_equal(q_probability(one, 1, c(0, 2)), c(exp(-1 / b) / 2, 1 - exp(-1 / b) / 2), tolerance = 1e-6)
  expect_equal(q_quantile(one, 1, 0.9), 1 - b * log(0.2), tolerance = 1e-6)
  ball <- elvi(model_quadratic(matrix(4), m = 1), base_uniform(), method = "exact")
  expect_equal(q_probability(ball, 1, c(-1, 1, 1.2, 3)), punif(c(-1, 1, 1.2, 3), 1 - sqrt(3) / 2, 1 + sqrt(3) / 2))
  expect_equal(q_density(ball, 1, c(0.9, 3)), c(1 / sqrt(3), 0))
})

test_that("formula fits answer by name", {
  fit <- as_gaussian(nasty("exclude"))
  x <- "`gr\u00f6\u00dfe x`"
  s <- sqrt(vcov(fit)[x, x])
  expect_equal(q_probability(fit, x, 0), pnorm(0, coef(fit)[[x]], s))
  expect_equal(q_density(fit, x, 0.1), dnorm(0.1, coef(fit)[[x]], s))
  fit <- elvi(model_quadratic(diag(2)), method = "exact")
  expect_refusal(q_density(fit, "x9", 0), "parameter")
  expect_refusal(q_density(fit, 1:2, 0), "parameter")
  expect_refusal(q_density(fit, NULL, 0), "parameter")
  expect_refusal(q_density(1, 1, 0), "object")
  expect_refusal(q_density(fit, 1, NA), "x")
  expect_refusal(q_probability(fit, 1, "a"), "x")
  expect_refusal(q_quantile(fit, 1, 1.1), "p")
  expect_refusal(q_quantile(fit, 3, 0.1), "parameter")
})

test_that("no points have no probabilities, as numbers", {
  fit <- elvi(model_quadratic(diag(2)), method = "exact")
  expect_identical(q_probability(fit, 1, numeric()), numeric())
  expect_identical(q_quantile(fit, 1, numeric()), numeric())
  expect_identical(q_density(fit, 1, numeric()), numeric())
})
