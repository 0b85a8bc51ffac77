kinds <- c("symmetric", "triangular", "diagonal")

quick_fit <- function(model, base = base_gaussian(), kind = "symmetric", budget = 300) {
  set.seed(51)
  raw_fit(model, base, budget, scale = kind)
}

closed_form <- function(model, mu, S) {
  off <- mu - model$m
  # E f depends on the base through its covariance only
  c(off %*% model$A %*% off + sum(diag(t(S) %*% model$A %*% S))) / 2 - determinant(S)$modulus[1]
}

test_that("objective() is the closed form on a quadratic target, exactly and by simulation", {
  skip_on_cran()
  model <- engine_quadratic(3)
  bases <- list(base_gaussian(), base_laplace(), base_uniform(), base_student(9), base_power(1.5),
                base_radial(function(r) -2 * log(cosh(r / 2))))
  for (base in bases) for (kind in kinds) {
    fit <- quick_fit(model, base, kind)
    truth <- closed_form(model, fit$mu, fit$Sigma)
    exact <- objective(fit)
    where <- paste(base$kind, kind)
    expect_equal(exact$estimate, truth, tolerance = 1e-12, label = where)
    expect_identical(exact[c("se", "method")], list(se = 0, method = "exact"))
    got <- objective(fit, method = "monte_carlo", draws = 4000)
    expect_lt(abs(got$estimate - truth), 4 * got$se, label = where)
    expect_lt(got$se, 0.1, label = where)
    expect_identical(got[c("method", "draws")], list(method = "monte_carlo", draws = 4000))
  }
})

test_that("the exact objective of a logistic model is an integral over the linear predictor", {
  model <- engine_logistic(3)
  fit <- quick_fit(model)
  eta <- drop(model$rows$X %*% fit$mu)
  s <- sqrt(rowSums((model$rows$X %*% fit$Sigma)^2))
  loss <- vapply(seq_along(eta), function(i) {
    integrate(function(z) dnorm(z) * (log1p(exp(eta[i] + s[i] * z)) - model$rows$y[i] * (eta[i] + s[i] * z)),
              -12, 12, rel.tol = 1e-11, subdivisions = 1000)$value
  }, 0)
  prior <- sum(model$blocks$coefficients$precision * ((fit$mu - model$blocks$coefficients$centre)^2 + diag(vcov(fit)))) / 2
  expect_equal(objective(fit)$estimate, sum(loss) + prior - log(det(fit$Sigma)), tolerance = 1e-10)
})

test_that("exact and simulated objectives agree where the base matters", {
  skip_on_cran()
  model <- engine_logistic(3)
  for (base in list(base_laplace(), base_uniform(), base_student(5), base_power(0.8))) for (kind in kinds) {
    fit <- quick_fit(model, base, kind)
    fit$theta$mu <- c(2, -1, 1)
    fit$theta$scale <- 3 * fit$theta$scale
    simulated <- objective(fit, method = "monte_carlo", draws = 20000)
    expect_lt(abs(objective(fit)$estimate - simulated$estimate), 4 * simulated$se, label = paste(base$kind, kind))
  }
})

test_that("a simulated objective is the mean of f over its draws, and says how sure it is", {
  model <- engine_logistic(3)
  for (kind in kinds) {
    fit <- quick_fit(model, base_laplace(), kind)
    set.seed(52)
    got <- objective(fit, method = "monte_carlo", draws = 700)
    set.seed(52)
    z <- base_draws(base_laplace(), n = 700, dim = 3)
    S <- engine_full(fit$scale)
    f <- engine_target(model)$value(unname(fit$mu) + S %*% z)
    expect_equal(got$estimate, mean(f) - log(det(S)), tolerance = 1e-12)
    expect_equal(got$se, sd(f) / sqrt(700), tolerance = 1e-10)
  }
  # new draws on each call, from R's generator; none when exact
  before <- .Random.seed
  objective(fit)
  expect_identical(.Random.seed, before)
  once <- objective(fit, method = "monte_carlo")
  expect_false(once$estimate == objective(fit, method = "monte_carlo")$estimate)
})

