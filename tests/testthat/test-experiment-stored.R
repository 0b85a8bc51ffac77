# The stored results of the experiments, which the vignettes show, against parts computed again.

lab <- load_experiments()
stored <- function(name) example_experiment(name, stored = TRUE)

# Rows computed again are among those stored, by columns that say which they are.
expect_stored <- function(x, again, by, columns) {
  both <- merge(again, stored(x)$data, by = by, suffixes = c("", ".stored"))
  expect_identical(nrow(both), nrow(again))
  for (column in columns) {
    expect_equal(both[[column]], both[[paste0(column, ".stored")]], tolerance = 1e-4, label = paste(x, column))
  }
}

test_that("every experiment is stored, with its default arguments, and says how it was made", {
  experiments <- lab$experiments()
  for (name in names(experiments)) {
    x <- stored(name)
    expect_s3_class(x, "elvi_experiment")
    expect_identical(x$name, name)
    expect_identical(x$title, experiments[[name]]$title)
    expect_identical(x$made$command, "make vignettes")
    expect_match(x$made$commit, "^[0-9a-f]{7,}$")   # of a tree without changes
    takes <- formals(experiments[[name]]$run)
    expect_identical(x$made$arguments, vapply(takes[names(takes) != "cores"], deparse1, ""), label = name)
  }
  # vignette("paper") says that its results were made together
  expect_length(unique(vapply(names(experiments), function(name) stored(name)$made$commit, "")), 1)
  seconds <- vapply(names(experiments), function(name) stored(name)$made$cpu_seconds, 0)
  expect_gt(min(seconds), 0)
  expect_lt(sum(seconds), 30 * 60)
  expect_output(print(stored("rates")), "[0-9.]+ s of CPU time; plot\\(\\) draws them.\nStored by 'make vignettes' at commit")
  files <- list.files(system.file("extdata", "experiments", package = "elvi"), full.names = TRUE)
  expect_lt(sum(file.size(files)), 1e6)
})

test_that("a stored result takes no arguments", {
  expect_error(example_experiment("rates", seeds = 1, stored = TRUE), "`stored` must be FALSE where arguments are given",
               class = "elvi_error_argument")
  expect_error(example_experiment("rates", stored = 2), "`stored` must be TRUE or FALSE", class = "elvi_error_argument")
})

test_that("stored figures can be drawn", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  kinds <- list(figure1 = c("elbo", "gap"), figure2 = "gap", figure3 = "elbo", sweep = "", normalised = "", nonconvex = c("mapping", "bound", "found"),
                bases = c("families", "density", "pairs", "paths"))
  for (name in names(kinds)) for (what in if (long_tests()) kinds[[name]] else kinds[[name]][1]) {
    expect_s3_class(ggplot2::ggplot_build(if (nzchar(what)) ggplot2::autoplot(stored(name), what = what) else ggplot2::autoplot(stored(name))), "ggplot_built")
  }
})

test_that("parts of the rates, computed again, are those stored", {
  skip_on_cran()
  again <- example_experiment("rates", seeds = 1, budgets = c(100, 1000))   # fewer have no slope
  expect_stored("rates", again$data, c("method", "budget", "seed"), c("gap", "bound"))
  again <- example_experiment("rates_noise", seeds = 1, dims = c(2, 10), df = 5)
  expect_stored("rates_noise", again$data, c("varied", "at", "base", "method", "seed"), c("gap", "noiseless", "bound"))
  again <- example_experiment("rates_batch", seeds = 1)
  expect_stored("rates_batch", again$data, c("method", "batch", "seed"), c("gap", "bound"))
  x <- stored("rates_dynamic")
  model <- lab$rate_logistic(5)
  best <- elvi_optimum(model)$objective
  for (method in names(x$numbers$schedules)) {
    budgets <- sort(unique(x$data$budget))[1:3]
    along <- lab$seeded(1, lab$measure_along(
      model, base_gaussian(), x$numbers$schedules[[method]], lab$theory_control(),
      pick = function(plan) lab$iterations_within(plan, budgets),
      measure = function(fit) data.frame(gap = lab$gap_at(fit, "average", best), last = lab$gap_at(fit, "last", best))))
    expect_stored("rates_dynamic", data.frame(method = method, seed = 1, budget = budgets, along[-1L, c("gap", "last")]),
                  c("method", "seed", "budget"), c("gap", "last"))
  }
})

