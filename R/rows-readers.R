# Readers of files: which files there are, who reads them, the types of their columns, and what is done when a read fails.

# ---- which files -------------------------------------------------------------------------------

# Names, patterns and directories as names of files. `any`: a reader of the user's takes files of any name.
expand_files <- function(files, any) {
  unlist(lapply(files, function(name) {
    if (dir.exists(name)) {
      inside <- sort(list.files(name, full.names = TRUE), method = "radix")   # the same order in every locale
      inside <- inside[!dir.exists(inside)]
      if (!any) inside <- inside[is_known_file(inside)]
      if (!length(inside)) bad_argument("files", "directories with files that can be read", describe(name))
      return(inside)
    }
    if (file.exists(name) || !grepl("[*?[]", name)) return(name)
    found <- sort(Sys.glob(name), method = "radix")
    if (!length(found)) bad_argument("files", "patterns that match a file", describe(name))
    found
  }))
}

is_known_file <- function(files) grepl("\\.(csv|csv\\.gz|csv\\.bz2|csv\\.xz|rds|parquet)$", files, ignore.case = TRUE)

# ---- who reads them ----------------------------------------------------------------------------

# `read(file, columns, types)`; `selects`: it returns the requested columns, and no others
check_reader <- function(reader, files) {
  if (is.function(reader)) {
    selects <- "columns" %in% argument_names(reader)
    return(list(selects = selects, read = function(file, columns, types) if (selects) reader(file, columns = columns) else reader(file)))
  }
  if (is.null(reader) && !is.character(files)) {
    refuse_argument("reader", "`reader` is missing: `files` are not names, so a function has to read them.")
  }
  if (!is.null(reader)) reader <- check_choice(reader, "reader", names(file_readers))
  if (!all(there <- file.exists(files))) bad_argument("files", "names of files that exist", describe(files[!there][1L]))
  kinds <- if (is.null(reader)) vapply(files, reader_by_name, "") else reader
  for (kind in unique(kinds)) need_reader(kind)
  list(selects = all(kinds %in% selecting_readers), read = function(file, columns, types) {
    file_readers[[reader %||% reader_by_name(file)]](file, columns, types)
  })
}

reader_by_name <- function(file) {
  if (grepl("\\.rds$", file, ignore.case = TRUE)) "rds" else if (grepl("\\.parquet$", file, ignore.case = TRUE)) "parquet" else "csv"
}

selecting_readers <- c("fread", "parquet")

need_reader <- function(kind) {
  package <- c(fread = "data.table", parquet = "nanoparquet")[kind]
  if (!is.na(package)) need_package(package, sprintf("The reader \"%s\"", kind))
}

file_readers <- list(
  csv = function(file, columns, types) read_text(file, types, function(classes) utils::read.csv(file, colClasses = classes)),
  fread = function(file, columns, types) {
    read_text(file, types, function(classes) {
      with_text(file, function(...) {
        data.table::fread(..., select = columns, colClasses = classes, data.table = FALSE, showProgress = FALSE)
      })
    })
  },
  parquet = function(file, columns, types) as.data.frame(nanoparquet::read_parquet(file, col_select = columns)),
  rds = function(file, columns, types) readRDS(file))

# fread() leaves compressed files to package 'R.utils', which few have; a file is a chunk, so its text fits in memory.
with_text <- function(file, read) {
  if (!grepl("\\.(gz|bz2|xz)$", file, ignore.case = TRUE)) return(read(file))
  con <- file(file)   # which knows compressed files by their first bytes
  on.exit(close(con))
  read(text = readLines(con))
}

# With the types of its columns; text that is not of its type is left as text, which typed_columns() reports with its column.
read_text <- function(file, types, read) {
  if (is.null(types)) return(read(NA))
  present <- types[names(types) %in% header_of(file)]
  if (!length(present)) return(read(NA))
  plain <- replace(present, present %in% c("factor", "Date"), "character")
  quiet <- function(w) if (grepl("override column", conditionMessage(w), fixed = TRUE)) invokeRestart("muffleWarning")   # of fread()
  withCallingHandlers(or_else(read(plain), read(replace(plain, TRUE, "character"))), warning = quiet)
}

header_of <- function(file) names(utils::read.csv(file, nrows = 1L, colClasses = "character"))

# ---- types of columns --------------------------------------------------------------------------

column_types <- c("character", "factor", "logical", "integer", "numeric", "Date")

