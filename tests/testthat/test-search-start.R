gaussian_target <- function(mean, covariance) {
  P <- solve(covariance)
  model_density(function(x) colSums((x - mean) * (P %*% (x - mean))) / 2, function(x) P %*% (x - mean),
                dim = length(mean), vectorized = TRUE)
}

# x_j ~ N(0, e^l) observed with error 1, flat on l but for a little: no joint mode as l falls
groups <- function(y, prior_sd = 3) {
  n <- length(y)
  value <- function(p) {
    x <- p[1:n]
    l <- p[n + 1]
    sum((y - x)^2) / 2 + sum(x^2) * exp(-2 * l) / 2 + (n - 1) * l + l^2 / (2 * prior_sd^2)
  }
  gradient <- function(p) {
    x <- p[1:n]
    l <- p[n + 1]
    c(x - y + x * exp(-2 * l), n - 1 - sum(x^2) * exp(-2 * l) + l / prior_sd^2)
  }
  model_density(value, gradient, dim = n + 1)
}

test_that("an ill-conditioned gaussian is found exactly, far from the origin", {
  set.seed(1)
  Q <- qr.Q(qr(matrix(rnorm(64), 8)))
  covariance <- Q %*% (10^seq(-4, 4, length.out = 8) * t(Q))
  mean <- c(300, -50, 0, 1, 2, 3, 4, 5)
  root <- t(chol(covariance))
  for (key in 1:5) {
    found <- search_gaussian(gaussian_target(mean, covariance), starts = 3, key = c(key, 2), tol = 0.1)
    # what is left, in nats, is what an end is improved to
    expect_lt(divergence_between(found, list(mu = mean, A = root)), 0.1 / 4)
    expect_lt(sum(forwardsolve(root, found$mu - mean)^2), 0.05)
  }
})

test_that("starts that have come to one place are followed once, and count as ends there", {
  model <- gaussian_target(c(5, -5), diag(c(4, 0.25)))
  found <- search_gaussian(model, starts = 4, key = c(1, 2))
  expect_gt(length(found$rivals), 0)
  calls <- 0
  own <- escape_funnel
  with_swapped("escape_funnel", function(...) { calls <<- calls + 1; own(...) }, search_gaussian(model, starts = 4, key = c(1, 2)))
  expect_equal(calls, 1)
  # of two places each is
  calls <- 0
  two <- with_swapped("escape_funnel", function(...) { calls <<- calls + 1; own(...) },
                      search_gaussian(two_normals(c(0.5, 0.5), c(6, -6), c(1, 1)), starts = 8, key = c(5, 6)))
  expect_gt(calls, 1)
  expect_gt(distance_between(two, two$rivals[[1]]), distinct_sds)
  a <- list(mu = c(0, 0), A = diag(2))
  b <- list(mu = c(1, 0), A = diag(c(1, 2)))
  expect_equal(divergence_between(a, b), (1 + 1 / 4 + 1 - 2) / 2 + log(2))   # (tr + |m|^2 - d) / 2 + log of the volumes
  expect_true(same_optimum(a, list(b, list(mu = c(0.1, 0), A = diag(2)))))
  expect_false(same_optimum(a, list(b)))
})

test_that("the search leaves the neck of a hierarchical target that has no mode", {
  skip_on_cran()
  y <- c(-9, -6, -4, -2, 0, 1, 3, 5, 8, 11)
  found <- search_gaussian(groups(y), starts = 3, key = c(3, 4))
  # the marginal of l by quadrature: y_j ~ N(0, 1 + e^2l)
  l <- seq(-15, 8, by = 0.01)
  log_p <- vapply(l, function(l) sum(dnorm(y, 0, sqrt(1 + exp(2 * l)), log = TRUE)) + l - l^2 / 18, 0)
  p <- exp(log_p - max(log_p)) / sum(exp(log_p - max(log_p)))
  mean_l <- sum(p * l)
  sd_l <- sqrt(sum(p * (l - mean_l)^2))
  expect_lt(abs(found$mu[11] - mean_l), 0.3 * sd_l)
  expect_lt(max(abs(found$mu[1:10] - y)), 1)
})

test_that("a round gaussian about the first points is a candidate, and keeps the search out of a neck that every path ends in", {
  skip_on_cran()
  set.seed(3)
  model <- groups(rnorm(40, 0, 1.3), prior_sd = 10)
  target <- guarded_target(model)
  best <- isotropic_candidates(target, list(numeric(41), rep(1, 41)), c(3, 4))
  looks <- outer(1:2, 0:4, Vectorize(function(i, power) {
    evaluate_gaussian(target, rep(i - 1, 41), diag(10^(-power / 2), 41), c(3, 4), 16L, 0)$F
  }))
  expect_length(best, 1)
  expect_identical(best[[1]]$F, min(looks))
  expect_identical(best[[1]]$A, diag(best[[1]]$A[1, 1], 41))
  expect_false(best[[1]]$descended)
  # a best gaussian has about 46 nats, and this is one of what the search improves
  tried <- list()
  own <- natural_gradient_descent
  found <- with_swapped("natural_gradient_descent", function(target, at, ...) { tried <<- c(tried, list(at$descended)); own(target, at, ...) },
                        search_gaussian(model, starts = 1, key = c(3, 4)))
  expect_lt(found$objective, 48)
  expect_true(any(vapply(tried, isFALSE, NA)))
})

