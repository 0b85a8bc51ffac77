#' The best approximation, with a certificate
#'
#' `elvi_optimum()` finds the best approximation of the posterior of a regression, or of a quadratic target, without Monte
#' Carlo. It also returns a certificate: an upper bound on how far the result is from the optimum, in nats. [elvi()] calls it;
#' call it yourself for the optimum alone.
#'
#' It minimises `F(mu, Sigma) = E f(mu + Sigma z) - log|Sigma|`, for models with an exact objective: generalised linear models and
#' quadratics.
#'
#' At the optimum `E grad f = 0` and `Sigma^-2 = B`, where `B` is the average curvature of `f` under the approximation. The
#' solver starts at the Laplace approximation and iterates `Sigma^-2 <- B` with a Newton step for `mu`, under Anderson
#' acceleration. Whenever `F` would rise it takes damped steps. If these make little progress, as with nearly separable data
#' under a wide prior, it continues with a quasi-Newton descent in whitened coordinates.
#'
#' @section The certificate:
#' If the Hessian of `f` is at least `Q` everywhere, `F` is strongly convex and
#' `F - F* <= (g' Q^-1 g + tr(G' Q^-1 G)) / 2` with `g` and `G` the gradients in
#' `mu` and in the (triangular) scale. `Q` is the prior precision, plus `X'X /
#' dispersion` for the gaussian family. That bound is rigorous, and
#' `certificate_kind` is `"rigorous"`. With a flat prior on some coefficient no
#' such `Q` is known for the other families; the certificate is then a second-order estimate of the remaining gap, and labelled
#' `"estimated"`. It is also estimated
#' * with student and cauchy priors, which are not log-concave: the optimum may be a local one, and far from it the gap may be several
#'   times the estimate;
#' * with very uncertain linear predictors (standard deviations above 50, as of separable data under very wide priors), where the error
#'   of the quadrature matters.
#'
#' @section Many sparse columns:
#' With more than 2,000 columns in a sparse `X`, and normal priors, no `dim` x `dim` matrix is made: at the optimum
#' `Sigma^-2` is the prior precision plus `X' diag(c) X` with one number `c_i` per row, and its sparse Cholesky factor
#' and the entries of its inverse on the same pattern are all that is needed. Memory is proportional to rows,
#' entries and factor. `$scale` then holds the factor, `$Sigma` is `NULL`; means, standard deviations, draws,
#' objective and diagnostics work as always, `vcov()` as long as a `dim` x `dim` matrix fits. The same solver
#' takes a prior whose `precision` is a matrix, see [normal()]. Student priors and flat priors use the dense solver.
#'
#' @section Many columns and a diagonal scale:
#' With `scale = "diagonal"` and more than 2,000 columns in memory, dense or sparse, under any prior, no `dim` x `dim` matrix is made
#' either: the solver uses the diagonal of `B` and products with vectors, and finds its Newton steps by conjugate gradients. `$scale` has
#' the standard deviations, `$Sigma` is `NULL`. For the gaussian family `Q` is then the prior precision plus a lower bound from such
#' products, and with a flat prior the certificate is an estimate.
#'
#' @param model a model from [model_glm()] or [model_quadratic()].
#' @param base the variational base, see [bases].
#' @param scale `"symmetric"`, `"triangular"` (the same optimum, parametrised by
#'   a lower triangular matrix) or `"diagonal"`.
#' @param tol stop when the certificate is below this many nats.
#' @param max_evaluations give up after this many evaluations of the gradient.
#' @return An object of class `elvi_optimum`: a list with `mu`,
#'   `Sigma` (symmetric), `scale` (as parametrised), `objective` (`F*`), `elbo` (see [elbo()]), `flat` (the number of flat priors),
#'   `certificate` and `certificate_kind`, `gradient_norm` (in whitened
#'   coordinates), `evaluations`, `converged` and `interrupted`: an interrupt (Ctrl-C) returns the best point so far, with
#'   a warning of class `elvi_warning_interrupted`.
#' @examples
#' X <- model.matrix(~ age + parity + induced + spontaneous, data = infert)
#' model <- model_glm(X, infert$case, prior = normal(0, 2.5))
#' elvi_optimum(model, base_laplace())
#' @export
elvi_optimum <- function(model, base = base_gaussian(),
                         scale = c("symmetric", "triangular", "diagonal"),
                         tol = 1e-9, max_evaluations = 200) {
  check_class(model, "model", "elvi_model", "a model_*() function")
  check_class(base, "base", "elvi_base", "a base_*() function")
  scale <- check_choice(scale, "scale", names(Filter(function(record) record$exact, scale_kinds)))
  tol <- check_positive(tol, "tol")
  max_evaluations <- check_count(max_evaluations, "max_evaluations")
  check_has_exact(model)
  check_size(exact_size(model, scale), "model", model$dim)
  law <- law_of(base, model$dim)
  solve_optimum(model, base, law, scale, tol, max_evaluations, progress = interactive())
}

