#' Plot a fit
#'
#' `plot(fit)` draws a fit by package 'ggplot2': estimates, effects of predictors and groups, smooths, or the run.
#'
#' * `"intervals"`: a forest plot, means with 50 % and 95 % credible intervals. Slopes share one axis; intercepts are drawn above them,
#'   standard deviations and dispersions below, on axes of their own. So are the coefficients of a [second formula][second_formulas].
#' * `"effects"`: expected responses along each predictor, with 50 % and 95 % credible bands and the data. The other predictors are at their
#'   mean or first level, and effects of groups at 0. Predictors that interact share a panel. For classes: their probabilities.
#' * `"density"`: marginal densities of the parameters, with the prior dotted.
#' * `"pairs"`: draws and correlations of each pair of parameters, with their densities on the diagonal. Where the posterior is a single
#'   elliptic distribution, ellipses hold 50 % and 95 % of it.
#' * `"groups"`, with [group-level terms][group_terms]: a caterpillar plot, for each term the effects of its levels in order of
#'   their means, with 50 % and 95 % credible intervals. Of more than 500 levels, 500 are drawn.
#' * `"sds"`: densities of the standard deviations of terms (and of sigma or phi), with the prior dashed.
#' * `"smooths"`: each smooth of one variable with 50 % and 95 % pointwise
#'   bands, on the scale of the linear predictor, and a rug of the data.
#' * `"trace"`, of a stochastic run: the objective along the run. The same draws are used throughout, so the shape of the curve is known
#'   better than its level: the caption has the error of the level. For models with an exact objective the optimum is drawn too, and the
#'   error is a band of two standard errors.
#'
#' If importance weights correct a fit (see [elvi_fit]), all but the trace show the corrected posterior, and say so: densities are
#' kernel estimates from weighted draws.
#'
#' @param object,x an `elvi_fit`.
#' @param type what to draw, one of the types above. The default is the forest plot for every fit, and the trace where `against`
#'   or `optimum` is given.
#' @param against horizontal axis of the trace: gradient evaluations, iterations
#'   or CPU seconds.
#' @param optimum draw the exact optimum in the trace? `NA` draws it where the
#'   model has one.
#' @param pars parameters to show, by name or number; all but the effects of groups by default, the first
#'   four for pairs. For `"effects"`: predictors, such as `"x"`, or two of them as `"x:z"`. For `"groups"`: grouping factors. For
#'   `"smooths"`: labels of smooths.
#' @param scales units of the slopes in `"intervals"`: `"natural"` ones, or `"standardised"`, the slope times the standard deviation of its
#'   column (columns of zeros and ones keep their unit). `"auto"` standardises where the slopes differ so much in size that
#'   some would be dots.
#' @param ... passed on from `plot()` to `autoplot()`; otherwise nothing.
#' @return A ggplot object; `plot()` draws it and returns it invisibly. Both need
#'   the package 'ggplot2'.
#' @examples
#' fit <- elvi(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' \donttest{
#' if (requireNamespace("ggplot2", quietly = TRUE)) {
#'   plot(fit)
#'   plot(fit, "effects")
#'   plot(fit, "density")
#' }
#' }
#' @name plot.elvi_fit
#' @exportS3Method ggplot2::autoplot
autoplot.elvi_fit <- function(object, type = NULL, against = c("evaluations", "iterations", "seconds"),
                              optimum = NA, pars = NULL, scales = c("auto", "natural", "standardised"), ...) {
  check_dots(list(...), names(formals()), "autoplot()")
  need_package("ggplot2", "Plotting a fit")
  type <- check_choice(type %||% if (missing(against) && missing(optimum)) "intervals" else "trace", "type",
                       c("intervals", "effects", "density", "pairs", "groups", "sds", "smooths", "trace"))
  scales <- check_choice(scales, "scales", c("auto", "natural", "standardised"))
  plot <- switch(type,
                 trace = plot_trace(object, against, optimum),
                 intervals = plot_intervals(object, shown_parameters(object, pars, "pars"), scales),
                 effects = plot_effects(object, pars),
                 density = plot_density(object, shown_parameters(object, pars, "pars")),
                 pairs = plot_pairs(object, if (is.null(pars)) utils::head(shown_parameters(object, NULL, "pars"), 4L)
                                            else check_parameters(object, pars, "pars")),
                 groups = plot_groups(object, pars),
                 sds = plot_sds(object),
                 smooths = plot_smooths(object, pars))
  if (type == "effects") return(plot)
  plot <- plot + plot_theme()
  if (type == "pairs") return(plot + ggplot2::theme(legend.position = "bottom", strip.text.y = ggplot2::element_text(angle = 0)))
  if (type == "groups") return(plot + ggplot2::theme(panel.grid.major.y = ggplot2::element_blank()))
  if (type == "intervals") plot + ggplot2::theme(strip.text = ggplot2::element_blank()) else plot
}

