# Families of two predictors against importance sampling of the same posterior: means in sds, sds as ratios, the worst of coefficients
# and of the logarithm of the hyperparameter, two data sets each; 10,000 draws of a student proposal at the mode, or the chains of
# chains.R where these are worth less than 3,000 ("NA" effective draws). CPU time as a ratio to glmmTMB where that has the family.
# Rscript bench/parts.R [family ...]; about two minutes of CPU time.

suppressMessages(library(elvi))
source("bench/chains.R")
wanted <- commandArgs(trailingOnly = TRUE)

# The posterior of the coefficients of both (centred) parts and of a log hyperparameter, with elvi()'s priors but densities of R.
reference <- function(problem, log_lik, log_hyper, start_hyper, draws = 10000L) {
  rows <- problem$rows
  p <- ncol(rows$X)
  shift <- if (is.null(rows$shift)) numeric(p) else rows$shift
  X <- sweep(as.matrix(rows$X), 2L, shift)
  second <- problem$lines$of == 2L
  joint <- problem$priors$joint
  log_p <- function(v) {
    b <- v[seq_len(p)]
    eta <- drop(X[, !second, drop = FALSE] %*% b[!second]) + rows$offset
    eta2 <- drop(X[, second, drop = FALSE] %*% b[second]) + drop(problem$lines$offset)
    h <- v[-seq_len(p)]
    sum(rows$weight * log_lik(rows$y, eta, eta2, exp(h))) + sum(dnorm(b, joint$location, joint$scale, log = TRUE)) + log_hyper(h)
  }
  mode <- optim(c(joint$location, start_hyper), log_p, method = "BFGS", control = list(fnscale = -1, maxit = 500), hessian = TRUE)
  root <- chol(solve(-mode$hessian))
  set.seed(1)
  z <- matrix(rt(length(mode$par) * draws, 7), draws)
  v <- rep(mode$par, each = draws) + z %*% root
  log_w <- apply(v, 1L, log_p) - rowSums(dt(z, 7, log = TRUE))
  w <- exp(log_w - max(log_w, na.rm = TRUE))
  w[is.na(w)] <- 0
  w <- w / sum(w)
  effective <- 1 / sum(w^2) / draws
  if (effective < 0.3) {   # too few to judge by: chains
    target <- list(start = mode$par, at = function(v) {
      found <- apply(v, 2L, log_p)
      replace(found, !is.finite(found), -Inf)
    })
    v <- t(matrix(run_chains(target, chains = 40L), length(mode$par)))
    w <- rep(1 / nrow(v), nrow(v))
    effective <- NA
  }
  for (part in list(which(!second), which(second))) {   # intercepts of predictors that are not centred
    v[, part[1L]] <- v[, part[1L]] - v[, part[-1L], drop = FALSE] %*% shift[part[-1L]]
  }
  mean <- colSums(w * v)
  list(mean = mean, sd = sqrt(colSums(w * sweep(v, 2L, mean)^2)), effective = effective)
}

cpu <- function(run, repeats = 3L) {
  run()   # once to load and to compile
  median(replicate(repeats, sum(system.time(run())[1:2])))
}

made <- function(n, seed) {
  set.seed(seed)
  d <- data.frame(x = rnorm(n), z = rnorm(n))
  mu <- exp(0.8 + 0.5 * d$x)
  zero <- runif(n) < plogis(-0.5 + 0.7 * d$z)
  d$zip <- ifelse(zero, 0, rpois(n, mu))
  d$zinb <- ifelse(zero, 0, rnbinom(n, size = 3, mu = mu))
  d$hup <- ifelse(zero, 0, qpois(runif(n, exp(-mu), 1), mu))
  d$hunb <- ifelse(zero, 0, qnbinom(runif(n, dnbinom(0, size = 3, mu = mu), 1), size = 3, mu = mu))
  sigma <- exp(-0.3 + 0.4 * d$z)
  d$number <- 1 + 0.5 * d$x + sigma * rnorm(n)
  d$heavy <- 1 + 0.5 * d$x + sigma * rt(n, 4)
  d$size <- rgamma(n, 1 / sigma^2, scale = mu * sigma^2)
  d$time <- exp(rnorm(n, 0.8 + 0.5 * d$x, sigma))
  d$event <- runif(n) < 0.7
  d$count <- rnbinom(n, size = 2 / sigma, mu = mu)
  share <- rbeta(n, 4 / sigma * plogis(d$x), 4 / sigma * plogis(-d$x))
  d$share <- pmin(pmax(share, 1e-4), 1 - 1e-4)
  d$hits <- rbinom(n, 10, share)
  d
}

