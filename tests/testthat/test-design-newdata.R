test_that("predictions at the data and at the same rows given anew agree", {
  skip_on_cran()
  d <- group_data()
  for (which in every(c("binary", "slopes", "trials", "counts", "smooth", "by", "overdispersed"), 2)) {
    fit <- nested_example(which)
    at_data <- predict(fit, se.fit = TRUE)
    anew <- predict(fit, d[c(7, 3, 100), ], se.fit = TRUE)
    expect_equal(unname(anew$fit), unname(at_data$fit[c(7, 3, 100)]), tolerance = 1e-6)
    expect_equal(unname(anew$se.fit), unname(at_data$se.fit[c(7, 3, 100)]), tolerance = 1e-6)
    eta <- posterior_linpred(fit, d[1:20, ], draws = 4000)
    expect_lt(max(abs(colMeans(eta) - at_data$fit[1:20]) / at_data$se.fit[1:20]), 0.1)
    expect_lt(max(abs(log(apply(eta, 2L, sd) / at_data$se.fit[1:20]))), 0.1)
  }
})

test_that("expected responses are integrals over the mixture", {
  skip_on_cran()
  fit <- nested_example("binary")
  at <- predict(fit, type = "response", se.fit = TRUE)
  mu <- posterior_epred(fit, draws = 4000)
  expect_lt(max(abs(colMeans(mu) - at$fit) / at$se.fit), 0.1)
  expect_lt(max(abs(log(apply(mu, 2L, sd) / at$se.fit))), 0.12)
  expect_equal(fitted(fit), at$fit)
  expect_equal(unname(residuals(fit) + at$fit), as.double(group_data()$b))
})

test_that("draws of different calls belong together", {
  fit <- nested_example("slopes")
  d <- group_data()
  x <- as.matrix(fit, draws = 50)
  eta <- posterior_linpred(fit, draws = 50)
  row <- which(d$g == "c")[1]
  by_hand <- x[, "(Intercept)"] + x[, "b[(Intercept) g:c]"] + d$x[row] * (x[, "x"] + x[, "b[x g:c]"])
  expect_equal(unname(eta[, row]), unname(by_hand))
  expect_identical(posterior_predict(fit, draws = 20), posterior_predict(fit, draws = 20))
  ll <- log_lik(fit, draws = 50)
  expect_equal(unname(ll[, row]), dnorm(d$y[row], by_hand, x[, "sigma"], log = TRUE), ignore_attr = TRUE)
})

test_that("group-level terms can be left out, all or some", {
  skip_on_cran()
  fit <- nested_example("trials")
  d <- group_data()[1:4, ]
  fixed <- predict(fit, d, re.form = NA)
  expect_equal(unname(fixed), unname(drop(cbind(1, d$x) %*% fixef(fit))))
  expect_equal(predict(fit, d["x"], re.form = NA), fixed)
  expect_equal(predict(fit, d, re.form = ~0), fixed)
  one <- predict(fit, d, re.form = ~ (1 | g))
  expect_equal(unname(one), unname(fixed + ranef(fit)$g[as.character(d$g), 1]))
  expect_equal(predict(fit, d, re.form = ~ (1 | g) + (1 | h)), predict(fit, d))
  expect_snapshot_error(predict(fit, d, re.form = ~ (1 | f)))
  expect_snapshot_error(predict(fit, d, re.form = 3))
  smooth <- nested_example("smooth")
  expect_equal(predict(smooth, group_data()[1:3, ], re.form = NA), predict(smooth)[1:3], ignore_attr = TRUE)
})

test_that("new levels come from the population, when allowed", {
  fit <- nested_example("slopes")
  new <- data.frame(x = c(0, 2, 0), g = c("new", "new", "a"))
  expect_snapshot_error(predict(fit, new))
  at <- predict(fit, new, se.fit = TRUE, allow_new_levels = TRUE)
  expect_equal(unname(at$fit[1:2]), unname(drop(cbind(1, c(0, 2)) %*% fixef(fit))))
  V <- VarCorr(fit)$g
  direction <- c(1, 2)
  expect_equal(at$se.fit[[2]]^2, drop(direction %*% (V + vcov(fit)) %*% direction), tolerance = 1e-6)
  expect_equal(at$fit[[3]], coef(fit)$g["a", 1])
  eta <- posterior_linpred(fit, new, draws = 4000, allow_new_levels = TRUE)
  expect_lt(max(abs(log(apply(eta, 2L, sd) / at$se.fit))), 0.12)
  # rows of one new level share its effects
  expect_gt(cor(eta[, 1], eta[, 2]), 0.3)
})

