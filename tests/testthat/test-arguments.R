# Every exported function, and every method of a fit, called with thousands of odd
# arguments (helper-generate.R). A call may do two things only: return a right
# answer, or raise an `elvi_error` - for a bad argument an `elvi_error_argument`
# that names it. No raw error of R, no warning but an `elvi_warning`, no hang.

# ---- the properties ---------------------------------------------------------------

other_packages_methods <- local({
  methods <- getNamespaceInfo("elvi", "S3methods")
  theirs <- methods[, 4L] %in% c("bayestestR", "bridgesampling", "effects", "emmeans", "insight", "marginaleffects", "multcomp",
                                "parameters", "performance", "priorsense", "rstanarm")
  # a name that elvi has for something of its own is none of a generic below
  methods[theirs & !methods[, 1L] %in% ls(asNamespace("elvi")), 3L]
})

# not called with odd arguments, each for a reason
without_template <- c(
  # no argument at all
  "elvi_threads",
  # no argument but the object itself
  "autoplot.elvi_calibration", "plot.elvi_calibration", "print.elvi_calibration", "print.elvi_evidence", "print.elvi_problem",
  "print.elvi_base", "print.elvi_bg", "print.elvi_control", "print.elvi_estimate", "print.elvi_existence",
  "print.elvi_experiment", "print.elvi_guarantee", "print.elvi_model", "print.elvi_mpsgd_guarantee", "print.elvi_pareto_k", "print.elvi_prior",
  "print.elvi_prior_summary", "print.elvi_rate", "print.elvi_schedule", "print.elvi_split", "format.elvi_prior",
  # default methods that refuse everything: covered by their generics
  "bayes_R2.default", "predictive_interval.default", "log_lik.default", "pareto_k.default", "posterior_epred.default", "posterior_interval.default",
  "posterior_linpred.default", "posterior_predict.default", "prior_summary.default", "posterior_vs_prior.default", "log_prior.default",
  "smooth_estimates.default",
  # refuse everything (test-fit-methods.R)
  "logLik.elvi_fit", "extractAIC.elvi_fit", "hatvalues.elvi_fit", "cooks.distance.elvi_fit", "influence.elvi_fit", "rstandard.elvi_fit",
  "rstudent.elvi_fit",
  # takes fits only (test-fit-loo.R)
  "anova.elvi_glm",
  # needs an object of TMB (test-target-tmb.R)
  "model_tmb",
  # needs a Stan program (test-target-stan.R)
  "loo.elvi_fit",
  # a fit is read like a list (test-fit-object.R)
  "$.elvi_fit", "[[.elvi_fit", "[.elvi_fit", "$<-.elvi_fit", "[[<-.elvi_fit", ".DollarNames.elvi_fit",
  # covered by the methods they call (test-fit-groups.R)
  "as.data.frame.VarCorr.elvi_glm", "print.VarCorr.elvi_glm", "print.ranef.elvi_glm", "as.data.frame.ranef.elvi_glm", "print.elvi_lkj", "format.elvi_lkj",
  # a scale that is a sparse factor takes nothing but itself (test-solve-sparse.R)
  "dim.elvi_sparse_root", "dim.elvi_precision_root", "print.elvi_factor_root",
  # tables of a summary
  "coef.summary.elvi_fit", "as.data.frame.summary.elvi_fit",
  # called by other packages, with what those check (test-other-packages.R)
  other_packages_methods,
  # what they take is of packages that need not be there (test-rows-sources.R)
  "rows_arrow", "rows_dbi", "print.elvi_source",
  # an experiment takes minutes
  "autoplot.elvi_experiment", "plot.elvi_experiment")

test_that("every export and every method has a template", {
  skip_on_cran()
  for (package in c("posterior", "generics", "ggplot2", "loo", "bayesplot")) skip_if_not_installed(package)
  covered <- unlist(lapply(argument_templates(), `[[`, "covers"))
  methods <- getNamespaceInfo("elvi", "S3methods")
  internal <- setdiff(ls(asNamespace("elvi")), getNamespaceExports("elvi"))   # generics that no user can call
  methods <- methods[!methods[, 1L] %in% internal, ]
  methods <- paste(sub(".*::", "", methods[, 1L]), methods[, 2L], sep = ".")
  expect_identical(sort(setdiff(c(getNamespaceExports("elvi"), methods), c(covered, without_template))), character())
  # and no template or exemption outlives its function
  expect_identical(sort(setdiff(c(covered, without_template), c(getNamespaceExports("elvi"), methods))), character())
})

test_that("the templates are right as they are", {
  skip_on_cran()
  always_refused <- c("laplace", "model_stan", "model_native", "constrain_draws", "example_experiment")
  for (template in every(argument_templates(), 2)) {
    verdict <- judge_call(list(template = template, args = template$args(), changed = character()))
    expect_identical(verdict$verdict, if (template$name %in% always_refused) "refused" else "right",
                     info = paste(template$name, verdict$why))
  }
})

