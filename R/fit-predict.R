#' Predictions from a regression
#'
#' `predict()` gives posterior means, and standard deviations with `se.fit`, of the linear predictor or of the expected response, for the
#' data or for `newdata`. `posterior_linpred()`, `posterior_epred()` and `posterior_predict()` give draws of the linear predictor, of the
#' expected response and of new responses: a matrix with one row per draw. `log_lik()` gives the log likelihood of each observation at
#' each draw, with all its constants.
#'
#' `fitted()` is `predict(type = "response")` at the data. `residuals()` are the differences to the response (for counts of successes: to
#' the proportion), or the residuals of [stats::residuals.glm()] with the same name, at the posterior means.
#'
#' @section How predictions are computed:
#' `predict()` and its credible intervals need no draws: the linear predictor of a row has a known distribution, and the rest is
#' one-dimensional quadrature. Intervals of new responses (`interval = "prediction"`) are quantiles of 4000 draws.
#'
#' @section Draws:
#' The same row of two matrices of draws belongs to the same draw. The same call gives the same responses, and different rows have
#' independent noise. R's generator does not change, and neither its state nor its kind ([RNGkind()]) changes the draws.
#'
#' @param object a fit by [elvi()] from a formula.
#' @param newdata optional data frame. Without it, the data of the fit.
#' @param type `"link"` for the linear predictor, `"response"` for the expected response, `"class"` for the most likely class of
#'   a response in classes (whose probabilities are also `"prob"`), `"terms"` for the parts of the linear predictor: a matrix
#'   with a column for each term of the formula, smooths and group-level terms too. Terms that are not smooths or groups are
#'   centred at the means of the data, as in [stats::predict.lm()]. The attribute `constant` is the rest of the linear
#'   predictor, without offsets. For a fit with a [second formula][second_formulas] also `"conditional"`, the mean without
#'   excess zeros, `"zprob"` and `"zlink"`, the probability of an extra zero (of a hurdle: of a zero) and its predictor, and
#'   `"disp"`, the dispersion. Credible intervals of the expected response are quantiles of 4000 draws where it depends on two
#'   predictors. For `residuals()`: `"response"`, `"pearson"`, `"deviance"` or `"working"`, as in [stats::residuals.glm()]; a
#'   `phi` that they depend on is at its posterior mean.
#' @param se.fit also return posterior standard deviations?
#' @param re.form for a fit with [group-level terms][group_terms]: `NULL` for all of them, `NA` or `~ 0` for none, or a one-sided
#'   formula with the terms to keep, such as `~ (1 | g)`. Smooth terms always stay. `re_formula`, the name in 'brms', works too.
#' @param allow_new_levels new levels of a grouping factor are an error, or with `TRUE` have effects drawn from the population, given the
#'   posterior of its standard deviations. `allow.new.levels`, the name in 'lme4', works too.
#' @param interval `"credible"` adds credible intervals of what `type` says (`"confidence"`, as [stats::predict.lm()]
#'   calls it, is the same), `"prediction"` intervals for new responses.
#' @param level probability of the interval.
#' @param offset optional offset for the new data, when the fit was given one
#'   outside its formula.
#' @param draws,ndraws number of draws, under either name. They are the first draws of the fit, the same in every call, see
#'   [as.matrix()][as.matrix.elvi_fit].
#' @param seed optional number that selects another sequence of draws.
#' @param trials number of trials for each row of `newdata`, for binomial fits of
#'   counts; 1 by default, those of the data without `newdata`.
#' @param ... nothing: unknown names are errors.
#' @return `predict()`: a named vector, with `interval` a matrix with columns `fit`, `lwr` and
#'   `upr`, or with `se.fit` a list with `fit` and `se.fit`. The others as above.
#' @examples
#' fit <- elvi(case ~ age + parity + spontaneous, data = infert, family = binomial())
#' predict(fit, newdata = infert[1:3, ], type = "response", se.fit = TRUE)
#' dim(posterior_predict(fit, draws = 100))
#' \donttest{
#' if (requireNamespace("reformulas", quietly = TRUE)) {
#'   fit <- elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson())
#'   new <- data.frame(tension = "L", wool = c("A", "C"))
#'   predict(fit, new, type = "response", se.fit = TRUE, allow_new_levels = TRUE)
#'   predict(fit, new, type = "response", re.form = NA)
#' }
#' }
#' @name predict.elvi_glm
NULL

