# ---- asking a guarantee ---------------------------------------------------------

#' @importFrom stats predict
#' @describeIn guarantee the bound for other budgets of the same schedule; `NA`
#'   when an assumption does not hold.
#' @param object,x,guarantee an `elvi_guarantee`.
#' @param ... nothing: unknown names are errors.
#' @export
predict.elvi_guarantee <- function(object, budget = object$schedule$budget, ...) {
  check_dots(list(...), names(formals()), "predict() on a guarantee")
  budget <- check_vector(budget, "budget")
  vapply(budget, function(E) bound_for_budget(object, E), 0)
}

bound_for_budget <- function(g, E) {
  if (is.na(g$bound)) return(NA_real_)
  if (schedule_record(g$schedule)$listed && E == g$schedule$budget) return(g$bound)
  evaluate_bound(g, replan(g, E))$bound
}

replan <- function(g, E) UseMethod("replan")

#' @export
replan.elvi_guarantee <- function(g, E) plan_schedule(with_budget(g$schedule, E), g$dim, g$kurtosis, g$L, g$control)

#' @describeIn guarantee the batch `N` and number of iterations `K`, with `N K <=
#'   budget`, that make the finite-horizon bound smallest: close to `N = alpha
#'   sqrt(budget)`, `K = sqrt(budget) / alpha`, `alpha = gamma sqrt(a + b/D)`,
#'   where the bound is `sqrt(a D^2 + b D) / sqrt(budget)`, whatever the step
#'   `gamma`. Returns these numbers and a `schedule`; run it with the
#'   preconditioner of the guarantee, `elvi_control(precondition = g$lambda,
#'   estimator = "reparam", average = "theorem")`.
#' @export
best_split <- function(guarantee, budget = guarantee$schedule$budget) {
  check_class(guarantee, "guarantee", "elvi_guarantee", "guarantee()")
  budget <- check_count(budget, "budget")
  require_guarantee(guarantee)
  if (!may_split(guarantee)) {
    elvi_abort("`guarantee` is for single gradients: larger batches need ",
               if (is.na(guarantee$lip)) "a smoothness." else "a gradient that vanishes at the optimum.",
               class = c("elvi_error_no_guarantee", "elvi_error_argument"), data = list(argument = "guarantee"))
  }
  split_budget(guarantee, budget)
}

# Batches of any size have the theorem's bound only if grad F(theta*) = 0.
may_split <- function(g) g$shift == 0 && isTRUE(g$slope == 0) && !is.na(g$lip)

split_budget <- function(g, E) {
  gamma <- if (length(g$gamma) == 1L && isTRUE(g$gamma * g$lip <= 1 + 1e-12)) g$gamma
           else if (g$lip > 0) 1 / g$lip else max(g$gamma)   # F is linear: any step is short
  alpha <- if (g$D > 0) gamma * sqrt(g$a + g$b / g$D) else Inf
  # every split worth trying has the largest K for its N, or N for its K
  near <- function(centre) {
    root <- floor(sqrt(E))
    if (root <= 1000) return(seq_len(root))
    around <- floor(min(max(centre, 1), E)) + (-50:50)
    around[around >= 1 & around <= E]
  }
  by_N <- near(alpha * sqrt(E))
  by_K <- near(sqrt(E) / alpha)
  N <- c(by_N, floor(E / by_K))
  K <- c(floor(E / by_N), by_K)
  value <- gamma / (2 * N) * (g$a * g$D + g$b) + g$D / (2 * gamma * K)
  i <- which.min(value)
  structure(list(budget = E, gamma = gamma, alpha = alpha, N = N[i], K = K[i], bound = value[i],
                 ideal = sqrt((g$a * g$D^2 + g$b * g$D) / E), lambda = g$lambda,
                 schedule = if (K[i] <= 1e7) schedule_custom(gamma, N[i], K[i]), unit = unit_of(g), caveat = caveat(g)),
            class = "elvi_split")
}

# the objective of elvi() is in nats, that of mpsgd() in the user's own units
unit_of <- function(g) UseMethod("unit_of")

#' @export
unit_of.elvi_guarantee <- function(g) " nats"

