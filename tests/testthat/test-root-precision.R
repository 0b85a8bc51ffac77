test_that("the verbs of a precision's root are those of a dense root", {
  set.seed(2)
  d <- 12
  W <- matrix(rnorm(40), 4, 10)
  row <- c(1:d, rep(11:12, c(10, 11)), 3, 7)
  column <- c(1:d, 1:10, 1:11, 2, 5)
  P <- diag(3, d)
  P[cbind(row, column)[row != column, ]] <- rnorm(sum(row != column), 0, 0.3)
  P[upper.tri(P)] <- t(P)[upper.tri(P)]
  for (full in c(FALSE, TRUE)) {
    entries <- if (full) full_entries(d) else with_diagonal(row, column, d)
    root <- precision_root(precision_layout(entries$row, entries$column, d), P[cbind(entries$row, entries$column)])
    V <- solve(P)
    R <- root_matrix(root)
    expect_equal(tcrossprod(R), V)
    z <- matrix(rnorm(3 * d), d)
    expect_equal(root_times(root, z), R %*% z)
    expect_equal(root_crossprod(root, z), crossprod(R, z))
    expect_equal(root_solve(root, z), solve(R, z))
    expect_equal(root_solve_transposed(root, z), solve(t(R), z))
    expect_equal(root_sd(root), sqrt(diag(V)))
    expect_equal(root_log_det(root), -c(determinant(P)$modulus) / 2)
    A <- matrix(rnorm(2 * d), 2)
    expect_equal(tcrossprod(root_rows(root, A)), A %*% V %*% t(A))
    expect_output(print(root), "factor of its inverse")
    expect_identical(names(root_sd(name_scale(root, letters[seq_len(d)]))), letters[seq_len(d)])
  }
  expect_null(precision_root(root$layout, -root$values))
})
