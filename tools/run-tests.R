# Runs tests/testthat against the installed elvi; the last line of output is the tally of test_that() blocks.

library(testthat)

# The tests too slow for CRAN (skip_on_cran) are meant to run here.
Sys.setenv(NOT_CRAN = "true")

results <- as.data.frame(test_dir(
  "tests/testthat",
  package = "elvi", load_package = "installed", stop_on_failure = FALSE,
  reporter = ProgressReporter$new(max_failures = Inf, update_interval = Inf, show_praise = FALSE)
))

failed <- results$failed > 0 | results$error
skipped <- results$skipped & !failed
cat(sprintf(
  "\n%d passed, %d failed, %d skipped\n",
  sum(!failed & !skipped), sum(failed), sum(skipped)
))
quit(status = as.integer(any(failed)))
