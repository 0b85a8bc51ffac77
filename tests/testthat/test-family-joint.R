# Families with two predictors per row: losses and expectations in src/joint_*.c, and the records in R/family-joint.R.

joint_names <- names(Filter(function(record) is_joint(record) && !is_shared(record), family_records))

responses_of <- function(name) {
  if (grepl("^(normal|student)", name)) c(-1, 2)
  else if (grepl("^gamma", name)) c(0.3, 2)
  else if (grepl("^lognormal", name)) c(0.3, 2, -1.5)   # the last is censored
  else if (grepl("^beta_binomial", name)) packed_trials(c(0, 2, 6), 6)
  else if (grepl("^beta", name)) c(0.1, 0.7)
  else c(0, 1, 5)
}

# Losses whose bends are as narrow as sigma: the rules are for posteriors of log sigma with a standard deviation up to about 0.25.
is_sharp <- function(name) name %in% c("student_scale", "lognormal_scale")

# what the loss leaves to R: functions of the family's own parameter
own_part <- function(name, y, phi = 1.7) {
  if (name == "student_scale") student_level(phi)$value
  else if (is.null(family_records[[name]]$dispersion) || y == 0) 0
  else -lbeta(phi, y)
}

joint_expect <- function(name, y, eta, V = c(0, 0, 0), phi = 1.7, rule = joint_rule(family_records[[name]])) {
  .Call(elvi_r_joint_expect, name, rule, phi, list(y = y, weight = 1, eta = eta, V = V))
}

# log likelihood of one response by the record, at given predictors
record_log_lik <- function(name, y, eta, phi = 1.7) {
  record <- family_records[[name]]
  family <- record$make()
  second <- stats::make.link(record$second$link)$linkinv(eta[2])
  seen <- seen_as(name, y)
  record$log_lik(seen$y, family$linkinv(eta[1]), list(second = second, hyper = phi), seen$trials, family)
}

# shares, and trials, where a response is both
seen_as <- function(name, y) {
  if (!family_records[[name]]$trials) return(list(y = y, trials = 1))
  seen <- unpacked_trials(y)
  list(y = seen$k / seen$n, trials = seen$n)
}

test_that("losses are minus the log likelihoods of the records, up to their constants", {
  for (name in joint_names) for (y in responses_of(name)) {
    eta <- c(0.4, -0.6)
    gammas <- own_part(name, y)
    expect_equal(-joint_expect(name, y, eta)$sum + family_records[[name]]$row_constant(y, 1) + gammas, record_log_lik(name, y, eta),
                 tolerance = 1e-12, info = paste(name, y))
  }
})

test_that("slopes, curvatures and derivatives in phi are those of the losses", {
  h <- 1e-5
  for (name in joint_names) for (y in responses_of(name)) {
    eta <- c(0.4, -0.6)
    at <- joint_expect(name, y, eta)
    up <- lapply(1:2, function(l) joint_expect(name, y, eta + h * (1:2 == l)))
    down <- lapply(1:2, function(l) joint_expect(name, y, eta - h * (1:2 == l)))
    slope <- vapply(1:2, function(l) (up[[l]]$sum - down[[l]]$sum) / (2 * h), 0)
    curve <- vapply(1:2, function(l) drop(up[[l]]$slope - down[[l]]$slope) / (2 * h), c(0, 0))
    expect_equal(drop(at$slope), slope, tolerance = 1e-8, info = paste(name, y))
    expect_equal(drop(at$curve), curve[c(1, 2, 4)], tolerance = 1e-8, info = paste(name, y))
    moved <- vapply(c(1, -1), function(side) joint_expect(name, y, eta, phi = 1.7 * exp(side * h))$sum, 0)
    expect_equal(at$hyper, (moved[1] - moved[2]) / (2 * h), tolerance = 1e-7, info = paste(name, y))
  }
})

# 201 x 201 points of a trapezoid rule, from the record's own log likelihood: nothing in common with the rules in C
brute_force <- function(name, y, eta, V, phi = 1.7) {
  z <- seq(-8, 8, length.out = 201)
  w <- dnorm(z) * diff(z[1:2])
  L <- t(chol(matrix(V[c(1, 2, 2, 3)], 2)))
  grid <- as.matrix(expand.grid(z, z))
  at <- t(eta + L %*% t(grid))
  record <- family_records[[name]]
  family <- record$make()
  second <- stats::make.link(record$second$link)$linkinv(at[, 2])
  seen <- seen_as(name, y)
  dispersion <- list(second = second, hyper = phi)
  l <- -record$log_lik(rep(seen$y, nrow(at)), family$linkinv(at[, 1]), dispersion, rep(seen$trials, nrow(at)), family)
  weight <- as.double(outer(w, w))
  solved <- t(solve(t(L), t(grid)))   # gradients and Hessians by Stein's identities
  hessian <- vapply(list(c(1, 1), c(1, 2), c(2, 2)), function(k) {
    sum(weight * l * (solved[, k[1]] * solved[, k[2]] - solve(matrix(V[c(1, 2, 2, 3)], 2))[k[1], k[2]]))
  }, 0)
  list(value = sum(weight * l), slope = colSums(weight * l * solved), curve = hessian)
}

