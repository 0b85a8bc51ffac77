# Measures the figures of vignettes/paper.Rmd: three to five minutes each, most of them in
# the projections of the methods that take one gradient a step, too long for a vignette.
# usage: OPENBLAS_NUM_THREADS=1 R_LIBS=build/lib Rscript tools/experiments.R [figure1 ...]
library(elvi)
wanted <- commandArgs(trailingOnly = TRUE)
for (name in if (length(wanted)) wanted else c("figure1", "figure2", "figure3")) {
  measured <- example_experiment(name, seeds = 3)
  saveRDS(measured, file.path("inst", "extdata", paste0(name, ".rds")), version = 2)
  print(measured)
}
