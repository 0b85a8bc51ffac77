# Hyperparameters of a posterior: a distribution on a few quadrature points, filled in between them for draws, quantiles and
# densities. `hyper` has
#
#   values   components x hyperparameters: standard deviations, correlations and dispersion, by name
#   show     a function of theta (rows) that gives such values: by its terms and layout
#   theta    components x hyperparameters on the unconstrained scale, mode and hessian there
#   z, rule  coordinates of the quadrature points in their rule, and its name (rule.R)

hyper_values <- function(hyper, theta) {
  if (is.null(hyper$show)) natural_columns(hyper$terms, hyper$layout, theta) else hyper$show(theta)
}

# values at the components, components x hyperparameters; NULL where there are none
component_hyper <- function(posterior) posterior$hyper$values

shown_hyper_names <- function(posterior) posterior$shown[-seq_len(posterior_dim(posterior))]

# named values of hyperparameters as a row of draws
hyper_row <- function(posterior, values) if (!is.null(posterior$hyper)) t(values[colnames(posterior$hyper$values)])

# the quadrature rule's name, and how its error is estimated, in words
rule_name <- function(posterior) posterior$hyper$rule %||% "none"
rule_words <- function(posterior) error_words(posterior$hyper$rule)

# NULL for one point, which has no error
quadrature_words <- function(posterior) if (length(posterior$weight) > 1L) paste("quadrature:", rule_words(posterior))

hyper_moments <- function(hyper, weight) {
  if (is.null(hyper)) return(list(mean = numeric(), sd = numeric()))
  mean <- drop(weight %*% hyper$values)
  list(mean = mean, sd = sqrt(drop(weight %*% (hyper$values - rep(mean, each = nrow(hyper$values)))^2)))
}

# of draws that belong to the given components: n x hyperparameters, NULL where there are none
hyper_draws <- function(posterior, component, key = posterior$key) {
  if (is.null(posterior$hyper)) return(NULL)
  hyper_values(posterior$hyper, draw_theta(posterior$hyper, posterior$weight, component, key))
}

# Many values of the hyperparameters alone, for their quantiles and densities: spread evenly instead of drawn, so that limits
# depend neither on a seed nor, through the key, on the last digit of the fit.
hyper_sample <- function(posterior, n = 10000L) {
  hyper <- posterior$hyper
  if (is.null(hyper)) return(NULL)
  u <- even_uniform(n, ncol(hyper$theta) + 1L)
  component <- components_at(posterior$weight, u[, 1L])
  hyper_values(hyper, theta_between(hyper, posterior$weight, component, stats::qnorm(u[, -1L, drop = FALSE])))
}

# A Kronecker sequence: n points that fill the unit cube of dimension d. The root of x^(d + 1) = x + 1 is the golden ratio of d.
even_uniform <- function(n, d) {
  ratio <- stats::uniroot(function(x) x^(d + 1) - x - 1, c(1, 2), tol = 1e-14)$root
  (0.5 + outer(seq_len(n), ratio^-seq_len(d))) %% 1
}

# P(. <= drawn), half where they are equal, for one draw
hyper_probability <- function(posterior, which, drawn) {
  if (!length(which)) return(numeric())
  sample <- hyper_sample(posterior)[, which, drop = FALSE]
  at <- rep(drawn[1L, colnames(sample)], each = nrow(sample))
  colMeans(sample < at) + colMeans(sample == at) / 2
}

hyper_quantiles <- function(posterior, which, p) {
  sample <- hyper_sample(posterior)[, which, drop = FALSE]
  t(matrix(apply(sample, 2L, stats::quantile, p, names = FALSE), length(p)))
}

# of one hyperparameter, from a sample
sample_marginal <- function(sample) {
  curve <- positive_curve(sample)
  list(density = stats::approxfun(curve$x, curve$density, yleft = 0, yright = 0), probability = stats::ecdf(sample),
       quantile = function(p) stats::quantile(sample, p, names = FALSE))
}

