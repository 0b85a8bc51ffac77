/* Numbers between 0 and 1. */
#include "likelihood.h"
#include <Rmath.h>

/* ---- beta: log B(m phi, (1 - m) phi) - m phi logit(y), m = 1 / (1 + e^-eta) the mean, a = log phi ---- */

/* the two parameters of the law, not so small or large that their functions would fail */
typedef struct {
    double m, other, p, q, level; /* mean and 1 - mean; their parameters; logit(y) */
} beta_law;

static inline beta_law beta_of(const elvi_dispersion *a, double y, double eta)
{
    const softplus_pair at = softplus_pair_of(eta);
    const double phi = fmin(fmax(a->natural, 1e-290), 1e290);
    const beta_law out = { at.p, at.q, fmax(at.p * phi, 1e-300), fmax(at.q * phi, 1e-300), log(y) - log1p(-y) };
    return out;
}

static inline double beta_value(const beta_law *b) { return lbeta(b->p, b->q) - b->p * b->level; }

/* digamma(p) - digamma(q) - logit(y) */
static inline double beta_pull(const beta_law *b) { return digamma(b->p) - digamma(b->q) - b->level; }

static inline double beta_slope_in_dispersion(const beta_law *b)
{
    const double both = digamma(b->p + b->q);
    return b->p * (digamma(b->p) - both - b->level) + b->q * (digamma(b->q) - both);
}

static double beta_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        if (!(rows->weight[i] > 0.0)) continue;
        const beta_law b = beta_of(a, rows->y[i], eta[i]);
        sum += rows->weight[i] * beta_value(&b);
    }
    return sum;
}

static double beta_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const beta_law b = beta_of(a, rows->y[i], eta[i]);
        if (w > 0.0) by_dispersion += w * beta_slope_in_dispersion(&b);
        eta[i] = w > 0.0 ? w * b.p * b.other * beta_pull(&b) : 0.0;
    }
    return by_dispersion;
}

/* at a point only: it is not convex where the mean is far from the response */
static elvi_expectation beta_at(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                double eta, double s)
{
    const beta_law b = beta_of(a, y, eta);
    const double pull = beta_pull(&b), by = b.p * b.other;
    const elvi_expectation e = { beta_value(&b), by * pull,
                                 by * ((b.other - b.m) * pull + by * (trigamma(b.p) + trigamma(b.q))) };
    (void) lik;
    (void) rule;
    (void) s;
    return e;
}

/* The tally's y are means of log(1 - y). */
static double beta_dispersion_terms(const elvi_dispersion *a, const elvi_tally *logs, double *slope)
{
    double sum = 0.0;
    for (int i = 0; i < logs->n; i++) sum -= logs->weight[i] * a->natural * logs->y[i];
    if (slope) *slope = sum;
    return sum;
}

/* ---- the records ------------------------------------------------------------------- */

const elvi_family elvi_beta_families[] = {
    {
        .name = "beta",
        .convex = 0,
        .quadratic = 0,
        .dispersions = 1,
        .cost = 600.0,
        .loss = beta_loss,
        .slope = beta_slope,
        .expect = beta_at,
        .exponential = elvi_never,
        .dispersion_terms = beta_dispersion_terms,
    },
    { .name = NULL }
};
