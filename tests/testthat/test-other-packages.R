# One fit without groups, one with an unknown sigma, one with groups, in the hands of other packages.
other_fits <- function() {
  skip_without_parser()
  if (is.null(formula_store$others)) {
    formula_store$others <- withr_seed(6, list(
      binary = elvi(case ~ age + education + spontaneous, data = infert, family = binomial()),
      sigma = elvi(mpg ~ wt + hp, data = mtcars),
      groups = elvi(count ~ spray + (1 | block), family = poisson(),
                    data = transform(InsectSprays, block = factor(rep(1:12, 6))))))
  }
  formula_store$others
}

fixed_effects <- function(fit) if (inherits(fit, "elvi_nested")) fixef(fit) else coef(fit)

test_that("emmeans: estimates, contrasts and the response scale", {
  skip_on_cran()
  skip_if_not_installed("emmeans")
  fit <- other_fits()$binary
  link <- as.data.frame(emmeans::emmeans(fit, ~ education, frequentist = TRUE))
  grid <- data.frame(age = mean(infert$age), education = levels(infert$education), spontaneous = mean(infert$spontaneous))
  at <- predict(fit, grid, se.fit = TRUE)
  expect_equal(link$emmean, unname(at$fit))
  expect_equal(link$SE, unname(at$se.fit))
  response <- as.data.frame(emmeans::emmeans(fit, ~ education, type = "response"))
  expect_true("prob" %in% names(response))
  expect_equal(response$prob, unname(predict(fit, grid, type = "response")), tolerance = 0.05)
  expect_identical(nrow(as.data.frame(pairs(emmeans::emmeans(fit, ~ education)))), 3L)
  groups <- as.data.frame(emmeans::emmeans(other_fits()$groups, ~ spray, frequentist = TRUE))
  expect_equal(groups$emmean, unname(predict(other_fits()$groups, data.frame(spray = LETTERS[1:6]), re.form = NA)))
  trend <- as.data.frame(emmeans::emtrends(other_fits()$sigma, ~ 1, var = "wt", frequentist = TRUE))
  expect_equal(trend$wt.trend, coef(other_fits()$sigma)[["wt"]], tolerance = 1e-6)
})

test_that("emmeans: functions in the formula and smooth terms", {
  skip_on_cran()
  skip_if_not_installed("emmeans")
  fit <- elvi(mpg ~ log(wt) + factor(cyl), data = mtcars, dispersion = 6)
  out <- as.data.frame(emmeans::emmeans(fit, ~ cyl, frequentist = TRUE))
  expect_equal(out$emmean, unname(predict(fit, data.frame(wt = mean(mtcars$wt), cyl = c(4, 6, 8)))))
  skip_if_not_installed("mgcv")
  fit <- elvi(mpg ~ factor(am) + s(wt), data = mtcars)
  out <- as.data.frame(emmeans::emmeans(fit, ~ am, frequentist = TRUE))
  expect_equal(out$emmean, unname(predict(fit, data.frame(wt = mean(mtcars$wt), am = 0:1))), tolerance = 1e-6)
})

test_that("marginaleffects: slopes, comparisons and predictions from draws", {
  skip_if_not_installed("marginaleffects")
  skip_if_not_installed("collapse")
  skip_if(getRversion() < "4.4.0" && utils::packageVersion("marginaleffects") >= "1.0.0")   # which uses base's %||%
  fit <- other_fits()$binary
  slope <- marginaleffects::avg_slopes(fit, variables = "age")
  h <- 1e-4
  moved <- function(by) rowMeans(posterior_epred(fit, transform(infert, age = age + by)))
  expect_equal(slope$estimate, median(moved(h) - moved(-h)) / (2 * h), tolerance = 1e-3)
  predicted <- marginaleffects::predictions(other_fits()$groups, newdata = data.frame(spray = "A", block = "1"), re_formula = NA)
  expect_equal(predicted$estimate, median(posterior_epred(other_fits()$groups, data.frame(spray = "A"), re.form = NA)))
})

test_that("marginaleffects' hooks: draws of expected responses, without a covariance", {
  fit <- other_fits()$binary
  expect_true(all(c("elvi_glm", "elvi_nested") %in% getOption("marginaleffects_model_classes")))
  out <- elvi:::get_predict.elvi_glm(fit, infert[1:3, ], "response")
  expect_identical(attr(out, "posterior_draws"), t(unname(posterior_epred(fit, infert[1:3, ]))))
  expect_null(elvi:::get_vcov.elvi_glm(fit))
  for (fit in other_fits()) {
    expect_identical(if (inherits(fit, "elvi_nested")) elvi:::get_coef.elvi_nested(fit) else elvi:::get_coef.elvi_glm(fit),
                     fixed_effects(fit))
  }
})

