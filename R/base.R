#' Variational bases
#'
#' elvi approximates a posterior by a distribution of a fixed shape, which it moves and scales. The base is that shape: gaussian
#' by default. Other bases have heavier or lighter tails. Regressions from a formula rarely need one of them.
#'
#' The approximation is `x = mu + Sigma z` with `z` drawn from a spherical base: `z = R u` with `u` uniform on the unit sphere
#' and `R >= 0` an independent radius. Every base is standardized (mean 0, variance 1 in each coordinate), so `Sigma %*% Sigma`
#' is the covariance of `x` whatever the base.
#'
#' | base | distribution of the radius in dimension `d` | log-concave |
#' |---|---|---|
#' | `base_gaussian()` | chi with `d` degrees of freedom | yes |
#' | `base_laplace()` | gamma, shape `d`, rate `sqrt(d + 1)` | yes |
#' | `base_uniform()` | uniform on the ball of radius `sqrt(d + 2)` | yes |
#' | `base_student(df)` | multivariate t, scaled to variance 1 | no |
#' | `base_power(shape)` | density of `z` proportional to `exp(-(c r)^shape)` | if `shape >= 1` |
#' | `base_radial(log_phi)` | density of `z` proportional to `exp(log_phi(r))` | as `log_concave` says |
#'
#' @param df degrees of freedom, greater than 2 (the variance must exist). The
#'   kurtosis is infinite for `df <= 4`, and so are the noise constants of the
#'   convergence theorems.
#' @param shape positive exponent; 1 is the laplace base, 2 the gaussian one.
#' @param log_phi function of a vector of radii returning the log density up to
#'   a constant. It is tabulated once, standardized numerically and sampled from
#'   the table.
#' @param score optional derivative of `log_phi`; numerical when missing.
#' @param log_concave is the density log-concave? `NA` when you do not know;
#'   reported by [base_info()] and used where a theorem asks for it.
#' @return An object of class `elvi_base`.
#' @seealso [base_info()], [base_draws()], [base_log_density()]
#' @examples
#' base_student(df = 6)
#' # your own base: logistic tails
#' base_radial(function(r) -2 * log(cosh(r / 2)), log_concave = TRUE)
#' @name bases
NULL

new_base <- function(kind, ...) structure(list(kind = kind, ...), class = "elvi_base")

#' @rdname bases
#' @export
base_gaussian <- function() new_base("gaussian")

#' @rdname bases
#' @export
base_laplace <- function() new_base("laplace")

#' @rdname bases
#' @export
base_uniform <- function() new_base("uniform")

#' @rdname bases
#' @export
base_student <- function(df) {
  if (missing(df) || !is_number(df) || !is.finite(df) || df <= 2) {
    bad_argument("df", "a finite number greater than 2 (the base needs a variance)",
                 if (missing(df)) "missing" else describe(df))
  }
  new_base("student", df = as.double(df))
}

#' @rdname bases
#' @export
base_power <- function(shape) {
  if (missing(shape)) bad_argument("shape", "a positive number", "missing")
  shape <- check_positive(shape, "shape")
  if (shape < 0.05 || shape > 1000) {
    bad_argument("shape", "between 0.05 and 1000 (other shapes overflow)", describe(shape))
  }
  new_base("power", shape = shape)
}

#' @rdname bases
#' @export
base_radial <- function(log_phi, score = NULL, log_concave = NA) {
  if (missing(log_phi)) bad_argument("log_phi", "a function of the radius", "missing")
  check_function(log_phi, "log_phi")
  if (!is.null(score)) check_function(score, "score")
  if (!is.logical(log_concave) || length(log_concave) != 1L) {
    bad_argument("log_concave", "TRUE, FALSE or NA", describe(log_concave))
  }
  new_base("radial", log_phi = log_phi, score = score, log_concave = log_concave)
}

#' @export
print.elvi_base <- function(x, ...) {
  given <- Filter(is.numeric, unclass(x))
  detail <- if (length(given)) paste0(", ", names(given), " = ", vapply(given, format, ""), collapse = "")
  cat(x$kind, " base", detail, "\n", sep = "")
  invisible(x)
}

# ---- a base in a given dimension --------------------------------------------

log_sphere_area <- function(d) log(2) + d / 2 * log(pi) - lgamma(d / 2)

