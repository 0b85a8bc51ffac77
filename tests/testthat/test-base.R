dims <- c(1, 2, 7)

draws_of <- function(entry, n, d, seed) {
  set.seed(seed)
  base_draws(entry$base, n, d)
}

# every base in every dimension: do(entry, d, label)
for_each_base <- function(dims, do) {
  for (d in dims) {
    entries <- oracle_bases(d)
    for (name in names(entries)) do(entries[[name]], d, sprintf("%s, d = %g", name, d))
  }
}

# ---- the sampler ---------------------------------------------------------------

test_that("the radius has its exact law", {
  skip_on_cran()
  for_each_base(dims, function(b, d, label) {
    r <- sqrt(colSums(draws_of(b, 40000, d, seed = 1)^2))
    expect_gt(ks.test(r, b$p)$p.value, 1e-4, label = label)
    expect_lte(max(r), b$end * (1 + 1e-9), label = label)
    expect_identical(anyDuplicated(r), 0L, label = label)   # a table has fewer nodes than this
  })
})

test_that("the radius of a student base with any df has its exact law", {
  for (df in c(2.1, 4, 40)) {
    set.seed(2)
    r2 <- colSums(base_draws(base_student(df), 40000, 3)^2)
    expect_gt(ks.test(r2 * df / (3 * (df - 2)), pf, 3, df)$p.value, 1e-4, label = df)
  }
})

test_that("directions are uniform on the sphere and independent of the radius", {
  skip_on_cran()
  for_each_base(7, function(b, d, label) {
    z <- draws_of(b, 40000, d, seed = 3)
    r <- sqrt(colSums(z^2))
    u <- z[3, ] / r
    expect_gt(ks.test(u^2, pbeta, 1 / 2, (d - 1) / 2)$p.value, 1e-4, label = label)
    expect_lt(abs(mean(u > 0) - 0.5) * sqrt(4 * 40000), 4.5, label = label)
    ranks <- rank(r)   # a radius may have no variance, its rank has
    expect_lt(abs(cor(ranks, u)) * sqrt(40000), 4.5, label = label)
    expect_lt(abs(cor(ranks, u^2)) * sqrt(40000), 4.5, label = label)
  })
  for_each_base(1, function(b, d, label) {
    z <- draws_of(b, 40000, d, seed = 3)
    expect_lt(abs(mean(z > 0) - 0.5) * sqrt(4 * 40000), 4.5, label = label)
  })
})

test_that("draws are standardized: E z = 0, E zz' = I, E R^2 = d, E z_i^4 = kappa", {
  skip_on_cran()
  n <- if (long_tests()) 100000 else 20000
  for_each_base(dims, function(b, d, label) {
    z <- draws_of(b, n, d, seed = 4)
    expect_lt(max(abs(rowMeans(z))) * sqrt(n), 4.5, label = label)
    if (!is.finite(b$kurtosis)) return()   # the law of R was tested; the sampling error here is infinite
    # variances of z_i^2, z_i z_j and R^2 by sphericity
    S <- tcrossprod(z) / n
    se <- sqrt(ifelse(diag(d) == 1, b$kurtosis - 1, b$kurtosis / 3) / n)
    expect_lt(max(abs(S - diag(d)) / se), 4.5, label = label)
    r2 <- colSums(z^2)
    se_r2 <- sqrt((b$kurtosis * d * (d + 2) / 3 - d^2) / n)
    expect_lt(abs(mean(r2) - d), 4.5 * se_r2, label = label)
    if (!b$eighth) return()
    fourth <- colMeans(z^4)
    expect_lt(abs(mean(fourth) - b$kurtosis), 4.5 * sd(fourth) / sqrt(n), label = label)
  })
})

test_that("the normals are normal, far tails included", {
  skip_on_cran()
  n <- 5e6
  set.seed(5)
  z <- c(base_draws(base_gaussian(), n / 100, 100))
  expect_gt(ks.test(z[1:1e5], pnorm)$p.value, 1e-4)
  edge <- 3.6541528853610088
  for (at in c(1, 2, 3, edge, 4, 4.5, 5)) {
    p <- 2 * pnorm(-at)
    expect_lt(abs(sum(abs(z) > at) - n * p), 4.5 * sqrt(n * p), label = at)
  }
  # beyond the last layer of the ziggurat another algorithm draws
  tail <- abs(z[abs(z) > edge])
  expect_gt(ks.test(pnorm(-tail) / pnorm(-edge), punif)$p.value, 1e-4)
  # as many in each of 1000 bins of equal probability: sees a wrong layer
  counts <- tabulate(1 + floor(1000 * pnorm(z[1:1e6])), 1000)
  expect_gt(pchisq(sum((counts - 1000)^2) / 1000, 999, lower.tail = FALSE), 1e-4)
})

