test_that("the loss of a gamma response with inverse link is minus its log density, and a parabola below the floor", {
  floor <- 0.02
  for (y in c(0.5, 9)) for (k in c(1.5, 40)) {
    expect_row_loss("gamma_inverse", c(k, floor), y, function(eta) {
      t <- eta / floor
      k * (ifelse(t > 1, log(pmax(t, 1)), -((t / 2 - 2) * t + 1.5)) + log(floor) - y * eta)
    }, c(0.03, 0.2), spreads = c(0, 0.01))
  }
})

clotting <- data.frame(u = c(5, 10, 15, 20, 30, 40, 60, 80, 100), time = c(118, 58, 42, 35, 27, 25, 21, 19, 18))

test_that("Gamma() as R writes it has the inverse link: near glm(), with limits in order, in any unit", {
  fit <- elvi(time ~ log(u), clotting, family = Gamma)
  peer <- glm(time ~ log(u), data = clotting, family = Gamma())
  se <- sqrt(diag(vcov(peer)))
  expect_lt(max(abs(coef(fit) - coef(peer)) / se), 0.3)
  at <- predict(fit, clotting, type = "response", interval = "credible")
  expect_equal(unname(at[, "fit"]), unname(fitted(peer)), tolerance = 0.01)
  expect_true(all(at[, "lwr"] < at[, "fit"] & at[, "fit"] < at[, "upr"]))
  other <- elvi(I(60 * time) ~ log(u), clotting, family = Gamma)
  expect_equal(60 * coef(other), coef(fit), tolerance = 1e-4)
  expect_equal(unname(log_lik(fit, draws = 2)), {
    drawn <- as.matrix(fit, draws = 2)
    eta <- drawn[, 1] + outer(drawn[, 2], log(clotting$u))
    matrix(dgamma(rep(clotting$time, each = 2), drawn[, "shape"], drawn[, "shape"] * eta, log = TRUE), 2)
  })
  expect_error(elvi(time ~ u, clotting, family = Gamma(), dispersion = 0.1), "always estimated", class = "elvi_error_argument")
  expect_error(elvi(u ~ 1, transform(clotting, u = -u), family = Gamma()), "positive", class = "elvi_error_argument")
})

test_that("the evidence of the shape has its slope, with groups", {
  skip_without_parser()
  d <- withr_seed(1, data.frame(x = runif(40), g = factor(rep(1:5, 8)), y = rgamma(40, 2, 1)))
  expect_evidence_slope(elvi_problem(y ~ x + (1 | g), d, family = Gamma()))
})