test_that("a user's target is simulated", {
  model <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, smoothness = 1)
  set.seed(3)
  fit <- raw_fit(model, base_laplace())
  got <- objective(fit, draws = 4000)
  expect_identical(got$method, "monte_carlo")
  truth <- closed_form(model_quadratic(diag(2)), fit$mu, fit$Sigma)
  expect_lt(abs(got$estimate - truth), 4 * got$se)
})

test_that("objective() is of what the fit returns, in the model's coordinates", {
  model <- engine_quadratic(3)
  for (control in list(raw_control(), elvi_control(estimator = "reparam"))) for (kind in kinds) {
    control$scale <- kind
    set.seed(4)
    fit <- elvi(model, base_laplace(), schedule_custom(0.1, 2, iterations = 20), control = control,
                start = list(mu = c(2, 2, 2)))
    expect_gt(max(abs(fit$mu - fit$last$mu)), 0.01)
    expect_equal(objective(fit)$estimate, closed_form(model, fit$mu, fit$Sigma), tolerance = 1e-12)
    simulated <- objective(fit, method = "monte_carlo", draws = 2000)
    expect_lt(abs(simulated$estimate - objective(fit)$estimate), 4 * simulated$se)
  }
})

test_that("objective() takes any mu and Sigma", {
  model <- engine_quadratic(3)
  S <- engine_root(model$A)
  at <- list(mu = model$m, Sigma = S)
  best <- 3 / 2 + log(det(model$A)) / 2   # F* of every base
  for (base in list(base_gaussian(), base_laplace())) {
    expect_equal(objective(at, model, base)$estimate, best, tolerance = 1e-12)
    expect_equal(elbo(at, model, base)$estimate, base_info(base, 3)$entropy - best, tolerance = 1e-12)
  }
  expect_equal(objective(list(mu = c(1, 1, 1), Sigma = 1:3), model)$estimate,
               closed_form(model, rep(1, 3), diag(1:3)), tolerance = 1e-12)
  got <- objective(at, model, method = "monte_carlo", draws = 5000)
  expect_lt(abs(got$estimate - best), 4 * got$se)
})

test_that("the ELBO is the entropy of the base minus the objective", {
  model <- engine_quadratic(3)
  for (base in list(base_gaussian(), base_laplace(), base_uniform(), base_student(5))) for (method in c("exact", "monte_carlo")) {
    fit <- quick_fit(model, base)
    set.seed(53)
    F <- objective(fit, method = method, draws = 500)
    set.seed(53)
    law <- elbo(fit, method = method, draws = 500)
    # entropy by its definition, -E log p(z)
    z <- base_draws(base, 20000, 3)
    log_p <- base_log_density(base, z)
    expect_equal(law$estimate + F$estimate, base_info(base, 3)$entropy)
    expect_lt(abs(law$estimate + F$estimate + mean(log_p)), 4 * sd(log_p) / sqrt(20000) + 1e-10)
    expect_identical(law$se, F$se)
    expect_identical(law$what, "ELBO")
  }
})

test_that("at the optimum of a Gaussian target the ELBO is the log evidence", {
  model <- engine_quadratic(3)
  set.seed(54)
  fit <- suppressMessages(elvi(model, budget = 100))   # starts at the optimum
  evidence <- 3 / 2 * log(2 * pi) - log(det(model$A)) / 2
  expect_equal(elbo(fit)$estimate, evidence, tolerance = 1e-10)
  got <- elbo(fit, method = "monte_carlo", draws = 10000)
  expect_lt(abs(got$estimate - evidence), 4 * got$se)
  expect_lt(got$se, 0.02)
})

test_that("estimates print with their names and errors", {
  estimate <- function(...) new_estimate(..., law = list(entropy = 0))
  expect_snapshot({
    estimate("objective F", 211.311356306, 0.0123, 1000)
    estimate("ELBO", -1.5, 2, 1e6)
    estimate("objective F", 211.311356306, 0, NA)
  })
})

