# "Choosing a base and a scale": one skewed posterior under every base and every
# kind of scale, exactly, and against long Markov chains.

base_experiments <- function() {
  list(bases = list(
    title = "One posterior under five bases and three kinds of scale, against MCMC",
    run = run_bases, draw = draw_bases, shrink = shrink_bases))
}

run_bases <- function(iterations = 3000, draws = 20000, runs = 4, seed = 1) {
  iterations <- check_count(iterations, "iterations", lower = 100)
  draws <- check_count(draws, "draws", lower = 1000)
  runs <- check_count(runs, "runs")
  model <- gearbox_model()
  seeded(check_count(seed, "seed", lower = 0), {
    fits <- fit_families(model)
    wide <- fits[["student, symmetric"]]
    mcmc <- metropolis(model, fits[["gaussian, symmetric"]], wide, iterations)
    evidence <- log_evidence(wide, 5 * draws)
    paths <- descent_paths(model, fits, runs)
    cost <- step_cost()
    data <- bind_rows(lapply(names(fits), function(name) {
      judge_family(fits[[name]], mcmc, evidence, draws, paths[paths$family == name, ])
    }))
    jumps <- find_jumps(model, fits, 2 * runs)
  })
  list(data = data, fits = fits, mcmc = mcmc, paths = paths,
       numbers = c(list(evidence = evidence, same_law = same_law(fits), step_cost = cost, jumps = jumps,
                        budget = max(paths$evals)), summarise_chains(mcmc)))
}

# For a small file: every 16th iteration of the chains, to four digits. The fits are quickly made again.
shrink_bases <- function(x) {
  x$fits <- NULL
  x$mcmc <- signif(x$mcmc[seq(16L, dim(x$mcmc)[1L], by = 16L), , , drop = FALSE], 4)
  x
}

exact_fits <- function(x) x$fits %||% fit_families(gearbox_model())

# Is a car of 1974 manual, given its weight and its power? 32 cars, and nearly
# separable: the posterior is long on one side.
gearbox_model <- function() {
  cars <- shipped_data("mtcars")
  X <- cbind(intercept = 1, weight = as.double(scale(cars$wt)), power = as.double(scale(cars$hp)))
  model_glm(X, cars$am, prior = normal(0, 5))
}

families_compared <- function() {
  list(gaussian = base_gaussian(), laplace = base_laplace(), uniform = base_uniform(),
       student = base_student(5), power = base_power(4))
}

scales_compared <- c("symmetric", "triangular", "diagonal")

# The exact optimum of every family, not the posterior corrected from it
fit_families <- function(model) {
  bases <- families_compared()
  each <- expand.grid(base = names(bases), scale = scales_compared, stringsAsFactors = FALSE)
  fits <- Map(function(base, scale) {
    elvi(model, bases[[base]], method = "exact", control = elvi_control(scale = scale), correct = FALSE)
  }, each$base, each$scale)
  stats::setNames(fits, paste(each$base, each$scale, sep = ", "))
}

# ---- the posterior itself ---------------------------------------------------------

# Random-walk Metropolis, many chains side by side: the proposal is a normal step of
# 2.38 / sqrt(d) standard deviations of `proposal`, the chains start at draws of
# `start`. Returns the draws, iterations x chains x parameters.
metropolis <- function(model, proposal, start, iterations, chains = 64L,
                       burn_in = iterations %/% 5) {
  d <- model$dim
  log_density <- function(x) -target_at(model, x)$value
  root <- 2.38 / sqrt(d) * proposal$Sigma
  x <- t(simulate.elvi_fit(start, chains))
  now <- log_density(x)
  kept <- array(0, c(iterations, chains, d), list(NULL, NULL, model$names))
  accepted <- 0
  for (i in seq_len(burn_in + iterations)) {
    to <- x + root %*% matrix(stats::rnorm(d * chains), d)
    there <- log_density(to)
    moves <- log(stats::runif(chains)) < there - now
    x[, moves] <- to[, moves]
    now[moves] <- there[moves]
    if (i > burn_in) {
      kept[i - burn_in, , ] <- t(x)
      accepted <- accepted + mean(moves) / iterations
    }
  }
  structure(kept, acceptance = accepted)
}

