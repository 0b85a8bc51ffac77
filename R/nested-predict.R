#' Predictions from fits with group-level and smooth terms
#'
#' As [predict.elvi_glm()], for new rows with known groups, with new ones, or with none.
#'
#' Means and standard deviations of `predict()` are those of the mixture over the nodes and need no draws. Draws are
#' the same in every call: row `i` of `posterior_linpred()`, `posterior_epred()`, `posterior_predict()`, `log_lik()`
#' and `as.matrix()` belongs to the same draw of all parameters.
#'
#' @param object,x a fit by [elvi()] whose formula has [group-level terms][group_terms].
#' @param newdata optional data frame. Without it, the data of the fit.
#' @param type `"link"` or `"response"`.
#' @param se.fit also return posterior standard deviations?
#' @param re.form `NULL` for all group-level terms, `NA` or `~ 0` for none, or a one-sided formula with the terms to
#'   keep, such as `~ (1 | g)`. Smooth terms always stay. `re_formula`, as 'brms' calls it, is understood too.
#' @param allow_new_levels what to do with levels of a grouping factor that the data did not have: an error, or
#'   effects from the population (`TRUE`), whose standard deviations are part of the posterior.
#' @param interval,level,offset,draws,ndraws,seed,trials see [predict.elvi_glm()].
#' @param ... nothing: unknown names are errors; for `loo()` passed on.
#' @return As for [predict.elvi_glm()].
#' @examples
#' \donttest{
#' if (requireNamespace("reformulas", quietly = TRUE)) {
#'   fit <- elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson())
#'   new <- data.frame(tension = "L", wool = c("A", "C"))
#'   predict(fit, new, type = "response", se.fit = TRUE, allow_new_levels = TRUE)
#'   predict(fit, new, type = "response", re.form = NA)
#' }
#' }
#' @name predict.elvi_nested
NULL

# ---- rows ---------------------------------------------------------------------------------------

# What a row of data is in terms of coefficients and effects: X, Z, offset, and for each term the rows of new levels:
# list(term, rows, level (an index), M).
nested_rows <- function(object, newdata, re.form = NULL, allow_new_levels = FALSE, offset = NULL) {
  keep <- kept_terms(object, re.form)
  if (is.null(newdata)) check_in_memory(object)
  frame <- if (is.null(newdata)) object$frame else new_frame(object, newdata, keep)
  X <- stats::model.matrix(stats::delete.response(object$terms), frame, contrasts.arg = object$contrasts)
  parts <- lapply(object$smooths, smooth_columns, frame)
  X <- do.call(cbind, c(list(X), lapply(parts, `[[`, "free")))
  colnames(X) <- colnames(object$problem$X)
  blocks <- list()
  new <- list()
  for (i in seq_along(object$groups)) {
    term <- object$groups[[i]]
    if (!term_record(term)$by_level) next
    if (!keep[i]) {
      blocks[[i]] <- Matrix::sparseMatrix(i = integer(), j = integer(), dims = c(nrow(X), length(term$columns)))
      next
    }
    M <- slope_matrix(term$slopes, frame, term$contrasts)
    index <- level_index(term, frame)
    blocks[[i]] <- group_columns(term, M, index)
    if (anyNA(index)) new <- c(new, list(new_levels(term, frame, M, index, allow_new_levels)))
  }
  Z <- sparse_columns(c(blocks, lapply(do.call(c, lapply(parts, `[[`, "penalised")), methods::as, "dMatrix")), nrow(X))
  rownames(X) <- rownames(frame)
  list(X = X, Z = Z, offset = row_offset(object, frame, newdata, offset), new = new)
}

# which terms `re.form` keeps
kept_terms <- function(object, re.form) {
  by_level <- has_levels(object$groups)
  if (is.null(re.form)) return(rep(TRUE, length(by_level)))
  if (length(re.form) == 1L && is.atomic(re.form) && is.na(re.form)) return(!by_level)
  if (!inherits(re.form, "formula") || length(re.form) != 2L) {
    bad_argument("re.form", "NULL, NA or a one-sided formula such as ~ (1 | g)", describe(re.form))
  }
  if (identical(re.form[[2L]], 0)) return(!by_level)
  asked <- structured_formula(re.form)$bars
  key <- function(label, slopes) paste(label, deparse_one(slopes))
  asked <- vapply(asked, function(bar) key(bar$label, bar$slopes), "")
  mine <- character(length(by_level))
  mine[by_level] <- vapply(object$groups[by_level], function(term) key(term$label, term$slopes[[2L]]), "")
  unknown <- setdiff(asked, mine)
  if (!length(asked) || length(unknown)) {
    bad_argument("re.form", "a formula with group-level terms of the fit, as written there", deparse_one(re.form))
  }
  !by_level | mine %in% asked
}

