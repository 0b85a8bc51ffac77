# The prior as a fit: the problem of a formula without its likelihood. Given standard deviations, correlations, dispersion and the scales
# of student priors all parameters are normal, so the prior is a mixture of normal components over points of these few. The posterior
# of such a fit is that mixture, and every method shows the prior.

solve_prior <- function(problem, base, method, run, control) {
  check_prior_only(problem, base, method, run)
  conditional <- conditional_problem(problem)
  seed <- draw_key()
  posterior <- prior_posterior(prior_parts(problem), derived_key(seed, "posterior"))
  new_fit(c(list(call = problem$call, method = "prior", problem = conditional, base = base), split_control(control)),
          plan = list(seed = seed, rng_kind = RNGkind()),
          result = list(status = "finished", kept = "optimum", converged = TRUE, nested = prior_account(posterior), posterior = posterior),
          regression = problem$regression)
}

# a fit by prior_only = TRUE
is_prior <- function(fit) identical(fit$given$method, "prior")

check_prior_only <- function(problem, base, method, run) {
  check_class(base, "base", "elvi_base", "a base_*() function")
  used <- given_values(run)
  if (length(used)) {
    unused_argument(names(used)[1L], "prior_only = TRUE optimises nothing")
  }
  if (method != "auto") unused_argument("method", "prior_only = TRUE optimises nothing")
  if (!identical(base$kind, base_gaussian()$kind)) {
    bad_argument("base", "base_gaussian() with prior_only = TRUE", paste0("base_", base$kind, "()"),
                 "the prior is a mixture of normal distributions")
  }
  if (is_chunked(problem$rows)) bad_argument("data", "in memory with prior_only = TRUE", "a source of rows")
  check_conditional_family(problem$family)
  refuse_flat_priors(problem$priors, colnames(problem$rows$X), family_record(problem$family)$dispersion$natural)
}

refuse_flat_priors <- function(priors, names, dispersion, argument = "prior_only") {
  flat <- names[rep_len(is.infinite(priors$joint$scale), length(names))]
  if (is_flat_positive(priors$aux)) flat <- c(flat, dispersion)
  if (!length(flat)) return(invisible())
  elvi_abort("`", argument, "`: the prior must be proper, and ", if (length(flat) == 1L) "that of " else "those of ",
             paste0("`", utils::head(flat, 5L), "`", collapse = ", "), if (length(flat) > 5L) ", ...",
             if (length(flat) == 1L) " is" else " are", " flat: a flat prior has no draws. Give proper priors, such as normal(0, 2.5).",
             class = "elvi_error_argument", data = list(argument = argument))
}

is_flat_positive <- function(prior) !is.null(prior) && !has_rate(prior) && any(is.infinite(prior$scale))

# the fields of nested_account() for a fit in which nothing was approximated
prior_account <- function(posterior) {
  K <- length(posterior$weight)
  list(evidence = list(log = 0, corrected = 0, se = 0, quadrature_error = 0, flat = 0, proper = TRUE, rests_on = "no data"),
       k_hat = rep(-Inf, K), draws = 0L, corrected = FALSE, noise = 0, change = list(mean = 0, sd = 0), evaluations = K,
       certificates = numeric(K), certificate_kind = rep("rigorous", K))
}

# ---- the mixture ------------------------------------------------------------------------------------------

# What the prior of a problem is made of: a fit has the same, see prior_of_fit().
prior_parts <- function(problem) {
  c(problem[c("family", "dispersion", "priors", "terms")],
    list(names = colnames(problem$rows$X), y = response_rows(problem$rows$y, 1L), lines = first_row_lines(problem$lines),
         intercept_shift = intercept_shift(problem$shift, problem$intercepts %||% 1L, problem$lines)))
}

first_row_lines <- function(lines) {
  if (is.null(lines)) return(NULL)
  replace(lines, "offset", list(lines$offset[1L, , drop = FALSE]))
}

