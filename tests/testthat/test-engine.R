test_that("random streams do not overlap, nor do the keys made from that of a run", {
  first <- c(0, streams, streams[["component"]] + c(0, streams[c("verdict", "adapt")]))
  expect_gte(min(diff(sort(unique(first)))), 2^40)
  expect_equal(anyDuplicated(names(streams)), 0L)
  expect_equal(anyDuplicated(streams), 0L)
  expect_identical(derived_key(c(2^32 - 1, 5), "compare"), c(0, 6))
  expect_identical(derived_key(c(2^32 - 1, 5), "posterior"), c(1, 7))
  expect_error(derived_key(c(1, 2), "other"))
})

test_that("the search draws its distant candidates from their own stream", {
  drawn <- numeric()
  own <- draw_base
  note <- function(law, key, n, iteration = 0, ...) {
    drawn <<- c(drawn, iteration)
    own(law, key, n, iteration = iteration, ...)
  }
  bowl <- model_density(function(x) sum(x^2) / 2, function(x) x, dim = 2)
  with_swapped("draw_base", note, search_gaussian(bowl, starts = 2, key = c(1, 2)))
  expect_equal(sum(drawn == streams[["distant"]]), 1)
  expect_false(any(drawn >= streams[["gap"]] & drawn < streams[["distant"]]))
})
