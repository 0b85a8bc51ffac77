# "Beyond convexity": the gradient mapping along runs on targets that are not
# log-concave, with the true gradient of F, which low dimension makes computable.

nonconvex_experiments <- function() {
  list(nonconvex = list(
    title = "Gradient mapping of non-convex targets under constant and growing batches",
    run = run_nonconvex, draw = draw_nonconvex))
}

run_nonconvex <- function(budget = 1e5, runs = 6, seed = 1) {
  budget <- check_count(budget, "budget", lower = 1000)
  runs <- check_count(runs, "runs")
  targets <- nonconvex_targets()
  measured <- seeded(check_count(seed, "seed", lower = 0),
                     lapply(targets, measure_target, budget = budget, runs = runs))
  data <- bind_rows(unname(measured))
  list(data = data, bounds = mapping_bounds(targets$mixture, budget),
       stationary = mixture_stationary(targets$mixture),
       numbers = nonconvex_numbers(data, targets))
}

# ---- targets -------------------------------------------------------------------

# Each with its model, the compact set, a start, and the quadrature of its F.
nonconvex_targets <- function() list(mixture = mixture_target(), student = student_target())

# Two unit normals at -m and m, the second exp(2 tilt) times as likely:
# f(x) = |x|^2/2 - log cosh(m'x + tilt), whose Hessian is I - m m' sech^2.
mixture_target <- function(m = c(2.5, 1.25), tilt = 0.35) {
  at <- function(x) drop(crossprod(m, x)) + tilt
  model <- model_density(
    value = function(x) colSums(x^2) / 2 - log_cosh(at(x)),
    gradient = function(x) x - outer(m, tanh(at(x))),
    dim = 2, smoothness = max(1, sum(m^2) - 1), convex = FALSE, growth = 2, vectorized = TRUE)
  either_side <- function(share) c(if (share < 0.5) 3 else -3, 0)
  new_nonconvex("mixture of two normals", model, model$smoothness, mu_radius = 4, scale_max = 2,
                start = either_side, spacing = 0.25, centres = cbind(m, -m))
}

log_cosh <- function(t) abs(t) + log1p(exp(-2 * abs(t))) - log(2)

# Robust regression of stack loss on air flow: intercept, slope and log sigma. In
# units of the residuals the curvature is about the same in all three.
student_target <- function() {
  data <- shipped_data("stackloss")
  air <- as.double(scale(data$Air.Flow))
  loss <- data$stack.loss - mean(data$stack.loss)
  plain <- stats::lm.fit(cbind(1, air), loss)
  unit <- stats::mad(plain$residuals)
  model <- model_glm(cbind(intercept = 1, air), loss / unit, robust(df = 4), prior = normal(0, 10))
  law <- law_of(base_gaussian(), model$dim)
  L <- run_smoothness(model, model, law, elvi_control(coordinates = "raw"))$L
  new_nonconvex("student-t regression", model, L, mu_radius = 8, scale_max = 1,
                start = function(share) c(plain$coefficients / unit, 0), spacing = 0.7)
}

# a data set of R's own package datasets
shipped_data <- function(name) {
  room <- new.env()
  utils::data(list = name, package = "datasets", envir = room)
  room[[name]]
}

# `start`: mu as a function of the share of the runs that come before
new_nonconvex <- function(label, model, L, mu_radius, scale_max, start, spacing, ...) {
  control <- elvi_control(coordinates = "raw", estimator = "reparam", average = "last",
                          smoothness = L, mu_radius = mu_radius, scale_max = scale_max,
                          trace_draws = 0)
  # below 1/(2L), the inverse of the smoothness of F on the set, as the theorem asks
  list(label = label, model = model, control = control, step = 1 / (4 * L),
       feasible = feasible_set(control, model, L),
       start = function(share) list(mu = start(share), Sigma = diag(1 / sqrt(L), model$dim)),
       spacing = spacing, grid = normal_grid(model$dim, spacing), ...)
}

# The trapezoid rule for a standard normal in d dimensions: for functions that are
# analytic near the real axis its error falls exponentially in 1/spacing.
normal_grid <- function(d, spacing, reach = 6.5) {
  axis <- seq(-ceiling(reach / spacing), ceiling(reach / spacing)) * spacing
  z <- t(as.matrix(expand.grid(rep(list(axis), d))))
  z <- unname(z[, colSums(z^2) <= reach^2, drop = FALSE])
  w <- exp(-colSums(z^2) / 2)
  list(z = z, w = w / sum(w))
}

