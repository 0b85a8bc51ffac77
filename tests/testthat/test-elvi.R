kinds <- c("symmetric", "triangular", "diagonal")

# ---- the loop, replayed in R -----------------------------------------------------

replay_cases <- list(
  c("symmetric", "reparam", "project"), c("symmetric", "path", "project"),
  c("triangular", "reparam", "project"), c("triangular", "path", "project"),
  c("triangular", "reparam", "prox"),
  c("diagonal", "reparam", "project"), c("diagonal", "path", "project"),
  c("diagonal", "reparam", "prox"),
  c("symmetric", "control", "project"), c("triangular", "control", "project"), c("diagonal", "control", "project"),
  c("triangular", "control", "prox"), c("diagonal", "control", "prox"))

replay_schedules <- function() list(
  case1 = schedule_fixed(150, "case1"), case2 = schedule_fixed(150, "case2"),
  psgd = schedule_fixed(40, "psgd"), psgd_scaled = schedule_fixed(40, "psgd_scaled"),
  decay = schedule_decay(100, step = 0.2, batch = 3, epsilon = 0.1, growth = 0.3),
  growing = schedule_growing(150, step = 0.3, batch = 2, nu = 0.2),
  custom = schedule_custom(function(k) 0.4 / (k + 1)^0.3, function(k) 3 + k %% 5, iterations = 30))

for (case in replay_cases) {
  odd <- match(list(case), replay_cases) %% 2   # by default half of the schedules and averages, the other half in the next case
  test_that(paste("the loop is the one of the specification:", toString(case)), {
    if (!identical(case, c("diagonal", "control", "project"))) skip_on_cran()
    bases <- list(base_gaussian(), base_laplace(), base_student(7), base_power(1.4))
    models <- list(engine_quadratic(4), engine_logistic(3))
    averages <- c("theorem", "tail", "last")
    schedules <- replay_schedules()
    moved <- 0
    turn <- 0
    for (name in names(schedules)) for (average in averages) {
      turn <- turn + 1
      if (!long_tests() && turn %% 2 != odd) next
      model <- models[[turn %/% 2 %% 2 + 1]]
      compact <- turn %% 3 == 0
      control <- raw_control(
        scale = case[1], estimator = case[2], update = case[3], average = average,
        tail = if (turn %% 2) 0.5 else 0.3,
        precondition = if (turn %% 5 < 2) c(mu = 0.7, Sigma = 0.4),
        scale_max = if (compact && case[3] == "project") 0.8 else Inf,
        mu_radius = if (compact) 0.6 else Inf,
        mu_centre = if (compact) rep(0.1, model$dim), trace_draws = 10)
      set.seed(turn)
      fit <- suppressWarnings(
        elvi(model, bases[[turn %% 4 + 1]], schedules[[name]], control = control),
        classes = "elvi_warning_diverged")
      replay <- engine_replay(fit)
      where <- paste(name, average, fit$base$kind, model$kind)
      expect_equal(fit$state$k, length(replay$plan$step), label = where)
      expect_equal(fit$state$evals, sum(replay$plan$batch), label = where)
      expect_lt(engine_distance(fit, replay), 1e-10, label = where)
      expect_lt(max(abs(fit$trace$gradient_map[-1] / replay$map[fit$trace$iteration[-1]] - 1)), 1e-8,
                label = where)
      moved <- moved + replay$moved
    }
    # a replay in which nothing is projected would prove little
    expect_gt(moved[["mu"]], 10)
    if (case[3] == "project") expect_gt(moved[["scale"]], 10)
  })
}

test_that("the loop is the one of the specification in one dimension", {
  model <- model_quadratic(matrix(2), m = 1)
  for (kind in kinds) for (base in list(base_gaussian(), base_laplace(), base_uniform())) {
    set.seed(3)
    fit <- elvi(model, base, schedule_fixed(200, "case2"),
                control = raw_control(scale = kind, scale_max = 0.71, mu_radius = 0.5))
    expect_lt(engine_distance(fit), 1e-10, label = paste(kind, base$kind))
    expect_equal(dim(fit$Sigma), c(1L, 1L))
  }
})

test_that("Sigma is the symmetric root of the covariance, whatever the scale", {
  model <- engine_quadratic(4)
  for (kind in kinds) {
    set.seed(1)
    fit <- raw_fit(model, budget = 500, scale = kind)
    S <- engine_full(fit$scale)
    expect_equal(unname(fit$Sigma %*% fit$Sigma), tcrossprod(S), tolerance = 1e-12)
    expect_equal(fit$Sigma, t(fit$Sigma), tolerance = 0)
    expect_gt(min(eigen(fit$Sigma)$values), 0)
    if (kind == "triangular") {
      expect_true(all(fit$scale[upper.tri(fit$scale)] == 0))
      expect_gt(max(abs(fit$scale[lower.tri(fit$scale)])), 0.01)
    }
  }
})

# ---- coordinates -------------------------------------------------------------------

test_that("in whitened coordinates the loop is the same, on the target seen from there", {
  skip_on_cran()
  schedules <- list(schedule_tuned(300), schedule_fixed(300, "case1"), schedule_growing(200, batch = 2),
                    schedule_custom(0.1, 5, iterations = 20))
  turn <- 0
  for (model in list(engine_quadratic(4), engine_logistic(3))) for (case in replay_cases) {
    turn <- turn + 1
    base <- list(base_gaussian(), base_laplace(), base_student(7))[[turn %% 3 + 1]]
    set.seed(turn)
    fit <- suppressMessages(
      elvi(model, base, schedules[[turn %% 4 + 1]],
           control = elvi_control(scale = case[1], estimator = case[2], update = case[3], tail = 0.4)),
      classes = "elvi_message_start_kept")
    where <- paste(model$kind, toString(case), fit$schedule$kind)
    expect_lt(engine_distance(fit), 1e-10, label = where)
    # x = m + A w in the end
    A <- engine_full(fit$work$A)
    W <- engine_full(fit$state$scale)
    S <- engine_full(fit$last$scale)
    expect_equal(unname(fit$last$mu), c(fit$work$m + A %*% fit$state$mu), tolerance = 1e-12, label = where)
    expect_equal(tcrossprod(S), A %*% tcrossprod(W) %*% t(A), tolerance = 1e-10, label = where)
    expect_equal(S, engine_restrict(case[1], S), tolerance = 1e-14, label = where)
    expect_gt(min(diag(S)), 0)
    # from the Laplace approximation
    target <- engine_target(model)
    expect_lt(max(abs(target$gradient(cbind(fit$work$m)))), 1e-5, label = where)
    H <- vapply(1:model$dim, function(i) {
      h <- 1e-5 * (1:model$dim == i)
      c(target$gradient(cbind(fit$work$m + h)) - target$gradient(cbind(fit$work$m - h))) / 2e-5
    }, numeric(model$dim))
    V <- if (case[1] == "diagonal") diag(1 / diag(H)) else solve(H)
    expect_equal(tcrossprod(A), V, tolerance = 1e-6, label = where)
    expect_equal(fit$start, list(mu = numeric(model$dim),
                                 scale = if (case[1] == "diagonal") rep(1, model$dim) else diag(model$dim)))
  }
})