test_that("bad new data are refused by name", {
  fit <- nested_example("slopes")
  expect_snapshot_error(predict(fit, 3))
  expect_snapshot_error(predict(fit, data.frame(g = "a")))
  expect_snapshot_error(predict(fit, data.frame(x = "a", g = "a")))
  expect_identical(which(is.na(predict(fit, data.frame(x = c(1, NA), g = "a")))), c("2" = 2L))
})

test_that("predictive draws have the family's spread", {
  skip_on_cran()
  fit <- nested_example("counts")
  y <- posterior_predict(fit, draws = 2000)
  expect_true(all(y >= 0 & y == floor(y)))
  expect_equal(mean(y), mean(group_data()$count), tolerance = 0.05)
  gauss <- posterior_predict(nested_example("slopes"), draws = 2000)
  expect_equal(mean(apply(gauss, 2, sd)), sigma(nested_example("slopes")), tolerance = 0.1)
  trials <- posterior_predict(nested_example("trials"), draws = 200)
  expect_lte(max(trials), 4)
  expect_lte(max(posterior_predict(nested_example("trials"), group_data()[1:5, ], draws = 100, trials = 9)), 9)
})

test_that("loo() is that of the draws' log likelihoods", {
  skip_on_cran()
  skip_if_not_installed("loo")
  fit <- nested_example("slopes")
  out <- suppressWarnings(loo::loo(fit, draws = 1000))
  expect_equal(dim(out$pointwise)[1], 240L)
  skip_if_not_installed("generics")
  expect_identical(nrow(generics::augment(fit)), 240L)
})

test_that("plain regressions with an unknown dispersion have log likelihoods of new rows, and kfold()", {
  skip_on_cran()
  skip_if_not_installed("loo")
  d <- group_data()[1:80, ]
  fit <- elvi(y ~ x, d)
  expect_identical(fit$method, "nested")
  expect_equal(log_lik(fit, draws = 5), log_lik(fit, newdata = d, draws = 5), ignore_attr = TRUE)
  # a fold for each row is leaving one out, which loo() does without fitting again
  folded <- loo::kfold(fit, folds = seq_len(80), draws = 1000)
  expect_equal(folded$elpd_kfold, loo::loo(fit)$estimates["elpd_loo", "Estimate"], tolerance = 0.005)
  expect_identical(names(generics::tidy(fit)), c("effect", "group", "term", "estimate", "std.error"))
  often <- elvi(y ~ x, d, frequency = w, autoscale = FALSE)
  repeated <- elvi(y ~ x, d[rep(seq_len(80), d$w), ], autoscale = FALSE, prior_intercept = normal(0, 2.5))
  expect_equal(sigma(often), sigma(repeated), tolerance = 1e-3)
  expect_equal(often$nested$evidence$log, repeated$nested$evidence$log, tolerance = 1e-3)
})

test_that("credible intervals are quantiles of the predictor, prediction intervals of new responses", {
  skip_on_cran()
  fit <- nested_example("slopes")
  new <- group_data()[c(7, 3, 100), ]
  new$x[3] <- NA
  at <- predict(fit, new, interval = "credible", level = 0.9, se.fit = TRUE)
  expect_identical(colnames(at$fit), c("fit", "lwr", "upr"))
  expect_identical(at$fit[, "fit"], predict(fit, new))
  expect_true(all(is.na(at$fit[3, ])))
  eta <- posterior_linpred(fit, new[1:2, ], draws = 4000)
  expect_lt(max(abs(t(apply(eta, 2L, quantile, c(0.05, 0.95))) - at$fit[1:2, c("lwr", "upr")]) / at$se.fit[1:2]), 0.15)
  wide <- predict(fit, new[1:2, ], interval = "prediction", level = 0.9)
  expect_true(all(wide[, "upr"] - wide[, "lwr"] > at$fit[1:2, "upr"] - at$fit[1:2, "lwr"]))
  refusal(posterior_predict(fit, draws = 5, trials = 3), "trials")
  refusal(posterior_predict(nested_example("trials"), group_data()[1:5, ], draws = 5, trials = 1:2), "trials")
})

