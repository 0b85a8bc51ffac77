neals_funnel <- function(n = 6) {
  size2 <- function(x) colSums(x[-1, , drop = FALSE]^2) * exp(-x[1, ])
  model_density(function(x) x[1, ]^2 / 18 + size2(x) / 2 + n * x[1, ] / 2,
                function(x) rbind(x[1, ] / 9 - size2(x) / 2 + n / 2, x[-1, , drop = FALSE] * rep(exp(-x[1, ]), each = n)),
                dim = n + 1, names = c("v", paste0("x", 1:n)), vectorized = TRUE)
}

test_that("a gaussian target is good, and print() says k-hat", {
  model <- model_density(function(x) sum((x - 1)^2), function(x) 2 * (x - 1), dim = 3)
  set.seed(1)
  fit <- expect_no_warning(elvi(model, tol = 0.05))
  expect_length(objections(fit), 0)
  expect_output(print(fit), "Pareto k-hat")
  expect_output(print(fit), "Verdict: good")
})

test_that("a funnel is not good, in words, and the verdict is the same whenever it is asked for", {
  skip_on_cran()
  set.seed(1)
  expect_warning(fit <- elvi(neals_funnel(), tol = 0.1), class = "elvi_warning_verdict")
  expect_output(print(fit), "Problem:")
  expect_gt(length(objections(fit)), 0)
  expect_identical(verdict_on(fit), fit$verdict)
})

test_that("weights move moments by what they should", {
  set.seed(1)
  x <- matrix(rnorm(2e5), 1)
  # N(0, 1) weighted to N(0.5, 0.8)
  moved <- weighted_moments(x, drop(dnorm(x, 0.5, 0.8, log = TRUE) - dnorm(x, log = TRUE)))
  expect_equal(moved$shift, 0.5 / 0.8, tolerance = 0.02)
  expect_equal(moved$ratio, 1 / 0.8, tolerance = 0.02)
})

test_that("another start as high elsewhere is an objection", {
  fit <- list(plan = list(search = list(mu = 0, A = matrix(1), objective = 10, se = 0.1,
                                        rivals = list(list(mu = 8, A = matrix(1), F = 10.5, se = 0.1)))))
  there <- ends_elsewhere(fit)
  expect_equal(there$distance, 8)
  expect_equal(there$behind, 0.5)
  expect_equal(spread_of_starts(fit), sqrt(1 + 32))   # var(0, 8) = 32
  fit$plan$search$rivals[[1]]$F <- 20
  expect_null(ends_elsewhere(fit))
  expect_equal(spread_of_starts(fit), 1)
})

test_that("draws of a searched fit are corrected by its weights, the same in every call and after saving", {
  skip_on_cran()
  # a skewed target: log of a gamma variable of shape 2
  skewed <- model_density(function(x) sum(exp(x) - 2 * x), function(x) exp(x) - 2, dim = 2)
  set.seed(1)
  fit <- elvi(skewed, tol = 0.01)
  x <- as.matrix(fit, draws = 8000)
  expect_identical(as.matrix(fit, draws = 20), x[1:20, ])
  file <- tempfile(fileext = ".rds")
  saveRDS(fit, file)
  expect_identical(as.matrix(readRDS(file), draws = 20), x[1:20, ])
  truth <- c(digamma(2), sqrt(trigamma(2)))
  for (j in 1:2) {
    expect_lt(abs(mean(x[, j]) - truth[1]), 0.05)
    expect_lt(abs(sd(x[, j]) / truth[2] - 1), 0.05)
    expect_lt(mean((x[, j] - truth[1])^3) / truth[2]^3, -0.5)   # its skewness is -0.78
  }
  plain <- as.matrix(fit, draws = 8000, resample = FALSE)
  expect_lt(abs(mean((plain[, 1] - mean(plain[, 1]))^3) / sd(plain[, 1])^3), 0.15)
  expect_output(print(fit), "corrected by importance weights")
})

test_that("a logarithm that the data do not hold is named", {
  set.seed(1)
  fit <- suppressWarnings(elvi(model_density(function(x) x[1]^2 / 8 + x[2]^2 / 2, function(x) x / c(4, 1), dim = 2,
                                             names = c("log_tau", "mu")), tol = 0.05))
  expect_equal(fit$verdict$loose, "log_tau")
  expect_output(print(fit), "`log_tau` may be near 0")
})

test_that("a logarithm of another name is known if the user says so, and one that is none is left alone", {
  target <- function(...) model_density(function(x) x[1]^2 / 8 + x[2]^2 / 2, function(x) x / c(4, 1), dim = 2, ...)
  loose <- function(...) {
    set.seed(1)
    suppressWarnings(elvi(target(...), tol = 0.05))$verdict$loose
  }
  expect_equal(loose(names = c("size", "mu"), logarithms = "size"), "size")
  expect_length(loose(names = c("log_tau", "mu"), logarithms = character()), 0)
})

