# What the convergence theorems say about a run: noise constants, bounds, and
# whether their assumptions hold.

# ---- guarantee() -----------------------------------------------------------------

#' What the theory guarantees about a run
#'
#' `guarantee()` is about the stochastic algorithm, `method = "mpsgd"` of [elvi()]. Before a run it computes an upper bound on
#' how far the result will be from the optimum, and checks each assumption of the theorems behind the bound. (Fits by the exact
#' solver have a certificate instead, see [elvi_optimum()].)
#'
#' @section The bounds: The expected gap is `E F(average) - F*`, in nats. With
#' `D = |mu0 - mu*|^2 / lambda_mu + |Sigma0 - Sigma*|^2 / lambda_Sigma`, and `a` and `b` from [bg_constants()], it is at most
#'
#' * **finite horizon** (constant step and batch): `step/(2N) (a D + b) +
#'   D/(2 step K)`;
#' * **dynamic** (steps or batches that vary): `(D + b/a)` over `2 sum_k step_k
#'   exp(-a sum_{i <= k} step_i^2/N_i)`.
#'
#' Here the noise of a gradient is bounded by the *distance* from the optimum, as in the paper. elvi also bounds it by the
#' *gap*: for a convex `f` one gradient at `theta` differs from that at `theta*` by at most `2 L (F(theta) - F*)` in mean
#' square. With the variance `s2` of a gradient at `theta*`, any `t > 0`, any `r^2`, `c0 = E(|z|^2 - r^2)_+`,
#' `c1 = E|z|^2 (|z|^2 - r^2)_+ / d`, `A = L (lambda_mu + lambda_Sigma r^2)` and
#' `a' = L^2 max(lambda_mu lambda_Sigma c0, lambda_Sigma^2 c1)`, the average has, where `a' = 0`,
#'
#' * **noise by gap**: `[D/(2 step K) + (1 + 1/t) step s2/(2N)] / (1 - (1 + t) step A/N)`,
#'
#' and nearly that elsewhere. `t` and `r^2` are chosen to make it smallest. `vignette("theory")` has the proof.
#'
#' `bounds` has all values, and `bound` is the smallest one, named by `by`:
#' * `"distance"`: the noise is bounded by the distance;
#' * `"sharper"`: the same, one step earlier in its proof;
#' * `"gap"`: the noise is bounded by the gap, with an `s2` that is certain;
#' * `"estimated"`: the same with `s2` estimated from 4,096 draws, plus four standard errors.
#'
#' `s2` is certain in three cases: in closed form (a quadratic), by quadrature (a regression with normal priors, at most 2,500
#' rows and coefficients together, and an optimum that [elvi_optimum()] certifies), or as a bound by `L d` in the block of `mu`,
#' which is several times larger.
#'
#' The average has weights made from a constant `a` of its own, `a_weights`. The
#' presets set it from `N` and `K`, as the paper does; it then takes the place of
#' `a` if it is larger, and costs an extra term if it is smaller.
#'
#' These bounds are for a convex `f`. Otherwise, with the iterates confined to a compact set (`scale_max` and `mu_radius` of
#' [elvi_control()]), the smallest expected squared gradient mapping of the iterates is bounded, which is not a gap:
#'
#' * **non-convex**: `min_k E|G|^2 <= 4 (F(theta0) - F*  + B sum_k step_k/N_k)`
#'   over `sum_k step_k (1 - step_k Lip)`, where `Lip = 2L` is the smoothness of
#'   `F` and `B` the largest second moment of a gradient on the set. The steps
#'   must be *below* `1/(2L)`, so the default step of `1/(2L)` is too long. Only
#'   growing batches send this bound to 0.
#'
#' With `elvi_control(estimator = "fixed", fixed_weight = w)` and `b = w L` the noise by gap has `(1 - 2b/L) A` for `A`, the
#' `s2` of that gradient, and
#' `(1 - 2b/L) a' + b^2 max(lambda_mu (lambda_mu + lambda_Sigma d), lambda_Sigma (lambda_mu + lambda_Sigma v))` for `a'`, with
#' `v = E|z|^4 / d`. It needs a known optimum. The bound by distance does not cover this estimator. In majorant coordinates
#' weights near the default of 0.1 are often best; compare some by calling `guarantee()`.
#'
#' @section The iterates themselves:
#' The proof bounds a weighted mean of the iterates' gaps, so the bound also holds for the
#' *best iterate*, `E min_k F(theta_k) - F*`, and for any average; with the proof's own
#' weights it is `best_iterate`. Which iterate is the best one is another question: it takes
#' `F`, which only models with an exact objective have. For schedules without end
#' ([schedule_decay()], [schedule_growing()]) with a finite sum of `step^2/N`, *almost surely*
#' `sum_k step_k (F(theta_k) - F*)` is finite, so that the best iterate so far has a gap of
#' smaller order than `1 / sum_k step_k`, which is the rate of [schedule_rate()] (the paper says: of at most this order). `almost_surely`
#' has these two with their status. They need neither the theorem's average nor a known optimum, but all other assumptions.
#'
#' @section Single gradients:
#' With batches of one gradient the proof needs neither the smoothness of `F` (so the steps
#' may be longer than `1/(2L)`) nor a gradient that vanishes at `theta*`. If the set excludes
#' the optimum, the bound is then one about the point of the set nearest to it, plus what
#' that point is above `F*`.
#'
#' The bounds are worst-case bounds, often far above what a run achieves; compare
#' with `gap_start`, the gap of the start.
#'
#' In whitened coordinates everything is computed for the function that the run
#' works on. Triangular and diagonal scales have the same constants: their
#' gradient is a projection of the full one (but see [bg_constants()] about triangular
#' ones), and the set `diag >= 1/sqrt(L)` is convex and contains the optimum; `D` is
#' measured in that parametrisation.
#'
#' @section A matrix as prior precision:
#' With `normal(precision = Q)`, the bounds are those of the same model in the coordinates `chol(Q) (x - location)`, whose prior is
#' `normal(0, 1)`: design `X solve(chol(Q))`, offset `X location`. In whitened and majorant coordinates nothing changes but a rotation.
#' Raw coordinates are those of the new design. [elvi()] runs its stochastic algorithm on that design only: build it to run what is
#' bounded. The scale must be symmetric.
#'
#' @section Checked steps:
#' With `elvi_control(backtrack = )`, the default where `L` is an estimate and makes the steps, a check on fresh draws
#' takes the place of the assumption that the steps are at most `1/(2L)`. For a convex `f`, with the steps `g_k` that are taken and
#' `u_k = prod_{i <= k} 1/(1 + a g_i^2/N_i)`, the theorem becomes
#'
#' `E sum_k g_k u_k (F(theta_k) - F*) <= D + b/a`, over the iterations before the first check that is wrong.
#'
#' That is the theorem with a factor of 2. It still needs the noise constants `a` and `b` of the true `L`, and a set that contains
#' the optimum, which the checks make likely and do not prove. The probability of a wrong check is not known. So `bound` is `NA`.
#' `conditional` is the value if `L` and the checks are right and no step is shortened: twice the formula, or the formula itself where
#' `L` is known and the steps are short enough without checks.
#'
#' @section When nothing is guaranteed:
#' `bound` is a number only if every assumption that it needs `"holds"` or is
#' `"assumed"`. Otherwise
#' it is `NA`, `assumptions` names what fails or is unknown, and `conditional` is the value of the formula by distance if the doubtful
#' assumptions held. The theorems need steps as planned: where [elvi()] may shorten them, with [schedule_tuned()] and for a function of R
#' in whitened coordinates, the row `"steps as planned"` fails. The defaults of [elvi()]
#' (control estimator, tail average, long steps) are chosen for results and are not covered.
#'
#' @section Corrections to the paper:
#' * Bounds come from the general theorem. In the paper's second case the
#'   coefficient of `|Sigma0 - Sigma*|^2` is therefore `4 (d - 1 + kappa)`, twice
#'   the printed one.
#' * The noise constants are those of an elliptic base, see [bg_constants()].
#' * The presets' `a_weights` may fall short of `a`, by rounding or because the
#'   printed constant does. The theorem does not cover that; the extra term does.
#' * The theorem needs the gradient of `F` to vanish at `theta*`, except for single
#'   gradients: the set must contain the unconstrained optimum.
#' * Neither convexity nor existence needs a log-concave base.
#' * In the non-convex bound `B` is computed from the second moments on the set
#'   directly, which is never more than the printed `a sup|theta - theta*|^2 + b`
#'   and does not need `theta*`.
#'
#' @param model,base,schedule,start,control as for [elvi()]; or `model` is a fit by `method = "mpsgd"`, whose settings are then used.
#' @param optimum list with `mu` and `Sigma`, for models without an exact
#'   objective. It is checked as in [bg_constants()], and a bound that rests on it says so: it
#'   holds *if this is the optimum*.
#' @param budget gradient evaluations, instead of the schedule's.
#' @param alpha strong convexity constant of `f`, if known, see [bg_constants()].
#' @param gap0 for the non-convex bound: an upper bound on `F(start) - F*`. The
#'   default is one that follows from the smoothness of `f`, and is rough.
#' @param runs number of independent runs, if you keep the one with the smallest exact objective. By Markov's inequality its gap
#'   exceeds twice the bound with probability at most `2^-runs`. For models with an exact objective.
#' @return `guarantee()`: a list of class `elvi_guarantee` with `bound`, `by`, `bounds`, `gap` (of a fit, where the optimum is
#'   known), `kind`, `conditional`, `sharper` (the same bound one step earlier in the proof), `best_iterate`, `almost_surely`,
#'   `D`, `a`, `b`, `a_weights`, `gamma`, `N` (for a schedule that varies, the first and the last), `K`, `lambda`, `L`,
#'   `gap_start` and `assumptions`, a data frame with `assumption`, `status` (`"holds"`, `"fails"`, `"unknown"` or `"assumed"`),
#'   `why`, `needed` (for the bound) and `about` (the problem or the run). `"assumed"` is for your own claims that draws do not
#'   refute, and for what follows from them: that a density is convex, smooth with `L` or grows, that `alpha` is right, or that
#'   `optimum` is the optimum.
#' @seealso [bg_constants()], [existence()], [schedule_rate()]
#' @examples
#' X <- scale(as.matrix(infert[, c("age", "parity", "induced", "spontaneous")]))
#' model <- model_glm(cbind(1, X), infert$case, prior = normal(0, 2.5))
#' g <- guarantee(model, base_gaussian(), schedule_fixed(20000, "case2"),
#'                control = elvi_control(estimator = "reparam"))
#' g
#' predict(g, budget = 10^(3:7))
#' best_split(g, 20000)
#' budget_for(g, target = 1)
#'
#' # the defaults of elvi() are not covered
#' guarantee(model, schedule = schedule_tuned(20000))
#' @order 1
#' @export
guarantee <- function(model, base = base_gaussian(), schedule = schedule_fixed(), start = NULL,
                      optimum = NULL, control = elvi_control(), budget = NULL, alpha = NULL, gap0 = NULL, runs = 1) {
  if (inherits(model, "elvi_fit")) return(guarantee_of_fit(model, optimum, alpha, gap0, runs))
  check_class(model, "model", "elvi_model", "a model_*() function")
  check_class(base, "base", "elvi_base", "a base_*() function")
  check_class(schedule, "schedule", "elvi_schedule", "a schedule_*() function")
  check_control(control)
  runs <- check_count(runs, "runs")
  if (runs > 1 && !has_exact(model)) unused_argument("runs", "this model has no exact objective to choose the best run by")
  if (!is.null(budget)) schedule <- with_budget(schedule, budget)
  if (!is.null(gap0)) gap0 <- check_number(gap0, "gap0", 0)

  independent <- independent_form(model, control)
  start <- independent$place(start)
  problem <- theorem_inputs(independent$model, base, control, independent$place(optimum), alpha)
  model <- problem$model
  feasible <- if (!is.null(problem$work) && !is.na(problem$L)) feasible_set(control, problem$work, problem$L)
  start <- place_start(start, problem, feasible)
  # the proximal update has no lower bound; its constants are those of Theta_L
  floor <- if (is.null(feasible) || feasible$scale_min <= 0) 1 / sqrt(problem$L) else feasible$scale_min
  constants <- gap_constants(problem, start, floor)
  if (needs_numbers(schedule)) schedule <- numbered_schedule(schedule, constants, gap_obstacle(problem, start))
  plan <- plan_if_possible(schedule, problem, control)
  single <- !is.null(plan) && single_gradients(plan)
  control <- resolve_control(control, schedule, problem$law, plan %||% list(bg_a = Inf), problem$L_source)
  contains <- check_contains(problem, feasible)
  shift <- 0
  if (single && contains[[1L]] == "fails" && problem$spread$kind == "exact" && !is.null(feasible)) {
    problem <- about_nearest(problem, feasible)
    shift <- start_gap(problem$optimum, problem)
  }

  lambda <- (plan %||% list(lambda = control$precondition %||% c(mu = 1, Sigma = 1)))$lambda
  noise <- noise_constants(problem, lambda, floor)
  ends <- if (!is.null(plan)) plan_at(plan, c(0, plan_iterations(plan, control) - 1))
  one_or_ends <- function(v) {
    if (is.null(v)) NA_real_ else if (is_constant(plan)) v[1L] else c(first = v[1L], last = v[2L])
  }
  g <- structure(
    list(bound = NA_real_, by = NA_character_, bounds = no_bounds, conditional = NA_real_, sharper = NA_real_,
         best_iterate = NA_real_,
         kind = if (!isTRUE(model$convex)) "non-convex"
                else if (if (is.null(plan)) schedule_record(schedule)$horizon else is_constant(plan)) "finite horizon"
                else "dynamic",
         D = distance2(start, problem, lambda), a = noise$a, b = noise$b,
         a_weights = if (is.null(plan)) NA_real_ else plan$bg_a, gamma = one_or_ends(ends$step),
         N = one_or_ends(ends$batch),
         K = if (is.null(plan)) NA_real_ else plan_iterations(plan, control),
         lambda = lambda, L = problem$L, L_source = problem$L_source, lip = problem$L + 1 / floor^2,
         optimum_kind = problem$spread$kind, gap_start = start_gap(start, problem), gap = NA_real_, runs = runs,
         slope = 0, shift = shift, single = single,
         checked = isTRUE(control$backtrack > 0) && update_of(control)$theory && isTRUE(model$convex),
         gap0 = NA_real_, moment = NA_real_, assumptions = NULL, almost_surely = NULL, constants = constants, candidates = names(no_bounds),
         schedule = schedule, base = base,
         control = control, dim = model$dim, kurtosis = problem$kurtosis),
    class = "elvi_guarantee")
  if (!theorem_of(g)$gap) {
    g$gap0 <- gap0 %||% smooth_gap(problem, start, feasible)
    g$moment <- largest_moment(problem, lambda, feasible, floor)
  }
  g$assumptions <- list_assumptions(g, problem, plan, feasible, start, contains)
  fill_iterates(fill_bound(g, plan), plan)
}

