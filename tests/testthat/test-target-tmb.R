# a normal sample with known posterior moments by quadrature, and a normal model of groups whose effects TMB integrates exactly
sample_object <- function(y = c(2.1, 3.4, 1.7, 4.0, 2.8)) {
  nll <- function(p) {
    sigma <- exp(p$log_sigma)
    RTMB::REPORT(sigma)
    sum((y - p$b)^2) / (2 * sigma^2) + length(y) * p$log_sigma + sum(p$b^2) / 200 + sigma - p$log_sigma
  }
  RTMB::MakeADFun(nll, list(b = 0, log_sigma = 0), silent = TRUE)
}

test_that("an object without random effects is a density with derivatives", {
  skip_if_not_installed("RTMB")
  y <- c(2.1, 3.4, 1.7, 4.0, 2.8)
  obj <- sample_object(y)
  obj$fn(c(1, 0.5))
  before <- mget(c("last.par", "last.par.best"), envir = obj$env)
  model <- model_tmb(obj)
  expect_identical(model$names, c("b", "log_sigma"))
  expect_identical(model$logarithms, c(FALSE, TRUE))
  f <- function(x) sum((y - x[1])^2) / (2 * exp(2 * x[2])) + 5 * x[2] + x[1]^2 / 200 + exp(x[2]) - x[2]
  x <- cbind(c(1, 0.2), c(3, -0.4))
  expect_equal(model$value(x), c(f(x[, 1]), f(x[, 2])))
  slope <- function(j, i) (f(x[, j] + 1e-5 * (1:2 == i)) - f(x[, j] - 1e-5 * (1:2 == i))) / 2e-5
  expect_equal(model$gradient(x), c(slope(1, 1), slope(1, 2), slope(2, 1), slope(2, 2)), tolerance = 1e-6)
  expect_equal(model$hessian(x[, 1])[1, 1], 5 / exp(0.4) + 1 / 100, tolerance = 1e-8)
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(model, budget = 1000)))
  own <- constrain_draws(fit, 50)
  expect_identical(colnames(own), "sigma")
  expect_equal(own[, "sigma"], exp(as.matrix(fit, draws = 50)[, "log_sigma"]), ignore_attr = TRUE)
  expect_identical(mget(c("last.par", "last.par.best"), envir = obj$env), before)
  # moments by a grid
  skip_on_cran()
  grid <- expand.grid(b = seq(-6, 12, 0.05), s = seq(-2.5, 3, 0.02))
  w <- exp(-apply(grid, 1, f))
  mean <- colSums(grid * w) / sum(w)
  sd <- sqrt(colSums(grid^2 * w) / sum(w) - mean^2)
  expect_lt(max(abs(coef(fit) - mean) / sd), 0.05)
  expect_equal(sqrt(diag(vcov(fit))), sd, tolerance = 0.05, ignore_attr = TRUE)
})

test_that("random effects are integrated by TMB, and the model says so", {
  skip_if_not_installed("RTMB")
  set.seed(3)
  g <- rep(1:8, each = 4)
  y <- rnorm(32, rnorm(8)[g])
  nll <- function(p) {
    tau <- exp(p$log_tau)
    RTMB::REPORT(tau)
    sum((y - p$b[1] - p$u[g])^2) / 2 + sum(p$u^2) / (2 * tau^2) + 8 * p$log_tau + sum(p$b^2) / 200 + tau - p$log_tau
  }
  obj <- RTMB::MakeADFun(nll, list(b = c(0, 0), log_tau = 0, u = numeric(8)), random = "u", silent = TRUE)
  model <- model_tmb(obj, random = "laplace")
  expect_identical(model$names, c("b[1]", "b[2]", "log_tau"))
  expect_output(print(model), "Laplace approximation of TMB")
  # the effects of a normal model are normal given the rest, so the integral is exact
  x <- c(0.3, 0.1, 0.2)
  V <- diag(32) + exp(0.4) * outer(g, g, "==")
  marginal <- function(x, V) {
    r <- y - x[1]
    drop(r %*% solve(V, r)) / 2 + c(determinant(V)$modulus) / 2 + sum(x[1:2]^2) / 200 + exp(x[3]) - x[3]
  }
  other <- c(-0.2, 0, -0.5)
  W <- diag(32) + exp(-1) * outer(g, g, "==")
  expect_equal(diff(model$value(cbind(x, other))), marginal(other, W) - marginal(x, V), tolerance = 1e-8)
  expect_equal(model$constrain(cbind(x, other))[, "tau"], exp(c(0.2, -0.5)), ignore_attr = TRUE)
})

