/* Rows of a dense matrix in memory: products are those of BLAS. Columns are shifted without being
 * rewritten, and the terms in the shift are gathered per part. */
#include "linalg.h"
#include "rows.h"
#include <math.h>

/* rows of a copy that stays in the cache */
static int piece(const elvi_design *X, int rows)
{
    const int fits = 131072 / X->dim, best = fits < 256 ? 256 : (fits > 4096 ? 4096 : fits);
    return rows < best ? rows : best;
}

static double shift_of(const elvi_design *X, int j)
{
    return X->shift ? X->shift[j] : 0.0;
}

static void dense_predict(const elvi_rows *from, const elvi_part *part, const double *x,
                          int ld, int n, double *eta)
{
    const elvi_design *X = from->data;
    const int rows = part->rows;
    elvi_gemm('N', 'N', rows, n, X->dim, 1.0, X->X + part->first, X->rows, x, ld, 1.0, eta, rows);
    for (int j = 0; X->shift && j < n; j++) {
        double by = 0.0, *col = eta + (size_t) j * rows;
        for (int i = 0; i < X->dim; i++) by += X->shift[i] * x[(size_t) j * ld + i];
        for (int i = 0; i < rows; i++) col[i] -= by;
    }
}

static void dense_collect(const elvi_rows *from, const elvi_part *part, const double *slope,
                          int ld, int n, double *grad)
{
    const elvi_design *X = from->data;
    const int rows = part->rows;
    elvi_gemm('T', 'N', X->dim, n, rows, 1.0, X->X + part->first, X->rows, slope, rows, 1.0, grad, ld);
    for (int j = 0; X->shift && j < n; j++) {
        double total = 0.0, *out = grad + (size_t) j * ld;
        for (int i = 0; i < rows; i++) total += slope[(size_t) j * rows + i];
        for (int i = 0; i < X->dim; i++) out[i] -= total * X->shift[i];
    }
}

/* of a few rows, through a copy with the roots of the weights in it */
static void crossprod_piece(const elvi_design *X, int first, int rows, const double *weight,
                            double *copy, double *B)
{
    double *root = copy + (size_t) rows * X->dim;
    for (int i = 0; i < rows; i++) root[i] = sqrt(weight[i]);
    for (int j = 0; j < X->dim; j++) {
        const double *from = X->X + (size_t) j * X->rows + first;
        const double c = shift_of(X, j);
        double *to = copy + (size_t) j * rows;
        for (int i = 0; i < rows; i++) to[i] = root[i] * (from[i] - c);
    }
    elvi_crossprod(rows, X->dim, copy, B);
}

static void dense_crossprod(const elvi_rows *from, const elvi_part *part, const double *weight,
                            double *scratch, double *B)
{
    const elvi_design *X = from->data;
    const int step = piece(X, part->rows);
    for (int done = 0; done < part->rows; done += step) {
        const int now = part->rows - done < step ? part->rows - done : step;
        crossprod_piece(X, part->first + done, now, weight + done, scratch, B);
    }
}

static size_t dense_scratch_length(const elvi_rows *from)
{
    const elvi_design *X = from->data;
    return (size_t) piece(X, X->rows) * ((size_t) X->dim + 1);
}

static void dense_squares(const elvi_rows *from, const elvi_part *part, const double *weight, double *out)
{
    const elvi_design *X = from->data;
    for (int j = 0; j < X->dim; j++) {
        const double *col = X->X + (size_t) j * X->rows + part->first, c = shift_of(X, j);
        double sum = 0.0;
        for (int i = 0; i < part->rows; i++) sum += weight[i] * (col[i] - c) * (col[i] - c);
        out[j] += sum;
    }
}

static void dense_reach(const elvi_rows *from, const elvi_part *part, double *reach)
{
    const elvi_design *X = from->data;
    for (int j = 0; j < X->dim; j++) {
        const double *col = X->X + (size_t) j * X->rows + part->first, c = shift_of(X, j);
        for (int i = 0; i < part->rows; i++)
            if (part->weight[i] > 0.0) reach[j] = fmax(reach[j], fabs(col[i] - c));
    }
}

static size_t dense_spread_length(const elvi_rows *from, const elvi_scale *kind)
{
    (void) kind;
    return (size_t) from->dim;
}

static elvi_spread dense_spread_of(const elvi_rows *from, const elvi_scale *kind, const double *scale, double *room)
{
    const elvi_design *X = from->data;
    const elvi_spread s = { kind, scale, NULL, room, 0.0 };
    if (X->shift) kind->ops->transposed(kind, scale, 1, X->shift, s.shift);
    return s;
}

static void dense_spread(const elvi_rows *from, const elvi_part *part, const elvi_spread *spread,
                         double *scratch, double *s)
{
    const elvi_design *X = from->data;
    const int step = piece(X, part->rows);
    for (int done = 0; done < part->rows; done += step) {
        const int now = part->rows - done < step ? part->rows - done : step;
        const elvi_row_block rows = { now, X->X + part->first + done, X->rows };
        spread->kind->ops->spread2_rows(spread->kind, spread->scale, &rows, X->shift ? spread->shift : NULL, scratch, s + done);
    }
    for (int i = 0; i < part->rows; i++) s[i] = sqrt(s[i]);
}

const elvi_rows_ops elvi_rows_dense = {
    .part = elvi_part_in_memory,
    .predict = dense_predict,
    .collect = dense_collect,
    .crossprod = dense_crossprod,
    .scratch_length = dense_scratch_length,
    .squares = dense_squares,
    .reach = dense_reach,
    .spread_length = dense_spread_length,
    .spread_of = dense_spread_of,
    .spread = dense_spread,
};
