# autoplot() and plot() of a fit.

skip_if_not_installed("ggplot2")

set.seed(1)
quadratic <- suppressMessages(elvi(model_quadratic(diag(c(1, 4)), c(1, -1)), budget = 500))
set.seed(1)
density <- suppressMessages(elvi(model_density(function(x) sum(x^2), function(x) 2 * x, dim = 2), budget = 500,
                                 control = elvi_control(scale = "diagonal")))

layer_of <- function(plot, geom) Filter(function(layer) inherits(layer$geom, geom), plot$layers)

test_that("the curve is the trace's objective with a band of two standard errors", {
  skip_on_cran()
  columns <- c(evaluations = "evals", iterations = "iteration", seconds = "cpu")
  for (against in names(columns)) {
    p <- ggplot2::autoplot(quadratic, "trace", against = against)
    expect_identical(p$data$at, quadratic$trace[[columns[[against]]]])
    expect_identical(p$data$objective, quadratic$trace$objective)
    expect_equal(p$data$high - p$data$objective, 2 * quadratic$trace$se)
    expect_equal(p$data$objective - p$data$low, 2 * quadratic$trace$se)
    # and that is what is drawn
    line <- ggplot2::layer_data(p, 2)
    expect_equal(line$x, p$data$at)
    expect_equal(line$y, p$data$objective)
    band <- ggplot2::layer_data(p, 1)
    expect_equal(band$ymin, p$data$low)
    expect_equal(band$ymax, p$data$high)
  }
  expect_identical(ggplot2::autoplot(quadratic, "trace")$data$at, quadratic$trace$evals)
})

test_that("labels say what is shown", {
  labels <- function(...) ggplot2::autoplot(...)$labels[c("x", "y", "caption")]
  expect_identical(labels(quadratic, "trace"), list(x = "gradient evaluations", y = "objective F at the iterate",
                                           caption = "The band is about the level of the curve, not about its shape."))
  expect_identical(labels(quadratic, "trace", against = "iterations")$x, "iterations")
  expect_identical(labels(density, "trace", against = "seconds")$x, "CPU seconds")
  error <- format(2 * max(density$trace$se), digits = 2)
  expect_identical(labels(density, "trace")$caption,
                   sprintf("The level of the curve is known up to %s\n(two standard errors), its shape better.", error))
})

test_that("the optimum is a dashed line where it is known", {
  # d/2 + log|A| / 2
  expect_equal(layer_of(ggplot2::autoplot(quadratic, "trace"), "GeomHline")[[1]]$data$yintercept, 1 + log(2))
  label <- layer_of(ggplot2::autoplot(quadratic, "trace"), "GeomText")[[1]]$aes_params$label
  expect_identical(label, paste("optimum", format(1 + log(2), digits = 6)))
  expect_length(layer_of(ggplot2::autoplot(quadratic, "trace", optimum = TRUE), "GeomHline"), 1)
  expect_length(layer_of(ggplot2::autoplot(quadratic, "trace", optimum = FALSE), "GeomHline"), 0)
  expect_length(layer_of(ggplot2::autoplot(density, "trace"), "GeomHline"), 0)
  # that of its own family: a mean field's
  set.seed(1)
  A <- matrix(c(2, 0.9, 0.9, 1), 2)
  fit <- suppressMessages(elvi(model_quadratic(A), budget = 200, control = elvi_control(scale = "diagonal")))
  expect_equal(layer_of(ggplot2::autoplot(fit, "trace"), "GeomHline")[[1]]$data$yintercept, 1 + log(2) / 2)
})

# ---- the approximation itself ------------------------------------------------------------

# exact fits of N(m, V) targets: mean m, covariance V for every base
V <- matrix(c(4, 1.2, 0, 1.2, 1, 0.1, 0, 0.1, 0.25), 3, dimnames = list(c("a", "b", "c"), c("a", "b", "c")))
fit_of <- function(base, V) elvi(model_quadratic(solve(V), c(a = 1, b = -1, c = 0.5)), base, method = "exact")

