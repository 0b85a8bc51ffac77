# The minimiser of f and the Hessian there.

set.seed(11)
n <- 60
X <- cbind(`(Intercept)` = 1, a = rnorm(n), b = rnorm(n, 2))
eta <- drop(X %*% c(-0.4, 0.8, 0.3))
w <- rexp(n)
off <- rnorm(n) / 3
responses <- list(logit = rbinom(n, 1, plogis(eta)), probit = rbinom(n, 1, pnorm(eta)),
                  poisson = rpois(n, exp(eta)), normal = rnorm(n, eta))
families <- list(logit = binomial(), probit = binomial("probit"), poisson = poisson(), normal = gaussian())

test_that("with a flat prior the mode is glm()'s estimate and the Hessian its observed information", {
  for (name in names(families)) {
    y <- responses[[name]]
    # glm() warns of weights that are not whole
    fit <- suppressWarnings(glm(y ~ X - 1, family = families[[name]], weights = w, offset = off,
                                control = glm.control(epsilon = 1e-14, maxit = 100)))
    mode <- find_mode(model_glm(X, y, families[[name]], flat(), weights = w, offset = off))
    expect_equal(mode$x, unname(coef(fit)), tolerance = 1e-5, info = name)   # Newton stops at 1e-10 nats
    # for a canonical link the observed information is the expected one
    if (name != "probit") {
      expect_equal(mode$hessian, unname(crossprod(X, fit$weights * X)), tolerance = 1e-5, info = name)
    }
  }
})

test_that("two-column responses", {
  trials <- 1 + rpois(n, 3)
  wins <- rbinom(n, trials, plogis(eta))
  fit <- glm(cbind(wins, trials - wins) ~ X - 1, family = binomial(), control = glm.control(epsilon = 1e-14))
  expect_equal(find_mode(model_glm(X, cbind(wins, trials - wins), prior = flat()))$x, unname(coef(fit)), tolerance = 1e-5)
})

test_that("with a normal prior the gradient vanishes at the mode", {
  for (name in names(families)) {
    for (scale in c(0.01, 1, 100)) {
      model <- model_glm(X, responses[[name]], families[[name]], normal(c(3, -2, 0.1), scale), weights = w, offset = off)
      mode <- find_mode(model)
      f <- function(x) glm_target(x, X, responses[[name]], name, weights = w, offset = off,
                                  location = c(3, -2, 0.1), scale = scale)
      g <- target_at(model, matrix(mode$x))$gradient[, 1]
      # in the metric of the Hessian: how far from the minimum, in nats, doubled
      expect_lt(sum(g * solve(mode$hessian, g)), 1e-9, label = paste(name, scale))
      expect_lte(f(mode$x), f(mode$x + 0.01) + 1e-12)
      expect_equal(mode$hessian, fd_hessian(function(x) target_at(model, matrix(x))$gradient[, 1], mode$x, 1e-4),
                   tolerance = 1e-6, info = paste(name, scale))
    }
  }
})

test_that("a bad start is no obstacle: huge columns, huge offsets", {
  steep <- model_glm(cbind(1, 1e3 * X[, 2]), responses$logit, prior = flat())
  plain <- model_glm(cbind(1, X[, 2]), responses$logit, prior = flat())
  expect_equal(find_mode(steep)$x * c(1, 1e3), find_mode(plain)$x, tolerance = 1e-6)
  moved <- model_glm(X, responses$poisson, poisson(), flat(), offset = rep(30, n))
  expect_equal(find_mode(moved)$x, find_mode(model_glm(X, responses$poisson, poisson(), flat()))$x - c(30, 0, 0),
               tolerance = 1e-6)
})

test_that("a quadratic knows its mode", {
  mode <- find_mode(model_quadratic(diag(c(1, 4)), c(2, -1)))
  expect_identical(mode[c("x", "hessian")], list(x = c(2, -1), hessian = diag(c(1, 4))))
})

# ---- no mode ---------------------------------------------------------------------------

