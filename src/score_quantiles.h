#ifndef ELVI_SCORE_QUANTILES_H
#define ELVI_SCORE_QUANTILES_H
#include <stddef.h>

/* the logarithm of a density, up to a constant, at equal steps: two or more */
typedef struct {
    int nodes;
    double from, step;
    const double *value; /* nodes */
} elvi_density;

/* numbers of scratch for a density of n nodes */
size_t elvi_score_quantiles_length(int n);
/* out_j <- the quantile at the standard normal score z_j, z rising; straight beyond the nodes. Not 0 where there is no density. */
int elvi_score_quantiles(const elvi_density *density, int scores, const double *z, double *out, double *work);

#endif
