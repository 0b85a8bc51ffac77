# Default priors do not depend on the unit of anything: with a variable multiplied by 1000 or 1/1000 a fit is the same up to units.

units_data <- function() {
  withr_seed(11, {
    n <- 90
    d <- data.frame(x = rnorm(n, 4, 2), u = runif(n, 10, 50), z = rnorm(n, 1, 0.3), by = runif(n, 0.5, 2),
                    g = factor(rep(letters[1:6], 15)), f = factor(sample(c("u", "v", "w"), n, TRUE)))
    eta <- 0.4 + 0.15 * (d$x - 4) + 0.3 * sin(d$u / 6) + rnorm(6, 0, 0.3)[d$g] + rnorm(6, 0, 0.1)[d$g] * (d$x - 4)
    d$y <- eta + rnorm(n, 0, 0.4)
    d$binary <- rbinom(n, 1, plogis(eta))
    d$count <- rnbinom(n, size = 4, mu = exp(eta))
    d$positive <- rgamma(n, 9, scale = exp(eta) / 9)
    d$share <- rbeta(n, plogis(eta) * 12, plogis(-eta) * 12)
    d$time <- rweibull(n, 2, exp(eta))
    d$status <- rbinom(n, 1, 0.8)
    d$k <- rbinom(n, 5, plogis(eta))
    d$low <- 0.8 * d$time
    d$high <- 1.4 * d$time
    d$class <- ordered_thirds(d$y)
    d$day <- rep(1:15, 6)
    d
  })
}

ordered_thirds <- function(y) cut(y, quantile(y, 0:3 / 3), labels = c("low", "mid", "high"), include.lowest = TRUE, ordered_result = TRUE)

by_units <- c(1000, 1 / 1000)

# What is reported of a fit that does not have the units of predictors: predictors at the data and their standard errors, and the
# standard deviations of smooths. `response`: by what the response was multiplied.
without_units <- function(fit, identity, response = 1) {
  at <- predict(fit, se.fit = TRUE)
  back <- function(eta) if (identity) eta / response else eta - log(response)
  size <- if (identity) response else 1
  names <- names(fit$mu)
  list(mean = unname(back(at$fit)), sd = unname(at$se.fit / size),
       smooth = unname(fit$mu[grep("^smooth_sd", names)] / size))
}

expect_same_fit <- function(first, second, tolerance, label) {
  off <- max(abs(first$mean - second$mean) / first$sd)
  expect_lt(off, tolerance, label = paste(label, "mean"))
  expect_equal(second$sd, first$sd, tolerance = tolerance, label = paste(label, "sd"))
  expect_equal(second$smooth, first$smooth, tolerance = tolerance, label = paste(label, "smooth sd"))
}

# `vary`: variables that are multiplied, alone or, in a vector, together
expect_unit_free <- function(formula, vary, family = gaussian(), tolerance = 1e-6, ...) {
  d <- units_data()
  fitted <- function(d) withr_seed(2, suppressMessages(suppressWarnings(elvi(formula, d, family = family, ...))))
  identity <- check_family(family)$link == "identity"
  first <- without_units(fitted(d), identity)
  response <- all.vars(formula[[2]])[1]
  for (variables in vary) for (by in by_units) {
    changed <- d
    changed[variables] <- lapply(changed[variables], `*`, by)
    found <- without_units(fitted(changed), identity, if (response %in% variables) by else 1)
    expect_same_fit(first, found, tolerance, paste(deparse1(formula), toString(variables), by))
  }
}

test_that("a fit does not depend on the unit of a predictor or of a response, whatever the family", {
  skip_on_cran()
  cases <- list(
    list(y ~ x + f, gaussian(), "y"), list(y ~ x, gaussian(), "y", dispersion = NULL, method = "mpsgd"),
    list(y ~ x, robust(4), "y"), list(binary ~ x + f, binomial(), NULL), list(binary ~ x, binomial("probit"), NULL),
    list(binary ~ x, binomial("cloglog"), NULL), list(count ~ x, poisson(), NULL), list(count ~ x, neg_binomial_2(), NULL),
    list(count ~ x, neg_binomial_2(), NULL, method = "mpsgd"), list(positive ~ x + f, Gamma("log"), "positive"),
    list(positive ~ 0 + f + x, Gamma("log"), "positive"), list(positive ~ x, Gamma("log"), "positive", dispersion = 0.2),
    list(positive ~ x, Gamma("log"), "positive", method = "mpsgd"), list(positive ~ x, inverse.gaussian("log"), "positive"),
    list(time ~ x, "exponential", "time"), list(time ~ x + offset(log(by)), weibull(), c("time", "by")), list(share ~ x, Beta(), NULL))
  for (case in every(cases, 3)) {
    stochastic <- identical(case$method, "mpsgd") || is.null(family_record(check_family(case[[2]]))$conditional)
    tolerance <- if (stochastic) 1e-4 else 1e-6
    do.call(expect_unit_free, c(list(case[[1]], c(list("x"), as.list(case[[3]])), case[[2]], tolerance), case[-(1:3)]))
  }
})