# Every way to ask for a fit of this model is refused.
expect_no_optimum <- function(model, about, info = NULL) {
  ways <- list(
    whitened = function() elvi(model, budget = 100),
    raw = function() elvi(model, schedule = schedule_decay(100, step = 0.01), control = elvi_control(coordinates = "raw", smoothness = 10)),
    diagonal = function() elvi(model, budget = 100, control = elvi_control(scale = "diagonal")),
    optimum = function() elvi_optimum(model),
    laplace = function() elvi_optimum(model, base_laplace(), "diagonal")
  )
  for (way in names(ways)) {
    e <- expect_error(ways[[way]](), class = "elvi_error_no_optimum", info = paste(info, way))
    expect_s3_class(e, "elvi_error_argument")
    expect_identical(e$argument, "prior")
    expect_match(conditionMessage(e), about)
    expect_match(conditionMessage(e), "normal(0, 2.5)", fixed = TRUE)
  }
}

test_that("complete separation is refused under a flat prior", {
  skip_on_cran()
  x <- c(-2, -1, 1, 2)
  for (link in c("logit", "probit")) {
    expect_no_optimum(model_glm(cbind(1, x), c(0, 0, 1, 1), binomial(link), flat()), "two classes", link)
  }
  expect_no_optimum(model_glm(cbind(1, 1e4 * x), c(0, 0, 1, 1), prior = flat()), "two classes", "large")
  expect_no_optimum(model_glm(cbind(1, 1e-4 * x), c(0, 0, 1, 1), prior = flat()), "two classes", "small")
  # in a direction of several columns
  inside <- drop(X %*% c(0.3, 1, -1)) > 0
  expect_no_optimum(model_glm(X, inside, prior = flat()), "two classes", "oblique")
  # counts of trials: no group has both outcomes
  expect_no_optimum(model_glm(cbind(1, x), cbind(c(0, 0, 2, 3), c(3, 2, 0, 0)), prior = flat()), "two classes", "counts")
})

test_that("quasi-complete separation is refused: ties on the border", {
  skip_on_cran()
  x <- c(-1, 0, 0, 1)
  for (link in c("logit", "probit")) {
    expect_no_optimum(model_glm(cbind(1, x), c(0, 0, 1, 1), binomial(link), flat()), "two classes", link)
  }
  # one level of a factor has successes only
  g <- rep(0:1, each = 10)
  y <- c(rep(0:1, 5), rep(1, 10))
  expect_no_optimum(model_glm(cbind(1, g), y, prior = flat()), "two classes", "group")
  expect_no_optimum(model_glm(cbind(1, g), cbind(y, 1 - y) * 3, prior = flat()), "two classes", "group counts")
})

test_that("a row of weight 0 does not join the classes", {
  x <- c(-2, -1, 1, 2, 1.5)
  y <- c(0, 0, 1, 1, 0)
  expect_no_optimum(model_glm(cbind(1, x), y, prior = flat(), weights = c(1, 1, 1, 1, 0)), "two classes")
  expect_no_condition(find_mode(model_glm(cbind(1, x), y, prior = flat(), weights = c(1, 1, 1, 1, 0.1))))
})

test_that("a group of counts that are all 0 is refused", {
  g <- rep(0:1, each = 10)
  counts <- c(2, 0, 3, 1, 1, 4, 0, 2, 1, 5, rep(0, 10))
  expect_no_optimum(model_glm(cbind(1, g), counts, poisson(), flat()), "counts")
  expect_no_optimum(model_glm(cbind(1, g, sin(1:20)), counts, poisson(), flat()), "counts", "covariate")
  expect_no_optimum(suppressWarnings(model_glm(matrix(1, 5, 1), numeric(5), poisson(), flat())), "counts", "all")
  # a proper prior on that group's coefficient is enough
  expect_true(all(is.finite(elvi_optimum(model_glm(cbind(1, g), counts, poisson(), normal(0, c(Inf, 1))))$mu)))
})

