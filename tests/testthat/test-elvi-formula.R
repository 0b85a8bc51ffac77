# A large sample, so that the posterior under a flat prior is normal and glm()'s
# numbers are the truth.
big_data <- function(n = 2e4) {
  withr_seed(8, {
    d <- data.frame(a = rnorm(n), b = runif(n), f = factor(sample(c("u", "v", "w"), n, TRUE)), o = rnorm(n) / 4)
    eta <- 0.2 + 0.5 * d$a - 0.6 * d$b + 0.3 * (d$f == "v") + d$o
    d$logit <- rbinom(n, 1, plogis(eta))
    d$probit <- rbinom(n, 1, pnorm(eta))
    d$cloglog <- rbinom(n, 1, 1 - exp(-exp(eta - 0.5)))
    d$poisson <- rpois(n, exp(eta))
    d$normal <- rnorm(n, eta, 1.5)
    d
  })
}

test_that("a response that is a term as well is refused; its variable in another form is said", {
  data <- data.frame(y = exp(sin(1:30)), x = cos(1:30), g = rep(1:6, 5))
  refused <- function(formula, ...) {
    expect_error(elvi(formula, data = data, ...), "is the response and also a term", class = "elvi_error_argument")
  }
  refused(log(y) ~ x + log(y))
  refused(y ~ x + y)
  refused(y ~ x:y)
  refused(y ~ . + y)
  skip_if_not_installed("reformulas")
  refused(y ~ x + (1 | y))
  refused(y ~ y + (1 | g))
  source <- rows_files(1, function(i) data)
  expect_error(elvi(y ~ x + y, data = source), "is the response and also a term", class = "elvi_error_argument")
  expect_message(fit <- elvi(y ~ x + log(y), data = data), "`y` is on both sides", class = "elvi_message_response")
  expect_named(coef(fit), c("(Intercept)", "x", "log(y)"))
  expect_length(predict(fit, newdata = data[1:3, ]), 3)
  # the number of trials, or a baseline, is not the response
  counts <- data.frame(s = rep(1:3, 10), n = rep(c(4, 6), 15), x = data$x)
  expect_no_message(elvi(cbind(s, n - s) ~ x + n, data = counts, family = binomial()), class = "elvi_message_response")
  expect_no_message(elvi(I(y - x) ~ x, data = data), class = "elvi_message_response")
  expect_no_message(elvi(log(y) ~ ., data = data), class = "elvi_message_response")
})

test_that("large samples and weak priors give glm()'s numbers to three digits", {
  skip_on_cran()
  d <- big_data()
  families <- list(logit = binomial(), probit = binomial("probit"), cloglog = binomial("cloglog"), poisson = poisson())
  for (name in names(families)) {
    formula <- reformulate(c("a", "b", "f", "offset(o)"), name)
    fit <- elvi(formula, data = d, family = families[[name]], prior = normal(0, 100), prior_intercept = normal(0, 100))
    twin <- glm(formula, families[[name]], d, epsilon = 1e-12)
    expect_identical(names(coef(fit)), names(coef(twin)))
    expect_lt(max(abs(coef(fit) / coef(twin) - 1)[abs(coef(twin)) > 0.05]), 1e-3, label = name)
    expect_lt(max(abs(coef(fit) - coef(twin)) / sqrt(diag(vcov(twin)))), 0.02, label = name)
    # the probit and cloglog Hessians are observed ones, glm()'s the expected
    expect_equal(sqrt(diag(vcov(fit))), sqrt(diag(vcov(twin))), tolerance = 5e-3, label = name)
    expect_true(fit$method == "exact" && fit$converged)
  }
})

test_that("gaussian fits with known dispersion are exactly the posterior of lm()", {
  d <- big_data(500)
  w <- rep(1:2, 250)
  fit <- elvi(normal ~ a * b + f, data = d, weights = w, offset = o, dispersion = 2.25, prior = flat(),
              prior_intercept = flat())
  twin <- lm(normal ~ a * b + f, data = d, weights = w, offset = o)
  expect_equal(coef(fit), coef(twin), tolerance = 1e-8)
  expect_equal(vcov(fit), vcov(twin) * 2.25 / summary(twin)$sigma^2, tolerance = 1e-8)
})

