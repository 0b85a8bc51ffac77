/* Rows of a sparse matrix in memory, stored by rows. The terms in the shift of the columns are
 * gathered per part, so that it stays sparse. */
#include "linalg.h"
#include "rows.h"
#include <math.h>
#include <string.h>

static void sparse_predict(const elvi_rows *from, const elvi_part *part, const double *x,
                           int ld, int n, double *eta)
{
    const elvi_design *X = from->data;
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
    const elvi_design *X = from->data;
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
    const elvi_design *X = from->data;
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
    const elvi_design *X = from->data;
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
    const elvi_design *X = from->data;
    const int *start = X->start + part->first;
    for (int j = 0; X->shift && j < X->dim; j++) /* some entry of the column is 0, or nearly so */
        reach[j] = fmax(reach[j], fabs(X->shift[j]));
    for (int i = 0; i < part->rows; i++)
        for (int k = start[i]; k < start[i + 1] && part->weight[i] > 0.0; k++) {
            const int j = X->column[k];
            reach[j] = fmax(reach[j], fabs(X->entry[k] - (X->shift ? X->shift[j] : 0.0)));
        }
}

static size_t sparse_spread_length(const elvi_rows *from, const elvi_scale *kind)
{
    return 2 * (size_t) from->dim + kind->ops->form_length(kind);
}

static elvi_spread sparse_spread_of(const elvi_rows *from, const elvi_scale *kind, const double *scale, double *room)
{
    const elvi_design *X = from->data;
    const int d = X->dim;
    double *moved = room + d, *form = room + 2 * (size_t) d;
    elvi_spread s = { kind, scale, form, room, 0.0 };
    kind->ops->form(kind, scale, form);
    if (!X->shift) return s;
    kind->ops->transposed(kind, scale, 1, X->shift, moved);
    kind->ops->apply(kind, scale, 1, moved, s.shift);
    for (int i = 0; i < d; i++) s.shift2 += moved[i] * moved[i];
    return s;
}

static void sparse_spread(const elvi_rows *from, const elvi_part *part, const elvi_spread *spread,
                          double *scratch, double *s)
{
    const elvi_design *X = from->data;
    (void) scratch;
    for (int i = 0; i < part->rows; i++) {
        const int at = X->start[part->first + i], n = X->start[part->first + i + 1] - at;
        double sum = spread->shift2 + spread->kind->ops->form_value(spread->kind, spread->form, n, X->column + at, X->entry + at);
        for (int l = at; X->shift && l < at + n; l++) sum -= 2.0 * X->entry[l] * spread->shift[X->column[l]];
        s[i] = sum > 0.0 ? sqrt(sum) : 0.0;
    }
}

void elvi_design_by_rows(const elvi_by_columns *from, elvi_by_rows *to)
{
    int *start = to->start;
    memset(start, 0, ((size_t) to->rows + 1) * sizeof(int));
    for (int k = 0; k < from->start[from->dim]; k++) start[from->row[k] + 1]++;
    for (int i = 0; i < to->rows; i++) start[i + 1] += start[i];
    /* start[i] serves as the next free place of row i, and ends as its end */
    for (int j = 0; j < from->dim; j++)
        for (int k = from->start[j]; k < from->start[j + 1]; k++) {
            const int at = start[from->row[k]]++;
            to->column[at] = j;
            to->entry[at] = from->entry[k];
        }
    for (int i = to->rows; i > 0; i--) start[i] = start[i - 1];
    start[0] = 0;
}

const elvi_rows_ops elvi_rows_sparse = {
    .part = elvi_part_in_memory,
    .predict = sparse_predict,
    .collect = sparse_collect,
    .crossprod = sparse_crossprod,
    .scratch_length = sparse_scratch_length,
    .squares = sparse_squares,
    .reach = sparse_reach,
    .spread_length = sparse_spread_length,
    .spread_of = sparse_spread_of,
    .spread = sparse_spread,
};
