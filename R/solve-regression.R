# Regressions with latent terms or an unknown dispersion: exact given the hyperparameters, quadrature over them.

solve_nested <- function(problem, base, control, correct = TRUE) {
  summed <- is_chunked(problem$rows) && length(problem$terms)
  conditional <- if (summed) summed_problem(problem) else conditional_problem(problem)
  few <- if (!summed) conditional$triangle %||% problem_triangle(conditional)
  if (!summed) check_solvable(conditional, if (is_chunked(problem$rows)) problem$rows$n else sum(problem$rows$weight > 0), few)
  nested <- nested_fit(replace(conditional, "triangle", list(few)), base,
                       c(control[c("nodes", "progress")], if (summed) list(draws = 0)))
  seed <- draw_key()
  posterior <- nested_posterior(nested, conditional, derived_key(seed, "posterior"))
  if (correct) {
    weighed <- reweigh_nested(nested, correct_nested(posterior))
    nested <- weighed$nested
    posterior <- weighed$posterior
  }
  warn_nested(nested)
  new_fit(c(list(call = problem$call, method = "nested", problem = conditional, base = base), split_control(control)),
          plan = list(seed = seed, rng_kind = RNGkind()),
          result = list(status = if (nested$converged) "finished" else "not converged", kept = "optimum", converged = nested$converged,
                        nested = c(nested_account(nested), list(cubature = cubature_error(nested))),
                        posterior = posterior),
          regression = problem$regression)
}

# What nested_setup() takes: the rows as they count, normal priors, and the dispersion as a hyperparameter where it is unknown. Of
# gaussian rows that are not in memory a triangular factor is all that is needed, see rows-nested.R.
conditional_problem <- function(problem) {
  rows <- problem$rows
  record <- family_record(problem$family)
  p <- rows$dim
  few <- if (is_chunked(rows)) source_triangle(rows)
  seen <- few %||% rows
  n <- NROW(seen$y)
  offset <- seen$offset %||% numeric(n)
  c(list(X = seen$X, shift = seen$shift, y = seen$y, weight = (seen$weight %||% rep(1, n)) / (problem$dispersion %||% 1),
         offset = if (is.null(problem$lines)) offset else cbind(offset, problem$lines$offset), Z = problem$Z %||% empty_columns(n, 0L),
         count = rows$count,
         constant = record$constant(rows$constant, rows$count, problem$dispersion, problem$family)),
    list(family = problem$family, prior = fixed_prior(problem$priors$joint, p), terms = problem$terms,
         intercept_shift = intercept_shift(problem$shift, problem$intercepts %||% 1L, problem$lines), triangle = few,
         line = if (!is.null(problem$lines)) column_lines(problem$lines, problem$terms),
         hyper = if (is.null(problem$dispersion)) hyper_priors(problem),
         source = if (is_chunked(rows)) rows))
}

# a prior for each of the family's hyperparameters
hyper_priors <- function(problem) {
  names <- hyper_record(family_record(problem$family), problem$family$levels)$names
  stats::setNames(rep(list(problem$priors$aux), length(names)), names)
}

# What each intercept lacks to be that of predictors that are not centred, see new_posterior(): those of its own part.
intercept_shift <- function(shift, at, lines) {
  if (is.null(shift)) return(NULL)
  by <- matrix(-shift, length(at), length(shift), byrow = TRUE)
  mine <- lines$of %||% rep(1L, length(shift))
  by[mine[at] != matrix(mine, length(at), length(shift), byrow = TRUE)] <- 0
  list(at = at, by = by)
}

# the basis of the answer
nested_account <- function(nested) {
  each <- function(field) vapply(nested$nodes, function(node) node[[field]], nested$nodes[[1L]][[field]])
  c(nested[intersect(c("evidence", "k_hat", "draws", "corrected", "weighed", "noise", "change", "evaluations"), names(nested))],
    list(certificates = each("certificate"), certificate_kind = each("certificate_kind")))
}