test_that("families and terms of one predictor or two do not depend on units", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  skip_if_not_installed("survival")
  alone <- elvi_control(nodes = 1)   # the mode of the hyperparameters takes less time
  cases <- list(
    list(y ~ x, "y", student()), list(positive ~ x, "positive", lognormal()), list(positive ~ x, "positive", gaussian("log")),
    list(survival::Surv(time, status) ~ x, "time", lognormal()),
    list(survival::Surv(low, high, type = "interval2") ~ x, list(c("low", "high")), weibull()),
    list(survival::Surv(low, high, type = "interval2") ~ x, list(c("low", "high")), lognormal()),
    list(I(count + 1) ~ x, NULL, truncated_poisson()), list(I(count + 1) ~ x, NULL, truncated_negbinomial(), correct = FALSE),
    list(cbind(k, 5 - k) ~ x, NULL, beta_binomial()), list(binary ~ x, NULL, binomial("cauchit")),
    list(class ~ x, NULL, cumulative()), list(class ~ x, NULL, sratio("probit")), list(class ~ x, NULL, acat()),
    list(factor(class, ordered = FALSE) ~ x, NULL, categorical()),
    list(count ~ x, NULL, zero_inflated_poisson(), ziformula = ~ x), list(count ~ x, NULL, hurdle_negbinomial(), ziformula = ~ x),
    list(y ~ x, "y", gaussian(), dispformula = ~ x), list(positive ~ x, "positive", Gamma("log"), dispformula = ~ x),
    list(share ~ x, NULL, Beta(), dispformula = ~ x), list(count ~ x, NULL, neg_binomial_2(), dispformula = ~ x),
    list(y ~ x + rw2(u), list("y", "u"), gaussian(), control = alone),
    list(positive ~ x + rw1(u), "positive", lognormal(), control = alone),
    list(y ~ x + hsgp(u), list("y", "u"), gaussian(), control = alone), list(count ~ x + hsgp(u), "u", poisson(), control = alone),
    list(positive ~ x + ar1(day), "positive", lognormal(), control = alone),
    list(positive ~ x + s(u), list("positive", "u"), lognormal(), control = alone),
    list(y ~ x, "u", gaussian(), dispformula = ~ s(u), control = alone))
  for (case in every(cases, 2)) {
    do.call(expect_unit_free, c(list(case[[1]], c(list("x"), as.list(case[[2]])), case[[3]], 1e-4), case[-(1:3)]))
  }
})

test_that("censored times do not depend on their unit", {
  skip_on_cran()
  skip_if_not_installed("survival")
  expect_unit_free(survival::Surv(time, status) ~ x, list("time", "x"), weibull())
  expect_unit_free(survival::Surv(time, status) ~ x, list("time", "x"), "exponential")
})

test_that("group-level terms do not depend on units of slopes and responses", {
  skip_on_cran()
  skip_without_parser()
  expect_unit_free(y ~ x + (x || g), list("x", "y"))
  expect_unit_free(count ~ x + (0 + x | g), list("x"), poisson(), 1e-5)
  # the mode of the hyperparameters alone, which takes less time
  at_mode <- function(...) expect_unit_free(..., control = elvi_control(nodes = 1))
  for (formula in every(list(y ~ x + (x | g), y ~ (0 + x | g), y ~ x + (0 + x:f || g), y ~ (f | g)), 2)) at_mode(formula, list("x", "y"))
  at_mode(binary ~ x + (x || g), list("x"), binomial(), 1e-5)
  at_mode(count ~ (x | g), list("x"), neg_binomial_2(), 1e-5)
  at_mode(positive ~ x + (x || g), list("x", "positive"), Gamma("log"), 1e-5)
  at_mode(time ~ x + (1 | g), list("x", "time"), weibull(), 1e-5)
})