test_that("what a pass sends and returns is what is stored", {
  skip_on_cran()
  again <- example_experiment("passes", dims = c(5, 10), rounds = 1)$data
  old <- stored("passes")$data
  expect_equal(again[c("sent", "returned")], old[match(c(5, 10), old$dim), c("sent", "returned")], tolerance = 0.02, ignore_attr = TRUE)
})

test_that("runs on normalised designs, computed again, are those stored", {
  skip_on_cran()
  again <- example_experiment("normalised", figures = "figure1", designs = if (long_tests()) c("rows", "centred") else "rows", psgd = NULL)
  expect_stored("normalised", again$data, c("figure", "design", "setting", "method"), c("L", "start", "gap", "average"))
})

test_that("parts of the paper's figures, computed again, are those stored", {
  skip_on_cran()
  again <- example_experiment("figure1", data_sets = 1, seeds = if (long_tests()) 2 else 1, settings = c("printed", "whitened"),
                              methods = "case1", points = if (long_tests()) 12 else 2)
  expect_stored("figure1", again$data, c("setting", "method", "data_set", "seed", "evaluations"),
                c("gap", "negative_elbo"))
  x <- stored("figure1")
  for (number in c("optimum", "elbo")) expect_equal(again$numbers[[number]], x$numbers[[number]][1], tolerance = 1e-6)
  expect_identical(again$numbers$whitening[c("points", "evaluations")], x$numbers$whitening[1, c("points", "evaluations")])
  for (name in c("figure1", "figure2", "figure3")) {
    data <- stored(name)$data
    for (run in split(data, data[c("setting", "method")], drop = TRUE)) {   # every method, PSGD too
      expect_identical(unique(run$data_set[run$seed == 1]), 1:3)
      expect_identical(unique(run$seed[run$data_set == 1]), 1:3)
    }
  }
  # what another program measured on the first data set
  end <- function(setting, method) {
    run <- x$data[x$data$setting == setting & x$data$method == method & x$data$data_set == 1 & x$data$seed == 1, ]
    run$gap[which.max(run$evaluations)]
  }
  expect_equal(end("right", "case1"), 634, tolerance = 0.005)
  expect_equal(end("right", "case2"), 794, tolerance = 0.005)
  expect_equal(end("whitened", "case2"), 7.2, tolerance = 0.05)
})

test_that("parts of the sweep over L, computed again, are those stored", {
  skip_unless_long()
  again <- example_experiment("sweep", figures = "figure1", points = 2)
  expect_stored("sweep", again$data, c("figure", "method", "share"), c("L", "start", "gap", "average"))
})

test_that("the families, their chains and the stationary points, computed again, are those stored", {
  skip_on_cran()
  x <- stored("bases")
  fits <- lab$fit_families(lab$gearbox_model())
  expect_equal(vapply(fits, function(fit) elbo(fit)$estimate, 0), x$data$elbo, tolerance = 1e-7, ignore_attr = TRUE)
  if (long_tests()) {
    again <- example_experiment("bases", iterations = 400, draws = 1000, runs = 1, seed = 5)$numbers
    expect_lt(max(abs(again$mean - x$numbers$mean) / again$mcse), 4.5)
  }
  points <- lab$mixture_stationary(lab$mixture_target())
  expect_equal(lapply(points, `[`, c("mu", "Sigma", "objective")),
               lapply(stored("nonconvex")$stationary, `[`, c("mu", "Sigma", "objective")), tolerance = 1e-6)
})

test_that("a run of the non-convex experiment and one of the figures 2 and 3 are those stored", {
  skip_on_cran()
  target <- lab$mixture_target()
  first <- lab$seeded(1, lab$measure_run(target, lab$nonconvex_schedules(target$step, 1e5)[["constant 25"]], target$start(0.5 / 6)))
  old <- stored("nonconvex")$data
  old <- old[old$target == target$label & old$schedule == "constant 25" & old$run == 1, ]
  expect_equal(first$mapping2, old$mapping2, tolerance = 1e-4)
  if (!long_tests()) return()
  for (name in c("figure2", "figure3")) {
    again <- example_experiment(name, data_sets = 1, seeds = 1, settings = "whitened", methods = "case1", points = 2)
    expect_stored(name, again$data, c("setting", "method", "data_set", "seed", "evaluations"), c("gap", "negative_elbo"))
  }
})
