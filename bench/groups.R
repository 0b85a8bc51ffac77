# Group-level terms: accuracy against NUTS (stored, see groups-nuts.R) and time against lme4. Needs lme4, MASS, reformulas.
#   Rscript bench/groups.R [--dry] [--rounds=3] [--quick]
# --quick, to see that it runs: small data in place of the large ones, no times that mean anything.
source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
suppressPackageStartupMessages(library(elvi))
options(elvi.threads = 1)
data("cbpp", "VerbAgg", "sleepstudy", "grouseticks", "InstEval", package = "lme4")

epil <- transform(MASS::epil, lbase = log(base / 4), lage = log(age))
grouseticks$height <- (grouseticks$HEIGHT - mean(grouseticks$HEIGHT)) / 100
nuts <- read.csv(system.file("extdata", "groups-nuts.csv.xz", package = "elvi"))
taken <- read.csv(file.path(dirname(script), "groups-nuts-seconds.csv"))
rounds <- option("rounds", 3L)
quick <- "--quick" %in% args
if (quick) args <- c(args, "--dry")   # figures of small data are not for the table

models <- list(
  cbpp = list(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial()),
  verbagg = list(r2 ~ Anger + Gender + btype + situ + (1 | id) + (1 | item), VerbAgg, binomial()),
  # NUTS had one prior for both sds
  sleepstudy = list(Reaction ~ Days + (Days | Subject), sleepstudy, gaussian(), exponential(1 / sd(sleepstudy$Reaction))),
  epil = list(y ~ lbase * trt + lage + V4 + (1 | subject), epil, poisson()),
  grouseticks = list(TICKS ~ YEAR + height + (1 | BROOD) + (1 | LOCATION), grouseticks, poisson()))

# the fourth entry of a model, if there is one, is the prior of its sds
fit_by_elvi <- function(m) {
  suppressWarnings(if (length(m) < 4) elvi(m[[1]], data = m[[2]], family = m[[3]])
                   else elvi(m[[1]], data = m[[2]], family = m[[3]], prior_sd = m[[4]]))
}
fit_by_lme4 <- function(m) {
  if (m[[3]]$family == "gaussian") lme4::lmer(m[[1]], m[[2]]) else lme4::glmer(m[[1]], m[[2]], family = m[[3]])
}

# ---- accuracy ------------------------------------------------------------------------------------------

for (set in intersect(if (quick) "cbpp" else names(models), nuts$set)) {
  fit <- fit_by_elvi(models[[set]])
  n <- nuts[nuts$set == set & nuts$parameter %in% names(fit$mu), ]
  effects <- grepl("^b\\[", n$parameter)
  off <- abs(fit$mu[n$parameter] - n$mean) / n$sd
  ratio <- fit$sd[n$parameter] / n$sd
  noise <- max((n$mcse / n$sd)[!effects])
  record(sprintf("%s: coefficients, sds and correlations: largest shift of a mean in sds (NUTS's own error %.2f)", set, noise),
         sprintf("%.3f", max(off[!effects])), "<= 0.1", max(off[!effects]) <= 0.1)
  record(sprintf("%s: ... sds as ratios to NUTS's", set), sprintf("%.3f-%.3f", min(ratio[!effects]), max(ratio[!effects])), "within 5 %",
         max(abs(ratio[!effects] - 1)) <= 0.05)
  record(sprintf("%s: effects: largest shift in sds, ratios of sds", set),
         sprintf("%.3f, %.3f-%.3f", max(off[effects]), min(ratio[effects]), max(ratio[effects])), "0.1, 10 %",
         max(off[effects]) <= 0.1 && max(abs(ratio[effects] - 1)) <= 0.1)
  record(sprintf("%s: worst certificate in nats, movement against the smaller rule in sds", set),
         sprintf("%.1e, %.3f", max(fit$nested$certificates), max(unlist(fit$nested$change))),
         "<= 1e-6", all(fit$nested$certificates <= 1e-6))
}

# ---- time ----------------------------------------------------------------------------------------------

