# Where a run starts when the target is only a function: gaussians along quasi-Newton
# paths from several points, judged by their objective, the best of them improved by
# stages (R/stages.R). A hierarchical posterior has no mode (its density grows without
# bound as a group's sd goes to 0), so the end of a path is a candidate like any other
# point of it.

# Beyond this dimension a natural gradient step takes longer than anyone waits.
widest_search <- 400

# What a run of a target that is only a function starts from and is whitened by: what its
# checkpoint has, what was given, or what a search finds. NULL for all others, which have a mode.
find_start <- function(model, control, start, starts, tol, key) {
  searched <- is_user_density(model) && !isTRUE(model$convex) && control$coordinates == "whitened" &&
    model$dim <= widest_search
  if (!is.null(starts)) {
    starts <- check_count(starts, "starts")
    if (!searched) {
      bad_argument("starts", paste("left out: only for a target that is a function, not known to be convex, in",
                                   "whitened coordinates, is a start searched"), describe(starts))
    }
  }
  if (!searched || length(start) && !is.list(start)) return(NULL)
  stored_search(control$checkpoint) %||% given_gaussian(model, start) %||%
    search_start(model, if (is.null(start$mu)) starts %||% 6 else starts %||% 1, key, min(tol, 0.1),
                 first = if (is_point(start$mu, model$dim)) start$mu)
}

is_point <- function(x, dim) is.numeric(x) && length(x) == dim && all(is.finite(x))

# A start with a scale needs no search; what is wrong with it is said by check_start().
given_gaussian <- function(model, start) {
  S <- start$Sigma
  d <- model$dim
  if (is.null(S) || !is_point(start$mu, d) || !is.numeric(S) || !all(is.finite(S))) return(NULL)
  if (!is.matrix(S) && length(S) %in% c(1, d)) S <- diag(S, d)
  if (!identical(dim(S), c(as.integer(d), as.integer(d))) || abs(det(S)) == 0) return(NULL)
  target <- guarded_target(model)
  look <- look_at(target, start$mu, S, c(0, 0), 32L, 0)
  if (!is.finite(look$F)) return(NULL)
  list(mu = as.double(start$mu), A = unname(S), objective = look$F, se = look$se, rivals = list(),
       account = as.list(target$account))
}

stored_search <- function(file) {
  if (is.null(file) || !file.exists(file) || dir.exists(file)) return(NULL)
  read_checkpoint(file)$progress$plan$search
}

# The best gaussian that was found, as x = mu + A z, with `objective` and `se`; `rivals`,
# what other starts came to; `account`, what it cost and where the target failed. An interrupt ends the search with what
# it has.
search_start <- function(model, starts, key, tol = 0.1, first = NULL) {
  target <- guarded_target(model)
  so_far <- list2env(list(ends = list()), parent = emptyenv())
  interrupted <- tryCatch({
    search_ends(target, starts, key, tol, first, so_far)
    FALSE
  }, interrupt = function(condition) TRUE)
  if (!length(so_far$ends)) {
    if (interrupted) elvi_abort("Interrupted before the search for a start had found any.", class = "elvi_error_interrupted")
    if (target$account$outside < target$account$evaluations) return(NULL)   # no gaussian: a mode may do
    fails_everywhere(target)
  }
  best <- so_far$ends[[1L]]
  refuse_if_falling(model, best$mu, best$mu)
  # no density is so wide
  if (max(abs(best$mu), abs(best$A)) > 1e8) refuse_if_falling(model, numeric(model$dim), best$mu)
  list(mu = best$mu, A = best$A, objective = best$F, se = best$se,
       rivals = lapply(so_far$ends[-1L], function(end) end[c("mu", "A", "F", "se")]),
       account = as.list(target$account), interrupted = interrupted)
}

