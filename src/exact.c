/* E f for generalised linear models without Monte Carlo.
 *
 * u_i'x = eta_i + s_i z_1 with eta_i = u_i'mu + offset_i and s_i = |scale' u_i|,
 * so E f is a sum of one-dimensional integrals against the marginal of z_1:
 *   E f      = prior + sum_i w_i E l(eta_i + s_i z_1)
 *   d/dmu    = prior + sum_i w_i E[l'] u_i
 *   d/dscale = B scale,  B = P + sum_i c_i u_i u_i',  c_i = w_i E[l' z_1] / s_i,
 * P the precision of a normal prior, and like c_i with u_i = e_i for a student one.
 * Rows are taken in chunks, so memory stays bounded. */
#include "elvi.h"
#include <Rmath.h>
#include <float.h>
#include <string.h>

/* below this spread, c_i is l''(eta) up to s^2, and better than a difference */
static const double tiny_spread = 1e-5;

typedef struct {
    double value, slope, curve;   /* E l, E l', E[l' z] / s */
} expectations;

/* ---- losses and their derivatives at a point ------------------------------ */

typedef struct {
    double l, slope;
} loss_at;

static inline loss_at logit_loss(double t)
{
    const double e = exp(-fabs(t)), p = 1.0 / (1.0 + e);
    loss_at out;
    out.l = (t > 0.0 ? t : 0.0) + log1p(e);
    out.slope = t > 0.0 ? p : e * p;
    return out;
}

static inline loss_at poisson_loss(double t)
{
    const double e = exp(t);
    loss_at out = { e, e };
    return out;
}

/* -log Phi(t) and its derivative; far out dnorm and pnorm cancel and the
 * asymptotic series of their ratio, there exact to rounding, is better */
static inline loss_at probit_loss(double t)
{
    loss_at out;
    out.l = -pnorm(t, 0.0, 1.0, 1, 1);
    if (t < -50.0) {
        const double y = 1.0 / (t * t);
        out.slope = t * (1.0 + y * (1.0 - y * (2.0 - y * (10.0 - 74.0 * y))));
    } else
        out.slope = -exp(dnorm(t, 0.0, 1.0, 1) + out.l);
    return out;
}

static inline loss_at hit_loss(double t)
{
    loss_at out;
    out.l = elvi_cloglog_hit(t, &out.slope);
    return out;
}

/* log(1 + t^2), a student penalty in units of sqrt(nu) prior scales */
static inline loss_at tail_loss(double t)
{
    const loss_at out = { log1p(t * t), 2.0 * t / (1.0 + t * t) };
    return out;
}

/* the functions of one variable that are integrated; up to signs and linear
 * terms every loss is made of them */
typedef enum { LOGIT, PROBIT, EXP, HIT, TAIL } piece;

/* at a point: the function, its first and its second derivative */
static expectations at_point(piece f, double t)
{
    loss_at at = { 0.0, 0.0 };
    double curve = 0.0, e;
    switch (f) {
    case LOGIT:
        at = logit_loss(t);
        curve = at.slope * (1.0 - at.slope);
        break;
    case PROBIT:
        at = probit_loss(t);
        curve = -at.slope * (t - at.slope);
        break;
    case EXP:
        at = poisson_loss(t);
        curve = at.l;
        break;
    case HIT:   /* r (e - 1 + r), r = e / (exp(e) - 1): a series where that cancels */
        e = exp(t);
        at = hit_loss(t);
        if (at.slope != 0.0)
            curve = -at.slope * (e < 0.01 ? e * (0.5 + e * (1.0 / 12.0 - e * e / 720.0))
                                          : e - 1.0 - at.slope);
        break;
    case TAIL:
        e = 1.0 + t * t;
        at = tail_loss(t);
        curve = 2.0 * (1.0 - t * t) / e / e;
        break;
    }
    const expectations out = { at.l, at.slope, curve };
    return out;
}

/* ---- expectations ----------------------------------------------------------- */

#define INTEGRATE(loss)                                                \
    for (int q = 0; q < level->n; q++) {                               \
        const double shift = s * level->z[q], w = level->w[q];         \
        const loss_at up = loss(eta + shift), down = loss(eta - shift);\
        e.value += w * (up.l + down.l);                                \
        e.slope += w * (up.slope + down.slope);                        \
        e.curve += w * level->z[q] * (up.slope - down.slope);          \
    }

static expectations expect(piece f, const elvi_rule_level *level, double eta, double s)
{
    expectations e = { 0.0, 0.0, 0.0 };
    if (s == 0.0) return at_point(f, eta);
    while (level->limit < s) level++;   /* the last level has no limit */
    switch (f) {
    case LOGIT: INTEGRATE(logit_loss) break;
    case PROBIT: INTEGRATE(probit_loss) break;
    case EXP: INTEGRATE(poisson_loss) break;
    case HIT: INTEGRATE(hit_loss) break;
    case TAIL: INTEGRATE(tail_loss) break;
    }
    e.curve = s > tiny_spread ? e.curve / s : at_point(f, eta).curve;
    return e;
}

