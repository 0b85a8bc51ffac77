# Every .Call routine of elvi on small inputs: `boundary`, a named list of functions without arguments. The inputs are
# made before, so that only the routine itself runs under whatever the caller watches with. Sourced by
# tools/gctorture.R and tools/valgrind-list.R.

library(elvi)
internal <- asNamespace("elvi")

# ---- inputs ----------------------------------------------------------------------------------------------------------

X <- matrix(sin(seq_len(12)^1.3), 6)
y <- c(0, 1, 1, 0, 1, 0)
counts <- c(0, 3, 1, 2, 5, 1)
models <- suppressMessages(list(
  logit = model_glm(X, y), probit = model_glm(X, y, binomial("probit")),
  cloglog = model_glm(X, y, binomial("cloglog"), prior = student_t(3, 0, 1)),
  poisson = model_glm(X, counts, poisson()), normal = model_glm(X, counts, gaussian(), weights = 1:6, offset = y),
  sigma = model_glm(X, counts, gaussian(), dispersion = NULL, prior_aux = cauchy(0, 1)),
  robust = model_glm(X, counts, robust(df = 4)), negative = model_glm(X, counts, neg_binomial_2()),
  quadratic = model_quadratic(matrix(c(2, 1, 1, 3), 2), m = c(1, -1)),
  functions = model_density(function(x) colSums(x * x), function(x) 2 * x, dim = 2, smoothness = 2)))
# as sparse_rows() makes it, without package 'Matrix'
by_columns <- list(start = c(0L, 4L, 7L), row = c(0L, 1L, 3L, 5L, 1L, 2L, 4L), entry = sin(1:7))
sparse <- c(.Call(internal$elvi_r_by_rows, 6L, by_columns$start, by_columns$row, by_columns$entry),
            list(dim = c(6L, 2L), names = NULL))
regression <- function(X, shift, y, family, dispersion = 1) {
  internal$glm_target(list(X = X, shift = shift, y = y), family, normal(), dispersion, NULL)
}
models$sparse <- regression(sparse, NULL, y, binomial())
models$sparse_shifted <- regression(sparse, c(0.5, -1), counts, gaussian(), NULL)
models$sparse_logit <- regression(sparse, c(0.5, -1), y, binomial())
models$shifted <- regression(X, c(0.5, -1), y, binomial())
for (name in c("logit", "negative", "quadratic", "sparse")) {
  models[[paste0(name, "_whitened")]] <- internal$whitened_model(models[[name]], "whitened", "symmetric")
}
models$functions_rescaled <- internal$whitened_model(models$functions, "whitened", "diagonal")
bases <- list(gaussian = base_gaussian(), laplace = base_laplace(), uniform = base_uniform(), student = base_student(5),
              power = base_power(3), radial = base_radial(function(r) -r^2))
kinds <- c("symmetric", "triangular", "diagonal")

scale_of <- function(kind, dim) if (kind == "diagonal") rep(0.5, dim) else diag(0.5, dim)

# what elvi_r_run and elvi_r_gradient take: settings and a state
run_inputs <- function(model, base, kind, update = "project", estimator = "reparam", average = "tail",
                       backtrack = NULL) {
  law <- internal$law_of(base, model$dim)
  control <- elvi_control("raw", kind, estimator, update, average, smoothness = 4, trace_draws = 3, progress = FALSE,
                          backtrack = backtrack)
  schedule <- schedule_custom(0.05, 2, iterations = 3)
  plan <- c(internal$plan_schedule(schedule, model$dim, law$kurtosis, 4, control),
            list(seed = c(7, 11), feasible = internal$feasible_set(control, model, 4)))
  fit <- list(given = c(list(model = model, schedule = schedule), internal$split_control(control)), plan = plan, result = list(cpu = 0))
  start <- list(mu = rep(0.1, model$dim), scale = scale_of(kind, model$dim))
  list(model = model, law = law, settings = internal$run_settings(fit, 3), state = internal$initial_state(start, control, 4))
}

# ---- the calls -------------------------------------------------------------------------------------------------------

boundary <- list()
add <- function(routine, variant, call) boundary[[paste(routine, variant)]] <<- call