# The prior in the form of a posterior.
prior_posterior <- function(parts, key, points = prior_points) {
  setup <- nested_setup(problem_without_rows(parts), base_gaussian())
  laid <- lay_prior(setup, parts$priors$joint, points)
  nodes <- prior_nodes(setup, laid)
  H <- setup$layout$length
  hyper <- list(theta = laid$theta, mode = numeric(H), hessian = diag(1, H), z = laid$theta, rule = "prior", weight = laid$weight)
  nested_posterior(list(setup = setup, nodes = nodes, hyper = hyper), setup$problem, key)
}

prior_points <- 1000L

# What nested_setup() takes, with one row that does not count: the solver wants at least one.
problem_without_rows <- function(parts) {
  p <- length(parts$names)
  columns <- sum(vapply(parts$terms, function(term) length(term$columns), 0L))
  list(X = matrix(0, 1L, p, dimnames = list(NULL, parts$names)), Z = empty_columns(1L, columns), y = parts$y, weight = 0, count = 0,
       constant = 0, family = parts$family, prior = fixed_prior(parts$priors$joint, p), terms = parts$terms,
       intercept_shift = parts$intercept_shift, offset = if (!is.null(parts$lines)) matrix(0, 1L, 1L + ncol(parts$lines$offset)),
       line = if (!is.null(parts$lines)) column_lines(parts$lines, parts$terms),
       hyper = if (is.null(parts$dispersion)) hyper_priors(parts))
}

# Points of the hyperparameters and of the scales of student priors, with weights. Even points of the unit cube are spread by a normal
# distribution that is wider than the standard one, so that tails have points, and become values by the quantile functions of each prior.
lay_prior <- function(setup, joint, points) {
  p <- ncol(setup$problem$X)
  df <- rep_len(joint$df, p)
  student <- which(is.finite(df))
  axes <- prior_axes(setup)
  H <- length(axes)
  D <- H + length(student)
  if (!D) return(list(theta = matrix(0, 1L, 0L), factor = matrix(1, 1L, p), weight = 1))
  wide <- 1 + 0.5 / D
  z <- wide * stats::qnorm(even_points(points, D))
  log_weight <- rowSums(stats::dnorm(z, log = TRUE) - stats::dnorm(z / wide, log = TRUE))
  theta <- matrix(vapply(seq_len(H), function(j) axes[[j]]$quantile(z[, j]), numeric(points)), points)
  factor <- matrix(1, points, p)
  if (length(student)) factor[, student] <- student_factors(stats::pnorm(z[, H + seq_along(student), drop = FALSE]), df[student])
  if (H) log_weight <- log_weight + joint_to_axes(setup, axes, theta)
  list(theta = theta, factor = factor, weight = normalised(log_weight))
}

# a student variable is a normal one times such a factor
student_factors <- function(u, df) sqrt(rep(df, each = nrow(u)) / stats::qchisq(u, rep(df, each = nrow(u)), lower.tail = FALSE))

# Points that fill the unit cube evenly: multiples of powers of 1 / phi, where phi^(D + 1) = phi + 1 (the golden ratio for D = 1).
even_points <- function(n, D) {
  phi <- 2
  for (again in 1:60) phi <- (1 + phi)^(1 / (D + 1))
  outer(seq_len(n), phi^-seq_len(D), function(i, a) (0.5 + i * a) %% 1)
}

# ---- one hyperparameter at a time ----------------------------------------------------------------------------

# For each hyperparameter, on its scale without bounds, the distribution that its prior has given all others at 0: log density and
# quantiles by normal scores. Priors of elvi are products, for which that is the prior itself.
prior_axes <- function(setup) {
  at <- function(j, value) {
    theta <- replace(numeric(setup$layout$length), j, value)
    hyper_prior(setup$problem, setup$layout, theta)$value
  }
  lapply(seq_len(setup$layout$length), function(j) prior_axis(function(x) vapply(x, function(v) at(j, v), 0)))
}

