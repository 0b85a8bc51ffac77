/* What a family is: its loss l(eta; y) and derivatives, and their expectations along a line. The families are in
 * likelihood_<group>.c, one record each; here is what they share. Rows, coefficients and priors are unknown here.
 *
 * A dispersion enters as a = log sigma or log phi. l has all terms in which eta or a occurs, but for those of a and y
 * alone that `dispersion_terms` sums over distinct responses. */
#include "expectation.h"
#include "likelihood.h"
#include <math.h>
#include <string.h>

static const elvi_family *const groups[] = {
    elvi_binomial_families,
    elvi_count_families,
    elvi_gaussian_families,
    elvi_positive_families,
    elvi_beta_families,
    elvi_ordinal_families,
    elvi_step_families,
    elvi_interval_families,
};

const elvi_family *elvi_family_named(const char *name)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const elvi_family *family = groups[i]; family->name; family++)
            if (strcmp(family->name, name) == 0) return family;
    return NULL;
}

int elvi_family_is_whole(const elvi_family *family, int with_hyper_slopes)
{
    return family->cost > 0.0 && family->loss && family->slope && family->expect && family->exponential &&
           (family->add_hyper_slopes || !with_hyper_slopes);
}

elvi_dispersion elvi_dispersion_at(double log)
{
    const elvi_dispersion out = { log, exp(log), exp(-log), 0, NULL };
    return out;
}

elvi_dispersion elvi_dispersion_of(int count, const double *hyper)
{
    const double first = count ? hyper[0] : 1.0;
    const elvi_dispersion out = { log(first), first, 1.0 / first, count, hyper };
    return out;
}

const elvi_dispersion elvi_no_dispersion = { 0.0, 1.0, 1.0, 0, NULL };

/* ---- expectations -------------------------------------------------------------------- */

static inline elvi_piece softplus(double t)
{
    const double e = exp(-fabs(t)), p = 1.0 / (1.0 + e);
    const elvi_piece out = { (t > 0.0 ? t : 0.0) + log1p(e), t > 0.0 ? p : e * p };
    return out;
}

static inline double softplus_curve(double t, elvi_piece at)
{
    (void) t;
    return at.slope * (1.0 - at.slope);
}

ELVI_EXPECTATION_OF(integrate_softplus, softplus, softplus_curve)

elvi_expectation elvi_expect_softplus(const elvi_quadrature_level *level, double eta, double s)
{
    return integrate_softplus(level, eta, s);
}

static inline elvi_piece exponential(double t)
{
    const double e = exp(t);
    const elvi_piece out = { e, e };
    return out;
}

static inline double exponential_curve(double t, elvi_piece at)
{
    (void) t;
    return at.l;
}

ELVI_EXPECTATION_OF(integrate_exponential, exponential, exponential_curve)

elvi_expectation elvi_expect_exponential(const elvi_quadrature *rule, double eta, double s)
{
    return rule->mgf ? rule->mgf(rule->mgf_rate, eta, s) : integrate_exponential(rule->level, eta, s);
}

elvi_status elvi_expect_rows(const elvi_likelihood *lik, const elvi_quadrature *rule, const elvi_dispersion *a,
                             const elvi_lines *rows, elvi_expected *out)
{
    const elvi_family *family = lik->family;
    if (family->expect_many && rows->n > 1) return family->expect_many(a, rule, rows, out);
    out->sum = out->widest = 0.0;
    for (int i = 0; i < rows->n; i++) {
        const double y = rows->y[i], w = rows->weight[i], s = rows->s[i];
        elvi_expectation e = { 0.0, 0.0, 0.0 };
        if (w > 0.0) {
            if (family->exponential(y) && !(s < rule->limit)) return ELVI_NO_EXPECTATION;
            e = family->expect(lik, a, rule, y, rows->eta[i], s);
            if (s > out->widest) out->widest = s;
        }
        out->sum += w * e.value;
        out->slope[i] = w * e.slope;
        out->curve[i] = w * (family->convex ? fmax(e.curve, 0.0) : e.curve); /* rounding aside */
    }
    return ELVI_OK;
}
