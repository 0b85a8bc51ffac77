# ---- rates --------------------------------------------------------------------------

#' The guaranteed rate of a schedule
#'
#' `schedule_rate()` returns the exponent `r` for which the theory guarantees a gap of order `E^r` after `E` gradient evaluations, if its
#' assumptions hold (see [guarantee()]):
#'
#' | schedule | exponent |
#' |---|---|
#' | [schedule_fixed()] | `-1/2`, over budgets: each has its own step, batch and iterations |
#' | [schedule_decay()] | `-(1/2 - epsilon) / (1 + growth)` |
#' | [schedule_growing()] | `-1 / (2 + nu)` |
#' | [schedule_tuned()], [schedule_custom()] | `NA` |
#'
#' @param schedule a schedule, see [schedules].
#' @return A list of class `elvi_rate` with `exponent` and `text`.
#' @examples
#' schedule_rate(schedule_fixed(5000))
#' schedule_rate(schedule_decay(5000, epsilon = 0.1))
#' schedule_rate(schedule_tuned(5000))
#' @export
schedule_rate <- function(schedule) {
  check_class(schedule, "schedule", "elvi_schedule", "a schedule_*() function")
  record <- schedule_record(schedule)
  structure(list(exponent = record$exponent(schedule), text = record$rate), class = "elvi_rate")
}

#' @export
print.elvi_rate <- function(x, ...) {
  cat(if (is.na(x$exponent)) "No guaranteed rate" else
    sprintf("Guaranteed gap of order E^%s in the budget E", format(x$exponent, digits = 4)),
    " (", x$text, ")\n", sep = "")
  invisible(x)
}
