/* The record of a run. Which iterations get a row does not depend on how long
 * the run is planned to be, so that a continued run has the rows of a long one. */
#include "run.h"
#include <math.h>
#include <time.h>

/* every iteration below 100, every 10th below 1000, ...; and the last */
int elvi_trace_wants(uint64_t k, uint64_t horizon)
{
    uint64_t every = 1;
    while (k / every >= 100) every *= 10;
    return k % every == 0 || k == horizon;
}

void elvi_trace_begin(elvi_trace *trace, double cpu_before)
{
    trace->rows = 0;
    trace->cpu_offset = cpu_before - (double) clock() / CLOCKS_PER_SEC;
}

double elvi_trace_cpu(const elvi_trace *trace)
{
    return (double) clock() / CLOCKS_PER_SEC + trace->cpu_offset;
}

/* mean and standard error of f over the fixed draws, minus log|scale| */
static elvi_status objective(const elvi_batch *at, const elvi_hooks *hooks, double *mean, double *se)
{
    const elvi_problem *p = at->p;
    const elvi_settings *s = at->s;
    const elvi_state *st = at->st;
    elvi_work *w = at->w;
    double m = 0.0, ss = 0.0, *value = w->lane[0].value;
    int done = 0;
    elvi_status status = elvi_scale_factor(p, &st->theta, w);
    while (status == ELVI_OK && done < s->trace_draws) {
        const int left = s->trace_draws - done;
        const int n = left < w->block ? left : w->block;
        if (elvi_asked_to_stop(p, st, n, w, hooks)) return ELVI_STOPPED;
        status = elvi_values(p, &st->theta, &(elvi_sample){ s->key, ELVI_TRACE_ITERATION, (uint64_t) done, n }, w, value);
        for (int j = 0; j < n; j++) {
            const double delta = value[j] - m;
            m += delta / ++done;
            ss += delta * (value[j] - m);
        }
    }
    *mean = m - w->room.log_det;
    *se = s->trace_draws > 1 ? sqrt(ss / (s->trace_draws - 1.0) / s->trace_draws) : NAN;
    return status;
}

elvi_status elvi_trace_add(const elvi_batch *at, const elvi_step_taken *taken, elvi_trace *trace, const elvi_hooks *hooks)
{
    const elvi_settings *s = at->s;
    const elvi_state *st = at->st;
    elvi_status status = ELVI_OK;
    double mean = NAN, se = NAN;
    if (!elvi_trace_wants(st->k, s->horizon) || trace->rows >= trace->capacity)
        return ELVI_OK;
    if (s->trace_draws > 0) status = objective(at, hooks, &mean, &se);
    if (status != ELVI_OK) return status;
    const int row = trace->rows++;
    trace->iteration[row] = (double) st->k;
    trace->evals[row] = (double) st->evals;
    trace->batch[row] = taken->batch ? (double) taken->batch : NAN;
    trace->step[row] = taken->step;
    trace->objective[row] = mean;
    trace->se[row] = se;
    trace->gradient_map[row] = taken->gradient_map;
    trace->clipped[row] = taken->clipped;
    trace->cpu[row] = elvi_trace_cpu(trace);
    return ELVI_OK;
}
