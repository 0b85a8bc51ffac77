# Where data larger than memory are read from. A source is a list: `open(columns)` starts a pass and returns
# `read()`, which gives the next chunk (a data frame, or a list with X and y) or NULL at the end, and `close()`.

#' Data larger than memory
#'
#' Sources of data that do not fit in memory. Give a source in place of the `data` of a formula, or of the `X` of
#' [model_glm()]. elvi reads it chunk by chunk, and the fit is that of the same data in memory.
#'
#' * `rows_chunked()` calls a function, as package 'biglm' does: `next_chunk(reset = TRUE)` starts again,
#'   `next_chunk(reset = FALSE)` returns the next chunk, or `NULL` after the last one.
#' * `rows_files()` reads several files: names, patterns such as `"dir/*.csv.gz"`, or directories. Each file is a chunk. If `reader` has an
#'   argument `columns`, it receives the names of the columns that are needed.
#' * `rows_dbi()` reads the result of a query through package 'DBI'. It selects only the columns of the formula. SQLite and
#'   Postgres return a result piece by piece. 'duckdb' returns whole data frames, so its result is first written to a temporary
#'   table, within DuckDB's own `memory_limit`. A lazy table of package 'dbplyr', as `dplyr::tbl(con, "flights")` makes it, can be given as
#'   `data` itself, or as `con` without a `query`.
#' * `rows_arrow()` reads the columns of the formula from an Arrow dataset.
#'
#' A chunk is a data frame for a formula. For [model_glm()] it is a list with `X` and `y`, and optionally `weights`,
#' `frequency` and `offset`. Chunks may be empty.
#'
#' Other storage can be read as a list of "files". For a matrix `m` of package 'bigmemory' these are row numbers:
#' `rows_files(split(1:n, (1:n - 1) %/% 1e5), function(i) as.data.frame(m[i, , drop = FALSE]))`.
#'
#' @section Passes and memory:
#' Every step of the algorithms is a sum over rows, so each step is one pass over the data. The first pass takes a sample of the
#' rows, with all rows of rare levels. The sample gives a start, and an approximate objective for steps between two passes. So
#' an exact fit takes 5 to 8 passes, and 9 with factors of many levels. With more than 447 numeric columns, or 2,000 columns of
#' factors, there is no sample, and a fit takes 7 to 20 passes. `options(elvi.sampled_rows = 2e4)` is the size of the sample.
#' Memory holds one chunk and a few `d` x `d` matrices. For a `gaussian()` model with unknown sigma a single pass computes a
#' triangular factor, which is all that the fit needs. [neg_binomial_2()] with unknown phi is fitted by `method = "mpsgd"`:
#' integrating over phi, as [elvi()] does in memory, would need many more passes.
#'
#' @section Formulas:
#' The formula is applied to one chunk at a time. A first pass finds the levels of factors that `levels` does not give. Levels of
#' characters are sorted. Levels of factors that differ between chunks are in order of appearance. The next pass, the survey, finds
#' means and spreads, so that predictors are centred and priors are scaled as in memory.
#'
#' The terms `ns()`, `bs()`, `poly()`, `scale()` and `cut()` take knots, coefficients, means or breaks from the data. A first
#' pass finds these constants, so the terms are the same as in memory. Up to `options(elvi.collected_rows = 1e6)` rows are
#' collected for it. Of more rows, means, extremes, orthogonal polynomials of one variable and quantiles are found in one to
#' four passes, also those of `cut(x, quantile(x, probs))`.
#'
#' Every other term, and every weight, offset and `subset`, must be computed from its own row. The survey keeps a few rows of every
#' chunk, at most 256 in all, and evaluates them together. A term whose value differs from that in its chunk is an error of
#' class `elvi_error_argument`. Such terms are `x - mean(x)`, `rank(x)`, `ns(rank(x), 3)`, `weights = w / mean(w)` and
#' `subset = !duplicated(id)`. Give the constants instead, as in `I(x - 2.5)`, or add a column to the data.
#' Factors with their own contrasts, also by `C()`, are refused: use the argument `contrasts`. Terms such as `reorder(g, x)`, whose
#' level order depends on the data, are refused too: give the order by `levels`.
#'
#' Every chunk must have all columns that the formula uses. The environment of the formula supplies constants and functions
#' inside a term, such as `knots`. A vector with one value per row must be a column.
#' Rows with missing values are dropped, and `nobs()` counts the rows that were used.
#'
#' @section Groups and smooths:
#' `(1 | g)`, `(x | g)` and similar terms, and smooth terms such as `s(x)`, work with `gaussian()` and with families that have
#' no parameter of their own, or a known `dispersion`. A pass finds the levels. Memory holds one chunk, and sums on the pattern
#' of the factor of the precision: for `(1 | g)` about `d` numbers for each level. Crossed groups fill in more, as they do in
#' memory. `gaussian()` takes one pass for its sums, and the fit is the same as in memory. Other families take some passes for
#' each step over the hyperparameters. With the sample, all rows are read about 10 times, and `print()` says how many quadrature
#' points converged. Without it, 30 to 60 passes are needed. Corrections by draws and profiles need all rows at once and are not
#' made; `print()` says so. The basis of a smooth is made from all values, as long as they are fewer than
#' `options(elvi.collected_rows = 1e6)`, else from every second, fourth, ... of them, with a message.
#'
#' @section Methods of a fit:
#' `predict(newdata = )` and all methods that need only the approximation work as usual. `log_lik()`, `loo()`,
#' `fitted()`, `residuals()`, `predict(interval = )` and `posterior_predict()` and related methods read the data once more. `kfold()`
#' fits the model again without each fold: rows at random, or whole chunks. Draws for
#' all rows take `8 * draws * nobs(fit)` bytes, and limits for all rows only three numbers each.
#' `model.frame()` and `model.matrix()` would hold all rows in memory, so they give an error.
#'
#' The data must not change between passes. Each pass compares the number of rows, and sums to which every value
#' contributes, with those of the survey. A difference is an error of class `elvi_error_rows`. The rows may come in
#' another order.
#'
#' @param next_chunk a function of `reset`, see above.
#' @param files names of files, patterns (see [Sys.glob()]) or directories, whose files are taken in the order of their names; or a list of
#'   whatever `reader` takes. Hidden files are left out of a directory, and so are files that `reader = NULL` does not know by their names.
#' @param reader function of a file's name, and perhaps of `columns`, that returns a chunk. Or the name of a ready one: `"csv"` for
#'   [utils::read.csv()], `"fread"` for `data.table::fread()`, `"parquet"` for `nanoparquet::read_parquet()`, `"rds"` for [readRDS()].
#'   By default the end of a name decides between `"rds"`, `"parquet"` and, for all others, `"csv"`. `"csv"` and `"fread"` read
#'   compressed files too.
#' @param col_types types of columns in all files, by name: `c(sex = "character", age = "numeric")`. Types are `"character"`, `"factor"`,
#'   `"logical"`, `"integer"`, `"numeric"` and `"Date"`. Without them a reader guesses the types of each file. A file in which all
#'   values of `sex` are `F` then has a logical column, and an error says that the types differ.
#' @param retries how many times a read that failed is tried again, after `pause` seconds. A file is read again by itself; a query is
#'   sent again, and its pass starts again. A database that was restarted needs a `con` that is a function.
#' @param pause seconds before a read is tried again.
#' @param con a `DBIConnection`, or a function without arguments that opens one, which is then closed after each pass; or a lazy table.
#' @param query an SQL query, or the name of a table.
#' @param chunk rows to fetch at a time.
#' @param cache bytes of disk, in [tempdir()], that a copy of the rows as numbers may take: about `8 (d + 3)` for each row. 0,
#'   the default, makes none. With a copy the source is read once or twice, and all other passes read the copy, which
#'   is faster for text files, queries and formulas with factors or functions. It lasts as long as the source, and every fit makes it again.
#' @param levels a named list: levels of factors, by the name of their column, or of a term such as `factor(year)`. Those of other
#'   variables are found in a first pass, which is left out if all are given. A value that is not among them is an error.
#' @param dataset a dataset, as made by `arrow::open_dataset()`, or its directory.
#' @return An object of class `elvi_source`.
#' @seealso [rows_cluster()] for rows on several machines; `vignette("large-data")`.
#' @examples
#' # infert in four files
#' part <- rep(1:4, length.out = nrow(infert))
#' files <- file.path(tempdir(), paste0("infert", 1:4, ".csv"))
#' for (i in 1:4) write.csv(infert[part == i, ], files[i], row.names = FALSE)
#' fit <- elvi(case ~ education + age + parity, data = rows_files(files), family = binomial())
#' fit
#' nobs(fit)
#' unlink(files)
#' @name rows_elsewhere
NULL

