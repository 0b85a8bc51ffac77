# f(x) = (x - m)' A (x - m) / 2 without noise: iterates are known in closed form
A <- matrix(c(2, 0.5, 0, 0.5, 1, 0.3, 0, 0.3, 0.7), 3)
m <- c(a = 1, b = -2, c = 0.5)
exact <- function(theta, n) A %*% (theta - m)

# (I - by A)^k x
shrink <- function(A, by, k, x) {
  e <- eigen(A, symmetric = TRUE)
  drop(e$vectors %*% ((1 - by * e$values)^k * crossprod(e$vectors, x)))
}

constant_steps <- function(step, batch = 1, iterations) schedule_custom(step, batch, iterations)

# ---- the iteration -----------------------------------------------------------

test_that("without projection the iterates are (I - step A)^k (theta0 - m) + m", {
  start <- c(a = 3, b = 0, c = -1)
  run <- mpsgd(start, exact, schedule = constant_steps(0.3, iterations = 17), average = "last")
  expect_equal(unname(run$theta), unname(m) + shrink(A, 0.3, 17, start - m), tolerance = 1e-13)
  expect_named(run$theta, c("a", "b", "c"))
  expect_identical(run$theta, run$last)
  expect_identical(run$status, "finished")
})

test_that("lambda scales the steps of its block, and blocks keep their shapes", {
  start <- list(x = c(3, 0, -1), M = matrix(c(1, 2, 3, 4, 5, 6), 3, dimnames = list(NULL, c("u", "v"))))
  gradient <- function(theta, n) {
    stopifnot(identical(dim(theta$M), c(3L, 2L)), identical(colnames(theta$M), c("u", "v")))
    list(M = A %*% theta$M, x = A %*% theta$x)   # the order does not matter
  }
  run <- mpsgd(start, gradient, schedule = constant_steps(0.3, iterations = 9),
               lambda = c(M = 0.25), average = "last")
  expect_equal(run$theta$x, shrink(A, 0.3, 9, start$x), tolerance = 1e-13)
  expect_equal(unname(run$theta$M), unname(apply(start$M, 2, function(c) shrink(A, 0.075, 9, c))),
               tolerance = 1e-13)
  expect_identical(attributes(run$theta$M), attributes(start$M))
  expect_identical(run$plan$lambda, c(x = 1, M = 0.25))
})

test_that("a single matrix and a lambda of its own", {
  run <- mpsgd(diag(3), function(theta, n) A %*% theta, lambda = 0.5,
               schedule = constant_steps(0.4, iterations = 6), average = "last")
  expect_equal(run$theta, apply(diag(3), 2, function(c) shrink(A, 0.2, 6, c)), tolerance = 1e-13)
})

test_that("step and batch follow the schedule", {
  seen <- numeric()
  gradient <- function(theta, n) {
    seen <<- c(seen, n)
    1
  }
  run <- mpsgd(0, gradient, average = "last",
               schedule = schedule_decay(60, step = 0.5, batch = 2, epsilon = 0.2, growth = 0.5))
  k <- seq_len(run$plan$iterations)
  expect_identical(seen, ceiling(2 * sqrt(k)))
  expect_equal(run$theta, -sum(0.5 * k^-0.7), tolerance = 1e-14)
  expect_identical(run$trace$batch[-1], seen)
  expect_identical(run$trace$evals, c(0, cumsum(seen)))
  expect_equal(run$trace$step[-1], 0.5 * k^-0.7, tolerance = 1e-14)
  expect_lte(sum(seen), 60)
  expect_gt(sum(seen) + ceiling(2 * sqrt(length(k) + 1)), 60)
})

test_that("one step of length 1 on |x - c|^2 / 2 is the projection of c", {
  target <- c(2, -1, 0.5, 0.1)
  project <- project_simplex()
  run <- mpsgd(c(9, 9, 9, 9), function(theta, n) theta - target, project,   # starts outside
               schedule = constant_steps(1, iterations = 1), average = "last")
  expect_equal(run$theta, project(target))
  expect_equal(run$trace$gradient_map, c(NA, sqrt(sum((9 - project(target))^2))))
})

