# The passes of an exact or nested fit, in a file: elvi_control(checkpoint = ). The solvers make the same steps whenever they are called, so
# the same call after a crash asks for the same passes, and those that the file has are not made again. Records are appended, one
# for each pass; what a crash leaves of the last one is ignored. Data are compared by the sums of the survey, which is made anew.

with_pass_log <- function(rows, file, expr) {
  if (is.null(file)) return(expr)
  log <- open_pass_log(rows, checkpoint_path(file))
  old <- options(elvi.pass_log = log)
  on.exit({
    options(old)
    close(log$con)
  })
  expr
}

open_pass_log <- function(rows, file) {
  header <- list(kind = "elvi passes", version = as.character(getNamespaceVersion("elvi")), n = rows$n, labels = rows$labels,
                 check = rows$check)
  log <- list2env(list(file = file, answers = list(), con = NULL, failed = FALSE), parent = emptyenv())
  if (file.exists(file)) read_pass_log(log, header)
  log$con <- tryCatch(suppressWarnings(file(file, if (length(log$answers)) "ab" else "wb")), error = function(e) {
    bad_checkpoint(file, paste0("a file that can be written (", conditionMessage(e), ")"))
  })
  if (!length(log$answers)) write_record(log, header)
  log
}

# Of a file that was cut off, the whole records, which are then written anew.
read_pass_log <- function(log, header) {
  con <- file(log$file, "rb")
  on.exit(close(con))
  read <- function() {
    record <- or_null(suppressWarnings(unserialize(con)))
    if (is_data_only(record)) record
  }
  found <- read()
  if (!identical(found$kind, header$kind)) bad_checkpoint(log$file, "a file with the passes of an exact fit", "another file")
  same <- vapply(c("version", "n", "labels"), function(name) identical(found[[name]], header[[name]]), NA)
  differs <- c(names(same)[!same], if (!isTRUE(all.equal(found$check, header$check, tolerance = 1e-10))) "check")
  if (length(differs)) bad_checkpoint(log$file, "that of the same model and rows", "another one", differs)
  records <- list()
  while (!is.null(record <- read())) records <- c(records, list(record))
  close(con)
  on.exit()
  if (!length(records)) return(invisible())
  whole <- file(log$file, "wb")
  for (record in c(list(header), records)) serialize(record, whole)
  close(whole)
  log$answers <- stats::setNames(lapply(records, `[[`, "answer"), vapply(records, `[[`, "", "key"))
  elvi_inform("The checkpoint has ", length(records), " pass", if (length(records) > 1L) "es", ", which are not made again.",
              class = "elvi_message_checkpoint")
}

# numbers and texts in lists: nothing that could run
is_data_only <- function(x) {
  if (is.list(x)) all(vapply(x, is_data_only, NA)) else is.null(x) || is.atomic(x)
}

# A fit does not fail because its record cannot be written.
write_record <- function(log, record) {
  if (log$failed) return(invisible())
  tryCatch({
    serialize(record, log$con)
    flush(log$con)
  }, error = function(e) {
    log$failed <- TRUE
    elvi_warn("The checkpoint cannot be written any more (", conditionMessage(e), "): ", log$file, ". The fit goes on.",
              class = "elvi_warning_checkpoint")
  })
}

# the answer of a pass, from the file or by making it
logged_pass <- function(log, task, args, make) {
  if (is.null(log)) return(make())
  key <- pass_key(task, args)
  known <- log$answers[[key]]
  if (!is.null(known)) return(known)
  answer <- make()
  write_record(log, list(key = key, answer = answer))
  answer
}

# by all numbers and texts of the arguments
pass_key <- function(task, args) {
  numbers <- rapply(args, as.double, classes = c("numeric", "integer", "logical"), how = "unlist")
  texts <- rapply(args, identity, classes = "character", how = "unlist")
  paste(task, .Call(elvi_r_checksum, serialize(list(unname(numbers), unname(texts)), NULL, version = 3)))
}
