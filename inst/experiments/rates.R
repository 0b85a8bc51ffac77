# Measured gaps beside what the theorems promise.

rate_experiments <- function() {
  list(rates = list(title = "Gap against budget, finite horizon",
                    run = run_rates, draw = draw_rates),
       rates_dynamic = list(title = "Gap against budget, steps that decay and batches that grow",
                            run = run_rates_dynamic, draw = draw_rates_dynamic),
       rates_noise = list(title = "Gap against dimension and kurtosis",
                          run = run_rates_noise, draw = draw_rates_noise),
       rates_batch = list(title = "Gap against batch size at a fixed budget",
                          run = run_rates_batch, draw = draw_rates_batch))
}

# ---- targets -------------------------------------------------------------------------

# predictors and coefficients of moderate size, so that nothing but the theory is tried
rate_logistic <- function(dim) {
  rows <- 10 * dim
  seeded(1, {
    X <- matrix(stats::rnorm(rows * dim), rows, dim)
    y <- stats::rbinom(rows, 1, stats::plogis(rowSums(X) / 2))
  })
  model_glm(X, y, prior = normal(0, 1))
}

# The same optimum for every base, and curvatures from 1 to 10 in every dimension, the
# mode at distance 1 from the start: only d and the base change.
rate_quadratic <- function(dim) {
  model_quadratic(diag(10^seq(0, 1, length.out = dim), dim), rep(1 / sqrt(dim), dim))
}

theory_guarantee <- function(model, schedule, base = base_gaussian(), control = theory_control()) {
  guarantee(model, base, schedule, control = control)
}

# the gap of the theorem's average after a whole run
run_gap <- function(model, base, schedule, control, seed, optimum) {
  fit <- seeded(seed, suppressMessages(elvi(model, base, schedule, control = control)))
  gap_at(fit, "average", optimum)
}

presets <- c("case1", "case2", "psgd", "psgd_scaled")

# ---- finite horizon --------------------------------------------------------------------

run_rates <- function(seeds = 5, budgets = 10^seq(2, 5, by = 0.5), dim = 5) {
  seeds <- check_count(seeds, "seeds")
  budgets <- check_budgets(budgets)
  model <- rate_logistic(check_count(dim, "dim"))
  optimum <- elvi_optimum(model)$objective
  guarantees <- lapply(stats::setNames(nm = presets), function(preset) {
    theory_guarantee(model, schedule_fixed(budgets[1L], preset))
  })
  runs <- expand.grid(seed = seq_len(seeds), budget = budgets, method = presets,
                      stringsAsFactors = FALSE)
  gap <- mapply(function(method, budget, seed) {
    run_gap(model, base_gaussian(), schedule_fixed(budget, method), theory_control(), seed, optimum)
  }, runs$method, runs$budget, runs$seed)
  bound <- unlist(lapply(guarantees, function(g) rep(predict(g, budgets, by = "distance"), each = seeds)))
  data <- data.frame(runs[c("method", "budget", "seed")], gap = unname(gap), bound = unname(bound))
  slopes <- rate_slopes(data, "gap", function(method) schedule_fixed(1, method))
  list(data = data, numbers = list(slopes = slopes, gap_start = guarantees[[1L]]$gap_start,
                                   L = model$smoothness))
}

check_budgets <- function(budgets) {
  budgets <- round(check_vector(budgets, "budgets"))
  if (length(budgets) < 2L || is.unsorted(budgets, strictly = TRUE) || budgets[1L] < 1) {
    bad_argument("budgets", "two or more positive numbers in increasing order", describe(budgets))
  }
  budgets
}

# Slopes of the mean gap over all budgets and over the last decade, beside the theory's.
rate_slopes <- function(data, value, schedule) {
  means <- over_seeds(data, value, c("method", "budget"))
  bind_rows(lapply(unique(data$method), function(method) {
    one <- means[means$method == method, ]
    late <- one[one$budget >= max(one$budget) / 10.5, ]
    data.frame(method = method, theory = schedule_rate(schedule(method))$exponent,
               all = log_slope(one$budget, one$mean),
               last_decade = log_slope(late$budget, late$mean))
  }))
}

# ---- dynamic ------------------------------------------------------------------------------

