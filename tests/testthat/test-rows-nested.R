test_that("a gaussian regression from chunks integrates over sigma, as in memory", {
  skip_on_cran()
  data <- rows_data(200)
  source <- rows_chunked(chunks_of(data))
  for (arguments in expression(list(real ~ x + g), list(real ~ x + g, weights = w),
                               list(real ~ x * g, weights = w, frequency = trials, offset = o),
                               list(real ~ 0 + z, method = "nested"), list(real ~ x, subset = z > 0.3))) {
    call <- as.call(c(quote(elvi), as.list(arguments)[-1L]))
    fit <- withr_seed(5, eval(as.call(c(as.list(call), data = quote(source)))))
    reference <- withr_seed(5, eval(as.call(c(as.list(call), data = quote(data)))))
    expect_identical(fit$method, "nested")
    expect_lt(max(abs(fit$mu - reference$mu) / reference$sd), 1e-10)
    expect_equal(fit$sd, reference$sd, tolerance = 1e-10)
    expect_equal(elbo(fit), elbo(reference), tolerance = 1e-8)
    expect_equal(nobs(fit), nobs(reference), ignore_attr = TRUE)
    for (what in list(fitted, residuals, deviance, vcov, function(f) log_lik(f, draws = 20), function(f) as.matrix(f, draws = 20),
                      function(f) posterior_epred(f, draws = 20))) {
      expect_equal(what(fit), what(reference), tolerance = 1e-8, ignore_attr = TRUE)
    }
    expect_equal(predict(fit, data[1:4, ], se.fit = TRUE, offset = rep(0, 4)), predict(reference, data[1:4, ], se.fit = TRUE, offset = rep(0, 4)))
    expect_identical(dim(posterior_predict(fit, draws = 5)), c(5L, as.integer(nobs(fit))))
    expect_error(model.matrix(fit), class = "elvi_error_rows")
  }
})

test_that("chunks may be empty or hold a single row, and a perfect fit is refused as in memory", {
  data <- rows_data(120)
  pieces <- list(integer(), 3L, 1L, 4:60, integer(), c(2L, 61:118), 119:120, integer())
  fit <- elvi(real ~ x + z, data = rows_chunked(chunks_of(data, pieces)))
  expect_equal(coef(fit), coef(elvi(real ~ x + z, data = data)), tolerance = 1e-10)
  data$exact <- 1 + 2 * data$x
  expect_error(elvi(exact ~ x, data = rows_chunked(chunks_of(data))), class = "elvi_error_no_optimum")
  expect_error(elvi(real ~ x, data = rows_chunked(chunks_of(data)), control = elvi_control(batch = 3), method = "nested"),
               class = "elvi_error_argument")
})

test_that("triangles keep what a gaussian likelihood needs, however the rows are cut", {
  set.seed(1)
  M <- matrix(rnorm(400), 80)
  R <- triangle(M)
  expect_identical(dim(R), c(5L, 5L))
  expect_equal(crossprod(R), crossprod(M))
  expect_equal(crossprod(triangle(rbind(triangle(M[1:3, ]), triangle(M[4:80, ])))), crossprod(M))
})
