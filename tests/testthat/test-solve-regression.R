test_that("means and sds are those of the mixture of dense conditional optima", {
  skip_on_cran()
  for (which in c("binary", "slopes", "counts", "smooth")) {
    fit <- nested_example(which)
    problem <- fit$problem
    nested <- solved_again(fit)
    hyper <- nested$hyper
    at <- component_moments(uncorrected(fit$posterior))
    used <- order(hyper$weight, decreasing = TRUE)[1:2]
    p <- ncol(problem$X)
    for (k in used) {
      dense <- reference_conditional(problem, hyper$theta[k, ])
      map <- diag(length(dense$mu))
      map[1L, seq_len(p)[-1L]] <- -problem$shift[-1L]
      optimum <- original_order(nested$setup$plan, nested$nodes[[k]]$setting$mu)
      expect_equal(optimum, dense$mu, tolerance = 1e-5)
      expect_lt(max(abs(at$mean[, k] - drop(map %*% dense$mu)) / at$sd[, k]), 0.1)   # what draws correct
      V <- map %*% dense$cov %*% t(map)
      expect_equal(at$sd[, k], sqrt(diag(V)), tolerance = 1e-4)
      alone <- uncorrected(fit$posterior)
      alone$weight <- as.double(seq_along(alone$weight) == k)
      expect_equal(unname(posterior_covariance(alone, seq_len(p))), V[seq_len(p), seq_len(p)], tolerance = 1e-4)
    }
    # the ratio of two nodes before correction: the density of theta
    densities <- vapply(used, function(k) reference_conditional(problem, hyper$theta[k, ])$log_p, 0)
    values <- vapply(used, function(k) nested$nodes[[k]]$objective, 0)
    expect_true(all(is.finite(values)))
    expect_equal(diff(densities), diff(node_values(nested)[used]), tolerance = 1e-4)
  }
})

test_that("summary of the stored NUTS results is met on cbpp", {
  skip_on_cran()
  skip_without_parser()
  skip_if_not_installed("lme4")
  nuts <- read.csv(system.file("extdata", "groups-nuts.csv.xz", package = "elvi"))
  nuts <- nuts[nuts$set == "cbpp", ]
  fit <- elvi(cbind(incidence, size - incidence) ~ period + (1 | herd), lme4::cbpp, family = binomial())
  shared <- nuts[nuts$parameter %in% names(fit$mu), ]
  expect_identical(nrow(shared), 20L)
  off <- abs(fit$mu[shared$parameter] - shared$mean) / shared$sd
  expect_lt(max(off), 0.1)
  ratio <- fit$sd[shared$parameter] / shared$sd
  main <- !grepl("^b\\[", shared$parameter)
  expect_lt(max(abs(ratio[main] - 1)), 0.05)
  expect_lt(max(abs(ratio - 1)), 0.1)
})

test_that("priors of sds are checked and scaled", {
  skip_without_parser()
  d <- group_data()
  refused <- function(...) expect_snapshot_error(elvi(y ~ x + (x | g), d, ...), class = "elvi_error_argument")
  refused(prior_sd = flat())
  refused(prior_sd = normal(1, 1))
  refused(prior_sd = normal(0, c(1, 2)))
  refused(prior_sd = list(h = exponential(1)))
  refused(prior_sd = 1)
  refused(prior_cor = 1)
  refused(prior = student_t(3, 0, 1))
  refused(method = "exact")
  refused(budget = 100)
  refused(control = elvi_control(scale = "diagonal"))
  expect_snapshot_error(elvi(y ~ x, d, prior_sd = exponential(1)), class = "elvi_error_argument")
  expect_snapshot_error(elvi(y ~ x, d, prior_cor = lkj(2)), class = "elvi_error_argument")
  expect_snapshot_error(elvi(b ~ x, d, family = binomial(), method = "nested"), class = "elvi_error_argument")
  expect_snapshot_error(lkj(0), class = "elvi_error_argument")

  expect_equal(nested_example("slopes")$priors$sd[[1L]]$rate, c(1, sd(d$x)) / sd(d$y))
  expect_equal(nested_example("binary")$priors$sd[[1L]]$rate, 1)
  given <- elvi(y ~ x + (1 | g), d, prior_sd = list(g = cauchy(0, 2)))
  expect_identical(given$priors$sd[[1L]]$scale, 2)
  rescaled <- elvi(y ~ x + (1 | g), d, prior_sd = cauchy(0, 2), autoscale = TRUE)
  expect_equal(rescaled$priors$sd[[1L]]$scale, 2 * sd(d$y))
})

