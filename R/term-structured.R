#' Latent terms: time, space, relatives
#'
#' Formulas of [elvi()] may have terms for time series, maps, relatives and members of several groups, beside the [group-level and smooth
#' terms][group_terms]. Each is a set of effects with a gaussian prior whose precision matrix is sparse, so that long series, large maps
#' and pedigrees need little memory. Terms of all kinds can be combined.
#'
#' * `ar1(time)` or `ar1(time | g)`: a stationary autoregression of order 1, one series for each level of `g`, with the same standard
#'   deviation and correlation. Times are numbers, dates or a factor (whose levels are equally spaced), multiples of a common step. Times
#'   without data are part of the series; rows that share a time share its effect. `times = c(from, to)` makes all series longer.
#' * `rw1(x)`, `rw2(x)`, also `rw1(x | g)`: random walks of order 1 and 2 along the values of `x`, which may be uneven. `rw1()`
#'   sums to zero; `rw2()` sums to zero and has no trend, and the trend is a coefficient, `rw2(x).fx1`.
#' * `icar(area, graph)`: effects of areas that resemble those of their neighbours, an intrinsic conditional autoregression.
#' * `bym2(area, graph)`: the sum of independent effects and of structured effects like those of `icar()`. `phi`, the structured
#'   share of the variance, has a uniform prior.
#' * `hsgp(x)`, `hsgp(x, y)`: a gaussian process along a variable or over a plane, with a squared exponential covariance. Its
#'   length scale is a hyperparameter. The process is approximated by `k` sines along each variable, in a box `c` times as wide
#'   as the data (Solin and Särkkä, 2020). Defaults are `k = 25` in one dimension, `k = 12` in two, and `c = 1.5`. `x` and `y`
#'   must have the same unit. The length scale has a lognormal prior around a quarter of the range of the data; with probability
#'   about 0.95 it is within a factor of 4 of that. Predictions are limited to the box. The quadrature error of the fastest
#'   sines, whose coefficients are nearly 0, may be large and cause a warning while predictions are good.
#' * `spde(x, y, mesh)`: a field over a plane with a Matérn covariance of smoothness 1, by piecewise linear functions on a mesh of
#'   triangles, with a sparse precision (Lindgren, Rue and Lindström, 2011). Its range, the distance at which the correlation is 0.14, is a
#'   hyperparameter. `mesh` is a mesh of package 'fmesher' (`fm_mesh_2d()`), a list with `loc`, the coordinates of the vertices, and
#'   `triangles`, the numbers of their corners, or a list with the matrices `C0` and `G1` and a function `projector(loc)`. See below.
#' * `(1 | gr(g, cov = A))`, `(x | gr(g, precision = Q))`: group-level terms whose levels have known covariances `A`, or
#'   precisions `Q`, for example of relatives ([pedigree_precision()]) or of species. The row names are the levels.
#' * `(1 | mm(g1, g2))`: members of several levels of one set have the mean of their effects; `weights = cbind(w1, w2)`, which
#'   are scaled to add to 1, makes it a weighted mean.
#'
#' `by = f` in any of `ar1()`, `rw1()`, `rw2()`, `icar()`, `bym2()`, `hsgp()` and `spde()` makes a separate term, with its own
#' standard deviation, for each level of a factor: `rw1(x, by = f)`. Series behind a bar, `rw1(x | g)`, share their
#' hyperparameters.
#'
#' @section Graphs:
#' A graph is a symmetric matrix, dense or sparse, whose entries are weights of neighbours, an object of class `nb` of package 'spdep',
#' or one
#' of class `sf`, whose neighbours 'spdep' finds. Areas are matched by row names (of an `sf` object: by its column of the same name as
#' `area`), else by number. Every area of the graph has an effect, with data or without.
#'
#' Where a graph has several connected components, each sums to zero and is scaled by itself. An area without neighbours has an
#' independent effect with the same standard deviation as the others (Freni-Sterrantino, Ventrucci and Rue, 2018).
#'
#' @section Meshes:
#' The effects of `spde()` are the values of the field at the vertices. With the lumped mass matrix `C0` (diagonal) and the
#' stiffness matrix `G1` of the mesh, as `fm_fem()` of 'fmesher' calls them, their precision is \eqn{(\kappa^2 C_0 + 2 G_1 +
#' \kappa^{-2} G_1 C_0^{-1} G_1) / (4 \pi \sigma^2)} with \eqn{\kappa = \sqrt 8 / range}: `sd` is that of the field away from
#' the border of the mesh. Near the border it is larger, by about half within half a range, so a mesh should go on beyond the
#' data by about a range. Edges should be a third of the range or shorter. `projector(loc)` returns the sparse matrix of the
#' functions' values at the rows of `loc`, as `fm_basis()` does. The range has a lognormal prior around half the extent of the
#' data; with probability about 0.95 it is within a factor of 4 of that. Predictions are limited to the mesh.
#'
#' @section Standard deviations and their priors:
#' `sd[rw1(x)]`, `sd[icar(area)]` and similar ones are on the scale of the linear predictor: the precision is scaled such that the
#' geometric mean of
#' the marginal variances is the square of the standard deviation (Sørbye and Rue, 2014). So the prior `prior_sd` means the same for
#' any graph and any spacing of `x`. `sd[ar1(t)]` is that of the stationary series, `cor(ar1(t))` its correlation, with the prior
#' `prior_cor =
#' lkj(eta)` (uniform by default). With `gr()`, the standard deviation is that of a level whose diagonal entry in `cov` is 1.
#'
#' @section Constraints and certificates:
#' The precisions of walks and maps are singular. Their effects sum exactly to zero, in means, variances and draws, so that the
#' intercept keeps its meaning. A ridge of 1e-6 divided by the number of effects is added to the scaled precision; it changes
#' variances by a fraction of about 1e-6 and makes the certificate of each conditional optimum rigorous for these terms too,
#' given proper priors of the coefficients. These terms need a gaussian `base`.
#'
#' @section New times, places and levels:
#' [predict()][predict.elvi_glm] forecasts `ar1()` beyond its times and `rw1()` beyond and between its values, with their
#' variance. `rw2()` is continued along its last slope, and interpolated along straight lines; the additional variance of the
#' walk there is not included. Areas and relatives must be in the graph or in the matrix; those without data have predictions.
#' New series of `ar1(time | g)` and new levels of `gr()` need `allow_new_levels = TRUE`: they are independent of the others.
#'
#' @references Freni-Sterrantino, A., Ventrucci, M. and Rue, H. (2018) A note on intrinsic conditional autoregressive models for
#' disconnected graphs. *Spatial and Spatio-temporal Epidemiology* 26, 25-34. \doi{10.1016/j.sste.2018.04.002}
#'
#' Lindgren, F., Rue, H. and Lindström, J. (2011) An explicit link between Gaussian fields and Gaussian Markov random fields: the
#' stochastic partial differential equation approach. *Journal of the Royal Statistical Society B* 73, 423-498.
#' \doi{10.1111/j.1467-9868.2011.00777.x}
#'
#' Riebler, A., Sørbye, S. H., Simpson, D. and Rue, H. (2016) An intuitive Bayesian spatial model for disease mapping that
#' accounts for scaling. *Statistical Methods in Medical Research* 25, 1145-1165. \doi{10.1177/0962280216660421}
#'
#' Solin, A. and Särkkä, S. (2020) Hilbert space methods for reduced-rank Gaussian process regression. *Statistics and Computing* 30,
#' 419-446. \doi{10.1007/s11222-019-09886-w}
#'
#' Sørbye, S. H. and Rue, H. (2014) Scaling intrinsic Gaussian Markov random field priors in spatial modelling. *Spatial Statistics* 8,
#' 39-51. \doi{10.1016/j.spasta.2013.06.004}
#' @seealso [group_terms], [pedigree_precision()]
#' @examples
#' nile <- data.frame(year = 1871:1970, flow = as.numeric(Nile))
#' fit <- elvi(flow ~ rw1(year), data = nile)
#' predict(fit, data.frame(year = 1971:1973), se.fit = TRUE)
#' \donttest{
#' elvi(flow ~ ar1(year), data = nile)
#' }
#' @name latent_terms
#' @aliases ar1 rw1 rw2 icar bym2 hsgp spde gr mm
NULL

