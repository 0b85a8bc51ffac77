# Runs the files of tests/testthat against the installed elvi, in one process more than there are cores (or in
# TESTTHAT_CPUS), because some wait for others that they start. Each takes the next file when it is done with one: packages
# and helpers are loaded once a process, not once a file. The last line is the tally of test_that() blocks, in which a
# process that dies is one failure. testthat's own parallelism (Config/testthat/parallel) ends the whole run when a process dies, as
# those may that a test interrupts, and does not know which files took longest.
# usage: R_LIBS=build/lib Rscript tools/run-tests.R [regular expression that a file's name must match]

wanted <- c(commandArgs(trailingOnly = TRUE), "")[1L]
files <- sub("^test-(.*)[.]R$", "\\1", list.files("tests/testthat", "^test-.*[.]R$"))
files <- grep(wanted, files, value = TRUE)
if (!length(files)) stop("no file of tests/testthat matches ", wanted)
# The longest files come first, so that no core waits for one at the end: by the CPU time of the last run, which is kept in
# build/, and by their size where there was none.
kept <- "build/test-times.rds"
times <- if (file.exists(kept)) readRDS(kept) else numeric()
sizes <- file.size(file.path("tests/testthat", sprintf("test-%s.R", files)))
expected <- ifelse(files %in% names(times), times[files], sizes / 1000)   # about a second for a kilobyte
files <- files[order(-expected)]
processes <- min(as.integer(Sys.getenv("TESTTHAT_CPUS", parallel::detectCores() + 1L)), length(files))

# A worker takes a file by renaming its entry, which one of them can, and leaves its results in `done`.
queue <- tempfile("elvi-tests-")
for (state in c("todo", "doing", "done")) dir.create(file.path(queue, state), recursive = TRUE)
invisible(file.create(file.path(queue, "todo", sprintf("%03d %s", seq_along(files), files))))
left <- function(state) list.files(file.path(queue, state))

# Threads that wait do so asleep: with more of them than cores, those of OpenMP burn most of the time otherwise.
start <- function() {
  worker <- processx::process$new(file.path(R.home("bin"), "Rscript"), c("tools/test-worker.R", queue), stdout = "|",
                                  stderr = "2>&1", encoding = "UTF-8",
                                  env = c("current", OMP_WAIT_POLICY = Sys.getenv("OMP_WAIT_POLICY", "passive")))
  list(process = worker, lines = character())
}

# What a worker has written is shown when it is done with a file.
show <- function(worker) {
  lines <- c(worker$lines, worker$process$read_output_lines())
  ends <- which(startsWith(lines, "== "))
  if (length(ends)) {
    writeLines(lines[seq_len(max(ends))])
    lines <- lines[-seq_len(max(ends))]
  }
  worker$lines <- lines
  worker
}

died <- 0L
workers <- lapply(seq_len(processes), function(i) start())
while (length(workers)) {
  Sys.sleep(0.2)   # poll() returns at once while a line is half written
  alive <- vapply(workers, function(worker) worker$process$is_alive(), NA)
  workers <- lapply(workers, show)
  for (worker in workers[!alive]) {
    if (identical(worker$process$get_exit_status(), 0L)) next
    writeLines(c(show(worker)$lines, paste("== a process died, in one of:", toString(left("doing")))))
    died <- died + 1L
  }
  missing <- if (length(left("todo"))) min(sum(!alive), length(left("todo"))) else 0L
  workers <- c(workers[alive], lapply(seq_len(missing), function(i) start()))
}

results <- lapply(list.files(file.path(queue, "done"), full.names = TRUE), readRDS)
tests <- do.call(rbind, lapply(results, function(x) x$tests))
spent <- vapply(results, function(x) x$cpu, 0)
names(spent) <- sub("[.]rds$", "", list.files(file.path(queue, "done")))
times[names(spent)] <- spent
dir.create("build", showWarnings = FALSE)
saveRDS(times, kept)
saveRDS(tests, "build/test-results.rds")
slow <- head(tests[order(-tests$user - tests$system), ], 10L)
cat(sprintf("\n%.0f s of CPU in %d files, most of it in\n", sum(spent), length(results)))
where <- function(tests) sprintf("%s: %s\n", sub("^test-(.*)[.]R$", "\\1", tests$file), tests$test)
cat(sprintf("  %5.1f s %s", slow$user + slow$system, where(slow)), sep = "")
failed <- tests$failed > 0 | tests$error
cat(sprintf("failed: %s", where(tests[failed, ])), sep = "")
skipped <- tests$skipped & !failed
cat(sprintf("%d passed, %d failed, %d skipped\n", sum(!failed & !skipped), sum(failed) + died, sum(skipped)))
quit(status = as.integer(any(failed) || died > 0L))
