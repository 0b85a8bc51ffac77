# A formula applied to data larger than memory: one set of levels, one centre and one scale of the priors for all chunks.

# The same call in memory would give another answer, if a close one.
say_not_nested <- function(problem) {
  name <- family_record(problem$family)$dispersion$natural
  elvi_inform("Data larger than memory: ", name, " is fitted by method = \"mpsgd\" together with the coefficients. ",
              "Integrating over ", name, ", as is done in memory, would need all rows again for each of its values.",
              class = "elvi_message_not_nested")
}

# What frame_design() gives, with `rows` in place of X and y.
source_design <- function(source, formula, call, env, contrasts, family, parts = NULL, knots = NULL) {
  specs <- smooth_specs(parts$smooths, environment(parts$fixed))
  knots <- check_knots(knots, specs)
  if (!is.null(parts)) formula <- frame_formula(parts, smooth_variables(specs))
  chunk <- check_chunk(first_chunk(source) %||%
                         refuse_argument("data", "`data` has no rows."))
  recipe <- formula_recipe(formula, call, env, chunk, likelihood_of(family))
  constants <- find_constants(source, recipe)
  recipe <- with_constants(recipe, constants)
  sample <- recipe_frame(recipe, chunk)
  if (!nrow(sample)) {   # what its columns are cannot be told, say of a file with a column of NA only
    chunk <- pass_over(source, recipe, "complete")$answer %||% chunk
    recipe <- with_constants(formula_recipe(formula, call, env, chunk, likelihood_of(family)), constants)
    sample <- recipe_frame(recipe, chunk)
  }
  check_contrasts(contrasts, sample)
  recipe[c("coded", "given")] <- list(names(contrasts), names(source$levels))
  add_to_sample(recipe, NULL, chunk, 1)
  terms <- attr(sample, "terms")
  recipe$terms <- structure(terms, predvars = NULL)   # what a first chunk alone would say of the others
  recipe <- with_constants(recipe, constants)
  recipe$levels <- levels_of(source, recipe, chunk, sample)
  if (length(recipe$levels)) sample <- recipe_frame(recipe, chunk)
  if (!is.null(parts)) {
    recipe$fixed <- subset_terms(stats::terms(parts$fixed), sample)
    recipe[c("latent", "smooths")] <- find_latent(source, recipe, parts, specs, sample, contrasts, knots)
  }
  of_fixed <- contrasts[names(contrasts) %in% all_variable_names(recipe$fixed %||% recipe$terms)]
  first <- sample_design(recipe, sample, if (length(of_fixed)) of_fixed)
  recipe[c("labels", "contrasts")] <- list(first$labels, first$contrasts)
  recipe$plain <- plain_columns(recipe, chunk)
  recipe$builder <- first$builder
  recipe$marks <- mark_weights(recipe, chunk)
  intercept <- attr(recipe$fixed %||% recipe$terms, "intercept") == 1
  about <- if (intercept) replace(first$means, 1L, 0)
  survey <- survey_source(source, recipe, about, first$level)
  centre <- numeric(length(recipe$labels))
  if (intercept) centre[-1L] <- (survey$about + survey$sums / survey$used)[-1L]
  if (intercept) recipe$centre <- centre
  list(terms = if (is.null(parts)) terms else subset_terms(stats::terms(parts$fixed), sample), intercept = intercept, centre = centre,
       spread = survey_spread(survey),
       offset_given = !is.null(stats::model.offset(sample)) || !is.null(recipe$extra$offset),
       xlevels = stats::.getXlevels(recipe$fixed %||% recipe$terms, sample), latent = recipe$latent, smooths = recipe$smooths,
       contrasts = recipe$contrasts, constant = first$constant, rows = chunked_rows(source, recipe, survey),
       frame = structure(sample[0L, , drop = FALSE], terms = terms))
}

# X with what smooths leave free, and the columns of latent terms, NULL without any
with_free_columns <- function(recipe, X, frame) {
  if (!length(recipe$latent)) return(list(X = X))
  parts <- columns_of_smooths(recipe$smooths, frame)
  list(X = add_free_columns(X, recipe$smooths, parts, recipe$latent, frame), Z = latent_columns(recipe$latent, frame, parts))
}