test_that("blocks are projected one by one, and free blocks not at all", {
  skip_on_cran()
  start <- list(x = c(0, 0), y = c(0, 0))
  gradient <- function(theta, n) list(x = theta$x - c(3, 4), y = theta$y - c(3, 4))
  run <- mpsgd(start, gradient, project = list(y = project_ball(0, 1)),
               schedule = constant_steps(0.5, iterations = 200), average = "last")
  expect_equal(run$theta, list(x = c(3, 4), y = c(0.6, 0.8)), tolerance = 1e-12)
  # the gradient mapping at a constrained minimiser is 0, though the gradient is not
  expect_lt(run$trace$gradient_map[nrow(run$trace)], 1e-12)
})

test_that("a start outside the set is allowed: the first step projects", {
  visited <- list()
  gradient <- function(theta, n) {
    visited <<- c(visited, list(theta))
    theta
  }
  mpsgd(c(-5, 8), gradient, project_box(1, 2), constant_steps(0.1, iterations = 3), average = "last")
  expect_identical(visited[[1]], c(-5, 8))
  expect_identical(visited[[2]], c(1, 2))
})

test_that("the gradient mapping is in the metric of lambda", {
  start <- list(x = c(1, 2), y = 3)
  run <- mpsgd(start, function(theta, n) list(x = c(3, 4), y = 2), lambda = c(x = 0.5, y = 0.1),
               schedule = constant_steps(0.3, iterations = 2), average = "last")
  # unconstrained: |g|^2 in the metric of lambda, 0.5 * 25 + 0.1 * 4
  expect_equal(run$trace$gradient_map, c(NA, 1, 1) * sqrt(12.9), tolerance = 1e-13)
})

# ---- averages ----------------------------------------------------------------

test_that("constant step and batch: theorem weights are tau^(k + 1)", {
  step <- 0.3; batch <- 4; a <- 7; K <- 12
  run <- mpsgd(1, function(theta, n) theta, schedule = constant_steps(step, batch, K), a = a)
  tau <- 1 / (1 + a * step^2 / batch)
  q <- 1 - step                       # theta_k = q^k
  top <- tau * (1 - (tau * q)^K) / (1 - tau * q)
  bottom <- tau * (1 - tau^K) / (1 - tau)
  expect_equal(run$theta, top / bottom, tolerance = 1e-13)
  expect_equal(run$last, q^K, tolerance = 1e-13)
  expect_identical(run$plan$bg_a, 7)
})

test_that("varying step and batch: theorem weights are step_k alpha_(k + 1)", {
  a <- 3
  run <- mpsgd(c(0, 1), function(theta, n) c(-1, 2), a = a,
               schedule = schedule_decay(400, step = 0.8, batch = 2, epsilon = 0.1, growth = 0.4))
  k <- seq_len(run$plan$iterations) - 1
  step <- 0.8 * (k + 1)^-0.6
  batch <- ceiling(2 * (k + 1)^0.4)
  weight <- step * cumprod(1 / (1 + a * step^2 / batch))
  travelled <- c(0, cumsum(step)[-length(step)])   # theta_k, k = 0, ..., K - 1
  mean_travel <- sum(weight * travelled) / sum(weight)
  expect_equal(run$theta, c(0, 1) + c(1, -2) * mean_travel, tolerance = 1e-13)
})

test_that("a = 0 weighs by the steps alone", {
  step <- c(0.5, 0.25, 1)
  run <- mpsgd(0, function(theta, n) -1, schedule = schedule_custom(step, 1), a = 0)
  expect_equal(run$theta, sum(step * c(0, 0.5, 0.75)) / sum(step))
})

