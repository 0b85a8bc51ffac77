threads_then <- function(n, code) {
  old <- options(elvi.threads = n)
  on.exit(options(old))
  code
}

session_prints <- function(code, env = character()) {
  libraries <- paste(.libPaths(), collapse = ":")
  system2(file.path(R.home("bin"), "Rscript"), c("-e", shQuote(code)), stdout = TRUE,
          env = c(paste0("R_LIBS=", shQuote(libraries)), env))
}

test_that("options(elvi.threads = ) sets the number, within OpenMP's limit", {
  skip_on_cran()
  skip_if(threads_then(2, elvi_threads()) == 1, "no OpenMP, or a limit of one thread")
  expect_identical(threads_then(1, elvi_threads()), 1L)
  expect_identical(threads_then(2, elvi_threads()), 2L)
  expect_lte(threads_then(NULL, elvi_threads()), 2L)
  child <- function(env, n) session_prints(sprintf("options(elvi.threads = %s); cat(elvi::elvi_threads())", n), env)
  expect_identical(child("OMP_NUM_THREADS=1", "NULL"), "1")
  expect_identical(child(c("OMP_NUM_THREADS=4", "OPENBLAS_NUM_THREADS=4"), "NULL"), "2")
  expect_identical(child("OMP_NUM_THREADS=1", "2"), "2")   # asked for in R: R wins
  expect_identical(child("OMP_THREAD_LIMIT=1", "2"), "1")
})

test_that("an OpenBLAS for a single thread is called by one", {
  skip_on_cran()
  skip_on_os(c("windows", "mac"))   # which preload in other ways
  skip_if(threads_then(2, elvi_threads()) == 1, "no OpenMP, a limit of one thread, or such a library already")
  # what elvi asks of OpenBLAS, answered as its two kinds do
  answers <- function(parallel) {
    dir <- tempfile("openblas")
    dir.create(dir)
    code <- file.path(dir, "answer.c")
    writeLines(sprintf("int openblas_get_parallel(void) { return %d; }", parallel), code)
    library <- file.path(dir, paste0("answer", .Platform$dynlib.ext))
    suppressWarnings(system2(file.path(R.home("bin"), "R"), c("CMD", "SHLIB", "-o", library, code), stdout = FALSE, stderr = FALSE))
    skip_if_not(file.exists(library), "no compiler")
    session_prints("options(elvi.threads = 2); cat(elvi::elvi_threads())",
                   paste0("LD_PRELOAD=", paste(c(library, Sys.getenv("LD_PRELOAD")), collapse = ":")))
  }
  expect_identical(answers(0), "1")
  expect_identical(answers(1), "2")
})

test_that("a bad number of threads is refused by name", {
  expect_snapshot(error = TRUE, threads_then(0, elvi_threads()))
  expect_snapshot(error = TRUE, threads_then("two", elvi_threads()))
  model <- model_quadratic(diag(2))
  expect_snapshot(error = TRUE, threads_then(1.5, elvi(model, budget = 100)))
})

test_that("results do not depend on the number of threads, to the last bit", {
  skip_on_cran()
  set.seed(1)
  X <- matrix(rnorm(3000 * 20), 3000)
  y <- rbinom(3000, 1, 0.4)
  counts <- rpois(3000, 2)
  results <- function(n) threads_then(n, {
    set.seed(2)
    list(base_draws(base_laplace(), 5000, 20),
         elvi(model_glm(X, y), base_student(7), budget = 1000)[c("mu", "Sigma")],
         elvi(model_glm(X, counts, neg_binomial_2()), budget = 300)[c("mu", "Sigma")],
         elvi_optimum(model_glm(X, y, binomial("probit")), base_laplace()))
  })
  one <- results(1)
  expect_identical(results(2), one)
  expect_identical(results(5), one)
})

