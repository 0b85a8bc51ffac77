/* The loops of R/solve-surrogate.R and R/solve-scores.R over many points and many terms. */
#include "core.h"
#include <math.h>

/* out: n x terms. A term is the product of columns of the basis (n x anything), `most` at the most: their numbers from 1 are a
 * row of `factors` (terms x most), and number 1 is a column of ones. */
void elvi_column_products(size_t n, const double *basis, size_t terms, const int *factors, size_t most, double *out)
{
    for (size_t k = 0; k < terms; k++) {
        double *term = out + k * n;
        const double *first = basis + (size_t) (factors[k] - 1) * n;
        for (size_t i = 0; i < n; i++) term[i] = first[i];
        for (size_t f = 1; f < most; f++) {
            if (factors[k + f * terms] == 1) continue;
            const double *column = basis + (size_t) (factors[k + f * terms] - 1) * n;
            for (size_t i = 0; i < n; i++) term[i] *= column[i];
        }
    }
}

#define BLOCK 128

/* Which of m points is the nearest to each of n, from 1; both have a column for each coordinate. In blocks, whose loops have no
 * branch. */
void elvi_nearest(size_t n, const double *x, size_t m, const double *points, size_t dim, int *out)
{
    for (size_t from = 0; from < n; from += BLOCK) {
        const size_t size = n - from < BLOCK ? n - from : BLOCK;
        double least[BLOCK], square[BLOCK];
        for (size_t i = 0; i < size; i++) least[i] = HUGE_VAL;
        for (size_t i = 0; i < size; i++) out[from + i] = 1;
        for (size_t j = 0; j < m; j++) {
            for (size_t i = 0; i < size; i++) square[i] = 0.0;
            for (size_t k = 0; k < dim; k++) {
                const double *column = x + k * n + from, at = points[j + k * m];
                for (size_t i = 0; i < size; i++) square[i] += (column[i] - at) * (column[i] - at);
            }
            for (size_t i = 0; i < size; i++) out[from + i] = square[i] < least[i] ? (int) j + 1 : out[from + i];
            for (size_t i = 0; i < size; i++) least[i] = square[i] < least[i] ? square[i] : least[i];
        }
    }
}
