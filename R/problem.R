#' Reading a formula and fitting it, as two steps
#'
#' [elvi()] with a formula has two steps, which other packages can call one by one. `elvi_problem()` reads formula and data and
#' returns the problem to solve. `elvi_solve()` chooses a solver and returns the fit. A problem can be solved several times,
#' with another base or method, without reading the data again.
#'
#' A problem is a list. Its documented fields are
#' * `rows`: design matrix `X`, response `y`, `weight` and `offset`. Columns of `X` count as `X[, j] - shift[j]`.
#' * `Z`: sparse matrix with the columns of latent terms (groups, smooths), or `NULL`; `terms`, a list with what is known of each.
#' * `family`, and `dispersion`: its parameter if that is known, else `NULL`.
#' * `priors`: those of the coefficients (`joint`, one after the other), of the family's parameter (`aux`), of standard
#'   deviations (`sd`) and correlations (`cor`), after rescaling to the data.
#'
#' `elvi_problem()` has the arguments of [elvi()] that describe the model, `elvi_solve()` those that say how to fit it.
#'
#' @param formula a formula.
#' @param data,family,dispersion,weights,subset,na.action,offset,contrasts,frequency as in [elvi()].
#' @param prior,prior_intercept,prior_aux,prior_sd,prior_cor,autoscale as in [elvi()].
#' @param ziformula,dispformula,knots as in [elvi()].
#' @param problem a problem by `elvi_problem()`.
#' @param base,method,schedule,budget,tol,start,control,correct,prior_only as in [elvi()].
#' @return `elvi_problem()` returns an object of class `elvi_problem`, `elvi_solve()` a fit, see [elvi()].
#' @examples
#' problem <- elvi_problem(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' problem
#' dim(problem$rows$X)
#' elvi_solve(problem)
#' elvi_solve(problem, base = base_laplace())
#' @name elvi_pieces
NULL

#' @rdname elvi_pieces
#' @export
elvi_problem <- function(formula, data, family = stats::gaussian(), prior = normal(0, 2.5), prior_intercept = normal(0, 2.5),
                         prior_aux = NULL, prior_sd = exponential(1), prior_cor = lkj(1), autoscale = NULL, dispersion = NULL,
                         weights, subset, na.action, offset, contrasts = NULL, frequency, ziformula = NULL, dispformula = NULL,
                         knots = NULL) {
  if (!inherits(formula, "formula")) bad_argument("formula", "a formula", describe(formula))
  call <- match.call()
  names(call)[names(call) == "formula"] <- "object"
  build_problem(formula, call, parent.frame(), environment())
}

#' @rdname elvi_pieces
#' @export
elvi_solve <- function(problem, base = base_gaussian(), method = c("auto", "exact", "mpsgd", "nested"), schedule = NULL,
                       budget = NULL, tol = NULL, start = NULL, control = elvi_control(), correct = TRUE, prior_only = FALSE) {
  check_class(problem, "problem", "elvi_problem", "elvi_problem()")
  method <- check_method(method, c("auto", "exact", "mpsgd", "nested"))
  solve_problem(problem, base, method, list(schedule = schedule, budget = budget, tol = tol, start = start), control, correct, prior_only)
}

#' @export
print.elvi_problem <- function(x, ...) {
  size <- c(x$rows$n %||% length(x$rows$y), x$rows$dim)
  cat(sprintf("%s regression (%s link), %s observations, %d coefficients\n", x$family$family, x$family$link, format_count(size[1L]),
              as.integer(size[2L])))
  cat("formula: ", deparse_one(x$regression$formula), "\n", sep = "")
  for (term in x$terms) cat("latent term ", term$label, ": ", format_count(length(term$columns)), " effects\n", sep = "")
  if (length(hyper_names(x))) cat("hyperparameters: ", toString(hyper_names(x)), "\n", sep = "")
  invisible(x)
}

hyper_names <- function(problem) {
  own <- hyper_record(family_record(problem$family), problem$family$levels)$names
  c(unlist(lapply(problem$terms, sd_names)), if (is.null(problem$dispersion)) own)
}