/* E exp(eta + s z_1), in closed form where the base has one */
static expectations expect_exp(const elvi_rule *rule, double eta, double s)
{
    expectations e;
    if (rule->mgf == ELVI_MGF_NONE) return expect(EXP, rule->level, eta, s);
    if (rule->mgf == ELVI_MGF_GAUSSIAN) {
        e.value = e.slope = e.curve = exp(eta + 0.5 * s * s);
    } else {   /* laplace in dimension d: (1 - s^2/(d+1))^(-(d+1)/2) */
        const double c2 = rule->mgf_rate * rule->mgf_rate, base = 1.0 - s * s / c2;
        e.value = e.slope = exp(eta - 0.5 * c2 * log(base));
        e.curve = exp(eta - 0.5 * (c2 + 2.0) * log(base));
    }
    return e;
}

static void add(expectations *e, double by, double sign, expectations part)
{
    e->value += by * part.value;
    e->slope += by * sign * part.slope;   /* sign: of eta in the part */
    e->curve += by * part.curve;
}

static expectations expect_row(elvi_family family, const elvi_rule *rule, double y,
                               double eta, double s)
{
    const elvi_rule_level *level = rule->level;
    expectations e = { 0.0, 0.0, 0.0 };
    switch (family) {
    case ELVI_NORMAL:
        e.value = 0.5 * ((eta - y) * (eta - y) + s * s);
        e.slope = eta - y;
        e.curve = 1.0;
        return e;
    case ELVI_PROBIT:   /* -y log Phi(t) - (1 - y) log Phi(-t) */
        if (y > 0.0) add(&e, y, 1.0, expect(PROBIT, level, eta, s));
        if (y < 1.0) add(&e, 1.0 - y, -1.0, expect(PROBIT, level, -eta, s));
        return e;
    case ELVI_CLOGLOG:
        if (y > 0.0) add(&e, y, 1.0, expect(HIT, level, eta, s));
        if (y < 1.0) add(&e, 1.0 - y, 1.0, expect_exp(rule, eta, s));
        return e;
    case ELVI_LOGIT:
        e = expect(LOGIT, level, eta, s);
        break;
    case ELVI_POISSON:
        e = expect_exp(rule, eta, s);
        break;
    }
    e.value -= y * eta;
    e.slope -= y;
    return e;
}

/* Has the loss of a row with response y an exponential in it, whose expectation
 * may not exist? */
static int exponential(elvi_family family, double y)
{
    return family == ELVI_POISSON || (family == ELVI_CLOGLOG && y < 1.0);
}

/* ---- the sum over rows ------------------------------------------------------- */

/* The prior of x_i = mu_i + s_i z_1 is one more observation, whose row of the
 * design is a unit vector. A student one need not be convex: its c_i may be
 * negative. */
static void add_prior(const elvi_glm *glm, const elvi_rule *rule, const elvi_scale_ops *kind,
                      const elvi_theta *theta, elvi_exact *out)
{
    const int d = glm->dim;
    memset(out->B, 0, (size_t) d * d * sizeof(double));
    for (int i = 0; i < d; i++) {
        const double p = glm->precision[i], nu = glm->prior_df[i];
        const double off = theta->mu[i] - glm->centre[i];
        const double s2 = kind->variance(d, theta->scale, i);
        expectations e = { 0.5 * p * (off * off + s2), p * off, p };
        if (isfinite(nu)) {
            const double unit = sqrt(p / nu), by = 0.5 * (nu + 1.0);
            e = expect(TAIL, rule->prior, unit * off, unit * sqrt(s2));
            e.value *= by;
            e.slope *= by * unit;
            e.curve *= by * unit * unit;
        }
        out->value += e.value;
        out->g_mu[i] = e.slope;
        out->B[(size_t) i * d + i] = e.curve;
    }
}

/* What a thread needs for a chunk of rows: predictors, spreads and expectations, a
 * copy of the chunk or the like. */
typedef struct {
    double *eta, *s, *curve, *copy;
} exact_lane;

/* What a chunk gives: its part of the result. */
typedef struct {
    double *g_mu, *B;
    double sum, widest;
    int exists;
} exact_slot;

static size_t lane_length(const elvi_glm *glm)
{
    return 3 * (size_t) elvi_design_chunk(&glm->design, ELVI_POINT) + elvi_crossprod_length(&glm->design);
}

static exact_lane bind_lane(const elvi_glm *glm, double *room)
{
    const int chunk = elvi_design_chunk(&glm->design, ELVI_POINT);
    const exact_lane lane = { room, room + chunk, room + 2 * (size_t) chunk, room + 3 * (size_t) chunk };
    return lane;
}

static size_t slot_length(const elvi_glm *glm)
{
    return (size_t) glm->dim * ((size_t) glm->dim + 1);
}

static exact_slot bind_slot(const elvi_glm *glm, double *room)
{
    const exact_slot slot = { room, room + glm->dim, 0.0, 0.0, 1 };
    return slot;
}

