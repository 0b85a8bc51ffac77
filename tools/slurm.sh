#!/bin/sh
# The recipes of vignette("large-data") for Slurm and Kubernetes on one machine: a stand-in for sbatch starts each job after some seconds, as
# a queue does, and daemons dial in to a port as pods do. Needs package 'mirai'.
# usage: R_LIBS=build/lib tools/slurm.sh
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# sbatch reads the job from its standard input and returns at once
cat > "$folder/sbatch" <<'END'
#!/bin/sh
job=$(mktemp "$ELVI_JOBS/job.XXXXXX")
cat > "$job"
grep -q '^#SBATCH --mem' "$job" || { echo "no #SBATCH lines" >&2; exit 1; }
(sleep 2; sh "$job" > "$job.out" 2>&1) < /dev/null > /dev/null 2>&1 &
echo "Submitted batch job $$"
END
chmod +x "$folder/sbatch"

ELVI_JOBS=$folder PATH=$folder:$PATH Rscript - <<'END'
library(elvi)
library(mirai)
set.seed(1)
n <- 20000
data <- data.frame(x = rnorm(n), g = sample(c("a", "b"), n, TRUE))
data$y <- rbinom(n, 1, plogis(data$x / 2 - 1))
load <- function(i) data[seq(i, n, by = 7), ]
environment(load) <- list2env(list(data = data, n = n), parent = globalenv())
memory <- elvi(y ~ x + g, data, binomial(), correct = FALSE)
compare <- function(what, workers) {
  fit <- elvi(y ~ x + g, rows_cluster(workers, load, 7, timeout = 120), binomial(), correct = FALSE)
  off <- max(abs(fit$mu - memory$mu) / sqrt(diag(memory$Sigma)))
  cat(sprintf("%s: %.1g sd from memory\n", what, off))
  stopifnot(off < 1e-6)
  for (one in workers) stop_cluster(one)
}
slurm <- cluster_config(command = "sbatch", options = "#SBATCH --mem=8G\n#SBATCH --time=04:00:00", rscript = "Rscript")
workers <- lapply(1:3, function(k) make_cluster(1, url = "tcp://127.0.0.1:0", remote = slurm))
compare("3 jobs of sbatch", workers)
stopifnot(length(list.files(Sys.getenv("ELVI_JOBS"), "^job[.][^.]*$")) == 3)
# daemons dial in, one to each port; the second comes late
pod <- function(port, after) {
  code <- sprintf("Sys.sleep(%d); mirai::daemon('tcp://127.0.0.1:%d', dispatcher = FALSE, cleanup = FALSE)", after, port)
  system2("Rscript", c("-e", shQuote(code)), wait = FALSE, stdout = FALSE, stderr = FALSE)
}
ports <- 20000L + sample.int(20000L, 2L)
workers <- lapply(ports, function(port) make_cluster(1, url = sprintf("tcp://127.0.0.1:%d", port)))
for (k in 1:2) pod(ports[k], 3 * (k - 1))
compare("2 daemons that dial in", workers)
END