# Puts what it has come to into `so_far$ends`, the best one first.
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
  candidates <- c(distinct(candidates, most = 3L), undescended(target, points, key))
  if (!length(candidates)) return(invisible())
  short <- list()
  for (candidate in candidates) {
    best <- if (length(short)) short[[1L]]$F else Inf
    end <- improve(target, candidate, key, budget / 8, search_tol(tol, target$dim), best)
    short <- by_objective(c(short, list(c(end, list(descended = candidate$descended)))))
  }
  note(short[1L])
  ends <- list(leave_necks(target, short[[1L]], key, budget, tol))
  note(ends)
  for (rival in c(short[-1L], from_afar(target, ends[[1L]], key, budget / 8, tol))) {
    if (!isTRUE(rival$F < ends[[1L]]$F + close_rival)) next
    if (isFALSE(rival$descended) && distance_between(rival, ends[[1L]]) <= apart) next   # nothing new
    if (has_come_to(rival, ends)) agreed <- c(agreed, list(rival))
    else ends <- c(ends, rival_ends(target, rival, key, budget / 2, tol))
    note(ends)
  }
}

# What paths lead to that begin ten sds away from an end, in opposite directions: a mode out there no first point may be near to.
from_afar <- function(target, end, key, budget, tol, pairs = 2L) {
  z <- draw_base(law_of(base_gaussian(), target$dim), key, pairs, iteration = 2^40)
  points <- Filter(function(x) target$evaluate(matrix(x))$ok, columns_of(end$mu + 10 * end$A %*% cbind(z, -z)))
  found <- lapply(points, function(x) candidates_along(target, descent_path(target, x), key, most = 1L))
  found <- Filter(function(x) distance_between(x, end) > apart && x$F < end$F + close_rival + target$dim,
                  distinct(by_objective(unlist(found, recursive = FALSE))))
  lapply(found, function(x) improve(target, x, key, budget, search_tol(tol, target$dim), end$F))
}

# As rough as it is, it is where another start has ended, and going on would lead there.
has_come_to <- function(rival, ends) {
  any(vapply(ends, function(end) isTRUE(divergence_between(rival, end) < same_place), NA))
}

same_place <- 0.5   # nats

# Widened, a rival may leave its own place, which may be a mode of its own: then what it comes to there counts as well.
rival_ends <- function(target, rival, key, budget, tol) {
  end <- leave_necks(target, rival, key, budget, tol)
  if (distance_between(end, rival) <= apart) return(list(end))
  stayed <- improve(target, rival, key, budget, tol / 4)
  list(end, stayed)
}

# nats behind the best end within which another start is worth following: beyond, it would have less than a hundredth of
# the weight
close_rival <- log(100)

search_budget <- function(dim) 6000 + 100 * dim

# rough to begin with: the last stage is a run of elvi() itself
search_tol <- function(tol, dim) max(tol, 0.01 * dim)

by_objective <- function(found) found[order(vapply(found, function(x) x$F, 0))]

fails_everywhere <- function(target) {
  said <- target$account$first_error
  elvi_abort("The target fails at every point where the search for a start looked (",
             format_count(target$account$evaluations), " of them).",
             if (!is.null(said)) paste0(" It first said: ", said) else " It is not finite there.",
             " start = list(mu = ) takes a point where it is.",
             class = "elvi_error_nonfinite")
}

# ---- paths -----------------------------------------------------------------------------

# Points as Stan starts from, uniform in (-2, 2), the origin and the given one. One outside the
# domain is moved towards the origin; where none gets inside, others are tried, as many as Stan would.
first_points <- function(target, dim, starts, key, first) {
  more <- max(0, starts - 1)
  points <- columns_of(cbind(first, if (is.null(first)) numeric(dim), points_about(key, dim, more)))
  found <- Filter(Negate(is.null), lapply(points, function(x) inside(target, x)))
  if (length(found)) return(found)
  others <- columns_of(points_about(key, dim, more + 100 * starts)[, more + seq_len(100 * starts), drop = FALSE])
  utils::head(Filter(function(x) target$evaluate(matrix(x))$ok, others), starts)
}

# In opposite pairs, so that of two modes on the two sides of the origin each has a start.
points_about <- function(key, dim, n) {
  x <- matrix(4 * keyed_uniform(key, dim * ceiling(n / 2)) - 2, dim)
  matrix(rbind(x, -x), dim)[, seq_len(n), drop = FALSE]
}

columns_of <- function(x) lapply(seq_len(ncol(x)), function(j) x[, j])

