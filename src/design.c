/* Spreads of linear predictors for matrices in memory, dense and sparse.
 *
 * Columns are shifted by constants without being rewritten: a row is u_i - c. So
 * centring needs no copy of a dense matrix, and a sparse one stays sparse. */
#include "linalg.h"
#include <math.h>
#include <string.h>

int elvi_design_piece(const elvi_design *X, int rows)
{
    const int fits = 131072 / X->dim, best = fits < 256 ? 256 : fits > 4096 ? 4096 : fits;
    return rows < best ? rows : best;
}

static double dot(int d, const double *a, const double *b)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += a[i] * b[i];
    return sum;
}

/* ---- |scale' (u - c)| ---------------------------------------------------------- */

size_t elvi_spread_length(const elvi_design *X, elvi_scale_kind kind)
{
    const size_t d = (size_t) X->dim;
    return d + (X->X || kind == ELVI_DIAGONAL ? 0 : 2 * d * d);
}

/* all of the lower-stored scale, so that BLAS may read it */
static void fill(elvi_scale_kind kind, int d, const double *scale, double *full)
{
    for (int j = 0; j < d; j++)
        for (int i = j; i < d; i++) {
            const double v = scale[(size_t) j * d + i];
            full[(size_t) j * d + i] = v;
            if (i > j) full[(size_t) i * d + j] = kind == ELVI_SYMMETRIC ? v : 0.0;
        }
}

elvi_spread elvi_spread_of(const elvi_design *X, elvi_scale_kind kind, const double *scale,
                           double *room)
{
    const int d = X->dim;
    elvi_spread s = { kind, scale, NULL, room, 0.0 };
    if (X->shift) memcpy(s.shift, X->shift, (size_t) d * sizeof(double));
    if (kind == ELVI_DIAGONAL) {
        for (int i = 0; X->shift && i < d; i++) {
            s.shift2 += X->shift[i] * X->shift[i] * scale[i] * scale[i];
            s.shift[i] *= X->X ? scale[i] : scale[i] * scale[i];
        }
        return s;
    }
    if (!X->X) {
        double *full = room + d + (size_t) d * d;
        s.form = room + d;
        fill(kind, d, scale, full);
        memset(s.form, 0, (size_t) d * d * sizeof(double));
        elvi_syrk(d, d, 1.0, full, s.form);
    }
    if (!X->shift) return s;
    if (!X->X)
        elvi_symm(d, 1, s.form, X->shift, 0.0, s.shift);
    else if (kind == ELVI_SYMMETRIC)
        elvi_symm(d, 1, scale, X->shift, 0.0, s.shift);
    else
        elvi_trmm_lower('T', d, 1, scale, s.shift);
    s.shift2 = X->X ? 0.0 : dot(d, X->shift, s.shift);
    return s;
}

static void spread_dense(const elvi_design *X, const elvi_spread *spread, int first, int rows,
                         double *XS, double *s)
{
    const double *block = X->X + first;
    memset(s, 0, (size_t) rows * sizeof(double));
    if (spread->kind != ELVI_DIAGONAL) {
        for (int j = 0; spread->kind == ELVI_TRIANGULAR && j < X->dim; j++)
            memcpy(XS + (size_t) j * rows, block + (size_t) j * X->rows,
                   (size_t) rows * sizeof(double));
        elvi_right_multiply(spread->kind == ELVI_SYMMETRIC, rows, X->dim, spread->scale, XS,
                            block, X->rows);
    }
    for (int j = 0; j < X->dim; j++) {
        const int diagonal = spread->kind == ELVI_DIAGONAL;
        const double *col = diagonal ? block + (size_t) j * X->rows : XS + (size_t) j * rows;
        const double by = diagonal ? spread->scale[j] : 1.0;
        const double c = X->shift ? spread->shift[j] : 0.0;
        for (int i = 0; i < rows; i++) {
            const double v = by * col[i] - c;
            s[i] += v * v;
        }
    }
}

static void spread_sparse(const elvi_design *X, const elvi_spread *spread, int first, int rows,
                          double *s)
{
    const size_t d = (size_t) X->dim;
    for (int i = 0; i < rows; i++) {
        const int from = X->start[first + i], to = X->start[first + i + 1];
        double sum = spread->shift2;
        for (int l = from; l < to; l++) {
            const int at = X->column[l];
            const double v = X->entry[l];
            if (spread->kind == ELVI_DIAGONAL)
                sum += v * v * spread->scale[at] * spread->scale[at];
            else {
                const double *col = spread->form + (size_t) at * d;
                double cross = 0.5 * v * col[at];
                for (int k = l + 1; k < to; k++) cross += X->entry[k] * col[X->column[k]];
                sum += 2.0 * v * cross;
            }
            if (X->shift) sum -= 2.0 * v * spread->shift[at];
        }
        s[i] = sum > 0.0 ? sum : 0.0;
    }
}

void elvi_design_spread(const elvi_design *X, const elvi_spread *spread, int first, int rows,
                        double *scratch, double *s)
{
    const int step = elvi_design_piece(X, rows);
    for (int done = 0; X->X && done < rows; done += step) {
        const int now = rows - done < step ? rows - done : step;
        spread_dense(X, spread, first + done, now, scratch, s + done);
    }
    if (!X->X) spread_sparse(X, spread, first, rows, s);
    for (int i = 0; i < rows; i++) s[i] = sqrt(s[i]);
}

/* ---- odds and ends ------------------------------------------------------------ */

void elvi_design_by_rows(int rows, int dim, const int *from_start, const int *row,
                         const double *from, int *start, int *column, double *entry)
{
    memset(start, 0, ((size_t) rows + 1) * sizeof(int));
    for (int k = 0; k < from_start[dim]; k++) start[row[k] + 1]++;
    for (int i = 0; i < rows; i++) start[i + 1] += start[i];
    /* start[i] serves as the next free place of row i, and ends as its end */
    for (int j = 0; j < dim; j++)
        for (int k = from_start[j]; k < from_start[j + 1]; k++) {
            const int at = start[row[k]]++;
            column[at] = j;
            entry[at] = from[k];
        }
    for (int i = rows; i > 0; i--) start[i] = start[i - 1];
    start[0] = 0;
}
