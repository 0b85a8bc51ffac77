#' Regression models from matrices
#'
#' `model_glm()` makes a model for [elvi()] from a design matrix and a response, without a formula. Use it when you build the design
#' matrix yourself, for large sparse designs, or for the theory.
#'
#' The model is the target `f(x) = -log p(y | x) - log p(x)`, up to a constant. Its smoothness constant `L` bounds the curvature
#' of `f`. It is the largest eigenvalue of the curvature of the prior plus `X' W X`. The curvature of the prior is `1 / scale^2`
#' for a normal prior and `(df + 1) / (df scale^2)` for a student one. `W` bounds the curvature of the likelihood: 1/4 per trial
#' for the logit link, 1 for the probit link, 1/dispersion for the gaussian family. A matrix-free Lanczos iteration finds the
#' eigenvalue. The poisson likelihood, the cloglog link and models with an auxiliary parameter have no such bound: `L` is `NA`,
#' and [elvi()] estimates one at the approximation.
#'
#' @section Auxiliary parameters:
#' `gaussian()` with `dispersion = NULL` and `robust()` have an unknown residual
#' scale `sigma`, `neg_binomial_2()` an unknown size `phi` (the variance is `mu +
#' mu^2 / phi`), `Gamma()` with `dispersion = NULL` an unknown `shape` (the variance is `mu^2 / shape`),
#' `inverse.gaussian()` an unknown `lambda` (the variance is `mu^3 / lambda`), [weibull()] an unknown `shape` and
#' [Beta()] an unknown `phi` (the variance is `mu (1 - mu) / (1 + phi)`). Its logarithm is the last parameter of the
#' model, such as `log_sigma`, and `prior_aux` is the prior of the parameter itself. These
#' models are not convex and have no exact objective. From a formula [elvi()] integrates over the parameter instead. Fits show the
#' parameter itself, see [elvi_fit].
#'
#' @param X numeric design matrix, one row per observation, or a source of [data larger than memory][rows_elsewhere], whose
#'   chunks have `X`, `y`, `weights`, `frequency` and `offset`. Add a column of ones for an intercept. A sparse matrix of
#'   package 'Matrix' stays sparse. With more than 2,000 sparse columns and normal priors the exact solver keeps the scale as a
#'   sparse factor, see [elvi_optimum()].
#' @param y response, left out with a source. For `binomial()`: 0/1, logical, a factor with two levels
#'   (the second is the success), a two-column matrix of successes and failures,
#'   or proportions of successes with the numbers of trials as `weights`. For `poisson()` and `neg_binomial_2()`: counts. For `gaussian()`
#'   and `robust()`: numbers. For `Gamma()` and `inverse.gaussian()`: positive numbers. For `weibull()` and
#'   `"exponential"`: positive times, or `survival::Surv(time, status)`. For `Beta()`: numbers between 0 and 1.
#' @param family `binomial()` (logit, probit or cloglog link), `poisson()` (log
#'   link), `gaussian()` (identity link), `Gamma()` and `inverse.gaussian()` (log link), [neg_binomial_2()] (log link),
#'   [robust()] (identity link), [weibull()] and `"exponential"` (log link) or [Beta()] (logit link); see [families].
#' @param prior prior of the coefficients: [normal()], [student_t()], [cauchy()],
#'   [flat()], or several of them in a row, see [priors].
#' @param weights optional non-negative weights, as in [stats::glm()].
#'   For `gaussian()`: precisions, the variance of a response is `sigma^2 / weight`. For
#'   `binomial()`: the number of trials of a proportion. Otherwise: how often the row counts.
#' @param frequency how often each row counts, for every family: 2 is the same as giving the row twice. Fractions are allowed.
#' @param offset optional offset of the linear predictor.
#' @param dispersion known residual variance of the gaussian family, or `1 / shape` of the Gamma family (1 is the exponential
#'   distribution); `NULL` when it is unknown.
#' @param prior_aux prior of the auxiliary parameter itself: [exponential()], [normal()], [student_t()],
#'   [cauchy()] or [flat()]. `NULL`, the default, is `exponential(1)` of `sigma`, and of a scale without units for the
#'   other parameters, such as `1 / sqrt(phi)`: see [families].
#' @return An object of class `elvi_model` for [elvi()]. `$smoothness` is `L`.
#' @examples
#' X <- model.matrix(~ age + parity, data = infert)
#' model_glm(X, infert$case, family = binomial(), prior = normal(0, 2.5))
#' # unknown residual scale
#' X <- model.matrix(~ speed, data = cars)
#' model_glm(X, cars$dist, family = gaussian(), dispersion = NULL,
#'           prior = normal(0, 100), prior_aux = cauchy(0, 25))
#' @export
model_glm <- function(X, y, family = stats::binomial(), prior = normal(), weights = NULL,
                      offset = NULL, dispersion = 1, prior_aux = NULL, frequency = NULL) {
  if (is_source(X)) {
    check_in_chunks(list(y = if (!missing(y)) y, weights = weights, frequency = frequency, offset = offset))
    given <- list(X = X)
  } else {
    given <- list(X = check_design(X), y = y, weights = weights, frequency = frequency, offset = offset)
  }
  glm_target(given, family, as_prior(prior, "prior"), dispersion, as_prior(prior_aux, "prior_aux"))
}