test_that("the tail average is the mean of the last part", {
  tail_of <- function(tail) {
    mpsgd(0, function(theta, n) -1, average = "tail", tail = tail,
          schedule = constant_steps(1, iterations = 10))$theta   # theta_k = k
  }
  expect_equal(tail_of(0.3), mean(8:10))
  expect_equal(tail_of(0.5), mean(6:10))
  expect_equal(tail_of(1), mean(1:10))
  expect_identical(tail_of(0), 10)
})

test_that("the last iterate is not blurred by a large start", {
  run <- mpsgd(1e17, function(theta, n) 0, project_box(0.2, 0.3), average = "last",
               schedule = constant_steps(1, iterations = 1))
  expect_identical(run$theta, 0.3)   # and not 1e17 + (0.3 - 1e17)
})

# ---- against elvi() ----------------------------------------------------------

# elvi's gradient from elvi's draws: `key` and the iteration fix them
replay <- function(fit, P, centre) {
  bound <- law_of(fit$base, fit$model$dim)
  k <- 0
  function(theta, n) {
    z <- draw_base(bound, fit$seed, n, iteration = k)
    k <<- k + 1
    g <- P %*% (theta$mu + theta$Sigma %*% z - centre)
    outer <- tcrossprod(g, z) / n
    list(mu = rowMeans(g), Sigma = (outer + t(outer)) / 2 - solve(theta$Sigma))
  }
}

for (average in c("theorem", "tail", "last")) {
  test_that(paste0("mpsgd() replays elvi(), average = \"", average, "\""), {
    P <- crossprod(matrix(c(1, 0.4, -0.3, 0, 1.2, 0.5, 0.2, 0, 0.8), 3)) + diag(c(0, 0, 3))
    centre <- c(1, -1, 0.5)
    schedule <- schedule_custom(step = function(k) 0.2 / sqrt(k + 1), batch = function(k) 3 + k %/% 10,
                                iterations = 137)
    control <- elvi_control(coordinates = "raw", estimator = "reparam", average = average, tail = 0.4,
                            precondition = c(mu = 1, Sigma = 0.3), scale_max = 0.9, mu_radius = 1.2,
                            trace_draws = 0)
    set.seed(11)
    fit <- elvi(model_quadratic(P, centre), base_laplace(), schedule, control = control,
                start = list(Sigma = 0.6))
    # a run on which both projections work
    expect_gt(sum(fit$trace$clipped > 0), 20)
    expect_lt(abs(sqrt(sum(fit$state$mu^2)) - 1.2), 1e-8)

    run <- mpsgd(list(mu = c(0, 0, 0), Sigma = 0.6 * diag(3)), replay(fit, P, centre),
                 project = list(mu = project_ball(0, 1.2),
                                Sigma = project_psd(fit$feasible$scale_min, 0.9)),
                 schedule = schedule, lambda = c(mu = 1, Sigma = 0.3), average = average,
                 a = fit$plan$bg_a, tail = 0.4)
    expect_equal(run$theta$mu, fit$state$average_mu, tolerance = 1e-10)
    expect_equal(run$theta$Sigma, fit$state$average_scale, tolerance = 1e-10)
    expect_equal(run$last, list(mu = fit$state$mu, Sigma = fit$state$scale), tolerance = 1e-10)
    columns <- c("iteration", "evals", "batch", "step", "gradient_map")
    expect_equal(run$trace[-1, columns], fit$trace[-1, columns], tolerance = 1e-10)
    expect_identical(run$trace$iteration, fit$trace$iteration)
  })
}

# ---- continuing --------------------------------------------------------------

noisy <- function(theta, n) theta - colMeans(matrix(rnorm(2 * n), n)) + 0.1 * rnorm(1) * theta
in_ball <- project_ball(0, 3)
square <- function(theta) sum(theta^2)

