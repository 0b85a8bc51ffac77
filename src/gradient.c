/* Minibatch gradient estimators of SPEC section 1, a block of samples at a
 * time: draw, move, differentiate, accumulate. Memory does not grow with the
 * batch. */
#include "elvi.h"
#include <math.h>
#include <string.h>

elvi_status elvi_values(const elvi_problem *p, const elvi_theta *theta,
                        uint64_t key, uint64_t iteration, uint64_t first, int n,
                        elvi_work *w, double *value)
{
    elvi_base_fill(&p->base, &w->zig, key, iteration, first, n, w->z);
    elvi_scale_apply(p, theta, w->z, n, w->x);
    return p->model.ops->eval(&p->model, w->x, n, value, NULL, w->scratch);
}

/* w->g += grad_x log q at the block: scale^-T (phi'/phi)(|z|) z / |z| */
static elvi_status add_log_q_gradient(const elvi_problem *p,
                                      const elvi_theta *theta, int n,
                                      elvi_work *w)
{
    const int d = p->model.dim;
    for (int j = 0; j < n; j++) {
        const double *z = w->z + (size_t) j * d;
        double *out = w->x + (size_t) j * d;   /* x has been used by now */
        double norm2 = 0.0;
        for (int i = 0; i < d; i++) norm2 += z[i] * z[i];
        const double r = sqrt(norm2);
        const double by = r > 0.0 ? p->base.ops->score(&p->base, r) / r : 0.0;
        for (int i = 0; i < d; i++) out[i] = by * z[i];
    }
    const elvi_status status = elvi_scale_solve(p, theta, w, w->x, n);
    for (size_t i = 0, m = (size_t) d * n; i < m; i++) w->g[i] += w->x[i];
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

int elvi_asked_to_stop(const elvi_problem *p, const elvi_state *st, int n,
                       elvi_work *w, const elvi_hooks *hooks)
{
    const double d = p->model.dim, enough = 2e7;
    w->cost_since_poll += n * (p->model.cost + 4.0 * d * d) + d * d * d / 3.0;
    if (w->cost_since_poll < enough) return 0;
    w->cost_since_poll = 0.0;
    return hooks->poll(hooks->ctx, st);
}

elvi_status elvi_gradient(const elvi_problem *p, const elvi_settings *s,
                          const elvi_state *st, uint64_t batch, elvi_work *w,
                          const elvi_hooks *hooks)
{
    const int d = p->model.dim;
    const int path = s->estimator == ELVI_PATH;
    const int entropy = !path && s->update == ELVI_PROJECT;
    const double share = 1.0 / (double) batch;
    elvi_status status = ELVI_OK;

    memset(w->grad.mu, 0, (size_t) d * sizeof(double));
    memset(w->grad.scale, 0, elvi_scale_length(p->scale, d) * sizeof(double));
    if (path || entropy) status = elvi_scale_factor(p, &st->theta, w);

    for (uint64_t first = 0; first < batch && status == ELVI_OK;) {
        const uint64_t left = batch - first;
        const int n = left < (uint64_t) w->block ? (int) left : w->block;
        if (elvi_asked_to_stop(p, st, n, w, hooks)) return ELVI_STOPPED;
        elvi_base_fill(&p->base, &w->zig, s->key, st->k, first, n, w->z);
        elvi_scale_apply(p, &st->theta, w->z, n, w->x);
        status = p->model.ops->eval(&p->model, w->x, n, NULL, w->g, w->scratch);
        if (status == ELVI_OK && path)
            status = add_log_q_gradient(p, &st->theta, n, w);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < d; i++)
                w->grad.mu[i] += share * w->g[(size_t) j * d + i];
        elvi_scale_outer(p, share, w->g, w->z, n, w->grad.scale);
        first += (uint64_t) n;
    }
    if (status == ELVI_OK && entropy)
        status = elvi_scale_entropy(p, &st->theta, w, w->grad.scale);
    if (status == ELVI_OK && !all_finite(p, &w->grad)) status = ELVI_NONFINITE_GRADIENT;
    return status;
}
