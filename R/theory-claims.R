# ---- what a user says of a target ---------------------------------------------------------------
#
# Nobody can check that a function of R is convex or L-smooth. What its user says is "assumed", and pairs of points x, y can show that it
# is wrong: convex functions have <g(x) - g(y), x - y> >= alpha |x - y|^2, smooth ones |g(x) - g(y)| <= L |x - y|.

# The least and the largest that differences of gradients say of the curvature, in the coordinates of the run: at points of the
# Laplace approximation (or of the base, where there is none), one to three sds wide, between neighbours, over short ways, and over
# short ways that power iterations turn towards the steepest and the flattest direction. NULL where no difference is finite.
seen_curvature <- function(problem, control, points = 64L) {
  if (is.null(problem$work)) return(NULL)
  z <- draw_base(problem$law, c(0, 2), points)   # a fixed key: R's generator is not touched
  w <- cbind(z, 3 * z[, seq_len(points / 2), drop = FALSE])
  near <- quietly(coordinates_of(problem$work)$near_points(problem$work, w, control))
  if (is.null(near)) near <- list(x = w, target = problem$work)   # a target without a mode has no Laplace approximation
  x <- near$x
  short <- step_from(x, 1e-3 * (x[, c(ncol(x), seq_len(ncol(x) - 1L)), drop = FALSE] - x))
  g <- target_at(near$target, x)$gradient
  change <- target_at(near$target, x + short)$gradient - g
  seen <- join_curvatures(
    curvature_along(x[, -1L, drop = FALSE] - x[, -ncol(x), drop = FALSE], g[, -1L, drop = FALSE] - g[, -ncol(g), drop = FALSE]),
    curvature_along(short, change))
  if (is.null(seen)) return(NULL)
  some <- which(is.finite(colSums(change)) & colSums(short^2) > 0)
  join_curvatures(seen, turned_curvature(near$target, x, g, short, change, some[seq_len(min(16L, length(some)))], seen$largest))
}

# The step from x by v as it is after rounding
step_from <- function(x, v) (x + v) - x

# For moves and the changes of the gradient over them, a column each
curvature_along <- function(move, change) {
  size2 <- colSums(move^2)
  used <- size2 > 0 & is.finite(colSums(change))
  if (!any(used)) return(NULL)
  list(least = min((colSums(change * move) / size2)[used]), largest = max(sqrt(colSums(change^2) / size2)[used]), pairs = sum(used))
}

join_curvatures <- function(one, other) {
  if (is.null(one) || is.null(other)) return(if (is.null(one)) other else one)
  list(least = min(one$least, other$least), largest = max(one$largest, other$largest), pairs = one$pairs + other$pairs)
}

# A direction v goes to H v, which turns it towards the steepest one, or to (top - H) v, towards the flattest: from each of some points
turned_curvature <- function(target, x, g, move, change, columns, top, rounds = 12L) {
  at <- function(m) m[, columns, drop = FALSE]
  sizes <- sqrt(colSums(at(move)^2))
  seen <- NULL
  for (steepest in c(TRUE, FALSE)) {
    v <- at(move)
    h <- at(change)
    for (round in seq_len(rounds)) {
      turned <- if (steepest) h else top * v - h
      v <- turned * rep(sizes / sqrt(colSums(turned^2)), each = nrow(v))
      v[!is.finite(v)] <- 0   # a direction without curvature, or a target that fails
      v <- step_from(at(x), v)
      h <- target_at(target, at(x) + v)$gradient - at(g)
      seen <- join_curvatures(seen, curvature_along(v, h))
    }
  }
  seen
}

# The user's claims about f, checked by draws: lists (status, why) for `convex` and `smooth`, and `alpha`; NULL for a model of elvi.
judge_claims <- function(problem, control, given_alpha) {
  claims <- list(convex = is_user_density(problem$model) && isTRUE(problem$model$convex),
                 smooth = is_user_density(problem$model) && problem$L_check[[1L]] == "holds",
                 alpha = !is.null(given_alpha) && !isTRUE(given_alpha <= known_alpha(problem$model) * (1 + 1e-8)))
  if (!any(unlist(claims))) return(list())
  seen <- seen_curvature(problem, control)
  wrong <- function(found, word) sprintf("two draws have %s of %s between them", word, format(found, digits = 3))
  verdict <- function(refuted, why, said) {
    if (is.null(seen)) list("assumed", said)
    else if (refuted) list("fails", why)
    else list("assumed", sprintf("%s; %s pairs of draws agree", said, format_count(seen$pairs)))
  }
  rounding <- 1e-6 * (seen$largest %||% 0)
  list(
    convex = if (claims$convex) verdict(isTRUE(seen$least < -rounding), wrong(seen$least, "a curvature"), "you say so"),
    smooth = if (claims$smooth) verdict(isTRUE(seen$largest > problem$L * (1 + 1e-6)), sprintf(
      "%s, but %s", problem$L_check[[2L]], wrong(seen$largest, "a curvature")), problem$L_check[[2L]]),
    alpha = if (claims$alpha) verdict(isTRUE(seen$least < problem$alpha * (1 - 1e-6) - rounding), sprintf(
      "alpha = %s in these coordinates, but %s", format(problem$alpha, digits = 3), wrong(seen$least, "a curvature")),
      "bounded: |mu* - m|^2 + |Sigma*|^2 <= d / alpha, if alpha is right"))
}

# A strong convexity constant that elvi knows, in the model's coordinates
known_alpha <- function(model) UseMethod("known_alpha")

#' @export
known_alpha.elvi_model <- function(model) 0

#' @export
known_alpha.elvi_model_quadratic <- function(model) min(eigen(model$A, symmetric = TRUE, only.values = TRUE)$values)

#' @export
known_alpha.elvi_model_glm <- function(model) {
  if (!isTRUE(model$convex)) return(0)
  of_prior <- if (is_linked(model)) 1 / largest_singular_value(solve(as.matrix(model$prior$precision)))
              else min(model$blocks$coefficients$precision)
  mode <- if (family_record(model)$constant_curvature) quietly(find_mode(model))
  if (is.null(mode)) return(of_prior)
  max(of_prior, min(eigen(mode$hessian, symmetric = TRUE, only.values = TRUE)$values))
}

# Holds, or is taken to hold
is_taken <- function(check) check[[1L]] %in% c("holds", "assumed")
