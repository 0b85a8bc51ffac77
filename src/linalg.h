/* Linear algebra on plain arrays, column-major: linalg.c alone calls BLAS and LAPACK. */
#ifndef ELVI_LINALG_H
#define ELVI_LINALG_H

#include "core.h"

/* ---- linalg.c -------------------------------------------------------------- */

void elvi_gemm(char ta, char tb, int m, int n, int k, double alpha,
               const double *A, int lda, const double *B, int ldb, double beta,
               double *C, int ldc);
void elvi_symm(int d, int n, const double *S, const double *B, double beta,
               double *C);
/* lower triangle of C <- C + alpha (A B' + B A') */
void elvi_syr2k(int d, int n, double alpha, const double *A, const double *B,
                double *C);
/* lower triangle of C <- C + alpha A A', A d x n */
void elvi_syrk(int d, int n, double alpha, const double *A, double *C);
void elvi_mirror(int d, double *m); /* lower triangle to upper */
/* B (n x d) <- X S for symmetric S; X has leading dimension ldx */
void elvi_times_symmetric(int n, int d, const double *X, int ldx, const double *S, double *B);
/* B (n x d) <- B L for lower triangular L */
void elvi_times_triangular(int n, int d, const double *L, double *B);
void elvi_trmm_lower(char trans, int d, int n, const double *L, double *B);
void elvi_trsm_lower(char trans, int d, int n, const double *L, double *B);
int elvi_cholesky(int d, double *S); /* 0 when positive definite */
int elvi_cholesky_solve(int d, int n, const double *L, double *B);
int elvi_cholesky_inverse(int d, double *L);
/* workspace of the eigensolver: support has 2 d integers, the others as many numbers as
 * elvi_eigen_lapack_lengths() says */
typedef struct {
    double *real;
    int n_real;
    int *support, *integer;
    int n_integer;
} elvi_lapack;
/* eigenpairs in (from, to] */
typedef struct {
    double from, to;
    int count;
    double *values, *vectors; /* d, d x d */
    double *copy;             /* d x d, scratch */
} elvi_eigenpairs;
/* those of the lower-stored S */
int elvi_eigen_range(int d, const double *S, elvi_eigenpairs *found, const elvi_lapack *w);
int elvi_eigen_lapack_lengths(int d, int *n_real, int *n_int);
/* Eigenpairs of the k x k tridiagonal matrix with diagonal `values` and off-diagonal
 * `off` (destroyed), ascending; work has 2 k doubles */
int elvi_eigen_tridiagonal(int k, double *values, double *off, double *vectors, double *work);

/* ---- products.c ------------------------------------------------------------- */

/* lower triangle of C <- C + A' A, A n x d */
void elvi_crossprod(int n, int d, const double *A, double *C);
/* a scale in the lower triangle of S: that of a symmetric matrix, or all of it */
typedef struct {
    int d;
    const double *S;
    int symmetric;
} elvi_lower_scale;
/* s2_i = |scale' u_i - moved|^2 as spread2_rows() has them, if n rows are enough for it; fewer are for BLAS */
int elvi_tiles_fit(int n, int d);
void elvi_tiles_spread2(const elvi_row_block *rows, const elvi_lower_scale *scale, const double *moved, double *room, double *s2);

/* ---- lanczos.c ------------------------------------------------------------- */

/* A symmetric operator of dimension d, the most steps to take, a bound of residuals, and scratch. */
typedef struct {
    void (*apply)(const void *ctx, const double *v, double *out);
    const void *ctx;
    int d, steps;
    double tol;
    double *basis; /* d x (steps + 1) */
    double *small; /* 6 steps + steps^2 */
} elvi_lanczos;
/* Upper estimate of the largest eigenvalue of a positive semidefinite operator: Ritz value plus its residual, which is
 * relative to tol. */
double elvi_lanczos_max(const elvi_lanczos *of);
/* The eigenpairs above a bound, if they are few and found with residuals below tol: their number, or -1. Others may
 * hide from the first vector, so the caller must verify. With ELVI_LANCZOS_STEPS steps. */
int elvi_lanczos_above(const elvi_lanczos *of, double bound, double *values, double *vectors);
#define ELVI_LANCZOS_STEPS 40

#endif