#' @rdname predict.elvi_glm
#' @export
predict.elvi_glm <- function(object, newdata = NULL,
                             type = c("link", "response", "class", "terms", "conditional", "zprob", "zlink", "disp"),
                             se.fit = FALSE, re.form = NULL,
                             allow_new_levels = FALSE, offset = NULL, interval = c("none", "credible", "prediction"),
                             level = 0.95, ...) {
  re.form <- check_re_form(re.form, list(...), names(formals()), "predict()", passed_by_frameworks$predict)
  allow_new_levels <- check_new_levels(allow_new_levels, list(...))
  type <- check_type(type, object)
  se.fit <- check_flag(se.fit, "se.fit")
  interval <- check_interval(interval, type, object$family)
  level <- check_number(level, "level", 0, 1, open = TRUE)
  if (is.null(newdata) && is_out_of_memory(object)) {
    return(predict_out_of_memory(object, list(type = type, se.fit = se.fit, offset = offset, interval = interval, level = level)))
  }
  rows <- prediction_rows(object, newdata, re.form, allow_new_levels, offset)
  if (type == "terms") return(predict_terms(object, newdata, rows, se.fit))
  p <- c((1 - level) / 2, (1 + level) / 2)
  if (has_classes(object) && type %in% c("response", "class")) {
    if (type == "class") return(likely_class(class_probability_moments(object, rows)$mean, class_names(object$family)))
    limits <- if (interval != "none") posterior_epred(object, newdata, 4000, re.form, allow_new_levels, offset)
    return(class_predictions(object, rows, class_probability_moments(object, rows), limits, p, se.fit))
  }
  if (has_shared(object)) return(predictor_table(object, rows, interval, p, se.fit))
  out <- predicted_moments(object, rows, type, if (interval == "credible") p)
  limits <- switch(interval, none = NULL, credible = out$limits,
    prediction = predictive_quantiles(object, p, newdata = newdata, re.form = re.form, allow_new_levels = allow_new_levels,
                                      offset = offset))
  named <- function(x) restore_rows(object, newdata, stats::setNames(x, rownames(rows$X)))
  fit <- named(out$mean)
  if (!is.null(limits)) fit <- cbind(fit = fit, lwr = named(limits[, 1L]), upr = named(limits[, 2L]))
  if (se.fit) list(fit = fit, se.fit = named(out$sd)) else fit
}

# `re.form` under either name; other names are errors, except for those that other packages pass.
check_re_form <- function(re.form, dots, formals, method, passed = character()) {
  check_dots(given_values(dots), formals, method, c("re_formula", "allow.new.levels", passed))
  if (is.null(dots[["re_formula"]])) return(re.form)
  if (!is.null(re.form)) unused_argument("re_formula", "it is another name of `re.form`, which is given too")
  dots[["re_formula"]]
}

# `allow_new_levels`, or `allow.new.levels` as 'lme4' calls it
check_new_levels <- function(allow_new_levels, dots) dots[["allow.new.levels"]] %||% allow_new_levels

check_interval <- function(interval, type, family) {
  if (identical(interval, "confidence")) return("credible")
  interval <- check_choice(interval, "interval", c("none", "credible", "prediction"))
  if (interval == "prediction" && !is.null(family_record(family)$classes)) {
    bad_argument("interval", "\"none\" or \"credible\"", "\"prediction\"", "a new response is a class. posterior_predict() draws it")
  }
  if (interval == "prediction" && type == "link" && !link_of(family)$straight) {
    bad_argument("type", "\"response\" for intervals of new responses", "\"link\"")
  }
  interval
}

# What `type` requests: mean and sd of each row, and quantiles p if they are requested. One predictor, through its link; or the
# expected response, which may depend on two.
predicted_moments <- function(object, rows, type, p) {
  if (type == "response" && needs_both(object)) return(both_moments(object, rows, p))
  if (type %in% c("zprob", "zlink", "disp")) rows <- rows$second
  link <- if (type %in% c("link", "zlink")) identity_link
          else if (type %in% c("zprob", "disp")) second_link(object) else own_link(object$family)
  varies <- type == "response" && !is.null(family_record(object$family)$mean)   # the mean depends on hyperparameters too
  if (varies) link$mean <- component_mean(object)
  at <- linear_predictor(object, rows, shapes = !is.null(p) || !link$straight)
  # quantiles are those of the predictor, seen through the link
  limits <- if (!is.null(p) && varies) drawn_limits(object, rows, p)
            else if (!is.null(p)) through_link(link, predictor_quantiles(object, at, if (link$falls) rev(p) else p))
  c(mix_moments(response_moments(object, at, link), object$posterior$weight), list(limits = limits))
}

through_link <- function(link, eta) {
  if (length(eta)) eta[] <- link$linkinv(eta)   # the links of stats refuse an empty one
  eta
}

# inverse of a link and what link_records say of it
identity_link <- c(link_records$identity, list(linkinv = identity))
own_link <- function(family) c(link_of(family), list(linkinv = family$linkinv))
second_link <- function(object) {
  link <- family_record(object$family)$second$link
  c(link_records[[link]], list(linkinv = stats::make.link(link)$linkinv))
}

# Does the expected response depend on the second parameter?
needs_both <- function(object) !is.null(object$second) && object$second$component != "disp"

# the expected response of places in a matrix of components, given what the link makes of their predictors
component_mean <- function(object) {
  parameters <- component_hyper(object$posterior)[, family_parameter_names(object), drop = FALSE]
  function(mu, component) family_record(object$family)$mean(mu, parameters[component, ])
}

# quantiles of expected responses, by draws
drawn_limits <- function(object, rows, p, draws = 4000L) {
  drawn <- posterior_draws(object$posterior, draws, object$posterior$key)
  t(apply(response_parameters(object, rows, drawn, object$posterior$key)$mean, 2L, stats::quantile, p, names = FALSE, na.rm = TRUE))
}

