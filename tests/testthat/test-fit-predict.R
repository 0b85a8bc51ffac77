# fits whose every row has its own offset and design
predict_cases <- function() {
  list(poisson = nasty("exclude"), counts = nasty("binomial"), size = nasty("stochastic"))
}

# small regressions of every family, for the laws by hand
family_cases <- function() {
  if (is.null(formula_store$families)) {
    d <- withr_seed(6, data.frame(x = rnorm(40), o = runif(40), w = sample(1:2, 40, TRUE)))
    d$g <- d$x + withr_seed(7, rnorm(40))
    d$p <- withr_seed(8, rpois(40, exp(1 + d$x / 2)))
    d$b <- withr_seed(9, rbinom(40, 1, plogis(d$x)))
    d$s <- withr_seed(10, rbinom(40, 5, plogis(d$x)))
    formula_store$families <- withr_seed(11, list(
      data = d,
      logit = elvi(b ~ x + offset(o), data = d, family = binomial()),
      probit = elvi(b ~ x, data = d, family = binomial("probit"), offset = o),
      cloglog = elvi(cbind(s, 5 - s) ~ x, data = d, family = binomial("cloglog"), weights = w),
      poisson = elvi(p ~ x + offset(o), data = d, family = poisson(), weights = w),
      known = elvi(g ~ x, data = d, dispersion = 4),
      gaussian = elvi(g ~ x + offset(o), data = d, weights = w, method = "mpsgd"),
      robust = elvi(g ~ x, data = d, family = robust(5), method = "mpsgd"),
      size = elvi(p ~ x, data = d, family = neg_binomial_2(), method = "mpsgd")))
  }
  formula_store$families
}

test_that("the linear predictor is X mu + offset, with the sd of x'Vx", {
  data <- nasty_data()
  for (fit in predict_cases()) {
    X <- model.matrix(fit)
    offset <- model.offset(model.frame(fit))
    expect_equal(offset, with(data[nasty_rows(data), ], log(e) + 0.1 * e))
    p <- seq_len(ncol(X))
    at <- predict(fit, se.fit = TRUE)
    seen <- !is.na(at$fit)
    expect_equal(at$fit[seen], drop(X %*% coef(fit)[p]) + offset)
    expect_equal(unname(at$se.fit[seen]), unname(sqrt(rowSums((X %*% vcov(fit)[p, p]) * X))))
    # the same rows as new data: splines and polynomials keep their bases
    new <- predict(fit, data[nasty_rows(data), ], se.fit = TRUE)
    expect_equal(new$fit, at$fit[seen])
    expect_equal(new$se.fit, at$se.fit[seen])
    few <- rownames(data)[nasty_rows(data)][c(5, 1)]
    expect_equal(predict(fit, data[few, ]), at$fit[few])
    expect_equal(unname(predict(fit, data[few, ], offset = c(1, 2))),
                 unname(at$fit[few] - 0.1 * data[few, "e"] + 1:2))
  }
})

test_that("the expected response is the mean of its draws, and se.fit their sd", {
  skip_on_cran()
  for (fit in lapply(predict_cases(), as_gaussian)) {
    data <- nasty_data()[c(1, 2, 3, 4, 6), ]
    set.seed(1)
    drawn <- moments(fit$family$linkinv(
      tcrossprod(as.matrix(fit, draws = 4e4)[, seq_len(ncol(model.matrix(fit)))], model.matrix(fit)[rownames(data), ]) +
        rep(log(data$e) + 0.1 * data$e, each = 4e4)))
    at <- predict(fit, data, type = "response", se.fit = TRUE)
    expect_lt(max(abs(unname(at$fit) - drawn$mean) / drawn$se), 4)
    expect_equal(unname(at$se.fit), unname(drawn$sd), tolerance = 0.03)
    expect_equal(fitted(fit)[rownames(data)], at$fit)
    # lognormal in closed form
    if (fit$family$link == "log") {
      link <- predict(fit, data, se.fit = TRUE)
      expect_equal(at$fit, exp(link$fit + link$se.fit^2 / 2), tolerance = 1e-7)
      expect_equal(at$se.fit, at$fit * sqrt(expm1(link$se.fit^2)), tolerance = 1e-6)
    }
  }
})

test_that("the expected response is right under every base", {
  skip_on_cran()
  d <- family_cases()$data
  for (base in list(base_laplace(), base_uniform(), base_student(5), base_power(1.5))) {
    fit <- elvi(b ~ x, data = d, family = binomial(), base = base)
    at <- predict(fit, d[1:5, ], type = "response", se.fit = TRUE)
    set.seed(2)
    drawn <- moments(posterior_epred(fit, d[1:5, ], draws = 4e4))
    expect_lt(max(abs(at$fit - drawn$mean) / drawn$se), 4, label = base$kind)
    expect_equal(unname(at$se.fit), unname(drawn$sd), tolerance = 0.03, label = base$kind)
  }
  # identity link: nothing to integrate
  fit <- family_cases()$known
  expect_equal(predict(fit, type = "response", se.fit = TRUE), predict(fit, se.fit = TRUE))
  # exp() of a student predictor has no mean
  set.seed(1)
  heavy <- elvi(p ~ x, data = d, family = poisson(), correct = FALSE)
  heavy$result$posterior$base <- base_student(5)
  expect_error(predict(heavy, type = "response"), class = "elvi_error_no_expectation")
  expect_length(predict(heavy), 40)
})

