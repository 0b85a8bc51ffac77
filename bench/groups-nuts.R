# NUTS for the models of bench/groups.R and vignette("groups"), stored as summaries so that nobody has to run it again:
#   nice -n 19 Rscript bench/groups-nuts.R [cbpp verbagg sleepstudy epil grouseticks smooth]
# writes inst/extdata/groups-nuts.csv.xz (one row per parameter, names as in rstanarm) and bench/groups-nuts-seconds.csv.
# Priors are elvi's defaults, but for the sds of sleepstudy and of the smooth, which have those of an earlier version: exponential(1
# / sd(y)) for
# the sd of slopes whatever their unit, and for the sd of the smooth's columns as mgcv scales them. groups.R and vignette("groups")
# give elvi the same.
# exponential(1) on the sd of a scalar term is rstanarm's decov(1, 1, 1, 1). For the gaussian family
# rstanarm measures sds in units of sigma, and its prior of covariance matrices is another one: sleepstudy and the smooth
# are sampled from Stan programs of their own, written below.

suppressPackageStartupMessages({ library(rstanarm); library(lme4) })
data("cbpp", "VerbAgg", "sleepstudy", "grouseticks", package = "lme4")
here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1]))
chosen <- commandArgs(trailingOnly = TRUE)

epil <- transform(MASS::epil, lbase = log(base / 4), lage = log(age))
grouseticks$height <- (grouseticks$HEIGHT - mean(grouseticks$HEIGHT)) / 100

glmer_by_nuts <- function(formula, data, family, iter = 3000) {
  stan_glmer(formula, data = data, family = family, chains = 4, cores = 1, iter = iter, warmup = 1000, refresh = 500,
             seed = 1, prior = normal(0, 2.5, autoscale = TRUE), prior_intercept = normal(0, 2.5, autoscale = TRUE),
             prior_covariance = decov(1, 1, 1, 1))
}