test_that("whitened runs are affine equivariant", {
  # two quadratic targets are the same one, seen from whitened coordinates
  run <- function(model) {
    set.seed(5)
    elvi(model, base_laplace(), budget = 500, control = elvi_control(estimator = "reparam"))
  }
  near <- run(model_quadratic(diag(3)))
  far <- run(model_quadratic(1e6 * engine_quadratic(3)$A, m = c(1e3, -1e3, 0)))
  expect_equal(near$state, far$state, tolerance = 1e-8)
  expect_gt(max(abs(near$state$scale - diag(3))), 1e-3)
})

test_that("what is left to elvi() is chosen for the base, the update and the schedule", {
  chosen <- function(...) elvi(engine_quadratic(3), ...)$control[c("estimator", "average")]
  pair <- function(estimator, average) list(estimator = estimator, average = average)
  quiet <- function(code) suppressMessages(code, classes = "elvi_message_start_kept")
  expect_identical(quiet(chosen(budget = 50)), pair("control", "tail"))
  expect_identical(quiet(chosen(base_uniform(), budget = 50)), pair("control", "tail"))
  expect_identical(quiet(chosen(schedule = schedule_fixed(50))), pair("control", "theorem"))
  expect_identical(quiet(chosen(base_student(3), schedule_custom(0.1, 5, iterations = 5))), pair("control", "tail"))
  expect_identical(quiet(chosen(budget = 50, control = elvi_control(scale = "diagonal", update = "prox"))),
                   pair("reparam", "tail"))
  expect_identical(quiet(chosen(budget = 50, control = elvi_control(estimator = "reparam", average = "last"))),
                   pair("reparam", "last"))
  fit <- quiet(elvi(engine_quadratic(3), base_laplace(), budget = 777))
  expect_identical(fit$schedule, schedule_tuned(777))
  expect_identical(fit$control$coordinates, "whitened")
})

test_that("the default fit is close to the exact optimum, for every base and scale", {
  model <- engine_logistic(3)
  for (kind in kinds) for (base in list(base_gaussian(), base_laplace(), base_uniform(), base_student(8))) {
    set.seed(6)
    fit <- elvi(model, base, budget = 5000, control = elvi_control(scale = kind))
    left <- objective(fit)$estimate - elvi_optimum(model, base, kind)$objective
    expect_gt(left, -1e-9, label = paste(kind, base$kind))
    expect_lt(left, if (base$kind == "uniform") 0.02 else 0.002, label = paste(kind, base$kind))
  }
})

test_that("a smoothness that nobody gave is estimated, and called so", {
  set.seed(7)
  X <- cbind(1, seq(-1, 1, length.out = 30))
  model <- model_glm(X, rep(0:4, 6), family = poisson())
  for (coordinates in c("raw", "whitened")) {
    fit <- elvi(model, schedule = schedule_fixed(2000), control = elvi_control(coordinates))
    expect_match(fit$smoothness_source, "estimated")
    expect_output(print(summary(fit)), "estimated")
    expect_identical(fit$status, "finished")
    expect_identical(fit$kept, "average")
  }
})

# ---- never worse than the start ---------------------------------------------------------

test_that("a fit is never worse than its start", {
  model <- engine_quadratic(3)
  best <- list(mu = model$m, Sigma = engine_root(model$A))
  for (kind in kinds) {
    if (kind != "symmetric") best$Sigma <- diag(1 / sqrt(diag(model$A)))
    set.seed(8)
    expect_message(
      fit <- raw_fit(model, schedule = schedule_custom(0.02, 1, iterations = 30), start = if (kind == "triangular")
        list(mu = model$m, Sigma = t(chol(solve(model$A)))) else best, scale = kind),
      "did not improve", class = "elvi_message_start_kept")
    expect_identical(fit$kept, "start")
    expect_identical(unname(fit$mu), model$m)
    expect_identical(engine_full(fit$scale), engine_full(fit$start$scale))
    expect_gt(max(abs(fit$last$mu - fit$mu)), 1e-3)      # the run did move
    expect_output(print(fit), "the start, which the run did not improve")
  }
  set.seed(8)
  expect_no_message(fit <- raw_fit(model))
  expect_identical(fit$kept, "average")
  expect_identical(unname(fit$mu), fit$state$average_mu)
  expect_lt(objective(fit)$estimate, objective(list(mu = fit$start$mu, Sigma = fit$start$scale), model)$estimate)
})

test_that("without an exact objective the start is compared on common draws", {
  model <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, smoothness = 1)
  set.seed(9)
  expect_message(fit <- raw_fit(model, schedule = schedule_custom(0.5, 1, iterations = 20), average = "last",
                                start = list(mu = c(0, 0), Sigma = diag(2))), class = "elvi_message_start_kept")
  expect_identical(fit$kept, "start")
  expect_no_message(fit <- raw_fit(model, start = list(mu = c(5, 5))))
  expect_identical(fit$kept, "average")
  # no draws, no comparison
  fit <- raw_fit(model, schedule = schedule_custom(0.5, 1, iterations = 20), start = list(mu = c(0, 0)), trace_draws = 0)
  expect_identical(fit$kept, "average")
})

