calibrated_fits <- function() {
  if (is.null(formula_store$calibrated)) {
    d <- withr_seed(21, data.frame(x = rnorm(30), g = gl(6, 5)))
    d$y <- withr_seed(22, 1 + d$x + rnorm(30))
    d$b <- withr_seed(23, rbinom(30, 1, plogis(d$x / 2)))
    d$k <- withr_seed(24, rpois(30, exp(1 + d$x / 2)))
    formula_store$calibrated <- list(
      data = d, gaussian = elvi(y ~ x, d), logistic = elvi(b ~ x, d, binomial()), poisson = elvi(k ~ x, d, poisson()))
  }
  formula_store$calibrated
}

# ---- bands ------------------------------------------------------------------------------------

test_that("the probability of a band is that of uniform samples", {
  n <- 40
  z <- band_points(n)
  inside <- function(gamma, u) {
    band <- band_counts(n, z, gamma)
    apply(u, 1L, function(u) {
      counts <- findInterval(z, sort(u))
      all(counts >= band$low & counts <= band$high)
    })
  }
  u <- withr_seed(1, matrix(runif(n * 4000), 4000))
  for (gamma in c(0.003, 0.02, 0.1)) {
    p <- band_probability(n, z, gamma)
    expect_lt(abs(mean(inside(gamma, u)) - p), 4 * sqrt(p * (1 - p) / 4000))
  }
  gamma <- band_gamma(n, z, 0.95)
  expect_gte(band_probability(n, z, gamma), 0.95)
  expect_lt(band_probability(n, z, 1.05 * gamma), 0.96)
})

test_that("p-values of uniform samples are no smaller than uniform, and leave the band where p does", {
  u <- withr_seed(2, matrix(runif(50 * 500), 50))
  p <- apply(u, 2L, uniformity_p)
  for (level in c(0.05, 0.2, 0.5)) expect_lt(mean(p <= level), level + 3 * sqrt(level * (1 - level) / 500))
  expect_gt(mean(p <= 0.5), 0.3)
  z <- band_points(50)
  band <- band_counts(50, z, band_gamma(50, z, 0.8))
  out <- apply(u, 2L, function(u) any(findInterval(z, sort(u)) < band$low | findInterval(z, sort(u)) > band$high))
  expect_lte(sum(out != (p <= 0.2)), 2)   # samples on the edge
  expect_lt(uniformity_p(rep(0.5, 40)), 1e-6)
  expect_lt(uniformity_p(rep(c(0.001, 0.999), 30)), 1e-6)
})

# ---- refits -----------------------------------------------------------------------------------

# of the observed rows alone
refit_observed <- function(fit) {
  design <- calibration_plan(fit, "posterior", NULL, c(1, 2))$design
  design$simulated <- integer()
  refit_posterior(fit, design, numeric(), alone = FALSE)
}

test_that("without simulated rows a refit is the fit", {
  skip_on_cran()
  d <- calibrated_fits()$data
  d$n <- rep(1:3, 10)
  d$w <- rep(c(0, 0.5, 2), 10)
  d$f <- rep(0:2, 10)
  fits <- list(nasty(), calibrated_fits()$gaussian, calibrated_fits()$logistic,
               elvi(y ~ poly(x, 2), d, weights = w, frequency = f),
               elvi(cbind(pmin(k, n), n - pmin(k, n)) ~ x, d, binomial(link = "probit"), frequency = f),
               elvi(pmin(k, n) / n ~ x, d, binomial(), weights = n), elvi(y ~ x, d, dispersion = 2),
               elvi(k ~ 0 + x, d, poisson(), weights = f, offset = log(n)), elvi(k ~ x, d, neg_binomial_2()))
  if (requireNamespace("reformulas", quietly = TRUE)) fits <- c(fits, list(suppressWarnings(elvi(k ~ x + (x | g), d, poisson()))))
  if (requireNamespace("mgcv", quietly = TRUE)) fits <- c(fits, list(elvi(y ~ s(x), d)))
  if (requireNamespace("survival", quietly = TRUE)) {
    d$time <- survival::Surv(exp(d$y), d$b)
    fits <- c(fits, list(elvi(time ~ x, d, weibull()), elvi(time ~ x, d, "exponential")))
  }
  for (fit in fits) {
    found <- suppressWarnings(refit_observed(fit))
    expect_equal(found$location, fit$posterior$location, tolerance = 1e-5, info = deparse1(fit$formula))
    expect_equal(component_moments(found)$sd, component_moments(fit$posterior)$sd, tolerance = 1e-4)
    expect_equal(found$weight, fit$posterior$weight, tolerance = 1e-3)
    expect_identical(found$shown, fit$posterior$shown)
  }
})

