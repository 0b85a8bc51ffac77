base_experiments <- function() list()
