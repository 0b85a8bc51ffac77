#' Cross-validation
#'
#' `loo()`, `waic()` and `kfold()` of package 'loo' for regressions. `loo()` approximates leave-one-out cross-validation by Pareto-smoothed
#' importance sampling of the fit's draws. `kfold()` leaves out several rows at a time and fits the model again.
#'
#' `loo(fit, refit = TRUE)` fits the model again without each row whose Pareto k is above `k_threshold`, and replaces that row's
#' results, as `reloo()` does in other packages: its k becomes 0. A refit takes about as long as the fit.
#'
#' Rows that are left out count zero times. The design and the priors stay those of the whole data, also where priors were scaled to
#' the data, so the refit is the same model. The effects of a level without rows then have their prior given the standard
#' deviation, which is what a prediction for a new level needs. Stochastic fits are refitted from their formula instead and need
#' their `data` to be a data frame.
#'
#' @section Counts with group-level terms:
#' `loo()` treats the draws of a fit with [group-level terms][group_terms] as draws of the posterior. Given the hyperparameters they
#' are gaussian, and the posterior of an effect that few counts inform has a longer tail on one side. Leaving out a large
#' count probably moves its effect into that tail, so that such a row can be wrong at a Pareto k below 0.7. If groups are
#' small, lower `k_threshold`, for example to 0.3, or use `k_threshold = -Inf` to refit all rows.
#'
#' @param x a fit by [elvi()] from a formula.
#' @param draws number of draws.
#' @param seed optional number: draws other than the fit's own.
#' @param refit fit again without rows whose Pareto k is above `k_threshold`?
#' @param k_threshold a number; `-Inf` refits all rows.
#' @param K number of folds.
#' @param folds optional: for each row of the fit the number of its fold, or the name of a grouping variable, whose levels are then
#'   left out as a whole. By default rows are assigned to folds at random.
#' @param ... for `loo()` and `waic()` passed on to package 'loo'; else nothing: unknown names are errors.
#' @return Objects of package 'loo'.
#' @examples
#' if (requireNamespace("loo", quietly = TRUE)) {
#'   fit <- elvi(am ~ wt, data = mtcars, family = binomial())
#'   print(loo::loo(fit, refit = TRUE))
#'   herds <- elvi(count ~ spray + (1 | block), family = poisson(),
#'                 data = transform(InsectSprays, block = rep(1:12, 6)))
#'   print(loo::kfold(herds, K = 4, folds = "block"))
#' }
#' @name cross_validation
NULL

#' @rdname cross_validation
#' @exportS3Method loo::loo
loo.elvi_glm <- function(x, draws = 2000, seed = NULL, refit = FALSE, k_threshold = 0.7, ...) {
  need_package("loo", "loo()")
  refit <- check_flag(refit, "refit")
  if (!is.numeric(k_threshold) || length(k_threshold) != 1L || is.na(k_threshold)) {
    bad_argument("k_threshold", "a number", describe(k_threshold))
  }
  key <- fit_key(x, seed)
  draws <- check_draws(draws, max(nobs.elvi_glm(x), posterior_dim(x$posterior)), lower = 2)
  if (!refit) return(psis_loo(x, draws, key, ...))
  check_in_memory(x)
  out <- suppressWarnings(psis_loo(x, draws, key, ...))   # which are about the rows that are fitted again
  replaced_by_refits(out, x, which(loo::pareto_k_values(out) > k_threshold), draws, key)
}

psis_loo <- function(x, draws, key, ...) {
  if (!is.null(x$posterior$hyper)) {   # the density of hyperparameters between quadrature points is not known
    log_lik <- log_lik_at(x, posterior_draws(x$posterior, draws, key), key)
    return(loo::loo(log_lik, r_eff = rep(1, ncol(log_lik)), ...))
  }
  drawn <- draws_with_ratios(x, draws, key)
  log_lik <- log_lik_at(x, list(x = in_user_rows(x$posterior, drawn$x)), key)
  loo::loo_approximate_posterior(log_lik, log_p = drawn$log_p, log_g = drawn$log_q, ...)
}

# A 'loo' object with the results of some rows replaced by those of fits without them, as in reloo().
replaced_by_refits <- function(out, x, which, draws, key) {
  for (i in which) {
    lpd <- out$pointwise[i, "elpd_loo"] + out$pointwise[i, "p_loo"]   # with the row
    elpd <- log_mean_exp(held_out_log_lik(x, i, draws, key))
    out$pointwise[i, c("elpd_loo", "p_loo", "looic")] <- c(elpd, lpd - elpd, -2 * elpd)
    if ("mcse_elpd_loo" %in% colnames(out$pointwise)) out$pointwise[i, "mcse_elpd_loo"] <- 0
  }
  out$diagnostics$pareto_k[which] <- 0
  out$diagnostics$n_eff[which] <- draws
  table <- out$pointwise[, c("elpd_loo", "p_loo", "looic"), drop = FALSE]
  out$estimates[] <- cbind(colSums(table), column_errors(table))
  shortcuts <- c("elpd_loo", "p_loo", "looic")   # older names of the same numbers
  out[shortcuts] <- as.list(out$estimates[shortcuts, 1L])
  out[paste0("se_", shortcuts)] <- as.list(out$estimates[shortcuts, 2L])
  structure(out, refitted = which)
}

column_errors <- function(table) sqrt(nrow(table) * apply(table, 2L, stats::var))

#' @rdname cross_validation
#' @exportS3Method loo::waic
waic.elvi_glm <- function(x, draws = 2000, ...) {
  need_package("loo", "waic()")
  loo::waic(log_lik(x, draws = check_count(draws, "draws", lower = 2)), ...)
}