# The model frame of new data. Grouping factors may have any values; all other factors those of the fit.
new_frame <- function(object, newdata, keep) {
  if (!is.data.frame(newdata) && !is_plain_list(newdata)) bad_argument("newdata", "a data frame", describe(newdata))
  terms <- stats::delete.response(attr(object$frame, "terms"))
  grouping <- unlist(lapply(group_terms_of(object), `[[`, "group"))
  newdata <- reading(as.data.frame(newdata, optional = TRUE), "newdata", "it is no data frame")
  absent <- unlist(lapply(object$groups[!keep], `[[`, "group"))
  for (name in setdiff(absent, names(newdata))) newdata[[name]] <- rep(NA_character_, nrow(newdata))
  fixed <- all_variable_names(stats::delete.response(object$terms))
  levels <- stats::.getXlevels(terms, object$frame)
  levels <- levels[setdiff(names(levels), setdiff(grouping, fixed))]
  frame <- reading(stats::model.frame(terms, newdata, na.action = stats::na.pass, xlev = levels),
                   "newdata", "the variables of the formula cannot be read from it")
  classes <- attr(terms, "dataClasses")
  classes <- classes[setdiff(names(classes), setdiff(grouping, fixed))]
  reading(stats::.checkMFClasses(classes, frame), "newdata", "a variable is not of the type it was fitted with")
  frame
}

new_levels <- function(term, frame, M, index, allowed) {
  rows <- which(is.na(index))
  labels <- do.call(paste, c(lapply(term$group, function(name) as.character(frame[[name]])[rows]), sep = ":"))
  if (!check_flag(allowed, "allow_new_levels")) {
    bad_argument("newdata", paste0("free of levels of `", term$label,
                                   "` that the data did not have, unless allow_new_levels = TRUE"),
                 paste("one with", describe(labels[1L])))
  }
  list(term = term, rows = rows, labels = unique(labels), level = match(labels, unique(labels)),
       M = M[rows, , drop = FALSE])
}

row_offset <- function(object, frame, newdata, offset) {
  n <- nrow(frame)
  if (is.null(newdata)) return(stats::model.offset(object$frame) %||% numeric(n))
  within <- stats::model.offset(frame)
  outside <- object$call$offset
  if (!is.null(offset)) {
    outside <- check_vector(offset, "offset", n)
  } else if (!is.null(outside)) {
    outside <- tryCatch(eval(outside, newdata, environment(object$formula)), error = function(e) NULL)
    if (is.null(outside) || length(outside) != n) {
      bad_argument("offset", "given for `newdata`: the fit had one outside its formula", "NULL")
    }
  }
  (within %||% 0) + (outside %||% 0) + numeric(n)
}

# ---- means and standard deviations -------------------------------------------------------------------

# Node by node, mean and standard deviation of X b + Z u for coefficients of the original predictors: rows x nodes.
node_functionals <- function(object, X, Z) {
  K <- length(object$nested$nodes)
  W <- cbind(methods::as(X %*% as_reported(object), "CsparseMatrix"), Z)
  complete <- which(is.finite(Matrix::rowSums(W)))
  W <- W[complete, , drop = FALSE]
  mean <- variance <- matrix(NA_real_, nrow(X), K)
  for (k in seq_len(K)) {
    mean[complete, k] <- as.double(W %*% object$nested$nodes[[k]]$mu)
    variance[complete, k] <- node_variance(object$nested, k, W)
  }
  list(mean = mean, sd = sqrt(variance))
}

# the linear predictor, with effects of new levels
node_predictors <- function(object, rows) {
  at <- node_functionals(object, rows$X, rows$Z)
  at$mean <- at$mean + rows$offset
  for (new in rows$new) {
    V <- covariance_draws(new$term, object$hyper)
    for (k in seq_len(ncol(at$sd))) {
      extra <- rowSums((new$M %*% matrix(V[, , k], ncol(new$M))) * new$M)
      at$sd[new$rows, k] <- sqrt(at$sd[new$rows, k]^2 + extra)
    }
  }
  at
}