# Levels of the categorical variables of a frame: those that the source was given, and others found in a pass.
levels_of <- function(source, recipe, chunk, frame) {
  given <- source$levels
  unknown <- setdiff(names(given), c(names(frame), names(chunk)))
  if (length(unknown)) bad_argument("levels", "of variables of the formula or columns of the source", paste0("of `", unknown[1L], "`"))
  categorical <- names(Filter(function(x) is.factor(x) || is.character(x), as.list(frame)))
  given <- given[intersect(names(given), categorical)]
  if (all(categorical %in% names(given))) return(given)
  found <- final_levels(pass_with_progress(source, recipe, "levels")$answer$variables, recipe)
  replace(found, names(given), given)
}

# The formula with the other arguments that are evaluated in the data, and the columns that all of them mention.
formula_recipe <- function(formula, call, env, chunk, likelihood) {
  extra <- as.list(call)[intersect(c("subset", "weights", "frequency", "na.action", "offset"), names(call))]
  if (!is.null(extra$na.action)) extra$na.action <- eval(extra$na.action, env)
  terms <- blame_argument(stats::terms(stats::as.formula(formula), data = chunk), "object", "it cannot be read")
  check_response_apart(terms)
  if (attr(terms, "response") == 0) bad_argument("object", "a formula with a response on its left", "a one-sided formula")
  mentioned <- unique(c(all.vars(terms), unlist(lapply(extra[names(extra) != "na.action"], all.vars))))
  check_names(terms, extra, chunk)
  check_rowwise_na_action(extra$na.action)
  computed <- computed_terms(terms, extra)
  columns <- intersect(mentioned, names(chunk))
  new_recipe("formula", likelihood, terms = terms, extra = extra, columns = columns, foreign = setdiff(mentioned, columns),
             all = if ("." %in% all.vars(stats::as.formula(formula))) names(chunk), computed = computed,
             sampled = intersect(columns, unlist(lapply(computed, function(term) all.vars(term$expr)))))
}

# labels, contrasts and means of the design of a first chunk, and about where its responses are
sample_design <- function(recipe, frame, contrasts, numbers = 5e6) {
  single <- names(Filter(function(levels) length(levels) == 1L, recipe$levels))
  if (length(single)) {
    refuse_chunk_term(recipe, single[1L], "`", single[1L], "` has only one level in all chunks, \"", recipe$levels[[single[1L]]],
                "\". A factor needs at least two: leave it out.")
  }
  y <- stats::model.response(frame, "any")
  terms <- recipe$fixed %||% recipe$terms
  columns <- ncol(stats::model.matrix(terms, frame[1L, , drop = FALSE], contrasts))
  frame <- utils::head(frame, max(1000, numbers %/% max(columns, 1)))   # of many columns not a whole chunk
  X <- stats::model.matrix(terms, frame, contrasts)
  made <- attributes(X)
  constant <- constant_columns(X)
  recipe["contrasts"] <- list(made$contrasts)
  builder <- factor_builder(recipe, frame, X)
  if (!is.null(builder)) builder$labels <- colnames(X)
  X <- with_free_columns(recipe, X, frame)$X
  if (!ncol(X) && !length(recipe$latent)) bad_argument("object", "a formula with at least one coefficient", "an empty one")
  means <- colMeans(X)
  level <- if (is.numeric(y) && is.null(dim(y))) mean(y) else 0
  list(labels = colnames(X), contrasts = made$contrasts, constant = constant,
       means = ifelse(is.finite(means), unname(means), 0),
       level = if (is.finite(level)) level else 0, builder = builder)
}

# ---- terms that depend on other rows -------------------------------------------------------

# A term of a formula in chunks must have, in each row, the value that it has in memory. So a few rows of every chunk are
# kept, with the values that their own chunk gave them, and evaluated together: other values show that a term depends on
# other rows. Names of columns need no such check, and what is not a name is `computed`: a list of the expression,
# and of the argument that it was given as.

computed_terms <- function(terms, extra) {
  variables <- as.list(attr(terms, "variables"))[-1L]
  variables <- variables[!vapply(variables, is.name, NA)]
  extra <- extra[names(extra) != "na.action" & !vapply(extra, function(e) is.name(e) || is.null(e), NA)]
  of <- function(expr, argument) list(expr = expr, argument = argument)
  c(stats::setNames(lapply(variables, of, "object"), vapply(variables, variable_name, "")),
    stats::setNames(Map(of, extra, names(extra)), sprintf("%s = %s", names(extra), vapply(extra, short_name, ""))))
}

# as model.frame() calls it
variable_name <- function(v) {
  paste(deparse(v, width.cutoff = 500L, backtick = !is.symbol(v) && is.language(v)), collapse = " ")
}

