# A pass over the rows of a model: the one way to a sum over rows. Rows in memory answer a task (rows-chunks.R) at once. Of
# data larger than memory only a summary is here, and the parts of a pass over their source are joined, that of the
# prior among them. C sees such a model as a function that calls back.

# The answer to a task by the rows of a model, and by its prior if the task is about f.
pass_of <- function(model, task, args = list()) {
  if (is_chunked(model$rows)) chunked_pass(model, task, args) else row_tasks[[task]]$part(model, args)
}

# Is only a summary of the rows in memory?
is_chunked <- function(rows) !is.null(rows$source)

chunked_pass <- function(model, task, args) {
  known <- model$rows$known[[task]]   # from the survey
  if (!is.null(known)) return(known)
  total <- pass_over_rows(model$rows, task, c(sent_args(args), list(likelihood = likelihood_part(model))))
  record <- row_tasks[[task]]
  if (!isTRUE(record$prior)) return(total)
  prior <- record$part(prior_part(model), args)
  refuse_other_shape(getOption("elvi.pass_log"), total, prior)
  record$join(prior, total)
}

pass_over_rows <- function(rows, task, args = list()) {
  logged_pass(getOption("elvi.pass_log"), task, args, function() checked_pass(rows, task, args))
}

checked_pass <- function(rows, task, args) {
  pass <- pass_with_progress(rows$source, rows$recipe, task, c(args, list(weighing = rows$weighing, left_out = rows$left_out)), rows$n)
  check_unchanged(rows, pass$check)
  pass$answer
}

# Workers make the quadrature rule from the base, of which little has to be sent; that of a base without a key takes too long.
sent_args <- function(args) {
  if (is.null(args$rule)) return(args)
  if (is.null(args$law$key)) args$law <- list(kind = args$law$kind, rule = args$rule)
  args$rule <- NULL
  args
}

# ---- parts of a regression --------------------------------------------------------------

# The likelihood, for rows to be added; C takes a regression without a prior.
likelihood_part <- function(model) {
  c(model[c("dim", "likelihood", "error_df", "dispersion_at")], list(kind = "glm", blocks = NULL, tally = NULL))
}

# The prior and what depends on the dispersion alone; C takes a regression without rows.
prior_part <- function(model) {
  c(model[c("dim", "likelihood", "error_df", "dispersion_at", "tally", "blocks")], list(kind = "glm", rows = NULL))
}

# ---- sums that are requested by name ----------------------------------------------------

# E f, its gradient in mu and the matrix B at one point, by the quadrature rule of a base: see exact_oracle()
exact_at <- function(model, rule, law, kind, mu, scale, directions = NULL) {
  pass_of(model, "exact", list(rule = rule, law = law, kind = kind, mu = mu, scale = scale, directions = directions))
}

# the Gram matrix of some columns, of which there are few
gram_of_columns <- function(model, columns) {
  if (!is.null(model$rows$known$gram)) return(model$rows$known$gram[columns, columns, drop = FALSE])
  used <- as.double(model$rows$weight > 0)
  unit <- numeric(model$rows$dim)
  products <- vapply(columns, function(j) cross_times(model$rows, used, replace(unit, j, 1))[columns], numeric(length(columns)))
  matrix(products, length(columns))
}

# The largest eigenvalue of the curvature `bound` X' diag(weight) X + that of the prior, in the coordinates of `work`: from
# X' diag(weight) X where that is at hand, else by Lanczos steps.
curvature_max <- function(model, bound, work = model, weighted = model$rows$known$weighted_gram) {
  if (is.null(weighted)) return(.Call(elvi_r_curvature_max, work, bound))
  H <- bound * weighted + diag(steepest_prior(model$blocks$coefficients), ncol(weighted))
  max(eigen(coordinates_of(work)$hessian_to_work(work, H), symmetric = TRUE, only.values = TRUE)$values)
}

# can the loss of no row that counts rise along a direction that moves some of them?
falls_along <- function(model, direction) {
  small <- 1e-6 * pass_of(model, "used_extent", list(x = direction))
  small > 0 && pass_of(model, "is_recession", list(x = direction, small = small))
}

# ---- data larger than memory --------------------------------------------------------------

# Rows as a model has them, of which only a summary is here. `y`, `weight` and `offset` are that much of them as the
# family's record asks for: a tally, or totals and extremes. `known` are answers to tasks.
chunked_rows <- function(source, recipe, survey) {
  by <- recipe$centre %||% numeric(length(survey$sums))
  by <- by - survey$about
  known <- list(gram = recentred(survey$gram, survey$sums, survey$used, by),
                weighted_gram = recentred(survey$weighted, survey$weighted_sums, survey$weight, by),
                reach = survey$reach + abs(by), spread = surveyed_spread(survey))
  list(source = source, recipe = recipe, labels = recipe$labels, n = survey$n, dim = length(survey$sums), dropped = survey$dropped,
       count = survey$count, constant = survey$constant, y = survey$tally$y %||% survey$low[1L],
       weight = survey$tally$weight %||% survey$weight, offset = c(survey$low[2L], survey$high[2L]),
       known = known, check = survey$check, sample = survey$sample, columns = survey$columns,
       level = survey$level + survey$response[1L] / survey$used)
}

