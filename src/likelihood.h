/* What the files of likelihoods share: likelihood.c. Each of them has a group of families, whose records are in an
 * array that ends with one without a name; likelihood.c lists the groups. */
#ifndef ELVI_LIKELIHOOD_H
#define ELVI_LIKELIHOOD_H

#include "family.h"
#include <math.h>

extern const elvi_family elvi_binomial_families[], elvi_count_families[], elvi_gaussian_families[],
    elvi_positive_families[], elvi_beta_families[], elvi_ordinal_families[], elvi_step_families[],
    elvi_interval_families[];

/* of responses whose loss has an exponential in it: none, all */
static inline int elvi_never(double y)
{
    (void) y;
    return 0;
}

static inline int elvi_always(double y)
{
    (void) y;
    return 1;
}

/* by * part with eta in it times sign */
static inline void add_expectation(elvi_expectation *e, double by, double sign, elvi_expectation part)
{
    e->value += by * part.value;
    e->slope += by * sign * part.slope;
    e->curve += by * part.curve;
}

/* log(1 + e^t), log(1 + e^-t) and their derivatives up to signs */
typedef struct {
    double up, down, p, q;
} softplus_pair;

static inline softplus_pair softplus_pair_of(double t)
{
    const double e = exp(-fabs(t)), tail = log1p(e), half = 1.0 / (1.0 + e);
    const softplus_pair right = { t + tail, tail, half, e * half }, left = { tail, tail - t, e * half, half };
    return t > 0.0 ? right : left;
}

/* E log(1 + e^t) at t = eta + s z_1, and its derivatives */
elvi_expectation elvi_expect_softplus(const elvi_quadrature_level *level, double eta, double s);
/* E -log(1 - exp(-e^t)) at t = eta + s z_1 */
elvi_expectation elvi_expect_cloglog_hit(const elvi_quadrature_level *level, double eta, double s);
/* E -log Phi(t) at t = eta + s z_1 */
elvi_expectation elvi_expect_probit_hit(const elvi_quadrature_level *level, double eta, double s);
/* E -log(Phi(upper - t) - Phi(lower - t)) at t = eta + s z_1, either bound perhaps infinite; its derivative in lower */
elvi_expectation elvi_expect_normal_interval(const elvi_quadrature_level *level, double lower, double upper, double eta, double s,
                                             double *by_lower);
/* of a Weibull time of shape k = e^a: log Gamma(1 + 1/k), and du/da - u, where e^u is the cumulated hazard */
double elvi_weibull_centre(const elvi_dispersion *a);
double elvi_weibull_turn(const elvi_dispersion *a);
/* E exp(eta + s z_1), in closed form where the base has one */
elvi_expectation elvi_expect_exponential(const elvi_quadrature *rule, double eta, double s);

#endif
