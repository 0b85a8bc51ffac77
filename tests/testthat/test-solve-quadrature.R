# Quadrature against the marginal of z_1, judged by helper-exact.R.

dimensions <- if (long_tests()) c(1, 2, 3, 8, 200) else c(1, 3, 200)
# Making rules takes the time here: not all of them in every dimension.
likelihoods_in <- function(d) {
  c("logit", if (d == 3 || long_tests() && d %in% c(1, 200)) "probit", if (d %in% c(3, 200) || long_tests() && d == 1) "poisson")
}
names_in <- function(d) {
  setdiff(all_names, c(if (d != 3) "radial_beta", if (d != 3 && !long_tests() || d %in% c(2, 8)) c("radial_ball", "radial_logistic")))
}

rule_of <- function(base, d, likelihood) cached_quadrature(law_of(base, d), likelihood)

# all references, and a rule made once per base, dimension and likelihood
references <- lapply(setNames(dimensions, dimensions), function(d) {
  lapply(radius_laws(d), function(law) c(law, list(nodes = marginal_nodes(law, d))))
})
reference <- function(name, d) references[[as.character(d)]][[name]]
named_rules <- new.env()
named_rule <- function(name, d, likelihood) {
  key <- paste(name, d, likelihood)
  if (is.null(named_rules[[key]])) named_rules[[key]] <- rule_of(reference(name, d)$base, d, likelihood)
  named_rules[[key]]
}
all_names <- names(references[[1]])

# the level that C takes for a spread: the first whose limit it does not exceed
level_for <- function(rule, s) {
  Find(function(level) level$limit >= s, rule$levels)
}

# Off by how much, relative to the truth or to 0.01 where that is smaller?
deviation <- function(level, nodes, likelihood, eta, s) {
  got <- loss_integrals(level, losses_of(likelihood)[[1L]], eta, s)
  truth <- vapply(eta, function(e) plain_integrals(nodes, likelihood, e, s), numeric(3))
  max(abs(got - truth) / pmax(abs(truth), 1e-2))
}

# R/base.R standardizes a density with a root at the edge of its support to 1e-7 only
tolerance_of <- function(name) if (name == "radial_beta") 5e-7 else 1e-10

# spreads of 1e-3 to 10, as far as the expectation exists
spreads_for <- function(rule) {
  s <- c(1e-3, 0.03, 0.3, 1, 3, 10)
  c(s[s < rule$limit], if (is.finite(rule$limit)) 0.999 * rule$limit)
}

closed_form <- function(likelihood, kind) likelihood == "poisson" && kind %in% c("gaussian", "laplace")

test_that("the reference marginals are those of a radius times a direction", {
  skip_on_cran()
  for (d in dimensions) {
    for (name in setdiff(all_names, c("student5", "student3"))) {
      law <- reference(name, d)
      expect_equal(plain_integrals(law$nodes, "logit", 1, 2),
                   nested_integrals(law, d, "logit", 1, 2), tolerance = 1e-12, info = paste(name, d))
    }
    # heavy tails: the density of R u_1 itself
    for (name in c("student5", "student3")) {
      if (d == 1) break
      law <- reference(name, d)
      p <- function(z) integrate(function(t) {
        r <- sqrt(z^2 + exp(2 * t))
        exp(log_direction(d) + law$log_f(r) + (d - 2) * (t - log(r)) - log(r) + t)
      }, -40, 10, rel.tol = 1e-11, subdivisions = 1000L)$value
      expect_equal(c(p(0.1), p(1), p(5)), law$marginal(c(0.1, 1, 5)), tolerance = 1e-10, info = paste(name, d))
    }
  }
})

test_that("E l, E l' and E[l' z]/s are right for every base, dimension, likelihood and spread", {
  skip_on_cran()
  eta <- c(-6, -1, 0, 0.7, 4, 12)
  for (d in dimensions) {
    for (name in names_in(d)) {
      base <- reference(name, d)$base
      nodes <- reference(name, d)$nodes
      for (likelihood in likelihoods_in(d)) {
        rule <- named_rule(name, d, likelihood)
        if (rule$limit == 0) {
          expect_identical(likelihood, "poisson")
          expect_true(name %in% c("student5", "student3", "power0.7"), info = name)
          next
        }
        if (closed_form(likelihood, base$kind)) next   # in test-solve-expectation.R
        for (s in spreads_for(rule)) {
          expect_lt(deviation(level_for(rule, s), nodes, likelihood, eta, s), tolerance_of(name),
                    label = paste("error of", name, likelihood, "in dimension", d, "at spread", s))
        }
      }
    }
  }
})

test_that("so they are for the cloglog link and for student priors", {
  skip_on_cran()
  for (name in c("gaussian", "laplace", "uniform", "student5", "power3")) {
    for (likelihood in c("cloglog", "tail")) {
      rule <- named_rule(name, 3, likelihood)
      if (rule$limit == 0) next
      for (s in spreads_for(rule)) {
        expect_lt(deviation(level_for(rule, s), reference(name, 3)$nodes, likelihood, c(-6, -1, 0, 0.7, 3), s), 1e-10,
                  label = paste("error of", name, likelihood, "at spread", s))
      }
    }
  }
})

