# Whitened coordinates: x = m + A w with m the mode and A A' = H^-1, H the Hessian
# at the mode. Elliptic families are affine equivariant - an elliptic law of w is
# one of x with the same base - so the algorithm and its theorems apply to
# f_w(w) = f(m + A w) - log|A| unchanged, with its smoothness instead of that of
# f, and the objective is the same number in both coordinates.

# The model the run works on: the user's own, or that seen in whitened coordinates.
work_model <- function(model, coordinates, kind) {
  if (coordinates == "raw") return(model)
  check_size(model$dim^2, "coordinates", coordinates)   # a Hessian
  mode <- find_mode(model)
  H <- definite_hessian(mode$hessian)
  # a mean field must stay one: only rescale
  A <- if (kind == "diagonal") 1 / sqrt(diag(H)) else root_of_inverse(H)
  new_model("affine", dim = model$dim, names = model$names, inner = model, A = A,
            scale = if (kind == "diagonal") "diagonal" else "triangular",
            m = as.double(mode$x),
            log_det = sum(log(if (is.matrix(A)) diag(A) else A)),
            hessian = if (kind == "diagonal") A * H * rep(A, each = length(A)),
            convex = model$convex, growth = model$growth)
}

definite_hessian <- function(H) {
  # in units of the diagonal, so that badly scaled is not taken for indefinite
  size <- abs(diag(H))
  largest <- if (any(size > 0)) max(size) else 1
  unit <- sqrt(ifelse(size > 1e-300, size, largest))
  e <- eigen(H / outer(unit, unit), symmetric = TRUE)
  floor <- 1e-10 * max(abs(e$values))
  if (min(e$values) > floor) return(H)
  elvi_inform("The Hessian is not positive definite where the search for a mode ended (smallest eigenvalue ",
              format(min(e$values), digits = 3), "): the target is not strictly log-concave there. ",
              "Whitening uses the absolute eigenvalues instead.",
              class = "elvi_message_indefinite")
  outer(unit, unit) * (e$vectors %*% (pmax(abs(e$values), max(floor, 1e-300)) * t(e$vectors)))
}

# (mu, scale) of the run in the user's coordinates; scale of the same kind
to_user <- function(work, kind, mu, scale) {
  if (work$kind != "affine") return(list(mu = mu, scale = scale))
  if (kind == "diagonal") return(list(mu = work$m + work$A * mu, scale = work$A * scale))
  list(mu = drop(work$m + work$A %*% mu),
       scale = if (kind == "triangular") work$A %*% scale else symmetric_root(work$A %*% scale))
}

# and back
to_work <- function(work, kind, mu, scale) {
  if (work$kind != "affine") return(list(mu = mu, scale = scale))
  if (kind == "diagonal") return(list(mu = (mu - work$m) / work$A, scale = scale / work$A))
  moved <- forwardsolve(work$A, scale)
  if (kind == "triangular") moved[upper.tri(moved)] <- 0
  list(mu = forwardsolve(work$A, mu - work$m),
       scale = if (kind == "triangular") moved else symmetric_root(moved))
}

# The symmetric S with S S = R R', and the lower triangular one: the same law of x
# for every base. From R itself, not from R R', which would lose the small scales.
symmetric_root <- function(R) {
  s <- svd(R, nv = 0)
  root <- s$u %*% (s$d * t(s$u))
  (root + t(root)) / 2
}

lower_root <- function(R) {
  L <- t(qr.R(qr(t(R), LAPACK = FALSE)))
  L * rep(ifelse(diag(L) < 0, -1, 1), each = nrow(L))
}
