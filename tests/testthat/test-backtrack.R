# Checked steps, elvi_control(backtrack = ): src/backtrack.c.

# ---- the algorithm again, in plain R, from the draws of a run ---------------------------------

xor32 <- function(a, b) {
  16^4 * bitwXor(a %/% 16^4, b %/% 16^4) + bitwXor(a %% 16^4, b %% 16^4)
}
direction_key <- c(0x6a09e667, 0xf3bcc908)
compare_key <- c(0xbb67ae85, 0x84caa73b)

barrier <- function(S, floor) {
  v <- eigen(S, symmetric = TRUE)$values
  sum(ifelse(v >= floor, -log(pmax(v, floor)), -log(floor) + (1 - v / floor) + (1 - v / floor)^2 / 2))
}

# plain gradients of a symmetric scale on a quadratic, whose L is said to be `L`
replay <- function(fit, A, m, L, draws, iterations, step, batch) {
  law <- law_of(fit$given$base, length(m))
  key <- fit$plan$seed
  z_of <- function(by, n, k) draw_base(law, if (is.null(by)) key else xor32(key, by), n, iteration = k)
  gradient <- function(mu, S, z) {
    g <- A %*% (mu + S %*% z - m)
    G <- tcrossprod(g, z) / ncol(z)
    list(mu = rowMeans(g), S = (G + t(G)) / 2 - solve(S))
  }
  f <- function(x) colSums((x - m) * (A %*% (x - m))) / 2
  mu <- fit$plan$start$mu
  S <- fit$plan$start$scale
  shorten <- steepest <- 1
  trials <- 0
  for (k in seq_len(iterations) - 1) {
    p <- gradient(mu, S, z_of(direction_key, draws, k))
    z <- z_of(compare_key, draws, k)
    if (k %% 10 == 0) shorten <- max(1, shorten / 2)
    repeat {
      trial <- max(step(k), 1 / (2 * L)) / shorten
      steepest <- max(steepest, shorten)
      floor <- 1 / sqrt(L * steepest)
      mu2 <- mu - 2 * trial * p$mu
      S2 <- S - 2 * trial * p$S
      x <- mu + S %*% z
      x2 <- mu2 + S2 %*% z
      e <- f(x2) - f(x) - colSums((A %*% (x - m)) * (x2 - x))
      entropy <- barrier(S2, floor) - barrier(S, floor) + sum(solve(S) * (S2 - S))
      over <- mean(e) + entropy - trial * (sum(p$mu^2) + sum(p$S^2))
      trials <- trials + 1
      if (over <= 2 * sd(e) / sqrt(draws)) break
      shorten <- 2 * shorten
    }
    g <- gradient(mu, S, z_of(NULL, batch, k))
    taken <- min(step(k), trial)   # the schedule's own, not made from L
    mu <- mu - taken * g$mu
    S <- S - taken * g$S
    e <- eigen(S, symmetric = TRUE)
    S <- e$vectors %*% (pmax(e$values, 1 / sqrt(L * steepest)) * t(e$vectors))
  }
  list(mu = mu, S = S, shorten = shorten, steepest = steepest, checks = draws * iterations + 2 * draws * trials)
}

test_that("a checked run is the algorithm of the help page, draw by draw", {
  skip_on_cran()
  A <- matrix(c(20, 6, 6, 4), 2)
  model <- model_quadratic(A, c(1, -2))
  for (base in list(base_gaussian(), base_laplace())) for (decay in c(0, 0.6)) {
    L <- 1   # the right one is 22
    schedule <- schedule_custom(function(k) (k + 1)^-decay / (2 * L), 12, 25)
    set.seed(4)
    fit <- suppressMessages(elvi(model, base, schedule, control = elvi_control(
      coordinates = "raw", smoothness = L, estimator = "reparam", backtrack = 20, average = "last", block = 7)))
    again <- replay(fit, A, c(1, -2), L, 20, 25, function(k) (k + 1)^-decay / (2 * L), 12)
    expect_equal(unname(fit$last$mu), again$mu, tolerance = 1e-9)
    expect_equal(unname(fit$last$scale), again$S, tolerance = 1e-9)
    expect_identical(fit$state$shorten, again$shorten)
    expect_identical(fit$state$steepest, again$steepest)
    expect_equal(fit$state$checks, again$checks)
    expect_equal(fit$state$evals, 25 * 12 + again$checks)
    expect_gt(again$steepest, 8)   # the check had to work, through scales that were not positive definite
  }
})

# ---- what it is for -----------------------------------------------------------------------

