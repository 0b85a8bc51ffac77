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

fixed_effects <- function(fit) fixef(fit)

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

# families and links, plain and with groups or smooth terms
grid_data <- function() {
  withr_seed(9, {
    n <- 90
    d <- data.frame(f = factor(rep(c("a", "b", "c"), n / 3)), x = rnorm(n), e = runif(n, 0.5, 2), g = factor(sample(letters[1:6], n, TRUE)),
                    u = runif(n))
    eta <- 0.3 + 0.5 * d$x + 0.4 * (d$f == "b") + rnorm(6, 0, 0.4)[d$g]
    d$y <- eta + rnorm(n)
    d$b <- rbinom(n, 1, plogis(eta))
    d$k <- rbinom(n, 5, plogis(eta))
    d$count <- rpois(n, d$e * exp(eta))
    d$size <- rgamma(n, 3, 3 / exp(eta))
    d$share <- plogis(eta + rnorm(n))
    d$time <- rweibull(n, 1.4, exp(eta))
    d$seen <- rbinom(n, 1, 0.8)
    d
  })
}

# Unevaluated: by default every second is fitted.
grid_cases <- function() {
  lapply(list(
    prob = expression(elvi(b ~ f + x, d, family = binomial()), elvi(factor(b) ~ f + x, d, family = binomial("probit")),
                elvi((y > 0) ~ f + x, d, family = binomial("cloglog")), elvi(I(b == 1) ~ f + x, d, family = binomial()),
                elvi(cbind(k, 5 - k) ~ f + x, d, family = binomial()), elvi(cbind(k, 5 - k) ~ f + x + (1 | g), d, family = binomial())),
    rate = expression(elvi(count ~ f + x, d, family = poisson()), elvi(count ~ f + x + (1 | g), d, family = poisson())),
    response = expression(elvi(counts, d, family = neg_binomial_2()), elvi(data = d, family = neg_binomial_2(), counts),
                    elvi(count ~ f + x, d, family = neg_binomial_2(), method = "mpsgd"),
                    elvi(count ~ f + x + (1 | g), d, family = neg_binomial_2()),
                    elvi(size ~ f + x, d, family = Gamma("log")), elvi(size ~ f + x, d, family = Gamma("log"), dispersion = 1),
                    elvi(size ~ f + x, d, family = inverse.gaussian("log")), elvi(share ~ f + x, d, family = Beta()),
                    elvi(Surv(time, seen) ~ f + x, d, family = weibull()), elvi(Surv(time, seen) ~ f + x, d, family = "exponential"),
                    elvi(survival::Surv(event = seen == 1, time = time) ~ f + x, d, family = weibull()),
                    elvi(time ~ f + x, d, family = weibull()), elvi(Surv(time, seen) ~ f + x + (1 | g), d, family = weibull())),
    response = expression(elvi(size ~ f + x, d, family = lognormal()), elvi(Surv(time, seen) ~ f + x, d, family = lognormal()),
                    elvi(Surv(time, 1.5 * time, type = "interval2") ~ f + x, d, family = weibull()),
                    elvi(size ~ f + x, d, family = gaussian("log")), elvi(size ~ f + x, d, family = Gamma("log"), dispformula = ~ x),
                    elvi(count ~ f + x, d, family = neg_binomial_2(), dispformula = ~ x)),
    prob = expression(elvi(cbind(k, 5 - k) ~ f + x, d, family = beta_binomial()), elvi(b ~ f + x, d, family = binomial("cauchit"))),
    emmean = expression(elvi(y ~ f + x, d), elvi(y ~ f + x, d, dispersion = 1), elvi(y ~ f + x, d, family = robust()),
                  elvi(y ~ f + x, d, family = student()), elvi(y ~ f + x, d, dispformula = ~ x))), every, 2)
}

