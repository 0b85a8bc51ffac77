# workers that find elvi where this process does
new_cluster <- function(n = 2, make = parallel::makePSOCKcluster) {
  cl <- make(n)
  parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths())
  cl
}

# one for the tests that leave it as it was
shared <- new.env()
shared_cluster <- function() {
  if (is.null(shared$cl)) shared$cl <- new_cluster()
  shared$cl
}

# part i of `shards`; its environment travels to the workers, so it is small
loader <- function(data, shards) {
  load <- function(i) data[seq(i, nrow(data), by = shards), , drop = FALSE]
  environment(load) <- list2env(list(data = data, shards = shards), parent = globalenv())
  load
}

pids_of <- function(cl) unlist(parallel::clusterCall(cl, Sys.getpid))

test_that("1, 2, 3 and 7 shards give the fit of memory, whoever has them", {
  skip_on_cran()
  data <- rows_data(200)
  reference <- fit_rows("probit", data)
  cl <- shared_cluster()
  for (shards in c(1, 2, 3, 7)) {
    fit <- fit_rows("probit", rows_cluster(cl, loader(data, shards), shards))
    expect_same_fit(fit, reference)
  }
  alone <- fit_rows("probit", rows_cluster(cl[1], loader(data, 7), 7))
  expect_identical(alone$mu, fit$mu)
  expect_identical(alone$Sigma, fit$Sigma)
  expect_output(print(rows_cluster(cl, loader(data, 7), 7)), "7 shard\\(s\\) on 2 worker")
})

test_that("a shard may be a source itself, be empty, or hold X and y", {
  skip_on_cran()
  data <- rows_data(200)
  cl <- shared_cluster()
  pieces <- loader(data, 6)
  streamed <- rows_cluster(cl, function(i) if (i == 2) pieces(1)[0, ] else
    elvi::rows_files(if (i == 1) 1:3 else 4:6, function(k) pieces(k)), 3)
  expect_same_fit(fit_rows("logit", streamed), fit_rows("logit", data))
  X <- model.matrix(~ z, data)
  matrices <- rows_cluster(cl, function(i) {
    j <- seq(i, 200, by = 2)
    list(X = X[j, ], y = data$count[j], offset = data$o[j])
  }, 2)
  inside <- elvi(model_glm(X, data$count, poisson(), offset = data$o))
  expect_equal(elvi(model_glm(matrices, family = poisson()))$mu, inside$mu, tolerance = 1e-9)
})

test_that("a stochastic fit and its methods run on a cluster", {
  skip_on_cran()
  data <- rows_data(120)
  cl <- shared_cluster()
  source <- rows_cluster(cl, loader(data, 3), 3)
  run <- function(source) fit_rows("robust", source, budget = 300)
  fit <- run(source)
  reference <- run(data)
  expect_same_fit(fit, reference)
  expect_equal(sort(unname(fitted(fit))), sort(unname(fitted(reference))))
  by <- 2
  twice <- function(v) by * v
  expect_same_fit(elvi(count ~ twice(z), data = source, family = poisson()), elvi(count ~ twice(z), data = data, family = poisson()))
})

test_that("steps with some rows draw them on the workers", {
  skip_on_cran()
  data <- rows_data(200)[-c(3, 100), ]
  cl <- shared_cluster()
  X <- model.matrix(~ x + z, data)
  load <- function(i) list(X = X[seq(i, 198, by = 3), ], y = data$count[seq(i, 198, by = 3)])
  environment(load) <- list2env(list(X = X, data = data["count"]), parent = globalenv())
  model <- model_glm(rows_cluster(cl, load, 3), family = poisson())
  inside <- model_glm(X, data$count, poisson())
  x <- matrix(c(0.1, 0.2, 0.3, 0, 0.25, 0.1), 3)
  likelihood <- target_at(inside, x)$gradient - .Call(elvi_r_evaluate, prior_part(inside), x, 1L)$gradient
  draws <- vapply(1:40, function(key) as.double(subsample_gradient(model, x, 60, 1e7 * key)), numeric(6))
  expect_lt(max(abs(rowMeans(draws) - likelihood) / (apply(draws, 1, sd) / sqrt(40))), 4)
  run <- function() withr_seed(2, elvi(model, budget = 60, control = elvi_control(rows_per_step = 60, trace_draws = 0)))
  expect_identical(run()$state$mu, run()$state$mu)
})

