# A matrix as prior precision, against the same model written with independent coefficients.

set.seed(1)
X <- matrix(rnorm(160), 40)
y <- rbinom(40, 1, plogis(X[, 1]))
Q <- crossprod(matrix(rnorm(16), 4)) + diag(4)
centre <- c(0.5, -1, 0, 2)
linked <- model_glm(X, y, prior = normal(centre, precision = Q))
root <- chol(Q)
by_hand <- model_glm(X %*% solve(root), y, prior = normal(0, 1), offset = drop(X %*% centre))
covered <- function(coordinates) elvi_control(coordinates = coordinates, estimator = "reparam", average = "theorem", trace_draws = 0)

test_that("the bound of a matrix as precision is that of independent coefficients", {
  skip_if_not_installed("Matrix")
  for (coordinates in c("raw", "whitened", "majorant")) {
    mine <- guarantee(linked, schedule = schedule_certified(2000), control = covered(coordinates))
    theirs <- guarantee(by_hand, schedule = schedule_certified(2000), control = covered(coordinates))
    expect_true(is.finite(mine$bound), label = coordinates)
    expect_equal(mine$bound, theirs$bound, tolerance = 1e-6)
    expect_equal(mine$gap_start, theirs$gap_start, tolerance = 1e-6)
    expect_identical(mine$assumptions$status, theirs$assumptions$status)
    expect_equal(unlist(bg_constants(linked, coordinates = coordinates)[c("a", "b", "L")]),
                 unlist(bg_constants(by_hand, coordinates = coordinates)[c("a", "b", "L")]), tolerance = 1e-6)
  }
  expect_equal(best_split(mine, 5000)$bound, best_split(theirs, 5000)$bound, tolerance = 1e-6)
})

test_that("starts and optima are those of the user's coordinates", {
  skip_if_not_installed("Matrix")
  own <- elvi_optimum(by_hand)
  back <- eigen(solve(root) %*% own$Sigma %*% own$Sigma %*% t(solve(root)), symmetric = TRUE)
  best <- list(mu = drop(solve(root) %*% own$mu) + centre, Sigma = back$vectors %*% (sqrt(back$values) * t(back$vectors)))
  expect_equal(unname(elvi_optimum(linked)$mu), unname(best$mu), tolerance = 1e-5)
  there <- independent_form(linked, elvi_control())$place(best)
  expect_equal(unname(there$mu), unname(own$mu), tolerance = 1e-5)
  expect_equal(unname(there$Sigma), unname(own$Sigma), tolerance = 1e-5)
  at_best <- guarantee(linked, schedule = schedule_fixed(1000), start = best, control = covered("majorant"))
  expect_lt(abs(at_best$gap_start), 1e-6)
  start <- list(mu = c(1, 0, 2, 0), Sigma = diag(2, 4))
  g <- guarantee(linked, schedule = schedule_fixed(1000), start = start, control = covered("majorant"))
  e <- eigen(root %*% start$Sigma %*% start$Sigma %*% t(root), symmetric = TRUE)
  same <- list(mu = drop(root %*% (start$mu - centre)), Sigma = e$vectors %*% (sqrt(e$values) * t(e$vectors)))
  expect_equal(g$gap_start, objective(same, by_hand, base_gaussian())$estimate - own$objective, tolerance = 1e-6)
  expect_error(guarantee(linked, start = list(mu = 1:3), control = covered("majorant")), class = "elvi_error_argument")
  expect_error(guarantee(linked, control = elvi_control(scale = "diagonal")), "scale = \"symmetric\"", class = "elvi_error_argument")
})

test_that("weights, offsets and another family are kept, and runs keep the bound", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  w <- rep(c(1, 2), 20)
  offset <- rep(c(-0.5, 0.5), 20)
  z <- X[, 2] + sin(1:40)
  pairs <- list(
    list(model_glm(X, y, prior = normal(0, precision = Q), weights = w, offset = offset),
         model_glm(X %*% solve(root), y, prior = normal(0, 1), weights = w, offset = offset)),
    list(model_glm(X, z, gaussian(), prior = normal(0, precision = Q), dispersion = 0.5),
         model_glm(X %*% solve(root), z, gaussian(), prior = normal(0, 1), dispersion = 0.5)))
  for (pair in pairs) {
    g <- lapply(pair, guarantee, base = base_laplace(), schedule = schedule_certified(1000), control = covered("majorant"))
    expect_equal(g[[1]]$bound, g[[2]]$bound, tolerance = 1e-6)
  }
  g <- guarantee(linked, schedule = schedule_certified(2000), control = covered("majorant"))
  best <- elvi_optimum(by_hand)$objective
  gaps <- vapply(1:5, function(seed) {
    set.seed(seed)
    fit <- suppressMessages(elvi(by_hand, schedule = schedule_certified(2000), control = covered("majorant")))
    guarantee(fit)$gap
  }, 0)
  expect_lt(mean(gaps), g$bound)
})
