#' Bayesian regression models as targets
#'
#' Builds the target `f(x) = -log p(y | x) - log p(x)` (up to a constant) of a
#' regression from its design matrix, natively in C.
#'
#' The model knows its smoothness constant `L`, the largest curvature of `f`:
#' the largest eigenvalue of the curvature of the prior (`1 / scale^2` for a
#' normal one, `(df + 1) / (df scale^2)` for a student one) plus `X' W X` with the
#' likelihood's curvature bound in `W` (1/4 per trial for the logit link, 1 for
#' the probit link, 1/dispersion for the gaussian family), found by a
#' matrix-free Lanczos iteration. The poisson likelihood, the cloglog link and
#' models with an auxiliary parameter have no such bound: `L` is `NA`, and
#' [elvi()] estimates one where the approximation lives.
#'
#' @section Auxiliary parameters:
#' `gaussian()` with `dispersion = NULL` and `robust()` have an unknown residual
#' scale `sigma`, `neg_binomial_2()` an unknown size `phi` (the variance is `mu +
#' mu^2 / phi`). Its logarithm is the last parameter of the model, `log_sigma` or
#' `log_phi`, and `prior_aux` is the prior of `sigma` or `phi` itself. These
#' models are not convex and have no exact objective.
#'
#' @param X numeric design matrix, one row per observation. Add a column of ones
#'   for an intercept. A sparse matrix of package 'Matrix' stays sparse, and costs
#'   by its entries.
#' @param y response. For `binomial()`: 0/1, logical, a factor with two levels
#'   (the second is the success), or a two-column matrix of successes and
#'   failures. For `poisson()` and `neg_binomial_2()`: counts. For `gaussian()`
#'   and `robust()`: numbers.
#' @param family `binomial()` (logit, probit or cloglog link), `poisson()` (log
#'   link), `gaussian()` (identity link), [neg_binomial_2()] (log link) or
#'   [robust()] (identity link).
#' @param prior prior of the coefficients: [normal()], [student_t()], [cauchy()],
#'   [flat()], or several of them in a row, see [priors].
#' @param weights optional non-negative case weights.
#' @param offset optional offset of the linear predictor.
#' @param dispersion known residual variance of the gaussian family; `NULL` when
#'   it is unknown.
#' @param prior_aux prior of the auxiliary parameter `sigma` or `phi`; by default
#'   `exponential(1)`. Can be [exponential()], [normal()], [student_t()],
#'   [cauchy()] or [flat()].
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
                      offset = NULL, dispersion = 1, prior_aux = NULL) {
  glm_target(check_design(X), NULL, y, family, prior, weights, offset, dispersion, prior_aux)
}

# The model of a checked design whose columns are to be shifted.
glm_target <- function(X, shift, y, family, prior, weights, offset, dispersion, prior_aux) {
  rows <- design_dim(X)[1L]
  columns <- design_dim(X)[2L]
  family <- check_family(family)
  check_coefficient_prior(prior)
  dispersion <- check_dispersion(dispersion, family$family)
  response <- check_response(y, family$family, rows)
  weight <- check_weights(weights, rows)
  if (!is.null(response$trials)) weight <- weight * response$trials
  if (!is.null(dispersion) && dispersion != 1) weight <- weight / dispersion
  offset <- if (is.null(offset)) numeric(rows) else check_vector(offset, "offset", rows)
  check_magnitude(response$y, "y")
  check_magnitude(offset, "offset")
  fields <- c(list(names = column_names(X), X = X, shift = shift, y = response$y,
                   weight = weight, offset = offset,
                   family = family, prior = prior, dispersion = dispersion),
              prior_vectors(prior, columns))
  if (is.null(dispersion)) return(aux_model(fields, prior_aux %||% exponential(1)))
  if (!is.null(prior_aux)) {
    bad_argument("prior_aux", "left out: this model has no auxiliary parameter", describe(prior_aux))
  }
  likelihood <- switch(family$family, binomial = family$link, poisson = "poisson",
                       gaussian = "normal")
  convex <- all(is.infinite(fields$prior_df))
  model <- do.call(new_model, c(list("glm", dim = columns, likelihood = likelihood,
                                     convex = convex), fields))
  gram <- used_gram(model)
  identified <- check_rank(model, gram)
  bound <- curvature_bound(likelihood)
  model$smoothness <- if (is.na(bound)) NA_real_ else glm_smoothness(model, bound, gram)
  model$smoothness_source <- if (is.na(bound)) {
    paste0("none exists: the ", family$family, " likelihood",
           if (family$family == "binomial") paste(" with", family$link, "link"),
           " has unbounded curvature")
  } else {
    "computed"
  }
  quadratic <- (convex && all(model$precision > 0)) || (likelihood == "normal" && identified)
  model$growth <- if (quadratic) 2 else NA_real_
  model
}

