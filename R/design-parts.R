# A model in two parts: the formula of the mean, and that of a second parameter (family-joint.R). They share one model frame. The columns
# of the second part follow those of the first, under names that begin with the component's; `line` of a column or a term says whose it is.

# The second part that the arguments request: NULL, or list(component, argument, formula), and the family that has it.
second_part <- function(family, arguments) {
  family <- family_with_zeros(family, arguments$ziformula)
  own <- family_record(family)$second$component
  asked <- c(zi = !is.null(arguments$ziformula), disp = !is.null(arguments$dispformula) && !is_intercept_only(arguments$dispformula))
  if (asked[["zi"]] && !identical(own, "zi")) {
    unused_argument("ziformula", paste0(family$family, "() has no zero inflation. Use poisson(), zero_inflated_poisson(), ",
                                        "zero_inflated_negbinomial(), hurdle_poisson() or hurdle_negbinomial()"))
  }
  if (asked[["disp"]]) family <- family_with_scale(family)
  component <- family_record(family)$second$component
  if (is.null(component) || is_shared(family_record(family))) return(list(family = family))
  argument <- paste0(component, "formula")
  formula <- arguments[[argument]] %||% stats::as.formula("~ 1", env = baseenv())
  list(family = family, part = list(component = component, argument = argument, formula = check_second_formula(formula, argument)))
}

is_intercept_only <- function(formula) inherits(formula, "formula") && length(formula) == 2L && identical(formula[[2L]], 1)

# 'glmmTMB' has zero inflation as an argument, not as a family
family_with_zeros <- function(family, formula) {
  inflated <- c(poisson = "zero_inflated_poisson", neg_binomial_2 = "zero_inflated_negbinomial", truncated_poisson = "hurdle_poisson",
                truncated_negbinomial = "hurdle_negbinomial")
  found <- match(family$family, names(inflated))
  if (is.null(formula) || is.na(found)) return(family)
  with_zeros <- family_records[[inflated[[found]]]]$make()
  if (identical(family$link, with_zeros$link)) with_zeros else family
}

# a family whose dispersion has a formula
family_with_scale <- function(family) {
  scales <- Filter(function(record) identical(record$second$component, "disp"), family_records)
  able <- vapply(scales, function(record) record$family == family$family && record$link == family$link, NA)
  if (!any(able)) {
    known <- join_or(unique(vapply(scales, function(record) paste0(record$family, "(", record$link, ")"), "")))
    unused_argument("dispformula", paste0(family$family, "(", family$link, ") has no dispersion that can have a formula. Use ", known))
  }
  family$component <- "disp"
  family
}

check_second_formula <- function(formula, argument) {
  if (!inherits(formula, "formula") || length(formula) != 2L) {
    bad_argument(argument, "a formula without a response, such as ~ x",
                 if (inherits(formula, "formula")) deparse_one(formula) else describe(formula))
  }
  if ("." %in% all.names(formula)) bad_argument(argument, "a formula without `.`", deparse_one(formula), "name its variables")
  formula
}

# Variables that are neither in the data nor where the formula was written
check_second_variables <- function(part, data) {
  known <- function(name) name %in% names(data) || exists(name, envir = environment(part$formula) %||% baseenv())
  unknown <- Filter(Negate(known), all.vars(part$formula))
  if (length(unknown)) {
    bad_argument(part$argument, "a formula of variables of `data`", paste0("one with `", unknown[1L], "`, which is not there"))
  }
}

# what structured_formula() returns, also where there is nothing but a model matrix
formula_parts <- function(formula, data) {
  parts <- structured_formula(formula, data)
  if (!is.null(parts)) return(parts)
  if ("." %in% all.names(formula[[length(formula)]])) formula <- stats::formula(stats::terms(formula, data = data))
  list(fixed = formula, bars = list(), smooths = list(), others = list())
}

# Offsets of the second part are taken out of its formula: the frame would count them as those of the first.
take_offsets <- function(parts) {
  terms <- stats::terms(parts$fixed)
  at <- attr(terms, "offset")
  if (is.null(at)) return(c(parts, list(offsets = list())))
  offsets <- lapply(as.list(attr(terms, "variables"))[1L + at], function(offset) call("I", offset[[2L]]))   # a variable of the frame
  labels <- attr(terms, "term.labels")
  right <- if (length(labels)) labels else "1"
  parts$fixed <- stats::reformulate(right, intercept = attr(terms, "intercept") == 1, env = environment(parts$fixed))
  c(parts, list(offsets = offsets))
}

# ---- from formulas to columns --------------------------------------------------------------------------------

joint_design <- function(formula, part, data, call, env, contrasts, knots = NULL) {
  check_second_variables(part, data)
  first <- formula_parts(formula, data)
  second <- take_offsets(formula_parts(part$formula, data))
  specs <- lapply(list(first, second), function(p) smooth_specs(p$smooths, environment(p$fixed)))
  knots <- check_knots(knots, do.call(c, specs))
  call$object <- joint_frame_formula(first, second, specs)
  frame <- formula_frame(call, env)
  check_contrasts(contrasts, frame)
  second$whole <- if (mentions(formula[[length(formula)]], c("|", "||", names(latent_calls())))) formula else first$fixed
  join_designs(frame_design(first, specs[[1L]], frame, contrasts, knots), frame_design(second, specs[[2L]], frame, contrasts, knots),
               second, part)
}

# the formula of everything, see frame_formula()
joint_frame_formula <- function(first, second, specs) {
  formula <- frame_formula(first, smooth_variables(specs[[1L]]))
  terms <- stats::terms(frame_formula(second, smooth_variables(specs[[2L]])))
  variables <- c(as.list(attr(terms, "variables"))[-1L], second$offsets)
  intercept <- attr(stats::terms(formula), "intercept") == 1
  right <- Reduce(function(sum, expr) call("+", sum, expr), variables, formula[[length(formula)]])
  formula[[length(formula)]] <- if (intercept) right else call("-", right, 1)
  formula
}

