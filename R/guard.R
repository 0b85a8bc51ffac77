# A target that may fail: a point where it throws, or where its value or a partial
# derivative is not finite, is a rejected point and not the end of a run.

# `evaluate(x)` has f and its gradient at the columns of x and says at which of them both are
# numbers; `account` counts points and keeps what the target said when it first failed.
guarded_target <- function(model) {
  account <- new_account()
  list(evaluate = function(x) evaluate_guarded(model, x, account), account = account, dim = model$dim)
}

new_account <- function() {
  list2env(list(evaluations = 0, outside = 0, first_error = NULL), parent = emptyenv())
}

evaluate_guarded <- function(model, x, account) {
  both <- call_guarded(function(x) values_and_gradients(model, x), x, model$dim + 1, account)
  ok <- note_outside(colSums(!is.finite(both)) == 0, account)
  list(value = both[1L, ], gradient = both[-1L, , drop = FALSE], ok = ok)
}

note_outside <- function(ok, account) {
  account$evaluations <- account$evaluations + length(ok)
  account$outside <- account$outside + sum(!ok)
  ok
}

# f on top of its gradient, for each column of x
values_and_gradients <- function(model, x) {
  if (!is.null(model$both)) return(model$both(x))
  at <- target_at(model, x)
  rbind(at$value, at$gradient)
}

# f(x), n_out numbers for each column of x; NA where it throws. An exception says that one of
# the points is bad, but not which: halve until it is alone.
call_guarded <- function(f, x, n_out, account) {
  out <- tryCatch(matrix(f(x), n_out), error = identity)
  if (!inherits(out, "error")) return(out)
  if (inherits(out, "elvi_error_argument")) stop(out)   # of the wrong shape: wrong everywhere
  if (is_time_limit(out)) stop(out)
  n <- ncol(x)
  if (n == 1L) {
    account$first_error <- account$first_error %||% conditionMessage(out)
    return(matrix(NA_real_, n_out, 1L))
  }
  first <- seq_len(n %/% 2L)
  cbind(call_guarded(f, x[, first, drop = FALSE], n_out, account),
        call_guarded(f, x[, -first, drop = FALSE], n_out, account))
}

# an error of setTimeLimit(), which is about the session and not about a point
is_time_limit <- function(condition) {
  texts <- c("reached elapsed time limit", "reached CPU time limit", "reached session elapsed time limit",
             "reached session CPU time limit")
  any(startsWith(conditionMessage(condition), c(texts, gettext(texts, domain = "R"))))
}

# The model for a run in the coordinates of `frame`: outside its domain stands the gaussian of
# the frame, raised by ten nats, so that such a draw neither ends the run nor moves it.
standing_in <- function(model, frame, account = new_account()) {
  if (!is_function_of_r(model) || is.null(frame$level)) return(model)
  own <- model[c("value", "gradient")]
  white <- function(x) if (is.matrix(frame$A)) forwardsolve(frame$A, x - frame$m) else (x - frame$m) / frame$A
  unwhite <- function(w) if (is.matrix(frame$A)) backsolve(t(frame$A), w) else w / frame$A
  model$value <- function(x) {
    out <- call_guarded(own$value, x, 1, account)
    bad <- which(!note_outside(is.finite(drop(out)), account))
    if (length(bad)) out[bad] <- frame$level + 10 + colSums(white(x[, bad, drop = FALSE])^2) / 2
    as.double(out)
  }
  model$gradient <- function(x) {
    out <- call_guarded(own$gradient, x, model$dim, account)
    # what is too large to be squared is as good as infinite: sums over a batch would overflow
    bad <- which(!note_outside(is.finite(colSums(out^2)), account))
    if (length(bad)) out[, bad] <- unwhite(white(x[, bad, drop = FALSE]))
    as.double(out)
  }
  model
}

# The target for a line search: a point that fails has an infinite value and says nothing of a direction. Not for one
# that is said to be convex, which has no business to fail.
rejecting <- function(model) {
  if (!is_function_of_r(model) || isTRUE(model$convex)) return(model[c("value", "gradient")])
  list(value = function(x) {
         f <- call_guarded(model$value, x, 1, new_account())
         as.double(ifelse(is.finite(f), f, Inf))
       },
       gradient = function(x) {
         g <- call_guarded(model$gradient, x, model$dim, new_account())
         g[, colSums(!is.finite(g)) > 0] <- 0
         g
       })
}

# not one in C, which says for itself what it does outside its domain
is_function_of_r <- function(model) is_user_density(model) && is.null(model$pointer)
