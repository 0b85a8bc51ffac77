# What a user says of a target, and how draws refute it.

test_that("what a user says of a density is assumed, and draws can refute it", {
  target <- function(curvature, ...) {
    A <- diag(curvature)
    model_density(function(x) colSums(x * (A %*% x)) / 2, function(x) A %*% x, dim = 2, growth = 2, ...)
  }
  ask <- function(model, ..., coordinates = "raw") {
    guarantee(model, schedule = schedule_fixed(200, "case2"), ...,
              control = elvi_control(estimator = "reparam", average = "theorem", coordinates = coordinates))
  }
  best <- list(mu = c(0, 0), Sigma = diag(c(1, 0.5)))
  for (coordinates in c("raw", "whitened")) {
    g <- ask(target(c(1, 4), convex = TRUE, smoothness = 4), optimum = best, coordinates = coordinates)
    expect_identical(unname(status_of(g)[c("f convex", "f smooth", "optimum exists", "optimum known")]), rep("assumed", 4))
  }
  # in the coordinates of the run, where a steep direction may be whitened away
  low <- ask(target(c(1, 4), convex = TRUE, smoothness = 3), optimum = best)
  expect_identical(unname(status_of(low)[["f smooth"]]), "fails")
  expect_true(is.na(low$bound))
  expect_match(g$assumptions$why[1], "you say so; [0-9]+ pairs of draws agree")
  # the resolution of the check of an optimum
  expect_match(g$assumptions$why[6], "would detect a gradient of [0-9.e-]+ in units of its scale")
  wavy <- model_density(function(x) colSums(x^2) / 2 + 2 * colSums(cos(2 * x)), function(x) x - 4 * sin(2 * x), dim = 2,
                        convex = TRUE, growth = 2, smoothness = 9)
  expect_identical(unname(status_of(ask(wavy, optimum = best))[["f convex"]]), "fails")
  # alpha
  expect_identical(unname(status_of(ask(target(c(1, 4), convex = TRUE, smoothness = 4), alpha = 1))[["optimum known"]]), "assumed")
  expect_identical(unname(status_of(ask(target(c(1, 4), convex = TRUE, smoothness = 4), alpha = 2))[["optimum known"]]), "fails")
  expect_identical(unname(status_of(ask(logistic(), alpha = 0.01))[["optimum known"]]), "holds")
  # an optimum that is given exists
  unknown <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, convex = TRUE, smoothness = 1)
  expect_identical(unname(status_of(ask(unknown))[["optimum exists"]]), "unknown")
  expect_identical(unname(status_of(ask(unknown, optimum = list(mu = c(0, 0), Sigma = diag(2))))[["optimum exists"]]), "assumed")
})

test_that("one steep or flat direction of many is found", {
  odd <- function(curvature, ...) {
    model_density(function(x) colSums(x * (curvature * x)) / 2, function(x) curvature * x, dim = 40, growth = 2, convex = TRUE, ...)
  }
  ask <- function(model, ...) {
    status_of(guarantee(model, schedule = schedule_fixed(200, "case2"), ...,
                        control = elvi_control(estimator = "reparam", average = "theorem", coordinates = "raw")))
  }
  steep <- c(rep(1, 39), 50)
  expect_identical(ask(odd(steep, smoothness = 49))[["f smooth"]], "fails")
  expect_identical(ask(odd(steep, smoothness = 50))[["f smooth"]], "assumed")
  flat <- c(rep(1, 39), 0.02)
  expect_identical(ask(odd(flat, smoothness = 1), alpha = 0.1)[["optimum known"]], "fails")
  expect_identical(ask(odd(flat, smoothness = 1), alpha = 0.02)[["optimum known"]], "assumed")
  saddle <- c(rep(1, 39), -0.02)
  expect_identical(ask(odd(saddle, smoothness = 1), alpha = 0.01)[["f convex"]], "fails")
})
