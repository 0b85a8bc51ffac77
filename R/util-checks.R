# Argument checks. Every message names the argument, says what was expected and
# shows what came; every condition has a class that users can catch.

elvi_abort <- function(..., class = NULL, call = NULL, data = list()) {
  message <- paste0(...)
  stop(structure(
    class = c(class, "elvi_error", "error", "condition"),
    c(list(message = message, call = call), data)
  ))
}

elvi_warn <- function(..., class = NULL, data = list()) {
  warning(structure(
    class = c(class, "elvi_warning", "warning", "condition"),
    c(list(message = paste0(...), call = NULL), data)
  ))
}

elvi_inform <- function(..., class = NULL) {
  message(structure(
    class = c(class, "elvi_message", "message", "condition"),
    list(message = paste0(..., "\n"), call = NULL)
  ))
}

# "`name` must be `expected`, not `got`: `why`."
bad_argument <- function(name, expected, got = NULL, why = NULL) {
  elvi_abort("`", name, "` must be ", expected,
             if (!is.null(got)) paste0(", not ", got), if (!is.null(why)) paste0(": ", why), ".",
             class = "elvi_error_argument", data = list(argument = name))
}

# a value among the numbers of an argument that is missing or infinite; `where` is its place, such as "at position 3"
refuse_missing <- function(name, value, where = "somewhere") {
  refuse_argument(name, "`", name, "` has a ", if (is.na(value)) "missing" else "non-finite", " value: ", format(value), " ", where, ".")
}

# An argument that means nothing for this call. `why` is a clause that says so, and may end in what to do instead.
unused_argument <- function(name, why) {
  elvi_abort("`", name, "` is not used: ", why, ".", class = "elvi_error_argument", data = list(argument = name))
}

# A value that is of the right kind and still cannot be used: whole sentences that say why, and what to do
refuse_argument <- function(name, ...) {
  elvi_abort(..., class = "elvi_error_argument", data = list(argument = name))
}

# A short description of any R object for an error message.
describe <- function(x) {
  if (is.null(x)) return("NULL")
  if (is.function(x)) return("a function")
  if (is.data.frame(x)) return("a data frame")
  if (is.factor(x)) return("a factor")
  if (is.matrix(x)) return(sprintf("a %d x %d %s matrix", nrow(x), ncol(x), typeof(x)))
  if (is.atomic(x) && length(x) == 1L) {
    return(if (is.character(x)) shortened(encodeString(x, quote = "\"")) else format(x))
  }
  if (is.atomic(x)) return(sprintf("%s vector of length %.0f", with_article(typeof(x)), length(x)))
  if (is_plain_list(x)) {
    names <- names(x)[nzchar(names(x))]
    return(if (length(names)) paste("a list with", shortened(toString(names))) else if (length(x)) "an unnamed list" else "an empty list")
  }
  paste("an object of class", encodeString(class(x)[1L], quote = "\""))
}

shortened <- function(text, most = 60L) {
  if (nchar(text, "bytes") <= most) text else paste0(substr(text, 1L, most - 4L), "...", if (startsWith(text, "\"")) "\"")
}

with_article <- function(noun) paste(if (grepl("^[aeiou]", noun)) "an" else "a", noun)

is_number <- function(x) is.numeric(x) && !is.factor(x) && length(x) == 1L && !is.na(x)

check_number <- function(x, name, lower = -Inf, upper = Inf, open = FALSE,
                         infinite = FALSE) {
  inside <- is_number(x) && (infinite || is.finite(x)) &&
    (if (open) x > lower && x < upper else x >= lower && x <= upper)
  if (!inside) {
    range <- if (lower == -Inf && upper == Inf) {
      ""
    } else if (upper == Inf) {
      sprintf(if (open) " greater than %g" else " of at least %g", lower)
    } else {
      sprintf(if (open) " strictly between %g and %g" else " between %g and %g", lower, upper)
    }
    bad_argument(name, paste0("a ", if (!infinite) "finite ", "number", range), describe(x))
  }
  as.double(x)
}

check_positive <- function(x, name, infinite = FALSE) {
  if (!is_number(x) || x <= 0 || (!infinite && !is.finite(x))) {
    bad_argument(name, paste0("a positive", if (!infinite) " finite", " number"), describe(x))
  }
  as.double(x)
}

check_count <- function(x, name, lower = 1, infinite = FALSE, upper = 2^52) {
  whole <- is_number(x) && x >= lower && (if (is.finite(x)) x == floor(x) && x <= upper else infinite)
  if (!whole) {
    too_large <- is_number(x) && x > upper && upper < 2^52
    bad_argument(name, if (too_large) sprintf("a whole number of at most %.0f", upper) else
      sprintf("a whole number of at least %g", lower), describe(x))
  }
  as.double(x)
}

