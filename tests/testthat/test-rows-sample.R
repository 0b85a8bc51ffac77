# Rows with a rare level, a column that is often 0, and weights.
sampled_case <- function(n = 6000) {
  set.seed(3)
  X <- cbind(1, rnorm(n), rbinom(n, 1, 0.002), rbinom(n, 1, 0.3))
  new_rows(X, NULL, as.double(rbinom(n, 1, 0.3)), rep(c(1, 2), length.out = n), rnorm(n), n)
}

parts_at <- function(rows, cuts) {
  lapply(split(seq_len(rows$n), findInterval(seq_len(rows$n), cuts)), function(i) replace(part_of_rows(rows, i), "n", length(i)))
}

test_that("a sample of joined chunks has all rows of rare columns, and weights that are right on average", {
  rows <- sampled_case()
  size <- list(most = 400, each = 60)
  estimates <- vapply(1:200, function(k) {
    parts <- lapply(parts_at(rows, c(1000, 1001, 4000)), function(part) sample_of_rows(part, c(k, part$n, sum(part$y)), size))
    sample <- Reduce(join_row_samples, parts)
    few <- sampled_rows(list(sample = sample, count = rows$n, constant = 0, recipe = list()))
    expect_lt(length(few$y), 600)
    expect_equal(sum(few$X[, 3]), sum(rows$X[, 3]))
    expect_equal(few$weight[few$X[, 3] == 1], rows$weight[rows$X[, 3] == 1])
    c(sum(few$weight), sum(few$weight * few$y), sum(few$weight * few$X[, 4]), sum(few$weight * few$offset^2))
  }, numeric(4))
  truth <- with(rows, c(sum(weight), sum(weight * y), sum(weight * X[, 4]), sum(weight * offset^2)))
  error <- (rowMeans(estimates) - truth) / (apply(estimates, 1, sd) / sqrt(200))
  expect_true(all(abs(error) < 4))
})

test_that("samples of sparse rows are those of dense ones, and of few rows all of them", {
  skip_if_not_installed("Matrix")
  rows <- sampled_case(900)
  sparse <- replace(rows, c("layout", "X"), list("sparse", sparse_rows(Matrix::Matrix(rows$X, sparse = TRUE))))
  size <- list(most = 100, each = 30)
  of <- function(rows) {
    parts <- lapply(parts_at(rows, 500), function(part) sample_of_rows(part, c(1, part$n), size))
    sampled_rows(list(sample = join_row_samples(parts[[1]], parts[[2]]), recipe = list()))
  }
  expect_equal(of(sparse)$weight, of(rows)$weight)
  expect_equal(of(sparse)$y, of(rows)$y)
  expect_equal(predictor_of(of(sparse), c(1, 2, 3, 4)), predictor_of(of(rows), c(1, 2, 3, 4)))
  whole <- sampled_rows(list(sample = sample_of_rows(rows, 1, list(most = 1000, each = 50)), recipe = list()))
  expect_equal(whole$weight, rows$weight)
  expect_null(join_row_samples(sample_of_rows(rows, 1, size), NULL))
  expect_null(sample_of_rows(rows, 1, sample_size(5000)))
})

passes_of <- function(formula, data, family, chunk = 1000L, ...) {
  old <- options(elvi.rows_progress = TRUE)
  on.exit(options(old))
  part <- split(data, (seq_len(nrow(data)) - 1L) %/% chunk)
  passes <- 0
  fit <- withCallingHandlers(elvi(formula, rows_files(as.list(seq_along(part)), function(i) part[[i]]), family, ...),
                             elvi_message_pass = function(m) {
                               passes <<- passes + 1
                               invokeRestart("muffleMessage")
                             })
  list(fit = fit, passes = passes)
}

test_that("fits of larger data take few passes, also with a rare level whose responses are all 0 and with sorted rows", {
  set.seed(1)
  n <- 30000
  data <- data.frame(x = sort(rnorm(n)), k = factor(sample(c("a", "b", "rare"), n, TRUE, c(0.6, 0.399, 0.001))))
  data$yes <- rbinom(n, 1, plogis(data$x / 2 - 1)) * (data$k != "rare")
  data$count <- rpois(n, exp(data$x / 2)) * (data$k != "rare")
  check <- function(formula, family, most, ...) {
    found <- passes_of(formula, data, family, ...)
    memory <- elvi(formula, data, family, ...)
    expect_lte(found$passes, most)
    expect_true(found$fit$optimum$converged)
    expect_null(found$fit$given$model$rows$sample)   # a fit does not keep it
    expect_lt(max(abs(found$fit$mu - memory$mu) / sqrt(diag(memory$Sigma))), 2e-4)
    expect_equal(diag(found$fit$Sigma), diag(memory$Sigma), tolerance = 1e-3)
  }
  check(yes ~ x, binomial(), 6)
  check(count ~ x, poisson(), 7)
  check(yes ~ x + k, binomial(), 7)     # one of them for the levels
  check(count ~ x + k, poisson(), 8)
  check(count ~ x, poisson(), 7, base = base_uniform())
})

test_that("a rare first level of a factor, which has no column, is in the sample with all its rows", {
  old <- options(elvi.sampled_rows = 1200)
  on.exit(options(old))
  n <- 8000
  data <- withr_seed(12, data.frame(x = rnorm(n), k = sample(c("a rare one", "u", "v"), n, TRUE, c(0.004, 0.6, 0.396))))
  data$y <- withr_seed(13, ifelse(data$k == "a rare one", 0, rbinom(n, 1, plogis(data$x - 0.5))))
  sample <- elvi_problem(y ~ x + k, rows_chunked(chunks_of(data)), family = binomial())$rows$sample
  rare <- rowSums(sample$rows$X[, 3:4]) == 0
  expect_equal(sum(rare), sum(data$k == "a rare one"))
  found <- passes_of(y ~ x + k, data, binomial())
  expect_lte(found$passes, 9)
})
