# Group-level terms: exact given the hyperparameters, quadrature over them. A fit is a
# mixture of conditional optima, one per node. See docs/internals.Rmd.

# ---- the problem -----------------------------------------------------------------

# What does not depend on theta. `problem`: X, shift, Z, y, weight, frequency (or NULL), offset, family, prior
# (centre, precision), terms, hyper (priors of the family's own hyperparameters, by name).
nested_setup <- function(problem, base) {
  if (!is.null(problem$summed)) return(summed_setup(problem, base))
  if (ncol(problem$Z)) loadNamespace("Matrix")   # its methods, not only its functions
  problem$X <- as.matrix(problem$X)
  problem$triangle <- problem$triangle %||% problem_triangle(problem)
  if (!is.null(problem$shift) && is.null(problem$triangle)) problem$X <- problem$X - rep(problem$shift, each = nrow(problem$X))
  n <- nrow(problem$X)
  p <- ncol(problem$X)
  q <- ncol(problem$Z)
  if (q) problem$Z <- methods::as(methods::as(problem$Z, "generalMatrix"), "CsparseMatrix")
  problem$weight <- rep_len(problem$weight %||% 1, n)
  problem$frequency <- rep_len(problem$frequency %||% 1, n)
  if (!is.matrix(problem$offset)) problem$offset <- rep_len(problem$offset %||% 0, n)
  problem$prior <- list(centre = rep_len(problem$prior$centre %||% 0, p),
                        precision = rep_len(problem$prior$precision %||% 0, p))
  problem$count <- problem$count %||% sum(problem$frequency[problem$weight > 0])   # of observations, to a residual variance
  layout <- hyper_layout(problem)
  entries <- hyper_entries(problem, layout)
  likelihood <- family_record(problem$family)$conditional$likelihood
  dispersion <- if (!length(problem$hyper)) "none" else family_record(problem$family)$conditional$dispersion
  rows <- solver_rows(problem)
  plan <- sparse_plan(rows$X, rows$Z, dense_terms(problem), entries, is_blocked(problem), c(problem$prior$centre, numeric(q)),
                      list(y = solver_response(problem, rows$y), weight = rows$weight, offset = rows$offset, line = problem$line,
                           record = likelihood_of(problem$family), error_df = problem$family$df, dispersion = dispersion),
                      if (NROW(rows$y) == n) row_blocks(problem))
  law <- law_of(base, p + q)
  if (plan$constraints && !law$independent) {
    bad_argument("base", "base_gaussian() with terms whose effects sum to zero", paste0("base_", law$kind, "()"))
  }
  rule <- conditional_rule(problem, law)
  if (rule$limit <= 0) no_expectation(problem$family, law)
  # without terms the prior precision is the same at every theta
  setup <- list(problem = problem, layout = layout, plan = plan, base = base, law = law, rule = rule, threads = threads(),
                precision = if (!length(layout$terms)) hyper_precision(problem, layout, numeric(layout$length)))
  c(setup, list(constant = evidence_constant(setup)))
}

# the one-dimensional rule for the loss of a row
conditional_rule <- function(problem, law) {
  record_rule(family_record(problem$family), law, NCOL(problem$offset))
}

# as C takes it: classes are shares of each
solver_response <- function(problem, y) {
  record <- family_record(problem$family)
  if (is_shared(record)) record$second$shares(y, problem$family) else y
}

# The rows as the solver takes them: a gaussian response whose columns are all dense needs few, see rows-nested.R.
solver_rows <- function(problem) {
  few <- problem$triangle
  if (is.null(few)) {
    weight <- problem$weight * problem$frequency
    few <- if (all(dense_terms(problem))) few_rows(problem, sqrt(weight))
    return(few %||% c(problem[c("X", "Z", "y", "offset")], list(weight = weight)))
  }
  n <- nrow(few$X)
  c(few, list(Z = problem$Z, offset = numeric(n), weight = rep(1, n)))
}

# No more rows than columns of [X Z y], with the same sums of squares and products; NULL where that says too little
few_rows <- function(problem, root) {
  p <- ncol(problem$X)
  q <- ncol(problem$Z)
  if (!family_record(problem$family)$constant_curvature || length(problem$y) <= p + q + 1L) return(NULL)
  R <- dense_triangle(root, cbind(problem$X, problem$Z), problem$y - problem$offset)
  list(X = R[, seq_len(p), drop = FALSE], Z = methods::as(R[, p + seq_len(q), drop = FALSE], "CsparseMatrix"),
       y = R[, p + q + 1L], offset = numeric(nrow(R)), weight = rep(1, nrow(R)))
}

