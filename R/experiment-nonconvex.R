nonconvex_experiments <- function() list()
