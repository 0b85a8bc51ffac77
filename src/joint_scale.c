/* A dispersion with a predictor of its own, s = log sigma, log shape or log phi: the predictors are (eta, s). */
#include "joint_counts.h"
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

const elvi_joint elvi_scale_families[] = {
    { .name = "normal_scale", .hypers = 0, .at = normal_at, .expect = normal_expect },
    { .name = "neg_binomial_2_scale", .hypers = 0, .at = negbinomial_at, .expect = negbinomial_expect },
    { .name = "gamma_scale", .hypers = 0, .at = gamma_at, .expect = gamma_expect },
    { .name = "beta_scale", .hypers = 0, .at = beta_at, .expect = beta_expect },
    { .name = NULL },
};
