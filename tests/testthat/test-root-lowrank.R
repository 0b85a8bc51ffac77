lowrank_example <- function(d = 7, k = 2) lowrank_root(0.5 + seq_len(d) / d, matrix(sin(seq_len(d * k)), d))

test_that("every verb of a low rank root is that of its matrix", {
  for (k in c(1, 3)) {
    root <- lowrank_example(6, k)
    R <- root_matrix(root)
    expect_equal(R, (0.5 + 1:6 / 6) * (diag(6) + tcrossprod(matrix(sin(1:(6 * k)), 6))), tolerance = 1e-14)
    x <- matrix(cos(1:12), 6)
    for (verb in c("root_times", "root_solve", "root_solve_transposed", "root_crossprod")) {
      verb <- getFromNamespace(verb, "elvi")
      expect_equal(verb(root, x), verb(R, x), tolerance = 1e-12)
    }
    expect_equal(root_rows(root, t(x)), t(x) %*% R, tolerance = 1e-12)
    expect_equal(root_sd(root), sqrt(diag(tcrossprod(R))), tolerance = 1e-13)
    expect_equal(root_log_det(root), as.numeric(determinant(R)$modulus), tolerance = 1e-12)
    expect_equal(range(svd(R)$d), c(smallest_singular_value(root), largest_singular_value(root)))
  }
})

test_that("every covariance D^2 + W W' has such a root", {
  sd <- c(1, 1e-3, 20, 0.5, 2)
  for (W in list(matrix(sin(1:10), 5), matrix(1e-9 * cos(1:5)), 1e6 * matrix(cos(1:5)))) {
    R <- root_matrix(lowrank_root_of(sd, W))
    unit <- sqrt(sd^2 + rowSums(W^2))
    expect_equal(tcrossprod(R) / outer(unit, unit), (diag(sd^2) + tcrossprod(W)) / outer(unit, unit), tolerance = 1e-12)
  }
})

test_that("a component of a posterior may have a low rank root", {
  root <- lowrank_example()
  R <- root_matrix(root)
  posterior <- function(root) {
    new_posterior(base_gaussian(), matrix(1:7), list(root), 1, letters[1:7], letters[1:7], NULL, 0L, 1:7, key = c(1, 2))
  }
  low <- posterior_moments(posterior(root))
  expect_equal(low$sd, posterior_moments(posterior(R))$sd, tolerance = 1e-12)
  expect_equal(unname(posterior_covariance(posterior(root))), tcrossprod(R), tolerance = 1e-12)
})

test_that("a low rank root of a hundred thousand parameters needs no square matrix", {
  d <- 1e5
  root <- lowrank_root_of(rep(2, d), cbind(rep(0.01, d), sin(seq_len(d))))
  x <- root_times(root, matrix(cos(seq_len(d))))
  expect_equal(root_solve(root, x)[1:5], cos(1:5), tolerance = 1e-10)
  expect_equal(root_sd(root)[3], sqrt(4 + 1e-4 + sin(3)^2), tolerance = 1e-12)
})