# The mean response given both predictors, by the product of two Gauss rules: (W1 + W2) x has the covariance of the two in its variance.
# Quantiles are those of draws.
both_moments <- function(object, rows, p) {
  first <- linear_predictor(object, rows)
  second <- linear_predictor(object, rows$second)
  sum <- linear_predictor(object, sum_of_rows(rows))
  rule <- hermite_levels(20L, Inf)[[1L]]
  z <- c(rule$z, -rule$z)
  w <- c(rule$w, rule$w)
  mean <- square <- array(0, dim(first$mean))
  hyper <- component_dispersions(object)
  if (length(hyper)) hyper <- rep(hyper, each = nrow(mean))
  lean <- ifelse(first$sd > 0, (sum$sd^2 - first$sd^2 - second$sd^2) / (2 * first$sd), 0)
  rest <- sqrt(pmax(second$sd^2 - lean^2, 0))
  for (i in seq_along(z)) for (j in seq_along(z)) {
    value <- mean_response(object, first$mean + first$sd * z[i], second$mean + lean * z[i] + rest * z[j], hyper)
    mean <- mean + w[i] * w[j] * value
    square <- square + w[i] * w[j] * value^2
  }
  limits <- if (!is.null(p)) drawn_limits(object, rows, p)
  c(mix_moments(list(mean = mean, sd = sqrt(pmax(square - mean^2, 0))), object$posterior$weight), list(limits = limits))
}

sum_of_rows <- function(rows) {
  both <- rows
  if (!is.null(rows$lines)) {
    both$X <- Reduce(`+`, lapply(rows$lines, `[[`, "X"))
    if (!is.null(rows$Z)) both$Z <- Reduce(`+`, lapply(rows$lines, `[[`, "Z"))
    return(both)
  }
  both$X <- rows$X + rows$second$X
  if (!is.null(rows$Z)) both$Z <- rows$Z + rows$second$Z
  both$new <- c(rows$new, rows$second$new)
  both
}

# the expected response at given predictors
mean_response <- function(object, eta, eta2 = NULL, hyper = NULL) {
  mu <- through_link(own_link(object$family), eta)
  if (is.null(object$second)) return(mu)
  dispersion <- list(second = through_link(second_link(object), eta2), hyper = hyper)
  family_record(object$family)$second$mean(mu, dispersion)
}

# predictions of a second parameter need one
check_type <- function(type, object) {
  component <- object$second$component %||% "none"
  known <- c("link", "response", if (has_classes(object)) "class" else "conditional", if (!has_shared(object)) "terms",
             if (component == "zi") c("zprob", "zlink"), if (component == "disp") "disp")
  if (is.character(type) && length(type) > 1L) type <- type[1L]
  if (has_classes(object) && is.character(type) && type %in% c("prob", "probs")) return("response")   # as 'ordinal' and 'MASS' call it
  if (is.character(type) && type %in% c("zprob", "zlink", "disp") && !type %in% known) {
    bad_argument("type", join_or(paste0("\"", known, "\"")), describe(type),
                 paste("this fit has no formula for", if (type == "disp") "its dispersion" else "excess zeros"))
  }
  check_choice(type, "type", known)
}

# two columns; rows with missing predictors have none
predictive_quantiles <- function(object, p, draws = 4000, ...) {
  y <- suppressWarnings(posterior_predict(object, draws = draws, ...))   # NA means that NAs are produced
  at <- which(!is.na(colSums(y)))
  out <- matrix(NA_real_, ncol(y), length(p))
  if (length(at)) out[at, ] <- t(apply(y[, at, drop = FALSE], 2L, stats::quantile, p, names = FALSE))
  out
}

# ---- means and standard deviations -----------------------------------------------------------------------

# Mean and standard deviation of the linear predictor, rows x components, effects of new levels included; with `shapes`,
# standardised quantiles of each row where the posterior has them, see row_shapes().
linear_predictor <- function(object, rows, shapes = FALSE) {
  posterior <- object$posterior
  columns <- design_columns(rows)
  at <- posterior_linear(posterior, columns)
  if (shapes) at$shapes <- complete_shapes(posterior, columns)
  at$mean <- at$mean + rows$offset
  at <- add_varying_columns(object, rows, columns, at)
  for (new in rows$new) {
    at$sd[new$rows, ] <- sqrt(at$sd[new$rows, , drop = FALSE]^2 + new$variance(component_hyper(posterior)))
    at$shapes$each <- lapply(at$shapes$each, function(s) {
      s[new$rows, ] <- rep(margin_scores, each = length(new$rows))
      s
    })
  }
  at
}

# Rows whose columns depend on the hyperparameters, component by component.
add_varying_columns <- function(object, rows, columns, at) {
  varying <- Filter(function(new) !is.null(new$columns), rows$new)
  if (!length(varying)) return(at)
  posterior <- object$posterior
  which <- sort(unique(unlist(lapply(varying, `[[`, "rows"))))
  for (k in seq_along(posterior$weight)) {
    W <- columns[which, , drop = FALSE]
    for (new in varying) {
      more <- methods::as(new$columns(component_hyper(posterior)[k, ]), "TsparseMatrix")
      W <- W + Matrix::sparseMatrix(i = match(new$rows, which)[more@i + 1L], j = effect_positions(object, new$term)[more@j + 1L],
                                    x = more@x, dims = dim(W))
    }
    here <- posterior_linear(posterior, W, components = k)
    at$mean[which, k] <- here$mean + rows$offset[which]
    at$sd[which, k] <- here$sd
  }
  at
}

