tensor_data <- function(n = 80) {
  set.seed(2)
  d <- data.frame(x = runif(n), z = 10 * runif(n), m = runif(n, 0, 12), f = factor(rep(c("a", "b"), length.out = n)))
  d$y <- sin(4 * d$x) * d$z / 5 + cos(2 * pi * d$m / 12) + rnorm(n, 0, 0.5)
  d$count <- rpois(n, exp(0.5 + sin(4 * d$x) * d$z / 10))
  d
}

only_term <- function(formula, data, ...) elvi_problem(formula, data, dispersion = 1, ...)$terms[[1L]]

test_that("precisions with several penalties belong together", {
  skip_if_not_installed("mgcv")
  d <- tensor_data()
  te <- only_term(y ~ te(x, z, k = 4), d)
  expect_true(is_diagonal(te))
  expect_record(te, c(0.3, -1))
  three <- only_term(y ~ te(x, z, m, k = 3), d)
  expect_true(is_diagonal(three))
  expect_record(three, c(0.3, -1, 0.5))
  expect_record(only_term(y ~ ti(x, k = 5), d), 0.2)
  expect_record(only_term(y ~ s(x, bs = "ad", k = 12, m = 3), d), c(0.3, -0.4, 1))
  # these share no axes
  adaptive <- only_term(y ~ s(x, z, bs = "ad", k = 6), d)
  expect_false(is_diagonal(adaptive))
  expect_record(adaptive, seq(-1, 1, length.out = 9))
})

# For any coefficients, each of mgcv's penalties is ours up to one factor; the same for all coefficients.
test_that("penalties are those of mgcv", {
  skip_if_not_installed("mgcv")
  d <- tensor_data()
  for (call in list(quote(te(x, z, k = 4)), quote(ti(x, z, k = 4)), quote(te(x, z, m, k = 3)), quote(te(x, z, bs = c("cs", "cr"), k = 4)),
                    quote(s(x, bs = "ad", k = 12, m = 3)), quote(s(x, z, bs = "ad", k = 6)))) {
    smooth <- set_up_smooths(smooth_specs(list(call), globalenv()), d)[[1L]]
    r <- ncol(smooth$random$rand[[1L]])
    set.seed(1)
    gamma <- matrix(rnorm(4 * r), r)
    beta <- smooth$random$trans.U[, smooth$random$pen.ind == 1L] %*% gamma
    penalties <- smooth$scaling$parts[[1L]]$penalties
    for (p in seq_along(smooth$smooth$S)) {
      theirs <- colSums(beta * (smooth$smooth$S[[p]] %*% beta))
      ours <- if (is.matrix(penalties)) colSums(gamma^2 * penalties[, p]) else colSums(gamma * (penalties[[p]] %*% gamma))
      expect_equal(ours / theirs, rep(ours[1L] / theirs[1L], 4), tolerance = 1e-6)
    }
  }
})

test_that("given standard deviations, te() is mgcv's with the same smoothing parameters", {
  skip_if_not_installed("mgcv")
  d <- tensor_data()
  sigma <- 0.5
  sd <- c(0.8, 0.3)
  problem <- elvi_problem(y ~ te(x, z, k = 4), d, dispersion = sigma^2, prior = normal(0, 1e4), prior_intercept = normal(0, 1e4))
  setup <- nested_setup(conditional_problem(problem), base_gaussian())
  node <- conditional_node(evidence_at(setup, list(log(sd)))[[1L]], setup)
  eta <- drop(setup$problem$X %*% node$mu[seq_len(ncol(setup$problem$X))] +
                as.matrix(setup$problem$Z) %*% node$mu[-seq_len(ncol(setup$problem$X))])
  # one coefficient vector says how large ours are beside theirs
  smooth <- problem$regression$smooths[[1L]]
  penalties <- smooth$scaling$parts[[1L]]$penalties
  beta <- rowSums(smooth$random$trans.U[, smooth$random$pen.ind == 1L])
  ratio <- colSums(penalties) / vapply(smooth$smooth$S, function(S) sum(beta * (S %*% beta)), 0)
  pre <- mgcv::gam(y ~ te(x, z, k = 4), data = d, fit = FALSE)
  scale <- vapply(seq_along(sd), function(p) norm(pre$smooth[[1L]]$S[[p]]) / norm(smooth$smooth$S[[p]]), 0)
  gam <- mgcv::gam(y ~ te(x, z, k = 4), data = d, sp = sigma^2 * ratio / sd^2 / scale, scale = sigma^2)
  expect_equal(unname(eta), as.double(fitted(gam)), tolerance = 1e-6)
})

