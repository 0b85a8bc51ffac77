/* What a family is: its loss l(eta; y) and derivatives, and their expectations along a line. One
 * record each, at the end. Rows, coefficients and priors are unknown here.
 *
 * A dispersion enters as a = log sigma or log phi. l has all terms in which eta or a occurs, but for
 * those of a and y alone that `rest` sums over distinct responses. */
#include "quadrature.h"
#include <Rmath.h>
#include <string.h>

#define LIKELIHOOD const elvi_likelihood *lik, const elvi_dispersion *a
#define UNUSED  \
    (void) lik; \
    (void) a

elvi_dispersion elvi_dispersion_at(double log)
{
    const elvi_dispersion out = { log, exp(log), exp(-log) };
    return out;
}

const elvi_dispersion elvi_no_dispersion = { 0.0, 1.0, 1.0 };

static int never(double y)
{
    (void) y;
    return 0;
}

static int always(double y)
{
    (void) y;
    return 1;
}

/* by * part with eta in it times sign */
static void add(elvi_expectation *e, double by, double sign, elvi_expectation part)
{
    e->value += by * part.value;
    e->slope += by * sign * part.slope;
    e->curve += by * part.curve;
}

/* ---- logit: log(1 + e^t) - y t ------------------------------------------------- */

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

ELVI_EXPECTATION_OF(expect_softplus, softplus, softplus_curve)

static double logit_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    UNUSED;
    return elvi_logit_loss(rows->rows, rows->y, rows->weight, eta);
}

static double logit_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    UNUSED;
    elvi_logit_slope(rows->rows, rows->y, rows->weight, eta);
    return 0.0;
}

static elvi_expectation logit_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    elvi_expectation e = expect_softplus(rule->level, eta, s);
    UNUSED;
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

static inline elvi_piece miss(double t)
{
    const normal_tail at = tail_of(t);
    const elvi_piece out = { at.loss, -at.ratio };
    return out;
}

static inline double miss_curve(double t, elvi_piece at)
{
    const normal_tail tail = tail_of(t);
    (void) at;
    return tail.ratio * tail.excess;
}

ELVI_EXPECTATION_OF(expect_miss, miss, miss_curve)

static double probit_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    UNUSED;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], w = rows->weight[i];
        if (!(w > 0.0)) continue; /* 0 * log(0) must be 0 */
        if (y > 0.0) sum += w * y * tail_of(eta[i]).loss;
        if (y < 1.0) sum += w * (1.0 - y) * tail_of(-eta[i]).loss;
    }
    return sum;
}

static double probit_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    UNUSED;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], t = eta[i];
        double slope = 0.0;
        if (y > 0.0) slope -= y * elvi_mills(t);
        if (y < 1.0) slope += (1.0 - y) * elvi_mills(-t);
        eta[i] = rows->weight[i] * slope;
    }
    return 0.0;
}

static elvi_expectation probit_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    elvi_expectation e = { 0.0, 0.0, 0.0 };
    UNUSED;
    if (y > 0.0) add(&e, y, 1.0, expect_miss(rule->level, eta, s));
    if (y < 1.0) add(&e, 1.0 - y, -1.0, expect_miss(rule->level, -eta, s));
    return e;
}

/* ---- poisson: e^t - y t ---------------------------------------------------------- */

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

/* E exp(eta + s z_1), in closed form where the base has one */
static elvi_expectation expect_exponential(const elvi_quadrature *rule, double eta, double s)
{
    return rule->mgf ? rule->mgf(rule->mgf_rate, eta, s) : integrate_exponential(rule->level, eta, s);
}

static double poisson_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    UNUSED;
    return elvi_poisson_loss(rows->rows, rows->y, rows->weight, eta);
}

static double poisson_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    UNUSED;
    elvi_poisson_slope(rows->rows, rows->y, rows->weight, eta);
    return 0.0;
}

static elvi_expectation poisson_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    elvi_expectation e = expect_exponential(rule, eta, s);
    UNUSED;
    e.value -= y * eta;
    e.slope -= y;
    return e;
}

/* ---- cloglog: -y log(1 - exp(-e^t)) + (1 - y) e^t ----------------------------------- */

