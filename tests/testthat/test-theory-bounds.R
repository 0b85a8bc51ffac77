# ---- bounds as formulas --------------------------------------------------------------

test_that("no sequence allowed by the recursion beats the bounds, and one attains the sharper one", {
  skip_on_cran()
  # 2 step gap_k = (1 + a q) D_k - D_{k+1} + b q with free D_{k+1} >= 0, gap_k >= 0
  set.seed(5)
  for (trial in 1:40) {
    K <- sample(1:30, 1)
    varies <- trial %% 2 == 0
    step <- if (varies) runif(K, 0.1, 1) else rep(runif(1, 0.1, 1), K)
    batch <- if (varies) sample(1:9, K, TRUE) else rep(sample(1:9, 1), K)
    a <- runif(1, 0, 3)
    b <- runif(1, 0, 3)
    D <- runif(1, 0, 3)
    w <- a * c(0, 0.3, 1, 2)[trial %% 4 + 1]
    q <- step^2 / batch
    weights <- step * exp(-cumsum(log1p(w * q)))
    average <- function(left) {
      D_k <- D
      gap <- numeric(K)
      for (k in seq_len(K)) {
        most <- (1 + a * q[k]) * D_k + b * q[k]
        gap[k] <- most * (1 - left[k]) / (2 * step[k])
        D_k <- most * left[k]
      }
      sum(weights * gap) / sum(weights)
    }
    found <- if (varies) lapply(dynamic_bounds(a, b, D, step, batch, w), function(v) v[K])
             else finite_horizon_bound(a, b, D, step[1], batch[1], K, w)
    for (i in 1:20) expect_lte(average(runif(K)^sample(c(0.1, 1, 4), 1)), found$sharper * (1 + 1e-9))
    if (w <= a) expect_equal(average(c(rep(1, K - 1), 0)), found$sharper)
    if (w > 0) expect_lte(found$sharper, found$bound * (1 + 1e-9))
  }
})

test_that("the finite-horizon bound is step/(2N) (a D + b) + D/(2 step K)", {
  start <- list(mu = c(3, -1), Sigma = diag(c(2, 1)))
  g <- guarantee(quadratic, base_gaussian(), schedule_custom(0.1, 7, 12), start = start, control = reparam())
  D <- 2^2 + (1 + 0.25)
  expect_equal(g$D, D)
  expect_equal(c(g$a, g$b, g$gamma, g$N, g$K), c(160, 208, 0.1, 7, 12))
  expect_equal(g$bounds[["distance"]], 0.1 / 14 * (160 * D + 208) + D / (2 * 0.1 * 12))
  expect_identical(g$kind, "finite horizon")
  expect_true(all(status_of(g) == "holds"))
  # F = ((mu - m)'A(mu - m) + tr(A S^2)) / 2 - log|S|; F* = d/2 + log|A|/2
  expect_equal(g$gap_start, (4 + 4 + 4) / 2 - log(2) - (1 + log(4) / 2))

  # a preconditioner enters a, b and, inverted, D
  g <- guarantee(quadratic, base_gaussian(), schedule_custom(0.1, 7, 12), start = start,
                 control = reparam(precondition = c(mu = 0.5, Sigma = 0.25)))
  expect_equal(g$D, 4 / 0.5 + 1.25 / 0.25)
  expect_equal(g$a, 16)   # as above
  expect_equal(g$bounds[["distance"]], 0.1 / 14 * (16 * g$D + 50) + g$D / (2 * 0.1 * 12))

  # the set: a lower scale_min makes F less smooth and the entropy noisier
  g <- guarantee(quadratic, base_gaussian(), schedule_custom(0.05, 7, 12), start = start,
                 control = reparam(scale_min = 0.25))
  expect_equal(1 / g$lip, 1 / (4 + 16))
  expect_equal(g$b, 40 + 128 * 1.25 + 2 * 16)
  expect_identical(unname(status_of(g)["step"]), "holds")
})

