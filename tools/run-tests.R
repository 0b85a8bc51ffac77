# Runs the files of tests/testthat against the installed elvi, the long ones each in a process of its own and the others
# eight to a process, as many at a time as there are cores (or TESTTHAT_CPUS). The output of a process is shown when it
# has ended. The last line is the tally of test_that() blocks, in which a process that dies is one failure.
# usage: R_LIBS=build/lib Rscript tools/run-tests.R [regular expression that a file's name must match]

# The longest files, which come first so that no core waits for one at the end.
longest <- c("arguments", "coordinates", "elvi", "checkpoint", "guarantee", "estimator", "quadrature", "nested", "rows",
             "stan", "experiment-paper", "nested-fit", "experiment-stored", "nested-plot", "optimum", "model", "experiment",
             "run", "base", "exact")

wanted <- c(commandArgs(trailingOnly = TRUE), "")[1L]
files <- sub("^test-(.*)[.]R$", "\\1", list.files("tests/testthat", "^test-.*[.]R$"))
files <- grep(wanted, files, value = TRUE)
if (!length(files)) stop("no file of tests/testthat matches ", wanted)
short <- setdiff(files, longest)
queue <- c(intersect(longest, files), unname(split(short, (seq_along(short) - 1L) %/% 8L)))
cores <- as.integer(Sys.getenv("TESTTHAT_CPUS", parallel::detectCores()))

start <- function(files) {
  file <- paste(files, collapse = "|")
  results <- tempfile()
  output <- tempfile()
  process <- processx::process$new(file.path(R.home("bin"), "Rscript"), c("tools/test-file.R", file, results),
                                   stdout = output, stderr = "2>&1")
  list(file = file, process = process, results = results, output = output)
}

# The tests of a file that has ended, one row each; NULL if its process died.
finish <- function(job) {
  tests <- if (file.exists(job$results)) readRDS(job$results)
  died <- is.null(tests) || !job$process$get_exit_status() %in% 0:1
  seconds <- as.double(difftime(Sys.time(), job$process$get_start_time(), units = "secs"))
  cat(sprintf("== %s, %.1f s%s\n", job$file, seconds, if (died) ": the process died" else ""))
  writeLines(readLines(job$output, warn = FALSE))
  if (!died) tests
}

running <- list()
ended <- list()
while (length(queue) || length(running)) {
  while (length(queue) && length(running) < cores) {
    running <- c(running, list(start(queue[[1L]])))
    queue <- queue[-1L]
  }
  processx::poll(lapply(running, function(job) job$process), 1000)
  alive <- vapply(running, function(job) job$process$is_alive(), NA)
  for (job in running[!alive]) ended <- c(ended, list(finish(job)))
  running <- running[alive]
}

died <- vapply(ended, is.null, NA)
tests <- do.call(rbind, ended)
failed <- tests$failed > 0 | tests$error
skipped <- tests$skipped & !failed
cat(sprintf("\n%d passed, %d failed, %d skipped\n",
            sum(!failed & !skipped), sum(failed) + sum(died), sum(skipped)))
quit(status = as.integer(any(failed, died)))
