# Of src/estimator_*.c and the records in R/control.R. The path gradient is tested where
# the loop is, in test-elvi.R and test-run-loop.R.

kinds <- c("symmetric", "triangular", "diagonal")

# some scale of each kind, off the axes where it can be
estimator_scale <- function(kind, d) {
  M <- diag(seq(0.6, 1.7, length.out = d), d)
  M[lower.tri(M)] <- 0.2 * sin(seq_len(d * (d - 1) / 2))
  switch(kind, symmetric = (M + t(M)) / 2, triangular = M, diagonal = diag(M))
}

estimator_bases <- function() list(
  gaussian = base_gaussian(), laplace = base_laplace(), uniform = base_uniform(), student = base_student(9),
  power = base_power(3), ball = base_radial(function(r) ifelse(r <= 1.7, 3, -Inf)),
  beta = base_radial(function(r) 1.5 * log(pmax(1 - r^2, 0))))

control_probe <- function(model, base, kind, block = 256, update = "project") {
  probe <- engine_probe(model, base, raw_control(scale = kind, estimator = "control", update = update, average = "last"))
  settings <- get("settings", environment(probe))
  settings$block <- block
  assign("settings", settings, environment(probe))
  probe
}

test_that("the control gradient is the one of the specification, for every base and kind of scale", {
  skip_on_cran()
  for (d in every(c(3, 1), 2)) {
    mu <- 0.3 * seq_len(d)
    for (model in list(engine_quadratic(d), engine_logistic(d))) for (kind in kinds) {
      S <- estimator_scale(kind, d)
      for (base in estimator_bases()) {
        z <- draw_base(law_of(base, d), c(7, 11), 40, iteration = 2)
        probes <- lapply(c(256, 7), function(block) control_probe(model, base, kind, block))
        where <- paste(d, model$kind, kind, base$kind)
        for (w in list(c(0, 1), c(0.7, -0.2))) {
          reference <- engine_gradient(model, base, kind, "control", mu, engine_full(S), z, memory = w)
          for (probe in probes) {
            g <- probe(mu, S, 40, k = 2, memory = w)
            expect_equal(g$mu, reference$mu, tolerance = 1e-10, label = where)
            expect_equal(engine_full(g$scale), reference$scale, tolerance = 1e-10, label = where)
          }
        }
      }
      # with a proximal step the entropy is left out
      if (kind != "symmetric") {
        g <- control_probe(model, base, kind, update = "prox")(mu, S, 40, k = 2, memory = w)
        reference <- engine_gradient(model, base, kind, "control", mu, engine_full(S), z, entropy = FALSE, memory = w)
        expect_equal(engine_full(g$scale), reference$scale, tolerance = 1e-10)
      }
    }
  }
})

test_that("the control gradient is unbiased for every base and kind of scale, whatever its weights", {
  skip_on_cran()
  d <- 3
  n <- 1000   # 25,000 draws show a bias of 3 %; a term that is wrong or left out is one of the size of the gradient
  batches <- 25
  model <- engine_logistic(d)
  mu <- c(0.4, -0.2, 0.1)
  for (base in estimator_bases()) {
    oracle <- exact_oracle(model, law_of(base, d))
    for (kind in kinds) {
      S <- estimator_scale(kind, d)
      # the truth: exact for a regression by quadrature
      exact <- oracle(kind, mu, S)
      full <- engine_full(S)
      truth <- c(exact$g_mu, engine_restrict(kind, exact$B %*% full - t(solve(full))))
      probe <- control_probe(model, base, kind)
      for (w in list(c(0, 1), c(1.3, -0.4))) {
        g <- vapply(seq_len(batches), function(k) {
          g <- probe(mu, S, n, k, memory = w)
          c(g$mu, engine_full(g$scale))
        }, truth)
        se <- apply(g, 1, sd) / sqrt(batches)
        off <- abs(rowMeans(g) - truth) / pmax(se, 1e-12)
        expect_lt(max(off[abs(rowMeans(g) - truth) > 1e-12], 0), 5.5, label = paste(kind, base$kind, w[1]))
      }
    }
  }
})

