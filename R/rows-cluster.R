# Rows on the workers of a cluster. A shard is made on a worker by load() and stays there; a pass sends the point and the
# worker adds up its rows, with the routines for rows in memory. Answers are joined in a tree whose leaves are the shards, in their order,
# so it does not matter who was first, nor how many workers there are. A worker joins what it has: a few branches of the tree
# come back, however many shards there are. Sending and receiving is the cluster's own.

#' Rows on a cluster
#'
#' `rows_cluster()` lets [elvi()] and [model_glm()] fit data that are spread over the workers of a cluster: of package
#' 'parallel' (`makePSOCKcluster()`, on other machines through ssh as well, `makeForkCluster()`), of 'snow' with 'Rmpi', of
#' 'parallelly', or `mirai::make_cluster()`. The rows stay on the workers. In each pass a worker receives parameters and returns
#' sums: a small multiple of `8 (d^2 + d)` bytes for `d` coefficients, whatever the number of rows and shards.
#'
#' A shard is a part of the rows with a number. The result depends on the shards and their order, not on the workers: the same
#' shards on other workers, or on fewer, give the same numbers. `load(i)` must return the same rows in every call and on every
#' worker. elvi must be installed on the workers. Shards stay on their workers until the cluster is stopped. Variables and
#' functions that a formula uses from its environment are sent with it. Export what such a function uses from your workspace by
#' `parallel::clusterExport()`.
#'
#' @section Workers that are lost:
#' A worker whose connection breaks, or that does not answer for `timeout` seconds, is dropped: its shards are loaded by the others, the
#' pass continues, and there is a warning of class `elvi_warning_worker`. A worker without elvi, or with another version, is dropped in the
#' same way. Where none of several workers answers in time, elvi waits once more for as long, with a warning of class
#' `elvi_warning_slow`. A worker that was too slow and answers later, or a mirai daemon that dials in again, gets its shards back
#' in the next pass. The result does not change. When the last worker is lost the fit
#' ends with an error of class `elvi_error_worker` that names the lost shards. An error in `load()`, or in the rows it returns, is an
#' error of the fit that names the shard. An interrupt (Ctrl-C) or a time limit waits up to a minute for pending answers, so that the
#' workers can be used again. MPI ends a whole job when one of its processes dies.
#'
#' @param cl a cluster, or a list of clusters to use together. `mirai::make_cluster()` gives a task to any of its workers, so
#'   each worker ends up with all shards; with `list(mirai::make_cluster(1), mirai::make_cluster(1))` each shard stays on one
#'   worker.
#' @param load function of the number of a shard, called on a worker. It returns its rows: a data frame for a formula, a list
#'   with `X` and `y` for [model_glm()], or a source such as [rows_files()] or [rows_dbi()], which the worker then reads chunk
#'   by chunk in every pass.
#' @param shards number of shards.
#' @param timeout seconds after which a worker that does not answer counts as lost.
#' @param threads number of threads of each worker, see [elvi_threads()].
#' @param levels levels of factors, see [rows_chunked()].
#' @param retries how many times a worker calls `load(i)` again after an error, each time after `pause` seconds.
#' @param pause seconds before `load(i)` is called again.
#' @return An object of class `elvi_source`.
#' @seealso [rows_chunked()] about formulas and about the methods of such a fit.
#' @examples
#' \donttest{
#' cl <- parallel::makePSOCKcluster(2)
#' part <- rep(1:3, length.out = nrow(infert))
#' shards <- split(infert, part)
#' parallel::clusterExport(cl, "shards", environment())
#' source <- rows_cluster(cl, function(i) shards[[i]], shards = 3)
#' elvi(case ~ age + parity + spontaneous, data = source, family = binomial())
#' parallel::stopCluster(cl)
#' }
#' @export
rows_cluster <- function(cl, load, shards = length(cl), timeout = 3600, threads = 1, levels = NULL, retries = 0, pause = 1) {
  cl <- check_cluster(cl)
  need_package("parallel", "rows_cluster()")
  check_function(load, "load")
  shards <- check_count(shards, "shards", upper = 1e6)
  timeout <- check_positive(timeout, "timeout", infinite = TRUE)
  threads <- check_count(threads, "threads", upper = 1024)
  again <- check_retries(retries, pause)
  state <- new_exchange(cl)
  state$home <- state$owner <- sort(rep_len(seq_along(cl), shards))   # neighbours, whose answers can be joined
  id <- paste(Sys.getpid(), format(as.numeric(Sys.time()), digits = 17), sep = "-")
  new_source("cluster", sprintf("%.0f shard(s) on %d worker(s)", shards, length(cl)), NULL, levels, load = load, shards = shards,
             timeout = timeout, threads = threads, again = again, id = id, state = state)
}

