#!/bin/sh
# Several hosts on one machine: network namespaces with an address each, joined by a bridge. A fit on workers of all of them is that of
# memory, and one whose network goes down in the middle of it is done without. Needs Linux, root and package 'iproute2'.
# usage: R_LIBS=build/lib tools/hosts.sh [number of hosts]
set -eu
hosts=${1:-3}
bridge=elvi-br$$
network=10.231.$(( $$ % 250 ))

clean() {
  for k in $(seq "$hosts"); do
    for pid in $(ip netns pids "elvi$$-$k" 2> /dev/null); do kill -9 "$pid" 2> /dev/null || true; done
    ip netns del "elvi$$-$k" 2> /dev/null || true
  done
  ip link del "$bridge" 2> /dev/null || true
}
trap clean EXIT

ip link add "$bridge" type bridge
ip addr add "$network.1/24" dev "$bridge"
ip link set "$bridge" up
for k in $(seq "$hosts"); do
  ip netns add "elvi$$-$k"
  ip link add "ve$$-$k" type veth peer name eth0 netns "elvi$$-$k"
  ip link set "ve$$-$k" master "$bridge" up
  ip -n "elvi$$-$k" addr add "$network.$(( k + 1 ))/24" dev eth0
  ip -n "elvi$$-$k" link set eth0 up
  ip -n "elvi$$-$k" link set lo up
done

ELVI_HOSTS=$hosts ELVI_PREFIX=elvi$$- ELVI_MASTER=$network.1 ELVI_LINK=ve$$- Rscript - <<'END'
library(elvi)
hosts <- as.integer(Sys.getenv("ELVI_HOSTS"))
# "ssh" to a host is a shell in its namespace
shell <- tempfile()
writeLines(c("#!/bin/sh", "while [ \"$1\" = -l ]; do shift 2; done", "host=$1", "shift",
             "exec ip netns exec \"$host\" sh -c \"$*\""), shell)
Sys.chmod(shell, "0755")
cl <- parallel::makePSOCKcluster(paste0(Sys.getenv("ELVI_PREFIX"), seq_len(hosts)), rshcmd = shell, master = Sys.getenv("ELVI_MASTER"),
                                 homogeneous = TRUE)
invisible(parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths()))
set.seed(1)
n <- 20000
data <- data.frame(x = rnorm(n), g = sample(c("a", "b"), n, TRUE))
data$y <- rbinom(n, 1, plogis(data$x / 2 - 1))
load <- function(i) data[seq(i, n, by = 7), ]
environment(load) <- list2env(list(data = data, n = n), parent = globalenv())
source <- rows_cluster(cl, load, 7, timeout = 10)
fit <- elvi(y ~ x + g, source, binomial())
memory <- elvi(y ~ x + g, data, binomial())
off <- max(abs(fit$mu - memory$mu) / sqrt(diag(memory$Sigma)))
cat(sprintf("%d hosts: %.1g sd from memory\n", hosts, off))
stopifnot(off < 1e-6)
# the cable of the first host is pulled
system(paste0("(sleep 0.1; ip link set ", Sys.getenv("ELVI_LINK"), "1 down) &"))
for (again in 1:2) fit2 <- suppressWarnings(elvi(y ~ x + g, source, binomial()))
cat("without the first:", if (identical(fit2$mu, fit$mu)) "the same numbers" else "OTHER NUMBERS", "; alive:", source$state$alive, "\n")
stopifnot(identical(fit2$mu, fit$mu), !source$state$alive[1])
system(paste0("ip link set ", Sys.getenv("ELVI_LINK"), "1 up"))
invisible(socketSelect(list(cl[[1]]$con), timeout = 60))
fit3 <- suppressMessages(elvi(y ~ x + g, source, binomial()))
cat("and again:", if (identical(fit3$mu, fit$mu)) "the same numbers" else "OTHER NUMBERS", "; alive:", source$state$alive, "\n")
stopifnot(identical(fit3$mu, fit$mu))
END
