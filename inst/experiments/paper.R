# The three figures of the paper: bayesian logistic regression on noise, d = 200.

paper_experiments <- function() {
  list(figure1 = paper_figure(
         "Figure 1 of the paper: laplace base, M = 300", base_laplace(), 300, 0.1),
       figure2 = paper_figure(
         "Figure 2 of the paper: gaussian base, M = 1000", base_gaussian(), 1000, 0.1),
       figure3 = paper_figure(
         "Figure 3 of the paper: uniform base, M = 2000", base_uniform(), 2000, 0.5))
}

paper_figure <- function(title, base, rows, alpha) {
  list(title = title,
       run = function(seeds = 3, psgd_seeds = c(printed = 2, right = 2, whitened = 1),
                      settings = c("printed", "right", "whitened"),
                      methods = c("case1", "case2", "psgd", "psgd_scaled", "tuned"),
                      budget = 5000, dim = 200, points = 12, cores = 1) {
         seeds <- check_count(seeds, "seeds")
         psgd_seeds <- check_seeds(psgd_seeds)
         settings <- check_choices(settings, "settings", names(paper_settings))
         methods <- check_choices(methods, "methods", names(method_labels))
         budget <- check_count(budget, "budget")
         points <- check_count(points, "points", lower = 2)
         cores <- check_count(cores, "cores")
         runs <- paper_runs(settings, methods, seeds, psgd_seeds)
         problem <- paper_problem(base, rows, alpha, check_count(dim, "dim"))
         data <- bind_rows(on_cores(seq_len(nrow(runs)), function(i) {
           run <- runs[i, ]
           data.frame(run, paper_run(problem, run$setting, run$method, run$seed, budget, points),
                      row.names = NULL)
         }, cores))
         list(data = data, numbers = paper_numbers(problem, data))
       },
       draw = draw_paper_figure)
}

paper_settings <- c(printed = "L as printed", right = "the right L",
                    whitened = "whitened coordinates")

# for each setting, from one number or one by name
check_seeds <- function(seeds) {
  if (is.null(names(seeds))) seeds <- rep(check_count(seeds, "psgd_seeds"), length(paper_settings))
  names(seeds) <- names(seeds) %||% names(paper_settings)
  if (!setequal(names(seeds), names(paper_settings))) {
    bad_argument("psgd_seeds", "one number, or one each for \"printed\", \"right\" and \"whitened\"",
                 describe(seeds))
  }
  vapply(seeds, check_count, 0, name = "psgd_seeds")
}

# elvi's default schedule is for whitened coordinates. PSGD, which projects once a
# gradient, takes nearly all of the time: it has its own number of seeds.
paper_runs <- function(settings, methods, seeds, psgd_seeds) {
  runs <- expand.grid(seed = seq_len(max(seeds, psgd_seeds)), method = methods, setting = settings,
                      stringsAsFactors = FALSE)
  wanted <- ifelse(startsWith(runs$method, "psgd"), psgd_seeds[runs$setting], seeds)
  runs <- runs[runs$seed <= wanted & (runs$method != "tuned" | runs$setting == "whitened"),
               c("setting", "method", "seed")]
  runs <- runs[order(!startsWith(runs$method, "psgd")), ]   # the longest first
  if (!nrow(runs)) {
    bad_argument("settings", "\"whitened\" for the method \"tuned\"", describe(settings))
  }
  runs
}

paper_problem <- function(base, rows, alpha, dim) {
  seeded(1, {
    U <- matrix(stats::runif(rows * dim), rows, dim)
    y <- stats::rbinom(rows, 1, 0.5)
  })
  model <- model_glm(U, y, prior = normal(0, 1 / sqrt(alpha)))
  list(model = model, base = base, optimum = elvi_optimum(model, base),
       printed = alpha + svd(U, 0, 0)$d[1L] / 4)   # without the square
}

