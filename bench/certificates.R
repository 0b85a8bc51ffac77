# Is the certificate of elvi_optimum() ever too small? Random regressions whose optimum is found again by code that shares nothing
# with elvi: the trapezoidal rule for expectations, and nlminb() over the mean and the Cholesky factor of the covariance.
#
#   Rscript bench/certificates.R [problems] [seed]

suppressPackageStartupMessages(library(elvi))
args <- as.integer(commandArgs(trailingOnly = TRUE))
problems <- if (length(args) > 0) args[1] else 1000L
set.seed(if (length(args) > 1) args[2] else 1L)

# the trapezoidal rule converges geometrically for analytic functions of a normal variable
z <- seq(-10, 10, by = 0.04)
w <- dnorm(z) / sum(dnorm(z))

# minus log likelihood of one response as a function of the predictor, and its derivatives
losses <- list(
  logit = list(value = function(eta, y) ifelse(eta > 0, eta + log1p(exp(-eta)), log1p(exp(eta))) - y * eta,
               slope = function(eta, y) plogis(eta) - y,
               bend = function(eta, y) plogis(eta) * plogis(-eta)),
  probit = list(value = function(eta, y) -pnorm((2 * y - 1) * eta, log.p = TRUE),
                slope = function(eta, y) { s <- 2 * y - 1; -s * exp(dnorm(eta, log = TRUE) - pnorm(s * eta, log.p = TRUE)) },
                bend = function(eta, y) {
                  s <- 2 * y - 1
                  r <- exp(dnorm(eta, log = TRUE) - pnorm(s * eta, log.p = TRUE))
                  r * (s * eta + r)
                }),
  poisson = list(value = function(eta, y) exp(eta) - y * eta, slope = function(eta, y) exp(eta) - y, bend = function(eta, y) exp(eta)))

random_problem <- function() {
  d <- sample(6, 1)
  n <- sample(3:60, 1)
  X <- switch(sample(3, 1), matrix(rnorm(n * d), n), matrix(rt(n * d, 3), n), matrix(rbinom(n * d, 1, 0.4), n))
  X[, 1] <- 1
  loss <- sample(names(losses), 1)
  eta <- drop(X %*% rnorm(d))
  y <- switch(loss, logit = rbinom(n, 1, plogis(2 * eta)), probit = rbinom(n, 1, pnorm(2 * eta)), poisson = rpois(n, exp(pmin(eta, 4))))
  if (runif(1) < 0.1) y[] <- 0
  list(X = X, y = y, loss = loss, sd = 2^runif(1, -2, 3), tol = 10^runif(1, -9, 0))
}

# F at a mean and a lower triangular root of the covariance, and its gradient
own_objective <- function(problem) {
  d <- ncol(problem$X)
  loss <- losses[[problem$loss]]
  precision <- 1 / problem$sd^2
  lower <- which(lower.tri(diag(d), TRUE))
  split <- function(par) {
    L <- matrix(0, d, d)
    L[lower] <- par[-seq_len(d)]
    list(mu = par[seq_len(d)], L = L)
  }
  over_nodes <- function(at, f) {
    eta <- drop(problem$X %*% at$mu)
    s <- sqrt(rowSums((problem$X %*% at$L)^2))
    drop(f(outer(s, z) + eta, problem$y) %*% w)
  }
  list(value = function(par) {
    at <- split(par)
    if (any(diag(at$L) <= 0)) return(Inf)
    sum(over_nodes(at, loss$value)) + precision / 2 * (sum(at$mu^2) + sum(at$L^2)) - sum(log(diag(at$L)))
  }, gradient = function(par) {
    at <- split(par)
    B <- crossprod(problem$X, over_nodes(at, loss$bend) * problem$X) + diag(precision, d)
    c(crossprod(problem$X, over_nodes(at, loss$slope)) + precision * at$mu, (B %*% at$L - diag(1 / diag(at$L), d))[lower])
  }, par = function(mu, covariance) c(mu, t(chol(covariance))[lower]))
}

# The best of two descents, one from the prior and one from elvi's answer: where they agree the optimum is known.
own_optimum <- function(own, start, d, sd) {
  descend <- function(par) {
    for (i in 1:4) par <- stats::nlminb(par, own$value, own$gradient, control = list(iter.max = 500, eval.max = 900, rel.tol = 1e-15))$par
    own$value(par)
  }
  c(descend(start), descend(own$par(numeric(d), diag(min(sd, 0.5)^2, d))))
}

audit <- function(i) {
  problem <- random_problem()
  family <- switch(problem$loss, poisson = poisson(), binomial(problem$loss))
  model <- suppressWarnings(model_glm(problem$X, problem$y, family = family, prior = normal(0, problem$sd)))   # constant responses
  fit <- elvi_optimum(model, tol = problem$tol)
  own <- own_objective(problem)
  start <- own$par(fit$mu, fit$Sigma %*% fit$Sigma)
  ends <- own_optimum(own, start, ncol(problem$X), problem$sd)
  data.frame(loss = problem$loss, d = ncol(problem$X), n = nrow(problem$X), tol = problem$tol, converged = fit$converged,
             certificate = fit$certificate, gap = own$value(start) - min(ends), between = abs(diff(ends)), F = abs(own$value(start)))
}

out <- do.call(rbind, lapply(seq_len(problems), audit))
# what the sums of doubles and the end of a descent leave open
rounding <- 1e-11 * (1 + out$F)
broken <- out$gap > out$certificate + rounding
known <- out$between <= 1e-7
cat(sprintf("%d problems, %d converged; both descents ended within 1e-7 nats of each other in %d\n", nrow(out), sum(out$converged), sum(known)))
cat(sprintf("gap above its certificate: %d; above `tol`: %d\n", sum(broken), sum(out$converged & out$gap > out$tol + rounding)))
clear <- out$gap > 100 * rounding
cat(sprintf("where the gap is above rounding (%d): certificate / gap %s (least, median, greatest)\n", sum(clear),
            toString(signif(stats::quantile((out$certificate / out$gap)[clear], c(0, 0.5, 1)), 3))))
if (any(broken)) print(out[broken, ])
if (any(broken)) quit(status = 1)
