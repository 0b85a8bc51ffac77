# Problems whose guarantees are known, and gaps of runs on them.

reparam <- function(...) elvi_control(estimator = "reparam", average = "theorem", coordinates = "raw",
                                      trace_draws = 0, ...)
case2_lambda <- function(d, kappa) c(mu = 1, Sigma = 1 / (2 * (d - 1 + kappa)))

small_X <- local({
  set.seed(11)
  matrix(stats::rnorm(60), 20) %*% diag(c(1, 0.6, 0.3))
})
small_y <- rep(c(0, 1, 1, 0, 1), 4)
logistic <- function(prior = normal(0, 1)) model_glm(small_X, small_y, prior = prior)
quadratic <- model_quadratic(diag(c(1, 4)), m = c(1, -1))

# the logistic target as a user would give it
logistic_density <- function(...) {
  model_density(function(x) glm_target(x, small_X, small_y, "logit", scale = 1),
                function(x) x + drop(crossprod(small_X, plogis(small_X %*% x) - small_y)), dim = 3, ...)
}

# f = sum log(1 + x^2), curvature in [-1/4, 2], stationary at 0
bumpy <- function(convex = FALSE) {
  model_density(function(x) sum(log1p(x^2)), function(x) 2 * x / (1 + x^2), dim = 1, smoothness = 2, convex = convex)
}
compact <- function(...) reparam(scale_max = 3, mu_radius = 5, ...)

status_of <- function(g) stats::setNames(g$assumptions$status, g$assumptions$assumption)

# F(theta) - F* of the average that the run kept, exactly
gap_to <- function(fit, optimum) {
  oracle <- exact_oracle(fit$model, law_of(fit$base, fit$model$dim))
  oracle(fit$control$scale, fit$state$average_mu, fit$state$average_scale)$objective - optimum$objective
}

mean_gap <- function(model, base, schedule, control, runs = if (long_tests()) 30 else 12, start = NULL) {
  optimum <- elvi_optimum(model, base, control$scale)
  gaps <- vapply(seq_len(runs), function(seed) {
    set.seed(seed)
    fit <- suppressMessages(suppressWarnings(
      elvi(model, base, schedule = schedule, start = start, control = control)))
    gap_to(fit, optimum)
  }, 0)
  c(mean = mean(gaps), se = sd(gaps) / sqrt(runs))
}

doubts <- function(...) {
  g <- guarantee(...)
  status <- status_of(g)
  expect_identical(is.na(g$bound), any(g$assumptions$needed & !status %in% c("holds", "assumed")))
  status[status != "holds" & g$assumptions$needed]
}

# the same in the model's coordinates
gap_to_user <- function(fit) {
  kind <- fit$control$scale
  average <- to_user(run_model(fit), kind, fit$state$average_mu, fit$state$average_scale)
  exact_oracle(fit$model, law_of(fit$base, fit$model$dim))(kind, average$mu, average$scale)$objective -
    elvi_optimum(fit$model, fit$base, kind)$objective
}
