# The posterior itself: means, sds and 95 % limits of coefficients against importance sampling of the exact posterior with at least
# 100,000 effective draws, for the best gaussian and for the corrected posterior, and what the correction costs. Effects of groups are
# compared with 20,000 exact draws of them, and loo() with integrals over them.
# usage: R_LIBS=build/lib Rscript bench/posterior.R [part of a problem's name ...]

suppressMessages(library(elvi))

# ---- log posteriors: functions of a matrix with a column per draw -------------------------------------------------

log_normal_prior <- function(x, centre, scale) colSums(dnorm(x, centre, scale, log = TRUE))

# the prior that a fit used, of the coefficients of centred predictors
prior_of <- function(fit) {
  joint <- fit$priors$joint
  list(centre = rep_len(joint$location, length(joint$scale)), scale = joint$scale)
}

# Effects of groups are integrated out by Gauss-Hermite quadrature, given the predictor without them and their sd.
hermite <- function(n = 61) {
  i <- seq_len(n - 1)
  J <- matrix(0, n, n)
  J[cbind(i, i + 1)] <- J[cbind(i + 1, i)] <- sqrt(i)
  e <- eigen(J, symmetric = TRUE)
  list(x = e$values, w = e$vectors[1, ]^2)
}

# log likelihood of each row at predictors eta (rows x draws)
row_loss <- list(
  logit = function(y, eta) plogis((2 * y - 1) * eta, log.p = TRUE),
  probit = function(y, eta) pnorm((2 * y - 1) * eta, log.p = TRUE),
  poisson = function(y, eta) y * eta - exp(eta),
  exponential = function(y, eta) y$status * -eta - y$time * exp(-eta))

# and of a dispersion, whose prior is exponential with the given rate
dispersed_loss <- list(
  robust = function(y, eta, a) dt((y - eta) / rep(a, each = nrow(eta)), 4, log = TRUE) - rep(log(a), each = nrow(eta)),
  beta = function(y, eta, a) {
    phi <- rep(a, each = nrow(eta))
    array(dbeta(rep(y, length(a)), plogis(eta) * phi, plogis(-eta) * phi, log = TRUE), dim(eta))
  })

plain_target <- function(fit, X, y, kind, rate = NULL) {
  prior <- prior_of(fit)
  centre <- c(0, colMeans(X)[-1])
  Xc <- sweep(X, 2, centre)
  p <- ncol(X)
  function(x) {   # x: user coordinates, then the logarithm of the dispersion
    b <- x[seq_len(p), , drop = FALSE]
    b[1, ] <- b[1, ] + drop(centre %*% b)
    eta <- Xc %*% b
    loss <- if (is.null(rate)) row_loss[[kind]](y, eta) else dispersed_loss[[kind]](y, eta, exp(x[p + 1, ]))
    known <- if (is.null(rate)) 0 else dexp(exp(x[p + 1, ]), rate, log = TRUE) + x[p + 1, ]
    colSums(loss) + log_normal_prior(b, prior$centre, prior$scale) + known
  }
}

# log likelihood of the rows of a group: draws x values of its effect, u
group_loss <- function(kind, y, eta, u) {
  if (kind == "poisson") return(colSums(y * eta) + sum(y) * u - colSums(exp(eta)) * exp(u))
  Reduce(`+`, lapply(seq_along(y), function(i) row_loss[[kind]](y[i], eta[i, ] + u)))
}

log_row_sums <- function(m) {
  top <- do.call(pmax, as.data.frame(m))
  top + log(rowSums(exp(m - top)))
}

