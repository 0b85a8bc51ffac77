# (x | mm(g1, g2)): a row belongs to several levels of one set, and has the mean of their effects, or one weighted by `weights`.

members_kind <- function() {
  own <- list(
    calls = character(), groupings = "mm",
    variables = function(call) {
      bar <- call[[2L]]
      c(list(bar[[2L]]), members_of(bar)$factors, members_of(bar)$weights)
    },
    make = function(x, frame, counting, contrasts) list(members_term(x, frame, counting, contrasts)),
    columns = function(term, frame, smooths) members_columns(term, frame),
    unseen = function(term, frame, allowed) {
      for (name in term$members) {
        new <- setdiff(as.character(frame[[name]]), c(term$levels, NA))
        if (!length(new)) next
        refuse_new_level(name, new[1L])
      }
      NULL
    })
  c(own, group_kind[setdiff(names(group_kind), names(own))])
}

# factors and weights of mm(g1, g2, weights = cbind(w1, w2))
members_of <- function(bar) {
  arguments <- as.list(bar[[3L]])[-1L]
  given <- names(arguments) %||% rep("", length(arguments))
  weights <- arguments[["weights"]]
  if (call_name(weights) %in% c("cbind", "c")) weights <- as.list(weights)[-1L] else if (!is.null(weights)) weights <- list(weights)
  list(factors = unname(arguments[given == ""]), weights = unname(weights), unknown = setdiff(given, c("", "weights")))
}

members_term <- function(call, frame, counting, contrasts) {
  bar <- call[[2L]]
  members <- members_of(bar)
  names <- vapply(members$factors, deparse_one, "")
  if (length(names) < 2L || length(members$unknown)) refuse_term(call, "mm() needs two factors or more, and `weights` at most")
  weights <- vapply(members$weights, deparse_one, "")
  if (length(weights) && length(weights) != length(names)) {
    refuse_term(call, "`weights` must have one column for each factor: cbind(w1, w2)")
  }
  for (name in weights) {
    bad <- !is.numeric(frame[[name]]) || any(frame[[name]] < 0)
    if (bad) refuse_term(call, paste0("the weights `", name, "` must be numbers, not negative"))
  }
  label <- paste0("mm", paste(names, collapse = ""))
  plain <- list(slopes = bar[[2L]], group = members$factors[[1L]], correlated = call_name(bar) != "||", label = label,
                written = deparse_one(call))
  term <- group_term(plain, frame, contrasts, counting)
  term$kind <- "members"
  term$members <- names
  term$weights <- weights
  term$group <- names
  term$levels <- unique(unlist(lapply(names, function(name) levels(as.factor(frame[[name]])))))
  term$factor_levels <- lapply(stats::setNames(names, names), function(name) levels(as.factor(frame[[name]])))
  term
}

members_columns <- function(term, frame) {
  M <- slope_matrix(term$slopes, frame, term$contrasts)
  m <- length(term$members)
  weights <- if (length(term$weights)) vapply(term$weights, function(name) as.double(frame[[name]]), numeric(nrow(frame)))
             else matrix(1 / m, nrow(frame), m)
  weights <- matrix(weights, nrow(frame), m)
  weights <- weights / rowSums(weights)
  Reduce(`+`, lapply(seq_len(m), function(i) {
    group_columns(term, M * weights[, i], match(as.character(frame[[term$members[i]]]), term$levels))
  }))
}