test_that("in case 2 the coefficient of |Sigma0 - Sigma*|^2 is 4 (d - 1 + kappa) L / sqrt(E)", {
  bound_from <- function(mu, s, preset, E, model, base) {
    guarantee(model, base, schedule_fixed(E, preset), start = list(mu = mu, Sigma = s), control = reparam())$bounds[["distance"]]
  }
  for (base in list(base_gaussian(), base_uniform())) {
    d <- 2
    kappa <- base_info(base, d)$kurtosis
    # N = K = 30: tau = K/(K + 1) is that of a = 4 L^2, so nothing is rounded
    at <- function(mu, s) bound_from(mu, s, "case2", 900, quadratic, base)
    base_bound <- at(c(1, -1), diag(c(1, 0.5)))
    b <- bg_constants(quadratic, base, case2_lambda(d, kappa))$b
    expect_equal(base_bound, (1 / 8) / (2 * 30) * b)
    expect_equal(at(c(1, -1), diag(c(3, 0.5))) - base_bound, 4 * 4 * (d - 1 + kappa) / 30 * 4)
    expect_equal(at(c(4, -1), diag(c(1, 0.5))) - base_bound, 4 * 2 / 30 * 9)
  }
  # case 1 in dimension 1: d + kappa = 4, N = 40, K = 10
  line <- model_quadratic(4)
  at <- function(mu, s) bound_from(mu, s, "case1", 400, line, base_gaussian())
  expect_equal(at(2, 0.5) - at(0, 0.5), 4 * 2 / 20 * 2 * 4)
  expect_equal(at(0, 2.5) - at(0, 0.5), 4 * 2 / 20 * 2 * 4)
})

test_that("presets whose rounding left the weights short of a are charged the excess", {
  # E = 3: K = round(sqrt(3)) = 2, N = 1, so tau = 2/3 is that of a = 4 L^2 / 2 < a
  start <- list(mu = c(3, -1), Sigma = diag(c(2, 1)))
  g <- guarantee(quadratic, base_gaussian(), schedule_fixed(3, "case2"), start = start, control = reparam())
  expect_equal(c(g$N, g$K, g$gamma), c(1, 2, 1 / 8))
  w <- 64 / 2
  a <- g$a
  b <- g$b
  expect_equal(c(a, b), c(40, 24 * 40 / 37 * 1.25 + 1))   # by hand above
  q <- g$gamma^2
  D_k <- (g$D + b / a) * (1 + a * q)^(0:1) - b / a
  weight <- (2 / 3)^(1:2)
  mean_D <- sum(weight * D_k) / sum(weight)
  expect_equal(g$bounds[["distance"]], g$gamma / 2 * (w * g$D + (a - w) * mean_D + b) + g$D / (2 * g$gamma * 2))
})

test_that("the dynamic bound is (D + b/a) / (2 sum step exp(-a sum step^2/N))", {
  start <- list(mu = c(3, -1), Sigma = diag(c(2, 1)))
  D <- 5.25
  by_hand <- function(step, batch) {
    total <- 0
    used <- 0
    for (k in seq_along(step)) {
      used <- used + step[k]^2 / batch[k]
      total <- total + step[k] * exp(-160 * used)
    }
    (D + 208 / 160) / (2 * total)
  }
  k <- 1:50
  g <- guarantee(quadratic, schedule = schedule_decay(500, step = 0.1, batch = 10, epsilon = 0.2), start = start,
                 control = reparam())
  expect_identical(g$kind, "dynamic")
  expect_equal(g$K, 50)
  expect_equal(g$bounds[["distance"]], by_hand(0.1 * k^-0.7, rep(10, 50)))
  g <- guarantee(quadratic, schedule = schedule_growing(sum(ceiling(10 * k^1.5)), batch = 10, nu = 0.5), start = start,
                 control = reparam())
  expect_equal(g$K, 50)
  expect_equal(g$bounds[["distance"]], by_hand(rep(1 / 8, 50), ceiling(10 * k^1.5)))
  expect_equal(g$N, c(first = 10, last = ceiling(10 * 50^1.5)))
  g <- guarantee(quadratic, schedule = schedule_custom(c(0.1, 0.05, 0.02), c(5, 10, 20)), start = start,
                 control = reparam())
  expect_equal(g$bounds[["distance"]], by_hand(c(0.1, 0.05, 0.02), c(5, 10, 20)))
  # stopping early is a shorter horizon
  g <- guarantee(quadratic, schedule = schedule_custom(c(0.1, 0.05, 0.02), c(5, 10, 20)), start = start,
                 control = reparam(iterations = 2))
  expect_equal(g$bounds[["distance"]], by_hand(c(0.1, 0.05), c(5, 10)))
})

# ---- single gradients ------------------------------------------------------------------

