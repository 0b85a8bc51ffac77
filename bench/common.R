# What the benchmarks share: one thread unless asked otherwise, timing in alternating rounds, the results table.

args <- commandArgs(trailingOnly = TRUE)
script <- normalizePath(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1]))

# BLAS reads its thread count when it is loaded, which is before this line: start again with the variables set.
with_one_blas_thread <- function() {
  one_thread <- c("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
  if (all(Sys.getenv(one_thread) == "1")) return(invisible())
  quit(status = system2(file.path(R.home("bin"), "Rscript"), shQuote(c(script, args)),
                        env = paste0(one_thread, "=1")))
}

option <- function(name, default) {
  hit <- grep(paste0("^--", name, "="), args, value = TRUE)
  if (length(hit)) as.integer(sub("^[^=]*=", "", hit[1])) else default
}

seconds <- function(run, repeats = 1L) {
  median(vapply(seq_len(repeats), function(i) {
    gc(FALSE)
    start <- Sys.time()
    run()
    as.numeric(difftime(Sys.time(), start, units = "secs"))
  }, 0))
}

# Times of a and b (functions that return seconds) over alternating rounds, and the ratio b / a: of the medians, and
# its range within a round.
alternate <- function(what, a, b, rounds) {
  message(what, " ...")
  times <- vapply(seq_len(rounds), function(i) {
    first <- a()
    c(first, b())
  }, c(0, 0))
  paired <- range(times[2, ] / times[1, ])
  list(what = what, a = median(times[1, ]), b = median(times[2, ]),
       ratio = median(times[2, ]) / median(times[1, ]), low = paired[1], high = paired[2])
}

# What a run adds to the process's resident memory at its peak (Linux).
peak_megabytes <- function(run) {
  field <- function(name) {
    line <- grep(paste0("^", name), readLines("/proc/self/status"), value = TRUE)
    as.numeric(gsub("[^0-9]", "", line)) / 1024
  }
  invisible(gc())
  writeLines("5", "/proc/self/clear_refs")   # the peak starts here
  before <- field("VmRSS")
  run()
  field("VmHWM") - before
}

shared_library <- function(path) if (length(path) && nzchar(path)) basename(path) else "?"

machine <- function() {
  cpu <- sub(".*: ", "", grep("model name", readLines("/proc/cpuinfo"), value = TRUE)[1])
  sprintf("%s x %d, %s, BLAS %s", cpu, parallel::detectCores(), R.version.string,
          shared_library(normalizePath(extSoftVersion()[["BLAS"]])))
}

# The last table of bench/README.md grows by a row for each result; --dry leaves it alone.
record <- function(what, measured, target = "-", met = NA) {
  met <- if (is.na(met)) "-" else if (met) "yes" else "NO"
  cat(sprintf("%-70s %-34s target %-10s %s\n", what, measured, target, met))
  if ("--dry" %in% args) return(invisible())
  readme <- file.path(dirname(script), "README.md")
  commit <- tryCatch(system2("git", c("-C", shQuote(dirname(script)), "rev-parse", "--short", "HEAD"), stdout = TRUE,
                             stderr = FALSE), error = function(e) "?", warning = function(w) "?")
  cat(sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", Sys.Date(), commit, sub("\\.R$", "", basename(script)), what,
              measured, target, met), file = readme, append = TRUE)
}

record_ratio <- function(r, target = NA, at_least = TRUE) {
  met <- if (is.na(target)) NA else if (at_least) r$ratio >= target else r$ratio <= target
  record(r$what, sprintf("%.2f (%.2f-%.2f)", r$ratio, r$low, r$high),
         if (is.na(target)) "-" else paste(if (at_least) ">=" else "<=", target), met)
}

cat("machine:", machine(), "\n")
cat("load before the run:", if (file.exists("/proc/loadavg")) readLines("/proc/loadavg"), "\n")