#' @rdname plot.elvi_fit
#' @export
plot.elvi_fit <- function(x, ...) {
  need_package("ggplot2", "Plotting a fit")
  p <- autoplot.elvi_fit(x, ...)
  print(p)
  invisible(p)
}

plot_blue <- "#0072B2"

# The formula, and what has corrected the fit. Lines do not end within the parentheses of a term.
plot_subtitle <- function(fit) {
  lines <- c(formula_lines(fit), points_words(fit$posterior))
  if (length(lines)) paste(lines, collapse = "\n")
}

formula_lines <- function(fit) {
  if (is.null(fit$regression)) return(NULL)
  text <- deparse_one(fit$formula)
  if (nchar(text) > 90L) text <- paste0(substr(text, 1L, 87L), "...")
  terms <- gsub(" | ", "\u0001|\u0001", text, fixed = TRUE)
  paste(gsub("\u0001", " ", strwrap(terms, 56L, exdent = 2L), fixed = TRUE), collapse = "\n")
}

# captions begin at the left edge, where a narrow picture still shows them
plot_theme <- function() {
  ggplot2::theme_minimal() +
    ggplot2::theme(plot.title.position = "plot", plot.caption.position = "plot", plot.caption = ggplot2::element_text(hjust = 0))
}

# where labels of an axis would overlap, some are left out
sparse_labels <- function() ggplot2::guide_axis(check.overlap = TRUE)

# ---- the run ----------------------------------------------------------------------------------------

plot_trace <- function(fit, against, optimum) {
  against <- check_choice(against, "against", c("evaluations", "iterations", "seconds"))
  if (!is.logical(optimum) || length(optimum) != 1L) {
    bad_argument("optimum", "TRUE, FALSE or NA", describe(optimum))
  }
  if (isTRUE(optimum) && !has_exact(fit$model)) {
    bad_argument("optimum", "FALSE or NA", "TRUE", "this model has no exact objective")
  }
  trace <- fit$trace
  if (is.null(trace) || all(is.na(trace$objective))) {
    refuse_argument("type", if (is.null(trace)) "type = \"trace\" shows a stochastic run, and this fit is by another method."
                            else "type = \"trace\" shows the objective, and this run has none: it was made with trace_draws = 0.")
  }
  data <- data.frame(
    at = trace[[c(evaluations = "evals", iterations = "iteration", seconds = "cpu")[[against]]]],
    objective = trace$objective, low = trace$objective - 2 * trace$se,
    high = trace$objective + 2 * trace$se)
  compared <- isTRUE(optimum) || (is.na(optimum) && affords_optimum(fit))
  known <- !all(is.na(trace$se))   # a single draw has no standard error
  plot <- ggplot2::ggplot(data, ggplot2::aes(x = .data$at, y = .data$objective)) +
    (if (compared && known) ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$low, ymax = .data$high), fill = plot_blue, alpha = 0.2)) +
    ggplot2::geom_line(colour = plot_blue) +
    ggplot2::scale_y_continuous(labels = distinct_labels) +
    ggplot2::labs(x = c(evaluations = "gradient evaluations", iterations = "iterations",
                        seconds = "CPU seconds")[[against]],
                  y = "objective F at the iterate",
                  subtitle = formula_lines(fit), caption = if (known) trace_caption(trace, compared))
  if (compared) plot + optimum_line(fit, max(data$at)) else plot
}

