# The prior as a fit, against closed forms and against draws made one by one in another way (prior_draw(), of calibrate()).

prior_of <- function(...) elvi(..., prior_only = TRUE)

quantile_table <- function(fit, p) {
  which <- seq_along(fit$posterior$shown)
  structure(posterior_quantiles(fit$posterior, which, p), dimnames = list(fit$posterior$shown, NULL))
}

test_that("normal priors need no approximation", {
  fit <- prior_of(am ~ wt + hp, mtcars, family = binomial(), prior = normal(c(1, -1), c(0.5, 2)), prior_intercept = normal(0.3, 1.5))
  centre <- colMeans(mtcars[c("wt", "hp")])
  expect_equal(unname(coef(fit)), c(0.3 - sum(centre * c(1, -1)), 1, -1))
  A <- rbind(c(1, -centre), cbind(0, diag(2)))
  expect_equal(unname(vcov(fit)), unname(A %*% diag(c(1.5, 0.5, 2)^2) %*% t(A)))
  expect_identical(length(fit$posterior$weight), 1L)
  eta <- predict(fit, se.fit = TRUE)
  X <- model.matrix(~ wt + hp, mtcars)
  expect_equal(unname(eta$se.fit), unname(sqrt(rowSums((X %*% vcov(fit)) * X))))
})

test_that("standard deviations, correlations and sigma have their priors", {
  skip_if_not_installed("reformulas")
  d <- transform(mtcars, g = factor(cyl))
  fit <- prior_of(mpg ~ wt + (wt | g), d, prior_sd = exponential(2), prior_aux = normal(0, 3), prior_cor = lkj(2), autoscale = FALSE)
  p <- c(0.025, 0.25, 0.5, 0.75, 0.975)
  shown <- quantile_table(fit, p)
  expect_equal(shown["sd(g:wt)", ], qexp(p, 2), tolerance = 0.03, ignore_attr = TRUE)
  expect_equal(shown["sigma", ], 3 * qnorm((1 + p) / 2), tolerance = 0.03, ignore_attr = TRUE)
  expect_equal(shown["cor(g:wt,(Intercept))", ], 2 * qbeta(p, 2, 2) - 1, tolerance = 0.03, ignore_attr = TRUE)
  moments <- posterior_moments(fit$posterior)
  expect_equal(moments$mean[["sd(g:(Intercept))"]], 0.5, tolerance = 0.01)
  expect_equal(moments$sd[["sd(g:(Intercept))"]], 0.5, tolerance = 0.03)
  # effects: E sd^2 = 2 / rate^2
  b <- moments$sd[grep("^b\\[", names(moments$sd))]
  expect_equal(unname(b), rep(sqrt(2) / 2, 6), tolerance = 0.03)
})

test_that("draws have the distribution of draws made one by one", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  fit <- prior_of(mpg ~ s(wt), mtcars, prior = student_t(4, 0, 1))
  mine <- posterior_draws(fit$posterior, 2000L, c(7, 8))
  other <- with_seed(1, replicate(2000, {
    one <- prior_draw(fit)
    c(one$x, one$hyper)
  }))
  both <- cbind(mine$x, mine$hyper)
  p <- vapply(seq_len(ncol(both)), function(j) suppressWarnings(ks.test(both[, j], other[j, ])$p.value), 0)
  expect_gt(min(p) * length(p), 0.01)
  # squares of effects follow the standard deviation that was drawn with them
  r <- function(x, sd) cor(log(x^2), log(sd), method = "spearman")
  expect_equal(r(mine$x[, 4], mine$hyper[, 1]), r(other[4, ], other[ncol(mine$x) + 1, ]), tolerance = 0.15)
})

test_that("student priors are mixtures of normal ones", {
  fit <- prior_of(am ~ wt, mtcars, family = binomial(), prior = student_t(3, 1, 2), prior_intercept = cauchy(0, 1), autoscale = FALSE)
  p <- c(0.01, 0.1, 0.3, 0.5, 0.9, 0.99)
  expect_equal(unname(quantile_table(fit, p)["wt", ]), 1 + 2 * qt(p, 3), tolerance = 0.02)
  expect_equal(posterior_moments(fit$posterior)$sd[["wt"]], 2 * sqrt(3), tolerance = 0.1)
  expect_output(print(fit), "infinite standard")
})

test_that("a dispersion whose power has the prior has it here too", {
  fit <- prior_of(mpg ~ 1, mtcars, family = Gamma("log"))
  p <- c(0.05, 0.5, 0.95)
  expect_equal(log(unname(quantile_table(fit, p)["shape", ])), -2 * log(qexp(1 - p)), tolerance = 0.03)   # long tails on its own scale
})

test_that("priors that are no products are weighted", {
  V <- matrix(c(1, 0.6, 0.6, 2), 2)
  log_prior <- function(problem, layout, theta) list(value = -drop(theta %*% solve(V, theta)) / 2)
  setup <- list(layout = list(length = 2L), problem = list(X = matrix(0, 1, 0)))
  laid <- with_swapped("hyper_prior", log_prior, lay_prior(setup, normal(0, 1), 4000L))
  expect_equal(crossprod(sqrt(laid$weight) * laid$theta), V, tolerance = 0.02)
})

test_that("an axis has the quantiles of its density", {
  axis <- prior_axis(function(a) a - exp(a))
  z <- seq(-4, 4, by = 0.5)
  expect_equal(exp(axis$quantile(z)), ifelse(z < 0, qexp(pnorm(z)), qexp(pnorm(-z), lower.tail = FALSE)), tolerance = 1e-3)
  expect_equal(axis$log_density(c(-3, 0, 1)), c(-3, 0, 1) - exp(c(-3, 0, 1)), tolerance = 1e-5)
  points <- even_points(500L, 3L)
  expect_true(all(points > 0 & points < 1))
  expect_equal(colMeans(points), rep(0.5, 3), tolerance = 0.01)
})

test_that("what the prior cannot have is refused", {
  expect_error(prior_of(am ~ wt, mtcars, family = binomial(), prior = flat()), "`wt` is flat", class = "elvi_error_argument")
  expect_error(prior_of(mpg ~ wt, mtcars, prior_aux = flat()), "`sigma`", class = "elvi_error_argument")
  expect_error(prior_of(mpg ~ wt, mtcars, budget = 100), "`budget`", class = "elvi_error_argument")
  expect_error(prior_of(mpg ~ wt, mtcars, method = "mpsgd"), "`method`", class = "elvi_error_argument")
  expect_error(prior_of(mpg ~ wt, mtcars, base = base_laplace()), "`base`", class = "elvi_error_argument")
  expect_error(elvi(mpg ~ wt, mtcars, prior_only = 1), "`prior_only`", class = "elvi_error_argument")
  fit <- prior_of(mpg ~ wt, mtcars)
  for (verb in list(evidence, loo.elvi_glm, waic.elvi_glm, kfold.elvi_glm, calibrate)) {
    expect_error(verb(fit), "the prior alone", class = "elvi_error_argument")
  }
})

test_that("it is said, and update() goes to the posterior", {
  fit <- elvi(mpg ~ wt, mtcars, prior_only = TRUE)
  expect_output(print(fit), "Prior mean and standard deviation")
  expect_output(print(fit), "This is the prior")
  expect_output(print(summary(fit)), "This is the prior")
  expect_equal(coef(update(fit, prior_only = FALSE)), coef(elvi(mpg ~ wt, mtcars)))
  problem <- elvi_problem(mpg ~ wt, mtcars)
  expect_equal(coef(elvi_solve(problem, prior_only = TRUE)), coef(fit))
})