# A kernel density. That of a positive parameter is reflected at 0, where its mass ends.
positive_curve <- function(sample, points = 512L) {
  width <- 1.3 * stats::bw.nrd0(sample)
  if (min(sample) < 0) {
    curve <- stats::density(sample, bw = width, n = points)
    return(data.frame(x = curve$x, density = curve$y))
  }
  curve <- stats::density(c(sample, -sample), bw = width, n = points, from = 0, to = stats::quantile(sample, 0.999, names = FALSE))
  inside <- curve$x >= max(0, min(sample) - 2 * width)
  data.frame(x = curve$x, density = 2 * curve$y)[inside, ]
}

# ---- between the quadrature points -----------------------------------------------------------------------------

draw_theta <- function(hyper, weight, component, key) {
  noise <- t(draw_base(law_of(base_gaussian(), ncol(hyper$theta)), key, length(component), iteration = 1))
  theta_between(hyper, weight, component, noise)
}

theta_between <- function(hyper, weight, component, noise) {
  axes <- hyper_axes(hyper)
  z <- rule_record(hyper$rule)$between(hyper, axes, weight, component, noise)
  theta <- t(axes$centre + axes$root %*% t(z))
  dimnames(theta) <- NULL
  theta
}

# Coordinates in which the hyperparameters are near independent, those of the rule.
hyper_axes <- function(hyper) {
  root <- eigen(hyper$hessian, symmetric = TRUE)$vectors
  list(centre = hyper$mode, root = root, z = t(crossprod(root, t(hyper$theta) - hyper$mode)))
}

# Axis by axis: each value of a point's coordinate stands for an interval of the mass that the points have along that axis, and
# quantiles are interpolated in normal scores. Mean and sd along each axis remain the rule's.
between_lattice <- function(hyper, axes, weight, component, noise) {
  u <- stats::pnorm(noise)
  z <- vapply(seq_len(ncol(axes$z)), function(j) smooth_axis(axes$z[, j], weight, component, u[, j]), numeric(length(component)))
  matrix(z, length(component))
}

# Few points, far apart: drawn towards their mean and spread out again by normal draws, such that means and covariances
# in the design's coordinates remain those of the rule (West, 1993), then stretched on each side of each axis as
# the design was.
between_design <- function(hyper, axes, weight, component, noise, shrink = sqrt(0.5)) {
  z <- hyper$z
  H <- ncol(z)
  mean <- colSums(weight * z)
  away <- sweep(z, 2L, mean)
  C <- eigen(crossprod(sqrt(weight) * away), symmetric = TRUE)
  root <- C$vectors %*% diag(sqrt(pmax(C$values, 0)), H)
  n <- length(component)
  drawn <- rep(mean, each = n) + shrink * away[component, , drop = FALSE] + sqrt(1 - shrink^2) * noise %*% t(root)
  wide <- side_scales(z, axes$z)
  out <- drawn * rep(wide[, 1L], each = n)
  left <- drawn < 0
  out[left] <- (drawn * rep(wide[, 2L], each = n))[left]
  for (j in seq_len(H)) {   # the rule's mean and sd along the axis
    m <- sum(weight * axes$z[, j])
    s <- sqrt(sum(weight * (axes$z[, j] - m)^2))
    out[, j] <- m + (out[, j] - mean(out[, j])) * if (n > 100L) s / stats::sd(out[, j]) else 1
  }
  out
}

# how far a unit of the design's coordinate reaches, on the right and the left of each axis
side_scales <- function(z, reached) {
  t(vapply(seq_len(ncol(z)), function(j) {
    vapply(c(1, -1), function(side) {
      at <- which(sign(z[, j]) == side)
      if (length(at)) stats::median(reached[at, j] / z[at, j]) else 1
    }, 0)
  }, c(0, 0)))
}

smooth_axis <- function(z, weight, component, u) {
  value <- round(z, 8)
  used <- weight > 1e-10
  levels <- sort(unique(value[used]))
  mass <- vapply(levels, function(v) sum(weight[used & value == v]), 0)
  mass <- mass / sum(mass)
  if (length(levels) < 2L) return(rep(levels, length(component)))
  upper <- cumsum(mass)
  quantile <- axis_quantile(levels, mass)
  filled <- quantile(stats::qnorm(stats::ppoints(2001L)))
  mean <- sum(mass * levels)
  sd <- sqrt(sum(mass * (levels - mean)^2))
  at <- match(value[component], levels)
  at[is.na(at)] <- findInterval(value[component][is.na(at)], levels, all.inside = TRUE)
  inside <- upper[at] - mass[at] * (1 - u)
  mean + sd / stats::sd(filled) * (quantile(stats::qnorm(inside)) - mean(filled))
}