target <- local({
  Q <- qr.Q(qr(matrix(sin(seq_len(9)^1.5), 3)))
  A <- Q %*% (c(1, 10, 100) * t(Q))
  model_quadratic((A + t(A)) / 2, m = rep(1, 3))
})
best <- elvi_optimum(target)
gap_of <- function(fit) objective(list(mu = fit$last$mu, Sigma = fit$last$scale), target)$estimate - best$objective

# an L that is too small by `factor`
run_with <- function(factor, backtrack, schedule = schedule_growing(8000, batch = 5), ...) {
  set.seed(2)
  tryCatch(suppressWarnings(suppressMessages(
    elvi(target, schedule = schedule, control = elvi_control(coordinates = "raw", smoothness = 100 / factor,
                                                            backtrack = backtrack, average = "last", ...)))),
    elvi_error_singular = function(e) NULL, elvi_error_nonfinite = function(e) NULL)
}

test_that("with L too small by 10 to 100 runs explode, and with checked steps they get where the right L would", {
  right <- gap_of(run_with(1, 0, estimator = "reparam"))
  for (factor in c(10, 30, 100)) {
    wild <- run_with(factor, 0, estimator = "reparam")
    if (!is.null(wild)) expect_gt(gap_of(wild), 1000 * right)
    fit <- run_with(factor, 16, estimator = "reparam")
    expect_identical(fit$status, "finished")
    expect_lt(gap_of(fit), 1.5 * right)
    expect_gte(fit$state$steepest, factor / 2)
    expect_lte(fit$state$steepest, 8 * factor)
    # the set has come to have the optimum
    expect_lt(sqrt(factor / 100 / fit$state$steepest), min(eigen(best$Sigma)$values) * 1.5)
  }
})

test_that("steps too short to explode stall at the edge of a set without the optimum, and do not with checks", {
  decay <- schedule_decay(20000, step = 1 / 200, batch = 20)   # short enough for the right L
  stuck <- run_with(100, 0, decay, estimator = "reparam")
  free <- run_with(100, 16, decay, estimator = "reparam")
  expect_gt(min(eigen(stuck$last$scale)$values), 0.99)   # 1/sqrt(L) with L = 1, where 0.1 would be right
  expect_lt(gap_of(free), gap_of(stuck) / 10)
})

test_that("every estimator, kind of scale and update has it", {
  skip_on_cran()
  cases <- rbind(expand.grid(estimator = c("reparam", "path", "control"), scale = names(scale_kinds), update = "project"),
                 expand.grid(estimator = c("reparam", "control"), scale = c("triangular", "diagonal"), update = "prox"))
  for (i in seq_len(nrow(cases))) {
    case <- lapply(cases[i, ], as.character)
    optimum <- elvi_optimum(target, scale = case$scale)
    judge <- function(fit) {
      theta <- symmetric_scale(case$scale, fit$state$scale, NULL)
      objective(list(mu = fit$state$mu, Sigma = theta), target)$estimate - optimum$objective
    }
    fit <- do.call(run_with, c(list(50, 16), case))
    start <- judge(list(state = fit$plan$start))
    right <- do.call(run_with, c(list(1, 0), case))
    expect_lt(judge(fit), max(2 * judge(right), 0.1 * start), label = toString(case))
    expect_gt(fit$state$steepest, 8)
  }
})

test_that("a right L is hardly ever doubted, and steps come back", {
  factors <- vapply(1:10, function(seed) {
    set.seed(seed)
    suppressMessages(elvi(target, schedule = schedule_fixed(3000, "case2"), control = elvi_control(
      coordinates = "raw", estimator = "reparam", backtrack = 16)))$state$steepest
  }, 0)
  expect_lte(max(factors), 4)   # F is smooth with 2L, so that 1/(4L) passes but for noise
  # steep where it starts, flat where it ends: f = x^4/4 + log cosh(x - 2)
  quartic <- model_density(function(x) colSums(x^4 / 4 + log(cosh(x - 2))), function(x) x^3 + tanh(x - 2), dim = 1,
                           convex = TRUE, smoothness = 1)
  set.seed(3)
  fit <- suppressMessages(elvi(quartic, schedule = schedule_growing(4000, batch = 5), start = list(mu = 6, Sigma = matrix(2)),
                               control = elvi_control(coordinates = "raw", backtrack = 16, estimator = "reparam", trace_draws = 0)))
  expect_gte(fit$state$steepest, 64)
  expect_lt(fit$state$shorten, fit$state$steepest / 4)
  expect_equal(fit$trace$step[nrow(fit$trace)], 0.5 / fit$state$shorten)
})

# ---- bookkeeping -----------------------------------------------------------------------------

