# rstanarm ships compiled Stan models, so no compiler is needed. Its NUTS runs are
# made once for all tests here.

nuts_runs <- new.env()

nuts <- function(which) {
  skip_on_cran()
  skip_if_not_installed("rstanarm")
  if (is.null(nuts_runs[[which]])) {
    nuts_runs[[which]] <- switch(
      which,
      gaussian = rstanarm::stan_glm(Fertility ~ Agriculture + Education + Catholic, data = swiss,
                                    chains = 2, iter = 1500, warmup = 500, seed = 11, refresh = 0),
      binomial = rstanarm::stan_glm(case ~ age + parity + induced + spontaneous, data = infert,
                                    family = binomial(), chains = 2, iter = 1500, warmup = 500,
                                    seed = 12, refresh = 0))
  }
  nuts_runs[[which]]
}

expect_agrees <- function(mean, sd, reference) {
  expect_lt(max(abs(mean - colMeans(reference)) / apply(reference, 2, stats::sd)), 0.15)
  expect_lt(max(abs(sd / apply(reference, 2, stats::sd) - 1)), 0.15)
}

expect_same_priors <- function(fit, run) {
  used <- fit$priors$joint
  stan <- rstanarm::prior_summary(run)
  scale <- function(p) p$adjusted_scale %||% p$scale
  expect_equal(used$location, c(stan$prior_intercept$location, stan$prior$location))
  expect_equal(used$scale, c(scale(stan$prior_intercept), scale(stan$prior)))
  if (!is.null(fit$priors$aux)) {
    rate <- stan$prior_aux$rate
    expect_equal(1 / fit$priors$aux$rate, stan$prior_aux$adjusted_scale %||% (1 / rate))
  }
}

test_that("a Stan model's value and gradient belong together", {
  skip_on_cran()
  model <- model_stan(nuts("gaussian"))
  expect_equal(model$dim, 5)
  expect_equal(model$names, c("gamma[1]", "z_beta[1]", "z_beta[2]", "z_beta[3]", "aux_unscaled"))
  for (x in list(c(70, -0.2, 0.1, 0.3, -0.5), rep(0.1, 5))) {
    numeric <- vapply(1:5, function(j) {
      h <- 1e-5 * max(1, abs(x[j])) * (1:5 == j)
      (model$value(matrix(x + h)) - model$value(matrix(x - h))) / (2 * sum(h))
    }, 0)
    expect_equal(model$gradient(matrix(x)), numeric, tolerance = 1e-6)
  }
  # a block of points is its points one by one
  block <- cbind(c(70, -0.2, 0.1, 0.3, -0.5), rep(0.1, 5))
  expect_identical(model$gradient(block), c(model$gradient(block[, 1, drop = FALSE]),
                                            model$gradient(block[, 2, drop = FALSE])))
})

test_that("the density is that of the unconstrained parameters", {
  run <- nuts("gaussian")
  x <- c(70, -0.2, 0.1, 0.3, -0.5)
  constrained <- rstan::log_prob(run$stanfit, x, adjust_transform = FALSE)[[1]]
  # the Jacobian of exp() is in it
  expect_equal(model_stan(run)$value(matrix(x)), -constrained - x[5])
})

test_that("through Stan, elvi agrees with NUTS on swiss and infert", {
  skip_on_cran()
  set.seed(1)
  run <- nuts("gaussian")
  fit <- elvi(model_stan(run), tol = 0.05)
  expect_true(fit$converged)
  draws <- constrain_draws(fit, draws = 4000)[, c("alpha[1]", paste0("beta[", 1:3, "]"), "aux")]
  reference <- as.matrix(run)
  expect_equal(colnames(reference), c("(Intercept)", "Agriculture", "Education", "Catholic", "sigma"))
  expect_agrees(colMeans(draws), apply(draws, 2, sd), reference)

  run <- nuts("binomial")
  fit <- elvi(model_stan(run), tol = 0.05)
  expect_true(fit$converged)
  draws <- constrain_draws(fit, draws = 4000)[, c("alpha[1]", paste0("beta[", 1:4, "]"))]
  expect_agrees(colMeans(draws), apply(draws, 2, sd), as.matrix(run))
})

