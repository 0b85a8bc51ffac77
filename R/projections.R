#' Projections onto convex sets
#'
#' Each of these functions returns a function that maps a point, a vector or a matrix, to the nearest point of a closed convex set. Shape
#' and names stay. Use them for the argument `project` of [mpsgd()].
#'
#' * `project_box()`: every entry between `lower` and `upper`.
#' * `project_ball()`: within `radius` of `centre` in the Euclidean norm, for a
#'   matrix the Frobenius norm.
#' * `project_simplex()`: no entry negative, all adding up to `total`.
#' * `project_psd()`: symmetric matrices with every eigenvalue between `lower`
#'   and `upper`; by default the positive semidefinite ones. A matrix that is not symmetric is first replaced by the nearest symmetric
#'   one.
#'
#' @section Projections of your own:
#' Any function that returns the point of a closed convex set nearest to its
#' argument in the Euclidean norm will do for [mpsgd()]. The projection `p` of
#' `x` is the one point of the set for which `sum((x - p) * (y - p))` is at
#' most 0 at every `y` in the set.
#'
#' @param lower,upper bounds. For `project_box()` numbers, or vectors or
#'   matrices of the shape of the point; for `project_psd()` numbers. Bounds may
#'   be infinite.
#' @param centre centre of the ball, of the shape of the point; a single number
#'   stands for all entries.
#' @param radius radius of the ball, not negative.
#' @param total positive sum of the entries.
#' @return A function of one argument, the point `x`.
#' @examples
#' project_box(0, c(1, 2, Inf))(c(-1, 3, 5))
#' project_ball(centre = 0, radius = 1)(c(a = 3, b = 4))
#' project_simplex()(c(0.5, 0.8, -0.2))
#' project_psd(lower = 0.1)(matrix(c(1, 2, 2, 1), 2))
#' @name projections
NULL

#' @rdname projections
#' @export
project_box <- function(lower, upper) {
  if (missing(lower)) bad_argument("lower", "given (-Inf for no bound)", "missing")
  if (missing(upper)) bad_argument("upper", "given (Inf for no bound)", "missing")
  check_bounds(lower, upper)
  function(x) {
    x <- check_point(x)
    check_fits(lower, x, "lower")
    check_fits(upper, x, "upper")
    x[] <- pmin(pmax(as.double(x), as.double(lower)), as.double(upper))
    x
  }
}

#' @rdname projections
#' @export
project_ball <- function(centre, radius) {
  if (missing(centre)) bad_argument("centre", "a number, a vector or a matrix", "missing")
  if (missing(radius)) bad_argument("radius", "a finite number of at least 0", "missing")
  check_entries(centre, "centre")
  radius <- check_number(radius, "radius", 0)
  function(x) {
    x <- check_point(x)
    check_fits(centre, x, "centre")
    away <- as.double(x) - as.double(centre)
    distance <- norm(cbind(away), "F")   # does not overflow where a sum of squares would
    if (distance > radius) x[] <- as.double(centre) + away * (radius / distance)
    x
  }
}

#' @rdname projections
#' @export
project_simplex <- function(total = 1) {
  total <- check_positive(total, "total")
  function(x) {
    x <- check_point(x)
    # A constant added to every entry does not change the projection: with the
    # largest entry at 0 the sums below lose no digits to a common offset.
    v <- as.double(x) - max(x)
    sorted <- sort(v, decreasing = TRUE)
    shift <- (cumsum(sorted) - total) / seq_along(sorted)
    x[] <- pmax(v - shift[max(which(sorted > shift))], 0)
    x
  }
}

#' @rdname projections
#' @export
project_psd <- function(lower = 0, upper = Inf) {
  lower <- check_number(lower, "lower", infinite = TRUE)
  upper <- check_number(upper, "upper", infinite = TRUE)
  check_bounds(lower, upper)
  function(x) {
    x <- check_point(x)
    if (!is.matrix(x) || nrow(x) != ncol(x)) bad_argument("x", "a square numeric matrix", describe(x))
    S <- unname(x + t(x)) / 2
    # The C core is made for scales, whose bounds are not negative.
    x[] <- if (lower >= 0) {
      project_scale("symmetric", S, lower, upper)$scale
    } else {
      clip_eigenvalues(S, lower, upper)
    }
    x
  }
}

clip_eigenvalues <- function(S, lower, upper) {
  e <- eigen(S, symmetric = TRUE)
  values <- pmin(pmax(e$values, lower), upper)
  if (identical(values, e$values)) return(S)   # inside: not a digit changes
  out <- e$vectors %*% (values * t(e$vectors))
  (out + t(out)) / 2
}

# ---- checks ------------------------------------------------------------------

# The point to project: finite numbers, as doubles in the shape they came in.
check_point <- function(x) {
  check_entries(x, "x")
  storage.mode(x) <- "double"
  x
}

check_entries <- function(x, name, infinite = FALSE) {
  if (!is.numeric(x) || is.factor(x) || !length(x)) {
    bad_argument(name, "a number, a numeric vector or a numeric matrix", describe(x))
  }
  refuse_missing_values(x, name, infinite)
}

check_bounds <- function(lower, upper) {
  check_entries(lower, "lower", infinite = TRUE)
  check_entries(upper, "upper", infinite = TRUE)
  if (length(lower) > 1L) check_fits(upper, lower, "upper", "`lower`")
  if (any(lower == Inf)) bad_argument("lower", "below Inf", "Inf")
  if (any(upper == -Inf)) bad_argument("upper", "above -Inf", "-Inf")
  crossed <- which(as.double(lower) > as.double(upper))
  if (length(crossed)) {
    i <- crossed[1L]
    entry <- function(v) format(if (length(v) == 1L) v else v[i])
    bad_argument("upper", paste("at least `lower`,", entry(lower)), entry(upper))
  }
}

# One number for all entries of x, or a number for each.
check_fits <- function(bound, x, name, what = "the point") {
  if (length(bound) == 1L) return(invisible())
  both_shaped <- !is.null(dim(bound)) && !is.null(dim(x))
  if (length(bound) != length(x) || (both_shaped && !identical(dim(bound), dim(x)))) {
    bad_argument(name, paste0("one number or of the shape of ", what, " (", describe(x), ")"),
                 describe(bound))
  }
}
