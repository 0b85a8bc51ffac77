# Group-level terms: exact given the hyperparameters, quadrature over them. A fit is a
# mixture of conditional optima, one per node. See vignette("internals").

# ---- the problem -----------------------------------------------------------------

# What does not depend on theta. `problem`: X, shift, Z, y, weight, frequency (or NULL), offset, family, prior
# (centre, precision), terms, dispersion.
nested_setup <- function(problem, base) {
  loadNamespace("Matrix")   # its methods, not only its functions
  problem$X <- as.matrix(problem$X)
  problem$triangle <- problem$triangle %||% problem_triangle(problem)
  if (!is.null(problem$shift) && is.null(problem$triangle)) problem$X <- problem$X - rep(problem$shift, each = nrow(problem$X))
  n <- nrow(problem$X)
  p <- ncol(problem$X)
  q <- ncol(problem$Z)
  problem$Z <- methods::as(methods::as(problem$Z, "generalMatrix"), "CsparseMatrix")
  problem$weight <- rep_len(problem$weight %||% 1, n)
  problem$frequency <- rep_len(problem$frequency %||% 1, n)
  problem$offset <- rep_len(problem$offset %||% 0, n)
  problem$prior <- list(centre = rep_len(problem$prior$centre %||% 0, p),
                        precision = rep_len(problem$prior$precision %||% 0, p))
  problem$count <- problem$count %||% sum(problem$frequency[problem$weight > 0])   # of observations, to a residual variance
  layout <- hyper_layout(problem)
  entries <- hyper_entries(problem, layout)
  likelihood <- record_of(problem$family)$conditional$likelihood
  dispersion <- if (is.null(problem$dispersion)) "none" else record_of(problem$family)$conditional$dispersion
  rows <- solver_rows(problem)
  plan <- sparse_plan(rows$X, rows$Z, dense_terms(problem), entries, TRUE, c(problem$prior$centre, numeric(q)),
                      list(y = rows$y, weight = rows$weight, offset = rows$offset,
                           record = likelihood_of(problem$family), dispersion = dispersion), row_blocks(problem))
  law <- law_of(base, p + q)
  rule <- cached_quadrature(law, likelihood)
  if (rule$limit <= 0) no_expectation(list(family = problem$family, kind = "glm"), law)
  rule$prior_levels <- list()
  setup <- list(problem = problem, layout = layout, plan = plan, base = base, law = law, rule = rule)
  c(setup, list(constant = evidence_constant(setup)))
}

# The rows as the solver takes them: a gaussian response without groups needs few, see rows-nested.R.
solver_rows <- function(problem) {
  few <- problem$triangle
  if (is.null(few)) return(c(problem[c("X", "Z", "y", "offset")], list(weight = problem$weight * problem$frequency)))
  n <- nrow(few$X)
  c(few, list(Z = problem$Z[seq_len(n), , drop = FALSE], offset = numeric(n), weight = rep(1, n)))
}

# Smooths fill their columns; so do groups that hold much of the data each.
dense_terms <- function(problem) {
  dense <- logical(ncol(problem$Z))
  filled <- dense_columns(problem$Z)
  for (term in problem$terms) dense[term$columns] <- term$kind == "smooth" || mean(filled[term$columns]) > 0.5
  dense
}

# The level of each row in the term with most of them: given the other terms, rows of
# different levels do not depend on each other. NULL without groups.
row_blocks <- function(problem) {
  groups <- Filter(function(term) term$kind == "group", problem$terms)
  if (!length(groups)) return(NULL)
  most <- groups[[which.max(vapply(groups, function(t) length(t$levels), 0))]]
  k <- length(most$coefs)
  J <- length(most$columns) / k
  Z <- problem$Z[, most$columns, drop = FALSE]
  level <- J + seq_len(nrow(Z))   # rows of none are alone
  level[Z@i + 1L] <- (rep(seq_len(ncol(Z)), diff(Z@p)) - 1L) %/% k + 1L
  level
}

# log p(y | theta) = constant - F* + log|A(theta)| / 2 + what depends on the dispersion, at least
evidence_constant <- function(setup) {
  problem <- setup$problem
  proper <- problem$prior$precision > 0
  constant <- record_of(problem$family)$conditional$constant
  alike <- if (all(problem$frequency == 1)) list(seq_along(problem$y)) else split(seq_along(problem$y), problem$frequency)
  data <- problem$constant %||% sum(vapply(alike, function(rows) {
    problem$frequency[rows[1L]] * constant(problem$y[rows], problem$weight[rows])
  }, 0))
  setup$law$entropy - (sum(proper) + ncol(problem$Z)) / 2 * log(2 * pi) +
    sum(log(problem$prior$precision[proper])) / 2 + data
}

dispersion_at <- function(setup, theta) {
  if (length(setup$layout$dispersion)) exp(theta[[setup$layout$dispersion]]) else 1
}

# What the dispersion adds to the log likelihood, and its derivative in the logarithm
dispersion_part <- function(setup, theta, solved = NULL) {
  if (!length(setup$layout$dispersion)) return(list(value = 0, slope = NULL))
  hyper_of(setup)$part(theta[[setup$layout$dispersion]], setup$problem, solved)
}

hyper_of <- function(setup) family_records[[setup$plan$record]]$conditional$hyper

# ---- the evidence ----------------------------------------------------------------------

# Conditional optima at several theta: each a list with value (log p(theta, y), a lower
# bound), slope (its gradient) and the solution. `from`: solutions to start from.
evidence_at <- function(setup, thetas, from = NULL, tol = 1e-7) {
  precisions <- lapply(thetas, function(theta) hyper_precision(setup$problem, setup$layout, theta))
  settings <- Map(function(theta, precision, from) {
    dispersion <- dispersion_at(setup, theta)
    c(precision[c("A", "definite", "inverse")], list(dispersion = dispersion),
      if (is.null(from)) c(list(mu = NULL), start_of(setup$plan, dispersion))
      else list(mu = from$mu, eta = NULL, c = from$c))
  }, thetas, precisions, from %||% vector("list", length(thetas)))
  solved <- solve_settings(setup$plan, setup$rule, settings, tol)
  # a bad start must not be the end
  again <- which(vapply(solved, function(s) s$failed, NA) & lengths(from %||% list(NULL)) > 0)
  if (length(again)) {
    fresh <- evidence_at(setup, thetas[again], NULL, tol)
    solved[again] <- lapply(fresh, function(f) f$solution)
  }
  Map(function(theta, precision, s) {
    if (s$failed) return(list(theta = theta, value = -Inf, slope = rep(NA_real_, length(theta)), solution = s))
    prior <- hyper_prior(setup$problem, setup$layout, theta)
    part <- dispersion_part(setup, theta, s)
    slope <- prior$slope + hyper_chain(setup$problem, setup$layout, precision, s$moment)
    if (length(setup$layout$dispersion)) slope[setup$layout$dispersion] <- slope[setup$layout$dispersion] + part$slope
    lean <- lean_at(setup, theta)
    list(theta = theta, value = prior$value + setup$constant + precision$log_det / 2 + part$value - s$objective + lean,
         slope = slope + (setup$lean$slope %||% 0), solution = s)
  }, thetas, precisions, solved)
}

