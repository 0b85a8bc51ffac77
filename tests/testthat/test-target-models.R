evaluate <- function(model, x) target_at(model, as.matrix(x))
value_at <- function(model) function(x) evaluate(model, x)$value
gradient_at <- function(model) function(x) drop(evaluate(model, x)$gradient)

# A design of more rows than three chunks of the C code hold, and points.
rows <- 2 * 2048 + 500
set.seed(1)
X <- cbind(1, matrix(rnorm(rows * 3), rows))
points <- matrix(rnorm(4 * 5, sd = 0.7), 4)
weights <- round(rexp(rows), 2)      # some are 0
offset <- rnorm(rows)
location <- c(1, -1, 0, 2)
scale <- c(3, 0.5, Inf, 10)
eta <- drop(X %*% c(0.3, 0.5, -1, 0.2)) + offset
trials <- 1 + rpois(rows, 2)
successes <- rbinom(rows, trials, plogis(eta))
responses <- list(
  logit = rbinom(rows, 1, plogis(eta)), probit = rbinom(rows, 1, pnorm(eta)),
  cloglog = rbinom(rows, 1, pexp(exp(eta))),
  poisson = rpois(rows, exp(eta / 2)), normal = eta + rnorm(rows)
)
families <- list(logit = binomial(), probit = binomial("probit"), cloglog = binomial("cloglog"),
                 poisson = poisson(), normal = gaussian())

# ---- values and gradients --------------------------------------------------------

test_that("every GLM has the value of its formula and the gradient of its value", {
  skip_on_cran()
  expect_target <- function(model, reference, label) {
    out <- evaluate(model, points)
    expect_equal(out$value, apply(points, 2, reference), tolerance = 1e-12, label = label)
    for (j in seq_len(ncol(points))) {
      expect_equal(out$gradient[, j], fd_gradient(value_at(model), points[, j]), tolerance = 1e-6,
                   label = paste("gradient of", label))
      expect_equal(out$gradient[, j], fd_gradient(reference, points[, j]), tolerance = 1e-6,
                   label = paste("gradient of", label))
    }
  }
  for (likelihood in names(families)) {
    y <- responses[[likelihood]]
    plain <- model_glm(X, y, families[[likelihood]], prior = flat())
    expect_target(plain, function(x) glm_target(x, X, y, likelihood), likelihood)

    dispersion <- if (likelihood == "normal") 2.5 else 1
    full <- model_glm(X, y, families[[likelihood]], prior = normal(location, scale), weights = weights,
                      offset = offset, dispersion = dispersion)
    expect_target(full, function(x) {
      glm_target(x, X, y, likelihood, weights = weights, offset = offset, dispersion = dispersion,
                 location = location, scale = scale)
    }, paste(likelihood, "with weights, offset and prior"))
  }
  for (likelihood in c("logit", "probit", "cloglog")) {
    counts <- model_glm(X, cbind(successes, trials - successes), families[[likelihood]],
                        prior = normal(location, scale), weights = weights, offset = offset)
    expect_target(counts, function(x) {
      glm_target(x, X, successes, likelihood, trials, weights = weights, offset = offset,
                 location = location, scale = scale)
    }, paste(likelihood, "with counts"))
  }
})

test_that("a block of points gives what its columns give one by one", {
  model <- model_glm(X, responses$logit, weights = weights, offset = offset)
  block <- evaluate(model, points)
  single <- apply(points, 2, function(x) evaluate(model, x)$value)
  expect_equal(block$value, single, tolerance = 1e-13)
  expect_equal(block$gradient, apply(points, 2, gradient_at(model)), tolerance = 1e-11)
  expect_identical(dim(block$gradient), dim(points))
})

test_that("each row of a logistic and a poisson regression is right to the last places, far out and beside rows of weight 0", {
  eta <- c(-1e140, -1e4, -708.5, -707, -300, -40, -20, -1.5, -1, -0.4, -1e-9, 0, 1e-9, 0.2, 0.4, 0.5, 1, 3, 20, 36, 40, 300, 708)
  rows <- length(eta)
  reference <- list(
    logit = list(family = binomial(), l = function(t, y) -plogis(-t, log.p = TRUE) - y * t, slope = plogis),
    poisson = list(family = poisson(), l = function(t, y) exp(t) - y * t, slope = exp))
  near <- function(got, want) expect_lte(max(abs(got - want) / pmax(abs(want), 1e-290)), 1e-15)
  for (part in reference) for (y in 0:1) for (i in seq_len(rows)) {
    # the other rows have weight 0, and an overflow where they can
    offset <- if (y) ifelse(seq_len(rows) == i, eta, 1e5) else eta
    model <- suppressWarnings(model_glm(matrix(1, rows), rep(y, rows), part$family, flat(),
                                        weights = as.numeric(seq_len(rows) == i), offset = offset))
    at <- evaluate(model, 0)
    near(at$value, part$l(eta[i], y))
    near(at$gradient, part$slope(eta[i]) - y)
  }
  far <- suppressMessages(model_glm(matrix(1, 3), c(2, 1, 0), poisson(), flat(), offset = c(0, 0, 710)))
  expect_identical(evaluate(far, 0)$gradient[1], Inf)
})

test_that("chunks of rows add up, whatever their number", {
  for (n in c(1, 2047, 2048, 2049, 4096, 4097)) {
    i <- seq_len(n)
    x <- points[, 1]
    model <- suppressMessages(model_glm(X[i, , drop = FALSE], responses$poisson[i], poisson(), normal(0, 2)))
    mu <- exp(drop(X[i, , drop = FALSE] %*% x))
    slope <- drop(crossprod(X[i, , drop = FALSE], mu - responses$poisson[i])) + x / 4
    expect_equal(gradient_at(model)(x), slope, tolerance = 1e-12, label = n)
  }
})

test_that("extreme linear predictors give finite values and gradients", {
  # eta = -800, -800, 800, 800 with y = 0, 1, 0, 1
  X <- matrix(c(-1, -1, 1, 1))
  y <- c(0, 1, 0, 1)
  logit <- evaluate(model_glm(X, y, prior = flat()), 800)
  expect_equal(logit$value, 1600)
  expect_equal(drop(logit$gradient), 2)
  probit <- evaluate(model_glm(X, y, binomial("probit"), flat()), 800)
  expect_equal(probit$value, -2 * pnorm(-800, log.p = TRUE))
  expect_equal(drop(probit$gradient), 2 * (800 + 1 / 800), tolerance = 1e-9)
})

test_that("cloglog is right at both ends", {
  one <- function(y) function(eta) {
    out <- evaluate(suppressWarnings(model_glm(matrix(1), y, binomial("cloglog"), flat())), matrix(eta, 1))
    list(value = out$value, slope = drop(out$gradient))
  }
  eta <- c(-1e4, -800, -40, -36.9, -20, -1e-8, 1e-8, 1, 3)
  hit <- one(1)(eta)
  expect_equal(hit$value, c(1e4, 800, 40, -pexp(exp(eta[-(1:3)]), log.p = TRUE)), tolerance = 1e-13)
  expect_equal(hit$slope, c(-1, -1, -1, -exp(eta[-(1:3)]) / expm1(exp(eta[-(1:3)]))), tolerance = 1e-13)
  expect_equal(one(1)(c(7, 800, 1e4)), list(value = numeric(3), slope = numeric(3)))
  expect_equal(one(0)(c(-800, 0, 3)), list(value = c(0, 1, exp(3)), slope = c(0, 1, exp(3))))
  expect_identical(one(0)(800)$value, Inf)
})