# log of the constant that makes phi a density of z, from the integral of r^(d-1) phi(r)
log_normaliser <- function(d, log_integral) -log_sphere_area(d) - log_integral

# A law is a base in a given dimension: what C reads (kind, dim, par, table), and what R code uses. `kind` is for words only; nothing else
# may depend on it.
law_entries <- c(
  "par",            # two numbers, see elvi_base in src/base.h
  "log_phi",        # function(r): log density up to log_constant
  "log_constant",
  "mean_log_phi",   # E log phi(R)
  "kurtosis",       # of a coordinate
  "log_concave",
  "path",           # is the path gradient valid? Not where the density jumps
  "edge",           # radius of the support; Inf
  "exponential_limit",   # E exp(s z_1) exists for s below this
  "mgf",            # its closed form in C: "none", or the name there
  "independent",    # are the coordinates of z independent?
  "marginal",       # closed forms of z_1 > 0: list(density(z), upper(z), quantile(tail)); NULL: by quadrature
  "pair_radius",    # function(mass): radius of the disc that holds so much of two coordinates; NULL: by draws
  "key")            # what decides the distribution of z_1, as text; NULL: too much to say

base_laws <- list(
  gaussian = function(base, d) list(
    par = c(0, 0), log_phi = function(r) -r^2 / 2, log_constant = -d / 2 * log(2 * pi),
    mean_log_phi = -d / 2, kurtosis = 3, log_concave = TRUE, path = TRUE,
    edge = Inf, exponential_limit = Inf, mgf = "gaussian", independent = TRUE,
    marginal = list(density = stats::dnorm, upper = function(z) stats::pnorm(z, lower.tail = FALSE),
                    quantile = function(tail) stats::qnorm(tail, lower.tail = FALSE)),
    pair_radius = function(mass) sqrt(stats::qchisq(mass, 2)), key = "gaussian"),

  laplace = function(base, d) {
    rate <- sqrt(d + 1)
    list(par = c(rate, 0), log_phi = function(r) -rate * r,
         log_constant = log_normaliser(d, lgamma(d) - d * log(rate)),
         mean_log_phi = -d, kurtosis = 3 * (d + 3) / (d + 1), log_concave = TRUE, path = TRUE,
         edge = Inf, exponential_limit = rate, mgf = "laplace", independent = FALSE,
         marginal = NULL, pair_radius = NULL, key = paste("laplace", d))
  },

  uniform = function(base, d) {
    radius <- sqrt(d + 2)
    log_c <- lgamma(d / 2 + 1) - lgamma((d + 1) / 2) - log(pi) / 2 - log(radius)
    list(par = c(radius, 0), log_phi = function(r) ifelse(r <= radius, 0, -Inf),
         log_constant = log_normaliser(d, d * log(radius) - log(d)),
         mean_log_phi = 0, kurtosis = 3 * (d + 2) / (d + 4), log_concave = TRUE, path = FALSE,
         edge = radius, exponential_limit = Inf, mgf = "none", independent = FALSE,
         marginal = list(
           density = function(z) {
             ifelse(z < radius, exp(log_c + (d - 1) / 2 * log1p(-pmin(z / radius, 1)^2)), 0)
           },
           upper = function(z) stats::pbeta(pmin(z / radius, 1)^2, 0.5, (d + 1) / 2, lower.tail = FALSE) / 2,
           quantile = function(tail) radius * sqrt(stats::qbeta(2 * tail, 0.5, (d + 1) / 2, lower.tail = FALSE))),
         pair_radius = NULL, key = paste("uniform", d))
  },

  student = function(base, d) {
    df <- base$df
    power <- (df + d) / 2
    unit <- sqrt(df / (df - 2))
    list(par = c(df, 0), log_phi = function(r) -power * log1p(r^2 / (df - 2)),
         log_constant = lgamma(power) - lgamma(df / 2) - d / 2 * log(pi * (df - 2)),
         mean_log_phi = -power * (digamma(power) - digamma(df / 2)),
         kurtosis = if (df > 4) 3 * (df - 2) / (df - 4) else Inf,
         log_concave = FALSE, path = TRUE,
         edge = Inf, exponential_limit = 0, mgf = "none", independent = FALSE,
         marginal = list(density = function(z) stats::dt(z * unit, df) * unit,
                         upper = function(z) stats::pt(z * unit, df, lower.tail = FALSE),
                         quantile = function(tail) stats::qt(tail, df, lower.tail = FALSE) / unit),
         pair_radius = function(mass) sqrt(2 * stats::qf(mass, 2, df) * (df - 2) / df),
         key = paste("student", format(df, digits = 17)))
  },

  power = function(base, d) {
    s <- base$shape
    log_rate <- (lgamma((d + 2) / s) - lgamma(d / s) - log(d)) / 2
    rate <- exp(log_rate)
    log_r4 <- lgamma((d + 4) / s) - lgamma(d / s) - 4 * log_rate
    list(par = c(s, rate), log_phi = function(r) -(rate * r)^s,
         log_constant = log_normaliser(d, lgamma(d / s) - log(s) - d * log_rate),
         mean_log_phi = -d / s, kurtosis = 3 / (d * (d + 2)) * exp(log_r4),
         log_concave = s >= 1, path = TRUE,
         edge = Inf, exponential_limit = if (s > 1) Inf else if (s == 1) rate else 0, mgf = "none", independent = FALSE,
         marginal = NULL, pair_radius = NULL, key = paste("power", format(s, digits = 17), d))
  },

  radial = function(base, d) radial_law(base, d))

