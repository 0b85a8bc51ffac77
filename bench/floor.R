# How far is the engine from the floor, the same products, factorisations and draws called bare? And what do two threads
# bring? N = 1000 samples, K = 50 iterations, d = 200, M = 2000 rows.
#
#   Rscript bench/floor.R [--rounds=5] [--dry]
#
# The faster BLAS, the more the rest counts: OPENBLAS_CORETYPE, if set, is named in the rows.

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
rounds <- option("rounds", 5L)

M <- 2000L; d <- 200L; N <- 1000L; K <- 50L; block <- 128L
set.seed(1)
X <- matrix(runif(M * d), M)
y <- rbinom(M, 1, 0.5)
model <- elvi::model_glm(X, y, prior = elvi::normal(0, 1 / sqrt(0.1)))

build <- tempfile("floor")
dir.create(build)
file.copy(file.path(dirname(script), "floor.c"), build)
writeLines("PKG_LIBS = $(LAPACK_LIBS) $(BLAS_LIBS) $(FLIBS)", file.path(build, "Makevars"))
owd <- setwd(build)
system2(file.path(R.home("bin"), "R"), c("CMD", "SHLIB", "floor.c"), stdout = FALSE)
setwd(owd)
dyn.load(file.path(build, paste0("floor", .Platform$dynlib.ext)))

S <- diag(1 / sqrt(model$smoothness), d)
z <- matrix(rnorm(d * block), d)
room <- function(rows, cols) matrix(0, rows, cols)
bare <- function() {
  draws <- seconds(function() for (k in seq_len(K)) elvi::base_draws(elvi::base_gaussian(), N, d))
  # .C copies its arguments once a call, little beside K iterations
  products <- seconds(function() .C("engine_floor", M, d, N, K, block, X, S, z, room(d, block), room(d, block),
                                    room(M, block), room(d, d), room(d, d)))
  draws + products
}
engine <- function(threads) function() {
  options(elvi.threads = threads)
  seconds(function() elvi::elvi(
    model, elvi::base_gaussian(), elvi::schedule_custom(rep(1e-5, K), rep(N, K)),
    control = elvi::elvi_control(coordinates = "raw", estimator = "reparam", trace_draws = 0, average = "last",
                                 block = block)))
}

# What the machine gives: a run's share of the time of two that know nothing of each other, one thread each.
side_by_side <- function() {
  jobs <- lapply(1:2, function(i) parallel::mcparallel(engine(1L)()))
  max(unlist(parallel::mccollect(jobs))) / 2
}

kernels <- Sys.getenv("OPENBLAS_CORETYPE")
named <- function(what) if (nzchar(kernels)) paste0(what, " (OPENBLAS_CORETYPE=", kernels, ")") else what
record_ratio(alternate(named("engine / floor, one thread"), bare, engine(1L), rounds), 1.3, at_least = FALSE)
record_ratio(alternate(named("one thread / two threads, BLAS's own set to one"), engine(2L), engine(1L), rounds), 1.7)
record_ratio(alternate(named("... and one thread / share of two processes side by side"), side_by_side, engine(1L), rounds))
