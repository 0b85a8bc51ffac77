# ---- records -------------------------------------------------------------------

test_that("a record that lacks an entry, or has one too many, stops the package from loading", {
  records <- family_records
  expect_identical(check_family_records(records), records)
  for (entry in family_entries) {
    short <- records["poisson"]
    short$poisson <- short$poisson[names(short$poisson) != entry]
    expect_error(check_family_records(short), paste0("`poisson` lacks.*", entry))
  }
  for (entry in dispersion_entries) {
    short <- records["robust"]
    short$robust$dispersion[[entry]] <- NULL
    expect_error(check_family_records(short), paste0("`robust\\$dispersion` lacks.*", entry))
  }
  more <- records["logit"]
  more$logit$misspelt <- 1
  expect_error(check_family_records(more), "misspelt")
})

test_that("every record has a likelihood of its name in C, and is found by its family and link", {
  for (name in names(Filter(Negate(is_joint), family_records))) {
    record <- family_records[[name]]
    family <- if (record$family == "binomial") binomial(record$link) else record$make()
    expect_identical(likelihood_of(family), name)
    expect_identical(check_family(record$family)$family, record$family)
    y <- if (name == "beta") 0.4 else 1
    at <- .Call(elvi_r_expect_rows, list(likelihood = name, error_df = 4), point_rule, 1,
                list(y = y, weight = 1, eta = 0.3, s = 0))
    expect_true(all(is.finite(c(at$sum, at$slope, at$curve))))
    # and says of it in R what C knows
    spread <- .Call(elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), 1,
                    list(y = y, weight = 1, eta = 0.3, s = 0.5))
    expect_identical(status_name(spread$status), "ok")
    if (record$convex) expect_gte(spread$curve, 0)
  }
})

# ---- probit ----------------------------------------------------------------------

# phi(t) / Phi(t) for t < 0 by its continued fraction, whose terms are all positive: no digit is lost
mills_fraction <- function(t, depth) {
  below <- -t
  for (k in depth:2) below <- -t + k / below
  -t + 1 / below
}

test_that("the Mills ratio is good to 1e-15 on all of the line", {
  t <- c(-1.5, -2, -3, -4.99, -5, -5.01, -7.3, -12, -20, -29.999, -30, -30.001, -37, -38, -49.9, -50.1, -100,
         -899.3, -900, -1e3, -1001, -1e5, -1e8, -1e150)
  off <- vapply(t, function(t) mills(t) / mills_fraction(t, if (t > -5) 20000L else 500L) - 1, 0)
  expect_lt(max(abs(off)), 1e-15)
  # with 50 digits, by mpmath
  known <- c("-0.1" = 0.86261747153093614, "-0.5" = 1.14107777036806448, "-1" = 1.52513527616098121,
             "0" = 0.797884560802865356, "0.5" = 0.509160433837033486, "1" = 0.287599970939178361,
             "3" = 0.00443783904212566379, "5" = 1.48671994090490571e-06, "10" = 7.69459862670641935e-23,
             "25" = 7.65392973641939266e-137)
  expect_lt(max(abs(mills(as.double(names(known))) / known - 1)), 1e-15)
  expect_identical(mills(c(40, Inf)), c(0, 0))
})

test_that("the probit loss has its derivatives far out too", {
  for (t in c(-900, -100, -31, -29, -5, -1, 0, 2, 8)) {
    at <- .Call(elvi_r_expect_rows, list(likelihood = "probit", error_df = Inf), point_rule, 1,
                list(y = 1, weight = 1, eta = t, s = 0))
    expect_equal(at$sum, -pnorm(t, log.p = TRUE), tolerance = 1e-14, label = t)
    expect_equal(at$slope, -mills(t), tolerance = 1e-15, label = t)
    h <- 1e-3 * max(1, abs(t))
    second <- (mills(t - h) - mills(t + h)) / (2 * h)
    expect_equal(at$curve, second, tolerance = 2e-5, label = t)
  }
})

# ---- expectations for a dispersion that is given --------------------------------------