# The mixture of conditional posteriors over the quadrature points.
nested_posterior <- function(nested, problem, key) {
  groups <- problem$terms
  setup <- nested$setup
  p <- ncol(problem$X)
  d <- setup$plan$dim
  each <- function(field) matrix(vapply(nested$nodes, function(node) node[[field]], numeric(d)), d)
  hyper <- nested$hyper
  values <- natural_columns(groups, setup$layout, hyper$theta)
  roots <- new_sparse_roots(setup$plan, lapply(nested$nodes, `[[`, "setting"), each("sd"),
                            -vapply(nested$nodes, function(node) node$log_det, 0) / 2)
  new_posterior(setup$base, each("mu"), roots, hyper$weight, c(colnames(problem$X), effect_names(groups)),
                shift = wider_shift(problem$intercept_shift, d),
                coefficients = seq_len(p), key = key,
                hyper = if (ncol(hyper$theta)) {
                  c(hyper[c("theta", "mode", "hessian", "z", "rule")],
                    list(values = values, terms = groups, layout = setup$layout))
                })
}

check_conditional_family <- function(family) {
  if (is.null(family_record(family)$conditional)) {
    able <- !vapply(family_records, function(r) is.null(r$conditional), NA)
    names <- paste0("\"", intersect(public_families(), known_families()[able]), "\"")
    bad_argument("family", paste(join_or(names), "with group-level or smooth terms"),
                 paste0(family$family, "(), whose loss is not convex"))
  }
}

fixed_prior <- function(joint, p) {
  if (!p) return(list(centre = numeric(), precision = numeric()))
  coefficient_block(joint, p)[c("centre", "precision")]
}

# rows: of the data, those that count; few: what the solver takes in place of gaussian ones, see problem_triangle()
check_solvable <- function(problem, rows, few) {
  flat <- problem$prior$precision == 0
  if (any(flat)) check_determined(problem, flat)
  if (has_residual_sd(problem$family) && (length(problem$hyper) || is_joint(family_record(problem$family)))) {
    check_residuals_left(problem, rows, few)
  }
}

# coefficients with flat priors: by the data alone
check_determined <- function(problem, flat) {
  X <- problem$X[, flat, drop = FALSE]
  line <- (problem$line %||% rep(1L, ncol(problem$X)))[seq_along(flat)][flat]
  dependent <- vapply(unique(line), function(l) qr(X[, line == l, drop = FALSE], tol = 1e-9)$rank < sum(line == l), NA)
  if (any(dependent)) {
    elvi_abort("The columns of the coefficients with flat priors are linearly dependent, so no optimum exists. ",
               "Drop columns or give a proper prior such as normal(0, 2.5).",
               class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "data"))
  }
  refuse_separable(problem, X)
}

# Coefficients with proper priors stay finite whatever the hyperparameters, effects of groups among them; those with flat ones
# do if they do by themselves.
refuse_separable <- function(problem, X) {
  record <- family_record(problem$family)
  if (is.na(record$separable)) return(invisible())
  kept <- problem$weight > 0
  y <- problem$y[kept]
  if (any(record$display_response(y)$censored)) y <- structure(cbind(time = abs(y), status = y > 0), type = "right", class = "Surv")
  alone <- suppressWarnings(model_glm(X[kept, , drop = FALSE], y, problem$family, flat(),   # of y: given already
                                      weights = problem$weight[kept], offset = problem$offset[kept]))
  found <- tryCatch(find_mode(alone), elvi_error_no_optimum = identity)
  if (inherits(found, "elvi_error_argument")) stop(found)
}

# Is there a sigma of errors around the predictor itself, which a perfect fit sends to 0?
has_residual_sd <- function(family) {
  record <- family_record(family)
  if (is_joint(record)) return(identical(record$second$parameter, "sigma") && link_of(family)$straight)
  isTRUE(record$dispersion$residual) || link_of(family)$straight && isTRUE(hyper_record(record, family$levels)$with_unit)
}

# the columns of the mean, and what they are to fit
rows_of_mean <- function(problem) {
  first <- seq_len(ncol(problem$X))
  if (!is.null(problem$line)) first <- first[problem$line[first] == 1L]
  offset <- if (is.matrix(problem$offset)) drop(problem$offset[, 1L]) else problem$offset
  cbind(problem$X[, first, drop = FALSE], problem$y - offset)[problem$weight > 0, , drop = FALSE]
}

