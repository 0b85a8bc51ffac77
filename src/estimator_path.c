/* The path gradient (sticking the landing): h = grad f(x) + grad_x log q(x), with
 *   grad_x log q(x) = scale^-T (phi'/phi)(|z|) z / |z|.
 * Without noise where q matches the target. Biased for a base whose density jumps. */
#include "run.h"
#include <math.h>

static void start(double *memory)
{
    (void) memory;
}

static elvi_status block(const elvi_batch *b, int n, elvi_lane *lane, double *sums)
{
    const elvi_problem *p = b->p;
    const int d = p->model.dim;
    (void) sums;
    for (int j = 0; j < n; j++) {
        const double *z = lane->z + (size_t) j * d;
        double *out = lane->x + (size_t) j * d; /* x has been used by now */
        double norm2 = 0.0;
        for (int i = 0; i < d; i++) norm2 += z[i] * z[i];
        const double r = sqrt(norm2);
        const double by = r > 0.0 ? p->base.ops->score(&p->base, r) / r : 0.0;
        for (int i = 0; i < d; i++) out[i] = by * z[i];
    }
    const elvi_status status = p->scale.ops->solve(&p->scale, b->st->theta.scale, &b->w->room, n, lane->x);
    for (size_t i = 0, m = (size_t) d * n; i < m; i++) lane->g[i] += lane->x[i];
    return status;
}

static elvi_status finish(const elvi_batch *b)
{
    (void) b;
    return ELVI_OK; /* h z' has the entropy in it */
}

const elvi_estimator_ops elvi_estimator_path = {
    .name = "path",
    .factors = 1,
    .extra = 0,
    .memory = 0,
    .linear = 1,
    .start = start,
    .block = block,
    .finish = finish,
};
