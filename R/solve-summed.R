# Conditional optima of rows that are not in memory. Given the hyperparameters an optimum is (mu, c) with one number c_i for each row, but
# the precision needs only C = W' diag(c) W, on the pattern of the factor: P = A + C. So a point is (mu, C), and a pass over the rows
# gives E f, its slope W' l' and the next C, for many hyperparameter points at once. Of gaussian rows one pass is enough.
#
# The certificate compares c with the curvatures at a point, row by row. A step goes to a combination of the curvatures of points before,
# which the pass makes again from (mu, P^-1) there: nothing is kept for a row.

# What nested_setup() gives, of rows that are not in memory.
summed_setup <- function(problem, base) {
  loadNamespace("Matrix")   # its methods, not only its functions
  seen <- problem$summed
  p <- ncol(problem$X)
  q <- ncol(problem$Z)
  problem$prior <- list(centre = rep_len(problem$prior$centre %||% 0, p), precision = rep_len(problem$prior$precision %||% 0, p))
  layout <- hyper_layout(problem)
  dispersion <- if (!length(problem$hyper)) "none" else family_record(problem$family)$conditional$dispersion
  dense <- surveyed_dense(problem, seen$columns)
  plan <- sparse_plan(problem$X, problem$Z, dense, hyper_entries(problem, layout), is_blocked(problem),
                      c(problem$prior$centre, numeric(q)),
                      list(y = numeric(), weight = numeric(), offset = numeric(), record = likelihood_of(problem$family),
                           error_df = problem$family$df, dispersion = dispersion), meet = seen$columns$meet)
  plan$summed <- TRUE
  law <- law_of(base, p + q)
  rule <- conditional_rule(problem, law)
  if (rule$limit <= 0) no_expectation(problem$family, law)
  setup <- list(problem = problem, layout = layout, plan = plan, base = base, law = law, rule = rule, rows = seen$rows,
                divide = seen$divide, places = pattern_places(plan$pattern))
  setup$from <- replace(numeric(plan$dim), match(seen$level$at, plan$order), seen$level$value)
  if (is_quadratic(plan)) {
    setup$begin <- pass_over_rows(seen$rows, "begin", list(plan = plan, from = setup$from, divide = seen$divide))
    check_rest(setup)
  }
  c(setup, list(constant = evidence_constant(setup)))
}

# dense_terms(), by counts of entries
surveyed_dense <- function(problem, columns) {
  filled <- columns$filled > 0.3 * columns$n & columns$n > 10
  dense <- logical(length(filled))
  for (term in problem$terms) dense[term$columns] <- term_record(term)$dense(term, filled[term$columns])
  dense
}

# Columns with the sums of squares that a survey has, for what asks no more of Z than these.
surveyed_squares <- function(columns, which) {
  Matrix::Diagonal(x = sqrt(columns$squares[which] * length(which) / max(columns$n, 1)))
}

# Of some rows, which cost nothing: hyperparameters, and a point to begin with.
guess_from_few <- function(setup, most = 2e4) {
  if (is_quadratic(setup$plan)) return(NULL)
  rows <- sampled_rows(setup$rows, even = TRUE) %||% first_rows_of(setup$rows, most)
  if (is.null(rows)) return(NULL)
  few <- setup$problem
  few[c("summed", "source")] <- list(NULL)
  few[c("X", "shift", "y", "weight", "offset", "Z", "count")] <- list(rows$X, rows$shift, rows$y, rows$weight / setup$divide,
                                                                      rows$offset, rows$Z, rows$count)
  here <- nested_setup(few, setup$base)
  mode <- null_if_refused(evidence_mode(here, 1e-4))
  if (is.null(mode)) return(NULL)
  c <- original_order(list(order = here$plan$by_block), mode$solution$c)
  curve <- .Call(elvi_r_nested_products, chunk_plan(setup$plan, rows, setup$divide), c, numeric(length(c)))$curve
  list(theta = mode$theta, solution = list(mu = original_order(here$plan, mode$solution$mu)[setup$plan$order],
                                           c = curve * setup$rows$n / length(c)))
}