test_that("insight: a Bayesian model whose parameters are draws", {
  skip_if_not_installed("insight")
  for (fit in other_fits()) {
    info <- insight::model_info(fit)
    expect_true(info$is_bayesian)
    expect_identical(info$is_mixed, length(fit$groups) > 0)
    draws <- insight::get_parameters(fit)
    expect_identical(names(draws), insight::find_parameters(fit, flatten = TRUE))
    expect_equal(colMeans(insight::get_parameters(fit, effects = "fixed", component = "conditional")), fixed_effects(fit),
                 tolerance = 0.1)
    expect_identical(insight::find_algorithm(fit)$algorithm, "variational")
    expect_identical(insight::n_obs(fit), nobs(fit))
    expect_identical(insight::get_priors(fit)$Parameter, names(fixed_effects(fit)))
    expect_identical(insight::get_df(fit), df.residual(fit))
    expect_identical(insight::get_df(fit, type = "model"), length(fixed_effects(fit)))
  }
  for (fit in other_fits()) {
    clean <- insight::clean_parameters(fit)
    expect_identical(clean$Parameter, insight::find_parameters(fit, flatten = TRUE))
    expect_identical(clean$Effects == "random", startsWith(clean$Parameter, "Sigma["))
    first <- names(fixed_effects(fit))[2]
    expect_identical(insight::find_parameters(fit, flatten = TRUE, parameters = paste0("^", first, "$")), first)
  }
  expect_true("sigma" %in% names(insight::get_parameters(other_fits()$sigma)))
  expect_true(insight::model_info(other_fits()$binary)$is_binomial)
})

test_that("bayestestR and parameters: tables of the draws", {
  skip_on_cran()
  skip_if_not_installed("bayestestR")
  skip_if_not_installed("insight")
  for (fit in other_fits()) {
    draws <- insight::get_parameters(fit)
    expect_equal(as.data.frame(bayestestR::hdi(fit))$CI_low, as.data.frame(bayestestR::hdi(draws))$CI_low)
    for (generic in c("eti", "ci", "p_direction", "point_estimate", "map_estimate", "p_map", "rope", "equivalence_test",
                      "p_significance", "effective_sample", "describe_prior")) {
      out <- suppressMessages(getExportedValue("bayestestR", generic)(fit))
      expect_true(is.data.frame(out) && nrow(out) >= length(fixed_effects(fit)), info = generic)
    }
    described <- bayestestR::describe_posterior(fit)
    expect_identical(nrow(described), ncol(draws))
  }
  skip_if_not_installed("parameters")
  for (fit in other_fits()) {
    table <- parameters::model_parameters(fit, centrality = "mean", test = NULL, diagnostic = NULL, effects = "fixed")
    at <- match(names(fixed_effects(fit)), table$Parameter)
    expect_false(anyNA(at))
    draws <- insight::get_parameters(fit)
    expect_equal(parameters::standard_error(fit)$SE, unname(vapply(draws, sd, 0)))
    expect_equal(parameters::p_value(fit)$p, unname(2 * pmin(colMeans(draws > 0), colMeans(draws <= 0))))
    expect_equal(table$Mean[at], unname(colMeans(insight::get_parameters(fit))[names(fixed_effects(fit))]))
  }
})

test_that("performance: cross-validation, R2 and predictive checks", {
  skip_on_cran()
  skip_if_not_installed("performance")
  skip_if_not_installed("loo")
  for (fit in other_fits()) {
    out <- performance::model_performance(fit)
    expect_equal(out$LOOIC, suppressWarnings(loo::loo(fit))$estimates[["looic", "Estimate"]])
    expect_equal(out$R2, median(bayes_R2(fit)))
    expect_equal(performance::r2_bayes(fit)$R2_Bayes, median(bayes_R2(fit, draws = 4000)), ignore_attr = TRUE)
    check <- performance::check_predictions(fit, iterations = 5)
    expect_identical(dim(check), c(nobs(fit), 6L))
  }
})

test_that("modelsummary, broom.mixed and knitr make tables", {
  skip_on_cran()
  fit <- other_fits()$sigma
  if (requireNamespace("modelsummary", quietly = TRUE)) {
    table <- suppressWarnings(modelsummary::modelsummary(fit, output = "data.frame"))
    expect_true(all(c("(Intercept)", "wt", "hp", "sigma") %in% table$term))
  }
  if (requireNamespace("broom.mixed", quietly = TRUE)) {
    expect_true(all(c("effect", "group", "term", "estimate", "std.error", "conf.low") %in%
                      names(broom.mixed::tidy(other_fits()$groups, conf.int = TRUE))))
  }
  expect_identical(coef(summary(fit)), summary(fit)$table[1:3, ])
  expect_identical(rownames(coef(summary(other_fits()$groups))), names(fixef(other_fits()$groups)))
  skip_if_not_installed("knitr")
  for (fit in other_fits()) expect_true(any(grepl("mean", knitr::kable(summary(fit)))))
})

test_that("tidybayes: draws beside the data", {
  skip_if_not_installed("tidybayes")
  for (fit in other_fits()) {
    new <- model.frame(fit)[1:2, ]
    out <- tidybayes::add_epred_draws(new, fit, ndraws = 5)
    expect_identical(nrow(out), 10L)
    expect_equal(matrix(out$.epred, 5), unname(posterior_epred(fit, new, draws = 5)))
    expect_identical(nrow(tidybayes::add_predicted_draws(new, fit, ndraws = 5)), 10L)
  }
  marginal <- tidybayes::add_epred_draws(data.frame(spray = "A"), other_fits()$groups, ndraws = 5, re_formula = NA)
  expect_equal(marginal$.epred, c(posterior_epred(other_fits()$groups, data.frame(spray = "A"), re.form = NA, draws = 5)))
})
