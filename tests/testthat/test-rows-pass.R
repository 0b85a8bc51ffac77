test_that("every family has the fit of its rows in memory", {
  skip_on_cran()
  data <- rows_data()
  for (case in every(setdiff(names(rows_cases), "gaussian"), 4)) {   # by its default: test-rows-nested.R
    expect_same_fit(fit_rows(case, rows_chunked(chunks_of(data))), fit_rows(case, data))
  }
  expect_same_fit(fit_rows("gaussian", rows_chunked(chunks_of(data)), method = "mpsgd"), fit_rows("gaussian", data, method = "mpsgd"))
})

test_that("chunks may be empty, of one row, or without a complete row", {
  skip_on_cran()
  data <- rows_data(120)
  pieces <- list(integer(), 3L, 1L, 4:60, integer(), c(2L, 61:118), 119:120, integer())
  expect_same_fit(fit_rows("logit", rows_chunked(chunks_of(data, pieces))), fit_rows("logit", data))
})

test_that("a model takes chunks of X and y, dense and sparse", {
  skip_on_cran()
  data <- rows_data(120)[-c(3, 60), ]
  X <- model.matrix(~ x + z, data)
  given <- function(i) list(X = X[i, ], y = data$count[i], weights = data$w[i], offset = data$o[i])
  source <- function(shape = identity) {
    at <- 0
    rows_chunked(function(reset = FALSE) {
      at <<- if (reset) 0 else at + 1
      if (!reset && at <= 3) shape(given(seq(at, nrow(X), by = 3)))
    })
  }
  for (family in list(poisson(), neg_binomial_2())) {
    inside <- model_glm(X, data$count, family, normal(0, 2), weights = data$w, offset = data$o)
    outside <- model_glm(source(), family = family, prior = normal(0, 2))
    x <- matrix(0.1 * sin(seq_len(3 * inside$dim)), inside$dim)
    expect_equal(target_at(outside, x), target_at(inside, x), tolerance = 1e-12)
    expect_equal(outside$names, inside$names)
    expect_equal(pass_of(outside, "gram"), unname(pass_of(inside, "gram")), tolerance = 1e-12)
    expect_equal(hessian_diagonal(outside, x[, 1]), hessian_diagonal(inside, x[, 1]), tolerance = 1e-6)
  }
  inside <- elvi(model_glm(X, data$count, poisson(), weights = data$w, offset = data$o))
  outside <- elvi(model_glm(source(), family = poisson()))
  expect_lt(max(abs(inside$mu - outside$mu)), 1e-10)
  skip_if_not_installed("Matrix")
  sparse <- source(function(chunk) replace(chunk, "X", list(Matrix::Matrix(chunk$X, sparse = TRUE))))
  expect_equal(elvi(model_glm(sparse, family = poisson()))$mu, inside$mu, tolerance = 1e-9)
})

test_that("smoothness is that of memory, also whitened and with weights", {
  data <- rows_data(120)[-c(3, 60), ]
  X <- model.matrix(~ x + z, data)
  source <- rows_files(list(1:50, 51:118), function(i) list(X = X[i, ], y = data$share[i], weights = data$trials[i]))
  inside <- model_glm(X, data$share, weights = data$trials)
  outside <- model_glm(source)
  expect_equal(outside$smoothness, inside$smoothness, tolerance = 1e-10)
  law <- law_of(base_gaussian(), 3)
  L <- function(model) run_smoothness(model, whitened_model(model, "whitened", "symmetric"), law, elvi_control())$L
  expect_equal(L(outside), L(inside), tolerance = 1e-8)
})

test_that("the stochastic algorithm runs as in memory, with all estimators", {
  skip_on_cran()
  data <- rows_data(120)
  for (estimator in c("control", "reparam", "path")) {
    fits <- lapply(list(data, rows_chunked(chunks_of(data))), function(source) {
      fit_rows("logit", source, method = "mpsgd", budget = 300, control = elvi_control(estimator = estimator, scale = "triangular"))
    })
    expect_equal(fits[[2]]$mu, fits[[1]]$mu, tolerance = 1e-9)
    expect_equal(fits[[2]]$trace$objective, fits[[1]]$trace$objective, tolerance = 1e-9)
  }
})

test_that("nor does it depend on scale, base, coordinates or update", {
  skip_on_cran()
  data <- rows_data(120)
  for (control in every(list(elvi_control(scale = "symmetric", trace_draws = 30), elvi_control(scale = "diagonal"),
                             elvi_control("raw", "symmetric", "path", block = 7), elvi_control(scale = "triangular", update = "prox"),
                             elvi_control("raw", "diagonal", "reparam")), 2)) {
    base <- if (identical(control$estimator, "path")) base_student(7) else base_gaussian()
    schedule <- if (control$coordinates == "raw") schedule_custom(0.003, 12, iterations = 12)
    fits <- lapply(list(data, rows_chunked(chunks_of(data))), function(source) {
      fit_rows("logit", source, method = "mpsgd", budget = if (is.null(schedule)) 250, schedule = schedule, base = base,
               control = control)
    })
    expect_equal(fits[[2]]$mu, fits[[1]]$mu, tolerance = 1e-8)
    expect_equal(fits[[2]]$last, fits[[1]]$last, tolerance = 1e-8)
    expect_equal(fits[[2]]$trace$objective, fits[[1]]$trace$objective, tolerance = 1e-8)
    expect_identical(fits[[2]]$state$evals, fits[[1]]$state$evals)
  }
})

