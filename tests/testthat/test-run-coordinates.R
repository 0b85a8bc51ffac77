# Whitened coordinates: the same problem, better conditioned. And what a run owes its start.

kinds <- c("symmetric", "triangular", "diagonal")
data <- busy_glm("logit", n = 30, d = 3)
run_quietly <- function(...) suppressMessages(elvi(...))

# F at (mu, scale) of the user's coordinates
exact_at <- function(model, base, kind, mu, scale) {
  exact_oracle(model, law_of(base, model$dim))(kind, unname(mu), unname(scale))$objective
}

test_that("to_user() and to_work() are inverse to each other and move the law of x", {
  for (kind in kinds) {
    work <- whitened_model(data$model, "whitened", kind)
    A <- as_root(work$A)
    mu <- c(0.3, -1, 2)
    scale <- some_scale(kind, 3)
    user <- to_user(work, kind, mu, scale)
    expect_equal(user$mu, drop(work$m + A %*% mu), tolerance = 1e-14)
    # covariance A S S' A'
    expect_equal(tcrossprod(as_root(user$scale)), A %*% tcrossprod(as_root(scale)) %*% t(A), tolerance = 1e-12)
    if (kind == "symmetric") expect_identical(user$scale, t(user$scale))
    if (kind == "triangular") expect_true(all(user$scale[upper.tri(user$scale)] == 0))
    if (kind == "diagonal") expect_null(dim(user$scale))
    expect_equal(to_work(work, kind, user$mu, user$scale), list(mu = mu, scale = scale), tolerance = 1e-11)
    raw <- whitened_model(data$model, "raw", kind)
    expect_identical(to_user(raw, kind, mu, scale), list(mu = mu, scale = scale))
    expect_identical(to_work(raw, kind, mu, scale), list(mu = mu, scale = scale))
  }
})

test_that("symmetric_root() is the root of R R'", {
  R <- some_scale("triangular", 4)
  S <- symmetric_root(R)
  expect_identical(S, t(S))
  expect_equal(S %*% S, R %*% t(R), tolerance = 1e-13)
  expect_true(all(eigen(S)$values > 0))
  expect_equal(symmetric_root(matrix(-2)), matrix(2))
})

test_that("in whitened coordinates the mode is 0 and the Hessian there is I", {
  targets <- list(glm = data$model, poisson = busy_glm("poisson")$model,
                  quadratic = model_quadratic(matrix(c(2, 0.5, 0.5, 9), 2), c(1, -1)),
                  density = model_density(function(x) x[1]^2 + 5 * (x[2] - x[1])^2 + log(cosh(x[2] - 1)),
                                          function(x) c(2 * x[1] - 10 * (x[2] - x[1]), 10 * (x[2] - x[1]) + tanh(x[2] - 1)), dim = 2))
  for (name in names(targets)) {
    model <- targets[[name]]
    d <- model$dim
    for (kind in kinds) {
      work <- whitened_model(model, "whitened", kind)
      gradient <- function(w) target_at(work, matrix(w))$gradient[, 1]
      expect_lt(max(abs(gradient(numeric(d)))), 1e-4, label = paste(name, kind))
      H <- fd_hessian(gradient, numeric(d), 1e-4)
      if (kind == "diagonal") expect_equal(diag(H), rep(1, d), tolerance = 1e-5, info = name)
      else expect_equal(H, diag(d), tolerance = 1e-5, info = name)
    }
  }
})

test_that("value and gradient in whitened coordinates are those of f, moved", {
  set.seed(1)
  for (kind in kinds) {
    work <- whitened_model(data$model, "whitened", kind)
    A <- as_root(work$A)
    w <- matrix(rnorm(12), 3)
    at <- target_at(work, w)
    there <- target_at(data$model, work$m + A %*% w)
    expect_equal(at$value, there$value - log(det(A)), tolerance = 1e-13)
    expect_equal(at$gradient, t(A) %*% there$gradient, tolerance = 1e-12)
  }
})

