# times in whole and half units, so that some are at cut points; entries above 0 in half of them
piece_data <- function(n = 60) withr_seed(5, {
  d <- data.frame(x = rnorm(n), g = factor(rep_len(1:6, n)), w = rep_len(1:2, n))
  t <- rexp(n, 0.3 * exp(0.6 * d$x + rnorm(6, 0, 0.3)[d$g]))
  d$start <- rep_len(c(0, 0.7), n)
  d$time <- d$start + pmax(round(2 * pmin(t, 7)) / 2, 0.25)
  d$status <- as.double(t < 7)
  d
})
piece_cuts <- c(1, 2.5, 4)

# by a loop over rows and intervals
expanded_by_hand <- function(d, entry = 0 * d$time, cuts = piece_cuts) {
  ends <- c(0, cuts, Inf)
  out <- NULL
  for (i in seq_len(nrow(d))) for (j in seq_len(length(cuts) + 1L)) {
    from <- max(entry[i], ends[j])
    to <- min(d$time[i], ends[j + 1L])
    if (to > from) out <- rbind(out, cbind(d[i, ], id = i, j = j, length = to - from, event = d$status[i] * (d$time[i] <= ends[j + 1L])))
  }
  out
}

test_that("the loss of a piece is minus the log of its density or of its probability", {
  for (y in c(0.7, -2)) {
    expect_row_loss("piecewise_exponential", numeric(), y, function(eta) (y > 0) * eta - abs(y) * exp(eta), c(-1, 0.5))
  }
})

test_that("a fit is the poisson regression of its pieces, with a factor or a smooth of time and groups", {
  skip_if_not_installed("survival")
  d <- piece_data()
  fixed <- function(...) elvi(..., prior = normal(0, 2), prior_intercept = normal(0, 5), prior_sd = exponential(1))   # nothing is scaled
  long <- expanded_by_hand(d, d$start)
  flat <- normal(0, 3)
  fit <- elvi(survival::Surv(start, time, status) ~ x, d, family = piecewise_exponential(piece_cuts), weights = w, prior = flat,
              prior_intercept = flat)
  peer <- elvi(event ~ factor(j) + x, long, family = poisson(), offset = log(length), weights = w, prior = flat, prior_intercept = flat)
  expect_equal(unname(coef(fit)), unname(coef(peer)), tolerance = 1e-6)
  expect_equal(unname(vcov(fit)), unname(vcov(peer)), tolerance = 1e-5)
  expect_identical(nobs(fit), 60L)
  expect_output(print(fit), "60 observations")
  skip_without_parser()
  skip_if_not_installed("mgcv")
  long$time <- c(0.5, 1.75, 3.25, (4 + max(d$time)) / 2)[long$j]
  smooth <- fixed(survival::Surv(start, time, status) ~ s(time, k = 4) + x + (1 | g), d, family = piecewise_exponential(piece_cuts))
  peer <- fixed(event ~ s(time, k = 4) + x + (1 | g) + offset(log(length)), long, family = poisson())
  expect_equal(coef(smooth), coef(peer), tolerance = 1e-4)
  new <- data.frame(x = 0, g = c("1", "7"), time = c(1, 2))
  hazard <- predict(smooth, new, type = "response", allow_new_levels = TRUE)
  # the middle of the interval of time 1 is 0.5, that of time 2 is 1.75
  expect_equal(hazard, predict(peer, cbind(transform(new, time = c(0.5, 1.75)), length = 1), type = "response", allow_new_levels = TRUE),
               tolerance = 1e-4)
})

test_that("a delayed entry is what is left of a time that was split", {
  skip_if_not_installed("survival")
  d <- transform(piece_data(), start = 0)
  late <- d[d$time > 1.2, ]
  parts <- rbind(transform(d, status = ifelse(time > 1.2, 0, status), time = pmin(time, 1.2)), transform(late, start = 1.2))
  whole <- elvi(survival::Surv(time, status) ~ x, d, family = piecewise_exponential(piece_cuts), autoscale = FALSE)
  split <- elvi(survival::Surv(start, time, status) ~ x, parts, family = piecewise_exponential(piece_cuts), autoscale = FALSE)
  expect_equal(coef(split), coef(whole), tolerance = 0.01)   # the prior of the intercept is at the means of other rows
  expect_identical(nobs(split), nrow(parts))
})

