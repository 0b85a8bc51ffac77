test_that("terms that take constants from the data are those of memory to 1e-10 sd, from rows that are collected and from sums", {
  skip_on_cran()
  data <- years_data()
  parts <- years_parts(data)
  one_row_first <- c(list(data[1, ]), list(data[2:100, ]), parts[-1])
  for (case in every(constant_cases, 2)) {
    reference <- fit_years(case, data)
    for (most in c(1e6, 50)) {
      old <- options(elvi.collected_rows = most)
      fit <- tryCatch(fit_years(case, rows_files(if (most == 50) one_row_first else parts, function(piece) piece)), finally = options(old))
      expect_same_fit(fit, reference, tolerance = 1e-10)
      if (any(grepl("cut", deparse(case)))) next   # R has no protocol for it, and memory cannot predict
      expect_equal(predict(fit, newdata = data[1:9, ]), predict(reference, newdata = data[1:9, ]), tolerance = 1e-9)
    }
  }
})

test_that("order statistics are exact, with ties and far values", {
  skip_on_cran()
  set.seed(2)
  for (x in list(rnorm(500), c(rep(3, 400), 1:100), c(-1e300, 1e300, rexp(300)), rpois(300, 2), c(1, 1 + 2^-52, 1 - 2^-53))) {
    parts <- unname(split(data.frame(x = x), rep(1:3, length.out = length(x))))
    source <- rows_files(parts, function(part) part)
    recipe <- list(terms = stats::terms(~ x), columns = "x")
    sums <- list(n = length(x), low = min(x), high = max(x))
    found <- order_statistics(source, recipe, quote(scale(x)), sums, seq_along(x), cells = 64)
    expect_identical(unname(found), sort(as.double(x)))
    probs <- c(0, 0.1, 0.25, 1 / 3, 0.5, 0.77, 1)
    expect_equal(source_quantiles(source, recipe, quote(scale(x)), sums, probs), unname(quantile(x, probs)), tolerance = 1e-15)
  }
})

test_that("coefficients of polynomials are those of poly()", {
  set.seed(3)
  x <- rexp(300, 0.01) + 1000
  parts <- split(x, rep(1:4, 75))
  about <- list(call = quote(poly(x, 5)), centre = mean(x), spread = sqrt(mean((x - mean(x))^2)), degree = 5)
  recipe <- list(terms = stats::terms(~ x))
  R <- Reduce(join_triangles, lapply(parts, function(x) chunk_powers(recipe, data.frame(x = x), about)))$R
  found <- polynomial_coefficients(R, about)
  expected <- attr(poly(x, 5), "coefs")
  expect_equal(found$alpha, expected$alpha, tolerance = 1e-10)
  expect_equal(found$norm2, unname(expected$norm2), tolerance = 1e-8)
  expect_equal(unclass(poly(x, 5, coefs = found)), unclass(poly(x, 5)), tolerance = 1e-9, ignore_attr = TRUE)
})

test_that("workers find constants too, and what cannot be found is refused by name", {
  skip_on_cran()
  data <- years_data()
  parts <- years_parts(data)
  own <- function(x) scale(x)
  expect_error(elvi(late ~ own(x), data = rows_files(parts, identity), family = binomial()), "`own(x)` depends on other rows", fixed = TRUE)
  old <- options(elvi.collected_rows = 50)
  on.exit(options(old))
  expect_error(elvi(late ~ poly(x, month, degree = 2), data = rows_files(parts, identity), family = binomial()),
               "`poly(x, month, degree = 2)` takes constants from all rows", fixed = TRUE, class = "elvi_error_argument")
  skip_if_not_installed("parallel")
  cl <- parallel::makePSOCKcluster(1)
  on.exit(parallel::stopCluster(cl), add = TRUE)
  parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths())
  load <- function(i) parts[[i]]
  environment(load) <- list2env(list(parts = parts), parent = globalenv())
  case <- quote(list(late ~ ns(x, 3) + poly(month, 2)))
  expect_same_fit(fit_years(case, rows_cluster(cl, load, shards = 4)), fit_years(case, data), tolerance = 1e-10)
})

test_that("quantiles of many rows are found whatever the values beside them, in few passes", {
  set.seed(2)
  columns <- list(sorted = sort(abs(rnorm(3000, 3)) + 0.1), tied = sort(rpois(3000, 4)), clustered = c(rnorm(1500), 1e6 + rnorm(1500)),
                  near = 1 + (1:3000) * .Machine$double.eps, negative = -rexp(3000)^4)
  old <- options(elvi.rows_progress = TRUE)
  on.exit(options(old))
  for (x in columns) {
    source <- rows_files(list(1:500, 501:2900, 2901:3000), function(i) data.frame(y = 0, x = x[i]))
    recipe <- formula_recipe(y ~ ns(x, 4), quote(elvi(y ~ ns(x, 4))), list2env(list(ns = splines::ns)),
                             data.frame(y = 0, x = 1), "gaussian")
    passes <- 0
    found <- withCallingHandlers(
      source_quantiles(source, recipe, quote(splines::ns(x, 4)),
                       list(n = 3000, low = min(x), high = max(x)), c(0, 0.25, 0.5, 0.75, 0.9, 1)),
      elvi_message_pass = function(m) {
        passes <<- passes + 1
        if (passes > 6) stop("too many passes")
        invokeRestart("muffleMessage")
      })
    expect_identical(found, unname(quantile(x, c(0, 0.25, 0.5, 0.75, 0.9, 1))))
  }
})