test_that("gaussian fits with unknown sigma are lm() in a large sample", {
  skip_on_cran()
  d <- big_data(5000)
  set.seed(1)
  fit <- elvi(normal ~ a + b + f + offset(o), data = d, prior = normal(0, 100), prior_intercept = normal(0, 100),
              prior_aux = flat(), tol = 1e-3)
  twin <- lm(normal ~ a + b + f + offset(o), data = d)
  se <- sqrt(diag(vcov(twin)))
  expect_true(fit$converged)
  expect_identical(names(coef(fit)), names(coef(twin)))
  expect_lt(max(abs(coef(fit) - coef(twin)) / se), 0.05)
  expect_equal(sqrt(diag(vcov(fit))), se, tolerance = 0.03)
  expect_equal(sigma(fit), summary(twin)$sigma, tolerance = 2e-3)
  expect_equal(sqrt((fit$Sigma %*% fit$Sigma)[6, 6]), 1 / sqrt(2 * 5000), tolerance = 0.03)   # of log_sigma
})

test_that("centring is a computation, not a change of the model", {
  skip_on_cran()
  d <- big_data(300)
  d$b <- d$b + 30   # far from zero
  X <- model.matrix(~ a + b + f, d)
  centre <- c(0, colMeans(X[, -1]))
  for (base in list(base_gaussian(), base_laplace())) for (scale in c("symmetric", "triangular")) {
    fit <- elvi(logit ~ a + b + f, data = d, family = binomial(), prior = flat(), prior_intercept = flat(),
                base = base, control = elvi_control(scale = scale), correct = FALSE)
    plain <- elvi_optimum(model_glm(X, d$logit, prior = flat()), base, scale)
    expect_equal(coef(fit), plain$mu, tolerance = 1e-6)
    expect_equal(unname(vcov(fit)), unname(plain$Sigma %*% plain$Sigma), tolerance = 1e-5)
    expect_equal(objective(fit)$estimate, plain$objective, tolerance = 1e-9)
    # any root of the covariance is the same law, and the parametrisation is kept
    expect_equal(unname(tcrossprod(fit$scale)), unname(vcov(fit)), tolerance = 1e-8)
    if (scale == "triangular") expect_true(all(fit$scale[upper.tri(fit$scale)] == 0))
  }
  # proper priors: a normal prior of the centred coefficients c = M x is one of x, with precision M' P M
  fit <- elvi(logit ~ a + b + f, data = d, family = binomial(), prior = normal(c(0.3, -0.2, 0, 0), c(1, 2, 0.5, 3)),
              prior_intercept = normal(-0.4, 0.7), correct = FALSE)
  M <- diag(5)
  M[1, ] <- c(1, centre[-1])
  P <- t(M) %*% diag(1 / c(0.7, 1, 2, 0.5, 3)^2) %*% M
  m <- solve(M, c(-0.4, 0.3, -0.2, 0, 0))
  # the variational optimum solves E grad f = 0 and Sigma^-2 = E Hessian, in any coordinates
  mu <- coef(fit)
  V <- vcov(fit)
  gh <- list(x = qnorm((seq_len(4000) - 0.5) / 4000), w = 1 / 4000)
  eta <- drop(X %*% mu)
  s <- sqrt(rowSums((X %*% V) * X))
  at <- outer(s, gh$x) + eta
  p <- rowMeans(plogis(at))
  h <- rowMeans(dlogis(at))
  g <- drop(crossprod(X, p - d$logit)) + drop(P %*% (mu - m))
  expect_lt(sqrt(sum(g * (V %*% g))), 1e-3)
  expect_equal(unname(V %*% (crossprod(X * h, X) + P)), diag(5), tolerance = 1e-3)
})

test_that("a diagonal scale is one of the centred coefficients", {
  skip_on_cran()
  d <- big_data(300)
  fit <- elvi(logit ~ a + b, data = d, family = binomial(), control = elvi_control(scale = "diagonal"))
  map <- reported_map(fit)
  M <- solve(map)
  inner <- M %*% vcov(fit) %*% t(M)
  expect_lt(max(abs(inner[row(inner) != col(inner)])), 1e-12)
  expect_equal(unname(coef(fit)), drop(map %*% fit$theta$mu))
  set.seed(1)
  expect_equal(cov(as.matrix(fit, draws = 2e5)), vcov(fit), tolerance = 0.02)
})