check_file_name <- function(x, name) {
  if (!is.character(x) || length(x) != 1L || is.na(x) || !nzchar(x)) {
    bad_argument(name, "the name of a file", describe(x))
  }
  x
}

# A dimension is an int in C.
check_dim <- function(x, name = "dim") check_count(x, name, upper = .Machine$integer.max)

# Refuses what would not fit in memory, before anything is allocated. `got` is the
# argument `name` that asks for so many numbers.
check_size <- function(numbers, name, got) {
  if (fits_in_memory(numbers)) return(invisible())
  limit <- most_gib()
  gib <- numbers * 8 / 2^30
  bad_argument(name, sprintf("small enough for memory (%s numbers take %s GiB; %s)", format(numbers, digits = 3),
                             format(gib, digits = 3),
                             if (gib <= limit) "the limit is 2^31"
                             else paste0("options(elvi.max_gib = ", format(limit), ") is the limit")),
               describe(got))
}

fits_in_memory <- function(numbers) numbers <= .Machine$integer.max && numbers * 8 / 2^30 <= most_gib()

most_gib <- function() {
  limit <- getOption("elvi.max_gib", 2)
  if (is_number(limit)) limit else 2
}

# A number of draws of `each` numbers.
check_draws <- function(draws, each, name = "draws", lower = 1) {
  draws <- check_count(draws, name, lower = lower)
  check_size(draws * each, name, draws)
  draws
}

check_digits <- function(x) check_count(x, "digits", upper = 22)

# An error of R while it reads a user's variables, as one that names the argument
# they came in. Conditions with a class of their own are the user's, and pass.
blame_argument <- function(expr, name, what) {
  tryCatch(expr, error = function(e) {
    if (is_time_limit(e)) stop(e)
    if (!class(e)[1L] %in% c("simpleError", "getvarError", "missingArgError", "notSubsettableError",
                         "subscriptOutOfBoundsError")) stop(e)
    elvi_abort("`", name, "`: ", what, " (", conditionMessage(e), ").", class = "elvi_error_argument",
               data = list(argument = name, parent = e))
  })
}

check_flag <- function(x, name) {
  if (!is.logical(x) || length(x) != 1L || is.na(x)) {
    bad_argument(name, "TRUE or FALSE", describe(x))
  }
  x
}

check_choice <- function(x, name, choices) {
  if (length(choices) && identical(x, choices)) return(choices[1L])   # the untouched default
  if (!is.character(x) || length(x) != 1L || is.na(x) || !x %in% choices) {
    bad_argument(name, paste("one of", paste0("\"", choices, "\"", collapse = ", ")),
                 describe(x))
  }
  x
}

check_class <- function(x, name, class, maker) {
  if (!inherits(x, class)) bad_argument(name, paste("made by", maker), describe(x))
  x
}

# a list that is not an object of some class, nor a matrix
is_plain_list <- function(x) is.list(x) && !is.object(x) && is.null(dim(x))

check_function <- function(x, name) {
  if (!is.function(x)) bad_argument(name, "a function", describe(x))
  x
}

# The doubles of an integer64 are the bits of its integers: without package bit64 they mean something else.
refuse_integer64 <- function(x, name) {
  if (inherits(x, "integer64")) {
    bad_argument(name, "of type double or integer", "integer64", "convert it by as.double()")
  }
}

check_vector <- function(x, name, length = NULL, infinite = FALSE) {
  refuse_integer64(x, name)
  if (!is.numeric(x) || is.factor(x) || !(is.null(dim(x)) || NCOL(x) == 1L) ||
        (!is.null(length) && length(x) != length)) {
    bad_argument(name, if (is.null(length)) "a numeric vector" else
      sprintf("a numeric vector of length %.0f", length), describe(x))
  }
  refuse_missing_values(x, name, infinite)
  as.double(x)
}

# of numbers: those that are missing and, unless these are allowed, infinite
refuse_missing_values <- function(x, name, infinite = FALSE) {
  bad <- if (infinite) is.na(x) else !is.finite(x)
  if (any(bad)) {
    refuse_missing(name, x[bad][1L], sprintf("at position %.0f", which(bad)[1L]))
  }
}

