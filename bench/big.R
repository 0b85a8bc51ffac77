# Rows that live elsewhere: a regression from files in bounded memory, against reading them and against biglm::bigglm;
# two workers against one, and what goes over the wire; workers that are killed.
#
#   Rscript bench/big.R [workers] [--rows=10000000] [--columns=20] [--cluster_rows=2000000] [--cluster_columns=50] [--kills=50]
#                       [--only=files|cluster|kills|daemons|stopped|database|disk|passes|shards|factors|memory|steps] [--daemon_kills=20]
#                       [--pass_rows=100000] [--memory_rows=1000000,10000000] [--memory_groups=10000]
#                       [--shards=10,100,1000] [--shard_columns=50,300] [--dry]
#
# `daemons` needs mirai. `database` needs RPostgres, a server that PGHOST and the like name, and its restart as a shell command in
# ELVI_RESTART. `disk` fills the disk of TMPDIR, which should be small, say a tmpfs of 3 MB.
# `workers` is short for --only=cluster: two minutes on a quiet machine.

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
options(elvi.threads = 1L)
rows <- option("rows", 10000000L)
columns <- option("columns", 20L)
cluster_rows <- option("cluster_rows", 2000000L)
cluster_columns <- option("cluster_columns", 50L)
kills <- option("kills", 50L)
pass_rows <- option("pass_rows", 100000L)
shard_numbers <- as.integer(strsplit(sub("^--shards=", "", c(grep("^--shards=", args, value = TRUE), "10,100,1000")[1]), ",")[[1]])
shard_columns <- as.integer(strsplit(sub("^--shard_columns=", "", c(grep("^--shard_columns=", args, value = TRUE), "50,300")[1]), ",")[[1]])
daemon_kills <- option("daemon_kills", 20L)
only <- c(sub("^--only=", "", grep("^--only=", args, value = TRUE)), if ("workers" %in% args) "cluster")
wanted <- function(part) !length(only) || part %in% only

# ---- files -------------------------------------------------------------------------------------------------------------

cpu_seconds <- function(run) {
  before <- sum(proc.time()[1:2])
  run()
  sum(proc.time()[1:2]) - before
}

# a pass of the exact solver over rows that are in memory
pass_in_memory <- function(data) {
  X <- cbind(1, as.matrix(data[-1]))
  oracle <- elvi:::exact_oracle(elvi::model_glm(X, data$y), elvi:::law_of(elvi::base_gaussian(), ncol(X)))
  S <- diag(0.01, ncol(X))
  function() oracle("symmetric", numeric(ncol(X)), S)
}

