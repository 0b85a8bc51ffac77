#include "r_elvi.h"
#include <string.h>

/* ---- rows: lists made by new_rows() in R/rows.R ----------------------------------- */

static void read_dense(SEXP rows, elvi_rows *out, r_rows_store *store)
{
    elvi_design *X = &store->design;
    X->X = r_reals(rows, "X", (R_xlen_t) out->rows * out->dim);
    out->ops = &elvi_rows_dense;
    out->data = X;
    out->entries = (double) out->rows * out->dim;
}

static void read_sparse(SEXP rows, elvi_rows *out, r_rows_store *store)
{
    SEXP list = r_get(rows, "X");
    elvi_design *X = &store->design;
    const R_xlen_t entries = Rf_xlength(r_get(list, "entry"));
    X->start = r_ints(list, "start", (R_xlen_t) out->rows + 1);
    X->column = r_ints(list, "column", entries);
    X->entry = r_reals(list, "entry", entries);
    out->ops = &elvi_rows_sparse;
    out->data = X;
    out->entries = (double) entries;
}

elvi_rows r_rows(SEXP rows, r_rows_store *store)
{
    static const char *const layouts[] = { "dense", "sparse", NULL };
    static void (*const read[])(SEXP, elvi_rows *, r_rows_store *) = { read_dense, read_sparse };
    const R_xlen_t n = Rf_xlength(r_get(rows, "y"));
    const int dim = (int) r_count(rows, "dim");
    elvi_rows out = { .rows = (int) n, .dim = dim };
    const elvi_design design = { (int) n, dim, NULL, NULL, NULL, NULL,
                                 r_get(rows, "shift") == R_NilValue ? NULL : r_reals(rows, "shift", dim) };
    store->design = design;
    out.y = r_reals(rows, "y", n);
    out.weight = r_reals(rows, "weight", n);
    out.offset = r_reals(rows, "offset", n);
    read[r_choice(rows, "layout", layouts)](rows, &out, store);
    return out;
}

elvi_rows r_no_rows(int dim, r_rows_store *store)
{
    const elvi_design design = { .dim = dim };
    const elvi_rows out = { .ops = &elvi_rows_dense, .data = &store->design, .dim = dim };
    store->design = design;
    return out;
}

/* ---- .Call routines ------------------------------------------------------------- */

/* X'X over the rows of positive weight, or X' diag(weight) X */
SEXP elvi_r_gram(SEXP list, SEXP weighted)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    double *used = (double *) R_alloc(elvi_rows_chunk(&rows, ELVI_POINT), sizeof(double));
    double *scratch = (double *) R_alloc(rows.ops->scratch_length(&rows), sizeof(double));
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, rows.dim, rows.dim));
    r_check(elvi_rows_gram(&rows, Rf_asLogical(weighted) == TRUE, used, scratch, REAL(out), &r_interruptible));
    UNPROTECT(1);
    return out;
}

/* X' weight */
SEXP elvi_r_sums(SEXP list, SEXP weight)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, rows.dim));
    elvi_rows_sums(&rows, REAL(weight), REAL(out));
    UNPROTECT(1);
    return out;
}

/* the diagonal of X' diag(weight) X */
SEXP elvi_r_squares(SEXP list, SEXP weight)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, rows.dim));
    r_check(elvi_rows_squares(&rows, REAL(weight), REAL(out), &r_interruptible));
    UNPROTECT(1);
    return out;
}

/* X' diag(weight) X v */
SEXP elvi_r_cross_times(SEXP list, SEXP weight, SEXP v)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    double *eta = (double *) R_alloc(elvi_rows_chunk(&rows, ELVI_POINT), sizeof(double));
    SEXP out = PROTECT(Rf_allocVector(REALSXP, rows.dim));
    r_check(elvi_rows_cross_times(&rows, REAL(weight), REAL(v), eta, REAL(out), &r_interruptible));
    UNPROTECT(1);
    return out;
}

/* the largest |X_i x| */
SEXP elvi_r_extent(SEXP list, SEXP x)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    double *eta = (double *) R_alloc(elvi_rows_chunk(&rows, ELVI_POINT), sizeof(double));
    return Rf_ScalarReal(elvi_rows_extent(&rows, REAL(x), eta));
}

/* X x, without the offset */
SEXP elvi_r_predictor(SEXP list, SEXP x)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, rows.rows));
    elvi_rows_times(&rows, REAL(x), REAL(out));
    UNPROTECT(1);
    return out;
}

/* the largest |X_ij| of each column over rows of positive weight */
SEXP elvi_r_reach(SEXP list)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, rows.dim));
    elvi_rows_reach(&rows, REAL(out));
    UNPROTECT(1);
    return out;
}

/* The matrix of a list of numeric vectors of length n, with a first column of ones for an intercept; NULL if a value is
 * missing. */
