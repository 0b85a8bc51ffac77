# From a chunk of a source to rows in memory, and what is done with them in a pass. A recipe says how a chunk becomes
# rows; a task is a function of rows whose answers for several chunks can be joined. Both are plain lists, since they
# travel to the workers of a cluster.

# ---- recipes ---------------------------------------------------------------------------

new_recipe <- function(kind, likelihood, ...) {
  structure(list(likelihood = likelihood, ...), class = c(paste0("elvi_recipe_", kind), "elvi_recipe"))
}

# The rows of a chunk, NULL if it has none. `dropped` counts those with missing values. Rows that a pass before has `seen`
# are not checked again, see check_unchanged().
recipe_rows <- function(recipe, chunk, seen = FALSE) UseMethod("recipe_rows")

# chunks that are list(X =, y =, ...), for model_glm()
#' @export
recipe_rows.elvi_recipe_matrices <- function(recipe, chunk, seen = FALSE) {
  if (!is_plain_list(chunk) || is.null(chunk$X) || is.null(chunk$y)) {
    bad_argument("X", "a source whose chunks are lists with X and y (data frames are for a formula)", describe(chunk))
  }
  unknown <- setdiff(names(chunk), c("X", "y", "weights", "weight", "frequency", "offset"))
  if (length(unknown)) bad_argument("X", "a source of chunks with X, y, weights, frequency and offset",
                                    paste0("one with `", unknown[1L], "`"))
  if (!is_chunk_matrix(chunk$X)) bad_argument("X", "a source of chunks whose X is a numeric matrix", describe(chunk$X))
  if (dim(chunk$X)[1L] == 0L) return(NULL)
  given <- list(X = check_design(chunk$X), y = chunk$y, weights = chunk$weights %||% chunk$weight,
                frequency = chunk$frequency, offset = chunk$offset)
  check_labels(recipe, column_names(given$X))
  rows <- read_rows(given, family_records[[recipe$likelihood]])
  c(rows, list(dropped = 0))
}

is_chunk_matrix <- function(X) inherits(X, "sparseMatrix") || is.matrix(X)

# data frames, for a formula
#' @export
recipe_rows.elvi_recipe_formula <- function(recipe, chunk, seen = FALSE) {
  chunk <- check_chunk(chunk)
  given <- plain_design(recipe, chunk)
  if (seen && !is.null(given)) return(with_stored(plain_rows(given), recipe))
  if (is.null(given)) given <- framed_design(recipe, chunk)
  if (is.null(given$X) || !design_dim(given$X)[1L]) return(NULL)
  check_labels(recipe, if (is_sparse(given$X)) given$X$names else colnames(given$X))
  if (!seen) check_chunk_design(given$X)
  rows <- with_stored(read_rows(given, family_records[[recipe$likelihood]]), recipe)
  rows$precision <- given$weights
  rows$Z <- given$Z
  rows$numeric <- if (is.numeric(given$y) && is.null(dim(given$y))) given$y
  c(rows, list(dropped = given$dropped))
}

# with what a recipe's builder knows of its rows
with_stored <- function(rows, recipe) {
  rows$coded <- recipe$builder$coded
  if (has_sparse_rows(rows)) rows[c("stored", "per_row")] <- recipe$builder[c("stored", "entries")]
  rows
}

check_chunk_design <- function(X) {
  if (is_sparse(X) && !all(is.finite(X$entry))) X <- dense_design(X)   # for its message
  numbers <- if (is_sparse(X)) X$entry else check_matrix(X, "data")
  if (length(numbers)) check_magnitude(numbers, "data")
}

check_chunk <- function(chunk) {
  if (!is.data.frame(chunk)) bad_argument("data", "a source whose chunks are data frames", describe(chunk))
  long <- vapply(chunk, inherits, NA, "integer64")   # as databases have them
  if (any(long)) {
    need_package("bit64", "A column of 64-bit integers")
    chunk[names(chunk)[long]] <- lapply(unclass(chunk)[long], as.double)
  }
  chunk
}

# By model.frame() and model.matrix(), as in memory.
framed_design <- function(recipe, chunk) {
  frame <- recipe_frame(recipe, chunk)
  if (!nrow(frame)) return(list(X = NULL))
  X <- if (!is.null(recipe$builder)) built_design(recipe$builder, frame, nrow(frame))
  X <- X %||% stats::model.matrix(recipe$fixed %||% recipe$terms, frame, recipe$contrasts)
  design <- with_free_columns(recipe, X, frame)
  list(X = design$X, Z = design$Z, y = stats::model.response(frame, "any"),
       weights = stats::model.weights(frame), frequency = frame[["(frequency)"]],
       offset = blame_argument(stats::model.offset(frame), "offset", "it cannot be used"),
       dropped = length(attr(frame, "na.action")))
}

