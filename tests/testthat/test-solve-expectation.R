# The objective without Monte Carlo, judged by sums of integrals in plain R, by finite
# differences and by brute Monte Carlo.

families <- c("logit", "probit", "cloglog", "poisson", "normal")
kinds <- c("symmetric", "triangular", "diagonal")
laws <- radius_laws(3)
laws <- laws[c("gaussian", "laplace", "student5", "power0.7", if (long_tests()) c("uniform", "power3", "radial_logistic"))]
nodes <- lapply(laws, marginal_nodes, d = 3)
too_heavy <- c("student5", "power0.7")   # for exp()
oracle_of <- function(model, base) exact_oracle(model, law_of(base, model$dim))
mu <- c(0.3, -0.2, 0.5)

busy <- lapply(setNames(families, families), busy_glm)
# made when the first test asks for them
delayedAssign("busy_oracles", lapply(busy, function(data) lapply(laws, function(law) {
  tryCatch(oracle_of(data$model, law$base), elvi_error_no_expectation = function(e) NULL)
})))

test_that("only losses with an exponential have bases without an expectation", {
  skip_on_cran()
  refused <- lapply(busy_oracles, function(by_base) names(Filter(is.null, by_base)))
  expect_identical(refused, list(logit = character(), probit = character(), cloglog = too_heavy, poisson = too_heavy,
                                 normal = character()))
})

test_that("E f, its gradient and B are the sums of integrals, for every family, base and scale", {
  skip_on_cran()
  for (family in families) {
    data <- busy[[family]]
    for (name in names(laws)) {
      oracle <- busy_oracles[[family]][[name]]
      if (is.null(oracle)) next
      for (kind in kinds) {
        scale <- some_scale(kind, 3)
        at <- oracle(kind, mu, scale)
        truth <- plain_exact(data, nodes[[name]], mu, tcrossprod(as_root(scale)))
        label <- paste(family, name, kind)
        expect_equal(at$value, truth$value, tolerance = 1e-10, info = label)
        expect_equal(at$g_mu, truth$g_mu, tolerance = 1e-10, info = label)
        expect_equal(at$B, truth$B, tolerance = 1e-10, info = label)
        expect_equal(at$objective, at$value - log(det(as_root(scale))), tolerance = 1e-14, info = label)
      }
    }
  }
})

test_that("E f is the mean of f over draws, within four standard errors", {
  skip_on_cran()
  for (family in families) {
    data <- busy[[family]]
    for (name in names(laws)) {
      oracle <- busy_oracles[[family]][[name]]
      if (is.null(oracle)) next
      z <- withr_seed(7, base_draws(laws[[name]]$base, 2e4, 3))
      for (kind in c("symmetric", "triangular")) {
        scale <- some_scale(kind, 3)
        x <- mu + scale %*% z
        # the same target, all draws at once
        eta <- data$X %*% x + data$offset
        loss <- switch(family,
          logit = -data$y * eta + data$trials * log1p(exp(eta)),
          probit = -data$y * pnorm(eta, log.p = TRUE) - (data$trials - data$y) * pnorm(-eta, log.p = TRUE),
          cloglog = -data$y * pexp(exp(eta), log.p = TRUE) + (data$trials - data$y) * exp(eta),
          poisson = exp(eta) - data$y * eta,
          normal = (eta - data$y)^2 / (2 * data$dispersion))
        f <- colSums(data$weights * loss) + colSums(((x - data$location) / data$scale)^2) / 2
        expect_equal(f[1:3], plain_target(data, x[, 1:3]), tolerance = 1e-12)
        value <- oracle(kind, mu, scale)$value
        expect_lt(abs(mean(f) - value), 4 * sd(f) / sqrt(length(f)), label = paste(family, name, kind))
      }
    }
  }
})