test_that("two pieces, and three, are identical() to the whole", {
  skip_on_cran()
  for (average in c("theorem", "tail", "last")) {
    go <- function(iterations) {
      set.seed(3)
      mpsgd(c(4, -4), noisy, in_ball, schedule_growing(30000, step = 0.3, batch = 2),
            average = average, a = 2, objective = square, iterations = iterations)
    }
    whole <- go(Inf)
    half <- go(23)
    resumed <- mpsgd(half)
    three <- mpsgd(mpsgd(go(80), iterations = 105))
    expect_gt(whole$state$k, 110)
    expect_identical(c(half$status, half$state$k), c("paused", "23"))
    expect_true(identical(resumed, whole))
    expect_true(identical(three, whole))
  }
})

test_that("a longer budget continues the run as if it had been planned", {
  go <- function(budget, average) {
    set.seed(4)
    mpsgd(c(4, -4), noisy, schedule = schedule_decay(budget, step = 0.5, batch = 2, growth = 0.3),
          average = average, a = 2, objective = square)
  }
  for (average in c("theorem", "tail", "last")) {
    whole <- go(2000, average)
    longer <- mpsgd(go(500, average), budget = 2000)
    expect_true(identical(longer, whole))
  }
})

test_that("a shorter run's last row is not in a longer run's trace", {
  run <- mpsgd(1, function(theta, n) theta, average = "last",
               schedule = schedule_decay(123, step = 0.5))
  grid <- c(0:99, seq(100, 120, 10))
  expect_identical(run$trace$iteration, c(grid, 123))
  longer <- mpsgd(run, budget = 131)
  expect_identical(longer$trace$iteration, c(grid, 130, 131))
})

test_that("a complete run says so and is returned as it is", {
  run <- mpsgd(1, function(theta, n) theta, average = "last",
               schedule = constant_steps(0.5, iterations = 3))
  expect_message(again <- mpsgd(run), "complete", class = "elvi_message")
  expect_identical(again, run)
})

test_that("the trace's objective is that of the iterate", {
  run <- mpsgd(1, function(theta, n) theta, objective = function(theta) theta^2, average = "last",
               schedule = constant_steps(0.5, iterations = 4))
  expect_equal(run$trace$objective, 0.25^(0:4))
  bare <- mpsgd(1, function(theta, n) theta, average = "last",
                schedule = constant_steps(0.5, iterations = 4))
  expect_identical(bare$trace$objective, rep(NA_real_, 5))
})

# ---- interrupts --------------------------------------------------------------

interrupt_now <- function() {
  signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
}

test_that("an interrupt returns the run so far, which goes on from there", {
  calls <- 0
  gradient <- function(theta, n) {
    calls <<- calls + 1
    if (calls == 6) interrupt_now()
    theta
  }
  go <- function() mpsgd(1, gradient, schedule = constant_steps(0.5, iterations = 9), a = 1)
  expect_warning(run <- go(), "after 5 of 9", class = "elvi_warning_interrupted")
  expect_identical(run$status, "interrupted")
  expect_equal(run$last, 0.5^5)
  expect_identical(run$trace$iteration, as.double(0:5))

  calls <- 100   # no more interrupts
  expect_identical(mpsgd(run), go())
})

test_that("an interrupt before the first iteration leaves one row, once", {
  calls <- 0
  gradient <- function(theta, n) {
    calls <<- calls + 1
    if (calls == 1) interrupt_now()
    theta
  }
  go <- function() mpsgd(1, gradient, schedule = constant_steps(0.5, iterations = 2), a = 1)
  expect_warning(run <- go(), class = "elvi_warning_interrupted")
  expect_identical(run$theta, 1)
  expect_identical(mpsgd(run), go())
})

test_that("a signal from outside interrupts too", {
  skip_on_os("windows")
  skip_on_cran()
  sent <- FALSE
  gradient <- function(theta, n) {
    if (theta < 0.1 && !sent) {
      sent <<- TRUE
      tools::pskill(Sys.getpid(), tools::SIGINT)
      Sys.sleep(5)
    }
    theta
  }
  expect_warning(run <- mpsgd(1, gradient, schedule = constant_steps(0.5, iterations = 99), average = "last"),
                 class = "elvi_warning_interrupted")
  expect_identical(run$last, 0.0625)
})

