sparse_data <- function(rows = 300, dim = 12, density = 0.2, seed = 1) {
  set.seed(seed)
  X <- matrix(rnorm(rows * dim) * (runif(rows * dim) < density), rows,
              dimnames = list(NULL, paste0("c", seq_len(dim))))
  X[5, ] <- 0
  X[, dim] <- 0          # an empty column
  eta <- drop(X %*% rnorm(dim)) + 0.3
  list(X = X, y = rbinom(rows, 1, plogis(eta)), counts = rpois(rows, exp(0.3 * eta)),
       response = eta + rnorm(rows), weights = rep(c(0, 1, 2.5), length.out = rows))
}

as_sparse <- function(X, class = "dgCMatrix") {
  S <- Matrix::Matrix(X, sparse = TRUE)
  if (class == "dgCMatrix") methods::as(methods::as(S, "generalMatrix"), "CsparseMatrix")
  else methods::as(S, class)
}

# the same model with its columns shifted in C, and with the shift carried out
shifted <- function(X, shift, y, family = binomial(), weights = NULL, ...) {
  given <- list(X = check_design(X), shift = shift, y = y, weights = weights)
  elvi:::glm_target(given, family, normal(0, 2), 1, NULL)
}

everything <- function(model) {
  d <- model$dim
  set.seed(9)
  x <- matrix(rnorm(5 * d, sd = 0.3), d)
  S <- diag(0.2, d) + 0.02
  L <- t(chol(crossprod(S)))
  law <- law_of(base_laplace(), d)
  exact <- if (has_exact(model)) {
    oracle <- exact_oracle(model, law)
    list(oracle("symmetric", x[, 1], S), oracle("triangular", x[, 1], L),
         oracle("diagonal", x[, 1], diag(S)), oracle("diagonal", x[, 2], numeric(d)))
  }
  p <- length(model$blocks$coefficients$precision)
  list(elvi:::target_at(model, x), exact, elvi:::pass_of(model, "gram"),
       elvi:::predictor_of(model$rows, x[seq_len(p), 1]), elvi:::pass_of(model, "extent", list(x = x[seq_len(p), 1])),
       model$smoothness, model$names)
}

test_that("a sparse design computes what the dense one does", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  data <- sparse_data()
  responses <- list(binomial = data$y, poisson = data$counts, gaussian = data$response,
                    neg_binomial_2 = data$counts, robust = data$response)
  for (family in names(responses)) {
    make <- function(X) suppressMessages(
      model_glm(X, responses[[family]], family, normal(0, 2), weights = data$weights))
    expect_equal(everything(make(as_sparse(data$X))), everything(make(data$X)), tolerance = 1e-12)
  }
})

test_that("shifted columns are those of the shifted matrix, dense and sparse", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  data <- sparse_data()
  shift <- seq(-1, 2, length.out = 12)
  for (weights in list(NULL, data$weights)) {
    plain <- suppressMessages(shifted(data$X - rep(shift, each = 300), NULL, data$y, weights = weights))
    expect_equal(everything(shifted(data$X, shift, data$y, weights = weights)), everything(plain),
                 tolerance = 1e-12)
    expect_equal(everything(shifted(as_sparse(data$X), shift, data$y, weights = weights)),
                 everything(plain), tolerance = 1e-12)
  }
  # the reach of a column is exact where it is dense, and a bound where it is sparse
  reach <- apply(abs(data$X - rep(shift, each = 300)), 2, max)
  expect_equal(elvi:::pass_of(shifted(data$X, shift, data$y), "reach"), unname(reach))
  expect_true(all(elvi:::pass_of(shifted(as_sparse(data$X), shift, data$y), "reach") >= reach - 1e-12))
})

test_that("designs of more rows than a chunk are summed over all of them", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  data <- sparse_data(rows = 40000, dim = 3, seed = 4)
  data$X[, 3] <- 1
  shift <- c(0.5, -1, 0)
  plain <- everything(shifted(data$X - rep(shift, each = 40000), NULL, data$y))
  expect_equal(everything(shifted(data$X, shift, data$y)), plain, tolerance = 1e-11)
  expect_equal(everything(shifted(as_sparse(data$X), shift, data$y)), plain, tolerance = 1e-11)
  expect_equal(plain[[3]], crossprod(data$X - rep(shift, each = 40000)), tolerance = 1e-12,
               ignore_attr = TRUE)
})

