# Smooth terms of a formula, as package mgcv makes them: what a penalty leaves free joins the coefficients, each
# penalised part becomes a term with one standard deviation, as in a mixed model (Wood, 2017, section 5.8).

smooth_specs <- function(calls, env) {
  if (!length(calls)) return(list())
  need_package("mgcv", "A smooth term such as s(x)")
  lapply(calls, function(call) {
    made <- call
    made[[1L]] <- call("::", quote(mgcv), as.name(call_name(call)))
    spec <- blame_argument(eval(made, env), "object", paste0("the term `", deparse_one(call), "` cannot be read"))
    if (isTRUE(spec$fixed)) refuse_term(call, "a smooth without a penalty (fx = TRUE) is a regression spline: splines::ns() makes one")
    if (!is.null(spec$sp) && any(spec$sp >= 0)) refuse_term(call,
                                                            "its smoothness is estimated and cannot be fixed by `sp`")
    if (!is.null(spec$id)) refuse_term(call, "smooths cannot be linked by `id`")
    spec$written <- deparse_one(call)
    spec
  })
}

smooth_variables <- function(specs) {
  unique(unlist(lapply(specs, function(spec) c(spec$term, if (spec$by != "NA") spec$by))))
}

# Smooths on the data of the fit: one for each level of a factor in `by`.
# `counting`: the rows that count, see rows_that_count()
set_up_smooths <- function(specs, frame, counting = TRUE, knots = NULL) {
  smooths <- do.call(c, lapply(specs, function(spec) {
    check_smooth_variables(spec, frame)
    unit <- isotropic_unit(spec, frame)
    data <- smooth_data(frame, unit)
    knots <- if (length(knots)) smooth_data(knots, list(variables = intersect(unit$variables, names(knots)), size = unit$size))
    made <- blame_argument(mgcv::smoothCon(spec, data = data, knots = knots, absorb.cons = TRUE, scale.penalty = TRUE),
                    "object", paste0("the smooth `", spec$label, "` is not supported"))
    lapply(made, function(smooth) {
      smooth <- settle_null_space(smooth, data)
      random <- as_random(smooth)
      if (is.null(random) || isTRUE(random$fixed) || !length(random$rand)) {
        refuse_term(str2lang(spec$label), paste0("smooths of class \"", class(smooth)[1L],
                                                 "\" have no form as random effects"))
      }
      out <- list(label = smooth$label, smooth = smooth, random = random, variables = spec$term,
                  by = if (spec$by != "NA") spec$by, by_level = smooth$by.level, unit = unit)
      out$from_predicted <- map_from_predicted(out, frame)
      out$scaling <- smooth_scaling(smooth_columns(out, frame), counting, random$penalties)
      out
    })
  }))
  labels <- vapply(smooths, `[[`, "", "label")
  if (anyDuplicated(labels)) {
    refuse_term(str2lang(specs[[1L]]$label), paste0("the smooth `", labels[duplicated(labels)][1L], "` occurs twice"))
  }
  smooths
}

# s(x, g, bs = "fs") has a variance for each direction of the space that the penalty leaves free. These directions are eigenvectors of equal
# eigenvalues, so mgcv leaves them to rounding. Here they are made from the constant and the powers of the
# variables, each orthogonal to the earlier ones over the data.
settle_null_space <- function(smooth, data) {
  if (!inherits(smooth, "fs.interaction") || is.null(smooth$Xb)) return(smooth)
  free <- setdiff(seq_len(ncol(smooth$P)), seq_len(smooth$base$rank))
  if (length(free) < 2L) return(smooth)
  N <- smooth$Xb[, free]
  powers <- lapply(seq_along(free)[-1L] - 1L, function(power) {
    vapply(smooth$base$term, function(name) drop(scale(as.double(data[[name]])))^power, numeric(nrow(N)))
  })
  into <- qr(crossprod(N, cbind(1, do.call(cbind, powers))) / nrow(N), tol = 1e-6)
  turn <- t(t(qr.Q(into)) * ifelse(diag(qr.R(into)) < 0, -1, 1))
  smooth$P[, free] <- smooth$P[, free] %*% turn
  smooth$Xb[, free] <- N %*% turn
  for (level in seq_along(smooth$flev)) {
    own <- (level - 1L) * ncol(smooth$P) + free
    smooth$X[, own] <- smooth$X[, own] %*% turn
  }
  smooth
}

