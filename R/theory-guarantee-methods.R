# ---- asking a guarantee ---------------------------------------------------------

#' @importFrom stats predict
#' @describeIn guarantee the bound for other budgets of the same schedule; `NA`
#'   when an assumption does not hold.
#' @param object,x,guarantee an `elvi_guarantee`.
#' @param by which bound: the smallest, or that by distance, by gap, or by gap with estimated noise at the optimum.
#' @param ... nothing: unknown names are errors.
#' @export
predict.elvi_guarantee <- function(object, budget = object$schedule$budget, by = c("smallest", "distance", "gap", "estimated"), ...) {
  check_dots(list(...), names(formals()), "predict() on a guarantee")
  budget <- check_vector(budget, "budget")
  by <- check_choice(by, "by", c("smallest", "distance", "gap", "estimated"))
  vapply(budget, function(E) bound_for_budget(object, E, by), 0)
}

bound_for_budget <- function(g, E, by = "smallest") {
  if (is.na(g$bound)) return(NA_real_)
  same <- E == g$schedule$budget
  if (schedule_record(g$schedule)$listed && same) {
    values <- g$bounds
  } else {
    plan <- replan(g, E)
    g$lambda <- plan$lambda
    if (is_computed(g$schedule) && !same) g <- in_metric(g, plan$lambda)
    values <- evaluate_bounds(g, plan)
  }
  name <- if (by == "smallest") smallest_bound(values[g$candidates]) else by
  if (is.na(name)) NA_real_ else values[[name]]
}

# The constants of a guarantee in another metric
in_metric <- function(g, lambda) {
  noise <- noise_constants(g$constants$blocks, lambda, g$constants$blocks$floor)
  g[c("a", "b", "D", "lambda")] <- list(noise$a, noise$b, sum(g$constants$distance2 / lambda), lambda)
  g
}

replan <- function(g, E) UseMethod("replan")

#' @export
replan.elvi_guarantee <- function(g, E) {
  schedule <- if (E == g$schedule$budget) g$schedule else with_budget(g$schedule, E)
  if (needs_numbers(schedule)) schedule <- numbered_schedule(schedule, g$constants, NULL)
  plan_schedule(schedule, g$dim, g$kurtosis, g$L, g$control)
}

#' @describeIn guarantee the batch `N` and number of iterations `K`, with `N K <=
#'   budget`, that make the finite-horizon bound smallest in the guarantee's own preconditioner. By distance these are close to `N =
#'   alpha sqrt(budget)`, `K = sqrt(budget) / alpha`, `alpha = gamma sqrt(a + b/D)`,
#'   where the bound is `sqrt(a D^2 + b D) / sqrt(budget)`, whatever the step
#'   `gamma`; by gap they are found numerically. Returns these numbers and a `schedule`; run it with the
#'   preconditioner of the guarantee, `elvi_control(precondition = g$lambda,
#'   estimator = "reparam", average = "theorem")`. [schedule_certified()] chooses the preconditioner too.
#' @export
best_split <- function(guarantee, budget = guarantee$schedule$budget, by = c("smallest", "distance")) {
  check_class(guarantee, "guarantee", "elvi_guarantee", "guarantee()")
  budget <- check_count(budget, "budget")
  require_guarantee(guarantee)
  if (!may_split(guarantee)) {
    elvi_abort("`guarantee` is for single gradients: larger batches need ",
               if (is.na(guarantee$lip)) "a smoothness." else "a gradient that vanishes at the optimum.",
               class = c("elvi_error_no_guarantee", "elvi_error_argument"), data = list(argument = "guarantee"))
  }
  split_budget(guarantee, budget, check_choice(by, "by", c("smallest", "distance")))
}

# Batches of any size have the theorem's bound only if grad F(theta*) = 0.
may_split <- function(g) g$shift == 0 && isTRUE(g$slope == 0) && !is.na(g$lip)

