# A copy on disk of the rows of a source, as numbers: a text file or a query is then read and made into a design once,
# in the survey of a fit, and later passes read the copy. It belongs to one recipe, and every survey makes it anew.

# `limit` is in bytes. What is known of the copy at hand is in the environment, since sources are passed around by value.
new_copy <- function(limit) {
  limit <- check_number_of_bytes(limit)
  if (limit == 0) return(NULL)
  copy <- list2env(list(limit = limit, path = NULL, recipe = NULL, process = NULL), parent = emptyenv())
  reg.finalizer(copy, drop_copy, onexit = TRUE)
  copy
}

check_number_of_bytes <- function(limit) {
  if (!is.numeric(limit) || length(limit) != 1L || is.na(limit) || limit < 0) {
    bad_argument("cache", "a number of bytes, or 0", describe(limit))
  }
  as.double(limit)
}

# A forked process has its parent's notes, but not its files.
drop_copy <- function(copy) {
  if (identical(copy$process, Sys.getpid())) unlink(copy$path)
  copy$path <- copy$recipe <- copy$process <- NULL
}

is_copied <- function(copy, recipe) {
  !is.null(copy$path) && identical(copy$process, Sys.getpid()) && identical(copy$recipe, uncentred(recipe)) && file.exists(copy$path)
}

uncentred <- function(recipe) {
  recipe["centre"] <- list(NULL)
  recipe
}

# ---- reading ---------------------------------------------------------------------------------

# The rows of a source: `read()` gives those of the next chunk that has any, with their sums, or NULL at the end.
open_rows <- function(source, recipe, task) {
  if (task == "survey") return(open_fresh(source, recipe, FALSE, start_copy(source$copy, recipe)))
  if (is_copied(source$copy, recipe)) open_copy(source$copy) else open_fresh(source, recipe, TRUE, no_copy)
}

open_fresh <- function(source, recipe, seen, copy) {
  chunks <- source$open(if (seen) recipe$columns else surveyed_columns(source, recipe))
  at <- 0
  sample <- NULL
  list(read = function() {
    repeat {
      chunk <- chunks$read()
      if (is.null(chunk)) {
        copy$finish()
        return(NULL)
      }
      at <<- at + 1
      if (!seen) sample <<- in_chunk(chunk_place(chunks, at), add_to_sample(recipe, sample, chunk, at))
      rows <- in_chunk(chunk_place(chunks, at), recipe_rows(recipe, chunk, seen))
      if (is.null(rows)) next
      piece <- list(rows = rows, check = check_sums(rows, recipe), place = at - 1)
      copy$add(piece)
      return(piece)
    }
  }, sample = function() sample, close = function() {
    chunks$close()
    copy$close()
  })
}

# A reader that selects columns does not show whether one that the first chunk lacks is in another.
surveyed_columns <- function(source, recipe) {
  if (isTRUE(source$selects) && length(c(recipe$foreign, recipe$all))) NULL else recipe$columns
}

open_copy <- function(copy) {
  con <- file(copy$path, "rb")
  left <- copy$pieces
  list(read = function() {
    if (left == 0) return(NULL)
    left <<- left - 1
    reading_rows(unserialize(con), "the copy on disk")
  }, sample = function() NULL, close = function() close(con))
}

# ---- writing ---------------------------------------------------------------------------------

# of the numbers, which are most of it
bytes_of <- function(rows) {
  entries <- if (is_sparse(rows$X)) 1.5 * length(rows$X$entry) else length(rows$X)
  8 * (entries + 3 * length(rows$y))
}

no_copy <- list(add = function(piece) NULL, finish = function() NULL, close = function() NULL)

# A copy that fails, or would be too large, is given up: the rows are where they were.
start_copy <- function(copy, recipe) {
  if (is.null(copy)) return(no_copy)
  drop_copy(copy)
  path <- tempfile(paste0("elvi", Sys.getpid(), "-"), fileext = ".rows")
  con <- file(path, "wb")
  bytes <- pieces <- 0
  give_up <- function(why) {
    if (is.null(con)) return(invisible())
    close(con)
    con <<- NULL
    unlink(path)
    if (!is.null(why)) elvi_inform("No copy of the rows is kept: ", why, ". Every pass reads the source.", class = "elvi_message_cache")
  }
  list(add = function(piece) {
    if (is.null(con)) return(invisible())
    piece$rows[c("numeric", "precision")] <- NULL   # for surveys
    bytes <<- bytes + bytes_of(piece$rows)
    if (bytes > copy$limit) return(give_up(paste("it would take more than `cache` =", format(copy$limit), "bytes")))
    pieces <<- pieces + 1
    tryCatch(serialize(piece, con, xdr = FALSE), error = function(e) give_up(conditionMessage(e)))
  }, finish = function() {
    if (is.null(con)) return(invisible())
    close(con)
    con <<- NULL
    if (isTRUE(file.size(path) >= bytes)) {   # what is buffered is lost without an error where the disk is full
      copy$path <- path
      copy$recipe <- uncentred(recipe)
      copy$pieces <- pieces
      copy$process <- Sys.getpid()
    } else {
      unlink(path)
    }
  }, close = function() give_up(NULL))
}
