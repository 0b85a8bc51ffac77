# Cross-validation of data larger than memory. The fold of a row is a function of a key, of the place of its chunk and of its number
# there, so that workers know it too. Rows that are left out count zero times, as in memory: design and priors stay those of all rows.

# list(number, key, chunks): whole chunks, or rows at random; with `fold`, the one that is left out
source_folds <- function(folds, K, fit) {
  by_chunk <- identical(folds, "chunk")
  if (!is.null(folds) && !by_chunk) {
    bad_argument("folds", "\"chunk\" (whole chunks are left out) or NULL (rows at random) for data larger than memory", describe(folds))
  }
  list(number = check_count(K, "K", lower = 2, upper = stats::nobs(fit)), chunks = by_chunk, key = draw_key()[1L])
}

# Folds of the n rows of a chunk. `place`: how many shards and chunks are before it.
fold_of_rows <- function(folds, place, n) {
  if (folds$chunks) return(rep(1 + sum(place * c(1, 7919)[seq_along(place)]) %% folds$number, n))
  mixed <- (folds$key + sum((place + 1) * c(2654435761, 40503, 65537)[seq_along(place)])) %% 2^32
  with_key(mixed, (sample.int(n) + sample.int(folds$number, 1L)) %% folds$number + 1)
}

# The task: how often the rows of each fold count, and how many rows it has.
counts_of_folds <- function(model, args) {
  fold <- factor(fold_of_rows(args$folds, args$place, length(model$rows$y)), seq_len(args$folds$number))
  record <- family_records[[args$family]]
  counted <- if (isTRUE(record$dispersion$precision)) as.double(model$rows$weight > 0) else model$rows$weight
  number <- args$folds$number
  by_fold <- function(x) as.double(rowsum(c(x, numeric(number)), c(fold, seq_len(number))))
  vapply(list(counted, rep(1, length(fold))), by_fold, numeric(number))
}

kfold_in_passes <- function(x, K, folds, draws) {
  if (x$method == "mpsgd") bad_argument("x", "an exact fit, or one with groups, where the data are larger than memory", "a stochastic one")
  folds <- source_folds(folds, K, x)
  rows <- source_rows(x)
  counts <- pass_over_rows(rows, "fold_counts", list(folds = folds, family = likelihood_of(x$family)))
  used <- which(counts[, 2L] > 0)
  if (length(used) < 2L || any(sum(counts[, 1L]) - counts[used, 1L] <= 0)) {
    bad_argument("folds", "such that every fold leaves rows that count", "one that leaves none")
  }
  recipe <- replace(rows$recipe, "centre", list(NULL))
  rows$sample <- survey_source(rows$source, recipe, rows$recipe$centre, 0)$sample   # a start for every fold
  key <- fit_key(x)
  drawn <- lapply(seq_len(folds$number), function(k) {
    if (k %in% used) drawn_without(x, replace(rows, "left_out", list(c(folds, fold = k))), counts[k, 1L], draws, key)
  })
  own <- posterior_draws(uncorrected(x$posterior), draws, key)   # as fits without a fold are
  table <- at_chunks(x, "kfold_of_chunk", list(drawn = drawn, own = own, key = key, folds = folds))[[1L]]
  new_kfold(table[1L, ], table[2L, ], table[3L, ], class(x)[1L])
}

# Draws of the posterior without a fold.
drawn_without <- function(fit, rows, count, draws, key) {
  if (is.null(fit$nested)) {
    model <- fit$given$model
    model$rows <- rows
    other <- with_key(fit$plan$seed, elvi.elvi_model(model, base = fit$base, method = "exact", control = refit_control(fit),
                                                     correct = FALSE))
    if (!other$converged) warn_fold(rows)
    return(posterior_draws(other$posterior, draws, key))
  }
  problem <- nested_without(fit$given$problem, rows, count)
  nested <- nested_fit(problem, fit$base, c(fit$control[c("nodes", "progress")], if (!is.null(problem$summed)) list(draws = 0)))
  if (!nested$converged) warn_fold(rows)
  posterior_draws(nested_posterior(nested, problem, fit$posterior$key), draws, key)
}

nested_without <- function(problem, rows, count) {
  problem$count <- problem$count - count
  problem$source <- rows
  if (!is.null(problem$summed)) {
    problem$summed$rows <- rows
    return(problem)
  }
  few <- source_triangle(rows)
  problem[c("X", "y")] <- few[c("X", "y")]
  n <- length(few$y)
  problem[c("weight", "offset", "Z")] <- list(rep(1, n) / (problem$dispersion %||% 1), numeric(n), empty_columns(n, 0L))
  problem["triangle"] <- list(few)
  problem
}

warn_fold <- function(rows) {
  elvi_warn("The fit without fold ", rows$left_out$fold, " did not converge.", class = "elvi_warning_fold")
}

# of a fit of a chunk, see at_chunks(): log densities without the row's fold and with it, and the fold; a column for each row
kfold_of_chunk <- function(x, drawn, own, key, folds, place, most = 5000L) {
  rows <- observed_rows(x)
  fold <- fold_of_rows(folds, place, length(rows$y))
  out <- rbind(numeric(length(fold)), 0, fold)
  for (k in unique(fold)) for (i in split(which(fold == k), (seq_len(sum(fold == k)) - 1L) %/% most)) {
    some <- only_rows(rows, i)
    out[1L, i] <- log_mean_exp(log_lik_at(x, drawn[[k]], key, some))
    out[2L, i] <- log_mean_exp(log_lik_at(x, own, key, some))
  }
  list(out)
}
