# Do both threads work on small batches? CPU ticks (1/100 s) of each thread over runs with batches of 1, 64 and 128 draws, on
# 200,000 rows x 50 (Linux).
#
#   Rscript bench/ticks.R [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
# a thread that waits must not look busy: OpenMP reads this when it is loaded
if (Sys.getenv("OMP_WAIT_POLICY") != "passive") {
  quit(status = system2(file.path(R.home("bin"), "Rscript"), shQuote(c(script, args)), env = "OMP_WAIT_POLICY=passive"))
}
suppressPackageStartupMessages(library(elvi))
threads <- min(2L, parallel::detectCores())
options(elvi.threads = threads)

# utime + stime of the threads of this process, by their number
ticks <- function() {
  of <- vapply(list.files("/proc/self/task", full.names = TRUE), function(task) {
    fields <- strsplit(sub(".*\\) ", "", readLines(file.path(task, "stat"))), " ")[[1L]]
    sum(as.numeric(fields[12:13]))
  }, 0)
  stats::setNames(of, basename(names(of)))
}

set.seed(1)
n <- 200000
X <- matrix(rnorm(n * 50), n)
model <- model_glm(X, rbinom(n, 1, plogis(X %*% rnorm(50, 0, 0.2))))
run <- function(batch, draws = 256) {
  elvi(model, schedule = schedule_custom(1e-6, batch, iterations = draws / batch), start = list(mu = numeric(50), Sigma = diag(0.01, 50)),
       control = elvi_control(coordinates = "raw", estimator = "reparam", average = "last", trace_draws = 0))
}
invisible(suppressMessages(run(64, 64)))   # the threads are there now
for (batch in c(1, 64, 128)) {
  before <- ticks()
  suppressMessages(run(batch))
  after <- ticks()
  spent <- sort(after - before[names(after)], decreasing = TRUE)
  spent <- spent[spent > 1]
  record(sprintf("200,000 x 50, batch %d: CPU ticks of the threads", batch), paste(spent, collapse = "/"),
         "second >= 0.7 x first", length(spent) >= threads && spent[threads] >= 0.7 * spent[1L])
}
