# Runs the R code of README.md, puts what it prints below it there, and draws its picture.
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