# Latent terms that a function in the formula makes, such as ar1(time | g) and icar(area, graph): what their records share. Their files
# are
# loaded before term.R, so a record is made by a function.

structured_kind <- function(...) {
  shared <- list(
    grid = function(term, frame, n, n_2d) NULL, groupings = character(), variables = function(call) term_arguments(call)$variables,
    by_level = FALSE, unseen = function(term, frame, allowed) NULL, dense = function(term, filled) FALSE,
    free = function(term, frame) NULL, constraints = function(term) NULL, rank = function(term) length(term$columns),
    blocked = function(term) FALSE,
    log_prior = function(term, theta) log_prior_positive(term$prior_sd, theta),
    theta_names = function(term) paste0("log sd(", term$label, ")"),
    start = function(term, Z, unit) log(0.5 * unit), curvature = function(term) 2 * length(term$columns),
    natural = function(term, theta) stats::setNames(list(exp(theta[, 1L])), sd_names(term)),
    natural_names = function(term) sd_names(term), sd_names = function(term) paste0("sd[", term$label, "]"),
    tidy_names = function(term) "sd__Observation",
    effect_names = function(term) paste0(term$label, ".", term$levels),
    heading = function(term) list(term = "", coefficient = term$label, levels = format_count(length(term$levels))))
  given <- list(...)
  c(shared[setdiff(names(shared), names(given))], given)
}