# a cluster, or several of them as one
check_cluster <- function(cl) {
  if (is_plain_list(cl) && length(cl) && all(vapply(cl, inherits, NA, "cluster"))) {
    return(structure(unlist(lapply(cl, function(one) lapply(seq_along(one), function(k) one[[k]])), recursive = FALSE), class = "cluster"))
  }
  if (!inherits(cl, "cluster") || !length(cl)) {
    bad_argument("cl", "a cluster, as made by parallel::makeCluster() or mirai::make_cluster(), or a list of clusters", describe(cl))
  }
  if (inherits(cl, "miraiCluster") && length(cl) > 1L) {
    elvi_inform("mirai gives a task to any worker of a cluster, so each of them will come to hold all shards. ",
                "With a list of clusters of one worker each, shards stay where they are.", class = "elvi_message_mirai")
  }
  cl
}

# ---- a worker -------------------------------------------------------------------------------

# what a worker keeps: shards as loaded, their rows, recipes
shard_store <- new.env(parent = emptyenv())

# The answers of a request as branches of the tree; the shards that are `missing`, where the worker lacks something that was sent to
# another; or a `failure`, a message with the number of its shard.
answer_request <- function(request) {
  if (!is.null(request$recipe)) assign(paste(request$id, "recipe", request$key), request$recipe, shard_store)
  old <- options(elvi.threads = request$threads)
  on.exit(options(old))
  recipe <- shard_store[[paste(request$id, "recipe", request$key)]]
  branches <- list()
  missing <- integer()
  failure <- NULL
  for (shard in sort(request$shards)) {
    at <- shard
    failure <- tryCatch({
      answer <- answer_for_shard(request, shard)
      if (isTRUE(answer$missing)) missing <- c(missing, shard)
      else branches <- grown(branches, shard, answer$answer, function(a, b, first) {
        at <<- first
        join_shards(recipe, request$task, a, b)
      })
      NULL
    }, error = function(e) {
      list(shard = at, message = conditionMessage(e), argument = if (inherits(e, "elvi_error_argument")) e$argument)
    })
    if (!is.null(failure)) break
  }
  structure(list(branches = branches, missing = missing, failure = failure, number = request$number), class = "elvi_reply")
}

# ---- the tree ---------------------------------------------------------------------------------

# A branch of the tree of shards has those from index 2^level + 1 to (index + 1) 2^level: list(level, index, answer). Two that are
# siblings are joined, whoever has them, so the order of summation is that of the tree.

branch_shards <- function(branch, shards) seq(branch$index * 2^branch$level + 1, min((branch$index + 1) * 2^branch$level, shards))

# Branches with that of one more shard, joined as far as siblings are there. join(a, b, first): `first` is the first shard of b
grown <- function(branches, shard, answer, join) {
  with_branch(branches, list(level = 0, index = shard - 1, answer = answer), join)
}