test_that("elvi() on a sparse design gives the fit of the dense one", {
  skip_if_not_installed("Matrix")
  data <- sparse_data()
  fits <- lapply(list(data$X, as_sparse(data$X)), function(X) {
    set.seed(1)
    model <- suppressMessages(model_glm(X, data$y))
    list(elvi(model, method = "exact")$mu, elvi(model, budget = 2000)$mu,
         capture.output(print(model)))
  })
  expect_equal(fits[[1]], fits[[2]], tolerance = 1e-9)
})

test_that("every kind of sparse matrix is taken, and none is made dense", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  data <- sparse_data()
  reference <- check_design(as_sparse(data$X))
  expect_identical(check_design(as_sparse(data$X, "TsparseMatrix")), reference)
  expect_identical(check_design(as_sparse(data$X, "RsparseMatrix")), reference)
  pattern <- check_design(methods::as(as_sparse(data$X), "nMatrix"))
  expect_identical(pattern$entry, rep(1, length(reference$entry)))
  symmetric <- crossprod(data$X[1:20, ])
  expect_equal(check_design(Matrix::forceSymmetric(as_sparse(symmetric))),
               check_design(as_sparse(symmetric)))
  # the rows, entry by entry
  full <- matrix(0, 300, 12)
  full[cbind(rep(1:300, diff(reference$start)), reference$column + 1)] <- reference$entry
  expect_identical(full, unname(data$X))
  # 200,000 x 2000 with 4 entries a row: 3.2 GB if it were dense
  wide <- Matrix::sparseMatrix(i = rep(1:2e5, 4), j = rep_len(1:2000, 8e5), x = 1, dims = c(2e5, 2000))
  gc(reset = TRUE)
  before <- sum(gc()[, 2])
  made <- check_design(wide)
  x <- .Call(elvi_r_by_rows, 2e5L, wide@p, wide@i, wide@x)
  expect_lt(sum(gc()[, 6]) - before, 200)
})

test_that("bad sparse designs are refused by name", {
  skip_if_not_installed("Matrix")
  bad <- as_sparse(sparse_data()$X)
  bad@x[7] <- NA
  expect_snapshot(error = TRUE, model_glm(bad, rep(0:1, 150)))
  expect_snapshot(error = TRUE, model_glm(as_sparse(sparse_data()$X)[0, ], numeric()))
  expect_snapshot(error = TRUE, model_glm(as_sparse(sparse_data()$X), c(0, 1)))
  long <- as_sparse(matrix(0, 3, 2))
  long@Dim[1] <- .Machine$integer.max
  expect_snapshot(error = TRUE, model_glm(long, 0:1))
})

test_that("bad dense designs are refused by name", {
  expect_snapshot(error = TRUE, model_glm(matrix(0, 0, 2), numeric()))
  expect_snapshot(error = TRUE, model_glm(matrix(1, 2, 0), 0:1))
  expect_snapshot(error = TRUE, model_glm(data.frame(a = 1:2), 0:1))
  expect_identical(check_design(matrix(1:4, 2)), matrix(c(1, 2, 3, 4), 2))
})

test_that("a sparse matrix whose slots contradict each other is refused, not read", {
  skip_if_not_installed("Matrix")
  good <- as_sparse(sparse_data()$X)
  y <- rep(0:1, 150)
  spoilt <- list(
    function(X) { X@i[3] <- 100000000L; X }, function(X) { X@p[6] <- 1000000000L; X },
    function(X) { X@p <- rev(X@p); X }, function(X) { X@p <- X@p[1:3]; X },
    function(X) { X@x <- X@x[1:10]; X }, function(X) { X@i[1:2] <- X@i[1]; X },
    function(X) { X@Dim <- c(10L, 12L); X })
  for (spoil in spoilt) {
    expect_error(model_glm(spoil(good), y), "`X` must be a valid sparse matrix", class = "elvi_error_argument")
  }
  nothing <- as_sparse(matrix(0, 3, 2))
  expect_identical(check_design(nothing)$start, rep(0L, 4))
})

