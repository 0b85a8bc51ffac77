test_that("groups have the levels, units and columns that memory gives them", {
  data <- withr_seed(2, data.frame(x = rnorm(60), n = sample(c(2, 10, 1), 60, TRUE),
                                   f = factor(sample(letters[1:4], 60, TRUE), letters[5:1]), text = sample(c("b", "a", "c"), 60, TRUE), y = rnorm(60)))
  for (formula in list(y ~ (1 | n), y ~ (x | f), y ~ (1 | text / n), y ~ (0 + x | n:f), y ~ (f || text),
                       y ~ x + (log(abs(x)) | factor(n)))) {
    here <- elvi_problem(formula, data)
    there <- elvi_problem(formula, rows_chunked(chunks_of(data, split(seq_len(60), rep(1:5, each = 12)))))
    for (k in seq_along(here$terms)) {
      fields <- c("label", "levels", "coefs", "group", "columns", "correlated", "factor_levels", "prior_sd")
      expect_equal(there$terms[[k]][fields], here$terms[[k]][fields], tolerance = 1e-12)
      expect_equal(there$terms[[k]]$unit, here$terms[[k]]$unit, tolerance = 1e-12)
    }
    columns <- there$rows$columns
    ones <- here$Z
    ones@x[] <- 1
    expect_equal(as.matrix(columns$meet), as.matrix(Matrix::crossprod(ones)), ignore_attr = TRUE)
    expect_equal(columns$squares, Matrix::colSums(here$Z^2), ignore_attr = TRUE)
  }
})

test_that("rows of smooths are thinned evenly, whatever the order of joins", {
  rows <- function(i) list(frame = data.frame(x = i), counting = rep(TRUE, length(i)), every = 1)
  joined <- Reduce(function(a, b) join_thinned(a, b, 40), lapply(split(1:200, rep(1:4, each = 50)), function(i) thinned(rows(i), 40)))
  expect_lte(nrow(joined$frame), 40)
  expect_gt(nrow(joined$frame), 15)
  expect_true(all(diff(joined$frame$x) > 0))
  expect_identical(joined$every, 8)
})

test_that("few rows keep the basis of a smooth of memory, many make one from some of them, with a message", {
  skip_if_not_installed("mgcv")
  data <- withr_seed(3, data.frame(x = runif(200), y = rnorm(200)))
  here <- elvi_problem(y ~ s(x, k = 6), data)
  pieces <- split(1:200, rep(1:4, each = 50))
  there <- elvi_problem(y ~ s(x, k = 6), rows_chunked(chunks_of(data, pieces)))
  expect_identical(there$rows$labels, colnames(here$rows$X))
  expect_equal(there$rows$columns$squares, Matrix::colSums(here$Z^2), tolerance = 1e-10, ignore_attr = TRUE)
  old <- options(elvi.collected_rows = 100)
  on.exit(options(old))
  expect_message(elvi_problem(y ~ s(x, k = 6), rows_chunked(chunks_of(data, pieces))), class = "elvi_message_smooth_rows")
})