check_has_exact <- function(model) {
  if (has_exact(model)) return(invisible())
  reason <- if (!is_dispersed(model)) "it is a user-supplied density"
            else if (family_record(model)$convex) paste(dispersion_record(model)$natural, "is unknown")
            else paste0(dispersion_record(model)$natural, " is unknown, and the ", model$family$family, " loss is not convex")
  refuse_argument("model", "`model` has no exact objective: ", reason, ". Use elvi() with method = \"auto\" instead; ",
                  if (isTRUE(model$convex)) "it approaches the optimum, which is unique."
                  else "it finds a stationary point, which may not be the global optimum.")
}

solve_optimum <- function(model, base, law, scale, tol, max_evaluations, progress = FALSE) {
  if (is_factored(model, scale)) return(sparse_optimum(model, base, tol, max_evaluations, scale))
  work <- scale_of(scale)$frame
  watch <- new_watch(model, progress)
  on.exit(end_watch(watch))
  oracle <- watched(exact_oracle(model, law), watch)
  few <- model_of_few(model)
  found <- tryCatch(
    (if (!is.null(few)) optimum_by_few(oracle, model, few, base, law, work, tol, max_evaluations)) %||%
      optimum_from_mode(oracle, model, law, work, scale, tol, max_evaluations),
    interrupt = function(condition) {
      if (is.null(watch$best)) {
        signalCondition(condition)
        invokeRestart("abort")
      }
      list(point = watch$best, evaluations = watch$passes, interrupted = TRUE)
    })
  new_optimum(model, base, law, scale, found$point, found$evaluations, tol, isTRUE(found$interrupted))
}

# From the optimum of src/nested.c or the Laplace approximation.
optimum_from_mode <- function(oracle, model, law, work, scale, tol, max_evaluations) {
  start <- optimum_by_rows(model, law, scale, tol, max_evaluations) %||% near_mode(model, exact_by_products(model, scale))
  point <- first_point(oracle, model, work, start)
  precision <- point$precision
  evaluations <- start$evaluations + 1 + isFALSE(start$settled)
  # Under exp() the start may be far too wide: narrow it as long as that is better.
  for (shrink in 1:60) {
    if (is.finite(point$objective) && (isTRUE(start$near) || !grows_exponentially(model))) break
    narrow <- evaluate_at(oracle, model, work, point$mu, precision * 2^shrink)
    evaluations <- evaluations + 1
    if (is.finite(point$objective) && narrow$objective >= point$objective) break
    point <- narrow
  }
  if (!is.finite(point$objective) || is.nan(point$certificate)) nonfinite_mode(start$x, overflow_advice)
  found <- approach_optimum(oracle, model, work, point$mu, point, tol, max_evaluations - evaluations)
  list(point = found$point, evaluations = evaluations + found$evaluations)
}

# The Laplace approximation; where the mode was not reached in a few steps, one step from where its search stopped.
first_point <- function(oracle, model, work, start) {
  precision_part <- scale_of(work)$precision_part
  if (!isFALSE(start$settled)) return(evaluate_at(oracle, model, work, start$x, precision_part(start$hessian)))
  directions <- skewed_directions(model, start$hessian)
  at <- point_oracle(model)(start$x, directions)
  to <- next_target(model, c(at[c("g_mu", "B", "third")], list(mu = start$x, directions = directions)))
  evaluate_at(oracle, model, work, to$mu, precision_part(to$precision))
}