# ---- parts, threads, wide designs ------------------------------------------------------

with_threads <- function(n, code) {
  old <- options(elvi.threads = n)
  on.exit(options(old))
  force(code)
}

test_that("values and gradients do not depend on the threads that take the parts, nor on who else is at work", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  set.seed(5)
  n <- 5000   # five parts
  X <- matrix(rnorm(n * 4) * (runif(n * 4) < 0.5), n)
  y <- list(binomial = rbinom(n, 1, 0.4), neg_binomial_2 = rpois(n, 3), gaussian = rnorm(n))
  for (family in names(y)) for (X in list(X, as_sparse(X))) {
    model <- model_glm(X, y[[family]], family, dispersion = if (family == "gaussian") NULL else 1)
    x <- matrix(rnorm(40 * model$dim) / 5, model$dim)
    one <- with_threads(1L, target_at(model, x))
    expect_identical(with_threads(2L, target_at(model, x)), one)
    expect_identical(with_threads(3L, target_at(model, x)), one)
    # a single block of draws, whose rows are shared out, and several blocks, which are
    for (block in c(40, 10)) {
      run <- function() {
        set.seed(1)
        elvi(model, schedule = schedule_custom(rep(1e-4, 3), rep(40, 3)), control = elvi_control(
          coordinates = "raw", smoothness = 1e4, block = block, trace_draws = 0))$mu
      }
      expect_identical(with_threads(2L, run()), with_threads(1L, run()))
    }
  }
})

test_that("a wide design with proper priors needs no d x d matrix", {
  skip_on_cran()
  skip_if_not_installed("Matrix")
  X <- wide_sparse(1200, 6000)   # 288 MB of d x d
  y <- rbinom(1200, 1, 0.5)
  gc(reset = TRUE)
  before <- sum(gc()[, 2])
  model <- model_glm(X, y, prior = normal(0, 1))
  mode <- find_mode(model, diagonal = TRUE)
  expect_lt(sum(gc()[, 6]) - before, 120)
  # L by Lanczos is the largest eigenvalue of X'X / 4 + 1, the same as of XX'
  expect_equal(model$smoothness, 1 + max(eigen(as.matrix(Matrix::tcrossprod(X)) / 4, TRUE, TRUE)$values), tolerance = 1e-8)
  expect_lt(max(abs(target_at(model, matrix(mode$x))$gradient)), 1e-3)
  p <- plogis(as.vector(X %*% mode$x))
  expect_equal(mode$hessian, Matrix::colSums(X^2 * (p * (1 - p))) + 1, tolerance = 1e-10)
})

test_that("weights of a gaussian regression are precisions, as glm() has them", {
  w <- rep(c(0.5, 1, 3, 0), 8)
  flat_fit <- function(...) suppressWarnings(elvi(mpg ~ wt, data = mtcars, prior = flat(), prior_intercept = flat(), ...))
  sds <- function(fit) sqrt(diag(vcov(fit)))[1:2]
  fit <- flat_fit(weights = w, prior_aux = flat(), tol = 1e-3)
  twin <- glm(mpg ~ wt, data = mtcars, weights = w)
  expect_equal(coef(fit)[1:2], coef(twin), tolerance = 2e-3)
  expect_equal(sds(fit), suppressWarnings(sds(twin)), tolerance = 0.06)   # student marginals are wider than glm()'s normal
  expect_equal(sigma(fit), suppressWarnings(sigma(twin)), tolerance = 0.06)
  # weights that are all alike change sigma and nothing else, under the default priors too
  set.seed(1)
  plain <- elvi(mpg ~ wt, data = mtcars)
  set.seed(1)
  heavy <- elvi(mpg ~ wt, data = mtcars, weights = rep(100, 32))
  expect_equal(heavy$mu, plain$mu * c(1, 1, 10), tolerance = 1e-4)   # the last is sigma
  expect_equal(sds(heavy), sds(plain), tolerance = 1e-3)
  # as a frequency they are a hundred times the data
  expect_equal(sds(elvi(mpg ~ wt, data = mtcars, frequency = rep(100, 32))), sds(plain) / 10, tolerance = 0.1)
  # and new responses of the data are as precise as they say
  noise <- posterior_predict(heavy, draws = 4000) - posterior_epred(heavy, draws = 4000)
  expect_equal(sd(noise), sigma(glm(mpg ~ wt, data = mtcars)), tolerance = 0.05)
})