# The form of a smooth as random effects: mgcv's where it has one, else, of smooths whose coefficients have several penalties, our own.
as_random <- function(smooth) {
  random <- or_null(mgcv::smooth2random(smooth, character(), type = 2))
  if (is.null(random) && length(smooth$S)) several_penalties(smooth) else random
}

# knots as mgcv has them: a list with the names of variables of smooths
check_knots <- function(knots, specs) {
  if (is.null(knots)) return(NULL)
  if (!length(specs)) unused_argument("knots", "the formula has no smooth terms")
  if (!is_plain_list(knots) && !is.data.frame(knots) || is.null(names(knots))) {
    bad_argument("knots", "a list with the names of variables of smooths, such as list(x = c(0, 1))", describe(knots))
  }
  variables <- unique(unlist(lapply(specs, `[[`, "term")))
  unknown <- setdiff(names(knots), variables)
  if (length(unknown)) {
    bad_argument("knots", paste0("named as variables of smooths (", toString(variables), ")"), describe(unknown[1L]))
  }
  as.list(knots)
}

# only random effects, factor smooths and fields of regions are made for factors
check_smooth_variables <- function(spec, frame) {
  if (class(spec)[1L] %in% paste0(c("re", "fs", "mrf", "t2", "sz"), ".smooth.spec")) return(invisible())
  for (name in spec$term) if (!is.numeric(frame[[name]])) {
    refuse_term(str2lang(spec$written), paste0("`", name, "` is ", describe(frame[[name]]), ", not a number: (1 | ",
                                               name, ") is for factors"))
  }
}

# mgcv looks variables up by name and wants vectors. `unit`: see isotropic_unit()
smooth_data <- function(frame, unit = NULL) {
  frame[] <- lapply(frame, function(column) if (is.matrix(column) && ncol(column) == 1L) drop(column) else column)
  frame[unit$variables] <- lapply(frame[unit$variables], `/`, unit$size)
  frame
}

# The truncated basis of a thin plate spline in several dimensions depends on the unit that its variables share. They are
# divided by one number, which keeps the ratios of distances.
isotropic_unit <- function(spec, frame) {
  basis <- sub(".smooth.spec", "", class(spec)[1L], fixed = TRUE)
  if (basis %in% c("fs", "sz")) basis <- if (is.list(spec$xt)) spec$xt$bs %||% "tp" else spec$xt %||% "tp"
  variables <- Filter(function(name) is.numeric(frame[[name]]), spec$term)
  if (!basis %in% c("tp", "ts") || length(variables) < 2L || !is.null(spec$point.con)) return(NULL)
  size <- sqrt(mean(vapply(variables, function(name) stats::var(as.double(frame[[name]])), 0)))
  if (is.finite(size) && size > 0) list(variables = variables, size = size)
}

# A basis has units of its own, and the prior of a standard deviation must not depend on them. So each penalised part is
# taken without what free columns can say, and divided such that its variance, given a standard deviation of 1, is 1 on average over the
# data (Sorbye and Rue, 2014). Several free columns become uncorrelated ones of variance 1, as their directions are arbitrary.
smooth_scaling <- function(parts, counting, penalties = NULL) {
  free <- parts$free[counting, , drop = FALSE]
  out <- list()
  if (ncol(free) > 1L) {
    centred <- scale(free, scale = FALSE)
    sds <- sqrt(colMeans(centred^2))
    if (all(sds > 0)) {
      root <- qr(t(t(centred) / sds) / sqrt(nrow(free)), tol = 1e-9)
      if (root$rank == ncol(free)) out$turn <- diag(1 / sds) %*% backsolve(qr.R(root), diag(ncol(free)))
    }
  }
  if (!is.null(out$turn)) free <- free %*% out$turn
  size <- pmax(sqrt(colMeans(free^2)), .Machine$double.xmin)
  basis <- qr(t(t(free) / size), tol = 1e-9)
  parts <- lapply(parts$penalised, function(Z) {
    Z <- Z[counting, , drop = FALSE]
    said <- if (ncol(free)) qr.coef(basis, Z) / size else matrix(0, 0L, ncol(Z))
    said[is.na(said)] <- 0
    variance <- rowSums((Z - free %*% said)^2)
    used <- rowSums(Z^2) > 0   # a smooth of one level of a factor is 0 in the other rows
    if (!is.null(penalties)) return(list(said = said, divide = 1, penalties = scaled_penalties(penalties, Z - free %*% said)))
    list(said = said, divide = sqrt(mean(variance[used])))
  })
  c(out, list(parts = parts))
}

