# Where a run on a user-supplied density starts: gaussians along quasi-Newton paths from several
# points, compared by their objective, the best of them improved by natural gradient steps
# (search-natural.R). A hierarchical posterior has no mode (its density grows without bound as a
# group's sd goes to 0), so the end of a path is a candidate like any other point of it.

# The gaussian that a run on a user-supplied density starts from and is whitened by: from the checkpoint, from the user, or
# from a search. NULL for other models, which have a mode. R/engine.R describes the value.
search_start <- function(model, control, start, starts, tol, key) {
  searched <- is_user_density(model) && !isTRUE(model$convex) && frame_of(control)$tuned &&
    model$dim <= widest_search
  if (!is.null(starts)) {
    starts <- check_count(starts, "starts")
    if (!searched) {
      unused_argument("starts", paste("elvi() searches for a start only for user-supplied densities in whitened coordinates that are",
                                      "not declared convex"))
    }
  }
  if (!searched || length(start) && !is.list(start)) return(NULL)
  stored_search(control$checkpoint) %||% given_gaussian(model, start) %||%
    search_gaussian(model, starts %||% if (is.null(start$mu)) default_starts else 1, key, min(tol, loosest_search_tol),
                    first = if (is_point(start$mu, model$dim)) start$mu)
}

is_point <- function(x, dim) is.numeric(x) && length(x) == dim && all(is.finite(x))

# A start with a scale needs no search; check_start() reports what is wrong with it.
given_gaussian <- function(model, start) {
  S <- start$Sigma
  d <- model$dim
  if (is.null(S) || !is_point(start$mu, d) || !is.numeric(S) || !all(is.finite(S))) return(NULL)
  S <- given_matrix(S, d)
  if (is.null(S) || !is.finite(log_abs_det(S))) return(NULL)
  target <- guarded_target(model)
  look <- evaluate_gaussian(target, start$mu, S, c(0, 0), given_draws, 0)
  if (!is.finite(look$F)) return(NULL)
  list(mu = as.double(start$mu), A = S, objective = look$F, se = look$se, rivals = list(),
       account = as.list(target$account))
}

stored_search <- function(file) {
  if (is.null(file) || !file.exists(file) || dir.exists(file)) return(NULL)
  read_checkpoint(file)$progress$plan$search
}

# An interrupt ends the search, which then returns the best gaussian so far.
search_gaussian <- function(model, starts, key, tol = loosest_search_tol, first = NULL) {
  target <- guarded_target(model)
  so_far <- list2env(list(ends = list()), parent = emptyenv())
  interrupted <- tryCatch({
    search_ends(target, starts, key, tol, first, so_far)
    FALSE
  }, interrupt = function(condition) TRUE)
  if (!length(so_far$ends)) {
    if (interrupted) elvi_abort("Interrupted before the search had found a start.", class = "elvi_error_interrupted")
    if (target$account$outside < target$account$evaluations) return(NULL)   # no gaussian: a mode may do
    fails_everywhere(target)
  }
  best <- so_far$ends[[1L]]
  refuse_if_falling(model, best$mu, best$mu)
  if (max(abs(best$mu), abs(best$A)) > widest_plausible) refuse_if_falling(model, numeric(model$dim), best$mu)
  list(mu = best$mu, A = best$A, objective = best$F, se = best$se,
       rivals = lapply(so_far$ends[-1L], function(end) end[c("mu", "A", "F", "se")]),
       account = as.list(target$account), interrupted = interrupted)
}

# Keeps the ends of the starts in `so_far$ends`, the best one first.
search_ends <- function(target, starts, key, tol, first, so_far) {
  agreed <- list()
  note <- function(ends) so_far$ends <- c(by_objective(ends), agreed)
  candidates <- list()
  points <- first_points(target, target$dim, starts, key, first)
  for (x in points) {
    candidates <- by_objective(c(candidates, candidates_along(target, descent_path(target, x), key)))
    so_far$ends <- utils::head(candidates, 1L)
  }
  budget <- search_budget(target$dim)
  candidates <- c(distinct(candidates, most = descent_candidates), isotropic_candidates(target, points, key))
  if (!length(candidates)) return(invisible())
  short <- list()
  for (candidate in candidates) {
    best <- if (length(short)) short[[1L]]$F else Inf
    end <- natural_gradient_descent(target, candidate, key, first_share * budget, search_tol(tol, target$dim), best)
    short <- by_objective(c(short, list(c(end, list(descended = candidate$descended)))))
  }
  note(short[1L])
  ends <- list(escape_funnel(target, short[[1L]], key, budget, tol))
  note(ends)
  for (rival in c(short[-1L], distant_candidates(target, ends[[1L]], key, first_share * budget, tol))) {
    if (!isTRUE(rival$F < ends[[1L]]$F + rival_nats)) next
    if (isFALSE(rival$descended) && distance_between(rival, ends[[1L]]) <= distinct_sds) next   # the same optimum
    if (same_optimum(rival, ends)) agreed <- c(agreed, list(rival))
    else ends <- c(ends, rival_ends(target, rival, key, rival_share * budget, tol))
    note(ends)
  }
}

