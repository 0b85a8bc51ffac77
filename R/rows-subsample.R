# Steps of the stochastic algorithm that use some of the rows only. With g the gradient of f over all rows at the
# start x0 of the run, g + (n / m) sum over m rows of (l_i'(x) - l_i'(x0)), plus what the prior changes, is unbiased, and
# its noise is small near x0. The rows of an iteration are a function of the run's key and of the iteration.

check_rows_per_step <- function(model, control) {
  m <- control$rows_per_step
  if (is.null(m)) return(invisible())
  if (!is_regression(model)) unused_argument("rows_per_step", "this model is not a regression with rows")
  if (is_chunked(model$rows) && !draws_rows(model$rows$source)) {
    unused_argument("rows_per_step", "a source that is read in order does not become faster by it")
  }
}

subsamples <- function(fit) {
  m <- fit$given$control$rows_per_step
  !is.null(m) && m < fit$given$model$rows$n
}

# the start in the model's coordinates, and the gradient of all rows there
anchor_of <- function(model, work, control, start) {
  if (is.null(control$rows_per_step)) return(NULL)
  x <- to_user(work, control$scale, start$mu, start$scale)$mu
  list(x = as.double(x), gradient = as.double(target_at(model, matrix(x))$gradient))
}

# The model of a run in its next iterations: that itself, or one whose gradients see the rows of one iteration; and of data
# larger than memory one that makes its draws where the rows are.
iteration_model <- function(work, fit, law) {
  model <- fit$given$model
  if (!subsamples(fit) && !is_chunked(model$rows)) return(work)
  inner <- if (subsamples(fit)) next_subsample(fit) else model
  if (is_chunked(model$rows)) inner$gather <- gathering(model, inner$over_draws, fit$plan$seed, law)
  coordinates_of(work)$with_inner(work, inner)
}

next_subsample <- function(fit) {
  subsampled_model(fit$given$model, fit$plan$anchor, fit$given$control$rows_per_step,
                   (fit$plan$seed[1L] + 2654435761 * (fit$state$k + 1)) %% 2^32)
}

subsampled_model <- function(model, anchor, m, key) {
  prior <- prior_part(model)
  at_anchor <- matrix(anchor$x)
  before <- as.double(.Call(elvi_r_evaluate, prior, at_anchor, 1L)$gradient)
  rest <- function(x) .Call(elvi_r_evaluate, prior, x, 1L)$gradient - before + anchor$gradient
  gradient <- function(x) {
    x <- matrix(x, model$dim)
    change <- subsample_gradient(model, cbind(at_anchor, x), m, key)
    as.double(rest(x) + (change[, -1L, drop = FALSE] - change[, 1L]))
  }
  over_draws <- function(draws) {
    args <- list(draws = draws, anchor = at_anchor, key = key, fraction = m / model$rows$n)
    sums_over_draws(draws, rest) + pass_of(model, "subsample_draws", args)
  }
  new_model("density", dim = model$dim, names = model$names, value = function(x) as.double(target_at(model, matrix(x, model$dim))$value),
            gradient = gradient, pointer = NULL, over_draws = over_draws)
}

# of the likelihood, from about m rows, at the columns of x
subsample_gradient <- function(model, x, m, key) {
  pass_of(model, "subsample", list(x = x, key = key, fraction = m / model$rows$n))
}

# The likelihood of some rows of a model. Each shard, which has sums of its own, draws others.
subsampled_likelihood <- function(model, args) {
  key <- args$key
  if (!is.null(model$check)) key <- (key + floor(2^32 * (sum(model$check * sqrt(2:5)) %% 1))) %% 2^32
  c(likelihood_part(model), list(rows = some_rows(model$rows, key, args$fraction)))
}

# A fraction of the rows, drawn by the key, that count for all of them.
some_rows <- function(rows, key, fraction) {
  n <- length(rows$y)
  m <- max(1, min(n, round(fraction * n)))
  i <- sort(with_key(key, sample.int(n, m)))
  rows$X <- if (is_sparse(rows$X)) sparse_subset(rows$X, i) else rows$X[i, , drop = FALSE]
  rows[c("y", "offset")] <- list(rows$y[i], rows$offset[i])
  rows$weight <- rows$weight[i] * (n / m)
  rows$n <- m
  rows
}

# rows i of a matrix by rows
sparse_subset <- function(X, i) {
  lengths <- diff(X$start)[i]
  at <- sequence(lengths, X$start[i] + 1L)
  list(start = c(0L, cumsum(lengths)), column = X$column[at], entry = X$entry[at], dim = c(length(i), X$dim[2L]), names = X$names)
}
