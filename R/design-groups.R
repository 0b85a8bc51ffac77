#' Group-level and smooth terms
#'
#' Formulas of [elvi()] may have group-level terms (random effects), written as in 'lme4', and smooth terms, written as in
#' 'mgcv'. No sampling and no tuning are needed.
#'
#' Standard deviations, correlations and the dispersion are the hyperparameters of such a model. Given their values, the model
#' is a generalised linear model with a sparse design, and elvi finds its best gaussian approximation with a certificate. It
#' does so at several values of the hyperparameters, the quadrature points. The fit is the weighted mixture of these
#' approximations.
#'
#' @section Group-level terms:
#' * `(1 | g)`: an intercept for each level of `g`.
#' * `(x | g)` or `(1 + x | g)`: intercepts and slopes, correlated; `x` may be a factor.
#' * `(x || g)`: intercepts and slopes, independent, also where `x` is a factor.
#' * `diag(x | g)` is `(x || g)`; `cs(0 + f | g)`: heterogeneous compound symmetry, a standard deviation for each coefficient and one
#'   correlation, as in 'glmmTMB'.
#' * `(0 + x | g)`: slopes only.
#' * `(1 | g/h)`: levels of `h` within those of `g`, the same as `(1 | g) + (1 | h:g)`.
#' * `(1 | a:b)`: one level for each combination that occurs.
#' * `(1 | a) + (1 | b)`: crossed terms.
#'
#' Package 'reformulas' reads these terms. Other covariance structures, bars inside functions or interactions, factors with one
#' level and constant slopes give an error of class `elvi_error_term`. A factor may have one level per row, except for the
#' gaussian family with unknown residual variance.
#'
#' @section Smooth terms:
#' `s(x)`, `s(x, by = f)`, `t2(x, z)` and all other smooths that mgcv's `smooth2random()` can write as random effects: the unpenalised
#' part joins the coefficients (named `s(x).fx1`, ...), each penalised part
#' (`s(x).1`, ...) becomes a term with one standard deviation, `smooth_sd[s(x)]`. `knots = ` of [elvi()] is passed to mgcv.
#'
#' `te(x, z)`, `ti(x, z)` and `s(x, bs = "ad")` have several penalties on the same coefficients, and one standard deviation for each:
#' `smooth_sd[te(x,z)1]` belongs to the penalty along `x`, `smooth_sd[te(x,z)2]` to that along `z`. The precision of the coefficients
#' is the sum of the penalties, each divided by the square of its standard deviation.
#'
#' The columns of a basis have arbitrary units. Each penalised part is therefore made orthogonal to the free columns and scaled
#' (Sørbye and Rue, 2014). Given `smooth_sd[s(x)]`, its variance is then `smooth_sd[s(x)]^2` on average over the rows of the
#' data; for `s(x, by = f)`, over the rows of the level. So the standard deviation is that of the smooth's values around the
#' free part, on the scale of the linear predictor, and has the same meaning for every basis. If there are several penalties,
#' each is scaled as if it were the only one. Several free columns are made uncorrelated, with variance 1. The basis `"cs"` of
#' mgcv depends on rounding, so a change of units may change such a fit.
#'
#' @section Priors:
#' `prior` and `prior_intercept` must be normal or flat. `prior_sd` is the prior of each standard deviation: [exponential()], or
#' the positive half of [normal()], [student_t()] or [cauchy()] around 0; a list with the labels of terms as names gives each
#' term its own prior. `prior_cor = lkj(eta)` is the prior of correlation matrices.
#'
#' The default, `exponential(1)`, does not depend on units. For the gaussian family its mean is multiplied by the standard
#' deviation of the response. For a slope it is divided by the standard deviation of the slope's column. A prior that you give
#' is not rescaled.
#'
#' For a term with one coefficient, `exponential(1)` is rstanarm's `decov(1, 1, 1, 1)`. For the gaussian family rstanarm
#' measures standard deviations in units of sigma, and elvi does not.
#'
#' @section Accuracy:
#' [print()][elvi_fit] and [summary()][elvi_fit] report
#' * the largest optimality gap over all quadrature points, in nats;
#' * the quadrature error: the change of means and standard deviations against the next coarser grid. Beyond 0.05 standard deviations
#'   there is a warning of class `elvi_warning_quadrature`, and `elvi_control(nodes = )` makes the grid finer;
#' * Pareto k-hat, with its number of draws;
#' * the log evidence, with its lower bound.
#'
#' With a gaussian base, importance sampling at the quadrature points corrects their weights and the means of coefficients and
#' effects. The reported gap is the one before this correction. Draws of a fit are independent, so `loo()` uses a relative
#' efficiency of 1.
#'
#' @section Long runs:
#' `elvi_control(progress = TRUE)` shows the progress after two seconds. A fit can be interrupted (Ctrl-C) between quadrature
#' points and between iterations, but not while package 'Matrix' orders or factorises a sparse matrix.
#'
#' @section Families:
#' All [families]. Parameters of a family, such as `sigma`, `phi` and `shape`, are hyperparameters too, also in formulas without
#' group-level terms.
#' @references Sørbye, S. H. and Rue, H. (2014) Scaling intrinsic Gaussian Markov random field priors in spatial modelling.
#' *Spatial Statistics* 8, 39-51. \doi{10.1016/j.spasta.2013.06.004}
#' @seealso [`methods`][group_methods], [`predictions`][predict.elvi_glm], [`plots`][plot.elvi_fit],
#'   `vignette("groups")`
#' @examples
#' \donttest{
#' if (requireNamespace("reformulas", quietly = TRUE)) {
#'   fit <- elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson())
#'   fit
#' }
#' if (requireNamespace("mgcv", quietly = TRUE)) {
#'   elvi(dist ~ s(speed), data = cars)
#' }
#' }
#' @name group_terms
NULL