# ---- bad input ---------------------------------------------------------------

plain <- function(theta, n) theta

test_that("a user's error reaches the user unchanged", {
  own <- structure(class = c("my_error", "error", "condition"), list(message = "mine", call = NULL))
  schedule <- constant_steps(0.5, iterations = 3)
  expect_identical(tryCatch(mpsgd(1, function(theta, n) stop(own), schedule = schedule, a = 1),
                            error = identity), own)
  expect_error(mpsgd(1, plain, function(x) stop(own), schedule, a = 1), class = "my_error")
  expect_error(mpsgd(1, plain, schedule = schedule, a = 1, objective = function(theta) stop(own)),
               class = "my_error")
})

test_that("a gradient that is not finite stops at its iteration", {
  at_third <- function(theta, n) if (theta < 0.3) NaN else theta
  failure <- tryCatch(mpsgd(1, at_third, schedule = constant_steps(0.5, iterations = 9), a = 1),
                      error = identity)
  expect_s3_class(failure, c("elvi_error_nonfinite", "elvi_error"), exact = FALSE)
  expect_identical(failure$iteration, 3)
  expect_identical(failure$theta, 0.25)
  expect_snapshot(error = TRUE, {
    mpsgd(1, at_third, schedule = constant_steps(0.5, iterations = 9), a = 1)
    # a finite gradient whose step overflows
    mpsgd(1e308, function(theta, n) -theta, schedule = constant_steps(2, iterations = 9), a = 1)
  })
})

test_that("shapes that do not match are refused", {
  schedule <- constant_steps(0.5, iterations = 3)
  go <- function(start, gradient, project = NULL) mpsgd(start, gradient, project, schedule, a = 1)
  expect_snapshot(error = TRUE, {
    go(c(1, 2), function(theta, n) 1)
    go(c(1, 2), function(theta, n) t(theta))
    go(c(1, 2), function(theta, n) c("a", "b"))
    go(c(1, 2), function(theta, n) NULL)
    go(diag(2), function(theta, n) c(1, 2, 3, 4))
    go(list(x = 1, y = diag(2)), function(theta, n) theta["x"])
    go(list(x = 1, y = diag(2)), function(theta, n) list(x = 1, z = diag(2)))
    go(list(x = 1, y = diag(2)), function(theta, n) list(x = 1, y = diag(3)))
    go(list(x = 1, y = diag(2)), function(theta, n) 1)
    go(c(1, 2), plain, function(x) x[1])
    go(c(1, 2), plain, function(x) x / 0)
    go(list(x = 1, y = diag(2)), plain, list(y = diag))
  })
  # a one-column matrix is the same shape as a vector
  expect_identical(go(c(1, 2), function(theta, n) cbind(theta))$theta, go(c(1, 2), plain)$theta)
})

