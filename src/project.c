/* Exact Euclidean projections onto the feasible sets of SPEC section 1.
 *
 * symmetric:  lo I <= S <= hi I. Feasibility is one or two Cholesky
 *             factorisations; only eigenpairs that must move are computed.
 * triangular: C_ii >= lo, and sigma_max(C) <= hi. The optimum satisfies
 *             sigma_min(C) >= 1/sqrt(L), a set that is not convex; the diagonal
 *             bound it implies is, and makes -log|C| just as smooth.
 * diagonal:   lo <= s_i <= hi. */
#include "linalg.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* A clipped eigenvalue sits on the bound up to rounding: without this slack
 * the next check would find it outside again. */
static const double slack = 1e-12;

/* is sign * (S - shift I) positive definite? */
static int definite(int d, const double *S, double sign, double shift, double *copy)
{
    const size_t stride = (size_t) d + 1;
    if (sign > 0)
        memcpy(copy, S, (size_t) d * d * sizeof(double));
    else
        for (int j = 0; j < d; j++)
            for (int i = j; i < d; i++)
                copy[(size_t) j * d + i] = -S[(size_t) j * d + i];
    for (int i = 0; i < d; i++) copy[i * stride] -= sign * shift;
    return elvi_cholesky(d, copy) == 0;
}

static double frobenius(int d, const double *S)
{
    double sum = 0.0;
    for (int j = 0; j < d; j++)
        for (int i = j; i < d; i++) {
            const double v = S[(size_t) j * d + i];
            sum += (i == j ? 1.0 : 2.0) * v * v;
        }
    return sqrt(sum);
}

/* S + sum of (target - value) v v' */
static void move_eigenvalues(int d, double *S, int count, const double *value,
                             double *vectors, double sign, double target)
{
    for (int j = 0; j < count; j++) {
        const double by = sqrt(fabs(target - value[j]));
        for (int i = 0; i < d; i++) vectors[(size_t) j * d + i] *= by;
    }
    if (count) elvi_syrk(d, count, sign, vectors, S);
}

typedef struct { int d; double sign; const double *S; } signed_matrix;

static void multiply(const void *ctx, const double *v, double *out)
{
    const signed_matrix *m = ctx;
    elvi_symm(m->d, 1, m->S, v, 0.0, out);
    for (int i = 0; i < m->d; i++) out[i] *= m->sign;
}

/* After a step along one or few gradients only few eigenvalues are beyond the
 * bound. Then products with vectors find them sooner than a reduction to
 * tridiagonal form. Verified, or undone. */
static int move_few(int d, double *S, double sign, double edge, double bound,
                    double size, elvi_work *w, int *clipped)
{
    const size_t bytes = (size_t) d * d * sizeof(double);
    const signed_matrix outward = { d, -sign, S };
    if (d < 2 * ELVI_LANCZOS_STEPS) return 0;
    const int count = elvi_lanczos_above(multiply, &outward, d, -sign * edge,
                                         DBL_EPSILON * size, w->mat1, w->lapack,
                                         w->eigval, w->mat2);
    if (count < 1) return 0;
    for (int j = 0; j < count; j++) w->eigval[j] *= -sign;
    memcpy(w->mat3, S, bytes);
    move_eigenvalues(d, S, count, w->eigval, w->mat2, sign, bound);
    if (definite(d, S, sign, edge, w->mat1)) {
        *clipped += count;
        return 1;
    }
    memcpy(S, w->mat3, bytes);
    return 0;
}

/* Bring the eigenvalues below the bound up to it (sign 1), or those above it
 * down (sign -1). `size` is a bound on all of them. */
static elvi_status clip_eigenvalues(int d, double *S, double sign, double bound,
                                    double size, elvi_work *w, int *clipped)
{
    const double edge = bound - sign * fabs(bound) * slack;
    const double beyond = bound - sign * (2.0 * size + fabs(bound) + 1.0);
    if (definite(d, S, sign, edge, w->mat1) ||
        move_few(d, S, sign, edge, bound, size, w, clipped)) return ELVI_OK;
    /* Moving an eigenvalue from far away cancels digits: then go again. */
    for (int pass = 0; pass == 0 || (pass < 4 && !definite(d, S, sign, edge, w->mat1));
         pass++) {
        int count = 0;
        if (elvi_eigen_range(d, S, w->mat1, fmin(edge, beyond), fmax(edge, beyond), &count,
                             w->eigval, w->mat2, w)) return ELVI_EIGEN_FAILED;
        move_eigenvalues(d, S, count, w->eigval, w->mat2, sign, bound);
        if (pass == 0) *clipped += count;
    }
    return ELVI_OK;
}

static elvi_status project_symmetric(int d, double lo, double hi, double *S,
                                     elvi_work *w, int *clipped)
{
    double size = frobenius(d, S);
    elvi_status status = ELVI_OK;
    if (!isfinite(size)) return ELVI_NONFINITE_GRADIENT;
    if (lo > -DBL_MAX) {
        status = clip_eigenvalues(d, S, 1.0, lo, size, w, clipped);
        size = fmax(size, fabs(lo));
    }
    if (status == ELVI_OK && hi < DBL_MAX)
        status = clip_eigenvalues(d, S, -1.0, hi, size, w, clipped);
    return status;
}

static int clip_from_below(double *s, int d, size_t stride, double lo)
{
    int clipped = 0;
    for (int i = 0; i < d; i++)
        if (s[i * stride] < lo) {
            s[i * stride] = lo;
            clipped++;
        }
    return clipped;
}

static void clear_above_diagonal(int d, double *C)
{
    for (int j = 1; j < d; j++)
        memset(C + (size_t) j * d, 0, (size_t) j * sizeof(double));
}

