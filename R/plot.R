#' Plot a fit
#'
#' * `"trace"`: the objective along the run, with a band of two standard errors.
#'   The same draws are used throughout, so the band is about the level of the
#'   curve, not about its shape. For models with an exact objective the optimum is
#'   drawn too.
#' * `"intervals"`: means with 50 % and 95 % credible intervals. An intercept so far off that the others would be
#'   dots is given below the picture, in numbers.
#' * `"density"`: marginal densities of the approximation.
#' * `"pairs"`: for each pair of parameters the ellipses that hold 50 % and 95 %
#'   of the approximation's mass.
#'
#' Of a fit that is corrected by importance weights (see [elvi_fit]) all but the trace show what the weights make of it, and
#' say so: densities are kernel estimates from weighted draws, ellipses those of the corrected mean and covariance.
#'
#' @param object,x an `elvi_fit`.
#' @param type what to draw. The default is the intervals of a regression from a formula and of any exact fit, and the
#'   trace of another stochastic run.
#' @param against horizontal axis of the trace: gradient evaluations, iterations
#'   or CPU seconds.
#' @param optimum draw the exact optimum in the trace? `NA` draws it where the
#'   model has one.
#' @param pars parameters to show, by name or number; all by default, the first
#'   four for pairs.
#' @param ... passed on from `plot()` to `autoplot()`; otherwise nothing.
#' @return A ggplot object; `plot()` draws it and returns it invisibly. Both need
#'   the package 'ggplot2'.
#' @examples
#' model <- model_glm(cbind(intercept = 1, age = scale(infert$age)[, 1]), infert$case)
#' set.seed(1)
#' fit <- elvi(model)
#' \donttest{
#' if (requireNamespace("ggplot2", quietly = TRUE)) {
#'   plot(fit)
#'   plot(fit, "density")
#' }
#' }
#' @name plot.elvi_fit
#' @exportS3Method ggplot2::autoplot
autoplot.elvi_fit <- function(object, type = NULL, against = c("evaluations", "iterations", "seconds"),
                              optimum = NA, pars = NULL, ...) {
  check_dots(list(...), names(formals()), "autoplot()")
  need_package("ggplot2", "Plotting a fit")
  type <- check_choice(type %||% default_plot(object), "type", c("trace", "intervals", "density", "pairs"))
  switch(type,
         trace = plot_trace(object, against, optimum),
         intervals = plot_intervals(object, check_parameters(object, pars, "pars")),
         density = plot_density(object, check_parameters(object, pars, "pars")),
         pairs = plot_pairs(object, check_parameters(
           object, pars %||% seq_len(min(4, length(object$mu))), "pars"))) +
    ggplot2::theme_minimal()
}

plot_blue <- "#0072B2"

family_subtitle <- function(fit) paste0(fit$base$kind, " base, ", fit$control$scale, " scale")

plot_subtitle <- function(fit) paste0(family_subtitle(fit), if (is_corrected(fit)) paste0(", ", corrected_label))

# what is looked at first: the run of a target, the coefficients of a regression
default_plot <- function(fit) UseMethod("default_plot")

#' @export
default_plot.elvi_fit <- function(fit) if (fit$method == "exact") "intervals" else "trace"

#' @export
default_plot.elvi_glm <- function(fit) "intervals"

plot_trace <- function(fit, against, optimum) {
  against <- check_choice(against, "against", c("evaluations", "iterations", "seconds"))
  if (!is.logical(optimum) || length(optimum) != 1L) {
    bad_argument("optimum", "TRUE, FALSE or NA", describe(optimum))
  }
  if (isTRUE(optimum) && !has_exact(fit$model)) {
    bad_argument("optimum", "FALSE or NA: this model has no exact objective", "TRUE")
  }
  trace <- fit$trace
  if (is.null(trace) || all(is.na(trace$objective))) {
    bad_argument("object", "a fit with an objective in its trace",
                 if (is.null(trace)) "an exact one, which has none" else "one made with trace_draws = 0")
  }
  data <- data.frame(
    at = trace[[c(evaluations = "evals", iterations = "iteration", seconds = "cpu")[[against]]]],
    objective = trace$objective, low = trace$objective - 2 * trace$se,
    high = trace$objective + 2 * trace$se)
  plot <- ggplot2::ggplot(data, ggplot2::aes(x = .data$at, y = .data$objective)) +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$low, ymax = .data$high), fill = plot_blue, alpha = 0.2) +
    ggplot2::geom_line(colour = plot_blue) +
    ggplot2::scale_y_continuous(labels = distinct_labels) +
    ggplot2::labs(x = c(evaluations = "gradient evaluations", iterations = "iterations",
                        seconds = "CPU seconds")[[against]],
                  y = "objective F at the iterate",
                  subtitle = paste0(family_subtitle(fit), ", ", fit$control$coordinates, " coordinates"))
  if (isTRUE(optimum) || (is.na(optimum) && affords_optimum(fit))) plot + optimum_line(fit, max(data$at)) else plot
}

