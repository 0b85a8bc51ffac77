/* Numbers with normal errors, or with errors of heavier tails. */
#include "expectation.h"
#include "likelihood.h"
#include <math.h>

/* ---- normal: a + (y - t)^2 / (2 sigma^2), a = log sigma ------------------------------ */

static double normal_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double u = (eta[i] - rows->y[i]) * a->inverse;
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (a->log + 0.5 * u * u);
    }
    return sum;
}

static double normal_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i], u = (eta[i] - rows->y[i]) * a->inverse;
        eta[i] = w > 0.0 ? w * u * a->inverse : 0.0;
        if (w > 0.0) by_dispersion += w * (1.0 - u * u);
    }
    return by_dispersion;
}

static elvi_expectation normal_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                      double eta, double s)
{
    const double v = a->inverse * a->inverse;
    const elvi_expectation e = { a->log + 0.5 * v * ((eta - y) * (eta - y) + s * s), v * (eta - y), v };
    (void) lik;
    (void) rule;
    return e;
}

/* Weights are precisions, of which each observation has one, and not as many log sigma as its weight says: the
 * tally's weight makes up the difference. */
static double normal_dispersion_terms(const elvi_dispersion *a, const elvi_tally *missing, double *slope)
{
    double sum = 0.0;
    for (int k = 0; k < missing->n; k++) sum += missing->weight[k];
    if (slope) *slope = sum;
    return sum * a->log;
}

/* ---- normal around e^t: a + (y - e^t)^2 / (2 sigma^2), a = log sigma ------------------ */

static double curved_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double u = (exp(eta[i]) - rows->y[i]) * a->inverse;
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (a->log + 0.5 * u * u);
    }
    return sum;
}

static double curved_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i], mu = exp(eta[i]), u = (mu - rows->y[i]) * a->inverse;
        eta[i] = w > 0.0 ? w * u * mu * a->inverse : 0.0;
        if (w > 0.0) by_dispersion += w * (1.0 - u * u);
    }
    return by_dispersion;
}

/* y^2 / 2 - y e^t + e^2t / 2; not convex where the mean is below half the response */
static elvi_expectation curved_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                      double eta, double s)
{
    elvi_expectation e = { HUGE_VAL, 0.0, 0.0 };
    const double v = a->inverse * a->inverse;
    (void) lik;
    if (!(2.0 * s < rule->limit)) return e; /* it does not exist */
    const elvi_expectation once = elvi_expect_exponential(rule, eta, s);
    const elvi_expectation twice = elvi_expect_exponential(rule, 2.0 * eta, 2.0 * s);
    e.value = a->log + v * (0.5 * (y * y + twice.value) - y * once.value);
    e.slope = v * (twice.slope - y * once.slope);
    e.curve = v * (2.0 * twice.curve - y * once.curve);
    return e;
}

static void curved_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                const elvi_expected_row *row, double *out)
{
    out[0] += row->weight * (1.0 - 2.0 * (curved_expect(lik, a, rule, row->y, row->eta, row->s).value - a->log));
}

/* ---- robust, student: a + (nu + 1) / 2 log(1 + (y - t)^2 / (nu sigma^2)), a = log sigma --- */

/* degrees of freedom, known or the second hyperparameter */
static double error_df(const elvi_likelihood *lik, const elvi_dispersion *a)
{
    return a->count > 1 ? a->hyper[1] : lik->error_df;
}

static double robust_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    const double nu = error_df(lik, a);
    double sum = 0.0;
    for (int i = 0; i < rows->rows; i++) {
        const double u = (eta[i] - rows->y[i]) * a->inverse;
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (a->log + 0.5 * (nu + 1.0) * log1p(u * u / nu));
    }
    return sum;
}

static double robust_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    const double nu = error_df(lik, a);
    double by_dispersion = 0.0;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i], u = (eta[i] - rows->y[i]) * a->inverse, q = u * u / nu;
        eta[i] = w > 0.0 ? w * (1.0 + 1.0 / nu) * u / (1.0 + q) * a->inverse : 0.0;
        if (w > 0.0) by_dispersion += w * (1.0 - (nu + 1.0) * (1.0 - 1.0 / (1.0 + q))); /* also for q = Inf */
    }
    return by_dispersion;
}

static inline elvi_piece heavy(double u)
{
    const elvi_piece out = { log1p(u * u), 2.0 * u / (1.0 + u * u) };
    return out;
}

static inline double heavy_curve(double u, elvi_piece at)
{
    const double q = u * u;
    (void) at;
    return 2.0 * (1.0 - q) / ((1.0 + q) * (1.0 + q));
}

ELVI_EXPECTATION_OF(expect_heavy, heavy, heavy_curve)

/* in units of sigma sqrt(nu) */
static elvi_expectation robust_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                      double eta, double s)
{
    const double nu = error_df(lik, a), unit = a->inverse / sqrt(nu), by = 0.5 * (nu + 1.0);
    const elvi_expectation h = expect_heavy(rule->level, (eta - y) * unit, s * unit);
    const elvi_expectation e = { a->log + by * h.value, by * unit * h.slope, by * unit * unit * h.curve };
    return e;
}

/* With u = (t - y) / (sigma sqrt(nu)) and q = u^2 the loss has log sigma and nu but for log sigma in u and nu + 1 alone, and
 * E q / (1 + q) is half of E u h'(u), which slope and curve have. */
static void robust_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                const elvi_expected_row *row, double *out)
{
    const double pulled = (row->eta - row->y) * row->slope + row->s * row->s * row->curve; /* (nu + 1) E q / (1 + q) */
    out[0] += row->weight - pulled;
    if (a->count < 2) return;
    const double nu = error_df(lik, a), unit = a->inverse / sqrt(nu);
    const elvi_expectation h = expect_heavy(rule->level, (row->eta - row->y) * unit, row->s * unit);
    out[1] += 0.5 * (row->weight * nu * h.value - pulled);
}

/* ---- the records ------------------------------------------------------------------- */

const elvi_family elvi_gaussian_families[] = {
    {
        .name = "normal",
        .convex = 1,
        .quadratic = 1,
        .cost = 40.0,
        .loss = normal_loss,
        .slope = normal_slope,
        .expect = normal_expect,
        .exponential = elvi_never,
        .dispersion_terms = normal_dispersion_terms,
    },
    {
        .name = "normal_log",
        .convex = 0,
        .quadratic = 0,
        .cost = 100.0,
        .loss = curved_loss,
        .slope = curved_slope,
        .expect = curved_expect,
        .exponential = elvi_always,
        .add_hyper_slopes = curved_hyper_slopes,
    },
    {
        .name = "robust",
        .convex = 0,
        .quadratic = 0,
        .cost = 300.0,
        .loss = robust_loss,
        .slope = robust_slope,
        .expect = robust_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = robust_hyper_slopes,
    },
    {
        .name = "student",
        .convex = 0,
        .quadratic = 0,
        .cost = 300.0,
        .loss = robust_loss,
        .slope = robust_slope,
        .expect = robust_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = robust_hyper_slopes,
    },
    { .name = NULL }
};
