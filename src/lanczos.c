/* Extreme eigenpairs of a symmetric operator from products with vectors. */
#include "linalg.h"
#include <math.h>
#include <string.h>

static double normalise(int d, double *v)
{
    double norm2 = 0.0;
    for (int i = 0; i < d; i++) norm2 += v[i] * v[i];
    const double norm = sqrt(norm2);
    for (int i = 0; norm > 0.0 && i < d; i++) v[i] /= norm;
    return norm;
}

typedef struct {
    const elvi_lanczos *of;
    int d, steps;       /* steps taken */
    double *basis;      /* d x (most steps + 1), orthonormal */
    double *diag, *off; /* the operator in this basis: tridiagonal */
    double *rest;       /* scratch */
} lanczos;

static lanczos lanczos_start(const elvi_lanczos *of, int most)
{
    lanczos l = { of, of->d, 0, of->basis, of->small, of->small + most, of->small + 2 * most };
    /* not orthogonal to any coordinate direction */
    for (int i = 0; i < l.d; i++) l.basis[i] = 1.0 + 0.5 * sin(1.0 + i);
    normalise(l.d, l.basis);
    return l;
}

/* One more vector; its length before scaling is what the basis so far misses. */
static double lanczos_step(lanczos *l)
{
    const int k = ++l->steps, d = l->d;
    const double *v = l->basis + (size_t) (k - 1) * d;
    double *u = l->basis + (size_t) k * d, *overlap = l->rest;
    l->of->apply(l->of->ctx, v, u);
    /* twice is enough: full reorthogonalisation keeps ghosts away */
    for (int pass = 0; pass < 2; pass++) {
        elvi_gemm('T', 'N', k, 1, d, 1.0, l->basis, d, u, d, 0.0, overlap, k);
        elvi_gemm('N', 'N', d, 1, k, -1.0, l->basis, d, overlap, k, 1.0, u, d);
        if (pass == 0) l->diag[k - 1] = overlap[k - 1];
    }
    return l->off[k - 1] = normalise(d, u);
}

/* Eigenpairs of the tridiagonal matrix: values ascending, vectors steps x steps. */
static int ritz(const lanczos *l, double **values, double **vectors)
{
    const int k = l->steps;
    double *off = l->rest + k, *work = off + k;
    *values = l->rest;
    *vectors = work + 2 * k;
    memcpy(*values, l->diag, (size_t) k * sizeof(double));
    memcpy(off, l->off, (size_t) k * sizeof(double));
    return elvi_eigen_tridiagonal(k, *values, off, *vectors, work);
}

double elvi_lanczos_max(const elvi_lanczos *of)
{
    const int steps = of->steps < of->d ? of->steps : of->d;
    lanczos l = lanczos_start(of, steps);
    for (;;) {
        double *values, *vectors;
        const double norm = lanczos_step(&l);
        const int k = l.steps;
        if (ritz(&l, &values, &vectors)) return NAN;
        const double value = values[k - 1];
        const double residual = fabs(norm * vectors[(size_t) k * k - 1]);
        if (k == steps || !(residual > of->tol * value) || norm <= 0.0)
            return value + residual;
    }
}

int elvi_lanczos_above(const elvi_lanczos *of, double bound, double *values, double *vectors)
{
    enum {
        most = ELVI_LANCZOS_STEPS,
        look = 8,
        few = 4
    };
    const double tol = of->tol;
    lanczos l = lanczos_start(of, most);
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
            slow += residual > 1e10 * tol; /* will not be found in time */
        }
        if (count > few || (slow && k >= most / 2)) return -1;
        if (count && found == count) {
            memcpy(values, value + k - count, (size_t) count * sizeof(double));
            elvi_gemm('N', 'N', of->d, count, k, 1.0, of->basis, of->d,
                      vector + (size_t) (k - count) * k, k, 0.0, vectors, of->d);
            return count;
        }
        if (norm <= tol) return -1;
    }
    return -1;
}