# ---- known optima ------------------------------------------------------------------

test_that("every base and every scale finds the optimum of a quadratic target", {
  skip_on_cran()
  model <- engine_quadratic(3)
  full <- engine_root(model$A)
  diagonal <- diag(1 / sqrt(diag(model$A)))
  expect_gt(max(abs(full - diagonal)), 0.1)   # the two are told apart below
  bases <- list(base_gaussian(), base_laplace(), base_uniform(), base_student(9), base_power(1.4),
                base_radial(function(r) -2 * log(cosh(r / 2))))
  # short batches to get there, long ones to be precise
  schedule <- schedule_custom(0.5 / model$smoothness, function(k) ifelse(k < 80, 50, 4000),
                              iterations = 130)
  for (base in every(bases, 2)) for (kind in kinds) for (update in c("project", "prox")) {
    if (kind == "symmetric" && update == "prox") next
    set.seed(1)
    fit <- elvi(model, base, schedule, start = list(mu = c(2, 2, -2)),
                control = raw_control(scale = kind, update = update, average = "tail", tail = 0.3,
                                       trace_draws = 0))
    where <- paste(base$kind, kind, update)
    expect_lt(max(abs(fit$mu - model$m)), 0.012, label = where)
    expect_lt(max(abs(fit$Sigma - if (kind == "diagonal") diagonal else full)), 0.012, label = where)
  }
})

test_that("the path estimator finds the optimum of a Gaussian target to machine precision", {
  # no noise is left at the optimum, so constant steps and batches converge
  for (kind in kinds) {
    model <- if (kind == "diagonal") model_quadratic(diag(c(0.5, 2, 4.5)), m = c(1, -1, 2)) else engine_quadratic(3)
    set.seed(2)
    fit <- elvi(model, base_gaussian(), schedule_custom(0.5 / 4.5, 20, iterations = 1500),
                control = raw_control(scale = kind, estimator = "path", average = "last", trace_draws = 0))
    expect_lt(max(abs(fit$mu - model$m)), 1e-12, label = kind)
    expect_lt(max(abs(fit$Sigma - engine_root(model$A))), 1e-12, label = kind)
  }
})

test_that("the mean of mu_k follows (I - step lambda A)^k", {
  skip_on_cran()
  model <- engine_quadratic(3)
  start <- c(3, -2, 1)
  step <- 0.08
  lambda <- 0.6
  iterates <- vapply(1:300, function(seed) {
    set.seed(seed)
    unname(elvi(model, base_laplace(), schedule_custom(step, 2, iterations = 12),
                start = list(mu = start),
                control = raw_control(average = "last", trace_draws = 0,
                                       precondition = c(mu = lambda, Sigma = 1)))$mu)
  }, numeric(3))
  exact <- start - model$m
  for (k in 1:12) exact <- exact - step * lambda * model$A %*% exact
  error <- rowMeans(iterates) - model$m - exact
  se <- apply(iterates, 1, sd) / sqrt(ncol(iterates))
  expect_lt(max(abs(error / se)), 4)
  expect_lt(max(se), 0.05)
  expect_gt(max(abs(start - model$m - exact)), 1)   # it has moved, by far more than the noise
})

# ---- projection ------------------------------------------------------------------------

inner <- function(x, y) sum(x * y)
size <- function(x) sqrt(sum(x^2))

# points of the feasible set: any, and some next to P
feasible_points <- function(kind, P, lower, upper, n) {
  d <- nrow(P)
  top <- if (is.finite(upper)) upper else 3 * max(lower, size(P))
  lapply(seq_len(n), function(i) {
    if (kind == "diagonal") return(diag(runif(d, lower, top), d))
    if (kind == "symmetric") {
      Q <- qr.Q(qr(matrix(rnorm(d * d), d)))
      Y <- Q %*% (runif(d, lower, top) * t(Q))
    } else {
      Y <- engine_restrict("triangular", matrix(rnorm(d * d), d))
      diag(Y) <- runif(d, lower, top)
      # towards a feasible multiple of I until the largest singular value fits
      centre <- diag((lower + top) / 2, d)
      for (halving in 1:60) {
        if (svd(Y)$d[1] <= upper) break
        Y <- (Y + centre) / 2
      }
    }
    P + (Y - P) * sample(c(1, 0.1, 1e-3), 1)   # the set is convex
  })
}

expect_projection <- function(kind, M, lower, upper, n = 60, tol = 1e-9) {
  shown <- if (kind == "diagonal") diag(M) else M
  out <- project_scale(kind, shown, lower, upper)
  P <- engine_full(out$scale)
  M <- engine_restrict(kind, M)
  where <- sprintf("%s d = %d in [%g, %g]", kind, nrow(M), lower, upper)
  # feasible
  expect_lt(size(P - engine_restrict(kind, P)), 1e-14 * size(P) + 1e-300, label = where)
  if (kind == "triangular") {
    expect_gte(min(diag(P)), lower * (1 - 1e-11), label = where)
  } else {
    expect_gte(min(eigen(P, symmetric = TRUE)$values), lower * (1 - 1e-11), label = where)
  }
  expect_lte(svd(P)$d[1], upper * (1 + 1e-11), label = where)
  # idempotent
  again <- project_scale(kind, out$scale, lower, upper)
  expect_lt(size(engine_full(again$scale) - P), 1e-10 * size(P), label = where)
  # the obtuse angle that characterises the projection onto a convex set
  angles <- vapply(feasible_points(kind, P, lower, upper, n),
                   function(Y) inner(M - P, Y - P) / (size(M - P) * max(size(Y - P), 1e-6 * size(P)) + 1e-300), 0)
  expect_lt(max(angles), tol, label = where)
  invisible(out)
}

random_scale <- function(kind, d, centre, spread) {
  engine_restrict(kind, diag(centre, d) + spread * matrix(rnorm(d * d), d))
}