reference_losses <- list(
  normal = function(eta, y, sigma, df) log(sigma) + (y - eta)^2 / (2 * sigma^2),
  robust = function(eta, y, sigma, df) -dt((y - eta) / sigma, df, log = TRUE) + dt(0, df, log = TRUE) + log(sigma),
  # minus the log density, up to gamma functions of (y, phi)
  neg_binomial_2 = function(eta, y, phi, df) {
    -dnbinom(y, size = phi, mu = exp(eta), log = TRUE) + lgamma(phi + y) - lgamma(phi) - lgamma(y + 1)
  },
  # up to what has no eta in it
  gamma = function(eta, y, shape, df) shape * (eta + y * exp(-eta)),
  inverse_gaussian = function(eta, y, lambda, df) lambda * (y * exp(-2 * eta) / 2 - exp(-eta)),
  # up to log(shape / y) of events
  weibull = function(eta, y, shape, df) {
    y <- rep_len(ifelse(y == 0, -2, y), length(eta))   # a censored one too
    scale <- exp(eta) / gamma(1 + 1 / shape)
    ifelse(y > 0, -dweibull(abs(y), shape, scale, log = TRUE) + log(shape / abs(y)),
           -pweibull(abs(y), shape, scale, lower.tail = FALSE, log.p = TRUE))
  },
  # of y / 11, up to -phi log(1 - y)
  beta = function(eta, y, phi, df) {
    y <- (y + 0.5) / 11
    -dbeta(y, plogis(eta) * phi, plogis(-eta) * phi, log = TRUE) - log(y) - log1p(-y) + phi * log1p(-y)
  })

# responses that a family can have, in place of 0, 1, 3 and 10
responses_of <- function(name, y) {
  switch(name, weibull = ifelse(y == 0, -2, y), beta = (y + 0.5) / 11, y)
}

test_that("expectations of rows are those of the loss, and slope and curve their derivatives", {
  y <- c(0, 1, 3, 10)
  eta <- c(-1, 0.3, 2, 1)
  s <- c(0.01, 0.4, 1.5, 5)
  w <- c(1, 0, 2, 0.5)
  for (name in c("normal", "neg_binomial_2", "gamma", "weibull")) for (dispersion in c(0.3, 2, if (name != "weibull") 40)) {
    if (name == "weibull") s <- c(0.01, 0.4, 1.5, 1)   # twice that is its spread
    loss <- function(eta, y) reference_losses[[name]](eta, y, dispersion, 4)
    at <- .Call(elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), dispersion,
                list(y = responses_of(name, y), weight = w, eta = eta, s = s))
    expected <- function(i, eta, s) {
      integrate(function(z) dnorm(z) * loss(eta + s * z, y[i]), -16, 12, rel.tol = 1e-11, subdivisions = 1000L)$value
    }
    value <- vapply(1:4, function(i) expected(i, eta[i], s[i]), 0)
    expect_equal(at$sum, sum(w * value), tolerance = 1e-9, label = name)
    h <- 1e-3
    slope <- vapply(1:4, function(i) (expected(i, eta[i] + h, s[i]) - expected(i, eta[i] - h, s[i])) / (2 * h), 0)
    expect_equal(at$slope, w * slope, tolerance = 1e-5, label = name)
    # d/ds E l(eta + s z) = E[l' z]
    curve <- vapply(1:4, function(i) (expected(i, eta[i], s[i] + h) - expected(i, eta[i], s[i] - h)) / (2 * h * s[i]), 0)
    expect_equal(at$curve, w * curve, tolerance = 1e-4, label = name)
    expect_true(all(at$curve >= 0))
    expect_identical(at$widest, max(s[w > 0]))   # not that of the row without weight
  }
})

test_that("at a point the loss has its own derivatives", {
  y <- c(0, 1, 3, 10)
  eta <- c(-1, 0.3, 2, 1)
  for (name in names(reference_losses)) for (dispersion in c(0.3, 2)) {
    rows <- list(y = responses_of(name, y), weight = c(1, 1, 2, 0.5), eta = eta, s = numeric(4))
    loss <- function(eta) reference_losses[[name]](eta, y, dispersion, 4)
    at <- .Call(elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), dispersion, rows)
    expect_identical(status_name(at$status), "ok")
    expect_equal(at$sum, sum(rows$weight * loss(eta)), tolerance = 1e-12)
    h <- 1e-4
    expect_equal(at$slope, rows$weight * (loss(eta + h) - loss(eta - h)) / (2 * h), tolerance = 1e-6)
    expect_equal(at$curve, rows$weight * (loss(eta + h) - 2 * loss(eta) + loss(eta - h)) / h^2, tolerance = 1e-5)
  }
})

