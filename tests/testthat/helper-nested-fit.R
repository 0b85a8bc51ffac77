# Fits with group-level and smooth terms, computed once and read by many tests.

skip_without_parser <- function() skip_if_not_installed("reformulas")

nested_store <- new.env(parent = emptyenv())

group_data <- function() {
  withr_seed(3, {
    n <- 240
    d <- data.frame(x = rnorm(n), t = runif(n), g = factor(sample(letters[1:8], n, TRUE)), h = sample(1:5, n, TRUE),
                    f = factor(sample(c("u", "v", "w"), n, TRUE)), e = runif(n, 0.5, 2), w = sample(1:3, n, TRUE))
    effect <- rnorm(8, 0, 0.6)
    slope <- rnorm(8, 0, 0.4)
    eta <- 0.3 + 0.5 * d$x + effect[d$g] + slope[d$g] * d$x
    d$y <- eta + rnorm(n, 0, 0.7)
    d$b <- rbinom(n, 1, plogis(eta))
    d$count <- rpois(n, exp(eta / 2))
    d$s <- rbinom(n, 4, plogis(eta))
    d$curve <- sin(6 * d$t) + rnorm(n, 0, 0.3)
    d
  })
}

nested_example <- function(which) {
  skip_without_parser()
  if (which %in% c("smooth", "by")) skip_if_not_installed("mgcv")
  if (is.null(nested_store[[which]])) {
    d <- group_data()
    nested_store[[which]] <- withr_seed(1, suppressWarnings(switch(which,
      binary = elvi(b ~ x + (1 | g), d, family = binomial()),
      trials = elvi(cbind(s, 4 - s) ~ x + (1 | g) + (1 | h), d, family = binomial()),
      slopes = elvi(y ~ x + (x | g), d),
      apart = elvi(y ~ x + (x || g), d),
      counts = elvi(count ~ x + offset(log(e)) + (1 | g), d, family = poisson()),
      overdispersed = elvi(count ~ x + (1 | g), d, family = neg_binomial_2()),
      smooth = elvi(curve ~ x + s(t), d),
      by = elvi(curve ~ f + s(t, by = f, k = 5), d),
      plain = elvi(y ~ x, d, method = "nested"))))
  }
  nested_store[[which]]
}

# ---- a reference: dense, by elvi_optimum() given the hyperparameters ------------------------------

# mean and covariance of [b u] given theta; `log_p` of theta and data, a lower bound up to a constant
reference_conditional <- function(problem, theta, base = base_gaussian()) {
  layout <- hyper_layout(problem)
  p <- ncol(problem$X)
  q <- ncol(problem$Z)
  turn <- diag(q)
  for (i in seq_along(layout$terms)) {
    term <- problem$terms[[i]]
    D <- hyper_natural(problem, theta)$terms[[i]]$cov
    turn[term$columns, term$columns] <- kronecker(diag(length(term$columns) / length(term$coefs)), t(chol(D)))
  }
  X <- if (is.null(problem$shift)) problem$X else sweep(problem$X, 2L, problem$shift)
  W <- cbind(X, as.matrix(problem$Z) %*% turn)
  prior <- normal(c(problem$prior$centre, numeric(q)), c(1 / sqrt(problem$prior$precision), rep(1, q)))
  dispersion <- if (length(layout$family)) exp(theta[[layout$family]])^2 else 1
  binomial <- problem$family$family == "binomial"
  y <- if (binomial) round(cbind(problem$y, 1 - problem$y) * problem$weight) else problem$y
  model <- suppressMessages(model_glm(W, y, problem$family, prior, offset = problem$offset,
                                      weights = if (!binomial) problem$weight, dispersion = dispersion))
  optimum <- elvi_optimum(model, base)
  back <- diag(p + q)
  back[p + seq_len(q), p + seq_len(q)] <- turn
  list(mu = drop(back %*% optimum$mu), cov = tcrossprod(back %*% optimum$Sigma),
       log_p = hyper_prior(problem, layout, theta)$value - optimum$objective -
         if (length(layout$family)) sum(problem$weight) * log(dispersion) / 2 else 0)
}

# the solver's own account of a fit, which the fit does not keep: its quadrature points and their conditional optima
solved_again <- function(fit) nested_fit(fit$problem, fit$base, fit$control[c("nodes", "progress")])

# log p(theta, y) of every quadrature point, a lower bound up to a constant, before correction by draws
node_values <- function(nested) {
  setup <- nested$setup
  vapply(nested$nodes, function(node) {
    precision <- hyper_precision(setup$problem, setup$layout, node$theta)
    hyper_prior(setup$problem, setup$layout, node$theta)$value + precision$log_det / 2 - node$objective +
      family_part(setup, node$theta)$value
  }, 0)
}
