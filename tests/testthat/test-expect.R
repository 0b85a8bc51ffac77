# The expectations of helper-expect.R against those of testthat.

test_that("what is close at a glance is equal to testthat, and the rest is left to it", {
  skip_on_cran()
  set.seed(1)
  x <- rnorm(5)
  cases <- list(
    list(x, x), list(x, x + 1e-9), list(x, x + 1e-6), list(x, x * (1 + 1e-8)), list(1e-12, 2e-12), list(0, 1e-12), list(0, 1),
    list(c(1, NA), c(1, NA)), list(c(1, NA), c(1, 2)), list(Inf, Inf), list(Inf, 1), list(NaN, NA_real_), list(1:3, c(1, 2, 3)),
    list(c(a = 1), c(b = 1)), list(c(a = 1), 1), list(matrix(1, 1), 1), list(diag(2), diag(2) + 1e-10), list(numeric(), numeric()),
    list(1:2, 1:3), list(x, x[-1]), list("a", "a"), list("a", "b"), list(list(1, "a"), list(1 + 1e-10, "a")), list(NULL, NULL),
    list(NULL, 1), list(factor("a"), factor("a")), list(factor("a"), factor(c("a", "b"))[1]),
    list(as.Date("2026-01-01"), as.Date("2026-01-02")))
  passes <- function(expectation, ...) !inherits(tryCatch(expectation(...), expectation_failure = identity), "expectation_failure")
  for (case in cases) {
    mine <- passes(expect_identical, case[[1]], case[[2]])
    expect_true(mine == passes(testthat::expect_identical, case[[1]], case[[2]]), info = deparse1(case))
    for (tolerance in c(1e-8, 1e-3)) {
      mine <- passes(expect_equal, case[[1]], case[[2]], tolerance = tolerance)
      expect_true(mine == passes(testthat::expect_equal, case[[1]], case[[2]], tolerance = tolerance),
                  info = paste(deparse1(case), tolerance))
    }
  }
  expect_true(passes(expect_equal, c(a = 1), 1, ignore_attr = TRUE))
  # a failure names what failed
  said <- tryCatch(expect_equal(x[1] + 1, x[1], label = NULL), expectation_failure = conditionMessage)
  expect_match(said, "x[1] + 1", fixed = TRUE)
})
