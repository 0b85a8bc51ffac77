# A target that may fail: a point where it throws, or where its value or a partial
# derivative is not finite, is a rejected point and not the end of a run.

# `evaluate(x)` has f and its gradient at the columns of x and says at which of them both are
# numbers; `account` counts points and keeps the target's first error message.
guarded_target <- function(model) {
  account <- new_account()
  list(evaluate = function(x) evaluate_guarded(model, x, account), hessian = model$hessian, account = account, dim = model$dim)
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

# f at the columns of x; not a number where it fails
guarded_values <- function(model, x) {
  if (!is_function_of_r(model)) return(target_values(model, x))
  drop(call_guarded(model$value, x, 1, new_account()))
}

# a function of a block for which a point that fails has an infinite value
finite_or_inf <- function(value) {
  force(value)
  function(x) {
    f <- call_guarded(value, x, 1, new_account())
    as.double(ifelse(is.finite(f), f, Inf))
  }
}

guarded_gradients <- function(model, x) {
  if (!is_function_of_r(model)) return(target_at(model, x)$gradient)
  call_guarded(model$gradient, x, model$dim, new_account())
}

# values and gradients; where it fails it fails again
guarded_at <- function(model, x) {
  if (is_function_of_r(model)) evaluate_guarded(model, x, new_account()) else target_at(model, x)
}

# f at the centre of a frame, of what is guarded there; NULL of other targets
guarded_level <- function(model, x) {
  if (!is_function_of_r(model)) return(NULL)
  level <- guarded_values(model, matrix(x))
  if (is.finite(level)) level
}

# The model for a run whose points lie about `frame` (x = m + A z, and f about `level` at m): outside its domain stands the
# gaussian of the frame, raised by ten nats, so that such a draw neither ends the run nor moves it.
with_gaussian_fallback <- function(model, frame, account = new_account()) {
  if (!is_function_of_r(model) || is.null(frame$level)) return(model)
  own <- model[c("value", "gradient")]
  white <- function(x) root_solve(frame$A, x - frame$m)
  model$value <- function(x) {
    out <- call_guarded(own$value, x, 1, account)
    bad <- which(!note_outside(is.finite(drop(out)), account))
    if (length(bad)) out[bad] <- frame$level + fallback_nats + colSums(white(x[, bad, drop = FALSE])^2) / 2
    as.double(out)
  }
  model$gradient <- function(x) {
    out <- call_guarded(own$gradient, x, model$dim, account)
    # what is too large to be squared is as good as infinite: sums over a batch would overflow
    bad <- which(!note_outside(is.finite(colSums(out^2)), account))
    if (length(bad)) out[, bad] <- root_solve_transposed(frame$A, white(x[, bad, drop = FALSE]))
    as.double(out)
  }
  model
}

is_guarded <- function(fit) {
  is_function_of_r(fit$given$model) && !is.null((fit$plan$work %||% fit$plan$stand_in)$level)
}

# How many points of the search and of the run failed, and the target's first error message; NULL if none failed.
outside_line <- function(fit) {
  search <- fit$plan$search$account %||% fit$result$account
  outside <- (search$outside %||% 0) + (fit$state$outside %||% 0)
  if (outside == 0) return(NULL)
  said <- search$first_error %||% fit$state$first_error
  sprintf("%s of %s points were outside the model's domain%s", format_count(outside),
          format_count((search$evaluations %||% 0) + fit$state$looked), if (is.null(said)) "" else paste0(": ", said))
}

# A fit whose start was searched has it in its verdict.
warn_of_outside <- function(fit) {
  if (!is.null(fit$plan$search) && !is.null(fit$result$verdict) || !isTRUE(fit$state$outside > 0)) return(invisible())
  elvi_warn(outside_line(fit), ". There the target was replaced by the gaussian ",
            if (is.null(fit$plan$work)) "at its mode" else "that whitens the run",
            ", and the fit is of this modified target.", class = "elvi_warning_outside",
            data = list(outside = fit$state$outside, first_error = fit$state$first_error))
}

# The target for a line search: a point that fails has an infinite value and says nothing of a direction.
rejecting <- function(model) {
  if (!is_function_of_r(model)) return(model[c("value", "gradient")])
  list(value = finite_or_inf(model$value),
       gradient = function(x) {
         g <- call_guarded(model$gradient, x, model$dim, new_account())
         g[, colSums(!is.finite(g)) > 0] <- 0
         g
       })
}

# not a target in C, which handles points outside its domain itself
is_function_of_r <- function(model) is_user_density(model) && is.null(model$pointer)