short_name <- function(v) if (is.language(v)) variable_name(v) else describe(v)

# A name that no column has would be taken from the environment, with values for as many rows as it happens to have.
# A single TRUE or FALSE for `subset` is the only one that makes sense there.
check_names <- function(terms, extra, chunk) {
  variables <- as.list(attr(terms, "variables"))[-1L]
  extra <- extra[names(extra) != "na.action"]
  arguments <- c(rep("object", length(variables)), names(extra))
  variables <- c(variables, extra)
  for (k in which(vapply(variables, is.name, NA))) {
    name <- as.character(variables[[k]])
    value <- if (!name %in% names(chunk)) get0(name, environment(terms))
    if (is.null(value) || is.function(value) || arguments[k] == "subset" && is.logical(value) && length(value) == 1L) next
    elvi_abort("`", name, "` is not a column of the data. Variables of your workspace cannot be split into chunks: add it to the ",
               "data.", class = "elvi_error_argument", data = list(argument = arguments[k], column = name))
  }
}

# na.omit() and similar functions look at each row by itself; a function that imputes need not.
check_rowwise_na_action <- function(na.action) {
  if (is.null(na.action)) return(invisible())
  na.action <- match.fun(na.action)
  known <- list(stats::na.omit, stats::na.exclude, stats::na.fail, stats::na.pass)
  if (any(vapply(known, identical, NA, na.action))) return(invisible())
  bad_argument("na.action", "na.omit, na.exclude, na.fail or na.pass with data in chunks", describe(na.action))
}

# A column of one chunk that another lacks would be taken from the environment there.
check_columns <- function(recipe, chunk) {
  absent <- setdiff(recipe$columns, names(chunk))
  late <- intersect(names(chunk), recipe$foreign)
  if (length(recipe$all)) late <- c(late, setdiff(names(chunk), recipe$all))
  if (!length(absent) && !length(late)) return(invisible())
  elvi_abort("column `", c(absent, late)[1L], "` is ", if (length(absent)) "missing" else "here, but missing in the first chunk",
             ". Every chunk must have the same columns.",
             class = c("elvi_error_rows", "elvi_error_argument"), data = list(argument = "data", column = c(absent, late)[1L]))
}

refuse_collective <- function(recipe, name) {
  refuse_chunk_term(recipe, name, "`", name, "` depends on other rows, and would differ between chunks. Give the constants that it ",
              "needs (knots, breaks, levels, a mean), or add it to the data as a column.")
}

refuse_chunk_term <- function(recipe, name, ...) {
  elvi_abort(..., class = "elvi_error_argument", data = list(argument = recipe$computed[[name]]$argument %||% "object", term = name))
}

# The value of a computed term, NULL if its evaluation fails.
computed_value <- function(recipe, name, rows) {
  or_null(suppressWarnings(eval(recipe$computed[[name]]$expr, rows, environment(recipe$terms))))
}

# The values of the computed terms in a chunk.
chunk_values <- function(recipe, chunk) {
  n <- nrow(chunk)
  lapply(stats::setNames(nm = names(recipe$computed)), function(name) {
    value <- tryCatch(suppressWarnings(eval(recipe$computed[[name]]$expr, chunk, environment(recipe$terms))),
                      error = function(e) if (is_time_limit(e)) stop(e) else refuse_failed(recipe, name, e))
    if (is.null(value)) return(NULL)
    if (recipe$computed[[name]]$argument == "subset") {
      if (!is.logical(value)) {
        bad_argument("subset", "TRUE or FALSE for each row", describe(value), "rows of data in chunks have no numbers")
      }
      if (length(value) == 1L) value <- rep(value, n)
    }
    if (NROW(value) != n) {
      refuse_chunk_term(recipe, name, "`", name, "` has ", NROW(value), " value(s) in a chunk of ", n, " row(s). ",
                        "With data in chunks, a term ",
                  "must have one value for each row.")
    }
    value
  })
}

refuse_failed <- function(recipe, name, e) {
  refuse_chunk_term(recipe, name, "`", name, "` cannot be computed from the rows of one chunk (", conditionMessage(e), "). ",
                    "With data in chunks, ",
              "a term must be computed from its own row.")
}

