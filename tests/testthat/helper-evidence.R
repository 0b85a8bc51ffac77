# Log densities and log evidences in plain R, for what elbo() is compared with.

# One response for each family and link, with weights as that family takes them. `log_lik`: of each row by R's own
# densities, at predictors, a dispersion, and weights.
evidence_cases <- function(n = 25) {
  withr_seed(11, {
    x <- rnorm(n)
    eta <- 0.4 + 0.3 * x
    trials <- sample(1:6, n, TRUE)
    status <- rbinom(n, 1, 0.7)
    time <- rweibull(n, 1.5, exp(eta))
    some <- sample(c(1, 2, 0.5, 0), n, TRUE)
    positive <- rgamma(n, 3, 3 / exp(eta))
    inverse <- 1 / rgamma(n, 3, 3)
    share <- rbeta(n, 4, 3)
    counts <- rnbinom(n, mu = exp(eta), size = 2)
    real <- eta + rnorm(n, 0, 0.7)
    hits <- rbinom(n, trials, plogis(eta))
  })
  # rows that count `w` times
  counted <- function(density) function(eta, s, w) ifelse(w > 0, w * density(eta, s), 0)
  binomial_case <- function(link) {
    family <- binomial(link)
    list(family = family, y = hits / trials, weights = trials,
         log_lik = function(eta, s, w) dbinom(hits, trials, family$linkinv(eta), log = TRUE))
  }
  weibull_density <- function(y, eta, shape) {
    scale <- exp(eta) / gamma(1 + 1 / shape)
    ifelse(y$status == 1, dweibull(y$time, shape, scale, log = TRUE), pweibull(y$time, shape, scale, FALSE, TRUE))
  }
  survival_response <- survival::Surv(time, status)
  ended <- list(time = time, status = status)
  gaussian_case <- list(family = gaussian(), y = real, weights = some, log_lik = function(eta, s, w) {
    ifelse(w > 0, dnorm(real, eta, s / sqrt(pmax(w, 1e-300)), log = TRUE), 0)
  })
  gamma_case <- list(family = Gamma("log"), y = positive, weights = some,
                     log_lik = counted(function(eta, s) dgamma(positive, s, s / exp(eta), log = TRUE)))
  cases <- list(
    logit = binomial_case("logit"), probit = binomial_case("probit"), cloglog = binomial_case("cloglog"),
    poisson = list(family = poisson(), y = counts, weights = some,
                   log_lik = counted(function(eta, s) dpois(counts, exp(eta), log = TRUE))),
    truncated = list(family = truncated_poisson(), y = counts + 1, weights = some, log_lik = counted(function(eta, s) {
      dpois(counts + 1, exp(eta), log = TRUE) - ppois(0, exp(eta), lower.tail = FALSE, log.p = TRUE)
    })),
    known = c(gaussian_case, dispersion = 0.6, s = sqrt(0.6)),
    exponential = list(family = "exponential", y = survival_response, weights = some,
                       log_lik = counted(function(eta, s) weibull_density(ended, eta, 1))),
    known_gamma = c(gamma_case, dispersion = 0.3, s = 1 / 0.3),
    gaussian = c(gaussian_case, aux = TRUE), gamma = c(gamma_case, aux = TRUE),
    neg_binomial_2 = list(family = neg_binomial_2(), y = counts, weights = some, aux = TRUE,
                          log_lik = counted(function(eta, s) dnbinom(counts, size = s, mu = exp(eta), log = TRUE))),
    weibull = list(family = weibull(), y = survival_response, weights = some, aux = TRUE,
                   log_lik = counted(function(eta, s) weibull_density(ended, eta, s))),
    robust = list(family = robust(4), y = real, weights = some, aux = TRUE,
                  log_lik = counted(function(eta, s) dt((real - eta) / s, 4, log = TRUE) - log(s))),
    inverse_gaussian = list(family = inverse.gaussian("log"), y = inverse, weights = some, aux = TRUE,
                            log_lik = counted(function(eta, s) {
                              log(s / (2 * pi * inverse^3)) / 2 - s * (inverse - exp(eta))^2 / (2 * exp(2 * eta) * inverse)
                            })),
    beta = list(family = Beta(), y = share, weights = some, aux = TRUE,
                log_lik = counted(function(eta, s) dbeta(share, plogis(eta) * s, plogis(-eta) * s, log = TRUE))))
  lapply(cases, c, list(X = cbind(one = 1, x = x), frequency = rep(c(1, 2, 1.5, 0, 1), length.out = n)))
}

# priors as the package has them, with the same in R's densities; `positive`: of a dispersion
evidence_priors <- list(
  normal = list(prior = normal(0.5, 2), density = function(b) dnorm(b, 0.5, 2, log = TRUE)),
  student = list(prior = student_t(3, 0.2, 1.5), density = function(b) dt((b - 0.2) / 1.5, 3, log = TRUE) - log(1.5)),
  flat = list(prior = flat(), density = function(b) 0 * b))

evidence_positive <- list(
  exponential = list(prior = exponential(0.7), density = function(s) dexp(s, 0.7, log = TRUE)),
  normal = list(prior = normal(1, 2), density = function(s) dnorm(s, 1, 2, log = TRUE) - pnorm(0.5, log.p = TRUE)),
  cauchy = list(prior = cauchy(0, 2), density = function(s) dcauchy(s, 0, 2, log = TRUE) + log(2)),
  flat = list(prior = flat(), density = function(s) 0 * s))

evidence_model <- function(case, prior = "normal", aux = "exponential", X = case$X) {
  suppressWarnings(model_glm(X, case$y, case$family, evidence_priors[[prior]]$prior, case$weights, frequency = case$frequency,
                             dispersion = if (is.null(case$aux)) case$dispersion %||% 1,
                             prior_aux = if (!is.null(case$aux)) evidence_positive[[aux]]$prior))
}

# log p(y, x) of such a model; the last entry of x is the logarithm of the dispersion, if there is one
log_joint <- function(case, x, prior = "normal", aux = "exponential", X = case$X) {
  p <- ncol(X)
  s <- if (is.null(case$aux)) case$s %||% 1 else exp(x[p + 1])
  sum(case$frequency * case$log_lik(drop(X %*% x[seq_len(p)]), s, case$weights)) +
    sum(evidence_priors[[prior]]$density(x[seq_len(p)])) +
    if (is.null(case$aux)) 0 else evidence_positive[[aux]]$density(s) + log(s)
}

# log of the integral of exp(log_density) over one or two numbers, by sums over a grid about its mode
log_integral <- function(log_density, dim, start = numeric(dim), points = 91, reach = 9) {
  found <- stats::optim(start, function(x) -log_density(x), method = "BFGS", hessian = TRUE, control = list(reltol = 1e-12))
  root <- solve(chol(found$hessian))   # upper triangular: V = root root'
  t <- seq(-reach, reach, length.out = points)
  grid <- as.matrix(expand.grid(rep(list(t), dim)))
  values <- apply(found$par + root %*% t(grid), 2, log_density)
  top <- max(values)
  top + log(sum(exp(values - top))) + dim * log(t[2] - t[1]) + determinant(root)$modulus[[1]]
}

# workers that find elvi where this process does
new_evidence_cluster <- function() {
  cl <- parallel::makePSOCKcluster(2)
  parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths())
  cl
}
