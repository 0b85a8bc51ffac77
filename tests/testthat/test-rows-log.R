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
  expect_message(again <- count_passes(run(chunks_of(data), control)), "not made again", class = "elvi_message_checkpoint")
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

test_that("a file with anything but data in it is not read", {
  expect_true(is_data_only(list(1, "a", list(NULL, TRUE), matrix(0, 2, 2))))
  for (odd in list(sum, quote(f(x)), new.env(), list(list(function(x) x)))) expect_false(is_data_only(odd))
})

test_that("in memory a checkpoint says that it decides the method", {
  file <- tempfile()
  on.exit(unlink(file))
  model <- model_glm(cbind(1, mtcars$wt), mtcars$am)
  expect_message(withr_seed(1, elvi(model, control = elvi_control(checkpoint = file))), "mpsgd",
                 class = "elvi_message_checkpoint_method")
})
