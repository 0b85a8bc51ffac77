neals_funnel <- function(n = 6) {
  model_density(function(x) x[1]^2 / 18 + sum(x[-1]^2) * exp(-x[1]) / 2 + n * x[1] / 2,
                function(x) c(x[1] / 9 - sum(x[-1]^2) * exp(-x[1]) / 2 + n / 2, x[-1] * exp(-x[1])),
                dim = n + 1, names = c("v", paste0("x", 1:n)))
}

test_that("a gaussian target is good, and print() says k-hat", {
  model <- model_density(function(x) sum((x - 1)^2), function(x) 2 * (x - 1), dim = 3)
  set.seed(1)
  fit <- expect_no_warning(elvi(model, tol = 0.05))
  expect_length(objections(fit), 0)
  expect_output(print(fit), "Pareto k-hat")
  expect_output(print(fit), "Verdict: good")
})

test_that("a funnel is not good, in words", {
  set.seed(1)
  expect_warning(fit <- elvi(neals_funnel(), tol = 0.1), class = "elvi_warning_verdict")
  expect_output(print(fit), "NOT GOOD")
  expect_gt(length(objections(fit)), 0)
})

test_that("weights move moments by what they should", {
  set.seed(1)
  x <- matrix(rnorm(2e5), 1)
  # N(0, 1) weighted to N(0.5, 0.8)
  moved <- weighted_moments(x, drop(dnorm(x, 0.5, 0.8, log = TRUE) - dnorm(x, log = TRUE)))
  expect_equal(moved$shift, 0.5 / 0.8, tolerance = 0.02)
  expect_equal(moved$ratio, 1 / 0.8, tolerance = 0.02)
})

test_that("another start as high elsewhere is an objection", {
  fit <- list(plan = list(search = list(mu = 0, A = matrix(1), objective = 10,
                                        rivals = list(list(mu = 8, A = matrix(1), F = 10.5)))))
  there <- ends_elsewhere(fit)
  expect_equal(there$distance, 8)
  expect_equal(there$behind, 0.5)
  fit$plan$search$rivals[[1]]$F <- 20
  expect_null(ends_elsewhere(fit))
})

test_that("the verdict is the same whenever it is asked for", {
  set.seed(2)
  fit <- suppressWarnings(elvi(neals_funnel(3), budget = 2000))
  expect_identical(verdict_on(fit), fit$verdict)
})
