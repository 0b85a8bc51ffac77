# What test-arguments.R calls with odd arguments: one right call for every function,
# how to tell a right answer, and the errors that are the user's own.

# ---- exceptions, each with its reason ------------------------------------------

raised_by <- function(e, names) {
  is.call(conditionCall(e)) && as.character(conditionCall(e)[[1L]])[1L] %in% names
}

own_errors <- list(
  # a required argument was left out: R itself names it
  left_out = function(e, case) {
    length(case$dropped) && grepl(paste0("argument \"", case$dropped[1L], "\" is missing"), conditionMessage(e), fixed = TRUE,
                                useBytes = TRUE)
  },
  # c() evaluates language objects once more before its methods see them
  language = function(e, case) case$template$name == "c.elvi_prior" && is.language(case$args$b),
  # a matrix is one of draws to these, and handed over to the methods of rstantools
  handed_over = function(e, case) {
    is.matrix(case$args$object) &&
      case$template$name %in% c("posterior_interval", "prior_summary", "bayes_R2", "predictive_interval")
  },
  # a user's function failed: its error must reach the user unchanged
  callback = function(e, case) inherits(e, "own_error"),
  # a user's function that cannot take the arguments it is called with: R says so
  signature = function(e, case) {
    any(vapply(case$args, function(a) is.function(a) || is.list(a), NA)) &&
      (grepl("^unused argument|is missing, with no default$", conditionMessage(e), useBytes = TRUE) ||
         raised_by(e, c("sum", "if", "length")) || any(vapply(case$args, is.primitive, NA)))
  })

# Warnings of R itself: while it evaluates the user's own variables, and when an
# argument or a column has a name that the C locale cannot write.
own_warning <- function(w, case) {
  has_nan <- any(vapply(case$args, function(a) inherits(a, "formula") && deparse1(a) == "log(-1) ~ x", NA))
  (has_nan && conditionMessage(w) == "NaNs produced") ||
    grepl("^unable to translate .* to native encoding$", conditionMessage(w), useBytes = TRUE)
}

# ---- what fits and models the templates start from ------------------------------

arguments_store <- function(which) {
  key <- paste0("arguments_", which)
  if (is.null(formula_store[[key]])) {
    formula_store[[key]] <- withr_seed(1, switch(which,
      data = infert[round(seq(1, 248, length.out = 40)), c("case", "age", "parity")],
      glm = elvi(case ~ age + parity, data = arguments_store("data"), family = binomial()),
      nested = elvi(case ~ age + (1 | parity), data = arguments_store("data"), family = binomial()),
      counts = elvi(parity ~ age, data = arguments_store("data"), family = poisson()),
      model = model_glm(cbind(1, (arguments_store("data")$age - 32) / 5), arguments_store("data")$case),
      density = model_density(function(x) sum(x^2) / 2, function(x) x, dim = 2, smoothness = 1, convex = TRUE,
                              growth = 2),
      bumpy = model_density(function(x) sum(x^2) / 2, function(x) x, dim = 2),
      fit = elvi(model_quadratic(diag(c(1, 4)), c(a = 1, b = -1)), budget = 200),
      paused = elvi(model_quadratic(diag(2)), schedule = schedule_growing(300),
                    control = elvi_control(iterations = 5)),
      run = mpsgd(c(0, 0), function(theta, n) theta - 1, schedule = schedule_growing(50, step = 0.5),
                  average = "tail", iterations = 3),
      guarantee = guarantee(arguments_store("model"), schedule = schedule_fixed(1000),
                            control = elvi_control(estimator = "reparam")),
      optimum = elvi_optimum(arguments_store("model")),
      problem = elvi_problem(case ~ age + parity, data = arguments_store("data"), family = binomial()),
      pieces = elvi(survival::Surv(time, status == 2) ~ age, data = survival::lung[1:40, ], family = piecewise_exponential(c(200, 500))),
      evidence = evidence(arguments_store("glm"))))
  }
  formula_store[[key]]
}

# ---- right answers ----------------------------------------------------------------

finite <- function(x) is.numeric(x) && all(is.finite(x))
no_nan <- function(x) is.numeric(x) && !anyNA(x)
of_class <- function(class) function(x, args) inherits(x, class)
a_vector <- function(n = NULL) function(x, args) finite(x) && (is.null(n) || length(x) == n)
a_matrix <- function(rows, columns) {
  function(x, args) is.matrix(x) && no_nan(x) && nrow(x) == args[[rows]] && ncol(x) == columns
}
a_fit <- function(x, args) {
  inherits(x, "elvi_fit") && finite(x$mu) && finite(x$Sigma) && isSymmetric(unname(x$Sigma)) &&
    all(eigen(x$Sigma, TRUE, TRUE)$values > 0)
}
an_estimate <- function(x, args) {
  inherits(x, "elvi_estimate") && is.numeric(x$estimate) && length(x$estimate) == 1L && !is.na(x$estimate)
}
an_interval <- function(x, args) is.matrix(x) && ncol(x) == 2L && no_nan(x) && all(x[, 1L] <= x[, 2L])
a_prior <- function(x, args) {
  inherits(x, "elvi_prior") && finite(x$location) && no_nan(x$scale) && all(x$scale > 0) && all(x$df > 0)
}
a_schedule <- function(x, args) inherits(x, "elvi_schedule") && finite(x$budget) && x$budget >= 1
a_model <- function(x, args) {
  inherits(x, "elvi_model") && finite(x$dim) && is.character(x$names) && length(x$names) == x$dim &&
    !anyNA(x$names) && isTRUE(is.na(x$smoothness) || x$smoothness > 0)
}
a_guarantee <- function(x, args) {
  inherits(x, "elvi_guarantee") && is.data.frame(x$assumptions) && !is.nan(x$bound) &&
    isTRUE(is.na(x$bound) || x$bound >= 0)
}

