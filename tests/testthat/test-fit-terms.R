terms_data <- function() {
  set.seed(2)
  n <- 120
  d <- data.frame(x = runif(n), z = 10 * runif(n), f = factor(rep(c("a", "b"), n / 2)), g = factor(rep(1:6, n / 6)), t = rep(1:20, 6))
  d$y <- sin(4 * d$x) * d$z / 5 + cos(d$t / 4) + rnorm(6)[d$g] + rnorm(n, 0, 0.5)
  d
}

test_that("terms add up to the linear predictor, at the data and elsewhere", {
  skip_on_cran()
  skip_without_parser()
  skip_if_not_installed("mgcv")
  d <- terms_data()
  fit <- suppressWarnings(elvi(y ~ f + s(x, z, k = 8) + rw2(t) + (1 | g), d))
  at <- predict(fit, type = "terms", se.fit = TRUE)
  expect_identical(colnames(at$fit), c("f", "s(x,z)", "(1 | g)", "rw2(t)"))
  expect_equal(rowSums(at$fit) + attr(at$fit, "constant"), predict(fit), tolerance = 1e-8)
  new <- data.frame(f = "b", x = 0.3, z = 5, g = c("2", "new"), t = 22)
  there <- predict(fit, new, type = "terms", se.fit = TRUE, allow_new_levels = TRUE)
  expect_equal(rowSums(there$fit) + attr(there$fit, "constant"), predict(fit, new, allow_new_levels = TRUE), tolerance = 1e-8)
  expect_identical(unname(there$fit[2L, "(1 | g)"]), 0)
  expect_gt(there$se.fit[2L, "(1 | g)"], there$se.fit[1L, "(1 | g)"])
  effects <- ranef(fit)$g[["(Intercept)"]]
  expect_equal(unname(at$fit[1:6, "(1 | g)"]), effects, tolerance = 1e-8)
})

test_that("terms of a plain regression are those of lm()", {
  fit <- elvi(mpg ~ wt + factor(cyl), mtcars, prior = normal(0, 1e5), prior_intercept = normal(0, 1e5))
  reference <- predict(lm(mpg ~ wt + factor(cyl), mtcars), type = "terms")
  mine <- predict(fit, type = "terms")
  expect_equal(mine[, 1:2], reference[, 1:2], tolerance = 1e-4, ignore_attr = TRUE)
  expect_equal(attr(mine, "constant"), attr(reference, "constant"), tolerance = 1e-4)
})

test_that("smooth_estimates() has gratia's columns and the smooths' own values", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  d <- terms_data()
  fit <- suppressWarnings(elvi(y ~ f + s(x, by = f, k = 5) + ar1(t), d))
  table <- smooth_estimates(fit, n = 7)
  expect_identical(names(table), c(".smooth", ".type", ".by", ".estimate", ".se", "x", "f", "t"))
  expect_identical(as.vector(table(table$.smooth)[c("s(x):fa", "s(x):fb", "ar1(t)")]), c(7L, 7L, 20L))
  at <- predict(fit, type = "terms", se.fit = TRUE)
  series <- table[table$.smooth == "ar1(t)", ]
  expect_equal(series$.estimate, unname(at$fit[1:20, "ar1(t)"]), tolerance = 1e-8)
  expect_equal(series$.se, unname(at$se.fit[1:20, "ar1(t)"]), tolerance = 1e-8)
  own <- table[table$.smooth == "s(x):fb", ]
  there <- predict(fit, data.frame(x = own$x, f = "b", t = 1), type = "terms", se.fit = TRUE)
  expect_equal(own$.estimate, unname(there$fit[, "s(x):fb"]), tolerance = 1e-8)
  expect_equal(own$.se, unname(there$se.fit[, "s(x):fb"]), tolerance = 1e-8)
  expect_identical(unique(smooth_estimates(fit, "ar1(t)")$.smooth), "ar1(t)")
  expect_snapshot_error(smooth_estimates(fit, "s(w)"), class = "elvi_error_argument")
  expect_error(smooth_estimates(lm(y ~ x, d)), class = "elvi_error_argument")
})

test_that("smooths of two variables, series and maps are drawn", {
  skip_on_cran()
  for (package in c("mgcv", "ggplot2", "sf", "spdep")) skip_if_not_installed(package)
  d <- terms_data()
  fit <- suppressWarnings(elvi(y ~ te(x, z, k = 3) + rw1(t), d))
  expect_message(curves <- ggplot2::autoplot(fit, "smooths"), class = "elvi_message_plot")
  expect_identical(nrow(curves$data), 20L)
  field <- ggplot2::autoplot(fit, "smooths", pars = "te(x,z)")
  hull <- d[grDevices::chull(d$x, d$z), ]
  expect_true(anyNA(field$data$mean))
  inside <- !is.na(field$data$mean)
  expect_true(all(in_hull(d$x, d$z, data.frame(x = hull$x, y = hull$z))))
  expect_identical(inside, in_hull(field$data$x, field$data$y, data.frame(x = hull$x, y = hull$z)))
  box <- sf::st_bbox(c(xmin = 0, ymin = 0, xmax = 3, ymax = 2))
  squares <- sf::st_sf(area = letters[1:6], geometry = sf::st_make_grid(box, n = c(3, 2)))
  d$area <- letters[as.integer(d$g)]
  map <- ggplot2::autoplot(elvi(y ~ icar(area, squares), d), "smooths")
  expect_s3_class(map$data, "sf")
  expect_identical(nrow(map$data), 6L)
})