test_that("arguments are refused by name", {
  skip_on_cran()
  schedule <- constant_steps(0.5, iterations = 3)
  blocks <- list(x = 1, y = c(1, 2))
  expect_snapshot(error = TRUE, {
    mpsgd(1, plain, schedule = schedule)
    mpsgd(1, plain, a = 1)
    mpsgd(1, schedule = schedule, a = 1)
    mpsgd("a", plain, schedule = schedule, a = 1)
    mpsgd(c(1, NA), plain, schedule = schedule, a = 1)
    mpsgd(numeric(), plain, schedule = schedule, a = 1)
    mpsgd(list(1, 2), plain, schedule = schedule, a = 1)
    mpsgd(list(x = 1, x = 2), plain, schedule = schedule, a = 1)
    mpsgd(list(x = 1, y = "b"), plain, schedule = schedule, a = 1)
    mpsgd(cars, plain, schedule = schedule, a = 1)
    mpsgd(1, 7, schedule = schedule, a = 1)
    mpsgd(1, function(theta) theta, schedule = schedule, a = 1)
    mpsgd(1, plain, project = 7, schedule = schedule, a = 1)
    mpsgd(blocks, plain, project = identity, schedule = schedule, a = 1)
    mpsgd(blocks, plain, project = list(z = identity), schedule = schedule, a = 1)
    mpsgd(blocks, plain, project = list(y = 7), schedule = schedule, a = 1)
    mpsgd(1, plain, schedule = 0.1, a = 1)
    mpsgd(1, plain, schedule = schedule_fixed(100), a = 1)
    mpsgd(1, plain, schedule = schedule_growing(100), a = 1)
    mpsgd(1, plain, schedule = schedule, lambda = 2, a = 1)
    mpsgd(1, plain, schedule = schedule, lambda = c(0.5, 0.5), a = 1)
    mpsgd(blocks, plain, schedule = schedule, lambda = 0.5, a = 1)
    mpsgd(blocks, plain, schedule = schedule, lambda = c(z = 0.5), a = 1)
    mpsgd(blocks, plain, schedule = schedule, lambda = c(x = 0), a = 1)
    mpsgd(1, plain, schedule = schedule, a = -1)
    mpsgd(1, plain, schedule = schedule, average = "mean", a = 1)
    mpsgd(1, plain, schedule = schedule, average = "tail", tail = 2)
    mpsgd(1, plain, schedule = schedule, a = 1, objective = 7)
    mpsgd(1, plain, schedule = schedule, a = 1, objective = function(theta) c(1, 2))
    mpsgd(1, plain, schedule = schedule, a = 1, iterations = 0)
    mpsgd(1, plain, schedule = schedule, a = 1, lamda = 0.5)
    mpsgd(1, plain, schedule = schedule, a = 1, budget = 100)
  })
})

test_that("continuing is refused by name too", {
  custom <- mpsgd(1, plain, schedule = constant_steps(0.5, iterations = 3), a = 1, iterations = 1)
  growing <- mpsgd(1, plain, schedule = schedule_growing(100, step = 0.5, batch = 3), a = 1)
  expect_snapshot(error = TRUE, {
    mpsgd(custom, budget = 10)
    mpsgd(growing, budget = 10)
    mpsgd(growing, budget = -1)
    mpsgd(growing, iterations = "a")
    mpsgd(growing, bugdet = 1000)
  })
})

test_that("printing says what was run, how it ended and what came out", {
  schedule <- constant_steps(0.5, 2, 4)
  expect_snapshot({
    mpsgd(c(a = 1, b = 2), plain, schedule = schedule, a = 1, objective = function(theta) sum(theta^2))
    mpsgd(list(x = 1, M = diag(11)), plain, schedule = schedule, average = "last", iterations = 2)
    mpsgd(as.double(1:12), plain, schedule = schedule, average = "tail")
  })
})

test_that("a checkpoint keeps the random state when a call makes no step", {
  noisy <- function(theta, n) theta + rnorm(length(theta)) / sqrt(n)
  go <- function(file = NULL, iterations = Inf) {
    suppressMessages(mpsgd(c(1, 2), noisy, schedule = schedule_custom(0.1, 4, iterations = 50), average = "tail",
                           checkpoint = file, iterations = iterations))
  }
  file <- tempfile()
  set.seed(1)
  whole <- go()
  set.seed(1)
  go(file, 7)
  go(file, 7)
  expect_identical(go(file)$theta, whole$theta)
})

# ---- steps that are checked -------------------------------------------------------------