test_that("formulas without intercept or slopes, contrasts, dots and logical predictors", {
  d <- big_data(400)
  only <- elvi(logit ~ 1, data = d, family = binomial(), prior_intercept = flat())
  expect_identical(names(coef(only)), "(Intercept)")
  expect_equal(coef(only), coef(glm(logit ~ 1, binomial(), d)), tolerance = 0.02)
  through <- elvi(poisson ~ a + f - 1, data = d, family = poisson(), prior = flat())
  expect_equal(coef(through), coef(glm(poisson ~ a + f - 1, poisson(), d)), tolerance = 0.05)
  expect_identical(reported_map(through), diag(4))
  sum_to_zero <- elvi(logit ~ f, data = d, family = binomial(), contrasts = list(f = "contr.sum"), prior = flat(),
                      prior_intercept = flat(), correct = FALSE)
  twin <- glm(logit ~ f, binomial(), d, contrasts = list(f = "contr.sum"))
  expect_identical(names(coef(sum_to_zero)), names(coef(twin)))
  treatment <- elvi(logit ~ f, data = d, family = binomial(), prior = flat(), prior_intercept = flat(), correct = FALSE)
  expect_equal(predict(sum_to_zero, d[1:9, ]), predict(treatment, d[1:9, ]), tolerance = 1e-6)
  small <- d[c("logit", "a", "f")]
  dots <- elvi(logit ~ ., data = small, family = binomial())
  expect_identical(names(coef(dots)), c("(Intercept)", "a", "fv", "fw"))
  d$yes <- d$a > 0
  expect_identical(names(coef(elvi(logit ~ yes, data = d, family = binomial()))), c("(Intercept)", "yesTRUE"))
  # variables from the calling function, family by name
  here <- function() {
    yy <- d$logit
    xx <- d$a
    elvi(yy ~ xx, family = "binomial")
  }
  expect_equal(unname(coef(here())), unname(coef(elvi(logit ~ a, data = d, family = binomial()))))
})

test_that("binomial responses in all their shapes are the same fit", {
  d <- withr_seed(4, data.frame(x = rnorm(60), n = sample(2:6, 60, TRUE)))
  d$s <- withr_seed(5, rbinom(60, d$n, plogis(d$x)))
  counts <- elvi(cbind(s, n - s) ~ x, data = d, family = binomial(), autoscale = FALSE)
  long <- d[rep(1:60, d$n), ]
  long$y <- unlist(lapply(1:60, function(i) rep(1:0, c(d$s[i], d$n[i] - d$s[i]))))
  # the same centre: weight the long data as it is
  single <- elvi(y ~ x, data = long, family = binomial(), prior = flat(), prior_intercept = flat())
  grouped <- update(counts, prior = flat(), prior_intercept = flat())
  expect_equal(coef(grouped), coef(single), tolerance = 1e-7)
  expect_equal(vcov(grouped), vcov(single), tolerance = 1e-6)
  long$label <- factor(ifelse(long$y == 1, "yes", "no"), levels = c("no", "yes"))
  long$flag <- long$y == 1
  for (name in c("label", "flag")) {
    other <- elvi(reformulate("x", name), data = long, family = binomial(), prior = flat(), prior_intercept = flat())
    expect_equal(coef(other), coef(single))
  }
})

