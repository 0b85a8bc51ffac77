count_data <- function() {
  withr_seed(3, {
    data <- data.frame(g = factor(rep(1:10, each = 3)), x = rnorm(30))
    data$y <- rpois(30, exp(0.3 + 0.5 * data$x + rnorm(10)[data$g]))
  })
  data
}

test_that("rows that are left out count zero times: the fit is that of the others, with the same priors", {
  fit <- elvi(am ~ wt, data = mtcars, family = binomial(), prior = normal(0, 2), prior_intercept = normal(0, 3))
  other <- without_rows(fit, 3:5)
  frequency <- replace(rep(1, 32), 3:5, 0)
  mode <- optim(c(0, 0), function(b) {
    eta <- b[1] + b[2] * (mtcars$wt - mean(mtcars$wt))
    -sum(frequency * dbinom(mtcars$am, 1, plogis(eta), log = TRUE)) - sum(dnorm(b, 0, c(3, 2), log = TRUE))
  }, method = "BFGS")
  expect_lt(max(abs(model_theta(other)$mu - mode$par)), 0.35)
  expect_identical(other$priors, fit$priors)
  # gaussian data have closed forms
  data <- data.frame(y = mtcars$mpg, x = mtcars$wt - mean(mtcars$wt))
  known <- elvi(y ~ x, data = data, dispersion = 9, prior = normal(0, 4), prior_intercept = normal(20, 10))
  X <- cbind(1, data$x)[-7, ]
  V <- solve(crossprod(X) / 9 + diag(1 / c(10, 4)^2))
  expect_equal(unname(model_theta(without_rows(known, 7))$mu), drop(V %*% (crossprod(X, data$y[-7]) / 9 + c(20 / 100, 0))), tolerance = 1e-6)
})

test_that("an unknown dispersion does not see rows that are left out", {
  for (family in list(gaussian(), Gamma("log"))) {
    fit <- elvi(mpg ~ 1, data = mtcars, family = family, prior_intercept = normal(3, 10), prior_aux = exponential(0.2), weights = rep(1:2, 16))
    alone <- elvi(mpg ~ 1, data = mtcars[-(7:9), ], family = family, prior_intercept = normal(3, 10), prior_aux = exponential(0.2),
                  weights = rep(1:2, 16)[-(7:9)])
    expect_equal(posterior_moments(without_rows(fit, 7:9)$posterior)$mean, posterior_moments(alone$posterior)$mean, tolerance = 1e-4)
  }
})

test_that("loo(refit = TRUE) replaces rows of high k by refits", {
  skip_if_not_installed("loo")
  data <- data.frame(y = mtcars$mpg, x = mtcars$wt - mean(mtcars$wt))
  set.seed(1)
  fit <- elvi(y ~ x, data = data, dispersion = 9, prior = normal(0, 4), prior_intercept = normal(20, 10))
  exact <- vapply(1:32, function(i) {
    X <- cbind(1, data$x)[-i, ]
    V <- solve(crossprod(X) / 9 + diag(1 / c(10, 4)^2))
    m <- V %*% (crossprod(X, data$y[-i]) / 9 + c(20 / 100, 0))
    row <- c(1, data$x[i])
    dnorm(data$y[i], sum(row * m), sqrt(9 + drop(row %*% V %*% row)), log = TRUE)
  }, 0)
  all <- loo::loo(fit, draws = 20000, refit = TRUE, k_threshold = -Inf)
  expect_lt(max(abs(all$pointwise[, "elpd_loo"] - exact)), 0.03)
  expect_identical(unname(loo::pareto_k_values(all)), numeric(32))
  expect_equal(all$estimates["elpd_loo", "Estimate"], sum(all$pointwise[, "elpd_loo"]))
  expect_equal(all$estimates["elpd_loo", "SE"], sqrt(32 * var(all$pointwise[, "elpd_loo"])))
  expect_equal(all$pointwise[, "looic"], -2 * all$pointwise[, "elpd_loo"])
  expect_output(print(all), "elpd_loo")
  # none is above, so nothing changes
  expect_equal(loo::loo(fit, refit = TRUE, k_threshold = 5)$pointwise, suppressWarnings(loo::loo(fit))$pointwise)
  expect_error(loo::loo(fit, refit = 2), class = "elvi_error_argument")
  expect_error(loo::loo(fit, refit = TRUE, k_threshold = "a"), class = "elvi_error_argument")
})

test_that("refits of counts with groups agree with brute force where importance sampling does not", {
  skip_if_not_installed("loo")
  data <- count_data()
  fit <- elvi(y ~ x + (1 | g), data = data, family = poisson())
  # log p(y) - log p(y without the row), by 6,000 draws over coefficients and sd and quadrature over effects: standard error 0.013
  truth <- c("10" = -4.402, "5" = -3.391)
  for (i in names(truth)) {
    found <- log_mean_exp(held_out_log_lik(fit, as.integer(i), 4000, fit$posterior$key))
    expect_lt(abs(found - truth[[i]]), 0.06)
  }
  # evidences tell the same
  kept <- lgamma(data$y[10] + 1)   # the constant is still that of all rows
  other <- without_rows(fit, 10)$nested$evidence$corrected + kept
  expect_lt(abs(fit$nested$evidence$corrected - other + 4.402), 0.06)
})