group_target <- function(fit, X, y, g, kind, rule = hermite()) {
  prior <- prior_of(fit)
  centre <- c(0, colMeans(X)[-1])
  Xc <- sweep(X, 2, centre)
  p <- ncol(X)
  rows <- split(seq_along(g), g)
  shifted <- function(x) {
    b <- x[seq_len(p), , drop = FALSE]
    b[1, ] <- b[1, ] + drop(centre %*% b)
    b
  }
  without_effect <- function(r, eta, sd) {
    if (!length(r)) return(numeric(ncol(eta)))
    log_row_sums(group_loss(kind, y[r], eta[r, , drop = FALSE], outer(sd, rule$x)) + rep(log(rule$w), each = ncol(eta)))
  }
  density <- function(x) {
    b <- shifted(x)
    sd <- exp(x[p + 1, ])
    total <- log_normal_prior(b, prior$centre, prior$scale) + dexp(sd, 1, log = TRUE) + x[p + 1, ]
    eta <- Xc %*% b
    for (r in rows) total <- total + without_effect(r, eta, sd)
    total
  }
  # exact draws of the effects, draws x groups, given draws of the rest: by the inverse of their distribution on a grid
  effects <- function(x, grid = seq(-6, 6, length.out = 241)) {
    sd <- exp(x[p + 1, ])
    eta <- Xc %*% shifted(x)
    n <- ncol(x)
    vapply(rows, function(r) {
      l <- group_loss(kind, y[r], eta[r, , drop = FALSE], outer(sd, grid)) + rep(dnorm(grid, log = TRUE), each = n)
      below <- t(apply(exp(l - do.call(pmax, as.data.frame(l))), 1, cumsum))
      k <- pmax(rowSums(below < runif(n) * below[, ncol(below)]), 1)
      sd * (grid[k] + (grid[2] - grid[1]) * (0.5 + runif(n)))
    }, numeric(n))
  }
  # log densities of rows given all others, effects integrated out
  held_out <- function(x) {
    sd <- exp(x[p + 1, ])
    eta <- Xc %*% shifted(x)
    out <- numeric(length(y))
    for (r in rows) {
      full <- without_effect(r, eta, sd)
      for (i in r) out[i] <- -log(mean(exp(without_effect(setdiff(r, i), eta, sd) - full)))
    }
    if (kind == "poisson") out - lgamma(y + 1) else out
  }
  list(density = density, effects = effects, held_out = held_out)
}

# ---- importance sampling, with a student proposal fitted in two rounds -------------------------------------------

reference <- function(target, mean, V, enough = 1e5, df = 5, block = 2e4) {
  sample_block <- function(n, L) {
    z <- matrix(rnorm(length(mean) * n), length(mean))
    r <- sqrt(df / rchisq(n, df))
    x <- mean + 1.15 * (L %*% (z * rep(r, each = nrow(z))))
    list(x = x, log_q = -(df + nrow(z)) / 2 * log1p(colSums(z^2) * r^2 / df))
  }
  for (round in 1:3) {
    L <- t(chol(V))
    parts <- list()
    repeat {
      drawn <- sample_block(block, L)
      parts <- c(parts, list(c(drawn, list(log_w = target(drawn$x) - drawn$log_q))))
      log_w <- unlist(lapply(parts, `[[`, "log_w"))
      w <- exp(log_w - max(log_w))
      w <- w / sum(w)
      if (round < 3 || 1 / sum(w^2) > enough) break
    }
    x <- do.call(cbind, lapply(parts, `[[`, "x"))
    mean <- drop(x %*% w)
    V <- (x - mean) %*% (w * t(x - mean))
  }
  limits <- apply(x, 1, function(v) {
    o <- order(v)
    approx(cumsum(w[o]), v[o], c(0.025, 0.975), rule = 2, ties = "ordered")$y
  })
  list(mean = mean, sd = sqrt(diag(V)), limits = t(limits), effective = 1 / sum(w^2), x = x, w = w)
}

# ---- problems --------------------------------------------------------------------------------------------------------

cells <- function(counts, each = 10) {
  y <- unlist(lapply(counts, function(k) tabulate(rep_len(seq_len(each), k), each)))
  data.frame(y = y, cell = factor(rep(seq_along(counts), each = each)))
}

