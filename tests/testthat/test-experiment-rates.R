# Gaps beside bounds.

lab <- load_experiments()

gaussian <- base_gaussian()

fit_of <- function(model, schedule) {
  suppressMessages(elvi(model, gaussian, schedule, control = raw_control()))
}

guarantee_of <- function(model, schedule) {
  guarantee(model, gaussian, schedule, control = raw_control())
}

test_that("the quadratic target has the curvatures and the mode it says", {
  for (d in c(2, 7)) {
    model <- lab$rate_quadratic(d)
    expect_equal(range(eigen(model$A)$values), c(1, 10))
    expect_equal(model$smoothness, 10)
    expect_equal(sum(model$m^2), 1)
  }
})

test_that("finite horizon: each point is a run of its own beside its own bound", {
  skip_on_cran()
  x <- example_experiment("rates", seeds = 2, budgets = c(50, 400), dim = 2)
  model <- lab$rate_logistic(2)
  best <- elvi_optimum(model)$objective
  expect_identical(nrow(x$data), 4L * 2L * 2L)
  for (method in c("case1", "case2", "psgd", "psgd_scaled")) {
    g <- guarantee_of(model, schedule_fixed(400, method))
    row <- x$data[x$data$method == method & x$data$budget == 400 & x$data$seed == 2, ]
    expect_equal(row$bound, g$bounds[["distance"]])
    set.seed(2)
    fit <- fit_of(model, schedule_fixed(400, method))
    expect_identical(fit$kept, "average")
    expect_equal(row$gap, objective(fit)$estimate - best)
    expect_lt(row$gap, row$bound)
    expect_equal(x$numbers$gap_start, g$gap_start)
  }
})

test_that("slopes are those of the mean gap, over all budgets and the last decade", {
  budget <- rep(c(10, 100, 1000), each = 2)
  data <- data.frame(method = "case1", budget = budget, seed = 1:2,
                     gap = c(1, 3) * ifelse(budget == 1000, 0.01, 100 / budget))
  out <- lab$rate_slopes(data, "gap", function(method) schedule_fixed(1, method))
  expect_equal(out$theory, -0.5)
  expect_equal(out$last_decade, -2)
  expect_equal(out$all, -1.5)
})

test_that("budgets are increasing", {
  expect_snapshot(error = TRUE, {
    example_experiment("rates", budgets = c(100, 10))
    example_experiment("rates", budgets = 100)
  })
})

test_that("dynamic: the first steps make the bound smallest at the largest budget", {
  skip_on_cran()
  model <- lab$rate_logistic(2)
  schedules <- lab$dynamic_schedules(model, 1e5)
  for (schedule in schedules) {
    bound <- function(factor) {
      schedule$step <- schedule$step * factor
      guarantee_of(model, schedule)$bounds[["distance"]]
    }
    expect_gt(bound(1.05), bound(1))
    expect_gt(bound(0.95), bound(1))
    expect_lte(schedule$step, 1 / (2 * model$smoothness))
  }
  expect_equal(vapply(schedules, function(s) schedule_rate(s)$exponent, 0),
               c(decay = -0.4, both = -1 / 3, growing = -1 / 2.1))
})

test_that("iterations within a budget", {
  plan <- plan_schedule(schedule_custom(0.1, 1:5), 2, 3, 1)
  expect_equal(lab$iterations_within(plan, c(1, 2, 3, 9, 10, 100)), c(1, 1, 2, 3, 4, 5))
})

test_that("dynamic: measured along one run, as if each budget had its own", {
  skip_on_cran()
  x <- example_experiment("rates_dynamic", seeds = 1, budgets = c(30, 300), dim = 2)
  model <- lab$rate_logistic(2)
  best <- elvi_optimum(model)$objective
  for (method in c("decay", "both", "growing")) {
    for (budget in c(30, 300)) {
      schedule <- x$numbers$schedules[[method]]
      schedule$budget <- budget
      set.seed(1)
      fit <- fit_of(model, schedule)
      row <- x$data[x$data$method == method & x$data$budget == budget, ]
      expect_equal(row$evaluations, fit$state$evals)
      expect_equal(row$gap, objective(fit)$estimate - best)
      last <- list(mu = fit$last$mu, Sigma = fit$last$scale)
      expect_equal(row$last, objective(last, model)$estimate - best)
      expect_equal(row$bound, guarantee_of(model, schedule)$bounds[["distance"]])
    }
  }
})

