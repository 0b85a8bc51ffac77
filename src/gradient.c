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
} block_of_draws;

static void evaluate(void *ctx, int t)
{
    const block_of_draws *b = ctx;
    elvi_lane *lane = b->lane;
    (void) t;
    elvi_scale_apply(b->p, b->theta, lane->z, b->n, lane->x);
    lane->status = b->p->model.ops->eval(&b->p->model, lane->x, b->n, b->value, NULL, lane->scratch);
}

elvi_status elvi_values(const elvi_problem *p, const elvi_theta *theta,
                        uint64_t key, uint64_t iteration, uint64_t first, int n,
                        elvi_work *w, double *value)
{
    elvi_lane *lane = &w->lane[0];
    block_of_draws b = { p, theta, n, lane, value };
    elvi_base_fill(&p->base, &w->zig, key, iteration, first, n, lane->z);
    elvi_parallel(p->model.threads, 1, 0.0, evaluate, &b);
    return lane->status;
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

/* As many blocks of a batch as there are lanes, from sample `first` on. */
typedef struct {
    const elvi_problem *p;
    const elvi_settings *s;
    const elvi_state *st;
    elvi_work *w;
    uint64_t batch, first;
} wave;

/* The gradient of one block, as its share of the batch. */
static void differentiate(void *ctx, int t)
{
    const wave *v = ctx;
    const elvi_problem *p = v->p;
    elvi_lane *lane = &v->w->lane[t];
    const uint64_t first = v->first + (uint64_t) t * (uint64_t) v->w->block, left = v->batch - first;
    const int d = p->model.dim, n = left < (uint64_t) v->w->block ? (int) left : v->w->block;
    const double share = 1.0 / (double) v->batch;

    clear(p, &lane->grad);
    elvi_base_fill(&p->base, &v->w->zig, v->s->key, v->st->k, first, n, lane->z);
    elvi_scale_apply(p, &v->st->theta, lane->z, n, lane->x);
    lane->status = p->model.ops->eval(&p->model, lane->x, n, NULL, lane->g, lane->scratch);
    if (lane->status == ELVI_OK && v->s->estimator == ELVI_PATH)
        lane->status = add_log_q_gradient(p, &v->st->theta, n, v->w, lane);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) lane->grad.mu[i] += share * lane->g[(size_t) j * d + i];
    elvi_scale_outer(p, share, lane->g, lane->z, n, lane->grad.scale);
}

elvi_status elvi_gradient(const elvi_problem *p, const elvi_settings *s,
                          const elvi_state *st, uint64_t batch, elvi_work *w,
                          const elvi_hooks *hooks)
{
    const int d = p->model.dim;
    const int entropy = s->estimator == ELVI_REPARAM && s->update == ELVI_PROJECT;
    const uint64_t block = (uint64_t) w->block, blocks = (batch + block - 1) / block;
    elvi_status status = ELVI_OK;

    const elvi_theta part = w->lane[0].grad;
    if (blocks == 1)
        w->lane[0].grad = w->grad;   /* nothing to add up */
    else
        clear(p, &w->grad);
    if (s->estimator == ELVI_PATH || entropy) status = elvi_scale_factor(p, &st->theta, w);

    for (uint64_t done = 0; done < blocks && status == ELVI_OK;) {
        const int lanes = blocks - done < (uint64_t) w->lanes ? (int) (blocks - done) : w->lanes;
        wave v = { p, s, st, w, batch, done * block };
        if (elvi_asked_to_stop(p, st, (double) lanes * w->block, w, hooks)) {
            status = ELVI_STOPPED;
            break;
        }
        elvi_parallel(p->model.threads, lanes, operations(p, (double) lanes * w->block), differentiate, &v);
        for (int t = 0; t < lanes; t++) {
            const elvi_lane *lane = &w->lane[t];
            if (status == ELVI_OK) status = lane->status;
            if (blocks == 1) continue;
            for (int i = 0; i < d; i++) w->grad.mu[i] += lane->grad.mu[i];
            elvi_scale_axpy(p->scale, d, w->grad.scale, 1.0, lane->grad.scale, w->grad.scale);
        }
        done += (uint64_t) lanes;
    }
    w->lane[0].grad = part;
    if (status == ELVI_OK && entropy)
        status = elvi_scale_entropy(p, &st->theta, w, w->grad.scale);
    if (status == ELVI_OK && !all_finite(p, &w->grad)) status = ELVI_NONFINITE_GRADIENT;
    return status;
}