no_bounds <- c(distance = NA_real_, sharper = NA_real_, gap = NA_real_, estimated = NA_real_)

# The same of a run that was made, with the gap that it ended at where the optimum is known
guarantee_of_fit <- function(fit, optimum, alpha, gap0, runs) {
  if (fit$given$method != "mpsgd") {
    bad_argument("model", "a fit by method = \"mpsgd\"", paste0("one by method = \"", fit$given$method, "\""),
                 "the theorems are about the stochastic algorithm")
  }
  given <- fit$given
  kind <- given$control$scale
  start <- to_user(run_model(fit), kind, fit$plan$start$mu, fit$plan$start$scale)
  start$Sigma <- symmetric_scale(kind, start$scale, NULL)
  g <- guarantee(given$model, given$base, given$schedule, start[c("mu", "Sigma")], optimum,
                 join_control(given$control, given$conduct), NULL, alpha, gap0, runs)
  if (g$optimum_kind == "exact") {
    average <- to_user(run_model(fit), kind, fit$state$average_mu, fit$state$average_scale)
    law <- law_of(given$base, given$model$dim)
    best <- elvi_optimum(given$model, given$base, kind)$objective
    g$gap <- exact_oracle(given$model, law)(kind, average$mu, average$scale)$objective - best
  }
  g
}

