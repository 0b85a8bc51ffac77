# ---- noise constants -----------------------------------------------------------

#' Noise constants of the gradient
#'
#' `bg_constants()` computes the two constants by which [guarantee()] bounds the noise of stochastic gradients. The convergence theorems
#' assume that the noise of a single gradient grows at most quadratically with the distance from the optimum, in the metric of the
#' preconditioner `Lambda = (lambda_mu, lambda_Sigma)`:
#'
#' `E|g|^2_Lambda <= a |theta - theta*|^2_{Lambda^-1} + b`.
#'
#' `bg_constants()` computes `a` and `b` for the `"reparam"` estimator.
#'
#' With `m` the minimiser of `f`, `d` the dimension, `kappa` the kurtosis of the
#' base and `v = E z_1^2 |z|^2 = kappa (d + 2) / 3`, for a convex `f`,
#'
#' * `E|g_mu|^2 <= L^2 |mu - m|^2 + L^2 |Sigma|^2`
#' * `E|g_Sigma|^2 <= d L^2 |mu - m|^2 + v L^2 |Sigma|^2 + d L`
#'
#' on `Theta_L`. If `f` is not convex, or the scale triangular, `v` is `v + 1` and the
#' last term `2 d L`. Around `theta*` these are the `blocks` `a_ij` and `b_i`, and `a =
#' max_j lambda_j sum_i lambda_i a_ij`, `b = sum_i lambda_i b_i` (Proposition 3 of the
#' paper): the row `"blocks"`, for any `lambda`. The paper's simpler constants for its
#' two choices of `lambda` are shown beside it. The proofs are in the maintainer's guide, `docs/internals.Rmd` of the sources.
#'
#' @section Corrections to the paper:
#' The paper has twice the second line, with `d - 1 + kappa` in place of `v`. The latter equals `v` for bases with independent
#' coordinates, where `E z_1^2 z_2^2 = 1`. In an elliptic base that expectation is `kappa / 3`, so for `kappa > 3` and `d > 1`
#' the paper's bound on `E|grad f z'|^2` is too small (a quadratic attains the right one). The factor 2 is not needed, and makes
#' up for it: both printed pairs `(a, b)` hold whenever `kappa <= 6`, that is for gaussian, laplace and uniform bases and for
#' student bases with `df >= 6`, and for every base in up to 4 dimensions. With heavier tails they can fail: for `kappa = 33`
#' (student, `df = 4.2`) in 10 dimensions an isotropic quadratic at twice the scale of the optimum has 1.53 times the noise that
#' the first pair allows. The columns `proven` and `refuted` say, for the base and the dimension at hand, whether the argument
#' above proves a printed pair, and whether an isotropic quadratic breaks it.
#'
#' The constants do not cover the `"path"`, `"control"` and `"fixed"` estimators, and are infinite for a base
#' of infinite kurtosis and for the poisson likelihood, whose curvature is
#' unbounded.
#'
#' @param model a model, see [model_glm()].
#' @param base the variational base, see [bases].
#' @param lambda preconditioner `c(mu = , Sigma = )`, in (0, 1].
#' @param optimum list with `mu` and `Sigma` (symmetric), in the model's coordinates, for models without an exact objective. It
#'   is checked: a scale below `1/sqrt(L)`, or a gradient beyond the noise of 1024 draws, is an error. Models with an exact
#'   objective find their optimum by [elvi_optimum()], and check yours against it.
#' @param coordinates `"raw"`, or `"whitened"` or `"majorant"` for the constants of a run in
#'   such coordinates, see [elvi_control()].
#' @param alpha strong convexity constant of `f` (a lower bound of its
#'   curvature), if you know it. Without an optimum, `|mu* - m|^2 + |Sigma*|^2 <=
#'   d / alpha` then bounds `b`.
#' @return A list of class `elvi_bg` with `a` and `b` (the pair that is used, that of
#'   `smallest`), `table` (all pairs that apply), `blocks` (the matrix
#'   `a_ij` and the vector `b_i`), `spread` (`|mu* - m|^2`, `|Sigma*|^2`, their
#'   sum, and whether it is `"exact"`, `"given"`, an `"upper bound"` or
#'   `"unknown"`), `optimum` (what is known about it) and what they were computed from.
#' @seealso [guarantee()]
#' @examples
#' model <- model_quadratic(diag(c(1, 4)), m = c(1, -1))
#' bg_constants(model, base_laplace())
#' # the paper's second choice of lambda
#' kappa <- base_info(base_gaussian(), 2)$kurtosis
#' bg_constants(model, base_gaussian(), lambda = c(mu = 1, Sigma = 1 / (2 * (2 - 1 + kappa))))
#' @export
bg_constants <- function(model, base = base_gaussian(), lambda = c(mu = 1, Sigma = 1), optimum = NULL,
                         coordinates = c("raw", "whitened", "majorant"), alpha = NULL) {
  check_class(model, "model", "elvi_model", "a model_*() function")
  check_class(base, "base", "elvi_base", "a base_*() function")
  lambda <- check_metric(lambda)
  coordinates <- check_choice(coordinates, "coordinates", c("raw", "whitened", "majorant"))
  control <- elvi_control(coordinates = coordinates)
  independent <- independent_form(model, control)
  model <- independent$model
  problem <- theorem_inputs(model, base, control, independent$place(optimum), alpha)
  noise <- noise_constants(problem, lambda)
  table <- rbind(printed_constants(problem, lambda, noise),
                 data.frame(formula = "blocks", a = noise$a, b = noise$b, proven = TRUE, refuted = FALSE))
  structure(c(noise[c("a", "b")],
              list(smallest = "blocks", table = table, blocks = noise[c("a_ij", "b_i")], lambda = lambda,
                   spread = problem$spread, optimum = problem$optimum_check[[2L]], coordinates = coordinates,
                   infinite = noise$infinite,
                   L = if (problem$unbounded) NA_real_ else problem$L,
                   L_source = if (problem$unbounded) model$smoothness_source else problem$L_source),
              problem[c("base", "dim", "kurtosis")]),
            class = "elvi_bg")
}

