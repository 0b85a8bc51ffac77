test_that("faults of terms are errors that say what to do, or documented behaviour", {
  d <- data.frame(t = c(1, 1, 2, 3, 4, 4), area = c("a", "b", "c", "d", "a", "b"), y = c(0.1, 0.4, -0.2, 0.3, 0.5, -0.4))
  # times that repeat share an effect
  problem <- elvi_problem(y ~ ar1(t), d)
  expect_identical(unname(Matrix::colSums(problem$Z)), c(2, 1, 1, 2))
  W <- matrix(0, 4, 4, dimnames = list(letters[1:4], letters[1:4]))
  W[1, 2] <- W[2, 1] <- W[2, 3] <- W[3, 2] <- 1   # d is an island
  term <- elvi_problem(y ~ icar(area, W), d)$terms[[1L]]
  expect_equal(unname(term_dense_covariance(term, 0)[4, 4]), 1, tolerance = 1e-6)
  expect_equal(rowSums(term_dense_covariance(term, 0)[1:3, 1:3]), numeric(3), tolerance = 1e-8)
  fit <- suppressWarnings(elvi(y ~ icar(area, W), d))
  expect_snapshot_error(predict(fit, data.frame(area = "z")), class = "elvi_error_argument")
  A <- diag(4)
  dimnames(A) <- dimnames(W)
  A[1, 2] <- A[2, 1] <- 2
  expect_snapshot_error(elvi_problem(y ~ (1 | gr(area, cov = A)), d), class = "elvi_error_term")
  A[1, 2] <- A[2, 1] <- 0.5
  skip_without_parser()
  related <- suppressWarnings(elvi(y ~ (1 | gr(area, cov = A)), d))
  expect_snapshot_error(predict(related, data.frame(area = "z")), class = "elvi_error_argument")
})
