#' Settings of a fit
#'
#' `elvi_control()` collects the settings of [elvi()] that few fits need. Most belong to the stochastic algorithm; fits from a formula
#' use `nodes` (the size of the quadrature), `scale`, `progress` and `checkpoint`.
#'
#' @param coordinates `"whitened"`, the default, runs in coordinates where the Laplace approximation at the mode is the standard
#'   base. This removes the conditioning from the problem. `"raw"` runs in the coordinates of the model, as in the theory.
#'   `"majorant"` whitens by an upper bound on all Hessians of the target, so that the smoothness is `L = 1` and the bounds of
#'   [guarantee()] are smallest. It is for regressions with a bounded curvature (gaussian, logit, probit) and for quadratics,
#'   starts with the Laplace approximation too, and is meant for [schedule_certified()]. All three search the same family for
#'   the same optimum, because elliptic families are affine equivariant. Every theorem holds in each, with its own smoothness
#'   `L`. Results are in the model's coordinates.
#' @param scale kind of scale matrix: `"symmetric"` (positive definite, as in
#'   the theory), `"triangular"` (lower triangular with positive diagonal: the
#'   same family of distributions, cheaper steps) or `"diagonal"` (mean field).
#' @param estimator gradient estimator. `"reparam"` is the plain one, which the theorems are about. `"path"` (also called
#'   sticking the landing) has noise that vanishes as the approximation nears the target; it needs a base with a continuous
#'   density, so not the uniform one. `"control"` removes the part of the plain gradient that is linear in the draws, with two
#'   weights estimated from earlier batches. It works with every base, its noise also vanishes where the target is quadratic,
#'   and it allows longer steps than the others. `"fixed"` has one weight, `fixed_weight`, that never changes; the theorems
#'   cover it too (see [guarantee()]). `NULL` takes `"control"`, or `"reparam"` with `update = "prox"`.
#' @param fixed_weight for `estimator = "fixed"`: the weight, in units of the smoothness `L` of the run, at most 1/2. The
#'   gradient of `fixed_weight L |x|^2 / 2`, `x` in the coordinates of the run, is replaced by its mean, which reduces the
#'   noise. `NULL` takes 0.1.
#' @param update how the entropy is handled: `"project"` takes its gradient and
#'   projects onto the feasible set; `"prox"` takes a proximal step instead and
#'   needs no projection (triangular and diagonal scales, not with `"path"`).
#' @param average which iterate is returned: `"theorem"` (the weighted average of the convergence theorems), `"tail"` (mean of
#'   the last part) or `"last"`. `NULL` takes `"theorem"` for the presets of [schedule_fixed()], else `"tail"`: with varying
#'   steps or batches the theorem's weights fall so fast that the average is almost the start.
#' @param tail fraction of the iterations in the tail average.
#' @param precondition `c(mu = , Sigma = )`, factors in (0, 1] on the steps of
#'   the two blocks. `NULL` takes the schedule's.
#' @param smoothness smoothness constant `L` of the target, in its own
#'   coordinates, to use instead of the model's. When neither you nor the model
#'   has one, it is estimated by power iteration at draws from the Laplace approximation, and marked as estimated.
#' @param smoothness_safety factor on an estimated `L`.
#' @param backtrack number of new draws that check the step of each iteration, at least 16, or 0 for no checks; see the section on
#'   checked steps. `NULL` checks on 16 draws where `L` is an estimate that determines the steps, and batches are larger than 1. Steps
#'   from a known `L` are never checked.
#' @param scale_min,scale_max bounds of the feasible set: on the eigenvalues of
#'   a symmetric scale; on the diagonal (from below) and the largest singular
#'   value (from above) of a triangular one; on the entries of a diagonal one.
#'   The default lower bound is `1/sqrt(L)`, which every optimum satisfies.
#' @param mu_centre,mu_radius keep `mu` in a ball of this centre and radius.
#' @param iterations stop after this many iterations even if the schedule has more; [elvi()] on the fit resumes the run.
#' @param trace_draws number of fixed draws behind the objective in the trace; 0
#'   leaves the objective out. The default is 100, and 25 for user-supplied densities whose start is searched.
#' @param block the largest number of samples processed at a time. The draws do
#'   not depend on it.
#' @param nodes for fits with [group-level terms][group_terms]: number of quadrature points along each hyperparameter when there are up
#'   to four of them; with more, the number of points for each of their first and second moments; 2 or 3 for a central composite design,
#'   1 for the mode alone. `NULL` lets elvi choose.
#' @param rows_per_step for regressions with very many rows, in memory or on a [cluster][rows_cluster()]: number of rows in each
#'   step of the stochastic algorithm, drawn again in every step. Gradients stay unbiased, because the gradient of all rows at
#'   the start serves as a control variate. Their noise is larger, so [guarantee()] gives no bound. Objectives in the trace use
#'   all rows; `trace_draws = 0` leaves them out. Use this setting where there is neither an exact solver nor an integration
#'   over the dispersion, as for [neg_binomial_2()] on a cluster. Elsewhere `method = "auto"` ignores it, with a message,
#'   because the other methods take fewer passes (`bench/big.R --only=steps`).
#' @param progress show progress when a run takes more than two seconds?
#' @param checkpoint name of a file that keeps the state of a stochastic run, or `NULL` for none; see the section on checkpoints.
#' @param checkpoint_every seconds between two states that are written. The last one
#'   is always written.
#' @param ... not used: unknown names are errors.
#' @section Checked steps:
#' The theorems need a smoothness `L`. If `L` is a guess, steps made from it may be too long. The lower bound `1/sqrt(L)` of the
#' feasible set may then be too high, so that the set excludes the optimum. With `backtrack = n` every iteration checks its step
#' first. It computes a gradient `p` from `n` draws, and tests on `n` other draws whether `F` at `theta - 2 step p` is below its
#' tangent at `theta` plus `step |p|^2`, within two standard errors.
#'
#' The check begins with the step of the schedule or `1/(2L)`, whichever is longer, and divides it by 2 until the test passes. A
#' step that is made from `L` is divided by the same factor, and so is the square of the lower bound. A step of your own is
#' limited to the longest step that passed. Every tenth iteration tries half the factor. The lower bound never rises again. A
#' check takes `n` gradients for `p`. Each step that is tried takes `n` gradients and `n` values. These evaluations count in
#' `evals` of the trace, in addition to the budget of the schedule. `fit$state$checks` is their number, `fit$state$shorten` the
#' current divisor of the steps and `fit$state$steepest` the largest one so far.
#'
#' The step is chosen before the gradient that it multiplies is drawn, as the proofs need. The theorems then hold with twice the bound
#' and the steps that were taken, up to the first check that is wrong; see [guarantee()], and the maintainer's guide in the sources for a
#' proof. A check uses one direction and few draws: it detects steps that are much too long, and does not prove that they are right.
#' @section Checkpoints:
#' With a `checkpoint` a run survives a crash, a power cut or the time limit of a job. The same call of [elvi()] resumes from the state
#' in the file, with the draws of the run that wrote it, and its result is identical to that of a run that was never stopped. The file of
#' a complete run stays, and the same call returns the fit at once; delete the file to start again.
#'
#' The file holds the state, not the model or its data. It is replaced by renaming a complete one, so that it can be read whenever the
#' session ends. A file of another model, base, schedule, start, `tol`, setting or version of elvi, a damaged file, and a directory
#' without write permission give an error of class `elvi_error_checkpoint` before the run starts; its field `differs` names the
#' difference. (`iterations`, `progress` and `checkpoint_every` may change.) The data of a regression are
#' compared by sums over all of them; user-supplied functions by their values and gradients at three points. If a state cannot be written
#' later, the run continues with a warning of class `elvi_warning_checkpoint`. A checkpoint cannot run code: it may hold only numbers and
#' strings, of the types and lengths of this run.
#'
#' `elvi()` on a fit resumes from the fit, and keeps writing to the checkpoint.
#'
#' With [data larger than memory][rows_elsewhere] a `checkpoint` does not change the method. An exact fit, or one with
#' group-level terms, appends the sums of each pass to the file. The same call repeats the first passes, which show that the
#' data are the same, and resumes after the last whole pass in the file. The file grows with every pass, by the size of its
#' sums. The exact solver has no checkpoints in memory: there a `checkpoint` selects `method = "mpsgd"`, with a message.
#' @return A list of class `elvi_control` for [elvi()].
#' @examples
#' elvi_control(scale = "triangular", update = "prox")
#'
#' # a run that can be killed at any time: run the same lines again
#' file <- tempfile(fileext = ".elvi")
#' X <- cbind(1, scale(infert$age), infert$spontaneous)
#' set.seed(1)
#' fit <- elvi(model_glm(X, infert$case), control = elvi_control(checkpoint = file))
#' again <- elvi(model_glm(X, infert$case), control = elvi_control(checkpoint = file))
#' identical(again$Sigma, fit$Sigma)
#' unlink(file)
#' @export
elvi_control <- function(coordinates = c("whitened", "raw", "majorant"),
                         scale = c("symmetric", "triangular", "diagonal"),
                         estimator = NULL,
                         update = c("project", "prox"),
                         average = NULL,
                         tail = 0.5,
                         precondition = NULL, backtrack = NULL, fixed_weight = NULL,
                         smoothness = NULL, smoothness_safety = 2,
                         scale_min = NULL, scale_max = Inf,
                         mu_centre = NULL, mu_radius = Inf,
                         iterations = Inf,
                         trace_draws = NULL,
                         block = NULL, nodes = NULL, rows_per_step = NULL,
                         progress = interactive(),
                         checkpoint = NULL, checkpoint_every = 60,
                         ...) {
  if (nargs() == 0L) return(replace(default_control, "progress", interactive()))   # in every fit
  check_dots(list(...), names(formals()), "elvi_control()")
  control <- list(
    coordinates = check_choice(coordinates, "coordinates", names(frame_kinds)),
    scale = check_choice(scale, "scale", names(scale_kinds)),
    estimator = if (!is.null(estimator)) check_choice(estimator, "estimator", names(estimators)),
    fixed_weight = if (!is.null(fixed_weight)) check_number(fixed_weight, "fixed_weight", 0, 0.5),
    update = check_choice(update, "update", c("project", "prox")),
    average = if (!is.null(average)) check_choice(average, "average", c("theorem", "tail", "last")),
    tail = check_number(tail, "tail", 0, 1),
    precondition = check_precondition(precondition),
    smoothness = if (!is.null(smoothness)) check_positive(smoothness, "smoothness"),
    smoothness_safety = check_number(smoothness_safety, "smoothness_safety", 1),
    backtrack = if (!is.null(backtrack)) check_backtrack(backtrack),
    scale_min = if (!is.null(scale_min)) check_positive(scale_min, "scale_min"),
    scale_max = check_positive(scale_max, "scale_max", infinite = TRUE),
    mu_centre = if (!is.null(mu_centre)) check_vector(mu_centre, "mu_centre"),
    mu_radius = check_positive(mu_radius, "mu_radius", infinite = TRUE),
    trace_draws = if (!is.null(trace_draws)) check_count(trace_draws, "trace_draws", lower = 0),
    block = if (!is.null(block)) check_count(block, "block"),
    nodes = if (!is.null(nodes)) check_count(nodes, "nodes", upper = 100),
    rows_per_step = if (!is.null(rows_per_step)) check_count(rows_per_step, "rows_per_step")
  )
  if (isTRUE(control$trace_draws > 1e6)) bad_argument("trace_draws", "at most 1e6", describe(trace_draws))
  if (is.finite(control$scale_max) && !scale_of(control$scale)$ceiling) {
    bad_argument("scale_max", sprintf("Inf with a scale of kind \"%s\"", control$scale), describe(scale_max))
  }
  if (control$update == "prox") {
    if (!scale_of(control$scale)$prox) {
      bad_argument("update", "\"project\" with a symmetric scale (the proximal step is for triangular and diagonal ones)", "\"prox\"")
    }
    if (!is.null(control$estimator) && !estimators[[control$estimator]]$prox) {
      able <- names(Filter(function(e) e$prox, estimators))
      bad_argument("estimator", paste0(join_or(paste0("\"", able, "\"")), " with update = \"prox\" (the ", control$estimator,
                                       " estimator contains the entropy already)"), describe(control$estimator))
    }
    if (is.finite(control$scale_max) || !is.null(control$scale_min)) {
      bad_argument("update", "\"project\" when the scale is bounded by `scale_min` or `scale_max`", "\"prox\"")
    }
  }
  if (!is.null(fixed_weight) && !has_fixed_weight(control)) unused_argument("fixed_weight", "it is for estimator = \"fixed\"")
  if (isTRUE(control$backtrack > 0) && !is.null(rows_per_step)) {
    bad_argument("backtrack", "0 with `rows_per_step` (the rows of a step would decide how long it is)", describe(backtrack))
  }
  join_control(control, check_conduct(iterations, progress, checkpoint, checkpoint_every))
}