dense_terms <- function(problem) {
  dense <- logical(ncol(problem$Z))
  if (!length(dense)) return(dense)
  filled <- dense_columns(problem$Z)
  for (term in problem$terms) dense[term$columns] <- term_record(term)$dense(term, filled[term$columns])
  dense
}

# The level of each row in the term with most of them: given the other terms, rows of
# different levels do not depend on each other. NULL without groups.
row_blocks <- function(problem) {
  groups <- problem$terms[has_levels(problem$terms)]
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
  data <- problem$constant %||% likelihood_constant(problem$family, problem$y, problem$weight, problem$frequency, NULL)
  held <- count_constraints(problem)
  entropy <- if (held) law_of(setup$base, setup$plan$dim - held)$entropy else setup$law$entropy
  entropy - (sum(proper) + ncol(problem$Z) - held - lost_rank(problem)) / 2 * log(2 * pi) +
    sum(log(problem$prior$precision[proper])) / 2 + data
}

# the hyperparameters as the loss in C takes them
loss_hyper <- function(setup, theta, own = own_hyper(setup$layout)) {
  if (is.null(own)) numeric() else as.double(own$loss(unname(theta[setup$layout$family])))
}

# What the family's hyperparameters add to the log likelihood, and the derivative in theta
family_part <- function(setup, theta, solved = NULL, own = own_hyper(setup$layout)) {
  if (is.null(own)) return(list(value = 0, slope = NULL))
  own$part(unname(theta[setup$layout$family]), setup$problem, solved)
}

# ---- the evidence ----------------------------------------------------------------------

# Functions of a setup that the rules call, by what is solved given the hyperparameters: rows of a regression, or a density of the user's
# (solve-integrated.R).
conditional_solvers <- list(
  regression = list(evidence = function(...) regression_evidence(...), start = function(setup) regression_start(setup),
                    curvature = function(setup) regression_curvature(setup), shown = function(...) regression_hyper(...)),
  density = list(evidence = function(...) density_evidence(...), start = function(setup) density_start(setup),
                 curvature = function(setup) rep(10, setup$layout$length), shown = function(setup, theta) theta))

conditional_solver <- function(setup) conditional_solvers[[setup$conditional %||% "regression"]]

# Conditional optima at several theta: each a list with value (log p(theta, y), a lower
# bound), slope (its gradient) and the solution. `from`: solutions to start from.
evidence_at <- function(setup, thetas, from = NULL, tol = 1e-7) conditional_solver(setup)$evidence(setup, thetas, from, tol)

regression_evidence <- function(setup, thetas, from, tol) {
  number <- length(thetas)
  own <- own_hyper(setup$layout)
  precisions <- if (!is.null(setup$precision)) rep(list(setup$precision), number)
                else lapply(thetas, hyper_precision, problem = setup$problem, layout = setup$layout)
  given <- settings <- vector("list", number)
  for (i in seq_len(number)) {
    hyper <- loss_hyper(setup, thetas[[i]], own)
    given[[i]] <- c(precisions[[i]][c("A", "definite", "inverse", "slack")], list(hyper = hyper))
    start <- from[[i]]
    settings[[i]] <- c(given[[i]], if (!is.null(start)) list(mu = start$mu, eta = NULL, c = start$c)
                                   else c(list(mu = NULL), if (is.null(setup$rows)) start_of(setup$plan, hyper)))
  }
  solved <- if (is.null(setup$rows)) solve_settings(setup$plan, setup$rule, settings, tol, lanes = setup$threads)
            else solve_summed(setup, settings, tol)
  failed <- vapply(solved, `[[`, NA, "failed")
  if (any(failed) && !is.null(from)) {   # a bad start must not be the end
    again <- which(failed & lengths(from) > 0)
    if (length(again)) solved[again] <- lapply(evidence_at(setup, thetas[again], NULL, tol), `[[`, "solution")
  }
  priors <- hyper_priors_at(setup$problem, setup$layout, thetas, own)
  out <- vector("list", number)
  for (i in seq_len(number)) out[[i]] <- evidence_of(setup, thetas[[i]], precisions[[i]], solved[[i]], priors[[i]], given[[i]], own)
  out
}

# `prior`: that of the hyperparameters; `given`: what a setting has of them
evidence_of <- function(setup, theta, precision, s, prior, given, own) {
  if (s$failed) return(list(theta = theta, value = -Inf, slope = rep(NA_real_, length(theta)), solution = s))
  layout <- setup$layout
  part <- family_part(setup, theta, s, own)
  slope <- prior$slope
  if (length(layout$terms)) slope <- slope + hyper_chain(layout, precision, s$moment)
  slope[layout$family] <- slope[layout$family] + part$slope
  value <- prior$value + setup$constant + precision$log_det / 2 + part$value - s$objective
  if (!is.null(setup$lean)) {
    value <- value + linear_correction(setup, theta)
    slope <- slope + setup$lean$slope
  }
  list(theta = theta, value = value, slope = slope, solution = s, precision = given)
}

