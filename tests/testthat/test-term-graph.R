# a map of 5 x 4 squares
lattice_graph <- function(rows = 5, columns = 4) {
  at <- expand.grid(i = seq_len(rows), j = seq_len(columns))
  W <- (as.matrix(dist(at, "manhattan")) == 1) * 1
  dimnames(W) <- list(paste0("area", seq_len(nrow(at))), paste0("area", seq_len(nrow(at))))
  W
}

map_data <- function(W, each = 2) {
  set.seed(1)
  n <- nrow(W)
  u <- drop(solve(diag(rowSums(W) + 0.1) - W, rnorm(n)))
  d <- data.frame(area = rep(rownames(W), each = each), x = rnorm(n * each))
  d$y <- 0.3 * d$x + u[rep(seq_len(n), each = each)] + rnorm(nrow(d), 0, 0.5)
  d$cases <- rpois(nrow(d), exp(0.5 + 0.3 * d$x + 0.5 * u[rep(seq_len(n), each = each)]))
  d
}

test_that("a map has the structure, the constraint and the scale it should have", {
  W <- lattice_graph()
  d <- map_data(W)
  term <- elvi_problem(y ~ icar(area, W), d, dispersion = 1)$terms[[1L]]
  expect_record(term, -0.3)
  Q <- diag(rowSums(W)) - W
  inverse <- MASS::ginv(Q)
  expect_equal(term_dense_covariance(term, 0), inverse / exp(mean(log(diag(inverse)))), tolerance = 1e-6)
  both <- elvi_problem(y ~ bym2(area, W), d, dispersion = 1)$terms[[1L]]
  expect_record(both, c(-0.3, 0.7))
  K <- term_dense_covariance(both, c(log(0.6), qlogis(0.3)))
  expect_equal(K[1:20, 1:20], 0.36 * 0.7 * diag(20), tolerance = 1e-6)
  expect_equal(K[21:40, 21:40], 0.36 * 0.3 * term_dense_covariance(term, 0), tolerance = 1e-6)
})

test_that("given hyperparameters, maps are the closed form", {
  W <- lattice_graph()
  d <- map_data(W)
  expect_closed_form(y ~ x + icar(area, W), d, -0.2)
  expect_closed_form(y ~ x + bym2(area, W), d, c(-0.2, 0.4))
  expect_dense_optimum(cases ~ x + icar(area, W), d, poisson(), -0.3)
  expect_dense_optimum(cases ~ x + bym2(area, W), d, poisson(), c(-0.3, 0.2))
})

test_that("islands are independent, and components add to 0 by themselves", {
  W <- lattice_graph()
  W[1:5, -(1:5)] <- W[-(1:5), 1:5] <- 0   # a coast of its own
  W[20, ] <- W[, 20] <- 0                 # an island
  d <- map_data(W)
  term <- elvi_problem(y ~ icar(area, W), d, dispersion = 1)$terms[[1L]]
  expect_record(term, -0.3)
  expect_identical(max(term$structure$component), 3L)
  K <- term_dense_covariance(term, 0)
  expect_equal(K[20, ], c(numeric(19), 1))
  expect_equal(exp(mean(log(diag(K)[1:5]))), 1, tolerance = 1e-6)
  expect_equal(sum(K[1:5, 1:5]), 0, tolerance = 1e-8)
  expect_closed_form(y ~ x + icar(area, W), d, -0.2)
})

test_that("graphs come as matrices, sparse ones and nb objects, and order does not matter", {
  W <- lattice_graph()
  d <- map_data(W)
  fit <- elvi(cases ~ x + icar(area, W), d, family = poisson())
  sparse <- Matrix::Matrix(W, sparse = TRUE)
  expect_equal(elvi(cases ~ x + icar(area, sparse), d, family = poisson())$mu, fit$mu)
  neighbours <- structure(lapply(seq_len(20), function(i) unname(which(W[i, ] > 0))), class = "nb", region.id = rownames(W))
  expect_equal(elvi(cases ~ x + icar(area, graph = neighbours), d, family = poisson())$mu, fit$mu)
  set.seed(2)
  turned <- sample(20)
  again <- elvi(cases ~ x + icar(area, W[turned, turned]), d[sample(40), ], family = poisson())
  expect_equal(again$mu[names(fit$mu)], fit$mu, tolerance = 1e-3)   # draws correct means and weights, in the order of the columns
  # areas without data have effects
  part <- elvi(cases ~ x + icar(area, W), d[d$area != "area7", ], family = poisson())
  expect_length(predict(part, data.frame(area = "area7", x = 0)), 1L)
  expect_error(predict(part, data.frame(area = "nowhere", x = 0)), "nowhere")
})

test_that("graphs that are none are refused", {
  W <- lattice_graph()
  d <- map_data(W)
  expect_error(elvi(y ~ icar(area), d), "needs a graph")
  expect_error(elvi(y ~ icar(area, W[1:4, ]), d), "square")
  expect_error(elvi(y ~ icar(area, W * -1), d), "negative")
  one_way <- W
  one_way[1, 2] <- 0
  expect_error(elvi(y ~ icar(area, one_way), d), "symmetric")
  expect_error(elvi(y ~ icar(area, W[1:10, 1:10]), d), "no area of the graph")
  expect_error(elvi(y ~ icar(area, "W"), d), class = "elvi_error_term")
})