test_that("an offset outside of the formula is found in new data, or asked for", {
  skip_on_cran()
  d <- group_data()
  skip_without_parser()
  fit <- suppressWarnings(elvi(count ~ x + (1 | g), d, family = poisson(), offset = log(e)))
  inside <- nested_example("counts")
  expect_equal(predict(fit, d[1:3, ]), predict(inside, d[1:3, ]), tolerance = 1e-6)
  expect_equal(predict(fit, d[1:3, ], offset = log(d$e[1:3])), predict(fit, d[1:3, ]))
  refusal(predict(fit, d[1:3, c("x", "g")]), "offset")
})

test_that("pp_check() draws the responses over draws of new ones", {
  skip_on_cran()
  skip_if_not_installed("bayesplot")
  fit <- nested_example("trials")
  drawn <- bayesplot::pp_check(fit, type = "stat", draws = 7, stat = "mean")
  expect_s3_class(drawn, "ggplot")
  refusal(bayesplot::pp_check(fit, type = "nothing"), "type")
})

test_that("new levels of two terms have effects of their own, the same in every call", {
  skip_on_cran()
  fit <- nested_example("trials")
  new <- data.frame(x = 0, g = c("new", "new", "other", "a"), h = c("new", "1", "1", "other"))
  at <- predict(fit, new, se.fit = TRUE, allow_new_levels = TRUE)
  eta <- posterior_linpred(fit, new, draws = 4000, allow_new_levels = TRUE)
  # one stream for both terms made the sd of the first row the sum of theirs
  expect_lt(max(abs(log(apply(eta, 2L, sd) / at$se.fit))), 0.05)
  effect <- function(rows, which) {
    posterior_linpred(fit, rows, draws = 4000, allow_new_levels = TRUE)[, which] - posterior_linpred(fit, rows, draws = 4000, re.form = NA)[, which]
  }
  g <- effect(data.frame(x = 0, g = c("new", "other"), h = "1"), 1:2)
  h1 <- as.matrix(fit, draws = 4000)[, "b[(Intercept) h:1]"]
  expect_lt(abs(cor(g[, 1] - h1, g[, 2] - h1)), 0.4)   # they share the uncertain sd only
  h <- effect(data.frame(x = 0, g = "a", h = "new"), 1) - as.matrix(fit, draws = 4000)[, "b[(Intercept) g:a]"]
  expect_lt(abs(cor(g[, 1] - h1, h)), 0.06)
  # alone, or among others
  alone <- posterior_linpred(fit, new[2, ], draws = 50, allow_new_levels = TRUE)
  expect_equal(unname(alone[, 1]), unname(posterior_linpred(fit, new, draws = 50, allow_new_levels = TRUE)[, 2]))
})

test_that("`re_formula` is `re.form`, wherever groups can be left out", {
  skip_on_cran()
  fit <- nested_example("trials")
  d <- group_data()[1:4, ]
  one <- ~ (1 | g)
  expect_identical(predict(fit, d, re_formula = NA), predict(fit, d, re.form = NA))
  expect_identical(predict(fit, d, re_formula = one, se.fit = TRUE), predict(fit, d, re.form = one, se.fit = TRUE))
  expect_identical(predict(fit, d, re_formula = NULL), predict(fit, d))
  for (draw in list(posterior_linpred, posterior_epred, posterior_predict, log_lik)) {
    expect_identical(draw(fit, d, draws = 5, re_formula = one), draw(fit, d, draws = 5, re.form = one))
    expect_false(identical(draw(fit, d, draws = 50, re_formula = NA), draw(fit, d, draws = 50)))
    expect_error(draw(fit, d, draws = 5, re.form = NA, re_formula = NA), "`re_formula`", class = "elvi_error_argument")
  }
  expect_identical(bayes_R2(fit, draws = 5, re_formula = NA), bayes_R2(fit, draws = 5, re.form = NA))
  expect_lt(mean(bayes_R2(fit, re.form = NA)), mean(bayes_R2(fit)))
  expect_error(predict(fit, d, re_formula = 3), class = "elvi_error_argument")
})

test_that("no new rows are no predictions, with groups too", {
  fit <- nested_example("binary")
  none <- group_data()[0, ]
  expect_identical(dim(posterior_predict(fit, none, draws = 3)), c(3L, 0L))
  expect_identical(dim(posterior_epred(fit, none, draws = 3)), c(3L, 0L))
  expect_length(predict(fit, none), 0)
})
