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

test_that("weights are tempered until enough draws are effective, and picked draws have them", {
  log_ratios <- c(0, -(1:999) / 10)
  w <- tempered_weights(log_ratios, 200)
  expect_equal(1 / sum(w^2), 200, tolerance = 0.01)
  expect_equal(tempered_weights(log_ratios, 2), exp(log_ratios) / sum(exp(log_ratios)))
  expect_equal(tempered_weights(c(0, -Inf, 0, 0), 4), c(1, 0, 1, 1) / 3)
  picked <- systematic(c(0.5, 0.25, 0, 0.25), 8)
  expect_identical(picked, rep(c(1L, 2L, 4L), c(4, 2, 2)))
})

test_that("parts are found again", {
  set.seed(1)
  z <- cbind(matrix(rnorm(2000, -3), 2), matrix(rnorm(1000, 3, 0.5), 2))
  found <- parts_of(z, rep(1 / 1500, 1500), 2L, steps = 30L)
  order <- order(vapply(found$parts, function(part) part$mu[1], 0))
  expect_equal(found$weights[order], c(2, 1) / 3, tolerance = 0.01)
  expect_equal(found$parts[[order[1]]]$mu, c(-3, -3), tolerance = 0.05)
  expect_equal(tcrossprod(found$parts[[order[2]]]$root), diag(0.25, 2), tolerance = 0.15)
})

test_that("a funnel that no gaussian follows is corrected by a mixture, and that is said", {
  skip_on_cran()
  set.seed(1)
  expect_message(fit <- elvi(funnel(6, 1), tol = 0.1), "mixture of [0-9]+ student laws", class = "elvi_message_adapted")
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
  expect_output(print(fit), "Verdict: good as corrected")
  k <- pareto_k(fit)
  expect_lt(k$k, 0.7)
  expect_output(print(k), "alone misses part")
  expect_identical(verdict_on(fit), fit$verdict)
})

test_that("weights that are content but miss the arms of a banana get a second opinion", {
  skip_on_cran()
  banana <- model_density(function(x) x[1]^2 / 2 + (x[2] - 2 * x[1]^2)^2 / 2,
                          function(x) c(x[1] - 4 * x[1] * (x[2] - 2 * x[1]^2), x[2] - 2 * x[1]^2), dim = 2)
  set.seed(2)
  expect_warning(fit <- elvi(banana, tol = 0.1), "`x2`", class = "elvi_warning_verdict")
  alone <- judged_weights(fit, verdict_draws(fit))
  expect_false(weights_object(alone))
})

test_that("where a mixture does not follow the target either, the verdict on the approximation stays", {
  skip_on_cran()
  set.seed(1)
  expect_warning(fit <- elvi(funnel(9, 3), tol = 0.1), class = "elvi_warning_verdict")
  expect_null(fit$verdict$proposal)
  expect_output(print(fit), "NOT GOOD")
})