with_branch <- function(branches, branch, join) {
  repeat {
    sibling <- which(vapply(branches, function(b) b$level == branch$level && b$index == bitwXor(branch$index, 1L), NA))
    if (!length(sibling)) return(c(branches, list(branch)))
    other <- branches[[sibling]]
    branches <- branches[-sibling]
    both <- if (branch$index %% 2 == 0) list(branch, other) else list(other, branch)
    answer <- join(both[[1L]]$answer, both[[2L]]$answer, both[[2L]]$index * 2^branch$level + 1)
    branch <- list(level = branch$level + 1, index = branch$index %/% 2, answer = answer)
  }
}

# All branches of `shards` shards are there: the root. Where a sibling would have no shard, a branch is its parent.
root_answer <- function(branches, shards, join) {
  while (length(branches) > 1L || branches[[1L]]$index > 0) {
    last <- which.max(vapply(branches, function(b) b$index * 2^b$level, 0))
    branch <- branches[[last]]
    branch$level <- branch$level + 1
    branch$index <- branch$index %/% 2
    branches <- with_branch(branches[-last], branch, join)
  }
  branches[[1L]]$answer
}

# two answers with their samples, as shard_task() gives them
join_shards <- function(recipe, task, a, b) {
  if (task == "first") return(if (is.null(a$answer)) b else a)
  sample <- if (task == "survey") join_samples(recipe, a$sample, b$sample)
  total <- join_answers(task, a, b)
  if (is.null(sample)) total else c(total[c("answer", "check")], list(sample = sample))
}

answer_for_shard <- function(request, shard) {
  key <- paste(request$id, shard)
  recipe <- shard_store[[paste(request$id, "recipe", request$key)]]
  if ((is.null(shard_store[[key]]) || is.null(recipe)) && is.null(request$load)) return(list(missing = TRUE))
  if (is.null(shard_store[[key]])) {
    data <- load_shard(request, shard)
    if (!is.list(data)) stop("load() must return a data frame, a list with X and y or a source, not ", describe(data), call. = FALSE)
    assign(key, list2env(list(data = data), parent = emptyenv()), shard_store)
  }
  list(answer = shard_task(shard_store[[key]], recipe, request, shard))
}

load_shard <- function(request, shard) {
  left <- request$again$retries
  repeat {
    loaded <- tryCatch(list(data = request$load(shard)), error = identity)
    if (!inherits(loaded, "error")) return(loaded$data)
    if (left == 0) {
      stop("load() failed", if (request$again$retries) paste0(" ", request$again$retries + 1, " times"), ": ", conditionMessage(loaded),
           call. = FALSE)
    }
    left <- left - 1
    Sys.sleep(request$again$pause)
  }
}

shard_task <- function(shard, recipe, request, number = 1) {
  data <- shard$data
  if (!is.null(request$centre)) recipe$centre <- request$centre
  if (request$task == "first") return(list(answer = first_rows(if (is_source(data)) first_chunk(data) else data)))
  of_chunk <- isTRUE(row_tasks[[request$task]]$of_chunk)
  request$args$place <- number - 1
  if (is_source(data)) return(pass_over(data, recipe, request$task, request$args))
  if (of_chunk) return(answer_to_chunk(data, recipe, request$task, request$args))
  survey <- request$task == "survey"
  sample <- if (survey) add_to_sample(recipe, NULL, data, number)
  if (!identical(shard$key, request$key) || survey && shard$seen) {   # rows of a later pass lack what a survey needs
    shard$rows <- recipe_rows(recipe, data, seen = !survey)
    shard$check <- if (!is.null(shard$rows)) check_sums(shard$rows, recipe)
    shard$key <- request$key
    shard$seen <- !survey
  }
  answer <- if (!is.null(shard$rows)) answer_of(list(rows = shard$rows, check = shard$check), recipe, request$task, request$args)
  if (is.null(sample)) answer else c(answer[c("answer", "check")], list(sample = sample))
}

first_rows <- function(chunk, most = 1000L) {
  if (is.null(chunk) || chunk_length(chunk) == 0) return(NULL)
  i <- seq_len(min(chunk_length(chunk), most))
  if (is.data.frame(chunk)) return(chunk[i, , drop = FALSE])
  lapply(chunk, function(x) if (length(dim(x)) == 2L) x[i, , drop = FALSE] else x[i])
}

