point_rule <- list(levels = list(), prior_levels = list(), mgf = "none", mgf_rate = 0, limit = Inf)
gaussian_rule <- function(name) elvi:::cached_quadrature(elvi:::law_of(base_gaussian(), 2), name)

# ---- records -------------------------------------------------------------------

test_that("a record that lacks an entry, or has one too many, stops the package from loading", {
  records <- elvi:::family_records
  expect_identical(elvi:::check_family_records(records), records)
  for (entry in elvi:::family_entries) {
    short <- records["poisson"]
    short$poisson <- short$poisson[names(short$poisson) != entry]
    expect_error(elvi:::check_family_records(short), paste0("`poisson` lacks.*", entry))
  }
  for (entry in elvi:::dispersion_entries) {
    short <- records["robust"]
    short$robust$dispersion[[entry]] <- NULL
    expect_error(elvi:::check_family_records(short), paste0("`robust\\$dispersion` lacks.*", entry))
  }
  more <- records["logit"]
  more$logit$misspelt <- 1
  expect_error(elvi:::check_family_records(more), "misspelt")
})

test_that("every record has a likelihood of its name in C, and is found by its family and link", {
  for (name in names(elvi:::family_records)) {
    record <- elvi:::family_records[[name]]
    family <- if (record$family == "binomial") binomial(record$link) else record$make()
    expect_identical(elvi:::likelihood_of(family), name)
    expect_identical(elvi:::check_family(record$family)$family, record$family)
    at <- .Call(elvi:::elvi_r_expect_rows, list(likelihood = name, error_df = 4), point_rule, 1,
                list(y = 1, weight = 1, eta = 0.3, s = 0))
    expect_true(all(is.finite(c(at$sum, at$slope, at$curve))))
    # and says of it in R what C knows
    spread <- .Call(elvi:::elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), 1,
                    list(y = 1, weight = 1, eta = 0.3, s = 0.5))
    expect_identical(spread$status == elvi:::status_ok, record$convex)
  }
})

# ---- probit ----------------------------------------------------------------------

# phi(t) / Phi(t) for t < 0 by its continued fraction, whose terms are all positive: no digit is lost
mills_fraction <- function(t, depth) {
  below <- -t
  for (k in depth:2) below <- -t + k / below
  -t + 1 / below
}

test_that("the Mills ratio is good to 1e-15 on all of the line", {
  t <- c(-1.5, -2, -3, -4.99, -5, -5.01, -7.3, -12, -20, -29.999, -30, -30.001, -37, -38, -49.9, -50.1, -100,
         -899.3, -900, -1e3, -1001, -1e5, -1e8, -1e150)
  off <- vapply(t, function(t) elvi:::mills(t) / mills_fraction(t, if (t > -5) 20000L else 500L) - 1, 0)
  expect_lt(max(abs(off)), 1e-15)
  # with 50 digits, by mpmath
  known <- c("-0.1" = 0.86261747153093614, "-0.5" = 1.14107777036806448, "-1" = 1.52513527616098121,
             "0" = 0.797884560802865356, "0.5" = 0.509160433837033486, "1" = 0.287599970939178361,
             "3" = 0.00443783904212566379, "5" = 1.48671994090490571e-06, "10" = 7.69459862670641935e-23,
             "25" = 7.65392973641939266e-137)
  expect_lt(max(abs(elvi:::mills(as.double(names(known))) / known - 1)), 1e-15)
  expect_identical(elvi:::mills(c(40, Inf)), c(0, 0))
})

test_that("the probit loss has its derivatives far out too", {
  for (t in c(-900, -100, -31, -29, -5, -1, 0, 2, 8)) {
    at <- .Call(elvi:::elvi_r_expect_rows, list(likelihood = "probit", error_df = Inf), point_rule, 1,
                list(y = 1, weight = 1, eta = t, s = 0))
    expect_equal(at$sum, -pnorm(t, log.p = TRUE), tolerance = 1e-14, label = t)
    expect_equal(at$slope, -elvi:::mills(t), tolerance = 1e-15, label = t)
    h <- 1e-3 * max(1, abs(t))
    second <- (elvi:::mills(t - h) - elvi:::mills(t + h)) / (2 * h)
    expect_equal(at$curve, second, tolerance = 2e-5, label = t)
  }
})

