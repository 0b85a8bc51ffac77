#' Plots of fits with group-level and smooth terms, or integrated over a dispersion
#'
#' * `"intervals"`, the default without groups and smooths: coefficients, standard deviations and dispersion. An intercept so far
#'   off that the others would be dots is given below the picture, in numbers.
#' * `"density"`: marginal densities of the same. `"pairs"`: draws of each pair of parameters.
#' * `"groups"`, the default with groups: a caterpillar plot, for each term the effects of its levels in order of
#'   their means, with 50 % and 95 % credible intervals. Of more than 500 levels, 500 are drawn.
#' * `"sds"`: densities of the standard deviations of terms (and of sigma or phi), with the prior dashed.
#' * `"smooths"`, the default with smooths and no groups: each smooth of one variable with 50 % and 95 % pointwise
#'   bands, on the scale of the linear predictor, and a rug of the data.
#'
#' @param object,x a fit by [elvi()] whose formula has [group-level terms][group_terms], or whose family has a dispersion that
#'   was integrated over.
#' @param type what to draw.
#' @param pars for `"intervals"`, `"density"` and `"pairs"`: parameters to show, by name or number; the first four for
#'   pairs. For `"groups"`: grouping factors. For `"smooths"`: labels of smooths.
#' @param ... passed on from `plot()` to `autoplot()`; otherwise nothing.
#' @return A ggplot object; `plot()` draws it and returns it invisibly.
#' @examples
#' \donttest{
#' if (requireNamespace("ggplot2", quietly = TRUE) && requireNamespace("reformulas", quietly = TRUE)) {
#'   fit <- elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson())
#'   plot(fit)
#'   plot(fit, "sds")
#' }
#' }
#' @name plot.elvi_nested
#' @exportS3Method ggplot2::autoplot
autoplot.elvi_nested <- function(object, type = NULL, pars = NULL, ...) {
  check_dots(list(...), names(formals()), "autoplot()")
  need_package("ggplot2", "Plotting a fit")
  default <- if (length(group_terms_of(object))) "groups" else if (length(drawable_smooths(object))) "smooths" else "intervals"
  type <- check_choice(type %||% default, "type", c("intervals", "density", "pairs", "groups", "sds", "smooths"))
  plot <- switch(type,
                 intervals = interval_picture(interval_data(object, nested_parameters(object, pars, "pars")),
                                              nested_subtitle(object)),
                 density = density_picture(nested_densities(object, nested_parameters(object, pars, "pars")),
                                           nested_subtitle(object)),
                 pairs = plot_nested_pairs(object, if (is.null(pars)) utils::head(nested_parameters(object, NULL, "pars"), 4L)
                                                   else nested_parameters(object, pars, "pars")),
                 groups = plot_groups(object, pars),
                 sds = plot_sds(object),
                 smooths = plot_smooths(object, pars)) +
    ggplot2::theme_minimal()
  if (type == "groups") plot + ggplot2::theme(panel.grid.major.y = ggplot2::element_blank()) else plot
}

#' @rdname plot.elvi_nested
#' @export
plot.elvi_nested <- function(x, ...) {
  p <- autoplot.elvi_nested(x, ...)
  print(p)
  invisible(p)
}

nested_subtitle <- function(fit) {
  text <- deparse_one(fit$formula)
  if (nchar(text) > 60L) text <- paste0(substr(text, 1L, 57L), "...")
  sprintf("%s\nmixture over %d nodes", text, length(fit$nested$nodes))
}

interval_data <- function(fit, which) {
  q <- nested_quantiles(fit, which, c(0.025, 0.25, 0.75, 0.975))
  data.frame(parameter = names(fit$mu)[which], mean = fit$mu[which], low = q[, 1L], low50 = q[, 2L], high50 = q[, 3L],
             high = q[, 4L])
}

# ---- coefficients and dispersion -------------------------------------------------------------------------