# with as many digits as it takes to tell them apart
distinct_labels <- function(x) {
  for (digits in 4:15) {
    out <- format(x, digits = digits, trim = TRUE)
    if (!anyDuplicated(out[!is.na(x)])) break
  }
  ifelse(is.na(x), NA, out)
}

optimum_line <- function(fit, right) {
  best <- solve_optimum(fit$model, fit$base, law_of(fit$base, fit$model$dim),
                        fit$control$scale, 1e-6, 200)$objective
  list(ggplot2::geom_hline(yintercept = best, linetype = "dashed", colour = "grey40"),
       ggplot2::annotate("text", x = right, y = best, hjust = 1, vjust = -0.5, size = 3,
                         colour = "grey30", label = paste("optimum", format(best, digits = 6))))
}

plot_intervals <- function(fit, which) {
  inner <- credible_intervals(fit, which, 0.5)
  outer <- credible_intervals(fit, which, 0.95)
  interval_picture(data.frame(parameter = natural_names(fit)[which], mean = natural_table(fit)[which, "mean"],
                              low = outer[, 1L], high = outer[, 2L], low50 = inner[, 1L], high50 = inner[, 2L]),
                   plot_subtitle(fit))
}

# a row for each parameter
interval_picture <- function(data, subtitle) {
  labels <- data$parameter
  data$parameter <- factor(labels, rev(unique(labels)))
  data$panel <- factor(labels, unique(labels))
  apart <- labels == "(Intercept)" & dwarfs_others(data, labels == "(Intercept)")
  caption <- if (any(apart)) said_apart(data[apart, ])
  data <- data[!apart, ]
  plot <- ggplot2::ggplot(data, ggplot2::aes(x = .data$mean, y = .data$parameter)) +
    ggplot2::geom_vline(xintercept = 0, colour = "grey70") +
    ggplot2::geom_segment(ggplot2::aes(x = .data$low, xend = .data$high, yend = .data$parameter),
                          colour = plot_blue) +
    ggplot2::geom_segment(ggplot2::aes(x = .data$low50, xend = .data$high50, yend = .data$parameter),
                          colour = plot_blue, linewidth = 1.5) +
    ggplot2::geom_point(size = 2) +
    ggplot2::labs(x = "posterior mean, 50 % and 95 % credible intervals", y = NULL, subtitle = subtitle, caption = caption)
  width <- data$high - data$low
  short <- short_names(labels)
  # parameters of very different sizes: an axis each, as long as there is room for them
  if (max(width) <= 20 * min(width) || nrow(data) > 30L) return(plot + ggplot2::scale_y_discrete(labels = short))
  plot + ggplot2::facet_wrap(ggplot2::vars(.data$panel), scales = "free", labeller = ggplot2::as_labeller(short)) +
    ggplot2::scale_x_continuous(breaks = inner_breaks, minor_breaks = NULL) + ggplot2::scale_y_discrete(labels = NULL)
}

# An intercept is where the responses are; on one axis with it slopes may be no more than dots.
dwarfs_others <- function(data, intercept) {
  if (!any(intercept) || all(intercept)) return(FALSE)
  reach <- function(rows) diff(range(0, data$low[rows], data$high[rows]))
  reach(TRUE) > 3 * reach(!intercept)
}