test_that("an exact fit shows its intervals, which are quantiles of the marginals", {
  p <- ggplot2::autoplot(fit_of(base_gaussian(), V))
  expect_identical(levels(p$data$parameter), c("c", "b", "a"))   # the first on top
  expect_equal(unname(p$data$mean), c(1, -1, 0.5), tolerance = 1e-9)
  sd <- c(2, 1, 0.5)
  expect_equal(unname(p$data$high - p$data$mean), qnorm(0.975) * sd, tolerance = 1e-5)
  expect_equal(unname(p$data$low50 - p$data$mean), qnorm(0.25) * sd, tolerance = 1e-5)
  expect_match(p$labels$caption, "50 % and 95 %", fixed = TRUE)
  expect_length(layer_of(p, "GeomVline"), 0)   # zero has no known meaning there
  heavy <- ggplot2::autoplot(fit_of(base_student(5), V), "intervals", pars = "b")
  expect_identical(as.character(heavy$data$parameter), "b")
  expect_equal(unname(heavy$data$low), -1 + qt(0.025, 5) * sqrt(3 / 5), tolerance = 1e-5)
  expect_no_error(ggplot2::ggplot_build(p))
})

test_that("intervals and densities are those of confint() and q_density()", {
  p <- ggplot2::autoplot(quadratic, "intervals")
  expect_equal(unname(as.matrix(p$data[c("low", "high")])), unname(confint(quadratic)))
  expect_equal(unname(as.matrix(p$data[c("low50", "high50")])), unname(confint(quadratic, level = 0.5)))
  fit <- fit_of(base_laplace(), V)
  data <- ggplot2::autoplot(fit, "density", pars = "b")$data
  expect_equal(data$density, q_density(fit, "b", data$x))
})

test_that("parameters of very different sizes get an axis each", {
  wide <- diag(c(a = 1e4, b = 1, c = 1e-4))
  dimnames(wide) <- dimnames(V)
  expect_s3_class(ggplot2::autoplot(fit_of(base_gaussian(), wide))$facet, "FacetWrap")
  expect_s3_class(ggplot2::autoplot(fit_of(base_gaussian(), V))$facet, "FacetNull")
})

test_that("densities are those of the marginals", {
  cases <- list(list(base_gaussian(), dnorm), list(base_student(5), function(z) dt(z * sqrt(5 / 3), 5) * sqrt(5 / 3)),
                list(base_uniform(), radius_laws(3)$uniform$marginal))
  for (case in cases) {
    p <- ggplot2::autoplot(fit_of(case[[1]], V), "density", pars = c(3, 1))
    expect_identical(levels(p$data$parameter), c("c", "a"))
    for (name in c("a", "c")) {
      at <- p$data[p$data$parameter == name, ]
      mean <- c(a = 1, c = 0.5)[[name]]
      sd <- c(a = 2, c = 0.5)[[name]]
      expect_equal(at$density, case[[2]](abs(at$x - mean) / sd) / sd, tolerance = 1e-6)
      expect_equal(mean(range(at$x)), mean, tolerance = 1e-8)
    }
  }
})

test_that("ellipses of pairs hold the mass they say", {
  for (base in list(base_gaussian(), base_laplace(), base_student(5))) {
    fit <- fit_of(base, V)
    p <- ggplot2::autoplot(fit, "pairs")
    expect_identical(nrow(unique(p$data[c("across", "up")])), 3L)
    ellipses <- pair_ellipses(fit$posterior, 1:3)
    z <- withr_seed(1, base_draws(base, 2e4, 3))
    x <- t(unname(fit$mu) + unname(fit$Sigma) %*% z)
    for (mass in c("50 %", "95 %")) {
      path <- ellipses[ellipses$across == "a" & ellipses$up == "b" & ellipses$mass == mass, ]
      # an ellipse of constant Mahalanobis distance
      r <- sqrt(mahalanobis(cbind(path$x, path$y), c(1, -1), V[1:2, 1:2]))
      expect_lt(diff(range(r)), 1e-6)
      inside <- mean(mahalanobis(x[, 1:2], c(1, -1), V[1:2, 1:2]) < r[1]^2)
      share <- as.numeric(sub(" %", "", mass)) / 100
      expect_lt(abs(inside - share), 4 * sqrt(share * (1 - share) / 2e4) * 1.3)   # radii by draws too
    }
  }
})

# ---- drawing and refusing ------------------------------------------------------------------

test_that("plot() draws it and returns it invisibly", {
  file <- tempfile(fileext = ".pdf")
  grDevices::pdf(file)
  on.exit(unlink(file))
  shown <- withVisible(plot(quadratic, against = "iterations"))
  grDevices::dev.off()
  expect_false(shown$visible)
  expect_s3_class(shown$value, "ggplot")
  expect_identical(shown$value$labels$x, "iterations")
  expect_gt(file.size(file), 3000)
})