test_that("forked children work with one thread, and as the parent does", {
  skip_on_cran()
  skip_on_os("windows")
  set.seed(3)
  X <- matrix(rnorm(4000 * 10), 4000)
  model <- model_glm(X, rbinom(4000, 1, 0.5))
  fit <- function(seed) {
    set.seed(seed)
    elvi(model, budget = 500)$mu
  }
  here <- threads_then(2, lapply(1:4, fit))   # the parent's OpenMP now has threads
  # stopped after a minute, not waited for: a child that hangs is what this is about
  code <- function(i) {
    setTimeLimit(elapsed = 60)
    list(elvi_threads(), fit(i))
  }
  there <- threads_then(2, parallel::mclapply(1:4, code, mc.cores = 2))
  expect_identical(lapply(there, `[[`, 1L), rep(list(1L), 4))
  expect_identical(lapply(there, `[[`, 2L), here)
})

test_that("loaded in a forked child elvi works with one thread, also if asked for more", {
  skip_on_cran()
  skip_on_os("windows")
  fork <- paste("p <- parallel::mcparallel({ options(elvi.threads = 2); elvi::elvi_threads() })",
                "cat(parallel::mccollect(p)[[1]])", sep = "; ")
  expect_identical(session_prints(fork), "1")
  expect_identical(session_prints(paste0("library(elvi); ", fork)), "1")
})

# omp_get_level(), the number of teams that a thread is in
openmp_level <- function() {
  dir <- tempfile("level")
  dir.create(dir)
  code <- file.path(dir, "level.c")
  writeLines(c("#include <omp.h>", "void level(int *x) { *x = omp_get_level(); }"), code)
  writeLines(c("PKG_CFLAGS = $(SHLIB_OPENMP_CFLAGS)", "PKG_LIBS = $(SHLIB_OPENMP_CFLAGS)"), file.path(dir, "Makevars"))
  library <- file.path(dir, paste0("level", .Platform$dynlib.ext))
  old <- setwd(dir)
  on.exit(setwd(old))
  suppressWarnings(system2(file.path(R.home("bin"), "R"), c("CMD", "SHLIB", "level.c"), stdout = FALSE, stderr = FALSE))
  skip_if_not(file.exists(library), "no compiler, or no OpenMP")
  loaded <- dyn.load(library)
  function() .C(getNativeSymbolInfo("level", loaded), 0L)[[1]]
}

test_that("an error in a user's function does not leave OpenMP in the middle of a team", {
  skip_on_cran()
  skip_on_os("windows")
  level <- openmp_level()
  fails <- model_density(function(x) colSums(x^2) / 2, function(x) if (ncol(x) == 10) stop("no") else x,
                         dim = 2, smoothness = 1, vectorized = TRUE)
  before <- level()
  expect_error(elvi(fails, schedule = schedule_custom(0.1, 10, iterations = 3),
                    control = elvi_control(coordinates = "raw", trace_draws = 0)), "no")
  expect_identical(level(), before)
})

test_that("signals go to R's own thread, as R's handlers jump", {
  skip_on_cran()
  skip_if_not(dir.exists("/proc/self/task"), "Linux only")
  skip_if(threads_then(2, elvi_threads()) == 1, "no OpenMP, or a limit of one thread")
  printed <- session_prints(paste(
    "options(elvi.threads = 2)", "X <- matrix(rnorm(1e6), 1e5)",
    "invisible(elvi::elvi(elvi::model_glm(X, rep(0:1, 5e4))))",
    "tasks <- setdiff(list.files('/proc/self/task'), Sys.getpid())",
    "blocked <- function(task) sub('SigBlk:\\t0*', '', grep('SigBlk', readLines(file.path('/proc/self/task', task, 'status')), value = TRUE))",
    "cat(sort(vapply(c(Sys.getpid(), tasks), blocked, '')))", sep = "; "), env = "OPENBLAS_NUM_THREADS=1")
  mask <- format(as.hexmode(sum(2^(c(2, 10, 12, 17) - 1))))   # INT, USR1, USR2 and CHLD of Linux
  expect_identical(printed, paste("", mask))
})