test_that("objective() and elbo() refuse bad arguments by name", {
  model <- engine_quadratic(2)
  fit <- quick_fit(model)
  own <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, smoothness = 1)
  at <- list(mu = c(0, 0), Sigma = c(1, 1))
  messages <- c(
    refusal(objective(fit, draws = 1), "draws"),
    refusal(objective(fit, draws = 10.5), "draws"),
    refusal(objective(fit, draws = NA), "draws"),
    refusal(objective(fit, draw = "all"), "draws"),
    refusal(objective(fit, n = 100), "n"),
    refusal(objective(fit, method = "guess"), "method"),
    refusal(objective(at, own, method = "exact"), "method"),
    refusal(elbo(fit, draws = 0), "draws"),
    refusal(elbo(fit, drwas = 100), "drwas"),
    refusal(objective(at), "model"),
    refusal(objective(at, "model"), "model"),
    refusal(objective(at, model, "gaussian"), "base"),
    refusal(objective(list(mu = 1:2), model), "object"),
    refusal(objective(list(mu = 1:3, Sigma = c(1, 1)), model), "object$mu"),
    refusal(objective(list(mu = 1:2, Sigma = c(1, -1)), model), "object$Sigma"),
    refusal(objective(list(mu = 1:2, Sigma = matrix(1:4, 2)), model), "object$Sigma"),
    refusal(objective(7, model), "object"))
  expect_snapshot(writeLines(messages))
})

test_that("a spread that is hardly a number still has its logarithm", {
  X <- cbind(1, 1:4)
  narrow <- diag(c(5e-324, 1))
  tiny <- diag(c(1e-100, 1))   # the same but for -log|Sigma|
  more <- log(1e-100) - log(5e-324)
  for (model in list(model_glm(X, c(0, 1, 0, 1)), model_quadratic(diag(2)))) for (base in list(base_gaussian(), base_laplace())) {
    at <- function(Sigma) objective(list(mu = c(0, 0), Sigma = Sigma), model, base)$estimate
    expect_equal(at(narrow), at(tiny) + more)
  }
})

# ---- all constants ------------------------------------------------------------------------

test_that("the constants are all that f leaves out of the log density, for every family and prior", {
  skip_if_not_installed("survival")
  cases <- evidence_cases()
  # by model_glm(), each with a formula of one predictor
  taken <- Filter(function(record) {
    !is_joint(record) && !is_nested_only(record$make()) && !lacks_mode_search(record$make()) && is.null(record$pieces)
  }, family_records)
  expect_setequal(unique(vapply(cases, function(case) likelihood_of(check_family(case$family)), "")), names(taken))
  x <- c(0.3, -0.2, log(1.3))
  check <- function(name, prior, aux) {
    case <- cases[[name]]
    model <- evidence_model(case, prior, aux)
    at <- x[seq_len(model$dim)]
    expect_equal(model_constant(model) - target_values(model, matrix(at)), log_joint(case, at, prior, aux), tolerance = 1e-11,
                 info = paste(name, prior, aux))
    expect_identical(flat_in_model(model), (prior == "flat") * 2 + (aux == "flat" && !is.null(case$aux)), info = paste(name, prior, aux))
  }
  for (name in names(cases)) {
    for (prior in names(evidence_priors)) check(name, prior, "exponential")
    # as phi grows a negative binomial tends to a poisson one, so that its prior has to be proper
    for (aux in setdiff(names(evidence_positive), if (name == "neg_binomial_2") "flat")) check(name, "normal", aux)
  }
})

test_that("elbo() is a lower bound of the log evidence, and near, for every family", {
  skip_on_cran()
  skip_if_not_installed("survival")
  cases <- evidence_cases(40)
  for (name in every(names(cases), 2)) {
    case <- cases[[name]]
    X <- case$X[, 1, drop = FALSE]
    model <- evidence_model(case, X = X)
    evidence <- log_integral(function(x) log_joint(case, x, X = X), model$dim)
    # a gaussian law of the logarithm of a Weibull shape has no expected log likelihood
    base <- if (name == "weibull") base_uniform() else base_gaussian()
    fit <- withr_seed(2, suppressMessages(elvi(model, base, tol = if (has_exact(model)) NULL else 0.01)))
    bound <- withr_seed(3, elbo(fit, draws = 1e4))
    expect_lt(bound$estimate, evidence + 4 * bound$se + 1e-9, label = name)
    expect_gt(bound$estimate, evidence - (if (name == "weibull") 0.5 else 0.1) - 4 * bound$se, label = name)
  }
})

