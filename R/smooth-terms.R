# Smooth terms of a formula, as package mgcv makes them: what a penalty leaves free joins the coefficients, each
# penalised part becomes a term with one standard deviation, as in a mixed model (Wood, 2017, section 5.8).

smooth_specs <- function(calls, env) {
  if (!length(calls)) return(list())
  need_package("mgcv", "A smooth term such as s(x)")
  lapply(calls, function(call) {
    made <- call
    made[[1L]] <- call("::", quote(mgcv), as.name(call_name(call)))
    spec <- reading(eval(made, env), "object", paste0("the term `", deparse_one(call), "` cannot be read"))
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
set_up_smooths <- function(specs, frame) {
  smooths <- do.call(c, lapply(specs, function(spec) {
    check_smooth_variables(spec, frame)
    made <- reading(mgcv::smoothCon(spec, data = smooth_data(frame), knots = NULL, absorb.cons = TRUE,
                                    scale.penalty = TRUE),
                    "object", paste0("the smooth `", spec$label, "` cannot be had"))
    lapply(made, function(smooth) {
      random <- tryCatch(mgcv::smooth2random(smooth, character(), type = 2), error = function(e) NULL)
      if (is.null(random) || isTRUE(random$fixed) || !length(random$rand)) {
        refuse_term(str2lang(spec$label), paste0("smooths of class \"", class(smooth)[1L],
                                                 "\" have no form as random effects"))
      }
      out <- list(label = smooth$label, smooth = smooth, random = random, variables = spec$term,
                  by = if (spec$by != "NA") spec$by, by_level = smooth$by.level)
      out$from_predicted <- map_from_predicted(out, frame)
      out
    })
  }))
  labels <- vapply(smooths, `[[`, "", "label")
  if (anyDuplicated(labels)) {
    refuse_term(str2lang(specs[[1L]]$label), paste0("the smooth `", labels[duplicated(labels)][1L], "` occurs twice"))
  }
  smooths
}

# only random effects, factor smooths and fields of regions are made for factors
check_smooth_variables <- function(spec, frame) {
  if (class(spec)[1L] %in% paste0(c("re", "fs", "mrf", "t2", "sz"), ".smooth.spec")) return(invisible())
  for (name in spec$term) if (!is.numeric(frame[[name]])) {
    refuse_term(str2lang(spec$written), paste0("`", name, "` is ", describe(frame[[name]]), ", not a number: (1 | ",
                                               name, ") is for factors"))
  }
}

# mgcv looks variables up by name and wants vectors
smooth_data <- function(frame) {
  frame[] <- lapply(frame, function(column) if (is.matrix(column) && ncol(column) == 1L) drop(column) else column)
  frame
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
  list(free = X[, random$pen.ind == 0, drop = FALSE],
       penalised = lapply(seq_along(random$rand), function(i) X[, penalty == i, drop = FALSE]))
}

# The basis that was fitted, at the rows of a frame. t2() smooths are predicted under another constraint than they are
# fitted
# under (mgcv's `Cp`): the two bases span the same functions up to a constant, and `from_predicted` maps one to the other.
fitted_basis <- function(smooth, frame) {
  X <- mgcv::PredictMat(smooth$smooth, smooth_data(frame))
  if (is.null(smooth$from_predicted)) X else cbind(constant_of(smooth, frame), X) %*% smooth$from_predicted
}

constant_of <- function(smooth, frame) {
  if (is.null(smooth$by_level)) rep(1, nrow(frame)) else as.double(frame[[smooth$by]] == smooth$by_level)
}

map_from_predicted <- function(smooth, frame) {
  if (is.null(smooth$smooth$Xp)) return(NULL)
  X <- cbind(constant_of(smooth, frame), mgcv::PredictMat(smooth$smooth, smooth_data(frame)))
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
  counts <- vapply(smooth$random$rand, ncol, 0L)
  numbers <- if (length(counts) > 1L) seq_along(counts) else ""
  lapply(seq_along(counts), function(i) {
    list(label = paste0(smooth$label, numbers[i]), kind = "smooth", smooth = smooth$label,
         levels = as.character(seq_len(counts[i])), coefs = "s", correlated = FALSE)
  })
}

# its record as a kind of term (group-terms.R)
smooth_term_record <- list(
  by_level = FALSE,
  effect_names = function(term) paste0(term$label, ".", term$levels),
  log_sd_names = function(term) paste0("log sd(", term$label, ")"),
  sd_names = function(term) paste0("smooth_sd[", term$label, "]"),
  tidy_names = function(term) "sd__s",
  heading = function(term) list(term = "", coefficient = term$label, levels = ""))