from_files <- function(chunk = 100000L) {
  folder <- tempfile("big")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  beta <- sin(seq_len(columns)) / 3
  files <- file.path(folder, sprintf("part%04d.rds", seq_len(ceiling(rows / chunk))))
  message("writing ", length(files), " files ...")
  for (k in seq_along(files)) {
    set.seed(k)
    X <- matrix(rnorm(chunk * columns), chunk)
    saveRDS(data.frame(y = as.double(runif(chunk) < plogis(drop(X %*% beta))), X), files[k], compress = FALSE)
  }
  rm(X)
  read <- 0
  reading <- 0   # seconds, within the fit: what else the machine does counts on both sides of a ratio
  reader <- function(file) {
    read <<- read + 1
    began <- proc.time()[["elapsed"]]
    on.exit(reading <<- reading + proc.time()[["elapsed"]] - began)
    readRDS(file)
  }
  passes <- function() read / length(files)
  size <- sprintf("%g x %d from %d files", rows, columns, length(files))

  fit <- function(...) elvi::elvi(y ~ ., data = elvi::rows_files(files, reader, ...), family = binomial())
  spent <- function() sum(proc.time()[1:2])
  message(size, ": elvi ...")
  certificate <- NA
  cpu <- spent()
  beyond <- peak_megabytes(function() whole <<- seconds(function() certificate <<- fit()$optimum$certificate))
  cpu <- spent() - cpu
  mine <- passes()
  record(paste0(size, ": peak memory beyond the start, MB"), sprintf("%.0f", beyond), "<= 300", beyond <= 300)
  record("... certified gap in nats", format(certificate, digits = 2), "<= 0.01", certificate <= 0.01)
  per_pass <- whole / mine
  record(sprintf("... seconds (%.1f passes) / those of them in readRDS(), of files that are not compressed", mine),
         sprintf("%.0f / %.0f = %.2f", whole, reading, whole / reading), "<= 3", whole / reading <= 3)
  data <- readRDS(files[1])
  alone <- list(reading = function() readRDS(files[1]), arithmetic = pass_in_memory(data), frame = function() as.matrix(data))
  shares <- vapply(alone, function(run) min(vapply(1:7, function(i) cpu_seconds(run), 0)), 0) / nrow(data)
  record("... CPU nanoseconds a row and pass: all; readRDS(), arithmetic, columns into a matrix, each alone",
         sprintf("%.0f; %s", 1e9 * cpu / mine / rows, toString(round(1e9 * shares))))
  rm(data, alone)

  message(size, ": elvi with a copy on disk ...")
  read <- reading <- 0
  copied <- NA
  beyond <- peak_megabytes(function() copied <<- seconds(function() fit(cache = 16 * rows * (columns + 3))))
  record(sprintf("... with `cache`: seconds (%.1f passes of the files, %.1f in all) / reading the files in each", passes(), mine),
         sprintf("%.0f / %.0f = %.2f", copied, mine * reading / passes(), copied / (mine * reading / passes())), "<= 3",
         copied <= 3 * mine * reading / passes())
  record("... peak memory with `cache`, MB", sprintf("%.0f", beyond), "<= 300", beyond <= 300)

  if (requireNamespace("biglm", quietly = TRUE)) {
    message(size, ": bigglm, two iterations ...")
    read <- 0
    at <- 0
    next_chunk <- function(reset = FALSE) {
      if (reset) {
        at <<- 0
        return(NULL)
      }
      if (at == length(files)) return(NULL)
      at <<- at + 1
      reader(files[at])
    }
    theirs <- seconds(function() suppressWarnings(
      biglm::bigglm(reformulate(paste0("X", seq_len(columns)), "y"), data = next_chunk, family = binomial(), maxit = 2)))
    record(sprintf("... bigglm / elvi, seconds a pass (%.1f passes of bigglm)", passes()),
           sprintf("%.2f / %.2f = %.2f", theirs / passes(), per_pass, theirs / passes() / per_pass), "> 1",
           theirs / passes() > per_pass)
  }
}

# ---- workers ------------------------------------------------------------------------------------------------------------

loader <- function(rows, columns, shards) {
  load <- function(i) {
    set.seed(i)
    n <- rows %/% shards
    X <- matrix(rnorm(n * columns), n)
    list(X = X, y = as.double(runif(n) < plogis(drop(X %*% (sin(seq_len(columns)) / 3)))))
  }
  environment(load) <- list2env(list(rows = rows, columns = columns, shards = shards), parent = globalenv())
  load
}

loopback_bytes <- function() {
  line <- grep("^ *lo:", readLines("/proc/net/dev"), value = TRUE)
  as.numeric(strsplit(trimws(sub("^ *lo:", "", line)), " +")[[1]][1])
}

