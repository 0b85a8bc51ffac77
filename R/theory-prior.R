# ---- a matrix as prior precision -----------------------------------------------------------------
#
# With Q = R'R the precision and c the location of the prior, w = R (x - c) has independent standard normal coordinates, and a regression
# of x on X is one of w on X R^-1 with the offset X c. The theorems are about that model. Whitened and majorant coordinates of
# both differ by a rotation, under which base, scale and steps stay what they are, so bounds are the same; raw coordinates are those of w.

# list(model =, place =): the model in independent coordinates and a function that takes a start or an optimum there. A model whose
# coefficients are independent is its own.
independent_form <- function(model, control) UseMethod("independent_form")

#' @export
independent_form.elvi_model <- function(model, control) list(model = model, place = identity)

#' @export
independent_form.elvi_model_linked <- function(model, control) {
  if (control$scale != "symmetric") {
    bad_argument("control", "elvi_control(scale = \"symmetric\") with a matrix as prior precision",
                 paste0("scale = \"", control$scale, "\""),
                 "other scales are another family in the coordinates of the prior")
  }
  root <- chol(as.matrix(model$prior$precision))
  centre <- model$blocks$coefficients$centre
  d <- model$dim
  X <- vapply(seq_len(d), function(j) predictor_of(model$rows, as.double(seq_len(d) == j)), numeric(model$rows$n))
  rows <- model$rows
  offset <- (if (is.null(rows$offset)) 0 else rows$offset) + drop(X %*% centre)
  W <- t(backsolve(root, t(X), transpose = TRUE))
  colnames(W) <- model$names
  # its rows have the dispersion in their weights already
  fresh <- new_rows(W, NULL, rows$y, rows$weight, offset, rows$count, rows$constant)
  list(model = rows_target(fresh, model$family, normal(0, 1), 1, NULL), place = function(at) place_independent(at, root, centre))
}

place_independent <- function(at, root, centre) {
  if (is.null(at) || !is.list(at)) return(at)   # what is no list is refused later, by name
  if (is.numeric(at$mu) && length(at$mu) == length(centre)) at$mu <- drop(root %*% (at$mu - centre))
  if (is.numeric(at$Sigma)) {
    Sigma <- if (is.matrix(at$Sigma)) at$Sigma else diag(at$Sigma, length(centre))
    if (identical(dim(Sigma), dim(root))) at$Sigma <- symmetric_root(root %*% Sigma)
  }
  at
}
