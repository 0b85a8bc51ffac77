/* Ordered classes 1, ..., K that a response reaches step by step. At class j it goes on or stops, given t_j = eta - tau_j, with
 * tau_1 = 0
 * and tau_2, ..., tau_(K - 1) any numbers: the logarithms of the K - 2 hyperparameters. Each of the losses is convex in eta. */
#include "expectation.h"
#include "likelihood.h"
#include <Rmath.h>

static inline double threshold(const elvi_dispersion *a, int j) { return j < 2 ? 0.0 : log(a->hyper[j - 2]); }

/* E of -log of the probability to stop, or to go on, at t = eta - tau_j, with derivatives in t */
typedef elvi_expectation (*step_function)(const elvi_quadrature *rule, int stops, double t, double s);

/* e with t times -1 */
static inline elvi_expectation mirrored(elvi_expectation e)
{
    e.slope = -e.slope;
    return e;
}

static elvi_expectation logit_step(const elvi_quadrature *rule, int stops, double t, double s)
{
    return stops ? elvi_expect_softplus(rule->level, t, s) : mirrored(elvi_expect_softplus(rule->level, -t, s));
}

static elvi_expectation probit_step(const elvi_quadrature *rule, int stops, double t, double s)
{
    return stops ? mirrored(elvi_expect_probit_hit(rule->level, -t, s)) : elvi_expect_probit_hit(rule->level, t, s);
}

/* stops with probability 1 - exp(-e^-t) */
static elvi_expectation cloglog_stop(const elvi_quadrature *rule, int stops, double t, double s)
{
    return mirrored(stops ? elvi_expect_cloglog_hit(rule->level, -t, s) : elvi_expect_exponential(rule, -t, s));
}

/* goes on with probability 1 - exp(-e^t) */
static elvi_expectation cloglog_go(const elvi_quadrature *rule, int stops, double t, double s)
{
    return stops ? elvi_expect_exponential(rule, t, s) : elvi_expect_cloglog_hit(rule->level, t, s);
}

/* The sum over the steps up to class y; where out is not NULL, adds the weight times derivatives in tau to it. */
static elvi_expectation expect_steps(step_function step, const elvi_dispersion *a, const elvi_quadrature *rule,
                                     const elvi_expected_row *row, double *out)
{
    const int k = (int) row->y, last = a->count + 1;
    elvi_expectation e = { 0.0, 0.0, 0.0 };
    for (int j = 1; j <= k && j <= last; j++) {
        const elvi_expectation part = step(rule, j == k, row->eta - threshold(a, j), row->s);
        add_expectation(&e, 1.0, 1.0, part);
        if (out && j > 1) out[j - 2] -= row->weight * part.slope;
    }
    return e;
}

/* ---- adjacent classes: log sum_k e^(a_k) - a_y, a_k = (k - 1) eta - tau_2 - ... - tau_(k - 1) ---- */

/* Of v = (K - 1) eta, so that rules see how sharply the sum bends. */
typedef struct {
    const elvi_dispersion *a;
    int y, above; /* the class; the step whose mean is requested */
} adjacent_row;

/* log of the sum of e^(a_k), mean and variance of k - 1, and the probability of a class above `above` */
typedef struct {
    double level, mean, variance, beyond;
} adjacent_law;

static adjacent_law adjacent_at(const adjacent_row *g, double eta)
{
    const int classes = g->a->count + 2;
    double most = 0.0, at = 0.0, sum = 0.0, first = 0.0, second = 0.0, beyond = 0.0;
    for (int k = 1; k < classes; k++) {
        at += eta - threshold(g->a, k);
        if (at > most) most = at;
    }
    at = 0.0;
    for (int k = 0; k < classes; k++) {
        if (k) at += eta - threshold(g->a, k);
        const double p = exp(at - most);
        sum += p;
        first += k * p;
        if (k >= g->above) beyond += p;
    }
    first /= sum;
    at = 0.0;
    for (int k = 0; k < classes; k++) {
        if (k) at += eta - threshold(g->a, k);
        second += (k - first) * (k - first) * exp(at - most);
    }
    const adjacent_law out = { most + log(sum), first, second / sum, beyond / sum };
    return out;
}

static inline elvi_piece adjacent_piece(const adjacent_row *g, double v)
{
    const double by = 1.0 / (g->a->count + 1), eta = by * v;
    const adjacent_law at = adjacent_at(g, eta);
    elvi_piece out = { at.level, by * (at.mean - (g->y - 1)) };
    for (int j = 1; j < g->y; j++) out.l -= eta - threshold(g->a, j);
    return out;
}

static inline double adjacent_second(const adjacent_row *g, double v, elvi_piece piece)
{
    const double by = 1.0 / (g->a->count + 1);
    (void) piece;
    return by * by * adjacent_at(g, by * v).variance;
}