test_that("proportions with their trials as weights are cbind() of successes and failures", {
  d <- data.frame(x = c(-1, -0.5, 0, 0.5, 1), s = c(1, 2, 3, 4, 5), n = c(5, 6, 6, 7, 6))
  set.seed(1)
  proportions <- elvi(s / n ~ x, data = d, family = binomial(), weights = n)
  set.seed(1)
  counts <- elvi(cbind(s, n - s) ~ x, data = d, family = binomial())
  expect_equal(coef(proportions), coef(counts))
  expect_equal(log_lik(proportions), log_lik(counts))
  expect_equal(posterior_predict(proportions), posterior_predict(counts))
  expect_equal(fitted(proportions), fitted(counts))
  model <- model_glm(cbind(1, d$x), d$s / d$n, prior = flat(), weights = d$n)
  expect_equal(find_mode(model)$x, unname(coef(glm(s / n ~ x, binomial(), d, weights = n))), tolerance = 1e-5)
  refusal(elvi(s / n ~ x, data = d, family = binomial()), "weights")
  refusal(elvi(s / n ~ x, data = d, family = binomial(), weights = n + 0.5), "s/n")
})

test_that("a row without a trial adds nothing", {
  d <- data.frame(x = c(-1, 0, 1, 2), s = c(1, 2, 0, 3), n = c(3, 4, 0, 5))
  all <- model_glm(cbind(1, d$x), cbind(d$s, d$n - d$s))
  rest <- model_glm(cbind(1, d$x)[-3, ], cbind(d$s, d$n - d$s)[-3, ])
  x <- matrix(c(0.3, -0.2))
  expect_equal(target_at(all, x), target_at(rest, x))
  fit <- elvi(cbind(s, n - s) ~ x, data = d, family = binomial())
  expect_identical(unname(log_lik(fit, draws = 3)[, 3]), numeric(3))
  expect_identical(unname(posterior_predict(fit, draws = 3)[, 3]), integer(3))
  refusal(elvi(cbind(s, n - s) ~ 1, data = d[3, ], family = binomial()), "cbind(s, n - s)")
})

test_that("frequency is read as weights are, and log_lik() counts it", {
  d <- data.frame(y = c(1, 4, 2), x = 1:3, often = c(2, 1, 3))
  fit <- elvi(y ~ x, data = d, family = poisson(), frequency = often, subset = x > 1)
  twin <- elvi(y ~ x, data = d[c(2, 3, 3, 3), ], family = poisson(), prior = normal(0, 2.5 / sd(2:3)))
  expect_equal(unname(log_lik(fit)[1, 2]), unname(3 * dpois(2, posterior_epred(fit)[1, 2], log = TRUE)))
  expect_identical(fit$model$rows$weight, c(1, 3))
  expect_equal(coef(fit)[["x"]], coef(twin)[["x"]], tolerance = 0.05)
  refusal(elvi(y ~ x, data = d, frequency = -often), "frequency")
  refusal(model_glm(matrix(1, 3), d$y, gaussian(), frequency = 1:2), "frequency")
})

test_that("dense matrices of package Matrix are matrices", {
  X <- cbind(1, c(0.5, -1, 2, 0.3))
  dense <- methods::new("dgeMatrix", x = as.double(X), Dim = dim(X))
  expect_equal(model_glm(dense, c(0, 1, 1, 0))$rows$X, X)
})