new_source <- function(kind, label, open, levels = NULL, cache = 0, ...) {
  structure(list(kind = kind, label = label, open = open, levels = check_levels(levels), copy = new_copy(cache), ...),
            class = c(paste0("elvi_source_", kind), "elvi_source"))
}

is_source <- function(x) inherits(x, "elvi_source")

# can it take some of its rows without reading all of them?
draws_rows <- function(source) inherits(source, "elvi_source_cluster")

check_levels <- function(levels) {
  if (is.null(levels)) return(NULL)
  good <- function(x) is.character(x) && length(x) && !anyNA(x) && !anyDuplicated(x)
  if (!is_plain_list(levels) || is.null(names(levels)) || !all(nzchar(names(levels))) || anyDuplicated(names(levels))) {
    bad_argument("levels", "a list of levels with the names of their variables", describe(levels))
  }
  wrong <- which(!vapply(levels, good, NA))
  if (length(wrong)) {
    bad_argument("levels", paste0("a list of different strings for each variable, and so for `", names(levels)[wrong[1L]], "`"),
                 describe(levels[[wrong[1L]]]))
  }
  levels
}

#' @export
print.elvi_source <- function(x, ...) {
  cat("Rows from ", x$label, "\n", sep = "")
  invisible(x)
}

#' @rdname rows_elsewhere
#' @export
rows_chunked <- function(next_chunk, cache = 0, levels = NULL) {
  check_function(next_chunk, "next_chunk")
  if (!any(c("reset", "...") %in% argument_names(next_chunk))) {
    bad_argument("next_chunk", "a function with an argument `reset`", "one without")
  }
  new_source("chunked", "a function of chunks", function(columns = NULL) {
    next_chunk(reset = TRUE)
    list(read = function() next_chunk(reset = FALSE), close = function() invisible())
  }, levels, cache)
}