# what a linear correction of the evidence, if there is one, adds at theta: see recentre_on_correction()
linear_correction <- function(setup, theta) {
  if (is.null(setup$lean)) 0 else sum(setup$lean$slope * (theta - setup$lean$at))
}

# ---- the mode ------------------------------------------------------------------------

start_theta <- function(setup) conditional_solver(setup)$start(setup)

# Where to begin: standard deviations of half a unit of the predictor, or of the
# residuals.
regression_start <- function(setup) {
  problem <- setup$problem
  layout <- setup$layout
  theta <- numeric(layout$length)
  unit <- 1
  if (family_record(problem$family)$autoscale) {
    unit <- sqrt((if (is.null(setup$rows)) rest_of_rows(problem) else rest_of_coefficients(setup)) / max(problem$count, 1))
    if (!is.finite(unit) || unit <= 0) unit <- 1
  }
  for (t in seq_along(layout$terms)) {
    term <- problem$terms[[t]]
    Z <- if (is.null(setup$rows)) problem$Z[, term$columns, drop = FALSE] else surveyed_squares(problem$summed$columns, term$columns)
    theta[layout$terms[[t]]$theta] <- term_record(term)$start(term, Z,
                                                                         if (identical(term$line, 2L)) 1 else unit)
  }
  if (length(layout$family)) theta[layout$family] <- hyper_of(layout)$start(unit, problem)
  theta
}

# the residual sum of squares of the coefficients alone
rest_of_rows <- function(problem) {
  few <- problem$triangle %||% list(X = cbind(1, problem$X), y = problem$y - as.matrix(problem$offset)[, 1L],
                                    root = sqrt(problem$weight * problem$frequency))
  root <- few$root %||% 1
  sum(stats::.lm.fit(few$X * root, few$y * root)$residuals^2)
}

first_curvature <- function(setup) conditional_solver(setup)$curvature(setup)

# Curvature of a full data fit: that of EM's steps, which are too short rather than too long
regression_curvature <- function(setup) {
  layout <- setup$layout
  out <- numeric(layout$length)
  out[unlist(lapply(layout$terms, `[[`, "theta"))] <- unlist(lapply(setup$problem$terms, function(term) term_record(term)$curvature(term)))
  if (length(layout$family)) out[layout$family] <- hyper_of(setup$layout)$curvature(setup$problem$count)
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
      B <- B + (1 + sum(y * By) / sy) * tcrossprod(s) / sy - (tcrossprod(By, s) + tcrossprod(s, By)) / sy
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
  h <- pmin.int(pmax.int(0.3 * sqrt(pmax.int(diag(mode$inverse), 0)), 0.01), 0.3)
  thetas <- lapply(c(seq_len(H), -seq_len(H)), function(j) {
    mode$theta + sign(j) * h * (seq_len(H) == abs(j))
  })
  around <- evidence_at(setup, thetas, rep(list(mode$solution), 2L * H), tol)
  slopes <- vapply(around, function(a) a$slope, numeric(H))
  slopes <- matrix(slopes, H)
  out <- (slopes[, H + seq_len(H), drop = FALSE] - slopes[, seq_len(H), drop = FALSE]) / rep(2 * h, each = H)
  list(hessian = (out + t(out)) / 2, evaluations = 2L * H, drift = if (!is_quadratic(setup$plan)) solution_drift(around, h),
       around = around, h = h)
}

# What draws correct the evidence by can be steep in theta: many groups of few rows each move the mode by whole standard
# deviations. The nodes have to be where the corrected distribution is, so the correction's slope joins the evidence, and the
# mode is looked for again. The nodes' weights have the whole correction, whatever was taken here.
recentre_on_correction <- function(setup, mode, curved, control, tol, enough = 0.3, most = 4L, say = NULL) {
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
    # curvatures that may be negative have no logarithm, and must stay together
    log_c <- if (all(up$c >= 0 & down$c >= 0)) ifelse(up$c > 0 & down$c > 0, log(up$c / down$c), 0) else 0
    list(mu = (up$mu - down$mu) / (2 * h[j]), log_c = log_c / (2 * h[j]))
  })
}