# Contrasts of a factor itself would be those of the levels of a chunk, and are lost where a chunk lacks a level.
refuse_own_contrasts <- function(recipe, values) {
  own <- vapply(values, function(x) is.factor(x) && !is.null(attr(x, "contrasts")), NA)
  name <- setdiff(names(values)[own], recipe$coded)
  if (!length(name)) return(invisible())
  refuse_chunk_term(recipe, name[1L], "`", name[1L], "` has contrasts of its own, which cannot be used with data in chunks. ",
                    "Use the argument ",
              "`contrasts`, as in contrasts = list(g = \"contr.sum\") for a factor g.")
}

# ---- rows that are kept ---------------------------------------------------------------------

# A few rows of a chunk: `rows`, the columns that computed terms use; `values` of these terms, and which of them are `factors`; `key`, at
# random; `chunks`, of how many chunks they are.
chunk_sample <- function(recipe, chunk, number = 1) {
  if (!nrow(chunk)) return(NULL)
  check_columns(recipe, chunk)
  names <- vapply(Filter(is.name, as.list(attr(recipe$terms, "variables"))[-1L]), as.character, "")
  refuse_own_contrasts(recipe, unclass(chunk)[intersect(names, names(chunk))])
  if (!length(recipe$computed)) return(NULL)
  values <- chunk_values(recipe, chunk)
  refuse_own_contrasts(recipe, values)
  rows <- plain_frame(unclass(chunk)[recipe$sampled], nrow(chunk))
  some <- with_key(2 * number, list(i = sample.int(nrow(chunk), min(nrow(chunk), 8L)), key = stats::runif(nrow(chunk))))
  i <- sort(unique(c(1L, nrow(chunk), telling_rows(c(rows, values)), some$i)))
  kept <- list(rows = rows_at(rows, i), values = lapply(values, function(x) plain_value(pick(x, i))), key = some$key[i], chunks = 1,
               factors = names(Filter(is.factor, values)))
  for (name in kept$factors) check_order(recipe, name, values[[name]], computed_value(recipe, name, kept$rows))
  kept
}

# The sample of the chunks before, with that of one more, which must go with them.
add_to_sample <- function(recipe, sample, chunk, number) {
  if (is.null(recipe$terms)) return(NULL)   # rows are given as matrices
  kept <- chunk_sample(recipe, check_chunk(chunk), number)
  if (is.null(sample) && !is.null(kept)) check_sample(recipe, kept)
  join_samples(recipe, sample, kept)
}

# Where each column is missing, smallest and largest, and each of the first levels of a factor.
telling_rows <- function(columns, levels = 50L) {
  unlist(lapply(columns, function(x) {
    if (!is.null(dim(x)) || !is.atomic(x)) return(NULL)
    known <- which(!is.na(x))
    at <- if (length(known) < length(x)) which(is.na(x))[1L]
    if (!length(known)) return(at)
    if (is.factor(x)) return(c(at, utils::head(which(!duplicated(as.integer(x))), levels)))
    x <- if (is.character(x)) xtfrm_text(x) else as.double(unclass(x))
    c(at, which.min(x), which.max(x))
  }), use.names = FALSE)
}

xtfrm_text <- function(x) match(x, sort(unique(x), method = "radix"))

pick <- function(x, i) if (length(dim(x)) == 2L) x[i, , drop = FALSE] else x[i]

plain_frame <- function(columns, n) structure(columns, row.names = .set_row_names(n), class = "data.frame")

rows_at <- function(rows, i) plain_frame(lapply(unclass(rows), pick, i), length(i))

# numbers or text without anything that belongs to a whole column
plain_value <- function(x) {
  if (is.null(x)) return(NULL)
  if (is.factor(x)) return(as.character(x))
  if (inherits(x, "POSIXlt")) x <- as.POSIXct(x)
  if (is.data.frame(x)) x <- as.matrix(x)
  if (length(dim(x)) == 2L) matrix(as.vector(unclass(x)), nrow(x)) else as.vector(unclass(x))
}

same_values <- function(a, b) {
  if (is.null(a) || is.null(b)) return(is.null(a) && is.null(b))
  if (!identical(dim(a), dim(b)) || length(a) != length(b) || !identical(is.na(a), is.na(b))) return(FALSE)
  known <- !is.na(a)
  a <- a[known]
  b <- b[known]
  if (!is.numeric(a) || !is.numeric(b)) return(all(a == b))
  differ <- a != b   # infinite values may be equal
  size <- max(abs(a[is.finite(a)]), 0)
  all(abs(a - b)[differ] <= 1e-10 * abs(a[differ]) + 1e-12 * size)
}

