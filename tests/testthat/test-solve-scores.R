# The rule on a density of theta that is known: the functions that ask for the evidence, with another evidence_at()
known_points <- function(log_p, slope, mode, hessian) {
  known <- new.env(parent = asNamespace("elvi"))
  known$evidence_at <- function(setup, thetas, from = NULL, tol = 1e-7) {
    solution <- list(mu = 0, c = 1, variance = 1)
    lapply(thetas, function(theta) list(theta = theta, value = log_p(theta), slope = slope(theta), solution = solution))
  }
  known$shown_hyper <- function(setup, theta) exp(theta)
  known$solve_cost <- function(plan) 1
  for (name in c("score_nodes", "score_number", "profile_coordinates", "solve_scores", "score_weights", "score_error",
                "evidence_in", "shown_in")) {
    known[[name]] <- get(name, asNamespace("elvi"))
    environment(known[[name]]) <- known
  }
  H <- length(mode)
  around <- list(mode = known$evidence_at(NULL, list(mode))[[1L]], hessian = hessian, drift = rep(list(list(mu = 0, log_c = 0)), H))
  known$score_nodes(list(layout = list(length = H)), around, list(tol = 1e-7), NULL)
}

rule_moments <- function(grid, of = identity) {
  value <- vapply(grid$found, function(f) f$value, 0)
  theta <- of(do.call(rbind, lapply(grid$found, function(f) f$theta)))
  w <- normalised(value + grid$log_rule)
  mean <- drop(w %*% theta)
  list(mean = mean, sd = sqrt(drop(w %*% sweep(theta, 2L, mean)^2)), log_total = log_sum(value + grid$log_rule))
}

test_that("scores of a normal density are linear, and its moments exact", {
  Q <- matrix(c(4, 1, 0.5, 1, 2, -0.3, 0.5, -0.3, 1), 3)
  m <- c(1, -1, 0.5)
  log_p <- function(x) -sum((x - m) * (Q %*% (x - m))) / 2
  grid <- known_points(log_p, function(x) drop(-Q %*% (x - m)), m, Q)
  got <- rule_moments(grid)
  expect_equal(got$mean, m, tolerance = 0.005)
  expect_equal(got$sd, sqrt(diag(solve(Q))), tolerance = 0.01)
  expect_equal(got$log_total, 1.5 * log(2 * pi) - log(det(Q)) / 2, tolerance = 0.02)
  map <- score_map(c(-3, 0, 3), -c(9, 0, 9) / 2, c(3, 0, -3))
  expect_equal(map$theta(c(-2, 0, 2)), c(-2, 0, 2), tolerance = 0.02)
  expect_equal(map$score(map$theta(c(-4, 1, 3))), c(-4, 1, 3), tolerance = 1e-5)
})

test_that("sds that may be zero: a tail that falls like exp(theta) is integrated", {
  # absolute values of independent normal variables, by their logarithms
  H <- 4
  log_p <- function(x) sum(x - exp(2 * x) / 2 + log(2 / pi) / 2)
  grid <- known_points(log_p, function(x) 1 - exp(2 * x), numeric(H), diag(2, H))
  got <- rule_moments(grid, exp)
  expect_equal(got$mean, rep(sqrt(2 / pi), H), tolerance = 0.02)
  expect_equal(got$sd, rep(sqrt(1 - 2 / pi), H), tolerance = 0.03)
  expect_equal(got$log_total, 0, tolerance = 0.05)
  raw <- rule_moments(grid)
  expect_equal(raw$mean, rep((digamma(0.5) + log(2)) / 2, H), tolerance = 0.05)
  expect_equal(raw$sd, rep(sqrt(trigamma(0.5)) / 2, H), tolerance = 0.05)
  expect_identical(grid, known_points(log_p, function(x) 1 - exp(2 * x), numeric(H), diag(2, H)))
})

test_that("weights are tilted to the moments asked for, and stay positive", {
  set.seed(1)
  z <- matrix(rnorm(600), 200)
  moments <- list(mean = c(0.2, 0, 0), sd = c(1, 1, 1), log_total = 3)
  got <- tilted_weights(rep(1, 200), z, moments)
  w <- exp(got$log_weight)
  expect_equal(sum(w), exp(3))
  expect_equal(drop(w %*% z) / sum(w), moments$mean, tolerance = 1e-3)
  expect_true(all(w > 0))
  again <- tilted_weights(rep(1, 200), z, moments, got$lambda)
  expect_equal(again$log_weight, got$log_weight, tolerance = 1e-3)
})

