# Families of one predictor against importance sampling of the same posterior (means in sds, sds as ratios; 20,000 draws of a student
# proposal at the mode), and CPU time as a ratio to the usual peer. Rscript bench/families.R [family ...]; about a minute of CPU time.

suppressMessages(library(elvi))
wanted <- commandArgs(trailingOnly = TRUE)

# The posterior of coefficients (of centred predictors) and of log hyperparameters, as elvi() has it: its own priors, but densities from R.
reference <- function(problem, log_lik, log_hyper, start_hyper, shown, draws = 20000L) {
  rows <- problem$rows
  X <- sweep(as.matrix(rows$X), 2L, if (is.null(rows$shift)) 0 else rows$shift)
  p <- ncol(X)
  joint <- problem$priors$joint
  log_p <- function(v) {
    h <- v[-seq_len(p)]
    sum(rows$weight * log_lik(rows$y, drop(X %*% v[seq_len(p)]) + rows$offset, exp(h))) +
      sum(dnorm(v[seq_len(p)], joint$location, joint$scale, log = TRUE)) + log_hyper(h)
  }
  start <- c(joint$location, start_hyper)
  mode <- optim(start, log_p, method = "BFGS", control = list(fnscale = -1, maxit = 500), hessian = TRUE)
  root <- chol(solve(-mode$hessian))
  set.seed(1)
  z <- matrix(rt(length(start) * draws, 7), draws)
  v <- rep(mode$par, each = draws) + z %*% root
  log_w <- apply(v, 1L, log_p) - rowSums(dt(z, 7, log = TRUE))
  w <- exp(log_w - max(log_w))
  w <- w / sum(w)
  if (p > 1L) v[, 1L] <- v[, 1L] - v[, 2:p, drop = FALSE] %*% problem$rows$shift[-1L]
  values <- cbind(v[, seq_len(p), drop = FALSE], if (length(start_hyper)) shown(exp(v[, -seq_len(p), drop = FALSE])))
  mean <- colSums(w * values)
  list(mean = mean, sd = sqrt(colSums(w * sweep(values, 2L, mean)^2)), effective = 1 / sum(w^2) / draws)
}

cpu <- function(run, repeats = 5L) {
  run()   # once to load and to compile
  median(replicate(repeats, sum(system.time(run())[1:2])))
}

exponential_log <- function(rate) function(h) sum(log(rate) - rate * exp(h) + h)
# exponential(1) of 1 / sqrt(phi), on the scale of log phi
root_log <- function(h) -exp(-h / 2) - h / 2 - log(2)

cumulative_log_lik <- function(G) function(y, eta, distances) {
  cuts <- c(-Inf, 0, cumsum(distances), Inf)
  log(pmax(G(cuts[y + 1] - eta) - G(cuts[y] - eta), 1e-300))
}
cut_columns <- function(distances) t(apply(distances, 1L, cumsum))

set.seed(4)
made <- data.frame(x = rnorm(200))
made$share <- with(made, { m <- plogis(0.3 + 0.6 * x); rbeta(200, 6 * m, 6 * (1 - m)) })
made$count <- with(made, { l <- exp(0.2 + 0.5 * x); qpois(runif(200, exp(-l), 1), l) })
small <- made[1:40, ]
wine <- if (requireNamespace("ordinal", quietly = TRUE)) ordinal::wine

