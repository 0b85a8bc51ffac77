test_that("a nasty fit reports what glm() reports", {
  data <- nasty_data()
  rows <- nasty_rows(data)
  fit <- nasty_fit(na.exclude, prior = flat(), prior_intercept = flat())
  twin <- glm(nasty_formula(), poisson(), data, weights = w, subset = keep, offset = 0.1 * e, na.action = na.exclude)
  expect_identical(names(coef(fit)), names(coef(twin)))
  # the posterior mean is not the mode: within a fraction of a standard error
  expect_lt(max(abs(coef(fit) - coef(twin)) / sqrt(diag(vcov(twin)))), 0.15)
  expect_equal(sqrt(diag(vcov(fit))), sqrt(diag(vcov(twin))), tolerance = 0.05)
  expect_identical(dimnames(vcov(fit)), dimnames(vcov(twin)))
  expect_identical(nobs(fit), nobs(twin))
  expect_identical(nobs(fit), length(rows))
  expect_equal(formula(fit), formula(twin), ignore_formula_env = TRUE)
  expect_identical(attr(terms(fit), "term.labels"), attr(terms(twin), "term.labels"))
  expect_identical(rownames(model.frame(fit)), rownames(data)[rows])
  expect_equal(model.frame(fit), model.frame(twin), ignore_attr = TRUE)
  expect_equal(model.matrix(fit), model.matrix(twin))
  expect_identical(family(fit)$family, "poisson")
  expect_identical(family(fit)$link, "log")
  expect_identical(names(fitted(fit)), names(fitted(twin)))
  expect_identical(is.na(fitted(fit)), is.na(fitted(twin)))
  expect_lt(max(abs(fitted(fit) / fitted(twin) - 1), na.rm = TRUE), 0.05)
  expect_identical(is.na(residuals(fit)), is.na(residuals(twin)))
  expect_equal(residuals(fit) + fitted(fit), fitted(twin) + residuals(twin, "response"))
})

test_that("na.omit and na.exclude differ in the missing rows only", {
  exclude <- nasty("exclude")
  omit <- nasty("omit")
  expect_equal(coef(exclude), coef(omit))
  expect_equal(fitted(exclude)[!is.na(fitted(exclude))], fitted(omit))
  expect_identical(length(fitted(exclude)) - length(fitted(omit)), 3L)
  expect_equal(residuals(exclude)[!is.na(residuals(exclude))], residuals(omit))
  expect_error(nasty_fit(na.fail), "missing values")
})

test_that("confint, posterior_interval, tidy, vcov and the marginals say the same", {
  skip_on_cran()
  for (which in c("exclude", "stochastic")) {
    fit <- as_gaussian(nasty(which))
    sd <- sqrt(diag(vcov(fit)))
    limits <- unname(cbind(coef(fit) + qnorm(0.025) * sd, coef(fit) + qnorm(0.975) * sd))
    expect_equal(unname(confint(fit, names(coef(fit)))), limits)
    expect_identical(dimnames(confint(fit)), list(rownames(summary(fit)$table), c("2.5 %", "97.5 %")))
    expect_equal(unname(posterior_interval(fit, prob = 0.95)), unname(confint(fit)))
    expect_equal(unname(posterior_interval(fit)), unname(confint(fit, level = 0.9)))
    x <- "`gr\u00f6\u00dfe x`"
    expect_equal(confint(fit, x), confint(fit)[x, , drop = FALSE])
    expect_equal(confint(fit, 4), confint(fit, x))
    expect_equal(q_quantile(fit, x, c(0.025, 0.975)), unname(confint(fit, x)[1, ]))
    set.seed(1)
    drawn <- apply(as.matrix(fit, draws = 4e4), 2, quantile, c(0.025, 0.975))
    expect_lt(max(abs(t(drawn) - confint(fit)) / summary(fit)$table[, "sd"]), 0.06)
  }
  skip_if_not(l10n_info()[["UTF-8"]])
  expect_refusal(confint(nasty(), "nothing"), "parm")
  expect_refusal(confint(nasty(), 99), "parm")
  expect_refusal(confint(nasty(), level = 1), "level")
  expect_refusal(posterior_interval(nasty(), prob = 0), "prob")
  expect_refusal(posterior_interval(nasty(), probs = 0.5), "probs")
})