# the parameter that a family leaves unknown, the last of x
aux_names <- c(gaussian = "log_sigma", robust = "log_sigma", neg_binomial_2 = "log_phi")

# NULL when the family has an auxiliary parameter to estimate
check_dispersion <- function(dispersion, family) {
  if (is.null(dispersion) && family %in% names(aux_names)) return(NULL)
  if (family %in% c("robust", "neg_binomial_2")) {
    if (identical(dispersion, 1)) return(NULL)   # the default
    bad_argument("dispersion", paste0("left out: ", sub("log_", "", aux_names[[family]]),
                                      " of the ", family, " family is always estimated"),
                 describe(dispersion))
  }
  dispersion <- check_positive(dispersion, "dispersion")
  if (family != "gaussian" && dispersion != 1) {
    bad_argument("dispersion", paste("1 for the", family, "family"), describe(dispersion))
  }
  dispersion
}

# A regression with an auxiliary parameter: a model in (coefficients, log sigma).
aux_model <- function(fields, prior_aux) {
  name <- aux_names[[fields$family$family]]
  aux <- c(list(name = name, natural = sub("log_", "", name), prior = prior_aux,
                df = fields$family$df %||% Inf), aux_prior(prior_aux),
           count_table(fields, name == "log_phi"))
  fields$names <- c(fields$names, name)
  model <- do.call(new_model, c(list("aux", dim = length(fields$names),
                                     likelihood = fields$family$family, aux = aux,
                                     convex = FALSE, smoothness = NA_real_,
                                     smoothness_source = paste("none exists: the curvature in", name,
                                                               "is unbounded"),
                                     growth = NA_real_), fields))
  check_rank(model, used_gram(model))
  check_aux_existence(model)
  model
}

# The distinct counts and their weights: the gamma functions of the negative
# binomial are needed once for each of them, not once for each row.
count_table <- function(fields, counts) {
  used <- counts & fields$y > 0 & fields$weight > 0
  totals <- rowsum(fields$weight[used], fields$y[used])
  list(count = as.double(rownames(totals)), count_weight = as.double(totals))
}

# Does f grow exponentially in the auxiliary parameter? Student errors do not, with
# a student or flat prior.
aux_exponential <- function(model) {
  aux <- model$aux
  model$likelihood != "robust" || aux$rate > 0 || (aux$precision > 0 && is.infinite(aux$prior_df))
}

# As sigma grows every flat coefficient may spread with it: the posterior falls
# off like sigma^(flat - n), and the prior must do the rest. As phi grows the
# likelihood tends to the poisson one and does nothing.
check_aux_existence <- function(model) {
  aux <- model$aux
  tail <- if (aux$rate > 0) Inf else if (aux$precision > 0) aux$prior_df + 1 else 0
  data <- if (aux$name == "log_phi") 0 else sum(model$weight) - sum(model$precision == 0)
  if (tail + data > 1) return(invisible())
  elvi_abort("No optimum exists: ",
             if (aux$name == "log_phi") "the likelihood does not bound phi from above"
             else sprintf("%g observations and %d coefficients of flat prior leave sigma unbounded",
                          sum(model$weight), sum(model$precision == 0)),
             ", and its prior is flat. Give a proper one, such as `prior_aux` = exponential(1).",
             class = c("elvi_error_no_optimum", "elvi_error_argument"), data = list(argument = "prior_aux"))
}