#' @rdname rows_elsewhere
#' @export
rows_files <- function(files, reader = NULL, cache = 0, levels = NULL, col_types = NULL, retries = 0, pause = 1) {
  if (!length(files) || !is.vector(files) || is.character(files) && anyNA(files)) {
    bad_argument("files", "names of files", describe(files))
  }
  if (is.character(files)) files <- expand_files(files, is.function(reader))
  reader <- check_reader(reader, files)
  types <- check_col_types(col_types)
  again <- check_retries(retries, pause)
  place <- function(k) if (is.character(files)) paste("file", files[[k]]) else paste("file number", k)
  new_source("files", sprintf("%d file(s)", length(files)), function(columns = NULL) {
    at <- 0L
    known <- list()
    list(read = function() {
      if (at == length(files)) return(NULL)
      at <<- at + 1L
      read <- function() reading_rows(reader$read(files[[at]], columns, types), place(at))
      chunk <- with_retries(again, read) %||% data.frame()   # of which there may be more
      if (!is.data.frame(chunk)) return(chunk)
      chunk <- typed_columns(chunk, types, place(at))
      known <<- agreed_types(known, chunk, columns, place(at))
      chunk
    }, place = if (is.character(files)) function() place(at), close = function() invisible())
  }, levels, cache, selects = reader$selects)
}

#' @rdname rows_elsewhere
#' @export
rows_dbi <- function(con, query, chunk = 1e5, cache = 0, levels = NULL, retries = 0, pause = 1) {
  need_package("DBI", "rows_dbi()")
  if (inherits(con, "tbl_lazy")) {
    if (!missing(query)) unused_argument("query", "a lazy table has its own")
    query <- lazy_query(con)
    con <- dbplyr::remote_con(con)
  }
  if (!is.function(con) && !methods::is(con, "DBIConnection")) {
    bad_argument("con", "a connection of package 'DBI', or a function that opens one", describe(con))
  }
  if (!is.character(query) || length(query) != 1L || is.na(query) || !nzchar(query)) {
    bad_argument("query", "an SQL query, a string", describe(query))
  }
  query <- sub(";[[:space:]]*$", "", query)
  chunk <- check_count(chunk, "chunk")
  again <- check_retries(retries, pause)
  new_source("dbi", paste("the query", query), function(columns = NULL) {
    link <- if (is.function(con)) from_database(con()) else con
    done <- function() if (is.function(con)) try(DBI::dbDisconnect(link), silent = TRUE)
    open <- if (inherits(link, "duckdb_connection")) open_table else open_result
    chunks <- tryCatch(open(link, query, columns, chunk), error = function(e) { done(); stop(e) })
    list(read = chunks$read, close = function() {
      try(chunks$close(), silent = TRUE)
      done()
      invisible()
    })
  }, levels, cache, again = again)
}