# Rows of several chunks. Columns of text and numbers do not go together: what a term makes of them differs.
bind_rows <- function(a, b) {
  columns <- lapply(stats::setNames(nm = names(a)), function(name) bind_columns(a[[name]], b[[name]], name))
  plain_frame(columns, nrow(a) + nrow(b))
}

bind_columns <- function(x, y, name) {
  blank <- function(v) is.logical(v) && all(is.na(v))   # as text files give it
  text <- function(v) is.factor(v) || is.character(v)
  if (!blank(x) && !blank(y) && text(x) != text(y)) {
    elvi_abort("column `", name, "` is ", if (text(y)) "text" else "a number", " here, but ", if (text(x)) "text" else "a number",
               " in chunks before. A column must have the same type in every chunk.",
               class = c("elvi_error_rows", "elvi_error_argument"), data = list(argument = "data", column = name))
  }
  if (length(dim(x)) == 2L || length(dim(y)) == 2L) return(rbind(x, y))
  if (is.factor(x) && (is.factor(y) || blank(y)) || is.factor(y) && blank(x)) {
    levels <- union(levels(x), levels(y))
    return(factor(c(as.character(x), as.character(y)), levels, ordered = (is.ordered(x) || blank(x)) && (is.ordered(y) || blank(y))))
  }
  if (is.factor(x)) x <- as.character(x)
  if (is.factor(y)) y <- as.character(y)
  if (blank(x) && is.object(y)) x <- rep(y[NA_integer_], length(x))
  c(x, y)
}

bind_values <- function(a, b) {
  if (is.null(a) || is.null(b)) return(a %||% b)
  if (length(dim(a)) == 2L) rbind(a, b) else c(a, b)
}

# The kept rows of `a` and `b`, which must have the same values together, and of them at most `most`: what tells most, and
# others by their keys.
join_samples <- function(recipe, a, b, most = 256L) {
  if (is.null(a) || is.null(b)) return(a %||% b)
  for (name in names(recipe$computed)) {
    if (!identical(NCOL(a$values[[name]]), NCOL(b$values[[name]]))) refuse_collective(recipe, name)
  }
  both <- list(rows = bind_rows(a$rows, b$rows), values = Map(bind_values, a$values, b$values)[names(recipe$computed)],
               key = c(a$key, b$key), chunks = a$chunks + b$chunks, factors = union(a$factors, b$factors))
  check_sample(recipe, both)
  values <- replace(both$values, both$factors, lapply(both$values[both$factors], factor))
  i <- sort(utils::head(unique(c(telling_rows(c(both$rows, values)), order(both$key))), most))
  both$rows <- rows_at(both$rows, i)
  both$values <- lapply(both$values, function(x) if (!is.null(x)) pick(x, i))
  both$key <- both$key[i]
  both
}

# Kept rows together, some of them, and among rows that are made up. What a term is in itself is known after some chunks;
# then only whether a chunk goes with those before it is to be seen.
check_sample <- function(recipe, sample, thorough = sample$chunks <= 20) {
  n <- nrow(sample$rows)
  for (name in names(recipe$computed)) {
    own <- sample$values[[name]]
    if (is.null(own)) next
    compare <- function(value, i, first = 0L) {
      if (!same_values(pick(plain_value(value), first + seq_along(i)), pick(own, i))) refuse_collective(recipe, name)
    }
    whole <- fitting_value(recipe, name, sample$rows)
    if (is.null(whole)) refuse_collective(recipe, name)
    compare(whole, seq_len(n))
    if (!thorough) next
    half <- seq_len(n %/% 2L)
    missing <- if (length(sample$rows)) which(!stats::complete.cases(sample$rows))[1L]
    parts <- c(list(half, setdiff(seq_len(n), half), 1L, n %/% 2L + 1L, n, missing), uneven_parts(whole, sample$rows))
    for (i in unique(Filter(function(i) length(i) && !anyNA(i), parts))) {
      part <- fitting_value(recipe, name, rows_at(sample$rows, i))
      if (is.null(part)) next   # too few rows for it, which the whole shows
      compare(part, i)
      check_order(recipe, name, part, whole)
    }
    mixed <- fitting_value(recipe, name, bind_rows(mixed_rows(sample$rows), rows_at(sample$rows, rev(seq_len(n)))))
    if (!is.null(mixed)) compare(mixed, rev(seq_len(n)), n)
  }
}

