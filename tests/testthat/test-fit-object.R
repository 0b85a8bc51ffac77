# A fit is a list of parts by lifetime that reads like a flat one.

kinds <- c("symmetric", "triangular", "diagonal")

stochastic <- function(..., control = elvi_control()) {
  set.seed(1)
  elvi(engine_logistic(), base_laplace(), budget = 600, ..., control = control)
}

exact <- function(...) elvi(engine_logistic(), base_laplace(), ...)

regression <- function(...) {
  elvi(case ~ age + parity, data = infert, family = binomial(), ...)
}

test_that("a fit has its parts, and every field is found in its own", {
  skip_on_cran()
  for (fit in list(stochastic(), exact(), regression(), regression(budget = 300))) {
    stored <- unclass(fit)
    expect_identical(names(fit)[1:4], c("given", "plan", "state", "result"))
    expect_identical("regression" %in% names(fit), inherits(fit, "elvi_glm"))
    for (part in names(fit_fields)) for (field in setdiff(fit_fields[[part]], "control")) {
      expect_identical(fit[[field]], stored[[part]][[field]], label = field)
    }
    # the settings are those of elvi_control(), which are stored in two parts: what decides a run, and its conduct
    expect_identical(names(fit$control), names(elvi_control()))
    for (part in c("control", "conduct")) {
      expect_identical(unclass(fit$control)[names(stored$given[[part]])], unclass(stored$given[[part]]))
    }
    expect_setequal(names(fit$control), c(names(stored$given$control), names(stored$given$conduct)))
    paused <- fit
    paused$control$iterations <- 7
    expect_identical(paused$given$conduct$iterations, 7)
    paused$control$iterations <- Inf
    expect_identical(paused$given, fit$given)
    # what is stored is known to `$`, or one of the plan's and the state's own
    known <- unlist(fit_fields, use.names = FALSE)
    expect_identical(setdiff(unlist(lapply(stored[c("given", "result", "regression")], names)), known), character())
    expect_null(fit$nothing)
  }
  expect_null(exact()$state)
  expect_null(exact()$last)
  expect_null(exact()$trace)
})

test_that("`$`, `[[` and `[` agree, and completion knows what they answer", {
  fit <- stochastic()
  fields <- utils::.DollarNames(fit, "")
  expect_true(all(c("mu", "Sigma", "scale", "last", "trace", "plan", "seed", "model", "status") %in% fields))
  expect_identical(utils::.DollarNames(fit, "^Sig"), "Sigma")
  for (field in fields) expect_identical(fit[[field]], eval(call("$", fit, field)), label = field)
  expect_identical(fit[c("mu", "status")], list(mu = fit$mu, status = fit$status))
  expect_identical(fit[[1]], fit$given)
  expect_identical(fit[4], list(result = fit$result))
})

test_that("location, scale and last iterate are computed from theta, in the coordinates of the user", {
  for (kind in kinds) for (coordinates in c("raw", "whitened")) {
    schedule <- schedule_custom(0.05, 20, iterations = 15)
    set.seed(2)
    fit <- elvi(engine_logistic(), base_laplace(), schedule, control = elvi_control(coordinates, kind, smoothness = 20))
    work <- run_model(fit)
    at <- to_user(work, kind, fit$theta$mu, fit$theta$scale)
    expect_identical(unname(fit$mu), unname(at$mu))
    expect_equal(unname(fit$scale), unname(at$scale))
    root <- if (is.matrix(at$scale)) at$scale else diag(at$scale)
    expect_equal(unname(fit$Sigma %*% fit$Sigma), root %*% t(root))
    expect_equal(unname(vcov(as_gaussian(fit))), root %*% t(root))
    expect_equal(unname(fit$sd), sqrt(diag(root %*% t(root))))
    last <- to_user(work, kind, fit$state$mu, fit$state$scale)
    expect_identical(unname(fit$last$mu), unname(last$mu))
    expect_equal(unname(fit$last$scale), unname(last$scale))
    expect_identical(names(fit$mu), fit$model$names)
    expect_identical(dimnames(fit$Sigma), list(fit$model$names, fit$model$names))
  }
})

test_that("a formula's model knows what its coefficients are to the user", {
  centre <- c(0, mean(infert$age), mean(infert$parity))
  map <- rbind(c(1, -centre[-1]), cbind(0, diag(2)))
  for (kind in kinds) {
    fit <- regression(control = elvi_control(scale = kind))
    expect_equal(fit$model$intercept_shift, -centre)
    at <- fit$theta   # an exact fit is in the coordinates of its model
    root <- map %*% (if (is.matrix(at$scale)) at$scale else diag(at$scale))
    expect_equal(unname(fit$mu), drop(map %*% at$mu))
    expect_equal(unname(vcov(as_gaussian(fit))), root %*% t(root))
    expect_equal(unname(fit$scale %*% t(fit$scale)), root %*% t(root))
    if (kind == "triangular") expect_identical(fit$scale[upper.tri(fit$scale)], numeric(3))
    x <- matrix(sin(1:6), 3)
    expect_equal(uncentre_points(fit$posterior, x), map %*% x)
  }
  expect_null(elvi(case ~ age - 1, data = infert, family = binomial())$model$intercept_shift)
})

