# Where a run starts when the target is only a function: gaussians along quasi-Newton
# paths from several points, judged by their objective, the best of them improved by
# stages (R/stages.R). A hierarchical posterior has no mode (its density grows without
# bound as a group's sd goes to 0), so the end of a path is a candidate like any other
# point of it.

# The best gaussian that was found, as x = mu + A z, with `objective` and `se`; `rivals`,
# what other starts came to; `account`, what it cost and where the target failed.
search_start <- function(model, starts, key, tol = 0.1, first = NULL) {
  target <- guarded_target(model)
  paths <- lapply(first_points(target, model$dim, starts, key, first), function(x) {
    candidates_along(target, descend(target, x), key)
  })
  candidates <- by_objective(unlist(paths, recursive = FALSE))
  if (!length(candidates)) fails_everywhere(target)
  budget <- search_budget(model$dim)
  short <- lapply(distinct(candidates, most = 3L), function(candidate) {
    improve(target, candidate, key, budget / 8, search_tol(tol, model$dim))
  })
  short <- by_objective(short)
  best <- leave_necks(target, short[[1L]], key, budget, tol)
  rivals <- Filter(function(rival) isTRUE(rival$F < best$F + close_rival), short[-1L])
  rivals <- lapply(rivals, function(rival) leave_necks(target, rival, key, budget / 2, tol))
  ends <- by_objective(c(list(best), rivals))
  best <- ends[[1L]]
  list(mu = best$mu, A = best$A, objective = best$F, se = best$se, rivals = ends[-1L],
       progress = best$progress, account = as.list(target$account))
}

# nats behind the best end within which another start is worth following, and a word
close_rival <- 5

search_budget <- function(dim) 6000 + 100 * dim

# rough to begin with: the last stage is a run of elvi() itself
search_tol <- function(tol, dim) max(tol, 0.01 * dim)

by_objective <- function(found) found[order(vapply(found, function(x) x$F, 0))]

fails_everywhere <- function(target) {
  said <- target$account$first_error
  elvi_abort("The target fails at every point where the search for a start looked (",
             format_count(target$account$evaluations), " of them).",
             if (!is.null(said)) paste0(" It first said: ", said) else " It is not finite there.",
             class = "elvi_error_nonfinite")
}

# ---- paths -----------------------------------------------------------------------------

# Points as Stan starts from, uniform in (-2, 2), the origin and the given one. One outside the
# domain is moved towards the origin.
first_points <- function(target, dim, starts, key, first) {
  u <- keyed_uniform(key, dim * max(0, starts - 1))
  x <- cbind(first, 0, matrix(4 * u - 2, dim, max(0, starts - 1)))
  Filter(Negate(is.null), lapply(seq_len(ncol(x)), function(j) inside(target, x[, j])))
}

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
descend <- function(target, x, most = 150L) {
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
  tryCatch(suppressWarnings(stats::nlminb(x, value, gradient, control = list(iter.max = most, eval.max = 2 * most))),
           error = function(e) NULL)
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

# A root of |H|^-1, H the Hessian by differences of the gradient, |H| its absolute
# eigenvalues in units of its diagonal; NULL when a difference leaves the domain.
laplace_root <- function(target, point) {
  d <- length(point$x)
  h <- 1e-5 * pmax(1, abs(point$x))
  out <- target$evaluate(point$x + diag(h, d))
  if (!all(out$ok)) return(NULL)
  H <- (out$gradient - point$gradient) / rep(h, each = d)
  H <- (H + t(H)) / 2
  unit <- 1 / sqrt(pmax(abs(diag(H)), 1e-300))
  if (!all(is.finite(unit * H * rep(unit, each = d)))) return(NULL)
  e <- eigen(unit * H * rep(unit, each = d), symmetric = TRUE)
  curvature <- pmax(abs(e$values), 1e-6 * max(abs(e$values)))
  unit * e$vectors * rep(1 / sqrt(curvature), each = d)
}

# The best ones that are not at the place of a better one, in units of the better one's scale.
distinct <- function(candidates, most, apart = 2) {
  kept <- list()
  for (candidate in candidates) {
    near <- vapply(kept, function(x) distance_between(x, candidate) < apart, NA)
    if (!any(near)) kept <- c(kept, list(candidate))
    if (length(kept) == most) break
  }
  kept
}

# largest difference of the means, in sds of the wider of the two
distance_between <- function(a, b) {
  sd <- pmax(sqrt(rowSums(a$A^2)), sqrt(rowSums(b$A^2)))
  max(abs(a$mu - b$mu) / sd)
}