test_that("g_mu is the gradient in mu and B scale - scale^-T that in the scale", {
  skip_on_cran()
  for (family in families) {
    data <- busy[[family]]
    for (name in intersect(names(laws), c("gaussian", "laplace", "uniform", "student5", "power3"))) {
      oracle <- busy_oracles[[family]][[name]]
      if (is.null(oracle)) next
      for (kind in kinds) {
        scale <- some_scale(kind, 3)
        at <- oracle(kind, mu, scale)
        label <- paste(family, name, kind)
        expect_equal(at$g_mu, fd_gradient(function(m) oracle(kind, m, scale)$objective, mu, 1e-4),
                     tolerance = 1e-7, info = label)
        # along every direction of its own space
        directions <- switch(kind,
          diagonal = lapply(1:3, function(i) replace(numeric(3), i, 1)),
          triangular = lapply(which(lower.tri(diag(3), TRUE)), function(i) replace(matrix(0, 3, 3), i, 1)),
          symmetric = lapply(which(lower.tri(diag(3), TRUE)), function(i) {
            D <- replace(matrix(0, 3, 3), i, 1)
            (D + t(D)) / 2
          }))
        h <- 1e-4
        slopes <- vapply(directions, function(D) {
          (oracle(kind, mu, scale + h * D)$objective - oracle(kind, mu, scale - h * D)$objective) / (2 * h)
        }, 0)
        G <- at$B %*% as_root(scale) - t(solve(as_root(scale)))
        if (kind == "diagonal") G <- diag(G)
        expect_equal(slopes, vapply(directions, function(D) sum(D * G), 0), tolerance = 1e-6, info = label)
      }
    }
  }
})

test_that("more rows than a chunk holds, in the last chunk one", {
  skip_on_cran()
  for (n in c(512, 513, 1300)) {
    data <- busy_glm("logit", n = n)
    for (kind in kinds) {
      scale <- some_scale(kind, 3)
      at <- oracle_of(data$model, base_laplace())(kind, mu, scale)
      if (kind == "symmetric" || n == 1300) {
        truth <- plain_exact(data, nodes$laplace, mu, tcrossprod(as_root(scale)))
        expect_equal(at[c("value", "g_mu", "B")], truth, tolerance = 1e-10, info = paste(n, kind))
      }
      # and rows may come in any order
      order <- rev(seq_len(n))
      turned <- model_glm(data$X[order, ], cbind(data$y, data$trials - data$y)[order, ],
                          prior = normal(data$location, data$scale), weights = data$weights[order],
                          offset = data$offset[order])
      expect_equal(oracle_of(turned, base_laplace())(kind, mu, scale), at, tolerance = 1e-12)
    }
  }
})

test_that("products of rows in blocks are those of matrices, whatever is left over at the edges", {
  skip_on_cran()
  for (size in list(c(5, 3), c(75, 3), c(76, 3), c(300, 8), c(257, 9), c(513, 13), c(200, 40), c(1100, 61))) {
    n <- size[1]
    d <- size[2]
    X <- matrix(sin(seq_len(n * d)^1.3), n)
    S <- crossprod(matrix(cos(seq_len(d * d)), d)) / (5 * d) + diag(0.1, d)
    mu <- cos(seq_len(d)) / d
    y <- as.double(seq_len(n) %% 3 == 0)
    each <- if (n <= 300) {
      exact_oracle(model_glm(diag(1, n), y, prior = flat(), weights = rep(1, n)), law_of(base_gaussian(), n))
    }
    for (shift in list(NULL, rep(0.2, d))) for (kind in c("symmetric", "triangular")) {
      scale <- if (kind == "symmetric") S else t(chol(S))
      model <- model_glm(X, y)
      model$rows["shift"] <- list(shift)
      at <- exact_oracle(model, law_of(base_gaussian(), d))(kind, mu, scale)
      U <- if (is.null(shift)) X else X - rep(shift, each = n)
      s <- sqrt(rowSums((U %*% scale)^2))
      expect_equal(at$widest, max(s), tolerance = 1e-13)
      if (is.null(each)) next
      rows <- suppressMessages(each("diagonal", drop(U %*% mu), s))   # a row each: B is diagonal
      prior <- diag(model$blocks$coefficients$precision, d)
      expect_equal(at$B[lower.tri(at$B, TRUE)], (crossprod(U * sqrt(diag(rows$B))) + prior)[lower.tri(prior, TRUE)], tolerance = 1e-12)
      expect_equal(at$g_mu, drop(crossprod(U, rows$g_mu) + prior %*% mu), tolerance = 1e-12)
    }
  }
})

