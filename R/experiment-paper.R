paper_experiments <- function() list()