# what a linear correction of the evidence, if there is one, adds at theta: see leaning()
lean_at <- function(setup, theta) {
  if (is.null(setup$lean)) 0 else sum(setup$lean$slope * (theta - setup$lean$at))
}

# ---- the mode ------------------------------------------------------------------------

# Where to begin: standard deviations of half a unit of the predictor, or of the
# residuals.
start_theta <- function(setup) {
  problem <- setup$problem
  layout <- setup$layout
  theta <- numeric(layout$length)
  unit <- 1
  if (is_quadratic(setup$plan)) {
    few <- problem$triangle %||% list(X = cbind(1, problem$X), y = problem$y - problem$offset,
                                      root = sqrt(problem$weight * problem$frequency))
    rest <- stats::lm.fit(few$X * (few$root %||% 1), few$y * (few$root %||% 1))$residuals
    unit <- sqrt(sum(rest^2) / max(problem$count, 1))
    if (!is.finite(unit) || unit <= 0) unit <- 1
  }
  for (t in seq_along(layout$terms)) {
    slot <- layout$terms[[t]]
    Z <- problem$Z[, problem$terms[[t]]$columns, drop = FALSE]
    square <- rowSums(matrix(Matrix::colSums(Z^2), slot$k)) / max(1, nrow(Z))
    theta[slot$sd] <- log(0.5 * unit / sqrt(ifelse(square > 0, square, 1)))
  }
  if (length(layout$dispersion)) theta[layout$dispersion] <- hyper_of(setup)$start(unit)
  theta
}

# Curvature of a full data fit: that of EM's steps, which are too short rather than too long
first_curvature <- function(setup) {
  layout <- setup$layout
  out <- numeric(layout$length)
  for (slot in layout$terms) {
    out[slot$sd] <- 2 * slot$J
    out[slot$cor] <- slot$J
  }
  if (length(layout$dispersion)) out[layout$dispersion] <- hyper_of(setup)$curvature(setup$problem$count)
  pmax(out, 1)
}

# BFGS with exact gradients; each optimum starts from the last. Ends when the next step
# would gain less than `enough`: the nodes find their own way from there.
evidence_mode <- function(setup, tol, enough = 1e-4, most = 100L, say = NULL, from = NULL) {
  at <- evidence_at(setup, list(from$theta %||% start_theta(setup)), if (!is.null(from)) list(from$solution), tol = tol)[[1L]]
  if (!is.finite(at$value)) no_conditional(setup, at$theta)
  evaluations <- 1L
  B <- from$inverse %||% diag(1 / first_curvature(setup), length(at$theta))   # inverse curvature
  fresh <- is.null(from)
  while (evaluations < most) {
    step <- drop(B %*% at$slope)
    gain <- sum(step * at$slope) / 2
    if (!is.finite(gain) || gain <= 0) {
      if (fresh) break
      B <- diag(1 / first_curvature(setup), length(at$theta))
      fresh <- TRUE
      next
    }
    if (gain < enough && max(abs(step)) < 0.2) break
    step <- step * min(1, 1.5 / max(abs(step)))
    new <- NULL
    size <- 1
    repeat {
      new <- evidence_at(setup, list(at$theta + size * step), list(at$solution), tol)[[1L]]
      evaluations <- evaluations + 1L
      if (new$value >= at$value + 1e-4 * size * sum(step * at$slope) - 1e-8 * abs(at$value)) break
      size <- size * if (is.finite(new$value)) {
        slope <- sum(step * at$slope) * size
        min(max(slope / (2 * (slope + at$value - new$value)), 0.1), 0.5)
      } else 0.25
      if (size < 1e-3 || evaluations >= most) break
    }
    if (new$value < at$value) {
      if (fresh) break
      B <- diag(1 / first_curvature(setup), length(at$theta))
      fresh <- TRUE
      next
    }
    s <- new$theta - at$theta
    y <- at$slope - new$slope
    sy <- sum(s * y)
    if (sy > 1e-10 * sqrt(sum(s^2) * sum(y^2))) {
      if (fresh) B <- B * sy / sum(y * (B %*% y))
      By <- drop(B %*% y)
      B <- B + (1 + sum(y * By) / sy) * tcrossprod(s) / sy - (outer(By, s) + outer(s, By)) / sy
      fresh <- FALSE
    }
    at <- new
    if (!is.null(say)) say(sprintf("mode: evaluation %d, log evidence %.6g", evaluations, at$value))
  }
  c(at, list(evaluations = evaluations, inverse = B))
}

no_conditional <- function(setup, theta) {
  elvi_abort("No conditional optimum was found at the first hyperparameters: the fixed effects are not identified ",
             "under their flat prior, or predictors overflow. Give proper priors, or rescale the data.",
             class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "prior"))
}

# -Hessian of the log evidence by differences of its exact gradient
evidence_hessian <- function(setup, mode, tol) {
  H <- length(mode$theta)
  h <- pmin(pmax(0.3 * sqrt(pmax(diag(mode$inverse), 0)), 0.01), 0.3)
  thetas <- lapply(c(seq_len(H), -seq_len(H)), function(j) {
    mode$theta + sign(j) * h * (seq_len(H) == abs(j))
  })
  around <- evidence_at(setup, thetas, rep(list(mode$solution), 2L * H), tol)
  slopes <- vapply(around, function(a) a$slope, numeric(H))
  slopes <- matrix(slopes, H)
  out <- (slopes[, H + seq_len(H), drop = FALSE] - slopes[, seq_len(H), drop = FALSE]) / rep(2 * h, each = H)
  list(hessian = (out + t(out)) / 2, evaluations = 2L * H, drift = solution_drift(around, h), around = around, h = h)
}