on_a_cluster <- function(rounds = 15L) {
  cl <- parallel::makePSOCKcluster(2)
  on.exit(parallel::stopCluster(cl))
  load <- loader(cluster_rows, cluster_columns, 2L)
  models <- lapply(list(cl[1], cl), function(cl) elvi::model_glm(elvi::rows_cluster(cl, load, 2L)))
  law <- elvi:::law_of(elvi::base_gaussian(), cluster_columns)
  S <- diag(0.01, cluster_columns)
  mu <- sin(seq_len(cluster_columns)) / 4
  pass <- function(model) function() {
    seconds(function() elvi:::exact_oracle(model, law)("symmetric", mu, S))
  }
  times <- alternate(sprintf("%g x %d in 2 shards: a pass with one worker / with two", cluster_rows, cluster_columns),
                     pass(models[[2]]), pass(models[[1]]), rounds)
  record_ratio(times, 1.7)
  # what this machine allows: the two workers, each with rows of its own and nothing to say to the other
  parallel::clusterCall(cl, function(load, mu, S) {
    rows <- load(1L)
    oracle <- elvi:::exact_oracle(elvi::model_glm(rows$X, rows$y), elvi:::law_of(elvi::base_gaussian(), length(mu)))
    assign("own_pass", function() oracle("symmetric", mu, S), globalenv())
    options(elvi.threads = 1)
  }, load, mu, S)
  own <- function(cl) function() seconds(function() parallel::clusterEvalQ(cl, length(own_pass())))
  apart <- alternate("... two passes apart, one after the other / at once", own(cl), own(cl[1]), rounds)
  record("... what the cores allow: two passes in processes apart, one after the other / at once",
         sprintf("%.2f (%.2f-%.2f)", 2 * apart$ratio, 2 * apart$low, 2 * apart$high))
  # where others have the cores: what the busiest worker has to do, in CPU seconds
  busiest <- function(model) {
    spent <- function() vapply(parallel::clusterCall(cl, function() proc.time()[1:2]), sum, 0)
    min(vapply(seq_len(rounds), function(i) {
      before <- spent()
      pass(model)()
      max(spent() - before)
    }, 0))
  }
  cpu <- vapply(models, busiest, 0)
  record("... the same in CPU seconds of the busiest worker", sprintf("%.2f / %.2f = %.2f", cpu[1], cpu[2], cpu[1] / cpu[2]),
         ">= 1.7", cpu[1] / cpu[2] >= 1.7)
  traffic <- min(vapply(1:5, function(i) {
    before <- loopback_bytes()
    pass(models[[2]])()
    loopback_bytes() - before
  }, 0))
  expected <- 2 * 8 * (cluster_columns^2 + cluster_columns)   # out and back
  record("... bytes a shard and pass, out and back, of 8 (d^2 + d) each way", sprintf("%.0f of %.0f", traffic / 2, expected),
         "<= 1.5 times", traffic / 2 <= 1.5 * expected)
}

# ---- shards ---------------------------------------------------------------------------------------------------------------

# Bytes of a pass over two workers, and what the main process holds at most, by number of shards and columns.
by_shards <- function(each = 20L) {
  for (d in shard_columns) for (shards in shard_numbers) {
    cl <- parallel::makePSOCKcluster(2)
    model <- elvi::model_glm(elvi::rows_cluster(cl, loader(each * shards, d, shards), shards))
    oracle <- elvi:::exact_oracle(model, elvi:::law_of(elvi::base_gaussian(), d))
    pass <- function() oracle("symmetric", numeric(d), diag(0.01, d))
    pass()
    bytes <- min(vapply(1:5, function(i) {
      before <- loopback_bytes()
      pass()
      loopback_bytes() - before
    }, 0))
    invisible(gc(reset = TRUE))
    held <- sum(gc()[, 2])
    pass()
    held <- sum(gc()[, 6]) - held
    parallel::stopCluster(cl)
    record(sprintf("%d shards of %d x %d on 2 workers: MB a pass, out and back (one answer a shard would be, back alone)", shards, each, d),
           sprintf("%.1f (%.1f)", bytes / 1e6, 8e-6 * shards * (d^2 + d)))
    record("... R memory of the main process beyond the start, at most, MB", sprintf("%.0f", held))
  }
}

# ---- passes ---------------------------------------------------------------------------------------------------------------