test_that("expectations agree with brute force in two dimensions", {
  for (name in joint_names) for (y in responses_of(name)) {
    eta <- c(0.5, -0.8)
    V <- c(0.16, 0.05, 0.25) / if (is_sharp(name)) 9 else 1
    got <- joint_expect(name, y, eta, V)
    want <- brute_force(name, y, eta, V)
    gammas <- own_part(name, y)
    expect_equal(got$sum - family_records[[name]]$row_constant(y, 1) - gammas, want$value, tolerance = 1e-7, info = paste(name, y))
    expect_equal(drop(got$slope), want$slope, tolerance = 1e-6, info = paste(name, y))
    expect_equal(drop(got$curve), want$curve, tolerance = 1e-5, info = paste(name, y))
  }
})

test_that("rules agree with one of 120 nodes up to the spreads they are for", {
  fine <- list(levels = hermite_levels(120L, Inf), prior_levels = list(), mgf = "gaussian", mgf_rate = 0, limit = Inf)
  for (name in joint_names) for (y in responses_of(name)) for (s in c(0.1, 0.25, if (!is_sharp(name)) c(0.45, 0.8))) {
    V <- s^2 * c(1, 0.3, 1)
    eta <- c(1, -1)
    got <- joint_expect(name, y, eta, V)
    want <- joint_expect(name, y, eta, V, rule = fine)
    expect_equal(got[c("sum", "slope", "curve")], want[c("sum", "slope", "curve")], tolerance = 2e-5, info = paste(name, y, s))
  }
})

test_that("draws of the records have the means and variances that they say", {
  withr_seed(3, for (name in joint_names) {
    record <- family_records[[name]]
    family <- record$make()
    mu <- rep(family$linkinv(0.4), 2e5)
    second <- if (record$second$link == "logit") 0.3 else if (name == "lognormal_scale") 0.5 else 2.5
    dispersion <- list(second = rep(second, 2e5), hyper = rep(if (name == "student_scale") 1e6 else 1.7, 2e5))
    y <- record$draws(mu, dispersion, 1, family)
    mean <- record$second$mean(mu[1], lapply(dispersion, `[`, 1))
    variance <- record$variance(mu[1], lapply(dispersion, `[`, 1), family)
    if (name == "gamma_scale") variance <- variance / 2.5   # as glm() has it: up to its dispersion
    expect_lt(abs(mean(y) - mean) / sqrt(variance / 2e5), 4.5)
    expect_lt(abs(var(y) / variance - 1), 0.05)
  })
})

test_that("a record that lacks an entry, or its other half in C, is found out", {
  broken <- family_records["zero_inflated_poisson"]
  broken[[1]]$second$mean <- NULL
  expect_error(check_family_records(broken), "second")
  renamed <- stats::setNames(family_records["zero_inflated_poisson"], "nothing")
  renamed <- lapply(renamed, function(record) replace(record, "conditional", list(replace(record$conditional, "likelihood", "another"))))
  expect_error(check_joint_twins(renamed), "nothing")
})

test_that("a record is found by its family, link and second formula", {
  for (name in joint_names) {
    record <- family_records[[name]]
    family <- record$make()
    if (record$second$component == "disp") family <- family_with_scale(family)
    expect_identical(likelihood_of(family), name)
  }
})

test_that("wide predictors of a negative binomial are integrated: slopes and curvatures are derivatives of the value", {
  rule <- joint_rule(family_records$neg_binomial_2_scale)
  value <- function(y, eta, V) .Call(elvi_r_joint_expect, "neg_binomial_2_scale", rule, 1, list(y = y, weight = 1, eta = eta, V = V))
  for (s in c(0.5, 2.3, 2.6, 6)) for (level in c(-3, 3, 12)) for (y in c(0, 12)) {
    eta <- c(1, level)
    V <- c(0.2, -0.1 * s, s^2)
    at <- value(y, eta, V)
    by_eta <- vapply(1:2, function(k) {
      d <- 1e-5 * (1:2 == k)
      (value(y, eta + d, V)$sum - value(y, eta - d, V)$sum) / 2e-5
    }, 0)
    by_V <- vapply(1:3, function(k) {
      d <- 1e-5 * max(1, s^2) * (1:3 == k)
      (value(y, eta, V + d)$sum - value(y, eta, V - d)$sum) / (2 * sum(d))
    }, 0)
    expect_equal(drop(at$slope), by_eta, tolerance = 1e-5, info = paste(s, level, y))
    expect_equal(drop(at$curve) * c(0.5, 1, 0.5), by_V, tolerance = 1e-3, info = paste(s, level, y))
  }
})

test_that("losses of beta and beta-binomial responses are right from tiny to huge phi", {
  value <- function(name, y, eta) .Call(elvi_r_joint_expect, name, joint_rule(family_records[[name]]), 1,
                                        list(y = y, weight = 1, eta = eta, V = c(0, 0, 0)))
  for (s in c(-12, -3, 0, 4, 12)) for (e in c(-9, 0, 2)) {
    phi <- exp(s)
    p <- phi * plogis(e)
    q <- phi * plogis(-e)
    at <- value("beta_scale", 0.3, c(e, s))
    expect_equal(at$sum, lbeta(p, q) - p * log(0.3) - q * log(0.7), tolerance = 1e-10)
    by_phi <- p * (digamma(p) - log(0.3)) + q * (digamma(q) - log(0.7)) - phi * digamma(phi)
    expect_equal(at$slope[2], by_phi, tolerance = 1e-7)
    expect_equal(value("beta_binomial_scale", packed_trials(3, 60), c(e, s))$sum, lbeta(p, q) - lbeta(p + 3, q + 57), tolerance = 1e-9)
  }
})
