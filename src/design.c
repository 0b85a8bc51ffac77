/* What a regression does with its design matrix, a chunk of rows at a time, so
 * that scratch stays small however many rows there are: predict, collect, weigh.
 *
 * Columns are shifted by constants without being rewritten: a row is u_i - c,
 * and the terms in c are gathered per chunk. So centring needs no copy of a dense
 * matrix, and a sparse one stays sparse. */
#include "linalg.h"
#include <math.h>
#include <string.h>

int elvi_design_chunk(const elvi_design *X, elvi_pass pass)
{
    /* A block of points takes a chunk of predictors each. For a single one chunks
     * are long, so that threads have enough to do; and d^2 work per chunk is then
     * little beside that on its rows. */
    const int best = pass == ELVI_BLOCK ? 1024 : 32768;
    return X->rows < best ? X->rows : best;
}

/* rows of a dense copy that stays in the cache */
static int piece(const elvi_design *X, int rows)
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

/* ---- X x and X' slope ------------------------------------------------------- */

static void predict_sparse(const elvi_design *X, int first, int rows, const double *x,
                           double *eta)
{
    for (int i = 0; i < rows; i++) {
        double sum = 0.0;
        for (int k = X->start[first + i]; k < X->start[first + i + 1]; k++)
            sum += X->entry[k] * x[X->column[k]];
        eta[i] += sum;
    }
}

static void collect_sparse(const elvi_design *X, int first, int rows, const double *slope,
                           double *grad)
{
    for (int i = 0; i < rows; i++)
        for (int k = X->start[first + i]; k < X->start[first + i + 1]; k++)
            grad[X->column[k]] += X->entry[k] * slope[i];
}

void elvi_design_predict(const elvi_design *X, int first, int rows, const double *x,
                         int ld, int n, double *eta)
{
    if (X->X)
        elvi_gemm('N', 'N', rows, n, X->dim, 1.0, X->X + first, X->rows, x, ld, 1.0, eta, rows);
    for (int j = 0; j < n; j++) {
        const double *point = x + (size_t) j * ld;
        double *col = eta + (size_t) j * rows;
        if (!X->X) predict_sparse(X, first, rows, point, col);
        if (X->shift) {
            const double by = dot(X->dim, X->shift, point);
            for (int i = 0; i < rows; i++) col[i] -= by;
        }
    }
}

void elvi_design_collect(const elvi_design *X, int first, int rows, const double *slope,
                         int ld, int n, double *grad)
{
    if (X->X)
        elvi_gemm('T', 'N', X->dim, n, rows, 1.0, X->X + first, X->rows, slope, rows,
                  1.0, grad, ld);
    for (int j = 0; j < n; j++) {
        const double *col = slope + (size_t) j * rows;
        double *out = grad + (size_t) j * ld;
        if (!X->X) collect_sparse(X, first, rows, col, out);
        if (X->shift) {
            double total = 0.0;
            for (int i = 0; i < rows; i++) total += col[i];
            for (int i = 0; i < X->dim; i++) out[i] -= total * X->shift[i];
        }
    }
}

/* ---- X' W X ------------------------------------------------------------------ */

static void crossprod_dense(const elvi_design *X, int first, int rows, const double *weight,
                            double *copy, double *B)
{
    double *root = copy + (size_t) rows * X->dim;
    for (int i = 0; i < rows; i++) root[i] = sqrt(weight[i]);
    for (int j = 0; j < X->dim; j++) {
        const double *from = X->X + (size_t) j * X->rows + first;
        const double c = X->shift ? X->shift[j] : 0.0;
        double *to = copy + (size_t) j * rows;
        for (int i = 0; i < rows; i++) to[i] = root[i] * (from[i] - c);
    }
    elvi_crossprod(rows, X->dim, copy, B);
}

/* sum w (u - c)(u - c)' = sum w u u' - m c' - c m' + W c c', m = sum w u */
static void crossprod_sparse(const elvi_design *X, int first, int rows, const double *weight,
                             double *m, double *B)
{
    const int d = X->dim;
    double total = 0.0;
    memset(m, 0, (size_t) d * sizeof(double));
    for (int i = 0; i < rows; i++) {
        const int from = X->start[first + i], to = X->start[first + i + 1];
        total += weight[i];
        for (int l = from; l < to; l++) {
            const double by = weight[i] * X->entry[l];
            double *col = B + (size_t) X->column[l] * d;
            m[X->column[l]] += by;
            for (int k = l; k < to; k++) col[X->column[k]] += by * X->entry[k];
        }
    }
    if (!X->shift) return;
    for (int j = 0; j < d; j++)
        for (int i = j; i < d; i++)
            B[(size_t) j * d + i] += X->shift[j] * (total * X->shift[i] - m[i]) - m[j] * X->shift[i];
}

