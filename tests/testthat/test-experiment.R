# The frame of the experiments and what their files share.

lab <- load_experiments()

quadratic <- model_quadratic(diag(c(1, 4)), c(1, -1))
best <- 1 + log(2)   # d/2 + log|A| / 2

test_that("without a name the experiments are listed, with their arguments", {
  known <- example_experiment()
  expect_named(known, c("name", "title", "arguments"))
  expect_identical(known$name, names(lab$experiments()))
  expect_identical(known$arguments[known$name == "rates"],
                   "seeds = 5, budgets = 10^seq(2, 5, by = 0.5), dim = 5")
  expect_false(anyDuplicated(known$name) > 0)
})

test_that("names and arguments are checked at the door", {
  expect_snapshot(error = TRUE, {
    example_experiment("rates_batch", seed = 3)
    example_experiment("rates_batch", 3)
    example_experiment("rates_batch", seeds = 0)
    do.call(example_experiment, list("rates_batch", seeds = 1, seeds = 2))
    example_experiment("rates_noise", dims = numeric())
  })
  expect_error(example_experiment("figure9"), "`name` must be one of",
               class = "elvi_error_argument")
})

test_that("a result says what it is and is drawn", {
  skip_on_cran()
  x <- example_experiment("rates_noise", seeds = 1, dims = c(2, 3), df = 5, budget = 100)
  expect_s3_class(x, "elvi_experiment")
  expect_identical(x$name, "rates_noise")
  expect_gte(x$seconds, 0)
  x$seconds <- 1.234
  expect_output(print(x), paste0("Experiment \"rates_noise\": ", x$title, "\n", nrow(x$data),
                                 " measurements in $data, 1.2 s"), fixed = TRUE)
  skip_if_not_installed("ggplot2")
  pdf(NULL)
  on.exit(dev.off())
  expect_s3_class(plot(x), "ggplot")
  expect_error(plot(x, colour = "red"), "autoplot() has no argument `colour`", fixed = TRUE,
               class = "elvi_error_argument")
})

test_that("experiments are repeatable and leave the user's generator alone", {
  skip_on_cran()
  set.seed(9)
  before <- .Random.seed
  inside <- lab$seeded(4, runif(3))
  expect_identical(.Random.seed, before)
  set.seed(4)
  expect_identical(inside, runif(3))

  small <- list(nonconvex = list(budget = 1000, runs = 1),
                bases = list(iterations = 100, draws = 1000, runs = 1))
  for (name in if (long_tests()) names(small) else "bases") {
    run <- function(seed) do.call(example_experiment, c(name, small[[name]], seed = seed))$data
    set.seed(9)
    first <- run(3)
    expect_identical(.Random.seed, before, label = name)
    expect_identical(run(3), first, label = name)
    if (long_tests()) expect_false(identical(run(4), first), label = name)
  }
})

test_that("an interrupt ends an experiment", {
  skip_on_os("windows")
  skip_on_cran()
  for (name in c("rates", "rates_dynamic")) {
    for (wait in c(0.2, 0.6)) {
      system2("sh", c("-c", shQuote(sprintf("sleep %g; kill -INT %d", wait, Sys.getpid()))), wait = FALSE)
      ended <- tryCatch(example_experiment(name), elvi_error = conditionMessage, interrupt = function(i) "interrupt")
      expect_true(identical(ended, "The experiment was interrupted.") || identical(ended, "interrupt"),
                  info = paste(name, wait))
    }
  }
})

test_that("a gap is F - F* at the iterate or at the average, even where the start was better", {
  set.seed(1)
  fit <- suppressMessages(elvi(quadratic, schedule = schedule_custom(0.1, 5, 20),
                               control = lab$theory_control()))
  F <- function(mu, S) {   # E f = f(mu) + tr(S A S) / 2
    A <- quadratic$A
    away <- mu - quadratic$m
    sum(away * (A %*% away)) / 2 + sum(diag(S %*% A %*% S)) / 2 - log(det(S))
  }
  expect_equal(lab$gap_at(fit, "last", best), F(fit$state$mu, fit$state$scale) - best)
  expect_equal(lab$gap_at(fit, "average", best),
               F(fit$state$average_mu, fit$state$average_scale) - best)
  fit$theta <- fit$start
  expect_equal(lab$gap_at(fit, "last", best), F(fit$state$mu, fit$state$scale) - best)
})

