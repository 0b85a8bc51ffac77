# The posterior itself: means, sds and 95 % limits of coefficients against importance sampling of the exact posterior with at least
# 100,000 effective draws, for the best gaussian and for the corrected posterior, and what the correction costs.
# usage: R_LIBS=build/lib Rscript bench/posterior.R

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
  logit = function(y, eta) ifelse(y == 1, 1, -1) * 0 + plogis((2 * y - 1) * eta, log.p = TRUE),
  probit = function(y, eta) pnorm((2 * y - 1) * eta, log.p = TRUE),
  poisson = function(y, eta) y * eta - exp(eta),
  exponential = function(y, eta) y$status * -eta - y$time * exp(-eta))

plain_target <- function(fit, X, y, kind) {
  prior <- prior_of(fit)
  centre <- c(0, colMeans(X)[-1])
  Xc <- sweep(X, 2, centre)
  function(x) {   # x: user coordinates
    x[1, ] <- x[1, ] + drop(centre %*% x)
    colSums(row_loss[[kind]](y, Xc %*% x)) + log_normal_prior(x, prior$centre, prior$scale)
  }
}

group_target <- function(fit, X, y, g, kind, rule = hermite()) {
  prior <- prior_of(fit)
  centre <- c(0, colMeans(X)[-1])
  Xc <- sweep(X, 2, centre)
  function(x) {
    p <- ncol(X)
    sd <- exp(x[p + 1, ])
    b <- x[seq_len(p), , drop = FALSE]
    b[1, ] <- b[1, ] + drop(centre %*% b)
    eta <- Xc %*% b
    total <- log_normal_prior(b, prior$centre, prior$scale) + dexp(sd, 1, log = TRUE) + x[p + 1, ]
    for (rows in split(seq_along(g), g)) {
      each <- vapply(seq_along(rule$x), function(q) {
        colSums(row_loss[[kind]](y[rows], eta[rows, , drop = FALSE] + rep(sd * rule$x[q], each = length(rows)))) + log(rule$w[q])
      }, numeric(ncol(x)))
      top <- do.call(pmax, as.data.frame(each))
      total <- total + top + log(rowSums(exp(each - top)))
    }
    total
  }
}

# ---- importance sampling, with a student proposal fitted in two rounds -------------------------------------------

reference <- function(target, mean, V, draws = 4e5, df = 5, block = 2e4) {
  sample_block <- function(n, L) {
    z <- matrix(rnorm(length(mean) * n), length(mean))
    r <- sqrt(df / rchisq(n, df))
    x <- mean + 1.15 * (L %*% (z * rep(r, each = nrow(z))))
    list(x = x, log_q = -(df + nrow(z)) / 2 * log1p(colSums(z^2) * r^2 / df))
  }
  for (round in 1:3) {
    L <- t(chol(V))
    n <- if (round < 3) block else draws
    parts <- lapply(seq_len(n / block), function(i) {
      drawn <- sample_block(block, L)
      c(drawn, list(log_w = target(drawn$x) - drawn$log_q))
    })
    x <- do.call(cbind, lapply(parts, `[[`, "x"))
    log_w <- unlist(lapply(parts, `[[`, "log_w"))
    w <- exp(log_w - max(log_w))
    w <- w / sum(w)
    mean <- drop(x %*% w)
    V <- (x - mean) %*% (w * t(x - mean))
  }
  limits <- apply(x, 1, function(v) {
    o <- order(v)
    approx(cumsum(w[o]), v[o], c(0.025, 0.975), rule = 2, ties = "ordered")$y
  })
  list(mean = mean, sd = sqrt(diag(V)), limits = t(limits), effective = 1 / sum(w^2))
}

# ---- problems --------------------------------------------------------------------------------------------------------

cells <- function(counts, each = 10) {
  y <- unlist(lapply(counts, function(k) tabulate(rep_len(seq_len(each), k), each)))
  data.frame(y = y, cell = factor(rep(seq_along(counts), each = each)))
}

problems <- list()
problem <- function(name, formula, data, family, kind, group = NULL, ...) {
  problems[[name]] <<- list(formula = formula, data = data, family = family, kind = kind, group = group, extra = list(...))
}
set.seed(20261118)
problem("poisson, cells of 1, 3, 6, 19, 108 events", y ~ cell, cells(c(1, 3, 6, 19, 108)), poisson(), "poisson")
problem("poisson, one cell of 2 events", y ~ cell, cells(c(20, 2)), poisson(), "poisson")
problem("logit, am ~ wt", am ~ wt, mtcars, binomial(), "logit", prior = normal(0, 5))
d <- data.frame(x = c(-1.5, -1, -0.5, 0, 0.3, 0.7, 1, 1.6), y = c(0, 0, 1, 0, 1, 0, 1, 1))
problem("logit, n = 8", y ~ x, d, binomial(), "logit")
problem("probit, n = 8", y ~ x, d, binomial("probit"), "probit")
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

# ---- comparison ---------------------------------------------------------------------------------------------------------

errors <- function(mean, sd, limits, truth) {
  c(mean = max(abs(mean - truth$mean) / truth$sd), sd_low = min(sd / truth$sd), sd_high = max(sd / truth$sd),
    limit = max(abs(limits - truth$limits) / truth$sd))
}

seconds <- function(expr, times = 15) {
  expr <- substitute(expr)
  env <- parent.frame()
  stats::median(vapply(seq_len(times), function(i) system.time(eval(expr, env))[["elapsed"]], 0))
}

rows <- lapply(names(problems), function(name) {
  p <- problems[[name]]
  call <- function(...) do.call(elvi, c(list(p$formula, data = p$data, family = p$family), p$extra, list(...)))
  fit <- call()
  X <- model.matrix(fit)
  y <- if (p$kind == "exponential") p$data else as.numeric(p$data[[all.vars(p$formula)[1]]])
  target <- if (is.null(p$group)) plain_target(fit, X, y, p$kind) else group_target(fit, X, y, p$data[[p$group]], p$kind)
  at <- seq_len(ncol(X))
  V <- vcov(fit)
  mean <- fixef(fit)
  if (!is.null(p$group)) {
    V <- rbind(cbind(V, 0), 0)
    V[ncol(X) + 1, ncol(X) + 1] <- 0.3
    mean <- c(mean, log(summary(fit)$table[ncol(X) + 1, "mean"]))
  }
  truth <- reference(target, mean, V, draws = if (is.null(p$group)) 4e5 else 2e5)
  truth[c("mean", "sd")] <- lapply(truth[c("mean", "sd")], function(v) v[at])
  truth$limits <- truth$limits[at, , drop = FALSE]
  gaussian <- call(correct = FALSE)
  table <- function(fit) summary(fit)$table[at, , drop = FALSE]
  of <- function(fit) errors(table(fit)[, "mean"], table(fit)[, "sd"], table(fit)[, c("2.5 %", "97.5 %")], truth)
  cost <- seconds(call()) / seconds(call(correct = FALSE))
  data.frame(problem = name, effective = round(truth$effective), rbind(gaussian = of(gaussian), corrected = of(fit)), cost = c(NA, cost))
})
table <- do.call(rbind, rows)
table$fit <- rep(c("gaussian", "corrected"), length(rows))
rownames(table) <- NULL
print(table[c("problem", "fit", "mean", "sd_low", "sd_high", "limit", "cost", "effective")], digits = 3, row.names = FALSE)