# Has a schedule numbers that belong to a model, and not yet got them?
needs_numbers <- function(schedule) is_computed(schedule) && is.null(schedule$numbers)

compute_schedule <- function(schedule, model, base, start, control) guarantee(model, base, schedule, start, control = control)$schedule

numbered_schedule <- function(schedule, constants, obstacle) {
  numbers <- if (!is.null(constants)) minimise_bound(constants, schedule$budget)
  if (is.null(numbers)) {
    bad_argument("schedule", paste0("another than schedule_certified(), because ", obstacle %||% "no bound is finite"),
                 "schedule_certified()")
  }
  certified_schedule(schedule$budget, numbers)
}

# The best point of a set that excludes the optimum is not known; the nearest is a point of
# the set too, and single gradients are bounded about any.
about_nearest <- function(problem, feasible) {
  best <- problem$optimum
  away <- best$mu - feasible$mu_centre
  best$mu <- feasible$mu_centre + away * min(1, feasible$mu_radius / sqrt(sum(away^2)))
  best$scale <- project_scale(problem$kind, best$scale, feasible$scale_min, feasible$scale_max)$scale
  problem$optimum <- best
  problem$spread <- c(spread_of(best, problem), kind = "exact")
  problem
}

# bound, conditional and sharper, from the values and the assumptions
fill_bound <- function(g, plan) {
  if (is.null(plan)) return(g)
  doubtful <- in_doubt(g)
  # what the formula may be asked to assume: the settings of the run but for its
  # steps, and an L that is likely, with what follows from it
  assumed <- doubtful$assumption %in% names(theorem_settings) |
    (g$checked & doubtful$assumption == "step") | doubtful$assumption == "steps as planned" |
    (doubtful$status == "unknown" & (doubtful$assumption %in% c("f smooth", "set contains it") |
       (doubtful$assumption == "optimum exists" & doubtful$why != "the growth of f is not known")))
  if (!all(assumed)) return(g)
  of <- g
  if ("average" %in% doubtful$assumption) of$control$average <- "theorem"
  value <- evaluate_bounds(of, plan)
  if (nrow(doubtful)) {
    g$conditional <- checking_penalty(g, plan) * value[["distance"]]
  } else {
    g$bounds <- value
    g$by <- smallest_bound(value[g$candidates])
    g$bound <- if (is.na(g$by)) NA_real_ else value[[g$by]]
    g$sharper <- value[["sharper"]]
  }
  g
}