refuse_dependent_prior <- function(prior, where = "", why = NULL) {
  bad_argument("prior", paste0("a prior of independent coefficients", where), format(prior), why)
}

# The model of rows as a user gave them, see check_rows().
glm_target <- function(given, family, prior, dispersion, prior_aux) {
  family <- check_family(family)
  check_coefficient_prior(prior, linked = TRUE)
  if (is_nested_only(family) || lacks_mode_search(family)) {
    refuse_argument("family", "`family`: model_glm() does not support ", family$family, "(\"", family$link,
                    "\"). Use elvi() with a formula.")
  }
  record <- family_record(family)
  if (is_joint(record)) {
    refuse_argument("family", "`family`: model_glm() does not support ", family$family,
                    "(), which has two predictors. Use elvi() with a formula.")
  }
  dispersion <- check_dispersion(dispersion, family)
  rows <- if (is_source(given$X)) matrix_source_rows(given$X, likelihood_of(family)) else check_rows(given, record)
  if (is.null(dispersion)) {
    if (!is.null(prior$precision)) refuse_dependent_prior(prior, why = "a matrix as `precision` needs a known `dispersion`")
    prior_aux <- prior_aux %||% default_aux_prior(record, mean(rows$y[rows$weight > 0]))
  } else if (!is.null(prior_aux)) {
    unused_argument("prior_aux", "this model has no auxiliary parameter")
  }
  rows_target(rows, family, prior, dispersion, prior_aux)
}

# The model of rows whose columns count as x_j - centre_j, where there is a centre. Everything is checked.
rows_target <- function(rows, family, prior, dispersion, prior_aux, centre = NULL) {
  fields <- list(names = row_labels(rows), rows = rows, likelihood = likelihood_of(family),
                 error_df = as.double(family$df %||% Inf), family = family, prior = prior, dispersion = dispersion,
                 blocks = list(coefficients = coefficient_block(prior, rows$dim)))
  # only the first coefficient is another than of the predictors themselves: see uncentre_points()
  if (!is.null(centre)) fields$intercept_shift <- c(-centre, if (is.null(dispersion)) 0)
  if (is.null(dispersion)) return(readable_model(dispersed_model(fields, prior_aux)))
  if (is.null(prior$precision)) readable_model(known_model(fields)) else linked_model(fields)
}

# A regression whose coefficients depend on each other a priori. The core sees the diagonal of their precision, target_at()
# adds the rest, and only the sparse solver takes it unchanged.
linked_model <- function(fields) {
  record <- family_records[[fields$likelihood]]
  if (is_chunked(fields$rows)) refuse_dependent_prior(fields$prior, " with data larger than memory")
  if (!record$convex) refuse_dependent_prior(fields$prior, " for this family", "its loss is not convex")
  fields$rows <- reweighed(fields$rows, fields$dispersion)
  do.call(new_model, c(list(c("linked", "glm"), dim = length(fields$names), dispersion_at = 0, tally = no_tally,
                            convex = TRUE, smoothness = NA_real_,
                            smoothness_source = "not computed: the prior precision is a matrix", growth = 2), fields))
}

# A regression in its coefficients alone: what dispersion there is is known, and counts as a weight.
known_model <- function(fields) {
  record <- family_records[[fields$likelihood]]
  fields$rows <- reweighed(fields$rows, fields$dispersion)
  model <- do.call(new_model, c(list("glm", dim = length(fields$names), dispersion_at = 0, tally = no_tally), fields))
  model$convex <- record$convex && !has_student_prior(model)
  gram <- if (!is_wide(model)) pass_of(model, "gram")
  identified <- if (is.null(gram)) check_weak_columns(model) else check_rank(model, gram)
  bound <- record$curvature_bound
  model$smoothness <- if (is.na(bound)) NA_real_ else known_smoothness(model, bound, gram)
  model$smoothness_source <- if (is.na(bound)) unbounded_curvature(fields$family) else "computed"
  quadratic <- (model$convex && all_proper(model)) || (record$constant_curvature && identified)
  model$growth <- if (quadratic) 2 else NA_real_
  model
}

unbounded_curvature <- function(family) {
  several <- sum(known_families() == family$family) > 1L
  paste0("none exists: the ", family$family, " likelihood", if (several) paste(" with", family$link, "link"),
         " has unbounded curvature")
}

