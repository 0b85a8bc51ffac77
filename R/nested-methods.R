#' Methods for fits with group-level and smooth terms
#'
#' What lme4, rstanarm and broom.mixed offer for mixed models. The approximation is a mixture over the nodes of the
#' quadrature over the hyperparameters: means, standard deviations and intervals are those of the mixture, so they
#' contain the uncertainty about standard deviations, correlations and dispersion.
#'
#' * `fixef()`: posterior means of the coefficients that all groups share; `vcov()` their covariance.
#' * `ranef()`: posterior means of the group-level effects, a list of data frames with one row per level; the
#'   attribute `"sd"` of each is a data frame of the same shape with posterior standard deviations.
#' * `coef()`: the coefficients of each group, shared ones plus effects, a list of data frames. Without group-level
#'   terms: `fixef()`.
#' * `VarCorr()`: for each term the posterior mean of the covariance matrix of its coefficients, with the posterior
#'   means of standard deviations and correlations as attributes `"stddev"` and `"correlation"`; `as.data.frame()`
#'   gives a table as in 'lme4'.
#' * `sigma()`: posterior mean of the residual standard deviation, 1 for families that have none.
#' * `ngrps()`: number of levels of each grouping factor.
#' * `confint()`, `posterior_interval()`: credible intervals; by default of coefficients and hyperparameters, by name
#'   also of effects (`names(fit$mu)`).
#' * `tidy(effects = )`: as in 'broom.mixed': `"fixed"`, `"ran_pars"` (`sd__`, `cor__`) and `"ran_vals"`.
#' * `elbo()`: the lower bound of the log evidence, of which the error of the quadrature is not part.
#' * `pareto_k()`: k-hat of the joint law of all coefficients and effects at every node that counts, and the number of
#'   draws it rests on; `k` is the worst. It grows with the number of effects: beyond 0.7 joint draws cannot be reweighed, but
#'   weights and means of nodes are corrected group by group, for which it need not be small.
#'
#' @param object,x a fit by [elvi()] whose formula has [group-level terms][group_terms].
#' @param parm,pars parameters, by name or number.
#' @param level,prob,conf.level probability of the interval.
#' @param conf.int add credible intervals?
#' @param exponentiate estimates and intervals of `exp()` of the coefficients?
#' @param effects which effects: `"fixed"`, `"ran_pars"`, `"ran_vals"`, or several.
#' @param sigma for the generic's sake: not used.
#' @param complete,digits see [elvi_fit].
#' @param draws,ndraws number of draws, under either name; for `pareto_k()` new ones at each node that counts, by default those
#'   of the fit.
#' @param seed optional number: draws other than those of the fit.
#' @param resample `NULL` or `FALSE`: the weights of the nodes are corrected already.
#' @param row.names,optional as in [as.data.frame()].
#' @param ... nothing: unknown names are errors.
#' @return As their generics say.
#' @examples
#' \donttest{
#' if (requireNamespace("reformulas", quietly = TRUE)) {
#'   fit <- elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson())
#'   fixef(fit)
#'   ranef(fit)
#'   VarCorr(fit)
#' }
#' }
#' @name nested_methods
#' @aliases elvi_nested
NULL

#' @importFrom nlme fixef
#' @export
nlme::fixef

#' @importFrom nlme ranef
#' @export
nlme::ranef

#' @importFrom nlme VarCorr
#' @export
nlme::VarCorr

# ---- estimates ------------------------------------------------------------------------------

#' @rdname nested_methods
#' @export
fixef.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "fixef()")
  object$mu[parameter_block(object, "fixed")]
}

#' @rdname nested_methods
#' @export
ranef.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "ranef()")
  structure(by_factor(object, function(term) {
    at <- effect_positions(object, term)
    list(value = effect_table(object$mu[at], term), sd = effect_table(object$sd[at], term))
  }), class = c("ranef.elvi_nested", "list"))
}

# terms of the same grouping factor side by side
by_factor <- function(fit, table_of) {
  terms <- group_terms_of(fit)
  labels <- vapply(terms, `[[`, "", "label")
  lapply(stats::setNames(unique(labels), unique(labels)), function(label) {
    tables <- lapply(terms[labels == label], table_of)
    joined <- function(what) do.call(cbind, unname(lapply(tables, `[[`, what)))
    structure(joined("value"), sd = joined("sd"))
  })
}