# A check keeps half of the descent that smoothness keeps, see docs/internals.Rmd.
checking_penalty <- function(g, plan) {
  known <- g$assumptions$status[g$assumptions$assumption == "f smooth"] %in% c("holds", "assumed")
  if (g$checked && !(known && steps_short(g, plan))) 2 else 1
}

in_doubt <- function(g) g$assumptions[g$assumptions$needed & g$assumptions$status %in% c("fails", "unknown"), ]

# What the theorems say about the iterates themselves. In expectation the best one has the
# bound of the average, whose proof bounds a mean of their gaps; with the proof's weights, for
# the run need not have averaged at all. Almost surely (a theorem about a schedule without end)
# sum_k step_k gap_k is finite, by Robbins and Siegmund; so min_{k < K} gap_k times the sum over
# the later half of the steps' total goes to 0.
fill_iterates <- function(g, plan) {
  if (!theorem_of(g)$gap) return(g)
  doubtful <- setdiff(in_doubt(g)$assumption, "average")
  if (!length(doubtful) && !is.null(plan)) g$best_iterate <- best_iterate_bound(g, plan)
  if (!theorem_of(g)$sums || is.null(plan)) return(g)
  doubtful <- setdiff(doubtful, "optimum known")   # only its existence counts
  if (g$shift > 0) doubtful <- c(doubtful, "set contains it")   # sums about another point may diverge
  if (!needs_no_slope(g)) doubtful <- c(doubtful, "gradient 0 at it")
  status <- stats::setNames(g$assumptions$status, g$assumptions$assumption)
  if (!is.null(plan$step_table)) doubtful <- c(doubtful, "schedule without end")
  else if (status[["sum step^2/N finite"]] != "holds") doubtful <- c(doubtful, "sum step^2/N finite")
  rate <- schedule_rate(g$schedule)$exponent
  order <- if (!is.na(rate)) paste0(" = o(E^", format(rate, digits = 3), ")")
  rests_on <- c("f convex", "f smooth", "optimum exists", "set contains it")
  holds <- if (!length(doubtful)) { if ("assumed" %in% status[rests_on]) "assumed" else "holds" }
           else if (any(status[doubtful] %in% "unknown")) "unknown" else "fails"
  g$almost_surely <- data.frame(
    statement = c("sum_k step_k (F(theta_k) - F*) < Inf",
                  paste0("min_{k < K} F(theta_k) - F* = o(1 / sum_{k < K} step_k)", order)),
    status = holds,
    why = if (!length(doubtful)) "Robbins and Siegmund"
          else paste0("\"", doubtful, "\" ", ifelse(status[doubtful] %in% "unknown", "is unknown", "fails"), collapse = ", "))
  g
}

