test_that("files are read by name or by a reader, which is told the columns", {
  skip_on_cran()
  data <- rows_data(120)
  reference <- fit_rows("logit", data)
  pieces <- split(seq_len(120), rep(1:3, each = 40))
  files <- file.path(tempdir(), paste0("rows", 1:3))
  on.exit(unlink(c(paste0(files, ".csv"), paste0(files, ".rds"))))
  for (i in 1:3) {
    write.csv(data[pieces[[i]], ], paste0(files[i], ".csv"), row.names = FALSE)
    saveRDS(data[pieces[[i]], ], paste0(files[i], ".rds"))
  }
  written <- fit_rows("logit", rows_files(paste0(files, ".csv")))
  expect_equal(unname(written$mu), unname(reference$mu), tolerance = 1e-10)
  expect_same_fit(fit_rows("logit", rows_files(paste0(files, ".rds"))), reference)
  asked <- NULL
  reader <- function(file, columns) {
    asked <<- c(asked, list(columns))
    data <- readRDS(file)
    if (is.null(columns)) data else data[columns]
  }
  expect_same_fit(fit_rows("logit", rows_files(paste0(files, ".rds"), reader)), reference)
  expect_setequal(asked[[length(asked)]], c("yes", "x", "g", "o"))
  unlink(paste0(files[2], ".rds"))
  expect_error(suppressWarnings(fit_rows("logit", rows_files(paste0(files, ".rds"), reader))), class = "elvi_error_rows", regexp = "rows2.rds")
  expect_error(rows_files(paste0(files, ".rds")), "rows2.rds")
})

test_that("a file that is written anew between two passes is noticed", {
  skip_on_cran()
  data <- rows_data(120)
  file <- tempfile(fileext = ".csv")
  on.exit(unlink(file))
  changed_in_pass <- function(number, change) {
    write.csv(data, file, row.names = FALSE)
    reads <- 0
    rows_files(file, function(file) {
      reads <<- reads + 1
      if (reads == number) change()
      read.csv(file)
    })
  }
  fit <- function(source) elvi(count ~ x + z, data = source, family = poisson())
  sorted <- function() write.csv(transform(data, z = sort(z)), file, row.names = FALSE)   # the same values in other rows
  longer <- function() write.csv(rbind(data, data[1, ]), file, row.names = FALSE)
  for (pass in 3:4) {   # the solver's, and that of the correction
    expect_error(fit(changed_in_pass(pass, sorted)), "their values differ", class = "elvi_error_rows")
    expect_error(fit(changed_in_pass(pass, longer)), "119 instead of 118", class = "elvi_error_rows")
  }
  expect_error(suppressWarnings(fit(changed_in_pass(4, function() unlink(file)))), "could not be read from file", class = "elvi_error_rows")
})

# a function that opens a database in a file
databases <- list(
  RSQLite = function(file) function() DBI::dbConnect(RSQLite::SQLite(), file),
  duckdb = function(file) function() suppressMessages(DBI::dbConnect(duckdb::duckdb(), dbdir = file)),
  RPostgres = function(file) function() DBI::dbConnect(RPostgres::Postgres()))   # the server that PGHOST and the like name