/* Below -37 the loss of a success is -t and its slope -1 to rounding, and e may underflow. */
static inline elvi_piece hit(double t)
{
    const double e = exp(t);
    elvi_piece out;
    out.slope = t < -37.0 ? -1.0 : (e < 700.0 ? -e / expm1(e) : 0.0);
    out.l = t < -37.0 ? -t : (e < M_LN2 ? -log(-expm1(-e)) : -log1p(-exp(-e)));
    return out;
}

/* r (e - 1 + r), r = e / (exp(e) - 1): a series where that cancels */
static inline double hit_curve(double t, elvi_piece at)
{
    const double e = exp(t);
    if (at.slope == 0.0) return 0.0;
    return -at.slope * (e < 0.01 ? e * (0.5 + e * (1.0 / 12.0 - e * e / 720.0)) : e - 1.0 - at.slope);
}

ELVI_EXPECTATION_OF(expect_hit, hit, hit_curve)

static double cloglog_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    UNUSED;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], w = rows->weight[i];
        if (!(w > 0.0)) continue; /* 0 * Inf must be 0 */
        if (y > 0.0) sum += w * y * hit(eta[i]).l;
        if (y < 1.0) sum += w * (1.0 - y) * exp(eta[i]);
    }
    return sum;
}

static double cloglog_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    UNUSED;
    for (int i = 0; i < rows->rows; i++) {
        const double y = rows->y[i], w = rows->weight[i];
        const double failure = w > 0.0 && y < 1.0 ? exp(eta[i]) : 0.0;
        eta[i] = w * (y * hit(eta[i]).slope + (1.0 - y) * failure);
    }
    return 0.0;
}

static elvi_expectation cloglog_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    elvi_expectation e = { 0.0, 0.0, 0.0 };
    UNUSED;
    if (y > 0.0) add(&e, y, 1.0, expect_hit(rule->level, eta, s));
    if (y < 1.0) add(&e, 1.0 - y, 1.0, expect_exponential(rule, eta, s));
    return e;
}

static int fails(double y)
{
    return y < 1.0;
}

/* ---- normal: a + (y - t)^2 / (2 sigma^2), a = log sigma ------------------------------ */

static double normal_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double u = (eta[i] - rows->y[i]) * a->inverse;
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (a->log + 0.5 * u * u);
    }
    return sum;
}

static double normal_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    double along = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i], u = (eta[i] - rows->y[i]) * a->inverse;
        eta[i] = w > 0.0 ? w * u * a->inverse : 0.0;
        if (w > 0.0) along += w * (1.0 - u * u);
    }
    return along;
}

static elvi_expectation normal_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    const double v = a->inverse * a->inverse;
    const elvi_expectation e = { a->log + 0.5 * v * ((eta - y) * (eta - y) + s * s), v * (eta - y), v };
    (void) lik;
    (void) rule;
    return e;
}

/* Weights are precisions, of which each observation has one, and not as many log sigma as its weight says: the
 * tally's weight makes up the difference. */
static double normal_rest(const elvi_dispersion *a, const elvi_tally *missing, double *slope)
{
    double sum = 0.0;
    for (int k = 0; k < missing->n; k++) sum += missing->weight[k];
    if (slope) *slope = sum;
    return sum * a->log;
}

/* ---- robust: a + (nu + 1) / 2 log(1 + (y - t)^2 / (nu sigma^2)), a = log sigma --------- */

static double robust_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    const double nu = lik->error_df;
    double sum = 0.0;
    for (int i = 0; i < rows->rows; i++) {
        const double u = (eta[i] - rows->y[i]) * a->inverse;
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (a->log + 0.5 * (nu + 1.0) * log1p(u * u / nu));
    }
    return sum;
}

static double robust_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    const double nu = lik->error_df;
    double along = 0.0;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i], u = (eta[i] - rows->y[i]) * a->inverse, q = u * u / nu;
        eta[i] = w > 0.0 ? w * (1.0 + 1.0 / nu) * u / (1.0 + q) * a->inverse : 0.0;
        if (w > 0.0) along += w * (1.0 - (nu + 1.0) * (1.0 - 1.0 / (1.0 + q))); /* also for q = Inf */
    }
    return along;
}

