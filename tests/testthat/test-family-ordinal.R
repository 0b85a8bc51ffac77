ordinal_data <- function(n = 150, link = "logit") {
  withr_seed(5, {
    d <- data.frame(x = rnorm(n), g = factor(rep_len(1:10, n)))
    eta <- 0.3 + 0.8 * d$x + rnorm(10, 0, 0.6)[d$g]
    u <- make.link(link)$linkfun(runif(n))
    d$y <- cut(eta + u, c(-Inf, 0, 1, 2.2, Inf), labels = c("none", "some", "more", "most"), ordered_result = TRUE)
    d
  })
}

tails <- list(logit = plogis, probit = pnorm,
              cloglog = function(x, lower.tail = TRUE) if (lower.tail) -expm1(-exp(x)) else exp(-exp(x)))

# minus the log probability of class y, by differences of G or of 1 - G
class_loss <- function(link, y, eta, distances) {
  cuts <- c(-Inf, 0, cumsum(distances), Inf)
  G <- tails[[link]]
  low <- cuts[y] - eta
  high <- cuts[y + 1] - eta
  -log(ifelse(high < 0, G(high) - G(low), G(low, lower.tail = FALSE) - G(high, lower.tail = FALSE)))
}

test_that("expectations of classes are those of integrate(), and so are their slopes in the distances", {
  distances <- c(0.7, 1.3)
  for (link in c("logit", "probit", "cloglog")) for (y in 1:4) for (s in c(0, 0.8)) {
    name <- paste0("cumulative_", link)
    mean_of <- function(eta) {
      if (s == 0) return(class_loss(link, y, eta, distances))
      integrate(function(z) class_loss(link, y, eta + s * z, distances) * dnorm(z), -5, 5, rel.tol = 1e-9)$value
    }
    at <- .Call(elvi_r_expect_rows, list(likelihood = name, error_df = 4), gaussian_rule(name), distances,
                list(y = as.double(y), weight = 2, eta = 0.4, s = s))
    h <- 1e-3
    expect_equal(at$sum, 2 * mean_of(0.4), tolerance = 1e-4, label = paste(name, y))
    expect_equal(at$slope, (mean_of(0.4 + h) - mean_of(0.4 - h)) / h, tolerance = 1e-4, label = paste(name, y))
    expect_equal(at$curve, 2 * (mean_of(0.4 + h) - 2 * mean_of(0.4) + mean_of(0.4 - h)) / h^2, tolerance = 5e-3, label = paste(name, y))
    expect_gte(at$curve, 0)
  }
  # far out, where differences of probabilities are 0
  far <- .Call(elvi_r_expect_rows, list(likelihood = "cumulative_probit", error_df = 4), point_rule, distances,
               list(y = c(1, 2, 4), weight = c(1, 1, 1), eta = c(60, -60, -60), s = numeric(3)))
  expect_true(all(is.finite(c(far$sum, far$slope, far$curve))) && all(far$curve > 0.9))
  expect_equal(far$slope, c(60, -60, -62), tolerance = 1e-2)
})

test_that("the log likelihood of classes keeps its digits in either tail", {
  logit <- cumulative()
  cuts <- matrix(c(0.7, 2), 1)
  for (y in 1:4) for (link in c("logit", "probit", "cloglog")) {
    family <- cumulative(link)
    expect_equal(ordinal_log_lik(y, matrix(0.4), cuts, family)[1], -class_loss(link, y, 0.4, c(0.7, 1.3)), tolerance = 1e-10)
    expect_equal(exp(ordinal_log_lik(y, matrix(0.4), cuts, family)[1]), unname(class_probabilities(0.4, cuts, family)[1, 1, y]),
                 tolerance = 1e-10)
  }
  expect_equal(c(ordinal_log_lik(c(2, 2), matrix(c(-60, 60), 1), cuts, logit)), c(-60, -59.3) + log(-expm1(-0.7)), tolerance = 1e-8)
})

test_that("the evidence of distances between cut points has its slope, with groups", {
  skip_on_cran()
  skip_without_parser()
  d <- ordinal_data(80)
  for (link in c("logit", "probit", "cloglog")) {
    problem <- conditional_problem(elvi_problem(y ~ x + (1 | g), d, family = cumulative(link)))
    setup <- nested_setup(problem, base_gaussian())
    theta <- start_theta(setup) + c(0.2, 0.1, -0.3)
    value <- function(theta) evidence_at(setup, list(theta), tol = 1e-12)[[1L]]
    expect_equal(value(theta)$slope, unname(fd_gradient(function(t) value(t)$value, theta)), tolerance = 1e-5, label = link)
  }
})