split_budget <- function(g, E, by = "smallest") {
  best <- distance_split(g, E)
  if (has_fixed_weight(g$control)) best$value <- Inf
  split <- list(budget = E, gamma = best$gamma, alpha = best$alpha, N = best$N, K = best$K, bound = best$value, by = "distance",
                ideal = sqrt((g$a * g$D^2 + g$b * g$D) / E), lambda = g$lambda,
                schedule = if (best$K <= 1e7) schedule_custom(best$gamma, best$N, best$K), unit = unit_of(g), caveat = caveat(g))
  by_gap <- if ((by == "smallest" || !is.finite(best$value)) && !is.null(g$constants)) smallest_value(list(
    gap_named(split_gap_bound(g$constants, g$lambda, E, TRUE), "gap"),
    if (!noise_is_exact(g$constants)) gap_named(split_gap_bound(g$constants, g$lambda, E, FALSE), "estimated")))
  if (!is.null(by_gap) && by_gap$value < split$bound) {
    split[c("gamma", "N", "K", "bound", "by")] <- by_gap[c("step", "N", "K", "value", "by")]
    split$alpha <- sqrt(split$N / split$K)
    split["ideal"] <- list(NULL)
    split$schedule <- certified_schedule(E, by_gap)
  }
  structure(split, class = "elvi_split")
}

gap_named <- function(found, by) if (!is.null(found)) c(found, list(by = by))

# N and K that make the theorem's bound step/(2N) (a D + b) + D/(2 step K) smallest
distance_split <- function(g, E) {
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
  list(gamma = gamma, alpha = alpha, N = N[i], K = K[i], value = value[i])
}