test_that("the probit gradient keeps its digits far out, where its two logarithms cancel", {
  wrong_side <- model_glm(matrix(1), 1, binomial("probit"), flat())
  # phi(t) / Phi(t) from the continued fraction, evaluated from far inside
  inverse_mills <- function(t) {
    tail <- -t
    for (k in 200:1) tail <- -t + k / tail
    tail
  }
  for (t in -c(10, 37, 100, 999, 1001, 1e5, 1e8, 1e12)) {
    expect_equal(drop(evaluate(wrong_side, t)$gradient), -inverse_mills(t), tolerance = 1e-9, label = t)
  }
  expect_equal(drop(evaluate(wrong_side, 800)$gradient), 0)
})

test_that("rows of weight 0 do not count, however extreme they are", {
  X <- matrix(c(1, 2, 1e6))
  for (likelihood in names(families)) {
    y <- c(1, 0, 1)
    weighted <- model_glm(X, y, families[[likelihood]], weights = c(1, 2, 0))
    shorter <- model_glm(X[1:2, , drop = FALSE], y[1:2], families[[likelihood]], weights = c(1, 2))
    expect_equal(evaluate(weighted, -0.9), evaluate(shorter, -0.9), label = likelihood)
    expect_equal(evaluate(weighted, 0.9), evaluate(shorter, 0.9), label = likelihood)
    expect_equal(weighted$smoothness, shorter$smoothness, label = likelihood)
  }
})

test_that("quadratic targets have their value and gradient", {
  A <- crossprod(matrix(c(2, 1, 0, -1, 3, 1, 0.5, 0, 1), 3))
  m <- c(1, -2, 0.5)
  model <- model_quadratic(A, m)
  x <- matrix(c(0, 0, 0, 1, -2, 0.5, 3, 1, 4), 3)
  out <- evaluate(model, x)
  expect_equal(out$gradient, A %*% (x - m))
  expect_equal(out$value, colSums((x - m) * (A %*% (x - m))) / 2)
  expect_identical(out$value[2], 0)
  expect_equal(out$gradient[, 3], fd_gradient(value_at(model), x[, 3]), tolerance = 1e-8)
  expect_equal(model$smoothness, norm(A, "2"))
  # one dimension, a number for A, no m
  expect_equal(evaluate(model_quadratic(3), matrix(c(-2, 1), 1)),
               list(value = c(6, 1.5), gradient = matrix(c(-6, 3), 1)))
  expect_identical(model_quadratic(matrix(2L))$smoothness, 2)
})

# ---- smoothness --------------------------------------------------------------------

test_that("L is the largest eigenvalue of the curvature bound", {
  skip_on_cran()
  expected <- function(X, precision, weight) {
    top <- eigen(crossprod(sqrt(weight) * X) + diag(precision, ncol(X)), symmetric = TRUE)$values[1]
    expect_gt(top, 0)
    top
  }
  set.seed(2)
  for (size in list(c(60, 5), c(10, 40), c(30, 1), c(1, 1), c(1, 3), c(400, 350), c(3000, 4))) {
    n <- size[1]
    d <- size[2]
    X <- matrix(runif(n * d), n)
    y <- rep_len(c(0, 1), n)
    w <- rexp(n)
    scale <- runif(d, 0.1, 3)
    label <- paste(size, collapse = " x ")
    glm <- function(...) suppressMessages(model_glm(X, y, ...))$smoothness
    # alpha + sigma_max^2 / 4 by the singular values themselves
    sigma <- svd(X, 0, 0)$d[1]
    expect_equal(glm(prior = normal(0, sqrt(10))), 0.1 + sigma^2 / 4, tolerance = 1e-9, label = label)
    expect_equal(glm(family = binomial("probit"), prior = normal(0, 2)), 1 / 4 + sigma^2,
                 tolerance = 1e-9, label = label)
    expect_equal(glm(family = gaussian(), dispersion = 3, prior = normal(1, 1)), 1 + sigma^2 / 3,
                 tolerance = 1e-9, label = label)
    expect_equal(glm(prior = normal(0, scale), weights = w), expected(X, 1 / scale^2, w / 4),
                 tolerance = 1e-9, label = label)
    expect_identical(glm(family = poisson()), NA_real_)
    expect_identical(glm(family = binomial("cloglog")), NA_real_)
  }
})

test_that("L counts trials, and a flat prior adds nothing to it", {
  X <- cbind(1, c(-1, 0.5, 2))
  y <- cbind(c(3, 0, 2), c(1, 5, 2))
  expect_equal(model_glm(X, y, prior = flat())$smoothness, norm(crossprod(X * sqrt(c(4, 5, 4))), "2") / 4)
  # orthogonal columns, the start of a Lanczos iteration among the eigenvectors
  expect_equal(model_glm(diag(3), c(0, 1, 1), gaussian(), flat())$smoothness, 1)
  expect_equal(model_glm(diag(c(1, 10, 100)), c(0, 1, 1), gaussian(), normal(0, 1))$smoothness, 10001)
})

test_that("L bounds the curvature everywhere, and no smaller number would", {
  set.seed(3)
  X <- matrix(rnorm(150), 50)
  y <- rep(0:1, 25)
  prior <- normal(0, c(1, 2, 0.5))
  w <- rexp(50)
  top <- function(model, x) eigen(fd_hessian(gradient_at(model), x), symmetric = TRUE)$values[1]
  for (likelihood in c("logit", "probit", "normal")) {
    model <- model_glm(X, y, families[[likelihood]], prior, weights = w)
    for (i in 1:5) expect_lte(top(model, rnorm(3, sd = 2)), model$smoothness * (1 + 1e-6))
  }
  # attained: logit where all predictors are 0, normal anywhere, probit far on the wrong side
  logit <- model_glm(X, y, prior = prior, weights = w)
  expect_equal(top(logit, numeric(3)), logit$smoothness, tolerance = 1e-6)
  normal_model <- model_glm(X, y, gaussian(), prior, weights = w)
  expect_equal(top(normal_model, c(1, 2, 3)), normal_model$smoothness, tolerance = 1e-6)
  probit <- model_glm(abs(X), c(0, rep(1, 49)), binomial("probit"), prior, weights = c(0, w[-1]))
  expect_equal(top(probit, c(-1e3, -1e3, -1e3)), probit$smoothness, tolerance = 1e-4)
})

test_that("a model says what is known of its smoothness, convexity and growth", {
  X <- cbind(1, c(-1, 0.5, 2, 3))
  y <- c(0, 1, 0, 1)
  known <- function(model) model[c("smoothness_source", "convex", "growth")]
  expect_identical(known(model_glm(X, y)),
                   list(smoothness_source = "computed", convex = TRUE, growth = 2))
  expect_identical(model_glm(X, y, prior = normal(0, c(Inf, 1)))$growth, NA_real_)
  expect_identical(model_glm(X, y, gaussian(), flat())$growth, 2)
  expect_match(model_glm(X, y, poisson())$smoothness_source, "unbounded curvature")
  expect_match(model_glm(X, y, binomial("cloglog"))$smoothness_source, "cloglog link has unbounded curvature")
  # a student prior is not log-concave, and grows too slowly to count
  heavy <- model_glm(X, y, prior = c(normal(), student_t()))
  expect_identical(known(heavy), list(smoothness_source = "computed", convex = FALSE, growth = NA_real_))
  expect_identical(model_glm(X, y, prior = student_t(Inf))$convex, TRUE)
  expect_identical(model_glm(X, y, prior = student_t(3, 0, Inf))$convex, TRUE)
  expect_identical(model_glm(X, y, gaussian(), cauchy())$growth, 2)
  collinear <- suppressMessages(model_glm(cbind(X, X[, 2]), y, gaussian(), cauchy()))
  expect_identical(collinear$growth, NA_real_)
  unknown <- model_glm(X, y, gaussian(), dispersion = NULL)
  expect_identical(known(unknown), list(smoothness_source = "none exists: the curvature in log_sigma is unbounded",
                                        convex = FALSE, growth = NA_real_))
  expect_identical(unknown$smoothness, NA_real_)
  f <- function(x) sum(x^2)
  g <- function(x) 2 * x
  expect_identical(known(model_density(f, g, 2)),
                   list(smoothness_source = "not given", convex = NA, growth = NA_real_))
  given <- model_density(f, g, 2, smoothness = 2L, convex = TRUE, growth = 2L)
  expect_identical(given$smoothness, 2)
  expect_identical(known(given), list(smoothness_source = "given", convex = TRUE, growth = 2))
})