test_that("a target of the form the control knows leaves no noise, and its weights are learnt in one batch", {
  d <- 4
  for (kind in kinds) for (base in list(base_laplace(), base_uniform())) {
    S <- estimator_scale(kind, d)
    full <- engine_full(S)
    A <- 0.8 * diag(d) + 0.5 * solve(tcrossprod(full))
    model <- model_quadratic((A + t(A)) / 2, m = cos(seq_len(d)))
    g <- control_probe(model, base, kind)(model$m, S, 1, memory = c(0.8, 0.5))
    expect_lt(max(abs(g$mu)), 1e-12)
    expect_equal(engine_full(g$scale), engine_restrict(kind, A %*% full - t(solve(full))), tolerance = 1e-12)
    set.seed(1)
    fit <- elvi(model, base, schedule_custom(1e-9, 5000, iterations = 1), start = list(mu = model$m, Sigma = S),
                control = raw_control(scale = kind, estimator = "control", average = "last", scale_min = 0.01, trace_draws = 0))
    expect_equal(fit$state$memory, c(0.8, 0.5), tolerance = 0.02)
  }
})

test_that("the second weight stays below 1, and few numbers move the weights little", {
  skip_on_cran()
  # scale I: scale z and scale^-T z are the same, and A = 3 I needs w1 + w2 = 3; from (0, 1), both would move to (1, 2)
  model <- model_quadratic(3 * diag(2), m = c(0, 0))
  settings <- raw_control(estimator = "control", average = "last", scale_min = 0.01, trace_draws = 0)
  set.seed(1)
  fit <- elvi(model, base_uniform(), schedule_custom(1e-9, 4000, iterations = 1),
              start = list(mu = c(0, 0), Sigma = diag(2)), control = settings)
  expect_equal(fit$state$memory, c(2, 1), tolerance = 0.01)
  # one draw in one dimension: bounded by the gradient over the scale, however small z is
  line <- model_quadratic(matrix(2), m = 100)
  moved <- vapply(1:200, function(seed) {
    set.seed(seed)
    fit <- elvi(line, base_gaussian(), schedule_custom(1e-9, 1, iterations = 1), start = list(mu = 0, Sigma = 1), control = settings)
    max(abs(fit$state$memory - c(0, 1)))
  }, 0)
  expect_lt(max(moved), 200 / (2 * sqrt(5)))
})

test_that("the control estimator finds the optimum of a quadratic to machine precision with every base", {
  for (kind in kinds) for (base in list(base_uniform(), base_laplace())) {
    model <- if (kind == "diagonal") model_quadratic(diag(c(0.5, 2, 4.5)), m = c(1, -1, 2)) else engine_quadratic(3)
    set.seed(2)
    fit <- elvi(model, base, schedule_custom(0.5 / 4.5, 20, iterations = 1500),
                control = raw_control(scale = kind, estimator = "control", average = "last", trace_draws = 0))
    expect_lt(max(abs(fit$mu - model$m)), 1e-11, label = kind)
    expect_lt(max(abs(fit$Sigma - engine_root(model$A))), 1e-11, label = kind)
  }
})

test_that("what the control estimator has learnt goes on with the run, and does not depend on threads", {
  model <- engine_logistic(3)
  go <- function(threads = 1L, ...) {
    old <- options(elvi.threads = threads)
    on.exit(options(old))
    set.seed(4)
    elvi(model, base_uniform(), schedule_custom(0.1, 400, iterations = 12),
         control = elvi_control(block = 32, trace_draws = 0, ...))
  }
  whole <- go()
  expect_identical(whole$control$estimator, "control")
  expect_length(whole$state$memory, 2L)
  expect_false(identical(whole$state$memory, c(0, 1)))
  expect_identical(engine_bare(go(threads = 2L))$state, engine_bare(whole)$state)
  part <- go(iterations = 5)
  expect_identical(elvi(part)$state, whole$state)
  expect_equal(engine_replay(whole)$scale, engine_full(whole$state$scale), tolerance = 1e-10)
})

test_that("one draw at a time from a heavy-tailed base in one dimension stays finite", {
  model <- model_quadratic(matrix(2), m = 3)
  set.seed(1)
  fit <- elvi(model, base_student(2.5), schedule_decay(2000, step = 0.05, batch = 1),
              control = elvi_control(coordinates = "raw", average = "tail", trace_draws = 0))
  expect_true(all(is.finite(fit$state$memory)))
  expect_lt(max(abs(fit$state$mu - 3), abs(fit$state$scale - sqrt(1 / 2))), 0.2)
})