check_matrix <- function(x, name, nrow = NULL, ncol = NULL) {
  if (is.data.frame(x)) {
    bad_argument(name, "a numeric matrix (see model.matrix() to make one)", describe(x))
  }
  if (!is.matrix(x) || !(is.numeric(x) || is.logical(x))) {
    bad_argument(name, "a numeric matrix", describe(x))
  }
  refuse_integer64(x, name)
  x <- unclass(x)   # a table, say: its class has no methods for matrices
  if ((!is.null(nrow) && nrow(x) != nrow) || (!is.null(ncol) && ncol(x) != ncol)) {
    bad_argument(name, sprintf("a %s x %s matrix", nrow %||% "n", ncol %||% "d"), describe(x))
  }
  # colSums carries NA, NaN and Inf through, without a logical copy of x
  bad <- which(!is.finite(colSums(x)))
  bad <- bad[vapply(bad, function(j) any(!is.finite(x[, j])), NA)]
  if (length(bad)) {
    j <- bad[1L]
    i <- which(!is.finite(x[, j]))[1L]
    label <- colnames(x)[j]
    refuse_missing(name, x[i, j], sprintf("in row %d of column %d%s", i, j, if (is.null(label)) "" else paste0(" (", label, ")")))
  }
  x
}

# Sums of squares of what is larger are not finite.
check_magnitude <- function(x, name) {
  if (max(x) <= 1e150 && min(x) >= -1e150) return(invisible())   # makes no copy, as range() does
  i <- which.max(abs(x))
  label <- if (is.matrix(x)) colnames(x)[(i - 1L) %/% nrow(x) + 1L]
  bad_argument(name, "below 1e150 in absolute value",
               paste0(format(x[[i]]), if (length(label)) paste0(" in column `", label, "`")), "its square overflows. Rescale it")
}

# `...` of a function that takes no further arguments: say which name was meant.
# Names in `ignored` come from other packages' code, not from a person.
check_dots <- function(dots, known, where, ignored = character()) {
  if (length(ignored) && !is.null(names(dots))) dots <- dots[!names(dots) %in% ignored]
  if (!length(dots)) return(invisible())
  given <- names(dots) %||% rep("", length(dots))
  first <- iconv(given[1L], "", "", sub = "byte")   # a name may be no valid text
  if (!nzchar(first)) {
    elvi_abort(where, " has no place for ", sum(!nzchar(given)), " unnamed argument(s). Name them.",
               class = "elvi_error_argument", data = list(argument = "..."))
  }
  instead <- if (where == "elvi()" || is.null(nearest_name(first, known))) argument_of_others(first, where)
  if (!is.null(instead)) {
    elvi_abort(where, " has no argument `", first, "`: ", instead, class = "elvi_error_argument", data = list(argument = first))
  }
  elvi_abort(where, " has no argument `", first, "`.", nearest_name(first, known),
             class = "elvi_error_argument", data = list(argument = given[1L]))
}

# a question at the end of a message about an unknown name; NULL if no other name is near it, or it is not valid text
nearest_name <- function(name, known) {
  if (!length(known) || !validEnc(name)) return(NULL)
  distance <- utils::adist(name, known, ignore.case = TRUE)
  near <- known[distance == min(distance) & distance <= max(2, nchar(name) %/% 3) & distance < nchar(name)]
  if (length(near)) paste0(" Did you mean `", near[1L], "`?")
}

# Arguments of 'rstanarm', 'brms', 'lme4' and 'glmmTMB', and elvi's way to the same end
no_sampling <- "it does not sample, so there are no chains to set up. `draws = ` of its methods says how many draws you get."
threads_of_others <- "options(elvi.threads = ) sets the number of threads, elvi_threads() shows it."
group_prior <- "`prior_sd` is the prior of the standard deviations of groups, `prior_cor` that of their correlations."
other_grouping <- "write group-level terms in the formula, such as y ~ x + (1 | g)."
other_correlation <- "write the correlation as a term, such as y ~ x + ar1(time | g). See ?latent_terms."
not_compiled <- "it compiles nothing for a fit."
arguments_of_others <- list(
  iter = no_sampling, chains = no_sampling, warmup = no_sampling, thin = no_sampling, adapt_delta = no_sampling, refresh = no_sampling,
  max_treedepth = no_sampling, iter_warmup = no_sampling, iter_sampling = no_sampling, parallel_chains = no_sampling,
  algorithm = "use `method`, see ?elvi.", backend = not_compiled, normalize = not_compiled, stan_model_args = not_compiled,
  cores = threads_of_others, threads = threads_of_others, nthreads = threads_of_others, num.threads = threads_of_others,
  seed = "call set.seed() before, as for any R function.",
  REML = "it integrates over coefficients and variances, so there is nothing to choose.",
  nAGQ = "it integrates over hyperparameters by quadrature. `control = elvi_control(nodes = )` sets the number of points.",
  prior_PD = "use `prior_only = TRUE`.", sample_prior = "use `prior_only = TRUE`.", prior_covariance = group_prior, priors = "use `prior`.",
  hu = "use `ziformula`.", phi.formula = "use `dispformula`.", sigma.formula = "use `dispformula`.",
  random = other_grouping, correlation = other_correlation, autocor = other_correlation,
  data2 = "pedigrees, graphs and matrices are found where the formula was written. See ?latent_terms.",
  init = "it finds its own start. For a model_density(), `start = list(mu = )` gives one.",
  inits = "it finds its own start. For a model_density(), `start = list(mu = )` gives one.",
  Ntrials = "give successes and failures: cbind(y, n - y) ~ x.", E = "use an offset: y ~ x + offset(log(E)).",
  QR = "it needs no such transformation.", save_pars = "it keeps what all its methods need.", stanvars = not_compiled)