against_lme4 <- function(what, m, target, rounds) {
  r <- alternate(what, function() seconds(function() fit_by_lme4(m)), function() seconds(function() fit_by_elvi(m)), rounds)
  record_ratio(r, target, at_least = FALSE)
  invisible(r)
}
invisible(fit_by_lme4(models$cbpp))   # loads lme4
against_lme4("cbpp: elvi / glmer, time", models$cbpp, 3, rounds)
if (quick) models$verbagg[[2]] <- droplevels(VerbAgg[VerbAgg$id %in% 1:40, ])
against_lme4("VerbAgg: elvi / glmer, time", models$verbagg, 1, 1)
if ("verbagg" %in% taken$set) {   # CPU against CPU: NUTS was run on a busy machine
  mine <- sum(system.time(fit_by_elvi(models$verbagg))[1:2])
  ratio <- taken$seconds[taken$set == "verbagg"] / mine
  record("VerbAgg: stan_glmer (stored, 4 chains) / elvi, CPU seconds", sprintf("%.0f", ratio), ">= 100", ratio >= 100)
}

# 50,000 rows in 2,000 groups: coverage of the truth
set.seed(1)
n <- if (quick) 5000 else 50000
J <- n / 25
g <- sample(J, n, replace = TRUE)
x <- rnorm(n)
u <- rnorm(J, 0, 0.8)
simulated <- data.frame(y = rbinom(n, 1, plogis(-0.5 + 0.7 * x + u[g])), x = x, g = g)
large <- list(y ~ x + (1 | g), simulated, binomial())
against_lme4("50,000 x 2,000 groups: elvi / glmer, time", large, 1, 1)
fit <- fit_by_elvi(large)
limits <- confint(fit)
truth <- c(-0.5, 0.7, 0.8)
record("50,000 x 2,000 groups: truth of coefficients and sd in their 95 % intervals", sprintf("%d of 3", sum(limits[, 1] < truth & truth < limits[, 2])),
       "3", all(limits[, 1] < truth & truth < limits[, 2]))
effects <- confint(fit, sprintf("b[(Intercept) g:%s]", rownames(ranef(fit)$g)))
covered <- mean(effects[, 1] < u[as.integer(rownames(ranef(fit)$g))] & u[as.integer(rownames(ranef(fit)$g))] < effects[, 2])
record("50,000 x 2,000 groups: coverage of 95 % intervals of the effects", sprintf("%.3f", covered), "0.935-0.965", covered > 0.935 && covered < 0.965)

against_lme4("InstEval (73,421 rows, crossed): elvi / lmer, time", list(y ~ service + (1 | s) + (1 | d), if (quick) InstEval[1:3000, ] else InstEval, gaussian()), 3, 1)

# 100,000 groups of two counts: where the answer is, and that it does not move
n <- if (quick) 4000 else 200000
u <- rnorm(n / 2, 0, 0.5)
x <- rnorm(n)
many <- data.frame(y = rpois(n, exp(0.2 + 0.3 * x + rep(u, 2))), x, g = rep(seq_len(n / 2), 2))
taken_by_many <- seconds(function() fit <<- fit_by_elvi(list(y ~ x + (1 | g), many, poisson())))
limits <- confint(fit)
truth <- c(0.2, 0.3, 0.5)
record("poisson, 100,000 groups of two rows: truth in 95 % intervals, movement against the smaller rule in sds, seconds",
       sprintf("%d of 3, %.4f, %.0f", sum(limits[, 1] < truth & truth < limits[, 2]), max(unlist(fit$nested$change)), taken_by_many),
       "<= 0.05 sd", max(unlist(fit$nested$change)) <= 0.05)

# ---- memory ---------------------------------------------------------------------------------------------

# what R holds at most during a fit beyond what it held before, in MB
peak_of <- function(n, J = 1000) {
  g <- sample(J, n, replace = TRUE)
  x <- rnorm(n)
  data <- data.frame(y = rbinom(n, 1, plogis(0.5 * x + rnorm(J, 0, 0.7)[g])), x = x, g = g)
  before <- sum(gc(reset = TRUE)[, 2])
  invisible(elvi(y ~ x + (1 | g), data, family = binomial()))
  sum(gc()[, 6]) - before
}
invisible(peak_of(2000, 100))   # loads packages
rows <- if (quick) c(1e3, 1e4, 1e5) else c(1e4, 1e5, 1e6)
peaks <- vapply(rows, peak_of, 0)
record(sprintf("memory of a logistic fit with 1,000 groups and %s rows, MB", toString(format(rows, trim = TRUE))), paste(round(peaks), collapse = ", "),
       "linear: x 10 or less", peaks[3] / peaks[2] <= 10.5)
