/* A symmetric positive definite scale, as in the theory. Its factor is Cholesky's.
 *
 * Feasible: lo I <= S <= hi I. That is one or two Cholesky factorisations to check; only
 * eigenpairs that must move are computed. */
#include "scale_lower.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { MATRICES = 4 };

static void room_lengths(const elvi_scale *of, size_t *n_reals, size_t *n_ints)
{
    const int d = of->dim;
    elvi_lower_room_lengths(d, MATRICES, n_reals, n_ints);
}

static elvi_lower_room room_of(int d, const elvi_scale_room *room)
{
    return elvi_lower_room_of(d, MATRICES, room);
}

static void show(const elvi_scale *of, const double *s, double *array)
{
    const int d = of->dim;
    for (int j = 0; j < d; j++)
        for (int i = j; i < d; i++)
            array[(size_t) j * d + i] = array[(size_t) i * d + j] = s[(size_t) j * d + i];
}

static double dist2(const elvi_scale *of, const double *x, const double *y)
{
    const int d = of->dim;
    double diagonal, below;
    elvi_lower_dist2(d, x, y, &diagonal, &below);
    return diagonal + 2.0 * below;
}

static double inner(const elvi_scale *of, const double *x, const double *y)
{
    const int d = of->dim;
    double diagonal, below;
    elvi_lower_inner(d, x, y, &diagonal, &below);
    return diagonal + 2.0 * below;
}

static elvi_status factor(const elvi_scale *of, const double *s, elvi_scale_room *room)
{
    const int d = of->dim;
    double *L = room_of(d, room).mat[0];
    memcpy(L, s, elvi_lower_length(d) * sizeof(double));
    if (elvi_cholesky(d, L)) return ELVI_SINGULAR_SCALE;
    room->log_det = 2.0 * elvi_log_det_diagonal(L, d, (size_t) d + 1);
    return ELVI_OK;
}

static void apply(const elvi_scale *of, const double *s, int n, const double *z, double *x)
{
    const int d = of->dim;
    elvi_symm(d, n, s, z, 0.0, x);
}

static elvi_status solve(const elvi_scale *of, const double *s, const elvi_scale_room *room, int n, double *x)
{
    const int d = of->dim;
    (void) s;
    return elvi_cholesky_solve(d, n, room_of(d, room).mat[0], x) ? ELVI_SINGULAR_SCALE : ELVI_OK;
}

static void outer(const elvi_scale *of, const double *s, double alpha, const elvi_gradients *at, double *out)
{
    const int d = of->dim;
    (void) s;
    elvi_syr2k(d, at->n, 0.5 * alpha, at->g, at->z, out);
}

static void add_size(const elvi_scale *of, const double *s, double alpha, double *out)
{
    elvi_lower_axpy(of, out, alpha, s, out);
}

static elvi_status add_entropy(const elvi_scale *of, const double *s, double alpha, elvi_scale_room *room, double *out)
{
    const int d = of->dim;
    const elvi_lower_room r = room_of(d, room);
    (void) s;
    /* The inverse overwrites a copy: the factor may still be wanted. */
    memcpy(r.mat[1], r.mat[0], elvi_lower_length(d) * sizeof(double));
    if (elvi_cholesky_inverse(d, r.mat[1])) return ELVI_SINGULAR_SCALE;
    elvi_lower_axpy(of, out, alpha, r.mat[1], out);
    return ELVI_OK;
}

/* ---- projection ------------------------------------------------------------------- */

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

typedef struct {
    int d;
    double sign;
    const double *S;
} signed_matrix;

static void multiply(const void *ctx, const double *v, double *out)
{
    const signed_matrix *m = ctx;
    elvi_symm(m->d, 1, m->S, v, 0.0, out);
    for (int i = 0; i < m->d; i++) out[i] *= m->sign;
}

/* A scale S and a bound on its eigenvalues' size, the pairs that are found beyond a bound, and how many have been moved. The
 * factor is spent by the time a scale is projected: its place serves as scratch. */
typedef struct {
    int d;
    double *S, size, *before;
    elvi_eigenpairs found;
    elvi_lapack lapack;
    int moved;
} clipping;

/* The bound below (sign 1) or above (sign -1) all eigenvalues, and where they are beyond it, up to rounding. */
typedef struct {
    double sign, bound, edge;
} side_of;

/* S + sum of (bound - value) v v' over the pairs found */
static void move_eigenvalues(clipping *c, const side_of *side)
{
    const int d = c->d;
    double *vectors = c->found.vectors;
    for (int j = 0; j < c->found.count; j++) {
        const double by = sqrt(fabs(side->bound - c->found.values[j]));
        for (int i = 0; i < d; i++) vectors[(size_t) j * d + i] *= by;
    }
    if (c->found.count) elvi_syrk(d, c->found.count, side->sign, vectors, c->S);
}

static int is_within(const clipping *c, const side_of *side)
{
    return elvi_definite(c->d, c->S, side->sign, side->edge, c->found.copy);
}

/* After a step along one or few gradients only few eigenvalues are beyond the
 * bound. Then products with vectors find them sooner than a reduction to
 * tridiagonal form. Verified, or undone. */