# ---- expectations for a dispersion that is given --------------------------------------

reference_losses <- list(
  normal = function(eta, y, sigma, df) log(sigma) + (y - eta)^2 / (2 * sigma^2),
  robust = function(eta, y, sigma, df) -dt((y - eta) / sigma, df, log = TRUE) + dt(0, df, log = TRUE) + log(sigma),
  # minus the log density, up to gamma functions of (y, phi)
  neg_binomial_2 = function(eta, y, phi, df) {
    -dnbinom(y, size = phi, mu = exp(eta), log = TRUE) + lgamma(phi + y) - lgamma(phi) - lgamma(y + 1)
  })

test_that("expectations of rows are those of the loss, and slope and curve their derivatives", {
  y <- c(0, 1, 3, 10)
  eta <- c(-1, 0.3, 2, 1)
  s <- c(0.01, 0.4, 1.5, 5)
  w <- c(1, 0, 2, 0.5)
  for (name in c("normal", "neg_binomial_2")) for (dispersion in c(0.3, 2, 40)) {
    loss <- function(eta, y) reference_losses[[name]](eta, y, dispersion, 4)
    at <- .Call(elvi:::elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), dispersion,
                list(y = y, weight = w, eta = eta, s = s))
    expected <- function(i, eta, s) {
      integrate(function(z) dnorm(z) * loss(eta + s * z, y[i]), -12, 12, rel.tol = 1e-11, subdivisions = 1000L)$value
    }
    value <- vapply(1:4, function(i) expected(i, eta[i], s[i]), 0)
    expect_equal(at$sum, sum(w * value), tolerance = 1e-9, label = name)
    h <- 1e-3
    slope <- vapply(1:4, function(i) (expected(i, eta[i] + h, s[i]) - expected(i, eta[i] - h, s[i])) / (2 * h), 0)
    expect_equal(at$slope, w * slope, tolerance = 1e-5, label = name)
    # d/ds E l(eta + s z) = E[l' z]
    curve <- vapply(1:4, function(i) (expected(i, eta[i], s[i] + h) - expected(i, eta[i], s[i] - h)) / (2 * h * s[i]), 0)
    expect_equal(at$curve, w * curve, tolerance = 1e-4, label = name)
    expect_true(all(at$curve >= 0))
    expect_identical(at$widest, 5)   # not that of the row without weight
  }
})

test_that("at a point the loss has its own derivatives; student errors have no expectation beyond", {
  y <- c(0, 1, 3, 10)
  eta <- c(-1, 0.3, 2, 1)
  for (name in names(reference_losses)) for (dispersion in c(0.3, 2)) {
    rows <- list(y = y, weight = c(1, 1, 2, 0.5), eta = eta, s = numeric(4))
    loss <- function(eta) reference_losses[[name]](eta, y, dispersion, 4)
    at <- .Call(elvi:::elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), dispersion, rows)
    expect_identical(at$status, elvi:::status_ok)
    expect_equal(at$sum, sum(rows$weight * loss(eta)), tolerance = 1e-12)
    h <- 1e-4
    expect_equal(at$slope, rows$weight * (loss(eta + h) - loss(eta - h)) / (2 * h), tolerance = 1e-6)
    expect_equal(at$curve, rows$weight * (loss(eta + h) - 2 * loss(eta) + loss(eta - h)) / h^2, tolerance = 1e-5)
  }
  expect_lt(min(at$curve), Inf)
  rows$s <- c(0, 0.1, 0, 0)
  at <- .Call(elvi:::elvi_r_expect_rows, list(likelihood = "robust", error_df = 4), point_rule, 1, rows)
  expect_identical(at$status, elvi:::status_no_expectation)
})

test_that("a family that C does not have, or not whole, stops the package from loading", {
  expect_silent(elvi:::check_family_twins())
  expect_error(elvi:::check_family_twins(c("logit", "tweedie")), "not whole: tweedie")
})
