# The three figures of the paper: bayesian logistic regression on noise, d = 200.

paper_experiments <- function() {
  figures <- lapply(names(paper_problems), function(name) paper_figure(paper_problems[[name]]))
  c(stats::setNames(figures, names(paper_problems)), list(sweep = paper_sweep(), normalised = paper_normalised()))
}

paper_problems <- list(
  figure1 = list(title = "Figure 1 of the paper: laplace base, M = 300", base = "laplace", rows = 300, alpha = 0.1,
                 advi_longest = 10000),
  figure2 = list(title = "Figure 2 of the paper: gaussian base, M = 1000", base = "gaussian", rows = 1000, alpha = 0.1),
  figure3 = list(title = "Figure 3 of the paper: uniform base, M = 2000", base = "uniform", rows = 2000, alpha = 0.5))

paper_figure <- function(of) {
  list(title = of$title,
       run = function(data_sets = 3, seeds = 3, settings = c("printed", "right", "whitened"),
                      methods = c("case1", "case2", "psgd", "psgd_scaled", "tuned", "advi"),
                      budget = 5000, dim = 200, points = 12, cores = 1) {
         data_sets <- check_count(data_sets, "data_sets")
         seeds <- check_count(seeds, "seeds")
         settings <- check_choices(settings, "settings", names(paper_settings))
         methods <- check_choices(methods, "methods", names(method_labels))
         budget <- check_count(budget, "budget")
         points <- check_count(points, "points", lower = 2)
         dim <- check_count(dim, "dim")
         cores <- check_count(cores, "cores")
         runs <- paper_runs(settings, methods, data_sets, seeds)
         problems <- on_cores(seq_len(data_sets), function(i) paper_problem(of, i, dim), cores)
         data <- bind_rows(on_cores(seq_len(nrow(runs)), function(i) {
           run <- runs[i, ]
           problem <- problems[[run$data_set]]
           rows <- paper_run(problem, run$setting, run$method, run$seed, budget, points)
           paid(data.frame(run, rows, row.names = NULL), problem)
         }, cores))
         list(data = data, numbers = paper_numbers(problems, data, budget))
       },
       draw = draw_paper_figure)
}

paper_settings <- c(printed = "L as printed", right = "the right L",
                    whitened = "whitened coordinates")

# What is due to the data is not mixed up with what is due to the gradients' draws: every data set is run with seed 1, and
# the first one with the other seeds too. elvi's default schedule is for whitened coordinates; ADVI, which has no L, is
# shown with the right one.
paper_runs <- function(settings, methods, data_sets, seeds) {
  if (!advi_available()) methods <- setdiff(methods, "advi")
  runs <- expand.grid(seed = seq_len(seeds), data_set = seq_len(data_sets), method = methods, setting = settings,
                      stringsAsFactors = FALSE)
  at_home <- c(tuned = "whitened", advi = "right")[runs$method]
  wanted <- (is.na(at_home) | runs$setting == at_home) & (runs$data_set == 1L | runs$seed == 1L)
  runs <- runs[wanted, c("setting", "method", "data_set", "seed")]
  if (!nrow(runs)) {
    bad_argument("settings", "\"whitened\" for the method \"tuned\", and \"right\" for \"advi\"", describe(settings))
  }
  runs[order(!startsWith(runs$method, "psgd")), ]   # the longest first: PSGD projects once a gradient
}

paper_base <- function(of) switch(of$base, laplace = base_laplace(), gaussian = base_gaussian(), uniform = base_uniform())

paper_problem <- function(of, data_set, dim, design = identity) {
  seeded(data_set, {
    U <- matrix(stats::runif(of$rows * dim), of$rows, dim)
    y <- stats::rbinom(of$rows, 1, 0.5)
  })
  U <- design(U)
  model <- model_glm(U, y, prior = normal(0, 1 / sqrt(of$alpha)))
  base <- paper_base(of)
  list(model = model, base = base, optimum = elvi_optimum(model, base), U = U, y = y, alpha = of$alpha,
       advi_longest = of$advi_longest,
       printed = of$alpha + svd(U, 0, 0)$d[1L] / 4,   # without the square
       whitening = whitening_cost(model))
}