#' @rdname cross_validation
#' @exportS3Method loo::kfold
kfold.elvi_glm <- function(x, K = 10, folds = NULL, draws = 1000, ...) {
  need_package("loo", "kfold()")
  check_dots(list(...), names(formals()), "kfold()")
  check_in_memory(x)
  n <- nobs.elvi_glm(x)
  draws <- check_draws(draws, max(n, posterior_dim(x$posterior)), lower = 2)
  folds <- if (is.character(folds)) level_folds(folds, K, x) else check_folds(folds, K, n)
  key <- fit_key(x)
  elpd <- numeric(n)
  for (k in unique(folds)) {
    out <- which(folds == k)
    elpd[out] <- log_mean_exp(held_out_log_lik(x, out, draws, key))
  }
  new_kfold(elpd, log_mean_exp(log_lik(x, draws = draws)), folds, class(x)[1L])
}

check_folds <- function(folds, K, n) {
  if (is.null(folds)) {
    K <- check_count(K, "K", lower = 2, upper = n)
    return(sample(rep_len(seq_len(K), n)))
  }
  folds <- check_vector(folds, "folds", n)
  if (length(unique(folds)) < 2L) bad_argument("folds", "of at least two different folds", "all the same")
  folds
}

# Rows of a level are in the same fold.
level_folds <- function(name, K, fit) {
  if (length(name) != 1L || !name %in% names(fit$frame)) {
    bad_argument("folds", "the number of each row's fold, or the name of a variable of the formula", describe(name))
  }
  level <- match(fit$frame[[name]], unique(fit$frame[[name]]))
  K <- check_count(K, "K", lower = 2)
  if (max(level) < 2L) bad_argument("folds", "a variable with at least two levels", describe(name))
  sample(rep_len(seq_len(min(K, max(level))), max(level)))[level]
}

# ---- fits without some rows ---------------------------------------------------------------------------------

# Log likelihoods, draws x rows, of the rows `out` under a fit of the others.
held_out_log_lik <- function(fit, out, draws, key) {
  if (fit$method == "mpsgd") {
    data <- data_of(fit)
    return(log_lik(refitted(fit, data[-out, , drop = FALSE]), data[out, , drop = FALSE], draws = draws))
  }
  other <- without_rows(fit, out)
  log_lik_at(other, posterior_draws(other$posterior, draws, key), key, only_rows(observed_rows(fit), out))
}

only_rows <- function(rows, which) {
  design <- rows$design
  design$X <- design$X[which, , drop = FALSE]
  if (!is.null(design$Z)) design$Z <- design$Z[which, , drop = FALSE]
  design$offset <- design$offset[which]
  c(list(design = design), lapply(rows[c("y", "trials", "precision", "counts")], `[`, which))
}

# The same design and priors, with rows that count zero times; the constant of the likelihood is still that of all rows. R's
# generator is left as it was.
without_rows <- function(fit, out) {
  counts <- row_counts(fit) %||% rep(1, nobs.elvi_glm(fit))
  if (sum(counts[-out]) == 0) {
    bad_argument("folds", "such that every fold leaves rows that count", "one that leaves none")
  }
  if (is.null(fit$nested)) {
    model <- fit$given$model
    model$rows$weight[out] <- 0
    refit <- with_key(fit$plan$seed, elvi.elvi_model(model, base = fit$base, method = "exact", control = fit$control))
    fit$given$model <- model
  } else {
    problem <- fit$given$problem
    problem$frequency <- replace(rep_len(problem$frequency %||% 1, nrow(problem$X)), out, 0)
    problem$count <- problem$count - sum(counts[out])
    problem["triangle"] <- list(NULL)
    nested <- nested_fit(problem, fit$base, fit$control[c("nodes", "progress")])
    posterior <- nested_posterior(nested, problem, fit$posterior$key)
    refit <- list(result = utils::modifyList(fit$result, list(nested = nested_account(nested), converged = nested$converged)))
    refit$result$posterior <- correct_nested(posterior)
    fit$given$problem <- problem
  }
  fit$result <- refit$result
  fit
}

# the rows that were fitted, as the user gave them
data_of <- function(fit) {
  data <- eval(fit$call$data, environment(fit$formula))
  at <- if (is.data.frame(data)) match(rownames(fit$frame), rownames(data))
  if (is.null(at) || anyNA(at)) bad_argument("x", "a fit whose `data` are a data frame that is still there", "another")
  data[at, , drop = FALSE]
}

# on other rows, `subset` having been applied
refitted <- function(fit, data) {
  call <- fit$call
  call$subset <- NULL
  call$data <- data
  # as they were, wherever the fit was made
  known <- list(family = fit$family, prior = fit$priors$prior, prior_intercept = fit$priors$prior_intercept)
  for (name in intersect(names(known), names(call))) call[[name]] <- known[[name]]
  call[[1L]] <- quote(elvi::elvi)
  eval(call, environment(fit$formula))
}

log_mean_exp <- function(x) {
  top <- apply(x, 2L, max)
  top + log(colMeans(exp(x - rep(top, each = nrow(x)))))
}

new_kfold <- function(elpd, lpd, folds, label) {
  pointwise <- cbind(elpd_kfold = elpd, p_kfold = lpd - elpd, kfoldic = -2 * elpd)
  sums <- colSums(pointwise)
  errors <- column_errors(pointwise)
  structure(list(estimates = cbind(Estimate = sums, SE = errors), pointwise = pointwise,
                 elpd_kfold = sums[[1L]], p_kfold = sums[[2L]], se_elpd_kfold = errors[[1L]], se_p_kfold = errors[[2L]]),
            K = length(unique(folds)), folds = folds, dims = length(elpd), model_name = label,
            class = c("kfold", "loo"))
}
