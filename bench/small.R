# Small problems: a logistic regression of 200 rows and 8 coefficients from a formula, against glm() and against
# rstanarm's algorithm = "fullrank".
#
#   Rscript bench/small.R [--rounds=5] [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
rounds <- option("rounds", 5L)

first <- seconds(function() library(elvi))
set.seed(1)
data <- data.frame(matrix(rnorm(200 * 7), 200))
data$y <- rbinom(200, 1, plogis(as.matrix(data) %*% rnorm(7, 0, 0.5)))
cold <- seconds(function() elvi(y ~ ., data, family = binomial()))
by_glm <- function() seconds(function() for (i in 1:50) glm(y ~ ., data = data, family = binomial())) / 50
by_elvi <- function() seconds(function() for (i in 1:50) elvi(y ~ ., data = data, family = binomial())) / 50
record_ratio(alternate("200 x 8 logistic: elvi / glm", by_glm, by_elvi, rounds), 5, at_least = FALSE)
record("... the first fit of a session, and loading the package", sprintf("%.0f ms, %.0f ms", 1e3 * cold, 1e3 * first))

if (requireNamespace("rstanarm", quietly = TRUE)) {
  by_rstanarm <- function() seconds(function() {
    suppressWarnings(suppressMessages(capture.output(rstanarm::stan_glm(
      y ~ ., data = data, family = binomial(), algorithm = "fullrank", seed = 1, refresh = 0))))
  })
  invisible(by_rstanarm())
  record_ratio(alternate("200 x 8 logistic: rstanarm fullrank / elvi", by_elvi, by_rstanarm, rounds), 10)
}