#' Families beyond those of stats
#'
#' `neg_binomial_2()` is the negative binomial with mean `mu` and variance `mu +
#' mu^2 / phi`, `robust()` a regression with student errors, which outlying
#' responses do not pull. Both leave a parameter to estimate, see [model_glm()].
#'
#' @param df degrees of freedom of the errors, known.
#' @return A `family` object for [model_glm()].
#' @examples
#' X <- model.matrix(~ speed, data = cars)
#' model_glm(X, cars$dist, family = robust(df = 4), prior = normal(0, 100),
#'           prior_aux = exponential(0.1))
#' model_glm(X, cars$dist, family = neg_binomial_2())
#' @name families
NULL

#' @rdname families
#' @export
neg_binomial_2 <- function() new_family("neg_binomial_2", "log")

#' @rdname families
#' @export
robust <- function(df = 4) new_family("robust", "identity", df = check_positive(df, "df"))

new_family <- function(family, link, ...) {
  parts <- stats::make.link(link)
  structure(list(family = family, link = link, linkfun = parts$linkfun, linkinv = parts$linkinv,
                 mu.eta = parts$mu.eta, valideta = parts$valideta, ...), class = "family")
}

new_model <- function(kind, dim, ...) {
  structure(list(kind = kind, dim = as.double(dim), ...), class = "elvi_model")
}

check_family <- function(family) {
  if (is.character(family) && length(family) == 1L) {
    family <- switch(family, binomial = stats::binomial(), poisson = stats::poisson(),
                     gaussian = stats::gaussian(), neg_binomial_2 = neg_binomial_2(),
                     robust = robust(), family)
  }
  if (is.function(family)) family <- family()
  known <- list(binomial = c("logit", "probit", "cloglog"), poisson = "log", gaussian = "identity",
                neg_binomial_2 = "log", robust = "identity")
  if (!inherits(family, "family") || !family$family %in% names(known)) {
    bad_argument("family", "binomial(), poisson(), gaussian(), neg_binomial_2() or robust()",
                 if (inherits(family, "family")) paste0(family$family, "()") else describe(family))
  }
  links <- known[[family$family]]
  if (!family$link %in% links) {
    bad_argument("family", paste0(family$family, "() with link ",
                                  sub(", ([^,]*)$", " or \\1", toString(paste0("\"", links, "\"")))),
                 paste0("link \"", family$link, "\""))
  }
  family
}

# y as proportion, count or response, and the number of trials behind each if not 1
check_response <- function(y, family, n) {
  if (NROW(y) != n) {
    bad_argument("y", sprintf("of length %d, the number of rows of `X`", n),
                 paste("of length", NROW(y)))
  }
  if (anyNA(y)) {
    bad_argument("y", "free of missing values",
                 sprintf("NA at position %d", which(is.na(y))[1L]))
  }
  out <- switch(family,
                binomial = binomial_response(y),
                poisson = , neg_binomial_2 = list(y = count_response(y, "y")),
                gaussian = , robust = list(y = check_vector(y, "y")))
  if (n > 1L && all(out$y == out$y[1L])) {
    elvi_warn("`y` is constant: its ", n, " values are all ", format(out$y[1L]),
              " and say nothing about the slopes.", class = "elvi_warning_constant_response")
  }
  out
}

count_response <- function(y, name) {
  if (!is.numeric(y) || is.factor(y) || !is.null(dim(y)) || any(y < 0) ||
        any(!is.finite(y)) || any(y != floor(y))) {
    bad_argument(name, "counts (non-negative whole numbers)", describe(first_bad(y, function(v)
      v < 0 | !is.finite(v) | v != floor(v))))
  }
  as.double(y)
}

first_bad <- function(y, test) {
  if (!is.numeric(y) || is.factor(y) || !is.null(dim(y))) return(y)
  y[test(y)][1L]
}

binomial_response <- function(y) {
  if (is.matrix(y)) {
    shaped <- is.numeric(y) && ncol(y) == 2L
    bad <- if (shaped) !is.finite(y) | y < 0 | y != floor(y)
    if (!shaped || any(bad)) {
      bad_argument("y", "a two-column matrix of counts (successes, failures)",
                   if (shaped) paste("one with", describe(y[bad][1L])) else describe(y))
    }
    trials <- y[, 1L] + y[, 2L]
    if (any(trials == 0)) {
      bad_argument("y", "at least one trial per row", sprintf("0 trials in row %d", which(trials == 0)[1L]))
    }
    return(list(y = as.double(y[, 1L] / trials), trials = as.double(trials)))
  }
  if (is.factor(y)) {
    if (nlevels(y) != 2L) {
      bad_argument("y", "a factor with two levels", sprintf("one with %d", nlevels(y)))
    }
    y <- y == levels(y)[2L]
  }
  if (is.logical(y)) y <- as.double(y)
  if (!is.numeric(y) || !is.null(dim(y)) || !all(y == 0 | y == 1)) {
    bad_argument("y", "0/1, logical, a factor with two levels or a two-column matrix of counts",
                 describe(first_bad(y, function(v) !v %in% c(0, 1))))
  }
  list(y = as.double(y))
}