test_that("it is the separating coefficient whose prior matters", {
  x <- c(-2, -1, 1, 2)
  y <- c(0, 0, 1, 1)
  expect_no_optimum(model_glm(cbind(1, x), y, prior = normal(0, c(1, Inf))), "two classes")
  expect_lt(elvi_optimum(model_glm(cbind(1, x), y, prior = normal(0, c(Inf, 1))))$certificate, 1e-9)
})

test_that("the verdict is right on all small data sets with one covariate", {
  skip_on_cran()
  separable <- function(x, y) {
    length(unique(y)) == 1 || max(x[y == 0]) <= min(x[y == 1]) || max(x[y == 1]) <= min(x[y == 0])
  }
  x <- c(1, 1, 2, 3, 3, 4)
  outcomes <- as.matrix(expand.grid(rep(list(0:1), 6)))
  truth <- apply(outcomes, 1, function(y) separable(x, y))
  expect_true(any(truth) && !all(truth))
  for (link in c("logit", "probit")) {
    found <- apply(outcomes, 1, function(y) {
      model <- suppressWarnings(model_glm(cbind(1, x), y, binomial(link), flat()))
      tryCatch({
        find_mode(model)
        FALSE
      }, elvi_error_no_optimum = function(e) TRUE)
    })
    expect_identical(found, truth, info = link)
  }
})

test_that("a direction is one of recession when no observation loses by it", {
  refused <- function(X, y, direction, ...) {
    model <- suppressMessages(suppressWarnings(model_glm(X, y, ...)))
    tryCatch({
      refuse_if_recession(model, direction)
      FALSE
    }, elvi_error_no_optimum = function(e) TRUE)
  }
  X <- cbind(1, c(-1, 0, 1))
  up <- c(0, 1)
  for (link in c("logit", "probit")) {
    ask <- function(y, direction, prior = flat()) refused(X, y, direction, family = binomial(link), prior = prior)
    expect_true(ask(c(0, 0, 1), up))
    expect_true(ask(c(0, 1, 1), up))             # the middle does not move
    expect_false(ask(c(0, 0, 1), -up))           # loses at both ends
    expect_false(ask(c(1, 0, 1), up))            # loses at the first alone
    expect_false(ask(c(0, 0, 0), up))            # loses at the last alone
    expect_false(ask(c(0, 0, 1), up, normal(0, 1)))
    expect_false(ask(c(0, 0, 1), up, normal(0, c(Inf, 1))))
    expect_true(ask(c(0, 0, 1), up, normal(0, c(1, Inf))))
    # a group with both outcomes must not move at all
    expect_false(ask(cbind(c(0, 1, 2), c(2, 1, 0)), c(0.1, 1)))
    expect_true(ask(cbind(c(0, 1, 2), c(2, 1, 0)), up))
  }
  group <- cbind(1, c(0, 0, 1))
  counts <- function(y, direction) refused(group, y, direction, family = poisson(), prior = flat())
  expect_true(counts(c(2, 1, 0), c(0, -1)))
  expect_false(counts(c(2, 1, 0), c(0, 1)))     # exp() rises
  expect_false(counts(c(2, 1, 0), c(-1, -1)))   # the others have counts and fall
  expect_false(counts(c(2, 1, 1), c(0, -1)))
})

test_that("nearly separated data have a mode, and it is found", {
  x <- c(-20:-1, 1:20, 0.5, -0.5)
  y <- rep(c(0, 1, 0, 1), c(20, 20, 1, 1))
  # by symmetry no intercept; the slope from one equation
  slope <- uniroot(function(b) sum(x * (y - plogis(b * x))), c(0.1, 10), tol = 1e-12)$root
  expect_equal(find_mode(model_glm(cbind(1, x), y, prior = flat()))$x, c(0, slope), tolerance = 1e-6)
})

# ---- densities ------------------------------------------------------------------------------

