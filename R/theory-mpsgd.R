#' What the theory guarantees about a run of mpsgd()
#'
#' `mpsgd_guarantee()` computes, before a run of [mpsgd()], an upper bound on its expected gap, from constants that you supply: those of
#' the noise, the smoothness of `F` and the distance of the start from the minimiser.
#'
#' By calling it you assert that `F` is convex and smooth with constant `smoothness` (on the whole space, or so that it can be
#' continued), that it has a minimiser `theta*` in the set, a product with a factor for each block, that the start is in the
#' set, and that a single gradient estimate `g` is unbiased with noise that grows at most quadratically: for each block `i`
#'
#' `E |g_i|^2 <= sum_j a[i, j] |theta_j - theta*_j|^2 + b[i]`
#'
#' Then, with `a = max_j lambda_j sum_i lambda_i a[i, j]`, `b = sum_i lambda_i b[i]` and `D = sum_j
#' distance2[j] / lambda_j`, the expected gap of the theorem's average is at most
#'
#' * `step/(2N) (a D + b) + D/(2 step K)` with constant step and batch;
#' * `(D + b/a)` over `2 sum_k step_k exp(-a sum_{i <= k} step_i^2/N_i)` otherwise.
#'
#' The best iterate has the same bound, one step earlier in the proof, and almost sure
#' statements hold as described in [guarantee()]. Run `mpsgd(average = "theorem", a = g$a)` with the
#' `a` of the guarantee, which is in the weights of the average.
#'
#' @section The gradient at the minimiser:
#' The theorems need `grad F(theta*) = 0`. At a minimiser on the boundary of the set the gradient need not be 0, and the bounds
#' can fail. In that case:
#'
#' * With **single gradients** (all batches 1) it is not needed, and neither are smoothness
#'   and short steps. Leave `smoothness` out, or let `slope` be `NA`.
#' * With larger batches, `slope = |grad F(theta*)|^2` for each block adds
#'   `step/2 (N - 1)/N s / (1 - c)` to the bound with constant steps, where `s = sum_i lambda_i
#'   slope[i]` and `c = step smoothness (N - 1)/N`, which must be below 1. It goes to 0
#'   with the steps, not with the batches.
#'
#' @param a the constants `a[i, j]`, a matrix with a row for each block of the gradient and
#'   a column for each block of the distance; a number for one block.
#' @param b the constants `b[i]`.
#' @param distance2 `|theta_j - theta*_j|^2` of the start for each block, or upper bounds.
#' @param smoothness the smoothness constant of `F` (in the plain norm).
#' @param schedule steps and batches, as for [mpsgd()].
#' @param lambda preconditioner, as for [mpsgd()]: a number in (0, 1] for each block.
#' @param slope squared norm of the gradient of `F` at the minimiser for each block, or an upper
#'   bound; `NA` if unknown.
#' @param a_weights the `a` that [mpsgd()] is given, if it is another than that of the noise.
#' @param budget gradient evaluations, instead of the schedule's.
#' @param x a guarantee.
#' @param ... not used.
#' @return A list of classes `elvi_mpsgd_guarantee` and `elvi_guarantee` with `bound` (`NA` if the
#'   theorem does not apply), `sharper`, `best_iterate`, `almost_surely`, `a`, `b`, `D`, `rate` (see
#'   [schedule_rate()]) and `assumptions`. [predict()][predict.elvi_guarantee] has the bound for other
#'   budgets, [best_split()] the best batch and number of iterations, [budget_for()] the budget for a
#'   target.
#' @seealso [mpsgd()], [guarantee()] for [elvi()]
#' @examples
#' # least squares, a few rows at a time: with r the residuals at the optimum, a gradient is
#' # x x'(theta - theta*) - x r, and |u + v|^2 <= 2 |u|^2 + 2 |v|^2
#' X <- scale(as.matrix(mtcars[, c("wt", "hp", "qsec")]))
#' y <- mtcars$mpg - mean(mtcars$mpg)
#' best <- qr.solve(X, y)
#' r <- drop(y - X %*% best)
#' size2 <- rowSums(X^2)
#' a <- 2 * norm(crossprod(X, size2 * X) / nrow(X), "2")
#' b <- 2 * mean(size2 * r^2)
#' L <- norm(crossprod(X) / nrow(X), "2")
#' g <- mpsgd_guarantee(a, b, distance2 = sum(best^2), smoothness = L,
#'                      schedule = schedule_custom(1 / L, 400, 250))
#' g
#' best_split(g, 1e5)
#' predict(mpsgd_guarantee(a, b, sum(best^2), L, schedule_decay(1000, step = 0.01)), c(1e4, 1e5))
#'
#' # single gradients: no smoothness needed, and the minimiser may be anywhere in the set
#' mpsgd_guarantee(a, b, sum(best^2), schedule = schedule_custom(0.002, 1, 1e5))
#' @export
mpsgd_guarantee <- function(a, b, distance2, smoothness = NULL, schedule, lambda = NULL, slope = 0,
                            a_weights = NULL, budget = NULL) {
  blocks <- if (!is.null(names(b))) names(b) else rownames(a)
  b <- check_each(b, "b", max(1L, length(b)))
  m <- length(b)
  a <- check_noise_matrix(a, m, blocks)
  distance2 <- check_each(distance2, "distance2", m, blocks)
  slope <- check_slope(slope, m, blocks)
  L <- if (is.null(smoothness)) NA_real_ else check_number(smoothness, "smoothness", 0)
  lambda <- if (is.null(lambda)) rep(1, m) else check_each(lambda, "lambda", m, blocks, left_out = 1)
  if (any(lambda <= 0 | lambda > 1)) bad_argument("lambda", "in (0, 1]", describe(lambda[lambda <= 0 | lambda > 1][1L]))
  if (missing(schedule)) bad_argument("schedule", "made by a schedule_*() function", "missing")
  check_class(schedule, "schedule", "elvi_schedule", "a schedule_*() function")
  if (!is.null(budget)) schedule <- with_budget(schedule, budget)

  a_lambda <- metric_a(a, lambda)
  a_weights <- if (is.null(a_weights)) a_lambda else check_number(a_weights, "a_weights", 0)
  plan <- plan_mpsgd(schedule, lambda, a_weights)
  constant <- is_constant(plan)
  ends <- plan_at(plan, if (constant) 0 else c(0, plan$iterations - 1))
  g <- structure(
    list(bound = NA_real_, by = NA_character_, bounds = no_bounds, conditional = NA_real_, sharper = NA_real_, best_iterate = NA_real_,
         kind = if (constant) "finite horizon" else "dynamic", D = sum(distance2 / lambda), a = a_lambda,
         b = sum(lambda * b), a_weights = a_weights, gamma = ends$step, N = ends$batch, K = plan$iterations,
         lambda = lambda, L = L, lip = L, slope = sum(lambda * slope), shift = 0, single = single_gradients(plan),
         rate = schedule_rate(schedule), blocks = blocks, assumptions = NULL, almost_surely = NULL, schedule = schedule,
         control = list(iterations = Inf, average = "theorem"), constants = NULL, checked = FALSE,
         unit = "", candidates = "distance"),   # its constants are the user's, and the theorem is quoted as it stands
    class = c("elvi_mpsgd_guarantee", "elvi_guarantee"))
  g$assumptions <- mpsgd_assumptions(g, plan)
  if (!nrow(in_doubt(g))) {
    g$bounds <- evaluate_bounds(g, plan)
    g[c("bound", "sharper")] <- as.list(g$bounds[c("distance", "sharper")])
    g$by <- "distance"
  }
  if (!needs_no_slope(g)) g$rate["exponent"] <- NA_real_   # larger batches do not help against a slope
  fill_iterates(g, plan)
}