check_weights <- function(weights, n) {
  if (is.null(weights)) return(rep(1, n))
  weights <- check_vector(weights, "weights", n)
  if (any(weights < 0)) bad_argument("weights", "non-negative", describe(weights[weights < 0][1L]))
  if (all(weights == 0)) bad_argument("weights", "positive somewhere", "0 everywhere")
  weights
}

# Collinear columns are fine as long as those with a flat prior are independent
# of each other; else there is no optimum to find. Returns whether the design and
# normal priors together pin every direction down.
check_rank <- function(model, gram) {
  columns <- ncol(gram)
  size <- sqrt(diag(gram))
  unit <- ifelse(size > 0, 1 / size, 0)
  gram <- unit * gram * rep(unit, each = columns)
  rank_of <- function(j) if (any(j)) qr(gram[j, j, drop = FALSE], tol = 1e-12)$rank else 0L
  rank <- rank_of(rep(TRUE, columns))
  if (rank == columns) return(TRUE)
  dependent <- sprintf("The %d columns of `X` are linearly dependent (rank %d)", columns, rank)
  flat <- model$precision == 0
  if (rank_of(flat) < sum(flat)) {
    elvi_abort(dependent, " and the prior is flat, so no optimum exists. ",
               "Drop columns or give a proper prior such as normal(0, 2.5).",
               class = c("elvi_error_no_optimum", "elvi_error_argument"),
               data = list(argument = "X"))
  }
  elvi_inform(dependent, ": the prior decides what the data cannot.",
              class = "elvi_message_collinear")
  weak <- flat | is.finite(model$prior_df)
  rank_of(weak) == sum(weak)
}

# The largest eigenvalue of the curvature bound. The Gram matrix is at hand; where
# it is large, or weights make another one, Lanczos steps are cheaper.
glm_smoothness <- function(model, bound, gram) {
  if (ncol(gram) > 500 || any(model$weight != 1)) return(.Call(elvi_r_curvature_max, model, bound))
  prior <- (1 + 1 / model$prior_df) * model$precision   # of a student one, at its centre
  max(eigen(bound * gram + diag(prior, ncol(gram)), symmetric = TRUE, only.values = TRUE)$values)
}

#' Quadratic targets
#'
#' `f(x) = (x - m)' A (x - m) / 2`, the target whose optimum is known in closed
#' form for every base: `mu = m`, `Sigma = A^{-1/2}`.
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
  if (!isSymmetric(unname(A))) bad_argument("A", "symmetric", "a matrix that is not")
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