check_metric <- function(x) {
  if (!is.numeric(x) || length(x) != 2L || !setequal(names(x), c("mu", "Sigma"))) {
    bad_argument("lambda", "c(mu = , Sigma = )", describe(x))
  }
  if (anyNA(x) || any(x <= 0 | x > 1)) {
    bad_argument("lambda", "in (0, 1]", describe(unname(x[is.na(x) | x <= 0 | x > 1][1L])))
  }
  if (any(x < 1e-100)) {   # products of two of them must not vanish
    bad_argument("lambda", "at least 1e-100", describe(unname(min(x))))
  }
  x[c("mu", "Sigma")]
}

# Second moments of the two blocks of one reparam gradient, about the minimiser
# m of f, where sigma_min(Sigma) >= scale_min (for a triangular scale its
# diagonal): rows g_mu and g_Sigma are at most
#   slope[, "mu"] |mu - m|^2 + slope[, "Sigma"] |Sigma|_F^2 + level.
# |grad f(x)| <= L |x - m| and E|mu - m + Sigma z|^2 |z|^2 = d |mu - m|^2 +
# v |Sigma|_F^2 with E z z'|z|^2 = v I, v = E R^4 / d = kappa (d + 2) / 3. The
# paper's d - 1 + kappa is v for independent coordinates. The gradient in a
# triangular or diagonal scale is a projection of this one, so no longer.
# The cross term with the entropy's gradient: E grad f z' = B Sigma, B a mean of
# Hessians of f (docs/internals.Rmd). Where f is convex and the scale symmetric
# or diagonal ("aligned") -2 <B Sigma, Sigma^-1> = -2 tr B <= 0; elsewhere it is at
# most 2 L |Sigma|_F sqrt(d) / scale_min.
moment_blocks <- function(dim, kappa, L, scale_min = 1 / sqrt(L), aligned = TRUE) {
  v <- kappa * (dim + 2) / 3
  cross <- if (aligned) 0 else 1
  list(slope = L^2 * rbind(mu = c(mu = 1, Sigma = 1), Sigma = c(mu = dim, Sigma = v + cross)),
       level = c(mu = 0, Sigma = (1 + cross) * dim / scale_min^2))
}