# ---- student priors and exact objectives ---------------------------------------------

test_that("student priors have their density, their gradient and their curvature", {
  df <- c(1, 3, 7, Inf)
  model <- model_glm(X, responses$logit, prior = student_t(df, location, c(3, 0.5, 2, 10)), weights = weights)
  plain <- model_glm(X, responses$logit, prior = flat(), weights = weights)
  heights <- function(x) sum(dt((x - location) / c(3, 0.5, 2, 10), df, log = TRUE))
  expect_equal(evaluate(model, points)$value - evaluate(plain, points)$value,
               heights(location) - apply(points, 2, heights), tolerance = 1e-10)
  for (j in seq_len(ncol(points))) {
    expect_equal(evaluate(model, points[, j])$gradient - evaluate(plain, points[, j])$gradient,
                 matrix(-fd_gradient(heights, points[, j])), tolerance = 1e-6)
  }
  # L counts their curvature at the centre, where it is largest: (df + 1) / (df scale^2)
  one_row <- model_glm(diag(2) * 1e-8, c(0, 1), prior = student_t(c(1, 4), 0, c(0.5, 0.1)))
  expect_equal(one_row$smoothness, 5 / 4 / 0.01)
  expect_equal(fd_hessian(gradient_at(one_row), c(0, 0)), diag(c(2 / 0.25, 125)), tolerance = 1e-6)
})

# densities on the line of mean 0 and variance 1
line <- list(
  gaussian = list(base = base_gaussian(), p = dnorm, end = 40),
  laplace = list(base = base_laplace(), p = function(z) exp(-sqrt(2) * abs(z)) / sqrt(2), end = 60),
  uniform = list(base = base_uniform(), p = function(z) dunif(z, -sqrt(3), sqrt(3)), end = sqrt(3)),
  student = list(base = base_student(5), p = function(z) dt(z * sqrt(5 / 3), 5) * sqrt(5 / 3), end = 1e7)
)

# E g(z) by integrate(), piece by piece
on_line <- function(g, law) {
  nodes <- c(0, 0.5, 1, 2, 4, 8, 16, 64, 1e3, 1e5, 1e7)
  nodes <- c(nodes[nodes < law$end], law$end)
  both <- function(z) law$p(z) * (g(z) + g(-z))
  sum(mapply(function(from, to) integrate(both, from, to, rel.tol = 1e-11, subdivisions = 1000L)$value,
             head(nodes, -1), nodes[-1]))
}

test_that("exact objectives of cloglog models and student priors are integrals of f", {
  skip_on_cran()
  cases <- list(
    cloglog = model_glm(matrix(c(1, -0.5, 2)), cbind(c(3, 0, 1), c(1, 2, 0)), binomial("cloglog"), normal(0, 2)),
    student = model_glm(matrix(c(1, -0.5, 2)), c(1, 0, 1), prior = student_t(3, 1, 0.3)),
    cauchy = model_glm(matrix(c(1, -0.5, 2)), c(1, 0, 1), gaussian(), cauchy(-2, 0.1))
  )
  for (name in names(cases)) for (law in line) {
    model <- cases[[name]]
    in_line <- law_of(law$base, 1)
    if (name == "cloglog" && law$base$kind == "student") {
      expect_error(exact_oracle(model, in_line), class = "elvi_error_no_expectation")
      expect_error(elvi(model, law$base), class = "elvi_error_no_expectation")
      next
    }
    oracle <- exact_oracle(model, in_line)
    # spread 2 s of the widest row is below sqrt(2), up to where the laplace law has E exp
    for (at in list(c(0.3, 0.05), c(-1, 0.5), c(2, 0.6))) {
      label <- paste(name, law$base$kind, at[2])
      f <- function(z) evaluate(model, matrix(at[1] + at[2] * z, 1))$value
      g <- function(z) drop(evaluate(model, matrix(at[1] + at[2] * z, 1))$gradient)
      exact <- oracle("diagonal", at[1], at[2])
      expect_equal(exact$value, on_line(f, law), tolerance = 1e-8, label = label)
      expect_equal(exact$g_mu, on_line(g, law), tolerance = 1e-8, label = label)
      expect_equal(drop(exact$B) * at[2], on_line(function(z) z * g(z), law), tolerance = 1e-7, label = label)
    }
  }
})

test_that("with a scale of 0 the exact oracle is f, its gradient and its Hessian", {
  i <- 1:200
  for (likelihood in names(families)) {
    model <- model_glm(X[i, ], responses[[likelihood]][i], families[[likelihood]],
                       prior = c(normal(0, 2), student_t(3, c(0, 1), 0.4), flat()))
    at <- point_oracle(model)
    for (j in 1:2) {
      x <- points[, j]
      expect_equal(at(x)$value, evaluate(model, x)$value, tolerance = 1e-12, label = likelihood)
      expect_equal(at(x)$g_mu, gradient_at(model)(x), tolerance = 1e-11, label = likelihood)
      expect_equal(at(x)$B, fd_hessian(gradient_at(model), x), tolerance = 1e-6, label = likelihood)
    }
  }
})

test_that("the solver finds a minimum where prior and data disagree and f is not convex", {
  skip_on_cran()
  X <- cbind(1, c(-1, 0, 1, 2))
  for (base in list(base_gaussian(), base_laplace(), base_student(5))) for (location in c(2, 20)) {
    model <- model_glm(X, c(0, 1, 0, 1), gaussian(), cauchy(location, 0.05), dispersion = 0.1)
    H <- exact_oracle(model, law_of(base, 2))("diagonal", c(location / 2, 1), c(0.5, 0.5))$B
    optimum <- elvi_optimum(model, base)
    expect_true(optimum$converged)
    expect_identical(optimum$certificate_kind, "estimated")
    expect_lt(optimum$gradient_norm, 1e-4)
    F <- function(move) {
      objective(list(mu = optimum$mu + move[1:2], Sigma = optimum$Sigma * exp(move[3])), model, base)$estimate
    }
    set.seed(6)
    for (i in 1:5) expect_gt(F(rnorm(3, sd = 0.01)), optimum$objective - 1e-9)
  }
  # curvature that is negative on average is met with damped steps
  expect_lt(min(eigen(H)$values), max(eigen(H)$values))
  expect_equal(sum(newton_step(diag(c(-2, 1)), c(1, 1)) * c(1, 1)), 1.5)
})

# ---- auxiliary parameters ------------------------------------------------------------