# What draws correct the evidence by can be steep in theta: many groups of few rows each move the mode by whole standard
# deviations. The nodes have to be where the corrected law is, so the correction's slope joins the evidence, and the
# mode is looked for again. The nodes' weights have the whole correction, whatever was taken here.
leaning <- function(setup, mode, curved, control, tol, enough = 0.3, most = 4L, say = NULL) {
  evaluations <- 0L
  for (again in seq_len(most)) {
    slope <- correction_slope(setup, curved, control)
    axes <- theta_axes(curved$hessian)
    shift <- axes$sd * crossprod(axes$vectors, slope - (setup$lean$slope %||% 0))
    if (!all(is.finite(shift)) || max(abs(shift)) < enough) break
    setup$lean <- list(at = mode$theta, slope = slope)
    mode <- evidence_mode(setup, tol, say = say, from = mode)
    curved <- evidence_hessian(setup, mode, tol)
    evaluations <- evaluations + mode$evaluations + curved$evaluations
  }
  list(setup = setup, mode = mode, curved = curved, evaluations = evaluations)
}

correction_slope <- function(setup, curved, control, draws = 100L) {
  H <- length(curved$h)
  none <- numeric(H)
  if (is_quadratic(setup$plan) || !isTRUE(control$correct) || isTRUE(control$draws == 0)) return(none)
  if (!all(vapply(curved$around, function(f) is.finite(f$value), NA))) return(none)
  checked <- check_by_draws(setup, curved$around, draws, control)
  if (!separate_blocks(setup) && max(node_k(checked)) > 0.5) return(none)
  correction <- corrections(setup, checked)
  (correction[seq_len(H)] - correction[H + seq_len(H)]) / (2 * curved$h)
}

# Derivatives of the conditional optimum in theta, mu and log c, from those around the mode
solution_drift <- function(around, h) {
  H <- length(h)
  lapply(seq_len(H), function(j) {
    up <- around[[j]]$solution
    down <- around[[H + j]]$solution
    if (up$failed || down$failed) return(list(mu = 0, log_c = 0))
    list(mu = (up$mu - down$mu) / (2 * h[j]),
         log_c = ifelse(up$c > 0 & down$c > 0, log(up$c / down$c), 0) / (2 * h[j]))
  })
}

# The optimum at theta to first order, from one solved nearby: a better start than that
start_near <- function(near, theta, drift) {
  by <- theta - near$theta
  mu <- near$solution$mu
  log_c <- 0
  for (j in seq_along(by)) {
    mu <- mu + by[j] * drift[[j]]$mu
    log_c <- log_c + by[j] * drift[[j]]$log_c
  }
  list(mu = mu, c = near$solution$c * exp(pmin(pmax(log_c, -1), 1)))
}

# Axes of the posterior of theta: eigenvectors, with standard deviations that are neither
# absurdly long in flat directions nor those of a saddle.
theta_axes <- function(hessian) {
  e <- eigen(hessian, symmetric = TRUE)
  list(vectors = e$vectors, sd = 1 / sqrt(pmax(e$values, 0.5)))
}

# How far the log density really takes to fall by 1 along each axis, on either side, in
# units of the standard deviation's sqrt(2): rows are axes, columns sides.
axis_widths <- function(setup, mode, axes, drift, tol) {
  H <- length(mode$theta)
  sides <- c(seq_len(H), -seq_len(H))
  reach <- rep(sqrt(2), 2L * H)
  thetas <- Map(function(j, r) mode$theta + sign(j) * r * axes$sd[abs(j)] * axes$vectors[, abs(j)], sides, reach)
  found <- evidence_at(setup, thetas, lapply(thetas, start_near, near = mode, drift = drift), tol)
  fall <- pmax(mode$value - vapply(found, function(f) f$value, 0), 0.05)
  list(width = matrix(pmin(pmax(1 / sqrt(fall), 0.4), 2.5), H, 2L), evaluations = 2L * H, found = found)
}

# ---- nodes ---------------------------------------------------------------------------

# Nodes in coordinates of the axes, with the log weight of the grid and whether they are
# in the next smaller one, each with its solution.

# A few hyperparameters: the trapezoid rule on a lattice, which converges faster than any
# power for densities that fall off, however skewed. From the mode outwards, as long as
# the gradient there says that a neighbour has not fallen by `fall`. Every other point, as
# on a chess board, is the next smaller grid.
lattice_nodes <- function(setup, mode, axes, drift, step, tol, most = 2000L, say = NULL) {
  H <- length(mode$theta)
  fall <- c(8, 7, 7.5, 8, 8.5)[H]
  move <- axes$vectors %*% diag(axes$sd * step, H)   # a step along each axis
  place <- matrix(0L, 1L, H)
  found <- list(mode[c("theta", "value", "slope", "solution")])
  key <- function(z) apply(z, 1L, paste, collapse = " ")
  open <- 1L
  moves <- rbind(diag(1L, H), -diag(1L, H))
  while (length(open) && nrow(place) < most) {
    top <- max(vapply(found, function(f) f$value, 0))
    ahead <- lapply(open, function(i) {
      gain <- drop(crossprod(move, found[[i]]$slope))
      guess <- found[[i]]$value + c(gain, -gain) - step^2 / 2
      alive <- is.finite(guess) & guess > top - fall
      list(place = (moves + rep(place[i, ], each = 2L * H))[alive, , drop = FALSE], parent = rep(i, sum(alive)))
    })
    next_place <- do.call(rbind, lapply(ahead, function(a) a$place))
    parent <- unlist(lapply(ahead, function(a) a$parent))
    if (!length(parent)) break
    new <- !duplicated(key(next_place)) & !key(next_place) %in% key(place)
    next_place <- next_place[new, , drop = FALSE]
    parent <- parent[new]
    if (!length(parent)) break
    thetas <- lapply(seq_along(parent), function(i) mode$theta + drop(move %*% next_place[i, ]))
    open <- nrow(place) + seq_along(parent)
    from <- Map(start_near, found[parent], thetas, MoreArgs = list(drift = drift))
    found <- c(found, evidence_at(setup, thetas, from, tol))
    place <- rbind(place, next_place)
    if (!is.null(say)) say(sprintf("nodes: %d solved", nrow(place)))
  }
  cell <- sum(log(axes$sd)) + H * log(step)
  list(z = step * place, found = found, log_rule = rep(cell, nrow(place)), step = step, move = move, fall = fall,
       log_coarse = ifelse(rowSums(place) %% 2 == 0, cell + log(2), -Inf), evaluations = nrow(place) - 1L)
}