# Coefficients and effects are mixtures over the nodes; the others are known by draws.
nested_densities <- function(fit, which) {
  d <- nrow(fit$node_mu)
  sample <- if (any(which > d)) hyper_sample(fit)
  lapply(which, function(j) {
    if (j > d) {
      curve <- stats::density(sample[, j - d], bw = 1.3 * stats::bw.nrd0(sample[, j - d]), n = 256L)
      return(data.frame(parameter = names(fit$mu)[j], x = curve$x, density = curve$y))
    }
    x <- fit$mu[[j]] + fit$sd[[j]] * seq(-4, 4, length.out = 81L)
    data.frame(parameter = names(fit$mu)[j], x = x, density = q_density(fit, names(fit$mu)[j], x))
  })
}

# draws, where an ellipse would not be what a mixture is
plot_nested_pairs <- function(fit, which, draws = 500L) {
  which <- unique(which)
  if (length(which) < 2L) bad_argument("pars", "at least two parameters", describe(names(fit$mu)[which]))
  drawn <- nested_draws(fit, draws)
  x <- cbind(drawn$x, drawn$hyper)[, which, drop = FALSE]
  labels <- names(fit$mu)[which]
  data <- do.call(rbind, utils::combn(length(which), 2L, function(pair) {
    data.frame(across = labels[pair[1L]], up = labels[pair[2L]], x = x[, pair[1L]], y = x[, pair[2L]])
  }, simplify = FALSE))
  data$across <- factor(data$across, labels)
  data$up <- factor(data$up, labels)
  ggplot2::ggplot(data, ggplot2::aes(x = .data$x, y = .data$y)) +
    ggplot2::geom_point(colour = plot_blue, alpha = 0.25, size = 0.8) +
    ggplot2::facet_grid(ggplot2::vars(.data$up), ggplot2::vars(.data$across), scales = "free",
                        labeller = ggplot2::as_labeller(short_names(labels, 22L))) +
    ggplot2::scale_x_continuous(breaks = inner_breaks) +
    ggplot2::labs(x = NULL, y = NULL, subtitle = paste0(nested_subtitle(fit), "; ", draws, " draws"))
}

# ---- groups ------------------------------------------------------------------------------------------

plot_groups <- function(fit, pars, most = 500L) {
  terms <- group_terms_of(fit)
  if (!length(terms)) bad_argument("type", "another: this fit has no group-level terms", "\"groups\"")
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
    ggplot2::labs(x = "effect: posterior mean, 50 % and 95 % credible intervals", y = NULL,
                  subtitle = nested_subtitle(fit),
                  caption = if (any(vapply(panels, nrow, 0L) == most)) sprintf("%d levels of each, evenly spread in order", most))
}

# the effects of one coefficient of a term in order of their means, at most `most` of them
caterpillar <- function(j, fit, term, most) {
  at <- effect_positions(fit, term)[seq(j, length(term$columns), by = length(term$coefs))]
  order <- order(fit$mu[at])
  if (length(order) > most) order <- order[round(seq(1, length(order), length.out = most))]
  data <- interval_data(fit, at[order])
  data$level <- term$levels[order]
  data$panel <- if (identical(term$coefs, "(Intercept)")) term$label else paste0(term$label, ": ", term$coefs[j])
  data
}

# ---- standard deviations ---------------------------------------------------------------------------------