test_that("rows of weight 0 do not count, whatever is in them", {
  skip_on_cran()
  X <- cbind(1, c(-1, 0, 2, 1e3))
  y <- c(1, 4, 0, 2)
  with_zero <- model_glm(X, y, poisson(), weights = c(1, 2, 0.5, 0))
  without <- model_glm(X[-4, ], y[-4], poisson(), weights = c(1, 2, 0.5))
  # the fourth row alone would have no expectation under a laplace base
  for (base in list(base_gaussian(), base_laplace(), base_uniform())) {
    a <- oracle_of(with_zero, base)("diagonal", c(0, 0), c(0.5, 0.3))
    expect_equal(a, oracle_of(without, base)("diagonal", c(0, 0), c(0.5, 0.3)), tolerance = 1e-14)
    expect_true(is.finite(a$objective))
  }
})

test_that("the scale is not overwritten, and of a symmetric one only the lower triangle is read", {
  data <- busy_glm("logit")
  oracle <- oracle_of(data$model, base_gaussian())
  scale <- some_scale("symmetric", 3)
  copy <- scale + 0
  here <- mu + 0
  at <- oracle("symmetric", here, scale)
  expect_identical(scale, copy)
  expect_identical(here, mu)
  expect_identical(at$B, t(at$B))
  half <- scale
  half[upper.tri(half)] <- NaN
  rule <- cached_quadrature(law_of(base_gaussian(), 3), "logit")
  expect_identical(.Call(elvi_r_exact, data$model, rule, "symmetric", mu, half, NULL, 1L)$value, at$value)
})

test_that("parametrisations of one law of x give one number", {
  data <- busy_glm("logit")
  C <- some_scale("triangular", 3)
  for (base in list(base_gaussian(), base_laplace(), base_student(5))) {
    oracle <- oracle_of(data$model, base)
    S <- symmetric_root(C)
    expect_equal(oracle("symmetric", mu, S), oracle("triangular", mu, C), tolerance = 1e-11)
    D <- c(0.3, 0.6, 0.2)
    expect_equal(oracle("symmetric", mu, diag(D)), oracle("diagonal", mu, D), tolerance = 1e-11)
  }
})

test_that("with a scale of 0 it is f, its gradient and its Hessian", {
  skip_on_cran()
  for (family in families) {
    data <- busy_glm(family)
    rule <- cached_quadrature(law_of(base_laplace(), 3), family)
    f <- function(x) plain_target(data, matrix(x))
    for (kind in kinds) {
      zero <- if (kind == "diagonal") numeric(3) else matrix(0, 3, 3)
      at <- .Call(elvi_r_exact, data$model, rule, kind, mu, zero, NULL, 1L)
      label <- paste(family, kind)
      expect_identical(at$status, 0L)
      expect_equal(at$value, f(mu), tolerance = 1e-13, info = label)
      expect_equal(at$g_mu, fd_gradient(f, mu), tolerance = 1e-8, info = label)
      expect_equal(at$B, fd_hessian(function(x) target_at(data$model, matrix(x))$gradient[, 1], mu),
                   tolerance = 1e-8, info = label)
    }
  }
})

test_that("nothing jumps where the curvature changes from a difference to a derivative", {
  for (family in families) {
    data <- busy_glm(family)
    oracle <- oracle_of(data$model, base_gaussian())
    B <- lapply(c(1e-8, 9e-6, 1.1e-5, 1e-4), function(s) oracle("diagonal", mu, rep(s, 3))$B)
    for (b in B[-1]) expect_equal(b, B[[1]], tolerance = 1e-7, info = family)
  }
})

