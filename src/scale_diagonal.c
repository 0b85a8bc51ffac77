/* A diagonal scale, a vector of length d: a mean field. Feasible: lo <= s_i <= hi. */
#include "scale.h"
#include <string.h>

static size_t length(int d)
{
    return (size_t) d;
}

static void show(int d, const double *s, double *array)
{
    memcpy(array, s, (size_t) d * sizeof(double));
}

static int all_finite(int d, const double *s)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += 0.0 * s[i];
    return sum == 0.0;
}

static void axpy(int d, const double *x, double alpha, const double *y, double *out)
{
    for (int i = 0; i < d; i++) out[i] = x[i] + alpha * y[i];
}

static void mix(int d, double by, const double *x, double *out)
{
    for (int i = 0; i < d; i++) out[i] += by * (x[i] - out[i]);
}

static double dist2(int d, const double *x, const double *y)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum;
}

static double inner(int d, const double *x, const double *y)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += x[i] * y[i];
    return sum;
}

static void no_room(int d, size_t *n_reals, size_t *n_ints)
{
    (void) d;
    *n_reals = *n_ints = 0;
}

static elvi_status factor(int d, const double *s, elvi_scale_room *room)
{
    room->log_det = elvi_log_det_diagonal(s, d, 1);
    return ELVI_OK;
}

static void apply(int d, const double *s, int n, const double *z, double *x)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] = s[i] * z[(size_t) j * d + i];
}

static elvi_status solve(int d, const double *s, const elvi_scale_room *room, int n, double *x)
{
    (void) room;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] /= s[i];
    return ELVI_OK;
}

static void outer(int d, double alpha, const double *g, const double *z, int n, double *out)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) out[i] += alpha * g[(size_t) j * d + i] * z[(size_t) j * d + i];
}

static elvi_status add_entropy(int d, const double *s, double alpha, elvi_scale_room *room, double *out)
{
    (void) room;
    for (int i = 0; i < d; i++) out[i] += alpha / s[i];
    return ELVI_OK;
}

static elvi_status project(int d, double lo, double hi, double *s, elvi_scale_room *room, int *clipped)
{
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

static void prox(int d, double t, double *s)
{
    elvi_prox_diagonal(s, d, 1, t);
}

static elvi_status barrier(int d, double lo, const double *s, elvi_scale_room *room, double *value)
{
    (void) room;
    *value = elvi_barrier_diagonal(s, d, 1, lo);
    return ELVI_OK;
}

static void spread2_rows(int d, const double *s, int n, const double *U, int ldu,
                         const double *moved, double *room, double *s2)
{
    (void) room;
    memset(s2, 0, (size_t) n * sizeof(double));
    for (int j = 0; j < d; j++) {
        const double *col = U + (size_t) j * ldu;
        const double by = s[j], c = moved ? moved[j] : 0.0;
        for (int i = 0; i < n; i++) {
            const double v = by * col[i] - c;
            s2[i] += v * v;
        }
    }
}

static void form(int d, const double *s, double *out)
{
    for (int i = 0; i < d; i++) out[i] = s[i] * s[i];
}

static double form_value(int d, const double *f, int n, const int *at, const double *u)
{
    double sum = 0.0;
    (void) d;
    for (int l = 0; l < n; l++) sum += u[l] * u[l] * f[at[l]];
    return sum;
}

static double variance(int d, const double *s, int i)
{
    (void) d;
    return s[i] * s[i];
}

const elvi_scale_ops elvi_scale_diagonal = {
    .name = "diagonal",
    .rank = 1,
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
    .project = project,
    .prox = prox,
    .barrier = barrier,
    .spread2_rows = spread2_rows,
    .form_length = length,
    .form = form,
    .form_value = form_value,
    .variance = variance,
};
