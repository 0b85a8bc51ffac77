# ---- noise constants -----------------------------------------------------------

#' Noise constants of the gradient
#'
#' The convergence theorems ask that the noise of a single gradient grows at most
#' quadratically with the distance from the optimum, in the metric of the
#' preconditioner `Lambda = (lambda_mu, lambda_Sigma)`:
#'
#' `E|g|^2_Lambda <= a |theta - theta*|^2_{Lambda^-1} + b`.
#'
#' `bg_constants()` computes `a` and `b` for the `"reparam"` estimator.
#'
#' With `m` the minimiser of `f`, `d` the dimension, `kappa` the kurtosis of the
#' base and `v = E z_1^2 |z|^2 = kappa (d + 2) / 3`,
#'
#' * `E|g_mu|^2 <= L^2 |mu - m|^2 + L^2 |Sigma|^2`
#' * `E|g_Sigma|^2 <= 2 d L^2 |mu - m|^2 + 2 v L^2 |Sigma|^2 + 2 d L`
#'
#' on `Theta_L`. Around `theta*` (`|x + y|^2 <= 2|x|^2 + 2|y|^2`) these are the
#' `blocks` `a_ij` and `b_i`, and `a = max_j lambda_j sum_i lambda_i a_ij`, `b =
#' sum_i lambda_i b_i`: the row `"blocks"`, for any `lambda`. The paper's simpler
#' constants for its two choices of `lambda` are shown beside it.
#'
#' @section Where this departs from the paper's print:
#' The paper has `d - 1 + kappa` in place of `v`, from a theorem for bases with
#' independent coordinates, `E z_1^2 z_2^2 = 1`. In an elliptic base it is
#' `kappa / 3`. For `kappa <= 3` (gaussian, uniform) or `d = 1` the printed
#' constants are valid; for heavier tails (laplace, student) they are too small,
#' by a factor that grows with `d` for student bases close to `df = 4`. The column
#' `proven` says whether a printed pair is covered by the argument above.
#'
#' The constants do not cover the `"path"` and `"control"` estimators, and are infinite for a base
#' of infinite kurtosis and for the poisson likelihood, whose curvature is
#' unbounded.
#'
#' @param model a model, see [model_glm()].
#' @param base the variational base, see [bases].
#' @param lambda preconditioner `c(mu = , Sigma = )`, in (0, 1].
#' @param optimum list with `mu` and `Sigma` (symmetric), in the model's
#'   coordinates, for models without an exact objective; the others find it by
#'   [elvi_optimum()].
#' @param coordinates `"raw"`, or `"whitened"` for the constants of a run in
#'   whitened coordinates, see [elvi_control()].
#' @param alpha strong convexity constant of `f` (a lower bound of its
#'   curvature), if you know it. Without an optimum, `|mu* - m|^2 + |Sigma*|^2 <=
#'   d / alpha` then bounds `b`.
#' @return A list of class `elvi_bg` with `a` and `b` (the smallest proven pair,
#'   that of `smallest`), `table` (all pairs that apply), `blocks` (the matrix
#'   `a_ij` and the vector `b_i`), `spread` (`|mu* - m|^2`, `|Sigma*|^2`, their
#'   sum, and whether it is `"exact"`, `"given"`, an `"upper bound"` or
#'   `"unknown"`) and what they were computed from.
#' @seealso [guarantee()]
#' @examples
#' model <- model_quadratic(diag(c(1, 4)), m = c(1, -1))
#' bg_constants(model, base_laplace())
#' # the paper's second choice of lambda
#' kappa <- base_info(base_gaussian(), 2)$kurtosis
#' bg_constants(model, base_gaussian(), lambda = c(mu = 1, Sigma = 1 / (2 * (2 - 1 + kappa))))
#' @export
bg_constants <- function(model, base = base_gaussian(), lambda = c(mu = 1, Sigma = 1), optimum = NULL,
                         coordinates = c("raw", "whitened"), alpha = NULL) {
  check_class(model, "model", "elvi_model", "a model_*() function")
  check_class(base, "base", "elvi_base", "a base_*() function")
  lambda <- check_metric(lambda)
  coordinates <- check_choice(coordinates, "coordinates", c("raw", "whitened"))
  problem <- theorem_inputs(model, base, elvi_control(coordinates = coordinates), optimum, alpha)
  noise <- noise_constants(problem, lambda)
  table <- rbind(printed_constants(problem, lambda, noise),
                 data.frame(formula = "blocks", a = noise$a, b = noise$b, proven = TRUE))
  # printed pairs are proven by being no smaller than the blocks'
  structure(c(noise[c("a", "b")],
              list(smallest = "blocks", table = table, blocks = noise[c("a_ij", "b_i")], lambda = lambda,
                   spread = problem$spread, coordinates = coordinates, infinite = noise$infinite,
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
moment_blocks <- function(dim, kappa, L, scale_min = 1 / sqrt(L)) {
  v <- kappa * (dim + 2) / 3
  list(slope = L^2 * rbind(mu = c(mu = 1, Sigma = 1), Sigma = c(mu = 2 * dim, Sigma = 2 * v)),
       level = c(mu = 0, Sigma = 2 * dim / scale_min^2))
}

# Prop. 3 with blocks a_ij: a = max_j lambda_j sum_i lambda_i a_ij
metric_a <- function(a_ij, lambda) max(lambda * drop(lambda %*% a_ij))

noise_constants <- function(problem, lambda, scale_min = 1 / sqrt(problem$L)) {
  spread <- problem$spread
  about_m <- moment_blocks(problem$dim, problem$kurtosis, problem$L, scale_min)
  a_ij <- 2 * about_m$slope
  # of |mu* - m|^2 + |Sigma*|^2 only the sum may be known: row maxima bound it
  b_i <- about_m$level + if (is.na(spread$mu)) apply(a_ij, 1L, max) * spread$total
                         else drop(a_ij %*% c(spread$mu, spread$Sigma))
  infinite <- if (problem$unbounded) paste("the curvature of the", problem$model$family$family, "likelihood is unbounded")
              else if (!is.finite(problem$kurtosis)) "the kurtosis of the base is infinite"
  if (!is.null(infinite)) {
    a_ij[] <- Inf
    b_i[] <- Inf
  }
  list(a = metric_a(a_ij, lambda), b = sum(lambda * b_i), a_ij = a_ij, b_i = b_i, infinite = infinite)
}

# The paper's pairs, where lambda is the paper's. Each is (a, a spread + level);
# proven if no smaller than the blocks' in every coefficient.
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
  needed <- c(noise$a, drop(lambda %*% noise$a_ij))
  level <- lambda[["Sigma"]] * 2 * d * L
  slack <- 1 + 1e-12
  data.frame(formula = case[[1L]], a = case$a, b = case$a * problem$spread$total + case$level,
             proven = is.null(noise$infinite) &&
               isTRUE(all(c(needed, level) <= slack * c(rep(case$a, length(needed)), case$level))))
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
               ifelse(table$formula == x$smallest, "smallest proven",
                      ifelse(table$proven, "", "not proven for this base")))), sep = "\n")
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
    cat("|mu* - m|^2 = ", n(s$mu), ", |Sigma*|^2 = ", n(s$Sigma), " (optimum ", s$kind, ")\n", sep = "")
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
  work <- quietly(if (isFALSE(exists$exists) && control$coordinates == "whitened") NULL
                  else work_model(model, control$coordinates, control$scale))
  L <- if (is.null(work)) list(L = NA_real_, source = "no whitened coordinates without a mode")
       else quietly(run_smoothness(model, work, law, control))
  L <- L %||% list(L = NA_real_, source = "not known and not estimable")
  unbounded <- is_regression(model) && is.na(model$smoothness)
  m <- if (is.null(work) || isFALSE(exists$exists)) NULL
       else if (is_whitened(work)) numeric(model$dim)
       else quietly(find_mode(model)$x)
  problem <- list(model = model, base = base, law = law, dim = model$dim, kurtosis = law$kurtosis,
                  kind = control$scale, existence = exists, work = work, L = L$L, L_source = L$source,
                  L_check = judge_smoothness(model, work, law, control, L, unbounded),
                  unbounded = unbounded, m = m,
                  alpha = if (!is.null(alpha)) check_alpha(alpha, work, L$L))
  c(problem, locate_optimum(problem, optimum))
}