# The task: W' diag(w) W of gaussian rows, and sums of squares and products of residuals about the coefficients `from`.
begin_sums <- function(rows, args) {
  plan <- chunk_plan(args$plan, rows, args$divide)
  p <- plan$dim - plan$dense + seq_len(plan$dense)   # `from` has nothing for sparse columns
  rest <- plan$y - plan$offset - drop(crossprod(matrix(plan$X, plan$dense), args$from[p]))
  c(.Call(elvi_r_nested_products, plan, plan$weight, plan$weight * rest), list(squares = sum(plan$weight * rest^2)))
}

# The task of a pass: sums over rows at some points.
row_sums_at <- function(model, args) {
  .Call(elvi_r_nested_add_rows, chunk_plan(args$plan, model$rows, args$divide), args$nested_rule, args$points)
}

join_row_sums <- function(a, b) {
  Map(function(x, y) {
    out <- Map(`+`, x, y)
    out$widest <- max(x$widest, y$widest)
    out
  }, a, b)
}

# ---- gaussian rows ------------------------------------------------------------------------------------

# The residual sum of squares of the coefficients alone is that of sums: they say nothing of a perfect fit's residuals.
check_rest <- function(setup) {
  if (!length(setup$problem$hyper)) return(invisible())
  rest <- rest_of_coefficients(setup)
  if (rest > 1e-12 * setup$begin$squares) return(invisible())
  elvi_abort("No optimum exists: the coefficients fit the responses perfectly, up to rounding, and sigma tends to 0. ",
             "Use fewer coefficients, or gaussian() with a known `dispersion`.",
             class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "data"))
}

rest_of_coefficients <- function(setup) {
  plan <- setup$plan
  p <- ncol(setup$problem$X)
  if (!p) return(setup$begin$squares)
  at <- match(seq_len(p), plan$order) - 1L
  high <- outer(at, at, pmax)
  low <- outer(at, at, pmin)
  gram <- matrix(setup$begin$curve[.Call(elvi_r_pattern_places, plan$pattern, as.integer(high), as.integer(low)) + 1L], p)
  unit <- 1 / sqrt(pmax(diag(gram), .Machine$double.xmin))
  R <- qr(gram * outer(unit, unit), tol = 1e-12)
  b <- unit * setup$begin$slope[at + 1L]
  by <- qr.coef(R, b)
  setup$begin$squares - sum(by * b, na.rm = TRUE)
}

# The optimum of a quadratic, from sums about `from`.
summed_quadratic <- function(setup, setting) {
  plan <- setup$plan
  begin <- setup$begin
  by <- if (length(setup$problem$hyper)) setting$hyper[1L]^2 else 1
  setting$c <- begin$curve / by
  setting["eta"] <- list(NULL)
  mu <- setup$from
  losses <- function(mu) {
    off <- mu - setup$from
    moved <- .Call(elvi_r_pattern_times, plan$pattern, begin$curve, off)
    list(sum = 0.5 * (begin$squares - 2 * sum(begin$slope * off) + sum(off * moved)) / by, slope = (moved - begin$slope) / by)
  }
  for (k in 1:3) {   # the second and third clean up rounding
    setting$mu <- mu
    look <- .Call(elvi_r_nested_look, plan, setting, FALSE)
    if (is.null(look)) return(list(failed = TRUE, certificate = Inf, objective = Inf))
    at <- losses(mu)
    g <- look$g + at$slope
    newton <- .Call(elvi_r_nested_newton, plan, setting, g)
    if (k < 3L) mu <- mu - newton$step
  }
  certificate <- 0.5 * (if (setting$definite) newton$dual else newton$own)
  objective <- 0.5 * (look$form + plan$dim - plan$constraints) + at$sum + look$log_diagonal
  list(failed = FALSE, mu = mu, c = setting$c, variance = look$inverse[setup$places$diagonal], moment = look$moment,
       objective = objective, log_det = 2 * look$log_diagonal, certificate = certificate, estimate = 0.5 * newton$own, widest = 0,
       loss = at$sum + 0.5 * look$trace, level = 0, slope = numeric(length(setting$hyper)), rigorous = setting$definite, iterations = 1L,
       evaluations = 0L)
}

# ---- other rows -----------------------------------------------------------------------------------------

# Conditional optima at several settings: what solve_settings() gives. All settings share each pass.
solve_summed <- function(setup, settings, tol, most = 200L) {
  if (is_quadratic(setup$plan)) return(lapply(settings, summed_quadratic, setup = setup))
  size <- 8 * 10 * length(setup$places$row)
  groups <- split(seq_along(settings), (seq_along(settings) - 1L) %/% max(1, floor(search_memory() / size)))
  unlist(lapply(unname(groups), function(k) solve_together(setup, settings[k], tol, most)), recursive = FALSE)
}

