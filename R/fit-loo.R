#' Cross-validation
#'
#' `loo()` and `waic()` estimate how well a regression predicts new rows, by package 'loo', without fitting the model again. `kfold()`
#' leaves out several rows at a time and fits the model again. Use them to compare models.
#'
#' `loo()` approximates leave-one-out cross-validation by Pareto-smoothed importance sampling of the fit's draws.
#'
#' `loo(fit, refit = TRUE)` fits the model again without each row whose Pareto k is above `k_threshold`, and replaces that row's
#' results, as `reloo()` does in other packages: its k becomes 0. A refit takes about as long as the fit.
#'
#' A refit gives the rows that are left out a frequency of zero. Design and priors stay those of the whole data, also where
#' priors were scaled to the data, so the refit is the same model. If a level loses all its rows, its effects have their prior
#' given the standard deviation, as those of a new level. Stochastic fits are refitted from their formula instead and need their
#' `data` to be a data frame.
#'
#' `anova()` of two or more fits compares them by `loo::loo_compare()`.
#'
#' @section Rows with a high Pareto k:
#' Importance sampling leaves out a row by weighting draws with the inverse of its likelihood. A row that is unusual in its
#' group needs draws from the far tail of the group's effect, of which even exact draws of the posterior have too few. Its
#' result is then too high, sometimes at a Pareto k below 0.7. Where the posterior is corrected (see [correction]), `loo()`
#' therefore replaces importance sampling for rows with a Pareto k above 0.2. It integrates over the predictor of the row, whose
#' density without the row is its density with the row, divided by the row's likelihood. The k of such rows is reported as 0,
#' and the attribute `"integrated"` has their row numbers. `profile = FALSE` keeps the results of importance sampling. They are
#' also kept for data larger than memory.
#'
#' @param x,object a fit by [elvi()] from a formula.
#' @param draws number of draws.
#' @param seed optional number: draws other than the fit's own.
#' @param profile compute rows with a high Pareto k by an integral over their predictor, where that is possible?
#' @param refit fit again without rows whose Pareto k is above `k_threshold`?
#' @param k_threshold a number; `-Inf` refits all rows.
#' @param K number of folds.
#' @param folds optional: the fold of each row of the fit, or the name of a grouping variable, whose levels are then left out as
#'   a whole. By default rows are assigned to folds at random. For data larger than memory, `"chunk"` leaves out whole chunks,
#'   such as files or shards, in turn. Each fold then takes several passes over the data, and all folds start from the sample of
#'   one first pass.
#' @param ... for `anova()` further fits; for `loo()` and `waic()` passed on to package 'loo'. Otherwise not used: unknown names are errors.
#' @return Objects of package 'loo'.
#' @examples
#' if (requireNamespace("loo", quietly = TRUE)) {
#'   fit <- elvi(am ~ wt, data = mtcars, family = binomial())
#'   print(loo::loo(fit, refit = TRUE))
#'   print(anova(fit, update(fit, . ~ . + hp)))
#'   herds <- elvi(count ~ spray + (1 | block), family = poisson(),
#'                 data = transform(InsectSprays, block = rep(1:12, 6)))
#'   print(loo::kfold(herds, K = 4, folds = "block"))
#' }
#' @name cross_validation
NULL

#' @rdname cross_validation
#' @exportS3Method loo::loo
loo.elvi_glm <- function(x, draws = 2000, seed = NULL, refit = FALSE, k_threshold = 0.7, profile = TRUE, ...) {
  check_dots(list(...), c(names(formals()), passed_to_loo), "loo()", ignored = passed_to_loo)
  refuse_prior(x, "x", "the prior has not seen the data that are to be left out")
  need_package("loo", "loo()")
  profile <- check_flag(profile, "profile")
  refit <- check_flag(refit, "refit")
  if (!is.numeric(k_threshold) || length(k_threshold) != 1L || is.na(k_threshold)) {
    bad_argument("k_threshold", "a number", describe(k_threshold))
  }
  key <- fit_key(x, seed)
  rows <- if (is_out_of_memory(x)) 1 else nobs.elvi_glm(x)   # those of a chunk at a time
  draws <- check_draws(draws, max(rows, posterior_dim(x$posterior)), lower = 2)
  if (refit) check_in_memory(x)
  out <- if (refit || profile) suppressWarnings(psis_loo(x, draws, key, ...)) else psis_loo(x, draws, key, ...)
  if (profile) out <- integrated_rows(out, x)
  if (!refit) {
    if (profile || is_out_of_memory(x)) warn_of_high_k(out)
    return(out)
  }
  replaced_by_refits(out, x, which(loo::pareto_k_values(out) > k_threshold), draws, key)
}

