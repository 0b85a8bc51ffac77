/* Successes of several trials, and ratios of gamma functions of the beta-binomial distribution. */
#ifndef ELVI_TRIALS_H
#define ELVI_TRIALS_H

#include "stirling.h"

/* A response is n 2^26 + k: k successes of n trials. R/family-betabinomial.R makes it. */
typedef struct {
    double k, n;
} trials;

static inline trials trials_of(double y)
{
    const double trial_unit = 67108864.0, n = floor(y / trial_unit);
    const trials out = { y - n * trial_unit, n };
    return out;
}

/* log Gamma(p + k) - log Gamma(p) and its first two derivatives in p, by Stirling's series where both are nearly the same */
typedef struct {
    double value, slope, curve;
} gamma_gain;

static inline gamma_gain gamma_gain_of(double p, double k)
{
    gamma_gain out = { 0.0, 0.0, 0.0 };
    if (!(k > 0.0)) return out;
    /* few trials: Gamma(p + k) / Gamma(p) is a product of k factors, far cheaper than Gamma itself */
    if (p < 1e3 && k <= 40.0) {
        double product = 1.0;
        for (double at = p; at < p + k - 0.5; at += 1.0) {
            const double inverse = 1.0 / at;
            product *= at;
            out.slope += inverse;
            out.curve -= inverse * inverse;
        }
        out.value = log(product);
        return out;
    }
    if (p < 1e3) {
        const double n = p + k, log_n = log(n), log_p = log(p);
        const elvi_gamma to = elvi_gamma_of(n, log_n), from = elvi_gamma_of(p, log_p);
        out.value = (n - 0.5) * log_n - (p - 0.5) * log_p - k + to.rest - from.rest;
        out.slope = to.slope - from.slope;
        out.curve = to.curve - from.curve;
        return out;
    }
    const double a = 1.0 / p, b = 1.0 / (p + k), gap = log1p(k * a), less = -k * a * b; /* b - a */
    out.value = (p + k - 0.5) * gap + k * (log(p) - 1.0) + less / 12.0;
    out.slope = gap - less * (0.5 + (a + b) / 12.0);
    out.curve = less * (1.0 + 0.5 * (a + b) + (a * a + a * b + b * b) / 6.0);
    return out;
}

#endif