test_that("far outliers keep their gradient under the probit link", {
  # -log Phi(t) ~ t^2 / 2 for t far below 0
  model <- model_glm(matrix(1), 1, binomial("probit"), flat())
  for (t in c(-49, -51, -500, -1e5)) {
    at <- oracle_of(model, base_gaussian())("diagonal", t, 0.5)
    # E m(T) and E m'(T) with Mills' ratio m(t) = -t - 1/t + 2/t^3 + ...
    expect_equal(at$g_mu, t + 1 / t - 2 / t^3 + 0.25 / t^3, tolerance = 1e-7)
    expect_equal(drop(at$B), 1 - 1 / t^2 + (6 - 3 * 0.25) / t^4, tolerance = 1e-8, info = t)
  }
})

# ---- student priors --------------------------------------------------------------------

test_that("student priors: E f, its gradient and B are integrals too, convex or not", {
  skip_on_cran()
  data <- busy_glm("logit", df = c(1, 3, Inf))
  for (name in names(laws)) {
    oracle <- oracle_of(data$model, laws[[name]]$base)
    for (kind in kinds) {
      # near the centre and far out, where the penalty is concave
      for (at in list(mu, c(-4, 6, 0.5))) {
        scale <- some_scale(kind, 3)
        got <- oracle(kind, at, scale)
        truth <- plain_exact(data, nodes[[name]], at, tcrossprod(as_root(scale)))
        expect_equal(got[c("value", "g_mu", "B")], truth, tolerance = 1e-10, info = paste(name, kind))
      }
    }
  }
  # concave: a negative part of B
  none <- busy_glm("normal", df = 1)
  none$model$rows$weight[] <- 1e-12
  at <- oracle_of(none$model, base_gaussian())("diagonal", c(9, 9, 9), c(0.5, 0.5, 0.5))
  expect_lt(max(diag(at$B)), 0)
})

test_that("student priors: with a scale of 0 it is f, its gradient and its Hessian", {
  data <- busy_glm("probit", df = c(1, 3, Inf))
  f <- function(x) plain_target(data, matrix(x))
  for (x in list(mu, c(-4, 6, 0.5))) {
    at <- point_oracle(data$model)(x)
    expect_equal(at$value, f(x), tolerance = 1e-13)
    expect_equal(at$g_mu, fd_gradient(f, x), tolerance = 1e-7)
    expect_equal(at$B, fd_hessian(function(x) target_at(data$model, matrix(x))$gradient[, 1], x), tolerance = 1e-7)
  }
})

# ---- poisson ---------------------------------------------------------------------------

test_that("poisson: closed forms for the gaussian and the laplace base", {
  skip_on_cran()
  model_at <- function(s, d) {
    suppressMessages(model_glm(matrix(c(s, numeric(d - 1)), 1, d), 2, poisson(), normal(0, 1)))
  }
  for (d in c(1, 2, 8)) {
    for (name in c("gaussian", "laplace")) {
      law <- radius_laws(d)[[name]]
      reference <- marginal_nodes(law, d)
      for (part in c(0.05, 0.3, 0.6)) {
        s <- part * if (name == "laplace") sqrt(d + 1) else 4
        oracle <- oracle_of(model_at(s, d), law$base)
        at <- oracle("diagonal", c(0.7 / s, numeric(d - 1)), rep(1, d))
        truth <- plain_integrals(reference, "poisson", 0.7, s)
        label <- paste(name, d, s)
        expect_equal(at$value - (0.7 / s)^2 / 2 - d / 2, unname(truth[1] - 2 * 0.7), tolerance = 1e-10, info = label)
        expect_equal(at$g_mu[1], unname(s * (truth[2] - 2) + 0.7 / s), tolerance = 1e-10, info = label)
        expect_equal(at$B[1, 1], unname(s^2 * truth[3] + 1), tolerance = 1e-10, info = label)
      }
    }
  }
})

