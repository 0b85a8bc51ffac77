student_data <- function(n = 120) {
  withr_seed(3, {
    d <- data.frame(x = rnorm(n), g = factor(rep_len(1:8, n)))
    d$y <- 1 + 0.5 * d$x + rnorm(8, 0, 0.4)[d$g] + 0.6 * rt(n, 4)
    d
  })
}

test_that("the evidence of sigma and df has its slope, and df its prior", {
  skip_without_parser()
  d <- student_data(60)
  problem <- conditional_problem(elvi_problem(y ~ x + (1 | g), d, family = student(), weights = rep_len(1:2, 60)))
  setup <- nested_setup(problem, base_gaussian())
  theta <- start_theta(setup) + c(0.2, 0.1, -0.3)
  value <- function(theta) evidence_at(setup, list(theta), tol = 1e-12)[[1L]]
  expect_equal(value(theta)$slope, unname(fd_gradient(function(t) value(t)$value, theta)), tolerance = 1e-5)
  expect_equal(log_df_prior(1.2)$value, dgamma(exp(1.2), 2, 0.1, log = TRUE) + 1.2, tolerance = 1e-12)
  expect_equal(student_level(3)$slope, fd_gradient(function(a) student_level(exp(a))$value, log(3)), tolerance = 1e-6)
})

test_that("the posterior of student errors is that of a grid over its hyperparameters", {
  skip_on_cran()
  d <- student_data()
  y <- d$y - mean(d$y)
  fit <- elvi(y ~ 1, data.frame(y), family = student(), prior_intercept = normal(0, 2), prior_aux = exponential(1), autoscale = FALSE)
  grid <- expand.grid(b = seq(-0.5, 0.5, length.out = 51), a = seq(-1.2, 0.4, length.out = 61), v = seq(-0.5, 5, length.out = 61))
  log_p <- mapply(function(b, a, v) sum(dt((y - b) / exp(a), exp(v), log = TRUE)) - length(y) * a, grid$b, grid$a, grid$v) +
    dnorm(grid$b, 0, 2, log = TRUE) - exp(grid$a) + grid$a + dgamma(exp(grid$v), 2, 0.1, log = TRUE) + grid$v
  p <- exp(log_p - max(log_p))
  p <- p / sum(p)
  shown <- cbind(grid$b, exp(grid$a), exp(grid$v))
  mean <- colSums(p * shown)
  sd <- sqrt(colSums(p * (shown - rep(mean, each = nrow(shown)))^2))
  table <- summary(fit)$table
  expect_identical(rownames(table), c("(Intercept)", "sigma", "df"))
  expect_lt(max(abs(table[, "mean"] - mean) / sd), 0.05)
  expect_lt(max(abs(table[, "sd"] / sd - 1)), 0.05)
  expect_equal(sigma(fit), table["sigma", "mean"])
  draws <- as.matrix(fit, draws = 4)
  expect_equal(unname(log_lik(fit, draws = 4)[2, ]),
               dt((y - draws[2, 1]) / draws[2, "sigma"], draws[2, "df"], log = TRUE) - log(draws[2, "sigma"]))
  refusal(elvi(y ~ 1, data.frame(y), family = student(), method = "mpsgd"), "method")
})

test_that("responses that coefficients fit perfectly are refused, as those of gaussian()", {
  d <- data.frame(x = 1:8, none = 0, line = 2 + (1:8))
  for (y in c("none", "line")) {
    expect_error(suppressWarnings(elvi(stats::reformulate("x", y), d, family = student())), "fit the responses perfectly",
                 class = "elvi_error_argument")
  }
})