join_designs <- function(first, second, parts, part) {
  prefix <- paste0(part$component, "_")
  p <- ncol(first$X)
  q <- sum(lengths(lapply(first$latent, `[[`, "columns")))
  colnames(second$X) <- paste0(prefix, colnames(second$X), recycle0 = TRUE)
  second$offset <- part_offset(parts$offsets, first$frame)
  second[c("offsets", "formula", "component", "columns")] <- list(parts$offsets, part$formula, part$component, p + seq_len(ncol(second$X)))
  second$latent <- lapply(second$latent, part_term, prefix = prefix, before = q)
  whole <- first
  whole$X <- cbind(first$X, second$X)
  whole$Z <- join_columns(first$Z, second$Z, nrow(first$frame))
  whole$latent <- c(lapply(first$latent, c, list(line = 1L)), second$latent)
  whole$centre <- c(first$centre, second$centre)
  whole$intercept <- first$intercept || second$intercept
  whole$formula <- parts$whole
  whole$parts <- list(first = first, second = second)
  whole
}

# a term of another part: its effects are known by the component
part_term <- function(term, prefix, before, line = 2L) {
  named <- if (term_record(term)$by_level) "coefs" else "label"
  term[[named]] <- paste0(prefix, term[[named]])
  term$columns <- before + term$columns
  term$line <- line
  term
}

join_columns <- function(Z1, Z2, n) {
  if (is.null(Z1) && is.null(Z2)) return(NULL)
  if (is.null(Z1)) return(Z2)
  if (is.null(Z2)) return(Z1)
  methods::as(methods::as(cbind(Z1, Z2), "generalMatrix"), "CsparseMatrix")
}

part_offset <- function(offsets, frame) {
  n <- nrow(frame)
  Reduce(`+`, lapply(offsets, function(expr) check_vector(as.double(frame[[deparse_one(expr)]]), "offset", n)), numeric(n))
}

# Weights of gaussian rows are precisions: a standard deviation less by half their logarithm, in rows that count as often as they are given.
precisions_as_offsets <- function(rows, design) {
  weights <- check_weights(design$weights, length(rows$y))
  frequency <- check_weights(design$frequency, length(rows$y), "frequency")
  rows$weight <- ifelse(weights > 0, frequency, 0)
  rows$second_offset <- ifelse(weights > 0, -log(weights) / 2, 0)
  rows
}

# the line of each of the columns [X Z]
column_lines <- function(lines, terms) {
  p <- length(lines$of)
  q <- sum(lengths(lapply(terms, `[[`, "columns")))
  line <- c(lines$of, rep(1L, q))
  for (term in terms) line[p + term$columns] <- term$line
  line
}

# `lines` of a problem with several predictors: `of`, that of each of the p coefficients, and the offsets of those after the first
second_lines <- function(p, columns, offset) list(of = replace(rep(1L, p), columns, 2L), offset = matrix(offset, ncol = 1L))
shared_lines <- function(shared, offset) {
  L <- length(shared$classes)
  list(of = rep(seq_len(L), each = shared$columns), offset = matrix(offset, length(offset), L - 1L))
}

# those of a fit, for rows with these offsets
lines_of_fit <- function(fit, offset, second_offset = 0 * offset) {
  if (has_shared(fit)) shared_lines(fit$shared, offset)
  else if (!is.null(fit$second)) second_lines(length(coefficient_names(fit)), fit$second$columns, second_offset)
}

# ---- priors ----------------------------------------------------------------------------------------------------

# A prior for both parts, or a list with one for each, by component.
prior_of_part <- function(prior, component, components, name) {
  if (!is_plain_list(prior)) return(prior)
  if (is.null(names(prior)) || !all(names(prior) %in% components)) {
    bad_argument(name, paste0("a prior, or a list with priors of the parts (", toString(components), ")"),
                 if (is.null(names(prior))) "a list without names" else paste("one with", describe(setdiff(names(prior), components)[1L])))
  }
  prior[[component]]
}

# ---- new data --------------------------------------------------------------------------------------------------

# Rows of the second part at the rows of a frame, in the shape of prediction_rows().
second_rows <- function(object, frame, keep, allowed) {
  second <- object$second
  X <- stats::model.matrix(second$terms, frame, contrasts.arg = second$contrasts)
  if (nrow(X) != nrow(frame)) X <- X[rep_len(1L, nrow(frame)), , drop = FALSE]   # `~ 1` of no variables
  smooths <- columns_of_smooths(second$smooths, frame)
  X <- add_free_columns(X, second$smooths, smooths, object$groups[in_line(object$groups, 2L)], frame)
  rownames(X) <- rownames(frame)
  mine <- keep & in_line(object$groups, 2L)
  list(X = within_columns(X, second$columns, coefficient_names(object)), Z = latent_columns(object$groups, frame, smooths, mine),
       offset = part_offset(second$offsets, frame), new = unseen_levels(object$groups[mine], frame, allowed))
}

# terms of a model in one part belong to it
in_line <- function(terms, line) vapply(terms, function(term) (term$line %||% 1L) == line, NA)

without_second <- function(object) {
  object$second <- NULL
  object
}

without_shared <- function(object) {
  object$shared <- NULL
  object
}

# columns of one part among those of both
within_columns <- function(X, at, names) {
  if (length(at) == length(names)) {
    colnames(X) <- names
    return(X)
  }
  out <- matrix(0, nrow(X), length(names), dimnames = list(rownames(X), names))
  out[, at] <- X
  out
}