test_that("dimension and kurtosis: targets, bases and bounds", {
  skip_on_cran()
  x <- example_experiment("rates_noise", seeds = 2, dims = c(2, 4), df = 5, budget = 200)
  kurtosis <- unique(x$data$at[x$data$varied == "kurtosis"])
  # uniform, gaussian, laplace, student
  expect_equal(kurtosis, c(3 * 12 / 14, 3, 3 * 13 / 11, 3 * 3))
  row <- subset(x$data, varied == "dimension" & at == 4 & method == "case2" & seed == 1)
  model <- lab$rate_quadratic(4)
  set.seed(1)
  fit <- fit_of(model, schedule_fixed(200, "case2"))
  expect_equal(row$gap, lab$gap_at(fit, "average", 4 / 2 + log(det(model$A)) / 2))
  expect_equal(row$bound, guarantee_of(model, schedule_fixed(200, "case2"))$bounds[["distance"]])
  # the slopes are those of power laws through the two dimensions
  one <- x$data[x$data$varied == "dimension" & x$data$method == "case1", ]
  mean_gap <- tapply(one$gap, one$at, mean)
  slopes <- x$numbers$slopes
  expect_equal(slopes$gap[slopes$varied == "dimension" & slopes$method == "case1"],
               log(mean_gap[["4"]] / mean_gap[["2"]]) / log(2))
})

test_that("the noiseless gap is that of a run with very large batches", {
  skip_on_cran()
  model <- lab$rate_quadratic(3)
  step <- 1 / 20
  for (lambda in list(c(mu = 1, Sigma = 1), c(mu = 1, Sigma = 0.1))) {
    schedule <- schedule_custom(step, 1e5, 6)
    control <- raw_control(precondition = lambda)
    g <- guarantee(model, gaussian, schedule, control = control)
    tau <- 1 / (1 + g$a * step^2 / 1e5)
    set.seed(1)
    fit <- elvi(model, gaussian, schedule, control = control)
    gap <- lab$gap_at(fit, "average", 3 / 2 + log(det(model$A)) / 2)
    expect_equal(lab$noiseless_gap(model, g, tau), gap, tolerance = 0.01)
    expect_gt(abs(lab$noiseless_gap(model, g, 0.5) - gap), 0.05 * gap)   # the weights matter
  }
})

test_that("batch sizes: the lowest bound is best_split()'s, the lowest gap is found", {
  skip_on_cran()
  x <- example_experiment("rates_batch", seeds = 2, budget = 400, dim = 2)
  means <- aggregate(cbind(gap, bound) ~ batch + method, x$data, mean)
  for (method in c("case1", "case2")) {
    one <- means[means$method == method, ]
    best <- x$numbers$best[x$numbers$best$method == method, ]
    g <- guarantee_of(lab$rate_logistic(2), schedule_fixed(400, method))
    expect_equal(best$bound, best_split(g, by = "distance")$N)
    expect_equal(min(one$bound), best_split(g, by = "distance")$bound)
    expect_equal(one$batch[which.min(one$bound)], best$bound)
    expect_equal(one$batch[which.min(one$gap)], best$measured)
    expect_equal(best$preset, g$N)
  }
})

test_that("pictures show means, bounds and slopes", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  text_of <- function(p) {
    Filter(function(layer) inherits(layer$geom, "GeomText"), p$layers)[[1]]$data
  }
  x <- example_experiment("rates", seeds = 2, budgets = c(50, 100, 400), dim = 2)
  p <- ggplot2::autoplot(x)
  gap <- p$data[p$data$line == "measured" & p$data$panel == "PSGD, scaled", ]
  one <- x$data[x$data$method == "psgd_scaled", ]
  expect_equal(gap$mean, unname(c(tapply(one$gap, one$budget, mean))))
  expect_equal(gap$high, unname(c(tapply(one$gap, one$budget, max))))
  expect_true(sprintf("measured, slope %.2f", x$numbers$slopes$all[1]) %in% text_of(p)$text)
  x <- example_experiment("rates_dynamic", seeds = 1, budgets = c(30, 100, 300), dim = 2)
  p <- ggplot2::autoplot(x)
  expect_setequal(p$data$line, c("bound", "measured", "last"))
  expect_true("bound -0.33" %in% text_of(p)$text)
  expect_silent(ggplot2::ggplot_build(p))
  x <- example_experiment("rates_batch", seeds = 1, budget = 100, dim = 2)
  p <- ggplot2::autoplot(x)
  expect_setequal(text_of(p)$text, paste("N =", c(x$numbers$best$bound, x$numbers$best$measured)))
  x <- example_experiment("rates_noise", seeds = 1, dims = c(2, 3), df = 5, budget = 100)
  p <- ggplot2::autoplot(x)
  expect_identical(sum(text_of(p)$text == "bound"), 4L)
})
