/* Counts with too many zeros, or with none: what zero-inflated, hurdle and truncated families share. */
#ifndef ELVI_JOINT_COUNTS_H
#define ELVI_JOINT_COUNTS_H

#include "joint.h"
#include <math.h>

/* B = -log P(0) of a count of log mean eta, its first two derivatives in eta, and that in log phi */
typedef struct {
    double value, slope, curve, hyper;
} elvi_zero;

static inline elvi_zero elvi_poisson_zero(const double *hyper, double eta)
{
    const double mean = exp(fmin(eta, 700.0));
    const elvi_zero out = { mean, mean, mean, 0.0 };
    (void) hyper;
    return out;
}

/* log(1 + e^t) and 1 / (1 + e^-t) */
static inline double elvi_log1pexp(double t) { return (t > 0.0 ? t : 0.0) + log1p(exp(-fabs(t))); }
static inline double elvi_logistic(double t)
{
    const double e = exp(-fabs(t)), p = 1.0 / (1.0 + e);
    return t > 0.0 ? p : e * p;
}

static inline elvi_zero elvi_negbinomial_zero(const double *hyper, double eta)
{
    const double phi = hyper[0], u = eta - log(phi), p = elvi_logistic(u), value = phi * elvi_log1pexp(u);
    const elvi_zero out = { value, phi * p, phi * p * (1.0 - p), value - phi * p };
    return out;
}

/* -log P(y) of the counts, without terms of y and phi alone */
static inline elvi_line_piece elvi_poisson_count(const double *hyper, double y, double eta)
{
    const double mean = exp(fmin(eta, 700.0));
    const elvi_line_piece out = { mean - y * eta, mean - y, mean, 0.0 };
    (void) hyper;
    return out;
}

static inline elvi_line_piece elvi_negbinomial_count(const double *hyper, double y, double eta)
{
    const double phi = hyper[0], u = eta - log(phi), p = elvi_logistic(u), both = elvi_log1pexp(u), n = y + phi;
    const elvi_line_piece out = { n * both - y * u, n * p - y, n * p * (1.0 - p), phi * both - n * p + y };
    return out;
}

/* log(1 - e^-B), what leaving zero out adds to -log P(y) */
static inline elvi_line_piece elvi_without_zero(elvi_line_piece count, elvi_zero zero)
{
    const double over = expm1(fmin(zero.value, 700.0)); /* e^B - 1 */
    const double by = over > 0.0 ? 1.0 / over : 0.0, ratio = zero.slope * by;
    count.value += log(-expm1(-zero.value));
    count.slope += ratio;
    count.curve += zero.curve * by - ratio * ratio * (over + 1.0);
    count.hyper += zero.hyper * by;
    return count;
}

/* -log P(y) of a count that is not zero */
static inline elvi_line_piece elvi_positive_negbinomial(const double *hyper, double y, double eta)
{
    return elvi_without_zero(elvi_negbinomial_count(hyper, y, eta), elvi_negbinomial_zero(hyper, eta));
}

#endif