trace_caption <- function(trace, compared) {
  if (compared) return("The band is about the level of the curve, not about its shape.")
  error <- format(2 * max(trace$se, na.rm = TRUE), digits = 2)
  sprintf("The level of the curve is known up to %s\n(two standard errors), its shape better.", error)
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

# ---- intervals ----------------------------------------------------------------------------------------

plot_intervals <- function(fit, which, scales) {
  data <- interval_data(fit, which)
  data$panel <- interval_panels(fit, which)
  units <- if (scales != "natural") slope_units(fit, which)
  if (scales == "standardised" && is.null(units)) {
    refuse_argument("scales", "scales = \"standardised\" needs the columns of the design in memory. Use \"natural\".")
  }
  of_slopes <- split(data, data$panel)[c("slopes", "second slopes")]
  standardised <- !is.null(units) && (scales == "standardised" || any(vapply(Filter(NROW, of_slopes), sizes_differ, NA)))
  if (standardised) data <- rescaled_intervals(data, units)
  # parameters of a density have no units that are known: an axis each, as long as there is room for them
  if (is.null(fit$regression) && sizes_differ(data) && nrow(data) <= 30L) data$panel <- factor(data$parameter, data$parameter)
  interval_picture(data, plot_subtitle(fit), standardised)
}

interval_data <- function(fit, which) {
  posterior <- fit$posterior
  q <- posterior_quantiles(posterior, which, c(0.025, 0.25, 0.75, 0.975))
  data.frame(parameter = posterior$shown[which], mean = posterior_moments(posterior)$mean[which], low = q[, 1L], low50 = q[, 2L],
             high50 = q[, 3L], high = q[, 4L])
}

# Intercepts are where the responses are, coefficients of a second formula are on its link's scale, standard deviations are positive and
# correlations below 1: none of them belongs on the axis of slopes.
interval_panels <- function(fit, which) {
  names <- fit$posterior$shown[which]
  hyper <- which > length(fit$posterior$coefficients)
  if (is.null(fit$regression)) return(factor(rep("parameters", length(which))))
  panel <- ifelse(grepl("(Intercept)", names, fixed = TRUE), "intercepts", "slopes")
  second <- !hyper & !is.null(fit$second) & which %in% fit$second$columns
  panel[second] <- paste("second", panel[second])
  panel[hyper] <- ifelse(startsWith(names[hyper], "cor("), "correlations", "scale parameters")
  factor(panel, c("intercepts", "slopes", "second intercepts", "second slopes", "scale parameters", "correlations"))
}

# panels of parameters for which 0 means no effect
panels_with_zero <- c("slopes", "second slopes", "correlations")

# Standard deviations of the columns of slopes, 1 for columns of zeros and ones and for other parameters; NULL without a design.
slope_units <- function(fit, which) {
  X <- design_in_memory(fit)
  if (is.null(X) || is.null(fit$regression)) return(NULL)
  vapply(which, function(j) {
    if (j > ncol(X) || all(X[, j] %in% 0:1)) 1 else column_scale(X[, j])
  }, 0)
}

design_in_memory <- function(fit) {
  X <- if (is.null(fit$given$problem)) fit$given$model$rows$X else if (is.null(fit$given$problem$source)) fit$given$problem$X
  if (is.matrix(X)) X
}

sizes_differ <- function(data) {
  width <- data$high - data$low
  length(width) > 1L && max(width) > 20 * min(width)
}

rescaled_intervals <- function(data, units) {
  columns <- c("mean", "low", "low50", "high50", "high")
  data[columns] <- data[columns] * units
  data
}

# A row for each parameter on one axis for all slopes, with intercepts above and standard deviations below on axes of their own
interval_picture <- function(data, subtitle, standardised) {
  labels <- data$parameter
  data$parameter <- factor(labels, rev(unique(labels)))
  data$panel <- droplevels(data$panel)
  zero <- data.frame(panel = factor(intersect(levels(data$panel), panels_with_zero), levels(data$panel)))
  plot <- ggplot2::ggplot(data, ggplot2::aes(x = .data$mean, y = .data$parameter)) +
    (if (nrow(zero)) ggplot2::geom_vline(ggplot2::aes(xintercept = 0), zero, colour = "grey70")) +
    ggplot2::geom_segment(ggplot2::aes(x = .data$low, xend = .data$high, yend = .data$parameter),
                          colour = plot_blue) +
    ggplot2::geom_segment(ggplot2::aes(x = .data$low50, xend = .data$high50, yend = .data$parameter),
                          colour = plot_blue, linewidth = 1.5) +
    ggplot2::geom_point(size = 2) +
    ggplot2::scale_y_discrete(labels = wrapped_names(labels)) + ggplot2::scale_x_continuous(guide = sparse_labels()) +
    ggplot2::labs(x = NULL, y = NULL, subtitle = subtitle,
                  caption = paste0("Posterior mean, 50 % and 95 % credible intervals",
                                   if (standardised) ";\nslopes per standard deviation of their predictor"))
  if (nlevels(data$panel) > 1L) plot + stacked_panels(table(data$panel)) else plot
}

# Panels one above the other, as high as they have rows. facet_wrap() makes them equally high.
stacked_panels <- function(rows) {
  facet <- ggplot2::facet_wrap(ggplot2::vars(.data$panel), ncol = 1L, scales = "free")
  ggplot2::ggproto(NULL, facet, draw_panels = function(self, ...) {
    drawn <- ggplot2::ggproto_parent(facet, self)$draw_panels(...)
    at <- drawn$layout$t[grepl("^panel", drawn$layout$name)]
    drawn$heights[sort(unique(at))] <- ggplot2::unit(as.double(rows) + 0.2, "null")
    drawn
  })
}

# For each name, the name on as many lines as it takes. A line ends behind punctuation where it can. Of names of more than four lines
# the middle is left out.
wrapped_names <- function(names, width = 26L) stats::setNames(vapply(names, wrapped_name, "", width = width), names)

wrapped_name <- function(name, width) {
  if (nchar(name) > 4L * width) {
    name <- paste0(substr(name, 1L, 2L * width - 3L), "...", substring(name, nchar(name) - 2L * width + 4L))
  }
  lines <- ""
  for (piece in regmatches(name, gregexpr("[([]*[^],:._ |()[]*[],:._ |)]+|[([]*[^],:._ |()[]+|[([]", name))[[1L]]) {
    last <- length(lines)
    if (nchar(lines[last]) + nchar(piece) <= width) lines[last] <- paste0(lines[last], piece) else lines <- c(lines, piece)
  }
  paste(lines[nzchar(lines)], collapse = "\n")
}

# the same on one line, for places that have no more: the beginning and the end of a long name
short_names <- function(names, most = 22L) {
  long <- nchar(names) > most
  half <- (most - 3L) %/% 2L
  names[long] <- paste0(substr(names[long], 1L, half), "...", substring(names[long], nchar(names[long]) - half + 1L))
  names
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

# ---- densities ----------------------------------------------------------------------------------------

plot_density <- function(fit, which) {
  posterior <- fit$posterior
  prior <- if (length(which) <= 16L) drawable_prior(fit)
  curves <- lapply(which, function(j) {
    curve <- posterior_curve(posterior, j)
    data.frame(parameter = posterior$shown[j], curve, gaussian = gaussian_density(posterior, j, curve$x),
               prior = prior_density(prior, posterior$shown[j], curve$x))
  })
  drawn <- function(column) !all(is.na(unlist(lapply(curves, `[[`, column))))
  density_picture(curves, plot_subtitle(fit)) +
    ggplot2::labs(caption = paste(c(if (drawn("gaussian")) "dashed: best gaussian", if (drawn("prior")) "dotted: prior"), collapse = "; "))
}

# the prior of a regression as a posterior without data, for plots; NULL where a prior is flat
drawable_prior <- function(fit) {
  if (is.null(fit$regression) || is_prior(fit)) return(NULL)
  tryCatch({
    refuse_flat_priors(fit$priors, coefficient_names(fit), dispersion_name_of(fit), "object")
    prior_of_fit(fit)
  }, elvi_error = function(e) NULL)
}

# of coefficients; those of hyperparameters are drawn by plot(fit, "sds")
prior_density <- function(prior, name, x) {
  j <- match(name, prior$shown)
  if (is.null(prior) || is.na(j) || j > length(prior$coefficients)) return(NA_real_)
  posterior_marginal(prior, j)$density(x)
}

# One height for all: its units differ, and no one reads them.
density_picture <- function(parts, subtitle, title = "posterior density", panels = 16L) {
  data <- do.call(rbind, lapply(parts, function(part) {
    cbind(part, height = part$density / max(part$density), dashed = (part$gaussian %||% NA_real_) / max(part$density),
          dotted = (part$prior %||% NA_real_) / max(part$density))
  }))
  data$parameter <- factor(data$parameter, unique(data$parameter))
  plot <- if (nlevels(data$parameter) > panels) density_tiles(data) else density_panels(data)
  plot + ggplot2::labs(x = NULL, y = title, subtitle = subtitle)
}

density_panels <- function(data) {
  ggplot2::ggplot(data, ggplot2::aes(x = .data$x, y = .data$height)) +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = 0, ymax = .data$height), fill = plot_blue, alpha = 0.25) +
    ggplot2::geom_line(colour = plot_blue) +
    ggplot2::geom_line(ggplot2::aes(y = .data$dashed), data = data[!is.na(data$dashed), ], linetype = "dashed", colour = "grey30") +
    ggplot2::geom_line(ggplot2::aes(y = .data$dotted), data = data[!is.na(data$dotted), ], linetype = "dotted", colour = "grey30") +
    ggplot2::facet_wrap(ggplot2::vars(.data$parameter), scales = "free_x",
                        labeller = ggplot2::as_labeller(wrapped_names(levels(data$parameter), 22L))) +
    ggplot2::scale_x_continuous(breaks = inner_breaks, minor_breaks = NULL, guide = sparse_labels()) +
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
  names <- data.frame(across = left + 0.45, up = base + 0.62, label = short_names(places))
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

# ---- pairs ----------------------------------------------------------------------------------------------

plot_pairs <- function(fit, which, draws = 500L) {
  which <- unique(which)
  posterior <- fit$posterior
  labels <- posterior$shown[which]
  if (length(which) < 2L) bad_argument("pars", "at least two parameters", describe(labels))
  drawn <- posterior_draws(posterior, draws)
  x <- cbind(show_draws(posterior, drawn$x), drawn$hyper)[, which, drop = FALSE]
  points <- in_pairs(labels, function(pair) data.frame(x = x[, pair[1L]], y = x[, pair[2L]]))
  plot <- ggplot2::ggplot(points, ggplot2::aes(x = .data$x, y = .data$y)) +
    ggplot2::geom_point(colour = plot_blue, alpha = 0.25, size = 0.8) +
    ggplot2::facet_grid(ggplot2::vars(.data$up), ggplot2::vars(.data$across), scales = "free",
                        labeller = ggplot2::as_labeller(wrapped_names(labels, 16L))) +
    ggplot2::scale_x_continuous(breaks = inner_breaks, minor_breaks = NULL, guide = sparse_labels()) +
    ggplot2::scale_y_continuous(breaks = inner_breaks, minor_breaks = NULL, guide = sparse_labels()) +
    ggplot2::labs(x = NULL, y = NULL, subtitle = plot_subtitle(fit), caption = paste(draws, "draws, and their correlations"))
  ellipses <- pair_ellipses(posterior, which)
  plot <- plot + pair_correlations(posterior, which, x)
  if (is.null(ellipses)) return(plot)
  plot + ggplot2::geom_path(ggplot2::aes(linetype = .data$mass), ellipses) + ggplot2::labs(linetype = "probability inside")
}

# Above the diagonal the correlations, on it the densities, which reach over the range of their row.
pair_correlations <- function(posterior, which, x) {
  labels <- posterior$shown[which]
  middle <- function(j) mean(range(x[, j]))
  R <- stats::cor(x)
  text <- in_pairs(labels, function(pair) {
    data.frame(x = middle(pair[2L]), y = middle(pair[1L]), text = sprintf("%.2f", R[pair[1L], pair[2L]]))
  })
  text[c("across", "up")] <- text[c("up", "across")]
  curves <- do.call(rbind, lapply(seq_along(which), function(j) {
    curve <- posterior_curve(posterior, which[j])
    within <- curve$x >= min(x[, j]) & curve$x <= max(x[, j])
    data.frame(across = factor(labels[j], labels), up = factor(labels[j], labels), x = curve$x[within],
               low = min(x[, j]), y = min(x[, j]) + diff(range(x[, j])) * curve$density[within] / max(curve$density))
  }))
  list(ggplot2::geom_text(ggplot2::aes(label = .data$text), text, size = 3.5, colour = "grey30"),
       ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$low, ymax = .data$y), curves, fill = plot_blue, alpha = 0.25),
       ggplot2::geom_line(ggplot2::aes(y = .data$y), curves, colour = plot_blue))
}