# The optimum at theta to first order, from one solved nearby: a better start than that. Without a drift any start will do.
start_near <- function(near, theta, drift) {
  if (is.null(drift)) return(near$solution)
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
  if (length(hessian) == 1L) return(list(vectors = matrix(1), sd = 1 / sqrt(max(hessian, 0.5))))
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
  alone <- identical(as.numeric(control$nodes), 1)
  guess <- if (H && !is.null(setup$rows)) guess_from_few(setup)
  begun <- if (!alone) mode_by_few(setup, guess, 10 * tol)
  setup <- begun$setup %||% setup
  mode <- if (H) begun$mode %||% evidence_mode(setup, 10 * tol, say = say, from = guess)
          else c(evidence_at(setup, list(numeric()), tol = tol)[[1L]], list(evaluations = 1L))
  if (!is.finite(mode$value)) no_conditional(setup, mode$theta)
  evaluations <- mode$evaluations
  if (alone) mode <- settled_mode(setup, mode, tol)
  if (H && !alone) {
    laid <- lay_nodes(setup, mode, control, say)
    setup <- laid$setup
    mode <- laid$mode
    grid <- laid$grid
    grid$found <- found_by_all(setup, grid$found, tol)
    setup[c("matched", "few")] <- setup$plan$cost <- NULL
    evaluations <- evaluations + laid$evaluations
    hessian <- laid$hessian
    rule <- laid$rule
  } else {
    rule <- "mode"
    grid <- rule_record(rule)$lay(setup, list(mode = mode), control, say)
    hessian <- matrix(0, H, H)
  }
  solved <- vapply(grid$found, function(f) is.finite(f$value), NA)
  grid <- list(z = grid$z[solved, , drop = FALSE], found = grid$found[solved], log_rule = grid$log_rule[solved],
               log_coarse = as.matrix(grid$log_coarse)[solved, , drop = FALSE], noise = grid$noise %||% 0)
  values <- vapply(grid$found, function(f) f$value, 0)
  if (!is.null(say)) say("draws that check the quadrature points")
  ratios <- node_ratios(setup, grid, values, control)
  values <- values - vapply(grid$found, function(f) linear_correction(setup, f$theta), 0)
  log_weight <- values + grid$log_rule
  weight <- normalised(log_weight + ratios$correction)
  coarse <- lapply(seq_len(ncol(grid$log_coarse)), function(j) normalised(values + grid$log_coarse[, j] + ratios$correction))
  theta <- matrix(unlist(lapply(grid$found, function(f) f$theta)), ncol = H, byrow = TRUE,
                  dimnames = list(NULL, setup$layout$names))
  nodes <- Map(conditional_node, grid$found, list(setup), ratios$shift, is_convex(setup$plan))
  flat <- flat_in_problem(setup$problem)
  fit <- list(
    hyper = list(names = setup$layout$names, mode = stats::setNames(mode$theta, setup$layout$names),
                 hessian = hessian, theta = theta, z = grid$z, rule = rule, log_weight = log_weight, weight = weight,
                 coarse_weight = coarse, correction = ratios$correction),
    nodes = nodes,
    evidence = list(log = log_sum(log_weight), corrected = log_sum(log_weight + ratios$correction), se = ratios$error,
                    quadrature_error = if (H) evidence_error(log_weight, values + grid$log_coarse, error_scale(rule)) else 0,
                    flat = flat, proper = flat == 0, rests_on = evidence_basis(setup, ratios)),
    k_hat = ratios$k_hat, draws = ratios$draws, corrected = ratios$corrected, noise = ratios$noise, setup = setup,
    evaluations = evaluations,
    converged = all(vapply(nodes, function(node) node$converged, NA)))
  fit$change <- node_change(fit)
  fit$rule_noise <- grid$noise
  fit$change$mean <- max(fit$change$mean, grid$noise)
  fit
}

# of the log evidence, as rule_error() has it for moments
evidence_error <- function(log_weight, coarser, scale) {
  coarser <- as.matrix(coarser)
  here <- log_sum(log_weight)
  sqrt(scale * sum(vapply(seq_len(ncol(coarser)), function(j) log_sum(coarser[, j]) - here, 0)^2))
}

# Quadrature points about the mode, by a rule that suits their number.
lay_nodes <- function(setup, mode, control, say) {
  tol <- control$tol
  leant <- recentre_on_correction(setup, mode, evidence_hessian(setup, mode, 10 * tol), control, 10 * tol, say = say)
  setup <- leant$setup
  curved <- leant$curved
  axes <- theta_axes(curved$hessian)
  mode <- settled_mode(setup, leant$mode, tol)
  rule <- choose_rule(setup, control$nodes)
  sides <- if (rule != "scores") axis_widths(setup, mode, axes, curved$drift, 10 * tol) else list(evaluations = 0L)
  grid <- rule_record(rule)$lay(setup, list(mode = mode, axes = axes, drift = curved$drift, width = sides$width,
                                            hessian = curved$hessian), control, say)
  list(setup = setup, mode = mode, grid = grid, rule = rule, hessian = curved$hessian,
       evaluations = 2L * setup$layout$length + leant$evaluations + sides$evaluations + grid$evaluations)
}

