/* Proportions: one family for each link. */
#include "expectation.h"
#include "likelihood.h"
#include <Rmath.h>

/* ---- logit: log(1 + e^t) - y t ------------------------------------------------- */

static double logit_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    (void) lik;
    (void) a;
    return elvi_logit_loss(rows->rows, rows->y, rows->weight, eta);
}

static double logit_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    (void) lik;
    (void) a;
    elvi_logit_slope(rows->rows, rows->y, rows->weight, eta);
    return 0.0;
}

static elvi_expectation logit_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                     double eta, double s)
{
    elvi_expectation e = elvi_expect_softplus(rule->level, eta, s);
    (void) lik;
    (void) a;
    e.value -= y * eta;
    e.slope -= y;
    return e;
}

/* ---- probit: -y log Phi(t) - (1 - y) log Phi(-t) ---------------------------------- */

/* phi(t) / Phi(t), t plus that, which is its derivative over minus itself, and -log Phi(t) */
typedef struct {
    double ratio, excess, loss;
} normal_tail;

/* To a few units in the last place: where both underflow by the continued fraction of their ratio,
 * whose terms all have one sign; elsewhere phi() is made as pnorm() makes it, of the same two
 * exponentials, whose roundings cancel. */
static inline normal_tail tail_of(double t)
{
    const double x = fabs(t), log_root_2pi = M_LN_SQRT_2PI;
    normal_tail out;
    if (t < -30.0) {
        double below = x;
        for (int k = 8; k > 1; k--) below = x + k / below;
        out.excess = 1.0 / below;
        out.ratio = x + out.excess;
        out.loss = 0.5 * x * x + log_root_2pi + log(out.ratio);
        return out;
    }
    if (t > 40.0) {
        const normal_tail none = { 0.0, t, 0.0 };
        return none;
    }
    double lower, upper;
    pnorm_both(t, &lower, &upper, 2, 0);
    const double coarse = trunc(x * 16.0) / 16.0, fine = (x - coarse) * (x + coarse);
    const double density = M_1_SQRT_2PI * (exp(-0.5 * coarse * coarse) * exp(-0.5 * fine));
    out.ratio = density / lower;
    out.excess = t + out.ratio;
    out.loss = t < 0.0 ? -log(lower) : -log1p(-upper);
    return out;
}

double elvi_mills(double t)
{
    return tail_of(t).ratio;
}

static inline elvi_piece neg_log_pnorm(double t)
{
    const normal_tail at = tail_of(t);
    const elvi_piece out = { at.loss, -at.ratio };
    return out;
}

static inline double neg_log_pnorm_curve(double t, elvi_piece at)
{
    const normal_tail tail = tail_of(t);
    (void) at;
    return tail.ratio * tail.excess;
}

ELVI_EXPECTATION_OF(expect_neg_log_pnorm, neg_log_pnorm, neg_log_pnorm_curve)

elvi_expectation elvi_expect_probit_hit(const elvi_quadrature_level *level, double eta, double s)
{
    return expect_neg_log_pnorm(level, eta, s);
}

static double probit_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    (void) a;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], w = rows->weight[i];
        if (!(w > 0.0)) continue; /* 0 * log(0) must be 0 */
        if (y > 0.0) sum += w * y * tail_of(eta[i]).loss;
        if (y < 1.0) sum += w * (1.0 - y) * tail_of(-eta[i]).loss;
    }
    return sum;
}

static double probit_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    (void) lik;
    (void) a;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], t = eta[i];
        double slope = 0.0;
        if (y > 0.0) slope -= y * elvi_mills(t);
        if (y < 1.0) slope += (1.0 - y) * elvi_mills(-t);
        eta[i] = rows->weight[i] * slope;
    }
    return 0.0;
}

static elvi_expectation probit_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                      double eta, double s)
{
    elvi_expectation e = { 0.0, 0.0, 0.0 };
    (void) lik;
    (void) a;
    if (y > 0.0) add_expectation(&e, y, 1.0, expect_neg_log_pnorm(rule->level, eta, s));
    if (y < 1.0) add_expectation(&e, 1.0 - y, -1.0, expect_neg_log_pnorm(rule->level, -eta, s));
    return e;
}

/* ---- cloglog: -y log(1 - exp(-e^t)) + (1 - y) e^t ----------------------------------- */

/* Below -37 the loss of a success is -t and its slope -1 to rounding, and e may underflow. */
static inline elvi_piece neg_log_cloglog(double t)
{
    const double e = exp(t);
    elvi_piece out;
    out.slope = t < -37.0 ? -1.0 : (e < 700.0 ? -e / expm1(e) : 0.0);
    out.l = t < -37.0 ? -t : (e < M_LN2 ? -log(-expm1(-e)) : -log1p(-exp(-e)));
    return out;
}