# The values along an axis as a function of normal scores. Masses at even steps are densities, whose logarithms a spline joins;
# else the scores of the middles of the masses.
axis_quantile <- function(levels, mass) {
  steps <- diff(levels)
  even <- length(levels) >= 5L && max(steps) < 1.0001 * min(steps)
  if (!even) return(stats::splinefun(stats::qnorm(cumsum(mass) - mass / 2), levels, method = "monoH.FC"))   # linear beyond the ends
  logs <- stats::splinefun(levels, log(mass), method = "natural")
  x <- seq(levels[1L] - 2 * steps[1L], levels[length(levels)] + 2 * steps[1L], length.out = 2001L)
  ends <- ifelse(x < levels[1L], mass[1L], ifelse(x > levels[length(levels)], mass[length(mass)], 1))
  density <- pmin(exp(logs(x)), ends)   # beyond the ends it does not rise
  upper <- cumsum(density) - density / 2
  inside <- upper > 1e-12 * sum(density) & upper < (1 - 1e-12) * sum(density)
  stats::splinefun(stats::qnorm(upper[inside] / sum(density)), x[inside], method = "monoH.FC")
}

# ---- on their natural scale ---------------------------------------------------------------------------------------

# Hyperparameters of terms and family (columns) at each theta (rows), by name.
natural_columns <- function(terms, layout, theta) {
  columns <- if (length(terms)) do.call(c, unname(Map(function(term, slot) {
    term_record(term)$natural(term, theta[, slot$theta, drop = FALSE])
  }, terms, layout$terms)))
  family <- own_hyper(layout)
  own <- if (!is.null(family)) family$natural(theta[, layout$family, drop = FALSE])
  names <- c(names(columns), if (length(own)) family$names)
  matrix(c(numeric(), unlist(columns, use.names = FALSE), own), nrow(theta), dimnames = list(NULL, names))
}

# ---- their prior at draws ----------------------------------------------------------------------------------

# Log prior densities of the terms' hyperparameters and of the family's, at n draws of posterior_draws(): those on the scale without
# bounds over the Jacobian. NULL where there are none.
hyper_log_priors <- function(posterior, n, key, aux) {
  hyper <- posterior$hyper
  if (is.null(hyper)) return(NULL)
  theta <- draw_theta(hyper, posterior$weight, draw_components(posterior$weight, n, key), key)
  layout <- hyper$layout
  rows <- function(at, f) vapply(seq_len(nrow(theta)), function(i) f(theta[i, at]), 0)
  terms <- Map(function(term, slot) {
    record <- term_record(term)
    natural <- function(theta) do.call(cbind, record$natural(term, theta))
    rows(slot$theta, function(at) record$log_prior(term, at)$value) - log_jacobian(natural, theta[, slot$theta, drop = FALSE])
  }, hyper$terms, layout$terms)
  own <- if (length(layout$family)) {
    record <- hyper_of(layout)
    priors <- stats::setNames(rep(list(aux), length(record$names)), record$names)
    rows(layout$family, function(at) record$log_prior(priors, at)$value) -
      log_jacobian(function(theta) as.matrix(record$natural(theta)), theta[, layout$family, drop = FALSE])
  }
  Filter(Negate(is.null), list(prior_sd = if (length(terms)) Reduce(`+`, terms), prior_aux = own))
}

# log |d natural / d theta| for each row of theta, by differences. 0 where there are more parameters than numbers behind them.
log_jacobian <- function(natural, theta, h = 1e-4) {
  H <- ncol(theta)
  if (ncol(natural(theta)) != H) return(numeric(nrow(theta)))
  slopes <- lapply(seq_len(H), function(j) {
    by <- rep(h * (seq_len(H) == j), each = nrow(theta))
    (natural(theta + by) - natural(theta - by)) / (2 * h)
  })
  if (H == 1L) return(log(abs(slopes[[1L]][, 1L])))
  vapply(seq_len(nrow(theta)), function(i) {
    as.double(determinant(vapply(slopes, function(s) s[i, ], numeric(H)))$modulus)
  }, 0)
}
