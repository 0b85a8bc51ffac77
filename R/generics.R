# Generics that package 'rstantools' owns. elvi has copies, so that it can be used
# without 'rstantools'; its methods are registered with both. Where elvi's copy masks the
# original, as after library(rstanarm); library(elvi), the default method hands other
# packages' objects over to the original.

# the default method of a generic for fits, and of one for fits from a formula
not_a_fit <- function(object, ...) bad_argument("object", "a fit by elvi()", describe(object))

not_a_regression <- function(object, ...) {
  bad_argument("object", "a fit by elvi() from a formula",
               if (inherits(object, "elvi_fit")) "one of a model" else describe(object))
}

# A default method: the original generic's method for such an object, or else `refuse()`.
handed_over <- function(generic, refuse) {
  force(refuse)
  function(object, ...) {
    if (!has_package("rstantools") || !has_original_method(generic, object)) refuse(object)
    # from elsewhere: called from here it would find the default methods below first
    do.call(getExportedValue("rstantools", generic), list(object, ...), quote = TRUE, envir = asNamespace("rstantools"))
  }
}

# The defaults of 'rstantools' are for matrices of draws.
has_original_method <- function(generic, object) {
  home <- asNamespace("rstantools")
  known <- function(class) !is.null(utils::getS3method(generic, class, optional = TRUE, envir = home))
  any(vapply(c(class(object), if (is.matrix(object) && length(object)) "default"), known, NA))
}

#' @rdname predict.elvi_glm
#' @export
posterior_linpred <- function(object, ...) UseMethod("posterior_linpred")

#' @export
posterior_linpred.default <- handed_over("posterior_linpred", not_a_regression)

#' @rdname predict.elvi_glm
#' @export
posterior_epred <- function(object, ...) UseMethod("posterior_epred")

#' @export
posterior_epred.default <- handed_over("posterior_epred", not_a_regression)

#' @rdname predict.elvi_glm
#' @export
posterior_predict <- function(object, ...) UseMethod("posterior_predict")

#' @export
posterior_predict.default <- handed_over("posterior_predict", not_a_regression)

#' @rdname predict.elvi_glm
#' @export
log_lik <- function(object, ...) UseMethod("log_lik")

#' @export
log_lik.default <- handed_over("log_lik", not_a_regression)

#' @rdname predictive
#' @export
predictive_interval <- function(object, ...) UseMethod("predictive_interval")

#' @export
predictive_interval.default <- handed_over("predictive_interval", not_a_regression)

#' @rdname predictive
#' @export
bayes_R2 <- function(object, ...) UseMethod("bayes_R2")

#' @export
bayes_R2.default <- handed_over("bayes_R2", not_a_regression)

#' @rdname elvi_fit
#' @export
posterior_interval <- function(object, ...) UseMethod("posterior_interval")

#' @export
posterior_interval.default <- handed_over("posterior_interval", not_a_fit)

#' Priors that a regression used
#'
#' `prior_summary()` lists the priors of a fit, as you gave them and as they were used after autoscaling.
#'
#' @param object a fit by [elvi()] from a formula.
#' @param ... not used.
#' @return A list of class `elvi_prior_summary` with the priors as given and, for each coefficient, as used after autoscaling.
#' @examples
#' prior_summary(elvi(case ~ age + parity, data = infert, family = binomial()))
#' @export
prior_summary <- function(object, ...) UseMethod("prior_summary")

#' @export
prior_summary.default <- handed_over("prior_summary", not_a_regression)
