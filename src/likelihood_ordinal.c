/* Ordered classes 1, ..., K: P(y <= k) = G(delta_k - eta), delta_1 = 0 and distances delta_(k + 1) - delta_k > 0, the K - 2
 * hyperparameters. Each of the losses is convex in eta. */
#include "expectation.h"
#include "likelihood.h"
#include <Rmath.h>

/* where the class of a row begins and ends; the first has no beginning, the last no end */
typedef struct {
    double lower, upper;
    int first, last;
} class_bounds;

static inline class_bounds bounds_of(const elvi_dispersion *a, double y)
{
    const int k = (int) y;
    class_bounds out = { 0.0, 0.0, k <= 1, k > a->count + 1 };
    for (int j = 0; j + 1 < k && j < a->count; j++) {
        out.upper += a->hyper[j];
        if (j + 2 < k) out.lower += a->hyper[j];
    }
    return out;
}

/* adds what the derivatives in lower and upper say of the logarithms of the distances */
static void add_distance_slopes(const elvi_dispersion *a, double y, double by_lower, double by_upper, double *out)
{
    const int k = (int) y;
    for (int j = 0; j < a->count; j++) {
        if (j + 1 < k && k <= a->count + 1) out[j] += a->hyper[j] * by_upper;
        if (j + 2 < k) out[j] += a->hyper[j] * by_lower;
    }
}

/* what a link has: E l of a row, and its derivatives in lower and upper */
typedef struct {
    elvi_expectation e;
    double by_lower, by_upper;
} class_expectation;

/* ---- logit: log(1 + e^(lower - t)) + log(1 + e^(t - upper)) - log(1 - e^(lower - upper)) ---- */

static class_expectation expect_logit_class(const elvi_dispersion *a, const elvi_quadrature *rule, double y, double eta, double s)
{
    const class_bounds at = bounds_of(a, y);
    class_expectation out = { { 0.0, 0.0, 0.0 }, 0.0, 0.0 };
    if (!at.first) {
        const elvi_expectation part = elvi_expect_softplus(rule->level, at.lower - eta, s);
        add_expectation(&out.e, 1.0, -1.0, part);
        out.by_lower = part.slope;
    }
    if (!at.last) {
        const elvi_expectation part = elvi_expect_softplus(rule->level, eta - at.upper, s);
        add_expectation(&out.e, 1.0, 1.0, part);
        out.by_upper = -part.slope;
    }
    if (!at.first && !at.last) {
        const double d = at.upper - at.lower, r = 1.0 / expm1(d);
        out.e.value -= log(-expm1(-d));
        out.by_lower += r;
        out.by_upper -= r;
    }
    return out;
}

/* ---- cloglog: e^(lower - t) - log(1 - exp(-e^(m - t))), e^m = e^upper - e^lower ---------------- */

static class_expectation expect_cloglog_class(const elvi_dispersion *a, const elvi_quadrature *rule, double y, double eta, double s)
{
    const class_bounds at = bounds_of(a, y);
    class_expectation out = { { 0.0, 0.0, 0.0 }, 0.0, 0.0 };
    if (!at.first) {
        const elvi_expectation part = elvi_expect_exponential(rule, at.lower - eta, s);
        add_expectation(&out.e, 1.0, -1.0, part);
        out.by_lower = part.slope;
    }
    if (!at.last) {
        const double d = at.upper - at.lower, m = at.first ? at.upper : at.upper + log(-expm1(-d));
        const elvi_expectation part = elvi_expect_cloglog_hit(rule->level, m - eta, s);
        add_expectation(&out.e, 1.0, -1.0, part);
        out.by_upper = part.slope * (at.first ? 1.0 : -1.0 / expm1(-d));
        if (!at.first) out.by_lower -= part.slope / expm1(d);
    }
    return out;
}

/* ---- probit: -log(Phi(upper - t) - Phi(lower - t)) ---------------------------------------------- */

/* minus the logarithm of the probability, and the densities at either end over it */
typedef struct {
    double loss, lower, upper;
} normal_class;

