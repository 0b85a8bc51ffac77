# The posterior of a fit: what a solver returns, and all that methods read. It has K >= 1 weighted elliptic components
#
#   location   d x K, their means, in the coordinates of the solver
#   roots      their roots: a list, or what root_at() takes
#   weight     K numbers that add to 1
#   base       their common base
#
# which are one for a plain fit, one per quadrature point over hyperparameters, one per mode of a stack. Where there are any:
#
#   hyper      hyperparameters at each component (posterior-hyper.R)
#   points     importance-weighted points that correct the components (posterior-points.R)
#   margins    corrected means, covariance and margins of the coefficients (posterior-margins.R)
#   effects    corrected margins of group-level effects given the coefficients (posterior-effects.R)
#   gaussian_because  in words, why coefficients have no corrected margins, where they may need them
#   weighted   are draws of these compared with the target (posterior-weights.R)?
#
# and what its parameters are to the user:
#
#   names      of the d parameters, then of the hyperparameters
#   shift      what intercepts lack to be those of predictors that are not centred: list(at, by), of the one at at[k] sum(by[k, ] * x)
#   logged     place of a parameter whose exponential is shown, 0 for none
#   coefficients  places of the regression's coefficients
#   key        of its draws
#
# "In user coordinates" means with the intercept shifted; the logged parameter is still a logarithm there. "Shown" means as tables
# have it.

new_posterior <- function(base, location, roots, weight = 1, names, shown = names, shift = NULL, logged = 0L,
                          coefficients = seq_along(names), hyper = NULL, points = NULL, margins = NULL, effects = NULL, key) {
  structure(list(base = base, location = location, roots = roots, weight = weight, names = names,
                 shown = c(shown, colnames(hyper$values)), shift = as_shift(shift), logged = logged, coefficients = coefficients,
                 hyper = hyper, points = points, margins = margins, effects = effects, key = key),
            class = "elvi_posterior")
}

# of one intercept, the first coefficient, a vector says enough
as_shift <- function(shift) if (is.numeric(shift)) list(at = 1L, by = matrix(shift, 1L)) else shift

# with nothing for further parameters
wider_shift <- function(shift, d) {
  if (!is.null(shift)) shift$by <- cbind(shift$by, matrix(0, nrow(shift$by), d - ncol(shift$by)))
  shift
}

# of some parameters only
narrower_shift <- function(shift, which) {
  if (!is.null(shift)) shift$by <- shift$by[, which, drop = FALSE]
  shift
}

posterior_dim <- function(posterior) nrow(posterior$location)

posterior_law <- function(posterior) law_of(posterior$base, posterior_dim(posterior))

# the root of component k
root_at <- function(roots, k) UseMethod("root_at")

#' @export
root_at.default <- function(roots, k) roots[[k]]

without_points <- function(posterior) {
  posterior["points"] <- list(NULL)
  posterior
}

# the approximation itself
uncorrected <- function(posterior) {
  posterior[c("points", "margins", "effects", "weighted", "gaussian_because")] <- list(NULL)
  posterior
}

is_corrected <- function(posterior) !is.null(posterior$points)

# The component of a posterior that has no other, list(location, root); NULL where there are more or weighted points correct it.
sole_component <- function(posterior) {
  if (is_corrected(posterior) || length(posterior$weight) > 1L) return(NULL)
  list(location = posterior$location[, 1L], root = root_at(posterior$roots, 1L))
}

# ---- user coordinates -----------------------------------------------------------------------------------------

# points are the columns of x
uncentre_points <- function(posterior, x) {
  shift <- posterior$shift
  if (!is.null(shift)) x[shift$at, ] <- x[shift$at, , drop = FALSE] + shift$by %*% x
  x
}

# and back
centre_points <- function(posterior, x) {
  shift <- posterior$shift
  for (k in seq_along(shift$at)) {
    at <- shift$at[k]
    x[at, ] <- (x[at, ] - drop(shift$by[k, -at] %*% x[-at, , drop = FALSE])) / (1 + shift$by[k, at])
  }
  x
}