# A regression with a dispersion to estimate: a model in (coefficients, log dispersion).
dispersed_model <- function(fields, prior_aux) {
  dispersion <- family_records[[fields$likelihood]]$dispersion
  name <- paste0("log_", dispersion$natural)
  fields$names <- c(fields$names, name)
  last <- length(fields$names)
  fields$blocks$dispersion <- dispersion_block(prior_aux, last)
  model <- do.call(new_model, c(list(c("dispersed", "glm"), dim = last, dispersion_at = last,
                                     tally = dispersion$tally(fields$rows),
                                     prior_aux = prior_aux, convex = FALSE, smoothness = NA_real_,
                                     smoothness_source = paste("none exists: the curvature in", name,
                                                               "is unbounded"),
                                     growth = NA_real_), fields))
  if (is_wide(model)) check_weak_columns(model) else check_rank(model, pass_of(model, "gram"))
  check_dispersion_existence(model)
  model
}

# Distinct responses and their weights: the gamma functions of counts are needed once for each of them,
# not once for each row.
tally_of <- function(rows, wanted) {
  used <- wanted & rows$weight > 0
  totals <- rowsum(rows$weight[used], rows$y[used])
  list(y = as.double(rownames(totals)), weight = as.double(totals))
}

no_tally <- list(y = numeric(), weight = numeric())

# name and constraints of the dispersion of a model
dispersion_name <- function(model) model$names[model$dispersion_at]
dispersion_record <- function(model) family_record(model)$dispersion

check_dispersion_existence <- function(model) {
  dispersion <- dispersion_record(model)
  flat <- sum(flat_coefficients(model))
  if (prior_tail(model$blocks$dispersion) + dispersion$tail(model$rows, flat) > 1) return(invisible())
  elvi_abort("No optimum exists: ", dispersion$unbounded(model$rows, flat),
             ", and its prior is flat. Give a proper one, such as `prior_aux` = exponential(1).",
             class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "prior_aux"))
}

# ---- kinds of models --------------------------------------------------------------------
# A model is of a class elvi_model_<kind>, whose methods say what can be done with it; C reads `kind`.
# An affine one is another in other coordinates. A glm whose dispersion is a parameter is dispersed.

new_model <- function(kinds, dim, ...) {
  structure(list(kind = kinds[length(kinds)], dim = as.double(dim), ...),
            class = c(paste0("elvi_model_", kinds), "elvi_model"))
}

# Is what is known of it what its user says?
is_user_density <- function(model) inherits(model, "elvi_model_density")

# Has it rows?
is_regression <- function(model) inherits(model, "elvi_model_glm")

# is a dispersion among its parameters, or a matrix the precision of its prior?
is_dispersed <- function(model) isTRUE(model$dispersion_at > 0)
is_linked <- function(model) !is.null(model$prior$precision)

# Beyond this nothing d x d is made of a model by itself, and a mean field makes do with the diagonal of the
# Hessian at the mode.
is_wide <- function(model) model$dim > 2000

# Has E f a reason to be infinite under a base of heavy tails?
grows_exponentially <- function(model) UseMethod("grows_exponentially")

#' @export
grows_exponentially.elvi_model <- function(model) FALSE

#' @export
grows_exponentially.elvi_model_glm <- function(model) family_record(model)$exponential

# student errors do not make it so, with a student or flat prior
#' @export
grows_exponentially.elvi_model_dispersed <- function(model) {
  block <- model$blocks$dispersion
  dispersion_record(model)$exponential > 0 || block$rate > 0 || is.infinite(prior_tail(block))
}

# So fast that only a base of bounded support will do?
grows_beyond_exponentials <- function(model) is_dispersed(model) && dispersion_record(model)$exponential > 1

# how many points a block has at most
longest_block <- function(model) UseMethod("longest_block")

# of data larger than memory: one pass for as many points as their gradients leave room for
#' @export
longest_block.elvi_model_glm <- function(model) if (is_chunked(model$rows)) 4096 else 128

# short enough for several threads to have one each
#' @export
longest_block.elvi_model <- function(model) 128

# an R function is called once per block
#' @export
longest_block.elvi_model_density <- function(model) 1024

#' @export
longest_block.elvi_model_native <- function(model) 128

# Refuse separable data under a flat prior; whitening finds out by itself.
check_existence <- function(model) UseMethod("check_existence")

#' @export
check_existence.elvi_model <- function(model) invisible()

#' @export
check_existence.elvi_model_glm <- function(model) {
  if (!family_record(model)$constant_curvature && !all_proper(model)) find_mode(model)
  invisible()
}

#' @export
check_existence.elvi_model_dispersed <- function(model) invisible()

# ---- is there one solution? ----------------------------------------------------------------