run_rates_dynamic <- function(seeds = 3, budgets = 10^seq(2, 6, by = 0.5), dim = 5, cores = 1) {
  seeds <- check_count(seeds, "seeds")
  cores <- check_count(cores, "cores")
  budgets <- check_budgets(budgets)
  model <- rate_logistic(check_count(dim, "dim"))
  optimum <- elvi_optimum(model)$objective
  schedules <- dynamic_schedules(model, max(budgets))
  bounds <- lapply(schedules, function(schedule) predict(theory_guarantee(model, schedule), budgets, by = "distance"))
  runs <- expand.grid(seed = seq_len(seeds), method = names(schedules), stringsAsFactors = FALSE)
  data <- bind_rows(on_cores(seq_len(nrow(runs)), function(i) {
    along <- seeded(runs$seed[i], measure_along(
      model, base_gaussian(), schedules[[runs$method[i]]], theory_control(),
      pick = function(plan) iterations_within(plan, budgets),
      measure = function(fit) data.frame(gap = gap_at(fit, "average", optimum),
                                         last = gap_at(fit, "last", optimum))))
    data.frame(method = runs$method[i], budget = budgets, seed = runs$seed[i], along[-1L, ],
               bound = bounds[[runs$method[i]]])
  }, cores))
  slopes <- rate_slopes(data, "gap", function(method) schedules[[method]])
  last <- rate_slopes(data, "last", function(method) schedules[[method]])
  list(data = data,
       numbers = list(slopes = cbind(slopes, last_iterate = last$all), schedules = schedules,
                      L = model$smoothness))
}

# Each strategy with the first step that makes its bound smallest at the largest budget
dynamic_schedules <- function(model, budget) {
  longest <- 1 / (2 * model$smoothness)
  lapply(list(decay = schedule_decay(budget, longest, epsilon = 0.1),
              both = schedule_decay(budget, longest, epsilon = 0, growth = 0.5),
              growing = schedule_growing(budget, longest, nu = 0.1)),
         function(schedule) {
           g <- theory_guarantee(model, schedule)
           bound <- function(log_step) {
             g$schedule$step <- exp(log_step)
             predict(g, budget, by = "distance")
           }
           schedule$step <- exp(stats::optimize(bound, log(longest) + c(-7, 0), tol = 0.01)$minimum)
           schedule
         })
}

# how many iterations of a plan fit into each budget
iterations_within <- function(plan, budgets) {
  spent <- cumsum(plan_at(plan, seq_len(plan$iterations) - 1)$batch)
  findInterval(budgets, spent)
}

# ---- dimension and kurtosis ---------------------------------------------------------------

run_rates_noise <- function(seeds = 5, dims = c(2, 5, 10, 20, 40), df = c(4.2, 4.5, 5, 7, 12),
                            budget = 1e4) {
  seeds <- check_count(seeds, "seeds")
  budget <- check_count(budget, "budget")
  dims <- check_counts(dims, "dims")
  of_dim <- lapply(dims, function(d) noise_point("dimension", d, d, base_gaussian(), seeds, budget))
  bases <- c(list(base_uniform(), base_gaussian(), base_laplace()),
             lapply(check_vector(df, "df"), base_student))
  of_kurtosis <- lapply(bases, function(base) {
    noise_point("kurtosis", base_info(base, 10)$kurtosis, 10, base, seeds, budget)
  })
  data <- bind_rows(c(of_dim, of_kurtosis))
  list(data = data, numbers = list(slopes = noise_slopes(data)))
}

noise_point <- function(varied, at, dim, base, seeds, budget) {
  model <- rate_quadratic(dim)
  optimum <- elvi_optimum(model, base)$objective
  bind_rows(lapply(c("case1", "case2"), function(method) {
    schedule <- schedule_fixed(budget, method)
    g <- theory_guarantee(model, schedule, base)
    gap <- vapply(seq_len(seeds), function(seed) {
      run_gap(model, base, schedule, theory_control(), seed, optimum)
    }, 0)
    data.frame(varied = varied, at = at, base = base$kind, method = method, seed = seq_len(seeds),
               gap = gap, noiseless = noiseless_gap(model, g, g$K / (g$K + 1)), bound = g$bounds[["distance"]])
  }))
}

# The gap of the average of the same run with exact gradients, on a diagonal quadratic,
# where Sigma stays diagonal: weights tau, tau^2, ... for the iterates from the start on.
noiseless_gap <- function(model, g, tau) {
  a <- diag(model$A)
  mu <- numeric(length(a))
  s <- rep(1 / sqrt(g$L), length(a))
  average <- list(mu = 0 * mu, s = 0 * s)
  weight <- tau^seq_len(g$K) / sum(tau^seq_len(g$K))
  for (k in seq_len(g$K)) {
    average <- list(mu = average$mu + weight[k] * mu, s = average$s + weight[k] * s)
    mu <- mu - g$gamma * g$lambda[["mu"]] * a * (mu - model$m)
    s <- pmax(s - g$gamma * g$lambda[["Sigma"]] * (a * s - 1 / s), 1 / sqrt(g$L))
  }
  # F of a quadratic, minus its optimum d/2 + log|A|/2
  sum(a * (average$mu - model$m)^2 + a * average$s^2 - 2 * log(average$s) - 1 - log(a)) / 2
}