test_that("simulated rows count as observed ones do", {
  fit <- calibrated_fits()$poisson
  design <- calibration_plan(fit, "posterior", NULL, c(1, 2))$design
  twice <- refit_posterior(fit, design, design$y, alone = FALSE)
  d <- rbind(calibrated_fits()$data, calibrated_fits()$data)
  prior <- fit$priors$joint
  own <- elvi(k ~ x, d, poisson(), prior = normal(prior$location[2], prior$scale[2]),
              prior_intercept = normal(prior$location[1], prior$scale[1]))
  expect_equal(twice$location, own$posterior$location, tolerance = 1e-6)
  alone <- refit_posterior(fit, design, design$y, alone = TRUE)
  expect_equal(alone$location, fit$posterior$location, tolerance = 1e-6)
  thrice <- elvi(k ~ x, calibrated_fits()$data, poisson(), frequency = rep(3, 30))
  expect_identical(calibration_plan(thrice, "posterior", NULL, c(1, 2))$design$simulated, rep(1:30, each = 3))
})

test_that("PIT values are probabilities of the marginals", {
  for (fit in calibrated_fits()[c("gaussian", "logistic")]) {
    at <- calibration_plan(fit, "posterior", NULL, c(1, 2))$looked_at
    drawn <- posterior_draws(fit$posterior, 3, c(5, 6))
    drawn <- list(x = drawn$x[3, , drop = FALSE], hyper = drawn$hyper[3, , drop = FALSE])
    pit <- pit_values(fit$posterior, at, drawn)
    expect_equal(pit[["x"]], q_probability(fit, "x", drawn$x[, "x"]), tolerance = 1e-6)
    if (!is.null(drawn$hyper)) expect_equal(pit[["sigma"]], q_probability(fit, "sigma", drawn$hyper[, "sigma"]), tolerance = 1e-3)
    row <- sub("mu\\[(.*)\\]", "\\1", at$names[length(at$names)])
    eta <- drawn$x[, 1] + drawn$x[, 2] * fit$frame[row, "x"]
    level <- abs(2 * pit[[length(pit)]] - 1)
    limits <- predict(fit, fit$frame[row, ], interval = "credible", level = level)
    expect_equal(min(abs(limits[1, c("lwr", "upr")] - eta)), 0, tolerance = 1e-3)
  }
})

test_that("PIT values of posteriors with importance weights are those of the weighted points", {
  skip_on_cran()
  banana <- model_density(function(x) x[1]^2 / 8 + (x[2] - 0.3 * x[1]^2)^2 / 2,
                          function(x) c(x[1] / 4 - 0.6 * x[1] * (x[2] - 0.3 * x[1]^2), x[2] - 0.3 * x[1]^2),
                          dim = 2, names = c("a", "b"), vectorized = FALSE)
  posterior <- withr_seed(1, suppressMessages(suppressWarnings(elvi(banana, tol = 0.1))))$posterior
  expect_true(is_corrected(posterior))
  expect_equal(parameter_probability(posterior, 1:2, posterior_quantiles(posterior, 1:2, 0.3)[, 1]), c(0.3, 0.3), tolerance = 0.01)
})

# ---- draws from the prior ---------------------------------------------------------------------

test_that("draws from the prior have its distribution", {
  skip_on_cran()
  skip_if_not_installed("reformulas")
  fit <- elvi(y ~ x + (x | g), calibrated_fits()$data, prior_cor = lkj(3), prior_aux = normal(1, 2))
  drawn <- withr_seed(4, lapply(seq_len(if (long_tests()) 1500 else 500), function(i) prior_draw(fit)))
  x <- do.call(rbind, lapply(drawn, `[[`, "x"))
  hyper <- do.call(rbind, lapply(drawn, `[[`, "hyper"))
  uniform <- function(p) expect_gt(uniformity_p(p), 1e-3)
  joint <- fit$priors$joint
  uniform(pnorm(x[, "x"], joint$location[2], joint$scale[2]))
  centred <- x[, 1] - fit$posterior$shift$by[1, 2] * x[, 2]
  uniform(pnorm(centred, joint$location[1], joint$scale[1]))
  uniform(pbeta((hyper[, "cor(g:x,(Intercept))"] + 1) / 2, 3, 3))
  rate <- fit$priors$sd[[1]]$rate
  uniform(pexp(hyper[, "sd(g:(Intercept))"], rate[1]))
  uniform(pexp(hyper[, "sd(g:x)"], rate[length(rate)]))
  uniform((pnorm(hyper[, "sigma"], 1, 2) - pnorm(0, 1, 2)) / pnorm(0, 1, 2, lower.tail = FALSE))
  one <- x[, "b[(Intercept) g:2]"] / hyper[, "sd(g:(Intercept))"]
  two <- x[, "b[x g:2]"] / hyper[, "sd(g:x)"]
  r <- hyper[, "cor(g:x,(Intercept))"]
  uniform(pnorm(one))
  uniform(pnorm((two - r * one) / sqrt(1 - r^2)))
})