paper_run <- function(problem, setting, method, seed, budget, points) {
  if (method == "tuned") return(paper_tuned(problem, seed, budget))
  control <- switch(setting, printed = theory_control(smoothness = problem$printed),
                    right = theory_control(), whitened = theory_control(coordinates = "whitened"))
  optimum <- problem$optimum$objective
  seeded(seed, measure_along(
    problem$model, problem$base, schedule_fixed(budget, method), control,
    pick = function(plan) unique(round(exp(seq(0, log(plan$iterations), length.out = points)))),
    measure = function(fit) {
      ended <- isTRUE(fit$state$k == fit$plan$iterations)   # the theorem's average is for the end
      paper_gaps(problem, gap_at(fit, "last", optimum),
                 if (ended) gap_at(fit, "average", optimum) else NA_real_)
    }))
}

# Its schedule has no horizon, but its average has: a run of its own for each budget.
paper_tuned <- function(problem, seed, budget) {
  budgets <- unique(ceiling(budget * 4^(-3:0)))
  bind_rows(lapply(budgets, function(E) {
    fit <- seeded(seed, suppressMessages(elvi(problem$model, problem$base, budget = E,
                                              control = elvi_control(trace_draws = 0))))
    data.frame(evaluations = fit$state$evals, seconds = fit$cpu,
               paper_gaps(problem, gap_at(fit, "last", problem$optimum$objective),
                          objective(fit)$estimate - problem$optimum$objective))
  }))
}

paper_gaps <- function(problem, last, average) {
  data.frame(gap = last, average = average, negative_elbo = last - problem$optimum$elbo)
}

paper_numbers <- function(problem, data) {
  last <- data[!duplicated(data[c("setting", "method", "seed")], fromLast = TRUE), ]
  mean_of <- function(column) over_seeds(last, column, c("setting", "method"))$mean
  list(optimum = problem$optimum$objective, elbo = problem$optimum$elbo,
       L = c(printed = problem$printed, right = problem$model$smoothness),
       smallest_scale = min(eigen(problem$optimum$Sigma, TRUE, only.values = TRUE)$values),
       ends = data.frame(over_seeds(last, "gap", c("setting", "method")),
                         average = mean_of("average"), negative_elbo = mean_of("negative_elbo"),
                         seconds = mean_of("seconds")))
}

# ---- pictures ------------------------------------------------------------------------

# Runs in whitened coordinates alone are none of the paper's.
draw_paper_figure <- function(x, what = if (all(x$data$setting == "whitened")) "gap" else "elbo", ...) {
  check_dots(list(...), "what", "autoplot()")
  what <- check_choice(what, "what", c("elbo", "gap"))
  if (what == "elbo") draw_paper_elbo(x) else draw_paper_gap(x)
}

draw_paper_elbo <- function(x) {
  best <- -x$numbers$elbo
  data <- paper_curves(x$data, "negative_elbo", c("printed", "right"))
  data <- leave_at_the_top(data, best)
  # the lines end together in the panel on the right, where their labels are
  axes <- c(seconds = "CPU seconds", evaluations = "gradient evaluations")
  across <- function(axis) factor(axes[[axis]], axes)
  labels <- end_labels(data, function(ends, one) {
    top <- max(one$high, na.rm = TRUE)
    away <- is.na(ends$mean) | ends$mean >= top
    text <- method_labels[paste(ends$method)]
    text[away] <- paste0(text[away], ", up to ", format_each(ends$highest[away]))
    data.frame(at = Inf, text = paste0(" ", text), across = across("evaluations"),
               mean = spread_out(ifelse(away, top, ends$mean), (top - best) * 0.1))
  })
  data <- bind_rows(lapply(names(axes), function(axis) {
    data.frame(data, across = across(axis), at = data[[axis]])
  }))
  ggplot2::ggplot(data, ggplot2::aes(.data$at, .data$mean)) +
    ggplot2::geom_hline(yintercept = best, linetype = "dashed", colour = "grey40") +
    ggplot2::geom_text(y = best, label = " optimum", colour = "grey30", hjust = 0, size = 3,
                       data = labels[!duplicated(labels$panel), ]) +
    paper_layers(labels) +
    ggplot2::facet_grid(ggplot2::vars(.data$panel), ggplot2::vars(.data$across), scales = "free",
                        switch = "both") +
    ggplot2::scale_x_continuous(expand = ggplot2::expansion(0.03), n.breaks = 4) +
    ggplot2::coord_cartesian(clip = "off") +
    ggplot2::labs(x = NULL, y = "negative ELBO at the iterate") +
    experiment_theme() +
    ggplot2::theme(strip.placement = "outside", plot.margin = ggplot2::margin(5, 135, 5, 5))
}

