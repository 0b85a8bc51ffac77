/* Times of which some are only known to be in an interval: a row's y is the number of its interval, from 1 on. The first of the
 * hyperparameters is that of the distribution, shape or sigma; the ends of the intervals, which are known, follow it in pairs. A
 * time that is seen has equal ends, one that is only known to be earlier begins at 0, one that is only known to be later ends at
 * infinity.
 * Both losses are convex in eta, and nothing is left out of them. */
#include "expectation.h"
#include "likelihood.h"
#include <Rmath.h>

typedef struct {
    double from, to;
} interval;

static inline interval interval_of(const elvi_dispersion *a, double y)
{
    const double *ends = a->hyper + 1 + 2 * ((int) y - 1);
    const interval out = { ends[0], ends[1] };
    return out;
}

/* E l of a row, and that of its derivative in the logarithm of the first hyperparameter */
typedef struct {
    elvi_expectation e;
    double by_dispersion;
} interval_expectation;

/* ---- weibull: e^u - log(1 - exp(-e^v)), u of the beginning, e^v = e^u of the end less that of the beginning ---- */

/* adds a function of u + shift, u = k (log t + c - eta): `turn` is d(u + shift)/da - u */
static void add_hazard(const elvi_dispersion *a, double u, double turn, double s, elvi_expectation part, interval_expectation *out)
{
    const double k = a->natural;
    out->e.value += part.value;
    out->e.slope -= k * part.slope;
    out->e.curve += k * k * part.curve;
    out->by_dispersion += (u + turn) * part.slope + k * k * s * s * part.curve;
}

static interval_expectation expect_weibull_interval(const elvi_dispersion *a, const elvi_quadrature *rule, double y, double eta,
                                                    double s)
{
    const interval at = interval_of(a, y);
    const double k = a->natural, centre = elvi_weibull_centre(a), turn = elvi_weibull_turn(a);
    const double u = k * (log(at.from > 0.0 ? at.from : at.to) + centre - eta);
    interval_expectation out = { { 0.0, 0.0, 0.0 }, 0.0 };
    if (!(k * s < rule->limit)) {
        out.e.value = HUGE_VAL; /* it does not exist */
        return out;
    }
    if (at.from > 0.0) add_hazard(a, u, turn, s, elvi_expect_exponential(rule, u, k * s), &out);
    if (at.from == at.to) {
        const elvi_expectation seen = { -u, -1.0, 0.0 };
        add_hazard(a, u, turn, s, seen, &out);
        out.e.value += log(at.from) - a->log;
        out.by_dispersion -= 1.0;
    } else if (at.from == 0.0)
        add_hazard(a, u, turn, s, elvi_expect_cloglog_hit(rule->level, u, k * s), &out);
    else if (at.to < HUGE_VAL) {
        const double d = k * log(at.to / at.from), shift = d + log(-expm1(-d));
        add_hazard(a, u, turn - d / expm1(-d), s, elvi_expect_cloglog_hit(rule->level, u + shift, k * s), &out);
    }
    return out;
}

/* ---- lognormal: -log(Phi(u of the end) - Phi(u of the beginning)), u = log t / sigma + sigma / 2 - x, x = eta / sigma ---- */

/* log t / sigma + sigma / 2, and its derivative in log sigma */
static inline double normal_end(const elvi_dispersion *a, double t)
{
    return log(t) * a->inverse + 0.5 * a->natural;
}

static inline double normal_end_turn(const elvi_dispersion *a, double t)
{
    return 0.5 * a->natural - log(t) * a->inverse;
}

