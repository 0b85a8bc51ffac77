# A formula applied to rows that live elsewhere: one set of levels, one centre and one scale of the priors for all chunks.

check_for_source <- function(structured, method, family, dispersion) {
  if (!is.null(structured)) {
    bad_argument("data", "in memory: group-level and smooth terms need all rows at once", "a source of rows")
  }
  if (method == "nested" && !needs_no_rows(family, dispersion)) {
    bad_argument("method", paste("another with a source of rows: but for gaussian() with unknown dispersion,",
                                 "nested fits need all rows at once"), "\"nested\"")
  }
}

# The same call in memory would give another answer, if a close one.
say_not_nested <- function(model) {
  name <- dispersion_record(model)$natural
  elvi_inform("Rows that live elsewhere: ", name, " is fitted by method = \"mpsgd\" together with the coefficients. ",
              "To integrate over ", name, ", as is done in memory, all rows are needed again for each of its values.",
              class = "elvi_message_not_nested")
}

# What formula_design() gives, with `rows` in place of the design.
source_design <- function(source, formula, call, env, contrasts, family) {
  chunk <- check_chunk(first_chunk(source) %||%
                         bad_argument("data", "data with at least one complete row", "a source without rows"))
  recipe <- formula_recipe(formula, call, env, chunk, likelihood_of(family))
  sample <- recipe_frame(recipe, chunk)
  if (!nrow(sample)) {   # what its columns are cannot be told, say of a file with a column of NA only
    chunk <- pass_over(source, recipe, "complete")$answer %||% chunk
    recipe <- formula_recipe(formula, call, env, chunk, likelihood_of(family))
    sample <- recipe_frame(recipe, chunk)
  }
  check_contrasts(contrasts, sample)
  refuse_if_collective(recipe, chunk)
  recipe$terms <- attr(sample, "terms")
  recipe$levels <- levels_of(source, recipe, chunk, sample)
  if (length(recipe$levels)) sample <- recipe_frame(recipe, chunk)
  first <- sample_design(recipe, sample, contrasts)
  recipe[c("labels", "contrasts")] <- list(first$labels, first$contrasts)
  recipe$plain <- plain_columns(recipe, chunk)
  recipe$marks <- mark_weights(recipe, chunk)
  intercept <- attr(recipe$terms, "intercept") == 1
  about <- if (intercept) replace(first$means, 1L, 0)
  survey <- survey_source(source, recipe, about, first$level)
  centre <- numeric(length(recipe$labels))
  if (intercept) centre[-1L] <- (survey$about + survey$sums / survey$used)[-1L]
  if (intercept) recipe$centre <- centre
  list(terms = recipe$terms, intercept = intercept, centre = centre, spread = survey_spread(survey),
       offset_given = !is.null(stats::model.offset(sample)) || !is.null(recipe$extra$offset),
       xlevels = stats::.getXlevels(recipe$terms, sample),
       contrasts = recipe$contrasts, rows = rows_elsewhere(source, recipe, survey),
       frame = structure(sample[0L, , drop = FALSE], terms = recipe$terms))
}

# Levels of the categorical variables of a frame: those that the source was given, and others found in a pass.
levels_of <- function(source, recipe, chunk, frame) {
  given <- source$levels
  unknown <- setdiff(names(given), c(names(frame), names(chunk)))
  if (length(unknown)) bad_argument("levels", "of variables of the formula or columns of the source", paste0("of `", unknown[1L], "`"))
  categorical <- names(Filter(function(x) is.factor(x) || is.character(x), as.list(frame)))
  given <- given[intersect(names(given), categorical)]
  if (all(categorical %in% names(given))) return(given)
  found <- final_levels(told_pass(source, recipe, "levels")$answer$variables)
  replace(found, names(given), given)
}

# The formula with the other arguments that are evaluated in the data, and the columns that all of them mention.
formula_recipe <- function(formula, call, env, chunk, likelihood) {
  extra <- as.list(call)[intersect(c("subset", "weights", "frequency", "na.action", "offset"), names(call))]
  if (!is.null(extra$na.action)) extra$na.action <- eval(extra$na.action, env)
  terms <- reading(stats::terms(stats::as.formula(formula), data = chunk), "object", "it cannot be read")
  if (attr(terms, "response") == 0) bad_argument("object", "a formula with a response on its left", "a one-sided formula")
  mentioned <- unique(c(all.vars(terms), unlist(lapply(extra[names(extra) != "na.action"], all.vars))))
  new_recipe("formula", likelihood, terms = terms, extra = extra, columns = intersect(mentioned, names(chunk)))
}