count_passes <- function(formula, data, family, chunks = 10L) {
  part <- split(data, (seq_len(nrow(data)) - 1L) %/% ceiling(nrow(data) / chunks))
  passes <- 0
  options(elvi.rows_progress = TRUE)
  fit <- withCallingHandlers(elvi::elvi(formula, elvi::rows_files(as.list(seq_along(part)), function(i) part[[i]]), family),
                             elvi_message_pass = function(m) {
                               passes <<- passes + 1
                               invokeRestart("muffleMessage")
                             })
  options(elvi.rows_progress = NULL)
  reference <- elvi::elvi(formula, data, family, correct = FALSE)
  sd <- if (is.null(reference$nested)) sqrt(diag(reference$Sigma)) else reference$sd
  list(passes = passes, off = max(abs(fit$mu - reference$mu) / sd))
}

passes_of_families <- function() {
  set.seed(1)
  n <- pass_rows
  data <- data.frame(x = rnorm(n), z = rnorm(n), g = sprintf("g%03d", sample(200, n, TRUE)),
                     k = factor(sample(c("a", "b", "rare"), n, TRUE, c(0.6, 0.399, 0.001))))
  eta <- data$x / 2 - data$z / 3 - 1 + rnorm(200, 0, 0.5)[as.integer(factor(data$g))]
  data$real <- eta + rnorm(n)
  data$yes <- rbinom(n, 1, plogis(eta))
  data$count <- rpois(n, exp(eta))
  data$none <- ifelse(data$k == "rare", 0, data$yes)
  cases <- list(list(real ~ x + z, gaussian()), list(yes ~ x + z, binomial()), list(count ~ x + z, poisson()),
                list(none ~ x + z + k, binomial()), list(real ~ x + (1 | g), gaussian()), list(yes ~ x + (1 | g), binomial()),
                list(count ~ x + (x | g), poisson()))
  for (case in cases) {
    found <- count_passes(case[[1]], data, case[[2]])
    record(sprintf("%s, %s, %g rows in 10 chunks: passes, and difference from memory in sd", deparse(case[[1]]), case[[2]]$family, n),
           sprintf("%d, %s", found$passes, format(found$off, digits = 1)))
  }
}

# ---- designs of factors -----------------------------------------------------------------------------------------------------

# CPU seconds of a pass with a factor: rows from codes, and by model.matrix().
passes_with_factors <- function(n = 50000L, rounds = 5L) {
  space <- asNamespace("elvi")
  made <- space$factor_builder
  put <- function(f) {
    unlockBinding("factor_builder", space)
    assign("factor_builder", f, space)
    lockBinding("factor_builder", space)
  }
  for (levels in c(5L, 20L, 100L, 300L)) {
    set.seed(levels)
    data <- data.frame(x = rnorm(n), f = sprintf("l%03d", sample(levels, n, TRUE)))
    data$y <- rbinom(n, 1, plogis(data$x / 2 - 1))
    problem <- function() elvi:::as_target(elvi:::elvi_problem(y ~ x + f, elvi::rows_files(list(1), function(i) data), family = binomial()))$target
    models <- list(problem())
    put(function(...) NULL)
    models[[2]] <- problem()
    put(made)
    d <- models[[1]]$dim
    law <- elvi:::law_of(elvi::base_gaussian(), d)
    oracles <- lapply(models, elvi:::exact_oracle, law)
    times <- vapply(seq_len(rounds), function(i) {
      vapply(oracles, function(oracle) cpu_seconds(function() oracle("symmetric", numeric(d), diag(0.01, d))), 0)
    }, numeric(2))
    same <- all.equal(oracles[[1]]("symmetric", numeric(d), diag(0.01, d)), oracles[[2]]("symmetric", numeric(d), diag(0.01, d)), tolerance = 1e-10)
    record(sprintf("%g rows, a factor of %d levels: CPU seconds of a pass by model.matrix() / from codes (%s)", n, levels,
                   if (models[[1]]$rows$recipe$builder$sparse) "sparse" else "dense"),
           sprintf("%.3f / %.3f = %.1f", median(times[2, ]), median(times[1, ]), median(times[2, ] / times[1, ])), "the same sums", isTRUE(same))
  }
}

