# The rule on a density of theta that is known: the functions that ask for the evidence, with another evidence_at()
known_points <- function(log_p, slope, mode, hessian) {
  known <- new.env(parent = asNamespace("elvi"))
  known$evidence_at <- function(setup, thetas, from = NULL, tol = 1e-7) {
    lapply(thetas, function(theta) list(theta = theta, value = log_p(theta), slope = slope(theta), solution = list(mu = 0, c = 1)))
  }
  known$shown_hyper <- function(setup, theta) exp(theta)
  known$solve_cost <- function(plan) 1
  for (name in c("score_nodes", "score_number", "profile_coordinates", "solve_scores", "score_error")) {
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
  w <- elvi:::normalised(value + grid$log_rule)
  mean <- drop(w %*% theta)
  list(mean = mean, sd = sqrt(drop(w %*% sweep(theta, 2L, mean)^2)), log_total = elvi:::log_sum(value + grid$log_rule))
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
  map <- elvi:::score_map(c(-3, 0, 3), -c(9, 0, 9) / 2, c(3, 0, -3))
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

test_that("Stein's identities hold after the tilt, and weights stay positive", {
  set.seed(1)
  z <- matrix(rnorm(600), 200)
  weight <- elvi:::normalised(-rowSums((z - 0.2)^2) / 2 + rowSums(z^2) / 2)
  tilt <- elvi:::stein_tilt(weight, z, 0.2 - z)
  w <- elvi:::normalised(log(weight) + tilt)
  h <- elvi:::stein_features(z, 0.2 - z, 100)
  expect_identical(ncol(h), 15L)
  expect_lt(max(abs(w %*% h)), 0.02)
  expect_gt(max(abs(weight %*% h)), 0.1)
  expect_equal(drop(w %*% z), rep(0.2, 3), tolerance = 0.05)
  expect_true(all(w > 0))
})

test_that("the error of one coarser rule is its distance, of several two standard errors", {
  here <- list(mean = c(1, 2), sd = c(1, 2))
  expect_equal(elvi:::rule_error(here, list(list(mean = c(1.1, 2), sd = c(1, 2.2)))), list(mean = 0.1, sd = 0.1))
  off <- lapply(c(-1, 1, -1, 1), function(by) list(mean = here$mean + by / 10, sd = here$sd))
  expect_equal(elvi:::rule_error(here, off), list(mean = 2 * sqrt(0.75 * 4 * 0.01), sd = 0))
})

fine_moments <- function(problem, nodes) {
  fine <- elvi:::nested_fit(problem, control = list(nodes = nodes))
  c(elvi:::node_moments(fine), list(hyper = elvi:::moments_of_theta(fine$setup, fine$hyper$theta, fine$hyper$weight)))
}

test_that("random slopes agree with a fine lattice, within the error that is reported", {
  skip_on_cran()
  problem <- sleep_problem()
  fit <- elvi:::nested_fit(problem)
  expect_identical(fit$hyper$rule, "scores")
  expect_lt(length(fit$nodes), 440)
  expect_lt(max(unlist(fit$change)), 0.05)
  fine <- fine_moments(problem, 8)
  got <- elvi:::node_moments(fit)
  expect_lt(max(abs(got$mean - fine$mean) / fine$sd), 0.05)
  expect_lt(max(abs(got$sd / fine$sd - 1)), 0.03)
  hyper <- elvi:::moments_of_theta(fit$setup, fit$hyper$theta, fit$hyper$weight)
  expect_lt(max(abs(hyper$mean - fine$hyper$mean) / fine$hyper$sd), max(fit$change$mean, 0.02))
  expect_lt(max(abs(hyper$sd / fine$hyper$sd - 1)), max(fit$change$sd, 0.02))
  expect_identical(elvi:::nested_fit(problem)$hyper$weight, fit$hyper$weight)
})

test_that("the order of levels and of terms changes nothing beyond the error, and no warning comes or goes", {
  skip_on_cran()
  set.seed(3)
  d <- data.frame(a = factor(sample(8, 150, TRUE)), b = factor(sample(9, 150, TRUE)), c = factor(sample(7, 150, TRUE)))
  d$y <- rpois(150, exp(0.5 + 0.6 * rnorm(8)[d$a] + 0.3 * rnorm(9)[d$b]))
  moments <- function(formula, data) {
    expect_no_warning(fit <- elvi(formula, data, family = poisson()))
    expect_identical(fit$posterior$hyper$rule, "scores")
    list(at = VarCorr(fit), change = max(unlist(fit$nested$change)), moments = elvi:::posterior_moments(fit$posterior),
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