# quantiles of the predictors, NA where one is missing
predictor_quantiles <- function(object, at, p) {
  posterior <- object$posterior
  out <- matrix(NA_real_, nrow(at$mean), length(p))
  there <- which(is.finite(rowSums(at$mean)))
  if (length(there)) {
    out[there, ] <- mixture_quantiles(at$mean[there, , drop = FALSE], at$sd[there, , drop = FALSE], posterior$weight,
                                      posterior_law(posterior), p, some_shapes(at$shapes, there))
  }
  out
}

# mean and standard deviation of the expected response, by quadrature, in the shape of those of the predictor
response_moments <- function(object, at, link = own_link(object$family), block = 2000L) {
  if (link$straight) return(at)
  law <- posterior_law(object$posterior)
  check_response_mean(link, law, at)
  rule <- composite_rule(law, width = 0.5, growth = 1.5, grade = 8L)
  nodes <- c(rule$z, -rule$z)
  weights <- c(rule$w, rule$w)
  n <- length(at$mean)
  mean <- sd <- array(NA_real_, dim(at$mean))
  for (rows in split(seq_len(n), (seq_len(n) - 1L) %/% block)) {
    z <- matrix(rep(nodes, each = length(rows)), length(rows))
    if (!is.null(at$shapes)) z <- shaped_nodes(at$shapes, z, rows, nrow(at$mean))
    g <- link$linkinv(at$mean[rows] + at$sd[rows] * z)
    if (!is.null(link$mean)) g <- link$mean(g, (rows - 1L) %/% nrow(at$mean) + 1L)
    dim(g) <- c(length(rows), length(nodes))
    mean[rows] <- g %*% weights
    sd[rows] <- sqrt(pmax(0, (g - mean[rows])^2 %*% weights))
  }
  list(mean = mean, sd = sd)
}

# scores z of places in a matrix of n rows and a column for each component, as values of their shapes
shaped_nodes <- function(shapes, z, places, n) {
  row <- (places - 1L) %% n + 1L
  of <- shapes$of[(places - 1L) %/% n + 1L]
  for (r in unique(of)) {
    mine <- which(of == r)
    z[mine, ] <- value_at_score(shapes$each[[r]][row[mine], , drop = FALSE], z[mine, , drop = FALSE])
  }
  z
}

# Probabilities of classes: by quadrature of one predictor, from draws of several.
class_probability_moments <- function(object, rows) {
  if (!has_shared(object)) return(class_moments(object, linear_predictor(object, rows, shapes = TRUE)))
  drawn <- posterior_draws(object$posterior, 4000L, object$posterior$key)
  moments <- moments_of_draws(softmax(shared_linpred(object, rows, drawn, object$posterior$key), object$family))
  lapply(moments, function(x) matrix(x, nrow(rows$X), dimnames = list(rownames(rows$X), class_names(object$family))))
}

# predictors of classes: rows x predictors, with intervals fit, lwr and upr of each
predictor_table <- function(object, rows, interval, p, se.fit) {
  moments <- shared_moments(object, rows)
  limits <- if (interval != "none") {
    shared_linpred(object, rows, posterior_draws(object$posterior, 4000L, object$posterior$key), object$posterior$key)
  }
  class_predictions(object, rows, moments, limits, p, se.fit)
}

# The same of the probability of each class: lists of rows x classes.
class_moments <- function(object, at, block = 500L) {
  posterior <- object$posterior
  rule <- composite_rule(posterior_law(posterior), width = 0.5, growth = 1.5, grade = 8L)
  nodes <- c(rule$z, -rule$z)
  weights <- c(rule$w, rule$w)
  n <- nrow(at$mean)
  classes <- class_names(object$family)
  mean <- second <- matrix(NA_real_, n, length(classes), dimnames = list(NULL, classes))
  parameters <- component_hyper(posterior)[, family_parameter_names(object), drop = FALSE]
  for (rows in split(seq_len(n), (seq_len(n) - 1L) %/% block)) {
    plain <- matrix(rep(nodes, each = length(rows)), length(rows))
    mean[rows, ] <- second[rows, ] <- 0
    for (k in which(posterior$weight > 0)) {
      z <- if (is.null(at$shapes)) plain else shaped_nodes(at$shapes, plain, rows + (k - 1L) * n, n)
      p <- family_record(object$family)$classes(at$mean[rows, k] + at$sd[rows, k] * z, parameters[k, , drop = FALSE], object$family)
      for (j in seq_along(classes)) {
        of <- matrix(p[, , j], length(rows))
        mean[rows, j] <- mean[rows, j] + posterior$weight[k] * drop(of %*% weights)
        second[rows, j] <- second[rows, j] + posterior$weight[k] * drop(of^2 %*% weights)
      }
    }
  }
  list(mean = mean, sd = sqrt(pmax(second - mean^2, 0)))
}

