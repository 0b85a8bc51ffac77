/* Extreme eigenpairs of a symmetric operator from products with vectors. */
#define USE_FC_LEN_T
#include <Rconfig.h>
#include <R_ext/BLAS.h>
#include <R_ext/Lapack.h>
#ifndef FCONE
# define FCONE
#endif
#include "elvi.h"
#include <math.h>
#include <string.h>

static const int one = 1;

typedef struct {
    elvi_operator op;
    const void *ctx;
    int d, steps;                /* steps taken */
    double *basis;               /* d x (most steps + 1), orthonormal */
    double *diag, *off;          /* the operator in this basis: tridiagonal */
    double *rest;                /* scratch */
} lanczos;

static lanczos lanczos_start(elvi_operator op, const void *ctx, int d, int most,
                             double *basis, double *small)
{
    lanczos l = { op, ctx, d, 0, basis, small, small + most, small + 2 * most };
    /* not orthogonal to any coordinate direction */
    for (int i = 0; i < d; i++) basis[i] = 1.0 + 0.5 * sin(1.0 + i);
    const double norm = F77_CALL(dnrm2)(&d, basis, &one);
    for (int i = 0; i < d; i++) basis[i] /= norm;
    return l;
}

/* One more vector; its length before scaling is what the basis so far misses. */
static double lanczos_step(lanczos *l)
{
    const int k = ++l->steps, d = l->d;
    const double *v = l->basis + (size_t) (k - 1) * d;
    double *u = l->basis + (size_t) k * d, *overlap = l->rest;
    l->op(l->ctx, v, u);
    l->diag[k - 1] = F77_CALL(ddot)(&d, u, &one, v, &one);
    /* twice is enough: full reorthogonalisation keeps ghosts away */
    for (int pass = 0; pass < 2; pass++) {
        elvi_gemm('T', 'N', k, 1, d, 1.0, l->basis, d, u, d, 0.0, overlap, k);
        elvi_gemm('N', 'N', d, 1, k, -1.0, l->basis, d, overlap, k, 1.0, u, d);
    }
    const double norm = F77_CALL(dnrm2)(&d, u, &one);
    l->off[k - 1] = norm;
    if (norm > 0.0)
        for (int i = 0; i < d; i++) u[i] /= norm;
    return norm;
}

/* Eigenpairs of the tridiagonal matrix: values ascending, vectors steps x steps. */
static int ritz(const lanczos *l, double **values, double **vectors)
{
    const int k = l->steps;
    double *d = l->rest, *e = d + k, *work = e + k;
    int info = 0;
    *values = d;
    *vectors = work + 2 * k;
    memcpy(d, l->diag, (size_t) k * sizeof(double));
    memcpy(e, l->off, (size_t) k * sizeof(double));
    F77_CALL(dstev)("V", &k, d, e, *vectors, &k, work, &info FCONE);
    return info;
}

double elvi_lanczos_max(elvi_operator op, const void *ctx, int d, int steps,
                        double tol, double *basis, double *small)
{
    if (steps > d) steps = d;
    lanczos l = lanczos_start(op, ctx, d, steps, basis, small);
    for (;;) {
        double *values, *vectors;
        const double norm = lanczos_step(&l);
        const int k = l.steps;
        if (ritz(&l, &values, &vectors)) return NAN;
        const double value = values[k - 1];
        const double residual = fabs(norm * vectors[(size_t) k * k - 1]);
        if (k == steps || !(residual > tol * value) || norm <= 0.0)
            return value + residual;
    }
}

int elvi_lanczos_above(elvi_operator op, const void *ctx, int d, double bound,
                       double tol, double *basis, double *small, double *values,
                       double *vectors)
{
    enum { most = ELVI_LANCZOS_STEPS, look = 8, few = 4 };
    lanczos l = lanczos_start(op, ctx, d, most, basis, small);
    while (l.steps < most) {
        double *value, *vector;
        const double norm = lanczos_step(&l);
        const int k = l.steps;
        if (k % look && norm > tol) continue;
        if (ritz(&l, &value, &vector)) return -1;
        int count = 0, found = 0, slow = 0;
        for (int j = k - 1; j >= 0 && value[j] > bound; j--) {
            const double residual = norm * fabs(vector[(size_t) j * k + k - 1]);
            count++;
            found += residual <= tol;
            slow += residual > 1e10 * tol;   /* will not be found in time */
        }
        if (count > few || (slow && k >= most / 2)) return -1;
        if (count && found == count) {
            memcpy(values, value + k - count, (size_t) count * sizeof(double));
            elvi_gemm('N', 'N', d, count, k, 1.0, basis, d,
                      vector + (size_t) (k - count) * k, k, 0.0, vectors, d);
            return count;
        }
        if (norm <= tol) return -1;
    }
    return -1;
}