# Collinear columns are fine as long as those with a flat prior are independent
# of each other; else there is no optimum to find. Returns whether the design and
# normal priors together pin every direction down.
check_rank <- function(model, gram) {
  columns <- ncol(gram)
  rank_of <- function(j) gram_rank(gram[j, j, drop = FALSE])
  rank <- gram_rank(gram)
  if (rank == columns) return(TRUE)
  dependent <- sprintf("The %d columns of `X` are linearly dependent (rank %d)", columns, rank)
  flat <- flat_coefficients(model)
  if (rank_of(flat) < sum(flat)) refuse_dependent(dependent)
  elvi_inform(dependent, ": the prior decides what the data cannot.",
              class = "elvi_message_collinear")
  weak <- flat | is_student(model$blocks$coefficients)
  rank_of(weak) == sum(weak)
}

refuse_dependent <- function(dependent) {
  elvi_abort(dependent, " and the prior is flat, so no optimum exists. ",
             "Drop columns or give a proper prior such as normal(0, 2.5).",
             class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "X"))
}

gram_rank <- function(gram) {
  if (!length(gram)) return(0L)
  size <- sqrt(diag(gram))
  unit <- ifelse(size > 0, 1 / size, 0)
  qr(unit * gram * rep(unit, each = length(unit)), tol = 1e-12)$rank
}

# The same of a wide model, whose d x d matrix is not made: where columns have proper priors their rank decides nothing.
check_weak_columns <- function(model) {
  flat <- which(flat_coefficients(model))
  if (!length(flat)) return(TRUE)
  rows <- model$rows$n
  if (rows < length(flat)) {
    refuse_dependent(sprintf("The %d columns of `X` with a flat prior are linearly dependent (there are %.0f rows)", length(flat), rows))
  }
  # that of the others is needed only where the curvature is the same everywhere
  weak <- if (family_record(model)$constant_curvature) union(flat, which(is_student(model$blocks$coefficients))) else flat
  check_size(length(weak)^2, "X", length(weak))
  gram <- gram_of_columns(model, weak)
  among <- seq_along(flat)
  rank <- gram_rank(gram[among, among, drop = FALSE])
  if (rank < length(flat)) {
    refuse_dependent(sprintf("The %d columns of `X` with a flat prior are linearly dependent (rank %d)", length(flat), rank))
  }
  gram_rank(gram) == length(weak)
}

# The largest eigenvalue of the curvature bound. The Gram matrix of rows in memory helps where it is small and no weights
# make another one.
known_smoothness <- function(model, bound, gram) {
  helps <- !is_chunked(model$rows) && !is.null(gram) && ncol(gram) <= 500 && all(model$rows$weight == 1)
  if (helps) curvature_max(model, bound, weighted = gram) else curvature_max(model, bound)
}

#' Quadratic targets
#'
#' `model_quadratic()` makes a target whose optimum is known, for tests and examples: `f(x) = (x - m)' A (x - m) / 2`, with the optimum
#' `mu = m`, `Sigma = A^{-1/2}` for every base.
#'
#' @param A symmetric positive definite matrix.
#' @param m the minimiser, a vector; zero by default.
#' @return An object of class `elvi_model` for [elvi()].
#' @examples
#' model_quadratic(diag(c(1, 4)), m = c(1, -1))
#' @export
model_quadratic <- function(A, m = NULL) {
  if (is.numeric(A) && length(A) == 1L && !is.matrix(A)) A <- matrix(A)
  A <- check_matrix(A, "A")
  if (nrow(A) != ncol(A) || !nrow(A)) bad_argument("A", "a square matrix", describe(A))
  if (!isSymmetric(unname(A))) bad_argument("A", "symmetric")
  spectrum <- eigen(A, symmetric = TRUE, only.values = TRUE)$values
  if (min(spectrum) <= max(spectrum) * 1e-15) {
    bad_argument("A", "positive definite",
                 paste("one with smallest eigenvalue", format(min(spectrum), digits = 3)))
  }
  labels <- colnames(A) %||% names(m)
  m <- if (is.null(m)) numeric(nrow(A)) else check_vector(m, "m", nrow(A))
  storage.mode(A) <- "double"
  new_model("quadratic", dim = nrow(A), names = fill_names(labels, nrow(A)), A = unname(A), m = m,
            smoothness = max(spectrum), smoothness_source = "computed", convex = TRUE, growth = 2)
}

