/* A dispersion with a predictor of its own, s = log sigma, log shape or log phi: the predictors are (eta, s). */
#include "family.h"
#include "joint_counts.h"
#include "stirling.h"
#include "trials.h"
#include <Rmath.h>

/* ---- normal: s + (y - eta)^2 e^-2s / 2 ---- */

/* (y - eta)^2 e^-2s / 2, expected, where e^-2s (y - eta) and the like follow from moving the means by 2 Cov(., s) */
static elvi_joint_piece normal_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const double precision = exp(-2.0 * row->eta[1] + 2.0 * row->V[2]), gap = row->y - row->eta[0] + 2.0 * row->V[1];
    const double square = precision * (gap * gap + row->V[0]);
    const elvi_joint_piece out = {
        .value = row->eta[1] + 0.5 * square,
        .slope = { -precision * gap, 1.0 - square },
        .curve = { precision, 2.0 * precision * gap, 2.0 * square },
    };
    (void) hyper;
    (void) rule;
    return out;
}

static elvi_joint_piece normal_at(const double *hyper, double y, const double *eta)
{
    const elvi_joint_row row = { .y = y, .eta = { eta[0], eta[1] } };
    return normal_expect(hyper, NULL, &row);
}

/* ---- neg_binomial_2: (y + phi) log(1 + e^u) - y u - log Gamma(y + phi) + log Gamma(phi), u = eta - s ---- */

/* log(1 + e^u) and its first two derivatives */
typedef struct {
    double value, slope, curve;
} softplus;

static inline softplus softplus_at(double u)
{
    const double e = exp(-fabs(u)), near = 1.0 / (1.0 + e);
    const softplus out = { fmax(u, 0.0) + log1p(e), u > 0.0 ? near : e * near, e * near * near };
    return out;
}

/* these times e^-u, which are between 0 and 1: e^s log(1 + e^u) is e^eta times such a number */
static inline softplus shrunk_softplus_at(double u)
{
    const double e = exp(-fabs(u)), far = (u > 0.0 ? e : 1.0) / (1.0 + e);
    const softplus out = { u > 0.0 ? e * (u + log1p(e)) : (e > 0.0 ? log1p(e) / e : 1.0), far, far * far };
    return out;
}

static softplus expect_softplus(softplus (*at)(double), const elvi_quadrature_level *level, double mean, double s)
{
    softplus sum = { 0.0, 0.0, 0.0 };
    for (int i = 0; i < 2 * level->n; i++) {
        const double w = level->w[i / 2];
        const softplus here = at(mean + s * elvi_node(level, i));
        sum.value += w * here.value;
        sum.slope += w * here.slope;
        sum.curve += w * here.curve;
    }
    return sum;
}

/* what both predictors are in: `plain` from log(1 + e^u), expected; `shrunk` from the other under weights e^eta, whose mean is
 * `mean` */
static elvi_joint_piece negbinomial_both(double y, double u, double mean, softplus plain, softplus shrunk)
{
    const double slope = y * plain.slope + mean * shrunk.slope, bend = y * plain.curve + mean * shrunk.curve;
    const double turn = mean * (shrunk.value - shrunk.slope);
    const elvi_joint_piece out = {
        .value = y * plain.value + mean * shrunk.value - y * u,
        .slope = { slope - y, turn - y * plain.slope + y },
        .curve = { bend, mean * shrunk.slope - bend, turn - mean * shrunk.slope + bend },
    };
    return out;
}

/* and what only the second one is in, whose functions take time */
static elvi_line_piece negbinomial_own(const double *hyper, double y, double s)
{
    const double phi = exp(fmin(fmax(s, -200.0), 200.0));
    const gamma_gain gain = gamma_gain_of(phi, y);
    const elvi_line_piece out = {
        .value = -gain.value,
        .slope = -phi * gain.slope,
        .curve = -phi * gain.slope - phi * phi * gain.curve,
    };
    (void) hyper;
    return out;
}

static void add_own(elvi_line_piece own, elvi_joint_piece *out)
{
    out->value += own.value;
    out->slope[1] += own.slope;
    out->curve[2] += own.curve;
}

static elvi_joint_piece negbinomial_at(const double *hyper, double y, const double *eta)
{
    const double u = eta[0] - eta[1];
    elvi_joint_piece out = negbinomial_both(y, u, exp(fmin(eta[0], 700.0)), softplus_at(u), shrunk_softplus_at(u));
    add_own(negbinomial_own(hyper, y, eta[1]), &out);
    return out;
}