# Any weights will do here, so the proof's own: those of the noise by distance, or of the noise by gap
best_iterate_bound <- function(g, plan) {
  g$control$average <- "theorem"
  own <- if (is_constant(plan) && !is.null(g$constants) && g$shift == 0 && isTRUE(g$slope == 0) && !g$checked) {
    at <- plan_at(plan, 0)
    if (at$step * g$constants$lip <= 1 + 1e-12) {
      lapply(c(TRUE, FALSE), function(certain) {
        if (is.na(noise_level(g$constants, g$lambda, certain))) return(NULL)
        own_gap_bound(g$constants, g$lambda, at$step, at$batch, plan_iterations(plan, g$control), certain)$value
      })
    }
  }
  values <- c(evaluate_bounds(g, plan, w = g$a)[setdiff(c("sharper", g$candidates), "distance")], unlist(own))
  if (all(is.na(values))) NA_real_ else min(values, na.rm = TRUE)
}

theorem_settings <- c(estimator = "estimator = \"reparam\"", average = "average = \"theorem\"",
                      update = "update = \"project\"")

with_budget <- function(schedule, budget) {
  budget <- check_count(budget, "budget")
  if (schedule_record(schedule)$listed) {
    unused_argument("budget", "the steps and batches of schedule_custom() fix it")
  }
  # without a horizon of its own a schedule is summed up iteration by iteration
  if (schedule_record(schedule)$open) check_budget(budget)
  schedule$budget <- budget
  if (is_computed(schedule)) schedule["numbers"] <- list(NULL)
  schedule
}