test_that("elbo() is a lower bound of the log evidence for every base and scale", {
  skip_if_not_installed("survival")
  case <- evidence_cases()$logit
  model <- evidence_model(case)
  evidence <- log_integral(function(x) log_joint(case, x), 2)
  found <- vapply(list(base_gaussian(), base_laplace(), base_uniform(), base_student(5), base_power(1.5)), function(base) {
    best <- elvi_optimum(model, base)
    diagonal <- elvi_optimum(model, base, scale = "diagonal")
    expect_equal(elbo(best, model, base)$estimate, best$elbo, tolerance = 1e-12)
    expect_lt(diagonal$elbo, best$elbo)
    best$elbo
  }, 0)
  expect_true(all(found < evidence & found > evidence - 0.6))
  expect_gt(found[1], evidence - 0.05)
})

test_that("models of mtcars and cbpp are compared by their evidence", {
  one <- function(formula) elvi(formula, mtcars, family = binomial())
  wt <- mtcars$wt - mean(mtcars$wt)
  slope <- log_integral(function(b) {
    sum(dbinom(mtcars$am, 1, plogis(b[1] + b[2] * wt), log = TRUE)) + dnorm(b[1], 0, 2.5, log = TRUE) +
      dnorm(b[2], 0, 2.5 / sd(wt), log = TRUE)
  }, 2)
  constant <- log_integral(function(b) sum(dbinom(mtcars$am, 1, plogis(b), log = TRUE)) + dnorm(b, 0, 2.5, log = TRUE), 1)
  expect_equal(c(slope, constant), c(-13.06, -23.57), tolerance = 3e-4)
  bounds <- c(elbo(one(am ~ wt))$estimate, elbo(one(am ~ 1))$estimate)
  expect_true(all(bounds <= c(slope, constant)))
  expect_equal(bounds, c(slope, constant), tolerance = 5e-3)
  skip_without_parser()
  skip_if_not_installed("generics")
  skip_if_not_installed("lme4")
  cbpp <- lme4::cbpp
  herds <- elvi(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, family = binomial())
  alone <- elvi(cbind(incidence, size - incidence) ~ period, cbpp, family = binomial())
  expect_equal(generics::glance(herds)$elbo, -104.9, tolerance = 1e-3)
  expect_equal(generics::glance(alone)$elbo, -111.3, tolerance = 1e-3)
})

test_that("a nested fit has the ELBO that plain fits at its hyperparameters add up to", {
  skip_on_cran()
  # log of the integral over sigma of p(sigma) times the evidence given sigma, which is exact for gaussian responses
  skip_if_not_installed("survival")
  case <- evidence_cases()$gaussian
  d <- data.frame(y = case$y, x = case$X[, 2], w = case$weights, f = case$frequency)
  nested <- elvi(y ~ x, d, weights = w, frequency = f, prior = normal(0, 2), prior_intercept = normal(0, 3),
                 prior_aux = exponential(0.7), method = "nested", control = elvi_control(nodes = 15))
  given <- function(a) elbo(elvi(y ~ x, d, weights = w, frequency = f, prior = normal(0, 2), prior_intercept = normal(0, 3),
                                 dispersion = exp(2 * a)))$estimate + dexp(exp(a), 0.7, log = TRUE) + a
  expect_equal(elbo(nested)$estimate, log_integral(given, 1, points = 61), tolerance = 1e-4)
  # and a single gaussian of coefficients and log sigma together is a little below that
  single <- withr_seed(1, elvi(y ~ x, d, weights = w, frequency = f, prior = normal(0, 2), prior_intercept = normal(0, 3),
                               prior_aux = exponential(0.7), method = "mpsgd"))
  bound <- withr_seed(2, elbo(single, draws = 2e4))
  expect_lt(bound$estimate, elbo(nested)$estimate + 4 * bound$se)
  expect_gt(bound$estimate, elbo(nested)$estimate - 0.2)
})

