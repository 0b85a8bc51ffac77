# The output of the chunk of vignette("any-model") that compiles a Stan program, which takes too long for a build:
#
#   R_LIBS=build/lib Rscript tools/any-model.R
#
# runs its lines and stores what they print in inst/extdata/any-model-stan.txt.
suppressMessages({
  library(elvi)
  library(rstan)
})
options(digits = 4, width = 80)
lines <- readLines("vignettes/any-model.Rmd")
begin <- grep("^```\\{r stan,", lines)
chunk <- lines[seq(begin + 1, begin + grep("^```$", lines[-seq_len(begin)])[1] - 1)]
shown <- character()
for (call in parse(text = chunk)) {
  out <- utils::capture.output(result <- withVisible(suppressMessages(eval(call))))   # what rstan says of no chains is left out
  if (result$visible) shown <- c(shown, utils::capture.output(print(result$value)), "")
}
writeLines(utils::head(shown, -1L), "inst/extdata/any-model-stan.txt")