plot_sds <- function(fit) {
  names <- c(unlist(lapply(fit$groups, sd_names)), fit$problem$dispersion$name)
  if (!length(names)) bad_argument("type", "another: this fit has no standard deviations", "\"sds\"")
  priors <- c(unlist(Map(function(term, prior) rep(list(prior), length(term$coefs)), fit$groups, unname(fit$priors$sd)),
                     recursive = FALSE),
              if (!is.null(fit$problem$dispersion)) list(fit$priors$aux))
  sample <- hyper_sample(fit)
  data <- do.call(rbind, lapply(seq_along(names), function(i) {
    values <- sample[, names[i]]
    # reflected at 0, where the mass ends
    density <- stats::density(c(values, -values), bw = 1.3 * stats::bw.nrd0(values), n = 1024L, from = 0,
                              to = stats::quantile(values, 0.999, names = FALSE))
    inside <- density$x >= max(0, min(values) - 2 * density$bw)
    data.frame(parameter = names[i], x = density$x, density = 2 * density$y,
               prior = positive_density(priors[[i]], density$x))[inside, ]
  }))
  data$parameter <- factor(data$parameter, names)
  ggplot2::ggplot(data, ggplot2::aes(x = .data$x, y = .data$density)) +
    ggplot2::geom_area(fill = plot_blue, alpha = 0.25) + ggplot2::geom_line(colour = plot_blue) +
    ggplot2::geom_line(ggplot2::aes(y = .data$prior), linetype = "dashed", colour = "grey40") +
    ggplot2::facet_wrap(ggplot2::vars(.data$parameter), scales = "free") +
    ggplot2::labs(x = NULL, y = "posterior density; prior dashed", subtitle = nested_subtitle(fit))
}

# ---- smooths ------------------------------------------------------------------------------------------------

plot_smooths <- function(fit, pars, points = 100L) {
  smooths <- fit$smooths
  labels <- vapply(smooths, `[[`, "", "label")
  if (!is.null(pars)) {
    if (!is.character(pars) || !all(pars %in% labels)) {
      bad_argument("pars", paste0("among the smooths (", toString(labels), ")"), describe(setdiff(pars, labels)[1L]))
    }
    smooths <- smooths[labels %in% pars]
  }
  smooths <- drawable_smooths(fit, smooths)
  if (!length(smooths)) bad_argument("type", "another: this fit has no smooth of a single number", "\"smooths\"")
  curves <- lapply(smooths, smooth_curve, fit = fit, points = points)
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
    ggplot2::labs(x = toString(unique(vapply(smooths, `[[`, "", "variables"))),
                  y = "smooth (posterior mean, 50 % and 95 % bands)", subtitle = nested_subtitle(fit))
}

drawable_smooths <- function(fit, smooths = fit$smooths) {
  Filter(function(smooth) length(smooth$variables) == 1L && is.numeric(fit$frame[[smooth$variables]]), smooths)
}

# Mean and quantiles of a smooth alone along its variable.
smooth_curve <- function(smooth, fit, points) {
  name <- smooth$variables
  own <- if (is.null(smooth$by_level)) seq_len(nrow(fit$frame)) else which(fit$frame[[smooth$by]] == smooth$by_level)
  observed <- as.double(fit$frame[[name]])[own]
  x <- seq(min(observed), max(observed), length.out = points)
  frame <- fit$frame[rep(own[1L], points), , drop = FALSE]
  frame[[name]] <- x
  if (!is.null(smooth$by) && is.null(smooth$by_level)) frame[[smooth$by]] <- 1
  parts <- smooth_columns(smooth, frame)
  X <- matrix(0, points, ncol(fit$problem$X), dimnames = list(NULL, colnames(fit$problem$X)))
  X[, free_names(smooth)] <- parts$free
  Z <- Matrix::Matrix(0, points, ncol(fit$problem$Z), sparse = TRUE)
  terms <- Filter(function(term) identical(term$smooth, smooth$label), fit$groups)
  for (i in seq_along(terms)) Z[, terms[[i]]$columns] <- parts$penalised[[i]]
  at <- node_functionals(fit, X, Z)
  weight <- fit$nested$hyper$weight
  q <- mixture_quantiles(at$mean, at$sd, weight, law_of(fit$base, nrow(fit$node_mu)), c(0.025, 0.25, 0.75, 0.975))
  list(curve = data.frame(panel = smooth$label, x = x, mean = drop(at$mean %*% weight), low = q[, 1L], low50 = q[, 2L],
                          high50 = q[, 3L], high = q[, 4L]),
       rug = data.frame(panel = smooth$label, x = observed))
}