# the objective of elvi() is in nats, that of mpsgd() in the user's own units
unit_of <- function(g) g$unit %||% " nats"

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
  cat("Bound: ", n(x$bound), x$unit,
      if (is.null(x$ideal)) paste0(" (", bound_words[[x$by]], ")")
      else paste0(" (", n(x$ideal), " without rounding, at sqrt(N/K) = ", n(x$alpha), ")"),
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

# smallest E in 1, ..., 2^52 with bound(E) <= target, for a bound that falls; at most `enough`, if that is known to do
smallest_budget <- function(bound, target, enough = NULL) {
  top <- enough %||% 1
  while (top < 2^52 && !isTRUE(bound(top) <= target)) top <- top * 2
  if (!isTRUE(bound(top) <= target)) return(NA_real_)
  low <- if (is.null(enough)) floor(top / 2) else 0
  while (top - low > 1) {
    middle <- floor((low + top) / 2)
    if (isTRUE(bound(middle) <= target)) top <- middle else low <- middle
  }
  top
}

schedule_budget <- function(g, target) {
  if (is.na(g$bound) || schedule_record(g$schedule)$listed) return(NA_real_)
  if (!theorem_of(g)$sums) return(smallest_budget(function(E) bound_for_budget(g, E), target))
  if (has_fixed_weight(g$control)) return(NA_real_)   # what follows searches by distance
  plan <- replan(g, g$schedule$budget)
  K <- 1024
  repeat {
    at <- plan_at(plan, seq_len(K) - 1)
    reached <- which(g$shift + dynamic_bounds(g$a, effective_b(g, at$step, at$batch), g$D, at$step, at$batch,
                                                    plan$bg_a, g$shift)$bound <= target)
    if (length(reached)) {   # by distance; another bound may be there before
      return(smallest_budget(function(E) bound_for_budget(g, E), target, sum(at$batch[seq_len(reached[1L])])))
    }
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
    cat(strwrap(paste0(what, " <= ", n(x$bound), if (gap) paste0(" nats (", bound_words[[x$by]], ")") else ", the squared gradient mapping",
                       caveat(x)), exdent = 2, width = 90), sep = "\n")
    if (gap) print_bounds(x, n)
  }
  if (!is.na(x$best_iterate)) {
    cat(strwrap(paste0("The best iterate: E min_k F(theta_k) - F* <= ", n(x$best_iterate), " nats", caveat(x)), exdent = 2, width = 90),
        sep = "\n")
  }
  print_almost_surely(x)
  if (!is.na(x$gap_start)) {
    cat("The start is ", n(max(x$gap_start, 0)), " nats above F*",
        if (isTRUE(x$bound >= x$gap_start)) ": the bound promises no improvement on it",
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

# What a bound is called
bound_words <- c(distance = "noise by distance, the paper's theorem", sharper = "noise by distance, before its last rounding",
                 gap = "noise by gap", estimated = "noise by gap, with the noise at the optimum estimated")

# a result that rests on the user's claims names them
caveat <- function(g) UseMethod("caveat")

#' @export
caveat.elvi_guarantee <- function(g) {
  assumed <- g$assumptions$assumption[g$assumptions$status == "assumed"]
  if (!length(assumed)) return(NULL)
  if_words <- c("f convex" = "f is convex", "f smooth" = "L is right", "optimum exists" = "f grows as you say",
                "optimum known" = if (g$optimum_kind == "given") "what you gave is the optimum" else "alpha is right")
  if (g$optimum_kind == "given") if_words <- if_words[names(if_words) != "optimum exists"]
  named <- unname(if_words[intersect(names(if_words), assumed)])
  if (!length(named)) named <- "what you gave is the optimum"
  paste0(", if ", toString_and(named))
}

toString_and <- function(x) if (length(x) < 2L) x else paste(toString(x[-length(x)]), "and", x[length(x)])

# The other bounds, the noise at the optimum that some rest on, the best of several runs, and the gap of a run that was made
print_bounds <- function(x, n) {
  others <- x$bounds[!is.na(x$bounds) & names(x$bounds) != x$by]
  if (length(others)) {
    cat(strwrap(paste0("Also: ", paste0(n(others), " (", bound_words[names(others)], ")", collapse = ", "), "."), exdent = 2, width = 90),
        sep = "\n")
  }
  noise <- noise_words(x, n)
  if (!is.null(noise)) cat(noise, "\n", sep = "")
  if (x$runs > 1) {
    cat("The best of ", n(x$runs), " independent runs, by the exact objective: P(gap > ", n(2 * x$bound), " nats) <= ",
        format(2^-x$runs, digits = 2), "\n", sep = "")
  }
  if (!is.na(x$gap)) {
    cat("The run ended ", format(x$gap, digits = 3), " nats above F*: the bound is ", format(x$bound / x$gap, digits = 2),
        " times that.\n", sep = "")
  }
}

# Where the noise at the optimum is from that the bound rests on
noise_words <- function(x, n) {
  s2 <- x$constants$s2
  if (x$by == "estimated") {
    if (s2$draws == 0) return("The noise at the optimum is computed where the solver ended, which is not certified to be the optimum.")
    return(paste0("The noise at the optimum is estimated from ", n(s2$draws), " draws, and four standard errors (",
                  format(100 * max(s2$se / s2$estimate), digits = 2), " % each) are added."))
  }
  if (x$by == "gap" && s2$how == "computed") "The noise at the optimum is computed by quadrature, at a certified optimum."
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
    c(if (has_fixed_weight(x$control)) c("weight of the control variate = " = relative_weight(x$control) * x$L) else c("a = " = x$a),
      if (isTRUE(abs(x$a_weights / x$a - 1) > 1e-8)) c("a of the weights = " = x$a_weights),
      if (!has_fixed_weight(x$control)) c("b = " = x$b), if (x$optimum_kind == "upper bound") c("D <= " = x$D) else c("D = " = x$D))
  }
  c(paste0(run, "lambda (", n(x$lambda[["mu"]]), ", ", n(x$lambda[["Sigma"]]), ")"),
    paste0("L = ", n(x$L), ", ", paste0(names(constants), n(constants), collapse = ", ")))
}

# What is printed when there is no bound.
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
