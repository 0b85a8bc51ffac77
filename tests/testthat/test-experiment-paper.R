# The figures of the paper, small here.

lab <- load_experiments()

figures <- c("figure1", "figure2", "figure3")
settings_of <- list(figure1 = list(base = base_laplace(), M = 300, alpha = 0.1),
                    figure2 = list(base = base_gaussian(), M = 1000, alpha = 0.1),
                    figure3 = list(base = base_uniform(), M = 2000, alpha = 0.5))

preset_methods <- c("case1", "case2", "psgd", "psgd_scaled")
small <- example_experiment("figure1", data_sets = 2, seeds = 2, budget = 60, dim = 3, points = 4, methods = c(preset_methods, "tuned"))

# the rows of one run, or of all its data sets
rows_of <- function(data, setting, method, data_set = unique(data$data_set), seed = 1) {
  data[data$setting == setting & data$method == method & data$data_set %in% data_set & data$seed %in% seed, ]
}

# the problem of figure1 again, from the paper's description, on two data sets
problems <- lapply(1:2, function(i) {
  set.seed(i)
  U <- matrix(runif(300 * 3), 300, 3)
  y <- rbinom(300, 1, 0.5)
  model <- model_glm(U, y, prior = normal(0, 1 / sqrt(0.1)))
  list(U = U, model = model, optimum = elvi_optimum(model, base_laplace()))
})

exact_gap_of <- function(mu, Sigma, i = 1) {
  objective(list(mu = mu, Sigma = Sigma), problems[[i]]$model, base_laplace())$estimate -
    problems[[i]]$optimum$objective
}

# what a whitened run has spent before its first step: a gradient and a Hessian, d gradients, at each point
whitening_of <- function(i) find_mode(problems[[i]]$model)$evaluations * (1 + 3)

test_that("all methods are run in all settings, elvi's default where it belongs", {
  runs <- unique(small$data[c("setting", "method", "data_set", "seed")])
  expect_identical(nrow(runs), 3L * (4L + 4L + 5L))
  # data sets with one seed, and seeds with one data set: PSGD as the others
  star <- lab$paper_runs("right", preset_methods, 3, 3)
  expect_identical(table(star$method), table(rep(preset_methods, 5)))
  one <- star[star$method == "psgd", ]
  expect_identical(one$data_set, c(1L, 1L, 1L, 2L, 3L))
  expect_identical(one$seed, c(1L, 2L, 3L, 1L, 1L))
  expect_identical(unique(runs$setting[runs$method == "tuned"]), "whitened")
  expect_true(all(is.finite(small$data$gap) & small$data$gap > 0))
  expect_true(all(is.na(small$data$average) | small$data$average > 0))
  expect_false(anyNA(small$numbers$ends$average))
})

test_that("both values of L are what the paper prints and what it should", {
  sigma <- vapply(problems, function(p) svd(p$U)$d[1], 0)
  expect_equal(small$numbers$L, c(printed = mean(0.1 + sigma / 4), right = mean(0.1 + sigma^2 / 4)))
  expect_equal(small$numbers$optimum, vapply(problems, function(p) p$optimum$objective, 0), tolerance = 1e-9)
  expect_equal(small$numbers$smallest_scale, mean(vapply(problems, function(p) min(eigen(p$optimum$Sigma)$values), 0)),
               tolerance = 1e-6)
})

test_that("runs start at (0, I / sqrt(L)), in whitened coordinates at the Laplace approximation", {
  first <- small$data[!duplicated(small$data[c("setting", "method", "data_set")]), ]
  first <- first[first$method != "tuned", ]
  for (i in 1:2) {
    mine <- first[first$data_set == i, ]
    sigma <- svd(problems[[i]]$U)$d[1]
    for (L in c("printed", "right")) {
      start <- exact_gap_of(rep(0, 3), diag(1 / sqrt(0.1 + sigma^(if (L == "right") 2 else 1) / 4), 3), i)
      expect_equal(unique(mine$gap[mine$setting == L]), start)
      expect_identical(unique(mine$evaluations[mine$setting == L]), 0)
    }
    mode <- find_mode(problems[[i]]$model)
    e <- eigen(mode$hessian)
    laplace <- e$vectors %*% (t(e$vectors) / sqrt(e$values))
    expect_equal(unique(mine$gap[mine$setting == "whitened"]), exact_gap_of(mode$x, laplace, i), tolerance = 1e-6)
  }
})