# ---- from the arguments of elvi() ------------------------------------------------------------------------

# `arguments` is the environment of the function that was called, with the arguments of elvi_problem().
build_problem <- function(formula, call, env, arguments) {
  naming_response(formula, read_problem(formula, call, env, arguments))
}

# Users of a formula have no argument `y`: messages about the response name it as the formula does.
naming_response <- function(formula, code) {
  if (length(formula) != 3L) return(code)
  renamed <- function(condition) {
    name <- deparse_one(formula[[2L]])
    condition$message <- gsub("`y`", paste0("`", name, "`"), conditionMessage(condition), fixed = TRUE)
    if (!is.null(condition$argument)) condition$argument <- name
    condition
  }
  withCallingHandlers(code, elvi_error_argument = function(e) if (identical(e$argument, "y")) stop(renamed(e)),
                      elvi_warning_constant_response = function(w) {
                        warning(renamed(w))
                        invokeRestart("muffleWarning")
                      })
}

read_problem <- function(formula, call, env, arguments) {
  given <- names(call)
  refuse_response_extras(formula)
  data <- if ("data" %in% given) check_data(arguments$data)
  if ("na.action" %in% given) check_na_action(arguments$na.action)
  asked <- second_part(check_family(arguments$family), arguments)
  family <- asked$family
  if (!is.null(family_record(family)$pieces)) return(problem_of_pieces(formula, family, data, call, env, arguments))
  regression_problem(formula, family, asked$part, data, call, env, arguments)
}

# `part` is the second one, or NULL; `call` says what the model frame is made of
regression_problem <- function(formula, family, part, data, call, env, arguments) {
  given <- names(call)
  parts <- if (is.null(part)) {
    structured_formula(formula, if (!is_source(data)) data else if ("." %in% all.vars(formula)) first_chunk(data))
  }
  if (!is.null(part) && is_source(data)) bad_argument("data", "in memory for a model with a second formula", "a source of rows")
  if (is_source(data) && is.null(parts)) check_knots(arguments$knots, list())
  if (is.null(part)) check_terms(parts, family, given)
  design <- if (!is.null(part)) joint_design(formula, part, data, call, env, arguments$contrasts, arguments$knots)
            else if (is_source(data)) source_design(data, formula, call, env, arguments$contrasts, family, parts, arguments$knots)
            else formula_design(parts, call, env, arguments$contrasts, arguments$knots)
  if (!is.null(design$parts) && !length(design$latent)) refuse_latent_priors(given)
  if (!design$intercept && "prior_intercept" %in% given) {
    unused_argument("prior_intercept", "the formula has no intercept")
  }
  family <- family_record(family)$adapt(family, design$y, declared_levels(formula, data))
  shared <- is_shared(family_record(family))
  if (shared && is_source(data)) bad_argument("data", paste0("in memory for ", family$family, "()"), "a source of rows")
  dispersion <- arguments$dispersion
  if (!is.null(dispersion) && is_nested_only(family)) {
    unused_argument("dispersion", paste0("parameters of ", family$family, "() with link \"", family$link, "\" are always estimated"))
  }
  dispersion <- check_dispersion(if (is.null(family_record(family)$dispersion)) dispersion %||% 1 else dispersion, family)
  priors <- given_priors(arguments)
  priors <- design_priors(design, family, dispersion, priors, check_autoscale(arguments$autoscale, given, priors))
  if (shared) {
    design <- shared_design(design, class_names(family))
    priors <- shared_priors(priors, length(class_names(family)) - 1L)
  }
  new_problem(design, design$formula %||% if (is.null(parts)) stats::formula(design$terms) else formula, call, family, dispersion, priors)
}

# The solver's rows are pieces of observations; the fit shows the formula and the call that were given.
problem_of_pieces <- function(formula, family, data, call, env, arguments) {
  split <- family_record(family)$pieces(formula, family, data, call, env)
  problem <- regression_problem(split$formula, split$family, NULL, split$data, split$call, env, arguments)
  problem$regression$pieces <- settle_pieces(split$pieces, problem$regression$frame)
  problem$regression$formula <- formula
  call[[1L]] <- quote(elvi)
  problem$call <- call
  problem
}

