# ---- tools -----------------------------------------------------------------------------

new_file <- function(env = parent.frame()) {
  file <- tempfile("elvi-checkpoint-", fileext = ".elvi")
  do.call(on.exit, list(bquote(unlink(.(file))), add = TRUE), envir = env)
  file
}

# a fit without what depends on the clock, the call and the file
checkpoint_bare <- function(fit) {
  fit <- engine_bare(fit)
  fit$control[c("checkpoint", "checkpoint_every", "iterations")] <- NULL
  fit
}

expect_same_run <- function(a, b, label = NULL) {
  expect_identical(checkpoint_bare(a), checkpoint_bare(b), label = label)
}

hush <- function(code) suppressMessages(code, classes = c("elvi_message_checkpoint", "elvi_message_start_kept"))

saved_iterations <- function(file) read_checkpoint(file)$progress$state$k

# Runs `go(file)` for a target that copies the checkpoint when it is evaluated: what a
# kill at that moment would leave. Returns the result and the distinct copies.
snapshots <- function(go, target) {
  file <- tempfile("elvi-checkpoint-")
  copies <- character()
  target$spy <- function() {
    if (!file.exists(file)) return()
    copies <<- c(copies, copy <- tempfile("elvi-copy-"))
    file.copy(file, copy)
  }
  fit <- hush(go(file))
  target$spy <- NULL
  copies <- c(copies, file)
  distinct <- !duplicated(tools::md5sum(copies))
  unlink(copies[!distinct])
  list(fit = fit, copies = copies[distinct])
}

# (x^4 + x^2) in three dimensions, as functions
spied_target <- function(scale = 1) {
  target <- new.env()
  spied <- function(f) function(x) {
    if (!is.null(target$spy)) target$spy()
    f(x)
  }
  target$model <- model_density(spied(function(x) scale * colSums(x^4 + x^2)),
                                spied(function(x) scale * (4 * x^3 + 2 * x)), dim = 3, smoothness = 20 * scale)
  target
}

# ---- going on ---------------------------------------------------------------------------

test_that("a checkpoint changes nothing, and the same call returns the finished fit", {
  skip_on_cran()
  model <- engine_logistic()
  file <- new_file()
  go <- function(seed, ...) {
    set.seed(seed)
    elvi(model, base_laplace(), schedule_growing(3000, batch = 2), control = raw_control(...))
  }
  plain <- go(1)
  expect_silent(kept <- go(1, checkpoint = file, checkpoint_every = 1e-4))
  expect_same_run(plain, kept)
  expect_message(again <- go(99, checkpoint = file), "after \\d+ of", class = "elvi_message_checkpoint")
  expect_same_run(plain, again)   # the stored draws, not those of the new seed
  # R's generator moves on as it does with a new run
  go(5)
  after <- runif(1)
  hush(go(5, checkpoint = file))
  expect_identical(runif(1), after)
})

test_that("from whatever moment, the run that goes on is identical to the whole", {
  skip_on_cran()
  target <- spied_target()
  runs <- list(
    custom = function(file, every = 1e-9) elvi(target$model, schedule = schedule_custom(0.02, 7, iterations = 40),
                                               control = raw_control(checkpoint = file, checkpoint_every = every)),
    tuned = function(file, every = 1e-9) elvi(target$model, base_laplace(), budget = 600,
                                              control = elvi_control(checkpoint = file, checkpoint_every = every)),
    tolerance = function(file, every = 1e-9) elvi(target$model, tol = 0.002,
                                                  control = elvi_control(checkpoint = file, checkpoint_every = every)))
  for (name in names(runs)) {
    set.seed(2)
    whole <- runs[[name]](NULL)
    set.seed(2)
    seen <- snapshots(runs[[name]], target)
    expect_same_run(whole, seen$fit, label = name)
    expect_gt(length(seen$copies), 20)
    last <- length(seen$copies)   # those before it: all iterations done, and no verdict yet
    for (copy in seen$copies[unique(c(round(seq(1, last, length.out = if (long_tests()) 25 else 3)), last - 1:2))]) {
      k <- saved_iterations(copy)
      # how often it writes is no part of a run; what writes all the time is above
      expect_message(resumed <- runs[[name]](copy, every = 60), class = "elvi_message_checkpoint")
      expect_same_run(whole, resumed, label = paste(name, k))
    }
    unlink(seen$copies)
  }
})

