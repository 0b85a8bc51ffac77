# Regressions with group-level terms, smooth terms or an unknown dispersion: exact given the hyperparameters,
# quadrature over them.

# From the arguments of elvi(), `asked`, to a fit. `parts` is what structured_formula() returns, or NULL for a plain formula
# whose only hyperparameter is the dispersion.
nested_regression <- function(parts, asked) {
  family <- check_nested_family(asked$family)
  plain <- is.null(parts)
  formula <- asked$formula
  parts <- parts %||% list(fixed = formula, bars = list(), smooths = list())
  specs <- smooth_specs(parts$smooths, environment(parts$fixed))
  call_frame <- asked$call
  call_frame$object <- frame_formula(parts, smooth_variables(specs))
  frame <- formula_frame(call_frame, asked$env)
  if (plain) parts$fixed <- formula <- stats::formula(attr(frame, "terms"))   # a dot is spelt out
  check_contrasts(asked$contrasts, frame)
  design <- nested_design(parts, specs, frame, asked$contrasts)
  if (plain && !ncol(design$X)) bad_argument("object", "a formula with at least one coefficient", "an empty one")
  design$dispersion <- asked$dispersion
  priors <- nested_priors(design, family, asked$priors, asked$autoscale)
  problem <- nested_problem(design, family, priors)
  check_nested_control(asked$control)
  finish_nested(asked, problem, priors,
                c(list(formula = formula, frame = frame, na.action = attr(frame, "na.action"), dispersion = asked$dispersion),
                  design[c("terms", "xlevels", "contrasts", "offset_given", "groups", "smooths")]))
}

finish_nested <- function(asked, problem, priors, regression) {
  nested <- nested_fit(problem, asked$base, asked$control[c("nodes", "progress")])
  warn_nested(nested)
  call <- asked$call
  call[[1L]] <- quote(elvi)   # not the method, which is not exported
  seed <- draw_key()
  fit <- new_fit(c(list(call = call, method = "nested", problem = problem, base = asked$base), split_control(asked$control)),
                 plan = list(seed = seed, rng_kind = RNGkind()),
                 result = list(status = if (nested$converged) "finished" else "not converged", kept = "optimum",
                               converged = nested$converged, nested = nested_account(nested),
                               posterior = correct_nested(nested_posterior(nested, problem, regression$groups,
                                                                           derived_key(seed, "posterior")))))
  fit$regression <- c(regression, list(family = problem$family, priors = priors))
  structure(fit, class = c("elvi_glm", "elvi_fit"))
}

# what the answer rests on
nested_account <- function(nested) {
  each <- function(field) vapply(nested$nodes, function(node) node[[field]], nested$nodes[[1L]][[field]])
  c(nested[c("evidence", "k_hat", "draws", "corrected", "noise", "change", "evaluations")],
    list(certificates = each("certificate"), certificate_kind = each("certificate_kind")))
}

# The mixture of conditional posteriors over the quadrature points.
nested_posterior <- function(nested, problem, groups, key) {
  setup <- nested$setup
  p <- ncol(problem$X)
  d <- setup$plan$dim
  each <- function(field) matrix(vapply(nested$nodes, function(node) node[[field]], numeric(d)), d)
  hyper <- nested$hyper
  values <- natural_columns(groups, setup$layout, problem$dispersion$name, hyper$theta)
  roots <- new_sparse_roots(setup$plan, lapply(nested$nodes, `[[`, "setting"), each("sd"),
                            -vapply(nested$nodes, function(node) node$log_det, 0) / 2)
  new_posterior(setup$base, each("mu"), roots, hyper$weight, c(colnames(problem$X), effect_names(groups)),
                shift = if (!is.null(problem$intercept_shift)) c(problem$intercept_shift, numeric(d - p)),
                coefficients = seq_len(p), key = key,
                hyper = if (ncol(hyper$theta)) {
                  c(hyper[c("theta", "mode", "hessian", "z", "rule")],
                    list(values = values, terms = groups, layout = setup$layout, dispersion = problem$dispersion$name))
                })
}

check_nested_family <- function(family) {
  family <- check_family(family)
  if (is.null(family_record(family)$conditional)) {
    able <- !vapply(family_records, function(r) is.null(r$conditional), NA)
    bad_argument("family", paste(join_or(paste0("\"", unique(known_families()[able]), "\"")), "with group-level or smooth terms"),
                 paste0(family$family, "(), whose loss is not convex"))
  }
  family
}

# ---- design ---------------------------------------------------------------------------------

