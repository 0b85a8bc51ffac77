# Every set below comes with `inside(n)`, n random feasible points, and `far(n)`,
# n points that are far out in most coordinates (or eigenvalues), so that the
# projection has to move many of them.

rotated <- function(values) {
  d <- length(values)
  q <- qr.Q(qr(matrix(rnorm(d * d), d)))
  S <- q %*% (values * t(q))
  (S + t(S)) / 2
}

many <- function(make) function(n) lapply(seq_len(n), function(i) make())

box <- list(
  project = project_box(c(-1, 0, 2, -Inf, 1), c(1, 0, 3, 0, Inf)),
  inside = many(function() c(runif(1, -1, 1), 0, runif(1, 2, 3), -rexp(1), 1 + rexp(1))),
  far = many(function() rnorm(5, sd = 4)),
  moved = function(x, p) sum(x != p))
ball <- list(
  project = project_ball(c(1, -2, 0, 3), 1.5),
  inside = many(function() {
    u <- rnorm(4)
    c(1, -2, 0, 3) + 1.5 * runif(1) * u / sqrt(sum(u^2))
  }),
  far = many(function() rnorm(4, sd = 5)),
  moved = function(x, p) sum(x != p))
simplex <- list(
  project = project_simplex(2),
  inside = many(function() {
    w <- rexp(8)
    2 * w / sum(w)
  }),
  far = many(function() rnorm(8)),
  moved = function(x, p) sum(p == 0))
eigenvalues_moved <- function(x, p) {
  before <- sort(eigen((x + t(x)) / 2, symmetric = TRUE)$values)
  sum(abs(before - sort(eigen(p, symmetric = TRUE)$values)) > 1e-8)
}
psd <- function(lower, upper, draw) list(
  project = project_psd(lower, upper),
  inside = many(function() rotated(draw(6))),
  far = many(function() matrix(rnorm(36, sd = 4), 6)),   # not symmetric either
  moved = eigenvalues_moved)

sets <- list(
  box = box, ball = ball, simplex = simplex,
  "psd, lower = 0" = psd(0, Inf, rexp),
  "psd, positive bounds" = psd(0.5, 2, function(n) runif(n, 0.5, 2)),
  "psd, negative lower" = psd(-1, Inf, function(n) rexp(n) - 1),
  "psd, bounds of both signs" = psd(-1, 0.5, function(n) runif(n, -1, 0.5)),
  "psd, upper only" = psd(-Inf, 1, function(n) 1 - rexp(n)))

for (name in names(sets)) {
  set <- sets[[name]]
  # relative to the size of the points, as rounding is
  size <- function(x) 1e-12 * max(1, sum(x^2))

  test_that(paste0(name, ": the optimality condition holds"), {
    set.seed(1)
    feasible <- set$inside(50)
    moved <- 0
    for (x in set$far(20)) {
      p <- set$project(x)
      moved <- max(moved, set$moved(x, p))
      inner <- vapply(feasible, function(y) sum((x - p) * (y - p)), 0)
      expect_lte(max(inner), size(x))
    }
    expect_gte(moved, 3)
  })

  test_that(paste0(name, ": feasible points stay, and projecting twice is projecting once"), {
    set.seed(2)
    for (y in set$inside(20)) expect_equal(set$project(y), y, tolerance = 1e-12)
    for (x in set$far(20)) {
      p <- set$project(x)
      expect_equal(set$project(p), p, tolerance = 1e-12)
    }
  })

  test_that(paste0(name, ": non-expansive"), {
    set.seed(3)
    xs <- set$far(20)
    ys <- set$far(20)
    for (i in seq_along(xs)) {
      before <- sum((xs[[i]] - ys[[i]])^2)
      after <- sum((set$project(xs[[i]]) - set$project(ys[[i]]))^2)
      expect_lte(after, before * (1 + 1e-12))
    }
  })
}

test_that("projections land in their sets", {
  set.seed(4)
  for (x in simplex$far(20)) {
    p <- simplex$project(x)
    expect_gte(min(p), 0)
    expect_equal(sum(p), 2, tolerance = 1e-14)
  }
  for (x in ball$far(20)) expect_lte(sqrt(sum((ball$project(x) - c(1, -2, 0, 3))^2)), 1.5 * (1 + 1e-14))
  for (x in sets[["psd, positive bounds"]]$far(20)) {
    p <- project_psd(0.5, 2)(x)
    expect_true(isSymmetric(p, tol = 0))
    values <- eigen(p, symmetric = TRUE)$values
    expect_gte(min(values), 0.5 - 1e-12)
    expect_lte(max(values), 2 + 1e-12)
  }
})

test_that("projections have their closed forms", {
  expect_identical(project_box(0, c(1, 2, Inf))(c(-1, 3, 5)), c(0, 2, 5))
  expect_equal(project_ball(1, 2)(c(4, 5)), 1 + 2 * c(3, 4) / 5)
  expect_identical(project_ball(1, 10)(c(4, 5)), c(4, 5))
  expect_identical(project_ball(c(1, 2), 0)(c(4, 5)), c(1, 2))
  # threshold (0.9 + 0.6 + 0.3 - 1) / 3
  expect_equal(project_simplex()(c(0.9, -3, 0.6, 0.3)), c(0.9, 0, 0.6, 0.3) - c(1, 0, 1, 1) * 0.8 / 3)
  expect_identical(project_simplex(5)(c(-7)), 5)
  expect_equal(project_psd(0.1)(matrix(c(1, 2, 2, 1), 2)), matrix(c(1.55, 1.45, 1.45, 1.55), 2))
  expect_equal(project_psd(2)(matrix(-5)), matrix(2))
  expect_equal(project_psd(-2, -1)(matrix(0, 3, 3)), -diag(3))
})