# ---- memory -----------------------------------------------------------------------------------------------------------------

# Rows that are made when they are read, so that no disk is needed: peak memory by their number.
memory_by_rows <- function(chunk = 1e5) {
  numbers <- as.double(strsplit(sub("^--memory_rows=", "", c(grep("^--memory_rows=", args, value = TRUE), "1e6,1e7")[1]), ",")[[1]])
  groups <- option("memory_groups", 10000L)
  effect <- sin(seq_len(groups))
  rows <- function(k) {
    set.seed(k)
    g <- sample.int(groups, chunk, TRUE)
    x <- rnorm(chunk)
    data.frame(x, g, y = rbinom(chunk, 1, plogis(x / 2 - 1 + effect[g] / 2)), real = x + effect[g] + rnorm(chunk))
  }
  for (case in list(list(real ~ x + (1 | g), gaussian()), list(y ~ x + (1 | g), binomial()))) for (n in numbers) {
    read <- 0
    source <- elvi::rows_files(as.list(seq_len(n / chunk)), function(k) {
      read <<- read + 1
      rows(k)
    })
    cpu <- sum(proc.time()[1:2])
    peak <- peak_megabytes(function() fit <<- elvi::elvi(case[[1]], source, case[[2]]))
    cpu <- sum(proc.time()[1:2]) - cpu
    record(sprintf("%s, %s, %g rows in chunks of %g, %g groups: peak memory beyond the start, MB; passes; CPU seconds; x, its sd",
                   sub("|", "/", deparse(case[[1]]), fixed = TRUE), case[[2]]$family, n, chunk, groups),
           sprintf("%.0f; %.0f; %.0f; %.4f, %.4f", peak, read / (n / chunk), cpu, fit$mu["x"], sqrt(stats::vcov(fit)["x", "x"])))
  }
}

# ---- steps with some of the rows ----------------------------------------------------------------------------------------------

# Of a family that integrates over phi in memory, and not on a cluster: how near they end, and how long they take.
steps_with_some_rows <- function(n = 50000L) {
  set.seed(1)
  X <- matrix(rnorm(n * 5), n)
  data <- data.frame(X, y = rnbinom(n, size = 2, mu = exp(drop(X %*% sin(1:5)) / 6 - 0.5)))
  timed <- function(...) {
    fit <- NULL
    cpu <- cpu_seconds(function() fit <<- suppressMessages(elvi::elvi(y ~ ., data, elvi::neg_binomial_2(), ...)))
    list(mu = fit$mu, sd = fit$sd, cpu = cpu)
  }
  reference <- timed(correct = FALSE)
  some <- function(m) elvi::elvi_control(rows_per_step = m, trace_draws = 0)
  runs <- list("all rows" = timed(method = "mpsgd"), "all rows, without a trace, budget 5000" = timed(method = "mpsgd", budget = 5000, control = some(NULL)),
               "1,000 rows" = timed(method = "mpsgd", budget = 5000, control = some(1000)))
  for (name in names(runs)) {
    at <- intersect(names(runs[[name]]$mu), names(reference$mu))
    off <- max(abs(runs[[name]]$mu[at] - reference$mu[at]) / reference$sd[match(at, names(reference$mu))])
    record(sprintf("neg_binomial_2(), %g x 5, a step takes %s: CPU seconds / those of integration over phi, coefficients off in sd", n, name),
           sprintf("%.1f / %.1f, %.4f", runs[[name]]$cpu, reference$cpu, off), "<= 0.05", off <= 0.05)
  }
}

