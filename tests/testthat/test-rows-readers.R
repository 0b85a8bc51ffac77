# files of a new directory, as `write` makes them of the parts of some data
files_of <- function(parts, ending, write) {
  folder <- tempfile("rows")
  dir.create(folder)
  files <- file.path(folder, sprintf("part%02d.%s", seq_along(parts), ending))
  Map(write, parts, files)
  folder
}

write_gz <- function(data, file) {
  con <- gzfile(file, "w")
  on.exit(close(con))
  write.csv(data, con, row.names = FALSE)
}

parts_of <- function(data, n = 3) unname(split(data, rep(seq_len(n), length.out = nrow(data))))

test_that("patterns and directories are files in the order of their names", {
  folder <- files_of(list(data.frame(a = 1), data.frame(a = 2)), "csv", function(d, file) write.csv(d, file))
  on.exit(unlink(folder, recursive = TRUE))
  writeLines("not data", file.path(folder, "README"))
  dir.create(file.path(folder, "deeper.csv"))
  names <- file.path(folder, c("part01.csv", "part02.csv"))
  expect_identical(expand_files(folder, FALSE), names)
  expect_identical(expand_files(folder, TRUE), c(file.path(folder, "README"), names))
  expect_identical(expand_files(file.path(folder, "part*.csv"), FALSE), names)
  expect_identical(expand_files(c(names[2], file.path(folder, "part01*")), FALSE), rev(names))
  expect_output(print(rows_files(folder)), "2 file")
  expect_error(rows_files(file.path(folder, "*.txt")), "patterns that match a file")
  expect_error(rows_files(file.path(folder, "deeper.csv")), "directories with files that can be read")
  expect_error(rows_files(names, "excel"), "`reader`")
})

test_that("compressed text by read.csv() and fread(), and parquet, give the fit of memory", {
  skip_on_cran()
  data <- rows_data(150)
  folder <- files_of(parts_of(data), "csv.gz", write_gz)
  on.exit(unlink(folder, recursive = TRUE))
  reference <- fit_rows("logit", data)
  expect_same_fit(fit_rows("logit", rows_files(file.path(folder, "*.csv.gz"))), reference)
  if (requireNamespace("data.table", quietly = TRUE)) {
    expect_same_fit(fit_rows("logit", rows_files(folder, "fread")), reference)
    expect_same_fit(fit_rows("logit", rows_files(folder, "fread", col_types = c(g = "factor", x = "numeric"))), reference)
    chunk <- rows_files(folder, "fread")$open(c("x", "g"))$read()
    expect_identical(names(chunk), c("x", "g"))
  }
  skip_if_not_installed("nanoparquet")
  parquet <- files_of(parts_of(data), "parquet", nanoparquet::write_parquet)
  on.exit(unlink(parquet, recursive = TRUE), add = TRUE)
  expect_same_fit(fit_rows("logit", rows_files(parquet)), reference)
  expect_identical(names(rows_files(parquet)$open(c("g", "x"))$read()), c("g", "x"))
})

test_that("a file with only F is not logical where types are given, and an error that says so otherwise", {
  skip_on_cran()
  set.seed(1)
  data <- data.frame(y = rnorm(60), sex = rep(c("F", "M", "F"), each = 20), id = sprintf("%03d", 1:60))
  folder <- files_of(unname(split(data, rep(1:3, each = 20))), "csv", function(d, file) write.csv(d, file, row.names = FALSE))
  on.exit(unlink(folder, recursive = TRUE))
  fit <- function(data) elvi(y ~ sex, data = data, family = gaussian())
  readers <- c("csv", if (requireNamespace("data.table", quietly = TRUE)) "fread")
  for (reader in readers) {
    for (type in c("character", "factor")) {
      expect_same_fit(fit(rows_files(folder, reader, col_types = c(sex = type, id = "character"))), fit(data))
    }
    expect_identical(rows_files(folder, reader, col_types = c(id = "character"))$open(NULL)$read()$id[1], "001")
  }
  error <- tryCatch(fit(rows_files(folder, "csv")), error = identity)
  expect_s3_class(error, "elvi_error_rows")
  expect_match(conditionMessage(error), "File .*part02.csv: column `sex` is character here, but logical in file .*part01.csv")
  expect_match(conditionMessage(error), "col_types = c(sex = \"character\")", fixed = TRUE)
})