test_that("poisson: with a laplace base E f is finite exactly for spreads below sqrt(d + 1)", {
  skip_on_cran()
  for (d in c(1, 3, 8)) {
    model <- model_glm(diag(d), rep(1:2, length.out = d), poisson(), normal(0, 1))
    oracle <- oracle_of(model, base_laplace())
    limit <- sqrt(d + 1)
    at <- function(s, kind = "diagonal") {
      scale <- replace(rep(0.1, d), d, s)
      oracle(kind, numeric(d), if (kind == "diagonal") scale else diag(scale, d))$objective
    }
    expect_true(is.finite(at(0.999 * limit)))
    expect_gt(at(0.999 * limit), at(0.99 * limit))
    for (kind in kinds) {
      expect_identical(at(limit, kind), Inf)
      expect_identical(at(1.5 * limit, kind), Inf)
    }
  }
})

test_that("poisson: an expectation that overflows is infinite, not an error or NaN", {
  model <- model_glm(matrix(1), 1, poisson(), normal(0, 1))
  expect_identical(oracle_of(model, base_gaussian())("diagonal", 0, 50)$objective, Inf)
  expect_identical(oracle_of(model, base_uniform())("diagonal", 0, 1e3)$objective, Inf)
})

test_that("poisson: bases with tails too heavy for exp() are refused, everywhere", {
  data <- busy_glm("poisson")
  heavy <- list(base_student(5), base_power(0.7), base_radial(function(r) -4 * log1p(r^2)))
  for (base in heavy) {
    refuse <- function(expr) expect_error(expr, class = "elvi_error_no_expectation")
    refuse(oracle_of(data$model, base))
    refuse(elvi_optimum(data$model, base))
    refuse(elvi(data$model, base, budget = 100))
    refuse(elvi(data$model, base, budget = 100, control = elvi_control(coordinates = "raw")))
    refuse(objective(list(mu = mu, Sigma = diag(3)), data$model, base))
  }
  expect_match(refusal(oracle_of(data$model, base_student(5)), "base"), "student")
})

# ---- quadratics --------------------------------------------------------------------------

test_that("quadratics: (|mu - m|_A^2 + tr(A V)) / 2 - log|scale|", {
  A <- crossprod(matrix(c(1, 0.2, -0.3, 0, 2, 0.4, 0, 0, 0.5), 3))
  m <- c(1, -1, 0.5)
  model <- model_quadratic(A, m)
  for (base in list(base_gaussian(), base_student(3))) {
    for (kind in kinds) {
      scale <- some_scale(kind, 3)
      root <- as_root(scale)
      at <- oracle_of(model, base)(kind, mu, scale)
      expect_equal(at$value, sum((mu - m) * A %*% (mu - m)) / 2 + sum(diag(A %*% root %*% t(root))) / 2,
                   tolerance = 1e-14)
      expect_equal(at$objective, at$value - log(det(root)), tolerance = 1e-14)
      expect_equal(at$g_mu, drop(A %*% (mu - m)), tolerance = 1e-14)
      expect_equal(at$B, A)
    }
  }
})

# ---- objective() and elbo() ---------------------------------------------------------------

test_that("objective() is exact at fits of every scale, and elbo() is the entropy and constants less it", {
  skip_on_cran()
  data <- busy_glm("logit", d = 2)
  trials <- data$weights * data$trials
  hits <- data$weights * data$y
  constant <- sum(lgamma(trials + 1) - lgamma(hits + 1) - lgamma(trials - hits + 1)) + sum(dnorm(0, 0, data$scale, log = TRUE))
  for (name in c("gaussian", "laplace")) {
    law <- radius_laws(2)[[name]]
    for (kind in kinds) {
      fit <- withr_seed(3, suppressMessages(elvi(data$model, law$base, budget = 300, control = elvi_control(scale = kind))))
      V <- vcov(fit)
      truth <- plain_exact(data, marginal_nodes(law, 2), unname(fit$mu), unname(V))$value - log(det(V)) / 2
      F <- objective(fit)
      expect_equal(F$estimate, truth, tolerance = 1e-11, info = paste(name, kind))
      expect_identical(F[c("se", "method", "what")], list(se = 0, method = "exact", what = "objective F"))
      # entropy of the base: E -log p(z)
      entropy <- -radial_expectation(function(r) base_log_density(law$base, rbind(r, 0)),
                                     function(r) base_log_density(law$base, rbind(r, 0)), 2, end = 60)
      E <- elbo(fit)
      expect_equal(E$estimate + F$estimate, entropy + constant, tolerance = 1e-9)
      expect_identical(E$what, "ELBO")
      # Monte Carlo agrees
      rough <- withr_seed(4, objective(fit, method = "monte_carlo", draws = 2e4))
      expect_identical(rough$method, "monte_carlo")
      expect_lt(abs(rough$estimate - truth), 4 * rough$se)
      expect_equal(withr_seed(4, elbo(fit, method = "monte_carlo", draws = 2e4))$estimate, E$entropy + constant - rough$estimate)
    }
  }
})