# F and its gradient at (mu, Sigma), Sigma symmetric, by quadrature
exact_gradient <- function(target, mu, Sigma) {
  z <- target$grid$z
  w <- target$grid$w
  f <- target_at(target$model, mu + Sigma %*% z)
  outer <- tcrossprod(f$gradient * rep(w, each = nrow(z)), z)
  list(objective = sum(w * f$value) - log_det("symmetric", Sigma),
       mu = drop(f$gradient %*% w), Sigma = (outer + t(outer)) / 2 - solve(Sigma))
}

# where a projected step along g leads
project_step <- function(target, mu, Sigma, g) {
  set <- target$feasible
  list(mu = project_ball(set$mu_centre, set$mu_radius)(mu - target$step * g$mu),
       Sigma = project_scale("symmetric", Sigma - target$step * g$Sigma, set$scale_min,
                             set$scale_max)$scale)
}

# F and |G|^2, G the gradient mapping with the true gradient and the step `step`
exact_mapping <- function(target, mu, Sigma, step = target$step) {
  target$step <- step
  g <- exact_gradient(target, mu, Sigma)
  to <- project_step(target, mu, Sigma, g)
  moved2 <- sum((mu - to$mu)^2) + sum((Sigma - to$Sigma)^2)
  list(objective = g$objective, mapping2 = moved2 / step^2, to = to)
}

# the local minimum that exact projected gradient descent finds from here
stationary_point <- function(target, mu, Sigma, tol = 1e-10, most = 5000L) {
  for (k in seq_len(most)) {
    at <- exact_mapping(target, mu, Sigma)
    if (at$mapping2 <= tol^2) break
    mu <- at$to$mu
    Sigma <- at$to$Sigma
  }
  list(mu = mu, Sigma = Sigma, objective = at$objective, mapping = sqrt(at$mapping2))
}

mixture_stationary <- function(target) {
  lapply(seq_len(ncol(target$centres)), function(j) {
    stationary_point(target, target$centres[, j], diag(nrow(target$centres)))
  })
}

# ---- runs ----------------------------------------------------------------------

nonconvex_schedules <- function(step, budget) {
  list("constant 25" = schedule_custom(step, 25, budget %/% 25),
       "constant 250" = schedule_custom(step, 250, budget %/% 250),
       "shrinking step" = schedule_decay(budget, step, batch = 25),
       "growing" = schedule_growing(budget, step, batch = 2))
}

# one row for each schedule, run and checkpoint
measure_target <- function(target, budget, runs) {
  schedules <- nonconvex_schedules(target$step, budget)
  one <- function(name, run) {
    data.frame(target = target$label, schedule = name, run = run,
               measure_run(target, schedules[[name]], target$start((run - 0.5) / runs)))
  }
  each <- expand.grid(run = seq_len(runs), name = names(schedules), stringsAsFactors = FALSE)
  bind_rows(Map(one, each$name, each$run, USE.NAMES = FALSE))
}

# A run, stopped at each checkpoint to look at its iterate: continued, it is the
# same run.
measure_run <- function(target, schedule, start, looks = 20L) {
  plan <- plan_schedule(schedule, target$model$dim, 3, target$control$smoothness, target$control)
  at <- plan_at(plan, seq_len(plan$iterations) - 1)
  evals <- cumsum(at$batch)
  checkpoints <- log_checkpoints(evals, 50, looks)
  control <- target$control
  control$iterations <- checkpoints[1L]
  fit <- elvi(target$model, base_gaussian(), schedule, start = start, control = control)
  rows <- lapply(checkpoints, function(k) {
    if (k > fit$state$k) fit <<- elvi(fit, iterations = k)
    # the step that the run would take next defines the mapping there
    following <- at$step[min(k + 1, length(at$step))]
    mapping <- exact_mapping(target, fit$state$mu, fit$state$scale, following)
    data.frame(iteration = k, evals = evals[k], objective = mapping$objective,
               mapping2 = mapping$mapping2, noisy2 = fit$trace$gradient_map[nrow(fit$trace)]^2)
  })
  bind_rows(rows)
}

# Iterations to look at: the last ones within numbers of evaluations (up to rounding)
# that grow by the same factor, to the end of the run.
log_checkpoints <- function(evals, from, looks) {
  wanted <- exp(seq(log(from), log(evals[length(evals)]), length.out = looks))
  unique(pmax(findInterval(wanted * (1 + 1e-9), evals), 1L))
}