# Of a small regression the solver of src/nested.c finds the optimum in one call, in less time than R takes for a step. It is a start like
# others, certified as they are. NULL where it is not found in a few steps, as of nearly separable data, or where that solver is not for
# the model.
optimum_by_rows <- function(model, law, scale, tol, most) {
  if (!is_quick_by_rows(model, scale)) return(NULL)
  X <- centred_design(model$rows)
  found <- tryCatch(solve_by_rows(model, X, matrix(0, nrow(X), 0L), law, tol / 100, min(most, 25))$found,
                    elvi_error_interrupted = function(e) raise_interrupt())
  if (found$failed || !isTRUE(found$certificate <= tol)) return(NULL)
  list(x = found$mu, hessian = prior_curvature(model) + crossprod(X, found$c * X), evaluations = found$evaluations, near = TRUE)
}

# that of normal priors
prior_curvature <- function(model) diag(prior_precision_of(model), model$dim)

# Beyond so many operations an evaluation takes longer than what is around it, and has threads.
most_quick_operations <- 1e6

is_quick_by_rows <- function(model, scale) {
  if (!is_regression(model) || is_dispersed(model) || is_chunked(model$rows)) return(FALSE)
  if (!has_dense_rows(model$rows) && !has_sparse_rows(model$rows)) return(FALSE)   # another layout has no such design
  record <- family_record(model)
  design_size(model) * model$dim <= most_quick_operations && scale_of(scale)$full && record$convex && !is.null(record$conditional) &&
    all_proper(model) && !has_student_prior(model) && !is_linked(model)
}

# ---- data larger than memory ----------------------------------------------------------

# Some rows that stand for all of them, as a model in memory; NULL of models in memory, and where these rows would be too few.
model_of_few <- function(model, most = 2e4) {
  if (!is_chunked(model$rows) || !all_proper(model) || is_dispersed(model) || family_record(model)$constant_curvature) return(NULL)
  few <- sampled_rows(model$rows)
  if (is.null(few)) {
    few <- first_rows_of(model$rows, most)
    if (!is.null(few)) few$weight <- few$weight * (model$rows$n / length(few$y))
  }
  if (is.null(few) || length(few$y) < min(max(1000, 10 * model$dim), model$rows$n)) return(NULL)
  model_of_rows(model, few)
}

# Between two passes the likelihood of all rows is taken for that of few ones, with a quadratic that makes its slope and curvature
# at the last point those of all rows. The optimum of that, which needs no pass, is the next point. Each step is a hundred times
# nearer or more, so one beyond `tol` makes the fit that of memory to nearly all digits. NULL where few rows have no optimum.
optimum_by_few <- function(oracle, model, few, base, law, work, tol, max_evaluations) {
  whole <- length(few$rows$y) == model$rows$n
  start <- null_if_refused(suppressWarnings(solve_optimum(few, base, law, work, if (whole) tol else 1e-3, 100)))
  if (is.null(start)) return(NULL)
  if (start$interrupted) raise_interrupt()   # nothing is known of all rows yet
  of_few <- exact_oracle(few, law)
  mu <- unname(start$mu)
  precision <- scale_of(work)$precision_part(of_few(work, mu, start$scale)$B)
  point <- if (whole) c(evaluate_scale(oracle, model, work, mu, start$scale), list(precision = precision))
           else evaluate_at(oracle, model, work, mu, precision)
  evaluations <- 1
  if (!is.finite(point$objective)) return(NULL)
  enough <- if (whole) tol else 1e-4 * tol
  while (point$certificate > enough && evaluations < max_evaluations) {
    to <- optimum_matched(of_few, few, point, enough / 10)
    if (is.null(to)) break
    new <- evaluate_at(oracle, model, work, to$mu, to$precision)
    evaluations <- evaluations + 1
    if (!is_improvement(new, point)) break
    slow <- new$certificate > point$certificate / 4
    point <- new
    if (slow) break
  }
  found <- approach_optimum(oracle, model, work, point$mu, point, tol, max_evaluations - evaluations)
  list(point = found$point, evaluations = evaluations + found$evaluations)
}

