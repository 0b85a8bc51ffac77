# The passes of an exact or nested fit, in a file: elvi_control(checkpoint = ). The solvers make the same steps whenever they are called, so
# the same call after a crash needs the same passes, and those in the file are not made again. Records are appended, one
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
  unwritable <- function(e) bad_checkpoint(file, paste0("a file that can be written (", conditionMessage(e), ")"))
  tryCatch(if (file.exists(file)) read_pass_log(log, header) else replace_file(record_bytes(header), file), elvi_write_failed = unwritable)
  log$con <- tryCatch(suppressWarnings(file(file, "ab")), error = unwritable)
  log
}

# Of a file that was cut off, the whole records.
read_pass_log <- function(log, header) {
  bytes <- checkpoint_bytes(log$file)
  whole <- whole_records(bytes)
  found <- if (length(whole$records)) whole$records[[1L]]
  if (!is.list(found) || !identical(found$kind, header$kind)) {
    bad_checkpoint(log$file, "a file with the passes of an exact fit", "another file, or a damaged one")
  }
  same <- vapply(c("version", "n", "labels"), function(name) identical(found[[name]], header[[name]]), NA)
  differs <- c(names(same)[!same], if (!isTRUE(all.equal(found$check, header$check, tolerance = 1e-10))) "check")
  if (length(differs)) bad_checkpoint(log$file, "that of the same model and rows", "another one", differs)
  records <- whole$records[-1L]
  if (!all(vapply(records, is_pass, NA))) refuse_values(log$file)
  if (whole$end < length(bytes)) replace_file(bytes[seq_len(whole$end)], log$file)
  if (!length(records)) return(invisible())
  log$answers <- stats::setNames(lapply(records, `[[`, "answer"), vapply(records, `[[`, "", "key"))
  elvi_inform("Resuming from the checkpoint: ", length(records), if (length(records) > 1L) " passes are" else " pass is", " already done.",
              class = "elvi_message_checkpoint")
}

is_pass <- function(record) is.list(record) && is.character(record$key) && length(record$key) == 1L && !is.null(record$answer)

# ---- records -----------------------------------------------------------------------------
# The number of bytes, the bytes and their checksum, as of other checkpoints: what is damaged is never unserialised.

record_bytes <- function(record) {
  bytes <- serialize(record, NULL, version = 2)
  c(writeBin(as.double(length(bytes)), raw(), endian = "big"), bytes, seal(bytes))
}

# Those at the beginning of the bytes of a file that are whole, and where they end.
whole_records <- function(bytes) {
  out <- list(records = list(), end = 0)
  while (!is.null(found <- record_after(bytes, out$end))) {
    out <- list(records = c(out$records, list(found$record)), end = found$end)
  }
  out
}

record_after <- function(bytes, at) {
  if (length(bytes) < at + 8) return(NULL)
  size <- readBin(bytes[at + 1:8], "double", endian = "big")
  end <- at + 8 + size + length(seal(raw()))
  if (!isTRUE(size >= 1 && end <= length(bytes))) return(NULL)
  payload <- bytes[at + 8 + seq_len(size)]
  if (!identical(bytes[seq(at + 9 + size, end)], seal(payload)) || !plainly_serialised(payload)) return(NULL)
  record <- or_null(unserialize(payload))
  if (is_plain(record)) list(record = record, end = end)
}

# A fit does not fail because its record cannot be written.
write_record <- function(log, record) {
  if (log$failed) return(invisible())
  tryCatch({
    writeBin(record_bytes(record), log$con)
    flush(log$con)
  }, error = function(e) {
    log$failed <- TRUE
    elvi_warn("The checkpoint cannot be written any more (", conditionMessage(e), "): ", log$file, ". The fit continues.",
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

# A pass that the file has is joined with the prior's part, whose shape it must have.
refuse_other_shape <- function(log, answer, prior) {
  if (!is.null(log) && !same_shape(answer, prior)) refuse_values(log$file)
}