test_that("what cannot be plotted is refused", {
  set.seed(1)
  blind <- suppressMessages(elvi(model_quadratic(diag(2)), budget = 100, control = elvi_control(trace_draws = 0)))
  expect_snapshot({
    cat(refusal(ggplot2::autoplot(blind, "trace"), "type"))
    cat(refusal(plot(blind, "trace"), "type"))
    cat(refusal(ggplot2::autoplot(quadratic, "trace", against = "time"), "against"))
    cat(refusal(ggplot2::autoplot(quadratic, "trace", optimum = "yes"), "optimum"))
    cat(refusal(ggplot2::autoplot(density, "trace", optimum = TRUE), "optimum"))
    cat(refusal(ggplot2::autoplot(quadratic, "trace", optimun = TRUE), "optimun"))
    cat(refusal(plot(quadratic, against = 3), "against"))
    cat(refusal(ggplot2::autoplot(quadratic, "histogram"), "type"))
    cat(refusal(ggplot2::autoplot(quadratic, "density", pars = "z"), "pars"))
    cat(refusal(ggplot2::autoplot(quadratic, "pairs", pars = 1), "pars"))
    cat(refusal(ggplot2::autoplot(fit_of(base_gaussian(), V), "trace"), "type"))
  })
})

test_that("without ggplot2 it says how to get it", {
  # the real check, told of a package that is not there
  checked <- need_package
  absent <- function(package, what) checked(paste0(package, "IsNotInstalled"), what)
  for (draw in list(function() ggplot2::autoplot(quadratic, "trace"), function() plot(quadratic))) {
    e <- with_swapped("need_package", absent, expect_error(draw(), class = "elvi_error_package"))
    expect_match(conditionMessage(e), "Plotting a fit needs the package 'ggplot2", fixed = TRUE)
    expect_match(conditionMessage(e), "install.packages(", fixed = TRUE)
  }
  expect_identical(need_package, checked)
})

test_that("a density of many parameters is quick, and its areas stand on zero", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  fit <- elvi(model_quadratic(diag(41)), method = "exact")
  p <- ggplot2::autoplot(fit, "density")
  file <- tempfile(fileext = ".pdf")
  grDevices::pdf(file)
  on.exit(unlink(file))
  seconds <- system.time(print(p))[["user.self"]]
  grDevices::dev.off()
  expect_lt(seconds, 2)   # it took 113 s
  areas <- ggplot2::ggplot_build(p)$data[[1]]
  expect_identical(length(unique(areas$group)), 41L)
  expect_true(all(areas$ymin == round(areas$ymin)))   # each on its own line
  expect_equal(max(areas$ymax - areas$ymin), 0.55)    # one height for all
  expect_equal(max(p$data$density), dnorm(0), tolerance = 1e-6)
  # few have a panel each, with a height of 1 on zero
  few <- ggplot2::ggplot_build(ggplot2::autoplot(fit, "density", pars = 1:4))$data[[1]]
  expect_true(all(few$ymin == 0))
  expect_equal(max(few$ymax), 1)
})

test_that("intercepts have an axis of their own, and slopes of different sizes are standardised", {
  skip_if_not_installed("ggplot2")
  fit <- elvi(I(mpg + 1000) ~ wt + hp, data = mtcars, dispersion = 6)
  p <- ggplot2::autoplot(fit, "intervals", pars = 1:2)
  expect_identical(as.character(p$data$panel), c("intercepts", "slopes"))
  # zero means something for slopes only
  lines <- ggplot2::ggplot_build(p)$data[[1]]
  expect_identical(as.integer(as.character(lines$PANEL)), 2L)
  # heights of panels as they have rows
  drawn <- ggplot2::ggplotGrob(ggplot2::autoplot(fit, "intervals"))
  heights <- as.double(drawn$heights[drawn$layout$t[grepl("^panel", drawn$layout$name)]])
  expect_equal(heights, c(1.2, 2.2))
  natural <- ggplot2::autoplot(fit, "intervals", scales = "natural")
  expect_equal(natural$data$mean, unname(coef(fit)))
  expect_false(grepl("per standard deviation", natural$labels$caption))
  standardised <- ggplot2::autoplot(fit, "intervals", scales = "standardised")
  expect_equal(standardised$data$high / natural$data$high, c(1, sd(mtcars$wt), sd(mtcars$hp)))
  expect_match(standardised$labels$caption, "per standard deviation")
  # the widths of wt and hp differ by a factor of 70
  expect_equal(ggplot2::autoplot(fit, "intervals")$data, standardised$data)
  # dummy variables keep their unit
  dummy <- elvi(mpg ~ factor(cyl), data = mtcars, dispersion = 6)
  expect_equal(ggplot2::autoplot(dummy, "intervals", scales = "standardised")$data$mean, unname(coef(dummy)))
  expect_error(ggplot2::autoplot(fit, "intervals", scales = "log"), class = "elvi_error_argument")
  expect_error(ggplot2::autoplot(arguments_store("fit"), "intervals", scales = "standardised"), "columns of the design")
})

