# Responses in classes without an order: a predictor for each class but the first, all with the formula of the model. The columns of
# the design are repeated for each predictor. `shared` of a fit says so: list(classes, columns), the classes that have a predictor, and how
# many coefficients each has. The loss is in src/joint_class.c.

#' Regression of unordered classes
#'
#' `categorical()` fits responses in 3 to 8 classes without an order, such as blood groups. It is the multinomial logit model of
#' [nnet::multinom()] and of 'brms': the first class has the linear predictor 0, each other class one of its own, and `P(y = k)` is
#' proportional to `exp(eta[k])`. The response is a factor or a character vector. `multinomial()` is the same for counts of classes,
#' `cbind(a, b, c) ~ x`.
#'
#' All predictors have the same formula, but each class has its own coefficients, group effects, smooths and standard
#' deviations. Coefficients are named as in 'brms': `mu<class>_x` is the change in the log odds of that class against the first
#' one. `tidy()` has the class in a column `y.level` and the coefficient in `term`. To compare with another class, reorder the
#' levels with [relevel()]. Every class has the same priors.
#'
#' `predict(type = "response")` is a matrix of class probabilities, `type = "class"` the most likely class, `type = "link"` a
#' matrix of predictors. `posterior_epred()` is an array of probabilities, draws x rows x classes (for counts: expected counts),
#' and `posterior_linpred()` an array of predictors. `posterior_predict()` is a matrix of class numbers with the attribute
#' `levels`, or an array of counts. Probabilities and their standard deviations are those of 4000 draws. Residuals and R2 do not
#' exist. With 'emmeans' the classes are a factor of the grid with the name of the response, `y.level` where that is an
#' expression; `mode = "prob"` (the default) averages probabilities, `"latent"` predictors, as for [nnet::multinom()].
#' `mode = "prob"` works for [cumulative()] too.
#'
#' @section Accuracy:
#' The log likelihood is concave, so the best gaussian approximation given the standard deviations of groups is unique.
#' Expectations of the log likelihood are weighted sums over fixed points, exact for polynomials of degree 7 in the predictors
#' (15 for three classes). The gap that `print()` reports does not include the error of these sums. To estimate that error, elvi
#' solves once more with several times as many points, at the best quadrature point. `print()` shows the change of means and
#' standard deviations.
#'
#' @return A `family` object.
#' @seealso [families], [cumulative()] for ordered classes
#' @examples
#' fit <- elvi(factor(gear) ~ wt, data = mtcars, family = categorical())
#' fit
#' predict(fit, mtcars[1:3, ], type = "response")
#' predict(fit, mtcars[1:3, ], type = "class")
#' counts <- data.frame(x = 1:6, a = c(9, 8, 6, 4, 3, 1), b = c(1, 3, 3, 5, 4, 2),
#'                      c = c(0, 1, 2, 2, 4, 8))
#' elvi(cbind(a, b, c) ~ x, data = counts, family = multinomial())
#' @name categorical
NULL

#' @rdname categorical
#' @export
categorical <- function() new_family("categorical", "logit")

#' @rdname categorical
#' @export
multinomial <- function() new_family("multinomial", "logit")

# of the entry `second` of a record whose predictors share a formula
shared_entries <- c(
  "component",  # "class"
  "shares")     # function(y, family): those of the classes but the first, rows x predictors

most_classes <- 8L   # a rule in more dimensions than 7 would have negative weights

is_shared <- function(record) identical(record$second$component, "class")

# ---- responses -----------------------------------------------------------------------------

count_classes <- function(classes) {
  few <- length(classes) < 3L
  if (!few && length(classes) <= most_classes) return(invisible())
  bad_argument("y", paste("a response with 3 to", most_classes, "classes"), length(classes),
               if (few) "binomial() is for two" else "join some of them")
}

refuse_absent_class <- function(class) {
  elvi_abort("`y`: the class ", describe(class), " never occurs, so only the prior determines its probability. Drop it with ",
             "droplevels(), or join it with another.", class = "elvi_error_argument", data = list(argument = "y"))
}

with_unordered_classes <- function(family, y, declared) {
  if (!is.factor(y) && !is.character(y) && !is.logical(y)) {
    bad_argument("y", "a factor, such as factor(y)", describe(y), "counts of classes are for multinomial()")
  }
  absent <- setdiff(declared, as.character(y))
  if (length(absent)) refuse_absent_class(absent[1L])
  family$levels <- if (is.factor(y)) levels(y) else sort(unique(as.character(y)))
  count_classes(family$levels)
  absent <- setdiff(family$levels, as.character(y))
  if (length(absent)) refuse_absent_class(absent[1L])
  family
}

