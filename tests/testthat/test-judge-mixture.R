funnel <- function(n, sd) {
  model_density(function(x) x[1]^2 / (2 * sd^2) + sum(x[-1]^2) * exp(-x[1]) / 2 + n * x[1] / 2,
                function(x) c(x[1] / sd^2 - sum(x[-1]^2) * exp(-x[1]) / 2 + n / 2, x[-1] * exp(-x[1])),
                dim = n + 1, names = c("v", paste0("x", 1:n)))
}

test_that("a mixture's draws have its density", {
  parts <- list(list(mu = c(-1, 0), root = diag(2)), list(mu = c(2, 1), root = rbind(c(1, 0), c(0.5, 0.7))))
  mixture <- list(weights = c(0.3, 0.7), parts = parts)
  drawn <- adapted_points(mixture, 50000, c(7, 7), 1)
  # the mean of p / q is the integral of p: a narrower normal density
  log_p <- -colSums((drawn$x - c(1, 0.5))^2) / 2 - log(2 * pi)
  expect_lt(abs(mean(exp(log_p - drawn$log_q)) - 1), 0.02)
  expect_lt(max(abs(rowMeans(drawn$x) - c(1.1, 0.7))), 0.03)
  expect_identical(adapted_points(mixture, 10, c(7, 7), 1), adapted_points(mixture, 10, c(7, 7), 1))
})

test_that("weights are tempered until enough draws are effective", {
  log_ratios <- c(0, -(1:999) / 10)
  w <- tempered_weights(log_ratios, 200)
  expect_equal(1 / sum(w^2), 200, tolerance = 0.01)
  expect_equal(tempered_weights(log_ratios, 2), exp(log_ratios) / sum(exp(log_ratios)))
  expect_equal(tempered_weights(c(0, -Inf, 0, 0), 4), c(1, 0, 1, 1) / 3)
})

test_that("a funnel that no gaussian follows is corrected by a mixture, and that is said", {
  skip_on_cran()
  set.seed(1)
  expect_message(fit <- elvi(funnel(6, 1), tol = 0.1), "mixture of [0-9]+ student distributions", class = "elvi_message_adapted")
  expect_length(objections(fit), 0)
  expect_gt(fit$verdict$alone$ratio, most_ratio)
  # v is normal(0, 1), and x has the sd exp(1 / 4)
  expect_lt(abs(coef(fit)[["v"]]), 0.2)
  expect_lt(abs(sqrt(vcov(fit)["v", "v"]) - 1), 0.1)
  x <- as.matrix(fit, draws = 4000)
  expect_lt(abs(sd(x[, "v"]) - 1), 0.1)
  expect_lt(abs(sd(x[, "x1"]) / exp(1 / 4) - 1), 0.1)
  plain <- suppressWarnings(as.matrix(fit, draws = 4000, resample = FALSE))
  expect_lt(sd(plain[, "v"]), 0.7)
  expect_output(print(fit), "alone misses part of the target")
  expect_output(print(fit), "Verdict: good after importance correction")
  k <- pareto_k(fit)
  expect_lt(k$k, 0.7)
  expect_output(print(k), "alone misses part")
  expect_identical(verdict_on(fit), fit$verdict)
})

# Half a standard normal law, half one of the same width six sds away.
far_pair <- function(names = NULL) {
  value <- function(x) -log(exp(-sum((x - c(-3, 0))^2) / 2) + exp(-sum((x - c(3, 0))^2) / 2))
  gradient <- function(x) {
    p <- plogis(6 * x[1])
    (1 - p) * (x - c(-3, 0)) + p * (x - c(3, 0))
  }
  model_density(value, gradient, dim = 2, names = names)
}

test_that("a k-hat beyond its limit is not excused by weights that are nearly equal: they may be so in one of two modes", {
  skip_on_cran()
  set.seed(1)
  expect_message(fit <- elvi(far_pair(), tol = 0.1), class = "elvi_message_adapted")
  alone <- judged_weights(fit, verdict_draws(fit))
  expect_gt(alone$ess, alone$draws / 2)
  expect_length(objections(fit), 0)
  expect_lt(max(abs(coef(fit))), 0.3)
  expect_equal(unname(sqrt(diag(vcov(fit)))), c(sqrt(10), 1), tolerance = 0.1)
})