test_that("tidy, glance and augment are tables of the same numbers", {
  skip_on_cran()
  skip_if_not_installed("generics")
  for (which in c("exclude", if (long_tests()) c("omit", "binomial"), "stochastic")) {
    fit <- nasty(which)
    table <- generics::tidy(fit, conf.int = TRUE, conf.level = 0.8)
    expect_identical(names(table), c("effect", "group", "term", "estimate", "std.error", "conf.low", "conf.high"))
    expect_identical(table$term, c(names(coef(fit)), if (which == "stochastic") "phi"))
    expect_equal(cbind(table$estimate, table$std.error), unname(summary(fit)$table[, 1:2]))
    expect_equal(table$estimate[seq_along(coef(fit))], unname(coef(fit)))
    expect_equal(table$std.error[seq_along(coef(fit))], unname(sqrt(diag(vcov(fit)))))
    expect_equal(cbind(table$conf.low, table$conf.high), unname(confint(fit, level = 0.8)))
    expect_identical(ncol(generics::tidy(fit)), 5L)

    one <- generics::glance(fit)
    expect_identical(nrow(one), 1L)
    expect_equal(one$nobs, nobs(fit))
    expect_identical(one$method, if (which == "stochastic") "mpsgd" else "exact")
    if (which != "stochastic") expect_equal(one$elbo, elbo(fit)$estimate)
    expect_true(one$converged)
    expect_gt(one$evaluations, 0)

    # the rows of the frame, whatever na.action says
    long <- generics::augment(fit)
    at <- predict(fit, type = "response", se.fit = TRUE)
    seen <- !is.na(at$fit)
    expect_equal(nrow(long), nobs(fit))
    expect_equal(long$.fitted, unname(at$fit[seen]))
    expect_equal(long$.se.fit, unname(at$se.fit[seen]))
    expect_equal(long$.resid, unname(residuals(fit)[seen]))
    data <- nasty_data()
    new <- generics::augment(fit, newdata = data[1:4, ])
    expect_equal(new$.fitted, unname(predict(fit, data[1:4, ], type = "response")))
    expect_false(".resid" %in% names(new))
  }
  data <- nasty_data()
  wide <- generics::augment(nasty("exclude"), data = data[data$keep, ])
  expect_equal(wide$.fitted, unname(fitted(nasty("exclude"))))
  expect_error(generics::augment(nasty("omit"), data = data), class = "elvi_error_argument")
})

test_that("update changes formula and arguments, from the call as it was", {
  nasty <- nasty_data()
  fit <- elvi(y ~ g + offset(log(e)), data = nasty, family = poisson(), weights = w, offset = 0.1 * e)
  wider <- update(fit, as.formula(". ~ . + `gr\u00f6\u00dfe x`"))
  direct <- elvi(as.formula("y ~ g + `gr\u00f6\u00dfe x` + offset(log(e))"), data = nasty, family = poisson(), weights = w,
                 offset = 0.1 * e)
  expect_equal(coef(wider), coef(direct))
  expect_equal(coef(update(fit, prior = flat())),
               coef(elvi(y ~ g + offset(log(e)), data = nasty, family = poisson(), weights = w, offset = 0.1 * e,
                         prior = flat())))
  expect_equal(coef(update(wider, as.formula(". ~ . - `gr\u00f6\u00dfe x`"), data = nasty[-7, ])),
               coef(update(fit, data = nasty[-7, ])))
  expect_equal(coef(update(fit, weights = NULL)),
               coef(elvi(y ~ g + offset(log(e)), data = nasty, family = poisson(), offset = 0.1 * e)))
  call <- update(fit, . ~ g, evaluate = FALSE)
  expect_true(is.call(call))
  expect_identical(call[[1]], quote(elvi))
  # a formula in quotes, and a fit that was continued
  text <- elvi("y ~ g", data = nasty, family = poisson())
  expect_equal(coef(text), coef(elvi(y ~ g, data = nasty, family = poisson())))
  expect_equal(coef(update(text, . ~ . + t)), coef(elvi(y ~ g + t, data = nasty, family = poisson())))
  set.seed(1)
  short <- elvi(y ~ t, data = nasty, offset = e, budget = 500)
  longer <- elvi(short, budget = 1000)
  expect_s3_class(longer, "elvi_glm")
  expect_gt(longer$state$evals, short$state$evals)
  expect_identical(longer$call, short$call)
  row <- predict(longer, nasty[1, ])
  expect_equal(unname(row), sum(coef(longer)[1:2] * c(1, nasty$t[1])) + nasty$e[1])
})