# Group-level terms of a formula: `(x | g)` and similar ones, read by the rules of lme4.

# A formula in its parts, or NULL when it has neither bars nor smooth terms: `fixed`, a formula of what any
# model matrix can take; `bars`, a list of (slopes, group, correlated); `smooths`, calls of s() and t2();
# `others`, a list of (kind, call) with the calls of other latent terms.
structured_formula <- function(formula, data = NULL) {
  right <- formula[[length(formula)]]
  if (!any(all.names(right) %in% names_of_terms) || !mentions(right, names_of_terms)) return(NULL)   # the first is quick
  parts <- additive_parts(right)
  kinds <- vapply(parts, function(part) part_kind(part$expr), "")
  for (part in parts[kinds != "fixed"]) {
    if (part$minus) refuse_term(part$expr, "it cannot be taken away: leave it out")
  }
  expressions <- lapply(parts, `[[`, "expr")
  bars <- do.call(c, lapply(expressions[kinds == "bar"], read_bar))
  smooths <- expressions[kinds == "smooth"]
  others <- Map(function(kind, call) list(kind = kind, call = call), kinds, expressions)[!kinds %in% c("fixed", "bar", "smooth")]
  if (all(kinds == "fixed")) return(NULL)
  left <- if (length(formula) == 3L) formula[[2L]]
  env <- environment(formula)
  list(fixed = fixed_formula(left, parts[kinds == "fixed"], env, data, c(bars, expressions[!kinds %in% c("fixed", "bar")])),
       bars = bars, smooths = smooths, others = unname(others))
}

smooth_functions <- c("s", "t2", "te", "ti")

# operators whose operands are formula terms; inside of other calls a bar is R's own "or"
term_operators <- c("+", "-", "*", ":", "/", "^", "%in%", "(")