is_aligned <- function(kind, convex = TRUE) isTRUE(convex) && scale_of(kind)$aligned

# From moments about m to constants about theta*, by |x + y|^2 <= grow |x|^2 +
# shrink |y|^2, 1/grow + 1/shrink = 1, for each block j of the distance. grow = 2 in
# the block that decides a = max_j lambda_j sum_i lambda_i a_ij (Prop. 3); in the
# others as much as that a allows, which makes b smaller at no cost.
about_optimum <- function(slope, lambda) {
  weight <- lambda * drop(lambda %*% slope)
  grow <- 2 * max(weight) / weight
  shrink <- grow / (grow - 1)
  list(a_ij = slope * rep(grow, each = 2L), b_ij = slope * rep(shrink, each = 2L))
}

# Prop. 3 with blocks a_ij: a = max_j lambda_j sum_i lambda_i a_ij
metric_a <- function(a_ij, lambda) max(lambda * drop(lambda %*% a_ij))

noise_constants <- function(problem, lambda, scale_min = 1 / sqrt(problem$L)) {
  spread <- problem$spread
  about_m <- moment_blocks(problem$dim, problem$kurtosis, problem$L, scale_min, problem$aligned)
  infinite <- if (problem$unbounded) paste("the curvature of the", problem$model$family$family, "likelihood is unbounded")
              else if (!is.finite(problem$kurtosis)) "the kurtosis of the base is infinite"
  if (!is.null(infinite)) {
    a_ij <- about_m$slope
    a_ij[] <- Inf
    b_i <- about_m$level
    b_i[] <- Inf
  } else {
    about <- about_optimum(about_m$slope, lambda)
    a_ij <- about$a_ij
    # of |mu* - m|^2 + |Sigma*|^2 only the sum may be known: row maxima bound it
    b_i <- about_m$level + if (is.na(spread$mu)) apply(about$b_ij, 1L, max) * spread$total
                           else drop(about$b_ij %*% c(spread$mu, spread$Sigma))
  }
  list(a = metric_a(a_ij, lambda), b = sum(lambda * b_i), a_ij = a_ij, b_i = b_i, infinite = infinite,
       about_m = about_m)
}

# The paper's pairs, where lambda is the paper's. Each is (a, a spread + level).
# With c_j = sum_i lambda_i slope_ij it follows from the moments about m if, for
# some split of the squares, grow_j lambda_j c_j <= a and shrink_j c_j <= a: that is
# if (1 + lambda_j) c_j <= a.
printed_constants <- function(problem, lambda, noise) {
  d <- problem$dim
  L <- problem$L
  near <- function(target) all(abs(lambda - target) <= 1e-9 * target)
  case <- if (near(c(1, 1))) {
    list("case 1, as printed", a = 4 * (d + problem$kurtosis) * L^2, level = 2 * d * L)
  } else if (near(c(1, 1 / (2 * (d - 1 + problem$kurtosis))))) {
    list("case 2, as printed", a = 4 * L^2, level = L)
  }
  if (is.null(case)) return(NULL)
  if (!is.null(noise$infinite)) case$a <- case$level <- Inf
  needed <- (1 + lambda) * drop(lambda %*% noise$about_m$slope)
  level <- sum(lambda * noise$about_m$level)
  slack <- 1 + 1e-12
  data.frame(formula = case[[1L]], a = case$a, b = case$a * problem$spread$total + case$level,
             proven = is.null(noise$infinite) &&
               isTRUE(all(c(needed, level) <= slack * c(rep(case$a, length(needed)), case$level))),
             refuted = is.null(noise$infinite) && round_quadratic_breaks(case$a / L^2, case$level / L, d,
                                                                         problem$kurtosis, lambda[["Sigma"]]))
}

