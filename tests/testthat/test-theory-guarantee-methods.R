# ---- splitting a budget ------------------------------------------------------------------

test_that("the best split is the best of all integer splits", {
  skip_on_cran()
  start <- list(mu = c(3, -1), Sigma = diag(c(2, 1)))
  for (schedule in list(schedule_fixed(100, "case1"), schedule_fixed(100, "case2"), schedule_custom(0.01, 3, 5))) {
    g <- guarantee(quadratic, base_laplace(), schedule, start = start, control = reparam())
    for (E in c(1, 2, 17, 100, 1009)) {
      every <- expand.grid(N = 1:E, K = 1:E)
      every <- every[every$N * every$K <= E, ]
      value <- with(every, g$gamma / (2 * N) * (g$a * g$D + g$b) + g$D / (2 * g$gamma * K))
      split <- best_split(g, E, "distance")
      expect_equal(split$bound, min(value))
      expect_lte(split$N * split$K, E)
      expect_gte(split$bound, split$ideal * (1 - 1e-12))
    }
    split <- best_split(g, 1e9, "distance")
    expect_equal(split$alpha, g$gamma * sqrt(g$a + g$b / g$D))
    expect_equal(split$ideal, sqrt(g$a * g$D^2 + g$b * g$D) / sqrt(1e9))
    expect_equal(split$bound, split$ideal, tolerance = 1e-3)
    expect_equal(sqrt(split$N / split$K), split$alpha, tolerance = 1e-2)
  }
  # a large budget whose best N or K is small
  value <- function(g, N, K) g$gamma / (2 * N) * (g$a * g$D + g$b) + g$D / (2 * g$gamma * K)
  few <- 1:200
  near <- guarantee(quadratic, schedule = schedule_custom(1 / 8, 1, 1), control = reparam(),
                    start = list(mu = c(1 + 1e-4, -1), Sigma = diag(c(1, 0.5))))
  expect_equal(best_split(near, 1e9, "distance")$bound, min(value(near, floor(1e9 / few), few)), tolerance = 1e-12)
  expect_lt(best_split(near, 1e9, "distance")$K, 100)
  slow <- guarantee(quadratic, schedule = schedule_custom(6e-6, 1, 1), control = reparam(), start = start)
  expect_equal(best_split(slow, 1e9, "distance")$bound, min(value(slow, few, floor(1e9 / few))), tolerance = 1e-12)
  expect_lt(best_split(slow, 1e9, "distance")$N, 100)
})

test_that("a best split, run as its help page says, has the bound it promises", {
  start <- list(mu = c(3, -1), Sigma = diag(c(2, 1)))
  g <- guarantee(quadratic, base_laplace(), schedule_fixed(100, "case2"), start = start, control = reparam())
  split <- best_split(g, 5000)
  again <- guarantee(quadratic, base_laplace(), split$schedule, start = start,
                     control = reparam(precondition = g$lambda))
  expect_lte(again$bound, split$bound * (1 + 1e-9))
  expect_equal(again$bound, split$bound, tolerance = 1e-3)   # for these weights another t may be better
  old <- best_split(g, 5000, "distance")
  expect_equal(guarantee(quadratic, base_laplace(), old$schedule, start = start,
                         control = reparam(precondition = g$lambda))$bounds[["distance"]], old$bound)
  expect_lt(split$bound, old$bound)
  # at the optimum nothing is gained by iterating
  at <- guarantee(quadratic, schedule = schedule_fixed(100), control = elvi_control(estimator = "reparam"))
  expect_equal(c(best_split(at, 64)$N, best_split(at, 64)$K), c(64, 1))
})

test_that("budget_for() is the smallest budget", {
  start <- list(mu = c(3, -1), Sigma = diag(c(2, 1)))
  g <- guarantee(quadratic, base_gaussian(), schedule_growing(5000, batch = 30, nu = 0.5), start = start,
                 control = reparam())
  target <- 0.5 * g$bound
  need <- budget_for(g, target)
  expect_lte(predict(g, need[["schedule"]]), target)
  expect_gt(predict(g, need[["schedule"]] - 1), target)
  expect_lte(best_split(g, need[["best_split"]])$bound, target)
  expect_gt(best_split(g, need[["best_split"]] - 1)$bound, target)
  expect_lt(need[["best_split"]], (g$a * g$D^2 + g$b * g$D) / target^2)

  g <- guarantee(quadratic, base_gaussian(), schedule_fixed(100, "case2"), start = start, control = reparam())
  need <- budget_for(g, 2)
  expect_lte(predict(g, need[["schedule"]]), 2)
  expect_gt(predict(g, floor(0.9 * need[["schedule"]])), 2)
  expect_lte(need[["best_split"]], need[["schedule"]])
  # nothing to extend, or nothing covered
  expect_true(is.na(budget_for(guarantee(quadratic, schedule = schedule_custom(0.1, 5, 5), control = reparam()),
                               2)[["schedule"]]))
  path <- guarantee(quadratic, schedule = schedule_fixed(100), start = start,
                    control = elvi_control(coordinates = "raw"))
  expect_true(is.na(budget_for(path, 2)[["schedule"]]))
  expect_equal(budget_for(path, 2)[["best_split"]], need[["best_split"]])
})

