/* Step and batch sizes as pure functions of the iteration. */
#include "run.h"
#include <math.h>

double elvi_schedule_step(const elvi_schedule *s, uint64_t k)
{
    if (s->step_table) return s->step_table[k];
    return s->step_power == 0.0 ? s->step0 : s->step0 * pow((double) k + 1.0, -s->step_power);
}

uint64_t elvi_schedule_batch(const elvi_schedule *s, uint64_t k)
{
    if (s->batch_table) return (uint64_t) s->batch_table[k];
    if (s->batch_power == 0.0) return (uint64_t) ceil(s->batch0);
    const double batch = ceil(s->batch0 * pow((double) k + 1.0, s->batch_power));
    return batch < 0x1p53 ? (uint64_t) batch : UINT64_C(1) << 53;
}

static uint64_t table_horizon(const elvi_schedule *s, double budget)
{
    uint64_t k = 0;
    double used = 0.0;
    while (k < s->table_length) {
        used += s->batch_table[k];
        if (used > budget) break;
        k++;
    }
    return k;
}

/* the first iteration after k whose batch is not that of k */
static uint64_t next_batch_at(const elvi_schedule *s, uint64_t k)
{
    const uint64_t batch = elvi_schedule_batch(s, k);
    uint64_t leap = 1;
    while (leap < UINT64_C(1) << 53 && elvi_schedule_batch(s, k + leap) == batch) leap *= 2;
    uint64_t same = k + leap / 2, other = k + leap;
    while (other - same > 1) {
        const uint64_t middle = same + (other - same) / 2;
        if (elvi_schedule_batch(s, middle) == batch)
            same = middle;
        else
            other = middle;
    }
    return other;
}

/* Batches grow with k: those of the same size are counted together, so that a
 * slow growth over 1e10 iterations takes no longer than a fast one over few. */
static uint64_t power_horizon(const elvi_schedule *s, double budget)
{
    uint64_t k = 0;
    double left = budget;
    for (;;) {
        const double batch = (double) elvi_schedule_batch(s, k);
        const uint64_t end = next_batch_at(s, k);
        const double fit = floor(left / batch);
        if (fit < (double) (end - k)) return k + (uint64_t) fit;
        left -= batch * (double) (end - k);
        k = end;
    }
}

uint64_t elvi_schedule_horizon(const elvi_schedule *s, double budget)
{
    if (!s->batch_table && s->batch_power == 0.0)
        return (uint64_t) floor(budget / ceil(s->batch0));
    return s->batch_table ? table_horizon(s, budget) : power_horizon(s, budget);
}