test_that("fits print and summarise on one screen", {
  skip_if_not(l10n_info()[["UTF-8"]])
  expect_snapshot({
    print(nasty("exclude"))
    print(prior_summary(nasty("exclude")))
    print(prior_summary(nasty("stochastic")))
  }, transform = function(lines) {
    lines <- sub("at most [-+.e0-9]+ nats", "at most TINY nats", lines)   # rounding, below the tolerance
    lines <- sub("means [.0-9]+ sd, sds [.0-9]+ %", "means A sd, sds B %", lines)   # of draws
    lines <- sub("k-hat: [.0-9]+ \\(.*\\), [0-9,]+ of", "k-hat: K (verdict), N of", lines)   # near a threshold, and rounding decides
    sub("after [0-9]+ evaluations", "after N evaluations", lines)
  })
  out <- capture.output(print(summary(nasty("exclude"))))
  expect_lt(length(out), 50)
  for (name in names(coef(nasty()))) expect_true(any(grepl(name, out, fixed = TRUE)), info = name)
  out <- capture.output(print(summary(nasty("stochastic"))))
  expect_true(any(grepl("Converged: estimated gap", out)))
  expect_true(any(grepl("^phi ", out)))
})

test_that("prior_summary has the numbers of the documented autoscaling", {
  d <- withr_seed(2, data.frame(y = rnorm(40, 7, 3), a = rnorm(40, 50, 20), b = rbinom(40, 1, 0.3), p = rpois(40, 2)))
  joint <- function(...) suppressWarnings(prior_summary(elvi(...)))$priors
  # gaussian: scale * sd(y) / sd(x); intercept moved to mean(y)
  p <- joint(y ~ a + b, data = d, dispersion = 9)
  expect_equal(p$joint$scale, 2.5 * sd(d$y) / c(1, sd(d$a), sd(d$b)))
  expect_equal(p$joint$location, c(mean(d$y), 0, 0))
  expect_null(p$aux)
  # others: scale / sd(x)
  p <- joint(p ~ a + b, data = d, family = poisson())
  expect_equal(p$joint$scale, 2.5 / c(1, sd(d$a), sd(d$b)))
  expect_equal(p$joint$location, numeric(3))
  # given priors are taken as they are, unless asked
  p <- joint(p ~ a + b, data = d, family = poisson(), prior = normal(1, c(3, 4)), prior_intercept = normal(2, 5))
  expect_equal(p$joint$scale, c(5, 3, 4))
  expect_equal(p$joint$location, c(2, 1, 1))
  p <- joint(p ~ a + b, data = d, family = poisson(), prior = normal(1, c(3, 4)), autoscale = TRUE)
  expect_equal(p$joint$scale, c(2.5, 3, 4) / c(1, sd(d$a), sd(d$b)))
  p <- joint(y ~ a + b, data = d, dispersion = 9, autoscale = FALSE)
  expect_equal(p$joint$scale, rep(2.5, 3))
  # the residual scale
  set.seed(1)
  expect_equal(joint(y ~ a, data = d)$aux$rate, 1 / sd(d$y))
  expect_equal(joint(y ~ a, data = d, prior_aux = exponential(2))$aux$rate, 2)
  expect_equal(joint(y ~ a, data = d, family = robust(), autoscale = TRUE, prior_aux = exponential(2))$aux$rate,
               2 / sd(d$y))
  expect_equal(joint(p ~ a, data = d, family = neg_binomial_2())$aux$rate, 1)
  # no intercept, no prior for one
  p <- joint(p ~ a - 1, data = d, family = poisson())
  expect_equal(p$joint$scale, 2.5 / sd(d$a))
  expect_null(p$prior_intercept)
})