test_that("coordinates of a draw and draws of neighbouring indices are unrelated", {
  set.seed(6)
  n <- 100000
  z <- base_draws(base_gaussian(), n, 3)
  unrelated <- function(x, y) {
    expect_lt(abs(cor(x, y)) * sqrt(n), 4.5)
    expect_lt(abs(cor(x^2, y^2)) * sqrt(n), 4.5)
  }
  unrelated(z[1, ], z[2, ])
  unrelated(z[2, ], z[3, ])
  for (lag in c(1, 2, 256)) unrelated(z[1, seq_len(n - lag)], z[1, -seq_len(lag)])
  unrelated(z[3, -n], z[1, -1])   # the end of a stream and the start of the next
})

# ---- keyed streams -------------------------------------------------------------

test_that("a draw depends on its key, iteration and index alone", {
  skip_on_cran()
  for_each_base(c(1, 3), function(b, d, label) {
    law <- law_of(b$base, d)
    key <- c(4294967295, 17)
    whole <- draw_base(law, key, 20, first = 5, iteration = 9)
    parts <- cbind(draw_base(law, key, 1, first = 5, iteration = 9),
                   draw_base(law, key, 12, first = 6, iteration = 9),
                   draw_base(law, key, 7, first = 18, iteration = 9))
    expect_identical(parts, whole, label = label)
    expect_identical(dim(whole), c(as.integer(d), 20L))
  })
})

test_that("neighbouring keys, iterations and indices give unrelated streams", {
  law <- law_of(base_gaussian(), 1)
  n <- 100000
  draw <- function(key = c(1, 2), ...) drop(draw_base(law, key, n, ...))
  z <- draw()
  others <- list(
    iteration = draw(iteration = 1), trace = draw(iteration = -1), far = draw(iteration = 2^40),
    key_high = draw(c(2, 2)), key_low = draw(c(1, 3)), swapped = draw(c(2, 1)),
    index = draw(first = 2^40)
  )
  for (name in names(others)) {
    expect_false(any(others[[name]] == z), label = name)
    expect_lt(abs(cor(others[[name]], z)) * sqrt(n), 4.5, label = name)
    expect_lt(abs(cor(others[[name]]^2, z^2)) * sqrt(n), 4.5, label = name)
  }
  # across iterations at a fixed index, as a run of batch size 1 sees them
  along <- vapply(0:4999, function(k) drop(draw_base(law, c(1, 2), 1, iteration = k)), 0)
  expect_gt(ks.test(along, pnorm)$p.value, 1e-4)
  expect_lt(abs(cor(along[-1], along[-5000])) * sqrt(5000), 4.5)
  # index i of iteration k is not index k of iteration i
  grid <- vapply(0:49, function(k) drop(draw_base(law, c(1, 2), 50, iteration = k)), numeric(50))
  expect_identical(anyDuplicated(c(grid)), 0L)
})

test_that("set.seed() rules and base_draws() advances R's generator", {
  set.seed(7)
  first <- base_draws(base_laplace(), 5, 2)
  after <- .Random.seed
  second <- base_draws(base_laplace(), 5, 2)
  set.seed(7)
  expect_identical(base_draws(base_laplace(), 5, 2), first)
  expect_identical(.Random.seed, after)
  expect_false(any(first == second))
  # exactly the two numbers of the key
  set.seed(7)
  runif(2)
  expect_identical(.Random.seed, after)
})

# ---- densities and constants ---------------------------------------------------

test_that("densities integrate to 1, with second moment d, kurtosis and entropy as reported", {
  skip_on_cran()
  for_each_base(c(1, 2, 3), function(b, d, label) {
    info <- base_info(b$base, d)
    law <- law_of(b$base, d)
    log_p <- function(r) info$log_constant + law$log_phi(r)
    expectation <- function(g) radial_expectation(g, log_p, d, b$end, b$breaks)
    # a rule of evenly spaced nodes is less accurate where a density ends as (1 - r^2)^1.5
    tolerance <- if (startsWith(label, "radial_beta")) 1e-6 else 1e-8
    expect_equal(expectation(function(r) 1), 1, tolerance = tolerance, label = label)
    expect_equal(expectation(function(r) r^2), d, tolerance = tolerance, label = label)
    expect_equal(info$entropy, -expectation(log_p), tolerance = tolerance, label = label)
    expect_equal(info$kurtosis, b$kurtosis, tolerance = tolerance, label = label)
    if (is.finite(b$kurtosis)) {
      fourth <- expectation(function(r) r^4)
      expect_equal(info$kurtosis, 3 / (d * (d + 2)) * fourth, tolerance = 10 * tolerance, label = label)
    }
  })
})