test_that("project_scale() is the Euclidean projection, below, above and both", {
  skip_on_cran()
  set.seed(5)
  bounds <- list(c(1.5, Inf), c(1e-3, 1.1), c(0.8, 1.2), c(1, 1))
  for (kind in kinds) for (d in if (long_tests()) c(1, 2, 3, 8) else c(2, 8)) for (b in bounds) {
    expect_projection(kind, random_scale(kind, d, 1, 0.8), b[1], b[2])
  }
})

test_that("project_scale() moves many eigenvalues, and counts them", {
  set.seed(6)
  for (d in c(1, 5, 20, 60)) for (b in list(c(1, Inf), c(1e-6, 2), c(0.5, 0.9), c(0.7, 0.7))) {
    M <- random_scale("symmetric", d, 0.6, 1)
    values <- eigen(M, symmetric = TRUE)$values
    out <- project_scale("symmetric", M, b[1], b[2])
    expect_lt(max(abs(out$scale - engine_project("symmetric", M, b[1], b[2]))), 1e-10)
    expect_equal(out$clipped, sum(values < b[1] | values > b[2]), label = paste(d, toString(b)))

    s <- diag(M)
    out <- project_scale("diagonal", s, b[1], b[2])
    expect_identical(out$scale, pmin(pmax(s, b[1]), b[2]))
    expect_equal(out$clipped, sum(s < b[1] | s > b[2]))

    C <- random_scale("triangular", d, 0.6, 1)
    out <- project_scale("triangular", C, b[1], Inf)
    diag(C) <- pmax(diag(C), b[1])
    expect_identical(out$scale, C)
  }
})

test_that("project_scale() leaves alone what is inside, and what it made itself", {
  inside <- engine_root(engine_quadratic(5)$A)
  out <- project_scale("symmetric", inside, 0.01, 10)
  expect_identical(out$scale[lower.tri(inside, TRUE)], inside[lower.tri(inside, TRUE)])
  expect_equal(out$clipped, 0)
  set.seed(7)
  M <- random_scale("symmetric", 30, 0.5, 1)
  once <- project_scale("symmetric", M, 0.4, 0.9)
  twice <- project_scale("symmetric", once$scale, 0.4, 0.9)
  expect_gt(once$clipped, 20)
  expect_equal(twice$clipped, 0)
  expect_identical(twice$scale, once$scale)
})

test_that("project_scale() is non-expansive", {
  skip_on_cran()
  set.seed(8)
  for (kind in kinds) for (d in c(1, 2, 6)) for (pair in 1:20) {
    A <- random_scale(kind, d, 0.8, 1)
    B <- if (pair %% 2) random_scale(kind, d, 0.8, 1) else A + random_scale(kind, d, 0, 1e-3)
    P <- function(M) engine_full(project_scale(kind, if (kind == "diagonal") diag(M) else M, 0.5, 0.9)$scale)
    expect_lte(size(P(A) - P(B)), size(A - B) * (1 + 1e-10))
  }
})

test_that("the projection of a triangular scale with an upper bound agrees with brute force", {
  skip_on_cran()
  set.seed(9)
  for (d in c(2, 3, 6)) for (b in list(c(0.5, 0.6), c(0.3, 1), c(0.01, 0.5))) for (turn in 1:3) {
    M <- random_scale("triangular", d, 0.5, 1)
    out <- project_scale("triangular", M, b[1], b[2])
    slow <- engine_project_triangular(M, b[1], b[2])
    expect_lt(max(abs(out$scale - slow)), 1e-10, label = paste(d, toString(b)))
  }
  # d = 2 by minimising the distance: C = (x, y; z, w), sigma_max <= hi as the
  # largest y for given diagonal entries, which leaves a box of two variables
  M <- matrix(c(1.3, -0.9, 0, 0.2), 2)
  lo <- 0.4
  hi <- 0.8
  best <- function(diagonal) {
    # |C| <= hi iff hi^2 I - C'C >= 0, which bounds the entry below the diagonal
    most <- sqrt((hi^2 - diagonal[1]^2) * (hi^2 - diagonal[2]^2)) / hi
    y <- min(max(M[2, 1], -most), most)
    list(y = y, distance = sum((diagonal - diag(M))^2) + (y - M[2, 1])^2)
  }
  found <- optim(c(0.6, 0.6), function(v) best(v)$distance, method = "L-BFGS-B", lower = lo,
                 upper = hi - 1e-9, control = list(factr = 10, pgtol = 0))
  P <- project_scale("triangular", M, lo, hi)$scale
  expect_equal(svd(P)$d[1], hi, tolerance = 1e-12)
  expect_equal(diag(P), found$par, tolerance = 1e-4)
  expect_lt(abs(size(P - M)^2 - found$value), 1e-8)
})

test_that("the feasible set holds at every iterate and for the average", {
  skip_on_cran()
  model <- engine_quadratic(4)
  for (kind in kinds) for (average in c("theorem", "tail", "last")) {
    set.seed(4)
    fit <- elvi(model, base_laplace(), schedule_custom(0.3, 1, iterations = 40),
                control = raw_control(scale = kind, average = average, scale_min = 0.55, scale_max = 0.7,
                                       mu_radius = 0.3, mu_centre = rep(-0.2, 4)))
    for (S in list(fit$scale, fit$last$scale)) {
      S <- engine_full(S)
      low <- if (kind == "triangular") min(diag(S)) else min(eigen(S)$values)
      expect_gte(low, 0.55 - 1e-12)
      expect_lte(svd(S)$d[1], 0.7 + 1e-12)
    }
    for (mu in list(fit$mu, fit$last$mu)) expect_lte(size(mu + 0.2), 0.3 + 1e-12)
    expect_gt(sum(fit$trace$clipped), 10)
  }
})

# ---- start -----------------------------------------------------------------------------------