test_that("modes that other starts ended in are mixed by their weights, and no round forgets them", {
  apart <- two_normals(c(0.3, 0.7), c(-5, 5), c(1, 1))
  set.seed(1)
  expect_warning(fit <- suppressMessages(elvi(apart, tol = 0.1)), "ended at a different place", class = "elvi_warning_verdict")
  expect_length(objections(fit), 1)
  expect_match(adapted_line(fit$verdict), "^[1-9] other start.*mixture of")
  expect_equal(unname(coef(fit)), c(2, 2), tolerance = 0.1)
  proposal <- list(weights = 1, parts = list(list(mu = 0, root = diag(1))))
  ends <- list(weights = c(0.5, 0.5), parts = list(list(mu = -1, root = diag(1)), list(mu = 1, root = diag(1))))
  expect_equal(with_ends(proposal, ends)$weights, c(0.9, 0.05, 0.05))
  expect_identical(with_ends(proposal, NULL), proposal)
  expect_null(with_ends(NULL, ends))
})

test_that("all that an adapted fit shows is of the same draws, in another session and after a run in pieces too", {
  skip_on_cran()
  set.seed(1)
  fit <- suppressMessages(elvi(far_pair(c("a", "b")), tol = 0.1))
  again <- {
    set.seed(1)
    suppressMessages(elvi(far_pair(c("a", "b")), tol = 0.1))
  }
  expect_identical(again$verdict, fit$verdict)
  points <- weighted_points(fit$posterior)
  expect_equal(drop(points$x %*% points$w), coef(fit), ignore_attr = TRUE)
  draws <- as.matrix(fit, draws = 4000)
  expect_lt(max(abs(colMeans(draws) - coef(fit)) / sqrt(diag(vcov(fit)))), 0.1)
  expect_true(all(draws[1:20, 1] %in% points$x[1, ]))
  expect_identical(simulate(fit, 50, seed = 3), simulate(fit, 50, seed = 3))
  expect_equal(confint(fit)["a", ], weighted_quantile(points$x[1, ], points$w, c(0.025, 0.975)), ignore_attr = TRUE)
  expect_equal(summary(fit)$table[, "mean"], coef(fit), ignore_attr = TRUE)
  curves <- posterior_curve(fit$posterior, 1L)
  expect_gt(max(curves$x[curves$density > 0.05]), 3)
  expect_lt(min(curves$x[curves$density > 0.05]), -3)
  expect_output(print(summary(fit)), "Verdict: good after importance correction")
  k <- pareto_k(fit)
  expect_lt(k$k, k$limit)
  expect_match(k$adapted, "adapted to the target")
  file <- tempfile(fileext = ".rds")
  saveRDS(fit, file)
  expect_identical(as.matrix(readRDS(file), draws = 100), as.matrix(fit, draws = 100))
  # weights of fresh draws of the mixture, not of the gaussian
  expect_gt(pareto_k(fit, seed = 5)$ess, 0.2 * k$draws)
})

test_that("an adapted fit goes on, in pieces and from a checkpoint as in one run", {
  skip_on_cran()
  file <- tempfile(fileext = ".rds")
  whole <- {
    set.seed(1)
    suppressMessages(elvi(far_pair(), budget = 3000))
  }
  set.seed(1)
  part <- suppressMessages(suppressWarnings(elvi(far_pair(), budget = 3000, control = elvi_control(iterations = 5, checkpoint = file))))
  part <- suppressMessages(elvi(part))
  expect_identical(part$verdict, whole$verdict)
  expect_identical(as.matrix(part, draws = 50), as.matrix(whole, draws = 50))
})

test_that("a stack is judged as it is", {
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(two_normals(c(0.5, 0.5), c(-5, 5), c(1, 1)), tol = 0.1, combine = "stack")))
  expect_false(is.null(fit$stack))
  expect_null(fit$verdict$proposal)
})

test_that("tails too heavy for a variance are seen, on the scale of a logarithm's exponential too", {
  set.seed(1)
  drawn <- list(x = rbind(rnorm(1e4), rnorm(1e4, 0, 3)), log_ratios = rnorm(1e4, 0, 0.1))
  expect_lt(k_of_spread(drawn, c(0, 0)), 0.5)
  # a few draws of exp(x) decide where x has an sd of 3; where it has 0.5, (E h)^2 / E h^2 of h = (e^x - E e^x)^2 is about a tenth
  rests_on <- draws_of_variance(list(x = rbind(0.5 * drawn$x[1, ], drawn$x[2, ]), log_ratios = drawn$log_ratios), 1:2)
  expect_gt(rests_on[1], fewest_effective)
  expect_lt(rests_on[2], fewest_effective)
  drawn$x[1, ] <- rt(1e4, 2)
  expect_gt(k_of_spread(drawn, c(0, 0)), 0.7)
})

