# Checkpoints: a run on disk, from which another session can go on.
#
# The journal of a run holds its last consistent state, in memory for an interrupt
# and, with a checkpoint file, every so many seconds on disk for anything worse. The
# file never holds half a state: it is written under another name and then renamed.

# ---- the journal ---------------------------------------------------------------------

# `progress` takes from a fit what has to be saved of it.
new_journal <- function(fit, file = NULL, every = Inf, progress = identity) {
  list2env(list(fit = fit, file = if (!is.null(file)) checkpoint_path(file), every = every,
                progress = progress, failed = FALSE), parent = emptyenv())
}

# The journal of a run of elvi() that is about to start; its $fit is where to start from.
# On a model (`takes_up`) that is the state in the checkpoint file, if there is one.
open_journal <- function(fit, law, takes_up = TRUE) {
  conduct <- fit$given$conduct
  journal <- new_journal(fit, conduct$checkpoint, conduct$checkpoint_every, progress_of)
  if (is.null(journal$file)) return(journal)
  journal$fingerprint <- fingerprint(fit, law)
  journal$schedule_numbers <- function(shorten) {
    plan_schedule(fit$given$schedule, fit$given$model$dim, law$kurtosis, fit$plan$smoothness, fit$given$control, shorten)
  }
  journal$fit$given$conduct$checkpoint <- journal$file   # the same one after setwd()
  begin_journal(journal, if (takes_up) take_up else same_run)
}

# The first entry: what the file has, if there is one, as `resume` makes a fit of it; and
# whether the file can be written is known now.
begin_journal <- function(journal, resume) {
  if (file.exists(journal$file)) {
    journal$fit <- resume(read_checkpoint(journal$file), journal, journal$fit)
  }
  unlink(abandoned_files(journal$file), expand = FALSE)
  tryCatch(write_entry(journal), elvi_write_failed = function(e) {
    bad_checkpoint(journal$file, paste0("a file that can be written (", conditionMessage(e), ")"))
  })
  journal
}

# Notes the state of the run, and writes it when it is time to.
journal_write <- function(journal, fit) {
  journal$fit <- fit
  if (journal_due_in(journal) <= 0) write_or_warn(journal)
}

close_journal <- function(journal, fit) {
  journal$fit <- fit
  if (!is.null(journal$file)) write_or_warn(journal)
}

journal_due_in <- function(journal) {
  if (is.null(journal$file)) return(Inf)
  max(0, journal$written + journal$every - monotonic_seconds())
}

# not the time of day, which can be set back
monotonic_seconds <- function() .Call(elvi_r_clock)

# A run of hours does not end because the disk is full now: it may not be later.
write_or_warn <- function(journal) {
  tryCatch(write_entry(journal), elvi_write_failed = function(e) {
    if (!journal$failed) {
      elvi_warn("The checkpoint could not be written: ", conditionMessage(e),
                ". The run continues. (", journal$file, ")", class = "elvi_warning_checkpoint")
    }
    journal$failed <- TRUE
    journal$written <- monotonic_seconds()
  })
}

write_entry <- function(journal) {
  entry <- list(fingerprint = journal$fingerprint, progress = journal$progress(journal$fit))
  write_checkpoint(entry, journal$file)
  journal$written <- monotonic_seconds()
}

# All that a run makes; what it is given stays with the user. The data may be large.
progress_of <- function(fit) unclass(fit)[c("plan", "state", "result")]

take_up <- function(stored, journal, fit) {
  refuse_difference(journal$file, fingerprint_difference(stored$fingerprint, journal$fingerprint, fit))
  refuse_shape(journal$file, stored$progress, fit)
  if (!sound_plan(stored$progress$plan, journal$schedule_numbers) || !sound_result(stored$progress$result, fit$state) ||
      !sound_state(stored$progress$state, stored$progress$plan$iterations)) refuse_values(journal$file)
  fit <- do.call(new_fit, c(list(given = fit$given), stored$progress, list(regression = fit$regression)))
  say_resuming(journal$file, fit)
  fit
}

say_resuming <- function(file, fit) {
  elvi_inform("Resuming from the checkpoint after ", format_count(fit$state$k), " of ",
              format_count(fit$plan$iterations), " iterations (", file, ").",
              class = "elvi_message_checkpoint")
}

refuse_difference <- function(file, difference) {
  if (is.null(difference)) return(invisible())
  bad_checkpoint(file, "one of this run",
                 paste0("one with another `", difference$what, "`", difference$how),
                 differs = difference$what)
}

# A run continues from the fit that is given, but does not overwrite the file of another run.
same_run <- function(stored, journal, fit) {
  if (!identical(stored$progress$plan$seed, fit$plan$seed)) {
    bad_checkpoint(journal$file, "one of this run", "one with other draws", differs = "seed")
  }
  fit
}

