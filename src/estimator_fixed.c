/* A gradient with a control variate that never changes, so that the theorems cover it: with a weight b and x the points in the
 * coordinates of the run,
 *   h = grad f(x) - b x,  g_mu = h + b mu,  g_scale = h z' + b scale - gradient of log|scale|
 * is unbiased, because E x = mu and E x z' = scale. vignette("theory") has the bound. R sets b, see initial_state(). */
#include "run.h"

static void start(double *memory)
{
    memory[0] = 0.0;
}

static elvi_status block(const elvi_batch *at, int n, elvi_lane *lane, double *sums)
{
    const double b = at->st->memory[0];
    (void) sums;
    for (size_t i = 0, m = (size_t) at->p->model.dim * n; i < m; i++) lane->g[i] -= b * lane->x[i];
    return ELVI_OK;
}

static elvi_status finish(const elvi_batch *at)
{
    const elvi_problem *p = at->p;
    const elvi_theta *theta = &at->st->theta;
    const double b = at->st->memory[0], by = -at->s->update->entropy;
    for (int i = 0; i < p->model.dim; i++) at->w->grad.mu[i] += b * theta->mu[i];
    p->scale.ops->add_size(&p->scale, theta->scale, b, at->w->grad.scale);
    return by == 0.0 ? ELVI_OK : p->scale.ops->add_entropy(&p->scale, theta->scale, by, &at->w->room, at->w->grad.scale);
}

const elvi_estimator_ops elvi_estimator_fixed = {
    .name = "fixed",
    .factors = 0,
    .extra = 0,
    .memory = 1,
    .linear = 1,
    .start = start,
    .block = block,
    .finish = finish,
};
