# Two by-products of the search for a start, as fits with the same verdict: the Laplace approximation, a gaussian at the highest mode found
# with the curvature there, and the best gaussian along the paths to modes, in the manner of Pathfinder (Zhang, Carpenter, Gelman and
# Vehtari, 2022): the one of smallest objective among Laplace approximations along quasi-Newton paths, in many parameters on the pattern of
# the Hessian or with a low rank.

solve_path <- function(problem, base, run, control) {
  model <- problem$target
  seed <- draw_key()
  wide <- model$dim > widest_search
  target <- guarded_target(model)
  target$model <- model
  curvature <- if (wide) curvature_of(model)
  if (wide) target <- shaped_target(target, curvature)
  first <- if (is_point(run$start$mu, model$dim)) as.double(run$start$mu)
  starts <- check_count(run$starts %||% if (wide) 1L else default_starts, "starts")
  points <- first_points(target, model$dim, starts, seed, first)
  if (!length(points)) fails_everywhere(target)
  found <- path_methods[[run$method]](target, points, seed, wide)
  if (is.null(found)) fails_everywhere(target)
  refuse_if_falling(model, found$mu, found$mu)
  look <- evaluate_gaussian(target, found$mu, found$A, seed, 8 * candidate_draws, 0)
  found[c("objective", "se")] <- look[c("F", "se")]
  found$rivals <- list()
  found$account <- as.list(target$account)
  fit <- new_fit(c(list(call = problem$call, method = run$method, model = model, base = base), split_control(control)),
                 plan = list(seed = seed, rng_kind = RNGkind(), search = if (!wide) found,
                             pattern = if (wide) pattern_account(curvature, found$A)),
                 result = list(status = "finished", kept = "optimum", theta = list(mu = found$mu, scale = found$A), cpu = 0,
                               converged = found$reached, account = found$account, objective = look[c("F", "se")]))
  if (wide) return(report_path(judge_wide(fit), found))
  fit <- judge(fit)
  fit$result$converged <- found$reached && !length(objections(fit))
  inform_of_adapting(fit)
  report_path(fit, found)
}

report_path <- function(fit, found) {
  if (!found$reached) {
    elvi_warn("No mode was found: the gradient at the end of the descent is not 0. The density may have none, as that of a hierarchical ",
              "model, and then no Laplace approximation either.", class = "elvi_warning_not_converged")
  }
  warn_of_verdict(fit)
  fit
}

path_methods <- list(
  laplace = function(target, points, key, wide) {
    ends <- lapply(points, function(x) {
      path <- path_to_mode(target, x, wide)
      if (length(path$points)) newton_end(target, path, wide)
    })
    ends <- Filter(Negate(is.null), ends)
    if (length(ends)) ends[[which.min(vapply(ends, function(end) end$value, 0))]]
  },
  pathfinder = function(target, points, key, wide) {
    each <- lapply(points, function(x) {
      path <- path_to_mode(target, x, wide)
      if (wide) wide_candidates(target, path, key) else candidates_along(target, path$points, key)
    })
    found <- Filter(function(at) is.finite(at$F), by_objective(unlist(each, recursive = FALSE)))
    if (length(found)) list(mu = found[[1L]]$mu, A = tidy_root(found[[1L]]$A), reached = TRUE)
  })

path_to_mode <- function(target, x, wide) if (wide) quasi_newton_path(target, x) else list(points = descent_path(target, x))

# Newton steps from the lowest point of a path, each kept if the target falls.
newton_end <- function(target, path, wide, steps = 20L, tol = 1e-8) {
  i <- which.min(vapply(path$points, function(point) point$value, 0))
  at <- path$points[[i]]
  root_at_point <- function(at) {
    if (!wide) return(laplace_root(target, at))
    path_root(target, list(points = list(at), pairs = path$pairs), 1L)
  }
  A <- NULL
  gap <- Inf
  for (k in seq_len(steps)) {
    new <- root_at_point(at)
    if (is.null(new)) break
    A <- new
    g <- drop(root_crossprod(A, matrix(at$gradient)))
    gap <- sum(g^2) / 2
    if (gap < tol) break
    moved <- NULL
    for (size in 0.5^(0:8)) {
      y <- point_at(target, at$x - size * drop(root_times(A, matrix(g))))
      if (!is.null(y) && y$value < at$value) {
        moved <- y
        break
      }
    }
    if (is.null(moved)) break
    at <- moved
  }
  if (!is.null(A)) list(mu = at$x, A = tidy_root(A), value = at$value, reached = gap < 1e-4)
}

# the symmetric root of the same covariance, of a matrix
tidy_root <- function(A) {
  if (!is.null(attr(A, "class"))) return(A)
  s <- svd(A, nv = 0)
  s$u %*% (s$d * t(s$u))
}
