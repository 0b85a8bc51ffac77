/* What is known of x before the data: blocks of its entries, each with its prior. A block is of
 * independent normal, student or flat priors, times exponential ones; or of such priors of a power of e^x,
 * as a dispersion has, whose logarithm is in x. */
#include "expectation.h"
#include "prior.h"
#include <math.h>
#include <string.h>

/* -log of a student density of nu degrees of freedom (a normal one for nu = Inf) at distance off
 * from its centre, up to a constant, and its derivative */
static double penalty(double precision, double nu, double off, double *slope)
{
    if (isinf(nu)) {
        *slope = precision * off;
        return 0.5 * precision * off * off;
    }
    const double q = precision * off * off / nu;
    *slope = (1.0 + 1.0 / nu) * precision * off / (1.0 + q);
    return 0.5 * (nu + 1.0) * log1p(q);
}

/* -log p(s) - log s at s = e^(exponent x): up to a constant, the second term is the Jacobian that makes it the
 * density of x */
static double penalty_of_log(const elvi_prior_block *b, int i, double x, double *slope)
{
    const double t = b->exponent * x, s = exp(t), l = penalty(b->precision[i], b->prior_df[i], s - b->centre[i], slope);
    *slope = b->exponent * (*slope * s + b->rate[i] * s - 1.0);
    return l + b->rate[i] * s - t;
}

static double block_eval(const elvi_prior_block *b, const double *x, double *grad)
{
    double sum = 0.0, slope;
    for (int i = 0; i < b->length; i++) {
        const double at = x[b->first + i];
        sum += b->of_exp ? penalty_of_log(b, i, at, &slope)
                         : penalty(b->precision[i], b->prior_df[i], at - b->centre[i], &slope);
        if (grad) grad[b->first + i] = slope;
    }
    return sum;
}

void elvi_prior_eval(const elvi_prior *prior, const double *x, int ld, int n, double *value, double *grad)
{
    for (int j = 0; j < n; j++) {
        const size_t at = (size_t) j * ld;
        double sum = 0.0;
        if (grad && !prior->blocks) memset(grad + at, 0, (size_t) ld * sizeof(double));
        for (int b = 0; b < prior->blocks; b++) sum += block_eval(&prior->block[b], x + at, grad ? grad + at : NULL);
        if (value) value[j] = sum;
    }
}

/* a student penalty is most curved at its centre */
void elvi_prior_curvature(const elvi_prior *prior, const double *v, double *out)
{
    for (int k = 0; k < prior->blocks; k++) {
        const elvi_prior_block *b = &prior->block[k];
        for (int i = 0; i < b->length; i++)
            out[b->first + i] = (1.0 + 1.0 / b->prior_df[i]) * b->precision[i] * v[b->first + i];
    }
}

/* log(1 + t^2), a student penalty in units of sqrt(nu) prior scales */
static inline elvi_piece tail(double t)
{
    const elvi_piece out = { log1p(t * t), 2.0 * t / (1.0 + t * t) };
    return out;
}

static inline double tail_curve(double t, elvi_piece at)
{
    const double e = 1.0 + t * t;
    (void) at;
    return 2.0 * (1.0 - t * t) / e / e;
}

ELVI_EXPECTATION_OF(expect_tail, tail, tail_curve)

elvi_expectation elvi_prior_expect(const elvi_prior_block *b, const elvi_quadrature *rule, int i, double mu, double s2)
{
    const double p = b->precision[i], nu = b->prior_df[i], off = mu - b->centre[i];
    elvi_expectation e = { 0.5 * p * (off * off + s2), p * off, p };
    if (!isfinite(nu)) return e;
    const double unit = sqrt(p / nu), by = 0.5 * (nu + 1.0);
    e = expect_tail(rule->prior, unit * off, unit * sqrt(s2));
    e.value *= by;
    e.slope *= by * unit;
    e.curve *= by * unit * unit;
    return e;
}