test_that("where no round gaussian has a finite objective there is no such candidate", {
  nowhere <- guarded_target(model_density(function(x) NaN, function(x) NaN * x, dim = 2))
  expect_length(isotropic_candidates(nowhere, list(c(0, 0)), c(1, 1)), 0)
})

test_that("a mode that no first point is near to is found from afar, and none where there is none", {
  model <- two_normals(c(0.5, 0.5), c(0, 12), c(1, 3))
  near <- list(mu = c(0, 0), A = diag(2), F = evaluate_gaussian(guarded_target(model), c(0, 0), diag(2), c(1, 2), 64L, 0)$F)
  found <- distant_candidates(guarded_target(model), near, c(1, 2), 1000, 0.1)
  expect_equal(found[[1]]$mu, c(12, 12), tolerance = 0.1)
  one <- gaussian_target(c(0, 0), diag(2))
  expect_length(distant_candidates(guarded_target(one), list(mu = c(0, 0), A = diag(2), F = 0), c(1, 2), 1000, 0.1), 0)
  x <- points_about(c(1, 2), 3, 5)
  expect_equal(x[, c(2, 4)], -x[, c(1, 3)])
})

test_that("where no first point is inside the domain, more of them are tried, and what may help is said in the end", {
  corner <- function(d) model_density(function(x) if (all(x > 0)) sum(x^2) / 2 else Inf, function(x) if (all(x > 0)) x else x * NaN, dim = d)
  target <- guarded_target(corner(5))
  points <- first_points(target, 5, 6, c(1, 2), NULL)
  expect_true(length(points) > 0 && length(points) <= 6)
  expect_true(all(vapply(points, function(x) all(x > 0 & x < 2), NA)))
  expect_identical(first_points(guarded_target(corner(5)), 5, 6, c(1, 2), NULL), points)
  expect_error(search_gaussian(corner(60), starts = 6, key = c(1, 2)), "as start = list\\(mu = \\)",
               class = "elvi_error_nonfinite")
})

test_that("of two modes the one with more mass is found, whichever is nearer", {
  model <- two_normals(c(0.95, 0.05), c(6, -3), c(1, 0.3))
  found <- search_gaussian(model, starts = 8, key = c(5, 6))
  expect_equal(found$mu, c(6, 6), tolerance = 0.05)
  expect_equal(tcrossprod(found$A), diag(2), tolerance = 0.2)
})

test_that("a target that throws in part of its domain is searched in the rest, and counted", {
  model <- model_density(function(x) if (x[1] > 0.5) stop("outside") else sum((x + 2)^2) * 2,
                         function(x) if (x[1] > 0.5) stop("outside") else 4 * (x + 2), dim = 3)
  found <- search_gaussian(model, starts = 6, key = c(1, 1))
  expect_equal(found$mu, rep(-2, 3), tolerance = 0.05)
  expect_gt(found$account$outside, 0)
  expect_match(found$account$first_error, "outside")
})

test_that("only a target that fails everywhere stops the run, with what it said", {
  broken <- model_density(function(x) 0, function(x) x, dim = 2)
  broken$value <- function(x) stop("no licence")
  expect_error(elvi(broken), "no licence", class = "elvi_error_nonfinite")
})

test_that("the search is a function of its key alone, and R's generator is not touched", {
  skip_on_cran()
  model <- groups(c(-2, 0, 1, 4))
  set.seed(1)
  before <- .Random.seed
  one <- search_gaussian(model, starts = 2, key = c(7, 8))
  expect_identical(.Random.seed, before)
  expect_identical(search_gaussian(model, starts = 2, key = c(7, 8)), one)
})

test_that("`starts` is refused where nothing is searched", {
  expect_error(elvi(model_quadratic(diag(2)), starts = 3, method = "mpsgd"), "starts", class = "elvi_error_argument")
  expect_error(elvi(groups(1:3), starts = 0), "starts", class = "elvi_error_argument")
})

test_that("an interrupt in the search returns the best start so far", {
  skip_on_cran()
  calls <- 0
  value <- function(x) {
    calls <<- calls + 1
    if (calls == 400) stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
    sum((x - 1)^2)
  }
  model <- model_density(value, function(x) 2 * (x - 1), dim = 2, vectorized = FALSE)
  set.seed(1)
  expect_warning(fit <- elvi(model, tol = 0.01), class = "elvi_warning_interrupted")
  expect_equal(fit$status, "interrupted")
  expect_equal(unname(fit$mu), c(1, 1), tolerance = 0.1)
  expect_true(suppressWarnings(elvi(fit))$converged)
  at_once <- FALSE
  never <- model_density(function(x) {
    if (at_once) stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
    sum(x^2)
  }, function(x) 2 * x, dim = 2, vectorized = FALSE)
  at_once <- TRUE
  expect_error(elvi(never), class = "elvi_error_interrupted")
})

test_that("a given scale whose determinant underflows is taken", {
  model <- model_density(function(x) colSums(x^2) * 5e3, function(x) x * 1e4, dim = 200, vectorized = TRUE)
  given <- given_gaussian(model, list(mu = numeric(200), Sigma = diag(1e-2, 200)))
  expect_equal(given$A, diag(1e-2, 200))
})