test_that("expectations of losses that are not convex are those of integrate()", {
  minus_log_beta <- function(eta, y, a) lbeta(plogis(eta) * a, plogis(-eta) * a) - plogis(eta) * a * qlogis(y)
  losses <- list(
    robust = list(y = c(0, 2), hyper = 0.7, l = function(eta, y, a) log(a) + 2.5 * log1p((y - eta)^2 / (4 * a^2))),
    beta = list(y = c(0.1, 0.9), hyper = 6, l = minus_log_beta),
    inverse_gaussian = list(y = c(0.5, 2), hyper = 1.5, l = function(eta, y, a) a * (y * exp(-2 * eta) / 2 - exp(-eta))))
  for (name in names(losses)) for (y in losses[[name]]$y) for (s in c(0.2, 1.5)) {
    of <- losses[[name]]
    mean_of <- function(f, eta) integrate(function(z) f(eta + s * z) * dnorm(z), -14, 14, rel.tol = 1e-10, subdivisions = 1000L)$value
    l <- function(eta) of$l(eta, y, of$hyper)
    at <- .Call(elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), of$hyper,
                list(y = y, weight = 2, eta = 0.4, s = s))
    h <- 1e-3
    expect_equal(at$sum, 2 * mean_of(l, 0.4), tolerance = 1e-7)
    up <- mean_of(l, 0.4 + h)
    down <- mean_of(l, 0.4 - h)
    expect_equal(at$slope, (up - down) / h, tolerance = 1e-5)
    expect_equal(at$curve, 2 * (up - 2 * mean_of(l, 0.4) + down) / h^2, tolerance = 1e-3)
  }
})

test_that("a family that C does not have, or not whole, stops the package from loading", {
  expect_silent(check_family_twins())
  expect_error(check_family_twins(c("logit", "tweedie")), "not whole: tweedie")
  # the gamma loss has no derivative in its dispersion of its own: it must not be asked for one
  records <- family_records
  records$gamma$conditional$dispersion <- "own"
  expect_error(check_family_twins(records = records), "not whole: gamma")
})

# ---- positive responses -------------------------------------------------------------------

positive_data <- function() {
  withr_seed(21, {
    d <- data.frame(x = rnorm(300), o = runif(300, -0.3, 0.3), w = sample(1:3, 300, TRUE))
    mu <- exp(1 + d$x / 2 + d$o)
    d$gamma <- rgamma(300, 3, scale = mu / 3)
    d$inverse <- inverse_gaussian_draws(mu, 4)
    d
  })
}

positive_laws <- list(
  gamma = function(y, eta, precision) dgamma(y, precision, scale = exp(eta) / precision, log = TRUE),
  inverse = function(y, eta, precision) {
    mu <- exp(eta)
    0.5 * log(precision / (2 * pi * y^3)) - precision * (y - mu)^2 / (2 * mu^2 * y)
  })
positive_families <- list(gamma = Gamma("log"), inverse = inverse.gaussian("log"))

test_that("targets of positive responses are minus log densities, with their gradients", {
  d <- positive_data()
  for (name in names(positive_laws)) {
    model <- model_glm(cbind(1, d$x), d[[name]], positive_families[[name]], normal(0, 10), weights = d$w, offset = d$o,
                       dispersion = NULL, prior_aux = exponential(2))
    f <- function(x) {
      -sum(d$w * positive_laws[[name]](d[[name]], x[1] + x[2] * d$x + d$o, exp(x[3]))) + sum(x[1:2]^2) / 200 +
        2 * exp(x[3]) - x[3]
    }
    x <- cbind(c(1, 0.5, 1), c(0.5, -0.2, -2), c(1.5, 0.2, 5))
    value <- target_at(model, x)$value
    expect_equal(diff(value), diff(apply(x, 2, f)), tolerance = 1e-10, label = name)
    for (j in 1:3) expect_equal(target_at(model, x)$gradient[, j], fd_gradient(f, x[, j]), tolerance = 1e-6, label = name)
    # far out, where gamma functions of the precision would lose all digits or overflow
    far <- cbind(c(1, 0.5, 30), c(1, 0.5, -40), c(1, 0.5, 18), c(1, 0.5, 19))
    at <- target_at(model, far)
    expect_true(all(is.finite(at$value)) && all(is.finite(at$gradient)))
    refusal(model_glm(cbind(1, d$x), -d[[name]], positive_families[[name]]), "y")
  }
  refusal(model_glm(cbind(1, d$x), d$gamma, Gamma()), "family")
  refusal(model_glm(cbind(1, d$x), d$inverse, inverse.gaussian("log"), dispersion = 2), "dispersion")
})