test_that("base_log_density() is the normalised density at the columns of z", {
  z <- matrix(c(0.3, -1, 0.2, 2, 0, 0.1), 3)
  norm2 <- colSums(z^2)
  expect_equal(base_log_density(base_gaussian(), z), colSums(dnorm(z, log = TRUE)))
  # multivariate t with df = 7 scaled to unit variance
  reference <- lgamma(5) - lgamma(7 / 2) - 3 / 2 * log(5 * pi) - 5 * log1p(norm2 / 5)
  expect_equal(base_log_density(base_student(7), z), reference)
  expect_equal(base_log_density(base_uniform(), z), rep(-log(4 / 3 * pi * 5^(3 / 2)), 2))
  expect_identical(base_log_density(base_uniform(), c(3, 0, 0)), -Inf)
  # in one dimension: the double exponential and the logistic law, scaled to variance 1
  expect_equal(base_log_density(base_laplace(), 1.5), log(sqrt(2) / 2) - sqrt(2) * 1.5)
  logistic <- base_radial(function(r) -2 * log(cosh(r / 2)))
  expect_equal(base_log_density(logistic, 1.5), dlogis(1.5, scale = sqrt(3) / pi, log = TRUE),
               tolerance = 1e-9)
  # a vector is one point, in any direction
  expect_equal(base_log_density(base_laplace(), c(3, 4)), base_log_density(base_laplace(), c(0, -5)))
})

test_that("large dimensions neither overflow nor lose the constants", {
  for (d in c(200, 2000)) {
    gaussian <- base_info(base_gaussian(), d)
    expect_equal(gaussian$entropy, d / 2 * (1 + log(2 * pi)))
    constants <- c("entropy", "kurtosis", "log_constant")
    expect_equal(base_info(base_power(2), d)[constants], gaussian[constants], tolerance = 1e-9)
    expect_equal(base_info(base_radial(function(r) -r^2 / 2), d)[constants], gaussian[constants],
                 tolerance = 1e-9)
    set.seed(8)
    r2 <- colSums(base_draws(base_power(1), 2000, d)^2)
    expect_gt(ks.test(sqrt(r2), pgamma, d, sqrt(d + 1))$p.value, 1e-4)
  }
})

test_that("power(2) is the gaussian base and power(1) the laplace base", {
  for (d in c(1, 2, 7)) {
    expect_equal(base_info(base_power(2), d), base_info(base_gaussian(), d), tolerance = 1e-12)
    expect_equal(base_info(base_power(1), d), base_info(base_laplace(), d), tolerance = 1e-12)
  }
})

test_that("a tabulated density agrees with the base it imitates", {
  skip_on_cran()
  r <- c(0.01, 0.3, 1, 2.5, 4)
  for (d in every(c(1, 2, 7), 2)) {
    z <- rbind(r, matrix(0, d - 1, length(r)))
    constants <- c("entropy", "kurtosis")
    check <- function(log_phi, base) {
      radial <- base_radial(log_phi)
      expect_equal(base_info(radial, d)[constants], base_info(base, d)[constants], tolerance = 1e-9)
      expect_equal(base_log_density(radial, z), base_log_density(base, z), tolerance = 1e-9)
      expect_equal(base_score(radial, r, d), base_score(base, r, d), tolerance = 1e-5)
    }
    check(function(r) 5 - r^2 / 18, base_gaussian())
    check(function(r) -3 * r, base_laplace())
    check(function(r) -(r / 5)^3, base_power(3))
    # slow power tails: the moments come from far beyond any table
    for (df in c(2.1, 4.1, 8)) check(function(r) -(df + d) / 2 * log1p(r^2), base_student(df))
  }
})

test_that("the fourth moment of a tabulated density is infinite exactly when it is", {
  kurtosis <- function(df, d) {
    base_info(base_radial(function(r) -(df + d) / 2 * log1p(r^2)), d)$kurtosis
  }
  for (d in c(1, 3)) {
    expect_identical(kurtosis(3, d), Inf)
    expect_identical(kurtosis(4, d), Inf)
    expect_equal(kurtosis(4.5, d), 15, tolerance = 1e-7)
  }
})

test_that("the score is the derivative of the log density along the radius", {
  skip_on_cran()
  r <- c(0.05, 0.4, 0.9, 1.5)
  for_each_base(c(1, 2, 7), function(b, d, label) {
    if (length(b$breaks)) return()   # r may sit on a jump
    log_p <- function(r) base_log_density(b$base, rbind(r, matrix(0, d - 1, length(r))))
    r <- r[r < b$end - 0.01]
    numeric <- (log_p(r + 1e-5) - log_p(r - 1e-5)) / 2e-5
    expect_equal(base_score(b$base, r, d), numeric, tolerance = 1e-5, label = label)
  })
})