test_that("a worker that is killed, at whatever moment, changes nothing", {
  skip_on_cran()
  skip_on_os("windows")
  data <- rows_data(120)
  cl <- new_cluster(4)
  on.exit({
    parallel::stopCluster(cl[4])
    for (node in cl[1:3]) close(node$con)
  })
  pids <- pids_of(cl)
  source <- rows_cluster(cl, loader(data, 5), 5)
  whole <- fit_rows("logit", source)
  for (k in 1:3) {
    system(sprintf("(sleep %g; kill -9 %d) &", c(0.02, 0.11, 0.3)[k], pids[k]))
    while (source$state$alive[k]) {   # until the fit in which it happened
      fit <- withCallingHandlers(fit_rows("logit", source), elvi_warning_worker = function(w) invokeRestart("muffleWarning"))
      expect_identical(fit$mu, whole$mu)
    }
  }
  expect_identical(source$state$alive, c(FALSE, FALSE, FALSE, TRUE))
})

test_that("without workers a fit ends, and names the shards that are lost", {
  skip_on_cran()
  skip_on_os("windows")
  data <- rows_data(60)
  cl <- new_cluster()
  pids <- pids_of(cl)
  source <- rows_cluster(cl, loader(data, 3), 3)
  on.exit(for (node in cl) close(node$con))
  for (pid in pids) tools::pskill(pid, 9)
  e <- expect_error(suppressWarnings(fit_rows("logit", source)), class = "elvi_error_worker", regexp = "shards 1, 2, 3")
  expect_equal(e$shards, 1:3)
})

test_that("a worker that stops answering is given up after `timeout`", {
  skip_on_cran()
  skip_on_os("windows")
  data <- rows_data(60)
  cl <- new_cluster()
  pids <- pids_of(cl)
  on.exit({
    for (pid in pids) tools::pskill(pid, 9)
    for (node in cl) close(node$con)
  })
  source <- rows_cluster(cl, loader(data, 3), 3)
  whole <- fit_rows("probit", source)
  source$timeout <- 4
  tools::pskill(pids[2], tools::SIGSTOP)
  expect_warning(fit <- fit_rows("probit", source), "Worker 2 has not answered in time", class = "elvi_warning_worker")
  expect_identical(fit$mu, whole$mu)
  # it wakes up, and gets its shard back
  tools::pskill(pids[2], tools::SIGCONT)
  expect_true(socketSelect(list(cl[[2]]$con), timeout = 60))
  expect_message(fit <- fit_rows("probit", source), "Worker 2 is back", class = "elvi_message_worker")
  expect_identical(fit$mu, whole$mu)
  expect_true(all(source$state$alive))
  expect_identical(source$state$owner, source$state$home)
  # what it says to a source that has given it up is not taken for the answer to another
  tools::pskill(pids[2], tools::SIGSTOP)
  expect_warning(fit_rows("probit", source), "Worker 2 has not answered in time", class = "elvi_warning_worker")
  tools::pskill(pids[2], tools::SIGCONT)
  other <- rows_cluster(cl, loader(data, 3), 3, timeout = 60)
  expect_no_warning(fit <- fit_rows("probit", other))
  expect_identical(fit$mu, whole$mu)
  # nor are answers that the user has left behind
  for (node in cl) parallel:::sendCall(node, function() 42, list())
  expect_identical(fit_rows("probit", other)$mu, whole$mu)
  expect_identical(unlist(parallel::clusterCall(cl, function() 43)), c(43, 43))
})