# The optimum of a model in memory, with the quadratic that gives it the slope and curvature of `point` there; NULL if nothing is gained.
optimum_matched <- function(oracle, model, point, tol) {
  here <- oracle(point$kind, point$mu, point$scale)
  slope <- point$g_mu - here$g_mu
  curvature <- point$B - here$B
  matched <- function(kind, mu, scale, directions = NULL) {
    at <- oracle(kind, mu, scale, directions)
    off <- mu - point$mu
    bent <- drop(curvature %*% off)
    at$objective <- at$objective + sum((slope + bent / 2) * off) + sum(diag(congruent(scale, curvature))) / 2
    at$g_mu <- at$g_mu + slope + bent
    at$B <- at$B + curvature
    at
  }
  from <- evaluate_at(matched, model, point$kind, point$mu, point$precision)
  if (!is.finite(from$objective)) return(NULL)
  to <- or_null(approach_optimum(matched, model, point$kind, from$mu, from, tol, 100)$point)
  if (!is.null(to) && is_improvement(to, from)) to
}

# From a point near the optimum to one that is `tol` from it.
approach_optimum <- function(oracle, model, work, centre, point, tol, max_evaluations) {
  precision_part <- scale_of(work)$precision_part
  evaluations <- 0
  frame <- list(centre = centre, kind = work, scale = point$scale)
  history <- NULL
  wasted <- 0
  skewed <- may_be_skewed(model, work) && changes_slowly(point)
  while (point$certificate > tol && evaluations < max_evaluations && wasted < if (skewed) 30 else 10) {
    far <- skewed && changes_slowly(point)
    if (far) {
      point <- look_along(oracle, model, point)
      evaluations <- evaluations + 1
    }
    x <- flatten(frame, point$mu, point$precision)
    to <- next_target(model, point)
    target <- flatten(frame, to$mu, precision_part(to$precision))
    if (far) history <- NULL   # past steps say nothing of the next
    history <- remember(history, x, target - x)
    tried <- first_improvement(oracle, model, frame, point, history, max_evaluations - evaluations, skewed && !far)
    evaluations <- evaluations + tried$evaluations
    wasted <- wasted + tried$evaluations - 1
    if (is.null(tried$point)) break
    point <- tried$point
  }
  if (point$certificate > tol && evaluations < max_evaluations) {
    found <- descend(oracle, model, point, tol, max_evaluations - evaluations)
    point <- found$point
    evaluations <- evaluations + found$evaluations
  }
  list(point = point, evaluations = evaluations)
}

# ---- watching ----------------------------------------------------------------------

# Counts the passes over the data, keeps the best point for an interrupt, and after two seconds says how far it is.
new_watch <- function(model, progress) {
  list2env(list(rows = if (is_regression(model)) model$rows$n, progress = progress, started = proc.time()[["elapsed"]],
                passes = 0, best = NULL, shown = FALSE), parent = emptyenv())
}

watched <- function(oracle, watch) {
  structure(function(kind, mu, scale, directions = NULL) {
    watch$passes <- watch$passes + 1
    oracle(kind, mu, scale, directions)
  }, watch = watch)
}

note_point <- function(watch, point) {
  if (is.null(watch) || !is.finite(point$objective)) return(invisible())
  if (is.null(watch$best) || is_improvement(point, watch$best)) watch$best <- point
  spent <- proc.time()[["elapsed"]] - watch$started
  if (!watch$progress || spent < 2) return(invisible())
  watch$shown <- TRUE
  cat(sprintf("\relvi: %d passes%s, %s %s nats above the optimum   ", watch$passes,
              if (is.null(watch$rows)) "" else sprintf(" (%.1e rows/s)", watch$rows * watch$passes / spent),
              if (watch$best$certificate_kind == "rigorous") "at most" else "about", format(watch$best$certificate, digits = 1)),
      file = stderr())
}

end_watch <- function(watch) if (watch$shown) cat("\n", file = stderr())