# Descents that begin far from an end, in opposite directions: they find modes that no first point is near.
distant_candidates <- function(target, end, key, budget, tol, pairs = distant_pairs) {
  z <- draw_base(law_of(base_gaussian(), target$dim), key, pairs, iteration = streams[["distant"]])
  points <- Filter(function(x) target$evaluate(matrix(x))$ok, columns_of(end$mu + distant_sds * end$A %*% cbind(z, -z)))
  found <- lapply(points, function(x) candidates_along(target, descent_path(target, x), key, most = 1L))
  found <- Filter(function(x) distance_between(x, end) > distinct_sds && x$F < end$F + rival_nats + target$dim,
                  distinct(by_objective(unlist(found, recursive = FALSE))))
  lapply(found, function(x) natural_gradient_descent(target, x, key, budget, search_tol(tol, target$dim), end$F))
}

# Has another start ended at the optimum that this rough end is close to? Then there is no need to improve it.
same_optimum <- function(rival, ends) {
  any(vapply(ends, function(end) isTRUE(divergence_between(rival, end) < same_optimum_nats), NA))
}

# A rival that is widened may leave its own mode. It is then improved there too, and both ends count.
rival_ends <- function(target, rival, key, budget, tol) {
  end <- escape_funnel(target, rival, key, budget, tol)
  if (distance_between(end, rival) <= distinct_sds) return(list(end))
  stayed <- natural_gradient_descent(target, rival, key, budget, final_tol(tol))
  list(end, stayed)
}

by_objective <- function(found) found[order(vapply(found, function(x) x$F, 0))]

fails_everywhere <- function(target) {
  said <- target$account$first_error
  elvi_abort("The target fails at every point that the search for a start tried (",
             format_count(target$account$evaluations), " of them).",
             if (!is.null(said)) paste0(" The first error was: ", said) else " It is not finite there.",
             " Give a point where it is finite as start = list(mu = ).",
             class = "elvi_error_nonfinite")
}

# ---- paths -----------------------------------------------------------------------------

# Points as Stan starts from, uniform in (-2, 2), the origin and the given one. One outside the
# domain is moved towards the origin; where none gets inside, others are tried, as many as Stan would.
first_points <- function(target, dim, starts, key, first) {
  more <- max(0, starts - 1)
  points <- columns_of(cbind(first, if (is.null(first)) numeric(dim), points_about(key, dim, more)))
  found <- Filter(Negate(is.null), lapply(points, function(x) inside(target, x)))
  if (length(found)) return(c(found, Filter(Negate(is.null), list(inward_point(target, found[[1L]])))))
  others <- columns_of(points_about(key, dim, more + start_retries * starts)[, more + seq_len(start_retries * starts), drop = FALSE])
  utils::head(Filter(function(x) target$evaluate(matrix(x))$ok, others), starts)
}

# A point at an edge of the support, as the origin is one of positive parameters, has no room for a gaussian: a unit further in along
# each parameter that has one of its two neighbours outside. NULL if none has.
inward_point <- function(target, x) {
  d <- length(x)
  signs <- rep_len(c(1, -1, -1, 1, 1), d)
  if (d > widest_inward || all(target$evaluate(x + 1e-3 * cbind(signs, -signs))$ok)) return(NULL)
  both <- target$evaluate(cbind(x + diag(1e-3, d), x - diag(1e-3, d)))$ok
  towards <- both[seq_len(d)] - both[d + seq_len(d)]
  if (all(towards == 0)) return(NULL)
  for (size in 2^-(0:6)) if (target$evaluate(matrix(x + size * towards))$ok) return(x + size * towards)
  NULL
}

# In opposite pairs, so that of two modes on the two sides of the origin each has a start.
points_about <- function(key, dim, n) {
  x <- matrix(start_range * (2 * keyed_uniform(key, dim * ceiling(n / 2)) - 1), dim)
  matrix(rbind(x, -x), dim)[, seq_len(n), drop = FALSE]
}

columns_of <- function(x) lapply(seq_len(ncol(x)), function(j) x[, j])

# uniform numbers from the keyed generator, through the normal distribution function
keyed_uniform <- function(key, n) {
  if (n == 0) return(numeric())
  stats::pnorm(drop(draw_base(law_of(base_gaussian(), n), key, 1L)))
}

inside <- function(target, x, tries = start_halvings) {
  for (k in seq_len(tries)) {
    if (target$evaluate(matrix(x))$ok) return(x)
    x <- x / 2
  }
  NULL
}

