kinds <- c("symmetric", "triangular", "diagonal")

named_model <- function() model_quadratic(matrix(c(2, 0.5, 0.5, 1), 2), m = c(a = 1, b = -1))

quick_fit <- function(..., model = named_model(), budget = 400) {
  set.seed(61)
  raw_fit(model, budget = budget, ...)
}

# what depends on the clock, or on the last bits of the linear algebra
stable <- function(lines) {
  lines <- sub("[0-9.]+ s CPU", "<time> s CPU", lines)
  sub("known to [^ ]+ nats", "known to <little> nats", lines)
}

test_that("a fit prints what it is and how it was run", {
  skip_on_cran()
  set.seed(1)
  many <- elvi(model_quadratic(diag(12), m = 1:12), base_laplace(), schedule_growing(200, batch = 2),
               control = raw_control(scale = "diagonal", average = "last"))
  X <- cbind("(Intercept)" = 1, dose = seq(-1, 1, length.out = 20))
  set.seed(2)
  glm <- elvi(model_glm(X, rep(c(0, 1, 1, 0, 1), 4), prior = normal(0, 2)), base_student(6), schedule_fixed(900),
              control = raw_control(average = "tail", smoothness = 6, iterations = 20))
  set.seed(3)
  tuned <- elvi(model_glm(X, rep(c(0, 1, 1, 0, 1), 4), prior = normal(0, 2)), budget = 500)
  expect_snapshot({
    print(quick_fit(), digits = 3)
    print(many, digits = 3)
    print(glm, digits = 3)
    print(tuned, digits = 3)
    print(quick_fit(trace_draws = 0, scale = "triangular"), digits = 3)
  }, transform = stable)
})

test_that("a fit in one dimension prints", {
  expect_output(print(quick_fit(model = model_quadratic(matrix(3)))), "mean +sd *\nx1")
})

test_that("an interrupted exact fit does not print as one at the optimum", {
  fit <- elvi(am ~ wt, mtcars, family = binomial())
  expect_output(print(fit), "Converged: at most")
  fit$status <- "interrupted"
  expect_output(print(fit), "(at the best point so far)", fixed = TRUE)
})

test_that("a diverged fit prints so", {
  expect_warning(fit <- raw_fit(named_model(), schedule = schedule_custom(3, 1, iterations = 10)),
                 class = "elvi_warning_diverged")
  expect_output(print(fit), "Run DIVERGED")
})

test_that("the summary has the table, the run and the bounds", {
  fit <- quick_fit()
  set.seed(2)
  s <- summary(fit)
  expect_equal(s$table[, 1:2], cbind(mean = coef(fit), sd = sqrt(diag(vcov(fit)))))
  expect_equal(s$objective, objective(fit))
  expect_equal(s$elbo$estimate + s$objective$estimate, log(2 * pi) + 1)   # the entropy
  best <- 1 + log(1.75) / 2                                               # d/2 + log|A|/2
  expect_equal(s$gap$optimum$objective, best, tolerance = 1e-9)
  expect_equal(s$gap$gap, s$objective$estimate - best, tolerance = 1e-9)
  expect_snapshot(print(s, digits = 3), transform = stable)
})

test_that("the summary of a user's target has no gap, and simulated bounds", {
  own <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, smoothness = 1)
  set.seed(4)
  s <- summary(raw_fit(own, start = list(mu = c(2, 2))))
  expect_null(s$gap)
  expect_identical(s$objective$method, "monte_carlo")
  expect_output(print(s), "Monte Carlo, standard error")
})