#' Your own density, as R functions
#'
#' `model_density()` makes a model for [elvi()] from a function that returns *minus* the log density, up to a constant, and if you have
#' it from a function that returns the gradient. Without a gradient the function is differentiated automatically or numerically.
#'
#' [elvi()] warns if the function decreases without bound, as it does when the log density was given without the minus.
#'
#' @section Vectorised functions:
#' The functions may take a `dim` x `n` matrix whose columns are points and
#' return `n` values, or a `dim` x `n` matrix of gradients: they are then called
#' once per block of samples. Functions of a single point work too, at one call
#' per sample. elvi tries both on two points; `vectorized` overrides.
#'
#' @section Errors inside the function:
#' An error inside your function, or a non-finite value or gradient, does not stop [elvi()]: the point is rejected, and the fit reports
#' the number of such points. See "When a run fails" in [elvi_model].
#'
#' At the start of a run [elvi()] compares `gradient` with a central difference of `value`, and warns (class `elvi_warning_gradient`) if
#' the two disagree.
#'
#' @section Derivatives:
#' Without a `gradient`, `value` is differentiated automatically if package 'RTMB' is installed and can record it: gradients and Hessians
#' are then exact, `print()` of the model says so, and `model$derivatives` is `"tape"`. 'RTMB' cannot record a function that compares
#' parameters (`if (x[1] > 0)`) or passes them to compiled code. A recording that does not reproduce the function at six points is not
#' used. Then gradients are computed by finite differences, which is slow (`4 dim` values per gradient), with a warning of class
#' `elvi_warning_slow_gradient`. The steps of the differences adapt to the scale of each coordinate.
#'
#' @section Logarithms:
#' A positive parameter, such as a standard deviation, is usually given by its logarithm. The draws of a logarithm can look
#' good while those of its exponential rest on a few points, so the [verdict] checks the exponentials of `logarithms` too, and `print()`
#' names logarithms that the data hardly bound from below. By default these
#' are the parameters whose names begin with `log` and one of `_`, `(`, `.` or a space, such as `log_tau`.
#'
#' @param value function returning `f`.
#' @param gradient function returning the gradient of `f`. Without one, `derivatives` decides.
#' @param dim dimension of `x`.
#' @param smoothness smoothness constant `L` of `f` (a bound on its curvature),
#'   if you know it.
#' @param convex is `f` convex? `NA` when you do not know.
#' @param growth exponent `r` such that `f(x) >= c |x|^r - c'`; `NA` when unknown.
#' @param names parameter names.
#' @param vectorized do both functions take a matrix of points? `NA` tries it.
#' @param constrain function from one point `x` to a named numeric vector: the model's own parameters there, such as
#'   `c(mu = x[1], tau = exp(x[2]))`. [constrain_draws()] uses it. Entries that are called `log_lik[1]`, `log_lik[2]`, ... are
#'   log likelihoods of observations, for [loo()][loo.elvi_fit]. `NULL` if there is none.
#' @param logarithms names or positions of parameters that are logarithms; `character()` for none. `NULL` recognises them by their names,
#'   see below.
#' @param hessian function from one point to the matrix of second derivatives of `f` there, dense or of package 'Matrix'. The search for
#'   a start uses it in place of differences of gradients. `NULL` if there is none.
#' @param sparsity for many parameters: a symmetric matrix, of package 'Matrix' or dense, whose entries are 0 where the Hessian's are
#'   0 everywhere. `NULL` finds them by differences of gradients. See the section on many parameters in [verdict].
#' @param hyper names or positions of parameters to integrate over by quadrature, as standard deviations of many effects are best;
#'   `character()` for none. `NULL` lets elvi choose for more than 400 parameters.
#' @param derivatives how `f` is differentiated without a `gradient`: `"tape"` by package 'RTMB', `"differences"` by finite
#'   differences, `"auto"` by the first where it can. See below.
#' @return An object of class `elvi_model` for [elvi()].
#' @examples
#' # a logistic target in two dimensions
#' rosy <- model_density(
#'   value = function(x) sum(x^2) / 2 + log(cosh(x[1] + x[2])),
#'   gradient = function(x) x + tanh(x[1] + x[2]),
#'   dim = 2, smoothness = 3, convex = TRUE, growth = 2
#' )
#' rosy
#' set.seed(1)
#' elvi(rosy)
#' # a mean and the logarithm of a standard deviation
#' y <- c(2.1, 3.4, 1.7, 4.0, 2.8)
#' normal <- model_density(
#'   value = function(x) 5 * x[2] + sum((y - x[1])^2) / (2 * exp(2 * x[2])),
#'   gradient = function(x) c(-sum(y - x[1]) / exp(2 * x[2]), 5 - sum((y - x[1])^2) / exp(2 * x[2])),
#'   dim = 2, names = c("mu", "log_sigma"),
#'   constrain = function(x) c(mu = x[1], sigma = exp(x[2]))
#' )
#' \donttest{
#' fit <- elvi(normal)
#' colMeans(constrain_draws(fit))
#' }
#' @export
model_density <- function(value, gradient = NULL, dim, smoothness = NULL, convex = NA, growth = NA,
                          names = NULL, vectorized = NA, constrain = NULL, logarithms = NULL, hessian = NULL, sparsity = NULL,
                          hyper = NULL, derivatives = c("auto", "tape", "differences")) {
  check_function(value, "value")
  if (!is.null(gradient)) check_function(gradient, "gradient")
  if (!is.null(hessian)) check_function(hessian, "hessian")
  derivatives <- check_choice(derivatives, "derivatives", c("auto", "tape", "differences"))
  dim <- check_dim(dim)
  check_size(2 * dim, "dim", dim)
  known <- check_known(dim, smoothness, convex, growth, names, constrain, logarithms)
  if (!is.logical(vectorized) || length(vectorized) != 1L) {
    bad_argument("vectorized", "TRUE, FALSE or NA", describe(vectorized))
  }
  own_gradient <- !is.null(gradient)   # not one that elvi or Stan derived from `value`
  tape <- if (!own_gradient && derivatives != "differences") tape_derivatives(value, dim)
  taped <- is.list(tape)
  if (derivatives == "tape" && !own_gradient && !taped) bad_argument("derivatives", paste("\"auto\" or \"differences\":", tape), "\"tape\"")
  value <- on_blocks(value, "value", 1, dim, vectorized)
  around <- if (!own_gradient && !taped) numeric_surroundings(value, dim, tape)
  gradient <- if (own_gradient) on_blocks(gradient, "gradient", dim, dim, vectorized)
              else if (taped) tape$gradient else numeric_gradient(value, around$unit)
  sparse_hessian <- if (taped) tape$sparse_hessian else if (is_sparse_hessian(hessian, dim)) hessian
  hessian <- if (!is.null(sparse_hessian) && dim > widest_search) NULL else if (!is.null(hessian)) checked_hessian(hessian, dim)
             else if (taped) tape$hessian
  hyper <- check_hyper_places(hyper, known$names)
  do.call(new_model, c(list("density", sparsity = check_sparsity(sparsity, dim), hyper = hyper,
                            sparse_hessian = sparse_hessian, dim = dim, value = value, gradient = gradient,
                            own_gradient = own_gradient, hessian = hessian,
                            derivatives = if (own_gradient) "given" else if (taped) "tape" else "differences",
                            around = around, pointer = NULL), known))
}

