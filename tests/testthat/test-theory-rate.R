test_that("rates are the theory's, and the slopes of the bounds", {
  skip_on_cran()
  expect_identical(schedule_rate(schedule_fixed(10))$exponent, -0.5)
  expect_equal(schedule_rate(schedule_decay(10, epsilon = 0.2))$exponent, -0.3)
  expect_equal(schedule_rate(schedule_decay(10, epsilon = 0, growth = 0.5))$exponent, -1 / 3)
  expect_equal(schedule_rate(schedule_decay(10, epsilon = 0.1, growth = 1))$exponent, -0.2)
  expect_equal(schedule_rate(schedule_growing(10, nu = 0.5))$exponent, -1 / 2.5)
  expect_true(is.na(schedule_rate(schedule_tuned(10))$exponent))
  expect_true(is.na(schedule_rate(schedule_custom(1, 1, 5))$exponent))
  slope <- function(schedule, budgets) {
    g <- guarantee(quadratic, schedule = schedule, start = list(mu = c(3, -1), Sigma = diag(2)), control = reparam())
    diff(log(predict(g, budgets))) / diff(log(budgets))
  }
  for (schedule in list(schedule_fixed(10, "case1"), schedule_fixed(10, "psgd_scaled"),
                        schedule_decay(10, step = 1e-4, epsilon = 0.2),
                        schedule_growing(1000, step = 0.01, batch = 100, nu = 1))) {
    expect_equal(slope(schedule, c(2e5, 2e6)), schedule_rate(schedule)$exponent, tolerance = 0.05)
  }
})