#' @rdname cross_validation
#' @rawNamespace S3method(stats::anova, elvi_glm)
anova.elvi_glm <- function(object, ...) {
  fits <- list(object, ...)
  names(fits) <- vapply(as.list(match.call(expand.dots = TRUE))[-1L], deparse_one, "")
  if (length(fits) < 2L) {
    refuse_argument("object", "There is no analysis of variance of one posterior. anova(fit1, fit2) compares fits by leave-one-out ",
                    "cross-validation, bayes_factor(fit1, fit2) by their evidence.")
  }
  for (name in names(fits)) {
    check_class(fits[[name]], "...", "elvi_glm", "elvi() from a formula")
    check_same_rows(fits[[name]], object, name)
  }
  need_package("loo", "anova()")
  loo::loo_compare(lapply(fits, loo.elvi_glm))
}

# the same responses in the same order
check_same_rows <- function(fit, first, name) {
  same <- nobs.elvi_glm(fit) == nobs.elvi_glm(first) &&
    (is_out_of_memory(fit) || is_out_of_memory(first) || isTRUE(all.equal(displayed_response(fit)$y, displayed_response(first)$y,
                                                                         check.attributes = FALSE)))
  if (!same) refuse_argument("...", "`", name, "` has other responses than the first fit. Fit all models to the same rows.")
}

# arguments of loo::loo.array() and loo::psis()
passed_to_loo <- c("r_eff", "save_psis", "cores", "is_method")

psis_loo <- function(x, draws, key, ...) {
  if (is_out_of_memory(x)) return(loo_in_passes(x, draws, key, ...))
  drawn <- draws_with_ratios(x, draws, key)
  if (is.null(drawn)) {
    log_lik <- log_lik_at(x, posterior_draws(x$posterior, draws, key), key)
    return(loo::loo(log_lik, r_eff = rep(1, ncol(log_lik)), ...))
  }
  log_lik <- log_lik_at(x, list(x = in_user_rows(x$posterior, drawn$x)), key)
  loo::loo_approximate_posterior(log_lik, log_p = drawn$log_p, log_g = drawn$log_q, ...)
}

# The same of data larger than memory: chunk by chunk, of which only a few numbers for each row are kept.
loo_in_passes <- function(x, draws, key, ...) {
  drawn <- draws_with_ratios(x, draws, key)
  weigh <- if (!is.null(drawn)) list(log_p = drawn$log_p, log_g = drawn$log_q)
  given <- if (is.null(drawn)) posterior_draws(x$posterior, draws, key) else list(x = in_user_rows(x$posterior, drawn$x))
  table <- t(at_chunks(x, "loo_of_chunk", list(drawn = given, key = key, weigh = weigh, further = list(...)))[[1L]])
  out <- suppressWarnings(chunk_loo(outer(seq_len(draws), 1:2, function(i, j) sin(i * j)), weigh, list(...)))   # for its form
  last <- ncol(table) - 1:0
  out$pointwise <- table[, -last, drop = FALSE]
  out$diagnostics[c("pareto_k", "n_eff")] <- list(table[, last[1L]], table[, last[2L]])
  if (!is.null(out$diagnostics$r_eff)) out$diagnostics$r_eff <- rep(1, nrow(table))
  attr(out, "dims") <- as.integer(c(draws, nrow(table)))
  replaced_rows(out, integer(), numeric(), numeric())
}

chunk_loo <- function(log_lik, weigh, further) {
  if (is.null(weigh)) return(do.call(loo::loo, c(list(log_lik, r_eff = rep(1, ncol(log_lik))), further)))
  do.call(loo::loo_approximate_posterior, c(list(log_lik), weigh, further))
}

# of a fit of a chunk, see at_chunks(): a column for each row
loo_of_chunk <- function(x, drawn, key, weigh, further) {
  found <- suppressWarnings(chunk_loo(log_lik_at(x, drawn, key), weigh, further))
  list(rbind(t(found$pointwise), found$diagnostics$pareto_k, found$diagnostics$n_eff))
}