test_that("whitened runs pay for their mode and Hessian, in evaluations and in time", {
  expect_equal(small$numbers$whitening$evaluations, c(whitening_of(1), whitening_of(2)))
  first <- small$data[!duplicated(small$data[c("setting", "method", "data_set")]) & small$data$method != "tuned", ]
  white <- first[first$setting == "whitened", ]
  expect_equal(white$evaluations, small$numbers$whitening$evaluations[white$data_set])
  expect_equal(white$seconds, small$numbers$whitening$seconds[white$data_set])
  tuned <- rows_of(small$data, "whitened", "tuned", 2)
  expect_lte(max(tuned$evaluations), 60 + whitening_of(2))
  expect_gt(min(tuned$evaluations), whitening_of(2))
})

test_that("a curve ends where a run of elvi() with the same seed ends", {
  skip_on_cran()
  fit_of <- function(setting, schedule, i, seed) {
    set.seed(seed)
    suppressMessages(elvi(problems[[i]]$model, base_laplace(), schedule, control = switch(setting,
      printed = raw_control(smoothness = 0.1 + svd(problems[[i]]$U)$d[1] / 4, trace_draws = 0),
      right = raw_control(), whitened = elvi_control(estimator = "reparam"))))
  }
  for (run in list(c(data_set = 2, seed = 1), c(data_set = 1, seed = 2))) {
    i <- run[["data_set"]]
    of <- function(setting, method) rows_of(small$data, setting, method, i, run[["seed"]])
    for (setting in c("printed", "right", "whitened")) for (method in preset_methods) {
      rows <- of(setting, method)
      fit <- fit_of(setting, schedule_fixed(60, method), i, run[["seed"]])
      end <- rows[nrow(rows), ]
      expect_equal(end$evaluations, fit$state$evals + if (setting == "whitened") whitening_of(i) else 0)
      expect_equal(end$gap, exact_gap_of(fit$last$mu, fit$last$scale, i))
      if (fit$kept == "average") expect_equal(end$average, exact_gap_of(fit$mu, fit$Sigma, i))
    }
    set.seed(run[["seed"]])
    fit <- suppressMessages(elvi(problems[[i]]$model, base_laplace(), budget = 60))
    tuned <- of("whitened", "tuned")
    expect_equal(tuned$average[nrow(tuned)], exact_gap_of(fit$mu, fit$Sigma, i))
  }
})

test_that("the negative ELBO is the gap above the optimum's", {
  best <- vapply(problems, function(p) elbo(p$optimum, p$model, base_laplace())$estimate, 0)
  expect_equal(small$data$negative_elbo, small$data$gap - best[small$data$data_set], tolerance = 1e-7)
  expect_equal(small$numbers$elbo, best, tolerance = 1e-7)
})

test_that("the ends are means over the data sets, with the ranges of data sets and of seeds apart", {
  psgd <- rows_of(small$data, "right", "psgd", seed = 1:2)
  psgd <- psgd[psgd$evaluations == 60, ]
  expect_identical(psgd$data_set, c(1L, 1L, 2L))
  expect_identical(psgd$seed, c(1L, 2L, 1L))
  end <- subset(small$numbers$ends, setting == "right" & method == "psgd")
  weights <- c(0.25, 0.25, 0.5)   # a data set counts once, whatever its seeds
  for (column in c("average", "seconds", "negative_elbo")) expect_equal(end[[column]], sum(weights * psgd[[column]]))
  expect_equal(end$mean, sum(weights * psgd$gap))
  expect_equal(c(end$low, end$high), range(psgd$gap))
  expect_equal(c(end$sets_low, end$sets_high), range(psgd$gap[c(1, 3)]))
  expect_equal(c(end$seeds_low, end$seeds_high), range(psgd$gap[1:2]))
})

