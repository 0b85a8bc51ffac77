# Runs the R code of README.md, puts what it prints below it there, draws its picture, and writes the home page of the site, which
# shows the fit beside the picture.
# usage: R_LIBS=build/lib Rscript tools/readme.R
lines <- readLines("README.md")
pdf(NULL)   # plot() draws nowhere
fence <- which(startsWith(lines, "```"))
opens <- which(lines == "```r")[1L]
closes <- fence[fence > opens][1L]
code <- lines[(opens + 1L):(closes - 1L)]
set.seed(1)
shown <- unlist(lapply(parse(text = code), function(expression) {
  printed <- capture.output({
    value <- withVisible(eval(expression, globalenv()))
    if (value$visible) print(value$value)
  })
  if (length(printed)) c(printed, "")
}))
below <- fence[fence > closes][1:2]
lines <- c(lines[seq_len(below[1L])], shown[-length(shown)], lines[below[2L]:length(lines)])
writeLines(lines, "README.md")
picture <- ggplot2::autoplot(fit) +
  ggplot2::labs(subtitle = "Diabetes in Pima women")
ggplot2::ggsave("man/figures/README-pima.png", picture, width = 7, height = 4.5, dpi = 110, bg = "white")

ggplot2::ggsave("man/figures/home-pima.png", picture, width = 3.7, height = 4.4, dpi = 150, bg = "white")

section <- function(name) which(lines == paste("##", name))
options(width = 60)   # of half a page
printed <- capture.output(print(fit))
code <- code[seq_len(which(code == "fit"))]
home <- c(lines[seq_len(section("Install") - 1L)],
          ":::: {.row}", "::: {.col-xl-7 .certificate}", "```r", code, "```", "", "```", printed, "```", ":::",
          "::: {.col-xl-5 .forest}", sub("README-pima", "home-pima", lines[startsWith(lines, "![")]), ":::", "::::", "",
          lines[which(startsWith(lines, "Read the last lines")):(section("What each package gives you") - 1L)],
          lines[section("Install"):(section("A first fit") - 1L)], lines[section("What each package gives you"):length(lines)])
writeLines(home, "pkgdown/index.md")