problems <- list()
problem <- function(name, formula, data, family, kind, group = NULL, rate = NULL, ...) {
  problems[[name]] <<- list(formula = formula, data = data, family = family, kind = kind, group = group, rate = rate,
                            extra = c(list(...), if (!is.null(rate)) list(prior_aux = exponential(rate))))
}
set.seed(20261118)
problem("poisson, cells of 1, 3, 6, 19, 108 events", y ~ cell, cells(c(1, 3, 6, 19, 108)), poisson(), "poisson")
problem("poisson, one cell of 2 events", y ~ cell, cells(c(20, 2)), poisson(), "poisson")
problem("logit, am ~ wt", am ~ wt, mtcars, binomial(), "logit", prior = normal(0, 5))
d <- data.frame(x = c(-1.5, -1, -0.5, 0, 0.3, 0.7, 1, 1.6), y = c(0, 0, 1, 0, 1, 0, 1, 1))
problem("logit, n = 8", y ~ x, d, binomial(), "logit")
X <- matrix(rnorm(15 * 3), 15)
d <- data.frame(y = rbinom(15, 1, plogis(X %*% c(1, -1, 0.5))), X)
problem("logit, n = 15, p = 4", y ~ ., d, binomial(), "logit")
X <- matrix(rnorm(10 * 11), 10)
d <- data.frame(y = rbinom(10, 1, plogis(X[, 1])), X)
problem("logit, n = 10, p = 12", y ~ ., d, binomial(), "logit", prior = normal(0, 1))
d <- data.frame(x = c(-2, -1.5, -1, -0.4, 0.5, 0.9, 1.3, 2), y = rep(0:1, each = 4))
problem("logit, separated", y ~ x, d, binomial(), "logit")
X <- matrix(rnorm(40 * 9), 40)
d <- data.frame(y = rbinom(40, 1, plogis(X %*% rnorm(9))), X)
problem("logit, n = 40, p = 10", y ~ ., d, binomial(), "logit")
d <- data.frame(g = factor(rep(1:12, each = 2)), x = rnorm(24))
d$y <- rbinom(24, 1, plogis(0.3 + d$x + rnorm(12, 0, 1.5)[d$g]))
problem("logit, (1 | g), 12 groups of 2", y ~ x + (1 | g), d, binomial(), "logit", group = "g")
d <- data.frame(g = factor(rep(1:10, each = 4)), cell = factor(rep(1:4, 10)))
d$y <- rpois(40, exp(c(-2, -1, 0.5, 1.5)[d$cell] + rnorm(10, 0, 0.6)[d$g]))
problem("poisson, thin cells, (1 | g)", y ~ cell + (1 | g), d, poisson(), "poisson", group = "g")
d <- data.frame(x = rep(0:1, each = 15), time = rexp(30, 0.2))
d$status <- as.integer(rank(d$time) <= 6)
d$time[d$status == 0] <- max(d$time[d$status == 1]) + 0.1
problem("exponential times, 80 % censored", survival::Surv(time, status) ~ x, d, "exponential", "exponential")

d <- data.frame(x = c(-1.5, -1, -0.5, 0, 0.3, 0.7, 1, 1.6))
d$y <- 1 + d$x + c(0.3, -0.2, 0.1, -0.4, 5, 0.2, -0.1, 0.3)
problem("robust (student 4), n = 8", y ~ x, d, robust(), "robust", rate = 1)
d$y <- plogis(3 + d$x + c(-0.3, 0.1, -0.4, 0.8, 0.2, -0.4, 0.2, 0.4))
problem("beta near 1, n = 8", y ~ x, d, Beta(), "beta", rate = 0.02)
if (requireNamespace("glmmTMB", quietly = TRUE)) {
  problem("poisson, Salamanders", count ~ spp * mined + (1 | site), glmmTMB::Salamanders, poisson(), "poisson", group = "site")
}

# ---- comparison ---------------------------------------------------------------------------------------------------------

errors <- function(mean, sd, limits, truth) {
  c(mean = max(abs(mean - truth$mean) / truth$sd), sd_low = min(sd / truth$sd), sd_high = max(sd / truth$sd),
    limit = max(abs(limits - truth$limits) / truth$sd))
}

