# References for the exact objective. They share nothing with R/solve-quadrature.R: the law of
# the radius and that of the direction, put together by quadrature in plain R.

# ---- the bases, by the law of their radius ---------------------------------------

# Per base: the base; log_f, the log density of R in dimension d;
# end, where its support ends; marginal, the density of z_1 where it has a name.
radius_laws <- function(d) {
  law <- function(base, log_f, end = Inf, marginal = NULL) {
    list(base = base, log_f = log_f, end = end, marginal = marginal)
  }
  power <- function(s) {
    c <- exp((lgamma((d + 2) / s) - lgamma(d / s) - log(d)) / 2)
    law(base_power(s), function(r) dgamma((c * r)^s, d / s, log = TRUE) + log(s * c) + (s - 1) * log(c * r))
  }
  student <- function(df) {
    k <- df / (d * (df - 2))   # k R^2 ~ F(d, df)
    unit <- sqrt(df / (df - 2))
    law(base_student(df), function(r) log(2 * k * r) + df(k * r^2, d, df, log = TRUE),
        marginal = function(z) dt(z * unit, df) * unit)
  }
  # phi = (1 - r^2)^p on the unit ball: R^2 / e^2 ~ Beta(d/2, p + 1), e^2 = d + 2 + 2 p,
  # and z_1 / e has density prop. to (1 - z^2)^(p + (d - 1) / 2)
  bounded <- function(base, p) {
    e <- sqrt(d + 2 + 2 * p)
    shape <- p + (d + 1) / 2
    law(base, function(r) log(2 * r / e^2) + dbeta(pmin(r^2 / e^2, 1), d / 2, p + 1, log = TRUE), end = e,
        marginal = function(z) dbeta((1 + pmin(z / e, 1)) / 2, shape, shape) / (2 * e))
  }
  list(
    gaussian = law(base_gaussian(), function(r) log(2 * r) + dchisq(r^2, d, log = TRUE), marginal = dnorm),
    laplace = law(base_laplace(), function(r) dgamma(r, d, rate = sqrt(d + 1), log = TRUE)),
    uniform = bounded(base_uniform(), 0),
    student5 = student(5),
    student3 = student(3),
    power0.7 = power(0.7),
    power3 = power(3),
    radial_logistic = law(base_radial(function(r) -r - 2 * log1p(exp(-r))),
                          standardized_radius(function(r) -r - 2 * log1p(exp(-r)), d)),
    radial_ball = bounded(base_radial(function(r) ifelse(r <= 1.7, 3, -Inf)), 0),
    radial_beta = bounded(base_radial(function(r) 1.5 * log(pmax(1 - r^2, 0))), 1.5)
  )
}

# log density of the standardized radius of a density proportional to exp(log_phi)
standardized_radius <- function(log_phi, d) {
  log_f <- function(r) (d - 1) * log(r) + log_phi(r)
  top <- optimize(log_f, c(1e-9, 10 * d + 10), maximum = TRUE)
  nodes <- top$maximum + 2 * (sqrt(d) + 5) * (-20:20)
  nodes <- c(0, nodes[nodes > 0])
  moment <- function(k) {
    f <- function(r) r^k * exp(log_f(r) - top$objective)
    sum(mapply(function(from, to) integrate(f, from, to, rel.tol = 1e-13)$value, head(nodes, -1), nodes[-1]))
  }
  unit <- sqrt(moment(2) / moment(0) / d)
  constant <- log(moment(0)) + top$objective
  function(r) log_f(r * unit) + log(unit) - constant
}

# log of c in the density c (1 - u^2)^((d - 3) / 2) of a coordinate of the direction
log_direction <- function(d) lgamma(d / 2) - lgamma((d - 1) / 2) - log(pi) / 2

# ---- expectations over z_1 ---------------------------------------------------------

# Double exponential nodes and weights on (0, end): for functions that may be
# singular at 0 and at a finite end.
half_line <- function(end = Inf, h = 0.02, far = 16) {
  if (is.finite(end)) {   # tanh-sinh
    t <- seq(-3.4, 3.4, by = h / 5)
    u <- pi * sinh(t)
    nodes <- list(z = end * plogis(u), w = h / 5 * end * pi * cosh(t) * plogis(u) * plogis(-u))
    return(lapply(nodes, `[`, nodes$z < end))
  }
  t <- seq(-3.6, far, by = h)
  list(z = exp(t - exp(-t)), w = h * (1 + exp(-t)) * exp(t - exp(-t)))
}

