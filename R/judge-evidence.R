#' Log evidence, Bayes factors and model probabilities
#'
#' `evidence()` estimates the log marginal likelihood of a model, with all constants of prior and likelihood. It reports the lower bound
#' [elbo()], an estimate that is corrected by importance weights, and the Monte Carlo error of the estimate. `bayes_factor()` and
#' `post_prob()` compare models of the same data by their evidence, as the functions of the same names in package 'bridgesampling' do.
#'
#' The evidence depends on the priors, also where the posterior hardly does. Models with flat priors have no evidence; for them, and for
#' fits of different responses, `bayes_factor()` and `post_prob()` give an error.
#'
#' @section How it is estimated:
#' * A regression without hyperparameters: the mean of the importance weights of draws from the corrected posterior.
#' * A fit that integrates over hyperparameters: the quadrature over them, with the conditional evidence at each point corrected by the
#'   draws that the fit has made. `quadrature_error` is the change against the next coarser grid.
#' * A stochastic fit, or a user-supplied density: the weights of the fit's verdict. The result is the log of the integral of the density
#'   as it was given, so it is the log evidence only if the density has all constants of likelihood and prior.
#'
#' The draws are those of the fit: the same in every call. The estimate is marked as unreliable where the Pareto k-hat
#' of the weights is 0.7 or more, or where a bounded base leaves out part of the target. The lower bound holds even then.
#'
#' With package 'bridgesampling', `bridge_sampler(fit)` is `evidence(fit)`, and its `bf()`, `bayes_factor()`, `post_prob()` and `logml()`
#' accept fits by [elvi()] and results of `evidence()`, also together with results of samplers.
#'
#' @param object a fit by [elvi()].
#' @param draws number of draws for a fit without hyperparameters and without a verdict. By default, as many as make the Monte Carlo error
#'   0.005 or less, up to a limit.
#' @param seed optional number that selects another sequence of draws.
#' @param x,x1,x2 fits by [elvi()], or results of `evidence()`.
#' @param log return the logarithm of the Bayes factor?
#' @param prior_prob prior probabilities of the models; equal by default.
#' @param model_names names of the models; by default the expressions that were given.
#' @param ... for `post_prob()` further fits or results of `evidence()`; else nothing: unknown names are errors.
#' @return `evidence()`: a list of classes `elvi_evidence` and `bridge` with
#'   \item{logml}{the corrected estimate, or the lower bound where there is no correction}
#'   \item{se}{its Monte Carlo error}
#'   \item{bound, bound_se}{the lower bound and its Monte Carlo error, 0 where it is computed by quadrature}
#'   \item{k, ess, draws}{Pareto k-hat, effective sample size and number of the importance weights; `NA` where there are none}
#'   \item{quadrature_error}{nats, against the next coarser grid; 0 without hyperparameters}
#'   \item{reliable}{can the estimate be used?}
#'   \item{flat}{number of parameters with a flat prior}
#'   \item{constants}{`"all"`, or `"as given"` for a user-supplied density}
#'
#'   `bayes_factor()`: a list with `bf`, the Bayes factor in favour of `x1`, or its logarithm, and `log`, as in 'bridgesampling', and
#'   `se`, the
#'   Monte Carlo error of its logarithm. `post_prob()`: a named vector of posterior probabilities.
#' @seealso [elbo()]; [loo()][cross_validation] compares models by their predictions.
#' @examples
#' weight <- elvi(am ~ wt, data = mtcars, family = binomial())
#' none <- elvi(am ~ 1, data = mtcars, family = binomial())
#' evidence(weight)
#' bayes_factor(weight, none)
#' post_prob(weight, none)
#' @export
evidence <- function(object, ...) UseMethod("evidence")

#' @export
evidence.default <- not_a_fit

#' @rdname evidence
#' @export
evidence.elvi_fit <- function(object, draws = NULL, seed = NULL, ...) {
  check_dots(list(...), names(formals()), "evidence()")
  refuse_prior(object, "object", "the prior has no evidence")
  if (!is.null(draws)) draws <- check_draws(draws, posterior_dim(object$posterior), lower = 100)
  found <- if (!is.null(object$nested)) nested_evidence(object$nested)
           else weighted_evidence(object, evidence_ratios(object, draws, fit_key(object, seed), asked = !is.null(draws) || !is.null(seed)))
  structure(c(found, list(flat = evidence_flat(object), constants = if (has_all_constants(object)) "all" else "as given",
                          data = response_print(object), method = "elvi", niter = 1L)),
            class = c("elvi_evidence", "bridge"))
}

