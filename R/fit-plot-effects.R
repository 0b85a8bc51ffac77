# plot(fit, "effects"): expected responses along each predictor, the others at typical values.

plot_effects <- function(fit, pars) {
  if (is.null(fit$regression)) refuse_argument("type", "type = \"effects\" needs a fit of a formula.")
  if (is_out_of_memory(fit)) refuse_argument("type", "type = \"effects\" needs the data in memory.")
  values <- effect_variables(fit)
  effects <- chosen_effects(fit, names(values), pars)
  if (!length(effects)) {
    refuse_argument("type", "type = \"effects\" needs a predictor. plot(fit, \"smooths\") shows terms of time and place.")
  }
  panels <- lapply(effects, effect_panel, values = values)
  for (j in seq_along(panels)) panels[[j]]$number <- j
  curves <- do.call(rbind, lapply(panels, effect_curve, fit = fit, values = values))
  effect_picture(fit, panels, curves, do.call(rbind, lapply(panels, effect_points, fit = fit, values = values)))
}

# The variables of the formulas as the data have them, in the rows of the fit. Constants and functions are left out.
effect_variables <- function(fit) {
  env <- environment(fit$formula)
  data <- if (!is.null(fit$call$data)) eval(fit$call$data, env)
  names <- setdiff(unique(c(all.vars(stats::delete.response(fit$terms)), all.vars(fit$formula[[3L]]),
                            if (!is.null(fit$second)) all.vars(fit$second$formula))), ".")
  values <- lapply(stats::setNames(nm = names), function(name) or_null(eval(as.name(name), data, env)))
  values <- Filter(function(x) (is_number_like(x) || is.factor(x) || is.character(x) || is.logical(x)) && length(x) > 1L, values)
  size <- max(lengths(values), 0L)
  values <- as.data.frame(values[lengths(values) == size], optional = TRUE, stringsAsFactors = TRUE)
  if (is.data.frame(data) && nrow(data) == size) rownames(values) <- rownames(data)
  rows <- match(rownames(fit$frame), rownames(values))
  if (anyNA(rows)) refuse_argument("object", "The data of this fit have changed: type = \"effects\" needs them as they were.")
  values <- values[rows, , drop = FALSE]
  discrete <- names(values) %in% made_factors(fit$frame)
  values[] <- Map(function(x, discrete) if (discrete || is.logical(x)) factor(x) else if (is.factor(x)) droplevels(x) else x,
                  values, discrete)
  values
}

# variables that a formula makes a factor of, as factor(cyl) does
made_factors <- function(frame) {
  unlist(lapply(names(frame), function(label) {
    used <- all.vars(str2lang(label))
    if (!is_number_like(frame[[label]]) && length(used) == 1L && used != label) used
  }))
}

# factors as the data have them: numbers where the formula makes the factor
as_in_data <- function(grid, fit) {
  for (name in intersect(names(grid), made_factors(fit$frame))) {
    grid[[name]] <- utils::type.convert(as.character(grid[[name]]), as.is = TRUE)
  }
  grid
}

# "x", or c("x", "z") for two that interact
chosen_effects <- function(fit, names, pars) {
  smooth <- unique(unlist(lapply(smooth_parts(fit), part_variables)))
  by <- unlist(lapply(smooth_parts(fit), function(part) part_by(part)$variable))
  labels <- attr(fit$terms, "term.labels")
  terms <- lapply(labels, function(label) all.vars(str2lang(label)))
  second <- if (!is.null(fit$second)) setdiff(all.vars(fit$second$formula), unlist(lapply(group_terms_of(fit), `[[`, "group")))
  free <- intersect(names, unique(c(unlist(terms), smooth, by, second)))
  pairs <- Filter(function(term) length(term) == 2L && all(term %in% free), unique(terms[lengths(terms) == 2L]))
  if (is.null(pars)) return(c(as.list(setdiff(free, unlist(pairs))), pairs))
  if (!is.character(pars) || !length(pars)) bad_argument("pars", "names of predictors, such as \"x\" or \"x:z\"", describe(pars))
  lapply(strsplit(pars, ":", fixed = TRUE), function(pair) {
    odd <- c(setdiff(pair, free), if (length(pair) > 2L) pair)
    if (length(odd)) {
      bad_argument("pars", paste0("among the predictors (", toString(free), "), or two of them as \"x:z\""), describe(odd[1L]))
    }
    pair
  })
}

# Where a panel has its curves: the variable along the axis, and the values of the one that it interacts with.
# A numeric variable goes along the axis if there is one.
effect_panel <- function(effect, values) {
  if (length(effect) == 2L && !is_number_like(values[[effect[1L]]]) && is_number_like(values[[effect[2L]]])) effect <- rev(effect)
  x <- values[[effect[1L]]]
  at <- if (is_number_like(x)) seq(min(x), max(x), length.out = 60L) else factor(levels(x), levels(x))
  other <- if (length(effect) == 2L) {
    z <- values[[effect[2L]]]
    if (is.factor(z)) factor(levels(z), levels(z)) else mean(z) + c(-1, 0, 1) * stats::sd(z)
  }
  list(effect = effect, at = at, other = other, range = if (is_number_like(x)) as.double(range(x)))
}