# a data frame of all pairs of columns, from one of each
in_pairs <- function(labels, data_of) {
  data <- do.call(rbind, utils::combn(length(labels), 2L, function(pair) {
    cbind(data.frame(across = labels[pair[1L]], up = labels[pair[2L]]), data_of(pair))
  }, simplify = FALSE))
  data$across <- factor(data$across, labels)
  data$up <- factor(data$up, labels)
  data
}

# of a single elliptic component; NULL for other posteriors
pair_ellipses <- function(posterior, which) {
  if (is.null(sole_component(posterior)) || any(which > posterior_dim(posterior))) return(NULL)
  at <- component_moments(posterior)$mean[which, 1L]
  V <- posterior_covariance(posterior, which)
  radii <- pair_radii(posterior_law(posterior), c(0.5, 0.95))
  angle <- seq(0, 2 * pi, length.out = 100L)
  circle <- rbind(cos(angle), sin(angle))
  in_pairs(posterior$shown[which], function(pair) {
    do.call(rbind, lapply(seq_along(radii), function(i) {
      xy <- show_rows(posterior, which[pair], at[pair] + t(chol(V[pair, pair])) %*% circle * radii[[i]])
      data.frame(x = xy[1L, ], y = xy[2L, ], mass = names(radii)[i])
    }))
  })
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

# ---- groups ------------------------------------------------------------------------------------------

plot_groups <- function(fit, pars, most = 500L) {
  terms <- group_terms_of(fit)
  if (!length(terms)) refuse_argument("type", "type = \"groups\" needs a fit with group-level terms.")
  labels <- vapply(terms, `[[`, "", "label")
  if (!is.null(pars)) {
    if (!is.character(pars) || !all(pars %in% labels)) {
      bad_argument("pars", paste0("among the grouping factors (", toString(unique(labels)), ")"),
                   describe(setdiff(pars, labels)[1L]))
    }
    terms <- terms[labels %in% pars]
  }
  panels <- do.call(c, lapply(terms, function(term) lapply(seq_along(term$coefs), caterpillar, fit = fit, term = term,
                                                           most = most)))
  data <- do.call(rbind, panels)
  data$panel <- factor(data$panel, unique(data$panel))
  # an order of levels for each panel: keys are unique, labels are not
  data$at <- factor(paste(as.integer(data$panel), data$level), paste(as.integer(data$panel), data$level))
  count <- table(data$panel)[as.integer(data$panel)]
  data$fine <- as.double(ifelse(count > 40, 0.4, 1))
  names <- stats::setNames(ifelse(count > 40, "", data$level), levels(data$at))
  ggplot2::ggplot(data, ggplot2::aes(x = .data$mean, y = .data$at)) +
    ggplot2::geom_vline(xintercept = 0, colour = "grey70") +
    ggplot2::geom_segment(ggplot2::aes(x = .data$low, xend = .data$high, yend = .data$at, linewidth = 0.5 * .data$fine),
                          colour = plot_blue) +
    ggplot2::geom_segment(ggplot2::aes(x = .data$low50, xend = .data$high50, yend = .data$at,
                                       linewidth = 1.5 * .data$fine), colour = plot_blue) +
    ggplot2::geom_point(ggplot2::aes(size = 1.5 * .data$fine)) +
    ggplot2::scale_linewidth_identity() + ggplot2::scale_size_identity() + ggplot2::scale_y_discrete(labels = names) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel), scales = "free") +
    ggplot2::labs(x = "effect, with 50 % and 95 % credible intervals", y = NULL,
                  subtitle = plot_subtitle(fit),
                  caption = if (any(vapply(panels, nrow, 0L) == most)) sprintf("%d levels of each, evenly spread in order", most))
}