# ---- kills --------------------------------------------------------------------------------------------------------------

under_fire <- function(size = 6L) {
  load <- loader(6000L, 5L, 7L)
  fit <- function(source) elvi::elvi(elvi::model_glm(source), method = "exact")
  right <- 0
  reference <- NULL
  done <- 0
  set.seed(1)
  message("killing ", kills, " workers ...")
  while (done < kills) {
    cl <- parallel::makePSOCKcluster(size)
    pids <- unlist(parallel::clusterCall(cl, Sys.getpid))
    source <- elvi::rows_cluster(cl, load, 7L, timeout = 120)
    reference <- reference %||% fit(source)
    for (k in seq_len(min(size - 1L, kills - done))) {
      system(sprintf("(sleep %g; kill -9 %d) &", runif(1, 0, 0.6), pids[k]))
      same <- TRUE
      while (source$state$alive[k]) {
        same <- same && identical(suppressWarnings(fit(source))$mu, reference$mu)
      }
      right <- right + same
      done <- done + 1
    }
    suppressWarnings(try(parallel::stopCluster(cl[size]), silent = TRUE))
  }
  record(sprintf("%d workers killed (kill -9) at random moments: fits with the same numbers", kills), sprintf("%d of %d", right, kills),
         "all", right == kills)
}
`%||%` <- function(x, y) if (is.null(x)) y else x

# Daemons that die at random moments; those of a round that are left are killed with it.
daemons_under_fire <- function(size = 3L) {
  load <- loader(6000L, 5L, 7L)
  fit <- function(source) elvi::elvi(elvi::model_glm(source), method = "exact")
  right <- done <- 0
  reference <- NULL
  set.seed(1)
  while (done < daemon_kills) {
    cl <- lapply(seq_len(size), function(k) mirai::make_cluster(1))
    for (one in cl) parallel::clusterCall(one, function(paths) .libPaths(paths), .libPaths())
    pids <- vapply(cl, function(one) unlist(parallel::clusterCall(one, Sys.getpid)), 0L)
    source <- elvi::rows_cluster(cl, load, 7L, timeout = 120)
    reference <- reference %||% fit(source)
    for (k in seq_len(min(size - 1L, daemon_kills - done))) {
      system(sprintf("(sleep %g; kill -9 %d) &", runif(1, 0, 0.6), pids[k]))
      same <- TRUE
      while (source$state$alive[k]) same <- same && identical(suppressWarnings(fit(source))$mu, reference$mu)
      right <- right + same
      done <- done + 1
    }
    for (one in cl) suppressWarnings(try(mirai::stop_cluster(one), silent = TRUE))
  }
  record(sprintf("%d mirai daemons killed (kill -9) at random moments: fits with the same numbers", daemon_kills),
         sprintf("%d of %d", right, daemon_kills), "all", right == daemon_kills)
}

# A worker that is stopped for longer than the timeout, and goes on.
stopped_worker <- function(timeout = 5) {
  load <- loader(6000L, 5L, 7L)
  fit <- function(source) suppressWarnings(elvi::elvi(elvi::model_glm(source), method = "exact"))$mu
  cl <- parallel::makePSOCKcluster(3)
  on.exit(parallel::stopCluster(cl))
  pid <- parallel::clusterCall(cl[2], Sys.getpid)[[1]]
  source <- elvi::rows_cluster(cl, load, 7L, timeout = timeout)
  reference <- fit(source)
  tools::pskill(pid, tools::SIGSTOP)
  began <- proc.time()[["elapsed"]]
  without <- identical(fit(source), reference)
  waited <- proc.time()[["elapsed"]] - began
  tools::pskill(pid, tools::SIGCONT)
  invisible(socketSelect(list(cl[[2]]$con), timeout = 60))
  again <- identical(suppressMessages(fit(source)), reference) && all(source$state$alive)
  record(sprintf("a worker stopped for longer than `timeout` = %g s: same numbers without it, and with it again; seconds of the first fit",
                 timeout), sprintf("%s, %s; %.1f", without, again, waited), "TRUE, TRUE", without && again)
}

