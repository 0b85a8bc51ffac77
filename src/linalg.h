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
/* eigenpairs of the lower-stored S in (from, to]; copy and vectors are d x d */
int elvi_eigen_range(int d, const double *S, double *copy, double from, double to,
                     int *count, double *values, double *vectors, const elvi_lapack *w);
int elvi_eigen_lapack_lengths(int d, int *n_real, int *n_int);
/* Eigenpairs of the k x k tridiagonal matrix with diagonal `values` and off-diagonal
 * `off` (destroyed), ascending; work has 2 k doubles */
int elvi_eigen_tridiagonal(int k, double *values, double *off, double *vectors, double *work);

/* ---- products.c ------------------------------------------------------------- */

/* lower triangle of C <- C + A' A, A n x d */
void elvi_crossprod(int n, int d, const double *A, double *C);
/* s2_i = |scale' u_i - moved|^2 as spread2_rows() has them, for a scale in the lower triangle of S, if n rows are
 * enough for it; fewer are for BLAS */
int elvi_tiles_fit(int n, int d);
void elvi_tiles_spread2(int n, int d, const double *U, int ldu, const double *S, int symmetric, const double *moved,
                        double *room, double *s2);

/* ---- lanczos.c ------------------------------------------------------------- */

typedef void (*elvi_operator)(const void *ctx, const double *v, double *out);
/* Upper estimate of the largest eigenvalue of a symmetric positive
 * semidefinite operator: Ritz value plus its residual. basis has d x (steps+1)
 * doubles, small 6 * steps + steps^2. */
double elvi_lanczos_max(elvi_operator op, const void *ctx, int d, int steps,
                        double tol, double *basis, double *small);
/* The eigenpairs of a symmetric operator above a bound, if they are few and
 * found with residuals below tol: their number, or -1. Others may hide from the
 * first vector, so the caller must verify. Lengths as above, with
 * ELVI_LANCZOS_STEPS steps. */
int elvi_lanczos_above(elvi_operator op, const void *ctx, int d, double bound,
                       double tol, double *basis, double *small, double *values,
                       double *vectors);
#define ELVI_LANCZOS_STEPS 40

#endif