test_that("negative bounds agree with the C core where both apply", {
  # shifting by c I shifts the bounds: the one route against the other
  set.seed(5)
  for (i in 1:10) {
    S <- rotated(rnorm(5, sd = 3))
    shifted <- project_psd(0, 2.5)(S + diag(5)) - diag(5)
    expect_equal(project_psd(-1, 1.5)(S), shifted, tolerance = 1e-12)
  }
})

test_that("few or many eigenvalues beyond the bounds, apart or in clusters, all are moved and nothing else", {
  skip_on_cran()
  set.seed(6)
  d <- 120   # large enough for a search with products
  first <- 1 + sin(seq_len(d)) / 2   # of that search: it cannot see what is orthogonal to it
  hidden <- qr.Q(qr(cbind(first, diag(d)[, -1])))[, c(2:d, 1)]
  random <- qr.Q(qr(matrix(rnorm(d * d), d)))
  partly <- cbind(hidden[, 1], hidden[, -1] %*% qr.Q(qr(matrix(rnorm((d - 1)^2), d - 1))))
  inside <- runif(d, 1, 2)
  clustered <- c(rep(1, 60), rep(2, 60))
  put <- function(values, ...) replace(values, seq_along(c(...)), c(...))
  for (q in list(random, hidden, partly)) {
    for (values in list(put(inside, 0.5), put(inside, 0.5, -3, 0.99), put(inside, 5), put(inside, 0.1, 0.2, 9, 8),
                        put(inside, seq(-1, 0.9, length.out = 30)), put(clustered, 1 - 1e-6),
                        put(clustered, 0.5, 0.5, 7), put(clustered, 1 - 1e-9, 2 + 1e-9), inside * 3, put(inside, -1e6))) {
      S <- q %*% (values * t(q))
      S <- (S + t(S)) / 2
      p <- project_psd(1, 2)(S)
      exact <- q %*% (pmin(pmax(values, 1), 2) * t(q))
      expect_lte(max(abs(p - exact)), 1e-13 * max(abs(values)))
      limits <- range(eigen(p, symmetric = TRUE, only.values = TRUE)$values)
      expect_gte(limits[1], 1 - 2e-12)
      expect_lte(limits[2], 2 + 2e-12)
    }
  }
})

test_that("a large cluster beyond a bound is moved where inverse iteration fails on it", {
  skip_on_cran()
  for (seed in 1:8) for (d in c(80, 150)) {
    set.seed(seed)
    u <- rnorm(d)
    u <- u / sqrt(sum(u^2))
    S <- 1e-3 * diag(d) - u %o% u
    expect_equal(project_psd(1e-4, 5e-4)(S), 5e-4 * diag(d) - 4e-4 * u %o% u, tolerance = 1e-9)
  }
})

test_that("the simplex loses no digits to a common offset", {
  x <- c(40, 3, -8, 38, 36) / 64   # dyadic, so x + 2^40 is exact; the threshold is not
  expect_equal(project_simplex()(x + 2^40), project_simplex()(x), tolerance = 1e-15)
})

test_that("the ball survives squares that overflow", {
  expect_equal(project_ball(0, 1)(c(3e200, 4e200)), c(0.6, 0.8))
})

test_that("shapes and names are kept", {
  named <- c(a = 3, b = -4)
  square <- matrix(c(1L, 2L, 2L, 1L), 2, dimnames = list(c("a", "b"), c("a", "b")))
  for (project in list(project_box(0, 1), project_ball(0, 1), project_simplex())) {
    expect_named(project(named), c("a", "b"))
    p <- project(square)
    expect_type(p, "double")
    expect_identical(attributes(p), attributes(square))
  }
  expect_identical(attributes(project_psd()(square)), attributes(square))
  bounds <- matrix(c(0, 1, 1, 0), 2)
  expect_identical(project_box(bounds, bounds)(matrix(0.5, 2, 2)), bounds)
})

test_that("bad sets and bad points are refused by name", {
  expect_snapshot(error = TRUE, {
    project_box(1)
    project_box(1, 0)
    project_box(c(0, 0, 0), c(1, 1))
    project_box(NA, 1)
    project_box(c(0, 2), c(1, 1))
    project_box(0, -Inf)
    project_box(0, c(1, 2))(1:3)
    project_box(matrix(0, 2, 3), 1)(matrix(0, 3, 2))
    project_ball(0)
    project_ball("a", 1)
    project_ball(0, -1)
    project_ball(0, Inf)
    project_ball(c(0, 0), 1)(1:3)
    project_simplex(0)
    project_simplex()(c(1, NA))
    project_simplex()("a")
    project_psd(2, 1)
    project_psd(Inf)
    project_psd("a")
    project_psd()(1:4)
    project_psd()(matrix(1:6, 2))
    project_psd()(matrix(c(1, NaN, NaN, 1), 2))
  })
})
