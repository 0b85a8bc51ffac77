/* Step and batch sizes as pure functions of the iteration. SPEC section 1. */
#include "elvi.h"
#include <math.h>

double elvi_schedule_step(const elvi_schedule *s, uint64_t k)
{
    if (s->step_table) return s->step_table[k];
    return s->step_power == 0.0
        ? s->step0
        : s->step0 * pow((double) k + 1.0, -s->step_power);
}

uint64_t elvi_schedule_batch(const elvi_schedule *s, uint64_t k)
{
    if (s->batch_table) return (uint64_t) s->batch_table[k];
    if (s->batch_power == 0.0) return (uint64_t) ceil(s->batch0);
    const double batch = ceil(s->batch0 * pow((double) k + 1.0, s->batch_power));
    return batch < 0x1p53 ? (uint64_t) batch : UINT64_C(1) << 53;
}

uint64_t elvi_schedule_horizon(const elvi_schedule *s, double budget)
{
    if (!s->batch_table && s->batch_power == 0.0)
        return (uint64_t) floor(budget / ceil(s->batch0));
    uint64_t k = 0;
    double used = 0.0;
    while (!s->batch_table || k < s->table_length) {
        used += (double) elvi_schedule_batch(s, k);
        if (used > budget) break;
        k++;
    }
    return k;
}