test_that("loo agrees with exact leave-one-out on a small data set", {
  skip_on_cran()
  skip_if_not_installed("loo")
  d <- withr_seed(3, data.frame(x = runif(60, -1, 1)))
  d$y <- withr_seed(4, rpois(60, exp(1 + 0.5 * d$x)))
  fit <- elvi(y ~ x, data = d, family = poisson(), prior = normal(0, 2), prior_intercept = normal(0, 3),
              offset = 0 * x)
  set.seed(1)
  approximate <- suppressWarnings(loo::loo(fit, draws = 4000))
  expect_identical(dim(approximate), c(4000L, 60L))
  # by quadrature on the centred coefficients
  grid <- expand.grid(a = seq(0.5, 1.5, length.out = 101), b = seq(-0.4, 1.4, length.out = 101))
  log_prior <- dnorm(grid$a, 0, 3, log = TRUE) + dnorm(grid$b, 0, 2, log = TRUE)
  centred <- d$x - mean(d$x)
  ll <- vapply(1:60, function(i) dpois(d$y[i], exp(grid$a + grid$b * centred[i]), log = TRUE), numeric(nrow(grid)))
  exact <- vapply(1:60, function(i) {
    w <- log_prior + rowSums(ll[, -i])
    w <- exp(w - max(w))
    log(sum(w * exp(ll[, i])) / sum(w))
  }, 0)
  expect_lt(max(abs(approximate$pointwise[, "elpd_loo"] - exact)), 0.05)
  expect_equal(approximate$estimates["elpd_loo", "Estimate"], sum(exact), tolerance = 0.005)
  for (which in c("exclude", "binomial", "stochastic")) {
    set.seed(2)
    out <- suppressWarnings(loo::loo(nasty(which), draws = 500))
    expect_s3_class(out, "psis_loo_ap")
    expect_true(all(is.finite(out$pointwise)))
    expect_identical(nrow(out$pointwise), nobs(nasty(which)))
  }
})

test_that("pp_check draws the data against their replications", {
  skip_on_cran()
  skip_if_not_installed("bayesplot")
  data <- nasty_data()
  y <- data$y[nasty_rows(data)]
  for (which in c("exclude", "binomial", "stochastic")) {
    set.seed(1)
    plot <- bayesplot::pp_check(nasty(which), draws = 7)
    expect_s3_class(plot, "ggplot")
    seen <- plot$data
    expect_equal(seen$value[seen$is_y], y, info = which)
    expect_identical(sum(!seen$is_y), 7L * length(y))
  }
  expect_s3_class(bayesplot::pp_check(nasty(), type = "stat", stat = "mean"), "ggplot")
  expect_error(bayesplot::pp_check(nasty(), type = "nothing"), class = "elvi_error_argument")
})