bad_checkpoint <- function(file, expected, got = NULL, differs = NULL) {
  elvi_abort("`checkpoint` must be ", expected, if (!is.null(got)) paste0(", not ", got), ": ",
             file, ".", if (utils::file_test("-f", file)) " To start again, delete it or use another name.",
             class = c("elvi_error_checkpoint", "elvi_error_argument"),
             data = list(argument = "checkpoint", file = file, differs = differs))
}

# ---- which run it is --------------------------------------------------------------------

# What decides a run, in brief. Numbers that come out of BLAS can differ in their last
# digits with the number of threads: those are apart, and compared to a tolerance.
fingerprint <- function(fit, law) {
  model <- fit$given$model
  start <- model_theta(fit, fit$plan$start)
  points <- landmarks(start)
  rounded <- names(model) == "smoothness"   # which is compared as the plan has it
  list(exact = exact_fingerprint(algorithm = "elvi", model = unclass(model)[!rounded], base = unclass(law),
                                 schedule = unclass(fit$given$schedule), tol = fit$given$tol,
                                 control = unclass(fit$given$control)),
       start = start, smoothness = fit$plan$smoothness,
       points = points, target = guarded_at(model, points))
}

exact_fingerprint <- function(algorithm, ...) {
  version <- as.character(utils::packageVersion("elvi"))
  digest(list(`version of elvi` = version, algorithm = algorithm, ...))
}

# Three points about where the run starts, to know a target by that is a function.
landmarks <- function(start) {
  spread <- function(z) drop(root_times(start$scale, z))
  i <- seq_along(start$mu)
  cbind(start$mu, start$mu + spread(cos(i)), start$mu + 3 * spread(sin(i)))
}

# NULL, or what differs first between two fingerprints, and how.
fingerprint_difference <- function(stored, now, fit) {
  exact <- first_difference(stored$exact, now$exact)
  if (!is.null(exact)) return(exact)
  if (!about_same(stored$smoothness, now$smoothness, 1e-6)) {
    return(difference("smoothness", stored$smoothness, now$smoothness))
  }
  if (!about_same(stored$start, now$start, 1e-6)) return(difference("start"))
  if (!about_same(stored$target, guarded_at(fit$given$model, stored$points))) {
    return(list(what = "model", how = " (its functions have other values)"))
  }
  NULL
}

about_same <- function(a, b, tolerance = 1e-10) {
  isTRUE(all.equal(a, b, tolerance = tolerance, check.attributes = FALSE))
}

difference <- function(what, stored = NULL, now = NULL) {
  short <- function(x) is.atomic(x) && length(x) == 1L && is.null(names(x))
  both <- short(stored) && short(now)
  list(what = what, how = if (both) paste0(" (", describe(stored), ", now ", describe(now), ")"))
}

first_difference <- function(a, b, path = NULL) {
  if (identical(a, b)) return(NULL)
  if (is.null(names(a)) || is.null(names(b))) return(difference(paste(path, collapse = "$"), a, b))
  for (name in union(names(a), names(b))) {
    found <- first_difference(a[[name]], b[[name]], c(path, name))
    if (!is.null(found)) return(found)
  }
  NULL
}

# Short things as they are, long ones by number and sum; functions are known by their
# values, environments not at all.
digest <- function(x) {
  if (is.null(x)) return(NULL)
  if (is.list(x)) return(lapply(x, digest))
  if (isS4(x)) {
    slots <- methods::slotNames(x)
    return(lapply(stats::setNames(slots, slots), function(s) digest(methods::slot(x, s))))
  }
  if (is.character(x)) return(if (length(x) <= 1000L) as.vector(x) else digest(nchar(x, "bytes")))
  if (!is.numeric(x) && !is.logical(x)) return(typeof(x))
  if (length(x) <= 1L) as.vector(x) else digest_numbers(x)
}

# A sum with weights that depend on the place, piece by piece: a copy of x may not fit.
digest_numbers <- function(x, piece = 1e6) {
  total <- c(0, 0)
  for (from in seq(1, length(x), by = piece)) {
    i <- seq(from, min(from + piece - 1, length(x)))
    v <- as.double(x[i])
    weight <- (i * 0.6180339887498949) %% 1 + 0.5
    odd <- which(!is.finite(v))
    kind <- match(v[odd], c(NA, NaN, Inf, -Inf))
    v[odd] <- 0
    total <- total + c(sum(v * weight), sum(kind * weight[odd]))
  }
  c(dim(x) %||% length(x), total)
}

# ---- the file ------------------------------------------------------------------------------

# The serialised object, then a line with its checksum: what is damaged is never
# unserialised.
write_checkpoint <- function(x, file) {
  bytes <- serialize(x, NULL, version = 2)   # 3 has more than plainly_serialised() needs to know
  replace_file(c(bytes, seal(bytes)), file)
}

