/* Rows of a sparse matrix in memory, stored by rows. The terms in the shift of the columns are
 * gathered per part, so that it stays sparse. */
#include "linalg.h"
#include <math.h>
#include <string.h>

static void sparse_predict(const elvi_rows *from, const elvi_part *part, const double *x,
                           int ld, int n, double *eta)
{
    const elvi_design *X = from->source;
    const int *start = X->start + part->first;
    for (int j = 0; j < n; j++) {
        const double *point = x + (size_t) j * ld;
        double by = 0.0, *col = eta + (size_t) j * part->rows;
        for (int i = 0; X->shift && i < X->dim; i++) by += X->shift[i] * point[i];
        for (int i = 0; i < part->rows; i++) {
            double sum = 0.0;
            for (int k = start[i]; k < start[i + 1]; k++) sum += X->entry[k] * point[X->column[k]];
            col[i] += sum - by;
        }
    }
}

static void sparse_collect(const elvi_rows *from, const elvi_part *part, const double *slope,
                           int ld, int n, double *grad)
{
    const elvi_design *X = from->source;
    const int *start = X->start + part->first;
    for (int j = 0; j < n; j++) {
        const double *col = slope + (size_t) j * part->rows;
        double total = 0.0, *out = grad + (size_t) j * ld;
        for (int i = 0; i < part->rows; i++) {
            total += col[i];
            for (int k = start[i]; k < start[i + 1]; k++) out[X->column[k]] += X->entry[k] * col[i];
        }
        for (int i = 0; X->shift && i < X->dim; i++) out[i] -= total * X->shift[i];
    }
}

/* sum w (u - c)(u - c)' = sum w u u' - m c' - c m' + W c c', m = sum w u */
static void sparse_crossprod(const elvi_rows *from, const elvi_part *part, const double *weight,
                             double *m, double *B)
{
    const elvi_design *X = from->source;
    const int d = X->dim, *start = X->start + part->first;
    double total = 0.0;
    memset(m, 0, (size_t) d * sizeof(double));
    for (int i = 0; i < part->rows; i++) {
        total += weight[i];
        for (int l = start[i]; l < start[i + 1]; l++) {
            const double by = weight[i] * X->entry[l];
            double *col = B + (size_t) X->column[l] * d;
            m[X->column[l]] += by;
            for (int k = l; k < start[i + 1]; k++) col[X->column[k]] += by * X->entry[k];
        }
    }
    if (!X->shift) return;
    for (int j = 0; j < d; j++)
        for (int i = j; i < d; i++)
            B[(size_t) j * d + i] += X->shift[j] * (total * X->shift[i] - m[i]) - m[j] * X->shift[i];
}

static size_t sparse_scratch_length(const elvi_rows *from)
{
    return (size_t) from->dim;
}

static void sparse_squares(const elvi_rows *from, const elvi_part *part, const double *weight, double *out)
{
    const elvi_design *X = from->source;
    const int *start = X->start + part->first;
    double total = 0.0;
    for (int i = 0; i < part->rows; i++) {
        total += weight[i];
        for (int k = start[i]; k < start[i + 1]; k++) {
            const int j = X->column[k];
            const double u = X->entry[k], c = X->shift ? X->shift[j] : 0.0;
            out[j] += weight[i] * u * (u - 2.0 * c);
        }
    }
    for (int j = 0; X->shift && j < X->dim; j++) out[j] += total * X->shift[j] * X->shift[j];
}

static void sparse_reach(const elvi_rows *from, const elvi_part *part, double *reach)
{
    const elvi_design *X = from->source;
    const int *start = X->start + part->first;
    for (int j = 0; X->shift && j < X->dim; j++)   /* some entry of the column is 0, or nearly so */
        reach[j] = fmax(reach[j], fabs(X->shift[j]));
    for (int i = 0; i < part->rows; i++)
        for (int k = start[i]; k < start[i + 1] && part->weight[i] > 0.0; k++) {
            const int j = X->column[k];
            reach[j] = fmax(reach[j], fabs(X->entry[k] - (X->shift ? X->shift[j] : 0.0)));
        }
}

static size_t sparse_spread_length(const elvi_rows *from, elvi_scale_kind kind)
{
    return elvi_spread_length(from->source, kind);
}

static elvi_spread sparse_spread_of(const elvi_rows *from, elvi_scale_kind kind, const double *scale, double *room)
{
    return elvi_spread_of(from->source, kind, scale, room);
}

static void sparse_spread(const elvi_rows *from, const elvi_part *part, const elvi_spread *spread,
                          double *scratch, double *s)
{
    elvi_design_spread(from->source, spread, part->first, part->rows, scratch, s);
}

const elvi_rows_ops elvi_rows_sparse = {
    elvi_part_in_memory, sparse_predict, sparse_collect, sparse_crossprod, sparse_scratch_length, sparse_squares,
    sparse_reach, sparse_spread_length, sparse_spread_of, sparse_spread
};