# uniform numbers from the keyed generator, through the normal law
keyed_uniform <- function(key, n) {
  if (n == 0) return(numeric())
  stats::pnorm(drop(draw_base(law_of(base_gaussian(), n), key, 1L)))
}

inside <- function(target, x, tries = 8L) {
  for (k in seq_len(tries)) {
    if (target$evaluate(matrix(x))$ok) return(x)
    x <- x / 2
  }
  NULL
}

# Down from x by a trust-region quasi-Newton method, for which a point outside the domain is
# one of infinite value: the points where it asked for a gradient.
descent_path <- function(target, x, most = 150L) {
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
candidates_along <- function(target, path, key, most = 5L) {
  if (!length(path)) return(NULL)
  f <- vapply(path, function(point) point$value, 0)
  height <- round(log(f - min(f) + 1))
  chosen <- unique(c(which(!duplicated(height)), length(f)))
  found <- lapply(utils::tail(chosen, most), function(i) {
    A <- laplace_root(target, path[[i]])
    if (is.null(A)) return(NULL)
    look <- look_at(target, path[[i]]$x, A, key, 16L, i)
    list(mu = path[[i]]$x, A = A, F = look$F, se = look$se)
  })
  Filter(function(x) !is.null(x) && is.finite(x$F), found)
}

# The best of round gaussians about the first points. The Laplace approximations along a path that falls into a funnel's
# neck are all narrow, and score better than this one does; steps from here do not go into the neck at all.
undescended <- function(target, points, key) {
  round <- lapply(points, function(x) lapply(10^-(0:4 / 2), function(sd) {
    A <- diag(sd, target$dim)
    look <- look_at(target, x, A, key, 16L, 0)
    list(mu = x, A = A, F = look$F, se = look$se, descended = FALSE)
  }))
  round <- by_objective(unlist(round, recursive = FALSE))
  Filter(function(x) is.finite(x$F), utils::head(round, 1L))
}

# A root of |H|^-1, H the Hessian by differences of the gradient, |H| its absolute
# eigenvalues in units of its diagonal; NULL when a difference leaves the domain.
laplace_root <- function(target, point) {
  d <- length(point$x)
  h <- 1e-5 * pmax(1, abs(point$x))
  out <- target$evaluate(point$x + diag(h, d))
  if (!all(out$ok)) return(NULL)
  H <- (out$gradient - point$gradient) / rep(h, each = d)
  H <- (H + t(H)) / 2
  if (!isTRUE(any(abs(diag(H)) * h > 1e-12 * abs(point$gradient)))) return(NULL)   # rounding is all it shows
  unit <- 1 / sqrt(pmax(abs(diag(H)), 1e-300))
  if (!all(is.finite(unit * H * rep(unit, each = d)))) return(NULL)
  e <- eigen(unit * H * rep(unit, each = d), symmetric = TRUE)
  curvature <- pmax(abs(e$values), 1e-6 * max(abs(e$values)))
  unit * e$vectors * rep(1 / sqrt(curvature), each = d)
}

# means so many sds apart belong to different places
apart <- 2

# The best ones that are not at the place of a better one.
distinct <- function(candidates, most = Inf) {
  kept <- list()
  for (candidate in candidates) {
    near <- vapply(kept, function(x) distance_between(x, candidate) < apart, NA)
    if (!any(near)) kept <- c(kept, list(candidate))
    if (length(kept) == most) break
  }
  kept
}

# Kullback-Leibler divergence of a from b, in nats; NA where b is as flat as numbers get
divergence_between <- function(a, b) {
  M <- tryCatch(solve(b$A, cbind(a$A, a$mu - b$mu), tol = 0), error = function(e) NA_real_)
  (sum(M^2) - length(a$mu)) / 2 - log_abs_det(a$A) + log_abs_det(b$A)
}

# largest difference of the means, in sds of the wider of the two; what is no number is far from everything
distance_between <- function(a, b) {
  sd <- pmax(sqrt(rowSums(a$A^2)), sqrt(rowSums(b$A^2)))
  distance <- max(abs(a$mu - b$mu) / sd)
  if (is.nan(distance)) Inf else distance
}
