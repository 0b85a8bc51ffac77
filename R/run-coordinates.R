# Whitened coordinates: x = m + A w with m the mode and A A' = H^-1, H the Hessian
# at the mode. Elliptic families are affine equivariant - an elliptic law of w is
# one of x with the same base - so the algorithm and its theorems apply to
# f_w(w) = f(m + A w) - log|A| unchanged, with its smoothness instead of that of
# f, and the objective is the same number in both coordinates.

# A diagonal A, a mean field's, leaves the conditioning of H in: it goes by the steps of mu, which are taken
# in the metric of the Hessian A H A of f_w at the mode ("mu_root", its Cholesky factor). That is the theorem
# with a matrix for Lambda_mu, or with I in the coordinates mu_root' mu; |.|^2 of mu is that there, and L
# that of f in coordinates that are whitened all the way (see full_frame()).

# The model the run works on: the user's own, or that seen in whitened coordinates.
whitened_model <- function(model, coordinates, kind, found = NULL) {
  if (coordinates == "raw") return(model)
  if (!is.null(found)) return(found_frame(model, kind, found))
  frame <- scale_of(kind)$frame
  record <- scale_of(frame)
  wide <- !record$full && is_wide(model)
  if (!wide) check_size(model$dim^2, "coordinates", coordinates)
  mode <- if (wide) find_mode(model, diagonal = TRUE) else find_mode(model)
  H <- if (wide) definite_diagonal(mode$hessian) else definite_hessian(mode$hessian)
  A <- record$inverse_root(record$precision_part(H))
  left <- record$left(A, H)
  # what may fail is guarded, as a target is whose start was searched
  level <- guarded_level(model, mode$x)
  work <- new_model("affine", dim = model$dim, names = model$names, inner = model, A = A, scale = frame,
                    m = as.double(mode$x), log_det = record$log_det(A),
                    hessian = left$hessian, mu_root = left$root,
                    convex = model$convex, growth = model$growth, level = level)
  work$inner <- with_gaussian_fallback(model, work)
  work
}

# Whitened by a gaussian x = mu + A z that was found, not by the Hessian at a mode.
found_frame <- function(model, kind, found) {
  frame <- scale_of(kind)$frame
  record <- scale_of(frame)
  full <- lower_root(root_matrix(found$A))
  H <- if (!record$full) crossprod(forwardsolve(full, diag(model$dim)))
  A <- if (record$full) full else record$inverse_root(record$precision_part(H))
  left <- record$left(A, H)
  work <- new_model("affine", dim = model$dim, names = model$names, inner = NULL, A = A, scale = frame,
                    m = as.double(found$mu), log_det = record$log_det(A),
                    hessian = left$hessian, mu_root = left$root,
                    convex = model$convex, growth = model$growth, mean_curvature = 1,
                    level = found$objective + record$log_det(A) - model$dim / 2)   # of f at the centre
  work$inner <- with_gaussian_fallback(model, work)
  work
}

# The coordinates in which a run's mu has the metric I
full_frame <- function(work) {
  if (is.null(work$mu_root)) return(work)
  work$A <- t(chol(chol2inv(t(work$mu_root)) * outer(work$A, work$A)))
  work$scale <- "triangular"
  work
}

# |mu|^2 in the metric of a run's mu
mu_norm2 <- function(work, mu) sum((if (is.null(work$mu_root)) mu else crossprod(work$mu_root, mu))^2)

# positive definite, whatever the search for a mode ended in
definite_hessian <- function(H) {
  check_finite_hessian(H)
  # in units of the diagonal, so that badly scaled is not taken for indefinite
  size <- abs(diag(H))
  largest <- if (any(size > 0)) max(size) else 1
  unit <- sqrt(ifelse(size > 1e-300, size, largest))
  e <- eigen(H / outer(unit, unit), symmetric = TRUE)
  floor <- 1e-10 * max(abs(e$values))
  if (min(e$values) > floor) return(H)
  indefinite_message(min(e$values))
  outer(unit, unit) * (e$vectors %*% (pmax(abs(e$values), max(floor, 1e-300)) * t(e$vectors)))
}

# the same of one that is a diagonal
definite_diagonal <- function(h) {
  check_finite_hessian(h)
  if (all(h > 0)) return(h)
  indefinite_message(min(h))
  pmax(abs(h), 1e-10 * max(abs(h), 1e-290))
}