test_that("a tight prior of sds and correlations is obeyed", {
  skip_on_cran()
  skip_without_parser()
  d <- group_data()
  tight <- elvi(y ~ x + (1 | g), d, prior_sd = normal(0, 0.01))
  expect_lt(tight$mu[["sd(g:(Intercept))"]], 0.02)
  expect_equal(unname(fixef(tight)), unname(coef(lm(y ~ x, d))), tolerance = 0.02)
  apart <- suppressWarnings(elvi(y ~ x + (x | g), d, prior_cor = lkj(1000)))
  expect_lt(abs(apart$mu[["cor(g:x,(Intercept))"]]), 0.02)
  never <- nested_example("apart")
  expect_equal(fixef(apart), fixef(never), tolerance = 0.02)
})

test_that("plain gaussian fits are those of the conjugate posterior, sigma included", {
  fit <- nested_example("plain")
  d <- group_data()
  sigma <- seq(0.3, 2, length.out = 4001)
  X <- cbind(1, d$x - mean(d$x))
  prior <- fit$problem$prior
  log_p <- vapply(sigma, function(s) {
    # y ~ N(X m, s^2 I + X P^-1 X'), by the determinant and inverse of a 2 x 2 matrix
    A <- diag(prior$precision) + crossprod(X) / s^2
    b <- prior$precision * prior$centre + crossprod(X, d$y) / s^2
    -nrow(d) * log(s) - determinant(A)$modulus / 2 - sum(d$y^2) / (2 * s^2) + sum(b * solve(A, b)) / 2 -
      fit$priors$aux$rate * s
  }, 0)
  w <- exp(log_p - max(log_p))
  w <- w / sum(w)
  expect_equal(sigma(fit), sum(w * sigma), tolerance = 1e-4)
  expect_equal(fit$sd[["sigma"]], sqrt(sum(w * sigma^2) - sum(w * sigma)^2), tolerance = 5e-3)
  expect_equal(unname(fixef(fit)), unname(coef(lm(y ~ x, d))), tolerance = 1e-3)
})

test_that("awkward data are right or refused by name", {
  skip_without_parser()
  d <- group_data()
  d$row <- seq_len(nrow(d))
  expect_snapshot_error(elvi(y ~ x + (1 | row), d), class = "elvi_error_term")
  known <- elvi(y ~ x + (1 | row), d, dispersion = 0.25)
  expect_equal(sigma(known), 0.5)
  # given the residual variance, effects and residuals add up
  expect_equal(known$mu[["sd(row:(Intercept))"]]^2 + 0.25, var(resid(lm(y ~ x, d))), tolerance = 0.1)
  single <- elvi(count ~ x + (1 | row), d, family = poisson())
  expect_true(single$converged)
  # success in whole groups only: the posterior is proper all the same
  d$whole <- as.integer(d$g %in% c("a", "c", "e"))
  separated <- suppressWarnings(elvi(whole ~ 1 + (1 | g), d, family = binomial()))
  expect_true(separated$converged)
  expect_true(all(sign(ranef(separated)$g[c("a", "c", "e"), ]) == 1))
  expect_true(all(sign(ranef(separated)$g[c("b", "d"), ]) == -1))
  d$x[5] <- NA
  d$g[7] <- NA
  omitted <- elvi(y ~ x + (1 | g), d)
  expect_identical(nobs(omitted), nrow(d) - 2L)
  excluded <- elvi(y ~ x + (1 | g), d, na.action = na.exclude)
  expect_identical(which(is.na(fitted(excluded))), c("5" = 5L, "7" = 7L))
  expect_equal(fixef(omitted), fixef(excluded))
})

test_that("tens of thousands of levels are no trouble", {
  skip_on_cran()
  skip_without_parser()
  withr_seed(1, {
    J <- if (long_tests()) 1e5 else 2e4
    g <- rep(seq_len(J), each = 2)
    y <- 0.5 + rnorm(J, 0, 0.5)[g] + rnorm(2 * J)
  })
  fit <- elvi(y ~ 1 + (1 | g), data.frame(y, g))   # gaussian: no draws of 1e5 effects are needed
  expect_lt(abs(fit$mu[["sd(g:(Intercept))"]] - 0.5), 3.75 * sqrt(1.6 / J))   # standard errors
  expect_identical(ngrps(fit), c(g = as.integer(J)))
  expect_identical(dim(ranef(fit)$g), c(as.integer(J), 1L))
})