# The chains are independent, so their means give the Monte Carlo error without a
# model of the autocorrelation: mcse = sd(chain means) / sqrt(chains).
summarise_chains <- function(kept) {
  n <- dim(kept)[1L]
  chains <- dim(kept)[2L]
  means <- apply(kept, c(2L, 3L), mean)
  within <- colMeans(apply(kept, c(2L, 3L), stats::var))
  between <- apply(means, 2L, stats::var)
  sd <- apply(kept, 3L, stats::sd)
  error2 <- between / chains
  skew <- apply(kept, 3L, function(x) mean((x - mean(x))^3) / stats::sd(x)^3)
  list(mean = colMeans(means), sd = sd, skew = skew, mcse = sqrt(error2), ess = sd^2 / error2,
       rhat = sqrt((n - 1) / n + between / within), acceptance = attr(kept, "acceptance"),
       chains = chains, iterations = n)
}

chain_draws <- function(kept) {
  matrix(kept, ncol = dim(kept)[3L], dimnames = list(NULL, dimnames(kept)[[3L]]))
}

# log evidence, by importance sampling
log_evidence <- function(fit, draws) {
  ratios <- draws_with_ratios(fit, draws)$log_ratios
  weight <- exp(ratios - max(ratios))
  list(estimate = max(ratios) + log(mean(weight)) + model_constant(fit$model),
       se = stats::sd(weight) / mean(weight) / sqrt(draws))
}

# ---- judging a family --------------------------------------------------------------

judge_family <- function(fit, mcmc, evidence, draws, path) {
  k <- pareto_k(fit, draws = draws)
  x <- chain_draws(mcmc)
  truth <- list(mean = colMeans(x), sd = apply(x, 2L, stats::sd))
  law <- elbo(fit)$estimate
  data.frame(
    base = fit$base$kind, scale = fit$control$scale, elbo = law,
    kl = evidence$estimate - law, khat = k$k, worth = k$ess / k$draws,
    mean_error = max(abs(fit$mu - truth$mean) / truth$sd),
    sd_ratio = min(sqrt(diag(vcov.elvi_fit(fit))) / truth$sd),
    outside = share_outside(fit, x, 0.99),
    evaluations = fit$optimum$evaluations,
    left = gap_left(path))
}

# Share of the draws x outside the ellipsoid that holds `mass` of the approximation.
share_outside <- function(fit, x, mass) {
  z <- draw_base(law_of(fit$base, fit$model$dim), c(1, 2), 40000L)   # a fixed key
  radius2 <- stats::quantile(colSums(z^2), mass, names = FALSE)
  mean(stats::mahalanobis(x, fit$mu, vcov.elvi_fit(fit)) > radius2)
}

# With C the optimal triangular scale, C z and the symmetric root of C C' times z have
# the same law: how far apart are their objectives?
same_law <- function(fits) {
  max(vapply(names(families_compared()), function(base) {
    fit <- fits[[paste0(base, ", triangular")]]
    root <- list(mu = fit$mu, Sigma = symmetric_root(fit$scale))
    abs(objective(fit)$estimate - objective(root, fit$model, fit$base)$estimate)
  }, 0))
}

# ---- what the stochastic algorithm makes of it ----------------------------------------

# The exact gap of the iterates along runs of the default schedule: one row for each
# family, run and checkpoint. Run number i has the same seed in every family.
descent_paths <- function(model, fits, runs, budget = 20000) {
  keys <- sample.int(1e6, runs)
  bind_rows(lapply(names(fits), function(name) {
    bind_rows(lapply(seq_len(runs), function(run) {
      set.seed(keys[run])
      data.frame(family = name, run = run, descent_path(model, fits[[name]], budget))
    }))
  }))
}