# ---- estimates ------------------------------------------------------------------------------------------

nested_evidence <- function(nested) {
  found <- nested$evidence
  list(logml = found$corrected, se = found$se, bound = found$log, bound_se = 0, k = worst_k(nested), ess = NA_real_,
       draws = nested$draws, quadrature_error = found$quadrature_error,
       # groups that hardly depend on each other are corrected one by one, which needs no joint weights
       reliable = nested$corrected || !isTRUE(worst_k(nested) >= k_usable))
}

# the mean of importance weights, whose logarithms lack the constants that the target leaves out
weighted_evidence <- function(fit, ratios) {
  bound <- elbo(fit)
  w <- exp(ratios$log - max(ratios$log))
  n <- length(w)
  list(logml = max(ratios$log) + log(mean(w)) + model_constant(fit$model), se = relative_error(ratios$log), bound = bound$estimate,
       bound_se = bound$se, k = ratios$k, ess = effective_draws(ratios$log), draws = n, quadrature_error = 0,
       reliable = isTRUE(ratios$k < k_usable) && !isTRUE(ratios$outside > most_missing))
}

# standard error of the logarithm of the mean weight
relative_error <- function(log_ratios) {
  w <- exp(log_ratios - max(log_ratios))
  stats::sd(w) / (mean(w) * sqrt(length(w)))
}

# Log target less log proposal at keyed draws: those of the verdict, if the fit has one, else of the corrected posterior. Blocks are
# added until the error of the estimate is small.
evidence_ratios <- function(fit, draws, key, asked = FALSE, most_error = 0.005) {
  v <- fit$verdict
  if (!is.null(v) && !asked) return(list(log = v$log_ratios, k = v$k, outside = v$uncovered))
  block <- draws %||% first_draws(fit$model)
  most <- if (is.null(draws)) k_blocks else 1L
  ratios <- numeric()
  for (i in seq_len(most)) {
    ratios <- c(ratios, ratio_block(fit, block, key, i))
    if (isTRUE(relative_error(ratios) <= most_error)) break
  }
  list(log = ratios, k = pareto_shape(ratios), outside = share_outside(fit, key))
}

ratio_block <- function(fit, n, key, i) {
  own <- corrected_sample(fit$posterior, n, key_for(key, list("evidence", i)))
  if (is.null(own)) draws_with_ratios(fit, n, key, iteration = i - 1)$log_ratios
  else own$log_ratios - proposal_constant(fit$posterior)
}

# For summary() and glance(): NULL where it would take long. A nested fit and a verdict have it already.
cheap_evidence <- function(fit) {
  if (is_prior(fit)) return(NULL)
  known <- !is.null(fit$nested) || !is.null(fit$verdict$log_ratios)
  if (known) return(evidence.elvi_fit(fit))
  if (is_user_density(fit$model) || is_out_of_memory(fit) || !fit$status %in% "finished") return(NULL)
  if (first_draws(fit$model) * length(fit$model$rows$y) * fit$model$dim > cheap_products) return(NULL)
  evidence.elvi_fit(fit)
}

cheap_products <- 1e8   # about a tenth of a second

# ---- what may be compared -----------------------------------------------------------------------------------

has_all_constants <- function(fit) !is.null(fit$nested) || is_regression(fit$given$model)

evidence_flat <- function(fit) {
  if (!is.null(fit$nested)) fit$nested$evidence$flat else flat_in_model(fit$model)
}

# A number that responses have in common with no others: of rows that count, in any order. NULL where they are not known.
response_print <- function(fit) {
  if (is.null(fit$regression)) return(NULL)
  if (is_out_of_memory(fit)) return(list(n = nobs.elvi_glm(fit), mark = NULL))
  y <- observed_response(fit) * response_trials(fit)
  counts <- rep_len(row_counts(fit) %||% 1, length(y))
  used <- counts > 0
  rows <- order(y[used], counts[used])
  list(n = sum(used), mark = key_for(c(0, 0), list(unname(y[used][rows]), unname(counts[used][rows]))))
}

