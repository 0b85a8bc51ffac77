# Every .Call routine with a garbage collection at every allocation: an object that C does not protect is gone, and the
# result is another or the process ends. In as many forked processes as there are cores: one that ends leaves no result.

source("tools/boundary.R")

plain <- lapply(boundary, function(call) call())
tortured <- parallel::mclapply(boundary, function(call) {
  gctorture2(1)
  on.exit(gctorture2(0))
  list(call())
}, mc.cores = parallel::detectCores())
differ <- names(boundary)[!mapply(function(a, b) identical(list(a), b), plain, tortured)]
if (length(differ)) stop("under gctorture these differ: ", toString(differ))
cat(length(boundary), "calls of", length(routines), "routines are the same under gctorture\n")