said_apart <- function(row) {
  shown <- distinct_labels(c(row$mean, row$low, row$high))
  sprintf("not on this axis: %s %s, 95 %% from %s to %s", row$parameter, shown[1L], shown[2L], shown[3L])
}

# For each name, the beginning and end of it if it is too long for an axis; of those that are the same then, the
# beginning and their number.
short_names <- function(names, most = 28L) {
  long <- nchar(names) > most
  half <- (most - 3L) %/% 2L
  short <- names
  short[long] <- paste0(substr(names[long], 1L, half), "...", substring(names[long], nchar(names[long]) - half + 1L))
  alike <- short %in% short[duplicated(short)]
  numbered <- paste0(substr(names, 1L, most - 8L), "... (", seq_along(names), ")")
  stats::setNames(ifelse(alike & long, numbered, short), names)
}

# away from the edges, where labels of neighbours would meet
inner_breaks <- function(limits) {
  for (n in 2:6) {
    at <- pretty(limits, n)
    at <- at[abs(at - mean(limits)) < 0.38 * diff(limits)]
    if (length(at) >= 2L) break
  }
  if (length(at) > 3L) at[c(TRUE, FALSE)] else at
}

plot_density <- function(fit, which) {
  curves <- if (is_corrected(fit)) corrected_curves(fit, which) else approximation_curves(fit, which)
  density_picture(curves, plot_subtitle(fit), if (is_corrected(fit)) "density" else "density of the approximation")
}

# One height for all: its units differ, and no one reads them.
density_picture <- function(parts, subtitle, title = "density of the approximation", panels = 16L) {
  data <- do.call(rbind, lapply(parts, function(part) cbind(part, height = part$density / max(part$density))))
  data$parameter <- factor(data$parameter, unique(data$parameter))
  plot <- if (nlevels(data$parameter) > panels) density_tiles(data) else density_panels(data)
  plot + ggplot2::labs(x = NULL, y = title, subtitle = subtitle)
}

density_panels <- function(data) {
  ggplot2::ggplot(data, ggplot2::aes(x = .data$x, y = .data$height)) +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = 0, ymax = .data$height), fill = plot_blue, alpha = 0.25) +
    ggplot2::geom_line(colour = plot_blue) +
    ggplot2::facet_wrap(ggplot2::vars(.data$parameter), scales = "free_x",
                        labeller = ggplot2::as_labeller(short_names(levels(data$parameter), 22L))) +
    ggplot2::scale_x_continuous(breaks = inner_breaks, minor_breaks = NULL) +
    ggplot2::scale_y_continuous(breaks = NULL)
}

# Many parameters: tiles of one panel, each with its own ticks. A panel of ggplot2's for each takes a hundred times as long.
density_tiles <- function(data) {
  places <- levels(data$parameter)
  columns <- ceiling(sqrt(length(places)))
  left <- (seq_along(places) - 1L) %% columns
  base <- -((seq_along(places) - 1L) %/% columns)
  at <- as.integer(data$parameter)
  low <- vapply(split(data$x, data$parameter), min, 0)
  wide <- vapply(split(data$x, data$parameter), max, 0) - low
  across <- function(x, tile) left[tile] + 0.9 * (x - low[tile]) / wide[tile]
  data$across <- across(data$x, at)
  data$base <- base[at]
  data$up <- base[at] + 0.55 * data$height
  ticks <- do.call(rbind, lapply(seq_along(places), function(i) {
    x <- inner_breaks(low[[i]] + c(0, wide[[i]]))
    data.frame(across = across(x, i), base = base[i], label = distinct_labels(x))
  }))
  names <- data.frame(across = left + 0.45, up = base + 0.62, label = unname(short_names(places, 22L)))
  ggplot2::ggplot(data, ggplot2::aes(x = .data$across, group = .data$parameter)) +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$base, ymax = .data$up), fill = plot_blue, alpha = 0.25) +
    ggplot2::geom_line(ggplot2::aes(y = .data$up), colour = plot_blue) +
    ggplot2::geom_segment(ggplot2::aes(xend = .data$across, y = .data$base, yend = .data$base - 0.03, group = NULL), ticks,
                          colour = "grey50") +
    ggplot2::geom_text(ggplot2::aes(y = .data$base - 0.05, label = .data$label, group = NULL), ticks, size = 2.4, vjust = 1,
                       colour = "grey30") +
    ggplot2::geom_text(ggplot2::aes(y = .data$up, label = .data$label, group = NULL), names, size = 2.6, vjust = 0) +
    ggplot2::scale_x_continuous(breaks = NULL) + ggplot2::scale_y_continuous(breaks = NULL)
}

