test_that("a matrix of draws is what simulate() gives", {
  for (fit in list(nasty("exclude"), nasty("stochastic"), elvi(model_quadratic(diag(2)), method = "exact"))) {
    set.seed(1)
    x <- as.matrix(fit, draws = 30)
    set.seed(1)
    expect_identical(x, simulate(fit, 30))
    expect_identical(dim(x), c(30L, length(coef(fit))))
    expect_identical(colnames(x), names(coef(fit)))
  }
  expect_identical(nrow(as.matrix(nasty())), 1000L)
  set.seed(2)
  x <- as.matrix(nasty("exclude"), draws = 5e4)
  expect_lt(max(abs(colMeans(x) - coef(nasty("exclude"))) / sqrt(diag(vcov(nasty("exclude"))) / 5e4)), 4)
  expect_equal(cov(x), vcov(nasty("exclude")), tolerance = 0.03)
  expect_snapshot(cat(sep = "\n",
    refusal(as.matrix(nasty(), draws = 0), "draws"), refusal(as.matrix(nasty(), resample = NA), "resample"),
    refusal(as.matrix(nasty(), draw = 3, resampel = TRUE), "resampel")))
})

test_that("the generator of R rules the draws", {
  fit <- nasty("exclude")
  set.seed(3)
  a <- as.matrix(fit, draws = 5, resample = TRUE)
  set.seed(3)
  expect_identical(as.matrix(fit, draws = 5, resample = TRUE), a)
  expect_false(identical(as.matrix(fit, draws = 5), as.matrix(fit, draws = 5)))
  set.seed(4)
  before <- .Random.seed
  expect_identical(simulate(fit, 2, seed = 9), simulate(fit, 2, seed = 9))
  expect_identical(.Random.seed, before)
})

test_that("draws come in every format of posterior", {
  skip_on_cran()
  skip_if_not_installed("posterior")
  formats <- c("as_draws", "as_draws_matrix", "as_draws_df", "as_draws_array", "as_draws_list", "as_draws_rvars")
  for (fit in list(nasty("exclude"), nasty("stochastic"))) for (format in formats) {
    convert <- getExportedValue("posterior", format)
    set.seed(1)
    x <- convert(fit, draws = 20)
    expect_s3_class(x, if (format == "as_draws") "draws_matrix" else sub("as_", "", format))
    expect_identical(posterior::variables(x), names(coef(fit)))
    expect_identical(posterior::ndraws(x), 20L)
    set.seed(1)
    expect_equal(unclass(posterior::as_draws_matrix(x)), as.matrix(fit, draws = 20), ignore_attr = TRUE)
    set.seed(1)
    y <- convert(fit, draws = 20, resample = TRUE)
    set.seed(1)
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
  set.seed(1)
  x <- as.matrix(fit, draws = 2e4, resample = TRUE)[, 1]
  skew <- mean((x - mean(x))^3) / sd(x)^3
  expect_lt(third, -0.3)
  expect_lt(abs(mean(x) - mean), 0.02 * sd)
  expect_equal(sd(x), sd, tolerance = 0.03)
  expect_lt(abs(skew - third), 0.25)
})

test_that("resampling moves a formula fit to the truth, in two dimensions", {
  d <- data.frame(x = c(-1, -0.6, -0.2, 0.3, 0.7, 1.4), y = c(0, 0, 1, 0, 1, 1))
  fit <- elvi(y ~ x, data = d, family = binomial(), prior = normal(0, 3), prior_intercept = normal(0, 3))
  grid <- expand.grid(a = seq(-9, 9, length.out = 241), b = seq(-8, 14, length.out = 241))
  centred <- d$x - mean(d$x)
  f <- dnorm(grid$a, 0, 3, log = TRUE) + dnorm(grid$b, 0, 3, log = TRUE)
  for (i in 1:6) f <- f + dbinom(d$y[i], 1, plogis(grid$a + grid$b * centred[i]), log = TRUE)
  w <- exp(f - max(f))
  w <- w / sum(w)
  truth <- c(sum(w * (grid$a - mean(d$x) * grid$b)), sum(w * grid$b))
  spread <- sqrt(c(sum(w * (grid$a - mean(d$x) * grid$b - truth[1])^2), sum(w * (grid$b - truth[2])^2)))
  set.seed(1)
  plain <- abs(coef(fit) - truth) / spread
  corrected <- as.matrix(fit, draws = 2e4, resample = TRUE)
  expect_gt(max(plain), 0.01)
  expect_lt(max(abs(colMeans(corrected) - truth) / spread), 0.03)
  expect_equal(unname(apply(corrected, 2, sd)), spread, tolerance = 0.05)
})

test_that("resampling warns where it cannot help", {
  A <- toeplitz(0.95^(0:9))
  fit <- elvi(model_quadratic(solve(A)), method = "exact", control = elvi_control(scale = "diagonal"))
  set.seed(1)
  expect_warning(as.matrix(fit, draws = 100, resample = TRUE), class = "elvi_warning_pareto_k")
})
