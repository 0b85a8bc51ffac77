# Designs of chunks from the codes of their factors. model.matrix() makes a dense matrix of zeros, which takes longer than the pass.
# Here each variable is a column of numbers, or a code with a sparse row of contrasts for each level, and C multiplies them: to rows
# that stay sparse where that pays, and else to the same dense matrix.

# What a recipe has to know for that, NULL where model.matrix() is needed. `frame` has the first rows, whose design is X.
factor_builder <- function(recipe, frame, X) {
  if (length(recipe$latent) || !length(recipe$levels)) return(NULL)
  terms <- recipe$fixed %||% recipe$terms
  variables <- unique(unlist(variables_of_terms(terms)))
  tables <- or_null(lapply(stats::setNames(nm = variables), function(name) variable_tables(recipe, name, frame[[name]])))
  if (is.null(tables) || any(vapply(tables, is.null, NA))) return(NULL)
  builder <- list(terms = numbered_terms(terms, tables), tables = tables, columns = ncol(X))
  builder$entries <- sum(vapply(builder$terms, function(term) entries_of_term(term, tables), 0))
  builder$sparse <- ncol(X) >= sparse_pays * builder$entries
  if (builder$sparse) builder$stored <- large_means(builder, X)
  if (!builds(builder, frame, X)) return(NULL)
  builder$coded <- columns_of_factors(builder)
  builder$plain <- plain_response(recipe)
  builder
}

# The columns of each factor that are all 0 in rows of one level, as by contr.treatment(): that level has no column.
columns_of_factors <- function(builder) {
  of <- lapply(builder$terms, function(term) {
    if (length(term$variables) != 1L) return(NULL)
    table <- builder$tables[[term$variables[[1L]]$name]]$coded[[term$variables[[1L]]$coding]]
    if (!is.null(table) && any(diff(table$start) == 0)) term$first + seq_len(table$columns)
  })
  Filter(length, of)
}

# Columns for each entry of a row above which sparse rows are faster: about equal at 2 to 3, twice as fast at 6.
sparse_pays <- 4

# the same matrix as model.matrix() has
builds <- function(builder, frame, X) {
  made <- built_design(replace(builder, c("sparse", "stored"), list(FALSE, NULL)), frame, nrow(X))
  identical(dim(made), dim(X)) && isTRUE(all(abs(made - X) <= 1e-13 * abs(X) | X == made))
}

# names of the variables of each term, and how factors are coded there: 1 by contrasts, 2 by a column for each level
variables_of_terms <- function(terms) {
  factors <- attr(terms, "factors")
  if (!length(factors)) return(list())
  lapply(seq_len(ncol(factors)), function(j) rownames(factors)[factors[, j] > 0])
}

# A variable: numbers of some columns, or a factor with its levels and, for both codings, sparse rows of contrasts.
variable_tables <- function(recipe, name, x) {
  if (is.numeric(x)) return(list(columns = NCOL(x)))
  levels <- if (is.logical(x)) c("FALSE", "TRUE") else recipe$levels[[name]]
  if (!is.null(dim(x)) || length(levels) < 2L) return(NULL)
  f <- factor(levels, levels, ordered = is.ordered(x))
  stats::contrasts(f) <- recipe$contrasts[[name]] %||% stats::contrasts(f)
  list(levels = levels, coded = list(sparse_table(stats::contrasts(f)), sparse_table(diag(length(levels)))))
}

sparse_table <- function(C) {
  at <- which(t(C) != 0, arr.ind = TRUE)   # by rows of C
  list(start = c(0L, cumsum(tabulate(at[, 2L], nrow(C)))), column = as.integer(at[, 1L]) - 1L, entry = as.double(t(C)[at]),
       columns = ncol(C))
}

# As model.matrix() changes them: without an intercept the first factor of the first term with one has a column for each level.
codings <- function(terms, tables) {
  factors <- attr(terms, "factors")
  if (attr(terms, "intercept") == 1 || !length(factors)) return(factors)
  coded <- vapply(rownames(factors), function(name) !is.null(tables[[name]]$coded), NA)
  at <- which(factors > 0 & coded, arr.ind = TRUE)
  if (nrow(at)) factors[at[1L, , drop = FALSE]] <- 2L
  factors
}

# Of each term its first column, and its variables with the distance of their columns, as C has them.
numbered_terms <- function(terms, tables) {
  factors <- codings(terms, tables)
  columns_of <- function(name, coding) tables[[name]]$columns %||% tables[[name]]$coded[[coding]]$columns
  made <- if (attr(terms, "intercept") == 1) list(list(first = 0, variables = list())) else list()
  first <- length(made)
  for (names in variables_of_terms(terms)) {
    coding <- factors[names, 1L + length(made) - attr(terms, "intercept")]
    columns <- as.double(mapply(columns_of, names, coding))
    variables <- Map(function(name, coding, columns, stride) list(name = name, coding = coding, columns = columns, stride = stride),
                     names, coding, columns, c(1, cumprod(columns))[seq_along(columns)])
    made <- c(made, list(list(first = first, variables = unname(variables))))
    first <- first + prod(columns)
  }
  made
}

