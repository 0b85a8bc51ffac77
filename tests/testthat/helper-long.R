# Minutes that tell little on most days, which `make test LONG=true` spends, as .ci/run does. A test that skips itself
# here has a smaller one beside it, of the same thing.
long_tests <- function() identical(Sys.getenv("ELVI_LONG_TESTS"), "true")

skip_unless_long <- function() {
  testthat::skip_on_cran()
  testthat::skip_if_not(long_tests(), "long: make test LONG=true")
}

# All cases in long runs, every k-th by default: for tests that ask the same of many cases.
every <- function(cases, k) if (long_tests()) cases else cases[seq_along(cases) %% k == 1L]