test_that("the score has its closed form out in the tails too", {
  r <- c(0, 0.1, 10, 1000)
  for (d in c(1, 5)) {
    expect_equal(base_score(base_gaussian(), r, d), -r)
    expect_equal(base_score(base_laplace(), r, d), rep(-sqrt(d + 1), 4))
    expect_equal(base_score(base_student(5), r, d), -(5 + d) * r / (3 + r^2))
  }
  # a score of the user's own is used, at the user's scale
  seen <- 0
  own <- base_radial(function(r) -r^2 / 8, score = function(r) {
    seen <<- seen + 1
    -r / 4
  })
  expect_equal(base_score(own, c(0.5, 2), 3), c(-0.5, -2), tolerance = 1e-6)
  expect_gt(seen, 0)
})

test_that("base_info() says where the path gradient holds and what is log-concave", {
  skip_on_cran()
  for_each_base(c(1, 4), function(b, d, label) {
    expect_identical(base_info(b$base, d)$path, b$end == Inf, label = label)
  })
  concave <- function(base) base_info(base, 3)$log_concave
  expect_true(concave(base_gaussian()))
  expect_true(concave(base_laplace()))
  expect_true(concave(base_uniform()))
  expect_false(concave(base_student(5)))
  expect_false(concave(base_power(0.7)))
  expect_true(concave(base_power(1)))
  expect_identical(concave(base_radial(function(r) -r)), NA)
  expect_true(concave(base_radial(function(r) -r, log_concave = TRUE)))
  # a hole at the centre is an edge as well
  expect_false(base_info(base_radial(function(r) ifelse(r > 1, -r, -Inf)), 2)$path)
})

# ---- words ---------------------------------------------------------------------

test_that("bases print", {
  expect_snapshot({
    base_gaussian()
    base_student(5)
    base_power(0.75)
    base_radial(function(r) -r)
  })
})

test_that("bad bases are refused by name", {
  info <- function(log_phi, ...) base_info(base_radial(log_phi, ...), 2)
  messages <- c(
    refusal(base_student(), "df"),
    refusal(base_student(2), "df"),
    refusal(base_student(NA), "df"),
    refusal(base_student(Inf), "df"),
    refusal(base_student("5"), "df"),
    refusal(base_student(c(3, 4)), "df"),
    refusal(base_power(), "shape"),
    refusal(base_power(-1), "shape"),
    refusal(base_power(0), "shape"),
    refusal(base_power(NA_real_), "shape"),
    refusal(base_radial(), "log_phi"),
    refusal(base_radial(3), "log_phi"),
    refusal(base_radial(function(r) -r, score = "s"), "score"),
    refusal(base_radial(function(r) -r, log_concave = "yes"), "log_concave"),
    refusal(info(function(r) 1), "log_phi"),
    refusal(info(function(r) NULL), "log_phi"),
    refusal(info(function(r) as.character(-r)), "log_phi"),
    refusal(info(function(r) ifelse(r > 1e6, NaN, -r)), "log_phi"),
    refusal(info(function(r) rep(-Inf, length(r))), "log_phi"),
    refusal(info(function(r) -1.5 * log1p(r^2)), "log_phi"),
    refusal(info(function(r) 0 * r), "log_phi"),
    refusal(info(function(r) r), "log_phi"),
    refusal(info(function(r) -2 * log(r) - r), "log_phi"),
    refusal(info(function(r) -r, score = function(r) -1), "score"),
    refusal(info(function(r) -r, score = function(r) ifelse(r > 3, Inf, -1)), "score")
  )
  expect_snapshot(writeLines(messages))
})

test_that("bad questions to a base are refused by name", {
  g <- base_gaussian()
  messages <- c(
    refusal(base_draws(g, 0, 2), "n"),
    refusal(base_draws(g, 2.5, 2), "n"),
    refusal(base_draws(g, NA, 2), "n"),
    refusal(base_draws(g, 5, 1.5), "dim"),
    refusal(base_draws(g, 5, 0), "dim"),
    refusal(base_draws(g, 5, "two"), "dim"),
    refusal(base_draws(g, 1e6, 1e5), "n"),
    refusal(base_draws("gaussian", 5, 2), "base"),
    refusal(base_info(gaussian(), 2), "base"),
    refusal(base_info(g, -1), "dim"),
    refusal(base_log_density(g, c(1, NA)), "z"),
    refusal(base_log_density(g, "a"), "z"),
    refusal(base_log_density(g, matrix(c(1, Inf), 1)), "z"),
    refusal(base_log_density(g, matrix(0, 0, 2)), "z"),
    refusal(base_log_density(g, numeric()), "z"),
    refusal(base_score(g, -1, 2), "r"),
    refusal(base_score(g, Inf, 2), "r"),
    refusal(base_score(g, 1, 0), "dim"),
    refusal(base_score(NULL, 1, 2), "base")
  )
  expect_snapshot(writeLines(messages))
})