law_of <- function(base, dim) {
  out <- base_laws[[base$kind]](base, dim)
  if (!all(law_entries %in% names(out))) {
    lacks <- setdiff(law_entries, names(out))
    stop("the base \"", base$kind, "\" lacks ", toString(lacks), ", see R/base.R")
  }
  c(list(kind = base$kind, dim = as.double(dim)), out, list(entropy = -(out$log_constant + out$mean_log_phi)))
}

support_edge <- function(law) law$edge
exponential_limit <- function(law) law$exponential_limit

# Tabulates a user's radial density: finds where the mass of r^(d-1) phi(r) is,
# standardizes so that E R^2 = d, and lays a table of the distribution of R there.
radial_law <- function(base, d) {
  user <- checked_log_phi(base)
  mass <- radial_mass(user, d)
  m0 <- log_moment(mass, 0)
  log_unit <- (log_moment(mass, 2) - m0 - log(d)) / 2   # log sqrt(E R^2 / d)
  log_phi <- function(r) user(r * exp(log_unit))
  mean_log_phi <- integrate_pieces(function(t) {
    v <- user(exp(t))
    ifelse(v == -Inf, 0, exp(d * t + v - m0) * v)
  }, mass$pieces)
  table <- radial_table(log_phi, d, mass$pieces - log_unit)
  table$score <- radial_score(base, table$r, exp(log_unit))
  ends <- attr(mass$pieces, "edge")
  list(par = c(0, 0), log_phi = log_phi, log_constant = log_normaliser(d, m0 - d * log_unit),
       mean_log_phi = mean_log_phi,
       kurtosis = if (mass$finite_kurtosis) 3 / (d * (d + 2)) * exp(log_moment(mass, 4) - m0 - 4 * log_unit) else Inf,
       log_concave = base$log_concave,
       path = !ends,   # a density that ends at a jump has no path gradient
       edge = if (ends) max(table$r) else Inf, exponential_limit = if (ends) Inf else tail_rate(table$r, table$score),
       mgf = "none", independent = FALSE, marginal = NULL, pair_radius = NULL, key = NULL, table = table)
}

checked_log_phi <- function(base) {
  function(r) {
    v <- base$log_phi(r)
    if (!is.numeric(v) || length(v) != length(r) || anyNA(v) || any(v == Inf)) {
      bad_argument("log_phi", "a function that returns one number per radius (-Inf where the density is 0)",
                   describe_values(v, r, is.na(v) | v == Inf))
    }
    v
  }
}

