/* The rows of a regression: rows.c, rows_dense.c, rows_sparse.c, rows_factors.c. */
#ifndef ELVI_ROWS_H
#define ELVI_ROWS_H

#include "scale.h"

/* A design matrix with columns X_j - shift_j, dense or sparse by rows: a part of the
 * rows is what every pass over the data takes. Shifted columns stay sparse. */
typedef struct {
    int rows, dim;
    const double *X;   /* rows x d; NULL when sparse */
    const int *start;  /* rows + 1: entries start[i], ..., start[i + 1] - 1 */
    const int *column; /* of each entry, increasing within a row */
    const double *entry;
    const double *shift; /* d; NULL when there is none */
} elvi_design;

/* Rows by their layout, whose operations hand out parts, first, ..., first + rows - 1, and are
 * asked about one part at a time, by several threads at once: so they must not change. There
 * may be none. Nothing here depends on a likelihood or a prior. */
typedef struct elvi_rows_ops elvi_rows_ops;
typedef struct {
    const elvi_rows_ops *ops;
    const void *data; /* the operations' own: an elvi_design if they are a matrix */
    int rows, dim;
    double entries;       /* of X that a pass must read */
    const double *y;      /* rows: proportion, count or response */
    const double *weight; /* rows: case weight x trials / dispersion */
    const double *offset; /* rows */
} elvi_rows;

typedef struct {
    int first, rows;
    const double *y, *weight, *offset; /* rows each */
} elvi_part;

/* |scale' u_i| for rows u_i: what does not depend on the row, computed once */
typedef struct {
    const elvi_scale *kind;
    const double *scale;
    const double *form; /* sparse: scale scale' */
    double *shift;      /* d: scale' shift, or scale scale' shift if sparse */
    double shift2;      /* sparse: |scale' shift|^2 */
} elvi_spread;

struct elvi_rows_ops {
    elvi_part (*part)(const elvi_rows *from, int first, int rows);
    /* eta (rows x n) += X x; x (and grad below) has ld >= d rows */
    void (*predict)(const elvi_rows *from, const elvi_part *part, const double *x,
                    int ld, int n, double *eta);
    /* grad += X' slope, slope (rows x n) */
    void (*collect)(const elvi_rows *from, const elvi_part *part, const double *slope,
                    int ld, int n, double *grad);
    /* B (d x d) += X' diag(weight) X, lower triangle, weight >= 0 */
    void (*crossprod)(const elvi_rows *from, const elvi_part *part, const double *weight,
                      double *scratch, double *B);
    size_t (*scratch_length)(const elvi_rows *from); /* of crossprod and spread */
    /* out (d) += the diagonal of X' diag(weight) X */
    void (*squares)(const elvi_rows *from, const elvi_part *part, const double *weight,
                    double *out);
    /* reach (d) <- its maximum with |X_ij|, or a bound of it, over rows of positive weight */
    void (*reach)(const elvi_rows *from, const elvi_part *part, double *reach);
    /* s (rows) <- |scale' u_i| */
    size_t (*spread_length)(const elvi_rows *from, const elvi_scale *kind);
    elvi_spread (*spread_of)(const elvi_rows *from, const elvi_scale *kind,
                             const double *scale, double *room);
    void (*spread)(const elvi_rows *from, const elvi_part *part, const elvi_spread *spread,
                   double *scratch, double *s);
};

extern const elvi_rows_ops elvi_rows_dense, elvi_rows_sparse;

/* y, weight and offset of rows that are in memory */
elvi_part elvi_part_in_memory(const elvi_rows *from, int first, int rows);
/* of how many x? */
typedef enum {
    ELVI_BLOCK,
    ELVI_POINT
} elvi_pass;
int elvi_rows_chunk(const elvi_rows *from, elvi_pass pass); /* rows to a part */
int elvi_rows_parts(const elvi_rows *from, elvi_pass pass); /* and how many parts */
elvi_part elvi_rows_part(const elvi_rows *from, elvi_pass pass, int number);
/* eta (rows x n) <- offset + X x */
void elvi_rows_predict(const elvi_rows *from, const elvi_part *part, const double *x,
                       int ld, int n, double *eta);
/* the largest |X_i x|; eta has room for a part */
double elvi_rows_extent(const elvi_rows *from, const double *x, double *eta);
/* the largest |X_ij| of each column over rows of positive weight, or a bound */
void elvi_rows_reach(const elvi_rows *from, double *reach);
/* X'X over the rows of positive weight, or X' diag(weight) X if `weighted`; used has room for a part, scratch that of
 * crossprod */
elvi_status elvi_rows_gram(const elvi_rows *from, int weighted, double *used, double *scratch, double *out,
                           const elvi_hooks *hooks);
/* out <- X' weight */
void elvi_rows_sums(const elvi_rows *from, const double *weight, double *out);
/* the diagonal of X' diag(weight) X */
elvi_status elvi_rows_squares(const elvi_rows *from, const double *weight, double *out, const elvi_hooks *hooks);
/* out <- X' diag(weight) X v; eta has room for a part */
elvi_status elvi_rows_cross_times(const elvi_rows *from, const double *weight, const double *v, double *eta, double *out,
                                  const elvi_hooks *hooks);
/* X x, without the offset */
void elvi_rows_times(const elvi_rows *from, const double *x, double *out);
/* A column of a dense design from numbers; non-zero if one of them is missing. */
int elvi_column_of_reals(int n, const double *from, double *column);
int elvi_column_of_ints(int n, const int *from, int missing, double *column);
/* A variable of a formula, and a term, which is the product of some: column j_1 of the first, ..., j_k of the last make its
 * column first + j_1 stride_1 + ... + j_k stride_k. A term without variables is an intercept. */
typedef struct {
    int columns, stride;
    const double *value;       /* rows x columns; NULL of a factor: */
    const int *code;           /* the level of each row, from 1 */
    const int *start, *column; /* of each level: entries start[l], ..., start[l + 1] - 1 of its row of contrasts */
    const double *entry;
} elvi_variable;
typedef struct {
    int first, variables;
    const elvi_variable *variable;
} elvi_term;
/* rows_factors.c: their design by rows: start (rows + 1), column, entry. Without column and entry these are counted. */
void elvi_design_of_terms(int rows, int terms, const elvi_term *term, int *start, int *column, double *entry);
/* to (rows x dim), which is 0 */
void elvi_dense_from_sparse(const elvi_design *from, double *to);
/* What tells other rows from these, in whatever order: sums of marks, of their squares and of their sizes. The mark of a
 * row is a combination of its entries, y, weight and offset, by (dim + 3); mark has room for a chunk. */
void elvi_rows_check_sums(const elvi_rows *from, const double *by, double *mark, double sums[3]);

/* rows_sparse.c: a matrix stored by columns as one stored by rows */
typedef struct {
    int dim;
    const int *start, *row; /* dim + 1, entries */
    const double *entry;
} elvi_by_columns;
typedef struct {
    int rows;
    int *start, *column; /* rows + 1, entries */
    double *entry;
} elvi_by_rows;
void elvi_design_by_rows(const elvi_by_columns *from, elvi_by_rows *to);

#endif
