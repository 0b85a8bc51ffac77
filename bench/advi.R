# Stan's ADVI (meanfield and fullrank, as rstanarm calls it) and elvi on the same posteriors: how long does each take, and
# how far from the best gaussian is what it returns? The gap is exact: the objective of the returned mean and covariance
# under elvi's quadrature, minus that of the optimum of the same scale (diagonal for meanfield). ADVI returns draws; mean
# and covariance are those of 20,000 of them, which inflates the gap by about (number of parameters) / 20,000 nats.
#
#   Rscript bench/advi.R [--rounds=3] [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
options(elvi.threads = 1L)
rounds <- option("rounds", 3L)
if (!requireNamespace("rstanarm", quietly = TRUE)) stop("this benchmark needs rstanarm (Debian: r-cran-rstanarm)")

set.seed(1)
U <- matrix(runif(300 * 200), 300, 200)
infert_X <- model.matrix(~ age + parity + induced + spontaneous, infert)
pima_X <- model.matrix(~ . - type, MASS::Pima.tr)
standard <- function(X) cbind(1, scale(X[, -1]))
problems <- list(
  "Figure 1 (300 x 200)" = list(X = U, y = rbinom(300, 1, 0.5), sd = 1 / sqrt(0.1)),
  "infert (248 x 5)" = list(X = standard(infert_X), y = infert$case, sd = 2.5),
  "Pima.tr (200 x 8)" = list(X = standard(pima_X), y = as.numeric(MASS::Pima.tr$type) - 1, sd = 2.5))

advi <- function(p, algorithm, seed) {
  data <- data.frame(y = p$y, p$X)
  fit <- tryCatch(suppressWarnings(suppressMessages({
    capture.output(out <- rstanarm::stan_glm(
      y ~ 0 + ., data = data, family = binomial(), prior = rstanarm::normal(0, p$sd, autoscale = FALSE),
      algorithm = algorithm, output_samples = 20000, seed = seed, refresh = 0, importance_resampling = FALSE))
    out
  })), error = function(e) NULL)
  if (is.null(fit)) return(NULL)
  draws <- as.matrix(fit)
  list(mu = colMeans(draws), V = cov(draws))
}
gap_of <- function(model, scale, at, best) {
  Sigma <- if (scale == "diagonal") diag(sqrt(diag(at$V))) else {
    e <- eigen(at$V, symmetric = TRUE)
    e$vectors %*% (sqrt(pmax(e$values, 0)) * t(e$vectors))
  }
  elvi::objective(list(mu = unname(at$mu), Sigma = unname(Sigma)), model)$estimate - best$objective
}
for (name in names(problems)) {
  p <- problems[[name]]
  model <- elvi::model_glm(unname(p$X), p$y, prior = elvi::normal(0, p$sd))
  for (algorithm in c("meanfield", "fullrank")) {
    scale <- if (algorithm == "meanfield") "diagonal" else "symmetric"
    control <- elvi::elvi_control(scale = scale)
    best <- elvi::elvi_optimum(model, scale = scale)
    found <- list()
    by_advi <- function() seconds(function() found$advi <<- advi(p, algorithm, 1))
    exact <- function() seconds(function() found$exact <<- elvi::elvi(model, method = "exact", control = control))
    stochastic <- function() seconds(function() found$mpsgd <<- elvi::elvi(model, budget = 5000, control = control))
    by_advi()
    if (is.null(found$advi)) {
      record(paste0(name, ": ADVI ", algorithm, " / elvi, time"), "ADVI failed: no step size worked")
      exact()
      stochastic()
    } else {
      record_ratio(alternate(paste0(name, ": ADVI ", algorithm, " / elvi exact, time"), exact, by_advi, rounds))
      record_ratio(alternate(paste0(name, ": ADVI ", algorithm, " / elvi mpsgd (5000 gradients), time"), stochastic, by_advi,
                             rounds))
    }
    gap <- c(ADVI = if (is.null(found$advi)) NA else gap_of(model, scale, found$advi, best),
             exact = found$exact$optimum$certificate,
             mpsgd = elvi::objective(found$mpsgd)$estimate - best$objective)
    record(paste0(name, ": gap in nats, ADVI ", algorithm, ", elvi exact (certified), elvi mpsgd"),
           sprintf("%s, %.1e, %.3g", if (is.na(gap[[1]])) "failed" else sprintf("%.3g", gap[[1]]), gap[[2]], gap[[3]]))
  }
}