# NULL where the preset needs a constant that does not exist
plan_if_possible <- function(schedule, problem, control) {
  tryCatch(plan_schedule(schedule, problem$dim, problem$kurtosis, problem$L, control),
           elvi_error_kurtosis = function(e) NULL, elvi_error_smoothness = function(e) NULL)
}

# mu and scale of the start in the coordinates of the run, and whether it is
# feasible; a start that elvi() would refuse for its shape is refused here too.
place_start <- function(start, problem, feasible) {
  if (is.null(feasible)) return(NULL)
  place <- function(set) check_start(start, problem$work, problem$kind, set, problem$L)
  if (is.null(start)) return(c(place(feasible), feasible = TRUE))
  anywhere <- utils::modifyList(feasible, list(scale_min = 0, scale_max = Inf, mu_radius = Inf))
  placed <- place(anywhere)
  inside <- tryCatch(place(feasible), elvi_error_argument = function(e) NULL)
  if (is.null(inside)) c(placed, feasible = FALSE) else c(inside, feasible = TRUE)
}

# D, or an upper bound on it by way of (m, 0)
distance2 <- function(start, problem, lambda) {
  norm2 <- function(mu, scale) mu_norm2(problem$work, mu) / lambda[["mu"]] + sum(scale^2) / lambda[["Sigma"]]
  if (is.null(start) || problem$spread$kind == "unknown") return(NA_real_)
  best <- problem$optimum
  if (!is.null(best)) return(norm2(start$mu - best$mu, start$scale - best$scale))
  (sqrt(norm2(start$mu - problem$m, start$scale)) + sqrt(problem$spread$total / min(lambda)))^2
}

start_gap <- function(start, problem) {
  if (is.null(start) || is.na(problem$objective)) return(NA_real_)
  there <- to_user(problem$work, problem$kind, start$mu, start$scale)
  exact_oracle(problem$model, problem$law)(problem$kind, there$mu, there$scale)$objective - problem$objective
}

# Second moments on the compact set: |mu - m| <= |centre - m| + radius and
# |Sigma|_F^2 <= d scale_max^2.
largest_moment <- function(problem, lambda, feasible, floor) {
  if (is.null(feasible) || is.null(problem$m)) return(NA_real_)
  about_m <- moment_blocks(problem$dim, problem$kurtosis, problem$L, floor, problem$aligned)
  far2 <- reach2(problem, feasible)
  sum(lambda * (drop(about_m$slope %*% far2) + about_m$level))
}

reach2 <- function(problem, feasible) {
  c((sqrt(sum((feasible$mu_centre - problem$m)^2)) + feasible$mu_radius)^2,
    problem$dim * feasible$scale_max^2)
}

# F(theta0) - F <= this on the compact set, for an L-smooth f with stationary
# point m: E f(mu + Sigma z) <= f(mu) + L/2 |Sigma|^2, f(x) >= f(m) - L/2 |x - m|^2.
smooth_gap <- function(problem, start, feasible) {
  if (is.null(feasible) || is.null(start) || is.null(problem$m) || !is_user_density(problem$model)) {
    return(NA_real_)
  }
  value <- function(x) problem$model$value(matrix(x))
  above <- value(start$mu) + problem$L / 2 * sum(root_sd(start$scale)^2) - log_det(problem$kind, start$scale)
  below <- value(problem$m) - problem$L / 2 * sum(reach2(problem, feasible)) -
    problem$dim * log(feasible$scale_max)
  above - below
}

# ---- assumptions -------------------------------------------------------------------

# One row per assumption. A status is "holds", "fails" or "unknown"; or "assumed", of what
# the user says and draws do not refute.
list_assumptions <- function(g, problem, plan, feasible, start, contains) {
  rows <- c(problem_assumptions(g, problem),
            if (theorem_of(g)$gap) optimum_assumptions(g, problem, feasible, contains) else bound_assumptions(g, feasible),
            run_assumptions(g, problem, plan, start), if (theorem_of(g)$sums) list(sum_assumption(plan)))
  columns <- lapply(names(rows[[1L]]), function(name) unlist(lapply(rows, `[[`, name)))
  data.frame(stats::setNames(columns, names(rows[[1L]])))
}

