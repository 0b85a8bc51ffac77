# Does elvi recover posteriors that nobody here wrote? For each case of
# ../shared/oracles: the largest error of a posterior mean, in reference standard
# deviations, the range of the ratios of standard deviations, and Pareto k-hat.
# usage: R_LIBS=build/lib Rscript bench/oracles.R [path to the oracles]
library(elvi)

path <- commandArgs(trailingOnly = TRUE)
path <- if (length(path)) path[1] else "../shared/oracles"
if (!dir.exists(path)) stop("no oracles at ", path)

reference <- function(case) read.csv(file.path(path, case, "ref.csv"))
design <- function(case) {
  d <- read.csv(file.path(path, case, "design.csv"))
  list(y = d$y, X = as.matrix(d[setdiff(names(d), c("y", "trials"))]))
}
logistic <- function(case, prior, family = binomial()) {
  d <- design(case)
  model_glm(d$X, d$y, family = family, prior = prior)
}
linear <- function(case, prior = flat(), prior_aux = flat()) {
  d <- design(case)
  model_glm(d$X, d$y, family = gaussian(), dispersion = NULL, prior = prior, prior_aux = prior_aux)
}
eight_schools <- function() {
  y <- c(28, 8, -3, 7, -1, 1, 18, 12)
  se <- c(15, 10, 16, 11, 9, 11, 10, 18)
  model_density(
    value = function(x) {
      z <- x[1:8]; tau <- exp(x[10])
      sum(z^2) / 2 + sum((y - x[9] - tau * z)^2 / (2 * se^2)) + x[9]^2 / 50 + log1p((tau / 5)^2) - x[10]
    },
    gradient = function(x) {
      z <- x[1:8]; tau <- exp(x[10]); r <- (y - x[9] - tau * z) / se^2
      c(z - tau * r, x[9] / 25 - sum(r), -tau * sum(z * r) + 2 * tau^2 / (25 + tau^2) - 1)
    }, dim = 10)
}
kilpisjarvi_prior <- function() {   # its hyperparameters are in the original data
  text <- paste(readLines(file.path(path, "kilpisjarvi_mod-kilpisjarvi", "data.json"), warn = FALSE), collapse = "")
  get <- function(name) as.numeric(sub(paste0('.*"', name, '"\\s*:\\s*([-0-9.e+]+).*'), "\\1", text))
  normal(c(get("pmualpha"), get("pmubeta")), c(get("psalpha"), get("psbeta")))
}

cases <- list(
  "Rdata-pima_tr" = function(n) logistic(n, normal(0, 1)),
  "Rdata-infert" = function(n) logistic(n, normal(0, sqrt(10))),
  "wells_data-wells_dae_inter_model" = function(n) logistic(n, flat()),
  "GLM_Poisson_Data-GLM_Poisson_model" = function(n) logistic(n, flat(), poisson()),
  "nes1972-nes" = function(n) linear(n),
  "kidiq-kidscore_interaction" = function(n) linear(n, prior_aux = cauchy(0, 2.5)),
  "mesquite-logmesquite" = function(n) linear(n),
  "sblri-blr" = function(n) linear(n, normal(0, 10), normal(0, 10)),
  "kilpisjarvi_mod-kilpisjarvi" = function(n) linear(n, kilpisjarvi_prior()),
  "eight_schools-eight_schools_noncentered" = function(n) eight_schools()
)

rows <- lapply(names(cases), function(name) {
  model <- cases[[name]](name)
  ref <- reference(name)[seq_len(model$dim), ]
  set.seed(1)
  # a generous budget: this asks about the family, not about the optimiser
  fit <- suppressMessages(elvi(model, method = "auto", tol = 0.003, budget = NULL))
  k <- pareto_k(fit, draws = 20000)$k
  ratio <- sqrt(diag(fit$Sigma %*% fit$Sigma)) / ref$sd   # of all parameters: log_sigma too
  data.frame(case = name, method = fit$method, mean_off = max(abs(fit$mu - ref$mean) / ref$sd),
             sd_low = min(ratio), sd_high = max(ratio), k_hat = k)
})
print(format(do.call(rbind, rows), digits = 3), row.names = FALSE)