# the same for methods of fits, of which many take `level`
levels_of_others <- "`level` of confint() and predict() sets the probability of intervals."
method_arguments_of_others <- list(
  probs = levels_of_others, prob = levels_of_others, ci = levels_of_others, conf.level = levels_of_others,
  summary = "posterior_linpred(), posterior_epred() and posterior_predict() return draws.",
  nsamples = "`draws` is the number of draws.", subset = "`draws` is the number of draws.",
  cores = threads_of_others, seed = "call set.seed() before, as for any R function.")

# elvi's name for an argument of another package, or NULL
argument_of_others <- function(name, where) {
  if (where != "elvi()") return(method_arguments_of_others[[name]])
  if (name %in% names(formals(elvi_control))) return(sprintf("use `control = elvi_control(%s = )`.", name))
  arguments_of_others[[name]]
}

# values of `method` of other packages, and why elvi has none of that name
methods_of_others <- c(
  sampling = "it does not sample", nuts = "it does not sample",
  REML = "it integrates over variances", fREML = "it integrates over variances",
  ML = "it maximises no likelihood", optimizing = "its estimate is the posterior, not a mode",
  meanfield = "use \"mpsgd\" with elvi_control(scale = \"diagonal\")", fullrank = "use \"mpsgd\"", advi = "use \"mpsgd\"")

check_method <- function(method, choices) {
  if (is.character(method) && length(method) == 1L && method %in% names(methods_of_others)) {
    refuse_argument("method", "elvi() has no method \"", method, "\": ", methods_of_others[[method]],
                    ". The default, \"auto\", suits most models.")
  }
  check_choice(method, "method", choices)
}

# lists are what 'rstanarm' and 'brms' take
check_control <- function(control) {
  if (is_plain_list(control)) {
    known <- intersect(names(control), names(arguments_of_others))
    if (length(known)) refuse_argument("control", "`control` of elvi() has no `", known[1L], "`: ", arguments_of_others[[known[1L]]])
  }
  check_class(control, "control", "elvi_control", "elvi_control()")
}

# What broom, modelsummary, marginaleffects, performance and stats itself pass to any model, whether it knows it or not.
# None of it changes what is asked for.
passed_by_frameworks <- list(
  nobs = "use.fallback", formula = "env", family = "verbose", predict = c("na.action", "verbose"),
  tidy = c("effects", "parametric", "p.values", "verbose", "coef_rename"), glance = c("verbose", "metrics", "vcov"),
  augment = c("se_fit", "se.fit"),   # standard errors are always there
  draws = c("re_formula", "re.form"))   # which groups: a fit without groups has none to leave out

# nor does an argument that is given as NULL
given_values <- function(dots) dots[!vapply(dots, is.null, NA)]

`%||%` <- function(x, y) if (is.null(x)) y else x

need_package <- function(package, what) {
  failure <- package_failure(package)
  if (is.null(failure)) return(invisible())
  missing <- inherits(failure, "packageNotFoundError") && identical(failure$package, package)
  elvi_abort(what, " needs the package '", package, "'", if (missing) {
    paste0(". Install it with install.packages(\"", package, "\").")
  } else {
    paste0(", which cannot be loaded: ", conditionMessage(failure))
  }, class = "elvi_error_package")
}

has_package <- function(package) is.null(package_failure(package))

# The error that keeps a package from being loaded, or NULL. A time limit can end the loading of a package that is there; R
# quotes its error in that of .onLoad().
package_failure <- function(package) {
  limited <- function(e) any(vapply(time_limit_texts(), grepl, NA, conditionMessage(e), fixed = TRUE))
  tryCatch({
    loadNamespace(package)
    NULL
  }, error = function(e) if (limited(e)) stop(e) else e)
}
