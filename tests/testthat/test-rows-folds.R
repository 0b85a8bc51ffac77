folds_data <- function(n = 600) {
  withr_seed(9, {
    d <- data.frame(x = rnorm(n), f = sample(letters[1:3], n, TRUE), g = sprintf("g%02d", sample(12, n, TRUE)))
    d$y <- rbinom(n, 1, plogis(d$x - 0.5 + (d$f == "b")))
    d$real <- d$x + rnorm(12)[as.integer(factor(d$g))] + rnorm(n)
    d$x[7] <- NA
    d
  })
}

folds_source <- function(data, size = 110L) rows_chunked(chunks_of(data, split(seq_len(nrow(data)), (seq_len(nrow(data)) - 1L) %/% size)))

test_that("kfold() of data in chunks is that of memory with the same folds", {
  skip_if_not_installed("loo")
  data <- folds_data()
  cases <- list(list(y ~ x + f, binomial()), list(real ~ x + f, gaussian()), list(real ~ x + (1 | g), gaussian()),
                list(y ~ x + (1 | f), binomial()))
  for (case in cases) {
    here <- suppressMessages(elvi(case[[1]], data, case[[2]], correct = FALSE))
    there <- suppressMessages(elvi(case[[1]], folds_source(data), case[[2]], correct = FALSE))
    found <- withr_seed(1, suppressMessages(loo::kfold(there, K = 3, draws = 4000)))
    expect_setequal(attr(found, "folds"), 1:3)
    expect_lt(diff(range(table(attr(found, "folds")))), 12)
    reference <- suppressMessages(loo::kfold(here, folds = attr(found, "folds"), draws = 4000))
    expect_lt(max(abs(found$pointwise[, 1] - reference$pointwise[, 1])), 0.1)
    expect_lt(abs(found$elpd_kfold - reference$elpd_kfold), 0.5)
  }
})

test_that("whole chunks are left out, on workers as here", {
  skip_if_not_installed("loo")
  data <- folds_data(400)
  fit <- elvi(y ~ x, folds_source(data, 100L), binomial(), correct = FALSE)
  found <- loo::kfold(fit, K = 4, folds = "chunk", draws = 500)
  expect_identical(unname(attr(found, "folds")), as.double(rep(1:4, c(99, 100, 100, 100))))
  expect_error(loo::kfold(fit, folds = "g"), "chunk", class = "elvi_error_argument")
  expect_error(loo::kfold(fit, folds = rep(1:2, 200)), "chunk", class = "elvi_error_argument")
  expect_error(loo::kfold(fit, K = 1), "K", class = "elvi_error_argument")
  skip_on_cran()
  cl <- parallel::makePSOCKcluster(2)
  on.exit(parallel::stopCluster(cl))
  parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths())
  load <- function(i) data[seq(100 * (i - 1) + 1, 100 * i), ]
  environment(load) <- list2env(list(data = data), parent = globalenv())
  spread <- elvi(y ~ x, rows_cluster(cl, load, 4), binomial(), correct = FALSE)
  there <- loo::kfold(spread, K = 4, folds = "chunk", draws = 500)
  expect_identical(unname(attr(there, "folds")), unname(attr(found, "folds")))
  expect_equal(there$elpd_kfold, found$elpd_kfold, tolerance = 0.01)
  random <- withr_seed(2, loo::kfold(spread, K = 3, draws = 500))
  expect_equal(random$elpd_kfold, found$elpd_kfold, tolerance = 0.05)
})
