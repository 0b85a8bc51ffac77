kinds <- c("symmetric", "triangular", "diagonal")

# ---- one estimate of the gradient ------------------------------------------------

test_that("an estimate is the mean over its draws, for every scale and estimator", {
  skip_on_cran()
  for (model in list(engine_quadratic(4), engine_logistic(4))) for (kind in kinds)
    for (base in list(base_gaussian(), base_laplace(), base_student(5), base_power(3)))
      for (estimator in c("reparam", "path")) for (batch in c(1, 2, 300)) {
        control <- raw_control(scale = kind, estimator = estimator, average = "last")
        mu <- cos(1:4)
        S <- engine_restrict(kind, engine_root(engine_quadratic(4)$A))
        g <- engine_probe(model, base, control)(mu, if (kind == "diagonal") diag(S) else S, batch, k = 5)
        z <- draw_base(law_of(base, 4), c(7, 11), batch, iteration = 5)
        expected <- engine_gradient(model, base, kind, estimator, mu, S, z)
        where <- paste(model$kind, kind, base$kind, estimator, batch)
        expect_equal(g$mu, expected$mu, tolerance = 1e-12, label = where)
        expect_equal(engine_full(g$scale), expected$scale, tolerance = 1e-12, label = where)
      }
})

test_that("the path gradient vanishes, sample by sample, at the optimum of a Gaussian target", {
  skip_on_cran()
  A <- engine_quadratic(4)$A
  for (kind in kinds) {
    if (kind == "diagonal") A <- diag(diag(A))
    model <- model_quadratic(A, m = 1:4)
    S <- switch(kind, symmetric = engine_root(A), triangular = t(chol(solve(A))), diagonal = 1 / sqrt(diag(A)))
    probe <- function(estimator, k) {
      g <- engine_probe(model, base_gaussian(), raw_control(scale = kind, estimator = estimator, average = "last"))
      g(1:4, S, batch = 1, k = k)
    }
    for (k in 1:50) {
      g <- probe("path", k)
      expect_lt(max(abs(g$mu)), 1e-12, label = kind)
      expect_lt(max(abs(g$scale)), 1e-12, label = kind)
    }
    expect_gt(max(abs(probe("reparam", 1)$scale)), 0.01)   # the other one does not
  }
})

# n one-sample estimates as the columns of two matrices
many_estimates <- function(model, base, control, mu, scale, n) {
  probe <- engine_probe(model, base, control)
  d <- length(mu)
  mus <- matrix(0, d, n)
  scales <- matrix(0, length(scale), n)
  for (k in seq_len(n)) {
    g <- probe(mu, scale, 1, k)
    mus[, k] <- g$mu
    scales[, k] <- g$scale
  }
  list(mu = mus, scale = scales)
}

# is the mean of x within 4 standard errors of the truth?
expect_mean <- function(x, truth, label = NULL, precision = Inf) {
  x <- rbind(x)
  se <- apply(x, 1, sd) / sqrt(ncol(x))
  expect_lt(max(abs(rowMeans(x) - c(truth)) / se), 4, label = label)
  expect_lt(max(se), precision, label = label)
}

test_that("the noise of one sample is what theory says", {
  skip_on_cran()
  d <- 3
  control <- raw_control(average = "last")
  for (base in list(base_gaussian(), base_laplace(), base_uniform(), base_student(20), base_power(1.5))) {
    kappa <- engine_kurtosis(base, d)
    # A = I, Sigma = I: the gradient of the scale is z z' - I
    g <- many_estimates(model_quadratic(diag(d)), base, control, numeric(d), diag(d), 4000)
    expect_mean(colSums(g$scale^2), kappa / 3 * d * (d + 2) - d, base$kind, precision = 0.1 * kappa * d)
    expect_mean(g$scale, 0, base$kind)
    # Cov(g_mu) = A Sigma^2 A
    model <- engine_quadratic(d)
    S <- matrix(c(1, 0.3, 0, 0.3, 0.8, -0.2, 0, -0.2, 0.5), 3)
    g <- many_estimates(model, base, control, model$m + 1, S, 2000)
    centred <- g$mu - c(model$A %*% rep(1, d))
    products <- apply(centred, 2, tcrossprod)
    expect_mean(products, model$A %*% S %*% S %*% model$A, base$kind)
  }
})

test_that("the noise obeys the bound of the theorems", {
  skip_on_cran()
  # E|g|^2_Lambda <= a |theta - theta*|^2_{1/Lambda} + b, here with mu* = m
  d <- 3
  L <- 2
  model <- model_quadratic(diag(L, d), m = c(1, -1, 0))
  best <- diag(1 / sqrt(L), d)
  for (base in list(base_gaussian(), base_laplace(), base_student(12))) {
    kappa <- engine_kurtosis(base, d)
    for (ls in c(1, 1 / (2 * (d - 1 + kappa)))) {
      lambda <- c(mu = 1, Sigma = ls)
      a <- bg_a(d, kappa, L, lambda)
      printed <- if (ls == 1) 4 * (d + kappa) * L^2 else 4 * L^2
      b <- printed * sum(best^2) + if (ls == 1) 2 * d * L else L
      for (far in c(0, 1, 10)) for (wide in c(1, 10)) {
        mu <- model$m + far * c(1, 2, -2) / 3
        g <- many_estimates(model, base, raw_control(average = "last"), mu, wide * best, 400)
        noise <- mean(colSums(g$mu^2) + ls * colSums(g$scale^2))
        distance <- far^2 + sum((wide * best - best)^2) / ls
        expect_lte(noise, a * distance + b, label = paste(base$kind, ls, far, wide))
      }
    }
  }
})