# the effects of one coefficient of a term in order of their means, at most `most` of them
caterpillar <- function(j, fit, term, most) {
  at <- effect_positions(fit, term)[seq(j, length(term$columns), by = length(term$coefs))]
  order <- order(posterior_moments(fit$posterior)$mean[at])
  if (length(order) > most) order <- order[round(seq(1, length(order), length.out = most))]
  data <- interval_data(fit, at[order])
  data$level <- term$levels[order]
  data$panel <- if (identical(term$coefs, "(Intercept)")) term$label else paste0(term$label, ": ", term$coefs[j])
  data
}

# ---- standard deviations ---------------------------------------------------------------------------------

plot_sds <- function(fit) {
  names <- c(unlist(lapply(fit$groups, sd_names)), family_parameter_names(fit))
  if (!length(names)) refuse_argument("type", "type = \"sds\" needs a fit with standard deviations of terms or a dispersion.")
  densities <- sd_prior_densities(fit)
  posterior <- fit$posterior
  data <- do.call(rbind, lapply(seq_along(names), function(i) {
    curve <- posterior_curve(posterior, match(names[i], posterior$shown))
    data.frame(parameter = names[i], curve, prior = densities[[i]](curve$x))
  }))
  data$parameter <- factor(data$parameter, names)
  ggplot2::ggplot(data, ggplot2::aes(x = .data$x, y = .data$density)) +
    # geom_area() would align panels that share no points, which takes longer than the fit
    ggplot2::geom_ribbon(ggplot2::aes(ymin = 0, ymax = .data$density), fill = plot_blue, alpha = 0.25) +
    ggplot2::geom_line(colour = plot_blue) +
    ggplot2::geom_line(ggplot2::aes(y = .data$prior), linetype = "dashed", colour = "grey40") +
    ggplot2::facet_wrap(ggplot2::vars(.data$parameter), scales = "free") +
    ggplot2::labs(x = NULL, y = "posterior density; prior dashed", subtitle = plot_subtitle(fit))
}