draw_paper_gap <- function(x) {
  # elvi's default is judged by what it returns, an average that is no iterate
  x$data$shown <- ifelse(x$data$method == "tuned", x$data$average, x$data$gap)
  data <- paper_curves(x$data, "shown", c("right", "whitened"))
  data$at <- data$evaluations
  apart <- 0.06 * diff(range(log10(data$mean)))
  labels <- end_labels(data, function(ends, one) {
    data.frame(at = max(one$at) * 1.05,
               text = paste0(method_labels[paste(ends$method)], ": ", format_each(ends$mean)),
               mean = 10^spread_out(log10(ends$mean), apart))
  })
  ggplot2::ggplot(data, ggplot2::aes(.data$at, .data$mean)) +
    paper_layers(labels) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel)) +
    ggplot2::scale_y_log10(labels = plain_number) +
    ggplot2::scale_x_continuous(expand = ggplot2::expansion(c(0.02, 0.75)),
                                breaks = max(data$at) * c(0, 0.5, 1)) +
    ggplot2::labs(x = "gradient evaluations", y = "nats above the optimum") +
    experiment_theme()
}

# A line with a band for each method, and its label. With and without minibatches the
# methods often coincide: those with are dashed, on top.
paper_layers <- function(labels) {
  coloured <- function(...) ggplot2::aes(colour = .data$method, ...)
  dashes <- c(case1 = "22", case2 = "22", psgd = "solid", psgd_scaled = "solid", tuned = "solid")
  list(ggplot2::geom_ribbon(ggplot2::aes(fill = .data$method, ymin = .data$low, ymax = .data$high),
                            alpha = 0.25),
       ggplot2::geom_line(coloured(linetype = .data$method, linewidth = .data$method)),
       ggplot2::geom_text(coloured(label = .data$text), data = labels, hjust = 0, size = 3),
       ggplot2::scale_colour_manual(values = method_colours(), aesthetics = c("colour", "fill")),
       ggplot2::scale_linetype_manual(values = dashes),
       ggplot2::scale_linewidth_manual(values = ifelse(dashes == "solid", 0.6, 1)))
}

# In these settings the mean, lowest and highest over the seeds, and their mean CPU time
paper_curves <- function(data, value, settings) {
  data <- data[data$setting %in% settings, ]
  if (!nrow(data)) {
    bad_argument("what", "about a setting that was run",
                 paste("about", paste0("\"", settings, "\"", collapse = " and ")))
  }
  by <- c("setting", "method", "evaluations")
  out <- data.frame(over_seeds(data, value, by), seconds = over_seeds(data, "seconds", by)$mean)
  out$panel <- factor(paper_settings[out$setting], paper_settings)
  drawn <- c("tuned", "psgd", "psgd_scaled", "case1", "case2")   # the last on top
  out$method <- factor(out$method, drawn)
  out
}

# Labels for the ends of the lines: describe(ends, data) gives place and text in one panel.
end_labels <- function(data, describe) {
  bind_rows(lapply(split(data, data$setting), function(one) {
    ends <- one[!duplicated(one$method, fromLast = TRUE), ]
    data.frame(ends[c("method", "panel")], describe(ends, one))
  }))
}

# Runs that diverge would flatten all others: above twice the gap of the start they
# are not drawn, and their highest value is kept for the label.
leave_at_the_top <- function(data, best) {
  bind_rows(lapply(split(data, data[c("setting", "method")], drop = TRUE), function(run) {
    top <- best + 2 * (run$mean[1L] - best)
    run$highest <- max(run$high)
    inside <- run$mean <= top
    beside <- inside | c(FALSE, inside[-length(inside)]) | c(inside[-1L], FALSE)
    run[c("mean", "low", "high")] <- lapply(run[c("mean", "low", "high")], function(v) {
      ifelse(beside, pmin(v, top), NA)
    })
    run
  }))
}
