# The best gaussian in many dimensions: natural gradient steps on the pattern of the Hessian. At the optimum the precision is E[Hessian],
# so a precision on that pattern loses nothing, and memory is that of its factor (root-precision.R). Where no pattern is known and
# the parameters are too many for a full matrix, the root is low rank plus diagonal, from a quasi-Newton path (search-path.R).
#
# A step goes to the precision (1 - rho) P + rho E[H] and to the mean mu - rho P^-1 E[g], from a few antithetic draws. First steps are
# long and are kept while a fresh batch does not show that they are worse; then they shrink as 1/k, so that all batches count
# alike in where they end.

# list(mu, A, F, se, gap, spent, account, reached): from the best of a few gaussians to the estimated optimum
search_wide <- function(model, curvature, key, tol, budget, first = NULL) {
  target <- guarded_target(model)
  target$model <- model
  target <- shaped_target(target, curvature)
  starts <- wide_starts(target, key, first)
  if (!length(starts)) {
    if (target$account$outside < target$account$evaluations) refuse_if_falling(model, numeric(model$dim), numeric(model$dim))
    fails_everywhere(target)
  }
  ends <- lapply(starts, function(at) travel_steps(target, at, key, budget / 8))
  at <- by_objective(ends)[[1L]]
  at <- settle_steps(target, at, key, tol, budget / 2)
  refuse_if_falling(model, at$mu, at$mu)
  at$elsewhere <- wide_elsewhere(target, at, key, budget / 32)
  at$account <- as.list(target$account)
  at
}

# with what roots need to know
shaped_target <- function(target, curvature) {
  target$curvature <- curvature
  if (!is.null(curvature)) target$layout <- precision_layout(curvature$row, curvature$column, target$dim)
  target$shape <- if (is.null(curvature)) "lowrank" else "precision"
  target
}

# ---- where it begins -----------------------------------------------------------------------------------------

# The best Laplace approximation along a quasi-Newton path, and the best of round gaussians about the first point.
wide_starts <- function(target, key, first) {
  x <- inside(target, first %||% numeric(target$dim)) %||% inside(target, start_range * (2 * keyed_uniform(key, target$dim) - 1))
  if (is.null(x)) return(list())
  path <- quasi_newton_path(target, x)
  refuse_if_falling(target$model, x, path$points[[length(path$points)]]$x - x)
  round <- lapply(isotropic_sds, function(sd) wide_candidate(target, x, round_root(target, sd), key))
  found <- by_objective(c(wide_candidates(target, path, key), round))
  found <- Filter(function(at) is.finite(at$F), found)
  descended <- Filter(function(at) isTRUE(at$descended), found)
  unique_starts <- c(utils::head(descended, 1L), utils::head(Filter(function(at) !isTRUE(at$descended), found), 1L))
  if (length(unique_starts) == 2L && unique_starts[[2L]]$F > unique_starts[[1L]]$F + 10 * target$dim) unique_starts <- unique_starts[1L]
  unique_starts
}

# Other places that are nearly as high: from points far away in opposite directions, as the search in few dimensions has them
# (search-start.R), a descent, and natural gradient steps where it ends elsewhere. list(number, distance, behind), or NULL.
wide_elsewhere <- function(target, at, key, budget, pairs = distant_pairs) {
  z <- draw_base(law_of(base_gaussian(), target$dim), key, pairs, iteration = streams[["distant"]])
  sd <- root_sd(at$A)
  apart <- function(mu, own = 0) max(abs(mu - at$mu) / pmax(sd, own))
  found <- list()
  for (x in columns_of(at$mu + distant_sds * root_times(at$A, cbind(z, -z)))) {
    if (!target$evaluate(matrix(x))$ok) next
    path <- quasi_newton_path(target, x)
    n <- length(path$points)
    end <- path$points[[n]]
    if (!is.finite(end$value) || apart(end$x) < wide_distinct_sds) next
    there <- wide_candidate(target, end$x, path_root(target, path, n), key, n, descended = TRUE)
    if (!is.finite(there$F)) next
    there <- travel_steps(target, there, key, budget)
    if (isTRUE(there$F - 2 * sqrt(there$se^2 + at$se^2) < at$F + rival_nats && apart(there$mu, root_sd(there$A)) > wide_distinct_sds)) {
      found <- c(found, list(c(there, list(distance = apart(there$mu, root_sd(there$A))))))
    }
  }
  if (!length(found)) return(NULL)
  best <- by_objective(found)[[1L]]
  list(number = length(found), distance = best$distance, behind = best$F - at$F)
}

