rate_experiments <- function() list()