# as loo() itself warns, of the rows that are left
warn_of_high_k <- function(out, limit = 0.7) {
  high <- sum(loo::pareto_k_values(out) > limit)
  if (!high) return(invisible())
  elvi_warn("The Pareto k of ", high, if (high == 1L) " row is" else " rows is", " above ", limit,
            ", so importance sampling is not reliable there. Use loo(refit = TRUE).", class = "elvi_warning_pareto_k")
}

# A 'loo' object with the results of some rows replaced by those of fits without them, as in reloo().
replaced_by_refits <- function(out, x, which, draws, key) {
  elpd <- vapply(which, function(i) log_mean_exp(held_out_log_lik(x, i, draws, key)), 0)
  structure(replaced_rows(out, which, elpd, draws), refitted = which)
}

replaced_rows <- function(out, which, elpd, effective) {
  lpd <- out$pointwise[which, "elpd_loo"] + out$pointwise[which, "p_loo"]   # with the row
  out$pointwise[which, c("elpd_loo", "p_loo", "looic")] <- c(elpd, lpd - elpd, -2 * elpd)
  if ("mcse_elpd_loo" %in% colnames(out$pointwise)) out$pointwise[which, "mcse_elpd_loo"] <- 0
  if ("influence_pareto_k" %in% colnames(out$pointwise)) out$pointwise[which, "influence_pareto_k"] <- 0
  out$diagnostics$pareto_k[which] <- 0
  out$diagnostics$n_eff[which] <- effective
  table <- out$pointwise[, c("elpd_loo", "p_loo", "looic"), drop = FALSE]
  out$estimates[] <- cbind(colSums(table), column_errors(table))
  shortcuts <- c("elpd_loo", "p_loo", "looic")   # older names of the same numbers
  out[shortcuts] <- as.list(out$estimates[shortcuts, 1L])
  out[paste0("se_", shortcuts)] <- as.list(out$estimates[shortcuts, 2L])
  out
}

# ---- rows left out by an integral over their predictor ----------------------------------------------------------

# Nodes reach as far as the density of the predictor without the row may.
held_out_settings <- list(most = 30L, steps = 4L, width = 1.2, drop = 60, gain = 1e-3)

# Above so many expectations of a row they take longer than people wait.
most_held_out <- 3e7

integrated_rows <- function(out, x, least_k = 0.2) {
  posterior <- x$posterior
  plan <- profiled_target(posterior)$plan
  if (is.null(plan) || is_out_of_memory(x)) return(out)
  if (!is.null(plan$joint) || !is.null(x$pieces)) return(out)   # a profile is along one predictor
  k <- loo::pareto_k_values(out)
  cost <- 80 * plan$rows
  which <- utils::head(order(k, decreasing = TRUE), max(0, most_held_out %/% (5 * cost)))
  which <- which[k[which] > least_k]
  if (!length(which)) return(out)
  elpd <- held_out_density(x, which, max(5, most_held_out %/% (cost * length(which))))
  found <- is.finite(elpd)
  if (!any(found)) return(out)
  structure(replaced_rows(out, which[found], elpd[found], NA_real_), integrated = which[found])
}

# log p(y_i | the others) = -log E[1 / p(y_i | eta_i)] over the density of eta_i, for rows i; NA where its nodes do not reach far enough
held_out_density <- function(x, which, most) {
  posterior <- x$posterior
  rows <- only_rows(observed_rows(x), which)
  W <- as.matrix(design_columns(rows$design))
  a <- t(centre_rows(posterior, W))
  chosen <- main_components(posterior, most, least = 1e-3)
  weight <- as.vector(rowsum(posterior$weight, nearest_of(posterior, chosen)))
  each <- vapply(chosen, function(k) {
    found <- profiles(target_of(posterior, k), a, means = FALSE, settings = held_out_settings)
    if (is.null(found)) return(rep(NA_real_, length(which)))
    vapply(seq_along(which), function(i) inverse_likelihood(x, rows, i, k, found), 0)
  }, numeric(length(which)))
  each <- matrix(each, length(which))
  top <- row_max(ifelse(is.na(each), -Inf, each))
  -(top + log(drop(exp(each - top) %*% weight)))
}

