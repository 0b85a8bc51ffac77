#' The experiments of the vignettes, from the console
#'
#' `example_experiment()` runs one of the experiments of the vignettes and returns its measurements and the numbers that the text quotes.
#' So you can repeat any figure, also with other seeds or another size.
#'
#' @param name the experiment. Without a name the experiments are listed, with
#'   the arguments that each takes.
#' @param ... arguments of the experiment.
#' @param stored `TRUE` gives the result that comes with the package and that the
#'   vignettes show, with the default arguments, instead of running for minutes.
#'   `$made` says by which command, from which commit and on what it was made, and how many CPU seconds it took.
#' @return An object of class `elvi_experiment`: a list with `$name`, `$title`,
#'   `$data` (a data frame, one row a measurement), `$numbers` (a named list)
#'   and `$seconds`. [plot()] and `ggplot2::autoplot()` draw its figure; those of
#'   the paper take `what = "elbo"` or `what = "gap"`.
#' @examples
#' example_experiment()
#' example_experiment("figure1", stored = TRUE)
#' small <- example_experiment("rates", seeds = 2, budgets = c(100, 1000))
#' small
#' small$numbers$slopes
#' \donttest{
#' if (requireNamespace("ggplot2", quietly = TRUE)) plot(small)
#' }
#' @export
example_experiment <- function(name, ..., stored = FALSE) {
  room <- load_experiments()
  known <- room$experiments()
  if (missing(name)) return(listing(known))
  entry <- known[[check_choice(name, "name", names(known))]]
  arguments <- list(...)
  given <- names(arguments) %||% rep("", length(arguments))
  takes <- names(formals(entry$run))
  check_dots(arguments[!given %in% takes], takes, paste0("example_experiment(\"", name, "\")"))
  twice <- given[duplicated(given)]
  if (length(twice)) bad_argument(twice[1L], "given once", "given twice")
  if (check_flag(stored, "stored")) return(stored_experiment(name, arguments))
  run_experiment(room, name, arguments)
}

run_experiment <- function(room, name, arguments) {
  entry <- room$experiments()[[name]]
  began <- proc.time()[["elapsed"]]
  # after an interrupt elvi() returns the fit so far, which an experiment must not use
  out <- withCallingHandlers(do.call(entry$run, arguments),
                             elvi_warning_interrupted = function(w) room$experiment_interrupted())
  structure(c(list(name = name, title = entry$title), out,
              seconds = proc.time()[["elapsed"]] - began), class = "elvi_experiment")
}

# The experiments are not part of the namespace: the files of inst/experiments are read when one is requested, into an
# environment that sees the namespace. experiments() there gives them by name.
load_experiments <- function() {
  room <- new.env(parent = topenv())
  files <- list.files(system.file("experiments", package = "elvi", mustWork = TRUE), "[.]R$", full.names = TRUE)
  for (file in files) sys.source(file, room)
  room
}

# What tools/vignettes.R has computed with the default arguments.
stored_experiment <- function(name, arguments = list()) {
  if (length(arguments)) bad_argument("stored", "FALSE where arguments are given", "TRUE")
  readRDS(system.file("extdata", "experiments", paste0(name, ".rds"), package = "elvi", mustWork = TRUE))
}

listing <- function(known) {
  arguments <- vapply(known, function(entry) {
    defaults <- formals(entry$run)
    paste(names(defaults), vapply(defaults, deparse1, ""), sep = " = ", collapse = ", ")
  }, "")
  data.frame(name = names(known), title = vapply(known, `[[`, "", "title"),
             arguments = arguments, row.names = NULL)
}

#' @export
print.elvi_experiment <- function(x, ...) {
  cat("Experiment \"", x$name, "\": ", x$title, "\n", sep = "")
  # what is stored may have been computed with breaks
  took <- if (is.null(x$made$cpu_seconds)) paste(format(round(x$seconds, 1)), "s") else paste(format(x$made$cpu_seconds), "s of CPU time")
  cat(nrow(x$data), " measurements in $data, ", took, "; plot() draws them.\n", sep = "")
  if (length(x$made)) cat("Stored by '", x$made$command, "' at commit ", x$made$commit, ", ", x$made$date, ".\n", sep = "")
  invisible(x)
}

#' @exportS3Method ggplot2::autoplot
autoplot.elvi_experiment <- function(object, ...) {
  need_package("ggplot2", "Plotting an experiment")
  load_experiments()$experiments()[[object$name]]$draw(object, ...)
}

#' @export
plot.elvi_experiment <- function(x, ...) {
  need_package("ggplot2", "Plotting an experiment")
  drawn <- ggplot2::autoplot(x, ...)
  print(drawn)
  invisible(drawn)
}
