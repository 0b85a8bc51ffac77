plan_of <- function(schedule, d = 5, kappa = 3, L = 2, ...) {
  plan_schedule(schedule, d, kappa, L, elvi_control(...))
}
presets <- c("case1", "case2", "psgd", "psgd_scaled")

# ---- finite horizon ---------------------------------------------------------------

test_that("the presets are the table of the specification", {
  # by hand, for d = 7, kappa = 3, L = 2, E = 1000
  case1 <- plan_of(schedule_fixed(1000, "case1"), d = 7)
  expect_equal(case1[c("iterations", "batch0", "step0")], list(iterations = 10, batch0 = 100, step0 = 1 / 4))
  expect_equal(case1$lambda, c(mu = 1, Sigma = 1))
  case2 <- plan_of(schedule_fixed(1000, "case2"), d = 7)
  expect_equal(case2[c("iterations", "batch0", "step0")], list(iterations = 32, batch0 = 31, step0 = 1 / 4))
  expect_equal(case2$lambda, c(mu = 1, Sigma = 1 / 18))
  psgd <- plan_of(schedule_fixed(1000, "psgd"), d = 7)
  expect_equal(psgd[c("iterations", "batch0")], list(iterations = 1000, batch0 = 1))
  expect_equal(psgd$step0, 1 / (2 * 2 * sqrt(9) * sqrt(1000)))
  expect_equal(psgd$lambda, c(mu = 1, Sigma = 1))
  scaled <- plan_of(schedule_fixed(1000, "psgd_scaled"), d = 7)
  expect_equal(scaled[c("iterations", "batch0")], list(iterations = 1000, batch0 = 1))
  expect_equal(scaled$step0, 1 / (2 * 2 * sqrt(1000)))
  expect_equal(scaled$lambda, c(mu = 1, Sigma = 1 / 18))
})

test_that("every budget is split into whole batches that fit, in every dimension", {
  skip_on_cran()
  budgets <- c(1:12, 50, 99, 100, 101, 999, 5000, 12345, 1e6)
  for (preset in presets) for (E in budgets) for (d in c(1, 2, 10, 200, 5000)) {
    kappa <- 3 * (d + 3) / (d + 1)
    plan <- plan_of(schedule_fixed(E, preset), d, kappa, 3)
    expected <- engine_schedule(schedule_fixed(E, preset), d, kappa, 3)
    K <- plan$iterations
    N <- plan$batch0
    good <- K == length(expected$step) && N == expected$batch[1] && K >= 1 && N >= 1 && K == round(K) &&
      N == round(N) && N * K <= E && (N + 1) * K > E &&
      isTRUE(all.equal(plan$step0, expected$step[1])) && isTRUE(all.equal(plan$lambda, expected$lambda))
    if (!good) fail(paste(preset, "E =", E, "d =", d, "K =", K, "N =", N))
  }
  succeed()
})

test_that("a budget of one gradient makes one step", {
  for (preset in presets) {
    fit <- suppressMessages(raw_fit(engine_quadratic(3), schedule = schedule_fixed(1, preset)),
                            classes = "elvi_message_start_kept")
    expect_equal(fit$state$k, 1)
    expect_equal(fit$state$evals, 1)
    expect_identical(fit$status, "finished")
    # one iterate in the theorem's average: the start
    expect_equal(unname(fit$mu), fit$start$mu)
  }
})

test_that("the preconditioner of the control replaces that of the preset", {
  lambda <- c(mu = 0.3, Sigma = 0.2)
  for (preset in presets) expect_equal(plan_of(schedule_fixed(100, preset), precondition = lambda)$lambda, lambda)
})

# ---- without a horizon ------------------------------------------------------------------