test_that("with single gradients steps may be long and the set may exclude the optimum", {
  skip_on_cran()
  long <- function(batch) guarantee(logistic(), schedule = schedule_custom(0.15, batch, 40), control = reparam())
  expect_identical(unname(status_of(long(1))["step"]), "fails")
  expect_true(is.finite(long(1)$bound))
  expect_true(is.na(long(2)$bound))
  expect_identical(long(1)$bounds[["distance"]], 0.15 / 2 * (long(1)$a * long(1)$D + long(1)$b) + long(1)$D / (2 * 0.15 * 40))

  # scale_min = 1 is above the optimum's scales: bounded about the nearest point of the set
  high <- function(schedule) guarantee(logistic(), schedule = schedule, control = reparam(scale_min = 1))
  g <- high(schedule_custom(0.002, 1, 300))
  best <- elvi_optimum(logistic())
  nearest <- list(mu = best$mu, Sigma = project_scale("symmetric", best$Sigma, 1, Inf)$scale)
  above <- objective(nearest, logistic())$estimate - best$objective
  expect_gt(above, 0.1)
  expect_equal(g$D, sum(best$mu^2) + sum((diag(3) - nearest$Sigma)^2))
  expect_equal(g$bounds[["distance"]], above + 0.001 * (g$a * g$D + g$b) + g$D / (2 * 0.002 * 300))
  expect_identical(unname(status_of(g)["set contains it"]), "fails")
  expect_true(is.na(high(schedule_custom(0.002, 2, 300))$bound))
  gap <- mean_gap(logistic(), base_gaussian(), schedule_custom(0.002, 1, 300), reparam(scale_min = 1), runs = 20)
  expect_lt(gap[["mean"]] + 4 * gap[["se"]], g$sharper)
  expect_error(best_split(g, 100), "single gradients", class = "elvi_error_no_guarantee")
  expect_true(is.na(budget_for(g, 2)[["best_split"]]))
  # and nothing almost surely about sums of gaps to a minimum that is not there
  expect_identical(high(schedule_decay(300))$almost_surely$status[1], "fails")
})

test_that("about a point above the minimum no sequence allowed by the recursion beats the bounds", {
  skip_on_cran()
  # gaps to the nearest point of a set without the optimum may be negative, which lets D_k grow faster
  set.seed(6)
  for (trial in 1:40) {
    K <- sample(2:20, 1)
    varies <- trial %% 2 == 0
    step <- if (varies) runif(K, 0.1, 1) else rep(runif(1, 0.1, 1), K)
    a <- runif(1, 0.5, 3)
    b <- runif(1, 0, 1)
    D <- runif(1, 0, 1)
    below <- runif(1, 0, 2)
    w <- a * sample(c(0, 0.1, 0.5, 1), 1)
    weights <- step * exp(-cumsum(log1p(w * step^2)))
    average <- function(left) {
      D_k <- D
      gap <- numeric(K)
      for (k in seq_len(K)) {
        most <- (1 + a * step[k]^2) * D_k + b * step[k]^2 + 2 * step[k] * below
        gap[k] <- most * (1 - left[k]) / (2 * step[k]) - below
        D_k <- most * left[k]
      }
      sum(weights * gap) / sum(weights)
    }
    found <- if (varies) lapply(dynamic_bounds(a, b, D, step, 1, w, below), function(v) v[K])
             else finite_horizon_bound(a, b, D, step[1], 1, K, w, below)
    for (i in 1:10) expect_lte(average(runif(K)^sample(c(0.1, 1, 4), 1)), found$sharper + 1e-9)
    expect_lte(average(c(rep(1, K - 1), 0)), found$sharper + 1e-9)
  }
  # psgd's printed a is short for heavy tails, so that this matters
  g <- guarantee(model_quadratic(diag(10)), base_student(4.2), schedule_fixed(50, "psgd"), control = reparam(scale_min = 1.5))
  expect_lt(g$a_weights, g$a)
  expect_gt(g$shift, 0)
  naive <- g$shift + with(g, finite_horizon_bound(a, b, D, gamma, N, K, a_weights)$bound)
  expect_gt(g$bound, naive)
})

# ---- without convexity -------------------------------------------------------------------