test_that("text where numbers were announced names file, column and both types", {
  skip_on_cran()
  data <- data.frame(y = c(1, 2, 4, 3), x = c("1", "2", "3", "many"))
  folder <- files_of(list(data[1:2, ], data[3:4, ]), "csv", function(d, file) write.csv(d, file, row.names = FALSE))
  on.exit(unlink(folder, recursive = TRUE))
  readers <- c("csv", if (requireNamespace("data.table", quietly = TRUE)) "fread")
  for (reader in readers) {
    source <- rows_files(folder, reader, col_types = c(x = "numeric"))
    error <- tryCatch(elvi(y ~ x, data = source, family = gaussian()), error = identity)
    expect_match(conditionMessage(error), "File .*part02.csv: column `x` is character \\(\"many\"\\) here, but numeric in `col_types`")
  }
  own <- rows_files(as.list(1:2), function(i) data[2 * i - 1:0, ], col_types = c(x = "integer"))
  expect_error(elvi(y ~ x, data = own, family = gaussian()), "File number 2: column `x` is character")
  expect_error(rows_files(folder, col_types = "numeric"), "`col_types`")
  expect_error(rows_files(folder, col_types = c(x = "complex")), "`col_types` must be of .* for `x`")
})

test_that("types are converted without loss or not at all", {
  expect_identical(as_type(c("1", NA, "3"), "integer", "x", "here"), c(1L, NA, 3L))
  expect_error(as_type(c("1", "2.5"), "integer", "x", "file a"),
               "File a: column `x` is character (\"2.5\") here, but integer", fixed = TRUE)
  expect_identical(as_type(c("2020-01-01", NA), "Date", "x", "here"), as.Date(c("2020-01-01", NA)))
  expect_error(as_type("soon", "Date", "x", "here"), "soon")
  expect_identical(as_type(c(FALSE, NA), "character", "x", "here"), c("FALSE", NA))
  expect_identical(as_type(factor(c("2", "1")), "numeric", "x", "here"), c(2, 1))
  expect_identical(type_group(1L), type_group(2.5))
  expect_identical(type_group("a"), type_group(factor("a")))
  known <- agreed_types(list(), data.frame(a = NA, b = 1), NULL, "file a")
  expect_named(known, "b")   # NA alone has no type
  expect_named(agreed_types(known, data.frame(a = "x", b = 1L), NULL, "file b"), c("b", "a"))
})

test_that("a read that fails is tried again as often as it was asked for", {
  skip_on_cran()
  data <- rows_data(120)
  parts <- parts_of(data)
  reads <- 0
  flaky <- function(failing) {
    reads <<- 0
    function(i) {
      reads <<- reads + 1
      if (reads %in% failing) stop("stale file handle")
      parts[[i]]
    }
  }
  fit <- function(...) fit_rows("logit", rows_files(as.list(1:3), ...))
  reference <- fit(flaky(integer()))
  expect_message(again <- fit(flaky(c(5, 6, 11)), retries = 2, pause = 0), "stale file handle", class = "elvi_message_retry")
  expect_identical(again$mu, reference$mu)
  expect_error(suppressMessages(fit(flaky(5:7), retries = 2, pause = 0)), "stale file handle", class = "elvi_error_read")
  expect_error(fit(flaky(5)), "stale file handle", class = "elvi_error_read")
  reads <- 6
  waited <- system.time(suppressMessages(with_retries(list(retries = 1, pause = 0.3), function() {
    reads <<- reads + 1
    if (reads == 7) reading_rows(stop("once"), "a test")
  })))
  expect_gte(waited[["elapsed"]], 0.3)
  expect_error(rows_files("a", identity, retries = -1), "`retries`")
  expect_error(rows_files("a", identity, pause = NA), "`pause`")
})