# With an effect for every row, nothing tells residuals from effects; with none left at all, sigma runs off to 0.
check_residuals_left <- function(problem, rows, few) {
  left <- few %||% triangle_rows(triangle(rows_of_mean(problem)))
  fitted <- stats::.lm.fit(left$X, left$y, tol = 1e-11)
  if (rows > fitted$rank && sum(fitted$residuals^2) <= 1e-22 * sum(left$y^2)) {
    elvi_abort("No optimum exists: the coefficients fit the responses perfectly, and sigma tends to 0. ",
               "Use fewer coefficients, or gaussian() with a known `dispersion`.",
               class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "data"))
  }
  for (term in problem$terms[has_levels(problem$terms)]) {
    if (!term_record(term)$blocked(term)) next   # levels that are related tell the two apart
    if (length(term$columns) >= length(problem$y)) {
      elvi_abort("`object`: the term of `", term$label, "` has ", length(term$columns), " effects for ", length(problem$y),
                 " rows: effects and residuals cannot be distinguished. Leave it out, or give the residual variance as `dispersion`.",
                 class = c("elvi_error_term", "elvi_error_argument"), data = list(argument = "object", term = term$label))
    }
  }
}

nested_changes <- function(control) {
  check_control(control)
  if (is_default(control)) return(character())
  Filter(function(name) !identical(control[[name]], default_control[[name]]), setdiff(names(default_control), c("nodes", "progress")))
}

# Movement beyond a twentieth of a standard deviation says that the rule is too small.
warn_nested <- function(nested, most = 0.05) {
  moved <- max(unlist(nested$change))
  if (isTRUE(moved > most)) {
    elvi_warn("The quadrature over hyperparameters, of ", length(nested$nodes), " points, may be off by ", format(moved, digits = 2),
              " sd (", error_words(nested$hyper$rule), "). Use tighter priors of the standard deviations, or a larger ",
              "elvi_control(nodes = ).", class = "elvi_warning_quadrature", data = list(change = nested$change))
  }
  if (isTRUE(nested$noise > most)) {
    elvi_warn("The weights of the quadrature points are corrected by ", nested$weighed %||% nested$draws, " draws, which are too few: ",
              "the means of the hyperparameters have a Monte Carlo error of at least ", format(nested$noise, digits = 2), " sd.",
              class = "elvi_warning_correction", data = list(noise = nested$noise, draws = nested$weighed %||% nested$draws))
  }
  if (!nested$converged) {
    elvi_warn("The solver did not converge at one or more quadrature points: the largest gap is ",
              format(max(vapply(nested$nodes, function(node) node$certificate, 0)), digits = 2),
              " nats.",
              class = "elvi_warning_not_converged")
  }
}

# ---- what does not go together ---------------------------------------------------------------------------

check_nested <- function(problem, method, run, control) {
  if (!is.null(problem$lines) && !method %in% c("auto", "nested")) {
    bad_argument("method", paste("\"auto\" for", several_words(problem)), describe(method))
  }
  if (!method %in% c("auto", "nested")) {
    bad_argument("method", paste("\"auto\" or \"nested\" with", if (length(problem$terms)) "group-level or smooth terms"
                                                                 else paste0(problem$family$family, "()")), describe(method))
  }
  given <- given_values(run)
  if (length(given)) {
    unused_argument(names(given)[1L], "method = \"nested\" makes no stochastic run")
  }
  check_conditional_family(problem$family)
  if (!length(problem$terms) && !is.null(problem$dispersion) && is.null(problem$lines) && family_record(problem$family)$convex) {
    refuse_argument("method", "method = \"nested\" integrates over hyperparameters, and this model has none. Use \"auto\".")
  }
  if (!has_few_rows(problem) && !(length(problem$terms) && sums_suffice(problem))) {
    refuse_argument("method", if (length(problem$terms)) {
      paste0("Group-level and smooth terms of data larger than memory need a family without a parameter of its own, or gaussian(), not ",
             problem$family$family, "(). Give `dispersion`, or a data frame.")
    } else {
      paste0("method = \"nested\" needs all rows in memory, unless the family is gaussian() with unknown dispersion. Use another ",
             "method, or a data frame.")
    })
  }
  for (prior in in_parts(problem$priors$prior)) check_normal_prior(prior, "prior")
  if (!is.null(problem$shift)) for (prior in in_parts(problem$priors$prior_intercept)) check_normal_prior(prior, "prior_intercept")
  changed <- nested_changes(control)
  if (length(changed)) {
    unused_argument(changed[1L], "method = \"nested\" makes no stochastic run")
  }
}