descent_path <- function(model, fit, budget, looks = 16L) {
  control <- elvi_control(scale = fit$control$scale, average = "last", trace_draws = 0)
  schedule <- schedule_tuned(budget)
  law <- law_of(fit$base, model$dim)
  plan <- plan_schedule(schedule, model$dim, law$kurtosis, NA_real_, control)
  evals <- cumsum(plan_at(plan, seq_len(plan$iterations) - 1)$batch)
  oracle <- exact_oracle(model, law)
  start <- away_from_the_mode(model, fit$control$scale)
  best <- fit$optimum$objective
  checkpoints <- log_checkpoints(evals, 1, looks)
  control$iterations <- checkpoints[1L]
  run <- elvi(model, fit$base, schedule, start = start, control = control)
  gap <- vapply(checkpoints, function(k) {
    if (k > run$state$k) run <<- elvi(run, iterations = k)
    at <- run$last
    oracle(control$scale, unname(at$mu), unname(at$scale))$objective - best
  }, 0)
  data.frame(evals = evals[checkpoints], gap = gap)
}

# Why are some gaps at the end of a run so large? The second half of the iterations of runs with symmetric scales, one by one: the
# usual gap (the median), the share of iterations with more than ten times that, for how many they last, and the largest
# (judge_jumps()). And the gap of the tail average of the same run, which is what elvi() returns.
find_jumps <- function(model, fits, runs, budget = 20000) {
  keys <- sample.int(1e6, runs)
  bind_rows(lapply(c("gaussian", "student"), function(base) {
    fit <- fits[[paste0(base, ", symmetric")]]
    bind_rows(lapply(seq_len(runs), function(run) {
      set.seed(keys[run])
      data.frame(base = base, run = run, judge_jumps(late_iterates(model, fit, budget)))
    }))
  }))
}

# For each iterate of the second half: its gap, that with the optimal mu in its place, the smallest eigenvalue of the scale in
# the coordinates of the run, and the length of the longest draw in the batch that led there
late_iterates <- function(model, fit, budget) {
  law <- law_of(fit$base, model$dim)
  gap <- function(mu, scale) exact_oracle(model, law)("symmetric", unname(mu), unname(scale))$objective - fit$optimum$objective
  control <- elvi_control(trace_draws = 0)
  plan <- plan_schedule(schedule_tuned(budget), model$dim, law$kurtosis, NA_real_, control)
  batch <- plan_at(plan, seq_len(plan$iterations) - 1)$batch
  start <- away_from_the_mode(model, "symmetric")
  control$iterations <- plan$iterations %/% 2
  run <- suppressMessages(elvi(model, fit$base, schedule_tuned(budget), start = start, control = control))
  rows <- lapply(seq(control$iterations + 1, plan$iterations), function(k) {
    run <<- suppressMessages(elvi(run, iterations = k))
    z <- draw_base(law, run$plan$seed, batch[k], iteration = k - 1)
    data.frame(gap = gap(run$last$mu, run$last$scale), of_scale = gap(fit$mu, run$last$scale),
               eigenvalue = min(eigen(run$state$scale, TRUE, only.values = TRUE)$values), farthest = sqrt(max(colSums(z^2))))
  })
  at <- to_user(run_model(run), "symmetric", run$state$average_mu, run$state$average_scale)
  list(path = bind_rows(rows), average = gap(at$mu, at$scale))
}

judge_jumps <- function(late) {
  path <- late$path
  usual <- stats::median(path$gap)
  high <- rle(path$gap > 10 * usual)
  top <- which.max(path$gap[-1L]) + 1L
  data.frame(usual = usual, share = mean(path$gap > 10 * usual), longest = max(0L, high$lengths[high$values]),
             largest = path$gap[top], of_scale = path$of_scale[top], before = path$eigenvalue[top - 1L],
             eigenvalue = path$eigenvalue[top], farther = path$farthest[top] / stats::median(path$farthest),
             last = path$gap[nrow(path)], average = late$average, iterations = nrow(path))
}

# CPU milliseconds of a step in each kind of scale, on a target that costs little.
step_cost <- function(dim = 100, iterations = 200) {
  model <- model_quadratic(diag(dim))
  vapply(scales_compared, function(scale) {
    fit <- elvi(model, schedule = schedule_custom(0.1, 10, iterations),
                control = elvi_control(coordinates = "raw", scale = scale, trace_draws = 0))
    1000 * fit$cpu / iterations
  }, 0)
}