nested_design <- function(parts, specs, frame, contrasts) {
  terms <- subset_terms(stats::terms(parts$fixed), frame)
  fixed_contrasts <- contrasts[names(contrasts) %in% all_variable_names(terms)]
  X <- stats::model.matrix(terms, frame, if (length(fixed_contrasts)) fixed_contrasts)
  if (ncol(X)) check_magnitude(check_matrix(X, "data"), "data")
  xlevels <- stats::.getXlevels(terms, frame)
  fixed_factors <- attr(X, "contrasts")
  constant <- constant_columns(X)
  counting <- rows_that_count(frame)
  smooths <- set_up_smooths(specs, frame, counting)
  smooth_parts <- lapply(smooths, smooth_columns, frame)
  free <- do.call(cbind, lapply(smooth_parts, `[[`, "free"))
  if (!is.null(free)) {
    colnames(free) <- unlist(lapply(smooths, free_names))
    X <- cbind(X, free)
  }
  groups <- lapply(parts$bars, group_term, frame, contrasts, counting)
  check_distinct(groups)
  columns <- c(lapply(groups, function(term) {
    group_columns(term, slope_matrix(term$slopes, frame, term$contrasts), level_index(term, frame))
  }), lapply(do.call(c, lapply(smooth_parts, `[[`, "penalised")), methods::as, "dMatrix"))
  intercept <- attr(terms, "intercept") == 1
  offset <- blame_argument(stats::model.offset(frame), "offset", "it cannot be used")
  list(terms = terms, X = X, centre = design_centre(X, intercept, counting), intercept = intercept,
       y = stats::model.response(frame, "any"), spread = design_spread(X, frame),
       weights = stats::model.weights(frame), frequency = frame[["(frequency)"]], offset = offset, offset_given = !is.null(offset),
       Z = sparse_columns(columns, nrow(frame)),
       groups = number_columns(c(groups, do.call(c, lapply(smooths, smooth_terms)))), smooths = smooths,
       xlevels = xlevels, contrasts = fixed_factors, constant = constant)
}

sparse_columns <- function(columns, n) {
  none <- Matrix::sparseMatrix(i = integer(), j = integer(), dims = c(n, 0L))
  Z <- if (length(columns)) do.call(cbind, columns) else none
  methods::as(methods::as(methods::as(Z, "dMatrix"), "generalMatrix"), "CsparseMatrix")
}

# the place of each term's columns in Z
number_columns <- function(terms) {
  last <- 0L
  for (i in seq_along(terms)) {
    size <- length(terms[[i]]$levels) * length(terms[[i]]$coefs)
    terms[[i]]$columns <- last + seq_len(size)
    last <- last + size
  }
  terms
}

# The same coefficient of the same factor twice has two standard deviations that nothing tells apart.
check_distinct <- function(groups) {
  keys <- unlist(lapply(groups, function(term) paste0("(", term$coefs, " | ", term$label, ")")))
  twice <- keys[duplicated(keys)]
  if (length(twice)) {
    elvi_abort("`object`: the group-level term `", twice[1L], "` occurs twice.",
               class = c("elvi_error_term", "elvi_error_argument"),
               data = list(argument = "object", term = twice[1L]))
  }
}

# ---- priors -----------------------------------------------------------------------------------

#' Prior of correlations
#'
#' The law of Lewandowski, Kurowicka and Joe for the correlation matrix of the coefficients of one group-level term:
#' density proportional to `|R|^(eta - 1)`. With `eta = 1` all correlation matrices are equally likely; larger
#' values favour small correlations.
#'
#' @param eta a positive number.
#' @return An object of class `elvi_lkj` for the argument `prior_cor` of [elvi()].
#' @seealso [group_terms]
#' @examples
#' lkj(2)
#' @export
lkj <- function(eta = 1) structure(list(name = "lkj", eta = check_positive(eta, "eta")), class = "elvi_lkj")

#' @export
format.elvi_lkj <- function(x, ...) paste("lkj prior, eta", format(x$eta))

#' @export
print.elvi_lkj <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}

# The priors as given and as used: `joint` of the coefficients of the centred predictors, `aux`, `sd` one per term.
nested_priors <- function(design, family, priors, autoscale) {
  for (name in c("prior", "prior_intercept")) check_normal_prior(priors[[name]], name)
  used <- formula_priors(design, family, priors$prior, priors$prior_intercept, priors$prior_aux, autoscale)
  spread <- response_spread(design, family)
  labels <- vapply(design$groups, `[[`, "", "label")
  given <- sd_priors(priors$prior_sd, labels)
  check_class(priors$prior_cor, "prior_cor", "elvi_lkj", "lkj()")
  used$prior_sd <- priors$prior_sd
  used$sd <- Map(function(prior, term) if (autoscale[["sd"]]) scaled_prior(prior, spread / term$unit) else prior, given,
                 design$groups)
  used$cor <- priors$prior_cor
  used
}