test_that("binned errors are those of expected responses: proportions for binomial fits", {
  skip_on_cran()
  skip_if_not_installed("bayesplot")
  skip_if_not_installed("rstantools")   # bayesplot asks it for the type of errors
  skip_without_parser()
  for (fit in list(nasty("binomial"), nested_example("trials"), nasty("exclude"))) {
    drawn <- bayesplot::pp_check(fit, type = "error_binned", draws = 3)$data
    mu <- posterior_epred(fit, draws = 3)
    expect_true(all(drawn$ey_bar >= min(mu) & drawn$ey_bar <= max(mu)))
    if (fit$family$family == "binomial") expect_lte(max(abs(drawn$err_bar)), 1)
    # bins of one draw have the mean of its expected responses
    expect_equal(mean(drawn$ey_bar), mean(mu), tolerance = 0.1)
  }
  expect_identical(bayesplot::pp_check(nasty("binomial"), type = "error_binned", draws = 3, seed = 2)$data,
                   bayesplot::pp_check(nasty("binomial"), type = "error_binned", draws = 3, seed = 2)$data)
})

test_that("a saved fit works in another process", {
  skip_on_cran()
  folder <- tempfile("saved")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  saveRDS(list(glm = nasty("exclude"), counts = nasty("binomial"), aux = nasty("stochastic"), data = nasty_data()),
          file.path(folder, "fit.rds"))
  script <- file.path(folder, "use.R")
  writeLines(c(
    sprintf(".libPaths(c(%s))", toString(encodeString(.libPaths(), quote = "\""))),
    sprintf("library(elvi, lib.loc = %s)", encodeString(dirname(find.package("elvi")), quote = "\"")),
    sprintf("setwd(%s)", encodeString(folder, quote = "\"")),
    "all <- readRDS(\"fit.rds\"); data <- all$data; all$data <- NULL",
    "out <- lapply(all, function(fit) {",
    "  printed <- capture.output(print(fit), print(summary(fit)), print(prior_summary(fit)))",
    "  new <- data[1:3, ]",
    "  set.seed(1)",
    "  list(printed = length(printed), coef = coef(fit), confint = confint(fit), fitted = fitted(fit),",
    "       predict = predict(fit, new, type = \"response\", se.fit = TRUE),",
    "       simulate = simulate(fit, 3, seed = 1), predicted = posterior_predict(fit, draws = 5),",
    "       epred = posterior_epred(fit, new, draws = 5), log_lik = log_lik(fit, draws = 5),",
    "       k = pareto_k(fit, draws = 200)$k, resampled = as.matrix(fit, draws = 5, resample = TRUE),",
    "       objective = objective(fit)$estimate, quantile = q_quantile(fit, 1, 0.1),",
    "       loo = if (requireNamespace(\"loo\", quietly = TRUE)) suppressWarnings(loo::loo(fit, draws = 200))$estimates)",
    "})",
    "saveRDS(out, \"out.rds\")"), script, useBytes = TRUE)
  status <- system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", shQuote(script)),
                    stdout = file.path(folder, "log"), stderr = file.path(folder, "log"),
                    env = "LC_ALL=C.UTF-8")
  expect_identical(status, 0L, info = paste(readLines(file.path(folder, "log")), collapse = "\n"))
  out <- readRDS(file.path(folder, "out.rds"))
  fits <- list(glm = nasty("exclude"), counts = nasty("binomial"), aux = nasty("stochastic"))
  new <- nasty_data()[1:3, ]
  for (name in names(fits)) {
    fit <- fits[[name]]
    there <- out[[name]]
    set.seed(1)
    here <- list(coef = coef(fit), confint = confint(fit), fitted = fitted(fit),
                 predict = predict(fit, new, type = "response", se.fit = TRUE),
                 simulate = simulate(fit, 3, seed = 1), predicted = posterior_predict(fit, draws = 5),
                 epred = posterior_epred(fit, new, draws = 5), log_lik = log_lik(fit, draws = 5))
    expect_equal(there[names(here)], here, info = name)
    expect_gt(there$printed, 30)
    expect_identical(dim(there$resampled), c(5L, length(fit$mu)))
    expect_true(all(is.finite(c(there$k, there$objective, there$quantile, there$loo))))
  }
})

