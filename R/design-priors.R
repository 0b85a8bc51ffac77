# Priors of a regression: as given, and as used on the coefficients of the centred predictors.

#' Prior of correlations
#'
#' `lkj()` is the prior of Lewandowski, Kurowicka and Joe for the correlation matrix of the coefficients of one group-level term, with
#' density proportional to `|R|^(eta - 1)`. With `eta = 1` all correlation matrices are equally likely; larger
#' values favour small correlations.
#'
#' @param eta a positive number.
#' @return An object of class `elvi_lkj` for the argument `prior_cor` of [elvi()].
#' @seealso [group_terms]
#' @examples
#' lkj(2)
#' @export
lkj <- function(eta = 1) structure(list(name = "lkj", eta = check_positive(eta, "eta")), class = "elvi_lkj")

#' @export
format.elvi_lkj <- function(x, ...) paste("lkj prior, eta", format(x$eta))

#' @export
print.elvi_lkj <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}

# The priors as given and as used: `joint` of the coefficients of the centred predictors, `aux` of the family's parameter, `sd` one per
# latent term, `cor` of correlations. `autoscale` says which are rescaled to the data.
design_priors <- function(design, family, dispersion, priors, autoscale) {
  if (!is.null(design$parts)) return(joint_priors(design, family, dispersion, priors, autoscale))
  check_coefficient_prior(priors$prior)
  check_coefficient_prior(priors$prior_intercept, "prior_intercept")
  spread <- response_spread(design, family)
  c(list(prior = priors$prior, prior_intercept = if (design$intercept) priors$prior_intercept,
         joint = coefficient_priors(design, family, priors, autoscale, spread),
         aux = aux_prior(design, family, dispersion, priors$prior_aux, autoscale[["aux"]], spread)),
    if (length(design$latent)) latent_priors(design$latent, priors, autoscale[["sd"]], spread))
}

# `family` of the mean; NULL for another predictor, the prior of whose intercept is at `level`
coefficient_priors <- function(design, family, priors, autoscale, spread, level = NULL) {
  record <- if (!is.null(family)) family_record(family)
  if (!is.null(record) && record$positive != 0) level <- positive_predictor(design, record)$level
  slopes <- setdiff(seq_along(design$centre), if (design$intercept) 1L)
  used <- if (length(slopes)) prior_of_length(priors$prior, length(slopes))
  if (length(slopes) && autoscale[["slopes"]]) {
    sds <- design$spread$columns(slopes)
    used$scale <- used$scale * spread / ifelse(is.finite(sds) & sds > 0, sds, 1)
    if (!design$intercept) used$location[design$constant] <- used$location[design$constant] + (level %||% 0)
  }
  intercept <- if (design$intercept) prior_of_length(priors$prior_intercept, 1L, "prior_intercept")
  if (design$intercept && autoscale[["intercept"]]) {
    intercept$scale <- intercept$scale * spread
    response <- if (isTRUE(record$autoscale)) design$spread$response$mean
    intercept$location <- intercept$location + (response %||% 0) + (level %||% 0)
  }
  if (is.null(intercept)) c(used) else if (is.null(used)) c(intercept) else c(intercept, used)
}

# NULL where the family has no parameter, or a known one
aux_prior <- function(design, family, dispersion, prior, rescale, spread) {
  record <- family_record(family)
  if (is_nested_only(family)) {
    hyper <- hyper_record(record, family$levels)
    default <- hyper$default_prior()
    if (is.null(default) && !is.null(prior)) unused_argument("prior_aux", "sigma has a formula, and df a gamma(2, 0.1) prior")
    prior <- prior %||% default
    sd <- design$spread$response$sd
    in_units <- rescale && hyper$with_unit && !is.null(prior) && is_exponential(prior) && isTRUE(sd > 0)
    return(if (in_units) exponential(prior$rate / sd) else prior)
  }
  if (is.null(record$dispersion) || !is.null(dispersion)) {
    if (!is.null(prior)) unused_argument("prior_aux", "this model has no auxiliary parameter")
    return(NULL)
  }
  level <- if (record$positive && rescale) design$spread$positive$mean
  prior <- prior %||% default_aux_prior(record, level %||% 1)
  if (!rescale || !is_exponential(prior) || !record$autoscale || is.null(design$spread$response)) return(prior)
  precision <- if (record$dispersion$precision) design$spread$precision else 1   # sigma is that of a response of weight 1
  exponential(prior$rate / spread / sqrt(precision))
}