mixture_of_rows <- function(at, weight) {
  mean <- drop(at$mean %*% weight)
  list(mean = mean, sd = sqrt(drop((at$sd^2 + (at$mean - mean)^2) %*% weight)))
}

#' @rdname predict.elvi_nested
#' @export
predict.elvi_nested <- function(object, newdata = NULL, type = c("link", "response"), se.fit = FALSE, re.form = NULL,
                                allow_new_levels = FALSE, offset = NULL, interval = c("none", "credible", "prediction"),
                                level = 0.95, ...) {
  check_dots(list(...), names(formals()), "predict()", passed_by_frameworks$predict)
  type <- check_choice(type, "type", c("link", "response"))
  se.fit <- check_flag(se.fit, "se.fit")
  interval <- check_interval(interval, type, object$family)
  level <- check_number(level, "level", 0, 1, open = TRUE)
  if (is.null(newdata) && is_elsewhere(object$given$model)) {
    return(predict_elsewhere(object, "predict.elvi_nested", interval, list(type = type, se.fit = se.fit, offset = offset)))
  }
  rows <- nested_rows(object, newdata, re.form, allow_new_levels, offset)
  at <- node_predictors(object, rows)
  limits <- switch(interval, none = NULL,
    credible = on_scale(object, type, node_limits(object, at, level)),
    prediction = predictive_quantiles(object, c((1 - level) / 2, (1 + level) / 2), newdata = newdata, re.form = re.form,
                                      allow_new_levels = allow_new_levels, offset = offset))
  if (type == "response" && !link_of(object$family)$straight) {
    moments <- mixture_response(object, lapply(at[c("mean", "sd")], as.double))   # of all nodes at once
    at$mean[] <- moments$mean
    at$sd[] <- moments$sd
  }
  out <- mixture_of_rows(at, object$nested$hyper$weight)
  named <- function(x) restore_rows(object, newdata, stats::setNames(x, rownames(rows$X)))
  fit <- named(out$mean)
  if (!is.null(limits)) fit <- cbind(fit = fit, lwr = named(limits[, 1L]), upr = named(limits[, 2L]))
  if (se.fit) list(fit = fit, se.fit = named(out$sd)) else fit
}

# quantiles of the mixture of predictors over the nodes, NA where a predictor is missing
node_limits <- function(object, at, level) {
  out <- matrix(NA_real_, nrow(at$mean), 2L)
  there <- which(is.finite(rowSums(at$mean)))
  if (length(there)) {
    out[there, ] <- mixture_quantiles(at$mean[there, , drop = FALSE], at$sd[there, , drop = FALSE],
                                      object$nested$hyper$weight, law_of(object$base, nrow(object$node_mu)),
                                      c((1 - level) / 2, (1 + level) / 2))
  }
  out
}

# response_moments() asks for the family, base and dimension of its object
mixture_response <- function(object, at) {
  response_moments(list(family = object$family, base = object$base, model = list(dim = nrow(object$node_mu))), at)
}

#' @rdname predict.elvi_nested
#' @export
fitted.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "fitted()")
  predict.elvi_nested(object, type = "response")
}

#' @export
model.matrix.elvi_nested <- function(object, ...) {
  check_dots(given_values(list(...)), names(formals()), "model.matrix()")   # data = NULL is none
  check_in_memory(object)
  object$problem$X
}

# ---- draws ---------------------------------------------------------------------------------------------

check_nested_draws <- function(draws, object, rows) {
  check_draws(draws, max(nrow(rows$X), nrow(object$node_mu)))
}