require_guarantee <- function(g) {
  bad <- g$assumptions[with(g$assumptions, needed & about == "problem" & status %in% c("fails", "unknown")), ]
  if (!theorem_of(g)$gap) {
    elvi_abort("`guarantee` has no gap to bound: its target is not known to be convex.",
               class = c("elvi_error_no_guarantee", "elvi_error_argument"), data = list(argument = "guarantee"))
  }
  if (nrow(bad)) {
    elvi_abort("`guarantee` guarantees nothing at any budget: \"", bad$assumption[1L], "\" ",
               if (bad$status[1L] == "fails") "fails" else "is unknown", " (", bad$why[1L], ").",
               class = c("elvi_error_no_guarantee", "elvi_error_argument"), data = list(argument = "guarantee"))
  }
  if (is.na(g$D)) {
    elvi_abort("`guarantee` has no distance from its start to the optimum.",
               class = c("elvi_error_no_guarantee", "elvi_error_argument"), data = list(argument = "guarantee"))
  }
}

#' @export
print.elvi_split <- function(x, ...) {
  n <- show_each
  cat("Best split of ", n(x$budget), " gradient evaluations: N = ", n(x$N), ", K = ", n(x$K),
      " with steps of ", n(x$gamma), "\n", sep = "")
  cat("Bound: ", n(x$bound), x$unit, " (", n(x$ideal), " without rounding, at sqrt(N/K) = ", n(x$alpha), ")",
      x$caveat, "\n", sep = "")
  invisible(x)
}

#' @describeIn guarantee the smallest budgets whose bound is at most `target`:
#'   `best_split` for the best split, `schedule` for the schedule of the
#'   guarantee, `NA` where there is none (a custom schedule, an assumption about
#'   the run that fails, more than 1e7 iterations of a schedule that varies, or
#'   more than 2^52 gradient evaluations).
#'   For a preset it is found by bisection; its bound is not quite monotone,
#'   because of rounding.
#' @param target gap to reach, in nats.
#' @export
budget_for <- function(guarantee, target) {
  check_class(guarantee, "guarantee", "elvi_guarantee", "guarantee()")
  target <- check_positive(target, "target")
  require_guarantee(guarantee)
  c(best_split = if (may_split(guarantee)) smallest_budget(function(E) split_budget(guarantee, E)$bound, target)
                 else NA_real_,
    schedule = schedule_budget(guarantee, target))
}

# smallest E in 1, ..., 2^52 with bound(E) <= target, for a bound that falls
smallest_budget <- function(bound, target) {
  top <- 1
  while (top < 2^52 && !isTRUE(bound(top) <= target)) top <- top * 2
  if (!isTRUE(bound(top) <= target)) return(NA_real_)
  low <- floor(top / 2)
  while (top - low > 1) {
    middle <- floor((low + top) / 2)
    if (isTRUE(bound(middle) <= target)) top <- middle else low <- middle
  }
  top
}

schedule_budget <- function(g, target) {
  if (is.na(g$bound) || schedule_record(g$schedule)$listed) return(NA_real_)
  if (!theorem_of(g)$sums) return(smallest_budget(function(E) bound_for_budget(g, E), target))
  plan <- replan(g, g$schedule$budget)
  K <- 1024
  repeat {
    at <- plan_at(plan, seq_len(K) - 1)
    reached <- which(g$shift + dynamic_bounds(g$a, effective_b(g, at$step, at$batch), g$D, at$step, at$batch,
                                                    plan$bg_a, g$shift)$bound <= target)
    if (length(reached)) return(sum(at$batch[seq_len(reached[1L])]))
    if (K >= 1e7) return(NA_real_)
    K <- K * 4
  }
}

#' @rdname guarantee
#' @export
print.elvi_guarantee <- function(x, ...) {
  n <- show_each
  gap <- theorem_of(x)$gap
  what <- if (gap) "E F(average) - F*" else "min_k E|G(theta_k)|^2"
  cat("Guarantee, ", x$kind, ": ", x$base$kind, " base, dimension ", x$dim, ", ", x$control$coordinates,
      " coordinates, ", x$control$scale, " scale\n", sep = "")
  print(x$schedule)
  cat("\n")
  if (is.na(x$bound)) {
    bad <- in_doubt(x)
    reasons <- paste0("\"", bad$assumption, "\" ", ifelse(bad$status == "fails", "fails", "is unknown"))
    cat(strwrap(paste0("NO GUARANTEE for ", what, ": ", paste(reasons, collapse = ", "), "."), exdent = 2, width = 90),
        sep = "\n")
  } else {
    cat(what, " <= ", n(x$bound), if (gap) " nats" else ", the squared gradient mapping",
        if (!is.na(x$sharper) && x$sharper < 0.995 * x$bound)
          paste0(", or ", n(x$sharper), " one step earlier in the proof"),
        caveat(x), "\n", sep = "")
  }
  if (!is.na(x$best_iterate)) {
    cat("The best iterate: E min_k F(theta_k) - F* <= ", n(x$best_iterate), " nats", caveat(x), "\n", sep = "")
  }
  print_almost_surely(x)
  if (!is.na(x$gap_start)) {
    cat("The start is ", n(max(x$gap_start, 0)), " nats above F*",
        if (isTRUE(min(x$bound, x$sharper) >= x$gap_start)) ": the bound promises no improvement on it",
        ".\n", sep = "")
  }
  cat("", numbers(x, n), sep = "\n")
  writeLines(scale_of(x$control$scale)$caveat)
  rows <- x$assumptions
  cat("", paste0("  ", format(rows$assumption), "  ", format(rows$status), "  ",
                 ifelse(rows$needed, "", "(not needed) "), rows$why), sep = "\n")
  still <- still_holds(x, n)
  if (length(still)) {
    cat("", "What still holds:", strwrap(paste("-", still), indent = 2, exdent = 4, width = 90), sep = "\n")
  }
  invisible(x)
}