typical_value <- function(x) {
  if (is.factor(x)) return(factor(levels(x)[1L], levels(x)))
  if (is.numeric(x)) mean(x) else stats::median(x)
}

# Panels share one axis: panel j has its values between 10 j and 10 j + 1, and labels are translated back.
axis_place <- function(panel, x) {
  if (is.null(panel$range)) return(10 * panel$number + (as.integer(factor(x, levels(panel$at))) - 0.5) / length(panel$at))
  10 * panel$number + (as.double(x) - panel$range[1L]) / max(diff(panel$range), .Machine$double.xmin)
}

axis_breaks <- function(panels) {
  function(limits) {
    panel <- panels[[max(1L, min(length(panels), as.integer(mean(limits) %/% 10)))]]
    if (is.null(panel$range)) return(axis_place(panel, panel$at))
    at <- pretty(panel$range, 4L)
    axis_place(panel, at[at >= panel$range[1L] & at <= panel$range[2L]])
  }
}

axis_labels <- function(panels) {
  function(at) {
    vapply(at, function(x) {
      if (is.na(x)) return(NA_character_)
      panel <- panels[[max(1L, min(length(panels), as.integer(x %/% 10)))]]
      u <- x - 10 * panel$number
      if (is.null(panel$range)) return(as.character(panel$at[round(u * length(panel$at) + 0.5)]))
      value <- signif(panel$range[1L] + u * diff(panel$range), 6)
      if (abs(value) < 1e-9 * diff(panel$range)) value <- 0
      if (is_number_like(panel$at) && !is.numeric(panel$at)) format(panel$at[1L] + (value - as.double(panel$at[1L]))) else format(value)
    }, "")
  }
}

# Would the labels of a factor's levels meet in a narrow picture, whose width has room for about 58 letters?
has_long_labels <- function(panels) {
  letters <- vapply(panels, function(panel) if (is.null(panel$range)) sum(nchar(levels(panel$at)) + 2L) else 0L, 0)
  max(letters) * ggplot2::wrap_dims(length(panels))[2L] > 58
}

effect_curve <- function(panel, fit, values) {
  grid <- values[rep(1L, length(panel$at) * max(1L, length(panel$other))), , drop = FALSE]
  grid[] <- lapply(values, function(x) rep(typical_value(x), nrow(grid)))
  grid[[panel$effect[1L]]] <- rep(panel$at, length.out = nrow(grid))
  if (!is.null(panel$other)) grid[[panel$effect[2L]]] <- rep(panel$other, each = length(panel$at))
  rownames(grid) <- NULL
  with <- if (is.null(panel$other)) "" else paste0(panel$effect[2L], " = ",
    if (is.factor(panel$other)) as.character(panel$other) else format(signif(panel$other, 2), trim = TRUE))
  frame <- data.frame(panel = panel$number, x = axis_place(panel, grid[[panel$effect[1L]]]), line = is.null(panel$range),
                      with = rep(factor(with, unique(with)), each = length(panel$at)))
  expected_at(fit, as_in_data(grid, fit), frame)
}

# means with 50 % and 95 % limits of the expected response, or of the probability of each class
expected_at <- function(fit, grid, frame) {
  if (!has_classes(fit)) {
    wide <- predict.elvi_glm(fit, grid, "response", re.form = NA, interval = "credible")
    inner <- predict.elvi_glm(fit, grid, "response", re.form = NA, interval = "credible", level = 0.5)
    return(cbind(frame, class = "", mean = wide[, "fit"], low = wide[, "lwr"], high = wide[, "upr"], low50 = inner[, "lwr"],
                 high50 = inner[, "upr"]))
  }
  draws <- posterior_epred.elvi_glm(fit, grid, draws = 2000, re.form = NA)
  do.call(rbind, lapply(seq_len(dim(draws)[3L]), function(k) {
    q <- apply(draws[, , k], 2L, stats::quantile, c(0.025, 0.25, 0.75, 0.975), names = FALSE)
    cbind(frame, class = class_names(fit$family)[k], mean = colMeans(draws[, , k]), low = q[1L, ], high = q[4L, ], low50 = q[2L, ],
          high50 = q[3L, ])
  }))
}