# draws x rows
nested_linpred <- function(object, rows, drawn) {
  p <- ncol(rows$X)
  q <- ncol(rows$Z)
  eta <- tcrossprod(drawn$x[, seq_len(p), drop = FALSE], rows$X)
  if (q) eta <- eta + as.matrix(Matrix::tcrossprod(drawn$x[, p + seq_len(q), drop = FALSE], rows$Z))
  for (new in rows$new) {
    k <- ncol(new$M)
    z <- normal_draws(object, nrow(eta), k * length(new$labels), 2)
    V <- covariance_draws(new$term, drawn$hyper)
    u <- array(0, c(nrow(eta), k, length(new$labels)))
    for (i in seq_len(nrow(eta))) u[i, , ] <- t(chol(matrix(V[, , i], k))) %*% matrix(z[i, ], k)
    for (r in seq_along(new$rows)) {
      eta[, new$rows[r]] <- eta[, new$rows[r]] + matrix(u[, , new$level[r]], ncol = k) %*% new$M[r, ]
    }
  }
  eta <- eta + rep(rows$offset, each = nrow(eta))
  dimnames(eta) <- list(NULL, rownames(rows$X))
  eta
}

#' @rdname predict.elvi_nested
#' @export
#' @rawNamespace S3method(rstantools::posterior_linpred, elvi_nested)
posterior_linpred.elvi_nested <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE,
                                          offset = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "posterior_linpred()", "re_formula")
  rows <- nested_rows(object, newdata, list(...)$re_formula %||% re.form, allow_new_levels, offset)
  object <- reseeded(object, seed)
  nested_linpred(object, rows, nested_draws(object, check_nested_draws(ndraws %||% draws, object, rows)))
}

#' @rdname predict.elvi_nested
#' @export
#' @rawNamespace S3method(rstantools::posterior_epred, elvi_nested)
posterior_epred.elvi_nested <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE,
                                        offset = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "posterior_epred()", "re_formula")
  re.form <- list(...)$re_formula %||% re.form
  expected_response(object, posterior_linpred.elvi_nested(object, newdata, draws, re.form, allow_new_levels, offset, seed,
                                                          ndraws = ndraws))
}

#' @rdname predict.elvi_nested
#' @export
#' @rawNamespace S3method(rstantools::posterior_predict, elvi_nested)
posterior_predict.elvi_nested <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE,
                                          offset = NULL, trials = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "posterior_predict()", "re_formula")
  rows <- nested_rows(object, newdata, list(...)$re_formula %||% re.form, allow_new_levels, offset)
  object <- reseeded(object, seed)
  drawn <- nested_draws(object, check_nested_draws(ndraws %||% draws, object, rows))
  mu <- expected_response(object, nested_linpred(object, rows, drawn))
  trials <- prediction_trials(object, newdata, trials, ncol(mu))
  precision <- if (is.null(newdata)) precisions(object)
  value <- keyed(object, nested_responses(object, mu, drawn, rep(trials, each = nrow(mu)), precision))
  matrix(value, nrow(mu), dimnames = list(NULL, colnames(mu)))
}

prediction_trials <- function(object, newdata, trials, n) {
  if (!record_of(object$family)$trials) {
    if (!is.null(trials)) bad_argument("trials", "left out: it is for binomial fits", describe(trials))
    return(rep(1, n))
  }
  trials <- if (!is.null(trials)) count_response(trials,
                                                 "trials") else if (is.null(newdata)) response_trials(object) else 1
  if (!length(trials) %in% c(1L, n)) bad_argument("trials", sprintf("of length 1 or %d", n), describe(trials))
  rep_len(trials, n)
}

# new responses around the expected ones, a draw's dispersion down each column
nested_responses <- function(object, mu, drawn, trials, precision = NULL) {
  record_of(object$family)$draws(mu, nested_dispersion(object, drawn, precision), trials, object$family)
}

nested_dispersion <- function(object, drawn, precision = NULL) {
  unknown <- object$problem$dispersion
  out <- if (is.null(unknown)) given_dispersion(object) else drawn$hyper[, unknown$name]
  spread_by_precision(out, nrow(drawn$hyper), precision)
}

# sigma or shape that goes with a given dispersion; families without one ask for none
given_dispersion <- function(object) {
  dispersion <- record_of(object$family)$dispersion
  if (is.null(dispersion)) 1 else dispersion$known(object$given_dispersion)
}

# R's generator set from the fit's own seed, and put back
keyed <- function(object, expr) {
  before <- random_state()
  on.exit(set_random_state(before))
  set.seed(floor(object$seed[2L] / 2))
  expr
}