# The user's claims about a target that is a function.
check_known <- function(dim, smoothness, convex, growth, names, constrain, logarithms) {
  if (!is.null(smoothness)) smoothness <- check_positive(smoothness, "smoothness")
  if (!is.logical(convex) || length(convex) != 1L) {
    bad_argument("convex", "TRUE, FALSE or NA", describe(convex))
  }
  unknown_growth <- is.atomic(growth) && length(growth) == 1L && is.na(growth)
  growth <- if (unknown_growth) NA_real_ else check_positive(growth, "growth")
  if (!is.null(names) && (!is.character(names) || length(names) != dim || anyNA(names))) {
    bad_argument("names", sprintf("a character vector of length %g", dim),
                 if (is.character(names) && anyNA(names)) "one with missing values" else describe(names))
  }
  names <- names %||% paste0("x", seq_len(dim))
  list(names = names, smoothness = smoothness %||% NA_real_,
       smoothness_source = if (is.null(smoothness)) "not given" else "given", convex = convex, growth = growth,
       constrain = if (!is.null(constrain)) constrain_points(check_function(constrain, "constrain")),
       logarithms = check_logarithms(logarithms, names))
}

# Which parameters are logarithms: those named by the user or, by default, those with a name like log_tau.
check_logarithms <- function(logarithms, names) {
  if (is.null(logarithms)) return(grepl("^log[_(. ]", names))
  known <- if (is.character(logarithms)) logarithms %in% names
           else if (is.numeric(logarithms)) logarithms %in% seq_along(names) else FALSE
  if (!all(known)) {
    bad_argument("logarithms", "names or positions of parameters",
                 if (is.character(logarithms) || is.numeric(logarithms)) describe(logarithms[!known][1L]) else describe(logarithms))
  }
  if (is.character(logarithms)) names %in% logarithms else seq_along(names) %in% logarithms
}

# names or positions of hyperparameters, as positions
check_hyper_places <- function(hyper, names) {
  if (is.null(hyper)) return(NULL)
  at <- if (is.character(hyper)) match(hyper, names) else if (is.numeric(hyper)) match(hyper, seq_along(names)) else NA
  if (anyNA(at) || anyDuplicated(at)) bad_argument("hyper", "names or positions of parameters", describe(hyper))
  if (length(at) > most_hyper) bad_argument("hyper", paste("at most", most_hyper, "parameters"), paste(length(at), "of them"))
  sort(at)
}

# The hook `constrain` of a model: a function of points in columns that returns a matrix with one row for each of them and
# one named column for each of the model's own parameters. Here it is made of a user's function of one point.
constrain_points <- function(constrain) {
  force(constrain)
  function(x) {
    rows <- lapply(seq_len(ncol(x)), function(j) constrain(unname(x[, j])))
    for (row in rows) {
      if (!is.numeric(row) || !length(row) || is.null(names(row))) {
        bad_argument("constrain", "a function that returns a named numeric vector", paste("one that returns", describe(row)))
      }
      if (!identical(names(row), names(rows[[1L]]))) {
        bad_argument("constrain", "a function that returns the same names at every point", "one whose names differ")
      }
    }
    matrix(as.double(unlist(rows)), length(rows), byrow = TRUE, dimnames = list(NULL, names(rows[[1L]])))
  }
}

