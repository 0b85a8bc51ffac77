# Another package's class with methods for the generics of 'rstantools', as rstanarm and brms have.
with_foreign_methods <- function(code) {
  generics <- c("posterior_linpred", "posterior_epred", "posterior_predict", "log_lik", "posterior_interval",
                "prior_summary")
  for (generic in generics) {
    local({
      name <- generic
      registerS3method(name, "elvi_test_foreigner", function(object, ...) list(generic = name, dots = list(...)),
                       envir = asNamespace("rstantools"))
    })
  }
  code(generics, structure(list(), class = "elvi_test_foreigner"))
}

test_that("elvi's generics hand other packages' objects to the methods of those packages", {
  skip_if_not_installed("rstantools")
  with_foreign_methods(function(generics, foreigner) {
    for (generic in generics) {
      expect_identical(getExportedValue("elvi", generic)(foreigner, draws = 3),
                       list(generic = generic, dots = list(draws = 3)))
    }
  })
})

test_that("the generics of rstantools know elvi's fits", {
  skip_if_not_installed("rstantools")
  fit <- elvi(case ~ age, data = infert, family = binomial())
  expect_identical(dim(rstantools::posterior_predict(fit, draws = 3)), c(3L, 248L))
  expect_identical(dim(rstantools::log_lik(fit, draws = 3)), c(3L, 248L))
  expect_identical(rstantools::posterior_interval(fit), posterior_interval(fit))
  expect_identical(rstantools::prior_summary(fit), prior_summary(fit))
})

test_that("a matrix of draws has intervals, as in rstantools", {
  skip_if_not_installed("rstantools")
  draws <- matrix(sin(1:200), 100, dimnames = list(NULL, c("a", "b")))
  expect_identical(posterior_interval(draws, prob = 0.5), rstantools::posterior_interval(draws, prob = 0.5))
})

test_that("what no package knows is refused by name", {
  for (generic in c("posterior_predict", "log_lik", "prior_summary", "posterior_interval")) {
    expect_error(getExportedValue("elvi", generic)(1), class = "elvi_error_argument")
  }
})

test_that("fits of rstanarm work as before whatever the order of loading", {
  skip_on_cran()
  skip_if_not_installed("rstanarm")
  script <- c(
    'fit <- suppressWarnings(rstanarm::stan_glm(mpg ~ wt, data = mtcars, chains = 1, iter = 200, refresh = 0, seed = 1))',
    'for (generic in c("posterior_predict", "posterior_epred", "posterior_linpred", "log_lik")) {',
    '  stopifnot(identical(dim(match.fun(generic)(fit)), c(100L, 32L)))',
    '}',
    'stopifnot(identical(posterior_interval(fit), rstanarm::posterior_interval(fit)))',
    'stopifnot(inherits(prior_summary(fit), "prior_summary.stanreg"))',
    'mine <- elvi(mpg ~ wt, data = mtcars, method = "mpsgd", tol = 0.1)',
    'stopifnot(identical(dim(posterior_predict(mine, draws = 5)), c(5L, 32L)))',
    'cat("all well")')
  for (order in list(c("elvi", "rstanarm"), c("rstanarm", "elvi"))) {
    attach <- sprintf("suppressPackageStartupMessages(library(%s))", order)
    file <- tempfile(fileext = ".R")
    writeLines(c(attach, script), file)
    out <- suppressWarnings(system2(file.path(R.home("bin"), "Rscript"), shQuote(file), stdout = TRUE, stderr = TRUE))
    expect_match(paste(out, collapse = "\n"), "all well", fixed = TRUE)
  }
})