# rows x classes; with limits, draws x rows x classes, an array of fit, lwr and upr for each class
class_predictions <- function(object, rows, moments, limits, p, se.fit) {
  for (part in names(moments)) rownames(moments[[part]]) <- rownames(rows$X)
  fit <- moments$mean
  if (!is.null(limits)) {
    ends <- apply(limits, 2:3, stats::quantile, p, names = FALSE)
    fit <- aperm(structure(vapply(list(moments$mean, ends[1L, , ], ends[2L, , ]), c, numeric(length(fit))),
                           dim = c(dim(fit), 3L), dimnames = c(dimnames(fit), list(c("fit", "lwr", "upr")))), c(1L, 3L, 2L))
  }
  if (se.fit) list(fit = fit, se.fit = moments$sd) else fit
}

# exp() of a heavy-tailed predictor has no mean
check_response_mean <- function(link, law, at) {
  if (link$exponential && exponential_limit(law) <= 2 * max(at$sd, 0, na.rm = TRUE)) {
    elvi_abort("`type` = \"response\": the expected response has no finite mean or variance under a ",
               law$kind, " base. Use type = \"link\", or a gaussian or uniform base.",
               class = c("elvi_error_no_expectation", "elvi_error_argument"), data = list(argument = "type"))
  }
}

# put NA where na.exclude dropped rows
restore_rows <- function(object, newdata, x) {
  if (is.null(newdata)) stats::napredict(object$na.action, x) else x
}

#' @rdname predict.elvi_glm
#' @export
fitted.elvi_glm <- function(object, ...) {
  check_dots(list(...), names(formals()), "fitted()")
  predict.elvi_glm(object, type = "response")
}

#' @rdname predict.elvi_glm
#' @export
residuals.elvi_glm <- function(object, type = c("response", "pearson", "deviance", "working"), ...) {
  check_dots(list(...), names(formals()), "residuals()")
  type <- check_choice(type, "type", c("response", "pearson", "deviance", "working"))
  if (is_out_of_memory(object)) return(at_chunks(object, "residuals.elvi_glm", list(type = type))[[1L]])
  refuse_classes(object, "residuals")
  seen <- displayed_response(object)
  y <- seen$y
  mu <- stats::fitted(without_gaps(object))
  record <- family_record(object$family)
  if (!is.null(object$second)) return(joint_residuals(object, type, y, mu))
  at <- if (is.null(record$mean)) mu else stats::predict(without_gaps(object), type = "conditional")
  out <- switch(type,
    response = y - mu,
    pearson = (y - mu) * sqrt(glm_weights(object) / record$variance(at, mean_dispersion(object), object$family)),
    deviance = ifelse(seen$censored, 1, sign(y - mu)) *
      sqrt(glm_weights(object) * pmax(0, record$deviance(observed_response(object), at, mean_dispersion(object), object$family))),
    working = (y - mu) / object$family$mu.eta(object$family$linkfun(mu)))
  stats::naresid(object$na.action, stats::setNames(out, rownames(object$frame)))
}

refuse_classes <- function(object, what) {
  if (!has_classes(object)) return(invisible())
  elvi_abort("`object`: ", what, " do not exist for responses in classes. posterior_epred() and predict(type = \"response\") have the ",
             "probabilities of the classes, log_lik() those of the data.", class = "elvi_error_argument", data = list(argument = "object"))
}

# of a model in two parts, at posterior means of both parameters
joint_residuals <- function(object, type, y, mean) {
  out <- if (type == "response") y - mean else scaled_joint_residuals(object, type, y, mean)
  stats::naresid(object$na.action, stats::setNames(out, rownames(object$frame)))
}

scaled_joint_residuals <- function(object, type, y, mean) {
  record <- family_record(object$family)
  rows <- prediction_rows(without_gaps(object), NULL, NULL, FALSE, NULL)
  mu <- plain_mean(object, rows, own_link(object$family))
  if (type == "working") return((y - mu) / object$family$mu.eta(object$family$linkfun(mu)))
  second <- plain_mean(object, rows$second, second_link(object))
  dispersion <- list(second = second / sqrt(precisions(object) %||% 1), hyper = mean_dispersion(object))
  counts <- row_counts(object) %||% 1
  if (type == "pearson") return((y - mean) * sqrt(counts / record$variance(mu, dispersion, object$family)))
  sign(y - mean) * sqrt(counts * pmax(0, record$deviance(y, mu, dispersion, object$family)))
}

# The mean of a parameter in each row, if its limits are not needed: by the moments of the predictor, without profiles of every row.
plain_mean <- function(object, rows, link) {
  mix_moments(response_moments(object, linear_predictor(object, rows), link), object$posterior$weight)$mean
}

# without the rows that na.exclude would put back
without_gaps <- function(object) {
  object$na.action <- NULL
  object
}

# ---- responses of the data -------------------------------------------------------------------------------

# proportions, counts or numbers; times of events, and minus those of censored ones
observed_response <- function(object) {
  as_observed(object, object$regression$y %||% object$given$problem$y %||% object$given$model$rows$y)
}

# rows that have trials packed in them are read as shares
as_observed <- function(object, y) {
  record <- family_record(object$family)
  if (record$trials && length(y)) record$display_response(y)$y else y
}

