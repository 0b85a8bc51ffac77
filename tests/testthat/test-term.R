# a term of each kind, with what its record needs beside the data
kind_examples <- function() {
  base <- list(label = "g", levels = letters[1:4], prior_sd = exponential(1.3), prior_cor = 1.7)
  list(alone = c(base, list(kind = "group", coefs = "(Intercept)", correlated = TRUE, columns = 1:4)),
       apart = c(base, list(kind = "group", coefs = c("a", "b"), correlated = FALSE, columns = 1:8)),
       together = c(base, list(kind = "group", coefs = c("a", "b", "c"), correlated = TRUE, columns = 1:12)),
       smooth = c(base, list(kind = "smooth", coefs = "s", correlated = FALSE, columns = 1:4)))
}

dense_precision <- function(term, theta) {
  entries <- term_record(term)$entries(term)
  value <- term_record(term)$precision(term, theta)$value
  Q <- matrix(0, length(term$columns), length(term$columns))
  Q[cbind(entries$row, entries$column)] <- value[entries$source]
  Q[cbind(entries$column, entries$row)] <- value[entries$source]
  Q
}

# by central differences
slope_of <- function(f, x, h = 1e-5) {
  vapply(seq_along(x), function(j) (f(replace(x, j, x[j] + h)) - f(replace(x, j, x[j] - h))) / (2 * h), 0)
}

test_that("records are whole, and those that are not are refused", {
  expect_silent(check_term_kinds())
  kinds <- term_kinds
  kinds$smooth$rank <- NULL
  expect_error(check_term_kinds(kinds), "rank")
  kinds <- term_kinds
  kinds$other <- kinds$smooth
  expect_error(check_term_kinds(kinds), "two kinds")
  kinds$other$extra <- 1
  expect_error(check_term_kinds(kinds), "extra")
})

test_that("a precision, its inverse, log determinant and derivatives belong together", {
  set.seed(2)
  for (term in kind_examples()) {
    record <- term_record(term)
    theta <- rnorm(length(record$theta_names(term)), 0, 0.5)
    at <- record$precision(term, theta)
    Q <- dense_precision(term, theta)
    expect_equal(qr(Q)$rank, record$rank(term))
    expect_equal(at$log_det, as.double(determinant(Q)$modulus))
    entries <- record$entries(term)
    if (record$blocked(term)) expect_equal(solve(Q)[cbind(entries$row, entries$column)], at$inverse[entries$source])
    S <- crossprod(matrix(rnorm(nrow(Q)^2), nrow(Q)))
    moment <- as.double(rowsum(S[cbind(entries$row, entries$column)], entries$source))
    criterion <- function(theta) {
      Q <- dense_precision(term, theta)
      as.double(determinant(Q)$modulus) / 2 - sum(Q * S) / 2
    }
    expect_equal(at$slope(moment), slope_of(criterion, theta), tolerance = 1e-6)
    prior <- function(theta) record$log_prior(term, theta)$value
    expect_equal(record$log_prior(term, theta)$slope, slope_of(prior, theta), tolerance = 1e-6)
  }
})

test_that("hyperparameters have as many names as columns, starts and curvatures", {
  for (term in kind_examples()) {
    record <- term_record(term)
    theta <- matrix(0.3, 2, length(record$theta_names(term)))
    natural <- record$natural(term, theta)
    expect_identical(names(natural), record$natural_names(term))
    expect_identical(record$sd_names(term), record$natural_names(term)[seq_along(term$coefs)])
    expect_length(record$tidy_names(term), length(natural))
    expect_length(record$effect_names(term), length(term$columns))
    expect_length(record$curvature(term), ncol(theta))
    Z <- Matrix::Diagonal(length(term$columns))
    expect_length(record$start(term, Z, 1), ncol(theta))
    expect_equal(natural[[1L]], rep(exp(0.3), 2))
  }
})

test_that("covariances of draws are those of standard deviations and correlations", {
  term <- kind_examples()$together
  record <- term_record(term)
  set.seed(4)
  theta <- matrix(rnorm(12, 0, 0.4), 2)
  natural <- record$natural(term, theta)
  V <- covariance_draws(term, do.call(cbind, natural))
  for (i in 1:2) {
    expect_equal(unname(V[, , i]), term_covariance(term, theta[i, ])$D)
    expect_equal(solve(V[, , i]), dense_precision(term, theta[i, ])[1:3, 1:3], ignore_attr = TRUE)
  }
})

test_that("two correlated coefficients have the precision that formulas for any number give", {
  term <- list(kind = "group", coefs = c("a", "b"), correlated = TRUE, columns = seq_len(14))
  S <- c(3, -1.2, 2)
  for (theta in list(c(0.3, -1, 0.7), c(-4, 2, -3))) {
    at <- term_covariance(term, theta)
    got <- by_level_precision$precision(term, theta)
    expect_equal(got$value, covariance_part(term, at$inverse))
    expect_equal(got$inverse, covariance_part(term, at$D))
    expect_equal(got$log_det, -14 * (sum(log(at$sd)) + sum(log(diag(at$L)))))
    expect_equal(got$slope(S), covariance_slope(term, at, S), ignore_attr = TRUE)
  }
})
