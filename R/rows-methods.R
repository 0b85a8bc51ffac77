# Methods of a fit whose rows live elsewhere, at its own data: chunk by chunk, as for a fit of that chunk.

check_in_memory <- function(object) {
  if (!is_elsewhere(object$given$model)) return(invisible())
  elvi_abort("The rows of this fit are not in memory: this would have to hold all of them. Give `newdata`; predict(), ",
             "fitted(), residuals(), log_lik() and loo() read the rows again by themselves.", class = "elvi_error_rows")
}

# What `method`, the name of a function of a fit, gives for each chunk, put together: a list.
at_chunks <- function(object, method, args = list()) {
  rows <- object$given$model$rows
  found <- pass_over(rows$place, rows$recipe, "method", list(object = portable_fit(object), method = method, args = args))
  check_unchanged(rows, found$check)
  lapply(found$answer, function(x) {
    if (anyDuplicated(if (is.matrix(x)) colnames(x) else names(x))) {   # chunks that count from 1 each
      if (is.matrix(x)) colnames(x) <- seq_len(ncol(x)) else names(x) <- seq_along(x)
    }
    x
  })
}

# predict() of a fit at its own rows
predict_elsewhere <- function(object, method, interval, args) {
  if (interval != "none") bad_argument("newdata", "given with `interval` where the rows are not in memory", "NULL")
  out <- at_chunks(object, method, args)
  if (args$se.fit) out else out[[1L]]
}

# A fit without what its rows came from: the model is one of rows in memory, of which there are none yet.
portable_fit <- function(object) {
  model <- object$given$model
  keep <- c("kind", "dim", "names", "likelihood", "error_df", "family", "dispersion", "dispersion_at", "reported", "convex",
            "blocks")
  small <- unclass(model)[intersect(keep, names(model))]
  object$given$model <- structure(small, class = setdiff(class(model), "elvi_model_elsewhere"))
  object$given$call <- object$given$call[intersect(c("", "offset"), names(object$given$call))]
  without_environments(object)
}

without_environments <- function(object) UseMethod("without_environments")

#' @export
without_environments.elvi_glm <- function(object) {
  environment(object$regression$terms) <- environment(object$regression$formula) <- globalenv()
  object
}

#' @export
without_environments.elvi_nested <- function(object) {
  object$call <- object$call[intersect(c("", "offset"), names(object$call))]
  environment(object$terms) <- environment(object$formula) <- environment(attr(object$frame, "terms")) <- globalenv()
  object
}

# a fit of that chunk
with_rows <- function(object, frame, rows) UseMethod("with_rows")

#' @export
with_rows.elvi_glm <- function(object, frame, rows) {
  object$regression$frame <- frame
  object$regression$na.action <- attr(frame, "na.action")
  object$given$model$rows <- rows
  object
}

#' @export
with_rows.elvi_nested <- function(object, frame, rows) {
  object[["frame"]] <- frame
  object["na.action"] <- list(attr(frame, "na.action"))
  object$problem$y <- rows$y
  object["given"] <- list(NULL)
  object
}

chunk_method <- function(recipe, chunk, args) {
  chunk <- check_chunk(chunk)
  frame <- recipe_frame(recipe, chunk)
  if (!nrow(frame)) return(NULL)
  rows <- read_rows(framed_design(recipe, chunk), family_records[[recipe$likelihood]])
  out <- do.call(args$method, c(list(with_rows(args$object, frame, rows)), args$args))
  structure(if (is.list(out)) out else list(out), check = check_sums(rows, recipe))
}