test_that("steps and batches of the other schedules follow their formulas", {
  k <- c(0, 1, 2, 10, 99, 1e5)
  at <- function(schedule) plan_at(plan_of(schedule), k)
  expect_equal(at(schedule_decay(1e7, step = 0.7, batch = 3, epsilon = 0.2)),
               list(step = 0.7 * (k + 1)^-0.7, batch = rep(3, 6)))
  expect_equal(at(schedule_decay(1e7, epsilon = 0, growth = 0.4, batch = 2)),
               list(step = 0.25 / sqrt(k + 1), batch = ceiling(2 * (k + 1)^0.4)))
  expect_equal(at(schedule_growing(1e7, batch = 4, nu = 0.5)),
               list(step = rep(0.25, 6), batch = ceiling(4 * (k + 1)^1.5)))
  custom <- schedule_custom(c(0.3, 0.2, 0.1), batch = function(k) 2^k)
  expect_equal(plan_at(plan_of(custom), 0:2), list(step = c(0.3, 0.2, 0.1), batch = c(1, 2, 4)))
})

test_that("the horizon is the longest that fits the budget", {
  skip_on_cran()
  for (E in c(1, 2, 10, 100, 1001, 20000)) for (schedule in list(
    schedule_decay(E), schedule_decay(E, growth = 0.3), schedule_decay(E, epsilon = 0, growth = 1.2),
    schedule_growing(E), schedule_growing(E, nu = 1), schedule_growing(E, nu = 3.5))) {
    used <- cumsum(ceiling(seq_len(E)^schedule$batch_power))
    expect_equal(plan_of(schedule)$iterations, sum(used <= E))
  }
  # planning takes no time, however many iterations there are
  time <- system.time(slow <- plan_of(schedule_decay(1e10, growth = 1e-3))$iterations)[["elapsed"]]
  expect_lt(time, 1)
  # the k-th batch is 2 from k = 2, 3 from k = 2^1000: 1 + 2 (K - 1) <= 1e10
  expect_equal(slow, 5e9)
  expect_equal(plan_of(schedule_decay(100, batch = 7))$iterations, 14)
  expect_equal(plan_of(schedule_growing(100, batch = 7, nu = 1))$iterations, 3)   # 7 + 28 + 63, then 112
  for (batch in list(5, c(3, 1, 4), function(k) k + 1)) {
    s <- schedule_custom(0.1, batch, iterations = 3)
    expect_equal(plan_of(s)$iterations, 3)
    expect_equal(s$budget, sum(s$batch))
  }
})

test_that("a custom schedule takes numbers, vectors and functions", {
  expect_equal(schedule_custom(0.1, 3, iterations = 4)[c("step", "batch")],
               list(step = rep(0.1, 4), batch = rep(3, 4)))
  expect_equal(schedule_custom(c(3, 2, 1), 1:5)$step, c(3, 2, 1))
  expect_equal(schedule_custom(c(3, 2, 1), 1:5)$batch, c(1, 2, 3))
  expect_equal(schedule_custom(c(3, 2, 1), 1:5, iterations = 2)$step, c(3, 2))
  expect_equal(schedule_custom(function(k) if (k < 2) 1 else 0.5, iterations = 4)$step, c(1, 1, 0.5, 0.5))
  expect_equal(schedule_custom(function(k) 1 / (k + 1), function(k) k^2 + 1, iterations = 3)[c("step", "batch")],
               list(step = 1 / 1:3, batch = c(1, 2, 5)))
  expect_equal(schedule_custom(function(k) 0.2, iterations = 3)$step, rep(0.2, 3))
  expect_no_warning(harmonic <- schedule_custom(function(k) sum(1 / (1:(k + 1))), iterations = 3)$step)
  expect_equal(harmonic, cumsum(1 / 1:3))
  expect_error(schedule_custom(function(k) stop("my own"), iterations = 3), "my own")
})

test_that("the tuned schedule has constant steps and batches in proportion to k + 1", {
  for (d in c(1, 10, 200)) for (kappa in c(3, 8, Inf)) {
    plan <- plan_of(schedule_tuned(1e5), d, kappa)
    first <- ceiling(0.06 * (d + min(kappa, 9)))
    k <- c(0, 1, 7, 50)
    expect_equal(plan_at(plan, k), list(step = rep(0.2, 4), batch = first * (k + 1)))
    K <- plan$iterations
    expect_lte(first * K * (K + 1) / 2, 1e5)
    expect_gt(first * (K + 1) * (K + 2) / 2, 1e5)
  }
  # a budget below the first batch still makes a step
  tiny <- plan_of(schedule_tuned(1), 200)
  expect_equal(tiny[c("iterations", "batch0")], list(iterations = 1, batch0 = 1))
  expect_error(plan_of(schedule_tuned(100), coordinates = "raw"), "raw", class = "elvi_error_argument")
})