# ---- one right call for every function ---------------------------------------------

# Legal, but more than a test can wait for.
long_count <- function(most) function(v) is.numeric(v) && length(v) == 1L && isTRUE(v > most && v <= 1e10)

template <- function(name, fun, args, right, covers = name, fixed = NULL, long = list()) {
  list(name = name, fun = fun, args = args, right = right, covers = covers, fixed = fixed, long = long,
       open = setdiff(names(args()), fixed))
}

# `args` is a function so that nothing is fitted before it is needed. `fixed`
# arguments stay: the object that a generic of another package dispatches on.
argument_ordinal <- function() {
  if (is.null(argument_store$ordinal)) {
    argument_store$ordinal <- elvi(Sat ~ Infl, data = MASS::housing, weights = Freq, family = cumulative())
  }
  argument_store$ordinal
}

argument_store <- new.env(parent = emptyenv())

argument_templates <- function() {
  at <- arguments_store
  object <- function(which, ...) { force(which); function() c(list(object = at(which)), list(...)) }
  fit_method <- function(name, fun, which, right, ..., covers = name, fixed = "object", long = list()) {
    template(name, fun, object(which, ...), right, covers, fixed, long)
  }
  long_draws <- list(draws = long_count(1e5))
  in_posterior <- function(format) {
    template(format, getExportedValue("posterior", format), function() list(x = at("fit"), draws = 20, resample = TRUE),
             function(x, args) posterior::is_draws(x) && posterior::ndraws(x) == args$draws,
             paste0(format, ".elvi_fit"), "x", long_draws)
  }
  gradient_of <- function(theta, n) theta - 1
  templates <- list(
    # bases
    template("base_gaussian", base_gaussian, function() list(), of_class("elvi_base")),
    template("base_laplace", base_laplace, function() list(), of_class("elvi_base")),
    template("base_uniform", base_uniform, function() list(), of_class("elvi_base")),
    template("base_student", base_student, function() list(df = 5), function(x, args) x$df > 2 && is.finite(x$df)),
    template("base_power", base_power, function() list(shape = 1.5), function(x, args) finite(x$shape) && x$shape > 0),
    template("base_radial", base_radial,
             function() list(log_phi = function(r) -r^2 / 2, score = function(r) -r, log_concave = TRUE),
             of_class("elvi_base")),
    template("base_draws", base_draws, function() list(base = base_laplace(), n = 10, dim = 3),
             function(x, args) identical(dim(x), as.integer(c(args$dim, args$n))) && finite(x),
             long = list(n = long_count(1e5), dim = long_count(1e5))),
    template("base_log_density", base_log_density, function() list(base = base_student(5), z = diag(2)),
             function(x, args) no_nan(x) && length(x) == if (is.matrix(args$z)) ncol(args$z) else 1L),
    template("base_score", base_score, function() list(base = base_power(1.5), r = c(0.5, 2), dim = 2),
             function(x, args) no_nan(x) && length(x) == length(args$r)),
    template("base_info", base_info, function() list(base = base_laplace(), dim = 3),
             function(x, args) finite(x$entropy) && x$kurtosis >= 1 && finite(x$log_constant)),
    template("base_info of a radial base", base_info,
             function() list(base = base_radial(function(r) -r), dim = 2),
             function(x, args) finite(x$entropy) && x$kurtosis >= 1, covers = character()),
    # priors and families
    template("normal", normal, function() list(location = c(0, 1), scale = c(1, 2)), a_prior),
    template("student_t", student_t, function() list(df = 4, location = 0, scale = 2), a_prior),
    template("cauchy", cauchy, function() list(location = 0, scale = 2), a_prior),
    template("flat", flat, function() list(), a_prior),
    template("exponential", exponential, function() list(rate = 2), function(x, args) finite(x$rate) && x$rate > 0),
    # always refused
    template("laplace", laplace, function() list(location = 0, scale = 1), function(x, args) FALSE),
    template("c.elvi_prior", function(first, b) c(first, b), function() list(first = normal(), b = student_t()), a_prior,
             fixed = "first"),
    template("robust", robust, function() list(df = 4), function(x, args) finite(x$df) && x$df > 0),
    template("piecewise_exponential", piecewise_exponential, function() list(cuts = c(1, 3)), of_class("family")),
    template("neg_binomial_2", neg_binomial_2, function() list(), of_class("family")),
    template("weibull", weibull, function() list(), of_class("family")),
    template("zero_inflated_poisson", zero_inflated_poisson, function() list(), of_class("family")),
    template("zero_inflated_negbinomial", zero_inflated_negbinomial, function() list(), of_class("family")),
    template("hurdle_poisson", hurdle_poisson, function() list(), of_class("family")),
    template("hurdle_negbinomial", hurdle_negbinomial, function() list(), of_class("family")),
    template("pedigree_precision", pedigree_precision,
             function() list(id = 1:3, mother = c(NA, NA, 1), father = c(NA, NA, 2)), function(x, args) inherits(x, "Matrix")),
    template("Beta", Beta, function() list(), of_class("family")),
    template("student", student, function() list(), of_class("family")),
    template("truncated_poisson", truncated_poisson, function() list(), of_class("family")),
    template("truncated_negbinomial", truncated_negbinomial, function() list(), of_class("family")),
    template("acat", acat, function() list(), of_class("family")),
    template("beta_binomial", beta_binomial, function() list(), of_class("family")),
    template("lognormal", lognormal, function() list(), of_class("family")),
    template("categorical", categorical, function() list(), of_class("family")),
    template("multinomial", multinomial, function() list(), of_class("family")),
    template("cumulative", cumulative, function() list(link = "probit"), of_class("family")),
    template("sratio", sratio, function() list(link = "probit"), of_class("family")),
    template("cratio", cratio, function() list(link = "cloglog"), of_class("family")),
    template("cutpoints", cutpoints, function() list(object = argument_ordinal(), draws = 20, summary = FALSE),
             function(x, args) is.matrix(x) && all(is.finite(x)), fixed = "object"),
    # models
    template("model_glm", model_glm,
             function() list(X = cbind(1, at("data")$age - 32), y = at("data")$case, family = binomial(),
                             prior = normal(0, 2.5), weights = rep(1, 40), offset = rep(0.1, 40), dispersion = 1,
                             prior_aux = NULL), a_model),
    template("model_glm of counts", model_glm,
             function() list(X = cbind(1, at("data")$age - 32), y = at("data")$parity, family = poisson(),
                             prior = flat(), weights = NULL, offset = NULL), a_model, covers = character()),
    template("model_glm with sigma", model_glm,
             function() list(X = cbind(1, at("data")$age - 32), y = at("data")$parity, family = gaussian(),
                             prior = student_t(), dispersion = NULL, prior_aux = exponential(1)), a_model,
             covers = character()),
    template("model_quadratic", model_quadratic, function() list(A = diag(c(1, 4)), m = c(1, -1)), a_model),
    template("model_density", model_density,
             function() list(value = function(x) sum(x^2) / 2, gradient = function(x) x, dim = 2, smoothness = 1,
                             convex = TRUE, growth = 2, names = c("a", "b"), vectorized = FALSE,
                             constrain = function(x) c(a = x[1]), logarithms = "b"), a_model),
    template("model_native", model_native, function() list(pointer = 1, smoothness = 1, convex = NA, growth = NA,
                                                           names = NULL, constrain = NULL, logarithms = NULL), a_model),
    template("model_stan", model_stan, function() list(object = 1, smoothness = 1, convex = NA, growth = NA),
             function(x, args) FALSE),
    template("constrain_draws", constrain_draws, function() list(fit = at("fit"), draws = 10, resample = FALSE),
             function(x, args) FALSE),
    # schedules and settings
    template("schedule_fixed", schedule_fixed, function() list(budget = 100, preset = "case2"), a_schedule),
    template("schedule_decay", schedule_decay,
             function() list(budget = 100, step = 0.1, batch = 2, epsilon = 0.1, growth = 0.5), a_schedule),
    template("schedule_certified", schedule_certified, function() list(budget = 100), a_schedule),
    template("schedule_growing", schedule_growing, function() list(budget = 100, step = 0.1, batch = 2, nu = 0.1),
             a_schedule),
    template("schedule_tuned", schedule_tuned, function() list(budget = 100), a_schedule),
    template("schedule_custom", schedule_custom,
             function() list(step = c(0.1, 0.2, 0.3), batch = function(k) k + 1, iterations = 3),
             function(x, args) a_schedule(x) && finite(x$step) && all(x$step > 0) && all(x$batch >= 1) &&
               length(x$step) == length(x$batch), long = list(iterations = long_count(1e6))),
    template("schedule_rate", schedule_rate, function() list(schedule = schedule_growing()),
             function(x, args) isTRUE(is.na(x$exponent) || x$exponent < 0)),
    template("elvi_control", elvi_control,
             function() list(coordinates = "raw", scale = "symmetric", estimator = "path", update = "project",
                             average = "tail", tail = 0.5, precondition = c(mu = 1, Sigma = 0.5), backtrack = 0,
                             fixed_weight = 0.2, smoothness = 2, smoothness_safety = 2, scale_min = 0.1, scale_max = 10, mu_centre = c(0, 0),
                             mu_radius = 5, iterations = 10, trace_draws = 10, block = 8, rows_per_step = 100,
                             progress = FALSE),
             of_class("elvi_control")),
    # rows elsewhere, which are not read before a fit
    template("rows_chunked", rows_chunked, function() list(next_chunk = function(reset) NULL, cache = 0, levels = list(g = "a")), of_class("elvi_source")),
    template("rows_files", rows_files, function() list(files = c("a", "b"), reader = function(file) NULL),
             of_class("elvi_source")),
    template("rows_cluster", rows_cluster, function() list(cl = structure(list(1), class = "cluster"), load = identity, shards = 2,
                                                           timeout = 10, threads = 1), of_class("elvi_source")),
    # fits
    template("elvi of a model", elvi,
             function() list(object = at("model"), base = base_gaussian(), budget = 200, start = NULL,
                             control = elvi_control(), tol = NULL, method = "mpsgd"),
             a_fit, c("elvi", "elvi.elvi_model", "elvi.default", "elvi.formula", "elvi.character"),
             long = list(budget = long_count(1e5))),
    template("elvi in raw coordinates", elvi,
             function() list(object = at("model"), base = base_laplace(), schedule = schedule_custom(0.01, 2, 20),
                             start = list(mu = c(0, 0), Sigma = diag(2)), control = elvi_control("raw")),
             a_fit, character()),
    template("elvi of a density", elvi,
             function() list(object = at("density"), base = base_uniform(), budget = 200,
                             start = list(mu = c(0, 0), Sigma = c(1, 1)), control = elvi_control(scale = "diagonal")),
             a_fit, character(), long = list(budget = long_count(1e5))),
    template("elvi with starts", elvi, function() list(object = at("bumpy"), budget = 200, starts = 2, combine = "stack"),
             a_fit, character(),
             long = list(budget = long_count(1e5), starts = long_count(50))),
    template("elvi, exact", elvi,
             function() list(object = at("model"), base = base_gaussian(), tol = 1e-6, method = "exact",
                             control = elvi_control()), a_fit, character()),
    template("elvi of a formula", elvi,
             function() list(object = case ~ age + parity, data = at("data"), family = binomial(),
                             prior = normal(0, 2.5), prior_intercept = normal(0, 5), autoscale = FALSE,
                             weights = rep(1, 40), offset = rep(0.1, 40), base = base_gaussian(),
                             method = "exact", tol = 1e-6, control = elvi_control()),
             a_fit, character(), long = list(data = is.environment)),
    template("elvi of a formula with sigma", elvi,
             function() list(object = parity ~ age, data = at("data"), family = gaussian(), prior = normal(),
                             prior_aux = exponential(1), dispersion = NULL, subset = 1:30, na.action = na.omit,
                             contrasts = NULL, budget = 200), a_fit, character(),
             long = list(budget = long_count(1e5))),
    template("elvi of a fit", elvi, function() list(object = at("paused"), budget = 400, iterations = 12), a_fit,
             "elvi.elvi_fit", long = list(budget = long_count(1e5))),
    fit_method("update of a fit", update, "paused", a_fit, budget = 400, iterations = 12, covers = "update.elvi_fit",
               long = list(budget = long_count(1e5))),
    fit_method("update of a regression", update, "glm",
               function(x, args) a_fit(x) || (is.call(x) && isFALSE(args$evaluate)),
               formula. = . ~ . - parity, prior = normal(0, 1), evaluate = TRUE,
               covers = "update.elvi_glm"),
    template("elvi_optimum", elvi_optimum,
             function() list(model = at("model"), base = base_gaussian(), scale = "symmetric", tol = 1e-9,
                             max_evaluations = 200),
             function(x, args) finite(x$mu) && finite(x$Sigma) && finite(x$objective)),
    # judging a fit
    template("objective", objective, function() list(object = at("fit"), method = "monte_carlo", draws = 100),
             an_estimate, c("objective", "objective.elvi_fit"), long = long_draws),
    template("objective of a list", objective,
             function() list(object = list(mu = c(0, 0), Sigma = diag(2)), model = at("model"),
                             base = base_gaussian(), method = "exact", draws = 100), an_estimate,
             "objective.default", long = long_draws),
    template("elbo", elbo, function() list(object = at("fit"), method = "exact", draws = 100), an_estimate,
             c("elbo", "elbo.elvi_fit"), long = long_draws),
    template("elbo of a list", elbo,
             function() list(object = list(mu = c(0, 0), Sigma = diag(2)), model = at("model"),
                             base = base_gaussian(), method = "exact", draws = 100), an_estimate,
             "elbo.default", long = long_draws),
    template("pareto_k", pareto_k, function() list(object = at("glm"), draws = 200),
             function(x, args) is.numeric(x$k) && !is.na(x$k), c("pareto_k", "pareto_k.elvi_fit"), long = long_draws),
    template("evidence", evidence, object("glm", draws = 100, seed = 1), function(x, args) finite(x$logml),
             c("evidence", "evidence.elvi_fit", "evidence.default"), long = long_draws),
    template("bayes_factor", bayes_factor, function() list(x1 = at("glm"), x2 = at("glm"), log = TRUE),
             function(x, args) finite(x$bf), c("bayes_factor", "bayes_factor.elvi_fit", "bayes_factor.default"), "x1"),
    template("bayes_factor of evidences", bayes_factor,
             function() list(x1 = at("evidence"), x2 = at("evidence"), log = FALSE), function(x, args) finite(x$bf),
             "bayes_factor.elvi_evidence", "x1"),
    template("post_prob", function(x, y, ...) post_prob(x, y, ...),
             function() list(x = at("glm"), y = at("glm"), prior_prob = c(0.5, 0.5), model_names = c("a", "b")),
             function(x, args) finite(x) && abs(sum(x) - 1) < 1e-8, c("post_prob", "post_prob.elvi_fit", "post_prob.default"), c("x", "y")),
    template("post_prob of evidences", function(x, y, ...) post_prob(x, y, ...),
             function() list(x = at("evidence"), y = at("evidence"), prior_prob = c(0.5, 0.5)),
             function(x, args) finite(x) && abs(sum(x) - 1) < 1e-8, "post_prob.elvi_evidence", c("x", "y")),
    template("print of a Bayes factor", function(x, digits) utils::capture.output(print(x, digits = digits)),
             function() list(x = bayes_factor(at("evidence"), at("evidence")), digits = 3), function(x, args) length(x) > 0,
             "print.elvi_bayes_factor", "x"),
    template("posterior_vs_prior", posterior_vs_prior, object("glm", pars = "age", prob = 0.9, plot = FALSE), of_class("data.frame"),
             c("posterior_vs_prior", "posterior_vs_prior.elvi_glm"), "plot"),   # a plot is an answer too
    template("smooth_estimates", smooth_estimates, object("glm", select = NULL, n = 5, n_2d = 5), of_class("data.frame"),
             c("smooth_estimates", "smooth_estimates.elvi_glm"), long = list(n = long_count(1e5), n_2d = long_count(1e3))),
    template("log_prior", log_prior, object("glm", draws = 5, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws, c("log_prior", "log_prior.elvi_glm"), long = long_draws),
    template("calibrate", calibrate,
             function() list(fit = at("glm"), n = 10, from = "posterior", pars = "age", seed = 1, cores = 1, progress = FALSE),
             of_class("elvi_calibration"), "calibrate", long = list(n = long_count(12), cores = long_count(1))),
    template("elvi_problem", elvi_problem,
             function() list(formula = case ~ age + parity, data = at("data"), family = binomial(), prior = normal(0, 2.5),
                             weights = rep(1, 40), offset = rep(0.1, 40)),
             of_class("elvi_problem"), "elvi_problem", long = list(data = is.environment)),
    template("elvi_solve", elvi_solve,
             function() list(problem = at("problem"), base = base_gaussian(), method = "exact", tol = 1e-6, control = elvi_control(),
                             correct = FALSE), a_fit, "elvi_solve"),
    template("existence", existence, function() list(model = at("model"), base = base_gaussian()),
             function(x, args) is.logical(x$exists) && is.character(x$why)),
    template("bg_constants", bg_constants,
             function() list(model = at("density"), base = base_gaussian(), lambda = c(mu = 1, Sigma = 0.5),
                             optimum = list(mu = c(0, 0), Sigma = diag(2)), coordinates = "raw", alpha = 1),
             function(x, args) is.numeric(x$a) && is.numeric(x$b) && !is.nan(x$a)),
    template("guarantee", guarantee,
             function() list(model = at("model"), base = base_gaussian(), schedule = schedule_fixed(100),
                             start = list(mu = c(0, 0), Sigma = diag(2)), optimum = NULL,
                             control = elvi_control("raw", estimator = "reparam"), budget = 1000, alpha = NULL,
                             gap0 = NULL), a_guarantee, long = list(budget = long_count(1e5))),
    template("mpsgd_guarantee", mpsgd_guarantee,
             function() list(a = rbind(c(2, 1), c(1, 3)), b = c(1, 2), distance2 = c(4, 1), smoothness = 2,
                             schedule = schedule_custom(0.1, 5, 20), lambda = c(1, 0.5), slope = c(0, 0),
                             a_weights = 3, budget = NULL), a_guarantee),
    template("best_split", best_split, function() list(guarantee = at("guarantee"), budget = 1000),
             function(x, args) finite(x$bound) && x$N >= 1 && x$K >= 1 && x$N * x$K <= args$budget),
    template("budget_for", budget_for, function() list(guarantee = at("guarantee"), target = 1),
             function(x, args) is.numeric(x) && length(x) == 2L && !any(is.nan(x)),
             long = list(target = function(v) is.numeric(v) && length(v) == 1L && isTRUE(v > 0 && v < 1e-3))),
    fit_method("predict of a guarantee", predict, "guarantee",
               function(x, args) is.numeric(x) && length(x) == length(args$budget) && !any(is.nan(x)),
               budget = c(100, 1000), covers = "predict.elvi_guarantee",
               long = list(budget = function(v) length(v) > 1000)),
    # marginals
    template("q_density", q_density, function() list(object = at("fit"), parameter = "a", x = c(0, 1)),
             function(x, args) finite(x) && all(x >= 0) && length(x) == length(args$x)),
    template("q_probability", q_probability, function() list(object = at("glm"), parameter = 2, x = c(0, 1)),
             function(x, args) finite(x) && all(x >= 0 & x <= 1) && length(x) == length(args$x)),
    template("q_quantile", q_quantile, function() list(object = at("fit"), parameter = "b", p = c(0.1, 0.9)),
             function(x, args) no_nan(x) && length(x) == length(args$p)),
    # methods of every fit
    fit_method("coef", coef, "fit", a_vector(2), covers = c("coef.elvi_fit")),
    fit_method("coef of an optimum", coef, "optimum", a_vector(2), covers = "coef.elvi_optimum"),
    fit_method("vcov", vcov, "fit", a_vector(4), covers = "vcov.elvi_fit"),
    fit_method("vcov of an optimum", vcov, "optimum", a_vector(4), covers = "vcov.elvi_optimum"),
    fit_method("summary", summary, "fit", of_class("summary.elvi_fit"), covers = "summary.elvi_fit"),
    fit_method("confint", confint, "fit", an_interval, parm = c("a", "b"), level = 0.9, covers = "confint.elvi_fit"),
    template("posterior_interval", posterior_interval, object("glm", prob = 0.9, pars = "age"), an_interval,
             c("posterior_interval", "posterior_interval.elvi_fit")),
    fit_method("simulate", simulate, "fit", a_matrix("nsim", 2), nsim = 10, seed = 1, covers = "simulate.elvi_fit",
               long = list(nsim = long_count(1e5))),
    fit_method("sigma", sigma, "glm", a_vector(1), covers = "sigma.elvi_fit"),
    template("as.data.frame", as.data.frame, function() list(x = at("glm"), draws = 10, resample = TRUE, seed = 1),
             function(x, args) is.data.frame(x) && identical(dim(x), c(as.integer(args$draws), 3L)), "as.data.frame.elvi_fit", "x",
             long_draws),
    template("as.matrix", as.matrix, function() list(x = at("glm"), draws = 10, resample = TRUE, seed = 1),
             a_matrix("draws", 3), "as.matrix.elvi_fit", "x", long_draws),
    template("print of a fit", function(x, digits) utils::capture.output(print(x, digits = digits)),
             function() list(x = at("fit"), digits = 3), function(x, args) any(grepl("Posterior mean", x)),
             c("print.elvi_fit"), "x"),
    template("print of a summary", function(x, digits) utils::capture.output(print(x, digits = digits)),
             function() list(x = summary(at("fit")), digits = 3), function(x, args) any(grepl("Pareto", x)),
             "print.summary.elvi_fit", "x"),
    template("print of an optimum", function(x, digits) utils::capture.output(print(x, digits = digits)),
             function() list(x = at("optimum"), digits = 3), function(x, args) any(grepl("optimum", x)),
             "print.elvi_optimum", "x"),
    template("print of a run", function(x, digits) utils::capture.output(print(x, digits = digits)),
             function() list(x = at("run"), digits = 3), function(x, args) any(grepl("SGD", x)),
             "print.elvi_mpsgd", "x"),
    # methods of a regression
    fit_method("predict", predict, "glm", function(x, args) is.list(x) || is.numeric(x),
               newdata = infert[1:3, ], type = "response", se.fit = TRUE, offset = NULL, interval = "credible", level = 0.9,
               covers = "predict.elvi_glm"),
    fit_method("fitted", fitted, "glm", a_vector(40), covers = "fitted.elvi_glm"),
    fit_method("residuals", residuals, "glm", a_vector(40), type = "deviance", covers = "residuals.elvi_glm"),
    fit_method("deviance", deviance, "glm", a_vector(1), covers = "deviance.elvi_glm"),
    fit_method("df.residual", df.residual, "glm", a_vector(1), covers = "df.residual.elvi_glm"),
    fit_method("simulate of a regression", simulate, "glm",
               function(x, args) is.data.frame(x) && identical(dim(x), c(40L, as.integer(args$nsim))), nsim = 10, seed = 1,
               covers = "simulate.elvi_glm", long = list(nsim = long_count(1e4))),
    template("bayes_R2", bayes_R2, object("glm", draws = 20, seed = 1),
             function(x, args) finite(x) && length(x) == args$draws && all(x >= 0 & x <= 1), c("bayes_R2", "bayes_R2.elvi_glm"),
             long = long_draws),
    template("predictive_interval", predictive_interval,
             object("glm", prob = 0.5, newdata = infert[1:3, ], draws = 20, offset = NULL, trials = 1:3, seed = 1),
             function(x, args) is.matrix(args$object) || an_interval(x, args),   # a matrix is handed over to rstantools
             c("predictive_interval", "predictive_interval.elvi_glm"), long = long_draws),
    fit_method("nobs", nobs, "glm", a_vector(1), covers = "nobs.elvi_glm"),
    fit_method("family", family, "glm", of_class("family"), covers = "family.elvi_glm"),
    fit_method("model.matrix", model.matrix, "glm", function(x, args) is.matrix(x), covers = "model.matrix.elvi_glm"),
    template("model.frame", model.frame, function() list(formula = at("glm")), of_class("data.frame"),
             "model.frame.elvi_glm", "formula"),
    template("formula", formula, function() list(x = at("glm")), of_class("formula"), "formula.elvi_glm", "x"),
    template("terms", terms, function() list(x = at("glm")), of_class("terms"), "terms.elvi_glm", "x"),
    template("prior_summary", prior_summary, object("glm"), of_class("elvi_prior_summary"),
             c("prior_summary", "prior_summary.elvi_glm")),
    template("posterior_linpred", posterior_linpred,
             object("glm", newdata = infert[1:3, ], draws = 5, offset = NULL, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws,
             c("posterior_linpred", "posterior_linpred.elvi_glm"), long = long_draws),
    template("posterior_epred", posterior_epred,
             object("glm", newdata = infert[1:3, ], draws = 5, offset = rep(0.1, 3), seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws,
             c("posterior_epred", "posterior_epred.elvi_glm"), long = long_draws),
    template("posterior_predict", posterior_predict,
             object("glm", newdata = infert[1:3, ], draws = 5, offset = NULL, trials = 1:3, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws,
             c("posterior_predict", "posterior_predict.elvi_glm"), long = long_draws),
    template("posterior_predict of counts", posterior_predict,
             object("counts", newdata = infert[1:3, ], draws = 5, trials = NULL),
             function(x, args) is.matrix(x) && nrow(x) == args$draws, character(), long = long_draws),
    # a piecewise exponential fit
    fit_method("predict of pieces", predict, "pieces", function(x, args) is.list(x) || is.numeric(x), newdata = NULL, type = "survival",
               se.fit = TRUE, level = 0.9, covers = "predict.elvi_pieces"),
    fit_method("residuals of pieces", residuals, "pieces", a_vector(40), type = "deviance", covers = "residuals.elvi_pieces"),
    fit_method("nobs of pieces", nobs, "pieces", a_vector(1), covers = "nobs.elvi_pieces"),
    template("posterior_survival", posterior_survival, object("pieces", newdata = NULL, draws = 5, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws, long = long_draws),
    template("posterior_epred of pieces", posterior_epred, object("pieces", newdata = NULL, draws = 5, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws, c("posterior_epred.elvi_pieces", "posterior_linpred.elvi_pieces"),
             fixed = "object", long = long_draws),
    template("posterior_predict of pieces", posterior_predict, object("pieces", newdata = NULL, draws = 5, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws, "posterior_predict.elvi_pieces", fixed = "object", long = long_draws),
    template("log_lik of pieces", log_lik, object("pieces", newdata = NULL, draws = 5, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws, "log_lik.elvi_pieces", fixed = "object", long = long_draws),
    # samplers of other packages
    template("init_values", init_values, function() list(fit = at("fit"), chains = 2, seed = 1),
             function(x, args) is.list(x) && length(x) == args$chains, long = list(chains = long_count(1e4))),
    template("inverse_metric", inverse_metric, function() list(fit = at("fit"), type = "dense"), function(x, args) finite(x)),
    template("as.array", as.array, function() list(x = at("fit"), draws = 5, seed = 1),
             function(x, args) length(dim(x)) == 3L && nrow(x) == args$draws, "as.array.elvi_fit", "x", long_draws),
    template("log_lik", log_lik, object("glm", newdata = NULL, draws = 5, offset = NULL, seed = 1),
             function(x, args) is.matrix(x) && nrow(x) == args$draws, c("log_lik", "log_lik.elvi_glm"),
             long = long_draws),
    # the general algorithm
    template("mpsgd", mpsgd,
             function() list(start = c(0, 0), gradient = gradient_of, project = project_box(0, 1),
                             schedule = schedule_custom(0.1, 1, 5), lambda = 0.5, average = "theorem", a = 1, tail = 0.5,
                             objective = function(theta) sum(theta), value = function(theta, n) sum((theta - 1)^2) / 2,
                             backtrack = 16, iterations = 4),
             function(x, args) inherits(x, "elvi_mpsgd") && finite(unlist(x$theta)),
             c("mpsgd", "mpsgd.default")),
    template("mpsgd in blocks", mpsgd,
             function() list(start = list(a = c(0, 0), b = diag(2)), gradient = gradient_blocks,
                             project = list(a = project_ball(0, 1), b = project_psd()),
                             schedule = schedule_growing(20, step = 0.1), lambda = c(a = 0.5, b = 1), average = "tail"),
             function(x, args) inherits(x, "elvi_mpsgd") && finite(unlist(x$theta)), character()),
    template("mpsgd of a run", mpsgd, function() list(start = at("run"), budget = 100, iterations = 5),
             of_class("elvi_mpsgd"), "mpsgd.elvi_mpsgd", long = list(budget = long_count(1e5))),
    template("project_box", function(lower, upper, x) project_box(lower, upper)(x),
             function() list(lower = c(0, 0), upper = 1, x = c(-1, 2)),
             function(x, args) finite(x) && all(x >= c(args$lower) & x <= c(args$upper))),
    template("project_ball", function(centre, radius, x) project_ball(centre, radius)(x),
             function() list(centre = c(0, 0), radius = 1, x = c(-1, 2)),
             function(x, args) finite(x) && length(x) == length(args$x)),
    template("project_simplex", function(total, x) project_simplex(total)(x),
             function() list(total = 1, x = c(-1, 2)),
             function(x, args) finite(x) && all(x >= 0) && isTRUE(all.equal(sum(x), as.double(args$total)))),
    template("project_psd", function(lower, upper, x) project_psd(lower, upper)(x),
             function() list(lower = 0.1, upper = 2, x = diag(c(-1, 5))),
             function(x, args) finite(x) && length(x) == length(args$x)),
    # experiments take long: only names and arguments that are wrong
    template("example_experiment", example_experiment, function() list(name = "no such experiment", size = 1, stored = FALSE),
             function(x, args) is.data.frame(x)))
  optional <- list(
    posterior = function() lapply(c("as_draws", "as_draws_matrix", "as_draws_df", "as_draws_array", "as_draws_list",
                                    "as_draws_rvars"), in_posterior),
    generics = function() list(
      template("tidy", generics::tidy, function() list(x = at("fit"), conf.int = TRUE, conf.level = 0.9),
               function(x, args) nrow(x) == 2L && finite(x$estimate), "tidy.elvi_fit", "x"),
      template("glance", generics::glance, function() list(x = at("fit")), function(x, args) nrow(x) == 1L,
               "glance.elvi_fit", "x"),
      template("augment", generics::augment, function() list(x = at("glm"), data = NULL, newdata = infert[1:3, ]),
               function(x, args) is.data.frame(x) && is.numeric(x$.fitted), "augment.elvi_glm", "x")),
    ggplot2 = function() list(
      fit_method("autoplot", ggplot2::autoplot, "fit", of_class("ggplot"), type = "trace", against = "evaluations",
                 optimum = NA, pars = NULL, covers = c("autoplot.elvi_fit", "plot.elvi_fit")),
      fit_method("autoplot of pairs", ggplot2::autoplot, "glm", of_class("ggplot"), type = "pairs", pars = 2:3,
                 covers = character())),
    loo = function() list(
      template("waic", function(x, draws = 100) suppressWarnings(loo::waic(x, draws)),
               function() list(x = at("glm"), draws = 100), of_class("waic"), "waic.elvi_glm", "x", long_draws),
      template("kfold", function(x, K = 2, folds = NULL, draws = 20) loo::kfold(x, K, folds, draws = draws),
               function() list(x = at("glm"), K = 2, folds = rep(1:2, 20), draws = 20), of_class("kfold"), "kfold.elvi_glm", "x",
               c(long_draws, list(K = long_count(5), folds = function(v) is.atomic(v) && length(unique(v)) > 5))),
      template("loo", function(x, draws = 100) suppressWarnings(loo::loo(x, draws)),   # loo warns of its own
               function() list(x = at("glm"), draws = 100), of_class("loo"), "loo.elvi_glm", "x", long_draws)),
    bayesplot = function() list(
      fit_method("pp_check", function(object, type = "bars", draws = 5) bayesplot::pp_check(object, type, draws), "glm", of_class("ggplot"), type = "bars", draws = 5,
                 covers = "pp_check.elvi_glm", long = long_draws)))
  present <- Filter(function(package) requireNamespace(package, quietly = TRUE), names(optional))
  c(templates, nested_templates(template, fit_method, at, long_draws),
    unlist(lapply(optional[present], function(make) make()), recursive = FALSE))
}

# methods of fits with group-level terms: 2 coefficients, the levels of one term, their standard deviation
nested_templates <- function(template, fit_method, at, long_draws) {
  columns <- function(x, args) is.matrix(x) && no_nan(x) && nrow(x) == args$draws
  draws_of <- function(name, generic) {
    template(name, generic, function() list(object = at("nested"), newdata = infert[1:3, ], draws = 10, re.form = NA,
                                            allow_new_levels = TRUE, offset = NULL), columns,
             character(), "object", long_draws)
  }
  templates <- list(
    template("elvi with groups", elvi,
             function() list(object = case ~ age + (1 | parity), data = at("data"), family = binomial(),
                             prior_sd = exponential(1), prior_cor = lkj(1)),
             of_class("elvi_glm"), character(), long = list(data = is.environment)),
    template("lkj", lkj, function() list(eta = 2), of_class("elvi_lkj")),
    fit_method("fixef", nlme::fixef, "nested", a_vector(2), covers = c("fixef.elvi_fit", "fixef")),
    fit_method("ranef", nlme::ranef, "nested", is_list, covers = c("ranef.elvi_glm", "ranef")),
    template("VarCorr", nlme::VarCorr, function() list(x = at("nested"), sigma = 1), is_list,
             c("VarCorr.elvi_glm", "VarCorr"), "x"),
    fit_method("ngrps", ngrps, "nested", a_vector(1), covers = c("ngrps.elvi_glm", "ngrps", "ngrps.default")),
    fit_method("sigma", sigma, "nested", a_vector(1), covers = character()),
    fit_method("coef with groups", coef, "nested", is_list, covers = character()),
    fit_method("vcov with groups", vcov, "nested", a_vector(4), covers = character()),
    fit_method("summary with groups", summary, "nested", of_class("summary.elvi_fit"),
               covers = character()),
    fit_method("confint with groups", confint, "nested", an_interval, parm = "age", level = 0.9,
               covers = character()),
    template("posterior_interval with groups", posterior_interval,
             function() list(object = at("nested"), prob = 0.9, pars = "age"), an_interval,
             character(), "object"),
    fit_method("predict with groups", predict, "nested", function(x, args) is.list(x) || is.numeric(x),
               newdata = infert[1:3, ], type = "response", se.fit = TRUE, re.form = NA, allow_new_levels = TRUE,
               offset = NULL, covers = character()),
    fit_method("fitted with groups", fitted, "nested", a_vector(40), covers = character()),
    fit_method("residuals with groups", residuals, "nested", a_vector(40), type = "pearson", covers = character()),
    fit_method("model.matrix with groups", model.matrix, "nested", function(x, args) is.matrix(x),
               covers = character()),
    fit_method("simulate with groups", simulate, "nested", function(x, args) length(x) > 0, nsim = 3, seed = 1,
               covers = character(), long = list(nsim = long_count(1e4))),
    draws_of("posterior_linpred", posterior_linpred), draws_of("posterior_epred", posterior_epred),
    draws_of("posterior_predict", posterior_predict),
    template("log_lik with groups", log_lik, function() list(object = at("nested"), draws = 10), columns,
             character(), "object", long_draws),
    template("as.matrix with groups", as.matrix, function() list(x = at("nested"), draws = 10), columns,
             character(), "x", long_draws),
    fit_method("elbo with groups", elbo, "nested", is_list, covers = character()),
    fit_method("pareto_k with groups", pareto_k, "nested", is_list, covers = character()),
    fit_method("prior_summary with groups", prior_summary, "nested", is_list, covers = character()),
    template("print with groups", function(x, digits) utils::capture.output(print(x, digits = digits)),
             function() list(x = at("nested"), digits = 3), function(x, args) any(grepl("Posterior mean", x)),
             character(), "x"),
    template("print of a summary with groups", function(x, digits) utils::capture.output(print(x, digits = digits)),
             function() list(x = summary(at("nested")), digits = 3), function(x, args) length(x) > 0,
             character(), "x"))
  c(templates, if (requireNamespace("generics", quietly = TRUE)) list(
    template("tidy with groups", generics::tidy,
             function() list(x = at("nested"), effects = "fixed", conf.int = TRUE, conf.level = 0.9),
             function(x, args) is.data.frame(x), character(), "x"),
    template("glance with groups", generics::glance, function() list(x = at("nested")),
             function(x, args) nrow(x) == 1L, character(), "x"),
    template("augment with groups", generics::augment, function() list(x = at("nested"), data = NULL, newdata = NULL),
             function(x, args) is.data.frame(x), character(), "x")))
}

is_list <- function(x, args) is.list(x)

gradient_blocks <- function(theta, n) list(a = theta$a - 1, b = theta$b)
