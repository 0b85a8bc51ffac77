# Terms such as ns(x, 3), poly(x, 2), scale(x) and cut(x, 4) take knots, coefficients, means or breaks from all values of x. With data
# larger than memory a first pass finds these constants, and the term is evaluated with them in every chunk, by the
# protocol of makepredictcall(). Few rows are collected, and the term itself is evaluated. Of many rows sums, the extremes
# and order statistics are enough.

# Rows that are collected for it at most.
collected_rows <- function() getOption("elvi.collected_rows", 1e6)

# The calls that this file handles: the function, and the definition by which its arguments are matched.
constant_calls <- function() {
  list(ns = list(fun = splines::ns, definition = splines::ns), bs = list(fun = splines::bs, definition = splines::bs),
       poly = list(fun = stats::poly, definition = stats::poly), scale = list(fun = scale, definition = scale),
       cut = list(fun = cut, definition = cut.default))
}

# Which of them a call is, "" if none: a function of the user's with the same name is something else.
constant_kind <- function(call, env) {
  if (!is.call(call)) return("")
  head <- call[[1L]]
  name <- if (is.name(head)) as.character(head) else if (is.call(head) && length(head) == 3L) as.character(head[[3L]]) else ""
  known <- constant_calls()[[name]]
  if (!is.null(known) && identical(or_null(eval(head, env)), known$fun)) name else ""
}

matched_call <- function(call, kind) match.call(constant_calls()[[kind]]$definition, call)

# Does a call still need the data?
lacks_constants <- list(
  ns = function(call, env, columns) is.null(call$Boundary.knots) || is.null(call$knots) && !is.null(call$df),
  bs = function(call, env, columns) is.null(call$Boundary.knots) || is.null(call$knots) && !is.null(call$df),
  poly = function(call, env, columns) is.null(call$coefs) && !isTRUE(or_null(eval(call$raw, env))),
  scale = function(call, env, columns) {
    known <- function(arg) !is.null(arg) && !isTRUE(or_null(eval(arg, env)))
    !known(call$center) || !known(call$scale)
  },
  cut = function(call, env, columns) {
    any(all.vars(call$breaks) %in% columns) || length(or_null(eval(call$breaks, list(), env))) < 2L
  })

# The variables of a formula that need constants: calls by the names that model.frame() gives them.
wanting_constants <- function(recipe) {
  env <- environment(recipe$terms)
  variables <- as.list(attr(recipe$terms, "variables"))[-1L]
  wanting <- Filter(function(v) {
    kind <- constant_kind(v, env)
    nzchar(kind) && lacks_constants[[kind]](matched_call(v, kind), env, recipe$columns)
  }, variables)
  stats::setNames(wanting, vapply(wanting, variable_name, ""))
}

# Calls with their constants in place, by the name of the variable; NULL where the formula has none that lack them.
find_constants <- function(source, recipe) {
  wanting <- wanting_constants(recipe)
  if (!length(wanting)) return(NULL)
  columns <- intersect(recipe$columns, unlist(lapply(wanting, all.vars)))
  found <- pass_with_progress(source, recipe, "constants", list(calls = wanting, columns = columns, most = collected_rows()))$answer
  if (is.null(found)) return(NULL)
  lapply(stats::setNames(nm = names(wanting)), function(name) {
    if (!is.null(found$rows)) constants_from_rows(recipe, wanting[[name]], name, found$rows)
    else constants_from_sums(source, recipe, wanting[[name]], name, found$sums[[name]])
  })
}

# The formula's variables with these calls in place.
with_constants <- function(recipe, constants) {
  if (is.null(constants)) return(recipe)
  attr(recipe$terms, "predvars") <- predvars_with(attr(recipe$terms, "variables"), constants)
  for (name in names(constants)) recipe$computed[[name]]$expr <- constants[[name]]
  recipe
}