recipe_frame <- function(recipe, chunk) {
  call <- as.call(c(quote(stats::model.frame), list(formula = recipe$terms, data = quote(chunk)), recipe$extra,
                    if (length(recipe$levels)) list(xlev = recipe$levels)))
  if (!nrow(chunk)) return(data.frame())
  check_columns(recipe, chunk)
  for (name in intersect(names(recipe$levels), names(chunk))) {   # a column of NA only, as text files give it
    if (is.logical(chunk[[name]]) && all(is.na(chunk[[name]]))) chunk[[name]] <- as.character(chunk[[name]])
  }
  for (name in intersect(recipe$coded, names(chunk))) attr(chunk[[name]], "contrasts") <- NULL   # the argument's are used
  tryCatch(reading_frame(eval(call)), elvi_error_argument = function(e) {
    chunk_values(recipe, chunk)   # names the term, where it is one
    stop(e)
  })
}

# Untransformed columns need no model frame, which would take longer than the pass.
plain_design <- function(recipe, chunk) {
  plain <- recipe$plain
  n <- nrow(chunk)
  if (!n) return(NULL)
  if (!is.null(recipe$builder$plain)) return(plain_factors(recipe$builder, chunk, n))
  if (is.null(plain)) return(NULL)
  columns <- c(plain$response, plain$predictors)
  if (!all(columns %in% names(chunk))) return(NULL)
  for (name in columns) if (!is_plain_column(chunk[[name]])) return(NULL)
  y <- chunk[[plain$response]]
  X <- .Call(elvi_r_columns, unclass(chunk)[plain$predictors], n, length(recipe$labels) > length(plain$predictors))
  if (is.null(X) || anyNA(y)) return(NULL)
  dimnames(X) <- list(NULL, recipe$labels)
  list(X = X, y = y, dropped = 0)
}

plain_factors <- function(builder, chunk, n) {
  y <- chunk[[builder$plain]]
  if (!is_plain_column(y) || anyNA(y)) return(NULL)
  X <- built_design(builder, chunk, n)
  if (!is.null(X)) list(X = X, y = y, dropped = 0)
}

is_plain_column <- function(x) (is.double(x) || is.integer(x)) && !is.object(x) && is.null(dim(x))

# what read_rows() makes of them, for every family
plain_rows <- function(given) {
  n <- length(given$y)
  c(new_rows(given$X, NULL, as.double(given$y), rep(1, n), numeric(n), n), list(dropped = 0))
}

check_labels <- function(recipe, labels) {
  if (is.null(recipe$labels) || identical(labels, recipe$labels)) return(invisible())
  elvi_abort("A chunk has other columns than those before it: (", toString(utils::head(labels, 8L)), ") instead of (",
             toString(utils::head(recipe$labels, 8L)), ").", class = c("elvi_error_rows", "elvi_error_argument"),
             data = list(argument = "data"))
}

# ---- tasks -----------------------------------------------------------------------------
# All tasks that the rows of a model can do, in memory or larger than memory. `part(model, args)` is the answer for the
# rows of a model in memory, `join(a, b)` that of two parts. `prior`: the prior of a model is part of the answer.
# `of_chunk`: the task is done to the chunk as it is read, by `part(chunk, recipe, args)`.

# made where it is used, from the base: it is larger than what a pass returns
likelihood_rule <- function(model, law) {
  rule <- law$rule %||% cached_quadrature(law, model$likelihood)
  rule$prior_levels <- list()
  rule
}

add_up <- function(a, b) Map(`+`, a, b)