# numbers of at least 0, one for each block, in the order of `blocks` if named
check_each <- function(x, name, m, blocks = NULL, left_out = NULL) {
  if (is.list(x)) x <- unlist(x)
  given <- names(x)
  x <- check_vector(x, name)
  if (any(x < 0)) bad_argument(name, "not negative", describe(x[x < 0][1L]))
  if (!is.null(given) && !is.null(blocks)) {
    check_block_names(given, blocks, name)
    if (!is.null(left_out)) x <- c(x, rep(left_out, length(setdiff(blocks, given))))
    given <- union(given, blocks)
    if (length(x) == m) return(x[match(blocks, given)])
  }
  if (length(x) != m) {
    bad_argument(name, sprintf("of length %d, a number for each block", m), paste("of length", length(x)))
  }
  x
}

# 0 and NA are for all blocks at once
check_slope <- function(slope, m, blocks) {
  if (is.atomic(slope) && length(slope) && all(is.na(slope))) return(rep(NA_real_, m))
  if (is_number(slope) && slope == 0) return(rep(0, m))
  check_each(slope, "slope", m, blocks)
}

check_noise_matrix <- function(a, m, blocks) {
  if (!is.matrix(a) && is_number(a) && m == 1L) a <- matrix(a)
  a <- check_matrix(a, "a", m, m)
  if (any(a < 0)) bad_argument("a", "not negative", describe(a[a < 0][1L]))
  for (labels in dimnames(a)) {
    if (!is.null(blocks) && !is.null(labels) && !identical(labels, blocks)) {
      bad_argument("a", paste0("with rows and columns named as the blocks (", toString(blocks), ")"), toString(labels))
    }
  }
  a
}