test_that("the objective is the same number in both coordinates", {
  law <- law_of(base_laplace(), 3)
  for (kind in kinds) {
    work <- whitened_model(data$model, "whitened", kind)
    mu <- c(0.3, -0.2, 0.1)
    scale <- some_scale(kind, 3, 0.8)
    user <- to_user(work, kind, mu, scale)
    draws <- if (kind == "symmetric") 4e4 else 100
    f <- function(model, mu, scale) .Call(elvi_r_values, model, law, kind, mu, scale, c(1, 2), draws, 1L)
    here <- f(work, mu, scale) - log_det(kind, scale)
    there <- f(data$model, user$mu, user$scale) - log_det(kind, user$scale)
    # draw by draw where the scale is moved by A alone; else the same law
    if (kind == "symmetric") {
      expect_lt(abs(mean(here) - mean(there)), 4 * sqrt(var(here) + var(there)) / sqrt(draws))
    } else {
      expect_equal(here, there, tolerance = 1e-12)
    }
  }
})

test_that("the trace of a whitened run holds F in the user's coordinates", {
  skip_on_cran()
  for (kind in kinds) {
    set.seed(2)
    fit <- run_quietly(data$model, base_laplace(), budget = 500,
                       control = elvi_control(scale = kind, trace_draws = 5000, average = "last"))
    last <- fit$trace[nrow(fit$trace), ]
    truth <- exact_at(data$model, base_laplace(), kind, fit$last$mu, fit$last$scale)
    expect_lt(abs(last$objective - truth), 4 * last$se)
    first <- fit$trace[1, ]
    start <- to_user(fit$work, kind, fit$start$mu, fit$start$scale)
    expect_lt(abs(first$objective - exact_at(data$model, base_laplace(), kind, start$mu, start$scale)), 4 * first$se)
  }
})

test_that("the default start is the Laplace approximation", {
  mode <- find_mode(data$model)
  for (kind in kinds) {
    fit <- run_quietly(data$model, budget = 100, control = elvi_control(scale = kind))
    expect_equal(fit$start$mu, numeric(3))
    start <- to_user(fit$work, kind, fit$start$mu, fit$start$scale)
    expect_equal(start$mu, mode$x)
    V <- tcrossprod(as_root(start$scale))
    expect_equal(V, if (kind == "diagonal") diag(1 / diag(mode$hessian)) else solve(mode$hessian), tolerance = 1e-9)
  }
})

test_that("a diagonal scale stays diagonal", {
  set.seed(3)
  fit <- run_quietly(data$model, budget = 2000, control = elvi_control(scale = "diagonal"))
  expect_null(dim(fit$scale))
  expect_null(dim(fit$work$A))
  expect_identical(unname(fit$Sigma), diag(unname(fit$scale)))
  # and close to the mean-field optimum, not to that of a full scale
  best <- elvi_optimum(data$model, scale = "diagonal")
  expect_lt(objective(fit)$estimate - best$objective, 0.05)
  expect_gt(objective(fit)$estimate, best$objective)
})

# ---- the smoothness of the whitened problem ---------------------------------------------------

test_that("L in whitened coordinates is the largest eigenvalue of A' (bound on the Hessian) A", {
  skip_on_cran()
  bounds <- c(logit = 0.25, probit = 1, normal = 1)
  for (family in names(bounds)) {
    d <- busy_glm(family)
    for (kind in kinds) {
      work <- whitened_model(d$model, "whitened", kind)
      # a mean field's mu is whitened all the way, by the metric of its steps
      A <- if (kind == "diagonal") solve(chol(find_mode(d$model)$hessian)) else as_root(work$A)
      Q <- diag(1 / d$scale^2) + crossprod(d$X, bounds[[family]] * d$weights * d$trials / d$dispersion * d$X)
      fit <- run_quietly(d$model, budget = 100, control = elvi_control(scale = kind))
      expect_equal(fit$smoothness, max(eigen(t(A) %*% Q %*% A)$values), tolerance = 1e-8, info = paste(family, kind))
      expect_identical(fit$smoothness_source, "computed")
    }
  }
})

test_that("Figure 1: 23.6 in whitened coordinates, against 3763", {
  skip_on_cran()
  data <- figure1()
  fit <- run_quietly(data$model, base_laplace(), budget = 100)
  Q <- diag(0.1, 200) + crossprod(data$U) / 4
  expect_equal(fit$smoothness, max(eigen(t(fit$work$A) %*% Q %*% fit$work$A, symmetric = TRUE)$values), tolerance = 1e-8)
  expect_equal(round(fit$smoothness, 1), 23.6)
  expect_equal(data$model$smoothness, 0.1 + norm(data$U, "2")^2 / 4, tolerance = 1e-8)
  expect_equal(floor(data$model$smoothness), 3763)
})

