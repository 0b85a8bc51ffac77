# The figures of the paper, small here.

lab <- elvi:::load_experiments()

figures <- c("figure1", "figure2", "figure3")
settings_of <- list(figure1 = list(base = base_laplace(), M = 300, alpha = 0.1),
                    figure2 = list(base = base_gaussian(), M = 1000, alpha = 0.1),
                    figure3 = list(base = base_uniform(), M = 2000, alpha = 0.5))

small <- example_experiment("figure1", seeds = 2, psgd_seeds = 2, budget = 60, dim = 3, points = 4)

# the rows of one run, or of all its seeds
rows_of <- function(data, setting, method, seed = unique(data$seed)) {
  data[data$setting == setting & data$method == method & data$seed %in% seed, ]
}

# the problem of figure1 again, from the paper's description
problem <- local({
  set.seed(1)
  U <- matrix(runif(300 * 3), 300, 3)
  y <- rbinom(300, 1, 0.5)
  model <- model_glm(U, y, prior = normal(0, 1 / sqrt(0.1)))
  list(U = U, model = model, optimum = elvi_optimum(model, base_laplace()))
})

exact_gap_of <- function(mu, Sigma) {
  objective(list(mu = mu, Sigma = Sigma), problem$model, base_laplace())$estimate -
    problem$optimum$objective
}

test_that("all methods are run in all settings, elvi's default where it belongs", {
  runs <- unique(small$data[c("setting", "method", "seed")])
  expect_identical(nrow(runs), 2L * (4L + 4L + 5L))
  expect_identical(unique(runs$setting[runs$method == "tuned"]), "whitened")
  expect_true(all(is.finite(small$data$gap) & small$data$gap > 0))
  expect_true(all(is.na(small$data$average) | small$data$average > 0))
  expect_false(anyNA(small$numbers$ends$average))
})

test_that("both values of L are what the paper prints and what it should", {
  sigma <- svd(problem$U)$d[1]
  expect_equal(small$numbers$L, c(printed = 0.1 + sigma / 4, right = 0.1 + sigma^2 / 4))
  expect_equal(small$numbers$optimum, problem$optimum$objective, tolerance = 1e-9)
  expect_equal(small$numbers$smallest_scale, min(eigen(problem$optimum$Sigma)$values),
               tolerance = 1e-6)
})

test_that("runs start at (0, I / sqrt(L)), in whitened coordinates at the Laplace approximation", {
  at_start <- small$data[small$data$evaluations == 0, ]
  for (L in c("printed", "right")) {
    start <- exact_gap_of(rep(0, 3), diag(1 / sqrt(small$numbers$L[[L]]), 3))
    expect_equal(unique(at_start$gap[at_start$setting == L]), start)
  }
  mode <- elvi:::find_mode(problem$model)
  e <- eigen(mode$hessian)
  laplace <- e$vectors %*% (t(e$vectors) / sqrt(e$values))
  expect_equal(unique(at_start$gap[at_start$setting == "whitened"]), exact_gap_of(mode$x, laplace),
               tolerance = 1e-6)
})

test_that("a curve ends where a run of elvi() with the same seed ends", {
  fit_of <- function(setting, schedule) {
    set.seed(2)
    suppressMessages(elvi(problem$model, base_laplace(), schedule, control = switch(setting,
      printed = raw_control(smoothness = small$numbers$L[["printed"]], trace_draws = 0),
      right = raw_control(), whitened = elvi_control(estimator = "reparam"))))
  }
  for (setting in c("printed", "right", "whitened")) {
    for (method in c("case1", "case2", "psgd", "psgd_scaled")) {
      run <- rows_of(small$data, setting, method, seed = 2)
      fit <- fit_of(setting, schedule_fixed(60, method))
      end <- run[nrow(run), ]
      expect_equal(end$evaluations, fit$state$evals)
      expect_equal(end$gap, exact_gap_of(fit$last$mu, fit$last$scale))
      if (fit$kept == "average") expect_equal(end$average, exact_gap_of(fit$mu, fit$Sigma))
    }
  }
  set.seed(2)
  fit <- suppressMessages(elvi(problem$model, base_laplace(), budget = 60))
  tuned <- rows_of(small$data, "whitened", "tuned", seed = 2)
  expect_equal(tuned$average[nrow(tuned)], exact_gap_of(fit$mu, fit$Sigma))
})

test_that("the negative ELBO is the gap above the optimum's", {
  best <- elbo(problem$optimum, problem$model, base_laplace())$estimate
  expect_equal(small$data$negative_elbo, small$data$gap - best, tolerance = 1e-7)
})

test_that("the ends are means over the seeds", {
  psgd <- rows_of(small$data, "right", "psgd")
  psgd <- psgd[psgd$evaluations == 60, ]
  expect_identical(psgd$seed, 1:2)
  end <- subset(small$numbers$ends, setting == "right" & method == "psgd")
  expect_equal(end$mean, mean(psgd$gap))
  expect_equal(end$low, min(psgd$gap))
  expect_equal(end$average, mean(psgd$average))
  expect_equal(end$seconds, mean(psgd$seconds))
})