# The bound of the non-convex theorem on min_k E|G|^2 for each schedule, at budgets
# far beyond what was run.
mapping_bounds <- function(target, budget, beyond = 100) {
  schedules <- nonconvex_schedules(target$step, budget * beyond)
  bind_rows(lapply(names(schedules), function(name) {
    cover <- function(share, gap0 = NULL) {
      guarantee(target$model, base_gaussian(), schedules[[name]], start = target$start(share),
                control = target$control, gap0 = gap0)
    }
    g <- cover(0, gap0 = max(cover(0)$gap0, cover(1)$gap0))   # whichever the start
    plan <- plan_schedule(schedules[[name]], target$model$dim, 3, g$L, target$control)
    at <- plan_at(plan, seq_len(plan$iterations) - 1)
    evals <- cumsum(at$batch)
    k <- log_checkpoints(evals, 50, 40L)
    bound <- 4 * (g$gap0 + g$moment * cumsum(at$step / at$batch)) /
      cumsum(at$step * (1 - at$step * g$lip))
    data.frame(schedule = name, evals = evals[k], bound = bound[k], covered = !is.na(g$bound),
               moment = g$moment)
  }))
}

# ---- numbers and figures ---------------------------------------------------------

# E|G|^2 over the runs at each checkpoint
mean_mapping <- function(data) {
  stats::aggregate(cbind(mapping2, noisy2) ~ evals + schedule + target, data, mean)
}

nonconvex_numbers <- function(data, targets) {
  means <- mean_mapping(data)
  ends <- bind_rows(lapply(split(means, list(means$target, means$schedule)), function(part) {
    part[which.max(part$evals), ]
  }))
  at_end <- function(column) {
    out <- tapply(ends[[column]], list(ends$target, ends$schedule), identity)
    out[vapply(targets, `[[`, "", "label"), , drop = FALSE]
  }
  last <- data[data$evals == stats::ave(data$evals, data$target, data$schedule, FUN = max), ]
  list(mapping2 = at_end("mapping2"), noisy2 = at_end("noisy2"), late = late_mapping(means),
       last = last, L = vapply(targets, function(t) t$control$smoothness, 0),
       lowest_curvature = vapply(targets, lowest_curvature, 0),
       quadrature_error = max(vapply(targets, quadrature_error, 0)))
}

# E|G|^2 averaged over the checkpoints in the last four fifths of the budget, where a
# floor shows
late_mapping <- function(means) {
  late <- means[means$evals > max(means$evals) / 5, ]
  tapply(late$mapping2, list(late$target, late$schedule), mean)
}

# The largest change of an entry of the gradient when the grid is twice as fine.
quadrature_error <- function(target) {
  at <- target$start(0)
  finer <- target
  finer$grid <- normal_grid(target$model$dim, target$spacing / 2)
  coarse <- exact_gradient(target, at$mu, at$Sigma)
  fine <- exact_gradient(finer, at$mu, at$Sigma)
  max(abs(coarse$mu - fine$mu), abs(coarse$Sigma - fine$Sigma))
}

# The smallest eigenvalue of the Hessian of f on a box of two posterior standard
# deviations around the mode: negative where f is not convex.
lowest_curvature <- function(target, points = 9L) {
  model <- target$model
  gradient <- function(x) target_at(model, x)$gradient
  mode <- find_mode(model)
  width <- 2 * sqrt(diag(solve(definite_hessian(mode$hessian))))
  box <- as.matrix(expand.grid(lapply(seq_len(model$dim), function(j) {
    mode$x[j] + width[j] * seq(-1, 1, length.out = points)
  })))
  min(apply(box, 1L, function(x) {
    H <- difference_hessian(gradient, x, rep(1, model$dim))
    min(eigen(H, symmetric = TRUE, only.values = TRUE)$values)
  }))
}

draw_nonconvex <- function(x, what = c("mapping", "bound", "found"), ...) {
  check_dots(list(...), "what", "plot() on this experiment")
  switch(check_choice(what, "what", c("mapping", "bound", "found")),
         mapping = draw_mapping(x), bound = draw_mapping_bound(x), found = draw_found(x))
}

