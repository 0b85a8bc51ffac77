# Pure-R references for the tests: exact laws of the bases, quadrature, finite
# differences, and the targets' formulas. Nothing here calls the code it judges.

# ---- conditions --------------------------------------------------------------

# Asserts that expr is refused as a bad argument of that name; returns the code
# and the message, for a snapshot.
refusal <- function(expr, argument, class = "elvi_error_argument") {
  refusal_of(deparse_code(substitute(expr)), expr, argument, class)
}

# The same with a snapshot of its own
expect_refusal <- function(expr, argument, class = "elvi_error_argument") {
  message <- refusal_of(deparse_code(substitute(expr)), expr, argument, class)
  testthat::expect_snapshot_output(writeLines(message))
}

deparse_code <- function(code) paste(deparse(code, width.cutoff = 500L), collapse = " ")

refusal_of <- function(code, expr, argument, class) {
  e <- tryCatch({
    expr
    NULL
  }, error = identity)
  if (is.null(e)) {
    testthat::fail(paste(code, "was accepted"))
    return(code)
  }
  expect_s3_class(e, class)
  expect_s3_class(e, "elvi_error")
  expect_identical(e$argument, argument, info = code)
  expect_match(conditionMessage(e), argument, fixed = TRUE, info = code)
  paste0(code, "\n  ", conditionMessage(e))
}

# ---- bases -------------------------------------------------------------------

# The bases under test in dimension d. Each has the base; p, the distribution
# function of R; kurtosis, E z_i^4; end, the right end of its support; breaks,
# where its density jumps; eighth, has it an eighth moment (so that the sampling
# error of E z_i^4 is known)?
oracle_bases <- function(d) {
  entry <- function(base, p, kurtosis, end = Inf, breaks = numeric(), eighth = TRUE) {
    list(base = base, p = p, kurtosis = kurtosis, end = end, breaks = breaks, eighth = eighth)
  }
  student_p <- function(df) function(r) pf(r^2 * df / (d * (df - 2)), d, df)
  power <- function(s) {
    rate <- sqrt(gamma((d + 2) / s) / gamma(d / s) / d)
    entry(base_power(s), function(r) pgamma((rate * r)^s, d / s),
          3 * d / (d + 2) * gamma((d + 4) / s) * gamma(d / s) / gamma((d + 2) / s)^2)
  }
  # student densities of a scale that is not the standardized one
  heavy <- function(df) base_radial(function(r) 1 - (df + d) / 2 * log1p(r^2 / 9))
  logistic <- radial_law(function(r) 1 / cosh(r / 2)^2, d, end = 200)
  ball <- entry(base_uniform(), function(r) pmin(r / sqrt(d + 2), 1)^d,
                3 * (d + 2) / (d + 4), end = sqrt(d + 2))
  list(
    gaussian = entry(base_gaussian(), function(r) pchisq(r^2, d), 3),
    laplace = entry(base_laplace(), function(r) pgamma(r, d, sqrt(d + 1)), 3 * (d + 3) / (d + 1)),
    uniform = ball,
    student5 = entry(base_student(5), student_p(5), 9, eighth = FALSE),
    student3 = entry(base_student(3), student_p(3), Inf, eighth = FALSE),
    power0.7 = power(0.7),
    power1 = power(1),
    power3 = power(3),
    radial_gaussian = entry(base_radial(function(r) 2 - r^2 / 8), function(r) pchisq(r^2, d), 3),
    radial_logistic = entry(base_radial(function(r) -2 * log(cosh(r / 2)), log_concave = TRUE),
                            logistic$p, logistic$kurtosis),
    radial_student5 = entry(heavy(5), student_p(5), 9, eighth = FALSE),
    radial_student3 = entry(heavy(3), student_p(3), Inf, eighth = FALSE),
    radial_ball = modifyList(ball, list(base = base_radial(function(r) ifelse(r <= 1.7, 3, -Inf)))),
    # (1 - r^2)^1.5: R^2 / (d + 5) ~ Beta(d / 2, 5 / 2)
    radial_beta = entry(base_radial(function(r) 1.5 * log(pmax(1 - r^2, 0))),
                        function(r) pbeta(r^2 / (d + 5), d / 2, 5 / 2),
                        3 * (d + 5) / (d + 7), end = sqrt(d + 5)),
    radial_shells = shells(d, entry)
  )
}

