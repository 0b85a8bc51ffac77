/* Numbers between 0 and 1. */
#include "expectation.h"
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

/* a response and its phi */
typedef struct {
    const elvi_dispersion *a;
    double y;
} beta_row;

static inline elvi_piece beta_piece(const beta_row *g, double eta)
{
    const beta_law b = beta_of(g->a, g->y, eta);
    const elvi_piece out = { beta_value(&b), b.p * b.other * beta_pull(&b) };
    return out;
}

static inline double beta_second(const beta_row *g, double eta, elvi_piece at)
{
    const beta_law b = beta_of(g->a, g->y, eta);
    const double by = b.p * b.other;
    (void) at;
    return by * ((b.other - b.m) * beta_pull(&b) + by * (trigamma(b.p) + trigamma(b.q)));
}

static inline double beta_turn(const beta_row *g, double eta)
{
    const beta_law b = beta_of(g->a, g->y, eta);
    return beta_slope_in_dispersion(&b);
}

ELVI_EXPECTATION_GIVEN(expect_beta, beta_row, beta_piece, beta_second)
ELVI_MEAN_GIVEN(mean_beta_turn, beta_row, beta_turn)

/* It is not convex where the mean is far from the response. */
static elvi_expectation beta_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                    double eta, double s)
{
    const beta_row row = { a, y };
    (void) lik;
    return expect_beta(rule->level, &row, eta, s);
}

static void beta_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                              const elvi_expected_row *row, double *out)
{
    const beta_row given = { a, row->y };
    (void) lik;
    out[0] += row->weight * mean_beta_turn(rule->level, &given, row->eta, row->s);
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
        .cost = 600.0,
        .loss = beta_loss,
        .slope = beta_slope,
        .expect = beta_expect,
        .exponential = elvi_never,
        .dispersion_terms = beta_dispersion_terms,
        .add_hyper_slopes = beta_hyper_slopes,
    },
    { .name = NULL }
};
