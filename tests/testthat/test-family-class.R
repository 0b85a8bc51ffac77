# Classes without an order: src/joint_class.c and R/family-class.R.

class_expect <- function(y, eta, V, fine = FALSE) {
  .Call(elvi_r_joint_expect, "categorical", class_rule(length(eta), fine), numeric(), list(y = y, weight = 1, eta = eta, V = V))
}

lower <- function(M) M[lower.tri(M, diag = TRUE)]

# a covariance matrix of n predictors
some_covariance <- function(n, scale = 0.3) scale * (0.5 * diag(n) + 0.5 * outer(cos(1:n), cos(1:n)))

log_sum <- function(eta) log(1 + rowSums(exp(eta)))

test_that("points have positive weights and the moments of a normal distribution up to degree 7", {
  for (n in 2:7) for (fine in c(FALSE, TRUE)) {
    rule <- class_cubature(n, fine)
    expect_true(all(rule$w > 0))
    powers <- subset(expand.grid(a = 0:7, b = 0:7), a + b <= 7)
    found <- with(powers, mapply(function(a, b) sum(rule$w * rule$z[1, ]^a * rule$z[2, ]^b), a, b))
    normal <- c(1, 0, 1, 0, 3, 0, 15, 0)
    expect_equal(found, normal[powers$a + 1] * normal[powers$b + 1], tolerance = 1e-10, info = n)
    if (n >= 3) {   # all indices differ
      expect_equal(sum(rule$w * rule$z[1, ]^2 * rule$z[2, ]^2 * rule$z[3, ]^2), 1, tolerance = 1e-10)
      expect_equal(sum(rule$w * rule$z[1, ] * rule$z[2, ] * rule$z[3, ]^2), 0, tolerance = 1e-10)
    }
  }
})

test_that("slopes and curvatures are the derivatives of the sum in the means and in the covariance", {
  h <- 1e-5
  for (n in c(2, 3, 5)) {
    y <- c(0.2, 0.5, numeric(n - 2))
    eta <- sin(1:n)
    V <- some_covariance(n)
    at <- class_expect(y, eta, lower(V))
    slope <- vapply(1:n, function(l) {
      (class_expect(y, eta + h * (1:n == l), lower(V))$sum - class_expect(y, eta - h * (1:n == l), lower(V))$sum) / (2 * h)
    }, 0)
    expect_equal(drop(at$slope), slope, tolerance = 1e-7)
    pairs <- which(lower.tri(V, TRUE), arr.ind = TRUE)
    curve <- apply(pairs, 1, function(k) {
      D <- matrix(0, n, n)
      D[k[1], k[2]] <- D[k[2], k[1]] <- h
      (class_expect(y, eta, lower(V + D))$sum - class_expect(y, eta, lower(V - D))$sum) / (2 * h) * if (k[1] == k[2]) 2 else 1
    })
    expect_equal(drop(at$curve), unname(curve), tolerance = 1e-6, info = n)
  }
})

test_that("expectations agree with brute force, and without spread with the loss", {
  z <- seq(-8, 8, length.out = 161)
  w <- dnorm(z) * diff(z[1:2])
  grid <- as.matrix(expand.grid(z, z))
  for (scale in c(0.05, 0.5, 1.5)) {
    V <- some_covariance(2, scale)
    eta <- c(0.4, -0.6)
    brute <- sum(as.double(outer(w, w)) * log_sum(t(eta + t(chol(V)) %*% t(grid)))) - eta[2]
    expect_equal(class_expect(c(0, 1), eta, lower(V))$sum, brute, tolerance = 1e-4 * scale^3)
    expect_equal(class_expect(c(0, 1), eta, lower(V), fine = TRUE)$sum, brute, tolerance = 1e-5 * scale^3)
  }
  for (n in c(2, 4, 7)) {
    eta <- cos(1:n)
    p <- exp(eta) / (1 + sum(exp(eta)))
    at <- class_expect(numeric(n), eta, numeric(n * (n + 1) / 2))   # no covariance has no root to divide by
    expect_equal(at$sum, log(1 + sum(exp(eta))))
    expect_equal(drop(at$slope), p)
    expect_equal(drop(at$curve), lower(diag(p) - outer(p, p)))
    near <- class_expect(numeric(n), eta, lower(some_covariance(n, 1e-8)))
    expect_equal(drop(near$curve), lower(diag(p) - outer(p, p)), tolerance = 1e-5)
  }
})