logistic_rows <- function(n) {
  set.seed(1)
  data <- data.frame(x = rnorm(n), z = rnorm(n))
  data$y <- rbinom(n, 1, plogis(data$x / 2 - 1))
  data
}

# The server is restarted in the middle of the third and of the fifth pass.
restarted_database <- function(n = 200000L, chunk = 20000L) {
  connect <- function() DBI::dbConnect(RPostgres::Postgres())
  data <- logistic_rows(n)
  con <- connect()
  DBI::dbWriteTable(con, "elvi_big", data, temporary = FALSE, overwrite = TRUE)
  DBI::dbDisconnect(con)
  source <- elvi::rows_dbi(connect, "elvi_big", chunk = chunk, retries = 5, pause = 1)
  open <- source$open
  passes <- restarts <- 0
  source$open <- function(columns = NULL) {
    passes <<- passes + 1
    chunks <- open(columns)
    read <- chunks$read
    at <- 0
    chunks$read <- function() {
      at <<- at + 1
      if (at == 5 && passes %in% c(3, 5)) {
        system(Sys.getenv("ELVI_RESTART"), ignore.stdout = TRUE, ignore.stderr = TRUE)
        restarts <<- restarts + 1
      }
      read()
    }
    chunks
  }
  tried <- 0
  fit <- withCallingHandlers(elvi::elvi(y ~ x + z, source, binomial()), elvi_message_retry = function(m) tried <<- tried + 1)
  off <- max(abs(fit$mu - elvi::elvi(y ~ x + z, data, binomial())$mu) / sqrt(diag(fit$Sigma)))
  con <- connect()
  DBI::dbRemoveTable(con, "elvi_big")
  DBI::dbDisconnect(con)
  record(sprintf("a database restarted %d times in mid-pass, %d rows: passes tried again, and difference from memory in sd", restarts, n),
         sprintf("%d, %s", tried, format(off, digits = 1)), "<= 1e-8", off <= 1e-8)
}

# The copy on disk and the checkpoint find no room.
full_disk <- function(n = 200000L) {
  data <- logistic_rows(n)
  part <- split(data, (seq_len(n) - 1L) %/% 20000L)
  source <- function(...) elvi::rows_files(as.list(seq_along(part)), function(i) part[[i]], ...)
  said <- character()
  note <- function(condition) said <<- c(said, class(condition)[1])
  reference <- elvi::elvi(y ~ x + z, source(), binomial())
  filled <- tempfile()
  writeBin(raw(2^21), filled)   # all but a little
  fit <- withCallingHandlers(
    suppressWarnings(elvi::elvi(y ~ x + z, source(cache = 1e9), binomial(), control = elvi::elvi_control(checkpoint = tempfile()))),
    elvi_message_cache = note, elvi_warning_checkpoint = note)
  unlink(filled)
  same <- isTRUE(all.equal(fit$mu, reference$mu, tolerance = 1e-9))
  record("a disk that is full: the numbers of memory, and what was said", sprintf("%s; %s", same, toString(unique(said))), "TRUE", same)
}

whole <- fit <- NA
if (wanted("kills")) under_fire()
if (wanted("daemons")) daemons_under_fire()
if (wanted("stopped")) stopped_worker()
if (wanted("database") && nzchar(Sys.getenv("ELVI_RESTART"))) restarted_database()
if (wanted("disk")) full_disk()
if (wanted("passes")) passes_of_families()
if (wanted("shards")) by_shards()
if (wanted("factors")) passes_with_factors()
if (wanted("memory")) memory_by_rows()
if (wanted("steps")) steps_with_some_rows()
if (wanted("cluster")) on_a_cluster()
if (wanted("files")) from_files()