# How a run is stopped, watched and saved: nothing of what it computes, so it may be another one when the run goes on. Users
# see it among the other settings; a fit has the two apart, see fit.R.
check_conduct <- function(iterations, progress, checkpoint, checkpoint_every) {
  list(iterations = check_count(iterations, "iterations", infinite = TRUE),
       progress = check_flag(progress, "progress"),
       checkpoint = if (!is.null(checkpoint)) check_file_name(checkpoint, "checkpoint"),
       checkpoint_every = check_positive(checkpoint_every, "checkpoint_every", infinite = TRUE))
}

join_control <- function(control, conduct) structure(c(unclass(control), conduct), class = "elvi_control")

split_control <- function(control) {
  settings <- unclass(control)
  mine <- settings[conduct_entries]
  names(mine) <- conduct_entries   # with an entry for NULL too
  list(control = structure(settings[!names(settings) %in% conduct_entries], class = "elvi_control"), conduct = mine)
}

conduct_entries <- names(formals(check_conduct))

# Have all settings their defaults, as in nearly every fit? `progress` depends on the session.
is_default <- function(control) identical(replace(control, "progress", default_control$progress), default_control)

# The other halves of src/estimator_<name>.c: can it leave the entropy to a proximal step, does it need a base whose
# density does not jump, do the theorems cover it, and does it have a given weight?
estimators <- list(
  reparam = list(prox = TRUE, any_base = TRUE, theory = TRUE),
  path = list(prox = FALSE, any_base = FALSE, theory = FALSE),
  control = list(prox = TRUE, any_base = TRUE, theory = FALSE),
  fixed = list(prox = TRUE, any_base = TRUE, theory = TRUE, weighted = TRUE))

