# Lines of R/ and src/ that `make test` runs, file by file, least covered first; build/coverage.txt has the lines that it
# does not. Of processes those count that end by themselves, not those that a test kills.
# R's compiler, which would look at all of elvi anew here, swallows a time limit that falls into it: it is switched off.
# usage: Rscript tools/coverage.R elvi_x.y.z.tar.gz [regular expression that a file of tests must match]
tarball <- commandArgs(trailingOnly = TRUE)[1L]
source_dir <- file.path("build", "coverage")   # what is compiled there leaves src/ alone
unlink(source_dir, recursive = TRUE)
utils::untar(tarball, exdir = source_dir)
sources <- file.path(normalizePath(source_dir), "elvi", "R")
more <- sub("SOURCES", sources, readLines("tools/coverage-records.R"), fixed = TRUE)
writeLines(more, file.path(sources, "zzz_records.R"))   # after zzz.R
run_tests <- c("Sys.unsetenv(c('R_TESTS', 'R_DEFAULT_PACKAGES'))", "Sys.setenv(R_ENABLE_JIT = 0, ELVI_FILES_PER_PROCESS = 4)",
               sprintf("setwd('%s')", getwd()),
               sprintf("system(\"Rscript tools/run-tests.R '%s' > build/coverage.log 2>&1\")", c(commandArgs(trailingOnly = TRUE), "")[2L]))
coverage <- covr::package_coverage(file.path(source_dir, "elvi"), type = "none", code = run_tests, quiet = FALSE)
saveRDS(coverage, file.path("build", "coverage.rds"))

lines <- covr::tally_coverage(coverage, by = "line")
by_file <- aggregate(cbind(lines = 1, covered = value > 0) ~ filename, lines, sum)
by_file$percent <- round(100 * by_file$covered / by_file$lines, 1)
print(by_file[order(by_file$percent), ], row.names = FALSE)
by_file$kind <- ifelse(startsWith(by_file$filename, "src"), "C", "R")
total <- aggregate(cbind(lines, covered) ~ kind, by_file, sum)
cat(sprintf("%s: %.1f %% of %d lines\n", total$kind, 100 * total$covered / total$lines, total$lines), sep = "")

missed <- lines[lines$value == 0, ]
missed <- missed[order(missed$filename, missed$line), ]
text <- Map(function(name, line) readLines(file.path(source_dir, "elvi", name))[line], missed$filename, missed$line)
writeLines(sprintf("%s:%d: %s", missed$filename, missed$line, text), file.path("build", "coverage.txt"))