test_that("outlying observations do not escape the coarse levels", {
  skip_on_cran()
  for (name in setdiff(all_names, "radial_beta")) {
    nodes <- reference(name, 3)$nodes
    for (likelihood in c("logit", "probit")) {
      rule <- named_rule(name, 3, likelihood)
      for (s in c(0.1, 0.5, 2)) {
        expect_lt(deviation(level_for(rule, s), nodes, likelihood, c(-30, 30), s), 1e-10,
                  label = paste("error of", name, likelihood, "at spread", s))
      }
    }
  }
})

test_that("every level honours its limit, and cheaper levels come first", {
  skip_on_cran()
  for (d in c(1, 3, 200)) {
    for (name in c("gaussian", "laplace", "uniform", "student5", "power0.7", "power3")) {
      nodes <- reference(name, d)$nodes
      for (likelihood in likelihoods_in(d)) {
        rule <- named_rule(name, d, likelihood)
        if (rule$limit == 0 || closed_form(likelihood, name)) next
        limits <- vapply(rule$levels, function(level) level$limit, 0)
        expect_identical(tail(limits, 1), Inf)
        expect_gt(min(diff(limits)), 0)
        expect_gt(min(diff(lengths(lapply(rule$levels, `[[`, "z")))), 0)
        for (i in seq_len(length(limits) - 1)) {
          s <- limits[i] * c(0.2, 0.71, 1)
          off <- vapply(s, function(s) deviation(rule$levels[[i]], nodes, likelihood, c(-3, 0, 1, 5), s), 0)
          expect_lt(max(off), 1e-11, label = paste("error of level", i, "of", name, likelihood, d))
        }
      }
    }
  }
})

test_that("the limit of a level means something: beyond it the error grows", {
  levels <- named_rule("laplace", 3, "logit")$levels
  expect_identical(lengths(lapply(levels[1:2], `[[`, "z")), c(2L, 4L))
  nodes <- reference("laplace", 3)$nodes
  for (level in levels[1:2]) {
    near <- deviation(level, nodes, "logit", c(0, 1, 2), level$limit)
    beyond <- deviation(level, nodes, "logit", c(0, 1, 2), 4 * level$limit)
    expect_lt(near, 1e-11)
    expect_gt(beyond, 100 * near)
  }
})

test_that("mass, variance and kurtosis are those of the base, in every level", {
  skip_on_cran()
  for (d in dimensions) {
    for (name in names_in(d)) {
      kappa <- base_info(reference(name, d)$base, d)$kurtosis
      levels <- named_rule(name, d, "logit")$levels
      moment <- function(k) vapply(levels, function(level) 2 * sum(level$w * level$z^k), 0)
      label <- paste(name, d)
      ones <- rep(1, length(levels))
      expect_equal(moment(0), ones, tolerance = 1e-13, info = label)
      expect_equal(moment(2), ones, tolerance = if (name == "radial_beta") 1e-7 else 1e-11, info = label)
      if (is.finite(kappa)) {   # tails as heavy as the fifth power leave a millionth of it behind
        loose <- switch(name, student5 = 1e-5, radial_beta = 1e-7, 1e-10)
        expect_equal(moment(4), kappa * ones, tolerance = loose, info = label)
      }
      expect_true(all(unlist(lapply(levels, function(level) level$w)) > 0), info = label)
    }
  }
})

test_that("tails too heavy for a grid still have their variance", {
  skip_on_cran()
  for (df in c(2.05, 2.5)) {
    for (level in rule_of(base_student(df), 4, "probit")$levels) {
      expect_equal(2 * sum(level$w * level$z^2), 1, tolerance = 1e-12)
    }
  }
  unit <- sqrt(2.5 / 0.5)
  nodes <- half_line(Inf, 0.02, far = 60)
  nodes$w <- nodes$w * dt(nodes$z * unit, 2.5) * unit
  rule <- rule_of(base_student(2.5), 4, "probit")
  for (s in c(0.1, 1, 5)) {
    expect_lt(deviation(level_for(rule, s), nodes, "probit", c(-10, 0, 3), s), 1e-9)
  }
})

