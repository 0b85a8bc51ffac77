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

/* The quantiles of densities at rising standard normal scores, in rows. value: logarithms of the densities, nodes in rows,
 * densities in columns; -Inf at either end for nodes that there are not. */
SEXP elvi_r_score_quantiles(SEXP value, SEXP from, SEXP step, SEXP scores)
{
    const int nodes = Rf_nrows(value), n = Rf_ncols(value), m = Rf_length(scores);
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, m, n));
    double *work = (double *) R_alloc(elvi_score_quantiles_length(nodes), sizeof(double));
    for (int k = 0; k < n; k++) {
        const double *column = REAL(value) + (size_t) k * (size_t) nodes;
        int first = 0, last = nodes - 1;
        while (first < last && !R_FINITE(column[first])) first++;
        while (last > first && !R_FINITE(column[last])) last--;
        const double start = Rf_asReal(from) + first * Rf_asReal(step);
        const elvi_density density = { last - first + 1, start, Rf_asReal(step), column + first };
        if (density.nodes < 2 || elvi_score_quantiles(&density, m, REAL(scores), REAL(out) + (size_t) k * (size_t) m, work))
            Rf_error("elvi internal error: a density without quantiles");
    }
    UNPROTECT(1);
    return out;
}