# Does f = |x|^2 / 2, mu = m, Sigma = s I for some s >= 1 break E|g|^2 <= a D + b?
# E|g|^2 = s^2 d + lambda (s^2 v - 2 + 1/s^2) d, D = (s - 1)^2 d / lambda and b = a d +
# level; but for 1/s^2 the excess is a parabola in s, with its top above 1.
round_quadratic_breaks <- function(a, level, dim, kappa, lambda) {
  rise <- 1 + lambda * kappa * (dim + 2) / 3
  room <- a / lambda - rise
  if (room <= 0) return(TRUE)
  s <- 1 + rise / room
  noise <- dim * (s^2 * rise + lambda * (1 / s^2 - 2))
  noise > (1 + 1e-12) * (a * dim * ((s - 1)^2 / lambda + 1) + level)
}

#' @export
print.elvi_bg <- function(x, ...) {
  n <- function(v) ifelse(is.na(v), "unknown", show_each(v))
  cat("Noise of one gradient: E|g|^2_Lambda <= a |theta - theta*|^2_{Lambda^-1} + b\n")
  cat(x$base$kind, " base (kurtosis ", n(x$kurtosis), "), dimension ", x$dim, ", ", x$coordinates,
      " coordinates\nL = ", n(x$L), " (", x$L_source, ")\n", sep = "")
  cat("lambda: mu ", n(x$lambda[["mu"]]), ", Sigma ", n(x$lambda[["Sigma"]]), "\n\n", sep = "")
  table <- x$table
  cat(paste0("  ", format(c("", table$formula)), "  ", format(c("a", n(table$a)), justify = "right"), "  ",
             format(c("b", n(table$b)), justify = "right"), "  ",
             c("", if (!is.null(x$infinite)) "" else
               ifelse(table$formula == x$smallest, "used here",
                      ifelse(table$proven, "holds for this base",
                             ifelse(table$refuted, "false for this base: a quadratic breaks it",
                                    "not proven for this base"))))), sep = "\n")
  cat("\nBlocks: E|g_i|^2 <= sum_j a_ij |theta_j - theta*_j|^2 + b_i\n")
  cells <- rbind(c("|mu - mu*|^2", "|Sigma - Sigma*|^2", "b_i"),
                 cbind(n(x$blocks$a_ij), n(x$blocks$b_i)))
  cat(paste0("  ", format(c("", "g_mu", "g_Sigma")), "  ",
             apply(apply(cells, 2L, format, justify = "right"), 1L, paste, collapse = "  ")), sep = "\n")
  cat("\n")
  s <- x$spread
  if (s$kind == "unknown") {
    cat("|mu* - m|^2 + |Sigma*|^2 is unknown: give `optimum`, or `alpha` for a bound.\n")
  } else if (is.na(s$mu)) {
    cat("|mu* - m|^2 + |Sigma*|^2 <= d / alpha = ", n(s$total), " (upper bound)\n", sep = "")
  } else {
    cat("|mu* - m|^2 = ", n(s$mu), ", |Sigma*|^2 = ", n(s$Sigma), " (optimum: ", x$optimum, ")\n", sep = "")
  }
  if (!is.null(x$infinite)) cat("Infinite: ", x$infinite, ".\n", sep = "")
  cat("For the \"reparam\" estimator; the \"path\" and \"control\" estimators are not covered.\n")
  invisible(x)
}

# numbers for print, each with its own digits
show_each <- function(v) {
  vapply(v, function(x) {
    if (isTRUE(x == round(x) && abs(x) < 1e12)) format_count(x) else format(x, digits = 4, big.mark = ",")
  }, "")
}