test_that("measuring along a run does not change it", {
  control <- lab$theory_control()
  schedule <- schedule_growing(500, step = 0.1)
  set.seed(2)
  along <- lab$measure_along(
    quadratic, base_gaussian(), schedule, control,
    pick = function(plan) c(1, 4, plan$iterations),
    measure = function(fit) data.frame(gap = lab$gap_at(fit, "last", best)))
  set.seed(2)
  whole <- suppressMessages(elvi(quadratic, schedule = schedule, control = control))
  batches <- ceiling(seq_len(whole$plan$iterations)^1.1)
  expect_equal(along$evaluations, c(0, 1, sum(batches[1:4]), sum(batches)))
  expect_identical(along$gap[4], lab$gap_at(whole, "last", best))
  # the start is (0, I / sqrt(L)), L = 4: f(0) = 5/2, tr(A) / 8 = 5/8, log|Sigma| = -2 log(2)
  expect_equal(along$gap[1], 5 / 2 + 5 / 8 + 2 * log(2) - best)
})

test_that("seeds are summarised group by group", {
  data <- data.frame(method = rep(c("b", "a"), each = 4), x = rep(1:2, 4), seed = c(1, 1, 2, 2),
                     gap = c(1, 10, 3, 30, 5, 50, 9, 70))
  out <- lab$over_seeds(data, "gap", c("method", "x"))
  expect_identical(out$method, c("a", "a", "b", "b"))
  expect_equal(out$mean, c(7, 60, 2, 20))
  expect_equal(out$low, c(5, 50, 1, 10))
  expect_equal(out$high, c(9, 70, 3, 30))
})

test_that("a power law has its exponent as slope", {
  expect_equal(lab$log_slope(c(1, 10, 500), 3 * c(1, 10, 500)^-0.7), -0.7)
})

test_that("labels are moved apart as little as possible", {
  expect_equal(lab$spread_out(c(5, 1, 3), 1), c(5, 1, 3))
  expect_equal(lab$spread_out(c(1, 1), 0.5), c(0.75, 1.25))
  expect_equal(lab$spread_out(c(10, 2, 2.1), 1), c(10, 1.55, 2.55))
})

test_that("numbers are plain", {
  expect_identical(lab$format_each(c(634, 7.23, 0.0557, 16789)),
                   c("630", "7.2", "0.056", "17,000"))
  expect_identical(lab$plain_number(c(0.001, NA, 1e6)), c("0.001", "", "1,000,000"))
})

test_that("choices are some of the known ones", {
  expect_identical(lab$check_choices(c("b", "a"), "x", c("a", "b", "c")), c("b", "a"))
  expect_identical(lab$check_choices(c("a", "b", "c"), "x", c("a", "b", "c")), c("a", "b", "c"))
  expect_error(lab$check_choices(c("a", "d"), "x", c("a", "b")), class = "elvi_error_argument")
  expect_error(lab$check_choices(character(), "x", c("a", "b")), "some of \"a\", \"b\"",
               class = "elvi_error_argument")
})

test_that("plot() draws an experiment and returns the drawing", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  x <- example_experiment("rates", seeds = 2, budgets = c(100, 1000))
  to_file <- tempfile(fileext = ".pdf")
  grDevices::pdf(to_file)
  drawn <- plot(x)
  grDevices::dev.off()
  expect_s3_class(drawn, "ggplot")
  expect_gt(file.size(to_file), 2000)
  expect_s3_class(ggplot2::autoplot(example_experiment("figure1", stored = TRUE), what = "gap"), "ggplot")
  unlink(to_file)
})
