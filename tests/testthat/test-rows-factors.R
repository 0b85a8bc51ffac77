factors_data <- function(n = 3000, levels = 60) {
  withr_seed(8, {
    d <- data.frame(x = rnorm(n, 1e4), z = rnorm(n), f = sample(sprintf("l%02d", seq_len(levels)), n, TRUE),
                    g = factor(sample(letters[1:4], n, TRUE)), b = rnorm(n) > 0, o = ordered(sample(3, n, TRUE)), w = sample(1:2, n, TRUE))
    d$f[n] <- "only here"
    d$y <- rbinom(n, 1, plogis(d$z / 2 - 1 + rnorm(levels + 1)[as.integer(factor(d$f))] / 2))
    d$count <- rpois(n, exp(d$z / 3))
    d
  })
}

builder_of <- function(formula, data, ...) {
  rows <- elvi_problem(formula, rows_chunked(chunks_of(data)), ...)$rows
  rows$recipe$builder
}

# by model.matrix(), as for terms that are no products of columns and codes
without_builder <- function(expr) with_swapped("factor_builder", function(...) NULL, expr)

test_that("designs from codes are those of model.matrix(), dense and sparse, whatever the contrasts", {
  data <- factors_data(300, 12)
  formulas <- list(y ~ x + f, y ~ 0 + f + g, y ~ z:f, y ~ g * b + o, y ~ 0 + b:g + z, y ~ splines::ns(z, 3) * g, y ~ I(z^2) + poly(z, 2):f,
                   y ~ f:g:z + x, y ~ 0 + z + z:g + f)
  for (formula in formulas) for (contrasts in list(NULL, list(g = "contr.sum"))) {
    if (!is.null(contrasts) && !"g" %in% all.vars(formula)) next
    frame <- model.frame(formula, data)
    X <- model.matrix(formula, frame, contrasts)
    recipe <- list(terms = attr(frame, "terms"), levels = lapply(Filter(function(x) is.factor(x) || is.character(x), as.list(frame)),
                                                                 function(x) levels(factor(x))), contrasts = attr(X, "contrasts"))
    builder <- factor_builder(recipe, frame, X)
    expect_false(is.null(builder))
    for (sparse in c(FALSE, TRUE)) {
      made <- built_design(replace(builder, c("sparse", "stored"), list(sparse, NULL)), frame, nrow(frame))
      expect_identical(is_sparse(made), sparse)
      expect_equal(dense_design(made), X, tolerance = 1e-13, ignore_attr = TRUE)
      if (sparse) expect_true(all(vapply(split(made$column, rep(seq_len(300), diff(made$start))), function(j) all(diff(j) > 0), NA)))
    }
  }
})

test_that("fits with many levels have sparse rows and the numbers of dense ones and of memory", {
  data <- factors_data()
  fit <- function(data, ...) elvi(y ~ x + z + f, data, binomial(), correct = FALSE)
  expect_true(builder_of(y ~ x + z + f, data, family = binomial())$sparse)
  expect_false(builder_of(y ~ z + g, data, family = binomial())$sparse)
  sparse <- fit(rows_chunked(chunks_of(data)))
  dense <- without_builder(fit(rows_chunked(chunks_of(data))))
  expect_same_fit(sparse, dense, 1e-6)
  expect_same_fit(sparse, fit(data), 1e-6)
  counts <- function(data) elvi(count ~ f * z + log(x), data, poisson(), weights = w, correct = FALSE)
  expect_same_fit(counts(rows_chunked(chunks_of(data))), counts(data), 1e-6)
  real <- function(data) elvi(x ~ f + z, data, gaussian())
  a <- real(rows_chunked(chunks_of(data)))
  b <- real(data)
  expect_lt(max(abs(a$mu - b$mu) / b$sd), 1e-8)
})

test_that("a column far from 0 loses no digits in sparse rows", {
  data <- factors_data()
  data$x <- 1e7 + data$z + rnorm(nrow(data)) / 10
  target <- function() elvi_problem(y ~ x + f, rows_chunked(chunks_of(data)), family = binomial())
  sums <- function(problem) {
    model <- as_target(problem)$target
    exact_oracle(model, law_of(base_gaussian(), model$dim))("symmetric", sin(seq_len(model$dim)), diag(0.1, model$dim))
  }
  sparse <- target()
  expect_true(sparse$rows$recipe$builder$sparse)
  expect_equal(sums(sparse), sums(without_builder(target())), tolerance = 1e-7)   # squares of 1e7 would leave two digits
})

test_that("missing values, new levels and infinite values are what they are to dense designs", {
  data <- factors_data(600, 20)
  data$z[c(1, 300)] <- NA
  data$f[200] <- NA
  a <- elvi(y ~ z + f, rows_chunked(chunks_of(data)), binomial(), correct = FALSE)
  b <- elvi(y ~ z + f, data, binomial(), correct = FALSE)
  expect_identical(a$dropped + 0, 3)
  expect_same_fit(a, b, 1e-6)
  levels <- list(f = setdiff(unique(na.omit(data$f)), "only here"))
  expect_error(elvi(y ~ z + f, rows_chunked(chunks_of(data), levels = levels), binomial()), "only here", class = "elvi_error_argument")
  data$z[5] <- Inf
  expect_error(elvi(y ~ z + f, rows_chunked(chunks_of(data)), binomial()), "z", class = "elvi_error_argument")
})

test_that("predictions, copies on disk and corrections are those of dense rows", {
  data <- factors_data(700, 20)
  fit <- function(source, ...) elvi(y ~ x + f, source, binomial(), ...)
  dense <- without_builder(fit(rows_chunked(chunks_of(data)), correct = FALSE))
  sparse <- fit(rows_chunked(chunks_of(data), cache = 1e8), correct = FALSE)
  expect_same_fit(sparse, dense, 1e-6)
  expect_equal(unname(predict(sparse)), unname(predict(dense)), tolerance = 1e-6)
  few <- data[1:200, ]
  few$f <- substr(few$f, 1, 2)
  limits <- function(data) confint(elvi(y ~ z + f, data, binomial()))
  expect_equal(limits(rows_chunked(chunks_of(few))), limits(few), tolerance = 1e-4)
})
