#' elvi: Bayesian regression without sampling
#'
#' Bayesian regression without sampling. Start with [elvi()] and `vignette("elvi")`; [families] and [latent_terms] list what a formula
#' may contain, and [elvi_fit] what can be done with a fit. [elvi_model] is about densities of your own.
#'
#' For densities of your own elvi uses the algorithm of Labarrière, Molinari, Villa and Rosasco (2026),
#' *SGD for variational inference: tackling unbounded variance via
#' preconditioning and dynamic batching*, \doi{10.48550/arXiv.2605.07531}.
#'
#' @section Corrections to the paper:
#' * The negative ELBO is `F + E log p(z)`: the sign of the second term in the
#'   paper's first equation is misprinted.
#' * The normalising constant of a base uses the area of the unit sphere, not
#'   the volume of the ball.
#' * For logistic regression `L = alpha + sigma_max(X)^2 / 4`; the square is
#'   missing in print. With the printed value the algorithm diverges on the
#'   paper's own example; `elvi_control(smoothness = )` lets you see it.
#' * In the theorem for variational inference, case 2, the coefficient of
#'   `|Sigma0 - Sigma*|^2` is `4 (d - 1 + kappa)` times `L / sqrt(E)`, twice what
#'   is printed; [guarantee()] computes bounds from the general theorem.
#' * `E |Sigma z|^2` is `|Sigma|_F^2`: the proof of existence has a factor `d` too
#'   many, without consequence.
#' * `F` is convex whenever `f` is; the base need not be log-concave for that.
#'
#' @section Conditions:
#' Every error, warning and message of elvi has a class to catch it by, see
#' [elvi_conditions].
#'
#' @useDynLib elvi, .registration = TRUE
#' @importFrom stats coef confint deviance df.residual family fitted formula model.frame model.matrix nobs residuals
#' @importFrom stats sigma simulate terms update vcov
#' @name elvi-package
#' @keywords internal
NULL
