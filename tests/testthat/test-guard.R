# f throws for x1 > 1 and is not finite for x2 > 1
picky <- function() {
  outside <- function(x) if (x[1] > 1) stop("x1 is too large") else x[2] > 1
  model_density(function(x) if (outside(x)) NaN else sum(x^2) / 2, function(x) if (outside(x)) x * Inf else x, dim = 2,
                vectorized = FALSE)
}

test_that("a point that fails is marked, its neighbours are evaluated", {
  target <- guarded_target(picky())
  x <- cbind(c(0, 0), c(2, 0), c(0.5, -1), c(0, 3), c(3, 3))
  at <- target$evaluate(x)
  expect_equal(at$ok, c(TRUE, FALSE, TRUE, FALSE, FALSE))
  expect_equal(at$value[at$ok], c(0, 0.625))
  expect_equal(at$gradient[, at$ok], x[, at$ok])
  expect_equal(target$account$evaluations, 5)
  expect_equal(target$account$outside, 3)
  expect_match(target$account$first_error, "x1 is too large")
})

test_that("an answer of the wrong shape is no failure of a point", {
  model <- picky()
  model$value <- function(x) bad_argument("value", "a number", "two")
  expect_error(guarded_target(model)$evaluate(matrix(0, 2, 3)), class = "elvi_error_argument")
})

test_that("outside the domain stands the gaussian of the frame, ten nats up", {
  model <- picky()
  found <- list(mu = c(0.1, -0.2), A = rbind(c(2, 0), c(1, 0.5)), objective = 3)
  frame <- found_frame(model, "symmetric", found)
  account <- new_account()
  safe <- standing_in(model, frame, account)
  x <- cbind(c(0, 0), c(2, 0))
  w <- solve(found$A, x[, 2] - found$mu)
  level <- 3 + log(det(found$A)) - 1
  expect_equal(safe$value(x), c(0, level + 10 + sum(w^2) / 2))
  expect_equal(matrix(safe$gradient(x), 2), cbind(c(0, 0), solve(t(found$A), w)))
  expect_equal(account$outside, 2)
})
