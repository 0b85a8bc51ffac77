# Data and a fit in which everything that is awkward in a formula comes together:
# factors, an interaction, a spline, a polynomial, offsets within and outside the
# formula, weights, a subset, missing values, a name with a space and an umlaut.

nasty_data <- function() {
  withr_seed(11, {
    n <- 150
    data <- data.frame(g = factor(sample(c("a", "b", "c"), n, TRUE)), t = runif(n), e = runif(n, 0.5, 2),
                       w = sample(1:3, n, TRUE), keep = seq_len(n) %% 5 != 0, row.names = paste0("r", seq_len(n)))
    data[["gr\u00f6\u00dfe x"]] <- rnorm(n)
    data$y <- rpois(n, data$e * exp(0.5 + 0.4 * data[["gr\u00f6\u00dfe x"]] + 0.3 * (data$g == "b") + data$t))
    data[["gr\u00f6\u00dfe x"]][7] <- NA
    data$y[9] <- NA
    data$t[11] <- NA
    data
  })
}

nasty_formula <- function() {
  as.formula("y ~ g * `gr\u00f6\u00dfe x` + splines::ns(t, 3) + poly(e, 2) + offset(log(e))", env = globalenv())
}

# rows of the data that the fit keeps
nasty_rows <- function(data) which(data$keep & complete.cases(data))

nasty_fit <- function(na.action = na.exclude, family = poisson(), ...) {
  nasty <- nasty_data()
  formula <- nasty_formula()
  if (family$family == "binomial") formula <- update(formula, cbind(y, 3) ~ .)
  eval(substitute(
    elvi(formula, data = nasty, family = family, weights = w, subset = keep, offset = 0.1 * e,
         na.action = na.action, ...)))
}

# computed once, read by many
formula_store <- new.env(parent = emptyenv())
nasty <- function(which = "exclude") {
  if (is.null(formula_store[[which]])) {
    formula_store[[which]] <- switch(which,
      exclude = nasty_fit(na.exclude),
      omit = nasty_fit(na.omit),
      binomial = nasty_fit(na.omit, binomial()),
      # needs the stochastic engine: log_phi is a parameter
      stochastic = withr_seed(5, nasty_fit(na.exclude, neg_binomial_2(), method = "mpsgd")))
  }
  formula_store[[which]]
}

# the best gaussian of a fit, for identities that hold for it
as_gaussian <- function(fit) {
  fit$result$posterior <- uncorrected(fit$posterior)
  fit
}

# mean and standard error of a column of draws
moments <- function(x) list(mean = colMeans(x), se = apply(x, 2, sd) / sqrt(nrow(x)), sd = apply(x, 2, sd))

# the matrix that turns the coefficients of the model into those of the user
reported_map <- function(fit) uncentre_points(fit$posterior, diag(fit$model$dim))
