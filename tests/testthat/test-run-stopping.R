stopping_models <- function() {
  d <- withr_seed(1, data.frame(a = rnorm(120), b = runif(120)))
  X <- cbind(1, d$a, d$b, d$a * d$b)
  list(logit = model_glm(X, withr_seed(2, rbinom(120, 1, plogis(X %*% c(0.2, 0.8, -0.5, 0.3)))), prior = normal(0, 2)),
       poisson = model_glm(X, withr_seed(3, rpois(120, exp(X %*% c(0.2, 0.4, -0.5, 0.3)))), family = poisson()),
       quadratic = model_quadratic(crossprod(X) / 20, m = 1:4))
}

stopping_cases <- list(
  c("symmetric", "path", "project"), c("symmetric", "reparam", "project"), c("triangular", "path", "project"),
  c("triangular", "reparam", "prox"), c("diagonal", "path", "project"), c("diagonal", "reparam", "prox"))

test_that("the estimated gap is the exact gap, within its error", {
  skip_on_cran()
  for (model in stopping_models()) for (case in stopping_cases) for (step in c("near", "far")) {
    set.seed(4)
    fit <- suppressMessages(elvi(model, budget = 2000, control = elvi_control(
      scale = case[1], estimator = case[2], update = case[3])))
    # away from the optimum by a known amount, in the coordinates of the run
    size <- if (step == "near") 0.03 else 0.15
    fit$theta$mu <- fit$theta$mu + size * c(1, -1, 0.5, 0)
    fit$theta$scale <- fit$theta$scale * (1 + size)
    gap <- remaining_gap(fit, law_of(fit$base, 4))
    exact <- exact_gap(fit)$gap
    label <- paste(model$likelihood %||% "quadratic", toString(case), step)
    # the second order expansion is good to a third
    expect_lt(abs(gap$estimate - exact), 4 * gap$se + 0.33 * exact, label = label)
    expect_gt(gap$se, 0)
    # an error that means something: far from the optimum the gap is seen
    if (step == "far") expect_gt(gap$estimate, 2 * gap$se, label = label)
  }
})

test_that("the error of the estimated gap is its standard deviation", {
  skip_on_cran()
  model <- stopping_models()$logit
  set.seed(5)
  fit <- elvi(model, budget = 1000)
  fit$theta$mu <- fit$theta$mu + 0.1
  law <- law_of(fit$base, 4)
  many <- lapply(1:60, function(i) {
    fit$seed <- draw_key()
    remaining_gap(fit, law)
  })
  estimate <- vapply(many, function(g) g$estimate, 0)
  se <- vapply(many, function(g) g$se, 0)
  expect_equal(sqrt(mean(se^2)), sd(estimate), tolerance = 0.4)
})

test_that("a loose tolerance stops early, a tight one later, both where they say", {
  for (model in stopping_models()[1:2]) {
    set.seed(6)
    loose <- elvi(model, tol = 0.05, method = "mpsgd")
    set.seed(6)
    tight <- elvi(model, tol = 5e-4, method = "mpsgd")
    expect_true(loose$converged)
    expect_true(tight$converged)
    expect_identical(loose$status, "finished")
    expect_lt(loose$state$evals, 5000)
    expect_gt(tight$state$evals, loose$state$evals)
    expect_lt(tight$state$evals, 1e5)
    expect_lt(exact_gap(loose)$gap, 0.05)
    expect_lt(exact_gap(tight)$gap, 1e-3)
    expect_lt(tight$remaining$estimate + 2 * tight$remaining$se, 5e-4)
  }
})

test_that("a budget that ends first is said loudly, and the run goes on", {
  skip_on_cran()
  model <- stopping_models()$poisson
  set.seed(7)
  expect_warning(fit <- suppressMessages(elvi(model, tol = 1e-7, budget = 1500)), "Not converged",
                 class = "elvi_warning_not_converged")
  expect_false(fit$converged)
  expect_true(any(grepl("NOT CONVERGED", capture.output(print(fit)))))
  expect_warning(more <- suppressMessages(elvi(fit, budget = 4000)), class = "elvi_warning_not_converged")
  expect_gt(more$state$evals, fit$state$evals)
  expect_lte(more$state$evals, 4000)
  # a tolerance that can be reached
  fit$tol <- 0.01
  done <- elvi(fit, budget = 1e5)
  expect_true(done$converged)
  expect_lt(done$state$evals, 1e5)
  expect_lt(exact_gap(done)$gap, 0.01)
  expect_true(any(grepl("^Converged: estimated gap", capture.output(print(done)))))
  # from a formula too
  d <- withr_seed(9, data.frame(x = rnorm(50), y = rnorm(50)))
  set.seed(8)
  expect_warning(short <- suppressMessages(elvi(y ~ x, data = d, tol = 1e-7, budget = 1000)),
                 class = "elvi_warning_not_converged")
  short$tol <- 0.01
  long <- elvi(short, budget = 1e5)
  expect_s3_class(long, "elvi_glm")
  expect_true(long$converged)
})

test_that("a run with a tolerance that is paused goes on exactly as if it had not been", {
  skip_on_cran()
  for (average in c("tail", "theorem")) for (schedule in list(schedule_tuned(5e3), schedule_fixed(5e3))) {
    go <- function(iterations = Inf) {
      set.seed(11)
      suppressWarnings(elvi(stopping_models()$logit, schedule = schedule, tol = 8e-4,
                            control = elvi_control(average = average, iterations = iterations)))
    }
    whole <- go()
    for (at in every(unique(round(c(1, 0.3, 0.7, 0.95) * c(1, rep(whole$state$k, 3)))), 2)) {
      half <- go(at)
      expect_identical(half$status, "paused")
      expect_identical(half$converged, NA)
      resumed <- suppressWarnings(elvi(half))
      resumed$control$iterations <- Inf
      expect_identical(engine_bare(resumed), engine_bare(whole), label = paste(average, schedule$kind, at))
    }
  }
})

test_that("without a tolerance nothing is estimated and the budget is spent", {
  set.seed(10)
  fit <- suppressMessages(elvi(stopping_models()$logit, budget = 3000))
  expect_null(fit$remaining)
  expect_gt(fit$state$evals, 2500)
  expect_error(elvi(stopping_models()$logit, tol = -1), class = "elvi_error_argument")
  # an exact fit has nothing to continue
  expect_error(elvi(nasty("exclude"), budget = 1e4), "can be continued", class = "elvi_error_argument")
})

test_that("a gap that is not a number is no convergence, and no error of R", {
  model <- model_density(function(x) sum(x^2), function(x) 2 * x, dim = 2)
  unknown <- function(...) list(estimate = NaN, se = NaN, evaluations = 1, outside = 0)
  set.seed(1)
  expect_warning(fit <- suppressMessages(with_swapped("remaining_gap", unknown, elvi(model, tol = 1, budget = 2000))),
                 "gap could not be estimated", class = "elvi_warning_not_converged")
  expect_false(fit$converged)
  expect_output(print(fit), "NOT CONVERGED")
  # nor where the target fails at most of the points
  expect_false(has_reached(list(estimate = 0, se = 0, outside = 0.9), 1))
  expect_true(has_reached(list(estimate = 0, se = 0, outside = 0.1), 1))
})