test_that("a run that is tried again with shorter steps goes on in the try it was in", {
  skip_on_cran()
  # far from its mode this target is much steeper than the Hessian at the mode says
  target <- new.env()
  target$model <- model_density(function(x) colSums(x^2 / 2 + 30 * x^4), function(x) {
    if (!is.null(target$spy)) target$spy()
    x + 120 * x^3
  }, dim = 2, convex = TRUE)
  # with a longest step it would not have to be tried again
  free <- function(...) utils::modifyList(guarded(...), list(longest = Inf))
  guarded <- plan_tuned
  go <- function(file, every = 1e-9) with_swapped("plan_tuned", free, {
    set.seed(3)
    elvi(target$model, budget = 400, control = elvi_control(estimator = "path", checkpoint = file, checkpoint_every = every))
  })
  whole <- hush(go(NULL))
  expect_gt(whole$plan$shorten, 1)
  seen <- snapshots(go, target)
  shortened <- vapply(seen$copies, function(copy) read_checkpoint(copy)$progress$plan$shorten, 0)
  expect_true(all(c(1, whole$plan$shorten) %in% shortened))
  # the first and the last of each try, and some between
  edges <- c(which(!duplicated(shortened)), which(!duplicated(shortened, fromLast = TRUE)))
  between <- round(seq(1, length(shortened), length.out = if (long_tests()) length(shortened) else 3))
  for (copy in seen$copies[unique(c(edges, between))]) expect_same_run(whole, hush(go(copy, every = 60)))
  unlink(seen$copies)
})

test_that("a regression from a formula goes on too", {
  d <- withr_seed(4, data.frame(x = rnorm(80), y = rnbinom(80, size = 2, mu = 3)))
  file <- new_file()
  formula <- y ~ x   # one environment for all
  go <- function(control) {
    set.seed(5)
    elvi(formula, data = d, family = neg_binomial_2(), tol = 0.005, control = control)
  }
  whole <- go(elvi_control())
  partial <- go(elvi_control(checkpoint = file, iterations = 13))
  expect_identical(partial$status, "paused")
  resumed <- hush(go(elvi_control(checkpoint = file)))
  expect_s3_class(resumed, "elvi_glm")
  expect_same_run(whole, resumed)
  # method = "exact" has nothing to keep
  expect_error(elvi(dist ~ speed, data = cars, dispersion = 200, control = elvi_control(checkpoint = file)),
               "`checkpoint`", class = "elvi_error_argument")
})

test_that("elvi() on a fit goes on from the fit and keeps writing", {
  skip_on_cran()
  model <- engine_logistic()
  file <- new_file()
  go <- function(budget, ...) {
    set.seed(6)
    elvi(model, base_laplace(), schedule_growing(budget, batch = 2), control = raw_control(average = "last", ...))
  }
  fit <- go(500, checkpoint = file)
  longer <- elvi(fit, budget = 2000)
  expect_equal(saved_iterations(file), longer$state$k)
  expect_same_run(go(2000), longer)
  expect_same_run(longer, hush(go(2000, checkpoint = file)))
  # but never over the file of another run
  set.seed(7)
  other <- elvi(model, base_laplace(), schedule_growing(500, batch = 2), control = raw_control())
  other$control$checkpoint <- file
  before <- tools::md5sum(file)
  e <- expect_error(elvi(other, budget = 900), class = "elvi_error_checkpoint")
  expect_identical(e$differs, "seed")
  expect_identical(tools::md5sum(file), before)
})

# ---- the end of a session --------------------------------------------------------------------

slow_run <- '
  X <- matrix(sin(seq_len(200 * 20)^1.3), 200)
  go <- function(file, every = 0.004) {
    set.seed(8)
    elvi(model_glm(X, rep(0:1, 100)), base_laplace(), schedule_growing(3e4, batch = 5),
         control = elvi_control("raw", checkpoint = file, checkpoint_every = every, trace_draws = 20))
  }'

# Waits until a run has saved more than so many iterations.
wait_for_entry <- function(file, beyond) {
  seen <- NULL
  is_new <- function() {
    before <- seen
    seen <<- file.mtime(file)
    !is.na(seen) && !identical(seen, before)   # a file is read once only
  }
  wait_until(is_new() && saved_iterations(file) > beyond)
}

