# Methods of a fit whose data are larger than memory, at its own data: chunk by chunk, as for a fit of that chunk.

check_in_memory <- function(object) {
  if (!is_out_of_memory(object)) return(invisible())
  elvi_abort("The data of this fit are not in memory, and this method needs all rows at once. Give `newdata`; predict(), ",
             "posterior_predict(), fitted(), residuals(), log_lik(), loo() and kfold() read the rows again by themselves.",
             class = "elvi_error_rows")
}

# What `method`, the name of a function of a fit, gives for each chunk, put together: a list.
at_chunks <- function(object, method, args = list()) {
  rows <- source_rows(object)
  found <- pass_over(rows$source, rows$recipe, "method", list(object = portable_fit(object), method = method, args = args))
  check_unchanged(rows, found$check)
  lapply(found$answer, function(x) {
    if (anyDuplicated(if (is.matrix(x)) colnames(x) else names(x))) {   # chunks that count from 1 each
      if (is.matrix(x)) colnames(x) <- seq_len(ncol(x)) else names(x) <- seq_along(x)
    }
    x
  })
}

# predict() of a fit at its own rows
predict_out_of_memory <- function(object, args) {
  if (args$interval != "none") return(t(at_chunks(object, "limits_of_chunk", args)[[1L]]))
  out <- at_chunks(object, "predict.elvi_glm", args)
  if (args$se.fit) out else out[[1L]]
}

# of a fit of a chunk: a column for each row
limits_of_chunk <- function(object, ...) t(as.matrix(predict.elvi_glm(object, ...)))

# draws x rows of posterior_predict() and related methods at a fit's own rows
draws_in_passes <- function(object, method, draws, re.form, seed) {
  draws <- check_draws(draws, max(nobs.elvi_glm(object), posterior_dim(object$posterior)))
  at_chunks(object, paste0(method, ".elvi_glm"), list(draws = draws, re.form = re.form, seed = seed))[[1L]]
}

# A fit without what its rows came from, for a worker: its posterior, and what the formula gave.
portable_fit <- function(object) {
  call <- object$given$call[intersect(c("", "offset"), names(object$given$call))]
  portable <- new_fit(list(call = call, base = object$given$base), result = list(posterior = object$posterior))
  portable$regression <- object$regression
  environment(portable$regression$terms) <- environment(portable$regression$formula) <- globalenv()
  portable$regression$groups <- lapply(portable$regression$groups, with_environment, globalenv())
  if (!is.null(attr(object$frame, "terms"))) environment(attr(portable$regression$frame, "terms")) <- globalenv()
  structure(portable, class = class(object))
}

# a latent term whose formula of slopes has this environment
with_environment <- function(term, env) {
  if (!is.null(term$slopes)) environment(term$slopes) <- env
  term
}

# a fit of that chunk; `place`: how many shards, chunks and rows are before it, which tells apart the noise of chunks with the same design
with_rows <- function(object, frame, rows, place) {
  if (any(place > 0)) object$regression$place <- place
  object$regression["frame"] <- list(frame)
  object$regression["na.action"] <- list(attr(frame, "na.action"))
  object$regression$y <- rows$y
  object
}

# Some rows at a time: draws of a whole chunk may not fit in memory.
chunk_method <- function(recipe, chunk, args, most = 5000L) {
  chunk <- check_chunk(chunk)
  whole <- args$method == "kfold_of_chunk"   # it needs the place of its chunk, and splits the rows itself
  if (whole) args$args$place <- args$place
  if (whole || nrow(chunk) <= most) return(rows_method(recipe, chunk, args))
  task <- row_tasks$method
  out <- check <- NULL
  for (first in seq(1L, nrow(chunk), by = most)) {
    here <- replace(args, "place", list(c(args$place, first - 1)))
    part <- rows_method(recipe, rows_at(chunk, first:min(first + most - 1L, nrow(chunk))), here)
    check <- add_checks(check, attr(part, "check"))
    out <- task$join(out, part)
  }
  if (!is.null(out)) structure(out, check = check)
}

rows_method <- function(recipe, chunk, args) {
  frame <- recipe_frame(recipe, chunk)
  if (!nrow(frame)) return(NULL)
  rows <- read_rows(framed_design(recipe, chunk), family_records[[recipe$likelihood]])
  out <- do.call(args$method, c(list(with_rows(args$object, frame, rows, args$place)), args$args))
  structure(if (is.list(out)) out else list(out), check = check_sums(rows, recipe))
}
