X4 <- cbind(1, c(-2, -1, 1, 2))
separable <- function(prior = flat()) model_glm(X4, c(0, 0, 1, 1), prior = prior)
overlapping <- function(prior = flat()) model_glm(X4, c(0, 1, 0, 1), prior = prior)
counts <- function(prior = normal(0, 2.5)) model_glm(X4, c(3, 1, 2, 5), poisson(), prior = prior)

exists_for <- function(model, base = base_gaussian()) existence(model, base)$exists

test_that("quadratic growth is enough for every base", {
  for (base in list(base_gaussian(), base_laplace(), base_uniform(), base_student(2.5), base_power(0.5))) {
    expect_true(exists_for(model_quadratic(diag(2)), base))
    expect_true(exists_for(separable(normal(0, 2.5)), base))
    expect_true(exists_for(model_glm(X4, c(1, 2, 0, 3), gaussian(), prior = flat()), base))
  }
})

test_that("flat priors: overlap decides", {
  found <- existence(separable())
  expect_false(found$exists)
  expect_match(found$why, "^The two classes can be separated")
  expect_true(is.na(found$theta_L))
  # one flat coefficient is enough to separate
  expect_false(exists_for(separable(normal(0, c(2.5, Inf)))))
  # quasi-separation: a tie on the boundary
  expect_false(exists_for(model_glm(cbind(1, c(-1, 0, 0, 1)), c(0, 0, 1, 1), prior = flat())))
  for (base in list(base_gaussian(), base_student(2.5))) {
    expect_true(exists_for(overlapping(), base))
    expect_identical(existence(overlapping(), base)$growth, 1)
  }
  expect_true(exists_for(counts(flat())))
  # counts that are zero on one side run off
  expect_false(exists_for(model_glm(cbind(1, c(0, 0, 1, 1)), c(0, 0, 2, 3), poisson(), prior = flat())))
})

test_that("without overlap F has no lower bound", {
  # mu = s^2 v, Sigma stretched by s along v: E f -> 0 while -log|Sigma| -> -Inf
  model <- separable()
  oracle <- exact_oracle(model, law_of(base_gaussian(), 2))
  F <- vapply(c(1, 10, 100, 1000), function(s) oracle("diagonal", c(0, s^2), c(1, s))$objective, 0)
  expect_true(all(diff(F) < -2))
})

test_that("poisson needs tails that exp() can take", {
  expect_true(exists_for(counts()))
  expect_true(exists_for(counts(), base_laplace()))
  expect_true(exists_for(counts(), base_uniform()))
  for (base in list(base_student(5), base_power(0.7))) {
    found <- existence(counts(), base)
    expect_false(found$exists)
    expect_match(found$why, "E f is infinite")
  }
  expect_true(is.na(existence(counts())$theta_L))   # no L, so no Theta_L
})

test_that("a density knows what it was told", {
  density <- function(...) model_density(function(x) sum(abs(x)), function(x) sign(x), dim = 2, ...)
  expect_identical(exists_for(density(convex = TRUE)), NA)
  expect_match(existence(density(convex = TRUE))$why, "growth")
  expect_identical(exists_for(density(growth = 1)), NA)   # E f might be infinite
  expect_true(exists_for(density(growth = 1), base_uniform()))   # not on a ball
  expect_true(exists_for(density(growth = 0.5, smoothness = 3), base_student(3)))
  expect_true(exists_for(density(growth = 2, smoothness = 3, convex = FALSE)))
})

test_that("weak growth is enough without log-concavity: the lower bound of E|mu + S z|^r", {
  set.seed(1)
  for (r in c(0.5, 1, 2)) for (base in list(base_student(3), base_uniform())) {
    z <- base_draws(base, 4000, 3)
    low <- mean(abs(z[1, ])^r)
    for (i in 1:10) {
      mu <- rnorm(3, sd = 3^rnorm(1))
      S <- crossprod(matrix(rnorm(9), 3)) * 10^rnorm(1)
      value <- mean(colSums((mu + S %*% z)^2)^(r / 2))
      expect_gt(value * 1.1, (sum(mu^2)^(r / 2) + norm(S, "2")^r * low) / 4)
    }
  }
})

test_that("every optimum is in Theta_L", {
  skip_on_cran()
  for (base in list(base_gaussian(), base_student(3), base_laplace())) {
    for (model in list(overlapping(), separable(normal(0, 2.5)))) {
      best <- elvi_optimum(model, base)
      expect_gte(min(eigen(best$Sigma)$values), existence(model, base)$theta_L * (1 - 1e-6))
    }
  }
  expect_equal(existence(model_quadratic(diag(c(1, 4))))$theta_L, 0.5)
})

test_that("existence prints and refuses", {
  expect_snapshot({
    existence(separable())
    existence(separable(normal(0, 2.5)), base_student(3))
    existence(overlapping(), base_student(3))
    existence(counts(), base_student(3))
    existence(model_density(function(x) sum(x^4), function(x) 4 * x^3, dim = 1, growth = 4))
  })
  expect_snapshot(writeLines(c(
    refusal(existence(1), "model"),
    refusal(existence(separable(), "gaussian"), "base")
  )))
})