static inline normal_class normal_class_of(const class_bounds *at, double t)
{
    double low = at->first ? -HUGE_VAL : at->lower - t, high = at->last ? HUGE_VAL : at->upper - t;
    const int mirrored = low > 0.0; /* in the left tail logarithms keep their digits */
    if (mirrored) {
        const double swap = -low;
        low = -high;
        high = swap;
    }
    const double to = 0.5 * erfc(-M_SQRT1_2 * high), p = to - 0.5 * erfc(-M_SQRT1_2 * low);
    if (p > 0.01 * to && to > 1e-200) { /* the difference has its digits */
        const double by = M_1_SQRT_2PI / p, at_low = by * exp(-0.5 * low * low), at_high = by * exp(-0.5 * high * high);
        const normal_class out = { -log(p), mirrored ? at_high : at_low, mirrored ? at_low : at_high };
        return out;
    }
    const double log_high = pnorm(high, 0.0, 1.0, 1, 1), log_low = pnorm(low, 0.0, 1.0, 1, 1), off = log_low - log_high;
    const double log_p = log_high + (off > -M_LN2 ? log(-expm1(off)) : log1p(-exp(off)));
    const double at_low = isfinite(low) ? exp(-0.5 * low * low - M_LN_SQRT_2PI - log_p) : 0.0;
    const double at_high = isfinite(high) ? exp(-0.5 * high * high - M_LN_SQRT_2PI - log_p) : 0.0;
    const normal_class out = { -log_p, mirrored ? at_high : at_low, mirrored ? at_low : at_high };
    return out;
}

static inline elvi_piece normal_class_piece(const class_bounds *at, double t)
{
    const normal_class here = normal_class_of(at, t);
    const elvi_piece out = { here.loss, here.upper - here.lower };
    return out;
}

static inline double normal_class_curve(const class_bounds *at, double t, elvi_piece piece)
{
    const normal_class here = normal_class_of(at, t);
    const double low = at->first ? 0.0 : (at->lower - t) * here.lower, high = at->last ? 0.0 : (at->upper - t) * here.upper;
    return piece.slope * piece.slope + high - low;
}

static inline double normal_class_lower(const class_bounds *at, double t)
{
    return normal_class_of(at, t).lower;
}

ELVI_EXPECTATION_GIVEN(expect_normal_class, class_bounds, normal_class_piece, normal_class_curve)
ELVI_MEAN_GIVEN(mean_normal_class_lower, class_bounds, normal_class_lower)

/* at a point: a loss and its slope, which checks by draws need many times */
static inline elvi_piece probit_class_at(const elvi_dispersion *a, double y, double eta)
{
    const class_bounds at = bounds_of(a, y);
    return normal_class_piece(&at, eta);
}

static class_expectation expect_probit_class(const elvi_dispersion *a, const elvi_quadrature *rule, double y, double eta, double s)
{
    const class_bounds at = bounds_of(a, y);
    class_expectation out = { expect_normal_class(rule->level, &at, eta, s), 0.0, 0.0 };
    out.by_lower = at.first ? 0.0 : mean_normal_class_lower(rule->level, &at, eta, s);
    out.by_upper = -(out.e.slope + out.by_lower);
    return out;
}

elvi_expectation elvi_expect_normal_interval(const elvi_quadrature_level *level, double lower, double upper, double eta, double s,
                                             double *by_lower)
{
    const class_bounds at = { lower, upper, !(lower > -HUGE_VAL), !(upper < HUGE_VAL) };
    *by_lower = at.first ? 0.0 : mean_normal_class_lower(level, &at, eta, s);
    return expect_normal_class(level, &at, eta, s);
}

/* At a point no rule is needed. */
static const elvi_quadrature no_rule = { .limit = HUGE_VAL };

static inline elvi_piece logit_class_at(const elvi_dispersion *a, double y, double eta)
{
    const elvi_expectation e = expect_logit_class(a, &no_rule, y, eta, 0.0).e;
    const elvi_piece out = { e.value, e.slope };
    return out;
}