test_that("the mode of a density, and its Hessian by differences", {
  A <- matrix(c(2, 0.5, 0.5, 1), 2)
  m <- c(1, -3)
  model <- model_density(function(x) sum((x - m) * (A %*% (x - m))) / 2 + log(cosh(x[1])),
                         function(x) drop(A %*% (x - m)) + c(tanh(x[1]), 0), dim = 2)
  mode <- find_mode(model)
  expect_lt(max(abs(model$gradient(matrix(mode$x)))), 1e-5)
  expect_equal(mode$hessian, A + diag(c(1 - tanh(mode$x[1])^2, 0)), tolerance = 1e-6)
  expect_identical(mode$hessian, t(mode$hessian))
})

test_that("a density that is infinite in places still has its mode found", {
  # gamma(3, 2), moved to x > -1
  model <- model_density(function(x) if (x > -1) -2 * log(x + 1) + 2 * x else Inf,
                         function(x) if (x > -1) -2 / (x + 1) + 2 else -1e3, dim = 1)
  mode <- find_mode(model)
  expect_equal(mode$x, 0, tolerance = 1e-5)
  expect_equal(drop(mode$hessian), 2, tolerance = 1e-5)
})

test_that("a gradient that is not finite at the end of the search is an error", {
  model <- model_density(function(x) sum(x^2), function(x) if (max(abs(x)) < 1e-3) c(NaN, NaN) else 2 * x, dim = 2)
  expect_error(find_mode(model), class = "elvi_error")
})

test_that("an indefinite Hessian is told, and a fit comes out all the same", {
  skip_on_cran()
  # two wells in x_1: the search starts on the ridge between them and stays
  model <- model_density(function(x) (x[1]^2 - 4)^2 / 8 + x[2]^2, function(x) c(x[1] * (x[1]^2 - 4) / 2, 2 * x[2]),
                         dim = 2, smoothness = 20)
  expect_message(work <- whitened_model(model, "whitened", "symmetric"), class = "elvi_message_indefinite")
  # |-2| and 2: absolute eigenvalues
  expect_equal(solve(tcrossprod(work$A)), diag(c(2, 2)), tolerance = 1e-6)
  for (kind in c("symmetric", "diagonal")) {
    set.seed(1)
    # which searches its start: both wells are as good, and it says so
    fit <- suppressWarnings(elvi(model, budget = 4000, control = elvi_control(scale = kind)), classes = "elvi_warning_verdict")
    expect_identical(fit$status, "finished")
    expect_true(all(is.finite(fit$mu)) && all(is.finite(fit$Sigma)))
    # never worse than its start, on draws of our own: common to both
    z <- matrix(rnorm(2e4), 2)
    F <- function(mu, S) mean(apply(mu + S %*% z, 2, function(x) (x[1]^2 - 4)^2 / 8 + x[2]^2)) - log(det(S))
    expect_lt(F(fit$mu, fit$Sigma), F(c(0, 0), diag(2) / sqrt(2)))
  }
})

test_that("a flat direction is told too", {
  model <- model_density(function(x) x[1]^2, function(x) c(2 * x[1], 0), dim = 2, smoothness = 2)
  expect_message(work <- whitened_model(model, "whitened", "symmetric"), class = "elvi_message_indefinite")
  expect_true(all(is.finite(work$A)))
})

test_that("responses of any size have the mode of a rescaled problem", {
  X <- cbind(1, seq(-1, 1, length.out = 20))
  y <- sin(1:20)
  for (size in 10^c(6, 12, 15, 50, 140)) {
    # ridge regression in closed form: the prior's precision is that of normal(0, 2.5)
    truth <- solve(crossprod(X) + diag(2) / 2.5^2, crossprod(X, size * y))
    mode <- find_mode(model_glm(X, size * y, gaussian()))$x
    expect_equal(mode / size, drop(truth) / size, tolerance = 1e-10, info = size)
  }
  for (size in 10^c(6, 12, 15, 100)) {
    # with an intercept alone and a flat prior, exp(mode) is the mean
    counts <- floor(size * (1:20))
    mode <- find_mode(model_glm(X[, 1, drop = FALSE], counts, poisson(), flat()))$x
    expect_equal(mode, log(mean(counts)), tolerance = 1e-12, info = size)
  }
})

