subsample_cases <- function() {
  data <- rows_data(400)[-c(3, 200), ]
  X <- model.matrix(~ x + z, data)
  list(logit = model_glm(X, data$share, weights = data$trials, offset = data$o),
       known = model_glm(X, data$real, gaussian(), dispersion = 3, weights = data$w),
       sigma = model_glm(X, data$real, gaussian(), dispersion = NULL, weights = data$w),
       size = model_glm(X, data$count, neg_binomial_2()))
}

test_that("the gradient of some rows is unbiased, and that of all rows at the start", {
  skip_on_cran()
  for (model in subsample_cases()) {
    x0 <- find_mode(model)$x
    anchor <- list(x = x0, gradient = as.double(target_at(model, matrix(x0))$gradient))
    x <- x0 + 0.05 * cos(seq_len(2 * model$dim))
    at <- function(key, x, m = 40) subsampled_model(model, anchor, m, key)$gradient(x)
    expect_equal(at(1, x0), anchor$gradient, tolerance = 1e-10)
    draws <- vapply(1:400, at, x, x = x)
    full <- as.double(target_at(model, matrix(x, model$dim))$gradient)
    off <- (rowMeans(draws) - full) / (apply(draws, 1, sd) / 20)
    expect_lt(max(abs(off)), 4)
    expect_equal(at(7, x), at(7, x))                  # keyed
    expect_gt(max(abs(at(7, x) - at(8, x))), 0)
    expect_equal(at(7, x, m = 398), full, tolerance = 1e-8)
  }
})

test_that("a run with some rows is a function of the seed, whatever its pieces, and close to the optimum", {
  skip_on_cran()
  data <- withr_seed(1, data.frame(x = rnorm(20000), z = rnorm(20000)))
  data$y <- withr_seed(2, rbinom(20000, 1, plogis(data$x - 0.5 * data$z)))
  run <- function(...) withr_seed(3, elvi(y ~ x + z, data = data, family = binomial(), budget = 4000,
                                         start = list(mu = c(0.1, 0.9, -0.6)),
                                         control = elvi_control(rows_per_step = 500, trace_draws = 0, ...)))
  fit <- run()
  expect_identical(fit$method, "mpsgd")
  expect_identical(fit$kept, "average")
  optimum <- elvi(y ~ x + z, data = data, family = binomial())
  expect_lt(max(abs(fit$mu - optimum$mu) / sqrt(diag(vcov(optimum)))), 0.25)
  expect_lt(max(abs(sqrt(diag(vcov(fit))) / sqrt(diag(vcov(optimum))) - 1)), 0.2)
  expect_identical(elvi(run(iterations = 20))$mu, fit$mu)
  expect_identical(run(block = 3)$state$k, fit$state$k)
  expect_equal(run(block = 3)$mu, fit$mu, tolerance = 1e-10)
})

test_that("sparse rows are drawn as dense ones", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  X <- Matrix::rsparsematrix(60, 5, 0.3)
  X[7, ] <- 0
  dense <- model_glm(as.matrix(X), rep(0:1, 30))
  sparse <- model_glm(X, rep(0:1, 30))
  x <- matrix(sin(1:10), 5)
  expect_equal(subsample_gradient(sparse, x, 20, 5), subsample_gradient(dense, x, 20, 5))
})

test_that("only what has rows at hand draws them, and nothing is guaranteed", {
  quadratic <- model_quadratic(diag(2))
  control <- elvi_control(rows_per_step = 10)
  expect_error(elvi(quadratic, control = control), "`rows_per_step` is not used")
  data <- rows_data(100)
  expect_error(elvi(count ~ z, data = rows_chunked(chunks_of(data)), family = neg_binomial_2(), control = control), "does not become faster")
  model <- model_glm(cbind(1, data$z), data$count, poisson())
  expect_error(elvi(model, method = "exact", control = control), "rows_per_step")
  logit <- model_glm(cbind(1, data$z), as.numeric(data$count > 2))
  g <- guarantee(logit, schedule = schedule_fixed(1000), control = elvi_control(estimator = "reparam", rows_per_step = 10))
  expect_true(is.na(g$bound))
  expect_identical(g$assumptions$status[g$assumptions$assumption == "all rows"], "fails")
  expect_error(elvi_control(rows_per_step = 0.5), "`rows_per_step`")
})

test_that("some of the rows are used only where no solver needs fewer passes", {
  data <- rows_data(100)
  control <- elvi_control(rows_per_step = 10)
  expect_message(fit <- elvi(count ~ z, data, poisson(), control = control, correct = FALSE), "not used", class = "elvi_message_all_rows")
  expect_identical(fit$method, "exact")
  expect_identical(fit$mu, elvi(count ~ z, data, poisson(), correct = FALSE)$mu)
  expect_message(fit <- elvi(count ~ z, data, neg_binomial_2(), control = control), class = "elvi_message_all_rows")
  expect_identical(fit$method, "nested")
  expect_message(fit <- elvi(count ~ z, rows_chunked(chunks_of(data)), poisson(), control = control), class = "elvi_message_all_rows")
  expect_identical(fit$method, "exact")
  expect_no_message(fit <- suppressMessages(elvi(count ~ z, data, poisson(), method = "mpsgd", budget = 500, control = control),
                                            classes = "elvi_message_start_kept"), class = "elvi_message_all_rows")
  expect_identical(fit$method, "mpsgd")
})
