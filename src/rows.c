/* Passes over rows, a part at a time, so that scratch stays small however many rows there are and
 * wherever they come from. Parts do not depend on the threads that take them. */
#include "rows.h"
#include "linalg.h"
#include <math.h>
#include <string.h>

elvi_part elvi_part_in_memory(const elvi_rows *from, int first, int rows)
{
    const elvi_part part = { first, rows, from->y + first, from->weight + first, from->offset + first };
    return part;
}

int elvi_rows_chunk(const elvi_rows *from, elvi_pass pass)
{
    /* A block of points takes a chunk of predictors each. For a single one chunks
     * are long, so that threads have enough to do; and d^2 work per chunk is then
     * little beside that on its rows. */
    const int best = pass == ELVI_BLOCK ? 1024 : 32768;
    return from->rows < best ? from->rows : best;
}

int elvi_rows_parts(const elvi_rows *from, elvi_pass pass)
{
    return from->rows ? (from->rows - 1) / elvi_rows_chunk(from, pass) + 1 : 0;
}

elvi_part elvi_rows_part(const elvi_rows *from, elvi_pass pass, int number)
{
    const int chunk = elvi_rows_chunk(from, pass), first = number * chunk, left = from->rows - first;
    return from->ops->part(from, first, left < chunk ? left : chunk);
}

void elvi_rows_predict(const elvi_rows *from, const elvi_part *part, const double *x,
                       int ld, int n, double *eta)
{
    for (int j = 0; j < n; j++)
        memcpy(eta + (size_t) j * part->rows, part->offset, (size_t) part->rows * sizeof(double));
    from->ops->predict(from, part, x, ld, n, eta);
}

double elvi_rows_extent(const elvi_rows *from, const double *x, double *eta)
{
    double top = 0.0;
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_POINT); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_POINT, k);
        memset(eta, 0, (size_t) part.rows * sizeof(double));
        from->ops->predict(from, &part, x, from->dim, 1, eta);
        for (int i = 0; i < part.rows; i++) top = fmax(top, fabs(eta[i]));
    }
    return top;
}

void elvi_rows_reach(const elvi_rows *from, double *reach)
{
    memset(reach, 0, (size_t) from->dim * sizeof(double));
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_POINT); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_POINT, k);
        from->ops->reach(from, &part, reach);
    }
}

elvi_status elvi_rows_gram(const elvi_rows *from, int weighted, double *used, double *scratch, double *out,
                           const elvi_hooks *hooks)
{
    memset(out, 0, (size_t) from->dim * from->dim * sizeof(double));
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_POINT); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_POINT, k);
        if (hooks->poll(hooks->ctx, NULL)) return ELVI_STOPPED;
        for (int i = 0; i < part.rows; i++) used[i] = part.weight[i] > 0.0;
        from->ops->crossprod(from, &part, weighted ? part.weight : used, scratch, out);
    }
    elvi_mirror(from->dim, out);
    return ELVI_OK;
}

void elvi_rows_sums(const elvi_rows *from, const double *weight, double *out)
{
    memset(out, 0, (size_t) from->dim * sizeof(double));
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_POINT); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_POINT, k);
        from->ops->collect(from, &part, weight + part.first, from->dim, 1, out);
    }
}

elvi_status elvi_rows_squares(const elvi_rows *from, const double *weight, double *out, const elvi_hooks *hooks)
{
    memset(out, 0, (size_t) from->dim * sizeof(double));
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_POINT); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_POINT, k);
        if (hooks->poll(hooks->ctx, NULL)) return ELVI_STOPPED;
        from->ops->squares(from, &part, weight + part.first, out);
    }
    return ELVI_OK;
}

elvi_status elvi_rows_cross_times(const elvi_rows *from, const double *weight, const double *v, double *eta, double *out,
                                  const elvi_hooks *hooks)
{
    memset(out, 0, (size_t) from->dim * sizeof(double));
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_POINT); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_POINT, k);
        if (hooks->poll(hooks->ctx, NULL)) return ELVI_STOPPED;
        memset(eta, 0, (size_t) part.rows * sizeof(double));
        from->ops->predict(from, &part, v, from->dim, 1, eta);
        for (int i = 0; i < part.rows; i++) eta[i] *= weight[part.first + i];
        from->ops->collect(from, &part, eta, from->dim, 1, out);
    }
    return ELVI_OK;
}

void elvi_rows_times(const elvi_rows *from, const double *x, double *out)
{
    memset(out, 0, (size_t) from->rows * sizeof(double));
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_POINT); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_POINT, k);
        from->ops->predict(from, &part, x, from->dim, 1, out + part.first);
    }
}

int elvi_column_of_reals(int n, const double *from, double *column)
{
    int missing = 0;
    for (int i = 0; i < n; i++) {
        missing |= isnan(from[i]);
        column[i] = from[i];
    }
    return missing;
}

int elvi_column_of_ints(int n, const int *from, int missing, double *column)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        found |= from[i] == missing;
        column[i] = from[i];
    }
    return found;
}

void elvi_rows_check_sums(const elvi_rows *from, const double *by, double *mark, double sums[3])
{
    const double *beside = by + from->dim;
    sums[0] = sums[1] = sums[2] = 0.0;
    for (int k = 0, parts = elvi_rows_parts(from, ELVI_BLOCK); k < parts; k++) {
        const elvi_part part = elvi_rows_part(from, ELVI_BLOCK, k);
        double sum = 0.0, squares = 0.0, sizes = 0.0;
        for (int i = 0; i < part.rows; i++)
            mark[i] = beside[0] * part.y[i] + beside[1] * part.weight[i] + beside[2] * part.offset[i];
        from->ops->predict(from, &part, by, from->dim, 1, mark);
        for (int i = 0; i < part.rows; i++) {
            sum += mark[i];
            squares += mark[i] * mark[i];
            sizes += fabs(mark[i]);
        }
        sums[0] += sum;
        sums[1] += squares;
        sums[2] += sizes;
    }
}
