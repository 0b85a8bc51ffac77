# Markov chains of any log density, for the references of families-groups.R and parts.R: `target` is list(start, at), where at(v) has
# the log density at each column of v. Returns parameters x chains x kept rounds.

# Half of the chains move by differences of the other half, which leaves the distribution of all as it is.
run_chains <- function(target, chains = 80L, rounds = 5000L, warmup = min(2000L, 3L * rounds %/% 10L), keep = 4L) {
  set.seed(1)
  D <- length(target$start)
  v <- target$start + 0.1 * matrix(rnorm(D * chains), D)
  value <- target$at(v)
  half <- split(seq_len(chains), rep(1:2, length.out = chains))
  kept <- vector("list", (rounds - warmup) %/% keep)
  for (r in seq_len(rounds)) {
    for (k in 1:2) {
      moving <- half[[k]]
      others <- half[[3L - k]]
      pair <- vapply(moving, function(i) sample(others, 2L), c(0L, 0L))
      by <- if (r %% 10L == 0L) 1 else 2.38 / sqrt(2 * D) * exp(runif(length(moving), -0.7, 0.3))
      to <- v[, moving] + rep(by, each = D) * (v[, pair[1, ]] - v[, pair[2, ]]) + 1e-4 * rnorm(D * length(moving))
      there <- target$at(to)
      accepted <- log(runif(length(moving))) < there - value[moving]
      v[, moving[accepted]] <- to[, accepted]
      value[moving[accepted]] <- there[accepted]
    }
    if (r > warmup && (r - warmup) %% keep == 0L) kept[[(r - warmup) %/% keep]] <- v
  }
  array(unlist(kept), c(D, chains, length(kept)))
}
