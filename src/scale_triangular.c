/* A lower triangular scale with a positive diagonal: the family of the symmetric ones, with
 * cheaper steps.
 *
 * Feasible: C_ii >= lo, and sigma_max(C) <= hi. The optimum satisfies sigma_min(C) >=
 * 1/sqrt(L), a set that is not convex; the diagonal bound it implies is, and makes
 * -log|C| just as smooth. */
#include "scale_lower.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { MATRICES = 5 };

static void room_lengths(const elvi_scale *of, size_t *n_reals, size_t *n_ints)
{
    const int d = of->dim;
    elvi_lower_room_lengths(d, MATRICES, n_reals, n_ints);
}

static elvi_lower_room room_of(int d, const elvi_scale_room *room)
{
    return elvi_lower_room_of(d, MATRICES, room);
}

static void clear_above_diagonal(int d, double *C)
{
    for (int j = 1; j < d; j++)
        memset(C + (size_t) j * d, 0, (size_t) j * sizeof(double));
}

static void show(const elvi_scale *of, const double *s, double *array)
{
    const int d = of->dim;
    memcpy(array, s, elvi_lower_length(d) * sizeof(double));
    clear_above_diagonal(d, array);
}

static double dist2(const elvi_scale *of, const double *x, const double *y)
{
    const int d = of->dim;
    double diagonal, below;
    elvi_lower_dist2(d, x, y, &diagonal, &below);
    return diagonal + below;
}

static double inner(const elvi_scale *of, const double *x, const double *y)
{
    const int d = of->dim;
    double diagonal, below;
    elvi_lower_inner(d, x, y, &diagonal, &below);
    return diagonal + below;
}

static elvi_status factor(const elvi_scale *of, const double *s, elvi_scale_room *room)
{
    const int d = of->dim;
    room->log_det = elvi_log_det_diagonal(s, d, (size_t) d + 1);
    return ELVI_OK;
}

static void apply(const elvi_scale *of, const double *s, int n, const double *z, double *x)
{
    const int d = of->dim;
    memcpy(x, z, (size_t) d * n * sizeof(double));
    elvi_trmm_lower('N', d, n, s, x);
}

static void transposed(const elvi_scale *of, const double *s, int n, const double *u, double *x)
{
    const int d = of->dim;
    memcpy(x, u, (size_t) d * n * sizeof(double));
    elvi_trmm_lower('T', d, n, s, x);
}

static elvi_status solve(const elvi_scale *of, const double *s, const elvi_scale_room *room, int n, double *x)
{
    const int d = of->dim;
    (void) room;
    elvi_trsm_lower('T', d, n, s, x);
    return ELVI_OK;
}

static void outer(const elvi_scale *of, const double *s, double alpha, const elvi_gradients *at, double *out)
{
    const int d = of->dim;
    (void) s;
    if (at->n > 1) { /* the upper triangle is filled too, and never read */
        elvi_gemm('N', 'T', d, d, at->n, alpha, at->g, d, at->z, d, 1.0, out, d);
        return;
    }
    for (int j = 0; j < d; j++) {
        const double c = alpha * at->z[j];
        double *col = out + (size_t) j * d;
        for (int i = j; i < d; i++) col[i] += c * at->g[i];
    }
}

static void add_size(const elvi_scale *of, const double *s, double alpha, double *out)
{
    elvi_lower_axpy(of, out, alpha, s, out);
}

/* The gradient of log|C| is the lower triangle of C^-T, which is its diagonal. */
static elvi_status add_entropy(const elvi_scale *of, const double *s, double alpha, elvi_scale_room *room, double *out)
{
    const int d = of->dim;
    const size_t stride = (size_t) d + 1;
    (void) room;
    for (int i = 0; i < d; i++) out[i * stride] += alpha / s[i * stride];
    return ELVI_OK;
}

/* ---- projection ------------------------------------------------------------------ */

static int sigma_max_at_most(int d, const double *C, double hi, double *gram, double *copy)
{
    elvi_gemm('T', 'N', d, d, d, 1.0, C, d, C, d, 0.0, gram, d);
    return elvi_definite(d, gram, -1.0, hi * hi * (1.0 + ELVI_SLACK), copy);
}

/* The full matrix C <- the nearest one with sigma_max <= hi: through the
 * eigenpairs of C'C above hi^2, C - C V diag(1 - hi / sigma) V'. */