test_that("Gauss-Legendre and the Gauss rules in z^2 are exact for polynomials, up to their degree", {
  gl <- gauss_legendre(5)
  for (k in 0:9) expect_equal(sum(gl$w * gl$x^k), if (k %% 2) 0 else 2 / (k + 1), tolerance = 1e-13)
  expect_gt(abs(sum(gl$w * gl$x^10) - 2 / 11), 1e-4)

  fine <- composite_rule(law_of(base_gaussian(), 3), width = 0.125, growth = 1.125, grade = 20L)
  moment <- function(rule, k) 2 * sum(rule$w * rule$z^k)
  for (n in c(2, 4, 8)) {
    rule <- gauss_rules(fine, n)[[1]]
    expect_length(rule$z, n)
    for (k in seq(0, 4 * n - 2, by = 2)) {
      expect_equal(moment(rule, k), moment(fine, k), tolerance = 1e-11, info = paste(n, k))
    }
    expect_gt(abs(moment(rule, 4 * n) / moment(fine, 4 * n) - 1), 1e-5)
  }
  # 2n nodes in z: for the gaussian base they are the roots of the Hermite polynomial
  rule <- gauss_rules(fine, 4)[[1]]
  J <- matrix(0, 8, 8)
  J[cbind(1:7, 2:8)] <- J[cbind(2:8, 1:7)] <- sqrt(1:7)
  e <- eigen(J, symmetric = TRUE)
  by_size <- order(rule$z, decreasing = TRUE)
  expect_equal(rule$z[by_size], e$values[1:4], tolerance = 1e-10)
  expect_equal(rule$w[by_size], e$vectors[1, 1:4]^2, tolerance = 1e-9)
})

test_that("a discrete measure with fewer points than nodes has no Gauss rule", {
  few <- gauss_rules(list(z = c(1, 2), w = c(0.25, 0.25)), c(2, 4))
  expect_equal(sort(few[[1]]$z), c(1, 2))
  expect_null(few[[2]])
})

test_that("up to which spread the expectation of exp() exists", {
  limit <- function(base, d) exponential_limit(law_of(base, d))
  expect_identical(limit(base_gaussian(), 3), Inf)
  expect_identical(limit(base_uniform(), 3), Inf)
  expect_equal(limit(base_laplace(), 8), 3)
  expect_equal(limit(base_power(1), 8), 3)
  expect_identical(limit(base_power(1.5), 8), Inf)
  expect_identical(limit(base_power(0.9), 8), 0)
  expect_identical(limit(base_student(30), 8), 0)
  # radial: by the tail of the density. A gaussian, an exponential, a power law and a ball
  expect_identical(limit(base_radial(function(r) -r^2), 2), Inf)
  expect_equal(limit(base_radial(function(r) -5 * r), 2), sqrt(3), tolerance = 1e-3)
  expect_identical(limit(base_radial(function(r) -4 * log1p(r^2)), 2), 0)
  expect_identical(limit(base_radial(function(r) -sqrt(r)), 2), 0)
  expect_identical(limit(base_radial(function(r) ifelse(r < 2, 0, -Inf)), 2), Inf)
})

test_that("rules are kept for the session, one per law of z_1 and likelihood", {
  skip_on_cran()
  same <- function(a, da, b, db, likelihood = "logit") identical(rule_of(a, da, likelihood), rule_of(b, db, likelihood))
  expect_true(same(base_gaussian(), 2, base_gaussian(), 7))
  expect_true(same(base_student(5), 2, base_student(5), 7))
  expect_false(same(base_student(5), 2, base_student(5 + 1e-9), 2))
  expect_false(same(base_laplace(), 2, base_laplace(), 3))
  expect_false(same(base_laplace(), 2, base_uniform(), 2))
  expect_false(same(base_power(3), 2, base_power(2.5), 2))
  expect_false(identical(rule_of(base_gaussian(), 2, "logit"), rule_of(base_gaussian(), 2, "probit")))
  radial <- base_radial(function(r) -r^2)
  expect_false(same(radial, 2, base_radial(function(r) -r), 2))   # no key tells them apart: made anew
})

test_that("the normal likelihood needs no rule", {
  rule <- rule_of(base_laplace(), 3, "normal")
  expect_length(rule$levels, 0)
  expect_identical(rule$limit, Inf)
})

test_that("a base that is gaussian under another name integrates exponentials at wide spreads too", {
  skip_on_cran()
  same <- list(base_power(2), base_radial(function(r) -r^2 / 2))
  for (family in list(poisson(), binomial("cloglog"))) for (sd in c(1, 4.1, 9)) {
    model <- model_glm(matrix(c(1, 1)), 0:1, family)
    expected <- objective(list(mu = -9, Sigma = sd), model, base_gaussian())$estimate
    # a radial base is tabulated in every call
    for (base in if (sd == 4.1 || long_tests()) same else same[1]) {
      expect_equal(objective(list(mu = -9, Sigma = sd), model, base)$estimate, expected, tolerance = 1e-8)
    }
  }
})

test_that("exponentials of a base with lighter tails are trusted beyond a spread of 4", {
  skip_on_cran()
  law <- law_of(base_power(1.5), 2)
  limit <- quadrature_rule(law, "poisson")$limit
  expect_gt(limit, 4)
  mgf <- function(s) 2 * integrate(function(z) marginal_density(law, z) * cosh(s * z), 0, 80, rel.tol = 1e-10)$value
  model <- suppressMessages(model_glm(matrix(c(1, 0), 1), 0, poisson(), normal(0, 1e8)))
  oracle <- exact_oracle(model, law)
  at <- oracle("diagonal", c(-3, 0), c(4, 1))$value
  expect_equal(log(at), log(mgf(4)) - 3, tolerance = 1e-8)
})