# rows w' of user coordinates as rows of the solver's; W may have fewer columns than there are parameters
centre_rows <- function(posterior, W) {
  d <- posterior_dim(posterior)
  if (ncol(W) < d) W <- cbind(W, matrix(0, nrow(W), d - ncol(W)))
  shift <- posterior$shift
  for (k in seq_along(shift$at)) {
    moved <- which(shift$by[k, ] != 0)
    if (length(moved)) W[, moved] <- W[, moved, drop = FALSE] + outer(W[, shift$at[k]], shift$by[k, moved])
  }
  W
}

# ---- moments ---------------------------------------------------------------------------------------------------

# means and standard deviations of the parameters at each component: d x K, user coordinates
component_moments <- function(posterior) {
  K <- length(posterior$weight)
  mean <- uncentre_points(posterior, posterior$location)
  sd <- matrix(vapply(seq_len(K), function(k) unname(root_sd(root_at(posterior$roots, k))), numeric(nrow(mean))), nrow(mean))
  for (at in posterior$shift$at) {
    row <- centre_rows(posterior, matrix(replace(numeric(nrow(mean)), at, 1), 1L))
    sd[at, ] <- vapply(seq_len(K), function(k) sqrt(sum(root_rows(root_at(posterior$roots, k), row)^2)), 0)
  }
  if (!is_reshaped(posterior)) return(list(mean = mean, sd = sd))
  moved <- moved_moments(posterior, sd)
  list(mean = mean + moved$mean, sd = sqrt(pmax(sd^2 + moved$variance, 0)))
}

# mean and standard deviation of each row of a mixture's means and standard deviations, rows x components
mix_moments <- function(at, weight) {
  mean <- drop(at$mean %*% weight)
  list(mean = mean, sd = sqrt(drop((at$sd^2 + (at$mean - mean)^2) %*% weight)))
}

# of everything as shown: hyperparameters too, and a logged parameter itself
posterior_moments <- function(posterior) {
  if (is_corrected(posterior)) {
    moments <- posterior$points$moments
    out <- list(mean = unname(moments$mean), sd = unname(sqrt(points_variance(posterior))))
  } else {
    out <- mix_moments(component_moments(posterior), posterior$weight)
    hyper <- hyper_moments(posterior$hyper, posterior$weight)
    out <- list(mean = c(out$mean, hyper$mean), sd = c(out$sd, hyper$sd))
  }
  if (posterior$logged) {
    j <- posterior$logged
    shown <- exponential_moments(posterior_law(posterior), out$mean[j], out$sd[j])
    out$mean[j] <- shown[1L]
    out$sd[j] <- shown[2L]
  }
  lapply(out, stats::setNames, posterior$shown)
}

# means of the parameters in user coordinates: that of a logged one is of its logarithm
parameter_means <- function(posterior) {
  mean <- if (is_corrected(posterior)) posterior$points$moments$mean else mix_moments(component_moments(posterior), posterior$weight)$mean
  stats::setNames(mean, posterior$names)
}

# of a parameter as shown, at each component: its own value for a hyperparameter, the mean of all for others
component_values <- function(posterior, name) {
  at <- component_hyper(posterior)
  if (name %in% colnames(at)) at[, name] else rep(posterior_moments(posterior)$mean[[name]], length(posterior$weight))
}

# mean and standard deviation of exp(mean + sd z), infinite under tails that are too heavy for them
exponential_moments <- function(law, mean, sd) {
  limit <- exponential_limit(law)
  if (limit <= sd) return(c(Inf, Inf))
  rule <- composite_rule(law, width = 0.5, growth = 1.5, grade = 8L)
  weights <- c(rule$w, rule$w)
  values <- exp(sd * c(rule$z, -rule$z))
  average <- sum(weights * values)
  exp(mean) * c(average, if (limit <= 2 * sd) Inf else sqrt(sum(weights * (values - average)^2)))
}

