# The solver for targets that are functions of many parameters: natural gradient steps on the pattern of the Hessian (search-wide.R),
# judged by chains (judge-chains.R). It is what method = "natural" is, and what "auto" takes beyond 400 parameters.

solve_wide <- function(problem, base, run, control) {
  model <- problem$target
  seed <- draw_key()
  tol <- run$tol %||% wide_tol(model$dim)
  budget <- run$budget %||% 1e5
  first <- if (is_point(run$start$mu, model$dim)) as.double(run$start$mu)
  curvature <- curvature_of(model)
  hyper <- if (!identical(run$method, "natural")) integrated_over(model, curvature)
  if (length(hyper)) return(solve_integrated(problem, base, run, control, hyper, curvature))
  found <- search_wide(model, curvature, seed, tol, budget, first)
  fit <- new_fit(c(list(call = problem$call, method = "natural", model = model, base = base, tol = tol), split_control(control)),
                 plan = list(seed = seed, rng_kind = RNGkind(), pattern = pattern_account(curvature, found$A)),
                 result = list(status = "finished", kept = "optimum", theta = list(mu = found$mu, scale = found$A), cpu = 0,
                               remaining = found$gap, converged = found$reached, evaluations = found$account$evaluations,
                               account = found$account, objective = found[c("F", "se")]))
  report_wide(judge_wide(fit, found$elsewhere))
}

# the kind of scale of the approximation
pattern_account <- function(curvature, A) {
  if (is.null(curvature)) return(list(words = sprintf("low rank plus diagonal scale (%d directions)", ncol(A) - 1L)))
  list(words = sprintf("precision with %s entries, its factor with %s (pattern: %s)", format_count(length(curvature$row)),
                       format_count(layout_entries(A$layout)), curvature$source))
}

judge_wide <- function(fit, elsewhere = NULL) {
  theta <- fit$result$theta
  fit$result$posterior <- run_posterior(fit)
  v <- chain_verdict(fit$given$model, theta$mu, theta$scale, fit$plan$seed)
  v$loose <- loose_logarithms(fit)
  v["elsewhere"] <- list(elsewhere)
  fit$result$posterior <- with_points(fit$result$posterior, chain_points(v))
  if (!v$correct) v[c("x", "moments")] <- NULL
  else v["x"] <- NULL   # the posterior has them
  fit$result$verdict <- v
  fit$result$converged <- isTRUE(fit$result$converged) && !length(objections(fit))
  fit
}

report_wide <- function(fit) {
  gap <- fit$result$remaining
  if (!fit$result$converged && !length(objections(fit))) {
    elvi_warn("Not converged: the budget ended with an estimated gap of ", format(gap$estimate, digits = 2), " nats (standard error ",
              format(gap$se, digits = 2), "), above `tol` = ", format(fit$given$tol), ".", class = "elvi_warning_not_converged")
  }
  warn_of_verdict(fit)
  fit
}

# Is there nothing that only the stochastic algorithm has?
prefers_wide <- function(model, base, run, control) {
  asked <- stochastic_settings(run[setdiff(names(run), c("budget", "start"))], control)
  is_user_density(model) && (model$dim > widest_search || length(model$hyper) || length(model$random)) &&
    identical(base$kind, base_gaussian()$kind) && !any(lengths(asked) > 0L) &&
    is.null(run$start$Sigma) && is.na(model$smoothness) && identical((run$combine %||% "best")[1L], "best")
}

check_wide <- function(model, base, run, method) {
  if (!is_user_density(model)) bad_argument("method", "\"auto\"", paste0("\"", method, "\""), "that one is for user-supplied densities")
  if (!identical(base$kind, base_gaussian()$kind)) {
    bad_argument("base", sprintf("base_gaussian() with method = \"%s\"", method), paste0("base_", base$kind, "()"))
  }
  unused <- if (method == "natural") c("schedule", "starts") else c("schedule", "budget", "tol")
  for (name in unused) if (!is.null(run[[name]])) unused_argument(name, sprintf("method = \"%s\" has no use for it", method))
}
