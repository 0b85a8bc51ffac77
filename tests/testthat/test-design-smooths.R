test_that("a smooth's columns span what mgcv's do, at the data and elsewhere", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  d <- group_data()
  for (call in list(quote(s(t)), quote(s(t, bs = "cr", k = 6)), quote(t2(t, x, k = 4)), quote(s(t, g, bs = "fs", k = 4)))) {
    spec <- smooth_specs(list(call), globalenv())
    smooth <- set_up_smooths(spec, d)[[1L]]
    at_data <- smooth_columns(smooth, d)
    expect_equal(smooth_columns(smooth[names(smooth) != "scaling"], d)$penalised,
                 lapply(smooth$random$rand, function(Z) matrix(Z, nrow(Z))), ignore_attr = TRUE)
    whole <- do.call(cbind, c(list(1, at_data$free), at_data$penalised))
    X <- mgcv::PredictMat(smooth$smooth, d)
    expect_lt(max(abs(qr.resid(qr(whole), X))), 1e-8 * max(abs(X)))
    new <- d[c(5, 9, 11), ]
    expect_equal(smooth_columns(smooth, new)$free, at_data$free[c(5, 9, 11), , drop = FALSE])
  }
})

test_that("the null space of a factor smooth does not depend on how rounding turns it", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  d <- group_data()
  for (case in list(list(quote(s(t, g, bs = "fs", k = 6)), 2L), list(quote(s(t, g, bs = "fs", k = 8, m = 3)), 3L), list(quote(s(t, x, g, bs = "fs", k = 9)), 3L))) {
    spec <- smooth_specs(case[1L], globalenv())[[1L]]
    made <- mgcv::smoothCon(spec, data = d, absorb.cons = TRUE, scale.penalty = TRUE)[[1L]]
    free <- made$base$rank + seq_len(case[[2L]])
    turn <- qr.Q(qr(matrix(cos(1:9), 3L)[seq_along(free), seq_along(free)]))
    turned <- made
    turned$P[, free] <- made$P[, free] %*% turn
    turned$Xb[, free] <- made$Xb[, free] %*% turn
    settled <- settle_null_space(made, d)
    expect_equal(settle_null_space(turned, d)$P, settled$P, tolerance = 1e-9)
    expect_equal(mgcv::PredictMat(settled, d), settled$X, tolerance = 1e-9)
    # the first direction is the constant, the others are orthogonal to it
    N <- settled$Xb[, free]
    expect_equal(N[, 1L], rep(N[1L, 1L], nrow(N)), tolerance = 1e-9)
    expect_equal(crossprod(N) / sum(N[, 1L]^2), diag(length(free)), tolerance = 1e-9)
    # and the second is a straight line in the first variable
    expect_equal(abs(stats::cor(N[, 2L], d$t)), 1, tolerance = 1e-9)
  }
})

test_that("smooths that cannot be had say so", {
  skip_if_not_installed("mgcv")
  d <- group_data()
  refused <- function(formula) expect_snapshot_error(elvi(formula, d), class = "elvi_error_argument")
  refused(y ~ te(x, g))
  refused(y ~ x * s(t))
  refused(y ~ s(t, fx = TRUE))
  refused(y ~ s(t, sp = 1))
  refused(y ~ s(g))
  refused(y ~ s(t) + s(t))
  refused(y ~ s(h, k = 20))
  refused(y ~ s(nowhere))
})

test_that("a gaussian smooth is close to that of mgcv by REML", {
  skip_on_cran()
  fit <- nested_example("smooth")
  reference <- mgcv::gam(curve ~ x + s(t), data = group_data(), method = "REML")
  mine <- predict(fit, se.fit = TRUE)
  theirs <- predict(reference, se.fit = TRUE)
  expect_lt(max(abs(mine$fit - theirs$fit) / theirs$se.fit), 0.35)
  expect_lt(abs(log(mean(mine$se.fit / theirs$se.fit))), 0.1)
  expect_equal(sigma(fit), sqrt(reference$sig2), tolerance = 0.02)
})

test_that("one smooth for each level of a factor", {
  skip_on_cran()
  fit <- nested_example("by")
  expect_identical(vapply(fit$smooths, `[[`, "", "label"), paste0("s(t):f", c("u", "v", "w")))
  d <- group_data()
  expect_equal(predict(fit, d[20:1, ]), fitted(fit)[20:1], ignore_attr = TRUE)
})

test_that("random effects as a smooth are group-level terms", {
  skip_without_parser()
  skip_if_not_installed("mgcv")
  d <- group_data()
  smooth <- elvi(y ~ x + s(g, bs = "re"), d)
  group <- elvi(y ~ x + (1 | g), d)
  expect_equal(unname(fixef(smooth)), unname(fixef(group)), tolerance = 1e-4)
  expect_equal(smooth$mu[["sigma"]], group$mu[["sigma"]], tolerance = 1e-4)
})