for (package in names(databases)) test_that(paste("a database gives the fit of memory, reads only what it needs, and may go away:", package), {
  skip_on_cran()
  skip_if_not_installed(package)
  skip_if(package == "RPostgres" && !nzchar(Sys.getenv("PGDATABASE")), "needs an empty database named by PGDATABASE")
  data <- rows_data(300)
  data$yes <- as.character(data$yes)
  file <- tempfile(fileext = ".db")
  on.exit(unlink(file))
  opener <- databases[[package]](file)
  con <- opener()
  DBI::dbWriteTable(con, "d", cbind(data, wide = "not wanted"), overwrite = TRUE)
  reference <- elvi(count ~ x + z + g, data = data, family = poisson(), weights = w, offset = o)
  fit <- function(source) elvi(count ~ x + z + g, data = source, family = poisson(), weights = w, offset = o)
  expect_same_fit(fit(rows_dbi(con, "SELECT * FROM d", chunk = 77)), reference)
  expect_same_fit(fit(rows_dbi(con, "SELECT * FROM d WHERE 1 = 1", cache = 1e6)), reference)
  expect_same_fit(fit(rows_dbi(con, "SELECT * FROM d", chunk = 100)), reference)   # the last chunk is full
  chunks <- rows_dbi(con, "SELECT * FROM d", chunk = 77)$open(c("x", "g"))
  expect_identical(dim(chunks$read()), c(77L, 2L))
  chunks$close()
  expect_identical(DBI::dbListTables(con), "d")
  for (query in c("SELECT * FROM d;", "d", "\"d\"", "SELECT * FROM d -- all of it")) expect_same_fit(fit(rows_dbi(con, query)), reference)
  expect_error(elvi(count ~ typo, data = rows_dbi(con, "SELECT * FROM d"), family = poisson()), "'typo' not found", class = "elvi_error_argument")
  expect_error(fit(rows_dbi(con, "SELECT typo FROM d")), class = "elvi_error_rows", regexp = "typo")
  expect_error(fit(rows_dbi(con, "SELECT * FROM nowhere")), class = "elvi_error_rows", regexp = "nowhere")
  expect_error(fit(rows_dbi(con, "SELECT * FROM d WHERE x > 1000")), "no rows")
  # it goes away in the middle of a pass
  fetched <- 0
  source <- rows_dbi(con, "SELECT * FROM d", chunk = 50)
  failing <- source
  failing$open <- function(columns) {
    chunks <- source$open(columns)
    read <- chunks$read
    chunks$read <- function() {
      fetched <<- fetched + 1
      if (fetched == 20) DBI::dbDisconnect(con)
      read()
    }
    chunks
  }
  expect_error(suppressWarnings(fit(failing)), class = "elvi_error_rows", regexp = "the database")
  expect_same_fit(fit(rows_dbi(opener, "SELECT * FROM d", chunk = 100)), reference)   # opened for each pass
  expect_error(fit(rows_dbi(function() stop("no route to host"), "SELECT 1")), class = "elvi_error_rows", regexp = "no route to host")
})

test_that("only the columns of the formula are asked for", {
  skip_if_not_installed("RSQLite")
  con <- DBI::dbConnect(RSQLite::SQLite(), ":memory:")
  on.exit(DBI::dbDisconnect(con))
  expect_identical(select_columns(con, "SELECT * FROM d", c("a", "b c")), "SELECT `a`, `b c` FROM (SELECT * FROM d\n) AS elvi_rows")
  for (name in c("d", "s.d", "\"my table\"", "s.`my table`")) {
    expect_identical(select_columns(con, name, NULL), paste("SELECT * FROM", name, "AS elvi_rows"))
  }
})

test_that("a matrix of bigmemory gives the fit of memory, read as the help page says", {
  skip_on_cran()
  skip_if_not_installed("bigmemory")
  data <- rows_data(250)[c("count", "z", "w")]
  m <- bigmemory::as.big.matrix(as.matrix(data))
  n <- nrow(m)
  source <- rows_files(split(1:n, (1:n - 1) %/% 100), function(i) as.data.frame(m[i, , drop = FALSE]))
  fit <- function(data) elvi(count ~ z, data = data, family = poisson(), weights = w)
  expect_same_fit(fit(source), fit(data))
})

test_that("an Arrow dataset gives the fit of memory", {
  skip_on_cran()
  skip_if_not_installed("arrow")
  data <- rows_data(300)
  folder <- tempfile()
  on.exit(unlink(folder, recursive = TRUE))
  dir.create(folder)
  for (i in 1:3) arrow::write_parquet(data[seq(100 * i - 99, 100 * i), ], file.path(folder, paste0(i, ".parquet")))
  for (case in c("logit", "probit", "poisson")) {
    expect_same_fit(fit_rows(case, rows_arrow(folder, chunk = 77)), fit_rows(case, data))
  }
  expect_same_fit(fit_rows("logit", rows_arrow(arrow::open_dataset(folder), cache = 1e6)), fit_rows("logit", data))
  chunks <- rows_arrow(folder, chunk = 77)$open(c("x", "g"))
  expect_identical(names(chunks$read()), c("x", "g"))
  chunks$close()
  expect_error(rows_arrow(file.path(folder, "nowhere")), "`dataset`")
})