replace_file <- function(bytes, file) {
  temporary <- paste0(file, ".", Sys.getpid(), ".tmp")
  on.exit(unlink(temporary, expand = FALSE))
  write_bytes(bytes, temporary)
  if (file.exists(file)) Sys.chmod(temporary, file.mode(file), use_umask = FALSE) else Sys.chmod(temporary, "666")
  put_on_disk(temporary)   # or a machine that stops may have the new name with nothing behind it
  renamed <- suppressWarnings(file.rename(temporary, file))
  if (!renamed) write_failed("a temporary file cannot be renamed to it")
  put_on_disk(dirname(file))
}

put_on_disk <- function(path) .Call(elvi_r_sync, path)

seal <- function(bytes) charToRaw(paste0("\nelvi checkpoint 4 ", .Call(elvi_r_checksum, bytes), "\n"))

# until its mode is known nobody else may read it
write_bytes <- function(bytes, file) {
  write_all <- function() {
    before <- Sys.umask("077")
    on.exit(Sys.umask(before))
    connection <- base::file(file, "wb")
    on.exit(close(connection), add = TRUE)
    writeBin(bytes, connection)
  }
  or_else(suppressWarnings(write_all()), write_failed("no file can be made there"))
  # a full disk is noticed when the buffer is emptied, which fails without a word
  complete <- identical(file.size(file), as.double(length(bytes)))
  if (!complete) write_failed("it is cut short, as on a full disk")
}

write_failed <- function(why) elvi_abort(why, class = "elvi_write_failed")

read_bytes <- function(file) readBin(file, "raw", file.size(file))

damaged_checkpoint <- function(file) bad_checkpoint(file, "a checkpoint", "another kind of file, or a damaged one")

checkpoint_bytes <- function(file) {
  # a pipe or a device has no size, and opening it can wait for ever
  if (isTRUE(file.size(file) == 0)) damaged_checkpoint(file)
  or_else(suppressWarnings(read_bytes(file)), elvi_abort(
    "`checkpoint` cannot be read: ", file, ". Its permissions do not allow it, or the disk fails; the file itself may be intact.",
    class = c("elvi_error_checkpoint", "elvi_error_argument"), data = list(argument = "checkpoint", file = file, differs = NULL)))
}

read_checkpoint <- function(file) {
  damaged <- function(...) damaged_checkpoint(file)
  bytes <- checkpoint_bytes(file)
  sealed <- length(bytes) - length(seal(raw()))
  if (sealed < 1) damaged()
  payload <- bytes[seq_len(sealed)]
  if (!identical(bytes[-seq_len(sealed)], seal(payload))) damaged()
  if (!plainly_serialised(payload)) damaged()
  stored <- or_else(unserialize(payload), damaged())
  if (!is_plain(stored)) damaged()
  stored
}

# Are the bytes those of vectors, lists and attributes, and of nothing else? It has to be known before they are
# unserialised: a reference to a namespace loads a package there and then, and a promise runs as soon as it has a name.
# The format is in 'R Internals', "Serialization Formats".
plainly_serialised <- function(bytes) {
  starts <- as.raw(c(0x58, 0x0a, 0, 0, 0, 2))   # "X\n", version 2; two versions of R follow
  if (length(bytes) < 14L || !identical(bytes[1:6], starts)) return(FALSE)
  place <- list2env(list(bytes = bytes, at = 14), parent = emptyenv())
  isTRUE(tryCatch({
    read_item(place)
    place$at == length(bytes)
  }, elvi_not_plain = function(e) FALSE))
}

not_plain <- function() elvi_abort("not plain", class = "elvi_not_plain")

skip_bytes <- function(place, n) {
  force(n)   # which may be read, and move on, itself
  place$at <- place$at + n
  if (is.na(place$at) || n < 0 || place$at > length(place$bytes)) not_plain()
}

read_integer <- function(place) {
  skip_bytes(place, 4)
  readBin(place$bytes[place$at - 3:0], "integer", endian = "big")
}

read_item <- function(place, depth = 1L) {
  if (depth > 100L) not_plain()
  flags <- read_integer(place)
  has <- function(bit) bitwAnd(flags, bit) > 0L
  inside <- function() read_item(place, depth + 1L)
  pairs <- function() {   # attributes; here they have no attributes of their own
    if (has(512L)) not_plain()
    if (has(1024L)) inside()
    inside()
    inside()
  }
  vector <- function(size) {
    n <- read_integer(place)
    if (size > 0) skip_bytes(place, size * n) else for (i in seq_len(max(0L, n))) inside()
    if (has(512L)) inside()
  }
  switch(as.character(bitwAnd(flags, 255L)),
         `254` = NULL,
         `255` = if (flags == 255L) read_integer(place),   # a symbol that has been there
         `1` = inside(),
         `2` = pairs(),
         `9` = skip_bytes(place, max(0L, read_integer(place))),   # -1: missing
         `10` = , `13` = vector(4), `14` = vector(8), `24` = vector(1),
         `16` = , `19` = vector(0),
         not_plain())
  invisible()
}

