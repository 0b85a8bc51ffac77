# How does the cost of an iteration grow with d, M (rows), N (samples) and K (iterations), and does memory stay flat in N?
#
#   Rscript bench/growth.R [--rounds=3] [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
options(elvi.threads = 1L)
rounds <- option("rounds", 3L)

problem <- function(M, d) {
  set.seed(1)
  elvi::model_glm(matrix(runif(M * d), M), rbinom(M, 1, 0.5), prior = elvi::normal(0, 1 / sqrt(0.1)))
}
run <- function(model, N, K) {
  elvi::elvi(model, schedule = elvi::schedule_custom(1e-6, N, K), control = elvi::elvi_control(
    coordinates = "raw", estimator = "reparam", trace_draws = 0, average = "last"))
}
cost <- function(M = 2000, d = 100, N = 1000, K = 10) {
  model <- problem(M, d)
  start <- seconds(function() run(model, 1, 1), rounds)   # what is not the loop
  seconds(function() run(model, N, K), rounds) - start
}
slope <- function(name, at, expected, ...) {
  message(name, " ...")
  times <- vapply(at, function(v) do.call(cost, c(setNames(list(v), name), list(...))), 0)
  fitted <- coef(lm(log(times) ~ log(at)))[[2]]
  record(sprintf("log-log slope of the time in %s, %g to %g", name, min(at), max(at)), sprintf("%.2f", fitted), expected)
}
slope("d", c(50, 100, 200, 400), "1 (products with X)")
slope("d", c(200, 400, 800), "2 (products with the scale)", M = 20, N = 2000)
slope("d", c(200, 400, 800), "3 (projection)", M = 20, N = 1, K = 30)
slope("M", c(1000, 2000, 4000, 8000), "1")
slope("N", c(500, 1000, 2000, 4000), "1")
slope("K", c(5, 10, 20, 40), "1")

model <- problem(2000, 100)
peak <- vapply(c(1e3, 1e4, 1e5), function(N) peak_megabytes(function() run(model, N, 1)), 0)
record("what a run adds to the memory of a process that has run before, N = 1e3, 1e4, 1e5 (1e5 draws are 80 MB)",
       paste(sprintf("%.1f MB", peak), collapse = ", "), "flat", peak[3] <= peak[1] + 5)