# covariance structures of other packages, with their bars inside a call
covariance_structures <- c("us", "diag", "cs", "homcs", "ar1", "hetar1", "ou", "exp", "gau", "mat", "rr", "toep",
                           "homdiag", "propto", "equalto", "gr", "mm", "ar", "arma", "car", "sar", "gp", "mo")

call_name <- function(expr) {
  if (!is.call(expr)) return("")
  head <- expr[[1L]]
  if (is.call(head) && as.character(head[[1L]])[1L] == "::") head <- head[[3L]]   # mgcv::s(x)
  if (is.name(head)) as.character(head) else ""
}

mentions <- function(expr, names) {
  is.call(expr) && (call_name(expr) %in% names || any(vapply(as.list(expr)[-1L], mentions, NA, names)))
}

is_bar <- function(expr) call_name(expr) %in% c("|", "||")

# The terms that a formula adds or takes away, brackets around sums with bars opened.
additive_parts <- function(expr, minus = FALSE) {
  name <- call_name(expr)
  if (name %in% c("+", "-") && length(expr) == 3L) {
    return(c(additive_parts(expr[[2L]], minus), additive_parts(expr[[3L]], xor(minus, name == "-"))))
  }
  if (name %in% c("+", "-")) return(additive_parts(expr[[2L]], xor(minus, name == "-")))
  if (name == "(" && !is_bar(expr[[2L]]) && mentions(expr, c("|", "||", names(latent_calls())))) {
    return(additive_parts(expr[[2L]], minus))
  }
  list(list(expr = expr, minus = minus))
}

part_kind <- function(expr) {
  name <- call_name(expr)
  if (name == "(" && is_bar(expr[[2L]])) {
    behind <- call_name(expr[[2L]][[3L]])
    return(if (behind %in% names(grouping_calls())) grouping_calls()[[behind]] else "bar")
  }
  if (is_bar(expr)) refuse_term(expr, "a group-level term is written in brackets, such as (1 | g)")
  if (name %in% names(latent_calls())) return(latent_calls()[[name]])
  if (name == "mo") {
    refuse_term(expr, paste("a monotonic effect is a slope times unknown steps, a product of unknowns whose loss is not convex.",
                            "rw1() is a free curve, a numeric variable a straight line"))
  }
  if (name %in% covariance_structures && any(vapply(as.list(expr)[-1L], is_bar, NA))) {
    if (name %in% c("us", "diag") && length(expr) == 2L) return("bar")
    refuse_term(expr, paste0("the covariance structure ", name, "() is not available: (x | g) has an unstructured ",
                             "one, (x || g) a diagonal one, cs(x | g) compound symmetry"))
  }
  if (!name %in% c(term_operators, "I") && any(vapply(as.list(expr)[-1L], looks_grouped, NA))) {
    refuse_term(expr, paste0("a group-level term cannot be inside of ", name,
                             "(); where `|` is meant as \"or\", write it in I()"))
  }
  if (name %in% term_operators) {
    for (operand in as.list(expr)[-1L]) {
      if (is_bar(operand) || part_kind(operand) != "fixed") {
        refuse_term(expr, "group-level and smooth terms can only be added, not crossed with others")
      }
    }
  }
  "fixed"
}

# `1 | g` and `0 + x | g` are not logical expressions
looks_grouped <- function(expr) {
  is_bar(expr) && any(vapply(additive_parts(expr[[2L]]), function(part) is.numeric(part$expr), NA))
}

refuse_term <- function(expr, why) {
  elvi_abort("`object`: the term `", deparse_one(expr), "` is not supported: ", why, ".",
             class = c("elvi_error_term", "elvi_error_argument"),
             data = list(argument = "object", term = deparse_one(expr)))
}

deparse_one <- function(expr) paste(deparse(expr, width.cutoff = 500L), collapse = " ")