test_that("correlation matrices have the LKJ distribution", {
  R <- withr_seed(5, replicate(1000, tcrossprod(draw_lkj_root(4, 1.5))))
  expect_equal(unique(round(apply(R, 3, diag), 12)[1:4]), 1)
  for (at in list(c(2, 1), c(4, 2), c(4, 3))) expect_gt(uniformity_p(pbeta((R[at[1], at[2], ] + 1) / 2, 2.5, 2.5)), 1e-3)
})

test_that("keys of replications are uniform, and those of a shorter run", {
  plan <- list(key = key_of_seed(1))
  first <- vapply(1:200, function(i) unlist(replication_keys(plan, i))[c(1, 3, 5)], numeric(3)) / 2^32
  expect_gt(min(apply(first, 1L, uniformity_p)), 0.01)
  expect_lt(max(abs(cor(t(first))[lower.tri(diag(3))])), 0.2)
  # and not smooth in the number of the replication
  expect_lt(abs(cor(first[1, -1], first[1, -200])), 0.2)
})

# ---- answers ----------------------------------------------------------------------------------

test_that("right posteriors pass, from the posterior and from the prior", {
  skip_on_cran()
  for (from in c("posterior", "prior")) {
    # both families from both in long runs
    families <- if (long_tests()) c("gaussian", "logistic") else c(posterior = "gaussian", prior = "logistic")[[from]]
    for (fit in calibrated_fits()[families]) {
      found <- calibrate(fit, n = 60, from = from, seed = 1)
      expect_false(any(found$test$outside), info = from)
      expect_identical(nrow(found$failures), 0L)
      all <- found$coverage[found$coverage$parameter == "(all)", ]
      expect_true(all(abs(all$coverage - all$level) < 4 * all$mc_error), info = from)
    }
  }
})

test_that("a logistic regression with groups passes", {
  skip_on_cran()
  skip_if_not_installed("reformulas")
  d <- calibrated_fits()$data
  fit <- elvi(b ~ x + (1 | g), d, binomial())
  found <- calibrate(fit, n = if (long_tests()) 40 else 12, seed = 2)
  expect_false(any(found$test$outside))
  expect_true(all(c("x", "sd(g:(Intercept))", "b[(Intercept) g:1]") %in% names(found$pit)))
})

test_that("posteriors that are too narrow, too wide or biased are found", {
  fit <- calibrated_fits()$poisson
  own <- refit_posterior
  wrong <- function(change) {
    function(...) {
      posterior <- uncorrected(own(...))
      change(posterior)
    }
  }
  narrow <- wrong(function(p) { p$roots[[1]] <- p$roots[[1]] / 2; p })
  wide <- wrong(function(p) { p$roots[[1]] <- p$roots[[1]] * 2; p })
  moved <- wrong(function(p) { p$location <- p$location + root_sd(p$roots[[1]]); p })
  found <- with_swapped("refit_posterior", narrow, calibrate(fit, n = 60, seed = 1))
  expect_true(found$test$outside[found$test$parameter == "x"])
  expect_lt(with(found$coverage, coverage[parameter == "(all)" & level == 0.9]), 0.8)
  expect_output(print(found), "Problem: .* parameters leave the simultaneous 95 % band")
  for (change in list(wide, moved)) {
    found <- with_swapped("refit_posterior", change, calibrate(fit, n = 60, seed = 1, pars = "x"))
    expect_true(found$test$outside)
  }
})