test_that("a banana, of which a gaussian sees half, is not assured as the gaussian sees it", {
  skip_on_cran()
  beside <- function(x) x[2, ] - 2 * x[1, ]^2
  banana <- model_density(function(x) x[1, ]^2 / 2 + beside(x)^2 / 2,
                          function(x) rbind(x[1, ] - 4 * x[1, ] * beside(x), beside(x)), dim = 2, vectorized = TRUE)
  for (seed in every(1:2, 2)) {
    set.seed(seed)
    fit <- suppressMessages(suppressWarnings(elvi(banana, tol = 0.1)))
    alone <- fit$verdict$alone %||% fit$verdict
    expect_true(alone$k >= 0.7 || alone$ratio > most_ratio)
    # what is assured is right, and not the gaussian's: the sd of x2 is 3, of which the gaussian's draws have half
    if (!length(objections(fit))) expect_equal(unname(sqrt(diag(vcov(fit)))), c(1, 3), tolerance = 0.15)
    else expect_null(fit$verdict$proposal)
  }
})

test_that("no mass is not the same as no number", {
  half <- function(beyond) model_density(function(x) if (x > 0) x^2 / 2 else beyond, function(x) if (x > 0) x else NaN, dim = 1)
  judged <- function(model) {
    set.seed(1)
    suppressMessages(suppressWarnings(elvi(model, start = list(mu = 1.5, Sigma = 0.5), budget = 500)))$verdict
  }
  expect_equal(judged(half(Inf))$outside, 0)
  expect_gt(judged(half(NaN))$outside, 0)
})

test_that("draws are enough where weights are nearly equal, or leave many at a k-hat below its limit and move nothing", {
  set.seed(1)
  x <- rbind(rnorm(1e4))
  equal <- rnorm(1e4, 0, 0.1)
  uneven <- rnorm(1e4, 0, 1.1)
  few <- rnorm(1e4, 0, 3)
  expect_true(are_enough(x, equal, -5))
  expect_true(are_enough(x, uneven, 1))
  expect_false(are_enough(x, uneven, 0))
  expect_false(are_enough(x, few, 5))
  expect_false(are_enough(x, drop(0.6 * x) + rnorm(1e4, 0, 0.9), 1))   # a mean
  expect_false(are_enough(x, drop(0.3 * x^2), 1))   # a spread
})

# groups with their own means, about a common one: no mode as log_tau falls
centred_groups <- function(G, n = 5) {
  y <- withr_seed(1, rnorm(G, rnorm(G, 1, 0.7), 1 / sqrt(n)))
  model_density(function(x) {
    r <- x[-(1:2), , drop = FALSE] - rep(x[1, ], each = G)
    colSums((x[-(1:2), , drop = FALSE] - y)^2) * n / 2 + colSums(r^2) / 2 * exp(-2 * x[2, ]) + (G - 1) * x[2, ] + x[1, ]^2 / 50 +
      exp(2 * x[2, ]) / 2
  }, function(x) {
    r <- x[-(1:2), , drop = FALSE] - rep(x[1, ], each = G)
    e <- exp(-2 * x[2, ])
    rbind(-colSums(r) * e + x[1, ] / 25, -colSums(r^2) * e + G - 1 + exp(2 * x[2, ]),
          (x[-(1:2), , drop = FALSE] - y) * n + r * rep(e, each = G))
  }, dim = G + 2, vectorized = TRUE)
}

test_that("a density without a search is checked by its weights, and has not converged where they do not confirm it", {
  skip_on_cran()
  for (groups in c(40, if (long_tests()) 400)) {
    said <- character()
    set.seed(1)
    fitted <- function() suppressMessages(withCallingHandlers(elvi(centred_groups(groups), tol = 1, method = "mpsgd"), warning = function(w) {
      said <<- c(said, class(w)[1])
      invokeRestart("muffleWarning")
    }))
    # 400 groups are too many for a search, 40 are where the limit is lower
    fit <- if (groups < widest_search) with_swapped("widest_search", 30, fitted()) else fitted()
    expect_null(fit$search)
    expect_false(fit$converged)
    expect_true(all(c("elvi_warning_verdict", "elvi_warning_not_converged") %in% said))
    expect_false(any(grepl("^Converged", capture.output(print(fit)))))
  }
})

