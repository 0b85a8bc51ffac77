#include "r_elvi.h"

/* factors: a matrix of integers, a row for each term */
SEXP elvi_r_column_products(SEXP basis, SEXP factors)
{
    const int n = Rf_nrows(basis), terms = Rf_nrows(factors);
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, n, terms));
    elvi_column_products((size_t) n, REAL(basis), (size_t) terms, INTEGER(factors), (size_t) Rf_ncols(factors), REAL(out));
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_nearest(SEXP x, SEXP points)
{
    const int n = Rf_nrows(x);
    SEXP out = PROTECT(Rf_allocVector(INTSXP, n));
    elvi_nearest((size_t) n, REAL(x), (size_t) Rf_nrows(points), REAL(points), (size_t) Rf_ncols(x), INTEGER(out));
    UNPROTECT(1);
    return out;
}