# Twice as many nodes: the centres of the lattice's cells join it.
refine_lattice <- function(setup, grid, drift, tol) {
  H <- ncol(grid$z)
  top <- max(vapply(grid$found, function(f) f$value, 0))
  corners <- as.matrix(expand.grid(rep(list(c(-0.5, 0.5)), H)))
  ahead <- lapply(seq_along(grid$found), function(i) {
    guess <- grid$found[[i]]$value + drop(corners %*% crossprod(grid$move, grid$found[[i]]$slope))
    alive <- is.finite(guess) & guess > top - grid$fall
    list(place = (rep(grid$z[i, ], each = nrow(corners)) / grid$step + corners)[alive, , drop = FALSE],
         parent = rep(i, sum(alive)))
  })
  place <- do.call(rbind, lapply(ahead, function(a) a$place))
  parent <- unlist(lapply(ahead, function(a) a$parent))
  new <- !duplicated(round(2 * place))
  place <- place[new, , drop = FALSE]
  parent <- parent[new]
  origin <- grid$found[[1L]]$theta
  thetas <- lapply(seq_along(parent), function(i) origin + drop(grid$move %*% place[i, ]))
  found <- evidence_at(setup, thetas, Map(start_near, grid$found[parent], thetas, MoreArgs = list(drift = drift)), tol)
  half <- if (H == 1L) 0.5 else 1
  list(z = rbind(grid$z, grid$step * place), found = c(grid$found, found), step = grid$step * half,
       move = grid$move * half, fall = grid$fall,
       log_rule = rep(grid$log_rule[1L] - log(2), length(grid$found) + length(found)),
       log_coarse = c(grid$log_rule, rep(-Inf, length(found))),
       evaluations = grid$evaluations + length(found))
}

# More nodes as long as they change the answer, which in one dimension can go on, and in five has many already
settled_lattice <- function(setup, mode, axes, drift, step, tol, enough = 0.02, say = NULL) {
  grid <- lattice_nodes(setup, mode, axes, drift, step, tol, say = say)
  for (again in seq_len(c(3L, 1L, 1L, 1L, 0L)[length(mode$theta)])) {
    if (!isTRUE(grid_change(setup, grid) >= enough)) break
    grid <- refine_lattice(setup, grid, drift, tol)
    if (!is.null(say)) say(sprintf("nodes: %d solved, after refinement", length(grid$found)))
  }
  grid
}

# How far the hyperparameters' means move from the next smaller grid, in their sds, or
# their sds, relative
grid_change <- function(setup, grid) {
  values <- vapply(grid$found, function(f) f$value, 0)
  fit <- list(setup = setup, hyper = list(theta = do.call(rbind, lapply(grid$found, function(f) f$theta))))
  here <- hyper_moments(fit, normalised(values + grid$log_rule))
  there <- hyper_moments(fit, normalised(values + grid$log_coarse))
  max(abs(here$mean - there$mean) / here$sd, abs(there$sd / here$sd - 1))
}

# The lattice's step, in standard deviations: that of a tenth of a percent for a normal
# density on the chess board. NULL where there would be too many nodes for the size of the
# problem.
lattice_step <- function(setup, nodes) {
  H <- setup$layout$length
  if (!is.null(nodes)) return(if (nodes > 3 && H <= 4L) 7 / (nodes - 1))
  if (H > 5L) return(NULL)
  step <- c(0.75, 1, 1.2, 1.4, 1.7)[H]
  number <- c(10, 41, 127, 329, 1500)[H]
  if (H <= 2L || number * solve_cost(setup$plan) < 3e9) step
}

# operations of a conditional optimum, roughly
solve_cost <- function(plan) {
  tail <- plan$pattern$dim - plan$pattern$head
  entries <- length(plan$entry) / plan$rows + plan$dense
  pass <- plan$rows * (entries^2 * 2 + if (is_quadratic(plan)) 10 else 400) +
    sum(as.double(diff(plan$pattern$start))^2) * 2 + tail^3
  pass * if (is_quadratic(plan)) 1 else 8
}

# More of them: importance sampling from a quasi-random set, in pairs on either side of the middle, calibrated by the exact
# gradients at the nodes. The first nodes are placed by the mode and its curvature, the next as many by mean and
# covariance of those before, and again until the last half hardly changes the answer; without it the rule is the next
# smaller one.
sampled_nodes <- function(setup, mode, axes, drift, width, tol, number, enough = 0.035, say = NULL) {
  H <- length(mode$theta)
  proposals <- list()
  counts <- c()
  found <- list()
  log_rule <- NULL
  repeat {
    proposals <- c(proposals, list(if (length(found)) next_proposal(theta, weight) else first_proposal(mode, axes, width)))
    counts <- c(counts, ceiling(max(number$first, length(found)) / 2) * 2)
    new <- length(found) / 2 + seq_len(counts[length(counts)] / 2)
    points <- proposed_points(proposals[[length(counts)]], quasi_random(max(new), H)[new, , drop = FALSE])
    thetas <- lapply(seq_len(ncol(points)), function(i) points[, i])
    for (part in split(seq_along(thetas), (seq_along(thetas) - 1L) %/% 20L)) {   # so that there is something to say
      found <- c(found, evidence_at(setup, thetas[part], lapply(thetas[part], start_near, near = mode, drift = drift), tol))
      if (!is.null(say)) say(sprintf("nodes: %d of %d solved", length(found), sum(counts)))
    }
    values <- vapply(found, function(f) f$value, 0)
    theta <- vapply(found, function(f) f$theta, numeric(H))
    last_rule <- log_rule
    log_rule <- calibrated_rule(values, -mixed_density(proposals, counts, theta), found, mode, axes)
    weight <- normalised(ifelse(is.finite(values), values + log_rule, -Inf))
    log_coarse <- if (is.null(last_rule)) first_half(values, -mixed_density(proposals, counts, theta), found, mode, axes)
                  else c(last_rule, rep(-Inf, counts[length(counts)]))
    grid <- list(z = scaled_away(theta, mode, axes, width), found = found, log_rule = log_rule, log_coarse = log_coarse,
                 evaluations = length(found))
    grid$noise <- sqrt(sum(weight^2))   # of a mean in sds, had the nodes been drawn at random and not calibrated
    settled <- length(counts) > 1L && grid$noise < enough && isTRUE(grid_change(setup, grid) < enough)
    if (settled || 2 * length(found) > number$most) return(counting_nodes(grid, values))
  }
}

