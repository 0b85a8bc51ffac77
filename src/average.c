/* Averages of the iterates, kept as running weighted means: weights
 * step_k alpha_{k+1} with alpha_{k+1} = alpha_k / (1 + a step_k^2 / N_k) (with constant step and batch they are tau^{k+1} up to a
 * factor), the mean of a tail, or the last iterate. */
#include "run.h"
#include <string.h>

static void fold_in(const elvi_problem *p, double weight, elvi_state *st)
{
    const int d = p->model.dim;
    st->weight += weight;
    const double by = weight / st->weight;
    double *m = st->average.mu;
    if (by == 1.0) { /* a plain copy, which m + (x - m) is not in rounding */
        memcpy(m, st->theta.mu, (size_t) d * sizeof(double));
        memcpy(st->average.scale, st->theta.scale, p->scale.ops->length(&p->scale) * sizeof(double));
        return;
    }
    for (int i = 0; i < d; i++) m[i] += by * (st->theta.mu[i] - m[i]);
    p->scale.ops->mix(&p->scale, by, st->theta.scale, st->average.scale);
}

void elvi_average_before(const elvi_problem *p, const elvi_settings *s,
                         double step, uint64_t batch, elvi_state *st)
{
    if (s->averaging != ELVI_AVG_THEOREM) return;
    st->alpha /= 1.0 + s->bg_a * step * step / (double) batch;
    fold_in(p, step * st->alpha, st);
}

void elvi_average_after(const elvi_problem *p, const elvi_settings *s, elvi_state *st)
{
    if (s->averaging == ELVI_AVG_THEOREM) return;
    if (s->averaging == ELVI_AVG_LAST || st->k <= s->tail_start) st->weight = 0.0;
    fold_in(p, 1.0, st);
}