test_that("both estimators are unbiased: the derivative of the objective, by differences", {
  skip_on_cran()
  model <- engine_logistic(3)
  target <- engine_target(model)
  n <- 3000
  for (kind in kinds) for (base in list(base_gaussian(), base_laplace(), base_uniform(), base_student(9))) {
    mu <- c(0.3, -0.2, 0.5)
    S <- engine_restrict(kind, matrix(c(0.9, 0.2, -0.1, 0.2, 0.7, 0.3, -0.1, 0.3, 0.6), 3))
    stored <- if (kind == "diagonal") diag(S) else S
    where <- paste(kind, base$kind)
    estimate <- function(estimator, k) {
      control <- raw_control(scale = kind, estimator = estimator, average = "last")
      g <- engine_probe(model, base, control)(mu, stored, n, k)
      c(g$mu, engine_full(g$scale))
    }
    # On its own draws the reparametrised gradient is the derivative of the mean.
    z <- draw_base(law_of(base, 3), c(7, 11), n, iteration = 1)
    F <- function(mu, S) mean(target$value(mu + S %*% z)) - determinant(S)$modulus[1]
    h <- 1e-5
    slope <- function(dmu, dS) (F(mu + h * dmu, S + h * dS) - F(mu - h * dmu, S - h * dS)) / (2 * h)
    numerical <- vapply(1:3, function(i) slope((1:3) == i, 0 * S), 0)
    for (entry in 1:9) {
      E <- matrix(as.numeric(1:9 == entry), 3)
      numerical <- c(numerical, if (sum(engine_restrict(kind, E)^2) > 0) slope(0 * mu, engine_restrict(kind, E)) else 0)
    }
    exact <- estimate("reparam", 1)
    expect_lt(max(abs(exact - numerical)), 1e-6, label = where)
    # The path gradient has the same mean, over other draws.
    if (base$kind == "uniform") next
    apart <- vapply(2:13, function(k) estimate("path", k) - estimate("reparam", k), numeric(12))
    apart <- apart[rowSums(apart^2) > 0, , drop = FALSE]   # entries that are 0 by definition
    expect_mean(apart, 0, where, precision = 0.05)
  }
})

test_that("E[grad f z'] = E[Hessian] Sigma for the gaussian base", {
  skip_on_cran()
  model <- engine_logistic(3)
  S <- matrix(c(0.9, 0.2, -0.1, 0.2, 0.7, 0.3, -0.1, 0.3, 0.6), 3)
  mu <- c(0.3, -0.2, 0.5)
  n <- 20000
  z <- draw_base(law_of(base_gaussian(), 3), c(1, 2), n)
  p <- plogis(model$rows$X %*% (mu + S %*% z))
  hessian <- crossprod(model$rows$X, rowMeans(p * (1 - p)) * model$rows$X) + diag(model$blocks$coefficients$precision)
  expected <- engine_restrict("symmetric", hessian %*% S) - solve(S)
  probe <- engine_probe(model, base_gaussian())
  g <- vapply(1:12, function(k) c(probe(mu, S, n, k)$scale), numeric(9))
  expect_mean(g, expected, precision = 0.05)
})

# ---- the trace ------------------------------------------------------------------------

trace_columns <- c("iteration", "evals", "batch", "step", "objective", "se", "gradient_map", "clipped", "cpu")

test_that("the trace has a row for every iteration, then every tenth, then every hundredth, and the last", {
  model <- model_quadratic(matrix(1))
  batch <- 1 + seq_len(1234) %% 4
  step <- 0.5 / sqrt(seq_len(1234))
  set.seed(1)
  fit <- elvi(model, schedule = schedule_custom(step, batch), control = raw_control(average = "last"))
  rows <- c(0:99, seq(100, 990, 10), seq(1000, 1200, 100), 1234)
  trace <- fit$trace
  expect_named(trace, trace_columns)
  expect_equal(trace$iteration, rows)
  expect_equal(trace$evals, c(0, cumsum(batch))[rows + 1])
  expect_equal(trace$batch, c(NA, batch)[rows + 1])
  expect_equal(trace$step, c(NA, step)[rows + 1])
  expect_equal(which(is.na(trace$gradient_map)), 1L)
  expect_false(is.unsorted(trace$cpu))
  expect_gte(trace$cpu[1], 0)
  # a longer run has the same rows, and none for the end of the shorter
  longer <- raw_fit(model, schedule = schedule_custom(step, batch, iterations = 57))$trace
  expect_equal(longer$iteration, 0:57)
  set.seed(1)
  growing <- raw_fit(model, schedule = schedule_decay(1234))
  expect_equal(growing$trace$iteration, rows)
  expect_equal(elvi(growing, budget = 1300)$trace$iteration, c(rows[-length(rows)], 1300))
})

test_that("the objective of the trace is a mean over fixed draws minus log|Sigma|", {
  skip_on_cran()
  for (kind in kinds) for (draws in c(300, 2)) {
    model <- engine_logistic(3)
    set.seed(2)
    fit <- elvi(model, base_laplace(), schedule_custom(0.05, 4, iterations = 25),
                control = raw_control(scale = kind, trace_draws = draws, block = 64))
    replay <- engine_replay(fit)
    z <- draw_base(law_of(base_laplace(), 3), fit$seed, draws, iteration = -1)
    for (k in c(0, 1, 12, 25)) {
      S <- replay$scales[[k + 1]]
      f <- engine_target(model)$value(replay$mus[[k + 1]] + S %*% z)
      row <- fit$trace[fit$trace$iteration == k, ]
      expect_equal(row$objective, mean(f) - log(det(S)), tolerance = 1e-10)
      expect_equal(row$se, sd(f) / sqrt(draws), tolerance = 1e-8)
    }
  }
})

test_that("the draws of the trace are not those of any step", {
  law <- law_of(base_gaussian(), 2)
  own <- draw_base(law, c(1, 2), 5, iteration = -1)
  for (k in 0:20) expect_gt(min(abs(own - draw_base(law, c(1, 2), 5, iteration = k))), 0)
})