with_counted_classes <- function(family, y, declared) {
  if (!is.matrix(y) || !is.numeric(y)) bad_argument("y", "a matrix of counts, cbind(a, b, c)", describe(y), "a factor is for categorical()")
  family$levels <- colnames(y) %||% as.character(seq_len(ncol(y)))
  if (anyDuplicated(family$levels) || any(!nzchar(family$levels))) {
    refuse_argument("y", "The columns of `y` need distinct names, such as cbind(a = , b = , c = ). They are ", toString(family$levels), ".")
  }
  count_classes(family$levels)
  absent <- which(colSums(y) == 0)
  if (length(absent)) refuse_absent_class(family$levels[absent[1L]])
  family
}

class_codes <- function(y, family) {
  if (is.factor(y) || is.character(y) || is.logical(y)) as.double(match(as.character(y), class_names(family))) else as.double(y)
}

# shares of the classes, in as many trials as a row has counts; a row without any has none
class_shares <- function(y) {
  y[] <- count_response(as.double(y))
  trials <- unname(rowSums(y))
  list(y = unname(y / pmax(trials, 1)), trials = trials)
}

# some rows of a response, which may be a matrix
response_rows <- function(y, at) if (is.matrix(y)) y[at, , drop = FALSE] else y[at]

# ---- probabilities -----------------------------------------------------------------------------

# draws x rows x classes from draws x rows x predictors
softmax <- function(eta, family) {
  size <- dim(eta)
  flat <- cbind(0, matrix(eta, prod(size[1:2])))
  p <- exp(flat - apply(flat, 1L, max))
  array(p / rowSums(p), size + c(0L, 0L, 1L), list(NULL, dimnames(eta)[[2L]], class_names(family)))
}

log_softmax <- function(eta) {
  flat <- cbind(0, matrix(eta, prod(dim(eta)[1:2])))
  top <- apply(flat, 1L, max)
  flat - top - log(rowSums(exp(flat - top)))
}

categorical_log_lik <- function(y, mu, dispersion, trials, family) {
  log_p <- log_softmax(mu)
  log_p[cbind(seq_len(nrow(log_p)), y)]
}

# y: shares of each row, trials: for each draw and row
multinomial_log_lik <- function(y, mu, dispersion, trials, family) {
  draws <- nrow(mu)
  counts <- y[rep(seq_len(nrow(y)), each = draws), , drop = FALSE] * trials
  rowSums(counts * log_softmax(mu)) + lgamma(trials + 1) - rowSums(lgamma(counts + 1))
}

categorical_draws <- function(mu, dispersion, trials, family) {
  p <- softmax(mu, family)
  below <- matrix(p, ncol = dim(p)[3L])
  u <- stats::runif(nrow(below))
  at <- rep(1, nrow(below))
  reached <- 0
  for (k in seq_len(ncol(below) - 1L)) {
    reached <- reached + below[, k]
    at <- at + (u > reached)
  }
  at
}

# counts, draws x rows x classes: one class after the other, given those before
multinomial_draws <- function(mu, dispersion, trials, family) {
  p <- softmax(mu, family)
  left <- rep_len(trials, prod(dim(p)[1:2]))
  rest <- rep(1, length(left))
  out <- array(0, dim(p), dimnames(p))
  K <- dim(p)[3L]
  for (k in seq_len(K)) {
    out[, , k] <- if (k < K) stats::rbinom(length(left), left, pmin(1, pmax(0, c(p[, , k]) / rest))) else left
    left <- left - c(out[, , k])
    rest <- pmax(rest - c(p[, , k]), .Machine$double.xmin)
  }
  out
}

# ---- records -----------------------------------------------------------------------------------------

# predictors and curvatures of shares that are shrunk to equal ones; y: predictors x rows
class_start <- function(y, weight, dispersion) {
  lines <- length(y) %/% length(weight)
  y <- matrix(y, lines)
  shrink <- function(share) (share * rep(weight, each = NROW(share)) + 0.5) / (rep(weight, each = NROW(share)) + (lines + 1) / 2)
  p <- shrink(y)
  first <- shrink(matrix(1 - colSums(y), 1L))
  pairs <- which(lower.tri(diag(lines), diag = TRUE), arr.ind = TRUE)
  c <- apply(pairs, 1L, function(at) weight * p[at[1L], ] * ((at[1L] == at[2L]) - p[at[2L], ]))
  list(eta = as.double(log(p) - rep(log(first), each = lines)), c = as.double(t(matrix(c, length(weight)))))
}

