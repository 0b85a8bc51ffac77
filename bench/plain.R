# Plain regressions against R's own fitting functions: lm(), survreg() and glm(), with the correction to the posterior and without it.
# CPU time of one thread, medians over alternating rounds.
#
#   Rscript bench/plain.R [--rounds=21] [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
suppressPackageStartupMessages({
  library(elvi)
  library(survival)
})
options(elvi.threads = 1)
rounds <- option("rounds", 21L)

logistic <- function(n) {
  set.seed(1)
  data <- data.frame(matrix(rnorm(n * 7), n))
  data$y <- rbinom(n, 1, plogis(as.matrix(data) %*% rnorm(7, 0, 0.5)))
  data
}
few <- logistic(200)
many <- logistic(5000)
patients <- na.omit(lung[c("time", "status", "age", "sex", "ph.ecog")])

# milliseconds of CPU time that each of several calls takes, one round after the other: rounds x calls
cpu_rounds <- function(calls) {
  once <- function(call, times) {
    start <- proc.time()
    for (i in seq_len(times)) eval(call)
    sum((proc.time() - start)[1:2]) / times * 1e3
  }
  for (call in calls) once(call, 3L)   # compiled by now
  times <- vapply(calls, function(call) ceiling(100 / max(once(call, 5L), 0.05)), 0)   # a tenth of a second each
  gc(FALSE)
  t(vapply(seq_len(rounds), function(r) mapply(once, calls, times), numeric(length(calls))))
}

# the ratios of some pairs of calls: list(numerator, denominator, limit)
compare <- function(what, calls, pairs) {
  message(what, " ...")
  spent <- cpu_rounds(calls)
  middle <- apply(spent, 2L, median)
  cat(sprintf("%-12s %8.3f ms\n", names(calls), middle), sep = "")
  for (pair in pairs) {
    each <- quantile(spent[, pair[[1L]]] / spent[, pair[[2L]]], c(0.25, 0.75))
    record_ratio(list(what = sprintf("%s: %s / %s", what, pair[[1L]], pair[[2L]]), ratio = middle[[pair[[1L]]]] / middle[[pair[[2L]]]],
                      low = each[[1L]], high = each[[2L]]), pair[[3L]], at_least = FALSE)
  }
}

compare("mtcars, mpg ~ wt", list(elvi = quote(elvi(mpg ~ wt, data = mtcars)), lm = quote(lm(mpg ~ wt, data = mtcars))),
        list(list("elvi", "lm", 8)))
compare("mtcars, mpg ~ wt + hp",
        list(elvi = quote(elvi(mpg ~ wt + hp, data = mtcars)), lm = quote(lm(mpg ~ wt + hp, data = mtcars))),
        list(list("elvi", "lm", 8)))

for (dist in c("weibull", "exponential")) {
  formula <- Surv(time, status) ~ age + sex + ph.ecog
  calls <- substitute(list(elvi = quote(elvi(formula, data = patients, family = family())),
                           uncorrected = quote(elvi(formula, data = patients, family = family(), correct = FALSE)),
                           survreg = quote(survreg(formula, data = patients, dist = dist))),
                      list(family = as.name(dist)))
  compare(paste("lung,", dist), eval(calls),
          list(list("elvi", "survreg", 8), list("uncorrected", "survreg", 8), list("elvi", "uncorrected", 3)))
}

calls <- list(elvi = quote(elvi(y ~ ., data = few, family = binomial())),
              uncorrected = quote(elvi(y ~ ., data = few, family = binomial(), correct = FALSE)),
              glm = quote(glm(y ~ ., data = few, family = binomial())))
compare("200 x 8 logistic", calls, list(list("elvi", "glm", 3), list("uncorrected", "glm", 3), list("elvi", "uncorrected", 3)))
calls <- lapply(calls, function(call) replace(call, "data", list(quote(many))))
compare("5,000 x 8 logistic, nothing to correct", calls, list(list("uncorrected", "glm", 3), list("elvi", "uncorrected", 1.1)))