test_that("trace_draws = 0 leaves the objective out, and changes nothing else", {
  run <- function(draws) {
    set.seed(3)
    raw_fit(engine_logistic(), trace_draws = draws)
  }
  without <- run(0)
  with <- run(50)
  expect_true(all(is.na(without$trace$objective)) && all(is.na(without$trace$se)))
  expect_identical(without$state, with$state)
  same <- setdiff(trace_columns, c("objective", "se", "cpu"))
  expect_identical(without$trace[same], with$trace[same])
  expect_no_warning(one <- run(1))   # one draw has no standard error, which is no divergence
  expect_true(all(is.na(one$trace$se)) && all(is.finite(one$trace$objective)))
})

test_that("where nothing is projected the gradient map is the norm of the gradient", {
  model <- engine_quadratic(3)
  lambda <- c(mu = 0.5, Sigma = 0.3)
  for (kind in kinds) {
    set.seed(4)
    fit <- elvi(model, base_laplace(), schedule_custom(0.05, 30, iterations = 20), start = list(Sigma = 1),
                control = raw_control(scale = kind, scale_min = 1e-6, precondition = lambda))
    replay <- engine_replay(fit)
    expect_equal(replay$moved, c(mu = 0, scale = 0))
    expect_equal(fit$trace$clipped, rep(0, 21))
    law <- law_of(base_laplace(), 3)
    norm <- vapply(1:20, function(k) {
      z <- draw_base(law, fit$seed, 30, iteration = k - 1)
      g <- engine_gradient(model, base_laplace(), kind, "reparam", replay$mus[[k]], replay$scales[[k]], z)
      sqrt(lambda[["mu"]] * sum(g$mu^2) + lambda[["Sigma"]] * sum(g$scale^2))
    }, 0)
    expect_equal(fit$trace$gradient_map[-1], norm, tolerance = 1e-8)
  }
})

test_that("the trace counts what the projection clips", {
  model <- engine_quadratic(5)
  set.seed(5)
  fit <- elvi(model, base_laplace(), schedule_custom(0.3, 2, iterations = 30),
              control = raw_control(scale_max = 0.9, average = "last"))
  replay <- engine_replay(fit)
  law <- law_of(base_laplace(), 5)
  counts <- vapply(1:30, function(k) {
    z <- draw_base(law, fit$seed, 2, iteration = k - 1)
    g <- engine_gradient(model, base_laplace(), "symmetric", "reparam", replay$mus[[k]], replay$scales[[k]], z)
    values <- eigen(replay$scales[[k]] - 0.3 * g$scale)$values
    sum(values < fit$feasible$scale_min - 1e-10 | values > 0.9 + 1e-10)
  }, 0)
  expect_gt(sum(counts), 20)
  expect_equal(fit$trace$clipped[-1], counts)
})

# ---- runs that go wrong -----------------------------------------------------------------

test_that("a run that ends worse than it began has diverged, and says so", {
  model <- engine_quadratic(3)
  set.seed(6)
  expect_warning(fit <- raw_fit(model, schedule = schedule_custom(1, 5, iterations = 12)),
                 "diverged: the objective rose from", class = "elvi_warning_diverged")
  expect_identical(fit$status, "diverged")
  # a good run, or a start at the optimum, is no reason to warn
  set.seed(6)
  expect_no_warning(raw_fit(model, budget = 2000))
  expect_no_warning(raw_fit(model, start = list(mu = model$m, Sigma = engine_root(model$A)),
                            schedule = schedule_custom(0.01, 50, iterations = 50)))
})

test_that("far too long steps are an error, not a crash", {
  X <- cbind(1, seq(-2, 2, length.out = 30))
  model <- model_glm(X, rep(0:4, 6), family = poisson())
  for (kind in kinds) {
    set.seed(7)
    e <- expect_error(raw_fit(model, budget = 5000, scale = kind, smoothness = 1e-3),
                      "not finite in iteration", class = "elvi_error_nonfinite")
    expect_gte(e$iteration, 1)
    expect_match(conditionMessage(e), "larger `smoothness`")
  }
  # a target with bounded curvature only overflows in the end
  e <- tryCatch(raw_fit(engine_quadratic(3), schedule = schedule_custom(1e3, 1, iterations = 500)), error = identity)
  expect_true(inherits(e, "elvi_error_nonfinite") || inherits(e, "elvi_error_singular"))
})

test_that("a start that is far too wide is an error of a class of ours", {
  model <- model_glm(cbind(1, 1:4), c(0, 1, 0, 1))
  for (Sigma in list(diag(1e300, 2), matrix(c(2, 1, 1, 2) * 1e300, 2))) {
    expect_error(elvi(model, start = list(mu = c(0, 0), Sigma = Sigma), budget = 100), class = "elvi_error")
  }
})

test_that("the iteration that failed is named, also when the run had been paused", {
  calls <- -Inf
  model <- model_density(function(x) colSums(x^2), function(x) {
    calls <<- calls + 1
    if (calls == 15) x * NaN else 2 * x
  }, dim = 2, smoothness = 2)
  calls <- -1   # the comparison with `value` at the start is not an iteration
  fit <- raw_fit(model, schedule = schedule_custom(0.1, 3, iterations = 20), iterations = 9)
  e <- expect_error(elvi(fit), class = "elvi_error_nonfinite")
  expect_equal(e$iteration, 15)
})