wide_candidate <- function(target, x, A, key, iteration = 0, descended = FALSE) {
  if (is.null(A)) return(list(mu = x, A = NULL, F = Inf))
  look <- evaluate_gaussian(target, x, A, key, candidate_draws, iteration)
  list(mu = x, A = A, F = look$F, se = look$se, descended = descended, iteration = iteration)
}

wide_candidates <- function(target, path, key, most = path_candidates) {
  if (!length(path$points)) return(NULL)
  f <- vapply(path$points, function(point) point$value, 0)
  height <- round(log(f - min(f) + 1))
  chosen <- utils::tail(unique(c(which(!duplicated(height)), length(f))), most)
  lapply(chosen, function(i) {
    wide_candidate(target, path$points[[i]]$x, path_root(target, path, i), key, i, descended = TRUE)
  })
}

# P + ridge until it is positive definite, in units of its diagonal
repaired_root <- function(layout, values) {
  diagonal <- layout$row == layout$column
  size <- abs(values[diagonal])
  floor <- max(size, 1e-300) * 1e-8
  for (ridge in c(0, 1e-6, 1e-3, 0.03, 0.3, 1, 3, 10, 100)) {
    v <- values
    v[diagonal] <- if (ridge) pmax(size, floor) * (1 + ridge) else v[diagonal]
    root <- precision_root(layout, v)
    if (!is.null(root)) return(root)
  }
  NULL
}

# ---- one step ------------------------------------------------------------------------------------------------

# What a batch says: the mean gradient, whitened, and what the scale goes by
wide_moments <- function(target, look) list(g = rowMeans(look$r), H = scale_moment(look$A, target, look))

scale_moment <- function(A, target, look) UseMethod("scale_moment")

# the mean curvature, at some of the draws
#' @export
scale_moment.elvi_precision_root <- function(A, target, look) {
  half <- ncol(look$z) %/% 2L
  n <- min(half, (hessians_per_step * look$size / wide_batch) %/% target$curvature$cost)
  mean_curvature(target, look, if (n < 1L) 1L else c(seq_len(n), half + seq_len(n)))
}

# see wide_move()
#' @export
scale_moment.elvi_lowrank_root <- function(A, target, look) {
  off <- root_solve_transposed(A, look$r)   # the gradient less that of the approximation
  rowMeans(off * root_times(A, look$z))
}

mean_curvature <- function(target, look, chosen) {
  x <- look$mu + root_times(look$A, look$z[, chosen, drop = FALSE])
  target$account$evaluations <- target$account$evaluations + target$curvature$cost * length(chosen)
  H <- target$curvature$at(x, root_sd(look$A))
  H <- H[, colSums(!is.finite(H)) == 0, drop = FALSE]
  if (ncol(H)) rowMeans(H)
}

# (mu, A) after a step of size rho; variances grow at most about threefold. NULL where no precision on the way is positive definite.
wide_move <- function(target, mu, A, moments, rho) UseMethod("wide_move", A)

#' @export
wide_move.elvi_precision_root <- function(target, mu, A, moments, rho) {
  if (is.null(moments$H)) return(NULL)
  layout <- A$layout
  g <- root_solve_transposed(A, moments$g)
  for (try in 1:8) {
    P <- (1 - rho) * A$values + rho * moments$H
    fits <- rho <= 0.67 || !is.null(precision_root(layout, P - 0.3 * A$values))
    new <- if (fits) precision_root(layout, P)
    if (!is.null(new)) break
    rho <- rho / 2
  }
  if (is.null(new)) return(NULL)
  list(mu = mu - limited_move(rho * drop(root_times(new, root_crossprod(new, g))), pmax(new$sd, A$sd)), A = new, rho = rho)
}