test_that("coef() is mu and vcov() the square of Sigma, with names", {
  for (kind in kinds) {
    fit <- quick_fit(scale = kind)
    expect_identical(coef(fit), fit$mu)
    expect_named(coef(fit), c("a", "b"))
    expect_equal(vcov(fit), fit$Sigma %*% fit$Sigma)
    expect_identical(dimnames(vcov(fit)), list(c("a", "b"), c("a", "b")))
    expect_identical(vcov(fit), t(vcov(fit)))
    S <- engine_full(fit$scale)
    expect_equal(unname(vcov(fit)), tcrossprod(S), tolerance = 1e-12)
    expect_identical(dimnames(fit$Sigma), list(c("a", "b"), c("a", "b")))
    expect_named(fit$last$mu, c("a", "b"))
  }
  expect_named(coef(quick_fit(model = engine_quadratic(3))), c("x1", "x2", "x3"))
})

test_that("simulate() draws from the approximation", {
  for (kind in kinds) for (base in list(base_gaussian(), base_laplace(), base_uniform())) {
    set.seed(62)
    fit <- raw_fit(named_model(), base, scale = kind)
    if (kind == "triangular") fit <- elvi(named_model(), base, schedule_custom(0.1, 3, iterations = 9),
                                          start = list(mu = c(3, 3)), control = elvi_control(scale = kind))
    x <- simulate(fit, nsim = 10000, seed = 1)
    expect_equal(dim(x), c(10000L, 2L))
    expect_identical(colnames(x), c("a", "b"))
    centred <- t(x) - coef(fit)
    products <- rbind(centred, centred[1, ]^2, centred[2, ]^2, centred[1, ] * centred[2, ])
    V <- vcov(fit)
    z <- (rowMeans(products) - c(0, 0, V[1, 1], V[2, 2], V[1, 2])) / (apply(products, 1, sd) / 100)
    expect_lt(max(abs(z)), 4, label = paste(kind, base$kind))
    # the radius tells the bases apart: E|z|^4 = d(d+2) kappa/3
    r4 <- stats::mahalanobis(x, coef(fit), V)^2
    expect_lt(abs(mean(r4) - 8 * engine_kurtosis(base, 2) / 3), 4 * sd(r4) / 100, label = base$kind)
  }
})

test_that("simulate() is mu + scale z for the draws of its seed", {
  for (kind in kinds) {
    fit <- quick_fit(scale = kind)
    x <- simulate(fit, nsim = 5, seed = 3)
    set.seed(3)
    z <- base_draws(base_gaussian(), 5, 2)
    expect_equal(unname(x), unname(t(fit$mu + engine_full(fit$scale) %*% z)))
  }
})

test_that("simulate() obeys seeds and leaves R's generator as it was", {
  fit <- quick_fit()
  set.seed(4)
  before <- .Random.seed
  a <- simulate(fit, 3, seed = 9)
  expect_identical(.Random.seed, before)
  expect_identical(a, simulate(fit, 3, seed = 9))
  expect_false(identical(a, simulate(fit, 3, seed = 10)))
  set.seed(4)
  b <- simulate(fit, 3)
  expect_false(identical(.Random.seed, before))
  set.seed(4)
  expect_identical(b, simulate(fit, 3))
  expect_equal(dim(simulate(fit)), c(1L, 2L))
  # also where R has drawn nothing yet
  keep <- .Random.seed
  rm(".Random.seed", envir = globalenv())
  expect_identical(simulate(fit, 3, seed = 9), a)
  assign(".Random.seed", keep, envir = globalenv())
})

test_that("update() goes on with a run", {
  set.seed(63)
  fit <- raw_fit(named_model(), iterations = 7)
  expect_identical(engine_bare(update(fit)), engine_bare(elvi(fit)))
  expect_equal(update(fit, iterations = 9)$state$k, 9)
})

