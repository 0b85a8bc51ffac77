# (x | gr(g, cov = A)): effects of levels whose correlations are known, such as those of relatives or of species. With `precision` in
# place of
# `cov` the inverse is given, which is sparse for a pedigree.

related_kind <- function() c(related_precision(), group_kind[setdiff(names(group_kind), names(related_precision()))])

related_precision <- function() list(
  calls = character(), groupings = "gr",
  variables = function(call) {
    bar <- call[[2L]]
    c(list(bar[[2L]]), list(grouping_call(bar)$at))
  },
  make = function(x, frame, counting, contrasts) list(related_term(x, frame, counting, contrasts)),
  entries = function(term) kronecker_entries(term)[c("row", "column", "source")],
  blocked = function(term) FALSE,
  precision = function(term, theta) {
    at <- term_covariance(term, theta)
    k <- length(term$coefs)
    J <- length(term$levels)
    places <- kronecker_entries(term)
    list(value = places$weight * at$inverse[places$pair], inverse = NULL,
         log_det = k * term$structure$log_det - 2 * J * (sum(log(at$sd)) + sum(log(diag(at$L)))),
         slope = function(S) {
           M <- matrix(0, k, k)
           by <- places$weight * S
           sums <- tapply(by, factor(places$pair, seq_len(k * k)), sum, default = 0)
           off <- tapply(by * places$off, factor(places$pair, seq_len(k * k)), sum, default = 0)
           # a block beside the diagonal is there twice; of one on it only the lower triangle is
           M[] <- sums
           within <- matrix(sums - off, k)
           within[upper.tri(within)] <- t(within)[upper.tri(within)]
           M <- within + matrix(off, k) + t(matrix(off, k))
           covariance_slope(term, at, covariance_part(term, M))
         })
  })

# The lower triangle of Q x D^-1, coefficients of a level together. `pair`: the entry of D^-1; `off`: of a block beside the diagonal?
kronecker_entries <- function(term) {
  k <- length(term$coefs)
  Q <- term$structure
  own <- Q$row == Q$column
  full <- cbind(rep(seq_len(k), k), rep(seq_len(k), each = k))
  if (!pairs_of(term)) full <- full[full[, 1L] == full[, 2L], , drop = FALSE]
  low <- full[full[, 1L] >= full[, 2L], , drop = FALSE]
  part <- function(which, pairs) {
    at <- rep(which, each = nrow(pairs))
    a <- rep(pairs[, 1L], length(which))
    b <- rep(pairs[, 2L], length(which))
    data.frame(row = (Q$row[at] - 1L) * k + a, column = (Q$column[at] - 1L) * k + b, weight = Q$value[at], pair = a + (b - 1L) * k)
  }
  out <- rbind(part(which(own), low), part(which(!own), full))
  list(row = as.integer(out$row), column = as.integer(out$column), weight = out$weight, pair = as.integer(out$pair),
       off = rep(c(FALSE, TRUE), c(sum(own) * nrow(low), sum(!own) * nrow(full))), source = seq_len(nrow(out)))
}

# gr(g, cov = A) behind a bar
grouping_call <- function(bar) term_arguments(bar[[3L]], c("cov", "precision"))

related_term <- function(call, frame, counting, contrasts) {
  bar <- call[[2L]]
  arguments <- grouping_call(bar)
  name <- deparse_one(arguments$at)
  plain <- list(slopes = bar[[2L]], group = arguments$at, correlated = call_name(bar) != "||", label = name, written = deparse_one(call))
  term <- group_term(plain, frame, contrasts, counting)
  relation <- known_relation(arguments, call, frame)
  unknown <- setdiff(term$levels, relation$names)
  if (length(unknown)) {
    refuse_term(call, paste0("`", name, "` has the level ", describe(unknown[1L]), ", which is not among the row names of its matrix"))
  }
  term$kind <- "related"
  term$levels <- relation$names
  term$structure <- relation$structure
  term
}

# entries and log determinant of the precision, and the names of its rows
known_relation <- function(arguments, call, frame) {
  given <- intersect(c("cov", "precision"), names(arguments$others))
  if (length(given) != 1L) refuse_term(call, "gr() needs one of `cov` and `precision`")
  M <- argument_value(arguments, given, call, frame)
  names <- rownames(M) %||% colnames(M)
  if (!(is.matrix(M) && is.numeric(M) || methods::is(M, "Matrix")) || nrow(M) != ncol(M) || is.null(names) || anyDuplicated(names)) {
    refuse_term(call, paste0("`", given, "` must be a square matrix whose row names are the levels, each once"))
  }
  M <- as_sparse(M)
  if (any(!is.finite(M@x)) || max(abs(M - Matrix::t(M))) > 1e-8 * max(abs(M@x))) {
    refuse_term(call, paste0("`", given, "` must be symmetric, without missing values"))
  }
  M <- Matrix::forceSymmetric(M, "L")
  factor <- tryCatch(suppressWarnings(Matrix::Cholesky(M, perm = TRUE, LDL = FALSE)), error = function(e) NULL)
  size <- if (!is.null(factor)) 2 * sum(log(Matrix::diag(methods::as(factor, "CsparseMatrix"))))
  pivots <- if (!is.null(factor)) Matrix::diag(methods::as(factor, "CsparseMatrix"))^2
  if (is.null(size) || !is.finite(size) || min(pivots) < 1e-12 * max(pivots)) {
    refuse_term(call, paste0("`", given, "` is not positive definite",
                             if (given == "cov") ". Two levels that are the same, such as clones, make it singular: give them one name"))
  }
  Q <- if (given == "cov") Matrix::solve(factor, Matrix::Diagonal(nrow(M))) else M
  if (given == "cov") Q <- Matrix::drop0(methods::as(Q, "generalMatrix"), tol = 1e-14 * max(abs(Q)))
  list(names = names, structure = c(lower_entries(Q), list(log_det = if (given == "cov") -size else size)))
}

