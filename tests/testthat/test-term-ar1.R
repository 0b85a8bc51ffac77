series_data <- function(seed = 1, n = 30) {
  set.seed(seed)
  d <- data.frame(t = rep(seq_len(n), 2), g = rep(c("a", "b"), each = n), x = rnorm(2 * n))
  u <- replicate(2, as.double(stats::arima.sim(list(ar = 0.8), n)))
  d$eta <- 0.5 + 0.4 * d$x + 0.5 * u[cbind(d$t, rep(1:2, each = n))]
  d$y <- d$eta + rnorm(2 * n, 0, 0.5)
  d$count <- rpois(2 * n, exp(d$eta))
  d
}

test_that("an autoregression has the covariance sd^2 rho^|i - j|, with gaps and series of one time", {
  d <- series_data(n = 9)[c(1:3, 5:8, 12:14, 18), ]
  d$g[11] <- "c"
  term <- elvi_problem(y ~ ar1(t | g), d, dispersion = 1)$terms[[1L]]
  expect_identical(term$levels, c(paste0("a:", 1:8), paste0("b:", 3:5), "c:9"))
  theta <- c(log(0.7) - log(cosh(0.9)), 0.9)
  expect_record(term, theta)
  expected <- 0.49 * outer(term$chain, term$chain, `==`) * tanh(0.9)^abs(outer(term$place, term$place, `-`))
  expect_equal(solve(term_matrix(term, theta)), expected)
  expect_equal(unname(unlist(term_record(term)$natural(term, rbind(theta)))), c(0.7, tanh(0.9)))
})

test_that("given hyperparameters, an autoregression is the closed form", {
  d <- series_data()
  expect_closed_form(y ~ x + ar1(t), d, c(-0.4, 0.8))
  expect_closed_form(y ~ x + ar1(t | g), d[-c(4:7, 40), ], c(-0.4, -0.3))
  expect_closed_form(y ~ x + ar1(0 + factor(t) | g) + (1 | g), d, c(-0.2, -0.4, 0.8))
  expect_dense_optimum(count ~ x + ar1(t | g), d, poisson(), c(-0.6, 0.7))
})

test_that("over hyperparameters, an autoregression agrees with a brute-force grid", {
  skip_on_cran()
  d <- series_data(3, 40)
  fit <- elvi(y ~ x + ar1(t), d, dispersion = 0.25)
  setup <- nested_setup(fit$problem, base_gaussian())
  grid <- expand.grid(seq(-3.5, 1, length.out = 40), seq(-1.5, 4.5, length.out = 40))
  found <- evidence_at(setup, lapply(seq_len(nrow(grid)), function(i) as.double(grid[i, ])))
  value <- vapply(found, `[[`, 0, "value")
  w <- exp(value - max(value))
  w <- w / sum(w)
  nodes <- lapply(found, conditional_node, setup)
  mu <- vapply(nodes, `[[`, numeric(42), "mu")
  sd <- vapply(nodes, `[[`, numeric(42), "sd")
  mean <- drop(mu %*% w)
  spread <- sqrt(drop((sd^2 + mu^2) %*% w) - mean^2)
  at <- posterior_moments(fit$posterior)
  shift <- fit$problem$intercept_shift
  mean[1L] <- mean[1L] + sum(shift$by[1L, ] * mean[seq_len(ncol(shift$by))])
  expect_lt(max(abs(at$mean[1:42] - mean) / spread), 0.03)
  expect_lt(max(abs(at$sd[2:42] / spread[2:42] - 1)), 0.03)
  rho <- tanh(grid[, 2])
  expect_lt(abs(at$mean[["cor(ar1(t))"]] - sum(w * rho)), 0.03 * sqrt(sum(w * rho^2) - sum(w * rho)^2))
})

test_that("a fit with an autoregression is shown, predicted and drawn", {
  d <- series_data()
  fit <- elvi(count ~ x + ar1(t | g), d, family = poisson())
  expect_true(fit$converged)
  expect_output(print(fit), "cor(ar1(t | g))", fixed = TRUE)
  expect_true(all(c("sd[ar1(t | g)]", "cor(ar1(t | g))", "ar1(t | g).a:1") %in% fit$posterior$shown))
  expect_equal(as.data.frame(VarCorr(fit))$grp, "ar1(t | g)")
  eta <- predict(fit, d[c(1, 31), ])
  expect_equal(unname(eta[1]), unname(fit$mu[["(Intercept)"]] + d$x[1] * fit$mu[["x"]] + fit$mu[["ar1(t | g).a:1"]]), tolerance = 0.05)
  expect_identical(dim(as.matrix(fit, draws = 10))[1L], 10L)
})

test_that("new times go back to the mean, as if they had been there without data", {
  d <- series_data()
  wide <- elvi(y ~ x + ar1(t, times = c(-2, 36)), d, dispersion = 0.25)
  fit <- elvi(y ~ x + ar1(t), d, dispersion = 0.25)
  new <- data.frame(t = c(-2, 0, 31, 36, 5), x = 0.3)
  expect_equal(predict(fit, new, se.fit = TRUE), predict(wide, new, se.fit = TRUE), tolerance = 1e-3)
  drawn <- posterior_linpred(fit, new, draws = 4000)
  expect_equal(apply(drawn, 2, sd), predict(fit, new, se.fit = TRUE)$se.fit, tolerance = 0.1)
  expect_equal(cor(drawn)[3:4, 3:4], cor(posterior_linpred(wide, new, draws = 4000))[3:4, 3:4], tolerance = 0.1)
  expect_error(predict(fit, transform(new, t = t + 0.5)), "multiples")
  by <- elvi(y ~ x + ar1(t | g), d, dispersion = 0.25)
  other <- data.frame(t = 1:2, x = 0, g = "c")
  expect_error(predict(by, other), "allow_new_levels")
  sds <- predict(by, other, se.fit = TRUE, allow_new_levels = TRUE)$se.fit
  expect_equal(sds[[1]], sds[[2]])
  expect_gt(sds[[1]], posterior_moments(by$posterior)$mean[["sd[ar1(t | g)]"]])
})

test_that("times that make no series are refused", {
  d <- series_data()
  expect_error(elvi(y ~ ar1(t), transform(d, t = t^1.1)), class = "elvi_error_term")
  expect_error(elvi(y ~ ar1(t), transform(d, t = ifelse(t > 15, t + 1e6, t))), "larger steps")
  expect_error(elvi(y ~ ar1(t), transform(d, t = t > 3)), class = "elvi_error_term")
  expect_error(elvi(y ~ ar1(t), transform(d, t = t > 3 + 0)), class = "elvi_error_term")
  expect_error(elvi(y ~ ar1(t, order = 2), d), "no argument")
})
