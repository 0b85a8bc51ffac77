# Thin data in families beyond those of posterior.R, against bench/brute-force.R: coefficients, hyperparameters, effects, and linear
# predictors as tables and predict() show them, and coefficients by 40,000 draws. Errors are in standard deviations of the posterior.
# usage: R_LIBS=build/lib Rscript bench/thin.R [part of a problem's name ...]

suppressMessages(library(elvi))
source("bench/brute-force.R")

per_row <- function(a, eta) rep(a, each = nrow(eta))

loss <- list(
  inverse_gaussian = function(y, eta, aux) {
    l <- per_row(aux$lambda, eta[[1]])
    -l * (y - exp(eta[[1]]))^2 * exp(-2 * eta[[1]]) / (2 * y) + log(l) / 2 - log(2 * pi * y^3) / 2
  },
  gamma = function(y, eta, aux) {
    a <- per_row(aux$shape, eta[[1]])
    array(dgamma(y, a, a * exp(-eta[[1]]), log = TRUE), dim(eta[[1]]))
  },
  negbin = function(y, eta, aux) array(dnbinom(y, size = per_row(aux$phi, eta[[1]]), mu = exp(eta[[1]]), log = TRUE), dim(eta[[1]])),
  poisson = function(y, eta, aux) y * eta[[1]] - exp(eta[[1]]) - lgamma(y + 1),
  logit = function(y, eta, aux) plogis((2 * y - 1) * eta[[1]], log.p = TRUE),
  cauchit = function(y, eta, aux) pcauchy((2 * y - 1) * eta[[1]], log.p = TRUE),
  zip = function(y, eta, aux) {
    zero <- plogis(eta[[2]], log.p = TRUE)
    out <- plogis(-eta[[2]], log.p = TRUE) + y * eta[[1]] - exp(eta[[1]]) - lgamma(y + 1)
    at <- y == 0
    out[at, ] <- pmax(zero[at, ], out[at, ]) + log1p(exp(-abs(zero[at, ] - out[at, ])))
    out
  },
  weibull = function(y, eta, aux) {
    k <- per_row(aux$shape, eta[[1]])
    u <- log(y$time) - eta[[1]] + lgamma(1 + 1 / k)
    y$status * (log(k) + k * u - log(y$time)) - exp(k * u)
  },
  cumulative = function(y, eta, aux) {
    cut <- rbind(-Inf, 0, do.call(rbind, lapply(seq_along(aux), function(k) Reduce(`+`, aux[1:k]))), Inf)
    log(plogis(cut[y + 1, , drop = FALSE] - eta[[1]]) - plogis(cut[y, , drop = FALSE] - eta[[1]]))
  },
  location_scale = function(y, eta, aux) dnorm(y, eta[[1]], exp(eta[[2]]), log = TRUE))

rate <- function(r) function(v) dexp(v, r, log = TRUE)
x8 <- c(-1.5, -1, -0.5, 0, 0.3, 0.7, 1, 1.6)
problems <- list()
problem <- function(name, formula, data, family, loss, y = data$y, designs = list(model.matrix(~ x, data)), aux = NULL, group = NULL, ...) {
  problems[[name]] <<- list(formula = formula, data = data, family = family, loss = loss, y = y, designs = designs, aux = aux,
                            group = group, extra = list(...))
}

set.seed(1)
d <- data.frame(x = x8, y = c(0.9, 0.5, 2.7, 1.3, 8, 1.6, 4.9, 3.1))
problem("inverse gaussian, n = 8", y ~ x, d, inverse.gaussian("log"), loss$inverse_gaussian, aux = list(lambda = rate(1)),
        prior_aux = exponential(1))
problem("Gamma, n = 8", y ~ x, d, Gamma("log"), loss$gamma, aux = list(shape = rate(1)), prior_aux = exponential(1))
d <- data.frame(x = rnorm(12), y = c(0, 0, 1, 0, 3, 0, 0, 1, 0, 0, 5, 0))
problem("negative binomial, n = 12", y ~ x, d, neg_binomial_2(), loss$negbin, aux = list(phi = rate(1)), prior_aux = exponential(1))
d <- data.frame(x = rnorm(30))
d$y <- rpois(30, exp(0.5 + 0.3 * d$x)) * rbinom(30, 1, 0.3)
problem("zero-inflated poisson, both parts", y ~ x, d, zero_inflated_poisson(), loss$zip, ziformula = ~ x,
        designs = rep(list(model.matrix(~ x, d)), 2))