skip_without_kill <- function() {
  skip_on_cran()
  skip_on_os("windows")
}

test_that("kill -9 at any moment leaves a whole checkpoint, and the end is identical", {
  skip_without_kill()
  eval(parse(text = slow_run))
  file <- new_file()
  whole <- go(NULL)
  # after an entry of its own each, so that no round is in vain however slow the machine is
  withr_seed(9, waits <- runif(if (long_tests()) 60 else 8, 0, 0.02))
  reached <- 0
  resumed <- 0
  for (wait in waits) {
    resumed <- resumed + (reached > 0)
    child <- parallel::mcparallel(hush(go(file)), silent = TRUE)
    expect_true(wait_for_entry(file, reached))
    Sys.sleep(wait)
    tools::pskill(child$pid, tools::SIGKILL)
    suppressWarnings(parallel::mccollect(child))
    k <- saved_iterations(file)
    expect_gte(k, reached)
    reached <- k
    if (k < whole$plan$iterations) next
    expect_same_run(whole, hush(go(file)))
    file <- new_file()   # a fast machine begins again
    reached <- 0
  }
  expect_gt(resumed, length(waits) / 3)
  expect_same_run(whole, hush(go(file)))
  # nothing is left behind but the checkpoint itself
  expect_identical(abandoned_files(file), character())
})

test_that("another session goes on where one was killed", {
  skip_without_kill()
  eval(parse(text = slow_run))
  whole <- go(NULL)
  file <- new_file()
  call <- sprintf("suppressMessages(go(%s))", deparse1(normalizePath(file, "/", mustWork = FALSE)))
  for (reached in if (long_tests()) c(0, 5) else 2) {
    in_new_r(c(slow_run, "ready()", "out <-", call), killed = TRUE, during = function(pid) {
      expect_true(wait_for_entry(file, reached))
      tools::pskill(pid, tools::SIGKILL)
    })
  }
  expect_gt(saved_iterations(file), 0)
  expect_same_run(whole, in_new_r(c(slow_run, "out <-", call))$out)
})

test_that("SIGINT leaves the interrupted state in the checkpoint", {
  skip_without_kill()
  file <- new_file()
  calls <- -Inf
  model <- model_density(function(x) colSums(x^2), function(x) {
    calls <<- calls + 1
    if (calls == 20) {
      tools::pskill(Sys.getpid(), tools::SIGINT)
      Sys.sleep(5)
    }
    2 * x
  }, dim = 2, smoothness = 2)
  go <- function(file) {
    set.seed(10)
    elvi(model, schedule = schedule_custom(0.1, 3, iterations = 60), control = raw_control(checkpoint = file))
  }
  calls <- 0
  expect_warning(fit <- go(file), class = "elvi_warning_interrupted")
  expect_equal(fit$state$k, saved_iterations(file))
  expect_gt(fit$state$k, 10)
  expect_same_run(go(NULL), hush(go(file)))
})

# ---- what is refused ------------------------------------------------------------------------------

refused_checkpoint <- function(code, differs = NULL) {
  e <- expect_error(code, class = "elvi_error_checkpoint")
  expect_s3_class(e, "elvi_error_argument")
  expect_identical(e$argument, "checkpoint")
  expect_identical(e$differs, differs)
  gsub("(/|[A-Z]:)[^ ]*/elvi-checkpoint-[^ .]*", "<file>", conditionMessage(e))
}

