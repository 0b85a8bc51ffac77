/* A diagonal scale, a vector of length d: a mean field. Feasible: lo <= s_i <= hi. */
#include "scale.h"
#include <string.h>

static size_t length(const elvi_scale *of)
{
    const int d = of->dim;
    return (size_t) d;
}

static void show(const elvi_scale *of, const double *s, double *array)
{
    const int d = of->dim;
    memcpy(array, s, (size_t) d * sizeof(double));
}

static int all_finite(const elvi_scale *of, const double *s)
{
    const int d = of->dim;
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += 0.0 * s[i];
    return sum == 0.0;
}

static void axpy(const elvi_scale *of, const double *x, double alpha, const double *y, double *out)
{
    const int d = of->dim;
    for (int i = 0; i < d; i++) out[i] = x[i] + alpha * y[i];
}

static void mix(const elvi_scale *of, double by, const double *x, double *out)
{
    const int d = of->dim;
    for (int i = 0; i < d; i++) out[i] += by * (x[i] - out[i]);
}

static double dist2(const elvi_scale *of, const double *x, const double *y)
{
    const int d = of->dim;
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum;
}

static double inner(const elvi_scale *of, const double *x, const double *y)
{
    const int d = of->dim;
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += x[i] * y[i];
    return sum;
}

static void no_room(const elvi_scale *of, size_t *n_reals, size_t *n_ints)
{
    (void) of;
    *n_reals = *n_ints = 0;
}

static elvi_status factor(const elvi_scale *of, const double *s, elvi_scale_room *room)
{
    const int d = of->dim;
    room->log_det = elvi_log_det_diagonal(s, d, 1);
    return ELVI_OK;
}

static void apply(const elvi_scale *of, const double *s, int n, const double *z, double *x)
{
    const int d = of->dim;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] = s[i] * z[(size_t) j * d + i];
}

static elvi_status solve(const elvi_scale *of, const double *s, const elvi_scale_room *room, int n, double *x)
{
    const int d = of->dim;
    (void) room;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] /= s[i];
    return ELVI_OK;
}

static void outer(const elvi_scale *of, const double *s, double alpha, const elvi_gradients *at, double *out)
{
    const int d = of->dim;
    (void) s;
    for (int j = 0; j < at->n; j++)
        for (int i = 0; i < d; i++) out[i] += alpha * at->g[(size_t) j * d + i] * at->z[(size_t) j * d + i];
}

static void add_size(const elvi_scale *of, const double *s, double alpha, double *out)
{
    axpy(of, out, alpha, s, out);
}

static elvi_status add_entropy(const elvi_scale *of, const double *s, double alpha, elvi_scale_room *room, double *out)
{
    const int d = of->dim;
    (void) room;
    for (int i = 0; i < d; i++) out[i] += alpha / s[i];
    return ELVI_OK;
}

static elvi_status project(const elvi_scale *of, double lo, double hi, double *s, elvi_scale_room *room, int *clipped)
{
    const int d = of->dim;
    (void) room;
    *clipped = 0;
    for (int i = 0; i < d; i++) {
        const double v = s[i];
        if (v < lo) s[i] = lo;
        if (s[i] > hi) s[i] = hi;
        *clipped += s[i] != v;
    }
    return ELVI_OK;
}

static void prox(const elvi_scale *of, double t, double *s)
{
    const int d = of->dim;
    elvi_prox_diagonal(s, d, 1, t);
}

static elvi_status barrier(const elvi_scale *of, double lo, const double *s, elvi_scale_room *room, double *value)
{
    const int d = of->dim;
    (void) room;
    *value = elvi_barrier_diagonal(s, d, 1, lo);
    return ELVI_OK;
}

static void spread2_rows(const elvi_scale *of, const double *s, const elvi_row_block *rows, const double *moved,
                         double *room, double *s2)
{
    const int d = of->dim, n = rows->n;
    (void) room;
    memset(s2, 0, (size_t) n * sizeof(double));
    for (int j = 0; j < d; j++) {
        const double *col = rows->U + (size_t) j * rows->ldu;
        const double by = s[j], c = moved ? moved[j] : 0.0;
        for (int i = 0; i < n; i++) {
            const double v = by * col[i] - c;
            s2[i] += v * v;
        }
    }
}

static void form(const elvi_scale *of, const double *s, double *out)
{
    const int d = of->dim;
    for (int i = 0; i < d; i++) out[i] = s[i] * s[i];
}

static double form_value(const elvi_scale *of, const double *f, int n, const int *at, const double *u)
{
    double sum = 0.0;
    (void) of;
    for (int l = 0; l < n; l++) sum += u[l] * u[l] * f[at[l]];
    return sum;
}

static double variance(const elvi_scale *of, const double *s, int i)
{
    (void) of;
    return s[i] * s[i];
}

const elvi_scale_ops elvi_scale_diagonal = {
    .name = "diagonal",
    .spread = ELVI_SPREAD_DIAGONAL,
    .length = length,
    .show = show,
    .finite = all_finite,
    .axpy = axpy,
    .mix = mix,
    .dist2 = dist2,
    .inner = inner,
    .room = no_room,
    .factor = factor,
    .apply = apply,
    .transposed = apply,
    .solve = solve,
    .outer = outer,
    .add_entropy = add_entropy,
    .add_size = add_size,
    .size2 = elvi_size2_by_variances,
    .project = project,
    .prox = prox,
    .barrier = barrier,
    .spread2_rows = spread2_rows,
    .form_length = length,
    .form = form,
    .form_value = form_value,
    .variance = variance,
};