test_that("bad settings are refused", {
  expect_snapshot(error = TRUE, {
    example_experiment("figure1", settings = "wrong")
    example_experiment("figure2", methods = character())
    example_experiment("figure3", points = 1)
    example_experiment("figure3", settings = "right", methods = "tuned")
    example_experiment("figure3", psgd_seeds = c(a = 1))
    example_experiment("figure3", psgd_seeds = 0)
  })
})

# ---- the paper's own size --------------------------------------------------------------------

test_that("at the paper's size the gaps are those known", {
  skip_on_cran()
  x <- example_experiment("figure1", seeds = 1, settings = c("right", "whitened"),
                          methods = c("case1", "case2"))
  expect_lt(abs(x$numbers$optimum - 211.3111991073), 1e-6)
  gap <- function(s, m) x$numbers$ends$mean[x$numbers$ends$setting == s & x$numbers$ends$method == m]
  expect_equal(gap("right", "case1"), 634, tolerance = 0.005)   # measured by another program
  expect_equal(gap("right", "case2"), 794, tolerance = 0.005)
  expect_equal(gap("whitened", "case2"), 7.2, tolerance = 0.05)
})

test_that("the problems of Figures 2 and 3 are those of the paper", {
  skip_on_cran()
  for (name in figures) {
    x <- example_experiment(name, seeds = 1, settings = "right", methods = "case1", budget = 300)
    set.seed(1)
    U <- matrix(runif(settings_of[[name]]$M * 200), settings_of[[name]]$M, 200)
    sigma <- svd(U, 0, 0)$d[1]
    alpha <- settings_of[[name]]$alpha
    expect_equal(x$numbers$L, c(printed = alpha + sigma / 4, right = alpha + sigma^2 / 4))
  }
})

test_that("several processes measure what one does", {
  skip_on_cran()
  skip_on_os("windows")
  call <- function(cores) {
    example_experiment("figure2", seeds = 2, psgd_seeds = 1, budget = 40, dim = 2, points = 3,
                       cores = cores)
  }
  one <- call(1)
  two <- call(2)
  drop <- function(x) x$data[setdiff(names(x$data), "seconds")]
  expect_identical(drop(one), drop(two))
  psgd <- startsWith(one$data$method, "psgd")
  expect_identical(unique(one$data$seed[psgd]), 1L)
  expect_identical(unique(one$data$seed[!psgd]), 1:2)
  expect_error(suppressWarnings(lab$on_cores(1:2, function(i) stop("job ", i), 2)), "job 1")
})

# ---- pictures --------------------------------------------------------------------------------

test_that("runs that diverge leave the panel at the top and come back", {
  run <- data.frame(setting = "printed", method = "case1", mean = c(3, 9, 20, 30, 4),
                    low = c(3, 8, 1, 1, 4), high = c(3, 10, 21, 31, 4))
  out <- lab$leave_at_the_top(run, best = 0)   # twice the gap of the start: 6
  expect_equal(out$mean, c(3, 6, NA, 6, 4))
  expect_equal(out$high, c(3, 6, NA, 6, 4))
  expect_equal(unique(out$highest), 31)
  tame <- lab$leave_at_the_top(transform(run, mean = 3:-1, high = 3:-1), best = -2)
  expect_equal(tame$mean, 3:-1)
})

test_that("lines, bands and labels show the measurements", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  p <- ggplot2::autoplot(small, what = "gap")
  line <- ggplot2::layer_data(p, 2)
  case1 <- rows_of(small$data, "right", "case1")
  shown <- p$data[p$data$setting == "right" & p$data$method == "case1", ]
  expect_equal(shown$mean, unname(c(tapply(case1$gap, case1$evaluations, mean))))
  expect_equal(sort(10^line$y), sort(p$data$mean))
  # elvi's default by what it returns
  tuned <- rows_of(small$data, "whitened", "tuned")
  expect_equal(p$data$mean[p$data$method == "tuned"],
               unname(c(tapply(tuned$average, tuned$evaluations, mean))))
  text <- ggplot2::layer_data(p, 3)$label
  expect_length(text, 9)
  end <- subset(small$numbers$ends, setting == "right" & method == "case1")$mean
  expect_true(paste0("MPSGD: ", lab$format_each(end)) %in% text)
  elbo <- ggplot2::autoplot(small)
  expect_setequal(elbo$data$across, c("CPU seconds", "gradient evaluations"))
  expect_equal(unique(ggplot2::layer_data(elbo, 1)$yintercept), -small$numbers$elbo)
  expect_error(ggplot2::autoplot(small, what = "bound"), "`what` must be one of",
               class = "elvi_error_argument")
  small$data <- small$data[small$data$setting == "whitened", ]
  expect_error(ggplot2::autoplot(small, what = "elbo"), "about \"printed\" and \"right\"",
               class = "elvi_error_argument")
  expect_identical(ggplot2::autoplot(small)$labels$y, "nats above the optimum")
})