test_that("a message that stops half-way is given up as well", {
  skip_on_cran()
  skip_on_os("windows")
  port <- 11000 + Sys.getpid() %% 20000
  server <- serverSocket(port)
  there <- socketConnection(port = port, blocking = TRUE, open = "a+b", timeout = 100)
  here <- socketAccept(server, blocking = TRUE, open = "a+b", timeout = 100)
  on.exit(for (con in list(server, there, here)) close(con))
  node <- structure(list(con = here), class = "SOCKnode")
  message <- serialize(list(type = "VALUE", value = sin(1:1000)), NULL, xdr = FALSE)
  writeBin(message[seq_len(500)], there)
  state <- new_exchange(list(node))
  took <- system.time(expect_null(receive_reply(state, 1L, 1)))[["elapsed"]]
  expect_lt(took, 10)
  expect_equal(socketTimeout(here), 100)
  source <- new_source("cluster", "", NULL, timeout = 1, load = identity, state = state)
  took <- system.time(sent <- send_shards(source, 1L, 1, list(key = 1, args = numeric(4e6)), list()))[["elapsed"]]
  expect_false(sent)
  expect_lt(took, 10)
})

test_that("errors of load() and of its rows name the shard and leave the workers usable", {
  skip_on_cran()
  data <- rows_data(60)
  cl <- shared_cluster()
  good <- loader(data, 3)
  fit <- function(load) elvi(count ~ z, data = rows_cluster(cl, load, 3), family = poisson())
  expect_error(fit(function(i) if (i == 3) stop("disk full") else good(i)), "Shard 3 of 3: load\\(\\) failed: disk full",
               class = "elvi_error_rows")
  expect_error(fit(function(i) if (i == 3) good(i)["count"] else good(i)), "Shard 3 of 3: column `z` is missing", class = "elvi_error_argument")
  expect_error(fit(function(i) if (i == 2) 1:3 else good(i)), "Shard 2 of 3: load\\(\\) must return")
  expect_identical(unlist(parallel::clusterCall(cl, function() 42)), c(42, 42))
  changing <- function(i) transform(good(i), z = z + as.numeric(Sys.time()) %% 1)   # another each time it is loaded
  source <- rows_cluster(cl, changing, 3)
  elvi(count ~ z, data = source, family = poisson())
  model <- elvi(count ~ z, data = source, family = poisson())$model
  parallel::clusterCall(cl, function() rm(list = ls(getNamespace("elvi")$shard_store), envir = getNamespace("elvi")$shard_store))
  expect_error(target_at(model, matrix(0, 2)), "their values differ", class = "elvi_error_rows")
})

test_that("terms that depend on rows of other shards are refused by name", {
  skip_on_cran()
  cl <- shared_cluster()
  data <- years_data()
  parts <- years_parts(data)
  # a data frame each, and sources of their own on each worker
  frames <- function(i) parts[[i]]
  sources <- function(i) elvi::rows_files(if (i == 1) parts[1:2] else c(list(parts[[3]][1, ]), parts[3:4]), function(piece) piece)
  environment(frames) <- environment(sources) <- list2env(list(parts = parts), parent = globalenv())
  # one of the two kinds of shard for each case by default, both in long tests
  either <- function(i, first, second) if (long_tests()) list(first, second) else list(if (i %% 2) first else second)
  for (i in every(seq_along(collective_cases), 7)) {
    for (source in either(i, rows_cluster(cl, frames, 4), rows_cluster(cl, sources, 2))) {
      expect_refused(fit_years(collective_cases[[i]], source), names(collective_cases)[i])
    }
  }
  halves <- function(i) parts[[i]]
  environment(halves) <- list2env(list(parts = list(data[1:200, ], data[201:400, ])), parent = globalenv())
  for (i in every(seq_along(rowwise_cases), 7)) {
    reference <- suppressMessages(fit_years(rowwise_cases[[i]], data))
    for (source in either(i, rows_cluster(cl, frames, 4), rows_cluster(cl, halves, 2))) {
      expect_same_fit(suppressMessages(fit_years(rowwise_cases[[i]], source)), reference)
    }
  }
  lacking <- function(i) elvi::rows_files(1:2, function(k) if (i == 2 && k == 2) parts[[i]]["late"] else parts[[i]])
  environment(lacking) <- environment(frames)
  expect_error(elvi(late ~ x, data = rows_cluster(cl, lacking, 2), family = binomial()), "Shard 2 of 2: Chunk 2: column `x` is missing",
               class = "elvi_error_argument")
})

