# by = f in a latent term, as in rw1(x, by = f): a term of its own for each level of a factor, with its own hyperparameters, made of the
# rows of that level and absent from the others. `only` of such a term is list(variable, level).

# a call without its `by`, and the variable there; NULL without one
split_by <- function(call) {
  arguments <- as.list(call)
  list(call = as.call(arguments[setdiff(seq_along(arguments), match("by", names(arguments)))]), by = arguments[["by"]])
}

by_variables <- function(kind, call) {
  parts <- split_by(call)
  c(term_kinds[[kind]]$variables(parts$call), if (!is.null(parts$by)) list(parts$by))
}

make_terms_by <- function(kind, call, frame, counting, contrasts) {
  parts <- split_by(call)
  make <- function(frame, counting) term_kinds[[kind]]$make(parts$call, frame, counting, contrasts)
  if (is.null(parts$by)) return(make(frame, counting))
  name <- deparse_one(parts$by)
  f <- frame[[name]]
  if (is.character(f) || is.logical(f)) f <- factor(f)
  if (!is.factor(f)) refuse_term(call, paste0("`by` must be a factor, and `", name, "` is ", describe(f)))
  do.call(c, lapply(levels(droplevels(f)), function(level) {
    own <- which(f == level)
    terms <- make(rows_of_frame(frame, own), if (isTRUE(counting)) TRUE else counting[own])
    lapply(terms, function(term) {
      term$label <- paste0(term$label, ":", name, level)
      term$only <- list(variable = name, level = level)
      term
    })
  }))
}

# a model frame that remembers its terms
rows_of_frame <- function(frame, rows) {
  out <- frame[rows, , drop = FALSE]
  attr(out, "terms") <- attr(frame, "terms")
  out
}

# the rows of a term, NULL for all
own_rows <- function(term, frame) if (!is.null(term$only)) which(as.character(frame[[term$only$variable]]) == term$only$level)

spread_rows <- function(own, n) Matrix::sparseMatrix(i = own, j = seq_along(own), x = rep(1, length(own)), dims = c(n, length(own)))

# ---- what records say, for the rows of a term ---------------------------------------------------------------------

term_columns <- function(term, frame, smooths = NULL) {
  own <- own_rows(term, frame)
  if (is.null(own)) return(term_record(term)$columns(term, frame, smooths))
  if (!length(own)) return(empty_columns(nrow(frame), length(term$columns)))
  spread_rows(own, nrow(frame)) %*% term_record(term)$columns(term, rows_of_frame(frame, own), smooths)
}

term_free <- function(term, frame) {
  own <- own_rows(term, frame)
  if (is.null(own)) return(term_record(term)$free(term, frame))
  free <- term_record(term)$free(term, if (length(own)) rows_of_frame(frame, own) else frame)
  if (is.null(free)) return(NULL)
  out <- matrix(0, nrow(frame), ncol(free), dimnames = list(NULL, colnames(free)))
  if (length(own)) out[own, ] <- free
  out
}

term_unseen <- function(term, frame, allowed) {
  own <- own_rows(term, frame)
  if (is.null(own)) return(term_record(term)$unseen(term, frame, allowed))
  if (!length(own)) return(NULL)
  new <- term_record(term)$unseen(term, rows_of_frame(frame, own), allowed)
  if (!is.null(new)) new$rows <- own[new$rows]
  new
}