static inline double adjacent_beyond(const adjacent_row *g, double v)
{
    return adjacent_at(g, v / (g->a->count + 1)).beyond;
}

ELVI_EXPECTATION_GIVEN(expect_adjacent_scaled, adjacent_row, adjacent_piece, adjacent_second)
ELVI_MEAN_GIVEN(mean_adjacent_beyond, adjacent_row, adjacent_beyond)

static elvi_expectation expect_adjacent(step_function step, const elvi_dispersion *a, const elvi_quadrature *rule,
                                        const elvi_expected_row *row, double *out)
{
    const double by = a->count + 1;
    adjacent_row given = { a, (int) row->y, 0 };
    elvi_expectation e = expect_adjacent_scaled(rule->level, &given, by * row->eta, by * row->s);
    (void) step;
    e.slope *= by;
    e.curve *= by * by;
    for (int j = 2; out && j < a->count + 2; j++) {
        given.above = j;
        out[j - 2] += row->weight * ((given.y > j) - mean_adjacent_beyond(rule->level, &given, by * row->eta, by * row->s));
    }
    return e;
}

/* ---- what they share ---------------------------------------------------------------------------- */

/* At a point no rule is needed. */
static const elvi_quadrature no_rule = { .limit = HUGE_VAL };

#define STEP_FAMILY(name, sum, step)                                                                        \
    static elvi_expectation name##_expect(const elvi_likelihood *lik, const elvi_dispersion *a,             \
                                          const elvi_quadrature *rule, double y, double eta, double s)      \
    {                                                                                                       \
        const elvi_expected_row row = { .y = y, .weight = 1.0, .eta = eta, .s = s };                        \
        (void) lik;                                                                                         \
        return sum(step, a, rule, &row, NULL);                                                              \
    }                                                                                                       \
    static double name##_loss(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,  \
                              const double *eta)                                                            \
    {                                                                                                       \
        double all = 0.0;                                                                                   \
        for (int i = 0; i < rows->rows; i++)                                                                \
            if (rows->weight[i] > 0.0)                                                                      \
                all += rows->weight[i] * name##_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0).value;    \
        return all;                                                                                         \
    }                                                                                                       \
    static double name##_slope(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows, \
                               double *eta)                                                                 \
    {                                                                                                       \
        for (int i = 0; i < rows->rows; i++) {                                                              \
            const double w = rows->weight[i];                                                               \
            eta[i] = w > 0.0 ? w * name##_expect(lik, a, &no_rule, rows->y[i], eta[i], 0.0).slope : 0.0;    \
        }                                                                                                   \
        return 0.0;                                                                                         \
    }                                                                                                       \
    static void name##_hyper_slopes(const elvi_likelihood *lik, const elvi_dispersion *a,                   \
                                    const elvi_quadrature *rule, const elvi_expected_row *row, double *out) \
    {                                                                                                       \
        (void) lik;                                                                                         \
        sum(step, a, rule, row, out);                                                                       \
    }

STEP_FAMILY(sratio_logit, expect_steps, logit_step)
STEP_FAMILY(sratio_probit, expect_steps, probit_step)
STEP_FAMILY(sratio_cloglog, expect_steps, cloglog_stop)
STEP_FAMILY(cratio_cloglog, expect_steps, cloglog_go)
STEP_FAMILY(acat_logit, expect_adjacent, NULL)

static int beyond_first(double y)
{
    return y > 1.0;
}

/* ---- the records ------------------------------------------------------------------- */

#define STEP_RECORD(title, functions, price, has_exponential)                                                      \
    {                                                                                                              \
        .name = title, .convex = 1, .cost = price, .loss = functions##_loss, .slope = functions##_slope,           \
        .expect = functions##_expect, .exponential = has_exponential, .add_hyper_slopes = functions##_hyper_slopes \
    }

/* With a symmetric link, to go on at t is to stop at -t. */
const elvi_family elvi_step_families[] = {
    STEP_RECORD("sratio_logit", sratio_logit, 150.0, elvi_never),
    STEP_RECORD("sratio_probit", sratio_probit, 1000.0, elvi_never),
    STEP_RECORD("sratio_cloglog", sratio_cloglog, 600.0, beyond_first),
    STEP_RECORD("cratio_logit", sratio_logit, 150.0, elvi_never),
    STEP_RECORD("cratio_probit", sratio_probit, 1000.0, elvi_never),
    STEP_RECORD("cratio_cloglog", cratio_cloglog, 600.0, elvi_always),
    STEP_RECORD("acat_logit", acat_logit, 600.0, elvi_never),
    { .name = NULL },
};
