#' Posterior draws
#'
#' Draws from the approximation as a matrix, or in any format of the package
#' 'posterior'. With `resample = TRUE` draws are importance resampled: the
#' approximation proposes, and proposals are kept in proportion to the ratio of
#' target to approximation. That corrects what the family cannot represent, as a posterior's skewness or the mouth of a
#' funnel, as long as [pareto_k()] is below 0.7, and warns beyond.
#'
#' A fit of a target that is only a function ([model_density()], [model_stan()]) has looked at its importance weights
#' already, for its `verdict`. Its draws are resampled by these, the largest truncated, unless `resample = FALSE` asks for
#' those of the approximation, or k-hat is 1 or more, where the weights have no mean, and they leave less than half of
#' the draws. Other fits are resampled only if asked to be.
#'
#' A fit has one sequence of draws, and every method that samples takes the first
#' ones of it: rows of `as.matrix()`, of [posterior_epred()][predict.elvi_glm] and of
#' [log_lik()][predict.elvi_glm] with the same number belong to the same draw, in every call
#' and after [saveRDS()]. Its key is drawn from R's generator when the fit is made. A
#' `seed` asks for another sequence. R's generator is left as it was.
#'
#' @param x an `elvi_fit`.
#' @param draws,ndraws number of draws, under either name.
#' @param resample importance resample? `NULL`, the default: a fit that has a verdict, see below.
#' @param seed optional number: draws other than those of the fit, the same for the same seed.
#' @param row.names,optional as in [as.data.frame()].
#' @param ... for `as.data.frame()`: arguments of `as.matrix()`; else nothing: unknown names are errors.
#' @return A matrix with one row per draw and one named column per parameter (`sigma` and `phi` themselves, not
#'   their logarithms), or the format asked for.
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
  asked <- !is.null(resample)
  resample <- if (asked) check_flag(resample, "resample") else is_corrected(x)
  # resampling looks at ten proposals for each draw
  draws <- check_draws(ndraws %||% draws, x$model$dim * if (resample) 10 else 1)
  if (!resample) {
    plain <- natural_draws(x, fit_draws(x, draws, seed))
    if (is_corrected(x) && draws >= 100) warn_of_plain(plain, corrected_draws(x, draws, fit_key(x, seed)))
    return(plain)
  }
  if (!is_corrected(x)) return(natural_draws(x, resampled_draws(x, draws, seed)))
  if (asked && misses_part(x$verdict)) warn_of_missing(x$verdict$k)
  corrected_draws(x, draws, fit_key(x, seed))
}

#' @rdname as.matrix.elvi_fit
#' @export
as.data.frame.elvi_fit <- function(x, row.names = NULL, optional = FALSE, ...) {
  as.data.frame(as.matrix(x, ...), row.names = row.names, optional = optional)
}

in_rows <- function(fit, x) {
  x <- t(reported_points(fit$given$model, x))
  colnames(x) <- fit$given$model$names
  x
}

warn_of_missing <- function(k) {
  elvi_warn("Pareto k-hat is ", format(k, digits = 2), ": the approximation misses part of the target, ",
            "and importance resampling cannot put it back.", class = "elvi_warning_pareto_k")
}

# The first n draws of a fit, one per row, in the user's coordinates.
fit_draws <- function(fit, n, seed = NULL) keyed_draws(fit, n, fit_key(fit, seed))

# Beside the keys of the run and of its comparison with the start (judge_of()).
fit_key <- function(fit, seed = NULL) if (is.null(seed)) (fit$seed + 2) %% 2^32 else key_of_seed(seed)

keyed_draws <- function(fit, n, key) {
  if (!is.null(fit$result$stack)) return(in_rows(fit, points_and_density(fit, n, key)$x))
  z <- draw_base(law_of(fit$base, fit$model$dim), key, n)
  # the scale as parametrised: any root of the covariance gives the same law
  at <- if (stays_its_kind(fit)) reported_theta(fit) else model_theta(fit)
  x <- at$mu + root_times(at$scale, z)
  x <- t(if (stays_its_kind(fit)) x else reported_points(fit$given$model, x))
  colnames(x) <- fit$given$model$names
  x
}

resampled_draws <- function(fit, n, seed = NULL, proposals = max(10 * n, 1000)) {
  key <- fit_key(fit, seed)
  drawn <- draws_with_ratios(fit, proposals, key)
  k <- pareto_shape(drawn$log_ratios)
  if (k > 0.7) warn_of_missing(k)
  keep <- with_key(key, sample.int(proposals, n, replace = TRUE,
                                   prob = exp(drawn$log_ratios - max(drawn$log_ratios))))
  in_rows(fit, drawn$x[, keep, drop = FALSE])
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
