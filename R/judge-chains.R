# The verdict in many dimensions, where importance weights are of no use: a few percent of a standard deviation in each of a thousand
# parameters add up to ratios that leave a single draw. Instead chains of Hamiltonian Monte Carlo begin in draws of the approximation
# and move in coordinates whitened by it. Were it the target, they would stay distributed as they began; by how much their means and
# standard deviations change is what is wrong with it, as far as short chains see. Their points correct the fit where they differ from it
# by more than noise.

# list(shift, shifted, ratio, rescaled, drift, drifted, correct, points, ...)
chain_verdict <- function(model, mu, root, key, warmup = chain_warmup, kept = chain_kept) {
  run <- chains_from(guarded_target(model), mu, root, key, warmup = warmup, kept = kept)
  if (kept < chain_kept_most && isTRUE(noise_of_sds(run$x) > most_sd_noise)) {
    kept <- chain_kept_most
    run <- chains_from(guarded_target(model), mu, root, key, warmup = warmup, kept = kept)
  }
  x <- matrix(run$x, model$dim)
  n <- ncol(x)
  sd <- root_sd(root)
  names <- model$names
  mean <- rowMeans(x)
  own_sd <- sqrt(rowSums((x - mean)^2) / (n - 1))
  shift <- abs(mean - mu) / pmax(own_sd, 1e-300)
  ratio <- exp(abs(log(own_sd / sd)))
  half <- seq_len(n / 2)
  drift <- abs(rowMeans(x[, half, drop = FALSE]) - rowMeans(x[, -half, drop = FALSE])) / pmax(own_sd, 1e-300)
  largest <- function(v) if (anyNA(v)) NaN else max(v)
  # squares of discrepancies in units of their noise: 1 in the mean if there are none
  excess <- c(mean(shift^2) * n, mean(log(own_sd / sd)^2) * 2 * n)
  structure(list(shift = largest(shift), shifted = names[which.max(shift)], ratio = largest(ratio), rescaled = names[which.max(ratio)],
                 drift = largest(drift), drifted = names[which.max(drift)], noise = 1 / sqrt(n), draws = n, outside = 0,
                 accept = run$accept, chains = wide_chains, iterations = kept, evaluations = run$evaluations,
                 step = run$step, divergent = run$divergent,
                 correct = any(excess > chain_errors^2) || max(shift) > 6 / sqrt(n),
                 x = x, moments = list(mean = stats::setNames(mean, names), variance = stats::setNames(own_sd^2, names))),
            class = "elvi_chain_verdict")
}

# The largest relative standard error of the standard deviations, by the spread of the chains' own second moments.
noise_of_sds <- function(x) {
  square <- rowMeans((x - rowMeans(x, dims = 1L))^2, dims = 2L)
  max(sqrt(rowSums((square - rowMeans(square))^2) / (ncol(square) - 1) / ncol(square)) / rowMeans(square)) / 2
}

is_by_chains <- function(verdict) !is.null(verdict$chains)

# All chains move together, so that a target of blocks has one block of points for each step. Leapfrog steps of half a period of a
# standard normal distribution; a chain that leaves the domain stays where it was.
chains_from <- function(target, mu, root, key, chains = wide_chains, warmup = chain_warmup, kept = chain_kept, accept = 0.8) {
  d <- length(mu)
  law <- law_of(base_gaussian(), d)
  normal <- function(i) draw_base(law, key, chains, iteration = streams[["chains"]] + i)
  chance <- with_key(key, matrix(stats::runif(2 * (warmup + kept) * chains), 2L * chains))
  energy <- function(w) {
    out <- target$evaluate(mu + root_times(root, w))
    g <- root_crossprod(root, out$gradient)
    bad <- !out$ok | !is.finite(colSums(g))
    g[, bad] <- 0
    list(value = ifelse(bad, Inf, out$value), gradient = g)
  }
  w <- normal(0)
  at <- energy(w)
  step <- min(1, 1.2 / d^0.25)
  x <- array(0, c(d, chains, kept %/% 2L))
  accepted <- divergent <- 0
  for (i in seq_len(warmup + kept)) {
    p <- normal(i)
    before <- at$value + colSums(p^2) / 2
    leaps <- min(most_leaps, max(1L, round(pi / 2 / step * (0.8 + 0.4 * chance[chains + 1L, i]))))
    new <- at
    y <- w
    for (l in seq_len(leaps)) {
      p <- p - step / 2 * new$gradient
      y <- y + step * p
      new <- energy(y)
      p <- p - step / 2 * new$gradient
    }
    off <- before - new$value - colSums(p^2) / 2
    rate <- ifelse(is.finite(off), pmin(1, exp(off)), 0)
    take <- chance[seq_len(chains), i] < rate
    w[, take] <- y[, take]
    at$value[take] <- new$value[take]
    at$gradient[, take] <- new$gradient[, take]
    if (i <= warmup) {
      step <- min(1.5, step * exp((mean(rate) - accept) * 1.5 / sqrt(i)))
    } else {
      if ((i - warmup) %% 2L == 0L) x[, , (i - warmup) %/% 2L] <- mu + root_times(root, w)
      accepted <- accepted + mean(rate) / kept
      divergent <- divergent + sum(!is.finite(off) | off < -1000)
    }
  }
  list(x = x, accept = accepted, divergent = divergent, step = step, evaluations = target$account$evaluations)
}

