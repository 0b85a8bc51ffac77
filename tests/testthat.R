# Tests need testthat; a machine without it has nothing to run.
if (requireNamespace("testthat", quietly = TRUE)) {
  library(testthat)
  library(elvi)

  test_check("elvi")
}