test_that("Gamma regression of known dispersion has an exact, certified optimum", {
  skip_on_cran()
  d <- positive_data()
  fit <- elvi(gamma ~ x + offset(o), data = d, family = Gamma("log"), dispersion = 1 / 3, prior = normal(0, 10),
              prior_intercept = normal(0, 10))
  expect_identical(c(fit$method, fit$optimum$certificate_kind), c("exact", "rigorous"))
  expect_lt(fit$optimum$certificate, 1e-8)
  # its objective is E f by draws
  z <- draw_base(law_of(base_gaussian(), 2), c(1, 2), 2e4)
  drawn <- target_at(fit$model, fit$theta$mu + fit$theta$scale %*% z)$value
  at <- fit$optimum$objective + as.double(determinant(fit$theta$scale)$modulus)
  expect_lt(abs(mean(drawn) - at), 4 * sd(drawn) / sqrt(2e4))
  twin <- glm(gamma ~ x + offset(o), Gamma("log"), d)
  se <- sqrt(diag(summary(twin, dispersion = 1 / 3)$cov.scaled))
  expect_lt(max(abs(coef(fit) - coef(twin)) / se), 0.1)
  expect_equal(sqrt(diag(vcov(fit))), se, tolerance = 0.05)
  # the exponential distribution is that of dispersion 1
  exponential <- elvi(gamma ~ x, data = d, family = Gamma("log"), dispersion = 1)
  expect_equal(unname(log_lik(exponential, draws = 3)),
               unname(dexp(rep(d$gamma, each = 3), 1 / posterior_epred(exponential, draws = 3), log = TRUE)), ignore_attr = TRUE)
  expect_error(elvi(gamma ~ x, data = d, family = Gamma("log"), base = base_student(5)), class = "elvi_error_no_expectation")
})

test_that("posteriors of positive responses are those of a grid", {
  skip_on_cran()
  d <- positive_data()
  for (name in names(positive_laws)) {
    y <- d[[name]]
    fit <- withr_seed(4, elvi(y ~ 1, family = positive_families[[name]], prior_intercept = normal(0, 5), prior_aux = exponential(1)))
    grid <- expand.grid(b = seq(0.7, 1.6, length.out = 46), a = seq(-0.5, 2.5, length.out = 61))
    log_p <- mapply(function(b, a) sum(positive_laws[[name]](y, b, exp(a))), grid$b, grid$a) + dnorm(grid$b, 0, 5, log = TRUE) -
      exp(grid$a) + grid$a
    p <- exp(log_p - max(log_p))
    p <- p / sum(p)
    precision <- exp(grid$a)
    mean <- c(sum(p * grid$b), sum(p * precision))
    sd <- sqrt(c(sum(p * (grid$b - mean[1])^2), sum(p * (precision - mean[2])^2)))
    table <- summary(fit)$table
    expect_identical(rownames(table)[2], c(gamma = "shape", inverse = "lambda")[[name]])
    expect_lt(max(abs(table[, "mean"] - mean) / sd), 0.05, label = name)
    expect_lt(max(abs(table[, "sd"] / sd - 1)), 0.05, label = name)
    # new responses, and the log likelihood
    new <- posterior_predict(fit, draws = 4000)
    expect_equal(mean(new), exp(mean[1]), tolerance = 0.02, label = name)
    variance <- if (name == "gamma") exp(2 * mean[1]) / mean[2] else exp(3 * mean[1]) / mean[2]
    expect_equal(var(c(new)), variance, tolerance = 0.1, label = name)
    x <- as.matrix(fit, draws = 3)
    expect_equal(unname(log_lik(fit, draws = 3)), unname(t(apply(x, 1, function(x) positive_laws[[name]](y, x[1], x[2])))))
  }
})

