/* Positive numbers, and times until something happens. */
#include "expectation.h"
#include "likelihood.h"
#include <Rmath.h>

/* ---- gamma: k (t + y e^-t), k the shape, e^t the mean, a = log k --------------------- */

static double gamma_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (eta[i] + rows->y[i] * exp(-eta[i]));
    return a->natural * sum;
}

static double gamma_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i], ratio = rows->y[i] * exp(-eta[i]);
        if (w > 0.0) sum += w * (eta[i] + ratio);
        eta[i] = w > 0.0 ? a->natural * w * (1.0 - ratio) : 0.0;
    }
    return a->natural * sum;
}

static elvi_expectation gamma_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                     double eta, double s)
{
    elvi_expectation e = { a->natural * eta, a->natural, 0.0 };
    (void) lik;
    add_expectation(&e, a->natural * y, -1.0, elvi_expect_exponential(rule, -eta, s));
    return e;
}

/* log Gamma(k) - k log k, by Stirling's series where both are huge */
static double log_gamma_excess(const elvi_dispersion *k)
{
    if (k->natural > 1e8) return M_LN_SQRT_2PI - k->natural - 0.5 * k->log;
    return k->natural > 1e-300 ? lgammafn(k->natural) - k->natural * k->log : -k->log;
}

/* digamma(k) - log k */
static double digamma_excess(const elvi_dispersion *k)
{
    if (k->natural > 1e8) return -0.5 / k->natural;
    return k->natural > 1e-300 ? digamma(k->natural) - k->log : -1.0 / k->natural;
}

/* The tally's y are means of log y. */
static double gamma_dispersion_terms(const elvi_dispersion *a, const elvi_tally *logs, double *slope)
{
    double sum = 0.0;
    if (slope) *slope = 0.0;
    for (int i = 0; i < logs->n; i++) {
        sum += logs->weight[i] * (log_gamma_excess(a) - a->natural * logs->y[i]);
        if (slope) *slope += logs->weight[i] * a->natural * (digamma_excess(a) - 1.0 - logs->y[i]);
    }
    return sum;
}

/* ---- gamma with inverse link: k (y t - log t), t = 1 / mean, a = log k; the second number of the dispersion is the t0 below
 * which -log t is continued by its parabola, so that every predictor has a loss -------------------------------------------- */

static inline elvi_piece barrier(double u)
{
    const elvi_piece high = { -log(u), -1.0 / u }, low = { (0.5 * u - 2.0) * u + 1.5, u - 2.0 };
    return u > 1.0 ? high : low;
}

static inline double barrier_curve(double u, elvi_piece at)
{
    (void) at;
    return u > 1.0 ? 1.0 / (u * u) : 1.0;
}

ELVI_EXPECTATION_OF(expect_barrier, barrier, barrier_curve)

static inline elvi_piece minus_log(double u)
{
    const elvi_piece out = { -log(u), -1.0 / u };
    return out;
}

static inline double minus_log_curve(double u, elvi_piece at)
{
    (void) at;
    return 1.0 / (u * u);
}

ELVI_EXPECTATION_OF(expect_minus_log, minus_log, minus_log_curve)

/* of barrier(), for a predictor u with spread s, both in units of the least t. The rule's levels are for -log u, with the spread in
 * units of u; where a node is on the parabola the finest is needed. */
static elvi_expectation expect_inverse(const elvi_quadrature *rule, double u, double s)
{
    const elvi_quadrature_level *level = rule->level;
    if (!(s > 0.0)) return expect_barrier(level, u, s);
    while (u > 0.0 && level->limit < s / u) level++;
    if (u - fmax(level->z[0], level->z[level->n - 1]) * s > 1.0) {
        const elvi_expectation e = expect_minus_log(level, 1.0, s / u);
        const elvi_expectation out = { e.value - log(u), e.slope / u, e.curve / (u * u) };
        return out;
    }
    while (level->limit < HUGE_VAL) level++;
    return expect_barrier(level, u, s);
}

static elvi_expectation gamma_inverse_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                             double y, double eta, double s)
{
    const double least = a->count > 1 ? a->hyper[1] : 1.0, unit = 1.0 / least;
    const elvi_expectation h = expect_inverse(rule, eta * unit, s * unit);
    const elvi_expectation e = { a->natural * (y * eta - log(least) + h.value), a->natural * (y + unit * h.slope),
                                 a->natural * unit * unit * h.curve };
    (void) lik;
    return e;
}

