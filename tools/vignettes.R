# Computes what the vignettes show, every experiment with its default arguments, and stores it in
# inst/extdata/experiments. Most of the time goes into the paper's PSGD, which factorises a 200 x 200 matrix several
# times for each of 5000 gradients a run: with the reference BLAS that takes longer than with OpenBLAS. Stan's ADVI needs rstanarm.
# usage: R_LIBS=build/lib tools/blas.sh openblas-pthread Rscript tools/vignettes.R [experiment ...]
# What has been cut goes on where it was: jobs that are done are kept in build/vignettes until the commit changes.
library(elvi)

git <- function(...) paste(system2("git", c(...), stdout = TRUE), collapse = "\n")
changed <- nzchar(git("status", "--porcelain", "--", "R", "src", "inst/experiments"))
commit <- git("rev-parse", "--short", "HEAD")
made <- list(command = "make vignettes", commit = paste0(commit, if (changed) " (changed)"), date = format(Sys.Date()),
             elvi = format(packageVersion("elvi")), R = R.version.string, blas = sub(".*/([^/]+/[^/]+)$", "\\1", extSoftVersion()[["BLAS"]]))

room <- elvi:::load_experiments()
experiments <- room$experiments()
wanted <- commandArgs(trailingOnly = TRUE)
if (!length(wanted)) wanted <- names(experiments)
home <- file.path("inst", "extdata", "experiments")
kept <- file.path("build", "vignettes", commit)
if (changed) unlink(kept, recursive = TRUE)
dir.create(home, recursive = TRUE, showWarnings = FALSE)
dir.create(kept, recursive = TRUE, showWarnings = FALSE)

cpu_seconds <- function() sum(proc.time()[c("user.self", "sys.self")])

# on_cores() with every job's result, and its CPU seconds, on disk. Jobs are known by their place: in which call of this
# experiment, and where in it.
spent <- calls <- 0
plain_on_cores <- room$on_cores
room$on_cores <- function(jobs, f, cores) {
  calls <<- calls + 1
  files <- file.path(kept, sprintf("%s-%d-%d.job", name, calls, seq_along(jobs)))
  out <- plain_on_cores(seq_along(jobs), function(i) {
    if (file.exists(files[i])) return(readRDS(files[i]))
    began <- cpu_seconds()
    done <- list(value = f(jobs[[i]]), seconds = cpu_seconds() - began)
    saveRDS(done, paste0(files[i], ".part"))
    file.rename(paste0(files[i], ".part"), files[i])
    done
  }, cores)
  spent <<- spent + sum(vapply(out, `[[`, 0, "seconds"))
  lapply(out, `[[`, "value")
}

for (name in wanted) {
  experiment <- experiments[[name]]
  takes <- formals(experiment$run)
  several <- "cores" %in% names(takes)
  spent <- calls <- 0
  began <- cpu_seconds()
  # processes change the time it takes, not the result
  result <- elvi:::run_experiment(room, name, if (several) list(cores = min(2L, parallel::detectCores())) else list())
  made$cpu_seconds <- round(if (several) spent else cpu_seconds() - began, 1)
  if (is.function(experiment$shrink)) result <- experiment$shrink(result)
  defaults <- takes[names(takes) != "cores"]
  result$made <- c(made, list(arguments = vapply(defaults, deparse1, "")))
  file <- file.path(home, paste0(name, ".rds"))
  saveRDS(result, file, compress = "xz")
  cat(sprintf("%-14s %5.0f s of CPU time %7.1f kB\n", name, made$cpu_seconds, file.size(file) / 1000))
}