# ---- steps --------------------------------------------------------------------------

# Everything known at one point of parameter space.
evaluate_at <- function(oracle, model, kind, mu, precision, directions = FALSE) {
  scale <- scale_of(kind)$inverse_root(precision)
  if (is.null(scale)) return(list(objective = Inf, mu = mu, precision = precision))
  directions <- if (directions) skewed_directions(model, precision)
  c(evaluate_scale(oracle, model, kind, mu, scale, directions), list(precision = precision, directions = directions))
}

evaluate_scale <- function(oracle, model, kind, mu, scale, directions = NULL) {
  at <- oracle(kind, mu, scale, directions)
  if (!is.finite(at$objective)) return(list(objective = Inf, mu = mu))
  point <- c(list(mu = mu, scale = scale, kind = kind), at[c("objective", "g_mu", "B", "widest")], at["third"],
             certify(model, kind, at, mu, scale))
  note_point(attr(oracle, "watch"), point)
  point
}

# Coordinates in which the start, frame$centre and frame$scale, is (0, I): differences
# there have a meaning.
flatten <- function(frame, mu, precision) {
  scale_of(frame$kind)$whiten(frame$scale, mu - frame$centre, precision)
}

unflatten <- function(frame, x) {
  at <- scale_of(frame$kind)$unwhiten(frame$scale, x)
  at$mu <- frame$centre + at$mu
  at
}

remember <- function(history, x, residual, memory = 8L) {
  x <- cbind(x, history$x)
  r <- cbind(residual, history$residual)
  keep <- seq_len(min(ncol(x), memory))
  list(x = x[, keep, drop = FALSE], residual = r[, keep, drop = FALSE])
}

# Anderson acceleration: the combination of past steps with the least residual.
accelerate <- function(history) {
  x <- history$x[, 1L]
  r <- history$residual[, 1L]
  if (ncol(history$x) == 1L) return(x + r)
  mix <- anderson_mix(history$residual, 1e-8)
  if (is.null(mix)) return(x + r)
  drop(x + r - (x - history$x[, -1L, drop = FALSE] + (r - history$residual[, -1L, drop = FALSE])) %*% mix)
}

# How much of each past residual, the columns after the first, takes the place of the first in the combination with the least norm. The
# ridge keeps the rounding of the sums, which depends on how rows are cut into chunks and shards, out of it. NULL where there is none.
anderson_mix <- function(residual, ridge) {
  change <- residual[, 1L] - residual[, -1L, drop = FALSE]
  gram <- crossprod(change)
  or_null(solve(gram + diag(ridge * max(diag(gram)), ncol(gram)), crossprod(change, residual[, 1L])))
}

# The accelerated step, else the plain one, else halves of it.
first_improvement <- function(oracle, model, frame, point, history, budget, skewed = FALSE) {
  attempt <- function(to) {
    there <- unflatten(frame, to)
    evaluate_at(oracle, model, frame$kind, there$mu, there$precision, skewed)
  }
  x <- history$x[, 1L]
  residual <- history$residual[, 1L]
  new <- attempt(accelerate(history))
  used <- 1
  if (is_improvement(new, point)) return(list(point = new, evaluations = used))
  size <- 1
  while (used < budget && size > 1e-6) {
    new <- attempt(x + size * residual)
    used <- used + 1
    if (is_improvement(new, point)) return(list(point = new, evaluations = used))
    size <- size / 2
  }
  list(point = NULL, evaluations = used)
}

# Lower, by at least `by`; or level up to rounding, and nearer by the certificate.
is_improvement <- function(new, old, by = 0) {
  slack <- 1e-12 * (1 + abs(old$objective))
  isTRUE(is.finite(new$objective) && (new$objective < old$objective - max(by, slack) ||
    (new$objective <= old$objective + slack && new$certificate < old$certificate)))
}