# least squares by rows, with a value on the same draws
ls_rows <- local({
  set.seed(31)
  X <- matrix(rnorm(90), 30) %*% diag(c(3, 1, 0.3))
  list(X = X, y = drop(X %*% c(1, -1, 2)) + rnorm(30))
})
ls_best <- drop(qr.solve(ls_rows$X, ls_rows$y))
ls_curvature <- crossprod(ls_rows$X) / 30
ls_gradient <- function(theta, n) {
  pick <- sample(30, n, replace = TRUE)
  x <- ls_rows$X[pick, , drop = FALSE]
  drop(crossprod(x, x %*% theta - ls_rows$y[pick])) / n
}
ls_value <- function(theta, n) {
  pick <- sample(30, n, replace = TRUE)
  mean((ls_rows$X[pick, , drop = FALSE] %*% theta - ls_rows$y[pick])^2) / 2
}
ls_F <- function(theta) mean((ls_rows$X %*% theta - ls_rows$y)^2) / 2

test_that("without noise the step is the largest halving that passes", {
  A <- diag(c(1, 50))
  gradient <- function(theta, n) drop(A %*% theta)
  value <- function(theta, n) sum(theta * (A %*% theta)) / 2
  run <- mpsgd(c(1, 1), gradient, schedule = schedule_custom(10, 1, 60), average = "last", value = value, backtrack = 16)
  # passes iff 2 step p'Ap <= |p|^2, p = A theta: checked along the way by hand
  theta <- c(1, 1)
  shorten <- 1
  for (k in 1:60) {
    p <- drop(A %*% theta)
    if (k %% 10 == 1) shorten <- max(1, shorten / 2)
    while (2 * (10 / shorten) * sum(p * (A %*% p)) > sum(p^2)) shorten <- 2 * shorten
    theta <- theta - 10 / shorten * p
  }
  expect_equal(run$theta, theta)
  expect_identical(run$shortened, shorten)
  expect_gte(min(run$trace$step[-1]), 1 / (4 * 50))
  expect_error(mpsgd(c(1, 1), gradient, schedule = schedule_custom(10, 1, 400), average = "last"),
               class = "elvi_error_nonfinite")   # unchecked
  # a preconditioner: the same in its metric
  pre <- mpsgd(list(a = 1, b = 1), function(theta, n) list(a = theta$a, b = 50 * theta$b),
               schedule = schedule_custom(10, 1, 5), average = "last", lambda = c(b = 0.02),
               value = function(theta, n) (theta$a^2 + 50 * theta$b^2) / 2, backtrack = 16)
  expect_identical(pre$shortened, 32)   # 2 step <= (1 + 50) / (1 + 50)
})

test_that("every bound holds with a factor of 2 for checked steps", {
  skip_on_cran()
  size2 <- rowSums(ls_rows$X^2)
  r <- drop(ls_rows$y - ls_rows$X %*% ls_best)
  a <- 2 * norm(crossprod(ls_rows$X, size2 * ls_rows$X) / 30, "2")
  b <- 2 * mean(size2 * r^2)
  set.seed(32)
  out <- replicate(25, {
    run <- mpsgd(numeric(3), ls_gradient, schedule = schedule_custom(5, 40, 30), average = "theorem", a = a,
                 value = ls_value, backtrack = 64)
    step <- run$trace$step[-1]
    bound <- dynamic_bounds(a, b, sum(ls_best^2), step, rep(40, 30))$sharper[30]
    c(gap = ls_F(run$theta) - ls_F(ls_best), bound = 2 * bound, shortest = min(step))
  })
  expect_lt(mean(out["gap", ]) + 4 * sd(out["gap", ]) / 5, mean(out["bound", ]))
  # not below 1/(4 L), but for the noise in the curvature of a batch of 8 rows
  expect_gt(min(out["shortest", ]), 1 / (4 * norm(ls_curvature, "2")) / 4)
})