# How close runs come on the setting of Figure 1: test-elvi.R.

# ---- equivariance ---------------------------------------------------------------------------------

test_that("a change of the design's columns changes nothing about x", {
  skip_on_cran()
  set.seed(6)
  X <- cbind(1, matrix(rnorm(120), 60))
  y <- rbinom(60, 1, plogis(X %*% c(0.2, 0.7, -0.5)))
  M <- matrix(c(1, 0.3, -2, 0, 50, 1, 0, 0.2, 0.01), 3)   # x = M x'
  plain <- model_glm(X, y, prior = flat())
  moved <- model_glm(X %*% M, y, prior = flat())
  log_m <- as.double(determinant(M)$modulus)
  for (base in list(base_gaussian(), base_laplace(), base_student(8))) {
    a <- elvi_optimum(plain, base)
    b <- elvi_optimum(moved, base)
    expect_equal(drop(M %*% b$mu), unname(a$mu), tolerance = 1e-6)
    expect_equal(M %*% vcov(b) %*% t(M), unname(vcov(a)), tolerance = 1e-6, ignore_attr = TRUE)
    expect_equal(b$objective, a$objective + log_m, tolerance = 1e-10)
  }
  # a stochastic fit: as close to the optimum in one as in the other, whatever the conditioning
  best <- elvi_optimum(plain, base_laplace())
  gaps <- vapply(1:5, function(seed) {
    set.seed(seed)
    a <- run_quietly(plain, base_laplace(), budget = 5000)
    set.seed(seed)
    b <- run_quietly(moved, base_laplace(), budget = 5000)
    sd <- sqrt(diag(vcov(best)))
    expect_lt(max(abs(M %*% b$mu - a$mu) / sd), 0.15)
    c(objective(a)$estimate, objective(b)$estimate - log_m) - best$objective
  }, numeric(2))
  expect_gt(min(gaps), 0)
  expect_lt(max(gaps), 0.02)
})

test_that("a lower triangular change of the columns leaves a whitened run as it is, draw by draw", {
  # x = K x': the whitening factors, lower triangular too, are A = K A', so w is the same
  K <- matrix(c(2, 0.5, -1, 0, 30, 0.2, 0, 0, 0.01), 3)
  y <- as.numeric(data$X[, 1] + sin(1:30) > 0)
  run_on <- function(X) {
    set.seed(1)
    run_quietly(model_glm(X, y, prior = flat()), budget = 500, control = elvi_control(scale = "triangular"))
  }
  a <- run_on(data$X)
  b <- run_on(data$X %*% K)
  expect_equal(K %*% b$work$A, a$work$A, tolerance = 1e-6)
  expect_equal(drop(K %*% b$mu), unname(a$mu), tolerance = 1e-5)
  expect_equal(K %*% b$scale, unname(a$scale), tolerance = 1e-5, ignore_attr = TRUE)
})

# ---- what a run owes its start ----------------------------------------------------------------------

test_that("a start at the optimum is kept, exactly, and said to be", {
  for (kind in kinds) {
    for (coordinates in c("whitened", "raw")) {
      best <- elvi_optimum(data$model, base_laplace(), kind, tol = 1e-12)
      start <- list(mu = best$mu, Sigma = best$scale)
      set.seed(4)
      expect_message(
        fit <- elvi(data$model, base_laplace(), schedule = schedule_custom(0.002, 5, 20), start = start,
                    control = elvi_control(coordinates = coordinates, scale = kind, average = "last",
                                           scale_min = if (coordinates == "raw") 0.01)),
        class = "elvi_message_start_kept")
      expect_identical(fit$kept, "start")
      expect_identical(fit$status, "finished")
      expect_equal(fit$mu, best$mu, tolerance = 1e-10)
      expect_equal(fit$scale, best$scale, tolerance = 1e-9)
      expect_equal(fit$Sigma, best$Sigma, tolerance = 1e-9)
      # the last iterate is worse, and still there
      last <- exact_at(data$model, base_laplace(), kind, fit$last$mu, fit$last$scale)
      expect_gt(last, best$objective)
      expect_output(print(fit), "the start, which the run did not improve")
    }
  }
})