/* r (e - 1 + r), r = e / (exp(e) - 1): a series where that cancels */
static inline double neg_log_cloglog_curve(double t, elvi_piece at)
{
    const double e = exp(t);
    if (at.slope == 0.0) return 0.0;
    return -at.slope * (e < 0.01 ? e * (0.5 + e * (1.0 / 12.0 - e * e / 720.0)) : e - 1.0 - at.slope);
}

ELVI_EXPECTATION_OF(expect_neg_log_cloglog, neg_log_cloglog, neg_log_cloglog_curve)

elvi_expectation elvi_expect_cloglog_hit(const elvi_quadrature_level *level, double eta, double s)
{
    return expect_neg_log_cloglog(level, eta, s);
}

static double cloglog_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    (void) a;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], w = rows->weight[i];
        if (!(w > 0.0)) continue; /* 0 * Inf must be 0 */
        if (y > 0.0) sum += w * y * neg_log_cloglog(eta[i]).l;
        if (y < 1.0) sum += w * (1.0 - y) * exp(eta[i]);
    }
    return sum;
}

static double cloglog_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    (void) lik;
    (void) a;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], w = rows->weight[i];
        const double failure = w > 0.0 && y < 1.0 ? exp(eta[i]) : 0.0;
        eta[i] = w * (y * neg_log_cloglog(eta[i]).slope + (1.0 - y) * failure);
    }
    return 0.0;
}

static elvi_expectation cloglog_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                       double eta, double s)
{
    elvi_expectation e = { 0.0, 0.0, 0.0 };
    (void) lik;
    (void) a;
    if (y > 0.0) add_expectation(&e, y, 1.0, expect_neg_log_cloglog(rule->level, eta, s));
    if (y < 1.0) add_expectation(&e, 1.0 - y, 1.0, elvi_expect_exponential(rule, eta, s));
    return e;
}

static int has_failures(double y)
{
    return y < 1.0;
}

/* ---- cauchit: -y log F(t) - (1 - y) log F(-t), F(t) = 1/2 + atan(t) / pi, which is not convex in its tails ------------ */

static inline elvi_piece neg_log_pcauchy(double t)
{
    const double angle = atan2(1.0, -t); /* pi F(t), without cancellation */
    const elvi_piece out = { t > 0.0 ? -log1p(-atan2(1.0, t) / M_PI) : -log(angle / M_PI), -1.0 / ((1.0 + t * t) * angle) };
    return out;
}

static inline double neg_log_pcauchy_curve(double t, elvi_piece at)
{
    return -at.slope * (2.0 * t / (1.0 + t * t) - at.slope);
}

ELVI_EXPECTATION_OF(expect_neg_log_pcauchy, neg_log_pcauchy, neg_log_pcauchy_curve)

static elvi_expectation cauchit_expect(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, double y,
                                       double eta, double s)
{
    elvi_expectation e = { 0.0, 0.0, 0.0 };
    (void) lik;
    (void) a;
    if (y > 0.0) add_expectation(&e, y, 1.0, expect_neg_log_pcauchy(rule->level, eta, s));
    if (y < 1.0) add_expectation(&e, 1.0 - y, -1.0, expect_neg_log_pcauchy(rule->level, -eta, s));
    return e;
}

/* at a point no rule is needed */
static const elvi_quadrature no_rule = { .limit = HUGE_VAL };

static double cauchit_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * cauchit_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0).value;
    return sum;
}

static double cauchit_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, double *eta)
{
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        eta[i] = w > 0.0 ? w * cauchit_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0).slope : 0.0;
    }
    return 0.0;
}

/* ---- the records ------------------------------------------------------------------- */

const elvi_family elvi_binomial_families[] = {
    {
        .name = "logit",
        .convex = 1,
        .quadratic = 0,
        .cost = 40.0,
        .loss = logit_loss,
        .slope = logit_slope,
        .expect = logit_expect,
        .expect_many = elvi_logit_expect_rows,
        .exponential = elvi_never,
    },
    {
        .name = "probit",
        .convex = 1,
        .quadratic = 0,
        .cost = 600.0,
        .loss = probit_loss,
        .slope = probit_slope,
        .expect = probit_expect,
        .exponential = elvi_never,
    },
    {
        .name = "cloglog",
        .convex = 1,
        .quadratic = 0,
        .cost = 600.0,
        .loss = cloglog_loss,
        .slope = cloglog_slope,
        .expect = cloglog_expect,
        .exponential = has_failures,
    },
    {
        .name = "cauchit",
        .convex = 0,
        .quadratic = 0,
        .cost = 600.0,
        .loss = cauchit_loss,
        .slope = cauchit_slope,
        .expect = cauchit_expect,
        .exponential = elvi_never,
    },
    { .name = NULL }
};