# ---- the problem, in the coordinates of the run ----------------------------------

# Everything the theorems ask about f, base and optimum. `unbounded`: no L exists.
# m and optimum are in the coordinates of the run, optimum$scale of its kind.
theorem_inputs <- function(model, base, control, optimum, alpha) {
  law <- law_of(base, model$dim)
  model <- take_in(model, control, alpha)
  exists <- existence(model, base)
  work <- quietly(if (isFALSE(exists$exists) && frame_of(control)$affine) NULL
                  else whitened_model(model, control$coordinates, control$scale))
  L <- if (is.null(work)) list(L = NA_real_, source = "no whitened coordinates without a mode")
       else quietly(run_smoothness(model, work, law, control))
  L <- L %||% list(L = NA_real_, source = "not known and not estimable")
  unbounded <- is_regression(model) && is.na(model$smoothness)
  m <- if (is.null(work) || isFALSE(exists$exists)) NULL
       else quietly(coordinates_of(work)$mode(work, diagonal = !scale_of(control$scale)$full))
  problem <- list(model = model, base = base, law = law, dim = model$dim, kurtosis = law$kurtosis,
                  kind = control$scale, aligned = is_aligned(control$scale, model$convex), existence = exists,
                  work = work, L = L$L, L_source = L$source,
                  L_check = judge_smoothness(model, work, law, control, L, unbounded),
                  unbounded = unbounded, m = m, weight = weight_of_run(control, work, L$L),
                  alpha = if (!is.null(alpha)) check_alpha(alpha, work, L$L))
  problem$claims <- judge_claims(problem, control, alpha)
  problem$L_check <- problem$claims$smooth %||% problem$L_check
  c(problem, locate_optimum(problem, optimum))
}

# b of a gradient with a fixed control variate in the coordinates of the run; 0 for other estimators
weight_of_run <- function(control, work, L) {
  if (!has_fixed_weight(control) || is.null(work) || is.na(L)) 0 else relative_weight(control) * L
}

# A user's alpha says that f is convex and grows quadratically; a user's L of a
# density that had none makes it smooth.
take_in <- function(model, control, alpha) {
  if (!is.null(alpha)) {
    if (isFALSE(model$convex)) unused_argument("alpha", "the model is not convex")
    model$convex <- TRUE
    model$growth <- max(2, model$growth, na.rm = TRUE)
  }
  if (is_user_density(model) && is.na(model$smoothness) && !is.null(control$smoothness)) {
    model$smoothness <- control$smoothness
    model$smoothness_source <- "given in elvi_control()"
  }
  model
}

# NULL instead of the errors that mean "there is none"
quietly <- function(expr) {
  tryCatch(withCallingHandlers(expr, elvi_message_indefinite = function(m) invokeRestart("muffleMessage"),
                               elvi_warning_not_converged = function(w) invokeRestart("muffleWarning")),
           elvi_error_no_optimum = function(e) NULL, elvi_error_smoothness = function(e) NULL,
           elvi_error_no_expectation = function(e) NULL, elvi_error_nonfinite = function(e) NULL)
}

# alpha of f in the coordinates of the run
check_alpha <- function(alpha, work, L) {
  alpha <- check_positive(alpha, "alpha")
  if (is.null(work)) return(alpha)
  shrink <- coordinates_of(work)$smallest_stretch(work)
  inside <- alpha * shrink^2
  if (isTRUE(inside > L * (1 + 1e-8))) {
    bad_argument("alpha", sprintf("at most the smoothness of f (%s)", format(L / shrink^2, digits = 4)),
                 describe(alpha))
  }
  inside
}