# Prior densities of the parameters that plot_sds() shows. Where a family has several, such as cut points, some are sums of others, and
# their densities are kernel estimates from draws of the prior.
sd_prior_densities <- function(fit) {
  terms <- unlist(Map(function(term, prior) lapply(seq_along(sd_names(term)), prior_of_one, prior = prior), fit$groups,
                      unname(fit$priors$sd)), recursive = FALSE)
  own <- family_parameter_names(fit)
  exact <- lapply(c(terms, if (length(own) == 1L && !is.null(fit$priors$aux)) list(fit$priors$aux)),
                  function(prior) function(x) positive_density(prior, x))
  if (length(own) < 2L) return(exact)
  prior <- drawable_prior(fit)
  c(exact, lapply(own, function(name) {
    if (is.null(prior)) return(function(x) rep(NA_real_, length(x)))
    posterior_marginal(prior, match(name, prior$shown))$density
  }))
}

# ---- smooths ------------------------------------------------------------------------------------------------

# Curves with bands, fields with contours, or maps: a plot shows one of them, the first that there is unless `pars` says which smooths.
plot_smooths <- function(fit, pars) {
  surfaces <- smooth_surfaces(fit, pars, "pars", 100L, 60L)
  shapes <- vapply(surfaces, surface_shape, "")
  shown <- intersect(names(surface_plots), shapes)[1L]
  if (is.na(shown)) {
    refuse_argument("type", "type = \"smooths\" needs a fit with a smooth of one or two numeric variables, or a map.")
  }
  rest <- vapply(surfaces[shapes != shown & shapes != "other"], function(surface) surface$part$label, "")
  if (length(rest)) {
    elvi_inform("Not in this plot: ", toString(rest), ". plot(fit, \"smooths\", pars = ) shows them.", class = "elvi_message_plot")
  }
  surface_plots[[shown]](fit, surfaces[shapes == shown])
}