# shared parts of structured terms
new_structured <- function(label, kind, levels, ...) {
  list(label = label, kind = kind, levels = levels, coefs = kind, correlated = FALSE, unit = 1, ...)
}

# ---- arguments -----------------------------------------------------------------------------------------------

# `time | g` is two variables: what the term is along, and the factor whose levels have an independent copy each. Other arguments are
# evaluated where the formula was written. `extra`: names of these, in order, for those that are given without a name.
term_arguments <- function(call, extra = character()) {
  arguments <- as.list(call)[-1L]
  given <- names(arguments) %||% rep("", length(arguments))
  first <- which(given == "")[1L]
  if (is.na(first)) refuse_term(call, "it needs a variable, such as x")
  at <- arguments[[first]]
  group <- NULL
  if (is_bar(at)) {
    group <- at[[3L]]
    at <- at[[2L]]
  }
  if (call_name(at) == "+" && length(at) == 3L && identical(at[[2L]], 0)) at <- at[[3L]]   # ar1(0 + time | g), as in 'glmmTMB'
  others <- arguments[-first]
  given <- given[-first]
  given[given == ""] <- setdiff(extra, given)[seq_len(sum(given == ""))]
  unknown <- setdiff(given, extra)
  if (length(extra) && length(unknown)) {
    refuse_term(call, if (anyNA(unknown)) "it has too many arguments" else paste0("it has no argument `", unknown[1L], "`"))
  }
  list(at = at, group = group, variables = c(list(at), if (!is.null(group)) interaction_parts(group)),
       others = stats::setNames(others, given))
}

argument_value <- function(arguments, name, call, frame) {
  if (is.null(arguments$others[[name]])) return(NULL)
  blame_argument(eval(arguments$others[[name]], environment(attr(frame, "terms"))), "object",
                 paste0("`", name, "` of the term `", deparse_one(call), "` cannot be evaluated"))
}

# numbers, dates, or the codes of a factor
numeric_variable <- function(frame, name, call) {
  x <- frame[[name]]
  if (is.factor(x)) x <- as.integer(x)
  if (!(is.numeric(x) || inherits(x, c("Date", "POSIXct"))) || is.matrix(x)) {
    refuse_term(call, paste0("`", name, "` is ", describe(x), ", not a number, a date or a factor"))
  }
  x <- as.double(x)
  if (any(!is.finite(x))) refuse_argument("data", "`", name, "` has missing or infinite values.")
  x
}

# the level of each row in the factor behind the bar; the same one without a bar
chain_of <- function(term, frame) {
  if (!length(term$chains)) return(rep(1L, nrow(frame)))
  match(do.call(paste, c(lapply(term$by, function(name) as.character(frame[[name]])), sep = ":")), term$chains)
}

chain_fields <- function(arguments, frame) {
  by <- if (!is.null(arguments$group)) vapply(interaction_parts(arguments$group), deparse_one, "")
  list(by = by, chains = if (length(by)) levels(grouping_factor(frame, by)))
}