test_that("weights count rows, offsets shift, subsets drop", {
  skip_on_cran()
  skip_without_parser()
  d <- group_data()
  weighted <- elvi(b ~ x + (1 | g), d, family = binomial(), weights = w)
  repeated <- elvi(b ~ x + (1 | g), d[rep(seq_len(nrow(d)), d$w), ], family = binomial(),
                   prior = weighted$priors$prior, autoscale = TRUE)
  # autoscaling looks at the predictors, which are repeated
  expect_equal(fixef(weighted), fixef(repeated), tolerance = 0.01)
  shifted <- elvi(y ~ x + offset(2 * e) + (1 | g), d, prior = normal(0, 1), prior_intercept = normal(0, 5))
  by_hand <- elvi(I(y - 2 * e) ~ x + (1 | g), d, prior = normal(0, 1), prior_intercept = normal(0, 5),
                  prior_sd = shifted$priors$sd[[1L]], prior_aux = shifted$priors$aux)
  expect_equal(fixef(shifted), fixef(by_hand), tolerance = 1e-5)
  expect_identical(nobs(elvi(y ~ x + (1 | g), d, subset = x > 0)), sum(d$x > 0))
})

test_that("weights of a gaussian are precisions, as without groups", {
  skip_without_parser()
  set.seed(1)
  data <- data.frame(g = gl(6, 5), x = sin(1:30), w = rep(c(1, 4, 100), 10))
  data$y <- data$x + rep(rnorm(6), each = 5) + rnorm(30) / sqrt(data$w)
  at <- function(weights) {
    fit <- elvi(y ~ x + (1 | g), data = data, weights = weights, prior = normal(0, 5), prior_intercept = normal(0, 5),
                prior_aux = flat(), prior_sd = exponential(1))
    fit
  }
  one <- at(data$w)
  hundred <- at(100 * data$w)
  # the responses are as they are, so sigma is ten times as large, and nothing else moves
  expect_equal(coef(summary(one))[, 1], coef(summary(hundred))[, 1], tolerance = 1e-3)
  expect_equal(sigma(hundred), 10 * sigma(one), tolerance = 1e-2)
  # the log likelihood at a draw is that of the normal density with these spreads
  drawn <- as.matrix(one, draws = 3)
  eta <- posterior_linpred(one, draws = 3)
  expect_equal(log_lik(one, draws = 3), dnorm(rep(data$y, each = 3), eta, drawn[, "sigma"] / rep(sqrt(data$w), each = 3),
                                              log = TRUE), ignore_attr = TRUE)
})

test_that("separable data with flat priors are refused, whatever the groups", {
  skip_without_parser()
  set.seed(4)
  data <- data.frame(x = rnorm(60), g = factor(rep(1:6, 10)), time = rexp(60))
  fit <- function(formula, family) {
    suppressWarnings(elvi(formula, data, family, prior = flat(), prior_intercept = flat()))
  }
  data$y <- as.integer(data$x > 0)
  expect_error(fit(y ~ x + (1 | g), binomial()), class = "elvi_error_no_optimum")
  data$y <- 0L
  expect_error(fit(y ~ x + (1 | g), poisson()), class = "elvi_error_no_optimum")
  data$y <- rpois(60, 2)
  expect_true(fit(y ~ x + (1 | g), poisson())$converged)
  skip_if_not_installed("survival")
  data$status <- 0
  expect_error(fit(survival::Surv(time, status) ~ x + (1 | g), weibull()), "not all censored", class = "elvi_error_argument")
})

test_that("a single node is certified", {
  skip_without_parser()
  set.seed(2)
  data <- data.frame(x = rnorm(400), g = factor(sample(20, 400, TRUE)))
  data$y <- rpois(400, exp(0.5 + 0.4 * data$x + rnorm(20, 0, 0.6)[data$g]))
  expect_no_warning(fit <- elvi(y ~ x + (1 | g), data, poisson(), control = elvi_control(nodes = 1)))
  expect_lt(fit$nested$certificates, 1e-6)
})

test_that("few draws are said to be few", {
  skip_on_cran()
  skip_without_parser()
  set.seed(5)
  data <- data.frame(g = factor(rep(1:300, each = 2)))
  data$y <- rpois(600, exp(1.5 * rnorm(300)[data$g]))
  problem <- elvi(y ~ 1 + (1 | g), data, poisson())$problem
  noise <- vapply(c(10, 1000), function(n) nested_fit(problem, control = list(draws = n))$noise, 0)
  expect_gt(noise[1L], 2 * noise[2L])
  nested <- list(change = list(mean = 0, sd = 0), converged = TRUE, noise = 0.2, draws = 10)
  expect_warning(warn_nested(nested), "10 draws", class = "elvi_warning_correction")
})