#' Precision of the relatedness of a pedigree
#'
#' `pedigree_precision()` computes the inverse of the additive relationship matrix of a pedigree, by Henderson's rules with inbreeding,
#' for `(1 | gr(animal, precision = ))` in a
#' formula of [elvi()]. It is sparse, while the relationship matrix itself is not.
#'
#' @param id names of the individuals, each once.
#' @param mother,father names of the parents, `NA` where one is unknown. Parents that are not in `id` are added, as founders.
#' @return A sparse matrix with the individuals as row names. The inverse of it has 1 on the diagonal, plus the inbreeding of each
#'   individual.
#' @references
#' Henderson, C. R. (1976) A simple method for computing the inverse of a numerator relationship matrix used in prediction of breeding
#' values. *Biometrics* 32, 69-83.
#'
#' Meuwissen, T. H. E. and Luo, Z. (1992) Computing inbreeding coefficients in large populations. *Genetics Selection Evolution* 24,
#' 305-313.
#' @seealso [latent_terms]
#' @examples
#' Q <- pedigree_precision(c("a", "b", "c", "d"), mother = c(NA, NA, "a", "a"),
#'                         father = c(NA, NA, "b", "c"))
#' Matrix::solve(Q)   # d is inbred: its parents are mother and son
#' @export
pedigree_precision <- function(id, mother, father) {
  given <- list(id = id, mother = mother, father = father)
  for (name in names(given)) if (!is.atomic(given[[name]])) bad_argument(name, "a vector of names or numbers", describe(given[[name]]))
  id <- as.character(id)
  if (!length(id) || anyNA(id) || anyDuplicated(id)) bad_argument("id", "names of individuals, each once", describe(id))
  parents <- lapply(list(mother = mother, father = father), as.character)
  for (name in names(parents)) {
    if (length(parents[[name]]) != length(id)) bad_argument(name, sprintf("of length %d, as `id`", length(id)), describe(parents[[name]]))
  }
  founders <- setdiff(stats::na.omit(unlist(parents)), id)
  id <- c(founders, id)
  parents <- lapply(parents, function(own) match(c(rep(NA, length(founders)), own), id))
  order <- parents_first(parents)
  place <- order(order)
  s <- c(0L, place)[ifelse(is.na(parents$mother), 0L, parents$mother)[order] + 1L]
  d <- c(0L, place)[ifelse(is.na(parents$father), 0L, parents$father)[order] + 1L]
  inbreeding <- pedigree_inbreeding(s, d)
  f <- c(-1, inbreeding)   # of an unknown parent
  own <- 0.5 - 0.25 * (f[s + 1L] + f[d + 1L])   # Mendelian variance
  n <- length(id)
  i <- c(seq_len(n), which(s > 0L), which(d > 0L))
  j <- c(seq_len(n), s[s > 0L], d[d > 0L])
  Tinv <- Matrix::sparseMatrix(i = i, j = j, x = c(rep(1, n), rep(-0.5, length(i) - n)), dims = c(n, n))
  Q <- Matrix::crossprod(Matrix::Diagonal(x = 1 / sqrt(own)) %*% Tinv)
  out <- Q[place, place]
  dimnames(out) <- list(id, id)
  out
}

# an order in which parents come before their offspring
parents_first <- function(parents) {
  n <- length(parents$mother)
  generation <- integer(n)
  for (round in seq_len(n + 1L)) {
    above <- function(p) ifelse(is.na(p), -1L, generation[p])
    new <- pmax(above(parents$mother), above(parents$father)) + 1L
    if (identical(new, generation)) return(order(generation))
    generation <- new
  }
  bad_argument("mother", "a pedigree in which nobody is an ancestor of itself", "one with a cycle")
}

# Diagonal of the relationship matrix less 1, individuals in order, by the paths to their ancestors (Meuwissen and Luo, 1992).
pedigree_inbreeding <- function(s, d) {
  n <- length(s)
  f <- numeric(n)
  own <- numeric(n)
  share <- numeric(n)
  of <- function(p) if (p) f[p] else -1
  for (i in seq_len(n)) {
    own[i] <- 0.5 - 0.25 * (of(s[i]) + of(d[i]))
    if (!s[i] || !d[i]) next
    share[i] <- 1
    open <- i
    total <- 0
    while (length(open)) {
      at <- max(open)
      open <- open[open != at]
      for (p in c(s[at], d[at])) if (p) {
        if (!p %in% open) open <- c(open, p)
        share[p] <- share[p] + 0.5 * share[at]
      }
      total <- total + share[at]^2 * own[at]
      share[at] <- 0
    }
    f[i] <- total - 1
  }
  f
}
