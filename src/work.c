/* One block of doubles and one of ints hold every iterate and all scratch. */
#include "linalg.h"

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

void elvi_work_bind(elvi_work *w, const elvi_problem *p, int block,
                    double *reals, int *ints, size_t *n_reals, size_t *n_ints)
{
    const int d = p->model.dim, dense = p->scale != ELVI_DIAGONAL;
    const size_t dn = (size_t) d * block, dd = dense ? (size_t) d * d : 0;
    const size_t scale = elvi_scale_length(p->scale, d);
    arena a = { reals, 0 };
    elvi_model alone = p->model;
    alone.threads = 1;

    w->block = block;
    w->lanes = elvi_lanes(p->model.threads);
    w->factored = 0;
    w->log_det = 0.0;
    w->cost_since_poll = 0.0;
    w->grad.mu = take(&a, d);
    w->grad.scale = take(&a, scale);
    w->next.mu = take(&a, d);
    w->next.scale = take(&a, scale);
    w->factor = take(&a, dd);
    w->mat1 = take(&a, dd);
    w->mat2 = take(&a, dd);
    w->mat3 = take(&a, dd);
    w->eigval = take(&a, d);
    w->vec = take(&a, d);
    w->lapack_length = w->ilapack_length = 0;
    if (dense) elvi_eigen_lapack_lengths(d, &w->lapack_length, &w->ilapack_length);
    w->lapack = take(&a, (size_t) w->lapack_length);
    for (int t = 0; t < w->lanes; t++) {
        elvi_lane *lane = &w->lane[t];
        lane->z = take(&a, dn);
        lane->x = take(&a, dn);
        lane->g = take(&a, dn);
        lane->value = take(&a, block);
        /* a lane by itself, the first, may have the other threads' help in evaluating */
        lane->scratch = take(&a, p->model.ops->scratch_length(t == 0 ? &p->model : &alone, block));
    }
    for (int t = 0; t < elvi_slots(w->lanes); t++) {
        w->slot[t].grad.mu = take(&a, d);
        w->slot[t].grad.scale = take(&a, scale);
    }
    *n_reals = a.used;

    /* the eigensolver wants 2d integers for supports, then its workspace */
    w->ilapack = ints;
    *n_ints = dense ? 2 * (size_t) d + (size_t) w->ilapack_length : 0;
}
