#include "r_elvi.h"
#include <math.h>
#include <string.h>

/* the regression behind a model of kind glm or aux */
static const elvi_glm *regression(SEXP model, r_model_store *store)
{
    const elvi_model m = r_model(model, store, 1);
    return m.ops == &elvi_aux_ops ? &store->aux.linear : &store->glm;
}

/* X'X over the rows of positive weight */
SEXP elvi_r_gram(SEXP model)
{
    r_model_store store;
    const elvi_glm *glm = regression(model, &store);
    const elvi_design *X = &glm->design;
    const int chunk = elvi_design_chunk(X, ELVI_POINT);
    double *used = (double *) R_alloc(chunk, sizeof(double));
    double *scratch = (double *) R_alloc(elvi_crossprod_length(X), sizeof(double));
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, X->dim, X->dim));
    memset(REAL(out), 0, (size_t) X->dim * X->dim * sizeof(double));
    for (int first = 0; first < X->rows; first += chunk) {
        const int rows = X->rows - first < chunk ? X->rows - first : chunk;
        R_CheckUserInterrupt();
        for (int i = 0; i < rows; i++) used[i] = glm->weight[first + i] > 0.0;
        elvi_design_crossprod(X, first, rows, used, scratch, REAL(out));
    }
    r_mirror(X->dim, REAL(out));
    UNPROTECT(1);
    return out;
}

/* the largest |X_i x| */
SEXP elvi_r_stretch(SEXP model, SEXP x)
{
    r_model_store store;
    const elvi_design *X = &regression(model, &store)->design;
    double *eta = (double *) R_alloc(elvi_design_chunk(X, ELVI_POINT), sizeof(double));
    return Rf_ScalarReal(elvi_design_stretch(X, REAL(x), eta));
}

/* X x, without the offset */
SEXP elvi_r_predictor(SEXP model, SEXP x)
{
    r_model_store store;
    const elvi_design *X = &regression(model, &store)->design;
    SEXP out = PROTECT(Rf_allocVector(REALSXP, X->rows));
    memset(REAL(out), 0, (size_t) X->rows * sizeof(double));
    elvi_design_predict(X, 0, X->rows, REAL(x), X->dim, 1, REAL(out));
    UNPROTECT(1);
    return out;
}

/* the largest |X_ij| of each column over rows of positive weight */
SEXP elvi_r_reach(SEXP model)
{
    r_model_store store;
    const elvi_glm *glm = regression(model, &store);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, glm->dim));
    elvi_design_reach(&glm->design, glm->weight, REAL(out));
    UNPROTECT(1);
    return out;
}

/* A matrix stored by columns (start, row, entry) as one stored by rows. */
SEXP elvi_r_by_rows(SEXP rows, SEXP start, SEXP row, SEXP entry)
{
    static const char *const names[] = { "start", "column", "entry" };
    const int n = Rf_asInteger(rows), d = Rf_length(start) - 1;
    SEXP out = PROTECT(r_named_list(3, names));
    SET_VECTOR_ELT(out, 0, Rf_allocVector(INTSXP, (R_xlen_t) n + 1));
    SET_VECTOR_ELT(out, 1, Rf_allocVector(INTSXP, Rf_xlength(row)));
    SET_VECTOR_ELT(out, 2, Rf_allocVector(REALSXP, Rf_xlength(row)));
    elvi_design_by_rows(n, d, INTEGER(start), INTEGER(row), REAL(entry),
                        INTEGER(VECTOR_ELT(out, 0)), INTEGER(VECTOR_ELT(out, 1)),
                        REAL(VECTOR_ELT(out, 2)));
    UNPROTECT(1);
    return out;
}
