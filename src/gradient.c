/* Minibatch gradient estimators of SPEC section 1, a block of samples at a
 * time: draw, move, differentiate, accumulate. Memory does not grow with the
 * batch. */
#include "elvi.h"
#include <math.h>
#include <string.h>

typedef struct {
    const elvi_problem *p;
    const elvi_theta *theta;
    int n;
    elvi_lane *lane;
    double *value;
    elvi_status status;
} block_of_draws;

static void evaluate(void *ctx, int part, int lane, int slot)
{
    block_of_draws *b = ctx;
    (void) part; (void) lane; (void) slot;
    elvi_scale_apply(b->p, b->theta, b->lane->z, b->n, b->lane->x);
    b->status = b->p->model.ops->eval(&b->p->model, b->lane->x, b->n, b->value, NULL, b->lane->scratch);
}

static elvi_status evaluated(void *ctx, int slot)
{
    const block_of_draws *b = ctx;
    (void) slot;
    return b->status;
}

elvi_status elvi_values(const elvi_problem *p, const elvi_theta *theta,
                        uint64_t key, uint64_t iteration, uint64_t first, int n,
                        elvi_work *w, double *value)
{
    block_of_draws b = { p, theta, n, &w->lane[0], value, ELVI_OK };
    const elvi_job job = { evaluate, evaluated, &b, 0.0 };
    elvi_base_fill(&p->base, &w->zig, key, iteration, first, n, b.lane->z);
    return elvi_parallel(&job, p->model.threads, 1, 1);
}

/* g += grad_x log q at the block: scale^-T (phi'/phi)(|z|) z / |z| */
static elvi_status add_log_q_gradient(const elvi_problem *p,
                                      const elvi_theta *theta, int n,
                                      const elvi_work *w, const elvi_lane *lane)
{
    const int d = p->model.dim;
    for (int j = 0; j < n; j++) {
        const double *z = lane->z + (size_t) j * d;
        double *out = lane->x + (size_t) j * d;   /* x has been used by now */
        double norm2 = 0.0;
        for (int i = 0; i < d; i++) norm2 += z[i] * z[i];
        const double r = sqrt(norm2);
        const double by = r > 0.0 ? p->base.ops->score(&p->base, r) / r : 0.0;
        for (int i = 0; i < d; i++) out[i] = by * z[i];
    }
    const elvi_status status = elvi_scale_solve(p, theta, w, lane->x, n);
    for (size_t i = 0, m = (size_t) d * n; i < m; i++) lane->g[i] += lane->x[i];
    return status;
}

static int all_finite(const elvi_problem *p, const elvi_theta *g)
{
    const int d = p->model.dim;
    double sum = 0.0;   /* 0 * Inf and 0 * NaN are NaN, so one test is enough */
    for (int i = 0; i < d; i++) sum += 0.0 * g->mu[i];
    for (int j = 0; p->scale != ELVI_DIAGONAL && j < d; j++)
        for (int i = j; i < d; i++) sum += 0.0 * g->scale[(size_t) j * d + i];
    for (int i = 0; p->scale == ELVI_DIAGONAL && i < d; i++) sum += 0.0 * g->scale[i];
    return sum == 0.0;
}

static double operations(const elvi_problem *p, double n)
{
    const double d = p->model.dim;
    return n * (p->model.cost + 4.0 * d * d);
}

int elvi_asked_to_stop(const elvi_problem *p, const elvi_state *st, double n,
                       elvi_work *w, const elvi_hooks *hooks)
{
    const double d = p->model.dim, enough = 2e7;
    w->cost_since_poll += operations(p, n) + d * d * d / 3.0;
    if (w->cost_since_poll < enough) return 0;
    w->cost_since_poll = 0.0;
    return hooks->poll(hooks->ctx, st);
}

static void clear(const elvi_problem *p, const elvi_theta *g)
{
    memset(g->mu, 0, (size_t) p->model.dim * sizeof(double));
    memset(g->scale, 0, elvi_scale_length(p->scale, p->model.dim) * sizeof(double));
}