test_that("the same seed gives the same answer, on any number of cores, and leaves R's generator alone", {
  fit <- calibrated_fits()$gaussian
  set.seed(9)
  before <- random_state()
  a <- calibrate(fit, n = 10, seed = 3)
  expect_identical(random_state(), before)
  b <- calibrate(fit, n = 12, seed = 3)
  expect_identical(a$pit, b$pit[1:10, ])
  expect_false(identical(a$pit, calibrate(fit, n = 10, seed = 4)$pit))
  set.seed(9)
  expect_identical(calibrate(fit, n = 10)$pit, {
    set.seed(9)
    calibrate(fit, n = 10)$pit
  })
  skip_on_cran()
  skip_if_not_installed("parallel")
  skip_on_os("windows")
  expect_equal(calibrate(fit, n = 12, seed = 3, cores = 2)$pit, b$pit)
})

test_that("failures and warnings are counted, and named in print()", {
  fit <- calibrated_fits()$poisson
  own <- pit_of_one
  failing <- function(plan, number) {
    if (number %in% c(2, 5)) stop("no optimum in ", number)
    if (number == 7) warning("nearly none")
    own(plan, number)
  }
  found <- with_swapped("pit_of_one", failing, calibrate(fit, n = 14, seed = 1))
  expect_identical(found$failures$replication, c(2, 5))
  expect_identical(found$warnings$message, "nearly none")
  expect_identical(nrow(found$pit), 12L)
  expect_output(print(found), "2 of 14 refits failed and are left out; the first: no optimum in 2")
  expect_output(print(found), "1 of 14 refits gave a warning; the first: nearly none")
  expect_error(with_swapped("pit_of_one", function(...) stop("never"), calibrate(fit, n = 10)), "Only 0 of 10 .* never",
               class = "elvi_error_calibration")
})

test_that("an interrupt gives the replications so far", {
  fit <- calibrated_fits()$poisson
  own <- pit_of_one
  stopped <- function(plan, number) {
    if (number == 13) stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
    own(plan, number)
  }
  found <- with_swapped("pit_of_one", stopped, calibrate(fit, n = 50, seed = 1))
  expect_true(found$interrupted)
  expect_identical(found$pit, calibrate(fit, n = 12, seed = 1)$pit)
  expect_output(print(found), "Interrupted: 12 of 50 replications were made")
})

test_that("what cannot be calibrated is refused", {
  fits <- calibrated_fits()
  d <- fits$data
  expect_error(calibrate(lm(y ~ x, d)), "`fit` must be made by elvi\\(\\)", class = "elvi_error_argument")
  expect_error(calibrate(fits$gaussian, n = 5), "`n`", class = "elvi_error_argument")
  expect_error(calibrate(fits$gaussian, from = "data"), "`from`", class = "elvi_error_argument")
  expect_error(calibrate(fits$gaussian, pars = "z"), "`pars`", class = "elvi_error_argument")
  expect_error(calibrate(fits$gaussian, cores = 0), "`cores`", class = "elvi_error_argument")
  flat <- suppressWarnings(elvi(y ~ x, d, prior = flat()))
  expect_error(calibrate(flat, from = "prior"), "that of `x` is flat", class = "elvi_error_argument")
  flat <- suppressWarnings(elvi(y ~ x, d, prior = flat(), prior_intercept = flat(), prior_aux = flat()))
  expect_error(calibrate(flat, from = "prior"), "`\\(Intercept\\)`, `x`, `sigma` are flat", class = "elvi_error_argument")
  part <- elvi(k ~ x, d, poisson(), weights = rep(c(0.5, 1), 15))
  expect_error(calibrate(part), "fractional", class = "elvi_error_argument")
})

test_that("parameters can be chosen, and pictures made", {
  found <- calibrate(calibrated_fits()$gaussian, n = 10, seed = 1, pars = c("x", "sigma"))
  expect_named(found$pit, c("replication", "x", "sigma"))
  expect_output(print(found), "Calibration of y ~ x \\(gaussian\\): 10 replications from the posterior")
  skip_if_not_installed("ggplot2")
  picture <- ggplot2::autoplot(found)
  expect_s3_class(picture, "ggplot")
  expect_identical(levels(picture$data$parameter), c("x", "sigma"))
  expect_true(all(picture$data$low <= 0 & picture$data$high >= 0))
  file <- tempfile(fileext = ".pdf")
  grDevices::pdf(file)
  on.exit({
    grDevices::dev.off()
    unlink(file)
  })
  expect_invisible(plot(found))
})
