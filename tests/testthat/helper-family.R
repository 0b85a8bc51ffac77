# rules for the expectation of a family's loss: none, for spreads of 0, and that of the gaussian base
point_rule <- list(levels = list(), prior_levels = list(), mgf = "none", mgf_rate = 0, limit = Inf)
gaussian_rule <- function(name) cached_quadrature(law_of(base_gaussian(), 2), name)