noise_slopes <- function(data) {
  by <- c("varied", "method", "at")
  means <- merge(over_seeds(data, "gap", by), over_seeds(data, "bound", by), by = by)
  bind_rows(lapply(split(means, means[c("varied", "method")]), function(g) {
    data.frame(varied = g$varied[1L], method = g$method[1L],
               gap = log_slope(g$at, g$mean.x), bound = log_slope(g$at, g$mean.y))
  }))
}

# ---- batch size ------------------------------------------------------------------------------

run_rates_batch <- function(seeds = 5, budget = 1e4, dim = 5) {
  seeds <- check_count(seeds, "seeds")
  budget <- check_count(budget, "budget", lower = 4)
  model <- rate_logistic(check_count(dim, "dim"))
  tried <- lapply(c("case1", "case2"), try_batches, model, seeds, budget)
  list(data = bind_rows(lapply(tried, `[[`, "data")),
       numbers = list(best = bind_rows(lapply(tried, `[[`, "best")), budget = budget))
}

# A budget split in many ways, with the steps and the preconditioner of a preset
try_batches <- function(method, model, seeds, budget) {
  optimum <- elvi_optimum(model)$objective
  preset <- theory_guarantee(model, schedule_fixed(budget, method))
  control <- theory_control(precondition = preset$lambda)
  split <- best_split(preset, by = "distance")
  batches <- sort(unique(c(split$N, round(2^seq(0, log2(budget / 4), by = 0.5)))))
  data <- bind_rows(lapply(batches, function(N) {
    schedule <- schedule_custom(split$gamma, N, budget %/% N)
    gap <- vapply(seq_len(seeds), function(seed) {
      run_gap(model, base_gaussian(), schedule, control, seed, optimum)
    }, 0)
    data.frame(method = method, batch = N, seed = seq_len(seeds), gap = gap,
               bound = theory_guarantee(model, schedule, control = control)$bounds[["distance"]])
  }))
  means <- over_seeds(data, "gap", "batch")
  list(data = data, best = data.frame(method = method, bound = split$N, preset = preset$N,
                                      measured = means$batch[which.min(means$mean)]))
}

# ---- pictures ----------------------------------------------------------------------------------

# Log-log panels: measured lines with bands over the seeds, bounds dashed.
# `curves` has x, panel, line, bound (a bound?) and the columns of over_seeds(), `labels`
# x, mean, panel, line, text and hjust.
draw_against_bound <- function(curves, labels, colours, x, ...,
                               x_scale = ggplot2::scale_x_log10(labels = power_of_ten)) {
  ggplot2::ggplot(curves, ggplot2::aes(.data$x, .data$mean, colour = .data$line)) +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$low, ymax = .data$high, fill = .data$line,
                                      group = interaction(.data$line, .data$bound)),
                         alpha = 0.2, colour = NA) +
    ggplot2::geom_line(ggplot2::aes(linetype = .data$bound), linewidth = 0.7) +
    ggplot2::geom_text(ggplot2::aes(label = .data$text, hjust = .data$hjust), data = labels,
                       size = 3) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel), ...) +
    x_scale +
    ggplot2::scale_y_log10(labels = plain_number) +
    ggplot2::scale_colour_manual(values = colours, aesthetics = c("colour", "fill")) +
    ggplot2::scale_linetype_manual(values = c(`FALSE` = "solid", `TRUE` = "dashed")) +
    ggplot2::labs(x = x, y = "nats above the optimum") +
    experiment_theme()
}

power_of_ten <- function(x) parse(text = ifelse(is.na(x), NA, sprintf("10^%g", log10(x))))

# curves of draw_against_bound() from columns of the data: `values` names them by line
curves_of <- function(data, values, x, panels, by = "method") {
  bind_rows(lapply(names(values), function(line) {
    out <- over_seeds(data, values[[line]], c(by, x))
    data.frame(panel = factor(panels[out[[by]]], unname(panels)), line = line,
               bound = line == "bound", x = out[[x]], out[c("mean", "low", "high")])
  }))
}