none <- function(h) 0
root_log <- function(h) -exp(-h / 2) - h / 2 - log(2)   # exponential(1) of 1 / sqrt(phi), on the scale of log phi
df_log <- function(h) dgamma(exp(h), 2, 0.1, log = TRUE) + h
excess <- function(zero, density) {
  function(y, eta, eta2, phi) {
    zi <- plogis(eta2)
    ifelse(y == 0, log(zi + (1 - zi) * zero(exp(eta), phi)), log1p(-zi) + density(y, exp(eta), phi))
  }
}
hurdle <- function(zero, density) {
  function(y, eta, eta2, phi) {
    ifelse(y == 0, plogis(eta2, log.p = TRUE),
           plogis(-eta2, log.p = TRUE) + density(y, exp(eta), phi) - log1p(-zero(exp(eta), phi)))
  }
}
poisson_zero <- function(mu, phi) exp(-mu)
poisson_density <- function(y, mu, phi) dpois(y, mu, log = TRUE)
negbin_zero <- function(mu, phi) exp(-phi * log1p(mu / phi))
negbin_density <- function(y, mu, phi) dnbinom(y, size = phi, mu = mu, log = TRUE)
beta_binomial <- function(y, eta, eta2, none) {   # of packed responses, see R/family-betabinomial.R
  n <- floor(y / 2^26)
  k <- y - n * 2^26
  a <- exp(eta2) * plogis(eta)
  b <- exp(eta2) * plogis(-eta)
  lbeta(k + a, n - k + b) - lbeta(a, b)
}
lognormal <- function(y, eta, eta2, none) {
  sigma <- exp(eta2)
  at <- eta - sigma^2 / 2
  ifelse(y > 0, dlnorm(abs(y), at, sigma, log = TRUE), plnorm(abs(y), at, sigma, FALSE, TRUE))
}

# family, formulas, family objects of elvi and of glmmTMB, log likelihood, log prior and start of the hyperparameter
cases <- list(
  list("zero_inflated_poisson", zip ~ x, ~ z, quote(zero_inflated_poisson()), quote(poisson()), excess(poisson_zero, poisson_density),
       none, numeric()),
  list("zero_inflated_negbinomial", zinb ~ x, ~ z, quote(zero_inflated_negbinomial()), quote(glmmTMB::nbinom2()),
       excess(negbin_zero, negbin_density), root_log, 1),
  list("hurdle_poisson", hup ~ x, ~ z, quote(hurdle_poisson()), quote(glmmTMB::truncated_poisson()),
       hurdle(poisson_zero, poisson_density), none, numeric()),
  list("hurdle_negbinomial", hunb ~ x, ~ z, quote(hurdle_negbinomial()), quote(glmmTMB::truncated_nbinom2()),
       hurdle(negbin_zero, negbin_density), root_log, 1),
  list("gaussian", number ~ x, ~ z, quote(gaussian()), quote(gaussian()),
       function(y, eta, eta2, none) dnorm(y, eta, exp(eta2), log = TRUE), none, numeric()),
  list("Gamma", size ~ x, ~ z, quote(Gamma("log")), quote(Gamma("log")),
       function(y, eta, eta2, none) dgamma(y, exp(eta2), exp(eta2 - eta), log = TRUE), none, numeric()),
  list("neg_binomial_2", count ~ x, ~ z, quote(neg_binomial_2()), quote(glmmTMB::nbinom2()),
       function(y, eta, eta2, none) negbin_density(y, exp(eta), exp(eta2)), none, numeric()),
  list("Beta", share ~ x, ~ z, quote(Beta()), quote(glmmTMB::beta_family()),
       function(y, eta, eta2, none) dbeta(y, exp(eta2) * plogis(eta), exp(eta2) * plogis(-eta), log = TRUE), none, numeric()),
  list("beta_binomial", cbind(hits, 10 - hits) ~ x, ~ z, quote(elvi::beta_binomial()), quote(glmmTMB::betabinomial()), beta_binomial,
       none, numeric()),
  list("lognormal", survival::Surv(time, event) ~ x, ~ z, quote(elvi::lognormal()), NULL, lognormal, none, numeric()),
  list("student", heavy ~ x, ~ z, quote(student()), NULL,
       function(y, eta, eta2, df) dt((y - eta) / exp(eta2), df, log = TRUE) - eta2, df_log, log(6)))

run <- function(case, n, seed) {
  d <- made(n, seed)
  zeros <- grepl("zero|hurdle", case[[1L]])
  formulas <- c(list(case[[2L]], data = d), if (zeros) list(ziformula = case[[3L]]) else list(dispformula = case[[3L]]))
  own <- c(formulas, list(family = eval(case[[4L]])))
  peer <- c(formulas, list(family = eval(case[[5L]])))
  fit <- suppressWarnings(do.call(elvi, own))
  true <- reference(do.call(elvi_problem, own), case[[6L]], case[[7L]], case[[8L]])
  table <- as.matrix(summary(fit)$table[, c("mean", "sd")])
  if (length(case[[8L]])) {   # phi may have no mean, its logarithm has one
    log_own <- log(posterior::as_draws_matrix(fit, draws = 10000)[, rownames(table)[nrow(table)]])
    table[nrow(table), ] <- c(mean(log_own), sd(log_own))
  }
  time <- cpu(function() suppressWarnings(do.call(elvi, own)))
  beside <- if (is.null(case[[5L]])) NA else cpu(function() suppressWarnings(do.call(glmmTMB::glmmTMB, peer)))
  data.frame(family = case[[1L]], rows = n, mean_off_sd = max(abs(table[, "mean"] - true$mean) / true$sd),
             sd_off_percent = 100 * max(abs(table[, "sd"] / true$sd - 1)), effective = true$effective, cpu = time,
             times_glmmTMB = time / beside)
}

for (case in Filter(function(case) !length(wanted) || case[[1L]] %in% wanted, cases)) {
  for (n in c(200L, 60L)) print(run(case, n, 7), digits = 2, row.names = FALSE)
}