test_that("what other packages pass to any model is ignored, what a person misspells is not", {
  fit <- nasty("exclude")
  expect_identical(nobs(fit, use.fallback = TRUE), nobs(fit))
  expect_identical(formula(fit, env = globalenv()), formula(fit))
  expect_identical(predict(fit, na.action = na.pass), predict(fit))
  expect_identical(model.frame(fit, data = NULL), model.frame(fit))
  expect_identical(terms(fit, data = NULL), terms(fit))
  refusal(predict(fit, typ = "link", tpye = "link"), "tpye")
  skip_if_not_installed("generics")
  plain <- generics::tidy(fit, conf.int = TRUE)
  expect_identical(generics::tidy(fit, conf.int = TRUE, effects = "fixed", parametric = TRUE), plain)
  scaled <- generics::tidy(fit, conf.int = TRUE, exponentiate = TRUE)
  for (column in c("estimate", "conf.low", "conf.high")) expect_equal(scaled[[column]], exp(plain[[column]]))
  expect_identical(scaled$std.error, plain$std.error)
  refusal(generics::tidy(fit, conf.itn = TRUE), "conf.itn")
  link <- generics::augment(fit, type.predict = "link", se_fit = TRUE)
  expect_equal(exp(link$.fitted) > 0, rep(TRUE, nrow(link)))
  rows <- fit
  rows$na.action <- NULL
  expect_equal(link$.fitted, unname(predict(rows)))
  expect_identical(generics::glance(fit, vcov = NULL)$nobs, nobs(fit))
})

test_that("update() works inside functions, and where elvi is not attached", {
  within <- function(d) {
    shape <- mpg ~ wt
    w <- rep(1:2, 16)
    fit <- elvi(shape, data = d, dispersion = 6, weights = w)
    update(update(fit, . ~ . + hp), data = d[-1, ], weights = w[-1])
  }
  expect_identical(names(coef(within(mtcars))), c("(Intercept)", "wt", "hp"))
  local <- function(fun) {
    elvi <- function(...) stop("not this one")
    update(fun(mpg ~ wt, data = mtcars, dispersion = 6), . ~ . + hp)
  }
  expect_identical(nobs(local(elvi::elvi)), 32L)
})

test_that("update() works in functions as glm()'s does", {
  grown <- function(fitter) {
    rows <- mtcars[1:20, ]
    noise <- gaussian()
    fit <- fitter(mpg ~ wt, data = rows, family = noise)
    update(fit, . ~ . + hp)
  }
  expect_equal(coef(grown(elvi)), coef(grown(glm)), tolerance = 0.01)
  handed <- function(fit, rows) update(fit, data = rows)
  expect_equal(coef(handed(elvi(mpg ~ wt, data = mtcars), mtcars[1:20, ])), coef(elvi(mpg ~ wt, data = mtcars[1:20, ])))
  expect_equal(coef(handed(glm(mpg ~ wt, data = mtcars), mtcars[1:20, ])), coef(glm(mpg ~ wt, data = mtcars[1:20, ])))
  everywhere <- lapply(c(10, 20), function(n) {
    some <- mtcars[seq_len(n), ]
    update(elvi(mpg ~ wt, data = some), . ~ 1)
  })
  expect_equal(vapply(everywhere, coef, 0), c(mean(mtcars$mpg[1:10]), mean(mtcars$mpg[1:20])), tolerance = 0.02, ignore_attr = TRUE)
})

test_that("step() and AIC() say why there is none", {
  fit <- elvi(mpg ~ wt + hp, data = mtcars)
  expect_error(step(fit, trace = 0), "compare.*loo")
  expect_error(AIC(fit), "compare.*loo")
  expect_error(BIC(fit), "compare.*loo")
})

test_that("diagnostics of least squares are answered by what to use here", {
  fit <- elvi(mpg ~ wt, mtcars)
  for (verb in list(hatvalues, cooks.distance, influence, rstandard, rstudent)) {
    expect_error(verb(fit), "pareto_k_influence_values", class = "elvi_error_argument")
  }
})
