latent_data <- function(n = 400, levels = 9) {
  withr_seed(8, {
    d <- data.frame(x = rnorm(n, 2), z = runif(n), g = sprintf("g%d", sample(levels, n, TRUE)), h = sample(c(1, 2, 10, 20), n, TRUE),
                    w = sample(c(0, 0.5, 1, 2), n, TRUE), o = runif(n),
                    trials = sample(0:3, n, TRUE))
    u <- rnorm(levels)[as.integer(factor(d$g))]
    d$real <- 100 + d$x + u + rnorm(n)
    d$yes <- rbinom(n, 1, plogis(d$x - 2 + u))
    d$count <- rpois(n, exp(0.5 * d$x - 1 + 0.4 * u))
  })
  d$x[7] <- NA
  d$g[n - 1L] <- "late"   # a level of the last chunk
  d
}

# the problem of quoted arguments, from memory and from chunks
both_problems <- function(arguments, data) {
  of <- function(data) eval(as.call(c(quote(elvi_problem), as.list(arguments)[-1L], list(data = data))))
  list(memory = conditional_problem(of(data)), chunks = summed_problem(of(rows_chunked(chunks_of(data)))))
}

test_that("gaussian rows in chunks give the answer of memory, with groups, slopes and smooths", {
  skip_on_cran()
  skip_if_not_installed("mgcv")
  data <- latent_data()
  source <- rows_chunked(chunks_of(data))
  for (arguments in every(expression(list(real ~ s(x, k = 5) + (1 | h:g), dispersion = 2), list(real ~ x + (1 | g)), list(real ~ x + (1 | h)),
                                     list(real ~ z + (x || g) + (1 | h), weights = w, offset = o)), 2)) {
    call <- as.call(c(quote(elvi), as.list(arguments)[-1L]))
    fit <- withr_seed(5, eval(as.call(c(as.list(call), data = quote(source)))))
    reference <- withr_seed(5, eval(as.call(c(as.list(call), data = quote(data)))))
    expect_lt(max(abs(fit$mu - reference$mu) / reference$sd), 1e-8)
    expect_equal(fit$sd, reference$sd, tolerance = 1e-8)
    expect_equal(elbo(fit), elbo(reference), tolerance = 1e-9)
    expect_equal(ranef(fit), ranef(reference), tolerance = 1e-7)
    expect_equal(as.data.frame(VarCorr(fit)), as.data.frame(VarCorr(reference)), tolerance = 1e-7)
    new <- data[1:5, ]
    expect_equal(predict(fit, new, se.fit = TRUE, offset = rep(0, 5)), predict(reference, new, se.fit = TRUE, offset = rep(0, 5)),
                 tolerance = 1e-8)
    expect_equal(fitted(fit), fitted(reference), tolerance = 1e-8, ignore_attr = TRUE)
    drawn <- lapply(list(fit, reference), posterior_linpred, new, draws = 20, seed = 1)
    expect_equal(drawn[[1]], drawn[[2]], tolerance = 1e-6)
  }
})

test_that("conditional optima by passes are those of memory, with their certificates", {
  data <- latent_data()
  cases <- expression(list(yes ~ x + (1 | g), family = binomial()), list(yes ~ x + (1 | h), family = binomial()),
                      list(yes ~ x + (1 | g) + (1 | h), family = binomial("probit"), frequency = trials),
                      list(count ~ z + (x | g), family = poisson(), offset = o, weights = w))
  for (case in every(cases, 3)) {
    problem <- both_problems(case, data)
    memory <- nested_setup(problem$memory, base_gaussian())
    chunks <- nested_setup(problem$chunks, base_gaussian())
    start <- start_theta(memory)
    expect_equal(start_theta(chunks), start, tolerance = 1e-12)
    thetas <- list(start, start + 0.5, start - 1)
    here <- evidence_at(memory, thetas, tol = 1e-16)
    there <- evidence_at(chunks, thetas, tol = 1e-16)
    for (k in seq_along(thetas)) {
      a <- here[[k]]$solution
      b <- there[[k]]$solution
      mean <- original_order(memory$plan, a$mu) - original_order(chunks$plan, b$mu)
      expect_lt(max(abs(mean) / sqrt(original_order(memory$plan, a$variance))), 1e-8)
      expect_equal(original_order(chunks$plan, b$variance), original_order(memory$plan, a$variance), tolerance = 1e-8)
      expect_equal(there[[k]]$value, here[[k]]$value, tolerance = 1e-10)
      expect_equal(there[[k]]$slope, here[[k]]$slope, tolerance = 1e-7)
      expect_lt(b$certificate, 1e-12)
    }
    # far from the optimum the certificate still bounds the gap
    rough <- evidence_at(chunks, thetas[1L], tol = 1e3)[[1L]]$solution
    gap <- rough$objective - here[[1L]]$solution$objective
    expect_gt(gap, 0)
    loose <- evidence_at(chunks, thetas[1L], tol = 1e-6)[[1L]]$solution
    expect_gt(loose$certificate, loose$objective - here[[1L]]$solution$objective - 1e-9)
  }
})

