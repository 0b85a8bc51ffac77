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
  r <- draws_with_ratios(fit, 50)
  off <- r$x - coef(fit)
  z <- solve(fit$Sigma, off)
  log_q <- lgamma(3.5) - lgamma(2.5) - log(3 * pi) - 3.5 * log1p(colSums(z^2) / 3) - log(det(fit$Sigma))
  expect_equal(r$log_q, log_q, tolerance = 1e-10)
  expect_equal(r$log_p, -colSums(off * (A %*% off)) / 2, tolerance = 1e-10)
  # E exp(log ratio) is the normalising constant of exp(-f)
  set.seed(2)
  w <- exp(pareto_k(fit, draws = 4e4, seed = 2)$log_ratios)
  expect_lt(abs(mean(w) - 2 * pi / sqrt(det(A))) / (sd(w) / 200), 4)
})

test_that("k-hat tells a good approximation from a bad one", {
  skip_on_cran()
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
  # of the approximation alone, where a mixture has been adapted to the target
  expect_gt((fit$verdict$alone %||% pareto_k(fit))$k, 0.5)
  expect_lt(pareto_k(nasty("exclude"))$k, 0.5)
  # ratios that are not numbers
  expect_identical(pareto_shape(c(rep(0, 200), Inf)), Inf)
  expect_identical(pareto_shape(rep(3, 200)), -Inf)
})

test_that("k-hat recovers the shape of Pareto ratios", {
  for (shape in c(0.2, 0.6, 1)) {
    set.seed(1)
    k <- replicate(20, pareto_shape(shape * rexp(4000)))
    expect_lt(abs(mean(k) - shape), 0.08)
  }
})

test_that("k-hat prints with a verdict, and with what it cannot see", {
  judged <- function(k, ess = 1234.4, ...) {
    fields <- list(k = k, se = 0.05, limit = 0.75, settled = TRUE, draws = 10000, ess = ess, one_mode = FALSE)
    print(structure(utils::modifyList(fields, list(...)), class = "elvi_pareto_k"))
  }
  expect_snapshot({
    for (k in c(0.2, 0.6, 0.9, -Inf)) judged(k, one_mode = TRUE)
    judged(0.6, ess = 5)
    judged(0.48, settled = FALSE)
    judged(-0.9, outside = 0.3)
    judged(0.3, starts = 3.02)
    cat(sep = "\n", refusal(pareto_k(elvi(model_quadratic(1), method = "exact"), draws = 10), "draws"),
        refusal(pareto_k(elvi(model_quadratic(1), method = "exact"), n = 10), "n"))
  })
})

test_that("k-hat rests on as many draws as its verdict needs, and its error is that of the estimate", {
  pareto <- function(shape) function(i, n) {
    set.seed(i)
    shape * rexp(n)
  }
  clear <- k_until_stable(pareto(0.2))
  expect_equal(clear$draws, k_block)
  expect_true(clear$stable)
  close <- k_until_stable(pareto(0.7))
  expect_equal(close$draws, 4 * k_block)
  expect_false(close$stable)
  expect_equal(close$limit, k_limit(4 * k_block))
  expect_equal(k_limit(c(1000, 1e4, 1e6)), c(2 / 3, 0.7, 0.7))
  # over many estimates their spread is what is said
  k <- vapply(1:60, function(i) pareto_shape(pareto(0.5)(i, 4000)), 0)
  expect_equal(sd(k), k_error(0.5, 4000), tolerance = 0.3)
})

test_that("the same fit gets the same verdict in every call", {
  skip_on_cran()
  set.seed(1)
  fit <- elvi(case ~ age + parity + induced + spontaneous, data = infert, family = binomial())
  before <- .Random.seed
  k <- pareto_k(fit)
  expect_identical(pareto_k(fit), k)
  expect_identical(.Random.seed, before)
  # and with other draws it is the same within its error
  others <- vapply(seq_len(if (long_tests()) 12 else 4), function(seed) pareto_k(fit, seed = seed)$k, 0)
  expect_lt(max(abs(others - mean(c(k$k, others)))), 3.5 * k$se)
})

test_that("a uniform base that does not cover the target is said not to", {
  fit <- elvi(model_quadratic(diag(3)), base_uniform(), method = "exact")
  set.seed(1)
  k <- pareto_k(fit)
  # |z|^2 is chi squared: what is beyond the radius of the ball, in sds of the target
  radius <- sqrt(5) * fit$Sigma[1, 1]
  expect_equal(k$outside, pchisq(radius^2, 3, lower.tail = FALSE), tolerance = 0.1)
  expect_output(print(k), "excludes about")
  expect_null(pareto_k(elvi(model_quadratic(diag(3)), method = "exact"))$outside)
})