group_terms_of <- function(fit) fit$groups[has_levels(fit$groups)]

effect_positions <- function(fit, term) ncol(fit$problem$X) + term$columns

# one row per level
effect_table <- function(values, term) {
  table <- matrix(values, ncol = length(term$coefs), byrow = TRUE, dimnames = list(term$levels, term$coefs))
  data.frame(table, check.names = FALSE)
}

#' @export
print.ranef.elvi_nested <- function(x, ...) {
  for (label in names(x)) {
    cat("$", label, "\n", sep = "")
    print(structure(x[[label]], sd = NULL), ...)
    cat("\n")
  }
  cat("posterior means; attr(, \"sd\") of each has the standard deviations\n")
  invisible(x)
}

#' @rdname nested_methods
#' @export
coef.elvi_nested <- function(object, complete = TRUE, ...) {
  check_dots(list(...), names(formals()), "coef()")
  check_flag(complete, "complete")
  fixed <- fixef.elvi_nested(object)
  effects <- ranef.elvi_nested(object)
  if (!length(effects)) return(fixed)
  lapply(unclass(effects), function(table) {
    columns <- union(names(fixed), names(table))
    out <- vapply(columns, function(name) {
      (if (name %in% names(fixed)) fixed[[name]] else 0) + (if (name %in% names(table)) table[[name]] else 0) + numeric(nrow(table))
    }, numeric(nrow(table)))
    data.frame(matrix(out, nrow(table), dimnames = list(rownames(table), columns)), check.names = FALSE)
  })
}

#' @rdname nested_methods
#' @export
vcov.elvi_nested <- function(object, complete = TRUE, ...) {
  check_dots(list(...), names(formals()), "vcov()")
  check_flag(complete, "complete")
  fixed <- parameter_block(object, "fixed")
  weight <- object$nested$hyper$weight
  away <- object$node_mu[fixed, , drop = FALSE] - object$mu[fixed]
  V <- Reduce(`+`, Map(`*`, object$fixed_cov, weight)) + away %*% (weight * t(away))
  dimnames(V) <- list(names(object$mu)[fixed], names(object$mu)[fixed])
  (V + t(V)) / 2
}

#' @rdname nested_methods
#' @export
sigma.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "sigma()")
  if ("sigma" %in% colnames(object$hyper)) return(object$mu[["sigma"]])
  if (is.null(object$given_dispersion)) 1 else sqrt(object$given_dispersion)
}

#' @rdname nested_methods
#' @export
ngrps <- function(object, ...) UseMethod("ngrps")

#' @export
ngrps.default <- function(object, ...) {
  for (package in intersect(c("lme4", "brms"), loadedNamespaces())) {   # which have a generic each
    home <- asNamespace(package)
    known <- function(class) !is.null(utils::getS3method("ngrps", class, optional = TRUE, envir = home))
    # from there: called from here it would find this method first
    if (any(vapply(if (isS4(object)) methods::is(object) else class(object), known, NA))) {
      return(do.call(getExportedValue(package, "ngrps"), list(object, ...), quote = TRUE, envir = home))
    }
  }
  not_a_fit(object)
}

#' @rdname nested_methods
#' @export
#' @rawNamespace S3method(lme4::ngrps, elvi_nested)
ngrps.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "ngrps()")
  terms <- group_terms_of(object)
  counts <- stats::setNames(vapply(terms, function(term) length(term$levels), 0L), vapply(terms, `[[`, "", "label"))
  counts[!duplicated(names(counts))]
}

#' @rdname nested_methods
#' @export
VarCorr.elvi_nested <- function(x, sigma = 1, ...) {
  check_dots(list(...), names(formals()), "VarCorr()")
  weight <- x$nested$hyper$weight
  terms <- group_terms_of(x)
  out <- lapply(terms, function(term) {
    k <- length(term$coefs)
    V <- covariance_draws(term, x$hyper)
    mean_of <- function(A) structure(matrix(matrix(A, k * k) %*% weight, k), dimnames = list(term$coefs, term$coefs))
    R <- array(apply(V, 3L, stats::cov2cor), dim(V))
    structure(mean_of(V), stddev = stats::setNames(x$mu[sd_names(term)], term$coefs), correlation = mean_of(R),
              sd_of_stddev = stats::setNames(x$sd[sd_names(term)], term$coefs), correlated = term$correlated && k > 1L)
  })
  structure(stats::setNames(out, vapply(terms, `[[`, "", "label")),
            sc = if ("sigma" %in% colnames(x$hyper)) x$mu[["sigma"]],
            smooth = smooth_sds(x), class = "VarCorr.elvi_nested")
}