# The query of a table of 'dbplyr' that was not collected.
lazy_query <- function(table) {
  need_package("dbplyr", "A lazy table")
  if (is.null(dbplyr::remote_con(table))) bad_argument("data", "a lazy table of a database", describe(table))
  as.character(dbplyr::remote_query(table))
}

# `data` of a formula: a lazy table is a query.
as_source_of_rows <- function(data) if (inherits(data, "tbl_lazy")) rows_dbi(data) else data

from_database <- function(expr) reading_rows(expr, "the database")

# The database hands out its result piece by piece.
# A result of RPostgres whose connection was closed ends early, without an error.
open_result <- function(con, query, columns, chunk) {
  result <- from_database(DBI::dbSendQuery(con, select_columns(con, query, columns)))
  fetch <- function() {
    rows <- if (!DBI::dbHasCompleted(result)) DBI::dbFetch(result, n = chunk)
    if (DBI::dbIsValid(con)) rows else stop("the connection was closed")
  }
  list(read = function() from_database(fetch()),
       close = function() DBI::dbClearResult(result))
}

# DuckDB's client holds all of a result, so it is left in a temporary table, in DuckDB's own memory (its `memory_limit`) and
# on its disk, whose rows have numbers to ask for. Without columns only the first rows are wanted.
open_table <- function(con, query, columns, chunk) {
  name <- basename(tempfile("elvi_rows_"))
  from_database(DBI::dbExecute(con, paste("CREATE TEMPORARY TABLE", name, "AS", select_columns(con, query, columns),
                                          if (is.null(columns)) paste0("LIMIT ", format(chunk, scientific = FALSE)))))
  first <- 0
  list(read = function() {
    query <- sprintf("SELECT * FROM %s WHERE rowid >= %.0f AND rowid < %.0f", name, first, first + chunk)
    found <- from_database(DBI::dbGetQuery(con, query))
    first <<- first + chunk
    if (nrow(found)) found
  }, close = function() DBI::dbExecute(con, paste("DROP TABLE", name)))
}

select_columns <- function(con, query, columns) {
  wanted <- if (is.null(columns)) "*" else paste(DBI::dbQuoteIdentifier(con, columns), collapse = ", ")
  paste0("SELECT ", wanted, " FROM ", if (is_table_name(query)) query else paste0("(", query, "\n)"), " AS elvi_rows")
}

# perhaps quoted, or with that of its schema
is_table_name <- function(query) grepl("^([[:alnum:]_.$]+|([[:alnum:]_$]+\\.)?(\"[^\"]+\"|`[^`]+`|\\[[^]]+\\]))$", query)

#' @rdname rows_elsewhere
#' @export
rows_arrow <- function(dataset, chunk = 1e5, cache = 0, levels = NULL, retries = 0, pause = 1) {
  need_package("arrow", "rows_arrow()")
  again <- check_retries(retries, pause)
  if (is.character(dataset) && length(dataset) == 1L) {
    dataset <- blame_argument(arrow::open_dataset(dataset), "dataset", "it cannot be opened")
  }
  if (!inherits(dataset, c("Dataset", "ArrowTabular"))) {
    bad_argument("dataset", "made by arrow::open_dataset(), or a directory", describe(dataset))
  }
  chunk <- check_count(chunk, "chunk")
  new_source("arrow", "an Arrow dataset", function(columns = NULL) {
    scanner <- arrow::Scanner$create(dataset, projection = columns %||% names(dataset), batch_size = chunk)
    batches <- reading_rows(scanner$ToRecordBatchReader(), "the Arrow dataset")
    list(read = function() {
      batch <- reading_rows(batches$read_next_batch(), "the Arrow dataset")
      if (!is.null(batch)) as.data.frame(batch)
    }, close = function() invisible())
  }, levels, cache, again = again)
}

# An error while rows are read is one of the place where they are.
reading_rows <- function(expr, what) {
  tryCatch(expr, error = function(e) {
    elvi_abort("Rows could not be read from ", what, ": ", conditionMessage(e), class = c("elvi_error_read", "elvi_error_rows"),
               data = list(parent = e))
  })
}

# none of a primitive such as `[`, which args() does not know
argument_names <- function(f) names(formals(args(f) %||% function() NULL))