predvars_with <- function(variables, constants) {
  for (k in seq_along(variables)[-1L]) {
    name <- variable_name(variables[[k]])
    if (!is.null(constants[[name]])) variables[[k]] <- constants[[name]]
  }
  variables
}

# ---- few rows ----------------------------------------------------------------------------------

constants_from_rows <- function(recipe, call, name, rows) {
  env <- environment(recipe$terms)
  value <- tryCatch(eval(call, rows, env), error = function(e) {
    if (is_time_limit(e)) stop(e)
    refuse_chunk_term(recipe, name, "`", name, "` cannot be computed: ", conditionMessage(e), ".")
  })
  if (constant_kind(call, env) != "cut") return(stats::makepredictcall(value, call))
  given <- matched_call(call, "cut")
  breaks <- eval(given$breaks, rows, env)
  given$breaks <- if (length(breaks) == 1L) equal_breaks(range(eval(given$x, rows, env), na.rm = TRUE), breaks) else as.vector(breaks)
  given[[1L]] <- call[[1L]]
  given
}

# as cut.default() makes them of a number
equal_breaks <- function(range, n) {
  width <- diff(range)
  if (width == 0) {
    width <- if (range[1L] != 0) abs(range[1L]) else 1
    return(seq.int(range[1L] - width / 1000, range[2L] + width / 1000, length.out = n + 1))
  }
  breaks <- seq.int(range[1L], range[2L], length.out = n + 1)
  breaks[c(1L, n + 1)] <- c(range[1L] - width / 1000, range[2L] + width / 1000)
  breaks
}

# ---- many rows ---------------------------------------------------------------------------------

# The task: rows, as long as there are few, and sums of the first argument of each call.
chunk_constants <- function(recipe, chunk, args) {
  chunk <- check_chunk(chunk)
  check_columns(recipe, chunk)
  if (!nrow(chunk)) return(NULL)
  env <- environment(recipe$terms)
  list(rows = if (nrow(chunk) <= args$most) plain_frame(unclass(chunk)[args$columns], nrow(chunk)), most = args$most,
       sums = lapply(args$calls, function(call) argument_sums(call, chunk, env)))
}

# the numbers inside a term; NULL if they are not numeric
argument_values <- function(call, chunk, env) {
  kind <- constant_kind(call, env)
  given <- matched_call(call, kind)
  x <- or_null(suppressWarnings(eval(given$x, chunk, env)))
  if (!is.numeric(x) || !is.null(dim(x)) || length(x) != nrow(chunk)) return(NULL)
  x <- as.double(x)
  if (!is.null(given$Boundary.knots)) {   # of splines, whose knots are quantiles of the values inside
    inside <- range(eval(given$Boundary.knots, list(), env))
    x <- x[is.na(x) | x >= inside[1L] & x <= inside[2L]]
  }
  x
}

argument_sums <- function(call, chunk, env) {
  x <- argument_values(call, chunk, env)
  if (is.null(x)) return(NULL)
  missing <- anyNA(x)
  x <- x[!is.na(x)]
  n <- length(x)
  mean <- if (n) mean(x) else 0
  list(n = n, mean = mean, squares = sum((x - mean)^2), low = min(x, Inf), high = max(x, -Inf), missing = missing)
}

join_constants <- function(a, b) {
  if (is.null(a) || is.null(b)) return(a %||% b)
  few <- !is.null(a$rows) && !is.null(b$rows) && nrow(a$rows) + nrow(b$rows) <= a$most
  list(rows = if (few) bind_rows(a$rows, b$rows), most = a$most, sums = Map(join_argument_sums, a$sums, b$sums))
}

join_argument_sums <- function(a, b) {
  if (is.null(a) || is.null(b)) return(NULL)
  n <- a$n + b$n
  apart <- b$mean - a$mean
  list(n = n, mean = a$mean + apart * (if (n) b$n / n else 0), squares = a$squares + b$squares + (if (n) apart^2 * a$n * b$n / n else 0),
       low = min(a$low, b$low), high = max(a$high, b$high), missing = a$missing || b$missing)
}

