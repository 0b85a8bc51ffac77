# Rows on the workers of an MPI cluster (packages 'snow' and 'Rmpi'): the answer of memory, and a worker that is silent for
# longer than the timeout.
#
#   mpirun -n 3 --oversubscribe $(Rscript -e 'cat(system.file("RMPISNOW", package = "snow"))') --no-echo --no-restore \
#     --file=bench/mpi.R --args [--workers=2] [--rows=20000] [--dry]
#
# for two workers and this process. As root with Open MPI: OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1. Debian: r-cran-rmpi,
# r-cran-snow, openmpi-bin. (With `mpirun -n 1` the workers are spawned and all works as well, but snow::stopCluster() does not return
# then, whatever was done: Open MPI 4.1.4.)

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
options(elvi.threads = 1L)
workers <- option("workers", 2L)
rows <- option("rows", 20000L)

cl <- parallel::makeCluster(workers, type = "MPI")
invisible(parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths()))

make <- function(i, shards) {
  set.seed(1)
  data <- data.frame(a = rnorm(rows), b = runif(rows), g = sample(c("u", "v", "w"), rows, TRUE))
  data$y <- rbinom(rows, 1, plogis(data$a - data$b + (data$g == "v")))
  data$count <- rpois(rows, exp(0.3 * data$a + data$b))
  data$a[7] <- NA
  if (is.null(i)) data else data[seq(i, rows, by = shards), ]
}
loader <- function(shards) {
  load <- function(i) make(i, shards)
  environment(make) <- list2env(list(rows = rows), parent = globalenv())
  environment(load) <- list2env(list(make = make, shards = shards), parent = globalenv())
  load
}
data <- make(NULL, 1)
fits <- list(
  "logistic, exact" = function(data) elvi::elvi(y ~ a * b + g, data = data, family = binomial()),
  "poisson, mpsgd" = function(data) {
    set.seed(3)
    elvi::elvi(count ~ a + b, data = data, family = poisson(), method = "mpsgd", budget = 200, control = elvi::elvi_control(trace_draws = 0))
  })
# of a stochastic run its last step: what it returns may be its start
numbers <- function(fit) if (is.null(fit$last)) stats::coef(fit) else fit$last$mu
for (name in names(fits)) {
  inside <- fits[[name]](data)
  sd <- sqrt(diag(stats::vcov(inside)))
  for (shards in if (name == "poisson, mpsgd") 3L else c(1L, 2L, 3L, 7L)) {
    fit <- fits[[name]](elvi::rows_cluster(cl, loader(shards), shards, timeout = 300))
    off <- max(abs(numbers(fit) - numbers(inside)) / sd)
    record(sprintf("MPI, %d workers, %d shard(s), %s: largest difference from memory, in sds", workers, shards, name),
           format(off, digits = 2), "<= 1e-8", off <= 1e-8)
  }
}

slow <- elvi::rows_cluster(cl, function(i) if (i == 2L) Sys.sleep(6) else data.frame(y = 0:1, x = 1:2), 2L, timeout = 2)
began <- proc.time()[["elapsed"]]
said <- tryCatch(suppressWarnings(elvi::elvi(y ~ x, data = slow, family = binomial())), elvi_error_worker = conditionMessage, error = function(e) "other")
took <- proc.time()[["elapsed"]] - began
record("... workers that are silent for longer than a timeout of 2 s: seconds until the error that names the shards", sprintf("%.1f", took),
       "<= 40", grepl("shard", said) && took <= 40)

# MPI does not end while a message is on its way: what the workers owe is received
for (node in cl) invisible(parallel:::recvResult(node))
snow::stopCluster(cl)
Rmpi::mpi.quit()
