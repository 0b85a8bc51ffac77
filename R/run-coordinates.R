# Whitened coordinates: x = m + A w with m the mode and A A' = H^-1, H the Hessian
# at the mode. Elliptic families are affine equivariant - an elliptic distribution of w is
# one of x with the same base - so the algorithm and its theorems apply to
# f_w(w) = f(m + A w) - log|A| unchanged, with its smoothness instead of that of
# f, and the objective is the same number in both coordinates. "majorant" coordinates have a bound on
# all Hessians of f for H, so that the smoothness is 1; their start is the Laplace approximation too.

# A diagonal A, a mean field's, leaves the conditioning of H in: it goes by the steps of mu, which are taken
# in the metric of the Hessian A H A of f_w at the mode ("mu_root", its Cholesky factor). That is the theorem
# with a matrix for Lambda_mu, or with I in the coordinates mu_root' mu; |.|^2 of mu is that there, and L
# that of f in coordinates that are whitened all the way (see full_frame()).

# What `coordinates` may be. affine: is there a frame x = m + A w? hessian(model, mode): whose inverse is A A'; laplace: does the run
# start with the Laplace approximation because that is the scale I? tuned: is the curvature at the mode about 1, as the steps of
# schedule_tuned() need it? words: in a sentence
frame_kinds <- list(
  whitened = list(affine = TRUE, hessian = function(model, mode) mode, laplace = TRUE, tuned = TRUE, words = "whitened"),
  raw = list(affine = FALSE, hessian = NULL, laplace = FALSE, tuned = FALSE, words = "the model's"),
  majorant = list(affine = TRUE, hessian = function(model, mode) largest_hessian(model), laplace = FALSE, tuned = FALSE,
                  words = "majorant"))

frame_of <- function(control) frame_kinds[[control$coordinates]]

# A matrix that no Hessian of f exceeds
largest_hessian <- function(model) UseMethod("largest_hessian")

#' @export
largest_hessian.elvi_model <- function(model) refuse_majorant("this target has no known bound on its Hessian")

#' @export
largest_hessian.elvi_model_quadratic <- function(model) model$A

#' @export
largest_hessian.elvi_model_glm <- function(model) {
  bound <- family_record(model)$curvature_bound
  if (is.na(model$smoothness) || is.na(bound)) {
    refuse_majorant(sprintf("the curvature of the %s likelihood is unbounded", model$family$family))
  }
  bound * weighted_gram(model) + diag(steepest_prior(model$blocks$coefficients), model$dim)
}

refuse_majorant <- function(why) bad_argument("coordinates", "\"whitened\" or \"raw\"", "\"majorant\"", why)

# X' diag(weight) X
weighted_gram <- function(model) model$rows$known$weighted_gram %||% .Call(elvi_r_gram, model$rows, TRUE)

