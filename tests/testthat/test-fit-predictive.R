# under priors that say next to nothing, fits of glm()
predictive_pairs <- function() {
  if (is.null(formula_store$predictive)) {
    d <- withr_seed(8, data.frame(x = rnorm(400), n = sample(3:9, 400, TRUE)))
    d$y <- withr_seed(9, rbinom(400, d$n, plogis(d$x / 2)))
    d$k <- withr_seed(10, rpois(400, exp(1 + d$x / 2)))
    d$z <- withr_seed(11, 1 + d$x + rnorm(400) / sqrt(d$n))
    wide <- normal(0, 1e3)
    formula_store$predictive <- list(data = d, fits = list(
      binomial = list(elvi(cbind(y, n - y) ~ x, d, binomial(), wide, wide), glm(cbind(y, n - y) ~ x, binomial(), d)),
      poisson = list(elvi(k ~ x, d, poisson(), wide, wide), glm(k ~ x, poisson(), d)),
      gaussian = list(elvi(z ~ x, d, gaussian(), wide, wide, weights = n, dispersion = 1), glm(z ~ x, gaussian(), d, weights = n))))
  }
  formula_store$predictive
}

test_that("residuals, deviance and degrees of freedom are those of glm()", {
  skip_on_cran()
  for (pair in predictive_pairs()$fits) {
    for (type in c("response", "pearson", "deviance", "working")) {
      there <- residuals(pair[[2]], type)
      expect_lt(max(abs(residuals(pair[[1]], type) - there)), 0.02 * max(abs(there)), label = type)
    }
    expect_equal(deviance(pair[[1]]), deviance(pair[[2]]), tolerance = 1e-3)
    expect_equal(df.residual(pair[[1]]), df.residual(pair[[2]]))
  }
  phi <- 1.7   # against MASS
  skip_if_not_installed("MASS")
  y <- c(0, 1, 5)
  mu <- c(0.5, 2, 3)
  record <- family_records$neg_binomial_2
  expect_equal(record$deviance(y, mu, phi), MASS::negative.binomial(phi)$dev.resids(y, mu, 1))
  expect_equal(record$variance(mu, phi), MASS::negative.binomial(phi)$variance(mu))
})

test_that("residuals have NA where na.exclude dropped rows", {
  r <- residuals(nasty("exclude"), "pearson")
  expect_identical(is.na(r), is.na(residuals(nasty("exclude"))))
  expect_identical(deviance(nasty("exclude")), deviance(nasty("omit")))
})

test_that("credible intervals of predictions are quantiles, and prediction intervals hold new responses", {
  for (pair in predictive_pairs()$fits) {
    fit <- pair[[1]]
    new <- predictive_pairs()$data[1:4, ]
    at <- predict(fit, new, se.fit = TRUE)
    limits <- predict(fit, new, interval = "credible", level = 0.8)
    expect_equal(limits[, "lwr"], at$fit + qnorm(0.1) * at$se.fit)
    expect_equal(limits[, "fit"], at$fit)
    expect_identical(predict(fit, new, interval = "confidence", level = 0.8), limits)
    response <- predict(fit, new, type = "response", interval = "credible", level = 0.8, se.fit = TRUE)
    expect_equal(response$fit[, "upr"], fit$family$linkinv(limits[, "upr"]))
    expect_equal(response$se.fit, predict(fit, new, type = "response", se.fit = TRUE)$se.fit)
  }
  fit <- predictive_pairs()$fits$gaussian[[1]]
  new <- predictive_pairs()$data[1:4, ]
  at <- predict(fit, new, se.fit = TRUE)
  expect_equal(unname(predict(fit, new, interval = "prediction")[, "upr"]), unname(at$fit + 1.96 * sqrt(1 + at$se.fit^2)),
               tolerance = 0.1)
  gaps <- new
  gaps$x[2] <- NA
  expect_identical(unname(is.na(predict(fit, gaps, interval = "prediction")[, "lwr"])), c(FALSE, TRUE, FALSE, FALSE))
  refusal(predict(predictive_pairs()$fits$poisson[[1]], interval = "prediction"), "type")
  refusal(predict(fit, interval = "sometimes"), "interval")
})