/* Some blocks of a batch, of equal length but for the last, from sample `first` on. */
typedef struct {
    const elvi_problem *p;
    const elvi_settings *s;
    const elvi_state *st;
    elvi_work *w;
    uint64_t batch, block, first;
} blocks_of_batch;

/* The gradient of one block, as its share of the batch. */
static void differentiate(void *ctx, int part, int in_lane, int in_slot)
{
    const blocks_of_batch *b = ctx;
    const elvi_problem *p = b->p;
    const elvi_lane *lane = &b->w->lane[in_lane];
    elvi_slot *slot = &b->w->slot[in_slot];
    const uint64_t first = b->first + (uint64_t) part * b->block, left = b->batch - first;
    const int d = p->model.dim, n = (int) (left < b->block ? left : b->block);
    const double share = 1.0 / (double) b->batch;

    clear(p, &slot->grad);
    elvi_base_fill(&p->base, &b->w->zig, b->s->key, b->st->k, first, n, lane->z);
    elvi_scale_apply(p, &b->st->theta, lane->z, n, lane->x);
    slot->status = p->model.ops->eval(&p->model, lane->x, n, NULL, lane->g, lane->scratch);
    if (slot->status == ELVI_OK && b->s->estimator == ELVI_PATH)
        slot->status = add_log_q_gradient(p, &b->st->theta, n, b->w, lane);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) slot->grad.mu[i] += share * lane->g[(size_t) j * d + i];
    elvi_scale_outer(p, share, lane->g, lane->z, n, slot->grad.scale);
    if (slot->status == ELVI_OK && !all_finite(p, &slot->grad)) slot->status = ELVI_NONFINITE_GRADIENT;
}

static elvi_status add_block(void *ctx, int in_slot)
{
    const blocks_of_batch *b = ctx;
    const elvi_slot *slot = &b->w->slot[in_slot];
    const elvi_theta *sum = &b->w->grad;
    const int d = b->p->model.dim;
    if (b->block < b->batch) {   /* a single one has gone to its place at once */
        for (int i = 0; i < d; i++) sum->mu[i] += slot->grad.mu[i];
        elvi_scale_axpy(b->p->scale, d, sum->scale, 1.0, slot->grad.scale, sum->scale);
    }
    return slot->status;
}

/* Blocks of about the same length, so that lanes finish together; kernels of BLAS like
 * multiples of 8. */
static uint64_t block_length(const elvi_work *w, uint64_t batch)
{
    const uint64_t most = (uint64_t) w->block, blocks = (batch - 1) / most + 1;
    const uint64_t even = (batch - 1) / blocks + 1, round = (even + 7) / 8 * 8;
    return round < most ? round : most;
}

elvi_status elvi_gradient(const elvi_problem *p, const elvi_settings *s,
                          const elvi_state *st, uint64_t batch, elvi_work *w,
                          const elvi_hooks *hooks)
{
    const int entropy = s->estimator == ELVI_REPARAM && s->update == ELVI_PROJECT;
    const uint64_t block = block_length(w, batch);
    blocks_of_batch b = { p, s, st, w, batch, block, 0 };
    const elvi_job job = { differentiate, add_block, &b, operations(p, (double) block) };
    elvi_status status = ELVI_OK;

    const elvi_theta part = w->slot[0].grad;
    if (block >= batch)
        w->slot[0].grad = w->grad;
    else
        clear(p, &w->grad);
    if (s->estimator == ELVI_PATH || entropy) status = elvi_scale_factor(p, &st->theta, w);

    while (b.first < batch && status == ELVI_OK) {
        const uint64_t left = (batch - b.first - 1) / block + 1;
        const int now = elvi_parts_at_once(&job, w->lanes, left);
        if (elvi_asked_to_stop(p, st, (double) now * (double) block, w, hooks))
            status = ELVI_STOPPED;
        else
            status = elvi_parallel(&job, p->model.threads, w->lanes, now);
        b.first += (uint64_t) now * block;
    }
    w->slot[0].grad = part;
    if (status == ELVI_OK && entropy)
        status = elvi_scale_entropy(p, &st->theta, w, w->grad.scale);
    if (status == ELVI_OK && !all_finite(p, &w->grad)) status = ELVI_NONFINITE_GRADIENT;
    return status;
}
