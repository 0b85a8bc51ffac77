#' Posterior draws
#'
#' `as.matrix()` and the `as_draws()` functions give draws of the posterior, as a matrix or in any format of package 'posterior'.
#'
#' @section Importance resampling:
#' With `resample = TRUE` the draws of the approximation are resampled in proportion to the ratio of target to approximation. That
#' corrects what the approximation cannot represent, such as the skewness of a posterior. It works as long as [pareto_k()] is below 0.7,
#' and warns beyond.
#' * User-supplied densities ([model_density()], [model_stan()]): the importance weights of the [verdict], the largest truncated, are
#'   used by default. `resample = FALSE` gives draws of the approximation. So does a k-hat of 1 or more, where the weights have no mean,
#'   unless the effective sample size is above half of the draws.
#' * Fits that integrate over hyperparameters correct the weights of their quadrature points instead, and are not resampled.
#' * Other fits are resampled only with `resample = TRUE`.
#'
#' @section One sequence of draws:
#' A fit has one sequence of draws, and every method that samples takes its first ones: rows of `as.matrix()`, of
#' [posterior_epred()][predict.elvi_glm] and of
#' [log_lik()][predict.elvi_glm] with the same number belong to the same draw, in every call
#' and after [saveRDS()]. Its key is drawn from R's generator when the fit is made. A `seed` selects another sequence. R's generator does
#' not change, and its kind makes no difference.
#'
#' @param x an `elvi_fit`.
#' @param draws,ndraws number of draws, under either name.
#' @param resample importance resample? By default only fits that have a verdict, see below.
#' @param seed optional number that selects another sequence of draws.
#' @param row.names,optional as in [as.data.frame()].
#' @param ... for `as.data.frame()` and `as.array()`: arguments of `as.matrix()`. Otherwise not used: unknown names are errors.
#' @return A matrix with one row per draw and one named column per parameter (`sigma` and `phi` themselves, not
#'   their logarithms), or the format of the function's name; `as.array()` has
#'   iterations, one chain and parameters as its dimensions. With [group-level terms][group_terms] there are columns for
#'   effects (`b[(Intercept) g:1]`) and for the covariances of terms (`Sigma[g:x,(Intercept)]`), as in 'rstanarm'.
#' @examples
#' fit <- elvi(case ~ age + parity, data = infert, family = binomial())
#' head(as.matrix(fit, draws = 10))
#' \donttest{
#' if (requireNamespace("posterior", quietly = TRUE)) {
#'   posterior::summarise_draws(posterior::as_draws(fit, draws = 1000))
#' }
#' }
#' @export
as.matrix.elvi_fit <- function(x, draws = 1000, resample = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(list(...), names(formals()), "as.matrix()")
  posterior <- x$posterior
  if (!is.null(resample)) resample <- check_flag(resample, "resample")
  draws <- check_draws(ndraws %||% draws, length(posterior$shown) * proposals_per_draw(posterior, resample))
  key <- fit_key(x, seed)
  if (is.null(resample)) return(matrix_of_draws(x, posterior_draws(posterior, draws, key)))
  if (resample) return(matrix_of_draws(x, resampled_draws(x, draws, key)))
  plain <- matrix_of_draws(x, posterior_draws(uncorrected(posterior), draws, key))
  corrected <- if (draws >= 100) corrected_draws(posterior, draws, key)
  if (!is.null(corrected)) warn_of_plain(plain, matrix_of_draws(x, corrected))
  plain
}

# Parameters, dispersion, standard deviations of smooths, and covariances of group-level terms.
matrix_of_draws <- function(fit, drawn) {
  x <- show_draws(fit$posterior, drawn$x)
  if (is.null(fit$regression)) return(cbind(x, drawn$hyper))
  own <- intersect(c(family_parameter_names(fit), grep("^smooth_sd\\[", colnames(drawn$hyper), value = TRUE)), colnames(drawn$hyper))
  cbind(x, drawn$hyper[, own, drop = FALSE], covariance_columns(fit, drawn$hyper))
}

# Draws of posterior_draws() as points of the target: parameters that were integrated over come last in a posterior.
target_draws <- function(fit, drawn) {
  x <- cbind(drawn$x, drawn$hyper)
  x <- x[, in_order_of(fit$given$model, x), drop = FALSE]
  colnames(x) <- fit$given$model$names
  x
}

in_order_of <- function(model, x) order(match(colnames(x), model$names))