test_that("bad settings are refused", {
  expect_snapshot(error = TRUE, {
    example_experiment("figure1", settings = "wrong")
    example_experiment("figure2", methods = character())
    example_experiment("figure3", points = 1)
    example_experiment("figure3", settings = "right", methods = "tuned")
    example_experiment("figure3", seeds = 0)
    example_experiment("sweep", figures = "figure4")
  })
})

# ---- the paper's own size --------------------------------------------------------------------

test_that("at the paper's size the gaps are those known", {
  skip_unless_long()   # those stored are known too, and parts of them are computed again: test-experiment-stored.R
  x <- example_experiment("figure1", data_sets = 1, seeds = 1, settings = c("right", "whitened"), methods = c("case1", "case2"),
                          points = 2)
  expect_lt(abs(x$numbers$optimum - 211.3111991073), 1e-6)
  gap <- function(s, m) x$numbers$ends$mean[x$numbers$ends$setting == s & x$numbers$ends$method == m]
  expect_equal(gap("right", "case1"), 634, tolerance = 0.005)   # measured by another program
  expect_equal(gap("right", "case2"), 794, tolerance = 0.005)
  expect_equal(gap("whitened", "case2"), 7.2, tolerance = 0.05)
})

test_that("the problems of Figures 2 and 3 are those of the paper", {
  skip_on_cran()
  dim <- if (long_tests()) 200 else 20
  for (name in figures) {
    x <- example_experiment(name, data_sets = 1, seeds = 1, settings = "right", methods = "case1", budget = 300, dim = dim)
    expect_identical(formals(lab$experiments()[[name]]$run)$dim, 200)
    set.seed(1)
    U <- matrix(runif(settings_of[[name]]$M * dim), settings_of[[name]]$M, dim)
    sigma <- svd(U, 0, 0)$d[1]
    alpha <- settings_of[[name]]$alpha
    expect_equal(x$numbers$L, c(printed = alpha + sigma / 4, right = alpha + sigma^2 / 4))
  }
})

test_that("several processes measure what one does", {
  skip_on_cran()
  skip_on_os("windows")
  call <- function(cores) {
    example_experiment("figure2", data_sets = 2, seeds = 2, settings = "right", budget = 40, dim = 2, points = 3,
                       methods = c("case1", "psgd"), cores = cores)
  }
  one <- call(1)
  two <- call(2)
  drop <- function(x) x$data[setdiff(names(x$data), "seconds")]
  expect_identical(drop(one), drop(two))
  expect_error(suppressWarnings(lab$on_cores(1:2, function(i) stop("job ", i), 2)), "job 1")
})

# ---- any L, and Stan's ADVI ------------------------------------------------------------------

test_that("the sweep goes from the printed to the right L, where it is the figure's runs", {
  skip_on_cran()
  sweep <- example_experiment("sweep", points = 3, budget = 60, dim = 3, figures = c("figure1", "figure2"), psgd = "figure1")
  first <- sweep$data[sweep$data$figure == "figure1", ]
  sigma <- svd(problems[[1]]$U)$d[1]
  L <- c(0.1 + sigma / 4, 0.1 + sigma^2 / 4)
  expect_equal(sort(unique(first$L)), c(L[1], sqrt(prod(L)), L[2]))
  for (method in preset_methods) for (share in 0:1) {
    run <- rows_of(small$data, if (share) "right" else "printed", method, 1)
    mine <- first[first$method == method & first$share == share, ]
    expect_equal(unlist(mine[c("start", "gap", "average")], use.names = FALSE),
                 c(run$gap[1], run$gap[nrow(run)], run$average[nrow(run)]))
  }
  # MPSGD only, where PSGD takes too long
  expect_identical(unique(sweep$data$method[sweep$data$figure == "figure2"]), c("case1", "case2"))
  v <- sweep$numbers$verdict
  expect_identical(nrow(v), 6L)
  one <- first[first$share == 0.5, ]
  gap <- setNames(one$gap, one$method)
  here <- v[v$figure == "figure1" & v$share == 0.5, ]
  expect_identical(c(here$mpsgd_helped, here$psgd_helped),
                   unname(c(gap["case2"] < gap["case1"], gap["psgd_scaled"] < gap["psgd"])))
  expect_identical(here$mpsgd_improves, gap[["case2"]] < one$start[1])
  expect_true(all(is.na(v$psgd_helped[v$figure == "figure2"])))
  skip_if_not_installed("ggplot2")
  expect_identical(nrow(ggplot2::layer_data(ggplot2::autoplot(sweep), 3)), nrow(sweep$data))
})