test_that("the posterior of an ordinal regression is that of importance sampling", {
  skip_on_cran()
  d <- ordinal_data()
  for (link in every(c("logit", "probit"), 2)) {
    fit <- elvi(y ~ x, d, family = cumulative(link), prior = normal(0, 2), prior_intercept = normal(0, 3), autoscale = FALSE)
    centre <- mean(d$x)
    log_p <- function(v) {   # intercept of centred x, slope, log distances
      loss <- vapply(1:4, function(k) {
        rows <- as.integer(d$y) == k
        sum(class_loss(link, k, v[1] + v[2] * (d$x[rows] - centre), exp(v[3:4])))
      }, 0)
      -sum(loss) + dnorm(v[1], 0, 3, log = TRUE) + dnorm(v[2], 0, 2, log = TRUE) + sum(v[3:4] - exp(v[3:4]))
    }
    mode <- optim(c(1, 0.5, 0, 0), log_p, method = "BFGS", control = list(fnscale = -1), hessian = TRUE)
    root <- chol(solve(-mode$hessian))
    withr_seed(9, {
      z <- matrix(rt(4 * 6000, 8), ncol = 4)
      v <- rep(mode$par, each = 6000) + z %*% root
      log_w <- apply(v, 1, log_p) - rowSums(dt(z, 8, log = TRUE))
    })
    w <- exp(log_w - max(log_w))
    w <- w / sum(w)
    shown <- cbind(v[, 1] - v[, 2] * centre, v[, 2], exp(v[, 3]), exp(v[, 3]) + exp(v[, 4]))
    mean <- colSums(w * shown)
    sd <- sqrt(colSums(w * (shown - rep(mean, each = 6000))^2))
    table <- summary(fit)$table
    expect_identical(rownames(table), c("(Intercept)", "x", "cut[2]", "cut[3]"))
    expect_lt(max(abs(table[, "mean"] - mean) / sd), 0.1, label = link)
    expect_lt(max(abs(table[, "sd"] / sd - 1)), 0.05, label = link)
    expect_true(all(fit$nested$certificate_kind == "rigorous" & fit$nested$certificates < 1e-6))
  }
})

test_that("predictions of classes agree with each other", {
  skip_on_cran()
  d <- ordinal_data()
  fit <- elvi(y ~ x, d, family = "cumulative")
  p <- predict(fit, d[1:5, ], type = "response", se.fit = TRUE)
  expect_identical(dimnames(p$fit), list(as.character(1:5), levels(d$y)))
  expect_equal(unname(rowSums(p$fit)), rep(1, 5), tolerance = 1e-8)
  e <- posterior_epred(fit, d[1:5, ], draws = 4000)
  expect_identical(dim(e), c(4000L, 5L, 4L))
  expect_lt(max(abs(apply(e, 2:3, mean) - p$fit) / p$se.fit), 0.1)
  expect_equal(apply(e, 2:3, sd), p$se.fit, tolerance = 0.06)
  new <- posterior_predict(fit, d[1:5, ], draws = 4000)
  expect_identical(attr(new, "levels"), levels(d$y))
  expect_lt(max(abs(sapply(1:4, function(k) colMeans(new == k)) - p$fit)), 0.05)
  # each row's log likelihood is the logarithm of its class
  ll <- log_lik(fit, draws = 7)
  all <- posterior_epred(fit, draws = 7)
  expect_equal(unname(ll[, 3]), log(all[, 3, as.integer(d$y)[3]]), tolerance = 1e-8, ignore_attr = TRUE)
  # new data know the classes by name, not by number
  part <- d[as.integer(d$y) > 2, ]
  part$y <- droplevels(part$y)
  expect_equal(log_lik(fit, newdata = part, draws = 7), ll[, rownames(part)], ignore_attr = TRUE)
  limits <- predict(fit, d[1:5, ], type = "response", interval = "credible")
  expect_identical(dim(limits), c(5L, 3L, 4L))
  expect_true(all(limits[, "lwr", ] < limits[, "fit", ] & limits[, "fit", ] < limits[, "upr", ]))
  cuts <- cutpoints(fit)
  expect_identical(rownames(cuts), c("none|some", "some|more", "more|most"))
  moments <- posterior_moments(fit$posterior)
  expect_equal(unname(cuts[, "mean"]), unname(c(0, moments$mean[c("cut[2]", "cut[3]")]) - moments$mean[["(Intercept)"]]), tolerance = 0.02)
  refusal(residuals(fit), "object")
  refusal(bayes_R2(fit), "object")
  refusal(predict(fit, interval = "prediction"), "interval")
  refusal(cutpoints(elvi(mpg ~ wt, mtcars)), "object")
})

test_that("polr() is the limit of a flat prior, and numbers are classes", {
  skip_on_cran()
  d <- ordinal_data(400)
  twin <- MASS::polr(y ~ x, d, Hess = TRUE)
  se <- sqrt(diag(vcov(twin)))
  fit <- suppressWarnings(elvi(y ~ x, d, family = cumulative(), prior = flat(), prior_intercept = flat(), prior_aux = exponential(0.01)))
  expect_lt(abs(coef(fit)[["x"]] - coef(twin)[["x"]]) / se[[1]], 0.1)
  cuts <- cutpoints(fit)
  expect_lt(max(abs(cuts[, "mean"] - twin$zeta) / se[-1]), 0.15)
  d$number <- as.integer(d$y)
  expect_equal(coef(elvi(number ~ x, d, family = cumulative())), coef(elvi(y ~ x, d, family = cumulative())))
})

test_that("responses that are no ordered classes are refused", {
  d <- ordinal_data(60)
  d$plain <- factor(as.character(d$y))
  d$two <- factor(d$y > "none", ordered = TRUE)
  d$zero <- as.integer(d$y) - 1
  d$gap <- factor(as.character(d$y), levels = c(levels(d$y), "all"), ordered = TRUE)
  fit <- function(formula, ...) elvi(formula, d, family = cumulative(), ...)
  expect_refusal(fit(plain ~ x), "plain")
  expect_refusal(fit(two ~ x), "two")
  expect_refusal(fit(zero ~ x), "zero")
  expect_refusal(fit(gap ~ x), "gap")
  expect_refusal(fit(y ~ x, method = "mpsgd"), "method")
  expect_refusal(cumulative("log"), "link")
  expect_refusal(model_glm(cbind(1, d$x), d$y, cumulative()), "family")
})
