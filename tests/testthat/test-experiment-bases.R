lab <- load_experiments()

bases_store <- new.env()
small_bases <- function() {
  if (is.null(bases_store$x)) {
    bases_store$x <- example_experiment("bases", iterations = 500, draws = 5000, runs = 2, seed = 2)
  }
  bases_store$x
}

# a correlated normal target and its best approximations
A <- crossprod(matrix(c(2, 0.5, 0, 0, 1, -0.7, 0, 0, 0.5), 3))
normal_model <- model_quadratic(A, m = c(1, -2, 0.5))
best_of <- function(base) elvi(normal_model, base, method = "exact")

test_that("the sampler samples a normal target", {
  skip_on_cran()
  set.seed(1)
  kept <- lab$metropolis(normal_model, best_of(base_gaussian()), best_of(base_student(5)), 2000)
  out <- lab$summarise_chains(kept)
  expect_lt(max(abs(out$mean - normal_model$m) / out$mcse), 4.5)
  expect_equal(unname(cov(lab$chain_draws(kept))), solve(A), tolerance = 0.05)
  # fourth moments tell a normal from what a wrong acceptance rule makes of it
  z <- (lab$chain_draws(kept)[, 1] - 1) / sqrt(solve(A)[1, 1])
  by_chain <- colMeans(matrix(z^4, 2000))
  expect_lt(abs(mean(by_chain) - 3), 4.5 * sd(by_chain) / sqrt(64))
  expect_true(all(out$rhat < 1.02))
  # in three dimensions the optimal step is accepted about a third of the time
  expect_gt(out$acceptance, 0.28)
  expect_lt(out$acceptance, 0.38)
})

test_that("the Monte Carlo error is that of independent chains", {
  kept <- array(c(1, 3, 2, 6), c(2, 2, 1), list(NULL, NULL, "a"))   # chains (1, 3) and (2, 6)
  attr(kept, "acceptance") <- 0.3
  out <- lab$summarise_chains(kept)
  between <- var(c(2, 4))
  within <- mean(c(2, 8))
  expect_equal(out$mean, c(a = 3))
  expect_equal(out$mcse, c(a = sqrt(between / 2)))
  expect_equal(out$ess, c(a = var(c(1, 3, 2, 6)) / (between / 2)))
  expect_equal(out$rhat, c(a = sqrt(1 / 2 + between / within)))
  set.seed(2)
  kept <- array(rnorm(64 * 400 * 2), c(400, 64, 2), list(NULL, NULL, c("a", "b")))
  expect_equal(unname(lab$summarise_chains(kept)$ess), c(25600, 25600), tolerance = 0.6)
})

test_that("the evidence of a normal target is its integral", {
  exact <- 3 / 2 * log(2 * pi) - log(det(A)) / 2
  set.seed(3)
  own <- lab$log_evidence(best_of(base_gaussian()), 1000)
  expect_equal(own$estimate, exact, tolerance = 1e-10)
  expect_lt(own$se, 1e-8)
  wide <- lab$log_evidence(best_of(base_student(5)), 50000)
  expect_lt(abs(wide$estimate - exact), 4.5 * wide$se)
  expect_lt(wide$se, 0.01)
})

test_that("a family is judged by closed forms on a normal target", {
  skip_on_cran()
  set.seed(4)
  x <- matrix(rnorm(3 * 60000), 3)
  x <- normal_model$m + t(chol(solve(A))) %*% x
  kept <- array(t(x), c(1000, 60, 3), list(NULL, NULL, normal_model$names))
  evidence <- list(estimate = 3 / 2 * log(2 * pi) - log(det(A)) / 2)
  path <- data.frame(evals = 1:2, gap = 0)
  for (base in lab$families_compared()) {
    out <- lab$judge_family(best_of(base), kept, evidence, 2000, path)
    # mu and Sigma are the same for all, so only the entropies differ
    entropy <- c(base_info(base_gaussian(), 3)$entropy, base_info(base, 3)$entropy)
    expect_equal(out$kl, entropy[1] - entropy[2], tolerance = 1e-7)
    expect_lt(out$mean_error, 4.5 / sqrt(60000))
    expect_equal(out$sd_ratio, 1, tolerance = 0.02)
  }
  # normal draws outside the ellipsoids that hold 99 % of a gaussian and of a uniform ball
  expect_lt(abs(lab$share_outside(best_of(base_gaussian()), t(x), 0.99) - 0.01), 0.002)
  edge2 <- 5 * 0.99^(2 / 3)
  expect_equal(lab$share_outside(best_of(base_uniform()), t(x), 0.99),
               pchisq(edge2, 3, lower.tail = FALSE), tolerance = 0.03)
})

test_that("a histogram counts what is in its range", {
  bars <- lab$histogram(c(0.1, 0.2, 0.9, 1.5, -3, 2), range = c(0, 2), bins = 2L)
  expect_identical(bars$x, c(0.5, 1.5))
  expect_equal(bars$density, c(3, 1) / 6)
})