# response_variance() from sums
surveyed_spread <- function(survey) {
  max(survey$around[2L] - survey$around[1L]^2 / survey$weight, 0) / survey$count
}

# How each chunk is to be weighed, see reweighed().
reweighed_in_chunks <- function(rows, variance, earlier) {
  rows$weighing <- list(variance = variance, earlier = earlier)
  rows$weight <- rows$weight / variance
  rows$known$weighted_gram <- rows$known$weighted_gram / variance
  rows
}

refuse_chunked <- function(rows) {
  if (!is_chunked(rows)) return(invisible())
  refuse_argument("data", "Data larger than memory need `dispersion` for this family of positive responses. Give it, or a data frame.")
}

# Numbers, sums and extremes, in one pass. `level` is about where the responses are.
survey_source <- function(source, recipe, about, level) {
  counts <- isTRUE(family_records[[recipe$likelihood]]$dispersion$counted)
  recipe["centre"] <- list(NULL)
  pass <- pass_with_progress(source, recipe, "survey", list(about = about, level = level, counts = counts))
  if (is.null(pass$answer)) refuse_argument("data", "`data` has no complete rows.")
  survey <- c(pass$answer, list(check = pass$check))
  check_counting(survey$weight)
  warn_if_constant(c(survey$low[1L], survey$high[1L]), survey$n)
  c(survey, list(about = about %||% numeric(length(survey$sums)), level = level))
}

# chunks of X and y, for model_glm()
matrix_source_rows <- function(source, likelihood) {
  chunk <- first_chunk(source)
  if (is.null(chunk)) refuse_argument("X", "The source `X` has no rows.")
  recipe <- new_recipe("matrices", likelihood)
  first <- in_chunk("chunk 1", recipe_rows(recipe, chunk))
  recipe$labels <- column_names(first$X)
  recipe$marks <- mark_weights(recipe, chunk)
  chunked_rows(source, recipe, survey_source(source, recipe, NULL, mean(first$y)))
}

# The sums of a pass are those of the first one, up to the order of summation.
check_unchanged <- function(rows, check) {
  sizes <- c(0, rows$check[c(4L, 3L, 4L)] + rows$n * (rows$dim + 3))
  if (length(check) == length(rows$check) && isTRUE(all(abs(check - rows$check) <= 1e-12 * sizes))) return(invisible())
  n <- if (length(check)) check[1L] else 0
  elvi_abort("The rows have changed since the first pass: ",
             if (n != rows$check[1L]) sprintf("%s instead of %s.", format_count(n), format_count(rows$check[1L]))
             else "their values differ.",
             " Their source must not change while a fit is made or used.", class = "elvi_error_rows")
}

# Some rows of the first chunk, spread evenly, as a model in memory has them; NULL where none is complete. For those without a sample.
first_rows_of <- function(rows, most) {
  chunk <- first_chunk(rows$source)
  if (is.data.frame(chunk)) {
    chunk <- rows_at(check_chunk(chunk), unique(round(seq(1, nrow(chunk), length.out = min(nrow(chunk), most)))))
  }
  few <- recipe_rows(rows$recipe, chunk)
  if (is.null(few)) return(NULL)
  few <- shifted_by(few, rows$recipe$centre)
  if (is.null(rows$weighing)) few else reweighed(few, rows$weighing$variance, rows$weighing$earlier)
}

# The model of data larger than memory with these rows instead, see readable_model().
model_of_rows <- function(model, rows) {
  model$kind <- "glm"
  model[c("value", "gradient", "pointer")] <- NULL
  model$rows <- rows
  model
}

# A pass; with options(elvi.rows_progress = TRUE), or where a fit shows its progress, a line about it.
pass_with_progress <- function(source, recipe, task, args = list(), n = NULL) {
  started <- proc.time()[["elapsed"]]
  pass <- pass_over(source, recipe, task, args)
  if (!isTRUE(getOption("elvi.rows_progress"))) return(pass)
  seconds <- proc.time()[["elapsed"]] - started
  n <- n %||% pass$answer$n %||% 0
  elvi_inform(sprintf("pass over %s rows%s: %.2f s, %s rows/s", format_count(n), first_passes[[task]] %||% "", seconds,
                      format_count(round(n / max(seconds, 1e-3)))), class = "elvi_message_pass")
  pass
}

first_passes <- list(levels = ", for levels of factors", terms = ", for group-level and smooth terms",
                     constants = ", for knots, means and breaks", powers = ", for polynomials", cells = ", for quantiles",
                     survey = ", for means and spreads")

# The model for C: rows in memory unchanged, data larger than memory as a function. The last point
# is remembered, since value and gradient are requested one after the other.
readable_model <- function(model) {
  if (!is_chunked(model$rows)) return(model)
  at <- remembering(function(x) pass_of(model, "evaluate", list(x = x)))
  shaped <- function(x) matrix(x, model$dim)
  model$kind <- "density"
  model["pointer"] <- list(NULL)
  model$value <- function(x) as.double(at(shaped(x))$value)
  model$gradient <- function(x) as.double(at(shaped(x))$gradient)
  model
}

# of model_glm(): what belongs to a row is in the chunks
check_in_chunks <- function(arguments) {
  given <- Filter(Negate(is.null), arguments)
  if (length(given)) {
    unused_argument(names(given)[1L], "each chunk of a source brings its own")
  }
}