/* u is normal, and stays so under weights e^eta, which move its mean by its covariance with eta: two rules of one dimension */
static elvi_joint_piece negbinomial_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const double *V = row->V, u = row->eta[0] - row->eta[1], wide = sqrt(fmax(V[0] - 2.0 * V[1] + V[2], 0.0));
    const elvi_quadrature_level *level = elvi_joint_level(rule, wide);
    elvi_joint_piece out = negbinomial_both(row->y, u, exp(row->eta[0] + 0.5 * V[0]), expect_softplus(softplus_at, level, u, wide),
                                            expect_softplus(shrunk_softplus_at, level, u + V[0] - V[1], wide));
    elvi_joint_add_line(negbinomial_own, hyper, rule, row, 1, &out);
    return out;
}

/* ---- gamma: k (eta - log y + y e^-eta) - k s + log Gamma(k), k = e^s, up to log y ---- */

/* E k (eta - log y) and E k y e^-eta have closed forms: k moves the mean of eta by its covariance with s */
static elvi_joint_piece gamma_both(const elvi_joint_row *row)
{
    const double *V = row->V, k = exp(row->eta[1] + 0.5 * V[2]), level = row->eta[0] + V[1] - log(row->y);
    const double ratio = row->y * exp(row->eta[1] - row->eta[0] + 0.5 * (V[0] - 2.0 * V[1] + V[2]));
    const elvi_joint_piece out = {
        .value = k * level + ratio,
        .slope = { k - ratio, k * level + ratio },
        .curve = { ratio, k - ratio, k * level + ratio },
    };
    return out;
}

static elvi_line_piece gamma_own(const double *hyper, double y, double s)
{
    const double at = fmin(fmax(s, -300.0), 300.0), k = exp(at);
    const elvi_gamma g = elvi_gamma_of(k, at);
    const double pull = k * (g.slope - s - 1.0);
    const elvi_line_piece out = {
        .value = M_LN_SQRT_2PI - 0.5 * at - k + g.rest, /* log Gamma(k) - k log k */
        .slope = pull,
        .curve = pull - k + k * (k * g.curve),
    };
    (void) hyper;
    (void) y;
    return out;
}

static elvi_joint_piece gamma_at(const double *hyper, double y, const double *eta)
{
    const elvi_joint_row row = { .y = y, .eta = { eta[0], eta[1] } };
    elvi_joint_piece out = gamma_both(&row);
    add_own(gamma_own(hyper, y, eta[1]), &out);
    return out;
}

static elvi_joint_piece gamma_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    elvi_joint_piece out = gamma_both(row);
    elvi_joint_add_line(gamma_own, hyper, rule, row, 1, &out);
    return out;
}

/* ---- beta: log B(m phi, (1 - m) phi) - m phi log y - (1 - m) phi log(1 - y), m = 1 / (1 + e^-eta) ---- */

/* y and phi, and the gamma functions at phi */
typedef struct {
    double log_y, log_other, s, phi;
    elvi_gamma both;
} beta_given;

static beta_given beta_given_of(double log_y, double log_other, double s)
{
    const double at = fmin(fmax(s, -300.0), 300.0), phi = exp(at);
    const beta_given out = { log_y, log_other, at, phi, elvi_gamma_of(phi, at) };
    return out;
}

static inline elvi_joint_piece beta_point(const beta_given *g, double eta)
{
    const double e = exp(-fabs(eta)), less = 1.0 / (1.0 + e), near = -log1p(e), far = near - fabs(eta), phi = g->phi;
    const double m = eta > 0.0 ? less : e * less, other = eta > 0.0 ? e * less : less, dm = m * other;
    const double log_m = eta > 0.0 ? near : far, log_other = eta > 0.0 ? far : near;
    const double p = fmax(m * phi, 1e-150), q = fmax(other * phi, 1e-150);
    const elvi_gamma at_p = elvi_gamma_of(p, fmax(log_m + g->s, -345.0)), at_q = elvi_gamma_of(q, fmax(log_other + g->s, -345.0));
    const double gp = at_p.slope - g->log_y, gq = at_q.slope - g->log_other;
    const double pull = gp - gq, scale = m * gp + other * gq - g->both.slope; /* dl/dm / phi, dl/dphi */
    const double bend = phi * dm * pull, dp = phi * dm, tp = p * at_p.curve, tq = q * at_q.curve;
    const elvi_joint_piece out = {
        .value = p * (log_m - g->log_y) + q * (log_other - g->log_other) - 0.5 * (log_m + log_other + g->s) + M_LN_SQRT_2PI +
                 at_p.rest + at_q.rest - g->both.rest,
        .slope = { bend, phi * scale },
        .curve = {
            bend * (other - m) + dp * dp * (at_p.curve + at_q.curve),
            bend + dp * (tp - tq),
            phi * scale + p * tp + q * tq - phi * phi * g->both.curve,
        },
    };
    return out;
}