check_finite_hessian <- function(H) {
  if (!all(is.finite(H))) {
    elvi_abort("The Hessian is not finite where the search for a mode ended: the target is not defined all around that point, or ",
               "overflows. Use parameters without bounds, such as logarithms of positive ones, or rescale them.",
               class = "elvi_error_nonfinite")
  }
}

indefinite_message <- function(smallest) {
  elvi_inform("The Hessian is not positive definite where the search for a mode ended (smallest eigenvalue ",
              format(smallest, digits = 3), "): the target is not strictly log-concave there. ",
              "Whitening uses the absolute eigenvalues instead.",
              class = "elvi_message_indefinite")
}

# ---- what the coordinates of a run are to the model's own -----------------------------------
# They are the same, unless the run works on an affine model.

# for what can only be said in the model's own coordinates
is_whitened <- function(work) UseMethod("is_whitened")

#' @export
is_whitened.elvi_model <- function(work) FALSE

#' @export
is_whitened.elvi_model_affine <- function(work) TRUE

# (mu, scale) of the run in the model's coordinates; scale of the same kind
to_user <- function(work, kind, mu, scale) UseMethod("to_user")

#' @export
to_user.elvi_model <- function(work, kind, mu, scale) list(mu = mu, scale = scale)

#' @export
to_user.elvi_model_affine <- function(work, kind, mu, scale) {
  list(mu = drop(points_to_user(work, mu)), scale = scale_of(kind)$to_user(work$A, scale))
}

# and back
to_work <- function(work, kind, mu, scale) UseMethod("to_work")

#' @export
to_work.elvi_model <- function(work, kind, mu, scale) list(mu = mu, scale = scale)

#' @export
to_work.elvi_model_affine <- function(work, kind, mu, scale) {
  list(mu = drop(scale_of(work$scale)$solve(work$A, mu - work$m)),
       scale = scale_of(kind)$to_work(work$A, scale))
}

# points, and a root of no particular kind
points_to_user <- function(work, x) UseMethod("points_to_user")

#' @export
points_to_user.elvi_model <- function(work, x) x

#' @export
points_to_user.elvi_model_affine <- function(work, x) work$m + root_times(work$A, x)

root_to_user <- function(work, root) UseMethod("root_to_user")

#' @export
root_to_user.elvi_model <- function(work, root) root

#' @export
root_to_user.elvi_model_affine <- function(work, root) moved_root(root, work$A)

# a Hessian of f, in the coordinates of the run
hessian_to_work <- function(work, H) UseMethod("hessian_to_work")

#' @export
hessian_to_work.elvi_model <- function(work, H) H

#' @export
hessian_to_work.elvi_model_affine <- function(work, H) congruent(work$A, H)

# the most and the least by which a move of the run's coordinates becomes longer in the model's
largest_stretch <- function(work) UseMethod("largest_stretch")

#' @export
largest_stretch.elvi_model <- function(work) 1

#' @export
largest_stretch.elvi_model_affine <- function(work) largest_singular_value(work$A)

smallest_stretch <- function(work) UseMethod("smallest_stretch")

#' @export
smallest_stretch.elvi_model <- function(work) 1

#' @export
smallest_stretch.elvi_model_affine <- function(work) smallest_singular_value(full_frame(work)$A)

# where the mode is
mode_in <- function(work, diagonal) UseMethod("mode_in")

#' @export
mode_in.elvi_model <- function(work, diagonal) find_mode(work, diagonal)$x

#' @export
mode_in.elvi_model_affine <- function(work, diagonal) numeric(work$dim)

# The scale of a start: that of the Laplace approximation, or of the steepest direction.
default_scale <- function(work, feasible, L) UseMethod("default_scale")

#' @export
default_scale.elvi_model <- function(work, feasible, L) min(max(1 / sqrt(L), feasible$scale_min), feasible$scale_max)

#' @export
default_scale.elvi_model_affine <- function(work, feasible, L) max(1, feasible$scale_min)

# What a plan keeps of the model of a run: nothing of the user's own, which is given.
without_inner <- function(work) UseMethod("without_inner")

#' @export
without_inner.elvi_model <- function(work) NULL

#' @export
without_inner.elvi_model_affine <- function(work) {
  work["inner"] <- list(NULL)
  work
}

# and the same coordinates of another model
with_inner <- function(work, inner) UseMethod("with_inner")

#' @export
with_inner.elvi_model <- function(work, inner) inner

#' @export
with_inner.elvi_model_affine <- function(work, inner) {
  work$inner <- inner
  work
}