smooth_sds <- function(fit) {
  terms <- fit$groups[!has_levels(fit$groups)]
  stats::setNames(fit$mu[vapply(terms, sd_names, "")], vapply(terms, `[[`, "", "label"))
}

#' @rdname nested_methods
#' @export
as.data.frame.VarCorr.elvi_nested <- function(x, row.names = NULL, optional = FALSE, ...) {
  rows <- lapply(seq_along(x), function(i) {
    V <- x[[i]]
    names <- rownames(V)
    pairs <- which(lower.tri(V) & attr(V, "correlated"), arr.ind = TRUE)
    data.frame(grp = base::names(x)[i], var1 = c(names, names[pairs[, 2L]]),
               var2 = c(rep(NA, length(names)), names[pairs[, 1L]]),
               vcov = c(diag(V), V[pairs]), sdcor = c(attr(V, "stddev"), attr(V, "correlation")[pairs]))
  })
  smooth <- attr(x, "smooth")
  if (length(smooth)) rows <- c(rows, list(data.frame(grp = base::names(smooth), var1 = NA, var2 = NA, vcov = smooth^2,
                                                      sdcor = smooth)))
  sc <- attr(x, "sc")
  if (!is.null(sc)) rows <- c(rows, list(data.frame(grp = "Residual", var1 = NA, var2 = NA, vcov = sc^2, sdcor = sc)))
  out <- do.call(rbind, rows)
  rownames(out) <- row.names
  out
}

#' @export
print.VarCorr.elvi_nested <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  print(unclass_table(as.data.frame(x)[c("grp", "var1", "var2", "sdcor")], digits), row.names = FALSE)
  cat("posterior means of standard deviations and correlations\n")
  invisible(x)
}

unclass_table <- function(table, digits) {
  for (name in c("var1", "var2")) table[[name]] <- ifelse(is.na(table[[name]]), "", table[[name]])
  table$sdcor <- format(table$sdcor, digits = digits)
  table
}

# ---- intervals -----------------------------------------------------------------------------------

#' @rdname nested_methods
#' @export
confint.elvi_nested <- function(object, parm = NULL, level = 0.95, ...) {
  check_dots(list(...), names(formals()), "confint()")
  level <- check_number(level, "level", 0, 1, open = TRUE)
  nested_intervals(object, nested_parameters(object, parm, "parm"), level)
}

#' @rdname nested_methods
#' @export
#' @rawNamespace S3method(rstantools::posterior_interval, elvi_nested)
posterior_interval.elvi_nested <- function(object, prob = 0.9, pars = NULL, ...) {
  check_dots(list(...), names(formals()), "posterior_interval()")
  prob <- check_number(prob, "prob", 0, 1, open = TRUE)
  nested_intervals(object, nested_parameters(object, pars, "pars"), prob)
}

# by default everything but the effects
nested_parameters <- function(fit, which, name) {
  if (!is.null(which)) return(check_parameters(fit, which, name))
  c(parameter_block(fit, "fixed"), parameter_block(fit, "hyper"))
}

nested_intervals <- function(fit, which, level) {
  p <- c((1 - level) / 2, (1 + level) / 2)
  out <- nested_quantiles(fit, which, p)
  dimnames(out) <- list(names(fit$mu)[which], paste(format(100 * p, trim = TRUE, digits = 3), "%"))
  out
}

nested_quantiles <- function(fit, which, p) {
  d <- nrow(fit$node_mu)
  out <- matrix(0, length(which), length(p))
  inside <- which <= d
  if (any(inside)) {
    rows <- which[inside]
    out[inside, ] <- mixture_quantiles(fit$node_mu[rows, , drop = FALSE], fit$node_sd[rows, , drop = FALSE],
                                       fit$nested$hyper$weight, law_of(fit$base, d), p)
  }
  if (any(!inside)) {
    sample <- hyper_sample(fit)[, which[!inside] - d, drop = FALSE]
    out[!inside, ] <- t(matrix(apply(sample, 2L, stats::quantile, p, names = FALSE), length(p)))
  }
  out
}

# ---- print and summary -----------------------------------------------------------------------------