test_that("a saved fit works in another process", {
  skip_on_cran()
  own <- model_density(function(x) colSums(x^2) / 2, function(x) x, dim = 2, smoothness = 1)
  radial <- base_radial(function(r) -2 * log(cosh(r / 2)))
  fits <- list(native = quick_fit(iterations = 10),
               glm = quick_fit(model = engine_logistic(), scale = "triangular", iterations = 10),
               own = quick_fit(model = own, iterations = 10),
               radial = raw_fit(named_model(), radial, 100, iterations = 4),
               whitened = elvi(engine_logistic(), base_laplace(), budget = 300, control = elvi_control(iterations = 6)))
  file <- tempfile(fileext = ".rds")
  on.exit(unlink(file))
  saveRDS(fits, file)
  use <- function(fit) {
    set.seed(5)
    list(print = capture.output(print(fit)), draws = simulate(fit, 4, seed = 1), objective = objective(fit),
         elbo = elbo(fit), resumed = elvi(fit)[c("mu", "Sigma", "state", "status", "seed")])
  }
  other <- in_new_r(c(paste("use <-", paste(deparse(use), collapse = "\n")),
                      sprintf("out <- lapply(readRDS(%s), use)", deparse(normalizePath(file, winslash = "/")))))$out
  for (name in names(fits)) expect_identical(other[[name]], use(fits[[name]]), label = name)
})

test_that("methods refuse bad arguments by name", {
  fit <- quick_fit()
  messages <- c(
    refusal(simulate(fit, nsim = 0), "nsim"),
    refusal(simulate(fit, nsim = 2.5), "nsim"),
    refusal(simulate(fit, seed = "x"), "seed"),
    refusal(simulate(fit, n_sim = 3), "n_sim"),
    refusal(update(fit, bugdet = 3), "bugdet"))
  expect_snapshot(writeLines(messages))
})

test_that("methods take no argument silently that they do not know", {
  fit <- elvi(case ~ age, data = infert, family = binomial())
  messages <- c(
    refusal(coef(fit, digits = 3), "digits"),
    refusal(vcov(fit, scale = TRUE), "scale"),
    refusal(summary(fit, level = 0.9), "level"),
    refusal(nobs(fit, weights = TRUE), "weights"),
    refusal(family(fit, link = "logit"), "link"),
    refusal(formula(fit, data = infert), "data"),
    refusal(terms(fit, data = infert), "data"),
    refusal(model.frame(fit, data = infert), "data"),
    refusal(model.matrix(fit, data = infert), "data"),
    refusal(coef(elvi_optimum(model_quadratic(diag(2))), digits = 3), "digits"),
    refusal(print(fit, digits = "three"), "digits")
  )
  expect_snapshot(writeLines(messages))
  # the one argument that the generics of stats have
  expect_identical(coef(fit, complete = FALSE), coef(fit))
  expect_identical(vcov(fit, complete = FALSE), vcov(fit))
})

test_that("generics of elvi say what they are for", {
  quadratic <- elvi(model_quadratic(diag(2)), method = "exact")
  messages <- c(
    refusal(posterior_predict(quadratic), "object"),
    refusal(posterior_epred(3), "object"),
    refusal(posterior_linpred(NULL), "object"),
    refusal(log_lik(mtcars), "object"),
    refusal(prior_summary(quadratic), "object"),
    refusal(posterior_interval(mtcars), "object"),
    refusal(pareto_k(lm), "object")
  )
  expect_snapshot(writeLines(messages))
})

test_that("each row is printed to the digits that its sd has, with aligned decimal points", {
  table <- cbind(mean = c(income = -1234.5678, age = 0.0331234, none = -1e-7, far = NA), sd = c(345.678, 0.00512, 0.02, Inf))
  expect_equal(unname(trimws(aligned_by_sd(table, 2L))[, "mean"]), c("-1235", "0.0331", "0.000", "NA"))
  expect_equal(unname(trimws(aligned_by_sd(table, 3L))[, "sd"]), c("346", "0.00512", "0.0200", "Inf"))
  pointed <- aligned_by_sd(table[1:3, ], 4L)
  expect_equal(unique(nchar(sub("^[^.]*", "", pointed[, "mean"]))), max(nchar(sub("^[^.]*", "", pointed[, "mean"]))))
  tiny <- aligned_by_sd(cbind(mean = 123456789, sd = 1e-12), 3L)
  expect_lt(max(nchar(tiny)), 12)
  expect_output(print_table(table, 3L), "age")
})