row_tasks <- list(
  # E f, its gradient and curvature; with a scale of 0 f and its derivatives
  exact = list(
    prior = TRUE,
    part = function(model, args) {
      .Call(elvi_r_exact, model, args$rule %||% likelihood_rule(model, args$law), args$kind, args$mu, args$scale,
            args$directions, threads())
    },
    join = function(a, b) {
      c(list(status = max(a$status, b$status), value = a$value + b$value, g_mu = a$g_mu + b$g_mu, B = a$B + b$B,
             widest = max(a$widest, b$widest)), if (!is.null(a$third)) list(third = a$third + b$third))
    }),
  # f and its gradient at the columns of x
  evaluate = list(prior = TRUE, part = function(model, args) .Call(elvi_r_evaluate, model, args$x, threads()), join = add_up),
  # f alone, for which a gradient would be more than half of the work
  values = list(prior = TRUE, part = function(model, args) .Call(elvi_r_target_values, model, args$x, threads()), join = `+`),
  # f, or sums of its gradients, at draws that are made where the rows are, see rows-draws.R
  draws = list(
    prior = TRUE,
    part = function(model, args) {
      at <- function(x) .Call(elvi_r_evaluate, model, x, threads())
      if (args$draws$values) values_at_draws(args$draws, function(x) at(x)$value)
      else sums_over_draws(args$draws, function(x) at(x)$gradient)
    },
    join = `+`),
  # the gradient of the likelihood from some rows, see rows-subsample.R
  subsample = list(
    part = function(model, args) .Call(elvi_r_evaluate, subsampled_likelihood(model, args), args$x, threads())$gradient,
    join = `+`),
  # the same at draws that are made where the rows are, less that at the anchor
  subsample_draws = list(
    part = function(model, args) {
      some <- subsampled_likelihood(model, args)
      at <- function(x) .Call(elvi_r_evaluate, some, x, threads())$gradient
      before <- as.double(at(args$anchor))
      sums_over_draws(args$draws, function(x) at(x) - before)
    },
    join = `+`),
  # X'X over the rows that count
  gram = list(part = function(model, args) .Call(elvi_r_gram, model$rows, FALSE), join = `+`),
  # the largest |X_ij| of each column over the rows that count, or a bound of it
  reach = list(part = function(model, args) .Call(elvi_r_reach, model$rows), join = pmax),
  # the variance of the responses; a survey has it from other sums, so it is never joined
  spread = list(part = function(model, args) response_variance(model$rows)),
  # the largest |X_i x|
  extent = list(part = function(model, args) .Call(elvi_r_extent, model$rows, args$x), join = max),
  # the same over the rows that count
  used_extent = list(
    part = function(model, args) max(abs(predictor_of(model$rows, args$x)[model$rows$weight > 0]), 0),
    join = max),
  # can the loss of no row that counts rise along x? Changes of a predictor below `small` do not count.
  is_recession = list(
    part = function(model, args) {
      used <- model$rows$weight > 0
      family_record(model)$is_recession(predictor_of(model$rows, args$x)[used], model$rows$y[used], args$small)
    },
    join = `&&`),
  # the diagonal of the Hessian of the likelihood
  diagonal = list(
    part = function(model, args) {
      rows <- model$rows
      at <- .Call(elvi_r_expect_rows, model, likelihood_rule(model, args$law), args$dispersion,
                  list(y = rows$y, weight = rows$weight, eta = predictor_of(rows, args$x) + rows$offset,
                       s = numeric(length(rows$y))))
      .Call(elvi_r_squares, rows, at$curve)
    },
    join = `+`),
  # the weighted sum of squared residuals
  squares = list(part = function(model, args) sum(model$rows$weight * residuals_at(model$rows, args$x)^2), join = `+`),
  # of a poisson fit: by how much its squared residuals exceed their variance, and in which units
  excess = list(
    part = function(model, args) {
      rows <- model$rows
      mu <- exp(predictor_of(rows, args$x) + rows$offset)
      c(sum(rows$weight * ((rows$y - mu)^2 - mu)), sum(rows$weight * mu^2))
    },
    join = `+`),
  # the rows themselves, where there are few; with args$dense, X as a matrix whatever it is
  collect = list(part = function(model, args) {
                   rows <- model$rows[c("X", "y", "weight", "offset")]
                   if (isTRUE(args$dense)) rows$X <- dense_rows(model$rows)
                   rows
                 },
                 join = function(a, b) Map(function(x, y) if (is.matrix(x)) rbind(x, y) else c(x, y), a, b)),
  # see rows-nested.R
  triangle = list(part = function(model, args) chunk_triangle(model$rows), join = function(a, b) join_triangles(a, b)),
  survey = list(
    part = function(model, args) c(survey_rows(model$rows, args), list(sample = sample_of_rows(model$rows, model$check))),
    join = function(a, b) join_surveys(a, b)),
  # see solve-summed.R
  begin = list(part = function(model, args) begin_sums(model$rows, args), join = function(a, b) add_up(a, b)),
  nested = list(part = function(model, args) row_sums_at(model, args), join = function(a, b) join_row_sums(a, b)),
  # see rows-latent.R
  terms = list(of_chunk = TRUE, part = function(chunk, recipe, args) survey_terms(recipe, chunk, args),
               join = function(a, b) join_term_surveys(a, b)),
  # the first chunk that has a complete row
  complete = list(of_chunk = TRUE,
                  part = function(chunk, recipe, args) {
                    chunk <- check_chunk(chunk)
                    if (nrow(recipe_frame(recipe, chunk))) first_rows(chunk)
                  },
                  join = function(a, b) a %||% b),
  levels = list(of_chunk = TRUE, part = function(chunk, recipe, args) chunk_levels(recipe, chunk),
                join = function(a, b) join_levels(a, b)),
  # constants of terms such as ns(x, 3), see rows-constants.R
  constants = list(of_chunk = TRUE, part = function(chunk, recipe, args) chunk_constants(recipe, chunk, args),
                   join = function(a, b) join_constants(a, b)),
  powers = list(of_chunk = TRUE, part = function(chunk, recipe, args) chunk_powers(recipe, chunk, args),
                join = function(a, b) if (is.null(a) || is.null(b)) a %||% b else join_triangles(a, b)),
  cells = list(of_chunk = TRUE, part = function(chunk, recipe, args) chunk_cells(recipe, chunk, args),
               join = function(a, b) join_cells(a, b)),
  # how often the rows of each fold count, see rows-folds.R
  fold_counts = list(part = function(model, args) counts_of_folds(model, args), join = `+`),
  # a method of a fit at its data, see at_chunks()
  method = list(of_chunk = TRUE, part = function(chunk, recipe, args) chunk_method(recipe, chunk, args),
                join = function(a, b) {
                  bind <- if (is.matrix(a[[1L]])) cbind else c
                  if (is.null(a)) b else if (is.null(b)) a else Map(bind, a, b)
                }))