/* at a point no rule is needed */
static const elvi_quadrature no_rule = { .limit = HUGE_VAL };

static double gamma_inverse_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * gamma_inverse_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0).value;
    return sum;
}

static double gamma_inverse_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const elvi_expectation at = gamma_inverse_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0);
        eta[i] = w > 0.0 ? w * at.slope : 0.0;
        if (w > 0.0) by_dispersion += w * at.value;
    }
    return by_dispersion;
}

static void gamma_inverse_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                       const elvi_expected_row *row, double *out)
{
    out[0] += row->weight * gamma_inverse_expect(lik, a, rule, row->y, row->eta, row->s).value;
}

/* ---- inverse gaussian: lambda (y e^-2t / 2 - e^-t), e^t the mean, a = log lambda -------- */

static double inverse_gaussian_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double e = exp(-eta[i]);
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * e * (0.5 * rows->y[i] * e - 1.0);
    }
    return a->natural * sum;
}

static double inverse_gaussian_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i], e = exp(-eta[i]), ratio = rows->y[i] * e;
        if (w > 0.0) sum += w * e * (0.5 * ratio - 1.0);
        eta[i] = w > 0.0 ? a->natural * w * e * (1.0 - ratio) : 0.0;
    }
    return a->natural * sum;
}

/* It is not convex where the mean is more than twice the response. */
static elvi_expectation inverse_gaussian_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                                double y, double eta, double s)
{
    elvi_expectation e = { HUGE_VAL, 0.0, 0.0 };
    (void) lik;
    if (!(2.0 * s < rule->limit)) return e; /* it does not exist */
    const elvi_expectation once = elvi_expect_exponential(rule, -eta, s);
    const elvi_expectation twice = elvi_expect_exponential(rule, -2.0 * eta, 2.0 * s);
    e.value = a->natural * (0.5 * y * twice.value - once.value);
    e.slope = a->natural * (once.slope - y * twice.slope);
    e.curve = a->natural * (2.0 * y * twice.curve - once.curve);
    return e;
}

/* The tally's y are means of 1 / y. */
static double inverse_gaussian_dispersion_terms(const elvi_dispersion *a, const elvi_tally *inverses, double *slope)
{
    double sum = 0.0;
    if (slope) *slope = 0.0;
    for (int i = 0; i < inverses->n; i++) {
        const double part = 0.5 * a->natural * inverses->y[i];
        sum += inverses->weight[i] * (part - 0.5 * a->log);
        if (slope) *slope += inverses->weight[i] * (part - 0.5);
    }
    return sum;
}

/* ---- times: e^u - d u, u = k (log t + c(k) - eta), e^eta the mean, k the shape, a = log k ---- */

/* A response is a time t > 0, negative where it is censored: whatever happened (d = 1) did so then, or not before
 * (d = 0). log Gamma(1 + 1/k) = c makes e^eta the mean of a Weibull time; with k = 1 it is exponential. */
typedef struct {
    double u, d;
} survival;

static inline survival survival_of(double shape, double centre, double y, double eta)
{
    const survival out = { shape * (log(fabs(y)) + centre - eta), y > 0.0 ? 1.0 : 0.0 };
    return out;
}

/* log Gamma(1 + 1/k), also where 1/k overflows the function: Stirling's series */
double elvi_weibull_centre(const elvi_dispersion *a)
{
    return a->inverse > 1e100 ? a->inverse * (-a->log - 1.0) : lgammafn(1.0 + a->inverse);
}

/* du/da - u */
double elvi_weibull_turn(const elvi_dispersion *a)
{
    return a->inverse > 1e100 ? a->log : -digamma(1.0 + a->inverse);
}

static double weibull_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    (void) lik;
    return elvi_survival_loss(rows->rows, rows->y, rows->weight, eta, a->natural, elvi_weibull_centre(a));
}

static double weibull_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    const double centre = elvi_weibull_centre(a), turn = elvi_weibull_turn(a);
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const survival at = survival_of(a->natural, centre, rows->y[i], eta[i]);
        const double excess = exp(at.u) - at.d;
        eta[i] = w > 0.0 ? -a->natural * w * excess : 0.0;
        if (w > 0.0) by_dispersion += w * excess * (at.u + turn);
    }
    return by_dispersion;
}