test_that("method auto takes the exact solver where there is one", {
  skip_on_cran()
  d <- big_data(200)
  expect_identical(elvi(poisson ~ a, data = d, family = poisson())$method, "exact")
  expect_identical(elvi(normal ~ a, data = d, dispersion = 1)$method, "exact")
  set.seed(1)
  expect_identical(elvi(normal ~ a, data = d)$method, "nested")
  expect_identical(elvi(poisson ~ a, data = d, family = neg_binomial_2())$method, "nested")
  for (family in list(gaussian(), robust())) {
    # a student prior, or a setting of a run, asks for the stochastic algorithm
    fit <- elvi(normal ~ a, data = d, family = family, prior = student_t(30))
    expect_identical(fit$method, "mpsgd")
    expect_identical(fit$tol, 0.01)
    expect_true(fit$converged)
    expect_identical(fit$control$coordinates, "whitened")
    expect_identical(fit$control$estimator, "control")
  }
  # on request, to the same place
  exact <- elvi(poisson ~ a + f, data = d, family = poisson())
  asked <- elvi(poisson ~ a + f, data = d, family = poisson(), method = "mpsgd", budget = 2e4)
  expect_identical(asked$method, "mpsgd")
  left <- suppressMessages(elvi(poisson ~ a + f, data = d, family = poisson(), budget = 100))
  expect_identical(left$method, "mpsgd")
  expect_lt(objective(asked)$estimate - objective(exact)$estimate, 0.01)
  expect_lt(max(abs(coef(asked) - coef(exact)) / sqrt(diag(vcov(exact)))), 0.1)
  expect_refusal(elvi(normal ~ a, data = d, method = "exact"), "model")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), schedule = schedule_fixed(100), method = "exact"), "schedule")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), budget = 100, method = "exact"), "budget")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), start = list(mu = c(0, 0)), method = "exact"), "start")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), method = "newton"), "method")
})

test_that("bad formulas and data are refused, or said to be odd", {
  d <- big_data(60)
  d$three <- factor(rep(c("p", "q", "r"), 20))
  d$copy <- 2 * d$a - 1
  d$same <- 1
  d$gone <- NA_real_
  d$separate <- as.numeric(d$a > 0)
  d$word <- as.character(d$f)
  expect_refusal(elvi(~ a, data = d), "object")
  expect_refusal(elvi(logit ~ 0, data = d, family = binomial()), "object")
  expect_refusal(elvi(logit ~ gone, data = d, family = binomial()), "data")
  expect_refusal(elvi(logit ~ a, data = d[0, ], family = binomial()), "data")
  expect_refusal(elvi(logit ~ a, data = d, family = binomial(), subset = a > 99), "data")
  expect_refusal(elvi(three ~ a, data = d, family = binomial()), "three")
  expect_refusal(elvi(word ~ a, data = d), "word")
  expect_refusal(elvi(poisson ~ a, data = d, family = binomial()), "poisson")
  expect_refusal(elvi(normal ~ a, data = d, family = poisson()), "normal")
  expect_refusal(elvi(poisson ~ a, data = d, family = Gamma("identity")), "family")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson("sqrt")), "family")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), dispersion = 2), "dispersion")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), prior_aux = exponential(1)), "prior_aux")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), prior = normal(0, 1:3)), "prior")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), prior_intercept = normal(0, 1:2)), "prior_intercept")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), prior = "normal"), "prior")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), weights = a), "weights")
  expect_refusal(elvi(poisson ~ a, data = d, family = poisson(), autoscale = NA), "autoscale")
  expect_refusal(elvi(poisson ~ a, data = d, famly = poisson()), "famly")
  expect_refusal(elvi("no formula at all", data = d), "object")
  expect_refusal(elvi(separate ~ a, data = d, family = binomial(), prior = flat(), prior_intercept = flat()), "prior")
  expect_refusal(elvi(poisson ~ a + copy, data = d, family = poisson(), prior = flat()), "X")
  expect_error(elvi(logit ~ nowhere, data = d, family = binomial()), "nowhere")
  # a proper prior decides between copies
  expect_message(fit <- elvi(poisson ~ a + copy, data = d, family = poisson(), correct = FALSE), class = "elvi_message_collinear")
  expect_equal(coef(fit)[["a"]] * sd(d$a), coef(fit)[["copy"]] * sd(d$copy), tolerance = 1e-6)
  # separable data with a proper prior have an answer
  fit <- elvi(separate ~ a, data = d, family = binomial())
  expect_gt(coef(fit)[["a"]], 0)
  # a constant response
  expect_warning(fit <- elvi(same ~ a, data = d, family = binomial()), class = "elvi_warning_constant_response")
  expect_lt(abs(coef(fit)[["a"]]) / sqrt(vcov(fit)["a", "a"]), 1)
  expect_error(suppressWarnings(elvi(same ~ a, data = d)), class = "elvi_error_no_optimum")
  # a constant predictor beside the intercept: its prior is its posterior
  expect_message(fit <- elvi(poisson ~ same, data = d, family = poisson(), prior = normal(0.5, 2), correct = FALSE),
                 class = "elvi_message_collinear")
  expect_equal(c(coef(fit)[["same"]], vcov(fit)["same", "same"]), c(0.5, 4), tolerance = 1e-6)
  # missing responses are dropped
  d$logit[3] <- NA
  expect_identical(nobs(elvi(logit ~ a, data = d, family = binomial())), 59L)
})