# Fits again and again, until an interrupt, which may end one with the best point so far, or an error ends it.
fit_until_stopped <- function(source, seconds = 30) {
  end <- proc.time()[["elapsed"]] + seconds
  tryCatch(withCallingHandlers(while (proc.time()[["elapsed"]] < end) fit_rows("logit", source),
                               elvi_warning_interrupted = function(w) stop("interrupted")),
           interrupt = function(e) "interrupted", error = conditionMessage)
}

test_that("an interrupt leaves the workers usable", {
  skip_on_cran()
  skip_on_os("windows")
  data <- rows_data(60)
  cl <- shared_cluster()
  source <- rows_cluster(cl, loader(data, 3), 3)
  whole <- fit_rows("logit", source)
  for (wait in c(0.05, 0.11, 0.23)) {
    system(sprintf("(sleep %g; kill -INT %d) &", wait, Sys.getpid()))
    expect_identical(fit_until_stopped(source), "interrupted")
    expect_identical(unlist(parallel::clusterCall(cl, function() 42)), c(42, 42))
  }
  expect_identical(fit_rows("logit", source)$mu, whole$mu)
})

# A thread that takes every signal that R's own thread does not, as those of BLAS do.
thread_code <- '
#include <pthread.h>
#include <unistd.h>
static void *idle(void *unused) { for (;;) sleep(1000); return unused; }
void start_thread(int *failed) { pthread_t thread; *failed = pthread_create(&thread, NULL, idle, NULL); }
'

compile_thread <- function(dir) {
  old <- setwd(dir)
  on.exit(setwd(old))
  writeLines(thread_code, "thread.c")
  writeLines("PKG_LIBS = -pthread", "Makevars")
  suppressWarnings(system2(file.path(R.home("bin"), "R"), c("CMD", "SHLIB", "thread.c"), stdout = FALSE, stderr = FALSE))
  file.path(dir, paste0("thread", .Platform$dynlib.ext))
}