# ---- constants of the noise ------------------------------------------------------------------

test_that("a of the noise bound is that of the block formula, within the paper's", {
  skip_on_cran()
  for (d in c(1, 2, 10, 1000)) for (L in c(0.1, 5))
    for (base in list(base_gaussian(), base_laplace(), base_uniform(), base_student(5), base_power(0.7))) {
      kappa <- engine_kurtosis(base, d)
      case1 <- c(mu = 1, Sigma = 1)
      case2 <- c(mu = 1, Sigma = 1 / (2 * (d - 1 + kappa)))
      for (lambda in list(case1, case2, c(mu = 0.2, Sigma = 0.9))) {
        for (kind in c("symmetric", "triangular", "diagonal")) {
          expect_equal(bg_a(d, kappa, L, lambda, kind), engine_bg_a(d, kappa, L, lambda, kind))
        }
      }
      # the paper's constants take the coordinates of z as independent: with heavy
      # tails they can be too small (see bg_constants())
      if (kappa <= 6 || d <= 4) {
        expect_lte(bg_a(d, kappa, L, case1), 4 * (d + kappa) * L^2)
        expect_lte(bg_a(d, kappa, L, case2), 4 * L^2)
      }
    }
  # by hand: d = 2, kappa = 3, L = 1
  expect_equal(bg_a(2, 3, 1, c(mu = 1, Sigma = 1)), 10)
  expect_equal(bg_a(2, 3, 1, c(mu = 1, Sigma = 1 / 8)), 2.5)
  # Figure 1 of the paper: about half of what it is with the factors 2
  expect_equal(bg_a(200, 3 * 203 / 201, 1, c(mu = 1, Sigma = 1)), 2 + 2 * 203 * 202 / 201)
})

# ---- weights of the average ----------------------------------------------------------------------

# The weights with which a run averaged its iterates 0, ..., K - 1: the iterates
# come from runs that stop early, the weights from solving for the average.
recovered_weights <- function(schedule, ...) {
  model <- engine_quadratic(6)
  run <- function(average, iterations = Inf) {
    set.seed(41)
    elvi(model, base_laplace(), schedule,
         control = raw_control(average = average, iterations = iterations, trace_draws = 0, ...))
  }
  fit <- run("theorem")
  K <- fit$state$k
  at <- function(theta) c(theta$mu, theta$scale)
  iterates <- cbind(at(fit$start), vapply(seq_len(K - 1), function(k) at(run("last", k)$last), numeric(42)))
  weights <- qr.solve(iterates, at(fit))
  expect_lt(max(abs(iterates %*% weights - at(fit))), 1e-10)
  list(weights = weights, K = K, fit = fit)
}

test_that("the average of the finite-horizon theorem has weights tau^(k+1)", {
  skip_on_cran()
  d <- 6
  kappa <- engine_kurtosis(base_laplace(), d)
  L <- engine_quadratic(d)$smoothness
  tau_of <- function(preset, K, E) switch(preset,
    case1 = K / (K + 1), case2 = K / (K + 1),
    psgd = 1 / (1 + 4 * (d + kappa) * L^2 / (4 * L^2 * (d - 1 + kappa) * E)),
    psgd_scaled = 1 / (1 + 1 / E))
  for (preset in presets) {
    E <- c(case1 = 800, case2 = 70, psgd = 9, psgd_scaled = 9)[[preset]]
    got <- recovered_weights(schedule_fixed(E, preset))
    expect_gte(got$K, 8)
    expected <- tau_of(preset, got$K, E)^seq_len(got$K)
    expect_equal(got$weights, expected / sum(expected), tolerance = 1e-6, label = preset)
    expect_gt(got$weights[1] / got$weights[got$K], 1.3)   # not the plain mean
  }
})