# The model the run works on: the user's own, or that seen in whitened coordinates.
whitened_model <- function(model, coordinates, kind, found = NULL) {
  coordinates <- frame_kinds[[coordinates]]
  if (!coordinates$affine) return(model)
  if (!is.null(found)) return(found_frame(model, kind, found))
  frame <- scale_of(kind)$frame
  record <- scale_of(frame)
  wide <- !record$full && is_wide(model)
  if (!wide) check_size(model$dim^2, "coordinates", coordinates$words)
  else if (!coordinates$laplace) refuse_majorant("there are too many coefficients for a matrix of them")
  mode <- if (wide) find_mode(model, diagonal = TRUE) else find_mode(model)
  at_mode <- if (wide) definite_diagonal(mode$hessian) else definite_hessian(mode$hessian)
  H <- coordinates$hessian(model, at_mode)
  A <- record$inverse_root(record$precision_part(H))
  left <- record$left(A, H)
  # a target that may fail is guarded, like one whose start was searched
  level <- guarded_level(model, mode$x)
  work <- new_model("affine", dim = model$dim, names = model$names, inner = model, A = A, scale = frame,
                    m = as.double(mode$x), log_det = record$log_det(A),
                    hessian = left$hessian, mu_root = left$root,
                    convex = model$convex, growth = model$growth, level = level)
  if (!coordinates$laplace) {
    laplace <- record$inverse_root(record$precision_part(at_mode))
    work$first_scale <- scale_of(kind)$to_work(A, scale_of(kind)$of_frame(laplace))
  }
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

# ---- from the coordinates of a run to the model's own -----------------------------------
# Two records: a run works on the user's model itself, or on an affine one, x = m + A w.

coordinate_entries <- c(
  "whitened",          # is the model an affine one?
  "to_user",           # function(work, kind, mu, scale): those of the run, in the model's coordinates; scale of the same kind
  "to_work",           # and back
  "points_to_user",    # function(work, x): points, by columns
  "root_to_user",      # function(work, root): a root of any kind
  "gradient_to_work",  # function(work, g): gradients of f, by columns, in the coordinates of the run
  "hessian_to_work",   # function(work, H): a Hessian of f, in the coordinates of the run
  "largest_stretch",   # function(work): the most by which a move of the run's coordinates becomes longer in the model's
  "smallest_stretch",  # function(work): and the least
  "mode",              # function(work, diagonal): where the mode is
  "start_scale",       # function(work, feasible, L): that of the Laplace approximation, or of the steepest direction
  "without_inner",     # function(work): what a plan keeps of the model of a run: nothing of the user's own
  "with_inner",        # function(work, inner): the same coordinates of another model
  "smoothness",        # function(model, work): that of the run, given the model's
  "near_points",       # function(work, w, control): points w of the Laplace approximation, and the target they are evaluated by
  # function(work, smoothness): the Laplace approximation that replaces a target where it fails; NULL where `work` is it already, and
  # where a smoothness was given: that asserts that the target is finite everywhere, so that a failure is an error for its user
  "fallback")

raw_coordinates <- list(
  whitened = FALSE,
  to_user = function(work, kind, mu, scale) list(mu = mu, scale = scale),
  to_work = function(work, kind, mu, scale) list(mu = mu, scale = scale),
  points_to_user = function(work, x) x,
  root_to_user = function(work, root) root,
  gradient_to_work = function(work, g) g,
  hessian_to_work = function(work, H) H,
  largest_stretch = function(work) 1,
  smallest_stretch = function(work) 1,
  mode = function(work, diagonal) find_mode(work, diagonal)$x,
  start_scale = function(work, feasible, L) min(max(1 / sqrt(L), feasible$scale_min), feasible$scale_max),
  without_inner = function(work) NULL,
  with_inner = function(work, inner) inner,
  smoothness = function(model, work) model$smoothness,
  near_points = function(work, w, control) {
    laplace <- whitened_model(work, "whitened", if (is_wide(work)) control$scale else "symmetric")
    list(laplace = laplace, x = points_to_user(laplace, w), target = with_gaussian_fallback(work, laplace))
  },
  fallback = function(work, smoothness) smoothness$laplace)

affine_coordinates <- list(
  whitened = TRUE,
  to_user = function(work, kind, mu, scale) {
    list(mu = drop(points_to_user(work, mu)), scale = scale_of(kind)$to_user(work$A, scale))
  },
  to_work = function(work, kind, mu, scale) {
    list(mu = drop(scale_of(work$scale)$solve(work$A, mu - work$m)), scale = scale_of(kind)$to_work(work$A, scale))
  },
  points_to_user = function(work, x) work$m + root_times(work$A, x),
  root_to_user = function(work, root) moved_root(root, work$A),
  gradient_to_work = function(work, g) root_crossprod(work$A, g),
  hessian_to_work = function(work, H) congruent(work$A, H),
  largest_stretch = function(work) largest_singular_value(work$A),
  smallest_stretch = function(work) smallest_singular_value(full_frame(work)$A),
  mode = function(work, diagonal) numeric(work$dim),
  start_scale = function(work, feasible, L) work$first_scale %||% max(1, feasible$scale_min),
  without_inner = function(work) {
    work["inner"] <- list(NULL)
    work
  },
  with_inner = function(work, inner) {
    work$inner <- inner
    work
  },
  smoothness = function(model, work) whitened_smoothness(model, work),
  near_points = function(work, w, control) list(laplace = work, x = w, target = work),
  fallback = function(work, smoothness) NULL)

coordinates_of <- function(work) UseMethod("coordinates_of")

#' @export
coordinates_of.elvi_model <- function(work) raw_coordinates

#' @export
coordinates_of.elvi_model_affine <- function(work) affine_coordinates

# called when the package is loaded
check_coordinates <- function() {
  stopifnot(identical(names(raw_coordinates), coordinate_entries), identical(names(affine_coordinates), coordinate_entries))
}

is_whitened <- function(work) coordinates_of(work)$whitened
to_user <- function(work, kind, mu, scale) coordinates_of(work)$to_user(work, kind, mu, scale)
to_work <- function(work, kind, mu, scale) coordinates_of(work)$to_work(work, kind, mu, scale)
points_to_user <- function(work, x) coordinates_of(work)$points_to_user(work, x)