test_that("a gaussian in many dimensions is confirmed by its weights, and shown as it is", {
  sd <- seq(0.5, 2, length.out = 12)
  model <- model_density(function(x) colSums((x - 1)^2 / sd^2) / 2, function(x) (x - 1) / sd^2, dim = 12, vectorized = TRUE)
  set.seed(1)
  fit <- with_swapped("widest_search", 10, expect_no_warning(elvi(model, tol = 0.1, method = "mpsgd")))
  expect_null(fit$search)
  expect_true(fit$converged)
  expect_null(fit$verdict$covariance)
  expect_identical(coef(fit), fit$mu)
  expect_output(print(fit), "Checked by importance weights only")
  expect_output(print(fit), "Converged")
  expect_equal(fit$verdict$ess, fit$verdict$draws, tolerance = 0.1)
  # without a verdict, as after an interrupt, it is not said
  fit$result["verdict"] <- list(NULL)
  expect_output(print(fit), "NOT CHECKED")
  expect_equal(vapply(c(10, 500, 2000, 1e5), draws_to_check, 0), c(10000, 8000, 2000, 500))
})

test_that("moments without a covariance are those with one", {
  set.seed(1)
  x <- matrix(rnorm(3000), 3)
  log_ratios <- rnorm(1000)
  alike <- c("mean", "shift", "ratio", "ess")
  expect_equal(weighted_moments(x, log_ratios, covariance = FALSE)[alike], weighted_moments(x, log_ratios)[alike])
  expect_equal(weighted_moments(x, rep(-Inf, 1000))$ess, 0)
})

test_that("thin weights of a mild funnel assure nothing that is wrong", {
  skip_on_cran()
  mild <- model_density(function(x) x[1, ]^2 / 2 + colSums(x[-1, , drop = FALSE]^2) * exp(-x[1, ]) / 2 + 9 * x[1, ] / 2,
                        function(x) rbind(x[1, ] - colSums(x[-1, , drop = FALSE]^2) * exp(-x[1, ]) / 2 + 9 / 2,
                                          x[-1, , drop = FALSE] * rep(exp(-x[1, ]), each = 9)), dim = 10, vectorized = TRUE)
  set.seed(2)
  fit <- suppressMessages(suppressWarnings(elvi(mild, tol = 0.1)))
  sd <- sqrt(diag(vcov(fit)))
  truth <- c(1, rep(exp(1 / 4), 9))
  wrong <- max(sd / truth, truth / sd) > most_ratio
  expect_true(!wrong || length(objections(fit)) > 0)
  thin <- list(k = 0.6, k_se = 0.05, limit = 0.7, excused = FALSE, ess = 600, draws = 10000, shift = 0.1, shifted = "x1", ratio = 1.2,
               rescaled = "x1", outside = 0, thin = TRUE)
  expect_match(objections(list(result = list(verdict = thin))), "less than a fifth")
})

test_that("short chains confirm what thin weights say of many independent margins", {
  t <- log_gamma(30)
  set.seed(1)
  expect_silent(fit <- elvi(model_density(t$value, t$gradient, dim = 30), tol = 0.1))
  expect_true(fit$verdict$confirmed)
  expect_output(print(fit), "agree with them")
  expect_lt(max(abs(coef(fit) - t$mean) / t$sd), 0.3)
})

test_that("an edge of the support is named with its place", {
  model <- model_density(function(x) if (x[1] < -1) Inf else sum(x^2) / 2, function(x) x, dim = 2, names = c("a", "b"))
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(model, tol = 0.1)))
  expect_match(fit$verdict$edges, "`a` below -1", fixed = TRUE)
  expect_match(paste(capture.output(print(fit)), collapse = " "), "has an edge")
  # from a point at the edge there is room on one side of each parameter
  target <- guarded_target(model_density(function(x) if (any(x < 0)) Inf else sum(x), function(x) rep(1, 3), dim = 3))
  expect_identical(inward_point(target, numeric(3)), rep(1, 3))
  expect_null(inward_point(target, rep(1, 3)))
})

test_that("a run without `tol` is not said to have missed one", {
  set.seed(1)
  fit <- elvi(model_density(function(x) sum(x^2) / 2, function(x) x, dim = 2))
  expect_output(print(fit), "`tol` was\\s+asked for")
})

test_that("edges are not looked for in thousands of parameters", {
  asked <- 0
  model <- model_density(function(x) {
    asked <<- asked + ncol(x)
    colSums(x^2) / 2
  }, function(x) x, dim = 2500)
  fit <- suppressWarnings(elvi(model, method = "mpsgd", budget = 50, control = elvi_control(scale = "diagonal")))
  asked <- 0
  expect_null(edges_of(fit))
  expect_identical(asked, 0)
})

test_that("a second opinion by weights of a single draw does not end a fit", {
  nothing <- list(mean = c(a = 1, b = 2), covariance = matrix(0, 2, 2))
  v <- c(nothing, list(shift = Inf, shifted = "a", ratio = Inf, rescaled = "a"))
  expect_identical(second_opinion(v, nothing), v)
  skip_on_cran()
  model <- model_density(function(x) colSums(x^4) / 4, function(x) x^3, dim = 7)   # no curvature at the mode
  fit <- suppressWarnings(elvi(model, method = "laplace"))
  expect_gt(length(objections(fit)), 0)
  expect_false(fit$converged)
})