# A move of the mean: by one standard deviation in the mean over the parameters and by two in any.
limited_move <- function(move, sd) {
  by <- move / sd
  move <- move * min(1, 1 / sqrt(mean(by^2)))
  pmin(pmax(move, -longest_sds * sd), longest_sds * sd)
}

# ---- first steps: as long as a fresh batch allows --------------------------------------------------------------

travel_steps <- function(target, at, key, budget) {
  iteration <- at$iteration %||% 0
  size <- wide_batch
  begun <- target$account$evaluations
  look <- function(at) {
    iteration <<- iteration + 1
    seen <- evaluate_gaussian(target, at$mu, at$A, key, size, iteration)
    c(at[c("mu", "A")], seen[setdiff(names(seen), "iteration")])
  }
  now <- look(at)
  if (!is.finite(now$F)) return(c(at[c("mu", "A")], list(F = Inf, iteration = iteration)))
  rho <- first_step_size
  rejected <- settled <- 0
  while (target$account$evaluations - begun < budget && rejected < most_rejected && settled < 3) {
    to <- wide_move(target, now$mu, now$A, wide_moments(target, now), rho)
    new <- if (is.null(to)) list(F = Inf, se = Inf) else look(to)
    if (is_no_worse(new, now)) {
      settled <- if (is_better(new, now) && now$F - new$F > 0.002 * target$dim) 0 else settled + 1
      now <- new
      rho <- min(1, step_growth * rho)
      rejected <- 0
    } else {
      rho <- rho / 2
      rejected <- rejected + 1
      size <- min(2 * size, 8 * wide_batch)
      again <- look(now)
      if (is.finite(again$F)) now <- again
    }
  }
  now$iteration <- iteration
  now
}

# ---- last steps: averages -----------------------------------------------------------------------------------------

# Steps of 1/k until the remaining noise of the batches, and then the estimated gap, are below `tol`.
settle_steps <- function(target, at, key, tol, budget) {
  begun <- target$account$evaluations
  spent <- function() target$account$evaluations - begun
  iteration <- at$iteration
  size <- wide_batch
  steps <- 0
  repeat {
    # batches as large as the noise requires, so that the number of steps does not grow with it
    noise <- numeric()
    k <- 1
    while (k <= averaged_steps && spent() < budget) {
      iteration <- iteration + 1
      seen <- evaluate_gaussian(target, at$mu, at$A, key, size, iteration)
      if (!is.finite(seen$F)) break
      look <- c(at[c("mu", "A")], seen)
      moments <- wide_moments(target, look)
      noise <- c(noise, sum(moments$g^2))
      to <- wide_move(target, at$mu, at$A, moments, 1 / (k + 1))
      if (!is.null(to)) at[c("mu", "A")] <- to[c("mu", "A")]
      k <- k + 1
    }
    steps <- steps + k
    gap <- wide_gap(target, at, key, iteration, size)
    iteration <- iteration + wide_parts
    reached <- isTRUE(gap$estimate + 2 * gap$se < tol)
    if (reached || spent() >= budget || !is.finite(seen$F)) break
    growth <- min(max(2, 1.5 * gap$estimate / tol, mean(noise) / averaged_steps / tol, na.rm = TRUE), 16)
    size <- min(largest_batch, 2 * ceiling(size * growth / 2))
    size <- min(size, max(wide_batch, 2 * ((budget - spent()) %/% (6 * averaged_steps))))
  }
  at[c("F", "se")] <- gap[c("F", "objective_se")]
  at$gap <- gap[c("estimate", "se", "outside")]
  at[c("iteration", "steps", "reached")] <- list(iteration, steps, reached)
  at
}