# Covariance in user coordinates of parameters `which`, hyperparameters among them. No d x d matrix is made for a few.
posterior_covariance <- function(posterior, which = NULL) {
  d <- posterior_dim(posterior)
  names <- c(posterior$names, posterior$shown[-seq_len(d)])
  which <- which %||% seq_along(names)
  if (is_corrected(posterior)) return(points_covariance(posterior, which))
  inside <- which <= d
  V <- matrix(0, length(which), length(which), dimnames = list(names[which], names[which]))
  W <- unit_rows(posterior, which[inside])
  for (k in seq_along(posterior$weight)) {
    A <- root_rows(root_at(posterior$roots, k), W)
    V[inside, inside] <- V[inside, inside] + posterior$weight[k] * (tcrossprod(A) + moved_covariance(posterior, k, A))
  }
  if (length(posterior$weight) > 1L) {
    at <- component_moments(posterior)$mean
    if (!is.null(posterior$hyper)) at <- rbind(at, t(posterior$hyper$values))
    at <- at[which, , drop = FALSE]
    away <- at - drop(at %*% posterior$weight)
    V <- V + away %*% (posterior$weight * t(away))
  }
  V
}

# A symmetric root of the covariance. That of one component is made of its root, which is more accurate than its square.
posterior_root <- function(posterior) {
  one <- if (is.null(posterior$hyper)) sole_component(posterior)
  if (!is.null(one)) {
    names <- posterior$names
    return(structure(symmetric_root(uncentre_points(posterior, root_matrix(one$root))), dimnames = list(names, names)))
  }
  V <- posterior_covariance(posterior)
  e <- eigen(V, symmetric = TRUE)
  structure(e$vectors %*% (sqrt(pmax(e$values, 0)) * t(e$vectors)), dimnames = dimnames(V))
}

unit_rows <- function(posterior, which) {
  W <- matrix(0, length(which), posterior_dim(posterior))
  W[cbind(seq_along(which), which)] <- 1
  centre_rows(posterior, W)
}

# ---- linear functions -------------------------------------------------------------------------------------------

# Mean and standard deviation, rows x components, of W x for rows W of user coordinates (dense or sparse). NA where a row has NA.
posterior_linear <- function(posterior, W, chunk = 256L, components = seq_along(posterior$weight)) {
  complete <- which(is.finite(Matrix::rowSums(W)))
  mean <- sd <- matrix(NA_real_, nrow(W), length(components))
  if (!is_reshaped(posterior) && length(complete)) {
    centred <- centre_rows(posterior, if (length(complete) < nrow(W)) W[complete, , drop = FALSE] else W)
    mean[complete, ] <- as.matrix(centred %*% posterior$location[, components, drop = FALSE])
    sd[complete, ] <- sqrt(roots_variances(posterior$roots, centred, components))
    return(list(mean = mean, sd = sd))
  }
  for (rows in split(complete, (seq_along(complete) - 1L) %/% chunk)) {
    centred <- centre_rows(posterior, W[rows, , drop = FALSE])
    mean[rows, ] <- as.matrix(centred %*% posterior$location[, components, drop = FALSE])
    for (i in seq_along(components)) {
      A <- root_rows(root_at(posterior$roots, components[i]), centred)
      moved <- moved_linear(posterior, components[i], A)
      mean[rows, i] <- mean[rows, i] + moved$mean
      sd[rows, i] <- sqrt(pmax(rowSums(A^2) + moved$variance, 0))
    }
  }
  list(mean = mean, sd = sd)
}

# ---- marginals ----------------------------------------------------------------------------------------------------