# bytes for the searches that share a pass
search_memory <- function() getOption("elvi.search_memory", 5e8)

solve_together <- function(setup, settings, tol, most) {
  searches <- lapply(settings, new_search, setup = setup)
  repeat {
    searches <- lapply(searches, ready_to_look, setup = setup)
    asked <- which(!vapply(searches, `[[`, NA, "done"))
    if (!length(asked)) return(lapply(searches, end_of_search, setup = setup))
    points <- lapply(searches[asked], function(s) {
      c(s$trial[c("mu", "before")], list(M = s$look$inverse, reach = s$look$reach, hyper = s$setting$hyper))
    })
    sums <- if (is.null(setup$matched)) sums_at(setup, points) else matched_sums(setup, points)
    for (k in seq_along(asked)) searches[[asked[k]]] <- advance_search(setup, searches[[asked[k]]], sums[[k]], tol, most)
  }
}

# A search for the optimum at one setting: `at` is the best point so far, `trial` the one to look at.
new_search <- function(setting, setup) {
  setting["eta"] <- list(NULL)
  search <- list(setting = setting, at = NULL, done = FALSE, failed = FALSE, size = 1, iterations = 0L, evaluations = 0L, widened = 0L)
  if (!is.null(setting$mu)) return(c(search, list(trial = list(mu = setting$mu, c = setting$c, accelerated = FALSE))))
  c(search, list(trial = list(mu = setup$plan$centre, c = numeric(length(setup$places$row)), accelerated = FALSE)))   # the prior
}

# Where a search is only on its way, an estimate of the gap is enough, and saves a pass or two.
certified_below <- 1e-6

point_setting <- function(search, point) replace(search$setting, c("mu", "c"), point[c("mu", "c")])

# The factor of the trial, or of a shorter step where there is none.
ready_to_look <- function(search, setup) {
  while (!search$done) {
    search$look <- .Call(elvi_r_nested_look, setup$plan, point_setting(search, search$trial), !is.null(search$trial$before))
    if (!is.null(search$look)) break
    search <- shorter_step(search)
  }
  search
}

shorter_step <- function(search) {
  if (is.null(search$at)) {   # too wide for an expectation to exist: narrower
    search$widened <- search$widened + 1L
    if (search$widened > 60L) search[c("done", "failed")] <- list(TRUE, TRUE)
    search$trial$c <- 2 * search$trial$c
    return(search)
  }
  search$size <- if (search$trial$accelerated) 1 else search$size / 2
  search$past <- NULL
  if (search$size < 1e-6) search$done <- TRUE   # as far as rounding allows
  at <- search$at
  search$trial <- list(mu = at$mu + search$size * at$step, c = at$c + search$size * (at$curve - at$c), accelerated = FALSE,
                       before = if (search$size == 1) list(as_source(at)))
  search
}

as_source <- function(point, weight = 1) list(mu = point$mu, M = point$look$inverse, weight = weight)

advance_search <- function(setup, search, sums, tol, most) {
  plan <- setup$plan
  look <- search$look
  search$evaluations <- search$evaluations + 1L
  point <- c(search$trial[c("mu", "c")], list(look = look, curve = sums$curve, sum = sums$sum, widest = sums$widest))
  point$objective <- 0.5 * (look$form + plan$dim - plan$constraints - look$trace) + sums$sum + look$log_diagonal
  point$certificate <- point$estimate <- Inf
  if (is.finite(point$objective)) {
    g <- look$g + sums$slope
    newton <- .Call(elvi_r_nested_newton, plan, point_setting(search, point), g)
    point$estimate <- 0.5 * newton$own + 0.25 * sums$near^2
    point$certificate <- if (search$setting$definite && is_convex(plan)) 0.5 * (newton$dual + sums$far^2) else point$estimate
  }
  if (!is.finite(point$objective) || !(is.null(search$at) || gets_lower(point, search$at))) return(shorter_step(search))
  search$past <- utils::head(c(list(search$at), search$past)[!is.null(search$at)], 2L)
  search$at <- point
  search$iterations <- search$iterations + 1L
  search$size <- 1
  left <- if (tol > certified_below) point$estimate else point$certificate
  if (isTRUE(left <= tol) || search$iterations > most) return(replace(search, "done", TRUE))
  to <- replace(search$setting, c("mu", "c"), list(point$mu, point$curve))
  step <- .Call(elvi_r_nested_newton, plan, to, g)$step
  if (is.null(step)) return(replace(search, "done", TRUE))
  search$at$step <- -step
  search$trial <- (if (point$estimate < 0.1) combined_trial(setup, search)) %||%
    list(mu = point$mu - step, c = point$curve, before = list(as_source(point)), accelerated = FALSE)
  search
}

