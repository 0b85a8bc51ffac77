lab <- load_experiments()

mixture <- lab$mixture_target()
student <- lab$student_target()

# a small run, made once
nonconvex_store <- new.env()
small_nonconvex <- function() {
  if (is.null(nonconvex_store$x)) {
    nonconvex_store$x <- example_experiment("nonconvex", budget = 20000, runs = 2, seed = 3)
  }
  nonconvex_store$x
}

test_that("the grid integrates a normal law to rounding", {
  for (d in 1:3) {
    grid <- lab$normal_grid(d, spacing = 0.5)
    expect_equal(drop(grid$z %*% grid$w), numeric(d), tolerance = 1e-12)
    expect_equal(grid$z %*% (grid$w * t(grid$z)), diag(d), tolerance = 1e-7)
    tilt <- seq(0.3, 0.9, length.out = d)
    expect_equal(sum(grid$w * exp(colSums(tilt * grid$z))), exp(sum(tilt^2) / 2), tolerance = 1e-6)
    expect_equal(sum(grid$w * cos(colSums(tilt * grid$z))), exp(-sum(tilt^2) / 2), tolerance = 1e-8)
  }
})

test_that("the exact gradient of the mixture is that of its one-dimensional integrals", {
  m <- c(2.5, 1.25)
  mu <- c(0.4, -0.7)
  Sigma <- matrix(c(0.9, 0.2, 0.2, 0.6), 2)
  s <- sqrt(sum((Sigma %*% m)^2))
  expectation <- function(g) {
    integrate(function(u) dnorm(u) * g(sum(m * mu) + 0.35 + s * u), -12, 12, rel.tol = 1e-12)$value
  }
  at <- lab$exact_gradient(mixture, mu, Sigma)
  expect_equal(at$mu, mu - m * expectation(tanh), tolerance = 1e-6)
  # E grad f z' = E Hessian Sigma for a normal z
  H <- diag(2) - outer(m, m) * expectation(function(t) 1 / cosh(t)^2)
  expect_equal(at$Sigma, (H %*% Sigma + Sigma %*% H) / 2 - solve(Sigma), tolerance = 1e-6)
  expected_f <- (sum(mu^2) + sum(Sigma^2)) / 2 - expectation(function(t) log(cosh(t)))
  expect_equal(at$objective, expected_f - log(det(Sigma)), tolerance = 1e-6)
})

test_that("the exact gradient of the regression is the derivative of its objective", {
  mu <- c(0.1, 5, 0.2)
  Sigma <- diag(c(0.4, 0.3, 0.2)) + 0.05
  at <- lab$exact_gradient(student, mu, Sigma)
  F <- function(mu, Sigma) lab$exact_gradient(student, mu, Sigma)$objective
  expect_equal(at$mu, fd_gradient(function(m) F(m, Sigma), mu, 1e-4), tolerance = 1e-6)
  along <- matrix(c(1, 0.5, -0.2, 0.5, -1, 0.3, -0.2, 0.3, 0.7), 3)
  expect_equal(sum(at$Sigma * along),
               (F(mu, Sigma + 1e-4 * along) - F(mu, Sigma - 1e-4 * along)) / 2e-4, tolerance = 1e-6)
  expect_lt(lab$quadrature_error(student), 1e-7)
})

test_that("the mapping is the gradient inside the set and vanishes where the set stops the step", {
  target <- list(model = model_quadratic(matrix(4), m = 3), step = 0.1,
                 grid = lab$normal_grid(1, 0.5),
                 feasible = list(mu_centre = 0, mu_radius = 1, scale_min = 0.2, scale_max = 0.4))
  inside <- lab$exact_mapping(target, 0.2, matrix(0.3), step = 1e-4)
  expect_equal(inside$mapping2, (4 * (0.2 - 3))^2 + (4 * 0.3 - 1 / 0.3)^2, tolerance = 1e-6)
  # minimiser and best scale 0.5 lie beyond both bounds: nothing moves at the corner
  corner <- lab$exact_mapping(target, 1, matrix(0.4))
  expect_equal(corner$mapping2, 0)
  # half a step to the bound counts as half
  near <- lab$exact_mapping(target, 0.9, matrix(0.4))
  expect_equal(near$mapping2, (0.1 / 0.1)^2)
})

test_that("both modes of the mixture are stationary, the likelier one is better", {
  skip_on_cran()
  points <- lab$mixture_stationary(mixture)
  expect_lt(max(sapply(points, `[[`, "mapping")), 1e-9)
  expect_lt(points[[1]]$objective, points[[2]]$objective)
  # at a stationary point E Hessian = Sigma^-2
  m <- c(2.5, 1.25)
  for (at in points) {
    s <- sqrt(sum((at$Sigma %*% m)^2))
    sech2 <- integrate(function(u) dnorm(u) / cosh(sum(m * at$mu) + 0.35 + s * u)^2, -12, 12,
                       rel.tol = 1e-12)$value
    expect_equal(solve(at$Sigma %*% at$Sigma), diag(2) - outer(m, m) * sech2, tolerance = 1e-7)
  }
})