class_record <- function(name, make, adapt, response, trials, draws, log_lik, row_constant, shares) {
  list(family = name, link = "logit", make = make, adapt = adapt, response = response, trials = trials,
       classes = function(eta, parameters, family) softmax(eta, family), mean = NULL, draws = draws,
       log_lik = log_lik, row_constant = row_constant,
       constant = as_summed, variance = no_residual, deviance = function(y, mu, dispersion, family) rep(NA_real_, NROW(y)),
       display_response = uncensored, convex = TRUE, curvature_bound = NA_real_, bound_attained = no_bound, constant_curvature = FALSE,
       exponential = FALSE, needs_fine_quadrature = FALSE, calibration = list(), is_recession = function(move, y, small) FALSE,
       separable = NA, autoscale = FALSE, positive = FALSE,
       conditional = list(likelihood = "categorical", start = class_start, dispersion = "none", hyper = NULL), dispersion = NULL,
       second = list(component = "class", shares = shares))
}

class_records <- function() {
  list(
    categorical = class_record(
      "categorical", categorical, with_unordered_classes, function(y) list(y = as.double(if (is.factor(y)) as.integer(y) else y)), FALSE,
      categorical_draws, categorical_log_lik, row_constant = function(y, weight) numeric(length(y)),
      shares = function(y, family) outer(y, 1 + seq_len(length(class_names(family)) - 1L), `==`) + 0),
    multinomial = class_record(
      "multinomial", multinomial, with_counted_classes, class_shares, TRUE, multinomial_draws, multinomial_log_lik,
      row_constant = function(y, weight) lgamma(weight + 1) - rowSums(lgamma(y * weight + 1)),
      shares = function(y, family) y[, -1L, drop = FALSE]))
}

# ---- points of the predictors' gaussian ----------------------------------------------------------------------

# Points and weights, all positive, on the unit sphere of n dimensions: on a circle by equal angles; else Stroud's rule U_n 7-1 of
# degree 7, of axes, of halves of two axes, and of corners.
sphere_points <- function(n, angles) {
  if (n == 2L) {
    at <- 2 * pi * (seq_len(angles) - 0.5) / angles
    return(list(z = cbind(cos(at), sin(at)), w = rep(1 / angles, angles)))
  }
  two <- t(utils::combn(n, 2L))
  signs <- rbind(c(1, 1), c(1, -1), c(-1, 1), c(-1, -1)) / sqrt(2)
  halves <- matrix(0, 4L * nrow(two), n)
  for (k in seq_len(nrow(two))) halves[4L * (k - 1L) + 1:4, two[k, ]] <- signs
  corners <- unname(as.matrix(expand.grid(rep(list(c(-1, 1)), n)))) / sqrt(n)
  each <- c((8 - n), 4, n^3 / 2^n) / (n * (n + 2) * (n + 4))
  list(z = rbind(diag(n), -diag(n), halves, corners), w = rep(each, c(2L * n, nrow(halves), nrow(corners))))
}

# |z| of a standard normal z in n dimensions: |z|^2 / 2 is a gamma variable, by Gauss and Laguerre
radius_points <- function(n, radii) {
  k <- seq_len(radii)
  J <- diag(2 * k + n / 2 - 2, radii)
  if (radii > 1L) {
    beside <- sqrt(k[-radii] * (k[-radii] + n / 2 - 1))
    J[cbind(k[-radii], k[-1L])] <- J[cbind(k[-1L], k[-radii])] <- beside
  }
  e <- eigen(J, symmetric = TRUE)
  list(r = sqrt(2 * e$values), w = e$vectors[1L, ]^2)
}

# a rotation without a pattern, the same each time
some_rotation <- function(n) qr.Q(qr(matrix(cos(seq_len(n * n)^2), n)))

# E g(z), z standard normal in n dimensions: points in columns. `fine`: the rule that tells the error of the other
class_cubature <- function(n, fine = FALSE) {
  sphere <- if (fine) sphere_points(n, 28L) else sphere_points(n, 16L)
  radius <- radius_points(n, if (n == 2L) 4L + 3L * fine else 2L + fine)
  z <- if (fine && n > 2L) rbind(sphere$z, sphere$z %*% some_rotation(n)) else sphere$z
  w <- rep_len(sphere$w, nrow(z)) * nrow(sphere$z) / nrow(z)
  list(z = do.call(cbind, lapply(radius$r, function(r) r * t(z))), w = as.double(outer(w, radius$w)))
}

class_rule <- function(lines, fine = FALSE) {
  list(levels = list(), prior_levels = list(), mgf = "gaussian", mgf_rate = 0, limit = Inf, several = class_cubature(lines, fine))
}