test_that("weights on a few points are an error, whatever the other rules say", {
  expect_identical(few_points(list(log_weight = numeric(50))), 0)
  expect_equal(few_points(list(log_weight = c(0, rep(-Inf, 49)))), 1)
})

test_that("a point's cell has the mass that is nearest to it", {
  powers <- simple_powers(3L)   # of a surrogate that is a normal density
  shape <- list(z = matrix(0, 1L, 3L), powers = powers, coefficients = numeric(nrow(powers) + 1L))
  z <- rbind(c(1, 0, 0), c(-1, 0, 0), c(0, 0, 50), 0)
  expect_equal(cell_mass(shape, z, c(TRUE, TRUE, TRUE, FALSE)), c(0.5, 0.5, 0, 0), tolerance = 0.02)
  expect_equal(cell_mass(shape, z, rep(TRUE, 4)), c(pnorm(-0.5), pnorm(-0.5), 0, 1 - 2 * pnorm(-0.5)), tolerance = 0.03)
})

test_that("the error is the distance from other rules, scaled as their rule says", {
  here <- list(mean = c(1, 2), sd = c(1, 2))
  expect_equal(rule_error(here, list(list(mean = c(1.1, 2), sd = c(1, 2.2)))), list(mean = 0.1, sd = 0.1))
  off <- lapply(c(-1, 1, -1, 1), function(by) list(mean = here$mean + by / 10, sd = here$sd))
  expect_equal(rule_error(here, off, 3), list(mean = 2 * sqrt(0.75 * 4 * 0.01), sd = 0))
  expect_identical(error_scale("lattice"), 1)
})

test_that("half of the sample tells how well all of it knows a moment", {
  shape <- surrogate_sample(3L)
  shape$weight <- normalised(shape$log_ratio)
  all <- list(mean = drop(shape$weight %*% shape$z^2), log_total = 0)
  got <- half_sample_moments(shape, shape$z^2, all, 1)
  expect_equal(got$mean, apply(shape$z[shape$half, ]^2, 2L, weighted.mean, shape$weight[shape$half]))
  expect_lt(max(abs(got$mean - 1)), 0.05)
  expect_equal(half_sample_moments(shape, shape$z^2, all, 0), all)
})

test_that("the surrogate's points integrate a normal density, and functions with long tails", {
  for (H in c(3L, 6L)) {
    sample <- surrogate_sample(H)
    weight <- exp(sample$log_ratio) / nrow(sample$z)
    expect_equal(sum(weight), (2 * pi)^(H / 2), tolerance = 4e-3)
    expect_equal(sum(weight * exp(sample$z[, 1L])) / sum(weight), exp(0.5), tolerance = 4e-3)
    expect_equal(sum(weight * exp(2 * sample$z[, H] / 3)) / sum(weight), exp(2 / 9), tolerance = 4e-3)
    expect_equal(sum(weight[sample$half]) / sum(weight), 0.5, tolerance = 0.01)
  }
})

test_that("importance sampling corrects a surrogate that is wrong", {
  # the density is normal about 0.3; the surrogate knows a standard normal density only
  set.seed(2)
  v <- matrix(rnorm(9000), 3000)
  shape <- surrogate_sample(3L)
  shape$powers <- simple_powers(3L)
  shape$columns <- cbind(1, surrogate_features(shape$z, shape$powers))
  shape <- with_coefficients(c(shape, list(top = 0, log_scale = 0)), numeric(nrow(shape$powers) + 1L))
  expect_equal(shape$log_total, 1.5 * log(2 * pi), tolerance = 0.002)
  points <- list(v = v, log_density = -rowSums((v - 0.3)^2) / 2, usable = rep(TRUE, 3000), part = rep(0L, 3000))
  design <- list(proposals = list(list(centre = numeric(3), root = diag(3))), counts = 3000)
  got <- corrected_moments(shape, points, v, design, v, list(mean = numeric(3), log_total = shape$log_total), 1)
  expect_equal(got$mean, rep(0.3, 3), tolerance = 0.1)
  expect_equal(got$log_total, 1.5 * log(2 * pi), tolerance = 0.02)
})

fine_moments <- function(problem, nodes) {
  fine <- nested_fit(problem, control = list(nodes = nodes))
  c(node_moments(fine), list(hyper = moments_of_theta(fine$setup, fine$hyper$theta, fine$hyper$weight)))
}

