# plot(fit, "effects")

skip_if_not_installed("ggplot2")

test_that("bands are the credible intervals of predict() at typical values", {
  fit <- elvi(am ~ wt + factor(cyl), data = mtcars, family = binomial())
  p <- ggplot2::autoplot(fit, "effects")
  curve <- ggplot2::layer_data(p, 4)   # after points and two ribbons
  line <- curve[curve$PANEL == 1, ]
  new <- data.frame(wt = seq(min(mtcars$wt), max(mtcars$wt), length.out = 60), cyl = 4)
  expected <- predict(fit, new, type = "response", interval = "credible")
  expect_equal(line$y, unname(expected[, "fit"]))
  band <- ggplot2::layer_data(p, 2)
  expect_equal(band$ymin, unname(expected[, "lwr"]))
  expect_equal(band$ymax, unname(expected[, "upr"]))
  levels <- ggplot2::layer_data(p, 5)
  new <- data.frame(wt = mean(mtcars$wt), cyl = c(4, 6, 8))
  expect_equal(levels$ymin, unname(predict(fit, new, type = "response", interval = "credible")[, "lwr"]))
  # labels are the values, whatever the panel's place on the axis
  at <- ggplot2::ggplot_build(p)$layout$panel_params
  expect_identical(at[[2]]$x$get_labels(), c("4", "6", "8"))
  expect_true(all(at[[1]]$x$get_labels() %in% as.character(seq(1, 6, 0.5))))
  # observed responses are there
  expect_setequal(ggplot2::layer_data(p, 1)$y, 0:1)
})

test_that("interactions, groups and classes have effects, and what has none says so", {
  fit <- elvi(breaks ~ tension * wool, data = warpbreaks, family = poisson())
  p <- ggplot2::autoplot(fit, "effects")
  q <- ggplot2::layer_data(p, 4)   # means
  at <- expand.grid(tension = c("L", "M", "H"), wool = c("A", "B"))
  expect_setequal(signif(q$y, 8), unname(signif(predict(fit, at, type = "response"), 8)))
  expect_length(unique(q$colour), 2)
  skip_on_cran()
  skip_if_not_installed("reformulas")
  groups <- elvi(breaks ~ tension + (1 | wool), data = warpbreaks, family = poisson())
  p <- ggplot2::autoplot(groups, "effects")
  expect_setequal(signif(ggplot2::layer_data(p, 4)$y, 8),
                  unname(signif(predict(groups, data.frame(tension = c("L", "M", "H")), type = "response", re.form = NA), 8)))
  classes <- elvi(factor(gear, ordered = TRUE) ~ wt, data = mtcars, family = cumulative())
  p <- ggplot2::autoplot(classes, "effects")
  lines <- ggplot2::layer_data(p, 3)
  expect_equal(unname(tapply(lines$y, lines$x, sum)), array(1, 60))
  expect_error(ggplot2::autoplot(classes, "effects", pars = "hp"), "among the predictors \\(wt\\)", class = "elvi_error_argument")
  expect_error(ggplot2::autoplot(elvi(model_quadratic(diag(2)), method = "exact"), "effects"), "formula", class = "elvi_error_argument")
})
