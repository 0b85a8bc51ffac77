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
  skip_unless_long()   # rstanarm takes seconds to load
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

test_that("brms, loo, bayesplot and lme4 work as before whatever the order of loading, and so does elvi", {
  skip_on_cran()
  checks <- list(
    brms = c(
      "theirs <- brms:::rename_pars(brms:::brmsfit_example1)",   # comes with brms: nothing is compiled
      "for (generic in c('posterior_predict', 'posterior_epred', 'posterior_linpred', 'log_lik')) {",
      "  stopifnot(identical(dim(match.fun(generic)(theirs)), c(25L, 40L)))",
      "}",
      "stopifnot(inherits(prior_summary(theirs), 'brmsprior'), nrow(posterior_interval(theirs)) > 5, nrow(bayes_R2(theirs)) == 1)",
      "stopifnot(nrow(fixef(theirs)) == 9, names(ranef(theirs)) == 'visit', names(VarCorr(theirs)) == 'visit', unlist(elvi::ngrps(theirs)) == 4)",
      "stopifnot(nrow(predictive_interval(theirs)) == 40, inherits(suppressWarnings(loo(theirs)), 'loo'))"),
    lme4 = c(
      "theirs <- lmer(Reaction ~ Days + (1 | Subject), data = sleepstudy)",
      "stopifnot(nrow(ranef(theirs)$Subject) == 18, length(fixef(theirs)) == 2, length(VarCorr(theirs)) == 1, ngrps(theirs) == 18)"),
    loo = "stopifnot(inherits(loo(matrix(sin(1:2000), 100), r_eff = rep(1, 20)), 'loo'))",
    bayesplot = "stopifnot(inherits(pp_check(1:10, matrix(rnorm(50), 5), ppc_dens_overlay), 'ggplot'))")
  if (!long_tests()) checks$brms <- NULL   # takes seconds to load
  there <- vapply(names(checks), function(package) nzchar(system.file(package = package)), NA)
  skip_if(!any(there), "none of brms, lme4, loo, bayesplot is there")
  ours <- c("data <- transform(InsectSprays, block = factor(rep(1:12, 6)))",
            "ours <- elvi(count ~ spray + (1 | block), data = data, family = poisson())",
            "stopifnot(nrow(ranef(ours)$block) == 12, length(fixef(ours)) == 6, length(VarCorr(ours)) == 1, ngrps(ours) == 12)",
            "stopifnot(identical(dim(posterior_predict(ours, draws = 3)), c(3L, 72L)), ncol(log_lik(ours, draws = 3)) == 72)",
            "stopifnot(nrow(posterior_interval(ours)) > 5, length(bayes_R2(ours)) == 1000, nrow(predictive_interval(ours)) == 72)",
            if (there[["loo"]]) "stopifnot(inherits(loo(ours), 'loo'), inherits(waic(ours), 'waic'))",
            if (there[["bayesplot"]]) "stopifnot(inherits(pp_check(ours), 'ggplot'))")
  others <- names(checks)[there]
  for (order in every(list(c("elvi", others), c(rev(others), "elvi")), 2)) {
    file <- tempfile(fileext = ".R")
    writeLines(c(sprintf(".libPaths(c(%s))", toString(encodeString(.libPaths(), quote = "\""))),
                 sprintf("suppressWarnings(suppressPackageStartupMessages(library(%s)))", order), unlist(checks[others]), ours,
                 "cat('all well')"), file)
    out <- suppressWarnings(system2(file.path(R.home("bin"), "Rscript"), shQuote(file), stdout = TRUE, stderr = TRUE))
    expect_match(paste(out, collapse = "\n"), "all well", fixed = TRUE, label = toString(order))
  }
})