same_responses <- function(a, b) {
  if (is.null(a) || is.null(b)) return(TRUE)   # a density does not say what it is of
  a$n == b$n && (is.null(a$mark) || is.null(b$mark) || identical(a$mark, b$mark))
}

# Evidences of fits, or of what they have returned, by the names of arguments. Refuses those that cannot be compared.
comparable_evidences <- function(models, labels) {
  found <- Map(as_evidence, models, labels)
  for (i in seq_along(found)) {
    if (isTRUE(found[[i]]$flat > 0)) {
      elvi_abort("`", labels[i], "` has ", found[[i]]$flat, " parameter(s) with a flat prior, so its evidence is defined up to a factor ",
                 "only. Give all parameters proper priors to compare models by evidence.",
                 class = "elvi_error_argument", data = list(argument = labels[i]))
    }
    if (!same_responses(found[[1L]]$data, found[[i]]$data)) {
      elvi_abort("`", labels[1L], "` and `", labels[i], "` are fits of different responses (", found[[1L]]$data$n, " and ",
                 found[[i]]$data$n, " rows). Evidences of different data cannot be compared.",
                 class = "elvi_error_argument", data = list(argument = labels[i]))
    }
  }
  doubtful <- labels[!vapply(found, function(e) isTRUE(e$reliable %||% TRUE), NA)]
  if (length(doubtful)) {
    elvi_warn("The evidence of ", paste0("`", doubtful, "`", collapse = ", "), " is not reliable: see evidence().",
              class = "elvi_warning_evidence")
  }
  unname(found)
}

as_evidence <- function(x, label) {
  if (inherits(x, "bridge")) return(x)
  if (inherits(x, "elvi_fit")) return(evidence.elvi_fit(x))
  named <- !grepl("[() ]", label, useBytes = TRUE)   # else it is the text of an expression in `...`
  bad_argument(if (named) label else "...", "a fit by elvi(), or its evidence()", describe(x))
}

#' @rdname evidence
#' @export
bayes_factor <- function(x1, x2, log = FALSE, ...) UseMethod("bayes_factor")

#' @rdname evidence
#' @export
post_prob <- function(x, ..., prior_prob = NULL, model_names = NULL) UseMethod("post_prob")

#' @export
bayes_factor.default <- function(x1, x2, log = FALSE, ...) hand_to_bridgesampling("bayes_factor", "x1", list(x1, x2, log = log, ...))

#' @export
post_prob.default <- function(x, ..., prior_prob = NULL, model_names = NULL) {
  hand_to_bridgesampling("post_prob", "x", list(x, ..., prior_prob = prior_prob, model_names = model_names))
}

hand_to_bridgesampling <- function(generic, name, arguments) {
  if (!has_package("bridgesampling")) bad_argument(name, "a fit by elvi(), or its evidence()", describe(arguments[[1L]]))
  # from elsewhere: called from here it would find the default methods above first
  do.call(getExportedValue("bridgesampling", generic), arguments, quote = TRUE, envir = asNamespace("bridgesampling"))
}

#' @rdname evidence
#' @export
#' @rawNamespace S3method(bridgesampling::bayes_factor, elvi_fit)
bayes_factor.elvi_fit <- function(x1, x2, log = FALSE, ...) {
  check_dots(list(...), names(formals()), "bayes_factor()")
  log <- check_flag(log, "log")
  if (missing(x2)) refuse_argument("x2", "`x2` is missing: bayes_factor() compares two fits.")
  models <- comparable_evidences(list(x1, x2), c("x1", "x2"))
  difference <- models[[1L]]$logml - models[[2L]]$logml
  structure(list(bf = if (log) difference else exp(difference), log = log,
                 se = sqrt(sum(vapply(models, function(e) e$se %||% NA_real_, 0)^2))), class = c("elvi_bayes_factor", "bf_bridge"),
            model_names = c(deparse_one(substitute(x1)), deparse_one(substitute(x2))))
}

#' @rdname evidence
#' @export
#' @rawNamespace S3method(bridgesampling::bayes_factor, elvi_evidence)
bayes_factor.elvi_evidence <- bayes_factor.elvi_fit