test_that("log likelihoods and draws are those of stats", {
  eta <- array(c(0.3, -1, 0.8, 0.1), c(1, 2, 2))
  p <- softmax(eta, list(levels = letters[1:3]))
  expect_equal(unname(p[1, 1, ]), exp(c(0, 0.3, 0.8)) / sum(exp(c(0, 0.3, 0.8))))
  counts <- rbind(c(2, 0, 3), c(1, 4, 1))
  expect_equal(multinomial_log_lik(counts / rowSums(counts), eta, NULL, rowSums(counts), NULL),
               c(dmultinom(counts[1, ], prob = p[1, 1, ], log = TRUE), dmultinom(counts[2, ], prob = p[1, 2, ], log = TRUE)))
  expect_equal(categorical_log_lik(c(3, 1), eta, NULL, NULL, NULL), unname(log(c(p[1, 1, 3], p[1, 2, 1]))))
  set.seed(1)
  many <- array(rep(eta[1, 1, ], each = 20000), c(20000, 1, 2))
  expect_equal(tabulate(categorical_draws(many, NULL, 1, list(levels = letters[1:3])), 3) / 20000, unname(p[1, 1, ]), tolerance = 0.03)
  drawn <- multinomial_draws(many, NULL, 7, list(levels = letters[1:3]))
  expect_true(all(rowSums(matrix(drawn, 20000)) == 7))
  expect_equal(colMeans(matrix(drawn, 20000)), unname(7 * p[1, 1, ]), tolerance = 0.03)
  expect_equal(var(drawn[, 1, 2]), unname(7 * p[1, 1, 2] * (1 - p[1, 1, 2])), tolerance = 0.05)
})

# classes a, b, c of two predictors
class_data <- local({
  set.seed(3)
  x <- rnorm(80)
  eta <- cbind(0, 0.5 + x, -0.3 - 0.8 * x)
  data.frame(x = x, g = factor(rep(1:8, 10)), y = factor(letters[apply(eta, 1, function(e) sample(3, 1, prob = exp(e)))]))
})

test_that("a fit agrees with importance sampling of its posterior", {
  fit <- elvi(y ~ x, class_data, family = categorical(), autoscale = FALSE)
  expect_named(coef(fit), c("mub_(Intercept)", "mub_x", "muc_(Intercept)", "muc_x"))
  expect_true(fit$converged)
  expect_identical(fit$nested$certificate_kind, "rigorous")
  expect_lt(fit$nested$cubature$mean, 1e-3)
  expect_output(print(fit), "Error of the expected log likelihood")
  # points around the mean, by a student density that is wider
  set.seed(1)
  n <- 20000
  S <- t(chol(vcov(fit)))
  z <- matrix(rnorm(4 * n), 4) / rep(sqrt(rchisq(n, 7) / 7), each = 4)
  b <- t(coef(fit) + 1.1 * S %*% z)
  x <- class_data$x
  eta <- list(0, outer(b[, 1], rep(1, 80)) + outer(b[, 2], x), outer(b[, 3], rep(1, 80)) + outer(b[, 4], x))
  observed <- as.integer(class_data$y)
  log_lik <- Reduce(`+`, lapply(2:3, function(k) eta[[k]] %*% (observed == k))) - rowSums(log(1 + exp(eta[[2]]) + exp(eta[[3]])))
  centred <- cbind(b[, 1] + b[, 2] * mean(x), b[, 2], b[, 3] + b[, 4] * mean(x), b[, 4])
  log_w <- drop(log_lik) + rowSums(dnorm(centred, 0, 2.5, log = TRUE)) + (7 + 4) / 2 * log1p(colSums(z^2) / 7)
  w <- exp(log_w - max(log_w))
  w <- w / sum(w)
  mean <- colSums(w * b)
  sd <- sqrt(colSums(w * b^2) - mean^2)
  expect_lt(max(abs(coef(fit) - mean) / sd), 0.06)
  expect_lt(max(abs(sqrt(diag(vcov(fit))) / sd - 1)), 0.04)
})

test_that("counts of classes are the same as one row for each", {
  counts <- data.frame(x = c(-1, 0, 1), a = c(9, 6, 2), b = c(1, 3, 4), c = c(1, 2, 8))
  long <- do.call(rbind, lapply(c("a", "b", "c"), function(k) data.frame(x = rep(counts$x, counts[[k]]), y = rep(k, sum(counts[[k]])))))
  # without an intercept, whose prior is at the mean of x: that differs
  wide <- elvi(cbind(a, b, c) ~ 0 + x, counts, family = multinomial(), prior = normal(0, 2))
  same <- elvi(y ~ 0 + x, long, family = categorical(), prior = normal(0, 2))
  expect_equal(coef(wide), coef(same), tolerance = 1e-4)
  expect_equal(vcov(wide), vcov(same), tolerance = 1e-3)
  # the data have multinomial coefficients, the rows do not
  whole <- sum(lgamma(rowSums(counts[-1]) + 1)) - sum(lgamma(as.matrix(counts[-1]) + 1))
  expect_equal(elbo(wide)$estimate, elbo(same)$estimate + whole, tolerance = 1e-4)
  expect_equal(dim(posterior_predict(wide, draws = 5)), c(5, 3, 3))
  expect_equal(rowSums(matrix(posterior_predict(wide, draws = 5)[2, , ], 3)), c(11, 11, 14))
  expect_equal(dim(posterior_epred(wide, counts[1, ], draws = 5)), c(5, 1, 3))
})