/* at a point only: it is not convex */
static elvi_expectation robust_at(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    const double nu = lik->error_df, u = (eta - y) * a->inverse, q = u * u / nu, by = 1.0 + 1.0 / nu;
    const elvi_expectation e = { a->log + 0.5 * (nu + 1.0) * log1p(q), by * u / (1.0 + q) * a->inverse,
                                 by * (1.0 - q) / ((1.0 + q) * (1.0 + q)) * a->inverse * a->inverse };
    (void) rule;
    (void) s;
    return e;
}

/* ---- negative binomial: phi log(1 + mu/phi) + y log(1 + phi/mu), mu = e^t, a = log phi --- */

/* log(1 + e^t), log(1 + e^-t) and their derivatives up to signs */
typedef struct {
    double up, down, p, q;
} two_sides;

static inline two_sides sides_of(double t)
{
    const double e = exp(-fabs(t)), tail = log1p(e), half = 1.0 / (1.0 + e);
    const two_sides right = { t + tail, tail, half, e * half }, left = { tail, tail - t, e * half, half };
    return t > 0.0 ? right : left;
}

static double negbin_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const two_sides at = sides_of(eta[i] - a->log);
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (a->natural * at.up + rows->y[i] * at.down);
    }
    return sum;
}

static double negbin_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    double along = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const two_sides at = sides_of(eta[i] - a->log);
        const double slope = a->natural * at.p - rows->y[i] * at.q;
        eta[i] = w > 0.0 ? w * slope : 0.0;
        if (w > 0.0) along += w * (a->natural * at.up - slope);
    }
    return along;
}

/* (y + phi) log(1 + e^u) - y u, u = t - log phi */
static elvi_expectation negbin_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    const double u = eta - a->log, by = y + a->natural;
    const elvi_expectation part = expect_softplus(rule->level, u, s);
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
static double negbin_rest(const elvi_dispersion *a, const elvi_tally *counts, double *slope)
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

/* ---- gamma: k (t + y e^-t), k the shape, e^t the mean, a = log k --------------------- */

static double gamma_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++)
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (eta[i] + rows->y[i] * exp(-eta[i]));
    return a->natural * sum;
}

static double gamma_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
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

static elvi_expectation gamma_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    elvi_expectation e = { a->natural * eta, a->natural, 0.0 };
    (void) lik;
    add(&e, a->natural * y, -1.0, expect_exponential(rule, -eta, s));
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
static double gamma_rest(const elvi_dispersion *a, const elvi_tally *logs, double *slope)
{
    double sum = 0.0;
    if (slope) *slope = 0.0;
    for (int i = 0; i < logs->n; i++) {
        sum += logs->weight[i] * (log_gamma_excess(a) - a->natural * logs->y[i]);
        if (slope) *slope += logs->weight[i] * a->natural * (digamma_excess(a) - 1.0 - logs->y[i]);
    }
    return sum;
}

/* ---- inverse gaussian: lambda (y e^-2t / 2 - e^-t), e^t the mean, a = log lambda -------- */

static double inverse_gaussian_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double e = exp(-eta[i]);
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * e * (0.5 * rows->y[i] * e - 1.0);
    }
    return a->natural * sum;
}

static double inverse_gaussian_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
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

/* at a point only: it is not convex where the mean is more than twice the response */
static elvi_expectation inverse_gaussian_at(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    const double e = exp(-eta), by = a->natural * e;
    const elvi_expectation at = { by * (0.5 * y * e - 1.0), by * (1.0 - y * e), by * (2.0 * y * e - 1.0) };
    (void) lik;
    (void) rule;
    (void) s;
    return at;
}

/* The tally's y are means of 1 / y. */
static double inverse_gaussian_rest(const elvi_dispersion *a, const elvi_tally *inverses, double *slope)
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
 * (d = 0). log Gamma(1 + 1/k) = c makes e^eta the mean of a Weibull law; with k = 1 it is exponential. */
typedef struct {
    double u, d;
} survival;

static inline survival survival_of(double shape, double centre, double y, double eta)
{
    const survival out = { shape * (log(fabs(y)) + centre - eta), y > 0.0 ? 1.0 : 0.0 };
    return out;
}

/* log Gamma(1 + 1/k), also where 1/k overflows the function: Stirling's series */
static double weibull_centre(const elvi_dispersion *a)
{
    return a->inverse > 1e100 ? a->inverse * (-a->log - 1.0) : lgammafn(1.0 + a->inverse);
}

