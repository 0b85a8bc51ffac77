# Families with (1 | g) against Markov chains of the same posterior: a coefficient, the standard deviation of the groups, the family's own
# parameters (their logarithms), and every effect; means in sds, sds as ratios. The densities are R's own, and the chains those of
# ter Braak (2006), Statistics and Computing 16, 239-249: steps are differences of other chains. Two data sets a family.
#
#   Rscript bench/families-groups.R [pattern of families] [rounds of the chains, 5000]; a quarter of an hour of CPU time
#   Rscript bench/families-groups.R times; CPU time as a ratio to ordinal and glmmTMB
#
# Chains are compared with each other: `se` is the largest standard error of their means, in sds, and less than that is not told.
# References are kept in bench/posteriors/families-groups.rds, and made again if it has no such case.

suppressMessages(library(elvi))
source("bench/chains.R")
wanted <- commandArgs(trailingOnly = TRUE)
rounds <- if (length(wanted) > 1L) as.integer(wanted[2L]) else 5000L
stored <- "bench/posteriors/families-groups.rds"

# ---- data --------------------------------------------------------------------------------------------------------

made <- function(n, groups, seed) {
  set.seed(seed)
  d <- data.frame(x = rnorm(n), z = rnorm(n), g = factor(rep_len(seq_len(groups), n)))
  eta <- 0.4 + 0.5 * d$x + rnorm(groups, 0, 0.5)[d$g]
  mu <- exp(eta)
  d$number <- eta + 0.5 * exp(0.4 * d$z) * rt(n, 6)
  d$hit <- rbinom(n, 1, plogis(eta))
  d$hits <- rbinom(n, 6, rbeta(n, 4 * plogis(eta), 4 * plogis(-eta)))
  d$size <- rgamma(n, 4, 4 / mu)
  d$count <- rnbinom(n, size = 2, mu = mu)
  d$seen <- qnbinom(runif(n, dnbinom(0, size = 2, mu = mu), 1), size = 2, mu = mu)
  d$zeros <- ifelse(runif(n) < plogis(-0.8 + 0.5 * d$z), 0, rnbinom(n, size = 4, mu = 2 * mu))
  d$share <- rbeta(n, 5 * plogis(eta), 5 * plogis(-eta))
  d$class <- factor(cut(eta + rlogis(n), c(-Inf, 0, 1.2, Inf), labels = c("low", "middle", "high")), ordered = TRUE)
  d
}

# ---- densities: y, predictors and parameters of rows x chains -----------------------------------------------------

binomial_by <- function(inverse) function(y, eta, h, eta2) dbinom(y, 1, inverse(eta), log = TRUE)
exponential_of <- function(power, rate = 1) {   # exponential(rate) of h^power, on the scale of log h
  function(a) log(rate) - rate * exp(power * a) + power * a + log(abs(power))
}
steps_log_lik <- function(y, eta, h, eta2) {   # sratio(): of three classes
  low <- plogis(-eta, log.p = TRUE)
  past <- plogis(eta, log.p = TRUE)
  t <- log(h[[1]]) - eta
  ifelse(y == 1, low, past + ifelse(y == 2, plogis(t, log.p = TRUE), plogis(-t, log.p = TRUE)))
}
back_log_lik <- function(y, eta, h, eta2) {   # cratio(): passing step j has probability G(eta - threshold)
  t <- eta - log(h[[1]])
  ifelse(y == 1, plogis(-eta, log.p = TRUE),
         plogis(eta, log.p = TRUE) + ifelse(y == 2, plogis(-t, log.p = TRUE), plogis(t, log.p = TRUE)))
}
zeros_log_lik <- function(zero, density) function(y, eta, h, eta2) {
  zi <- plogis(eta2)
  ifelse(y == 0, log(zi + (1 - zi) * zero(exp(eta), h)), log1p(-zi) + density(y, exp(eta), h))
}
hurdle_log_lik <- function(zero, density) function(y, eta, h, eta2) {
  ifelse(y == 0, plogis(eta2, log.p = TRUE), plogis(-eta2, log.p = TRUE) + density(y, exp(eta), h) - log1p(-zero(exp(eta), h)))
}
poisson_zero <- function(mu, h) exp(-mu)
poisson_density <- function(y, mu, h) dpois(y, mu, log = TRUE)
negbin_zero <- function(mu, h) exp(-h[[1]] * log1p(mu / h[[1]]))
negbin_density <- function(y, mu, h) dnbinom(y, size = h[[1]], mu = mu, log = TRUE)
beta_density <- function(y, eta, phi) dbeta(y, phi * plogis(eta), phi * plogis(-eta), log = TRUE)
beta_binomial_density <- function(k, eta, phi) {
  lchoose(6, k) + lbeta(k + phi * plogis(eta), 6 - k + phi * plogis(-eta)) - lbeta(phi * plogis(eta), phi * plogis(-eta))
}
root <- exponential_of(-1 / 2)