test_that("smooths of every basis do not depend on units", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  at_mode <- function(...) expect_unit_free(..., control = elvi_control(nodes = 1))
  for (formula in every(list(y ~ s(u), y ~ s(u, bs = "ts"), y ~ s(u, bs = "cr"), y ~ s(u, bs = "cc"), y ~ s(u, bs = "ps"), y ~ s(u, bs = "cp"),
                       y ~ s(u, bs = "bs"), y ~ s(u, bs = "gp"), y ~ s(u, bs = "ds"), y ~ s(u, bs = "re"), y ~ s(g, u, bs = "re"),
                       y ~ s(u, by = f), y ~ s(u, by = f, bs = "gp"), y ~ s(u, m = 1), y ~ x + s(u, k = 5)), 8)) {
    at_mode(formula, list("u", "y"))
  }
  for (formula in every(list(y ~ s(u, by = by), y ~ s(u, by = by, bs = "gp"), y ~ s(u, by = by, bs = "cr")), 3)) at_mode(formula, list("u", "by", "y"))
  # isotropic ones have one unit for both variables, tensor products one for each
  for (formula in every(list(y ~ s(u, x, k = 12), y ~ s(u, x, bs = "gp", k = 12)), 2)) at_mode(formula, list(c("u", "x"), "y"))
  at_mode(y ~ t2(u, x, k = 4), list("u", "x", "y"))
  for (formula in list(y ~ s(u, f, bs = "fs", k = 6), y ~ s(u, x, f, bs = "fs", k = 9))) at_mode(formula, list(c("u", "x"), "y"))
  expect_unit_free(y ~ s(u, bs = "gp"), list("u", "y"))
  # other signs of basis columns, which mgcv leaves open, are other draws for the correction of the nodes' weights
  expect_unit_free(count ~ s(u), list("u"), poisson(), 5e-3)
  expect_unit_free(positive ~ s(u, bs = "gp"), list("u", "positive"), Gamma("log"), 5e-3)
})

test_that("a smooth's columns have an average variance of 1, and nothing that its free columns say", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  d <- units_data()
  for (call in list(quote(s(u)), quote(s(u, bs = "gp")), quote(s(u, by = by)), quote(s(u, by = f)), quote(t2(u, x, k = 4)), quote(s(g, bs = "re")))) {
    smooth <- set_up_smooths(smooth_specs(list(call), globalenv()), d)[[1L]]
    columns <- smooth_columns(smooth, d)
    own <- if (is.null(smooth$by_level)) rep(TRUE, nrow(d)) else d$f == smooth$by_level
    for (Z in columns$penalised) {
      expect_equal(mean(rowSums(Z[own, ]^2)), 1)
      if (ncol(columns$free)) expect_lt(max(abs(crossprod(scale(columns$free, FALSE, apply(columns$free, 2, sd)), Z))), 1e-9 * nrow(d))
    }
    # new data have the columns of the fit
    expect_equal(smooth_columns(smooth, d[7:3, ])$penalised[[1]], columns$penalised[[1]][7:3, , drop = FALSE], ignore_attr = TRUE)
  }
})

test_that("a Gaussian process of mcycle is that of mgcv by REML", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  skip_if_not_installed("MASS")
  for (formula in list(accel ~ s(times, bs = "gp"), accel ~ s(times), accel ~ s(times, bs = "cr"))) {
    fit <- elvi(formula, MASS::mcycle)
    reference <- mgcv::gam(formula, data = MASS::mcycle, method = "REML")
    expect_lt(sqrt(mean((predict(fit) - fitted(reference))^2)), 0.6)
  }
})

test_that("sleepstudy in other units is the same fit", {
  skip_on_cran()
  skip_without_parser()
  skip_if_not_installed("lme4")
  first <- elvi(Reaction ~ Days + (Days | Subject), lme4::sleepstudy)
  second <- elvi(Reaction ~ Days + (Days | Subject), transform(lme4::sleepstudy, Days = Days / 1000))
  unit <- ifelse(grepl("Days", names(first$mu)) & !grepl("^cor", names(first$mu)), 1000, 1)
  expect_equal(unname(second$mu), unname(first$mu) * unit, tolerance = 1e-6)
  expect_equal(unname(second$sd), unname(first$sd) * unit, tolerance = 1e-6)
})

