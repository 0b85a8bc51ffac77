test_that("a formula without latent terms is one design with them, less Z", {
  skip_without_parser()
  d <- group_data()
  frame <- model.frame(y ~ x + f + g, d)
  parts <- structured_formula(y ~ x + f + (1 | g), d)
  plain <- frame_design(NULL, list(), model.frame(y ~ x + f, d), NULL)
  latent <- frame_design(parts, list(), frame, NULL)
  shared <- c("y", "intercept", "centre", "contrasts", "constant", "xlevels", "offset_given")
  expect_equal(latent[shared], plain[shared])
  expect_equal(latent$X, plain$X, ignore_attr = TRUE)
  expect_null(plain$Z)
  expect_equal(Matrix::rowSums(latent$Z), rep(1, nrow(d)), ignore_attr = TRUE)
  expect_identical(latent$latent[[1L]]$columns, 1:8)
})

test_that("rows that do not count move neither means nor scales", {
  d <- group_data()
  d$zero <- as.double(seq_len(nrow(d)) > 10)
  d$x[1:10] <- 1e6
  some <- elvi_problem(y ~ x, d, weights = zero)
  rest <- elvi_problem(y ~ x, d, subset = zero > 0)
  expect_equal(some$shift, rest$shift)
  expect_equal(some$priors$joint, rest$priors$joint)
})

test_that("a variable that is nowhere is named, with the nearest column", {
  expect_error(elvi(mpg ~ wtt, mtcars), "^`wtt` is not a column of `data`.* Did you mean `wt`\\?$", class = "elvi_error_argument")
  expect_error(elvi(no_such_response ~ 1), "^There is no variable `no_such_response`. Is `data` missing\\?$", class = "elvi_error_argument")
  fit <- elvi(mpg ~ wt, mtcars)
  expect_error(predict(fit, data.frame(wtt = 1)), "^`wt` is not a column of `newdata`", class = "elvi_error_argument")
})

test_that("a factor with one level is refused by name, in either formula and as characters", {
  d <- data.frame(y = c(0, 0, 3, 1, 2, 0), x = 1:6, one = factor("a"), word = "b")
  for (formula in list(y ~ one, y ~ x + word, y ~ 0 + one)) {
    expect_error(elvi(formula, d), "has the single level \"[ab]\" in these data", class = "elvi_error_argument")
  }
  expect_error(elvi(y ~ x, d, family = zero_inflated_poisson(), ziformula = ~ one), "`one` has the single level",
               class = "elvi_error_argument")
  expect_error(elvi(y ~ f, transform(d, f = factor(x > 3)), subset = x > 3), "single level", class = "elvi_error_argument")
})
