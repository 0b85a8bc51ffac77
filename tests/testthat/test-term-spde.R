# triangles of a regular grid of vertices, wider than the data by `margin`
grid_mesh <- function(from, to, steps) {
  at <- seq(from, to, length.out = steps)
  loc <- as.matrix(expand.grid(at, at))
  first <- as.vector(outer(seq_len(steps - 1L), (seq_len(steps - 1L) - 1L) * steps, `+`))
  list(loc = unname(loc), triangles = rbind(cbind(first, first + 1L, first + steps), cbind(first + 1L, first + steps + 1L, first + steps)))
}

places_data <- function(n = 50) {
  set.seed(3)
  d <- data.frame(x = runif(n), z = runif(n))
  d$y <- sin(4 * d$x) + d$z + rnorm(n, 0, 0.3)
  d$count <- rpois(n, exp(1 + 0.5 * sin(4 * d$x)))
  d
}

test_that("the matrices of a mesh are those of piecewise linear functions", {
  mesh <- grid_mesh(-1, 3, 9)
  read <- read_mesh(mesh, quote(spde(x, y, mesh)))
  fem <- read$fem
  expect_equal(sum(fem$mass), 16)
  dense <- function(value) {
    M <- as.matrix(Matrix::sparseMatrix(i = fem$row, j = fem$column, x = value, dims = c(81, 81)))
    M + t(M) - diag(diag(M))
  }
  G1 <- dense(fem$g1)
  linear <- drop(mesh$loc %*% c(2, -1))
  expect_equal(rowSums(G1), numeric(81), tolerance = 1e-12)
  expect_equal(sum(linear * (G1 %*% linear)), 16 * 5)
  expect_equal(dense(fem$g2), G1 %*% (G1 / fem$mass))
  at <- cbind(c(0.123, -1, 3, 2.9), c(1.7, -1, 0.5, 2.99))
  expect_equal(as.matrix(read$projector(at) %*% cbind(1, mesh$loc)), cbind(1, at), ignore_attr = TRUE)
  expect_identical(outside_mesh(read$projector(rbind(at, c(4, 0)))), c(FALSE, FALSE, FALSE, FALSE, TRUE))
})

test_that("the covariance is Matern's away from the border", {
  d <- places_data(20)
  mesh <- grid_mesh(-1, 2, 46)
  problem <- elvi_problem(y ~ spde(x, z, mesh), d, dispersion = 1)
  term <- problem$terms[[1L]]
  range <- 0.6
  theta <- log(c(0.7, range / term$half))
  Q <- Matrix::sparseMatrix(i = term$fem$row, j = term$fem$column, x = term_record(term)$precision(term, theta)$value, symmetric = TRUE)
  K <- as.matrix(problem$Z %*% Matrix::solve(Q, Matrix::t(problem$Z)))
  far <- sqrt(8) / range * as.matrix(dist(d[c("x", "z")]))
  exact <- 0.49 * ifelse(far > 0, far * besselK(pmax(far, 1e-10), 1), 1)
  expect_equal(K, exact, tolerance = 0.03, ignore_attr = TRUE)
  expect_equal(exact[1L, 1L] * sqrt(8) * besselK(sqrt(8), 1) / 0.49, 0.14, tolerance = 0.01)   # the correlation at the range
})

test_that("the record is that of its precision, and fits are the closed form and the dense optimum", {
  d <- places_data()
  mesh <- grid_mesh(-0.4, 1.4, 7)
  problem <- elvi_problem(y ~ spde(x, z, mesh), d, dispersion = 1)
  expect_record(problem$terms[[1L]], c(-0.2, -0.5))
  expect_closed_form(y ~ spde(x, z, mesh), d, c(-0.3, -0.4))
  expect_dense_optimum(count ~ spde(x, z, mesh = mesh), d, poisson(), c(-0.3, -0.4))
})

test_that("meshes of fmesher, of triangles and of matrices give the same fit, in any unit", {
  d <- places_data()
  mesh <- grid_mesh(-0.4, 1.4, 8)
  fit <- elvi(y ~ spde(x, z, mesh), d, dispersion = 0.1)
  theirs <- structure(list(loc = cbind(mesh$loc, 0), graph = list(tv = mesh$triangles)), class = "fm_mesh_2d")
  expect_equal(coef(elvi(y ~ spde(x, z, theirs), d, dispersion = 0.1)), coef(fit))
  read <- read_mesh(mesh, quote(spde(x, z)))
  G1 <- Matrix::sparseMatrix(i = read$fem$row, j = read$fem$column, x = read$fem$g1, symmetric = TRUE)
  matrices <- list(C0 = Matrix::Diagonal(x = read$fem$mass), G1 = G1, projector = read$projector)
  expect_equal(coef(elvi(y ~ spde(x, z, matrices), d, dispersion = 0.1)), coef(fit))
  big <- list(loc = 1000 * mesh$loc, triangles = mesh$triangles)
  far <- elvi(y ~ spde(x, z, big), transform(d, x = 1000 * x, z = 1000 * z), dispersion = 0.1)
  at <- posterior_moments(fit$posterior)$mean
  expect_equal(posterior_moments(far$posterior)$mean[["range[spde(x, z)]"]], 1000 * at[["range[spde(x, z)]"]], tolerance = 1e-4)
  expect_equal(predict(far, data.frame(x = 500, z = 300)), predict(fit, data.frame(x = 0.5, z = 0.3)), tolerance = 1e-5)
  expect_error(predict(fit, data.frame(x = 5, z = 0)), "mesh")
  expect_s3_class(smooth_estimates(fit, n_2d = 5L), "data.frame")
})

test_that("what is no mesh is refused with its reason", {
  d <- places_data(20)
  mesh <- grid_mesh(-0.4, 1.4, 6)
  small <- grid_mesh(0.3, 0.6, 4)
  odd <- list(C0 = rep(1, 4), G1 = matrix(1:16, 4), projector = identity)
  lonely <- list(loc = rbind(mesh$loc, c(5, 5)), triangles = mesh$triangles)
  expect_error(elvi(y ~ spde(x, z), d), "two variables and a mesh")
  expect_error(elvi(y ~ spde(x, z, d), d), "fmesher")
  expect_error(elvi(y ~ spde(x, z, small), d), "outside of its mesh")
  expect_error(elvi(y ~ spde(x, z, odd), d), "symmetric")
  expect_error(elvi(y ~ spde(x, z, lonely), d), "no triangle")
  expect_error(elvi(y ~ spde(x, z, mesh, k = 3), d), "no argument")
})
