# Families of other packages by the names that they have there, and how to say here what they say otherwise.

# the family here, for names of 'brms', 'glmmTMB' and 'mgcv'
family_aliases <- c(bernoulli = "binomial", negbinomial = "neg_binomial_2", nbinom2 = "neg_binomial_2", nb = "neg_binomial_2",
                    t = "student",
                    multinom = "categorical", ordinal = "cumulative", ocat = "cumulative", Beta = "beta", betar = "beta", gamma = "Gamma",
                    betabinomial = "beta_binomial", truncated_nbinom2 = "truncated_negbinomial",
                    `negative binomial` = "neg_binomial_2",   # mgcv::nb(), and others of 'mgcv', without their parameters
                    `Beta regression` = "beta", `Ordered Categorical` = "cumulative", `scaled t` = "student")

# of these the link is not that of the linear predictor's mean
links_apart <- c("lognormal", "Ordered Categorical")

# The family object of this package for one of another package or a name; a known one is returned unchanged.
translated_family <- function(family) {
  name <- if (inherits(family, "family")) family$family else family
  if (!is.character(name) || length(name) != 1L) return(family)
  refuse_fixed_theta(name)
  name <- sub("^(Beta regression|Ordered Categorical|scaled t|Tweedie)\\(.*", "\\1", name)
  refuse_other_families(name)
  known <- if (name %in% names(family_aliases)) family_aliases[[name]] else name
  if (identical(known, name) && !inherits(family, "brmsfamily")) return(family)
  # brms::lognormal() has a predictor of the mean logarithm; that of the logarithm of the mean differs by a constant
  link <- if (inherits(family, "family") && !name %in% links_apart) family$link
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

# what to do instead, by the name that 'stats', 'brms', 'glmmTMB' or 'mgcv' have
other_families <- local({
  overdispersed <- "Counts that vary by more than poisson ones: neg_binomial_2()."
  baseline <- "Use piecewise_exponential(), whose baseline hazard is a factor of intervals or a smooth s(time)."
  shares <- "Fit whether the response is 0 or 1 with binomial() or categorical(), and the shares between with Beta()."
  zeros <- "Use zero_inflated_poisson() with `ziformula`."
  inflated <- "beta_binomial() has more zeros than binomial() where successes vary."
  log_times <- "For times: lognormal(), weibull() or piecewise_exponential()."
  positive <- "Fit y > 0 with binomial(), and the positive responses with Gamma(link = \"log\")."
  c(hurdle_gamma = positive,
    hurdle_lognormal = "Fit y > 0 with binomial(), and the positive responses with lognormal().",
    tweedie = positive, Tweedie = positive,
    quasipoisson = overdispersed, nbinom1 = overdispersed, compois = overdispersed, genpois = overdispersed,
    com_poisson = overdispersed, quasibinomial = "Successes of several trials that vary by more than binomial ones: beta_binomial().",
    cox = baseline, `Cox PH` = baseline, zero_inflated_beta = shares, zero_one_inflated_beta = shares, ordbeta = shares,
    ziP = zeros, `zero inflated Poisson` = zeros, exgaussian = "For a heavy right tail: lognormal() or student().",
    skew_normal = "For skewed positive responses: lognormal() or Gamma(link = \"log\").",
    zero_inflated_binomial = inflated, zero_inflated_beta_binomial = inflated, zero_inflated_betabinomial = inflated,
    hurdle_cumulative = "Fit whether the response is in a class at all with binomial(), and the classes of the others with cumulative().",
    geometric = "Use neg_binomial_2(), of which it is the case phi = 1.", shifted_lognormal = log_times, frechet = log_times,
    loglogistic = log_times, llogis = log_times, wiener = log_times, ex_gaussian = log_times,
    asym_laplace = "For errors with outliers: student() or robust(). Quantile regression is not supported.",
    von_mises = "Circular responses are not supported; see model_density() for a likelihood of your own.",
    dirichlet = "Fit shares two at a time with Beta(), or counts with multinomial().",
    skewnormal = "For skewed positive responses: lognormal() or Gamma(link = \"log\").")
})

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
  se = "With known standard errors use weights = 1 / se^2 and dispersion = 1.",
  thres = "cumulative() has as many cut points as the response has levels, less one; give these as factor(y, levels = ).",
  mi = "Rows with missing values are dropped; impute them before.",
  cat = "Give the response as a factor.", dec = "Responses of a decision model are not supported.")

refuse_response_extras <- function(formula) {
  response <- if (inherits(formula, "formula") && length(formula) == 3L) formula[[2L]]
  if (!is.call(response) || !identical(response[[1L]], quote(`|`))) return(invisible())
  used <- intersect(sub("^resp_", "", all.names(response[[3L]])), names(response_extras))
  instead <- if (length(used)) paste(response_extras[used], collapse = " ") else "Leave out the bar and what follows it."
  elvi_abort("`", deparse1(response), "`: the syntax of 'brms' with a bar on the left of a formula is not supported. ", instead,
             class = "elvi_error_argument", data = list(argument = "object"))
}

# brms::bf() and other formulas of several parts
refuse_brms_formula <- function(object) {
  if (!inherits(object, c("brmsformula", "mvbrmsformula"))) return(invisible())
  elvi_abort("`object`: a formula of 'brms' is not supported. Give the formula of the mean as it is, and those of other parameters as ",
             "`dispformula` (sigma, shape, phi) and `ziformula` (zi, hu).", class = "elvi_error_argument", data = list(argument = "object"))
}