# Is L a smoothness constant of f? status and why
judge_smoothness <- function(model, work, law, control, L, unbounded) {
  shown <- sprintf("L = %s, %s", format(L$L, digits = 4), L$source)
  if (unbounded) return(list("fails", paste("no L", sub("^none ", "", model$smoothness_source))))
  if (is.na(L$L)) return(list("unknown", L$source))
  if (is_estimate(L$source)) return(list("unknown", shown))
  if (!is.null(control$smoothness) && !is.na(model$smoothness)) {
    control["smoothness"] <- list(NULL)   # `$<-` would drop it, and $smoothness find smoothness_safety
    own <- run_smoothness(model, work, law, control)$L
    if (L$L < own * (1 - 1e-8)) {
      return(list(if (smoothness_attained(model)) "fails" else "unknown",
                  sprintf("%s, is below the model's own %s", shown, format(own, digits = 4))))
    }
  }
  list("holds", shown)
}

# theta* in the coordinates of the run, and spread: |mu* - m|^2, |Sigma*|^2 and
# their sum. If f is alpha-strongly convex the sum is at most d / alpha: at the
# optimum E grad f = 0 and <E grad f z' - Sigma^-1, Sigma> = 0 (for a triangular
# or diagonal scale too, which lies in the space the gradient is projected on),
# so E <grad f(x), x - m> = d, while <grad f(x), x - m> >= alpha |x - m|^2 and
# E|x - m|^2 = |mu* - m|^2 + |Sigma*|_F^2. Equality for f = alpha |x|^2 / 2.
locate_optimum <- function(problem, optimum) {
  out <- list(optimum = NULL, optimum_check = list("unknown", "give `optimum`, or `alpha` for an upper bound"),
              objective = NA_real_, spread = list(mu = NA_real_, Sigma = NA_real_, total = NA_real_, kind = "unknown"))
  model <- problem$model
  if (isFALSE(problem$existence$exists)) {
    out$optimum_check <- list("fails", "there is none")
    return(out)
  }
  given <- if (!is.null(optimum)) read_optimum(optimum, problem)
  found <- if (has_exact(model) && scale_of(problem$kind)$exact && fits_in_memory(exact_size(model, problem$kind))) exact_optimum(problem)
  if (is.null(found)) found <- given
  if (!is.null(given) && !is.null(problem$work)) {
    found$check <- if (found$kind == "exact") against_exact(given, found, problem) else judge_given(given, problem)
    if (found$kind == "exact" && found$check[[1L]] == "fails") {
      out$refuted <- to_work(problem$work, problem$kind, given$mu, given$scale)
    }
  }
  if (!is.null(found) && !is.null(problem$work) && !is.null(problem$m)) {
    out$optimum <- c(to_work(problem$work, problem$kind, found$mu, found$scale), found[c("certificate", "certified")])
    out$optimum_check <- found$check
    if (!is.null(found$objective)) out$objective <- found$objective
    out$spread <- c(spread_of(out$optimum, problem), kind = found$kind)
  } else if (!is.null(problem$alpha)) {
    out$optimum_check <- problem$claims$alpha %||% list("holds", "bounded: |mu* - m|^2 + |Sigma*|^2 <= d / alpha")
    out$spread$total <- problem$dim / problem$alpha
    out$spread$kind <- "upper bound"
  }
  out
}

spread_of <- function(theta, problem) {
  mu2 <- mu_norm2(problem$work, theta$mu - problem$m)
  scale2 <- sum(theta$scale^2)
  list(mu = mu2, Sigma = scale2, total = mu2 + scale2)
}

exact_optimum <- function(problem) {
  found <- quietly(elvi_optimum(problem$model, problem$base, problem$kind))
  if (is.null(found)) return(NULL)
  why <- sprintf("exact, by elvi_optimum() (%s within %s nats)",
                 if (found$certificate_kind == "rigorous") "certified" else "estimated",
                 format(found$certificate, digits = 1))
  list(kind = "exact", mu = unname(found$mu), scale = unname(found$scale), objective = found$objective,
       certificate = found$certificate, certified = found$certificate_kind == "rigorous",
       check = list(if (found$certificate <= 1e-6) "holds" else "unknown", why))
}