test_that("a run in parts, from a checkpoint, on threads and in blocks is the same run", {
  go <- function(...) {
    set.seed(5)
    suppressMessages(elvi(target, schedule = schedule_custom(0.5, 7, 23), control = elvi_control(
      coordinates = "raw", smoothness = 2, backtrack = 16, average = "tail", ...)))
  }
  whole <- go()
  same <- c("mu", "scale", "average_mu", "average_scale", "k", "evals", "checks", "shorten", "steepest", "memory")
  parts <- go(iterations = 4)
  for (k in c(11, 12, 20, Inf)) parts <- suppressMessages(elvi(parts, iterations = k))
  expect_identical(parts$state[same], whole$state[same])
  shown <- setdiff(names(whole$trace), "cpu")
  expect_identical(parts$trace[shown], whole$trace[shown])
  expect_equal(go(block = 3)$state[same], whole$state[same], tolerance = 1e-10)
  file <- tempfile("elvi-backtrack-")
  on.exit(unlink(file))
  go(iterations = 9, checkpoint = file)
  expect_identical(go(checkpoint = file)$state[same], whole$state[same])
  expect_error(suppressMessages({
    set.seed(5)
    elvi(target, schedule = schedule_custom(0.5, 7, 23), control = elvi_control(
      coordinates = "raw", smoothness = 2, backtrack = 32, average = "tail", checkpoint = file))
  }), class = "elvi_error_checkpoint")
})

test_that("checks are counted, and come on top of the budget", {
  seen <- c(value = 0, gradient = 0)
  counting <- model_density(
    function(x) { seen["value"] <<- seen["value"] + ncol(x); colSums(x^2) * 2 },
    function(x) { seen["gradient"] <<- seen["gradient"] + ncol(x); 4 * x }, dim = 2, convex = TRUE, smoothness = 1)
  control <- function(...) elvi_control(coordinates = "raw", estimator = "reparam", average = "last", backtrack = 16, ...)
  set.seed(6)
  fit <- suppressMessages(elvi(counting, schedule = schedule_custom(0.5, 5, 12), control = control(trace_draws = 0, iterations = 1)))
  before <- fit$state
  seen[] <- 0
  fit <- iterate(fit, law_of(base_gaussian(), 2), 12, new_journal(fit))
  checks <- fit$state$checks - before$checks
  expect_equal(fit$state$evals, 12 * 5 + fit$state$checks)
  expect_equal(seen[["value"]], checks - 11 * 16)             # two for each draw of each trial
  expect_equal(seen[["gradient"]], 11 * 5 + 11 * 16 + seen[["value"]] / 2)
  expect_equal(fit$trace$evals[nrow(fit$trace)], fit$state$evals)
  more <- suppressMessages(elvi(counting, schedule = schedule_growing(200, batch = 2), control = control()))
  expect_gt(more$state$evals, 200)
  expect_lte(more$state$evals - more$state$checks, 200)
  longer <- suppressMessages(elvi(more, budget = 300))       # of the schedule's own
  expect_gt(longer$state$k, more$state$k)
  expect_output(print(summary(more)), "Steps checked on 16 fresh draws each \\([0-9,]+ of the evaluations\\), now divided by")
})

test_that("checked by default are steps from an estimate, and nothing else", {
  guess <- model_density(function(x) colSums(x^2), function(x) 2 * x, dim = 2, convex = TRUE)
  said <- model_density(function(x) colSums(x^2), function(x) 2 * x, dim = 2, convex = TRUE, smoothness = 2)
  of <- function(model, schedule, ...) {
    suppressMessages(elvi(model, schedule = schedule, control = elvi_control(...)))$control$backtrack
  }
  expect_identical(of(guess, schedule_fixed(200, "case2")), 16)
  expect_identical(of(guess, schedule_growing(200)), 16)
  expect_identical(of(guess, schedule_fixed(200, "case2"), backtrack = 0), 0)
  expect_identical(of(guess, schedule_fixed(200, "psgd")), 0)          # single gradients need no L
  expect_identical(of(guess, schedule_growing(200, step = 0.1)), 0)
  expect_identical(of(guess, schedule_tuned(200)), 0)
  expect_identical(of(guess, schedule_fixed(200, "case2"), smoothness = 2), 0)
  expect_identical(of(said, schedule_fixed(200, "case2")), 0)
  expect_identical(of(target, schedule_fixed(200, "case2")), 0)
  # and a known L makes the run it made before there were checks
  expect_identical(elvi(target, schedule = schedule_fixed(100, "case2"))$state[c("shorten", "steepest", "checks")],
                   list(shorten = 1, steepest = 1, checks = 0))
})