sleepstudy_program <- "
data {
  int n; int J; vector[n] y; vector[n] x; int g[n]; real y_mean; real y_sd; real x_mean; real x_sd;
}
parameters {
  real centred_intercept; real slope; matrix[2, J] z; cholesky_factor_corr[2] L; vector<lower=0>[2] tau; real<lower=0> sigma;
}
transformed parameters {
  matrix[2, J] b = diag_pre_multiply(tau, L) * z;
}
model {
  centred_intercept ~ normal(y_mean, 2.5 * y_sd);
  slope ~ normal(0, 2.5 * y_sd / x_sd);
  tau ~ exponential(1 / y_sd);
  sigma ~ exponential(1 / y_sd);
  L ~ lkj_corr_cholesky(1);
  to_vector(z) ~ std_normal();
  y ~ normal(centred_intercept + slope * (x - x_mean) + to_vector(b[1, g]) + to_vector(b[2, g]) .* x, sigma);
}
generated quantities {
  real intercept = centred_intercept - slope * x_mean;
  real rho = (L * L')[2, 1];
}"

sleepstudy_by_nuts <- function() {
  d <- sleepstudy
  fit <- rstan::stan(model_code = sleepstudy_program, chains = 4, cores = 1, iter = 3000, warmup = 1000, refresh = 500, seed = 1,
                     control = list(adapt_delta = 0.95),
                     data = list(n = nrow(d), J = nlevels(d$Subject), y = d$Reaction, x = d$Days, g = as.integer(d$Subject),
                                 y_mean = mean(d$Reaction), y_sd = sd(d$Reaction), x_mean = mean(d$Days), x_sd = sd(d$Days)))
  x <- rstan::extract(fit, permuted = FALSE)
  pick <- function(name) x[, , name]
  levels <- levels(d$Subject)
  out <- list("(Intercept)" = pick("intercept"), Days = pick("slope"))
  for (j in seq_along(levels)) {
    out[[sprintf("b[(Intercept) Subject:%s]", levels[j])]] <- pick(sprintf("b[1,%d]", j))
    out[[sprintf("b[Days Subject:%s]", levels[j])]] <- pick(sprintf("b[2,%d]", j))
  }
  out$sigma <- pick("sigma")
  out[["sd(Subject:(Intercept))"]] <- pick("tau[1]")
  out[["sd(Subject:Days)"]] <- pick("tau[2]")
  out[["cor(Subject:Days,(Intercept))"]] <- pick("rho")
  out
}

# a penalised spline as mgcv makes it, y centred at nothing: one null-space column x, penalised columns Z
smooth_program <- "
data {
  int n; int q; int m; vector[n] y; vector[n] x; matrix[n, q] Z; vector[m] x_at; matrix[m, q] Z_at; real y_mean; real y_sd;
}
transformed data {
  real x_mean = mean(x);
  real x_sd = sd(x);
}
parameters {
  real centred_intercept; real slope; vector[q] z; real<lower=0> tau; real<lower=0> sigma;
}
model {
  centred_intercept ~ normal(y_mean, 2.5 * y_sd);
  slope ~ normal(0, 2.5 * y_sd / x_sd);
  tau ~ exponential(1 / y_sd);
  sigma ~ exponential(1 / y_sd);
  z ~ std_normal();
  y ~ normal(centred_intercept + slope * (x - x_mean) + Z * (tau * z), sigma);
}
generated quantities {
  real intercept = centred_intercept - slope * x_mean;
  vector[m] fit = intercept + slope * x_at + Z_at * (tau * z);
}"

smooth_by_nuts <- function() {
  d <- MASS::mcycle
  smooth <- mgcv::smoothCon(mgcv::s(times), data = d, absorb.cons = TRUE, scale.penalty = TRUE)[[1]]
  random <- mgcv::smooth2random(smooth, character(), type = 2)
  at <- data.frame(times = seq(5, 55, by = 5))
  basis <- t(t(mgcv::PredictMat(smooth, at) %*% random$trans.U) * random$trans.D)
  Z <- random$rand[[1]]
  fit <- rstan::stan(model_code = smooth_program, chains = 4, cores = 1, iter = 3000, warmup = 1000, refresh = 500, seed = 1,
                     control = list(adapt_delta = 0.95),
                     data = list(n = nrow(d), q = ncol(Z), m = nrow(at), y = d$accel, x = random$Xf[, 1], Z = matrix(Z, nrow(d)),
                                 x_at = basis[, random$pen.ind == 0], Z_at = basis[, random$pen.ind != 0][, random$rind],
                                 y_mean = mean(d$accel), y_sd = sd(d$accel)))
  x <- rstan::extract(fit, permuted = FALSE)
  out <- list("(Intercept)" = x[, , "intercept"], "s(times).fx1" = x[, , "slope"], sigma = x[, , "sigma"],
              "smooth_sd[s(times)]" = x[, , "tau"])
  for (i in seq_len(nrow(at))) out[[sprintf("fit[%g]", at$times[i])]] <- x[, , sprintf("fit[%d]", i)]
  out
}

# Draws of a stan_glmer() as a list of iterations x chains, with sds beside the variances.
glmer_draws <- function(fit) {
  x <- as.array(fit)
  out <- lapply(dimnames(x)$parameters, function(name) x[, , name])
  names(out) <- dimnames(x)$parameters
  for (name in grep("^Sigma\\[", names(out), value = TRUE)) {
    part <- regmatches(name, regexec("^Sigma\\[(.*):([^:]*),([^:]*)\\]$", name))[[1]]
    if (part[3] == part[4]) out[[sprintf("sd(%s:%s)", part[2], part[3])]] <- sqrt(out[[name]])
  }
  out
}

summarised <- function(set, draws) {
  rows <- lapply(names(draws), function(name) {
    d <- draws[[name]]
    q <- quantile(d, c(0.025, 0.5, 0.975), names = FALSE)
    data.frame(set = set, parameter = name, mean = mean(d), sd = sd(d), q2.5 = q[1], q50 = q[2], q97.5 = q[3],
               mcse = posterior::mcse_mean(d), ess = round(posterior::ess_bulk(d)), rhat = posterior::rhat(d))
  })
  out <- do.call(rbind, rows)
  out[-(1:2)] <- lapply(out[-(1:2)], signif, 6)
  out
}

runs <- list(
  cbpp = function() glmer_draws(glmer_by_nuts(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial())),
  sleepstudy = sleepstudy_by_nuts,
  epil = function() glmer_draws(glmer_by_nuts(y ~ lbase * trt + lage + V4 + (1 | subject), epil, poisson())),
  grouseticks = function() glmer_draws(glmer_by_nuts(TICKS ~ YEAR + height + (1 | BROOD) + (1 | LOCATION), grouseticks, poisson())),
  smooth = smooth_by_nuts,
  verbagg = function() glmer_draws(glmer_by_nuts(r2 ~ Anger + Gender + btype + situ + (1 | id) + (1 | item), VerbAgg, binomial(),
                                                 iter = 2000)))

store <- function(file, new) {
  old <- if (file.exists(file)) read.csv(file, check.names = FALSE)
  if (!is.null(old)) old <- old[!old$set %in% new$set, ]
  out <- if (endsWith(file, ".xz")) xzfile(file, "w") else file(file, "w")
  on.exit(close(out))
  write.csv(rbind(old, new), out, row.names = FALSE)
}

dir.create(file.path(here, "..", "inst", "extdata"), showWarnings = FALSE)
for (set in if (length(chosen)) chosen else names(runs)) {
  start <- proc.time()
  draws <- runs[[set]]()
  taken <- sum((proc.time() - start)[1:2])   # CPU
  store(file.path(here, "..", "inst", "extdata", "groups-nuts.csv.xz"), summarised(set, draws))
  store(file.path(here, "groups-nuts-seconds.csv"),
        data.frame(set = set, seconds = round(taken), draws = length(draws[[1]]), date = as.character(Sys.Date())))
  cat(set, "took", round(taken), "s\n")
}