test_that("residuals and deviances of positive responses are those of glm()", {
  skip_on_cran()
  d <- positive_data()
  fits <- withr_seed(4, lapply(c("gamma", "inverse"), function(name) {
    elvi(reformulate("x", name), data = d, family = positive_families[[name]], prior = normal(0, 100),
         prior_intercept = normal(0, 100))
  }))
  twins <- list(glm(gamma ~ x, Gamma("log"), d), glm(inverse ~ x, inverse.gaussian("log"), d, start = c(1, 0.5)))
  for (i in 1:2) {
    expect_equal(deviance(fits[[i]]), deviance(twins[[i]]), tolerance = 2e-3)
    expect_equal(residuals(fits[[i]], "pearson"), residuals(twins[[i]], "pearson"), tolerance = 0.05)
  }
})

test_that("inverse gaussian draws have their moments", {
  y <- withr_seed(1, inverse_gaussian_draws(rep(2, 2e5), 3))
  expect_equal(c(mean(y), var(y), mean(1 / y)), c(2, 8 / 3, 1 / 2 + 1 / 3), tolerance = 0.02)
  expect_true(all(is.finite(withr_seed(1, inverse_gaussian_draws(rep(1e8, 1000), 1e-8)))))
})

# ---- times and shares -------------------------------------------------------------------------

time_data <- function(n = 300) {
  withr_seed(22, {
    d <- data.frame(x = rnorm(n), o = runif(n, -0.3, 0.3), w = sample(1:3, n, TRUE))
    d$full <- rweibull(n, 1.7, exp(1 + d$x / 2 + d$o) / gamma(1 + 1 / 1.7))
    d$status <- as.double(d$full < 4)
    d$time <- pmin(d$full, 4)
    mu <- plogis(0.3 + 0.8 * d$x + d$o)
    d$share <- rbeta(n, 9 * mu, 9 * (1 - mu))
    d
  })
}

# what Surv() makes, so that the tests do not need its package
right_censored <- function(time, status) {
  structure(cbind(time = time, status = status), type = "right", class = "Surv")
}

weibull_log_density <- function(time, status, eta, shape) {
  scale <- exp(eta) / gamma(1 + 1 / shape)
  ifelse(status == 1, dweibull(time, shape, scale, log = TRUE), pweibull(time, shape, scale, lower.tail = FALSE, log.p = TRUE))
}

test_that("targets of times and shares are minus log densities, with their gradients", {
  d <- time_data()
  laws <- list(weibull = function(eta, a) weibull_log_density(d$time, d$status, eta, exp(a)),
               beta = function(eta, a) dbeta(d$share, plogis(eta) * exp(a), plogis(-eta) * exp(a), log = TRUE))
  for (name in names(laws)) {
    y <- if (name == "beta") d$share else right_censored(d$time, d$status)
    model <- model_glm(cbind(1, d$x), y, name, normal(0, 10), weights = d$w, offset = d$o, prior_aux = exponential(2))
    f <- function(x) {
      -sum(d$w * laws[[name]](x[1] + x[2] * d$x + d$o, x[3])) + sum(x[1:2]^2) / 200 + 2 * exp(x[3]) - x[3]
    }
    x <- cbind(c(1, 0.5, 0.6), c(0.5, -0.2, -1), c(1.5, 0.2, 1))
    value <- target_at(model, x)$value
    expect_equal(diff(value), diff(apply(x, 2, f)), tolerance = 1e-9, label = name)
    for (j in 1:3) expect_equal(target_at(model, x)$gradient[, j], fd_gradient(f, x[, j]), tolerance = 1e-6, label = name)
    far <- cbind(c(50, -1, 0), c(30, 30, -3), c(1, 0.5, -6))
    if (name == "beta") far <- cbind(far, c(800, 1, 700), c(-800, 1, -700))
    at <- target_at(model, far)
    expect_true(all(is.finite(at$value)) && all(is.finite(at$gradient)), label = name)
  }
})

test_that("responses that are no times or shares are refused by name", {
  x <- cbind(1, 1:3)
  refusal(model_glm(x, c(0.2, 1, 0.5), Beta()), "y")
  refusal(model_glm(x, c(0.2, 0, 0.5), "beta"), "y")
  refusal(model_glm(x, c(1, 0, 2), weibull()), "y")
  refusal(model_glm(x, right_censored(c(1, -2, 3), c(1, 0, 1)), weibull()), "y")
  interval <- structure(cbind(start = 1:3, stop = 2:4, status = c(1, 0, 1)), type = "counting", class = "Surv")
  expect_error(model_glm(x, interval, weibull()), "censoring on the right")
  refusal(model_glm(x, c(1, 3, 2), weibull(), dispersion = 2), "dispersion")
  refusal(model_glm(x, c(1, 3, 2), exponential(2)), "family")
})