# One row for each of the parameters `which` as shown, one column for each probability.
posterior_quantiles <- function(posterior, which, p) {
  if (is_corrected(posterior)) return(show_rows(posterior, which, points_quantiles(posterior, which, p)))
  d <- posterior_dim(posterior)
  out <- matrix(0, length(which), length(p))
  inside <- which <= d
  if (any(inside)) {
    at <- lapply(component_moments(posterior), function(m) m[which[inside], , drop = FALSE])
    out[inside, ] <- mixture_quantiles(at$mean, at$sd, posterior$weight, posterior_law(posterior), p,
                                       margin_shapes(posterior, which[inside]))
  }
  if (any(!inside)) out[!inside, ] <- hyper_quantiles(posterior, which[!inside] - d, p)
  show_rows(posterior, which, out)
}

# rows of numbers in user coordinates, as shown
show_rows <- function(posterior, which, rows) {
  logged <- which == posterior$logged
  rows[logged, ] <- exp(rows[logged, ])
  rows
}

# Quantiles of mixtures, one row of means and standard deviations per mixture: all by bisection at once. `shapes` has
# standardised quantiles of each, where components are not those of the law itself.
mixture_quantiles <- function(mu, sd, weight, law, p, shapes = NULL) {
  z <- marginal_quantile(law, p)
  if (length(weight) == 1L) {
    z <- matrix(rep(z, each = nrow(mu)), nrow(mu))
    return(drop(mu) + drop(sd) * if (is.null(shapes)) z else value_at_score(shapes$each[[1L]], z))
  }
  score <- if (is.null(shapes)) identity else scores_of_components(shapes)
  edge <- 2 * max(abs(z)) + 1e-3
  out <- matrix(0, nrow(mu), length(p))
  for (j in seq_along(p)) {
    low <- apply(mu - edge * sd, 1L, min)
    high <- apply(mu + edge * sd, 1L, max)
    for (step in seq_len(60L)) {
      middle <- (low + high) / 2
      z <- score((middle - mu) / sd)
      below <- drop(matrix(marginal_probability(law, z), nrow(mu)) %*% weight) < p[j]
      low[below] <- middle[below]
      high[!below] <- middle[!below]
    }
    out[, j] <- (low + high) / 2
  }
  out
}

# P(parameter <= drawn) for one draw of posterior_draws(), whose parameters are in user coordinates: one for each of `which`
posterior_probability <- function(posterior, which, drawn) {
  d <- posterior_dim(posterior)
  inside <- which <= d
  out <- numeric(length(which))
  out[inside] <- parameter_probability(posterior, which[inside], drawn$x[which[inside]])
  out[!inside] <- hyper_probability(posterior, which[!inside] - d, drawn$hyper)
  out
}

parameter_probability <- function(posterior, which, value) {
  if (!length(which)) return(numeric())
  if (is_corrected(posterior)) return(points_probability(posterior, function(x) x[which, , drop = FALSE], value))
  at <- lapply(component_moments(posterior), function(m) m[which, , drop = FALSE])
  mixture_probability(posterior, at, value, margin_shapes(posterior, which))
}

# P(w'x + offset <= value) for rows w of W. `at` has their means, sds and shapes at the components, and is evaluated for these only.
linear_probability <- function(posterior, W, offset, value, at) {
  if (!is_corrected(posterior)) return(mixture_probability(posterior, at, value, at$shapes))
  points_probability(posterior, function(x) W %*% x[seq_len(ncol(W)), , drop = FALSE] + offset, value)
}

# one for each row of means and standard deviations at the components; see mixture_quantiles()
mixture_probability <- function(posterior, at, value, shapes) {
  z <- (value - at$mean) / at$sd
  if (!is.null(shapes)) z <- scores_of_components(shapes)(z)
  drop(matrix(marginal_probability(posterior_law(posterior), z), nrow(at$mean)) %*% posterior$weight)
}

