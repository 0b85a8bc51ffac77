/* Minibatch gradients, a block of samples at a time: draw, move, differentiate,
 * accumulate. Memory does not grow with the batch. */
#include "run.h"
#include <math.h>
#include <string.h>

/* ---- draws that the target makes ------------------------------------------------------ */

int elvi_gathers(const elvi_problem *p, const elvi_estimator_ops *estimator)
{
    return p->model.ops->gather && estimator->linear && (p->model.gathers & p->scale.ops->spread);
}

int elvi_spread_columns(const elvi_problem *p)
{
    return p->scale.ops->spread == ELVI_SPREAD_FULL ? p->model.dim : 1;
}

static elvi_draws far_draws(const elvi_problem *p, const elvi_theta *theta, uint64_t iteration, uint64_t first,
                            uint64_t n, const elvi_far *far)
{
    const elvi_draws draws = { iteration, first, n, elvi_spread_columns(p), theta->mu, far->spread };
    p->scale.ops->show(&p->scale, theta->scale, far->spread);
    return draws;
}

/* column i of I, or all of them in one for a diagonal */
static void fill_unit(int d, int columns, double *unit)
{
    memset(unit, 0, (size_t) d * columns * sizeof(double));
    for (int i = 0; i < d; i++) unit[columns == 1 ? (size_t) i : (size_t) i * d + i] = 1.0;
}

/* What the gradients of a batch add to an estimate that has been made without them. */
static elvi_status add_far(const elvi_batch *at, uint64_t batch)
{
    const elvi_problem *p = at->p;
    const elvi_estimator_ops *estimator = at->s->estimator;
    elvi_work *w = at->w;
    const elvi_far *far = &w->far;
    const elvi_draws draws = far_draws(p, &at->st->theta, at->st->k, 0, batch, far);
    const double share = 1.0 / (double) batch;
    const int d = p->model.dim;
    const elvi_status status = p->model.ops->gather(&p->model, &draws, NULL, far->sum, far->sum_z, far->scratch);
    if (status != ELVI_OK) return status;
    fill_unit(d, draws.columns, far->unit);
    for (int i = 0; i < d; i++) w->grad.mu[i] += share * far->sum[i];
    const elvi_gradients sums = { draws.columns, far->sum_z, far->unit };
    p->scale.ops->outer(&p->scale, at->st->theta.scale, share, &sums, w->grad.scale);
    return estimator->gathered ? estimator->gathered(at) : ELVI_OK;
}

/* ---- draws of a block ------------------------------------------------------------------ */

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
    (void) part;
    (void) lane;
    (void) slot;
    elvi_scale_move(b->p, b->theta, b->lane->z, b->n, b->lane->x);
    b->status = b->p->model.ops->eval(&b->p->model, b->lane->x, b->n, b->value, NULL, b->lane->scratch);
}

static elvi_status evaluated(void *ctx, int slot)
{
    const block_of_draws *b = ctx;
    (void) slot;
    return b->status;
}

elvi_status elvi_values(const elvi_problem *p, const elvi_theta *theta, const elvi_sample *sample, elvi_work *w, double *value)
{
    if (w->far.scratch) {
        const elvi_draws draws = far_draws(p, theta, sample->iteration, sample->first, (uint64_t) sample->n, &w->far);
        return p->model.ops->gather(&p->model, &draws, value, NULL, NULL, w->far.scratch);
    }
    block_of_draws b = { p, theta, sample->n, &w->lane[0], value, ELVI_OK };
    const elvi_job job = { .work = evaluate, .add = evaluated, .ctx = &b };
    elvi_base_fill(&p->base, &w->zig, sample, b.lane->z);
    return elvi_parallel(&job, p->model.threads, 1, 1);
}

static int all_finite(const elvi_problem *p, const elvi_theta *g)
{
    double sum = 0.0; /* 0 * Inf and 0 * NaN are NaN, so one test is enough */
    for (int i = 0; i < p->model.dim; i++) sum += 0.0 * g->mu[i];
    return sum == 0.0 && p->scale.ops->finite(&p->scale, g->scale);
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
    memset(g->scale, 0, p->scale.ops->length(&p->scale) * sizeof(double));
}