# the function that is called there, without the environment of this package
at_worker <- function(request) {
  has <- if (requireNamespace("elvi", quietly = TRUE)) getNamespaceVersion("elvi") else "no"
  if (has == request$version) return(getNamespace("elvi")$answer_request(request))
  structure(list(unfit = as.character(has), number = request$number), class = "elvi_reply")
}

unfit_words <- function(has, version) if (has == "no") "has no package elvi" else paste("has elvi", has, "instead of", version)

# As it is sent: its text without byte code, which is three times as long.
sent_to_worker <- function() as.function(c(formals(at_worker), body(at_worker)), envir = baseenv())

# ---- a pass ---------------------------------------------------------------------------------

#' @export
pass_over.elvi_source_cluster <- function(source, recipe, task, args = list()) {
  total <- ask_shards(source, recipe, task, args)
  if (is.null(total$sample)) total else total[c("answer", "check")]
}

#' @export
first_chunk.elvi_source_cluster <- function(source) {
  ask_shards(source, list(), "first")$answer
}

# The answers of all shards, joined.
ask_shards <- function(source, recipe, task, args = list()) {
  state <- source$state
  state$requests <- state$requests + 1
  request <- list(id = source$id, version = as.character(getNamespaceVersion("elvi")), task = task, args = args,
                  centre = recipe$centre, threads = source$threads, again = source$again, key = recipe_key(state, recipe),
                  number = paste(source$id, state$requests))
  join <- function(a, b, first) {
    tryCatch(join_shards(recipe, task, a, b), elvi_error_argument = function(e) {
      shard_failed(source, first, conditionMessage(e), e$argument)
    })
  }
  branches <- list()
  patience <- 1
  done <- logical(source$shards)
  waiting <- rep(NA_real_, length(state$cl))   # since when
  on.exit(drain(source, which(!is.na(waiting)), request))
  welcome_back(source)
  repeat {
    reassign_shards(state, which(!done))
    for (node in which(state$alive & is.na(waiting))) {
      shards <- which(!done & state$owner == node)
      if (!length(shards)) next
      suspendInterrupts({
        waiting[node] <- monotonic_seconds()   # before it is sent: an interrupt can leave half of a request at the worker
        if (!send_shards(source, node, shards, request, recipe)) waiting[node] <- NA
      })
      if (is.na(waiting[node])) mark_worker_lost(state, node)
    }
    if (all(done)) return(root_answer(branches, source$shards, join))
    left <- patience * source$timeout - (monotonic_seconds() - min(waiting, Inf, na.rm = TRUE))
    for (node in arrivals(state$cl, which(!is.na(waiting)), left)) {
      suspendInterrupts({
        reply <- receive_reply(state, node, source$timeout)
        if (!is_old(reply, request)) waiting[node] <- NA
      })
      if (!is.na(waiting[node])) next
      if (is.null(reply)) mark_worker_lost(state, node)
      refuse_failure(reply)
      if (!is.null(reply$unfit)) mark_worker_lost(state, node, paste(unfit_words(reply$unfit, request$version), "and is left out"))
      failure <- reply$failure
      if (!is.null(failure)) shard_failed(source, failure$shard, failure$message, failure$argument)
      if (length(reply$missing)) state$told[[node]] <- list()
      for (branch in reply$branches) {
        branches <- with_branch(branches, branch, join)
        done[branch_shards(branch, source$shards)] <- TRUE
      }
    }
    late <- which(monotonic_seconds() - waiting > patience * source$timeout)
    if (patience == 1 && length(late) > 1L && setequal(late, which(state$alive))) {   # slow, all of them, is not lost
      elvi_warn("No worker has answered for ", format(source$timeout), " seconds. elvi waits once more for the same time. ",
                "If passes take longer, give a larger `timeout`.", class = "elvi_warning_slow")
      patience <- 2
      next
    }
    for (node in late) {
      waiting[node] <- NA
      state$owes[node] <- TRUE
      mark_worker_lost(state, node, "has not answered in time")
    }
  }
}