# Density, distribution and quantile function of parameter j as shown, without the correction by importance weights.
posterior_marginal <- function(posterior, j) {
  d <- posterior_dim(posterior)
  if (j > d) return(sample_marginal(hyper_sample(posterior)[, j - d]))
  at <- lapply(component_moments(posterior), function(m) m[j, ])
  law <- posterior_law(posterior)
  weight <- posterior$weight
  scale <- if (j == posterior$logged) log_scale else own_scale
  if (is_reshaped(posterior)) return(margin_marginal(posterior, j, at))
  mixed <- function(f) Reduce(`+`, Map(function(mean, sd, w) w * f(mean, sd), at$mean, at$sd, weight))
  list(
    density = function(x) mixed(function(mean, sd) {
      z <- abs(scale$from(x) - mean) / sd
      out <- numeric(length(z))
      finite <- is.finite(z)
      out[finite] <- marginal_density(law, pmax(z[finite], 1e-12)) / sd * scale$slope(x[finite])
      out
    }),
    probability = function(x) mixed(function(mean, sd) marginal_probability(law, (scale$from(x) - mean) / sd)),
    quantile = function(p) {
      reach <- support_edge(law) * at$sd
      out <- as.double(ifelse(p > 0, max(at$mean + reach), min(at$mean - reach)))
      inside <- p > 0 & p < 1
      if (any(inside)) out[inside] <- mixture_quantiles(t(at$mean), t(at$sd), weight, law, p[inside])
      scale$to(out)
    })
}

# The scale on which a marginal is that of the base: to it, back, and the derivative of the way to it.
own_scale <- list(from = identity, to = identity, slope = function(x) 1)
log_scale <- list(from = function(x) log(pmax(x, 0)), to = exp, slope = function(x) 1 / x)

# Points of the density of parameter j as shown, for a curve.
posterior_curve <- function(posterior, j) {
  if (is_corrected(posterior)) return(points_curve(posterior, j))
  if (j > posterior_dim(posterior)) return(positive_curve(hyper_sample(posterior)[, j - posterior_dim(posterior)]))
  at <- mix_moments(lapply(component_moments(posterior), function(m) m[j, , drop = FALSE]), posterior$weight)
  edge <- min(4, support_edge(posterior_law(posterior)))
  x <- at$mean + at$sd * seq(-edge, edge, length.out = 81L)
  if (j == posterior$logged) x <- exp(x)
  data.frame(x = x, density = posterior_marginal(posterior, j)$density(x))
}

# ---- draws ----------------------------------------------------------------------------------------------------------

# n draws: list(x: n x d in user coordinates, hyper: n x hyperparameters, or NULL). Draw i is a function of the key and of i, so the
# rows of two calls belong together, and a shorter call gives the first rows of a longer one.
posterior_draws <- function(posterior, n, key = posterior$key) {
  if (is_corrected(posterior)) return(points_draws(posterior, n, key))
  if (has_target(posterior)) {
    warmup <- 64L
    proposals <- component_draws(posterior, n + warmup, key)
    return(list(x = metropolis_draws(posterior, proposals$x, key, warmup)$x, hyper = NULL))
  }
  drawn <- component_draws(posterior, n, key)
  x <- if (is_weighted(posterior)) component_metropolis(posterior, drawn, key) else drawn$x
  list(x = x, hyper = hyper_draws(posterior, drawn$component, key))
}

# draws of what corrections have made of the approximation; NULL where there are none
corrected_draws <- function(posterior, n, key = posterior$key) {
  if (is_corrected(posterior) || is_reshaped(posterior)) posterior_draws(posterior, n, key)
}

# The attribute "log_q" of corrected draws is their log density given the component, up to a constant. Made in blocks of one size,
# because the rounding of a matrix product depends on its size in some BLAS libraries.
component_draws <- function(posterior, n, key) {
  size <- max(16, min(256, 2^20 %/% posterior_dim(posterior)))
  first <- seq(0, n - 1, by = size)
  component <- draw_components(posterior$weight, size * length(first), key)
  x <- lapply(first, function(from) {
    z <- draw_base(posterior_law(posterior), key, size, first = from)
    of <- component[from + seq_len(size)]
    if (!is_reshaped(posterior)) return(in_user_rows(posterior, component_points(posterior, z, of)))
    points <- if (is_weighted(posterior)) widened(z, from + seq_len(size)) else unweighted(z)
    moved <- corrected_points(posterior, points$z, of)
    structure(in_user_rows(posterior, component_points(posterior, moved$z, of)), log_q = points$log_q - moved$log_slope,
              z = if (is_weighted(posterior)) moved$z)
  })
  keep <- seq_len(n)
  log_q <- unlist(lapply(x, attr, "log_q"))
  z <- do.call(cbind, lapply(x, attr, "z"))
  list(x = structure(do.call(rbind, x)[keep, , drop = FALSE], log_q = log_q[keep]), component = component[keep],
       z = z[, keep, drop = FALSE])
}

