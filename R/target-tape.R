# Derivatives of a user's function by package 'RTMB', which runs the function once on numbers that remember what is done with them
# (a tape) and differentiates that.

# list(gradient, hessian), functions of a block of points and of one point; or the reason, as a character string, why there are none.
# A function that cannot be taped (it compares parameters, calls compiled code, ...) throws; one that the tape does not reproduce is
# refused too.
tape_derivatives <- function(value, dim) {
  if (!has_package("RTMB")) return("package 'RTMB' is not installed")
  for (as_point in list(identity, as_column)) {
    made <- tryCatch(suppressWarnings(new_tape(function(x) value(as_point(x)), dim)),
                     error = function(e) if (is_time_limit(e)) stop(e) else conditionMessage(e))
    if (is.list(made) && follows(made$value, value, as_point, dim)) return(made[c("gradient", "hessian", "sparse_hessian")])
  }
  if (is.character(made)) paste("package 'RTMB' cannot follow `value`:", made) else "the tape of package 'RTMB' does not reproduce `value`"
}

# a point as a matrix of one column, for functions of blocks; attributes of RTMB's numbers are kept
as_column <- function(x) {
  dim(x) <- c(length(x), 1L)
  x
}

# A tape does not survive the end of its session: it is made again when it is needed then.
new_tape <- function(value, dim) {
  kept <- new.env(parent = emptyenv())
  record <- function() {
    kept$value <- RTMB::MakeTape(function(x) sum(value(x)), probe_points(dim)[, 1L])
    kept$gradient <- kept$value$jacfun()
    if (dim <= widest_search) kept$hessian <- kept$gradient$jacfun()
    kept$sparse <- kept$gradient$jacfun(sparse = TRUE)
  }
  at <- function(name, x) {
    out <- tryCatch(kept[[name]](x), error = identity)
    if (!inherits(out, "error")) return(as.double(out))
    if (is_time_limit(out)) stop(out)
    record()
    as.double(kept[[name]](x))
  }
  record()
  list(value = function(x) at("value", x),
       gradient = function(x) as.double(vapply(seq_len(ncol(x)), function(j) at("gradient", x[, j]), numeric(dim))),
       hessian = function(x) matrix(at("hessian", x), dim),
       sparse_hessian = if (dim > widest_search) function(x) {
         at("value", x)   # makes the tape again in another session
         kept$sparse(x)
       })
}

# Has the tape the values of the function, near the origin and away from it?
follows <- function(taped, value, as_point, dim) {
  points <- cbind(probe_points(dim), 5 * probe_points(dim), -20 * probe_points(dim))
  same <- vapply(seq_len(ncol(points)), function(j) {
    own <- or_null(suppressWarnings(as.double(value(as_point(points[, j])))))
    if (length(own) != 1L || !is.finite(own)) return(NA)   # outside the domain nothing can be compared
    isTRUE(abs(taped(points[, j]) - own) <= 1e-9 * (1 + abs(own)))
  }, NA)
  any(same, na.rm = TRUE) && all(same, na.rm = TRUE)
}

# does a user's function return matrices of package 'Matrix' that are sparse?
is_sparse_hessian <- function(hessian, dim) {
  if (is.null(hessian)) return(FALSE)
  methods::is(or_null(hessian(probe_points(dim)[, 1L])), "sparseMatrix")
}

# A user's Hessian as a function of one point that returns a dense symmetric matrix, checked at a point where it can be had.
checked_hessian <- function(hessian, dim) {
  force(hessian)
  at <- function(x) {
    H <- hessian(x)
    if (!is.numeric(H) && !methods::is(H, "Matrix") || !identical(as.double(dim(H)), c(dim, dim))) {
      bad_argument("hessian", sprintf("a function that returns a %g x %g matrix", dim, dim), paste("one that returns", describe(H)))
    }
    unname(as.matrix(H))
  }
  probe <- tryCatch(at(probe_points(dim)[, 1L]), error = function(e) if (inherits(e, "elvi_error_argument") || is_time_limit(e)) stop(e))
  if (!is.null(probe) && all(is.finite(probe)) && max(abs(probe - t(probe))) > 1e-6 * max(abs(probe))) {
    bad_argument("hessian", "a function that returns symmetric matrices", "one that returns another")
  }
  at
}

# the Hessian at a point, NULL where it fails or is not finite
guarded_hessian <- function(hessian, x) {
  if (is.null(hessian)) return(NULL)
  H <- or_null(hessian(x))
  if (is.null(H) || !all(is.finite(H))) return(NULL)
  (H + t(H)) / 2
}
