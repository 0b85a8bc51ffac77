# Group-level and smooth terms of data larger than memory. A pass finds the levels of groups, the units of their slopes, and the
# rows that a smooth's basis is made from; then each chunk has the columns Z that memory would have. Of these only sums
# are kept, on the pattern of the factor: see solve-summed.R.

# Terms as the chunks of a source need them; `recipe` has the levels of factors already.
find_latent <- function(source, recipe, parts, specs, frame, contrasts, knots) {
  refuse_other_terms(parts$others)
  args <- list(bars = parts$bars, smooths = smooth_variables(specs), most = collected_rows(), contrasts = contrasts)
  found <- pass_with_progress(source, recipe, "terms", args)$answer
  groups <- Map(function(bar, seen) surveyed_group(bar, seen, frame, contrasts), parts$bars, found$bars)
  smooths <- list()
  if (length(specs)) {
    say_if_thinned(found$rows)
    smooths <- set_up_smooths(specs, found$rows$frame, if (all(found$rows$counting)) TRUE else found$rows$counting, knots)
  }
  latent <- number_columns(c(unname(groups), do.call(c, lapply(smooths, smooth_terms))))
  check_distinct(latent)
  list(latent = latent, smooths = smooths)
}

refuse_other_terms <- function(others) {
  if (!length(others)) return(invisible())
  bad_argument("data", paste0("in memory for ", deparse_one(others[[1L]]$call), ". With larger data use (1 | g), (x | g) and s(x)"),
               "a source of rows")
}

say_if_thinned <- function(rows) {
  if (rows$every == 1) return(invisible())
  elvi_inform("The bases of smooth terms are made from every ", format_count(rows$every), "th row of a chunk, ",
              format_count(nrow(rows$frame)), " rows in all.", class = "elvi_message_smooth_rows")
}

# ---- the survey of terms ---------------------------------------------------------------------------

# Of a chunk: for each bar the levels that occur and sums of its slopes; and rows of the variables of smooths.
survey_terms <- function(recipe, chunk, args) {
  frame <- recipe_frame(recipe, check_chunk(chunk))
  if (!nrow(frame)) return(NULL)
  counting <- !rows_without_weight(frame)
  list(n = as.double(nrow(frame)), bars = lapply(args$bars, survey_bar, frame, counting, args$contrasts),
       rows = if (length(args$smooths)) thinned(list(frame = plain_frame(unclass(frame)[args$smooths], nrow(frame)),
                                                     counting = counting, every = 1), args$most),
       most = args$most)
}

rows_without_weight <- function(frame) {
  y <- stats::model.response(frame, "any")
  nothing <- list(stats::model.weights(frame), frame[["(frequency)"]], if (is.matrix(y) && is.numeric(y)) rowSums(y))
  Reduce(function(a, x) if (is.null(x)) a else a | x %in% 0, nothing, logical(nrow(frame)))
}

survey_bar <- function(bar, frame, counting, contrasts) {
  columns <- vapply(interaction_parts(bar$group), deparse_one, "")
  for (name in columns) check_grouping(frame[[name]], name, bar, nrow(frame))
  slopes <- slope_design(bar, frame, contrasts)
  M <- check_matrix(slopes$M, "data")
  check_magnitude(M, "data")
  used <- M[counting, , drop = FALSE]
  at <- !duplicated(do.call(paste, c(lapply(frame[columns], as.character), sep = ":")))
  list(levels = lapply(stats::setNames(nm = columns), function(name) levels_and_values(frame[[name]], at)), coefs = colnames(M),
       n = nrow(used), mean = colMeans(used), squares = colSums(sweep(used, 2L, colMeans(used))^2),
       size = apply(abs(M), 2L, max), gram = crossprod(M), contrasts = attr(slopes$M, "contrasts"))
}

# the matrix of a bar's slopes, and the terms it comes from
slope_design <- function(bar, frame, contrasts) {
  slopes <- stats::as.formula(call("~", bar$slopes), env = environment(attr(frame, "terms")))
  terms <- subset_terms(stats::terms(slopes), frame)
  within <- Filter(function(name) name %in% all_variable_names(terms), names(contrasts))
  list(terms = terms, M = slope_matrix(terms, frame, contrasts[within]))
}

# labels in the rows `at`, and what puts them in order: declared levels, or values
levels_and_values <- function(x, at) {
  list(label = as.character(x)[at], declared = if (is.factor(x)) levels(x), value = if (!is.factor(x)) x[at])
}

join_term_surveys <- function(a, b) {
  if (is.null(a) || is.null(b)) return(a %||% b)
  list(n = a$n + b$n, bars = Map(join_bars, a$bars, b$bars), rows = if (!is.null(a$rows)) join_thinned(a$rows, b$rows, a$most),
       most = a$most)
}