test_that("pareto_k(), draws and the verdict are there for student, power and laplace bases of a function", {
  skip_on_cran()
  target <- model_density(function(x) 2 * log1p(colSums(x^2)), function(x) 4 * x / rep(1 + colSums(x^2), each = 2),
                          dim = 2, vectorized = TRUE)
  for (base in every(list(base_student(5), base_power(1.5), base_laplace()), 3)) {
    set.seed(1)
    fit <- suppressWarnings(elvi(target, base = base, tol = 0.05))
    expect_true(is.finite(fit$verdict$k))
    expect_true(is.finite(pareto_k(fit)$k))
    expect_equal(dim(as.matrix(fit, draws = 50)), c(50L, 2L))
  }
})

test_that("objective and elbo of a formula fit are those of its model", {
  fit <- nasty("exclude")
  exact <- objective(fit)
  expect_equal(exact$estimate, fit$optimum$objective)
  kept <- nasty_data()[nasty_rows(nasty_data()), ]
  constant <- sum(dnorm(0, 0, fit$priors$joint$scale, log = TRUE)) - sum(kept$w * lfactorial(kept$y))
  expect_equal(elbo(fit)$estimate, length(coef(fit)) / 2 * (1 + log(2 * pi)) + constant - exact$estimate)
  set.seed(1)
  rough <- objective(fit, method = "monte_carlo", draws = 2e4)
  expect_lt(abs(rough$estimate - exact$estimate) / rough$se, 4)
  set.seed(1)
  a <- objective(nasty("stochastic"), draws = 5000)
  expect_identical(a$method, "monte_carlo")
  expect_gt(a$se, 0)
})

test_that("a wider base is the way out of a poor k: student for a logit link, laplace for a log link", {
  skip_on_cran()
  few <- data.frame(x = 1:20, y = c(rep(0, 9), 1, 0, rep(1, 9)))
  rare <- data.frame(g = factor(1:8), y = c(1, 2, 1, 3, 1, 2, 1, 1))
  binary <- function(base) elvi(y ~ x, few, family = binomial(), base = base, prior = normal(0, 10), prior_intercept = normal(0, 10))
  counts <- function(base) elvi(y ~ 0 + g, rare, family = poisson(), base = base, prior = normal(0, 5))
  # over several keys: a single k-hat is uncertain by 0.1
  k <- function(fit) mean(vapply(1:4, function(seed) withr_seed(seed, pareto_k(fit, draws = 10000, gaussian = TRUE))$k, 0))
  expect_lt(k(binary(base_student(5))), k(binary(base_gaussian())) - 0.1)
  expect_lt(k(counts(base_laplace())), k(counts(base_gaussian())))
  expect_error(counts(base_student(5)), class = "elvi_error_no_expectation")
})

test_that("k-hat of a target without density at any draw is said in words", {
  nowhere <- new_pareto_k(rep(-Inf, 1000))
  expect_equal(nowhere$ess, 0)
  expect_output(print(nowhere), "poor: importance weights leave 0 draws")
})

test_that("log ratios that are nearly constant have k-hat 0, and say so", {
  z <- withr_seed(1, rnorm(4000))
  cubic <- 0.0026 * abs(z)^3   # sd 0.01, with a tail that no Pareto law has
  expect_lt(sd(cubic), 0.02)
  expect_identical(pareto_shape(cubic), 0)
  expect_identical(pareto_shape(cubic / 1e9), -Inf)   # exactly alike, up to rounding
  expect_gt(pareto_shape(100 * cubic), 0.7)
  one <- replace(cubic, 7, 3)   # a single large weight is not to be overlooked
  expect_false(nearly_constant(one))
  expect_false(nearly_constant(replace(cubic, 7, -Inf)))
  expect_output(print(new_pareto_k(cubic)), "not needed \\(log ratios within 0.* of a constant, sd 0.0")
  expect_output(print(new_pareto_k(cubic)), "good")
})

test_that("k-hat is that of what is shown, the same in print() and pareto_k(), unless the gaussian's is asked for", {
  plain <- elvi(am ~ wt, mtcars, family = binomial())
  nested <- elvi(mpg ~ wt, mtcars[1:12, ], family = robust())
  for (fit in list(plain, nested)) {
    expect_true(is_reshaped(fit$posterior))
    expect_identical(pareto_k(fit)$k, posterior_error(fit)$k)
    expect_identical(pareto_k(fit, draws = 300, seed = 3)$draws, 300L)
  }
  expect_gt(pareto_k(plain, gaussian = TRUE)$k, pareto_k(plain)$k)
})