# "a:5", or "5" without a factor
chain_levels <- function(term, chain, value) {
  shown <- format_values(value)
  if (length(term$chains)) paste0(term$chains[chain], ":", shown) else shown
}

format_values <- function(x) vapply(signif(x, 10), function(v) format(v, digits = 10, trim = TRUE), "")

# One column per place; rows at `index`, NA where there is none.
place_columns <- function(index, columns, weight = 1) {
  known <- which(!is.na(index))
  Matrix::sparseMatrix(i = known, j = index[known], x = rep_len(as.double(weight), length(known)), dims = c(length(index), columns))
}

# ---- places that the data did not have ---------------------------------------------------------------------------

# Rows at new places of a process: given the effects they have a mean, linear in these effects, and a covariance. `place`: the new place
# of each
# row; `covariance`: function(hyper) of the places, given a row of the posterior's hyperparameters by name; `columns`: function(hyper)
# of what
# the mean adds to the columns of the rows, or NULL where it does not depend on hyperparameters; `variance`: the diagonal of the covariance.
new_places <- function(term, rows, place, covariance, columns = NULL, variance = function(hyper) diag(as.matrix(covariance(hyper)))) {
  if (!length(rows)) return(NULL)
  labels <- unique(place)
  level <- match(place, labels)
  list(term = term, rows = rows, labels = labels, level = level, columns = columns,
       variance = function(hyper) {
         each <- vapply(seq_len(nrow(hyper)), function(k) variance(hyper[k, ]), numeric(length(labels)))
         matrix(each, length(labels))[level, , drop = FALSE]
       },
       draws = function(hyper, key) {
         n <- nrow(hyper)
         z <- vapply(labels, function(label) level_noise(term, label, n, key), matrix(0, n, 1L))
         z <- matrix(z, n)
         out <- vapply(seq_len(n), function(i) drop(symmetric_root_of(covariance(hyper[i, ])) %*% z[i, ]), numeric(length(labels)))
         t(matrix(out, length(labels)))[, level, drop = FALSE]
       })
}

# of a covariance that may be singular
symmetric_root_of <- function(V) {
  e <- eigen(V, symmetric = TRUE)
  e$vectors %*% (sqrt(pmax(e$values, 0)) * t(e$vectors))
}

# ---- intrinsic precisions ---------------------------------------------------------------------------------------

# A precision that is singular, with the orthonormal columns of N as its null space: scaled such that the geometric mean of the marginal
# variances is 1 when N'u = 0 (Sorbye and Rue, 2014). A ridge makes it positive definite, so that a sparse factor and a certificate
# exist. It changes the variance of any direction by a fraction of at most about 1e-6; along N, where it is all there is, the
# constraint holds.

# Q: sparse, symmetric. The entries of its lower triangle, its log determinant on the constrained space and the constraint.
intrinsic_structure <- function(Q, N) {
  variance <- constrained_variance(Q, N)
  scale <- exp(mean(log(variance$diagonal)))
  n <- nrow(Q)
  ridge <- 1e-6 / n
  entries <- lower_entries(Q * scale + Matrix::Diagonal(n, ridge))
  c(entries, list(constraint = N, rank = n - ncol(N), ridge = rep(ridge, ncol(N)),
                  log_det = variance$log_det + (n - ncol(N)) * log(scale) + ridge * sum(variance$diagonal) / scale))
}

# a sparse matrix of numbers, from any kind of matrix
as_sparse <- function(M) {
  if (!is.matrix(M)) return(methods::as(methods::as(methods::as(M, "dMatrix"), "generalMatrix"), "CsparseMatrix"))
  at <- which(is.na(M) | M != 0, arr.ind = TRUE)
  Matrix::sparseMatrix(i = at[, 1L], j = at[, 2L], x = as.double(M[at]), dims = dim(M))
}

lower_entries <- function(Q) {
  low <- methods::as(methods::as(methods::as(Matrix::tril(Q), "generalMatrix"), "CsparseMatrix"), "TsparseMatrix")
  list(row = low@i + 1L, column = low@j + 1L, value = low@x)
}