test_that("a checkpoint of anything else is refused, and what differs is named", {
  skip_on_cran()
  file <- new_file()
  X <- matrix(sin(seq_len(120)^1.3), 40)
  y <- rep(0:1, 20)
  go <- function(model = model_glm(X, y), base = base_laplace(), schedule = schedule_growing(500, batch = 2),
                 start = NULL, tol = NULL, ...) {
    suppressWarnings(elvi(model, base, schedule, start = start, tol = tol,
                          control = elvi_control("raw", ..., checkpoint = file)),
                     classes = "elvi_warning_not_converged")
  }
  go()
  untouched <- tools::md5sum(file)
  other_X <- X
  other_X[17, 2] <- other_X[17, 2] + 1e-9
  messages <- c(
    refused_checkpoint(go(model_glm(other_X, y)), "model$rows$X"),
    refused_checkpoint(go(model_glm(X[, c(2, 1, 3)], y)), "model$rows$X"),
    refused_checkpoint(go(model_glm(X, rev(y))), "model$rows$y"),
    refused_checkpoint(go(model_glm(X, y, prior = normal(0, 3))), "model$prior$scale"),
    refused_checkpoint(go(model_glm(X, y, prior = student_t(4, 0, 1))), "model$prior$name"),
    refused_checkpoint(go(model_glm(X, y, binomial("probit"))), "model$likelihood"),
    refused_checkpoint(go(engine_quadratic(3)), "model$kind"),
    refused_checkpoint(go(base = base_gaussian()), "base$kind"),
    refused_checkpoint(go(base = base_power(3)), "base$kind"),
    refused_checkpoint(go(schedule = schedule_growing(600, batch = 2)), "schedule$budget"),
    refused_checkpoint(go(schedule = schedule_growing(500, batch = 3)), "schedule$batch"),
    refused_checkpoint(go(schedule = schedule_custom(0.1, 2, iterations = 9)), "schedule$kind"),
    refused_checkpoint(go(start = list(mu = c(0.1, 0, 0))), "start"),
    refused_checkpoint(go(tol = 0.5), "tol"),
    refused_checkpoint(go(scale = "diagonal"), "control$scale"),
    refused_checkpoint(go(average = "last"), "control$average"),
    refused_checkpoint(go(trace_draws = 7), "control$trace_draws"))
  expect_snapshot(writeLines(messages))
  expect_identical(tools::md5sum(file), untouched)
  # a setting spelled out is the same as one left to elvi; where to stop may change
  expect_message(go(estimator = "control", average = "tail", iterations = 3), class = "elvi_message_checkpoint")
})

test_that("a target given as functions is known by its values", {
  file <- new_file()
  quartic <- function(by) model_density(function(x) by * colSums(x^4 + x^2), function(x) by * (4 * x^3 + 2 * x),
                                        dim = 3, smoothness = 20)
  go <- function(model) {
    elvi(model, schedule = schedule_custom(0.02, 7, iterations = 5), control = raw_control(checkpoint = file))
  }
  go(quartic(1))
  # the same functions, made anew: other environments, same values
  expect_message(go(quartic(1)), class = "elvi_message_checkpoint")
  expect_match(refused_checkpoint(go(quartic(1 + 1e-8)), "model"), "other values")
  expect_match(refused_checkpoint(go(model_density(function(x) colSums(x^4 + x^2), function(x) 4 * x^3 + 2.001 * x,
                                                   dim = 3, smoothness = 20)), "model"), "other values")
})

test_that("a checkpoint of another version is refused", {
  file <- new_file()
  go <- function() elvi(engine_quadratic(2), budget = 100, control = elvi_control(checkpoint = file))
  go()
  stored <- read_checkpoint(file)
  stored$fingerprint$exact$`version of elvi` <- "0.0.9"
  write_checkpoint(stored, file)
  expect_match(refused_checkpoint(go(), "version of elvi"), "\"0.0.9\", now ")
})

test_that("a file that is no checkpoint, or a damaged one, is refused and left alone", {
  skip_on_cran()
  file <- new_file()
  go <- function() elvi(engine_quadratic(2), budget = 100, control = elvi_control(checkpoint = file))
  go()
  good <- readBin(file, "raw", file.size(file))
  n <- length(good)
  flipped <- function(i) {
    good[i] <- xor(good[i], as.raw(16))
    good
  }
  bad <- c(list(raw(0), charToRaw("my thesis"), serialize(mtcars, NULL), good[-1], good[-n], c(good, as.raw(0))),
           lapply(c(1, 2, n %/% 2, n - 100), function(m) good[seq_len(m)]),
           lapply(round(seq(1, n, length.out = if (long_tests()) 60 else 15)), flipped))
  for (bytes in bad) {
    writeBin(bytes, file)
    message <- refused_checkpoint(go())
    expect_match(message, "another kind of file, or a damaged one")
    expect_identical(readBin(file, "raw", file.size(file)), bytes)
  }
  writeBin(good, file)
  expect_message(go(), class = "elvi_message_checkpoint")
})