# a student law with its own scale on each side of each axis: tails of a standard deviation near 0 fall off no
# faster than exponentially in its logarithm
tail_df <- 6
tail_unit <- sqrt((tail_df - 2) / tail_df)

first_proposal <- function(mode, axes, width) {
  list(centre = mode$theta, vectors = axes$vectors, right = axes$sd * width[, 1L], left = axes$sd * width[, 2L])
}

# by the moments of weighted points, the columns of theta
next_proposal <- function(theta, weight) {
  mean <- drop(theta %*% weight)
  away <- theta - mean
  axes <- eigen(away %*% (weight * t(away)), symmetric = TRUE)
  along <- crossprod(axes$vectors, away)
  side <- function(sign) {
    there <- (sign * along > 0) * rep(weight, each = nrow(along))
    sqrt(pmax(rowSums(there * along^2) / pmax(rowSums(there), 1e-300), 0.1 * axes$values))
  }
  list(centre = mean, vectors = axes$vectors, right = side(1), left = side(-1))
}

proposed_points <- function(proposal, u) {
  z <- t(stats::qt(u, tail_df) * tail_unit)
  z <- cbind(z, -z)[, order(rep(seq_len(ncol(z)), 2L)), drop = FALSE]
  proposal$centre + proposal$vectors %*% (z * ifelse(z > 0, proposal$right, proposal$left))
}

# log density of points drawn `counts` times from each of the proposals
mixed_density <- function(proposals, counts, theta) {
  parts <- vapply(seq_along(proposals), function(k) {
    along <- crossprod(proposals[[k]]$vectors, theta - proposals[[k]]$centre)
    scale <- ifelse(along > 0, proposals[[k]]$right, proposals[[k]]$left) * tail_unit
    log(counts[k]) + colSums(stats::dt(along / scale, tail_df, log = TRUE) - log(scale))
  }, numeric(ncol(theta)))
  parts <- matrix(parts, ncol(theta))
  top <- apply(parts, 1L, max)
  top + log(rowSums(exp(parts - top)))
}

first_half <- function(values, log_rule, found, mode, axes) {
  half <- seq_along(values) <= length(values) / 2
  ifelse(half, replace(log_rule, half, calibrated_rule(values[half], log_rule[half], found[half], mode, axes)), -Inf)
}

# in units of the axes' sides, one row per point
scaled_away <- function(theta, mode, axes, width) {
  z <- crossprod(axes$vectors, theta - mode$theta) / axes$sd
  t(z / ifelse(z > 0, width[, 1L], width[, 2L]))
}

# nodes without weight say nothing and cost as much as others later
counting_nodes <- function(grid, values) {
  weight <- pmax(normalised(values + grid$log_rule), normalised(values + grid$log_coarse))
  keep <- weight > 1e-5 * max(weight)
  for (name in c("log_rule", "log_coarse")) grid[[name]] <- grid[[name]][keep]
  grid$z <- grid$z[keep, , drop = FALSE]
  grid$found <- grid$found[keep]
  grid
}

# Points that fill the cube evenly: multiples of powers of a root of x^(H + 1) = x + 1, the golden ratio for H = 1
# (Roberts, 2018)
quasi_random <- function(n, H) {
  root <- stats::uniroot(function(x) x^(H + 1) - x - 1, c(1, 2), tol = 1e-14)$root
  outer(seq_len(n), root^-seq_len(H), function(i, a) (0.5 + i * a) %% 1)
}

# Under the density of theta the gradient g of its logarithm has mean 0, and (theta - mode) g' has mean -I. Weights are
# tilted, as little as can be, such that they have these moments: for a normal density that makes its mean
# and covariance exact, wherever the nodes are.
calibrated_rule <- function(values, log_rule, found, mode, axes) {
  usable <- is.finite(values)
  H <- length(mode$theta)
  by <- axes$vectors %*% diag(axes$sd, H)
  weight <- normalised(ifelse(usable, values + log_rule, -Inf))
  away <- vapply(found, function(f) drop(solve(by, f$theta - mode$theta)), numeric(H))
  slope <- vapply(found, function(f) if (is.finite(f$value)) drop(crossprod(by, f$slope)) else numeric(H), numeric(H))
  away <- matrix(away, H)
  slope <- matrix(slope, H)
  low <- which(lower.tri(diag(H), diag = TRUE), arr.ind = TRUE)
  second <- away[low[, 1L], , drop = FALSE] * slope[low[, 2L], , drop = FALSE] +
    away[low[, 2L], , drop = FALSE] * slope[low[, 1L], , drop = FALSE] + 2 * (low[, 1L] == low[, 2L])
  for (h in list(rbind(slope, second), slope)) {
    if (sum(usable) < 2 * nrow(h)) next
    tilt <- tilted(weight, t(h))
    if (!is.null(tilt)) return(log_rule + tilt)
  }
  log_rule
}

# log w' / w for weights w' = w exp(h lambda) / sum of mean 0 in the columns of h; NULL where there are none nearby
tilted <- function(weight, h, most = 3, steps = 50L) {
  lambda <- numeric(ncol(h))
  for (step in seq_len(steps)) {
    tilt <- drop(h %*% lambda)
    top <- max(tilt[weight > 0])
    w <- weight * exp(tilt - top)
    total <- sum(w)
    w <- w / total
    mean <- colSums(w * h)
    covariance <- crossprod(sqrt(w) * sweep(h, 2L, mean))
    if (max(abs(mean) / sqrt(pmax(diag(covariance), 1e-300))) < 1e-8) {
      spread <- sqrt(sum(w * (tilt - sum(w * tilt))^2))
      return(if (spread < most) tilt - top - log(total))
    }
    move <- tryCatch(solve(covariance + diag(1e-10 * max(diag(covariance)), ncol(h)), mean), error = function(e) NULL)
    if (is.null(move)) return(NULL)
    by <- min(1, 2 / max(abs(h[weight > 0, , drop = FALSE] %*% move)))
    lambda <- lambda - by * move
  }
  NULL
}