test_that("fields can be set where they live; computed ones cannot", {
  fit <- stochastic()
  fit$tol <- 0.5
  expect_identical(fit$given$tol, 0.5)
  fit$theta$mu <- c(1, 2, 3)
  expect_identical(fit$result$theta$mu, c(1, 2, 3))
  fit[["status"]] <- "paused"
  expect_identical(fit$result$status, "paused")
  fit$cpu <- NULL
  expect_false("cpu" %in% names(fit$result))
  fit$note <- "mine"
  expect_identical(fit$note, "mine")
  expect_s3_class(fit, "elvi_fit")
  for (field in c("mu", "Sigma", "scale", "last")) {
    expect_error(fit[[field]] <- 1, "computed", class = "elvi_error_argument")
  }
})

test_that("no scale is stored twice, and a checkpoint has no data", {
  skip_on_cran()
  d <- 60
  X <- matrix(sin(seq_len(5000 * d)^1.1), 5000)
  model <- model_glm(X, rep(0:1, 2500))
  file <- tempfile(fileext = ".elvi")
  on.exit(unlink(file))
  set.seed(3)
  fit <- elvi(model, budget = 300, control = elvi_control(checkpoint = file))
  expect_identical(names(read_checkpoint(file)$progress), c("plan", "state", "result"))
  # start, iterate, average, theta and the root of whitening; not the design
  expect_lt(file.size(file), 8 * 7 * d^2 + 1e5)
  expect_lt(object.size(fit$result), 8 * 2 * d^2 + 2e4)
})

test_that("a fit survives saveRDS(), str() and print()", {
  for (fit in list(stochastic(), exact(), regression())) {
    file <- tempfile(fileext = ".rds")
    saveRDS(fit, file)
    again <- readRDS(file)
    unlink(file)
    expect_identical(again$Sigma, fit$Sigma)
    expect_identical(capture.output(print(again)), capture.output(print(fit)))
    shown <- capture.output(str(fit, max.level = 1))
    expect_match(shown, "given", all = FALSE)
    expect_match(shown, "result", all = FALSE)
    expect_gt(length(capture.output(str(fit))), 20)
  }
})

test_that("a formula's mean field is looked at without a square matrix, though its intercept depends on all slopes", {
  set.seed(4)
  X <- matrix(rnorm(240, 2), 60, 4)
  y <- rbinom(60, 1, 0.4)
  fit <- elvi(y ~ X, family = binomial(), control = elvi_control(scale = "diagonal"))
  V <- vcov(fit)
  expect_gt(abs(cov2cor(V)[1L, 2L]), 0.1)
  rows <- cbind(1, X)
  with_swapped("root_matrix", function(root) stop("a square matrix"), {
    sd <- fit$sd
    expect_output(print(fit), "Posterior mean")
    link <- predict(fit, se.fit = TRUE)
    draws <- as.matrix(fit, draws = 40000)
  })
  expect_equal(sd, sqrt(diag(V)))
  expect_equal(unname(link$se.fit), sqrt(rowSums((rows %*% V) * rows)))
  expect_identical(colnames(draws), names(coef(fit)))
  expect_lt(max(abs(colMeans(draws) - coef(fit)) / sqrt(diag(V))), 0.02)
  expect_lt(max(abs(cov(draws) / tcrossprod(sqrt(diag(V))) - cov2cor(V))), 0.02)
})

test_that("settings of a fit can be set, as settings, and what the run has settled stays", {
  model <- model_quadratic(diag(2))
  set.seed(1)
  fit <- elvi(model, schedule = schedule_growing(200), control = elvi_control(iterations = 3))
  expect_error(fit$control <- NULL, "elvi_control", class = "elvi_error_argument")
  expect_error(fit$control <- list(foo = 1), "elvi_control", class = "elvi_error_argument")
  estimator <- fit$control$estimator
  fit$control <- elvi_control(tail = 0.25)
  expect_identical(fit$control$estimator, estimator)
  expect_identical(fit$control$tail, 0.25)
  fit$control$checkpoint <- NULL
  expect_null(fit$given$conduct$checkpoint)
  expect_s3_class(elvi(fit), "elvi_fit")
})