test_that("objective() takes a list with a matrix or a vector, and an optimum", {
  data <- busy_glm("logit")
  S <- some_scale("symmetric", 3)
  D <- c(0.3, 0.6, 0.2)
  value <- function(...) objective(..., model = data$model, base = base_laplace())$estimate
  expect_equal(value(list(mu = mu, Sigma = S)), oracle_of(data$model, base_laplace())("symmetric", mu, S)$objective)
  expect_equal(value(list(mu = mu, Sigma = D)), oracle_of(data$model, base_laplace())("diagonal", mu, D)$objective)
  expect_equal(value(list(mu = mu, Sigma = diag(D))), value(list(mu = mu, Sigma = D)), tolerance = 1e-12)
  best <- elvi_optimum(data$model, base_laplace())
  expect_equal(value(best), best$objective, tolerance = 1e-12)
  expect_equal(elbo(best, data$model, base_laplace())$estimate, best$elbo, tolerance = 1e-12)
})

test_that("objective() says what it wants", {
  data <- busy_glm("logit")
  density <- model_density(function(x) sum(x^2) / 2, identity, dim = 3)
  here <- list(mu = mu, Sigma = diag(3))
  expect_snapshot({
    cat(refusal(objective(list(mu = mu), data$model), "object"))
    cat(refusal(objective(mu, data$model), "object"))
    cat(refusal(objective(here), "model"))
    cat(refusal(objective(here, 1), "model"))
    cat(refusal(objective(here, data$model, "gaussian"), "base"))
    cat(refusal(objective(here, data$model, method = "quick"), "method"))
    cat(refusal(objective(here, density, method = "exact"), "method"))
    cat(refusal(objective(list(mu = mu, Sigma = -diag(3)), data$model), "object$Sigma"))
    cat(refusal(objective(list(mu = mu, Sigma = c(1, 0, 1)), data$model), "object$Sigma"))
    cat(refusal(objective(list(mu = mu[1:2], Sigma = diag(3)), data$model), "object$mu"))
    cat(refusal(objective(here, data$model, drwas = 5), "drwas"))
    cat(refusal(objective(here, data$model, draws = 1), "draws"))
    cat(refusal(oracle_of(busy_glm("poisson")$model, base_student(5)), "base"))
  })
})

test_that("a density has no exact objective, but an estimated one", {
  density <- model_density(function(x) sum(x^2) / 2, identity, dim = 3)
  expect_null(exact_oracle(density, law_of(base_gaussian(), 3)))
  at <- withr_seed(5, objective(list(mu = mu, Sigma = 2 * diag(3)), density, draws = 2e4))
  expect_identical(at$method, "monte_carlo")
  expect_lt(abs(at$estimate - (sum(mu^2) / 2 + 6 - 3 * log(2))), 4 * at$se)
})

test_that("estimates print what they are", {
  expect_snapshot({
    print(objective(list(mu = c(0, 0), Sigma = c(1, 1)), model_quadratic(diag(2))))
    print(elbo(list(mu = c(0, 0), Sigma = c(1, 1)), model_quadratic(diag(2))))
  })
  rough <- withr_seed(1, objective(list(mu = c(0, 0), Sigma = c(1, 1)), model_quadratic(diag(2)), method = "monte_carlo"))
  expect_output(print(rough), "Monte Carlo, standard error 0.03[0-9]*, 1,000 draws")
})