test_that("a run starts where it is told, or at (0, I / sqrt(L))", {
  model <- engine_quadratic(3)
  start_of <- function(start = NULL, ...) raw_fit(model, budget = 10, start = start, ...)$start
  L <- model$smoothness
  expect_equal(start_of(), list(mu = numeric(3), scale = diag(1 / sqrt(L), 3)))
  expect_equal(start_of(scale = "diagonal"),
               list(mu = numeric(3), scale = rep(1 / sqrt(L), 3)))
  expect_equal(start_of(smoothness = 100)$scale, diag(0.1, 3))
  expect_equal(start_of(scale_min = 0.9)$scale, diag(0.9, 3))
  expect_equal(start_of(mu_radius = 1, mu_centre = 1:3)$mu, as.double(1:3))
  S <- engine_root(model$A)
  expect_equal(start_of(list(mu = 1:3, Sigma = S)), list(mu = as.double(1:3), scale = S))
  expect_equal(start_of(list(Sigma = 2))$scale, diag(2, 3))
  expect_equal(start_of(list(Sigma = 1:3))$scale, diag(1:3))
  expect_equal(start_of(list(Sigma = diag(1:3)), scale = "diagonal")$scale,
               as.double(1:3))
  C <- t(chol(S %*% S))
  expect_equal(start_of(list(Sigma = C), scale = "triangular")$scale, C)
  # the first row of the trace is the start
  fit <- raw_fit(model, base_uniform(), budget = 10, start = list(mu = 1:3, Sigma = S))
  z <- draw_base(law_of(base_uniform(), 3), fit$seed, 100, iteration = -1)
  expect_equal(fit$trace$objective[1],
               mean(engine_target(model)$value(1:3 + S %*% z)) - determinant(S)$modulus[1])
})

# ---- seeds and blocks ---------------------------------------------------------------------------

test_that("set.seed() decides a fit, and R's generator moves on with every new run", {
  model <- engine_logistic()
  run <- function() elvi(model, base_laplace(), budget = 400)
  set.seed(11)
  before <- .Random.seed
  first <- run()
  moved <- .Random.seed
  other <- run()
  set.seed(11)
  same <- run()
  expect_false(identical(before, moved))
  expect_identical(engine_bare(first), engine_bare(same))
  expect_false(identical(first$seed, other$seed))
  expect_gt(max(abs(first$mu - other$mu)), 1e-6)
  expect_identical(first$rng_kind, RNGkind())
})

test_that("continuing a fit takes nothing from R's generator", {
  set.seed(12)
  fit <- raw_fit(engine_logistic(), iterations = 5)
  before <- .Random.seed
  elvi(fit)
  expect_identical(.Random.seed, before)
})

test_that("neither the draws nor the fit depend on the block size", {
  skip_on_cran()
  law <- law_of(base_student(5), 4)
  whole <- draw_base(law, c(3, 5), 50, iteration = 9)
  pieces <- cbind(draw_base(law, c(3, 5), 7, iteration = 9),
                  draw_base(law, c(3, 5), 43, first = 7, iteration = 9))
  expect_identical(whole, pieces)
  for (model in list(engine_quadratic(4), engine_logistic())) for (kind in kinds) {
    fits <- lapply(list(1, 7, 64, 1000, NULL), function(block) {
      set.seed(13)
      elvi(model, base_laplace(), schedule_fixed(2000, "case1"),
           control = raw_control(scale = kind, block = block))
    })
    for (fit in fits[-1]) {
      expect_identical(fit$seed, fits[[1]]$seed)
      expect_equal(fit$state, fits[[1]]$state, tolerance = 1e-10)
      expect_equal(fit$trace$objective, fits[[1]]$trace$objective, tolerance = 1e-10)
    }
  }
})

test_that("the number of BLAS threads changes neither draws nor fits", {
  skip_on_cran()
  code <- '
    z <- elvi:::draw_base(elvi:::law_of(base_laplace(), 7), c(1, 2), 1000, iteration = 3)
    X <- matrix(sin(seq_len(400 * 60)^1.3), 400)
    set.seed(1)
    fit <- elvi(model_glm(X, rep(0:1, 200)), base_laplace(), budget = 2000)
    out <- list(z = z, mu = fit$mu, Sigma = fit$Sigma, seed = fit$seed)'
  threads <- function(n) {
    in_new_r(code, env = paste0(c("OPENBLAS_NUM_THREADS=", "OMP_NUM_THREADS="), n))$out
  }
  one <- threads(1)
  two <- threads(2)
  expect_identical(one$z, two$z)
  expect_identical(one$z, draw_base(law_of(base_laplace(), 7), c(1, 2), 1000, iteration = 3))
  expect_identical(one$seed, two$seed)
  expect_equal(one, two, tolerance = 1e-10)
})

# ---- going on ---------------------------------------------------------------------------------------

expect_same_fit <- function(a, b, where) {
  parts <- c("mu", "Sigma", "scale", "last", "state", "trace", "status", "plan")
  for (part in parts) {
    expect_identical(engine_bare(a)[[part]], engine_bare(b)[[part]], label = paste(where, part))
  }
}

test_that("a paused and continued run is identical to a whole one: every schedule and average", {
  skip_on_cran()
  model <- engine_logistic()
  schedules <- replay_schedules()
  averages <- c("theorem", "tail", "last")
  # by default each schedule with one average, in turn
  for (name in names(schedules)) for (average in if (long_tests()) averages else averages[match(name, names(schedules)) %% 3 + 1]) {
    run <- function(...) {
      set.seed(21)
      elvi(model, base_laplace(), schedules[[name]], control = raw_control(average = average, ...))
    }
    whole <- run()
    half <- run(iterations = ceiling(0.4 * whole$state$k))
    expect_identical(half$status, "paused")
    expect_lt(half$state$k, whole$state$k)
    expect_same_fit(whole, elvi(half), paste(name, average))
    expect_same_fit(whole, update(elvi(half, iterations = half$state$k + 1)), paste(name, average, "twice"))
  }
})

test_that("a paused and continued run is identical to a whole one: every scale and estimator", {
  skip_on_cran()
  model <- engine_quadratic(4)
  for (case in replay_cases) for (at in if (long_tests()) c(1, 100, 117) else c(1, 117)) {
    run <- function(...) {
      set.seed(22)
      elvi(model, base_gaussian(), schedule_custom(0.1, 3, iterations = 123),
           control = raw_control(scale = case[1], estimator = case[2], update = case[3], ...))
    }
    if (at == 1) whole <- run()
    expect_same_fit(whole, elvi(run(iterations = at)), paste(toString(case), at))
  }
})