# Before a pass: workers that were lost and are there again get their shards back. One that was too slow has answered since. A mirai
# cluster has a daemon again, which has no shards yet.
welcome_back <- function(source) {
  state <- source$state
  for (node in which(!state$alive)) {
    if (state$owes[node] && has_arrived(state$cl[[node]])) {
      state$owes[node] <- FALSE
      state$alive[node] <- !is.null(receive_reply(state, node, source$timeout))
    } else if (has_daemons(state$cl[[node]])) {
      state$alive[node] <- TRUE
      state$told[[node]] <- list()
    }
    if (!state$alive[node]) next
    state$owner[state$home == node] <- node
    elvi_inform("Worker ", node, " is back and gets its shards again.", class = "elvi_message_worker")
  }
}

# Has something come from a node? Nothing is waited for.
has_arrived <- function(node) {
  if (is_socket(node)) return(isTRUE(or_null(socketSelect(list(socket_of(node)), FALSE, 0))))
  inherits(node, "miraiNode") && !mirai::unresolved(node$mirai)
}

# Which of the recipes of this source it is: workers keep them. The centre is apart, since the same rows get another.
recipe_key <- function(state, recipe) {
  recipe <- uncentred(recipe)
  for (k in seq_along(state$recipes)) if (identical(state$recipes[[k]], recipe)) return(k)
  state$recipes <- c(state$recipes, list(recipe))
  length(state$recipes)
}

# Shards of workers that are lost go to those that have the fewest.
reassign_shards <- function(state, unfinished) {
  orphans <- which(!state$alive[state$owner])
  if (!length(orphans)) return(invisible())
  if (!any(state$alive)) {
    lost <- intersect(orphans, unfinished)
    elvi_abort("All workers are lost, and with them shard", if (length(lost) > 1L) "s", " ",
               toString(if (length(lost)) lost else orphans), ".", class = "elvi_error_worker", data = list(shards = lost))
  }
  for (shard in orphans) {
    load <- tabulate(state$owner, length(state$cl))
    load[!state$alive] <- Inf
    state$owner[shard] <- which.min(load)
  }
}

mark_worker_lost <- function(state, node, how = "is lost") {
  state$alive[node] <- FALSE
  elvi_warn("Worker ", node, " ", how, if (any(state$alive)) ": its shards (" else ", with its shards (",
            toString(which(state$owner == node)), ")", if (any(state$alive)) " are loaded again by others", ".",
            class = "elvi_warning_worker", data = list(worker = node))
}

# With load() and the recipe, if the worker has not had them for these shards.
send_shards <- function(source, node, shards, request, recipe) {
  state <- source$state
  told <- state$told[[node]]
  request$shards <- shards
  if (!all(shards %in% told$shards)) request$load <- source$load
  if (!request$key %in% told$recipes) request$recipe <- portable_recipe(recipe)
  sent <- send_call(state, node, sent_to_worker(), list(request), source$timeout)
  if (sent) state$told[[node]] <- list(shards = union(told$shards, shards), recipes = union(told$recipes, request$key))
  sent
}

# the generic functions by which 'parallel' talks to a node
engine <- function(name) utils::getFromNamespace(name, "parallel")

# A worker may fall silent in the middle of a message: the connections of a cluster by themselves wait for days.
within_timeout <- function(node, timeout, expr) {
  if (!is_socket(node)) return(expr)
  con <- socket_of(node)
  old <- socketTimeout(con, as.integer(min(max(ceiling(timeout), 1), 30 * 86400)))
  on.exit(socketTimeout(con, old))
  expr
}

socket_of <- function(node) if (!is.environment(node) || inherits(node, "SOCKnode")) node$con
is_socket <- function(node) inherits(socket_of(node), "sockconn")