test_that("from a formula, with the same default priors, elvi agrees with NUTS", {
  set.seed(2)
  run <- nuts("gaussian")
  fit <- elvi(Fertility ~ Agriculture + Education + Catholic, data = swiss)
  expect_same_priors(fit, run)
  reference <- as.matrix(run)
  sds <- sqrt(diag(vcov(fit)))
  expect_agrees(coef(fit)[1:4], sds[1:4], reference[, 1:4])
  sigma <- as.matrix(fit, draws = 4000)[, "sigma"]
  expect_agrees(mean(sigma), sd(sigma), reference[, 5, drop = FALSE])

  run <- nuts("binomial")
  fit <- elvi(case ~ age + parity + induced + spontaneous, data = infert, family = binomial())
  expect_same_priors(fit, run)
  expect_agrees(coef(fit), sqrt(diag(vcov(fit))), as.matrix(run))
})

test_that("constrained draws are Stan's own transform of the draws of q", {
  set.seed(3)
  run <- nuts("gaussian")
  fit <- elvi(model_stan(run), tol = 0.5)
  set.seed(4)
  free <- as.matrix(fit, draws = 5)
  set.seed(4)
  constrained <- constrain_draws(fit, draws = 5)
  expect_equal(constrained[, "gamma[1]"], unname(free[, "gamma[1]"]))
  expect_equal(constrained[, "aux_unscaled"], unname(exp(free[, "aux_unscaled"])))
  expect_true(all(c("aux", "alpha[1]", "beta[3]") %in% colnames(constrained)))
  expect_false(anyNA(constrained))
})

test_that("arrays of parameters get Stan's names in Stan's order", {
  flat <- flat_parameters(list(sigma = 2, empty = numeric(), none = array(0, c(0, 1)),
                               beta = array(1:2, 2), one = array(7, 1), Omega = matrix(1:4, 2)))
  expect_equal(flat, c(sigma = 2, "beta[1]" = 1, "beta[2]" = 2, "one[1]" = 7, "Omega[1,1]" = 1,
                       "Omega[2,1]" = 2, "Omega[1,2]" = 3, "Omega[2,2]" = 4))
})

test_that("a simplex has one free parameter less, and names to match", {
  skip_on_cran()
  skip_if_not_installed("rstanarm")
  run <- suppressWarnings(rstanarm::stan_polr(
    tobgp ~ agegp, data = esoph, prior = rstanarm::R2(0.2), chains = 1, iter = 20, seed = 1, refresh = 0))
  model <- model_stan(run)
  expect_equal(model$names, c(paste0("pi[", 1:3, "]"), paste0("u[1,", 1:5, "]"), "R2"))
  free <- rep(0.1, 9)
  pi <- rstan::constrain_pars(run$stanfit, free)$pi
  expect_equal(sum(pi), 1)
})

test_that("a fit by brms is its stanfit, and value and gradient come in one call", {
  run <- nuts("gaussian")
  model <- model_stan(structure(list(fit = run$stanfit, backend = "rstan"), class = "brmsfit"))
  x <- cbind(rep(0.1, 5), rep(-0.2, 5))
  expect_equal(model$both(x), rbind(model$value(x), matrix(model$gradient(x), 5)))
})

test_that("what is no Stan fit is refused by name", {
  expect_error(model_stan(lm(dist ~ speed, cars)), "`object` must be a stanfit", class = "elvi_error_argument")
  expect_error(model_stan(structure(list(), class = c("CmdStanMCMC", "CmdStanFit", "R6"))), "init_model_methods",
               class = "elvi_error_argument")
  expect_error(model_stan(structure(list(), class = "stanmodel")), "without data", class = "elvi_error_argument")
  expect_error(model_stan(structure(list(backend = "cmdstanr"), class = "brmsfit")), "backend",
               class = "elvi_error_argument")
  fit <- elvi(model_quadratic(diag(2)), budget = 500)
  expect_error(constrain_draws(fit), "model_stan", class = "elvi_error_argument")
  expect_error(constrain_draws(1), class = "elvi_error_argument")
})