#' @rdname as.matrix.elvi_fit
#' @export
as.data.frame.elvi_fit <- function(x, row.names = NULL, optional = FALSE, ...) {
  as.data.frame(as.matrix(x, ...), row.names = row.names, optional = optional)
}

#' @rdname as.matrix.elvi_fit
#' @export
as.array.elvi_fit <- function(x, ...) {
  draws <- as.matrix(x, ...)
  array(draws, c(nrow(draws), 1L, ncol(draws)), list(iterations = NULL, chains = "chain:1", parameters = colnames(draws)))
}

# that of the fit's own sequence of draws, or of the one that a seed selects
fit_key <- function(fit, seed = NULL) if (is.null(seed)) fit$posterior$key else key_of_seed(seed)

# The points of a fit that has some, else new draws by their weights, as posterior_draws() has them.
resampled_draws <- function(fit, n, key, proposals = max(10 * n, 1000)) {
  shown <- points_draws(fit$posterior, n, key)
  if (!is.null(shown)) {
    if (misses_part(fit$verdict)) warn_of_missing(fit$verdict$k)
    return(shown)
  }
  drawn <- draws_with_ratios(fit, proposals, key)
  if (is.null(drawn)) {
    bad_argument("resample", "FALSE or NULL", "TRUE",
                 "single draws of a fit by quadrature have no importance weights")
  }
  k <- pareto_shape(drawn$log_ratios)
  if (k > k_usable) warn_of_missing(k)
  keep <- with_key(key, sample.int(proposals, n, replace = TRUE,
                                   prob = exp(drawn$log_ratios - max(drawn$log_ratios))))
  list(x = in_user_rows(fit$posterior, drawn$x[, keep, drop = FALSE]), hyper = NULL)
}

warn_of_missing <- function(k) {
  elvi_warn("Pareto k-hat is ", format(k, digits = 2), ": the approximation misses part of the target, ",
            "and importance resampling cannot restore it.", class = "elvi_warning_pareto_k")
}

# Draws of the approximation itself were requested. Tables show the corrected posterior: a warning where the two differ by more
# than a verdict allows. `plain` and `corrected` have a draw in each row.
warn_of_plain <- function(plain, corrected) {
  sd <- apply(corrected, 2L, stats::sd)
  moves <- sd > 1e-8 * pmax(1, abs(colMeans(corrected)))   # not a constant
  shift <- (abs(colMeans(plain) - colMeans(corrected)) / sd)[moves]
  ratio <- (apply(plain, 2L, stats::sd) / sd)[moves]
  ratio <- pmax(ratio, 1 / ratio)
  if (!length(shift) || !isTRUE(max(shift) > most_shift || max(ratio) > most_ratio)) return(invisible())
  worst <- if (max(ratio) / most_ratio > max(shift) / most_shift) which.max(ratio) else which.max(shift)
  elvi_warn("With resample = FALSE these are draws of the approximation itself. Importance weights change ",
            "the mean of `", names(shift)[worst], "` by ", format(shift[[worst]], digits = 2),
            " standard deviations, its standard deviation by a factor of ", format(ratio[[worst]], digits = 3), ".",
            class = "elvi_warning_uncorrected")
}

in_format <- function(format) {
  function(x, draws = 1000, resample = NULL, seed = NULL, ..., ndraws = NULL) {
    convert <- getExportedValue("posterior", format)
    convert(as.matrix(x, draws = draws, resample = resample, seed = seed, ndraws = ndraws, ...))
  }
}

#' @rdname as.matrix.elvi_fit
#' @exportS3Method posterior::as_draws
as_draws.elvi_fit <- in_format("as_draws_matrix")

#' @rdname as.matrix.elvi_fit
#' @exportS3Method posterior::as_draws_matrix
as_draws_matrix.elvi_fit <- in_format("as_draws_matrix")

#' @rdname as.matrix.elvi_fit
#' @exportS3Method posterior::as_draws_df
as_draws_df.elvi_fit <- in_format("as_draws_df")

#' @rdname as.matrix.elvi_fit
#' @exportS3Method posterior::as_draws_array
as_draws_array.elvi_fit <- in_format("as_draws_array")

#' @rdname as.matrix.elvi_fit
#' @exportS3Method posterior::as_draws_list
as_draws_list.elvi_fit <- in_format("as_draws_list")

#' @rdname as.matrix.elvi_fit
#' @exportS3Method posterior::as_draws_rvars
as_draws_rvars.elvi_fit <- in_format("as_draws_rvars")