test_that("a fit is never worse than its start, whatever start and steps", {
  skip_on_cran()
  set.seed(7)
  kept <- character()
  for (i in 1:30) {
    kind <- kinds[i %% 3 + 1]
    C <- some_scale(kind, 3, exp(rnorm(1)))
    start <- list(mu = rnorm(3), Sigma = C)
    fit <- suppressWarnings(run_quietly(
      data$model, base_laplace(), schedule = schedule_custom(10^runif(1, -2, 0.5), 2, 15), start = start,
      control = elvi_control(coordinates = "raw", estimator = "path", scale = kind, scale_min = 1e-3, average = "last")))
    at_start <- exact_at(data$model, base_laplace(), kind, start$mu, start$Sigma)
    expect_lte(objective(fit)$estimate, at_start)
    last <- exact_at(data$model, base_laplace(), kind, fit$last$mu, fit$last$scale)
    expect_identical(fit$kept, if (last <= at_start) "average" else "start")
    kept <- c(kept, fit$kept)
  }
  expect_setequal(kept, c("average", "start"))   # both happened
})

test_that("without an exact objective start and end are compared on draws", {
  target <- model_density(function(x) colSums(x^2) / 2, identity, dim = 2, smoothness = 1, vectorized = TRUE)
  best <- list(mu = c(0, 0), Sigma = diag(2))
  set.seed(8)
  expect_message(fit <- elvi(target, schedule = schedule_custom(0.5, 1, 30), start = best,
                             control = elvi_control(coordinates = "raw", estimator = "reparam", average = "last", trace_draws = 1000)),
                 class = "elvi_message_start_kept")
  expect_equal(fit$Sigma, best$Sigma, ignore_attr = TRUE)
  # with the draws switched off nothing is compared
  set.seed(8)
  fit <- elvi(target, schedule = schedule_custom(0.5, 1, 30), start = best,
              control = elvi_control(coordinates = "raw", estimator = "reparam", average = "last", trace_draws = 0))
  expect_identical(fit$kept, "average")
  expect_true(all(is.na(fit$trace$objective)))
})

test_that("a start of the user's comes back as it was given", {
  mu <- c(a = 0.5, b = -1, c = 0.2)
  for (kind in kinds) {
    for (coordinates in c("raw", "whitened")) {
      scale <- some_scale(kind, 3, 0.9)
      fit <- suppressWarnings(run_quietly(data$model, schedule = schedule_custom(1e-4, 1, 1), start = list(mu = mu, Sigma = scale),
                         control = elvi_control(coordinates = coordinates, scale = kind, average = "last")))
      back <- to_user(if (is.null(fit$work)) fit$model else fit$work, kind, fit$start$mu, fit$start$scale)
      expect_equal(back$mu, unname(mu), tolerance = 1e-12)
      expect_equal(back$scale, scale, tolerance = 1e-10)
      # a step of 1e-4 does not lead far
      expect_equal(unname(fit$last$mu), unname(mu), tolerance = 0.05)
    }
  }
  # only a part of it: the rest is the default
  fit <- run_quietly(data$model, budget = 100, start = list(mu = mu))
  expect_equal(fit$start$scale, diag(3), tolerance = 1e-8)
})

test_that("bounds in the model's coordinates are refused in whitened ones", {
  ask <- function(...) elvi(data$model, budget = 100, control = elvi_control(...))
  small <- data$model
  expect_snapshot({
    cat(refusal(ask(scale_max = 5), "coordinates"))
    cat(refusal(ask(scale_min = 0.1), "coordinates"))
    cat(refusal(ask(mu_radius = 5), "coordinates"))
    cat(refusal(ask(mu_centre = c(1, 1, 1)), "coordinates"))
    cat(refusal(elvi(small, budget = 100, start = list(mu = 1:3, Sigma = 1e-9)), "start$Sigma"))
    cat(refusal(elvi(small, budget = 100, control = elvi_control(coordinates = "raw")), "schedule"))
  })
})

# ---- a mean field's mu ---------------------------------------------------------------------------