/* du/da - u */
static double weibull_turn(const elvi_dispersion *a)
{
    return a->inverse > 1e100 ? a->log : -digamma(1.0 + a->inverse);
}

static double weibull_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    const double centre = weibull_centre(a);
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const survival at = survival_of(a->natural, centre, rows->y[i], eta[i]);
        if (rows->weight[i] > 0.0) sum += rows->weight[i] * (exp(at.u) - at.d * at.u);
    }
    return sum;
}

static double weibull_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    const double centre = weibull_centre(a), turn = weibull_turn(a);
    double along = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const survival at = survival_of(a->natural, centre, rows->y[i], eta[i]);
        const double excess = exp(at.u) - at.d;
        eta[i] = w > 0.0 ? -a->natural * w * excess : 0.0;
        if (w > 0.0) along += w * excess * (at.u + turn);
    }
    return along;
}

static elvi_expectation weibull_expect(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    const double k = a->natural;
    const survival at = survival_of(k, weibull_centre(a), y, eta);
    elvi_expectation e = { HUGE_VAL, 0.0, 0.0 };
    (void) lik;
    if (!(k * s < rule->limit)) return e; /* it does not exist */
    const elvi_expectation up = expect_exponential(rule, at.u, k * s);
    e.value = up.value - at.d * at.u;
    e.slope = -k * (up.slope - at.d);
    e.curve = k * k * up.curve;
    return e;
}

/* E (e^u - d) du/da, du/da = u + turn and u as far from its mean as eta is */
static double weibull_along(const elvi_dispersion *a, double y, double eta, double s, const elvi_expectation *e)
{
    const survival at = survival_of(a->natural, weibull_centre(a), y, eta);
    return -(at.u + weibull_turn(a)) * a->inverse * e->slope + s * s * e->curve;
}

/* the tally's weight counts events: -log k each */
static double weibull_rest(const elvi_dispersion *a, const elvi_tally *events, double *slope)
{
    double sum = 0.0;
    for (int i = 0; i < events->n; i++) sum += events->weight[i];
    if (slope) *slope = -sum;
    return -sum * a->log;
}

/* ---- beta: log B(m phi, (1 - m) phi) - m phi logit(y), m = 1 / (1 + e^-eta) the mean, a = log phi ---- */

/* the two parameters of the law, not so small or large that their functions would fail */
typedef struct {
    double m, rest, p, q, level; /* mean and 1 - mean; their parameters; logit(y) */
} beta_law;

static inline beta_law beta_of(const elvi_dispersion *a, double y, double eta)
{
    const two_sides at = sides_of(eta);
    const double phi = fmin(fmax(a->natural, 1e-290), 1e290);
    const beta_law out = { at.p, at.q, fmax(at.p * phi, 1e-300), fmax(at.q * phi, 1e-300), log(y) - log1p(-y) };
    return out;
}

static inline double beta_value(const beta_law *b) { return lbeta(b->p, b->q) - b->p * b->level; }

/* digamma(p) - digamma(q) - logit(y) */
static inline double beta_pull(const beta_law *b) { return digamma(b->p) - digamma(b->q) - b->level; }

static inline double beta_along(const beta_law *b)
{
    const double both = digamma(b->p + b->q);
    return b->p * (digamma(b->p) - both - b->level) + b->q * (digamma(b->q) - both);
}

static double beta_loss(LIKELIHOOD, const elvi_part *rows, const double *eta)
{
    double sum = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        if (!(rows->weight[i] > 0.0)) continue;
        const beta_law b = beta_of(a, rows->y[i], eta[i]);
        sum += rows->weight[i] * beta_value(&b);
    }
    return sum;
}

static double beta_slope(LIKELIHOOD, const elvi_part *rows, double *eta)
{
    double along = 0.0;
    (void) lik;
    for (int i = 0; i < rows->rows; i++) {
        const double w = rows->weight[i];
        const beta_law b = beta_of(a, rows->y[i], eta[i]);
        if (w > 0.0) along += w * beta_along(&b);
        eta[i] = w > 0.0 ? w * b.p * b.rest * beta_pull(&b) : 0.0;
    }
    return along;
}