# ---- the survey --------------------------------------------------------------------------

# Numbers, sums about the point `about` and extremes: all that model and priors need of the data.
survey_rows <- function(rows, args) {
  rows <- shifted_by(rows, args$about)
  n <- length(rows$y)
  used <- rows$weight > 0
  once <- as.double(used)
  y <- if (!is.null(rows$numeric)) rows$numeric[used] - args$level
  around <- rows$y - rows$offset - args$level
  all_ones <- all(rows$weight == 1)
  gram <- .Call(elvi_r_gram, rows, FALSE)
  list(n = as.double(n), dropped = as.double(rows$dropped), count = rows$count, constant = rows$constant,
       weight = sum(rows$weight), used = as.double(sum(used)),
       sums = .Call(elvi_r_sums, rows, once), squares = .Call(elvi_r_squares, rows, once), gram = gram,
       weighted = if (all_ones) gram else .Call(elvi_r_gram, rows, TRUE), weighted_sums = .Call(elvi_r_sums, rows, rows$weight),
       reach = .Call(elvi_r_reach, rows),
       response = if (is.null(y)) c(0, 0) else c(sum(y), sum(y^2)),
       positive = c(sum(abs(rows$y[used])), sum((abs(rows$y) * exp(-rows$offset))[used]), sum(rows$y[used] > 0), sum(used)),
       around = c(sum(rows$weight * around), sum(rows$weight * around^2)),
       precision = c(sum(rows$precision[rows$precision > 0]), sum(rows$precision > 0)),
       low = c(min(rows$y), min(rows$offset)), high = c(max(rows$y), max(rows$offset)),
       tally = if (args$counts) tally_of(rows, rows$y > 0), columns = if (!is.null(rows$Z)) entries_of_terms(rows$Z))
}

survey_extremes <- list(low = pmin, high = pmax, reach = pmax)

join_surveys <- function(a, b) {
  out <- a
  if (!is.null(a$columns)) out$columns <- add_up(a$columns, b$columns)
  if ("sample" %in% names(a)) out["sample"] <- list(join_row_samples(a$sample, b$sample))
  for (name in setdiff(names(a), c("tally", "columns", "sample"))) {
    join <- survey_extremes[[name]] %||% `+`
    out[[name]] <- join(a[[name]], b[[name]])
  }
  if (!is.null(a$tally)) {
    totals <- rowsum(c(a$tally$weight, b$tally$weight), c(a$tally$y, b$tally$y))
    out$tally <- list(y = as.double(rownames(totals)), weight = as.double(totals))
  }
  out
}