# A start from which there is a way to go: the mode is too good a guess.
away_from_the_mode <- function(model, scale) {
  mode <- find_mode(model)
  sd <- sqrt(diag(solve(mode$hessian)))
  list(mu = mode$x + 2 * sd, Sigma = if (scale == "diagonal") sd else diag(sd))
}

# The mean gap of the iterates over the last three quarters of the budget: what the
# noise of the gradients leaves.
gap_left <- function(path) mean(path$gap[path$evals >= max(path$evals) / 4])

# ---- figures -------------------------------------------------------------------------

draw_bases <- function(x, what = c("families", "density", "pairs", "paths"), ...) {
  check_dots(list(...), "what", "plot() on this experiment")
  switch(check_choice(what, "what", c("families", "density", "pairs", "paths")),
         families = draw_families(x), density = draw_densities(x), pairs = draw_scales(x),
         paths = draw_paths(x))
}

# KL divergence and k-hat of every family
draw_families <- function(x) {
  panels <- c(kl = "divergence from the posterior (nats)", khat = "Pareto k-hat")
  data <- bind_rows(lapply(names(panels), function(column) {
    data.frame(x$data[c("base", "scale")], panel = panels[[column]], value = x$data[[column]])
  }))
  data$panel <- factor(data$panel, panels)
  data$base <- factor(data$base, rev(names(families_compared())))
  top <- data$base == "gaussian" & data$panel == panels[["kl"]]
  labels <- data[top & data$scale != "triangular", ]
  labels$label <- ifelse(labels$scale == "symmetric", "symmetric and\ntriangular", "diagonal")
  threshold <- data.frame(panel = factor(panels[["khat"]], panels), at = 0.7)
  ggplot2::ggplot(data, ggplot2::aes(x = .data$value, y = .data$base, colour = .data$scale,
                                     shape = .data$scale, size = .data$scale)) +
    ggplot2::geom_vline(ggplot2::aes(xintercept = .data$at), threshold, colour = "grey60",
                        linetype = "dashed") +
    ggplot2::geom_text(ggplot2::aes(x = .data$at, label = "0.7 "), threshold, y = 0.6, hjust = 1,
                       size = 3, colour = "grey40", inherit.aes = FALSE) +
    ggplot2::geom_point(stroke = 0.9) +
    ggplot2::geom_text(ggplot2::aes(label = .data$label), labels, size = 3, vjust = 0,
                       nudge_y = 0.25, hjust = 0.2, lineheight = 0.9) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel), scales = "free_x") +
    ggplot2::scale_colour_manual(values = scale_colours(), guide = "none") +
    ggplot2::scale_shape_manual(values = c(symmetric = 16, triangular = 1, diagonal = 17)) +
    ggplot2::scale_size_manual(values = c(symmetric = 2, triangular = 4, diagonal = 2.5)) +
    ggplot2::scale_x_continuous(expand = ggplot2::expansion(mult = 0.1)) +
    ggplot2::scale_y_discrete(expand = ggplot2::expansion(add = c(0.6, 1.1))) +
    ggplot2::labs(x = NULL, y = NULL) +
    experiment_theme()
}

scale_colours <- function() {
  c(symmetric = experiment_colours[1L], triangular = experiment_colours[1L],
    diagonal = experiment_colours[2L])
}

# The marginal of one coefficient under each base (symmetric scale), on the chains'.
draw_densities <- function(x, parameter = "weight") {
  chain <- chain_draws(x$mcmc)[, parameter]
  range <- stats::quantile(chain, c(0.0005, 0.9995), names = FALSE)
  at <- seq(range[1L], range[2L], length.out = 301L)
  bases <- names(families_compared())
  fits <- exact_fits(x)
  curves <- bind_rows(lapply(bases, function(base) {
    fit <- fits[[paste0(base, ", symmetric")]]
    data.frame(base = base, x = at, density = q_density(fit, parameter, at))
  }))
  curves$base <- factor(curves$base, bases)
  bars <- histogram(chain, range, 50L)
  ggplot2::ggplot(curves, ggplot2::aes(x = .data$x, y = .data$density)) +
    ggplot2::geom_col(data = bars, fill = "grey80", width = diff(range) / 50) +
    ggplot2::geom_line(colour = experiment_colours[1L], linewidth = 0.7) +
    ggplot2::facet_wrap(ggplot2::vars(.data$base), nrow = 1L) +
    ggplot2::labs(x = paste("coefficient of", parameter), y = "density") +
    experiment_theme()
}