test_that("rows are left out given the family's own parameters, whatever these are", {
  d <- withr_seed(41, {
    d <- data.frame(x = rnorm(60), g = factor(rep(1:6, 10)))
    d$hits <- rbinom(60, 8, rbeta(60, 4 * plogis(d$x), 4 * plogis(-d$x)))
    d$class <- cut(d$x + rlogis(60), c(-Inf, -1, 0.5, 2, Inf), ordered_result = TRUE)
    d
  })
  for (fit in list(elvi(cbind(hits, 8 - hits) ~ x, d, family = beta_binomial()), elvi(class ~ x, d, family = cumulative()))) {
    rows <- only_rows(observed_rows(fit), 1:60)
    k <- which.max(fit$posterior$weight)
    here <- fit$posterior$hyper$values[k, family_parameter_names(fit), drop = FALSE]
    ours <- vapply(1:60, function(i) row_log_lik(fit, rows, i, 0.3, k), 0)
    theirs <- if (fit$family$family == "cumulative") {
      cuts <- c(-Inf, 0, here, Inf)
      log(diff(plogis(cuts - 0.3)))[as.integer(d$class)]
    } else beta_binomial_log_lik(d$hits, rep(8, 60), plogis(0.3), c(here))
    expect_equal(ours, theirs, tolerance = 1e-10)
  }
})

test_that("rows of a high Pareto k are left out by an integral over their predictor", {
  skip_if_not_installed("loo")
  # one coefficient: everything is an integral
  y <- c(0, 1, 0, 6)
  fit <- elvi(y ~ 1, data = data.frame(y = y), family = poisson(), prior_intercept = normal(0, 2))
  b <- seq(-8, 6, length.out = 20001)
  evidence <- function(y) log(sum(exp(dnorm(b, 0, 2, log = TRUE) + rowSums(outer(b, y, function(b, y) dpois(y, exp(b), log = TRUE))))))
  exact <- vapply(1:4, function(i) evidence(y) - evidence(y[-i]), 0)
  expect_lt(max(abs(held_out_density(fit, 1:4, 5) - exact)), 0.01)
  # where importance sampling is off by half a nat, with exact draws too
  data <- count_data()
  counts <- elvi(y ~ x + (1 | g), data = data, family = poisson())
  out <- loo::loo(counts)
  truth <- c("10" = -4.402, "5" = -3.391)   # as below
  expect_true(10 %in% attr(out, "integrated"))
  expect_lt(max(abs(out$pointwise[as.integer(names(truth)), "elpd_loo"] - truth)), 0.06)
  expect_equal(out$estimates["elpd_loo", "Estimate"], sum(out$pointwise[, "elpd_loo"]))
  plain <- suppressWarnings(loo::loo(counts, profile = FALSE))
  expect_null(attr(plain, "integrated"))
  expect_error(loo::loo(counts, profile = 2), class = "elvi_error_argument")
})

test_that("kfold() leaves out levels as a whole", {
  skip_if_not_installed("loo")
  data <- count_data()
  fit <- elvi(y ~ x + (1 | g), data = data, family = poisson())
  by_level <- withr_seed(1, loo::kfold(fit, K = 5, folds = "g"))
  folds <- attr(by_level, "folds")
  expect_true(all(tapply(folds, data$g, function(f) length(unique(f))) == 1))
  expect_identical(attr(by_level, "K"), 5L)
  expect_s3_class(by_level, c("kfold", "loo"), exact = TRUE)
  by_row <- withr_seed(1, loo::kfold(fit, K = 5))
  expect_lt(by_level$elpd_kfold, by_row$elpd_kfold)
  # a level without rows has its prior: the same as a fit without them that predicts a new level
  out <- which(data$g == "1")
  other <- elvi(y ~ x + (1 | g), data = data[-out, ], family = poisson(), prior = normal(0, fit$priors$joint$scale[2]))
  new <- log_mean_exp(log_lik(other, data[out, ], allow_new_levels = TRUE, draws = 4000))
  expect_equal(new, log_mean_exp(held_out_log_lik(fit, out, 4000, fit$posterior$key)), tolerance = 0.1)
  expect_error(loo::kfold(fit, folds = "nothing"), class = "elvi_error_argument")
  expect_error(loo::kfold(fit, folds = rep(1, 30)), class = "elvi_error_argument")
})

test_that("anova() compares fits of the same rows by loo, and says what to do with one", {
  skip_if_not_installed("loo")
  first <- elvi(mpg ~ wt, mtcars)
  second <- elvi(mpg ~ wt + hp, mtcars)
  table <- anova(first, second)
  expect_setequal(rownames(table), c("first", "second"))
  by_hand <- loo::loo(second)$estimates["elpd_loo", 1] - loo::loo(first)$estimates["elpd_loo", 1]
  expect_equal(table["first", "elpd_diff"] - table["second", "elpd_diff"], -by_hand, ignore_attr = TRUE)
  expect_error(anova(first), "bayes_factor", class = "elvi_error_argument")
  expect_error(anova(first, elvi(hp ~ wt, mtcars)), "other responses", class = "elvi_error_argument")
})

test_that("loo() of data larger than memory goes chunk by chunk, and is that of memory", {
  skip_on_cran()
  skip_if_not_installed("loo")
  data <- rows_data(150)
  for (arguments in list(list(yes ~ x + z, family = binomial()), list(real ~ x + (1 | trials)))) {
    fit <- withr_seed(1, do.call(elvi, c(arguments, list(data = rows_chunked(chunks_of(data)), correct = FALSE))))
    reference <- withr_seed(1, do.call(elvi, c(arguments, list(data = data, correct = FALSE))))
    here <- suppressWarnings(loo::loo(fit, draws = 200, seed = 3, profile = FALSE))
    there <- suppressWarnings(loo::loo(reference, draws = 200, seed = 3, profile = FALSE))
    expect_equal(here$estimates, there$estimates, tolerance = 1e-5)
    expect_equal(unname(here$pointwise), unname(there$pointwise), tolerance = 1e-4)
    expect_identical(class(here), class(there))
    expect_identical(dim(here), dim(there))
    expect_silent(suppressWarnings(capture.output(print(here))))
  }
})
