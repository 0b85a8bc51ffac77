# Makes a site of pkgdown self-contained: nothing is loaded from other servers or from files of the machine that built it.
# Formulas become MathML, which browsers draw by themselves. pkgdown/offline.js has contents, copy buttons and search.

make_offline <- function(site) {
  file.copy(file.path("pkgdown", "offline.js"), file.path(site, "pkgdown.js"), overwrite = TRUE)
  index <- file.path(site, "search.json")
  if (file.exists(index)) {
    writeLines(c("window.elviSearchIndex =", readLines(index, warn = FALSE, encoding = "UTF-8"), ";"), file.path(site, "search-index.js"),
               useBytes = TRUE)
  }
  pages <- list.files(site, "[.]html$", recursive = TRUE, full.names = TRUE)
  for (page in pages) {
    text <- paste(readLines(page, warn = FALSE, encoding = "UTF-8"), collapse = "\n")
    writeLines(with_mathml(without_servers(text)), page, useBytes = TRUE)
  }
  left <- unlist(lapply(pages, function(page) grep("<(script|link)[^>]*(src|href)=\"(https?|file)://", readLines(page, warn = FALSE), value = TRUE)))
  left <- left[!grepl("rel=\"(license|canonical)\"", left)]
  if (length(left)) stop("the site loads files from elsewhere:\n", paste(unique(left), collapse = "\n"))
}

without_servers <- function(text) {
  text <- gsub("(?s)<!--\\[if lt IE 9\\]>.*?<!\\[endif\\]-->", "", text, perl = TRUE)
  text <- gsub("(?s)<script[^>]*src=\"(https?|file)://[^>]*>\\s*</script>", "", text, perl = TRUE)
  gsub("<link[^>]*rel=\"stylesheet\"[^>]*href=\"(https?|file)://[^>]*>", "", text, perl = TRUE)
}

# <span class="math inline">\(x\)</span> as pandoc writes it for MathJax
with_mathml <- function(text) {
  pattern <- "(?s)<span class=\"math (inline|display)\">\\\\[(\\[](.*?)\\\\[)\\]]</span>"
  at <- gregexpr(pattern, text, perl = TRUE)
  spans <- regmatches(text, at)[[1L]]
  if (!length(spans)) return(text)
  tex <- gsub("^[^>]*>\\\\[(\\[]|\\\\[)\\]]</span>$", "", spans, perl = TRUE)
  tex <- gsub("&amp;", "&", gsub("&lt;", "<", gsub("&gt;", ">", tex)))
  sign <- ifelse(grepl("math display", spans), "$$", "$")
  source <- tempfile(fileext = ".md")
  writeLines(paste0(sign, trimws(tex), sign, "\n\n<!-- next -->\n"), source, useBytes = TRUE)
  made <- system2("pandoc", c("-f", "markdown", "-t", "html", "--mathml", "--wrap=none", shQuote(source)), stdout = TRUE)
  made <- strsplit(paste(made, collapse = "\n"), "<!-- next -->", fixed = TRUE)[[1L]][seq_along(spans)]
  regmatches(text, at)[[1L]] <- gsub("^\\s*<p>|</p>\\s*$", "", trimws(made))
  text
}