static elvi_expectation weibull_expect_at(const elvi_quadrature *rule, double k, survival at, double s)
{
    elvi_expectation e = { HUGE_VAL, 0.0, 0.0 };
    if (!(k * s < rule->limit)) return e; /* it does not exist */
    const elvi_expectation up = elvi_expect_exponential(rule, at.u, k * s);
    e.value = up.value - at.d * at.u;
    e.slope = -k * (up.slope - at.d);
    e.curve = k * k * up.curve;
    return e;
}

static elvi_expectation weibull_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                       double eta, double s)
{
    (void) lik;
    return weibull_expect_at(rule, a->natural, survival_of(a->natural, elvi_weibull_centre(a), y, eta), s);
}

/* the centre is the same for all rows, and takes longer than one of them */
static elvi_status weibull_expect_rows(const elvi_dispersion *a, const elvi_quadrature *rule, const elvi_lines *rows,
                                       elvi_expected *out)
{
    const double k = a->natural, centre = elvi_weibull_centre(a);
    out->sum = out->widest = 0.0;
    elvi_log_sizes(rows->n, rows->y, out->slope); /* which has no slopes yet */
    for (int i = 0; i < rows->n; i++) {
        const double w = rows->weight[i], s = rows->s[i];
        elvi_expectation e = { 0.0, 0.0, 0.0 };
        if (w > 0.0) {
            if (!(s < rule->limit)) return ELVI_NO_EXPECTATION;
            const survival at = { k * (out->slope[i] + centre - rows->eta[i]), rows->y[i] > 0.0 ? 1.0 : 0.0 };
            e = weibull_expect_at(rule, k, at, s);
            if (s > out->widest) out->widest = s;
        }
        out->sum += w * e.value;
        out->slope[i] = w * e.slope;
        out->curve[i] = w * fmax(e.curve, 0.0); /* rounding aside */
    }
    return ELVI_OK;
}

/* E (e^u - d) du/da, du/da = u + turn and u as far from its mean as eta is */
static void weibull_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                 const elvi_expected_row *row, double *out)
{
    const survival at = survival_of(a->natural, elvi_weibull_centre(a), row->y, row->eta);
    (void) lik;
    (void) rule;
    out[0] += -(at.u + elvi_weibull_turn(a)) * a->inverse * row->slope + row->s * row->s * row->curve;
}

/* the tally's weight counts events: -log k each */
static double weibull_dispersion_terms(const elvi_dispersion *a, const elvi_tally *events, double *slope)
{
    double sum = 0.0;
    for (int i = 0; i < events->n; i++) sum += events->weight[i];
    if (slope) *slope = -sum;
    return -sum * a->log;
}

/* ---- lognormal: a + u^2 / 2, u = (log t - eta) / sigma + sigma / 2, e^eta the mean, a = log sigma ---- */

/* A censored time is negative, as above: -log Phi(-u), u then of the time that is passed. */
static double lognormal_score(const elvi_dispersion *a, double y, double eta)
{
    return (log(fabs(y)) - eta) * a->inverse + 0.5 * a->natural;
}

/* With u of spread s / sigma: E l, E l' and E l'' in u, and E of what dl/da is, du/da = sigma - u. */
typedef struct {
    elvi_expectation e;
    double by_dispersion;
} lognormal_expectation;

static lognormal_expectation expect_lognormal(const elvi_dispersion *a, const elvi_quadrature *rule, double y, double eta, double s)
{
    const double u = lognormal_score(a, y, eta), width = s * a->inverse;
    lognormal_expectation out = { { 0.0, 0.0, 0.0 }, 0.0 };
    if (y > 0.0) {
        const elvi_expectation square = { 0.5 * (u * u + width * width), u, 1.0 };
        out.e = square;
        out.by_dispersion = 1.0;
    } else
        add_expectation(&out.e, 1.0, -1.0, elvi_expect_probit_hit(rule->level, -u, width));
    out.by_dispersion += (a->natural - u) * out.e.slope - width * width * out.e.curve;
    out.e.value += y > 0.0 ? a->log : 0.0;
    out.e.slope *= -a->inverse;
    out.e.curve *= a->inverse * a->inverse;
    return out;
}