# L-BFGS in local coordinates, renewed every `renewal` steps. F is convex in them.
descend <- function(oracle, model, point, tol, budget, renewal = 30L) {
  used <- 0
  repeat {
    local <- local_coordinates(point)
    x <- local$origin
    g <- local$gradient(point)
    steps <- changes <- NULL
    for (k in seq_len(renewal)) {
      p <- quasi_newton(g, steps, changes, local$curvature)
      slope <- sum(p * g)
      # the diagonal of the scale stays positive, and no step is wild
      size <- min(1, 0.7 / max(-p[local$diagonal] / x[local$diagonal], 0.7),
                  5 * sqrt(length(point$mu) / sum(p^2)))
      repeat {
        to <- x + size * p
        new <- evaluate_scale(oracle, model, point$kind, local$mu(to), local$scale(to))
        used <- used + 1
        if (is_improvement(new, point, by = -1e-4 * size * slope)) break
        if (used >= budget || (size < 1e-8 && k == 1L)) return(list(point = point, evaluations = used))
        if (size < 1e-8) break
        # the minimum of the parabola through what is known, within reason
        rise <- new$objective - point$objective
        size <- size * if (is.finite(rise)) min(max(-slope * size / (2 * (rise - slope * size)), 0.1), 0.5) else 0.25
      }
      if (used >= budget) return(list(point = point, evaluations = used))
      if (size < 1e-8) break   # rounding: try again from here with new coordinates
      turned <- local$gradient(new)
      if (sum((to - x) * (turned - g)) > 0) {
        steps <- cbind(steps, to - x)
        changes <- cbind(changes, turned - g)
      }
      x <- to
      g <- turned
      point <- new
      if (point$certificate <= tol || used >= budget) return(list(point = point, evaluations = used))
    }
  }
}

# (w, T) with mu = mu_0 + K w, K K' = B_0^-1, and scale = A T, A the scale at hand and
# T triangular or diagonal. The curvature of F is near 1 in w and in T, and near 2 on
# the diagonal of T.
local_coordinates <- function(point) {
  d <- length(point$mu)
  first <- seq_len(d)
  scale <- scale_of(point$kind)$local(point$scale)
  K <- root_of_inverse(point$B) %||% point$scale   # not definite: see student priors
  list(
    origin = c(numeric(d), scale$identity), curvature = c(rep(1, d), 1 + scale$identity),
    diagonal = d + which(scale$identity == 1),
    mu = function(x) drop(point$mu + root_times(K, x[first])),
    scale = function(x) scale$scale(x[-first]),
    gradient = function(at) c(root_crossprod(K, at$g_mu), scale$gradient(at)))
}

# minus the inverse Hessian times g, from past steps and the changes of the gradient
quasi_newton <- function(g, steps, changes, curvature, memory = 20L) {
  pairs <- utils::tail(seq_len(NCOL(steps) * !is.null(steps)), memory)
  a <- numeric()
  for (i in rev(pairs)) {
    a[i] <- sum(steps[, i] * g) / sum(steps[, i] * changes[, i])
    g <- g - a[i] * changes[, i]
  }
  g <- g / curvature
  for (i in pairs) {
    g <- g + steps[, i] * (a[i] - sum(changes[, i] * g) / sum(steps[, i] * changes[, i]))
  }
  -g
}

# A matrix Q (or its diagonal) that bounds the Hessian of f from below
# everywhere; NULL when none is known.
strong_convexity <- function(model, B = NULL) UseMethod("strong_convexity")

#' @export
strong_convexity.elvi_model <- function(model, B = NULL) NULL

#' @export
strong_convexity.elvi_model_quadratic <- function(model, B = NULL) model$A

#' @export
strong_convexity.elvi_model_glm <- function(model, B = NULL) {
  if (!model$convex) return(NULL)
  if (family_record(model)$constant_curvature && bounds_itself(B)) return(B)
  if (all_proper(model)) model$blocks$coefficients$precision
}

# The largest spread of a linear predictor for which the quadrature's own error is below any certificate.
resolved_spread <- function(model) UseMethod("resolved_spread")

#' @export
resolved_spread.elvi_model <- function(model) Inf

#' @export
resolved_spread.elvi_model_glm <- function(model) if (family_record(model)$needs_fine_quadrature) 50 else Inf

