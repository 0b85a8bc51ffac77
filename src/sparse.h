/* Sparse positive definite matrices on a fixed pattern: sparse.c. */
#ifndef ELVI_SPARSE_H
#define ELVI_SPARSE_H

#include "core.h"

/* The pattern of a Cholesky factor, filled in. Columns before `head` are sparse; the
 * rest are one dense lower triangle, where LAPACK is faster than any index. Values
 * live in one array: the entries of the sparse columns, then the dense block, t x t
 * with t = dim - head. */
typedef struct {
    int dim, head;
    const int *start; /* head + 1: entries of column j are start[j], ..., start[j + 1] - 1 */
    const int *row;   /* of each, increasing; the first is j */
} elvi_pattern;

size_t elvi_pattern_length(const elvi_pattern *p);
/* where entry (row, column), row >= column, is stored; it must be in the pattern */
size_t elvi_pattern_at(const elvi_pattern *p, int row, int column);

/* how many pairs of entries a >= b the rows have, entries start[i], ..., start[i + 1] - 1 of row i; and the places of
 * (column[a], column[b]), row by row. Columns increase within a row. */
size_t elvi_pattern_pairs(size_t rows, const int *start);
void elvi_pattern_pair_places(const elvi_pattern *p, size_t rows, const int *start, const int *column, int *place);
/* the same for rows whose pairs need not be on the pattern: held[i] is 0 where one of row i is not, and its place
 * is some other one */
void elvi_pattern_find_pairs(const elvi_pattern *p, size_t rows, const int *start, const int *column, int *place, int *held);

/* out <- the symmetric matrix with these values times x */
void elvi_pattern_times(const elvi_pattern *p, const double *values, const double *x, double *out);

/* A matrix on the pattern <- its Cholesky factor. 0 when positive definite. work has
 * dim doubles, links 3 dim ints. */
int elvi_sparse_cholesky(const elvi_pattern *p, double *values, double *work, int *links);
/* the sum of the logarithms of the diagonal: half the log determinant of L L' */
double elvi_sparse_log_diagonal(const elvi_pattern *p, const double *L);
void elvi_sparse_forward(const elvi_pattern *p, const double *L, double *x);          /* L^-1 x */
void elvi_sparse_backward(const elvi_pattern *p, const double *L, double *x);         /* L^-T x */
void elvi_sparse_times(const elvi_pattern *p, const double *L, double *x);            /* L x */
void elvi_sparse_times_transposed(const elvi_pattern *p, const double *L, double *x); /* L'x */
/* The entries of (L L')^-1 on the pattern: Takahashi's recursions. work has 2 dim
 * doubles, mark dim ints. 0 when all went well. */
int elvi_sparse_inverse(const elvi_pattern *p, const double *L, double *inverse, double *work, int *mark);

#endif