test_that("what is left is the mean gap late in the runs", {
  path <- data.frame(evals = rep(c(10, 25, 40, 100), 2), gap = c(9, 1, 2, 3, 9, 3, 4, 5))
  expect_identical(lab$gap_left(path), 3)
})

test_that("triangular and symmetric scales are one family, diagonal ones are less", {
  skip_on_cran()
  x <- small_bases()
  by <- function(scale, column) setNames(x$data[[column]], x$data$base)[x$data$scale == scale]
  expect_equal(by("triangular", "elbo"), by("symmetric", "elbo"), tolerance = 1e-8)
  expect_lt(x$numbers$same_law, 1e-10)
  expect_equal(vcov(x$fits[["laplace, triangular"]]), vcov(x$fits[["laplace, symmetric"]]),
               tolerance = 1e-5)
  expect_true(all(by("diagonal", "elbo") < by("symmetric", "elbo") - 0.1))
  expect_true(all(by("diagonal", "sd_ratio") < by("symmetric", "sd_ratio")))
  # the paths differ and end at the same place
  ends <- subset(x$paths, evals == max(evals) &
                   family %in% c("gaussian, symmetric", "gaussian, triangular"))
  expect_false(any(duplicated(ends$gap)))
  expect_true(all(ends$gap > -1e-8 & ends$gap < 0.02))
})

test_that("the posterior is skewed enough for the bases to disagree", {
  skip_on_cran()
  x <- small_bases()
  full <- subset(x$data, scale == "symmetric")
  rownames(full) <- full$base
  expect_true(all(full$kl > 0))
  expect_identical(full$base[which.min(full$kl)], "gaussian")
  # the wide bases cover the tail; the ball does not, and its k-hat cannot tell
  expect_lt(full["laplace", "khat"], 0.5)
  expect_lt(full["uniform", "khat"], 0)
  expect_gt(full["uniform", "outside"], 0.1)
  expect_lt(full["laplace", "outside"], 0.03)
})

test_that("the figures can be drawn", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  x <- small_bases()
  panels <- c(families = 2L, density = 5L, pairs = 1L, paths = 1L)
  for (what in names(panels)) {
    built <- ggplot2::ggplot_build(ggplot2::autoplot(x, what))
    expect_identical(nrow(built$layout$layout), panels[[what]], label = what)
  }
  # the curve of a density integrates to 1 over its panel, up to the tails cut off
  curve <- subset(ggplot2::ggplot_build(ggplot2::autoplot(x, "density"))$data[[2]], PANEL == 1)
  area <- sum(diff(curve$x) * (head(curve$y, -1) + tail(curve$y, -1)) / 2)
  expect_equal(area, 1, tolerance = 0.02)
})

test_that("bad arguments are named", {
  expect_refusal(example_experiment("bases", iterations = 1), "iterations")
  expect_refusal(example_experiment("bases", draws = 10), "draws")
  expect_refusal(example_experiment("bases", runs = 1.5), "runs")
  expect_refusal(example_experiment("bases", seed = "a"), "seed")
  expect_refusal(example_experiment("bases", base = "gaussian"), "base")
  skip_if_not_installed("ggplot2")
  expect_refusal(ggplot2::autoplot(small_bases(), "densities"), "what")
})

test_that("jumps along a run are found, and the iterates are those of the run", {
  late <- function(gap) {
    list(path = data.frame(gap = gap, of_scale = gap / 2, eigenvalue = c(1, rep(0.5, length(gap) - 1)), farthest = 5), average = 0.1)
  }
  out <- lab$judge_jumps(late(c(1, 1, 1, 30, 20, 1, 1, 15, 1)))
  expect_identical(out[c("usual", "longest", "largest", "of_scale", "before", "eigenvalue", "farther", "last")],
                   data.frame(usual = 1, longest = 2L, largest = 30, of_scale = 15, before = 0.5, eigenvalue = 0.5, farther = 1, last = 1))
  expect_equal(out$share, 3 / 9)
  expect_identical(lab$judge_jumps(late(rep(1, 5)))$longest, 0L)
  skip_on_cran()
  model <- lab$gearbox_model()
  fit <- elvi(model, base_student(5), method = "exact")
  set.seed(3)
  found <- lab$late_iterates(model, fit, 300)
  set.seed(3)
  run <- suppressMessages(elvi(model, base_student(5), schedule_tuned(300), start = lab$away_from_the_mode(model, "symmetric"),
                               control = elvi_control(trace_draws = 0)))
  at <- function(theta) objective(theta, model, base_student(5))$estimate - fit$optimum$objective
  expect_equal(found$path$gap[nrow(found$path)], at(list(mu = run$last$mu, Sigma = run$last$scale)), tolerance = 1e-8)
  expect_equal(found$average, gap_to_user(run), tolerance = 1e-6)
})
