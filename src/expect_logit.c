/* Expectations of many rows of a logistic regression at once, in vectors. Given phi, a negative
 * binomial is one too. */
#include "elvi.h"
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

static void expect_run(const elvi_quadrature_level *level, int n, const int *which, const double *y, const double *w,
                       const double *eta, const double *s, double *sum, double *slope, double *curve)
{
    double t[RUN], spread[RUN], value[RUN], first[RUN], turn[RUN];
    for (int k = 0; k < n; k++) {
        t[k] = eta[which[k]];
        spread[k] = s[which[k]];
    }
    elvi_logit_integrals(n, t, spread, level, value, first, turn);
    for (int k = 0; k < n; k++) {
        const int i = which[k];
        const double bend = spread[k] > tiny_spread ? turn[k] / spread[k] : point_curve(t[k]);
        *sum += w[i] * (value[k] - y[i] * t[k]);
        slope[i] = w[i] * (first[k] - y[i]);
        curve[i] = w[i] * fmax(bend, 0.0);
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

static void expect_logit(const elvi_quadrature *rule, int n, const double *y, const double *w, const double *eta,
                         const double *s, double *sum, double *slope, double *curve)
{
    int waiting[KINDS][RUN], count[KINDS] = { 0 };
    for (int i = 0; i < n; i++) {
        int level = 0;
        if (!(w[i] > 0.0)) {
            slope[i] = curve[i] = 0.0;
            continue;
        }
        if (s[i] > 0.0)
            while (rule->level[level].limit < s[i]) level++;
        else
            level = POINTS;
        waiting[level][count[level]++] = i;
        if (count[level] == RUN) {
            expect_run(level_of(rule, level), RUN, waiting[level], y, w, eta, s, sum, slope, curve);
            count[level] = 0;
        }
    }
    for (int level = 0; level < KINDS; level++)
        if (count[level])
            expect_run(level_of(rule, level), count[level], waiting[level], y, w, eta, s, sum, slope, curve);
}

elvi_status elvi_logit_expect_rows(const elvi_quadrature *rule, int n, const double *y, const double *w,
                                   const double *eta, const double *s, double *sum, double *slope,
                                   double *curve, double *widest)
{
    *sum = *widest = 0.0;
    for (int i = 0; i < n; i++)
        if (w[i] > 0.0 && s[i] > *widest) *widest = s[i];
    if (!isfinite(*widest)) return ELVI_NO_EXPECTATION;
    expect_logit(rule, n, y, w, eta, s, sum, slope, curve);
    return isfinite(*sum) ? ELVI_OK : ELVI_NO_EXPECTATION;
}