test_that("emmeans: the response scale of every family is that of posterior_epred(), and ratios are exp() of differences", {
  skip_on_cran()
  skip_if_not_installed("emmeans")
  skip_if_not_installed("survival")
  skip_without_parser()
  d <- grid_data()
  new <- data.frame(f = levels(d$f), x = mean(d$x))
  made <- list2env(list(Surv = survival::Surv, d = d, counts = count ~ f + x), parent = environment())
  cases <- grid_cases()
  for (i in seq_along(cases)) for (case in cases[[i]]) {
    heading <- names(cases)[i]
    fit <- suppressMessages(suppressWarnings(withr_seed(3, eval(case, made))))
    info <- paste(fit$family$family, fit$family$link, deparse1(formula(fit)))
    at <- expect_silent(as.data.frame(emmeans::emmeans(fit, "f", type = "response")))
    expect_true(heading %in% names(at), info = info)
    eta <- posterior_linpred(fit, new, draws = 4000, re.form = NA)
    expect_equal(at[[heading]], family(fit)$linkinv(unname(apply(eta, 2L, median))), tolerance = 1e-6, info = info)
    two <- as.data.frame(pairs(emmeans::emmeans(fit, "f"), type = "response"))
    kind <- switch(fit$family$link, log = "ratio", logit = "odds.ratio", "estimate")
    difference <- median(eta[, 1] - eta[, 2])
    expect_equal(two[[kind]][1], if (kind == "estimate") difference else exp(difference), tolerance = 1e-6, info = info)
  }
  # a transformation of the response is still undone
  logged <- elvi(log(size) ~ f + x, d)
  at <- as.data.frame(emmeans::emmeans(logged, "f", type = "response"))
  expect_equal(at$response, exp(unname(apply(posterior_linpred(logged, new, draws = 4000), 2L, median))), tolerance = 1e-6)
})

test_that("emmeans: probabilities of classes are headed as such", {
  skip_on_cran()
  skip_if_not_installed("emmeans")
  d <- grid_data()
  d$class <- cut(d$y, c(-Inf, 0, 1, Inf), labels = c("low", "mid", "high"), ordered_result = TRUE)
  for (family in list(categorical(), cumulative())) {
    fit <- suppressWarnings(elvi(class ~ f + x, d, family = family))
    at <- as.data.frame(emmeans::emmeans(fit, ~ class | f, mode = "prob"))
    expect_equal(at$prob[1:3], unname(apply(posterior_epred(fit, data.frame(f = "a", x = mean(d$x)), draws = 4000), 3L, median)), tolerance = 1e-6)
  }
})