test_that("both targets are not convex, and the mixture's L bounds its curvature", {
  skip_on_cran()
  expect_lt(lab$lowest_curvature(mixture), -1)
  expect_lt(lab$lowest_curvature(student), -1)
  L <- mixture$model$smoothness
  at <- function(t) diag(2) - outer(c(2.5, 1.25), c(2.5, 1.25)) / cosh(t)^2   # the Hessian
  sizes <- sapply(seq(-3, 3, 0.01), function(t) max(abs(eigen(at(t))$values)))
  expect_equal(max(sizes), L)
})

test_that("a run that is stopped to be looked at is the same run", {
  schedule <- schedule_growing(2000, mixture$step, batch = 2)
  set.seed(5)
  looked <- lab$measure_run(mixture, schedule, mixture$start(0))
  set.seed(5)
  whole <- elvi(mixture$model, schedule = schedule, start = mixture$start(0),
                control = mixture$control)
  last <- lab$exact_mapping(mixture, whole$state$mu, whole$state$scale, mixture$step)
  expect_identical(tail(looked$mapping2, 1), last$mapping2)
  expect_identical(tail(looked$evals, 1), whole$state$evals)
})

test_that("constant batches stall, growing ones do not, and the bound holds", {
  skip_on_cran()
  x <- small_nonconvex()
  for (target in c("mixture of two normals", "student-t regression")) {
    expect_lt(5 * x$numbers$mapping2[target, "growing"], x$numbers$late[target, "constant 25"])
  }
  # a floor: the last fifth is no better than the fifth before
  means <- lab$mean_mapping(x$data)
  stalled <- subset(means, target == "mixture of two normals" & schedule == "constant 25" &
                      evals > 5000)
  expect_gt(tail(stalled$mapping2, 1), min(stalled$mapping2) / 3)

  bounds <- x$bounds
  expect_true(all(bounds$covered))
  for (name in unique(bounds$schedule)) {
    part <- subset(bounds, schedule == name)
    bound <- approx(part$evals, part$bound, 20000)$y
    expect_lt(x$numbers$mapping2["mixture of two normals", name], bound)
  }
})

test_that("the bound is that of guarantee(), flat for constant batches only", {
  skip_on_cran()
  x <- small_nonconvex()
  ends <- sapply(split(x$bounds, x$bounds$schedule), function(part) {
    part$bound[which.max(part$evals)]
  })
  schedules <- lab$nonconvex_schedules(mixture$step, 2e6)
  cover <- function(name, side, gap0 = NULL) {
    guarantee(mixture$model, schedule = schedules[[name]], start = mixture$start(side),
              control = mixture$control, gap0 = gap0)
  }
  gap0 <- max(cover("growing", 0)$gap0, cover("growing", 1)$gap0)
  for (name in names(schedules)) {
    g <- cover(name, 0, gap0)
    expect_equal(ends[[name]], g$bound, tolerance = 1e-10)
  }
  # steps are half the inverse smoothness of F: 1 - step Lip = 1/2
  expect_gt(ends[["constant 25"]], 8 * g$moment / 25)
  expect_lt(ends[["constant 25"]], 8.2 * g$moment / 25)
  expect_lt(ends[["growing"]], 8 * g$moment / 250)
})

test_that("the figures can be drawn", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  x <- small_nonconvex()
  mapping <- ggplot2::ggplot_build(ggplot2::autoplot(x))
  expect_identical(nrow(mapping$layout$layout), 2L)
  expect_setequal(mapping$data[[2]]$label, names(lab$nonconvex_schedules(1, 1000)))
  for (what in c("bound", "found")) {
    expect_s3_class(ggplot2::ggplot_build(ggplot2::autoplot(x, what)), "ggplot_built")
  }
})

test_that("bad arguments are named", {
  expect_refusal(example_experiment("nonconvex", budget = 10), "budget")
  expect_refusal(example_experiment("nonconvex", runs = 0), "runs")
  expect_refusal(example_experiment("nonconvex", seed = -1), "seed")
  expect_refusal(example_experiment("nonconvex", bugdet = 10), "bugdet")
  skip_if_not_installed("ggplot2")
  expect_refusal(ggplot2::autoplot(small_nonconvex(), "map"), "what")
  expect_refusal(ggplot2::autoplot(small_nonconvex(), wat = 1), "wat")
})