# how many nodes: some for each moment that calibrates them; no more than the time that each takes allows
sampled_number <- function(setup, nodes) {
  H <- setup$layout$length
  moments <- H + H * (H + 1) / 2
  if (!is.null(nodes)) return(list(first = nodes * moments / 8, most = nodes * moments))
  most <- min(3500, max(8 * moments, 4e10 / solve_cost(setup$plan)))
  list(first = min(10 * moments, most / 2), most = most)
}

# Few nodes, where these are asked for: a central composite design that integrates polynomials of degree 5 against
# a normal density, all weights positive; without its corners, degree 3. On each side of
# each axis the density has its own standard deviation.
composite_nodes <- function(setup, mode, axes, drift, width, tol, say = NULL) {
  H <- length(mode$theta)
  corners <- fraction_corners(H)
  far <- sqrt(H + 2)
  z <- rbind(numeric(H), far * diag(H), -far * diag(H), sqrt((H + 2) / H) * corners)
  m <- nrow(corners)
  weight <- c(2 / (H + 2), rep(1 / (H + 2)^2, 2L * H), rep((H / (H + 2))^2 / m, m))
  small <- c(2 / (H + 2), rep(1 / (2 * (H + 2)), 2L * H), numeric(m))
  if (!m) weight <- small   # too many directions for corners
  wide <- t(apply(z, 1L, function(zi) ifelse(zi > 0, width[, 1L], ifelse(zi < 0, width[, 2L], rowMeans(width)))))
  wide <- matrix(wide, nrow(z)) * rep(axes$sd, each = nrow(z))
  thetas <- lapply(seq_len(nrow(z))[-1L], function(i) mode$theta + drop(axes$vectors %*% (wide[i, ] * z[i, ])))
  found <- c(list(mode[c("theta", "value", "slope", "solution")]),
             evidence_at(setup, thetas, lapply(thetas, start_near, near = mode, drift = drift), tol))
  normal <- H / 2 * log(2 * pi) + rowSums(z^2) / 2 + rowSums(log(wide))
  list(z = z, found = found, log_rule = log(weight) + normal, log_coarse = log(small) + normal,
       evaluations = length(thetas))
}

# corners of a cube, or a fraction of them that keeps all products of four directions apart
fraction_corners <- function(H) {
  words <- switch(as.character(H), "5" = list(1:4), "6" = list(1:5), "7" = list(1:6),
                  "8" = list(1:4, c(1, 2, 5, 6)), "9" = list(c(1, 3, 4, 6, 7), c(2, 3, 5, 6, 7)),
                  "10" = list(c(1, 2, 3, 7), c(2, 3, 4, 5), c(1, 3, 4, 6)), list())
  if (H > 10L) return(matrix(0, 0L, H))
  free <- H - length(words)
  basic <- as.matrix(expand.grid(rep(list(c(-1, 1)), free)))
  extra <- vapply(words, function(word) apply(basic[, word, drop = FALSE], 1L, prod), numeric(nrow(basic)))
  unname(cbind(basic, extra))
}

# ---- the fit ---------------------------------------------------------------------------

# nodes: NULL, 1 (the mode alone), 2 or 3 (a composite design), or more: a lattice with so many along seven standard
# deviations, or so many for each moment of a sample. draws: of the check at each node, 0 for none. correct: the
# weights, by these draws? seed_key: of the draws, which are the same in every fit without one.
nested_control <- function(control) {
  defaults <- list(nodes = NULL, tol = 5e-7, progress = FALSE, threads = NULL, draws = NULL, correct = TRUE,
                   seed_key = NULL)
  for (name in names(control)) defaults[name] <- list(control[[name]])
  defaults
}

nested_fit <- function(problem, base = base_gaussian(), control = list()) {
  control <- nested_control(control)
  if (!is.null(control$threads)) {
    old <- options(elvi.threads = control$threads)
    on.exit(options(old))
  }
  setup <- nested_setup(problem, base)
  say <- if (isTRUE(control$progress)) patient_voice()
  H <- setup$layout$length
  tol <- control$tol
  mode <- if (H) evidence_mode(setup, 10 * tol, say = say)
          else c(evidence_at(setup, list(numeric()), tol = tol)[[1L]], list(evaluations = 1L))
  if (!is.finite(mode$value)) no_conditional(setup, mode$theta)
  evaluations <- mode$evaluations
  alone <- identical(as.numeric(control$nodes), 1)
  if (alone) mode <- settled_mode(setup, mode, tol)
  if (H && !alone) {
    leant <- leaning(setup, mode, evidence_hessian(setup, mode, 10 * tol), control, 10 * tol, say = say)
    setup <- leant$setup
    mode <- leant$mode
    curved <- leant$curved
    axes <- theta_axes(curved$hessian)
    mode <- settled_mode(setup, mode, tol)
    sides <- axis_widths(setup, mode, axes, curved$drift, 10 * tol)
    evaluations <- evaluations + 2L * H + leant$evaluations + sides$evaluations
    step <- lattice_step(setup, control$nodes)
    if (!is.null(step)) {
      axes$sd <- axes$sd * pmax(rowMeans(sides$width), 0.5)
      grid <- settled_lattice(setup, mode, axes, curved$drift, step, tol, say = say)
    } else if (isTRUE(control$nodes <= 3) || H <= 4L) {   # of a large problem, whose law is near normal
      grid <- composite_nodes(setup, mode, axes, curved$drift, sides$width, tol, say = say)
    } else {
      grid <- sampled_nodes(setup, mode, axes, curved$drift, sides$width, tol, sampled_number(setup, control$nodes), say = say)
    }
    evaluations <- evaluations + grid$evaluations
    hessian <- curved$hessian
  } else {
    grid <- list(z = matrix(0, 1L, H), found = list(mode), log_rule = 0, log_coarse = 0)
    hessian <- matrix(0, H, H)
  }
  solved <- vapply(grid$found, function(f) is.finite(f$value), NA)
  grid <- list(z = grid$z[solved, , drop = FALSE], found = grid$found[solved], log_rule = grid$log_rule[solved],
               log_coarse = grid$log_coarse[solved], noise = grid$noise %||% 0)
  values <- vapply(grid$found, function(f) f$value, 0)
  if (!is.null(say)) say("draws that check the nodes")
  ratios <- node_ratios(setup, grid, values, control)
  values <- values - vapply(grid$found, function(f) lean_at(setup, f$theta), 0)
  log_weight <- values + grid$log_rule
  weight <- normalised(log_weight + ratios$correction)
  coarse <- normalised(values + grid$log_coarse + ratios$correction)
  theta <- matrix(unlist(lapply(grid$found, function(f) f$theta)), ncol = H, byrow = TRUE,
                  dimnames = list(NULL, setup$layout$names))
  nodes <- Map(conditional_node, grid$found, list(setup), ratios$shift)
  fit <- list(
    hyper = list(names = setup$layout$names, mode = stats::setNames(mode$theta, setup$layout$names),
                 hessian = hessian, theta = theta, z = grid$z, log_weight = log_weight, weight = weight,
                 coarse_weight = coarse, correction = ratios$correction),
    nodes = nodes,
    evidence = list(log = log_sum(log_weight), corrected = log_sum(log_weight + ratios$correction),
                    proper = all(setup$problem$prior$precision > 0),
                    rests_on = evidence_basis(setup, ratios)),
    k_hat = ratios$k_hat, draws = ratios$draws, corrected = ratios$corrected, noise = ratios$noise, setup = setup,
    evaluations = evaluations,
    converged = all(vapply(nodes, function(node) node$converged, NA)))
  fit$change <- node_change(fit)
  fit$change$mean <- max(fit$change$mean, grid$noise)
  fit
}