test_that("interrupts in a process with other threads leave R and the workers whole", {
  skip_on_cran()
  skip_on_os("windows")
  dir <- tempfile("thread")
  dir.create(dir)
  on.exit(unlink(dir, recursive = TRUE))
  library <- normalizePath(compile_thread(dir), "/", mustWork = FALSE)
  skip_if_not(file.exists(library), "no C compiler")
  rounds <- if (long_tests()) 60 else 20
  # 40 coefficients: requests and answers of several pieces
  r <- in_new_r(c(paste("library <-", deparse1(library)), paste("rounds <-", rounds), '
    ready()
    dyn.load(library)
    stopifnot(.C("start_thread", failed = 1L)$failed == 0L)
    cl <- parallel::makePSOCKcluster(2)
    parallel::clusterCall(cl, function(paths) .libPaths(paths), .libPaths())
    X <- matrix(sin(seq_len(300 * 40)^1.3), 300)
    load <- function(i) list(X = X[seq(i, 300, by = 3), ], y = rep(0:1, 50))
    environment(load) <- list2env(list(X = X), parent = globalenv())
    source <- rows_cluster(cl, load, 3, timeout = 60)
    fit <- function() suppressWarnings(elvi(model_glm(source, family = binomial())))
    whole <- fit()
    ends <- answers <- character()
    for (i in seq_len(rounds)) {
      ends[i] <- tryCatch({
        system(sprintf("(sleep %g; kill -INT %d) &", 0.02 + 0.4 * (i * 0.618) %% 0.5, Sys.getpid()))
        withCallingHandlers(repeat elvi(model_glm(source, family = binomial())),
                            elvi_warning_interrupted = function(w) stop("interrupted"))
      }, interrupt = function(e) "interrupted", error = conditionMessage)
      answers[i] <- tryCatch(paste(unlist(parallel::clusterCall(cl, function() 42)), collapse = " "), error = conditionMessage)
    }
    out <- list(ends = ends, answers = answers, same = identical(fit()$mu, whole$mu), alive = source$state$alive)
    parallel::stopCluster(cl)'), during = function(pid) NULL, timeout = 300)$out
  expect_identical(r$ends, rep("interrupted", rounds))
  expect_identical(r$answers, rep("42 42", rounds))
  expect_true(r$same)
  expect_identical(r$alive, c(TRUE, TRUE))
})

test_that("a request or an answer that is broken off at any byte is repaired", {
  skip_on_cran()
  data <- rows_data(60)
  cl <- shared_cluster()
  source <- rows_cluster(cl, loader(data, 3), 3)
  whole <- fit_rows("logit", source)
  state <- source$state
  con <- cl[[1L]]$con
  numbers <- function(n) seq_len(n) + 0.5
  environment(numbers) <- baseenv()
  call <- call_as_bytes(cl[[1L]], numbers, list(1000))
  answered <- function() identical(unlist(parallel::clusterCall(cl, function() 42)), c(42, 42))
  for (lost in c(1, 14, 4096, 8000)) {
    writeBin(call, con)
    readBin(con, "raw", lost)   # as by an interrupt in recvResult()
    state$torn[1L] <- TRUE
    drain(source, 1L, list(number = "none"))
    expect_false(state$torn[1L])
    expect_true(answered())
  }
  for (sent in c(0, 1, length(call) - 1)) {
    state$unsent[[1L]] <- call
    state$sent[1L] <- sent
    writeBin(utils::head(call, sent), con)
    state$torn[1L] <- sent > 0   # the answer is not one of elvi: skip it by a mark
    drain(source, 1L, list(number = "none"))
    expect_length(state$unsent[[1L]], 0)
    expect_true(answered())
  }
  expect_identical(state$alive, c(TRUE, TRUE))
  expect_identical(fit_rows("logit", source)$mu, whole$mu)
})

test_that("a time limit in a pass is no lost worker, and leaves the workers usable", {
  skip_on_cran()
  data <- rows_data(60)
  cl <- shared_cluster()
  source <- rows_cluster(cl, loader(data, 3), 3)
  whole <- fit_rows("logit", source)
  on.exit(setTimeLimit())
  for (limit in c(0.05, 0.11, 0.23)) {
    setTimeLimit(elapsed = limit)
    ended <- fit_until_stopped(source)
    setTimeLimit()
    expect_match(ended, "time limit")
    expect_identical(unlist(parallel::clusterCall(cl, function() 42)), c(42, 42))
  }
  expect_identical(source$state$alive, c(TRUE, TRUE))
  expect_identical(fit_rows("logit", source)$mu, whole$mu)
})

test_that("the workers that all this was done to can be stopped", {
  skip_on_cran()
  expect_no_error(parallel::stopCluster(shared_cluster()))
})

# engines beside PSOCK, and how each can be left by a worker
for (engine in c("fork", "parallelly", "mirai")) test_that(paste("workers of another kind do as well, and may be killed:", engine), {
  skip_on_cran()
  skip_on_os("windows")
  make <- switch(engine, fork = parallel::makeForkCluster,
                 parallelly = { skip_if_not_installed("parallelly"); function(n) parallelly::makeClusterPSOCK(n, autoStop = FALSE) },
                 mirai = { skip_if_not_installed("mirai"); mirai::make_cluster })
  stop_all <- if (engine == "mirai") function(cl) lapply(cl, mirai::stop_cluster) else parallel::stopCluster
  data <- rows_data(120)
  cl <- if (engine == "mirai") list(new_cluster(1, make), new_cluster(1, make)) else new_cluster(2, make)
  pids <- if (engine == "mirai") c(pids_of(cl[[1]]), pids_of(cl[[2]])) else pids_of(cl)
  source <- rows_cluster(cl, loader(data, 3), 3, timeout = 60)
  fit <- fit_rows("logit", source)
  expect_same_fit(fit, fit_rows("logit", data))
  tools::pskill(pids[1], 9)
  expect_warning(again <- fit_rows("logit", source), "Worker 1 is lost", class = "elvi_warning_worker")
  expect_identical(again$mu, fit$mu)
  tools::pskill(pids[2], 9)
  expect_error(suppressWarnings(fit_rows("logit", source)), "All workers are lost", class = "elvi_error_worker")
  suppressWarnings(try(stop_all(cl), silent = TRUE))
})

test_that("what goes over the wire does not grow with the rows", {
  size_of <- function(n) {
    data <- rows_data(n)
    frame <- model.frame(count ~ x + z + g, data[-c(3, n %/% 2), ])
    X <- model.matrix(count ~ x + z + g, frame)
    recipe <- new_recipe("matrices", "poisson")
    rows <- recipe_rows(recipe, list(X = X, y = frame$count))
    likelihood <- likelihood_part(list(likelihood = "poisson", error_df = Inf, dim = 6, dispersion_at = 0))
    args <- list(likelihood = likelihood, law = law_of(base_gaussian(), 6), kind = "symmetric", mu = numeric(6), scale = diag(6))
    length(serialize(answer_of(list(rows = rows, check = check_sums(rows, recipe)), recipe, "exact", args), NULL))
  }
  expect_identical(size_of(400), size_of(100))
  expect_lt(size_of(100), 8 * (36 + 6) + 400)
})

test_that("shards stay where they are loaded, with mirai as a list of clusters", {
  skip_on_cran()
  skip_if_not_installed("mirai")
  data <- rows_data(120)
  file <- tempfile()
  load <- function(i) {
    cat(Sys.getpid(), i, "\n", file = file, append = TRUE)
    data[seq(i, nrow(data), by = 4), ]
  }
  environment(load) <- list2env(list(data = data, file = file), parent = globalenv())
  cl <- list(new_cluster(1, mirai::make_cluster), new_cluster(1, mirai::make_cluster))
  on.exit(lapply(cl, mirai::stop_cluster))
  source <- rows_cluster(cl, load, 4)
  reference <- fit_rows("logit", data)
  for (i in 1:2) expect_same_fit(fit_rows("logit", source), reference)
  expect_length(readLines(file), 4)
  together <- new_cluster(2, mirai::make_cluster)
  on.exit(mirai::stop_cluster(together), add = TRUE)
  expect_message(source <- rows_cluster(together, load, 4), "come to hold all shards", class = "elvi_message_mirai")
  expect_same_fit(fit_rows("logit", source), reference)
})

test_that("a daemon that dials in again gets its shards back", {
  skip_on_cran()
  skip_on_os("windows")
  skip_if_not_installed("mirai")
  data <- rows_data(120)
  commands <- character()   # that start daemons which dial in
  make <- function() {
    commands <<- c(commands, grep("^Rscript", utils::capture.output(cl <- mirai::make_cluster(1, url = "tcp://127.0.0.1:0")), value = TRUE))
    cl
  }
  cl <- list(make(), make())
  on.exit(lapply(cl, mirai::stop_cluster))
  dial_in <- function(k) {
    libraries <- paste0("R_LIBS=", shQuote(paste(.libPaths(), collapse = .Platform$path.sep)))
    system(paste(libraries, file.path(R.home("bin"), commands[k]), "> /dev/null 2>&1 &"))
  }
  connected <- function(k) {
    end <- Sys.time() + 60
    while (!has_daemons(cl[[k]][[1L]]) && Sys.time() < end) Sys.sleep(0.1)
    expect_true(has_daemons(cl[[k]][[1L]]))
  }
  for (k in 1:2) dial_in(k)
  for (k in 1:2) connected(k)
  source <- rows_cluster(cl, loader(data, 4), 4, timeout = 60)
  fit <- fit_rows("logit", source)
  tools::pskill(unlist(parallel::clusterCall(cl[[1]], Sys.getpid)), 9)
  expect_warning(fit_rows("logit", source), "Worker 1 is lost", class = "elvi_warning_worker")
  dial_in(1)
  connected(1)
  expect_message(again <- fit_rows("logit", source), "Worker 1 is back", class = "elvi_message_worker")
  expect_identical(again$mu, fit$mu)
})

test_that("a load() that fails is called again, as often as asked", {
  skip_on_cran()
  data <- rows_data(60)
  file <- tempfile()
  failing <- function(times) {
    unlink(file)
    load <- function(i) {
      if (i == 2) cat("x", file = file, append = TRUE)
      if (i == 2 && file.size(file) <= times) stop("the share is not mounted")
      data[seq(i, nrow(data), by = 3), ]
    }
    environment(load) <- list2env(list(data = data, file = file, times = times), parent = globalenv())
    load
  }
  cl <- new_cluster()
  on.exit(parallel::stopCluster(cl))
  fit <- fit_rows("probit", rows_cluster(cl, failing(2), 3, retries = 2, pause = 0))
  expect_same_fit(fit, fit_rows("probit", data))
  expect_error(fit_rows("probit", rows_cluster(cl, failing(2), 3, retries = 1, pause = 0)),
               "Shard 2 of 3: load\\(\\) failed 2 times: the share",
               class = "elvi_error_worker")
  expect_error(rows_cluster(cl, failing(2), 3, retries = -1), "`retries` must be", class = "elvi_error_argument")
})

test_that("only clusters are clusters", {
  expect_error(rows_cluster(2, identity), "`cl` must be a cluster")
})

test_that("answers are joined in one tree, whoever has which shards, and few branches travel", {
  join <- function(a, b, first) paste0("(", a, b, ")")
  of_worker <- function(mine) Reduce(function(branches, shard) grown(branches, shard, letters[(shard - 1) %% 26 + 1], join), mine, list())
  for (shards in c(1, 2, 5, 8, 13, 300)) {
    whole <- root_answer(of_worker(seq_len(shards)), shards, join)
    for (workers in c(1, 2, 3, 7)) {
      owner <- sort(rep_len(seq_len(workers), shards))
      for (how in list(owner, withr_seed(workers, sample(owner)))) {
        sent <- unname(lapply(split(seq_len(shards), how), of_worker))
        if (identical(how, owner)) expect_lte(max(lengths(sent)), 2 * ceiling(log2(shards + 1)))
        arrived <- Reduce(function(branches, branch) with_branch(branches, branch, join), do.call(c, rev(sent)), list())
        expect_identical(root_answer(arrived, shards, join), whole)
      }
    }
  }
})

test_that("300 shards on two workers give what they give on one, bit by bit", {
  skip_on_cran()
  skip_on_os("windows")
  data <- withr_seed(3, data.frame(x = rnorm(1500)))
  data$y <- withr_seed(4, rbinom(1500, 1, plogis(data$x)))
  fits <- lapply(1:2, function(workers) {
    cl <- parallel::makeForkCluster(workers)
    on.exit(parallel::stopCluster(cl))
    withr_seed(1, elvi(y ~ x, rows_cluster(cl, function(i) data[5 * (i - 1) + 1:5, ], shards = 300), binomial(), correct = FALSE))
  })
  expect_identical(fits[[1]]$mu, fits[[2]]$mu)
  expect_identical(fits[[1]]$Sigma, fits[[2]]$Sigma)
})

test_that("a worker without elvi, or with another version, is named and left out", {
  skip_on_cran()
  request <- list(version = "0.0.0", number = "a 1")
  expect_match(unfit_words(at_worker(request)$unfit, "0.0.0"), "^has elvi [0-9.]+ instead of 0.0.0$")
  data <- rows_data(60)
  cl <- parallel::makePSOCKcluster(2)
  on.exit(parallel::stopCluster(cl))
  call <- function(cl, f, ...) {   # a function of this namespace would load it there
    environment(f) <- globalenv()
    parallel::clusterCall(cl, f, ...)
  }
  call(cl[1], function(paths) .libPaths(paths), .libPaths())
  lacks <- call(cl[2], function() {
    .libPaths(character())
    !requireNamespace("elvi", quietly = TRUE)
  })[[1]]
  skip_if_not(lacks, "elvi is in the site's library")
  load <- function(i) data[seq(i, 60, by = 3), ]
  environment(load) <- list2env(list(data = data), parent = globalenv())
  source <- rows_cluster(cl, load, shards = 3)
  expect_warning(fit <- elvi(real ~ z, source, dispersion = 1), "Worker 2 has no package elvi and is left out", class = "elvi_warning_worker")
  expect_equal(coef(fit), coef(elvi(real ~ z, data, dispersion = 1)), tolerance = 1e-8)
})
