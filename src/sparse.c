/* Sparse Cholesky factors and selected inverses on a pattern that is known beforehand. */
#include "sparse.h"
#include "linalg.h"
#include <math.h>
#include <string.h>

size_t elvi_pattern_length(const elvi_pattern *p)
{
    const size_t t = (size_t) (p->dim - p->head);
    return (size_t) p->start[p->head] + t * t;
}

static inline size_t tail_at(const elvi_pattern *p, int row, int column)
{
    const size_t t = (size_t) (p->dim - p->head);
    return (size_t) p->start[p->head] + (size_t) (column - p->head) * t + (size_t) (row - p->head);
}

size_t elvi_pattern_at(const elvi_pattern *p, int row, int column)
{
    if (column >= p->head) return tail_at(p, row, column);
    int low = p->start[column], high = p->start[column + 1] - 1;
    while (low < high) {
        const int mid = low + (high - low) / 2;
        if (p->row[mid] < row)
            low = mid + 1;
        else
            high = mid;
    }
    return (size_t) low;
}

size_t elvi_pattern_pairs(size_t rows, const int *start)
{
    size_t sum = 0;
    for (size_t i = 0; i < rows; i++) {
        const size_t k = (size_t) (start[i + 1] - start[i]);
        sum += k * (k + 1) / 2;
    }
    return sum;
}

void elvi_pattern_pair_places(const elvi_pattern *p, size_t rows, const int *start, const int *column, int *place)
{
    for (size_t i = 0; i < rows; i++)
        for (int a = start[i]; a < start[i + 1]; a++)
            for (int b = start[i]; b <= a; b++) *place++ = (int) elvi_pattern_at(p, column[a], column[b]);
}

static int is_on_pattern(const elvi_pattern *p, int row, int column)
{
    if (column >= p->head) return 1;
    const size_t at = elvi_pattern_at(p, row, column);
    return at < (size_t) p->start[column + 1] && p->row[at] == row;
}

void elvi_pattern_find_pairs(const elvi_pattern *p, size_t rows, const int *start, const int *column, int *place, int *held)
{
    elvi_pattern_pair_places(p, rows, start, column, place);
    for (size_t i = 0; i < rows; i++) {
        held[i] = 1;
        for (int a = start[i]; a < start[i + 1]; a++)
            for (int b = start[i]; b < a; b++) held[i] &= is_on_pattern(p, column[a], column[b]);
    }
}