# A gradient by differences of a function of blocks, of fourth order, with a step for each coordinate in
# `unit`s: moves that change f by about 1. Such steps are the same whatever constant f has and whatever its
# scales are, and long enough for rounding of a large constant not to matter.
numeric_gradient <- function(value, unit, step = 0.02) {
  d <- length(unit)
  moves <- diag(step * unit, d)
  pattern <- cbind(moves, -moves, 2 * moves, -2 * moves)
  at_point <- function(x) {
    f <- matrix(value(x + pattern), d)
    (8 * (f[, 1L] - f[, 2L]) - (f[, 3L] - f[, 4L])) / (12 * step * unit)
  }
  function(x) as.double(apply(matrix(x, d), 2L, at_point))
}

# About where the mode of a function is, and the units there.
numeric_surroundings <- function(value, dim, reason = NULL, rounds = 5L) {
  value <- finite_or_inf(value)
  elvi_warn("`gradient` is missing: gradients are computed from `value` by finite differences, which is slow ",
            sprintf("(%s values per gradient)", format_count(4 * dim)), if (!is.null(reason)) paste0("; ", reason), ".",
            class = "elvi_warning_slow_gradient")
  x <- numeric(dim)
  unit <- coordinate_units(value, x, rep(1, dim))
  for (round in seq_len(rounds)) {
    x <- scaled_minimum(value, numeric_gradient(value, unit), x, unit, maxit = 100)$par
    before <- unit
    unit <- coordinate_units(value, x, before)
    if (all(abs(log(unit / before)) < log(3))) break
  }
  list(x = x, unit = unit)
}

# L-BFGS in units of the coordinates, on f without its constant.
scaled_minimum <- function(value, gradient, x, unit, maxit = 1000) {
  level <- value(matrix(x))
  if (!is.finite(level)) level <- 0
  best <- list(par = numeric(length(x)), value = 0, counts = c(`function` = 0, gradient = 0))
  f <- function(w) {
    v <- value(matrix(x + unit * w)) - level
    if (!is.finite(v)) return(1e300)
    if (v < best$value) best[c("par", "value")] <<- list(w, v)
    v
  }
  found <- tryCatch(
    stats::optim(best$par, f, function(w) unit * gradient(matrix(x + unit * w)), method = "L-BFGS-B",
                 control = list(maxit = maxit, factr = 10)),
    error = function(e) {   # where f falls without bound the steps overflow
      if (conditionMessage(e) == "non-finite value supplied by optim") best else stop(e)
    })
  found$par <- x + unit * found$par
  found
}

# Moves of each coordinate that change f by about 1; as long as they can be where it does not change.
coordinate_units <- function(value, x, unit, rounds = 40L) {
  d <- length(x)
  level <- value(matrix(x))
  for (round in seq_len(rounds)) {
    moves <- diag(unit, d)
    f <- matrix(abs(value(x + cbind(moves, -moves)) - level), d)
    change <- pmax(f[, 1L], f[, 2L])
    change[!is.finite(change)] <- Inf
    by <- ifelse(change > 4, 1 / 4, ifelse(change < 0.1, 4, 1))
    if (all(by == 1)) break
    unit <- pmin(pmax(unit * by, 1e-12), 1e12)
  }
  ifelse(change < 1e-8 | !is.finite(change), pmax(1, abs(x)), unit)
}

# f as a function of a d x n matrix that returns n_out x n doubles, checked.
on_blocks <- function(f, name, n_out, dim, vectorized) {
  shape <- function(out, n, points) {
    if (!is.numeric(out) || length(out) != n_out * n) {
      bad_argument(name, sprintf("a function that returns %s for %s",
                                 if (n_out == 1) paste(n, "number(s)") else
                                   sprintf("%g numbers per point (%g in all)", n_out, n_out * n),
                                 points), describe(out))
    }
    as.double(out)
  }
  at_block <- function(x) shape(f(x), ncol(x), sprintf("a %d x %d matrix", nrow(x), ncol(x)))
  at_points <- function(x) {
    out <- matrix(0, n_out, ncol(x))
    for (j in seq_len(ncol(x))) out[, j] <- shape(f(x[, j]), 1L, "a single point")
    as.double(out)
  }
  if (is.na(vectorized)) vectorized <- takes_blocks(f, n_out, dim)
  probe <- matrix(probe_points(dim)[, 1L])
  if (vectorized) at_block(probe) else at_points(probe)   # wrong shapes show now
  if (vectorized) at_block else at_points
}

probe_points <- function(dim) cbind(0.1 * sin(seq_len(dim)), 0.1 * cos(seq_len(dim)))