# levels of the response in the data, of which a model frame drops those that do not occur
declared_levels <- function(formula, data) {
  response <- if (length(formula) == 3L) formula[[2L]]
  if (is.name(response) && is.data.frame(data)) levels(data[[as.character(response)]])
}

new_problem <- function(design, formula, call, family, dispersion, priors) {
  call[[1L]] <- quote(elvi)   # not the method, which is not exported
  shift <- if (length(intercept_places(design))) design$centre
  rows <- design$rows %||% check_rows(c(design[c("X", "y", "weights", "frequency", "offset")], list(shift = shift)),
                                      family_record(family), family)
  second <- design$parts$second
  if (!is_source(rows)) check_some_events(family, rows$y[rows$weight > 0])
  if (!is.null(second)) {
    family_record(family)$second$check(rows$y[rows$weight > 0])
    if (family_record(family)$second$precision) rows <- precisions_as_offsets(rows, design)
  }
  terms <- Map(function(term, prior) c(term, list(prior_sd = prior, prior_cor = priors$cor$eta)), design$latent, unname(priors$sd))
  structure(list(
    call = call, family = family, dispersion = dispersion, rows = rows, shift = shift, intercepts = intercept_places(design),
    Z = design$Z, terms = terms, priors = priors,
    lines = if (!is.null(second)) second_lines(ncol(design$X), second$columns, second$offset + (rows$second_offset %||% 0))
            else if (!is.null(design$shared)) shared_lines(design$shared, rows$offset),
    regression = c(list(formula = formula, family = family, priors = priors, dispersion = dispersion, groups = terms,
                        smooths = design$smooths %||% list(), na.action = attr(design$frame, "na.action")),
                   design[c("terms", "frame", "xlevels", "contrasts", "offset_given")], design$rows["dropped"],
                   list(shared = design$shared,
                        second = second[c("component", "formula", "terms", "contrasts", "xlevels", "smooths", "offsets", "columns",
                                          "intercept")]))),
    class = "elvi_problem")
}

# the coefficients that are intercepts, one in each part
intercept_places <- function(design) {
  first <- design$parts$first %||% design
  second <- design$parts$second
  if (!is.null(design$shared)) return(if (design$intercept) 1L + (seq_along(design$shared$classes) - 1L) * design$shared$columns)
  c(if (first$intercept) 1L, if (isTRUE(second$intercept)) second$columns[1L])
}

given_priors <- function(arguments) {
  priors <- mget(c("prior", "prior_intercept", "prior_aux", "prior_sd", "prior_cor"), arguments)
  for (name in c("prior", "prior_intercept", "prior_aux")) priors[name] <- list(as_prior(priors[[name]], name))
  priors
}

# Which priors are rescaled: all or none if someone says so, else those left at their defaults, or made to be.
check_autoscale <- function(autoscale, given, priors) {
  if (!is.null(autoscale)) {
    autoscale <- check_flag(autoscale, "autoscale")
    return(c(slopes = autoscale, intercept = autoscale, aux = autoscale, sd = autoscale))
  }
  asks <- function(prior) is.list(prior) && isTRUE(prior$autoscale)
  c(slopes = !"prior" %in% given || asks(priors$prior), intercept = !"prior_intercept" %in% given || asks(priors$prior_intercept),
    aux = is.null(priors$prior_aux) || asks(priors$prior_aux), sd = !"prior_sd" %in% given)
}

check_terms <- function(parts, family, given) {
  if (is.null(parts)) return(refuse_latent_priors(given))
  check_conditional_family(family)
}

refuse_latent_priors <- function(given) {
  extra <- intersect(c("prior_sd", "prior_cor"), given)
  if (length(extra)) unused_argument(extra[1L], "the formula has no group-level or smooth terms")
}

# ---- solvers -----------------------------------------------------------------------------------------------