# What whitened coordinates cost before the first step, in gradients of f. The search for the mode takes value, gradient
# and Hessian at some points; a Hessian counts as d gradients, what it would take by differences of them, although
# for a regression it is cheaper.
whitening_cost <- function(model) {
  began <- cpu_now()
  whitened_model(model, "whitened", "symmetric")
  seconds <- cpu_now() - began
  points <- find_mode(model)$evaluations
  list(points = points, evaluations = points * (1 + model$dim), seconds = seconds)
}

cpu_now <- function() sum(proc.time()[c("user.self", "sys.self")])

paid <- function(rows, problem) {
  whitened <- rows$setting == "whitened"
  rows$evaluations <- rows$evaluations + whitened * problem$whitening$evaluations
  rows$seconds <- rows$seconds + whitened * problem$whitening$seconds
  rows
}

paper_run <- function(problem, setting, method, seed, budget, points) {
  if (method == "tuned") return(paper_tuned(problem, seed, budget))
  if (method == "advi") return(paper_advi(problem, seed, budget))
  control <- switch(setting, printed = theory_control(smoothness = problem$printed),
                    right = theory_control(), whitened = theory_control(coordinates = "whitened"))
  paper_curve(problem, method, control, seed, budget,
              pick = function(plan) unique(round(exp(seq(0, log(plan$iterations), length.out = points)))))
}