/* at a point only: it is not convex where the mean is far from the response */
static elvi_expectation beta_at(LIKELIHOOD, const elvi_quadrature *rule, double y, double eta, double s)
{
    const beta_law b = beta_of(a, y, eta);
    const double pull = beta_pull(&b), by = b.p * b.rest;
    const elvi_expectation e = { beta_value(&b), by * pull,
                                 by * ((b.rest - b.m) * pull + by * (trigamma(b.p) + trigamma(b.q))) };
    (void) lik;
    (void) rule;
    (void) s;
    return e;
}

/* The tally's y are means of log(1 - y). */
static double beta_rest(const elvi_dispersion *a, const elvi_tally *logs, double *slope)
{
    double sum = 0.0;
    for (int i = 0; i < logs->n; i++) sum -= logs->weight[i] * a->natural * logs->y[i];
    if (slope) *slope = sum;
    return sum;
}

/* ---- the records ------------------------------------------------------------------- */

static const elvi_family families[] = {
    /* name, convex, quadratic, dispersions, cost, loss, slope, expect, expect_many, exponential, rest, along */
    { "logit", 1, 0, 0, 40.0, logit_loss, logit_slope, logit_expect, elvi_logit_expect_rows, never, NULL },
    { "probit", 1, 0, 0, 600.0, probit_loss, probit_slope, probit_expect, NULL, never, NULL },
    { "cloglog", 1, 0, 0, 600.0, cloglog_loss, cloglog_slope, cloglog_expect, NULL, fails, NULL },
    { "poisson", 1, 0, 0, 40.0, poisson_loss, poisson_slope, poisson_expect, NULL, always, NULL },
    { "normal", 1, 1, 1, 40.0, normal_loss, normal_slope, normal_expect, NULL, never, normal_rest },
    { "robust", 0, 0, 1, 300.0, robust_loss, robust_slope, robust_at, NULL, never, NULL },
    { "neg_binomial_2", 1, 0, 1, 300.0, negbin_loss, negbin_slope, negbin_expect, NULL, never, negbin_rest },
    { "gamma", 1, 0, 1, 100.0, gamma_loss, gamma_slope, gamma_expect, NULL, always, gamma_rest },
    { "inverse_gaussian", 0, 0, 1, 100.0, inverse_gaussian_loss, inverse_gaussian_slope, inverse_gaussian_at, NULL, never,
      inverse_gaussian_rest },
    { "exponential", 1, 0, 0, 100.0, weibull_loss, weibull_slope, weibull_expect, NULL, always, NULL },
    { "weibull", 1, 0, 1, 150.0, weibull_loss, weibull_slope, weibull_expect, NULL, always, weibull_rest, weibull_along },
    { "beta", 0, 0, 1, 600.0, beta_loss, beta_slope, beta_at, NULL, never, beta_rest },
};

const elvi_family *elvi_family_named(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

int elvi_family_is_whole(const elvi_family *family, int with_along)
{
    return family->cost > 0.0 && family->loss && family->slope && family->expect && family->exponential &&
           (family->along || !with_along);
}

elvi_status elvi_expect_rows(const elvi_likelihood *lik, const elvi_quadrature *rule, double dispersion,
                             const elvi_lines *rows, elvi_expected *out)
{
    const elvi_family *family = lik->family;
    const elvi_dispersion a = { log(dispersion), dispersion, 1.0 / dispersion };
    if (family->expect_many && rows->n > 1) return family->expect_many(rule, rows, out);
    out->sum = out->widest = 0.0;
    for (int i = 0; i < rows->n; i++) {
        const double y = rows->y[i], w = rows->weight[i], s = rows->s[i];
        elvi_expectation e = { 0.0, 0.0, 0.0 };
        if (w > 0.0) {
            if (family->exponential(y) && !(s < rule->limit)) return ELVI_NO_EXPECTATION;
            if (!family->convex && s > 0.0) return ELVI_NO_EXPECTATION;
            e = family->expect(lik, &a, rule, y, rows->eta[i], s);
            if (s > out->widest) out->widest = s;
        }
        out->sum += w * e.value;
        out->slope[i] = w * e.slope;
        out->curve[i] = w * (family->convex ? fmax(e.curve, 0.0) : e.curve); /* rounding aside */
    }
    return ELVI_OK;
}