prior_axis <- function(log_density, depth = 45) {
  coarse <- seq(-100, 100, by = 0.5)
  value <- log_density(coarse)
  value[is.nan(value)] <- -Inf
  near <- range(coarse[value > max(value) - depth])
  x <- seq(near[1L] - 0.5, near[2L] + 0.5, length.out = 801L)
  value <- log_density(x)
  keep <- is.finite(value)
  curve <- stats::splinefun(x[keep], value[keep])
  grid <- seq(min(x[keep]), max(x[keep]), length.out = 8001L)
  density <- exp(curve(grid) - max(value[keep]))
  step <- grid[2L] - grid[1L]
  # both tails from their own ends, so that neither loses digits
  below <- cumsum((density[-1L] + density[-length(density)]) / 2) * step
  above <- rev(cumsum(rev((density[-1L] + density[-length(density)]) / 2))) * step
  total <- below[length(below)]
  inner <- grid[-c(1L, length(grid))]
  P <- below[-length(below)] / total
  score <- ifelse(P < 0.5, stats::qnorm(P), stats::qnorm(above[-1L] / total, lower.tail = FALSE))
  told <- is.finite(score) & abs(score) < 8.2 & !duplicated(score)
  list(log_density = function(v) curve(v) - max(value[keep]) - log(total),
       quantile = function(z) stats::approx(score[told], inner[told], z, rule = 2)$y)
}

# log of the joint prior over the product of the axes, up to a constant: 0 for priors that are products
joint_to_axes <- function(setup, axes, theta) {
  joint <- apply(theta, 1L, function(row) hyper_prior(setup$problem, setup$layout, row)$value)
  each <- Reduce(`+`, lapply(seq_along(axes), function(j) axes[[j]]$log_density(theta[, j])))
  out <- joint - each
  if (diff(range(out)) < 1e-3) numeric(length(out)) else out
}

# ---- components -----------------------------------------------------------------------------------------------

# The normal distribution given each point, as conditional_node() has it. The row of weight 0 leaves precision and mean to the prior.
prior_nodes <- function(setup, laid) {
  problem <- setup$problem
  each <- lapply(seq_along(laid$weight), function(k) {
    at <- problem
    at$prior$precision <- problem$prior$precision / laid$factor[k, ]^2
    hyper_precision(at, setup$layout, laid$theta[k, ])[c("A", "definite", "inverse", "slack")]
  })
  any_hyper <- loss_hyper(setup, numeric(setup$layout$length))   # the row of weight 0 has no use for it
  pairs <- choose((setup$plan$lines %||% 1L) + 1L, 2L)
  settings <- lapply(each, c, list(hyper = any_hyper, mu = setup$plan$centre, eta = NULL, c = numeric(pairs)))
  solved <- solve_settings(setup$plan, setup$rule, settings, 1e-6)
  if (any(vapply(solved, `[[`, NA, "failed"))) refuse_improper_terms()
  lapply(seq_along(each), function(k) {
    theta <- laid$theta[k, ]
    given <- c(each[[k]], list(hyper = loss_hyper(setup, theta)))
    conditional_node(list(theta = theta, solution = solved[[k]], precision = given), setup)
  })
}

refuse_improper_terms <- function() {
  elvi_abort("prior_only = TRUE needs proper priors, and the effects of at least one term have none: its precision matrix is singular.",
             class = "elvi_error_argument", data = list(argument = "prior_only"))
}

# for print(): sds of points are finite, those of such priors are not
infinite_line <- function(joint) {
  if (!any(joint$df <= 2)) return(NULL)
  "Student priors with at most 2 degrees of freedom have infinite standard deviations: go by quantiles"
}

# Methods that compare a posterior with data make no sense of a prior.
refuse_prior <- function(fit, argument, what) {
  if (!is_prior(fit)) return(invisible())
  bad_argument(argument, "a fit of data", "of the prior alone (prior_only = TRUE)", what)
}