# the same as people read them
displayed_response <- function(object) {
  if (!is.null(object$pieces)) return(list(y = object$pieces$exit, censored = !object$pieces$event))
  y <- observed_response(object)
  if (family_record(object$family)$trials) uncensored(y) else family_record(object$family)$display_response(y)
}

# what glm() calls prior weights
glm_weights <- function(object) response_trials(object) * (row_counts(object) %||% 1) * (precisions(object) %||% 1)

# of the data's responses, if their weights are that; a row of weight 0 has no distribution, and gets that of the others
precisions <- function(object) {
  weights <- stats::model.weights(object$frame)
  if (!weights_are_precisions(object) || is.null(weights)) return(NULL)
  ifelse(weights > 0, weights, 1)
}

weights_are_precisions <- function(object) {
  record <- family_record(object$family)
  isTRUE(record$dispersion$precision) || isTRUE(record$second$precision)
}

# number of trials behind each response of the data
response_trials <- function(object) {
  y <- stats::model.response(object$frame, "any")
  if (!family_record(object$family)$trials) return(rep(1, NROW(y)))
  if (is.matrix(y)) return(unname(rowSums(y)))
  if (is.numeric(y) && any(y %% 1 != 0)) stats::model.weights(object$frame) else rep(1, NROW(y))
}

# how often each row counts in the likelihood beyond its trials or its precision
row_counts <- function(object) {
  weights <- stats::model.weights(object$frame)
  y <- stats::model.response(object$frame, "any")
  if (!is.null(weights)) {
    if (weights_are_precisions(object)) weights <- as.double(weights > 0)
    else if (family_record(object$family)$trials && is.numeric(y) && !is.matrix(y) && any(y %% 1 != 0)) weights <- NULL
  }
  frequency <- object$frame[["(frequency)"]]
  if (is.null(weights) && is.null(frequency)) NULL else (weights %||% 1) * (frequency %||% 1)
}

# ---- dispersion ---------------------------------------------------------------------------------------------

# names of the family's unknown parameters, sigma, phi or cut points, as they are shown; none where they are known or there are none
family_parameter_names <- function(object) {
  if (is.null(object$family)) return(character())
  record <- family_record(object$family)
  intersect(hyper_record(record, object$family$levels)$names %||% record$dispersion$natural, object$posterior$shown)
}

# at each draw, draws x parameters
family_parameters <- function(object, drawn) drawn$hyper[, family_parameter_names(object), drop = FALSE]

# name of an unknown sigma, phi or shape, as it is shown; none where it is known or there is none
dispersion_name_of <- function(object) intersect(family_record(object$family)$dispersion$natural, object$posterior$shown)

# phi of each component of the posterior; NULL for families without one
component_dispersions <- function(object) {
  name <- dispersion_name_of(object)
  if (length(name)) component_values(object$posterior, name)
}

# posterior mean of sigma, phi or shape, or as it is known
mean_dispersion <- function(object) {
  if (is_nested_only(object$family)) return(unname(posterior_moments(object$posterior)$mean[family_parameter_names(object)]))
  name <- dispersion_name_of(object)
  if (length(name)) posterior_moments(object$posterior)$mean[[name]] else known_dispersion(object)
}

# sigma or shape for a given dispersion; families without a dispersion need none
known_dispersion <- function(object) {
  dispersion <- family_record(object$family)$dispersion
  if (is.null(dispersion)) 1 else dispersion$known(object$dispersion)
}

# at each draw, or as it is known: recycled down the draws, or one per draw and row that has a precision
dispersion_draws <- function(object, drawn, precision = NULL) {
  if (is_nested_only(object$family)) return(family_parameters(object, drawn))
  name <- dispersion_name_of(object)
  out <- if (length(name)) drawn_values(object$posterior, drawn, name) else known_dispersion(object)
  if (is.null(precision)) out else rep_len(out, nrow(drawn$x)) / rep(sqrt(precision), each = nrow(drawn$x))
}

# ---- draws ----------------------------------------------------------------------------------------------------

# The first draws of a fit, or of the sequence that a seed selects, for the given rows.
drawn_for <- function(object, rows, draws, seed) {
  draws <- check_draws(draws, max(nrow(rows$X), posterior_dim(object$posterior)))
  posterior_draws(object$posterior, draws, fit_key(object, seed))
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_linpred, elvi_glm)
posterior_linpred.elvi_glm <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE,
                                       offset = NULL, seed = NULL, ..., ndraws = NULL) {
  re.form <- check_re_form(re.form, list(...), names(formals()), "posterior_linpred()")
  allow_new_levels <- check_new_levels(allow_new_levels, list(...))
  if (is.null(newdata) && is_out_of_memory(object)) return(draws_in_passes(object, "posterior_linpred", ndraws %||% draws, re.form, seed))
  rows <- prediction_rows(object, newdata, re.form, allow_new_levels, offset)
  drawn <- drawn_for(object, rows, ndraws %||% draws, seed)
  if (has_shared(object)) shared_linpred(object, rows, drawn, fit_key(object, seed)) else linpred_draws(rows, drawn, fit_key(object, seed))
}