# One bar of a formula as the terms it stands for: `(1 | g/h)` is two.
read_bar <- function(expr) {
  need_package("reformulas", "A group-level term such as (1 | g)")
  correlated <- call_name(expr) != "diag"
  bar <- expr[[2L]]
  if (call_name(bar) == "||") {
    correlated <- FALSE
    bar[[1L]] <- quote(`|`)
  }
  expanded <- or_null(reformulas::findbars(call("~", call("(", bar))))
  if (!length(expanded)) refuse_term(expr, "it cannot be read")
  lapply(expanded, function(term) {
    group <- term[[3L]]
    parts <- interaction_parts(group)
    if (any(vapply(parts, function(part) call_name(part) %in% c(term_operators, "|", "||") || !is_variable(part), NA))) {
      refuse_term(expr, paste0("`", deparse_one(group), "` is no grouping factor: g, g/h and g:h are"))
    }
    list(slopes = term[[2L]], group = group, correlated = correlated,
         label = paste(vapply(parts, deparse_one, ""), collapse = ":"), written = deparse_one(expr))
  })
}

is_variable <- function(expr) is.name(expr) || is.call(expr)

interaction_parts <- function(expr) {
  if (call_name(expr) == ":") c(interaction_parts(expr[[2L]]), interaction_parts(expr[[3L]]))
  else if (call_name(expr) == "(") interaction_parts(expr[[2L]])
  else list(expr)
}

# What is left without bars and smooths. A dot stands for the variables that are not elsewhere in the formula.
fixed_formula <- function(left, parts, env, data, structured) {
  right <- if (length(parts)) {
    Reduce(function(sum, part) {
      if (is.null(sum)) return(if (part$minus) call("-", part$expr) else part$expr)
      call(if (part$minus) "-" else "+", sum, part$expr)
    }, parts, NULL)
  } else {
    1
  }
  if ("." %in% all.names(right)) {
    elsewhere <- unique(unlist(lapply(structured, all_variables)))
    columns <- setdiff(names(data), c(elsewhere, all.vars(left)))
    if (!length(columns)) bad_argument("object", "a formula whose `.` stands for columns of `data`", "one for which there are none")
    dot <- str2lang(paste(vapply(columns, function(name) deparse_one(as.name(name)), ""), collapse = " + "))
    right <- do.call(substitute, list(right, list(. = call("(", dot))))
  }
  formula <- if (is.null(left)) call("~", right) else call("~", left, right)
  stats::as.formula(formula, env = env)
}

all_variables <- function(part) {
  if (is.call(part)) all.vars(part) else c(all.vars(part$slopes), all.vars(part$group))
}

# The formula of everything, for one model frame. The variables of the fixed part come first, so that what their
# terms say of positions holds in the whole frame.
frame_formula <- function(structured, smooth_variables) {
  fixed <- structured$fixed
  others <- c(do.call(c, lapply(structured$bars, term_kinds$group$variables)), lapply(smooth_variables, str2lang),
              do.call(c, lapply(structured$others, function(other) by_variables(other$kind, other$call))))
  right <- Reduce(function(sum, expr) call("+", sum, expr), others, fixed[[length(fixed)]])
  if (attr(stats::terms(fixed, allowDotAsName = TRUE), "intercept") == 0) right <- call("-", right, 1)
  fixed[[length(fixed)]] <- right
  fixed
}

# ---- from frame to columns ---------------------------------------------------------------