# The gap |g|^2/2 + |G|^2/4 in whitened coordinates without bias, by products of independent batches; G by random directions.
wide_gap <- function(target, at, key, iteration, size, parts = wide_parts) {
  looks <- lapply(seq_len(parts), function(p) {
    c(at[c("mu", "A")], evaluate_gaussian(target, at$mu, at$A, key, size, iteration + p))
  })
  probes <- draw_base(law_of(base_gaussian(), target$dim), key, gap_probes, iteration = streams[["gap"]])
  by_part <- lapply(looks, function(look) {
    if (!is.finite(look$F)) return(NULL)
    list(g = rowMeans(look$r), G = wide_residual(target, look, probes))
  })
  by_part <- Filter(Negate(is.null), by_part)
  values <- vapply(looks, function(look) look$F, 0)
  outside <- sum(vapply(looks, function(look) look$outside, 0)) / (parts * size)
  if (length(by_part) < 4L) return(list(estimate = Inf, se = Inf, F = mean(values), objective_se = Inf, outside = outside))
  of <- function(parts) {
    products <- crossprod(parts)
    pairs <- products[upper.tri(products)]
    each <- (rowSums(products) - diag(products)) / (ncol(products) - 1)
    c(mean(pairs), stats::sd(each) / sqrt(ncol(products)))
  }
  mu <- of(vapply(by_part, function(part) part$g / sqrt(2), numeric(target$dim)))
  scale <- of(vapply(by_part, function(part) as.double(part$G) / sqrt(4 * gap_probes), numeric(target$dim * gap_probes)))
  list(estimate = mu[1L] + scale[1L], se = sqrt(mu[2L]^2 + scale[2L]^2), F = mean(values), objective_se = stats::sd(values) / sqrt(parts),
       outside = outside)
}

# G v for directions v: G the whitened curvature less the identity
wide_residual <- function(target, look, probes) UseMethod("wide_residual", look$A)

#' @export
wide_residual.elvi_precision_root <- function(target, look, probes) {
  layout <- look$A$layout
  H <- wide_moments(target, look)$H
  if (is.null(H)) return(probes * NA)
  off <- Matrix::sparseMatrix(i = layout$row, j = layout$column, x = H - look$A$values, dims = rep(layout$dim, 2L), symmetric = TRUE)
  root_crossprod(look$A, as.matrix(off %*% root_times(look$A, probes)))
}

# ---- shapes ------------------------------------------------------------------------------------------------------

# the round gaussian of a standard deviation
round_root <- function(target, sd) wide_shapes[[target$shape]]$round(target, sd)

# an approximation at the i-th point of a path; NULL if there is none
path_root <- function(target, path, i) wide_shapes[[target$shape]]$along(target, path, i)

wide_shapes <- list(
  precision = list(
    round = function(target, sd) {
      layout <- target$layout
      precision_root(layout, ifelse(layout$row == layout$column, 1 / sd^2, 0))
    },
    along = function(target, path, i) {
      x <- path$points[[i]]$x
      target$account$evaluations <- target$account$evaluations + target$curvature$cost
      H <- drop(target$curvature$at(matrix(x), pmax(1, abs(x))))
      if (all(is.finite(H))) repaired_root(target$layout, H)
    }),
  lowrank = list(
    round = function(target, sd) lowrank_root(rep(sd, target$dim), matrix(0, target$dim, 1L)),
    along = function(target, path, i) {
      known <- path_lowrank(path, i, target$dim)
      if (is.null(known)) return(NULL)
      # R R' = D (I + V V')^2 D: directions in which the variance is larger than the diagonal says
      wide <- known$variance > 1.05
      V <- known$directions[, wide, drop = FALSE] * rep(sqrt(sqrt(known$variance[wide]) - 1), each = target$dim)
      lowrank_root(known$sd, if (any(wide)) V else matrix(0, target$dim, 1L))
    }))

# The diagonal moves, the directions stay: a_i <- a_i exp(-rho h_i / 2) with h_i = a_i E (g - p)_i w_i, where x = mu + a w and p is
# the gradient that the approximation itself has.
#' @export
wide_move.elvi_lowrank_root <- function(target, mu, A, moments, rho) {
  r <- lowrank_parts(A)
  h <- pmin(pmax(rho * moments$H, -0.7), 2)
  new <- lowrank_root(r$a * exp(-h / 2), r$V)
  g <- root_solve_transposed(A, matrix(moments$g))
  list(mu = mu - limited_move(rho * drop(root_times(new, root_crossprod(new, g))), root_sd(A)), A = new, rho = rho)
}

#' @export
wide_residual.elvi_lowrank_root <- function(target, look, probes) wide_moments(target, look)$H * probes
