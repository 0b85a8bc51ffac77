# Is elvi's loop faster than the direct reading of the paper, and by how much, in d = 50, 200 and 800? See bench/README.md.
#
#   Rscript bench/numpy.R [--rounds=3] [--dim=200] [--dry]      (without --dim: all three)

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
options(elvi.threads = 1L)
rounds <- option("rounds", 3L)
dims <- option("dim", c(50L, 200L, 800L))
budget <- 5000L
alpha <- 0.1

# The Figure 1 setting for d = 200, and the like elsewhere: 3 rows for 2 columns.
setting <- function(d) {
  set.seed(1)
  M <- 3L * d %/% 2L
  U <- matrix(runif(M * d), M, d)
  y <- rbinom(M, 1, .5)
  where <- tempfile("bench")
  dir.create(where)
  writeBin(as.vector(U), file.path(where, "U.bin"), endian = "little")
  writeBin(as.double(y), file.path(where, "y.bin"), endian = "little")
  list(d = d, data = where, model = elvi::model_glm(U, y, prior = elvi::normal(0, 1 / sqrt(alpha))))
}

# N = 1 takes 5000 iterations: both sides stop after the first of them, which are the cheapest for NumPy (from the
# identity, its decomposition has little to do).
iterations <- function(method, d) if (startsWith(method, "psgd")) c(500L, 500L, 20L)[match(d, c(50, 200, 800))] else Inf

# Raw coordinates and the reparam gradient, whatever the package's defaults: others would be another (better) algorithm.
fit_elvi <- function(s, method, ...) {
  elvi::elvi(s$model, base = elvi::base_laplace(), schedule = elvi::schedule_fixed(budget = budget, preset = method),
             control = elvi::elvi_control(coordinates = "raw", estimator = "reparam", trace_draws = 0, average = "last",
                                          iterations = iterations(method, s$d), ...))
}
by_elvi <- function(s, method, ...) function() {
  fit <- NULL
  all <- seconds(function() fit <<- suppressMessages(fit_elvi(s, method, ...)), 3L)
  all / fit$state$k
}

json <- function(line, key) {
  value <- regmatches(line, regexec(sprintf('"%s": (\\[[^]]*\\]|[^,}]*)', key), line))[[1]][2]
  value <- trimws(strsplit(gsub('[][" ]', "", value), ",")[[1]])
  number <- suppressWarnings(as.numeric(value))
  if (anyNA(number)) value else number
}
numpy <- function(s, method, decomposition = "svd", repeats = 1L) {
  fit <- suppressMessages(fit_elvi(s, method))
  stop_at <- iterations(method, s$d)
  call <- c(file.path(dirname(script), "paper_numpy.py"), "--data", s$data, "--method", method, "--budget", budget,
            "--alpha", alpha, "--batch", fit$plan$batch0, "--decomposition", decomposition, "--repeats", repeats,
            if (is.finite(stop_at)) c("--iterations", stop_at))
  line <- system2("/usr/bin/python3", shQuote(call), stdout = TRUE)
  if (length(line) != 1L || !is.null(attr(line, "status"))) stop("paper_numpy.py failed: ", paste(line, collapse = "\n"))
  line
}
by_numpy <- function(s, method, decomposition = "svd") function() {
  line <- numpy(s, method, decomposition)
  json(line, "seconds") / json(line, "iterations")
}

# Do both sides compute the same? Negative ELBO of the last iterate without the base constant: NumPy's has a standard
# error of about 0.05 at d = 200, and its own draws.
check <- function(s, method) {
  fit <- suppressMessages(fit_elvi(s, method))
  at <- list(mu = fit$last$mu, Sigma = fit$last$scale)
  mine <- elvi::objective(at, s$model, elvi::base_laplace())$estimate
  line <- numpy(s, method)
  theirs <- json(line, "objective")
  error <- json(line, "objective_se")
  if (json(line, "iterations") != fit$state$k) stop(method, ": not the same number of iterations")
  data.frame(d = s$d, method = method, N = fit$plan$batch0, K = fit$state$k, elvi_F = round(mine, 2),
             numpy_F = round(theirs, 2), se = round(error, 3),
             same = if (abs(mine - theirs) < 5 * error + 0.002 * abs(mine)) "yes" else "NO")
}

methods <- c("psgd", "psgd_scaled", "case1", "case2")
targets <- c(psgd = 7, psgd_scaled = NA, case1 = NA, case2 = 4)
for (d in dims) {
  s <- setting(d)
  same <- do.call(rbind, lapply(methods, function(method) check(s, method)))
  print(same, row.names = FALSE)
  if (any(same$same == "NO")) stop("the two sides did not do the same work: ratios would mean nothing")
  for (method in methods) {
    r <- alternate(sprintf("d = %d, %s: NumPy / elvi, time of an iteration", d, method), by_elvi(s, method),
                   by_numpy(s, method), rounds)
    record_ratio(r, if (d == 200) targets[[method]] else NA)
  }
  if (d == 200) {
    for (method in c("psgd", "case2")) {
      record_ratio(alternate(sprintf("d = 200, %s: NumPy with eigh for svd / elvi", method), by_elvi(s, method),
                             by_numpy(s, method, "eigh"), rounds))
    }
    record_ratio(alternate("d = 200: NumPy psgd / elvi triangular scale, proximal step, N = 1",
                           by_elvi(s, "psgd", scale = "triangular", update = "prox"), by_numpy(s, "psgd"), rounds), 40)
    record_ratio(alternate("2e6 standard normals: rnorm / base_draws",
                           function() seconds(function() elvi::base_draws(elvi::base_gaussian(), 1e4, 200), 7L),
                           function() seconds(function() rnorm(2e6), 7L), rounds), 4)
  }
  unlink(s$data, recursive = TRUE)
}