# NULL where there are not as many values as rows
fitting_value <- function(recipe, name, rows) {
  value <- computed_value(recipe, name, rows)
  if (recipe$computed[[name]]$argument == "subset" && length(value) == 1L) value <- rep(value, nrow(rows))
  if (!is.null(value) && NROW(value) == nrow(rows)) value
}

# Rows that could be among the others, with the same values in another combination.
mixed_rows <- function(rows) {
  n <- nrow(rows)
  shift <- seq_along(rows) * max(1L, n %/% (length(rows) + 1L))
  plain_frame(Map(function(x, by) pick(x, (seq_len(n) - 1L + by) %% n + 1L), unclass(rows), shift), n)
}

# The order of the levels of a factor shows in rows that have small values in one level and large ones in the next, and one
# level more often than the next.
uneven_parts <- function(x, rows, most = 12L) {
  if (!is.factor(x)) return(NULL)
  levels <- utils::head(intersect(levels(x), as.character(x)), most)
  where <- lapply(levels, function(level) which(as.character(x) == level))
  numbers <- Filter(function(v) is.null(dim(v)) && (is.numeric(v) || inherits(v, c("Date", "POSIXct"))) && !all(is.na(v)), as.list(rows))
  if (length(levels) < 2L || !length(numbers)) numbers <- list(seq_len(nrow(rows)))
  extreme <- function(v, i, large) {
    i <- i[!is.na(v[i])]
    if (length(i)) i[if (large) which.max(v[i]) else which.min(v[i])]
  }
  unlist(lapply(unname(numbers), function(v) {
    lapply(c(0L, 1L), function(first) {
      unlist(lapply(seq_along(levels), function(k) {
        rep(extreme(as.double(unclass(v)), where[[k]], (k + first) %% 2L == 0L), if (first) k else length(levels) + 1L - k)
      }))
    })
  }), recursive = FALSE)
}

# Levels that two values of a term have in common must be in the same order, unless the source was given it.
check_order <- function(recipe, name, a, b) {
  if (!is.factor(a) || !is.factor(b) || name %in% recipe$given) return(invisible())
  both <- intersect(levels(a), levels(b))
  if (identical(both, intersect(levels(b), levels(a)))) return(invisible())
  refuse_chunk_term(recipe, name, "The order of the levels of `", name, "` depends on other rows, and would differ between chunks. ",
              "Give it, as in factor(g, levels = ) or by `levels` of the source.")
}

# The columns themselves, where each coefficient belongs to one of them, for plain_design().
plain_columns <- function(recipe, chunk) {
  terms <- recipe$terms
  if (length(recipe$latent) || length(recipe$extra) || length(recipe$levels) || !is.null(attr(terms, "offset"))) return(NULL)
  variables <- vapply(as.list(attr(terms, "variables"))[-1L], function(v) if (is.name(v)) as.character(v) else "", "")
  if (!all(variables %in% recipe$columns)) return(NULL)
  labels <- attr(terms, "term.labels")
  if (!all(labels %in% variables) || !all(vapply(chunk[variables], is.numeric, NA))) return(NULL)
  list(response = variables[1L], predictors = labels)
}

# what autoscaled priors need from the data, see design_spread()
survey_spread <- function(survey) {
  variance <- (survey$squares - survey$sums^2 / survey$used) / (survey$used - 1)
  y <- survey$response
  # as column_scale() has it
  size <- abs(survey$about + survey$sums / survey$used)   # of a constant column, its value
  size[size <= 1e-12 * abs(survey$about)] <- 0
  rounding <- pmax(1e-14 * survey$squares / survey$used, 1e-24 * size^2)
  scale <- ifelse(variance > rounding, sqrt(pmax(variance, 0)), ifelse(size > 0, size, 1))
  list(columns = function(j) scale[j], positive = positive_sums(survey$positive),
       response = list(mean = survey$level + y[1L] / survey$used,
                       sd = sqrt(max((y[2L] - y[1L]^2 / survey$used) / (survey$used - 1), 0))),
       precision = if (survey$precision[2L] > 0) survey$precision[1L] / survey$precision[2L] else 1)
}

# with a line for each pass, if control has progress
showing_passes <- function(control, expr) {
  old <- show_passes(control)
  on.exit(options(old))
  expr
}

show_passes <- function(control) {
  options(elvi.rows_progress = (is.list(control) && isTRUE(control$progress)) || isTRUE(getOption("elvi.rows_progress")))
}
