# Takes what vignette("trust") shows out of bench/README.md, where results stand with their commands.
# usage: Rscript tools/trust.R          writes inst/extdata/trust.md
#        Rscript tools/trust.R check    says whether it is up to date
shown <- c("Certificates", "The posterior itself", "Calibration", "Calibration of every family", "Posteriors beyond regression",
           "Invented targets", "Platforms")
lines <- readLines("bench/README.md")
heads <- which(startsWith(lines, "## "))
ends <- c(heads[-1L] - 1L, length(lines))
found <- match(paste("##", shown), lines[heads])
if (anyNA(found)) stop("bench/README.md has no section: ", toString(shown[is.na(found)]))
out <- unlist(lapply(found, function(i) lines[heads[i]:ends[i]]))
file <- "inst/extdata/trust.md"
if (!identical(commandArgs(trailingOnly = TRUE), "check")) {
  writeLines(out, file)
} else if (!file.exists(file) || !identical(out, readLines(file))) {
  cat(file, "is not what bench/README.md has: run Rscript tools/trust.R\n")
}