# The diagonal of the pseudo-inverse of Q, and the logarithm of the product of its eigenvalues that are not 0. With as many places held as
# N has columns, Q + R R' has an inverse G, and the pseudo-inverse is G without what N says of it.
constrained_variance <- function(Q, N) {
  n <- nrow(Q)
  k <- ncol(N)
  held <- held_places(N)
  size <- mean(Matrix::diag(Q))
  R <- Matrix::sparseMatrix(i = held, j = seq_len(k), x = sqrt(size), dims = c(n, k))
  selected <- selected_inverse(Q + Matrix::tcrossprod(R))
  GN <- as.matrix(selected$solve(N))
  M <- crossprod(N, GN)
  diagonal <- selected$diagonal - 2 * rowSums(GN * N) + rowSums((N %*% M) * N)
  list(diagonal = diagonal, log_det = selected$log_det - k * log(size) - 2 * determinant(N[held, , drop = FALSE])$modulus[[1L]])
}

# rows of N that are far from dependent: by pivoting
held_places <- function(N) qr(t(N), LAPACK = TRUE)$pivot[seq_len(ncol(N))]

# the diagonal of the inverse of a sparse positive definite matrix, without the rest of it
selected_inverse <- function(Q) {
  entries <- lower_entries(Q)
  out <- inverse_diagonal(inverse_plan(entries, nrow(Q)), entries$value)
  if (is.null(out)) return(NULL)
  factor <- Matrix::Cholesky(Matrix::forceSymmetric(Q, "L"), perm = TRUE, LDL = FALSE)
  c(out, list(solve = function(b) Matrix::solve(factor, b)))
}

# where the entries of the lower triangle of such a matrix are in its factor
inverse_plan <- function(entries, n) {
  none <- Matrix::sparseMatrix(i = integer(), j = integer(), x = numeric(), dims = c(n, n))
  filled <- factor_pattern(none, entries, seq_len(n), 0L)
  place <- order(filled$perm) - 1L
  pattern <- filled$pattern
  low <- pmin(place[entries$row], place[entries$column])
  high <- pmax(place[entries$row], place[entries$column])
  list(pattern = pattern, at = .Call(elvi_r_pattern_places, pattern, high, low) + 1L,
       diagonal = .Call(elvi_r_pattern_places, pattern, place, place) + 1L)
}

# NULL where the matrix is not positive definite
inverse_diagonal <- function(plan, value) {
  values <- numeric(length(plan$pattern$row) + (plan$pattern$dim - plan$pattern$head)^2)
  values[plan$at] <- value
  out <- .Call(elvi_r_sparse_inverse, plan$pattern, values)
  if (out$status > 0L) return(NULL)
  list(diagonal = out$inverse[plan$diagonal], log_det = 2 * sum(log(out$factor[plan$diagonal])))
}

# several independent pieces on consecutive columns, as one
join_structures <- function(parts) {
  sizes <- vapply(parts, function(part) nrow(part$constraint), 0L)
  first <- c(0L, cumsum(sizes))[seq_along(parts)]
  shifted <- function(field) unlist(Map(function(part, from) part[[field]] + from, parts, first))
  constraint <- matrix(0, sum(sizes), sum(vapply(parts, function(part) ncol(part$constraint), 0L)))
  at <- 0L
  for (i in seq_along(parts)) {
    own <- parts[[i]]$constraint
    constraint[first[i] + seq_len(sizes[i]), at + seq_len(ncol(own))] <- own
    at <- at + ncol(own)
  }
  total <- function(field) sum(vapply(parts, function(part) as.double(part[[field]]), 0))
  list(row = shifted("row"), column = shifted("column"), value = unlist(lapply(parts, `[[`, "value")), constraint = constraint,
       rank = total("rank"), log_det = total("log_det"), ridge = unlist(lapply(parts, `[[`, "ridge")))
}

# A precision that is a known structure over the square of one standard deviation.
scaled_precision <- function(structure, theta) {
  value <- structure$value * exp(-2 * theta)
  list(value = value, inverse = NULL, log_det = structure$log_det - 2 * structure$rank * theta,
       slack = exp(2 * theta) / structure$ridge,
       slope = function(S) entries_product(structure, value, S) - structure$rank)
}

# tr(Q S) from the lower triangle
entries_product <- function(structure, value, S) sum((2 - (structure$row == structure$column)) * value * S)

structure_entries <- function(term) {
  list(row = term$structure$row, column = term$structure$column, source = seq_along(term$structure$row))
}