test_that("separable rows and dependent columns are refused as in memory", {
  X <- cbind(1, c(-2, -1, 1, 2))
  source <- rows_files(list(1:2, 3:4), function(i) list(X = X[i, ], y = c(0, 0, 1, 1)[i]))
  expect_error(elvi(model_glm(source, prior = flat())), class = "elvi_error_no_optimum")
  double <- rows_files(list(1:2, 3:4), function(i) list(X = X[i, c(1, 2, 2)], y = c(0, 1, 0, 1)[i]))
  expect_error(model_glm(double, prior = flat()), "linearly dependent")
  expect_message(model_glm(double), class = "elvi_message_collinear")
})

test_that("rows that change between passes are noticed", {
  skip_on_cran()
  data <- rows_data(120)[-c(3, 60), ]
  passes <- 0
  change <- function(how) {
    passes <<- 0
    inner <- chunks_of(data)
    rows_chunked(function(reset = FALSE) {
      if (reset) passes <<- passes + 1
      chunk <- inner(reset)
      if (!is.null(chunk) && passes == 3) how(chunk) else chunk
    })
  }
  expect_error(elvi(count ~ x, data = change(function(chunk) chunk[-1, ]), family = poisson()), class = "elvi_error_rows",
               regexp = "116 instead of 118")
  expect_error(elvi(count ~ x, data = change(function(chunk) { chunk$x[2] <- chunk$x[2] + 1e-6; chunk }), family = poisson()),
               class = "elvi_error_rows", regexp = "their values differ")
  expect_error(elvi(count ~ x, data = change(function(chunk) { chunk$count <- rev(chunk$count); chunk }), family = poisson()),
               class = "elvi_error_rows", regexp = "their values differ")
  # values that change places, in whatever belongs to a row
  for (name in c("x", "z", "o", "w")) {
    swap <- function(chunk) replace(chunk, name, list(rev(chunk[[name]])))
    expect_error(elvi(count ~ x + z, data = change(swap), family = poisson(), offset = o, weights = w), class = "elvi_error_rows",
                 regexp = "their values differ")
  }
  # but the same rows may come in another order, as databases hand them out
  expect_same_fit(elvi(count ~ x + z, data = change(function(chunk) chunk[rev(seq_len(nrow(chunk))), ]), family = poisson()),
                  elvi(count ~ x + z, data = data, family = poisson()))
  expect_error(elvi(count ~ x + g, data = change(function(chunk) { chunk$g[1] <- "new"; chunk }), family = poisson()), "new level")
})

test_that("a checkpoint belongs to its rows", {
  skip_on_cran()
  data <- rows_data(120)
  file <- tempfile()
  on.exit(unlink(file))
  control <- function(...) elvi_control(checkpoint = file, checkpoint_every = 1e-6, ...)
  run <- function(data, ...) fit_rows("logit", rows_chunked(chunks_of(data)), method = "mpsgd", budget = 300, control = control(...))
  half <- run(data, iterations = 3)
  expect_message(whole <- run(data), class = "elvi_message_checkpoint")
  expect_equal(whole$mu, fit_rows("logit", data, method = "mpsgd", budget = 300)$mu, tolerance = 1e-9)
  data$x[7] <- data$x[7] + 1
  expect_error(run(data), class = "elvi_error_checkpoint")
})

test_that("passes are told where progress is asked for", {
  skip_on_cran()
  data <- rows_data(120)
  expect_message(fit_rows("logit", rows_chunked(chunks_of(data)), control = elvi_control(progress = TRUE)),
                 "pass over 118 rows: .* rows/s", class = "elvi_message_pass")
  for (first in c("levels of factors", "means and spreads")) {
    expect_message(fit_rows("logit", rows_chunked(chunks_of(data)), control = elvi_control(progress = TRUE)),
                   paste0("pass over 1[0-9]+ rows, for ", first, ": .* rows/s"), class = "elvi_message_pass")
  }
  expect_no_message(fit_rows("logit", rows_chunked(chunks_of(data)), control = elvi_control(progress = FALSE)))
})

test_that("what belongs to rows is not given beside them", {
  source <- rows_files(list(1), function(i) list(X = diag(2), y = 0:1))
  expect_error(model_glm(source, 0:1), "`y` is not used")
  expect_error(model_glm(source, weights = 1), "`weights` is not used")
})