# densities of x in equal bins over the range
histogram <- function(x, range, bins) {
  edges <- seq(range[1L], range[2L], length.out = bins + 1L)
  count <- tabulate(findInterval(x, edges), bins + 1L)[seq_len(bins)]
  data.frame(x = edges[-1L] - diff(edges) / 2, density = count / (length(x) * diff(edges)))
}

# Gaussian fits of full and diagonal scale on the draws of two coefficients.
draw_scales <- function(x, pair = c("weight", "power")) {
  chain <- chain_draws(x$mcmc)
  shown <- as.data.frame(chain[round(seq(1, nrow(chain), length.out = 3000L)), pair])
  names(shown) <- c("x1", "x2")
  kinds <- c(symmetric = "symmetric or\ntriangular", diagonal = "diagonal")
  fits <- exact_fits(x)
  ellipses <- bind_rows(lapply(names(kinds), function(kind) {
    fit <- fits[[paste0("gaussian, ", kind)]]
    root <- t(chol(vcov.elvi_fit(fit)[pair, pair]))
    data.frame(ellipse_of(fit$mu[pair], root, sqrt(stats::qchisq(0.95, 2))), kind = kind)
  }))
  corner <- bind_rows(lapply(names(kinds), function(kind) {
    one <- ellipses[ellipses$kind == kind, ]
    cbind(one[which.min(one$x2), ], label = kinds[[kind]])
  }))
  ggplot2::ggplot(shown, ggplot2::aes(x = .data$x1, y = .data$x2)) +
    ggplot2::geom_point(colour = "grey75", size = 0.3) +
    ggplot2::geom_path(ggplot2::aes(colour = .data$kind), ellipses, linewidth = 0.8) +
    ggplot2::geom_text(ggplot2::aes(colour = .data$kind, label = .data$label), corner, vjust = 1.2,
                       size = 3, lineheight = 0.9) +
    ggplot2::scale_colour_manual(values = scale_colours(), guide = "none") +
    ggplot2::labs(x = pair[1L], y = pair[2L]) +
    experiment_theme()
}

# The gap of the iterates to the optimum of their own family, gaussian base.
draw_paths <- function(x) {
  wanted <- paste0("gaussian, ", scales_compared)
  paths <- x$paths[x$paths$family %in% wanted, ]
  paths$scale <- factor(sub("gaussian, ", "", paths$family), scales_compared)
  means <- stats::aggregate(gap ~ evals + scale, paths, mean)
  ends <- means[means$evals == max(means$evals), ]
  ends$label_at <- 10^spread_out(log10(ends$gap), diff(range(log10(means$gap))) / 14)
  colours <- c(scale_colours()[c("symmetric", "diagonal")], triangular = experiment_colours[3L])
  ggplot2::ggplot(means, ggplot2::aes(x = .data$evals, y = .data$gap, colour = .data$scale)) +
    ggplot2::geom_line(ggplot2::aes(group = interaction(.data$scale, .data$run)), paths,
                       alpha = 0.25) +
    ggplot2::geom_line(linewidth = 0.8) +
    ggplot2::geom_text(ggplot2::aes(y = .data$label_at, label = .data$scale), ends, hjust = -0.1,
                       size = 3) +
    ggplot2::scale_colour_manual(values = colours, guide = "none") +
    ggplot2::scale_x_log10(breaks = whole_powers(means$evals), labels = power_of_ten,
                           expand = ggplot2::expansion(mult = c(0.03, 0.2))) +
    ggplot2::scale_y_log10(breaks = whole_powers(paths$gap), labels = power_of_ten) +
    ggplot2::labs(x = "gradient evaluations", y = "gap to the optimum of its family (nats)") +
    experiment_theme()
}
