#' How many threads elvi uses
#'
#' Samples are differentiated and rows integrated by at most two threads where R was
#' built with 'OpenMP', or by as many as `options(elvi.threads = )` says; never by
#' more than the environment variable `OMP_THREAD_LIMIT` allows. Results do not
#' depend on the number. Processes forked from R, as by `parallel::mclapply()`, work
#' with a single thread each.
#'
#' Each thread does its own matrix products, and a BLAS that has threads too (of
#' those only 'OpenBLAS' can be asked) uses one meanwhile. So on a machine with more
#' cores, `options(elvi.threads = )` with their number makes large problems faster:
#' the default is what CRAN allows a package to take unasked. The environment
#' variable `OMP_NUM_THREADS = 1` makes one thread the default.
#'
#' elvi notes the process that it was loaded in as `options("elvi.process")`, and in
#' any other uses one thread: leave it alone.
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
# more than OMP_THREAD_LIMIT or than C has room for.
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