test_that("rounds end when enough of them are good, or when they get nowhere near", {
  round <- function(ess, k) list(ess = ess, k = k)
  good <- round(0.5, 0.3)
  expect_true(is_settled(list(round(0.1, 1), good, good, good)))
  expect_false(is_settled(list(good, good, good)))   # the first ones have not been everywhere
  expect_false(is_settled(list(good, good, round(0.3, 0.3), round(0.3, 0.3))))
  expect_false(is_settled(list(good, good, round(0.7, 0.8), round(0.7, 0.8))))   # tails that it has not got hold of
  expect_false(gets_nowhere_near(c(0.1, 0.1, 0.1, 0.1, 0.1)))
  expect_true(gets_nowhere_near(c(0.1, 0.15, 0.1, 0.15, 0.1, 0.15)))
  expect_false(gets_nowhere_near(c(0.1, 0.1, 0.1, 0.1, 0.1, 0.15)))
  expect_false(gets_nowhere_near(c(0.1, 0.3, 0.1, 0.1, 0.1, 0.1)))
})

test_that("the best rounds are one proposal, and a round counts in the next as many draws as its weights leave", {
  round <- function(ess, k, at) list(ess = ess, k = k, moments = at,
                                     proposal = list(weights = c(0.9, 0.1), parts = list(list(mu = at), list(mu = -at))))
  together <- best_together(list(round(0.1, 0.3, 1), round(0.5, 0.3, 2), round(0.6, 0.8, 3), round(0.4, 0.3, 4), round(0.3, 0.3, 5)))
  expect_equal(together$moments, 2)
  expect_equal(together$proposal$weights, rep(c(0.3, 0.1 / 3), 3))
  expect_equal(vapply(together$proposal$parts, function(part) part$mu, 0), c(2, -2, 4, -4, 5, -5))
  expect_equal(share_left(log(c(1, 1, 1, 1))), 1)
  expect_equal(share_left(c(0, rep(-Inf, 99))), 0.01)
})

test_that("more draws are taken where few tell the spread of an exponential", {
  blocks <- 0
  draw <- function(i, n) { blocks <<- i; rep(0, n) }
  k_until_stable(draw, too_few = function(log_ratios) length(log_ratios) < 3 * k_block)
  expect_equal(blocks, 3)
})

test_that("where a mixture does not follow the target either, the verdict on the approximation stays", {
  skip_on_cran()
  set.seed(1)
  expect_warning(fit <- elvi(funnel(9, 3), tol = 0.1), class = "elvi_warning_verdict")
  expect_null(fit$verdict$proposal)
  expect_output(print(fit), "Problem:")
})

# a funnel or a banana as one part
bent <- function(scale = matrix(0, 3, 2), curve = matrix(0, 3, 3)) {
  list(mu = c(1, -1, 0), root = rbind(c(2, 0, 0), c(0.5, 1, 0), c(-1, 0.3, 0.7)), curve = curve, scale = scale, range = c(-3, 3))
}

funnel_draws <- function(n, d, sd = 1) {
  v <- rnorm(n, 0, sd)
  rbind(v, matrix(rnorm((d - 1) * n), d - 1) * rep(exp(v / 2), each = d - 1))
}

test_that("the density of a bent part is that of its points", {
  set.seed(1)
  part <- bent(scale = cbind(c(0.2, 0.5, -0.1), c(-1, 0.3, 0)), curve = cbind(c(0, 0.4, 0.5), 0, c(0, 1, -0.5)))
  z <- matrix(rnorm(3 * 200), 3)
  x <- points_of(part, z)
  at <- log_density_of(part, x, function(r) -r^2 / 2)
  # change of variables, the Jacobian by differences
  jacobian <- function(z) {
    columns <- vapply(1:3, function(k) {
      h <- 1e-5 * (1:3 == k)
      drop(points_of(part, matrix(z + h)) - points_of(part, matrix(z - h))) / 2e-5
    }, numeric(3))
    log(abs(det(columns)))
  }
  inner <- which(abs(z[1, ]) < 2.9)   # no corner
  expect_equal(at[inner], (-colSums(z^2) / 2 - apply(z, 2, jacobian))[inner], tolerance = 1e-6)
})

test_that("an ellipse is a part without a bend", {
  part <- list(mu = c(1, 2), root = rbind(c(2, 0), c(1, 0.5)))
  x <- cbind(c(0, 0), c(3, 1))
  V <- tcrossprod(part$root)
  gaussian <- apply(x - part$mu, 2, function(a) -sum(a * solve(V, a)) / 2) - log(det(V)) / 2
  expect_equal(log_density_of(part, x, function(r) -r^2 / 2), gaussian)
})

test_that("one part is a funnel that no ellipse follows, in few dimensions and in many", {
  set.seed(1)
  for (d in c(5, 40)) {
    x <- funnel_draws(2000, d)
    mixture <- mixture_to(x, rep(1 / 2000, 2000), list(mu = numeric(d), root = diag(d)), most = 1L)
    expect_length(mixture$weights, 2)
    fresh <- funnel_draws(4000, d)
    log_p <- -fresh[1, ]^2 / 2 - colSums(fresh[-1, ]^2) * exp(-fresh[1, ]) / 2 - (d - 1) * fresh[1, ] / 2
    log_q <- log_density_of(mixture$parts[[1]], fresh, function(r) -r^2 / 2)
    # Kullback's divergence from the truth to the part: an ellipse is d / 8 nats or more away
    expect_lt(mean(log_p - log_q), 0.1 + d / 100)
    ellipse <- ellipse_under(x, rep(1 / 2000, 2000))
    expect_gt(mean(log_p - log_density_of(ellipse, fresh, function(r) -r^2 / 2)), d / 8)
  }
})