# response, family, log density, log priors of log parameters (given the responses), start of these, formula of the second part
cases <- list(
  binomial = list("hit", quote(binomial()), binomial_by(plogis)),
  probit = list("hit", quote(binomial("probit")), binomial_by(pnorm)),
  cloglog = list("hit", quote(binomial("cloglog")), binomial_by(function(eta) -expm1(-exp(eta)))),
  cauchit = list("hit", quote(binomial("cauchit")), binomial_by(pcauchy)),
  poisson = list("count", quote(poisson()), function(y, eta, h, eta2) dpois(y, exp(eta), log = TRUE)),
  neg_binomial_2 = list("count", quote(neg_binomial_2()), function(y, eta, h, eta2) negbin_density(y, exp(eta), h), list(root), 0.7),
  truncated_poisson = list("seen", quote(truncated_poisson()), function(y, eta, h, eta2) {
    dpois(y, exp(eta), log = TRUE) - log(-expm1(-exp(eta)))
  }),
  truncated_negbinomial = list("seen", quote(truncated_negbinomial()), function(y, eta, h, eta2) {
    negbin_density(y, exp(eta), h) - log1p(-negbin_zero(exp(eta), h))
  }, list(root), 0.7),
  Gamma = list("size", quote(Gamma("log")), function(y, eta, h, eta2) dgamma(y, h[[1]], h[[1]] * exp(-eta), log = TRUE), list(root), 1),
  inverse.gaussian = list("size", quote(inverse.gaussian("log")), function(y, eta, h, eta2) {
    0.5 * log(h[[1]] / (2 * pi * y^3)) - h[[1]] * (y * exp(-eta) - 1)^2 / (2 * y)
  }, list(function(a, y) exponential_of(-1 / 2, sqrt(mean(y)))(a)), 1),
  weibull = list("size", quote(weibull()), function(y, eta, h, eta2) {
    dweibull(y, h[[1]], exp(eta) / gamma(1 + 1 / h[[1]]), log = TRUE)
  }, list(exponential_of(-1)), 0.5),
  lognormal = list("size", quote(elvi::lognormal()), function(y, eta, h, eta2) dlnorm(y, eta - h[[1]]^2 / 2, h[[1]], log = TRUE),
                   list(exponential_of(1)), -0.5),
  robust = list("number", quote(robust()), function(y, eta, h, eta2) dt((y - eta) / h[[1]], 4, log = TRUE) - log(h[[1]]),
                list(function(a, y) exponential_of(1, 1 / sd(y))(a)), -0.7),
  student = list("number", quote(student()), function(y, eta, h, eta2) dt((y - eta) / h[[1]], h[[2]], log = TRUE) - log(h[[1]]),
                 list(function(a, y) exponential_of(1, 1 / sd(y))(a), function(a) dgamma(exp(a), 2, 0.1, log = TRUE) + a), c(-0.7, 2)),
  Beta = list("share", quote(Beta()), function(y, eta, h, eta2) beta_density(y, eta, h[[1]]), list(root), 1.5),
  beta_binomial = list("cbind(hits, 6 - hits)", quote(elvi::beta_binomial()), function(y, eta, h, eta2) {
    beta_binomial_density(y, eta, h[[1]])
  }, list(root), 1.5),
  cumulative = list("class", quote(cumulative()), function(y, eta, h, eta2) {
    log(pmax(plogis(ifelse(y == 3, Inf, ifelse(y == 2, h[[1]], 0)) - eta) - plogis(ifelse(y == 1, -Inf, ifelse(y == 2, 0, h[[1]])) - eta),
             1e-300))
  }, list(exponential_of(1)), 0),
  sratio = list("class", quote(sratio()), steps_log_lik, list(function(a) dnorm(a, 0, 5, log = TRUE)), 0.5),
  cratio = list("class", quote(cratio()), back_log_lik, list(function(a) dnorm(a, 0, 5, log = TRUE)), 0.5),
  acat = list("class", quote(acat()), function(y, eta, h, eta2) {
    second <- 2 * eta - log(h[[1]])
    ifelse(y == 1, 0, ifelse(y == 2, eta, second)) - log1p(exp(eta) + exp(second))
  }, list(function(a) dnorm(a, 0, 5, log = TRUE)), 0.5),
  zero_inflated_poisson = list("zeros", quote(zero_inflated_poisson()), zeros_log_lik(poisson_zero, poisson_density), NULL, NULL, ~ z),
  zero_inflated_negbinomial = list("zeros", quote(zero_inflated_negbinomial()), zeros_log_lik(negbin_zero, negbin_density), list(root), 1,
                                   ~ z),
  hurdle_poisson = list("zeros", quote(hurdle_poisson()), hurdle_log_lik(poisson_zero, poisson_density), NULL, NULL, ~ z),
  hurdle_negbinomial = list("zeros", quote(hurdle_negbinomial()), hurdle_log_lik(negbin_zero, negbin_density), list(root), 1, ~ z),
  "gaussian, dispformula" = list("number", quote(gaussian()), function(y, eta, h, eta2) dnorm(y, eta, exp(eta2), log = TRUE), NULL, NULL,
                                 ~ z),
  "Gamma, dispformula" = list("size", quote(Gamma("log")), function(y, eta, h, eta2) {
    dgamma(y, exp(eta2), exp(eta2 - eta), log = TRUE)
  }, NULL, NULL, ~ z),
  "neg_binomial_2, dispformula" = list("count", quote(neg_binomial_2()), function(y, eta, h, eta2) {
    dnbinom(y, size = exp(eta2), mu = exp(eta), log = TRUE)
  }, NULL, NULL, ~ z),
  "Beta, dispformula" = list("share", quote(Beta()), function(y, eta, h, eta2) beta_density(y, eta, exp(eta2)), NULL, NULL, ~ z),
  "beta_binomial, dispformula" = list("cbind(hits, 6 - hits)", quote(elvi::beta_binomial()), function(y, eta, h, eta2) {
    beta_binomial_density(y, eta, exp(eta2))
  }, NULL, NULL, ~ z))

