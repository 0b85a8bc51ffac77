# moments and limits of coefficients a + b (x - mean(x)) by a grid, with a student prior of b
student_truth <- function(d, scale, df) {
  grid <- expand.grid(a = seq(-9, 9, length.out = 301), b = seq(-20, 100, length.out = 1201))
  f <- dnorm(grid$a, 0, scale, log = TRUE) + dt(grid$b / scale, df, log = TRUE)
  for (i in seq_along(d$y)) f <- f + plogis((2 * d$y[i] - 1) * (grid$a + grid$b * (d$x[i] - mean(d$x))), log.p = TRUE)
  w <- exp(f - max(f))
  w <- w / sum(w)
  x <- cbind(grid$a - mean(d$x) * grid$b, grid$b)
  mean <- colSums(w * x)
  limits <- t(apply(x, 2, function(v) stats::approx(cumsum(w[order(v)]), sort(v), c(0.025, 0.975), ties = "ordered")$y))
  list(mean = mean, sd = sqrt(colSums(w * sweep(x, 2, mean)^2)), limits = limits)
}

test_that("separated data with a student prior have the posterior of a grid", {
  d <- data.frame(x = c(-2, -1.3, -1, -0.4, 0.2, 0.6, 1, 1.9), y = c(0, 0, 0, 0, 1, 1, 1, 1))
  set.seed(1)
  fit <- elvi(y ~ x, data = d, family = binomial(), prior = student_t(3, 0, 1), prior_intercept = normal(0, 1))
  truth <- student_truth(d, 1, 3)
  expect_lt(max(abs(coef(fit) - truth$mean) / truth$sd), 0.02)
  expect_equal(unname(sqrt(diag(vcov(fit)))), truth$sd, tolerance = 0.03)
  expect_lt(max(abs(confint(fit) - truth$limits) / truth$sd), 0.06)
  draws <- as.matrix(fit, draws = 20000)   # whose fourth moments, and so standard deviations, are too noisy to compare
  expect_lt(max(abs(colMeans(draws) - truth$mean) / truth$sd), 0.05)
  expect_lt(max(abs(t(apply(draws, 2, quantile, c(0.025, 0.975))) - truth$limits) / truth$sd), 0.1)
  gaussian <- elvi(y ~ x, data = d, family = binomial(), prior = student_t(3, 0, 1), prior_intercept = normal(0, 1), correct = FALSE)
  expect_lt(min(sqrt(diag(vcov(gaussian))) / truth$sd), 0.8)
  expect_match(capture_output(print(fit)), "Estimated error against the posterior")
})

test_that("a student prior that data outweigh costs a look, and more coefficients are reported", {
  set.seed(1)
  d <- as.data.frame(matrix(rnorm(3200), 400))
  d$y <- rbinom(400, 1, plogis(d$V1))
  fit <- elvi(y ~ V1, data = d, family = binomial(), prior = student_t(4, 0, 2.5))
  expect_false(is_reshaped(fit$posterior))
  many <- elvi(y ~ ., data = d[1:30, ], family = binomial(), prior = student_t(4, 0, 2.5))
  expect_match(paste(strsplit(capture_output(print(many)), "\\s+")[[1]], collapse = " "), "student priors of more than 6 coefficients")
})
