steps_data <- function(n = 80) withr_seed(9, {
  d <- data.frame(x = rnorm(n), g = factor(rep_len(1:6, n)))
  d$y <- factor(as.vector(sequence_draws(matrix(0.4 + 0.8 * d$x + rnorm(6, 0, 0.5)[d$g]), matrix(c(-0.3, 1.1), 1), sratio())), 1:4,
                labels = c("low", "mid", "high", "top"), ordered = TRUE)
  d
})

# P(y = k) written out
sratio_probability <- function(k, eta, cuts, F) {
  p <- F(c(0, cuts) - eta)
  prod(1 - p[seq_len(k - 1)]) * if (k <= length(p)) p[k] else 1
}
cratio_probability <- function(k, eta, cuts, F) {
  p <- F(eta - c(0, cuts))
  prod(p[seq_len(k - 1)]) * if (k <= length(p)) 1 - p[k] else 1
}
acat_probability <- function(k, eta, cuts, F) {
  p <- exp(c(0, cumsum(eta - c(0, cuts))))
  p[k] / sum(p)
}

test_that("losses and probabilities of sequential and adjacent classes are those of the formulas", {
  cuts <- c(-0.4, 0.9)
  F <- list(logit = plogis, probit = pnorm, cloglog = function(t) -expm1(-exp(t)))
  written <- list(sratio = sratio_probability, cratio = cratio_probability, acat = acat_probability)
  for (name in names(step_records())) {
    record <- family_records[[name]]
    of <- function(k, eta) written[[record$family]](k, eta, cuts, F[[record$link]])
    spreads <- if (record$link == "logit") c(0, 0.6) else 0
    expect_row_loss(name, exp(cuts), 3, Vectorize(function(eta) log(of(3, eta))), c(-0.4, 0.7), spreads)
    family <- record$make()
    family$levels <- as.character(1:4)
    eta <- matrix(c(-0.4, 0.2, 0.7), 3)
    expect_equal(unname(record$classes(eta, matrix(cuts, 1), family)[2, 1, ]), vapply(1:4, of, 0, 0.2))
    expect_equal(c(record$log_lik(c(4, 2, 1), eta, matrix(cuts, 1), 1, family)), log(c(of(4, -0.4), of(2, 0.2), of(1, 0.7))))
    y <- withr_seed(3, record$draws(matrix(0.3, 4000, 1), matrix(cuts, 1), 1, family))
    expect_lt(max(abs(tabulate(y, 4) / 4000 - vapply(1:4, of, 0, 0.3))), 0.035)
  }
})

test_that("thresholds have the slope of the evidence, and the posterior is that of a grid", {
  skip_without_parser()
  d <- steps_data()
  for (family in list(sratio(), cratio("cloglog"), acat())) {
    expect_evidence_slope(elvi_problem(y ~ x + (1 | g), d, family = family, weights = rep_len(1:2, 80)))
  }
  three <- d[d$y != "top", ]
  three$y <- droplevels(three$y)
  fit <- elvi(y ~ 1, three, family = sratio(), prior_intercept = normal(0, 2), prior_aux = normal(0, 1), autoscale = FALSE)
  expect_grid_posterior(summary(fit)$table, expand.grid(b = seq(-2, 2, length.out = 81), c = seq(-2.5, 2.5, length.out = 81)),
    function(v) {
      p <- vapply(1:3, sratio_probability, 0, v[1], v[2], plogis)
      sum(table(three$y) * log(p)) + dnorm(v[1], 0, 2, log = TRUE) + dnorm(v[2], log = TRUE)
    }, identity)
  expect_identical(fit$posterior$shown, c("(Intercept)", "cut[2]"))
  refusal(elvi(y ~ 1, three, family = sratio(), prior_aux = exponential(1)), "prior_aux")
})

test_that("with a symmetric link cratio() is sratio(); a binomial regression of the steps agrees", {
  skip_on_cran()
  d <- steps_data(200)
  a <- elvi(y ~ x, d, family = sratio())
  b <- elvi(y ~ x, d, family = cratio())
  expect_equal(coef(a), coef(b), tolerance = 1e-6)
  k <- as.integer(d$y)
  long <- do.call(rbind, lapply(1:3, function(j) data.frame(x = d$x, step = factor(j), on = as.integer(k > j))[k >= j, ]))
  glm <- glm(on ~ step + x, binomial(), long)
  expect_lt(max(abs(cutpoints(a)[, "mean"] + coef(glm)[1] + c(0, coef(glm)[2:3])) / cutpoints(a)[, "sd"]), 0.3)
  expect_lt(abs(coef(a)[["x"]] - coef(glm)[["x"]]) / a$sd[["x"]], 0.1)
  p <- predict(a, d[1:3, ], type = "response")
  expect_equal(unname(rowSums(p)), rep(1, 3))
  expect_equal(p, apply(posterior_epred(a, d[1:3, ], draws = 4000), 2:3, mean), tolerance = 0.02, ignore_attr = TRUE)
  refusal(residuals(a), "object")
  d$y <- factor(d$y, levels = c("low", "none", "mid", "high", "top"), ordered = TRUE)
  expect_error(elvi(y ~ x, d, family = sratio()), "never occurs")
})
