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
  estimate <- function(...) elvi:::new_estimate(..., law = list(entropy = 0))
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