# A label above (factor > 1) or below a curve, at its `at`-th point
label_near <- function(curves, line, text, at, factor, hjust) {
  bind_rows(lapply(levels(curves$panel), function(panel) {
    one <- curves[curves$panel == panel & curves$line == line, ]
    data.frame(panel = factor(panel, levels(curves$panel)), line = line, x = one$x[at],
               mean = one$mean[at] * factor, text = text[[panel]], hjust = hjust)
  }))
}

line_colours <- function() {
  c(bound = "grey30", measured = experiment_colours[1L], last = experiment_colours[2L])
}

format_slope <- function(x) sprintf("%.2f", x)

draw_rates <- function(x, ...) {
  check_dots(list(...), "x", "autoplot()")
  values <- c(bound = "bound", measured = "gap")
  curves <- curves_of(x$data, values, "budget", method_labels[presets])
  slopes <- x$numbers$slopes
  text <- function(what, column) {
    stats::setNames(paste(what, format_slope(slopes[[column]])), method_labels[slopes$method])
  }
  middle <- (length(unique(x$data$budget)) + 1) %/% 2
  draw_against_bound(curves, rbind(
    label_near(curves, "bound", text("bound, slope", "theory"), middle, 2, 0),
    label_near(curves, "measured", text("measured, slope", "all"), middle, 0.4, 1)),
    line_colours(), "budget of gradient evaluations")
}

draw_rates_dynamic <- function(x, ...) {
  check_dots(list(...), "x", "autoplot()")
  panels <- dynamic_labels
  curves <- curves_of(x$data, c(bound = "bound", measured = "gap", last = "last"), "budget", panels)
  slopes <- x$numbers$slopes
  text <- function(what, column) {
    stats::setNames(paste0(what, format_slope(slopes[[column]])), panels[slopes$method])
  }
  points <- length(unique(x$data$budget))
  draw_against_bound(curves, rbind(
    label_near(curves, "bound", text("bound ", "theory"), points %/% 2 + 1, 2.5, 0),
    label_near(curves, "measured", text("average\n", "all"), points, 0.2, 1),
    label_near(curves, "last", text("last iterate ", "last_iterate"), points %/% 2 + 1, 0.25, 1)),
    line_colours(), "gradient evaluations")
}

dynamic_labels <- c(decay = "steps k^-0.6, batches 1", both = "steps k^-0.5, batches k^0.5",
                    growing = "steps constant, batches k^1.1")

draw_rates_noise <- function(x, ...) {
  check_dots(list(...), "x", "autoplot()")
  panels <- c(dimension = "dimension d, gaussian base", kurtosis = "kurtosis of the base, d = 10")
  values <- c(case1 = "MPSGD", case2 = "MPSGD, scaled")
  curves <- bind_rows(lapply(names(values), function(method) {
    one <- x$data[x$data$method == method, ]
    out <- curves_of(one, c(bound = "bound", gap = "gap"), "at", panels, by = "varied")
    out$line <- method
    out
  }))
  ends <- curves[!duplicated(curves[c("panel", "line", "bound")], fromLast = TRUE), ]
  labels <- bind_rows(lapply(split(ends, ends$panel), function(one) {
    data.frame(one[c("panel", "line")], x = one$x * 1.08, hjust = 0,
               mean = 10^spread_out(log10(one$mean), 0.18),
               text = ifelse(one$bound, "bound", values[one$line]))
  }))
  wide <- ggplot2::scale_x_log10(breaks = c(2, 3, 5, 10, 20, 40),
                                 expand = ggplot2::expansion(c(0.03, 0.5)))
  draw_against_bound(curves, labels, method_colours(), NULL, scales = "free_x",
                     strip.position = "bottom", x_scale = wide) +
    ggplot2::theme(strip.placement = "outside")
}

draw_rates_batch <- function(x, ...) {
  check_dots(list(...), "x", "autoplot()")
  panels <- method_labels[c("case1", "case2")]
  curves <- curves_of(x$data, c(bound = "bound", measured = "gap"), "batch", panels)
  lowest <- bind_rows(lapply(levels(curves$panel), function(panel) {
    bind_rows(lapply(split(curves, curves$line), function(one) {
      one <- one[one$panel == panel, ]
      one[which.min(one$mean), ]
    }))
  }))
  labels <- data.frame(lowest, hjust = 0.5, text = paste("N =", lowest$x))
  labels$mean <- labels$mean * 0.6
  draw_against_bound(curves, labels, line_colours(), "batch size N") +
    ggplot2::geom_point(data = lowest, size = 2)
}
