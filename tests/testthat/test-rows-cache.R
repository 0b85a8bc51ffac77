# a source that counts how often it is read
counting_source <- function(data, ...) {
  reads <- 0
  source <- rows_files(split(seq_len(nrow(data)), rep(1:3, length.out = nrow(data))), function(i) {
    reads <<- reads + 1
    data[i, ]
  }, ...)
  list(source = source, passes = function() reads / 3)
}

test_that("a copy is the rows, and the source is read for levels and survey only", {
  skip_on_cran()
  data <- rows_data(150)
  for (case in c("logit", "probit", "poisson", "known")) {
    cached <- counting_source(data, cache = 1e6)
    plain <- counting_source(data)
    fit <- fit_rows(case, cached$source)
    expect_identical(fit$mu, fit_rows(case, plain$source)$mu)
    expect_lt(cached$passes(), 3)
    expect_gt(plain$passes(), cached$passes() + 1)
  }
  path <- cached$source$copy$path
  expect_true(file.exists(path))
  expect_equal(fitted(fit), fitted(fit_rows(case, plain$source)))   # which reads the source
  rm(cached, fit)
  gc()
  expect_false(file.exists(path))
})

test_that("a copy belongs to its formula, and every fit makes it anew", {
  skip_on_cran()
  data <- rows_data(120)
  source <- rows_files(1:2, function(i) data[seq(i, 120, by = 2), ], cache = 1e6)
  first <- elvi(count ~ z, data = source, family = poisson())
  other <- elvi(count ~ x + z, data = source, family = poisson())
  expect_same_fit(other, elvi(count ~ x + z, data = data, family = poisson()))
  expect_silent(target_at(first$model, matrix(0, 2)))       # reads the source again
  data$count[1] <- data$count[1] + 3
  expect_same_fit(elvi(count ~ x + z, data = source, family = poisson()), elvi(count ~ x + z, data = data, family = poisson()))
  expect_error(target_at(first$model, matrix(0, 2)), "their values differ", class = "elvi_error_rows")
  unlink(source$copy$path)
  expect_silent(target_at(elvi(count ~ x + z, data = source, family = poisson())$model, matrix(0, 3)))
})

test_that("a copy that is too large is not made, and says so", {
  data <- rows_data(120)
  cached <- counting_source(data, cache = 2000)
  invisible(gc())   # copies of sources that are gone go now, not while this test looks
  before <- list.files(tempdir(), pattern = "[.]rows$")
  expect_message(fit <- elvi(count ~ x, data = cached$source, family = poisson()), "more than `cache` = 2000", class = "elvi_message_cache")
  expect_same_fit(fit, elvi(count ~ x, data = data, family = poisson()))
  expect_identical(list.files(tempdir(), pattern = "[.]rows$"), before)
  expect_error(rows_files(1, identity, cache = -1), "`cache` must be a number of bytes")
  expect_error(rows_chunked(chunks_of(data), cache = "1GB"), "`cache` must be a number of bytes")
  # a source that fails leaves nothing behind
  failing <- rows_files(1:3, function(i) if (i == 3) stop("gone") else data, cache = 1e6)
  expect_error(elvi(count ~ x, data = failing, family = poisson()), class = "elvi_error_rows")
  expect_identical(list.files(tempdir(), pattern = "[.]rows$"), before)
})