void elvi_design_crossprod(const elvi_design *X, int first, int rows, const double *weight,
                           double *scratch, double *B)
{
    const int step = piece(X, rows);
    for (int done = 0; X->X && done < rows; done += step) {
        const int now = rows - done < step ? rows - done : step;
        crossprod_dense(X, first + done, now, weight + done, scratch, B);
    }
    if (!X->X) crossprod_sparse(X, first, rows, weight, scratch, B);
}

size_t elvi_crossprod_length(const elvi_design *X)
{
    return X->X ? (size_t) piece(X, X->rows) * ((size_t) X->dim + 1) : (size_t) X->dim;
}

/* ---- |scale' (u - c)| ---------------------------------------------------------- */

size_t elvi_spread_length(const elvi_design *X, const elvi_scale_ops *kind)
{
    return 2 * (size_t) X->dim + (X->X ? 0 : kind->form_length(X->dim));
}

elvi_spread elvi_spread_of(const elvi_design *X, const elvi_scale_ops *kind, const double *scale,
                           double *room)
{
    const int d = X->dim;
    double *moved = room + d, *form = room + 2 * (size_t) d;
    elvi_spread s = { kind, scale, NULL, room, 0.0 };
    if (!X->X) {
        kind->form(d, scale, form);
        s.form = form;
    }
    if (!X->shift) return s;
    if (X->X) {
        kind->transposed(d, scale, 1, X->shift, s.shift);
    } else {
        kind->transposed(d, scale, 1, X->shift, moved);
        kind->apply(d, scale, 1, moved, s.shift);
        s.shift2 = dot(d, moved, moved);
    }
    return s;
}

static void spread_sparse(const elvi_design *X, const elvi_spread *spread, int first, int rows,
                          double *s)
{
    for (int i = 0; i < rows; i++) {
        const int from = X->start[first + i], n = X->start[first + i + 1] - from;
        double sum = spread->shift2 + spread->kind->form_value(X->dim, spread->form, n, X->column + from, X->entry + from);
        for (int l = from; X->shift && l < from + n; l++) sum -= 2.0 * X->entry[l] * spread->shift[X->column[l]];
        s[i] = sum > 0.0 ? sum : 0.0;
    }
}

void elvi_design_spread(const elvi_design *X, const elvi_spread *spread, int first, int rows,
                        double *scratch, double *s)
{
    const int step = piece(X, rows);
    for (int done = 0; X->X && done < rows; done += step) {
        const int now = rows - done < step ? rows - done : step;
        spread->kind->spread2_rows(X->dim, spread->scale, now, X->X + first + done, X->rows,
                                   X->shift ? spread->shift : NULL, scratch, s + done);
    }
    if (!X->X) spread_sparse(X, spread, first, rows, s);
    for (int i = 0; i < rows; i++) s[i] = sqrt(s[i]);
}

/* ---- odds and ends ------------------------------------------------------------ */

double elvi_design_stretch(const elvi_design *X, const double *x, double *eta)
{
    const int chunk = elvi_design_chunk(X, ELVI_POINT);
    double top = 0.0;
    for (int first = 0; first < X->rows; first += chunk) {
        const int rows = X->rows - first < chunk ? X->rows - first : chunk;
        memset(eta, 0, (size_t) rows * sizeof(double));
        elvi_design_predict(X, first, rows, x, X->dim, 1, eta);
        for (int i = 0; i < rows; i++) top = fmax(top, fabs(eta[i]));
    }
    return top;
}

void elvi_design_reach(const elvi_design *X, const double *weight, double *reach)
{
    for (int j = 0; j < X->dim; j++) {
        const double c = X->shift ? X->shift[j] : 0.0;
        double top = X->X ? 0.0 : fabs(c);   /* some entry of the column is 0, or nearly so */
        for (int i = 0; X->X && i < X->rows; i++)
            if (weight[i] > 0.0) top = fmax(top, fabs(X->X[(size_t) j * X->rows + i] - c));
        reach[j] = top;
    }
    for (int i = 0; !X->X && i < X->rows; i++)
        for (int k = X->start[i]; k < X->start[i + 1] && weight[i] > 0.0; k++) {
            const int j = X->column[k];
            const double c = X->shift ? X->shift[j] : 0.0;
            reach[j] = fmax(reach[j], fabs(X->entry[k] - c));
        }
}

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
