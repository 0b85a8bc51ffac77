# Regressions whose rows live elsewhere. What solver, mode search and certificate need of the rows are sums over them: a
# pass (rows-chunks.R) has them for the likelihood, chunk by chunk with the routines for rows in memory, and the prior
# is added once. C sees such a model as a function of x that calls back.

# ---- the rows of a model -----------------------------------------------------------------

# Rows as a model has them, of which only a summary is here. `y`, `weight` and `offset` are that much of them as the
# family's record asks for: a tally, or totals and extremes.
rows_elsewhere <- function(source, recipe, survey) {
  by <- recipe$centre %||% numeric(length(survey$sums))
  by <- by - survey$about
  structure(list(
    place = source, recipe = recipe, dim = length(survey$sums), n = survey$n, dropped = survey$dropped,
    count = survey$count, constant = survey$constant, y = survey$tally$y %||% survey$low[1L],
    weight = survey$tally$weight %||% survey$weight,
    offset = c(survey$low[2L], survey$high[2L]),
    gram = recentred(survey$gram, survey$sums, survey$used, by),
    weighted = recentred(survey$weighted, survey$weighted_sums, survey$weight, by),
    reach = survey$reach + abs(by), total = spread_about_mean(survey), check = survey$check),
    class = c("elvi_rows_elsewhere", "elvi_rows"))
}

# of the responses without their offsets, weighted, for the start of a dispersion
spread_about_mean <- function(survey) {
  max(survey$around[2L] - survey$around[1L]^2 / survey$weight, 0) / survey$count
}

# Numbers, sums and extremes, in one pass. `level` is about where the responses are.
survey_source <- function(source, recipe, about, level) {
  counts <- isTRUE(family_records[[recipe$likelihood]]$dispersion$counted)
  recipe["centre"] <- list(NULL)
  pass <- pass_with_progress(source, recipe, "survey", list(about = about, level = level, counts = counts))
  if (is.null(pass$answer)) bad_argument("data", "data with at least one complete row", "data without")
  survey <- c(pass$answer, list(check = pass$check))
  check_counting(survey$weight)
  warn_if_constant(c(survey$low[1L], survey$high[1L]), survey$n)
  c(survey, list(about = about %||% numeric(length(survey$sums)), level = level))
}

#' @export
rows_size.elvi_rows_elsewhere <- function(rows) c(rows$n, rows$dim)

#' @export
row_labels.elvi_rows_elsewhere <- function(rows) rows$recipe$labels

#' @export
row_kinds.elvi_rows_elsewhere <- function(rows) "elsewhere"

#' @export
rows_left_out.elvi_rows_elsewhere <- function(rows) list(dropped = rows$dropped)

#' @export
check_each_response.elvi_rows_elsewhere <- function(rows) {
  bad_argument("data", "rows in memory for a family of positive responses whose dispersion is not given", "rows elsewhere")
}

is_elsewhere_rows <- function(rows) !is.null(rows$place)

#' @export
is_elsewhere.elvi_model_elsewhere <- function(model) TRUE

#' @export
smoothness_by_rows.elvi_model_elsewhere <- function(model, bound, gram) curvature_max(model, bound)

# chunks of X and y, for model_glm()
matrix_source_rows <- function(source, likelihood) {
  chunk <- first_chunk(source)
  if (is.null(chunk)) bad_argument("X", "a source with at least one row", "one without")
  recipe <- new_recipe("matrices", likelihood)
  first <- in_chunk(1, recipe_rows(recipe, chunk))
  recipe$labels <- column_names(first$X)
  recipe$marks <- mark_weights(recipe, chunk)
  rows_elsewhere(source, recipe, survey_source(source, recipe, NULL, mean(first$y)))
}

# ---- passes of a model --------------------------------------------------------------------

# What a pass must know of the likelihood.
pass_spec <- function(model) {
  list(likelihood = model$likelihood, error_df = model$error_df, dim = model$dim, dispersion_at = model$dispersion_at,
       divide = model$divide %||% model$dispersion %||% 1, reweigh = model$reweigh)
}

pass_of <- function(model, task, args = list()) rows_pass(model$rows, task, args, pass_spec(model))

rows_pass <- function(rows, task, args = list(), spec = NULL) {
  pass <- pass_with_progress(rows$place, rows$recipe, task, c(args, list(spec = spec)), rows$n)
  check_unchanged(rows, pass$check)
  pass$answer
}

