/* Priors of blocks of parameters: prior.c. */
#ifndef ELVI_PRIOR_H
#define ELVI_PRIOR_H

#include "quadrature.h"

/* Independent priors of x[first], ..., x[first + length - 1]: normal (df Inf), student, or flat
 * (precision 0). With of_exp they are priors of e^(exponent x) instead, truncated to positive values and
 * times an exponential one with `rate`, and the Jacobian is added. */
typedef struct {
    int first, length, of_exp;
    double exponent;                                    /* with of_exp: 1, or what makes a parameter free of units; not 0 */
    const double *centre, *precision, *prior_df, *rate; /* length each */
} elvi_prior_block;

enum { ELVI_MOST_BLOCKS = 8 };
typedef struct {
    int blocks;
    elvi_prior_block block[ELVI_MOST_BLOCKS]; /* which together are all of x; without any there is no prior */
} elvi_prior;

/* value (n) and grad (ld x n) <- the prior's at the columns of x; either may be NULL */
void elvi_prior_eval(const elvi_prior *prior, const double *x, int ld, int n,
                     double *value, double *grad);
/* out <- P v, P the largest curvature of the prior; not for priors of e^x */
void elvi_prior_curvature(const elvi_prior *prior, const double *v, double *out);
/* of the i-th entry of a block under mu + s z_1; not for priors of e^x */
elvi_expectation elvi_prior_expect(const elvi_prior_block *block, const elvi_quadrature *rule, int i,
                                   double mu, double s2);

#endif