#' @rdname nested_methods
#' @export
print.elvi_nested <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  check_digits(digits)
  cat(nested_heading(x), "\n\n", sep = "")
  fixed <- parameter_block(x, "fixed")
  if (length(fixed)) {
    cat("Posterior mean and standard deviation:\n")
    print(cbind(mean = x$mu[fixed], sd = x$sd[fixed]), digits = digits)
    cat("\n")
  }
  print_hyper(x, digits)
  writeLines(c("", folded(nested_account(x))))
  invisible(x)
}

nested_heading <- function(x) {
  c("elvi fit: ", x$family$family, " regression (", x$family$link, " link), ", format_count(nobs.elvi_glm(x)),
    " observations\n",
    "formula:  ", deparse_one(x$formula))
}

# standard deviations and correlations of terms, and the dispersion: mean and sd of each
print_hyper <- function(x, digits) {
  tables <- lapply(x$groups, function(term) {
    names <- sd_names(term)
    data.frame(term_record(term)$heading(term), sd = x$mu[names], spread = x$sd[names])
  })
  if (length(tables)) {
    table <- do.call(rbind, tables)
    table$term[duplicated(table$term)] <- ""
    rownames(table) <- NULL
    cors <- grep("^cor\\(", colnames(x$hyper), value = TRUE)
    cat("Standard deviations of group-level and smooth terms (posterior mean, and its sd):\n")
    names(table) <- c("term", "coefficient", "levels", "mean", "sd")
    if (all(table$levels == "")) table$levels <- NULL
    print(table, digits = digits, row.names = FALSE, right = FALSE)
    if (length(cors)) {
      cat("Correlations:\n")
      print(cbind(mean = x$mu[cors], sd = x$sd[cors]), digits = digits)
    }
  }
  dispersion <- x$problem$dispersion$name
  if (!is.null(dispersion)) cat(dispersion, ": ", format(x$mu[[dispersion]], digits = digits), " (sd ",
                                 format(x$sd[[dispersion]], digits = digits), ")\n", sep = "")
}

#' @rdname nested_methods
#' @export
summary.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "summary()")
  which <- nested_parameters(object, NULL, "parm")
  table <- cbind(mean = object$mu[which], sd = object$sd[which], nested_quantiles(object, which, c(0.025, 0.5, 0.975)))
  colnames(table)[3:5] <- c("2.5 %", "50 %", "97.5 %")
  structure(list(fit = object, table = table, ngrps = ngrps.elvi_nested(object), elbo = elbo.elvi_nested(object),
                 pareto_k = pareto_k.elvi_nested(object)), class = "summary.elvi_nested")
}

#' @export
print.summary.elvi_nested <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  check_digits(digits)
  fit <- x$fit
  cat(nested_heading(fit), "\n", sep = "")
  if (length(x$ngrps)) cat("groups:   ", toString(paste(names(x$ngrps), format_count(x$ngrps))), "\n", sep = "")
  cat("\n")
  print(x$table, digits = digits)
  writeLines(c("", folded(nested_account(fit))))
  invisible(x)
}

# ---- broom and friends -------------------------------------------------------------------------------

#' @rdname nested_methods
#' @exportS3Method generics::tidy
tidy.elvi_nested <- function(x, effects = c("fixed", "ran_pars"), conf.int = FALSE, conf.level = 0.95, exponentiate = FALSE, ...) {
  check_dots(given_values(list(...)), names(formals()), "tidy()", passed_by_frameworks$tidy)
  kinds <- c("fixed", "ran_pars", "ran_vals")
  if (!is.character(effects) || !length(effects) || !all(effects %in% kinds)) {
    bad_argument("effects", "some of \"fixed\", \"ran_pars\" and \"ran_vals\"",
                 describe(if (is.character(effects)) setdiff(effects, kinds)[1L] else effects))
  }
  conf.int <- check_flag(conf.int, "conf.int")
  conf.level <- check_number(conf.level, "conf.level", 0, 1, open = TRUE)
  rows <- list(fixed = tidy_fixed, ran_pars = tidy_hyper, ran_vals = tidy_effects)
  tables <- lapply(intersect(kinds, effects), function(kind) rows[[kind]](x))
  keep <- intersect(c("effect", "group", "level", "term", "at"), unique(unlist(lapply(tables, names))))
  out <- do.call(rbind, lapply(tables, function(table) {
    table[setdiff(keep, names(table))] <- rep(list(rep(NA, nrow(table))), length(setdiff(keep, names(table))))
    table[keep]
  }))
  at <- out$at
  out$at <- NULL
  if (!length(x$groups)) out <- data.frame(term = names(x$mu)[at])   # as of any other regression
  out$estimate <- unname(x$mu[at])
  out$std.error <- unname(x$sd[at])
  if (conf.int) {
    limits <- nested_intervals(x, at, conf.level)
    out$conf.low <- unname(limits[, 1L])
    out$conf.high <- unname(limits[, 2L])
  }
  rownames(out) <- NULL
  scaled <- intersect(c("estimate", "conf.low", "conf.high"), names(out))
  coefficients <- out$effect == "fixed"
  if (check_flag(exponentiate, "exponentiate")) out[coefficients, scaled] <- exp(out[coefficients, scaled])
  as_tibble_if_there(out)
}