assume <- function(assumption, check, needed = TRUE, about = "problem") {
  list(assumption = assumption, status = check[[1L]], why = check[[2L]], needed = needed, about = about)
}

yes_no <- function(value, yes, no, unknown = no) {
  if (is.na(value)) list("unknown", unknown) else if (value) list("holds", yes) else list("fails", no)
}

problem_assumptions <- function(g, problem) {
  convex <- theorem_of(g)$gap
  list(
    assume("f convex", problem$claims$convex %||% yes_no(problem$model$convex, "by its form", "you say it is not", "not known"),
           needed = convex),
    assume("f smooth", problem$L_check),
    assume("optimum exists", judge_exists(problem), needed = convex),
    assume("base standardized", list("holds", "every base of elvi is")),
    assume("kurtosis finite", yes_no(is.finite(g$kurtosis), format(g$kurtosis, digits = 4),
                                     "infinite: so is the noise of the gradient in Sigma")))
}

# An optimum that is given and not refuted is one that exists. The growth of a user's density is what its user says.
judge_exists <- function(problem) {
  found <- problem$existence
  given <- problem$spread$kind == "given" && problem$optimum_check[[1L]] == "assumed"
  if (is.na(found$exists) && given) return(list("assumed", "you gave one"))
  if (isTRUE(found$exists) && is_user_density(problem$model)) return(list("assumed", paste0("you say so: ", found$brief)))
  yes_no(found$exists, found$brief, found$brief)
}

# for a bound on the gap to an optimum
optimum_assumptions <- function(g, problem, feasible, contains) {
  if (g$shift > 0) contains[[2L]] <- sprintf("%s; single gradients: bounded about its nearest point, %s nats above it",
                                             contains[[2L]], format(g$shift, digits = 3))
  strays <- !is.null(problem$refuted) && !is.null(feasible) && !in_set(problem$refuted, problem, feasible)
  if (strays && contains[[1L]] == "holds") contains <- list("fails", "the one you gave is outside; the exact one is inside")
  list(assume("optimum known", problem$optimum_check),
       assume("set contains it", contains, needed = g$shift == 0 && !strays))
}

# for one on the gradient map
bound_assumptions <- function(g, feasible) {
  compact <- !is.null(feasible) && is.finite(feasible$scale_max) && is.finite(feasible$mu_radius)
  list(assume("set compact", yes_no(compact, "scale_max and mu_radius are finite",
                                    "the theorem needs bounded iterates: set scale_max and mu_radius"), about = "run"),
       assume("start gap bounded", yes_no(if (is.finite(g$gap0)) TRUE else NA,
                                          sprintf("F(start) - F* <= %s", format(g$gap0, digits = 4)), "give `gap0`"), about = "run"))
}

run_assumptions <- function(g, problem, plan, start) {
  control <- g$control
  convex <- theorem_of(g)$gap
  departs <- deviation_from_theorem(problem, plan)
  Filter(Negate(is.null), list(
    # without smoothness of F, single gradients have a bound for every step
    assume("step", judge_steps(g, plan, convex), needed = !(convex && g$single) || control$backtrack > 0, about = "run"),
    if (!is.null(departs)) assume("steps as planned", list("fails", departs$why), about = departs$about),
    assume("estimator", judge_estimator(control, problem, convex), about = "run"),
    if (!scale_of(control$scale)$theory) {
      assume("scale", list("fails", sprintf("no theorem here for a \"%s\" scale", control$scale)), about = "run")
    },
    if (!is.null(control$rows_per_step)) {
      assume("all rows", list("fails", "the noise constants do not cover `rows_per_step`"), about = "run")
    },
    if (convex) {
      assume("average", judge_average(control, plan), about = "run")
    },
    assume("update", yes_no(update_of(control)$theory, control$update,
                            sprintf("no theorem here for \"%s\"", control$update)), about = "run"),
    assume("start feasible", yes_no(if (is.null(start)) NA else start$feasible, "in the set",
                                    "outside the set: elvi() refuses it", "no set without L"), about = "run")))
}

