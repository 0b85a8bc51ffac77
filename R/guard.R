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
  out <- evaluate_pieces(model, x, account)
  out$ok <- is.finite(out$value) & colSums(!is.finite(out$gradient)) == 0
  out$value[!out$ok] <- NA_real_
  account$evaluations <- account$evaluations + ncol(x)
  account$outside <- account$outside + sum(!out$ok)
  out
}

# An exception says that one of the points is bad, but not which: halve until it is alone.
evaluate_pieces <- function(model, x, account) {
  out <- tryCatch(evaluate_block(model, x), error = identity)
  if (!inherits(out, "error")) return(out)
  n <- ncol(x)
  if (n == 1L) {
    account$first_error <- account$first_error %||% conditionMessage(out)
    return(list(value = NA_real_, gradient = matrix(NA_real_, nrow(x), 1L)))
  }
  half <- seq_len(n %/% 2L)
  a <- evaluate_pieces(model, x[, half, drop = FALSE], account)
  b <- evaluate_pieces(model, x[, -half, drop = FALSE], account)
  list(value = c(a$value, b$value), gradient = cbind(a$gradient, b$gradient))
}

evaluate_block <- function(model, x) {
  if (!is.null(model$both)) model$both(x) else .Call(elvi_r_evaluate, model, x)
}