static elvi_status clip_singular_values(int d, double *C, double hi, elvi_lower_room *r, int *clipped)
{
    const size_t n = elvi_lower_length(d);
    double *gram = r->mat[0], *vectors = r->mat[1], *copy = r->mat[2], *eigval = r->vec[0];
    elvi_eigenpairs above = { hi * hi, 1.0 + 2.0 * hi * hi, 0, eigval, vectors, copy };
    elvi_gemm('T', 'N', d, d, d, 1.0, C, d, C, d, 0.0, gram, d);
    for (size_t i = 0; i < n; i++) above.to += C[i] * C[i];
    if (elvi_eigen_range(d, gram, &above, &r->lapack)) return ELVI_EIGEN_FAILED;
    *clipped = above.count;
    for (int j = 0; j < *clipped; j++) {
        const double by = sqrt(fmax(0.0, 1.0 - hi / sqrt(eigval[j])));
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
 * only; what lies above the diagonal is dropped again whatever it is. */
static elvi_status project(const elvi_scale *of, double lo, double hi, double *C, elvi_scale_room *room, int *clipped)
{
    const int d = of->dim;
    const size_t n = elvi_lower_length(d), stride = (size_t) d + 1;
    elvi_lower_room r = room_of(d, room);
    double *diagonal = r.vec[1], *correction = r.mat[3], *inside = r.mat[4];
    *clipped = 0;
    for (int i = 0; i < d; i++) {
        const double v = C[i * stride];
        C[i * stride] = v < lo ? lo : v;
        diagonal[i] = v - C[i * stride];
        *clipped += v < lo;
    }
    if (hi >= DBL_MAX) return ELVI_OK;
    clear_above_diagonal(d, C);
    if (sigma_max_at_most(d, C, hi, r.mat[1], r.mat[0])) return ELVI_OK;

    int above = 0;
    memset(correction, 0, n * sizeof(double));
    for (int sweep = 0; sweep < 10000; sweep++) {
        double gap2 = 0.0, size2 = 0.0;
        memcpy(inside, C, n * sizeof(double));
        for (size_t i = 0; i < n; i++) correction[i] = C[i] += correction[i];
        const elvi_status status = clip_singular_values(d, C, hi, &r, &above);
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

static void prox(const elvi_scale *of, double t, double *s)
{
    const int d = of->dim;
    elvi_prox_diagonal(s, d, (size_t) d + 1, t);
}

static elvi_status barrier(const elvi_scale *of, double lo, const double *s, elvi_scale_room *room, double *value)
{
    const int d = of->dim;
    (void) room;
    *value = elvi_barrier_diagonal(s, d, (size_t) d + 1, lo);
    return ELVI_OK;
}

/* ---- spreads ---------------------------------------------------------------------- */

static void spread2_rows(const elvi_scale *of, const double *s, const elvi_row_block *rows, const double *moved,
                         double *room, double *s2)
{
    const int d = of->dim, n = rows->n;
    if (elvi_tiles_fit(n, d)) {
        elvi_tiles_spread2(rows, &(elvi_lower_scale){ d, s, 0 }, moved, room, s2);
        return;
    }
    for (int j = 0; j < d; j++)
        memcpy(room + (size_t) j * n, rows->U + (size_t) j * rows->ldu, (size_t) n * sizeof(double));
    elvi_times_triangular(n, d, s, room);
    elvi_row_norms2(n, d, room, moved, s2);
}

static void form(const elvi_scale *of, const double *s, double *out)
{
    const int d = of->dim;
    show(of, s, out + elvi_lower_length(d));
    elvi_lower_form(d, out);
}

static double variance(const elvi_scale *of, const double *s, int i)
{
    const int d = of->dim;
    double sum = 0.0;
    for (int j = 0; j <= i; j++) sum += s[(size_t) j * d + i] * s[(size_t) j * d + i];
    return sum;
}

const elvi_scale_ops elvi_scale_triangular = {
    .name = "triangular",
    .spread = ELVI_SPREAD_FULL,
    .length = elvi_lower_stored,
    .show = show,
    .finite = elvi_lower_finite,
    .axpy = elvi_lower_axpy,
    .mix = elvi_lower_mix,
    .dist2 = dist2,
    .inner = inner,
    .room = room_lengths,
    .factor = factor,
    .apply = apply,
    .transposed = transposed,
    .solve = solve,
    .outer = outer,
    .add_entropy = add_entropy,
    .add_size = add_size,
    .size2 = elvi_size2_by_variances,
    .project = project,
    .prox = prox,
    .barrier = barrier,
    .spread2_rows = spread2_rows,
    .form_length = elvi_lower_form_length,
    .form = form,
    .form_value = elvi_lower_form_value,
    .variance = variance,
};