call_of <- function(case, d) {
  out <- list(as.formula(paste(case[[1]], "~ x + (1 | g)")), data = d, family = eval(case[[2]]))
  second <- if (length(case) > 5L) case[[6]]
  if (!is.null(second)) out[[if (grepl("^zeros", case[[1]])) "ziformula" else "dispformula"]] <- second
  out
}

# ---- the posterior, with elvi()'s priors ----------------------------------------------------------------------------

# function(v): log densities at the columns of v; rows of v are coefficients of centred predictors, log sd of the groups, their
# effects over it, and log parameters
log_posterior <- function(case, d) {
  problem <- do.call(elvi_problem, call_of(case, d))
  rows <- problem$rows
  p <- ncol(rows$X)
  X <- sweep(as.matrix(rows$X), 2L, if (is.null(rows$shift)) numeric(p) else rows$shift)
  second <- if (is.null(problem$lines)) rep(FALSE, p) else problem$lines$of[seq_len(p)] == 2L
  joint <- problem$priors$joint
  J <- nlevels(d$g)
  g <- as.integer(d$g)
  y <- switch(case[[1]], class = as.integer(d$class), "cbind(hits, 6 - hits)" = d$hits, d[[case[[1]]]])
  priors <- if (length(case) > 3L) case[[4]]
  list(p = p, J = J, shift = if (is.null(rows$shift)) numeric(p) else rows$shift, second = second,
       start = c(joint$location, -1, numeric(J), if (length(priors)) case[[5]]),
       at = function(v) {
         b <- v[seq_len(p), , drop = FALSE]
         log_sd <- v[p + 1L, ]
         effects <- v[p + 1L + seq_len(J), , drop = FALSE]
         a <- v[-seq_len(p + 1L + J), , drop = FALSE]
         eta <- X[, !second, drop = FALSE] %*% b[!second, , drop = FALSE] + (effects * rep(exp(log_sd), each = J))[g, ]
         eta2 <- if (any(second)) X[, second, drop = FALSE] %*% b[second, , drop = FALSE]
         h <- lapply(seq_len(nrow(a)), function(k) matrix(rep(exp(a[k, ]), each = length(y)), length(y)))
         out <- colSums(case[[3]](matrix(y, length(y), ncol(v)), eta, h, eta2))
         out <- out + colSums(dnorm(b, joint$location, joint$scale, log = TRUE)) +
           dexp(exp(log_sd), 1, log = TRUE) + log_sd + colSums(dnorm(effects, log = TRUE))
         for (k in seq_along(priors)) {
           out <- out + if (length(formals(priors[[k]])) > 1L) priors[[k]](a[k, ], y) else priors[[k]](a[k, ])
         }
         replace(out, !is.finite(out), -Inf)
       })
}

