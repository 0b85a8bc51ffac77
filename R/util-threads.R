#' How many threads elvi uses
#'
#' elvi uses at most two threads by default, or as many as `options(elvi.threads = )` says, if R was built with 'OpenMP'. The environment
#' variable `OMP_THREAD_LIMIT` is an upper limit. Results do not
#' depend on the number. Processes forked from R, as by `parallel::mclapply()`, work
#' with a single thread each. So does elvi with an 'OpenBLAS' that was built for a single thread ('openblas-serial' of Debian),
#' because such a library returns wrong numbers now and then when two threads call it.
#'
#' Each thread computes its own matrix products, and a multi-threaded 'OpenBLAS' is limited to one thread meanwhile. On a machine with
#' more cores, `options(elvi.threads = )` with their number makes large problems faster. The default of two is the limit of CRAN's
#' policy. The environment
#' variable `OMP_NUM_THREADS = 1` makes one thread the default.
#'
#' elvi stores the process in which it was loaded as `options("elvi.process")`, and uses one thread in any other. Do not change it.
#'
#' @return `elvi_threads()` returns the number in force, 1 without 'OpenMP'.
#' @examples
#' elvi_threads()
#' old <- options(elvi.threads = 1)
#' elvi_threads()
#' options(old)
#' @export
elvi_threads <- function() max(1L, threads())

# How many threads the next call into C may use; 0 without OpenMP, where BLAS has its own.
# What was asked for, or else two, as CRAN asks, or fewer if OMP_NUM_THREADS says so; never
# more than OMP_THREAD_LIMIT, than BLAS can take (r_threads.c) or than C has room for.
threads <- function() {
  asked <- getOption("elvi.threads")
  if (!is.null(asked)) asked <- check_count(asked, "elvi.threads")
  openmp <- .Call(elvi_r_openmp)
  if (is.null(openmp)) return(0L)
  if (is_forked()) return(1L)
  as.integer(max(1, min(asked %||% min(2, openmp[["default"]]), openmp[["limit"]], openmp[["room"]])))
}

# A forked child inherits an OpenMP runtime whose threads are gone and would wait for
# them for ever: it works alone. .onLoad() notes the process.
is_forked <- function() .Platform$OS.type != "windows" && !identical(getOption("elvi.process"), Sys.getpid())
