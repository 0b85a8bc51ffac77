/* Expectations of many rows of a logistic regression at once, in vectors. Given phi, a negative
 * binomial is one too. */
#include "family.h"
#include <math.h>

/* below this spread, c_i is l''(eta) up to s^2, and better than a difference */
static const double tiny_spread = 1e-5;

/* l'' of the logistic loss */
static double point_curve(double t)
{
    const double e = exp(-fabs(t)), p = 1.0 / (1.0 + e);
    return e * p * p;
}

/* Rows of a logistic regression in vectors: runs of rows whose spreads take the same level. */
enum { RUN = 128 };

static void expect_run(const elvi_quadrature_level *level, int n, const int *which, const elvi_lines *rows,
                       elvi_expected *out)
{
    double t[RUN], spread[RUN], value[RUN], first[RUN], turn[RUN];
    for (int k = 0; k < n; k++) {
        t[k] = rows->eta[which[k]];
        spread[k] = rows->s[which[k]];
    }
    elvi_logit_integrals(n, t, spread, level, &(elvi_logit_expected){ value, first, turn });
    for (int k = 0; k < n; k++) {
        const int i = which[k];
        const double bend = spread[k] > tiny_spread ? turn[k] / spread[k] : point_curve(t[k]), w = rows->weight[i];
        out->sum += w * (value[k] - rows->y[i] * t[k]);
        out->slope[i] = w * (first[k] - rows->y[i]);
        out->curve[i] = w * fmax(bend, 0.0);
    }
}

/* levels of the rule, and one for rows without a spread */
enum {
    POINTS = ELVI_QUADRATURE_LEVELS,
    KINDS
};

static const elvi_quadrature_level *level_of(const elvi_quadrature *rule, int level)
{
    static const double z = 0.0, half = 0.5;
    static const elvi_quadrature_level point = { 1, &z, &half, 0.0 };
    return level == POINTS ? &point : &rule->level[level];
}

static void expect_logit(const elvi_quadrature *rule, const elvi_lines *rows, elvi_expected *out)
{
    int waiting[KINDS][RUN], count[KINDS] = { 0 };
    for (int i = 0; i < rows->n; i++) {
        int level = 0;
        if (!(rows->weight[i] > 0.0)) {
            out->slope[i] = out->curve[i] = 0.0;
            continue;
        }
        if (rows->s[i] > 0.0)
            while (rule->level[level].limit < rows->s[i]) level++;
        else
            level = POINTS;
        waiting[level][count[level]++] = i;
        if (count[level] == RUN) {
            expect_run(level_of(rule, level), RUN, waiting[level], rows, out);
            count[level] = 0;
        }
    }
    for (int level = 0; level < KINDS; level++)
        if (count[level]) expect_run(level_of(rule, level), count[level], waiting[level], rows, out);
}

elvi_status elvi_logit_expect_rows(const elvi_dispersion *a, const elvi_quadrature *rule, const elvi_lines *rows,
                                   elvi_expected *out)
{
    (void) a;
    out->sum = out->widest = 0.0;
    for (int i = 0; i < rows->n; i++)
        if (rows->weight[i] > 0.0 && rows->s[i] > out->widest) out->widest = rows->s[i];
    if (!isfinite(out->widest)) return ELVI_NO_EXPECTATION;
    expect_logit(rule, rows, out);
    return isfinite(out->sum) ? ELVI_OK : ELVI_NO_EXPECTATION;
}