# Where the mass is, on a grid of t = log r: `log_weight` of r^power phi(r), power = d for the mass itself, and the
# `pieces` of t that hold it.
radial_mass <- function(user, d) {
  log_weight <- function(t, power) power * t + user(exp(t))
  wide <- seq(log(1e-12), log(1e12), length.out = 20001L)
  mass <- log_weight(wide, d)
  if (!any(is.finite(mass))) bad_argument("log_phi", "finite somewhere on (0, 1e12)")
  if (slope_at_end(-rev(wide), rev(mass)) > -1e-6) {
    bad_argument("log_phi", sprintf("integrable near 0 in dimension %g", d), "one that grows too fast there")
  }
  if (slope_at_end(wide, log_weight(wide, d + 2)) > -1e-6) {
    bad_argument("log_phi", "a density with a finite variance", "one whose tails are too heavy")
  }
  # E R^4 weighs by r^(d + 4): its bulk lies further out than the mass
  finite_kurtosis <- slope_at_end(wide, log_weight(wide, d + 4)) <= -1e-6
  reach <- function(w) range(which(w > max(w) - 40))
  window <- range(reach(mass), reach(log_weight(wide, d + if (finite_kurtosis) 4 else 2)))
  window <- c(max(window[1L] - 1L, 1L), min(window[2L] + 1L, length(wide)))
  list(d = d, log_weight = log_weight, wide = wide, goes_on = window[2L] == length(wide), finite_kurtosis = finite_kurtosis,
       pieces = support_pieces(user, wide[window[1L]:window[2L]]))
}

# log of the integral of r^(d + k - 1) phi(r)
log_moment <- function(mass, k) {
  w <- mass$log_weight(mass$wide, mass$d + k)
  bulk <- integrate_pieces(function(t) exp(mass$log_weight(t, mass$d + k) - max(w)), mass$pieces)
  # beyond the grid a power tail continues with its slope at the last point
  tail <- if (mass$goes_on) exp(w[length(w)] - max(w)) / -slope_at_end(mass$wide, w) else 0
  max(w) + log(bulk + tail)
}

# the distribution of R on nodes, evenly spaced in t = log r on each piece
radial_table <- function(log_phi, d, pieces, nodes = 8192L) {
  t <- lapply(seq_len(nrow(pieces)), function(i) {
    seq(pieces[i, 1L], pieces[i, 2L], length.out = max(2L, nodes %/% nrow(pieces)))
  })
  gap <- cumsum(lengths(t))[-length(t)]   # the cells between pieces are empty
  r <- exp(unlist(t))
  log_density <- (d - 1) * log(r) + log_phi(r)
  density <- exp(log_density - max(log_density))
  cells <- diff(r) * (density[-1L] + density[-length(r)]) / 2
  cells[gap] <- 0
  cells <- cells[seq_len(max(which(cells > 0)))]   # the table must not end in an empty cell
  last <- length(cells) + 1L
  list(r = r[seq_len(last)], density = density[seq_len(last)], cdf = c(0, cumsum(cells)) / sum(cells))
}

# The exponential rate at which a tabulated density falls at the end of its table: Inf if faster than any, 0 if slower.
tail_rate <- function(r, score) {
  rate <- -score[length(r)]
  before <- -score[which.min(abs(r - r[length(r)] / 2))]
  if (rate > 1.2 * before) Inf else if (rate < 0.8 * before) 0 else rate
}

slope_at_end <- function(x, y) {
  last <- utils::tail(which(is.finite(y)), 200L)
  if (length(last) < 2L || max(last) < length(y)) return(-Inf)   # support ends
  diff(y[range(last)]) / diff(x[range(last)])
}

# The intervals of t = log r, one per row, on which the density is positive. Where
# it starts or ends between two nodes the place is bisected: a quadrature rule
# across a jump is poor. Attribute "edge": is there such a place?
support_pieces <- function(user, t) {
  inside <- is.finite(user(exp(t)))
  n <- length(t)
  edge <- function(i, outward) {
    j <- i + outward
    if (j < 1L || j > n) return(t[i])
    at <- t[i]
    out <- t[j]
    for (k in 1:40) {
      mid <- (at + out) / 2
      if (is.finite(user(exp(mid)))) at <- mid else out <- mid
    }
    at - outward * 1e-13 * max(1, abs(at))   # inside, whatever the rounding
  }
  from <- which(inside & !c(FALSE, inside[-n]))
  to <- which(inside & !c(inside[-1L], FALSE))
  structure(cbind(vapply(from, edge, 0, outward = -1L), vapply(to, edge, 0, outward = 1L)),
            edge = !all(inside))
}

integrate_pieces <- function(f, pieces) {
  sum(apply(pieces, 1L, function(span) sum(simpson(f, span, 20000L))))
}