test_that("residuals are responses, or proportions, minus fitted", {
  cases <- family_cases()
  d <- cases$data
  expect_equal(unname(residuals(cases$poisson)), d$p - unname(fitted(cases$poisson)))
  expect_equal(unname(residuals(cases$cloglog)), d$s / 5 - unname(fitted(cases$cloglog)))
  expect_equal(unname(residuals(cases$gaussian)), d$g - unname(fitted(cases$gaussian)))
})

test_that("draws of the linear predictor and of the expected response belong together", {
  fit <- nasty("exclude")
  data <- nasty_data()[c(1, 2, 3), ]
  x <- as.matrix(fit, draws = 50)
  eta <- posterior_linpred(fit, draws = 50)
  mu <- posterior_epred(fit, draws = 50)
  expect_equal(eta, tcrossprod(x, model.matrix(fit)) + rep(model.offset(model.frame(fit)), each = 50))
  expect_equal(mu, exp(eta))
  expect_identical(colnames(eta), rownames(model.frame(fit)))
  expect_equal(posterior_linpred(fit, data, draws = 50), eta[, rownames(data)])
  expect_equal(posterior_linpred(fit, data, draws = 50, offset = c(0, 0, 0)),
               eta[, rownames(data)] - rep(0.1 * data$e, each = 50))
})

test_that("new responses have the moments of their law", {
  skip_on_cran()
  cases <- family_cases()
  d <- cases$data[c(3, 17), ]
  n <- if (long_tests()) 4e4 else 1e4
  for (name in setdiff(names(cases), "data")) {
    fit <- cases[[name]]
    y <- posterior_predict(fit, d, draws = n, seed = 3)
    mu <- predict(fit, d, type = "response", se.fit = TRUE)
    at <- moments(y)
    expect_lt(max(abs(at$mean - mu$fit) / at$se), 4.5, label = name)
    # variance = E var + var E
    x <- as.matrix(fit, draws = n, seed = 4)   # with sigma or phi itself
    m <- posterior_epred(fit, d, draws = n, seed = 4)
    aux <- if (is_dispersed(fit$model)) x[, ncol(x)]
    within <- switch(fit$family$family, binomial = m * (1 - m), poisson = m, gaussian = (aux %||% 2)^2 + 0 * m,
                     robust = aux^2 * 5 / 3 + 0 * m, neg_binomial_2 = m + exp(2 * log(m)) / aux)
    expect_equal(unname(at$sd), unname(sqrt(colMeans(within) + mu$se.fit^2)), tolerance = 0.04, label = name)
    expect_identical(dim(posterior_predict(fit, draws = 3)), c(3L, 40L))
  }
  expect_true(all(posterior_predict(cases$logit, draws = 20) %in% 0:1))
  # counts of the data have their trials; new ones one, or as many as one says
  expect_equal(sort(unique(c(posterior_predict(cases$cloglog, draws = 200)))), 0:5)
  expect_true(all(posterior_predict(cases$cloglog, d, draws = 200) %in% 0:1))
  set.seed(5)
  many <- posterior_predict(cases$cloglog, d, draws = n, trials = c(10, 20))
  expect_equal(unname(colMeans(many) / c(10, 20)), unname(predict(cases$cloglog, d, type = "response")), tolerance = 0.02)
  expect_refusal(posterior_predict(cases$cloglog, d, trials = 1:3), "trials")
  expect_refusal(posterior_predict(cases$poisson, d, trials = 2), "trials")
  expect_refusal(posterior_predict(cases$poisson, d, draws = 0), "draws")
  expect_refusal(posterior_predict(cases$poisson, d, nsim = 3), "nsim")
})