# ---- reference posteriors --------------------------------------------------------

oracle_csv <- function(name) read.csv(test_path("oracles", name))

expect_posterior <- function(fit, reference, label) {
  # of all parameters as fitted, which the references are about: log_sigma too
  mean <- abs(unname(fit$mu) - reference$mean) / reference$sd
  sd <- abs(unname(sqrt(diag(fit$Sigma %*% fit$Sigma))) / reference$sd - 1)
  expect_lt(max(mean), 0.15, label = paste(label, "mean"))
  expect_lt(max(sd), 0.15, label = paste(label, "sd"))
}

# left to itself, sigma is integrated over; the reference has its logarithm last
expect_nested_posterior <- function(fit, reference, label) {
  expect_identical(fit$method, "nested")
  which <- seq_along(coef(fit))
  expect_lt(max(abs(unname(coef(fit)) - reference$mean[which]) / reference$sd[which]), 0.05, label = paste(label, "mean, nested"))
  expect_lt(max(abs(unname(sqrt(diag(vcov(fit)))) / reference$sd[which] - 1)), 0.03, label = paste(label, "sd, nested"))
  log_sigma <- log(as.matrix(fit, draws = 4000)[, "sigma"])
  expect_lt(abs(mean(log_sigma) - reference$mean[-which]) / reference$sd[-which], 0.07)
  expect_lt(abs(sd(log_sigma) / reference$sd[-which] - 1), 0.07)
}

test_that("formulas reproduce reference posteriors of linear models", {
  set.seed(1)
  data <- oracle_csv("mesquite-data.csv")
  fit <- elvi(y ~ . - x.1, data = data, prior = flat(), prior_intercept = flat(), prior_aux = flat(), tol = 0.005)
  expect_posterior(fit, oracle_csv("mesquite-posterior.csv"), "mesquite")
  expect_nested_posterior(elvi(y ~ . - x.1, data = data, prior = flat(), prior_intercept = flat(), prior_aux = flat()), oracle_csv("mesquite-posterior.csv"), "mesquite")
  data <- oracle_csv("sblri-data.csv")
  fit <- elvi(y ~ . - 1, data = data, prior = normal(0, 10), prior_aux = normal(0, 10), tol = 0.005)
  expect_posterior(fit, oracle_csv("sblri-posterior.csv"), "sblri")
  expect_nested_posterior(elvi(y ~ . - 1, data = data, prior = normal(0, 10), prior_aux = normal(0, 10)), oracle_csv("sblri-posterior.csv"), "sblri")
  # uncentred years: the column of ones is a predictor, and keeps its own prior
  data <- oracle_csv("kilpisjarvi-data.csv")
  fit <- elvi(y ~ x.1 + x.2 - 1, data = data, prior = normal(c(9.31290322580645, 0), c(100, 1 / 30)),
              prior_aux = flat(), tol = 0.005)
  expect_posterior(fit, oracle_csv("kilpisjarvi-posterior.csv"), "kilpisjarvi")
  expect_nested_posterior(elvi(y ~ x.1 + x.2 - 1, data = data, prior = normal(c(9.31290322580645, 0), c(100, 1 / 30)),
                               prior_aux = flat()), oracle_csv("kilpisjarvi-posterior.csv"), "kilpisjarvi")
})

test_that("formulas reproduce exact variational optima", {
  optima <- oracle_csv("optima.csv")
  numbers <- function(text) as.numeric(strsplit(text, " ")[[1]])
  for (case in c("pima", "infert")) {
    data <- oracle_csv(paste0(case, ".csv"))
    data$trials <- NULL
    reference <- optima[optima$case == case & optima$base == "gaussian" & optima$scale == "symmetric", ]
    fit <- elvi(y ~ . - 1, data = data, family = binomial(), prior = normal(0, if (case == "pima") 1 else sqrt(10)))
    expect_equal(unname(fit$mu), numbers(reference$mu), tolerance = 1e-6)
    expect_equal(as.vector(fit$Sigma), numbers(reference$Sigma), tolerance = 1e-5)
  }
})

