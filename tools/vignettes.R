# Computes what the vignettes show, every experiment with its default arguments, and stores it in
# inst/extdata/experiments. Takes minutes.
# usage: R_LIBS=build/lib Rscript tools/vignettes.R [experiment ...]
library(elvi)

git <- function(...) paste(system2("git", c(...), stdout = TRUE), collapse = "\n")
changed <- nzchar(git("status", "--porcelain", "--", "R", "src", "inst/experiments"))
made <- list(command = "make vignettes", commit = paste0(git("rev-parse", "--short", "HEAD"), if (changed) " (changed)"),
             date = format(Sys.Date()), elvi = format(packageVersion("elvi")), R = R.version.string)

experiments <- elvi:::load_experiments()$experiments()
wanted <- commandArgs(trailingOnly = TRUE)
if (!length(wanted)) wanted <- names(experiments)
home <- file.path("inst", "extdata", "experiments")
dir.create(home, recursive = TRUE, showWarnings = FALSE)

for (name in wanted) {
  experiment <- experiments[[name]]
  takes <- formals(experiment$run)
  # processes change the time it takes, not the result
  several <- if ("cores" %in% names(takes)) list(cores = min(2L, parallel::detectCores()))
  result <- do.call(example_experiment, c(list(name), several))
  if (is.function(experiment$shrink)) result <- experiment$shrink(result)
  defaults <- takes[names(takes) != "cores"]
  result$made <- c(made, list(arguments = vapply(defaults, deparse1, "")))
  file <- file.path(home, paste0(name, ".rds"))
  saveRDS(result, file, compress = "xz")
  cat(sprintf("%-14s %5.0f s %7.1f kB\n", name, result$seconds, file.size(file) / 1000))
}