static elvi_joint_piece beta_at(const double *hyper, double y, const double *eta)
{
    const beta_given given = beta_given_of(log(y), log1p(-y), eta[1]);
    (void) hyper;
    return beta_point(&given, eta[0]);
}

/* eta given s in the inner loop, so that functions of y and phi are outside of it */
static elvi_joint_piece beta_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const elvi_joint_axes x = elvi_joint_axes_given_second(rule, row);
    const double log_y = log(row->y), log_other = log1p(-row->y);
    elvi_joint_piece sum = { 0 };
    (void) hyper;
    for (int j = 0; j < 2 * x.second->n; j++) {
        const double z = elvi_node(x.second, j), w = x.second->w[j / 2];
        const beta_given given = beta_given_of(log_y, log_other, row->eta[1] + x.s2 * z);
        for (int i = 0; i < 2 * x.first->n; i++) {
            if (w * x.first->w[i / 2] < elvi_least_weight) continue;
            const elvi_joint_piece e = beta_point(&given, row->eta[0] + x.with * z + x.s1 * elvi_node(x.first, i));
            elvi_joint_add(&sum, w * x.first->w[i / 2], &e);
        }
    }
    return sum;
}

/* ---- lognormal: s + u^2 / 2, u = (log t - eta) / sigma + sigma / 2, up to log t ---- */

/* u^2 / 2 = (log t - eta)^2 e^-2s / 2 + (log t - eta) / 2 + e^2s / 8 */
static elvi_joint_piece lognormal_event(const elvi_quadrature *rule, const elvi_joint_row *row)
{
    elvi_joint_row logs = *row;
    logs.y = log(row->y);
    elvi_joint_piece out = normal_expect(NULL, rule, &logs);
    const double square = exp(2.0 * row->eta[1] + 2.0 * row->V[2]);
    out.value += 0.5 * (logs.y - row->eta[0]) + 0.125 * square;
    out.slope[0] -= 0.5;
    out.slope[1] += 0.25 * square;
    out.curve[2] += 0.5 * square;
    return out;
}

/* -log Phi(-u): the time is later than -y */
static elvi_joint_piece lognormal_later(const double *hyper, double y, const double *eta)
{
    const double s = fmin(fmax(eta[1], -300.0), 300.0), sigma = exp(s), gap = (log(-y) - eta[0]) / sigma;
    const double u = gap + 0.5 * sigma, by_s = 0.5 * sigma - gap, hazard = elvi_mills(-u), bend = hazard * (hazard - u);
    const elvi_joint_piece out = {
        .value = -pnorm(u, 0.0, 1.0, 0, 1),
        .slope = { -hazard / sigma, hazard * by_s },
        .curve = { bend / (sigma * sigma), (hazard - bend * by_s) / sigma, bend * by_s * by_s + hazard * u },
    };
    (void) hyper;
    return out;
}

static elvi_joint_piece lognormal_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    return row->y > 0.0 ? lognormal_event(rule, row) : elvi_joint_integrate(lognormal_later, hyper, rule, row);
}

static elvi_joint_piece lognormal_at(const double *hyper, double y, const double *eta)
{
    const elvi_joint_row row = { .y = y, .eta = { eta[0], eta[1] } };
    return y > 0.0 ? lognormal_event(NULL, &row) : lognormal_later(hyper, y, eta);
}

/* ---- student: s + (nu + 1) / 2 log(1 + u^2), u = (eta - y) / (sigma sqrt(nu)), nu its own parameter ---- */

static elvi_joint_piece student_at(const double *hyper, double y, const double *eta)
{
    const double nu = hyper[0], by = 0.5 * (nu + 1.0), unit = exp(fmin(fmax(-eta[1], -300.0), 300.0)) / sqrt(nu);
    const double u = (eta[0] - y) * unit, q = u * u, level = log1p(q);
    const double slope = 2.0 * u / (1.0 + q), curve = 2.0 * (1.0 - q) / ((1.0 + q) * (1.0 + q)); /* of it, in u */
    const elvi_joint_piece out = {
        .value = eta[1] + by * level,
        .slope = { by * unit * slope, 1.0 - by * u * slope },
        .curve = { by * unit * unit * curve, -by * unit * (u * curve + slope), by * u * (u * curve + slope) },
        .hyper = 0.5 * (nu * level - by * u * slope),
    };
    return out;
}

