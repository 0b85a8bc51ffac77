# chunks that fail once so many have been read
failing_after <- function(data, reads) {
  next_chunk <- chunks_of(data)
  read <- 0
  function(reset = FALSE) {
    read <<- read + 1
    if (read > reads) stop("the disk is gone")
    next_chunk(reset)
  }
}

count_passes <- function(expr) {
  old <- options(elvi.rows_progress = TRUE)
  on.exit(options(old))
  passes <- 0
  value <- withCallingHandlers(expr, elvi_message_pass = function(m) {
    passes <<- passes + 1
    invokeRestart("muffleMessage")
  })
  list(passes = passes, value = value)
}

test_that("an exact fit goes on from the passes in its checkpoint, and is the same fit", {
  skip_on_cran()
  old <- options(elvi.sampled_rows = 1000)
  data <- rows_data(3000)
  file <- tempfile()
  on.exit({
    options(old)
    unlink(file)
  })
  control <- elvi_control(checkpoint = file)
  next_chunk <- chunks_of(data)
  run <- function(next_chunk, control) {
    withr_seed(1, elvi(yes ~ x + z, rows_chunked(next_chunk), binomial(), control = control, correct = FALSE))
  }
  reads <- 0
  whole <- count_passes(run(function(reset = FALSE) {
    reads <<- reads + 1
    next_chunk(reset)
  }, elvi_control()))
  expect_gt(whole$passes, 4)
  expect_error(run(failing_after(data, 0.7 * reads), control), "the disk is gone")
  expect_message(again <- count_passes(run(chunks_of(data), control)), "already done", class = "elvi_message_checkpoint")
  expect_lt(again$passes, whole$passes)
  expect_identical(again$value$method, "exact")
  expect_identical(again$value$mu, whole$value$mu)
  expect_identical(again$value$Sigma, whole$value$Sigma)
  # all passes are there now; a file that was cut off loses one
  done <- suppressMessages(count_passes(run(chunks_of(data), control)), classes = "elvi_message_checkpoint")
  expect_identical(done$passes, 2)   # levels and survey
  bytes <- readBin(file, "raw", file.size(file))
  writeBin(bytes[seq_len(length(bytes) - 10)], file)
  cut <- suppressMessages(count_passes(run(chunks_of(data), control)), classes = "elvi_message_checkpoint")
  expect_identical(cut$passes, 3)
  expect_identical(cut$value$mu, whole$value$mu)
  # other rows, other columns, another file
  data$z[9] <- 0
  expect_error(run(chunks_of(data), control), class = "elvi_error_checkpoint")
  writeLines("something else", file)
  expect_error(run(chunks_of(data), control), class = "elvi_error_checkpoint")
})

test_that("a fit with groups keeps its passes too", {
  skip_on_cran()
  data <- rows_data(150)
  file <- tempfile()
  on.exit(unlink(file))
  run <- function() elvi(yes ~ x + (1 | trials), rows_chunked(chunks_of(data)), binomial(), control = elvi_control(checkpoint = file))
  first <- count_passes(run())
  again <- suppressMessages(count_passes(run()), classes = "elvi_message_checkpoint")
  expect_identical(again$value$method, "nested")
  expect_lt(again$passes, 5)
  expect_gt(first$passes, again$passes + 2)
  expect_identical(again$value$posterior$location, first$value$posterior$location)
})

test_that("a fit with groups that is killed in the middle of a pass ends, started again, with the same numbers", {
  skip_on_cran()
  skip_on_os("windows")
  data <- withr_seed(4, data.frame(x = rnorm(900), g = sprintf("g%02d", sample(15, 900, TRUE))))
  data$yes <- withr_seed(5, rbinom(900, 1, plogis(data$x + rnorm(15)[as.integer(factor(data$g))])))
  folder <- tempfile()
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  at <- function(name) file.path(folder, name)
  saveRDS(data, at("data"))
  # the process kills itself when so many chunks have been read
  code <- c(sprintf(".libPaths(%s)", deparse1(.libPaths())), "library(elvi)", "args <- commandArgs(TRUE)", "data <- readRDS(args[1])", "read <- 0",
            "reader <- function(i) {", "  read <<- read + 1", "  if (read > as.numeric(args[3])) tools::pskill(Sys.getpid(), 9)",
            "  data[seq(i, 900, by = 6), ]", "}", "set.seed(2)",
            "fit <- elvi(yes ~ x + (1 | g), rows_files(as.list(1:6), reader), binomial(), control = elvi_control(checkpoint = args[2]))",
            "saveRDS(list(fit$posterior$location, fit$sd, read), args[4])")
  writeLines(code, at("code.R"))
  run <- function(checkpoint, reads, result) {
    system2(file.path(R.home("bin"), "Rscript"), c(at("code.R"), at("data"), at(checkpoint), reads, at(result)), stdout = FALSE, stderr = FALSE)
    if (file.exists(at(result))) readRDS(at(result))
  }
  whole <- run("whole", 1e9, "reference")
  expect_gt(whole[[3L]], 40)
  stopped <- round(whole[[3L]] * c(0.75, 0.65))   # in the middle of a pass, twice
  for (reads in stopped) expect_null(run("cut", reads, "result"))
  again <- run("cut", 1e9, "result")
  expect_identical(again[1:2], whole[1:2])
  expect_lt(again[[3L]], whole[[3L]])
})