refuse_failure <- function(reply) {
  if (!inherits(reply, "try-error")) return(invisible())
  elvi_abort("A worker could not answer: ", sub("\n$", "", as.character(reply)), class = "elvi_error_worker")
}

# An answer to what was asked before, by a source that had given the worker up or by the user: that to `request` is yet to come.
is_old <- function(reply, request) {
  if (is.null(reply) || inherits(reply, "try-error")) return(FALSE)
  !(inherits(reply, "elvi_reply") && identical(reply$number, request$number))
}

shard_failed <- function(source, shard, message, argument = NULL) {
  elvi_abort("Shard ", shard, " of ", source$shards, ": ", message,
             class = c("elvi_error_rows", "elvi_error_worker", if (!is.null(argument)) "elvi_error_argument"),
             data = list(shard = shard, argument = argument))
}

# The nodes of `waiting` that have something to say, within some seconds. Of a cluster that cannot tell, the first.
arrivals <- function(cl, waiting, within) {
  if (!length(waiting)) return(integer())
  nodes <- lapply(waiting, function(k) cl[[k]])
  within <- min(max(within, 0.001), 1e6)
  connections <- lapply(nodes, socket_of)
  if (all(vapply(connections, inherits, NA, "sockconn"))) {
    return(waiting[socketSelect(connections, FALSE, within)])
  }
  for (kind in names(has_answered)) {
    if (all(vapply(nodes, inherits, NA, kind))) return(waiting[polled(nodes, has_answered[[kind]], within)])
  }
  waiting[1L]
}

# of nodes that cannot be waited for together
has_answered <- list(
  miraiNode = function(node) !mirai::unresolved(node$mirai),
  MPInode = function(node) isTRUE(as.logical(Rmpi::mpi.iprobe(node$rank, node$RECVTAG, node$comm))))

polled <- function(nodes, answered, within) {
  now <- monotonic_seconds()
  end <- now + within
  look <- now + 1
  repeat {
    ready <- vapply(nodes, answered, NA)
    if (any(ready) || now > end) return(ready)
    if (now > look) {
      gone <- vapply(nodes, is_deserted, NA)
      if (any(gone)) return(gone)
      look <- now + 1
    }
    Sys.sleep(0.001)
    now <- monotonic_seconds()
  }
}

# Has a mirai cluster lost the connection to all of its daemons? Those that have not been there yet, in the queue of Slurm
# perhaps, are waited for.
is_deserted <- function(node) {
  connections <- daemons_of(node)
  if (is.na(connections)) return(FALSE)
  id <- attr(node, "id")
  if (connections > 0) assign(id, TRUE, daemons_seen)
  connections == 0 && !is.null(daemons_seen[[id]])
}

has_daemons <- function(node) isTRUE(daemons_of(node) > 0)

# their number, NA of another kind of node
daemons_of <- function(node) {
  id <- attr(node, "id")
  if (!inherits(node, "miraiNode") || is.null(id)) return(NA_real_)
  connections <- or_null(suppressWarnings(as.numeric(mirai::status(id)$connections)))
  if (length(connections) == 1L) connections else NA_real_
}

daemons_seen <- new.env(parent = emptyenv())

# ---- messages that an interrupt breaks off --------------------------------------------------

# R leaves the read or write of a socket at an interrupt or a time limit, and does not tell how far it has come. Signals
# cannot be blocked meanwhile: another thread, of BLAS for example, would run R's handler, which jumps to R's stack. So a
# request goes out in pieces that are counted, and an answer that was broken off is skipped. `unsent` are the bytes of a
# request, of which `sent` are sent; `torn`, whether the next bytes are the middle of an answer; `mark`, the text that the
# worker was asked to send after it; `unread`, the last bytes read in search of that.
new_exchange <- function(cl) {
  n <- length(cl)
  list2env(list(cl = cl, alive = rep(TRUE, n), owes = logical(n), told = rep(list(list()), n), recipes = list(), requests = 0,
                unsent = rep(list(raw()), n), sent = numeric(n), torn = logical(n), mark = character(n),
                unread = rep(list(raw()), n)), parent = emptyenv())
}