/* The loss bends within a few sigma of the response, so that the rule for eta given s is chosen by its spread in sigmas. */
static elvi_joint_piece student_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const double wide = sqrt(fmax(row->V[2], 0.0)), lean = wide > 0.0 ? row->V[1] / wide : 0.0;
    const double rest = sqrt(fmax(row->V[0] - lean * lean, 0.0));
    const elvi_quadrature_level *outer = elvi_joint_level(rule, wide);
    elvi_joint_piece sum = { 0 };
    for (int j = 0; j < 2 * outer->n; j++) {
        const double z = elvi_node(outer, j), s = row->eta[1] + wide * z, mean = row->eta[0] + lean * z;
        const elvi_quadrature_level *inner = elvi_joint_level(rule, 2.0 * rest * exp(-s) / sqrt(hyper[0]));
        for (int i = 0; i < 2 * inner->n; i++) {
            const double eta[ELVI_LINES] = { mean + rest * elvi_node(inner, i), s };
            const elvi_joint_piece e = student_at(hyper, row->y, eta);
            elvi_joint_add(&sum, outer->w[j / 2] * inner->w[i / 2], &e);
        }
    }
    return sum;
}

/* ---- beta-binomial: log B(p, q) - log B(p + k, q + n - k), p = m phi, q = (1 - m) phi, m = 1 / (1 + e^-eta) ---- */

typedef struct {
    double phi;
    trials seen;
    gamma_gain all; /* of phi and n */
} betabinomial_given;

static betabinomial_given betabinomial_given_of(double y, double s)
{
    const double phi = exp(fmin(fmax(s, -200.0), 200.0));
    const trials seen = trials_of(y);
    const betabinomial_given out = { phi, seen, gamma_gain_of(phi, seen.n) };
    return out;
}

static inline elvi_joint_piece betabinomial_point(const betabinomial_given *g, double eta)
{
    const double phi = g->phi, e = exp(-fabs(eta)), less = 1.0 / (1.0 + e);
    const double m = eta > 0.0 ? less : e * less, other = eta > 0.0 ? e * less : less;
    const double p = fmax(m * phi, 1e-100), q = fmax(other * phi, 1e-100), dp = phi * m * other;
    const gamma_gain all = g->all, hits = gamma_gain_of(p, g->seen.k), misses = gamma_gain_of(q, g->seen.n - g->seen.k);
    const double slope = dp * (misses.slope - hits.slope), turn = phi * all.slope - p * hits.slope - q * misses.slope;
    const elvi_joint_piece out = {
        .value = all.value - hits.value - misses.value,
        .slope = { slope, turn },
        .curve = {
            (other - m) * slope - dp * dp * (hits.curve + misses.curve),
            slope + dp * (q * misses.curve - p * hits.curve),
            turn + phi * phi * all.curve - p * p * hits.curve - q * q * misses.curve,
        },
    };
    return out;
}

static elvi_joint_piece betabinomial_at(const double *hyper, double y, const double *eta)
{
    const betabinomial_given given = betabinomial_given_of(y, eta[1]);
    (void) hyper;
    return betabinomial_point(&given, eta[0]);
}

static elvi_joint_piece betabinomial_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const elvi_joint_axes x = elvi_joint_axes_given_second(rule, row);
    elvi_joint_piece sum = { 0 };
    (void) hyper;
    for (int j = 0; j < 2 * x.second->n; j++) {
        const double z = elvi_node(x.second, j), w = x.second->w[j / 2];
        const betabinomial_given given = betabinomial_given_of(row->y, row->eta[1] + x.s2 * z);
        for (int i = 0; i < 2 * x.first->n; i++) {
            if (w * x.first->w[i / 2] < elvi_least_weight) continue;
            const elvi_joint_piece e = betabinomial_point(&given, row->eta[0] + x.with * z + x.s1 * elvi_node(x.first, i));
            elvi_joint_add(&sum, w * x.first->w[i / 2], &e);
        }
    }
    return sum;
}

const elvi_joint elvi_scale_families[] = {
    { .name = "normal_scale", .hypers = 0, .at = normal_at, .expect = normal_expect },
    { .name = "neg_binomial_2_scale", .hypers = 0, .at = negbinomial_at, .expect = negbinomial_expect },
    { .name = "gamma_scale", .hypers = 0, .at = gamma_at, .expect = gamma_expect },
    { .name = "beta_scale", .hypers = 0, .at = beta_at, .expect = beta_expect },
    { .name = "lognormal_scale", .hypers = 0, .at = lognormal_at, .expect = lognormal_expect },
    { .name = "student_scale", .hypers = 1, .at = student_at, .expect = student_expect },
    { .name = "beta_binomial_scale", .hypers = 0, .at = betabinomial_at, .expect = betabinomial_expect },
    { .name = NULL },
};