tidy_fixed <- function(x) {
  at <- parameter_block(x, "fixed")
  data.frame(effect = rep("fixed", length(at)), term = names(x$mu)[at], at = at)
}

tidy_hyper <- function(x) {
  names <- colnames(x$hyper)
  group <- term <- names
  for (spec in x$groups) {
    at <- match(sd_names(spec), names)
    group[at] <- spec$label
    term[at] <- term_record(spec)$tidy_names(spec)
    if (spec$correlated && length(spec$coefs) > 1L) {
      for (pair in utils::combn(length(spec$coefs), 2L, simplify = FALSE)) {
        j <- match(cor_name(spec, pair[2L], pair[1L]), names)
        group[j] <- spec$label
        term[j] <- paste0("cor__", spec$coefs[pair[1L]], ".", spec$coefs[pair[2L]])
      }
    }
  }
  dispersion <- names %in% x$problem$dispersion$name
  group[dispersion] <- "Residual"
  term[names == "sigma"] <- "sd__Observation"
  data.frame(effect = rep("ran_pars", length(names)), group = group, term = term, at = parameter_block(x, "hyper"))
}

tidy_effects <- function(x) {
  tables <- lapply(group_terms_of(x), function(term) {
    k <- length(term$coefs)
    data.frame(effect = "ran_vals", group = term$label, level = rep(term$levels, each = k),
               term = rep(term$coefs, length(term$levels)),
               at = effect_positions(x, term))
  })
  do.call(rbind, tables)
}

#' @rdname nested_methods
#' @exportS3Method generics::glance
glance.elvi_nested <- function(x, ...) {
  check_dots(given_values(list(...)), names(formals()), "glance()", passed_by_frameworks$glance)
  as_tibble_if_there(data.frame(
    elbo = x$nested$evidence$log, nodes = length(x$nested$nodes), certificate = worst_certificate(x),
    change = max(unlist(x$nested$change)),
    pareto_k = worst_k(x$nested), base = x$base$kind, converged = x$converged, nobs = nobs.elvi_glm(x)))
}

#' @rdname nested_methods
#' @export
#' @rawNamespace S3method(rstantools::prior_summary, elvi_nested)
prior_summary.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "prior_summary()")
  coefficients <- c(names(object$mu)[parameter_block(object, "fixed")], object$problem$dispersion$name)
  labels <- vapply(object$groups, `[[`, "", "label")
  correlated <- any(vapply(object$groups, function(term) term$correlated && length(term$coefs) > 1L, NA))
  structure(list(priors = object$priors, coefficients = coefficients, dispersion = object$problem$dispersion$name,
                 intercept = object$intercept, sd = stats::setNames(object$priors$sd, labels), cor = if (correlated) object$priors$cor),
            class = c("elvi_nested_prior_summary", "elvi_prior_summary"))
}

#' @export
print.elvi_nested_prior_summary <- function(x, ...) {
  if (length(x$priors$joint$location)) NextMethod()
  texts <- vapply(x$sd, format, "")
  half <- !vapply(x$sd, has_rate, NA)
  texts[half] <- paste("positive half of", texts[half])
  for (text in unique(texts)) cat("sd of ", toString(names(x$sd)[texts == text]), ": ", text, "\n", sep = "")
  if (!is.null(x$cor)) cat("correlations: ", format(x$cor), "\n", sep = "")
  invisible(x)
}

# ---- judging ------------------------------------------------------------------------------------------