test_that("random slopes agree with a fine lattice, within the error that is reported", {
  skip_on_cran()
  problem <- sleep_problem()
  fit <- nested_fit(problem)
  expect_identical(fit$hyper$rule, "scores")
  expect_lt(length(fit$nodes), 440)
  expect_lt(max(unlist(fit$change)), 0.05)
  fine <- fine_moments(problem, 8)
  got <- node_moments(fit)
  expect_lt(max(abs(got$mean - fine$mean) / fine$sd), 0.05)
  expect_lt(max(abs(got$sd / fine$sd - 1)), 0.03)
  hyper <- moments_of_theta(fit$setup, fit$hyper$theta, fit$hyper$weight)
  expect_lt(max(abs(hyper$mean - fine$hyper$mean) / fine$hyper$sd), max(fit$change$mean, 0.02))
  expect_lt(max(abs(hyper$sd / fine$hyper$sd - 1)), max(fit$change$sd, 0.02))
  expect_identical(nested_fit(problem)$hyper$weight, fit$hyper$weight)
})

test_that("the order of levels and of terms changes nothing beyond the error, and no warning comes or goes", {
  skip_on_cran()
  set.seed(3)
  d <- data.frame(a = factor(sample(8, 150, TRUE)), b = factor(sample(9, 150, TRUE)), c = factor(sample(7, 150, TRUE)))
  d$y <- rpois(150, exp(0.5 + 0.6 * rnorm(8)[d$a] + 0.3 * rnorm(9)[d$b]))
  moments <- function(formula, data) {
    expect_no_warning(fit <- elvi(formula, data, family = poisson()))
    expect_identical(fit$posterior$hyper$rule, "scores")
    list(at = VarCorr(fit), change = max(unlist(fit$nested$change)), moments = posterior_moments(fit$posterior),
         names = fit$posterior$shown)
  }
  one <- moments(y ~ (1 | a) + (1 | b) + (1 | c), d)
  turned <- transform(d, a = factor(a, rev(levels(a))), b = factor(b, rev(levels(b))))
  two <- moments(y ~ (1 | a) + (1 | b) + (1 | c), turned)
  three <- moments(y ~ (1 | c) + (1 | b) + (1 | a), d)
  expect_lt(max(one$change, two$change, three$change), 0.05)
  for (other in list(two, three)) {
    at <- match(one$names, other$names)
    expect_false(anyNA(at))
    expect_lt(max(abs(other$moments$mean[at] - one$moments$mean) / one$moments$sd), 0.05)
    expect_lt(max(abs(other$moments$sd[at] / one$moments$sd - 1)), 0.05)
  }
})

test_that("the order of a factor's levels changes nothing", {
  skip_on_cran()
  skip_without_parser()
  d <- group_data()
  fit <- function(d) suppressWarnings(elvi(y ~ x + (1 + x | g) + (1 | f), d))
  one <- fit(d)
  other <- fit(transform(d, g = factor(g, rev(levels(factor(g)))), f = factor(f, rev(levels(factor(f))))))
  expect_identical(length(one$posterior$weight), length(other$posterior$weight))
  expect_equal(fixef(one), fixef(other), tolerance = 1e-6)
  expect_equal(sqrt(diag(vcov(one))), sqrt(diag(vcov(other))), tolerance = 1e-6)
  expect_equal(ranef(one)$g, ranef(other)$g[rownames(ranef(one)$g), ], tolerance = 1e-6, ignore_attr = TRUE)
  expect_equal(one$nested$change, other$nested$change, tolerance = 1e-4)
})

test_that("many hyperparameters take few points: eight smooths, and six crossed factors", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  skip_without_parser()
  set.seed(16)
  d <- as.data.frame(matrix(runif(400 * 8), 400))
  d$y <- sin(6 * d$V1) + d$V2^2 + rnorm(400, 0, 0.3)
  smooths <- elvi(reformulate(sprintf("s(V%d)", 1:8), "y"), d)
  e <- as.data.frame(lapply(1:6, function(i) factor(sample(8, 150, TRUE))), col.names = letters[1:6])
  e$y <- rpois(150, exp(0.5 + rnorm(8, 0, 0.5)[e$a]))
  crossed <- elvi(reformulate(sprintf("(1 | %s)", letters[1:6]), "y"), e, family = poisson())
  # a lattice takes 2,116 points for nine hyperparameters; each point is a fit of its own
  expect_lt(nrow(smooths$posterior$hyper$theta), 600)
  expect_lt(nrow(crossed$posterior$hyper$theta), 600)
  expect_lt(max(smooths$nested$change$mean, crossed$nested$change$mean), 0.1)
})