# ---- references ---------------------------------------------------------------------------------------------------------

# coefficients of predictors that are not centred, sd of the groups, effects, log parameters
reference <- function(case, d) {
  target <- log_posterior(case, d)
  v <- run_chains(target, rounds = rounds)
  p <- target$p
  for (part in list(which(!target$second), which(target$second))) {
    for (j in part[-1L]) v[part[1L], , ] <- v[part[1L], , ] - v[j, , ] * target$shift[j]
  }
  v[p + 1L, , ] <- exp(v[p + 1L, , ])
  for (j in seq_len(target$J)) v[p + 1L + j, , ] <- v[p + 1L + j, , ] * v[p + 1L, , ]
  mean <- apply(v, 1L, mean)
  sd <- apply(v, 1L, sd)
  chain <- apply(v, c(1L, 2L), mean)   # chains of the same half are independent but for the differences they took
  list(mean = mean, sd = sd, se = max(apply(chain, 1L, sd) / sqrt(ncol(chain)) / sd))
}

# ---- the comparison -----------------------------------------------------------------------------------------------------

# as reference() has them; thresholds are what the logarithms above stand for
estimates <- function(fit, p) {
  table <- summary(fit)$table
  own <- setdiff(rownames(table)[-seq_len(p)], "sd(g:(Intercept))")
  drawn <- if (length(own)) as.matrix(fit, draws = 20000L)[, own, drop = FALSE]
  if (length(own) && !fit$family$family %in% c("sratio", "cratio", "acat")) drawn <- log(drawn)
  effects <- ranef(fit)$g
  sd_row <- table["sd(g:(Intercept))", ]
  list(mean = c(table[seq_len(p), "mean"], sd_row[["mean"]], effects[, 1], if (length(own)) colMeans(drawn)),
       sd = c(table[seq_len(p), "sd"], sd_row[["sd"]], attr(effects, "sd")[, 1], if (length(own)) apply(drawn, 2L, sd)))
}