test_that("a place that cannot be written to is found before the run", {
  calls <- 0
  model <- model_density(function(x) colSums(x^2), function(x) {
    calls <<- calls + 1
    2 * x
  }, dim = 2, smoothness = 2)
  calls <- 0
  go <- function(file) {
    elvi(model, schedule = schedule_custom(0.1, 1, iterations = 1000), control = raw_control(checkpoint = file))
  }
  plain_file <- new_file()
  writeLines("mine", plain_file)
  messages <- c(refused_checkpoint(go("/nowhere/to/be/found.rds")), refused_checkpoint(go(file.path(plain_file, "x"))),
                refused_checkpoint(go(tempdir())))
  expect_match(messages, "directory")
  expect_lt(calls, 10)
  skip_on_os("windows")
  skip_if(Sys.info()[["effective_user"]] == "root" && !dir.exists("/proc/self"))
  sealed <- if (dir.exists("/proc/self")) "/proc/self" else {
    dir.create(sealed <- tempfile(), mode = "0500")
    sealed
  }
  expect_match(refused_checkpoint(go(file.path(sealed, "x"))), "can be written")
  expect_lt(calls, 10)
})

test_that("a state that cannot be written later on is a warning, once, and the run goes on", {
  folder <- tempfile("elvi-checkpoint-")
  dir.create(folder)
  file <- file.path(folder, "run")
  calls <- -Inf
  model <- model_density(function(x) colSums(x^2), function(x) {
    calls <<- calls + 1
    if (calls == 5) unlink(folder, recursive = TRUE)
    2 * x
  }, dim = 2, smoothness = 2)
  go <- function(...) {
    set.seed(11)
    elvi(model, schedule = schedule_custom(0.1, 1, iterations = 50), control = raw_control(...))
  }
  whole <- go()
  calls <- 0
  warnings <- character()
  fit <- withCallingHandlers(go(checkpoint = file, checkpoint_every = 1e-9), elvi_warning_checkpoint = function(w) {
    warnings <<- c(warnings, conditionMessage(w))
    invokeRestart("muffleWarning")
  })
  expect_length(warnings, 1L)
  expect_match(warnings, "The run continues")
  expect_same_run(whole, fit)
})

test_that("arguments are refused by name", {
  messages <- c(
    refusal(elvi_control(checkpoint = 1), "checkpoint"),
    refusal(elvi_control(checkpoint = ""), "checkpoint"),
    refusal(elvi_control(checkpoint = c("a", "b")), "checkpoint"),
    refusal(elvi_control(checkpoint = NA_character_), "checkpoint"),
    refusal(elvi_control(checkpoint_every = 0), "checkpoint_every"),
    refusal(elvi_control(checkpoint_every = "1 minute"), "checkpoint_every"))
  expect_snapshot(writeLines(messages))
})

# ---- fingerprints ----------------------------------------------------------------------------------

test_that("a digest sees every entry, its place and what is not finite", {
  set.seed(12)
  x <- rnorm(50)
  expect_identical(digest(x), digest_numbers(x))
  expect_equal(digest_numbers(x, piece = 7), digest(x), tolerance = 1e-14)
  expect_equal(digest(x), c(50, sum(x * ((1:50 * 0.6180339887498949) %% 1 + 0.5)), 0), tolerance = 1e-14)
  for (i in c(1, 23, 50)) {
    y <- x
    y[i] <- y[i] * (1 + 1e-12)
    expect_false(identical(digest(y), digest(x)))
  }
  expect_false(identical(digest(rev(x)), digest(x)))
  expect_false(identical(digest(matrix(x, 5)), digest(matrix(x, 10))))
  odd <- lapply(list(NA, NaN, Inf, -Inf, 0), function(v) digest(c(1, v, 2)))
  expect_identical(anyDuplicated(odd), 0L)
  expect_false(identical(digest(c(Inf, 3)), digest(c(Inf, 4))))
  # lists without names too
  difference <- function(a, b) first_difference(digest(a), digest(b))$what
  expect_null(difference(list(a = list(1, x)), list(a = list(1, x))))
  expect_identical(difference(list(a = list(1, x)), list(a = list(1, rev(x)))), "a")
  expect_identical(difference(list(a = list(b = 1, c = 2)), list(a = list(b = 1))), "a$c")
  # functions and environments have no say: their addresses change
  expect_identical(digest(list(f = function(x) x, e = globalenv())), digest(list(f = function(y) y, e = new.env())))
})