judge_estimator <- function(control, problem, convex) {
  fixed <- has_fixed_weight(control)
  if (!estimators[[control$estimator]]$theory || (fixed && !convex)) {
    return(list("fails", sprintf("the noise constants do not cover \"%s\"", control$estimator)))
  }
  obstacle <- if (fixed) weight_obstacle(problem)
  if (!is.null(obstacle)) return(list("fails", obstacle))
  list("holds", if (fixed) sprintf("fixed, with the weight %g L", relative_weight(control)) else control$estimator)
}

# The average of the last part is the theorem begun anew there, for constant steps
judge_average <- function(control, plan) {
  if (control$average == "theorem") return(list("holds", "theorem"))
  if (control$average == "tail" && !is.null(plan) && is_constant(plan)) {
    return(list("holds", sprintf("of the last %g %% of the iterations", 100 * control$tail)))
  }
  list("fails", sprintf("no theorem here for \"%s\"", control$average))
}

judge_steps <- function(g, plan, convex) {
  if (isTRUE(g$control$backtrack > 0)) {
    return(list("unknown", sprintf("checked on %g fresh draws each, and shortened as these say", g$control$backtrack)))
  }
  check_steps(g, plan, convex, if (identical(all.equal(g$lip, 2 * g$L), TRUE)) "1/(2L)" else "1/(L + 1/scale_min^2)")
}

sum_assumption <- function(plan) {
  summable <- !is.null(plan$step_table) || isTRUE(2 * plan$step_power + plan$batch_power > 1)
  assume("sum step^2/N finite",
         yes_no(summable, if (is.null(plan$step_table)) "the bound goes to 0 as the budget grows" else "the schedule ends",
                "the theorem does not say that the gap goes to 0"), needed = FALSE, about = "run")
}

# The theorems are about steps as they are: what elvi() does besides, or NULL
deviation_from_theorem <- function(problem, plan) {
  if (isTRUE(is.finite(plan$longest))) {
    return(list(why = "cut at the norm of the scale, and tried again with shorter ones where a run gets nowhere",
                about = "run"))
  }
  if (!is.null(problem$work$level)) {
    list(why = "cut at 100 norms of the scale: functions of R are guarded in whitened coordinates", about = "problem")
  }
}

check_contains <- function(problem, feasible) {
  if (isFALSE(problem$existence$exists)) return(list("fails", "there is none"))
  if (is.null(feasible)) return(list("unknown", "no set without L"))
  best <- problem$optimum
  given <- problem$spread$kind == "given"
  inside <- !is.null(best) && in_set(best, problem, feasible)
  if (given && !inside) return(list("fails", "the one you gave is outside"))
  # then the set is Theta_L or larger
  by_theory <- feasible$scale_min <= (1 + 1e-12) / sqrt(problem$L) && !is.finite(feasible$scale_max) &&
    !is.finite(feasible$mu_radius)
  if (by_theory && is_taken(problem$L_check)) return(list(problem$L_check[[1L]], "every optimum has scale >= 1/sqrt(L)"))
  refuted <- given && problem$optimum_check[[1L]] == "fails"
  if (is.null(best) || refuted) {
    return(list("unknown", if (by_theory) "it does if L is right" else "the optimum is not known"))
  }
  if (given) return(list("assumed", "the one you gave is inside"))
  if (inside) list("holds", "the optimum is inside") else list("fails", "the optimum is outside")
}

in_set <- function(theta, problem, feasible) {
  clipped <- project_scale(problem$kind, theta$scale, feasible$scale_min, feasible$scale_max)$scale
  off <- sqrt(sum((theta$mu - feasible$mu_centre)^2)) - feasible$mu_radius
  max(abs(clipped - theta$scale)) <= 1e-6 * max(abs(theta$scale)) && off <= 0
}

check_steps <- function(g, plan, convex, L_text) {
  if (is.null(plan)) {
    return(list("unknown", if (is.na(g$L)) "no step without L" else "no step without a finite kurtosis"))
  }
  longest <- longest_planned_step(g, plan)
  said <- sprintf("%s %s %s = %s", format(longest, digits = 4), if (convex) "<=" else "<", L_text,
                  format(1 / g$lip, digits = 4))
  if (is.na(g$lip)) return(list("unknown", "no bound without L"))
  if (steps_short(g, plan)) return(list("holds", said))
  list("fails", sub(" <=? ", if (convex) " is longer than " else " is not below ", said))
}

longest_planned_step <- function(g, plan) max(g$gamma, plan$step_table)

steps_short <- function(g, plan) {
  room <- longest_planned_step(g, plan) * g$lip
  isTRUE(if (theorem_of(g)$gap) room <= 1 + 1e-12 else room < 1 - 1e-12)
}
