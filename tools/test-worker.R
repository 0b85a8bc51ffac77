# One process of tools/run-tests.R: runs the files of its queue, those too slow for CRAN too, until none is left.
# usage: Rscript tools/test-worker.R queue
library(testthat)
library(elvi)

queue <- commandArgs(trailingOnly = TRUE)[1L]
Sys.setenv(NOT_CRAN = "true")
shared <- test_env("elvi")
invisible(source_test_helpers("tests/testthat", shared))
cpu <- function() sum(proc.time()[c(1L, 2L, 4L, 5L)])   # with that of children that have ended

# the first entry that no other process has taken; NULL if there is none
take <- function() {
  for (entry in list.files(file.path(queue, "todo"))) {
    taken <- suppressWarnings(file.rename(file.path(queue, "todo", entry), file.path(queue, "doing", entry)))
    if (taken) return(entry)
  }
}

# coverage is written when a process ends, and lost when it dies: better not all of it
files_left <- as.double(Sys.getenv("ELVI_FILES_PER_PROCESS", "Inf"))

while (files_left > 0 && length(entry <- take())) {
  files_left <- files_left - 1
  file <- sub("^[0-9]+ ", "", entry)
  before <- cpu()
  results <- test_dir("tests/testthat", filter = paste0("^", file, "$"), env = shared, load_helpers = FALSE, package = "elvi",
                      load_package = "installed", stop_on_failure = FALSE,
                      reporter = SummaryReporter$new(show_praise = FALSE, omit_dots = TRUE, max_reports = Inf))
  spent <- cpu() - before
  results <- as.data.frame(results)
  saveRDS(list(tests = results[names(results) != "result"], cpu = spent), file.path(queue, "done", paste0(file, ".rds")))
  file.remove(file.path(queue, "doing", entry))
  cat(sprintf("\n== %s, %.1f s of CPU\n", file, spent))
}
