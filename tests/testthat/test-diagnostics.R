test_that("k-hat is that of loo", {
  skip_if_not_installed("loo")
  fits <- list(nasty("exclude"), nasty("stochastic"),
               elvi(model_quadratic(diag(3)), base_laplace(), method = "exact"),
               elvi(model_quadratic(diag(3)), base_student(4), method = "exact"))
  for (fit in fits) for (draws in c(500, 2000)) {
    set.seed(1)
    k <- pareto_k(fit, draws = draws)
    expect_length(k$log_ratios, draws)
    theirs <- suppressWarnings(loo::psis(matrix(k$log_ratios), r_eff = 1))$diagnostics$pareto_k
    expect_equal(k$k, theirs, tolerance = 1e-6)
    w <- exp(k$log_ratios - max(k$log_ratios))
    expect_equal(k$ess, sum(w)^2 / sum(w^2))
  }
})

test_that("the ratios are target over approximation", {
  # q is exactly the target: every ratio is the constant of the target
  A <- matrix(c(2, 0.6, 0.6, 1), 2)
  fit <- elvi(model_quadratic(A, m = c(1, -2)), method = "exact")
  set.seed(1)
  k <- pareto_k(fit, draws = 500)
  expect_equal(k$log_ratios, rep(log(2 * pi) - log(det(A)) / 2, 500), tolerance = 1e-8)
  expect_identical(k$k, -Inf)
  expect_equal(k$ess, 500)
  # by hand for another base: f(x) - log q(x), x ~ q
  fit <- elvi(model_quadratic(A, m = c(1, -2)), base_student(5), method = "exact")
  set.seed(1)
  r <- elvi:::draws_with_ratios(fit, 50)
  off <- r$x - coef(fit)
  z <- solve(fit$Sigma, off)
  log_q <- lgamma(3.5) - lgamma(2.5) - log(3 * pi) - 3.5 * log1p(colSums(z^2) / 3) - log(det(fit$Sigma))
  expect_equal(r$log_q, log_q, tolerance = 1e-10)
  expect_equal(r$log_p, -colSums(off * (A %*% off)) / 2, tolerance = 1e-10)
  # E exp(log ratio) is the normalising constant of exp(-f)
  set.seed(2)
  w <- exp(pareto_k(fit, draws = 4e4)$log_ratios)
  expect_lt(abs(mean(w) - 2 * pi / sqrt(det(A))) / (sd(w) / 200), 4)
})

test_that("k-hat tells a good approximation from a bad one", {
  A <- solve(toeplitz(0.95^(0:9)))
  full <- elvi(model_quadratic(A), method = "exact")
  field <- elvi(model_quadratic(A), method = "exact", control = elvi_control(scale = "diagonal"))
  set.seed(1)
  expect_lt(pareto_k(full)$k, 0.3)
  expect_gt(pareto_k(field)$k, 0.7)
  # bounded support misses the tails: the ratios are bounded, heavier tails than the target's too
  set.seed(1)
  expect_lt(pareto_k(elvi(model_quadratic(diag(2)), base_student(5), method = "exact"))$k, 0.5)
  # a target with heavier tails than q: log ratio grows without bound
  heavy <- model_density(function(x) 2 * log1p(colSums(x^2)), function(x) 4 * x / rep(1 + colSums(x^2), each = 2), dim = 2,
                         smoothness = 4, vectorized = TRUE)
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(heavy, budget = 3000)))
  expect_gt(pareto_k(fit)$k, 0.5)
  expect_lt(pareto_k(nasty("exclude"))$k, 0.5)
  # ratios that are not numbers
  expect_identical(elvi:::pareto_shape(c(rep(0, 200), Inf)), Inf)
  expect_identical(elvi:::pareto_shape(rep(3, 200)), -Inf)
})

test_that("k-hat recovers the shape of Pareto ratios", {
  for (shape in c(0.2, 0.6, 1)) {
    set.seed(1)
    k <- replicate(20, elvi:::pareto_shape(shape * rexp(4000)))
    expect_lt(abs(mean(k) - shape), 0.08)
  }
})

test_that("k-hat prints with a verdict", {
  expect_snapshot({
    for (k in c(0.2, 0.6, 0.9, -Inf)) {
      print(structure(list(k = k, draws = 2000, ess = 1234.4), class = "elvi_pareto_k"))
    }
    cat(sep = "\n", refusal(pareto_k(elvi(model_quadratic(1), method = "exact"), draws = 10), "draws"),
        refusal(pareto_k(elvi(model_quadratic(1), method = "exact"), n = 10), "n"))
  })
})

test_that("objective and elbo of a formula fit are those of its model", {
  fit <- nasty("exclude")
  exact <- objective(fit)
  expect_equal(exact$estimate, fit$optimum$objective)
  expect_equal(elbo(fit)$estimate, length(coef(fit)) / 2 * (1 + log(2 * pi)) - exact$estimate)
  set.seed(1)
  rough <- objective(fit, method = "monte_carlo", draws = 2e4)
  expect_lt(abs(rough$estimate - exact$estimate) / rough$se, 4)
  set.seed(1)
  a <- objective(nasty("stochastic"), draws = 5000)
  expect_identical(a$method, "monte_carlo")
  expect_gt(a$se, 0)
})