test_that("predict() is guarantee() at another budget", {
  for (schedule in list(schedule_fixed(100, "case1"), schedule_fixed(100, "psgd"), schedule_decay(100))) {
    at <- function(E) guarantee(logistic(), base_laplace(), schedule, control = reparam(), budget = E)$bound
    g <- guarantee(logistic(), base_laplace(), schedule, control = reparam())
    expect_equal(predict(g), g$bound)
    expect_equal(predict(g, c(50, 999)), c(at(50), at(999)))
  }
  custom <- guarantee(logistic(), schedule = schedule_custom(0.01, 5, 10), control = reparam())
  expect_identical(predict(custom), custom$bound)
})

# ---- what users see ------------------------------------------------------------------------

test_that("guarantees print", {
  start <- list(mu = c(3, -1), Sigma = diag(c(2, 1)))
  g <- guarantee(quadratic, base_laplace(), schedule_fixed(2500, "case2"), start = start, control = reparam())
  tuned <- guarantee(quadratic, schedule = schedule_tuned(1000))
  heavy <- guarantee(quadratic, base_student(3), schedule_fixed(1000))
  apart <- guarantee(model_glm(cbind(1, c(-2, -1, 1, 2)), c(0, 0, 1, 1), prior = flat()), control = reparam())
  density <- guarantee(model_density(function(x) sum(x^2), function(x) 2 * x, dim = 2, smoothness = 2, convex = TRUE,
                                     growth = 2), alpha = 2, start = start,
                       control = reparam(scale = "triangular"), schedule = schedule_growing(1000, batch = 20))
  bump <- guarantee(bumpy(), schedule = schedule_growing(1000, step = 0.1), control = compact())
  expect_snapshot({
    g
    best_split(g, 1e6)
    budget_for(g, 0.1)
    tuned
    heavy
    apart
    density
    bump
    schedule_rate(schedule_fixed(100))
    schedule_rate(schedule_growing(100))
    schedule_rate(schedule_tuned(100))
  })
})

test_that("bad arguments are refused by name", {
  skip_on_cran()
  g <- guarantee(quadratic, schedule = schedule_fixed(100), control = reparam())
  counts <- guarantee(model_glm(cbind(1, c(-1, 0, 1, 2)), c(1, 0, 2, 5), poisson()), control = reparam())
  bump <- guarantee(bumpy(), schedule = schedule_growing(1000, step = 0.1), control = compact())
  custom <- schedule_custom(0.1, 5, 5)
  expect_snapshot(writeLines(c(
    refusal(guarantee(1), "model"),
    refusal(guarantee(quadratic, "laplace"), "base"),
    refusal(guarantee(quadratic, schedule = 100), "schedule"),
    refusal(guarantee(quadratic, control = list()), "control"),
    refusal(guarantee(quadratic, budget = 0), "budget"),
    refusal(guarantee(quadratic, schedule = custom, budget = 100), "budget"),
    refusal(guarantee(quadratic, start = list(mu = 1)), "start$mu"),
    refusal(guarantee(quadratic, gap0 = -1), "gap0"),
    refusal(guarantee(quadratic, alpha = "a"), "alpha"),
    refusal(guarantee(bumpy(), alpha = 1), "alpha"),
    refusal(guarantee(quadratic, optimum = list(mu = 1:2)), "optimum"),
    refusal(guarantee(quadratic, control = elvi_control(scale = "diagonal"),
                      optimum = list(mu = 1:2, Sigma = matrix(c(2, 1, 1, 2), 2))), "optimum$Sigma"),
    refusal(predict(g, budget = "a"), "budget"),
    refusal(predict(g, budgets = 5), "budgets"),
    refusal(best_split(1, 100), "guarantee"),
    refusal(best_split(g, 0), "budget"),
    refusal(best_split(counts, 100), "guarantee"),
    refusal(best_split(bump, 100), "guarantee"),
    refusal(budget_for(g, 0), "target"),
    refusal(budget_for(counts, 1), "guarantee"),
    refusal(schedule_rate(1), "schedule")
  )))
})
