test_that("patterns are found and Hessians on them are right", {
  t <- normal_groups(30)
  model <- model_density(t$value, t$gradient, dim = t$dim)
  curvature <- curvature_of(model)
  x <- c(0.2, -0.3, 0.1, sin(1:30))
  h <- 1e-5
  at <- function(j, by) t$gradient(x + by * (seq_len(t$dim) == j))
  H <- vapply(seq_len(t$dim), function(j) (at(j, h) - at(j, -h)) / (2 * h), x)
  expect_setequal(paste(curvature$row, curvature$column), paste(row(H), col(H))[lower.tri(H, diag = TRUE) & abs(H) > 1e-4])
  expect_equal(drop(curvature$at(matrix(x), rep(0.1, t$dim))), H[cbind(curvature$row, curvature$column)], tolerance = 1e-4)
  expect_lt(curvature$cost, 8)   # three hubs, and one colour for the effects
  # a pattern that the user gives is the same
  given <- model_density(t$value, t$gradient, dim = t$dim, sparsity = H)
  expect_equal(curvature_of(given)[c("row", "column")], curvature[c("row", "column")])
  expect_error(model_density(t$value, t$gradient, dim = t$dim, sparsity = diag(2)), "sparsity", class = "elvi_error_argument")
})

test_that("columns of one colour have no row in common", {
  d <- 40
  entries <- with_diagonal(c(2:d, 3:d), c(1:(d - 1), 1:(d - 2)), d)
  colour <- column_colours(entries, d)
  expect_lte(max(colour$colour), 5)
  S <- matrix(0, d, d)
  S[cbind(entries$row, entries$column)] <- S[cbind(entries$column, entries$row)] <- 1
  for (k in unique(colour$colour)) expect_lte(max(rowSums(S[, colour$colour == k, drop = FALSE])), 1)
})

test_that("a Hessian of package 'Matrix' is used as it is", {
  t <- walk(450)
  model <- model_density(t$value, t$gradient, dim = t$dim, hessian = function(x) t$P)
  curvature <- curvature_of(model)
  expect_identical(curvature$source, "the Hessian's")
  expect_equal(drop(curvature$at(matrix(0, t$dim, 1))), as.matrix(t$P)[cbind(curvature$row, curvature$column)])
})