test_that("names are shown in full, on several lines where they are long", {
  expect_identical(wrapped_names(c("wt", "a_long_name:another_long_name")),
                   c(wt = "wt", "a_long_name:another_long_name" = "a_long_name:another_long_\nname"))
  names <- c("cor(Subject:Days,(Intercept))", "log(a + b)", "I(x^2)", "`short name`", strrep("x", 40), "a:b:c", "smooth_sd[s(times)]")
  expect_identical(gsub("\n", "", wrapped_names(names), fixed = TRUE), setNames(names, names))
  expect_lt(nchar(wrapped_name(strrep("long_", 1000), 26)), 120)
  expect_identical(short_names(c("a", strrep("x", 40)), 20), c("a", "xxxxxxxx...xxxxxxxx"))
  expect_identical(distinct_labels(c(100000.1, 100000.2, NA)), c("100000.1", "100000.2", NA))
})

test_that("a trace of single draws, which have no standard error, is drawn as a line", {
  skip_if_not_installed("ggplot2")
  set.seed(1)
  fit <- elvi(model_quadratic(diag(2)), budget = 200, control = elvi_control(trace_draws = 1))
  plot <- plot(fit, "trace")
  expect_silent(layers <- ggplot2::ggplot_build(plot)$data)
  expect_length(Filter(function(layer) "ymax" %in% names(layer), layers), 0)
})

layers_of <- function(plot) vapply(plot$layers, function(layer) class(layer$geom)[1], "")

test_that("the default is a forest plot for every fit", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  for (kind in c("binary", "trials", "smooth", "plain")) {
    fit <- nested_example(kind)
    p <- ggplot2::autoplot(fit)
    expect_identical(as.character(p$data$parameter), fit$posterior$shown[shown_parameters(fit, NULL, "pars")])
    expect_identical(p$data, ggplot2::autoplot(fit, "intervals")$data)
  }
})

test_that("coefficients of a second formula are on axes of their own", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  fit <- elvi(mpg ~ wt, data = mtcars, dispformula = ~ hp)
  p <- ggplot2::autoplot(fit)
  expect_identical(as.character(p$data$panel), c("intercepts", "slopes", "second intercepts", "second slopes"))
  expect_identical(as.integer(ggplot2::ggplot_build(p)$data[[1]]$PANEL), c(2L, 4L))
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

test_that("parameters of a family that has several are drawn, each with its prior", {
  skip_on_cran()
  skip_if_not_installed("ggplot2")
  prior_at <- function(fit, name) {
    part <- subset(ggplot2::autoplot(fit, "sds")$data, parameter == name)
    stats::approxfun(part$x, part$prior)
  }
  fit <- elvi(dist ~ speed, cars, family = student(), correct = FALSE)
  x <- c(8, 15, 25)
  expect_lt(max(abs(prior_at(fit, "df")(x) / dgamma(x, 2, 0.1) - 1)), 0.25)   # a kernel estimate from draws
  d <- withr_seed(2, data.frame(y = ordered(sample(4, 60, TRUE))))
  fit <- elvi(y ~ 1, d, family = cumulative(), correct = FALSE)
  x <- c(1.5, 2.2)
  expect_lt(max(abs(prior_at(fit, "cut[3]")(x) / dgamma(x, 2, 1) - 1)), 0.25)   # the sum of two distances
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
  expect_identical(as.character(p$data$panel), c("intercepts", "slopes"))
  expect_identical(as.character(ggplot2::autoplot(fit)$data$panel), c("intercepts", "slopes", "slopes", "scale parameters"))
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
    expect_match(ggplot2::autoplot(fit)$labels$caption, "50 % and 95 %", fixed = TRUE)
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

test_that("densities of sds are drawn from their own points: aligning panels took longer than the fit", {
  skip_if_not_installed("ggplot2")
  layers <- ggplot2::autoplot(nested_example("slopes"), "sds")$layers
  expect_true(all(vapply(layers, function(layer) inherits(layer$stat, "StatIdentity"), NA)))
})
