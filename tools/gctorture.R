# Every .Call routine with a garbage collection at every allocation: an object that C does not protect is gone, and the
# result is another or the process ends.

source("tools/boundary.R")

plain <- lapply(boundary, function(call) call())
tortured <- lapply(boundary, function(call) {
  gctorture2(1)
  on.exit(gctorture2(0))
  call()
})
differ <- names(boundary)[!mapply(identical, plain, tortured)]
if (length(differ)) stop("under gctorture these differ: ", toString(differ))
cat(length(boundary), "calls of", length(routines), "routines are the same under gctorture\n")