run <- function(name, data) {
  case <- cases[[name]]
  d <- if (data == 1L) made(40L, 8L, 28) else made(120L, 12L, 5)
  known <- if (file.exists(stored)) readRDS(stored) else list()
  label <- paste(name, data, rounds)
  if (is.null(known[[label]])) {
    known[[label]] <- reference(case, d)
    saveRDS(known, stored)
  }
  true <- known[[label]]
  time <- system.time(fit <- suppressWarnings(do.call(elvi, call_of(case, d))))
  J <- nlevels(d$g)
  p <- length(true$mean) - 1L - J - length(if (length(case) > 4L) case[[5]])
  own <- estimates(fit, p)
  kind <- rep(c("coefficients", "sd", "effects", "parameters"), c(p, 1L, J, length(true$mean) - p - 1L - J))
  off <- abs(own$mean - true$mean) / true$sd
  ratio <- 100 * abs(own$sd / true$sd - 1)
  each <- vapply(c("coefficients", "sd", "effects", "parameters"), function(which) {
    if (any(kind == which)) sprintf("%s %.3f sd %.1f %%", which, max(off[kind == which]), max(ratio[kind == which])) else ""
  }, "")
  cat(sprintf("%-28s %d  %s (se %.3f), %.2f s\n", name, data, paste(each[nzchar(each)], collapse = ", "), true$se, sum(time[1:2])))
}

cpu <- function(run, repeats = 3L) {
  run()   # once to load and to compile
  median(replicate(repeats, sum(system.time(suppressWarnings(run()))[1:2])))
}

run_times <- function() {
  wine <- ordinal::wine
  salamanders <- glmmTMB::Salamanders
  set.seed(1)
  d <- data.frame(x = rnorm(400), g = factor(rep(1:20, 20)))
  m <- plogis(0.3 + 0.6 * d$x + rnorm(20, 0, 0.5)[d$g])
  d$share <- rbeta(400, 8 * m, 8 * (1 - m))
  count <- count ~ mined + (1 | site)
  share <- share ~ x + (1 | g)
  show <- function(label, own, peer) {
    times <- c(cpu(own), cpu(peer))
    cat(sprintf("%-40s %.2f s, peer %.2f s, ratio %.2f\n", label, times[1], times[2], times[1] / times[2]))
  }
  show("cumulative, wine, clmm", function() elvi(rating ~ temp + contact + (1 | judge), wine, family = cumulative()),
       function() ordinal::clmm(rating ~ temp + contact + (1 | judge), data = wine))
  show("zero_inflated_poisson, Salamanders", function() elvi(count, salamanders, ziformula = ~ mined, family = zero_inflated_poisson()),
       function() glmmTMB::glmmTMB(count, salamanders, ziformula = ~ mined, family = poisson()))
  show("neg_binomial_2, Salamanders", function() elvi(count, salamanders, family = neg_binomial_2()),
       function() glmmTMB::glmmTMB(count, salamanders, family = glmmTMB::nbinom2()))
  show("zero_inflated_negbinomial, Salamanders",
       function() elvi(count, salamanders, ziformula = ~ mined, family = zero_inflated_negbinomial()),
       function() glmmTMB::glmmTMB(count, salamanders, ziformula = ~ mined, family = glmmTMB::nbinom2()))
  show("Beta, 400 rows", function() elvi(share, d, family = Beta()),
       function() glmmTMB::glmmTMB(share, d, family = glmmTMB::beta_family()))
  show("Beta with dispformula, 400 rows", function() elvi(share, d, family = Beta(), dispformula = ~ x),
       function() glmmTMB::glmmTMB(share, d, family = glmmTMB::beta_family(), dispformula = ~ x))
}

if (identical(wanted[1L], "times")) {
  run_times()
} else {
  for (name in Filter(function(name) !length(wanted) || grepl(wanted[1L], name), names(cases))) for (data in 1:2) {
    tryCatch(run(name, data), error = function(e) cat(name, data, "failed:", conditionMessage(e), "\n"))
  }
}