test_that("a flat prior comes with a warning about existence", {
  expect_warning(fit <- elvi(am ~ wt, mtcars, family = binomial(), prior = flat()), "flat for 1 coefficient",
                 class = "elvi_warning_flat_prior")
  expect_true(fit$converged)
  expect_silent(elvi(am ~ wt, mtcars, family = binomial()))
})

test_that("what a formula cannot read is an error that names its argument", {
  d <- data.frame(y = c(1, 3, 2, 5), x = c(1, 2, 3, 4), inf = c(1, 2, Inf, 4), f = factor(c("a", "b", "a", "b")))
  messages <- c(
    refusal(elvi(y ~ inf, data = d), "data"),
    refusal(elvi(y ~ x + I(x * 1e200), data = d), "data"),
    refusal(elvi(y ~ nowhere_to_be_found, data = d), "data"),
    refusal(elvi(y ~ x, data = d, weights = list(1, 2, 3, 4)), "weights"),
    refusal(elvi(y ~ x, data = d, weights = -x), "weights"),
    refusal(elvi(y ~ x, data = d, weights = 0 * x), "weights"),
    refusal(elvi(y ~ x, data = d, offset = letters[1:4]), "offset"),
    refusal(elvi(y ~ x, data = as.matrix(d[1:2])), "data"),
    refusal(elvi(y ~ x, data = 3), "data"),
    refusal(elvi(y ~ x, data = d, na.action = "no_such_function"), "na.action"),
    refusal(elvi(y ~ f, data = d, contrasts = "contr.sum"), "contrasts"),
    refusal(elvi(y ~ f, data = d, contrasts = list(g = "contr.sum")), "contrasts"),
    refusal(elvi(c("y ~ x", "y ~ f"), data = d), "object")
  )
  expect_snapshot(writeLines(messages))
})

test_that("a row without trials, weight or frequency adds nothing, not to means and scales of predictors either", {
  d <- data.frame(s = c(1, 2, 3, 1), n = c(3, 4, 5, 2), x = c(0, 1, 2, 5), y = c(1, 3, 2, 8), w = 1)
  more <- rbind(d, list(0, 0, 100, 50, 0))
  same <- function(a, b) expect_equal(coef(a), coef(b), tolerance = 1e-6)
  same(elvi(cbind(s, n - s) ~ x, more, binomial()), elvi(cbind(s, n - s) ~ x, d, binomial()))
  same(elvi(s ~ x, more, poisson(), weights = w), elvi(s ~ x, d, poisson()))
  same(elvi(y ~ x, more, frequency = w), elvi(y ~ x, d))
  same(elvi(cbind(s, n - s) ~ x, rows_chunked(local({
    at <- 0
    function(reset = FALSE) {
      at <<- if (reset) 0 else at + 1
      if (at %in% 1:2) more[seq(at, 5, by = 2), ]
    }
  })), binomial()), elvi(cbind(s, n - s) ~ x, d, binomial()))
})

# ---- weights --------------------------------------------------------------------------------

test_that("weights are what they are to glm(), and frequency is the row given again", {
  d <- withr_seed(8, data.frame(x = rnorm(40), w = sample(1:4, 40, TRUE)))
  d$y <- withr_seed(9, 1 + d$x + rnorm(40) / sqrt(d$w))
  wide <- list(prior = normal(0, 100), prior_intercept = normal(0, 100), prior_aux = flat())
  fit <- function(...) do.call(elvi, c(list(y ~ x, data = quote(d), ...), wide))
  # weights that are all alike move sigma and nothing else
  same <- fit()
  hundred <- fit(weights = rep(100, 40))
  expect_equal(hundred$sd[1:2], same$sd[1:2], tolerance = 1e-3)
  expect_equal(sigma(hundred), 10 * sigma(same), tolerance = 1e-3)
  # precisions: those of glm(), whose t has 38 degrees of freedom
  twin <- glm(y ~ x, data = d, weights = w)
  ours <- fit(weights = d$w)
  expect_equal(coef(ours), coef(twin), tolerance = 1e-3)
  expect_equal(unname(ours$sd[1:2]), unname(sqrt(diag(vcov(twin)) * 38 / 36)), tolerance = 0.02)
  # frequencies: the rows again and again
  often <- fit(frequency = d$w)
  d <- d[rep(1:40, d$w), ]
  again <- fit()
  expect_equal(often$mu, again$mu, tolerance = 1e-5)
  expect_equal(often$sd, again$sd, tolerance = 1e-4)
  # trials of a proportion
  e <- transform(esoph, age = as.numeric(agegp), n = ncases + ncontrols)
  e <- e[e$n > 0, ]
  expect_equal(coef(elvi(I(ncases / n) ~ age, data = e, family = binomial(), weights = n)),
               coef(elvi(cbind(ncases, n - ncases) ~ age, data = e, family = binomial())))
})