test_that("a nested fit with groups has the ELBO that plain fits of the effects add up to, dispersions known too", {
  skip_on_cran()
  skip_without_parser()
  skip_if_not_installed("survival")
  cases <- evidence_cases(40)
  g <- rep(1:4, length.out = 40)
  Z <- outer(g, 1:4, "==") + 0
  for (name in every(c("logit", "probit", "cloglog", "poisson", "known", "exponential", "known_gamma"), 3)) {
    case <- cases[[name]]
    d <- list(y = case$y, w = case$weights, f = case$frequency, g = g)
    fit <- suppressWarnings(elvi(y ~ 1 + (1 | g), d, family = case$family, weights = w, frequency = f, dispersion = case$dispersion,
                                 prior_intercept = normal(0.5, 2), prior_sd = exponential(0.8), control = elvi_control(nodes = 15)))
    given <- function(a) {
      model <- suppressWarnings(model_glm(cbind(1, Z), case$y, case$family, normal(c(0.5, 0, 0, 0, 0), c(2, rep(exp(a), 4))), case$weights,
                                          frequency = case$frequency, dispersion = case$dispersion %||% 1))
      elvi_optimum(model)$elbo + dexp(exp(a), 0.8, log = TRUE) + a
    }
    step <- if (long_tests()) 0.1 else 0.3   # the sum over a grid is exact to the tolerance with either
    a <- seq(-9, 3, by = step)
    values <- suppressMessages(vapply(a, given, 0))   # the columns are dependent
    whole <- max(values) + log(sum(exp(values - max(values))) * step)
    expect_equal(elbo(fit)$estimate, whole, tolerance = 2e-4, info = name)
  }
})

test_that("a model of matrices and the same of a formula have one ELBO", {
  skip_if_not_installed("survival")
  cases <- evidence_cases()
  for (name in c("logit", "poisson", "known", "exponential", "known_gamma")) {
    case <- cases[[name]]
    d <- list(y = case$y, x = case$X[, 2], w = case$weights, f = case$frequency)
    fit <- suppressWarnings(elvi(y ~ 0 + x, d, family = case$family, weights = w, frequency = f, dispersion = case$dispersion, prior = normal(0.5, 2)))
    model <- evidence_model(case, X = case$X[, 2, drop = FALSE])
    expect_equal(elbo(fit)$estimate, elbo(elvi(model))$estimate, tolerance = 1e-9, info = name)
    expect_equal(elbo(fit)$estimate, elvi_optimum(model)$elbo, tolerance = 1e-9, info = name)
    if (requireNamespace("generics", quietly = TRUE)) expect_identical(generics::glance(fit)$elbo, elbo(fit)$estimate)
    expect_identical(summary(fit)$elbo$estimate, elbo(fit)$estimate)
  }
})

test_that("constants of data in chunks, files, copies and clusters are those of memory", {
  skip_on_cran()
  data <- rows_data(150)
  cl <- new_evidence_cluster()
  on.exit(parallel::stopCluster(cl))
  pieces <- split(seq_len(150), rep(1:3, 50))
  load <- function(i) data[pieces[[i]], , drop = FALSE]
  environment(load) <- list2env(list(data = data, pieces = pieces), parent = globalenv())
  sources <- list(rows_chunked(chunks_of(data)), rows_files(1:3, load), rows_files(1:3, load, cache = 1e6), rows_cluster(cl, load, 3))
  for (case in names(rows_cases)) {
    quick <- if (case %in% c("robust", "size")) list(budget = 20, tol = NULL)
    memory <- suppressWarnings(suppressMessages(do.call(fit_rows, c(list(case, data), quick))))
    # one of the four sources for each case by default, so that each meets a quarter of the cases
    for (source in if (long_tests()) sources else sources[match(case, names(rows_cases)) %% 4 + 1]) {
      fit <- suppressWarnings(suppressMessages(do.call(fit_rows, c(list(case, source), quick))))
      if (case == "gaussian") expect_equal(elbo(fit), elbo(memory), tolerance = 1e-8)
      else expect_equal(model_constant(fit$model), model_constant(memory$model), tolerance = 1e-12, info = case)
      if (fit$method == "exact") expect_equal(elbo(fit)$estimate, elbo(memory)$estimate, tolerance = 1e-8, info = case)
    }
  }
  X <- cbind(1, data$z)
  matrices <- rows_files(1:3, function(i) list(X = X[pieces[[i]], ], y = data$count[pieces[[i]]], weights = data$w[pieces[[i]]]))
  expect_equal(elvi_optimum(model_glm(matrices, family = poisson()))$elbo,
               elvi_optimum(model_glm(X, data$count, poisson(), weights = data$w))$elbo, tolerance = 1e-9)
})

