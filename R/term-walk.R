# rw1(x) and rw2(x): random walks of order 1 and 2 along the sorted values of x, which may be uneven, one for each level of a factor in
# rw1(x | g). A walk of order 1 adds to 0; what a walk of order 2 adds to its straight line adds to 0 and has no trend, and the
# line is a coefficient.

walk_kind <- function(order) {
  name <- paste0("rw", order)
  structured_kind(
    calls = name,
    make = function(x, frame, counting, contrasts) list(walk_term(x, frame, order)),
    columns = function(term, frame, smooths) walk_columns(term, frame),
    grid = function(term, frame, n, n_2d) series_grid(term, frame, term$values),
    unseen = function(term, frame, allowed) if (order == 1L) walk_unseen(term, frame),
    free = function(term, frame) if (order == 2L) walk_lines(term, frame),
    constraints = function(term) term$structure$constraint,
    entries = structure_entries,
    precision = function(term, theta) scaled_precision(term$structure, theta),
    curvature = function(term) 2 * term$structure$rank)
}

walk_term <- function(call, frame, order) {
  arguments <- term_arguments(call, character())
  name <- deparse_one(arguments$at)
  fields <- chain_fields(arguments, frame)
  x <- numeric_variable(frame, name, call)
  chain <- chain_of(fields, frame)
  grids <- lapply(split(x, chain), function(own) sort(unique(own)))
  if (any(lengths(grids) < order + 2L)) {
    refuse_term(call, paste0("`", name, "` must have at least ", order + 2L, " different values",
                             if (length(fields$chains)) paste0(" in each level of `", paste(fields$by, collapse = ":"), "`")))
  }
  chain <- rep(as.integer(names(grids)), lengths(grids))
  do.call(new_structured, c(list(deparse_one(call), paste0("rw", order), chain_levels(fields, chain, unlist(grids))), fields,
                            list(variable = name, open = fields$by, chain = chain, values = unlist(grids, use.names = FALSE), order = order,
                                 structure = join_structures(lapply(unname(grids), walk_structure, order)))))
}

# Steps between neighbours have a variance in proportion to their length; so have changes of slope, to the distance between the middles of
# the two intervals.
walk_structure <- function(x, order) {
  m <- length(x)
  gap <- diff(x) / mean(diff(x))
  D <- Matrix::bandSparse(m - 1L, m, 0:1, list(rep(-1, m - 1L), rep(1, m - 1L)))
  D <- Matrix::Diagonal(x = 1 / gap) %*% D
  variance <- 1 / gap
  if (order == 2L) {
    variance <- (gap[-1L] + gap[-(m - 1L)]) / 2
    D <- Matrix::bandSparse(m - 2L, m - 1L, 0:1, list(rep(-1, m - 2L), rep(1, m - 2L))) %*% D
  }
  N <- if (order == 1L) cbind(rep(1, m)) else cbind(1, x - mean(x))
  intrinsic_structure(Matrix::crossprod(Matrix::Diagonal(x = 1 / sqrt(variance)) %*% D), t(t(N) / sqrt(colSums(N^2))))
}

# Between two values of x the walk's mean is a straight line. Beyond the last one a walk of order 1 stays where it is, one of order 2
# goes on
# along its last slope.
walk_columns <- function(term, frame) {
  at <- as.double(frame[[term$variable]])
  chain <- chain_of(term, frame)
  i <- j <- integer()
  value <- numeric()
  for (own in unique(chain[!is.na(chain)])) {
    rows <- which(chain == own & !is.na(at))
    columns <- which(term$chain == own)
    x <- term$values[columns]
    left <- pmin(pmax(findInterval(at[rows], x), 1L), length(x) - 1L)
    share <- (at[rows] - x[left]) / (x[left + 1L] - x[left])
    if (term$order == 1L) share <- pmin(pmax(share, 0), 1)
    i <- c(i, rows, rows)
    j <- c(j, columns[left], columns[left + 1L])
    value <- c(value, 1 - share, share)
  }
  if (anyNA(chain)) {
    refuse_argument("newdata", "`newdata` has a level of `", paste(term$by, collapse = ":"), "` that the fit has not seen.")
  }
  used <- value != 0
  out <- Matrix::sparseMatrix(i = i[used], j = j[used], x = value[used], dims = c(nrow(frame), length(term$levels)))
  if (anyNA(at)) out <- out + Matrix::sparseMatrix(i = which(is.na(at)), j = rep(1L, sum(is.na(at))), x = NA_real_, dims = dim(out))
  out
}

# Between its values a walk of order 1 is a bridge; beyond them it continues.
walk_unseen <- function(term, frame) {
  at <- as.double(frame[[term$variable]])
  chain <- chain_of(term, frame)
  rows <- which(is.na(match(paste(chain, at), paste(term$chain, term$values))) & !is.na(at))
  if (!length(rows)) return(NULL)
  at <- at[rows]
  chain <- chain[rows]
  left <- integer(length(rows))   # values of the row's walk that are not beyond it
  for (walk in unique(chain)) left[chain == walk] <- findInterval(at[chain == walk], term$values[term$chain == walk])
  count <- tabulate(term$chain)[chain]
  bound <- function(k) term$values[match(chain, term$chain) - 1L + pmin(pmax(k, 1L), count)]
  from <- bound(left)
  to <- bound(left + 1L)
  key <- paste(chain, format_values(at))
  own <- which(!duplicated(key))
  rate <- walk_rate(term)[chain[own]]
  interval <- paste(chain, left)[own]
  # of places i and j, in units of the squared standard deviation
  between <- function(i, j) {
    low <- pmin(at[own[i]], at[own[j]])
    high <- pmax(at[own[i]], at[own[j]])
    from <- from[own[i]]
    to <- to[own[i]]
    beyond <- ifelse(left[own[i]] == 0L, from - high, low - from)
    rate[i] * (interval[i] == interval[j]) * ifelse(from == to, beyond, (low - from) * (to - high) / ifelse(from == to, 1, to - from))
  }
  each <- seq_along(own)
  new_places(term, rows, key, function(hyper) hyper[[sd_names(term)]]^2 * outer(each, each, between),
             variance = function(hyper) hyper[[sd_names(term)]]^2 * between(each, each))
}

# the variance of a step of length 1 in units of x when the standard deviation is 1, for each walk
walk_rate <- function(term) {
  m <- tabulate(term$chain)
  first <- cumsum(c(1L, m))[seq_along(m)]
  place <- match(paste(first + 1L, first), paste(term$structure$row, term$structure$column))
  1 / (-term$structure$value[place] * (term$values[first + 1L] - term$values[first]))
}

# the straight line of each walk of order 2
walk_lines <- function(term, frame) {
  at <- as.double(frame[[term$variable]])
  chain <- chain_of(term, frame)
  lines <- vapply(unique(term$chain), function(own) ifelse(chain == own, at - mean(term$values[term$chain == own]), 0), numeric(length(at)))
  matrix(lines, length(at), dimnames = list(NULL, paste0(term$label, ".fx", if (length(term$chains)) term$chains else 1L)))
}
