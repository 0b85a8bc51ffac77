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
  trials = function(y, eta, aux) {   # cloglog
    y$y * log(-expm1(-exp(eta[[1]]))) - (y$n - y$y) * exp(eta[[1]])
  },
  probit = function(y, eta, aux) pnorm((2 * y - 1) * eta[[1]], log.p = TRUE),
  student = function(y, eta, aux) {
    s <- per_row(aux$sigma, eta[[1]])
    dt((y - eta[[1]]) / s, 4, log = TRUE) - log(s)
  },
  beta = function(y, eta, aux) {
    phi <- per_row(aux$phi, eta[[1]])
    mu <- plogis(eta[[1]])
    array(dbeta(y, mu * phi, (1 - mu) * phi, log = TRUE), dim(mu))
  },
  lognormal = function(y, eta, aux) {   # eta is the logarithm of the mean
    s <- per_row(aux$sigma, eta[[1]])
    array(dlnorm(y, eta[[1]] - s^2 / 2, s, log = TRUE), dim(eta[[1]]))
  },
  weighted = function(y, eta, aux) y$w * (y$y * eta[[1]] - exp(eta[[1]]) - lgamma(y$y + 1)),
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
problem <- function(name, formula, data, family, loss, y = data$y, designs = list(model.matrix(~ x, data)), aux = NULL, group = NULL,
                    crossed = NULL, shift = NULL, density = NULL, ...) {
  problems[[name]] <<- list(formula = formula, data = data, family = family, loss = loss, y = y, designs = designs, aux = aux,
                            group = group, crossed = crossed, offset = shift, prior = density, extra = list(...))
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

d <- data.frame(x = c(0.8, -1.7, -0.3, 0.5, -0.5, -1.5, -0.5, -0.9, -0.3, -2, 0.7, 0.9, 0.5, 0.8),
                y = c(0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0))
problem("cauchit, n = 14", y ~ x, d, binomial("cauchit"), loss$cauchit)

# ---- written after the methods, to find what they do not do ----------------------------------------------

for (seed in 101:103) {
  set.seed(seed)
  d <- data.frame(x = rnorm(12))
  d$y <- rnorm(12, d$x, exp(0.5 * d$x))
  problem(paste("location and scale, n = 12, seed", seed), y ~ x, d, gaussian(), loss$location_scale, dispformula = ~ x,
          designs = rep(list(model.matrix(~ x, d)), 2))
}
set.seed(104)
d <- data.frame(x = rnorm(10), n = c(3, 5, 2, 8, 4, 6, 3, 5, 4, 7))
d$y <- c(0, 1, 0, 3, 0, 6, 0, 1, 0, 2)
problem("cloglog, trials", cbind(y, n - y) ~ x, d, binomial("cloglog"), loss$trials, y = d)
d <- data.frame(x = rnorm(9), w = c(0.3, 2, 1, 0.5, 3, 1, 0.2, 1, 1), y = c(0, 1, 0, 0, 2, 0, 4, 0, 1), t = exp(rnorm(9)))
problem("poisson, weights and an offset", y ~ x, d, poisson(), loss$weighted, y = d, weights = d$w, offset = log(d$t), shift = log(d$t))
d <- data.frame(x = c(-2, -1.3, -1, -0.4, 0.2, 0.6, 1, 1.9), y = c(0, 0, 0, 0, 1, 1, 1, 1))
student <- function(scale) function(b) dnorm(b[1, ], 0, scale[1], log = TRUE) + dt(b[2, ] / scale[2], 3, log = TRUE)
problem("logit, separated, student prior", y ~ x, d, binomial(), loss$logit, density = student(c(2.5, 2.5)),
        prior = student_t(3, 0, 2.5), prior_intercept = normal(0, 2.5))
d <- data.frame(a = factor(rep(1:3, each = 6)), b = factor(rep(rep(1:2, each = 3), 3)))
d$y <- c(0, 1, 0, 0, 0, 0, 1, 0, 2, 1, 1, 0, 5, 2, 3, 0, 0, 0)
problem("poisson, interaction with empty cells", y ~ a * b, d, poisson(), loss$poisson, designs = list(model.matrix(~ a * b, d)))
d <- as.data.frame(matrix(rnorm(72), 8))
d$y <- rpois(8, 1)
problem("poisson, n = 8, p = 10", y ~ ., d, poisson(), loss$poisson, designs = list(model.matrix(~ . - y, d)))
d <- data.frame(x = rnorm(12), y = c(0, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1))
problem("probit, n = 12", y ~ x, d, binomial("probit"), loss$probit)
d <- data.frame(x = rnorm(8), y = c(0.2, 1.1, 0.4, 9, 0.6, 2.2, 0.1, 1.5))
problem("lognormal, n = 8", y ~ x, d, lognormal(), loss$lognormal, aux = list(sigma = rate(1)), prior_aux = exponential(1))
d <- data.frame(x = rnorm(10), y = exp(rnorm(10)))
problem("inverse gaussian, n = 10", y ~ x, d, inverse.gaussian("log"), loss$inverse_gaussian, aux = list(lambda = rate(1)),
        prior_aux = exponential(1))
d <- data.frame(x = rnorm(9), y = c(0.1, 3, -0.4, 1, 0.2, -6, 0.8, 1.1, 0.4))
problem("robust (student 4), n = 9", y ~ x, d, robust(), loss$student, aux = list(sigma = rate(1)), prior_aux = exponential(1))
d <- data.frame(x = rnorm(9), y = plogis(c(-4, -3, -5, -2, -4.5, -1, -3.3, -6, -2.2)))
problem("beta near 0, n = 9", y ~ x, d, Beta(), loss$beta, aux = list(phi = rate(0.02)), prior_aux = exponential(0.02))
d <- data.frame(g = factor(rep(1:5, each = 4)), h = factor(rep(1:4, 5)), x = rnorm(20), y = rbinom(20, 1, 0.4))
problem("logit, (1 | g) + (1 | h)", y ~ x + (1 | g) + (1 | h), d, binomial(), loss$logit, crossed = list(d$g, d$h))
d$y <- rpois(20, exp(-0.5 + rnorm(5)[d$g] + 0.5 * rnorm(4)[d$h]))
problem("poisson, (1 | g) + (1 | h)", y ~ x + (1 | g) + (1 | h), d, poisson(), loss$poisson, crossed = list(d$g, d$h))
d <- data.frame(g = factor(rep(1:8, each = 2)), x = rnorm(16), y = rbinom(16, 1, 0.5))
problem("probit, (1 | g), pairs", y ~ x + (1 | g), d, binomial("probit"), loss$probit, group = d$g)
d <- data.frame(x = rnorm(25))
d$y <- rpois(25, 2) * rbinom(25, 1, 0.5)
problem("zero-inflated poisson, n = 25", y ~ x, d, zero_inflated_poisson(), loss$zip, ziformula = ~ x,
        designs = rep(list(model.matrix(~ x, d)), 2))

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
  some <- sample.int(ncol(found$x), 5e4, TRUE, found$w)
  x <- found$x[, some, drop = FALSE]
  u <- if (!is.null(p$group)) t(target$effects(x))
  if (!is.null(p$crossed)) {
    levels <- vapply(p$crossed, nlevels, 0L)
    first <- length(at) + length(p$aux)
    u <- exp(x[first + rep(seq_along(levels), levels), ]) * x[first + length(levels) + seq_len(sum(levels)), ]
  }
  if (!is.null(u)) {
    at_u <- length(at) + seq_len(nrow(u))
    # of groups, not of their sds
    limits <- t(vapply(at_u, function(j) q_quantile(fit, j, c(0.025, 0.975)), c(0, 0)))
    moments <- ranef(fit)
    u_mean <- unlist(lapply(moments, function(m) m[, 1]))
    u_sd <- unlist(lapply(moments, function(m) attr(m, "sd")[, 1]))
    out <- rbind(out, effects = errors(u_mean, u_sd, limits, weighted_truth(u, rep(1 / ncol(u), ncol(u)))))
  }
  # of rows without effects by all draws: resampling would add noise
  eta <- target$predictors(if (is.null(u)) found$x else x)[[1]]
  if (!is.null(p$group)) eta <- eta + u[as.integer(p$group), ]
  of_rows <- weighted_truth(eta, if (is.null(u)) found$w else rep(1 / ncol(eta), ncol(eta)))
  shown <- suppressMessages(predict(fit, type = "link", se.fit = TRUE, interval = "credible"))
  out <- rbind(out, rows = errors(shown$fit[, "fit"], shown$se.fit, shown$fit[, c("lwr", "upr")], of_rows))
  cost <- vapply(1:5, function(i) seconds(call()) / seconds(call(correct = FALSE)), 0)
  data.frame(problem = name, what = rownames(out), out, cost = c(NA, stats::median(cost), rep(NA, nrow(out) - 2)),
             effective = round(found$effective), row.names = NULL)
}

# processor time
seconds <- function(run) {
  before <- proc.time()
  force(run)
  sum((proc.time() - before)[1:2])
}

chosen <- commandArgs(trailingOnly = TRUE)
if (length(chosen)) problems <- problems[Reduce(`|`, lapply(chosen, grepl, names(problems), fixed = TRUE))]
options(width = 160)
for (name in names(problems)) print(compare(name, problems[[name]]), digits = 2, row.names = FALSE)