# Anderson's combination of past steps, see accelerate() in src/nested.c: weighed as F is to second order, coordinate by coordinate.
combined_trial <- function(setup, search) {
  points <- c(list(search$at), search$past)
  if (length(points) < 2L) return(NULL)
  variance <- search$at$look$inverse[setup$places$diagonal]
  by_c <- variance[setup$places$row] * variance[setup$places$column] / 2
  residual <- vapply(points, function(p) c(p$step / sqrt(variance), sqrt(by_c) * (p$curve - p$c)), numeric(length(variance) + length(by_c)))
  mix <- drop(anderson_mix(residual, 1e-12))
  if (is.null(mix) || !all(is.finite(mix)) || max(abs(mix)) > 10) return(NULL)
  weight <- c(1 - sum(mix), mix)
  total <- function(f) Reduce(`+`, Map(function(p, w) w * f(p), points, weight))
  list(mu = total(function(p) p$mu + p$step), c = total(function(p) p$curve), before = Map(as_source, points, weight), accelerated = TRUE)
}

# A pass over all rows.
sums_at <- function(setup, points) {
  pass_over_rows(setup$rows, "nested", list(plan = setup$plan, nested_rule = setup$rule, points = points, divide = setup$divide))
}

# ---- between two passes ---------------------------------------------------------------------------------

# A sample of the rows, with what the sums of all rows at one point have more than its own: the sum, its slope and its curvature. Near that
# point its sums are those of all rows, so the mode and the quadrature points are found there, which takes no pass.
match_rows <- function(setup, theta, solution) {
  setting <- c(hyper_precision(setup$problem, setup$layout, theta)[c("A", "definite", "inverse", "slack")],
               list(hyper = loss_hyper(setup, theta), eta = NULL), solution[c("mu", "c")])
  look <- .Call(elvi_r_nested_look, setup$plan, setting, FALSE)
  if (is.null(look)) return(NULL)
  point <- list(mu = solution$mu, M = look$inverse, hyper = setting$hyper)
  all <- sums_at(setup, list(point))[[1L]]
  few <- .Call(elvi_r_nested_add_rows, setup$few, setup$rule, list(point))[[1L]]
  if (!is.finite(all$sum) || !is.finite(few$sum)) return(NULL)
  setup$matched <- c(point[c("mu", "M")], list(sum = all$sum - few$sum, slope = all$slope - few$slope, curve = all$curve - few$curve))
  setup
}

matched_sums <- function(setup, points) {
  matched <- setup$matched
  Map(function(sums, point) {
    off <- point$mu - matched$mu
    bent <- .Call(elvi_r_pattern_times, setup$plan$pattern, matched$curve, off)
    sums$sum <- sums$sum + matched$sum + sum((matched$slope + bent / 2) * off) +
      pattern_product(setup$places, matched$curve, point$M - matched$M) / 2
    sums$slope <- sums$slope + matched$slope + bent
    sums$curve <- sums$curve + matched$curve
    sums
  }, .Call(elvi_r_nested_add_rows, setup$few, setup$rule, points), points)
}

# tr(A B) of symmetric matrices on the pattern
pattern_product <- function(places, A, B) {
  below <- places$row > places$column
  2 * sum(A[below] * B[below]) + sum(A[places$diagonal] * B[places$diagonal])
}