# `spread`: one, or one for each term
latent_priors <- function(latent, priors, rescale, spread, labels = vapply(latent, `[[`, "", "label")) {
  given <- sd_priors(priors$prior_sd, labels)
  check_class(priors$prior_cor, "prior_cor", "elvi_lkj", "lkj()")
  list(prior_sd = priors$prior_sd, cor = priors$prior_cor,
       sd = Map(function(prior, term, spread) if (rescale) scaled_prior(prior, spread / term$unit) else prior, given, latent, spread))
}

# Those of a model in two parts. The predictor of the second one is a logarithm or a logit, which has no unit.
joint_priors <- function(design, family, dispersion, priors, autoscale) {
  second <- design$parts$second
  components <- c("cond", second$component)
  part <- function(component) {
    out <- priors
    for (name in c("prior", "prior_intercept")) {
      out[name] <- list(prior_of_part(priors[[name]], component, components, name) %||% normal(0, 2.5))
      check_coefficient_prior(out[[name]], name)
    }
    out
  }
  spread <- response_spread(design, family)
  level <- family_record(family)$second$level(stats::model.response(design$frame, "any"))
  joint <- list(coefficient_priors(design$parts$first, family, part("cond"), autoscale, spread),
                coefficient_priors(second, NULL, part(second$component), autoscale, 1, level))
  line <- vapply(design$latent, `[[`, 0L, "line")
  labels <- paste0(ifelse(line == 2L & has_levels(design$latent), paste0(second$component, "_"), ""),
                   vapply(design$latent, `[[`, "", "label"))
  c(list(prior = priors$prior, prior_intercept = if (length(intercept_places(design))) priors$prior_intercept,
         joint = do.call(c, Filter(Negate(is.null), joint)),
         aux = aux_prior(design, family, dispersion, priors$prior_aux, autoscale[["aux"]], spread)),
    if (length(design$latent)) latent_priors(design$latent, priors, autoscale[["sd"]], ifelse(line == 2L, 1, spread), labels))
}

# the priors of the parts: several where a list was given
in_parts <- function(prior) if (is_plain_list(prior)) prior else list(prior)

prior_of_length <- function(prior, n, name = "prior") {
  sizes <- c(length(prior$location), length(prior$scale), length(prior$df))
  if (!all(sizes == 1L | sizes == n)) {
    bad_argument(name, if (n == 1L) "of length 1" else sprintf("of length 1 or %d", n),
                 paste("of length", max(sizes)))
  }
  prior$location <- rep_len(prior$location, n)
  prior$scale <- rep_len(prior$scale, n)
  prior$df <- rep_len(prior$df, n)
  prior
}

# Given the hyperparameters everything must be convex.
check_normal_prior <- function(prior, name) {
  check_coefficient_prior(prior, name)
  if (!is_concave(prior)) {
    bad_argument(name, "normal() or flat() with group-level terms, smooth terms or method = \"nested\"", format(prior),
                 "the logarithm of a student density is not concave")
  }
}

response_spread <- function(design, family) {
  record <- family_record(family)
  if (record$positive != 0) return(positive_predictor(design, record)$size)
  sd <- if (record$autoscale) design$spread$response$sd
  if (isTRUE(sd > 0)) sd else 1
}

# of the mean response of a family of positive ones
positive_predictor <- function(design, record) {
  link_of(record)$at_mean(record$positive * (design$spread$positive$log_base %||% 0))
}

# one prior for all terms, or a list with one for each, by name
sd_priors <- function(prior, labels) {
  if (is_plain_list(prior)) {
    absent <- setdiff(labels, names(prior))
    unknown <- setdiff(names(prior), labels)
    if (length(absent) || length(unknown) || is.null(names(prior))) {
      bad_argument("prior_sd", paste0("a prior, or a list with one for each term (", toString(labels), ")"),
                   if (length(unknown)) paste("one with", describe(unknown[1L]))
                   else paste("one without", describe(absent[1L])))
    }
    prior <- prior[labels]
  } else {
    prior <- rep(list(prior), length(labels))
  }
  lapply(prior, check_sd_prior)
}