test_that("normalised designs are what they are called, and where the printed L is right there is one of it", {
  skip_on_cran()
  x <- example_experiment("normalised", budget = 60, dim = 3, figures = c("figure1", "figure2"), psgd = "figure2")
  for (figure in c("figure1", "figure2")) {
    of <- settings_of[[figure]]
    set.seed(1)
    U <- matrix(runif(of$M * 3), of$M, 3)
    y <- rbinom(of$M, 1, 0.5)
    sigma <- svd(U)$d[1]
    designs <- list(largest = U / sigma, rows = U / sqrt(of$M), centred = sweep(U, 2, colMeans(U)))
    for (design in names(designs)) {
      mine <- x$data[x$data$figure == figure & x$data$design == design, ]
      d <- svd(designs[[design]])$d[1]
      both <- c(printed = of$alpha + d / 4, right = of$alpha + d^2 / 4)
      expect_equal(mine$L, unname(both[mine$setting]))
      expect_identical(unique(mine$setting), if (design == "largest") "right" else c("printed", "right"))
      expect_identical(any(startsWith(mine$method, "psgd")), design == "largest" || figure == "figure2")
    }
  }
  # a run is that of elvi() on the design
  model <- model_glm(sweep(U, 2, colMeans(U)), y, prior = normal(0, 1 / sqrt(0.1)))
  set.seed(1)
  fit <- suppressMessages(elvi(model, base_gaussian(), schedule_fixed(60, "case2"), control = raw_control()))
  own <- x$data[x$data$figure == "figure2" & x$data$design == "centred" & x$data$setting == "right" & x$data$method == "case2", ]
  expect_equal(own$gap, objective(list(mu = fit$last$mu, Sigma = fit$last$scale), model)$estimate - elvi_optimum(model)$objective)
  v <- x$numbers$verdict
  expect_identical(v$mpsgd_helped, v$mpsgd_scaled < v$mpsgd)
  expect_identical(is.na(v$psgd_helped), v$figure == "figure1" & v$design != "largest")
  skip_if_not_installed("ggplot2")
  expect_identical(nrow(ggplot2::layer_data(ggplot2::autoplot(x), 2)), nrow(x$data))
})

test_that("Stan's ADVI is charged for what it computes, and judged by its exact objective", {
  skip_unless_long()   # rstanarm takes seconds to load
  skip_if_not_installed("rstanarm")
  expect_identical(lab$advi_evaluations(1000), 1000 + 1000 + 5 * (50 + 100) + 100)
  x <- example_experiment("figure2", data_sets = 1, seeds = 1, settings = "right", methods = "advi", budget = 2000, dim = 2)
  expect_true(all(x$data$evaluations <= 2000))
  set.seed(1)
  U <- matrix(runif(2000), 1000)
  model <- model_glm(U, rbinom(1000, 1, 0.5), prior = normal(0, 1 / sqrt(0.1)))
  # a mean field cannot be better than the best one, nor ADVI far from it in two dimensions
  price <- elvi_optimum(model)$elbo - elvi_optimum(model, scale = "diagonal")$elbo
  expect_gt(min(x$data$gap), price - 1e-3)
  expect_lt(x$data$gap[nrow(x$data)], price + 5)
})

