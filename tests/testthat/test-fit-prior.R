# Posterior against prior, and the prior's density at draws: against closed forms, the target itself, and package 'priorsense'.

test_that("both columns of the comparison are what their fits show", {
  fit <- elvi(am ~ wt, mtcars, family = binomial())
  table <- posterior_vs_prior(fit, prob = 0.8, plot = FALSE)
  expect_identical(levels(table$vs), c("Prior", "Posterior"))
  prior <- elvi(am ~ wt, mtcars, family = binomial(), prior_only = TRUE)
  expect_equal(table$mean, unname(c(coef(prior), coef(fit))))
  expect_equal(table$sd, unname(sqrt(c(diag(vcov(prior)), diag(vcov(fit))))))
  expect_equal(cbind(table$lower, table$upper), unname(rbind(confint(prior, level = 0.8), confint(fit, level = 0.8))))
  one <- posterior_vs_prior(fit, pars = "wt", plot = FALSE)
  expect_equal(one$mean, table$mean[table$parameter == "wt"])
  skip_if_not_installed("ggplot2")
  p <- posterior_vs_prior(fit, prob = 0.8)
  expect_s3_class(p, "ggplot")
  expect_equal(p$data, table)
})

test_that("a stochastic fit with a dispersion has the same prior", {
  fit <- elvi(carb ~ wt, mtcars, family = neg_binomial_2(), method = "mpsgd", budget = 300)
  table <- posterior_vs_prior(fit, plot = FALSE)
  nested <- posterior_vs_prior(elvi(carb ~ wt, mtcars, family = neg_binomial_2()), plot = FALSE)
  expect_equal(table[1:3, c("parameter", "vs", "mean", "sd")], nested[1:3, c("parameter", "vs", "mean", "sd")])
  expect_equal(table$median[1:3], nested$median[1:3], tolerance = 0.05)   # by draws of either fit's key
})

test_that("prior and likelihood at draws add up to the target", {
  for (prior in list(normal(1, 2), student_t(3, 0, 1.5))) {
    fit <- elvi(am ~ wt + hp, mtcars, family = binomial(), prior = prior)
    x <- posterior_draws(fit$posterior, 50L)$x
    f <- target_values(fit$model, centre_points(fit$posterior, t(x)))
    expect_equal(rowSums(log_prior(fit, draws = 50)) + rowSums(log_lik(fit, draws = 50)), -f + model_constant(fit$model))
  }
  expect_identical(colnames(log_prior(fit, draws = 2)), c("prior_intercept", "prior"))
})

test_that("hyperparameters count on their own scale", {
  skip_if_not_installed("reformulas")
  d <- transform(mtcars, g = factor(cyl))
  fit <- suppressWarnings(elvi(mpg ~ wt + (wt | g), d, prior_sd = exponential(2), prior_cor = lkj(3), prior_aux = normal(0, 4),
                               autoscale = FALSE, control = elvi_control(nodes = 3)))   # few points will do
  drawn <- posterior_draws(fit$posterior, 40L)$hyper
  out <- log_prior(fit, draws = 40)
  sds <- drawn[, c("sd(g:(Intercept))", "sd(g:wt)")]
  rho <- drawn[, "cor(g:wt,(Intercept))"]
  expect_equal(out[, "prior_sd"], rowSums(dexp(sds, 2, log = TRUE)) + dbeta((1 + rho) / 2, 3, 3, log = TRUE) - log(2), tolerance = 1e-5)
  expect_equal(out[, "prior_aux"], dnorm(drawn[, "sigma"], 0, 4, log = TRUE) + log(2), tolerance = 1e-6)
})

test_that("a dispersion that is a parameter counts itself, not its logarithm", {
  fit <- elvi(carb ~ wt, mtcars, family = neg_binomial_2(), method = "mpsgd", budget = 300, prior_aux = exponential(0.1))
  phi <- as.matrix(fit, draws = 20)[, "phi"]
  expect_equal(log_prior(fit, draws = 20)[, "prior_aux"], dexp(phi, 0.1, log = TRUE))
})

test_that("the Jacobian is that of the map", {
  theta <- matrix(c(0.3, -1, 0.2, 0.5), 2)
  map <- function(t) cbind(exp(t[, 1]), t[, 2] * exp(t[, 1]))
  expect_equal(log_jacobian(map, theta), 2 * theta[, 1], tolerance = 1e-6)
  expect_equal(log_jacobian(function(t) exp(t[, 1, drop = FALSE]), theta[, 1, drop = FALSE]), theta[, 1], tolerance = 1e-6)
})

test_that("arguments are checked", {
  fit <- elvi(am ~ wt, mtcars, family = binomial())
  expect_error(posterior_vs_prior(fit, prob = 1), "`prob`", class = "elvi_error_argument")
  expect_error(posterior_vs_prior(fit, pars = "hp"), "`pars`", class = "elvi_error_argument")
  expect_error(posterior_vs_prior(1), class = "elvi_error_argument")
  expect_error(log_prior(1), class = "elvi_error_argument")
  flat <- suppressWarnings(elvi(am ~ wt, mtcars, family = binomial(), prior = flat()))
  expect_error(posterior_vs_prior(flat), "`wt` is flat", class = "elvi_error_argument")
})

test_that("package 'priorsense' takes a fit", {
  skip_if_not_installed("priorsense")
  skip_on_cran()
  fit <- elvi(am ~ wt, mtcars, family = binomial(), prior = normal(0, 1))
  data <- priorsense::create_priorsense_data(fit)
  expect_equal(unname(rowSums(unclass(data$log_lik))), unname(rowSums(log_lik(fit, draws = 4000))))
  all <- as.data.frame(priorsense::powerscale_sensitivity(fit))
  alone <- as.data.frame(priorsense::powerscale_sensitivity(fit, prior_selection = "prior_intercept"))
  expect_gt(all$prior[all$variable == "wt"], alone$prior[alone$variable == "wt"])
})