test_that("exponential times are a poisson regression with the log of time as offset", {
  d <- time_data()
  y <- right_censored(d$time, d$status)
  times <- model_glm(cbind(1, d$x), y, exponential(), normal(0, 10), weights = d$w)   # the prior of that name will do
  counts <- model_glm(cbind(1, d$x), d$status, poisson(), normal(0, 10), weights = d$w, offset = log(d$time))
  x <- cbind(c(1, 0.5), c(0.5, -0.2), c(0, 0))
  shift <- sum((d$w * log(d$time))[d$status == 1])
  expect_equal(target_at(times, x)$value, target_at(counts, -x)$value)
  expect_equal(target_at(times, x)$gradient, -target_at(counts, -x)$gradient)
  ours <- elvi_optimum(times)
  theirs <- elvi_optimum(counts)
  expect_equal(unname(ours$mu), -unname(theirs$mu), tolerance = 1e-6)
  expect_equal(unname(ours$Sigma), unname(theirs$Sigma), tolerance = 1e-5)
  expect_equal(ours$objective, theirs$objective, tolerance = 1e-9)
  expect_identical(ours$certificate_kind, "rigorous")
  # flat priors: that of glm(), nearly
  fit <- suppressWarnings(elvi(y ~ x, data = d, family = "exponential", prior = flat(), prior_intercept = flat()))
  twin <- glm(status ~ x + offset(log(time)), poisson(), d)
  se <- sqrt(diag(vcov(twin)))
  expect_lt(max(abs(coef(fit) + coef(twin)) / se), 0.1)
  # nothing happened: the mean runs off
  d$never <- right_censored(d$time, numeric(300))
  expect_error(suppressWarnings(elvi(never ~ x, data = d, family = "exponential", prior = flat(), prior_intercept = flat())),
               class = "elvi_error_no_optimum")
})

# posterior of (intercept, shape) without predictors, by a grid
weibull_grid <- function(time, status) {
  grid <- expand.grid(b = seq(0.3, 1.7, length.out = 141), a = seq(-0.3, 1.3, length.out = 161))
  log_p <- mapply(function(b, a) sum(weibull_log_density(time, status, b, exp(a))), grid$b, grid$a) +
    dnorm(grid$b, 0, 5, log = TRUE) - exp(grid$a) + grid$a
  grid$p <- exp(log_p - max(log_p))
  grid$log_sum <- max(log_p) + log(sum(grid$p) * (1.4 / 140) * (1.6 / 160))
  grid$p <- grid$p / sum(grid$p)
  grid
}

test_that("a Weibull posterior with censored times is that of a grid, and so is its evidence", {
  skip_on_cran()
  d <- time_data(100)
  fit <- elvi(right_censored(time, status) ~ 1, data = d, family = weibull(), prior_intercept = normal(0, 5), prior_aux = exponential(1))
  expect_identical(fit$method, "nested")
  grid <- weibull_grid(d$time, d$status)
  shape <- exp(grid$a)
  mean <- c(sum(grid$p * grid$b), sum(grid$p * shape))
  sd <- sqrt(c(sum(grid$p * (grid$b - mean[1])^2), sum(grid$p * (shape - mean[2])^2)))
  table <- summary(fit)$table
  expect_identical(rownames(table), c("(Intercept)", "shape"))
  expect_lt(max(abs(table[, "mean"] - mean) / sd), 0.03)
  expect_lt(max(abs(table[, "sd"] / sd - 1)), 0.03)
  expect_lt(abs(fit$nested$evidence$corrected - grid$log_sum[1]), 0.005)
  # each node is certified
  expect_true(all(fit$nested$certificates < 1e-6 & fit$nested$certificate_kind == "rigorous"))
})