# ---- pictures --------------------------------------------------------------------------------

test_that("runs that diverge leave the panel at the top and come back", {
  run <- data.frame(setting = "printed", method = "case1", mean = c(3, 9, 20, 30, 4), low = c(3, 8, 1, 1, 4),
                    high = c(3, 10, 21, 31, 4), seeds_low = c(3, 8, 9, 1, 4), seeds_high = c(3, 9, 20, 30, 4))
  out <- lab$leave_at_the_top(run, best = 0)   # twice the gap of the start: 6
  expect_equal(out$mean, c(3, 6, NA, 6, 4))
  expect_equal(out$high, c(3, 6, NA, 6, 4))
  expect_equal(out$seeds_low, c(3, 6, NA, 1, 4))
  expect_equal(unique(out$highest), 31)
  tame <- lab$leave_at_the_top(transform(run, mean = 3:-1, high = 3:-1, seeds_high = 3:-1), best = -2)
  expect_equal(tame$mean, 3:-1)
})

test_that("lines, bands and labels show the measurements", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  p <- ggplot2::autoplot(small, what = "gap")
  line <- ggplot2::layer_data(p, 3)
  case1 <- rows_of(small$data, "right", "case1", seed = 1:2)
  shown <- p$data[p$data$setting == "right" & p$data$method == "case1", ]
  by_point <- function(rows, column) {
    points <- ave(rows$evaluations, rows$data_set, rows$seed, FUN = seq_along)
    as.double(tapply(rows[[column]] * ifelse(rows$data_set == 1, 0.25, 0.5), points, sum))
  }
  expect_equal(shown$mean[shown$across == "gradient evaluations"], by_point(case1, "gap"))
  # the darker band is that of the seeds on the first data set
  seeds <- split(case1$gap[case1$data_set == 1], case1$seed[case1$data_set == 1])
  dark <- ggplot2::layer_data(p, 2)
  expect_equal(shown$seeds_high[shown$across == "gradient evaluations"], pmax(seeds[[1]], seeds[[2]]))
  expect_equal(sort(10^dark$ymax), sort(p$data$seeds_high))
  expect_equal(sort(10^line$y), sort(p$data$mean))
  expect_setequal(p$data$across, c("CPU seconds", "gradient evaluations"))   # for whitened runs too
  # elvi's default by what it returns, where it has spent what it has
  tuned <- rows_of(small$data, "whitened", "tuned", seed = 1:2)
  default <- p$data[p$data$method == "tuned" & p$data$across == "gradient evaluations", ]
  expect_equal(default$mean, by_point(tuned, "average"))
  expect_equal(default$at, by_point(tuned, "evaluations"))
  text <- trimws(ggplot2::layer_data(p, 4)$label)
  expect_length(text, 9)
  end <- subset(small$numbers$ends, setting == "right" & method == "case1")
  expect_true(paste0("MPSGD: ", lab$format_each(end$mean)) %in% text)
  # a cross for each average
  crosses <- ggplot2::layer_data(p, 5)
  expect_identical(nrow(crosses), 2L * 8L)
  expect_true(any(abs(10^crosses$y - end$average) < 1e-8 * end$average))
  elbo <- ggplot2::autoplot(small)
  expect_setequal(elbo$data$across, c("CPU seconds", "gradient evaluations"))
  expect_equal(unique(ggplot2::layer_data(elbo, 1)$yintercept), -mean(small$numbers$elbo))
  expect_error(ggplot2::autoplot(small, what = "bound"), "`what` must be one of",
               class = "elvi_error_argument")
  small$data <- small$data[small$data$setting == "whitened", ]
  expect_error(ggplot2::autoplot(small, what = "elbo"), "about \"printed\" and \"right\"",
               class = "elvi_error_argument")
  expect_identical(ggplot2::autoplot(small)$labels$y, "nats above the optimum")
})
