layers_of <- function(plot) vapply(plot$layers, function(layer) class(layer$geom)[1], "")

test_that("the default is what the fit has", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  expect_s3_class(ggplot2::autoplot(nested_example("binary")), "ggplot")
  expect_identical(levels(ggplot2::autoplot(nested_example("trials"))$data$panel), c("g", "h"))
  expect_true("GeomRibbon" %in% layers_of(ggplot2::autoplot(nested_example("smooth"))))
  expect_true("GeomVline" %in% layers_of(ggplot2::autoplot(nested_example("plain"))))
})

test_that("caterpillars are in order, with the intervals of confint()", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  fit <- nested_example("slopes")
  data <- ggplot2::autoplot(fit, "groups")$data
  expect_identical(levels(data$panel), c("g: (Intercept)", "g: x"))
  slopes <- data[data$panel == "g: x", ]
  expect_false(is.unsorted(slopes$mean))
  expect_equal(slopes$low[slopes$level == "b"], confint(fit, "b[x g:b]")[[1]])
  expect_equal(slopes$mean[slopes$level == "b"], ranef(fit)$g["b", "x"])
})

test_that("densities of sds integrate to one", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  data <- ggplot2::autoplot(nested_example("slopes"), "sds")$data
  expect_identical(levels(data$parameter), c("sd(g:(Intercept))", "sd(g:x)", "sigma"))
  for (part in split(data, data$parameter)) {
    area <- sum(diff(part$x) * (part$density[-1] + part$density[-nrow(part)]) / 2)
    expect_equal(area, 1, tolerance = 0.02)
  }
})

test_that("fits of every family have intervals, densities and pairs, the intercept apart", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  fit <- elvi(I(mpg + 1000) ~ wt + hp, data = mtcars)
  p <- ggplot2::autoplot(fit, pars = 1:2)
  expect_identical(as.character(p$data$parameter), "wt")
  expect_match(p$labels$caption, "not on this axis: \\(Intercept\\) 1037")
  data <- ggplot2::autoplot(fit, "density")$data
  expect_identical(levels(data$parameter), c("(Intercept)", "wt", "hp", "sigma"))
  for (part in split(data, data$parameter)) {
    area <- sum(diff(part$x) * (part$density[-1] + part$density[-nrow(part)]) / 2)
    expect_equal(area, 1, tolerance = 0.02)
  }
  wt <- data[data$parameter == "wt", ]
  expect_equal(wt$density, q_density(fit, "wt", wt$x))
  pairs <- ggplot2::autoplot(fit, "pairs", pars = c("wt", "sigma"))$data
  drawn <- as.matrix(fit, draws = 500)
  expect_equal(pairs$x, unname(drawn[, "wt"]))
  expect_equal(pairs$y, unname(drawn[, "sigma"]))
  expect_error(ggplot2::autoplot(fit, "pairs", pars = 1), "at least two")
  for (family in list(binomial(), poisson(), robust(), weibull(), Gamma("log"))) {
    fit <- withr_seed(1, elvi(I(1 + am * (family$family != "binomial") - (1 - am) * (family$family == "binomial")) ~ wt,
                              data = mtcars, family = family))
    expect_match(ggplot2::autoplot(fit)$labels$x, "50 % and 95 %", fixed = TRUE)
  }
})

test_that("a smooth's curve is the prediction less the rest", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  fit <- nested_example("smooth")
  data <- ggplot2::autoplot(fit, "smooths")$data
  whole <- predict(fit, data.frame(t = data$x, x = 0))
  expect_equal(data$mean, unname(whole - fixef(fit)[["(Intercept)"]]), tolerance = 1e-6)
  expect_true(all(data$low < data$low50 & data$low50 < data$mean & data$mean < data$high50 & data$high50 < data$high))
  expect_identical(levels(ggplot2::autoplot(nested_example("by"), "smooths")$data$panel), paste0("s(t):f", c("u", "v", "w")))
})

test_that("what cannot be drawn says so", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  expect_snapshot_error(ggplot2::autoplot(nested_example("smooth"), "groups"))
  expect_snapshot_error(ggplot2::autoplot(nested_example("binary"), "smooths"))
  expect_snapshot_error(ggplot2::autoplot(nested_example("binary"), "groups", pars = "h"))
  expect_snapshot_error(ggplot2::autoplot(nested_example("binary"), "trace"))
})

test_that("plots can be drawn", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  file <- tempfile(fileext = ".pdf")
  grDevices::pdf(file)
  on.exit({
    grDevices::dev.off()
    unlink(file)
  })
  for (type in c("intervals", "groups", if (long_tests()) "sds")) expect_invisible(plot(nested_example("slopes"), type))
  expect_invisible(plot(nested_example(if (long_tests()) "by" else "smooth")))
})
