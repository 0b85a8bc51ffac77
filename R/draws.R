#' Posterior draws
#'
#' Draws from the approximation as a matrix, or in any format of the package
#' 'posterior'. With `resample = TRUE` draws are importance resampled: the
#' approximation proposes, and proposals are kept in proportion to the ratio of
#' target to approximation. That corrects what the family cannot represent as
#' long as [pareto_k()] is below 0.7, and warns beyond.
#'
#' @param x an `elvi_fit`.
#' @param draws number of draws.
#' @param resample importance resample?
#' @param ... nothing: unknown names are errors.
#' @return A matrix with one row per draw and one named column per parameter, or
#'   the format asked for.
#' @examples
#' fit <- elvi(case ~ age + parity, data = infert, family = binomial())
#' set.seed(1)
#' head(as.matrix(fit, draws = 10))
#' if (requireNamespace("posterior", quietly = TRUE)) {
#'   posterior::summarise_draws(posterior::as_draws(fit, draws = 1000))
#' }
#' @export
as.matrix.elvi_fit <- function(x, draws = 1000, resample = FALSE, ...) {
  check_dots(list(...), names(formals()), "as.matrix()")
  # resampling looks at ten proposals for each draw
  draws <- check_draws(draws, x$model$dim * if (check_flag(resample, "resample")) 10 else 1)
  if (resample) resampled_draws(x, draws) else simulate.elvi_fit(x, draws)
}

resampled_draws <- function(fit, n, proposals = max(10 * n, 1000)) {
  drawn <- draws_with_ratios(fit, proposals)
  k <- new_pareto_k(drawn$log_ratios)$k
  if (k > 0.7) {
    elvi_warn("Pareto k-hat is ", format(k, digits = 2), ": the approximation misses part of the target, ",
              "and importance resampling cannot put it back.", class = "elvi_warning_pareto_k")
  }
  keep <- sample.int(proposals, n, replace = TRUE, prob = exp(drawn$log_ratios - max(drawn$log_ratios)))
  x <- t(reported_points(fit$given$model, drawn$x[, keep, drop = FALSE]))
  colnames(x) <- fit$given$model$names
  x
}

in_format <- function(format) {
  function(x, draws = 1000, resample = FALSE, ...) {
    convert <- getExportedValue("posterior", format)
    convert(as.matrix.elvi_fit(x, draws = draws, resample = resample, ...))
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
