# ar1(time | g): a stationary autoregression of order 1 along evenly spaced times, one for each level of g. Its hyperparameters are
# those of the
# stationary series; the innovations' standard deviation takes the place of the series' own in theta, as the data tell it apart from the
# correlation.

ar1_kind <- function() structured_kind(
  calls = "ar1",
  make = function(x, frame, counting, contrasts) list(ar1_term(x, frame)),
  columns = function(term, frame, smooths) {
    place_columns(ar1_index(term, frame), length(term$levels))
  },
  grid = function(term, frame, n, n_2d) series_grid(term, frame, term$origin + term$step * term$place),
  unseen = function(term, frame, allowed) ar1_unseen(term, frame, allowed),
  # ends, inner places, neighbours, and places of a series of length 1
  entries = function(term) {
    m <- length(term$chain)
    joined <- which(term$chain[-1L] == term$chain[-m])
    degree <- tabulate(c(joined, joined + 1L), m)
    list(row = c(seq_len(m), joined + 1L), column = c(seq_len(m), joined), source = c(c(4L, 1L, 2L)[degree + 1L], rep(3L, length(joined))))
  },
  precision = function(term, theta) {
    rho <- tanh(theta[2L])
    rest <- 1 / cosh(theta[2L])^2   # 1 - rho^2, without cancellation
    scale <- exp(-2 * theta[1L])
    value <- scale * c(1, 1 + rho^2, -rho, rest)
    by_z <- scale * c(0, 2 * rho, -1, -2 * rho) * rest
    count <- c(1, 1, 2, 1)
    places <- length(term$chain)
    series <- length(unique(term$chain))
    list(value = value[seq_len(term$sources)], inverse = NULL, log_det = -2 * places * theta[1L] + series * log(rest),
         slope = function(S) {
           S <- c(S, numeric(4L - length(S)))
           c(sum(count * value * S) - places, -series * rho - sum(count * by_z * S) / 2)
         })
  },
  log_prior = function(term, theta) {
    sd <- log_prior_positive(term$prior_sd, theta[1L] + log(cosh(theta[2L])))
    cor <- log_prior_correlation(theta[2L], 2L, term$prior_cor %||% 1)
    list(value = sd$value + cor$value, slope = c(sd$slope, cor$slope + sd$slope * tanh(theta[2L])))
  },
  theta_names = function(term) paste0(c("log sd of innovations(", "z cor("), term$label, ")"),
  start = function(term, Z, unit) c(log(0.5 * unit), 0.5),
  curvature = function(term) length(term$levels) * c(2, 1),
  natural = function(term, theta) stats::setNames(list(exp(theta[, 1L]) * cosh(theta[, 2L]), tanh(theta[, 2L])), natural_names(term)),
  natural_names = function(term) c(sd_names(term), paste0("cor(", term$label, ")")),
  tidy_names = function(term) c("sd__Observation", "cor__ar1"))

ar1_term <- function(call, frame) {
  arguments <- term_arguments(call, "times")
  name <- deparse_one(arguments$at)
  fields <- chain_fields(arguments, frame)
  time <- numeric_variable(frame, name, call)
  more <- argument_value(arguments, "times", call, frame)
  if (!is.null(more)) more <- as.double(check_vector(as.double(more), "times"))
  distinct <- sort(unique(c(time, more)))
  if (length(distinct) < 3L) refuse_term(call, paste0("`", name, "` has fewer than three different times"))
  step <- min(diff(distinct))
  at <- (distinct - distinct[1L]) / step
  if (any(abs(at - round(at)) > 1e-6 * pmax(1, abs(at)))) {
    refuse_term(call, paste0("the times of `", name, "` must be multiples of one step: the smallest distance is ", format(step),
                             ", and ", format(distinct[which.max(abs(at - round(at)))]), " is no multiple of it away from the first. ",
                             "Gaps are fine; hsgp() is for times that are uneven"))
  }
  start <- distinct[1L]
  place <- round((time - start) / step)
  ends <- if (!is.null(more)) round((range(more) - start) / step)
  chain <- chain_of(fields, frame)
  grids <- lapply(split(place, chain), function(own) seq(min(own, ends), max(own, ends)))
  columns <- sum(lengths(grids))
  if (columns > 10 * length(unique(paste(chain, place))) + 1e4) {
    refuse_term(call, paste0("`", name, "` has ", format_count(length(distinct)), " different times among ", format_count(columns),
                             " steps of ", format(step), ". Measure time in larger steps"))
  }
  chain <- rep(as.integer(names(grids)), lengths(grids))
  place <- unlist(grids, use.names = FALSE)
  do.call(new_structured, c(list(deparse_one(call), "ar1", chain_levels(fields, chain, start + step * place)), fields,
                            list(variable = name, open = fields$by, origin = start, step = step, chain = chain, place = place,
                                 sources = if (any(lengths(grids) == 1L)) 4L else 3L)))
}

# Before the first time and after the last one: an exponential way back to 0. Series that the data did not have are drawn anew.
ar1_unseen <- function(term, frame, allowed) {
  rows <- which(is.na(ar1_index(term, frame)) & !is.na(frame[[term$variable]]))
  if (!length(rows)) return(NULL)
  chain <- chain_of(term, frame)[rows]
  place <- (numeric_variable(frame, term$variable, as.name(term$label)) - term$origin)[rows] / term$step
  if (any(abs(place - round(place)) > 1e-6 * pmax(1, abs(place)))) {
    bad_argument("newdata", paste0("with times that are multiples of ", format(term$step), " away from those of the data"),
                 paste("one with", format(frame[[term$variable]][rows][which.max(abs(place - round(place)))])))
  }
  names <- if (length(term$by)) do.call(paste, c(lapply(term$by, function(name) as.character(frame[[name]])[rows]), sep = ":")) else ""
  if (anyNA(chain) && !check_flag(allowed, "allow_new_levels")) {
    refuse_new_level(paste(term$by, collapse = ":"), names[is.na(chain)][1L], " Use allow_new_levels = TRUE to predict for it.")
  }
  place <- round(place)
  first <- match(chain, term$chain)
  last <- length(term$chain) + 1L - match(chain, rev(term$chain))
  after <- place > term$place[last]
  from <- as.integer(ifelse(after, last, first))
  away <- abs(place - term$place[from])
  key <- paste(names, place)
  own <- !duplicated(key)
  side <- paste(names, after)[own]
  known <- function(hyper) ifelse(is.na(away[own]), 0, hyper[[natural_names(term)[2L]]]^away[own])
  covariance <- function(hyper) {
    rho <- hyper[[natural_names(term)[2L]]]
    same <- outer(side, side, `==`)
    hyper[[sd_names(term)]]^2 * same * (rho^abs(outer(place[own], place[own], `-`)) - tcrossprod(known(hyper)))
  }
  columns <- function(hyper) {
    rho <- hyper[[natural_names(term)[2L]]]
    place_columns(from, length(term$levels), (rho^away)[!is.na(from)])
  }
  new_places(term, rows, key, covariance, columns, function(hyper) hyper[[sd_names(term)]]^2 * (1 - known(hyper)^2))
}

# NA at times outside of the series, and for levels that it does not have
ar1_index <- function(term, frame) {
  place <- (numeric_variable(frame, term$variable, as.name(term$label)) - term$origin) / term$step
  whole <- abs(place - round(place)) <= 1e-6 * pmax(1, abs(place))
  match(ifelse(whole, paste(chain_of(term, frame), round(place)), NA), paste(term$chain, term$place))
}
