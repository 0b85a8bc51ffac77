# A sample of the rows of a source, taken by the survey of a fit. It is a start for the solver, and the model between two passes.
#
# Every row has a random key. The sample has the rows with the smallest keys of all, and for each column those with the smallest
# keys among the rows in which it is not 0, and likewise for each level of a factor that has no column: so a rare level is there with all
# its rows. A row is in the sample if its
# key is below the threshold of one of its columns, and counts for 1 / threshold rows. Samples of parts can be joined.

# Rows of all, and of each column, of so many numbers each; NULL where they would be too many numbers, or too few rows to be of use.
sample_size <- function(columns, per_row = columns, numbers = 2e6) {
  most <- floor(min(getOption("elvi.sampled_rows", 2e4), numbers / per_row))
  if (most >= max(1000, 10 * columns)) list(most = most, each = max(50, most %/% (2 * columns)))
}

# The sample of a chunk, whose sums are `check`.
sample_of_rows <- function(rows, check, size = sample_size(rows$dim, rows$per_row %||% rows$dim)) {
  if (is.null(size) || !is.null(dim(rows$y)) || length(rows$y) != rows$n) return(NULL)
  key <- with_key(floor(2^32 * (sum(check * sqrt(seq_along(check) + 1)) %% 1)), stats::runif(rows$n))
  size$coded <- rows$coded
  trimmed_sample(list(rows = rows[intersect(c("layout", "X", "y", "weight", "offset", "Z", "dim", "stored"), names(rows))], key = key,
                      size = size))
}

# NULL where a part has none: the sample of the others would not be one of all rows
join_row_samples <- function(a, b) {
  if (is.null(a) || is.null(b) || a$rows$layout != b$rows$layout) return(NULL)
  rows <- a$rows
  rows$X <- if (is_sparse(rows$X)) bind_sparse(a$rows$X, b$rows$X) else rbind(a$rows$X, b$rows$X)
  if (!is.null(rows$Z)) rows$Z <- rbind(a$rows$Z, b$rows$Z)
  for (name in c("y", "weight", "offset")) rows[[name]] <- c(a$rows[[name]], b$rows[[name]])
  trimmed_sample(list(rows = rows, key = c(a$key, b$key), size = a$size))
}

# The rows that the sample of all may have, by what these rows tell; one more of each kind, whose key is the threshold.
trimmed_sample <- function(sample) {
  by_key <- order(sample$key)
  keep <- logical(length(by_key))
  keep[utils::head(by_key, sample$size$most + 1)] <- TRUE
  for (i in rows_by_column(sample$rows, by_key, sample$size$coded)) keep[utils::head(i, sample$size$each + 1)] <- TRUE
  sample$rows <- part_of_rows(sample$rows, which(keep))
  sample$key <- sample$key[keep]
  sample
}

# Of each column that is 0 in some rows, the others in the order `by_key`; and of each set of columns, rows in which all of them are 0
rows_by_column <- function(rows, by_key, sets = NULL) {
  if (is_sparse(rows$X)) {
    row <- rep(seq_along(by_key), diff(rows$X$start))
    place <- order(by_key)   # of a row
    some <- lapply(sets, function(j) seq_along(by_key) %in% row[rows$X$column %in% (j - 1L)])
    return(c(lapply(unname(split(row, rows$X$column)), function(i) i[order(place[i])]), lapply(some, function(s) by_key[!s[by_key]])))
  }
  first <- rows$X[utils::head(by_key, 50L), , drop = FALSE] == 0
  c(lapply(which(colSums(first) > 0), function(j) by_key[rows$X[by_key, j] != 0]),
    lapply(sets, function(j) by_key[rowSums(rows$X[by_key, j, drop = FALSE] != 0) == 0]))
}

part_of_rows <- function(rows, i) {
  rows$X <- if (is_sparse(rows$X)) sparse_subset(rows$X, i) else rows$X[i, , drop = FALSE]
  if (!is.null(rows$Z)) rows$Z <- rows$Z[i, , drop = FALSE]
  for (name in c("y", "weight", "offset")) rows[[name]] <- rows[[name]][i]
  rows
}

bind_sparse <- function(a, b) {
  replace(a, c("start", "column", "entry", "dim"),
          list(c(a$start, b$start[-1L] + length(a$column)), c(a$column, b$column), c(a$entry, b$entry),
               c(a$dim[1L] + b$dim[1L], a$dim[2L])))
}

# The sample as rows in memory that stand for all rows of the source, `rows`. `even`: those that were drawn from all rows alike, each with
# its own weight. NULL without a sample.
sampled_rows <- function(rows, even = FALSE) {
  sample <- rows$sample
  if (is.null(sample)) return(NULL)
  n <- length(sample$key)
  threshold <- function(i, most) if (length(i) > most) sample$key[i[most + 1]] else 1
  by_key <- order(sample$key)
  chance <- rep(threshold(by_key, sample$size$most), n)
  if (!even) for (i in rows_by_column(sample$rows, by_key, sample$size$coded)) {
    chance[i] <- pmax(chance[i], threshold(i, sample$size$each))
  }
  few <- part_of_rows(sample$rows, which(sample$key < chance))
  if (!even) few$weight <- few$weight / chance[sample$key < chance]
  few <- replace(few, c("n", "count", "constant"), list(as.double(length(few$y)), rows$count, rows$constant))
  few <- shifted_by(few, rows$recipe$centre)
  if (is.null(rows$weighing)) few else reweighed(few, rows$weighing$variance, rows$weighing$earlier)
}

# A fit need not keep the sample.
without_samples <- function(given) {
  if (is.list(given$model$rows)) given$model$rows["sample"] <- NULL
  if (is.list(given$problem$source)) given$problem$source["sample"] <- NULL
  if (is.list(given$problem$summed$rows)) given$problem$summed$rows["sample"] <- NULL
  given
}