# what rests on an optimum that the user gave says so
caveat <- function(g) UseMethod("caveat")

#' @export
caveat.elvi_guarantee <- function(g) {
  if ("assumed" %in% g$assumptions$status) ", if what you gave is the optimum"
}

print_almost_surely <- function(x) {
  if (is.null(x$almost_surely)) return()
  status <- x$almost_surely$status[1L]
  if (status %in% c("holds", "assumed")) {
    cat(paste0("Almost surely, as the budget E grows without end", if (status == "assumed") caveat(x), ":"),
        paste0("  ", x$almost_surely$statement), sep = "\n")
  } else {
    cat("Nothing almost surely: ", x$almost_surely$why[1L], "\n", sep = "")
  }
}

# the run and the constants, a line each
numbers <- function(x, n) {
  range <- function(v) paste(n(unique(v)), collapse = " to ")
  run <- if (!is.na(x$K)) paste0("Steps ", range(x$gamma), ", batches ", range(x$N), ", ", n(x$K), " iterations, ")
  constants <- if (!theorem_of(x)$gap) {
    c("Lip = " = x$lip, "F(start) - F* <= " = x$gap0, "B = " = x$moment)
  } else {
    c("a = " = x$a, if (isTRUE(abs(x$a_weights / x$a - 1) > 1e-8)) c("a of the weights = " = x$a_weights),
      "b = " = x$b, if (x$optimum_kind == "upper bound") c("D <= " = x$D) else c("D = " = x$D))
  }
  c(paste0(run, "lambda (", n(x$lambda[["mu"]]), ", ", n(x$lambda[["Sigma"]]), ")"),
    paste0("L = ", n(x$L), ", ", paste0(names(constants), n(constants), collapse = ", ")))
}

# What can be said when the bound cannot.
still_holds <- function(x, n) {
  if (!is.na(x$bound)) return(character())
  status <- stats::setNames(x$assumptions$status, x$assumptions$assumption)
  bad <- in_doubt(x)$assumption
  settings <- theorem_settings[intersect(names(theorem_settings), bad)]
  exists <- status[["optimum exists"]]
  c(if (exists == "holds") "F has a minimiser.",
    if (status[["f convex"]] == "holds" && exists != "fails") "F is convex: every local minimum is global.",
    if (x$optimum_kind == "exact") "The optimum is known, so the gap of any fit can be computed.",
    if (!is.na(x$conditional)) paste0(
      if ("f smooth" %in% bad) paste0("If L = ", n(x$L), " is right, "),
      if (length(settings)) paste0(if ("f smooth" %in% bad) "with" else "With", " elvi_control(",
                                   paste(settings, collapse = ", "), ") "),
      if (x$checked) paste0(if ("f smooth" %in% bad || length(settings)) "and if" else "If", " the checks are right and shorten no step, "),
      if ("steps as planned" %in% bad) paste0(
        if ("f smooth" %in% bad || length(settings) || x$checked) "and if" else "If", " no step is cut, "),
      "the bound is ", n(x$conditional), if (theorem_of(x)$gap) " nats", "."),
    if (x$checked && status[["f smooth"]] != "fails") paste0(
      "With the steps g_k that are taken and u_k = prod_{i <= k} 1/(1 + a g_i^2/N_i), over the iterations before the ",
      "first wrong check, E sum_k g_k u_k (F(theta_k) - F*) <= D + b/a: the theorem with a factor of 2. It needs a and b of ",
      "the true L and a set that contains the optimum; how likely a wrong check is, is not known."))
}
