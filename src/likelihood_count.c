/* Counts. */
#include "expectation.h"
#include "joint_counts.h"
#include "likelihood.h"
#include <Rmath.h>

/* ---- poisson: e^t - y t ---------------------------------------------------------- */

static double poisson_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    (void) lik;
    (void) a;
    return elvi_poisson_loss(rows->rows, rows->y, rows->weight, eta);
}

static double poisson_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    (void) lik;
    (void) a;
    elvi_poisson_slope(rows->rows, rows->y, rows->weight, eta);
    return 0.0;
}

static elvi_expectation poisson_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                       double eta, double s)
{
    elvi_expectation e = elvi_expect_exponential(rule, eta, s);
    (void) lik;
    (void) a;
    e.value -= y * eta;
    e.slope -= y;
    return e;
}

/* ---- poisson without zeros: e^t - y t + log(1 - exp(-e^t)) -------------------------- */

static elvi_expectation truncated_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                         double y, double eta, double s)
{
    elvi_expectation e = { -y * eta, -y, 0.0 };
    (void) lik;
    (void) a;
    add_expectation(&e, 1.0, 1.0, elvi_expect_exponential(rule, eta, s));
    add_expectation(&e, -1.0, 1.0, elvi_expect_cloglog_hit(rule->level, eta, s));
    return e;
}

/* at a point no rule is needed */
static const elvi_quadrature no_rule = { .limit = HUGE_VAL };

static double truncated_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * truncated_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0).value;
    return sum;
}

static double truncated_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        eta[i] = w > 0.0 ? w * truncated_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0).slope : 0.0;
    }
    return 0.0;
}

/* ---- negative binomial: phi log(1 + mu/phi) + y log(1 + phi/mu), mu = e^t, a = log phi --- */

static double negbin_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const softplus_pair at = softplus_pair_of(eta[i] - a->log);
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (a->natural * at.up + rows->y[i] * at.down);
    }
    return sum;
}

static double negbin_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const softplus_pair at = softplus_pair_of(eta[i] - a->log);
        const double slope = a->natural * at.p - rows->y[i] * at.q;
        eta[i] = w > 0.0 ? w * slope : 0.0;
        if (w > 0.0) by_dispersion += w * (a->natural * at.up - slope);
    }
    return by_dispersion;
}

/* (y + phi) log(1 + e^u) - y u, u = t - log phi */
static elvi_expectation negbin_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                      double eta, double s)
{
    const double u = eta - a->log, by = y + a->natural;
    const elvi_expectation part = elvi_expect_softplus(rule->level, u, s);
    const elvi_expectation e = { by * part.value - y * u, by * part.slope - y, by * part.curve };
    (void) lik;
    return e;
}

/* digamma(phi + y) - digamma(phi), by the asymptotic series where the two are nearly the same */
static double digamma_gain(double phi, double y)
{
    if (phi < 1e3) return digamma(phi + y) - digamma(phi);
    const double p = 1.0 / phi, q = 1.0 / (phi + y);
    return log1p(y * p) + 0.5 * (p - q) + (p * p - q * q) / 12.0;
}

/* log B(phi, y). Beyond 1e306 lbeta() warns, which a thread must not do; there it is
 * log(Gamma(y) phi^-y) to rounding. */
static double log_beta(const elvi_dispersion *phi, double y)
{
    if (phi->natural > 1e300) return lgammafn(y) - y * phi->log;
    return phi->natural > 1e-300 ? lbeta(phi->natural, y) : -phi->log;
}

/* Sum of log B(phi, y) over counts y > 0: with the loss minus the log density, up to a constant of
 * y. The beta function keeps the digits that two log gammas of a large phi would lose. */
static double negbin_dispersion_terms(const elvi_dispersion *a, const elvi_tally *counts, double *slope)
{
    double sum = 0.0;
    if (slope) *slope = 0.0;
    for (int k = 0; k < counts->n; k++) {
        const double y = counts->y[k], w = counts->weight[k], phi = a->natural;
        sum += w * log_beta(a, y);
        if (slope) *slope -= w * (phi > 1e-300 ? phi * digamma_gain(phi, y) : 1.0);
    }
    return sum;
}

/* ---- negative binomial without zeros: (y + phi) log(1 + e^u) - y u + log(1 - P(0)), u = t - log phi ---- */

/* a count and its phi */
typedef struct {
    const double *hyper;
    double y;
} positive_row;

static inline elvi_piece positive_piece(const positive_row *g, double eta)
{
    const elvi_line_piece at = elvi_positive_negbinomial(g->hyper, g->y, eta);
    const elvi_piece out = { at.value, at.slope };
    return out;
}

static inline double positive_second(const positive_row *g, double eta, elvi_piece at)
{
    (void) at;
    return elvi_positive_negbinomial(g->hyper, g->y, eta).curve;
}

static inline double positive_turn(const positive_row *g, double eta)
{
    return elvi_positive_negbinomial(g->hyper, g->y, eta).hyper;
}

ELVI_EXPECTATION_GIVEN(expect_positive, positive_row, positive_piece, positive_second)
ELVI_MEAN_GIVEN(mean_positive_turn, positive_row, positive_turn)

static double truncated_negbin_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0)
            sum += rows->weight[i] * elvi_positive_negbinomial(&a->natural, rows->y[i], eta[i]).value;
    return sum;
}

static double truncated_negbin_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const elvi_line_piece at = elvi_positive_negbinomial(&a->natural, rows->y[i], eta[i]);
        eta[i] = w > 0.0 ? w * at.slope : 0.0;
        if (w > 0.0) by_dispersion += w * at.hyper;
    }
    return by_dispersion;
}

/* It is not convex where phi is small. */
static elvi_expectation truncated_negbin_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                                double y, double eta, double s)
{
    const positive_row row = { &a->natural, y };
    (void) lik;
    return expect_positive(rule->level, &row, eta, s);
}

static void truncated_negbin_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                          const elvi_expected_row *row, double *out)
{
    const positive_row given = { &a->natural, row->y };
    (void) lik;
    out[0] += row->weight * mean_positive_turn(rule->level, &given, row->eta, row->s);
}

/* ---- the records ------------------------------------------------------------------- */

const elvi_family elvi_count_families[] = {
    {
        .name = "poisson",
        .convex = 1,
        .quadratic = 0,
        .cost = 40.0,
        .loss = poisson_loss,
        .slope = poisson_slope,
        .expect = poisson_expect,
        .exponential = elvi_always,
    },
    {
        .name = "truncated_poisson",
        .convex = 1,
        .quadratic = 0,
        .cost = 600.0,
        .loss = truncated_loss,
        .slope = truncated_slope,
        .expect = truncated_expect,
        .exponential = elvi_always,
    },
    {
        .name = "neg_binomial_2",
        .convex = 1,
        .quadratic = 0,
        .cost = 300.0,
        .loss = negbin_loss,
        .slope = negbin_slope,
        .expect = negbin_expect,
        .exponential = elvi_never,
        .dispersion_terms = negbin_dispersion_terms,
    },
    {
        .name = "truncated_negbinomial",
        .convex = 0,
        .quadratic = 0,
        .cost = 600.0,
        .loss = truncated_negbin_loss,
        .slope = truncated_negbin_slope,
        .expect = truncated_negbin_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = truncated_negbin_hyper_slopes,
    },
    { .name = NULL }
};