# What tells other rows from these, in whatever order they come: their number, and sums of marks, of their squares and of
# their sizes. A mark combines all that a row has, so that values that change places change it too.
check_sums <- function(rows, recipe) {
  rows["shift"] <- list(NULL)
  c(length(rows$y), .Call(elvi_r_check_sums, rows, recipe$marks %||% uneven(rows$dim + 3)))
}

# By what the columns, y, weight and offset of a row are multiplied in its mark: each other than the rest, and none of them
# much larger, as far as the rows of a first chunk tell. NULL if it has none that can be used.
mark_weights <- function(recipe, chunk) {
  rows <- or_null(recipe_rows(recipe, chunk))
  if (is.null(rows)) return(NULL)
  reach <- c(.Call(elvi_r_reach, rows), max(abs(rows$y)), max(rows$weight), max(abs(rows$offset)))
  uneven(length(reach)) / ifelse(is.finite(reach) & reach > 0, reach, 1)
}

uneven <- function(n) 1 + (seq_len(n) * (sqrt(5) - 1) / 2) %% 1

# sum (x - centre)(x - centre)' from the same about another point. What is left of a column that is constant is rounding.
recentred <- function(gram, sums, n, by) {
  out <- gram - outer(sums, by) - outer(by, sums) + n * outer(by, by)
  constant <- diag(out) <= 1e-14 * (diag(gram) + n * by^2)
  out[constant, ] <- out[, constant] <- 0
  out
}

# ---- levels ----------------------------------------------------------------------------

# Of each categorical variable of the frame of a chunk: levels as declared, and which of them occur.
chunk_levels <- function(recipe, chunk) {
  chunk <- check_chunk(chunk)
  frame <- recipe_frame(recipe, chunk)
  categorical <- Filter(function(x) is.factor(x) || is.character(x), as.list(frame))
  list(n = as.double(nrow(frame)), variables = lapply(stats::setNames(nm = names(categorical)), function(name) {
    x <- categorical[[name]]
    text <- as.character(x)
    found <- list(declared = if (is.factor(x)) list(levels(x)) else list(), occurring = unique(text[!is.na(text)]), ordered = is.ordered(x))
    if (is.factor(x) && !is.null(recipe$computed[[name]])) found$rows <- rows_of_levels(recipe, name, chunk, found$occurring)
    found
  }))
}

# a row for each level of a computed factor
rows_of_levels <- function(recipe, name, chunk, levels) {
  columns <- intersect(recipe$sampled, all.vars(recipe$computed[[name]]$expr))
  at <- match(levels, as.character(computed_value(recipe, name, chunk)))
  rows_at(plain_frame(unclass(chunk)[columns], nrow(chunk)), at)
}

join_levels <- function(a, b) {
  names <- union(names(a$variables), names(b$variables))
  both <- lapply(stats::setNames(names, names), function(name) {
    one <- a$variables[[name]]
    other <- b$variables[[name]]
    new <- which(!other$occurring %in% one$occurring)
    list(declared = unique(c(one$declared, other$declared)), occurring = c(one$occurring, other$occurring[new]),
         ordered = isTRUE(one$ordered) || isTRUE(other$ordered),
         rows = if (is.null(one$rows) || is.null(other$rows)) one$rows %||% other$rows else bind_rows(one$rows, rows_at(other$rows, new)))
  })
  list(n = a$n + b$n, variables = both)
}

# As in memory: those that occur, in the order declared; sorted, if they come from characters; as a call such as factor() has them
# for rows of all levels.
final_levels <- function(found, recipe = NULL) {
  out <- lapply(stats::setNames(nm = names(found)), function(name) {
    variable <- found[[name]]
    if (length(variable$declared) == 1L) return(intersect(variable$declared[[1L]], variable$occurring))
    if (!is.null(variable$rows)) return(levels_together(recipe, name, variable))
    is_column <- is.name(or_null(str2lang(name)))
    if (isTRUE(variable$ordered)) check_declared(name, variable$declared)
    if (length(variable$declared) && is_column) return(intersect(unlist(variable$declared), variable$occurring))
    number <- suppressWarnings(as.numeric(variable$occurring))
    if (!is_column && !anyNA(number)) variable$occurring[order(number)] else sort(variable$occurring)
  })
  Filter(length, out)
}

levels_together <- function(recipe, name, variable) {
  value <- fitting_value(recipe, name, variable$rows)
  if (!is.factor(value) || !identical(as.character(value), variable$occurring)) refuse_collective(recipe, name)
  intersect(levels(value), variable$occurring)
}