test_that("the evidence of a dispersion in the family's own loss has its slope", {
  skip_on_cran()
  skip_without_parser()
  d <- time_data(60)
  d$g <- rep(1:6, 10)
  fits <- list(elvi(right_censored(time, status) ~ x + (1 | g) + offset(o), data = d, family = weibull(), weights = w),
               elvi(full ~ x + (1 | g) + offset(o), data = d, family = Gamma("log"), weights = w),
               elvi(full ~ x + (1 | g) + offset(o), data = d, family = robust(3), weights = w),
               elvi(full ~ x + (1 | g), data = d, family = inverse.gaussian("log"), weights = w),
               elvi(share ~ x + (1 | g), data = d, family = Beta(), weights = w))
  for (fit in fits) {
    setup <- nested_setup(fit$problem, fit$base)
    theta <- fit$posterior$hyper$mode + c(0.2, -0.3)
    value <- function(theta) evidence_at(setup, list(theta), tol = 1e-12)[[1L]]
    expect_equal(value(theta)$slope, unname(fd_gradient(function(t) value(t)$value, theta)), tolerance = 1e-5)
  }
})

test_that("Weibull regression is that of survreg() where the prior is flat", {
  skip_on_cran()
  skip_if_not_installed("survival")
  d <- time_data()
  Surv <- survival::Surv
  fit <- suppressWarnings(elvi(Surv(time, status) ~ x + offset(o), data = d, family = weibull(), prior = flat(),
                               prior_intercept = flat(), prior_aux = flat()))
  twin <- survival::survreg(Surv(time, status) ~ x + offset(o), data = d, dist = "weibull")
  se <- sqrt(diag(vcov(twin)))[1:2]
  expect_lt(max(abs(coef(fit) - coef(twin) - c(lgamma(1 + twin$scale), 0)) / se), 0.2)
  expect_equal(fit$mu[["shape"]], 1 / twin$scale, tolerance = 0.02)
  expect_equal(unname(sqrt(diag(vcov(fit)))[2]), unname(se[2]), tolerance = 0.05)
  # rows without an answer are dropped, as anywhere
  d$status[3] <- NA
  expect_identical(nobs(elvi(Surv(time, status) ~ x, data = d, family = weibull())), 299L)
})

test_that("methods take censored times for what they are", {
  skip_on_cran()
  d <- time_data(80)
  fit <- elvi(right_censored(time, status) ~ x, data = d, family = weibull())
  draws <- as.matrix(fit, draws = 5)
  at <- function(i) weibull_log_density(d$time, d$status, draws[i, 1] + draws[i, 2] * d$x, draws[i, "shape"])
  expect_equal(unname(log_lik(fit, draws = 5)), t(sapply(1:5, at)))
  expect_equal(unname(log_lik(fit, newdata = d[1:4, ], draws = 5)), t(sapply(1:5, at))[, 1:4])
  expect_identical(unname(residuals(fit)), unname(d$time - fitted(fit)))
  u <- fit$mu[["shape"]] * (log(d$time) + lgamma(1 + 1 / fit$mu[["shape"]]) - log(fitted(fit)))
  expect_equal(unname(residuals(fit, "deviance")^2), unname(2 * (exp(u) - d$status * (u + 1))))
  expect_true(all(residuals(fit, "deviance")[d$status == 0] > 0))
  expect_equal(deviance(fit), sum(residuals(fit, "deviance")^2))
  y <- posterior_predict(fit, data.frame(x = rep(0.2, 4)), draws = 4000)
  expect_equal(mean(y), predict(fit, data.frame(x = 0.2), type = "response")[[1]], tolerance = 0.03)
  expect_true(all(y > 0) && any(y > 4))
  expect_identical(dim(simulate(fit, 2)), c(80L, 2L))
  refusal(bayes_R2(fit), "object")
  full <- elvi(full ~ x, data = d, family = weibull())
  expect_gt(mean(bayes_R2(full)), 0.1)
  expect_true(all(is.finite(residuals(full, "pearson"))))
})

test_that("a Weibull law with its shape has an expectation under bounded bases only", {
  skip_on_cran()
  d <- time_data(80)
  for (args in list(list(method = "mpsgd"), list(prior = student_t(4, 0, 1)))) {
    expect_error(do.call(elvi, c(list(full ~ x, data = d, family = weibull()), args)), class = "elvi_error_no_expectation")
  }
  joint <- withr_seed(1, elvi(full ~ x, data = d, family = weibull(), method = "mpsgd", base = base_uniform()))
  nested <- elvi(full ~ x, data = d, family = weibull())
  expect_lt(max(abs(coef(joint) - coef(nested)) / nested$sd[1:2]), 0.1)
})