# Does f treat the columns of a matrix as points? Only if two points at once give
# what they give one by one.
takes_blocks <- function(f, n_out, dim) {
  probe <- probe_points(dim)
  quiet <- function(expr) or_null(suppressWarnings(expr))
  both <- quiet(f(probe))
  if (!is.numeric(both) || length(both) != 2 * n_out) return(FALSE)
  if (n_out > 1 && !identical(dim(both), c(as.integer(n_out), 2L))) return(FALSE)
  single <- quiet(c(f(probe[, 1L, drop = FALSE]), f(probe[, 2L, drop = FALSE])))
  is.numeric(single) && isTRUE(all.equal(as.double(both), as.double(single)))
}

#' @export
print.elvi_model <- function(x, ...) {
  cat(description(x), sep = "\n")
  if (is.null(x$smoothness)) return(invisible(x))   # one in the coordinates of a run
  cat("smoothness L: ", if (is.na(x$smoothness)) "" else paste0(format(x$smoothness), ", "),
      x$smoothness_source, "\n", sep = "")
  invisible(x)
}

# lines that describe a model
description <- function(model) UseMethod("description")

#' @export
description.elvi_model_quadratic <- function(model) sprintf("quadratic target in dimension %g", model$dim)

#' @export
description.elvi_model_density <- function(model) {
  c(sprintf("user-defined target in dimension %g", model$dim),
    switch(model$derivatives %||% "given",
           tape = "derivatives: automatic, by package 'RTMB'",
           tmb = "derivatives: automatic, by TMB",
           tmb_laplace = "random effects: integrated by the Laplace approximation of TMB"))
}

# what `$work` of a fit may be
#' @export
description.elvi_model_affine <- function(model) c(description(model$inner), "in whitened coordinates")

#' @export
description.elvi_model_glm <- function(model) {
  c(sprintf("%s regression (%s link), %.0f observations, %d coefficients%s", model$family$family, model$family$link,
            model$rows$n, as.integer(model$rows$dim), if (is_dispersed(model)) paste(" and", dispersion_name(model)) else ""),
    format(model$prior))
}

#' @export
description.elvi_model_dispersed <- function(model) {
  c(NextMethod(), paste0(dispersion_record(model)$natural, ": ", format(model$prior_aux)))
}

# What f leaves out of the log density: that is model_constant() - f. A target that is a function has all that it is to have.
model_constant <- function(model) UseMethod("model_constant")

#' @export
model_constant.elvi_model <- function(model) 0

#' @export
model_constant.elvi_model_affine <- function(model) model_constant(model$inner)

#' @export
model_constant.elvi_model_glm <- function(model) {
  rows <- model$rows
  family_record(model)$constant(rows$constant %||% NA_real_, rows$count, model$dispersion, model$family) + prior_constant(model)
}

prior_constant <- function(model) {
  if (is_linked(model)) return(precision_constant(model$prior$precision))
  sum(vapply(model$blocks, block_constant, 0))
}

# how many of its parameters have a flat prior
flat_in_model <- function(model) sum(vapply(model$blocks, flat_in_block, 0))   # none without blocks

# value (n) and gradient (d x n) of a model at the columns of x
target_at <- function(model, x) UseMethod("target_at")

#' @export
target_at.default <- function(model, x) .Call(elvi_r_evaluate, model, x, threads())

#' @export
target_at.elvi_model_glm <- function(model, x) pass_of(model, "evaluate", list(x = x))

#' @export
target_at.elvi_model_linked <- function(model, x) add_links(model, x, pass_of(model, "evaluate", list(x = x)))

# f at the columns of x
target_values <- function(model, x) UseMethod("target_values")

#' @export
target_values.default <- function(model, x) .Call(elvi_r_target_values, model, x, threads())

#' @export
target_values.elvi_model_glm <- function(model, x) pass_of(model, "values", list(x = x))

#' @export
target_values.elvi_model_linked <- function(model, x) target_at(model, x)$value

# the part of a prior's precision beside its diagonal
add_links <- function(model, x, at) {
  off <- x - model$blocks$coefficients$centre
  slope <- as.matrix(model$prior$precision %*% off) - Matrix::diag(model$prior$precision) * off
  list(value = at$value + colSums(off * slope) / 2, gradient = at$gradient + unname(slope))
}

# What needs the whole model in the core is for independent priors.
check_independent_prior <- function(model) {
  if (is_linked(model)) {
    refuse_argument("prior", "`prior`: only the exact solver takes a matrix Q as prior precision. The design X %*% solve(chol(Q)) with ",
                    "the prior normal(0, 1) gives the same model, with coefficients chol(Q) (x - location).")
  }
}

#' @export
find_mode.elvi_model_linked <- function(model, diagonal = FALSE) check_independent_prior(model)

#' @export
exact_by_products.elvi_model_linked <- function(model, kind) FALSE

#' @export
oracle_of.elvi_model_linked <- function(model, law) check_independent_prior(model)