cases <- list(
  list("cumulative", "housing", quote(elvi(Sat ~ Infl + Type + Cont, MASS::housing, weights = Freq, family = cumulative())),
       quote(MASS::polr(Sat ~ Infl + Type + Cont, MASS::housing, weights = Freq, Hess = TRUE)), cumulative_log_lik(plogis),
       exponential_log(1), 0, identity),
  list("cumulative", "wine", quote(elvi(rating ~ temp + contact, wine, family = cumulative("probit"))),
       quote(ordinal::clm(rating ~ temp + contact, data = wine, link = "probit")), cumulative_log_lik(pnorm),
       exponential_log(1), c(0, 0, 0), cut_columns),
  list("robust", "cars", quote(elvi(dist ~ speed, cars, family = robust(4))), quote(MASS::rlm(dist ~ speed, cars)),
       function(y, eta, sigma) dt((y - eta) / sigma, 4, log = TRUE) - log(sigma),
       exponential_log(1 / sd(cars$dist)), log(10), identity),
  list("robust", "stackloss", quote(elvi(stack.loss ~ Air.Flow + Water.Temp, stackloss, family = robust(4))),
       quote(MASS::rlm(stack.loss ~ Air.Flow + Water.Temp, stackloss)),
       function(y, eta, sigma) dt((y - eta) / sigma, 4, log = TRUE) - log(sigma),
       exponential_log(1 / sd(stackloss$stack.loss)), log(3), identity),
  list("student", "cars", quote(elvi(dist ~ speed, cars, family = student())),
       quote(glmmTMB::glmmTMB(dist ~ speed, cars, family = glmmTMB::t_family())),
       function(y, eta, h) dt((y - eta) / h[1], h[2], log = TRUE) - log(h[1]),
       function(h) exponential_log(1 / sd(cars$dist))(h[1]) + dgamma(exp(h[2]), 2, 0.1, log = TRUE) + h[2], log(c(12, 10)), identity),
  list("beta", "shares", quote(elvi(share ~ x, made, family = Beta())),
       quote(glmmTMB::glmmTMB(share ~ x, made, family = glmmTMB::beta_family())),
       function(y, eta, phi) dbeta(y, phi * plogis(eta), phi * plogis(-eta), log = TRUE), root_log, log(5), identity),
  list("beta", "few shares", quote(elvi(share ~ x, small, family = Beta())),
       quote(glmmTMB::glmmTMB(share ~ x, small, family = glmmTMB::beta_family())),
       function(y, eta, phi) dbeta(y, phi * plogis(eta), phi * plogis(-eta), log = TRUE), root_log, log(5), identity),
  list("truncated_poisson", "counts", quote(elvi(count ~ x, made, family = truncated_poisson())),
       quote(glmmTMB::glmmTMB(count ~ x, made, family = glmmTMB::truncated_poisson())),
       function(y, eta, none) dpois(y, exp(eta), log = TRUE) - log(-expm1(-exp(eta))), function(h) 0, numeric(), identity),
  list("truncated_poisson", "few counts", quote(elvi(count ~ x, small, family = truncated_poisson())),
       quote(glmmTMB::glmmTMB(count ~ x, small, family = glmmTMB::truncated_poisson())),
       function(y, eta, none) dpois(y, exp(eta), log = TRUE) - log(-expm1(-exp(eta))), function(h) 0, numeric(), identity))

made$hits <- with(made, rbinom(200, 8, rbeta(200, 4 * plogis(0.3 + 0.6 * x), 4 * plogis(-0.3 - 0.6 * x))))
made$many <- with(made, { m <- exp(0.7 + 0.5 * x); qnbinom(runif(200, dnbinom(0, size = 1.5, mu = m), 1), size = 1.5, mu = m) })
cows <- if (requireNamespace("lme4", quietly = TRUE)) lme4::cbpp
lung <- if (requireNamespace("survival", quietly = TRUE)) survival::lung

beta_binomial_log_lik <- function(y, eta, phi) {   # of packed responses, see R/family-betabinomial.R
  n <- floor(y / 2^26)
  k <- y - n * 2^26
  lbeta(k + phi * plogis(eta), n - k + phi * plogis(-eta)) - lbeta(phi * plogis(eta), phi * plogis(-eta))
}
truncated_negbin_log_lik <- function(y, eta, phi) {
  dnbinom(y, size = phi, mu = exp(eta), log = TRUE) - log(-expm1(-phi * log1p(exp(eta) / phi)))
}
lognormal_log_lik <- function(y, eta, sigma) {
  ifelse(y > 0, dlnorm(abs(y), eta - sigma^2 / 2, sigma, log = TRUE), plnorm(abs(y), eta - sigma^2 / 2, sigma, FALSE, TRUE))
}
# thresholds are what their exponentials stand for here
sratio_log_lik <- function(y, eta, raised) {
  t <- outer(-eta, c(0, log(raised)), "+")
  goes <- cbind(0, t(apply(plogis(t, lower.tail = FALSE, log.p = TRUE), 1L, cumsum)))
  goes[cbind(seq_along(y), y)] + cbind(plogis(t, log.p = TRUE), 0)[cbind(seq_along(y), y)]
}