/* the first entry of a sparse column that is in the dense rows */
static int first_in_tail(const elvi_pattern *p, int column)
{
    int low = p->start[column], high = p->start[column + 1];
    while (low < high) {
        const int mid = low + (high - low) / 2;
        if (p->row[mid] < p->head)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* the dense block less what the sparse columns take from it */
static void reduce_tail(const elvi_pattern *p, double *L)
{
    for (int j = 0; j < p->head; j++) {
        const int end = p->start[j + 1];
        for (int b = first_in_tail(p, j); b < end; b++) {
            const double by = L[b];
            double *column = L + tail_at(p, p->head, p->row[b]) - p->head;
            if (by == 0.0) continue;
            for (int a = b; a < end; a++) column[p->row[a]] -= by * L[a];
        }
    }
}

/* Left-looking: column j takes what the columns before it with an entry in row j have
 * for it. `first` of a row begins a list of these columns, `next` goes on, and `at` is
 * where their entry in that row is. */
int elvi_sparse_cholesky(const elvi_pattern *p, double *L, double *work, int *links)
{
    const int head = p->head, t = p->dim - head;
    int *first = links, *next = links + p->dim, *at = links + 2 * (size_t) p->dim;
    for (int j = 0; j < head; j++) first[j] = -1;
    for (int j = 0; j < head; j++) {
        const int begin = p->start[j], end = p->start[j + 1];
        for (int e = begin; e < end; e++) work[p->row[e]] = L[e];
        for (int k = first[j], after; k >= 0; k = after) {
            const int from = at[k], to = p->start[k + 1];
            const double by = L[from];
            after = next[k];
            for (int e = from; e < to; e++) work[p->row[e]] -= by * L[e];
            if (from + 1 < to && p->row[from + 1] < head) {
                at[k] = from + 1;
                next[k] = first[p->row[from + 1]];
                first[p->row[from + 1]] = k;
            }
        }
        const double pivot = work[j];
        if (!(pivot > 0.0) || !isfinite(pivot)) return j + 1;
        const double root = sqrt(pivot), inverse = 1.0 / root;
        L[begin] = root;
        for (int e = begin + 1; e < end; e++) L[e] = work[p->row[e]] * inverse;
        if (begin + 1 < end && p->row[begin + 1] < head) {
            at[j] = begin + 1;
            next[j] = first[p->row[begin + 1]];
            first[p->row[begin + 1]] = j;
        }
    }
    if (t == 0) return 0;
    reduce_tail(p, L);
    return elvi_cholesky(t, L + p->start[head]);
}

double elvi_sparse_log_diagonal(const elvi_pattern *p, const double *L)
{
    double sum = 0.0;
    for (int j = 0; j < p->head; j++) sum += log(L[p->start[j]]);
    for (int j = p->head; j < p->dim; j++) sum += log(L[tail_at(p, j, j)]);
    return sum;
}

void elvi_sparse_forward(const elvi_pattern *p, const double *L, double *x)
{
    for (int j = 0; j < p->head; j++) {
        const int begin = p->start[j], end = p->start[j + 1];
        const double by = x[j] /= L[begin];
        if (by == 0.0) continue;
        for (int e = begin + 1; e < end; e++) x[p->row[e]] -= by * L[e];
    }
    if (p->dim > p->head) elvi_trsm_lower('N', p->dim - p->head, 1, L + p->start[p->head], x + p->head);
}

void elvi_sparse_backward(const elvi_pattern *p, const double *L, double *x)
{
    if (p->dim > p->head) elvi_trsm_lower('T', p->dim - p->head, 1, L + p->start[p->head], x + p->head);
    for (int j = p->head - 1; j >= 0; j--) {
        const int begin = p->start[j], end = p->start[j + 1];
        double sum = x[j];
        for (int e = begin + 1; e < end; e++) sum -= L[e] * x[p->row[e]];
        x[j] = sum / L[begin];
    }
}

void elvi_sparse_times(const elvi_pattern *p, const double *L, double *x)
{
    const int t = p->dim - p->head;
    const double *D = L + p->start[p->head];
    for (int j = t - 1; j >= 0; j--) {
        double *y = x + p->head;
        const double by = y[j];
        y[j] = by * D[j + (size_t) j * (size_t) t];
        for (int i = j + 1; i < t; i++) y[i] += by * D[i + (size_t) j * (size_t) t];
    }
    for (int j = p->head - 1; j >= 0; j--) {
        const int begin = p->start[j], end = p->start[j + 1];
        const double by = x[j];
        x[j] = by * L[begin];
        for (int e = begin + 1; e < end; e++) x[p->row[e]] += by * L[e];
    }
}

void elvi_sparse_times_transposed(const elvi_pattern *p, const double *L, double *x)
{
    const int t = p->dim - p->head;
    const double *D = L + p->start[p->head];
    for (int j = 0; j < p->head; j++) {
        double sum = 0.0;
        for (int e = p->start[j]; e < p->start[j + 1]; e++) sum += L[e] * x[p->row[e]];
        x[j] = sum;
    }
    for (int j = 0; j < t; j++) {
        double *y = x + p->head, sum = 0.0;
        for (int i = j; i < t; i++) sum += D[i + (size_t) j * (size_t) t] * y[i];
        y[j] = sum;
    }
}

/* Z = (L L')^-1 by columns from the last: with l the part of column j of L below its
 * diagonal, divided by it, Z_.j = -Z l on the rows of l, and these entries of Z are in
 * the pattern, for it is filled in. */
int elvi_sparse_inverse(const elvi_pattern *p, const double *L, double *Z, double *work, int *mark)
{
    const int head = p->head, t = p->dim - head;
    double *l = work, *y = work + p->dim;
    if (t > 0) {
        memcpy(Z + p->start[head], L + p->start[head], (size_t) t * t * sizeof(double));
        if (elvi_cholesky_inverse(t, Z + p->start[head])) return 1;
    }
    for (int j = 0; j < p->dim; j++) mark[j] = -1;
    for (int j = head - 1; j >= 0; j--) {
        const int begin = p->start[j], end = p->start[j + 1];
        const double inverse = 1.0 / L[begin];
        for (int e = begin + 1; e < end; e++) {
            const int r = p->row[e];
            mark[r] = j;
            l[r] = L[e] * inverse;
            y[r] = 0.0;
        }
        for (int e = begin + 1; e < end; e++) {
            const int k = p->row[e];
            const double lk = l[k];
            double sum = 0.0;
            if (k < head) {
                y[k] += Z[p->start[k]] * lk;
                for (int i = p->start[k] + 1; i < p->start[k + 1]; i++) {
                    const int r = p->row[i];
                    if (mark[r] != j) continue;
                    y[r] += Z[i] * lk;
                    sum += Z[i] * l[r];
                }
            } else {
                const double *column = Z + tail_at(p, head, k) - head;
                y[k] += column[k] * lk;
                for (int i = e + 1; i < end; i++) {
                    const int r = p->row[i];
                    y[r] += column[r] * lk;
                    sum += column[r] * l[r];
                }
            }
            y[k] += sum;
        }
        double diagonal = inverse * inverse;
        for (int e = begin + 1; e < end; e++) {
            const int r = p->row[e];
            Z[e] = -y[r];
            diagonal += l[r] * y[r];
        }
        Z[begin] = diagonal;
    }
    return 0;
}

void elvi_pattern_times(const elvi_pattern *p, const double *values, const double *x, double *out)
{
    const int tail = p->dim - p->head;
    const double *dense = values + p->start[p->head];
    for (int i = 0; i < p->dim; i++) out[i] = 0.0;
    for (int j = 0; j < p->head; j++)
        for (int e = p->start[j]; e < p->start[j + 1]; e++) {
            const int i = p->row[e];
            out[i] += values[e] * x[j];
            if (i != j) out[j] += values[e] * x[i];
        }
    for (int j = 0; j < tail; j++)
        for (int i = j; i < tail; i++) {
            const double v = dense[(size_t) j * (size_t) tail + (size_t) i];
            out[p->head + i] += v * x[p->head + j];
            if (i != j) out[p->head + j] += v * x[p->head + i];
        }
}