# X, y and weights of counts in memory, and as three chunks
counts_both_ways <- function(family, prior = normal(0, 2)) {
  data <- rows_data(120)[-c(3, 60), ]
  X <- model.matrix(~ x + z, data)
  attr(X, "assign") <- NULL
  data$w[5:9] <- 0   # rows that do not count
  source <- rows_files(list(1:40, 41, 42:118), function(i) list(X = X[i, , drop = FALSE], y = data$count[i], weights = data$w[i], offset = data$o[i]))
  list(inside = model_glm(X, data$count, family, prior, weights = data$w, offset = data$o),
       outside = model_glm(source, family = family, prior = prior))
}

test_that("every task has one answer, in memory and from chunks", {
  models <- counts_both_ways(poisson())
  x <- c(0.3, -0.2, 0.1)
  law <- law_of(base_laplace(), 3)
  rule <- model_quadrature(models$inside, law)
  exact <- function(scale) list(rule = rule, law = law, kind = "diagonal", mu = x, scale = scale)
  asked <- list(exact = exact(c(0.1, 0.2, 0.3)), exact = exact(numeric(3)), evaluate = list(x = cbind(x, -x)), values = list(x = cbind(x, -x)), gram = list(),
                reach = list(), spread = list(), extent = list(x = x), used_extent = list(x = x),
                is_recession = list(x = x, small = 1e-6), is_recession = list(x = c(-1, 0, 0), small = 10),
                diagonal = list(x = x, law = law, dispersion = 1), squares = list(x = x), excess = list(x = x),
                collect = list())
  by_name <- function(answer) if (is.list(answer)) answer[order(names(answer))] else answer
  answers <- lapply(models, function(model) Map(function(task, args) by_name(pass_of(model, task, args)), names(asked), asked))
  expect_equal(answers$outside, answers$inside, tolerance = 1e-12)
  expect_identical(unlist(answers$inside[names(asked) == "is_recession"], use.names = FALSE), c(FALSE, TRUE))
  # draws and subsamples: test-rows-draws.R, test-rows-subsample.R; triangle: test-rows-nested.R; begin, nested: test-solve-summed.R; fold_counts: test-rows-folds.R
  tasks <- names(Filter(function(task) !isTRUE(task$of_chunk), row_tasks))
  expect_setequal(tasks, c(names(asked), "draws", "subsample", "subsample_draws", "triangle", "survey", "begin", "nested",
                           "fold_counts"))
})

test_that("a regression is its likelihood and its prior", {
  for (family in list(poisson(), neg_binomial_2())) {
    model <- counts_both_ways(family)$inside
    x <- matrix(0.1 * sin(seq_len(2 * model$dim)), model$dim)
    likelihood <- c(likelihood_part(model), list(rows = model$rows))
    prior <- prior_part(model)
    at <- function(part) .Call(elvi_r_evaluate, part, x, 2L)
    expect_equal(add_up(at(likelihood), at(prior)), target_at(model, x), tolerance = 1e-13)
  }
  # a flat prior is none
  flat <- counts_both_ways(poisson(), flat())$inside
  expect_identical(.Call(elvi_r_evaluate, c(likelihood_part(flat), list(rows = flat$rows)), matrix(1, 3), 1L),
                   target_at(flat, matrix(1, 3)))
})

test_that("the number of rows in all chunks decides whether there are enough of them", {
  models <- counts_both_ways(poisson(), flat())
  expect_true(check_weak_columns(models$inside))
  expect_true(check_weak_columns(models$outside))
})

test_that("some rows of the first chunk give a start, and passes are few", {
  skip_on_cran()
  data <- withr_seed(4, data.frame(x = rnorm(6000), z = runif(6000)))
  data$yes <- withr_seed(5, rbinom(6000, 1, plogis(data$x - data$z)))
  data$count <- withr_seed(6, rpois(6000, exp(data$x - data$z)))
  pieces <- split(seq_len(6000), (seq_len(6000) - 1L) %/% 1500L)
  most <- list(yes = 6, count = 7)   # one of them the survey
  for (name in names(most)) {
    formula <- reformulate(c("x", "z"), name)
    family <- list(yes = binomial(), count = poisson())[[name]]
    passes <- 0
    old <- options(elvi.rows_progress = TRUE)
    fit <- withCallingHandlers(elvi(formula, rows_chunked(chunks_of(data, pieces)), family, correct = FALSE), elvi_message_pass = function(m) {
      passes <<- passes + 1
      invokeRestart("muffleMessage")
    })
    options(old)
    expect_lte(passes, most[[name]])
    reference <- elvi(formula, data, family, correct = FALSE)
    expect_lt(max(abs(fit$mu - reference$mu) / sqrt(diag(reference$Sigma))), sqrt(2 * (fit$optimum$certificate + reference$optimum$certificate)) + 1e-9)
    expect_identical(fit$optimum$certificate_kind, "rigorous")
  }
})