# processor time, which a busy machine changes less than time on the clock
seconds <- function(run, times = 7) stats::median(vapply(seq_len(times), function(i) system.time(run())[["user.self"]], 0))

of_table <- function(fit, at, truth) {
  table <- summary(fit)$table[at, , drop = FALSE]
  errors(table[, "mean"], table[, "sd"], table[, c("2.5 %", "97.5 %")], truth)
}

of_effects <- function(fit, p, u) {
  moments <- ranef(fit)[[1]]
  limits <- t(vapply(p + seq_len(ncol(u)), function(j) q_quantile(fit, j, c(0.025, 0.975)), c(0, 0)))
  truth <- list(mean = colMeans(u), sd = apply(u, 2, sd), limits = t(apply(u, 2, quantile, c(0.025, 0.975))))
  errors(moments[, 1], attr(moments, "sd")[, 1], limits, truth)
}

loo_off <- function(fit, truth, ...) sum(suppressWarnings(loo::loo(fit, ...))$pointwise[, "elpd_loo"] - truth)

row_of <- function(name, what, gaussian, corrected, cost, effective) {
  data.frame(problem = name, what = what, fit = c("gaussian", "corrected"), rbind(gaussian, corrected), cost = c(NA, cost),
             effective = round(effective))
}

chosen <- commandArgs(trailingOnly = TRUE)
asked <- names(problems)
if (length(chosen)) asked <- asked[Reduce(`|`, lapply(chosen, grepl, asked, fixed = TRUE))]
options(width = 160)
rows <- lapply(asked, function(name) {
  p <- problems[[name]]
  call <- function(...) suppressMessages(do.call(elvi, c(list(p$formula, data = p$data, family = p$family), p$extra, list(...))))
  set.seed(1)
  fit <- call()
  gaussian <- call(correct = FALSE)
  X <- model.matrix(fit)
  y <- if (p$kind == "exponential") p$data else as.numeric(p$data[[all.vars(p$formula)[1]]])
  groups <- if (!is.null(p$group)) group_target(fit, X, y, p$data[[p$group]], p$kind)
  target <- if (is.null(groups)) plain_target(fit, X, y, p$kind, p$rate) else groups$density
  at <- seq_len(ncol(X))
  V <- vcov(fit)[at, at]
  mean <- fixef(fit)
  if (!is.null(p$group) || !is.null(p$rate)) {
    V <- rbind(cbind(V, 0), 0)
    V[ncol(X) + 1, ncol(X) + 1] <- 0.3
    mean <- c(mean, log(summary(fit)$table[ncol(X) + 1, "mean"]))
  }
  found <- reference(target, mean, V)
  truth <- list(mean = found$mean[at], sd = found$sd[at], limits = found$limits[at, , drop = FALSE])
  cost <- seconds(call) / seconds(function() call(correct = FALSE))
  out <- row_of(name, "coefficients", of_table(gaussian, at, truth), of_table(fit, at, truth), cost, found$effective)
  if (is.null(groups)) return(out)
  x <- found$x[, sample.int(ncol(found$x), 20000, replace = TRUE, prob = found$w)]
  u <- groups$effects(x)
  if (length(y) <= 100 && requireNamespace("loo", quietly = TRUE)) {   # exact densities of more rows take minutes
    held_out <- groups$held_out(x)
    cat(sprintf("%s: sum of loo() off by %.3f nats, by importance sampling alone %.3f\n", name, loo_off(fit, held_out),
                loo_off(fit, held_out, profile = FALSE)))
  }
  rbind(out, row_of(name, "effects", of_effects(gaussian, ncol(X), u), of_effects(fit, ncol(X), u), NA, 20000))
})
table <- do.call(rbind, rows)
print(table[c("problem", "what", "fit", "mean", "sd_low", "sd_high", "limit", "cost", "effective")], digits = 3, row.names = FALSE)
