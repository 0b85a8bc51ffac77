# Prints every message of the package with its place: the strings of calls that raise conditions or refuse an argument.
# usage: Rscript tools/messages.R [pattern of file names]
pattern <- commandArgs(TRUE)[1L]
raising <- c("elvi_abort", "elvi_warn", "elvi_inform", "bad_argument", "unused_argument", "refuse_argument", "need_package",
             "stop", "warning", "message", "packageStartupMessage")

# the strings of a call, those of calls inside it too
strings_of <- function(expression) {
  if (is.character(expression)) return(expression)
  if (!is.call(expression) && !is.pairlist(expression)) return(NULL)
  parts <- as.list(expression)
  skipped <- c("class", "data", "sep", "collapse", "quote", "digits", "pattern")
  if (!is.null(names(parts))) parts <- parts[!names(parts) %in% skipped]
  unlist(lapply(parts, function(part) if (missing(part)) NULL else strings_of(part)))
}

places_of <- function(expression, lines = NULL) {
  if (!is.call(expression) && !is.pairlist(expression)) return(NULL)
  name <- if (is.name(expression[[1L]])) as.character(expression[[1L]]) else ""
  if (name %in% raising) return(list(expression))
  unlist(lapply(as.list(expression), function(part) if (missing(part)) NULL else places_of(part)), recursive = FALSE)
}

# where a call of a top-level expression begins: the first line after its start that has its name and its first string
line_of <- function(call, lines, first, last) {
  name <- as.character(call[[1L]])
  text <- strings_of(call)
  text <- substr(if (length(text)) encodeString(text[which.max(nchar(text))]) else "", 1L, 20L)
  at <- which(grepl(text, lines[first:last], fixed = TRUE))
  opens <- which(grepl(paste0(name, "("), lines[first:last], fixed = TRUE))
  if (!length(at)) return(first + opens[1L] - 1L)
  first + max(opens[opens <= at[1L]], 1L) - 1L
}

files <- list.files("R", "[.]R$", full.names = TRUE)
if (!is.na(pattern)) files <- grep(pattern, files, value = TRUE)
count <- 0L
for (file in files) {
  lines <- readLines(file)
  parsed <- parse(file, keep.source = TRUE)
  refs <- attr(parsed, "srcref")
  for (i in seq_along(parsed)) {
    for (call in places_of(parsed[[i]])) {
      text <- strings_of(call)
      if (!length(text)) next
      count <- count + 1L
      cat(sprintf("%s:%d %s: %s\n", file, line_of(call, lines, refs[[i]][1L], refs[[i]][3L]), as.character(call[[1L]]),
                  paste(encodeString(text), collapse = " | ")))
    }
  }
}
cat(count, "messages\n")
