# Posteriors beyond regression: elvi(model_stan()) against reference draws, next to rstan's two kinds of vb()
# and Laplace's approximation at the mode.
#
#   Rscript bench/posteriors.R <folder of references> [seeds, as 1,2,3] [pattern of cases] [methods]
#
# The folder has one folder a case, <data>-<model>, with data.json and reference.csv; the Stan programs are in
# bench/posteriors. Compiled models are kept in $STAN_CACHE, as compiling takes minutes. Good is: every mean within
# 0.3 reference sd, every sd within a factor of 1.5. A fit assures when it converged and its verdict has no objection.
# elvi's draws are as constrain_draws() gives them, corrected by importance weights; elvi-plain has those of the
# approximation itself, of the same fits.
suppressMessages({
  library(elvi)
  library(rstan)
})
args <- commandArgs(TRUE)
if (!length(args)) stop("name the folder of references, as the first lines of this file say")
folder <- args[1]
seeds <- as.integer(strsplit(if (length(args) > 1) args[2] else "1,2,3", ",")[[1]])
pattern <- if (length(args) > 2) args[3] else ""
methods <- strsplit(if (length(args) > 3) args[4] else "elvi,laplace,meanfield,fullrank", ",")[[1]]
cache <- Sys.getenv("STAN_CACHE", file.path(dirname(tempdir()), "stan-cache"))
programs <- file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))), "posteriors")

compiled <- function(name) {
  kept <- file.path(cache, paste0(name, ".rds"))
  if (!file.exists(kept)) {
    dir.create(cache, showWarnings = FALSE)
    saveRDS(stan_model(file.path(programs, paste0(name, ".stan")), model_name = name), kept)
  }
  readRDS(kept)
}

quietly <- function(expr) {
  utils::capture.output(out <- suppressMessages(suppressWarnings(expr)))
  out
}

errors <- function(draws, reference) {
  reference <- reference[reference$parameter %in% colnames(draws), ]
  draws <- draws[, reference$parameter, drop = FALSE]
  shift <- abs(colMeans(draws) - reference$mean) / reference$sd
  ratio <- apply(draws, 2, sd) / reference$sd
  factor <- pmax(ratio, 1 / ratio)
  list(mean = max(shift), sd = max(factor), worst = reference$parameter[c(which.max(shift), which.max(factor))])
}

by_elvi <- function(case, seed) {
  set.seed(seed)
  said <- character()
  time <- system.time(fit <- withCallingHandlers(elvi(model_stan(case$stanfit), tol = 0.1),
                             warning = function(w) { said <<- c(said, class(w)[1]); invokeRestart("muffleWarning") },
                             message = function(m) invokeRestart("muffleMessage")))
  v <- fit$verdict
  list(time = time, draws = constrain_draws(fit, draws = 4000), plain = constrain_draws(fit, draws = 4000, resample = FALSE),
       assured = isTRUE(fit$converged) && !length(said),
       k = if (is.null(v)) NA else v$k, evaluations = fit$search$account$evaluations + fit$state$evals,
       note = sprintf("ess %.2f shift %.2f ratio %.2f gap %.3f %s", v$ess / v$draws, v$shift, v$ratio, fit$remaining$estimate,
                      paste(sub("elvi_warning_", "", said), collapse = " ")))
}

by_vb <- function(algorithm) function(case, seed) {
  fit <- quietly(vb(case$program, data = case$data, algorithm = algorithm, seed = seed, refresh = 0,
                    output_samples = 4000))
  list(draws = as.matrix(fit))
}

by_laplace <- function(case, seed) {
  fit <- quietly(optimizing(case$program, data = case$data, seed = seed, hessian = TRUE, as_vector = FALSE,
                            draws = 4000, importance_resampling = FALSE))
  if (is.null(fit$theta_tilde) || anyNA(fit$theta_tilde)) stop("no draws")
  list(draws = fit$theta_tilde)
}

doers <- list(elvi = by_elvi, laplace = by_laplace, meanfield = by_vb("meanfield"), fullrank = by_vb("fullrank"))

read_case <- function(name) {
  program <- compiled(sub("^[^-]*-", "", name))
  data <- jsonlite::fromJSON(file.path(folder, name, "data.json"))
  list(name = name, program = program, data = data, stanfit = quietly(sampling(program, data = data, chains = 0)),
       reference = read.csv(file.path(folder, name, "reference.csv")))
}