test_that("a dispersion has the standard errors of glm() and the same answer in other units", {
  skip_on_cran()
  fit <- elvi(mpg ~ wt, mtcars, family = Gamma("log"))
  twin <- summary(glm(mpg ~ wt, Gamma("log"), mtcars))$coefficients
  expect_equal(unname(fit$sd[1:2]), unname(twin[, "Std. Error"]), tolerance = 0.05)
  d <- units_data()
  fitted <- function(y) withr_seed(1, elvi(y ~ d$x, family = inverse.gaussian("log")))
  days <- fitted(365 * d$positive)
  years <- fitted(d$positive)
  expect_equal(coef(days)[[1]] - log(365), coef(years)[[1]], tolerance = 1e-4)
  expect_equal(coef(days)[[2]], coef(years)[[2]], tolerance = 1e-3)
  expect_equal(vcov(days), vcov(years), tolerance = 1e-3)
})

# -log of the prior's density of the logarithm of a dispersion, by the change of variables
minus_log_prior <- function(a, exponent, unit) {
  power <- (exp(a) / unit)^exponent
  power - log(power) - log(abs(exponent))
}

test_that("the default prior of a dispersion is exponential on its scale without units, Jacobian and all", {
  y <- c(2.5, 1.2, 0.7, 3.1, 1.9, 2.2)
  X <- cbind(1, c(1, 3, 2, 5, 4, 6))
  cases <- list(list(Gamma("log"), y, -1 / 2, 1), list(inverse.gaussian("log"), y, -1 / 2, mean(y)), list(neg_binomial_2(), round(y), -1 / 2, 1),
                list(weibull(), y, -1, 1), list(Beta(), y / 10, -1 / 2, 1))
  for (case in cases) {
    target <- function(prior_aux) model_glm(X, case[[2]], case[[1]], dispersion = NULL, prior = normal(0, 2), prior_aux = prior_aux)
    value <- function(model, a) target_at(model, matrix(c(0.1, 0.2, a)))
    at <- c(-1.3, 0.4, 2.1)
    ours <- target(NULL)
    known <- target(exponential(1))
    differ <- vapply(at, function(a) value(ours, a)$value - value(known, a)$value, 0)
    expect_equal(diff(differ), diff(minus_log_prior(at, case[[3]], case[[4]]) - (exp(at) - at)), tolerance = 1e-10)
    x <- c(0.1, 0.2, 0.4)
    expect_equal(drop(value(ours, 0.4)$gradient), fd_gradient(function(v) target_at(ours, matrix(v))$value, x), tolerance = 1e-6)
    # the density in R, as nested fits and plots have it, is normalised
    prior <- ours$prior_aux
    expect_equal(integrate(function(s) positive_density(prior, s), 0, Inf, rel.tol = 1e-8)$value, 1, tolerance = 1e-4)
    expect_equal(log_prior_positive(prior, at)$value, -minus_log_prior(at, case[[3]], case[[4]]), tolerance = 1e-12)
    slope <- vapply(at, function(a) fd_gradient(function(a) log_prior_positive(prior, a)$value, a), 0)
    expect_equal(log_prior_positive(prior, at)$slope, slope, tolerance = 1e-6)
    curve <- vapply(at, function(a) fd_gradient(function(a) -log_prior_positive(prior, a)$slope, a), 0)
    block <- ours$blocks$dispersion
    expect_equal(vapply(at, function(a) block_curvature(block, c(0, 0, a)), 0), curve, tolerance = 1e-6)
  }
})