test_that("sources say what they are, and refuse what they cannot be", {
  expect_output(print(rows_files(list(1, 2), identity)), "Rows from 2 file")
  expect_error(rows_chunked(function() NULL), "argument `reset`")
  expect_error(rows_chunked(1), "`next_chunk` must be a function")
  expect_error(rows_files(character()), "`files`")
  expect_error(rows_files(list(1)), "`reader` is missing")
  skip_if_not_installed("DBI")
  expect_error(rows_dbi(1, "SELECT 1"), "`con`")
})

test_that("terms that depend on other rows of a query are refused by name", {
  skip_on_cran()
  skip_if_not_installed("RSQLite")
  con <- DBI::dbConnect(RSQLite::SQLite(), ":memory:")
  on.exit(DBI::dbDisconnect(con))
  data <- years_data()
  data$f <- as.character(data$f)
  DBI::dbWriteTable(con, "d", data)
  # more of them are in test-rows-formula.R
  for (name in every(setdiff(names(collective_cases), "C(f, contr.sum)"), 5)) {
    expect_refused(fit_years(collective_cases[[name]], rows_dbi(con, "d", chunk = 100)), name)
  }
  for (case in every(rowwise_cases, 6)) {
    expect_same_fit(suppressMessages(fit_years(case, rows_dbi(con, "d", chunk = 130))), suppressMessages(fit_years(case, data)))
  }
})

test_that("a lazy table of dbplyr is the query that it stands for", {
  skip_on_cran()
  for (package in c("RSQLite", "dplyr", "dbplyr")) skip_if_not_installed(package)
  data <- rows_data(200)
  data$yes <- as.character(data$yes)
  con <- DBI::dbConnect(RSQLite::SQLite(), ":memory:")
  on.exit(DBI::dbDisconnect(con))
  DBI::dbWriteTable(con, "d", data)
  table <- dplyr::tbl(con, "d")
  fit <- function(data) elvi(count ~ z + g, data = data, family = poisson())
  expect_same_fit(fit(table), fit(data))
  expect_same_fit(fit(rows_dbi(table, chunk = 33)), fit(data))
  some <- dplyr::mutate(dplyr::filter(table, !is.na(x)), z = 2 * z)
  expect_same_fit(fit(some), fit(transform(data[!is.na(data$x), ], z = 2 * z)))
  expect_error(rows_dbi(table, "SELECT 1"), "`query` is not used|`query` must be left out")
})

test_that("a restarted database is survived: the pass starts again on a new connection", {
  skip_on_cran()
  skip_if_not_installed("RSQLite")
  data <- rows_data(200)
  file <- tempfile(fileext = ".db")
  on.exit(unlink(file))
  opened <- 0
  open <- function() {
    opened <<- opened + 1
    DBI::dbConnect(RSQLite::SQLite(), file)
  }
  con <- open()
  DBI::dbWriteTable(con, "d", data)
  DBI::dbDisconnect(con)
  fit <- function(data) elvi(count ~ z, data = data, family = poisson())
  fetched <- 0
  breaking <- function(retries) {   # the third fetch of a pass finds its connection closed
    last <- NULL
    source <- rows_dbi(function() last <<- open(), "d", chunk = 50, retries = retries, pause = 0.01)
    opens <- source$open
    source$open <- function(columns) {
      chunks <- opens(columns)
      read <- chunks$read
      chunks$read <- function() {
        fetched <<- fetched + 1
        if (fetched == 9) DBI::dbDisconnect(last)
        read()
      }
      chunks
    }
    source
  }
  expect_error(suppressWarnings(fit(breaking(0))), class = "elvi_error_read", regexp = "the database")
  fetched <- 0
  expect_message(again <- suppressWarnings(fit(breaking(1))), "tried again in 0.01 s", class = "elvi_message_retry")
  expect_same_fit(again, fit(data))
})