test_that("a schedule without a horizon can be given a larger budget", {
  skip_on_cran()
  model <- engine_logistic()
  schedules <- list(
    decay = function(budget) schedule_decay(budget, batch = 2, epsilon = 0.1),
    both = function(budget) schedule_decay(budget, batch = 2, epsilon = 0, growth = 0.5),
    growing = function(budget) schedule_growing(budget, batch = 2, nu = 0.5),
    tuned = function(budget) schedule_tuned(budget))
  for (name in names(schedules)) for (average in c("theorem", "last")) {
    coordinates <- if (name == "tuned") "whitened" else "raw"
    run <- function(budget) {
      set.seed(23)
      elvi(model, base_laplace(), schedules[[name]](budget), control = elvi_control(coordinates, average = average))
    }
    short <- run(237)
    long <- run(1501)
    expect_identical(short$status, "finished")
    expect_gt(long$state$k, short$state$k)
    expect_same_fit(long, elvi(short, budget = 1501), paste(name, average))
    expect_same_fit(long, elvi(elvi(short, budget = 700), budget = 1501), paste(name, average, "twice"))
  }
})

test_that("a complete run stays as it is", {
  fit <- raw_fit(engine_logistic(), budget = 100)
  expect_message(again <- elvi(fit), "complete", class = "elvi_message")
  expect_identical(again, fit)
})

# ---- the experiment of the paper ----------------------------------------------------------------------

# exact, and by simulation
gap <- function(fit, optimum = figure1_least) {
  exact <- objective(fit)$estimate
  simulated <- objective(fit, method = "monte_carlo", draws = 2000)
  expect_lt(abs(simulated$estimate - exact), 4 * simulated$se)
  exact - optimum
}

test_that("Figure 1 of the paper: gaps of the two cases after 5000 gradients", {
  skip_on_cran()
  setting <- figure1()
  expect_equal(setting$model$smoothness, 0.1 + svd(setting$U)$d[1]^2 / 4, tolerance = 1e-8)
  gaps <- vapply(c(case1 = "case1", case2 = "case2"), function(preset) {
    fit <- elvi(setting$model, base_laplace(), schedule_fixed(5000, preset),
                control = raw_control(average = "last", trace_draws = 0))
    expect_identical(fit$status, "finished")
    gap(fit)
  }, 0)
  expect_lt(abs(gaps[["case1"]] - 634), 3)
  expect_lt(abs(gaps[["case2"]] - 794), 3)
})

test_that("Figure 1 of the paper in whitened coordinates", {
  skip_on_cran()
  setting <- figure1()
  set.seed(2)
  case2 <- elvi(setting$model, base_laplace(), schedule_fixed(5000, "case2"),
                control = elvi_control(estimator = "reparam", average = "last", trace_draws = 0))
  expect_equal(case2$smoothness, 23.607, tolerance = 1e-4)
  expect_lte(case2$state$evals, 5000)
  expect_lt(abs(gap(case2) - 7.2), 1)
})

# Over seeds the gaps vary by 2 %, far from the limits; test-estimator.R has another seed and the other bases.
test_that("Figure 1: the tuned schedule ends within 1 nat for 5,000 evaluations", {
  skip_on_cran()
  set.seed(2)
  fit <- elvi(figure1()$model, base_laplace(), budget = 5000)
  expect_lte(fit$state$evals, 5000)
  above <- gap(fit)
  expect_lt(above, 1)
  expect_gt(above, 0)   # F* is a minimum
})

test_that("Figure 1: and within 0.1 nat for 50,000", {
  skip_unless_long()
  set.seed(1)
  above <- gap(elvi(figure1()$model, base_laplace(), budget = 50000))
  expect_lt(above, 0.1)
  expect_gt(above, 0)
})

test_that("ten times the budget leaves a tenth of the gap, on the problem of Figure 1 in 30 dimensions", {
  skip_on_cran()
  data <- withr_seed(1, list(U = matrix(runif(45 * 30), 45), y = rbinom(45, 1, 0.5)))
  model <- model_glm(data$U, data$y, prior = normal(0, 1 / sqrt(0.1)))
  best <- elvi_optimum(model, base_laplace())
  gaps <- vapply(c(2000, 20000), function(budget) {
    set.seed(1)
    objective(elvi(model, base_laplace(), budget = budget))$estimate - best$objective
  }, 0)
  expect_gt(gaps[2], 0)
  expect_lt(abs(gaps[1] / gaps[2] - 10), 3)
})

test_that("Figure 1 of the paper: one gradient per step", {
  skip_on_cran()
  setting <- figure1()
  for (preset in every(c("psgd", "psgd_scaled"), 2)) {
    fit <- elvi(setting$model, base_laplace(), schedule_fixed(5000, preset),
                control = raw_control(average = "last", iterations = 100, trace_draws = 0))
    expect_equal(fit$plan$iterations, 5000)
    expect_equal(fit$state$evals, 100)
    expect_identical(fit$kept, "average")       # better than the start,
    expect_lt(gap(fit), 820)                    # whose gap is 820.4
  }
})

test_that("Figure 1 of the paper with the printed smoothness diverges, and says so", {
  skip_on_cran()
  setting <- figure1()
  printed <- 0.1 + svd(setting$U)$d[1] / 4   # the square is missing in print: 31 for 3763
  expect_equal(round(printed), 31)
  for (preset in every(c("case1", "case2"), 2)) {
    warned <- expect_warning(
      fit <- elvi(setting$model, base_laplace(), schedule_fixed(5000, preset),
                  control = raw_control(smoothness = printed)),
      "diverged.*`smoothness` = 30.77 is too small .*3764", class = "elvi_warning_diverged")
    expect_match(conditionMessage(warned), paste0("`smoothness` = ", format(printed, digits = 4),
                                                  " is too small (the model's own is 3764)"), fixed = TRUE)
    expect_match(conditionMessage(warned), "The start is returned.", fixed = TRUE)
    expect_identical(fit$status, "diverged")
    expect_identical(fit$kept, "start")
    expect_identical(fit$smoothness_source, "given in elvi_control()")
    expect_equal(unname(fit$mu), numeric(200))
    expect_equal(unname(fit$Sigma), diag(1 / sqrt(printed), 200), tolerance = 1e-12)
    expect_gt(fit$trace$objective[nrow(fit$trace)], max(2000, fit$trace$objective[1] + 500))
    # the set that this L allows does not hold the optimum, whose smallest scale is below
    expect_gt(fit$feasible$scale_min, 3 / sqrt(setting$model$smoothness))
  }
})