cases <- c(cases, list(
  list("sratio", "wine", quote(elvi(rating ~ temp + contact, wine, family = sratio())),
       quote(ordinal::clm(rating ~ temp + contact, data = wine)), sratio_log_lik, function(h) sum(dnorm(h, 0, 5, log = TRUE)),
       c(2, 4, 5), log),
  list("sratio", "housing", quote(elvi(Sat ~ Infl + Type + Cont, MASS::housing, weights = Freq, family = sratio())),
       quote(MASS::polr(Sat ~ Infl + Type + Cont, MASS::housing, weights = Freq, Hess = TRUE)), sratio_log_lik,
       function(h) sum(dnorm(h, 0, 5, log = TRUE)), 0, log),
  list("beta_binomial", "cbpp", quote(elvi(cbind(incidence, size - incidence) ~ period, cows, family = beta_binomial())),
       quote(glmmTMB::glmmTMB(cbind(incidence, size - incidence) ~ period, cows, family = glmmTMB::betabinomial())),
       beta_binomial_log_lik, root_log, log(10), identity),
  list("beta_binomial", "trials", quote(elvi(cbind(hits, 8 - hits) ~ x, made, family = beta_binomial())),
       quote(glmmTMB::glmmTMB(cbind(hits, 8 - hits) ~ x, made, family = glmmTMB::betabinomial())),
       beta_binomial_log_lik, root_log, log(4), identity),
  list("truncated_negbinomial", "many counts", quote(elvi(many ~ x, made, family = truncated_negbinomial())),
       quote(glmmTMB::glmmTMB(many ~ x, made, family = glmmTMB::truncated_nbinom2())), truncated_negbin_log_lik, root_log, 0, identity),
  list("truncated_negbinomial", "quine", quote(elvi(Days ~ Eth + Sex, subset(MASS::quine, Days > 0), family = truncated_negbinomial())),
       quote(glmmTMB::glmmTMB(Days ~ Eth + Sex, subset(MASS::quine, Days > 0), family = glmmTMB::truncated_nbinom2())),
       truncated_negbin_log_lik, root_log, 0, identity),
  list("lognormal", "lung", quote(elvi(survival::Surv(time, status) ~ age + sex, lung, family = lognormal())),
       quote(survival::survreg(survival::Surv(time, status) ~ age + sex, lung, dist = "lognormal")), lognormal_log_lik,
       exponential_log(1), 0, identity),
  list("lognormal", "cars", quote(elvi(dist ~ speed, cars, family = lognormal())),
       quote(survival::survreg(survival::Surv(dist) ~ speed, cars, dist = "lognormal")), lognormal_log_lik,
       exponential_log(1), 0, identity)))

run <- function(case) {
  if (identical(case[[2L]], "wine") && is.null(wine)) return(NULL)
  fit <- suppressWarnings(eval(case[[3L]]))
  asked <- case[[3L]]
  asked[[1L]] <- quote(elvi_problem)
  true <- reference(eval(asked), case[[5L]], case[[6L]], case[[7L]], case[[8L]])
  table <- summary(fit)$table
  peer <- tryCatch(suppressWarnings(cpu(function() eval(case[[4L]]))), error = function(e) NA_real_)
  own <- suppressWarnings(cpu(function() eval(case[[3L]])))
  data.frame(family = case[[1L]], data = case[[2L]], mean_off_sd = max(abs(table[, "mean"] - true$mean) / true$sd),
             sd_off_percent = 100 * max(abs(table[, "sd"] / true$sd - 1)), effective = true$effective, cpu = own, times_peer = own / peer)
}

chosen <- Filter(function(case) !length(wanted) || case[[1L]] %in% wanted, cases)
for (case in chosen) print(run(case), digits = 2, row.names = FALSE)   # one by one: the long ones come last