test_that("the non-convex bound is the theorem's", {
  g <- guarantee(bumpy(), schedule = schedule_growing(1000, step = 0.1, batch = 2, nu = 1), control = compact())
  expect_identical(g$kind, "non-convex")
  batch <- 2 * (1:10)^2   # 770 in all; the next would be 242
  batch <- batch[seq_len(g$K)]
  # lambda = 1, v = 3, L = 2, |mu| <= 5, |Sigma| <= 3, sigma_min = 1/sqrt(2)
  B <- 4 * (1 + 1) * 25 + 4 * (1 + 3 + 1) * 9 + 2 * 2
  expect_equal(g$moment, B)
  expect_equal(g$bounds[["distance"]], 4 * (g$gap0 + B * sum(0.1 / batch)) / (g$K * 0.1 * (1 - 0.1 * 4)))
  told <- guarantee(bumpy(), schedule = schedule_growing(1000, step = 0.1, batch = 2, nu = 1), control = compact(),
                    gap0 = 2)
  expect_equal(told$bound, 4 * (2 + B * sum(0.1 / batch)) / (told$K * 0.1 * (1 - 0.1 * 4)))
  expect_equal(predict(g, 1e5), guarantee(bumpy(), schedule = schedule_growing(1e5, step = 0.1, batch = 2, nu = 1),
                                          control = compact())$bound)
})

test_that("its two ingredients bound what they should", {
  g <- guarantee(bumpy(), schedule = schedule_growing(1000, step = 0.1), control = compact(),
                 start = list(mu = 4, Sigma = 1))
  objective <- function(mu, s) integrate(function(z) log1p((mu + s * z)^2) * dnorm(z), -Inf, Inf)$value - log(s)
  set.seed(7)
  z <- rnorm(1e4)
  grid <- expand.grid(mu = seq(-5, 5, length.out = 11), s = seq(1 / sqrt(2), 3, length.out = 7))
  there <- mapply(objective, grid$mu, grid$s)
  expect_gt(g$gap0, objective(4, 1) - min(there))
  noise <- mapply(function(mu, s) {
    gradient <- 2 * (mu + s * z) / (1 + (mu + s * z)^2)
    mean(gradient^2 + (gradient * z - 1 / s)^2)
  }, grid$mu, grid$s)
  expect_gt(g$moment, max(noise))
})

test_that("the smallest mean squared gradient mapping stays below the bound", {
  skip_on_cran()
  schedule <- schedule_growing(300, step = 0.1, batch = 2, nu = 1)
  g <- guarantee(bumpy(), schedule = schedule, control = compact(), start = list(mu = 4, Sigma = 1))
  # exact gradient mapping at some of the iterates of the run
  k <- c(1, 3, g$K - 1)
  node <- seq(-8, 8, by = 0.05)
  w <- dnorm(node) / sum(dnorm(node))
  mapping2 <- function(mu, s) {
    x <- mu + s * node
    gradient <- 2 * x / (1 + x^2)
    to <- c(mu - 0.1 * sum(w * gradient), s - 0.1 * (sum(w * gradient * node) - 1 / s))
    to <- c(sign(to[1]) * min(abs(to[1]), 5), min(max(to[2], 1 / sqrt(2)), 3))
    sum((c(mu, s) - to)^2) / 0.1^2
  }
  squares <- vapply(1:50, function(seed) {
    set.seed(seed)
    vapply(k, function(k) {
      fit <- suppressMessages(elvi(bumpy(), schedule = schedule, start = list(mu = 4, Sigma = 1),
                                   control = compact(iterations = k)))
      mapping2(fit$last$mu[[1]], fit$last$scale[[1]])
    }, 0)
  }, numeric(length(k)))
  expect_lt(min(rowMeans(squares)), g$bound)
})

test_that("without convexity the set must be compact and the steps below 1/(2L)", {
  growing <- schedule_growing(1000, step = 0.1)
  smooth <- c("f smooth" = "assumed")   # as the user says
  expect_identical(doubts(bumpy(), schedule = growing, control = compact()), smooth)
  expect_identical(doubts(bumpy(NA), schedule = growing, control = compact()), smooth)
  expect_identical(doubts(bumpy(), schedule = schedule_growing(1000), control = compact()), c(smooth, step = "fails"))
  expect_identical(names(doubts(bumpy(), schedule = growing, control = reparam(scale_max = 3))),
                   c("f smooth", "set compact", "start gap bounded"))
  expect_identical(doubts(bumpy(), schedule = growing, control = elvi_control(coordinates = "raw", scale_max = 3,
                                                                             mu_radius = 5)), c(smooth, estimator = "fails"))
})