aux_rows <- 2048 + 300
aux_X <- X[seq_len(aux_rows), ]
aux_y <- list(
  gaussian = responses$normal[seq_len(aux_rows)], robust = responses$normal[seq_len(aux_rows)],
  neg_binomial_2 = rnbinom(aux_rows, size = 2, mu = exp(eta[seq_len(aux_rows)] / 2))
)
aux_families <- list(gaussian = gaussian(), robust = robust(4), neg_binomial_2 = neg_binomial_2())
# log density of each response given predictor and log sigma or log phi
aux_density <- list(
  gaussian = function(y, eta, a, w) ifelse(w > 0, dnorm(y, eta, exp(a) / sqrt(w), log = TRUE), 0),
  robust = function(y, eta, a, w) w * (dt((y - eta) / exp(a), 4, log = TRUE) - a),
  neg_binomial_2 = function(y, eta, a, w) w * dnbinom(y, size = exp(a), mu = exp(eta), log = TRUE)
)

test_that("models with an auxiliary parameter have the density of their formula", {
  w <- weights[seq_len(aux_rows)]
  shift <- offset[seq_len(aux_rows)]
  x <- rbind(points, c(-1.5, -0.3, 0, 0.4, 2))
  often <- rep(c(1, 2, 0.5, 0), length.out = aux_rows)
  for (name in names(aux_families)) {
    model <- model_glm(aux_X, aux_y[[name]], aux_families[[name]], normal(location, scale), w, shift,
                       dispersion = NULL, prior_aux = exponential(0.7), frequency = often)
    expect_identical(model$names[5], dispersion_name(model))
    target <- function(x) {
      -sum(often * aux_density[[name]](aux_y[[name]], drop(aux_X %*% x[1:4]) + shift, x[5], w)) -
        sum(dnorm(x[1:4], location, pmin(scale, 1e100), log = TRUE)) - dexp(exp(x[5]), 0.7, log = TRUE) - x[5]
    }
    out <- evaluate(model, x)
    reference <- apply(x, 2, target)
    expect_equal(out$value - out$value[1], reference - reference[1], tolerance = 1e-9, label = name)
    for (j in seq_len(ncol(x))) {
      expect_equal(out$gradient[, j], fd_gradient(value_at(model), x[, j]), tolerance = 1e-6, label = name)
      expect_equal(evaluate(model, x[, j])$gradient, out$gradient[, j, drop = FALSE], tolerance = 1e-10, label = name)
    }
  }
})

test_that("the prior of an auxiliary parameter is one of sigma, with the Jacobian of the logarithm", {
  half <- list(
    list(exponential(2), function(s) dexp(s, 2, log = TRUE)),
    list(normal(0, 0.7), function(s) dnorm(s, 0, 0.7, log = TRUE)),
    list(normal(2, 0.7), function(s) dnorm(s, 2, 0.7, log = TRUE)),
    list(student_t(3, 0, 0.7), function(s) dt(s / 0.7, 3, log = TRUE)),
    list(cauchy(1, 0.7), function(s) dcauchy(s, 1, 0.7, log = TRUE)),
    list(flat(), function(s) numeric(length(s)))
  )
  X <- matrix(c(1, 2, 1))
  y <- c(0.3, -0.2, 1)
  a <- c(-3, -1, 0, 0.5, 2)
  x <- rbind(0.4, a)
  likelihood <- vapply(a, function(a) sum(dnorm(y, 0.4 * X, exp(a), log = TRUE)), 0)
  for (case in half) {
    model <- model_glm(X, y, gaussian(), flat(), dispersion = NULL, prior_aux = case[[1]])
    off <- evaluate(model, x)$value + likelihood + case[[2]](exp(a)) + a
    expect_equal(off, rep(off[1], 5), label = format(case[[1]]))
    for (j in 1:5) {
      expect_equal(gradient_at(model)(x[, j]), fd_gradient(value_at(model), x[, j]), tolerance = 1e-7)
    }
  }
  # the default
  expect_identical(model_glm(X, y, robust())$prior_aux, exponential(1))
})

test_that("auxiliary parameters far out keep value and gradient", {
  X <- matrix(1, 3)
  slope <- function(model, x) drop(evaluate(model, x)$gradient)
  y <- c(0, 3, 8)
  negbin <- model_glm(X, y, neg_binomial_2(), flat(), prior_aux = cauchy(0, 1))
  counts <- model_glm(X, y, poisson(), flat())
  # minus log density, less what a prior of heavy tail adds: 2 a - a
  base <- evaluate(negbin, c(1, 20))$value - 20 - evaluate(counts, 1)$value
  for (a in c(25, 40, 200)) {
    expect_equal(evaluate(negbin, c(1, a))$value - a - evaluate(counts, 1)$value, base, tolerance = 1e-7, label = a)
    expect_equal(slope(negbin, c(1, a)), c(slope(counts, 1), 1), tolerance = 1e-7, label = a)
  }
  # the gradient in log phi tends to sum((y - mu)^2 - y) / (2 phi) before the prior's
  for (a in c(6.5, 7, 9)) {
    expect_equal(slope(negbin, c(1, a))[2] - (2 / (1 + exp(-2 * a)) - 1), sum((y - exp(1))^2 - y) / (2 * exp(a)),
                 tolerance = 0.05, label = a)
  }
  expect_true(all(is.finite(unlist(evaluate(negbin, c(1, -700))))))
  expect_equal(slope(negbin, c(1, -700)), c(0, -3))   # -a for the prior and for each positive count
  expect_true(all(is.finite(unlist(evaluate(negbin, c(700, 1))))))
  student <- model_glm(X, y, robust(3), flat())
  for (x in list(c(1e8, 0), c(-1e100, 0), c(0, -100))) {
    expect_true(all(is.finite(unlist(evaluate(student, x)))), label = format(x))
  }
  expect_equal(slope(student, c(1e8, 0))[2], 3 * (1 - 4) + 1 - 1)
})

test_that("rows of weight 0 do not count in models with an auxiliary parameter", {
  X <- matrix(c(1, 2, 1e6))
  for (name in names(aux_families)) {
    family <- aux_families[[name]]
    weighted <- model_glm(X, c(1, 0, 1), family, frequency = c(1, 2, 1), weights = c(1, 1, 0), dispersion = NULL)
    repeated <- model_glm(X[c(1, 2, 2), , drop = FALSE], c(1, 0, 0), family, dispersion = NULL)
    expect_equal(evaluate(weighted, c(0.9, 0.3)), evaluate(repeated, c(0.9, 0.3)), label = name)
  }
})

test_that("the mode of a model with an auxiliary parameter is found to ten digits", {
  i <- 1:60
  fit <- lm(aux_y$gaussian[i] ~ aux_X[i, ] - 1)
  mode <- find_mode(model_glm(aux_X[i, ], aux_y$gaussian[i], gaussian(), flat(),
                              dispersion = NULL, prior_aux = flat()))
  expect_equal(mode$x, c(unname(coef(fit)), log(sum(resid(fit)^2) / 59) / 2), tolerance = 1e-10)
  # badly scaled columns, an outlier, overdispersion that is not there
  units <- c(1, 1e5, 1e-5, 1)
  set.seed(7)
  hard <- list(
    model_glm(aux_X[i, ] * rep(units, each = 60), replace(aux_y$robust[i], 1, 1e5), robust(3), student_t(3, 0, 5 / units)),
    model_glm(aux_X[i, ] * rep(units, each = 60), rpois(60, exp(aux_X[i, 2])), neg_binomial_2(), normal(0, 5 / units)),
    model_glm(aux_X[i, ], aux_y$gaussian[i] * 1e6, gaussian(), normal(0, 1e7), dispersion = NULL,
              prior_aux = exponential(1e-6))
  )
  for (model in hard) {
    mode <- find_mode(model)
    g <- gradient_at(model)(mode$x)
    expect_lt(sqrt(sum(g * solve(mode$hessian, g, tol = 0))), 1e-8)   # in posterior sds
    unit <- 1 / sqrt(diag(mode$hessian))
    scaled <- function(x) unit * gradient_at(model)(mode$x + unit * x)
    expect_equal(unname(unit * mode$hessian * rep(unit, each = 5)), fd_hessian(scaled, numeric(5)), tolerance = 1e-4)
  }
})