constants_from_sums <- function(source, recipe, call, name, sums) {
  env <- environment(recipe$terms)
  kind <- constant_kind(call, env)
  given <- matched_call(call, kind)
  given[[1L]] <- call[[1L]]
  out <- if (!is.null(sums) && sums$n > 1) many_row_constants[[kind]](source, recipe, call, given, sums, env)
  out %||% refuse_chunk_term(recipe, name, "`", name, "` takes constants from all rows. They cannot be found chunk by chunk for more than ",
                             format_count(collected_rows()), " rows. Give them (knots, breaks, a mean), or add the term to the ",
                             "data as a column.")
}

value_or <- function(expr, env, default) if (is.null(expr)) default else eval(expr, list(), env)

many_row_constants <- list(
  ns = function(source, recipe, call, given, sums, env) {
    spline_constants(source, recipe, call, given, sums, env, function(df, intercept) df - 1L - intercept)
  },
  bs = function(source, recipe, call, given, sums, env) {
    degree <- value_or(given$degree, env, 3L)
    spline_constants(source, recipe, call, given, sums, env, function(df, intercept) df - degree - intercept)
  },
  scale = function(source, recipe, call, given, sums, env) {
    centre <- value_or(given$center, env, TRUE)
    spread <- value_or(given$scale, env, TRUE)
    if (isTRUE(centre)) centre <- sums$mean
    at <- if (isFALSE(centre)) 0 else centre
    if (isTRUE(spread)) spread <- sqrt((sums$squares + sums$n * (sums$mean - at)^2) / (sums$n - 1))
    given[c("center", "scale")] <- list(centre, spread)
    given
  },
  poly = function(source, recipe, call, given, sums, env) {
    if (sums$missing) return(NULL)
    further <- as.list(given)[-1L]
    further <- further[!nzchar(names(further))]   # poly(x, 2)
    degree <- value_or(given$degree %||% if (length(further) == 1L) further[[1L]], env, 1L)
    if (length(further) > 1L || length(degree) != 1L || length(further) && !is.null(given$degree)) return(NULL)
    about <- list(call = call, centre = sums$mean, spread = sqrt(sums$squares / sums$n), degree = degree)
    if (about$spread == 0) return(NULL)
    R <- pass_with_progress(source, recipe, "powers", about)$answer$R
    call$coefs <- polynomial_coefficients(R, about)
    call
  },
  cut = function(source, recipe, call, given, sums, env) {
    breaks <- given$breaks
    if (is.call(breaks) && identical(or_null(eval(breaks[[1L]], env)), stats::quantile)) {
      asked <- match.call(utils::getS3method("quantile", "default"), breaks)
      complete <- !sums$missing || isTRUE(value_or(asked$na.rm, env, FALSE))
      if (!identical(asked$x, given$x) || !is.null(asked$type) || !complete) return(NULL)
      given$breaks <- source_quantiles(source, recipe, call, sums, value_or(asked$probs, env, seq(0, 1, 0.25)))
      return(given)
    }
    n <- if (!any(all.vars(breaks) %in% recipe$columns)) or_null(eval(breaks, list(), env))
    if (!is.numeric(n) || length(n) != 1L) return(NULL)
    given$breaks <- equal_breaks(c(sums$low, sums$high), n)
    given
  })

spline_constants <- function(source, recipe, call, given, sums, env, inner) {
  if (is.null(given$knots) && !is.null(given$df)) {
    n <- max(inner(value_or(given$df, env, NULL), value_or(given$intercept, env, FALSE)), 0)
    given$knots <- source_quantiles(source, recipe, call, sums, seq(0, 1, length.out = n + 2)[-c(1, n + 2)])
    given$df <- NULL
  }
  if (is.null(given$Boundary.knots)) given$Boundary.knots <- c(sums$low, sums$high)
  given
}

# ---- orthogonal polynomials --------------------------------------------------------------------