# Observed responses, where they are on the scale of the expected one. At most 2,000 of them.
effect_points <- function(panel, fit, values, most = 2000L) {
  if (has_classes(fit)) return(NULL)
  y <- tryCatch(as.double(observed_response(fit)), elvi_error = function(e) NULL)
  if (length(y) != nrow(values)) return(NULL)
  rows <- if (length(y) > most) round(seq(1, length(y), length.out = most)) else seq_along(y)
  x <- axis_place(panel, values[[panel$effect[1L]]])
  # responses of a level side by side, in an order that does not depend on the generator
  if (is.null(panel$range)) x <- x + 0.3 / length(panel$at) * ((seq_along(x) * 0.618034) %% 1 - 0.5)
  other <- if (is.factor(panel$other)) paste0(panel$effect[2L], " = ", values[[panel$effect[2L]]]) else ""
  data.frame(panel = panel$number, x = x, y = y, key = other)[rows, ]
}

effect_colours <- c("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")

effect_picture <- function(fit, panels, curves, points) {
  classes <- any(curves$class != "")
  curves$class <- factor(curves$class, unique(curves$class))
  keys <- if (classes) curves$class else curves$with
  keys <- factor(keys, unique(c("", as.character(keys))))
  curves$key <- keys
  partner <- unique(unlist(lapply(panels, function(panel) panel$effect[-1L])))   # one name is the title of the legend
  legend <- function(keys) if (length(partner) == 1L) sub(paste0(partner, " = "), "", keys, fixed = TRUE) else keys
  title <- if (classes) "class" else if (length(partner) == 1L) partner
  names <- vapply(panels, function(panel) panel$effect[1L], "")
  label <- ggplot2::as_labeller(stats::setNames(names, seq_along(panels)))
  shift <- if (nlevels(keys) > 2L) ggplot2::position_dodge(width = 0.15) else "identity"
  numeric <- curves[!curves$line, ]
  levels <- curves[curves$line, ]
  colours <- stats::setNames(rep_len(effect_colours, max(nlevels(keys) - 1L, 1L)), setdiff(levels(keys), ""))
  colours <- c(colours, stats::setNames(plot_blue, ""))
  by <- function(...) ggplot2::aes(x = .data$x, ..., colour = .data$key, group = interaction(.data$key, .data$with))
  ribbon <- function(low, high, alpha) {
    ggplot2::geom_ribbon(ggplot2::aes(x = .data$x, ymin = .data[[low]], ymax = .data[[high]], fill = .data$key,
                                      group = interaction(.data$key, .data$with)), numeric, alpha = alpha)
  }
  bar <- function(low, high, width) {
    ggplot2::geom_linerange(by(ymin = .data[[low]], ymax = .data[[high]]), levels, linewidth = width, position = shift)
  }
  ggplot2::ggplot() +
    (if (!is.null(points)) ggplot2::geom_point(ggplot2::aes(x = .data$x, y = .data$y, colour = .data$key), points, size = 0.7,
                                               alpha = if (nrow(points) > 200L) 0.25 else 0.5, show.legend = FALSE)) +
    (if (nrow(numeric)) list(ribbon("low", "high", 0.15), ribbon("low50", "high50", 0.25),
                             ggplot2::geom_line(if (classes) by(y = .data$mean, linetype = .data$with) else by(y = .data$mean), numeric))) +
    (if (nrow(levels)) list(bar("low", "high", 0.5), bar("low50", "high50", 1.5),
                            ggplot2::geom_point(by(y = .data$mean), levels, size = 2, position = shift))) +
    ggplot2::scale_x_continuous(breaks = axis_breaks(panels), labels = axis_labels(panels), minor_breaks = NULL,
                                guide = ggplot2::guide_axis(n.dodge = if (has_long_labels(panels)) 2L else 1L)) +
    ggplot2::scale_colour_manual(values = colours, breaks = setdiff(levels(keys), ""), labels = legend, aesthetics = c("colour", "fill")) +
    ggplot2::facet_wrap(ggplot2::vars(.data$panel), scales = "free_x", strip.position = "bottom", labeller = label) +
    ggplot2::labs(x = NULL, y = effect_label(fit, classes), colour = title, fill = title,
                  linetype = NULL, subtitle = plot_subtitle(fit), caption = effect_caption(fit, panels)) +
    (if (classes && nlevels(curves$with) == 1L) ggplot2::guides(linetype = "none")) +
    plot_theme() + ggplot2::theme(strip.placement = "outside", legend.position = "bottom")
}

effect_label <- function(fit, classes) {
  if (classes) return("probability")
  response <- deparse_one(fit$formula[[2L]])
  if (!family_record(fit$family)$trials) return(if (nchar(response) > 30L) "expected response" else response)
  y <- fit$frame[[1L]]
  if (is.factor(y) && nlevels(y) == 2L) paste("probability of", levels(y)[2L]) else if (is.matrix(y)) "probability of success"
  else paste("probability of", response)
}

effect_caption <- function(fit, panels) {
  said <- c("Posterior mean, 50 % and 95 % credible bands",
            if (length(panels) > 1L || length(fit$frame) > 2L) "other predictors at their mean or first level",
            if (length(group_terms_of(fit))) "group effects at 0")
  paste(said, collapse = ";\n")
}