test_that("a model that has no mode says so", {
  x <- cbind(1, 1:4)
  expect_error(elvi(model_glm(x, 1:4, gaussian(), flat(), dispersion = NULL)), class = "elvi_error_no_optimum")
  expect_error(elvi(model_glm(x, 1:4, robust(), flat())), "sigma then runs off to 0", class = "elvi_error_no_optimum")
  saturated <- suppressMessages(model_glm(cbind(x, c(1, 0, 2, 5), c(0, 1, 0, 3)), c(1, 3, 2, 5), gaussian(),
                                          dispersion = NULL))
  expect_error(elvi(saturated), class = "elvi_error_no_optimum")
  zeros <- model_glm(cbind(1, c(0, 0, 1, 1)), c(1, 3, 0, 0), neg_binomial_2(), flat())
  expect_error(elvi(zeros), "separated", class = "elvi_error_no_optimum")
})

test_that("an approximation of heavy tails is refused where f grows exponentially in the logarithm", {
  y <- aux_y$gaussian[1:20]
  heavy <- base_student(5)
  expect_error(elvi(model_glm(aux_X[1:20, ], y, gaussian(), dispersion = NULL), heavy), class = "elvi_error_no_expectation")
  expect_error(elvi(model_glm(aux_X[1:20, ], y, robust()), heavy), class = "elvi_error_no_expectation")
  expect_error(elvi(model_glm(aux_X[1:20, ], y, robust(), prior_aux = cauchy()), heavy), NA)
  expect_error(elvi_optimum(model_glm(aux_X[1:20, ], y, robust())), "sigma is unknown", class = "elvi_error_argument")
})

test_that("fits of regressions with unknown sigma agree with reference posteriors", {
  cases <- list(
    mesquite = list(prior = flat(), aux = flat()),
    sblri = list(prior = normal(0, 10), aux = normal(0, 10)),
    kilpisjarvi = list(prior = normal(c(9.31290322580645, 0), c(100, 1 / 30)), aux = flat())
  )
  for (name in names(cases)) {
    data <- read.csv(test_path("oracles", paste0(name, "-data.csv")))
    reference <- read.csv(test_path("oracles", paste0(name, "-posterior.csv")))
    model <- model_glm(as.matrix(data[-1]), data$y, gaussian(), cases[[name]]$prior, dispersion = NULL,
                       prior_aux = cases[[name]]$aux)
    set.seed(8)
    fit <- elvi(model)
    expect_lt(max(abs(fit$mu - reference$mean) / reference$sd), 0.1, label = name)
    ratio <- sqrt(diag(fit$Sigma %*% fit$Sigma)) / reference$sd
    expect_gt(min(ratio), 0.88, label = name)
    expect_lt(max(ratio), 1.05, label = name)
  }
})

# ---- responses ---------------------------------------------------------------------

test_that("every form of the same binary response is the same target", {
  X <- cbind(1, c(-1, 0.5, 2, 3, 0.1))
  y <- c(0, 1, 0, 1, 1)
  x <- c(0.4, -0.7)
  same <- evaluate(model_glm(X, y), x)
  forms <- list(
    integer = as.integer(y), logical = y == 1, factor = factor(y, labels = c("no", "yes")),
    counts = cbind(y, 1 - y), named = c(a = 0, b = 1, c = 0, d = 1, e = 1)
  )
  for (name in names(forms)) expect_identical(evaluate(model_glm(X, forms[[name]]), x), same, label = name)
  # the second level is the success, also when it comes first in the alphabet
  reversed <- factor(c("b", "a", "b", "a", "a"), levels = c("b", "a"))
  expect_identical(evaluate(model_glm(X, reversed), x), same)
  for (family in list("binomial", binomial, binomial())) {
    expect_identical(evaluate(model_glm(X, y, family), x), same)
  }
})

test_that("counts are the expanded 0/1 data, and weights are repeated rows", {
  X <- cbind(1, c(-1, 0.5, 2))
  y <- cbind(c(3, 0, 2), c(1, 4, 2))
  x <- c(0.4, -0.7)
  long <- rep(1:3, rowSums(y))
  expanded <- unlist(lapply(1:3, function(i) rep(1:0, y[i, ])))
  for (likelihood in c("logit", "probit", "cloglog")) {
    family <- families[[likelihood]]
    expect_equal(evaluate(model_glm(X, y, family), x), evaluate(model_glm(X[long, ], expanded, family), x),
                 tolerance = 1e-13, label = likelihood)
  }
  for (likelihood in names(families)) {
    family <- families[[likelihood]]
    weighted <- model_glm(X, c(0, 1, 1), family, weights = c(2, 1, 3))
    repeated <- model_glm(X[c(1, 1, 2, 3, 3, 3), ], c(0, 0, 1, 1, 1, 1), family)
    expect_equal(evaluate(weighted, x), evaluate(repeated, x), tolerance = 1e-13, label = likelihood)
    expect_equal(weighted$smoothness, repeated$smoothness)
    expect_equal(evaluate(model_glm(X, c(0, 1, 1), family, frequency = c(2, 1, 3)), x), evaluate(weighted, x))
  }
  # an offset is a column with a known coefficient
  shifted <- evaluate(model_glm(X, c(0, 1, 1), prior = flat(), offset = 2 * X[, 2]), x)
  expect_equal(shifted, evaluate(model_glm(X, c(0, 1, 1), prior = flat()), x + c(0, 2)))
})

test_that("the caller's data are not written to", {
  X <- matrix(1:6, 3)
  y <- c(TRUE, FALSE, TRUE)
  A <- diag(2)
  model <- model_glm(X, y)
  quadratic <- model_quadratic(A)
  invisible(evaluate(model, c(1, 2)))
  invisible(evaluate(quadratic, c(1, 2)))
  expect_identical(X, matrix(1:6, 3))
  expect_identical(y, c(TRUE, FALSE, TRUE))
  expect_identical(A, diag(2))
})

test_that("a constant response warns", {
  X <- matrix(c(1, 1, 1, 0, 1, 2), 3)
  for (y in list(c(1, 1, 1), rep(FALSE, 3), cbind(1:3, 1:3))) {
    expect_warning(model_glm(X, y), class = "elvi_warning_constant_response")
  }
  expect_warning(model_glm(X, c(0, 0, 0), poisson()), class = "elvi_warning_constant_response")
  expect_warning(model_glm(X, c(2, 2, 2), gaussian()), class = "elvi_warning_constant_response")
  expect_silent(model_glm(matrix(2), 1))   # a single row is no sign of anything
  expect_snapshot(model <- model_glm(X, c(1, 1, 1)))
})

# ---- collinear columns ---------------------------------------------------------------