# draws x rows; effects of new levels are drawn with the given key
linpred_draws <- function(rows, drawn, key) {
  p <- ncol(rows$X)
  eta <- tcrossprod(drawn$x[, seq_len(p), drop = FALSE], rows$X)
  if (!is.null(rows$Z)) {
    eta <- eta + as.matrix(Matrix::tcrossprod(drawn$x[, p + seq_len(ncol(rows$Z)), drop = FALSE], rows$Z))
  }
  for (new in rows$new) {
    eta[, new$rows] <- eta[, new$rows] + new$draws(drawn$hyper, key)
    if (!is.null(new$columns)) eta[, new$rows] <- eta[, new$rows] + varying_draws(new, drawn, p)
  }
  eta <- eta + rep(rows$offset, each = nrow(eta))
  dimnames(eta) <- list(NULL, rownames(rows$X))
  eta
}

# draws x rows of means that depend on the hyperparameters of each draw
varying_draws <- function(new, drawn, p) {
  u <- drawn$x[, p + new$term$columns, drop = FALSE]
  out <- vapply(seq_len(nrow(u)), function(i) as.double(new$columns(drawn$hyper[i, ]) %*% u[i, ]), numeric(length(new$rows)))
  t(matrix(out, length(new$rows)))
}

# draws x rows of new levels
new_level_draws <- function(new, hyper, key) {
  k <- ncol(new$M)
  n <- nrow(hyper)
  z <- vapply(new$labels, function(level) level_noise(new$term, level, n, key), matrix(0, n, k))
  V <- covariance_draws(new$term, hyper)
  u <- array(0, c(n, k, length(new$labels)))
  for (i in seq_len(n)) u[i, , ] <- t(chol(matrix(V[, , i], k))) %*% matrix(z[i, , ], k)
  out <- vapply(seq_along(new$rows), function(r) drop(matrix(u[, , new$level[r]], n) %*% new$M[r, ]), numeric(n))
  matrix(out, n)
}

# Standard normal effects of a new level, draws x coefficients: the same in every call, and independent of those of other
# levels and of other terms.
level_noise <- function(term, level, n, key) {
  key <- key_for(key, list(c(term$label, term$coefs, level)))
  t(draw_base(law_of(base_gaussian(), length(term$coefs)), key, n, iteration = 2))
}

# Is the response a class, with a probability for each, and not a number?
has_classes <- function(object) !is.null(family_record(object$family)$classes)

# In the shape of eta. Classes have no expected number: records take the predictor.
expected_response <- function(object, eta) if (has_classes(object)) eta else through_link(own_link(object$family), eta)

# At draws, for each row: mu, the `dispersion` that the family's record takes, and the expected response.
response_parameters <- function(object, rows, drawn, key, precision = NULL) {
  if (has_shared(object)) return(list(mu = shared_linpred(object, rows, drawn, key), dispersion = NULL))
  mu <- expected_response(object, linpred_draws(rows, drawn, key))
  if (is.null(rows$second)) {
    dispersion <- dispersion_draws(object, drawn, precision)
    mean <- family_record(object$family)$mean
    return(list(mu = mu, dispersion = dispersion, mean = if (is.null(mean)) mu else mean(mu, dispersion)))
  }
  second <- through_link(second_link(object), linpred_draws(rows$second, drawn, key))
  if (!is.null(precision)) second <- second / rep(sqrt(precision), each = nrow(second))
  dispersion <- list(second = second, hyper = rep_len(dispersion_draws(object, drawn), nrow(mu)))
  list(mu = mu, dispersion = dispersion, mean = family_record(object$family)$second$mean(mu, dispersion))
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_epred, elvi_glm)
posterior_epred.elvi_glm <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE,
                                     offset = NULL, seed = NULL, ..., ndraws = NULL) {
  re.form <- check_re_form(re.form, list(...), names(formals()), "posterior_epred()")
  allow_new_levels <- check_new_levels(allow_new_levels, list(...))
  if (is.null(newdata) && is_out_of_memory(object)) return(draws_in_passes(object, "posterior_epred", ndraws %||% draws, re.form, seed))
  rows <- prediction_rows(object, newdata, re.form, allow_new_levels, offset)
  drawn <- drawn_for(object, rows, ndraws %||% draws, seed)
  if (!has_classes(object)) return(response_parameters(object, rows, drawn, fit_key(object, seed))$mean)
  if (has_shared(object)) return(expected_shares(object, rows, drawn, newdata, fit_key(object, seed)))
  family_record(object$family)$classes(linpred_draws(rows, drawn, fit_key(object, seed)), family_parameters(object, drawn), object$family)
}