#' @rdname predict.elvi_nested
#' @export
#' @rawNamespace S3method(rstantools::log_lik, elvi_nested)
log_lik.elvi_nested <- function(object, newdata = NULL, draws = 1000, offset = NULL, allow_new_levels = FALSE, seed = NULL, ...,
                                ndraws = NULL) {
  check_dots(given_values(list(...)), names(formals()), "log_lik()", "re_formula")
  if (is.null(newdata) && is_elsewhere(object$given$model)) {
    draws <- check_draws(ndraws %||% draws, max(nobs.elvi_glm(object), nrow(object$node_mu)))
    return(at_chunks(reseeded(object, seed), "log_lik.elvi_nested", list(draws = draws, offset = offset))[[1L]])
  }
  rows <- nested_rows(object, newdata, NULL, allow_new_levels, offset)
  seen <- observed_rows(object, newdata, rows)
  object <- reseeded(object, seed)
  drawn <- nested_draws(object, check_nested_draws(ndraws %||% draws, object, rows))
  mu <- expected_response(object, nested_linpred(object, rows, drawn))
  n <- nrow(mu)
  value <- record_of(object$family)$log_lik(rep(seen$y, each = n), mu, nested_dispersion(object, drawn, seen$precision),
                                            rep(seen$trials, each = n), object$family)
  if (!is.null(seen$counts)) value <- value * rep(seen$counts, each = n)
  matrix(value, n, dimnames = list(NULL, rownames(rows$X)))
}

#' @rdname predict.elvi_nested
#' @exportS3Method loo::loo
loo.elvi_nested <- function(x, draws = 2000, ...) {
  need_package("loo", "loo()")
  log_lik <- log_lik.elvi_nested(x, draws = check_count(draws, "draws", lower = 2))
  loo::loo(log_lik, r_eff = rep(1, ncol(log_lik)), ...)
}

#' @rdname predict.elvi_nested
#' @exportS3Method bayesplot::pp_check
pp_check.elvi_nested <- function(object, type = "dens_overlay", draws = 50, ...) {
  need_package("bayesplot", "pp_check()")
  plot <- tryCatch(getExportedValue("bayesplot", paste0("ppc_", type)), error = function(e) NULL)
  if (is.null(plot)) bad_argument("type", "the name of one of bayesplot's ppc_ plots", describe(type))
  plot(seen_response(object)$y * response_trials(object), posterior_predict.elvi_nested(object, draws = draws), ...)
}

# ---- matrices of draws ------------------------------------------------------------------------------------

#' @rdname nested_methods
#' @export
as.matrix.elvi_nested <- function(x, draws = 1000, resample = NULL, seed = NULL, ..., ndraws = NULL) {
  check_dots(list(...), names(formals()), "as.matrix()")
  if (!is.null(resample) && check_flag(resample, "resample")) {
    bad_argument("resample", "FALSE: the weights of a nested fit's nodes are corrected already", "TRUE")
  }
  drawn <- nested_draws(reseeded(x, seed), check_draws(ndraws %||% draws, length(x$mu)))
  dispersion <- intersect(x$problem$dispersion$name, colnames(drawn$hyper))
  smooth <- grep("^smooth_sd\\[", colnames(drawn$hyper))
  cbind(drawn$x, drawn$hyper[, dispersion, drop = FALSE], drawn$hyper[, smooth, drop = FALSE], covariance_columns(x, drawn$hyper))
}

# Sigma[g:x,(Intercept)], lower triangles, as in rstanarm
covariance_columns <- function(fit, hyper) {
  do.call(cbind, lapply(group_terms_of(fit), function(term) {
    V <- covariance_draws(term, hyper)
    k <- length(term$coefs)
    pairs <- which(lower.tri(diag(k), diag = TRUE), arr.ind = TRUE)
    if (!term$correlated) pairs <- pairs[pairs[, 1L] == pairs[, 2L], , drop = FALSE]
    out <- vapply(seq_len(nrow(pairs)), function(i) V[pairs[i, 1L], pairs[i, 2L], ], numeric(nrow(hyper)))
    matrix(out, nrow(hyper), dimnames = list(NULL, sprintf("Sigma[%s:%s,%s]", term$label, term$coefs[pairs[, 1L]],
                                                           term$coefs[pairs[, 2L]])))
  }))
}

# with another sequence of draws, the same for the same seed
reseeded <- function(object, seed) {
  if (is.null(seed)) return(object)
  object$seed <- keyed(list(seed = c(0, 2 * check_number(seed, "seed", 0, 2^31 - 1))), draw_key())
  object
}