# ---- a user's functions ------------------------------------------------------------------------------------

# a standard normal target that counts the calls of its gradient once it is built
counted <- function(gradient = function(x, call) x, dim = 2, ...) {
  count <- new.env()
  count$calls <- -Inf
  model <- model_density(
    value = function(x) colSums(x^2) / 2,
    gradient = function(x) {
      count$calls <- count$calls + 1
      gradient(x, count$calls)
    }, dim = dim, smoothness = 1, ...)
  count$calls <- 0
  model$own_gradient <- FALSE   # no call before the run, see test-run-gradient-check.R
  model
}

test_that("R functions and native code make the same fit", {
  native <- model_quadratic(diag(2))
  for (kind in kinds) {
    set.seed(31)
    a <- raw_fit(native, base_laplace(), 2000, scale = kind)
    set.seed(31)
    b <- raw_fit(counted(), base_laplace(), 2000, scale = kind)
    expect_equal(a$state, b$state, tolerance = 1e-10)
    expect_equal(a$trace[names(a$trace) != "cpu"], b$trace[names(b$trace) != "cpu"], tolerance = 1e-8)
  }
})

test_that("a gradient that is not finite stops the run and says where", {
  for (bad in c(NaN, NA, Inf, -Inf)) {
    model <- counted(function(x, call) if (call == 7) { x[1] <- bad; x } else x)
    e <- expect_error(raw_fit(model), "not finite in iteration 7", class = "elvi_error_nonfinite")
    expect_equal(e$iteration, 7)
    expect_length(e$mu, 2)
    expect_true(all(is.finite(e$mu)))
    expect_equal(dim(e$scale), c(2L, 2L))
  }
})

test_that("conditions of a user's function reach the user unchanged", {
  mine <- structure(class = c("my_error", "error", "condition"),
                    list(message = "out of cheese", call = NULL, payload = 42))
  model <- counted(function(x, call) if (call == 5) stop(mine) else x)
  expect_identical(tryCatch(raw_fit(model), my_error = identity), mine)

  model <- counted(function(x, call) {
    if (call == 3) warning(structure(class = c("my_warning", "warning", "condition"),
                                     list(message = "hm", call = NULL)))
    x
  })
  expect_warning(fit <- raw_fit(model), "hm", class = "my_warning")
  expect_identical(fit$status, "finished")
  # a restart of the user's own, out of the middle of a run
  model <- counted(function(x, call) if (call == 4) invokeRestart("leave", "left") else x)
  expect_identical(withRestarts(raw_fit(model), leave = identity), "left")
})

test_that("a gradient of the wrong shape in the middle of a run is an error", {
  model <- counted(function(x, call) if (call == 5) x[-1, , drop = FALSE] else x)
  expect_error(raw_fit(model), "`gradient`", class = "elvi_error_argument")
})

test_that("a user's function may fit a model itself", {
  skip_on_cran()
  inner_model <- engine_quadratic(2)
  inner_budget <- 0
  model <- counted(function(x, call) {
    fit <- raw_fit(inner_model, base_uniform(), 60, scale = "triangular")
    inner_budget <<- inner_budget + fit$state$evals
    if (isTRUE(call %% 5 == 0)) gc()
    x
  })
  set.seed(32)
  nested <- raw_fit(model)
  set.seed(32)
  plain <- raw_fit(counted())
  expect_gt(inner_budget, 500)
  expect_identical(nested$state, plain$state)
})

# ---- bad input -----------------------------------------------------------------------------------------------

test_that("elvi() refuses bad arguments by name", {
  model <- engine_quadratic(3)
  messages <- c(
    refusal(elvi("text"), "object"),
    refusal(elvi(NULL), "object"),
    refusal(elvi(model, bugdet = 100), "bugdet"),
    refusal(elvi(model, scale = "diagonal"), "scale"),
    refusal(elvi(model, base = "gaussian"), "base"),
    refusal(elvi(model, base = base_gaussian), "base"),
    refusal(elvi(model, schedule = 100), "schedule"),
    refusal(elvi(model, schedule = schedule_fixed(100), budget = 100), "budget"),
    refusal(elvi(model, control = list(scale = "diagonal")), "control"),
    refusal(elvi(model, budget = 0), "budget"),
    refusal(elvi(model, budget = -1), "budget"),
    refusal(elvi(model, budget = NaN), "budget"),
    refusal(elvi(model, budget = Inf), "budget"),
    refusal(elvi(model, budget = "many"), "budget"),
    refusal(elvi(model, base_uniform(), control = elvi_control(estimator = "path")), "estimator"),
    refusal(elvi(model, base_student(4), schedule_fixed(100)), "schedule", "elvi_error_kurtosis"),
    refusal(elvi(model, base_student(4), schedule_custom(0.1, iterations = 5),
                 control = elvi_control(average = "theorem")), "average"),
    refusal(elvi(model, budget = 100, control = elvi_control("raw")), "schedule"),
    refusal(elvi(model, control = elvi_control(scale_max = 3)), "coordinates"),
    refusal(elvi(model, control = elvi_control(mu_radius = 3)), "coordinates"),
    refusal(raw_fit(model, scale_max = 0.1), "scale_max"),
    refusal(raw_fit(model, mu_centre = 1:2), "mu_centre"),
    refusal(elvi(model, schedule = schedule_growing(5, batch = 10)), "budget"))
  expect_snapshot(writeLines(messages))
})