# labels, contrasts and means of the design of a first chunk, and about where its responses are
sample_design <- function(recipe, frame, contrasts) {
  X <- stats::model.matrix(recipe$terms, frame, contrasts)
  if (!ncol(X)) bad_argument("object", "a formula with at least one coefficient", "an empty one")
  means <- colMeans(X)
  y <- stats::model.response(frame, "any")
  level <- if (is.numeric(y) && is.null(dim(y))) mean(y) else 0
  list(labels = colnames(X), contrasts = attr(X, "contrasts"), means = ifelse(is.finite(means), unname(means), 0),
       level = if (is.finite(level)) level else 0)
}

# A variable whose values in some rows of a chunk are others without its other rows depends on them. Halves show sums and steps
# from row to row, single rows extremes that occur in both.
refuse_if_collective <- function(recipe, chunk) {
  chunk <- as.data.frame(chunk)[seq_len(min(nrow(chunk), 2000L)), , drop = FALSE]
  n <- nrow(chunk)
  if (n < 2L) return(invisible())
  rownames(chunk) <- NULL
  recipe$extra$na.action <- stats::na.pass   # a row that is missing in a part only shows as well
  frame_of <- function(rows) tryCatch(suppressWarnings(recipe_frame(recipe, chunk[rows, , drop = FALSE])), error = function(e) NULL)
  whole <- frame_of(seq_len(n))
  half <- seq_len(n %/% 2L)
  for (rows in c(list(half, setdiff(seq_len(n), half)), unique(list(1L, n %/% 2L, n)))) {
    part <- frame_of(rows)
    if (is.null(part) && length(rows) == 1L) next
    for (name in names(whole)) if (depends_on_others(name, part, whole, rows)) {
      bad_argument("object", paste0("a formula of variables that each row has by itself, with a source of rows: `", name,
                                    "` depends on other rows too"), "this one")
    }
  }
}

# a part that cannot be made is laid to what is more than a name
depends_on_others <- function(name, part, whole, rows) {
  if (is.null(part)) return(!is.name(tryCatch(str2lang(name), error = function(e) NULL)) && !startsWith(name, "("))
  at <- intersect(rownames(whole), as.character(rows))
  if (!setequal(at, rownames(part))) return(TRUE)
  values <- function(frame) as_plain(frame[at, name, drop = FALSE])
  !isTRUE(all.equal(values(part), values(whole), check.attributes = FALSE))
}

as_plain <- function(frame) {
  x <- frame[[1L]]
  if (is.factor(x)) as.character(x) else unclass(x)
}

# The columns themselves, where each coefficient belongs to one of them, for plain_design().
plain_columns <- function(recipe, chunk) {
  terms <- recipe$terms
  if (length(recipe$extra) || length(recipe$levels) || !is.null(attr(terms, "offset"))) return(NULL)
  variables <- vapply(as.list(attr(terms, "variables"))[-1L], function(v) if (is.name(v)) as.character(v) else "", "")
  if (!all(variables %in% recipe$columns)) return(NULL)
  labels <- attr(terms, "term.labels")
  if (!all(labels %in% variables) || !all(vapply(chunk[variables], is.numeric, NA))) return(NULL)
  list(response = variables[1L], predictors = labels)
}

# what autoscaled priors ask of the data, see design_spread()
survey_spread <- function(survey) {
  variance <- (survey$squares - survey$sums^2 / survey$used) / (survey$used - 1)
  y <- survey$response
  list(columns = function(j) sqrt(pmax(variance[j], 0)),
       response = list(mean = survey$level + y[1L] / survey$used,
                       sd = sqrt(max((y[2L] - y[1L]^2 / survey$used) / (survey$used - 1), 0))),
       precision = if (survey$precision[2L] > 0) survey$precision[1L] / survey$precision[2L] else 1)
}

# with a line for each pass, if control asks for progress
showing_passes <- function(control, expr) {
  old <- show_passes(control)
  on.exit(options(old))
  expr
}

show_passes <- function(control) {
  options(elvi.rows_progress = (is.list(control) && isTRUE(control$progress)) || isTRUE(getOption("elvi.rows_progress")))
}