test_that("the average of the asymptotic theorem has weights step_k alpha_(k+1)", {
  d <- 6
  kappa <- engine_kurtosis(base_laplace(), d)
  L <- engine_quadratic(d)$smoothness
  for (lambda in list(c(mu = 1, Sigma = 1), c(mu = 1, Sigma = 1 / (2 * (d - 1 + kappa))))) {
    a <- engine_bg_a(d, kappa, L, lambda)
    k <- 0:7
    got <- recovered_weights(schedule_decay(8 * 40, step = 0.1, batch = 40, epsilon = 0.1), precondition = lambda)
    step <- 0.1 * (k + 1)^-0.6
    alpha <- cumprod(1 / (1 + a * step^2 / 40))   # alpha_1, alpha_2, ...
    expect_equal(got$weights, step * alpha / sum(step * alpha), tolerance = 1e-6)
    got <- recovered_weights(schedule_growing(sum(ceiling(20 * (k + 1)^1.5)), step = 0.1, batch = 20, nu = 0.5),
                             precondition = lambda)
    alpha <- cumprod(1 / (1 + a * 0.1^2 / ceiling(20 * (k + 1)^1.5)))
    expect_equal(got$weights, alpha / sum(alpha), tolerance = 1e-6)
  }
})

# ---- printing and bad input -------------------------------------------------------------------------

test_that("schedules print what they are", {
  expect_snapshot({
    schedule_tuned()
    schedule_fixed(1e6)
    schedule_fixed(123456, "psgd")
    schedule_decay(1000, growth = 0.5)
    schedule_growing(5000, step = 0.125, batch = 4, nu = 0.5)
    schedule_custom(0.1, 1:20)
  })
})

test_that("schedules refuse bad arguments by name", {
  messages <- c(
    refusal(schedule_tuned(0), "budget"),
    refusal(schedule_fixed(0), "budget"),
    refusal(schedule_fixed(-1), "budget"),
    refusal(schedule_fixed(NaN), "budget"),
    refusal(schedule_fixed(Inf), "budget"),
    refusal(schedule_fixed(10.5), "budget"),
    refusal(schedule_fixed(NULL), "budget"),
    refusal(schedule_fixed(100, "case3"), "preset"),
    refusal(schedule_fixed(100, 1), "preset"),
    refusal(schedule_growing(100, step = -0.1), "step"),
    refusal(schedule_growing(100, step = 0), "step"),
    refusal(schedule_growing(100, step = NaN), "step"),
    refusal(schedule_growing(100, step = Inf), "step"),
    refusal(schedule_growing(100, batch = 0), "batch"),
    refusal(schedule_growing(100, batch = 1.5), "batch"),
    refusal(schedule_growing(100, nu = 0), "nu"),
    refusal(schedule_decay(100, epsilon = 0), "epsilon"),
    refusal(schedule_decay(100, epsilon = 0.5), "epsilon"),
    refusal(schedule_decay(100, epsilon = -0.1), "epsilon"),
    refusal(schedule_decay(100, growth = -1), "growth"),
    refusal(schedule_decay(100, batch = NA), "batch"),
    refusal(schedule_custom(), "step"),
    refusal(schedule_custom(0.1), "iterations"),
    refusal(schedule_custom(0.1, iterations = 0), "iterations"),
    refusal(schedule_custom(0.1, iterations = 1e9), "iterations"),
    refusal(schedule_custom(c(0.1, -0.1)), "step"),
    refusal(schedule_custom(c(0.1, NaN)), "step"),
    refusal(schedule_custom(c(0.1, Inf)), "step"),
    refusal(schedule_custom("fast", iterations = 3), "step"),
    refusal(schedule_custom(function(k) "fast", iterations = 3), "step"),
    refusal(schedule_custom(c(0.1, 0.2), iterations = 3), "step"),
    refusal(schedule_custom(0.1, c(1, 0)), "batch"),
    refusal(schedule_custom(0.1, c(1, 1.5)), "batch"),
    refusal(schedule_custom(0.1, function(k) NULL, iterations = 3), "batch"))
  expect_snapshot(writeLines(messages))
})