test_that("elvi() refuses a bad start by name", {
  model <- engine_quadratic(3)
  with_start <- function(start, ...) raw_fit(model, start = start, ...)
  skew <- diag(3)
  skew[1, 2] <- 0.5
  messages <- c(
    refusal(with_start(1:3), "start"),
    refusal(with_start(list(1:3)), "start"),
    refusal(with_start(list(mu = 1:3, sigma = diag(3))), "start"),
    refusal(with_start(list(mu = 1:2)), "start$mu"),
    refusal(with_start(list(mu = c(1, NA, 3))), "start$mu"),
    refusal(with_start(list(mu = c(3, 0, 0)), mu_radius = 2), "start$mu"),
    refusal(with_start(list(Sigma = diag(2))), "start$Sigma"),
    refusal(with_start(list(Sigma = skew)), "start$Sigma"),
    refusal(with_start(list(Sigma = diag(c(1, 1, -1)))), "start$Sigma"),
    refusal(with_start(list(Sigma = matrix(Inf, 3, 3))), "start$Sigma"),
    refusal(with_start(list(Sigma = diag(0.01, 3))), "start$Sigma"),
    refusal(with_start(list(Sigma = diag(5, 3)), scale_max = 2), "start$Sigma"),
    refusal(with_start(list(Sigma = skew), scale = "triangular"), "start$Sigma"),
    refusal(with_start(list(Sigma = diag(c(1, 1, -1))), scale = "triangular"), "start$Sigma"),
    refusal(with_start(list(Sigma = t(skew)), scale = "diagonal"), "start$Sigma"),
    refusal(with_start(list(Sigma = c(1, 1, -1)), scale = "diagonal"), "start$Sigma"),
    refusal(with_start(list(Sigma = "wide")), "start$Sigma"))
  expect_snapshot(writeLines(messages))
})

test_that("elvi() on a fit refuses bad arguments by name", {
  model <- engine_quadratic(3)
  fit <- raw_fit(model, budget = 100, iterations = 3)
  growing <- raw_fit(model, schedule = schedule_growing(100))
  messages <- c(
    refusal(elvi(fit, budget = 1000), "budget"),
    refusal(elvi(growing, budget = 10), "budget"),
    refusal(elvi(growing, budget = 0), "budget"),
    refusal(elvi(fit, iterations = 1.5), "iterations"),
    refusal(elvi(fit, iteration = NULL), "iterations"),
    refusal(elvi(fit, base = base_laplace()), "base"))
  expect_snapshot(writeLines(messages))
})

test_that("a model is fitted exactly where it can be, unless something asks for a run", {
  model <- engine_logistic()
  exact <- elvi(model, base_laplace())
  expect_identical(exact$method, "exact")
  expect_identical(exact$kept, "optimum")
  expect_identical(exact$theta, elvi(model, base_laplace(), method = "exact")$theta)
  expect_identical(elvi(model, tol = 1e-6, control = elvi_control(scale = "diagonal", coordinates = "raw"))$method, "exact")
  expect_identical(elvi(model_quadratic(diag(2)))$method, "exact")

  # what only a run has a use for
  method <- function(...) suppressMessages(elvi(model, ...))$method
  expect_identical(method(budget = 100), "mpsgd")
  expect_identical(method(schedule = schedule_tuned(100)), "mpsgd")
  expect_identical(method(start = list(mu = numeric(3))), "mpsgd")
  expect_identical(method(method = "mpsgd"), "mpsgd")
  settings <- list(estimator = "reparam", average = "last", precondition = c(mu = 1, Sigma = 0.5),
                   smoothness = 100, iterations = 3, checkpoint = tempfile())
  for (name in names(settings)) {
    expect_identical(method(control = do.call(elvi_control, settings[name])), "mpsgd", label = name)
  }
  unlink(settings$checkpoint)
  expect_error(elvi(model, starts = 2), "starts", class = "elvi_error_argument")   # not dropped: it has no search
  for (argument in list(list(budget = 100), list(start = list(mu = numeric(3))), list(schedule = schedule_tuned(100)),
                        list(starts = 2))) {
    e <- tryCatch(do.call(elvi, c(list(model, method = "exact"), argument)), elvi_error_argument = identity)
    expect_identical(e$argument, names(argument))
  }
  e <- tryCatch(elvi(model, control = elvi_control(average = "last"), method = "exact"), elvi_error_argument = identity)
  expect_identical(e$argument, "average")

  # no exact objective, or no room for the solver's matrices
  own <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, smoothness = 1)
  expect_identical(suppressMessages(elvi(own))$method, "mpsgd")
  d <- 40
  wide <- model_glm(diag(d), rep(0:1, d / 2))
  few <- elvi_control(coordinates = "raw", scale = "diagonal", trace_draws = 0, block = 1)
  expect_identical(elvi(wide, control = few)$method, "exact")
  old <- options(elvi.max_gib = 1000 * 8 / 2^30)   # room for 1000 numbers, not for 1600
  on.exit(options(old))
  expect_identical(suppressMessages(choose_method("auto", wide, list(arguments = list(), control = list()), "symmetric")), "mpsgd")
  one <- list(mu = numeric(d), Sigma = rep(1, d))
  for (ask in list(quote(elvi(wide, method = "exact", control = elvi_control(scale = "diagonal"))),
                   quote(elvi_optimum(wide, scale = "diagonal")), quote(objective(one, wide, method = "exact")))) {
    expect_error(eval(ask), "small enough for memory", class = "elvi_error_argument")
  }
})

test_that("a point without a scale is where the search begins, and the run with what that finds", {
  two <- two_normals(c(0.7, 0.3), c(-8, 8), c(1, 1))
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(two, start = list(mu = c(8, 8)), starts = 4, tol = 0.05)))
  expect_equal(unname(fit$mu), c(-8, -8), tolerance = 0.05)
  expect_gt(fit$verdict$alone$elsewhere$behind, 0)
  both <- suppressMessages(suppressWarnings(elvi(two, start = list(mu = c(8, 8)), starts = 4, tol = 0.05, combine = "stack")))
  expect_equal(sort(vapply(both$stack$parts, function(part) part$mu[1], 0)), c(-8, 8), tolerance = 0.05)
  # the gain of a stage is not that since a start far away
  far <- model_density(function(x) colSums((x - 3)^2) / 2, function(x) x - 3, dim = 3, vectorized = TRUE)
  expect_silent(fit <- elvi(far, start = list(mu = numeric(3)), tol = 0.01))
  expect_true(fit$converged)
})
