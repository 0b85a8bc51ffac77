/* Exact Euclidean projections onto the feasible sets of SPEC section 1.
 *
 * symmetric:  lo I <= S <= hi I. Feasibility is one or two Cholesky
 *             factorisations; only eigenpairs that must move are computed.
 * triangular: C_ii >= lo, and sigma_max(C) <= hi. The optimum satisfies
 *             sigma_min(C) >= 1/sqrt(L), a set that is not convex; the diagonal
 *             bound it implies is, and makes -log|C| just as smooth.
 * diagonal:   lo <= s_i <= hi. */
#include "elvi.h"
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

/* Move the eigenvalues of S in (from, to] to target. */
static elvi_status move_eigenvalues(int d, double *S, double from, double to,
                                    double target, elvi_work *w, int *moved)
{
    int count = 0;
    double *copy = w->mat1, *vectors = w->mat2;
    memcpy(copy, S, (size_t) d * d * sizeof(double));
    if (elvi_eigen_range(d, copy, from, to, &count, w->eigval, vectors, w))
        return ELVI_EIGEN_FAILED;
    for (int j = 0; j < count; j++) {
        const double by = sqrt(fabs(target - w->eigval[j]));
        for (int i = 0; i < d; i++) vectors[(size_t) j * d + i] *= by;
    }
    if (count) elvi_syrk(d, count, target >= to ? 1.0 : -1.0, vectors, S);
    *moved += count;
    return ELVI_OK;
}

static elvi_status project_symmetric(int d, double lo, double hi, double *S,
                                     elvi_work *w, int *clipped)
{
    /* beyond every eigenvalue and both bounds */
    const double beyond = 2.0 * frobenius(d, S) + fabs(lo) + 1.0;
    const double low = lo - fabs(lo) * slack, high = hi + fabs(hi) * slack;
    elvi_status status = ELVI_OK;
    if (!isfinite(beyond)) return ELVI_NONFINITE_GRADIENT;
    /* Moving an eigenvalue from far away cancels digits: then go again. */
    for (int pass = 0; pass < 4 && status == ELVI_OK &&
             !definite(d, S, 1.0, low, w->mat1); pass++) {
        int moved = 0;
        status = move_eigenvalues(d, S, -beyond, low, lo, w, &moved);
        if (pass == 0) *clipped += moved;
    }
    for (int pass = 0; pass < 4 && status == ELVI_OK && hi < DBL_MAX &&
             !definite(d, S, -1.0, high, w->mat1); pass++) {
        int moved = 0;
        status = move_eigenvalues(d, S, high, beyond + fabs(hi), hi, w, &moved);
        if (pass == 0) *clipped += moved;
    }
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
    if (elvi_eigen_range(d, gram, hi * hi, beyond, clipped, w->eigval, vectors, w))
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
