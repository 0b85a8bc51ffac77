#include "r_elvi.h"

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
