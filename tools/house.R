# The size of the house, counted: code, generics, long files, questions about kinds outside their files, C functions with many arguments.
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

# ---- questions about kinds -----------------------------------------------------------------------------

# Lines of `files` with one of the patterns, as file:line.
places <- function(files, patterns) {
  unlist(lapply(files, function(file) {
    lines <- readLines(file.path("R", file))
    hit <- grep(paste(patterns, collapse = "|"), sub("(^|\\s)#.*", "", lines), perl = TRUE)
    if (length(hit)) sprintf("  %s:%d: %s", file, hit, trimws(lines[hit]))
  }))
}
others <- function(own) grep(own, basename(files), value = TRUE, invert = TRUE)
report <- function(what, found) {
  cat(sprintf("%d places that ask what kind of %s\n", length(found), what))
  writeLines(as.character(found))
}

# What a posterior is (hyperparameters, weighted points, corrected margins or effects, several components, a stack) is asked by what its
# own files define for it: is_*() and has_*(), and by its fields.
own <- grep("^posterior", basename(files), value = TRUE)
defined <- unlist(code[own])
predicates <- sub(" <- .*", "", grep("^(is|has|knows|needs|asks)_\\w+ <- function\\(posterior\\b", defined, value = TRUE))
fields <- "(hyper|points|margins|effects|weighted|gaussian_because|cumulants|of_words)"
report("posterior a fit has", c(
  places(others("^posterior"), c(sprintf("(?<![\\w.])(%s)\\(", paste(predicates, collapse = "|")),
                                 sprintf("(posterior|post|approximation|shown|moved|corrected)(\\$%s\\b|\\[\\[?\"%s\")", fields, fields),
                                 "length\\([\\w$]*posterior\\$weight\\) *(==|!=|[<>])", "is\\.null\\(drawn\\$hyper\\)",
                                 "(NCOL|ncol)\\([\\w$]*posterior\\$location\\) *(==|!=|[<>])", "inherits\\([\\w$]*posterior,")),
  places(others("^(posterior|judge-stack)"), c("\\$stack\\b", "is_stack\\("))))
report("root or scale", places(others("^(root|scale)"), c(
  "is\\.(matrix|numeric|list)\\((root|scale|[\\w$]*\\$(root|scale))\\)", "inherits\\([\\w$]*(root|scale)s?,",
  "(class|NCOL|NROW|dim)\\((root|scale|[\\w$]*\\$(root|scale))\\) *[=!]=", "is\\.null\\(dim\\((root|scale|[\\w$]*\\$(root|scale))\\)\\)")))

# ---- C -----------------------------------------------------------------------------------------------------

# comments and strings of C have no braces or brackets that open a function
many <- unlist(lapply(list.files("src", "[.]c$", full.names = TRUE), function(file) {
  text <- gsub("(?s)/\\*.*?\\*/", "", paste(readLines(file), collapse = "\n"), perl = TRUE)
  heads <- regmatches(text, gregexpr("(?<=\\n)[a-z][\\w \\*]*?\\w+\\([^(){};]*\\)\\n\\{", text, perl = TRUE))[[1L]]
  arguments <- lengths(strsplit(sub(".*\\(", "", heads), ","))
  name <- sub("\\(.*", "", sub(".*[ *](\\w+\\()", "\\1", gsub("\n", " ", heads)))
  sprintf("%s %d", name, arguments)[arguments > 6L & !startsWith(name, "elvi_r_")]
}))
# has BLAS's arguments, which its readers know
mirrors <- grepl("^elvi_gemm ", many)
cat(sprintf("%d functions of the core with more than six arguments: %s; apart from those with the arguments of BLAS: %s\n", sum(!mirrors),
            toString(many[!mirrors]), toString(many[mirrors])))
