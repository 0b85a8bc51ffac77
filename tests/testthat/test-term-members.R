school_data <- function() {
  set.seed(1)
  d <- data.frame(s1 = sample(letters[1:8], 60, TRUE), s2 = sample(letters[1:8], 60, TRUE), w1 = runif(60), x = rnorm(60))
  d$w2 <- 1 - d$w1
  u <- stats::setNames(rnorm(8), letters[1:8])
  d$y <- 0.3 * d$x + d$w1 * u[d$s1] + d$w2 * u[d$s2] + rnorm(60, 0, 0.5)
  d
}

test_that("members of several levels have the weighted mean of their effects", {
  d <- school_data()
  plain <- elvi_problem(y ~ x + (1 | mm(s1, s2)), d)
  one <- function(g) outer(d[[g]], letters[1:8], `==`) * 1
  expect_equal(as.matrix(plain$Z), (one("s1") + one("s2")) / 2, ignore_attr = TRUE)
  weighted <- elvi_problem(y ~ x + (1 | mm(s1, s2, weights = cbind(w1, w2))), d)
  expect_equal(as.matrix(weighted$Z), d$w1 * one("s1") + d$w2 * one("s2"), ignore_attr = TRUE)
  expect_closed_form(y ~ x + (1 | mm(s1, s2, weights = cbind(w1, w2))), d, -0.2)
  expect_closed_form(y ~ x + (x | mm(s1, s2)), d, c(-0.2, -0.4, 0.3))
})

test_that("members are shown and predicted, and refused where they must be", {
  d <- school_data()
  fit <- elvi(y ~ x + (1 | mm(s1, s2)), d)
  expect_identical(rownames(ranef(fit)$mms1s2), letters[1:8])
  expect_length(predict(fit, d[1:3, ]), 3L)
  expect_error(predict(fit, transform(d[1, ], s2 = "z")), "the fit has not seen")
  expect_error(elvi(y ~ (1 | mm(s1)), d), "two factors")
  expect_error(elvi(y ~ (1 | mm(s1, s2, weights = cbind(w1))), d), "one column")
})
