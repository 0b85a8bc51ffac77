test_that("chains leave the right gaussian alone and move a wrong one", {
  t <- walk(30)
  model <- model_density(t$value, t$gradient, dim = t$dim)
  curvature <- curvature_of(model)
  layout <- precision_layout(curvature$row, curvature$column, t$dim)
  values <- as.matrix(t$P)[cbind(curvature$row, curvature$column)]
  right <- chain_verdict(model, t$mean, precision_root(layout, values), c(1, 2))
  expect_length(verdict_objections(right, NULL), 0)
  expect_false(right$correct)
  expect_lt(right$shift, 0.15)
  wrong <- chain_verdict(model, t$mean + 1.5 * t$sd, precision_root(layout, values), c(1, 2))
  expect_true(wrong$correct)
  expect_match(verdict_objections(wrong, NULL), "move the mean", all = FALSE)
  # and they end where they should
  expect_lt(max(abs(wrong$moments$mean - t$mean) / t$sd), 0.2)
  wide <- chain_verdict(model, t$mean, precision_root(layout, values / 2), c(1, 2))
  expect_true(wide$correct)
  expect_equal(unname(sqrt(wide$moments$variance)), t$sd, tolerance = 0.15)
})

test_that("a place elsewhere that is higher is said to be higher", {
  v <- structure(list(accept = 0.8, shift = 0, ratio = 1, correct = FALSE, drift = 0, noise = 0,
                      elsewhere = list(number = 2L, distance = 12, behind = 0.5)), class = "elvi_chain_verdict")
  expect_match(verdict_objections(v, NULL), "12 standard deviations away and 0.5 nats below: .* The fit is of one\\.")
  v$elsewhere$behind <- -3.89
  expect_match(verdict_objections(v, NULL), "3.9 nats above: .* The fit is of one, which is not the highest found\\.")
})