test_that("emmeans: an offset counts as in a glm(), inside and outside the formula", {
  skip_on_cran()
  skip_if_not_installed("emmeans")
  skip_if_not_installed("mgcv")
  skip_without_parser()
  d <- grid_data()
  # what emmeans adds for the offset: its estimate less that of the predictors
  added <- function(fit, shared) as.data.frame(emmeans::emmeans(fit, "f", frequentist = TRUE))$emmean - shared
  inside <- glm(count ~ f + x + offset(log(e)), d, family = poisson())
  outside <- glm(count ~ f + x, d, family = poisson(), offset = log(e))
  new <- data.frame(f = levels(d$f), x = mean(d$x), e = 1, u = mean(d$u))
  expected <- list(inside = added(inside, predict(inside, new)),
                   outside = added(outside, predict(inside, new)))
  fits <- suppressWarnings(list(
    inside = elvi(count ~ f + x + offset(log(e)), d, family = poisson()),
    inside = elvi(count ~ f + x + offset(log(e)), d, family = neg_binomial_2()),
    inside = elvi(count ~ f + x + offset(log(e)) + (1 | g), d, family = poisson()),
    inside = elvi(count ~ f + s(u) + offset(log(e)), d, family = poisson()),
    outside = elvi(count ~ f + x, d, family = poisson(), offset = log(e)),
    outside = elvi(count ~ f + x + (1 | g), d, family = poisson(), offset = log(e)),
    outside = elvi(count ~ f + s(u), d, family = poisson(), offset = log(e))))
  for (i in seq_along(fits)) {
    shared <- predict(fits[[i]], new, re.form = NA, offset = if (names(fits)[i] == "outside") numeric(3))
    expect_equal(unname(added(fits[[i]], shared)), unname(expected[[names(fits)[i]]]), tolerance = 1e-6,
                 info = deparse1(formula(fits[[i]])))
  }
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
  expect_true("elvi_glm" %in% getOption("marginaleffects_model_classes"))
  out <- get_predict.elvi_glm(fit, infert[1:3, ], "response")
  expect_identical(attr(out, "posterior_draws"), t(unname(posterior_epred(fit, infert[1:3, ]))))
  expect_null(get_vcov.elvi_glm(fit))
  for (fit in other_fits()) {
    expect_identical(get_coef.elvi_glm(fit),
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
  for (fit in every(other_fits(), 3)) {
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
  for (fit in every(other_fits(), 2)) {
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
  for (fit in every(other_fits(), 3)) {
    out <- performance::model_performance(fit)
    expect_equal(out$LOOIC, suppressWarnings(loo::loo(fit))$estimates[["looic", "Estimate"]])
    expect_equal(out$R2, median(bayes_R2(fit)))
    expect_equal(performance::r2_bayes(fit)$R2_Bayes, median(bayes_R2(fit, draws = 4000)), ignore_attr = TRUE)
    check <- performance::check_predictions(fit, iterations = 5)
    expect_identical(dim(check), c(nobs(fit), 6L))
  }
})

test_that("performance: r2() is Bayesian, with and without groups", {
  skip_on_cran()
  skip_if_not_installed("performance")
  for (fit in other_fits()) {
    out <- performance::r2(fit)
    expect_equal(out$R2_Bayes, median(bayes_R2(fit, draws = 4000)), ignore_attr = TRUE)
    grouped <- length(fit$groups) > 0
    expect_identical("R2_Bayes_marginal" %in% names(out), grouped)
    if (grouped) {
      expect_equal(out$R2_Bayes_marginal, median(bayes_R2(fit, draws = 4000, re.form = NA)), ignore_attr = TRUE)
      expect_lt(out$R2_Bayes_marginal, out$R2_Bayes)
    }
    expect_lt(out$R2_Bayes, 0.95)
  }
  linear <- other_fits()$sigma
  expect_equal(performance::r2(linear)$R2_Bayes[[1]], summary(lm(mpg ~ wt + hp, mtcars))$r.squared, tolerance = 0.03)
})

test_that("insight: random effects are found, and their variances are those of VarCorr()", {
  skip_on_cran()
  skip_if_not_installed("performance")
  skip_if_not_installed("lme4")
  skip_without_parser()
  sleep <- lme4::sleepstudy
  fit <- elvi(Reaction ~ Days + (Days | Subject), sleep)
  expect_true(insight::is_mixed_model(fit))
  expect_identical(insight::find_random(fit)$random, "Subject")
  expect_identical(insight::find_random_slopes(fit)$random, "Days")
  parts <- insight::find_formula(fit)
  expect_equal(parts$conditional, Reaction ~ Days, ignore_formula_env = TRUE)
  expect_equal(parts$random, ~ Days | Subject, ignore_formula_env = TRUE)
  V <- VarCorr(fit)$Subject
  M <- cbind(1, sleep$Days)
  found <- insight::get_variance(fit)
  expect_equal(found$var.random, mean(rowSums((M %*% V) * M)), ignore_attr = TRUE)
  expect_equal(found$var.fixed, var(fixef(fit)[["Days"]] * sleep$Days))
  expect_equal(found$var.residual, sigma(fit)^2)
  expect_equal(found$var.intercept[["Subject"]], V[1, 1])
  expect_equal(found$var.slope[["Subject.Days"]], V[2, 2])
  expect_identical(insight::get_variance(fit, component = "random"), found["var.random"])
  icc <- performance::icc(fit)
  expect_equal(icc$ICC_adjusted, found$var.random / (found$var.random + found$var.residual))
  nakagawa <- performance::r2_nakagawa(fit)
  total <- found$var.fixed + found$var.random + found$var.residual
  expect_equal(nakagawa$R2_marginal, found$var.fixed / total, ignore_attr = TRUE)
  expect_equal(nakagawa$R2_conditional, (found$var.fixed + found$var.random) / total, ignore_attr = TRUE)
  # near those of lme4, whose variances are the most likely ones
  expect_equal(icc$ICC_adjusted, performance::icc(lme4::lmer(Reaction ~ Days + (Days | Subject), sleep))$ICC_adjusted, tolerance = 0.1)
  expect_warning(expect_null(performance::icc(other_fits()$sigma)), "random")
})

test_that("insight: the variance of each family is on the scale of the predictor", {
  skip_on_cran()
  skip_if_not_installed("insight")
  skip_if_not_installed("survival")
  skip_without_parser()
  d <- grid_data()
  d$row <- factor(seq_len(nrow(d)))
  residual <- function(fit) insight::get_variance(fit, component = "distribution")$var.distribution
  # one quadrature point: what is asked follows from the estimates, whatever they are
  of <- function(formula, family) suppressWarnings(elvi(formula, d, family = family, control = elvi_control(nodes = 1)))
  expect_equal(residual(of(b ~ x + (1 | g), binomial())), pi^2 / 3)
  expect_equal(residual(of(b ~ x + (1 | g), binomial("probit"))), 1)
  expect_equal(residual(of(b ~ x + (1 | g), binomial("cloglog"))), pi^2 / 6)
  expect_equal(residual(of(count ~ x + (1 | g), poisson())), log1p(1 / mean(d$count)))
  many <- of(count ~ x + (1 | g), neg_binomial_2())
  expect_equal(residual(many), log1p(1 / mean(d$count) + 1 / many$mu[["phi"]]))
  sizes <- of(size ~ x + (1 | g), Gamma("log"))
  expect_equal(residual(sizes), log1p(1 / sizes$mu[["shape"]]))
  expect_equal(insight::get_variance(sizes, approximation = "trigamma")$var.distribution, trigamma(sizes$mu[["shape"]]))
  of_t <- of(y ~ x + (1 | g), robust(5))
  expect_equal(residual(of_t), sigma(of_t)^2 * 5 / 3)
  curved <- of(size ~ x + (1 | g), gaussian("log"))
  expect_equal(residual(curved), log1p((curved$mu[["sigma"]] / mean(d$size))^2))
  share <- of(share ~ x + (1 | g), Beta())
  mu <- mean(d$share)
  expect_equal(residual(share), 1 / ((1 + share$mu[["phi"]]) * mu * (1 - mu)))
  # of the mean's part alone, and of the responses that both parts make
  d$zi <- d$count * rbinom(nrow(d), 1, 0.7)
  inflated <- suppressWarnings(elvi(zi ~ x + (1 | g), d, family = zero_inflated_poisson(), ziformula = ~ (1 | g), control = elvi_control(nodes = 1)))
  found <- insight::get_variance(inflated)
  zi <- predict(inflated, type = "zprob")
  rate <- mean(predict(inflated, type = "conditional"))
  expect_equal(found$var.random, VarCorr(inflated)[[1L]][1L, 1L])
  expect_equal(found$var.residual, log1p(mean((1 - zi) * (rate + zi * rate^2)) / (mean(1 - zi) * rate)^2))
  d$class <- cut(d$y, c(-Inf, 0, 1, Inf), ordered_result = TRUE)
  once <- elvi_control(nodes = 1)
  expect_equal(residual(elvi(class ~ x + (1 | g), d, family = cumulative("probit"), control = once)), 1)
  expect_warning(expect_null(insight::get_variance(suppressWarnings(elvi(class ~ x + (1 | g), d, family = sratio(), control = once)))), "latent variable")
  # a level for each row is a dispersion
  by_row <- of(count ~ x + (1 | g) + (1 | row), poisson())
  found <- insight::get_variance(by_row)
  expect_equal(found$var.dispersion, VarCorr(by_row)$row[1, 1])
  expect_equal(found$var.random, VarCorr(by_row)$g[1, 1])
})

test_that("insight: predicted values are those of predict()", {
  skip_on_cran()
  skip_if_not_installed("insight")
  for (fit in every(other_fits(), 2)) {
    at <- predict(fit, type = "response", interval = "credible", level = 0.9, se.fit = TRUE)
    out <- insight::get_predicted(fit, ci = 0.9)
    expect_equal(as.numeric(out), unname(at$fit[, "fit"]))
    table <- as.data.frame(out)
    expect_equal(table$CI_low, unname(at$fit[, "lwr"]))
    expect_equal(table$SE, unname(at$se.fit))
    expect_equal(as.numeric(insight::get_predicted(fit, predict = "link")), unname(predict(fit)))
  }
  fit <- other_fits()$groups
  new <- data.frame(spray = c("A", "B"), block = "1")
  expect_equal(as.numeric(insight::get_predicted(fit, data = new, include_random = FALSE)),
               unname(predict(fit, new, type = "response", re.form = NA)))
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

test_that("sjPlot: tables and plots of posterior means with credible limits", {
  skip_on_cran()
  skip_if_not_installed("sjPlot")
  skip_if_not_installed("parameters")
  fit <- other_fits()$binary
  table <- parameters::model_parameters(fit, ci_method = "wald", ci = 0.9, effects = "fixed")
  expect_equal(table$Coefficient, unname(coef(fit)), tolerance = 0.05)
  expect_equal(as.matrix(table[c("CI_low", "CI_high")]), confint(fit, level = 0.9), tolerance = 0.1, ignore_attr = TRUE)
  plot <- suppressWarnings(sjPlot::plot_model(fit))
  expect_s3_class(plot, "ggplot")
  expect_setequal(as.character(plot$data$term), names(coef(fit))[-1L])
  page <- suppressWarnings(sjPlot::tab_model(fit, other_fits()$groups))$page.content
  expect_match(page, "Odds Ratios", fixed = TRUE)
})

test_that("effects and multcomp: estimates are those of predict() and coef()", {
  skip_on_cran()
  skip_if_not_installed("effects")
  groups <- other_fits()$groups
  at <- as.data.frame(effects::Effect("spray", groups))
  expected <- predict(groups, data.frame(spray = LETTERS[1:6]), re.form = NA, se.fit = TRUE)
  expect_equal(log(at$fit), unname(expected$fit), tolerance = 1e-6)
  expect_equal(effects::Effect("spray", groups)$se, unname(expected$se.fit), tolerance = 0.02)
  expect_length(effects::allEffects(other_fits()$sigma), 2L)
  curved <- elvi(mpg ~ wt, mtcars, family = Gamma("log"))
  curved$family$family <- "Beta"
  expect_error(effects::Effect("wt", curved), class = "elvi_error_argument")
  skip_if_not_installed("multcomp")
  tests <- multcomp::glht(groups)
  expect_equal(coef(tests), fixef(groups))
  expect_equal(vcov(tests), vcov(groups)[names(fixef(groups)), names(fixef(groups))])
})

test_that("performance: check_model() is about the same formula by lm(), glm() or lme4", {
  skip_on_cran()
  skip_if_not_installed("performance")
  for (name in c("sigma", "binary", "groups")) {
    expect_s3_class(suppressMessages(suppressWarnings(performance::check_model(other_fits()[[name]]))), "check_model")
  }
})
