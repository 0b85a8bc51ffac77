# Problems with group-level terms, as R/solve-nested.R takes them.

group_term <- function(label, g, x = NULL, first = 0L, correlated = FALSE, prior_sd = exponential(1), eta = 1) {
  g <- factor(g)
  B <- cbind(`(Intercept)` = rep(1, length(g)), x)
  k <- ncol(B)
  J <- nlevels(g)
  Z <- Matrix::sparseMatrix(i = rep(seq_along(g), k),
                            j = as.integer((as.integer(g) - 1L) * k + rep(seq_len(k), each = length(g))), x = as.double(B), dims = c(length(g), J * k))
  list(Z = Z, term = list(label = label, kind = "group", columns = first + seq_len(J * k), levels = levels(g),
                          coefs = colnames(B), correlated = correlated, prior_sd = prior_sd, prior_cor = eta))
}

# terms: a list of group_term() without `first`
nested_problem <- function(X, y, family = binomial(), terms = list(), prior_scale = 2.5, weight = 1, offset = 0,
                           dispersion = NULL) {
  at <- 0L
  for (t in seq_along(terms)) {
    terms[[t]]$term$columns <- terms[[t]]$term$columns + at
    at <- at + ncol(terms[[t]]$Z)
  }
  none <- Matrix::sparseMatrix(i = integer(), j = integer(), x = numeric(), dims = c(length(y), 0))
  Z <- if (at) do.call(cbind, lapply(terms, function(t) t$Z)) else none
  list(X = X, shift = NULL, Z = Z, y = y, weight = rep_len(weight, length(y)), offset = rep_len(offset, length(y)),
       family = check_family(family),
       prior = list(centre = numeric(ncol(X)), precision = rep(1 / prior_scale^2, ncol(X))),
       terms = lapply(terms, function(t) t$term), hyper = if (!is.null(dispersion)) stats::setNames(list(dispersion$prior), dispersion$name))
}

cbpp_problem <- function() {
  data <- new.env()
  utils::data("cbpp", package = "lme4", envir = data)
  cbpp <- data$cbpp
  nested_problem(stats::model.matrix(~ period, cbpp), cbpp$incidence / cbpp$size, weight = cbpp$size,
                 terms = list(group_term("herd", cbpp$herd)))
}

sleep_problem <- function(correlated = TRUE) {
  data <- new.env()
  utils::data("sleepstudy", package = "lme4", envir = data)
  s <- data$sleepstudy
  nested_problem(stats::model.matrix(~ Days, s), s$Reaction, gaussian(), prior_scale = 100,
                 terms = list(group_term("Subject", s$Subject, cbind(Days = s$Days), correlated = correlated,
                                         prior_sd = exponential(1 / 50))),
                 dispersion = list(name = "sigma", prior = exponential(1 / 50)))
}

# the dense problem given the hyperparameters, for elvi_optimum()
dense_conditional <- function(problem, theta, base, tol = 1e-10) {
  layout <- hyper_layout(problem)
  precision <- hyper_precision(problem, layout, theta)
  entries <- hyper_entries(problem, layout)
  d <- ncol(problem$X) + ncol(problem$Z)
  A <- matrix(0, d, d)
  A[cbind(entries$row, entries$column)] <- precision$A[entries$source]
  A[cbind(entries$column, entries$row)] <- precision$A[entries$source]
  W <- cbind(problem$X, as.matrix(problem$Z))
  # whitened by the prior: elvi_optimum() has independent priors only
  root <- solve(chol(A))
  model <- suppressMessages(   # columns of groups and fixed effects are dependent, which priors settle
    model_glm(W %*% root, response_of(problem), problem$family, prior = normal(0, 1),
              weights = if (problem$family$family == "binomial") NULL else problem$weight,
              offset = problem$offset))
  best <- elvi_optimum(model, base, tol = tol)
  list(mu = drop(root %*% best$mu), covariance = root %*% vcov(best) %*% t(root),
       objective = best$objective + sum(log(diag(chol(A)))))
}

response_of <- function(problem) {
  if (problem$family$family != "binomial") return(problem$y)
  cbind(round(problem$weight * problem$y), round(problem$weight * (1 - problem$y)))
}

small_problem <- function(family, correlated = TRUE, dispersion = NULL) {
  set.seed(7)
  n <- 48
  g <- rep(1:6, each = 8)
  h <- rep(1:4, 12)
  x <- rnorm(n)
  eta <- 0.3 + 0.5 * x + rnorm(6, 0, 0.6)[g] + rnorm(4, 0, 0.4)[h]
  y <- switch(family$family, binomial = rbinom(n, 1, plogis(eta)), poisson = rpois(n, exp(eta)),
              gaussian = rnorm(n, eta), neg_binomial_2 = rnbinom(n, mu = exp(eta), size = 2))
  nested_problem(cbind(1, x), y, family, offset = 0.1, dispersion = dispersion,
                 terms = list(group_term("g", g, cbind(x = x), correlated = correlated), group_term("h", h)))
}

# theta on the scale that people read: standard deviations, correlations, sigma or phi
hyper_natural <- function(problem, theta) {
  layout <- hyper_layout(problem)
  parts <- Map(function(slot, term) {
    at <- term_covariance(term, theta[slot$theta])
    R <- tcrossprod(at$L)
    dimnames(R) <- list(term$coefs, term$coefs)
    list(label = term$label, sd = stats::setNames(at$sd, term$coefs), cor = R, cov = at$D)
  }, layout$terms, problem$terms)
  list(terms = parts,
       dispersion = if (length(layout$family)) stats::setNames(exp(theta[layout$family]), names(problem$hyper)))
}

# means and sds of the hyperparameters of nested_fit(), on their natural scale
nested_hyper_moments <- function(fit) moments_of_theta(fit$setup, fit$hyper$theta, fit$hyper$weight)