test_that("a Stan fit from another session can be read but not run", {
  skip_on_cran()
  run <- nuts("gaussian")
  set.seed(5)
  fit <- elvi(model_stan(run), tol = 0.5)
  file <- tempfile(fileext = ".rds")
  saveRDS(fit, file)
  again <- readRDS(file)
  expect_identical(coef(again), coef(fit))
  expect_identical(vcov(again), vcov(fit))
  expect_error(model_stan(again$model$stanfit), "compiled model", class = "elvi_error_argument")
})

test_that("a fit by cmdstanr is used through its methods", {
  skip_on_cran()
  model <- model_stan(cmdstan_double())
  expect_equal(model$dim, 2)
  expect_equal(model$value(cbind(c(3, 1))), 1)
  expect_equal(model$gradient(cbind(c(3, 1))), c(0.5, 1))
  set.seed(1)
  fit <- elvi(model, tol = 0.01)
  expect_equal(unname(fit$mu), c(1, 0), tolerance = 0.05)
  x <- constrain_draws(fit, draws = 2000)
  expect_equal(colnames(x), c("x", "s", paste0("log_lik[", 1:3, "]")))
  expect_equal(log(x[, "s"]), unname(as.matrix(fit, draws = 2000)[, 2]))
})

test_that("kept methods give what the functions of rstan give", {
  run <- nuts("gaussian")
  model <- model_stan(run)
  x <- c(70, -0.2, 0.1, 0.3, -0.5)
  expect_identical(model$value(cbind(x)), -as.double(rstan::log_prob(run$stanfit, x)))
  expect_identical(model$gradient(cbind(x)), -as.double(rstan::grad_log_prob(run$stanfit, x)))
  ours <- model$constrain(cbind(x, x))
  theirs <- flat_parameters(rstan::constrain_pars(run$stanfit, x))
  fixed <- names(theirs) != "mean_PPD"   # a draw
  expect_equal(colnames(ours), names(theirs))
  expect_equal(ours[2, fixed], theirs[fixed])
})

test_that("loo takes the log_lik of the program, and says what it needs", {
  skip_on_cran()
  skip_if_not_installed("loo")
  set.seed(1)
  fit <- elvi(model_stan(cmdstan_double()), tol = 0.01)
  out <- suppressWarnings(loo::loo(fit, draws = 500))
  expect_s3_class(out, "loo")
  expect_equal(nrow(out$pointwise), 3L)
  set.seed(1)
  other <- elvi(model_density(function(x) sum(x^2), function(x) 2 * x, dim = 2), tol = 0.05)
  expect_error(loo::loo(other), "model_stan", class = "elvi_error_argument")
})

test_that("a Stan model shows by its constrained parameters which of them are logarithms", {
  skip_on_cran()
  model <- model_stan(cmdstan_double())
  expect_null(model$logarithms)
  model$names <- c("x", "s")   # this version of 'cmdstanr' gives none
  set.seed(1)
  fit <- elvi(model, tol = 0.05)
  expect_identical(are_logarithms(fit), c(FALSE, TRUE))
})

# x ~ N(1, 2), log s ~ N(0, 1), as an R function
plain_double <- function(...) {
  model_density(function(u) (u[1] - 1)^2 / 8 + u[2]^2 / 2, function(u) c((u[1] - 1) / 4, u[2]), dim = 2, ...)
}