test_that("a matrix as prior precision has its constant too, in the sparse solver", {
  skip_if_not_installed("survival")
  case <- evidence_cases()$logit
  apart <- normal(0.5, 1 / sqrt(c(2, 3)))
  linked <- normal(0.5, precision = diag(c(2, 3)))
  make <- function(prior) model_glm(case$X, case$y, binomial(), prior, weights = case$weights)
  expect_equal(elvi_optimum(make(linked))$elbo, elvi_optimum(make(apart))$elbo, tolerance = 1e-8)
  Q <- matrix(c(2, 1, 1, 3), 2)
  evidence <- log_integral(function(b) {
    sum(case$log_lik(drop(case$X %*% b), 1, case$weights)) - sum((b - 0.5) * Q %*% (b - 0.5)) / 2 + log(det(Q)) / 2 - log(2 * pi)
  }, 2)
  fit <- elvi(make(normal(0.5, precision = Q)))
  expect_lt(elbo(fit)$estimate, evidence)
  expect_gt(elbo(fit)$estimate, evidence - 0.05)
  expect_equal(elbo(fit)$estimate, fit$optimum$elbo)
})

test_that("trials that are not whole have binomial coefficients of their own, row by row", {
  y <- c(1, 0, 0.5, 0.25)
  expect_equal(binomial_row_constant(y, c(0.3, 2.5, 4, 8)), c(0, 0, lchoose(4, 2), lchoose(8, 2)))
  expect_equal(binomial_row_constant(0.4, 2.5), lgamma(3.5) - lgamma(2) - lgamma(2.5))
})

test_that("a flat prior counts as density 1, and print() says so", {
  X <- cbind(1, sin(1:12))
  y <- rep(c(0, 1, 1), 4)
  flat_fit <- elvi(model_glm(X, y, prior = flat()))
  evidence <- log_integral(function(b) sum(dbinom(y, 1, plogis(X %*% b), log = TRUE)), 2)
  expect_lt(elbo(flat_fit)$estimate, evidence)
  expect_gt(elbo(flat_fit)$estimate, evidence - 0.15)
  expect_identical(elbo(flat_fit)$flat, 2)
  expect_output(print(elbo(flat_fit)), "2 parameters have a flat prior, which counts as density 1")
  expect_output(print(flat_fit$optimum), "2 parameters have a flat prior")
  expect_output(print(elbo(elvi(model_glm(X, y, prior = c(flat(), normal()))))), "1 parameter has a flat prior")
  expect_false(any(grepl("flat", capture.output(print(elbo(elvi(model_glm(X, y))))))))
  expect_false(any(grepl("flat", capture.output(print(objective(flat_fit))))))
  nested <- suppressWarnings(elvi(mpg ~ wt, mtcars, prior = flat(), prior_aux = flat(), method = "nested"))
  expect_identical(elbo(nested)$flat, 2)
  expect_output(print(elbo(nested)), "2 parameters have a flat prior")
})

test_that("the ELBO of a density is a lower bound of the log of its integral, constants as given", {
  f <- function(x) sum(x^2) / 2 + sum(log(cosh(x[1] + x[2])))
  evidence <- log_integral(function(x) -f(x), 2)
  fit_of <- function(shift) withr_seed(1, elvi(model_density(function(x) f(x) - shift, function(x) x + tanh(x[1] + x[2]), dim = 2,
                                                              smoothness = 3, convex = TRUE), tol = 0.01))
  for (shift in c(0, 5)) {
    bound <- withr_seed(2, elbo(fit_of(shift), draws = 1e4))
    expect_lt(bound$estimate, evidence + shift + 4 * bound$se)
    expect_gt(bound$estimate, evidence + shift - 0.1 - 4 * bound$se)
  }
})

test_that("objective() is without constants, whatever elbo() has", {
  skip_if_not_installed("survival")
  case <- evidence_cases()$poisson
  model <- evidence_model(case)
  fit <- elvi(model)
  expect_identical(objective(fit)$estimate, elbo(fit)$entropy + model_constant(model) - elbo(fit)$estimate)
  expect_equal(objective(fit)$estimate, fit$optimum$objective, tolerance = 1e-12)
})
