# Runs the files of tests/testthat against the installed elvi, each in a process of its own, as many at a time as there
# are cores (or TESTTHAT_CPUS). Each file's output is shown when it has ended. The last line is the tally of test_that()
# blocks, in which a file whose process dies is one failure.
# usage: R_LIBS=build/lib Rscript tools/run-tests.R [regular expression that a file's name must match]

# The longest files, which come first so that no core waits for one at the end.
longest <- c("coordinates", "run", "arguments", "elvi", "quadrature", "checkpoint", "experiment", "experiment-paper", "stan",
             "threads", "optimum", "guarantee", "model", "stopping")

wanted <- c(commandArgs(trailingOnly = TRUE), "")[1L]
files <- sub("^test-(.*)[.]R$", "\\1", list.files("tests/testthat", "^test-.*[.]R$"))
files <- grep(wanted, files, value = TRUE)
if (!length(files)) stop("no file of tests/testthat matches ", wanted)
queue <- c(intersect(longest, files), setdiff(files, longest))
cores <- as.integer(Sys.getenv("TESTTHAT_CPUS", parallel::detectCores()))

start <- function(file) {
  results <- tempfile(file)
  output <- tempfile(file)
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
    running <- c(running, list(start(queue[1L])))
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