d <- data.frame(x = rep(0:1, each = 15), time = rweibull(30, 1.5, 5))
d$status <- as.integer(rank(d$time) <= 6)
d$time[d$status == 0] <- max(d$time[d$status == 1]) + 0.1
problem("weibull, 80 % censored", survival::Surv(time, status) ~ x, d, weibull(), loss$weibull, y = d, aux = list(shape = rate(1)),
        prior_aux = exponential(1))
d <- data.frame(x = rnorm(15), y = factor(c(1, 2, 1, 3, 1, 2, 4, 1, 2, 1, 3, 2, 1, 4, 1), ordered = TRUE))
problem("cumulative, 15 rows, 4 classes", y ~ x, d, cumulative(), loss$cumulative, y = as.integer(d$y),
        aux = list(a = rate(1), b = rate(1)))
d <- data.frame(x = rnorm(12))
d$y <- rnorm(12, d$x, exp(0.5 * d$x))
problem("location and scale, n = 12", y ~ x, d, gaussian(), loss$location_scale, dispformula = ~ x,
        designs = rep(list(model.matrix(~ x, d)), 2))
d <- data.frame(g = factor(rep(1:10, each = 2)), x = rnorm(20))
d$y <- rpois(20, exp(-1 + 0.3 * d$x + rnorm(10)[d$g]))
problem("poisson, (1 | g), pairs with zeros", y ~ x + (1 | g), d, poisson(), loss$poisson, group = d$g)

d <- data.frame(x = c(0.8, -1.7, -0.3, 0.5, -0.5, -1.5, -0.5, -0.9, -0.3, -2, 0.7, 0.9, 0.5, 0.8), y = c(0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0))
problem("cauchit, n = 14", y ~ x, d, binomial("cauchit"), loss$cauchit)

compare <- function(name, p) {
  set.seed(1)
  call <- function(...) suppressMessages(do.call(elvi, c(list(p$formula, data = p$data, family = p$family), p$extra, list(...))))
  fit <- call()
  target <- brute_target(fit, p)
  at <- seq_len(target$coefficients)
  start <- c(summary(fit)$table[at, "mean"], numeric(target$dim - length(at)))
  V <- diag(0.3, target$dim)
  V[at, at] <- vcov(fit)[at, at]
  found <- brute_force(target$density, start, V, most = if (is.null(p$group)) 2e6 else 4e5)
  truth <- weighted_truth(found$x[at, , drop = FALSE], found$w)
  of_table <- function(fit) {
    table <- summary(fit)$table[at, ]
    errors(table[, "mean"], table[, "sd"], table[, c("2.5 %", "97.5 %")], truth)
  }
  draws <- as.matrix(fit, draws = 40000)[, at]
  out <- rbind(gaussian = of_table(call(correct = FALSE)), corrected = of_table(fit),
               draws = errors(colMeans(draws), apply(draws, 2, sd), t(apply(draws, 2, quantile, c(0.025, 0.975))), truth))
  if (!is.null(p$group)) {
    x <- found$x[, sample.int(ncol(found$x), 5e4, TRUE, found$w)]
    u <- t(target$effects(x))
    moments <- ranef(fit)[[1]]
    limits <- t(vapply(length(at) + seq_len(nrow(u)), function(j) q_quantile(fit, j, c(0.025, 0.975)), c(0, 0)))
    out <- rbind(out, effects = errors(moments[, 1], attr(moments, "sd")[, 1], limits, weighted_truth(u, rep(1 / ncol(u), ncol(u)))))
  }
  data.frame(problem = name, what = rownames(out), out, effective = round(found$effective), row.names = NULL)
}

chosen <- commandArgs(trailingOnly = TRUE)
if (length(chosen)) problems <- problems[Reduce(`|`, lapply(chosen, grepl, names(problems), fixed = TRUE))]
options(width = 160)
for (name in names(problems)) print(compare(name, problems[[name]]), digits = 2, row.names = FALSE)