/* Some blocks of a batch, of equal length except for the last, from sample `first` on. */
typedef struct {
    const elvi_batch *at;
    uint64_t batch, block, first;
} blocks_of_batch;

/* The gradient of one block, as its share of the batch. */
static void differentiate(void *ctx, int part, int in_lane, int in_slot)
{
    const blocks_of_batch *b = ctx;
    const elvi_batch *at = b->at;
    const elvi_problem *p = at->p;
    elvi_lane *lane = &at->w->lane[in_lane];
    elvi_slot *slot = &at->w->slot[in_slot];
    const uint64_t first = b->first + (uint64_t) part * b->block, left = b->batch - first;
    const int d = p->model.dim, n = (int) (left < b->block ? left : b->block);
    const double share = 1.0 / (double) b->batch;

    clear(p, &slot->grad);
    memset(slot->sums, 0, sizeof slot->sums);
    elvi_base_fill(&p->base, &at->w->zig, &(elvi_sample){ at->s->key, at->st->k, first, n }, lane->z);
    elvi_scale_move(p, &at->st->theta, lane->z, n, lane->x);
    if (elvi_gathers(p, at->s->estimator)) { /* see add_far() */
        memset(lane->g, 0, (size_t) d * n * sizeof(double));
        slot->status = ELVI_OK;
    } else {
        slot->status = p->model.ops->eval(&p->model, lane->x, n, NULL, lane->g, lane->scratch);
    }
    if (slot->status == ELVI_OK) slot->status = at->s->estimator->block(at, n, lane, slot->sums);
    if (slot->status != ELVI_OK) return; /* lane->g may have nothing in it */
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) slot->grad.mu[i] += share * lane->g[(size_t) j * d + i];
    p->scale.ops->outer(&p->scale, at->st->theta.scale, share, &(elvi_gradients){ n, lane->g, lane->z }, slot->grad.scale);
    if (!all_finite(p, &slot->grad)) slot->status = ELVI_NONFINITE_GRADIENT;
}

static elvi_status add_block(void *ctx, int in_slot)
{
    const blocks_of_batch *b = ctx;
    const elvi_problem *p = b->at->p;
    elvi_work *w = b->at->w;
    const elvi_slot *slot = &w->slot[in_slot];
    const int d = p->model.dim;
    for (int i = 0; i < ELVI_MOST_SUMS; i++) w->sums[i] += slot->sums[i];
    if (b->block < b->batch) { /* a single one has gone to its place at once */
        for (int i = 0; i < d; i++) w->grad.mu[i] += slot->grad.mu[i];
        p->scale.ops->axpy(&p->scale, w->grad.scale, 1.0, slot->grad.scale, w->grad.scale);
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
    const uint64_t block = block_length(w, batch);
    const elvi_batch at = { p, s, st, w };
    blocks_of_batch b = { &at, batch, block, 0 };
    const elvi_job job = { .work = differentiate, .add = add_block, .ctx = &b, .operations = operations(p, (double) block) };
    elvi_status status = ELVI_OK;

    const elvi_theta part = w->slot[0].grad;
    if (block >= batch)
        w->slot[0].grad = w->grad;
    else
        clear(p, &w->grad);
    memset(w->sums, 0, sizeof w->sums);
    memcpy(w->memory, st->memory, sizeof w->memory);
    if (s->estimator->factors || s->update->entropy != 0.0) status = elvi_scale_factor(p, &st->theta, w);

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
    if (status == ELVI_OK && elvi_gathers(p, s->estimator)) status = add_far(&at, batch);
    if (status == ELVI_OK) status = s->estimator->finish(&at);
    if (status == ELVI_OK && !all_finite(p, &w->grad)) status = ELVI_NONFINITE_GRADIENT;
    return status;
}
