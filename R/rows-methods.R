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

# A fit without what its rows came from: the model is one of rows in memory, of which there are none yet.
portable_fit <- function(object) {
  model <- object$given$model
  keep <- c("kind", "dim", "names", "likelihood", "error_df", "family", "dispersion", "dispersion_at", "reported", "convex",
            "blocks")
  small <- unclass(model)[intersect(keep, names(model))]
  object$given$model <- structure(small, class = setdiff(class(model), "elvi_model_elsewhere"))
  object$given$call <- object$given$call[intersect(c("", "offset"), names(object$given$call))]
  if (inherits(object, "elvi_nested")) {
    object$call <- object$call[intersect(c("", "offset"), names(object$call))]
    environment(object$terms) <- environment(object$formula) <- environment(attr(object$frame, "terms")) <- globalenv()
  } else {
    environment(object$regression$terms) <- environment(object$regression$formula) <- globalenv()
  }
  object
}

chunk_method <- function(recipe, chunk, args) {
  chunk <- check_chunk(chunk)
  frame <- recipe_frame(recipe, chunk)
  if (!nrow(frame)) return(NULL)
  object <- args$object
  rows <- read_rows(framed_design(recipe, chunk), family_records[[recipe$likelihood]])
  if (inherits(object, "elvi_nested")) {
    object[["frame"]] <- frame
    object["na.action"] <- list(attr(frame, "na.action"))
    object$problem$y <- rows$y
    object["given"] <- list(NULL)
  } else {
    object$regression$frame <- frame
    object$regression$na.action <- attr(frame, "na.action")
    object$given$model$rows <- rows
  }
  out <- do.call(args$method, c(list(object), args$args))
  structure(if (is.list(out)) out else list(out), check = check_sums(rows, recipe))
}
