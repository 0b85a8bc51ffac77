# a node of a cluster that counts what it is sent and what it sends
counted <- new.env()
registerS3method("sendData", "elvi_test_node", envir = asNamespace("parallel"), method = function(node, data) {
  if (isTRUE(grepl("draws", data$data$args[[1L]]$task))) counted$sent <- c(counted$sent, length(serialize(data, NULL)))
  utils::getFromNamespace("sendData", "parallel")(node$inner, data)
})
registerS3method("recvData", "elvi_test_node", envir = asNamespace("parallel"), method = function(node) {
  out <- utils::getFromNamespace("recvData", "parallel")(node$inner)
  counted$received <- c(counted$received, length(serialize(out, NULL)))
  out
})

counting_cluster <- function(cl) {
  structure(lapply(cl, function(node) structure(list(inner = node), class = "elvi_test_node")), class = c("SOCKcluster", "cluster"))
}

test_that("mu and a scale go out and as much comes back, whatever the batch", {
  skip_on_cran()
  data <- rows_data(200)[-c(3, 100), ]
  X <- model.matrix(~ x + z + g, data)
  d <- ncol(X)
  cl <- parallel::makePSOCKcluster(1)
  on.exit(parallel::stopCluster(cl))
  parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths())
  load <- function(i) list(X = X[seq(i, 198, by = 2), ], y = data$count[seq(i, 198, by = 2)])
  environment(load) <- list2env(list(X = X, data = data["count"]), parent = globalenv())
  inside <- model_glm(X, data$count, poisson())
  outside <- model_glm(rows_cluster(counting_cluster(cl), load, 2), family = poisson())
  run <- function(model, batch, ...) {
    withr_seed(2, elvi(model, schedule = schedule_custom(0.2, batch, iterations = 5), start = elvi_optimum(inside)[c("mu", "Sigma")],
                       control = elvi_control(trace_draws = 0, ...)))
  }
  for (rows_per_step in list(NULL, 60)) {
    largest <- function(batch) {
      counted$sent <- counted$received <- NULL
      fit <- run(outside, batch, rows_per_step = rows_per_step)
      if (is.null(rows_per_step)) expect_equal(fit$state$mu, run(inside, batch)$state$mu, tolerance = 1e-9)
      expect_length(counted$sent, 5)
      c(max(counted$sent), max(tail(counted$received, 5)))
    }
    few <- largest(10)
    expect_identical(largest(3000), few)
    expect_lt(few[1], 8 * (d^2 + d) + 2500)         # and a recipe's name, the law, the likelihood
    expect_lt(few[2], 2 * (8 * (d^2 + d) + 600))    # of two shards
  }
})

test_that("sums over draws are those of the draws, in pieces of any length", {
  law <- law_of(base_laplace(), 3)
  draws <- list(mu = matrix(c(0.1, 0.2, 0.3)), spread = matrix(c(1, 0.2, 0.3, 0, 2, 0.1, 0, 0, 3), 3), iteration = 4, first = 7,
                n = 1100, values = FALSE, law = law, seed = c(5, 9))
  z <- .Call(elvi_r_draws, law, draws$seed, 4, 7, 1100L)
  x <- as.double(draws$mu) + draws$spread %*% z
  gradient <- function(x) sin(x) + x^2
  expect_equal(sums_over_draws(draws, gradient), c(rowSums(gradient(x)), tcrossprod(gradient(x), z)))
  expect_equal(values_at_draws(draws, function(x) colSums(x^3)), colSums(x^3))
  draws$spread <- c(1, 2, 3)
  x <- as.double(draws$mu) + 1:3 * z
  expect_equal(sums_over_draws(draws, gradient), c(rowSums(gradient(x)), rowSums(gradient(x) * z)))
})