# A user's alpha says that f is convex and grows quadratically; a user's L of a
# density that had none makes it smooth.
take_in <- function(model, control, alpha) {
  if (!is.null(alpha)) {
    if (isFALSE(model$convex)) bad_argument("alpha", "left out: the model is not convex", describe(alpha))
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
  shrink <- if (!is_whitened(work)) 1 else smallest_stretch(work$A)
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
  if (grepl("^estimated", L$source)) return(list("unknown", shown))
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
  found <- if (!is.null(optimum)) check_optimum(optimum, problem)
           else if (has_exact(model)) exact_optimum(problem)
  if (!is.null(found) && !is.null(problem$work) && !is.null(problem$m)) {
    out$optimum <- to_work(problem$work, problem$kind, found$mu, found$scale)
    out$optimum_check <- found$check
    if (!is.null(found$objective)) out$objective <- found$objective
    mu2 <- sum((out$optimum$mu - problem$m)^2)
    scale2 <- sum(out$optimum$scale^2)
    out$spread <- list(mu = mu2, Sigma = scale2, total = mu2 + scale2, kind = found$kind)
  } else if (!is.null(problem$alpha)) {
    out$optimum_check <- list("holds", "bounded: |mu* - m|^2 + |Sigma*|^2 <= d / alpha")
    out$spread$total <- problem$dim / problem$alpha
    out$spread$kind <- "upper bound"
  }
  out
}

exact_optimum <- function(problem) {
  found <- quietly(elvi_optimum(problem$model, problem$base, problem$kind))
  if (is.null(found)) return(NULL)
  why <- sprintf("exact, by elvi_optimum() (%s within %s nats)",
                 if (found$certificate_kind == "rigorous") "certified" else "estimated",
                 format(found$certificate, digits = 1))
  list(kind = "exact", mu = unname(found$mu), scale = unname(found$scale), objective = found$objective,
       check = list(if (found$certificate <= 1e-6) "holds" else "unknown", why))
}

# A user's optimum with its scale in the kind of the run
check_optimum <- function(optimum, problem) {
  if (!is.list(optimum) || is.null(optimum$mu) || is.null(optimum$Sigma)) {
    bad_argument("optimum", "a list with `mu` and `Sigma`", describe(optimum))
  }
  d <- problem$dim
  mu <- check_vector(optimum$mu, "optimum$mu", d)
  S <- optimum$Sigma
  S <- check_scale_matrix(S, d, "optimum$Sigma")
  if (!isSymmetric(S) || inherits(try(chol(S), silent = TRUE), "try-error")) {
    bad_argument("optimum$Sigma", "symmetric and positive definite", "a matrix that is not")
  }
  list(kind = "given", mu = mu,
       scale = scale_of(problem$kind)$of_symmetric(S, "optimum$Sigma"),
       check = list("holds", "given by you, not checked"))
}
