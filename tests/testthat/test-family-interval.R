# seen, in an interval, earlier and later than a time, in turns
interval_data <- function(n = 60) withr_seed(3, {
  d <- data.frame(x = rnorm(n), g = factor(rep_len(1:6, n)))
  t <- rweibull(n, 1.5, exp(1 + 0.5 * d$x + rnorm(6, 0, 0.3)[d$g]))
  kind <- rep_len(1:4, n)
  d$from <- ifelse(kind == 1, t, ifelse(kind == 2, 0.7 * t, ifelse(kind == 3, NA, 0.8 * t)))
  d$to <- ifelse(kind == 1, t, ifelse(kind == 2, 1.4 * t, ifelse(kind == 3, 1.2 * t, NA)))
  d
})

interval_ends_of <- function(d) cbind(ifelse(is.na(d$from), 0, d$from), ifelse(is.na(d$to), Inf, d$to))

test_that("the loss of an interval is minus the log of its probability, or of a density", {
  table <- c(3, 3, 1.5, 4, 0, 2, 2.5, Inf)
  # of the laws' functions in R, by logarithms of tails
  log_of <- function(y, density, cdf) {
    ends <- table[2 * y - 1:0]
    if (ends[1L] == ends[2L]) return(density(ends[1L], log = TRUE))
    if (ends[1L] == 0) return(cdf(ends[2L], log.p = TRUE))
    later <- cdf(ends, lower.tail = FALSE, log.p = TRUE)
    later[1L] + log(-expm1(later[2L] - later[1L]))
  }
  for (y in c(1, 2, 3, 4)) for (shape in c(0.7, 2)) {
    expect_row_loss("interval_weibull", c(shape, table), y, Vectorize(function(eta) {
      scale <- exp(eta) / gamma(1 + 1 / shape)
      log_of(y, function(t, ...) dweibull(t, shape, scale, ...), function(t, ...) pweibull(t, shape, scale, ...))
    }), 0.8, spreads = c(0, 0.3))
    expect_row_loss("interval_lognormal", c(shape, table), y, Vectorize(function(eta) {
      at <- eta - shape^2 / 2
      log_of(y, function(t, ...) dlnorm(t, at, shape, ...), function(t, ...) plnorm(t, at, shape, ...))
    }), 0.8, spreads = c(0, 0.3))
  }
})

test_that("the evidence of the shape and of sigma has its slope", {
  skip_if_not_installed("survival")
  skip_without_parser()
  for (family in list(weibull(), lognormal())) {
    expect_evidence_slope(elvi_problem(survival::Surv(from, to, type = "interval2") ~ x + (1 | g), interval_data(), family = family,
                                       weights = rep_len(1:2, 60)))
  }
})

test_that("fits are near those of survreg(), and log_lik() is that of the intervals", {
  skip_if_not_installed("survival")
  d <- interval_data(200)
  fit <- elvi(survival::Surv(from, to, type = "interval2") ~ x, d, family = weibull())
  peer <- survival::survreg(survival::Surv(from, to, type = "interval2") ~ x, d, dist = "weibull")
  expect_lt(abs(coef(fit)[["x"]] - coef(peer)[["x"]]), 0.2 * sqrt(vcov(peer)["x", "x"]))
  expect_equal(sqrt(vcov(fit)["x", "x"]), sqrt(vcov(peer)["x", "x"]), tolerance = 0.1)
  drawn <- as.matrix(fit, draws = 4)
  ends <- interval_ends_of(d)
  by_hand <- t(vapply(1:4, function(i) {
    scale <- exp(drawn[i, 1] + drawn[i, 2] * d$x) / gamma(1 + 1 / drawn[i, "shape"])
    p <- pweibull(ends[, 2], drawn[i, "shape"], scale) - pweibull(ends[, 1], drawn[i, "shape"], scale)
    ifelse(ends[, 1] == ends[, 2], dweibull(ends[, 1], drawn[i, "shape"], scale, log = TRUE), log(p))
  }, d$x))
  expect_equal(unname(log_lik(fit, draws = 4)), unname(by_hand))
  expect_equal(dim(posterior_predict(fit, draws = 3)), c(3L, 200L))
  expect_equal(dim(posterior_epred(fit, d[1:5, ], draws = 3)), c(3L, 5L))
  expect_true(all(predict(fit, d[1:5, ], type = "response") > 0))
})

test_that("without left and interval censoring it is what weibull() and lognormal() are", {
  skip_if_not_installed("survival")
  d <- interval_data()
  d$time <- ifelse(is.na(d$from), d$to, d$from)
  d$seen <- rep_len(c(1, 1, 0), 60)
  d$end <- ifelse(d$seen == 1, d$time, NA)
  for (family in list(weibull(), lognormal())) {
    plain <- elvi(survival::Surv(time, seen) ~ x, d, family = family)
    intervals <- elvi(survival::Surv(time, end, type = "interval2") ~ x, d, family = family)
    expect_equal(summary(intervals)$table, summary(plain)$table, tolerance = 1e-3)
    expect_equal(elbo(intervals)$estimate, elbo(plain)$estimate, tolerance = 1e-4)
  }
})

test_that("what intervals cannot do is refused with what to do", {
  skip_if_not_installed("survival")
  d <- interval_data()
  refusal(elvi(survival::Surv(from, to, type = "interval2") ~ x, d, family = "exponential"), "survival::Surv(from, to, type = \"interval2\")")
  refusal(elvi(survival::Surv(rep(0, 60), abs(x) + 1, rep(1, 60)) ~ g, d, family = weibull()), "survival::Surv(rep(0, 60), abs(x) + 1, rep(1, 60))")
  refusal(elvi(survival::Surv(-abs(x), x, type = "interval2") ~ g, d, family = weibull()), "survival::Surv(-abs(x), x, type = \"interval2\")")
  fit <- elvi(survival::Surv(from, to, type = "interval2") ~ x, d, family = lognormal())
  expect_error(residuals(fit), "log_lik")
  expect_error(calibrate(fit, 10), "calibrate\\(\\)")
  refusal(log_lik(fit, newdata = transform(d, to = to + 1)), "newdata")
})

test_that("times without a single event are refused, and so are times for other families", {
  skip_if_not_installed("survival")
  d <- transform(interval_data(), t = abs(x) + 1, none = 0, never = NA_real_)
  for (family in list(weibull(), lognormal())) {
    expect_error(elvi(survival::Surv(t, none) ~ g, d, family = family), "some are events, not all censored", class = "elvi_error_argument")
    expect_error(elvi(survival::Surv(t, never, type = "interval2") ~ g, d, family = family), "not all censored",
                 class = "elvi_error_argument")
  }
  expect_error(elvi(survival::Surv(t, t + 1, none) ~ g, d, family = weibull()), "piecewise_exponential", class = "elvi_error_argument")
  for (family in list(gaussian(), Gamma("log"), poisson())) {
    expect_error(elvi(survival::Surv(t, none) ~ g, d, family = family), "`family` must be weibull\\(\\)", class = "elvi_error_argument")
  }
})
