/* The plain reparametrised gradient, that of the theorems:
 *   g_mu = grad f(x),  g_scale = grad f(x) z' - gradient of log|scale|. */
#include "run.h"

static void start(double *memory)
{
    (void) memory;
}

static elvi_status block(const elvi_batch *b, int n, elvi_lane *lane, double *sums)
{
    (void) b;
    (void) n;
    (void) lane;
    (void) sums;
    return ELVI_OK;
}

static elvi_status finish(const elvi_batch *b)
{
    const elvi_problem *p = b->p;
    const double by = -b->s->update->entropy;
    return by == 0.0 ? ELVI_OK : p->scale.ops->add_entropy(&p->scale, b->st->theta.scale, by, &b->w->room, b->w->grad.scale);
}

const elvi_estimator_ops elvi_estimator_reparam = {
    .name = "reparam",
    .factors = 0,
    .extra = 0,
    .memory = 0,
    .linear = 1,
    .start = start,
    .block = block,
    .finish = finish,
};