# Probabilities of classes without an order; times the counts of the data's rows, where the response are counts
expected_shares <- function(object, rows, drawn, newdata, key) {
  p <- softmax(shared_linpred(object, rows, drawn, key), object$family)
  if (is.null(newdata) && family_record(object$family)$trials) p * rep(response_trials(object), each = nrow(p)) else p
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::posterior_predict, elvi_glm)
posterior_predict.elvi_glm <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE,
                                       offset = NULL, trials = NULL, seed = NULL, ..., ndraws = NULL) {
  re.form <- check_re_form(re.form, list(...), names(formals()), "posterior_predict()")
  allow_new_levels <- check_new_levels(allow_new_levels, list(...))
  if (is.null(newdata) && is_out_of_memory(object)) return(draws_in_passes(object, "posterior_predict", ndraws %||% draws, re.form, seed))
  rows <- prediction_rows(object, newdata, re.form, allow_new_levels, offset)
  drawn <- drawn_for(object, rows, ndraws %||% draws, seed)
  at <- response_parameters(object, rows, drawn, fit_key(object, seed), if (is.null(newdata)) precisions(object))
  mu <- at$mu
  trials <- prediction_trials(object, newdata, trials, ncol(mu))
  key <- noise_key(fit_key(object, seed), rows)
  if (is.null(newdata)) key <- key_for(key, object$regression$place)
  value <- with_key(key,
                    family_record(object$family)$draws(mu, at$dispersion, rep(trials, each = nrow(mu)), object$family))
  if (is.array(value) && length(dim(value)) == 3L) return(value)   # counts of classes
  value <- matrix(value, nrow(mu), dimnames = list(NULL, colnames(mu)))
  if (has_classes(object)) attr(value, "levels") <- class_names(object$family)
  value
}

prediction_trials <- function(object, newdata, trials, n) {
  if (!family_record(object$family)$trials) {
    if (!is.null(trials)) unused_argument("trials", "it is for binomial fits")
    return(rep(1, n))
  }
  trials <- if (!is.null(trials)) count_response(trials, "trials") else if (is.null(newdata)) response_trials(object) else 1
  if (!length(trials) %in% c(1L, n)) bad_argument("trials", sprintf("of length 1 or %d", n), describe(trials))
  rep_len(trials, n)
}

# Two different new observations have independent noise, so it depends on their rows and levels too.
noise_key <- function(key, rows) {
  Z <- rows$Z
  levels <- if (!is.null(Z)) list(diff(Z@p), Z@i + 1, Z@x)
  new <- unlist(lapply(rows$new, function(new) c(new$term$label, new$labels[new$level])))
  key <- key_for(key, c(list(rows$X, rows$offset), levels, new))
  for (line in rows$lines[-1L]) key <- noise_key(key, line)
  if (is.null(rows$second)) key else noise_key(key, rows$second)
}

#' @rdname predict.elvi_glm
#' @export
#' @rawNamespace S3method(rstantools::log_lik, elvi_glm)
log_lik.elvi_glm <- function(object, newdata = NULL, draws = 1000, re.form = NULL, allow_new_levels = FALSE, offset = NULL,
                             seed = NULL, ..., ndraws = NULL) {
  re.form <- check_re_form(re.form, list(...), names(formals()), "log_lik()")
  allow_new_levels <- check_new_levels(allow_new_levels, list(...))
  key <- fit_key(object, seed)
  if (is.null(newdata) && is_out_of_memory(object)) {
    draws <- check_draws(ndraws %||% draws, max(nobs.elvi_glm(object), posterior_dim(object$posterior)))
    return(log_lik_at(object, posterior_draws(object$posterior, draws, key), key))
  }
  rows <- prediction_rows(object, newdata, re.form, allow_new_levels, offset)
  log_lik_at(object, drawn_for(object, rows, ndraws %||% draws, seed), key, observed_rows(object, newdata, rows))
}

# Log likelihood of rows, those of the data by default, at draws of the parameters.
log_lik_at <- function(object, drawn, key, rows = NULL) {
  if (is.null(rows) && is_out_of_memory(object)) return(at_chunks(object, "log_lik_at", list(drawn = drawn, key = key))[[1L]])
  rows <- rows %||% observed_rows(object)
  at <- response_parameters(object, rows$design, drawn, key, rows$precision)
  n <- nrow(at$mu)
  y <- if (is.matrix(rows$y)) rows$y else rep(rows$y, each = n)
  value <- family_record(object$family)$log_lik(y, at$mu, at$dispersion, rep(rows$trials, each = n), object$family)
  if (!is.null(rows$counts)) value <- value * rep(rows$counts, each = n)
  by_observation(matrix(value, n, dimnames = list(NULL, rownames(rows$design$X))), rows$of, rows$names)
}

# Responses and what is known of them beside their predictors. New ones need the response in `newdata`; weights and
# frequencies of the fit are looked up there too.
observed_rows <- function(object, newdata = NULL, design = prediction_rows(object, newdata)) {
  y <- observed_response(object)
  if (!is.null(newdata)) {
    object$regression$frame <- response_frame(object, newdata)
    y <- check_response(stats::model.response(object$frame, "any"), family_record(object$family), nrow(design$X), whole = FALSE,
                        object$family)$y
    y <- as_observed(object, y)
  }
  pieces <- if (is.null(newdata)) object$pieces
  list(design = design, y = y, trials = response_trials(object), precision = precisions(object), counts = row_counts(object),
       of = pieces$of, names = rownames(pieces$data))
}

response_frame <- function(object, newdata) {
  call <- c(list(quote(stats::model.frame), stats::update(object$terms, . ~ 1), data = newdata, na.action = stats::na.pass),
            Filter(Negate(is.null), as.list(object$call)[c("weights", "frequency")]))
  blame_argument(eval(as.call(call), environment(object$formula)), "newdata", "the response cannot be read from it")
}