test_that("numbers that overflow are an error of elvi, with advice", {
  X <- cbind(1, seq(-1, 1, length.out = 20))
  steep <- model_glm(X, rep(0:1, 10), poisson(), offset = 1e6 * X[, 2])
  e <- expect_error(find_mode(steep), class = "elvi_error_nonfinite")
  expect_match(conditionMessage(e), "rescale", fixed = TRUE)
  expect_identical(e$x, c(0, 0))
})

# ---- only the diagonal -------------------------------------------------------------

test_that("the diagonal of the Hessian is that of the whole one, for every kind of model", {
  set.seed(8)
  X <- cbind(1, matrix(rnorm(80), 40))
  y <- rpois(40, 2)
  models <- list(
    model_quadratic(crossprod(X) + diag(3)), model_glm(X, y > 1), model_glm(X, y > 1, binomial("probit"), student_t(3, 0, 1)),
    model_glm(X, y, poisson(), weights = rep(0:1, 20)), model_glm(X, y, gaussian(), dispersion = NULL, prior_aux = cauchy()),
    model_glm(X, y, robust(4)), model_glm(X, y, neg_binomial_2(), prior_aux = normal(1, 2)),
    model_density(function(x) colSums(cosh(x)), sinh, dim = 3))
  for (model in models) {
    whole <- find_mode(model)
    label <- paste(class(model)[1], model$likelihood)
    expect_equal(find_mode(model, diagonal = TRUE)$hessian, diag(whole$hessian), label = label)
    at_mode <- fd_hessian(function(x) target_at(model, matrix(x))$gradient[, 1], whole$x, 1e-4)
    expect_equal(hessian_diagonal(model, whole$x), diag(at_mode), tolerance = 1e-6, label = label)
  }
})

test_that("wide models find their mode by gradients alone, and the same one", {
  set.seed(9)
  X <- cbind(1, matrix(rnorm(400), 100))
  y <- rpois(100, exp(X[, 2] / 2))
  models <- list(model_glm(X, y > 1), model_glm(X * rep(c(1, 100, 1, 0.01, 1), each = 100), y, poisson()),
                 model_glm(X, y, neg_binomial_2()), model_glm(X, y, gaussian(), dispersion = NULL))
  for (model in models) {
    mode <- find_mode(model)
    found <- with_swapped("is_wide", function(model) TRUE, find_mode(model, diagonal = TRUE))
    # far closer than a standard deviation
    expect_lt(sum((found$x - mode$x)^2 * diag(mode$hessian)), 1e-5, label = model$likelihood)
    expect_equal(found$hessian, diag(mode$hessian), tolerance = 1e-2)
  }
  d <- 2500   # a user's: neighbours interact, and the probing vectors tell them apart
  target <- model_density(function(x) colSums((1:d) / 100 * x^2) / 2 + colSums(diff(x)^2) / 20,
                          function(x) (1:d) / 100 * x - (rbind(diff(x), 0) - rbind(0, diff(x))) / 10, dim = d)
  expect_equal(find_mode(target, diagonal = TRUE)$hessian, (1:d) / 100 + c(1, rep(2, d - 2), 1) / 10, tolerance = 1e-6)
})

test_that("a Hessian or a step that is not finite is a typed error in the search for a mode with a dispersion", {
  model <- model_glm(cbind(1, c(-1, 0, 1, 2)), c(1.2, 0.7, 2, 3.1), gaussian(), dispersion = NULL)
  own <- difference_hessian
  expect_error(with_swapped("difference_hessian", function(...) own(...) * NaN, dispersed_mode(model)), class = "elvi_error_nonfinite")
  expect_error(with_swapped("newton_step", function(H, g) g * NaN, dispersed_mode(model)), class = "elvi_error_nonfinite")
})