# Vectors and lists of them, with no attributes but those of arrays and data frames: nothing that could run when
# it is looked at, as a function, an environment or a promise in one does.
is_plain <- function(x) {
  if (is.null(x)) return(TRUE)
  if (isS4(x) || !typeof(x) %in% c("logical", "integer", "double", "character", "raw", "list")) return(FALSE)
  about <- attributes(x)
  all(names(about) %in% c("names", "dim", "dimnames", "class", "row.names")) &&
    all(vapply(about, is_plain, NA)) && (!is.list(x) || all(vapply(unclass(x), is_plain, NA)))
}

# What C reads by length must have it.
refuse_shape <- function(file, progress, fit) {
  sound <- same_shape(progress$plan, fit$plan) && same_shape(progress$state, fit$state)
  if (!sound) bad_checkpoint(file, "a checkpoint", "one whose numbers have other types or lengths than this run's")
}

# Is every number and text of `now` in `stored` as well, of the same type and length? What is empty at the start of a run is
# filled as it goes.
same_shape <- function(stored, now) {
  if (!length(now)) return(is.null(now) || typeof(stored) == typeof(now))
  if (typeof(stored) != typeof(now)) return(FALSE)
  if (!is.list(now)) return(length(stored) == length(now))
  all(vapply(names(now), function(name) same_shape(unclass(stored)[[name]], unclass(now)[[name]]), NA))
}

# The numbers of the schedule are those of the call, except how often its steps were shortened; others must be possible.
sound_plan <- function(plan, schedule_numbers) {
  steps <- 4^(0:log(most_shortened, 4))
  if (!isTRUE(plan$shorten %in% steps)) return(FALSE)
  expected <- schedule_numbers(plan$shorten)
  limits <- plan$feasible
  about_same(plan[names(expected)], expected, 1e-6) && all_in(plan$seed, 0, 2^32 - 1, whole = TRUE) &&
    all_in(unlist(plan$start)) && all_in(unlist(plan$work[c("A", "m", "log_det")])) && all_in(limits$mu_centre) &&
    all_in(limits$scale_min, 0) && all_in(limits$scale_max, limits$scale_min, Inf) && all_in(limits$mu_radius, 0, Inf)
}

sound_state <- function(state, iterations) {
  counts <- unlist(state[c("k", "evals", "checks", "outside", "looked")])
  stage <- state$stage
  all_in(unlist(state[c("mu", "scale", "average_mu", "average_scale")])) && all_in(counts, 0, 2^53, whole = TRUE) &&
    state$k <= iterations && all_in(unlist(state[c("alpha", "weight", "shorten", "steepest")]), 0) &&
    (is.null(stage) || is.list(stage) && all_in(stage$end, state$k, iterations, whole = TRUE) && all_in(stage$look, 0, 2^53))
}

sound_result <- function(result, state) {
  theta <- result$theta
  (is.null(theta) || same_shape(theta, state[c("mu", "scale")]) && all_in(unlist(theta))) &&
    (is.null(result$status) || isTRUE(result$status %in% c("finished", "paused", "interrupted", "diverged")))
}

# Are they numbers from `least` to `most`, finite unless `most` is not? Shapes are known.
all_in <- function(x, least = -.Machine$double.xmax, most = .Machine$double.xmax, whole = FALSE) {
  is.null(x) || is.numeric(x) && !anyNA(x) && all(x >= least & x <= most) && (!whole || all(x == round(x)))
}

refuse_values <- function(file) bad_checkpoint(file, "a checkpoint", "one with values that this run cannot have")

# Absolute: a user's function may change the directory.
checkpoint_path <- function(file) {
  directory <- dirname(file)
  if (!dir.exists(directory)) {
    bad_checkpoint(file, "in a directory that exists", "in one that does not")
  }
  if (dir.exists(file)) bad_checkpoint(file, "a file", "a directory")
  if (file.exists(file)) return(normalizePath(file))
  file.path(normalizePath(directory), basename(file))
}

# What processes that were killed while they wrote have left.
abandoned_files <- function(file) {
  near <- list.files(dirname(file), all.files = TRUE)
  start <- paste0(basename(file), ".")
  file.path(dirname(file), near[startsWith(near, start) &
                                  grepl("^[0-9]+[.]tmp$", substring(near, nchar(start) + 1L))])
}