draw_mapping <- function(x) {
  means <- mean_mapping(x$data)
  means$target <- factor(means$target, unique(x$data$target))
  draw_by_schedule(means, "mapping2", room = 0.5) +
    ggplot2::facet_wrap(ggplot2::vars(.data$target)) +
    ggplot2::labs(y = "mean squared gradient mapping\n(true gradient)")
}

draw_mapping_bound <- function(x) {
  draw_by_schedule(x$bounds, "bound", room = 0.35) +
    ggplot2::geom_vline(xintercept = max(x$data$evals), colour = "grey60", linetype = "dotted") +
    ggplot2::annotate("text", x = max(x$data$evals), y = max(x$bounds$bound), hjust = 0, size = 3,
                      label = " budget of the runs", colour = "grey40") +
    ggplot2::labs(y = "bound on the smallest\nexpected squared mapping")
}

# lines over gradient evaluations on log scales, each with its name at its end
draw_by_schedule <- function(data, y, room) {
  names <- names(nonconvex_schedules(1, 1e6))
  data$schedule <- factor(data$schedule, names)
  panel <- if (is.null(data$target)) rep("", nrow(data)) else data$target
  ends <- bind_rows(lapply(split(data, panel, drop = TRUE), function(part) {
    last <- part[part$evals == stats::ave(part$evals, part$schedule, FUN = max), ]
    last$label_at <- 10^spread_out(log10(last[[y]]), diff(range(log10(part[[y]]))) / 14)
    last
  }))
  ggplot2::ggplot(data, ggplot2::aes(x = .data$evals, y = .data[[y]], colour = .data$schedule)) +
    ggplot2::geom_line(linewidth = 0.7) +
    ggplot2::geom_text(ggplot2::aes(y = .data$label_at, label = .data$schedule), ends,
                       hjust = -0.05, size = 3) +
    ggplot2::scale_colour_manual(values = stats::setNames(experiment_colours[c(2, 6, 3, 1)], names),
                                 guide = "none") +
    ggplot2::scale_x_log10(breaks = whole_powers(data$evals), labels = power_of_ten,
                           expand = ggplot2::expansion(mult = c(0.03, room))) +
    ggplot2::scale_y_log10(breaks = whole_powers(data[[y]]), labels = power_of_ten) +
    ggplot2::labs(x = "gradient evaluations") +
    experiment_theme()
}

# the powers of ten within the range of x
whole_powers <- function(x) 10^seq(ceiling(log10(min(x))), floor(log10(max(x))))

# The mixture's density, the starts and the two approximations that are found.
draw_found <- function(x) {
  target <- mixture_target()
  grid <- expand.grid(x1 = seq(-5.5, 5.5, length.out = 121), x2 = seq(-4, 4, length.out = 91))
  grid$density <- exp(-target$model$value(t(as.matrix(grid))))
  ellipses <- bind_rows(lapply(seq_along(x$stationary), function(i) {
    at <- x$stationary[[i]]
    data.frame(ellipse_of(at$mu, at$Sigma, sqrt(stats::qchisq(0.9, 2))), point = i)
  }))
  labels <- bind_rows(lapply(x$stationary, function(at) {
    data.frame(x1 = at$mu[1L], x2 = at$mu[2L] + 2.6, label = sprintf("F = %.2f", at$objective))
  }))
  starts <- data.frame(t(sapply(c(0, 1), function(share) target$start(share)$mu)))
  names(starts) <- c("x1", "x2")
  ggplot2::ggplot(grid, ggplot2::aes(x = .data$x1, y = .data$x2)) +
    ggplot2::geom_contour(ggplot2::aes(z = .data$density), colour = "grey70", bins = 8) +
    ggplot2::geom_path(ggplot2::aes(group = .data$point), ellipses, colour = experiment_colours[1L],
                       linewidth = 0.8) +
    ggplot2::geom_text(ggplot2::aes(label = .data$label), labels, size = 3,
                       colour = experiment_colours[1L]) +
    ggplot2::geom_point(data = starts, colour = experiment_colours[2L], size = 2) +
    ggplot2::geom_text(data = starts, label = "start", colour = experiment_colours[2L], size = 3,
                       vjust = 2) +
    ggplot2::coord_fixed() +
    experiment_theme()
}

# the curve mu + Sigma u r over the unit circle u
ellipse_of <- function(mu, Sigma, radius) {
  angle <- seq(0, 2 * pi, length.out = 121L)
  points <- mu + radius * (Sigma %*% rbind(cos(angle), sin(angle)))
  data.frame(x1 = points[1L, ], x2 = points[2L, ])
}