test_that("one part is a banana", {
  set.seed(2)
  x1 <- rnorm(3000)
  x <- rbind(x1, x1^2 + rnorm(3000))
  mixture <- mixture_to(x, rep(1 / 3000, 3000), list(mu = c(0, 1), root = diag(2)), most = 1L)
  part <- mixture$parts[[1]]
  log_p <- -x[1, ]^2 / 2 - (x[2, ] - x[1, ]^2)^2 / 2
  expect_lt(mean(log_p - log_density_of(part, x, function(r) -r^2 / 2)), 0.02)
})

test_that("parts are found again", {
  set.seed(1)
  z <- cbind(matrix(rnorm(2000, -3), 2), matrix(rnorm(1000, 3, 0.5), 2))
  found <- parts_of(z, rep(1 / 1500, 1500), 2L, c(1, 1) / sqrt(2), steps = 30L)
  order <- order(vapply(found$parts, function(part) part$mu[1], 0))
  expect_equal(found$weights[order], c(2, 1) / 3, tolerance = 0.01)
  centre <- vapply(found$parts[order], function(part) rowMeans(points_of(part, matrix(rnorm(20000), 2))), numeric(2))
  expect_equal(centre, cbind(c(-3, -3), c(3, 3)), tolerance = 0.03)
})

test_that("covariances that so few draws cannot tell are round, others are kept", {
  set.seed(1)
  z <- matrix(rnorm(30 * 300), 30)
  told <- shrink_covariance(tcrossprod(z) / 300, 300)
  expect_equal(told, diag(mean(z^2), 30), tolerance = 0.02)
  z[1, ] <- 5 * z[1, ]
  expect_equal(shrink_covariance(tcrossprod(z) / 300, 300)[1, 1], 25, tolerance = 0.2)
  expect_equal(shrink_covariance(diag(c(1, 3)), 3), diag(2, 2))
})

test_that("a direction is turned to the first axis by a reflection", {
  u <- c(1, 2, -2) / 3
  turn <- turned_to(u)
  expect_equal(drop(turn %*% u), c(1, 0, 0))
  expect_equal(crossprod(turn), diag(3))
  expect_identical(turned_to(c(1, 0)), diag(2))
})

test_that("a funnel is bent along its axis, a banana along its chord", {
  set.seed(1)
  wide <- list(mu = numeric(6), root = diag(6))
  w <- rep(1 / 4000, 4000)
  x <- funnel_draws(4000, 6)
  expect_gt(abs(bent_direction(x, w, wide, diag(6))[1]), 0.98)
  x <- matrix(rnorm(6 * 4000), 6)
  x[2, ] <- x[3, ]^2 - 1 + x[2, ]
  expect_gt(abs(bent_direction(x, w, wide, diag(6))[3]), 0.98)
})

test_that("log scales are found by likelihood, and only what is told", {
  set.seed(1)
  t <- rnorm(4000)
  terms <- bend_terms(t, c(-5, 5))
  size <- (exp(0.3 + 0.5 * t) * rnorm(4000))^2
  w <- rep(1 / 4000, 4000)
  expect_equal(log_spread(terms, size, w, 4000), c(0.3, 0.5, 0), tolerance = 0.1)
  expect_identical(log_spread(terms, rnorm(4000)^2, w, 4000)[2:3], c(0, 0))
})

test_that("points are picked as often as they weigh", {
  expect_identical(systematic(c(0.5, 0.25, 0, 0.25), 8), rep(c(1L, 2L, 4L), c(4, 2, 2)))
  expect_identical(row_max(rbind(c(1, 3), c(5, 2))), c(3, 5))
})

test_that("the wide part is wider in fewer dimensions", {
  expect_identical(wide_by(1), 4)
  expect_equal(wide_by(5), 20^0.2)
  expect_identical(wide_by(50), 1.5)
})

test_that("a root is inverted whatever the units of its rows", {
  R <- rbind(c(2, 1, 0.5), c(0.3, 1, 0.2), c(0.1, 0.4, 3))
  for (unit in list(c(1, 1, 1), c(1e-200, 1, 1e200), c(1e150, 1e150, 1e-160))) {
    expect_equal(inverse_of_root(unit * R), solve(R) / rep(unit, each = 3), tolerance = 1e-12)
  }
})