# Solved again with the finer rule at the best quadrature point: how much means and standard deviations change there. NULL for
# families without such a rule.
cubature_error <- function(nested) {
  setup <- nested$setup
  if (is.null(setup$rule$several)) return(NULL)
  node <- nested$nodes[[which.max(nested$hyper$weight)]]
  fine <- solve_settings(setup$plan, class_rule(setup$plan$lines, fine = TRUE), list(node$setting), 1e-8)[[1L]]
  if (fine$failed) return(list(mean = NA_real_, sd = NA_real_))
  sd <- node$sd[setup$plan$order]
  list(mean = max(abs(fine$mu - node$setting$mu) / sd), sd = max(abs(sqrt(fine$variance) / sd - 1)))
}

# ---- designs -----------------------------------------------------------------------------------------------------

class_prefix <- function(class) paste0("mu", class, "_")

# The design of one predictor, once for each class but the first.
shared_design <- function(design, classes) {
  prefix <- class_prefix(classes[-1L])
  L <- length(prefix)
  p <- ncol(design$X)
  q <- NCOL(design$Z) * !is.null(design$Z)
  names <- colnames(design$X)
  design$X <- do.call(cbind, rep(list(design$X), L))
  colnames(design$X) <- paste0(rep(prefix, each = p), names)
  if (q) design$Z <- methods::as(methods::as(do.call(cbind, rep(list(design$Z), L)), "generalMatrix"), "CsparseMatrix")
  copy <- function(l) lapply(design$latent, part_term, prefix = prefix[l], before = (l - 1L) * q, line = l)
  design$latent <- unlist(lapply(seq_len(L), copy), recursive = FALSE)
  design$centre <- rep(design$centre, L)
  design$shared <- list(classes = classes[-1L], columns = p)
  design
}

# of the design before it is repeated: the same for each class
shared_priors <- function(priors, L) {
  priors$joint <- do.call(c, rep(list(priors$joint), L))
  priors$sd <- rep(priors$sd, L)
  priors
}

# the coefficients of predictor l
class_columns <- function(shared, l) (l - 1L) * shared$columns + seq_len(shared$columns)

# ---- what a fit says -------------------------------------------------------------------------------------------------

has_shared <- function(object) !is.null(object$shared)

# draws x rows x predictors
shared_linpred <- function(object, rows, drawn, key) {
  each <- lapply(rows$lines, linpred_draws, drawn = drawn, key = key)
  array(unlist(each), c(dim(each[[1L]]), length(each)), list(NULL, colnames(each[[1L]]), object$shared$classes))
}

# posterior means of the predictors, or standard deviations: rows x predictors
shared_moments <- function(object, rows) {
  each <- lapply(rows$lines, function(line) mix_moments(linear_predictor(object, line), object$posterior$weight))
  of <- function(field) {
    matrix(unlist(lapply(each, `[[`, field)), nrow(rows$X), dimnames = list(rownames(rows$X), object$shared$classes))
  }
  list(mean = of("mean"), sd = of("sd"))
}

# of draws x rows x classes
moments_of_draws <- function(draws) {
  mean <- apply(draws, 2:3, mean)
  list(mean = mean, sd = apply(draws, 2:3, stats::sd))
}

# the most likely class of each row
likely_class <- function(probabilities, classes) {
  best <- apply(probabilities, 1L, function(p) if (anyNA(p)) NA_integer_ else which.max(p))
  stats::setNames(factor(classes[best], classes), rownames(probabilities))
}

# the class of each row of tidy(), as in 'broom', and the term's name there
with_y_levels <- function(x, rows) {
  rows$y.level <- NA_character_
  for (l in seq_along(x$shared$classes)) {
    prefix <- class_prefix(x$shared$classes[l])
    effects <- effect_places_of(x, Filter(function(term) term$line == l, x$groups))
    mine <- rows$at %in% c(class_columns(x$shared, l), effects) |
      (!rows$effect %in% "fixed" & grepl(paste0("__", prefix), rows$term, fixed = TRUE))
    mine <- mine | (rows$effect != "fixed" & is.na(rows$y.level) & startsWith(ifelse(is.na(rows$group), "", rows$group), prefix))
    rows$y.level[mine] <- x$shared$classes[l]
    rows$term[mine] <- sub(prefix, "", rows$term[mine], fixed = TRUE)
    rows$group[mine] <- sub(prefix, "", rows$group[mine], fixed = TRUE)
  }
  cbind(rows["y.level"], rows[setdiff(names(rows), "y.level")])
}