test_that("a posterior with the default prior of a dispersion is that of a grid, and so is its evidence", {
  skip_on_cran()
  y <- units_data()$positive[1:40]
  fit <- elvi(y ~ 1, family = Gamma("log"), prior_intercept = normal(0, 5))
  grid <- expand.grid(b = seq(0, 1.5, length.out = 101), a = seq(0.5, 4, length.out = 141))
  log_p <- mapply(function(b, a) sum(dgamma(y, exp(a), exp(a - b), log = TRUE)), grid$b, grid$a) + dnorm(grid$b, 0, 5, log = TRUE) -
    minus_log_prior(grid$a, -1 / 2, 1)
  p <- exp(log_p - max(log_p))
  evidence <- max(log_p) + log(sum(p) * 1.5 / 100 * 3.5 / 140)
  p <- p / sum(p)
  mean <- c(sum(p * grid$b), sum(p * exp(grid$a)))
  sd <- sqrt(c(sum(p * (grid$b - mean[1])^2), sum(p * (exp(grid$a) - mean[2])^2)))
  expect_lt(max(abs(fit$mu - mean) / sd), 0.02)
  expect_equal(unname(fit$sd), sd, tolerance = 0.01)
  expect_lt(abs(fit$nested$evidence$corrected - evidence), 0.005)
})

test_that("counts that vary like poisson ones are fitted as such, without a warning", {
  skip_on_cran()
  d <- withr_seed(3, data.frame(x = rnorm(60)))
  d$y <- withr_seed(4, rpois(60, exp(1 + 0.3 * d$x)))
  expect_no_warning(fit <- elvi(y ~ x, d, family = neg_binomial_2()))
  twin <- elvi(y ~ x, d, family = poisson())
  expect_lt(max(abs(coef(fit) - coef(twin)) / fit$sd[1:2]), 0.05)
  expect_equal(unname(fit$sd[1:2]), unname(sqrt(diag(vcov(twin)))), tolerance = 0.05)
})

test_that("priors that are given are literal, and summaries say what was used", {
  skip_without_parser()
  d <- units_data()
  once <- elvi_control(nodes = 1)
  literal <- elvi(y ~ x + (x | g), d, prior_sd = exponential(2), control = once)
  expect_identical(literal$priors$sd[[1]]$rate, 2)
  expect_identical(elvi(y ~ x + (x | g), d, autoscale = FALSE, control = once)$priors$sd[[1]]$rate, 1)
  by_default <- elvi(y ~ x + (x | g), d, control = once)
  expect_equal(by_default$priors$sd[[1]]$rate, c(1, sd(d$x)) / sd(d$y))
  both <- elvi(y ~ x + (x | g), d, prior_sd = cauchy(0, 2), autoscale = TRUE, control = once)
  expect_equal(both$priors$sd[[1]]$scale, 2 * sd(d$y) / c(1, sd(d$x)))
  expect_output(print(prior_summary(by_default)), "sd of \\(Intercept\\) by g: exponential prior, rate .*sd of x by g: exponential prior, rate")
  given <- elvi(positive ~ x, d, family = Gamma("log"), prior_aux = exponential(0.5))
  expect_identical(given$priors$aux, exponential(0.5))
  expect_output(print(prior_summary(given)), "shape: exponential prior, rate 0.5$")
  expect_output(print(prior_summary(elvi(positive ~ x, d, family = Gamma("log")))), "rate 1, of 1 / sqrt(shape)", fixed = TRUE)
  expect_output(print(prior_summary(withr_seed(1, elvi(positive ~ x, d, family = inverse.gaussian("log"))))),
                paste0("rate 1, of sqrt(", format(mean(d$positive), digits = 4), " / lambda)"), fixed = TRUE)
  # the intercept of positive responses is centred at the logarithm of their mean
  expect_equal(given$priors$joint$location[1], log(mean(d$positive)))
  expect_identical(elvi(positive ~ x, d, family = Gamma("log"), autoscale = FALSE)$priors$joint$location[1], 0)
})

test_that("data in chunks have the priors of data in memory", {
  skip_on_cran()
  d <- units_data()
  d$x <- 1000 * d$x
  chunks <- rows_chunked(chunks_of(d, split(1:90, rep(1:3, each = 30))))
  same <- function(formula, ...) {
    ours <- withr_seed(1, suppressMessages(elvi(formula, chunks, ...)))
    memory <- withr_seed(1, suppressMessages(elvi(formula, d, ...)))
    expect_equal(ours$priors$joint, memory$priors$joint)
    expect_equal(ours$priors$aux, memory$priors$aux)
  }
  same(positive ~ x, family = Gamma("log"), dispersion = 0.2)
  same(positive ~ 0 + f + x, family = Gamma("log"), dispersion = 0.2)
  same(time ~ x + offset(log(by)), family = "exponential")
  same(count ~ x, family = neg_binomial_2())
  same(y ~ x + f)
})