# Points of equal weight that take the place of the approximation: none where it is as near as they can tell.
chain_points <- function(v) if (v$correct) list(x = v$x, draws = v$draws, moments = v$moments)

# ---- in words ----------------------------------------------------------------------------------------------------

#' @export
verdict_objections.elvi_chain_verdict <- function(v, fit) {
  c(if (!isTRUE(v$accept > 0.4)) {
      sprintf("The chains that check the fit accept %s of their moves: they say nothing of it.", format_share(v$accept))
    },
    if (!isTRUE(v$shift <= most_shift * if (v$correct) chain_reach else 1)) {
      sprintf("Chains that begin in the approximation move the mean of `%s` by %s standard deviations.", v$shifted,
              format(v$shift, digits = 2))
    },
    if (!isTRUE(v$ratio <= if (v$correct) most_ratio^chain_reach else most_ratio)) {
      sprintf("Chains that begin in the approximation change the standard deviation of `%s` by a factor of %s.", v$rescaled,
              format(v$ratio, digits = 3))
    },
    if (!is.null(v$elsewhere)) {
      above <- v$elsewhere$behind < 0
      sprintf(paste("%d of %d searches from far away ended at a different place, %s standard deviations away and %s nats %s:",
                    "there may be more than one mode. The fit is of one%s."), v$elsewhere$number, 2L * distant_pairs,
              format(v$elsewhere$distance, digits = 2), format(abs(v$elsewhere$behind), digits = 2), if (above) "above" else "below",
              if (above) ", which is not the highest found" else "")
    },
    if (!isTRUE(v$drift <= max(most_drift, 10 * v$noise))) {   # five standard errors of a difference of halves
      sprintf("They have not settled: the mean of `%s` moves by %s standard deviations between their halves.", v$drifted,
              format(v$drift, digits = 2))
    })
}

format_share <- function(x) sprintf("%.0f %%", 100 * x)

#' @export
verdict_account.elvi_chain_verdict <- function(v, fit) {
  against <- verdict_objections(v, fit)
  given <- if (!is.null(v$given)) sprintf(" given the best %s", v$given) else ""
  c(sprintf(paste("Checked%s by %d chains of %d Hamiltonian Monte Carlo iterations from the approximation (%s evaluations,",
                  "acceptance %.2f):",
                  "means move by up to %s sd, sds by a factor of up to %s; their noise is %s sd, %s %% of an sd"), given, v$chains,
            v$iterations, format_count(v$evaluations), v$accept, format(v$shift, digits = 2), format(v$ratio, digits = 3),
            format(v$noise, digits = 1), format(100 * v$noise / sqrt(2), digits = 1)),
    if (v$correct && !length(against)) "What is shown are the points of these chains",
    if (length(v$loose)) loose_line(v$loose),
    if (length(against)) paste("Problem:", against)
    else if (isTRUE(fit$result$converged)) paste0("Verdict: no problems found. A mode that neither the search nor these chains came to ",
                                                  "would not be seen")
    else "Verdict: no problems found, but the run did not converge to a tolerance")
}
