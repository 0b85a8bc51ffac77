# Runs the tests of one file, or of several, as "model|mode", those too slow for CRAN too, and exits with 1 if one fails.
# usage: R_LIBS=build/lib Rscript tools/test-file.R model
library(testthat)

arguments <- commandArgs(trailingOnly = TRUE)
Sys.setenv(NOT_CRAN = "true")
results <- test_dir("tests/testthat", filter = paste0("^(", arguments[1L], ")$"), package = "elvi",
                    load_package = "installed", stop_on_failure = FALSE,
                    reporter = SummaryReporter$new(show_praise = FALSE, omit_dots = TRUE, max_reports = Inf))
results <- as.data.frame(results)
quit(status = as.integer(any(results$failed > 0 | results$error)))