test_that("a fit by passes agrees with memory up to what the quadrature leaves open", {
  skip_on_cran()
  data <- latent_data()
  source <- rows_chunked(chunks_of(data))
  fit <- elvi(yes ~ x + (1 | g), source, binomial())
  reference <- elvi(yes ~ x + (1 | g), data, binomial(), correct = FALSE)
  expect_identical(fit$method, "nested")
  expect_true(fit$converged)
  expect_lt(max(abs(fit$mu - reference$mu) / reference$sd), 0.05)   # memory corrects the weights of its points, too
  expect_lt(max(abs(fit$sd / reference$sd - 1)), 0.03)
  expect_output(print(fit), "corrections need the rows in memory")
  expect_error(pareto_k(fit, draws = 100), class = "elvi_error_rows")
  expect_equal(nobs(fit), nobs(reference), ignore_attr = TRUE)
  expect_length(fitted(fit), nobs(fit))
  expect_equal(dim(log_lik(fit, draws = 10)), c(10L, nobs(fit)))
})

test_that("shards on workers give what chunks give", {
  skip_on_cran()
  skip_on_os("windows")
  data <- latent_data(300)
  pieces <- split(data, (seq_len(nrow(data)) - 1L) %/% 70L)
  cl <- parallel::makeForkCluster(2)
  on.exit(parallel::stopCluster(cl))
  here <- elvi(real ~ x + (x | g), rows_chunked(chunks_of(data)))
  there <- elvi(real ~ x + (x | g), rows_cluster(cl, function(i) pieces[[i]], shards = length(pieces)))
  expect_lt(max(abs(here$mu - there$mu) / here$sd), 1e-10)
  expect_equal(here$sd, there$sd, tolerance = 1e-10)
})

test_that("what cannot be had from chunks is refused by name", {
  data <- latent_data(100)
  source <- rows_chunked(chunks_of(data))
  expect_error(elvi(real ~ ar1(h), source), "ar1\\(h\\)", class = "elvi_error_argument")
  expect_error(elvi(count ~ x + (1 | g), source, neg_binomial_2()), "neg_binomial", class = "elvi_error_argument")
  expect_error(elvi(yes ~ x + (1 | g), source, binomial(), prior = flat()), class = "elvi_error_argument")
  data$only <- "a"
  expect_error(elvi(real ~ x + (1 | only), rows_chunked(chunks_of(data))), "one level", class = "elvi_error_argument")
  data$exact <- 1 + 2 * data$z
  expect_error(elvi(exact ~ z + (1 | g), rows_chunked(chunks_of(data))), class = "elvi_error_no_optimum")
})

test_that("a matrix on a pattern times a vector is that of the matrix", {
  problem <- both_problems(quote(list(yes ~ x + (1 | g) + (1 | h), family = binomial())), latent_data(200))
  setup <- nested_setup(problem$chunks, base_gaussian())
  places <- setup$places
  values <- withr_seed(1, rnorm(length(places$row)))
  M <- matrix(0, setup$plan$dim, setup$plan$dim)
  low <- places$row >= places$column
  M[cbind(places$row, places$column)[low, ]] <- values[low]
  M <- M + t(M) - diag(diag(M))
  x <- withr_seed(2, rnorm(setup$plan$dim))
  expect_equal(.Call(elvi_r_pattern_times, setup$plan$pattern, values, x), drop(M %*% x))
})

test_that("modes and quadrature points are found by a sample: few passes, and the points of all rows", {
  skip_on_cran()
  skip_if_not_installed("reformulas")
  set.seed(4)
  n <- 12000
  data <- data.frame(x = rnorm(n), g = sprintf("g%02d", sample(40, n, TRUE)))
  data$yes <- rbinom(n, 1, plogis(data$x / 2 - 1 + rnorm(40)[as.integer(factor(data$g))]))
  old <- options(elvi.sampled_rows = 4000, elvi.rows_progress = TRUE)
  on.exit(options(old))
  passes <- 0
  fit <- withCallingHandlers(elvi(yes ~ x + (1 | g), rows_files(list(1, 2, 3), function(i) data[seq(i, n, by = 3), ]), binomial()),
                             elvi_message_pass = function(m) {
                               passes <<- passes + 1
                               invokeRestart("muffleMessage")
                             })
  expect_lte(passes, 12)
  expect_lt(max(fit$nested$certificates), 1e-6)
  memory <- elvi(yes ~ x + (1 | g), data, binomial(), correct = FALSE)
  expect_equal(fit$nested$evidence$log, memory$nested$evidence$log, tolerance = 1e-6)
  expect_lt(max(abs(fit$mu - memory$mu) / memory$sd), 0.01)   # memory corrects the weights of its points by draws
})