# phi = 1 on (0, 1) and on (2, 3), 0 elsewhere
shells <- function(d, entry) {
  moment <- function(k) (1 + 3^(d + k) - 2^(d + k)) / (d + k)
  unit <- sqrt(moment(2) / moment(0) / d)
  p <- function(r) {
    x <- r * unit
    (pmin(x, 1)^d + pmin(pmax(x, 2), 3)^d - 2^d) / (d * moment(0))
  }
  entry(base_radial(function(r) ifelse(r <= 1 | (r >= 2 & r <= 3), 0, -Inf)), p,
        3 / (d * (d + 2)) * moment(4) / moment(0) / unit^4, end = 3 / unit, breaks = (1:2) / unit)
}

# Law of the standardized radius of a density phi, by integrate().
radial_law <- function(phi, d, end) {
  piece <- function(from, to, k) {
    integrate(function(r) r^(d + k - 1) * phi(r), from, to, rel.tol = 1e-10)$value
  }
  nodes <- end * seq(0, 1, length.out = 401)^2
  moment <- function(k) sum(mapply(piece, head(nodes, -1), nodes[-1], k))
  m0 <- moment(0)
  unit <- sqrt(moment(2) / m0 / d)
  cdf <- c(0, cumsum(mapply(piece, head(nodes, -1), nodes[-1], 0))) / m0
  spline <- splinefun(nodes / unit, cdf, method = "monoH.FC")
  list(p = function(r) pmin(pmax(spline(r), 0), 1),
       kurtosis = 3 / (d * (d + 2)) * moment(4) / m0 / unit^4)
}

# E g(R) by quadrature, for z with log density log_p(r) at radius r
radial_expectation <- function(g, log_p, d, end = Inf, breaks = numeric()) {
  area <- 2 * pi^(d / 2) / gamma(d / 2)
  integrand <- function(r) {
    p <- exp(log_p(r))
    ifelse(p == 0, 0, area * r^(d - 1) * p * g(r))
  }
  nodes <- sort(unique(c(0, 0.1, 0.5, 1, 2, 4, 8, 16, 64, 1000, breaks, end)))
  nodes <- nodes[nodes <= end]
  sum(mapply(function(from, to) integrate(integrand, from, to, rel.tol = 1e-10, subdivisions = 1000L)$value,
             head(nodes, -1), nodes[-1]))
}

# ---- derivatives ---------------------------------------------------------------

fd_gradient <- function(f, x, h = 1e-5) {
  vapply(seq_along(x), function(j) {
    e <- replace(numeric(length(x)), j, h)
    (f(x + e) - f(x - e)) / (2 * h)
  }, 0)
}

# symmetrised Jacobian of a gradient
fd_hessian <- function(g, x, h = 1e-5) {
  H <- vapply(seq_along(x), function(j) {
    e <- replace(numeric(length(x)), j, h)
    (g(x + e) - g(x - e)) / (2 * h)
  }, x)
  H <- matrix(H, length(x))
  (H + t(H)) / 2
}

# ---- targets -------------------------------------------------------------------

# -log posterior of a GLM up to a constant of the data, row by row from R's own
# distribution functions. y: successes, counts or responses.
glm_target <- function(x, X, y, likelihood, trials = 1, weights = 1, offset = 0,
                       dispersion = 1, location = 0, scale = Inf) {
  eta <- drop(X %*% x) + offset
  # n log p with 0 log 0 = 0
  times <- function(n, log_p) ifelse(n == 0, 0, n * log_p)
  loss <- switch(
    likelihood,
    logit = -times(y, plogis(eta, log.p = TRUE)) - times(trials - y, plogis(-eta, log.p = TRUE)),
    probit = -times(y, pnorm(eta, log.p = TRUE)) - times(trials - y, pnorm(-eta, log.p = TRUE)),
    cloglog = -times(y, pexp(exp(eta), log.p = TRUE)) + times(trials - y, exp(eta)),
    poisson = -dpois(y, exp(eta), log = TRUE) - lfactorial(y),
    normal = (y - eta)^2 / (2 * dispersion)
  )
  sum(weights * loss) + sum(((x - location) / scale)^2) / 2
}