test_that("hazards, survival, times and log likelihoods are by observation", {
  skip_if_not_installed("survival")
  d <- piece_data()
  rownames(d) <- paste0("r", 1:60)
  set.seed(1)
  fit <- elvi(survival::Surv(start, time, status) ~ x, d, family = piecewise_exponential(piece_cuts))
  drawn <- as.matrix(fit, draws = 5)
  long <- expanded_by_hand(d, d$start)
  eta <- drawn[, 1] + cbind(0, drawn[, 2:4])[, long$j] + outer(drawn[, 5], long$x)
  log_density <- t(rowsum(t(rep(long$event, each = 5) * eta - rep(long$length, each = 5) * exp(eta)), long$id))
  expect_equal(unname(log_lik(fit, draws = 5)), unname(log_density))
  expect_identical(colnames(log_lik(fit, draws = 2)), rownames(d))
  expect_equal(log_lik(fit, d[7:9, ], draws = 5), log_lik(fit, draws = 5)[, 7:9])
  cumulated <- t(rowsum(t(rep(long$length, each = 5) * exp(eta)), long$id))
  expect_equal(unname(posterior_survival(fit, draws = 5)), unname(exp(-cumulated)))
  expect_equal(unname(posterior_epred(fit, draws = 5)), unname(exp(eta[, !duplicated(long$id, fromLast = TRUE)])))
  # residuals sum to events less expected ones, whose posterior mean is known
  many <- predict(fit, type = "cumhaz", se.fit = TRUE)
  expect_lt(max(abs(d$status - residuals(fit) - many$fit) / many$se.fit), 0.1)
  skip_if_not_installed("generics")
  expect_identical(nrow(generics::augment(fit)), 60L)
  # the share of new times that are later is the survival
  new <- data.frame(x = c(-1, 1), start = c(0, 0.5), time = c(2, 3))
  times <- posterior_predict(fit, new, draws = 4000)
  later <- colMeans(times > rep(new$time, each = 4000))
  expect_lt(max(abs(later - predict(fit, new, type = "survival"))), 4 * sqrt(0.25 / 4000))
  expect_true(all(times[, 2] > 0.5))
  expect_identical(posterior_predict(fit, new, draws = 3), posterior_predict(fit, new, draws = 3))
})

test_that("cross-validation leaves out observations with all of their pieces", {
  skip_if_not_installed("survival")
  skip_if_not_installed("loo")
  d <- piece_data(40)
  set.seed(1)
  fit <- elvi(survival::Surv(time, status) ~ x, d, family = piecewise_exponential(2))
  out <- suppressWarnings(loo::loo(fit, draws = 500))   # of high Pareto k
  expect_identical(nrow(out$pointwise), 40L)
  left <- held_out_log_lik(fit, 3, 500, fit_key(fit))
  other <- elvi(survival::Surv(time, status) ~ x, d[-3, ], family = piecewise_exponential(2))
  expect_equal(log_mean_exp(left), log_mean_exp(log_lik(other, d[3, ], draws = 500)), tolerance = 0.05, ignore_attr = TRUE)
  expect_error(bayes_R2(fit), "censored")
  expect_error(calibrate(fit, n = 10), "simulated", class = "elvi_error_argument")
})

test_that("emmeans averages over intervals", {
  skip_if_not_installed("survival")
  skip_if_not_installed("emmeans")
  d <- transform(piece_data(), o = 0)
  fit <- elvi(survival::Surv(time, status) ~ x + offset(o), d, family = piecewise_exponential(2))
  at <- as.data.frame(emmeans::emmeans(fit, ~ x, at = list(x = 1)))
  b <- coef(fit)
  expect_equal(at$emmean, unname(b[1] + b[2] / 2 + b[3]), tolerance = 0.05)
})

test_that("subset, missing values and default cut points", {
  skip_if_not_installed("survival")
  d <- piece_data()
  d$x[c(2, 50)] <- NA
  d$time[5] <- NA
  fit <- elvi(survival::Surv(time, status) ~ x, d, family = piecewise_exponential(), subset = g != "1")
  kept <- d[d$g != "1" & complete.cases(d), ]
  expect_identical(nobs(fit), nrow(kept))
  expect_identical(fit$pieces$data$x, kept$x)
  expect_identical(fit$pieces$exit, kept$time)
  events <- kept$time[kept$status == 1]
  expect_true(all(fit$pieces$cuts %in% events) && length(fit$pieces$cuts) <= 9)
  again <- update(fit, subset = NULL, data = kept)
  expect_equal(coef(again), coef(fit), tolerance = 1e-6)
})

test_that("what cannot be a response, a cut or a baseline is refused with advice", {
  skip_if_not_installed("survival")
  d <- piece_data()
  cuts <- piece_cuts
  at <- function(formula, data = d, family = piecewise_exponential(cuts)) elvi(formula, data, family = family)
  S <- survival::Surv
  expect_error(piecewise_exponential(c(2, 1)), "increasing", class = "elvi_error_argument")
  expect_error(piecewise_exponential(0), "positive", class = "elvi_error_argument")
  expect_error(at(time ~ x), "Surv\\(time, status\\)", class = "elvi_error_argument")
  expect_error(at(S(time, status) ~ x), "Surv\\(time, status\\)", class = "elvi_error_argument")
  expect_error(at(survival::Surv(start, time, type = "interval2") ~ x), "weibull\\(\\) and lognormal\\(\\)", class = "elvi_error_argument")
  expect_error(at(survival::Surv(time - 100, status) ~ x), "after its entry", class = "elvi_error_argument")
  expect_error(at(survival::Surv(time, status) ~ x, transform(d, status = 0)), "all censored", class = "elvi_error_argument")
  expect_error(at(survival::Surv(time, status) ~ x, family = piecewise_exponential(100)), "below the last time",
               class = "elvi_error_argument")
  expect_error(at(survival::Surv(time / 2, status) ~ s(time)), "Compute it first", class = "elvi_error_argument")
  expect_error(at(survival::Surv(time, status) ~ interval, transform(d, interval = x)), "Rename", class = "elvi_error_argument")
  expect_error(elvi(survival::Surv(time, status) ~ x, family = piecewise_exponential()), "data frame", class = "elvi_error_argument")
  fit <- at(survival::Surv(time, status) ~ x)
  expect_error(predict(fit, data.frame(x = 0), type = "survival"), "the time of each row: `time`", class = "elvi_error_argument")
  expect_error(posterior_survival(elvi(x ~ 1, d)), "piecewise_exponential", class = "elvi_error_argument")
})
