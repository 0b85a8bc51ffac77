#' The experiments of the vignettes, from the console
#'
#' Runs one of the experiments that the vignettes are made of and returns its
#' measurements and the numbers that the text quotes, so that any figure can be
#' had again, with other seeds or another size.
#'
#' @param name the experiment. Without a name the experiments are listed, with
#'   the arguments that each takes.
#' @param ... arguments of the experiment.
#' @return An object of class `elvi_experiment`: a list with `$name`, `$title`,
#'   `$data` (a data frame, one row a measurement), `$numbers` (a named list)
#'   and `$seconds`. [plot()] and `ggplot2::autoplot()` draw its figure.
#' @examples
#' example_experiment()
#' @export
example_experiment <- function(name, ...) {
  known <- experiments()
  if (missing(name)) return(listing(known))
  entry <- known[[check_choice(name, "name", names(known))]]
  check_dots(list(...), names(formals(entry$run)), paste0("example_experiment(\"", name, "\")"))
  began <- proc.time()[["elapsed"]]
  out <- entry$run(...)
  structure(c(list(name = name, title = entry$title), out,
              seconds = proc.time()[["elapsed"]] - began), class = "elvi_experiment")
}

# By name, each with a title, run(...) that returns list(data =, numbers =), and
# draw(x, ...) that makes a ggplot of the result.
experiments <- function() {
  c(paper_experiments(), rate_experiments(), nonconvex_experiments(), base_experiments())
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
  cat(nrow(x$data), " measurements in $data, ", format(round(x$seconds, 1)), " s; plot() draws them.\n",
      sep = "")
  invisible(x)
}

#' @exportS3Method ggplot2::autoplot
autoplot.elvi_experiment <- function(object, ...) {
  need_package("ggplot2", "Plotting an experiment")
  experiments()[[object$name]]$draw(object, ...)
}

#' @export
plot.elvi_experiment <- function(x, ...) {
  need_package("ggplot2", "Plotting an experiment")
  drawn <- ggplot2::autoplot(x, ...)
  print(drawn)
  invisible(drawn)
}

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow is left
# out because it is too pale for lines.
experiment_colours <- c("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