test_that("collinear columns are kept under a proper prior, with a message", {
  X <- cbind(1, 1:4, 2 * (1:4))
  y <- c(0, 1, 0, 1)
  expect_message(model <- model_glm(X, y), class = "elvi_message_collinear")
  expect_identical(model$dim, 3)
  expect_equal(evaluate(model, c(1, 2, 3))$value,
               glm_target(c(1, 2, 3), X, y, "logit", scale = 2.5))
  expect_message(model_glm(matrix(rnorm(12), 3), y[1:3]), class = "elvi_message_collinear")   # d > M
  expect_message(model_glm(cbind(1, c(0, 0, 0, 0)), y), class = "elvi_message_collinear")
  expect_snapshot(model <- model_glm(X, y))
  # badly scaled is not collinear
  expect_silent(model_glm(cbind(1, c(1, 3, 2, 5) * 1e-9, c(2, 1, 4, 3) * 1e9), y, prior = flat()))
})

test_that("collinear columns are refused when flat priors leave a direction free", {
  X <- cbind(1, 1:4, 2 * (1:4))
  y <- c(0, 1, 0, 1)
  expect_error(model_glm(X, y, prior = flat()), class = "elvi_error_no_optimum")
  expect_error(model_glm(X, y, prior = normal(0, c(1, Inf, Inf))), class = "elvi_error_no_optimum")
  expect_error(model_glm(cbind(1, 0, 1:4), y, prior = normal(0, c(1, Inf, 1))), class = "elvi_error_no_optimum")
  # only rows that count can tell columns apart
  expect_error(model_glm(cbind(1, c(1, 1, 1, 2)), y, prior = flat(), weights = c(1, 1, 1, 0)),
               class = "elvi_error_no_optimum")
  # a flat intercept beside slopes that their prior tells apart is fine
  expect_message(model_glm(X, y, prior = normal(0, c(Inf, 1, 1))), class = "elvi_message_collinear")
  expect_message(model_glm(X, y, prior = normal(0, c(Inf, Inf, 1))), class = "elvi_message_collinear")
  expect_refusal(model_glm(X, y, prior = flat()), "X")
})

# ---- names ---------------------------------------------------------------------------

test_that("column names survive, spaces and letters beyond ASCII included", {
  X <- cbind(1, c(-1, 0.5, 2, 3), c(1, 0, 0, 2))
  labels <- c("(Intercept)", "blood pressure", "Gr\u00f6\u00dfe")
  colnames(X) <- labels
  model <- model_glm(X, c(0, 1, 0, 1))
  expect_identical(model$names, labels)
  set.seed(4)
  fit <- elvi(model, budget = 50)
  expect_identical(names(coef(fit)), labels)
  expect_identical(dimnames(vcov(fit)), list(labels, labels))
  expect_identical(model_glm(unname(X), c(0, 1, 0, 1))$names, c("x1", "x2", "x3"))
})

test_that("the other models name their parameters too", {
  A <- diag(2)
  expect_identical(model_quadratic(A)$names, c("x1", "x2"))
  expect_identical(model_quadratic(A, c(a = 1, b = 2))$names, c("a", "b"))
  colnames(A) <- c("p", "q")
  expect_identical(model_quadratic(A, c(a = 1, b = 2))$names, c("p", "q"))
  square <- function(x) sum(x^2)
  slope <- function(x) 2 * x
  expect_identical(model_density(square, slope, 2)$names, c("x1", "x2"))
  expect_identical(model_density(square, slope, 2, names = c("u v", "w"))$names, c("u v", "w"))
})

# ---- functions of the user -------------------------------------------------------------

# f(x) = |x|^2 / 2 + log cosh(x_1 + x_2), once per point and once per block
f_point <- function(x) sum(x^2) / 2 + log(cosh(x[1] + x[2]))
g_point <- function(x) x + tanh(x[1] + x[2]) * c(1, 1, numeric(length(x) - 2))
f_block <- function(x) colSums(x^2) / 2 + log(cosh(x[1, ] + x[2, ]))
g_block <- function(x) {
  x[1:2, ] <- x[1:2, , drop = FALSE] + rep(tanh(x[1, ] + x[2, ]), each = 2)
  x
}
counted <- function(f) {
  calls <- 0
  list(f = function(x) {
    calls <<- calls + 1
    f(x)
  }, calls = function() calls, reset = function() calls <<- 0)
}
# calls of value and gradient when a block of n points is evaluated
calls_for <- function(value, gradient, dim, n, ...) {
  v <- counted(value)
  g <- counted(gradient)
  model <- model_density(v$f, g$f, dim, ...)
  v$reset()
  g$reset()
  invisible(evaluate(model, matrix(0.1, dim, n)))
  c(value = v$calls(), gradient = g$calls())
}

test_that("functions of a point and of a block give the same target", {
  set.seed(5)
  x <- matrix(rnorm(3 * 7), 3)
  reference <- list(value = apply(x, 2, f_point), gradient = apply(x, 2, g_point))
  for (vectorized in c(NA, TRUE)) {
    expect_equal(evaluate(model_density(f_block, g_block, 3, vectorized = vectorized), x), reference)
  }
  for (vectorized in c(NA, FALSE)) {
    expect_equal(evaluate(model_density(f_point, g_point, 3, vectorized = vectorized), x), reference)
  }
  # one of each is fine when they are found by trying
  expect_equal(evaluate(model_density(f_point, g_block, 3), x), reference)
  model <- model_density(f_block, g_block, 3)
  for (j in 1:7) {
    expect_equal(gradient_at(model)(x[, j]), fd_gradient(value_at(model), x[, j]), tolerance = 1e-7)
  }
})

test_that("a block is one call of a function that takes blocks, one per point of another", {
  expect_identical(calls_for(f_block, g_block, 3, 7), c(value = 1, gradient = 1))
  expect_identical(calls_for(f_point, g_point, 3, 7), c(value = 7, gradient = 7))
  expect_identical(calls_for(f_point, g_block, 3, 7), c(value = 7, gradient = 1))
  expect_identical(calls_for(f_block, g_block, 3, 7, vectorized = TRUE), c(value = 1, gradient = 1))
  expect_identical(calls_for(f_point, g_point, 3, 7, vectorized = FALSE), c(value = 7, gradient = 7))
  # in one dimension most functions take a block without knowing
  expect_identical(calls_for(function(x) x^2, function(x) 2 * x, 1, 7), c(value = 1, gradient = 1))
  expect_identical(calls_for(function(x) sum(x)^2, function(x) 2 * sum(x), 1, 7),
                   c(value = 7, gradient = 7))
})

test_that("a function that only seems to take blocks is called point by point", {
  x <- matrix(c(1, 2, 3, 4), 2)
  # the right shape, but the second column uses the first
  leaky <- function(x) x + tanh(x[1] + x[2])
  model <- model_density(function(x) sum(x^2), leaky, 2)
  expect_equal(evaluate(model, x)$gradient, apply(x, 2, leaky))
  # transposed: as many numbers as a block has, in the wrong order
  turned <- function(x) if (is.matrix(x)) t(2 * x) else 2 * x
  model <- model_density(function(x) sum(x^2), turned, 2)
  expect_equal(evaluate(model, x)$gradient, 2 * x)
  # errors and warnings of the trial with a block do not reach the user
  strict <- function(x) {
    if (is.matrix(x)) stop("one point please")
    2 * x
  }
  expect_silent(model <- model_density(function(x) sum(x^2), strict, 2))
  expect_equal(evaluate(model, x)$gradient, 2 * x)
  noisy <- function(x) if (length(x) > 2) log(-x) else 2 * x
  expect_silent(model_density(function(x) sum(x^2), noisy, 2))
})

