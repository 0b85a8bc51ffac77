# Examples, and the tests and vignettes that name a package, on a machine that lacks it: for every suggested package, or
# those named, one at a time. A directory without a namespace in front of the library hides the package, as R CMD check
# does with recommended ones. R CMD check itself with none of them: _R_CHECK_DEPENDS_ONLY_=true make check.
# usage: R_LIBS=build/lib Rscript tools/without.R [package ...]
suggested <- gsub("[[:space:]]|\\(.*?\\)", "", strsplit(read.dcf("DESCRIPTION", "Suggests"), ",")[[1L]])
wanted <- commandArgs(trailingOnly = TRUE)
# tests need testthat, and 'parallel' is R's own
if (!length(wanted)) wanted <- setdiff(suggested, c("parallel", "testthat"))

hide <- function(package) {
  library <- tempfile("without")
  dir.create(file.path(library, package), recursive = TRUE)
  file.copy(system.file("DESCRIPTION", package = package), file.path(library, package))
  library
}

names_it <- function(files, package) {
  Filter(function(file) any(grepl(package, readLines(file, warn = FALSE), fixed = TRUE)), files)
}

# Runs R code where the package is missing; TRUE if it ended well.
runs <- function(code, library, log) {
  file <- tempfile(fileext = ".R")
  writeLines(code, file)
  libraries <- paste(c(library, .libPaths()), collapse = .Platform$path.sep)
  system2(file.path(R.home("bin"), "Rscript"), file, stdout = log, stderr = log,
          env = paste0("R_LIBS=", libraries)) == 0L
}

examples <- "
  library(elvi)
  pages <- tools::Rd_db('elvi')
  code <- tempfile()
  for (name in names(pages)) {
    tools::Rd2ex(pages[[name]], code, commentDontrun = TRUE, commentDonttest = TRUE)
    if (!file.exists(code)) next
    message(name)
    source(code, local = new.env(globalenv()), echo = FALSE)
    unlink(code)
  }"
# in a copy: testthat deletes snapshots of tests that are skipped
copied <- "
  home <- tempfile()
  dir.create(home)
  file.copy('%s', home, recursive = TRUE)
  setwd(home)
"
tests <- paste(sprintf(copied, "tests/testthat"), "
  library(testthat)
  test_dir('testthat', filter = '%s', package = 'elvi', load_package = 'installed', reporter = 'check')")
vignette <- paste(sprintf(copied, "vignettes"), "
  setwd('vignettes')
  knitr::knit('%s', quiet = TRUE)")

bad <- 0L
for (package in wanted) {
  library <- hide(package)
  log <- function(step) file.path("build", sprintf("without-%s-%s.log", package, basename(step)))
  files <- names_it(list.files("tests/testthat", "^test-.*[.]R$", full.names = TRUE), package)
  files <- sub("^test-(.*)[.]R$", "\\1", basename(files))
  pages <- if (package != "knitr") names_it(list.files("vignettes", "[.]Rmd$", full.names = TRUE), package)
  done <- c(examples = runs(examples, library, log("examples")),
            if (length(files)) c(tests = runs(sprintf(tests, sprintf("^(%s)$", paste(files, collapse = "|"))), library, log("tests"))),
            vapply(pages, function(page) runs(sprintf(vignette, basename(page)), library, log(page)), NA))
  bad <- bad + sum(!done)
  cat(sprintf("without %-11s %s\n", package, if (all(done)) "fine" else paste("FAILED:", toString(names(done)[!done]))))
}
quit(status = as.integer(bad > 0L))