# Calls fun(args) on a worker, whose answer comes later. FALSE if the worker is lost.
send_call <- function(state, k, fun, args, timeout) {
  node <- state$cl[[k]]
  if (!is_socket(node)) return(succeeds(engine("sendCall")(node, fun, args)))
  suspendInterrupts({
    state$unsent[[k]] <- call_as_bytes(node, fun, args)
    state$sent[k] <- 0
  })
  send_rest(state, k, timeout)
}

# TRUE, or FALSE if an expression fails or warns; a time limit is not the worker's failure
succeeds <- function(expr) {
  tryCatch({
    expr
    TRUE
  }, warning = function(w) FALSE, error = function(e) if (is_time_limit(e)) stop(e) else FALSE)
}

# The methods of 'parallel' write to and read from the connection of a node: here one in memory.
node_in_memory <- function(node, con) structure(list(con = con, host = node$host, rank = node$rank), class = class(node))

call_as_bytes <- function(node, fun, args) {
  con <- rawConnection(raw(), "wb")
  on.exit(close(con))
  engine("sendCall")(node_in_memory(node, con), fun, args)
  rawConnectionValue(con)
}

reply_from_bytes <- function(node, bytes) {
  con <- rawConnection(bytes, "rb")
  on.exit(close(con))
  engine("recvResult")(node_in_memory(node, con))
}

# A socket that can be written to takes 2048 bytes at once (SO_SNDLOWAT), so a piece is sent or not, never half of it.
send_rest <- function(state, k, timeout, piece = 2048) {
  con <- socket_of(state$cl[[k]])
  while (length(state$unsent[[k]])) {
    size <- length(state$unsent[[k]])
    if (!socketSelect(list(con), TRUE, min(max(timeout, 0.001), 1e6))) return(FALSE)
    taken <- suspendInterrupts({
      to <- min(state$sent[k] + piece, size)
      taken <- succeeds(writeBin(state$unsent[[k]][seq(state$sent[k] + 1, to)], con))
      if (taken) state$sent[k] <- to
      if (taken && to == size) state$unsent[[k]] <- raw()
      taken
    })
    if (!taken) return(FALSE)
  }
  TRUE
}

# NULL from a worker that is lost
receive_reply <- function(state, k, timeout) {
  node <- state$cl[[k]]
  if (inherits(node, "miraiNode") && mirai::unresolved(node$mirai) && is_deserted(node)) return(NULL)
  state$torn[k] <- is_socket(node)   # until the answer is whole
  reply <- or_null(within_timeout(node, timeout, suppressWarnings(engine("recvResult")(node))))
  state$torn[k] <- FALSE
  if (inherits(reply, "errorValue") && !inherits(reply, "miraiError")) return(NULL)   # mirai's word for a lost connection
  reply
}

# Answers that are on their way when an error or an interrupt ends a pass: what comes next must not get them. Another
# interrupt does not end this, but a minute does.
drain <- function(source, waiting, request) {
  if (!length(waiting)) return(invisible())
  state <- source$state
  end <- monotonic_seconds() + min(source$timeout, 60)
  left <- list2env(list(waiting = waiting), parent = emptyenv())
  again <- function(e) if (inherits(e, "interrupt") || is_time_limit(e)) NULL else stop(e)
  suspendInterrupts({
    while (length(left$waiting) && monotonic_seconds() < end) {
      tryCatch(drain_some(state, left, request, end), interrupt = again, error = again)
    }
    for (node in left$waiting) mark_worker_lost(state, node, "has not answered in time")
  })
}