# Down from x by a trust-region quasi-Newton method, for which a point outside the domain is
# one of infinite value: the points where it needed a gradient.
descent_path <- function(target, x, most = descent_steps) {
  path <- list()
  last <- NULL
  at <- function(x) {
    if (!identical(last$x, x)) {
      out <- target$evaluate(matrix(x))
      last <<- list(x = x, value = out$value, gradient = drop(out$gradient), ok = out$ok)
    }
    last
  }
  value <- function(x) if (at(x)$ok) last$value else Inf
  gradient <- function(x) {
    if (!at(x)$ok) return(numeric(length(x)))
    path[[length(path) + 1L]] <<- last
    last$gradient
  }
  or_null(suppressWarnings(stats::nlminb(x, value, gradient, control = list(iter.max = most, eval.max = 2 * most))))
  path
}

# Laplace approximations at points of the path, spaced by how far above its end f is there.
candidates_along <- function(target, path, key, most = path_candidates) {
  if (!length(path)) return(NULL)
  f <- vapply(path, function(point) point$value, 0)
  height <- round(log(f - min(f) + 1))
  chosen <- unique(c(which(!duplicated(height)), length(f)))
  found <- lapply(utils::tail(chosen, most), function(i) {
    A <- laplace_root(target, path[[i]])
    if (is.null(A)) return(NULL)
    look <- evaluate_gaussian(target, path[[i]]$x, A, key, candidate_draws, i)
    list(mu = path[[i]]$x, A = A, F = look$F, se = look$se)
  })
  Filter(function(x) !is.null(x) && is.finite(x$F), found)
}

# The best of round gaussians about the first points. The Laplace approximations along a path that falls into a funnel's
# neck are all narrow, and score better than this one does; steps from here do not go into the neck at all.
isotropic_candidates <- function(target, points, key) {
  round <- lapply(points, function(x) lapply(isotropic_sds, function(sd) {
    A <- diag(sd, target$dim)
    look <- evaluate_gaussian(target, x, A, key, candidate_draws, 0)
    list(mu = x, A = A, F = look$F, se = look$se, descended = FALSE)
  }))
  round <- by_objective(unlist(round, recursive = FALSE))
  Filter(function(x) is.finite(x$F), utils::head(round, 1L))
}

# A root of |H|^-1, H the Hessian, |H| its absolute eigenvalues in units of its diagonal; NULL where there is none.
laplace_root <- function(target, point) {
  d <- length(point$x)
  H <- guarded_hessian(target$hessian, point$x) %||% path_hessian(target, point)
  if (is.null(H) || all(diag(H) == 0)) return(NULL)
  unit <- 1 / sqrt(pmax(abs(diag(H)), 1e-300))
  if (!all(is.finite(unit * H * rep(unit, each = d)))) return(NULL)
  e <- eigen(unit * H * rep(unit, each = d), symmetric = TRUE)
  curvature <- pmax(abs(e$values), flattest_curvature * max(abs(e$values)))
  unit * e$vectors * rep(1 / sqrt(curvature), each = d)
}

# By differences of the gradient; NULL when one leaves the domain.
path_hessian <- function(target, point) {
  d <- length(point$x)
  h <- hessian_step * pmax(1, abs(point$x))
  out <- target$evaluate(point$x + diag(h, d))
  if (!all(out$ok)) return(NULL)
  H <- (out$gradient - point$gradient) / rep(h, each = d)
  H <- (H + t(H)) / 2
  if (isTRUE(any(abs(diag(H)) * h > 1e-12 * abs(point$gradient)))) H   # else rounding is all it shows
}

# The best candidates, without those at the optimum of a better one.
distinct <- function(candidates, most = Inf) {
  kept <- list()
  for (candidate in candidates) {
    near <- vapply(kept, function(x) distance_between(x, candidate) < distinct_sds, NA)
    if (!any(near)) kept <- c(kept, list(candidate))
    if (length(kept) == most) break
  }
  kept
}

# Kullback-Leibler divergence of a from b, in nats; NA where b is as flat as numbers get
divergence_between <- function(a, b) {
  M <- or_else(solve(b$A, cbind(a$A, a$mu - b$mu), tol = 0), NA_real_)
  (sum(M^2) - length(a$mu)) / 2 - log_abs_det(a$A) + log_abs_det(b$A)
}

# largest difference of the means, in sds of the wider of the two; a non-finite value counts as far from everything
distance_between <- function(a, b) {
  sd <- pmax(sqrt(rowSums(a$A^2)), sqrt(rowSums(b$A^2)))
  distance <- max(abs(a$mu - b$mu) / sd)
  if (is.nan(distance)) Inf else distance
}
