# hsgp(x) and hsgp(x, y): a gaussian process with a squared exponential covariance, by its expansion in the sines of a box around the data
# (Solin and Sarkka, 2020). Given the length scale the coefficients are independent, with the spectral density as variances.

hsgp_kind <- function() structured_kind(
  calls = "hsgp",
  variables = function(call) hsgp_arguments(call)$variables,
  make = function(x, frame, counting, contrasts) list(hsgp_term(x, frame)),
  columns = function(term, frame, smooths) methods::as(hsgp_basis(term, frame), "CsparseMatrix"),
  grid = function(term, frame, n, n_2d) variables_grid(term$variable_names, frame, n, n_2d),
  dense = function(term, filled) TRUE,
  entries = function(term) list(row = seq_along(term$levels), column = seq_along(term$levels), source = seq_along(term$levels)),
  blocked = function(term) TRUE,
  precision = function(term, theta) {
    log_density <- hsgp_log_density(term, theta)
    value <- exp(-log_density)
    list(value = value, inverse = exp(log_density), log_det = -sum(log_density),
         slope = function(S) {
           gain <- (value * S - 1) / 2
           by_length <- length(term$variable_names) - hsgp_decay(term, theta)$slope
           c(2 * sum(gain), sum(gain * by_length))
         })
  },
  # the length is about half of half the range of the data, within a factor of four or so
  log_prior = function(term, theta) {
    sd <- log_prior_positive(term$prior_sd, theta[1L])
    z <- (theta[2L] - log(0.5)) / 0.75
    list(value = sd$value + stats::dnorm(z, log = TRUE) - log(0.75), slope = c(sd$slope, -z / 0.75))
  },
  theta_names = function(term) paste0(c("log sd(", "log length("), term$label, ")"),
  start = function(term, Z, unit) c(log(0.5 * unit), log(0.5)),
  curvature = function(term) c(10, 5),
  natural = function(term, theta) stats::setNames(list(exp(theta[, 1L]), term$half * exp(theta[, 2L])), natural_names(term)),
  natural_names = function(term) c(sd_names(term), paste0("length[", term$label, "]")),
  tidy_names = function(term) c("sd__Observation", "length__hsgp"))

# variables come first, without names; `k` basis functions along each, in a box `c` times as wide as the data
hsgp_arguments <- function(call) {
  arguments <- as.list(call)[-1L]
  given <- names(arguments) %||% rep("", length(arguments))
  unknown <- setdiff(given, c("", "k", "c"))
  if (length(unknown)) refuse_term(call, paste0("it has no argument `", unknown[1L], "`"))
  variables <- unname(arguments[given == ""])
  if (!length(variables) || length(variables) > 2L) refuse_term(call, "it needs one or two variables")
  list(variables = variables, others = arguments[given != ""])
}

hsgp_term <- function(call, frame) {
  arguments <- hsgp_arguments(call)
  names <- vapply(arguments$variables, deparse_one, "")
  p <- length(names)
  k <- as.integer(check_positive(argument_value(arguments, "k", call, frame) %||% c(25, 12)[p], "k"))
  box <- check_number(argument_value(arguments, "c", call, frame) %||% 1.5, "c", 1)
  x <- vapply(names, function(name) numeric_variable(frame, name, call), numeric(nrow(frame)))
  x <- matrix(x, ncol = p)
  middle <- (apply(x, 2L, min) + apply(x, 2L, max)) / 2
  half <- max(apply(x, 2L, max) - middle)   # one length for all variables, which share a unit
  if (!(half > 0)) refuse_term(call, "its variables are constant")
  edge <- box * pmax(apply(x, 2L, max) - middle, 1e-8 * half) / half
  index <- as.matrix(expand.grid(rep(list(seq_len(k)), p)))
  frequency <- rowSums((index * pi / (2 * rep(edge, each = nrow(index))))^2)
  new_structured(deparse_one(call), "hsgp", as.character(seq_len(nrow(index))), variable_names = names, middle = middle, half = half,
                 edge = edge, index = index, frequency = unname(frequency))
}

# rows x basis functions
hsgp_basis <- function(term, frame) {
  out <- 1
  for (j in seq_along(term$variable_names)) {
    name <- term$variable_names[j]
    x <- as.double(frame[[name]])
    at <- (x - term$middle[j]) / term$half + term$edge[j]
    if (any(at < 0 | at > 2 * term$edge[j], na.rm = TRUE)) {
      refuse_argument("newdata", "`", name, "` of `newdata` is outside the box of the term `", term$label,
                      "`. Fit it with a larger `c`, which makes the box wider.")
    }
    out <- out * sin(outer(at, term$index[, j] * pi / (2 * term$edge[j]))) / sqrt(term$edge[j])
  }
  out
}

# log spectral density at the frequencies of the basis, length in units of half the range
hsgp_log_density <- function(term, theta) {
  2 * theta[1L] + length(term$variable_names) * (log(2 * pi) / 2 + theta[2L]) - hsgp_decay(term, theta)$value
}

# What the density has lost from frequency 0, in logarithms, and the derivative in the log length. It never falls below e^-30 of the
# density at 0, so that precisions stay finite.
hsgp_decay <- function(term, theta, most = 30) {
  fall <- exp(2 * theta[2L]) * term$frequency / 2
  list(value = pmin(fall, most) - log1p(exp(-abs(fall - most))), slope = 2 * fall * stats::plogis(most - fall))
}
