# Hyperparameters of a problem: those of each latent term (term.R), then those of the family (family.R), on a scale without bounds.
# See docs/internals.Rmd.

# Where everything is: `terms` has for each term its places in theta and its sources among those of A; `family` the places of the
# family's own.
hyper_layout <- function(problem) {
  at <- 0L
  source <- ncol(problem$X)
  names <- list()
  slots <- lapply(problem$terms, function(term) {
    record <- term_record(term)
    mine <- record$theta_names(term)
    entries <- record$entries(term)
    slot <- list(theta = at + seq_along(mine), source = source + seq_len(max(0L, entries$source)), entries = entries)
    at <<- at + length(mine)
    source <<- source + length(slot$source)
    names <<- c(names, list(mine))
    slot
  })
  family <- at + seq_along(problem$hyper)
  likelihood <- likelihood_of(problem$family)
  layout <- list(terms = slots, family = family, likelihood = likelihood, classes = problem$family$levels, length = at + length(family),
                 bounded = !lost_rank(problem), blocked = is_blocked(problem))
  c(layout, list(names = c(character(), unlist(names), if (length(family)) hyper_of(layout)$theta_names)))
}

# the record of a family's hyperparameters
hyper_of <- function(layout) hyper_record(family_records[[layout$likelihood]], layout$classes)

# the same, NULL where they are not among the hyperparameters of the layout
own_hyper <- function(layout) if (length(layout$family)) hyper_of(layout)

# log p(theta) and its gradient. Each quadrature point needs it, and the precision below, so both are plain loops.
hyper_prior <- function(problem, layout, theta, own = own_hyper(layout)) {
  theta <- unname(theta)
  value <- 0
  slope <- numeric(layout$length)
  for (t in seq_along(layout$terms)) {
    at <- layout$terms[[t]]$theta
    part <- term_record(problem$terms[[t]])$log_prior(problem$terms[[t]], theta[at])
    value <- value + sum(part$value)
    slope[at] <- part$slope
  }
  if (!is.null(own)) {
    part <- own$log_prior(problem$hyper, theta[layout$family])
    value <- value + sum(part$value)
    slope[layout$family] <- part$slope
  }
  list(value = value, slope = slope)
}

# hyper_prior() at many points: in one call if the only hyperparameter is a positive parameter of the family.
hyper_priors_at <- function(problem, layout, thetas, own = own_hyper(layout)) {
  if (length(layout$terms) || !identical(own$log_prior, first_log_prior)) {
    return(lapply(thetas, hyper_prior, problem = problem, layout = layout, own = own))
  }
  at <- own$log_prior(problem$hyper, as.double(unlist(thetas)))
  lapply(seq_along(thetas), function(i) list(value = at$value[i], slope = at$slope[i]))
}

# Entries of A and their sources: one per fixed coefficient, then those of each term.
hyper_entries <- function(problem, layout) {
  p <- ncol(problem$X)
  fixed <- list(seq_len(p))
  places <- function(field) {
    unlist(c(fixed, Map(function(term, slot) p + term$columns[slot$entries[[field]]], problem$terms, layout$terms)))
  }
  list(row = places("row"), column = places("column"),
       source = as.integer(unlist(c(fixed, lapply(layout$terms, function(slot) slot$source[slot$entries$source])))),
       constraint = hyper_constraints(problem))
}

# Linear functions of the unknowns that are 0, in columns; NULL without any. They are orthonormal: terms share no unknowns.
hyper_constraints <- function(problem) {
  d <- ncol(problem$X) + ncol(problem$Z)
  columns <- lapply(problem$terms, function(term) {
    own <- term_record(term)$constraints(term)
    if (is.null(own)) return(NULL)
    out <- matrix(0, d, ncol(own))
    out[ncol(problem$X) + term$columns, ] <- own
    out
  })
  do.call(cbind, columns)
}

count_constraints <- function(problem) {
  sum(vapply(problem$terms, function(term) NCOL(term_record(term)$constraints(term)) * !is.null(term_record(term)$constraints(term)), 0))
}

# The values of the sources, those of the inverse, and log|A| of the part that depends on theta.
hyper_precision <- function(problem, layout, theta) {
  terms <- seq_along(layout$terms)
  at <- vector("list", length(terms))
  log_det <- 0
  for (t in terms) {
    at[[t]] <- term_record(problem$terms[[t]])$precision(problem$terms[[t]], theta[layout$terms[[t]]$theta])
    log_det <- log_det + at[[t]]$log_det
  }
  of <- function(field) unlist(lapply(at, `[[`, field), use.names = FALSE)
  fixed <- problem$prior$precision
  definite <- layout$bounded && all(fixed > 0)
  list(A = as.double(c(fixed, of("value"))), inverse = if (definite && layout$blocked) as.double(c(1 / fixed, of("inverse"))),
       slack = as.double(of("slack")), definite = definite, log_det = log_det, at = at)
}

# directions that no prior bounds
lost_rank <- function(problem) ncol(problem$Z) - sum(vapply(problem$terms, function(term) term_record(term)$rank(term) + 0, 0))

is_blocked <- function(problem) all(vapply(problem$terms, function(term) term_record(term)$blocked(term), NA))

# Derivative of log|A| / 2 - tr(A S) / 2 in theta, S the moments by source.
hyper_chain <- function(layout, precision, moment) {
  slope <- numeric(layout$length)
  for (t in seq_along(layout$terms)) slope[layout$terms[[t]]$theta] <- precision$at[[t]]$slope(moment[layout$terms[[t]]$source])
  slope
}