for (name in names(bases)) local({
  law <- internal$law_of(bases[[name]], 2)
  add("elvi_r_draws", name, function() .Call(internal$elvi_r_draws, law, c(1, 2), 3, 0, 4L))
  add("elvi_r_score", name, function() .Call(internal$elvi_r_score, law, c(0.5, 0.7)))
})
for (name in names(models)) local({
  model <- models[[name]]
  x <- matrix(0.1 * sin(seq_len(2 * model$dim)), model$dim)
  add("elvi_r_evaluate", name, function() .Call(internal$elvi_r_evaluate, model, x, 2L))
  add("elvi_r_target_values", name, function() .Call(internal$elvi_r_target_values, model, x, 2L))
})
for (name in c("logit", "logit_whitened")) local({
  model <- models[[name]]
  add("elvi_r_curvature_max", name, function() .Call(internal$elvi_r_curvature_max, model, 0.25))
})
for (name in c("logit", "shifted", "sparse", "sparse_shifted")) local({
  rows <- models[[name]]$rows
  add("elvi_r_gram", name, function() .Call(internal$elvi_r_gram, rows, TRUE))
  add("elvi_r_extent", name, function() .Call(internal$elvi_r_extent, rows, c(0.1, 0.2)))
  add("elvi_r_squares", name, function() .Call(internal$elvi_r_squares, rows, rows$weight))
  add("elvi_r_sums", name, function() .Call(internal$elvi_r_sums, rows, rows$weight))
  add("elvi_r_cross_times", name, function() .Call(internal$elvi_r_cross_times, rows, rows$weight, c(1, -2)))
  add("elvi_r_predictor", name, function() .Call(internal$elvi_r_predictor, rows, c(0.1, 0.2)))
  add("elvi_r_reach", name, function() .Call(internal$elvi_r_reach, rows))
  add("elvi_r_check_sums", name, function() .Call(internal$elvi_r_check_sums, rows, c(1, 2, 3, 4, 5)))
})
add("elvi_r_by_rows", "", function() {
  .Call(internal$elvi_r_by_rows, 6L, by_columns$start, by_columns$row, by_columns$entry)
})
for (missing in c(FALSE, TRUE)) local({
  columns <- list(c(0.5, 1, if (missing) NA else 2), 1:3)
  add("elvi_r_columns", missing, function() .Call(internal$elvi_r_columns, columns, 3L, TRUE))
})
add("elvi_r_design_of_terms", "", function() {
  table <- internal$sparse_table(stats::contr.treatment(3))
  terms <- list(list(first = 0, variables = list()),
                list(first = 1, variables = list(list(columns = 1, stride = 1, value = c(0.5, 0, 2)),
                                                 list(columns = 2, stride = 1, value = NULL, code = c(2L, 3L, 1L), levels = table))))
  .Call(internal$elvi_r_design_of_terms, terms, 3L)
})
add("elvi_r_dense_from_sparse", "", function() .Call(internal$elvi_r_dense_from_sparse, sparse, as.integer(sparse$dim[2])))
add("elvi_r_openmp", "", function() .Call(internal$elvi_r_openmp))
add("elvi_r_checksum", "", function() .Call(internal$elvi_r_checksum, as.raw(1:3)))
add("elvi_r_column_products", "", function() {
  .Call(internal$elvi_r_column_products, cbind(1, X), rbind(c(1L, 1L), c(2L, 3L), c(3L, 1L)))
})
add("elvi_r_nearest", "", function() .Call(internal$elvi_r_nearest, X, X[c(5, 2), ]))
add("elvi_r_score_quantiles", "", function() {
  .Call(internal$elvi_r_score_quantiles, cbind(-(-4:4)^2 / 2, c(-Inf, -(-3:3)^2, -Inf)), -4, 1, c(-2, 0, 5))
})
add("elvi_r_sync", "", function() .Call(internal$elvi_r_sync, tempdir()))
add("elvi_r_clock", "", function() .Call(internal$elvi_r_clock) > 0)
add("elvi_r_has_family", "", function() .Call(internal$elvi_r_has_family, c("logit", "none"), c("own", NA)))
add("elvi_r_status_names", "", function() .Call(internal$elvi_r_status_names))
add("elvi_r_mills", "", function() .Call(internal$elvi_r_mills, c(-40, -1, 0, 3)))
# responses in intervals are numbers of rows of a table, which these have not (test-family-interval.R)
for (name in grep("^interval_", names(Filter(Negate(internal$is_joint), internal$family_records)), invert = TRUE, value = TRUE)) local({
  rule <- internal$cached_quadrature(internal$law_of(base_gaussian(), 2), name)
  likelihood <- list(likelihood = name, error_df = 4)
  rows <- list(y = c(0, 1), weight = c(1, 2), eta = c(0.1, -3), s = if (length(rule$levels)) c(0.5, 1) else c(0, 0))
  add("elvi_r_expect_rows", name, function() .Call(internal$elvi_r_expect_rows, likelihood, rule, 2, rows))
})
add("elvi_r_blas_alone", "", function() .Call(internal$elvi_r_blas_alone))
for (name in c("logit", "cloglog", "poisson", "normal", "sparse", "sparse_logit", "shifted")) for (kind in kinds) local({
  model <- models[[name]]
  rule <- internal$model_quadrature(model, internal$law_of(base_gaussian(), 2))
  scale <- scale_of(kind, 2)
  kind <- kind
  add("elvi_r_exact", paste(name, kind), function() .Call(internal$elvi_r_exact, model, rule, kind, c(0.1, 0.2), scale, diag(2), 2L))
  add("elvi_r_exact_parts", paste(name, kind),
      function() .Call(internal$elvi_r_exact_parts, model, rule, kind, c(0.1, 0.2), scale, 2L))
})
# two crossed terms, one with a slope, for each loss that group-level terms have
for (name in c("logit", "probit", "cloglog", "poisson", "normal", "phi")) local({
  g <- rep(1:3, 4)
  h <- rep(1:2, each = 6)
  x <- sin(1:12)
  Z <- cbind(outer(g, 1:3, "=="), x * outer(g, 1:3, "=="))[, c(1, 4, 2, 5, 3, 6)]
  Z <- Matrix::Matrix(cbind(Z, outer(h, 1:2, "==")) + 0, sparse = TRUE)
  one <- function(label, columns, coefs) list(label = label, kind = "group", columns = columns, coefs = coefs,
                                              correlated = length(coefs) > 1, prior_sd = exponential(1), prior_cor = 1)
  family <- switch(name, poisson = poisson(), normal = gaussian(), phi = neg_binomial_2(), binomial(name))
  dispersion <- switch(name, normal = "sigma", phi = "phi")
  problem <- list(X = cbind(1, x), Z = Z, y = rep(0:1, 6), family = family, prior = list(centre = 0, precision = 1),
                  terms = list(one("g", 1:6, c("a", "b")), one("h", 7:8, "a")),
                  hyper = if (!is.null(dispersion)) stats::setNames(list(exponential(1)), dispersion))
  setup <- internal$nested_setup(problem, base_gaussian())
  theta <- c(-0.2, -0.5, 0.3, -1, if (!is.null(dispersion)) 0.1)
  precision <- internal$hyper_precision(setup$problem, setup$layout, theta)
  hyper <- internal$loss_hyper(setup, theta)
  setting <- c(precision[c("A", "definite", "inverse", "slack")], list(hyper = hyper, mu = NULL), internal$start_of(setup$plan, hyper))
  settings <- list(setting, setting)
  plan <- setup$plan
  found <- .Call(internal$elvi_r_nested_solve, plan, setup$rule, settings, 1e-8, 50L, 2L)[[1L]]
  setting$mu <- found$mu
  setting$c <- found$c
  z <- matrix(cos(seq_len(3 * plan$dim)), plan$dim)
  add("elvi_r_nested_solve", name, function() {
    .Call(internal$elvi_r_nested_solve, plan, setup$rule, settings, 1e-8, 50L, 2L)
  })
  add("elvi_r_nested_check", name, function() {
    .Call(internal$elvi_r_nested_check, plan, setup$rule, list(setting, setting), z, TRUE, 2L)
  })
  add("elvi_r_nested_profile", name, function() {
    .Call(internal$elvi_r_nested_profile, plan, setup$rule, list(setting, setting), diag(plan$dim)[, 1:2], internal$profile_settings, NULL, TRUE, 2L)
  })
  add("elvi_r_nested_cumulants", name, function() {
    .Call(internal$elvi_r_nested_cumulants, plan, setup$rule, setting, diag(plan$dim)[, 1:2])
  })
  add("elvi_r_nested_residuals", name, function() {
    .Call(internal$elvi_r_nested_residuals, plan, setup$rule, list(setting, setting), internal$rows_of_columns(plan),
          internal$effect_settings, 2L)
  })
  add("elvi_r_nested_draws", name, function() .Call(internal$elvi_r_nested_draws, plan, setting, z, FALSE))
  summed <- plan
  summed$summed <- TRUE
  curve <- .Call(internal$elvi_r_nested_products, plan, found$c, numeric(plan$rows))$curve
  at <- replace(setting, "c", list(curve))
  look <- .Call(internal$elvi_r_nested_look, summed, at, TRUE)
  point <- list(mu = at$mu, M = look$inverse, reach = look$reach, hyper = hyper,
                before = list(list(mu = at$mu, M = look$inverse, weight = 1)))
  add("elvi_r_nested_products", name, function() .Call(internal$elvi_r_nested_products, plan, found$c, numeric(plan$rows)))
  add("elvi_r_nested_look", name, function() .Call(internal$elvi_r_nested_look, summed, at, TRUE))
  add("elvi_r_nested_newton", name, function() .Call(internal$elvi_r_nested_newton, summed, at, z[, 1L]))
  add("elvi_r_nested_add_rows", name, function() .Call(internal$elvi_r_nested_add_rows, plan, setup$rule, list(point, point)))
  add("elvi_r_pattern_times", name, function() .Call(internal$elvi_r_pattern_times, plan$pattern, curve, z[, 1L]))
  others <- internal$rows_for_plan(plan, Matrix::Matrix(1, 3L, plan$dim))   # every pair, some of them not on the pattern
  add("elvi_r_nested_variances", name, function() .Call(internal$elvi_r_nested_variances, plan, setting, others))
  add("elvi_r_nested_draws", paste(name, "whiten"), function() .Call(internal$elvi_r_nested_draws, plan, setting, z, TRUE))
  add("elvi_r_pattern_pairs", name, function() .Call(internal$elvi_r_pattern_pairs, plan$pattern, plan$start, plan$column))
  add("elvi_r_pattern_places", name, function() {
    .Call(internal$elvi_r_pattern_places, plan$pattern, plan$a_row, plan$a_column)
  })
  values <- numeric(length(plan$pattern$row) + (plan$pattern$dim - plan$pattern$head)^2)
  values[plan$a_place + 1L] <- precision$A[plan$a_source + 1L]
  add("elvi_r_sparse_inverse", name, function() .Call(internal$elvi_r_sparse_inverse, plan$pattern, values))
  for (what in 0:3) local({
    what <- what
    add("elvi_r_sparse_apply", paste(name, what), function() {
      factor <- .Call(internal$elvi_r_sparse_inverse, plan$pattern, values)$factor
      .Call(internal$elvi_r_sparse_apply, plan$pattern, factor, matrix(1, plan$dim, 2L), what)
    })
  })
})
# losses of two predictors, and of more, alone and in the nested solver
for (lines in 2:7) local({
  rule <- internal$class_rule(lines)
  shares <- rep(c(1, rep(0, lines - 1)), 2)
  rows <- list(y = shares, weight = c(1, 2), eta = sin(seq_along(shares)), V = rep(diag(lines)[lower.tri(diag(lines), TRUE)], 2))
  add("elvi_r_joint_expect", paste("categorical", lines), function() {
    .Call(internal$elvi_r_joint_expect, "categorical", rule, numeric(), rows)
  })
})
joint <- names(Filter(function(record) internal$is_joint(record) && !internal$is_shared(record), internal$family_records))
add("elvi_r_has_joint", "", function() .Call(internal$elvi_r_has_joint, c(joint, "none")))
for (name in joint) local({
  rule <- internal$joint_rule(internal$family_records[[name]])
  rows <- list(y = c(0.2, 0.7), weight = c(1, 2), eta = c(0.1, -0.3, 0.4, -1), V = c(0.5, 0.1, 0.3, 0.2, 0, 0.4))
  name <- name
  add("elvi_r_joint_expect", name, function() .Call(internal$elvi_r_joint_expect, name, rule, 1.7, rows))
})
local({
  counts <- data.frame(y = rep(c(0, 0, 1, 3), 4), x = sin(1:16), g = rep(1:4, 4))
  problem <- internal$conditional_problem(
    elvi_problem(y ~ x + (1 | g), data = counts, family = zero_inflated_poisson(), ziformula = ~ x))
  setup <- internal$nested_setup(problem, base_gaussian())
  theta <- numeric(setup$layout$length)
  hyper <- internal$loss_hyper(setup, theta)
  setting <- c(internal$hyper_precision(setup$problem, setup$layout, theta)[c("A", "definite", "inverse", "slack")],
               list(hyper = hyper, mu = NULL), internal$start_of(setup$plan, hyper))
  add("elvi_r_nested_solve", "two predictors", function() {
    .Call(internal$elvi_r_nested_solve, setup$plan, setup$rule, list(setting, setting), 1e-8, 50L, 2L)
  })
})
for (kind in kinds) local({
  kind <- kind
  scale <- scale_of(kind, 2)
  law <- internal$law_of(base_laplace(), 2)
  model <- models$logit
  add("elvi_r_hmc", kind, function() {
    settings <- list(warmup = 5, iterations = 3, most_steps = 4, length = 1, step = 0.2, accept = 0.8, key = c(1, 2), centre = c(0.1, 0.2),
                     root = c(1, 0.3, 0, 0.5))
    .Call(internal$elvi_r_hmc, model, settings, matrix(c(0.1, -0.2, 0.3, 0), 2), 2L)
  })
  add("elvi_r_project", kind, function() .Call(internal$elvi_r_project, kind, scale, 0.6, 2))
  add("elvi_r_values", kind, function() {
    .Call(internal$elvi_r_values, model, law, kind, c(0.1, 0.2), scale, c(1, 2), 5, 2L)
  })
})
local({
  plan <- internal$plan_schedule(schedule_growing(100, step = 0.1), 2, 3, 4)
  table <- internal$plan_schedule(schedule_custom(0.1, 1:4), 2, 3, 4)
  for (name in c("plan", "table")) local({
    schedule <- get(name)
    add("elvi_r_schedule", name, function() .Call(internal$elvi_r_schedule, schedule, c(0, 1, 3)))
    add("elvi_r_horizon", name, function() .Call(internal$elvi_r_horizon, schedule, 6))
  })
})
runs <- c(
  lapply(setNames(names(models), names(models)), function(name) run_inputs(models[[name]], base_gaussian(), "symmetric")),
  list(triangular = run_inputs(models$logit, base_laplace(), "triangular", "prox", average = "last"),
       checked = run_inputs(models$logit, base_gaussian(), "symmetric", backtrack = 16),
       diagonal = run_inputs(models$logit, base_student(5), "diagonal", estimator = "path", average = "theorem"),
       path = run_inputs(models$quadratic, base_power(3), "symmetric", estimator = "path"),
       fixed = run_inputs(models$logit, base_uniform(), "symmetric", estimator = "fixed"),
       radial = run_inputs(models$logit, base_radial(function(r) -r^2), "triangular")))
