/* Numbers between 0 and 1, and counts of trials whose probability of success is such a number. */
#include "expectation.h"
#include "likelihood.h"
#include "stirling.h"
#include "trials.h"
#include <Rmath.h>

/* ---- beta: log B(m phi, (1 - m) phi) - m phi logit(y), m = 1 / (1 + e^-eta) the mean, a = log phi ---- */

/* a response and its phi, with all that the mean is not in */
typedef struct {
    double phi, log_phi, log_y, log_other; /* log y and log(1 - y) */
    elvi_gamma both;                       /* at phi */
} beta_row;

static beta_row beta_row_of(const elvi_dispersion *a, double y)
{
    const double phi = fmin(fmax(a->natural, 1e-140), 1e140), log_phi = log(phi);
    const beta_row out = { phi, log_phi, log(y), log1p(-y), elvi_gamma_of(phi, log_phi) };
    return out;
}

/* the mean and 1 - mean, the logarithms of both, and the two parameters of the distribution with their gamma functions */
typedef struct {
    double m, other, log_m, log_other, p, q;
    elvi_gamma at_p, at_q;
} beta_law;

static inline beta_law beta_of(const beta_row *g, double eta)
{
    const double e = exp(-fabs(eta)), less = 1.0 / (1.0 + e), near = -log1p(e), far = near - fabs(eta);
    const double m = eta > 0.0 ? less : e * less, other = eta > 0.0 ? e * less : less;
    const double log_m = eta > 0.0 ? near : far, log_other = eta > 0.0 ? far : near;
    const double p = fmax(m * g->phi, 1e-150), q = fmax(other * g->phi, 1e-150);
    const elvi_gamma at_p = elvi_gamma_of(p, fmax(log_m + g->log_phi, -345.0));
    const elvi_gamma at_q = elvi_gamma_of(q, fmax(log_other + g->log_phi, -345.0));
    const beta_law out = { m, other, log_m, log_other, p, q, at_p, at_q };
    return out;
}

/* without the terms of log B(p, q) that cancel where p and q are large */
static inline double beta_value(const beta_row *g, const beta_law *b)
{
    return b->p * (b->log_m - g->log_y + g->log_other) + b->q * b->log_other - 0.5 * (b->log_m + b->log_other + g->log_phi) +
           M_LN_SQRT_2PI + b->at_p.rest + b->at_q.rest - g->both.rest;
}

/* digamma(p) - digamma(q) - logit(y) */
static inline double beta_pull(const beta_row *g, const beta_law *b)
{
    return b->at_p.slope - b->at_q.slope - g->log_y + g->log_other;
}

static inline double beta_turn(const beta_row *g, double eta)
{
    const beta_law b = beta_of(g, eta);
    return b.p * (b.at_p.slope - g->both.slope - g->log_y + g->log_other) + b.q * (b.at_q.slope - g->both.slope);
}

static inline elvi_piece beta_piece(const beta_row *g, double eta)
{
    const beta_law b = beta_of(g, eta);
    const elvi_piece out = { beta_value(g, &b), b.p * b.other * beta_pull(g, &b) };
    return out;
}

static inline double beta_second(const beta_row *g, double eta, elvi_piece at)
{
    const beta_law b = beta_of(g, eta);
    const double by = b.p * b.other;
    (void) at;
    return by * ((b.other - b.m) * beta_pull(g, &b) + by * (b.at_p.curve + b.at_q.curve));
}

static double beta_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        if (!(rows->weight[i] > 0.0)) continue;
        const beta_row row = beta_row_of(a, rows->y[i]);
        sum += rows->weight[i] * beta_piece(&row, eta[i]).l;
    }
    return sum;
}

static double beta_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const beta_row row = beta_row_of(a, rows->y[i]);
        if (w > 0.0) by_dispersion += w * beta_turn(&row, eta[i]);
        eta[i] = w > 0.0 ? w * beta_piece(&row, eta[i]).slope : 0.0;
    }
    return by_dispersion;
}

ELVI_EXPECTATION_GIVEN(expect_beta, beta_row, beta_piece, beta_second)
ELVI_MEAN_GIVEN(mean_beta_turn, beta_row, beta_turn)