is_number_like <- function(x) is.numeric(x) && is.null(dim(x)) || inherits(x, c("Date", "POSIXct"))

has_map <- function(part) length(part$terms) == 1L && !is.null(part$terms[[1L]]$map)

surface_shape <- function(surface) {
  if (has_map(surface$part)) return("map")
  by <- part_by(surface$part)$variable
  numbers <- vapply(surface$grid[setdiff(names(surface$grid), by)], is_number_like, NA)
  c("other", "curve", "field")[min(sum(numbers), 2L) + 1L]
}

# names of the variables that are numbers, and of those that are not
surface_axes <- function(surface) {
  names <- setdiff(names(surface$grid), part_by(surface$part)$variable)
  numbers <- vapply(surface$grid[names], is_number_like, NA)
  list(numbers = names[numbers], others = names[!numbers])
}

# rows of the data that a smooth was made of
surface_rows <- function(fit, surface) {
  by <- part_by(surface$part)
  if (is.null(by$level)) seq_len(nrow(fit$frame)) else which(as.character(fit$frame[[by$variable]]) == by$level)
}

plot_curves <- function(fit, surfaces) {
  curves <- lapply(surfaces, smooth_curve, fit = fit)
  data <- do.call(rbind, lapply(curves, `[[`, "curve"))
  rug <- do.call(rbind, lapply(curves, `[[`, "rug"))
  data$panel <- factor(data$panel, unique(data$panel))
  rug$panel <- factor(rug$panel, levels(data$panel))
  ggplot2::ggplot(data, ggplot2::aes(x = .data$x)) +
    ggplot2::geom_hline(yintercept = 0, colour = "grey70") +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$low, ymax = .data$high), fill = plot_blue, alpha = 0.2) +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$low50, ymax = .data$high50), fill = plot_blue, alpha = 0.3) +
    ggplot2::geom_line(ggplot2::aes(y = .data$mean), colour = plot_blue) +
    ggplot2::geom_rug(data = rug, sides = "b", alpha = 0.3) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel), scales = "free_x") +
    ggplot2::labs(x = toString(unique(vapply(surfaces, function(surface) surface_axes(surface)$numbers, ""))),
                  y = "smooth, 50 % and 95 % bands", subtitle = plot_subtitle(fit))
}