test_that("results of any numeric type and shape of the right length do", {
  x <- matrix(c(1, 2, 3, 4), 2)
  model <- model_density(function(x) matrix(colSums(x), 1), function(x) matrix(1L, 2, ncol(x)), 2)
  expect_identical(evaluate(model, x), list(value = c(3, 7), gradient = matrix(1, 2, 2)))
})

test_that("a condition in the user's function reaches the user unchanged", {
  armed <- FALSE
  own <- structure(class = c("my_error", "error", "condition"),
                   list(message = "the reactor is cold", call = NULL, where = 42))
  trap <- function(f) function(x) {
    if (armed) stop(own)
    f(x)
  }
  models <- list(
    point = model_density(trap(f_point), g_point, 3), block = model_density(trap(f_block), g_block, 3),
    gradient = model_density(f_block, trap(g_block), 3)
  )
  armed <- TRUE
  for (name in names(models)) {
    caught <- tryCatch(evaluate(models[[name]], matrix(0, 3, 2)), error = identity)
    expect_identical(caught, own, label = name)
  }
  # at the time the model is made too
  expect_identical(tryCatch(model_density(trap(f_point), g_point, 3), error = identity), own)
  # the model is as good as before once the cause is gone
  armed <- FALSE
  expect_equal(evaluate(models$block, matrix(0, 3, 2))$value, c(0, 0))

  loud <- function(x) {
    warning("mind the gap")
    colSums(x)
  }
  model <- suppressWarnings(model_density(loud, g_block, 3))
  expect_warning(evaluate(model, matrix(0, 3, 2)), "mind the gap")
})

# ---- words -----------------------------------------------------------------------------

test_that("models print", {
  X <- cbind(1, c(-1, 0.5, 2, 3))
  y <- c(0, 1, 0, 1)
  f <- function(x) sum(x^2)
  g <- function(x) 2 * x
  expect_snapshot({
    model_glm(X, y)
    model_glm(X, y, binomial("probit"), prior = flat())
    model_glm(X, y, poisson(), prior = normal(0, c(10, 2.5)))
    model_glm(X, y, binomial("cloglog"), prior = c(normal(0, 10), student_t(3, 0, 2.5)))
    model_glm(X, y, gaussian(), prior = cauchy(0, 1), dispersion = NULL)
    model_glm(X, y, neg_binomial_2(), prior_aux = cauchy(0, 5))
    model_glm(X, y, robust(), prior_aux = flat())
    model_quadratic(diag(c(1, 4)), c(1, -1))
    model_density(f, g, 2)
    model_density(f, g, 2, smoothness = 2)
  })
})

test_that("bad designs are refused by name", {
  X <- cbind(a = 1, "b c" = c(-1, 0.5, 2, 3))
  y <- c(0, 1, 0, 1)
  with <- function(value) replace(X, cbind(2, 2), value)
  messages <- c(
    refusal(model_glm(with(NaN), y), "X"),
    refusal(model_glm(with(Inf), y), "X"),
    refusal(model_glm(with(NA), y), "X"),
    refusal(model_glm(unname(with(-Inf)), y), "X"),
    refusal(model_glm(as.data.frame(X), y), "X"),
    refusal(model_glm(X[, 2], y), "X"),
    refusal(model_glm(matrix("a", 4, 1), y), "X"),
    refusal(model_glm(X[0, ], numeric()), "X"),
    refusal(model_glm(X[, 0], y), "X"),
    refusal(model_glm(NULL, y), "X"),
    refusal(model_glm(X, y, weights = c(1, 1, 1)), "weights"),
    refusal(model_glm(X, y, weights = c(1, -2, 1, 1)), "weights"),
    refusal(model_glm(X, y, weights = c(1, NA, 1, 1)), "weights"),
    refusal(model_glm(X, y, weights = numeric(4)), "weights"),
    refusal(model_glm(X, y, weights = "a"), "weights"),
    refusal(model_glm(X, y, offset = 1:3), "offset"),
    refusal(model_glm(X, y, offset = c(0, 0, Inf, 0)), "offset"),
    refusal(model_glm(X, y, dispersion = 2), "dispersion"),
    refusal(model_glm(X, y, dispersion = NA), "dispersion"),
    refusal(model_glm(X, y, gaussian(), dispersion = 0), "dispersion"),
    refusal(model_glm(X, y, dispersion = NULL), "dispersion"),
    refusal(model_glm(X, y, poisson(), dispersion = NULL), "dispersion"),
    refusal(model_glm(X, y, robust(), dispersion = 2), "dispersion"),
    refusal(model_glm(X, y, neg_binomial_2(), dispersion = 2), "dispersion"),
    refusal(model_glm(X, y, prior_aux = exponential()), "prior_aux"),
    refusal(model_glm(X, y, gaussian(), prior_aux = flat()), "prior_aux"),
    refusal(model_glm(X, y, robust(), prior_aux = 1), "prior_aux"),
    refusal(model_glm(X, y, robust(), prior_aux = normal(0, c(1, 2))), "prior_aux"),
    refusal(model_glm(X, y, neg_binomial_2(), prior_aux = flat()), "prior_aux"),
    refusal(model_glm(X, y, gaussian(), flat(), c(1, 1, 1, 0), dispersion = NULL, prior_aux = flat()), "prior_aux"),
    refusal(model_glm(X, y, prior = exponential(1)), "prior"),
    refusal(model_glm(X, y, prior = laplace(0, 1)), "prior"),
    refusal(robust(0), "df"),
    refusal(robust(c(3, 4)), "df"),
    refusal(model_glm(X, y, prior = 2.5), "prior"),
    refusal(model_glm(X, y, prior = normal(0, c(1, 2, 3))), "prior"),
    refusal(model_glm(X, y, prior = normal(c(1, 2, 3), 1)), "prior"),
    refusal(model_glm(X, y, Gamma()), "family"),
    refusal(model_glm(X, y, quasibinomial), "family"),
    refusal(model_glm(X, y, 3), "family"),
    refusal(model_glm(X, y, c("binomial", "poisson")), "family"),
    refusal(model_glm(X, y, binomial("cauchit")), "family"),
    refusal(model_glm(X, y, poisson("sqrt")), "family"),
    refusal(model_glm(X, y, gaussian("log")), "family")
  )
  expect_snapshot(writeLines(messages))
})

test_that("bad responses are refused by name", {
  X <- cbind(1, c(-1, 0.5, 2, 3))
  y <- c(0, 1, 0, 1)
  messages <- c(
    refusal(model_glm(X, factor(c("a", "b", "c", "a"))), "y"),
    refusal(model_glm(X, factor(c("a", "a", "a", "a"))), "y"),
    refusal(model_glm(X, c("a", "b", "b", "a")), "y"),
    refusal(model_glm(X, c(0, 1, 2, 1)), "y"),
    refusal(model_glm(X, c(0, 1, NA, 1)), "y"),
    refusal(model_glm(X, factor(c("a", NA, "b", "a"))), "y"),
    refusal(model_glm(X, c(0, 1, 1)), "y"),
    refusal(model_glm(X, NULL), "y"),
    refusal(model_glm(X, as.list(y)), "y"),
    refusal(model_glm(X, data.frame(y)), "y"),
    refusal(model_glm(X, cbind(y)), "y"),
    refusal(model_glm(X, cbind(y, -y)), "y"),
    refusal(model_glm(X, cbind(y, 0.5)), "y"),
    refusal(model_glm(X, cbind(y, Inf)), "y"),
    refusal(model_glm(X, cbind(letters[1:4], "b")), "y"),
    refusal(model_glm(X, cbind(y, NA)), "y"),
    refusal(model_glm(X, cbind(y, 1, 1)), "y"),
    refusal(model_glm(X, c(0, -1, 2, 1), poisson()), "y"),
    refusal(model_glm(X, c(0, 1.5, 2, 1), poisson()), "y"),
    refusal(model_glm(X, c(0, Inf, 2, 1), poisson()), "y"),
    refusal(model_glm(X, factor(1:4), poisson()), "y"),
    refusal(model_glm(X, y == 1, poisson()), "y"),
    refusal(model_glm(X, c(0, -Inf, 2, 1), gaussian()), "y"),
    refusal(model_glm(X, factor(1:4), gaussian()), "y"),
    refusal(model_glm(X, letters[1:4], gaussian()), "y"),
    refusal(model_glm(X, letters[1:4], robust()), "y"),
    refusal(model_glm(X, c(0, 1.5, 2, 1), neg_binomial_2()), "y")
  )
  expect_snapshot(writeLines(messages))
})