static int lanes_of(const elvi_model *model)
{
    const elvi_glm *glm = model->data;
    const int chunk = elvi_design_chunk(&glm->design, ELVI_POINT), chunks = (glm->rows - 1) / chunk + 1;
    const int lanes = elvi_lanes(model->threads);
    return lanes < chunks ? lanes : chunks;
}

size_t elvi_exact_scratch_length(const elvi_model *model, const elvi_scale_ops *kind)
{
    const elvi_glm *glm = model->data;
    const int lanes = lanes_of(model);
    return elvi_spread_length(&glm->design, kind) + (size_t) lanes * lane_length(glm) +
           (size_t) elvi_slots(lanes) * slot_length(glm);
}

/* Some chunks, from row `first` on. */
typedef struct {
    const elvi_glm *glm;
    const elvi_rule *rule;
    const elvi_spread *spread;
    const double *mu;
    int first, chunk;
    exact_lane lane[ELVI_MOST_LANES];
    exact_slot slot[ELVI_MOST_SLOTS];
    elvi_exact *out;
} chunks;

static void expect_chunk(void *ctx, int part, int in_lane, int in_slot)
{
    chunks *c = ctx;
    const elvi_glm *glm = c->glm;
    const elvi_design *X = &glm->design;
    const exact_lane *lane = &c->lane[in_lane];
    exact_slot *slot = &c->slot[in_slot];
    const int first = c->first + part * c->chunk;
    const int d = glm->dim, rows = glm->rows - first < c->chunk ? glm->rows - first : c->chunk;
    const double *y = glm->y + first, *w = glm->weight + first;
    memset(slot->g_mu, 0, (size_t) d * sizeof(double));
    memset(slot->B, 0, (size_t) d * d * sizeof(double));
    slot->sum = slot->widest = 0.0;
    slot->exists = 1;
    elvi_glm_predict(glm, first, rows, c->mu, d, 1, lane->eta);
    elvi_design_spread(X, c->spread, first, rows, lane->copy, lane->s);
    for (int i = 0; i < rows; i++) {
        const double s = lane->s[i];
        expectations e = { 0.0, 0.0, 0.0 };
        if (w[i] > 0.0) {
            if (exponential(glm->family, y[i]) && !(s < c->rule->limit)) {
                slot->exists = 0;
                return;
            }
            e = expect_row(glm->family, c->rule, y[i], lane->eta[i], s);
            if (s > slot->widest) slot->widest = s;
        }
        slot->sum += w[i] * e.value;
        lane->eta[i] = w[i] * e.slope;
        lane->curve[i] = w[i] * fmax(e.curve, 0.0);
    }
    elvi_design_collect(X, first, rows, lane->eta, d, 1, slot->g_mu);
    elvi_design_crossprod(X, first, rows, lane->curve, lane->copy, slot->B);
}

static elvi_status add_chunk(void *ctx, int in_slot)
{
    const chunks *c = ctx;
    const exact_slot *slot = &c->slot[in_slot];
    elvi_exact *out = c->out;
    const int d = c->glm->dim;
    out->value += slot->sum;
    out->widest = fmax(out->widest, slot->widest);
    for (int i = 0; i < d; i++) out->g_mu[i] += slot->g_mu[i];
    for (size_t i = 0, n = (size_t) d * d; i < n; i++) out->B[i] += slot->B[i];
    return slot->exists ? ELVI_OK : ELVI_NO_EXPECTATION;
}

elvi_status elvi_glm_exact(const elvi_model *model, const elvi_rule *rule,
                           const elvi_scale_ops *kind, const elvi_theta *theta,
                           double *scratch, elvi_exact *out, const elvi_hooks *hooks)
{
    const elvi_glm *glm = model->data;
    const elvi_design *X = &glm->design;
    const int lanes = lanes_of(model), chunk = elvi_design_chunk(X, ELVI_POINT);
    const elvi_spread spread = elvi_spread_of(X, kind, theta->scale, scratch);
    chunks c = { .glm = glm, .rule = rule, .spread = &spread, .mu = theta->mu, .chunk = chunk, .out = out };
    const elvi_job job = { expect_chunk, add_chunk, &c, chunk * (1000.0 + (double) glm->dim * glm->dim) };
    scratch += elvi_spread_length(X, kind);
    for (int t = 0; t < lanes; t++, scratch += lane_length(glm)) c.lane[t] = bind_lane(glm, scratch);
    for (int t = 0; t < elvi_slots(lanes); t++, scratch += slot_length(glm)) c.slot[t] = bind_slot(glm, scratch);
    out->value = out->widest = 0.0;
    add_prior(glm, rule, kind, theta, out);
    for (int left = (glm->rows - 1) / chunk + 1; left > 0;) {
        const int now = elvi_parts_at_once(&job, lanes, (uint64_t) left);
        if (hooks->poll(hooks->ctx, NULL)) return ELVI_STOPPED;
        const elvi_status status = elvi_parallel(&job, model->threads, lanes, now);
        if (status != ELVI_OK) return status;
        left -= now;
        if (left > 0) c.first += now * chunk;
    }
    if (!isfinite(out->value)) return ELVI_NO_EXPECTATION;
    return ELVI_OK;
}