# a fit of rows in chunks with its passes in `file`, and a small one
logged_fit <- function(file) {
  suppressMessages(elvi(yes ~ x, rows_chunked(chunks_of(rows_data(60))), binomial(), control = elvi_control(checkpoint = file),
                        correct = FALSE), classes = "elvi_message_checkpoint")
}

test_that("a record that could run is refused unseen, and so is all that follows it", {
  skip_on_cran()
  file <- tempfile()
  on.exit(unlink(file))
  logged_fit(file)
  bytes <- checkpoint_bytes(file)
  all <- whole_records(bytes)
  expect_identical(all$end, as.double(length(bytes)))
  expect_identical(unlist(lapply(all$records, record_bytes)), bytes)
  ran <- FALSE
  trap <- new.env()
  delayedAssign("k", ran <<- TRUE, assign.env = trap)
  start <- record_bytes(all$records[[1L]])
  for (bad in list(trap, function(x) x, quote(stop()), list(key = "a", answer = structure(1, tricky = trap)), list(list(trap)))) {
    found <- whole_records(c(start, record_bytes(bad), record_bytes(all$records[[2L]])))
    expect_identical(found$end, as.double(length(start)))
  }
  # a promise, which serialize() does not write
  header <- serialize(NULL, NULL, version = 2)[1:14]
  promise <- c(header, writeBin(c(0x405L, 0xfdL, 0xfcL), raw(), endian = "big"), serialize(quote(ran <<- TRUE), NULL, version = 2)[-(1:14)])
  expect_null(record_after(c(writeBin(as.double(length(promise)), raw(), endian = "big"), promise, seal(promise)), 0))
  expect_false(ran)
  # lengths that are none, and a bit that has flipped
  for (size in c(-1, NaN, 1e300, 0)) expect_null(record_after(c(writeBin(size, raw(), endian = "big"), bytes), 0))
  flipped <- replace(bytes, length(start) + 60L, xor(bytes[length(start) + 60L], as.raw(1)))
  expect_length(whole_records(flipped)$records, 1L)
})

test_that("records with answers that their pass cannot have are refused", {
  skip_on_cran()
  file <- tempfile()
  on.exit({
    setTimeLimit()
    unlink(file)
  })
  logged_fit(file)
  records <- whole_records(checkpoint_bytes(file))$records
  answer <- records[[2L]]$answer
  crafted <- list(list(key = NULL), list(key = c("a", "b")), list(key = 1), list(answer = NULL), list(answer = "a"), list(answer = list()),
                  list(answer = replace(answer, "g_mu", list(numeric(7)))), list(answer = replace(answer, "B", list("a"))),
                  list(answer = answer[setdiff(names(answer), "value")]))
  for (change in crafted) {
    odd <- records
    odd[[2L]][names(change)] <- change
    writeBin(unlist(lapply(odd, record_bytes)), file)
    setTimeLimit(elapsed = 20)
    expect_error(logged_fit(file), "values that this run cannot have", class = "elvi_error_checkpoint", info = deparse1(change))
    setTimeLimit()
  }
})

test_that("passes are kept in a file alone: a pipe or a device is refused, and not waited for", {
  skip_on_cran()
  skip_on_os("windows")
  pipe <- tempfile()
  on.exit(unlink(pipe))
  system2("mkfifo", shQuote(pipe))
  for (file in c(pipe, "/dev/null", "/dev/zero")) {
    setTimeLimit(elapsed = 20)
    expect_error(logged_fit(file), "another kind of file", class = "elvi_error_checkpoint")
    setTimeLimit()
  }
})

test_that("in memory a checkpoint says that it decides the method", {
  file <- tempfile()
  on.exit(unlink(file))
  model <- model_glm(cbind(1, mtcars$wt), mtcars$am)
  expect_message(withr_seed(1, elvi(model, control = elvi_control(checkpoint = file))), "mpsgd",
                 class = "elvi_message_checkpoint_method")
})