# Has the gradient a control variate whose weight never changes? The bound by distance is for gradients without.
has_fixed_weight <- function(control) isTRUE(estimators[[control$estimator %||% ""]]$weighted)

# in units of the smoothness
relative_weight <- function(control) control$fixed_weight %||% 0.1

default_estimator <- function(update) if (update == "prox") "reparam" else "control"

# The other halves of elvi_update_ops: is the entropy part of the gradient, is the scale kept above a floor, and do the
# theorems cover it?
updates <- list(
  project = list(entropy = TRUE, floor = TRUE, theory = TRUE),
  prox = list(entropy = FALSE, floor = FALSE, theory = FALSE))

update_of <- function(control) updates[[control$update]]

check_backtrack <- function(n) {
  n <- check_count(n, "backtrack", lower = 0, upper = 1e6)
  if (n > 0 && n < fewest_check_draws) bad_argument("backtrack", "0, or at least 16 draws", describe(n))
  n
}

check_precondition <- function(x) {
  if (is.null(x)) return(NULL)
  x <- unlist(x)
  if (!is.numeric(x) || length(x) != 2L || !setequal(names(x), c("mu", "Sigma"))) {
    bad_argument("precondition", "c(mu = , Sigma = )", describe(x))
  }
  if (anyNA(x) || any(x <= 0 | x > 1)) {
    bad_argument("precondition", "in (0, 1]", describe(unname(x[is.na(x) | x <= 0 | x > 1][1L])))
  }
  x[c("mu", "Sigma")]
}

#' @export
print.elvi_control <- function(x, ...) {
  shown <- Filter(Negate(is.null), unclass(x))
  cat(paste0(format(names(shown)), "  ", vapply(shown, function(v) toString(format(v)), "")), sep = "\n")
  invisible(x)
}
