/* Thin wrappers over R's BLAS and LAPACK: hidden string lengths, workspace and
 * level-2 shortcuts for a single point stop here. */
#define USE_FC_LEN_T
#include <Rconfig.h>
#include <R_ext/BLAS.h>
#include <R_ext/Lapack.h>
#ifndef FCONE
#define FCONE
#endif
#include "linalg.h"
#include <string.h>

static const int one = 1;
static const double d_one = 1.0, d_zero = 0.0;

void elvi_gemm(char ta, char tb, int m, int n, int k, double alpha,
               const double *A, int lda, const double *B, int ldb, double beta,
               double *C, int ldc)
{
    if (n == 1 && tb == 'N') { /* gemv is far cheaper than a thin gemm */
        const int rows = ta == 'N' ? m : k, cols = ta == 'N' ? k : m;
        F77_CALL(dgemv)(&ta, &rows, &cols, &alpha, A, &lda, B, &one, &beta, C,
                        &one FCONE);
        return;
    }
    F77_CALL(dgemm)(&ta, &tb, &m, &n, &k, &alpha, A, &lda, B, &ldb, &beta, C,
                    &ldc FCONE FCONE);
}

void elvi_symm(int d, int n, const double *S, const double *B, double beta,
               double *C)
{
    if (n == 1)
        F77_CALL(dsymv)("L", &d, &d_one, S, &d, B, &one, &beta, C, &one FCONE);
    else
        F77_CALL(dsymm)("L", "L", &d, &n, &d_one, S, &d, B, &d, &beta, C,
                        &d FCONE FCONE);
}

void elvi_syr2k(int d, int n, double alpha, const double *A, const double *B,
                double *C)
{
    if (n == 1)
        F77_CALL(dsyr2)("L", &d, &alpha, A, &one, B, &one, C, &d FCONE);
    else
        F77_CALL(dsyr2k)("L", "N", &d, &n, &alpha, A, &d, B, &d, &d_one, C,
                         &d FCONE FCONE);
}

void elvi_syrk(int d, int n, double alpha, const double *A, double *C)
{
    F77_CALL(dsyrk)("L", "N", &d, &n, &alpha, A, &d, &d_one, C, &d FCONE FCONE);
}

void elvi_mirror(int d, double *m)
{
    for (int j = 0; j < d; j++)
        for (int i = j + 1; i < d; i++) m[(size_t) i * d + j] = m[(size_t) j * d + i];
}

void elvi_times_symmetric(int n, int d, const double *X, int ldx, const double *S, double *B)
{
    F77_CALL(dsymm)("R", "L", &n, &d, &d_one, S, &d, X, &ldx, &d_zero, B,
                    &n FCONE FCONE);
}

void elvi_times_triangular(int n, int d, const double *L, double *B)
{
    F77_CALL(dtrmm)("R", "L", "N", "N", &n, &d, &d_one, L, &d, B,
                    &n FCONE FCONE FCONE FCONE);
}

void elvi_trmm_lower(char trans, int d, int n, const double *L, double *B)
{
    if (n == 1)
        F77_CALL(dtrmv)("L", &trans, "N", &d, L, &d, B, &one FCONE FCONE FCONE);
    else
        F77_CALL(dtrmm)("L", "L", &trans, "N", &d, &n, &d_one, L, &d, B,
                        &d FCONE FCONE FCONE FCONE);
}

void elvi_trsm_lower(char trans, int d, int n, const double *L, double *B)
{
    F77_CALL(dtrsm)("L", "L", &trans, "N", &d, &n, &d_one, L, &d, B,
                    &d FCONE FCONE FCONE FCONE);
}

int elvi_cholesky(int d, double *S)
{
    int info = 0;
    F77_CALL(dpotrf)("L", &d, S, &d, &info FCONE);
    return info;
}

int elvi_cholesky_solve(int d, int n, const double *L, double *B)
{
    int info = 0;
    F77_CALL(dpotrs)("L", &d, &n, L, &d, B, &d, &info FCONE);
    return info;
}

int elvi_cholesky_inverse(int d, double *L)
{
    int info = 0;
    F77_CALL(dpotri)("L", &d, L, &d, &info FCONE);
    return info;
}

static int eigenpairs(char range, int d, elvi_eigenpairs *found, const elvi_lapack *w)
{
    const double abstol = 0.0;
    const int il = 1, iu = d;
    int info = 0;
    F77_CALL(dsyevr)("V", &range, "L", &d, found->copy, &d, &found->from, &found->to, &il, &iu, &abstol,
                     &found->count, found->values, found->vectors, &d, w->support, w->real, &w->n_real,
                     w->integer, &w->n_integer, &info FCONE FCONE FCONE);
    return info;
}

int elvi_eigen_range(int d, const double *S, elvi_eigenpairs *found, const elvi_lapack *w)
{
    const size_t bytes = (size_t) d * d * sizeof(double);
    double *values = found->values, *vectors = found->vectors;
    memcpy(found->copy, S, bytes);
    if (eigenpairs('V', d, found, w) == 0) return 0;
    /* Inverse iteration fails on large clusters; all pairs at once are found by
     * another algorithm. */
    memcpy(found->copy, S, bytes);
    const int info = eigenpairs('A', d, found, w);
    if (info) return info;
    int first = 0, end = d;
    while (first < d && values[first] <= found->from) first++;
    while (end > first && values[end - 1] > found->to) end--;
    found->count = end - first;
    memmove(values, values + first, (size_t) found->count * sizeof(double));
    memmove(vectors, vectors + (size_t) first * d, (size_t) found->count * d * sizeof(double));
    return 0;
}

int elvi_eigen_lapack_lengths(int d, int *n_real, int *n_int)
{
    const double from = 0.0, to = 1.0, abstol = 0.0;
    const int il = 1, iu = d, query = -1;
    double real_best = 0.0;
    int info = 0, count = 0, int_best = 0;
    F77_CALL(dsyevr)("V", "V", "L", &d, &real_best, &d, &from, &to, &il,
                     &iu, &abstol, &count, &real_best, &real_best, &d,
                     &int_best, &real_best, &query, &int_best, &query,
                     &info FCONE FCONE FCONE);
    *n_real = (int) real_best;
    *n_int = int_best;
    return info;
}

int elvi_eigen_tridiagonal(int k, double *values, double *off, double *vectors, double *work)
{
    int info = 0;
    F77_CALL(dstev)("V", &k, values, off, vectors, &k, work, &info FCONE);
    return info;
}
