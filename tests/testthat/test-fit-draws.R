test_that("a matrix of draws has a column for each parameter; simulate() of a model gives the same", {
  skip_on_cran()
  for (fit in list(nasty("exclude"), nasty("stochastic"), elvi(model_quadratic(diag(2)), method = "exact"))) {
    x <- as.matrix(fit, draws = 30, seed = 1)
    if (!inherits(fit, "elvi_glm")) expect_identical(x, simulate(fit, 30, seed = 1))
    expect_identical(dim(x), c(30L, length(fit$mu)))
    expect_identical(colnames(x), rownames(summary(fit)$table))
    expect_equal(as.data.frame(fit, draws = 30, seed = 1), as.data.frame(x))
  }
  expect_identical(nrow(as.matrix(nasty())), 1000L)
  x <- as.matrix(nasty("exclude"), draws = 5e4, seed = 2)
  expect_lt(max(abs(colMeans(x) - coef(nasty("exclude"))) / sqrt(diag(vcov(nasty("exclude"))) / 5e4)), 4)
  expect_equal(cov(x), vcov(nasty("exclude")), tolerance = 0.03)
  expect_refusal(as.matrix(nasty(), draws = 0), "draws")
  expect_refusal(as.matrix(nasty(), resample = NA), "resample")
  expect_refusal(as.matrix(nasty(), draw = 3, resampel = TRUE), "resampel")
})

test_that("a fit has one sequence of draws, whoever asks", {
  for (fit in list(nasty("exclude"), nasty("stochastic"), elvi(model_quadratic(diag(2)), method = "exact"))) {
    set.seed(4)
    before <- .Random.seed
    x <- as.matrix(fit, draws = 20)
    expect_identical(as.matrix(fit, draws = 20), x)
    expect_identical(as.matrix(fit, ndraws = 5), x[1:5, ])
    resampled <- as.matrix(fit, draws = 5, resample = TRUE)
    expect_identical(as.matrix(fit, draws = 5, resample = TRUE), resampled)
    expect_identical(as.matrix(fit, draws = 20, seed = 3), as.matrix(fit, draws = 20, seed = 3))
    expect_false(any(as.matrix(fit, draws = 20, seed = 3) == x))
    expect_false(identical(as.matrix(fit, draws = 5, resample = TRUE, seed = 3), resampled))
    expect_identical(.Random.seed, before)
    file <- tempfile(fileext = ".rds")
    saveRDS(fit, file)
    expect_identical(as.matrix(readRDS(file), draws = 20), x)
    unlink(file)
  }
})

test_that("two fits of the same data by the exact solver have different draws, and set.seed() decides them", {
  fitted <- function(seed) {
    set.seed(seed)
    elvi(case ~ age, data = infert, family = binomial())
  }
  expect_identical(as.matrix(fitted(1), draws = 3), as.matrix(fitted(1), draws = 3))
  expect_false(any(as.matrix(fitted(1), draws = 3) == as.matrix(fitted(2), draws = 3)))
})

test_that("rows of two calls belong to the same draw", {
  skip_on_cran()
  fit <- elvi(mpg ~ wt + hp, data = mtcars, dispersion = 6)
  low <- data.frame(wt = 3, hp = 100)
  high <- data.frame(wt = 3, hp = 110)
  x <- as.matrix(fit, draws = 50)
  expect_equal(drop(posterior_epred(fit, high, draws = 50) - posterior_epred(fit, low, ndraws = 50)), 10 * x[, "hp"],
               ignore_attr = TRUE)
  expect_equal(posterior_linpred(fit, seed = 8)[3, ], drop(model.matrix(fit) %*% as.matrix(fit, seed = 8)[3, ]),
               ignore_attr = TRUE)
  expect_equal(log_lik(fit, draws = 50)[7, ], dnorm(mtcars$mpg, posterior_epred(fit, draws = 50)[7, ], sqrt(6), log = TRUE),
               ignore_attr = TRUE)
  skip_if_not_installed("posterior")
  expect_equal(unclass(posterior::as_draws_matrix(fit, draws = 50)), x, ignore_attr = TRUE)
})

test_that("new responses are the same in every call, and independent of those of other rows", {
  fit <- elvi(mpg ~ wt + hp, data = mtcars, dispersion = 6)
  set.seed(4)
  before <- .Random.seed
  y <- posterior_predict(fit, draws = 500)
  expect_identical(.Random.seed, before)
  expect_identical(posterior_predict(fit, mtcars, draws = 500), y)
  expect_false(any(posterior_predict(fit, draws = 500, seed = 1) == y))
  expect_identical(posterior_predict(fit, draws = 20, seed = 1), posterior_predict(fit, ndraws = 20, seed = 1))
  noise <- function(data) posterior_predict(fit, data, draws = 500) - posterior_epred(fit, data, draws = 500)
  expect_lt(abs(cor(noise(mtcars[1, ])[, 1], noise(mtcars[2, ])[, 1])), 0.2)
})