static int move_few(clipping *c, const side_of *side)
{
    const size_t bytes = elvi_lower_length(c->d) * sizeof(double);
    const signed_matrix outward = { c->d, -side->sign, c->S };
    const elvi_lanczos of = {
        .apply = multiply,
        .ctx = &outward,
        .d = c->d,
        .steps = ELVI_LANCZOS_STEPS,
        .tol = DBL_EPSILON * c->size,
        .basis = c->found.copy,
        .small = c->lapack.real,
    };
    if (c->d < 2 * ELVI_LANCZOS_STEPS) return 0;
    c->found.count = elvi_lanczos_above(&of, -side->sign * side->edge, c->found.values, c->found.vectors);
    if (c->found.count < 1) return 0;
    for (int j = 0; j < c->found.count; j++) c->found.values[j] *= -side->sign;
    memcpy(c->before, c->S, bytes);
    move_eigenvalues(c, side);
    if (is_within(c, side)) {
        c->moved += c->found.count;
        return 1;
    }
    memcpy(c->S, c->before, bytes);
    return 0;
}

/* Bring the eigenvalues below the bound up to it (sign 1), or those above it
 * down (sign -1). */
static elvi_status clip_eigenvalues(clipping *c, double sign, double bound)
{
    const side_of side = { sign, bound, bound - sign * fabs(bound) * ELVI_SLACK };
    const double beyond = bound - sign * (2.0 * c->size + fabs(bound) + 1.0);
    if (is_within(c, &side) || move_few(c, &side)) return ELVI_OK;
    c->found.from = fmin(side.edge, beyond);
    c->found.to = fmax(side.edge, beyond);
    /* Moving an eigenvalue from far away cancels digits: then go again. */
    for (int pass = 0; pass == 0 || (pass < 4 && !is_within(c, &side)); pass++) {
        if (elvi_eigen_range(c->d, c->S, &c->found, &c->lapack)) return ELVI_EIGEN_FAILED;
        move_eigenvalues(c, &side);
        if (pass == 0) c->moved += c->found.count;
    }
    return ELVI_OK;
}

static elvi_status project(const elvi_scale *of, double lo, double hi, double *S, elvi_scale_room *room, int *clipped)
{
    const int d = of->dim;
    const elvi_lower_room r = room_of(d, room);
    clipping c = {
        .d = d,
        .S = S,
        .size = frobenius(d, S),
        .before = r.mat[3],
        .found = { .values = r.vec[0], .vectors = r.mat[2], .copy = r.mat[1] },
        .lapack = r.lapack,
    };
    elvi_status status = ELVI_OK;
    *clipped = 0;
    if (!isfinite(c.size)) return ELVI_NONFINITE_GRADIENT;
    if (lo > -DBL_MAX) {
        status = clip_eigenvalues(&c, 1.0, lo);
        c.size = fmax(c.size, fabs(lo));
    }
    if (status == ELVI_OK && hi < DBL_MAX) status = clip_eigenvalues(&c, -1.0, hi);
    *clipped = c.moved;
    return status;
}

static elvi_status barrier(const elvi_scale *of, double lo, const double *S, elvi_scale_room *room, double *value)
{
    const int d = of->dim;
    const elvi_lower_room r = room_of(d, room);
    const double size = frobenius(d, S);
    elvi_eigenpairs all = { -2.0 * size - 1.0, 2.0 * size + 1.0, 0, r.vec[0], r.mat[2], r.mat[1] };
    if (!isfinite(size)) return ELVI_NONFINITE_GRADIENT;
    if (lo > 0.0 && elvi_definite(d, S, 1.0, lo, r.mat[1])) {
        const elvi_status status = factor(of, S, room);
        *value = -room->log_det;
        return status;
    }
    if (elvi_eigen_range(d, S, &all, &r.lapack) || all.count != d) return ELVI_EIGEN_FAILED;
    *value = elvi_barrier_diagonal(r.vec[0], d, 1, lo);
    return ELVI_OK;
}

/* ---- spreads ------------------------------------------------------------------------ */

static void spread2_rows(const elvi_scale *of, const double *s, const elvi_row_block *rows, const double *moved,
                         double *room, double *s2)
{
    const int d = of->dim;
    if (elvi_tiles_fit(rows->n, d)) {
        elvi_tiles_spread2(rows, &(elvi_lower_scale){ d, s, 1 }, moved, room, s2);
        return;
    }
    elvi_times_symmetric(rows->n, d, rows->U, rows->ldu, s, room);
    elvi_row_norms2(rows->n, d, room, moved, s2);
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
    for (int j = 0; j < d; j++) {
        const double v = i >= j ? s[(size_t) j * d + i] : s[(size_t) i * d + j];
        sum += v * v;
    }
    return sum;
}

const elvi_scale_ops elvi_scale_symmetric = {
    .name = "symmetric",
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
    .transposed = apply,
    .solve = solve,
    .outer = outer,
    .add_entropy = add_entropy,
    .add_size = add_size,
    .size2 = elvi_size2_by_variances,
    .project = project,
    .prox = NULL,
    .barrier = barrier,
    .spread2_rows = spread2_rows,
    .form_length = elvi_lower_form_length,
    .form = form,
    .form_value = elvi_lower_form_value,
    .variance = variance,
};
