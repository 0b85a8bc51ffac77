# Families of other packages by the names that they have there, and how to say here what they say otherwise.

# the family here, for names of 'brms', 'glmmTMB' and 'mgcv'
family_aliases <- c(bernoulli = "binomial", negbinomial = "neg_binomial_2", nbinom2 = "neg_binomial_2", nb = "neg_binomial_2",
                    t = "student",
                    multinom = "categorical", ordinal = "cumulative", ocat = "cumulative", Beta = "beta", betar = "beta", gamma = "Gamma",
                    betabinomial = "beta_binomial", truncated_nbinom2 = "truncated_negbinomial")

# A family object of this package for one of another, or for a name; as it is where it is known.
translated_family <- function(family) {
  name <- if (inherits(family, "family")) family$family else family
  if (!is.character(name) || length(name) != 1L) return(family)
  refuse_fixed_theta(name)
  refuse_other_families(name)
  known <- if (name %in% names(family_aliases)) family_aliases[[name]] else name
  if (identical(known, name) && !inherits(family, "brmsfamily")) return(family)
  # brms::lognormal() has a predictor of the mean logarithm; that of the logarithm of the mean differs by a constant
  link <- if (inherits(family, "family") && known != "lognormal") family$link
  for (record in family_records) {
    if (record$family == known && record$link == (link %||% record$link)) return(record$make())
  }
  if (identical(known, name)) family else list_links(known, link)
}

list_links <- function(name, link) {
  links <- unique(vapply(family_records[known_families() == name], function(r) r$link, ""))
  bad_argument("family", paste0(name, "() with link ", join_or(paste0("\"", links, "\""))), paste0("link \"", link, "\""))
}

# Links that other packages have for these families, and what keeps elvi from having them: a gaussian approximation of the coefficients
# gives weight to every predictor.
refused_links <- list(
  binomial = list(links = "log", bound = "below 0", use = paste("binomial(\"cloglog\"): its coefficients are log ratios of rates, and near",
                                                                "those of probabilities where these are small")),
  poisson = list(links = c("identity", "sqrt"), bound = "positive", use = "poisson(), with log link"),
  Gamma = list(links = "identity", bound = "positive", use = "Gamma(link = \"log\"), or Gamma() with its inverse link"),
  inverse.gaussian = list(links = c("1/mu^2", "inverse", "identity"), bound = "positive", use = "inverse.gaussian(link = \"log\")"),
  gaussian = list(links = "inverse", bound = "other than 0", use = "gaussian() or gaussian(\"log\")"))

refuse_bounded_link <- function(family) {
  refused <- refused_links[[family$family]]
  if (!family$link %in% refused$links) return(invisible())
  elvi_abort("`family`: with link \"", family$link, "\" the linear predictor of ", family$family, "() must be ", refused$bound,
             ", which a gaussian approximation cannot guarantee. Use ", refused$use, ".", class = "elvi_error_argument",
             data = list(argument = "family"))
}

# MASS::negative.binomial(theta)
refuse_fixed_theta <- function(name) {
  if (!grepl("^Negative Binomial\\(", name)) return(invisible())
  elvi_abort("`family`: MASS::negative.binomial() fixes its theta. Use neg_binomial_2(), which estimates it as phi.",
             class = "elvi_error_argument", data = list(argument = "family"))
}

# what to do instead, by name
other_families <- c(
  hurdle_gamma = "Fit y > 0 with binomial(), and the positive responses with Gamma(link = \"log\").")

refuse_other_families <- function(name) {
  if (!name %in% names(other_families)) return(invisible())
  elvi_abort("`family`: elvi has no family \"", name, "\". ", other_families[[name]], class = "elvi_error_argument",
             data = list(argument = "family"))
}

# What 'brms' writes behind a bar on the left of a formula, and how to say it here.
response_extras <- c(
  weights = "Give them as an argument: weights = w.", trials = "Give successes and failures: cbind(y, n - y) ~ ...",
  cens = "Give a survival object: survival::Surv(time, status) ~ ..., or Surv(from, to, type = \"interval2\").",
  trunc = "Of truncated responses there are truncated_poisson() and truncated_negbinomial(), for counts without zeros.",
  subset = "Give it as an argument: subset = ...", rate = "Use an offset: ... + offset(log(exposure)).",
  se = "With known standard errors use weights = 1 / se^2 and dispersion = 1.")

refuse_response_extras <- function(formula) {
  response <- if (inherits(formula, "formula") && length(formula) == 3L) formula[[2L]]
  if (!is.call(response) || !identical(response[[1L]], quote(`|`))) return(invisible())
  used <- intersect(all.names(response[[3L]]), names(response_extras))
  elvi_abort("`", deparse1(response), "`: the syntax of 'brms' with a bar on the left of a formula is not supported. ",
             paste(response_extras[used], collapse = " "), class = "elvi_error_argument", data = list(argument = "object"))
}