join_bars <- function(a, b) {
  if (!identical(a$coefs, b$coefs)) {
    elvi_abort("The slopes of a group-level term have other columns in one chunk than in those before: (", toString(b$coefs),
               ") instead of (", toString(a$coefs), ").", class = c("elvi_error_rows", "elvi_error_argument"),
               data = list(argument = "data"))
  }
  key <- function(x) do.call(paste, c(lapply(x$levels, `[[`, "label"), sep = ":"))
  new <- which(!key(b) %in% key(a))
  n <- a$n + b$n
  apart <- if (a$n && b$n) b$mean - a$mean else 0
  list(levels = Map(function(x, y) {
         list(label = c(x$label, y$label[new]), declared = union(x$declared, y$declared), value = c(x$value, y$value[new]))
       }, a$levels, b$levels), coefs = a$coefs,
       n = n, mean = if (!a$n) b$mean else if (!b$n) a$mean else a$mean + apart * b$n / n,
       squares = a$squares + b$squares + (if (n) apart^2 * a$n * b$n / n else 0),
       size = pmax(a$size, b$size), gram = a$gram + b$gram, contrasts = a$contrasts)
}

# Rows of a chunk, every k-th where there are too many: k is a power of 2, and the same rows are kept however many joins there are.
thinned <- function(rows, most) {
  while (nrow(rows$frame) > most) rows <- halved(rows)
  rows
}

join_thinned <- function(a, b, most) {
  while (a$every != b$every) if (a$every < b$every) a <- halved(a) else b <- halved(b)
  thinned(list(frame = bind_rows(a$frame, b$frame), counting = c(a$counting, b$counting), every = a$every), most)
}

halved <- function(rows) {
  keep <- seq_len(nrow(rows$frame)) %% 2L == 1L
  list(frame = rows_at(rows$frame, which(keep)), counting = rows$counting[keep], every = 2 * rows$every)
}

# ---- terms from the survey ----------------------------------------------------------------------------

# What group_term() makes of all rows.
surveyed_group <- function(bar, seen, frame, contrasts) {
  refuse <- function(...) refuse_term(str2lang(bar$written), paste0(...))
  labels <- lapply(seen$levels, `[[`, "label")
  own <- lapply(seen$levels, ordered_labels)
  combined <- do.call(paste, c(labels, sep = ":"))
  codes <- Map(match, labels, own)
  levels <- combined[do.call(order, unname(codes))]
  if (length(levels) < 2L) refuse("`", bar$label, "` has one level in these data, and one level does not show how levels vary")
  if (!length(seen$coefs)) refuse("it has no coefficient that varies by group")
  unit <- pmax(seen$size, .Machine$double.xmin)
  R <- qr(seen$gram / outer(unit, unit), tol = 1e-12)   # of squares: half the digits of check_slopes()
  if (R$rank < length(unit)) {
    refuse("`", seen$coefs[R$pivot[R$rank + 1L]], "` is constant, or a combination of the other columns of the term")
  }
  sd <- sqrt(seen$squares / max(seen$n - 1, 1))
  list(label = bar$label, kind = "group", levels = levels, coefs = seen$coefs, correlated = bar$correlated,
       unit = unname(ifelse(sd > 1e-12 * seen$size, sd, ifelse(seen$size > 0, seen$size, 1))),
       written = bar$written, slopes = slope_design(bar, frame, contrasts)$terms, contrasts = seen$contrasts, group = names(seen$levels),
       factor_levels = own)
}

# those that occur, as as.factor() orders them
ordered_labels <- function(seen) {
  if (length(seen$declared)) return(intersect(seen$declared, seen$label))
  first <- !duplicated(seen$label)
  seen$label[first][order(seen$value[first])]
}

# ---- sums that need no pattern --------------------------------------------------------------------------

# What a plan has to know of Z: which columns meet in a row, how many entries each has, and their squares.
entries_of_terms <- function(Z) {
  ones <- Z
  ones@x <- rep(1, length(Z@x))
  list(meet = Matrix::crossprod(ones), filled = as.double(diff(Z@p)), squares = Matrix::colSums(Z^2), n = nrow(Z))
}

# ---- the rows of a chunk as C takes them -------------------------------------------------------------------

# A plan for these rows, which have Z, on the pattern of another. `divide`: a known dispersion
chunk_plan <- function(plan, rows, divide = 1) {
  p <- ncol(rows$X)
  X <- if (is.null(rows$shift)) rows$X else rows$X - rep(rows$shift, each = nrow(rows$X))
  sparse <- seq_len(plan$dim - plan$dense)
  border <- t(unname(as.matrix(X)))
  dense <- setdiff(plan$order[seq_len(plan$dim) > length(sparse)], seq_len(p)) - p
  if (length(dense)) border <- rbind(border, unname(as.matrix(Matrix::t(rows$Z[, dense, drop = FALSE]))))
  n <- length(rows$y)
  inner <- if (length(sparse)) Matrix::t(rows$Z[, plan$order[sparse] - p, drop = FALSE])
  inner <- if (is.null(inner)) list(start = integer(n + 1L), column = integer(), entry = numeric())
           else list(start = inner@p, column = inner@i, entry = as.double(inner@x))
  plan["summed"] <- list(NULL)
  replace(plan, c("rows", "X", "start", "column", "entry", "pair", "y", "weight", "offset", "block_start"),
          list(n, as.double(border), inner$start, inner$column, inner$entry,
               .Call(elvi_r_pattern_pairs, plan$pattern, inner$start, inner$column), as.double(rows$y),
               as.double(rows$weight / divide), as.double(rows$offset), c(0L, n)))
}