# composite Simpson weights times values; their sum is the integral
simpson <- function(f, span, n) {
  t <- seq(span[1L], span[2L], length.out = n + 1L)
  w <- c(1, rep_len(c(4, 2), n - 1L), 1) * diff(span) / (3 * n)
  w * f(t)
}

# What a user's function of the radius returned: the first bad value, or the shape.
describe_values <- function(v, r, bad) {
  if (!is.numeric(v) || length(v) != length(r)) return(describe(v))
  sprintf("%s at r = %s", format(v[bad][1L]), format(r[bad][1L], digits = 3))
}

radial_score <- function(base, r, unit) {
  if (!is.null(base$score)) {
    s <- base$score(r * unit)
    if (!is.numeric(s) || length(s) != length(r) || any(!is.finite(s))) {
      bad_argument("score", "a function that returns one finite number per radius",
                   describe_values(s, r * unit, !is.finite(s)))
    }
    return(as.double(s) * unit)
  }
  h <- 1e-5 * r
  up <- base$log_phi((r + h) * unit)
  down <- base$log_phi((r - h) * unit)
  s <- (up - down) / (2 * h)
  ifelse(is.finite(s), s, 0)
}

# ---- asking a base -----------------------------------------------------------

#' Draws, density and constants of a base
#'
#' `base_draws()` samples the standardized base, `base_log_density()` evaluates
#' its normalised log density, `base_score()` the derivative of its log density
#' along the radius, and `base_info()` reports its constants.
#'
#' Draw number `i` depends only on `i` and on a key that is drawn from R's generator. So [set.seed()] makes draws reproducible,
#' whether they are made all at once or in pieces.
#'
#' @param base a base, see [bases].
#' @param n number of draws.
#' @param dim dimension.
#' @param z a matrix whose columns are points, or a vector taken as one point.
#' @param r radii, non-negative numbers.
#' @return `base_draws()`: a `dim` x `n` matrix. `base_log_density()`: one
#'   number per column of `z`. `base_score()`: `phi'(r)/phi(r)`. `base_info()`:
#'   a list with `entropy`, `kurtosis` (fourth moment of a coordinate),
#'   `log_constant` (log of the normalising constant of the density
#'   `C phi(|z|)`), `log_concave`, and `path` (is the path gradient valid?).
#' @examples
#' set.seed(1)
#' z <- base_draws(base_laplace(), n = 1000, dim = 3)
#' rowMeans(z^2)
#' base_info(base_laplace(), dim = 3)
#' base_log_density(base_gaussian(), c(0, 0))
#' @export
base_draws <- function(base, n, dim) {
  check_class(base, "base", "elvi_base", "a base_*() function")
  n <- check_count(n, "n")
  dim <- check_dim(dim)
  check_size(n * dim, if (n >= dim) "n" else "dim", max(n, dim))
  draw_base(law_of(base, dim), draw_key(), n)
}

#' @rdname base_draws
#' @export
base_log_density <- function(base, z) {
  check_class(base, "base", "elvi_base", "a base_*() function")
  if (!is.matrix(z)) z <- matrix(check_vector(z, "z"))
  z <- check_matrix(z, "z")
  if (!nrow(z)) bad_argument("z", "of at least one row", describe(z))
  law <- law_of(base, nrow(z))
  law$log_constant + law$log_phi(sqrt(colSums(z^2)))
}

#' @rdname base_draws
#' @export
base_score <- function(base, r, dim) {
  check_class(base, "base", "elvi_base", "a base_*() function")
  r <- check_vector(r, "r")
  if (any(r < 0)) bad_argument("r", "non-negative", describe(r[r < 0][1L]))
  .Call(elvi_r_score, law_of(base, check_dim(dim)), r)
}

#' @rdname base_draws
#' @export
base_info <- function(base, dim) {
  check_class(base, "base", "elvi_base", "a base_*() function")
  law_of(base, check_dim(dim))[
    c("entropy", "kurtosis", "log_constant", "log_concave", "path")]
}

# The key of the keyed streams: 64 bits from R's generator.
draw_key <- function() floor(stats::runif(2) * 2^32)

draw_base <- function(law, key, n, first = 0, iteration = 0) {
  .Call(elvi_r_draws, law, key, as.double(iteration), as.double(first), as.integer(n))
}