# ---- mpsgd() ----------------------------------------------------------------------------------------

mpsgd_problem <- function(shift = 0, upper = Inf) {
  X <- matrix(sin(seq_len(200)^1.3), 50)
  y <- drop(X %*% c(1, -1, 0.5, 2)) + shift
  count <- new.env()
  count$calls <- 0
  go <- function(file = NULL, seed = 13, start = c(0, 0, 0, 0), step = 0.2, every = 1e-9, iterations = Inf, ...) {
    set.seed(seed)
    mpsgd(start, function(theta, n) {
      count$calls <- count$calls + 1
      if (!is.null(count$spy)) count$spy()
      rows <- sample(50, n, replace = TRUE)
      crossprod(X[rows, , drop = FALSE], X[rows, , drop = FALSE] %*% theta - y[rows]) / n
    }, project = project_box(0, upper), schedule = schedule_growing(800, step = step, batch = 2), average = "tail",
    objective = function(theta) mean((X %*% theta - y)^2), checkpoint = file, checkpoint_every = every,
    iterations = iterations, ...)
  }
  list(go = go, count = count)
}

expect_same_mpsgd <- function(a, b) {
  parts <- c("theta", "last", "trace", "plan", "status", "state")
  expect_identical(a[parts], b[parts])
  expect_identical(names(a), names(b))
}

test_that("mpsgd() goes on from whatever moment, with R's generator as it was", {
  skip_on_cran()
  problem <- mpsgd_problem()
  whole <- problem$go()
  after <- runif(1)
  seen <- snapshots(problem$go, problem$count)
  expect_same_mpsgd(whole, seen$fit)
  expect_gt(length(seen$copies), 10)
  for (copy in every(seen$copies, 4)) {
    expect_message(resumed <- mpsgd_problem()$go(copy, seed = 99), class = "elvi_message_checkpoint")
    expect_same_mpsgd(whole, resumed)
    expect_identical(runif(1), after)
  }
  unlink(seen$copies)
  # paused, and in the middle of an iteration, which has drawn numbers by then
  file <- new_file()
  problem$go(file, iterations = 7)
  problem$count$calls <- 0
  problem$count$spy <- function() {
    if (problem$count$calls == 9) {
      runif(3)
      signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
    }
  }
  expect_warning(hush(problem$go(file)), class = "elvi_warning_interrupted")
  problem$count$spy <- NULL
  expect_gt(saved_iterations(file), 7)
  expect_lt(saved_iterations(file), whole$state$k)
  expect_same_mpsgd(whole, hush(problem$go(file, seed = 99)))
})

test_that("mpsgd() refuses the checkpoint of another problem", {
  file <- new_file()
  mpsgd_problem()$go(file)
  refused_checkpoint(mpsgd_problem(shift = 1e-6)$go(file), "gradient")
  refused_checkpoint(mpsgd_problem(upper = 1)$go(file), "gradient")
  refused_checkpoint(mpsgd_problem()$go(file, step = 0.1), "schedule$step")
  refused_checkpoint(mpsgd_problem()$go(file, start = c(0, 0, 0, 1)), "start")
  refused_checkpoint(mpsgd_problem()$go(file, tail = 0.3), "tail")
  refused_checkpoint(mpsgd_problem()$go(file, lambda = 0.5), "lambda")
  refused_checkpoint(elvi(engine_quadratic(2), budget = 100, control = elvi_control(checkpoint = file)), "algorithm")
  refused_checkpoint(mpsgd_problem()$go("/nowhere/run"))
  expect_error(mpsgd_problem()$go(7), "`checkpoint`", class = "elvi_error_argument")
})

# ---- what a file from elsewhere could do --------------------------------------------------

test_that("a checkpoint holds numbers and texts only: anything that could run is refused unseen", {
  skip_on_cran()
  file <- new_file()
  go <- function() elvi(engine_quadratic(2), budget = 100, control = elvi_control(checkpoint = file))
  go()
  sound <- read_checkpoint(file)
  expect_true(is_plain(sound))
  ran <- FALSE
  trap <- new.env()
  delayedAssign("k", ran <<- TRUE, assign.env = trap)
  for (bad in list(trap, function(x) x, quote(stop()), structure(1, tricky = trap), list(list(trap)))) {
    crafted <- sound
    crafted$progress$state$alpha <- bad
    write_checkpoint(crafted, file)
    expect_match(refused_checkpoint(go()), "another kind of file, or a damaged one")
  }
  expect_false(ran)
})