static double lognormal_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * expect_lognormal(a, &no_rule, rows->y[i], eta[i], 0.0).e.value;
    return sum;
}

static double lognormal_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    double by_dispersion = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const lognormal_expectation at = expect_lognormal(a, &no_rule, rows->y[i], eta[i], 0.0);
        eta[i] = w > 0.0 ? w * at.e.slope : 0.0;
        if (w > 0.0) by_dispersion += w * at.by_dispersion;
    }
    return by_dispersion;
}

static elvi_expectation lognormal_expect(const elvi_likelihood *lik, const elvi_dispersion *a,
                                         const elvi_quadrature *rule, double y,
                                         double eta, double s)
{
    (void) lik;
    return expect_lognormal(a, rule, y, eta, s).e;
}

static void lognormal_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                                   const elvi_expected_row *row, double *out)
{
    (void) lik;
    out[0] += row->weight * expect_lognormal(a, rule, row->y, row->eta, row->s).by_dispersion;
}

/* ---- pieces of times: |y| e^t - d t, e^t the hazard, d = 1 where y > 0: an event at the end of the piece --------------- */

static elvi_expectation hazard_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                      double eta, double s)
{
    const double d = y > 0.0 ? 1.0 : 0.0;
    elvi_expectation e = { -d * eta, -d, 0.0 };
    (void) lik;
    (void) a;
    add_expectation(&e, fabs(y), 1.0, elvi_expect_exponential(rule, eta, s));
    return e;
}

static double hazard_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    (void) a;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0)
            sum += rows->weight[i] * (fabs(rows->y[i]) * exp(eta[i]) - (rows->y[i] > 0.0 ? eta[i] : 0.0));
    return sum;
}

static double hazard_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    (void) lik;
    (void) a;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        eta[i] = w > 0.0 ? w * (fabs(rows->y[i]) * exp(eta[i]) - (rows->y[i] > 0.0)) : 0.0;
    }
    return 0.0;
}

/* ---- the records ------------------------------------------------------------------- */

const elvi_family elvi_positive_families[] = {
    {
        .name = "gamma",
        .convex = 1,
        .quadratic = 0,
        .cost = 100.0,
        .loss = gamma_loss,
        .slope = gamma_slope,
        .expect = gamma_expect,
        .exponential = elvi_always,
        .dispersion_terms = gamma_dispersion_terms,
    },
    {
        .name = "gamma_inverse",
        .convex = 1,
        .quadratic = 0,
        .cost = 300.0,
        .loss = gamma_inverse_loss,
        .slope = gamma_inverse_slope,
        .expect = gamma_inverse_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = gamma_inverse_hyper_slopes,
    },
    {
        .name = "inverse_gaussian",
        .convex = 0,
        .quadratic = 0,
        .cost = 100.0,
        .loss = inverse_gaussian_loss,
        .slope = inverse_gaussian_slope,
        .expect = inverse_gaussian_expect,
        .exponential = elvi_always,
        .dispersion_terms = inverse_gaussian_dispersion_terms,
    },
    {
        .name = "exponential",
        .convex = 1,
        .quadratic = 0,
        .cost = 100.0,
        .loss = weibull_loss,
        .slope = weibull_slope,
        .expect = weibull_expect,
        .exponential = elvi_always,
    },
    {
        .name = "piecewise_exponential",
        .convex = 1,
        .quadratic = 0,
        .cost = 100.0,
        .loss = hazard_loss,
        .slope = hazard_slope,
        .expect = hazard_expect,
        .exponential = elvi_always,
    },
    {
        .name = "weibull",
        .convex = 1,
        .quadratic = 0,
        .cost = 150.0,
        .loss = weibull_loss,
        .slope = weibull_slope,
        .expect = weibull_expect,
        .expect_many = weibull_expect_rows,
        .exponential = elvi_always,
        .dispersion_terms = weibull_dispersion_terms,
        .add_hyper_slopes = weibull_hyper_slopes,
    },
    {
        .name = "lognormal",
        .convex = 1,
        .quadratic = 0,
        .cost = 100.0,
        .loss = lognormal_loss,
        .slope = lognormal_slope,
        .expect = lognormal_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = lognormal_hyper_slopes,
    },
    { .name = NULL }
};