# Given the hyperparameters everything must be convex.
check_normal_prior <- function(prior, name) {
  check_coefficient_prior(prior, name)
  if (!is_concave(prior)) {
    bad_argument(name, paste("normal() or flat() with group-level terms, smooth terms or method = \"nested\":",
                             "the logarithm of a student density is not concave"), format(prior))
  }
}

response_spread <- function(design, family) {
  sd <- if (family_record(family)$autoscale) design$spread$response$sd
  if (isTRUE(sd > 0)) sd else 1
}

# one prior for all terms, or a list with one for each, by name
sd_priors <- function(prior, labels) {
  if (is_plain_list(prior)) {
    absent <- setdiff(labels, names(prior))
    unknown <- setdiff(names(prior), labels)
    if (length(absent) || length(unknown) || is.null(names(prior))) {
      bad_argument("prior_sd", paste0("a prior, or a list with one for each term (", toString(labels), ")"),
                   if (length(unknown)) paste("one with", describe(unknown[1L]))
                   else paste("one without", describe(absent[1L])))
    }
    prior <- prior[labels]
  } else {
    prior <- rep(list(prior), length(labels))
  }
  lapply(prior, check_sd_prior)
}

# ---- the problem that the core solves -----------------------------------------------------------

nested_problem <- function(design, family, priors) {
  n <- nrow(design$X)
  p <- ncol(design$X)
  response <- check_response(design$y, family_record(family), n)
  weight <- check_weights(design$weights, n)
  if (is_proportion(response, family_record(family))) check_proportions(response$y, design$weights)
  if (!is.null(response$trials)) weight <- weight * response$trials
  dispersion <- check_dispersion(design$dispersion %||% if (!isTRUE(family_record(family)$dispersion$may_be_known)) 1, family)
  frequency <- if (!is.null(design$frequency)) check_weights(design$frequency, n, "frequency")
  constant <- likelihood_constant(family, response$y, weight, frequency %||% rep(1, n), dispersion)
  if (!is.null(dispersion)) weight <- weight / dispersion
  offset <- if (is.null(design$offset)) numeric(n) else check_vector(design$offset, "offset", n)
  check_magnitude(response$y, "y")
  check_magnitude(offset, "offset")
  terms <- Map(function(term, prior) {
    c(term[c("label", "kind", "columns", "levels", "coefs", "correlated")],
      list(prior_sd = prior, prior_cor = priors$cor$eta))
  }, design$groups, priors$sd)
  problem <- list(X = design$X, shift = if (design$intercept) design$centre, intercept_shift = intercept_shift(design, p), Z = design$Z,
                  y = response$y, weight = weight, frequency = frequency, constant = constant, offset = offset, family = family,
                  prior = fixed_prior(priors$joint, p), terms = unname(terms),
                  dispersion = if (is.null(dispersion)) list(name = family_record(family)$dispersion$natural,
                                                             prior = priors$aux))
  problem$triangle <- problem_triangle(problem)
  check_nested_problem(problem, dispersion, sum(weight > 0))
  problem
}

fixed_prior <- function(joint, p) {
  if (!p) return(list(centre = numeric(), precision = numeric()))
  coefficient_block(joint, p)[c("centre", "precision")]
}

# rows: of the data, those that count
check_nested_problem <- function(problem, dispersion, rows) {
  if (!length(problem$terms) && is.null(problem$dispersion)) {
    bad_argument("method", "\"exact\" or \"auto\": this model has no hyperparameters, and is a single problem",
                 "\"nested\"")
  }
  flat <- problem$prior$precision == 0
  X <- problem$X[, flat, drop = FALSE]
  if (any(flat) && qr(X, tol = 1e-9)$rank < sum(flat)) {
    elvi_abort("The columns of the coefficients with flat priors are linearly dependent, so no optimum exists. ",
               "Drop columns or give a proper prior such as normal(0, 2.5).",
               class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "data"))
  }
  if (any(flat)) refuse_separable(problem, X)
  if (!is.null(problem$dispersion) && family_record(problem$family)$dispersion$residual) check_residuals_left(problem, rows)
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