static interval_expectation expect_lognormal_interval(const elvi_dispersion *a, const elvi_quadrature *rule, double y, double eta,
                                                      double s)
{
    const interval at = interval_of(a, y);
    const double x = eta * a->inverse, width = s * a->inverse;
    interval_expectation out = { { 0.0, 0.0, 0.0 }, 0.0 };
    if (at.from == at.to) {
        const double u = normal_end(a, at.from) - x;
        const elvi_expectation seen = { 0.5 * (u * u + width * width) + a->log + log(at.from) + M_LN_SQRT_2PI, -u, 1.0 };
        out.e = seen;
        out.by_dispersion = 1.0 + u * normal_end_turn(a, at.from);
    } else {
        const double lower = at.from > 0.0 ? normal_end(a, at.from) : -HUGE_VAL;
        const double upper = at.to < HUGE_VAL ? normal_end(a, at.to) : HUGE_VAL;
        double by_lower;
        out.e = elvi_expect_normal_interval(rule->level, lower, upper, x, width, &by_lower);
        if (at.from > 0.0) out.by_dispersion += by_lower * normal_end_turn(a, at.from);
        if (at.to < HUGE_VAL) out.by_dispersion -= (out.e.slope + by_lower) * normal_end_turn(a, at.to);
    }
    out.by_dispersion -= x * out.e.slope + width * width * out.e.curve;
    out.e.slope *= a->inverse;
    out.e.curve *= a->inverse * a->inverse;
    return out;
}

/* ---- what both share --------------------------------------------------------------------------------------------- */

/* at a point no rule is needed */
static const elvi_quadrature no_rule = { .limit = HUGE_VAL };

#define INTERVAL_FAMILY(law, at)                                                                                               \
    static double law##_interval_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,             \
                                      const double *eta)                                                                       \
    {                                                                                                                          \
        double sum = 0.0;                                                                                                      \
        (void) lik;                                                                                                            \
        for (int i = 0; i < rows->rows; i++)                                                                                   \
            if (rows->weight[i] > 0.0) sum += rows->weight[i] * at(a, &no_rule, rows->y[i], eta[i], 0.0).e.value;              \
        return sum;                                                                                                            \
    }                                                                                                                          \
    static double law##_interval_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,            \
                                       double *eta)                                                                            \
    {                                                                                                                          \
        double by_dispersion = 0.0;                                                                                            \
        (void) lik;                                                                                                            \
        for (int i = 0; i < rows->rows; i++) {                                                                                 \
            const double w = rows->weight[i];                                                                                  \
            const interval_expectation here = at(a, &no_rule, rows->y[i], eta[i], 0.0);                                        \
            eta[i] = w > 0.0 ? w * here.e.slope : 0.0;                                                                         \
            if (w > 0.0) by_dispersion += w * here.by_dispersion;                                                              \
        }                                                                                                                      \
        return by_dispersion;                                                                                                  \
    }                                                                                                                          \
    static elvi_expectation law##_interval_expect(const elvi_likelihood *lik, const elvi_dispersion *a,                        \
                                                  const elvi_quadrature *rule, double y, double eta, double s)                 \
    {                                                                                                                          \
        (void) lik;                                                                                                            \
        return at(a, rule, y, eta, s).e;                                                                                       \
    }                                                                                                                          \
    static void law##_interval_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule, \
                                            const elvi_expected_row *row, double *out)                                         \
    {                                                                                                                          \
        (void) lik;                                                                                                            \
        out[0] += row->weight * at(a, rule, row->y, row->eta, row->s).by_dispersion;                                           \
    }

INTERVAL_FAMILY(weibull, expect_weibull_interval)
INTERVAL_FAMILY(lognormal, expect_lognormal_interval)

const elvi_family elvi_interval_families[] = {
    {
        .name = "interval_weibull",
        .convex = 1,
        .cost = 600.0,
        .loss = weibull_interval_loss,
        .slope = weibull_interval_slope,
        .expect = weibull_interval_expect,
        .exponential = elvi_always,
        .add_hyper_slopes = weibull_interval_hyper_slopes,
    },
    {
        .name = "interval_lognormal",
        .convex = 1,
        .cost = 1000.0,
        .loss = lognormal_interval_loss,
        .slope = lognormal_interval_slope,
        .expect = lognormal_interval_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = lognormal_interval_hyper_slopes,
    },
    { .name = NULL }
};