# The mode by a sample of the rows, matched at the mode itself after a pass or two; NULL without a sample, or where it has none.
mode_by_few <- function(setup, from, tol, near = 0.1, most = 4L) {
  few <- if (!is.null(from)) sampled_rows(setup$rows)
  if (is.null(few)) return(NULL)
  setup$few <- chunk_plan(setup$plan, few, setup$divide)
  setup$plan$cost <- solve_cost(setup$few) * setup$rows$n / setup$few$rows   # of a quadrature point, at all rows
  for (k in seq_len(most)) {
    matched <- match_rows(setup, from$theta, from$solution)
    mode <- if (!is.null(matched)) null_if_refused(evidence_mode(matched, tol, from = from))
    if (!is.finite(mode$value %||% NA)) return(NULL)
    sd <- sqrt(pmax(diag(mode$inverse), 0))
    moved <- max(abs(mode$theta - from$theta) / pmax(sd, 0.01))
    from <- mode
    if (k > 1L && moved < near) break
  }
  list(setup = matched, mode = mode)
}

# Quadrature points that were found by a sample, at all rows.
found_by_all <- function(setup, found, tol) {
  if (is.null(setup$matched)) return(found)
  setup$matched <- NULL
  known <- vapply(found, function(f) is.finite(f$value), NA)
  found[known] <- evidence_at(setup, lapply(found[known], `[[`, "theta"), lapply(found[known], `[[`, "solution"), tol)
  found
}

# Where the entries of a matrix on the pattern are, and which of them are on the diagonal. Entries above the diagonal of the dense
# block are not used.
pattern_places <- function(pattern) {
  head <- pattern$head
  tail <- head + seq_len(pattern$dim - head)
  row <- c(pattern$row + 1L, rep(tail, length(tail)))
  column <- c(rep(seq_len(head), diff(pattern$start)), rep(tail, each = length(tail)))
  list(row = row, column = column, diagonal = which(row == column))
}

# better() of src/nested.c
gets_lower <- function(to, at) {
  slack <- 1e-12 * (1 + abs(at$objective))
  to$objective < at$objective - slack || to$objective <= at$objective + slack && to$certificate < at$certificate
}

end_of_search <- function(search, setup) {
  at <- search$at
  if (search$failed || is.null(at)) return(list(failed = TRUE, certificate = Inf, objective = Inf))
  list(failed = FALSE, mu = at$mu, c = at$c, variance = at$look$inverse[setup$places$diagonal], moment = at$look$moment,
       objective = at$objective, log_det = 2 * at$look$log_diagonal, certificate = at$certificate, estimate = at$estimate,
       widest = at$widest, loss = at$sum, level = 0, slope = numeric(length(search$setting$hyper)),
       rigorous = search$setting$definite && is_convex(setup$plan), iterations = search$iterations, evaluations = search$evaluations)
}

# ---- the problem -------------------------------------------------------------------------------------------

# Are a few sums all that the nested solver needs of rows that are not in memory? The density must have no parameter of its own
# but sigma.
sums_suffice <- function(problem) {
  record <- family_record(problem$family)
  is.null(problem$lines) && !is.null(record$conditional) &&
    (record$constant_curvature || !is.null(problem$dispersion) || is.null(record$dispersion) && !is_nested_only(problem$family))
}

# conditional_problem() of rows that are not in memory
summed_problem <- function(problem) {
  rows <- problem$rows
  record <- family_record(problem$family)
  p <- rows$dim
  terms <- problem$terms
  q <- sum(vapply(terms, function(term) length(term$columns), 0L))
  prior <- fixed_prior(problem$priors$joint, p)
  refuse_flat_summed(problem, prior)
  X <- matrix(0, 0L, p, dimnames = list(NULL, rows$labels))
  intercept <- if (length(problem$intercepts)) problem$intercepts[1L]
  level <- if (record$constant_curvature && !is.null(intercept)) list(at = intercept, value = rows$level)
  list(X = X, shift = NULL, y = numeric(), weight = numeric(), offset = numeric(), Z = empty_columns(0L, q), count = rows$count,
       constant = record$constant(rows$constant, rows$count, problem$dispersion, problem$family), family = problem$family, prior = prior,
       terms = terms, intercept_shift = intercept_shift(problem$shift, problem$intercepts %||% 1L, NULL),
       hyper = if (is.null(problem$dispersion)) hyper_priors(problem),
       source = rows, summed = list(rows = rows, columns = rows$columns, divide = problem$dispersion %||% 1, level = level))
}

refuse_flat_summed <- function(problem, prior) {
  if (all(prior$precision > 0)) return(invisible())
  bad_argument("prior", "proper, such as normal(0, 2.5), for group-level or smooth terms of data larger than memory", "flat()")
}