# Nodes z > 0 and weights w with E g(z_1) = sum w (g(z) + g(-z)), to about 1e-13. Where
# the marginal has no name it is int f_R(r) c (1 - z^2 / r^2)^((d - 3) / 2) / r dr, whose
# integrand is smooth in rho = sqrt(r^2 - z^2).
marginal_nodes <- function(law, d, h = 0.02) {
  if (!is.null(law$marginal)) {
    nodes <- half_line(law$end, h, far = 45)
    nodes$w <- nodes$w * law$marginal(nodes$z)
  } else {
    nodes <- half_line(Inf, h)
    nodes <- lapply(nodes, `[`, nodes$z <= max(nodes$z[law$log_f(nodes$z) > -600]))
    p <- if (d == 1) exp(law$log_f(nodes$z)) / 2 else {
      rho <- half_line(Inf, min(h, 0.2 / sqrt(d)))
      rho <- lapply(rho, `[`, law$log_f(rho$z) > -600)
      z <- matrix(nodes$z, length(nodes$z), length(rho$z))
      t <- matrix(rho$z, length(nodes$z), length(rho$z), byrow = TRUE)
      r <- sqrt(z^2 + t^2)
      drop(exp(log_direction(d) + law$log_f(r) + (d - 2) * log(t / r) - log(r)) %*% rho$w)
    }
    nodes$w <- nodes$w * p
  }
  lapply(nodes, `[`, nodes$w > 0)
}

# l(t) without the response, and its derivative
plain_losses <- list(
  logit = list(l = function(t) -plogis(-t, log.p = TRUE), slope = function(t) plogis(t)),
  probit = list(l = function(t) -pnorm(t, log.p = TRUE),
                # far out the two logarithms cancel
                slope = function(t) ifelse(t < -40, t + 1 / t - 2 / t^3 + 10 / t^5 - 74 / t^7,
                                           -exp(dnorm(t, log = TRUE) - pnorm(t, log.p = TRUE)))),
  poisson = list(l = exp, slope = exp),
  # of a success; that of a failure is poisson's
  cloglog = list(l = function(t) -pexp(exp(t), log.p = TRUE),
                 slope = function(t) ifelse(t > 6.5, 0, -exp(t - exp(t) - pexp(exp(t), log.p = TRUE)))),
  # of a student prior, in units of its own
  tail = list(l = function(t) log1p(t^2), slope = function(t) 2 * t / (1 + t^2))
)

# E l, E l' and E[l' z_1] / s at eta + s z_1
plain_integrals <- function(nodes, likelihood, eta, s) {
  loss <- plain_losses[[likelihood]]
  if (likelihood == "poisson") {   # where exp() would overflow there must be nothing left to add
    size <- log(nodes$w) + s * nodes$z
    nodes <- lapply(nodes, `[`, size > max(size) - 45)
  }
  up <- eta + s * nodes$z
  down <- eta - s * nodes$z
  slope_up <- loss$slope(up)
  slope_down <- loss$slope(down)
  c(value = sum(nodes$w * (loss$l(up) + loss$l(down))), slope = sum(nodes$w * (slope_up + slope_down)),
    curve = sum(nodes$w * nodes$z * (slope_up - slope_down)) / s)
}

# The same by nested integrate(): over t = log R, and inside over the angle a of the
# direction, u_1 = sin(a) with density prop. to cos(a)^(d - 2).
nested_integrals <- function(law, d, likelihood, eta, s) {
  loss <- plain_losses[[likelihood]]
  go <- function(f, from, to) integrate(f, from, to, rel.tol = 1e-11, abs.tol = 1e-15, subdivisions = 2000L)$value
  width <- min(pi / 2, 9 / sqrt(d))   # cos^(d - 2) is below 1e-17 further out
  over_direction <- function(g, r) {
    if (d == 1) return((g(r) + g(-r)) / 2)
    go(function(a) exp(log_direction(d)) * cos(a)^(d - 2) * (g(r * sin(a)) + g(-r * sin(a))), 0, width)
  }
  mass <- function(t) law$log_f(exp(t)) + t
  t <- seq(-30, 12, length.out = 8000)
  t <- t[exp(t) < law$end]
  t <- t[mass(t) > max(mass(t)) - 36]
  top <- if (is.finite(law$end)) log(law$end) else max(t)
  breaks <- seq(min(t), top, length.out = 8)
  expectation <- function(g) {
    outer <- function(t) exp(mass(t)) * vapply(exp(t), over_direction, 0, g = g)
    sum(mapply(function(from, to) go(outer, from, to), head(breaks, -1), breaks[-1]))
  }
  c(value = expectation(function(z) loss$l(eta + s * z)), slope = expectation(function(z) loss$slope(eta + s * z)),
    curve = expectation(function(z) loss$slope(eta + s * z) * z) / s)
}

# ---- generalised linear models -------------------------------------------------------

# A small model with everything in it: counts of trials, weights (some 0), an offset, a
# prior with locations and unequal scales. `data` holds the same in plain R.
busy_glm <- function(likelihood, n = 12, d = 3, seed = 1, df = Inf) {
  withr_seed(seed, {
    X <- matrix(rnorm(n * d), n, d)
    data <- list(X = X, weights = c(0, rexp(n - 1)), offset = rnorm(n) / 2, trials = rep(1, n), dispersion = 1,
                 location = seq(-0.5, 1, length.out = d), scale = seq(0.7, 2, length.out = d), likelihood = likelihood, df = rep_len(df, d))
    if (likelihood %in% c("logit", "probit", "cloglog")) data$trials <- 1 + rpois(n, 1)
    if (likelihood == "normal") data$dispersion <- 0.6
    data$y <- switch(likelihood, poisson = rpois(n, 1.5), normal = rnorm(n), rbinom(n, data$trials, 0.4))
  })
  family <- switch(likelihood, poisson = poisson(), normal = gaussian(), binomial(likelihood))
  y <- if (likelihood %in% c("logit", "probit", "cloglog")) cbind(data$y, data$trials - data$y) else data$y
  prior <- if (all(is.infinite(df))) normal(data$location, data$scale) else student_t(data$df, data$location, data$scale)
  data$model <- model_glm(X, y, family, prior, weights = data$weights, offset = data$offset, dispersion = data$dispersion)
  data
}