# `problem` has rows, family, terms and priors, or a `target`: any model. `run` are arguments that only some solvers use.
solve_problem <- function(problem, base, method, run, control, correct = TRUE, prior_only = FALSE) {
  correct <- check_flag(correct, "correct")
  if (check_flag(prior_only, "prior_only")) return(solve_prior(problem, base, method, run, control))
  check_class(base, "base", "elvi_base", "a base_*() function")
  check_control(control)
  old <- show_passes(control)
  on.exit(options(old))
  if (!is.null(problem$lines) && !identical(base$kind, base_gaussian()$kind)) {
    bad_argument("base", paste("base_gaussian() for", several_words(problem)), paste0("base_", base$kind, "()"))
  }
  # of data larger than memory an exact or a nested fit keeps its passes in a checkpoint, see rows-log.R
  rows <- problem$rows %||% problem$target$rows
  file <- if (is_chunked(rows)) control$checkpoint
  plain <- control
  if (!is.null(file)) plain["checkpoint"] <- list(NULL)
  if (choose_nested(problem, method, run, plain)) return(with_pass_log(rows, file, solve_nested(problem, base, plain, correct)))
  if (!is.null(run$tol)) run$tol <- check_positive(run$tol, "tol")
  if (!is.null(run$schedule) && !is.null(run$budget)) {
    unused_argument("budget", "`schedule` is given and has a budget of its own")
  }
  if (is.null(problem$target)) problem <- as_target(problem)
  if (method %in% c("natural", "laplace", "pathfinder")) check_wide(problem$target, base, run, method)
  if (method %in% c("laplace", "pathfinder")) return(solve_path(problem, base, c(run, list(method = method)), control))
  if (method == "natural" || method == "auto" && prefers_wide(problem$target, base, run, control)) {
    return(solve_wide(problem, base, c(run, list(method = method)), control))
  }
  exact <- choose_method(method, problem$target, stochastic_settings(run, plain), control$scale) == "exact"
  if (exact) with_pass_log(rows, file, solve_exact(problem, base, run, plain, correct)) else solve_stochastic(problem, base, run, control)
}

# Latent terms need it; a plain regression prefers it where its dispersion is unknown, unless an argument needs what only a stochastic
# run has, or for a prior that is not log-concave, or the rows are not in memory, and would have to be read many times.
choose_nested <- function(problem, method, run, control) {
  if (is.null(problem$rows)) return(FALSE)
  must <- length(problem$terms) > 0L || method == "nested" || is_nested_only(problem$family) ||
    lacks_mode_search(problem$family) || !is.null(problem$lines)
  if (must) check_nested(problem, method, run, control)
  if (must || method != "auto" || !prefers_nested(problem, run, replace(control, "rows_per_step", list(NULL)))) return(must)
  if (has_few_rows(problem)) {
    if (!is.null(control$rows_per_step)) say_all_rows("the integration over the dispersion")
    return(TRUE)
  }
  say_not_nested(problem)
  FALSE
}

prefers_nested <- function(problem, run, control) {
  record <- family_record(problem$family)
  !is.null(record$conditional) && is.null(problem$dispersion) && !length(given_values(run)) && is_concave(problem$priors$joint) &&
    !length(nested_changes(control))
}

several_words <- function(problem) {
  if (is_shared(family_record(problem$family))) "a model with a predictor for each class" else "a model with a second formula"
}

# in memory, or with a triangular factor in place of the rows
has_few_rows <- function(problem) !is_chunked(problem$rows) || family_record(problem$family)$constant_curvature

# a regression as a problem of one target, the model of its centred predictors
as_target <- function(problem) {
  target <- rows_target(problem$rows, problem$family, problem$priors$joint, problem$dispersion, problem$priors$aux, problem$shift)
  warn_if_flat(problem$priors$joint)
  list(target = target, call = problem$call, regression = problem$regression)
}

warn_if_flat <- function(prior) {
  flat <- sum(is.infinite(prior$scale))
  if (!flat) return(invisible())
  elvi_warn("The prior is flat for ", flat, " coefficient(s): a posterior, and an ",
            "optimum, need not exist then. If none is found, the fit is an error.",
            class = "elvi_warning_flat_prior")
}