test_that("simulate() gives responses in the type of the response", {
  fit <- predictive_pairs()$fits$binomial[[1]]
  out <- simulate(fit, 2, seed = 1)
  expect_identical(names(out), c("sim_1", "sim_2"))
  expect_true(is.matrix(out$sim_1) && all(rowSums(out$sim_1) == predictive_pairs()$data$n))
  expect_identical(out, simulate(fit, 2, seed = 1))
  expect_false(identical(unclass(simulate(fit)$sim_1), unclass(simulate(fit)$sim_1)))
  set.seed(1)
  before <- .Random.seed
  simulate(fit, 2, seed = 1)
  expect_identical(.Random.seed, before)
  d <- data.frame(y = factor(rep(c("no", "yes"), 20)), x = sin(1:40))
  out <- simulate(elvi(y ~ x, data = d, family = binomial()), seed = 2)
  expect_identical(levels(out$sim_1), c("no", "yes"))
  counts <- simulate(predictive_pairs()$fits$poisson[[1]], 400, seed = 3)
  fit <- predictive_pairs()$fits$poisson[[1]]
  expect_lt(max(abs(rowMeans(counts) - fitted(fit)) / sqrt((fitted(fit) + 0.01) / 400)), 5)
})

test_that("bayes_R2() is that of rstantools, for a matrix too", {
  skip_on_cran()
  skip_if_not_installed("rstantools")
  fit <- predictive_pairs()$fits$gaussian[[1]]
  y <- predictive_pairs()$data$z
  expect_equal(bayes_R2(fit, draws = 50), c(rstantools::bayes_R2(posterior_epred(fit, draws = 50), y = y)))
  expect_equal(mean(bayes_R2(fit)), var(fitted(fit)) / (var(fitted(fit)) + var(residuals(fit))), tolerance = 0.02)
  expect_identical(rstantools::bayes_R2(fit, draws = 5), bayes_R2(fit, draws = 5))
  draws <- posterior_predict(fit, draws = 30)
  expect_equal(predictive_interval(draws), rstantools::predictive_interval(draws))
  expect_equal(unname(predictive_interval(fit, prob = 0.5, draws = 30)), unname(rstantools::predictive_interval(draws, prob = 0.5)))
})

test_that("the log likelihood of new rows is that of the same rows in the data", {
  for (pair in predictive_pairs()$fits) {
    few <- c(3, 1, 7)
    expect_equal(unname(log_lik(pair[[1]], predictive_pairs()$data[few, ], draws = 4)),
                 unname(log_lik(pair[[1]], draws = 4)[, few]))
  }
  fit <- predictive_pairs()$fits$poisson[[1]]
  refusal(log_lik(fit, data.frame(x = 1)), "newdata")
})

test_that("waic() and kfold() come close to loo()", {
  skip_on_cran()
  skip_if_not_installed("loo")
  fit <- predictive_pairs()$fits$poisson[[1]]
  loo <- suppressWarnings(loo::loo(fit))$estimates["elpd_loo", ]
  expect_equal(suppressWarnings(loo::waic(fit))$estimates[["elpd_waic", "Estimate"]], loo[["Estimate"]], tolerance = 2e-3)
  kfold <- withr_seed(4, loo::kfold(fit, K = 5))
  expect_s3_class(kfold, c("kfold", "loo"), exact = TRUE)
  expect_lt(abs(kfold$estimates[["elpd_kfold", "Estimate"]] - loo[["Estimate"]]), 3)
  expect_identical(nrow(loo::loo_compare(kfold, kfold)), 2L)
  # a fold is judged by a fit that has not seen it
  folds <- rep(1:2, 200)
  halves <- loo::kfold(fit, folds = folds, draws = 500)
  data <- predictive_pairs()$data
  other <- elvi(k ~ x, data = data[folds == 2, ], family = poisson(), prior = normal(0, 1e3), prior_intercept = normal(0, 1e3))
  expect_equal(halves$pointwise[[5, "elpd_kfold"]], dpois(data$k[5], predict(other, data[5, ], type = "response")[[1]], log = TRUE),
               tolerance = 0.02)
  refusal(loo::kfold(fit, K = 1), "K")
  refusal(loo::kfold(fit, folds = rep(1, 400)), "folds")
  # only a stochastic fit is refitted from its formula
  expect_s3_class(withr_seed(4, loo::kfold(elvi(mtcars$mpg ~ mtcars$wt, dispersion = 1), K = 2)), "kfold")
  refusal(loo::kfold(elvi(mtcars$mpg ~ mtcars$wt, dispersion = 1, method = "mpsgd", budget = 1000)), "x")
})