# Bound on F - F* at a point: gradients in mu and in the triangular or diagonal
# scale, measured in Q. See the help page of elvi_optimum().
certify <- function(model, kind, at, mu, scale) {
  record <- scale_of(kind)
  whitened <- record$whitened_gradient(at, scale)
  estimate <- sum(whitened$mu^2) / 2 + sum(whitened$scale^2) / 4
  norm <- sqrt(sum(whitened$mu^2) + sum(whitened$scale^2))
  Q <- strong_convexity(model, at$B)
  if (is.null(Q)) {
    return(list(certificate = estimate, certificate_kind = "estimated", gradient_norm = norm))
  }
  bound <- (dual_norm2(Q, at$g_mu) + record$dual(Q, record$gradient(at, scale, whitened))) / 2
  list(certificate = bound, certificate_kind = "rigorous", gradient_norm = norm)
}

new_optimum <- function(model, base, law, scale, point, evaluations, tol, interrupted = FALSE) {
  labels <- model$names
  if (point$widest > resolved_spread(model)) point$certificate_kind <- "estimated"
  out <- list(
    mu = stats::setNames(as.double(point$mu), labels),
    Sigma = if (!exact_by_products(model, scale)) symmetric_scale(point$kind, point$scale, labels),
    objective = point$objective, elbo = law$entropy - point$objective + model_constant(model), flat = flat_in_model(model),
    certificate = point$certificate, certificate_kind = point$certificate_kind,
    gradient_norm = point$gradient_norm, evaluations = evaluations,
    converged = point$certificate <= tol, interrupted = interrupted, base = base, kind = scale, dim = model$dim)
  out$scale <- name_scale(scale_of(scale)$of_frame(point$scale), labels)
  warn_unconverged(structure(out, class = "elvi_optimum"))
}

warn_unconverged <- function(optimum) {
  if (optimum$interrupted) {
    elvi_warn("Interrupted after ", optimum$evaluations, " evaluations: this is the best point so far, ",
              distance_words(optimum), ".", class = "elvi_warning_interrupted")
  } else if (!optimum$converged) {
    elvi_warn("The solver stopped after ", optimum$evaluations, " evaluations with a certificate of ",
              format(optimum$certificate, digits = 3), " nats, above `tol`.",
              class = "elvi_warning_not_converged")
  }
  optimum
}

# The words for a certificate. An estimated one is not a bound, whatever its size: see ?elvi_optimum.
distance_words <- function(optimum, what = "optimum") {
  rigorous <- optimum$certificate_kind == "rigorous"
  paste(if (rigorous) "at most" else "estimated to be", format(optimum$certificate, digits = 1), "nats above the", what,
        if (rigorous) "(rigorous)" else "(to second order: no bound)")
}

#' @export
print.elvi_optimum <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  check_digits(digits)
  cat("Exact variational optimum: ", x$base$kind, " base, ", x$kind, " scale, dimension ",
      x$dim, "\n", sep = "")
  cat("Objective F*: ", format(x$objective, digits = 10), ", ELBO: ", format(x$elbo, digits = 10), "\n", sep = "")
  writeLines(as.character(flat_line(x$flat)))
  cat("It is ", distance_words(x), ", ", x$evaluations, " evaluations of the gradient",
      if (x$interrupted) ", INTERRUPTED" else if (!x$converged) ", NOT CONVERGED", "\n", sep = "")
  shown <- seq_len(min(x$dim, 10))
  print(rbind(mean = x$mu, sd = root_sd(x$scale))[, shown, drop = FALSE], digits = digits)
  if (x$dim > 10) cat("... and", x$dim - 10, "more\n")
  invisible(x)
}

#' @export
coef.elvi_optimum <- function(object, complete = TRUE, ...) {
  check_dots(list(...), names(formals()), "coef()")
  check_flag(complete, "complete")
  object$mu
}

#' @export
vcov.elvi_optimum <- function(object, complete = TRUE, ...) {
  check_dots(list(...), names(formals()), "vcov()")
  check_flag(complete, "complete")
  structure(tcrossprod(root_matrix(object$scale)), dimnames = list(names(object$mu), names(object$mu)))
}