test_that("a mean field takes the steps of mu in the metric of the Hessian at the mode", {
  # without noise (scale pinned by the path gradient at the optimum of a quadratic) a step of 1 is Newton's
  H <- rbind(c(4, 1.9), c(1.9, 1))
  model <- model_quadratic(H, m = c(1, -2))
  work <- whitened_model(model, "whitened", "diagonal")
  expect_equal(tcrossprod(work$mu_root), H / outer(c(2, 1), c(2, 1)))
  full <- full_frame(work)
  expect_equal(full$A %*% t(full$A), solve(H))
  expect_equal(mu_norm2(work, c(1, 2)), drop(c(1, 2) %*% (H / outer(c(2, 1), c(2, 1))) %*% c(1, 2)))
  expect_null(whitened_model(model, "whitened", "symmetric")$mu_root)
  L <- function(kind, model) run_smoothness(model, whitened_model(model, "whitened", kind),
                                            law_of(base_gaussian(), 2), elvi_control())$L
  expect_equal(L("diagonal", model), 1)
  glm <- model_glm(cbind(1, c(-1, 0, 1, 2, 5)), c(0, 1, 0, 1, 1), prior = normal(0, 1))
  expect_equal(L("diagonal", glm), L("symmetric", glm), tolerance = 1e-6)

  start <- list(mu = c(5, 5), Sigma = 1 / sqrt(diag(H)))
  fit <- elvi(model, schedule = schedule_custom(0.5, 2000, 12), start = start, method = "mpsgd",
              control = elvi_control(scale = "diagonal", estimator = "reparam", average = "last"))
  path <- c(1, -2) + 0.5^12 * (c(5, 5) - c(1, -2))   # (1 - step)^k in every direction
  noise <- 0.5 * sqrt(diag(solve(H)) * 2 / 2000 / 0.75)   # of the last steps
  expect_lt(max(abs(fit$last$mu - path) / noise), 5)
})

test_that("on Figure 1 a mean field ends less than 2 nats above its optimum", {
  skip_on_cran()
  model <- figure1()$model
  best <- elvi_optimum(model, base_laplace(), "diagonal", tol = 1e-3)
  for (seed in every(1:2, 2)) {
    set.seed(seed)
    fit <- elvi(model, base_laplace(), schedule = schedule_tuned(5000),
                control = elvi_control(scale = "diagonal", progress = FALSE))
    expect_lt(objective(fit)$estimate - best$objective, 2)   # 20.9 with steps in the metric of the scale
    expect_identical(fit$plan$shorten, 1)
  }
})

test_that("a target that is not defined all around its mode is a typed error where no start is searched", {
  edge <- model_density(function(x) if (all(x > -1e-6)) sum(x^2) / 2 else NaN,
                        function(x) if (all(x > -1e-6)) x else x * NaN, dim = 6, vectorized = FALSE)
  expect_error(suppressMessages(with_swapped("widest_search", 3, elvi(edge, tol = 1, method = "mpsgd"))), "Hessian is not finite",
               class = "elvi_error_nonfinite")
})

test_that("in majorant coordinates L is 1 and the start is the Laplace approximation, for every scale", {
  mode <- find_mode(logistic())
  for (kind in names(scale_kinds)) {
    work <- whitened_model(logistic(), "majorant", kind)
    expect_equal(run_smoothness(logistic(), work, law_of(base_gaussian(), 3), elvi_control(coordinates = "majorant", scale = kind))$L, 1)
    feasible <- feasible_set(elvi_control(coordinates = "majorant", scale = kind), work, 1)
    start <- check_start(NULL, work, kind, feasible, 1)
    there <- to_user(work, kind, start$mu, start$scale)
    S <- symmetric_scale(kind, there$scale, NULL)
    if (scale_of(kind)$full) expect_equal(S %*% S, solve(mode$hessian), ignore_attr = TRUE)
    else expect_equal(diag(S)^-2, diag(mode$hessian), ignore_attr = TRUE)
    expect_equal(there$mu, mode$x, ignore_attr = TRUE)
    expect_identical(project_scale(kind, start$scale, 1 - 1e-9, Inf)$clipped, 0L + project_scale(kind, start$scale, 0, Inf)$clipped)
  }
  # weights count
  twice <- model_glm(small_X, small_y, prior = normal(0, 1), weights = rep(2, 20))
  expect_equal(largest_hessian(twice), crossprod(small_X) / 2 + diag(3), ignore_attr = TRUE)
  counts <- model_glm(cbind(1, c(-1, 0, 1, 2)), c(1, 0, 2, 5), poisson())
  expect_error(elvi(counts, control = elvi_control(coordinates = "majorant"), method = "mpsgd"),
               "the curvature of the poisson likelihood is unbounded", class = "elvi_error_argument")
})