check_col_types <- function(types) {
  if (is.null(types)) return(NULL)
  types <- unlist(types)
  if (!is.character(types) || is.null(names(types)) || !all(nzchar(names(types))) || anyDuplicated(names(types))) {
    bad_argument("col_types", "types with the names of their columns", describe(types))
  }
  types[types == "double"] <- "numeric"
  wrong <- which(!types %in% column_types)
  if (length(wrong)) {
    bad_argument("col_types", paste0("of ", toString(dQuote(column_types, FALSE)), " for `", names(types)[wrong[1L]], "`"),
                 describe(types[[wrong[1L]]]))
  }
  types
}

# The columns of a chunk in the requested types.
typed_columns <- function(chunk, types, place) {
  for (name in intersect(names(types), names(chunk))) chunk[[name]] <- as_type(chunk[[name]], types[[name]], name, place)
  chunk
}

as_type <- function(x, type, name, place) {
  if (type_of(x) == type) return(x)
  if (inherits(x, "integer64") && type != "character") x <- as.double(x)
  text <- if (is.factor(x)) as.character(x) else x
  out <- or_null(suppressWarnings(conversions[[type]](text)))
  lost <- if (is.null(out)) !is.na(x) else is.na(out) & !is.na(text) & !(is.character(text) & trimws(text) %in% c("", "NA"))
  if (is.null(out) || any(lost)) {
    refuse_type(place, name, paste0(type_of(x), if (any(lost)) paste0(" (", describe(as.vector(text[lost][1L])), ")")),
                paste0(type, " in `col_types`"))
  }
  out
}

conversions <- list(
  character = as.character, factor = as.factor, numeric = as.numeric, Date = as.Date, logical = as.logical,
  integer = function(x) {
    number <- as.numeric(x)
    replace(suppressWarnings(as.integer(number)), which(number != trunc(number)), NA)
  })

type_of <- function(x) {
  if (is.double(x) && !is.object(x)) "numeric" else class(x)[1L]
}

# Types that go together: numbers of any kind, and text of any kind.
type_group <- function(x) {
  type <- type_of(x)
  if (type %in% c("numeric", "integer", "integer64")) "number" else if (type %in% c("character", "factor", "ordered")) "text" else type
}

# `known` types, with those of the columns of one more chunk, which must go with them. A column of NA only has no type.
agreed_types <- function(known, chunk, columns, place) {
  for (name in intersect(columns %||% names(chunk), names(chunk))) {
    x <- chunk[[name]]
    if (is.logical(x) && all(is.na(x))) next
    before <- known[[name]]
    if (is.null(before)) {
      known[[name]] <- list(type = type_of(x), group = type_group(x), place = place)
    } else if (type_group(x) != before$group) {
      likely <- if ("logical" %in% c(before$type, type_of(x))) setdiff(c(before$type, type_of(x)), "logical") else "character"
      refuse_type(place, name, type_of(x), paste0(before$type, " in ", before$place),
                  paste0(" Give its type for all files, as in `col_types = c(", name, " = \"", likely, "\")`."))
    }
  }
  known
}

refuse_type <- function(place, name, type, other, advice = "") {
  elvi_abort(upper_first(place), ": column `", name, "` is ", type, " here, but ", other, ".", advice,
             class = c("elvi_error_rows", "elvi_error_argument"), data = list(argument = "data", column = name))
}

upper_first <- function(text) paste0(toupper(substr(text, 1L, 1L)), substring(text, 2L))

# ---- reads that fail ---------------------------------------------------------------------------

check_retries <- function(retries, pause) {
  if (!is.numeric(retries) || length(retries) != 1L || is.na(retries) || retries < 0 || retries != trunc(retries)) {
    bad_argument("retries", "a number of times, 0 or more", describe(retries))
  }
  if (!is.numeric(pause) || length(pause) != 1L || is.na(pause) || pause < 0) {
    bad_argument("pause", "a number of seconds, 0 or more", describe(pause))
  }
  list(retries = retries, pause = pause)
}

# run(), again after an error while rows were read, as many times as `again` says
with_retries <- function(again, run) {
  left <- again$retries %||% 0
  repeat {
    out <- tryCatch(list(value = run()), elvi_error_read = function(e) {
      if (left == 0) stop(e)
      e
    })
    if (!inherits(out, "condition")) return(out$value)
    left <- left - 1
    elvi_inform(sub("[.]?$", ".", conditionMessage(out)), " It is tried again in ", format(again$pause), " s.",
                class = "elvi_message_retry")
    Sys.sleep(again$pause)
  }
}