# z, in columns, as points of the components, in the coordinates of the solver
component_points <- function(posterior, z, component) {
  for (k in unique(component)) {
    at <- component == k
    z[, at] <- posterior$location[, k] + root_times(root_at(posterior$roots, k), z[, at, drop = FALSE])
  }
  z
}

in_user_rows <- function(posterior, x) {
  x <- t(uncentre_points(posterior, x))
  colnames(x) <- posterior$names
  x
}

# Multiples of the golden ratio fill (0, 1) evenly, however many there are: every component gets its share.
draw_components <- function(weight, n, key) {
  if (length(weight) == 1L) return(rep(1L, n))
  components_at(weight, (key[1L] / 2^32 + seq_len(n) * (sqrt(5) - 1) / 2) %% 1)
}

# the components whose shares of the cumulated weight have the points u in them
components_at <- function(weight, u) {
  upper <- cumsum(weight)
  pmin(findInterval(u, upper / upper[length(upper)]) + 1L, length(upper))
}

# standard normal points with their log density
unweighted <- function(z) list(z = z, log_q = -colSums(z^2) / 2)

# a parameter as shown, at draws of posterior_draws()
drawn_values <- function(posterior, drawn, name) cbind(show_draws(posterior, drawn$x), drawn$hyper)[, name]

# draws in user coordinates, as shown
show_draws <- function(posterior, x) {
  if (posterior$logged) x[, posterior$logged] <- exp(x[, posterior$logged])
  colnames(x) <- posterior$shown[seq_len(ncol(x))]
  x
}

# n points in the coordinates of the solver, one per column, with their log density: independent draws for importance sampling. NULL
# with hyperparameters, whose density between the quadrature points is not known.
posterior_propose <- function(posterior, n, key, iteration = 0) {
  if (!is.null(posterior$hyper)) return(NULL)
  law <- posterior_law(posterior)
  z <- draw_base(law, key, n, iteration = iteration)
  if (length(posterior$weight) == 1L) {
    root <- root_at(posterior$roots, 1L)
    return(list(x = posterior$location[, 1L] + root_times(root, z),
                log_q = law$log_constant + law$log_phi(sqrt(colSums(z^2))) - root_log_det(root)))
  }
  x <- component_points(posterior, z, keyed_parts(posterior$weight, n, key, iteration))
  list(x = x, log_q = posterior_log_density(posterior, x))
}

# at points of the coordinates of the solver, one per column
posterior_log_density <- function(posterior, x) {
  law <- posterior_law(posterior)
  each <- vapply(seq_along(posterior$weight), function(k) {
    root <- root_at(posterior$roots, k)
    z <- root_solve(root, x - posterior$location[, k])
    log(posterior$weight[k]) + law$log_phi(sqrt(colSums(z^2))) - root_log_det(root)
  }, numeric(ncol(x)))
  each <- matrix(each, ncol(x))
  top <- row_max(each)
  law$log_constant + top + log(rowSums(exp(each - top)))
}

row_max <- function(m) m[cbind(seq_len(nrow(m)), max.col(m, "first"))]

# to which component each of n draws belongs, by a keyed number of its own
keyed_parts <- function(weights, n, key, iteration) {
  u <- stats::pnorm(drop(draw_base(law_of(base_gaussian(), 1), key, n, iteration = iteration + streams[["component"]])))
  pmin(findInterval(u, cumsum(weights), rightmost.closed = TRUE) + 1L, length(weights))
}