#' Targets given as R functions
#'
#' Any differentiable `f(x) = -log density` (up to a constant) as a target.
#'
#' The functions may take a `dim` x `n` matrix whose columns are points and
#' return `n` values, or a `dim` x `n` matrix of gradients: they are then called
#' once per block of samples. Functions of a single point work too, at one call
#' per sample. Which of the two they are is found by trying them on two points;
#' `vectorized` overrides.
#'
#' An error inside your function reaches you unchanged. A gradient that is not
#' finite stops the run with the iteration and the point where it happened. At
#' the start of a run [elvi()] compares `gradient` with a central difference of
#' `value`, once, and warns (class `elvi_warning_gradient`) where the two disagree.
#'
#' @param value function returning `f`.
#' @param gradient function returning the gradient of `f`. Without one, gradients
#'   are computed from `value` by the package 'numDeriv', which is slow (some `8
#'   dim` values per gradient) and said in a warning of class
#'   `elvi_warning_slow_gradient`.
#' @param dim dimension of `x`.
#' @param smoothness smoothness constant `L` of `f` (a bound on its curvature),
#'   if you know it.
#' @param convex is `f` convex? `NA` when you do not know.
#' @param growth exponent `r` such that `f(x) >= c |x|^r - c'`; `NA` when unknown.
#' @param names parameter names.
#' @param vectorized do both functions take a matrix of points? `NA` tries.
#' @return An object of class `elvi_model` for [elvi()].
#' @examples
#' # a logistic target in two dimensions
#' rosy <- model_density(
#'   value = function(x) sum(x^2) / 2 + log(cosh(x[1] + x[2])),
#'   gradient = function(x) x + tanh(x[1] + x[2]),
#'   dim = 2, smoothness = 3, convex = TRUE, growth = 2
#' )
#' rosy
#' @export
model_density <- function(value, gradient = NULL, dim, smoothness = NULL, convex = NA, growth = NA,
                          names = NULL, vectorized = NA) {
  check_function(value, "value")
  if (!is.null(gradient)) check_function(gradient, "gradient")
  dim <- check_dim(dim)
  check_size(2 * dim, "dim", dim)
  known <- check_known(dim, smoothness, convex, growth, names)
  if (!is.logical(vectorized) || length(vectorized) != 1L) {
    bad_argument("vectorized", "TRUE, FALSE or NA", describe(vectorized))
  }
  own_gradient <- !is.null(gradient)   # not one that elvi or Stan derived from `value`
  value <- on_blocks(value, "value", 1, dim, vectorized)
  gradient <- if (is.null(gradient)) {
    on_blocks(numeric_gradient(value, dim), "gradient", dim, dim, FALSE)
  } else {
    on_blocks(gradient, "gradient", dim, dim, vectorized)
  }
  do.call(new_model, c(list("density", dim = dim, value = value, gradient = gradient, own_gradient = own_gradient,
                            pointer = NULL), known))
}

# What the user knows of a target that is a function.
check_known <- function(dim, smoothness, convex, growth, names) {
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
  list(names = names %||% paste0("x", seq_len(dim)), smoothness = smoothness %||% NA_real_,
       smoothness_source = if (is.null(smoothness)) "not given" else "given", convex = convex, growth = growth)
}

# The gradient at a single point of a function of blocks.
numeric_gradient <- function(value, dim) {
  need_package("numDeriv", "A model_density() without `gradient`")
  elvi_warn("`gradient` is missing: gradients are computed from `value` by finite differences, which is slow ",
            sprintf("(about %s values per gradient).", format_count(8 * dim)),
            class = "elvi_warning_slow_gradient")
  function(x) numDeriv::grad(function(x) value(matrix(x)), x)
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
  quiet <- function(expr) tryCatch(suppressWarnings(expr), error = function(e) NULL)
  both <- quiet(f(probe))
  if (!is.numeric(both) || length(both) != 2 * n_out) return(FALSE)
  if (n_out > 1 && !identical(dim(both), c(as.integer(n_out), 2L))) return(FALSE)
  single <- quiet(c(f(probe[, 1L, drop = FALSE]), f(probe[, 2L, drop = FALSE])))
  is.numeric(single) && isTRUE(all.equal(as.double(both), as.double(single)))
}

#' @export
print.elvi_model <- function(x, ...) {
  regression <- x$kind %in% c("glm", "aux")
  cat(switch(x$kind,
             glm = , aux = sprintf("%s regression (%s link), %d observations, %d coefficients%s",
                                   x$family$family, x$family$link, design_dim(x$X)[1L], design_dim(x$X)[2L],
                                   if (x$kind == "aux") paste(" and", x$aux$name) else ""),
             quadratic = sprintf("quadratic target in dimension %g", x$dim),
             density = sprintf("user-defined target in dimension %g", x$dim)), "\n", sep = "")
  if (regression) print(x$prior)
  if (x$kind == "aux") cat(x$aux$natural, ": ", format(x$aux$prior), "\n", sep = "")
  cat("smoothness L: ", if (is.na(x$smoothness)) "" else paste0(format(x$smoothness), ", "),
      x$smoothness_source, "\n", sep = "")
  invisible(x)
}

# value (n) and gradient (d x n) of a model at the columns of x
target_at <- function(model, x) .Call(elvi_r_evaluate, model, x, threads())