test_that("an object is used through its functions, and left as it was", {
  obj <- tmb_double()
  obj$fn(c(1, 0.5))
  before <- as.list(obj$env)
  model <- model_tmb(obj)
  expect_identical(model$names, c("b", "log_sigma"))
  x <- c(1.5, -0.3)
  slope <- vapply(1:2, function(i) (obj$fn(x + 1e-5 * (1:2 == i)) - obj$fn(x - 1e-5 * (1:2 == i))) / 2e-5, 0)
  obj$fn(c(1, 0.5))
  expect_equal(model$gradient(matrix(x)), slope, tolerance = 1e-6)
  expect_equal(model$value(cbind(x, c(1, 0.5)))[2], obj$fn(c(1, 0.5)))
  bend <- vapply(1:2, function(i) (obj$gr(x + 1e-5 * (1:2 == i)) - obj$gr(x - 1e-5 * (1:2 == i))) / 2e-5, numeric(2))
  obj$fn(c(1, 0.5))
  expect_equal(model$hessian(x), bend, tolerance = 1e-6)
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(model, budget = 1000)))
  expect_equal(constrain_draws(fit, 20)[, "sigma"], exp(as.matrix(fit, draws = 20)[, "log_sigma"]), ignore_attr = TRUE)
  expect_identical(as.list(obj$env), before)
})

test_that("other objects are refused", {
  expect_error(model_tmb(list(par = 1)), "MakeADFun", class = "elvi_error_argument")
})

test_that("random effects get the best gaussian given their standard deviation", {
  skip_unless_long()
  skip_if_not_installed("RTMB")
  set.seed(3)
  J <- 30
  g <- rep(seq_len(J), each = 4)
  y <- rnorm(4 * J, rnorm(J)[g])
  nll <- function(p) {
    tau <- exp(p$log_tau)
    RTMB::REPORT(tau)
    sum((y - p$b - p$u[g])^2) / 2 + sum(p$u^2) / (2 * tau^2) + J * p$log_tau + p$b^2 / 200 + tau - p$log_tau
  }
  obj <- RTMB::MakeADFun(nll, list(b = 0, log_tau = 0, u = numeric(J)), random = "u", silent = TRUE)
  model <- model_tmb(obj)
  expect_equal(model$dim, J + 2)
  set.seed(1)
  fit <- elvi(model)
  # exact given log_tau: means of groups are normal
  M <- as.vector(rowsum(y, g)) / 4
  t <- seq(-3, 2, 0.01)
  at <- vapply(t, function(t) {
    V <- exp(2 * t) + 1 / 4
    v <- 1 / (J / V + 1 / 100)
    m <- v * sum(M) / V
    c(-J / 2 * log(V) - sum(M^2) / (2 * V) + m^2 / (2 * v) + log(v) / 2 - exp(t) + t, m, v)
  }, numeric(3))
  w <- exp(at[1, ] - max(at[1, ])) / sum(exp(at[1, ] - max(at[1, ])))
  mean <- c(sum(w * at[2, ]), sum(w * t))
  sd <- sqrt(c(sum(w * (at[3, ] + at[2, ]^2)), sum(w * t^2)) - mean^2)
  m <- posterior_moments(fit$posterior)
  expect_lt(max(abs(m$mean[c("b", "log_tau")] - mean) / sd), 0.03)
  expect_lt(max(abs(log(m$sd[c("b", "log_tau")] / sd))), 0.03)
  x <- as.matrix(fit, draws = 20)
  expect_equal(constrain_draws(fit, 20)[, "tau"], exp(x[, "log_tau"]), ignore_attr = TRUE)
})

test_that("reported lists are flattened, empty ones left out", {
  reported <- list(a = 1, sd = list(2, c(3, 4)), none = list(), word = "x", deep = list(u = list(5)))
  object <- list(report = function(full) reported)
  expect_equal(reported_numbers(object, 0), c(a = 1, sd.1 = 2, "sd.2[1]" = 3, "sd.2[2]" = 4, "deep.u.1" = 5))
  expect_null(reported_numbers(list(report = function(full) list(sd = list())), 0))
})
