# Draws of the stochastic algorithm at data larger than memory are made where the rows are: a draw is a function of the
# run's key, the iteration and its number. What a gradient needs of a batch is linear in grad f, sum grad f and
# sum grad f z', so mu and a scale go out and as much comes back, however large the batch.

# What C calls for a batch (src/gradient.c), with the fields of elvi_draws; a run's own `over_draws` in place of all rows.
gathering <- function(model, over_draws, seed, law) {
  law <- law[intersect(c("kind", "par", "dim", "table"), names(law))]   # as much as a draw needs
  function(draws) {
    draws <- c(draws, list(seed = seed, law = law))
    if (!draws$values && !is.null(over_draws)) over_draws(draws) else pass_of(model, "draws", list(draws = draws))
  }
}

# f(z, x) for some of the draws and their points at a time, in order
for_draws <- function(draws, f, most = 512) {
  for (done in seq(0, draws$n - 1, by = most)) {
    z <- .Call(elvi_r_draws, draws$law, draws$seed, draws$iteration, draws$first + done, min(most, draws$n - done))
    f(z, as.double(draws$mu) + root_times(draws$spread, z))
  }
}

# sum g and sum g z', or its diagonal for a diagonal scale, one after the other
sums_over_draws <- function(draws, gradient) {
  total <- 0
  for_draws(draws, function(z, x) {
    g <- gradient(x)
    total <<- total + c(rowSums(g), root_outer(draws$spread, g, z))
  })
  total
}

values_at_draws <- function(draws, value) {
  out <- list()
  for_draws(draws, function(z, x) out <<- c(out, list(as.double(value(x)))))
  unlist(out)
}
