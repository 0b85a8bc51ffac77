# "Data larger than memory": what a pass over rows costs, and what goes over the wire.

pass_experiments <- function() {
  list(passes = list(title = "CPU seconds and bytes of a pass of the exact solver over rows", run = run_passes, draw = draw_passes))
}

# CPU seconds of one thread, so that other processes count for little; the shortest of `rounds`.
run_passes <- function(rows = 1e5, dims = c(5, 10, 20, 40, 80), rounds = 7, seed = 1) {
  rows <- check_count(rows, "rows", lower = 1000)
  dims <- check_counts(dims, "dims")
  rounds <- check_count(rounds, "rounds")
  old <- options(elvi.threads = 1L)
  on.exit(options(old))
  data <- bind_rows(lapply(dims, function(d) seeded(check_count(seed, "seed", lower = 0), one_pass(rows, d, rounds))))
  clock <- pmax(data$seconds, 1e-3)   # it ticks in milliseconds
  line <- stats::coef(stats::lm(I(1e9 * seconds / rows) ~ I(dim^2), data, weights = (rows / (1e9 * clock))^2))
  list(data = data, numbers = list(nanoseconds_per_row = max(line[[1L]], 0), nanoseconds_per_row_and_d2 = line[[2L]],
                                   extra_bytes = max(data$sent + data$returned - 2 * 8 * (data$dim^2 + data$dim))))
}

# of a shard that is in memory, as a worker does it
one_pass <- function(rows, dim, rounds) {
  X <- matrix(stats::rnorm(rows * dim), rows)
  X[, 1L] <- 1
  y <- as.double(stats::runif(rows) < stats::plogis(X[, 1L] / 2))
  recipe <- new_recipe("matrices", "logit")
  shard <- list2env(list(data = list(X = X, y = y)), parent = emptyenv())
  likelihood <- likelihood_part(list(likelihood = "logit", error_df = Inf, dim = dim, dispersion_at = 0))
  args <- list(likelihood = likelihood, law = law_of(base_gaussian(), dim), kind = "symmetric", mu = numeric(dim),
               scale = diag(2 / sqrt(rows), dim))
  request <- list(id = "passes", task = "exact", args = args, centre = NULL, threads = 1, key = 1, shards = 1)
  answer <- shard_task(shard, recipe, request)
  seconds <- min(vapply(seq_len(rounds), function(i) sum(system.time(shard_task(shard, recipe, request))[1:2]), 0))
  bytes <- function(x) length(serialize(x, NULL))
  data.frame(rows = rows, dim = dim, seconds = seconds, sent = bytes(request), returned = bytes(list(answer = answer)))
}

draw_passes <- function(x, ...) {
  check_dots(list(...), character(), "plot() on this experiment")
  line <- data.frame(dim = seq(1, max(x$data$dim)))
  line$seconds <- (x$numbers$nanoseconds_per_row + x$numbers$nanoseconds_per_row_and_d2 * line$dim^2) * 1e-9
  ggplot2::ggplot(x$data, ggplot2::aes(x = .data$dim, y = 1e9 * .data$seconds / .data$rows)) +
    ggplot2::geom_line(ggplot2::aes(y = 1e9 * .data$seconds), line, colour = "grey60") +
    ggplot2::geom_point() +
    ggplot2::labs(x = "coefficients d", y = "nanoseconds per row and pass") + ggplot2::theme_minimal(base_size = 11)
}