/* It is not convex where the mean is far from the response. */
static elvi_expectation beta_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                    double eta, double s)
{
    const beta_row row = beta_row_of(a, y);
    (void) lik;
    return expect_beta(rule->level, &row, eta, s);
}

static void beta_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                              const elvi_expected_row *row, double *out)
{
    const beta_row given = beta_row_of(a, row->y);
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

/* ---- beta-binomial: log B(p, q) - log B(p + k, q + n - k), p = m phi, q = (1 - m) phi, a = log phi ---- */

/* a row: its counts and its phi */
typedef struct {
    double phi;
    trials seen;
    gamma_gain all; /* of phi and n */
} betabinomial_row;

static betabinomial_row betabinomial_of(const elvi_dispersion *a, double y)
{
    const double phi = fmin(fmax(a->natural, 1e-90), 1e90);
    const trials seen = trials_of(y);
    const betabinomial_row out = { phi, seen, gamma_gain_of(phi, seen.n) };
    return out;
}

typedef struct {
    double m, other, p, q;
    gamma_gain hits, misses;
} betabinomial_law;

static inline betabinomial_law betabinomial_at(const betabinomial_row *g, double eta)
{
    const softplus_pair at = softplus_pair_of(eta);
    const double p = fmax(at.p * g->phi, 1e-100), q = fmax(at.q * g->phi, 1e-100);
    const betabinomial_law out = { at.p, at.q, p, q, gamma_gain_of(p, g->seen.k), gamma_gain_of(q, g->seen.n - g->seen.k) };
    return out;
}

static inline elvi_piece betabinomial_piece(const betabinomial_row *g, double eta)
{
    const betabinomial_law b = betabinomial_at(g, eta);
    const elvi_piece out = { g->all.value - b.hits.value - b.misses.value, b.p * b.other * (b.misses.slope - b.hits.slope) };
    return out;
}

static inline double betabinomial_second(const betabinomial_row *g, double eta, elvi_piece at)
{
    const betabinomial_law b = betabinomial_at(g, eta);
    const double by = b.p * b.other;
    return (b.other - b.m) * at.slope - by * by * (b.hits.curve + b.misses.curve);
}

static inline double betabinomial_turn(const betabinomial_row *g, double eta)
{
    const betabinomial_law b = betabinomial_at(g, eta);
    return g->phi * g->all.slope - b.p * b.hits.slope - b.q * b.misses.slope;
}

ELVI_EXPECTATION_GIVEN(expect_betabinomial, betabinomial_row, betabinomial_piece, betabinomial_second)
ELVI_MEAN_GIVEN(mean_betabinomial_turn, betabinomial_row, betabinomial_turn)

static double betabinomial_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        if (!(rows->weight[i] > 0.0)) continue;
        const betabinomial_row row = betabinomial_of(a, rows->y[i]);
        sum += rows->weight[i] * betabinomial_piece(&row, eta[i]).l;
    }
    return sum;
}

static double betabinomial_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const betabinomial_row row = betabinomial_of(a, rows->y[i]);
        if (w > 0.0) by_dispersion += w * betabinomial_turn(&row, eta[i]);
        eta[i] = w > 0.0 ? w * betabinomial_piece(&row, eta[i]).slope : 0.0;
    }
    return by_dispersion;
}

/* It is not convex where the mean is far from the share of successes. */
static elvi_expectation betabinomial_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                            double y, double eta, double s)
{
    const betabinomial_row row = betabinomial_of(a, y);
    (void) lik;
    return expect_betabinomial(rule->level, &row, eta, s);
}

static void betabinomial_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                      const elvi_expected_row *row, double *out)
{
    const betabinomial_row given = betabinomial_of(a, row->y);
    (void) lik;
    out[0] += row->weight * mean_betabinomial_turn(rule->level, &given, row->eta, row->s);
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
    {
        .name = "beta_binomial",
        .convex = 0,
        .quadratic = 0,
        .cost = 900.0,
        .loss = betabinomial_loss,
        .slope = betabinomial_slope,
        .expect = betabinomial_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = betabinomial_hyper_slopes,
    },
    { .name = NULL }
};