SEXP elvi_r_columns(SEXP columns, SEXP n, SEXP intercept)
{
    const int rows = Rf_asInteger(n), ones = Rf_asLogical(intercept) == TRUE, given = Rf_length(columns);
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, rows, ones + given));
    double *to = REAL(out);
    int missing = 0;
    for (int i = 0; ones && i < rows; i++) to[i] = 1.0;
    for (int j = 0; j < given && !missing; j++) {
        SEXP from = VECTOR_ELT(columns, j);
        double *column = to + (size_t) (ones + j) * rows;
        if (Rf_xlength(from) != rows) Rf_error("elvi internal error: a column has another length");
        missing = TYPEOF(from) == INTSXP ? elvi_column_of_ints(rows, INTEGER(from), NA_INTEGER, column)
                                         : elvi_column_of_reals(rows, REAL(from), column);
    }
    UNPROTECT(1);
    return missing ? R_NilValue : out;
}

static elvi_variable read_variable(SEXP given, int rows)
{
    elvi_variable out = { .columns = (int) r_count(given, "columns"), .stride = (int) r_count(given, "stride") };
    if (r_get(given, "value") != R_NilValue) {
        out.value = r_reals(given, "value", (R_xlen_t) rows * out.columns);
        return out;
    }
    SEXP table = r_get(given, "levels");
    const R_xlen_t levels = Rf_xlength(r_get(table, "start")) - 1, entries = Rf_xlength(r_get(table, "entry"));
    out.code = r_ints(given, "code", rows);
    out.start = r_ints(table, "start", levels + 1);
    out.column = r_ints(table, "column", entries);
    out.entry = r_reals(table, "entry", entries);
    for (int i = 0; i < rows; i++)
        if (out.code[i] < 1 || out.code[i] > levels) Rf_error("elvi internal error: a row has no level");
    return out;
}

static elvi_term read_term(SEXP given, int rows)
{
    SEXP variables = r_get(given, "variables");
    const int n = Rf_length(variables);
    elvi_variable *list = (elvi_variable *) R_alloc((size_t) n + 1, sizeof(elvi_variable));
    for (int k = 0; k < n; k++) list[k] = read_variable(VECTOR_ELT(variables, k), rows);
    const elvi_term out = { (int) r_count(given, "first"), n, list };
    return out;
}

/* The design of the terms of a formula by rows: start, column, entry. */
SEXP elvi_r_design_of_terms(SEXP terms, SEXP n)
{
    static const char *const names[] = { "start", "column", "entry", NULL };
    const int rows = Rf_asInteger(n), count = Rf_length(terms);
    elvi_term *term = (elvi_term *) R_alloc((size_t) count + 1, sizeof(elvi_term));
    for (int t = 0; t < count; t++) term[t] = read_term(VECTOR_ELT(terms, t), rows);
    SEXP out = PROTECT(r_named_list(names));
    int *start = INTEGER(r_set(out, "start", Rf_allocVector(INTSXP, (R_xlen_t) rows + 1)));
    elvi_design_of_terms(rows, count, term, start, NULL, NULL);
    int *column = INTEGER(r_set(out, "column", Rf_allocVector(INTSXP, start[rows])));
    double *entry = r_set_reals(out, "entry", start[rows]);
    elvi_design_of_terms(rows, count, term, start, column, entry);
    UNPROTECT(1);
    return out;
}

/* The matrix of a design by rows. */
SEXP elvi_r_dense_from_sparse(SEXP given, SEXP columns)
{
    const int rows = Rf_length(r_get(given, "start")) - 1, dim = Rf_asInteger(columns);
    const R_xlen_t entries = Rf_xlength(r_get(given, "entry"));
    const elvi_design from = {
        .rows = rows,
        .dim = dim,
        .start = r_ints(given, "start", (R_xlen_t) rows + 1),
        .column = r_ints(given, "column", entries),
        .entry = r_reals(given, "entry", entries),
    };
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, rows, dim));
    memset(REAL(out), 0, (size_t) rows * dim * sizeof(double));
    elvi_dense_from_sparse(&from, REAL(out));
    UNPROTECT(1);
    return out;
}

/* sums of the marks of rows, of their squares and of their sizes */
SEXP elvi_r_check_sums(SEXP list, SEXP by)
{
    r_rows_store store;
    const elvi_rows rows = r_rows(list, &store);
    double *mark = (double *) R_alloc(elvi_rows_chunk(&rows, ELVI_BLOCK), sizeof(double));
    SEXP out = PROTECT(Rf_allocVector(REALSXP, 3));
    elvi_rows_check_sums(&rows, REAL(by), mark, REAL(out));
    UNPROTECT(1);
    return out;
}

/* A matrix stored by columns (start, row, entry) as one stored by rows. */
SEXP elvi_r_by_rows(SEXP rows, SEXP start, SEXP row, SEXP entry)
{
    static const char *const names[] = { "start", "column", "entry", NULL };
    const elvi_by_columns from = { Rf_length(start) - 1, INTEGER(start), INTEGER(row), REAL(entry) };
    SEXP out = PROTECT(r_named_list(names));
    elvi_by_rows to = { .rows = Rf_asInteger(rows) };
    to.start = INTEGER(r_set(out, "start", Rf_allocVector(INTSXP, (R_xlen_t) to.rows + 1)));
    to.column = INTEGER(r_set(out, "column", Rf_allocVector(INTSXP, Rf_xlength(row))));
    to.entry = r_set_reals(out, "entry", Rf_xlength(row));
    elvi_design_by_rows(&from, &to);
    UNPROTECT(1);
    return out;
}