# An ordered factor has one order, which its chunks must agree on.
check_declared <- function(name, declared) {
  all <- unique(unlist(declared))
  if (all(vapply(declared, function(levels) identical(intersect(all, levels), levels), NA))) return(invisible())
  elvi_abort("The order of the levels of `", name, "` cannot be determined from the chunks, which differ. ",
             "Give it by `levels` of the source.",
             class = c("elvi_error_rows", "elvi_error_argument"), data = list(argument = "data", column = name))
}

# ---- a pass in this process ----------------------------------------------------------------

# The answers of a task to all chunks, joined in their order: `answer`, with `check`, the sums that tell the rows.
pass_over <- function(source, recipe, task, args = list()) UseMethod("pass_over")

#' @export
pass_over.elvi_source <- function(source, recipe, task, args = list()) {
  with_retries(source$again, function() single_pass(source, recipe, task, args))
}

single_pass <- function(source, recipe, task, args) {
  if (isTRUE(row_tasks[[task]]$of_chunk)) return(pass_over_chunks(source, recipe, task, args))
  pieces <- open_rows(source, recipe, task)
  on.exit(pieces$close())
  total <- NULL
  repeat {
    piece <- pieces$read()
    if (is.null(piece)) break
    total <- join_answers(task, total, answer_of(piece, recipe, task, replace(args, "place", list(c(args$place, piece$place)))))
  }
  sample <- pieces$sample()
  if (is.null(sample)) total else c(total[c("answer", "check")], list(sample = sample))
}

pass_over_chunks <- function(source, recipe, task, args) {
  chunks <- source$open(recipe$columns)
  on.exit(chunks$close())
  total <- NULL
  at <- 0
  repeat {
    chunk <- chunks$read()
    if (is.null(chunk)) return(total)
    at <- at + 1
    here <- replace(args, "place", list(c(args$place, at - 1)))
    total <- join_answers(task, total, in_chunk(chunk_place(chunks, at), answer_to_chunk(chunk, recipe, task, here)))
  }
}

answer_to_chunk <- function(chunk, recipe, task, args) {
  answer <- row_tasks[[task]]$part(chunk, recipe, args)
  list(answer = answer, check = attr(answer, "check"))
}

# Of the rows of a chunk, whose sums are `check`: they belong to a model without a prior, see likelihood_part().
answer_of <- function(piece, recipe, task, args) {
  check <- piece$check
  rows <- shifted_by(piece$rows, recipe$centre)
  if (!is.null(args$left_out)) rows$weight[fold_of_rows(args$left_out, args$place, length(rows$weight)) == args$left_out$fold] <- 0
  if (!is.null(args$weighing)) rows <- reweighed(rows, args$weighing$variance, args$weighing$earlier)
  model <- c(args$likelihood, list(rows = rows, check = check))
  list(answer = row_tasks[[task]]$part(model, args), check = check)
}

join_answers <- function(task, a, b) {
  if (is.null(a) || is.null(b)) return(a %||% b)
  answer <- if (task == "survey" && (is.null(a$answer) || is.null(b$answer))) a$answer %||% b$answer   # a shard may have a sample only
            else row_tasks[[task]]$join(a$answer, b$answer)
  list(answer = answer, check = add_checks(a$check, b$check))
}

add_checks <- function(a, b) if (is.null(a)) b else if (is.null(b)) a else a + b

in_chunk <- function(place, expr) {
  tryCatch(expr, elvi_error_argument = function(e) {
    e$message <- paste0(upper_first(place), ": ", e$message)
    stop(e)
  })
}

# the name of a chunk in messages: its file, or its number
chunk_place <- function(chunks, number) if (is.null(chunks$place)) paste("chunk", format_count(number)) else chunks$place()

# The first chunk that has rows, NULL if none has.
first_chunk <- function(source) UseMethod("first_chunk")

#' @export
first_chunk.elvi_source <- function(source) {
  with_retries(source$again, function() {
    chunks <- source$open(NULL)
    on.exit(chunks$close())
    repeat {
      chunk <- chunks$read()
      if (is.null(chunk) || chunk_length(chunk) > 0) return(chunk)
    }
  })
}

# 1 for a value that is not a chunk: it is checked, and refused
chunk_length <- function(chunk) {
  if (is.data.frame(chunk)) nrow(chunk) else if (is_plain_list(chunk)) NROW(chunk$X) else 1L
}