test_that("weights of proportions and counts are those of rstanarm", {
  skip_unless_long()   # rstanarm takes seconds to load
  skip_if_not_installed("rstanarm")
  e <- transform(esoph, age = as.numeric(agegp), n = ncases + ncontrols)
  e <- e[e$n > 0, ]
  e$share <- e$ncases / e$n
  expect_twins <- function(formula, family) {
    twin <- rstanarm::stan_glm(formula, family, e, weights = n, chains = 1, iter = 2000, seed = 1, refresh = 0)
    ours <- elvi(formula, e, family, weights = n)
    sds <- unname(sqrt(diag(vcov(ours))))
    expect_lt(max(abs(coef(ours) - twin$stan_summary[1:2, "mean"]) / sds), 0.2)
    expect_lt(max(abs(twin$stan_summary[1:2, "sd"] / sds - 1)), 0.15)
  }
  expect_twins(share ~ age, binomial())
  expect_twins(ncases ~ age, poisson())
})

test_that("more coefficients than rows have an answer with proper priors: that of ridge regressions, sigma integrated over", {
  X <- withr_seed(3, matrix(rnorm(8 * 12), 8))
  y <- withr_seed(4, X[, 1] + rnorm(8))
  fit <- elvi(y ~ 0 + X, prior = normal(0, 1), prior_aux = exponential(1))
  a <- seq(-10, 3, length.out = 600)
  at <- lapply(exp(a), function(sigma) {
    P <- crossprod(X) / sigma^2 + diag(12)
    V <- solve(P)
    S <- tcrossprod(X) + diag(sigma^2, 8)
    list(mean = drop(V %*% crossprod(X, y)) / sigma^2, var = diag(V),
         log_p = -(determinant(S)$modulus + sum(y * solve(S, y))) / 2 - sigma + log(sigma))
  })
  log_p <- vapply(at, function(l) as.double(l$log_p), 0)
  p <- exp(log_p - max(log_p))
  p <- p / sum(p)
  means <- vapply(at, function(l) l$mean, numeric(12))
  mean <- drop(means %*% p)
  sd <- sqrt(drop((vapply(at, function(l) l$var, numeric(12)) + (means - mean)^2) %*% p))
  expect_lt(max(abs(coef(fit) - mean) / sd), 0.02)
  expect_equal(unname(fit$sd[1:12]), sd, tolerance = 0.02)
  centre <- sum(p * exp(a))
  expect_lt(abs(sigma(fit) - centre), 0.1 * sqrt(sum(p * (exp(a) - centre)^2)))
  expect_identical(length(coef(elvi(y ~ X))), 13L)   # and with the priors that it comes with
})

test_that("64-bit integers are not taken for the doubles whose bits they are", {
  data <- mtcars
  data$long <- structure(as.double(mtcars$gear), class = "integer64")
  expect_error(elvi(mpg ~ long, data = data), "data\\$long.*integer64", class = "elvi_error_argument")
})

test_that("a fit attaches no package", {
  skip_on_cran()
  code <- paste0("library(elvi, lib.loc = '", dirname(getNamespaceInfo("elvi", "path")), "'); before <- search(); ",
                 "fit <- elvi(mpg ~ wt, mtcars); stopifnot(identical(search(), before))")
  expect_identical(system2(file.path(R.home("bin"), "Rscript"), c("-e", shQuote(code)), stdout = FALSE, stderr = FALSE), 0L)
})