chunk_powers <- function(recipe, chunk, args) {
  x <- argument_values(args$call, check_chunk(chunk), environment(recipe$terms))
  if (length(x)) list(R = triangle(outer((x - args$centre) / args$spread, 0:args$degree, `^`)))
}

# What poly() keeps, from a factor R of the powers of x: columns of Q are the orthonormal polynomials, and in terms of
# these multiplication by x is R S R^-1, where S raises a power by one.
polynomial_coefficients <- function(R, about) {
  R <- qr.R(qr(R, tol = 0))   # triangle() pivots, and puts the columns back
  k <- seq_len(about$degree)
  multiplied <- R[, -1L, drop = FALSE] %*% backsolve(R[k, k, drop = FALSE], diag(about$degree))
  norm <- (diag(R) * about$spread^(0:about$degree))^2
  list(alpha = about$centre + about$spread * diag(multiplied[k, , drop = FALSE]), norm2 = c(1, norm))
}

# ---- quantiles ---------------------------------------------------------------------------------

# Quantiles as quantile() has them, from order statistics.
source_quantiles <- function(source, recipe, call, sums, probs) {
  at <- (sums$n - 1) * probs + 1
  low <- floor(at + 4 * .Machine$double.eps)
  high <- pmin(low + 1, sums$n)
  values <- order_statistics(source, recipe, call, sums, unique(c(low, high)))
  part <- at - low
  part[abs(part) < 4 * .Machine$double.eps] <- 0
  first <- values[as.character(low)]
  unname(ifelse(part == 0, first, (1 - part) * first + part * values[as.character(high)]))
}

# Values of some ranks. Values are counted in cells, and the cells that hold a wanted rank are divided until each has one
# value only: two or three passes.
order_statistics <- function(source, recipe, call, sums, ranks, cells = 16384) {
  edges <- seq(sums$low, sums$high, length.out = cells + 1)
  values <- rep(NA_real_, length(ranks))
  repeat {
    found <- pass_with_progress(source, recipe, "cells", list(call = call, edges = unique(edges)))$answer
    cell <- findInterval(ranks, cumsum(found$count), left.open = TRUE) + 1L
    single <- is.na(values) & found$low[cell] == found$high[cell]
    values[single] <- found$low[cell[single]]
    if (!anyNA(values)) return(stats::setNames(values, as.character(ranks)))
    wide <- unique(cell[is.na(values)])
    each <- max(cells %/% length(wide), 2L)
    inside <- lapply(wide, function(k) {
      c(seq(found$low[k], found$high[k], length.out = each + 1L), just_above(found$high[k]))   # whose cell has no larger values
    })
    edges <- sort(unlist(inside))
  }
}

just_above <- function(x) x + max(abs(x) * .Machine$double.eps, .Machine$double.xmin)

# The cells of a chunk that have values: the number of their values, the smallest and the largest.
chunk_cells <- function(recipe, chunk, args) {
  x <- sort(argument_values(args$call, check_chunk(chunk), environment(recipe$terms)))
  if (!length(x)) return(NULL)
  cell <- findInterval(x, args$edges)
  first <- which(!duplicated(cell))
  list(cell = cell[first], count = diff(c(first, length(x) + 1)), low = x[first], high = x[!duplicated(cell, fromLast = TRUE)])
}

join_cells <- function(a, b) {
  if (is.null(a) || is.null(b)) return(a %||% b)
  cell <- sort(unique(c(a$cell, b$cell)))
  ia <- match(a$cell, cell)
  ib <- match(b$cell, cell)
  put <- function(i, values, empty) replace(rep(empty, length(cell)), i, values)
  list(cell = cell, count = put(ia, a$count, 0) + put(ib, b$count, 0), low = pmin(put(ia, a$low, Inf), put(ib, b$low, Inf)),
       high = pmax(put(ia, a$high, -Inf), put(ib, b$high, -Inf)))
}