# how many entries a term has in a row, on average over levels
entries_of_term <- function(term, tables) {
  prod(vapply(term$variables, function(v) {
    table <- tables[[v$name]]
    if (is.null(table$coded)) v$columns else length(table$coded[[v$coding]]$entry) / length(table$levels)
  }, 0))
}

# Numbers far from 0 are kept as differences from about their mean: sums of squares of sparse rows about a mean would lose digits.
large_means <- function(builder, X) {
  stored <- numeric(builder$columns)
  for (term in builder$terms) {
    if (!length(term$variables) || any(vapply(term$variables, function(v) !is.null(builder$tables[[v$name]]$coded), NA))) next
    j <- term$first + seq_len(prod(vapply(term$variables, `[[`, 0, "columns")))
    centre <- colMeans(X[, j, drop = FALSE])
    spread <- sqrt(colMeans(sweep(X[, j, drop = FALSE], 2L, centre)^2))
    stored[j] <- ifelse(is.finite(centre) & abs(centre) > 3 * spread, centre, 0)
  }
  if (any(stored != 0)) stored
}

# The response, where frames are not needed: all variables are columns as they are.
plain_response <- function(recipe) {
  terms <- recipe$terms
  if (length(recipe$extra) || !is.null(attr(terms, "offset"))) return(NULL)
  variables <- vapply(as.list(attr(terms, "variables"))[-1L], function(v) if (is.name(v)) as.character(v) else "", "")
  if (all(variables %in% recipe$columns)) variables[attr(terms, "response")]
}

# ---- a chunk ---------------------------------------------------------------------------------------

# X of n rows of a frame or of a chunk itself; NULL where a value is missing or a level not known, which model.frame() is to judge.
built_design <- function(builder, frame, n) {
  values <- list()
  for (name in names(builder$tables)) {
    values[[name]] <- value_or_code(builder$tables[[name]], frame[[name]], n)
    if (is.null(values[[name]])) return(NULL)
  }
  terms <- lapply(builder$terms, function(term) {
    term$variables <- lapply(term$variables, function(v) {
      table <- builder$tables[[v$name]]
      if (!is.null(table$coded)) return(c(v, list(value = NULL, code = values[[v$name]], levels = table$coded[[v$coding]])))
      c(v, list(value = values[[v$name]]))
    })
    term
  })
  if (!is.null(builder$stored)) terms <- lapply(terms, shifted_term, builder$stored)
  X <- c(.Call(elvi_r_design_of_terms, terms, n), list(dim = c(n, builder$columns), names = builder$labels))
  if (builder$sparse) return(X)
  dense_design(X)
}

value_or_code <- function(table, x, n) {
  if (is.null(table$coded)) {
    if (!is.numeric(x) || is.object(x) && !is.matrix(x) && !inherits(x, "AsIs") || NCOL(x) != table$columns || anyNA(x)) return(NULL)
    return(as.double(x))
  }
  code <- if (is.logical(x)) x + 1L
          else if (is.factor(x)) match(levels(x), table$levels)[as.integer(x)]
          else if (is.character(x)) match(x, table$levels)
  if (length(code) == n && !anyNA(code)) code
}

# a term of numbers only, less what is kept apart
shifted_term <- function(term, stored) {
  j <- term$first + seq_len(prod(vapply(term$variables, `[[`, 0, "columns")))
  if (!any(stored[j] != 0)) return(term)
  value <- products_of_columns(lapply(term$variables, function(v) matrix(v$value, ncol = v$columns)))
  term$variables <- list(list(columns = length(j), stride = 1, value = as.double(value - rep(stored[j], each = nrow(value)))))
  term
}

# columns of all products, those of the first fastest
products_of_columns <- function(matrices) {
  times <- function(A, B) {
    A[, rep(seq_len(ncol(A)), ncol(B)), drop = FALSE] * B[, rep(seq_len(ncol(B)), each = ncol(A)), drop = FALSE]
  }
  Reduce(times, matrices)
}

# X - shift of rows whose X is kept less `stored`, see large_means()
shifted_by <- function(rows, shift) {
  rows["shift"] <- list(if (is.null(rows$stored)) shift else (shift %||% 0) - rows$stored)
  rows
}

# the whole design as a matrix, without what is kept apart
dense_rows <- function(rows) {
  X <- dense_design(rows$X)
  if (is.null(rows$stored)) X else X + rep(rows$stored, each = nrow(X))
}