test_that("one bad number in one sample of a batch is enough to end a run in raw coordinates, and no other", {
  skip_on_cran()
  walled <- function(bad, wall) {
    model <- model_density(function(x) colSums(x^2) / 2, function(x) {
      x[1, x[1, ] > wall] <- bad
      x
    }, dim = 2, smoothness = 1, convex = TRUE)   # or it would search a start, and the wall be outside the domain
    model$own_gradient <- FALSE
    model
  }
  # The default start is the optimum, where the path gradient is 0: until it meets
  # the wall the run stands still, and its points are the draws.
  set.seed(8)
  key <- withr_seed(8, draw_key())
  law <- law_of(base_gaussian(), 2)
  largest <- vapply(0:29, function(k) max(draw_base(law, key, 50, iteration = k)[1, ]), 0)
  wall <- mean(sort(largest, decreasing = TRUE)[2:3])   # two of thirty batches go beyond
  for (bad in c(NaN, Inf)) {
    set.seed(8)
    e <- expect_error(elvi(walled(bad, wall), schedule = schedule_custom(0.1, 50, iterations = 30),
                           control = elvi_control("raw", estimator = "path")),
                      "not finite in iteration", class = "elvi_error_nonfinite")
    expect_equal(e$iteration, which(largest > wall)[1L])
    # elsewhere they are rejected points
    expect_warning(elvi(walled(bad, 2)), class = "elvi_warning_outside")
    expect_warning(elvi(walled(bad, 2), tol = 1e-3), class = "elvi_warning_outside")
  }
  expect_match(conditionMessage(e), "`gradient` is not finite near there", fixed = TRUE)
})

test_that("steps that explode on a function's target are shortened, or the start is returned, for every estimator", {
  skip_on_cran()
  steep <- model_density(function(x) sum(exp(4 * abs(x)) / 4), function(x) sign(x) * exp(4 * abs(x)), dim = 3, convex = TRUE,
                         vectorized = FALSE)
  for (estimator in c("control", "path", "reparam")) {
    set.seed(1)
    said <- character()
    fit <- withCallingHandlers(
      elvi(steep, schedule = schedule_custom(1, 5, 100), start = list(mu = c(3, -3, 3), Sigma = diag(0.5, 3)),
           control = elvi_control("whitened", estimator = estimator, smoothness = 4)),
      warning = function(w) {
        said <<- c(said, class(w)[1L])
        invokeRestart("muffleWarning")
      }, message = function(m) invokeRestart("muffleMessage"))
    expect_true(all(is.finite(c(fit$mu, fit$Sigma))))
    expect_true(any(c("elvi_warning_shortened", "elvi_warning_diverged") %in% said))
    expect_lt(max(abs(fit$mu)), 3 + 1e-12)   # the start, but for the rounding of its whitening
  }
})

test_that("exp() that overflows at the start, or after one long step, is found in that iteration", {
  X <- cbind(1, seq(-2, 2, length.out = 30))
  model <- model_glm(X, rep(0:4, 6), family = poisson())
  stop_at <- function(...) {
    e <- expect_error(elvi(model, ...), class = "elvi_error_nonfinite")
    e$iteration
  }
  far <- elvi_control("raw", smoothness = 100)
  expect_equal(stop_at(start = list(mu = c(800, 0), Sigma = diag(2)), schedule = schedule_custom(1e-3, 5, 30),
                       control = far), 1)
  expect_equal(stop_at(schedule = schedule_custom(1e3, 5, 30), control = far), 2)
  # a step that overflows by itself
  expect_equal(stop_at(schedule = schedule_custom(1e308, 5, 30), control = far), 1)
})

test_that("values that are not finite leave nothing to compare, which is said", {
  for (bad in c(NaN, Inf, -Inf)) {
    model <- model_density(function(x) bad, function(x) x, dim = 2, smoothness = 1, convex = TRUE)
    expect_warning(fit <- elvi(model, schedule = schedule_custom(0.1, 3, 20)), class = "elvi_warning_nonfinite")
    expect_identical(fit$kept, "start")
  }
})

# ---- interrupts ------------------------------------------------------------------------------

skip_without_signals <- function() {
  skip_on_cran()
  skip_on_os("windows")
}

quietly <- "quietly <- function(code) withCallingHandlers(code, elvi_warning_interrupted = function(w) {
  warned <<- class(w); invokeRestart('muffleWarning') })
  warned <- NULL"