# With an effect for every row, nothing tells residuals from effects; with none left at all, sigma runs off to 0.
check_residuals_left <- function(problem, rows) {
  left <- problem$triangle %||% triangle_rows(triangle(cbind(problem$X, problem$y - problem$offset)[problem$weight > 0, , drop = FALSE]))
  X <- qr(left$X, tol = 1e-11)
  if (rows > X$rank && sum(qr.resid(X, left$y)^2) <= 1e-22 * sum(left$y^2)) {
    elvi_abort("No optimum exists: the coefficients fit the responses perfectly, and sigma runs off to 0. ",
               "Use fewer coefficients, or gaussian() with a known `dispersion`.",
               class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "data"))
  }
  for (term in problem$terms[has_levels(problem$terms)]) {
    if (length(term$columns) >= length(problem$y)) {
      elvi_abort("`object`: the term of `", term$label, "` has ", length(term$columns), " effects for ", length(problem$y),
                 " rows: nothing tells effects from residuals. Leave it out, or give the residual variance as `dispersion`.",
                 class = c("elvi_error_term", "elvi_error_argument"), data = list(argument = "object", term = term$label))
    }
  }
}

# ---- names ----------------------------------------------------------------------------------------

effect_names <- function(groups) unlist(lapply(groups, function(term) term_record(term)$effect_names(term)))

# ---- arguments of elvi() that do not go together ------------------------------------------------------

check_nested_arguments <- function(structured, method, unused, default_sd, default_cor) {
  if (!method %in% c("auto", "nested")) {
    bad_argument("method", "\"auto\" or \"nested\" with group-level or smooth terms", describe(method))
  }
  given <- names(Filter(Negate(is.null), unused))
  if (length(given)) {
    bad_argument(given[1L], "left out with group-level or smooth terms and method = \"nested\", which do not use it",
                 describe(unused[[given[1L]]]))
  }
  if (is.null(structured)) check_no_structure(default_sd, default_cor)
}

# A plain regression whose dispersion is unknown: by itself, unless someone asks for what only a stochastic run has, or
# for a prior that is not log-concave.
prefers_nested <- function(family, dispersion, priors, unused, control) {
  record <- family_record(check_family(family))
  known <- isTRUE(record$dispersion$may_be_known) && !is.null(dispersion)
  if (is.null(record$conditional) || is.null(record$dispersion) || known || length(Filter(Negate(is.null), unused))) return(FALSE)
  concave <- function(prior) !is.list(prior) || is_concave(prior)
  concave(priors$prior) && concave(priors$prior_intercept) && !length(nested_changes(control))
}

# Of the settings only the number of nodes and progress matter.
check_nested_control <- function(control) {
  changed <- nested_changes(control)
  if (length(changed)) {
    bad_argument(changed[1L], "left at its default with group-level terms, smooth terms and method = \"nested\", which do not use it",
                 describe(control[[changed[1L]]]))
  }
}

nested_changes <- function(control) {
  check_class(control, "control", "elvi_control", "elvi_control()")
  default <- elvi_control()
  Filter(function(name) !identical(control[[name]], default[[name]]), setdiff(names(default), c("nodes", "progress")))
}

# Movement beyond a twentieth of a standard deviation says that the rule is too small.
warn_nested <- function(nested, most = 0.05) {
  moved <- max(unlist(nested$change))
  if (isTRUE(moved > most)) {
    elvi_warn("The answer moved by ", format(moved, digits = 2),
              " sd from the next smaller rule over the hyperparameters to this one ",
              "of ", length(nested$nodes), " nodes. A larger elvi_control(nodes = ) may be needed, or a tighter prior of the ",
              "standard deviations.", class = "elvi_warning_quadrature", data = list(change = nested$change))
  }
  if (isTRUE(nested$noise > most)) {
    elvi_warn("The weights of the nodes are corrected by ", nested$draws, " draws, too few here: the means of the hyperparameters ",
              "have a standard error of ", format(nested$noise, digits = 2), " sd from them, if not more.",
              class = "elvi_warning_correction", data = list(noise = nested$noise, draws = nested$draws))
  }
  if (!nested$converged) {
    elvi_warn("The conditional optimum of at least one node is not certified: the worst is ",
              format(max(vapply(nested$nodes, function(node) node$certificate, 0)), digits = 2),
              " nats above its optimum.",
              class = "elvi_warning_not_converged")
  }
}

check_no_structure <- function(default_sd, default_cor) {
  if (default_sd && default_cor) return(invisible())
  bad_argument(if (default_sd) "prior_cor" else "prior_sd", "left out: the formula has no group-level or smooth terms")
}
