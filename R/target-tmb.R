# Objects of packages 'TMB' and 'RTMB' as targets. Their functions leave the last point that was asked for, and the best one, in
# an environment that reports read: a fit leaves them as they were.

#' TMB and RTMB objects as targets
#'
#' `model_tmb()` makes a model for [elvi()] from an object of `TMB::MakeADFun()` or `RTMB::MakeADFun()`, with its automatic derivatives.
#' Objects of packages built on these, such as `fit$obj` of 'glmmTMB', work too.
#'
#' The function of the object must return a negative log density: minus the log likelihood minus the log priors. A prior of a
#' transformed parameter needs the Jacobian of the transform. If the function has no priors, the posterior is the one under flat
#' priors, and need not exist.
#'
#' elvi approximates random effects (`random = ` of `MakeADFun()`) by the best gaussian given the other parameters, and
#' integrates over these by quadrature: see the section on many parameters of the [verdict]. The target has all parameters. With
#' `random = "laplace"` the random effects are integrated by the Laplace approximation of 'TMB' itself, at every point; then the
#' target has the other parameters only, and `print()` says so. Make the object without `random` for one gaussian of all
#' parameters.
#'
#' [constrain_draws()] returns what `obj$report()` does: the quantities that the model reports, `ADREPORT()` among them if it is
#' also given to `REPORT()`. The state of the object (`obj$env$last.par` and the like) is the same after a fit as before.
#' Compiled code and tapes do not survive `saveRDS()`.
#'
#' @param object what `MakeADFun()` returns: a list with `par`, `fn`, `gr` and `env`.
#' @param random how random effects are integrated: `"gaussian"` or `"laplace"`.
#' @param convex,growth,logarithms as in [model_density()].
#' @return An object of class `elvi_model`.
#' @seealso [model_density()], [model_stan()], [init_values()]
#' @examplesIf requireNamespace("RTMB", quietly = TRUE)
#' y <- c(2.1, 3.4, 1.7, 4.0, 2.8)
#' nll <- function(p) {
#'   sigma <- exp(p$log_sigma)
#'   RTMB::REPORT(sigma)
#'   sum((y - p$mu)^2) / (2 * sigma^2) + 5 * p$log_sigma + p$mu^2 / 200 + sigma - p$log_sigma
#' }
#' obj <- RTMB::MakeADFun(nll, list(mu = 0, log_sigma = 0), silent = TRUE)
#' set.seed(1)
#' fit <- elvi(model_tmb(obj))
#' fit
#' colMeans(constrain_draws(fit))
#' @export
model_tmb <- function(object, convex = NA, growth = NA, logarithms = NULL, random = c("gaussian", "laplace")) {
  check_tmb(object)
  how <- check_choice(random, "random", c("gaussian", "laplace"))
  random <- length(object$env$random) > 0L
  if (random && how == "gaussian") return(tmb_in_full(object, convex, growth, logarithms))
  dim <- length(object$par)
  each <- function(f, x, n_out) {
    with_tmb_state(object, vapply(seq_len(ncol(x)), function(j) as.double(f(x[, j])), numeric(n_out)))
  }
  model <- model_density(value = function(x) each(object$fn, x, 1), gradient = function(x) each(object$gr, x, dim),
                         dim = dim, convex = convex, growth = growth, names = numbered_names(names(object$par)), vectorized = TRUE,
                         hessian = if (!random && dim <= widest_search) function(x) with_tmb_state(object, object$he(x)),
                         logarithms = logarithms)
  model$own_gradient <- FALSE
  model$derivatives <- if (random) "tmb_laplace" else "tmb"
  if (length(with_tmb_state(object, tmb_report(object, object$par)))) {
    model$constrain <- function(x) with_tmb_state(object, report_rows(object, x))
  }
  model
}

# The joint density of all parameters, of which those that are not random are to be integrated over.
tmb_in_full <- function(object, convex, growth, logarithms) {
  env <- object$env
  dim <- length(env$par)
  each <- function(x, n_out, ...) {
    with_tmb_state(object, vapply(seq_len(ncol(x)), function(j) as.double(env$f(x[, j], ...)), numeric(n_out)))
  }
  block <- with_tmb_state(object, lower_triangle(env$spHess(env$par, random = TRUE)))
  random <- env$random
  fixed <- rep(setdiff(seq_len(dim), random), each = dim)   # may depend on everything
  pattern <- Matrix::sparseMatrix(i = c(random[block@i + 1L], rep_len(seq_len(dim), length(fixed))),
                                  j = c(random[block@j + 1L], fixed), x = 1, dims = c(dim, dim))
  model <- model_density(value = function(x) each(x, 1), gradient = function(x) each(x, dim, order = 1), dim = dim, convex = convex,
                         growth = growth, names = numbered_names(names(env$par)), vectorized = TRUE, logarithms = logarithms,
                         sparsity = pattern)
  model$own_gradient <- FALSE
  model$derivatives <- "tmb"
  model$start <- unname(env$par)
  model$random <- random
  if (length(with_tmb_state(object, reported_numbers(object, env$par)))) {
    model$constrain <- function(x) with_tmb_state(object, report_rows(object, x, identity))
  }
  model
}

check_tmb <- function(object) {
  complete <- is.list(object) && is.numeric(object$par) && is.function(object$fn) && is.function(object$gr) && is.environment(object$env)
  if (!complete) bad_argument("object", "what TMB::MakeADFun() or RTMB::MakeADFun() returns", describe(object))
  if (!length(object$par)) bad_argument("object", "one with at least one parameter that is not random", "one without")
}

# The value of `code`, after which the object is as it was.
with_tmb_state <- function(object, code) {
  env <- object$env
  kept <- intersect(c("last.par", "last.par1", "last.par2", "last.par.best", "value.best", "par.best", "tracepar"), ls(env))
  before <- mget(kept, envir = env)
  on.exit({
    list2env(before, env)
    rm(list = setdiff("tracepar", kept), envir = env)
  })
  env$tracepar <- FALSE
  code
}

# "beta", "beta" are beta[1] and beta[2]
numbered_names <- function(names) {
  several <- names %in% names[duplicated(names)]
  number <- stats::ave(seq_along(names), names, FUN = seq_along)
  ifelse(several, sprintf("%s[%d]", names, number), names)
}

# What the model reports at a point of its fixed parameters, random effects at their conditional mode.
tmb_report <- function(object, x) reported_numbers(object, tmb_point(object, x))

tmb_point <- function(object, x) {
  if (!length(object$env$random)) return(x)
  object$fn(x)   # which finds the mode, and keeps it in last.par
  object$env$last.par
}

reported_numbers <- function(object, full) {
  reported <- unlisted(object$report(full))
  reported <- reported[vapply(reported, is.numeric, NA)]
  if (length(reported)) flat_parameters(reported)
}

# The elements of lists within a list, as 'glmmTMB' reports standard deviations of terms: "sd.1", "sd.2".
unlisted <- function(x) {
  each <- lapply(seq_along(x), function(i) {
    if (!is.list(x[[i]])) return(x[i])
    inner <- unlisted(x[[i]])
    if (!length(inner)) return(list())
    stats::setNames(inner, paste(names(x)[i], if (is.null(names(inner))) seq_along(inner) else names(inner), sep = "."))
  })
  do.call(c, each) %||% list()
}

report_rows <- function(object, x, full = function(x) tmb_point(object, x)) {
  rows <- lapply(seq_len(ncol(x)), function(j) reported_numbers(object, full(x[, j])))
  matrix(unlist(rows), length(rows), byrow = TRUE, dimnames = list(NULL, names(rows[[1L]])))
}
