test_that("estimates have the shapes of lme4", {
  skip_on_cran()
  fit <- nested_example("slopes")
  expect_identical(names(fixef(fit)), c("(Intercept)", "x"))
  effects <- ranef(fit)$g
  expect_identical(dim(effects), c(8L, 2L))
  expect_identical(names(effects), c("(Intercept)", "x"))
  expect_equal(effects["c", "x"], fit$mu[["b[x g:c]"]])
  expect_equal(attr(effects, "sd")["c", "x"], fit$sd[["b[x g:c]"]])
  expect_equal(coef(fit)$g["c", ], data.frame(t(fixef(fit) + unlist(effects["c", ])), check.names = FALSE, row.names = "c"))
  expect_identical(ngrps(nested_example("trials")), c(g = 8L, h = 5L))
  expect_identical(names(ranef(nested_example("trials"))), c("g", "h"))
  expect_identical(coef(nested_example("smooth")), fixef(nested_example("smooth")))
  expect_identical(ranef(nested_example("smooth")), structure(list(), names = character(), class = c("ranef.elvi_glm", "list")))
})

test_that("the covariance of coefficients is that of the mixture", {
  fit <- as_gaussian(nested_example("binary"))
  V <- vcov(fit)
  expect_equal(sqrt(diag(V)), fit$sd[1:2])
  draws <- as.matrix(fit, 4000)[, 1:2]
  expect_equal(cov2cor(V)[1, 2], cor(draws)[1, 2], tolerance = 0.2, ignore_attr = TRUE)
})

test_that("VarCorr() gives means of covariances, sds and correlations", {
  skip_on_cran()
  fit <- nested_example("slopes")
  V <- VarCorr(fit)
  w <- fit$posterior$weight
  sds <- fit$hyper[, c("sd(g:(Intercept))", "sd(g:x)")]
  expect_equal(unname(diag(V$g)), unname(colSums(w * sds^2)))
  expect_equal(unname(V$g[2, 1]), sum(w * sds[, 1] * sds[, 2] * fit$hyper[, "cor(g:x,(Intercept))"]))
  expect_equal(attr(V$g, "stddev"), c("(Intercept)" = fit$mu[["sd(g:(Intercept))"]], x = fit$mu[["sd(g:x)"]]))
  table <- as.data.frame(V)
  expect_identical(names(table), c("grp", "var1", "var2", "vcov", "sdcor"))
  expect_identical(table$grp, c("g", "g", "g", "Residual"))
  expect_equal(table$sdcor[3], fit$mu[["cor(g:x,(Intercept))"]])
  expect_output(print(V), "Residual")
  expect_identical(nrow(as.data.frame(VarCorr(nested_example("apart")))), 3L)
  expect_identical(as.data.frame(VarCorr(nested_example("smooth")))$grp, c("s(t)", "Residual"))
  expect_equal(sigma(fit), fit$mu[["sigma"]])
  expect_identical(sigma(nested_example("binary")), 1)
})

test_that("estimates agree with lme4 where the likelihood rules", {
  skip_on_cran()
  skip_if_not_installed("lme4")
  fit <- nested_example("slopes")
  reference <- lme4::lmer(y ~ x + (x | g), group_data())
  expect_lt(max(abs(fixef(fit) - lme4::fixef(reference)) / fit$sd[1:2]), 0.2)
  expect_gt(cor(unlist(ranef(fit)$g), unlist(lme4::ranef(reference)$g)), 0.99)
  expect_equal(sigma(fit), sigma(reference), tolerance = 0.02)
  # both packages' generics know both packages' fits
  expect_identical(lme4::fixef(fit), fixef(fit))
  expect_identical(lme4::ngrps(fit), ngrps(fit))
  expect_identical(ngrps(reference), lme4::ngrps(reference))
})

test_that("intervals are quantiles of the mixture", {
  fit <- as_gaussian(nested_example("binary"))
  limits <- confint(fit)
  expect_identical(rownames(limits), c("(Intercept)", "x", "sd(g:(Intercept))"))
  w <- fit$posterior$weight
  at <- component_moments(fit$posterior)
  for (p in 1:2) {
    expect_equal(sum(w * pnorm(limits["x", p], at$mean[2, ], at$sd[2, ])), c(0.025, 0.975)[p], tolerance = 1e-6)
  }
  effect <- confint(fit, "b[(Intercept) g:a]", level = 0.5)
  expect_equal(sum(w * pnorm(effect[2], at$mean[3, ], at$sd[3, ])), 0.75, tolerance = 1e-6)
  expect_equal(posterior_interval(fit, prob = 0.95), limits)
  expect_snapshot_error(confint(fit, "nothing"))
  sample <- hyper_sample(fit$posterior)
  expect_equal(mean(sample), fit$mu[["sd(g:(Intercept))"]], tolerance = 0.02)
})

test_that("print and summary give an account with numbers of draws", {
  skip_on_cran()
  for (which in c("binary", "slopes", "smooth", "plain", "overdispersed")) {
    text <- paste(capture.output(print(nested_example(which))), collapse = "\n")
    expect_match(text, "optimality\\s+gap\\s+at\\s+most\\s+[^ ]+ nats")
    expect_match(text, "next\\s+coarser grid|jackknife\\s+standard errors")
    expect_output(print(summary(nested_example(which))), "Log evidence")
  }
  expect_match(paste(capture.output(print(nested_example("binary"))), collapse = "\n"), "k-hat: .*draws\\s+effective")
  expect_output(print(summary(nested_example("trials"))), "groups: +g 8, h 5")
  expect_identical(rownames(summary(nested_example("slopes"))$table)[3:6],
                   c("sd(g:(Intercept))", "sd(g:x)", "cor(g:x,(Intercept))", "sigma"))
})