test_that("log_lik is the log density of R's own functions, with weights", {
  cases <- family_cases()
  d <- cases$data
  laws <- list(
    logit = function(x) dbinom(d$b, 1, plogis(x[1] + x[2] * d$x + d$o), log = TRUE),
    probit = function(x) dbinom(d$b, 1, pnorm(x[1] + x[2] * d$x + d$o), log = TRUE),
    cloglog = function(x) d$w * dbinom(d$s, 5, 1 - exp(-exp(x[1] + x[2] * d$x)), log = TRUE),
    poisson = function(x) d$w * dpois(d$p, exp(x[1] + x[2] * d$x + d$o), log = TRUE),
    known = function(x) dnorm(d$g, x[1] + x[2] * d$x, 2, log = TRUE),
    gaussian = function(x) dnorm(d$g, x[1] + x[2] * d$x + d$o, x[3] / sqrt(d$w), log = TRUE),
    robust = function(x) dt((d$g - x[1] - x[2] * d$x) / x[3], 5, log = TRUE) - log(x[3]),
    size = function(x) dnbinom(d$p, size = x[3], mu = exp(x[1] + x[2] * d$x), log = TRUE))
  for (name in names(laws)) {
    x <- as.matrix(cases[[name]], draws = 20)
    ll <- log_lik(cases[[name]], draws = 20)
    expect_equal(unname(ll), unname(t(apply(x, 1, laws[[name]]))), tolerance = 1e-8, label = name)
    expect_identical(colnames(ll), rownames(d))
    # it is the likelihood that the model was fitted with: with the prior, f up to a constant
    centred <- solve(reported_map(cases[[name]]), t(posterior_draws(cases[[name]]$posterior, 20)$x))
    f <- target_at(cases[[name]]$model, centred)$value
    joint <- cases[[name]]$priors$joint
    k <- seq_along(joint$location)
    log_prior <- colSums(dnorm(centred[k, ], joint$location, joint$scale, log = TRUE))
    if (!is.null(cases[[name]]$priors$aux)) {
      prior <- cases[[name]]$priors$aux   # of a power of the parameter, by default
      aux <- centred[nrow(centred), ] * exponent_of(prior)
      log_prior <- log_prior - prior$rate * exp(aux) + aux
    }
    constant <- f + rowSums(ll) + log_prior
    expect_lt(diff(range(constant)), 1e-6, label = name)
  }
  expect_identical(dim(log_lik(nasty("exclude"), draws = 4)), c(4L, nobs(nasty("exclude"))))
})

test_that("new data are checked", {
  skip_on_cran()
  fit <- nasty("exclude")
  data <- nasty_data()
  x <- "gr\u00f6\u00dfe x"
  # none at all
  none <- data[0, ]
  expect_identical(length(predict(fit, none)), 0L)
  expect_identical(lengths(predict(fit, none, type = "response", se.fit = TRUE)), c(fit = 0L, se.fit = 0L))
  expect_identical(dim(posterior_linpred(fit, none, draws = 5)), c(5L, 0L))
  expect_identical(dim(posterior_predict(fit, none, draws = 5)), c(5L, 0L))
  # a missing value is missing, its neighbours are not
  holes <- data[1:3, ]
  holes[[x]][2] <- NA
  for (type in c("link", "response")) {
    at <- predict(fit, holes, type = type, se.fit = TRUE)
    expect_identical(unname(is.na(at$fit)), c(FALSE, TRUE, FALSE))
    expect_identical(unname(is.na(at$se.fit)), c(FALSE, TRUE, FALSE))
    expect_equal(at$fit[-2], predict(fit, data[c(1, 3), ], type = type))
  }
  # levels, classes, columns
  strange <- data[1:3, ]
  strange$g <- factor(c("a", "b", "new"))
  expect_error(predict(fit, strange), "new")
  wrong <- data[1:3, ]
  wrong[[x]] <- "high"
  expect_error(suppressWarnings(predict(fit, wrong)))
  expect_error(predict(fit, data[1:3, setdiff(names(data), "g")]), "g")
  expect_error(predict(fit, data[1:3, setdiff(names(data), "e")]), "e")
  # fewer levels than at the fit are fine, so are characters
  part <- data[1:3, ]
  part$g <- as.character(part$g)
  expect_equal(predict(fit, part), predict(fit, data[1:3, ]))
  # an offset outside the formula that the new data lack
  cases <- family_cases()
  expect_refusal(predict(cases$probit, cases$data[1:2, c("x", "b")]), "offset")
  expect_refusal(predict(cases$probit, cases$data[1:2, ], offset = 1:3), "offset")
  expect_refusal(predict(fit, 1:3), "newdata")
  expect_refusal(predict(fit, data, type = "effects"), "type")
  expect_refusal(predict(fit, data, se.fit = NA), "se.fit")
  expect_refusal(predict(fit, new_data = data), "new_data")
  expect_error(predict(cases$poisson, cases$data[1:2, c("x", "p")]), "`o` is not a column of `newdata`")
  expect_length(predict(cases$probit, cases$data[1:2, c("x", "b")], offset = c(0, 0)), 2)
})

test_that("new data that do not fit are refused by name, and none are no trouble", {
  fit <- elvi(case ~ age + education, data = infert, family = binomial())
  odd <- infert[1:2, ]
  odd$education <- factor("never")
  messages <- c(
    refusal(predict(fit, newdata = infert[1:2, "age", drop = FALSE]), "newdata"),
    refusal(predict(fit, newdata = odd), "newdata"),
    refusal(predict(fit, newdata = transform(infert[1:2, ], age = "old")), "newdata"),
    refusal(predict(fit, newdata = as.matrix(infert[1:2, "age"])), "newdata"),
    refusal(posterior_predict(fit, newdata = infert[1:2, ], trials = 1.5), "trials"),
    refusal(posterior_predict(fit, newdata = infert[1:2, ], trials = -1), "trials")
  )
  expect_snapshot(writeLines(messages))
  for (draw in list(posterior_linpred, posterior_epred, posterior_predict)) {
    expect_identical(dim(draw(fit, newdata = infert[0, ], draws = 3)), c(3L, 0L))
  }
})
