# Speed that was a defect: eight smooths against mgcv, six crossed factors with few rows, a factor level whose responses are all
# 0 (by evaluations of the exact solver), and plot(fit, "sds") against its fit. Ratios are of CPU time in this process.
#
#   Rscript bench/defects.R [--rounds=3] [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
library(elvi)
options(elvi.threads = 1)
rounds <- option("rounds", 3L)
cpu <- function(run) {
  start <- sum(proc.time()[1:2])
  run()
  sum(proc.time()[1:2]) - start
}

set.seed(1)
data <- data.frame(matrix(runif(400 * 8), 400))
data$y <- sin(6 * data$X1) + 2 * data$X2^2 + exp(data$X3) + data$X4 + rnorm(400)
formula <- as.formula(paste("y ~", paste0("s(X", 1:8, ")", collapse = " + ")))
by_mgcv <- function() cpu(function() mgcv::gam(formula, data = data, method = "REML"))
by_elvi <- function() cpu(function() suppressWarnings(elvi(formula, data)))
invisible(by_mgcv())
record_ratio(alternate("8 smooths, 400 rows: elvi / mgcv", by_mgcv, by_elvi, rounds))

set.seed(2)
crossed <- as.data.frame(lapply(1:6, function(i) factor(sample(20, 150, TRUE))))
names(crossed) <- paste0("f", 1:6)
crossed$y <- rpois(150, exp(0.5 + rowSums(sapply(crossed, function(f) rnorm(20, 0, 0.4)[f]))))
formula <- as.formula(paste("y ~ 1 +", paste0("(1 | f", 1:6, ")", collapse = " + ")))
fit <- NULL
spent <- cpu(function() fit <<- elvi(formula, crossed, family = poisson()))
record("6 crossed factors of 20 levels, 150 poisson rows", sprintf("%d nodes, %.0f s of CPU time", nrow(fit$hyper), spent))

for (family in list(binomial(), binomial("probit"), binomial("cloglog"), poisson())) for (sd in c(2.5, 10, 100)) {
  count <- function(zero) {
    set.seed(1)
    g <- factor(sample(6, 300, TRUE))
    x <- rnorm(300)
    eta <- -0.5 + 0.5 * x
    y <- if (family$family == "poisson") rpois(300, exp(eta)) else rbinom(300, 1, family$linkinv(eta))
    y[as.integer(g) > 6 - zero] <- 0
    elvi_optimum(model_glm(model.matrix(~ g + x), y, family, normal(0, sd)))$evaluations
  }
  record(sprintf("%s, prior sd %g: evaluations with 0, 1 and 3 levels of zeros", family$link, sd),
         toString(vapply(c(0, 1, 3), count, 0)), "<= 22", max(count(1), count(3)) <= 22)
}

if (requireNamespace("ggplot2", quietly = TRUE)) {
  grDevices::pdf(NULL)
  by_fit <- function() cpu(function() fit <<- elvi(breaks ~ tension + (1 | wool:tension), data = warpbreaks, family = poisson()))
  by_plot <- function() cpu(function() plot(fit, "sds"))
  by_fit()
  by_plot()
  record_ratio(alternate("plot(fit, \"sds\") / its fit", by_fit, by_plot, rounds))
  grDevices::dev.off()
}
