# The way of a call through elvi: its functions in order of their first call, by file. The installed package is used, the files of R/
# say where functions live. Functions of util-checks.R are left out.
# usage: R_LIBS=build/lib Rscript tools/walk.R 'elvi(case ~ age, data = infert, family = binomial())'

suppressMessages(library(elvi))
namespace <- asNamespace("elvi")
where <- character()
for (file in list.files("R", full.names = TRUE)) {
  for (e in parse(file, keep.source = FALSE)) {
    if (is.call(e) && identical(e[[1L]], quote(`<-`)) && is.name(e[[2L]])) where[[as.character(e[[2L]])]] <- basename(file)
  }
}

seen <- new.env()
seen$names <- character()
note <- function(name) if (isTRUE(seen$on)) seen$names <- c(seen$names, name)
for (name in setdiff(names(where), "%||%")) {
  f <- get0(name, namespace, inherits = FALSE)
  if (!is.function(f)) next
  body(f) <- call("{", as.call(list(note, name)), body(f))
  unlockBinding(name, namespace)
  assign(name, f, namespace)
  if (exists(name, namespace[[".__S3MethodsTable__."]], inherits = FALSE)) assign(name, f, namespace[[".__S3MethodsTable__."]])
}

set.seed(1)
expression <- parse(text = commandArgs(trailingOnly = TRUE)[1L])
seen$on <- TRUE
invisible(suppressMessages(suppressWarnings(eval(expression, new.env(parent = globalenv())))))
seen$on <- FALSE

times <- table(seen$names)
first <- unique(seen$names)
first <- first[where[first] != "util-checks.R"]
runs <- rle(unname(where[first]))
end <- cumsum(runs$lengths)
for (i in seq_along(end)) {
  names <- first[seq(end[i] - runs$lengths[i] + 1L, end[i])]
  cat(sprintf("%s: %s\n", runs$values[i], paste0(names, ifelse(times[names] > 1L, paste0(" x", times[names]), ""), collapse = " ")))
}
cat(sprintf("%d functions in %d files\n", length(first), length(unique(where[first]))))