test_that("SIGINT in native code returns the fit so far, which goes on exactly", {
  skip_without_signals()
  # a run of hours, interrupted once it has written a checkpoint
  file <- normalizePath(tempfile("elvi-checkpoint-"), "/", mustWork = FALSE)
  on.exit(unlink(file))
  r <- in_new_r(c(quietly, paste("file <-", deparse1(file)), '
    X <- matrix(sin(seq_len(500 * 20)^1.3), 500)
    model <- model_glm(X, rep(0:1, 250))
    start <- function(...) {
      set.seed(1)
      elvi(model, base_laplace(), schedule_growing(1e9, batch = 5), control = elvi_control("raw", ...))
    }
    ready()
    time <- system.time(fit <- quietly(start(checkpoint = file, checkpoint_every = 0.1)))[["elapsed"]]
    k <- fit$state$k
    out <- list(fit = fit, warned = warned, time = time, resumed = elvi(fit, iterations = k + 7),
                whole = start(iterations = k + 7))
    # a time limit is an error, which has the run so far
    limited <- tryCatch({ setTimeLimit(elapsed = 0.3, transient = TRUE); start() }, error = identity)
    setTimeLimit()
    out <- c(out, list(limited = limited, again = start(iterations = limited$fit$state$k)))'),
    during = function(pid) {
      # the first entry may be of the start
      wait_until(file.exists(file) && read_checkpoint(file)$progress$state$k > 0)
      tools::pskill(pid, tools::SIGINT)
    })$out
  expect_identical(r$fit$status, "interrupted")
  expect_true("elvi_warning_interrupted" %in% r$warned)
  expect_lt(r$time, 10)
  expect_gt(r$fit$state$k, 0)
  expect_output(print(r$fit), "INTERRUPTED")
  for (part in c("mu", "Sigma", "scale", "last", "state", "trace")) {
    expect_identical(engine_bare(r$resumed)[[part]], engine_bare(r$whole)[[part]], label = part)
  }
  expect_s3_class(r$limited, "elvi_error_time_limit")
  expect_match(conditionMessage(r$limited), "reached elapsed time limit")
  expect_identical(r$limited$fit$status, "interrupted")
  expect_identical(r$limited$fit$state, r$again$state)
})

test_that("SIGINT in a user's function returns the fit so far, which goes on exactly", {
  skip_without_signals()
  # once in the gradient, once in the value, which only the trace asks for
  r <- in_new_r(c(quietly, '
    calls <- list(value = -Inf, gradient = -Inf)
    signal_at <- list(value = Inf, gradient = Inf)
    count <- function(what) {
      calls[[what]] <<- calls[[what]] + 1
      if (calls[[what]] == signal_at[[what]]) {
        tools::pskill(Sys.getpid(), tools::SIGINT)
        Sys.sleep(10)
      }
    }
    model <- model_density(function(x) { count("value"); colSums(x^4 + x^2) },
                           function(x) { count("gradient"); 4 * x^3 + 2 * x }, dim = 3, smoothness = 20)
    start <- function(value = Inf, gradient = Inf) {
      calls <<- list(value = -1, gradient = -1)   # one call each before the run, to compare them
      signal_at <<- list(value = value, gradient = gradient)
      warned <<- NULL
      set.seed(2)
      fit <- quietly(elvi(model, schedule = schedule_custom(0.02, 7, iterations = 150), control = elvi_control("raw")))
      list(fit = fit, warned = warned, resumed = elvi(fit))
    }
    out <- list(none = start(), gradient = start(gradient = 31), value = start(value = 31),
                first = start(value = 1), late = start(value = 102))'))
  out <- r$out
  expect_identical(out$none$fit$status, "finished")
  stopped_at <- c(gradient = 30, value = 29, first = 0, late = 109)
  for (name in names(stopped_at)) {
    fit <- out[[name]]$fit
    expect_identical(fit$status, "interrupted", label = name)
    expect_true("elvi_warning_interrupted" %in% out[[name]]$warned)
    expect_equal(fit$state$k, stopped_at[[name]], label = name)
    for (part in c("mu", "Sigma", "scale", "last", "state", "trace", "status")) {
      expect_identical(engine_bare(out[[name]]$resumed)[[part]], engine_bare(out$none$fit)[[part]],
                       label = paste(name, part))
    }
  }
})

# Child code: rounds of a fit that gets SIGINT after some seconds, each of which must
# come back as a partial fit that goes on to what a run without signals gives.
interrupted_rounds <- '
  signal_after <- function(seconds) {
    system(sprintf("(sleep %.4f; kill -INT %d) > /dev/null 2>&1 &", seconds, Sys.getpid()))
  }
  bare <- function(fit) {
    fit$call <- fit$cpu <- fit$trace$cpu <- NULL
    fit$control$iterations <- NULL
    unclass(fit)
  }
  outcome <- list(good = 0, before = 0, after = 0, bad = character())
  one_round <- function(go, resume, whole, delay) {
    warned <<- NULL
    signal_after(delay)
    fit <- tryCatch(quietly(go()), interrupt = function(i) NULL)
    if (is.null(fit)) {   # before there was anything to return
      outcome$before <<- outcome$before + 1
    } else if (fit$status != "interrupted") {   # the signal is still to come
      tryCatch(Sys.sleep(5), interrupt = identity)
      outcome$after <<- outcome$after + 1
    } else if (!"elvi_warning_interrupted" %in% warned) {
      outcome$bad <<- c(outcome$bad, "no warning")
    } else if (!identical(bare(resume(fit)), bare(whole(fit)))) {
      outcome$bad <<- c(outcome$bad, paste("not identical after", fit$state$k))
    } else {
      outcome$good <<- outcome$good + 1
    }
  }
  rounds <- function(n, ...) {
    done <- outcome$good + length(outcome$bad)
    while (outcome$good + length(outcome$bad) < done + n && outcome$before + outcome$after < 300) {
      one_round(..., delay = runif(1, 0.004, 0.06))
      gc()   # the heap of R grows with what waits for it: what grows in spite of it is a leak
    }
  }
  rss <- function() {
    status <- tryCatch(readLines("/proc/self/status"), error = function(e) "VmRSS: 0", warning = function(w) "VmRSS: 0")
    as.numeric(gsub("[^0-9]", "", grep("^VmRSS", status, value = TRUE)))
  }'

test_that("SIGINT at random moments: always the fit so far, which goes on exactly, and no leak", {
  skip_without_signals()
  share <- if (long_tests()) 10 else 2   # 200 moments, or 40
  out <- in_new_r(c(quietly, interrupted_rounds, paste("share <-", share), '
    X <- matrix(sin(seq_len(200 * 10)^1.3), 200)
    models <- list(
      native = model_glm(X, rep(0:1, 100)),
      functions = model_density(function(x) colSums(x^4 + x^2), function(x) 4 * x^3 + 2 * x, dim = 3, smoothness = 20))
    endless <- function(model, iterations = Inf) {
      set.seed(1)
      elvi(model, base_laplace(), schedule_decay(1e9, step = 0.01, batch = 20),
           control = elvi_control("raw", trace_draws = 10, iterations = iterations))
    }
    by_tolerance <- function() {
      set.seed(2)
      elvi(models$native, tol = 2e-5, budget = 2e4)
    }
    finished <- suppressWarnings(by_tolerance())
    set.seed(3)
    series <- function(n) {
      for (model in models) {
        rounds(2 * n, function() endless(model), function(fit) elvi(fit, iterations = fit$state$k + 2),
               function(fit) endless(model, fit$state$k + 2))
      }
      rounds(n, function() suppressWarnings(by_tolerance(), classes = "elvi_warning_not_converged"),
             function(fit) suppressWarnings(elvi(fit)), function(fit) finished)
    }
    series(share)   # everything that is allocated once is there now
    cells <- gc()[, 1]
    before <- rss()
    cpu <- system.time(series(3 * share))
    out <- c(outcome, list(cells = gc()[, 1] - cells, rss = rss() - before, cpu = sum(cpu[c(1, 2, 4, 5)])))'))$out
  expect_identical(out$bad, character())
  expect_equal(out$good, 20 * share)
  expect_lt(max(out$cells), 2e3 * share)   # cells of 56 and of 8 bytes
  if (!grepl("asan", Sys.getenv("LD_PRELOAD"))) expect_lt(out$rss, 20 * 1024)
})

test_that("an interrupt does not wait for the draws of the trace", {
  skip_without_signals()
  file <- normalizePath(tempfile("elvi-checkpoint-"), "/", mustWork = FALSE)
  on.exit(unlink(file))
  out <- in_new_r(c(quietly, paste("file <-", deparse1(file)), '
    X <- matrix(sin(seq_len(2000 * 40)^1.3), 2000)
    model <- model_glm(X, rep(0:1, 1000))
    ready()
    time <- system.time(fit <- quietly(elvi(model, schedule = schedule_decay(100), control = elvi_control(
      "raw", trace_draws = 1e6, checkpoint = file))))[["elapsed"]]
    out <- list(fit = fit, time = time, warned = warned)'),
    during = function(pid) {
      wait_until(file.exists(file))   # the entry of the start: what is left is the way into C, and a minute of draws there
      Sys.sleep(0.5)
      tools::pskill(pid, tools::SIGINT)
    })$out
  expect_true("elvi_warning_interrupted" %in% out$warned)
  expect_lt(out$time, 5)
  expect_equal(out$fit$state$k, 0)
  expect_output(print(out$fit), "INTERRUPTED")
})

test_that("an interrupted fit comes back without another look at the target", {
  values <- gradients <- -Inf
  interrupt_at <- c(value = Inf, gradient = Inf)
  interrupt_now <- function() {
    signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  }
  model <- model_density(function(x) {
    values <<- values + 1
    if (values == interrupt_at[["value"]]) interrupt_now()
    colSums(x^2)
  }, function(x) {
    gradients <<- gradients + 1
    if (gradients == interrupt_at[["gradient"]]) interrupt_now()
    2 * x
  }, dim = 2, smoothness = 2)
  go <- function(value = Inf, gradient = Inf) {
    values <<- gradients <<- 0
    interrupt_at <<- c(value = value, gradient = gradient)
    set.seed(8)
    elvi(model, schedule = schedule_custom(0.1, 3, iterations = 30), control = raw_control())
  }
  whole <- go()
  total <- values
  expect_warning(fit <- go(gradient = 22), class = "elvi_warning_interrupted")
  # the comparison of the two, the first row, and one for each iteration
  expect_equal(c(values, gradients), c(22, 22))
  expect_equal(fit$state$k, 20)
  expect_identical(engine_bare(elvi(fit)), engine_bare(whole))
  # in the comparison with the start, when all iterations are done
  expect_warning(fit <- go(value = total - 1), class = "elvi_warning_interrupted")
  expect_equal(fit$state$k, 30)
  expect_identical(engine_bare(elvi(fit)), engine_bare(whole))
})

test_that("a start that the trace shows to be better is what an interrupted run returns", {
  calls <- -Inf
  model <- model_density(function(x) colSums(x^2) / 2, function(x) {
    calls <<- calls + 1
    if (calls == 13) signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
    x
  }, dim = 2, smoothness = 1)
  set.seed(9)
  calls <- 0
  # steps that overshoot, from the optimum
  fit <- suppressWarnings(elvi(model, schedule = schedule_custom(1.9, 1, iterations = 50),
                               control = raw_control(average = "last")))
  expect_identical(fit$status, "interrupted")
  expect_gt(fit$trace$objective[12], fit$trace$objective[1] + 1)
  expect_identical(fit$kept, "start")
  expect_equal(unname(fit$mu), c(0, 0))
})

test_that("a time limit ends a run of a user's function", {
  skip_without_signals()
  out <- in_new_r('
    model <- model_density(function(x) colSums(x^2), function(x) { Sys.sleep(0.01); 2 * x },
                           dim = 2, smoothness = 2)
    time <- system.time(end <- {
      setTimeLimit(elapsed = 0.3, transient = TRUE)
      tryCatch(elvi(model, schedule = schedule_custom(0.1, 1, iterations = 1e5), control = elvi_control("raw")),
               error = identity)
    })[["elapsed"]]
    out <- list(time = time, end = conditionMessage(end))')$out
  expect_lt(out$time, 5)
  expect_match(out$end, "reached elapsed time limit")
})

# ---- functions that leave, and functions that meddle ------------------------------------------

# x^2 in two dimensions; hook(what, call, x) is called first, once the model is made
hooked_model <- function() {
  env <- new.env()
  env$hook <- NULL
  env$calls <- c(value = 0, gradient = 0)
  ask <- function(what, x) {
    if (is.null(env$hook)) return()
    env$calls[[what]] <- env$calls[[what]] + 1
    env$hook(what, env$calls[[what]], x)
  }
  env$model <- model_density(function(x) { ask("value", x); colSums(x^2) },
                             function(x) { ask("gradient", x); 2 * x }, dim = 2, smoothness = 2)
  env$fit <- function(hook = function(...) NULL, ...) {
    env$hook <- hook
    env$calls[] <- 0
    set.seed(10)
    elvi(env$model, schedule = schedule_custom(0.1, 3, iterations = 30), control = elvi_control("raw", ...))
  }
  env
}

# leaves the run in the fifth call of either function, by whatever means
at_fifth <- function(of, how) function(what, call, x) if (what == of && call == 5) how()

ways_out <- list(
  error = function(fit, of) tryCatch(fit(at_fifth(of, function() stop("my own"))), error = conditionMessage),
  warning = function(fit, of) tryCatch(fit(at_fifth(of, function() warning("my own"))), warning = conditionMessage),
  message = function(fit, of) tryCatch(fit(at_fifth(of, function() message("my own"))),
                                       message = function(m) sub("\n", "", conditionMessage(m))),
  restart = function(fit, of) withRestarts(fit(at_fifth(of, function() invokeRestart("out", "my own"))), out = identity),
  escape = function(fit, of) callCC(function(k) fit(at_fifth(of, function() k("my own")))),
  finally = function(fit, of) {   # a function whose caller cleans up
    seen <- NULL
    try(tryCatch(fit(at_fifth(of, function() stop("too late"))), finally = seen <- "my own"), silent = TRUE)
    seen
  },
  recursion = function(fit, of) {
    deeper <- function(n) 1 + deeper(n + 1)
    e <- tryCatch(fit(at_fifth(of, function() deeper(1))), error = identity)
    if (grepl("infinite recursion|stack", conditionMessage(e))) "my own" else conditionMessage(e)
  })

test_that("whatever way a user's function leaves a run, it leaves as it would anywhere else", {
  target <- hooked_model()
  whole <- target$fit()
  for (way in names(ways_out)) for (of in c("value", "gradient")) {
    expect_identical(ways_out[[way]](target$fit, of), "my own", label = paste(way, of))
    # and the next run is none the worse
    expect_identical(engine_bare(target$fit()), engine_bare(whole), label = paste("after", way, of))
  }
  old <- options(warn = 2)
  on.exit(options(old))
  expect_error(target$fit(at_fifth("gradient", function() warning("my own"))), "converted from warning.*my own")
})

test_that("leaving many times in the middle of a run takes no memory along", {
  skip_without_signals()
  code <- c(deparse(call("<-", quote(hooked_model), hooked_model)), deparse(call("<-", quote(at_fifth), at_fifth)),
            deparse(call("<-", quote(ways_out), as.call(c(quote(list), ways_out)))))
  out <- in_new_r(c(code, interrupted_rounds, '
    # a work block of 1 MB a run: 80 lost ones are seen
    target <- hooked_model()
    big <- function(hook, ...) target$fit(hook, block = 2e4, trace_draws = 2e4)
    series <- function(n) for (i in seq_len(n)) {
      for (way in c("error", "restart", "escape", "recursion")) ways_out[[way]](big, c("value", "gradient")[1 + i %% 2])
    }
    series(20)   # the first rounds let the heap of R grow, once and for all
    cells <- gc()[, 1]
    before <- rss()
    series(20)
    out <- list(cells = gc()[, 1] - cells, rss = rss() - before)'))$out
  expect_lt(max(out$cells), 2e4)
  if (!grepl("asan", Sys.getenv("LD_PRELOAD"))) expect_lt(out$rss, 40 * 1024)
})

test_that("what a user's function does on the side does not touch the run", {
  skip_on_cran()
  target <- hooked_model()
  whole <- target$fit()
  inner <- engine_logistic()
  meddling <- list(
    writes_on_its_input = function(what, call, x) x[] <- NaN,
    seeds = function(what, call, x) set.seed(call),
    changes_the_generator = function(what, call, x) {
      old <- RNGkind("Wichmann-Hill")
      runif(1)
      RNGkind(old[1])
    },
    collects = function(what, call, x) if (call %% 8 == 0) gc(),
    fits_another = function(what, call, x) if (call %% 15 == 0) elvi(inner, budget = 50),
    fits_itself = function(what, call, x) {
      if (call == 7) elvi(target$model, schedule = schedule_custom(0.1, 2, iterations = 3), control = raw_control())
    },
    fails_inside = function(what, call, x) if (call == 3) try(elvi(inner, budget = "all"), silent = TRUE))
  for (name in names(meddling)) {
    expect_identical(engine_bare(suppressMessages(target$fit(meddling[[name]]))), engine_bare(whole), label = name)
  }
})

# ---- forks -----------------------------------------------------------------------------------

test_that("fits in forked processes are the fits of this one, after BLAS has had threads here", {
  skip_without_signals()
  # in another R, with threads, and with a deadline: a child that waits for threads it
  # does not have waits for ever
  out <- in_new_r('
    X <- matrix(sin(seq_len(600 * 80)^1.3), 600)
    model <- model_glm(X, rep(0:1, 300))
    bare <- function(fit) {
      fit$call <- fit$cpu <- fit$trace$cpu <- NULL
      fit
    }
    one <- function(seed) {
      set.seed(seed)
      bare(elvi(model, base_laplace(), budget = 400))
    }
    serial <- lapply(1:4, one)
    threads <- crossprod(matrix(1, 2000, 500))   # large enough for BLAS to share it out
    ready()
    forked <- parallel::mclapply(1:4, one, mc.cores = 2)
    nested <- parallel::mclapply(1:2, function(i) parallel::mclapply(2 * i - 1:0, one, mc.cores = 2), mc.cores = 2)
    exact <- function(i) elvi_optimum(model)$Sigma
    # and here, after the forks
    out <- list(serial = serial, forked = forked, nested = do.call(c, nested), after = lapply(1:4, one),
                exact = list(exact(1), parallel::mclapply(1, exact)[[1]]))',
    env = c("OPENBLAS_NUM_THREADS=2", "OMP_NUM_THREADS=2"), during = function(pid) NULL, timeout = 90)$out
  expect_identical(out$forked, out$serial)
  expect_identical(out$nested, out$serial)
  expect_identical(out$after, out$serial)
  expect_identical(out$exact[[2]], out$exact[[1]])
})

# ---- what is handed to C -----------------------------------------------------------------------

test_that("blocks are no longer than needed, and longer for R functions", {
  block_of <- function(model, schedule, ...) {
    fit <- elvi(model, schedule = schedule, control = raw_control(..., iterations = 1, average = "last"))
    run_settings(fit, 1)$block
  }
  native <- model_quadratic(matrix(1))
  own <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 1, smoothness = 1)
  long <- schedule_custom(0.1, c(1, 5000), iterations = 2)
  short <- schedule_custom(0.1, 3, iterations = 2)
  expect_equal(block_of(native, long), 128)
  expect_equal(block_of(own, long), 1024)
  expect_equal(block_of(native, short, trace_draws = 0), 3)
  expect_equal(block_of(native, short, trace_draws = 20), 20)
  expect_equal(block_of(native, long, block = 33), 33)
  expect_equal(block_of(native, schedule_growing(1e5, batch = 1, nu = 1), trace_draws = 0), 128)
})

test_that("the first block that is not finite ends a batch", {
  calls <- 0
  model <- model_density(function(x) colSums(x^2) / 2, function(x) {
    calls <<- calls + 1
    if (calls == 5) x * NaN else x
  }, dim = 3, smoothness = 1, vectorized = TRUE)
  calls <- -1   # the comparison with `value` at the start is not a block
  expect_error(elvi(model, schedule = schedule_custom(0.1, 1000, iterations = 2),
                    control = raw_control(block = 8, trace_draws = 0)), class = "elvi_error_nonfinite")
  expect_equal(calls, 5)
})

test_that("a user's function is called once per block, of at most the length given", {
  shapes <- NULL
  model <- model_density(function(x) colSums(x^2) / 2, function(x) {
    shapes <<- rbind(shapes, dim(x))
    x
  }, dim = 3, smoothness = 1)
  shapes <- NULL
  elvi(model, schedule = schedule_custom(0.1, 250, iterations = 2), control = raw_control(block = 100))
  # the first is compared with `value`, before the run; blocks are about equal, in eights
  expect_equal(unname(shapes), cbind(3, c(1, rep(c(88, 88, 74), 2))))
})

test_that("a time limit ends a run with its error, and the checkpoint has the run so far", {
  skip_on_cran()
  set.seed(1)
  file <- tempfile("elvi-limit-")
  model <- model_density(function(x) colSums(x^2) / 2, function(x) {
    Sys.sleep(0.02)
    x
  }, dim = 2, vectorized = TRUE, convex = TRUE, smoothness = 1)
  limited <- function(...) {
    on.exit(setTimeLimit())
    setTimeLimit(elapsed = 1, transient = TRUE)
    elvi(model, schedule = schedule_custom(0.1, 1, 100), control = elvi_control(coordinates = "raw", ...))
  }
  expect_error(limited(), "reached elapsed time limit")
  expect_error(limited(checkpoint = file), "reached elapsed time limit")
  whole <- function(...) elvi(model, schedule = schedule_custom(0.1, 1, 100),
                              control = elvi_control(coordinates = "raw", ...))
  set.seed(1)
  expect_message(resumed <- whole(checkpoint = file), "Resuming")
  expect_identical(resumed$status, "finished")
})

# R's own limit comes at a moment that depends on the machine: this is its error at call number `at`
test_that("a time limit is never taken for a failure of the target, wherever it falls", {
  skip_on_cran()
  calls <- 0
  at <- Inf
  tick <- function() {
    calls <<- calls + 1
    if (calls == at) stop("reached elapsed time limit")
  }
  model <- model_density(function(x) { tick(); sum(x^4) / 4 + sum(x^2) / 2 }, function(x) { tick(); x^3 + x }, dim = 2)
  go <- function() {
    set.seed(1)
    calls <<- 0
    elvi(model, budget = 100, starts = 2)
  }
  suppressMessages(suppressWarnings(go()))
  last <- calls
  expect_gt(last, 100)
  for (at in every(unique(round(c(1:40, seq(41, last, length.out = 200)))), 16)) {
    expect_error(suppressMessages(suppressWarnings(go())), "reached elapsed time limit", label = paste("at call", at))
  }
  at <- 1
  limit <- function(...) stop("reached elapsed time limit")
  expect_error(schedule_custom(limit, 1, 10), "reached elapsed time limit")
  expect_error(model_density(limit, dim = 2), "reached elapsed time limit")
})

test_that("an interrupt while a finished run is judged leaves it finished", {
  interrupt <- function(...) stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  model <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, convex = TRUE, smoothness = 1)
  set.seed(1)
  expect_warning(fit <- with_swapped("verdict_on", interrupt, elvi(model, tol = 0.1)), class = "elvi_warning_interrupted")
  expect_identical(fit$status, "finished")
  set.seed(1)
  whole <- elvi(model, tol = 0.1)
  expect_identical(fit$state, whole$state)
  expect_identical(elvi(fit)$state$k, elvi(whole)$state$k)
})

test_that("every status of C has a name, and each failure an error class of its own", {
  statuses <- .Call(elvi_r_status_names)
  expect_identical(statuses[1:2], c("ok", "stopped"))
  expect_false(anyDuplicated(statuses) > 0)
  expect_identical(vapply(seq_along(statuses) - 1L, status_name, ""), statuses)
  fit <- list(state = list(k = 2, mu = c(1, 2), scale = diag(2)), given = list(model = model_quadratic(diag(2))))
  classes <- c(no_step = "elvi_error_backtrack", target_failed = "elvi_error_target", eigen_failed = "elvi_error_lapack",
               nonfinite_gradient = "elvi_error_nonfinite", singular_scale = "elvi_error_singular")
  for (name in names(classes)) {
    expect_error(check_status(match(name, statuses) - 1L, fit), class = classes[[name]])
  }
  # a run with a bound may end so, because a bound is about exact arithmetic
  expect_error(check_status(match("singular_scale", statuses) - 1L, fit), "A bound by guarantee\\(\\) assumes exact arithmetic")
  expect_silent(check_status(0L, fit))
})

test_that("a run that is paused above its start keeps its steps, and goes on as the whole run", {
  skip_on_cran()
  model <- load_experiments()$gearbox_model()
  start <- load_experiments()$away_from_the_mode(model, "symmetric")
  run <- function(...) {
    withr_seed(33, suppressMessages(suppressWarnings(elvi(model, schedule = schedule_tuned(2000), start = start,
                                                          control = elvi_control(trace_draws = 0, ...)))))
  }
  first <- run(iterations = 1)
  expect_identical(first$plan$shorten, 1)   # was 4
  expect_identical(elvi(first)$mu, run()$mu)
})