# The mode is looked for with a wider tolerance than nodes have.
settled_mode <- function(setup, mode, tol) {
  if (mode$solution$certificate <= tol) return(mode)
  again <- evidence_at(setup, list(mode$theta), list(mode$solution), tol)[[1L]]
  mode[names(again)] <- again
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

# parameters whose prior is flat
flat_in_problem <- function(problem) {
  as.double(sum(problem$prior$precision == 0) + sum(vapply(problem$hyper, function(prior) isTRUE(is.infinite(prior$scale)), NA)))
}

evidence_basis <- function(setup, ratios) {
  paste0("a lower bound at each quadrature point",
         if (ratios$corrected) paste0("; corrected by ", ratios$draws, " draws at each"))
}

# The optimum at a node, in the user's order. `mu` is its mean, moved by what the draws say; the setting keeps the optimum itself.
conditional_node <- function(found, setup, shift = 0, convex = is_convex(setup$plan)) {
  s <- found$solution
  plan <- setup$plan
  list(theta = found$theta, mu = original_order(plan, s$mu + shift), sd = sqrt(original_order(plan, s$variance)),
       objective = s$objective, log_det = s$log_det, certificate = s$certificate,
       certificate_kind = if (!convex) "stationary" else if (s$rigorous && s$widest <= 50) "rigorous" else "estimated",
       converged = s$certificate <= 1e-6, iterations = s$iterations, setting = conditional_setting(found, setup))
}

# hyperparameters and optimum of a node, as C takes them
conditional_setting <- function(found, setup) {
  given <- found$precision %||% c(hyper_precision(setup$problem, setup$layout, found$theta)[c("A", "definite", "inverse", "slack")],
                                  list(hyper = loss_hyper(setup, found$theta)))
  c(given, list(mu = found$solution$mu, eta = NULL, c = found$solution$c))
}

# Means and standard deviations of all coefficients under weights of the nodes
node_moments <- function(fit, weight = fit$hyper$weight, squares = node_squares(fit)) {
  mean <- drop(squares$mu %*% weight)
  list(mean = mean, sd = sqrt(pmax(drop(squares$second %*% weight) - mean^2, 0)))
}

# of the coefficients at each node, in columns: means and second moments
node_squares <- function(fit) {
  each <- function(field) matrix(unlist(lapply(fit$nodes, `[[`, field), use.names = FALSE), ncol = length(fit$nodes))
  mu <- each("mu")
  list(mu = mu, second = each("sd")^2 + mu^2)
}

# The error of the rule by coarser ones: of means in units of their sd, of sds relative
node_change <- function(fit) {
  if (length(fit$nodes) == 1L) return(list(mean = 0, sd = 0))
  shown <- list(values = shown_hyper(fit$setup, fit$hyper$theta))
  squares <- node_squares(fit)
  moments <- function(weight) {
    nodes <- node_moments(fit, weight, squares)
    hyper <- hyper_moments(shown, weight)
    list(mean = c(nodes$mean, hyper$mean), sd = c(nodes$sd, hyper$sd))
  }
  rule_error(moments(fit$hyper$weight), lapply(fit$hyper$coarse_weight, moments), error_scale(fit$hyper$rule))
}

# By how far the moments of other rules are, all together: `scale` makes a rule's error of the sum of their squares (rule.R)
rule_error <- function(here, coarser, scale = 1) {
  error <- function(off) sqrt(scale * Reduce(`+`, lapply(coarser, function(there) off(there)^2)))
  list(mean = max(error(function(there) (there$mean - here$mean) / here$sd)), sd = max(error(function(there) there$sd / here$sd - 1)))
}

moments_of_theta <- function(setup, theta, weight) hyper_moments(list(values = shown_hyper(setup, theta)), weight)

shown_hyper <- function(setup, theta) conditional_solver(setup)$shown(setup, theta)

# Of the hyperparameters on their natural scale; of those of the family on one on which they have moments.
regression_hyper <- function(setup, theta) {
  problem <- setup$problem
  values <- natural_columns(problem$terms, setup$layout, theta)
  mine <- names(problem$hyper)
  if (length(mine)) values[, mine] <- hyper_of(setup$layout)$moment_scale(values[, mine, drop = FALSE], problem$hyper)
  values
}
