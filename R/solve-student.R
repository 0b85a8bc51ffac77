# Corrected posteriors of regressions with student priors, which profiles in C do not support. With few coefficients they are corrected
# by weighted points, which are adapted to the posterior in rounds. posterior-weights.R uses such points.

# Points of a round, for one dimension; twice as many for two, up to 16 times as many.
adapting_points <- c(256L, 1024L, 8192L)

# Degrees of freedom of the points: tails are longer than those of the priors, whose variances rest on few points else.
adapting_df <- 1.5

# shares of effective points, at the end, that are needed
least_adapted_share <- 0.1

correct_student <- function(posterior, model, optimum) {
  which <- posterior$coefficients
  if (!optimum$converged || !scale_of(optimum$kind)$full || !posterior_law(posterior)$independent) return(posterior)
  if (length(which) > most_refined) return(left_gaussian(posterior, paste("student priors of more than", most_refined, "coefficients")))
  if (!is_weighed_by_points(model)) return(left_gaussian(posterior, "many rows and student priors"))
  model <- in_memory(model)
  if (is.null(model)) return(left_gaussian(posterior, "student priors and sparse rows"))
  target <- exact_target(with_normal_priors(model, optimum), optimum)
  corrected <- begin_margins(posterior, target, model)
  if (!student_points_object(corrected)) return(posterior)
  margins <- adapted_margins(corrected)
  if (is.null(margins)) return(left_gaussian(posterior, "importance weights of its draws are too uneven"))
  end_margins(corrected, list(margins))
}

is_weighed_by_points <- function(model) {
  rows <- as.double(model$rows$n %||% length(model$rows$y))
  design_size(model) <= most_profiled && !is_sparse_design(model) && rows * 2000 <= most_refining_rows
}

is_sparse_design <- function(model) !is_chunked(model$rows) && !has_dense_rows(model$rows)

# The same model with the normal priors whose curvatures are those that the student priors have at the optimum, on average.
with_normal_priors <- function(model, optimum) {
  prior <- model$blocks$coefficients
  rule <- hermite_levels(64L, Inf)[[1L]]
  sd <- sqrt(rowSums(root_matrix(optimum$scale)^2))
  for (j in which(is_student(prior))) {
    u <- optimum$mu[j] - prior$centre[j] + sd[j] * c(rule$z, -rule$z)
    scaled <- prior$precision[j] * u^2 / prior$df[j]
    curvature <- sum(c(rule$w, rule$w) * (1 - scaled) / (1 + scaled)^2) * prior$precision[j] * (prior$df[j] + 1) / prior$df[j]
    prior$precision[j] <- max(curvature, 1e-3 * prior$precision[j])
  }
  prior$df[] <- Inf
  model$blocks$coefficients <- prior
  model
}

# log ratios of the target at the columns of y, whitened coordinates of the coefficients
log_target_at <- function(posterior, y) conditional_density(posterior, 1L, white_coordinates(posterior, 1L) %*% y)

# Do a few weighted points of the gaussian show that it is wrong?
student_points_object <- function(posterior) {
  points <- paired_points(posterior, 1024L, refining_share)
  is_off(list(z = points$z, log_ratios = conditional_density(posterior, 1L, points$z) - points$log_q,
              log_own = -colSums(points$z^2) / 2 - points$log_q))
}

# Margins by student points whose mean and covariance are those of the weighted points of the round before.
adapted_margins <- function(posterior) {
  d <- posterior_dim(posterior)
  at <- list(mean = numeric(d), root = diag(1.5, d))
  rows <- target_of(posterior)$plan$rows
  for (number in adapting_points) {
    n <- 2L * as.integer(min(number * 2^min(d - 1, 4), most_refining_rows %/% rows) %/% 2)
    drawn <- student_points(n, d, at)
    log_w <- log_target_at(posterior, drawn$y) - drawn$log_q
    w <- normalised(log_w)
    mean <- drop(drawn$y %*% w)
    C <- (drawn$y - mean) %*% (w * t(drawn$y - mean))
    root <- or_null(t(chol(C)))
    if (is.null(root)) return(NULL)
    at <- list(mean = mean, root = root)
  }
  if (1 / sum(w^2) < least_adapted_share * n) return(NULL)
  margin_of_points(posterior, 1L, drawn$y, w, mean, C, weighted_shapes((drawn$y - mean) / sqrt(diag(C)), w))
}

# n points of a student distribution in d dimensions, spread evenly and in pairs, with their log density
student_points <- function(n, d, at, df = adapting_df) {
  u <- t(even_uniform(n %/% 2L, d + 1L))
  z <- stats::qnorm(u[seq_len(d), , drop = FALSE]) * rep(sqrt(df / stats::qchisq(u[d + 1L, ], df)), each = d)
  z <- cbind(z, -z)
  list(y = at$mean + at$root %*% z, log_q = -(df + d) / 2 * log1p(colSums(z^2) / df) - sum(log(diag(at$root))))
}