test_that("settings that cannot be are refused", {
  expect_snapshot(error = TRUE, {
    elvi_control(backtrack = 3)
    elvi_control(backtrack = -1)
    elvi_control(backtrack = 32, rows_per_step = 10)
    elvi(target, method = "exact", control = elvi_control(backtrack = 16))
  })
})

test_that("a value that is not a number at any step is an error that says so", {
  fit <- elvi(model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 1, smoothness = 1),
              schedule = schedule_custom(0.5, 5, 5), start = list(mu = 1, Sigma = diag(1)),
              control = elvi_control(coordinates = "raw", backtrack = 16, iterations = 1))
  fit$given$model$value <- function(x) rep(Inf, ncol(x))
  expect_error(run_slice(fit, law_of(base_gaussian(), 1), 5, new_journal(NULL)),
               "No step passes its check", class = "elvi_error_backtrack")
})

# ---- what survives of the theorems --------------------------------------------------------------

test_that("twice the theorem's bound holds for the steps that were taken", {
  skip_on_cran()
  L <- target$smoothness
  covered <- elvi_control(coordinates = "raw", estimator = "reparam", average = "theorem", smoothness = L / 20,
                          backtrack = 32, trace_draws = 0)
  right <- guarantee(target, schedule = schedule_custom(1 / (2 * L), 70, 70),
                     control = elvi_control(coordinates = "raw", estimator = "reparam", average = "theorem"))
  out <- vapply(1:12, function(seed) {
    set.seed(seed)
    fit <- suppressWarnings(suppressMessages(elvi(target, schedule = schedule_custom(10 / L, 70, 70), control = covered)))
    start <- fit$plan$start
    D <- sum((start$mu - best$mu)^2) + sum((start$scale - best$Sigma)^2)
    step <- fit$trace$step[-1]
    q <- step^2 / 70
    a <- right$a; b <- right$b   # of the true L
    total <- sum(step * exp(-cumsum(log1p(a * q))))
    average <- list(mu = fit$state$average_mu, Sigma = fit$state$average_scale)
    c(gap = objective(average, target)$estimate - best$objective, bound = (D + b / a) / total)
  }, c(gap = 0, bound = 0))
  expect_true(all(out["gap", ] <= out["bound", ]))
})

test_that("guarantee() says what the check replaces and what survives, and no number", {
  guess <- model_density(function(x) colSums(x^2), function(x) 2 * x, dim = 2, convex = TRUE, growth = 2)
  control <- function(...) elvi_control(coordinates = "raw", estimator = "reparam", average = "theorem", ...)
  optimum <- list(mu = c(0, 0), Sigma = diag(2) / sqrt(2))
  of <- function(...) guarantee(guess, schedule = schedule_fixed(2000, "case2"), optimum = optimum, control = control(...))
  g <- of()
  expect_identical(g$bound, NA_real_)
  step <- g$assumptions[g$assumptions$assumption == "step", ]
  expect_identical(step$status, "unknown")
  expect_match(step$why, "checked on 16 fresh draws each")
  # twice what the formula says without checks, whose L is the same estimate
  unchecked <- of(backtrack = 0)
  expect_equal(g$conditional, 2 * unchecked$conditional)
  text <- paste(capture.output(print(g)), collapse = " ")
  text <- gsub(" +", " ", text)
  expect_match(text, "and if the checks are right and shorten no step, the bound is")
  expect_match(text, "over the iterations before the first wrong check")
  expect_match(text, "It needs a and b of the true L and a set that contains the optimum; how likely a wrong check is, is not known")
  expect_false(any(grepl("wrong check", capture.output(print(unchecked)))))
  # with an L that is known checks can only shorten: the formula as it is, if they do not
  known <- guarantee(target, schedule = schedule_fixed(2000, "case2"), control = control(backtrack = 16))
  plain <- guarantee(target, schedule = schedule_fixed(2000, "case2"), control = control())
  expect_identical(known$bound, NA_real_)
  expect_equal(known$conditional, plain$bounds[["distance"]])
  # and steps longer than theorems allow have twice the formula, instead of nothing
  long <- schedule_custom(1 / target$smoothness, 50, 40)
  expect_identical(guarantee(target, schedule = long, control = control())$conditional, NA_real_)
  checked <- guarantee(target, schedule = long, control = control(backtrack = 16))
  expect_equal(checked$conditional, 2 * with(checked, finite_horizon_bound(a, b, D, gamma, N, K)$bound))
  expect_identical(checked$best_iterate, NA_real_)
})