# points of the marginal densities of the parameters `which`
approximation_curves <- function(fit, which) {
  law <- law_of(fit$base, fit$model$dim)
  edge <- min(4, support_edge(law))
  z <- seq(-edge, edge, length.out = 81L)
  height <- marginal_density(law, pmax(abs(z), 1e-12))
  sd <- approximation_sd(fit)
  mu <- fit$mu
  labels <- natural_names(fit)
  logged <- dispersion_place(fit)
  lapply(which, function(j) {
    x <- mu[[j]] + sd[[j]] * z
    data.frame(parameter = labels[j], x = if (j == logged) exp(x) else x,
               density = height / sd[[j]] * if (j == logged) exp(-x) else 1)
  })
}

corrected_curves <- function(fit, which) {
  points <- weighted_points(fit)
  labels <- natural_names(fit)
  ess <- fit$result$verdict$ess
  lapply(which, function(j) {
    # the rule of thumb for as many draws as the weights leave
    width <- 1.06 * posterior_sd(fit)[[j]] * ess^-0.2
    curve <- stats::density(points$x[j, ], bw = width, weights = points$w, n = 128L)
    data.frame(parameter = labels[j], x = curve$x, density = curve$y)
  })
}

plot_pairs <- function(fit, which) {
  which <- unique(which)
  mu <- posterior_mean(fit)
  labels <- natural_names(fit)
  if (length(which) < 2L) bad_argument("pars", "at least two parameters", describe(labels[which]))
  V <- posterior_covariance_of(fit, which)
  place <- function(pair) match(pair, which)
  radii <- pair_radii(law_of(fit$base, fit$model$dim), c(0.5, 0.95))
  angle <- seq(0, 2 * pi, length.out = 100L)
  circle <- rbind(cos(angle), sin(angle))
  pairs <- utils::combn(which, 2L, simplify = FALSE)
  ellipse <- function(pair, i) {
    xy <- natural_limits(fit, pair, mu[pair] + t(chol(V[place(pair), place(pair)])) %*% circle * radii[[i]])
    data.frame(across = labels[pair[1L]], up = labels[pair[2L]], x = xy[1L, ], y = xy[2L, ],
               mass = names(radii)[i])
  }
  data <- do.call(rbind, lapply(pairs, function(p) rbind(ellipse(p, 1L), ellipse(p, 2L))))
  data$across <- factor(data$across, unique(labels[which]))
  data$up <- factor(data$up, unique(labels[which]))
  ggplot2::ggplot(data, ggplot2::aes(x = .data$x, y = .data$y, linetype = .data$mass)) +
    ggplot2::geom_path(colour = plot_blue) +
    ggplot2::facet_grid(ggplot2::vars(.data$up), ggplot2::vars(.data$across), scales = "free",
                        labeller = ggplot2::as_labeller(short_names(labels, 22L))) +
    ggplot2::scale_x_continuous(breaks = inner_breaks) +
    ggplot2::labs(x = NULL, y = NULL, linetype = "mass inside", subtitle = plot_subtitle(fit))
}

# Radii of the discs that hold the given mass of two coordinates of z; without a
# closed form by draws of a fixed key, good enough for a picture.
pair_radii <- function(law, mass) {
  by_draws <- function(mass) {
    stats::quantile(sqrt(colSums(draw_base(law, c(1, 2), 40000L)[1:2, ]^2)), mass, names = FALSE)
  }
  radii <- (law$pair_radius %||% by_draws)(mass)
  stats::setNames(radii, paste(100 * mass, "%"))
}

#' @rdname plot.elvi_fit
#' @export
plot.elvi_fit <- function(x, ...) {
  need_package("ggplot2", "Plotting a fit")
  p <- autoplot.elvi_fit(x, ...)
  print(p)
  invisible(p)
}

utils::globalVariables(".data")