# what R's own serialize() does not write, or not on the outside
test_that("bytes that are no vectors are refused before they are unserialised", {
  header <- serialize(NULL, NULL, version = 2)[1:14]
  body <- function(x) serialize(x, NULL, version = 2)[-(1:14)]
  int <- function(...) writeBin(as.integer(c(...)), raw(), endian = "big")
  ran <- FALSE
  assign("elvi_trap", function() ran <<- TRUE, globalenv())
  on.exit(rm("elvi_trap", envir = globalenv()), add = TRUE)
  promise <- c(int(0x405, 0xfd, 0xfc), body(quote(elvi_trap())))
  unloaded <- setdiff(c("splines", "stats4", "tcltk"), loadedNamespaces())[1L]
  namespace <- c(int(0xf9, 0, 1, 9, nchar(unloaded)), charToRaw(unloaded))
  nested <- c(rep(int(19, 1), 1e5), body(1))
  bad <- list(promise = promise, `a promise in a list` = c(int(19, 1), promise), namespace = namespace, `too deep` = nested,
              call = body(quote(stop())), environment = body(new.env()), `function` = body(function(x) x),
              `negative length` = int(14, -5), `too long` = int(14, 1e9), `a list too long` = int(19, 1e9),
              `no length` = int(14), `more than one` = c(body(1), body(2)), `unknown type` = int(99),
              `an attribute of attributes` = c(int(512 + 14, 0), int(512 + 2), body(NULL)))
  file <- new_file()
  for (what in names(bad)) {
    bytes <- c(header, bad[[what]])
    expect_false(plainly_serialised(bytes), label = what)
    writeBin(c(bytes, seal(bytes)), file)
    expect_match(refused_checkpoint(read_checkpoint(file)), "another kind of file, or a damaged one", label = what)
  }
  expect_false(ran)
  expect_false(unloaded %in% loadedNamespaces())
  expect_false(plainly_serialised(serialize(1:10, NULL, version = 3)))
  expect_false(plainly_serialised(raw()))
})

test_that("bytes of vectors, with what attributes they have, are read", {
  good <- list(NULL, 1:10, c(a = 1, b = NA), list(x = "\u00e9", y = list(TRUE, raw(3), NA_character_)), matrix(1:4, 2),
               data.frame(x = 1:2, y = c("u", "v")), structure(list(1), class = "some"), list(a = 1, a = list(a = 2)))
  for (x in good) expect_true(plainly_serialised(serialize(x, NULL, version = 2)))
})

test_that("a checkpoint whose numbers have other types or lengths is refused before C sees it", {
  skip_on_cran()
  file <- new_file()
  go <- function() elvi(engine_quadratic(2), schedule = schedule_custom(rep(0.1, 20), rep(2, 20)),
                        control = elvi_control(checkpoint = file, coordinates = "raw"))
  go()
  sound <- read_checkpoint(file)
  craft <- list(plan = list(step_table = "a", batch_table = 1, step0 = character(), seed = 1),
                state = list(mu = 1, scale = 1:4, average_mu = numeric(3), k = NULL))
  for (part in names(craft)) for (field in names(craft[[part]])) {
    crafted <- sound
    crafted$progress[[part]][field] <- craft[[part]][field]
    write_checkpoint(crafted, file)
    expect_match(refused_checkpoint(go()), "other types or lengths", info = field)
  }
})