test_that("bad quadratics are refused by name", {
  messages <- c(
    refusal(model_quadratic(matrix(c(1, 2, 3, 4), 2)), "A"),
    refusal(model_quadratic(diag(c(1, -1))), "A"),
    refusal(model_quadratic(diag(c(1, 0))), "A"),
    refusal(model_quadratic(0), "A"),
    refusal(model_quadratic(-diag(2)), "A"),
    refusal(model_quadratic(matrix(1, 2, 3)), "A"),
    refusal(model_quadratic(matrix(0, 0, 0)), "A"),
    refusal(model_quadratic(c(1, 2)), "A"),
    refusal(model_quadratic(diag(c(1, NaN))), "A"),
    refusal(model_quadratic("a"), "A"),
    refusal(model_quadratic(diag(2), 1:3), "m"),
    refusal(model_quadratic(diag(2), c(1, NA)), "m")
  )
  expect_snapshot(writeLines(messages))
})

test_that("bad functions are refused by name, with the shape expected", {
  f <- function(x) sum(x^2)
  g <- function(x) 2 * x
  messages <- c(
    refusal(model_density("f", g, 2), "value"),
    refusal(model_density(f, "g", 2), "gradient"),
    refusal(model_density(f, g, 0), "dim"),
    refusal(model_density(f, g, 1.5), "dim"),
    refusal(model_density(f, g, 2, smoothness = -1), "smoothness"),
    refusal(model_density(f, g, 2, smoothness = NA), "smoothness"),
    refusal(model_density(f, g, 2, convex = "yes"), "convex"),
    refusal(model_density(f, g, 2, growth = 0), "growth"),
    refusal(model_density(f, g, 2, vectorized = 1), "vectorized"),
    refusal(model_density(f, g, 2, names = "a"), "names"),
    refusal(model_density(f, g, 2, names = c("a", NA)), "names"),
    refusal(model_density(g, g, 2, vectorized = FALSE), "value"),
    refusal(model_density(function(x) NULL, g, 2), "value"),
    refusal(model_density(function(x) "1", g, 2), "value"),
    refusal(model_density(f, f, 2), "gradient"),
    refusal(model_density(f, function(x) NULL, 2), "gradient"),
    refusal(model_density(f, function(x) list(1, 2), 2), "gradient"),
    refusal(model_density(f, function(x) c(2 * x, 1), 2), "gradient"),
    refusal(model_density(function(x) colSums(x^2), function(x) 2 * x[1, ], 2, vectorized = TRUE), "gradient")
  )
  expect_snapshot(writeLines(messages))
  # a shape that goes wrong only later is caught then
  fickle <- function(x) if (any(x > 10)) 1 else 2 * x
  model <- model_density(f, fickle, 2)
  expect_refusal(evaluate(model, matrix(11, 2, 3)), "gradient")
})

test_that("without a gradient one is made from the value, with a warning that it is slow", {
  skip_on_cran()
  f_block <- function(x) colSums((x - 1:3)^2 * c(1, 2, 4)) / 2 + log(cosh(x[1, ] + x[2, ]))
  f_point <- function(x) sum((x - 1:3)^2 * c(1, 2, 4)) / 2 + log(cosh(x[1] + x[2]))
  gradient <- function(x) c(1, 2, 4) * (x - 1:3) + c(1, 1, 0) * tanh(x[1] + x[2])
  exact <- model_density(f_point, gradient, 3, convex = TRUE)
  x <- matrix(c(0, 0, 0, 1, -2, 0.5, 3, 1, 1e3), 3)
  for (f in list(f_block, f_point)) {
    expect_warning(made <- model_density(f, dim = 3, convex = TRUE, derivatives = "differences"), "12 values per gradient",
                   class = "elvi_warning_slow_gradient")
    expect_equal(made$gradient(x), exact$gradient(x), tolerance = 1e-8)
    expect_silent(made$gradient(x))
    set.seed(1)
    fit <- elvi(made, budget = 1000)
    set.seed(1)
    expect_equal(fit$mu, elvi(exact, budget = 1000)$mu, tolerance = 1e-6)
  }
  expect_warning(line <- model_density(function(x) sum(x^4), dim = 1, derivatives = "differences"), "4 values")
  expect_equal(line$gradient(matrix(c(0.5, 2), 1)), c(0.5, 32), tolerance = 1e-8)
})

test_that("parameters without a name are numbered", {
  expect_identical(model_quadratic(diag(3), stats::setNames(1:3, c("a", NA, "")))$names, c("a", "x2", "x3"))
  expect_identical(model_quadratic(diag(2))$names, c("x1", "x2"))
})

test_that("the negative binomial is finite and silent up to the largest phi", {
  model <- model_glm(cbind(1, c(-1, 0, 1)), c(0, 3, 1), neg_binomial_2())
  at <- expect_silent(target_at(model, cbind(c(0, 0, 600), c(0, 0, 709))))
  expect_true(all(is.finite(at$value)))
})

test_that("a value without a gradient may throw where it is not defined", {
  expect_warning(model <- model_density(function(x) if (x[1] < 0) stop("negative") else sum((x - 1)^2) / 2, dim = 2),
                 class = "elvi_warning_slow_gradient")
  set.seed(1)
  fit <- suppressMessages(suppressWarnings(elvi(model, budget = 200, starts = 1)))
  expect_match(fit$search$account$first_error, "negative")
})

test_that("more columns with a flat prior than rows are refused at once, however many", {
  set.seed(1)
  X <- matrix(rnorm(60 * 2100), 60)
  y <- rep(0:1, 30)
  expect_error(model_glm(X, y, prior = flat()), "2100 columns of `X` with a flat prior are linearly dependent .there are 60 rows",
               class = "elvi_error_argument")
})

test_that("logarithms are those that the user names, or else those with a name like log_tau", {
  f <- function(names = c("log_tau", "mu", "logit_p", "log(s)"), ...) {
    model_density(function(x) sum(x^2) / 2, function(x) x, dim = 4, names = names, ...)$logarithms
  }
  expect_identical(f(), c(TRUE, FALSE, FALSE, TRUE))
  expect_identical(f(logarithms = character()), logical(4))
  expect_identical(f(logarithms = "mu"), c(FALSE, TRUE, FALSE, FALSE))
  expect_identical(f(names = NULL, logarithms = c(4, 1)), c(TRUE, FALSE, FALSE, TRUE))
  expect_error(f(logarithms = "tau"), "`logarithms` must be names or positions of parameters, not \"tau\"",
               class = "elvi_error_argument")
  for (bad in list(5, 0, NA, TRUE, list(1), sum)) expect_error(f(logarithms = bad), "`logarithms`", class = "elvi_error_argument")
})
