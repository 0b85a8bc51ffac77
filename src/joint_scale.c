/* A dispersion with a predictor of its own, s = log sigma, log shape or log phi: the predictors are (eta, s). */
#include "family.h"
#include "joint_counts.h"
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

/* what both predictors are in, and what only the second one is in, whose functions take time */
static elvi_joint_piece negbinomial_both(const double *hyper, double y, const double *eta)
{
    const double phi = exp(fmin(fmax(eta[1], -600.0), 600.0)), u = eta[0] - eta[1], p = elvi_logistic(u), both = elvi_log1pexp(u);
    const double n = y + phi, bend = n * p * (1.0 - p);
    const elvi_joint_piece out = {
        .value = n * both - y * u,
        .slope = { n * p - y, phi * both - n * p + y },
        .curve = { bend, phi * p - bend, phi * both - 2.0 * phi * p + bend },
    };
    (void) hyper;
    return out;
}

static elvi_line_piece negbinomial_own(const double *hyper, double y, double s)
{
    const double phi = exp(fmin(fmax(s, -600.0), 600.0)), n = y + phi, first = phi * (digamma(phi) - digamma(n));
    const elvi_line_piece out = {
        .value = lgammafn(phi) - lgammafn(n),
        .slope = first,
        .curve = first + phi * phi * (trigamma(phi) - trigamma(n)),
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
    elvi_joint_piece out = negbinomial_both(hyper, y, eta);
    add_own(negbinomial_own(hyper, y, eta[1]), &out);
    return out;
}

static elvi_joint_piece negbinomial_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    elvi_joint_piece out = elvi_joint_integrate(negbinomial_both, hyper, rule, row);
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
    const double k = exp(fmin(fmax(s, -600.0), 600.0)), pull = k * (digamma(k) - s - 1.0);
    const elvi_line_piece out = { .value = lgammafn(k) - k * s, .slope = pull, .curve = pull - k + k * k * trigamma(k) };
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

static elvi_joint_piece beta_at(const double *hyper, double y, const double *eta)
{
    const double phi = exp(fmin(fmax(eta[1], -600.0), 600.0)), m = elvi_logistic(eta[0]), other = elvi_logistic(-eta[0]);
    const double p = fmax(m * phi, 1e-300), q = fmax(other * phi, 1e-300), dm = m * other;
    const double gp = digamma(p) - log(y), gq = digamma(q) - log1p(-y), gn = digamma(phi);
    const double tp = trigamma(p), tq = trigamma(q), tn = trigamma(phi);
    const double pull = gp - gq, scale = m * gp + other * gq - gn; /* dl/dm / phi, dl/dphi */
    const elvi_joint_piece out = {
        .value = lbeta(p, q) - p * log(y) - q * log1p(-y),
        .slope = { phi * dm * pull, phi * scale },
        .curve = {
            phi * dm * (other - m) * pull + phi * phi * dm * dm * (tp + tq),
            phi * dm * pull + phi * phi * dm * (m * tp - other * tq),
            phi * scale + phi * phi * (m * m * tp + other * other * tq - tn),
        },
    };
    (void) hyper;
    return out;
}

static elvi_joint_piece beta_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    return elvi_joint_integrate(beta_at, hyper, rule, row);
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

static elvi_joint_piece betabinomial_at(const double *hyper, double y, const double *eta)
{
    const double phi = exp(fmin(fmax(eta[1], -200.0), 200.0)), m = elvi_logistic(eta[0]), other = elvi_logistic(-eta[0]);
    const double p = fmax(m * phi, 1e-100), q = fmax(other * phi, 1e-100), dp = phi * m * other;
    const trials seen = trials_of(y);
    const gamma_gain all = gamma_gain_of(phi, seen.n), hits = gamma_gain_of(p, seen.k), misses = gamma_gain_of(q, seen.n - seen.k);
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
    (void) hyper;
    return out;
}

static elvi_joint_piece betabinomial_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    return elvi_joint_integrate(betabinomial_at, hyper, rule, row);
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