test_that("given hyperparameters, several penalties are the closed form", {
  skip_if_not_installed("mgcv")
  d <- tensor_data()
  expect_closed_form(y ~ te(x, z, k = 4), d, c(-0.2, -1))
  expect_closed_form(y ~ f + ti(x, z, k = 4, by = f), d, c(-0.2, -1, 0.3, -0.5))
  expect_closed_form(y ~ s(x, bs = "ad", k = 10, m = 2) + s(m, bs = "cc", k = 6), d, c(-0.5, 0.5, -0.2), knots = list(m = c(0, 12)))
  skip_unless_long()
  expect_dense_optimum(count ~ te(x, z, k = 4), d, poisson(), c(-0.2, -1))
})

test_that("a change of units changes nothing", {
  skip_if_not_installed("mgcv")
  d <- tensor_data()
  one <- only_term(y ~ te(x, z, k = 4), d)
  other <- only_term(y ~ te(x, z, k = 4), transform(d, z = 1000 * z + 7))
  Q <- function(term) sort(rowSums(term$penalties))
  expect_equal(Q(one), Q(other), tolerance = 1e-5)
})

test_that("tensor products fit, print and predict", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  d <- tensor_data()
  fit <- elvi(y ~ te(x, z, k = 4), d)
  expect_true(all(c("smooth_sd[te(x,z)1]", "smooth_sd[te(x,z)2]") %in% fit$posterior$shown))
  expect_equal(predict(fit, d[9:3, ]), fitted(fit)[9:3], ignore_attr = TRUE)
  expect_output(print(fit), "te(x,z)2", fixed = TRUE)
  expect_named(attr(VarCorr(fit), "smooth"), c("te(x,z)", "te(x,z)"))
})

test_that("knots are passed on, and refused where they mean nothing", {
  skip_if_not_installed("mgcv")
  d <- tensor_data()
  smooth <- elvi_problem(y ~ s(m, bs = "cc", k = 6), d, knots = list(m = c(0, 12)))$regression$smooths[[1L]]
  ends <- smooth_columns(smooth, data.frame(m = c(0, 12)))
  expect_equal(ends$penalised[[1L]][1L, ], ends$penalised[[1L]][2L, ], tolerance = 1e-8)
  refused <- function(...) expect_snapshot_error(elvi_problem(..., data = d), class = "elvi_error_argument")
  refused(y ~ x, knots = list(x = 1:3))
  refused(y ~ s(x), knots = list(w = 1:3))
  refused(y ~ s(x), knots = 1:3)
})

test_that("a field of regions by mgcv is that of its graph", {
  skip_if_not_installed("mgcv")
  set.seed(3)
  d <- data.frame(r = factor(rep(letters[1:6], 8)))
  d$y <- rnorm(6)[d$r] + rnorm(48)
  nb <- stats::setNames(lapply(1:6, function(i) intersect(c(i - 1L, i + 1L), 1:6)), letters[1:6])
  problem <- elvi_problem(y ~ s(r, bs = "mrf", xt = list(nb = nb), k = 6), d, dispersion = 1)
  smooth <- problem$regression$smooths[[1L]]
  Z <- smooth_columns(smooth, data.frame(r = factor(letters[1:6])))$penalised[[1L]]
  L <- diag(c(1, 2, 2, 2, 2, 1))
  L[abs(row(L) - col(L)) == 1L] <- -1
  inverse <- MASS::ginv(L)
  expect_equal(tcrossprod(Z), inverse / mean(diag(inverse)), tolerance = 1e-6, ignore_attr = TRUE)
})