one <- function(case, method, seed) {
  row <- data.frame(case = sub("^[^-]*-", "", case$name), method = method, seed = seed, mean = NA, sd = NA, k = NA,
                    cpu = NA, evaluations = NA, failed = FALSE, good = FALSE, assured = NA, note = "")
  time <- system.time(out <- tryCatch(doers[[method]](case, seed), error = function(e) conditionMessage(e)))
  time <- if (is.list(out) && !is.null(out$time)) out$time else time   # elvi's without constraining the draws
  row$cpu <- time[["user.self"]] + time[["sys.self"]]
  if (is.character(out)) return(within(row, { failed <- TRUE; note <- substr(out, 1, 60) }))
  e <- errors(out$draws, case$reference)
  row$mean <- e$mean
  row$sd <- e$sd
  row$good <- isTRUE(e$mean < 0.3 && e$sd < 1.5)
  row$k <- if (is.null(out$k)) NA else out$k
  row$assured <- if (is.null(out$assured)) NA else out$assured
  row$evaluations <- if (is.null(out$evaluations)) NA else out$evaluations
  row$note <- paste(c(paste(e$worst, collapse = "/"), out$note), collapse = " ")
  if (is.null(out$plain)) return(row)
  e <- errors(out$plain, case$reference)
  plain <- within(row, { method <- "elvi-plain"; mean <- e$mean; sd <- e$sd; good <- isTRUE(e$mean < 0.3 && e$sd < 1.5) })
  rbind(row, plain)
}

rows <- list()
for (name in grep(pattern, basename(list.dirs(folder, recursive = FALSE)), value = TRUE)) {
  case <- read_case(name)
  for (method in methods) for (seed in seeds) {
    both <- one(case, method, seed)
    rows[[length(rows) + 1]] <- both
    row <- both[1, ]
    cat(sprintf("%-40s %-9s %d mean %6.2f sd %6.2f k %5.2f cpu %5.1f ev %7.0f %s%s %s\n", row$case, method, seed, row$mean,
                row$sd, row$k, row$cpu, row$evaluations, if (row$failed) "FAILED" else if (row$good) "good" else "bad",
                if (is.na(row$assured)) "" else if (row$assured) " assured" else " alarm", row$note))
  }
}
rows <- do.call(rbind, rows)
rows$mean[is.na(rows$mean)] <- Inf   # no draws, or none that are numbers
shown <- intersect(c("elvi", "elvi-plain", "laplace", "meanfield", "fullrank"), rows$method)
worst <- with(rows, tapply(mean, list(case, factor(method, shown)), max))
good <- with(rows, tapply(good, list(case, factor(method, shown)), sum))
alarms <- with(rows[rows$method == "elvi", ], tapply(!assured, case, sum))

cat("\nWorst mean error over the seeds, in reference sds, and on how many of", length(seeds), "seeds it was good\n\n")
cat("| case |", paste(shown, collapse = " | "), "| elvi's alarms |\n|---|", strrep("---|", length(shown) + 1), "\n", sep = "")
for (case in rownames(worst)) {
  cat("| ", case, " | ", paste(sprintf("%.2f (%d)", worst[case, ], good[case, ]), collapse = " | "), " | ", alarms[case], " |\n", sep = "")
}

cat("\n| method | runs | failed | good | fewest good on a seed | false assurance | false alarm | median worst mean error |",
    "median CPU s |\n|---|---|---|---|---|---|---|---|---|\n")
for (method in shown) {
  r <- rows[rows$method == method, ]
  ours <- method == "elvi"
  cat(sprintf("| %s | %d | %d | %d | %d | %s | %s | %.2f sd | %.1f |\n", method, nrow(r), sum(r$failed), sum(r$good),
              min(tapply(r$good, r$seed, sum)), if (ours) sum(r$assured & !r$good, na.rm = TRUE) else "",
              if (ours) sum(!r$assured & r$good, na.rm = TRUE) else "", median(r$mean), median(r$cpu)))
}
others <- intersect(c("laplace", "meanfield"), shown)
if ("elvi" %in% shown && length(others)) {
  ours <- rows[rows$method == "elvi", c("case", "seed", "mean")]
  theirs <- merge(ours, rows[rows$method %in% others, c("case", "seed", "method", "mean")], by = c("case", "seed"))
  behind <- theirs[which(theirs$mean.x > theirs$mean.y + 0.1), ]
  cat("\nRuns where Laplace or meanfield has a worst mean error smaller by more than 0.1 sd:", nrow(behind), "\n")
  if (nrow(behind)) print(behind, row.names = FALSE)
}
