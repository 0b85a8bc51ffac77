# Every .Call routine once, and a few whole fits, to be run under valgrind (tools/sanitize.sh), which sees the reads of
# uninitialised memory that the address sanitizer does not.

source("tools/boundary.R")

for (name in names(boundary)) {
  # the part of the message that says which call it was, next to valgrind's report
  message(name)
  boundary[[name]]()
}
set.seed(1)
for (kind in kinds) elvi(models$logit, base_laplace(), budget = 60, control = elvi_control(scale = kind))
invisible(elvi(models$functions, tol = 0.5, budget = 500))
invisible(elvi_optimum(models$poisson))
cat(length(boundary), "calls of", length(routines), "routines done\n")