# Mean and quantiles of a smooth alone along its variable; one panel for each series.
smooth_curve <- function(surface, fit) {
  axes <- surface_axes(surface)
  q <- predictor_quantiles(fit, surface$at, c(0.025, 0.25, 0.75, 0.975))
  panel_of <- function(frame) {
    label <- surface$part$label
    if (!length(axes$others)) return(rep(label, nrow(frame)))
    paste0(label, ": ", do.call(paste, c(lapply(frame[axes$others], as.character), sep = ":")))
  }
  observed <- fit$frame[surface_rows(fit, surface), , drop = FALSE]
  mean <- mix_moments(surface$at, fit$posterior$weight)$mean
  list(curve = data.frame(panel = panel_of(surface$grid), x = as.double(surface$grid[[axes$numbers]]), mean = mean, low = q[, 1L],
                          low50 = q[, 2L], high50 = q[, 3L], high = q[, 4L]),
       rug = unique(data.frame(panel = panel_of(observed), x = as.double(observed[[axes$numbers]]))))
}

# Posterior means with contours, within the hull of the data; beyond it the smooth is an extrapolation and is not drawn.
plot_fields <- function(fit, surfaces) {
  fields <- lapply(surfaces, function(surface) {
    axes <- surface_axes(surface)$numbers
    at <- fit$frame[surface_rows(fit, surface), axes]
    points <- data.frame(panel = surface$part$label, x = as.double(at[[1L]]), y = as.double(at[[2L]]))
    hull <- points[grDevices::chull(points$x, points$y), ]
    grid <- data.frame(panel = surface$part$label, x = as.double(surface$grid[[axes[1L]]]), y = as.double(surface$grid[[axes[2L]]]),
                       mean = mix_moments(surface$at, fit$posterior$weight)$mean)
    grid$mean[!in_hull(grid$x, grid$y, hull)] <- NA
    list(grid = grid, hull = hull, points = points, axes = axes)
  })
  each <- function(field) do.call(rbind, lapply(fields, `[[`, field))
  axes <- vapply(1:2, function(j) toString(unique(vapply(fields, function(f) f$axes[j], ""))), "")
  ggplot2::ggplot(each("grid"), ggplot2::aes(x = .data$x, y = .data$y)) +
    ggplot2::geom_raster(ggplot2::aes(fill = .data$mean)) +
    ggplot2::geom_contour(ggplot2::aes(z = .data$mean), colour = "grey30", linewidth = 0.3, bins = 10L, na.rm = TRUE) +
    ggplot2::geom_polygon(data = each("hull"), fill = NA, colour = "grey50") +
    ggplot2::geom_point(data = each("points"), size = 0.4, alpha = 0.3) +
    ggplot2::scale_fill_gradient2(low = "#D55E00", mid = "white", high = plot_blue, na.value = "transparent") +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel), scales = "free") +
    ggplot2::labs(x = axes[1L], y = axes[2L], fill = "smooth\n(mean)", subtitle = plot_subtitle(fit))
}

# points within a convex polygon, whose corners are in clockwise order
in_hull <- function(x, y, hull) {
  to <- c(seq_len(nrow(hull))[-1L], 1L)
  span <- max(diff(range(hull$x)) * diff(range(hull$y)), .Machine$double.xmin)
  inside <- rep(TRUE, length(x))
  for (i in seq_len(nrow(hull))) {
    side <- (hull$x[to[i]] - hull$x[i]) * (y - hull$y[i]) - (hull$y[to[i]] - hull$y[i]) * (x - hull$x[i])
    inside <- inside & side <= 1e-9 * span
  }
  inside
}

# effects of areas, and how uncertain they are
plot_maps <- function(fit, surfaces) {
  need_package("sf", "A map of effects")
  maps <- do.call(rbind, lapply(surfaces, function(surface) {
    moments <- mix_moments(surface$at, fit$posterior$weight)
    data <- data.frame(panel = surface$part$label, mean = moments$mean)
    sf::st_sf(data, geometry = surface$part$terms[[1L]]$map)
  }))
  ggplot2::ggplot(maps) +
    ggplot2::geom_sf(ggplot2::aes(fill = .data$mean), colour = "grey60", linewidth = 0.2) +
    ggplot2::scale_fill_gradient2(low = "#D55E00", mid = "white", high = plot_blue) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel)) +
    ggplot2::labs(fill = "effect\n(mean)", subtitle = plot_subtitle(fit))
}

surface_plots <- list(curve = plot_curves, field = plot_fields, map = plot_maps)

utils::globalVariables(".data")
