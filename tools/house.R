# The size of the house, counted: code, generics, long files, C functions with many arguments.
# usage: Rscript tools/house.R

without_comments <- function(lines) lines[!grepl("^\\s*(#|$)", lines)]
files <- list.files("R", full.names = TRUE)
code <- lapply(stats::setNames(files, basename(files)), function(file) without_comments(readLines(file)))
size <- lengths(code)
cat(sprintf("%d files of R, %d lines without comments and blanks; above 400: %s\n", length(files), sum(size),
            toString(sprintf("%s %d", names(size)[size > 400], size[size > 400]))))

namespace <- readLines("NAMESPACE")
exported <- sub("^export\\((.*)\\)$", "\\1", grep("^export", namespace, value = TRUE))
methods <- sub('^S3method\\("?([^",]+)"?,.*', "\\1", grep("^S3method", namespace, value = TRUE))
made <- unlist(regmatches(unlist(code), gregexpr('(?<=UseMethod\\(")[^"]+', unlist(code), perl = TRUE)))
internal <- setdiff(unique(made), exported)
number <- vapply(internal, function(name) sum(methods == name), 0L)
cat(sprintf("%d exports, %d internal generics, with exactly two methods %d: %s\n", length(exported), length(internal), sum(number == 2L),
            toString(internal[number == 2L])))

# comments and strings of C have no braces or brackets that open a function
many <- unlist(lapply(list.files("src", "[.]c$", full.names = TRUE), function(file) {
  text <- gsub("(?s)/\\*.*?\\*/", "", paste(readLines(file), collapse = "\n"), perl = TRUE)
  heads <- regmatches(text, gregexpr("(?<=\\n)[a-z][\\w \\*]*?\\w+\\([^(){};]*\\)\\n\\{", text, perl = TRUE))[[1L]]
  arguments <- lengths(strsplit(sub(".*\\(", "", heads), ","))
  name <- sub("\\(.*", "", sub(".*[ *](\\w+\\()", "\\1", gsub("\n", " ", heads)))
  sprintf("%s %d", name, arguments)[arguments > 6L & !startsWith(name, "elvi_r_")]
}))
cat(sprintf("%d functions of the core with more than six arguments: %s\n", length(many), toString(many)))