# A bar with everything that its columns need, for the data of the fit and for new ones.
group_term <- function(bar, frame, contrasts, counting = TRUE) {
  slopes <- stats::as.formula(call("~", bar$slopes), env = environment(attr(frame, "terms")))
  terms <- subset_terms(stats::terms(slopes), frame)
  within <- Filter(function(name) name %in% all_variable_names(terms), names(contrasts))
  M <- slope_matrix(terms, frame, contrasts[within])
  check_slopes(M, bar)
  columns <- vapply(interaction_parts(bar$group), deparse_one, "")
  for (name in columns) check_grouping(frame[[name]], name, bar, nrow(frame))
  group <- grouping_factor(frame, columns)
  if (nlevels(group) < 2L) {
    refuse_term(str2lang(bar$written), paste0("`", bar$label,
                                              "` has one level in these data, and one level does not show ",
                                              "how levels vary"))
  }
  list(label = bar$label, kind = "group", levels = levels(group), coefs = colnames(M), correlated = bar$correlated,
       unit = vapply(seq_len(ncol(M)), function(j) column_scale(M[counting, j]), 0),
       written = bar$written, slopes = terms, contrasts = attr(M, "contrasts"), group = columns,
       factor_levels = lapply(stats::setNames(columns, columns), function(name) levels(as.factor(frame[[name]]))))
}

slope_matrix <- function(terms, frame, contrasts = NULL) {
  M <- stats::model.matrix(terms, frame, if (length(contrasts)) contrasts)
  if (nrow(M) != nrow(frame)) M <- M[rep_len(1L, nrow(frame)), , drop = FALSE]   # `~ 1` of no variables
  M
}

all_variable_names <- function(terms) vapply(as.list(attr(terms, "variables"))[-1L], deparse_one, "")

# Terms of a part of the formula that remember, as those of the whole frame do, how poly() and scale() were made.
subset_terms <- function(terms, frame) {
  whole <- attr(frame, "terms")
  mine <- all_variable_names(terms)
  at <- match(mine, all_variable_names(whole))
  if (!is.null(attr(whole, "predvars"))) attr(terms, "predvars") <- attr(whole, "predvars")[c(1L, 1L + at)]
  attr(terms, "dataClasses") <- attr(whole, "dataClasses")[mine]
  terms
}

check_slopes <- function(M, bar) {
  if (!ncol(M)) refuse_term(str2lang(bar$written), "it has no coefficient that varies by group")
  check_matrix(M, "data")
  check_magnitude(M, "data")
  scaled <- sweep(M, 2L, pmax(apply(abs(M), 2L, max), .Machine$double.xmin), "/")
  R <- qr(scaled, tol = 1e-9)
  if (R$rank < ncol(M)) {
    extra <- colnames(M)[R$pivot[R$rank + 1L]]
    refuse_term(str2lang(bar$written), paste0("`", extra,
                                              "` is constant, or a combination of the other columns of the term"))
  }
}

check_grouping <- function(g, name, bar, n) {
  if (is.null(g) || !is.null(dim(g)) || !(is.atomic(g) || is.factor(g))) {
    refuse_term(str2lang(bar$written), paste0("`", name, "` is no grouping factor but ", describe(g)))
  }
  if (anyNA(g)) {
    refuse_argument("data", "The grouping factor `", name, "` is missing in row ", which(is.na(g))[1L],
                    " of `data`. Use na.action = na.omit to drop such rows.")
  }
}

# levels that occur, those of `a:b` as R's interaction of two factors has them
grouping_factor <- function(frame, columns) {
  factors <- lapply(columns, function(name) as.factor(frame[[name]]))
  if (length(factors) == 1L) return(droplevels(factors[[1L]]))
  interaction(factors, drop = TRUE, sep = ":", lex.order = TRUE)
}

# The columns of a term: n x (levels x coefficients), levels outside. Rows of a level that the term does not know
# (index NA) are empty.
group_columns <- function(term, M, index) {
  k <- length(term$coefs)
  known <- which(!is.na(index))
  Matrix::sparseMatrix(i = rep(known, k), j = rep((index[known] - 1L) * k, k) + rep(seq_len(k), each = length(known)),
                       x = as.double(M[known, ]), dims = c(nrow(M), k * length(term$levels)))
}

# which level of the term each row of a frame has; NA for a new one
level_index <- function(term, frame) {
  labels <- lapply(term$group, function(name) as.character(frame[[name]]))
  match(do.call(paste, c(labels, sep = ":")), term$levels)
}
