# Is elvi's loop faster than the direct reading of the paper, and by how much? See bench/README.md.
#
#   Rscript bench/core.R [--rounds=3] [--full]
#
# --full lets NumPy run all 5000 iterations of psgd instead of the first 500, scaled by ten.

args <- commandArgs(trailingOnly = TRUE)
script <- normalizePath(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1]))

# BLAS reads its thread count when it is loaded, which is before this line: start again with the variable set.
one_thread <- c("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
if (!all(Sys.getenv(one_thread) == "1")) {
  quit(status = system2(file.path(R.home("bin"), "Rscript"), shQuote(c(script, args)),
                        env = paste0(one_thread, "=1")))
}

option <- function(name, default) {
  hit <- grep(paste0("^--", name, "="), args, value = TRUE)
  if (length(hit)) as.integer(sub("^[^=]*=", "", hit[1])) else default
}
unknown <- grep("^--(full$|rounds=[1-9][0-9]*$)", args, value = TRUE, invert = TRUE)
if (length(unknown)) stop("unknown argument: ", paste(unknown, collapse = " "))
rounds <- option("rounds", 3L)
full <- "--full" %in% args
budget <- 5000L
short <- 500L

# ---- the Figure 1 setting -------------------------------------------------------------------------------------------

set.seed(1)
U <- matrix(runif(300 * 200), 300, 200)
y <- rbinom(300, 1, .5)
alpha <- 0.1
data_dir <- tempfile("bench")
dir.create(data_dir)
writeBin(as.vector(U), file.path(data_dir, "U.bin"), endian = "little")
writeBin(as.double(y), file.path(data_dir, "y.bin"), endian = "little")

# ---- the elvi side: every call into the package is in this block ----------------------------------------------------

model <- elvi::model_glm(U, y, family = binomial(), prior = elvi::normal(0, 1 / sqrt(alpha)))

# Raw coordinates and the reparam gradient, whatever the package's defaults: others would be another (better) algorithm.
control <- function(...) {
  elvi::elvi_control(coordinates = "raw", estimator = "reparam", trace_draws = 0, ...)
}

fit_elvi <- function(preset, budget, ...) {
  elvi::elvi(model, base = elvi::base_laplace(), schedule = elvi::schedule_fixed(budget = budget, preset = preset),
             control = control(...))
}

# What the fit says it did; NA where it does not say under these names.
counts <- function(fit) {
  first <- function(x) if (is.numeric(x) && length(x)) as.integer(x[1]) else NA_integer_
  c(batch = first(fit$plan$batch0), iterations = first(fit$state$k))
}

elvi_normals <- function(n, dim) elvi::base_draws(elvi::base_gaussian(), n, dim)

# ---- the NumPy side -------------------------------------------------------------------------------------------------

json <- function(line, key) {
  value <- regmatches(line, regexec(sprintf('"%s": (\\[[^]]*\\]|[^,}]*)', key), line))[[1]][2]
  value <- trimws(strsplit(gsub('[][" ]', "", value), ",")[[1]])
  number <- suppressWarnings(as.numeric(value))
  if (anyNA(number)) value else number
}

numpy <- function(method, budget, ..., batch = NA) {
  call <- c(file.path(dirname(script), "paper_numpy.py"), "--data", data_dir, "--method", method, "--budget", budget,
            "--alpha", alpha, if (!is.na(batch)) c("--batch", batch), ...)
  line <- system2("/usr/bin/python3", shQuote(call), stdout = TRUE)
  if (length(line) != 1L || !is.null(attr(line, "status"))) stop("paper_numpy.py failed: ", paste(line, collapse = "\n"))
  line
}

# ---- timing ---------------------------------------------------------------------------------------------------------

seconds <- function(run, repeats = 1L) {
  median(vapply(seq_len(repeats), function(i) {
    gc(FALSE)
    start <- Sys.time()
    run()
    as.numeric(difftime(Sys.time(), start, units = "secs"))
  }, 0))
}

# Medians over rounds of elvi, baseline, elvi, baseline, ...; the range is that of the ratio within a round.
compare <- function(what, elvi, baseline, target = NA) {
  message(what, " ...")
  times <- vapply(seq_len(rounds), function(i) {
    mine <- elvi()
    c(mine, baseline())
  }, c(0, 0))
  ratio <- median(times[2, ]) / median(times[1, ])
  paired <- range(times[2, ] / times[1, ])
  data.frame(what = what, elvi_s = sprintf("%.3f", median(times[1, ])), baseline_s = sprintf("%.3f", median(times[2, ])),
             ratio = sprintf("%.2f", ratio), in_rounds = sprintf("%.2f-%.2f", paired[1], paired[2]),
             target = if (is.na(target)) "-" else paste0(">= ", target),
             met = if (is.na(target)) "-" else if (ratio >= target) "yes" else "no")
}

one <- lapply(c(psgd = "psgd", psgd_scaled = "psgd_scaled", case1 = "case1", case2 = "case2"),
              function(m) counts(fit_elvi(m, if (startsWith(m, "psgd")) short else budget)))

# N = 1, so the baseline may stop early; its seconds are always those of all 5000 iterations.
numpy_psgd <- function(method, decomposition = "svd") function() {
  line <- numpy(method, budget, "--decomposition", decomposition, if (!full) c("--iterations", short))
  json(line, "seconds") / json(line, "iterations") * budget
}
numpy_batch <- function(method, decomposition = "svd") function() {
  json(numpy(method, budget, "--decomposition", decomposition, "--repeats", 3, batch = one[[method]][["batch"]]), "seconds")
}
elvi_run <- function(method, repeats = 1L, ...) {
  fit <- NULL
  planned <- if (startsWith(method, "psgd")) budget else one[[method]][["iterations"]]
  function() {
    time <- seconds(function() fit <<- fit_elvi(method, budget, ...), repeats)
    done <- counts(fit)[["iterations"]]  # a fit that stopped early must not count as a fast one
    if (!isTRUE(done == planned)) stop(method, ": the fit reports ", done, " iterations, not ", planned)
    time
  }
}

# ---- do both sides compute the same thing? --------------------------------------------------------------------------

objective <- function(fit, n = 1000) {
  d <- ncol(U)
  Z <- matrix(rnorm(n * d), d)
  Z <- sweep(Z, 2, rgamma(n, d, sqrt(d + 1)) / sqrt(colSums(Z^2)), `*`)
  X <- fit$mu + fit$Sigma %*% Z
  eta <- U %*% X
  value <- alpha / 2 * colSums(X^2) + colSums(pmax(eta, 0) + log1p(exp(-abs(eta))) - y * eta)
  mean(value) - as.numeric(determinant(fit$Sigma)$modulus)
}

check <- function(method) {
  E <- if (startsWith(method, "psgd")) short else budget
  mine <- objective(fit_elvi(method, E, average = "last"))
  line <- numpy(method, E, batch = one[[method]][["batch"]])
  theirs <- json(line, "objective")
  cell <- function(n, k) paste(n, k, sep = " x ")
  data.frame(method = method, budget = E, elvi_NxK = cell(one[[method]][["batch"]], one[[method]][["iterations"]]),
             numpy_NxK = cell(json(line, "batch"), json(line, "iterations")), elvi_F = sprintf("%.2f", mine),
             numpy_F = sprintf("%.2f", theirs), same = if (abs(mine - theirs) < 1) "yes" else "NO")
}

# ---- run ------------------------------------------------------------------------------------------------------------

probe <- numpy("case1", budget, "--iterations", 1)
shared <- normalizePath(La_library()) %in% normalizePath(json(probe, "blas"))
cpu <- sub(".*: *", "", grep("^model name", readLines("/proc/cpuinfo"), value = TRUE)[1])
load <- paste(strsplit(readLines("/proc/loadavg"), " ")[[1]][1:3], collapse = " ")
cat("CPU    ", cpu, "x", parallel::detectCores(), "  load before the run", load, "\n")
cat("R      ", R.version.string, "  elvi", format(utils::packageVersion("elvi")), "\n")
cat("BLAS   ", normalizePath(extSoftVersion()[["BLAS"]]), "\n")
cat("LAPACK ", normalizePath(La_library()), "\n")
cat("NumPy  ", json(probe, "numpy"), "with", json(probe, "blas"), "\n")
cat("         ", if (shared) "the library R uses" else "NOT the library R uses: ratios mix in a BLAS difference", "\n")
cat("threads 1 on both sides (", paste0(one_thread, "=1", collapse = ", "), ")\n", sep = "")

cat("\nThe same computation? Last iterate, negative ELBO without the base constant, by 1000 draws (s.e. about 0.05)\n")
print(do.call(rbind, lapply(names(one), check)), row.names = FALSE)

values <- c(n = 1e4, dim = 200)
rows <- list(
  compare("a  psgd, 5000 iterations", elvi_run("psgd"), numpy_psgd("psgd"), 7),
  compare("b  case2", elvi_run("case2", 3L), numpy_batch("case2"), 4),
  compare("c  case1", elvi_run("case1", 3L), numpy_batch("case1")),
  compare("c  psgd_scaled, 5000 iterations", elvi_run("psgd_scaled"), numpy_psgd("psgd_scaled")),
  compare("d  triangular + prox, N = 1, vs NumPy psgd", elvi_run("psgd", 1L, scale = "triangular", update = "prox"),
          numpy_psgd("psgd"), 40),
  compare("e  2e6 standard normals, vs rnorm",
          function() seconds(function() elvi_normals(values[["n"]], values[["dim"]]), 7L),
          function() seconds(function() rnorm(prod(values)), 7L), 4),
  compare("-  psgd, vs NumPy with eigh for svd", elvi_run("psgd"), numpy_psgd("psgd", "eigh")),
  compare("-  case2, vs NumPy with eigh for svd", elvi_run("case2", 3L), numpy_batch("case2", "eigh")))

cat("\nMedians of", rounds, "alternating rounds; ratio = baseline / elvi; in_rounds = its range within a round\n")
if (!full) {
  cat("NumPy psgd and psgd_scaled: first", short, "of", budget, "iterations, scaled per iteration (--full runs them all)\n")
}
options(width = 160)
print(do.call(rbind, rows), row.names = FALSE, right = FALSE)
unlink(data_dir, recursive = TRUE)