test_that("methods know the classes", {
  fit <- elvi(y ~ x, class_data, family = categorical())
  p <- predict(fit, class_data[1:3, ], type = "response")
  expect_equal(dim(p), c(3, 3))
  expect_equal(unname(rowSums(p)), rep(1, 3))
  expect_equal(colnames(p), c("a", "b", "c"))
  expect_s3_class(predict(fit, class_data[1:3, ], type = "class"), "factor")
  expect_equal(as.character(predict(fit, class_data[1:3, ], type = "class")), c("a", "b", "c")[unname(apply(p, 1, which.max))])
  link <- predict(fit, class_data[1:3, ])
  expect_equal(link[, "b"], setNames(coef(fit)[[1]] + coef(fit)[[2]] * class_data$x[1:3], 1:3), tolerance = 1e-6)
  expect_equal(dim(posterior_epred(fit, draws = 10)), c(10, 80, 3))
  expect_equal(dim(posterior_linpred(fit, draws = 10)), c(10, 80, 2))
  expect_equal(dim(log_lik(fit, draws = 10)), c(10, 80))
  drawn <- posterior_predict(fit, draws = 10)
  expect_true(all(drawn %in% 1:3))
  expect_identical(attr(drawn, "levels"), c("a", "b", "c"))
  expect_equal(coef(fit, part = "c"), setNames(coef(fit)[3:4], c("(Intercept)", "x")))
  expect_error(coef(fit, part = "a"), class = "elvi_error_argument")
  table <- tidy.elvi_fit(fit)
  expect_equal(table$y.level, rep(c("b", "c"), each = 2))
  expect_equal(table$term, rep(c("(Intercept)", "x"), 2))
  expect_error(residuals(fit), "do not exist")
  expect_error(predict(fit, type = "zprob"), class = "elvi_error_argument")
  expect_equal(coef(update(fit, . ~ 1))[["mub_(Intercept)"]], log(mean(class_data$y == "b") / mean(class_data$y == "a")), tolerance = 0.2)
})

test_that("each class has effects of its own, and new levels", {
  skip_if_not_installed("reformulas")
  # few points are enough for this, and warn that they are few
  fit <- suppressWarnings(elvi(y ~ x + (1 | g), class_data, family = categorical(), control = elvi_control(nodes = 3)),
                          classes = "elvi_warning")
  expect_equal(colnames(ranef(fit)$g), c("mub_(Intercept)", "muc_(Intercept)"))
  table <- tidy.elvi_fit(fit, effects = "ran_pars")
  expect_equal(table$y.level, c("b", "c"))
  expect_equal(table$term, rep("sd__(Intercept)", 2))
  new <- data.frame(x = 0, g = "another")
  expect_error(predict(fit, new, type = "response"), "allow_new_levels")
  p <- predict(fit, new, type = "response", allow_new_levels = TRUE)
  expect_equal(sum(p), 1)
  expect_equal(dim(posterior_linpred(fit, new, draws = 20, allow_new_levels = TRUE)), c(20, 1, 2))
})

test_that("what cannot be a response of classes is refused with what to do", {
  d <- transform(class_data, two = factor(x > 0), empty = factor(y, c("a", "b", "c", "d")), number = as.integer(y))
  d$many <- factor(rep_len(1:9, 80))
  expect_error(elvi(two ~ x, d, family = categorical()), "binomial\\(\\) is for two", class = "elvi_error_argument")
  expect_error(elvi(many ~ x, d, family = categorical()), "join some", class = "elvi_error_argument")
  expect_error(elvi(empty ~ x, d, family = categorical()), "\"d\" never occurs.*droplevels", class = "elvi_error_argument")
  expect_error(elvi(number ~ x, d, family = categorical()), "a factor, such as factor\\(y\\)", class = "elvi_error_argument")
  expect_error(elvi(y ~ x, d, family = multinomial()), "cbind\\(a, b, c\\)", class = "elvi_error_argument")
  expect_error(elvi(cbind(a = number, b = 1, c = 0) ~ x, d, family = multinomial()), "\"c\" never occurs", class = "elvi_error_argument")
  expect_error(elvi(cbind(a = number, b = -1, c = 2) ~ x, d, family = multinomial()), "counts", class = "elvi_error_argument")
  expect_error(elvi(y ~ x, d, family = categorical(), ziformula = ~ x), class = "elvi_error_argument")
  expect_error(elvi(y ~ x, d, family = categorical(), dispformula = ~ x), class = "elvi_error_argument")
  expect_error(elvi(y ~ x, d, family = categorical(), base = base_laplace()), "predictor for each class", class = "elvi_error_argument")
  expect_error(elvi(y ~ x, d, family = categorical(), method = "mpsgd"), "predictor for each class", class = "elvi_error_argument")
  expect_error(model_glm(cbind(1, d$x), d$y, family = categorical()), class = "elvi_error_argument")
})