# A user's optimum with its scale in the kind of the run
read_optimum <- function(optimum, problem) {
  if (!is.list(optimum) || is.null(optimum$mu) || is.null(optimum$Sigma)) {
    bad_argument("optimum", "a list with `mu` and `Sigma`", describe(optimum))
  }
  d <- problem$dim
  mu <- check_vector(optimum$mu, "optimum$mu", d)
  list(kind = "given", mu = mu, scale = scale_of_symmetric(optimum$Sigma, d, problem$kind, "optimum$Sigma"))
}

# What is said about an optimum that the user gave: where the exact one is known it is
# the one that counts, and the other is compared with it.
against_exact <- function(given, exact, problem) {
  there <- tryCatch(exact_oracle(problem$model, problem$law)(problem$kind, given$mu, given$scale)$objective,
                    elvi_error = function(e) Inf)
  above <- there - exact$objective
  if (isTRUE(above <= 1e-6)) return(list(exact$check[[1L]], "yours agrees with elvi_optimum()"))
  list("fails", sprintf("the one you gave is %s nats above the exact one", format(above, digits = 3)))
}

# Without an exact objective it can only be shown not to be one: outside Theta_L, or
# with a gradient that noise does not explain. Otherwise it is "assumed".
judge_given <- function(given, problem, draws = 1024L) {
  if (is_taken(problem$L_check)) {
    at <- to_work(problem$work, problem$kind, given$mu, given$scale)
    lifted <- project_scale(problem$kind, at$scale, 1 / sqrt(problem$L), Inf)$scale
    if (max(abs(lifted - at$scale)) > 1e-6 * max(abs(at$scale))) {
      return(list("fails", "the one you gave has a scale below 1/sqrt(L): no optimum has"))
    }
  }
  score <- gradient_score(given, problem, draws)
  if (!is.finite(score$worst)) return(list("fails", "the gradient is not finite at your optimum"))
  if (score$worst > score$limit) {
    return(list("fails", sprintf("your optimum is not stationary: a gradient of %s standard errors in %s draws",
                                 format(score$worst, digits = 2), format_count(draws))))
  }
  list("assumed", sprintf(paste("as you gave it: stationary within the noise of %s draws, which would detect a gradient of %s",
                                "in units of its scale"),
                          format_count(draws), format(score$resolution, digits = 2)))
}

# The largest mean of an entry of the gradient in its standard errors, from batches, and a
# limit: twice what chance would exceed once in a thousand times if all were 0 and normal,
# because products of heavy-tailed draws are not. In the units of the
# scale S, x = mu + S z, the gradients in mu and S are the means of t and t z', t = S' grad f(x) -
# the score of z: the base's, or for a density that jumps the gaussian's, which is unbiased too.
gradient_score <- function(theta, problem, draws, batches = 32L, key = c(0, 0)) {
  z <- draw_base(problem$law, key, draws)   # a fixed key: R's generator is not touched
  x <- theta$mu + root_times(theta$scale, z)
  g <- target_at(problem$model, x)$gradient
  r <- sqrt(colSums(z^2))
  score <- if (problem$law$path) -.Call(elvi_r_score, problem$law, r) / r else 1
  t <- root_crossprod(theta$scale, g) - z * rep(score, each = nrow(z))
  mean <- square <- 0
  for (rows in split(seq_len(draws), rep(seq_len(batches), length.out = draws))) {
    here <- t[, rows, drop = FALSE]
    one <- cbind(rowMeans(here), scale_of(problem$kind)$outer(here, z[, rows, drop = FALSE]))
    mean <- mean + one / batches
    square <- square + one^2 / batches
  }
  noise <- sqrt(pmax(square - mean^2, 0) / (batches - 1))
  # 1e-5: an optimum to single precision is one
  limit <- 2 * stats::qt(0.0005 / length(mean), batches - 1, lower.tail = FALSE)
  list(worst = max(abs(mean) / (noise + 1e-5)), limit = limit, resolution = limit * max(noise + 1e-5))
}