# The mode is looked for with a wider tolerance than nodes have.
settled_mode <- function(setup, mode, tol) {
  if (mode$solution$certificate > tol) mode[c("theta", "value", "slope", "solution")] <-
    evidence_at(setup, list(mode$theta), list(mode$solution), tol)[[1L]]
  mode
}

# Messages of a run that takes more than `wait` seconds, one a second
patient_voice <- function(wait = 2, between = 1, clock = function() proc.time()[["elapsed"]]) {
  due <- clock() + wait
  function(text) {
    if (clock() < due) return(invisible())
    due <<- clock() + between
    message("elvi: ", text)
  }
}

normalised <- function(log_weight) {
  w <- exp(log_weight - max(log_weight))
  w / sum(w)
}

log_sum <- function(x) max(x) + log(sum(exp(x - max(x))))

evidence_basis <- function(setup, ratios) {
  paste0("a lower bound at each node",
         if (!all(setup$problem$prior$precision > 0)) ", up to the constant of flat priors",
         if (ratios$corrected) paste0("; corrected by ", ratios$draws, " draws at each"))
}

# The optimum at a node, in the user's order. `mu` is its mean, moved by what the draws say; the setting keeps the optimum itself.
conditional_node <- function(found, setup, shift = 0) {
  s <- found$solution
  plan <- setup$plan
  precision <- hyper_precision(setup$problem, setup$layout, found$theta)
  list(theta = found$theta, mu = original_order(plan, s$mu + shift), sd = sqrt(original_order(plan, s$variance)),
       objective = s$objective, log_det = s$log_det, certificate = s$certificate,
       certificate_kind = if (s$rigorous && s$widest <= 50) "rigorous" else "estimated",
       converged = s$certificate <= 1e-6, iterations = s$iterations,
       setting = list(A = precision$A, definite = precision$definite, inverse = precision$inverse,
                      dispersion = dispersion_at(setup, found$theta), mu = s$mu, eta = NULL,
                      c = s$c))
}

# Means and standard deviations of all coefficients under weights of the nodes
node_moments <- function(fit, weight = fit$hyper$weight) {
  mean <- second <- 0
  for (k in which(weight > 0)) {
    node <- fit$nodes[[k]]
    mean <- mean + weight[k] * node$mu
    second <- second + weight[k] * (node$sd^2 + node$mu^2)
  }
  list(mean = mean, sd = sqrt(pmax(second - mean^2, 0)))
}

# The same for the hyperparameters, on their natural scale
hyper_moments <- function(fit, weight = fit$hyper$weight) {
  values <- t(natural_columns(fit$setup$problem$terms, fit$setup$layout, fit$setup$problem$dispersion$name, fit$hyper$theta))
  mean <- drop(values %*% weight)
  list(mean = mean, sd = sqrt(pmax(drop(values^2 %*% weight) - mean^2, 0)))
}

# How much the answer moves from the next smaller grid to this one: means in units of
# their sd, sds relative.
node_change <- function(fit) {
  if (length(fit$nodes) == 1L) return(list(mean = 0, sd = 0))
  here <- node_moments(fit)
  there <- node_moments(fit, fit$hyper$coarse_weight)
  hyper <- hyper_moments(fit)
  hyper_there <- hyper_moments(fit, fit$hyper$coarse_weight)
  list(mean = max(abs(here$mean - there$mean) / here$sd, abs(hyper$mean - hyper_there$mean) / hyper$sd),
       sd = max(abs(there$sd / here$sd - 1), abs(hyper_there$sd / hyper$sd - 1)))
}

# ---- checks by draws --------------------------------------------------------------------

# Importance ratios of the conditional optima, from the same draws at every node, so that
# their noise cancels: k-hat, and log p(y, theta) less its lower bound. Rows fall in
# blocks that depend on each other hardly at all, for a gaussian base: each block's
# expectation is estimated by itself, which many blocks do not make harder.
node_ratios <- function(setup, grid, values, control) {
  K <- length(values)
  none <- list(correction = numeric(K), k_hat = rep(-Inf, K), draws = 0L, corrected = FALSE, shift = rep(list(0), K), noise = 0)
  if (is_quadratic(setup$plan) && setup$law$independent) return(none)
  if (is_quadratic(setup$plan) || isTRUE(control$draws == 0)) {
    none$k_hat[] <- NA_real_
    return(none)
  }
  weight <- normalised(values + grid$log_rule)
  counts <- which(weight > 0.03 * max(weight))
  best <- which.max(weight)
  draws <- control$draws %||% enough_draws(setup, grid$found[[best]], control)
  checked <- check_by_draws(setup, grid$found[counts], draws, control, shift = separate_blocks(setup))
  k_hat <- rep(NA_real_, K)
  k_hat[counts] <- node_k(checked)
  usable <- separate_blocks(setup) || max(k_hat[counts]) < 0.7
  if (!isTRUE(control$correct) || !usable) {
    return(replace(none, c("k_hat", "draws"), list(k_hat, draws)))
  }
  correction <- rep(NA_real_, K)
  correction[counts] <- corrections(setup, checked, match(best, counts))
  correction[-counts] <- smooth_correction(grid$z, counts, correction[counts])
  shift <- none$shift
  if (separate_blocks(setup)) {
    shift[counts] <- lapply(checked$out, `[[`, "shift")
    shift[-counts] <- list(Reduce(`+`, Map(`*`, shift[counts], weight[counts] / sum(weight[counts]))))
  }
  noise <- correction_noise(setup, checked, grid$found[counts], normalised(values + grid$log_rule + correction)[counts])
  list(correction = correction, k_hat = k_hat, draws = draws, corrected = TRUE, shift = shift, noise = noise)
}