mpsgd_assumptions <- function(g, plan) {
  row <- function(assumption, status, why, needed = TRUE, about = "problem") {
    data.frame(assumption = assumption, status = status, why = why, needed = needed, about = about)
  }
  batches <- !g$single
  longest <- max(g$gamma, plan$step_table)
  largest <- max(g$N, plan$batch_table)
  short <- if (is.na(g$L)) NA else if (isTRUE(g$slope == 0)) longest * g$L <= 1 + 1e-12
           else longest * g$L * (largest - 1) / largest < 1
  rbind(
    row("F convex", "assumed", "you say so"),
    row("minimiser in the set", "assumed", "you say so"),
    row("noise", "assumed", "you say so"),
    row("F smooth", if (is.na(g$L)) "unknown" else "assumed",
        if (is.na(g$L)) "give `smoothness`" else sprintf("L = %s", format(g$L, digits = 4)), needed = batches),
    row("gradient 0 at it", if (is.na(g$slope)) "unknown" else if (g$slope == 0) "assumed" else "fails",
        if (is.na(g$slope)) "give `slope`" else if (g$slope == 0) "you say so"
        else sprintf("|grad F|^2 = %s, which is in the bound", format(g$slope, digits = 4)),
        needed = batches && !isTRUE(g$slope > 0)),
    row("step", if (is.na(short)) "unknown" else if (short) "holds" else "fails",
        if (is.na(short)) "no bound without `smoothness`"
        else if (isTRUE(g$slope == 0)) sprintf("%s %s 1/L = %s", format(longest, digits = 4),
                                               if (short) "<=" else "is longer than", format(1 / g$L, digits = 4))
        else sprintf("step L (N - 1)/N = %s is %s 1", format(longest * g$L * (largest - 1) / largest, digits = 4),
                     if (short) "below" else "not below"), needed = batches, about = "run"),
    if (theorem_of(g)$sums) {
      ends <- !is.null(plan$step_table)
      summable <- ends || 2 * plan$step_power + plan$batch_power > 1
      row("sum step^2/N finite", if (summable) "holds" else "fails",
          if (ends) "the schedule ends" else if (summable) "the bound goes to 0 as the budget grows"
          else "the theorem does not say that the gap goes to 0", needed = FALSE, about = "run")
    })
}

#' @rdname mpsgd_guarantee
#' @export
print.elvi_mpsgd_guarantee <- function(x, ...) {
  n <- show_each
  cat("Guarantee, ", x$kind, ", for mpsgd() with ", length(x$lambda), if (length(x$lambda) == 1L) " block\n" else " blocks\n",
      sep = "")
  print(x$schedule)
  cat("\n")
  if (is.na(x$bound)) {
    bad <- in_doubt(x)
    cat("NO GUARANTEE for E F(average) - F*: ",
        paste0("\"", bad$assumption, "\" ", ifelse(bad$status == "fails", "fails", "is unknown"), collapse = ", "), ".\n",
        sep = "")
  } else {
    cat("E F(average) - F* <= ", n(x$bound),
        if (x$sharper < 0.995 * x$bound) paste0(", or ", n(x$sharper), " one step earlier in the proof"), "\n", sep = "")
  }
  if (!is.na(x$best_iterate)) cat("The best iterate: E min_k F(theta_k) - F* <= ", n(x$best_iterate), "\n", sep = "")
  print_almost_surely(x)
  if (!is.na(x$rate$exponent) && !is.na(x$bound)) print(x$rate)
  cat("\na = ", n(x$a), ", b = ", n(x$b), ", D = ", n(x$D), if (!is.na(x$L)) paste0(", L = ", n(x$L)), ", lambda (",
      toString(n(x$lambda)), ")\n\n", sep = "")
  rows <- x$assumptions
  cat(paste0("  ", format(rows$assumption), "  ", format(rows$status), "  ",
             ifelse(rows$needed, "", "(not needed) "), rows$why), sep = "\n")
  invisible(x)
}

#' @export
replan.elvi_mpsgd_guarantee <- function(g, E) plan_mpsgd(with_budget(g$schedule, E), g$lambda, g$a_weights)

#' @export
caveat.elvi_mpsgd_guarantee <- function(g) NULL