# evaluates code under a seed and puts R's generator back
withr_seed <- function(seed, code) {
  if (!exists(".Random.seed", globalenv())) runif(1)
  before <- get(".Random.seed", globalenv())
  on.exit(assign(".Random.seed", before, globalenv()))
  set.seed(seed)
  force(code)
}

# f at the columns of x
plain_target <- function(data, x) {
  apply(x, 2, function(at) {
    loss <- with(data, glm_target(at, X, y, likelihood, trials, weights, offset, dispersion))
    t <- (at - data$location) / data$scale
    loss + sum(ifelse(is.infinite(data$df), t^2 / 2, (data$df + 1) / 2 * log1p(t^2 / data$df)))
  })
}

# E f, its gradient in mu and B, row by row: with `covariance` that of x
plain_exact <- function(data, nodes, mu, covariance) {
  eta <- drop(data$X %*% mu) + data$offset
  s <- sqrt(rowSums((data$X %*% covariance) * data$X))
  row <- function(i) {
    integrals <- function(eta, likelihood = data$likelihood) plain_integrals(nodes, likelihood, eta, s[i])
    y <- data$y[i]
    switch(data$likelihood,
      normal = c(((eta[i] - y)^2 + s[i]^2) / 2, eta[i] - y, 1) / data$dispersion,
      poisson = integrals(eta[i]) - c(y * eta[i], y, 0),
      logit = data$trials[i] * integrals(eta[i]) - c(y * eta[i], y, 0),
      # -y log Phi(t) - (n - y) log Phi(-t)
      probit = y * integrals(eta[i]) + (data$trials[i] - y) * c(1, -1, 1) * integrals(-eta[i]),
      cloglog = y * integrals(eta[i]) + if (y < data$trials[i]) (data$trials[i] - y) * integrals(eta[i], "poisson") else 0)
  }
  terms <- vapply(seq_along(eta), row, numeric(3)) * rep(data$weights, each = 3)
  penalty <- vapply(seq_along(mu), function(j) {
    off <- mu[j] - data$location[j]
    nu <- data$df[j]
    if (is.infinite(nu)) return(c((off^2 + covariance[j, j]) / 2, off, 1) / data$scale[j]^2)
    unit <- 1 / (data$scale[j] * sqrt(nu))
    (nu + 1) / 2 * c(1, unit, unit^2) * plain_integrals(nodes, "tail", unit * off, unit * sqrt(covariance[j, j]))
  }, numeric(3))
  list(value = sum(terms[1, ]) + sum(penalty[1, ]), g_mu = drop(crossprod(data$X, terms[2, ])) + penalty[2, ],
       B = crossprod(data$X, terms[3, ] * data$X) + diag(penalty[3, ], length(mu)))
}

# three parametrisations near the same scale
some_scale <- function(kind, d, size = 0.4) {
  root <- size * (diag(seq(1, 1.5, length.out = d), d) + 0.3 * outer(seq_len(d), seq_len(d), function(i, j) (i != j) / (i + j)))
  switch(kind, symmetric = root, diagonal = diag(root), triangular = root * lower.tri(root, diag = TRUE))
}

as_root <- function(scale) if (is.matrix(scale)) scale else diag(scale, length(scale))

# ---- the setting of Figure 1 -------------------------------------------------------------

# d = 200, 300 rows, prior precision 0.1. The optimum under the laplace
# base is found once.
figure1_store <- new.env()

figure1 <- function() {
  if (is.null(figure1_store$data)) {
    figure1_store$data <- withr_seed(1, {
      U <- matrix(runif(300 * 200), 300, 200)
      list(U = U, y = rbinom(300, 1, 0.5))
    })
    figure1_store$data$model <- with(figure1_store$data, model_glm(U, y, prior = normal(0, 1 / sqrt(0.1))))
  }
  figure1_store$data
}

# F* under the laplace base, as test-solve-exact.R certifies it
figure1_least <- 211.3111991073

figure1_optimum <- function() {
  if (is.null(figure1_store$optimum)) figure1_store$optimum <- elvi_optimum(figure1()$model, base_laplace())
  figure1_store$optimum
}

# ---- other people's functions ----------------------------------------------------------------

# evaluates code while a function of the package is another (testthat 3.2 has
# local_mocked_bindings() for this)
with_swapped <- function(name, value, code) {
  space <- asNamespace("elvi")
  before <- get(name, space)
  put <- function(v) {
    unlockBinding(name, space)
    assign(name, v, space)
    lockBinding(name, space)
  }
  put(value)
  on.exit(put(before))
  force(code)
}