for (name in names(runs)) local({
  input <- runs[[name]]
  add("elvi_r_run", name, function() {
    out <- .Call(internal$elvi_r_run, input$model, input$law, input$settings, input$state)
    out$cpu <- out$trace$cpu <- NULL
    out
  })
  add("elvi_r_gradient", name, function() {
    .Call(internal$elvi_r_gradient, input$model, input$law, input$settings, input$state, 3)
  })
})
# out of the middle of a run: an error, which is the user's, and an interrupt, which is elvi's
leaving <- function(how) {
  model <- model_density(function(x) colSums(x * x), function(x) 2 * x, dim = 2, smoothness = 2)
  model$gradient <- function(x) {
    how()
    2 * x
  }
  input <- run_inputs(model, base_gaussian(), "symmetric")
  function() {
    tryCatch(.Call(internal$elvi_r_run, input$model, input$law, input$settings, input$state)[c("status", "state")],
             error = conditionMessage)
  }
}
add("elvi_r_run", "error", leaving(function() stop("my own")))
add("elvi_r_run", "interrupt", leaving(function() {
  signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
}))

# a target behind a pointer is compiled in test-target-native.R; here only what is none
nowhere <- methods::new("externalptr")
add("elvi_r_native", "nowhere", function() .Call(internal$elvi_r_native, nowhere))
add("elvi_r_native_version", "", function() .Call(internal$elvi_r_native_version))

# A routine that is not called here is not watched.
routines <- names(getDLLRegisteredRoutines("elvi")$.Call)
missed <- setdiff(routines, sub(" .*", "", names(boundary)))
if (length(missed)) stop("tools/boundary.R does not call ", toString(missed))