#' @rdname nested_methods
#' @export
elbo.elvi_nested <- function(object, ...) {
  check_dots(list(...), names(formals()), "elbo()")
  structure(c(list(estimate = object$nested$evidence$log, se = 0), object$nested$evidence), class = "elvi_nested_elbo")
}

#' @export
print.elvi_nested_elbo <- function(x, ...) {
  cat(evidence_line(x), "\n", sep = "")
  invisible(x)
}

evidence_line <- function(evidence) {
  paste0("Log evidence: ", format(evidence$log, digits = 8), " (", evidence$rests_on,
         if (evidence$corrected != evidence$log) paste0(": ", format(evidence$corrected, digits = 8)),
         "; quadrature over them)")
}

#' @rdname nested_methods
#' @export
objective.elvi_nested <- function(object, ...) {
  bad_argument("object", "a fit of one model: one with group-level terms is a mixture of many, see elbo()", "a nested fit")
}

#' @rdname nested_methods
#' @export
pareto_k.elvi_nested <- function(object, draws = NULL, ...) {
  check_dots(list(...), names(formals()), "pareto_k()")
  nested <- object$nested
  if (!is.null(draws)) {
    draws <- check_draws(draws, nrow(object$node_mu), lower = 100)
    nested[c("k_hat", "draws")] <- node_shapes(nested, draws, draw_key())
  }
  structure(list(k = worst_k(nested), nodes = nested$k_hat, draws = nested$draws, corrected = nested$corrected),
            class = c("elvi_nested_pareto_k", "elvi_pareto_k"))
}

# nodes that hardly count are not looked at
worst_k <- function(nested) if (all(is.na(nested$k_hat))) NA_real_ else max(nested$k_hat, na.rm = TRUE)

#' @export
print.elvi_nested_pareto_k <- function(x, ...) {
  writeLines(folded(k_line(x$k, x$nodes, x$draws, x$corrected)))
  invisible(x)
}

# k-hat is about all coefficients and effects of a node at once, and grows with their number however close each of them is;
# the correction needs less: each group's own ratios.
k_line <- function(k, nodes, draws, corrected) {
  if (is.na(k)) return("Pareto k-hat: not computed, no draws were made")
  if (k == -Inf) return("Pareto k-hat: none needed, the nodes' laws are exact for gaussian data and base")
  joint <- sprintf("Pareto k-hat of the joint law at the worst of %d nodes: %s from %s draws each", sum(!is.na(nodes)),
                   format(k, digits = 2), format_count(draws))
  says <- if (k < 0.5) "good" else if (k < 0.7) "fair" else if (corrected) "too many effects to reweigh at once" else k_verdict(k)
  paste0(joint, " (", says, "); weights of nodes ", if (corrected) "corrected, group by group" else "not corrected")
}

worst_certificate <- function(fit) max(vapply(fit$nested$nodes, function(node) node$certificate, 0))

# lines no longer than the console
folded <- function(lines) strwrap(lines, getOption("width"), exdent = 2L)

# what the answer rests on
nested_account <- function(fit) {
  nested <- fit$nested
  c(sprintf("%s at %d nodes over %d hyperparameter%s: every node at most %s nats above its optimum",
            if (fit$converged) "Solved" else "NOT CONVERGED", length(nested$nodes), ncol(nested$hyper$theta),
            if (ncol(nested$hyper$theta) == 1L) "" else "s", format(worst_certificate(fit), digits = 1)),
    k_line(worst_k(nested), nested$k_hat, nested$draws, nested$corrected),
    sprintf("Against the next smaller rule means moved by at most %s sd, sds by %s %%",
            format(nested$change$mean, digits = 2),
            format(100 * nested$change$sd, digits = 2)),
    evidence_line(nested$evidence))
}

# ---- what a mixture cannot do ----------------------------------------------------------------------------

#' @export
elvi.elvi_nested <- function(object, ...) {
  bad_argument("object", "a stochastic run: a fit with group-level terms has nothing to continue", "a nested fit")
}

# ---- what other files ask of any fit -----------------------------------------------------------

#' @export
natural_names.elvi_nested <- function(fit) names(fit$mu)

#' @export
marginal_of.elvi_nested <- function(fit, j) c(nested_marginal(fit, j), own_scale)

#' @export
mean_dispersion.elvi_nested <- function(object) {
  name <- record_of(object$family)$dispersion$natural
  if (is.null(name)) return(1)
  if (name %in% names(object$mu)) object$mu[[name]] else given_dispersion(object)
}