test_that("on the setting of Figure 1 a budget of 5000 ends within 0.6 nats of the optimum with every base", {
  skip_on_cran()
  model <- figure1()$model
  most <- c(gaussian = 0.55, laplace = 0.55, uniform = 0.6)
  for (base in list(base_laplace(), if (long_tests()) base_gaussian(), if (long_tests()) base_uniform())) {
    if (is.null(base)) next
    set.seed(1)
    fit <- elvi(model, base, budget = 5000, control = elvi_control(trace_draws = 0))
    expect_identical(fit$control$estimator, "control")
    expect_identical(fit$kept, "average")
    expect_lte(fit$state$evals, 5000)
    least <- if (base$kind == "laplace") figure1_least else elvi_optimum(model, base, tol = 1e-3)$objective
    above <- objective(fit)$estimate - least
    expect_lt(above, most[[base$kind]], label = base$kind)
    expect_gt(above, 0)
  }
})

test_that("a target far steeper than its Hessian at the mode does not explode", {
  steep <- model_density(function(x) colSums(x^2 / 2 + 30 * x^4), function(x) x + 120 * x^3, dim = 2, convex = TRUE)
  set.seed(3)
  fit <- elvi(steep, budget = 400)   # with a second weight of its own it did, whatever the step
  expect_identical(c(fit$status, fit$kept), c("finished", "average"))
})

# ---- a fixed control variate ------------------------------------------------------------------

test_that("the fixed gradient is its formula, for every base and kind of scale, and unbiased", {
  skip_on_cran()
  d <- 3
  mu <- c(0.3, -0.6, 0.9)
  for (model in list(engine_quadratic(d), engine_logistic(d))) for (kind in kinds) {
    S <- estimator_scale(kind, d)
    for (update in c("project", if (kind != "symmetric") "prox")) for (base in estimator_bases()[c("laplace", "uniform")]) {
      probe <- engine_probe(model, base, raw_control(scale = kind, estimator = "fixed", update = update, average = "last"))
      z <- draw_base(law_of(base, d), c(7, 11), 40, iteration = 2)
      for (b in c(0, 0.7)) {
        g <- probe(mu, S, 40, k = 2, memory = b)
        reference <- engine_gradient(model, base, kind, "fixed", mu, engine_full(S), z, entropy = update == "project", memory = b)
        expect_equal(g$mu, reference$mu, tolerance = 1e-10)
        expect_equal(engine_full(g$scale), reference$scale, tolerance = 1e-10)
        plain <- engine_probe(model, base, raw_control(scale = kind, update = update))(mu, S, 40, k = 2)
        if (b == 0) expect_equal(g[c("mu", "scale")], plain[c("mu", "scale")], tolerance = 1e-12)
      }
    }
    of <- vapply(seq_len(25), function(i) {
      g <- probe(mu, S, 1000, k = i, memory = 0.7)
      c(g$mu, engine_full(g$scale))
    }, numeric(d + d^2))
    plain <- vapply(seq_len(25), function(i) {
      g <- probe(mu, S, 1000, k = i, memory = 0)
      c(g$mu, engine_full(g$scale))
    }, numeric(d + d^2))
    off <- abs(rowMeans(of - plain)) / (apply(of - plain, 1, sd) / 5 + 1e-9)
    expect_lt(max(off), 4.5)
  }
})

test_that("a run with the fixed gradient is its replay, whole and in pieces, and needs an L", {
  skip_on_cran()
  model <- engine_logistic(3)
  for (coordinates in c("raw", "whitened")) {
    control <- elvi_control(coordinates = coordinates, estimator = "fixed", fixed_weight = 0.2, trace_draws = 0)
    set.seed(4)
    whole <- suppressMessages(elvi(model, schedule = schedule_fixed(200, "case2"), control = control))
    expect_equal(whole$state$memory, 0.2 * whole$smoothness)
    replay <- engine_replay(whole)
    expect_equal(unname(whole$state$mu), unname(replay$mu), tolerance = 1e-8)
    control$iterations <- 3
    set.seed(4)
    part <- suppressMessages(elvi(model, schedule = schedule_fixed(200, "case2"), control = control))
    expect_identical(suppressMessages(elvi(part, iterations = Inf))$mu, whole$mu)
  }
  expect_error(elvi_control(fixed_weight = 0.6), "fixed_weight", class = "elvi_error_argument")
})
