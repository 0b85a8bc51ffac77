# Measures the figures of vignettes/paper.Rmd: minutes each, most of them in the projections of
# the methods that take one gradient a step, too long for a vignette. A method in a setting is
# measured at a time and kept in build/experiments, so that a run can be broken off and resumed.
# usage: OPENBLAS_NUM_THREADS=1 R_LIBS=build/lib Rscript tools/experiments.R [figure1 ...]
library(elvi)

parts_of <- function(name, dir = file.path("build", "experiments")) {
  dir.create(dir, FALSE, TRUE)
  takes <- expand.grid(method = c("case1", "case2", "psgd", "psgd_scaled", "tuned"),
                       setting = c("printed", "right", "whitened"), stringsAsFactors = FALSE)
  takes <- takes[takes$method != "tuned" | takes$setting == "whitened", ]
  Map(function(setting, method) {
    file <- file.path(dir, paste0(name, "-", setting, "-", method, ".rds"))
    if (!file.exists(file)) {
      saveRDS(example_experiment(name, seeds = 3, settings = setting, methods = method), file)
    }
    readRDS(file)
  }, takes$setting, takes$method)
}

stack <- function(frames) {
  out <- do.call(rbind, frames)
  rownames(out) <- NULL
  out
}

join <- function(parts) {
  whole <- parts[[1L]]
  whole$data <- stack(lapply(parts, `[[`, "data"))
  whole$numbers$ends <- stack(lapply(parts, function(part) part$numbers$ends))
  whole$seconds <- sum(vapply(parts, `[[`, 0, "seconds"))
  whole
}

wanted <- commandArgs(trailingOnly = TRUE)
for (name in if (length(wanted)) wanted else c("figure1", "figure2", "figure3")) {
  measured <- join(parts_of(name))
  saveRDS(measured, file.path("inst", "extdata", paste0(name, ".rds")), version = 2)
  print(measured)
}
