test_that("methods at the data read the rows once more", {
  skip_on_cran()
  data <- rows_data(150)
  for (case in every(c("logit", "probit", "cloglog", "poisson", "known"), 4)) {
    fit <- fit_rows(case, rows_chunked(chunks_of(data)))
    reference <- fit_rows(case, data)
    expect_equal(predict(fit, se.fit = TRUE), predict(reference, se.fit = TRUE))
    expect_equal(fitted(fit), fitted(reference))
    expect_equal(residuals(fit), residuals(reference))
    expect_equal(log_lik(fit, draws = 5), log_lik(reference, draws = 5))
    expect_equal(predict(fit, data[1:5, ], type = "response"), predict(reference, data[1:5, ], type = "response"))
    expect_length(predict(fit, data[0, ], offset = if (case == "logit") numeric()), 0L)
  }
  excluding <- lapply(list(data, rows_chunked(chunks_of(data))), function(source) {
    fitted(elvi(count ~ x, data = source, family = poisson(), na.action = na.exclude))
  })
  expect_equal(excluding[[2]], excluding[[1]])
})

test_that("draws and limits at the data read the rows once more, some rows of a chunk at a time", {
  skip_on_cran()
  data <- rows_data(12000)
  pieces <- split(seq_len(12000), rep(1:2, c(11000, 1000)))
  fit <- fit_rows("logit", rows_chunked(chunks_of(data, pieces)))
  reference <- fit_rows("logit", data)
  rows <- stats::complete.cases(data)
  used <- data[rows, ]
  expect_equal(posterior_epred(fit, draws = 20), posterior_epred(fit, used, draws = 20, offset = used$o), ignore_attr = TRUE)
  expect_equal(posterior_linpred(fit, draws = 20), posterior_linpred(reference, draws = 20), tolerance = 1e-6, ignore_attr = TRUE)
  limits <- predict(fit, type = "response", interval = "credible", level = 0.8)
  expect_equal(limits, predict(reference, type = "response", interval = "credible", level = 0.8), tolerance = 1e-6, ignore_attr = TRUE)
  expect_identical(colnames(limits), c("fit", "lwr", "upr"))
  drawn <- posterior_predict(fit, draws = 50)
  expect_identical(dim(drawn), c(50L, sum(rows)))
  expect_equal(posterior_predict(fit, draws = 50), drawn)
  expect_lt(max(abs(stats::cor(drawn[, 1:20], drawn[, 5000 + 1:20]))), 0.8)   # each chunk has noise of its own
  expect_equal(mean(drawn), mean(fitted(fit)), tolerance = 0.02)
})

test_that("methods notice that the rows have become others", {
  data <- rows_data(100)
  fit <- elvi(count ~ x + g, data = rows_files(list(1:50, integer(), 51:100), function(i) data[i, ]), family = poisson())
  expect_length(fitted(fit), 98)
  data$count[7] <- data$count[7] + 1L
  for (f in list(fitted, residuals, log_lik)) expect_error(f(fit), "their values differ", class = "elvi_error_rows")
  data <- data[-7, ]
  expect_error(predict(fit), "their values differ|instead of 98", class = "elvi_error_rows")
})

test_that("loo() reads the rows twice and holds what it returns", {
  skip_on_cran()
  skip_if_not_installed("loo")
  data <- rows_data(100)
  loos <- lapply(list(data, rows_chunked(chunks_of(data))), function(source) {
    suppressWarnings(loo::loo(fit_rows("poisson", source), draws = 200, profile = FALSE))$estimates   # profiles need rows in memory
  })
  expect_equal(loos[[2]], loos[[1]], tolerance = 1e-8)
})

test_that("what would hold all rows says so; what needs none works", {
  skip_on_cran()
  skip_if_not_installed("generics")
  data <- rows_data(100)
  fit <- fit_rows("logit", rows_chunked(chunks_of(data)))
  for (f in list(model.frame, model.matrix, generics::augment)) {
    expect_error(f(fit), class = "elvi_error_rows", regexp = "not in memory")
  }
  expect_equal(dim(posterior_predict(fit, data[c(1, 2, 4), ], draws = 6, offset = numeric(3))), c(6L, 3L))
  expect_s3_class(pareto_k(fit), "elvi_pareto_k")
  expect_equal(generics::glance(fit)$nobs, 98)
  expect_output(print(summary(fit)), "98 observations")
  grDevices::pdf(NULL)
  on.exit(grDevices::dev.off())
  expect_no_error(plot(fit))
  chunks <- rows_chunked(chunks_of(data))
  whole <- elvi(count ~ x + g, data = chunks, family = poisson())
  expect_equal(names(coef(update(whole, . ~ x))), c("(Intercept)", "x"))
  expect_false(any(c("data", "chunk") %in% names(unclass(fit))))
})

test_that("chunks with the same design have noise of their own", {
  data <- data.frame(y = sin(1:12000))
  fit <- elvi(y ~ 1, data = rows_files(1:2, function(i) data[6000 * (i - 1) + 1:6000, , drop = FALSE]), dispersion = 0.7)
  drawn <- posterior_predict(fit, draws = 50)
  for (start in c(5000, 6000, 11000)) {
    expect_lt(max(abs(stats::cor(drawn[, 1:10], drawn[, start + 1:10]))), 0.8)
  }
  expect_equal(posterior_predict(fit, draws = 50), drawn)
})
