#' @rdname elvi
#' @order 2
#' @export
elvi.formula <- function(object, data, family = stats::gaussian(),
                         prior = normal(0, 2.5), prior_intercept = normal(0, 2.5),
                         prior_aux = NULL, prior_sd = exponential(1), prior_cor = lkj(1),
                         autoscale = NULL, dispersion = NULL,
                         weights, subset, na.action, offset, contrasts = NULL, frequency, ziformula = NULL, dispformula = NULL,
                         knots = NULL, base = base_gaussian(), method = c("auto", "exact", "mpsgd", "nested"),
                         schedule = NULL, budget = NULL, tol = NULL, start = NULL,
                         control = elvi_control(), correct = TRUE, prior_only = FALSE, ...) {
  check_dots(list(...), names(formals()), "elvi()")
  method <- check_method(method, c("auto", "exact", "mpsgd", "nested"))
  problem <- showing_passes(control, build_problem(object, match.call(), parent.frame(), environment()))
  solve_problem(problem, base, method, list(schedule = schedule, budget = budget, tol = tol, start = start), control, correct, prior_only)
}

#' @export
elvi.character <- function(object, ...) {
  if (length(object) != 1L) elvi.default(object)
  formula <- or_null(stats::as.formula(object, env = parent.frame()))
  if (is.null(formula)) elvi.default(object)
  call <- match.call()   # as the user wrote it, for update()
  call[[1L]] <- quote(elvi)
  call$object <- formula
  eval(call, parent.frame())
}