test_that("a mean field by hand, whose smoothness nobody knows", {
  skip_on_cran()
  # x = mu + s z for f = log cosh(x - 2) + x^4 / 4: no L at all
  slope <- function(x) tanh(x - 2) + x^3
  gradient <- function(theta, n) {
    z <- rnorm(n)
    g <- slope(theta$mu + theta$s * z)
    list(mu = mean(g), s = mean(g * z) - 1 / theta$s)
  }
  value <- function(theta, n) {
    z <- rnorm(n)
    x <- theta$mu + theta$s * z
    if (theta$s <= 0) Inf else mean(log(cosh(x - 2)) + x^4 / 4) - log(theta$s)
  }
  set.seed(33)
  run <- mpsgd(list(mu = 4, s = 2), gradient, project = list(s = project_box(1e-3, Inf)),
               schedule = schedule_growing(2e4, step = 1, batch = 4, nu = 0.1), average = "tail", value = value, backtrack = 64)
  F <- function(par) integrate(function(z) (log(cosh(par[1] + par[2] * z - 2)) + (par[1] + par[2] * z)^4 / 4) * dnorm(z),
                               -10, 10)$value - log(par[2])
  best <- optim(c(0.5, 0.5), F, method = "L-BFGS-B", lower = c(-5, 1e-3))
  expect_lt(run$trace$step[2], 1 / 64)   # the start is steep, the optimum is not
  expect_gt(run$trace$step[nrow(run$trace)], 4 * run$trace$step[2])
  expect_lt(F(unlist(run$theta)) - best$value, 0.05)
})

test_that("a checked run goes on from where it stopped, and is refused without its value", {
  skip_on_cran()
  go <- function(...) mpsgd(numeric(3), ls_gradient, schedule = schedule_custom(5, 10, 12), average = "tail",
                            value = ls_value, backtrack = 32, ...)
  set.seed(34)
  whole <- go()
  set.seed(34)
  parts <- mpsgd(go(iterations = 5))
  expect_identical(parts$theta, whole$theta)
  expect_identical(parts$shortened, whole$shortened)
  expect_output(print(whole), "Steps checked on 32 draws each, and divided by")
  expect_error(mpsgd(numeric(3), ls_gradient, schedule = schedule_custom(5, 10, 12), average = "tail",
                     value = function(theta, n) Inf, backtrack = 32), "No step passes", class = "elvi_error_nonfinite")
  expect_snapshot(writeLines(c(
    refusal(mpsgd(0, function(theta, n) theta, schedule = schedule_custom(1, 1, 1), average = "last", backtrack = 32), "value"),
    refusal(mpsgd(0, function(theta, n) theta, schedule = schedule_custom(1, 1, 1), average = "last", backtrack = 3,
                  value = function(theta, n) theta^2), "backtrack"),
    refusal(mpsgd(0, function(theta, n) theta, schedule = schedule_custom(1, 1, 1), average = "last", backtrack = 32,
                  value = function(theta, n) "a"), "value"),
    refusal(mpsgd(0, function(theta, n) theta, schedule = schedule_custom(1, 1, 1), average = "last", value = 1), "value")
  )))
})

test_that("the first example of the help page meets the condition that the page states", {
  file <- tempfile(fileext = ".R")
  on.exit(unlink(file))
  tools::Rd2ex(tools::Rd_db("elvi")[["mpsgd.Rd"]], file)
  code <- parse(file, keep.source = FALSE)
  page <- new.env()
  runs <- vapply(code, function(line) "run" %in% all.vars(line), NA)
  for (line in code[seq_len(which(runs)[1])]) utils::capture.output(eval(line, page))
  best <- qr.solve(page$X, page$y)
  expect_gt(min(best), 0)   # inside the set, so the gradient is 0 there
  smoothness <- norm(crossprod(page$X) / nrow(page$X), "2")
  expect_lte(max(page$run$trace$step, na.rm = TRUE), 1 / smoothness)
  loss <- function(theta) mean((page$X %*% theta - page$y)^2) / 2
  expect_lt(loss(page$run$theta) - loss(best), 0.01 * (loss(0 * best) - loss(best)))
})