# log E[1 / p(y_i | eta_i)] at component k
inverse_likelihood <- function(x, rows, i, k, found, fine = 8L) {
  used <- is.finite(found$value[i, ])
  t <- profile_nodes(held_out_settings)[used]
  grid <- seq(t[1L], t[length(t)], length.out = fine * (length(t) - 1L) + 1L)
  log_p <- stats::spline(t, found$value[i, used], xout = grid)$y
  eta <- found$at[i] + rows$design$offset[i] + found$sd[i] * grid
  without <- log_p - row_log_lik(x, rows, i, eta, k)
  if (!all(is.finite(without)) || max(without[c(1L, length(grid))]) > max(without) - 5) return(NA_real_)
  log_sum(without) - log_sum(log_p)
}

# of row i at predictors eta and the family's parameters at component k
row_log_lik <- function(x, rows, i, eta, k) {
  names <- family_parameter_names(x)
  dispersion <- if (!length(names)) known_dispersion(x)
                else if (is_nested_only(x$family)) component_hyper(x$posterior)[k, names, drop = FALSE]
                else component_hyper(x$posterior)[k, names]
  if (!is.null(rows$precision)) dispersion <- dispersion / sqrt(rows$precision[i])
  n <- length(eta)
  value <- family_record(x$family)$log_lik(rep(rows$y[i], n), expected_response(x, matrix(eta)), dispersion, rep(rows$trials[i], n),
                                           x$family)
  drop(value) * (rows$counts[i] %||% 1)
}

column_errors <- function(table) sqrt(nrow(table) * apply(table, 2L, stats::var))

#' @rdname cross_validation
#' @exportS3Method loo::waic
waic.elvi_glm <- function(x, draws = 2000, ...) {
  refuse_prior(x, "x", "the prior has not seen the data that are to be left out")
  need_package("loo", "waic()")
  loo::waic(log_lik(x, draws = check_count(draws, "draws", lower = 2)), ...)
}

#' @rdname cross_validation
#' @exportS3Method loo::kfold
kfold.elvi_glm <- function(x, K = 10, folds = NULL, draws = 1000, ...) {
  refuse_prior(x, "x", "the prior has not seen the data that are to be left out")
  need_package("loo", "kfold()")
  check_dots(list(...), names(formals()), "kfold()")
  n <- stats::nobs(x)
  draws <- check_draws(draws, max(if (is_out_of_memory(x)) 1 else n, posterior_dim(x$posterior)), lower = 2)
  if (is_out_of_memory(x)) return(kfold_in_passes(x, K, folds, draws))
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
  if (length(unique(folds)) < 2L) refuse_argument("folds", "`folds` puts all rows in one fold. At least two are needed.")
  folds
}

# Rows of a level are in the same fold.
level_folds <- function(name, K, fit) {
  if (length(name) != 1L || !name %in% names(fit$frame)) {
    bad_argument("folds", "the number of each row's fold, or the name of a variable of the formula", describe(name))
  }
  of <- fit$frame[[name]]
  if (!is.null(fit$pieces)) of <- of[!duplicated(fit$pieces$of)]
  level <- match(of, unique(of))
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
  out <- rows_of_observations(fit, out)
  other <- without_rows(fit, out)
  log_lik_at(other, posterior_draws(other$posterior, draws, key), key, only_rows(observed_rows(fit), out))
}

only_rows <- function(rows, which) {
  of <- rows$of[which]
  c(list(design = chosen_rows(rows$design, which)), lapply(rows[c("y", "trials", "precision", "counts")], `[`, which),
    if (!is.null(of)) list(of = of, names = rows$names[unique(of)]))
}

# The same design and priors, with rows that count zero times; the constant of the likelihood is still that of all rows. R's
# generator is left as it was.
without_rows <- function(fit, out) {
  counts <- row_counts(fit) %||% rep(1, nobs.elvi_glm(fit))
  if (sum(counts[-out]) == 0) {
    refuse_argument("folds", "A fold of `folds` holds every row that counts, so none is left to fit.")
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
    weighed <- reweigh_nested(nested, correct_nested(posterior))
    refit <- list(result = utils::modifyList(fit$result, list(nested = nested_account(weighed$nested), converged = nested$converged)))
    refit$result$posterior <- weighed$posterior
    fit$given$problem <- problem
  }
  fit$result <- refit$result
  fit
}

# the rows that were fitted, as the user gave them
data_of <- function(fit) {
  data <- eval(fit$call$data, environment(fit$formula))
  at <- if (is.data.frame(data)) match(rownames(fit$frame), rownames(data))
  if (is.null(at) || anyNA(at)) {
    refuse_argument("x", "`x`: the fit has to be repeated, and its data frame no longer exists or has other rows.")
  }
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