paper_curve <- function(problem, method, control, seed, budget, pick) {
  optimum <- problem$optimum$objective
  seeded(seed, measure_along(
    problem$model, problem$base, schedule_fixed(budget, method), control, pick,
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

# ---- Stan's ADVI -----------------------------------------------------------------------

advi_available <- function() nzchar(system.file(package = "rstanarm"))   # which takes seconds to load

# A gaussian mean field by rstanarm, which has the model compiled. For the budget, and for fractions of it, a run of its
# own; and on Figure 1, for each data set, one of 10,000 iterations, ADVI's own limit, which is not in the curve. An iteration takes a gradient; the
# objective is estimated by 100 values, and that before the first iteration, in each of five trials of a step
# length, of 50 iterations each, and after every 100 iterations. A value counts as a gradient here.
advi_evaluations <- function(iterations) iterations + 100 * floor(iterations / 100) + 5 * (50 + 100) + 100

paper_advi <- function(problem, seed, budget) {
  affordable <- max(100, 100 * floor((budget - advi_evaluations(0)) / 200))
  longest <- if (seed == 1L) problem$advi_longest
  bind_rows(lapply(unique(c(ceiling(affordable * c(0.25, 0.5, 1)), longest)), function(iterations) {
    fit <- advi_fit(problem, seed, iterations)
    gap <- problem$optimum$elbo - elbo(list(mu = fit$mu, Sigma = fit$sd), problem$model, base_gaussian())$estimate
    # its seconds could not be told from what rstanarm does besides
    data.frame(evaluations = advi_evaluations(iterations), seconds = NA_real_,
               paper_gaps(problem, gap, NA_real_))
  }))
}

# Mean and standard deviations of 4,000 draws from what it returns, which adds about d / 4,000 nats.
advi_fit <- function(problem, seed, iterations) {
  data <- data.frame(y = problem$y, problem$U)
  utils::capture.output(fit <- suppressWarnings(suppressMessages(rstanarm::stan_glm(
    y ~ 0 + ., data = data, family = stats::binomial(), algorithm = "meanfield", seed = seed, refresh = 0,
    prior = rstanarm::normal(0, 1 / sqrt(problem$alpha), autoscale = FALSE), importance_resampling = FALSE,
    iter = iterations, tol_rel_obj = 1e-10, output_samples = 4000))))
  draws <- as.matrix(fit)
  list(mu = unname(colMeans(draws)), sd = unname(apply(draws, 2L, stats::sd)))
}

# ---- numbers -----------------------------------------------------------------------------

paper_numbers <- function(problems, data, budget) {
  of_each <- function(f) vapply(problems, f, 0)
  longer <- data$method == "advi" & data$evaluations > budget
  last <- data[!longer, ]
  last <- last[!duplicated(last[c("setting", "method", "data_set", "seed")], fromLast = TRUE), ]
  by <- c("setting", "method")
  average <- over_runs(last, "average", by)
  list(optimum = of_each(function(p) p$optimum$objective), elbo = of_each(function(p) p$optimum$elbo),
       L = c(printed = mean(of_each(function(p) p$printed)), right = mean(of_each(function(p) p$model$smoothness))),
       smallest_scale = mean(of_each(function(p) min(eigen(p$optimum$Sigma, TRUE, only.values = TRUE)$values))),
       whitening = data.frame(points = of_each(function(p) p$whitening$points),
                              evaluations = of_each(function(p) p$whitening$evaluations),
                              seconds = of_each(function(p) p$whitening$seconds)),
       advi = if (any(longer)) range(data$gap[longer]),   # after 10,000 iterations
       ends = data.frame(over_runs(last, "gap", by), average = average$mean, average_low = average$low,
                         average_high = average$high, negative_elbo = over_runs(last, "negative_elbo", by)$mean,
                         seconds = over_runs(last, "seconds", by)$mean))
}

# Every data set counts once, with the mean over its seeds: the mean over the data sets, and the range over all
# runs, over the data sets with the first seed, and over the seeds on the first data set
over_runs <- function(data, value, by) {
  groups <- split(data, interaction(data[by], drop = TRUE, lex.order = TRUE))
  bind_rows(lapply(groups, function(g) {
    v <- g[[value]]
    sets <- range(v[g$seed == 1L])
    seeds <- range(v[g$data_set == 1L])
    data.frame(g[1L, by, drop = FALSE], mean = mean(tapply(v, g$data_set, mean)), low = min(v), high = max(v),
               sets_low = sets[1L], sets_high = sets[2L], seeds_low = seeds[1L], seeds_high = seeds[2L])
  }))
}

# ---- any L between the printed and the right one -----------------------------------------

# MPSGD alone answers the question; PSGD, on the figures named by `psgd`, takes half a minute a run.

paper_sweep <- function() {
  list(title = "The paper's methods for every L from the printed to the right one",
       run = function(figures = c("figure1", "figure2", "figure3"), psgd = NULL, points = 13, data_set = 1,
                      budget = 5000, dim = 200, cores = 1) {
         figures <- check_choices(figures, "figures", names(paper_problems))
         if (length(psgd)) psgd <- check_choices(psgd, "psgd", names(paper_problems))
         points <- check_count(points, "points", lower = 2)
         data_set <- check_count(data_set, "data_set")
         budget <- check_count(budget, "budget")
         dim <- check_count(dim, "dim")
         cores <- check_count(cores, "cores")
         problems <- stats::setNames(on_cores(figures, function(name) paper_problem(paper_problems[[name]], data_set, dim), cores),
                                     figures)
         runs <- expand.grid(share = (seq_len(points) - 1) / (points - 1), method = c("psgd", "psgd_scaled", "case1", "case2"),
                             figure = figures, stringsAsFactors = FALSE)
         runs <- runs[!startsWith(runs$method, "psgd") | runs$figure %in% psgd, ]
         data <- bind_rows(on_cores(seq_len(nrow(runs)), function(i) {
           run <- runs[i, ]
           data.frame(run, sweep_run(problems[[run$figure]], run$method, run$share, 1L, budget), row.names = NULL)
         }, cores))
         list(data = data, numbers = list(verdict = sweep_verdict(data)))
       },
       draw = draw_paper_sweep)
}

# L goes from printed to right by equal factors
sweep_run <- function(problem, method, share, seed, budget) {
  L <- problem$printed^(1 - share) * problem$model$smoothness^share
  rows <- paper_curve(problem, method, theory_control(smoothness = L), seed, budget, pick = function(plan) plan$iterations)
  end <- rows[nrow(rows), ]
  data.frame(L = L, start = rows$gap[1L], gap = end$gap, average = end$average, seconds = end$seconds)
}

# For each figure and L: what scaling does to either method, and whether runs improve on their start at all. A run
# that ends below its start may have been far above it on the way; the average tells.
sweep_verdict <- function(data) {
  bind_rows(lapply(split(data, data[c("share", "figure")], drop = TRUE), function(one) {
    of <- function(method, column = "gap") if (any(one$method == method)) one[one$method == method, column] else NA_real_
    data.frame(figure = one$figure[1L], share = one$share[1L], L = one$L[1L],
               mpsgd_helped = of("case2") < of("case1"), psgd_helped = of("psgd_scaled") < of("psgd"),
               mpsgd_improves = of("case2") < of("case2", "start"), psgd_improves = of("psgd_scaled") < of("psgd_scaled", "start"),
               mpsgd_helped_average = of("case2", "average") < of("case1", "average"),
               psgd_helped_average = of("psgd_scaled", "average") < of("psgd", "average"))
  }))
}

# ---- designs as a program may have normalised them ------------------------------------------

# The paper says nothing of normalisation. Where the largest singular value is 1 the printed L is the right one.
normalised_designs <- list(
  largest = list(label = "divided by the largest singular value", of = function(U) U / svd(U, 0, 0)$d[1L]),
  rows = list(label = "divided by sqrt(M)", of = function(U) U / sqrt(nrow(U))),
  centred = list(label = "columns centred", of = function(U) scale(U, scale = FALSE)))

# MPSGD everywhere; PSGD, which takes ten seconds a run, where the printed L is right and on the figures named by `psgd`.
paper_normalised <- function() {
  list(title = "The paper's methods on normalised designs",
       run = function(figures = c("figure1", "figure2", "figure3"), designs = c("largest", "rows", "centred"),
                      psgd = "figure1", data_set = 1, budget = 5000, dim = 200, cores = 1) {
         figures <- check_choices(figures, "figures", names(paper_problems))
         designs <- check_choices(designs, "designs", names(normalised_designs))
         if (length(psgd)) psgd <- check_choices(psgd, "psgd", names(paper_problems))
         data_set <- check_count(data_set, "data_set")
         budget <- check_count(budget, "budget")
         dim <- check_count(dim, "dim")
         cores <- check_count(cores, "cores")
         of <- expand.grid(design = designs, figure = figures, stringsAsFactors = FALSE)
         problems <- on_cores(seq_len(nrow(of)), function(i) {
           paper_problem(paper_problems[[of$figure[i]]], data_set, dim, normalised_designs[[of$design[i]]]$of)
         }, cores)
         runs <- normalised_runs(of, psgd)
         data <- bind_rows(on_cores(seq_len(nrow(runs)), function(i) {
           problem <- problems[[runs$problem[i]]]
           end <- sweep_run(problem, runs$method[i], as.double(runs$setting[i] == "right"), 1L, budget)
           data.frame(runs[i, c("figure", "design", "setting", "method")], end, row.names = NULL)
         }, cores))
         list(data = data, numbers = list(verdict = normalised_verdict(data)))
       },
       draw = draw_paper_normalised)
}

normalised_runs <- function(of, psgd) {
  runs <- expand.grid(method = c("psgd", "psgd_scaled", "case1", "case2"), setting = c("printed", "right"),
                      problem = seq_len(nrow(of)), stringsAsFactors = FALSE)
  runs[c("figure", "design")] <- of[runs$problem, c("figure", "design")]
  same <- runs$design == "largest"   # there both values of L are one
  wanted <- !(same & runs$setting == "printed") & (!startsWith(runs$method, "psgd") | same | runs$figure %in% psgd)
  runs <- runs[wanted, ]
  runs[order(!startsWith(runs$method, "psgd")), ]   # the longest first
}

# For each figure, design and L: is a method better with scaling, and does MPSGD with it end below its start?
normalised_verdict <- function(data) {
  bind_rows(lapply(split(data, data[c("setting", "design", "figure")], drop = TRUE), function(one) {
    of <- function(method, column = "gap") if (any(one$method == method)) one[one$method == method, column] else NA_real_
    data.frame(one[1L, c("figure", "design", "setting", "L", "start")], mpsgd = of("case1"), mpsgd_scaled = of("case2"),
               psgd = of("psgd"), psgd_scaled = of("psgd_scaled"), mpsgd_helped = of("case2") < of("case1"),
               psgd_helped = of("psgd_scaled") < of("psgd"), improves = of("case2") < one$start[1L],
               time_ratio = of("psgd", "seconds") / of("case1", "seconds"))
  }))
}

# ---- pictures ------------------------------------------------------------------------

# Runs in whitened coordinates alone are none of the paper's.
draw_paper_figure <- function(x, what = if (all(x$data$setting == "whitened")) "gap" else "elbo", ...) {
  check_dots(list(...), "what", "autoplot()")
  what <- check_choice(what, "what", c("elbo", "gap"))
  if (what == "elbo") draw_paper_elbo(x) else draw_paper_gap(x)
}

# Data sets have optima of their own: a curve is the mean gap, above the mean optimum.
draw_paper_elbo <- function(x) {
  best <- -mean(x$numbers$elbo)
  x$data$shown <- x$data$gap + best
  data <- paper_curves(x$data[x$data$method != "advi", ], "shown", c("printed", "right"))
  data <- leave_at_the_top(data, best)
  labels <- end_labels(data, function(ends, one) {
    top <- max(one$high, na.rm = TRUE)
    away <- is.na(ends$mean) | ends$mean >= top
    text <- method_labels[paste(ends$method)]
    text[away] <- paste0(text[away], ", up to ", format_each(ends$highest[away]))
    data.frame(at = Inf, text = paste0(" ", text),
               mean = spread_out(ifelse(away, top, ends$mean), (top - best) * 0.1))
  })
  ggplot2::ggplot(on_both_axes(data), ggplot2::aes(.data$at, .data$mean)) +
    ggplot2::geom_hline(yintercept = best, linetype = "dashed", colour = "grey40") +
    ggplot2::geom_text(y = best, label = " optimum", colour = "grey30", hjust = 0, size = 3,
                       data = labels[!duplicated(labels$panel), ]) +
    paper_layers(labels) +
    paper_panels("negative ELBO at the iterate")
}

# elvi's default is judged by what it returns, an average that is no iterate; for the others the average of the theorems is
# a cross at the end of their line.
draw_paper_gap <- function(x) {
  x$data$shown <- ifelse(x$data$method == "tuned", x$data$average, x$data$gap)
  drawn <- x$data[x$data$method != "advi" | x$data$evaluations <= max(x$data$evaluations[x$data$method != "advi"]), ]
  data <- paper_curves(drawn, "shown", c("right", "whitened"))
  labels <- end_labels(data, function(ends, one) {
    data.frame(at = Inf, text = paste0(" ", method_labels[paste(ends$method)], ": ", format_each(ends$mean)),
               mean = 10^spread_out(log10(ends$mean), 0.1 * diff(range(log10(one$mean)))))
  })
  averages <- data[!duplicated(data[c("setting", "method")], fromLast = TRUE), ]
  known <- x$numbers$ends
  averages$mean <- known$average[match(paste(averages$setting, averages$method), paste(known$setting, known$method))]
  averages <- averages[!is.na(averages$mean) & averages$method != "tuned", ]
  ggplot2::ggplot(on_both_axes(data), ggplot2::aes(.data$at, .data$mean)) +
    paper_layers(labels) +
    ggplot2::geom_point(ggplot2::aes(colour = .data$method), data = on_both_axes(averages), shape = 4, size = 2.5, stroke = 1) +
    ggplot2::scale_y_log10(labels = plain_number) +
    paper_panels("nats above the optimum")
}

paper_axes <- c(seconds = "CPU seconds", evaluations = "gradient evaluations")

on_both_axes <- function(data) {
  bind_rows(lapply(names(paper_axes), function(axis) {
    known <- data[!is.na(data[[axis]]), ]
    data.frame(known, across = factor(paper_axes[[axis]], paper_axes), at = known[[axis]])
  }))
}

# The lines end together in the panel on the right, where their labels are.
paper_panels <- function(y) {
  list(ggplot2::facet_grid(ggplot2::vars(.data$panel), ggplot2::vars(.data$across), scales = "free", switch = "both"),
       ggplot2::scale_x_continuous(expand = ggplot2::expansion(0.03), n.breaks = 4),
       ggplot2::coord_cartesian(clip = "off"),
       ggplot2::labs(x = NULL, y = y),
       experiment_theme(),
       ggplot2::theme(strip.placement = "outside", plot.margin = ggplot2::margin(5, 150, 5, 5)))
}

# A line for each method, with a band over all runs, a darker one in it over the seeds on the first data set, and a label.
# With and without minibatches the methods often coincide: those with are dashed, on top.
paper_layers <- function(labels) {
  coloured <- function(...) ggplot2::aes(colour = .data$method, ...)
  dashes <- c(case1 = "22", case2 = "22", psgd = "solid", psgd_scaled = "solid", tuned = "solid", advi = "solid")
  list(ggplot2::geom_ribbon(ggplot2::aes(fill = .data$method, ymin = .data$low, ymax = .data$high), alpha = 0.2),
       ggplot2::geom_ribbon(ggplot2::aes(fill = .data$method, ymin = .data$seeds_low, ymax = .data$seeds_high), alpha = 0.4),
       ggplot2::geom_line(coloured(linetype = .data$method, linewidth = .data$method)),
       ggplot2::geom_text(coloured(label = .data$text), data = labels, hjust = 0, size = 3),
       ggplot2::scale_colour_manual(values = method_colours(), aesthetics = c("colour", "fill")),
       ggplot2::scale_linetype_manual(values = dashes),
       ggplot2::scale_linewidth_manual(values = ifelse(dashes == "solid", 0.6, 1)))
}

# In these settings over_runs(), and mean evaluations (whitening does not take the same number on each data set) and CPU
# time, point by point along the runs
paper_curves <- function(data, value, settings) {
  data <- data[data$setting %in% settings, ]
  if (!nrow(data)) {
    bad_argument("what", "about a setting that was run",
                 paste("about", paste0("\"", settings, "\"", collapse = " and ")))
  }
  data$point <- stats::ave(data$evaluations, data$setting, data$method, data$data_set, data$seed, FUN = seq_along)
  by <- c("setting", "method", "point")
  mean_of <- function(column) over_runs(data, column, by)$mean
  out <- data.frame(over_runs(data, value, by), evaluations = mean_of("evaluations"), seconds = mean_of("seconds"))
  out$panel <- factor(paper_settings[out$setting], paper_settings)
  drawn <- c("tuned", "advi", "psgd", "psgd_scaled", "case1", "case2")   # the last on top
  out$method <- factor(out$method, drawn)
  out
}

# Labels for the ends of the lines: describe(ends, data) gives place and text in one panel.
end_labels <- function(data, describe) {
  bind_rows(lapply(split(data, data$setting), function(one) {
    ends <- one[!duplicated(one$method, fromLast = TRUE), ]
    data.frame(ends[c("method", "panel")], describe(ends, one),
               across = factor(paper_axes[["evaluations"]], paper_axes))
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
    drawn <- c("mean", "low", "high", "seeds_low", "seeds_high")
    run[drawn] <- lapply(run[drawn], function(v) ifelse(beside, pmin(v, top), NA))
    run
  }))
}

# Gap at the end over that of the start, against L in units of the right one.
draw_paper_sweep <- function(x, ...) {
  check_dots(list(...), character(), "autoplot()")
  data <- x$data
  data$method <- factor(data$method, c("psgd", "psgd_scaled", "case1", "case2"))
  right <- with(data[data$share == 1, ], stats::setNames(L, figure)[!duplicated(figure)])
  data$at <- data$L / right[data$figure]
  data$left <- data$gap / data$start
  data$panel <- paste("Figure", sub("figure", "", data$figure))
  ends <- data[data$share == 1, ]
  labels <- bind_rows(lapply(split(ends, ends$figure), function(one) {
    data.frame(one[c("method", "panel")], at = 1, text = paste0(" ", method_labels[paste(one$method)]),
               left = 10^spread_out(log10(one$left), 0.08 * diff(range(log10(data$left)))))
  }))
  dashes <- c(case1 = "22", case2 = "22", psgd = "solid", psgd_scaled = "solid")
  ggplot2::ggplot(data, ggplot2::aes(.data$at, .data$left, colour = .data$method)) +
    ggplot2::geom_hline(yintercept = 1, linetype = "dashed", colour = "grey40") +
    ggplot2::geom_line(ggplot2::aes(linetype = .data$method)) +
    ggplot2::geom_point(size = 1) +
    ggplot2::geom_text(ggplot2::aes(label = .data$text), data = labels, hjust = 0, size = 3) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel)) +
    ggplot2::scale_x_log10(expand = ggplot2::expansion(c(0.05, 1.1)), breaks = c(0.01, 0.1, 1), labels = plain_number) +
    ggplot2::scale_y_log10(labels = plain_number) +
    ggplot2::scale_colour_manual(values = method_colours()) +
    ggplot2::scale_linetype_manual(values = dashes) +
    ggplot2::labs(x = "L / the right one", y = "gap at the end / gap of the start") +
    experiment_theme()
}

# Gap at the end over that of the start, a row for each design and L.
draw_paper_normalised <- function(x, ...) {
  check_dots(list(...), character(), "autoplot()")
  data <- x$data
  data$left <- data$gap / data$start
  data$panel <- paste("Figure", sub("figure", "", data$figure))
  label <- vapply(normalised_designs, `[[`, "", "label")[data$design]
  data$row <- paste0(label, ifelse(data$design == "largest", "", paste0(", L ", data$setting)))
  data$method <- factor(data$method, c("psgd", "psgd_scaled", "case1", "case2"))
  plain <- c(psgd = 16, psgd_scaled = 1, case1 = 17, case2 = 2)
  ggplot2::ggplot(data, ggplot2::aes(.data$left, .data$row, colour = .data$method, shape = .data$method)) +
    ggplot2::geom_vline(xintercept = 1, linetype = "dashed", colour = "grey40") +
    ggplot2::geom_point(size = 2.5) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel)) +
    ggplot2::scale_x_log10(labels = plain_number) +
    ggplot2::scale_colour_manual(values = method_colours(), labels = method_labels) +
    ggplot2::scale_shape_manual(values = plain, labels = method_labels) +
    ggplot2::labs(x = "gap at the end / gap of the start", y = NULL, colour = NULL, shape = NULL) +
    experiment_theme() +
    ggplot2::theme(legend.position = "bottom")
}
