# two half-sib families and a cousin
family_tree <- function() {
  data.frame(id = c("s", "d1", "d2", paste0("k", 1:6), "x"), mother = c(NA, NA, NA, rep(c("d1", "d2"), each = 3), "k1"),
             father = c(NA, NA, NA, rep("s", 6), "k4"), stringsAsFactors = FALSE)
}

# the relationship matrix by the tabular method, parents first
relationship <- function(tree) {
  n <- nrow(tree)
  A <- matrix(0, n, n, dimnames = list(tree$id, tree$id))
  for (i in seq_len(n)) {
    m <- match(tree$mother[i], tree$id)
    f <- match(tree$father[i], tree$id)
    for (j in seq_len(i - 1L)) A[i, j] <- A[j, i] <- (if (is.na(m)) 0 else A[j, m] / 2) + (if (is.na(f)) 0 else A[j, f] / 2)
    A[i, i] <- 1 + if (is.na(m) || is.na(f)) 0 else A[m, f] / 2
  }
  A
}

animal_data <- function(ids, each = 4) {
  set.seed(1)
  d <- data.frame(id = rep(ids, each = each), x = rnorm(length(ids) * each))
  u <- rnorm(length(ids))
  d$y <- 0.5 * d$x + u[match(d$id, ids)] + rnorm(nrow(d), 0, 0.5)
  d$count <- rpois(nrow(d), exp(0.5 + 0.4 * u[match(d$id, ids)]))
  d
}

test_that("the precision of a pedigree is the inverse of its relationship matrix", {
  tree <- family_tree()
  A <- relationship(tree)
  expect_equal(A["x", "x"], 1.125)   # half sibs: inbred by 1/8
  Q <- pedigree_precision(tree$id, tree$mother, tree$father)
  expect_equal(as.matrix(solve(as.matrix(Q))), A)
  set.seed(3)
  mixed <- tree[sample(nrow(tree)), ]
  again <- pedigree_precision(mixed$id, mixed$mother, mixed$father)
  expect_equal(as.matrix(again)[tree$id, tree$id], as.matrix(Q))
  known <- pedigree_precision(tree$id[-(1:3)], tree$mother[-(1:3)], tree$father[-(1:3)])   # founders are added
  expect_equal(as.matrix(known)[tree$id, tree$id], as.matrix(Q))
  expect_error(pedigree_precision(c("a", "a"), c(NA, NA), c(NA, NA)), "id")
  expect_error(pedigree_precision(c("a", "b"), c("b", "a"), c(NA, NA)), "ancestor")
})

test_that("given hyperparameters, relatives are the closed form, with slopes too", {
  tree <- family_tree()
  A <- relationship(tree)
  Q <- pedigree_precision(tree$id, tree$mother, tree$father)
  d <- animal_data(tree$id[-(1:3)])
  expect_closed_form(y ~ x + (1 | gr(id, cov = A)), d, -0.2)
  expect_closed_form(y ~ x + (1 | gr(id, precision = Q)), d, -0.2)
  expect_closed_form(y ~ x + (x | gr(id, cov = A)), d, c(-0.2, -0.5, 0.4))
  expect_closed_form(y ~ x + (x || gr(id, precision = Q)), d, c(-0.2, -0.5))
  term <- elvi_problem(y ~ (x | gr(id, cov = A)), d, dispersion = 1)$terms[[1L]]
  expect_record(term, c(-0.2, -0.5, 0.4))
  D <- term_covariance(term, c(-0.2, -0.5, 0.4))$D
  expect_equal(term_dense_covariance(term, c(-0.2, -0.5, 0.4)), kronecker(A, D), ignore_attr = TRUE)
  expect_dense_optimum(count ~ (1 | gr(id, cov = A)), d, poisson(), -0.3)
})

test_that("relatives have ranef(), VarCorr() and predictions; those without data too", {
  tree <- family_tree()
  A <- relationship(tree)
  d <- animal_data(tree$id[-(1:3)])
  fit <- elvi(y ~ x + (1 | gr(id, cov = A)), d)
  expect_identical(rownames(ranef(fit)$id), tree$id)
  expect_identical(names(VarCorr(fit)), "id")
  expect_length(predict(fit, data.frame(id = c("s", "k1"), x = 0)), 2L)
  expect_error(predict(fit, data.frame(id = "stranger", x = 0)), "stranger")
  # one record each is enough where relatives differ
  expect_s3_class(suppressWarnings(elvi(y ~ (1 | gr(id, cov = A)), d[!duplicated(d$id), ])), "elvi_fit")
})

test_that("matrices that say nothing of the levels are refused", {
  tree <- family_tree()
  A <- relationship(tree)
  d <- animal_data(tree$id[-(1:3)])
  expect_error(elvi(y ~ (1 | gr(id)), d), "needs one of")
  expect_error(elvi(y ~ (1 | gr(id, cov = A[1:4, 1:4])), d), "row names")
  expect_error(elvi(y ~ (1 | gr(id, cov = unname(A))), d), "row names")
  B <- A
  B["k1", ] <- B["k2", ]
  B[, "k1"] <- B[, "k2"]
  expect_error(elvi(y ~ (1 | gr(id, cov = B)), d), "not positive definite")
  B[1, 2] <- 5
  expect_error(elvi(y ~ (1 | gr(id, cov = B)), d), "symmetric")
})