test_that("the posterior of shares is that of a grid; its loss is not convex, and nothing is called exact", {
  skip_on_cran()
  d <- time_data(200)
  y <- d$share
  fit <- withr_seed(4, elvi(share ~ 1, data = d, family = Beta(), prior_intercept = normal(0, 5), prior_aux = exponential(1)))
  expect_identical(unique(fit$nested$certificate_kind), "stationary")
  expect_output(print(fit), "each a stationary")
  grid <- expand.grid(b = seq(-0.3, 1, length.out = 131), a = seq(0.2, 2.6, length.out = 121))
  left <- plogis(grid$b) * exp(grid$a)
  right <- plogis(-grid$b) * exp(grid$a)
  log_p <- (left - 1) * sum(log(y)) + (right - 1) * sum(log1p(-y)) - length(y) * lbeta(left, right) +
    dnorm(grid$b, 0, 5, log = TRUE) - exp(grid$a) + grid$a
  p <- exp(log_p - max(log_p))
  p <- p / sum(p)
  mean <- c(sum(p * grid$b), sum(p * exp(grid$a)))
  sd <- sqrt(c(sum(p * (grid$b - mean[1])^2), sum(p * (exp(grid$a) - mean[2])^2)))
  table <- summary(fit)$table
  expect_identical(rownames(table)[2], "phi")
  expect_lt(max(abs(table[, "mean"] - mean) / sd), 0.05)
  expect_lt(max(abs(table[, "sd"] / sd - 1)), 0.05)
  new <- posterior_predict(fit, draws = 2000)
  expect_equal(c(mean(new), var(c(new))), c(plogis(mean[1]), plogis(mean[1]) * plogis(-mean[1]) / (1 + mean[2])), tolerance = 0.05)
  expect_error(elvi(share ~ x, data = d, family = Beta(), method = "exact"), "beta.*not convex")
  # the deviance is that to the best of all means
  expect_true(all(beta_deviance(y, 0.4, 5) >= 0))
  best <- optimize(function(m) dbeta(y[1], 5 * m, 5 * (1 - m), log = TRUE), c(0, 1), maximum = TRUE, tol = 1e-10)
  expect_equal(beta_deviance(y[1], 0.4, 5), 2 * (best$objective - dbeta(y[1], 2, 3, log = TRUE)), tolerance = 1e-8)
  # and where it is not convex
  at <- .Call(elvi_r_expect_rows, list(likelihood = "beta", error_df = 4), point_rule, 5,
              list(y = 0.9, weight = 1, eta = -4, s = 0))
  expect_lt(at$curve, 0)
})

test_that("families that are not here are refused by name, with the way round", {
  for (name in "hurdle_gamma") {
    expect_error(elvi(mpg ~ wt, data = mtcars, family = name), paste0("no family \"", name, "\""), class = "elvi_error_argument")
  }
})

test_that("families that brms makes are taken by their names", {
  skip_unless_long()   # brms takes seconds to load
  suppressWarnings(skip_if_not_installed("brms"))   # rstan and ggplot2 are not of one age everywhere
  expect_identical(likelihood_of(check_family(brms::weibull())), "weibull")
  expect_identical(likelihood_of(check_family(brms::Beta())), "beta")
  expect_identical(likelihood_of(check_family(brms::exponential())), "exponential")
  expect_identical(check_family(brms::cumulative())$family, "cumulative")
})

test_that("times of all sizes have the loss of times of 1 with another offset", {
  times <- c(1e-310, 2.5e-308, 1e-200, 1e-5, sqrt(0.5) * c(1 - 1e-15, 1, 1 + 1e-15), 1 - 1e-15, 1, 1 + 1e-15, sqrt(2), 1e5, 1e149)
  of <- function(y, offset) suppressWarnings(model_glm(matrix(1, length(y), 1L), y, weibull(), normal(0, 2.5), offset = offset))
  at <- rbind(c(-1, 0, 2), c(0, 0.5, -0.5))
  ones <- rep(1, length(times))
  shape <- exp(at[2, ])
  u <- shape * (lgamma(1 + 1 / shape) - at[1, ])
  own <- length(times) * (exp(u) - u - at[2, ])   # what the prior adds is the same for both
  expect_equal(target_values(of(times, log(times)), at), target_values(of(ones, 0 * ones), at), tolerance = 1e-13)
  expect_equal(diff(target_values(of(times, log(times)), at) - target_values(of(times[1], log(times[1])), at)),
               diff(own) * (1 - 1 / length(times)), tolerance = 1e-13)
})