#' @rdname evidence
#' @export
#' @rawNamespace S3method(bridgesampling::post_prob, elvi_fit)
post_prob.elvi_fit <- function(x, ..., prior_prob = NULL, model_names = NULL) {
  given <- as.list(substitute(list(x, ...)))[-1L]
  named <- names(given) %||% rep("", length(given))
  models <- list(x, ...)
  labels <- ifelse(nzchar(named), named, vapply(given, deparse_one, ""))
  found <- comparable_evidences(models, labels)
  K <- length(found)
  prior <- if (is.null(prior_prob)) rep(1 / K, K) else check_vector(prior_prob, "prior_prob", K)
  if (any(prior < 0) || abs(sum(prior) - 1) > 1e-8) bad_argument("prior_prob", "probabilities that add to 1", describe(prior_prob))
  if (!is.null(model_names) && (!is.character(model_names) || length(model_names) != K)) {
    bad_argument("model_names", sprintf("%d names", K), describe(model_names))
  }
  stats::setNames(normalised(vapply(found, `[[`, 0, "logml") + log(prior)), make.unique(model_names %||% labels))
}

#' @rdname evidence
#' @export
#' @rawNamespace S3method(bridgesampling::post_prob, elvi_evidence)
post_prob.elvi_evidence <- post_prob.elvi_fit

# ---- generics of 'bridgesampling' that elvi has no copy of --------------------------------------------------

#' @rawNamespace S3method(bridgesampling::bridge_sampler, elvi_fit)
bridge_sampler.elvi_fit <- function(samples, ...) evidence.elvi_fit(samples)

#' @rawNamespace S3method(bridgesampling::bf, elvi_fit)
bf.elvi_fit <- bayes_factor.elvi_fit

#' @rawNamespace S3method(bridgesampling::bf, elvi_evidence)
bf.elvi_evidence <- bayes_factor.elvi_fit

#' @rawNamespace S3method(bridgesampling::logml, elvi_fit)
logml.elvi_fit <- function(x, ...) evidence.elvi_fit(x)$logml

#' @rawNamespace S3method(bridgesampling::error_measures, elvi_evidence)
error_measures.elvi_evidence <- function(bridge_object, ...) {
  list(re2 = bridge_object$se^2, cv = bridge_object$se, percentage = paste0(format(100 * bridge_object$se, digits = 2), "%"))
}

# ---- in words --------------------------------------------------------------------------------------------------

#' @export
print.elvi_evidence <- function(x, ...) {
  writeLines(folded(c(evidence_words(x), evidence_notes(x))))
  invisible(x)
}

evidence_words <- function(x) {
  number <- function(value) formatC(value, format = "f", digits = 2)
  if (identical(x$logml, x$bound)) {
    why <- if (identical(x$k, -Inf)) "quadrature; the conditional posteriors are exactly Gaussian"
           else "lower bound; no correction was made"
    return(sprintf("Log evidence: %s (%s)", number(x$bound), why))
  }
  sprintf("Log evidence: %s (importance-corrected; Monte Carlo error %s; lower bound %s)", number(x$logml),
          format(x$se, digits = 1), number(x$bound))
}

evidence_notes <- function(x) {
  c(if (isTRUE(x$quadrature_error >= 0.005)) sprintf("Quadrature error: %s nats (by coarser rules)",
                                                     format(x$quadrature_error, digits = 1)),
    if (!x$reliable) sprintf("The correction is not reliable (Pareto k-hat %s); the lower bound holds", format(x$k, digits = 2)),
    flat_line(x$flat),
    if (x$constants == "as given") "Of the density as it was given: the log evidence only if that has all constants")
}

#' @export
print.elvi_bayes_factor <- function(x, digits = 4, ...) {
  check_digits(digits)
  names <- attr(x, "model_names")
  value <- if (x$log) x$bf else log(x$bf)
  cat(sprintf("Bayes factor in favour of %s over %s: %s (logarithm %s, Monte Carlo error %s)\n", names[1L], names[2L],
              format(exp(value), digits = digits), format(value, digits = digits), format(x$se, digits = 1)))
  invisible(x)
}
