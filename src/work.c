/* One block of doubles and one of ints hold every iterate and all scratch. */
#include "run.h"

typedef struct {
    double *reals;
    size_t used;
} arena;

static double *take(arena *a, size_t n)
{
    double *here = a->reals ? a->reals + a->used : NULL;
    a->used += n;
    return here;
}

static void bind_far(arena *a, const elvi_problem *p, const elvi_estimator_ops *estimator, elvi_far *far)
{
    const size_t d = (size_t) p->model.dim;
    const size_t spread = elvi_gathers(p, estimator) ? d * (size_t) elvi_spread_columns(p) : 0;
    far->spread = take(a, spread);
    far->unit = take(a, spread);
    far->sum_z = take(a, spread);
    far->sum = take(a, spread ? d : 0);
    far->scratch = spread ? take(a, d + 2 * spread) : NULL;
}

void elvi_work_bind(elvi_work *w, const elvi_problem *p, const elvi_estimator_ops *estimator, int block, elvi_memory *memory)
{
    const int d = p->model.dim;
    const size_t dn = (size_t) d * block, scale = p->scale.ops->length(&p->scale);
    arena a = { memory->reals, 0 };
    elvi_model alone = p->model;
    alone.threads = 1;

    w->block = block;
    w->lanes = elvi_lanes(p->model.threads);
    w->room.factored = 0;
    w->room.log_det = 0.0;
    w->cost_since_poll = 0.0;
    w->grad.mu = take(&a, d);
    w->grad.scale = take(&a, scale);
    w->next.mu = take(&a, d);
    w->next.scale = take(&a, scale);
    p->scale.ops->room(&p->scale, &w->room.n_reals, &w->room.n_ints);
    w->room.reals = take(&a, w->room.n_reals);
    w->room.ints = memory->ints;
    for (int t = 0; t < w->lanes; t++) {
        elvi_lane *lane = &w->lane[t];
        lane->z = take(&a, dn);
        lane->x = take(&a, dn);
        lane->g = take(&a, dn);
        lane->value = take(&a, block);
        /* a lane by itself, the first, may have the other threads' help in evaluating */
        lane->scratch = take(&a, p->model.ops->scratch_length(t == 0 ? &p->model : &alone, block));
        lane->extra = take(&a, estimator->extra ? dn : 0);
    }
    bind_far(&a, p, estimator, &w->far);
    for (int t = 0; t < elvi_slots(w->lanes); t++) {
        w->slot[t].grad.mu = take(&a, d);
        w->slot[t].grad.scale = take(&a, scale);
    }
    memory->n_reals = a.used;
    memory->n_ints = w->room.n_ints;
}