test_that("draws come in every format of posterior", {
  skip_on_cran()
  skip_if_not_installed("posterior")
  formats <- c("as_draws", "as_draws_matrix", "as_draws_df", "as_draws_array", "as_draws_list", "as_draws_rvars")
  for (fit in list(nasty("exclude"), nasty("stochastic"))) for (format in every(formats, 3)) {
    convert <- getExportedValue("posterior", format)
    x <- convert(fit, draws = 20)
    expect_s3_class(x, if (format == "as_draws") "draws_matrix" else sub("as_", "", format))
    expect_identical(posterior::variables(x), rownames(summary(fit)$table))
    expect_identical(posterior::ndraws(x), 20L)
    expect_equal(unclass(posterior::as_draws_matrix(x)), as.matrix(fit, draws = 20), ignore_attr = TRUE)
    y <- convert(fit, draws = 20, resample = TRUE)
    expect_equal(unclass(posterior::as_draws_matrix(y)), as.matrix(fit, draws = 20, resample = TRUE),
                 ignore_attr = TRUE)
  }
  expect_error(posterior::as_draws_df(nasty(), nothing = 1), class = "elvi_error_argument")
})

test_that("resampling moves a skewed posterior to the truth, in one dimension", {
  y <- c(0, 1, 0, 2, 0)
  model <- model_glm(matrix(1, 5), y, family = poisson(), prior = normal(0, 3))
  fit <- elvi(model, base_gaussian(), method = "exact")
  density <- function(x) vapply(x, function(v) exp(-glm_target(v, matrix(1, 5), y, "poisson", scale = 3)), 0)
  moment <- function(k) integrate(function(x) x^k * density(x), -12, 4, rel.tol = 1e-10)$value
  mean <- moment(1) / moment(0)
  sd <- sqrt(moment(2) / moment(0) - mean^2)
  third <- integrate(function(x) ((x - mean) / sd)^3 * density(x), -12, 4)$value / moment(0)
  x <- as.matrix(fit, draws = 2e4, resample = TRUE, seed = 1)[, 1]
  skew <- mean((x - mean(x))^3) / sd(x)^3
  expect_lt(third, -0.3)
  expect_lt(abs(mean(x) - mean), 0.02 * sd)
  expect_equal(sd(x), sd, tolerance = 0.03)
  expect_lt(abs(skew - third), 0.25)
})

test_that("resampling moves a formula fit to the truth, in two dimensions", {
  d <- data.frame(x = c(-1, -0.6, -0.2, 0.3, 0.7, 1.4), y = c(0, 0, 1, 0, 1, 1))
  fit <- elvi(y ~ x, data = d, family = binomial(), prior = normal(0, 3), prior_intercept = normal(0, 3),
              correct = FALSE)
  grid <- expand.grid(a = seq(-9, 9, length.out = 241), b = seq(-8, 14, length.out = 241))
  centred <- d$x - mean(d$x)
  f <- dnorm(grid$a, 0, 3, log = TRUE) + dnorm(grid$b, 0, 3, log = TRUE)
  for (i in 1:6) f <- f + dbinom(d$y[i], 1, plogis(grid$a + grid$b * centred[i]), log = TRUE)
  w <- exp(f - max(f))
  w <- w / sum(w)
  truth <- c(sum(w * (grid$a - mean(d$x) * grid$b)), sum(w * grid$b))
  spread <- sqrt(c(sum(w * (grid$a - mean(d$x) * grid$b - truth[1])^2), sum(w * (grid$b - truth[2])^2)))
  plain <- abs(coef(fit) - truth) / spread
  corrected <- as.matrix(fit, draws = 2e4, resample = TRUE, seed = 1)
  expect_gt(max(plain), 0.01)
  expect_lt(max(abs(colMeans(corrected) - truth) / spread), 0.03)
  expect_equal(unname(apply(corrected, 2, sd)), spread, tolerance = 0.05)
})

test_that("resampling warns where it cannot help", {
  A <- toeplitz(0.95^(0:9))
  fit <- elvi(model_quadratic(solve(A)), method = "exact", control = elvi_control(scale = "diagonal"))
  expect_warning(as.matrix(fit, draws = 100, resample = TRUE, seed = 1), class = "elvi_warning_pareto_k")
})

test_that("as.array() has iterations, one chain and parameters", {
  fit <- elvi(mpg ~ wt, mtcars)
  draws <- as.array(fit, draws = 5)
  expect_identical(dim(draws), c(5L, 1L, 3L))
  expect_identical(names(dimnames(draws)), c("iterations", "chains", "parameters"))
  expect_equal(draws[, 1, ], as.matrix(fit, draws = 5), ignore_attr = TRUE)
})