static int sigma_max_at_most(int d, double *C, double hi, elvi_work *w)
{
    elvi_gemm('T', 'N', d, d, d, 1.0, C, d, C, d, 0.0, w->mat2, d);
    return definite(d, w->mat2, -1.0, hi * hi * (1.0 + slack), w->mat1);
}

/* The full matrix C <- the nearest one with sigma_max <= hi: through the
 * eigenpairs of C'C above hi^2, C - C V diag(1 - hi / sigma) V'. */
static elvi_status clip_singular_values(int d, double *C, double hi,
                                        elvi_work *w, int *clipped)
{
    const size_t n = (size_t) d * d;
    double *gram = w->mat1, *vectors = w->mat2, *copy = w->factor;
    double beyond = 1.0 + 2.0 * hi * hi;
    elvi_gemm('T', 'N', d, d, d, 1.0, C, d, C, d, 0.0, gram, d);
    for (size_t i = 0; i < n; i++) beyond += C[i] * C[i];
    if (elvi_eigen_range(d, gram, copy, hi * hi, beyond, clipped, w->eigval, vectors, w))
        return ELVI_EIGEN_FAILED;
    for (int j = 0; j < *clipped; j++) {
        const double by = sqrt(fmax(0.0, 1.0 - hi / sqrt(w->eigval[j])));
        for (int i = 0; i < d; i++) vectors[(size_t) j * d + i] *= by;
    }
    memset(gram, 0, n * sizeof(double));
    elvi_syrk(d, *clipped, 1.0, vectors, gram);
    for (int j = 0; j < d; j++)
        for (int i = 0; i < j; i++)
            gram[(size_t) j * d + i] = gram[(size_t) i * d + j];
    memcpy(copy, C, n * sizeof(double));
    elvi_gemm('N', 'N', d, d, d, -1.0, copy, d, gram, d, 1.0, C, d);
    return ELVI_OK;
}

/* Dykstra's alternating projections between {lower triangular, C_ii >= lo} and
 * {sigma_max <= hi}: unlike plain alternation it converges to the projection
 * onto the intersection. The first set needs its correction on the diagonal
 * only; what lies above the diagonal is dropped again whatever it is. The
 * gradient is spent by now, so its array serves as scratch. */
static elvi_status project_triangular(int d, double lo, double hi, double *C,
                                      elvi_work *w, int *clipped)
{
    const size_t n = (size_t) d * d, stride = (size_t) d + 1;
    double *diagonal = w->vec, *correction = w->mat3, *inside = w->grad.scale;
    for (int i = 0; i < d; i++) {
        const double v = C[i * stride];
        C[i * stride] = v < lo ? lo : v;
        diagonal[i] = v - C[i * stride];
        *clipped += v < lo;
    }
    if (hi >= DBL_MAX) return ELVI_OK;
    clear_above_diagonal(d, C);
    if (sigma_max_at_most(d, C, hi, w)) return ELVI_OK;

    int above = 0;
    memset(correction, 0, n * sizeof(double));
    for (int sweep = 0; sweep < 10000; sweep++) {
        double gap2 = 0.0, size2 = 0.0;
        memcpy(inside, C, n * sizeof(double));
        for (size_t i = 0; i < n; i++) correction[i] = C[i] += correction[i];
        const elvi_status status = clip_singular_values(d, C, hi, w, &above);
        if (status != ELVI_OK) return status;
        for (size_t i = 0; i < n; i++) {
            const double gap = C[i] - inside[i];
            correction[i] -= C[i];
            gap2 += gap * gap;
            size2 += C[i] * C[i];
        }
        if (gap2 <= 1e-28 * size2) break;
        clear_above_diagonal(d, C);
        for (int i = 0; i < d; i++) {
            const double v = C[i * stride] + diagonal[i];
            C[i * stride] = v < lo ? lo : v;
            diagonal[i] = v - C[i * stride];
        }
    }
    memcpy(C, inside, n * sizeof(double));
    *clipped += above;
    return ELVI_OK;
}

elvi_status elvi_project_scale(elvi_scale_kind kind, int d, double lo,
                               double hi, double *scale, elvi_work *w,
                               int *clipped)
{
    *clipped = 0;
    switch (kind) {
    case ELVI_SYMMETRIC:
        return project_symmetric(d, lo, hi, scale, w, clipped);
    case ELVI_TRIANGULAR:
        return project_triangular(d, lo, hi, scale, w, clipped);
    case ELVI_DIAGONAL:
        *clipped = clip_from_below(scale, d, 1, lo);
        for (int i = 0; i < d; i++)
            if (scale[i] > hi) {
                scale[i] = hi;
                (*clipped)++;
            }
        break;
    }
    return ELVI_OK;
}

void elvi_project_ball(int d, const double *centre, double radius, double *mu)
{
    double dist2 = 0.0;
    if (radius >= DBL_MAX) return;
    for (int i = 0; i < d; i++) dist2 += (mu[i] - centre[i]) * (mu[i] - centre[i]);
    const double dist = sqrt(dist2);
    if (dist <= radius) return;
    for (int i = 0; i < d; i++) mu[i] = centre[i] + (mu[i] - centre[i]) * (radius / dist);
}

void elvi_prox_log_det(elvi_scale_kind kind, int d, double t, double *scale)
{
    const size_t stride = kind == ELVI_DIAGONAL ? 1 : (size_t) d + 1;
    for (int i = 0; i < d; i++) {
        const double c = scale[i * stride], root = sqrt(c * c + 4.0 * t);
        /* the positive root of v^2 - c v - t = 0, without cancellation */
        scale[i * stride] = c >= 0.0 ? 0.5 * (c + root) : 2.0 * t / (root - c);
    }
}