# What the draws leave unsettled in the means of the hyperparameters, in units of their sd: a standard error to first order
# in the correction of each node. The nodes have the same draws, so most of the noise of one is that of all, and cancels.
correction_noise <- function(setup, checked, found, weight) {
  if (length(found) < 2L || checked$draws < 2L) return(0)
  weight <- weight / sum(weight)
  theta <- matrix(unlist(lapply(found, function(f) f$theta)), nrow = length(found), byrow = TRUE)
  off <- sweep(theta, 2L, drop(weight %*% theta))
  sd <- sqrt(drop(weight %*% off^2))
  part <- vapply(checked$out, function(o) {   # of each draw in the correction, whose mean it is, almost: draws x nodes
    if (separate_blocks(setup)) o$bend else checked$draws * normalised(o$total + checked$extra)
  }, numeric(checked$draws))
  moved <- part %*% (weight * off)
  max(0, apply(moved, 2L, stats::sd)[sd > 0] / sd[sd > 0]) / sqrt(checked$draws)
}

# By the noise of the correction at one node, though much of it is common to all of them, which have the same draws: the ratios
# of single groups can have heavy tails, of which a hundred draws see little. No more than fit in 160 MB.
enough_draws <- function(setup, found, control, noise = 0.05, first = 100L) {
  bend <- check_by_draws(setup, list(found), first, control)$out[[1L]]$bend
  min(max(ceiling(stats::var(bend) / noise^2), 200), 2000, max(200, floor(2e7 / setup$plan$dim)))
}

check_by_draws <- function(setup, found, draws, control, shift = FALSE) {
  z <- draw_base(setup$law, control$seed_key %||% c(20261117, 17), draws)
  settings <- lapply(found, function(f) conditional_node(f, setup)$setting)
  out <- .Call(elvi_r_nested_check, setup$plan, setup$rule, settings, z, shift, threads())
  radius <- sqrt(colSums(z^2))
  extra <- -radius^2 / 2 - setup$law$log_phi(radius)
  list(out = out, extra = extra - mean(extra), draws = draws)
}

separate_blocks <- function(setup) setup$law$independent && length(setup$plan$block_start) > 2L

node_k <- function(checked) vapply(checked$out, function(o) pareto_shape(o$total + checked$extra), 0)

# log p(y, theta) less its lower bound, at each of the nodes. What blocks have in common counts where the draws can tell.
corrections <- function(setup, checked, best = 1L) {
  separate <- separate_blocks(setup)
  coupled <- separate && mean(checked$out[[best]]$total^2) * sqrt(2 / checked$draws) < 0.1
  vapply(checked$out, function(o) {
    if (!separate) return(log_sum(o$total + checked$extra) - log(checked$draws))
    o$level + if (coupled) (mean(o$total^2) - o$spread) / 2 else 0
  }, 0)
}

# k-hat from new draws at the nodes that count
node_shapes <- function(nested, draws, key) {
  setup <- nested$setup
  if (is_quadratic(setup$plan)) return(list(nested$k_hat, nested$draws))
  counts <- which(nested$hyper$weight > 0.03 * max(nested$hyper$weight))
  z <- draw_base(setup$law, key, draws)
  out <- .Call(elvi_r_nested_check, setup$plan, setup$rule, lapply(nested$nodes[counts], `[[`, "setting"), z, FALSE, threads())
  radius <- sqrt(colSums(z^2))
  extra <- -radius^2 / 2 - setup$law$log_phi(radius)
  k_hat <- rep(NA_real_, length(nested$nodes))
  k_hat[counts] <- vapply(out, function(o) pareto_shape(o$total + extra), 0)
  list(k_hat, draws)
}

# At nodes that hardly count: the correction is a smooth function of theta, and a quadratic
# through the others is good enough.
smooth_correction <- function(z, known, correction) {
  H <- ncol(z)
  terms <- cbind(1, z, if (length(known) > 3L * (1 + 2 * H)) z^2)
  fit <- if (length(known) > ncol(terms)) stats::lm.fit(terms[known, , drop = FALSE], correction)$coefficients
  if (is.null(fit) || anyNA(fit)) return(rep(mean(correction), nrow(z) - length(known)))
  out <- drop(terms[-known, , drop = FALSE] %*% fit)
  width <- diff(range(correction))   # no further than that beyond what was seen
  pmin(pmax(out, min(correction) - width), max(correction) + width)
}

# x = mu + P^-1/2 z at node k, for the columns of z; rows in the order of [X Z]
node_draws <- function(fit, k, z) {
  plan <- fit$setup$plan
  node <- fit$nodes[[k]]
  x <- .Call(elvi_r_nested_draws, plan, node$setting, as.matrix(z), FALSE)
  original_order(plan, x) + (node$mu - original_order(plan, node$setting$mu))
}

# v' P^-1 v at node k for the rows v of V (rows x (p + q)), in chunks
node_variance <- function(fit, k, V, chunk = 256L) {
  plan <- fit$setup$plan
  out <- numeric(nrow(V))
  for (first in seq(1L, by = chunk, length.out = ceiling(nrow(V) / chunk))) {
    rows <- first:min(first + chunk - 1L, nrow(V))
    v <- as.matrix(Matrix::t(V[rows, plan$order, drop = FALSE]))
    storage.mode(v) <- "double"
    out[rows] <- colSums(.Call(elvi_r_nested_draws, plan, fit$nodes[[k]]$setting, unname(v), TRUE)^2)
  }
  out
}
