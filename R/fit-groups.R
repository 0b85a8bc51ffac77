#' Effects of groups
#'
#' Effects and variances of groups, with the functions of 'lme4'. `fixef()` and `VarCorr()` take every fit of a formula; `ranef()` and
#' `ngrps()` need [group-level terms][group_terms].
#'
#' * `fixef()`: posterior means of the coefficients that all groups share.
#' * `ranef()`: posterior means of the group-level effects, a list of data frames with one row per level; the
#'   attribute `"sd"` of each is a data frame of the same shape with posterior standard deviations. `as.data.frame()` gives one
#'   row per effect with columns `grpvar`, `term`, `grp`, `condval` and `condsd`, as in 'lme4'.
#' * `VarCorr()`: for each term the posterior mean of the covariance matrix of its coefficients, with the posterior
#'   means of standard deviations and correlations as attributes `"stddev"` and `"correlation"`; `as.data.frame()`
#'   gives a table as in 'lme4'.
#' * `ngrps()`: number of levels of each grouping factor.
#'
#' [coef()][elvi_fit] of a fit with group-level terms has the coefficients of each group, shared ones plus effects: a list of data
#' frames.
#'
#' @param object,x a fit by [elvi()] from a formula.
#' @param sigma not used.
#' @param ... nothing: unknown names are errors.
#' @return `fixef()`: a named vector. `ranef()`: a list of data frames, one for each grouping factor. `VarCorr()`: a list of
#'   covariance matrices, one for each term. `ngrps()`: a named vector of counts.
#' @examples
#' \donttest{
#' if (requireNamespace("reformulas", quietly = TRUE)) {
#'   fit <- elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson())
#'   fixef(fit)
#'   ranef(fit)
#'   VarCorr(fit)
#' }
#' }
#' @name group_methods
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

#' @rdname group_methods
#' @export
fixef.elvi_fit <- function(object, ...) {
  check_dots(list(...), names(formals()), "fixef()")
  fixed_means(object$posterior)
}

# a logarithm that is fitted among the parameters is not a coefficient
fixed_means <- function(posterior) {
  parameter_means(posterior)[posterior$coefficients]
}

#' @rdname group_methods
#' @export
ranef.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "ranef()")
  moments <- posterior_moments(object$posterior)
  tables <- by_factor(object, function(term) {
    at <- effect_positions(object, term)
    list(value = effect_table(moments$mean[at], term), sd = effect_table(moments$sd[at], term))
  })
  structure(tables, class = c("ranef.elvi_glm", "list"))
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

effect_positions <- function(fit, term) length(fit$posterior$coefficients) + term$columns

# one row per level
effect_table <- function(values, term) {
  table <- matrix(values, ncol = length(term$coefs), byrow = TRUE, dimnames = list(term$levels, term$coefs))
  data.frame(table, check.names = FALSE)
}

#' @export
print.ranef.elvi_glm <- function(x, ...) {
  for (label in names(x)) {
    cat("$", label, "\n", sep = "")
    print(structure(x[[label]], sd = NULL), ...)
    cat("\n")
  }
  cat("posterior means; attr(, \"sd\") of each has the standard deviations\n")
  invisible(x)
}

#' @export
as.data.frame.ranef.elvi_glm <- function(x, row.names = NULL, optional = FALSE, ...) {
  each <- lapply(names(x), function(label) {
    table <- x[[label]]
    data.frame(grpvar = label, term = rep(names(table), each = nrow(table)), grp = rep(rownames(table), ncol(table)),
               condval = unlist(table, use.names = FALSE), condsd = unlist(attr(table, "sd"), use.names = FALSE))
  })
  out <- do.call(rbind, each)
  out$term <- factor(out$term, unique(out$term))
  out$grp <- factor(out$grp, unique(out$grp))
  if (!is.null(row.names)) rownames(out) <- row.names
  out
}

# shared coefficients plus effects, for each group
group_coefficients <- function(object) {
  fixed <- fixed_means(object$posterior)
  lapply(unclass(ranef.elvi_glm(object)), function(table) {
    columns <- union(names(fixed), names(table))
    out <- vapply(columns, function(name) {
      (if (name %in% names(fixed)) fixed[[name]] else 0) + (if (name %in% names(table)) table[[name]] else 0) + numeric(nrow(table))
    }, numeric(nrow(table)))
    data.frame(matrix(out, nrow(table), dimnames = list(rownames(table), columns)), check.names = FALSE)
  })
}

#' @rdname group_methods
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

#' @rdname group_methods
#' @export
#' @rawNamespace S3method(lme4::ngrps, elvi_glm)
ngrps.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "ngrps()")
  terms <- group_terms_of(object)
  counts <- stats::setNames(vapply(terms, function(term) length(term$levels), 0L), vapply(terms, `[[`, "", "label"))
  counts[!duplicated(names(counts))]
}

#' @rdname group_methods
#' @export
VarCorr.elvi_glm <- function(x, sigma = 1, ...) {
  check_dots(list(...), names(formals()), "VarCorr()")
  posterior <- x$posterior
  moments <- posterior_moments(posterior)
  terms <- group_terms_of(x)
  out <- lapply(terms, function(term) {
    k <- length(term$coefs)
    V <- covariance_draws(term, component_hyper(posterior))
    mean_of <- function(A) structure(matrix(matrix(A, k * k) %*% posterior$weight, k), dimnames = list(term$coefs, term$coefs))
    R <- array(apply(V, 3L, stats::cov2cor), dim(V))
    structure(mean_of(V), stddev = stats::setNames(moments$mean[sd_names(term)], term$coefs), correlation = mean_of(R),
              sd_of_stddev = stats::setNames(moments$sd[sd_names(term)], term$coefs), correlated = term$correlated && k > 1L)
  })
  structure(stats::setNames(out, vapply(terms, `[[`, "", "label")),
            sc = if ("sigma" %in% names(moments$mean)) moments$mean[["sigma"]],
            smooth = smooth_sds(x, moments$mean), class = "VarCorr.elvi_glm")
}

smooth_sds <- function(fit, means) {
  terms <- fit$groups[!has_levels(fit$groups)]
  names <- lapply(terms, sd_names)
  stats::setNames(means[unlist(names)], rep(vapply(terms, `[[`, "", "label"), lengths(names)))
}

#' @rdname group_methods
#' @param row.names,optional as in [as.data.frame()].
#' @export
as.data.frame.VarCorr.elvi_glm <- function(x, row.names = NULL, optional = FALSE, ...) {
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
  none <- data.frame(grp = character(), var1 = character(), var2 = character(), vcov = numeric(), sdcor = numeric())
  out <- do.call(rbind, c(list(none), rows))
  rownames(out) <- row.names
  out
}

#' @export
print.VarCorr.elvi_glm <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  table <- as.data.frame(x)[c("grp", "var1", "var2", "sdcor")]
  for (name in c("var1", "var2")) table[[name]] <- ifelse(is.na(table[[name]]), "", table[[name]])
  table$sdcor <- format(table$sdcor, digits = digits)
  print(table, row.names = FALSE)
  cat("posterior means of standard deviations and correlations\n")
  invisible(x)
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