drain_some <- function(state, left, request, end) {
  for (node in left$waiting) {
    ready <- prepare_to_skip(state, node, end)
    if (!isTRUE(ready)) left$waiting <- setdiff(left$waiting, node)
    if (is.na(ready)) mark_worker_lost(state, node)
  }
  for (node in arrivals(state$cl, left$waiting, end - monotonic_seconds())) {
    if (state$torn[node]) {
      answered <- skip_to_mark(state, node)
    } else {
      reply <- receive_reply(state, node, end - monotonic_seconds())
      answered <- if (is.null(reply)) NA else !is_old(reply, request)
    }
    if (!isFALSE(answered)) left$waiting <- setdiff(left$waiting, node)
    if (is.na(answered)) mark_worker_lost(state, node)
  }
}

# Sends the rest of a request, and asks for a mark after an answer that was broken off. FALSE if the worker has got nothing
# of the request, and will not answer; NA if it is lost.
prepare_to_skip <- function(state, k, end) {
  if (length(state$unsent[[k]]) && state$sent[k] == 0 && !nzchar(state$mark[k])) {
    state$unsent[[k]] <- raw()
    return(FALSE)
  }
  if (!send_rest(state, k, end - monotonic_seconds())) return(NA)
  if (!state$torn[k] || nzchar(state$mark[k])) return(TRUE)
  state$unread[[k]] <- raw()
  state$mark[k] <- paste("elvi", Sys.getpid(), format(as.numeric(Sys.time()), digits = 17), k)
  if (send_call(state, k, send_back, list(state$mark[k]), end - monotonic_seconds())) TRUE else NA
}

send_back <- function(x) x
environment(send_back) <- baseenv()

# Reads what has arrived. TRUE if it ends with the mark, NA if the worker is lost.
skip_to_mark <- function(state, k) {
  node <- state$cl[[k]]
  mark <- state$mark[k]
  state$mark[k] <- ""   # if this is interrupted, bytes are lost, and another mark is needed
  bytes <- read_what_is_there(socket_of(node))
  if (!length(bytes)) return(NA)
  state$mark[k] <- mark
  state$unread[[k]] <- utils::tail(c(state$unread[[k]], bytes), 4096)
  if (!ends_with_reply(node, state$unread[[k]], mark)) return(FALSE)
  state$mark[k] <- ""
  state$torn[k] <- FALSE
  TRUE
}

read_what_is_there <- function(con) {
  old <- socketTimeout(con, 0L)
  on.exit(socketTimeout(con, old))
  readBin(con, "raw", 65536)
}

# A message begins as serialize() does: a letter for the format, a newline, its version.
ends_with_reply <- function(node, bytes, reply) {
  text <- rawToChar(replace(bytes, bytes == 0, as.raw(1)))
  starts <- gregexpr("X\n\001{3}[\002\003]|B\n[\002\003]\001{3}", text, useBytes = TRUE)[[1L]]
  for (from in rev(starts[starts > 0])) {
    found <- or_null(suppressWarnings(reply_from_bytes(node, bytes[seq(from, length(bytes))])))
    if (identical(found, reply)) return(TRUE)
  }
  FALSE
}

# ---- what travels -----------------------------------------------------------------------------

# A recipe whose formula brings along what it takes from its environment, and nothing else of that.
portable_recipe <- function(recipe) {
  recipe <- uncentred(recipe)
  if (is.null(recipe$terms)) return(recipe)
  extra <- recipe$extra[names(recipe$extra) != "na.action"]
  mentioned <- unique(c(all.names(attr(recipe$terms, "variables")), unlist(lapply(extra, all.names))))
  from <- environment(recipe$terms)
  luggage <- new.env(parent = globalenv())
  for (name in setdiff(mentioned, recipe$columns)) {
    at <- from
    while (!identical(at, emptyenv()) && !exists(name, at, inherits = FALSE) && !identical(at, globalenv())) at <- parent.env(at)
    if (!identical(at, emptyenv()) && exists(name, at, inherits = FALSE)) assign(name, get(name, at), luggage)
  }
  environment(recipe$terms) <- luggage
  if (!is.null(recipe$fixed)) environment(recipe$fixed) <- luggage
  recipe$latent <- lapply(recipe$latent, with_environment, luggage)
  recipe
}