test_that("tidy() is that of broom.mixed", {
  skip_on_cran()
  skip_if_not_installed("generics")
  fit <- nested_example("slopes")
  out <- as.data.frame(generics::tidy(fit, conf.int = TRUE))
  expect_identical(names(out), c("effect", "group", "term", "estimate", "std.error", "conf.low", "conf.high"))
  expect_identical(out$term[-(1:2)], c("sd__(Intercept)", "sd__x", "cor__(Intercept).x", "sd__Observation"))
  expect_identical(out$group[3:6], c("g", "g", "g", "Residual"))
  values <- as.data.frame(generics::tidy(fit, effects = "ran_vals"))
  expect_identical(names(values), c("effect", "group", "level", "term", "estimate", "std.error"))
  expect_equal(values$estimate[values$level == "b" & values$term == "x"], ranef(fit)$g["b", "x"])
  expect_identical(as.data.frame(generics::tidy(fit, effects = "fixed"))$term, c("(Intercept)", "x"))
  expect_snapshot_error(generics::tidy(fit, effects = "random"))
  expect_identical(generics::glance(fit)$nobs, 240L)
})

test_that("priors are shown", {
  expect_output(print(prior_summary(nested_example("slopes"))), "sd of \\(Intercept\\) by g: exponential prior.*sd of x by g: exponential prior.*correlations: lkj prior, eta 1")
  expect_output(print(prior_summary(nested_example("binary"))), "sd of g: exponential prior, rate 1")
  expect_output(print(lkj(2)), "lkj prior, eta 2")
})

test_that("generics for fits answer, or say why not", {
  fit <- nested_example("binary")
  expect_output(print(elbo(fit)), "Log evidence")
  expect_identical(elbo(fit)$estimate, fit$nested$evidence$log)
  expect_output(print(pareto_k(fit, gaussian = TRUE)), "draws\\s+each")
  expect_snapshot_error(objective(fit))
  expect_snapshot_error(elvi(fit))
  expect_snapshot_error(as.matrix(fit, resample = TRUE))
  expect_identical(nobs(fit), 240L)
  expect_identical(formula(fit), b ~ x + (1 | g), ignore_formula_env = TRUE)
  expect_identical(family(fit)$family, "binomial")
  expect_identical(names(model.frame(fit)), c("b", "x", "g"))
  expect_identical(colnames(model.matrix(fit)), c("(Intercept)", "x"))
})

test_that("update() keeps bars", {
  skip_on_cran()
  skip_without_parser()
  d <- group_data()
  fit <- elvi(b ~ x + (1 | g), d, family = binomial())
  more <- update(fit, . ~ . + t)
  expect_identical(names(fixef(more)), c("(Intercept)", "x", "t"))
  expect_identical(ngrps(more), c(g = 8L))
  expect_length(fixef(update(fit, . ~ . - x)), 1L)
  expect_identical(update(fit, prior_sd = exponential(5))$priors$sd[[1L]]$rate, 5)
})

test_that("effects are printed factor by factor", {
  out <- capture.output(print(ranef(nested_example("trials"))))
  expect_identical(grep("^[$]", out, value = TRUE), c("$g", "$h"))
  expect_match(out[length(out)], "attr\\(, \"sd\"\\)")
})

test_that("k-hat can be had from other draws than the fit's own, which give its own again", {
  fit <- nested_example("binary")
  own <- component_shapes(fit$posterior, fit$problem, fit$nested$draws, c(20261117, 17))
  expect_equal(own, pareto_k(fit, gaussian = TRUE)$conditional)
  again <- pareto_k(fit, draws = 300, gaussian = TRUE)
  expect_equal(again$draws, 300)
  expect_identical(is.na(again$conditional), is.na(pareto_k(fit, gaussian = TRUE)$conditional))
  expect_identical(again$k, max(again$conditional, na.rm = TRUE))
  exact <- nested_example("slopes")
  expect_identical(pareto_k(exact, draws = 1000)$k, pareto_k(exact)$k)
})

test_that("tidy() takes coefficients to the scale of the response, and nothing else", {
  skip_if_not_installed("generics")
  fit <- nested_example("binary")
  plain <- as.data.frame(generics::tidy(fit, conf.int = TRUE))
  scaled <- as.data.frame(generics::tidy(fit, conf.int = TRUE, exponentiate = TRUE))
  fixed <- plain$effect == "fixed"
  expect_equal(scaled$conf.high[fixed], exp(plain$conf.high[fixed]))
  expect_identical(scaled[!fixed, ], plain[!fixed, ])
})

test_that("effects as a data frame have lme4's columns, and allow.new.levels is allow_new_levels", {
  skip_if_not_installed("reformulas")
  fit <- elvi(mpg ~ wt + (wt | cyl), mtcars, control = elvi_control(nodes = 3))
  effects <- ranef(fit)$cyl
  flat <- as.data.frame(ranef(fit))
  expect_named(flat, c("grpvar", "term", "grp", "condval", "condsd"))
  one <- flat$grp == "6" & flat$term == "wt"
  expect_identical(flat$condval[one], effects["6", "wt"])
  expect_identical(flat$condsd[one], attr(effects, "sd")["6", "wt"])
  new <- data.frame(wt = 3, cyl = 5)
  expect_identical(predict(fit, new, allow.new.levels = TRUE), predict(fit, new, allow_new_levels = TRUE))
})