static inline elvi_piece cloglog_class_at(const elvi_dispersion *a, double y, double eta)
{
    const elvi_expectation e = expect_cloglog_class(a, &no_rule, y, eta, 0.0).e;
    const elvi_piece out = { e.value, e.slope };
    return out;
}

/* ---- what the links share ------------------------------------------------------------------------ */

#define ORDINAL_FAMILY(link)                                                                                      \
    static double link##_class_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,  \
                                    const double *eta)                                                            \
    {                                                                                                             \
        double sum = 0.0;                                                                                         \
        (void) lik;                                                                                               \
        for (int i = 0; i < rows->rows; i++)                                                                      \
            if (rows->weight[i] > 0.0) sum += rows->weight[i] * link##_class_at(a, rows->y[i], eta[i]).l;         \
        return sum;                                                                                               \
    }                                                                                                             \
    static double link##_class_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, \
                                     double *eta)                                                                 \
    {                                                                                                             \
        (void) lik;                                                                                               \
        for (int i = 0; i < rows->rows; i++) {                                                                    \
            const double w = rows->weight[i];                                                                     \
            eta[i] = w > 0.0 ? w * link##_class_at(a, rows->y[i], eta[i]).slope : 0.0;                            \
        }                                                                                                         \
        return 0.0;                                                                                               \
    }                                                                                                             \
    static void link##_class_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a,                   \
                                          const elvi_quadrature *rule, const elvi_expected_row *row, double *out) \
    {                                                                                                             \
        const class_expectation e = expect_##link##_class(a, rule, row->y, row->eta, row->s);                     \
        (void) lik;                                                                                               \
        add_distance_slopes(a, row->y, row->weight *e.by_lower, row->weight *e.by_upper, out);                    \
    }

ORDINAL_FAMILY(logit)
ORDINAL_FAMILY(probit)
ORDINAL_FAMILY(cloglog)

static elvi_expectation logit_class_expect(const elvi_likelihood *lik, const elvi_dispersion *a,
                                           const elvi_quadrature *rule, double y, double eta, double s)
{
    (void) lik;
    return expect_logit_class(a, rule, y, eta, s).e;
}

static elvi_expectation cloglog_class_expect(const elvi_likelihood *lik, const elvi_dispersion *a,
                                             const elvi_quadrature *rule, double y, double eta, double s)
{
    (void) lik;
    return expect_cloglog_class(a, rule, y, eta, s).e;
}

/* without the derivatives in its bounds, which take as long */
static elvi_expectation probit_class_expect(const elvi_likelihood *lik, const elvi_dispersion *a,
                                            const elvi_quadrature *rule, double y, double eta, double s)
{
    const class_bounds at = bounds_of(a, y);
    (void) lik;
    return expect_normal_class(rule->level, &at, eta, s);
}

static int beyond_first(double y)
{
    return y > 1.0;
}

/* ---- the records ------------------------------------------------------------------- */

const elvi_family elvi_ordinal_families[] = {
    {
        .name = "cumulative_logit",
        .convex = 1,
        .cost = 100.0,
        .loss = logit_class_loss,
        .slope = logit_class_slope,
        .expect = logit_class_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = logit_class_hyper_slopes,
    },
    {
        .name = "cumulative_probit",
        .convex = 1,
        .cost = 1000.0,
        .loss = probit_class_loss,
        .slope = probit_class_slope,
        .expect = probit_class_expect,
        .exponential = elvi_never,
        .add_hyper_slopes = probit_class_hyper_slopes,
    },
    {
        .name = "cumulative_cloglog",
        .convex = 1,
        .cost = 600.0,
        .loss = cloglog_class_loss,
        .slope = cloglog_class_slope,
        .expect = cloglog_class_expect,
        .exponential = beyond_first,
        .add_hyper_slopes = cloglog_class_hyper_slopes,
    },
    { .name = NULL }
};