scaled_columns <- function(columns, scaling) {
  if (is.null(scaling)) return(columns)
  free <- if (is.null(scaling$turn)) columns$free else columns$free %*% scaling$turn
  list(free = free,
       penalised = Map(function(Z, part) (Z - free %*% part$said) / part$divide, columns$penalised, scaling$parts))
}

# The columns of a smooth at the rows of a frame: `free`, unpenalised, and `penalised`, a list with one matrix per
# penalty. After the help page of mgcv::smooth2random().
smooth_columns <- function(smooth, frame) {
  random <- smooth$random
  X <- fitted_basis(smooth, frame)
  if (!is.null(random$trans.U)) X <- X %*% random$trans.U
  X <- t(t(X) * random$trans.D)
  X[, random$rind] <- X[, random$pen.ind != 0]
  penalty <- random$pen.ind
  penalty[random$rind] <- penalty[penalty > 0]
  columns <- list(free = X[, random$pen.ind == 0, drop = FALSE],
                  penalised = lapply(seq_along(random$rand), function(i) X[, penalty == i, drop = FALSE]))
  scaled_columns(columns, smooth$scaling)
}

# The basis that was fitted, at the rows of a frame. t2() smooths are predicted under another constraint than they are
# fitted
# under (mgcv's `Cp`): the two bases span the same functions up to a constant, and `from_predicted` maps one to the other.
fitted_basis <- function(smooth, frame) {
  X <- mgcv::PredictMat(smooth$smooth, smooth_data(frame, smooth$unit))
  if (is.null(smooth$from_predicted)) X else cbind(constant_of(smooth, frame), X) %*% smooth$from_predicted
}

constant_of <- function(smooth, frame) {
  if (is.null(smooth$by_level)) rep(1, nrow(frame)) else as.double(frame[[smooth$by]] == smooth$by_level)
}

map_from_predicted <- function(smooth, frame) {
  if (is.null(smooth$smooth$Xp)) return(NULL)
  X <- cbind(constant_of(smooth, frame), mgcv::PredictMat(smooth$smooth, smooth_data(frame, smooth$unit)))
  map <- qr.coef(qr(X), smooth$smooth$X)
  map[is.na(map)] <- 0
  if (max(abs(X %*% map - smooth$smooth$X)) > 1e-6 * max(abs(smooth$smooth$X))) {
    refuse_term(str2lang(smooth$label), "mgcv predicts it from another basis than it is fitted with")
  }
  map
}

free_names <- function(smooth) {
  k <- sum(smooth$random$pen.ind == 0)
  if (k) paste0(smooth$label, ".fx", seq_len(k)) else character()
}

# The penalised parts as terms: one coefficient per column.
smooth_terms <- function(smooth) {
  penalties <- smooth$scaling$parts[[1L]]$penalties
  if (!is.null(penalties)) {
    levels <- as.character(seq_len(ncol(smooth$random$rand[[1L]])))
    return(list(new_structured(smooth$label, "tensor", levels, smooth = smooth$label, part = 1L, penalties = penalties)))
  }
  counts <- vapply(smooth$random$rand, ncol, 0L)
  numbers <- if (length(counts) > 1L) seq_along(counts) else ""
  lapply(seq_along(counts), function(i) {
    list(label = paste0(smooth$label, numbers[i]), kind = "smooth", smooth = smooth$label, part = i,
         levels = as.character(seq_len(counts[i])), coefs = "s", correlated = FALSE, unit = 1)
  })
}