test_that("draws of an R density are constrained by its own function", {
  skip_on_cran()
  model <- plain_double(names = c("x", "log_s"), constrain = function(u) {
    c(x = u[1], s = exp(u[2]), `log_lik[1]` = dnorm(0.5, u[1], 1, log = TRUE), `log_lik[2]` = dnorm(1, u[1], 1, log = TRUE))
  })
  set.seed(1)
  fit <- elvi(model, tol = 0.05)
  x <- constrain_draws(fit, draws = 200)
  expect_equal(colnames(x), c("x", "s", "log_lik[1]", "log_lik[2]"))
  expect_equal(unname(log(x[, "s"])), unname(as.matrix(fit, draws = 200)[, 2]))
  expect_equal(unname(constrain_draws(fit, draws = 200, resample = FALSE)[, 1]),
               unname(as.matrix(fit, draws = 200, resample = FALSE)[, 1]))
  skip_if_not_installed("loo")
  expect_equal(nrow(suppressWarnings(loo::loo(fit, draws = 500))$pointwise), 2L)
})

test_that("what `constrain` returns is checked, and what it is", {
  expect_error(plain_double(constrain = 1), "`constrain` must be a function", class = "elvi_error_argument")
  point <- matrix(c(1, 2))
  expect_error(plain_double(constrain = function(u) exp(u))$constrain(point), "named numeric vector", class = "elvi_error_argument")
  expect_error(plain_double(constrain = function(u) c(a = "b"))$constrain(point), "named numeric vector", class = "elvi_error_argument")
  fickle <- plain_double(constrain = function(u) if (u[1] > 0) c(a = 1) else c(b = 1))
  expect_error(fickle$constrain(cbind(1:2, -1:0)), "same names at every point", class = "elvi_error_argument")
  one <- plain_double(constrain = function(u) c(s = exp(u[[2]])))
  expect_equal(one$constrain(cbind(1:2, 3:4)), matrix(exp(c(2, 4)), dimnames = list(NULL, "s")))
})

test_that("a model of 'bridgestan' is a target", {
  # what its class offers: mu normal(1, 2), and sigma exponential(1) as a logarithm
  object <- structure(list(
    param_unc_num = function() 2, param_unc_names = function() c("mu", "sigma"),
    param_names = function(include_tp = FALSE, include_gq = FALSE) c("mu", "sigma", if (include_tp) c("v.1", "v.2")),
    log_density = function(theta, propto, jacobian) -(theta[1] - 1)^2 / 8 - exp(theta[2]) + jacobian * theta[2],
    log_density_gradient = function(theta, propto, jacobian) {
      list(val = -(theta[1] - 1)^2 / 8 - exp(theta[2]) + theta[2], gradient = c(-(theta[1] - 1) / 4, 1 - exp(theta[2])))
    },
    param_constrain = function(theta, include_tp = FALSE, include_gq = FALSE) {
      c(theta[1], exp(theta[2]), if (include_tp) theta)
    }), class = c("StanModel", "R6"))
  model <- model_stan(object)
  expect_identical(model$names, c("mu", "sigma"))
  set.seed(1)
  fit <- suppressMessages(elvi(model, tol = 0.05))
  expect_equal(unname(coef(fit)), c(1, digamma(1)), tolerance = 0.1)
  expect_identical(colnames(constrain_draws(fit, 10)), c("mu", "sigma", "v[1]", "v[2]"))
  expect_equal(mean(constrain_draws(fit, 4000)[, "sigma"]), 1, tolerance = 0.1)
  start <- init_values(fit, 2)
  expect_named(start[[1]], c("mu", "sigma"))
  expect_gt(start[[1]]$sigma, 0)
})

test_that("flat names become arrays", {
  x <- c("a" = 1, "b[1]" = 2, "b[2]" = 3, "C[1,1]" = 4, "C[2,1]" = 5, "C[1,2]" = 6, "C[2,2]" = 7)
  expect_equal(arrays_of(x), list(a = 1, b = array(c(2, 3)), C = matrix(4:7, 2)), ignore_attr = TRUE)
})
