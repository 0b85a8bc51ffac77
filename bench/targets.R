# Invented targets with known moments, of 1 to 5,000 parameters: elvi's answer, and what it says of it.
#
#   Rscript bench/targets.R [largest dimension] [pattern of names] [seeds, as 1,2] [file for the warnings]
#
# Good is: every known mean within 0.3 sd, every known sd within a factor of 1.5. A fit assures when it converged and its verdict has no
# objection; a false assurance is one of a fit that is not good, a false alarm an objection to one that is. `tol` is 0.1 nats, and that of
# elvi() itself beyond 400 parameters.
suppressMessages(library(elvi))
here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)))
source(file.path(here, "../tests/testthat/helper-wide.R"))
source(file.path(here, "targets-invented.R"))
args <- commandArgs(TRUE)
largest <- if (length(args)) as.numeric(args[1]) else 6000
pattern <- if (length(args) > 1) args[2] else ""
seeds <- as.integer(strsplit(if (length(args) > 2) args[3] else "1", ",")[[1]])
log <- if (length(args) > 3) file(args[4], "w")

run <- function(t, seed) {
  said <- character()
  set.seed(seed)
  time <- system.time(fit <- withCallingHandlers(
    tryCatch(elvi(model_density(t$value, t$gradient, dim = t$dim, names = t$names), tol = if (t$dim <= 400) 0.1), error = identity),
    warning = function(w) {
      said <<- c(said, conditionMessage(w))
      invokeRestart("muffleWarning")
    }, message = function(m) {
      if (length(log)) said <<- c(said, paste("message:", conditionMessage(m)))
      invokeRestart("muffleMessage")
    }))
  cpu <- sum(time[1:2])
  if (inherits(fit, "error")) return(list(failed = TRUE, good = FALSE, assures = FALSE, cpu = cpu, said = conditionMessage(fit)))
  table <- summary(fit)$table
  known <- if (is.null(t$names)) seq_along(t$mean) else t$names[seq_along(t$mean)]
  off <- max(abs(table[known, 1] - t$mean) / t$sd)
  factor <- max(exp(abs(log(table[known, 2] / t$sd))))
  list(failed = FALSE, good = off < 0.3 && factor < 1.5, assures = isTRUE(fit$converged) && !any(!startsWith(said, "message: ")), cpu = cpu,
       off = off, factor = factor, said = c(said, capture.output(print(fit))),
       evaluations = as.numeric(c(fit$account$evaluations, fit$nested$evaluations, fit$state$evals))[1])
}

count <- c(runs = 0, failed = 0, good = 0, "false assurances" = 0, "false alarms" = 0)
cat("| target | d | evaluations | CPU s | mean off, sd | sd off, factor | good | assures | |\n|---|---|---|---|---|---|---|---|---|\n")
for (name in grep(pattern, names(invented), value = TRUE, perl = TRUE)) {
  t <- invented[[name]]()
  if (t$dim > largest) next
  for (seed in seeds) {
    r <- run(t, seed)
    what <- c(TRUE, r$failed, r$good, !r$good && r$assures, r$good && !r$assures)
    count <- count + what
    cat(sprintf("| %s | %d | %s | %.1f | %s | %s | %s | %s | %s |\n", name, as.integer(t$dim),
                if (r$failed) "" else format(r$evaluations, big.mark = ","), r$cpu, if (r$failed) "" else sprintf("%.2f", r$off),
                if (r$failed) "" else sprintf("%.2f", r$factor), if (r$good) "yes" else "no", if (r$assures) "yes" else "no",
                if (r$failed) "FAILED" else if (what[4]) "FALSE ASSURANCE" else if (what[5]) "false alarm" else ""))
    if (length(log)) writeLines(c("", sprintf("=== %s, seed %d", name, seed), r$said), log)
  }
}
cat("\n", paste(count, names(count), collapse = ", "), "\n", sep = "")