expect_all_judged <- function(out) {
  wrong <- out[out$verdict == "wrong", ]
  expect(nrow(wrong) == 0L, paste0(nrow(wrong), " of ", nrow(out), " odd calls went wrong:\n",
                                   paste(utils::head(paste(wrong$case, wrong$why, sep = "\n  "), 20), collapse = "\n")))
  # the generator is worth its time: most calls are refused, and some are right
  expect_gt(mean(out$verdict == "refused"), 0.4)
  expect_gt(mean(out$verdict == "right"), 0.05)
}

test_that("odd arguments give a right answer or an error that names the argument", {
  skip_on_cran()
  expect_all_judged(run_cases(argument_templates(), 500))
})

test_that("... and thousands more do", {
  skip_unless_long()
  out <- run_cases(argument_templates(), 10000, first = 501)
  expect_all_judged(out)
  expect_lt(gc()["Vcells", "used"], 1e9)   # R still counts its memory right
  counts <- table(out$verdict)
  message(nrow(out), " calls with odd arguments: ", paste(counts, names(counts), collapse = ", "))
})

# ---- sizes ----------------------------------------------------------------------------

test_that("what no memory holds is refused before it is allocated, with its size", {
  skip_on_cran()
  fit <- arguments_store("fit")
  glm <- arguments_store("glm")
  model <- model_quadratic(diag(2))
  wide <- model_density(function(x) sum(x^2) / 2, function(x) x, dim = 1e5, smoothness = 1)
  decaying <- function(budget) guarantee(model, schedule = schedule_decay(budget, epsilon = 0.2),
                                        control = elvi_control(estimator = "reparam", average = "theorem"))
  before <- gc(reset = TRUE)
  messages <- c(
    refusal(base_draws(base_gaussian(), n = 1e9, dim = 10), "n"),
    refusal(base_draws(base_gaussian(), n = 1, dim = 2^31 - 1), "dim"),
    refusal(simulate(fit, nsim = 1e9), "nsim"),
    refusal(as.matrix(fit, draws = 1e9), "draws"),
    refusal(as.matrix(fit, draws = 5e7, resample = TRUE), "draws"),
    refusal(posterior_linpred(glm, draws = 1e9), "draws"),
    refusal(posterior_epred(glm, draws = 1e9), "draws"),
    refusal(posterior_predict(glm, draws = 1e9), "draws"),
    refusal(posterior_predict(glm, newdata = infert[rep(1, 1e4), ], draws = 1e5), "draws"),
    refusal(log_lik(glm, draws = 1e9), "draws"),
    refusal(pareto_k(fit, draws = 1e9), "draws"),
    refusal(objective(fit, method = "monte_carlo", draws = 1e12), "draws"),
    refusal(model_density(function(x) sum(x), function(x) x, dim = 1e9), "dim"),
    refusal(elvi(wide, budget = 100), "scale"),
    refusal(elvi(model, schedule = schedule_custom(0.1, 1e10, 2), control = elvi_control(block = 1e10)), "block"),
    refusal(decaying(1e10), "budget"),
    refusal(predict(decaying(1e4), budget = 1e15), "budget"),
    refusal(predict(decaying(1e4), budget = 1e10), "budget")
  )
  after <- gc()
  expect_lt(sum(after[, ncol(after)]), sum(before[, ncol(before)]) + 200)   # MB
  expect_snapshot(writeLines(messages))
})

test_that("as_draws() is refused like as.matrix()", {
  skip_on_cran()
  skip_if_not_installed("posterior")
  refusal(posterior::as_draws(arguments_store("fit"), draws = 1e9), "draws")
  refusal(posterior::as_draws_df(arguments_store("glm"), draws = 1e9), "draws")
})

test_that("the limit on sizes is an option, and 2^31 numbers are the end of it", {
  refuse_above <- function(gib, numbers) {
    old <- options(elvi.max_gib = gib)
    on.exit(options(old))
    tryCatch({
      check_size(numbers, "n", numbers)
      NA_character_
    }, elvi_error_argument = conditionMessage)
  }
  expect_identical(refuse_above(2, 2^28), NA_character_)
  expect_match(refuse_above(2, 2^28 + 1), "options(elvi.max_gib = 2)", fixed = TRUE)
  expect_identical(refuse_above(16, 2^30), NA_character_)
  expect_match(refuse_above(1000, 2^31), "2^31", fixed = TRUE)
})

test_that("a batch larger than memory runs in blocks, and can be stopped", {
  skip_on_cran()
  model <- model_quadratic(diag(2))
  long <- schedule_custom(0.1, 1e10, iterations = 2)
  setTimeLimit(elapsed = 0.3, transient = TRUE)
  on.exit(setTimeLimit())
  before <- gc(reset = TRUE)
  stopped <- tryCatch(elvi(model, schedule = long, control = elvi_control(trace_draws = 0)),
                      elvi_warning_interrupted = identity, error = identity)
  setTimeLimit()
  after <- gc()
  expect_true(inherits(stopped, "elvi_warning_interrupted") || grepl("time limit", conditionMessage(stopped)))
  expect_lt(sum(after[, ncol(after)]), sum(before[, ncol(before)]) + 100)
})