test_that("a checkpoint with values that its run cannot have is refused, and does not run for ever", {
  skip_on_cran()
  file <- new_file()
  refused <- function(go, craft) {
    sound <- read_checkpoint(file)
    for (part in names(craft)) for (field in names(craft[[part]])) {
      crafted <- sound
      crafted$progress[[part]][field] <- craft[[part]][field]
      write_checkpoint(crafted, file)
      setTimeLimit(elapsed = 20)
      said <- refused_checkpoint(go())
      setTimeLimit()
      expect_match(said, "values that this run cannot have", info = field)
    }
    write_checkpoint(sound, file)
  }
  on.exit(setTimeLimit(), add = TRUE)
  tuned <- function() {
    set.seed(1)
    elvi(engine_quadratic(2), budget = 500, tol = 1e-3, control = elvi_control("whitened", checkpoint = file, iterations = 5))
  }
  tuned()
  refused(tuned, list(
    plan = list(batch0 = -1, batch0 = 1e15, batch_power = 1e300, step0 = NaN, step0 = 1, iterations = 1e15, shorten = -1, shorten = 3,
                seed = c(-1, 0.5), lambda = c(mu = NA, Sigma = 1), start = list(mu = c(NaN, 0), scale = diag(2))),
    state = list(k = -1, k = 0.5, k = 1e15, evals = -5, mu = c(Inf, 0), scale = matrix(NaN, 2, 2), weight = -1, alpha = NaN,
                 stage = list(end = 1e15, look = 10), stage = list(end = -1, look = 10)),
    result = list(status = "anything", theta = list(mu = 1, scale = diag(2)))))
  expect_no_error(hush(tuned()))
  unlink(file)
  tabled <- function() elvi(engine_quadratic(2), schedule = schedule_custom(rep(0.1, 20), rep(2, 20)),
                            control = elvi_control(checkpoint = file, coordinates = "raw", iterations = 5))
  tabled()
  refused(tabled, list(plan = list(batch_table = rep(1e15, 20), step_table = rep(-1, 20))))
  expect_no_error(hush(tabled()))
})

test_that("a checkpoint that is a pipe or a device is refused, and not waited for", {
  skip_on_cran()
  skip_on_os("windows")
  pipe <- new_file()
  system2("mkfifo", shQuote(pipe))
  for (file in c(pipe, "/dev/null")) {
    setTimeLimit(elapsed = 20)
    said <- refused_checkpoint(elvi(engine_quadratic(2), budget = 100, control = elvi_control(checkpoint = file)))
    setTimeLimit()
    expect_match(said, "another kind of file")
  }
})

test_that("a checkpoint that cannot be read is not called damaged; its mode stays as it was", {
  skip_on_os("windows")
  file <- new_file()
  go <- function() elvi(engine_quadratic(2), budget = 100, control = elvi_control(checkpoint = file))
  go()
  Sys.chmod(file, "600")
  expect_message(go(), class = "elvi_message_checkpoint")
  expect_identical(format(file.mode(file)), "600")
  unreadable <- function(...) stop("cannot open the connection")
  message <- with_swapped("read_bytes", unreadable, refused_checkpoint(go()))
  expect_match(message, "cannot be read")
  expect_no_match(message, "delete")
})

test_that("a checkpoint is read without a temporary directory, which may be full or gone", {
  file <- new_file()
  elvi(engine_quadratic(2), budget = 100, control = elvi_control(checkpoint = file))
  kept <- read_checkpoint(file)
  home <- tempdir()
  away <- paste0(home, "-away")
  skip_if_not(file.rename(home, away))
  on.exit(file.rename(away, home), add = TRUE, after = FALSE)
  expect_identical(read_checkpoint(file.path(away, basename(file))), kept)
})

test_that("a state is on the disk before it has the checkpoint's name, and read by nobody before it has its mode", {
  skip_on_os("windows")
  file <- new_file()
  write_checkpoint(1, file)
  expect_identical(file.mode(file), as.octmode("666") & !Sys.umask(NA))
  Sys.chmod(file, "640", use_umask = FALSE)
  seen <- list()
  with_swapped("put_on_disk", function(path) {
    seen[[length(seen) + 1L]] <<- list(path = path, mode = format(file.mode(path)), now = read_checkpoint(file))
  }, write_checkpoint(2, file))
  expect_match(seen[[1L]]$path, "[.]tmp$")
  expect_identical(seen[[1L]][c("mode", "now")], list(mode = "640", now = 1))
  expect_identical(seen[[2L]][c("path", "now")], list(path = dirname(file), now = 2))
  write_bytes(raw(3), file.path(tempdir(), "elvi-private"))
  expect_identical(format(file.mode(file.path(tempdir(), "elvi-private"))), "600")
})

test_that("the clock of checkpoints and pauses is not the time of day, which can be set back", {
  before <- monotonic_seconds()
  expect_gt(abs(before - as.double(Sys.time())), 1e6)
  expect_gte(monotonic_seconds(), before)
})