# The sums of a pass are those of the first one, up to the order of summation.
check_unchanged <- function(rows, check) {
  sizes <- c(0, rows$check[c(4L, 3L, 4L)] + rows$n * (rows$dim + 3))
  if (length(check) == length(rows$check) && isTRUE(all(abs(check - rows$check) <= 1e-12 * sizes))) return(invisible())
  n <- if (length(check)) check[1L] else 0
  elvi_abort("The rows are not those of the first pass any more: ",
             if (n != rows$check[1L]) sprintf("%s instead of %s.", format_count(n), format_count(rows$check[1L]))
             else "as many, but with other values.",
             " Their source must not change while a fit is made or used.", class = "elvi_error_rows")
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

first_passes <- list(levels = ", for levels of factors", survey = ", for means and spreads")

# Prior and what depends on the dispersion alone: a regression on one row that does not count.
prior_model <- function(model) {
  p <- model$rows$dim
  rows <- new_rows(matrix(0, 1L, p), NULL, 0, 0, 0)
  list(kind = "glm", dim = model$dim, rows = rows, likelihood = model$likelihood, error_df = model$error_df,
       dispersion_at = model$dispersion_at, tally = model$tally, blocks = model$blocks)
}

# A model of rows in memory stays as C reads it; one of rows elsewhere becomes a function. The last point is remembered,
# since value and gradient are asked for one after the other.
finish_rows <- function(model) UseMethod("finish_rows")

#' @export
finish_rows.elvi_model_glm <- function(model) model

#' @export
finish_rows.elvi_model_elsewhere <- function(model) {
  at <- remembering(function(x) target_elsewhere(model, x))
  shaped <- function(x) matrix(x, model$dim)
  model$kind <- "density"
  model["pointer"] <- list(NULL)
  model$value <- function(x) as.double(at(shaped(x))$value)
  model$gradient <- function(x) as.double(at(shaped(x))$gradient)
  model
}

target_elsewhere <- function(model, x) {
  prior <- .Call(elvi_r_evaluate, prior_model(model), x, 1L)
  add_up(prior, pass_of(model, "evaluate", list(x = x)))
}

#' @export
target_at.elvi_model_elsewhere <- function(model, x) target_elsewhere(model, x)

#' @export
target_values.elvi_model_elsewhere <- function(model, x) target_elsewhere(model, x)$value

#' @export
exact_at.elvi_model_elsewhere <- function(model, rule, law, kind, mu, scale) {
  prior <- .Call(elvi_r_exact, prior_model(model), rule, kind, mu, scale, 1L)
  row_tasks$exact$join(prior, pass_of(model, "exact", list(law = small_law(law, rule), kind = kind, mu = mu, scale = scale)))
}

# Workers make the rule from the base, of which little has to be sent; that of a law without a key takes too long.
small_law <- function(law, rule) if (is.null(law$key)) list(kind = law$kind, rule = rule) else law

#' @export
extent_along.elvi_model_elsewhere <- function(model, x) {
  pass_of(model, "extent", list(x = x, used = FALSE))[[1L]]
}

#' @export
used_gram.elvi_model_elsewhere <- function(model) model$rows$gram

#' @export
gram_of_columns.elvi_model_elsewhere <- function(model, columns) model$rows$gram[columns, columns, drop = FALSE]

# the passes are made for d x d sums
#' @export
exact_by_products.elvi_model_elsewhere <- function(model, kind) FALSE

#' @export
column_reach.elvi_model_elsewhere <- function(model) model$rows$reach

#' @export
likelihood_diagonal.elvi_model_elsewhere <- function(model, x, law, dispersion) {
  pass_of(model, "diagonal", list(x = x, law = law, dispersion = dispersion))[[1L]]
}

#' @export
falls_along.elvi_model_elsewhere <- function(model, direction) {
  args <- list(x = direction, used = TRUE)
  args$small <- 1e-6 * pass_of(model, "extent", args)[[1L]]
  args$small > 0 && pass_of(model, "is_recession", args)[[1L]]
}

# from the Gram matrix, which is at hand
#' @export
curvature_max.elvi_model_elsewhere <- function(model, bound, work = model) {
  prior <- steepest_prior(model$blocks$coefficients)
  H <- bound * model$rows$weighted / (model$dispersion %||% 1) + diag(prior, model$rows$dim)
  max(eigen(hessian_to_work(work, H), symmetric = TRUE, only.values = TRUE)$values)
}

# one pass for as many points as their gradients leave room for
#' @export
longest_block.elvi_model_elsewhere <- function(model) 4096

# ---- starts for a dispersion -----------------------------------------------------------------

#' @export
inner_glm.elvi_model_elsewhere <- function(model, likelihood, divide = 1, reweigh = NULL, ...) {
  model$likelihood <- likelihood
  model$dim <- model$dim - 1
  model$dispersion_at <- 0
  model$blocks$dispersion <- NULL
  model$tally <- no_tally
  model$divide <- divide
  model["reweigh"] <- list(reweigh)
  finish_rows(structure(model, class = c("elvi_model_elsewhere", "elvi_model_glm", "elvi_model")))
}

#' @export
scale_start.elvi_model_elsewhere <- function(model, passes, reweigh) {
  total <- model$rows$total
  now <- if (total > 0) total else 1
  before <- NULL
  evaluations <- 0
  for (pass in seq_len(passes)) {
    inner <- inner_glm(model, "normal", divide = now, reweigh = before)
    found <- inner_mode(inner)
    evaluations <- evaluations + found$evaluations
    inner$divide <- 1
    now <- pass_of(inner, "squares", list(x = found$x))[[1L]] / model$rows$count
    if (now <= 1e-24 * total) no_dispersed_mode(model)
    if (is.finite(model$error_df)) before <- list(x = found$x, variance = now, df = model$error_df)
  }
  list(x = c(found$x, log(now) / 2), evaluations = evaluations)
}

#' @export
count_start.elvi_model_elsewhere <- function(model) {
  inner <- inner_glm(model, "poisson")
  found <- inner_mode(inner)
  sums <- pass_of(inner, "excess", list(x = found$x))
  list(x = c(found$x, -log(min(max(sums[[1L]] / sums[[2L]], 1e-3), 1e2))), evaluations = found$evaluations)
}

# of model_glm(): what belongs to a row is in the chunks
check_in_chunks <- function(arguments) {
  given <- Filter(Negate(is.null), arguments)
  if (length(given)) {
    bad_argument(names(given)[1L], "left out with a source of rows, whose chunks have it", describe(given[[1L]]))
  }
}
