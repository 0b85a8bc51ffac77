# testthat takes 2 or 3 ms to look for differences, of which there are none nearly always: a minute in 20,000
# expectations. These see what is the same at a glance, and leave the rest to testthat.

expect_identical <- function(object, expected, ..., label = NULL, expected.label = NULL) {
  if (!length(setdiff(...names(), "info")) && identical(object, expected)) return(seen_same(object))
  testthat::expect_identical(object, expected, ..., label = label %||% deparse1(substitute(object)),
                             expected.label = expected.label %||% deparse1(substitute(expected)))
}

expect_equal <- function(object, expected, ..., tolerance = testthat::testthat_tolerance(), label = NULL,
                         expected.label = NULL) {
  plain <- !length(setdiff(...names(), "info"))
  if (plain && (identical(object, expected) || close_numbers(object, expected, tolerance))) return(seen_same(object))
  testthat::expect_equal(object, expected, ..., tolerance = tolerance, label = label %||% deparse1(substitute(object)),
                         expected.label = expected.label %||% deparse1(substitute(expected)))
}

seen_same <- function(object) {
  testthat::succeed()
  invisible(object)
}

# What waldo calls equal, of finite numbers: the mean difference, by the size of what is expected if that is no smaller.
close_numbers <- function(x, y, tolerance) {
  if (!is.double(x) || !is.double(y) || !length(y) || !identical(attributes(x), attributes(y)) || length(x) != length(y) ||
        is.object(x)) return(FALSE)
  off <- mean(abs(x - y))
  size <- mean(abs(y))
  isTRUE(is.finite(off) && is.finite(size) && size > tolerance && off / size < tolerance)
}
